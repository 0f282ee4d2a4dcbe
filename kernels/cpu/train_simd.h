/* What the training operations need of an instruction set: serial pieces that train_cpu.c spreads
 * over the pool. One table per instruction set, made from train_simd.inc. */
#ifndef KN_TRAIN_SIMD_H
#define KN_TRAIN_SIMD_H

#include "kernels/cpu/cpu.h"

#include <stdint.h>

typedef struct {
    /* C[m, n] += sum over k of a(m, k) B[k, n], a(m, k) = a[m * sm + k * sk], rows of B and C
     * contiguous with leading dimensions ldb and ldc. For each element of C the sum runs over k in
     * ascending order, whatever m and n are. */
    void (*gemm)(int m, int n, int k, const float *a, int64_t sm, int64_t sk, const float *b,
                 int64_t ldb, float *c, int64_t ldc);
    /* Dequantizes columns first .. end - 1 (first a multiple of 32, end too or the last one) of the
     * 16 rows of a tile into strips: columns first + 16 s .. of row r come to dst + s *
     * strip_floats + r * 16; columns past the last are 0, rows past it anything. row: floats[end
     * - first] for its own use. */
    void (*unpack_tile)(const kn_weight *w, int64_t tile, int64_t first, int64_t end, float *row,
                        float *dst, int64_t strip_floats);
    /* The same as one strip of the transposed: column c of row r comes to dst + (c - first) * 16 +
     * r; 0 for rows past the last. */
    void (*unpack_columns)(const kn_weight *w, int64_t tile, int64_t first, int64_t end, float *row,
                           float *dst);
    /* C[m, n] += A[m, k] B, B[k, n] as strips of 16 columns; sums run over k in ascending order. */
    void (*strip_gemm)(int m, int n, int k, const float *a, int64_t lda, const float *strips,
                       int64_t strip_floats, float *c, int64_t ldc);
    /* See train.h; ranges of rows or elements. */
    void (*rmsnorm_backward)(const float *x, const float *weight, float eps, const float *d_y,
                             int d, float *d_x);
    void (*swiglu_backward)(const float *gate, const float *up, const float *d_y, int64_t n,
                            float *d_gate, float *d_up);
    /* log sum exp of x[n]. */
    float (*log_sum_exp)(const float *x, int64_t n);
    /* x[i] <- scale * exp(x[i] - shift) */
    void (*scaled_exp)(float *x, int64_t n, float shift, float scale);
    /* The distillation gradient of one row (train.h); returns KL. */
    float (*distill)(float *x, const float *teacher, int64_t n, float own, float other,
                     float weight);
    /* s[i] <- p[i] * (s[i] - mean) * scale */
    void (*softmax_backward)(const float *p, float *s, int n, float mean, float scale);
    float (*dot)(const float *a, const float *b, int64_t n);
    void (*add)(const float *x, int64_t n, float *y);
} kn_train_simd;

extern const kn_train_simd kn_train_simd_avx2;
extern const kn_train_simd kn_train_simd_avx512;

#endif
