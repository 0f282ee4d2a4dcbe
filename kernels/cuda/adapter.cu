/* Adapters: an arena that holds them on the device, their upload on a stream of its own, and LoRA
 * and DiReFT over many segments of mixed ranks and types in two launches: t = A x + bias, then
 * y += scale * t B.
 *
 * The arena takes memory in chunks and hands out pieces, first fit; giving one back wipes it. Both
 * happen on the upload stream: a wipe or an upload into a freed piece waits for the work that was
 * queued before it was freed, and the first use of an adapter waits for its upload. Computing goes
 * on meanwhile. Which adapters are there, and that they stay within the engine's budget, is decided
 * by the engine's cache (src/engine/adapter_cache.h). */
#include "kernels/cuda/device.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHUNK_BYTES   ((size_t)32 << 20)
#define STAGING_BYTES ((size_t)4 << 20)
#define STAGINGS      2

/* --- arena ------------------------------------------------------------------------------------ */

/* A piece of a chunk; pieces of a chunk follow each other in the list. */
typedef struct piece {
    uint8_t *at;
    size_t bytes;
    bool used, first; /* first: of its chunk */
    struct piece *next;
} piece;

typedef struct {
    uint8_t *pinned;
    size_t used;      /* bytes of a person's adapter that are still there */
    cudaEvent_t sent; /* its last content has left */
} staging;

struct kn_cuda_arena {
    piece *pieces;
    cudaStream_t stream;
    cudaEvent_t computed; /* on the compute stream: what was queued when a piece was freed */
    cudaEvent_t uploaded; /* on the upload stream */
    staging buffers[STAGINGS];
    int next_staging;
    uint64_t ticket, waited; /* uploads begun; those that the compute stream has waited for */
};

static void wipe(void *p, size_t bytes)
{
    memset(p, 0, bytes);
    __asm__ volatile("" : : "r"(p) : "memory"); /* an adapter is a person's: the wiping stays */
}

static bool open_arena_parts(kn_cuda *c, kn_cuda_arena *a)
{
    if (!kn_cuda_check(c, cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking),
                       "making the upload stream") ||
        !kn_cuda_check(c, cudaEventCreateWithFlags(&a->computed, cudaEventDisableTiming),
                       "making an event") ||
        !kn_cuda_check(c, cudaEventCreateWithFlags(&a->uploaded, cudaEventDisableTiming),
                       "making an event"))
        return false;
    for (int i = 0; i < STAGINGS; i++) {
        staging *s = &a->buffers[i];
        if (!kn_cuda_check(c, cudaMallocHost((void **)&s->pinned, STAGING_BYTES),
                           "taking pinned memory") ||
            !kn_cuda_check(c, cudaEventCreateWithFlags(&s->sent, cudaEventDisableTiming),
                           "making an event"))
            return false;
    }
    return true;
}

bool kn_cuda_arena_open(kn_cuda *c)
{
    c->arena = (kn_cuda_arena *)calloc(1, sizeof *c->arena);
    if (c->arena) return open_arena_parts(c, c->arena);
    kn_cuda_fail(c, "out of memory");
    return false;
}

void kn_cuda_arena_close(kn_cuda *c)
{
    kn_cuda_arena *a = c->arena;
    if (!a) return;
    if (a->stream) kn_cuda_check(c, cudaStreamSynchronize(a->stream), "uploading");
    while (a->pieces) {
        piece *p = a->pieces;
        a->pieces = p->next;
        if (p->first) kn_cuda_free(c, p->at);
        free(p);
    }
    for (int i = 0; i < STAGINGS; i++) {
        if (a->buffers[i].pinned) wipe(a->buffers[i].pinned, a->buffers[i].used);
        if (a->buffers[i].pinned)
            kn_cuda_check(c, cudaFreeHost(a->buffers[i].pinned), "giving pinned memory back");
        if (a->buffers[i].sent) cudaEventDestroy(a->buffers[i].sent);
    }
    if (a->computed) cudaEventDestroy(a->computed);
    if (a->uploaded) cudaEventDestroy(a->uploaded);
    if (a->stream) cudaStreamDestroy(a->stream);
    free(a);
    c->arena = NULL;
}

