/* y = W x through cuBLAS, for many rows of x, and the choice between this and matvec.cu.
 *
 * Float32 weights: float32 throughout; outputs that share x are one grouped product. 16-bit weights
 * meet inputs of their own type; quantized ones are dequantized to half, a bounded part of the rows
 * at a time. A row of inputs that becomes half is first scaled by a power of two, so that its
 * largest value lies in [512, 1024): nothing overflows, and what is 2^-24 of the largest still
 * counts. Sums are float32.
 *
 * isa "precise": nothing is rounded below float32. Inputs of 16-bit weights are split into parts
 * whose sum has at least 24 bits (half: 2 parts of 11, bfloat16: 3 of 8) and the parts' products
 * are added up, the smallest first; quantized weights are dequantized to float32. */
#include "kernels/cuda/device.h"

#include <cassert>
#include <cmath>

/* Bounds of the working space: dequantized weights, products that are to be added. */
#define WEIGHT_PART_BYTES  ((int64_t)128 << 20)
#define PRODUCT_PART_BYTES ((int64_t)64 << 20)
#define THREADS            256

/* --- inputs and results ----------------------------------------------------------------------- */

#define MOST_PARTS 3

/* x as cuBLAS takes it: parts matrices [n, ld] of type, scale[n] where a row was scaled. */
typedef struct {
    const float *x;
    int n, parts;
    int64_t cols, ld;
    kn_type type;
    const uint8_t *data;
    size_t part_bytes;
    const float *scale; /* NULL: 1 */
} gemm_inputs;

/* What is left of value after this part of it, exactly; the part goes to *to. */
static __device__ __forceinline__ float take_part(float value, __half *to)
{
    *to = __float2half(value);
    return value - __half2float(*to);
}

static __device__ __forceinline__ float take_part(float value, __nv_bfloat16 *to)
{
    *to = __float2bfloat16(value);
    return value - __bfloat162float(*to);
}

/* A block per row: part p of x[i, :] / scale[i] to to[p][i, :]; the padding up to ld is zero. scale
 * NULL: rows stay as they are. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    split(const float *x, int64_t cols, int64_t ld, int parts, int64_t part_elements, T *to,
          float *scale)
{
    __shared__ float most[THREADS / 32];
    const float *row = x + (int64_t)blockIdx.x * cols;
    float factor = 1;
    if (scale) {
        float max = 0;
        for (int64_t k = threadIdx.x; k < cols; k += THREADS)
            max = fmaxf(max, fabsf(row[k]));
        max = warp_max(max);
        if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = max;
        __syncthreads();
        for (int i = 0; i < THREADS / 32; i++)
            max = fmaxf(max, most[i]);
        int exponent = 0;
        if (max > 0 && max < INFINITY) frexpf(max, &exponent); /* max in [2^(e-1), 2^e) */
        exponent = max > 0 && max < INFINITY ? exponent - 10 : 0;
        exponent = exponent < -126 ? -126 : exponent;
        factor = ldexpf(1.0f, -exponent);
        if (threadIdx.x == 0) scale[blockIdx.x] = ldexpf(1.0f, exponent);
    }
    to += blockIdx.x * ld;
    for (int64_t k = threadIdx.x; k < ld; k += THREADS) {
        float rest = k < cols ? row[k] * factor : 0.0f;
        for (int p = 0; p < parts; p++)
            rest = take_part(rest, to + p * part_elements + k);
    }
}

