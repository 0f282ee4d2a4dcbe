/* vf: 16 float lanes as two AVX2 registers. vec_avx512.h has the same names and computes the same
 * bits, so the templates (simd_*.inc) give the same results on both. */
#ifndef KN_CPU_VEC_AVX2_H
#define KN_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256 a, b;
} vf;

ALWAYS_INLINE vf vf_set1(float x)
{
    __m256 v = _mm256_set1_ps(x);
    return (vf){v, v};
}
ALWAYS_INLINE vf vf_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
ALWAYS_INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
ALWAYS_INLINE vf vf_load_f16(const uint16_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
ALWAYS_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i a = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(v));
    __m256i b = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1));
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}
/* 16 elements in the order 0, 8, 1, 9, ...: two instructions instead of five. */
ALWAYS_INLINE vf vf_load_bf16_pairs(const uint16_t *p)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int32_t)0xffff0000u)))};
}
ALWAYS_INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
/* 16 bytes as unsigned or signed integers. */
ALWAYS_INLINE vf vf_load_u8(const uint8_t *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
ALWAYS_INLINE vf vf_load_i8(const uint8_t *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}
/* Rounded to nearest even; |x| <= 127. */
ALWAYS_INLINE void vf_store_i8(uint8_t *p, vf x)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
}
/* Of 16 dwords: (x >> shift) & mask as numbers. */
ALWAYS_INLINE vf vf_load_bits(const uint8_t *p, int shift, int mask)
{
    const __m256i *v = (const __m256i *)(const void *)p;
    __m256i m = _mm256_set1_epi32(mask);
    return (vf){
        _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(_mm256_loadu_si256(v), shift), m)),
        _mm256_cvtepi32_ps(
            _mm256_and_si256(_mm256_srli_epi32(_mm256_loadu_si256(v + 1), shift), m))};
}
ALWAYS_INLINE vf vf_add(vf x, vf y)
{
    return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
ALWAYS_INLINE vf vf_sub(vf x, vf y)
{
    return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
ALWAYS_INLINE vf vf_mul(vf x, vf y)
{
    return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
ALWAYS_INLINE vf vf_div(vf x, vf y)
{
    return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
/* x y + z */
ALWAYS_INLINE vf vf_fma(vf x, vf y, vf z)
{
    return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* z - x y */
ALWAYS_INLINE vf vf_fnma(vf x, vf y, vf z)
{
    return (vf){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
/* The second operand where one is NaN. */
ALWAYS_INLINE vf vf_max(vf x, vf y)
{
    return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
ALWAYS_INLINE vf vf_min(vf x, vf y)
{
    return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
ALWAYS_INLINE vf vf_round(vf x)
{
    return (vf){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
ALWAYS_INLINE __m256 ldexp_half(__m256 x, __m256i n)
{
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
}
/* x 2^n for whole n, |n| <= 250; in two steps, so that subnormal results and infinity come out. */
ALWAYS_INLINE vf vf_ldexp(vf x, vf n)
{
    __m256i na = _mm256_cvtps_epi32(n.a), nb = _mm256_cvtps_epi32(n.b);
    __m256i ha = _mm256_srai_epi32(na, 1), hb = _mm256_srai_epi32(nb, 1);
    return (vf){ldexp_half(ldexp_half(x.a, ha), _mm256_sub_epi32(na, ha)),
                ldexp_half(ldexp_half(x.b, hb), _mm256_sub_epi32(nb, hb))};
}
/* Rounded to nearest even; |x| <= 32767. */
ALWAYS_INLINE void vf_store_i16(int16_t *p, vf x)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(words, 0xd8));
}

/* 16 lanes of 32 bits, or 16 pairs of 16 bits. */
typedef struct {
    __m256i a, b;
} vi;

ALWAYS_INLINE vi vi_set1(int32_t x)
{
    __m256i v = _mm256_set1_epi32(x);
    return (vi){v, v};
}
ALWAYS_INLINE vi vi_load(const int32_t *p)
{
    const __m256i *v = (const __m256i *)(const void *)p;
    return (vi){_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
ALWAYS_INLINE void vi_store(int32_t *p, vi x)
{
    __m256i *v = (__m256i *)(void *)p;
    _mm256_storeu_si256(v, x.a);
    _mm256_storeu_si256(v + 1, x.b);
}
/* sum + y in place, there and then: compilers put all products of a tile before the first sum
 * otherwise, and have no registers left for them. */
ALWAYS_INLINE __m256i add_now(__m256i sum, __m256i y)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(y));
    return sum;
}
/* sums[i] + the scalar products of x[i]'s pairs and y's. Four products, then their four sums: one
 * by one the sums would take the multipliers' ports. */
ALWAYS_INLINE void vi_dot2(vi sums[2], const vi x[2], vi y)
{
    __m256i a0 = _mm256_madd_epi16(x[0].a, y.a), b0 = _mm256_madd_epi16(x[0].b, y.b);
    __m256i a1 = _mm256_madd_epi16(x[1].a, y.a), b1 = _mm256_madd_epi16(x[1].b, y.b);
    sums[0] = (vi){add_now(sums[0].a, a0), add_now(sums[0].b, b0)};
    sums[1] = (vi){add_now(sums[1].a, a1), add_now(sums[1].b, b1)};
}
ALWAYS_INLINE vf vi_float(vi x)
{
    return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
ALWAYS_INLINE __m256i pair_half(__m256 low, __m256 high)
{
    return _mm256_blend_epi16(_mm256_cvtps_epi32(low),
                              _mm256_slli_epi32(_mm256_cvtps_epi32(high), 16), 0xaa);
}
/* Pairs of numbers rounded to nearest even; |x| <= 32767. */
ALWAYS_INLINE vi vi_pairs(vf low, vf high)
{
    return (vi){pair_half(low.a, high.a), pair_half(low.b, high.b)};
}
/* ((x0 + x8) + (x4 + x12)) + ... : always in this order. */
ALWAYS_INLINE float vf_sum(vf x)
{
    __m256 s = _mm256_add_ps(x.a, x.b);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
ALWAYS_INLINE float vf_max_lane(vf x)
{
    __m256 s = _mm256_max_ps(x.a, x.b);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

#endif
