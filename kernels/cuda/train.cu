/* Training: products through cuBLAS in float32, the rest in kernels of its own. Sums run in an
 * order that the arguments fix. */
#include "kernels/cuda/device.h"

#include <cmath>
#include <cstring>

#define THREADS 256
/* Bounds of the working space: dequantized weights, attention weights of some heads. */
#define WEIGHT_PART_BYTES    ((int64_t)128 << 20)
#define ATTENTION_PART_BYTES ((int64_t)256 << 20)

/* --- products --------------------------------------------------------------------------------- */

/* A row-major matrix, or its transpose; batch: floats from one of a batch to the next. */
typedef struct {
    const float *data;
    int64_t ld;
    bool transposed;
    int64_t batch;
} operand;

/* C[m, n] (+)= scale * A[m, k] B[k, n], count times. cuBLAS counts columns first: it computes the
 * transpose of C from those of B and A. */
static void product(kn_cuda *c, int64_t m, int64_t n, int64_t k, float scale, operand a, operand b,
                    bool add, float *to, int64_t ld, int64_t batch = 0, int count = 1)
{
    if (c->failed || m == 0 || n == 0 || count == 0) return;
    const float beta = add ? 1.0f : 0.0f;
    c->counters.launches++;
    kn_cuda_check_blas(c,
                       cublasGemmStridedBatchedEx(c->blas, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                                                  a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
                                                  (int)m, (int)k, &scale, b.data, CUDA_R_32F,
                                                  (int)b.ld, b.batch, a.data, CUDA_R_32F, (int)a.ld,
                                                  a.batch, &beta, to, CUDA_R_32F, (int)ld, batch,
                                                  count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                       "a matrix product");
}

static operand plain(const float *data, int64_t ld, int64_t batch = 0)
{
    return {data, ld, false, batch};
}

static operand transposed(const float *data, int64_t ld, int64_t batch = 0)
{
    return {data, ld, true, batch};
}

/* Rows [first, first + count) of W as float32; *ld: floats from row to row. */
static const float *float_rows(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count,
                               int64_t *ld)
{
    *ld = m->type == KN_F32 ? m->stride : m->cols;
    if (m->type == KN_F32) return (const float *)m->codes + first * m->stride;
    float *w = (float *)kn_cuda_scratch_get(c, &c->weights, (size_t)(count * m->cols) * sizeof *w,
                                            "dequantized weights");
    if (w) kn_cuda_dequantize_float(c, m, first, count, w);
    return w;
}

/* Rows of W that are dequantized at once. */
static int64_t part_rows(int64_t cols)
{
    const int64_t rows = WEIGHT_PART_BYTES / (4 * cols);
    return rows < 1 ? 1 : rows;
}

static __global__ void add_bias(const float *bias, int64_t count, int64_t rows, float *y,
                                int64_t ld)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i / rows * ld + i % rows] += bias[i % rows];
}

static void linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    for (int o = 0; o < n_outs; o++) {
        const kn_cuda_matrix *m = &outs[o].w->m;
        const int64_t part = part_rows(m->cols);
        for (int64_t first = 0; first < m->rows; first += part) {
            const int64_t count = m->rows - first < part ? m->rows - first : part;
            int64_t ld;
            const float *w = float_rows(c, m, first, count, &ld);
            product(c, n, count, m->cols, 1, plain(x, m->cols), transposed(w, ld), outs[o].add,
                    outs[o].y + first, outs[o].ld_y);
        }
        if (outs[o].bias)
            launch(c, add_bias, ceil_div(n * m->rows, THREADS), THREADS, outs[o].bias, n * m->rows,
                   m->rows, outs[o].y, outs[o].ld_y);
        c->counters.weight_bytes += outs[o].w->bytes;
        c->counters.mac += (uint64_t)n * (uint64_t)m->rows * (uint64_t)m->cols;
    }
}

