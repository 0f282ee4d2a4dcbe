/* The packed form of weights for the SIMD kernels: tiles of 16 rows, where a vector lane is a row.
 *
 * F32, F16, BF16: [cols][16] elements.
 *
 * Quantized types: the codes of all blocks of 32 columns, then their scales. In a block, step s < 8
 * is columns 4 s .. 4 s + 3; a dword holds those four of one row, one byte each, and 16 dwords
 * (64 bytes) are the 16 rows. Codes are unsigned (w = scale * (code - offset) + min).
 *   4 bits: vector j < 4: low nibbles are step j, high nibbles step j + 4
 *   5 bits: the 4-bit vectors of the lower bits, and a vector whose bit s of each byte is the fifth
 *           bit of step s
 *   6 bits: the 4-bit vectors of the lower bits, and 2 vectors: bits 2 i, 2 i + 1 of each byte of
 *           vector v are the upper bits of step 4 v + i
 *   8 bits: vector s is step s
 * Scales of a block (16 rows each): f16 scales, for Q4_1 f16 mins after them. K types, per 8
 * blocks: f16 scales (and mins) of the super-block, then per block uint8 scales and mins (Q4_K,
 * Q5_K) or two times int8 scales (Q6_K, for columns 0..15 and 16..31). */
#ifndef KN_CPU_TILE_H
#define KN_CPU_TILE_H

#include "kernels/cpu/cpu.h"

#define KN_TILE_ROWS 16

typedef struct {
    int bits;       /* of a code */
    int code_bytes; /* of a block of 32 columns */
    int offset;     /* subtracted from codes; a power of two, or 0 */
    bool has_min;
    int group;        /* columns with a scale of their own: 32 or 16 */
    int super_blocks; /* blocks that share the super scales: 8, or 1: no super scales */
    int super_bytes;  /* super scales and mins */
    int scale_bytes;  /* of a block */
} kn_tile_format;

/* The formats, as constants for the kernels that are made for one of them. */
#define KN_FORMAT_Q8_0                                                                             \
    {                                                                                              \
        8, 512, 128, false, 32, 1, 0, 32                                                           \
    }
#define KN_FORMAT_Q4_0                                                                             \
    {                                                                                              \
        4, 256, 8, false, 32, 1, 0, 32                                                             \
    }
#define KN_FORMAT_Q4_1                                                                             \
    {                                                                                              \
        4, 256, 0, true, 32, 1, 0, 64                                                              \
    }
#define KN_FORMAT_Q4_K                                                                             \
    {                                                                                              \
        4, 256, 0, true, 32, 8, 64, 32                                                             \
    }
#define KN_FORMAT_Q5_K                                                                             \
    {                                                                                              \
        5, 320, 0, true, 32, 8, 64, 32                                                             \
    }
#define KN_FORMAT_Q6_K                                                                             \
    {                                                                                              \
        6, 384, 32, false, 16, 8, 32, 32                                                           \
    }

/* Of a quantized type. */
const kn_tile_format *kn_tile_format_get(kn_type type);

size_t kn_tile_bytes(kn_type type, int64_t cols);
void kn_tile_pack(const kn_matrix *m, int64_t first_row, void *dst);
void kn_tile_unpack_row(const kn_weight *w, int64_t row, float *dst);
/* dst[end - first] = columns first .. end - 1 of a row; of quantized types first and end must be
 * multiples of 32. */
void kn_tile_unpack_part(const kn_weight *w, int64_t row, int64_t first, int64_t end, float *dst);
/* Scale and min of row r in half h (columns 16 h ...) of block b. */
void kn_tile_row_scale(const kn_weight *w, const uint8_t *tile, int64_t b, int r, int h,
                       float *scale, float *min);

/* Where the scales of block b (and of its super-block) lie in a tile. */
static inline size_t kn_tile_super_at(const kn_tile_format *f, int64_t cols, int64_t b)
{
    size_t codes = (size_t)(cols / 32) * (size_t)f->code_bytes;
    size_t super = (size_t)(f->super_bytes + f->super_blocks * f->scale_bytes);
    return codes + (size_t)(b / f->super_blocks) * super;
}
static inline size_t kn_tile_scale_at(const kn_tile_format *f, int64_t cols, int64_t b)
{
    return kn_tile_super_at(f, cols, b) + (size_t)f->super_bytes +
           (size_t)(b % f->super_blocks) * (size_t)f->scale_bytes;
}

#endif
