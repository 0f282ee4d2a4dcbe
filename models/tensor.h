/* Tensors of a weights file, independent of its format, and names from files made safe for
 * messages. */
#ifndef PF_MODELS_TENSOR_H
#define PF_MODELS_TENSOR_H

#include "base/err.h"
#include "kernels/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 4

/* A tensor of a supported type with its bytes. Borrows from the file. */
typedef struct {
    const char *name; /* not NUL-terminated */
    size_t name_len;
    kn_type type;
    int n_dims;
    int64_t dims[TENSOR_MAX_DIMS]; /* outermost first: [rows, cols] */
    const void *data;
    size_t bytes;
} tensor;

typedef struct {
    tensor *items; /* owned, sorted by name once tensor_table_sort ran */
    size_t n, cap;
} tensor_table;

void tensor_table_add(tensor_table *t, const tensor *item);
/* Sorts by name; PF_REFUSED names a name that is there twice. file is for the message. */
pf_status tensor_table_sort(tensor_table *t, const char *file, pf_err *err);
/* Binary search in a sorted table; NULL if absent. */
const tensor *tensor_table_find(const tensor_table *t, const char *name);
void tensor_table_free(tensor_table *t);

/* Whether n elements of type F32, F16 or BF16 (aligned) are all finite numbers. */
bool tensor_all_finite(kn_type type, const void *data, size_t n);

/* A name or short text from a file for a message: at most 96 bytes, control characters and
 * ill-formed bytes replaced, "..." where cut. */
typedef struct {
    char text[112];
} quoted;
quoted quote_bytes(const char *text, size_t len);

/* "[64, 160]" */
typedef struct {
    char text[112];
} shape_text;
shape_text shape_words(const int64_t *dims, int n_dims);

#endif