static void linear_backward(kn_backend *be, const kn_linear_grad *outs, int n_outs, int n,
                            int64_t cols, bool add, float *d_x)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    for (int o = 0; o < n_outs; o++) {
        const int64_t part = part_rows(cols);
        for (int64_t first = 0; first < outs[o].rows; first += part) {
            const int64_t count = outs[o].rows - first < part ? outs[o].rows - first : part;
            int64_t ld;
            const float *w = float_rows(c, &outs[o].w->m, first, count, &ld);
            product(c, n, cols, count, 1, plain(outs[o].d_y + first, outs[o].ld), plain(w, ld), add,
                    d_x, cols);
            add = true;
        }
    }
}

/* --- rows ------------------------------------------------------------------------------------- */

/* A warp per row; see kernels/ref/train_ref.c for the formula. */
static __global__ void __launch_bounds__(THREADS)
    rmsnorm_backward_kernel(const float *x, const float *weight, float eps, const float *d_y, int n,
                            int d, float *d_x)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= n) return; /* the whole warp */
    const int64_t first = row * d;
    float squares = 0, dot = 0;
    for (int k = lane; k < d; k += 32) {
        const float value = x[first + k];
        squares = fmaf(value, value, squares);
        dot = fmaf(d_y[first + k] * weight[k], value, dot);
    }
    squares = warp_sum(squares);
    dot = warp_sum(dot);
    const float inverse = 1.0f / sqrtf(squares / (float)d + eps);
    const float back = dot * inverse * inverse * inverse / (float)d;
    for (int k = lane; k < d; k += 32)
        d_x[first + k] += weight[k] * d_y[first + k] * inverse - x[first + k] * back;
}

static void rmsnorm_backward(kn_backend *be, const float *x, const float *weight, float eps,
                             const float *d_y, int n, int d, float *d_x)
{
    if (n > 0)
        launch(kn_cuda_of(be), rmsnorm_backward_kernel, ceil_div(n, THREADS / 32), THREADS, x,
               weight, eps, d_y, n, d, d_x);
}

static void rope_backward(kn_backend *be, const kn_rope *rope, float *d_x, int n, int n_heads,
                          const int32_t *positions)
{
    kn_cuda_rotate(kn_cuda_of(be), rope, d_x, n, n_heads, positions, true);
}

static __global__ void swiglu_backward_kernel(const float *gate, const float *up, const float *d_y,
                                              int64_t count, float *d_gate, float *d_up)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float g = gate[i], u = up[i], dy = d_y[i];
    const float sigmoid = 1.0f / (1.0f + expf(-g));
    d_gate[i] = dy * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
    d_up[i] = dy * g * sigmoid;
}

static void swiglu_backward(kn_backend *be, const float *gate, const float *up, const float *d_y,
                            int n, int d, float *d_gate, float *d_up)
{
    const int64_t count = (int64_t)n * d;
    launch(kn_cuda_of(be), swiglu_backward_kernel, ceil_div(count, THREADS), THREADS, gate, up, d_y,
           count, d_gate, d_up);
}

/* --- attention -------------------------------------------------------------------------------- */

/* A sequence's attention is computed for one head of every group at once: a batch over KV heads.
 * P and dP are [kv_heads, length, length]. */
typedef struct {
    int64_t length, q_ld, kv_ld, q, kv; /* q, kv: offsets of the first token's heads */
    int head_dim, heads;                /* of the batch */
    int64_t q_batch, kv_batch;
} attention_part;

/* A warp per row of scores [rows, length]: softmax over the tokens up to the row's own, zeros after
 * it. */
static __global__ void __launch_bounds__(THREADS)
    causal_softmax(float *p, int64_t rows, int64_t length)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) return; /* the whole warp */
    const int64_t end = row % length + 1;
    float most = -INFINITY, sum = 0;
    p += row * length;
    for (int64_t j = lane; j < end; j += 32)
        most = fmaxf(most, p[j]);
    most = warp_max(most);
    for (int64_t j = lane; j < length; j += 32) {
        const float e = j < end ? expf(p[j] - most) : 0;
        p[j] = e;
        sum += e;
    }
    const float scale = 1.0f / warp_sum(sum);
    for (int64_t j = lane; j < end; j += 32)
        p[j] *= scale;
}

