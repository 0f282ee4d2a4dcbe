/* The paged store of keys and values: [page][layer][K, V][kv_head][token][head_dim], and with 8
 * bits the scales of a layer's vectors after its codes. */
#include "kernels/cuda/device.h"

#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#define THREADS 256
/* A vector whose largest value is below this counts as zero: its reciprocal could overflow. */
#define TINY 0x1p-100f

static kn_kv kv_layout(const kn_kv_shape *shape)
{
    kn_kv kv = {};
    kv.shape = *shape;
    static const size_t elements[] = {4, 2, 1}; /* KN_KV_F32, KN_KV_F16, KN_KV_Q8 */
    kv.element = elements[shape->type];
    kv.head_elements = (int64_t)shape->page_tokens * shape->head_dim;
    /* Every layer, and its scales, begin at a multiple of 16 bytes. */
    kv.layer_elements = (2 * shape->n_kv_heads * kv.head_elements + 15) / 16 * 16;
    if (shape->type == KN_KV_Q8) {
        const int64_t vectors = 2 * (int64_t)shape->n_kv_heads * shape->page_tokens;
        kv.scales_at = kv.layer_elements;
        kv.layer_elements += (vectors + 3) / 4 * 16;
    }
    kv.page_elements = kv.layer_elements * shape->n_layers;
    return kv;
}

size_t kn_cuda_kv_page_bytes(kn_backend *be, const kn_kv_shape *shape)
{
    (void)be;
    const kn_kv kv = kv_layout(shape);
    return (size_t)kv.page_elements * kv.element;
}

kn_kv *kn_cuda_kv_create(kn_backend *be, const kn_kv_shape *shape)
{
    assert(shape->n_layers > 0 && shape->n_kv_heads > 0 && shape->head_dim > 0 &&
           shape->head_dim <= KN_MAX_HEAD_DIM && shape->head_dim % 2 == 0 &&
           shape->page_tokens > 0 && shape->n_pages > 0);
    kn_cuda *c = kn_cuda_of(be);
    kn_kv *kv = (kn_kv *)calloc(1, sizeof *kv);
    if (!kv) {
        snprintf(be->message, sizeof be->message, "out of memory");
        return NULL;
    }
    *kv = kv_layout(shape);
    const size_t bytes = (size_t)kv->page_elements * kv->element * (size_t)shape->n_pages;
    kv->data = (uint8_t *)kn_cuda_alloc(c, bytes, "the pages of keys and values");
    if (kv->data &&
        kn_cuda_check(c, cudaMemsetAsync(kv->data, 0, bytes, c->stream), "clearing pages"))
        return kv;
    kn_cuda_kv_free(be, kv);
    return NULL;
}

void kn_cuda_kv_free(kn_backend *be, kn_kv *kv)
{
    if (!kv) return;
    kn_cuda_wipe_free(kn_cuda_of(be), kv->data,
                      (size_t)kv->page_elements * kv->element * (size_t)kv->shape.n_pages);
    free(kv);
}

void kn_cuda_kv_clear(kn_backend *be, kn_kv *kv, int32_t page)
{
    kn_cuda *c = kn_cuda_of(be);
    const size_t bytes = (size_t)kv->page_elements * kv->element;
    assert(page >= 0 && page < kv->shape.n_pages);
    kn_cuda_check(c, cudaMemsetAsync(kv->data + (size_t)page * bytes, 0, bytes, c->stream),
                  "clearing a page");
}

/* A thread per element of the first tokens of every head of every layer. */
template <typename T>
static __global__ void copy_tokens(T *data, int64_t src, int64_t dst, int64_t count,
                                   int64_t token_elements, int64_t head_elements, int heads,
                                   int64_t layer_elements)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int64_t head = i / token_elements, layer = head / heads;
    const int64_t at = layer * layer_elements + head % heads * head_elements + i % token_elements;
    data[dst + at] = data[src + at];
}

/* The first tokens' vectors of width elements in all heads and layers of a page; at: the first
 * vector of the page, layer_elements: from layer to layer, in elements of T. */
template <typename T>
static void copy_vectors(kn_cuda *c, kn_kv *kv, int32_t src, int32_t dst, int n_tokens, int width,
                         int64_t at)
{
    const kn_kv_shape *s = &kv->shape;
    const int64_t unit = (int64_t)(sizeof(T) / kv->element);
    const int64_t token_elements = (int64_t)n_tokens * width;
    const int heads = 2 * s->n_kv_heads;
    const int64_t count = token_elements * heads * s->n_layers;
    launch(c, copy_tokens<T>, ceil_div(count, THREADS), THREADS, (T *)kv->data,
           (src * kv->page_elements + at) / unit, (dst * kv->page_elements + at) / unit, count,
           token_elements, (int64_t)s->page_tokens * width, heads, kv->layer_elements / unit);
}

