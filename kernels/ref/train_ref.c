/* Training operations in plain C, one thread, sums in double: the definition that every fast path
 * is tested against. Never deleted. */
#include "train_ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scratch memory; the reference path has no caller that could go on without it. */
static void *scratch(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) abort();
    return p;
}

static void linear_backward(kn_backend *be, const kn_linear_grad *outs, int n_outs, int n,
                            int64_t cols, bool add, float *d_x)
{
    double *sum = scratch((size_t)(n * cols), sizeof *sum);
    float *row = scratch((size_t)cols, sizeof *row);
    for (int o = 0; o < n_outs; o++) {
        for (int64_t r = 0; r < outs[o].rows; r++) {
            be->ops->weight_rows(be, outs[o].w, r, 1, row);
            for (int t = 0; t < n; t++) {
                double g = outs[o].d_y[t * outs[o].ld + r];
                for (int64_t c = 0; c < cols; c++)
                    sum[t * cols + c] += g * row[c];
            }
        }
    }
    for (int64_t i = 0; i < n * cols; i++)
        d_x[i] = (float)(sum[i] + (add ? d_x[i] : 0));
    free(row);
    free(sum);
}

/* y_j = x_j w_j / s, s = sqrt(mean x^2 + eps):
 * d_x_j = w_j d_y_j / s - x_j (sum_i d_y_i w_i x_i) / (d s^3). */
static void rmsnorm_backward(kn_backend *be, const float *x, const float *weight, float eps,
                             const float *d_y, int n, int d, float *d_x)
{
    (void)be;
    for (int t = 0; t < n; t++, x += d, d_y += d, d_x += d) {
        double square = 0, dot = 0;
        for (int j = 0; j < d; j++) {
            square += (double)x[j] * x[j];
            dot += (double)d_y[j] * weight[j] * x[j];
        }
        double s = sqrt(square / d + (double)eps);
        for (int j = 0; j < d; j++)
            d_x[j] =
                (float)(d_x[j] + weight[j] * (double)d_y[j] / s - x[j] * dot / (d * s * s * s));
    }
}

static void rope_backward(kn_backend *be, const kn_rope *rope, float *d_x, int n, int n_heads,
                          const int32_t *positions)
{
    (void)be;
    int half = rope->head_dim / 2;
    for (int t = 0; t < n; t++) {
        for (int h = 0; h < n_heads; h++, d_x += rope->head_dim) {
            for (int i = 0; i < half; i++) {
                double angle = positions[t] * rope->inv_freq[i];
                double a = d_x[i], b = d_x[i + half];
                d_x[i] = (float)(a * cos(angle) + b * sin(angle));
                d_x[i + half] = (float)(b * cos(angle) - a * sin(angle));
            }
        }
    }
}

static void swiglu_backward(kn_backend *be, const float *gate, const float *up, const float *d_y,
                            int n, int d, float *d_gate, float *d_up)
{
    (void)be;
    for (int64_t i = 0; i < (int64_t)n * d; i++) {
        double g = gate[i], u = up[i], dy = d_y[i];
        double sigmoid = 1 / (1 + exp(-g));
        d_gate[i] = (float)(dy * u * sigmoid * (1 + g * (1 - sigmoid)));
        d_up[i] = (float)(dy * g * sigmoid);
    }
}

/* Addresses of one head inside a sequence of a batch. */
typedef struct {
    int64_t q_ld, kv_ld; /* floats from one token to the next */
    int64_t q, kv;       /* offset of the head's first token */
} head_place;

static head_place place_head(const kn_heads *s, const kn_span *span, int head)
{
    head_place p = {.q_ld = (int64_t)s->n_heads * s->head_dim,
                    .kv_ld = (int64_t)s->n_kv_heads * s->head_dim};
    int kv_head = head / (s->n_heads / s->n_kv_heads);
    p.q = span->first * p.q_ld + (int64_t)head * s->head_dim;
    p.kv = span->first * p.kv_ld + (int64_t)kv_head * s->head_dim;
    return p;
}