static piece *add_chunk(kn_cuda *c, size_t bytes)
{
    const size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    piece *p = (piece *)calloc(1, sizeof *p);
    if (!p) return NULL;
    p->at = (uint8_t *)kn_cuda_alloc(c, size, "adapters");
    if (!p->at) {
        free(p);
        return NULL;
    }
    p->bytes = size;
    p->first = true;
    p->next = c->arena->pieces;
    c->arena->pieces = p;
    return p;
}

static uint8_t *arena_alloc(kn_cuda *c, size_t bytes)
{
    piece *p = c->arena->pieces;
    while (p && (p->used || p->bytes < bytes))
        p = p->next;
    if (!p) p = add_chunk(c, bytes);
    if (!p) return NULL;
    if (p->bytes > bytes) {
        piece *rest = (piece *)calloc(1, sizeof *rest);
        if (rest) { /* else the whole piece goes */
            rest->at = p->at + bytes;
            rest->bytes = p->bytes - bytes;
            rest->next = p->next;
            p->next = rest;
            p->bytes = bytes;
        }
    }
    p->used = true;
    return p->at;
}

static void merge_next(piece *p)
{
    piece *next = p->next;
    if (!next || next->first || next->used || p->used) return;
    p->bytes += next->bytes;
    p->next = next->next;
    free(next);
}

static void arena_free(kn_cuda *c, uint8_t *at, size_t bytes)
{
    kn_cuda_arena *a = c->arena;
    piece *before = NULL, *p = a->pieces;
    while (p->at != at)
        before = p, p = p->next;
    kn_cuda_check(c, cudaEventRecord(a->computed, c->stream), "marking");
    kn_cuda_check(c, cudaStreamWaitEvent(a->stream, a->computed, 0), "ordering");
    kn_cuda_check(c, cudaMemsetAsync(at, 0, bytes, a->stream), "wiping an adapter");
    p->used = false;
    merge_next(p);
    if (before && !p->first) merge_next(before);
}

/* --- upload ----------------------------------------------------------------------------------- */

/* A staging buffer whose last content has left, wiped. */
static staging *take_staging(kn_cuda *c)
{
    staging *s = &c->arena->buffers[c->arena->next_staging];
    c->arena->next_staging = (c->arena->next_staging + 1) % STAGINGS;
    if (!kn_cuda_check(c, cudaEventSynchronize(s->sent), "uploading")) return NULL;
    wipe(s->pinned, s->used);
    s->used = 0;
    return s;
}

/* Fills dst[0..bytes) on the device from host memory in pieces. */
static bool upload(kn_cuda *c, uint8_t *dst, const void *host, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STAGING_BYTES) {
        const size_t part = bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;
        staging *s = take_staging(c);
        if (!s) return false;
        memcpy(s->pinned, (const uint8_t *)host + at, part);
        s->used = part;
        if (!kn_cuda_check(c,
                           cudaMemcpyAsync(dst + at, s->pinned, part, cudaMemcpyHostToDevice,
                                           c->arena->stream),
                           "uploading an adapter") ||
            !kn_cuda_check(c, cudaEventRecord(s->sent, c->arena->stream), "marking"))
            return false;
    }
    return true;
}

/* dst[cols, rows] = src[rows, cols] transposed. */
template <typename T> static void transpose(const T *src, int64_t rows, int64_t cols, T *dst)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            dst[k * rows + r] = src[r * cols + k];
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The form on the device, in host memory: A, then B as [rank, out], then bias. */
static uint8_t *device_form(const kn_adapter_matrices *m, size_t a_bytes, size_t b_bytes,
                            size_t bytes)
{
    uint8_t *form = (uint8_t *)calloc(1, bytes);
    if (!form) return NULL;
    memcpy(form, m->a, a_bytes);
    if (m->direft)
        memcpy(form + aligned(a_bytes), m->b, b_bytes);
    else if (m->type == KN_F32)
        transpose((const uint32_t *)m->b, m->out, m->rank, (uint32_t *)(form + aligned(a_bytes)));
    else
        transpose((const uint16_t *)m->b, m->out, m->rank, (uint16_t *)(form + aligned(a_bytes)));
    if (m->bias)
        memcpy(form + aligned(a_bytes) + aligned(b_bytes), m->bias,
               (size_t)m->rank * sizeof(float));
    return form;
}

