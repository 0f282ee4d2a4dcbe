/* Speed of the linear kernels on a model's shapes, beside what the processor can do.
 *
 *   bench_kernels [ISA [THREADS [MILLISECONDS]]]
 *
 * Rates are per second of this thread's processor time when THREADS is 1, else per second. */
#include "kernels/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Large enough that a decode step finds nothing in the caches. */
#define COPIES_BYTES ((size_t)200 << 20)

static void fill(uint8_t *data, size_t bytes, size_t block, size_t n_scales)
{
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < bytes; i += block)
        for (size_t s = 0; s < n_scales; s++)
            memcpy(data + i + 2 * s, "\x00\x20", 2);
}

static void bench_shape(kn_backend *be, kn_type type, int64_t rows, int64_t cols, int n,
                        double seconds)
{
    size_t bytes = (size_t)rows * kn_row_bytes(type, cols);
    uint8_t *data = malloc(bytes);
    if (!data) abort();
    fill(data, bytes, (size_t)kn_type_get(type)->block_bytes, type == KN_Q4_1 ? 2 : 1);
    int copies = n > 32 ? 1 : (int)(COPIES_BYTES / bytes) + 1;
    kn_matrix m = {type, rows, cols, data, KN_ROWS_PLAIN, 0};
    kn_weight **w = calloc((size_t)copies, sizeof *w);
    float *x = be->ops->buffer_alloc(be, (size_t)n * (size_t)cols * sizeof *x);
    float *y = be->ops->buffer_alloc(be, (size_t)n * (size_t)rows * sizeof *y);
    if (!w || !x || !y) abort();
    double pack = now();
    for (int c = 0; c < copies; c++)
        w[c] = be->ops->weight_create(be, &m);
    pack = now() - pack;
    for (int64_t i = 0; i < n * cols; i++)
        x[i] = (float)(i % 113) - 56;
    double start = now(), elapsed;
    long calls = 0;
    do {
        kn_linear out = {w[calls % copies], NULL, y, rows, false};
        be->ops->linear(be, x, n, &out, 1);
        calls++;
    } while ((elapsed = now() - start) < seconds);
    double macs = (double)rows * (double)cols * n * (double)calls;
    double read = (double)be->ops->weight_bytes(w[0]) * (double)calls;
    printf("%-5s %6lld x %-5lld n %-4d %8.1f Gop/s %7.2f GB/s %9.1f us/call  pack %6.0f MB/s\n",
           kn_type_get(type)->name, (long long)rows, (long long)cols, n, 2e-9 * macs / elapsed,
           1e-9 * read / elapsed, 1e6 * elapsed / (double)calls,
           1e-6 * (double)bytes * copies / pack);
    for (int c = 0; c < copies; c++)
        be->ops->weight_free(be, w[c]);
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, y);
    free(w);
    free(data);
}

static void bench_attention(kn_backend *be, int context, int n, double seconds)
{
    enum { HEADS = 9, KV_HEADS = 3, DIM = 64, PAGE = 32 };
    kn_kv_shape shape = {1, KV_HEADS, DIM, PAGE, context / PAGE + 1, KN_KV_F16};
    kn_kv *kv = be->ops->kv_create(be, &shape);
    float *q = be->ops->buffer_alloc(be, (size_t)n * HEADS * DIM * sizeof *q);
    float *y = be->ops->buffer_alloc(be, (size_t)n * HEADS * DIM * sizeof *y);
    int32_t *pages = calloc((size_t)shape.n_pages, sizeof *pages);
    kn_kv_row *rows = calloc((size_t)n, sizeof *rows);
    if (!kv || !q || !y || !pages || !rows) abort();
    double macs = 0;
    for (int i = 0; i < shape.n_pages; i++)
        pages[i] = i;
    for (int i = 0; i < n; i++) {
        rows[i] = (kn_kv_row){pages, context - n + i};
        macs += 2.0 * HEADS * DIM * (context - n + i + 1);
    }
    double start = now(), elapsed;
    long calls = 0;
    do {
        be->ops->attention(be, kv, 0, q, rows, n, HEADS, y);
        calls++;
    } while ((elapsed = now() - start) < seconds);
    printf("attention context %-5d n %-4d %8.1f Gflop/s %9.1f us/call\n", context, n,
           2e-9 * macs * (double)calls / elapsed, 1e6 * elapsed / (double)calls);
    be->ops->kv_free(be, kv);
    be->ops->buffer_free(be, q);
    be->ops->buffer_free(be, y);
    free(pages);
    free(rows);
}

static void bench_rows(kn_backend *be, double seconds)
{
    enum { N = 512, D = 1536 };
    float *x = be->ops->buffer_alloc(be, N * D * sizeof *x);
    float *y = be->ops->buffer_alloc(be, N * D * sizeof *y);
    float *weight = be->ops->buffer_alloc(be, D * sizeof *weight);
    if (!x || !y || !weight) abort();
    for (int what = 0; what < 2; what++) {
        double start = now(), elapsed;
        long calls = 0;
        do {
            if (what == 0)
                be->ops->rmsnorm(be, x, weight, 1e-5f, N, D, y);
            else
                be->ops->swiglu(be, x, x, N, D, y);
            calls++;
        } while ((elapsed = now() - start) < seconds);
        printf("%-8s %.2f ns per element\n", what ? "swiglu" : "rmsnorm",
               1e9 * elapsed / (double)calls / N / D);
    }
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, y);
    be->ops->buffer_free(be, weight);
}

int main(int argc, char **argv)
{
    char message[200];
    kn_options options = {.isa = argc > 1 ? argv[1] : NULL,
                          .threads = argc > 2 ? atoi(argv[2]) : 1};
    double seconds = argc > 3 ? atof(argv[3]) * 1e-3 : 0.2;
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    if (be->threads == 1) clock_used = CLOCK_THREAD_CPUTIME_ID;
    printf("%s, %d threads\n", be->isa, be->threads);
    static const int batches[] = {512, 1, 8, 32};
    for (int b = 0; b < 4; b++) {
        bench_shape(be, KN_Q4_1, 1536, 576, batches[b], seconds);
        bench_shape(be, KN_Q4_1, 576, 1536, batches[b], seconds);
        bench_shape(be, KN_Q4_1, 576, 576, batches[b], seconds);
        bench_shape(be, KN_Q8_0, 49152, 576, batches[b] > 32 ? 64 : batches[b], seconds);
        bench_shape(be, KN_Q4_K, 1536, 512, batches[b], seconds);
        bench_shape(be, KN_Q5_K, 1536, 512, batches[b], seconds);
        bench_shape(be, KN_Q6_K, 1536, 512, batches[b], seconds);
        bench_shape(be, KN_F16, 576, 576, batches[b], seconds);
        bench_shape(be, KN_F32, 576, 576, batches[b], seconds);
    }
    bench_attention(be, 512, 512, seconds);
    bench_attention(be, 2048, 512, seconds);
    bench_attention(be, 512, 1, seconds);
    bench_attention(be, 4096, 1, seconds);
    bench_rows(be, seconds);
    be->ops->close(be);
    return 0;
}
