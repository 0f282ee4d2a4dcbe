/* Training operations: the plain reference against central differences of the forward operations,
 * and every instruction set against the reference, the same bits on any number of threads. */
#include "kernels/train.h"
#include "support/cuda.h"
#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- every fast path against the reference -------------------------------------------------- */

/* The arrays that one operation reads and writes, made from a seed: slot i has sizes[i] floats. */
#define MAX_SLOTS 12
typedef struct {
    kn_backend *be;
    const kn_train_ops *t;
    float *slot[MAX_SLOTS];
    size_t size[MAX_SLOTS];
    int n_slots;
    unsigned host;    /* bit per slot */
    const int *shape; /* of the case */
    const int32_t *rows;
    int n_rows;
} bench;

/* One operation under test: sizes of its slots from a shape, the call, and which slots it writes.
 */
typedef struct {
    const char *name;
    void (*sizes)(const int *shape, size_t *size, int *n_slots);
    void (*call)(bench *b);
    unsigned written;  /* bit per slot */
    double tolerance;  /* relative to the largest value of the slot */
    unsigned host;     /* slots in host memory, whatever the device */
    unsigned positive; /* slots of values >= 0 */
} op_case;

static bench make_bench(const char *isa, int threads, const op_case *op, const int *shape,
                        const int32_t *rows, int n_rows)
{
    bench b = {.be = strcmp(isa, "cuda") == 0 ? cuda_open(NULL) : ops_open(isa, threads),
               .shape = shape,
               .rows = rows,
               .n_rows = n_rows,
               .host = op->host};
    ops_random r = {77};
    b.t = kn_train_ops_of(b.be);
    assert_non_null(b.t);
    op->sizes(shape, b.size, &b.n_slots);
    for (int i = 0; i < b.n_slots; i++) {
        float *host = calloc(b.size[i] + 1, sizeof *host);
        ops_random_fill(&r, host, b.size[i]);
        for (size_t j = 0; j < b.size[i] && op->positive & 1u << i; j++)
            host[j] = fabsf(host[j]);
        b.slot[i] = b.host & 1u << i ? host : ops_upload(b.be, host, b.size[i]);
        if (b.slot[i] != host) free(host);
    }
    return b;
}

/* A slot's values; the caller frees. */
static float *slot_values(const bench *b, int i)
{
    float *host = malloc((b->size[i] + 1) * sizeof *host);
    assert_non_null(host);
    if (b->host & 1u << i)
        memcpy(host, b->slot[i], b->size[i] * sizeof *host);
    else
        b->be->ops->download(b->be, host, b->slot[i], b->size[i] * sizeof *host);
    return host;
}

static void free_bench(bench *b)
{
    for (int i = 0; i < b->n_slots; i++)
        if (b->host & 1u << i)
            free(b->slot[i]);
        else
            b->be->ops->buffer_free(b->be, b->slot[i]);
    b->be->ops->close(b->be);
}

static void compare_slot(const op_case *op, const bench *got, const bench *want, int i, bool bits)
{
    float *values = slot_values(got, i), *wanted = slot_values(want, i);
    double *expected = calloc(want->size[i] + 1, sizeof *expected), largest = 0;
    for (size_t j = 0; j < want->size[i]; j++) {
        expected[j] = wanted[j];
        largest = fmax(largest, fabs(expected[j]));
    }
    if (bits)
        ops_expect_same_bits(values, wanted, got->size[i], op->name);
    else
        ops_expect_close(values, expected, want->size[i], op->tolerance * largest + 1e-12, 0,
                         op->name);
    free(expected);
    free(values);
    free(wanted);
}

/* Device "cuda" against the reference: no bit is promised, the tolerances are. */
static void check_cuda(const op_case *op, const int *shape, const int32_t *rows, int n_rows)
{
    bench got = make_bench("cuda", 1, op, shape, rows, n_rows);
    bench want = make_bench("ref", 1, op, shape, rows, n_rows);
    op->call(&want);
    op->call(&got);
    cuda_expect_good(got.be);
    for (int i = 0; i < want.n_slots; i++)
        if (op->written & 1u << i) compare_slot(op, &got, &want, i, false);
    free_bench(&got);
    free_bench(&want);
}

