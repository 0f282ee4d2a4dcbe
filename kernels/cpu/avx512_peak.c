/* What AVX-512 (F, VNNI) can do at most. */
#include "kernels/cpu/peak_cpu.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/simd_math.inc"
// clang-format on

#define PEAK_INT         __m512i
#define PEAK_FLOAT       __m512
#define PEAK_INT_LANES   64
#define PEAK_FLOAT_LANES 16
#ifdef KN_EMULATE_AVX512
#define OPAQUE(x) __asm__ volatile("" : "+m"(x)) /* not a register there */
#else
#define OPAQUE(x) __asm__ volatile("" : "+v"(x))
#endif
#define peak_dot(sum, w, x) _mm512_dpbusd_epi32(sum, w, x)
#define peak_fma(x, y, sum) _mm512_fmadd_ps(x, y, sum)
#define peak_int_set(byte)  _mm512_set1_epi32((byte)*0x010101)
#define peak_float_set(x)   _mm512_set1_ps(x)
#define peak_load(p)        _mm512_loadu_si512(p)
#define peak_xor(x, y)      _mm512_xor_si512(x, y)
ALWAYS_INLINE uint64_t peak_fold(__m512i x)
{
    uint64_t words[8];
    _mm512_storeu_si512(words, x);
    return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

#include "kernels/cpu/simd_peak.inc"

const kn_peak_loops kn_peak_avx512 = {"avx512", int_ops, float_ops, read_all};

#else
typedef int kn_avx512_peak_needs_x86_64;
#endif
