#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* --- linear: a tile is a row as stored ------------------------------------------------------ */

static size_t tile_bytes(kn_type type, int64_t cols)
{
    return kn_row_bytes(type, cols);
}

static void pack_tile(const kn_matrix *m, int64_t first_row, void *dst)
{
    memcpy(dst, kn_matrix_row(m, first_row), kn_row_bytes(m->type, m->cols));
}

static void unpack_row(const kn_weight *w, int64_t row, float *dst)
{
    kn_dequantize(w->type, w->data + (size_t)row * w->tile_bytes, dst, w->cols);
}

/* Sums in eight strands, so that rounding errors stay small and the compiler may use vectors. */
static float dot(const float *a, const float *b, int64_t n)
{
    float s[8] = {0};
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int j = 0; j < 8; j++)
            s[j] += a[k + j] * b[k + j];
    for (int j = 0; k + j < n; j++)
        s[j] += a[k + j] * b[k + j];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void linear(const kn_linear *out, int64_t first_tile, int64_t end_tile,
                   const kn_activations *a, int first, int end, void *scratch)
{
    float *row = scratch;
    for (int64_t r = first_tile; r < end_tile; r++) {
        unpack_row(out->w, r, row);
        for (int i = first; i < end; i++) {
            float sum = dot(row, a->x + i * a->cols, a->cols);
            float *y = &out->y[i * out->ld_y + r];
            if (out->bias) sum += out->bias[r];
            *y = out->add ? *y + sum : sum;
        }
    }
}

/* --- rows ----------------------------------------------------------------------------------- */

static void rmsnorm(const float *x, const float *weight, float eps, int d, float *y)
{
    double squares = 0;
    for (int i = 0; i < d; i++)
        squares += (double)x[i] * x[i];
    float factor = 1.0f / sqrtf((float)(squares / d) + eps);
    for (int i = 0; i < d; i++)
        y[i] = x[i] * factor * weight[i];
}

static void rope(float *x, int n_heads, int head_dim, const float *cosines, const float *sines)
{
    int half = head_dim / 2;
    for (int h = 0; h < n_heads; h++, x += head_dim)
        for (int i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a * cosines[i] - b * sines[i];
            x[i + half] = a * sines[i] + b * cosines[i];
        }
}