static void check_shape(const op_case *op, const int *shape, const int32_t *rows, int n_rows)
{
    bench want = make_bench("ref", 1, op, shape, rows, n_rows);
    op->call(&want);
    for (int isa = 0; ops_isa(isa); isa++) {
        bench one = make_bench(ops_isa(isa), 1, op, shape, rows, n_rows);
        bench three = make_bench(ops_isa(isa), 3, op, shape, rows, n_rows);
        op->call(&one);
        op->call(&three);
        for (int i = 0; i < want.n_slots; i++) {
            if (!(op->written & 1u << i)) continue;
            compare_slot(op, &one, &want, i, false);
            compare_slot(op, &three, &one, i, true);
        }
        free_bench(&three);
        free_bench(&one);
    }
    free_bench(&want);
}

/* rmsnorm_backward, shape {n, d}: x, weight, d_y, d_x */
static void norm_sizes(const int *s, size_t *size, int *n)
{
    size[0] = size[2] = size[3] = (size_t)(s[0] * s[1]);
    size[1] = (size_t)s[1];
    *n = 4;
}
static void norm_call(bench *b)
{
    b->t->rmsnorm_backward(b->be, b->slot[0], b->slot[1], 1e-5f, b->slot[2], b->shape[0],
                           b->shape[1], b->slot[3]);
}

/* swiglu_backward, shape {n, d}: gate, up, d_y, d_gate, d_up */
static void swiglu_sizes(const int *s, size_t *size, int *n)
{
    for (int i = 0; i < 5; i++)
        size[i] = (size_t)(s[0] * s[1]);
    *n = 5;
}
static void swiglu_call(bench *b)
{
    b->t->swiglu_backward(b->be, b->slot[0], b->slot[1], b->slot[2], b->shape[0], b->shape[1],
                          b->slot[3], b->slot[4]);
}

/* attention and its backward, shape {n_heads, n_kv_heads, head_dim, length, second length}:
 * q, k, v, d_y, y, d_q, d_k, d_v */
static void attention_sizes(const int *s, size_t *size, int *n)
{
    size_t tokens = (size_t)(s[3] + s[4]), q = (size_t)(s[0] * s[2]), kv = (size_t)(s[1] * s[2]);
    size[0] = size[3] = size[4] = size[5] = tokens * q;
    size[1] = size[2] = size[6] = size[7] = tokens * kv;
    *n = 8;
}
static void attention_call(bench *b)
{
    const int *s = b->shape;
    const kn_span spans[] = {{0, s[3]}, {s[3], s[4]}};
    const kn_heads heads = {s[0], s[1], s[2]};
    float **x = b->slot;
    b->t->attention(b->be, spans, 2, &heads, x[0], x[1], x[2], x[4]);
    b->t->attention_backward(b->be, spans, 2, &heads, x[0], x[1], x[2], x[4], x[3], x[5], x[6],
                             x[7]);
}

/* LoRA both ways, shape {n, in, out, rank}: x, a, b, y, u, d_y, d_a, d_b, d_x */
static void lora_sizes(const int *s, size_t *size, int *n)
{
    const size_t sizes[] = {(size_t)(s[0] * s[1]), (size_t)(s[3] * s[1]), (size_t)(s[2] * s[3]),
                            (size_t)(s[0] * s[2]), (size_t)(s[0] * s[3]), (size_t)(s[0] * s[2]),
                            (size_t)(s[3] * s[1]), (size_t)(s[2] * s[3]), (size_t)(s[0] * s[1])};
    memcpy(size, sizes, sizeof sizes);
    *n = 9;
}
static void lora_call(bench *b)
{
    const int *s = b->shape;
    float **x = b->slot;
    kn_lora_train l = {.row_index = b->rows, .n_rows = b->n_rows, .rank = s[3], .scale = 2};
    l.in = s[1];
    l.out = s[2];
    l.a = x[1];
    l.b = x[2];
    l.d_a = x[6];
    l.d_b = x[7];
    l.u = x[4];
    b->t->lora(b->be, &l, x[0], x[3], s[2]);
    b->t->lora_backward(b->be, &l, x[0], x[5], s[2], x[8]);
}

