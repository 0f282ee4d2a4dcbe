/* Storage types of weights and the shapes of their blocks (GGUF's formats).
 *
 * kernels/ builds alone: libc and pthreads only. Everything is row-major; sizes are in elements
 * unless a name says bytes; floats are IEEE binary32. */
#ifndef KN_TYPES_H
#define KN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    KN_F32,
    KN_F16,
    KN_BF16,
    KN_Q8_0,
    KN_Q4_0,
    KN_Q4_1,
    KN_Q4_K,
    KN_Q5_K,
    KN_Q6_K,
    KN_TYPE_COUNT
} kn_type;

typedef struct {
    const char *name; /* "F32", "Q4_K", ... */
    int block;        /* elements per block; a row is a whole number of blocks */
    int block_bytes;
    bool quantized;
} kn_type_info;

/* Borrowed, static. */
const kn_type_info *kn_type_get(kn_type type);

/* Bytes of a row of cols elements; cols must be a multiple of the block. */
size_t kn_row_bytes(kn_type type, int64_t cols);

/* dst[0..n) = the exact float32 value of src's n elements (n a multiple of the block).
 * The one definition of what a stored weight is worth; every fast path is tested against it. */
void kn_dequantize(kn_type type, const void *src, float *dst, int64_t n);

/* Pieces of the K formats, for packing. Scale and min (0..63) of sub-block j < 8 of a Q4_K or Q5_K
 * block from its 12 packed bytes; the 256 codes (0..63) of a Q6_K block in element order. */
void kn_k_scale_min(const uint8_t packed[12], int j, int *scale, int *min);
void kn_q6_k_codes(const uint8_t *src, uint8_t codes[256]);

float kn_f16_to_f32(uint16_t h);
uint16_t kn_f32_to_f16(float f); /* round to nearest even, overflow to infinity */
float kn_bf16_to_f32(uint16_t h);
uint16_t kn_f32_to_bf16(float f); /* round to nearest even, NaN kept */

#endif
