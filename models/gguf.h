/* GGUF v2 and v3: the container. Parsing checks every count, length, offset and type against the
 * bytes that are there before it is used, and allocates only for what was really read. Everything
 * returned borrows from the bytes.
 *
 * Layout (little-endian): "GGUF", u32 version, u64 tensors, u64 keys; keys: string name, u32 type,
 * value; tensors: string name, u32 dimensions, u64 each (innermost first), u32 type, u64 offset;
 * padding to the alignment; data. A string is u64 length and bytes. */
#ifndef PF_MODELS_GGUF_H
#define PF_MODELS_GGUF_H

#include "base/err.h"
#include "kernels/types.h"
#include "models/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
} gguf_type;

typedef struct {
    const char *key; /* not NUL-terminated */
    size_t key_len;
    gguf_type type;
    gguf_type element;         /* of an array; never GGUF_ARRAY */
    uint64_t count;            /* elements of an array, bytes of a string, else 1 */
    const unsigned char *data; /* the value: a string's or an array's first byte */
} gguf_value;

typedef struct {
    const char *name; /* of the file, for messages; borrowed */
    uint32_t version;
    uint32_t alignment;
    gguf_value *values; /* owned, sorted by key */
    size_t n_values;
    tensor_table tensors; /* data points into the bytes */
    size_t data_start;    /* offset of the tensor data */
} gguf;

/* Parses bytes[0..len). PF_REFUSED names the key, tensor or byte and the reason. gguf_free also
 * after failure. */
pf_status gguf_parse(const void *bytes, size_t len, const char *name, gguf *out, pf_err *err);
void gguf_free(gguf *g);

/* NULL if absent. */
const gguf_value *gguf_find(const gguf *g, const char *key);

/* Typed values. Absent: *out stays and PF_OK is returned, unless required, then PF_REFUSED. Wrong
 * type or a number out of [low, high]: PF_REFUSED naming file, key and value. */
pf_status gguf_get_int(const gguf *g, const char *key, bool required, int64_t low, int64_t high,
                       int64_t *out, pf_err *err);
/* In (low, high]; NaN is refused. */
pf_status gguf_get_real(const gguf *g, const char *key, bool required, double low, double high,
                        double *out, pf_err *err);
pf_status gguf_get_bool(const gguf *g, const char *key, bool *out, pf_err *err);
/* Borrowed, not NUL-terminated. */
pf_status gguf_get_string(const gguf *g, const char *key, bool required, const char **out,
                          size_t *len, pf_err *err);
/* An array of strings or of integers; *out NULL if absent and not required. */
pf_status gguf_get_array(const gguf *g, const char *key, bool required, gguf_type element,
                         const gguf_value **out, pf_err *err);

/* Walks a string array: *cursor starts at value->data; returns the next string. */
const char *gguf_next_string(const unsigned char **cursor, size_t *len);

#endif