void kn_cuda_kv_copy(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens)
{
    kn_cuda *c = kn_cuda_of(be);
    const kn_kv_shape *s = &kv->shape;
    assert(src >= 0 && src < s->n_pages && dst >= 0 && dst < s->n_pages);
    assert(n_tokens <= s->page_tokens);
    if (src == dst || n_tokens <= 0) return;
    if (s->type == KN_KV_F32)
        copy_vectors<float>(c, kv, src, dst, n_tokens, s->head_dim, 0);
    else if (s->type == KN_KV_F16)
        copy_vectors<uint16_t>(c, kv, src, dst, n_tokens, s->head_dim, 0);
    else
        copy_vectors<uint8_t>(c, kv, src, dst, n_tokens, s->head_dim, 0);
    if (kv->scales_at > 0) copy_vectors<float>(c, kv, src, dst, n_tokens, 1, kv->scales_at);
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct {
    void *data; /* of the layer in page 0 */
    int64_t page_elements, head_elements;
    int page_tokens, n_kv_heads, head_dim;
    int64_t scales_at;
    const int32_t *positions, *table, *pages;
} write_place;

static __device__ __forceinline__ void put(float *p, float value)
{
    *p = value;
}

static __device__ __forceinline__ void put(__half *p, float value)
{
    *p = __float2half(value);
}

/* A thread per element of a row's keys; it stores the value too. */
template <typename T>
static __global__ void write_tokens(write_place w, const float *k, const float *v, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int width = w.n_kv_heads * w.head_dim;
    const int64_t row = i / width;
    const int head = (int)(i % width) / w.head_dim, element = (int)(i % width) % w.head_dim;
    if (w.table[row] < 0) return; /* a padding row */
    const int position = w.positions[row];
    const int32_t page = w.pages[w.table[row] + position / w.page_tokens];
    T *to = (T *)w.data + page * w.page_elements + head * w.head_elements +
            (int64_t)(position % w.page_tokens) * w.head_dim + element;
    put(to, k[i]);
    put(to + w.n_kv_heads * w.head_elements, v[i]);
}

/* A warp per key of a row, then one per value: the vector's scale and its codes. */
static __global__ void __launch_bounds__(THREADS)
    write_quantized(write_place w, const float *k, const float *v, int64_t n_keys)
{
    const int lane = (int)threadIdx.x % 32, d = w.head_dim;
    const int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (i >= 2 * n_keys) return; /* the whole warp, as below */
    const int part = i >= n_keys;
    const int64_t vector = i - part * n_keys, row = vector / w.n_kv_heads;
    const int head = (int)(vector % w.n_kv_heads);
    if (w.table[row] < 0) return;
    const float *from = (part ? v : k) + vector * d;
    float max = 0;
    bool finite = true;
    for (int j = lane; j < d; j += 32) {
        const float size = fabsf(from[j]);
        finite = finite && size < INFINITY;
        max = fmaxf(max, size);
    }
    finite = __all_sync(FULL_WARP, finite);
    max = warp_max(max);
    const bool counts = finite && max >= TINY;
    const float inverse = counts ? 127.0f / max : 0;
    const int slot = w.positions[row] % w.page_tokens;
    uint8_t *layer = (uint8_t *)w.data +
                     w.pages[w.table[row] + w.positions[row] / w.page_tokens] * w.page_elements;
    const int64_t place = (int64_t)part * w.n_kv_heads + head;
    int8_t *to = (int8_t *)layer + place * w.head_elements + (int64_t)slot * d;
    for (int j = lane; j < d; j += 32)
        to[j] = (int8_t)(counts ? __float2int_rn(from[j] * inverse) : 0);
    if (lane > 0) return;
    float *scales = (float *)(layer + w.scales_at);
    scales[place * w.page_tokens + slot] = !finite ? NAN : counts ? max / 127.0f : 0;
}

void kn_cuda_kv_write(kn_backend *be, kn_kv *kv, int layer, const float *k, const float *v,
                      const kn_kv_row *rows, int n)
{
    kn_cuda *c = kn_cuda_of(be);
    const kn_kv_shape *s = &kv->shape;
    kn_cuda_rows r;
    if (n <= 0 || !kn_cuda_rows_of(c, kv, rows, n, &r)) return;
    const int64_t count = (int64_t)n * s->n_kv_heads * s->head_dim;
    write_place w = {kv->data + (size_t)(layer * kv->layer_elements) * kv->element,
                     kv->page_elements,
                     kv->head_elements,
                     s->page_tokens,
                     s->n_kv_heads,
                     s->head_dim,
                     kv->scales_at,
                     r.positions,
                     r.table,
                     r.pages};
    const int64_t n_keys = (int64_t)n * s->n_kv_heads;
    if (s->type == KN_KV_Q8)
        launch(c, write_quantized, ceil_div(2 * n_keys, THREADS / 32), THREADS, w, k, v, n_keys);
    else if (s->type == KN_KV_F16)
        launch(c, write_tokens<__half>, ceil_div(count, THREADS), THREADS, w, k, v, count);
    else
        launch(c, write_tokens<float>, ceil_div(count, THREADS), THREADS, w, k, v, count);
}