/* DiReFT both ways, shape {n, d, rank}: h, r, w, bias, u, h before, d_h, d_r, d_w, d_bias */
static void direft_sizes(const int *s, size_t *size, int *n)
{
    size_t rows = (size_t)(s[0] * s[1]), matrix = (size_t)(s[1] * s[2]);
    const size_t sizes[] = {rows, matrix, matrix, (size_t)s[2], (size_t)(s[0] * s[2]),
                            rows, rows,   matrix, matrix,       (size_t)s[2]};
    memcpy(size, sizes, sizeof sizes);
    *n = 10;
}
static void direft_call(bench *b)
{
    const int *s = b->shape;
    float **x = b->slot;
    kn_direft_train l = {.row_index = b->rows, .n_rows = b->n_rows, .rank = s[2]};
    l.r = x[1];
    l.w = x[2];
    l.bias = x[3];
    l.u = x[4];
    l.d_r = x[7];
    l.d_w = x[8];
    l.d_bias = x[9];
    b->t->direft(b->be, &l, s[1], x[0]);
    b->t->direft_backward(b->be, &l, s[1], x[5], x[6]);
}

/* Losses, shape {n, vocab}: logits, log_sum, logp, weight, teacher, second logits, kl */
static void loss_sizes(const int *s, size_t *size, int *n)
{
    size[0] = size[4] = size[5] = (size_t)(s[0] * s[1]);
    size[1] = size[2] = size[3] = size[6] = (size_t)s[0];
    *n = 7;
}
static void loss_call(bench *b)
{
    int n = b->shape[0], vocab = b->shape[1];
    int32_t *target = calloc((size_t)n, sizeof *target);
    for (int i = 0; i < n; i++)
        target[i] = (i * 7919) % vocab;
    b->t->log_softmax(b->be, b->slot[0], n, vocab, target, b->slot[1], b->slot[2]);
    b->t->softmax_grad(b->be, b->slot[0], n, vocab, target, b->slot[1], b->slot[3]);
    b->t->distill_grad(b->be, b->slot[5], b->slot[4], n, vocab, b->slot[3], b->slot[6]);
    free(target);
}

/* AdamW and sums, shape {count}: grad, value, m, v, sum */
static void adamw_sizes(const int *s, size_t *size, int *n)
{
    for (int i = 0; i < 4; i++)
        size[i] = (size_t)s[0];
    size[4] = 1;
    *n = 5;
}
static void adamw_call(bench *b)
{
    const kn_adamw step = {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 3};
    b->slot[4][0] = (float)b->t->sum_squares(b->be, b->slot[0], (size_t)b->shape[0]);
    b->t->adamw(b->be, &step, b->slot[0], (size_t)b->shape[0], b->slot[1], b->slot[2], b->slot[3]);
}

static const op_case norm_op = {"rmsnorm_backward", norm_sizes, norm_call, 1 << 3, 2e-6, 0, 0};
static const op_case swiglu_op = {"swiglu_backward", swiglu_sizes, swiglu_call, 3 << 3, 2e-6, 0, 0};
static const op_case attention_op = {
    "attention", attention_sizes, attention_call, 0xF0, 5e-6, 0, 0};
static const op_case lora_op = {"lora", lora_sizes, lora_call, 0x1D8, 5e-6, 0, 0};
static const op_case direft_op = {"direft", direft_sizes, direft_call, 0x3D1, 5e-6, 0, 0};
static const op_case loss_op = {"losses", loss_sizes, loss_call, 0x67, 3e-6, .host = 0x4E};
static const op_case adamw_op = {"adamw", adamw_sizes,  adamw_call,      0x1E,
                                 1e-6,    .host = 0x10, .positive = 0x08};