/* p[0..t] = softmax of q . k_j / sqrt(head_dim). */
static void attention_row(const float *q, const float *k, int64_t kv_ld, int head_dim, int t,
                          double *p)
{
    double most = -INFINITY, total = 0;
    for (int j = 0; j <= t; j++) {
        double dot = 0;
        for (int i = 0; i < head_dim; i++)
            dot += (double)q[i] * k[j * kv_ld + i];
        p[j] = dot / sqrt(head_dim);
        if (p[j] > most) most = p[j];
    }
    for (int j = 0; j <= t; j++)
        total += p[j] = exp(p[j] - most);
    for (int j = 0; j <= t; j++)
        p[j] /= total;
}

static void attention_head(const kn_heads *s, const kn_span *span, int head, const float *q,
                           const float *k, const float *v, float *y)
{
    head_place at = place_head(s, span, head);
    double *p = scratch((size_t)span->length, sizeof *p);
    for (int t = 0; t < span->length; t++) {
        attention_row(q + at.q + t * at.q_ld, k + at.kv, at.kv_ld, s->head_dim, t, p);
        for (int i = 0; i < s->head_dim; i++) {
            double sum = 0;
            for (int j = 0; j <= t; j++)
                sum += p[j] * v[at.kv + j * at.kv_ld + i];
            y[at.q + t * at.q_ld + i] = (float)sum;
        }
    }
    free(p);
}

static void attention(kn_backend *be, const kn_span *spans, int n_spans, const kn_heads *heads,
                      const float *q, const float *k, const float *v, float *y)
{
    (void)be;
    for (int s = 0; s < n_spans; s++)
        for (int h = 0; h < heads->n_heads; h++)
            attention_head(heads, &spans[s], h, q, k, v, y);
}

/* With P the softmax rows: dV = P^T dY, dP = dY V^T, dS = P * (dP - rowsum(P * dP)),
 * dQ = dS K / sqrt(head_dim), dK = dS^T Q / sqrt(head_dim). d_k and d_v gather over the heads of a
 * group in double. */
static void attention_head_backward(const kn_heads *s, const kn_span *span, int head,
                                    const float *q, const float *k, const float *v,
                                    const float *d_y, float *d_q, double *d_k, double *d_v)
{
    head_place at = place_head(s, span, head);
    int64_t local = at.kv - span->first * at.kv_ld; /* d_k and d_v begin at the sequence */
    double *p = scratch((size_t)span->length * 2, sizeof *p), *dp = p + span->length;
    double scale = 1 / sqrt(s->head_dim);
    for (int t = 0; t < span->length; t++) {
        const float *q_row = q + at.q + t * at.q_ld, *dy = d_y + at.q + t * at.q_ld;
        double mean = 0, sum[KN_MAX_HEAD_DIM] = {0};
        attention_row(q_row, k + at.kv, at.kv_ld, s->head_dim, t, p);
        for (int j = 0; j <= t; j++) {
            dp[j] = 0;
            for (int i = 0; i < s->head_dim; i++)
                dp[j] += (double)dy[i] * v[at.kv + j * at.kv_ld + i];
            mean += p[j] * dp[j];
        }
        for (int j = 0; j <= t; j++) {
            double ds = p[j] * (dp[j] - mean) * scale;
            for (int i = 0; i < s->head_dim; i++) {
                sum[i] += ds * k[at.kv + j * at.kv_ld + i];
                d_k[local + j * at.kv_ld + i] += ds * q_row[i];
                d_v[local + j * at.kv_ld + i] += p[j] * dy[i];
            }
        }
        for (int i = 0; i < s->head_dim; i++)
            d_q[at.q + t * at.q_ld + i] = (float)sum[i];
    }
    free(p);
}

