#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Programs of Windows put a mark in front of UTF-8, or write UTF-16 behind one. */
static pf_status skip_mark(const char **data, size_t *len, const char *name, pf_err *err)
{
    if (*len >= 3 && memcmp(*data, "\xEF\xBB\xBF", 3) == 0) {
        *data += 3;
        *len -= 3;
    } else if (*len >= 2 &&
               (memcmp(*data, "\xFF\xFE", 2) == 0 || memcmp(*data, "\xFE\xFF", 2) == 0)) {
        return err_set(err, PF_REFUSED, "%s is UTF-16 text; save it as UTF-8", name);
    }
    return PF_OK;
}

pf_status json_parse(const char *data, size_t len, const char *name, json_t **out, pf_err *err)
{
    json_error_t where;
    *out = NULL;
    pf_status status = skip_mark(&data, &len, name, err);
    if (status != PF_OK) return status;
    *out = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (!*out)
        return err_set(err, PF_REFUSED, "%s is not valid JSON: %s (line %d, column %d)", name,
                       where.text, where.line, where.column);
    return PF_OK;
}

static pf_status wrong_type(pf_err *err, const char *key, const char *wanted)
{
    return err_set(err, PF_REFUSED, "\"%s\" must be %s", key, wanted);
}

pf_status json_get_string(const json_t *object, const char *key, const char **out, pf_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value) return PF_OK;
    if (!json_is_string(value)) return wrong_type(err, key, "a string");
    *out = json_string_value(value);
    return PF_OK;
}

pf_status json_get_int(const json_t *object, const char *key, int64_t low, int64_t high,
                       int64_t *out, pf_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value) return PF_OK;
    if (!json_is_integer(value)) return wrong_type(err, key, "a whole number");
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return err_set(err, PF_REFUSED, "\"%s\" is %lld; it must be in [%lld, %lld]", key,
                       (long long)number, (long long)low, (long long)high);
    *out = number;
    return PF_OK;
}

pf_status json_get_real(const json_t *object, const char *key, double low, double high, double *out,
                        pf_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value) return PF_OK;
    if (!json_is_number(value)) return wrong_type(err, key, "a number");
    double number = json_number_value(value);
    if (!isfinite(number) || number < low || number > high)
        return err_set(err, PF_REFUSED, "\"%s\" is %g; it must be in [%g, %g]", key, number, low,
                       high);
    *out = number;
    return PF_OK;
}

pf_status json_get_bool(const json_t *object, const char *key, bool *out, pf_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value) return PF_OK;
    if (!json_is_boolean(value)) return wrong_type(err, key, "true or false");
    *out = json_is_true(value);
    return PF_OK;
}

void json_append(buf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (!text) die("a JSON value could not be written");
    size_t len = strlen(text);
    buf_append(out, text, len);
    explicit_bzero(text, len); /* may hold private text, as buffers do */
    free(text);
}
