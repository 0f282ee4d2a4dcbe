/* Training operations of the CPU backend: the work of each is cut into items for the pool. How it
 * is cut depends on shapes only, and every sum runs in an order fixed by shapes and marks, so the
 * same run gives the same bytes on any number of threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train_simd.h"
#include "kernels/ref/train_ref.h"
#include "kernels/train.h"

#include <math.h>
#include <string.h>

#define ROWS_PER_ITEM 48   /* tokens of one item of a matrix product: whole register tiles */
#define COLS_PER_ITEM 192  /* columns or outputs of one item of a weight gradient */
#define QUERIES       32   /* query rows of one block of attention */
#define ELEMENTS      8192 /* elements of one item of an elementwise operation */
#define LONG_WORK     1e9  /* for kn_cpu_run: always worth sharing */

static int count_items(int64_t n, int per_item)
{
    return (int)((n + per_item - 1) / per_item);
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- rows and elements ---------------------------------------------------------------------- */

typedef struct {
    kn_cpu *cpu;
    int n, d;
    int64_t count;
    float eps;
    const float *x, *weight, *d_y;
    float *out, *out2;
    const kn_rope *rope;
    const int32_t *index;
    double *partial;
    const kn_adamw *step;
    const float *log_sum;
} row_job;

static void rmsnorm_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *j = ctx;
    for (int i = item * 8; i < min64(j->n, item * 8 + 8); i++)
        kn_train_simd_of(j->cpu)->rmsnorm_backward(j->x + (int64_t)i * j->d, j->weight, j->eps,
                                                   j->d_y + (int64_t)i * j->d, j->d,
                                                   j->out + (int64_t)i * j->d);
}

static void rmsnorm_backward(kn_backend *be, const float *x, const float *weight, float eps,
                             const float *d_y, int n, int d, float *d_x)
{
    row_job job = {.cpu = kn_cpu_of(be), .n = n, .d = d, .eps = eps};
    job.x = x;
    job.weight = weight;
    job.d_y = d_y;
    job.out = d_x;
    kn_cpu_run(job.cpu, count_items(n, 8), (double)n * d, rmsnorm_item, &job);
}

static void rope_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *j = ctx;
    int half = j->rope->head_dim / 2;
    float cosines[KN_MAX_HEAD_DIM / 2], sines[KN_MAX_HEAD_DIM / 2];
    for (int i = 0; i < half; i++) {
        double angle = j->index[item] * j->rope->inv_freq[i];
        cosines[i] = (float)cos(angle);
        sines[i] = (float)-sin(angle);
    }
    j->cpu->kernels->rope(j->out + (int64_t)item * j->d * j->rope->head_dim, j->d,
                          j->rope->head_dim, cosines, sines);
}

static void rope_backward(kn_backend *be, const kn_rope *rope, float *d_x, int n, int n_heads,
                          const int32_t *positions)
{
    row_job job = {
        .cpu = kn_cpu_of(be), .d = n_heads, .rope = rope, .out = d_x, .index = positions};
    kn_cpu_run(job.cpu, n, (double)n * n_heads * rope->head_dim, rope_item, &job);
}

static void swiglu_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *j = ctx;
    int64_t first = (int64_t)item * ELEMENTS, count = min64(ELEMENTS, j->count - first);
    kn_train_simd_of(j->cpu)->swiglu_backward(j->x + first, j->weight + first, j->d_y + first,
                                              count, j->out + first, j->out2 + first);
}

static void swiglu_backward(kn_backend *be, const float *gate, const float *up, const float *d_y,
                            int n, int d, float *d_gate, float *d_up)
{
    row_job job = {.cpu = kn_cpu_of(be), .count = (int64_t)n * d, .x = gate, .weight = up};
    job.d_y = d_y;
    job.out = d_gate;
    job.out2 = d_up;
    kn_cpu_run(job.cpu, count_items(job.count, ELEMENTS), (double)job.count, swiglu_item, &job);
}

static void scatter_add(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y)
{
    for (int i = 0; i < n; i++)
        kn_train_simd_of(kn_cpu_of(be))->add(x + (int64_t)i * d, d, y + (int64_t)rows[i] * d);
}

static void clear_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *j = ctx;
    int64_t first = (int64_t)item * ELEMENTS;
    memset(j->out + first, 0, (size_t)min64(ELEMENTS, j->count - first) * sizeof *j->out);
}

