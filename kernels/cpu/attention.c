/* The paged key and value store of the CPU backend, and attention over it. */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- store ---------------------------------------------------------------------------------- */

static kn_kv kv_layout(const kn_kv_shape *shape)
{
    enum { SPLIT_TOKENS = 512 };
    kn_kv kv = {.shape = *shape};
    size_t heads = (size_t)shape->n_kv_heads * (size_t)shape->head_dim;
    kv.page_stride = (shape->page_tokens + 15) / 16 * 16;
    kv.split_tokens =
        (SPLIT_TOKENS + shape->page_tokens - 1) / shape->page_tokens * shape->page_tokens;
    static const size_t element_bytes[] = {[KN_KV_F32] = 4, [KN_KV_F16] = 2, [KN_KV_Q8] = 1};
    kv.element_bytes = element_bytes[shape->type];
    kv.k_bytes = heads * (size_t)kv.page_stride * kv.element_bytes;
    kv.scales_at =
        (kv.k_bytes + heads * (size_t)shape->page_tokens * kv.element_bytes + 63) / 64 * 64;
    kv.layer_bytes = kv.scales_at;
    if (shape->type == KN_KV_Q8)
        kv.layer_bytes += 2 * sizeof(float) * (size_t)shape->n_kv_heads * (size_t)kv.page_stride;
    kv.layer_bytes = (kv.layer_bytes + 63) / 64 * 64;
    kv.page_bytes = kv.layer_bytes * (size_t)shape->n_layers;
    return kv;
}

kn_kv *kn_cpu_kv_create(kn_backend *be, const kn_kv_shape *shape)
{
    (void)be;
    assert(shape->n_layers > 0 && shape->n_kv_heads > 0 && shape->head_dim > 0 &&
           shape->page_tokens > 0 && shape->n_pages > 0);
    kn_kv *kv = calloc(1, sizeof *kv);
    if (kv) {
        *kv = kv_layout(shape);
        if (kv->page_bytes <= SIZE_MAX / 2 / (size_t)shape->n_pages)
            kv->block = calloc(1, kv->page_bytes * (size_t)shape->n_pages + 64);
    }
    if (!kv || !kv->block) {
        kn_cpu_fail("out of memory: keys and values of %d pages of %d tokens", shape->n_pages,
                    shape->page_tokens);
        free(kv);
        return NULL;
    }
    kv->data = (uint8_t *)(((uintptr_t)kv->block + 63) / 64 * 64);
    return kv;
}

void kn_cpu_kv_free(kn_backend *be, kn_kv *kv)
{
    (void)be;
    if (!kv) return;
    free(kv->block);
    free(kv);
}

size_t kn_cpu_kv_page_bytes(kn_backend *be, const kn_kv_shape *shape)
{
    (void)be;
    return kv_layout(shape).page_bytes;
}

void kn_cpu_kv_clear(kn_backend *be, kn_kv *kv, int32_t page)
{
    (void)be;
    assert(page >= 0 && page < kv->shape.n_pages);
    memset(kv->data + (size_t)page * kv->page_bytes, 0, kv->page_bytes);
}

void kn_cpu_kv_discard(kn_backend *be, kn_kv *kv, int32_t page)
{
    (void)be;
    assert(page >= 0 && page < kv->shape.n_pages);
    kn_discard(kv->data + (size_t)page * kv->page_bytes, kv->page_bytes);
}

