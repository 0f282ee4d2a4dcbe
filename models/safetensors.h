/* safetensors: u64 header length, a JSON header, data. Parsing works on bytes in memory (a mapped
 * file, an adapter's blob) or on an open file; every offset, shape and dtype is checked against the
 * others and the size: no overlap, no hole, nothing after the last tensor. */
#ifndef PF_MODELS_SAFETENSORS_H
#define PF_MODELS_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "kernels/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_MAX_HEADER 100000000u
#define SAFETENSORS_MAX_DIMS   8

typedef struct {
    const char *name;  /* NUL-terminated, borrowed from the header */
    const char *dtype; /* "F32", "BF16", "I64", ...: static */
    int n_dims;
    int64_t dims[SAFETENSORS_MAX_DIMS]; /* outermost first */
    size_t offset, bytes;               /* of its data in the file */
    /* Borrowed; not aligned for its type in general. NULL where only the header was read. */
    const unsigned char *data;
} safetensors_tensor;

typedef struct {
    json_t *header;
    safetensors_tensor *tensors; /* owned, sorted by name */
    size_t n;
} safetensors;

/* name is for messages. safetensors_free also after failure. */
pf_status safetensors_parse(const void *bytes, size_t len, const char *name, safetensors *out,
                            pf_err *err);
/* Reads and checks the header of a file of `size` bytes that is open for reading; the tensors are
 * read with file_read_at. A file that another program cuts off meanwhile is refused. */
pf_status safetensors_read_header(int fd, uint64_t size, const char *name, safetensors *out,
                                  pf_err *err);
void safetensors_free(safetensors *st);

const safetensors_tensor *safetensors_find(const safetensors *st, const char *name);
/* A string of __metadata__, or NULL; borrowed. */
const char *safetensors_metadata(const safetensors *st, const char *key);
/* Whether dtype is one that computing knows (F32, F16, BF16). */
bool safetensors_kn_type(const char *dtype, kn_type *out);

/* Writing: tensors in the order given, header padded with spaces to 8 bytes; the same input gives
 * the same bytes. metadata (borrowed, may be NULL) is an object of strings. */
typedef struct {
    const char *name;
    kn_type type; /* F32, F16 or BF16 */
    int n_dims;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    const void *data;
} safetensors_item;
void safetensors_write(const safetensors_item *items, size_t n, const json_t *metadata, buf *out);

#endif