/* d_p <- P * (d_p - rowsum(P * d_p)) * scale, a warp per row. */
static __global__ void __launch_bounds__(THREADS)
    softmax_backward(const float *p, float *d_p, int64_t rows, int64_t length, float scale)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) return; /* the whole warp */
    float mean = 0;
    p += row * length;
    d_p += row * length;
    for (int64_t j = lane; j < length; j += 32)
        mean = fmaf(p[j], d_p[j], mean);
    mean = warp_sum(mean);
    for (int64_t j = lane; j < length; j += 32)
        d_p[j] = p[j] * (d_p[j] - mean) * scale;
}

static void attention_weights(kn_cuda *c, const attention_part *s, const float *q, const float *k,
                              float *p)
{
    const float scale = 1.0f / sqrtf((float)s->head_dim);
    product(c, s->length, s->length, s->head_dim, scale, plain(q + s->q, s->q_ld, s->q_batch),
            transposed(k + s->kv, s->kv_ld, s->kv_batch), false, p, s->length,
            s->length * s->length, s->heads);
    const int64_t rows = s->heads * s->length;
    launch(c, causal_softmax, ceil_div(rows, THREADS / 32), THREADS, p, rows, s->length);
}

/* Calls fn for every part of every sequence; g: which head of each group. */
template <typename FN>
static void for_parts(kn_cuda *c, const kn_span *spans, int n_spans, const kn_heads *h,
                      int matrices, FN fn)
{
    const int group = h->n_heads / h->n_kv_heads;
    const int64_t q_ld = (int64_t)h->n_heads * h->head_dim;
    const int64_t kv_ld = (int64_t)h->n_kv_heads * h->head_dim;
    for (int i = 0; i < n_spans && !c->failed; i++) {
        const int64_t length = spans[i].length, square = length * length;
        if (length <= 0) continue;
        int64_t most = ATTENTION_PART_BYTES / (matrices * square * (int64_t)sizeof(float));
        most = most < 1 ? 1 : most > h->n_kv_heads ? h->n_kv_heads : most;
        float *p = (float *)kn_cuda_scratch_get(
            c, &c->training2, (size_t)(matrices * most * square) * sizeof *p, "attention weights");
        if (!p) return;
        for (int first = 0; first < h->n_kv_heads; first += (int)most)
            for (int g = 0; g < group; g++) {
                const int heads =
                    h->n_kv_heads - first < (int)most ? h->n_kv_heads - first : (int)most;
                attention_part s = {length,
                                    q_ld,
                                    kv_ld,
                                    spans[i].first * q_ld +
                                        (int64_t)(first * group + g) * h->head_dim,
                                    spans[i].first * kv_ld + (int64_t)first * h->head_dim,
                                    h->head_dim,
                                    heads,
                                    (int64_t)group * h->head_dim,
                                    h->head_dim};
                fn(s, g, p, p + most * square);
            }
    }
}

static void attention(kn_backend *be, const kn_span *spans, int n_spans, const kn_heads *heads,
                      const float *q, const float *k, const float *v, float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    for_parts(c, spans, n_spans, heads, 1, [&](const attention_part &s, int, float *p, float *) {
        attention_weights(c, &s, q, k, p);
        product(c, s.length, s.head_dim, s.length, 1, plain(p, s.length, s.length * s.length),
                plain(v + s.kv, s.kv_ld, s.kv_batch), false, y + s.q, s.q_ld, s.q_batch, s.heads);
    });
}

