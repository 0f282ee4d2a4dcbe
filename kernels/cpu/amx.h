/* Isa "amx": the AVX-512 kernels, but for large products of integers. */
#ifndef KN_CPU_AMX_H
#define KN_CPU_AMX_H

#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
extern const kn_cpu_kernels kn_amx_kernels;
/* linear of kn_amx_kernels: AMX tiles for whole 16 rows of input and quantized weights, the AVX-512
 * kernels for the rest. */
void kn_amx_linear(const kn_linear *out, int64_t first_tile, int64_t end_tile,
                   const kn_activations *a, int first, int end, void *scratch);
#endif

#endif
