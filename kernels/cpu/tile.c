#include "kernels/cpu/tile.h"

#include <string.h>

static const kn_tile_format formats[KN_TYPE_COUNT] = {
    [KN_Q8_0] = KN_FORMAT_Q8_0, [KN_Q4_0] = KN_FORMAT_Q4_0, [KN_Q4_1] = KN_FORMAT_Q4_1,
    [KN_Q4_K] = KN_FORMAT_Q4_K, [KN_Q5_K] = KN_FORMAT_Q5_K, [KN_Q6_K] = KN_FORMAT_Q6_K,
};

const kn_tile_format *kn_tile_format_get(kn_type type)
{
    return &formats[type];
}

size_t kn_tile_bytes(kn_type type, int64_t cols)
{
    const kn_tile_format *f = &formats[type];
    size_t bytes =
        f->bits ? kn_tile_super_at(f, cols, cols / 32) : kn_row_bytes(type, cols) * KN_TILE_ROWS;
    return (bytes + 63) / 64 * 64;
}

/* --- packing -------------------------------------------------------------------------------- */

static void pack_floats(const kn_matrix *m, int64_t first_row, uint8_t *dst)
{
    size_t element = kn_row_bytes(m->type, 1);
    for (int r = 0; r < KN_TILE_ROWS && first_row + r < m->rows; r++) {
        const uint8_t *src = kn_matrix_row(m, first_row + r);
        if (element == 4)
            for (int64_t k = 0; k < m->cols; k++)
                memcpy(dst + (size_t)(k * KN_TILE_ROWS + r) * 4, src + (size_t)k * 4, 4);
        else
            for (int64_t k = 0; k < m->cols; k++)
                memcpy(dst + (size_t)(k * KN_TILE_ROWS + r) * 2, src + (size_t)k * 2, 2);
    }
}

/* The three formats whose stored blocks hold the dwords as they are needed: f16 scale, for Q4_1 f16
 * min (`head` bytes), n dwords of codes. Signed codes become unsigned by `flip`. */
static inline __attribute__((always_inline)) void pack_blocks(const kn_matrix *m, int r,
                                                              const uint8_t *src, uint8_t *tile,
                                                              int head, int n, uint32_t flip)
{
    const int64_t n_blocks = m->cols / 32;
    uint8_t *codes = tile + r * 4, *scales = tile + n_blocks * n * 64 + r * 2;
    for (int64_t b = 0; b < n_blocks; b++) {
        memcpy(scales, src, 2);
        if (head == 4) memcpy(scales + 32, src + 2, 2);
        for (int j = 0; j < n; j++) {
            uint32_t dword;
            memcpy(&dword, src + head + j * 4, sizeof dword);
            dword ^= flip;
            memcpy(codes + j * 64, &dword, sizeof dword);
        }
        src += head + n * 4;
        codes += n * 64;
        scales += head * 16;
    }
}

static void pack_simple_row(const kn_matrix *m, int r, const uint8_t *src, uint8_t *tile)
{
    if (m->type == KN_Q8_0)
        pack_blocks(m, r, src, tile, 2, 8, 0x80808080u);
    else if (m->type == KN_Q4_0)
        pack_blocks(m, r, src, tile, 2, 4, 0);
    else
        pack_blocks(m, r, src, tile, 4, 4, 0);
}

/* Codes of one row and block, 4 to 6 bits: four columns at a time, a byte each. */
static void pack_codes(int bits, const uint8_t codes[32], int r, uint8_t *dst)
{
    uint32_t step[8], high[2] = {0, 0};
    memcpy(step, codes, sizeof step);
    for (int j = 0; j < 8; j++)
        if (bits == 5)
            high[0] |= ((step[j] >> 4) & 0x01010101u) << j;
        else if (bits == 6)
            high[j / 4] |= ((step[j] >> 4) & 0x03030303u) << (j % 4) * 2;
    for (int j = 0; j < 4; j++) {
        uint32_t low = (step[j] & 0x0f0f0f0fu) | (step[j + 4] & 0x0f0f0f0fu) << 4;
        memcpy(dst + j * 64 + r * 4, &low, sizeof low);
    }
    for (int j = 0; j < bits - 4; j++)
        memcpy(dst + 256 + j * 64 + r * 4, &high[j], sizeof high[j]);
}

/* The codes of a block of 256, in element order. */
static void k_codes(kn_type type, const uint8_t *block, uint8_t codes[256])
{
    if (type == KN_Q6_K) {
        kn_q6_k_codes(block, codes);
        return;
    }
    const uint8_t *low = block + (type == KN_Q4_K ? 16 : 48);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) {
            int fifth = type == KN_Q5_K ? (block[16 + i] >> j) & 1 : 0;
            codes[j * 32 + i] =
                (uint8_t)(((low[(j / 2) * 32 + i] >> (j & 1) * 4) & 15) | fifth << 4);
        }
}

static void pack_k_scales(kn_type type, const uint8_t *block, int j, int r, uint8_t *scales)
{
    if (type == KN_Q6_K) {
        scales[r] = block[192 + j * 2];
        scales[16 + r] = block[192 + j * 2 + 1];
        return;
    }
    int scale, min;
    kn_k_scale_min(block + 4, j, &scale, &min);
    scales[r] = (uint8_t)scale;
    scales[16 + r] = (uint8_t)min;
}

