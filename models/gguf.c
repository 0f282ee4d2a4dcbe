#include "models/gguf.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 24, MAX_NAME = 64, MAX_KEY = 65535, DEFAULT_ALIGNMENT = 32 };
#define MIN_ALIGNMENT 8u /* the widest plain element */
#define MAX_ALIGNMENT 65536u

/* Bytes of one value; 0: has its own length. */
static const struct {
    const char *name;
    unsigned bytes;
} value_types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

/* Tensor types by their number in files. Those without a kn_type are known by name only. */
static const struct {
    uint32_t number;
    int type; /* kn_type or -1 */
    const char *name;
} tensor_types[] = {
    {0, KN_F32, "F32"},    {1, KN_F16, "F16"}, {2, KN_Q4_0, "Q4_0"},  {3, KN_Q4_1, "Q4_1"},
    {6, -1, "Q5_0"},       {7, -1, "Q5_1"},    {8, KN_Q8_0, "Q8_0"},  {9, -1, "Q8_1"},
    {10, -1, "Q2_K"},      {11, -1, "Q3_K"},   {12, KN_Q4_K, "Q4_K"}, {13, KN_Q5_K, "Q5_K"},
    {14, KN_Q6_K, "Q6_K"}, {15, -1, "Q8_K"},   {16, -1, "IQ2_XXS"},   {17, -1, "IQ2_XS"},
    {18, -1, "IQ3_XXS"},   {19, -1, "IQ1_S"},  {20, -1, "IQ4_NL"},    {21, -1, "IQ3_S"},
    {22, -1, "IQ2_S"},     {23, -1, "IQ4_XS"}, {24, -1, "I8"},        {25, -1, "I16"},
    {26, -1, "I32"},       {27, -1, "I64"},    {28, -1, "F64"},       {29, -1, "IQ1_M"},
    {30, KN_BF16, "BF16"}, {34, -1, "TQ1_0"},  {35, -1, "TQ2_0"},     {39, -1, "MXFP4"},
};

static const char *type_name(gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? value_types[type].name : "unknown";
}

/* --- reading with a place and a limit --------------------------------------------------------- */

typedef struct {
    const unsigned char *bytes;
    size_t len, at;
    const char *name;
    pf_err *err;
} reader;