static void clear(kn_backend *be, float *x, size_t count)
{
    row_job job = {.cpu = kn_cpu_of(be), .count = (int64_t)count, .out = x};
    kn_cpu_run(job.cpu, count_items(job.count, ELEMENTS), (double)count * 0.1, clear_item, &job);
}

static void squares_item(void *ctx, int item, int worker)
{
    (void)worker;
    const row_job *j = ctx;
    const float *x = j->x + (int64_t)item * ELEMENTS;
    int64_t count = min64(ELEMENTS, j->count - (int64_t)item * ELEMENTS);
    j->partial[item] = 0;
    for (int64_t i = 0; i < count; i++)
        j->partial[item] += (double)x[i] * x[i];
}

static double sum_squares(kn_backend *be, const float *x, size_t count)
{
    row_job job = {.cpu = kn_cpu_of(be), .count = (int64_t)count, .x = x};
    int items = count_items(job.count, ELEMENTS);
    double sum = 0;
    job.partial = kn_scratch_get(&job.cpu->training, (size_t)items * sizeof *job.partial);
    kn_cpu_run(job.cpu, items, (double)count, squares_item, &job);
    for (int i = 0; i < items; i++)
        sum += job.partial[i];
    return sum;
}

typedef struct {
    kn_backend *be;
    const kn_adamw *step;
    const float *grad;
    int64_t count;
    float *value, *m, *v;
} adamw_job;

static void adamw_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adamw_job *j = ctx;
    int64_t first = (int64_t)item * ELEMENTS, count = min64(ELEMENTS, j->count - first);
    kn_train_ops_ref.adamw(j->be, j->step, j->grad + first, (size_t)count, j->value + first,
                           j->m + first, j->v + first);
}

static void adamw(kn_backend *be, const kn_adamw *step, const float *grad, size_t count,
                  float *value, float *m, float *v)
{
    adamw_job job = {be, step, grad, (int64_t)count, value, m, v};
    kn_cpu_run(kn_cpu_of(be), count_items(job.count, ELEMENTS), LONG_WORK, adamw_item, &job);
}

/* --- attention ------------------------------------------------------------------------------ */

typedef struct {
    kn_cpu *cpu;
    const kn_span *spans;
    const kn_heads *heads;
    const float *q, *k, *v, *y, *d_y;
    float *out, *d_q, *d_k, *d_v;
} attention_job;

/* One (sequence, KV head) pair: its views and its worker's scratch. */
typedef struct {
    const kn_train_simd *simd;
    int length, head_dim, group;
    int64_t q_ld, kv_ld, q_at, kv_at; /* offsets of the first token's first head */
    float scale;
    float *k_t, *v_t; /* [head_dim, length] transposed */
    float *p, *s;     /* [QUERIES, length] */
} attention_item_view;

static void transpose(const float *x, int64_t ld, int rows, int cols, float *y)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            y[(int64_t)j * rows + i] = x[i * ld + j];
}

static attention_item_view view_item(const attention_job *j, int item, int worker)
{
    const kn_heads *h = j->heads;
    const kn_span *span = &j->spans[item / h->n_kv_heads];
    int kv_head = item % h->n_kv_heads;
    attention_item_view a = {.simd = kn_train_simd_of(j->cpu),
                             .length = span->length,
                             .head_dim = h->head_dim,
                             .group = h->n_heads / h->n_kv_heads,
                             .q_ld = (int64_t)h->n_heads * h->head_dim,
                             .kv_ld = (int64_t)h->n_kv_heads * h->head_dim,
                             .scale = (float)(1 / sqrt(h->head_dim))};
    a.q_at = span->first * a.q_ld + (int64_t)kv_head * a.group * h->head_dim;
    a.kv_at = span->first * a.kv_ld + (int64_t)kv_head * h->head_dim;
    size_t matrix = (size_t)a.length * (size_t)a.head_dim, block = (size_t)a.length * QUERIES;
    float *scratch =
        kn_scratch_get(&j->cpu->worker[worker], (2 * matrix + 2 * block) * sizeof *scratch);
    a.k_t = scratch;
    a.v_t = scratch + matrix;
    a.p = scratch + 2 * matrix;
    a.s = a.p + block;
    transpose(j->k + a.kv_at, a.kv_ld, a.length, a.head_dim, a.k_t);
    return a;
}

/* p[i, 0..end) = softmax rows of queries first .. first + n - 1 (zero after the query's own place).
 */
