/* AVX-512 under its native names on an AVX2 machine, for tests (KN_EMULATE_AVX512): SIMDe, and
 * what its older releases lack, half by half. */
#ifndef KN_CPU_EMULATE_AVX512_H
#define KN_CPU_EMULATE_AVX512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC system_header
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <stdint.h>
#include <string.h>

/* simde__m512, simde__m512i, and their halves. */
typedef union {
    simde__m512 f;
    simde__m512i i;
    __m256 f_half[2];
    __m256i i_half[2];
    int32_t dword[16];
} kn_vector512;

static inline simde__m512i kn_join512(__m256i a, __m256i b)
{
    kn_vector512 v;
    v.i_half[0] = a;
    v.i_half[1] = b;
    return v.i;
}

#undef _mm512_cvtepi32_ps
static inline simde__m512 kn_cvtepi32_ps(simde__m512i x)
{
    kn_vector512 v = {.i = x}, y;
    y.f_half[0] = _mm256_cvtepi32_ps(v.i_half[0]);
    y.f_half[1] = _mm256_cvtepi32_ps(v.i_half[1]);
    return y.f;
}
#define _mm512_cvtepi32_ps(x) kn_cvtepi32_ps(x)

#undef _mm512_cvtps_epi32
static inline simde__m512i kn_cvtps_epi32(simde__m512 x)
{
    kn_vector512 v = {.f = x};
    return kn_join512(_mm256_cvtps_epi32(v.f_half[0]), _mm256_cvtps_epi32(v.f_half[1]));
}
#define _mm512_cvtps_epi32(x) kn_cvtps_epi32(x)

#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(x)                                                                    \
    kn_join512(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(x)                                                                    \
    kn_join512(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(x)                                                                   \
    kn_join512(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),                                   \
               _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)))

#undef _mm512_cvtph_ps
static inline simde__m512 kn_cvtph_ps(__m256i x)
{
    kn_vector512 y;
    y.f_half[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    y.f_half[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    return y.f;
}
#define _mm512_cvtph_ps(x) kn_cvtph_ps(x)

#undef _mm512_extractf32x8_ps
static inline __m256 kn_extractf32x8_ps(simde__m512 x, int i)
{
    kn_vector512 v = {.f = x};
    return v.f_half[i];
}
#define _mm512_extractf32x8_ps(x, i) kn_extractf32x8_ps(x, i)

#undef _mm512_reduce_add_epi32
static inline int32_t kn_reduce_add_epi32(simde__m512i x)
{
    kn_vector512 v = {.i = x};
    int32_t sum = 0;
    for (int j = 0; j < 16; j++)
        sum += v.dword[j];
    return sum;
}
#define _mm512_reduce_add_epi32(x) kn_reduce_add_epi32(x)

#undef _mm512_reduce_max_epi32
static inline int32_t kn_reduce_max_epi32(simde__m512i x)
{
    kn_vector512 v = {.i = x};
    int32_t max = v.dword[0];
    for (int j = 1; j < 16; j++)
        max = v.dword[j] > max ? v.dword[j] : max;
    return max;
}
#define _mm512_reduce_max_epi32(x) kn_reduce_max_epi32(x)

#undef _mm512_srai_epi32
static inline simde__m512i kn_srai_epi32(simde__m512i x, int n)
{
    kn_vector512 v = {.i = x};
    return kn_join512(_mm256_srai_epi32(v.i_half[0], n), _mm256_srai_epi32(v.i_half[1], n));
}
#define _mm512_srai_epi32(x, n) kn_srai_epi32(x, n)

#endif
