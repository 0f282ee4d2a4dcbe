#include "types.h"

#include <assert.h>
#include <string.h>

static const kn_type_info type_table[KN_TYPE_COUNT] = {
    [KN_F32] = {"F32", 1, 4, false},      [KN_F16] = {"F16", 1, 2, false},
    [KN_BF16] = {"BF16", 1, 2, false},    [KN_Q8_0] = {"Q8_0", 32, 34, true},
    [KN_Q4_0] = {"Q4_0", 32, 18, true},   [KN_Q4_1] = {"Q4_1", 32, 20, true},
    [KN_Q4_K] = {"Q4_K", 256, 144, true}, [KN_Q5_K] = {"Q5_K", 256, 176, true},
    [KN_Q6_K] = {"Q6_K", 256, 210, true},
};

const kn_type_info *kn_type_get(kn_type type)
{
    assert(type >= 0 && type < KN_TYPE_COUNT);
    return &type_table[type];
}

size_t kn_row_bytes(kn_type type, int64_t cols)
{
    const kn_type_info *info = kn_type_get(type);
    return (size_t)(cols / info->block) * (size_t)info->block_bytes;
}

/* --- 16-bit floats -------------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float kn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) /* infinity, NaN (made quiet, as the hardware does) */
        return float_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0) | mantissa << 13);
    if (exponent == 0) { /* zero, subnormal: mantissa * 2^-24, exact */
        float f = (float)mantissa * 0x1p-24f;
        return float_of_bits(sign | bits_of_float(f));
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t kn_f32_to_f16(float f)
{
    uint32_t bits = bits_of_float(f);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
    if (bits >= 0x477ff000u) /* rounds to 65536 or more */
        return sign | 0x7c00u;
    if (bits < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 puts the units at 2^-24 */
        float sum = float_of_bits(bits) + 0.5f;
        return (uint16_t)(sign | (bits_of_float(sum) - bits_of_float(0.5f)));
    }
    uint32_t odd = (bits >> 13) & 1u;
    return (uint16_t)(sign | ((bits - (112u << 23) + 0xfffu + odd) >> 13));
}

float kn_bf16_to_f32(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

uint16_t kn_f32_to_bf16(float f)
{
    uint32_t bits = bits_of_float(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    uint32_t odd = (bits >> 16) & 1u;
    return (uint16_t)((bits + 0x7fffu + odd) >> 16);
}

/* --- blocks --------------------------------------------------------------------------------- */

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return kn_f16_to_f32(h);
}

/* d, int8[32]: d * q */
static void q8_0_block(const uint8_t *src, float *dst)
{
    float d = half_at(src);
    for (int i = 0; i < 32; i++)
        dst[i] = d * (float)(int8_t)src[2 + i];
}

/* d, nibbles[16] (low: elements 0..15, high: 16..31): d * (q - 8) */
static void q4_0_block(const uint8_t *src, float *dst)
{
    float d = half_at(src);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)((src[2 + i] & 15) - 8);
        dst[i + 16] = d * (float)((src[2 + i] >> 4) - 8);
    }
}

/* d, m, nibbles[16] as in Q4_0: d * q + m */
static void q4_1_block(const uint8_t *src, float *dst)
{
    float d = half_at(src), m = half_at(src + 2);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)(src[4 + i] & 15) + m;
        dst[i + 16] = d * (float)(src[4 + i] >> 4) + m;
    }
}

void kn_k_scale_min(const uint8_t packed[12], int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        *min = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    }
}

/* d, dmin, 8 packed (scale, min) pairs of 6 bits, nibbles[128]; 64 elements share 32 bytes (low
 * nibbles first): d * scale * q - dmin * min */
static void q4_k_block(const uint8_t *src, float *dst)
{
    float d = half_at(src), dmin = half_at(src + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        kn_k_scale_min(src + 4, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        const uint8_t *q = src + 16 + (j / 2) * 32;
        for (int i = 0; i < 32; i++)
            dst[j * 32 + i] = s * (float)((q[i] >> (j & 1) * 4) & 15) - m;
    }
}

/* As Q4_K with a fifth bit: bit j of high[i] belongs to element i of sub-block j. */
static void q5_k_block(const uint8_t *src, float *dst)
{
    float d = half_at(src), dmin = half_at(src + 2);
    const uint8_t *high = src + 16;
    for (int j = 0; j < 8; j++) {
        int scale, min;
        kn_k_scale_min(src + 4, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        const uint8_t *q = src + 48 + (j / 2) * 32;
        for (int i = 0; i < 32; i++) {
            int code = ((q[i] >> (j & 1) * 4) & 15) | ((high[i] >> j) & 1) << 4;
            dst[j * 32 + i] = s * (float)code - m;
        }
    }
}

void kn_q6_k_codes(const uint8_t *src, uint8_t codes[256])
{
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = src + half * 64, *high = src + 128 + half * 32;
        uint8_t *out = codes + half * 128;
        for (int i = 0; i < 32; i++) {
            out[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            out[i + 32] = (uint8_t)((low[i + 32] & 15) | ((high[i] >> 2) & 3) << 4);
            out[i + 64] = (uint8_t)((low[i] >> 4) | ((high[i] >> 4) & 3) << 4);
            out[i + 96] = (uint8_t)((low[i + 32] >> 4) | (high[i] >> 6) << 4);
        }
    }
}

/* low nibbles[128], high bit pairs[64], int8 scale per 16 elements [16], d: d * scale * (q - 32) */
static void q6_k_block(const uint8_t *src, float *dst)
{
    uint8_t codes[256];
    kn_q6_k_codes(src, codes);
    float d = half_at(src + 208);
    for (int i = 0; i < 256; i++) {
        float s = d * (float)(int8_t)src[192 + i / 16];
        dst[i] = s * (float)(codes[i] - 32);
    }
}

static void f32_block(const uint8_t *src, float *dst)
{
    memcpy(dst, src, sizeof *dst);
}

static void f16_block(const uint8_t *src, float *dst)
{
    *dst = half_at(src);
}

static void bf16_block(const uint8_t *src, float *dst)
{
    uint16_t h;
    memcpy(&h, src, sizeof h);
    *dst = kn_bf16_to_f32(h);
}

void kn_dequantize(kn_type type, const void *src, float *dst, int64_t n)
{
    static void (*const block_functions[KN_TYPE_COUNT])(const uint8_t *, float *) = {
        [KN_F32] = f32_block,   [KN_F16] = f16_block,   [KN_BF16] = bf16_block,
        [KN_Q8_0] = q8_0_block, [KN_Q4_0] = q4_0_block, [KN_Q4_1] = q4_1_block,
        [KN_Q4_K] = q4_k_block, [KN_Q5_K] = q5_k_block, [KN_Q6_K] = q6_k_block,
    };
    const kn_type_info *info = kn_type_get(type);
    assert(n % info->block == 0);
    if (type == KN_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    const uint8_t *p = src;
    for (int64_t i = 0; i < n; i += info->block, p += info->block_bytes)
        block_functions[type](p, dst + i);
}
