/* Weights: brought to the device as they lie in the file and spread into planes there; turned back
 * into floats. */
#include "kernels/cuda/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

/* --- packing ---------------------------------------------------------------------------------- */

/* Rows of a file on the device, and where they belong. */
typedef struct {
    const uint8_t *data;
    int64_t first, count; /* file rows */
    int64_t row_bytes;
    int head_rows; /* 0: plain order */
} raw_rows;

/* Row of the plain order of file row f. */
static __device__ int64_t plain_row(const raw_rows &raw, int64_t f)
{
    if (raw.head_rows == 0) return f;
    int64_t head = f / raw.head_rows, i = f % raw.head_rows;
    return head * raw.head_rows + i / 2 + (i % 2 ? raw.head_rows / 2 : 0);
}

static __device__ uint32_t raw_half(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static __device__ uint32_t raw_word(const uint8_t *p)
{
    return raw_half(p) | raw_half(p + 2) << 16;
}

static __device__ void raise(unsigned *largest, float value)
{
    /* Order of non-negative floats is that of their bits; a NaN is above all. */
    atomicMax(largest, __float_as_uint(fabsf(value)));
}

/* A block of 32 columns: Q8_0, Q4_0, Q4_1. */
static __device__ void pack_block32(const kn_cuda_matrix &m, const uint8_t *block, int64_t at,
                                    unsigned *largest)
{
    uint8_t *codes = (uint8_t *)m.codes, *scales = (uint8_t *)m.scales;
    float d = f16_value(raw_half(block));
    if (m.type == KN_Q4_1) {
        float min = f16_value(raw_half(block + 2));
        ((uint32_t *)scales)[at] = raw_word(block);
        raise(largest, fabsf(d) * 15 + fabsf(min));
    } else {
        ((uint16_t *)scales)[at] = (uint16_t)raw_half(block);
        raise(largest, d * (m.type == KN_Q8_0 ? 128.0f : 8.0f));
    }
    const int bytes = m.type == KN_Q8_0 ? 32 : 16;
    const uint8_t *src = block + (m.type == KN_Q4_1 ? 4 : 2);
    for (int i = 0; i < bytes; i += 4)
        ((uint32_t *)(codes + at * bytes))[i / 4] = raw_word(src + i);
}

/* Group j of a block of 256 columns: Q4_K, Q5_K. The file has the nibbles of two groups in 32
 * bytes, this one's all low or all high. */
static __device__ void pack_k_group(const kn_cuda_matrix &m, const uint8_t *block, int64_t at,
                                    int j, unsigned *largest)
{
    const uint8_t *low = block + (m.type == KN_Q5_K ? 48 : 16) + (j / 2) * 32;
    uint8_t *codes = (uint8_t *)m.codes + at * 16;
    for (int i = 0; i < 16; i++) {
        int first = (low[i] >> 4 * (j & 1)) & 15, second = (low[i + 16] >> 4 * (j & 1)) & 15;
        codes[i] = (uint8_t)(first | second << 4);
    }
    if (m.type == KN_Q5_K) {
        uint32_t bits = 0;
        for (int i = 0; i < 32; i++)
            bits |= (uint32_t)((block[16 + i] >> j) & 1) << i;
        ((uint32_t *)m.high)[at] = bits;
    }
    if (j > 0) return;
    uint32_t *header = (uint32_t *)m.scales + at / 8 * 4;
    for (int i = 0; i < 4; i++)
        header[i] = raw_word(block + 4 * i);
    raise(largest, fabsf(f16_value(raw_half(block))) * 63 * (m.type == KN_Q5_K ? 31 : 15) +
                       fabsf(f16_value(raw_half(block + 2))) * 63);
}

/* Group j of a Q6_K block. Columns of a half block of 128: 0..31 low nibbles of bytes 0..31, 32..63
 * of bytes 32..63, 64..127 their high nibbles; the pairs of bits lie in 32 bytes, two bits per
 * quarter. */
static __device__ void pack_q6_k_group(const kn_cuda_matrix &m, const uint8_t *block, int64_t at,
                                       int j, unsigned *largest)
{
    const int quarter = j % 4;
    const uint8_t *low = block + (j / 4) * 64 + (quarter & 1) * 32;
    const uint8_t *high = block + 128 + (j / 4) * 32;
    uint8_t *codes = (uint8_t *)m.codes + at * 16;
    uint32_t pairs[2] = {0, 0};
    for (int i = 0; i < 16; i++) {
        int shift = quarter >= 2 ? 4 : 0;
        codes[i] = (uint8_t)(((low[i] >> shift) & 15) | ((low[i + 16] >> shift) & 15) << 4);
    }
    for (int i = 0; i < 32; i++) {
        uint32_t two = (uint32_t)(high[i] >> 2 * quarter) & 3u;
        pairs[i / 16] |= two << (8 * (i % 4) + 2 * (i % 16 / 4));
    }
    ((uint32_t *)m.high)[2 * at] = pairs[0];
    ((uint32_t *)m.high)[2 * at + 1] = pairs[1];
    ((uint16_t *)m.scales)[at] = (uint16_t)raw_half(block + 192 + 2 * j);
    if (j > 0) return;
    ((uint16_t *)m.super)[at / 8] = (uint16_t)raw_half(block + 208);
    raise(largest, f16_value(raw_half(block + 208)) * 128 * 32);
}

/* One thread per group of a file row. */
static __global__ void pack_quantized(kn_cuda_matrix m, raw_rows raw, unsigned *largest)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= raw.count * m.groups) return;
    const int64_t r = i / m.groups;
    const int g = (int)(i % m.groups);
    const int64_t at = plain_row(raw, raw.first + r) * m.groups + g;
    const uint8_t *row = raw.data + r * raw.row_bytes;
    switch (m.type) {
    case KN_Q4_K:
        pack_k_group(m, row + (int64_t)(g / 8) * 144, at, g % 8, largest);
        break;
    case KN_Q5_K:
        pack_k_group(m, row + (int64_t)(g / 8) * 176, at, g % 8, largest);
        break;
    case KN_Q6_K:
        pack_q6_k_group(m, row + (int64_t)(g / 8) * 210, at, g % 8, largest);
        break;
    default:
        pack_block32(m, row + g * (raw.row_bytes / m.groups), at, largest);
    }
}

