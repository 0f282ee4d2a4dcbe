/* What the training operations need of an instruction set: serial pieces that train_cpu.c spreads
 * over the pool. One table per instruction set, made from train_simd.inc. */
#ifndef KN_TRAIN_SIMD_H
#define KN_TRAIN_SIMD_H

#include "kernels/cpu/cpu.h"
#include "kernels/train.h"

#include <stdint.h>

/* Products with quantized weights multiply integers: each KN_GROUP numbers along the sum are codes
 * of -KN_GROUP_MOST .. KN_GROUP_MOST and a factor, so that the sum of a group's products fits 32
 * bits. Rounding moves a product by about 1e-4 of |a| |b|, and the sums are twice as fast as in
 * float. */
#define KN_GROUP      32
#define KN_GROUP_MOST 8191

/* A group of a strip of 16 columns. */
typedef struct {
    int32_t pairs[KN_GROUP / 2][16]; /* lower half: the code of step 2 p, upper half: of 2 p + 1 */
    float scale[16];
} kn_strip_group;

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
    /* codes[k rounded up to whole groups] and scale[groups] of x[k]; the rest of the last group is
     * 0. A group with a value that isn't finite has such a scale. */
    void (*quantize_row)(const float *x, int64_t k, int16_t *codes, float *scale);
    /* A group of a strip: x[KN_GROUP, 16]. */
    void (*quantize_strip)(const float *x, kn_strip_group *out);
    /* C[m, width] += A B for a strip B of which width <= 16 columns exist; a: codes with leading
     * dimension lda, scale with ld_scale. Sums run over the groups in ascending order. */
    void (*integer_gemm)(int m, int width, int groups, const int16_t *a, int64_t lda,
                         const float *scale, int64_t ld_scale, const kn_strip_group *strip,
                         float *c, int64_t ldc);
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

/* Of the backend's instruction set. */
const kn_train_simd *kn_train_simd_of(const kn_cpu *cpu);

/* Products with base weights (train_product.c); see train.h. */
void kn_train_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
void kn_train_linear_backward(kn_backend *be, const kn_linear_grad *outs, int n_outs, int n,
                              int64_t cols, bool add, float *d_x);

#endif
