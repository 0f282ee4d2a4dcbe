/* The measuring loops in plain C: what the compiler makes of them is the ceiling of isa "ref". */
#include "kernels/cpu/peak_cpu.h"

#include <string.h>

enum { LANES = 64 };

/* Makes the compiler believe that the array has changed. */
#define OPAQUE(array) __asm__ volatile("" : "+m"(array))

static double int_ops(long rounds)
{
    uint8_t w[LANES];
    int8_t x[LANES];
    uint32_t sums[LANES] = {0}; /* may wrap */
    memset(w, 3, sizeof w);
    memset(x, -5, sizeof x);
    for (long r = 0; r < rounds; r++) {
        OPAQUE(w);
        for (int i = 0; i < LANES; i++)
            sums[i] += (uint32_t)(w[i] * x[i]);
        OPAQUE(sums);
    }
    return 2.0 * LANES * (double)rounds;
}

static double float_ops(long rounds)
{
    float sums[LANES], x[LANES];
    for (int i = 0; i < LANES; i++)
        sums[i] = x[i] = 0.5f;
    for (long r = 0; r < rounds; r++) {
        OPAQUE(x);
        for (int i = 0; i < LANES; i++)
            sums[i] = sums[i] * x[i] + x[i];
        OPAQUE(sums);
    }
    return 2.0 * LANES * (double)rounds;
}

static uint64_t read_all(const uint8_t *data, size_t bytes)
{
    uint64_t sums[8] = {0}, word;
    for (size_t i = 0; i < bytes; i += sizeof sums)
        for (size_t j = 0; j < 8; j++) {
            memcpy(&word, data + i + 8 * j, sizeof word);
            sums[j] ^= word;
        }
    for (int j = 1; j < 8; j++)
        sums[0] ^= sums[j];
    return sums[0];
}

const kn_peak_loops kn_peak_ref = {"ref", int_ops, float_ops, read_all};
