/* Attention over paged keys and values, for prompts and single tokens alike.
 *
 * A query is one head of one row. Queries that read the same context with the same KV head share a
 * block: the heads of a group, and neighbouring rows of a prompt. The block walks the context in
 * tiles of tokens, keys and values pass through shared memory, softmax is kept online (running
 * maximum and sum). Contexts are cut at multiples of KN_CUDA_SPLIT_TOKENS; the parts are joined in
 * order, by the same block or, when there are few blocks, by a second kernel after each part had a
 * block of its own. A query's arithmetic is the same in all cases, so its bits are too. */
#include "kernels/cuda/device.h"

#include <cassert>
#include <cmath>

#define THREADS 128
#define WARPS   (THREADS / 32)

typedef struct {
    const void *data; /* of the layer in page 0 */
    int64_t page_elements, head_elements, scales_at;
    int page_tokens, n_kv_heads, head_dim, n_heads, group;
    const int32_t *positions, *table, *pages;
    const float *q;
    float *y;
    float *partials; /* [n, n_heads, n_splits, head_dim + 2], or NULL: blocks join by themselves */
    int n, rows_per_block, n_splits;
} attend_job;

/* What a geometry costs: PER_LANE elements of a head in each lane (head_dim <= 32 PER_LANE). */
template <typename T, int PER_LANE> struct geometry {
    static constexpr int width = 32 * PER_LANE;
    static constexpr int queries = PER_LANE <= 4 ? 4 : PER_LANE == 8 ? 2 : 1; /* of a warp */
    static constexpr int block_queries = queries * WARPS;
    static constexpr int tokens = sizeof(T) == 4 && PER_LANE == 16 ? 16 : 32; /* of a tile */
    /* An odd number of words, so that lanes that read a column meet no bank twice. */
    static constexpr int stride = width + 4 / (int)sizeof(T);
    static constexpr bool scaled = sizeof(T) == 1; /* vectors of 8 bits have a scale each */
};

/* Running state of one query: scores' maximum, sum of exponentials, weighted sum of values. */
template <int PER_LANE> struct softmax_state {
    float max, sum, acc[PER_LANE];
};

template <int PER_LANE> static __device__ __forceinline__ void clear(softmax_state<PER_LANE> &s)
{
    s.max = -INFINITY;
    s.sum = 0;
#pragma unroll
    for (int j = 0; j < PER_LANE; j++)
        s.acc[j] = 0;
}

/* s <- s joined with the part that comes after it. */
template <int PER_LANE>
static __device__ __forceinline__ void join(softmax_state<PER_LANE> &s,
                                            const softmax_state<PER_LANE> &next)
{
    const float max = fmaxf(s.max, next.max);
    const float old_weight = expf(s.max - max), new_weight = expf(next.max - max);
    s.max = max;
    s.sum = fmaf(next.sum, new_weight, s.sum * old_weight);
#pragma unroll
    for (int j = 0; j < PER_LANE; j++)
        s.acc[j] = fmaf(next.acc[j], new_weight, s.acc[j] * old_weight);
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}

static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}

static __device__ __forceinline__ float to_float(int8_t x)
{
    return (float)x;
}

/* The scales of the tile's vectors. */
static __device__ void load_scales(const attend_job &job, const int32_t *pages, int kv_head,
                                   int part, int first, int count, float *scales)
{
    const int t = (int)threadIdx.x, token = first + t;
    if (t >= count) return;
    const uint8_t *layer =
        (const uint8_t *)job.data + pages[token / job.page_tokens] * job.page_elements;
    const float *from = (const float *)(layer + job.scales_at);
    scales[t] = from[((int64_t)part * job.n_kv_heads + kv_head) * job.page_tokens +
                     token % job.page_tokens];
}

/* Keys (part 0) or values (part 1) of tokens first .. first + count - 1 into the tile. */
template <typename T, int STRIDE>
static __device__ void load_tile(const attend_job &job, const int32_t *pages, int kv_head, int part,
                                 int first, int count, T *tile)
{
    const int d = job.head_dim;
    const T *base =
        (const T *)job.data + ((int64_t)part * job.n_kv_heads + kv_head) * job.head_elements;
    const int per_vector = 16 / (int)sizeof(T);
    if (d % per_vector == 0) {
        const int vectors = d / per_vector;
        for (int i = (int)threadIdx.x; i < count * vectors; i += THREADS) {
            const int t = i / vectors, at = i % vectors * per_vector, token = first + t;
            const T *src = base + pages[token / job.page_tokens] * job.page_elements +
                           (int64_t)(token % job.page_tokens) * d + at;
            const uint4 v = *(const uint4 *)src;
            uint32_t *dst = (uint32_t *)(tile + t * STRIDE + at);
            dst[0] = v.x, dst[1] = v.y, dst[2] = v.z, dst[3] = v.w;
        }
    } else {
        for (int i = (int)threadIdx.x; i < count * d; i += THREADS) {
            const int t = i / d, at = i % d, token = first + t;
            tile[t * STRIDE + at] = base[pages[token / job.page_tokens] * job.page_elements +
                                         (int64_t)(token % job.page_tokens) * d + at];
        }
    }
}