/* One thread per element of a padded row. */
static __global__ void pack_floats(kn_cuda_matrix m, raw_rows raw, unsigned *largest)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= raw.count * m.stride) return;
    const int64_t r = i / m.stride, column = i % m.stride;
    const int64_t at = plain_row(raw, raw.first + r) * m.stride + column;
    const uint8_t *row = raw.data + r * raw.row_bytes;
    if (m.type == KN_F32)
        ((uint32_t *)m.codes)[at] = column < m.cols ? raw_word(row + 4 * column) : 0;
    else
        ((uint16_t *)m.codes)[at] = (uint16_t)(column < m.cols ? raw_half(row + 2 * column) : 0);
    (void)largest;
}

/* Sizes of the planes in bytes: codes, high, scales, super. */
static void plane_bytes(const kn_cuda_matrix *m, size_t bytes[4])
{
    const size_t groups = (size_t)m->rows * (size_t)m->groups;
    const size_t code = m->type == KN_Q8_0 ? 32 : 16;
    const size_t scale[KN_TYPE_COUNT] = {0, 0, 0, 2, 2, 4, 2, 2, 2}; /* K: 16 per 8 groups */
    bytes[0] = groups * code;
    bytes[1] = m->type == KN_Q5_K ? groups * 4 : m->type == KN_Q6_K ? groups * 8 : 0;
    bytes[2] = groups * scale[m->type];
    bytes[3] = m->type == KN_Q6_K ? groups / 8 * 2 : 0;
    if (!kn_type_get(m->type)->quantized) {
        bytes[0] = (size_t)m->rows * (size_t)m->stride * (m->type == KN_F32 ? 4 : 2);
        bytes[2] = 0;
    }
    for (int i = 0; i < 4; i++)
        bytes[i] = (bytes[i] + 255) / 256 * 256;
}

static bool place_planes(kn_cuda *c, kn_weight *w)
{
    size_t bytes[4];
    plane_bytes(&w->m, bytes);
    w->bytes = bytes[0] + bytes[1] + bytes[2] + bytes[3];
    w->block = kn_cuda_alloc(c, w->bytes, "a weight matrix");
    if (!w->block) return false;
    w->m.codes = (const uint8_t *)w->block;
    w->m.high = w->m.codes + bytes[0];
    w->m.scales = w->m.high + bytes[1];
    w->m.super = w->m.scales + bytes[2];
    return true;
}

/* Rows in pieces through the ring. */
static bool send_rows(kn_cuda *c, kn_weight *w, const kn_matrix *m, unsigned *largest)
{
    const size_t row_bytes = kn_row_bytes(m->type, m->cols);
    const size_t most = c->ring_bytes / 4;
    int64_t part = row_bytes ? (int64_t)(most / row_bytes) : m->rows;
    if (part < 1) {
        kn_cuda_fail(c, "a weight row of %zu bytes: at most %zu are possible", row_bytes, most);
        return false;
    }
    const bool quantized = kn_type_get(m->type)->quantized;
    const int64_t per_row = quantized ? w->m.groups : w->m.stride;
    for (int64_t first = 0; first < m->rows && !c->failed; first += part) {
        int64_t count = m->rows - first < part ? m->rows - first : part;
        const uint8_t *src = (const uint8_t *)m->data + (size_t)first * row_bytes;
        raw_rows raw = {NULL, first, count, (int64_t)row_bytes,
                        m->order == KN_ROWS_ROPE_PAIRS ? m->head_rows : 0};
        raw.data = (const uint8_t *)kn_cuda_stage(c, src, (size_t)count * row_bytes);
        if (!raw.data) break;
        launch(c, quantized ? pack_quantized : pack_floats, ceil_div(count * per_row, 128), 128,
               w->m, raw, largest);
    }
    return !c->failed;
}

