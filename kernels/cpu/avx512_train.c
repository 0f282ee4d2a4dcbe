/* The pieces of training for AVX-512. */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/train_simd.h"
#include "kernels/types.h"

#if defined(__x86_64__)

#include <math.h>
#include <stdbool.h>

#define TRAIN_TILE_M    14
#define TRAIN_INTEGER_M 12
#define TRAIN_SIMD_NAME kn_train_simd_avx512

// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/simd_math.inc"
#include "kernels/cpu/train_simd.inc"
// clang-format on

#else
typedef int kn_avx512_train_needs_x86_64;
#endif
