#include "data.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)

char *data_path(const char *folder, const char *fmt, ...)
{
    buf name = {0};
    va_list args;

    va_start(args, fmt);
    buf_vprintf(&name, fmt, args);
    va_end(args);
    char *path = path_join(folder, buf_str(&name));
    buf_free(&name);
    return path;
}

static bool read_bytes(const char *path, buf *out)
{
    pf_err err;
    pf_status status = file_read(path, MOST_BYTES, out, &err);

    if (status == PF_NOT_FOUND) return false;
    if (status != PF_OK) die("%s", err.text);
    return true;
}

static json_t *parse(const char *data, size_t len, const char *name)
{
    pf_err err;
    json_t *value = NULL;

    if (json_parse(data, len, name, &value, &err) != PF_OK) die("%s", err.text);
    return value;
}

json_t *data_json(const char *path)
{
    buf bytes = {0};
    json_t *value = NULL;

    if (read_bytes(path, &bytes)) value = parse(bytes.data, bytes.len, path);
    buf_free(&bytes);
    return value;
}

bool data_jsonl(const char *path, data_line line, void *ctx)
{
    buf bytes = {0};
    bool found = read_bytes(path, &bytes);

    for (size_t start = 0; found && start < bytes.len;) {
        const char *text = bytes.data + start;
        const char *end = memchr(text, '\n', bytes.len - start);
        size_t len = end ? (size_t)(end - text) : bytes.len - start;
        if (len > 0) {
            json_t *object = parse(text, len, path);
            line(ctx, object);
            json_decref(object);
        }
        start += len + 1;
    }
    buf_free(&bytes);
    return found;
}

bool data_tensors_open(const char *path, data_tensors *out)
{
    pf_err err;

    *out = (data_tensors){0};
    if (!file_exists(path)) return false;
    if (file_map_open(path, &out->map, &err) != PF_OK) die("%s", err.text);
    if (safetensors_parse(out->map.data, out->map.size, path, &out->st, &err) != PF_OK)
        die("%s", err.text);
    return true;
}

void data_tensors_close(data_tensors *t)
{
    safetensors_free(&t->st);
    file_map_close(&t->map);
}

static void *copy_tensor(const data_tensors *t, const char *name, const char *dtype, int64_t *rows,
                         int64_t *cols)
{
    const safetensors_tensor *found = safetensors_find(&t->st, name);

    if (!found) return NULL;
    if (strcmp(found->dtype, dtype) != 0 || found->n_dims < 1 || found->n_dims > 2)
        die("reference data: tensor %s is not a matrix of %s", name, dtype);
    *rows = found->n_dims == 2 ? found->dims[0] : 1;
    *cols = found->dims[found->n_dims - 1];
    return xmemdup0(found->data, found->bytes);
}

float *data_floats(const data_tensors *t, const char *name, int64_t *rows, int64_t *cols)
{
    return copy_tensor(t, name, "F32", rows, cols);
}

int32_t *data_ints(const data_tensors *t, const char *name, int64_t *rows, int64_t *cols)
{
    return copy_tensor(t, name, "I32", rows, cols);
}

const json_t *data_get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!value) die("reference data: the key %s is missing", key);
    return value;
}

const char *data_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(data_get(object, key));

    if (!text) die("reference data: the key %s is not a string", key);
    return text;
}

double data_real(const json_t *object, const char *key)
{
    const json_t *value = data_get(object, key);

    if (!json_is_number(value)) die("reference data: the key %s is not a number", key);
    return json_number_value(value);
}

bool data_bool(const json_t *object, const char *key)
{
    const json_t *value = data_get(object, key);

    if (!json_is_boolean(value)) die("reference data: the key %s is not true or false", key);
    return json_is_true(value);
}

void data_ids(const json_t *array, id_list *out)
{
    size_t i;
    json_t *value;

    if (!json_is_array(array)) die("reference data: a list of ids is not a list");
    json_array_foreach(array, i, value)
    {
        if (!json_is_integer(value)) die("reference data: an id is not an integer");
        id_list_append(out, (int32_t)json_integer_value(value));
    }
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;

    return found ? (int)(found - digits) : -1;
}

void data_base64(const char *text, buf *out)
{
    unsigned bits = 0;
    int n_bits = 0;

    for (; *text && *text != '='; text++) {
        int digit = base64_digit(*text);
        if (digit < 0) die("reference data: not base64: %s", text);
        bits = bits << 6 | (unsigned)digit;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        buf_putc(out, (char)(bits >> n_bits & 0xff));
    }
}