kn_weight *kn_cuda_weight_create(kn_backend *be, const kn_matrix *m)
{
    kn_cuda *c = kn_cuda_of(be);
    if (!kn_cuda_recover(be)) return NULL;
    unsigned bits = 0;
    float value;
    kn_weight *w = (kn_weight *)calloc(1, sizeof *w);
    unsigned *largest = (unsigned *)kn_cuda_scratch_get(c, &c->raw, 256, "packing weights");
    if (!w || !largest) goto failed;
    w->m.type = m->type;
    w->m.rows = m->rows;
    w->m.cols = m->cols;
    if (kn_type_get(m->type)->quantized) {
        w->m.groups = (int)(m->cols / 32);
        w->m.stride = m->cols;
    } else {
        const int64_t unit = m->type == KN_F32 ? 4 : 8;
        w->m.stride = (m->cols + unit - 1) / unit * unit;
    }
    if (!place_planes(c, w)) goto failed;
    kn_cuda_check(c, cudaMemsetAsync(largest, 0, sizeof *largest, c->stream), "clearing memory");
    if (!send_rows(c, w, m, largest)) goto failed;
    kn_cuda_download(be, &bits, largest, sizeof bits);
    if (c->failed) goto failed;
    memcpy(&value, &bits, sizeof value);
    w->wide = !(value < 6.0e4f); /* a NaN too */
    return w;
failed:
    kn_cuda_weight_free(be, w);
    return NULL;
}

void kn_cuda_weight_free(kn_backend *be, kn_weight *w)
{
    if (!w) return;
    kn_cuda_free(kn_cuda_of(be), w->block);
    free(w);
}

size_t kn_cuda_weight_bytes(const kn_weight *w)
{
    return w->bytes;
}

/* --- back to floats --------------------------------------------------------------------------- */

static __device__ __forceinline__ void put(float *dst, int64_t i, float value)
{
    dst[i] = value;
}

static __device__ __forceinline__ void put(__half *dst, int64_t i, float value)
{
    dst[i] = __float2half(value);
}

template <kn_type TYPE, typename OUT>
static __device__ void put_group(const kn_cuda_matrix &m, int64_t row, int g, OUT *dst)
{
    kn_cuda_group group;
    load_group<TYPE>(m, row, g, &group);
#pragma unroll
    for (int i = 0; i < 32; i++)
        put(dst, i, group_value<TYPE>(group, i));
}

/* One thread per group of 32 columns (floats: per 32 columns or what is left of them). Row i is
 * ids[i], or first + i without ids. */
template <kn_type TYPE, typename OUT>
static __global__ void dequantize(kn_cuda_matrix m, const int32_t *ids, int64_t first,
                                  int64_t count, OUT *dst)
{
    const int64_t groups = (m.cols + 31) / 32;
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count * groups) return;
    const int64_t i = at / groups, row = ids ? ids[i] : first + i;
    const int g = (int)(at % groups);
    OUT *to = dst + i * m.cols + (int64_t)g * 32;
    if constexpr (TYPE <= KN_BF16) {
        const int64_t end = m.cols - (int64_t)g * 32;
        for (int k = 0; k < 32 && k < end; k++)
            put(to, k, float_at(TYPE, m.codes, row * m.stride + (int64_t)g * 32 + k));
    } else {
        put_group<TYPE, OUT>(m, row, g, to);
    }
}

template <typename OUT>
static void dequantize_rows(kn_cuda *c, const kn_cuda_matrix *m, const int32_t *ids, int64_t first,
                            int64_t count, OUT *dst)
{
    typedef void kernel(kn_cuda_matrix, const int32_t *, int64_t, int64_t, OUT *);
    static kernel *const kernels[KN_TYPE_COUNT] = {
        dequantize<KN_F32, OUT>,  dequantize<KN_F16, OUT>,  dequantize<KN_BF16, OUT>,
        dequantize<KN_Q8_0, OUT>, dequantize<KN_Q4_0, OUT>, dequantize<KN_Q4_1, OUT>,
        dequantize<KN_Q4_K, OUT>, dequantize<KN_Q5_K, OUT>, dequantize<KN_Q6_K, OUT>};
    launch(c, kernels[m->type], ceil_div(count * ((m->cols + 31) / 32), 128), 128, *m, ids, first,
           count, dst);
}

void kn_cuda_dequantize_half(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count,
                             __half *dst)
{
    dequantize_rows(c, m, NULL, first, count, dst);
}

void kn_cuda_dequantize_float(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count,
                              float *dst)
{
    dequantize_rows(c, m, NULL, first, count, dst);
}

void kn_cuda_weight_rows(kn_backend *be, const kn_weight *w, int64_t first, int64_t count,
                         float *dst)
{
    dequantize_rows(kn_cuda_of(be), &w->m, NULL, first, count, dst);
}

void kn_cuda_embed(kn_backend *be, const kn_weight *w, const int32_t *ids, int n, float *y)
{
    kn_cuda *c = kn_cuda_of(be);
    const int32_t *device_ids = n > 0 ? kn_cuda_ints(c, ids, n) : NULL;
    if (device_ids) dequantize_rows(c, &w->m, device_ids, 0, n, y);
}