kn_adapter_weight *kn_cuda_adapter_create(kn_backend *be, const kn_adapter_matrices *m)
{
    kn_cuda *c = kn_cuda_of(be);
    assert(m->rank > 0 && m->in > 0 && m->out > 0 && !kn_type_get(m->type)->quantized);
    assert(!m->direft || m->in == m->out);
    if (!kn_cuda_recover(be)) return NULL;
    const size_t element = kn_row_bytes(m->type, 1), rank = (size_t)m->rank;
    const size_t a_bytes = rank * (size_t)m->in * element,
                 b_bytes = rank * (size_t)m->out * element;
    const size_t bias_bytes = m->bias ? rank * sizeof(float) : 0;
    const size_t total = aligned(a_bytes) + aligned(b_bytes) + aligned(bias_bytes);
    bool sent = false;
    kn_adapter_weight *w = (kn_adapter_weight *)calloc(1, sizeof *w);
    uint8_t *form = device_form(m, a_bytes, b_bytes, total);
    if (!w || !form) {
        snprintf(be->message, sizeof be->message, "out of memory: an adapter of rank %d", m->rank);
        goto out;
    }
    w->block = arena_alloc(c, total);
    w->block_bytes = total;
    if (!w->block) goto out;
    w->bytes = a_bytes + b_bytes + bias_bytes;
    w->d.a = w->block;
    w->d.b = w->block + aligned(a_bytes);
    w->d.bias = m->bias ? (const float *)(w->block + aligned(a_bytes) + aligned(b_bytes)) : NULL;
    w->d.scale = m->scale;
    w->d.rank = m->rank;
    w->d.type = m->type;
    w->d.in = m->in;
    w->d.out = m->out;
    w->ticket = ++c->arena->ticket;
    sent = upload(c, w->block, form, total) &&
           kn_cuda_check(c, cudaEventRecord(c->arena->uploaded, c->arena->stream), "marking");
out:
    if (form) wipe(form, total);
    free(form);
    if (sent) return w;
    kn_cuda_adapter_free(be, w);
    return NULL;
}

void kn_cuda_adapter_free(kn_backend *be, kn_adapter_weight *w)
{
    if (!w) return;
    if (w->block) arena_free(kn_cuda_of(be), w->block, w->block_bytes);
    free(w);
}

size_t kn_cuda_adapter_bytes(const kn_adapter_weight *w)
{
    return w->bytes;
}

