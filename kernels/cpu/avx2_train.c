/* The pieces of training for AVX2 and FMA. */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/train_simd.h"
#include "kernels/types.h"

#if defined(__x86_64__)

#include <math.h>
#include <stdbool.h>

#define TRAIN_TILE_M    6
#define TRAIN_INTEGER_M 4
#define TRAIN_SIMD_NAME kn_train_simd_avx2

// clang-format off
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/simd_math.inc"
#include "kernels/cpu/train_simd.inc"
// clang-format on

#else
typedef int kn_avx2_train_needs_x86_64;
#endif
