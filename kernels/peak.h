/* What the processor can do at most, measured: the ceiling that the operations' rates are compared
 * with. Loops of nothing but the instruction in question, on all threads, best of many short
 * trials. */
#ifndef KN_PEAK_H
#define KN_PEAK_H

#include <stdbool.h>
#include <stddef.h>

/* Per second, all threads together. A multiply-accumulate counts as two operations. */
typedef struct {
    double read_bytes; /* memory read, of a buffer that no cache holds */
    double int_ops;    /* products of 8-bit integers, accumulated, as the quantized kernels do it */
    double float_ops;  /* float32 multiply-add */
} kn_peak;

typedef struct {
    const char *isa; /* "ref", "avx2", "avx512"; NULL = the best one here */
    int threads;     /* 0 = one per usable core */
    double seconds;  /* for each of the three; 0 = 0.3 */
    size_t bytes;    /* of the buffer; 0 = twice the last-level cache, 256 MiB .. 1 GiB */
} kn_peak_options;

/* False: the instruction set can't be used here, or memory or threads are lacking. */
bool kn_peak_measure(const kn_peak_options *options, kn_peak *out);

#endif