static void softmax_block(const attention_item_view *a, const float *q, int first, int n, int end)
{
    memset(a->p, 0, (size_t)n * (size_t)a->length * sizeof *a->p);
    a->simd->gemm(n, end, a->head_dim, q, a->q_ld, 1, a->k_t, a->length, a->p, a->length);
    for (int i = 0; i < n; i++) {
        float *row = a->p + (int64_t)i * a->length;
        int seen = first + i + 1;
        for (int t = 0; t < seen; t++)
            row[t] *= a->scale;
        a->simd->scaled_exp(row, seen, a->simd->log_sum_exp(row, seen), 1);
        memset(row + seen, 0, (size_t)(end - seen) * sizeof *row);
    }
}

static void clear_rows(float *x, int64_t ld, int rows, int width)
{
    for (int i = 0; i < rows; i++)
        memset(x + i * ld, 0, (size_t)width * sizeof *x);
}

static void attention_item(void *ctx, int item, int worker)
{
    const attention_job *j = ctx;
    attention_item_view a = view_item(j, item, worker);
    for (int head = 0; head < a.group; head++) {
        for (int first = 0; first < a.length; first += QUERIES) {
            int n = a.length - first < QUERIES ? a.length - first : QUERIES, end = first + n;
            int64_t at = a.q_at + first * a.q_ld + (int64_t)head * a.head_dim;
            softmax_block(&a, j->q + at, first, n, end);
            clear_rows(j->out + at, a.q_ld, n, a.head_dim);
            a.simd->gemm(n, a.head_dim, end, a.p, a.length, 1, j->v + a.kv_at, a.kv_ld, j->out + at,
                         a.q_ld);
        }
    }
}

static void attention(kn_backend *be, const kn_span *spans, int n_spans, const kn_heads *heads,
                      const float *q, const float *k, const float *v, float *y)
{
    attention_job job = {
        .cpu = kn_cpu_of(be), .spans = spans, .heads = heads, .q = q, .k = k, .v = v};
    job.out = y;
    kn_cpu_run(job.cpu, n_spans * heads->n_kv_heads, LONG_WORK, attention_item, &job);
}

/* One block of queries of one head (formulas: kernels/ref/train_ref.c). */
static void backward_block(const attention_job *j, const attention_item_view *a, int head,
                           int first, int n)
{
    int end = first + n;
    int64_t at = a->q_at + first * a->q_ld + (int64_t)head * a->head_dim;
    const float *q = j->q + at, *d_y = j->d_y + at;
    softmax_block(a, q, first, n, end);
    memset(a->s, 0, (size_t)n * (size_t)a->length * sizeof *a->s);
    a->simd->gemm(n, end, a->head_dim, d_y, a->q_ld, 1, a->v_t, a->length, a->s, a->length);
    for (int i = 0; i < n; i++) {
        float mean = a->simd->dot(d_y + i * a->q_ld, j->y + at + i * a->q_ld, a->head_dim);
        a->simd->softmax_backward(a->p + (int64_t)i * a->length, a->s + (int64_t)i * a->length, end,
                                  mean, a->scale);
    }
    clear_rows(j->d_q + at, a->q_ld, n, a->head_dim);
    a->simd->gemm(n, a->head_dim, end, a->s, a->length, 1, j->k + a->kv_at, a->kv_ld, j->d_q + at,
                  a->q_ld);
    a->simd->gemm(end, a->head_dim, n, a->s, 1, a->length, q, a->q_ld, j->d_k + a->kv_at, a->kv_ld);
    a->simd->gemm(end, a->head_dim, n, a->p, 1, a->length, d_y, a->q_ld, j->d_v + a->kv_at,
                  a->kv_ld);
}

static void attention_backward_item(void *ctx, int item, int worker)
{
    const attention_job *j = ctx;
    attention_item_view a = view_item(j, item, worker);
    transpose(j->v + a.kv_at, a.kv_ld, a.length, a.head_dim, a.v_t);
    clear_rows(j->d_k + a.kv_at, a.kv_ld, a.length, a.head_dim);
    clear_rows(j->d_v + a.kv_at, a.kv_ld, a.length, a.head_dim);
    for (int head = 0; head < a.group; head++)
        for (int first = 0; first < a.length; first += QUERIES)
            backward_block(j, &a, head, first,
                           a.length - first < QUERIES ? a.length - first : QUERIES);
}

