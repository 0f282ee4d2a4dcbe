/* y = W x through cuBLAS, for many rows of x, and the choice between this and matvec.cu.
 *
 * Float32 weights: float32 throughout. 16-bit weights meet inputs of their own type; quantized ones
 * are dequantized to half, a bounded part of the rows at a time. A row of inputs that becomes half
 * is first scaled by a power of two, so that its largest value lies in [512, 1024): nothing
 * overflows, and what is 2^-24 of the largest still counts. Sums are float32. */
#include "kernels/cuda/device.h"

#include <cmath>

/* Bounds of the working space: dequantized weights, products that are to be added. */
#define WEIGHT_PART_BYTES  ((int64_t)128 << 20)
#define PRODUCT_PART_BYTES ((int64_t)64 << 20)
#define THREADS            256

/* --- inputs and results ----------------------------------------------------------------------- */

/* A block per row: to[i, :] = x[i, :] / scale[i]; the padding up to ld is zero. */
static __global__ void __launch_bounds__(THREADS)
    to_half(const float *x, int64_t cols, int64_t ld, __half *to, float *scale)
{
    __shared__ float most[THREADS / 32];
    const float *row = x + (int64_t)blockIdx.x * cols;
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
    const float factor = ldexpf(1.0f, -exponent);
    for (int64_t k = threadIdx.x; k < ld; k += THREADS)
        to[blockIdx.x * ld + k] = __float2half(k < cols ? row[k] * factor : 0.0f);
    if (threadIdx.x == 0) scale[blockIdx.x] = ldexpf(1.0f, exponent);
}

static __global__ void to_bfloat(const float *x, int64_t n, int64_t cols, int64_t ld,
                                 __nv_bfloat16 *to)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * ld) return;
    const int64_t k = i % ld;
    to[i] = __float2bfloat16(k < cols ? x[i / ld * cols + k] : 0.0f);
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

static void gemm_float(kn_cuda *c, const float *x, int n, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    multiply(c, CUDA_R_32F, m->codes, m->stride, m->rows, x, m->cols, n, m->cols, o->add, o->y,
             o->ld_y);
    if (o->bias)
        launch(c, finish, ceil_div(n * m->rows, 256), 256, o->y, o->ld_y, m->rows, n, nullptr,
               o->bias);
}

static void gemm_bfloat(kn_cuda *c, const float *x, int n, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    __nv_bfloat16 *xb = (__nv_bfloat16 *)kn_cuda_scratch_get(
        c, &c->activations, (size_t)n * (size_t)m->stride * 2, "16-bit inputs");
    if (!xb) return;
    launch(c, to_bfloat, ceil_div(n * m->stride, 256), 256, x, n, m->cols, m->stride, xb);
    multiply(c, CUDA_R_16BF, m->codes, m->stride, m->rows, xb, m->stride, n, m->stride, o->add,
             o->y, o->ld_y);
    if (o->bias)
        launch(c, finish, ceil_div(n * m->rows, 256), 256, o->y, o->ld_y, m->rows, n, nullptr,
               o->bias);
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

static void gemm_half(kn_cuda *c, const float *x, int n, const kn_linear *o)
{
    const kn_cuda_matrix *m = &o->w->m;
    const size_t halves = ((size_t)n * (size_t)m->stride * 2 + 255) / 256 * 256;
    uint8_t *space = (uint8_t *)kn_cuda_scratch_get(
        c, &c->activations, halves + (size_t)n * sizeof(float), "16-bit inputs");
    if (!space) return;
    __half *xh = (__half *)space;
    float *scale = (float *)(space + halves);
    launch(c, to_half, (unsigned)n, THREADS, x, m->cols, m->stride, xh, scale);
    int64_t part = m->rows;
    if (m->type != KN_F16 && part > WEIGHT_PART_BYTES / (2 * m->cols))
        part = WEIGHT_PART_BYTES / (2 * m->cols);
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
        multiply(c, CUDA_R_16F, w, m->stride, count, xh, m->stride, n, m->stride, false,
                 o->add ? product : y, o->add ? count : o->ld_y);
        if (o->add)
            launch(c, accumulate, ceil_div(n * count, 256), 256, product, count, n, scale, bias, y,
                   o->ld_y);
        else
            launch(c, finish, ceil_div(n * count, 256), 256, y, o->ld_y, count, n, scale, bias);
    }
}

void kn_cuda_gemm(kn_cuda *c, const float *x, int n, const kn_linear *out)
{
    if (out->w->m.type == KN_F32)
        gemm_float(c, x, n, out);
    else if (out->w->m.type == KN_BF16)
        gemm_bfloat(c, x, n, out);
    else
        gemm_half(c, x, n, out);
}

/* --- choosing --------------------------------------------------------------------------------- */

static bool by_gemm(const kn_cuda *c, const kn_weight *w, int n)
{
    const bool quantized = kn_type_get(w->m.type)->quantized;
    return !c->exact && !w->wide &&
           n > (quantized ? KN_CUDA_MATVEC_ROWS : KN_CUDA_MATVEC_FLOAT_ROWS);
}

void kn_cuda_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    int first = 0; /* of a run of outputs for matvec */
    for (int o = 0; o < n_outs; o++) {
        c->counters.weight_bytes += outs[o].w->bytes;
        c->counters.mac += (uint64_t)n * (uint64_t)outs[o].w->m.rows * (uint64_t)outs[o].w->m.cols;
        if (!by_gemm(c, outs[o].w, n)) continue;
        kn_cuda_matvec(c, x, n, outs + first, o - first);
        kn_cuda_gemm(c, x, n, &outs[o]);
        first = o + 1;
    }
    kn_cuda_matvec(c, x, n, outs + first, n_outs - first);
}
