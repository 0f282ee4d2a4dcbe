/* LoRA and DiReFT on the CPU backend. */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* dst[cols, rows] = src[rows, cols] transposed. */
static void transpose(const uint8_t *src, int64_t rows, int64_t cols, size_t element, uint8_t *dst)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(dst + (size_t)(c * rows + r) * element, src + (size_t)(r * cols + c) * element,
                   element);
}

/* See bf16_pairs. */
static void pair_rows(uint16_t *rows, int64_t n_rows, int64_t cols)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c + 16 <= cols; c += 16) {
            uint16_t *p = rows + r * cols + c, plain[16];
            memcpy(plain, p, sizeof plain);
            for (int i = 0; i < 8; i++) {
                p[2 * i] = plain[i];
                p[2 * i + 1] = plain[i + 8];
            }
        }
}

kn_adapter_weight *kn_cpu_adapter_create(kn_backend *be, const kn_adapter_matrices *m)
{
    assert(m->rank > 0 && m->in > 0 && m->out > 0 && !kn_type_get(m->type)->quantized);
    assert(!m->direft || m->in == m->out);
    size_t element = kn_row_bytes(m->type, 1), rank = (size_t)m->rank;
    size_t a_bytes = rank * (size_t)m->in * element, b_bytes = rank * (size_t)m->out * element;
    size_t bias_bytes = m->bias ? rank * sizeof(float) : 0;
    kn_adapter_weight *w = calloc(1, sizeof *w);
    if (w) {
        *w = (kn_adapter_weight){.direft = m->direft,
                                 .rank = m->rank,
                                 .in = m->in,
                                 .out = m->out,
                                 .type = m->type,
                                 .scale = m->scale,
                                 .bytes = a_bytes + b_bytes + bias_bytes,
                                 .a = kn_alloc(a_bytes),
                                 .b = kn_alloc(b_bytes),
                                 .bias = m->bias ? kn_alloc(bias_bytes) : NULL};
    }
    if (!w || !w->a || !w->b || (m->bias && !w->bias)) {
        snprintf(be->message, sizeof be->message, "out of memory: an adapter of rank %d", m->rank);
        kn_cpu_adapter_free(be, w);
        return NULL;
    }
    memcpy(w->a, m->a, a_bytes);
    if (m->direft)
        memcpy(w->b, m->b, b_bytes);
    else
        transpose(m->b, m->out, m->rank, element, w->b);
    if (m->type == KN_BF16 && kn_cpu_of(be)->kernels->bf16_pairs) {
        pair_rows(w->a, m->rank, m->in);
        pair_rows(w->b, m->rank, m->out);
    }
    if (m->bias) memcpy(w->bias, m->bias, bias_bytes);
    return w;
}

/* The empty statement reads the memory, for all the compiler knows, so that the wiping isn't
 * dropped: an adapter is a person's. */
static void wipe(void *p, size_t bytes)
{
    if (!p) return;
    memset(p, 0, bytes);
    __asm__ volatile("" : : "r"(p) : "memory");
}

void kn_cpu_adapter_free(kn_backend *be, kn_adapter_weight *w)
{
    (void)be;
    if (!w) return;
    size_t element = kn_row_bytes(w->type, 1), rank = (size_t)w->rank;
    wipe(w->a, rank * (size_t)w->in * element);
    wipe(w->b, rank * (size_t)w->out * element);
    wipe(w->bias, rank * sizeof(float));
    free(w->a);
    free(w->b);
    free(w->bias);
    free(w);
}

size_t kn_cpu_adapter_bytes(const kn_adapter_weight *w)
{
    return w->bytes;
}

typedef struct {
    kn_cpu *cpu;
    const kn_segment *segments;
    int n_segments, rows_per_item;
    int32_t *first_item; /* [n_segments] */
    const float *x;
    float *y;
    int64_t ld_y;
} adapt_job;

/* The last segment that begins at this item or before; those without rows have no items. */
static int segment_of(const adapt_job *job, int item)
{
    int low = 0, high = job->n_segments - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (job->first_item[middle] <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Some rows of one segment. */
static void adapt_item(void *ctx, int item, int worker)
{
    const adapt_job *job = ctx;
    int segment = segment_of(job, item);
    item -= job->first_item[segment];
    const kn_segment *s = &job->segments[segment];
    int first = item * job->rows_per_item, n = s->n_rows - first;
    if (n > job->rows_per_item) n = job->rows_per_item;
    float *scratch =
        kn_scratch_get(&job->cpu->worker[worker], (size_t)n * (size_t)s->w->rank * sizeof *scratch);
    job->cpu->kernels->adapt(s->w, s->row_index + first, n, job->x, job->y, job->ld_y, scratch);
}

static void adapt(kn_cpu *cpu, const kn_segment *segments, int n_segments, const float *x, float *y,
                  int64_t ld_y)
{
    adapt_job job = {
        .cpu = cpu, .segments = segments, .n_segments = n_segments, .x = x, .y = y, .ld_y = ld_y};
    int64_t total_rows = 0;
    double work = 0;
    for (int s = 0; s < n_segments; s++) {
        const kn_adapter_weight *w = segments[s].w;
        if (segments[s].n_rows <= 0) continue;
        total_rows += segments[s].n_rows;
        cpu->counters.adapter_bytes += w->bytes;
        cpu->counters.adapter_mac +=
            (uint64_t)w->rank * (uint64_t)(w->in + w->out) * (uint64_t)segments[s].n_rows;
        work += 0.1 * (double)w->rank * (double)(w->in + w->out) * segments[s].n_rows;
    }
    int64_t rows = total_rows / (4 * cpu->base.threads) + 1;
    job.rows_per_item = (int)(rows > 16 ? 16 : rows);
    job.first_item = kn_scratch_get(&cpu->segments, ((size_t)n_segments) * sizeof(int32_t));
    int n_items = 0;
    for (int s = 0; s < n_segments; s++) {
        job.first_item[s] = n_items;
        n_items += (segments[s].n_rows + job.rows_per_item - 1) / job.rows_per_item;
    }
    kn_cpu_run(cpu, n_items, work, adapt_item, &job);
}

void kn_cpu_lora(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                 float *y, int64_t ld_y)
{
    adapt(kn_cpu_of(be), segments, n_segments, x, y, ld_y);
}

void kn_cpu_direft(kn_backend *be, const kn_segment *segments, int n_segments, float *h)
{
    if (n_segments > 0) adapt(kn_cpu_of(be), segments, n_segments, h, h, segments[0].w->out);
}