/* x for weights of type F16 or BF16 (quantized ones: F16), unless it is there already. */
static bool prepare(kn_cuda *c, gemm_inputs *in, kn_type type, int64_t ld)
{
    const int parts = c->mode != KN_CUDA_PRECISE ? 1 : type == KN_F16 ? 2 : MOST_PARTS;
    if (in->data && in->type == type) return !c->failed;
    in->type = type;
    in->ld = ld;
    in->parts = parts;
    in->part_bytes = ((size_t)in->n * (size_t)ld * 2 + 255) / 256 * 256;
    const size_t bytes = in->part_bytes * (size_t)parts;
    uint8_t *space = (uint8_t *)kn_cuda_scratch_get(
        c, &c->activations, bytes + (size_t)in->n * sizeof(float), "16-bit inputs");
    in->data = space;
    if (!space) return false;
    float *scale = type == KN_F16 ? (float *)(space + bytes) : NULL;
    in->scale = scale;
    const int64_t part_elements = (int64_t)(in->part_bytes / 2);
    if (type == KN_F16)
        launch(c, split<__half>, (unsigned)in->n, THREADS, in->x, in->cols, ld, parts,
               part_elements, (__half *)space, scale);
    else
        launch(c, split<__nv_bfloat16>, (unsigned)in->n, THREADS, in->x, in->cols, ld, parts,
               part_elements, (__nv_bfloat16 *)space, scale);
    return !c->failed;
}

/* y[i, r] = scale[i] * y[i, r] + bias[r]; either may be NULL. */
static __global__ void finish(float *y, int64_t ld_y, int64_t rows, int64_t n, const float *scale,
                              const float *bias)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * rows) return;
    const int64_t i = at / rows, r = at % rows;
    float value = y[i * ld_y + r];
    if (scale) value *= scale[i];
    if (bias) value += bias[r];
    y[i * ld_y + r] = value;
}

/* y[i, r] += scale[i] * product[i, r] + bias[r] */
static __global__ void accumulate(const float *product, int64_t rows, int64_t n, const float *scale,
                                  const float *bias, float *y, int64_t ld_y)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * rows) return;
    const int64_t i = at / rows, r = at % rows;
    float value = product[at] * scale[i];
    if (bias) value += bias[r];
    y[i * ld_y + r] += value;
}

/* --- products --------------------------------------------------------------------------------- */

/* y[n, rows] = (beta y +) x W^T with W[rows, ld_w] and x[n, ld_x] of one type. cuBLAS counts
 * columns first: a row-major matrix is the transpose of what it sees. */
static void multiply(kn_cuda *c, cudaDataType type, const void *w, int64_t ld_w, int64_t rows,
                     const void *x, int64_t ld_x, int n, int64_t cols, bool add, float *y,
                     int64_t ld_y)
{
    if (c->failed) return;
    const float one = 1, beta = add ? 1.0f : 0.0f;
    c->counters.launches++;
    kn_cuda_check_blas(c,
                       cublasGemmEx(c->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)rows, n, (int)cols,
                                    &one, w, type, (int)ld_w, x, type, (int)ld_x, &beta, y,
                                    CUDA_R_32F, (int)ld_y, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                       "a matrix product");
}

/* The same for all parts of x, the smallest first. */
static void multiply_parts(kn_cuda *c, const gemm_inputs *in, const void *w, int64_t rows, bool add,
                           float *y, int64_t ld_y)
{
    const cudaDataType type = in->type == KN_F16 ? CUDA_R_16F : CUDA_R_16BF;
    for (int p = in->parts - 1; p >= 0; p--) {
        multiply(c, type, w, in->ld, rows, in->data + (size_t)p * in->part_bytes, in->ld, in->n,
                 in->ld, add, y, ld_y);
        add = true;
    }
}

static void add_bias(kn_cuda *c, const gemm_inputs *in, const kn_linear *o)
{
    const int64_t rows = o->w->m.rows;
    if (o->bias)
        launch(c, finish, ceil_div(in->n * rows, THREADS), THREADS, o->y, o->ld_y, rows, in->n,
               nullptr, o->bias);
}

/* Rows of W that are dequantized at once: bounds the working space. */
static int64_t part_rows(const kn_cuda_matrix *m, int64_t element)
{
    const int64_t most = WEIGHT_PART_BYTES / (element * m->cols);
    return most < 1 ? 1 : most < m->rows ? most : m->rows;
}