/* Two neighbouring elements of a key, at an even place. */
static __device__ __forceinline__ float2 load_pair(const float *p)
{
    return make_float2(p[0], p[1]);
}

static __device__ __forceinline__ float2 load_pair(const int8_t *p)
{
    const uint32_t both = *(const uint16_t *)p;
    return make_float2((float)(int8_t)(both & 255u), (float)(int8_t)(both >> 8));
}

static __device__ __forceinline__ float2 load_pair(const __half *p)
{
    return __half22float2(*(const __half2 *)p);
}

/* Scores of a lane's token for the queries of its warp that reach it (limit[k] >= at): the key is
 * read once. head_dim is even. */
template <typename T, int PER_LANE>
static __device__ __forceinline__ void score_token(const float (*q)[geometry<T, PER_LANE>::width],
                                                   const T *key, int d, const int *limit, int at,
                                                   float (&sums)[geometry<T, PER_LANE>::queries])
{
    const int warp = (int)threadIdx.x / 32;
#pragma unroll 4
    for (int i = 0; i < d; i += 2) {
        const float2 pair = load_pair(key + i);
#pragma unroll
        for (int k = 0; k < geometry<T, PER_LANE>::queries; k++) {
            if (limit[k] < at) continue; /* the whole warp */
            const float2 other = *(const float2 *)&q[k * WARPS + warp][i];
            sums[k] = fmaf(other.y, pair.y, fmaf(other.x, pair.x, sums[k]));
        }
    }
}

/* Takes count tokens' scores into the state of a warp's query; lane t leaves the weight of token t
 * in p. */
template <int PER_LANE>
static __device__ __forceinline__ void take_scores(softmax_state<PER_LANE> &s, float score,
                                                   bool valid, float *p)
{
    const float max = fmaxf(s.max, warp_max(valid ? score : -INFINITY));
    const float correction = expf(s.max - max);
    const float weight = valid ? expf(score - max) : 0;
    s.max = max;
    s.sum = fmaf(s.sum, correction, warp_sum(weight));
#pragma unroll
    for (int j = 0; j < PER_LANE; j++)
        s.acc[j] *= correction;
    *p = weight;
}

/* One part of a context, tokens first .. end - 1, for a block's queries. limit[k]: last position
 * that query k of this warp reads, -1 = no query. */
template <typename T, int PER_LANE>
static __device__ void attend_part(const attend_job &job, const int32_t *pages, int kv_head,
                                   int first, int end, const int *limit,
                                   const float (*q)[geometry<T, PER_LANE>::width], T *tile,
                                   float (*p)[32], float *scales, softmax_state<PER_LANE> *state)
{
    typedef geometry<T, PER_LANE> shape;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const float scale = 1.0f / sqrtf((float)job.head_dim);
    for (int k = 0; k < shape::queries; k++)
        clear(state[k]);
    for (int at = first; at < end; at += shape::tokens) {
        const int count = end - at < shape::tokens ? end - at : shape::tokens;
        __syncthreads(); /* the tile before is done with */
        load_tile<T, shape::stride>(job, pages, kv_head, 0, at, count, tile);
        if constexpr (shape::scaled) load_scales(job, pages, kv_head, 0, at, count, scales);
        __syncthreads();
        float scores[shape::queries] = {};
        if (lane < count)
            score_token<T, PER_LANE>(q, tile + lane * shape::stride, job.head_dim, limit, at,
                                     scores);
        float factor = scale;
        if constexpr (shape::scaled) factor *= lane < count ? scales[lane] : 0;
#pragma unroll
        for (int k = 0; k < shape::queries; k++) {
            if (limit[k] < at) continue;
            const bool valid = lane < count && at + lane <= limit[k];
            take_scores(state[k], scores[k] * factor, valid, &p[k * WARPS + warp][lane]);
        }
        __syncthreads();
        load_tile<T, shape::stride>(job, pages, kv_head, 1, at, count, tile);
        if constexpr (shape::scaled) load_scales(job, pages, kv_head, 1, at, count, scales);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < shape::queries; k++) {
            const int valid = limit[k] + 1 - at < count ? limit[k] + 1 - at : count;
#pragma unroll 4
            for (int t = 0; t < valid; t++) {
                float weight = p[k * WARPS + warp][t];
                if constexpr (shape::scaled) weight *= scales[t];
#pragma unroll
                for (int j = 0; j < PER_LANE; j++)
                    if (lane + 32 * j < job.head_dim)
                        state[k].acc[j] =
                            fmaf(weight, to_float(tile[t * shape::stride + lane + 32 * j]),
                                 state[k].acc[j]);
            }
        }
    }
}