static uint64_t little(const unsigned char *p, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static size_t left(const reader *r)
{
    return r->len - r->at;
}

/* Every truncation gives this one message, with the size that is and the size that would be. */
static pf_status too_short(const reader *r, const char *what, uint64_t needed)
{
    return err_set(r->err, PF_REFUSED,
                   "%s is shorter than it claims: it has %zu bytes, but %s at byte %zu needs "
                   "%" PRIu64 " more (%zu are left)",
                   r->name, r->len, what, r->at, needed, left(r));
}

static pf_status read_number(reader *r, unsigned bytes, const char *what, uint64_t *out)
{
    if (left(r) < bytes) return too_short(r, what, bytes);
    *out = little(r->bytes + r->at, bytes);
    r->at += bytes;
    return PF_OK;
}

static pf_status read_string(reader *r, const char *what, const char **text, size_t *len)
{
    uint64_t n = 0;
    pf_status status = read_number(r, 8, what, &n);
    if (status != PF_OK) return status;
    if (n > left(r)) return too_short(r, what, n);
    *text = (const char *)r->bytes + r->at;
    *len = (size_t)n;
    r->at += (size_t)n;
    return PF_OK;
}

/* Steps over a whole string; false (and no step) if it is cut. */
static bool skip_string(reader *r)
{
    if (left(r) < 8) return false;
    uint64_t n = little(r->bytes + r->at, 8);
    if (n > left(r) - 8) return false;
    r->at += 8 + (size_t)n;
    return true;
}

/* --- header ----------------------------------------------------------------------------------- */

/* Says what a file that is no GGUF is, as far as its first bytes tell. */
static pf_status refuse_magic(const reader *r)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *words;
    } kinds[] = {
        {"PK\3\4", 4, "a zip archive"},
        {"<!DOCTYPE", 9, "a web page (HTML)"},
        {"<!doctype", 9, "a web page (HTML)"},
        {"<html", 5, "a web page (HTML)"},
        {"<HTML", 5, "a web page (HTML)"},
        {"version https://git-lfs", 23, "a Git LFS pointer, not the file itself"},
        {"\x1f\x8b", 2, "a gzip archive"},
        {"FUGG", 4, "a big-endian GGUF file, which is not supported"},
        {"GGML", 4, "an old GGML file; convert it to GGUF"},
        {"lmgg", 4, "an old GGML file; convert it to GGUF"},
        {"tjgg", 4, "an old GGJT file; convert it to GGUF"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (r->len >= kinds[i].len && memcmp(r->bytes, kinds[i].magic, kinds[i].len) == 0)
            return err_set(r->err, PF_REFUSED, "%s is not a GGUF file: it is %s", r->name,
                           kinds[i].words);
    return err_set(r->err, PF_REFUSED, "%s is not a GGUF file: it does not begin with \"GGUF\"",
                   r->name);
}

static pf_status read_header(reader *r, gguf *g, uint64_t *n_tensors, uint64_t *n_values)
{
    if (r->len == 0) return err_set(r->err, PF_REFUSED, "%s is empty (0 bytes)", r->name);
    if (memcmp(r->bytes, "GGUF", r->len < 4 ? r->len : 4) != 0) return refuse_magic(r);
    if (r->len < HEADER_BYTES)
        return err_set(r->err, PF_REFUSED,
                       "%s is shorter than it claims: it has %zu bytes, but the header of a GGUF "
                       "file needs %d",
                       r->name, r->len, HEADER_BYTES);
    uint32_t version = (uint32_t)little(r->bytes + 4, 4);
    if ((version & 0xffff) == 0 && version != 0)
        return err_set(r->err, PF_REFUSED,
                       "%s is a big-endian GGUF file, which is not supported; only little-endian "
                       "files are",
                       r->name);
    if (version != 2 && version != 3)
        return err_set(r->err, PF_REFUSED,
                       "%s: GGUF version %" PRIu32 " is not supported; versions 2 and 3 are",
                       r->name, version);
    g->version = version;
    *n_tensors = little(r->bytes + 8, 8);
    *n_values = little(r->bytes + 16, 8);
    r->at = HEADER_BYTES;

    /* The smallest key takes 8 + 1 + 4 + 1 bytes, the smallest tensor 8 + 1 + 4 + 8 + 4 + 8. */
    enum { SMALLEST_VALUE = 14, SMALLEST_TENSOR = 33 };
    if (*n_values > left(r) / SMALLEST_VALUE)
        return err_set(r->err, PF_REFUSED,
                       "%s is shorter than it claims: %" PRIu64
                       " keys can't be in a file of %zu bytes",
                       r->name, *n_values, r->len);
    if (*n_tensors > left(r) / SMALLEST_TENSOR)
        return err_set(r->err, PF_REFUSED,
                       "%s is shorter than it claims: %" PRIu64
                       " tensors can't be in a file of %zu bytes",
                       r->name, *n_tensors, r->len);
    return PF_OK;
}

/* --- keys ------------------------------------------------------------------------------------- */

static pf_status read_array(reader *r, gguf_value *v)
{
    quoted key = quote_bytes(v->key, v->key_len);
    char what[160];
    uint64_t element = 0, count = 0;
    snprintf(what, sizeof what, "the array of key \"%s\"", key.text);
    pf_status status = read_number(r, 4, what, &element);
    if (status == PF_OK) status = read_number(r, 8, what, &count);
    if (status != PF_OK) return status;
    if (element == GGUF_ARRAY)
        return err_set(r->err, PF_REFUSED,
                       "%s: key \"%s\" is an array of arrays, which is not "
                       "supported",
                       r->name, key.text);
    if (element >= GGUF_TYPE_COUNT)
        return err_set(r->err, PF_REFUSED,
                       "%s: key \"%s\" is an array of the unknown value type %" PRIu64, r->name,
                       key.text, element);
    v->element = (gguf_type)element;
    v->count = count;
    v->data = r->bytes + r->at;
    unsigned width = value_types[element].bytes;
    if (count > left(r) / (width ? width : 8))
        return err_set(r->err, PF_REFUSED,
                       "%s is shorter than it claims: the array of key \"%s\" has %" PRIu64
                       " elements, but only %zu of the file's %zu bytes are left",
                       r->name, key.text, count, left(r), r->len);
    if (width) {
        r->at += (size_t)count * width;
        return PF_OK;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (skip_string(r)) continue;
        const char *text;
        size_t len;
        snprintf(what, sizeof what, "element %" PRIu64 " of key \"%s\"", i, key.text);
        return read_string(r, what, &text, &len); /* for its message */
    }
    return PF_OK;
}

static pf_status read_value(reader *r, gguf_value *v)
{
    quoted key = quote_bytes(v->key, v->key_len);
    char what[160];
    snprintf(what, sizeof what, "the value of key \"%s\"", key.text);
    uint64_t type = 0;
    pf_status status = read_number(r, 4, what, &type);
    if (status != PF_OK) return status;
    if (type >= GGUF_TYPE_COUNT)
        return err_set(r->err, PF_REFUSED, "%s: key \"%s\" has the unknown value type %" PRIu64,
                       r->name, key.text, type);
    v->type = (gguf_type)type;
    if (type == GGUF_ARRAY) return read_array(r, v);
    if (type == GGUF_STRING) {
        const char *text = NULL;
        size_t len = 0;
        status = read_string(r, what, &text, &len);
        v->data = (const unsigned char *)text;
        v->count = len;
        return status;
    }
    unsigned width = value_types[type].bytes;
    if (left(r) < width) return too_short(r, what, width);
    v->data = r->bytes + r->at;
    v->count = 1;
    r->at += width;
    if (type == GGUF_BOOL && v->data[0] > 1)
        return err_set(r->err, PF_REFUSED, "%s: key \"%s\" is a bool of value %d; 0 and 1 are",
                       r->name, key.text, v->data[0]);
    return PF_OK;
}

static int compare_values(const void *a, const void *b)
{
    const gguf_value *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->key_len < y->key_len ? x->key_len : y->key_len);
    return order ? order : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

static pf_status read_values(reader *r, gguf *g, uint64_t count)
{
    size_t cap = 0;
    for (uint64_t i = 0; i < count; i++) {
        char what[64];
        snprintf(what, sizeof what, "the name of key %" PRIu64, i);
        gguf_value v = {0};
        size_t place = r->at;
        pf_status status = read_string(r, what, &v.key, &v.key_len);
        if (status != PF_OK) return status;
        if (v.key_len == 0)
            return err_set(r->err, PF_REFUSED, "%s: key %" PRIu64 " at byte %zu has an empty name",
                           r->name, i, place);
        if (v.key_len > MAX_KEY)
            return err_set(r->err, PF_REFUSED,
                           "%s: the name of key %" PRIu64 " has %zu bytes; the limit is %d",
                           r->name, i, v.key_len, MAX_KEY);
        status = read_value(r, &v);
        if (status != PF_OK) return status;
        if (g->n_values == cap) {
            cap = cap ? cap * 2 : 64;
            g->values = xrealloc_array(g->values, cap, sizeof *g->values);
        }
        g->values[g->n_values++] = v;
    }
    if (g->n_values) qsort(g->values, g->n_values, sizeof *g->values, compare_values);
    for (size_t i = 1; i < g->n_values; i++)
        if (compare_values(&g->values[i - 1], &g->values[i]) == 0)
            return err_set(r->err, PF_REFUSED, "%s: duplicate key \"%s\"", r->name,
                           quote_bytes(g->values[i].key, g->values[i].key_len).text);
    return PF_OK;
}

static pf_status read_alignment(gguf *g, pf_err *err)
{
    int64_t alignment = DEFAULT_ALIGNMENT;
    const gguf_value *v = gguf_find(g, "general.alignment");
    if (v && v->type != GGUF_U32)
        return err_set(err, PF_REFUSED,
                       "%s: the alignment (key \"general.alignment\") must be a u32, not %s %s",
                       g->name, v->type == GGUF_ARRAY ? "an" : "a", type_name(v->type));
    if (v) alignment = (int64_t)little(v->data, 4);
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0)
        return err_set(err, PF_REFUSED,
                       "%s: the alignment (key \"general.alignment\") is %lld; it must be a power "
                       "of two from %u to %u",
                       g->name, (long long)alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    g->alignment = (uint32_t)alignment;
    return PF_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static pf_status find_tensor_type(const reader *r, const char *name, uint32_t number, kn_type *out)
{
    const char *type_name = NULL;
    for (size_t i = 0; i < sizeof tensor_types / sizeof tensor_types[0]; i++) {
        if (tensor_types[i].number != number) continue;
        if (tensor_types[i].type >= 0) {
            *out = (kn_type)tensor_types[i].type;
            return PF_OK;
        }
        type_name = tensor_types[i].name;
    }
    return err_set(r->err, PF_REFUSED, "%s: unsupported type %" PRIu32 "%s%s%s in tensor \"%s\"",
                   r->name, number, type_name ? " (" : "", type_name ? type_name : "",
                   type_name ? ")" : "", name);
}

/* Reads the dimensions (file order: innermost first) and works out the size in bytes. */
static pf_status read_dims(reader *r, const char *name, tensor *t)
{
    uint64_t count = 0, total = 1;
    pf_status status = read_number(r, 4, "a tensor's dimension count", &count);
    if (status != PF_OK) return status;
    if (count < 1 || count > TENSOR_MAX_DIMS)
        return err_set(r->err, PF_REFUSED,
                       "%s: tensor \"%s\" has %" PRIu64 " dimensions; 1 to %d are allowed", r->name,
                       name, count, TENSOR_MAX_DIMS);
    t->n_dims = (int)count;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t dim = 0;
        status = read_number(r, 8, "a tensor's dimension", &dim);
        if (status != PF_OK) return status;
        if (dim == 0)
            return err_set(r->err, PF_REFUSED, "%s: dimension %d of tensor \"%s\" is 0", r->name, i,
                           name);
        if (dim > INT64_MAX / total)
            return err_set(r->err, PF_REFUSED,
                           "%s: dimension %d of tensor \"%s\" is %" PRIu64
                           ", too large for any file",
                           r->name, i, name, dim);
        total *= dim;
        t->dims[t->n_dims - 1 - i] = (int64_t)dim;
    }
    return PF_OK;
}

static pf_status measure(const reader *r, const char *name, tensor *t)
{
    const kn_type_info *info = kn_type_get(t->type);
    int64_t cols = t->dims[t->n_dims - 1];
    if (cols % info->block != 0)
        return err_set(r->err, PF_REFUSED,
                       "%s: tensor \"%s\" has rows of %lld values; the row length is not a "
                       "multiple of the block (%d) of %s",
                       r->name, name, (long long)cols, info->block, info->name);
    uint64_t blocks = (uint64_t)(cols / info->block);
    for (int i = 0; i < t->n_dims - 1; i++)
        blocks *= (uint64_t)t->dims[i]; /* below 2^63: read_dims checked the product */
    if (blocks > (SIZE_MAX / 4) / (unsigned)info->block_bytes)
        return err_set(r->err, PF_REFUSED,
                       "%s: tensor \"%s\" of shape %s is too large for any file", r->name, name,
                       shape_words(t->dims, t->n_dims).text);
    t->bytes = (size_t)blocks * (unsigned)info->block_bytes;
    return PF_OK;
}

/* One tensor's description. Its offset is kept in data until the start of the data is known. */
static pf_status read_tensor(reader *r, const gguf *g, uint64_t index, tensor *t, uint64_t *offset)
{
    char what[64];
    snprintf(what, sizeof what, "the name of tensor %" PRIu64, index);
    pf_status status = read_string(r, what, &t->name, &t->name_len);
    if (status != PF_OK) return status;
    if (t->name_len == 0)
        return err_set(r->err, PF_REFUSED, "%s: tensor %" PRIu64 " has an empty name", r->name,
                       index);
    if (t->name_len > MAX_NAME)
        return err_set(r->err, PF_REFUSED,
                       "%s: the name of tensor %" PRIu64 " has %zu bytes; the limit is %d", r->name,
                       index, t->name_len, MAX_NAME);
    quoted name = quote_bytes(t->name, t->name_len);
    status = read_dims(r, name.text, t);
    if (status != PF_OK) return status;
    uint64_t number = 0;
    status = read_number(r, 4, "a tensor's type", &number);
    if (status == PF_OK) status = find_tensor_type(r, name.text, (uint32_t)number, &t->type);
    if (status == PF_OK) status = measure(r, name.text, t);
    if (status == PF_OK) status = read_number(r, 8, "a tensor's offset", offset);
    if (status != PF_OK) return status;
    if (*offset % g->alignment != 0)
        return err_set(r->err, PF_REFUSED,
                       "%s: the offset %" PRIu64
                       " of tensor \"%s\" is not a multiple of the alignment %" PRIu32,
                       r->name, *offset, name.text, g->alignment);
    return PF_OK;
}

static pf_status place_tensors(const reader *r, gguf *g, const uint64_t *offsets)
{
    size_t start = g->data_start;
    uint64_t most = 0;
    const tensor *last = NULL;
    for (size_t i = 0; i < g->tensors.n; i++) {
        tensor *t = &g->tensors.items[i];
        if (offsets[i] > INT64_MAX / 2)
            return err_set(r->err, PF_REFUSED,
                           "%s: the offset %" PRIu64
                           " of tensor \"%s\" is out of range: the file has %zu bytes",
                           r->name, offsets[i], quote_bytes(t->name, t->name_len).text, r->len);
        uint64_t end = start + offsets[i] + t->bytes; /* each below 2^62 */
        if (end > most) {
            most = end;
            last = t;
        }
    }
    if (last && most > r->len)
        return err_set(r->err, PF_REFUSED,
                       "%s is shorter than it claims: it has %zu bytes, but tensor \"%s\" ends at "
                       "byte %" PRIu64,
                       r->name, r->len, quote_bytes(last->name, last->name_len).text, most);
    for (size_t i = 0; i < g->tensors.n; i++)
        g->tensors.items[i].data = r->bytes + start + offsets[i];
    return PF_OK;
}

static int compare_places(const void *a, const void *b)
{
    const tensor *x = *(const tensor *const *)a, *y = *(const tensor *const *)b;
    uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
    return (p > q) - (p < q);
}

static pf_status check_overlap(const reader *r, const tensor_table *tensors)
{
    pf_status status = PF_OK;
    const tensor **order = xcalloc(tensors->n + 1, sizeof *order);
    for (size_t i = 0; i < tensors->n; i++)
        order[i] = &tensors->items[i];
    qsort(order, tensors->n, sizeof *order, compare_places);
    for (size_t i = 1; i < tensors->n && status == PF_OK; i++) {
        const tensor *a = order[i - 1], *b = order[i];
        if ((const char *)a->data + a->bytes > (const char *)b->data)
            status = err_set(r->err, PF_REFUSED, "%s: tensors \"%s\" and \"%s\" overlap", r->name,
                             quote_bytes(a->name, a->name_len).text,
                             quote_bytes(b->name, b->name_len).text);
    }
    free(order);
    return status;
}

static pf_status read_tensors(reader *r, gguf *g, uint64_t count)
{
    pf_status status = PF_OK;
    uint64_t *offsets = NULL;
    size_t cap = 0;
    for (uint64_t i = 0; i < count && status == PF_OK; i++) {
        tensor t = {0};
        uint64_t offset = 0;
        status = read_tensor(r, g, i, &t, &offset);
        if (status != PF_OK) break;
        if (g->tensors.n == cap) {
            cap = cap ? cap * 2 : 64;
            offsets = xrealloc_array(offsets, cap, sizeof *offsets);
        }
        offsets[g->tensors.n] = offset;
        tensor_table_add(&g->tensors, &t);
    }
    if (status != PF_OK) goto out;
    size_t padded = (r->at + g->alignment - 1) & ~(size_t)(g->alignment - 1);
    g->data_start = padded;
    status = place_tensors(r, g, offsets);
    if (status == PF_OK) status = tensor_table_sort(&g->tensors, r->name, r->err);
    if (status == PF_OK) status = check_overlap(r, &g->tensors);
out:
    free(offsets);
    return status;
}

pf_status gguf_parse(const void *bytes, size_t len, const char *name, gguf *out, pf_err *err)
{
    *out = (gguf){.name = name};
    reader r = {.bytes = bytes, .len = len, .name = name, .err = err};
    uint64_t n_tensors = 0, n_values = 0;
    pf_status status = read_header(&r, out, &n_tensors, &n_values);
    if (status == PF_OK) status = read_values(&r, out, n_values);
    if (status == PF_OK) status = read_alignment(out, err);
    if (status == PF_OK) status = read_tensors(&r, out, n_tensors);
    return status;
}

void gguf_free(gguf *g)
{
    free(g->values);
    tensor_table_free(&g->tensors);
    *g = (gguf){0};
}

/* --- typed values ----------------------------------------------------------------------------- */

const gguf_value *gguf_find(const gguf *g, const char *key)
{
    if (g->n_values == 0) return NULL;
    const gguf_value wanted = {.key = key, .key_len = strlen(key)};
    return bsearch(&wanted, g->values, g->n_values, sizeof *g->values, compare_values);
}

static pf_status absent(const gguf *g, const char *key, bool required, pf_err *err)
{
    if (!required) return PF_OK;
    return err_set(err, PF_REFUSED, "%s: the required key \"%s\" is missing", g->name, key);
}

static pf_status wrong_type(const gguf *g, const gguf_value *v, const char *key, const char *wanted,
                            pf_err *err)
{
    return err_set(err, PF_REFUSED, "%s: key \"%s\" is of type %s; it must be %s", g->name, key,
                   type_name(v->type), wanted);
}

static bool integer_value(const gguf_value *v, int64_t *out)
{
    if (v->type == GGUF_F32 || v->type == GGUF_F64 || v->type == GGUF_BOOL) return false;
    unsigned width = value_types[v->type].bytes;
    if (width == 0) return false;
    uint64_t raw = little(v->data, width);
    bool is_signed =
        v->type == GGUF_I8 || v->type == GGUF_I16 || v->type == GGUF_I32 || v->type == GGUF_I64;
    if (is_signed && width < 8 && raw >> (8 * width - 1)) raw |= ~(uint64_t)0 << (8 * width);
    /* An unsigned value above INT64_MAX is out of every range asked for. */
    *out = !is_signed && raw > INT64_MAX ? INT64_MAX : (int64_t)raw;
    return true;
}

pf_status gguf_get_int(const gguf *g, const char *key, bool required, int64_t low, int64_t high,
                       int64_t *out, pf_err *err)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v) return absent(g, key, required, err);
    int64_t value = 0;
    if (!integer_value(v, &value)) return wrong_type(g, v, key, "a whole number", err);
    if (value < low || value > high)
        return err_set(err, PF_REFUSED, "%s: key \"%s\" is %lld; it must be in [%lld, %lld]",
                       g->name, key, (long long)value, (long long)low, (long long)high);
    *out = value;
    return PF_OK;
}

