/* The integer path in plain C. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void kn_ref_quantize_row(const kn_activations *a, int i)
{
    const float *x = a->x + i * a->cols;
    int8_t *q = a->q + i * a->cols;
    for (int64_t b = 0; b < a->cols / KN_ACT_BLOCK; b++, x += KN_ACT_BLOCK, q += KN_ACT_BLOCK) {
        float max = 0;
        bool finite = true;
        for (int j = 0; j < KN_ACT_BLOCK; j++) {
            finite = finite && isfinite(x[j]);
            max = fabsf(x[j]) > max ? fabsf(x[j]) : max;
        }
        float inverse = finite && max >= KN_ACT_TINY ? 127.0f / max : 0;
        for (int j = 0; j < KN_ACT_BLOCK; j++)
            q[j] = (int8_t)(finite ? lrintf(x[j] * inverse) : 0);
        kn_act_block *block = &a->blocks[i * (a->cols / KN_ACT_BLOCK) + b];
        *block = (kn_act_block){.scale = !finite ? NAN : max >= KN_ACT_TINY ? max / 127.0f : 0};
        for (int j = 0; j < KN_ACT_BLOCK; j++) {
            block->sum += q[j];
            block->half_sum += j < KN_ACT_BLOCK / 2 ? q[j] : 0;
        }
        block->scaled_sum = block->scale * (float)block->sum;
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return kn_f16_to_f32(h);
}

static void nibbles(const uint8_t *src, uint8_t codes[32])
{
    for (int i = 0; i < 16; i++) {
        codes[i] = src[i] & 15;
        codes[i + 16] = src[i] >> 4;
    }
}

/* Q4_K and Q5_K: sub-block j of a block; high is NULL without a fifth bit. */
static void k_group(const uint8_t *block, int j, const uint8_t *high, const uint8_t *low,
                    kn_ref_group *out)
{
    int scale, min;
    kn_k_scale_min(block + 4, j, &scale, &min);
    out->scale = half_at(block) * (float)scale;
    out->min = -(half_at(block + 2) * (float)min);
    for (int i = 0; i < 32; i++) {
        out->codes[i] = (low[(j / 2) * 32 + i] >> (j & 1) * 4) & 15;
        if (high) out->codes[i] |= (uint8_t)(((high[i] >> j) & 1) << 4);
    }
}

void kn_ref_group_get(kn_type type, const uint8_t *row, int64_t g, kn_ref_group *out)
{
    const kn_type_info *info = kn_type_get(type);
    int columns = type == KN_Q6_K ? 16 : 32, per_block = info->block / columns;
    const uint8_t *block = row + (size_t)(g / per_block) * (size_t)info->block_bytes;
    int j = (int)(g % per_block);
    *out = (kn_ref_group){.columns = columns, .scale = half_at(block)};
    switch (type) {
    case KN_Q8_0:
        out->offset = 128;
        for (int i = 0; i < 32; i++)
            out->codes[i] = block[2 + i] ^ 128;
        break;
    case KN_Q4_0:
        out->offset = 8;
        nibbles(block + 2, out->codes);
        break;
    case KN_Q4_1:
        out->min = half_at(block + 2);
        nibbles(block + 4, out->codes);
        break;
    case KN_Q4_K:
        k_group(block, j, NULL, block + 16, out);
        break;
    case KN_Q5_K:
        k_group(block, j, block + 16, block + 48, out);
        break;
    case KN_Q6_K: {
        uint8_t codes[256];
        kn_q6_k_codes(block, codes);
        out->offset = 32;
        out->scale = half_at(block + 208) * (float)(int8_t)block[192 + j];
        memcpy(out->codes, codes + j * 16, 16);
        break;
    }
    default:
        abort(); /* not a quantized type */
    }
}

static bool type_has_min(kn_type type)
{
    return type == KN_Q4_1 || type == KN_Q4_K || type == KN_Q5_K;
}

void kn_ref_linear_int(const kn_matrix *m, const float *x, int n, const float *bias, float *y)
{
    size_t cols = (size_t)m->cols, count = (size_t)n;
    kn_activations a = {.cols = m->cols,
                        .x = x,
                        .q = malloc(count * cols),
                        .blocks = malloc(count * cols / KN_ACT_BLOCK * sizeof *a.blocks)};
    if (!a.q || !a.blocks) abort();
    for (int i = 0; i < n; i++)
        kn_ref_quantize_row(&a, i);
    int columns = m->type == KN_Q6_K ? 16 : 32;
    for (int64_t r = 0; r < m->rows; r++)
        for (int i = 0; i < n; i++) {
            float acc = 0;
            for (int64_t g = 0; g < m->cols / columns; g++) {
                kn_ref_group w;
                kn_ref_group_get(m->type, kn_matrix_row(m, r), g, &w);
                const int8_t *q = a.q + i * m->cols + g * columns;
                int32_t dot = 0, sum = 0;
                for (int j = 0; j < columns; j++) {
                    dot += w.codes[j] * q[j];
                    sum += q[j];
                }
                const kn_act_block *block = &a.blocks[(i * m->cols + g * columns) / KN_ACT_BLOCK];
                acc = fmaf(w.scale * block->scale, (float)(dot - w.offset * sum), acc);
                if (type_has_min(m->type)) acc = fmaf(w.min, block->scaled_sum, acc);
            }
            y[i * m->rows + r] = bias ? acc + bias[r] : acc;
        }
    free(a.q);
    free(a.blocks);
}