/* Queries first_query .. of the rows [first_row, end_row), which share a context. */
template <typename T, int PER_LANE>
static __device__ void
attend_queries(const attend_job &job, int kv_head, int first_row, int end_row, int first_query,
               float (*q)[geometry<T, PER_LANE>::width], T *tile, float (*p)[32], float *scales)
{
    typedef geometry<T, PER_LANE> shape;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, d = job.head_dim;
    const int n_queries = (end_row - first_row) * job.group;
    const int32_t *pages = job.pages + job.table[first_row];
    int limit[shape::queries];
    int64_t vector[shape::queries]; /* row * n_heads + head */
    __syncthreads();                /* q and p are still read */
#pragma unroll
    for (int k = 0; k < shape::queries; k++) {
        const int query = first_query + k * WARPS + warp;
        const int row = first_row + query / job.group;
        limit[k] = query < n_queries ? job.positions[row] : -1;
        vector[k] = (int64_t)row * job.n_heads + kv_head * job.group + query % job.group;
        if (query >= n_queries) continue;
        for (int i = lane; i < d; i += 32)
            q[k * WARPS + warp][i] = job.q[vector[k] * d + i];
    }
    int last = 0; /* of the block's queries; rows may come in any order */
    for (int row = first_row + first_query / job.group; row < end_row; row++)
        last = job.positions[row] > last ? job.positions[row] : last;

    softmax_state<PER_LANE> whole[shape::queries], part[shape::queries];
#pragma unroll
    for (int k = 0; k < shape::queries; k++)
        clear(whole[k]);
    const int first_split = job.partials ? (int)blockIdx.y : 0;
    const int end_split = job.partials ? first_split + 1 : last / KN_CUDA_SPLIT_TOKENS + 1;
    for (int split = first_split; split < end_split; split++) {
        const int first = split * KN_CUDA_SPLIT_TOKENS;
        if (first > last) return; /* the whole block */
        const int end =
            last + 1 - first < KN_CUDA_SPLIT_TOKENS ? last + 1 : first + KN_CUDA_SPLIT_TOKENS;
        attend_part<T, PER_LANE>(job, pages, kv_head, first, end, limit, q, tile, p, scales, part);
#pragma unroll
        for (int k = 0; k < shape::queries; k++) {
            if (limit[k] < first) continue;
            if (split == first_split)
                whole[k] = part[k];
            else
                join(whole[k], part[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < shape::queries; k++) {
        if (limit[k] < first_split * KN_CUDA_SPLIT_TOKENS) continue;
        float *to = job.y + vector[k] * d, scale = 1.0f / whole[k].sum;
        if (job.partials) {
            to = job.partials + (vector[k] * job.n_splits + first_split) * (d + 2) + 2;
            scale = 1;
            if (lane == 0) to[-2] = whole[k].max, to[-1] = whole[k].sum;
        }
#pragma unroll
        for (int j = 0; j < PER_LANE; j++)
            if (lane + 32 * j < d)
                to[lane + 32 * j] = job.partials ? whole[k].acc[j] : whole[k].acc[j] * scale;
    }
}

/* blockIdx.x: rows_per_block rows times a KV head; blockIdx.y: part of the context. */
template <typename T, int PER_LANE>
static __global__ void __launch_bounds__(THREADS) attend(attend_job job)
{
    typedef geometry<T, PER_LANE> shape;
    __shared__ __align__(16) float q[shape::block_queries][shape::width];
    __shared__ float p[shape::block_queries][32];
    __shared__ float scales[shape::scaled ? shape::tokens : 1];
    __shared__ __align__(16) unsigned char tile[shape::tokens * shape::stride * sizeof(T)];
    const int kv_head = (int)blockIdx.x % job.n_kv_heads;
    int row = (int)blockIdx.x / job.n_kv_heads * job.rows_per_block;
    const int end = row + job.rows_per_block < job.n ? row + job.rows_per_block : job.n;
    while (row < end) {
        int next = row + 1;
        while (next < end && job.table[next] == job.table[row])
            next++;
        if (job.table[row] >= 0)
            for (int query = 0; query < (next - row) * job.group; query += shape::block_queries)
                attend_queries<T, PER_LANE>(job, kv_head, row, next, query, q, (T *)tile, p,
                                            scales);
        row = next;
    }
}

/* Joins the parts of each query: a warp per query. */
template <int PER_LANE> static __global__ void __launch_bounds__(THREADS) join_parts(attend_job job)
{
    const int lane = (int)threadIdx.x % 32, d = job.head_dim;
    const int64_t vector = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t row = vector / job.n_heads;
    if (row >= job.n || job.table[row] < 0) return;
    const int splits = job.positions[row] / KN_CUDA_SPLIT_TOKENS + 1;
    softmax_state<PER_LANE> whole, part;
    clear(whole);
    for (int split = 0; split < splits; split++) {
        const float *from = job.partials + (vector * job.n_splits + split) * (d + 2);
        part.max = from[0];
        part.sum = from[1];
#pragma unroll
        for (int j = 0; j < PER_LANE; j++)
            part.acc[j] = lane + 32 * j < d ? from[2 + lane + 32 * j] : 0;
        if (split == 0)
            whole = part;
        else
            join(whole, part);
    }
    const float scale = 1.0f / whole.sum;
#pragma unroll
    for (int j = 0; j < PER_LANE; j++)
        if (lane + 32 * j < d) job.y[vector * d + lane + 32 * j] = whole.acc[j] * scale;
}

/* --- starting --------------------------------------------------------------------------------- */

typedef void attend_kernel(attend_job);
typedef struct {
    int width, block_queries;         /* largest head_dim; queries of a block */
    attend_kernel *of_type[3], *join; /* KN_KV_F32, KN_KV_F16, KN_KV_Q8 */
} attend_kernels;

#define KERNELS(PER_LANE)                                                                          \
    {                                                                                              \
        32 * PER_LANE, geometry<float, PER_LANE>::block_queries,                                   \
            {attend<float, PER_LANE>, attend<__half, PER_LANE>, attend<int8_t, PER_LANE>},         \
            join_parts<PER_LANE>                                                                   \
    }
static const attend_kernels kernel_table[] = {KERNELS(1), KERNELS(2), KERNELS(4), KERNELS(8),
                                              KERNELS(16)};

static const attend_kernels *find_kernels(int head_dim)
{
    const attend_kernels *k = kernel_table;
    while (head_dim > k->width)
        k++;
    return k;
}

/* Parts get blocks of their own when there are too few blocks otherwise. */
static bool shares_context(const kn_cuda *c, int64_t blocks, int splits)
{
    return splits > 1 && blocks < 2 * c->processors;
}

void kn_cuda_attention(kn_backend *be, kn_kv *kv, int layer, const float *q, const kn_kv_row *rows,
                       int n, int n_heads, float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    const kn_kv_shape *s = &kv->shape;
    kn_cuda_rows r;
    assert(n_heads % s->n_kv_heads == 0);
    if (n <= 0 || !kn_cuda_rows_of(c, kv, rows, n, &r)) return;
    const attend_kernels *k = find_kernels(s->head_dim);
    attend_job job = {};
    job.data = kv->data + (size_t)(layer * kv->layer_elements) * kv->element;
    job.page_elements = kv->page_elements;
    job.head_elements = kv->head_elements;
    job.scales_at = kv->scales_at;
    job.page_tokens = s->page_tokens;
    job.n_kv_heads = s->n_kv_heads;
    job.head_dim = s->head_dim;
    job.n_heads = n_heads;
    job.group = n_heads / s->n_kv_heads;
    job.positions = r.positions;
    job.table = r.table;
    job.pages = r.pages;
    job.q = q;
    job.y = y;
    job.n = n;
    job.rows_per_block =
        r.shared && job.group < k->block_queries ? k->block_queries / job.group : 1;
    const int64_t blocks = (int64_t)ceil_div(n, job.rows_per_block) * s->n_kv_heads;
    const int splits = r.max_position / KN_CUDA_SPLIT_TOKENS + 1;
    job.n_splits = splits;
    if (shares_context(c, blocks, splits)) {
        job.partials = (float *)kn_cuda_scratch_get(
            c, &c->partials, (size_t)n * n_heads * splits * (s->head_dim + 2) * sizeof(float),
            "partial attention");
        if (!job.partials) return;
    }
    launch(c, k->of_type[s->type], dim3((unsigned)blocks, job.partials ? (unsigned)splits : 1),
           THREADS, job);
    if (job.partials) launch(c, k->join, ceil_div((int64_t)n * n_heads, WARPS), THREADS, job);
    const uint64_t vector_bytes =
        kv->element * (uint64_t)s->head_dim + (kv->scales_at > 0 ? sizeof(float) : 0);
    const uint64_t token_bytes = 2 * (uint64_t)s->n_kv_heads * vector_bytes;
    c->kv_token_bytes += token_bytes;
    c->counters.kv_bytes += token_bytes * r.context_tokens;
}
