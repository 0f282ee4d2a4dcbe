/* The kernels for AVX-512 (F, BW, VL, DQ, VNNI). Tests run them on AVX2 machines through SIMDe
 * (emulate_avx512.h). */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

/* In this order: each needs the ones before it. */
// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/simd_math.inc"
#include "kernels/cpu/simd_rows.inc"
#include "kernels/cpu/simd_attention.inc"
#include "kernels/cpu/simd_adapter.inc"
#include "kernels/cpu/quantize_avx512.inc"
#include "kernels/cpu/int_avx512.inc"
#include "kernels/cpu/simd_tile.inc"
#include "kernels/cpu/simd_float.inc"
#include "kernels/cpu/simd_int.inc"
#include "kernels/cpu/simd_table.inc"
// clang-format on

const kn_cpu_kernels kn_avx512_kernels = SIMD_TABLE("avx512", linear);
/* As it is, but for large products of integers (amx.c). */
const kn_cpu_kernels kn_amx_kernels = SIMD_TABLE("amx", kn_amx_linear);

#else
typedef int kn_avx512_needs_x86_64;
#endif