void kn_cpu_kv_copy(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens)
{
    (void)be;
    assert(src >= 0 && src < kv->shape.n_pages && dst >= 0 && dst < kv->shape.n_pages);
    assert(n_tokens <= kv->shape.page_tokens);
    if (src == dst || n_tokens <= 0) return;
    size_t token_bytes = (size_t)n_tokens * kv->element_bytes;
    size_t stride_bytes = (size_t)kv->page_stride * kv->element_bytes;
    for (int layer = 0; layer < kv->shape.n_layers; layer++)
        for (int head = 0; head < kv->shape.n_kv_heads; head++) {
            const uint8_t *k = kn_kv_k(kv, src, layer, head);
            uint8_t *k_to = kn_kv_k(kv, dst, layer, head);
            for (int d = 0; d < kv->shape.head_dim; d++)
                memcpy(k_to + (size_t)d * stride_bytes, k + (size_t)d * stride_bytes, token_bytes);
            memcpy(kn_kv_v(kv, dst, layer, head), kn_kv_v(kv, src, layer, head),
                   token_bytes * (size_t)kv->shape.head_dim);
            if (kv->shape.type != KN_KV_Q8) continue;
            size_t scale_bytes = (size_t)n_tokens * sizeof(float);
            memcpy(kn_kv_k_scales(kv, dst, layer, head), kn_kv_k_scales(kv, src, layer, head),
                   scale_bytes);
            memcpy(kn_kv_v_scales(kv, dst, layer, head), kn_kv_v_scales(kv, src, layer, head),
                   scale_bytes);
        }
}

/* --- writing -------------------------------------------------------------------------------- */

typedef struct {
    kn_cpu *cpu;
    kn_kv *kv;
    int layer;
    const float *k, *v;
    const kn_kv_row *rows;
    int n;
} write_job;

/* A token is a column of K: each dimension lies in a line of its own, and waiting for them one by
 * one would take longer than the writing. */
static void prefetch_keys(const kn_kv *kv, int32_t page, int layer, int slot)
{
    size_t step = (size_t)kv->page_stride * kv->element_bytes;
    const uint8_t *k = kn_kv_k(kv, page, layer, 0) + (size_t)slot * kv->element_bytes;
    for (int i = 0; i < kv->shape.n_kv_heads * kv->shape.head_dim; i++)
        __builtin_prefetch(k + (size_t)i * step, 1);
}

static void write_item(void *ctx, int item, int worker)
{
    (void)worker;
    const write_job *job = ctx;
    const kn_kv_shape *shape = &job->kv->shape;
    const kn_kv_row *row = &job->rows[item];
    int32_t page = row->pages[row->position / shape->page_tokens];
    assert(page >= 0 && page < shape->n_pages);
    prefetch_keys(job->kv, page, job->layer, row->position % shape->page_tokens);
    for (int head = 0; head < shape->n_kv_heads; head++) {
        int64_t at = ((int64_t)item * shape->n_kv_heads + head) * shape->head_dim;
        job->cpu->kernels->kv_write(job->kv, job->layer, head, page,
                                    row->position % shape->page_tokens, job->k + at, job->v + at);
    }
}

void kn_cpu_kv_write(kn_backend *be, kn_kv *kv, int layer, const float *k, const float *v,
                     const kn_kv_row *rows, int n)
{
    write_job job = {kn_cpu_of(be), kv, layer, k, v, rows, n};
    kn_cpu_run(job.cpu, n, 1.0 * n * kv->shape.n_kv_heads * kv->shape.head_dim, write_item, &job);
}

/* --- attention ------------------------------------------------------------------------------ */

/* Queries of one item, where a group of heads isn't more by itself. */
#define RUN_QUERIES 24

/* A run of neighbouring rows of one context: its K and V are loaded once for all of them. */
typedef struct {
    int first_row, n_rows;
    int32_t last_position;
} context_run;

typedef struct {
    kn_cpu *cpu;
    kn_kv *kv;
    int layer, n, n_heads, group;
    const float *q;
    const kn_kv_row *rows;
    float *y;
    const context_run *runs;
    int n_runs;
    int max_splits;  /* of any run */
    float *partials; /* [n, n_heads, max_splits, partial], or NULL: items go over all splits */
    size_t partial_floats;
} attention_job;

static int run_splits(const attention_job *job, const context_run *run)
{
    return run->last_position / job->kv->split_tokens + 1;
}

/* state <- state joined with the next split's partial result. */
static void merge_partial(float *state, const float *next, int head_dim)
{
    if (next[0] == -INFINITY && next[1] == 0) /* nothing read there */
        return;
    float max = state[0] > next[0] ? state[0] : next[0];
    float old_weight = expf(state[0] - max), new_weight = expf(next[0] - max);
    state[0] = max;
    for (int i = 1; i < head_dim + 2; i++)
        state[i] = state[i] * old_weight + next[i] * new_weight;
}