/* Rows with gaps, in runs of different lengths. */
static int some_rows(int n, int32_t *rows)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (i % 11 != 3 && i % 17 < 14) rows[count++] = i;
    return count;
}

typedef void checker(const op_case *op, const int *shape, const int32_t *rows, int n_rows);

static void check_elementwise(checker *check)
{
    static const int shapes[][2] = {{1, 1},  {3, 7},    {2, 16},  {5, 31},
                                    {9, 64}, {17, 160}, {33, 576}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check(&norm_op, shapes[i], NULL, 0);
        check(&swiglu_op, shapes[i], NULL, 0);
    }
    static const int vocabs[][2] = {{1, 2}, {3, 17}, {7, 590}, {5, 4099}};
    for (size_t i = 0; i < sizeof vocabs / sizeof vocabs[0]; i++)
        check(&loss_op, vocabs[i], NULL, 0);
    static const int counts[] = {1, 15, 8192, 20001};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        check(&adamw_op, &counts[i], NULL, 0);
}

static void check_attention(checker *check)
{
    static const int shapes[][5] = {{1, 1, 2, 1, 1},   {2, 1, 16, 5, 1},   {4, 2, 16, 33, 20},
                                    {9, 3, 64, 40, 3}, {3, 3, 32, 64, 31}, {2, 2, 6, 100, 65}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check(&attention_op, shapes[i], NULL, 0);
}

static void check_adapters(checker *check)
{
    int32_t rows[256];
    static const int lora[][4] = {{1, 3, 5, 1},     {7, 16, 16, 2},    {40, 64, 160, 4},
                                  {65, 96, 33, 17}, {130, 160, 64, 8}, {50, 576, 192, 8}};
    for (size_t i = 0; i < sizeof lora / sizeof lora[0]; i++)
        check(&lora_op, lora[i], rows, some_rows(lora[i][0], rows));
    static const int direft[][3] = {
        {1, 3, 1}, {7, 16, 2}, {40, 64, 4}, {130, 96, 17}, {50, 576, 70}};
    for (size_t i = 0; i < sizeof direft / sizeof direft[0]; i++)
        check(&direft_op, direft[i], rows, some_rows(direft[i][0], rows));
}

static void test_elementwise(void **state)
{
    (void)state;
    check_elementwise(check_shape);
}

static void test_attention(void **state)
{
    (void)state;
    check_attention(check_shape);
}

static void test_adapters(void **state)
{
    (void)state;
    check_adapters(check_shape);
}

static void test_cuda_operations(void **state)
{
    (void)state;
    check_elementwise(check_cuda);
    check_attention(check_cuda);
    check_adapters(check_cuda);
}

/* --- the reference against central differences ---------------------------------------------- */

#define STEP 1e-2f

/* The loss sum(c * y) of a forward operation of the reference. */
typedef double (*loss_fn)(bench *b);

static double weighted_sum(const float *y, const float *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)y[i] * c[i];
    return sum;
}

/* slot x of b: analytic gradient against (loss(x + h) - loss(x - h)) / 2h at up to 40 places. */
static void check_difference(bench *b, int x, const float *gradient, loss_fn loss, const char *name)
{
    size_t stride = b->size[x] / 40 + 1;
    double largest = 0;
    for (size_t i = 0; i < b->size[x]; i++)
        largest = fmax(largest, fabs(gradient[i]));
    for (size_t i = 0; i < b->size[x]; i += stride) {
        float kept = b->slot[x][i];
        b->slot[x][i] = kept + STEP;
        double up = loss(b);
        b->slot[x][i] = kept - STEP;
        double down = loss(b);
        b->slot[x][i] = kept;
        double numeric = (up - down) / (2 * (double)STEP);
        if (fabs(numeric - gradient[i]) > 1e-2 * largest)
            fail_msg("%s: d[%zu] is %g, differences say %g (largest %g)", name, i, gradient[i],
                     numeric, largest);
    }
}

