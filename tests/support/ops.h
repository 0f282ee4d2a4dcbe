/* Helpers of the op tests: random inputs, weights in every storage type, comparisons. */
#ifndef TESTS_SUPPORT_OPS_H
#define TESTS_SUPPORT_OPS_H

#include "kernels/backend.h"

typedef struct {
    uint64_t state;
} ops_random;

uint32_t ops_random_bits(ops_random *r);
float ops_random_float(ops_random *r); /* in (-1, 1) */
void ops_random_fill(ops_random *r, float *x, size_t n);

/* Valid random blocks with moderate scales; caller frees. */
void *ops_random_matrix(ops_random *r, kn_type type, int64_t rows, int64_t cols);

/* Opens a backend; fails the test if that fails. */
kn_backend *ops_open(const char *isa, int threads);
/* The usable instruction sets, one after another: index 0, 1, ... until NULL. Static storage. */
const char *ops_isa(int index);

/* Backends that must agree bit for bit, 1 and 3 threads each: of "ref" alone, or of all SIMD
 * instruction sets together. Returns how many (0: there are none); at most OPS_GROUP. */
#define OPS_GROUP 6
int ops_open_group(bool simd, kn_backend *group[OPS_GROUP]);
void ops_close_group(kn_backend *const *group, int n);

/* Allocates backend memory and fills it from host. */
float *ops_upload(kn_backend *be, const float *host, size_t n);

/* |a - b| <= absolute + relative * |b|, else fails the test with place and values. */
void ops_expect_close(const float *a, const double *b, size_t n, double absolute, double relative,
                      const char *what);
void ops_expect_same_bits(const float *a, const float *b, size_t n, const char *what);

#endif
