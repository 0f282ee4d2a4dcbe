#include "models/safetensors.h"

#include "base/file.h"
#include "base/mem.h"
#include "models/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bytes;
    int type; /* kn_type or -1 */
} dtypes[] = {
    {"F32", 4, KN_F32}, {"F16", 2, KN_F16}, {"BF16", 2, KN_BF16}, {"F64", 8, -1},
    {"I64", 8, -1},     {"I32", 4, -1},     {"I16", 2, -1},       {"I8", 1, -1},
    {"U64", 8, -1},     {"U32", 4, -1},     {"U16", 2, -1},       {"U8", 1, -1},
    {"BOOL", 1, -1},    {"F8_E4M3", 1, -1}, {"F8_E5M2", 1, -1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

bool safetensors_kn_type(const char *dtype, kn_type *out)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, dtype) == 0 && dtypes[i].type >= 0) {
            *out = (kn_type)dtypes[i].type;
            return true;
        }
    return false;
}

static const char *dtype_name(kn_type type)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].type == (int)type) return dtypes[i].name;
    die("no safetensors dtype for weight type %d", (int)type);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* What is being read, for the messages of the small functions below. */
typedef struct {
    const char *file;
    const char *tensor;
    pf_err *err;
} place;

static pf_status refuse(const place *p, const char *what)
{
    return err_set(p->err, PF_REFUSED, "%s: tensor \"%s\": %s", p->file,
                   quote_bytes(p->tensor, strlen(p->tensor)).text, what);
}

static pf_status read_dtype(const place *p, const json_t *entry, safetensors_tensor *t,
                            uint64_t *width)
{
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) return refuse(p, "\"dtype\" is missing or not a string");
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, json_string_value(value)) == 0) {
            t->dtype = dtypes[i].name;
            *width = dtypes[i].bytes;
            return PF_OK;
        }
    quoted name = quote_bytes(json_string_value(value), json_string_length(value));
    return err_set(p->err, PF_REFUSED, "%s: tensor \"%s\": unknown dtype \"%s\"", p->file,
                   quote_bytes(p->tensor, strlen(p->tensor)).text, name.text);
}

static pf_status read_shape(const place *p, const json_t *entry, safetensors_tensor *t,
                            uint64_t width)
{
    const json_t *value = json_object_get(entry, "shape");
    if (!json_is_array(value)) return refuse(p, "\"shape\" is missing or not an array");
    if (json_array_size(value) > SAFETENSORS_MAX_DIMS)
        return err_set(p->err, PF_REFUSED, "%s: tensor \"%s\" has %zu dimensions; the limit is %d",
                       p->file, quote_bytes(p->tensor, strlen(p->tensor)).text,
                       json_array_size(value), SAFETENSORS_MAX_DIMS);
    t->n_dims = (int)json_array_size(value);
    uint64_t total = width;
    bool empty = false;
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(value, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return refuse(p, "\"shape\" must hold whole numbers that are not negative");
        uint64_t n = (uint64_t)json_integer_value(dim);
        t->dims[i] = (int64_t)n;
        empty = empty || n == 0;
        if (n != 0 && n > (SIZE_MAX / 4) / total)
            return refuse(p, "the product of \"shape\" is too large for any file");
        total *= n ? n : 1;
    }
    t->bytes = empty ? 0 : (size_t)total;
    return PF_OK;
}