static void write_result(const attention_job *job, const float *state, int row, int head)
{
    int head_dim = job->kv->shape.head_dim;
    float *y = job->y + ((int64_t)row * job->n_heads + head) * head_dim;
    for (int i = 0; i < head_dim; i++)
        y[i] = state[2 + i] / state[1];
}

/* partials[j] <- split of the run's query j (row by row, the group's heads inside). */
static void attend_split(const attention_job *job, const context_run *run, int kv_head, int split,
                         float *const *partials, float *scratch)
{
    const kn_kv *kv = job->kv;
    const float *q[KN_ATTEND_QUERIES];
    int32_t limit[KN_ATTEND_QUERIES];
    int n_queries = run->n_rows * job->group;
    for (int j = 0; j < n_queries; j++) {
        int64_t row = run->first_row + j / job->group;
        int head = kv_head * job->group + j % job->group;
        q[j] = job->q + (row * job->n_heads + head) * kv->shape.head_dim;
        limit[j] = job->rows[row].position;
    }
    kn_attend a = {.kv = kv,
                   .layer = job->layer,
                   .kv_head = kv_head,
                   .pages = job->rows[run->first_row].pages,
                   .first = split * kv->split_tokens,
                   .end = (split + 1) * kv->split_tokens,
                   .n_queries = n_queries,
                   .q = q,
                   .limit = limit,
                   .partial = partials,
                   .scratch = scratch};
    if (a.end > run->last_position + 1) a.end = run->last_position + 1;
    job->cpu->kernels->attend(&a);
}

/* Scratch of a worker: attend's own, then 2 sets of partial results. */
static float *attention_scratch(const attention_job *job, int worker, float **state, float **next)
{
    size_t own = (kn_attend_scratch_floats(job->kv) + 15) / 16 * 16;
    size_t set = KN_ATTEND_QUERIES * job->partial_floats;
    float *p = kn_scratch_get(&job->cpu->worker[worker], (own + 2 * set) * sizeof *p);
    for (int j = 0; j < KN_ATTEND_QUERIES; j++) {
        state[j] = p + own + (size_t)j * job->partial_floats;
        next[j] = state[j] + set;
    }
    return p;
}

/* One run and KV head, over all its splits. */
static void whole_item(void *ctx, int item, int worker)
{
    const attention_job *job = ctx;
    int kv_heads = job->kv->shape.n_kv_heads, kv_head = item % kv_heads;
    const context_run *run = &job->runs[item / kv_heads];
    float *state[KN_ATTEND_QUERIES], *next[KN_ATTEND_QUERIES];
    float *scratch = attention_scratch(job, worker, state, next);
    int n_queries = run->n_rows * job->group;
    attend_split(job, run, kv_head, 0, state, scratch);
    for (int s = 1; s < run_splits(job, run); s++) {
        attend_split(job, run, kv_head, s, next, scratch);
        for (int j = 0; j < n_queries; j++)
            merge_partial(state[j], next[j], job->kv->shape.head_dim);
    }
    for (int j = 0; j < n_queries; j++)
        write_result(job, state[j], run->first_row + j / job->group,
                     kv_head * job->group + j % job->group);
}

static float *stored_partial(const attention_job *job, int row, int head, int split)
{
    size_t at = ((size_t)row * job->n_heads + head) * job->max_splits + split;
    return job->partials + at * job->partial_floats;
}

/* One run, KV head and split. */
static void split_item(void *ctx, int item, int worker)
{
    const attention_job *job = ctx;
    int split = item % job->max_splits, rest = item / job->max_splits;
    int kv_heads = job->kv->shape.n_kv_heads, kv_head = rest % kv_heads;
    const context_run *run = &job->runs[rest / kv_heads];
    if (split >= run_splits(job, run)) return;
    float *state[KN_ATTEND_QUERIES], *next[KN_ATTEND_QUERIES];
    float *scratch = attention_scratch(job, worker, state, next);
    for (int j = 0; j < run->n_rows * job->group; j++)
        state[j] = stored_partial(job, run->first_row + j / job->group,
                                  kv_head * job->group + j % job->group, split);
    attend_split(job, run, kv_head, split, state, scratch);
}

