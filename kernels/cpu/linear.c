/* Weights, embedding and linear operations of the CPU backend. */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- weights -------------------------------------------------------------------------------- */

#define SMALL_PAGE  ((size_t)64 << 10) /* a multiple of the system's */
#define HUGE_PAGE   ((size_t)2 << 20)
#define CHUNK_BYTES ((size_t)16 << 20)

void kn_chunk_drop(kn_chunk *chunk)
{
    if (!chunk || --chunk->users > 0) return;
    munmap(chunk->memory, chunk->size);
    free(chunk);
}

/* size zeroed bytes at a multiple of HUGE_PAGE, or NULL; huge pages as far as whole ones are
 * filled. The threads that pack touch the pages first. */
static uint8_t *map_pages(size_t size)
{
    uint8_t *p =
        mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE, after = HUGE_PAGE - before;
    if (before) munmap(p, before);
    if (after) munmap(p + before + size, after);
#ifdef MADV_HUGEPAGE
    size_t whole = size / HUGE_PAGE * HUGE_PAGE;
    if (whole) madvise(p + before, whole, MADV_HUGEPAGE); /* a wish: failure changes nothing */
#endif
    return p + before;
}

kn_chunk *kn_chunk_create(size_t bytes)
{
    kn_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk && bytes <= SIZE_MAX / 2) {
        size_t huge = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        chunk->size = (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
        if (huge - bytes <= bytes / 8) chunk->size = huge;
        chunk->memory = map_pages(chunk->size);
        chunk->users = 1;
    }
    if (chunk && chunk->memory) return chunk;
    free(chunk);
    return NULL;
}

/* Zeroed, 64-byte aligned memory for w's tiles; NULL when out of it. Small matrices lie one after
 * another, so that reading a model touches few pages. */