static double norm_loss(bench *b)
{
    size_t n = b->size[0];
    float *y = calloc(n, sizeof *y);
    b->be->ops->rmsnorm(b->be, b->slot[0], b->slot[1], 1e-5f, b->shape[0], b->shape[1], y);
    double sum = weighted_sum(y, b->slot[2], n);
    free(y);
    return sum;
}

static double swiglu_loss(bench *b)
{
    size_t n = b->size[0];
    float *y = calloc(n, sizeof *y);
    b->be->ops->swiglu(b->be, b->slot[0], b->slot[1], b->shape[0], b->shape[1], y);
    double sum = weighted_sum(y, b->slot[2], n);
    free(y);
    return sum;
}

static double attention_loss(bench *b)
{
    const int *s = b->shape;
    const kn_span spans[] = {{0, s[3]}, {s[3], s[4]}};
    const kn_heads heads = {s[0], s[1], s[2]};
    float *y = calloc(b->size[0], sizeof *y);
    b->t->attention(b->be, spans, 2, &heads, b->slot[0], b->slot[1], b->slot[2], y);
    double sum = weighted_sum(y, b->slot[3], b->size[0]);
    free(y);
    return sum;
}

static double lora_loss(bench *b)
{
    const int *s = b->shape;
    float *y = calloc(b->size[3], sizeof *y), *u = calloc(b->size[4], sizeof *u);
    kn_lora_train l = {.row_index = b->rows, .n_rows = b->n_rows, .rank = s[3], .scale = 2};
    l.in = s[1];
    l.out = s[2];
    l.a = b->slot[1];
    l.b = b->slot[2];
    l.u = u;
    b->t->lora(b->be, &l, b->slot[0], y, s[2]);
    double sum = weighted_sum(y, b->slot[5], b->size[3]);
    free(u);
    free(y);
    return sum;
}

static double direft_loss(bench *b)
{
    const int *s = b->shape;
    float *h = calloc(b->size[5], sizeof *h), *u = calloc(b->size[4], sizeof *u);
    memcpy(h, b->slot[5], b->size[5] * sizeof *h);
    kn_direft_train l = {.row_index = b->rows, .n_rows = b->n_rows, .rank = s[2]};
    l.r = b->slot[1];
    l.w = b->slot[2];
    l.bias = b->slot[3];
    l.u = u;
    b->t->direft(b->be, &l, s[1], h);
    double sum = weighted_sum(h, b->slot[11], b->size[5]);
    free(u);
    free(h);
    return sum;
}

static double target_loss(bench *b)
{
    int32_t target[64];
    float log_sum[64], logp[64];
    for (int i = 0; i < b->shape[0]; i++)
        target[i] = (i * 7919) % b->shape[1];
    b->t->log_softmax(b->be, b->slot[0], b->shape[0], b->shape[1], target, log_sum, logp);
    return -weighted_sum(logp, b->slot[3], (size_t)b->shape[0]);
}

static double teacher_loss(bench *b)
{
    float *scratch = calloc(b->size[5], sizeof *scratch), kl[64];
    memcpy(scratch, b->slot[5], b->size[5] * sizeof *scratch);
    b->t->distill_grad(b->be, scratch, b->slot[4], b->shape[0], b->shape[1], b->slot[3], kl);
    free(scratch);
    return weighted_sum(kl, b->slot[3], (size_t)b->shape[0]);
}

/* A copy of slot i. */
static float *copy_slot(const bench *b, int i)
{
    float *copy = malloc((b->size[i] + 1) * sizeof *copy);
    memcpy(copy, b->slot[i], b->size[i] * sizeof *copy);
    return copy;
}

static void clear_slots(bench *b, unsigned which)
{
    for (int i = 0; i < b->n_slots; i++)
        if (which & 1u << i) memset(b->slot[i], 0, b->size[i] * sizeof *b->slot[i]);
}