static void attention_backward(kn_backend *be, const kn_span *spans, int n_spans,
                               const kn_heads *heads, const float *q, const float *k,
                               const float *v, const float *y, const float *d_y, float *d_q,
                               float *d_k, float *d_v)
{
    attention_job job = {
        .cpu = kn_cpu_of(be), .spans = spans, .heads = heads, .q = q, .k = k, .v = v};
    job.y = y;
    job.d_y = d_y;
    job.d_q = d_q;
    job.d_k = d_k;
    job.d_v = d_v;
    kn_cpu_run(job.cpu, n_spans * heads->n_kv_heads, LONG_WORK, attention_backward_item, &job);
}

/* --- adapters ------------------------------------------------------------------------------- */

/* LoRA and DiReFT under one view. down: t = x D^T (D [rank, in]); up: y += t U (U [rank, out]). */
typedef struct {
    kn_cpu *cpu;
    const int32_t *rows;
    int n_rows, rank;
    int64_t in, out, ld_y;
    const float *x;      /* [*, in] */
    const float *d_y;    /* [*, out], leading dimension ld_y */
    float *y;            /* forward: [*, out]; backward: d_x [*, in] */
    const float *down_t; /* [in, rank] (forward) or the up map as [out, rank] (backward) */
    const float *up;     /* [rank, out] (forward) or the down map [rank, in] (backward) */
    const float *bias;
    float scale;
    float *u, *du; /* [n_rows, rank] */
    float *d_down; /* [rank, in] += du^T x */
    float *d_up;   /* LoRA: [out, rank] += d_y^T u; DiReFT: [rank, out] += u^T d_y */
    bool up_is_transposed;
} adapter_job;

/* Length of the run of neighbouring rows that begins at index i of rows[0..end). */
static int run_length(const int32_t *rows, int i, int end)
{
    int n = 1;
    while (i + n < end && rows[i + n] == rows[i] + n)
        n++;
    return n;
}

/* t[i, :] = (bias +) x[rows[i], :] D^T for the item's rows. */
static void down_rows(const adapter_job *j, const float *x, int64_t ld, int64_t width, int first,
                      int end, const float *bias, float scale, float *t)
{
    float *out = t + (int64_t)first * j->rank;
    int64_t count = (int64_t)(end - first) * j->rank;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int i = first, n; i < end; i += n) {
        n = run_length(j->rows, i, end);
        kn_train_simd_of(j->cpu)->gemm(n, j->rank, (int)width, x + j->rows[i] * ld, ld, 1,
                                       j->down_t, j->rank, t + (int64_t)i * j->rank, j->rank);
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = out[i] * scale + (bias ? bias[i % j->rank] : 0);
}

static void up_rows(const adapter_job *j, const float *t, int first, int end, float *y, int64_t ld,
                    int64_t width)
{
    for (int i = first, n; i < end; i += n) {
        n = run_length(j->rows, i, end);
        kn_train_simd_of(j->cpu)->gemm(n, (int)width, j->rank, t + (int64_t)i * j->rank, j->rank, 1,
                                       j->up, width, y + j->rows[i] * ld, ld);
    }
}

static int item_end(const adapter_job *j, int item)
{
    return (int)min64(j->n_rows, (int64_t)(item + 1) * ROWS_PER_ITEM);
}

static void forward_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adapter_job *j = ctx;
    int first = item * ROWS_PER_ITEM, end = item_end(j, item);
    down_rows(j, j->x, j->in, j->in, first, end, j->bias, 1, j->u);
    up_rows(j, j->u, first, end, j->y, j->ld_y, j->out);
}

static void du_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adapter_job *j = ctx;
    down_rows(j, j->d_y, j->ld_y, j->out, item * ROWS_PER_ITEM, item_end(j, item), NULL, j->scale,
              j->du);
}

static void d_x_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adapter_job *j = ctx;
    up_rows(j, j->du, item * ROWS_PER_ITEM, item_end(j, item), j->y, j->in, j->in);
}

static void d_down_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adapter_job *j = ctx;
    int64_t first = (int64_t)item * COLS_PER_ITEM;
    int width = (int)min64(COLS_PER_ITEM, j->in - first);
    for (int i = 0, n; i < j->n_rows; i += n) {
        n = run_length(j->rows, i, j->n_rows);
        kn_train_simd_of(j->cpu)->gemm(j->rank, width, n, j->du + (int64_t)i * j->rank, 1, j->rank,
                                       j->x + j->rows[i] * j->in + first, j->in, j->d_down + first,
                                       j->in);
    }
}