/* Float32 weights, or any as float32. */
static void gemm_float(kn_cuda *c, const gemm_inputs *in, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    const int64_t part = m->type == KN_F32 ? m->rows : part_rows(m, 4);
    for (int64_t first = 0; first < m->rows && !c->failed; first += part) {
        const int64_t count = m->rows - first < part ? m->rows - first : part;
        const float *w = (const float *)m->codes;
        if (m->type != KN_F32) {
            float *space = (float *)kn_cuda_scratch_get(
                c, &c->weights, (size_t)(count * m->cols) * sizeof *w, "dequantized weights");
            if (!space) return;
            kn_cuda_dequantize_float(c, m, first, count, space);
            w = space;
        }
        multiply(c, CUDA_R_32F, w, m->stride, count, in->x, m->cols, in->n, m->cols, o->add,
                 o->y + first, o->ld_y);
    }
    add_bias(c, in, o);
}

#define MOST_GROUPS 4

/* Outputs of float32 weights that share x, in one product of a group each: their places lie in
 * device memory. False: this cuBLAS has no such product here. */
static bool gemm_group(kn_cuda *c, const gemm_inputs *in, const kn_linear *const *outs, int count)
{
    cublasOperation_t op_w[MOST_GROUPS], op_x[MOST_GROUPS];
    int rows[MOST_GROUPS], n[MOST_GROUPS], cols[MOST_GROUPS], ld_w[MOST_GROUPS], ld_x[MOST_GROUPS];
    int ld_y[MOST_GROUPS], sizes[MOST_GROUPS];
    float one[MOST_GROUPS], beta[MOST_GROUPS];
    const void *places[3 * MOST_GROUPS];
    for (int o = 0; o < count; o++) {
        const kn_cuda_matrix *m = &outs[o]->w->m;
        op_w[o] = CUBLAS_OP_T;
        op_x[o] = CUBLAS_OP_N;
        rows[o] = (int)m->rows;
        n[o] = in->n;
        cols[o] = ld_x[o] = (int)m->cols;
        ld_w[o] = (int)m->stride;
        ld_y[o] = (int)outs[o]->ld_y;
        sizes[o] = 1;
        one[o] = 1;
        beta[o] = outs[o]->add ? 1.0f : 0.0f;
        places[o] = m->codes;
        places[count + o] = in->x;
        places[2 * count + o] = outs[o]->y;
    }
    const void **sent = (const void **)kn_cuda_stage(c, places, 3 * (size_t)count * sizeof *places);
    if (!sent) return true; /* failed */
    const cublasStatus_t status = cublasGemmGroupedBatchedEx(
        c->blas, op_w, op_x, rows, n, cols, one, sent, CUDA_R_32F, ld_w, sent + count, CUDA_R_32F,
        ld_x, beta, (void *const *)(sent + 2 * count), CUDA_R_32F, ld_y, count, sizes,
        CUBLAS_COMPUTE_32F);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    c->counters.launches++;
    if (kn_cuda_check_blas(c, status, "a grouped matrix product"))
        for (int o = 0; o < count; o++)
            add_bias(c, in, outs[o]);
    return true;
}

static void gemm_bfloat(kn_cuda *c, gemm_inputs *in, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    if (!prepare(c, in, KN_BF16, m->stride)) return;
    multiply_parts(c, in, m->codes, m->rows, o->add, o->y, o->ld_y);
    add_bias(c, in, o);
}

/* Rows [first, first + count) of W as half: in place for half weights. */
static const __half *half_rows(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count)
{
    if (m->type == KN_F16) return (const __half *)m->codes + first * m->stride;
    __half *w = (__half *)kn_cuda_scratch_get(c, &c->weights, (size_t)(count * m->cols) * 2,
                                              "dequantized weights");
    if (w) kn_cuda_dequantize_half(c, m, first, count, w);
    return w;
}

