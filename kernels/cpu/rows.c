/* Operations of the CPU backend that treat each row by itself. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Rows of one item, such that an item is worth claiming. */
static int rows_per_item(int d)
{
    int rows = 4096 / (d > 0 ? d : 1);
    return rows < 1 ? 1 : rows;
}

typedef struct {
    kn_cpu *cpu;
    int n, d, rows_per_item;
    const float *x, *x2, *weight;
    float *y;
    float eps;
    int n_heads;
    const double *inv_freq;
    const int32_t *positions;
    float *cosines, *sines;
} row_job;

static void run_rows(row_job *job, double ns_per_element, kn_pool_fn *fn)
{
    job->rows_per_item = rows_per_item(job->d);
    int n_items = (job->n + job->rows_per_item - 1) / job->rows_per_item;
    kn_cpu_run(job->cpu, n_items, ns_per_element * job->n * job->d, fn, job);
}

static int end_row(const row_job *job, int item)
{
    int end = (item + 1) * job->rows_per_item;
    return end < job->n ? end : job->n;
}

static void rmsnorm_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *job = ctx;
    for (int i = item * job->rows_per_item; i < end_row(job, item); i++)
        job->cpu->kernels->rmsnorm(job->x + (int64_t)i * job->d, job->weight, job->eps, job->d,
                                   job->y + (int64_t)i * job->d);
}

void kn_cpu_rmsnorm(kn_backend *be, const float *x, const float *weight, float eps, int n, int d,
                    float *y)
{
    row_job job = {
        .cpu = kn_cpu_of(be), .n = n, .d = d, .x = x, .weight = weight, .eps = eps, .y = y};
    run_rows(&job, 0.3, rmsnorm_item);
}

static void swiglu_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *job = ctx;
    int64_t first = (int64_t)item * job->rows_per_item * job->d;
    int64_t count = (int64_t)end_row(job, item) * job->d - first;
    job->cpu->kernels->swiglu(job->x + first, job->x2 + first, count, job->y + first);
}

void kn_cpu_swiglu(kn_backend *be, const float *gate, const float *up, int n, int d, float *y)
{
    row_job job = {.cpu = kn_cpu_of(be), .n = n, .d = d, .x = gate, .x2 = up, .y = y};
    run_rows(&job, 1.0, swiglu_item);
}

static void add_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *job = ctx;
    int64_t first = (int64_t)item * job->rows_per_item * job->d;
    int64_t count = (int64_t)end_row(job, item) * job->d - first;
    job->cpu->kernels->add(job->x + first, count, job->y + first);
}

void kn_cpu_add(kn_backend *be, const float *x, int n, int d, float *y)
{
    row_job job = {.cpu = kn_cpu_of(be), .n = n, .d = d, .x = x, .y = y};
    run_rows(&job, 0.15, add_item);
}

void kn_cpu_gather(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y)
{
    (void)be;
    for (int i = 0; i < n; i++)
        memcpy(y + (int64_t)i * d, x + (int64_t)rows[i] * d, (size_t)d * sizeof *y);
}

/* --- rotary embedding ----------------------------------------------------------------------- */

static void rope_table_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *job = ctx;
    for (int i = item * job->rows_per_item; i < end_row(job, item); i++)
        for (int j = 0; j < job->d; j++) {
            double angle = job->positions[i] * job->inv_freq[j];
            job->cosines[(int64_t)i * job->d + j] = (float)cos(angle);
            job->sines[(int64_t)i * job->d + j] = (float)sin(angle);
        }
}

static void rope_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *job = ctx;
    int half = job->d / job->n_heads / 2;
    for (int i = item * job->rows_per_item; i < end_row(job, item); i++)
        job->cpu->kernels->rope(job->y + (int64_t)i * job->d, job->n_heads, 2 * half,
                                job->cosines + (int64_t)i * half, job->sines + (int64_t)i * half);
}

/* Cosines and sines [n, half] of the rows' angles, kept for the next call with the same positions
 * and frequencies: a step rotates q and k of every layer by the same angles. */
static void rope_tables(kn_cpu *cpu, const double *inv_freq, int half, const int32_t *positions,
                        int n, float **cosines, float **sines)
{
    size_t freq_bytes = (size_t)half * sizeof *inv_freq;
    size_t position_bytes = (size_t)n * sizeof *positions;
    bool known = cpu->rope_half == half && cpu->rope_rows >= n &&
                 memcmp(cpu->rope_key.data, inv_freq, freq_bytes) == 0 &&
                 memcmp((char *)cpu->rope_key.data + freq_bytes, positions, position_bytes) == 0;
    if (!known) {
        char *key = kn_scratch_get(&cpu->rope_key, freq_bytes + position_bytes);
        memcpy(key, inv_freq, freq_bytes);
        memcpy(key + freq_bytes, positions, position_bytes);
        cpu->rope_rows = n;
        cpu->rope_half = half;
    }
    size_t floats = (size_t)cpu->rope_rows * (size_t)half;
    float *table = kn_scratch_get(&cpu->rope, 2 * floats * sizeof *table);
    *cosines = table;
    *sines = table + floats;
    if (known) return;
    row_job job = {.cpu = cpu,
                   .n = n,
                   .d = half,
                   .inv_freq = inv_freq,
                   .positions = positions,
                   .cosines = *cosines,
                   .sines = *sines};
    run_rows(&job, 30, rope_table_item);
}

void kn_cpu_rope(kn_backend *be, const kn_rope *rope, float *x, int n, int n_heads,
                 const int32_t *positions)
{
    if (n <= 0) return;
    row_job job = {
        .cpu = kn_cpu_of(be), .n = n, .d = n_heads * rope->head_dim, .y = x, .n_heads = n_heads};
    rope_tables(job.cpu, rope->inv_freq, rope->head_dim / 2, positions, n, &job.cosines,
                &job.sines);
    run_rows(&job, 0.3, rope_item);
}