pf_status gguf_get_real(const gguf *g, const char *key, bool required, double low, double high,
                        double *out, pf_err *err)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v) return absent(g, key, required, err);
    double value = 0;
    int64_t whole = 0;
    if (v->type == GGUF_F32) {
        float f;
        memcpy(&f, v->data, sizeof f);
        value = f;
    } else if (v->type == GGUF_F64) {
        memcpy(&value, v->data, sizeof value);
    } else if (integer_value(v, &whole)) {
        value = (double)whole;
    } else {
        return wrong_type(g, v, key, "a number", err);
    }
    if (!isfinite(value) || value <= low || value > high)
        return err_set(err, PF_REFUSED, "%s: key \"%s\" is %g; it must be above %g and at most %g",
                       g->name, key, value, low, high);
    *out = value;
    return PF_OK;
}

pf_status gguf_get_bool(const gguf *g, const char *key, bool *out, pf_err *err)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v) return PF_OK;
    if (v->type != GGUF_BOOL) return wrong_type(g, v, key, "a bool", err);
    *out = v->data[0] != 0;
    return PF_OK;
}

pf_status gguf_get_string(const gguf *g, const char *key, bool required, const char **out,
                          size_t *len, pf_err *err)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v) return absent(g, key, required, err);
    if (v->type != GGUF_STRING) return wrong_type(g, v, key, "a string", err);
    *out = (const char *)v->data;
    *len = (size_t)v->count;
    return PF_OK;
}

pf_status gguf_get_array(const gguf *g, const char *key, bool required, gguf_type element,
                         const gguf_value **out, pf_err *err)
{
    const gguf_value *v = gguf_find(g, key);
    *out = NULL;
    if (!v) return absent(g, key, required, err);
    if (v->type != GGUF_ARRAY) return wrong_type(g, v, key, "an array", err);
    if (v->element != element)
        return err_set(err, PF_REFUSED, "%s: key \"%s\" is an array of %s; it must be one of %s",
                       g->name, key, type_name(v->element), type_name(element));
    *out = v;
    return PF_OK;
}

const char *gguf_next_string(const unsigned char **cursor, size_t *len)
{
    *len = (size_t)little(*cursor, 8);
    const char *text = (const char *)*cursor + 8;
    *cursor += 8 + *len;
    return text;
}
