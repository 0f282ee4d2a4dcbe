/* vf: 16 float lanes as one AVX-512 register; see vec_avx2.h. */
#ifndef KN_CPU_VEC_AVX512_H
#define KN_CPU_VEC_AVX512_H

#ifdef KN_EMULATE_AVX512
#include "kernels/cpu/emulate_avx512.h"
#else
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef __m512 vf;

ALWAYS_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
ALWAYS_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
ALWAYS_INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
ALWAYS_INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
ALWAYS_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
/* 16 elements in the order 0, 8, 1, 9, ... */
ALWAYS_INLINE vf vf_load_bf16_pairs(const uint16_t *p)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i high = _mm256_and_si256(v, _mm256_set1_epi32((int32_t)0xffff0000u));
    return _mm512_castsi512_ps(
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_slli_epi32(v, 16)), high, 1));
}
ALWAYS_INLINE void vf_store_f16(uint16_t *p, vf x)
{
    __m128i *to = (__m128i *)(void *)p;
    _mm_storeu_si128(to, _mm256_cvtps_ph(_mm512_castps512_ps256(x), _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(to + 1,
                     _mm256_cvtps_ph(_mm512_extractf32x8_ps(x, 1), _MM_FROUND_TO_NEAREST_INT));
}
ALWAYS_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
ALWAYS_INLINE vf vf_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* Rounded to nearest even; |x| <= 127. */
ALWAYS_INLINE void vf_store_i8(uint8_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}
/* Of 16 dwords: (x >> shift) & mask as numbers. */
ALWAYS_INLINE vf vf_load_bits(const uint8_t *p, int shift, int mask)
{
    __m512i v = _mm512_srli_epi32(_mm512_loadu_si512(p), (unsigned)shift);
    return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32(mask)));
}
ALWAYS_INLINE vf vf_add(vf x, vf y)
{
    return _mm512_add_ps(x, y);
}
ALWAYS_INLINE vf vf_sub(vf x, vf y)
{
    return _mm512_sub_ps(x, y);
}
ALWAYS_INLINE vf vf_mul(vf x, vf y)
{
    return _mm512_mul_ps(x, y);
}
ALWAYS_INLINE vf vf_div(vf x, vf y)
{
    return _mm512_div_ps(x, y);
}
ALWAYS_INLINE vf vf_fma(vf x, vf y, vf z)
{
    return _mm512_fmadd_ps(x, y, z);
}
ALWAYS_INLINE vf vf_fnma(vf x, vf y, vf z)
{
    return _mm512_fnmadd_ps(x, y, z);
}
ALWAYS_INLINE vf vf_max(vf x, vf y)
{
    return _mm512_max_ps(x, y);
}
ALWAYS_INLINE vf vf_min(vf x, vf y)
{
    return _mm512_min_ps(x, y);
}
ALWAYS_INLINE vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
ALWAYS_INLINE vf ldexp_half(vf x, __m512i n)
{
    __m512i power = _mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(x, _mm512_castsi512_ps(power));
}
ALWAYS_INLINE vf vf_ldexp(vf x, vf n)
{
    __m512i whole = _mm512_cvtps_epi32(n), half = _mm512_srai_epi32(whole, 1);
    return ldexp_half(ldexp_half(x, half), _mm512_sub_epi32(whole, half));
}
ALWAYS_INLINE void vf_store_i16(int16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}

typedef __m512i vi;

ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
ALWAYS_INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
ALWAYS_INLINE void vi_store(int32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}
ALWAYS_INLINE void vi_dot2(vi sums[2], const vi x[2], vi y)
{
    sums[0] = _mm512_dpwssd_epi32(sums[0], x[0], y);
    sums[1] = _mm512_dpwssd_epi32(sums[1], x[1], y);
}
ALWAYS_INLINE vf vi_float(vi x)
{
    return _mm512_cvtepi32_ps(x);
}
ALWAYS_INLINE vi vi_pairs(vf low, vf high)
{
    __m512i mask = _mm512_set1_epi32(0xffff);
    return _mm512_or_si512(_mm512_and_si512(_mm512_cvtps_epi32(low), mask),
                           _mm512_slli_epi32(_mm512_cvtps_epi32(high), 16));
}
ALWAYS_INLINE float vf_sum(vf x)
{
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
ALWAYS_INLINE float vf_max_lane(vf x)
{
    __m256 s = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

#endif