static void attention_backward(kn_backend *be, const kn_span *spans, int n_spans,
                               const kn_heads *heads, const float *q, const float *k,
                               const float *v, const float *y, const float *d_y, float *d_q,
                               float *d_k, float *d_v)
{
    kn_cuda *c = kn_cuda_of(be);
    (void)y;
    const float scale = 1.0f / sqrtf((float)heads->head_dim);
    for_parts(c, spans, n_spans, heads, 2,
              [&](const attention_part &s, int g, float *p, float *d_p) {
                  const int64_t square = s.length * s.length;
                  const operand dy = plain(d_y + s.q, s.q_ld, s.q_batch);
                  attention_weights(c, &s, q, k, p);
                  product(c, s.length, s.length, s.head_dim, 1, dy,
                          transposed(v + s.kv, s.kv_ld, s.kv_batch), false, d_p, s.length, square,
                          s.heads);
                  product(c, s.length, s.head_dim, s.length, 1, transposed(p, s.length, square), dy,
                          g > 0, d_v + s.kv, s.kv_ld, s.kv_batch, s.heads);
                  launch(c, softmax_backward, ceil_div(s.heads * s.length, THREADS / 32), THREADS,
                         p, d_p, s.heads * s.length, s.length, scale);
                  product(c, s.length, s.head_dim, s.length, 1, plain(d_p, s.length, square),
                          plain(k + s.kv, s.kv_ld, s.kv_batch), false, d_q + s.q, s.q_ld, s.q_batch,
                          s.heads);
                  product(c, s.length, s.head_dim, s.length, 1, transposed(d_p, s.length, square),
                          plain(q + s.q, s.q_ld, s.q_batch), g > 0, d_k + s.kv, s.kv_ld, s.kv_batch,
                          s.heads);
              });
}

/* --- adapters --------------------------------------------------------------------------------- */

/* to[i, :] = x[rows[i], :] */
static __global__ void gather_rows(const float *x, int64_t ld, const int32_t *rows, int64_t count,
                                   int64_t d, float *to)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = x[rows[i / d] * ld + i % d];
}

/* y[rows[i], :] += x[i, :] */
static __global__ void scatter_rows(const float *x, const int32_t *rows, int64_t count, int64_t d,
                                    float *y, int64_t ld)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[rows[i / d] * ld + i % d] += x[i];
}

/* u[i, :] = bias */
static __global__ void set_rows(const float *bias, int64_t count, int rank, float *u)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) u[i] = bias[i % rank];
}

/* sums[r] += sum_i u[i, r], in order. */
static __global__ void add_columns(const float *u, int n, int rank, float *sums)
{
    const int r = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= rank) return;
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += u[i * rank + r];
    sums[r] += sum;
}

static void gather(kn_cuda *c, const float *x, int64_t ld, const int32_t *rows, int n, int64_t d,
                   float *to)
{
    launch(c, gather_rows, ceil_div(n * d, THREADS), THREADS, x, ld, rows, n * d, d, to);
}

static void scatter(kn_cuda *c, const float *x, const int32_t *rows, int n, int64_t d, float *y,
                    int64_t ld)
{
    launch(c, scatter_rows, ceil_div(n * d, THREADS), THREADS, x, rows, n * d, d, y, ld);
}

/* Working space of count floats and the rows on the device. False: nothing to do, or failed. */
static bool begin(kn_cuda *c, const int32_t *row_index, int n, int64_t count, const int32_t **rows,
                  float **space)
{
    if (n <= 0) return false;
    *space = (float *)kn_cuda_scratch_get(c, &c->training, (size_t)count * sizeof(float),
                                          "adapter gradients");
    *rows = *space ? kn_cuda_ints(c, row_index, n) : NULL;
    return *rows != NULL;
}

static void lora(kn_backend *be, const kn_lora_train *l, const float *x, float *y, int64_t ld_y)
{
    kn_cuda *c = kn_cuda_of(be);
    const int64_t n = l->n_rows;
    const int32_t *rows;
    float *xs;
    if (!begin(c, l->row_index, l->n_rows, n * (l->in + l->out), &rows, &xs)) return;
    float *ys = xs + n * l->in;
    gather(c, x, l->in, rows, l->n_rows, l->in, xs);
    product(c, n, l->rank, l->in, 1, plain(xs, l->in), transposed(l->a, l->in), false, l->u,
            l->rank);
    product(c, n, l->out, l->rank, l->scale, plain(l->u, l->rank), transposed(l->b, l->rank), false,
            ys, l->out);
    scatter(c, ys, rows, l->n_rows, l->out, y, ld_y);
}