static void d_up_item(void *ctx, int item, int worker)
{
    (void)worker;
    const adapter_job *j = ctx;
    int64_t first = (int64_t)item * COLS_PER_ITEM;
    int width = (int)min64(COLS_PER_ITEM, j->out - first);
    for (int i = 0, n; i < j->n_rows; i += n) {
        n = run_length(j->rows, i, j->n_rows);
        const float *u = j->u + (int64_t)i * j->rank, *d_y = j->d_y + j->rows[i] * j->ld_y + first;
        if (j->up_is_transposed)
            kn_train_simd_of(j->cpu)->gemm(width, j->rank, n, d_y, 1, j->ld_y, u, j->rank,
                                           j->d_up + first * j->rank, j->rank);
        else
            kn_train_simd_of(j->cpu)->gemm(j->rank, width, n, u, 1, j->rank, d_y, j->ld_y,
                                           j->d_up + first, j->out);
    }
}

static int row_items(const adapter_job *j)
{
    return count_items(j->n_rows, ROWS_PER_ITEM);
}

static void lora(kn_backend *be, const kn_lora_train *l, const float *x, float *y, int64_t ld_y)
{
    kn_cpu *cpu = kn_cpu_of(be);
    size_t a_size = (size_t)l->rank * (size_t)l->in, b_size = (size_t)l->rank * (size_t)l->out;
    float *scratch = kn_scratch_get(&cpu->training, (a_size + b_size) * sizeof *scratch);
    float *up = scratch + a_size;
    transpose(l->a, l->in, l->rank, (int)l->in, scratch);
    transpose(l->b, l->rank, (int)l->out, l->rank, up);
    for (size_t i = 0; i < b_size; i++)
        up[i] *= l->scale;
    adapter_job job = {.cpu = cpu, .rows = l->row_index, .n_rows = l->n_rows, .rank = l->rank};
    job.in = l->in;
    job.out = l->out;
    job.ld_y = ld_y;
    job.x = x;
    job.y = y;
    job.down_t = scratch;
    job.up = up;
    job.u = l->u;
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, forward_item, &job);
}

static void lora_backward(kn_backend *be, const kn_lora_train *l, const float *x, const float *d_y,
                          int64_t ld_y, float *d_x)
{
    kn_cpu *cpu = kn_cpu_of(be);
    size_t count = (size_t)l->n_rows * (size_t)l->rank;
    float *du = kn_scratch_get(&cpu->training, 2 * count * sizeof *du), *scaled_u = du + count;
    for (size_t i = 0; i < count; i++)
        scaled_u[i] = l->u[i] * l->scale;
    adapter_job job = {.cpu = cpu, .rows = l->row_index, .n_rows = l->n_rows, .rank = l->rank};
    job.in = l->in;
    job.out = l->out;
    job.ld_y = ld_y;
    job.x = x;
    job.d_y = d_y;
    job.y = d_x;
    job.down_t = l->b;
    job.up = l->a;
    job.scale = l->scale;
    job.u = scaled_u;
    job.du = du;
    job.d_down = l->d_a;
    job.d_up = l->d_b;
    job.up_is_transposed = true;
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, du_item, &job);
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, d_x_item, &job);
    kn_cpu_run(cpu, count_items(l->in, COLS_PER_ITEM), LONG_WORK, d_down_item, &job);
    kn_cpu_run(cpu, count_items(l->out, COLS_PER_ITEM), LONG_WORK, d_up_item, &job);
}

static void direft(kn_backend *be, const kn_direft_train *l, int d, float *h)
{
    kn_cpu *cpu = kn_cpu_of(be);
    float *w_t = kn_scratch_get(&cpu->training, (size_t)l->rank * (size_t)d * sizeof *w_t);
    transpose(l->w, d, l->rank, d, w_t);
    adapter_job job = {.cpu = cpu, .rows = l->row_index, .n_rows = l->n_rows, .rank = l->rank};
    job.in = job.out = job.ld_y = d;
    job.x = job.y = h;
    job.down_t = w_t;
    job.up = l->r;
    job.bias = l->bias;
    job.u = l->u;
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, forward_item, &job);
}