/* Work that is queued from now on comes after the uploads begun so far. */
static void wait_for_uploads(kn_cuda *c, uint64_t ticket)
{
    kn_cuda_arena *a = c->arena;
    if (ticket <= a->waited) return;
    kn_cuda_check(c, cudaStreamWaitEvent(c->stream, a->uploaded, 0), "ordering");
    a->waited = a->ticket;
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define THREADS    128
#define WARPS      (THREADS / 32)
#define RANKS      16 /* of a block of shrink */
#define WARP_ROWS  4  /* of a warp of shrink, where segments are longer than one row */
#define BLOCK_ROWS 8  /* of a block of expand */

typedef struct {
    kn_cuda_adapter w;
    int32_t first_row, n_rows;          /* in rows */
    int32_t first_t;                    /* of its t[n_rows, rank], in floats */
    int32_t first_shrink, first_expand; /* of its blocks */
    int32_t rank_blocks, out_blocks;    /* blocks per group of rows */
} segment;

typedef struct {
    const segment *segments;
    const int32_t *rows;
    int n_segments;
    const float *x;
    float *y, *t;
    int64_t ld_x, ld_y;
} adapt_job;

/* The last segment whose first block isn't after block. */
static __device__ int find_segment(const adapt_job &job, int block, bool expand)
{
    int low = 0, high = job.n_segments - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        const segment &s = job.segments[middle];
        if ((expand ? s.first_expand : s.first_shrink) <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Elements k and k + 1 of a 16-bit row, k even and the row at an even place. */
static __device__ __forceinline__ float2 pair_at(int type, const void *data, int64_t i)
{
    const uint32_t both = __ldg((const uint32_t *)data + i / 2);
    return type == KN_F16 ? make_float2(f16_value(both & 0xffffu), f16_value(both >> 16))
                          : make_float2(bf16_value(both & 0xffffu), bf16_value(both >> 16));
}

/* sums[i][r] += A[first_rank + r, k] x_i[k] over the lane's columns, in the order of the columns.
 */
template <int ROWS>
static __device__ __forceinline__ void shrink_sums(const kn_cuda_adapter &w, int first_rank,
                                                   int ranks, const float *const (&x)[ROWS],
                                                   int lane, float (&sums)[ROWS][RANKS])
{
    if (w.type != KN_F32 && w.in % 2 == 0) {
        for (int64_t k = 2 * lane; k < w.in; k += 64) {
            float2 value[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                value[i] = *(const float2 *)(x[i] + k);
#pragma unroll
            for (int r = 0; r < RANKS; r++) {
                if (r >= ranks) break;
                const float2 a = pair_at(w.type, w.a, (first_rank + r) * w.in + k);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    sums[i][r] = fmaf(a.y, value[i].y, fmaf(a.x, value[i].x, sums[i][r]));
            }
        }
        return;
    }
    for (int64_t k = lane; k < w.in; k += 32) {
        float value[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            value[i] = x[i][k];
#pragma unroll
        for (int r = 0; r < RANKS; r++) {
            if (r >= ranks) break;
            const float a = float_at(w.type, w.a, (first_rank + r) * w.in + k);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                sums[i][r] = fmaf(a, value[i], sums[i][r]);
        }
    }
}

/* t[row, r] = A x + bias: a warp takes ROWS rows and RANKS ranks, each sum in the same order
 * whatever ROWS is. */
template <int ROWS>
static __global__ void __launch_bounds__(THREADS, ROWS == 1 ? 8 : 1) shrink(adapt_job job)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const segment &s = job.segments[find_segment(job, (int)blockIdx.x, false)];
    const kn_cuda_adapter &w = s.w;
    const int block = (int)blockIdx.x - s.first_shrink;
    const int first_rank = block % s.rank_blocks * RANKS;
    const int first_row = (block / s.rank_blocks * WARPS + warp) * ROWS;
    if (first_row >= s.n_rows) return; /* the whole warp */
    const int ranks = w.rank - first_rank < RANKS ? w.rank - first_rank : RANKS;
    const float *x[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) { /* after the last row: the last one once more */
        const int row = first_row + i < s.n_rows ? first_row + i : s.n_rows - 1;
        x[i] = job.x + job.rows[s.first_row + row] * job.ld_x;
    }
    float sums[ROWS][RANKS] = {};
    shrink_sums<ROWS>(w, first_rank, ranks, x, lane, sums);
    const int r = lane / (32 / RANKS);
    const float bias = w.bias && r < ranks ? w.bias[first_rank + r] : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float sum = warp_sums<RANKS>(sums[i], lane);
        if (w.bias) sum += bias;
        if (lane % (32 / RANKS) == 0 && r < ranks && first_row + i < s.n_rows)
            job.t[s.first_t + (int64_t)(first_row + i) * w.rank + first_rank + r] = sum;
    }
}

/* y[row, o] += scale * sum_r t[row, r] b[r, o]: a thread takes one o and BLOCK_ROWS rows. */
static __global__ void __launch_bounds__(THREADS) expand(adapt_job job)
{
    __shared__ float t[BLOCK_ROWS][RANKS];
    const segment &s = job.segments[find_segment(job, (int)blockIdx.x, true)];
    const kn_cuda_adapter &w = s.w;
    const int block = (int)blockIdx.x - s.first_expand;
    const int first_row = block / s.out_blocks * BLOCK_ROWS;
    const int64_t o = (int64_t)(block % s.out_blocks) * THREADS + threadIdx.x;
    const int n = s.n_rows - first_row < BLOCK_ROWS ? s.n_rows - first_row : BLOCK_ROWS;
    float sums[BLOCK_ROWS] = {};
    for (int first = 0; first < w.rank; first += RANKS) {
        const int ranks = w.rank - first < RANKS ? w.rank - first : RANKS;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < BLOCK_ROWS * RANKS; i += THREADS) {
            const int row = i / RANKS, r = i % RANKS;
            if (row < n && r < ranks)
                t[row][r] = job.t[s.first_t + (int64_t)(first_row + row) * w.rank + first + r];
        }
        __syncthreads();
        if (o >= w.out) continue;
        for (int r = 0; r < ranks; r++) {
            const float b = float_at(w.type, w.b, (first + r) * w.out + o);
#pragma unroll
            for (int row = 0; row < BLOCK_ROWS; row++)
                if (row < n) sums[row] = fmaf(t[row][r], b, sums[row]);
        }
    }
    if (o >= w.out) return;
#pragma unroll
    for (int row = 0; row < BLOCK_ROWS; row++) {
        if (row >= n) break;
        float *y = job.y + job.rows[s.first_row + first_row + row] * job.ld_y + o;
        *y = fmaf(w.scale, sums[row], *y);
    }
}

/* --- starting --------------------------------------------------------------------------------- */

/* What a launch goes over: rows, floats of t, blocks. */
typedef struct {
    int64_t rows, t, shrink, expand;
} adapt_size;

/* warp_rows: of shrink. */
static void fill_segment(const kn_segment *from, int warp_rows, segment *s, adapt_size *at)
{
    const kn_cuda_adapter *w = &from->w->d;
    *s = {};
    s->w = *w;
    s->first_row = (int32_t)at->rows;
    s->n_rows = from->n_rows;
    s->first_t = (int32_t)at->t;
    s->first_shrink = (int32_t)at->shrink;
    s->first_expand = (int32_t)at->expand;
    s->rank_blocks = (int32_t)ceil_div(w->rank, RANKS);
    s->out_blocks = (int32_t)ceil_div(w->out, THREADS);
    at->rows += from->n_rows;
    at->t += (int64_t)from->n_rows * w->rank;
    at->shrink += (int64_t)s->rank_blocks * ceil_div(from->n_rows, WARPS * warp_rows);
    at->expand += (int64_t)s->out_blocks * ceil_div(from->n_rows, BLOCK_ROWS);
}

static void count_segment(kn_cuda *c, const kn_segment *s)
{
    c->counters.adapter_bytes += s->w->bytes;
    c->counters.adapter_mac +=
        (uint64_t)s->w->d.rank * (uint64_t)(s->w->d.in + s->w->d.out) * (uint64_t)s->n_rows;
    wait_for_uploads(c, s->w->ticket);
}

/* The segments and their rows, sent at once; how much there is in *size. */
static bool send_segments(kn_cuda *c, const kn_segment *segments, int n_segments, adapt_job *job,
                          adapt_size *size, int *warp_rows)
{
    size_t rows = 0;
    *warp_rows = 1;
    for (int i = 0; i < n_segments; i++) {
        rows += (size_t)segments[i].n_rows;
        if (segments[i].n_rows > 1) *warp_rows = WARP_ROWS;
    }
    const size_t head = aligned((size_t)n_segments * sizeof(segment));
    const size_t bytes = head + rows * sizeof(int32_t);
    uint8_t *p = (uint8_t *)kn_cuda_ring(c, bytes);
    if (!p) return false;
    segment *list = (segment *)p;
    int32_t *row_list = (int32_t *)(p + head);
    for (int i = 0; i < n_segments; i++) {
        const kn_segment *s = &segments[i];
        if (s->n_rows <= 0) continue;
        memcpy(row_list + size->rows, s->row_index, (size_t)s->n_rows * sizeof *row_list);
        fill_segment(s, *warp_rows, &list[job->n_segments++], size);
        count_segment(c, s);
    }
    const uint8_t *sent = (const uint8_t *)kn_cuda_send(c, p, bytes);
    job->segments = (const segment *)sent;
    job->rows = (const int32_t *)(sent + head);
    return !c->failed;
}

static void adapt(kn_cuda *c, const kn_segment *segments, int n_segments, const float *x, float *y,
                  int64_t ld_y)
{
    adapt_job job = {};
    adapt_size size = {};
    int warp_rows;
    if (c->failed || n_segments <= 0 ||
        !send_segments(c, segments, n_segments, &job, &size, &warp_rows))
        return;
    if (size.rows == 0) return;
    job.x = x;
    job.y = y;
    job.ld_x = segments[0].w->d.in;
    job.ld_y = ld_y;
    job.t = (float *)kn_cuda_scratch_get(c, &c->shrunk, (size_t)size.t * sizeof(float),
                                         "adapters' inner values");
    if (!job.t) return;
    launch(c, warp_rows == 1 ? shrink<1> : shrink<WARP_ROWS>, (unsigned)size.shrink, THREADS, job);
    launch(c, expand, (unsigned)size.expand, THREADS, job);
    c->counters.adapter_launches += 2;
}

void kn_cuda_lora(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                  float *y, int64_t ld_y)
{
    adapt(kn_cuda_of(be), segments, n_segments, x, y, ld_y);
}

void kn_cuda_direft(kn_backend *be, const kn_segment *segments, int n_segments, float *h)
{
    if (n_segments > 0) adapt(kn_cuda_of(be), segments, n_segments, h, h, segments[0].w->d.out);
}