static void test_row_differences(void **state)
{
    (void)state;
    static const int shape[] = {3, 20};
    bench b = make_bench("ref", 1, &norm_op, shape, NULL, 0);
    clear_slots(&b, 1 << 3);
    norm_call(&b);
    check_difference(&b, 0, b.slot[3], norm_loss, "rmsnorm");
    free_bench(&b);
    b = make_bench("ref", 1, &swiglu_op, shape, NULL, 0);
    swiglu_call(&b);
    check_difference(&b, 0, b.slot[3], swiglu_loss, "swiglu, gate");
    check_difference(&b, 1, b.slot[4], swiglu_loss, "swiglu, up");
    free_bench(&b);
    b = make_bench("ref", 1, &loss_op, shape, NULL, 0);
    float *logits = copy_slot(&b, 0), *second = copy_slot(&b, 5);
    loss_call(&b);
    float *gradient = copy_slot(&b, 0), *pull = copy_slot(&b, 5);
    memcpy(b.slot[0], logits, b.size[0] * sizeof *logits);
    memcpy(b.slot[5], second, b.size[5] * sizeof *second);
    check_difference(&b, 0, gradient, target_loss, "targets");
    check_difference(&b, 5, pull, teacher_loss, "distillation");
    free(logits);
    free(second);
    free(gradient);
    free(pull);
    free_bench(&b);
}

static void test_attention_differences(void **state)
{
    (void)state;
    static const int shape[] = {4, 2, 6, 9, 4};
    bench b = make_bench("ref", 1, &attention_op, shape, NULL, 0);
    attention_call(&b);
    for (int i = 0; i < 3; i++)
        check_difference(&b, i, b.slot[5 + i], attention_loss, "attention");
    free_bench(&b);
}

static void test_adapter_differences(void **state)
{
    (void)state;
    int32_t rows[16];
    static const int lora_shape[] = {12, 10, 9, 3};
    bench b = make_bench("ref", 1, &lora_op, lora_shape, rows, some_rows(12, rows));
    clear_slots(&b, 7 << 6);
    lora_call(&b);
    check_difference(&b, 0, b.slot[8], lora_loss, "lora, x");
    check_difference(&b, 1, b.slot[6], lora_loss, "lora, A");
    check_difference(&b, 2, b.slot[7], lora_loss, "lora, B");
    free_bench(&b);
    static const int direft_shape[] = {12, 10, 3};
    b = make_bench("ref", 1, &direft_op, direft_shape, rows, some_rows(12, rows));
    clear_slots(&b, 7 << 7);
    b.slot[11] = copy_slot(&b, 6); /* the weights of the loss: d_h before it is overwritten */
    memcpy(b.slot[0], b.slot[5], b.size[5] * sizeof *b.slot[0]);
    direft_call(&b);
    check_difference(&b, 5, b.slot[6], direft_loss, "direft, h");
    check_difference(&b, 1, b.slot[7], direft_loss, "direft, R");
    check_difference(&b, 2, b.slot[8], direft_loss, "direft, W");
    check_difference(&b, 3, b.slot[9], direft_loss, "direft, bias");
    free(b.slot[11]);
    free_bench(&b);
}

/* The rotation's backward pass is the rotation back. */
static void test_rope_backward(void **state)
{
    (void)state;
    enum { N = 5, HEADS = 3, DIM = 16 };
    const double inv_freq[DIM / 2] = {1, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001};
    const int32_t positions[N] = {0, 1, 7, 100, 3000};
    const kn_rope rope = {DIM, inv_freq};
    ops_random r = {5};
    float host[N * HEADS * DIM];
    double expected[N * HEADS * DIM];
    ops_random_fill(&r, host, N * HEADS * DIM);
    for (int i = 0; i < N * HEADS * DIM; i++)
        expected[i] = host[i];
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        float *x = ops_upload(be, host, N * HEADS * DIM);
        be->ops->rope(be, &rope, x, N, HEADS, positions);
        kn_train_ops_of(be)->rope_backward(be, &rope, x, N, HEADS, positions);
        ops_expect_close(x, expected, N * HEADS * DIM, 1e-6, 0, "rope");
        be->ops->buffer_free(be, x);
        be->ops->close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_differences),
        cmocka_unit_test(test_attention_differences),
        cmocka_unit_test(test_adapter_differences),
        cmocka_unit_test(test_rope_backward),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_cuda_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
