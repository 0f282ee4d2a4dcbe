/* What AVX2 and FMA can do at most. */
#include "kernels/cpu/peak_cpu.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

// clang-format off
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/simd_math.inc"
// clang-format on

#define PEAK_INT         __m256i
#define PEAK_FLOAT       __m256
#define PEAK_INT_LANES   32
#define PEAK_FLOAT_LANES 8
#define OPAQUE(x)        __asm__ volatile("" : "+x"(x))

/* A product of pairs and its sum in 16 bits, as the quantized kernels' inner loop. */
ALWAYS_INLINE __m256i peak_dot(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
}
#define peak_fma(x, y, sum) _mm256_fmadd_ps(x, y, sum)
#define peak_int_set(byte)  _mm256_set1_epi8(byte)
#define peak_float_set(x)   _mm256_set1_ps(x)
#define peak_load(p)        _mm256_load_si256((const __m256i *)(const void *)(p))
#define peak_xor(x, y)      _mm256_xor_si256(x, y)
ALWAYS_INLINE uint64_t peak_fold(__m256i x)
{
    __m128i y = _mm_xor_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(y, _mm_unpackhi_epi64(y, y)));
}

#include "kernels/cpu/simd_peak.inc"

const kn_peak_loops kn_peak_avx2 = {"avx2", int_ops, float_ops, read_all};

#else
typedef int kn_avx2_peak_needs_x86_64;
#endif
