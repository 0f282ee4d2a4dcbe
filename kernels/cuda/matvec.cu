/* y = W x for a few rows of x: weights are read once as they are stored, sums stay in registers.
 *
 * Quantized weights meet inputs quantized to int8 in blocks of 32 (the form of kernels/cpu: scale
 * max|x| / 127, integer products, one float multiply-add per block). A sum's order depends on the
 * shape of W alone: thread t of SPAN takes pieces t, t + SPAN, ..., then the threads' sums are
 * joined in a fixed tree. How many rows of x and of W share a thread changes nothing. */
#include "kernels/cuda/device.h"

#include <cmath>

#define THREADS  128
#define WARPS    (THREADS / 32)
#define MAX_OUTS 4
/* A block whose largest value is below this counts as zero: its reciprocal could overflow. */
#define TINY 0x1p-100f

/* --- inputs ----------------------------------------------------------------------------------- */

/* A block of 32 columns of x: x = scale * q. A value that isn't finite makes scale NaN. */
typedef struct {
    float scale;
    int16_t half_sum, rest_sum; /* of q[0..16) and q[16..32) */
} act_block;

typedef struct {
    const float *x;          /* [n, cols] */
    const int8_t *q;         /* [n, cols] */
    const act_block *blocks; /* [n, cols / 32] */
    int64_t cols;
    int n;
} act;

/* A warp per block. */
static __global__ void __launch_bounds__(THREADS)
    quantize(const float *x, int64_t n_blocks, int8_t *q, act_block *blocks)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t b = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (b >= n_blocks) return; /* the whole warp */
    const float value = x[b * 32 + lane];
    const bool finite = !__any_sync(FULL_WARP, !(fabsf(value) < INFINITY));
    const float max = warp_max(fabsf(value));
    const float inverse = finite && max >= TINY ? 127.0f / max : 0;
    const int code = finite ? __float2int_rn(value * inverse) : 0;
    q[b * 32 + lane] = (int8_t)code;
    int sum = code;
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(FULL_WARP, sum, offset);
    const int rest = __shfl_sync(FULL_WARP, sum, 16);
    if (lane > 0) return;
    act_block block;
    block.scale = !finite ? NAN : max >= TINY ? max / 127.0f : 0;
    block.half_sum = (int16_t)sum;
    block.rest_sum = (int16_t)rest;
    blocks[b] = block;
}

/* --- one output ------------------------------------------------------------------------------- */

typedef struct {
    kn_cuda_matrix m;
    const float *bias;
    float *y;
    int64_t ld_y;
    unsigned first_block; /* of the grid: where this output's begin */
    bool add;
} output;

typedef struct {
    output out[MAX_OUTS];
    int n_outs;
} outputs;

static __device__ __forceinline__ int dot4(uint32_t a, uint32_t b, int sum)
{
    return __dp4a((int)a, (int)b, sum);
}

/* Adds group g's part of row r of W times input row i. */
template <kn_type TYPE>
static __device__ __forceinline__ float add_group(const kn_cuda_group &w, const uint32_t *q,
                                                  const act_block &block, float acc)
{
    typedef group_format<TYPE> format;
    int first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first = dot4(w.word[i], q[i], first);
        second = dot4(w.word[i + 4], q[i + 4], second);
    }
    if constexpr (format::halves) {
        acc = fmaf(w.scale * block.scale, (float)(first - format::offset * block.half_sum), acc);
        acc = fmaf(w.scale2 * block.scale, (float)(second - format::offset * block.rest_sum), acc);
    } else {
        const int sum = block.half_sum + block.rest_sum;
        acc = fmaf(w.scale * block.scale, (float)(first + second - format::offset * sum), acc);
        if constexpr (format::has_min) acc = fmaf(w.min, block.scale * (float)sum, acc);
    }
    return acc;
}