static void lora_backward(kn_backend *be, const kn_lora_train *l, const float *x, const float *d_y,
                          int64_t ld_y, float *d_x)
{
    kn_cuda *c = kn_cuda_of(be);
    const int64_t n = l->n_rows;
    const int32_t *rows;
    float *xs;
    if (!begin(c, l->row_index, l->n_rows, n * (l->in + l->out + l->rank), &rows, &xs)) return;
    float *dy = xs + n * l->in, *du = dy + n * l->out;
    gather(c, x, l->in, rows, l->n_rows, l->in, xs);
    gather(c, d_y, ld_y, rows, l->n_rows, l->out, dy);
    product(c, l->out, l->rank, n, l->scale, transposed(dy, l->out), plain(l->u, l->rank), true,
            l->d_b, l->rank);
    product(c, n, l->rank, l->out, l->scale, plain(dy, l->out), plain(l->b, l->rank), false, du,
            l->rank);
    product(c, l->rank, l->in, n, 1, transposed(du, l->rank), plain(xs, l->in), true, l->d_a,
            l->in);
    product(c, n, l->in, l->rank, 1, plain(du, l->rank), plain(l->a, l->in), false, xs, l->in);
    scatter(c, xs, rows, l->n_rows, l->in, d_x, l->in);
}

static void direft(kn_backend *be, const kn_direft_train *l, int d, float *h)
{
    kn_cuda *c = kn_cuda_of(be);
    const int64_t n = l->n_rows, count = n * l->rank;
    const int32_t *rows;
    float *hs;
    if (!begin(c, l->row_index, l->n_rows, n * d, &rows, &hs)) return;
    gather(c, h, d, rows, l->n_rows, d, hs);
    launch(c, set_rows, ceil_div(count, THREADS), THREADS, l->bias, count, l->rank, l->u);
    product(c, n, l->rank, d, 1, plain(hs, d), transposed(l->w, d), true, l->u, l->rank);
    product(c, n, d, l->rank, 1, plain(l->u, l->rank), plain(l->r, d), false, hs, d);
    scatter(c, hs, rows, l->n_rows, d, h, d);
}

static void direft_backward(kn_backend *be, const kn_direft_train *l, int d, const float *h,
                            float *d_h)
{
    kn_cuda *c = kn_cuda_of(be);
    const int64_t n = l->n_rows;
    const int32_t *rows;
    float *hs;
    if (!begin(c, l->row_index, l->n_rows, n * (2 * d + l->rank), &rows, &hs)) return;
    float *dh = hs + n * d, *du = dh + n * d;
    gather(c, h, d, rows, l->n_rows, d, hs);
    gather(c, d_h, d, rows, l->n_rows, d, dh);
    product(c, n, l->rank, d, 1, plain(dh, d), transposed(l->r, d), false, du, l->rank);
    product(c, l->rank, d, n, 1, transposed(l->u, l->rank), plain(dh, d), true, l->d_r, d);
    product(c, l->rank, d, n, 1, transposed(du, l->rank), plain(hs, d), true, l->d_w, d);
    launch(c, add_columns, ceil_div(l->rank, THREADS), THREADS, du, l->n_rows, l->rank, l->d_bias);
    product(c, n, d, l->rank, 1, plain(du, l->rank), plain(l->w, d), false, dh, d);
    scatter(c, dh, rows, l->n_rows, d, d_h, d);
}

/* --- losses ----------------------------------------------------------------------------------- */

/* Sum over the block, the same in every thread, in a fixed order. */
static __device__ double block_sum_double(double v, double *scratch)
{
    __syncthreads();
    scratch[threadIdx.x] = v;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step) scratch[threadIdx.x] += scratch[threadIdx.x + step];
    }
    __syncthreads();
    return scratch[0];
}