static void attention_backward(kn_backend *be, const kn_span *spans, int n_spans,
                               const kn_heads *heads, const float *q, const float *k,
                               const float *v, const float *y, const float *d_y, float *d_q,
                               float *d_k, float *d_v)
{
    (void)be;
    (void)y;
    int64_t kv_ld = (int64_t)heads->n_kv_heads * heads->head_dim;
    for (int s = 0; s < n_spans; s++) {
        int64_t count = spans[s].length * kv_ld, first = spans[s].first * kv_ld;
        double *dk = scratch((size_t)count * 2, sizeof *dk), *dv = dk + count;
        for (int h = 0; h < heads->n_heads; h++)
            attention_head_backward(heads, &spans[s], h, q, k, v, d_y, d_q, dk, dv);
        for (int64_t i = 0; i < count; i++) {
            d_k[first + i] = (float)dk[i];
            d_v[first + i] = (float)dv[i];
        }
        free(dk);
    }
}

static void lora(kn_backend *be, const kn_lora_train *l, const float *x, float *y, int64_t ld_y)
{
    (void)be;
    for (int i = 0; i < l->n_rows; i++) {
        const float *x_row = x + l->row_index[i] * l->in;
        float *y_row = y + l->row_index[i] * ld_y, *u = l->u + (int64_t)i * l->rank;
        for (int r = 0; r < l->rank; r++) {
            double sum = 0;
            for (int64_t c = 0; c < l->in; c++)
                sum += (double)l->a[r * l->in + c] * x_row[c];
            u[r] = (float)sum;
        }
        for (int64_t o = 0; o < l->out; o++) {
            double sum = 0;
            for (int r = 0; r < l->rank; r++)
                sum += (double)l->b[o * l->rank + r] * u[r];
            y_row[o] = (float)(y_row[o] + l->scale * sum);
        }
    }
}

static void lora_backward(kn_backend *be, const kn_lora_train *l, const float *x, const float *d_y,
                          int64_t ld_y, float *d_x)
{
    (void)be;
    for (int i = 0; i < l->n_rows; i++) {
        const float *x_row = x + l->row_index[i] * l->in, *dy = d_y + l->row_index[i] * ld_y;
        const float *u = l->u + (int64_t)i * l->rank;
        float *dx = d_x + l->row_index[i] * l->in;
        for (int r = 0; r < l->rank; r++) {
            double du = 0;
            for (int64_t o = 0; o < l->out; o++) {
                du += (double)dy[o] * l->b[o * l->rank + r];
                l->d_b[o * l->rank + r] += l->scale * dy[o] * u[r];
            }
            du *= l->scale;
            for (int64_t c = 0; c < l->in; c++) {
                l->d_a[r * l->in + c] += (float)(du * x_row[c]);
                dx[c] += (float)(du * l->a[r * l->in + c]);
            }
        }
    }
}

static void direft(kn_backend *be, const kn_direft_train *l, int d, float *h)
{
    (void)be;
    for (int i = 0; i < l->n_rows; i++) {
        float *h_row = h + (int64_t)l->row_index[i] * d, *u = l->u + (int64_t)i * l->rank;
        for (int r = 0; r < l->rank; r++) {
            double sum = l->bias[r];
            for (int c = 0; c < d; c++)
                sum += (double)l->w[(int64_t)r * d + c] * h_row[c];
            u[r] = (float)sum;
        }
        for (int c = 0; c < d; c++) {
            double sum = h_row[c];
            for (int r = 0; r < l->rank; r++)
                sum += (double)l->r[(int64_t)r * d + c] * u[r];
            h_row[c] = (float)sum;
        }
    }
}