template <kn_type TYPE, int N, int R>
static __device__ __forceinline__ void quantized_sums(const kn_cuda_matrix &m, const act &a,
                                                      int64_t row, int first, int start, int span,
                                                      float (&acc)[R * N])
{
    for (int g = start; g < m.groups; g += span) {
        kn_cuda_group w[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            load_group<TYPE>(m, row + r < m.rows ? row + r : m.rows - 1, g, &w[r]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (first + i >= a.n) break;
            const int64_t at = (first + i) * (int64_t)m.groups + g;
            const uint4 *q4 = (const uint4 *)(a.q + at * 32);
            const uint4 low = __ldg(q4), high = __ldg(q4 + 1);
            const uint32_t q[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            const act_block block = a.blocks[at];
#pragma unroll
            for (int r = 0; r < R; r++)
                acc[r * N + i] = add_group<TYPE>(w[r], q, block, acc[r * N + i]);
        }
    }
}

/* 8 columns from column k on as floats; the padding of a row is zero. */
template <kn_type TYPE>
static __device__ __forceinline__ void load_eight(const kn_cuda_matrix &m, int64_t row, int64_t k,
                                                  float (&v)[8])
{
    if constexpr (TYPE == KN_F32) {
        const float4 *p = (const float4 *)((const float *)m.codes + row * m.stride + k);
        const float4 a = __ldg(p);
        float4 b = {0, 0, 0, 0};
        if (k + 4 < m.stride) b = __ldg(p + 1);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        const uint4 p = __ldg((const uint4 *)((const uint16_t *)m.codes + row * m.stride + k));
        const uint32_t words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] =
                TYPE == KN_F16 ? f16_value(words[i] & 0xffffu) : bf16_value(words[i] & 0xffffu);
            v[2 * i + 1] = TYPE == KN_F16 ? f16_value(words[i] >> 16) : bf16_value(words[i] >> 16);
        }
    }
}

/* 8 inputs from column k on; columns beyond cols are zero, as the padding of W is. Rows of whole
 * vectors are read as such. */
static __device__ __forceinline__ void load_inputs(const float *x, int64_t k, int64_t cols,
                                                   bool vectors, float (&v)[8])
{
    if (vectors) {
        const float4 a = __ldg((const float4 *)(x + k));
        float4 b = {0, 0, 0, 0};
        if (k + 4 < cols) b = __ldg((const float4 *)(x + k + 4));
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = k + j < cols ? __ldg(x + k + j) : 0;
}

template <kn_type TYPE, int N, int R>
static __device__ __forceinline__ void float_sums(const kn_cuda_matrix &m, const act &a,
                                                  int64_t row, int first, int start, int span,
                                                  float (&acc)[R * N])
{
    const bool vectors = a.cols % 4 == 0 && (size_t)a.x % sizeof(float4) == 0;
    for (int64_t k = (int64_t)start * 8; k < m.cols; k += (int64_t)span * 8) {
        float w[R][8];
#pragma unroll
        for (int r = 0; r < R; r++)
            load_eight<TYPE>(m, row + r < m.rows ? row + r : m.rows - 1, k, w[r]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (first + i >= a.n) break;
            float x[8];
            load_inputs(a.x + (first + i) * a.cols, k, m.cols, vectors, x);
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int r = 0; r < R; r++)
                    acc[r * N + i] = fmaf(w[r][j], x[j], acc[r * N + i]);
        }
    }
}

static __device__ __forceinline__ void store(const output &o, int64_t row, int i, float sum)
{
    float *y = o.y + i * o.ld_y + row;
    if (o.bias) sum += o.bias[row];
    *y = o.add ? *y + sum : sum;
}

/* R rows of W by N rows of x in each warp, or in each block when SPLIT: long rows are shared by
 * the warps of a block. */
template <kn_type TYPE, int N, int R, bool SPLIT>
static __global__ void __launch_bounds__(THREADS) matvec(outputs outs, act a)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int which = 0;
    while (which + 1 < outs.n_outs && blockIdx.x >= outs.out[which + 1].first_block)
        which++;
    const output &o = outs.out[which];
    const int64_t unit = blockIdx.x - o.first_block;
    const int64_t row = (SPLIT ? unit : unit * WARPS + warp) * R;
    const int first = (int)blockIdx.y * N;
    const int start = SPLIT ? (int)threadIdx.x : lane, span = SPLIT ? THREADS : 32;
    float acc[R * N] = {};
    if (row < o.m.rows) {
        if constexpr (TYPE <= KN_BF16)
            float_sums<TYPE, N, R>(o.m, a, row, first, start, span, acc);
        else
            quantized_sums<TYPE, N, R>(o.m, a, row, first, start, span, acc);
    }
    float sum = warp_sums<R * N>(acc, lane);
    constexpr int lanes = 32 / (R * N); /* that hold the same sum */
    const int index = lane / lanes;
    bool writes = lane % lanes == 0;
    if constexpr (SPLIT) {
        __shared__ float part[WARPS][R * N];
        if (writes) part[warp][index] = sum;
        __syncthreads();
        writes = writes && warp == 0;
        if (writes)
            for (int w = 1; w < WARPS; w++)
                sum += part[w][index];
    }
    const int64_t r = row + index / N;
    const int i = first + index % N;
    if (writes && r < o.m.rows && i < a.n) store(o, r, i, sum);
}

/* --- choosing and starting -------------------------------------------------------------------- */

/* By W's shape alone: enough rows keep the device busy by themselves, short rows have nothing to
 * share. */
