/* The paged store of keys and values: [page][layer][K, V][kv_head][token][head_dim]. */
#include "kernels/cuda/device.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>

#define THREADS 256

static kn_kv kv_layout(const kn_kv_shape *shape)
{
    kn_kv kv = {};
    kv.shape = *shape;
    kv.element = shape->type == KN_KV_F16 ? 2 : 4;
    kv.head_elements = (int64_t)shape->page_tokens * shape->head_dim;
    /* Every layer begins at a multiple of 16 bytes. */
    kv.layer_elements = (2 * shape->n_kv_heads * kv.head_elements + 7) / 8 * 8;
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
    if (shape->type != KN_KV_F32 && shape->type != KN_KV_F16) {
        snprintf(be->message, sizeof be->message,
                 "keys and values in 8 bits are the CPU's; choose f16 or f32 on a device");
        return NULL;
    }
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
    kn_cuda_free(kn_cuda_of(be), kv->data);
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

void kn_cuda_kv_copy(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens)
{
    kn_cuda *c = kn_cuda_of(be);
    const kn_kv_shape *s = &kv->shape;
    assert(src >= 0 && src < s->n_pages && dst >= 0 && dst < s->n_pages);
    assert(n_tokens <= s->page_tokens);
    if (src == dst || n_tokens <= 0) return;
    const int64_t token_elements = (int64_t)n_tokens * s->head_dim;
    const int heads = 2 * s->n_kv_heads;
    const int64_t count = token_elements * heads * s->n_layers;
    const int64_t from = src * kv->page_elements, to = dst * kv->page_elements;
    if (kv->element == 2)
        launch(c, copy_tokens<uint16_t>, ceil_div(count, THREADS), THREADS, (uint16_t *)kv->data,
               from, to, count, token_elements, kv->head_elements, heads, kv->layer_elements);
    else
        launch(c, copy_tokens<float>, ceil_div(count, THREADS), THREADS, (float *)kv->data, from,
               to, count, token_elements, kv->head_elements, heads, kv->layer_elements);
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct {
    void *data; /* of the layer in page 0 */
    int64_t page_elements, head_elements;
    int page_tokens, n_kv_heads, head_dim;
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
    if (w.table[row] < 0) return; /* a row that stands for nothing */
    const int position = w.positions[row];
    const int32_t page = w.pages[w.table[row] + position / w.page_tokens];
    T *to = (T *)w.data + page * w.page_elements + head * w.head_elements +
            (int64_t)(position % w.page_tokens) * w.head_dim + element;
    put(to, k[i]);
    put(to + w.n_kv_heads * w.head_elements, v[i]);
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
                     r.positions,
                     r.table,
                     r.pages};
    if (s->type == KN_KV_F16)
        launch(c, write_tokens<__half>, ceil_div(count, THREADS), THREADS, w, k, v, count);
    else
        launch(c, write_tokens<float>, ceil_div(count, THREADS), THREADS, w, k, v, count);
}
