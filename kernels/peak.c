#include "kernels/peak.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/peak_cpu.h"
#include "kernels/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRIAL_SECONDS 0.003
#define PIECE_BYTES   ((size_t)1 << 20)
#define LEAST_BUFFER  ((size_t)256 << 20)
#define MOST_BUFFER   ((size_t)1 << 30)

static const kn_peak_loops *const loops_table[] = {
    &kn_peak_ref,
#if defined(__x86_64__)
    &kn_peak_avx2,
    &kn_peak_avx512,
    &kn_peak_amx,
#endif
};

static const kn_peak_loops *find_loops(const char *isa)
{
    const kn_cpu_kernels *kernels = kn_cpu_kernels_find(isa);
    for (size_t i = 0; kernels && i < sizeof loops_table / sizeof *loops_table; i++)
        if (strcmp(loops_table[i]->isa, kernels->isa) == 0) return loops_table[i];
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct {
    const kn_peak_loops *loops;
    double (*compute)(long rounds);
    long rounds;
    uint8_t *data; /* pieces of PIECE_BYTES */
    int n_items;
    double per_item; /* operations or bytes of an item */
    _Atomic uint64_t sum;
} peak_job;

static void compute_item(void *ctx, int item, int worker)
{
    peak_job *job = ctx;
    (void)item;
    (void)worker;
    job->compute(job->rounds);
}

static void touch_item(void *ctx, int item, int worker)
{
    const peak_job *job = ctx;
    (void)worker;
    memset(job->data + (size_t)item * PIECE_BYTES, item + 1, PIECE_BYTES);
}

static void read_item(void *ctx, int item, int worker)
{
    peak_job *job = ctx;
    (void)worker;
    job->sum ^= job->loops->read(job->data + (size_t)item * PIECE_BYTES, PIECE_BYTES);
}

/* The best rate of the trials that fit into seconds; at least two. */
static double best_rate(kn_pool *pool, peak_job *job, kn_pool_fn *fn, double seconds)
{
    double best = 0, start = now();
    for (int trial = 0; trial < 2 || now() - start < seconds; trial++) {
        double begin = now();
        kn_pool_run(pool, job->n_items, fn, job);
        double rate = job->per_item * job->n_items / (now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

static double measure_compute(kn_pool *pool, double (*compute)(long), double seconds)
{
    peak_job job = {.compute = compute, .rounds = 256, .n_items = 4 * kn_pool_threads(pool)};
    double begin, took;
    do { /* a trial is long beside the cost of starting it */
        job.rounds *= 2;
        begin = now();
        job.per_item = compute(job.rounds);
        took = now() - begin;
    } while (took < TRIAL_SECONDS);
    return best_rate(pool, &job, compute_item, seconds);
}

static size_t buffer_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? 2 * (size_t)cache : 0;
    bytes = bytes < LEAST_BUFFER ? LEAST_BUFFER : bytes;
    return bytes < MOST_BUFFER ? bytes : MOST_BUFFER;
}

static bool measure_read(kn_pool *pool, const kn_peak_loops *loops, size_t bytes, double seconds,
                         double *out)
{
    peak_job job = {.loops = loops, .n_items = (int)(bytes / PIECE_BYTES), .per_item = PIECE_BYTES};
    if (job.n_items < 1) job.n_items = 1;
    job.data = aligned_alloc(64, (size_t)job.n_items * PIECE_BYTES);
    if (!job.data) return false;
    kn_pool_run(pool, job.n_items, touch_item, &job);
    *out = best_rate(pool, &job, read_item, seconds);
    free(job.data);
    return true;
}

bool kn_peak_measure(const kn_peak_options *options, kn_peak *out)
{
    const kn_peak_loops *loops = find_loops(options->isa);
    double seconds = options->seconds > 0 ? options->seconds : 0.3;
    kn_pool *pool =
        loops ? kn_pool_create(options->threads > 0 ? options->threads : kn_usable_cores()) : NULL;
    if (!pool) return false;
    out->int_ops = measure_compute(pool, loops->int_ops, seconds);
    out->float_ops = measure_compute(pool, loops->float_ops, seconds);
    bool ok = measure_read(pool, loops, options->bytes ? options->bytes : buffer_bytes(), seconds,
                           &out->read_bytes);
    kn_pool_free(pool);
    return ok;
}