static bool splits(const kn_cuda_matrix *m)
{
    return m->rows < 16384 && m->cols >= 2048;
}

typedef void matvec_kernel(outputs, act);

template <kn_type TYPE, bool SPLIT> static matvec_kernel *pick(int n, int *rows_w, int *rows_x)
{
    *rows_w = n == 1 ? 2 : 4;
    *rows_x = n == 1 ? 1 : n <= 4 ? 4 : 8;
    return n == 1   ? matvec<TYPE, 1, 2, SPLIT>
           : n <= 4 ? matvec<TYPE, 4, 4, SPLIT>
                    : matvec<TYPE, 8, 4, SPLIT>;
}

template <bool SPLIT> static matvec_kernel *pick_type(kn_type type, int n, int *rows_w, int *rows_x)
{
    switch (type) {
    case KN_F32:
        return pick<KN_F32, SPLIT>(n, rows_w, rows_x);
    case KN_F16:
        return pick<KN_F16, SPLIT>(n, rows_w, rows_x);
    case KN_BF16:
        return pick<KN_BF16, SPLIT>(n, rows_w, rows_x);
    case KN_Q8_0:
        return pick<KN_Q8_0, SPLIT>(n, rows_w, rows_x);
    case KN_Q4_0:
        return pick<KN_Q4_0, SPLIT>(n, rows_w, rows_x);
    case KN_Q4_1:
        return pick<KN_Q4_1, SPLIT>(n, rows_w, rows_x);
    case KN_Q4_K:
        return pick<KN_Q4_K, SPLIT>(n, rows_w, rows_x);
    case KN_Q5_K:
        return pick<KN_Q5_K, SPLIT>(n, rows_w, rows_x);
    default:
        return pick<KN_Q6_K, SPLIT>(n, rows_w, rows_x);
    }
}

/* The outputs that share kernel and input: one launch. */
static void start(kn_cuda *c, const act &a, const kn_linear *const *list, int n_list)
{
    const bool split = splits(&list[0]->w->m);
    const kn_type type = list[0]->w->m.type;
    int rows_w, rows_x;
    matvec_kernel *kernel = split ? pick_type<true>(type, a.n, &rows_w, &rows_x)
                                  : pick_type<false>(type, a.n, &rows_w, &rows_x);
    outputs outs = {};
    unsigned blocks = 0;
    for (int o = 0; o < n_list; o++) {
        const kn_linear *l = list[o];
        outs.out[o] = {l->w->m, l->bias, l->y, l->ld_y, blocks, l->add};
        blocks += ceil_div(l->w->m.rows, split ? rows_w : rows_w * WARPS);
    }
    outs.n_outs = n_list;
    launch(c, kernel, dim3(blocks, ceil_div(a.n, rows_x)), THREADS, outs, a);
}

static bool prepare(kn_cuda *c, const float *x, int n, const kn_linear *outs, int n_outs, act *a)
{
    bool integers = false;
    for (int o = 0; o < n_outs; o++)
        integers = integers || kn_type_get(outs[o].w->m.type)->quantized;
    *a = {x, NULL, NULL, outs[0].w->m.cols, n};
    if (!integers) return true;
    const size_t codes = ((size_t)n * (size_t)a->cols + 255) / 256 * 256;
    const int64_t blocks = n * (a->cols / 32);
    int8_t *q = (int8_t *)kn_cuda_scratch_get(
        c, &c->activations, codes + (size_t)blocks * sizeof(act_block), "quantized inputs");
    if (!q) return false;
    a->q = q;
    a->blocks = (const act_block *)(q + codes);
    launch(c, quantize, ceil_div(blocks, WARPS), THREADS, x, blocks, q, (act_block *)(q + codes));
    return true;
}

void kn_cuda_matvec(kn_cuda *c, const float *x, int n, const kn_linear *outs, int n_outs)
{
    act a;
    if (n_outs == 0 || !prepare(c, x, n, outs, n_outs, &a)) return;
    uint64_t done = 0; /* bit per output */
    for (int o = 0; o < n_outs; o++) {
        if (done & (uint64_t)1 << o) continue;
        const kn_linear *list[MAX_OUTS] = {&outs[o]};
        int n_list = 1;
        for (int p = o + 1; p < n_outs && n_list < MAX_OUTS; p++) {
            const kn_cuda_matrix *m = &outs[p].w->m, *like = &outs[o].w->m;
            if (done & (uint64_t)1 << p || m->type != like->type || splits(m) != splits(like))
                continue;
            list[n_list++] = &outs[p];
            done |= (uint64_t)1 << p;
        }
        start(c, a, list, n_list);
    }
}