static void pack_k_row(const kn_matrix *m, int r, const uint8_t *src, uint8_t *tile)
{
    const kn_tile_format *f = &formats[m->type];
    int block_bytes = kn_type_get(m->type)->block_bytes;
    for (int64_t b = 0; b < m->cols / 32; b += 8, src += block_bytes) {
        uint8_t codes[256], *super = tile + kn_tile_super_at(f, m->cols, b);
        memcpy(super + r * 2, m->type == KN_Q6_K ? src + 208 : src, 2);
        if (f->has_min) memcpy(super + 32 + r * 2, src + 2, 2);
        k_codes(m->type, src, codes);
        for (int j = 0; j < 8; j++) {
            pack_codes(f->bits, codes + j * 32, r, tile + (size_t)(b + j) * (size_t)f->code_bytes);
            pack_k_scales(m->type, src, j, r, tile + kn_tile_scale_at(f, m->cols, b + j));
        }
    }
}

void kn_tile_pack(const kn_matrix *m, int64_t first_row, void *dst)
{
    if (!kn_type_get(m->type)->quantized) {
        pack_floats(m, first_row, dst);
        return;
    }
    for (int r = 0; r < KN_TILE_ROWS && first_row + r < m->rows; r++) {
        const uint8_t *src = kn_matrix_row(m, first_row + r);
        if (formats[m->type].super_blocks == 1)
            pack_simple_row(m, r, src, dst);
        else
            pack_k_row(m, r, src, dst);
    }
}

/* --- unpacking one row ---------------------------------------------------------------------- */

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return kn_f16_to_f32(h);
}

static void unpack_codes(int bits, const uint8_t *src, int r, uint8_t codes[32])
{
    for (int k = 0; k < 32; k++) {
        int step = k / 4, at = r * 4 + k % 4;
        if (bits == 8) {
            codes[k] = src[step * 64 + at];
            continue;
        }
        int high = 0;
        if (bits == 5)
            high = (src[256 + at] >> step) & 1;
        else if (bits == 6)
            high = (src[256 + (step / 4) * 64 + at] >> (step % 4) * 2) & 3;
        codes[k] = (uint8_t)(((src[(step % 4) * 64 + at] >> (step / 4) * 4) & 15) | high << 4);
    }
}

static void row_scale(kn_type type, const uint8_t *super, const uint8_t *scales, int r, int h,
                      float *scale, float *min)
{
    const kn_tile_format *f = &formats[type];
    *min = 0;
    if (f->super_blocks == 1) {
        *scale = half_at(scales + r * 2);
        if (f->has_min) *min = half_at(scales + 32 + r * 2);
    } else if (f->has_min) {
        *scale = half_at(super + r * 2) * (float)scales[r];
        *min = -(half_at(super + 32 + r * 2) * (float)scales[16 + r]);
    } else {
        *scale = half_at(super + r * 2) * (float)(int8_t)scales[h * 16 + r];
    }
}

static void unpack_quantized(const kn_weight *w, const uint8_t *tile, int r, int64_t first,
                             int64_t end, float *dst)
{
    const kn_tile_format *f = &formats[w->type];
    for (int64_t b = first / 32; b < end / 32; b++, dst += 32) {
        uint8_t codes[32];
        unpack_codes(f->bits, tile + (size_t)b * (size_t)f->code_bytes, r, codes);
        for (int h = 0; h < 2; h++) {
            float scale, min;
            row_scale(w->type, tile + kn_tile_super_at(f, w->cols, b),
                      tile + kn_tile_scale_at(f, w->cols, b), r, h, &scale, &min);
            for (int k = h * 16; k < h * 16 + 16; k++) {
                float value = scale * (float)(codes[k] - f->offset);
                dst[k] = f->has_min ? value + min : value;
            }
        }
    }
}

void kn_tile_row_scale(const kn_weight *w, const uint8_t *tile, int64_t b, int r, int h,
                       float *scale, float *min)
{
    const kn_tile_format *f = &formats[w->type];
    row_scale(w->type, tile + kn_tile_super_at(f, w->cols, b),
              tile + kn_tile_scale_at(f, w->cols, b), r, h, scale, min);
}

void kn_tile_unpack_part(const kn_weight *w, int64_t row, int64_t first, int64_t end, float *dst)
{
    const uint8_t *tile = w->data + (size_t)(row / KN_TILE_ROWS) * w->tile_bytes;
    int r = (int)(row % KN_TILE_ROWS);
    if (kn_type_get(w->type)->quantized) {
        unpack_quantized(w, tile, r, first, end, dst);
        return;
    }
    size_t element = kn_row_bytes(w->type, 1);
    for (int64_t k = first; k < end; k++)
        kn_dequantize(w->type, tile + (size_t)(k * KN_TILE_ROWS + r) * element, dst + k - first, 1);
}

void kn_tile_unpack_row(const kn_weight *w, int64_t row, float *dst)
{
    kn_tile_unpack_part(w, row, 0, w->cols, dst);
}
