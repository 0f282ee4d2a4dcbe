/* The kernels for AVX2, FMA and F16C. */
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

/* In this order: each needs the ones before it. */
// clang-format off
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/simd_math.inc"
#include "kernels/cpu/simd_rows.inc"
#include "kernels/cpu/simd_attention.inc"
#include "kernels/cpu/simd_adapter.inc"
#include "kernels/cpu/quantize_avx2.inc"
#include "kernels/cpu/int_avx2.inc"
#include "kernels/cpu/simd_tile.inc"
#include "kernels/cpu/simd_float.inc"
#include "kernels/cpu/simd_int.inc"
#include "kernels/cpu/simd_table.inc"
// clang-format on

const kn_cpu_kernels kn_avx2_kernels = SIMD_TABLE("avx2", linear);

#else
typedef int kn_avx2_needs_x86_64;
#endif