static void swiglu(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void add(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* --- attention ------------------------------------------------------------------------------ */

float kn_ref_head_scale(const float *x, int d, float *inverse)
{
    float max = 0;
    bool finite = true;
    for (int i = 0; i < d; i++) {
        finite = finite && isfinite(x[i]);
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    }
    bool counts = finite && max >= KN_ACT_TINY;
    *inverse = counts ? 127.0f / max : 0;
    return !finite ? NAN : counts ? max / 127.0f : 0;
}

/* Stores x[d] at to, to + stride, ... (elements) of a head; returns the scale of KN_KV_Q8. */
static float store(const kn_kv *kv, uint8_t *to, size_t stride, const float *x)
{
    int d = kv->shape.head_dim;
    float inverse, scale = kn_ref_head_scale(x, d, &inverse);
    for (int i = 0; i < d; i++)
        if (kv->shape.type == KN_KV_Q8)
            ((int8_t *)to)[(size_t)i * stride] = (int8_t)(inverse > 0 ? lrintf(x[i] * inverse) : 0);
        else if (kv->shape.type == KN_KV_F16)
            ((uint16_t *)(void *)to)[(size_t)i * stride] = kn_f32_to_f16(x[i]);
        else
            ((float *)(void *)to)[(size_t)i * stride] = x[i];
    return scale;
}

/* An element as stored, but for KN_KV_Q8's scale. */
static float load(const kn_kv *kv, const uint8_t *head, size_t index)
{
    if (kv->shape.type == KN_KV_Q8) return (float)((const int8_t *)head)[index];
    if (kv->shape.type == KN_KV_F16)
        return kn_f16_to_f32(((const uint16_t *)(const void *)head)[index]);
    return ((const float *)(const void *)head)[index];
}

static void kv_write(const kn_kv *kv, int layer, int head, int32_t page, int slot, const float *k,
                     const float *v)
{
    size_t d = (size_t)kv->shape.head_dim, at = (size_t)slot;
    float k_scale = store(kv, kn_kv_k(kv, page, layer, head) + at * kv->element_bytes,
                          (size_t)kv->page_stride, k);
    float v_scale = store(kv, kn_kv_v(kv, page, layer, head) + at * d * kv->element_bytes, 1, v);
    if (kv->shape.type != KN_KV_Q8) return;
    kn_kv_k_scales(kv, page, layer, head)[slot] = k_scale;
    kn_kv_v_scales(kv, page, layer, head)[slot] = v_scale;
}

static float score(const kn_attend *a, const float *q, int32_t t)
{
    const kn_kv *kv = a->kv;
    int tokens = kv->shape.page_tokens;
    const uint8_t *k = kn_kv_k(kv, a->pages[t / tokens], a->layer, a->kv_head);
    float sum = 0;
    for (int i = 0; i < kv->shape.head_dim; i++)
        sum += q[i] * load(kv, k, (size_t)i * kv->page_stride + t % tokens);
    if (kv->shape.type == KN_KV_Q8)
        sum *= kn_kv_k_scales(kv, a->pages[t / tokens], a->layer, a->kv_head)[t % tokens];
    return sum / sqrtf((float)kv->shape.head_dim);
}

static void attend_one(const kn_attend *a, const float *q, int32_t end, float *partial)
{
    const kn_kv *kv = a->kv;
    int d = kv->shape.head_dim, tokens = kv->shape.page_tokens;
    float max = -INFINITY, sum = 0, *acc = partial + 2;
    for (int32_t t = a->first; t < end; t++) {
        a->scratch[t - a->first] = score(a, q, t);
        if (a->scratch[t - a->first] > max) max = a->scratch[t - a->first];
    }
    memset(acc, 0, (size_t)d * sizeof *acc);
    for (int32_t t = a->first; t < end; t++) {
        const uint8_t *v = kn_kv_v(kv, a->pages[t / tokens], a->layer, a->kv_head);
        float p = expf(a->scratch[t - a->first] - max);
        sum += p;
        if (kv->shape.type == KN_KV_Q8)
            p *= kn_kv_v_scales(kv, a->pages[t / tokens], a->layer, a->kv_head)[t % tokens];
        for (int i = 0; i < d; i++)
            acc[i] += p * load(kv, v, (size_t)(t % tokens) * d + i);
    }
    partial[0] = max;
    partial[1] = sum;
}

static void attend(const kn_attend *a)
{
    for (int j = 0; j < a->n_queries; j++)
        attend_one(a, a->q[j], a->limit[j] < a->end ? a->limit[j] + 1 : a->end, a->partial[j]);
}

/* --- adapters ------------------------------------------------------------------------------- */

static float element(kn_type type, const void *data, int64_t index)
{
    float value;
    kn_dequantize(type, (const uint8_t *)data + (size_t)index * kn_row_bytes(type, 1), &value, 1);
    return value;
}

static void adapt(const kn_adapt *a, float *scratch)
{
    const kn_adapter_weight *w = a->w;
    for (int i = 0; i < a->n; i++) {
        const float *x_row = a->x + a->rows[i] * w->in;
        float *y_row = a->y + a->rows[i] * a->ld_y;
        for (int r = 0; r < w->rank; r++) {
            float sum = 0;
            for (int64_t k = 0; k < w->in; k++)
                sum += element(w->type, w->a, r * w->in + k) * x_row[k];
            scratch[r] = w->bias ? sum + w->bias[r] : sum;
        }
        for (int64_t o = 0; o < w->out; o++) {
            float sum = 0;
            for (int r = 0; r < w->rank; r++)
                sum += element(w->type, w->b, r * w->out + o) * scratch[r];
            y_row[o] += w->scale * sum;
        }
    }
}

const kn_cpu_kernels kn_ref_kernels = {
    .isa = "ref",
    .tile_rows = 1,
    .tile_bytes = tile_bytes,
    .pack_tile = pack_tile,
    .unpack_row = unpack_row,
    .linear = linear,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .swiglu = swiglu,
    .add = add,
    .kv_write = kv_write,
    .attend = attend,
    .adapt = adapt,
};
