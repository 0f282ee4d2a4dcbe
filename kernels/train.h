/* Operations that only training needs: forward passes that keep what the backward pass reads, and
 * the backward passes themselves. The conventions of backend.h hold, plus:
 * - d_x is the gradient of the loss with respect to x; "+=" means it adds to what is there.
 * - Determinism: every element of a gradient is summed in an order fixed by the call's arguments,
 *   never by the number of threads, so the same run gives the same bytes anywhere.
 * - Adapter weights in training are plain float32 arrays (the optimizer's masters), not packed. */
#ifndef KN_TRAIN_H
#define KN_TRAIN_H

#include "backend.h"

/* One matrix of a linear_backward call: d_y[n, rows] with leading dimension ld. */
typedef struct {
    const kn_weight *w;
    int64_t rows;
    const float *d_y;
    int64_t ld;
} kn_linear_grad;

#define KN_MAX_HEAD_DIM 512

/* Rows [first, first + length) of the batch are one sequence; positions count from 0 at first. */
typedef struct {
    int32_t first, length;
} kn_span;

typedef struct {
    int n_heads, n_kv_heads, head_dim;
} kn_heads;

/* LoRA pair under training. Rows of the batch that it acts on: row_index[n_rows], ascending. */
typedef struct {
    const int32_t *row_index; /* host memory */
    int32_t n_rows;
    int32_t rank;
    int64_t in, out;
    float scale;
    const float *a;   /* [rank, in] */
    const float *b;   /* [out, rank] */
    float *d_a, *d_b; /* gradients, += ; NULL in forward calls */
    float *u;         /* [n_rows, rank] = A x: written by forward, read by backward */
} kn_lora_train;

/* DiReFT under training: h += R^T u, u = W h + bias. */
typedef struct {
    const int32_t *row_index;
    int32_t n_rows;
    int32_t rank;
    const float *r;            /* [rank, d] */
    const float *w;            /* [rank, d] */
    const float *bias;         /* [rank] */
    float *d_r, *d_w, *d_bias; /* += ; NULL in forward calls */
    float *u;                  /* [n_rows, rank]: written by forward, read by backward */
} kn_direft_train;

/* AdamW (Loshchilov and Hutter): m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2,
 * x <- x - rate * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * x). */
typedef struct {
    double rate, beta1, beta2, eps, decay;
    double grad_scale; /* clipping */
    int64_t t;         /* number of this update, from 1 */
} kn_adamw;

typedef struct kn_train_ops {
    /* As kn_backend_ops.linear, but as exact as gradients need it, and `add` sums into y: with
     * weights of float types in float32; with quantized ones both sides may be rounded to 14 bits
     * beside a factor for each 32 numbers, which moves a product by about 1e-4 of |x| |w|. Weights
     * are dequantized tile by tile into a bounded workspace. NULL: kn_backend_ops.linear does. */
    void (*linear)(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
    /* d_x[n, cols] (+)= sum over outs of d_y_o W_o, as exact as `linear`: add keeps what d_x
     * holds. */
    void (*linear_backward)(kn_backend *be, const kn_linear_grad *outs, int n_outs, int n,
                            int64_t cols, bool add, float *d_x);
    /* d_x += gradient through y = x * weight / rms(x); x is the input of the forward pass. */
    void (*rmsnorm_backward)(kn_backend *be, const float *x, const float *weight, float eps,
                             const float *d_y, int n, int d, float *d_x);
    /* In place: d_x of the rotated becomes d_x of the unrotated (rotation by the negative angle).
     */
    void (*rope_backward)(kn_backend *be, const kn_rope *rope, float *d_x, int n, int n_heads,
                          const int32_t *positions);
    /* y = silu(gate) * up; d_gate and d_up are overwritten and may be gate and up themselves. */
    void (*swiglu_backward)(kn_backend *be, const float *gate, const float *up, const float *d_y,
                            int n, int d, float *d_gate, float *d_up);
    /* Causal attention of whole sequences without pages: q, y [n, n_heads, head_dim];
     * k, v [n, n_kv_heads, head_dim]. */
    void (*attention)(kn_backend *be, const kn_span *spans, int n_spans, const kn_heads *heads,
                      const float *q, const float *k, const float *v, float *y);
    /* d_q, d_k, d_v are overwritten for the rows of spans. y is the forward result. */
    void (*attention_backward)(kn_backend *be, const kn_span *spans, int n_spans,
                               const kn_heads *heads, const float *q, const float *k,
                               const float *v, const float *y, const float *d_y, float *d_q,
                               float *d_k, float *d_v);
    /* u = A x[row]; y[row] += scale * B u. x[*, in], y[*, out] with leading dimension ld_y. */
    void (*lora)(kn_backend *be, const kn_lora_train *l, const float *x, float *y, int64_t ld_y);
    /* d_b += scale * d_y^T u, d_a += du^T x, d_x[row] += du A with du = scale * d_y B. */
    void (*lora_backward)(kn_backend *be, const kn_lora_train *l, const float *x, const float *d_y,
                          int64_t ld_y, float *d_x);
    /* h[row] += R^T u, u = W h[row] + bias, in place. */
    void (*direft)(kn_backend *be, const kn_direft_train *l, int d, float *h);
    /* h is the input of the forward pass; d_h comes in as the gradient of the output and leaves as
     * that of the input: d_u = R d_h, d_r += u^T d_h, d_w += d_u^T h, d_bias += d_u,
     * d_h += W^T d_u. */
    void (*direft_backward)(kn_backend *be, const kn_direft_train *l, int d, const float *h,
                            float *d_h);
    /* For each row of logits[n, vocab]: log_sum[i] = log sum exp, logp[i] = logits[i, target[i]] -
     * log_sum[i]. target, log_sum and logp in host memory. */
    void (*log_softmax)(kn_backend *be, const float *logits, int n, int64_t vocab,
                        const int32_t *target, float *log_sum, float *logp);
    /* In place: logits[i, v] <- weight[i] * (exp(logits[i, v] - log_sum[i]) - [v == target[i]]),
     * the gradient of -weight[i] * logp[i]. weight in host memory. */
    void (*softmax_grad)(kn_backend *be, float *logits, int n, int64_t vocab, const int32_t *target,
                         const float *log_sum, const float *weight);
    /* In place: logits[i, v] <- weight[i] * (p_i(v) - q_i(v)), the gradient of weight[i] * KL(q_i
     * || p_i), where p_i = softmax(logits[i]) and q_i = softmax(teacher[i]); kl[i] (host memory) is
     * set to KL(q_i || p_i). */
    void (*distill_grad)(kn_backend *be, float *logits, const float *teacher, int n, int64_t vocab,
                         const float *weight, float *kl);
    /* y[rows[i], :] += x[i, :]; rows in host memory, each at most once. */
    void (*scatter_add)(kn_backend *be, const float *x, const int32_t *rows, int n, int d,
                        float *y);
    /* x[i] = 0 for i < count */
    void (*clear)(kn_backend *be, float *x, size_t count);
    /* Sum of x[i]^2, in double, in a fixed order. */
    double (*sum_squares)(kn_backend *be, const float *x, size_t count);
    /* One AdamW update of value[count] with gradient grad * grad_scale and moments m, v. */
    void (*adamw)(kn_backend *be, const kn_adamw *step, const float *grad, size_t count,
                  float *value, float *m, float *v);
} kn_train_ops;

/* The training operations of an open backend; NULL if it has none. Static. */
const kn_train_ops *kn_train_ops_of(const kn_backend *be);

#endif