static void direft_backward(kn_backend *be, const kn_direft_train *l, int d, const float *h,
                            float *d_h)
{
    kn_cpu *cpu = kn_cpu_of(be);
    size_t count = (size_t)l->n_rows * (size_t)l->rank, r_size = (size_t)l->rank * (size_t)d;
    float *r_t = kn_scratch_get(&cpu->training, (r_size + count) * sizeof *r_t), *du = r_t + r_size;
    transpose(l->r, d, l->rank, d, r_t);
    adapter_job job = {.cpu = cpu, .rows = l->row_index, .n_rows = l->n_rows, .rank = l->rank};
    job.in = job.out = job.ld_y = d;
    job.x = h;
    job.d_y = job.y = d_h;
    job.down_t = r_t;
    job.up = l->w;
    job.scale = 1;
    job.u = l->u;
    job.du = du;
    job.d_down = l->d_w;
    job.d_up = l->d_r;
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, du_item, &job);
    kn_cpu_run(cpu, count_items(d, COLS_PER_ITEM), LONG_WORK, d_down_item, &job);
    kn_cpu_run(cpu, count_items(d, COLS_PER_ITEM), LONG_WORK, d_up_item, &job);
    for (size_t i = 0; i < count; i++)
        l->d_bias[i % (size_t)l->rank] += du[i];
    kn_cpu_run(cpu, row_items(&job), LONG_WORK, d_x_item, &job);
}

/* --- loss ----------------------------------------------------------------------------------- */

typedef struct {
    kn_cpu *cpu;
    float *logits;
    const float *teacher, *weight, *given_log_sum;
    int64_t vocab;
    const int32_t *target;
    float *log_sum, *result;
} loss_job;

static void log_softmax_item(void *ctx, int item, int worker)
{
    (void)worker;
    const loss_job *j = ctx;
    const float *row = j->logits + item * j->vocab;
    j->log_sum[item] = kn_train_simd_of(j->cpu)->log_sum_exp(row, j->vocab);
    j->result[item] = row[j->target[item]] - j->log_sum[item];
}

static void log_softmax(kn_backend *be, const float *logits, int n, int64_t vocab,
                        const int32_t *target, float *log_sum, float *logp)
{
    loss_job job = {.cpu = kn_cpu_of(be), .vocab = vocab, .target = target};
    job.logits = (float *)(uintptr_t)logits; /* only read */
    job.log_sum = log_sum;
    job.result = logp;
    kn_cpu_run(job.cpu, n, (double)n * (double)vocab, log_softmax_item, &job);
}

static void softmax_grad_item(void *ctx, int item, int worker)
{
    (void)worker;
    const loss_job *j = ctx;
    float *row = j->logits + item * j->vocab;
    kn_train_simd_of(j->cpu)->scaled_exp(row, j->vocab, j->given_log_sum[item], j->weight[item]);
    row[j->target[item]] -= j->weight[item];
}

static void softmax_grad(kn_backend *be, float *logits, int n, int64_t vocab, const int32_t *target,
                         const float *log_sum, const float *weight)
{
    loss_job job = {.cpu = kn_cpu_of(be), .logits = logits, .vocab = vocab, .target = target};
    job.given_log_sum = log_sum;
    job.weight = weight;
    kn_cpu_run(job.cpu, n, (double)n * (double)vocab, softmax_grad_item, &job);
}

static void distill_item(void *ctx, int item, int worker)
{
    (void)worker;
    const loss_job *j = ctx;
    const kn_train_simd *simd = kn_train_simd_of(j->cpu);
    float *row = j->logits + item * j->vocab;
    const float *teacher = j->teacher + item * j->vocab;
    j->result[item] = simd->distill(row, teacher, j->vocab, simd->log_sum_exp(row, j->vocab),
                                    simd->log_sum_exp(teacher, j->vocab), j->weight[item]);
}

static void distill_grad(kn_backend *be, float *logits, const float *teacher, int n, int64_t vocab,
                         const float *weight, float *kl)
{
    loss_job job = {.cpu = kn_cpu_of(be), .logits = logits, .vocab = vocab, .weight = weight};
    job.teacher = teacher;
    job.result = kl;
    kn_cpu_run(job.cpu, n, (double)n * (double)vocab, distill_item, &job);
}

static const kn_train_ops train_ops = {
    .linear = kn_train_linear,
    .linear_backward = kn_train_linear_backward,
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

const kn_train_ops *kn_train_ops_of(const kn_backend *be)
{
    if (be->train) return be->train;
    return strcmp(be->isa, "ref") == 0 ? &kn_train_ops_ref : &train_ops;
}