static void join_item(void *ctx, int item, int worker)
{
    (void)worker;
    const attention_job *job = ctx;
    const context_run *run = &job->runs[item];
    for (int j = 0; j < run->n_rows * job->n_heads; j++) {
        int row = run->first_row + j / job->n_heads, head = j % job->n_heads;
        float *state = stored_partial(job, row, head, 0);
        for (int s = 1; s < run_splits(job, run); s++)
            merge_partial(state, stored_partial(job, row, head, s), job->kv->shape.head_dim);
        write_result(job, state, row, head);
    }
}

/* Cuts the rows into runs of at most max_rows rows that share a context. */
static int find_runs(const kn_kv_row *rows, int n, int max_rows, context_run *runs)
{
    int n_runs = 0;
    for (int i = 0; i < n; i++) {
        context_run *run = n_runs ? &runs[n_runs - 1] : NULL;
        if (!run || run->n_rows == max_rows || rows[i].pages != rows[run->first_row].pages) {
            runs[n_runs++] = (context_run){i, 1, rows[i].position};
            continue;
        }
        run->n_rows++;
        if (rows[i].position > run->last_position) run->last_position = rows[i].position;
    }
    return n_runs;
}

void kn_cpu_attention(kn_backend *be, kn_kv *kv, int layer, const float *q, const kn_kv_row *rows,
                      int n, int n_heads, float *y)
{
    if (n <= 0) return;
    kn_cpu *cpu = kn_cpu_of(be);
    const kn_kv_shape *shape = &kv->shape;
    int group = n_heads / shape->n_kv_heads;
    assert(group > 0 && group <= KN_ATTEND_QUERIES && n_heads % shape->n_kv_heads == 0);
    size_t run_bytes = ((size_t)n * sizeof(context_run) + 63) / 64 * 64;
    attention_job job = {.cpu = cpu,
                         .kv = kv,
                         .layer = layer,
                         .n = n,
                         .n_heads = n_heads,
                         .group = group,
                         .q = q,
                         .rows = rows,
                         .y = y,
                         .partial_floats = (kn_partial_floats(shape->head_dim) + 15) / 16 * 16};
    context_run *runs = kn_scratch_get(&cpu->runs, run_bytes);
    job.runs = runs;
    job.n_runs = find_runs(rows, n, RUN_QUERIES > group ? RUN_QUERIES / group : 1, runs);
    double work = 0;
    uint64_t scale_bytes = shape->type == KN_KV_Q8 ? sizeof(float) : 0;
    uint64_t token_bytes = 2 * (uint64_t)shape->n_kv_heads *
                           ((uint64_t)shape->head_dim * kv->element_bytes + scale_bytes);
    for (int r = 0; r < job.n_runs; r++) {
        int splits = run_splits(&job, &runs[r]);
        uint64_t tokens = (uint64_t)runs[r].last_position + 1;
        job.max_splits = splits > job.max_splits ? splits : job.max_splits;
        cpu->counters.kv_bytes += tokens * token_bytes;
        work += 0.1 * (double)tokens * runs[r].n_rows * n_heads * shape->head_dim;
    }
    int n_items = job.n_runs * shape->n_kv_heads;
    if (job.max_splits == 1 || n_items >= 4 * cpu->base.threads) {
        kn_cpu_run(cpu, n_items, work, whole_item, &job);
        return;
    }
    job.partials = kn_scratch_get(&cpu->partials, (size_t)n * n_heads * job.max_splits *
                                                      job.partial_floats * sizeof(float));
    kn_cpu_run(cpu, n_items * job.max_splits, work, split_item, &job);
    kn_cpu_run(cpu, job.n_runs, 1.0 * n * n_heads * job.max_splits * shape->head_dim, join_item,
               &job);
}