static __device__ double log_sum_exp(const float *x, int64_t n, double *scratch)
{
    __syncthreads();
    float most = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        most = fmaxf(most, x[i]);
    scratch[threadIdx.x] = (double)most;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step)
            scratch[threadIdx.x] = fmax(scratch[threadIdx.x], scratch[threadIdx.x + step]);
    }
    __syncthreads();
    const double top = scratch[0];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += exp((double)x[i] - top);
    return top + log(block_sum_double(sum, scratch));
}

/* results: log_sum[n], logp[n] */
static __global__ void __launch_bounds__(THREADS)
    log_softmax_kernel(const float *logits, int n, int64_t vocab, const int32_t *target,
                       float *results)
{
    __shared__ double scratch[THREADS];
    const float *row = logits + (int64_t)blockIdx.x * vocab;
    const double sum = log_sum_exp(row, vocab, scratch);
    if (threadIdx.x > 0) return;
    results[blockIdx.x] = (float)sum;
    results[n + (int)blockIdx.x] = (float)((double)row[target[blockIdx.x]] - sum);
}

static void log_softmax(kn_backend *be, const float *logits, int n, int64_t vocab,
                        const int32_t *target, float *log_sum, float *logp)
{
    kn_cuda *c = kn_cuda_of(be);
    const int32_t *targets;
    float *results;
    if (!begin(c, target, n, 2 * (int64_t)n, &targets, &results)) return;
    launch(c, log_softmax_kernel, (unsigned)n, THREADS, logits, n, vocab, targets, results);
    kn_cuda_download(be, log_sum, results, (size_t)n * sizeof *log_sum);
    kn_cuda_download(be, logp, results + n, (size_t)n * sizeof *logp);
}

static __global__ void softmax_grad_kernel(float *logits, int64_t count, int64_t vocab,
                                           const int32_t *target, const float *log_sum,
                                           const float *weight)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int64_t row = i / vocab;
    const double p = exp((double)logits[i] - (double)log_sum[row]);
    logits[i] = (float)((double)weight[row] * (p - (i % vocab == target[row] ? 1.0 : 0.0)));
}

static void softmax_grad(kn_backend *be, float *logits, int n, int64_t vocab, const int32_t *target,
                         const float *log_sum, const float *weight)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    const size_t bytes = (size_t)n * sizeof(float);
    const int32_t *targets = (const int32_t *)kn_cuda_stage(c, target, bytes);
    const float *sums = (const float *)kn_cuda_stage(c, log_sum, bytes);
    const float *weights = (const float *)kn_cuda_stage(c, weight, bytes);
    if (!targets || !sums || !weights) return;
    launch(c, softmax_grad_kernel, ceil_div(n * vocab, THREADS), THREADS, logits, n * vocab, vocab,
           targets, sums, weights);
}

/* A block per row. */
static __global__ void __launch_bounds__(THREADS)
    distill_grad_kernel(float *logits, const float *teacher, int64_t vocab, const float *weight,
                        float *kl)
{
    __shared__ double scratch[THREADS];
    logits += (int64_t)blockIdx.x * vocab;
    teacher += (int64_t)blockIdx.x * vocab;
    const double own = log_sum_exp(logits, vocab, scratch);
    const double other = log_sum_exp(teacher, vocab, scratch);
    const double w = (double)weight[blockIdx.x];
    double sum = 0;
    for (int64_t v = threadIdx.x; v < vocab; v += THREADS) {
        const double log_p = (double)logits[v] - own, log_q = (double)teacher[v] - other;
        const double q = exp(log_q);
        if (q > 0) sum += q * (log_q - log_p);
        logits[v] = (float)(w * (exp(log_p) - q));
    }
    sum = block_sum_double(sum, scratch);
    if (threadIdx.x == 0) kl[blockIdx.x] = (float)sum;
}