static pf_status read_offsets(const place *p, const json_t *entry, size_t size,
                              safetensors_tensor *t)
{
    const json_t *value = json_object_get(entry, "data_offsets");
    if (!json_is_array(value) || json_array_size(value) != 2)
        return refuse(p, "\"data_offsets\" must be an array of two numbers");
    uint64_t offset[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *number = json_array_get(value, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return refuse(p, "\"data_offsets\" must be whole numbers that are not negative");
        offset[i] = (uint64_t)json_integer_value(number);
    }
    if (offset[0] > offset[1]) return refuse(p, "\"data_offsets\" end before they begin");
    if (offset[1] > size)
        return err_set(p->err, PF_REFUSED,
                       "%s: tensor \"%s\" ends at byte %" PRIu64
                       " of the data, but the file holds only %zu bytes of data",
                       p->file, quote_bytes(p->tensor, strlen(p->tensor)).text, offset[1], size);
    if (offset[1] - offset[0] != t->bytes)
        return err_set(p->err, PF_REFUSED,
                       "%s: tensor \"%s\": %s of shape %s needs %zu bytes, \"data_offsets\" give "
                       "%" PRIu64,
                       p->file, quote_bytes(p->tensor, strlen(p->tensor)).text, t->dtype,
                       shape_words(t->dims, t->n_dims).text, t->bytes, offset[1] - offset[0]);
    t->offset = (size_t)offset[0];
    return PF_OK;
}

static pf_status check_metadata(const json_t *metadata, const char *file, pf_err *err)
{
    if (!json_is_object(metadata))
        return err_set(err, PF_REFUSED, "%s: \"__metadata__\" is not an object", file);
    const char *key;
    json_t *value;
    json_object_foreach(
        (json_t *)(uintptr_t)metadata, key,
        value) if (!json_is_string(value)) return err_set(err, PF_REFUSED,
                                                          "%s: the value of \"%s\" in "
                                                          "\"__metadata__\" is not a string",
                                                          file, quote_bytes(key, strlen(key)).text);
    return PF_OK;
}

static int compare_names(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_places(const void *a, const void *b)
{
    const safetensors_tensor *x = *(const safetensors_tensor *const *)a;
    const safetensors_tensor *y = *(const safetensors_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* The tensors must cover the data from its first to its last byte, each byte once. */
static pf_status check_cover(const safetensors *st, size_t size, const char *file, pf_err *err)
{
    pf_status status = PF_OK;
    const safetensors_tensor **order = xcalloc(st->n + 1, sizeof *order);
    for (size_t i = 0; i < st->n; i++)
        order[i] = &st->tensors[i];
    if (st->n) qsort(order, st->n, sizeof *order, compare_places);
    size_t end = 0;
    for (size_t i = 0; i < st->n && status == PF_OK; i++) {
        const safetensors_tensor *t = order[i];
        quoted name = quote_bytes(t->name, strlen(t->name));
        if (t->offset < end && t->bytes > 0)
            status = err_set(err, PF_REFUSED, "%s: tensor \"%s\" overlaps tensor \"%s\"", file,
                             name.text,
                             quote_bytes(order[i - 1]->name, strlen(order[i - 1]->name)).text);
        else if (t->offset > end)
            status =
                err_set(err, PF_REFUSED, "%s: there is a hole of %zu bytes before tensor \"%s\"",
                        file, t->offset - end, name.text);
        if (t->offset + t->bytes > end) end = t->offset + t->bytes;
    }
    if (status == PF_OK && end != size) {
        const char *last = st->n ? order[st->n - 1]->name : "none";
        status = err_set(err, PF_REFUSED, "%s: %zu bytes follow the last tensor (\"%s\")", file,
                         size - end, quote_bytes(last, strlen(last)).text);
    }
    free(order);
    return status;
}

/* The length of the JSON header that follows the first 8 bytes (fewer: the file is shorter). */
static pf_status read_length(const unsigned char *bytes, size_t file_len, const char *file,
                             size_t *out, pf_err *err)
{
    if (file_len < 8)
        return err_set(err, PF_REFUSED, "%s has %zu bytes; a safetensors file has at least 8", file,
                       file_len);
    uint64_t n = 0;
    for (unsigned i = 0; i < 8; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    if (n > SAFETENSORS_MAX_HEADER)
        return err_set(err, PF_REFUSED,
                       "%s is not a safetensors file or is damaged: its header claims %" PRIu64
                       " bytes; the limit is %u (the file has %zu bytes)",
                       file, n, SAFETENSORS_MAX_HEADER, file_len);
    if (n > file_len - 8)
        return err_set(err, PF_REFUSED,
                       "%s is shorter than it claims: its header claims %" PRIu64
                       " bytes, but the file has %zu",
                       file, n, file_len);
    if (n < 2)
        return err_set(err, PF_REFUSED,
                       "%s: its header has %" PRIu64
                       " bytes (the file has %zu); a JSON object needs at least 2",
                       file, n, file_len);
    *out = (size_t)n;
    return PF_OK;
}

/* The tensors of a header of n bytes, before `size` bytes of data. */
static pf_status parse_header(const char *text, size_t n, size_t size, const char *file,
                              safetensors *out, pf_err *err)
{
    if (text[0] != '{')
        return err_set(err, PF_REFUSED, "%s: the header is not a JSON object", file);
    char *place_name = xasprintf("the header of %s", file);
    pf_status status = json_parse(text, n, place_name, &out->header, err);
    free(place_name);
    if (status != PF_OK) return status;
    out->tensors = xcalloc(json_object_size(out->header) + 1, sizeof *out->tensors);

    const char *key;
    json_t *entry;
    json_object_foreach(out->header, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) {
            status = check_metadata(entry, file, err);
            if (status != PF_OK) return status;
            continue;
        }
        const place p = {file, key, err};
        safetensors_tensor t = {.name = key};
        uint64_t width = 0;
        if (!json_is_object(entry)) return refuse(&p, "its description is not an object");
        status = read_dtype(&p, entry, &t, &width);
        if (status == PF_OK) status = read_shape(&p, entry, &t, width);
        if (status == PF_OK) status = read_offsets(&p, entry, size, &t);
        if (status != PF_OK) return status;
        out->tensors[out->n++] = t;
    }
    if (out->n) qsort(out->tensors, out->n, sizeof *out->tensors, compare_names);
    return check_cover(out, size, file, err);
}

pf_status safetensors_parse(const void *bytes, size_t len, const char *name, safetensors *out,
                            pf_err *err)
{
    *out = (safetensors){0};
    size_t n = 0;
    pf_status status = read_length(bytes, len, name, &n, err);
    if (status == PF_OK)
        status = parse_header((const char *)bytes + 8, n, len - 8 - n, name, out, err);
    for (size_t i = 0; i < out->n; i++) {
        out->tensors[i].offset += 8 + n;
        out->tensors[i].data = (const unsigned char *)bytes + out->tensors[i].offset;
    }
    return status;
}

pf_status safetensors_read_header(int fd, uint64_t size, const char *name, safetensors *out,
                                  pf_err *err)
{
    *out = (safetensors){0};
    unsigned char first[8] = {0};
    char *text = NULL;
    size_t n = 0;
    pf_status status = PF_OK;
    if (size > SIZE_MAX / 4) return err_set(err, PF_REFUSED, "%s is too large", name);
    if (size >= 8) status = file_read_at(fd, name, 0, first, 8, err);
    if (status == PF_OK) status = read_length(first, (size_t)size, name, &n, err);
    if (status != PF_OK) return status;
    text = xmalloc(n);
    status = file_read_at(fd, name, 8, text, n, err);
    if (status == PF_OK) status = parse_header(text, n, (size_t)size - 8 - n, name, out, err);
    for (size_t i = 0; i < out->n; i++)
        out->tensors[i].offset += 8 + n;
    free(text);
    return status;
}

void safetensors_free(safetensors *st)
{
    json_decref(st->header);
    free(st->tensors);
    *st = (safetensors){0};
}

const safetensors_tensor *safetensors_find(const safetensors *st, const char *name)
{
    if (st->n == 0) return NULL;
    const safetensors_tensor key = {.name = name};
    return bsearch(&key, st->tensors, st->n, sizeof *st->tensors, compare_names);
}

const char *safetensors_metadata(const safetensors *st, const char *key)
{
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t item_bytes(const safetensors_item *item)
{
    size_t n = 1;
    for (int i = 0; i < item->n_dims; i++)
        n *= (size_t)item->dims[i];
    return kn_row_bytes(item->type, (int64_t)n);
}

static json_t *describe(const safetensors_item *item, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < item->n_dims; i++)
        json_array_append_new(shape, json_integer(item->dims[i]));
    json_t *entry = json_object();
    json_object_set_new(entry, "dtype", json_string(dtype_name(item->type)));
    json_object_set_new(entry, "shape", shape);
    json_object_set_new(
        entry, "data_offsets",
        json_pack("[I, I]", (json_int_t)begin, (json_int_t)(begin + item_bytes(item))));
    return entry;
}

void safetensors_write(const safetensors_item *items, size_t n, const json_t *metadata, buf *out)
{
    json_t *header = json_object();
    size_t at = 0;
    if (metadata) json_object_set_new(header, "__metadata__", json_deep_copy(metadata));
    for (size_t i = 0; i < n; i++) {
        json_object_set_new(header, items[i].name, describe(&items[i], at));
        at += item_bytes(&items[i]);
    }
    buf text = {0};
    json_append(&text, header);
    while (text.len % 8 != 0)
        buf_putc(&text, ' ');
    unsigned char prefix[8];
    for (unsigned i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)text.len >> (8 * i));
    buf_reserve(out, 8 + text.len + at);
    buf_append(out, prefix, sizeof prefix);
    buf_append(out, text.data, text.len);
    for (size_t i = 0; i < n; i++)
        buf_append(out, items[i].data, item_bytes(&items[i]));
    buf_free(&text);
    json_decref(header);
}
