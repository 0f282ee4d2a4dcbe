/* Inside kernels/peak: the loops of one instruction set. Each returns the operations it did. */
#ifndef KN_CPU_PEAK_CPU_H
#define KN_CPU_PEAK_CPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *isa;
    double (*int_ops)(long rounds);
    double (*float_ops)(long rounds);
    /* Reads bytes (a multiple of 512) at data, 64-byte aligned; the result depends on all. */
    uint64_t (*read)(const uint8_t *data, size_t bytes);
} kn_peak_loops;

extern const kn_peak_loops kn_peak_ref;
#if defined(__x86_64__)
extern const kn_peak_loops kn_peak_avx2;
extern const kn_peak_loops kn_peak_avx512;
extern const kn_peak_loops kn_peak_amx;
#endif

#endif