static void gemm_half(kn_cuda *c, gemm_inputs *in, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    const int n = in->n;
    if (!prepare(c, in, KN_F16, m->stride)) return;
    int64_t part = m->type == KN_F16 ? m->rows : part_rows(m, 2);
    if (o->add && part > PRODUCT_PART_BYTES / (4 * n)) part = PRODUCT_PART_BYTES / (4 * n);
    if (part < 1) part = 1;
    float *product = o->add ? (float *)kn_cuda_scratch_get(c, &c->product, (size_t)(part * n) * 4,
                                                           "matrix products")
                            : NULL;
    for (int64_t first = 0; first < m->rows && !c->failed; first += part) {
        const int64_t count = m->rows - first < part ? m->rows - first : part;
        const __half *w = half_rows(c, m, first, count);
        float *y = o->y + first;
        const float *bias = o->bias ? o->bias + first : NULL;
        multiply_parts(c, in, w, count, false, o->add ? product : y, o->add ? count : o->ld_y);
        if (o->add)
            launch(c, accumulate, ceil_div(n * count, THREADS), THREADS, product, count, n,
                   in->scale, bias, y, o->ld_y);
        else
            launch(c, finish, ceil_div(n * count, THREADS), THREADS, y, o->ld_y, count, n,
                   in->scale, bias);
    }
}

static void gemm(kn_cuda *c, gemm_inputs *in, const kn_linear *out)
{
    const kn_type type = out->w->m.type;
    if (type == KN_F32 || (c->mode == KN_CUDA_PRECISE && kn_type_get(type)->quantized))
        gemm_float(c, in, out);
    else if (type == KN_BF16)
        gemm_bfloat(c, in, out);
    else
        gemm_half(c, in, out);
}

/* --- choosing --------------------------------------------------------------------------------- */

static bool by_gemm(const kn_cuda *c, const kn_weight *w, int n)
{
    const bool quantized = kn_type_get(w->m.type)->quantized;
    if (c->mode == KN_CUDA_EXACT) return false;
    if (c->mode == KN_CUDA_PRECISE && quantized) return true;
    return !w->wide && n > (quantized ? KN_CUDA_MATVEC_ROWS : KN_CUDA_MATVEC_FLOAT_ROWS);
}

/* Float32 outputs from `first` on that are computed as a group; bit per output. 0: none. A step
 * that may be recorded has no room for the list of their places. */
static unsigned group_of(const kn_cuda *c, int n, const kn_linear *outs, int n_outs, int first)
{
    unsigned group = 0;
    int count = 0;
    if (c->no_groups || (c->in_step && c->step.repeatable)) return 0;
    for (int o = first; o < n_outs && count < MOST_GROUPS; o++)
        if (outs[o].w->m.type == KN_F32 && by_gemm(c, outs[o].w, n)) {
            group |= 1u << o;
            count++;
        }
    return count > 1 ? group : 0;
}

static bool run_group(kn_cuda *c, const gemm_inputs *in, const kn_linear *outs, unsigned group)
{
    const kn_linear *list[MOST_GROUPS];
    int count = 0;
    for (int o = 0; group >> o; o++)
        if (group >> o & 1u) list[count++] = &outs[o];
    c->no_groups = !gemm_group(c, in, list, count);
    return !c->no_groups;
}

void kn_cuda_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    assert(n_outs <= 32);
    gemm_inputs in = {};
    in.x = x;
    in.n = n;
    in.cols = outs[0].w->m.cols;
    unsigned done = 0; /* bit per output */
    for (int o = 0; o < n_outs; o++) {
        c->counters.weight_bytes += outs[o].w->bytes;
        c->counters.mac += (uint64_t)n * (uint64_t)outs[o].w->m.rows * (uint64_t)outs[o].w->m.cols;
        if (done >> o & 1u || !by_gemm(c, outs[o].w, n)) continue;
        done |= 1u << o;
        const unsigned group = outs[o].w->m.type == KN_F32 ? group_of(c, n, outs, n_outs, o) : 0;
        if (group && run_group(c, &in, outs, group))
            done |= group;
        else
            gemm(c, &in, &outs[o]);
    }
    /* The rest, in runs; their inputs take the place of cuBLAS's. */
    for (int o = 0, end; o < n_outs; o = end + 1) {
        for (end = o; end < n_outs && !(done >> end & 1u);)
            end++;
        kn_cuda_matvec(c, x, n, outs + o, end - o);
    }
}