static void distill_grad(kn_backend *be, float *logits, const float *teacher, int n, int64_t vocab,
                         const float *weight, float *kl)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    const float *weights = (const float *)kn_cuda_stage(c, weight, (size_t)n * sizeof *weight);
    float *results =
        (float *)kn_cuda_scratch_get(c, &c->training, (size_t)n * sizeof *results, "losses");
    if (!weights || !results) return;
    launch(c, distill_grad_kernel, (unsigned)n, THREADS, logits, teacher, vocab, weights, results);
    kn_cuda_download(be, kl, results, (size_t)n * sizeof *kl);
}

/* --- the optimizer ---------------------------------------------------------------------------- */

static void scatter_add(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    const int32_t *device_rows = n > 0 ? kn_cuda_ints(c, rows, n) : NULL;
    if (device_rows) scatter(c, x, device_rows, n, d, y, d);
}

static void clear(kn_backend *be, float *x, size_t count)
{
    kn_cuda *c = kn_cuda_of(be);
    if (count > 0)
        kn_cuda_check(c, cudaMemsetAsync(x, 0, count * sizeof *x, c->stream), "clearing memory");
}

#define SUM_BLOCKS 128

static __global__ void __launch_bounds__(THREADS)
    sum_squares_kernel(const float *x, int64_t count, double *sums)
{
    __shared__ double scratch[THREADS];
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)SUM_BLOCKS * THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = block_sum_double(sum, scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static double sum_squares(kn_backend *be, const float *x, size_t count)
{
    kn_cuda *c = kn_cuda_of(be);
    double sums[SUM_BLOCKS] = {0}, sum = 0;
    double *results = (double *)kn_cuda_scratch_get(c, &c->training, sizeof sums, "sums");
    if (!results || count == 0) return 0;
    launch(c, sum_squares_kernel, SUM_BLOCKS, THREADS, x, (int64_t)count, results);
    kn_cuda_download(be, sums, results, sizeof sums);
    for (int i = 0; i < SUM_BLOCKS; i++)
        sum += sums[i];
    return sum;
}

static __global__ void adamw_kernel(kn_adamw s, double correct1, double correct2, const float *grad,
                                    int64_t count, float *value, float *m, float *v)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double g = (double)grad[i] * s.grad_scale;
    const float first = (float)(s.beta1 * (double)m[i] + (1 - s.beta1) * g);
    const float second = (float)(s.beta2 * (double)v[i] + (1 - s.beta2) * g * g);
    const double update =
        (double)first / correct1 / (sqrt((double)second) / sqrt(correct2) + s.eps);
    m[i] = first;
    v[i] = second;
    value[i] = (float)((double)value[i] - s.rate * (update + s.decay * (double)value[i]));
}

static void adamw(kn_backend *be, const kn_adamw *step, const float *grad, size_t count,
                  float *value, float *m, float *v)
{
    const double correct1 = 1 - pow(step->beta1, (double)step->t);
    const double correct2 = 1 - pow(step->beta2, (double)step->t);
    launch(kn_cuda_of(be), adamw_kernel, ceil_div((int64_t)count, THREADS), THREADS, *step,
           correct1, correct2, grad, (int64_t)count, value, m, v);
}

static kn_train_ops operations(void)
{
    kn_train_ops ops = {};
    ops.linear = linear;
    ops.linear_backward = linear_backward;
    ops.rmsnorm_backward = rmsnorm_backward;
    ops.rope_backward = rope_backward;
    ops.swiglu_backward = swiglu_backward;
    ops.attention = attention;
    ops.attention_backward = attention_backward;
    ops.lora = lora;
    ops.lora_backward = lora_backward;
    ops.direft = direft;
    ops.direft_backward = direft_backward;
    ops.log_softmax = log_softmax;
    ops.softmax_grad = softmax_grad;
    ops.distill_grad = distill_grad;
    ops.scatter_add = scatter_add;
    ops.clear = clear;
    ops.sum_squares = sum_squares;
    ops.adamw = adamw;
    return ops;
}

const kn_train_ops kn_cuda_train_ops = operations();
