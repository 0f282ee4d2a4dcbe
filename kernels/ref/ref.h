/* The reference: every operation in plain C, in the words of backend.h. Float32 on exactly
 * dequantized weights. Fast paths are tested against it; it is never deleted. */
#ifndef KN_REF_REF_H
#define KN_REF_REF_H

#include "kernels/cpu/cpu.h"

/* The definition of the integer path, which the SIMD kernels for quantized weights follow bit for
 * bit: x in blocks of 32 (kn_activations), then for each output element, block after block, group
 * after group (32 columns; 16 for Q6_K)
 *     acc = fma(s * x_scale, (float)(dot - offset * sum), acc), then
 *     acc = fma(m, x_scale * (float)sum, acc)                      (formats with a min)
 * with the exact integer dot product of the weight codes and q, the exact sum of q, and the group's
 * float scale s and min m (w = s * (code - offset) + m). y[n, rows] = acc + bias, in plain row
 * order; bias may be NULL. Quantized types only. */
void kn_ref_linear_int(const kn_matrix *m, const float *x, int n, const float *bias, float *y);

/* One row of x in its quantized form (see kn_activations). */
void kn_ref_quantize_row(const kn_activations *a, int i);

/* The scale of a head's vector x[d] as KN_KV_Q8 stores it; codes are lrintf(x * inverse), or 0
 * where inverse is 0. */
float kn_ref_head_scale(const float *x, int d, float *inverse);

/* One group of a weight row: codes, scale and min, from the stored block. */
typedef struct {
    int columns; /* 32 or 16 */
    int offset;
    float scale, min;
    uint8_t codes[KN_ACT_BLOCK];
} kn_ref_group;
/* Group g (of all in the row) of a stored row of a quantized type. */
void kn_ref_group_get(kn_type type, const uint8_t *row, int64_t g, kn_ref_group *out);

#endif
