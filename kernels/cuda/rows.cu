/* Operations that treat each row by itself, and rotary embedding. */
#include "kernels/cuda/device.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#define THREADS 256

/* --- norm ------------------------------------------------------------------------------------- */

/* A warp per row: rows of a head. */
static __global__ void __launch_bounds__(THREADS)
    rmsnorm_warp(const float *x, const float *weight, float eps, int n, int d, float *y)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= n) return; /* the whole warp */
    x += row * d;
    y += row * d;
    float squares = 0;
    for (int k = lane; k < d; k += 32)
        squares = fmaf(x[k], x[k], squares);
    const float factor = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
    for (int k = lane; k < d; k += 32)
        y[k] = x[k] * factor * weight[k];
}

/* A block per row. */
static __global__ void __launch_bounds__(THREADS)
    rmsnorm_block(const float *x, const float *weight, float eps, int d, float *y)
{
    __shared__ float scratch[THREADS / 32];
    x += (int64_t)blockIdx.x * d;
    y += (int64_t)blockIdx.x * d;
    float squares = 0;
    for (int k = (int)threadIdx.x; k < d; k += THREADS)
        squares = fmaf(x[k], x[k], squares);
    const float factor = 1.0f / sqrtf(block_sum<THREADS>(squares, scratch) / (float)d + eps);
    for (int k = (int)threadIdx.x; k < d; k += THREADS)
        y[k] = x[k] * factor * weight[k];
}

void kn_cuda_rmsnorm(kn_backend *be, const float *x, const float *weight, float eps, int n, int d,
                     float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    if (n <= 0) return;
    if (d <= 256)
        launch(c, rmsnorm_warp, ceil_div(n, THREADS / 32), THREADS, x, weight, eps, n, d, y);
    else
        launch(c, rmsnorm_block, (unsigned)n, THREADS, x, weight, eps, d, y);
}

/* --- element by element ----------------------------------------------------------------------- */

static __global__ void swiglu(const float *gate, const float *up, int64_t count, float *y)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static __global__ void add(const float *x, int64_t count, float *y)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] += x[i];
}

static __global__ void gather(const float *x, const int32_t *rows, int64_t count, int d, float *y)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[rows[i / d] * (int64_t)d + i % d];
}

void kn_cuda_swiglu(kn_backend *be, const float *gate, const float *up, int n, int d, float *y)
{
    const int64_t count = (int64_t)n * d;
    launch(kn_cuda_of(be), swiglu, ceil_div(count, THREADS), THREADS, gate, up, count, y);
}

void kn_cuda_add(kn_backend *be, const float *x, int n, int d, float *y)
{
    const int64_t count = (int64_t)n * d;
    launch(kn_cuda_of(be), add, ceil_div(count, THREADS), THREADS, x, count, y);
}

void kn_cuda_gather(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    const int64_t count = (int64_t)n * d;
    const int32_t *device_rows = n > 0 ? kn_cuda_ints(c, rows, n) : NULL;
    if (device_rows)
        launch(c, gather, ceil_div(count, THREADS), THREADS, x, device_rows, count, d, y);
}

/* --- rotary embedding ------------------------------------------------------------------------- */

/* table[i, j] = cosine and sine of positions[i] * inv_freq[j], computed in double. */
static __global__ void rope_table(const int32_t *positions, const double *inv_freq, int64_t count,
                                  int pairs, float2 *table)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double angle = positions[i / pairs] * inv_freq[i % pairs];
    table[i] = make_float2((float)cos(angle), (float)sin(angle));
}

/* A thread per pair. sign -1: back by the same angle. */
static __global__ void rotate(float *x, int64_t count, int n_heads, int pairs, const float2 *table,
                              float sign)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int64_t head = i / pairs, pair = i % pairs, row = head / n_heads;
    const float2 t = table[row * pairs + pair];
    float *p = x + head * 2 * pairs + pair;
    const float a = p[0], b = p[pairs], s = sign * t.y;
    p[0] = a * t.x - b * s;
    p[pairs] = a * s + b * t.x;
}

/* The model's frequencies stay on the device: every call of a backend uses the same. */
static const double *frequencies(kn_cuda *c, const double *inv_freq, int pairs)
{
    const size_t bytes = (size_t)pairs * sizeof *inv_freq;
    if (c->freq_half == pairs && memcmp(c->freq_key, inv_freq, bytes) == 0)
        return (const double *)c->rope_freq.data;
    free(c->freq_key);
    c->freq_half = 0;
    c->freq_key = (double *)malloc(bytes ? bytes : 1);
    double *p = (double *)kn_cuda_scratch_get(c, &c->rope_freq, bytes, "rotary frequencies");
    void *sent = p ? kn_cuda_ring(c, bytes) : NULL;
    if (!c->freq_key || !sent) return NULL;
    memcpy(c->freq_key, inv_freq, bytes);
    memcpy(sent, inv_freq, bytes);
    kn_cuda_send_to(c, p, sent, bytes);
    c->freq_half = pairs;
    c->table_positions = NULL;
    return p;
}

/* The angles of a step are computed once: q and k of every layer use them. */
static const float2 *angles(kn_cuda *c, const kn_rope *rope, int n, const int32_t *positions)
{
    const int pairs = rope->head_dim / 2;
    const bool same_freq =
        c->freq_half == pairs && memcmp(c->freq_key, rope->inv_freq, (size_t)pairs * 8) == 0;
    if (c->in_step && same_freq && c->table_positions == positions && c->table_rows >= n)
        return (const float2 *)c->rope_table.data;
    const double *freq = frequencies(c, rope->inv_freq, pairs);
    const int32_t *device_positions = freq ? kn_cuda_ints(c, positions, n) : NULL;
    float2 *table = device_positions
                        ? (float2 *)kn_cuda_scratch_get(
                              c, &c->rope_table, (size_t)n * pairs * sizeof *table, "rotary angles")
                        : NULL;
    if (!table) return NULL;
    const int64_t count = (int64_t)n * pairs;
    launch(c, rope_table, ceil_div(count, THREADS), THREADS, device_positions, freq, count, pairs,
           table);
    c->table_positions = positions;
    c->table_rows = n;
    return table;
}

void kn_cuda_rotate(kn_cuda *c, const kn_rope *rope, float *x, int n, int n_heads,
                    const int32_t *positions, bool backward)
{
    if (n <= 0) return;
    const int pairs = rope->head_dim / 2;
    const float2 *table = angles(c, rope, n, positions);
    if (!table) return;
    const int64_t count = (int64_t)n * n_heads * pairs;
    launch(c, rotate, ceil_div(count, THREADS), THREADS, x, count, n_heads, pairs, table,
           backward ? -1.0f : 1.0f);
}

void kn_cuda_rope(kn_backend *be, const kn_rope *rope, float *x, int n, int n_heads,
                  const int32_t *positions)
{
    kn_cuda_rotate(kn_cuda_of(be), rope, x, n, n_heads, positions, false);
}