static void direft_backward(kn_backend *be, const kn_direft_train *l, int d, const float *h,
                            float *d_h)
{
    (void)be;
    double *du = scratch((size_t)l->rank, sizeof *du);
    for (int i = 0; i < l->n_rows; i++) {
        const float *h_row = h + (int64_t)l->row_index[i] * d, *u = l->u + (int64_t)i * l->rank;
        float *dh = d_h + (int64_t)l->row_index[i] * d;
        for (int r = 0; r < l->rank; r++) {
            du[r] = 0;
            for (int c = 0; c < d; c++) {
                du[r] += (double)l->r[(int64_t)r * d + c] * dh[c];
                l->d_r[(int64_t)r * d + c] += u[r] * dh[c];
            }
        }
        for (int r = 0; r < l->rank; r++) {
            l->d_bias[r] += (float)du[r];
            for (int c = 0; c < d; c++) {
                l->d_w[(int64_t)r * d + c] += (float)(du[r] * h_row[c]);
                dh[c] += (float)(du[r] * l->w[(int64_t)r * d + c]);
            }
        }
    }
    free(du);
}

static double log_sum_exp(const float *x, int64_t n)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

static void log_softmax(kn_backend *be, const float *logits, int n, int64_t vocab,
                        const int32_t *target, float *log_sum, float *logp)
{
    (void)be;
    for (int i = 0; i < n; i++, logits += vocab) {
        double lse = log_sum_exp(logits, vocab);
        log_sum[i] = (float)lse;
        logp[i] = (float)(logits[target[i]] - lse);
    }
}

static void softmax_grad(kn_backend *be, float *logits, int n, int64_t vocab, const int32_t *target,
                         const float *log_sum, const float *weight)
{
    (void)be;
    for (int i = 0; i < n; i++, logits += vocab) {
        for (int64_t v = 0; v < vocab; v++)
            logits[v] =
                (float)(weight[i] * (exp((double)logits[v] - log_sum[i]) - (v == target[i])));
    }
}

static void distill_grad(kn_backend *be, float *logits, const float *teacher, int n, int64_t vocab,
                         const float *weight, float *kl)
{
    (void)be;
    for (int i = 0; i < n; i++, logits += vocab, teacher += vocab) {
        double own = log_sum_exp(logits, vocab), other = log_sum_exp(teacher, vocab), sum = 0;
        for (int64_t v = 0; v < vocab; v++) {
            double log_p = logits[v] - own, log_q = teacher[v] - other;
            sum += exp(log_q) * (log_q - log_p);
            logits[v] = (float)(weight[i] * (exp(log_p) - exp(log_q)));
        }
        kl[i] = (float)sum;
    }
}

static void scatter_add(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y)
{
    (void)be;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++)
            y[(int64_t)rows[i] * d + j] += x[(int64_t)i * d + j];
}

static void clear(kn_backend *be, float *x, size_t count)
{
    (void)be;
    memset(x, 0, count * sizeof *x);
}

static double sum_squares(kn_backend *be, const float *x, size_t count)
{
    (void)be;
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static void adamw(kn_backend *be, const kn_adamw *s, const float *grad, size_t count, float *value,
                  float *m, float *v)
{
    (void)be;
    double correct1 = 1 - pow(s->beta1, (double)s->t), correct2 = 1 - pow(s->beta2, (double)s->t);
    for (size_t i = 0; i < count; i++) {
        double g = grad[i] * s->grad_scale;
        m[i] = (float)(s->beta1 * m[i] + (1 - s->beta1) * g);
        v[i] = (float)(s->beta2 * v[i] + (1 - s->beta2) * g * g);
        double update = m[i] / correct1 / (sqrt(v[i]) / sqrt(correct2) + s->eps);
        value[i] = (float)(value[i] - s->rate * (update + s->decay * value[i]));
    }
}

const kn_train_ops kn_train_ops_ref = {
    .linear = NULL, /* the reference's own is exact */
    .linear_backward = linear_backward,
    .rmsnorm_backward = rmsnorm_backward,
    .rope_backward = rope_backward,
    .swiglu_backward = swiglu_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .lora = lora,
    .lora_backward = lora_backward,
    .direft = direft,
    .direft_backward = direft_backward,
    .log_softmax = log_softmax,
    .softmax_grad = softmax_grad,
    .distill_grad = distill_grad,
    .scatter_add = scatter_add,
    .clear = clear,
    .sum_squares = sum_squares,
    .adamw = adamw,
};
