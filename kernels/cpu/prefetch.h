#ifndef KN_CPU_PREFETCH_H
#define KN_CPU_PREFETCH_H

#include <immintrin.h>
#include <stdint.h>

/* Prefetches memory that will be read soon: its latency exceeds what the hardware prefetcher looks
 * ahead. */
static inline __attribute__((always_inline)) void prefetch_bytes(const uint8_t *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)from + i, _MM_HINT_T0);
}

#endif