static uint8_t *place_weight(kn_cpu *cpu, kn_weight *w, size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded >= CHUNK_BYTES) {
        w->chunk = kn_chunk_create((rounded + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    } else {
        if (!cpu->chunk || cpu->chunk->size - cpu->chunk->used < rounded) {
            kn_chunk_drop(cpu->chunk);
            cpu->chunk = kn_chunk_create(CHUNK_BYTES);
        }
        w->chunk = cpu->chunk;
        if (w->chunk) w->chunk->users++;
    }
    if (!w->chunk) return NULL;
    uint8_t *data = w->chunk->memory + w->chunk->used;
    w->chunk->used += rounded;
    return data;
}

typedef struct {
    const kn_cpu_kernels *kernels;
    const kn_matrix *matrix;
    kn_weight *w;
    int64_t tiles_per_item;
} pack_job;

static void pack_item(void *ctx, int item, int worker)
{
    (void)worker;
    const pack_job *job = ctx;
    int64_t end = (item + 1) * job->tiles_per_item;
    if (end > job->w->n_tiles) end = job->w->n_tiles;
    for (int64_t t = item * job->tiles_per_item; t < end; t++)
        job->kernels->pack_tile(job->matrix, t * job->kernels->tile_rows,
                                job->w->data + (size_t)t * job->w->tile_bytes);
}

kn_weight *kn_cpu_weight_create(kn_backend *be, const kn_matrix *m)
{
    kn_cpu *cpu = kn_cpu_of(be);
    assert(m->rows > 0 && m->cols > 0 && m->cols % kn_type_get(m->type)->block == 0);
    assert(m->order == KN_ROWS_PLAIN || (m->head_rows % 2 == 0 && m->rows % m->head_rows == 0));
    int tile_rows = cpu->kernels->tile_rows;
    kn_weight *w = calloc(1, sizeof *w);
    if (w) {
        *w = (kn_weight){m->type,
                         m->rows,
                         m->cols,
                         (m->rows + tile_rows - 1) / tile_rows,
                         cpu->kernels->tile_bytes(m->type, m->cols),
                         NULL,
                         NULL};
        w->data = place_weight(cpu, w, (size_t)w->n_tiles * w->tile_bytes);
    }
    if (!w || !w->data) {
        kn_cpu_fail("out of memory: a matrix of %lld x %lld of type %s", (long long)m->rows,
                    (long long)m->cols, kn_type_get(m->type)->name);
        free(w);
        return NULL;
    }
    pack_job job = {cpu->kernels, m, w, 1 + (1 << 14) / (m->cols * tile_rows)};
    int64_t n_items = (w->n_tiles + job.tiles_per_item - 1) / job.tiles_per_item;
    kn_cpu_run(cpu, (int)n_items, (double)(m->rows * m->cols), pack_item, &job);
    return w;
}

void kn_cpu_weight_free(kn_backend *be, kn_weight *w)
{
    (void)be;
    if (!w) return;
    kn_chunk_drop(w->chunk);
    free(w);
}

size_t kn_cpu_weight_bytes(const kn_weight *w)
{
    return (size_t)w->n_tiles * w->tile_bytes;
}

void kn_cpu_weight_rows(kn_backend *be, const kn_weight *w, int64_t first, int64_t count,
                        float *dst)
{
    for (int64_t i = 0; i < count; i++)
        kn_cpu_of(be)->kernels->unpack_row(w, first + i, dst + i * w->cols);
}

void kn_cpu_embed(kn_backend *be, const kn_weight *w, const int32_t *ids, int n, float *y)
{
    for (int i = 0; i < n; i++) {
        assert(ids[i] >= 0 && ids[i] < w->rows);
        kn_cpu_of(be)->kernels->unpack_row(w, ids[i], y + (int64_t)i * w->cols);
    }
}

/* --- linear --------------------------------------------------------------------------------- */

/* An item is a run of tiles of one output times a run of input rows. */
typedef struct {
    kn_cpu *cpu;
    const kn_fused_input *in; /* NULL: plain input */
    bool quantize;
    const kn_linear *outs;
    int n_outs, n;
    int prepare_rows; /* of a preparing item */
    const kn_activations *a;
    int64_t tiles_per_item;
    int rows_per_item, n_row_items, n_tile_items;
} linear_job;

static int64_t tile_items(const linear_job *job, int out)
{
    return (job->outs[out].w->n_tiles + job->tiles_per_item - 1) / job->tiles_per_item;
}

/* Some rows' input: norm or SwiGLU, then their quantized form while they are in the first cache. */
static void prepare_item(void *ctx, int item, int worker)
{
    (void)worker;
    const linear_job *job = ctx;
    const kn_cpu_kernels *kernels = job->cpu->kernels;
    const kn_fused_input *in = job->in;
    int64_t cols = job->a->cols;
    int end = (item + 1) * job->prepare_rows;
    for (int i = item * job->prepare_rows; i < end && i < job->n; i++) {
        int64_t at = i * cols;
        if (in && in->fuse == KN_FUSE_RMSNORM)
            kernels->rmsnorm(in->x + at, in->x2, in->eps, (int)cols, in->y + at);
        else if (in)
            kernels->swiglu(in->x + at, in->x2 + at, cols, in->y + at);
        if (job->quantize) kernels->quantize_row(job->a, i);
    }
}

static void prepare(linear_job *job)
{
    if (!job->in && !job->quantize) return;
    double cols = (double)job->a->cols, ns = job->quantize ? 0.15 : 0;
    if (job->in) ns += job->in->fuse == KN_FUSE_RMSNORM ? 0.3 : 1.0;
    job->prepare_rows = 1 + (int)(2048 / job->a->cols);
    int n_items = (job->n + job->prepare_rows - 1) / job->prepare_rows;
    kn_cpu_run(job->cpu, n_items, ns * cols * job->n, prepare_item, job);
}

static void linear_item(void *ctx, int item, int worker)
{
    const linear_job *job = ctx;
    /* Tiles vary fastest: a thread stays with its rows from one operation to the next. */
    int row_item = item / job->n_tile_items, out = 0;
    int64_t tile_item = item % job->n_tile_items;
    while (tile_item >= tile_items(job, out))
        tile_item -= tile_items(job, out++);
    const kn_linear *o = &job->outs[out];
    int64_t first_tile = tile_item * job->tiles_per_item;
    int64_t end_tile = first_tile + job->tiles_per_item;
    if (end_tile > o->w->n_tiles) end_tile = o->w->n_tiles;
    int first = row_item * job->rows_per_item, end = first + job->rows_per_item;
    if (end > job->n) end = job->n;
    void *scratch =
        kn_scratch_get(&job->cpu->worker[worker], kn_linear_scratch_bytes(o->w->cols, end - first));
    job->cpu->kernels->linear(o, first_tile, end_tile, job->a, first, end, scratch);
}

/* Lays the quantized form of n rows out in the backend's scratch memory. */
static void place_activations(kn_cpu *cpu, kn_activations *a, int n)
{
    size_t rows = (size_t)n, blocks = rows * (size_t)(a->cols / KN_ACT_BLOCK);
    size_t block_bytes = (blocks * sizeof *a->blocks + 63) / 64 * 64;
    uint8_t *p = kn_scratch_get(&cpu->activations, block_bytes + rows * (size_t)a->cols);
    a->blocks = (kn_act_block *)(void *)p;
    a->q = (int8_t *)(p + block_bytes);
}

static void choose_items(linear_job *job, int64_t total_tiles)
{
    int threads = job->cpu->base.threads;
    job->rows_per_item = job->n;
    if (job->n > 96) /* enough for a tile's unpacking, little enough for the second cache */
        job->rows_per_item = 64;
    job->n_row_items = (job->n + job->rows_per_item - 1) / job->rows_per_item;
    /* Several items a thread, so that a thread that loses its core costs little. */
    int64_t wanted = (int64_t)threads * 6 / job->n_row_items;
    job->tiles_per_item = total_tiles / (wanted < 1 ? 1 : wanted);
    int64_t most = job->n_row_items > 1 ? 8 * 16 / job->cpu->kernels->tile_rows : total_tiles;
    if (job->tiles_per_item > most) job->tiles_per_item = most;
    if (job->tiles_per_item < 1) job->tiles_per_item = 1;
}

static void run_linear(kn_cpu *cpu, const kn_fused_input *in, const float *x, int n,
                       const kn_linear *outs, int n_outs)
{
    if (n <= 0 || n_outs <= 0) return;
    int64_t cols = outs[0].w->cols, total_tiles = 0, total_rows = 0;
    kn_activations a = {.cols = cols, .x = x};
    linear_job job = {.cpu = cpu, .in = in, .outs = outs, .n_outs = n_outs, .n = n, .a = &a};
    for (int o = 0; o < n_outs; o++) {
        const kn_weight *w = outs[o].w;
        assert(w->cols == cols);
        job.quantize =
            job.quantize || (kn_type_get(w->type)->quantized && cpu->kernels->quantize_row);
        total_tiles += w->n_tiles;
        total_rows += w->rows;
        cpu->counters.weight_bytes += kn_cpu_weight_bytes(w);
    }
    cpu->counters.mac += (uint64_t)(total_rows * cols) * (uint64_t)n;
    if (job.quantize) place_activations(cpu, &a, n);
    prepare(&job);
    choose_items(&job, total_tiles);
    for (int o = 0; o < n_outs; o++)
        job.n_tile_items += (int)tile_items(&job, o);
    kn_cpu_run(cpu, job.n_tile_items * job.n_row_items,
               (double)(total_rows * cols) * (0.04 + 0.015 * n), linear_item, &job);
}

void kn_cpu_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs)
{
    run_linear(kn_cpu_of(be), NULL, x, n, outs, n_outs);
}

void kn_cpu_linear_fused(kn_backend *be, const kn_fused_input *in, int n, const kn_linear *outs,
                         int n_outs)
{
    run_linear(kn_cpu_of(be), in, in->y, n, outs, n_outs);
}
