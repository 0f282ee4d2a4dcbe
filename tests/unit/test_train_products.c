/* The products of training with the model's weights: every instruction set and every storage type
 * against the reference, the same bits on any number of threads. */
#include "kernels/train.h"
#include "support/cuda.h"
#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Products with quantized weights may round both sides to 14 bits, group by group. */
static double product_tolerance(kn_type type)
{
    return kn_type_get(type)->quantized ? 2e-4 : 3e-6;
}

/* Two matrices of different heights, and what their product is: as the reference has it, and to the
 * bit as it is on one thread. */
typedef struct {
    kn_type type;
    int cols;
    void *matrix[2];
    size_t size; /* of the result */
    double *expected, largest;
    float *one_thread;
} products;
static const int heights[] = {33, 96};

static products products_make(ops_random *r, kn_type type, int cols, size_t size)
{
    products p = {.type = type, .cols = cols, .size = size};
    for (int o = 0; o < 2; o++)
        p.matrix[o] = ops_random_matrix(r, type, heights[o], cols);
    p.expected = calloc(size, sizeof *p.expected);
    p.one_thread = calloc(size, sizeof *p.one_thread);
    return p;
}

static void products_free(products *p)
{
    free(p->matrix[0]);
    free(p->matrix[1]);
    free(p->expected);
    free(p->one_thread);
}

static kn_weight *product_weight(kn_backend *be, const products *p, int o)
{
    const kn_matrix m = {
        .type = p->type, .rows = heights[o], .cols = p->cols, .data = p->matrix[o]};
    return be->ops->weight_create(be, &m);
}

/* The first instruction set is the reference's, and one thread comes before more. */
static void products_check(products *p, const float *got, int isa, int threads, const char *what)
{
    for (size_t i = 0; i < p->size && isa == 0 && threads == 1; i++) {
        p->expected[i] = got[i];
        p->largest = fmax(p->largest, fabs(p->expected[i]));
    }
    ops_expect_close(got, p->expected, p->size, product_tolerance(p->type) * p->largest, 0, what);
    if (threads == 1)
        memcpy(p->one_thread, got, p->size * sizeof *got);
    else
        ops_expect_same_bits(got, p->one_thread, p->size, what);
}

enum { LD_GRAD = 96 };

/* linear_backward of both, then of the first again, added. On be. */
static float *backward(kn_backend *be, const products *p, const float *host, int n)
{
    kn_linear_grad outs[2];
    float *d_y = ops_upload(be, host, (size_t)n * LD_GRAD);
    float *d_x = be->ops->buffer_alloc(be, p->size * sizeof *d_x);
    for (int o = 0; o < 2; o++)
        outs[o] = (kn_linear_grad){product_weight(be, p, o), heights[o], d_y, LD_GRAD};
    kn_train_ops_of(be)->linear_backward(be, outs, 2, n, p->cols, false, d_x);
    kn_train_ops_of(be)->linear_backward(be, outs, 1, n, p->cols, true, d_x);
    for (int o = 0; o < 2; o++)
        be->ops->weight_free(be, (kn_weight *)(uintptr_t)outs[o].w);
    be->ops->buffer_free(be, d_y);
    return d_x;
}

static void check_linear(kn_type type, int n, int cols)
{
    ops_random r = {(uint64_t)type * 31 + (uint64_t)n};
    products p = products_make(&r, type, cols, (size_t)(n * cols));
    float *host = calloc((size_t)n * LD_GRAD, sizeof *host);
    ops_random_fill(&r, host, (size_t)n * LD_GRAD);
    for (int isa = 0; ops_isa(isa); isa++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            kn_backend *be = ops_open(ops_isa(isa), threads);
            float *d_x = backward(be, &p, host, n);
            products_check(&p, d_x, isa, threads, "linear_backward");
            be->ops->buffer_free(be, d_x);
            be->ops->close(be);
        }
    }
    free(host);
    products_free(&p);
}

/* The exact forward product for every storage type: with a bias, and added to what is there. */
static void check_forward(kn_type type, int n, int cols)
{
    enum { LD = 100 };
    ops_random r = {(uint64_t)type * 17 + (uint64_t)n};
    const size_t size = (size_t)(n * LD);
    products p = products_make(&r, type, cols, 2 * size);
    float *host = calloc((size_t)(n * cols) + LD, sizeof *host);
    ops_random_fill(&r, host, (size_t)(n * cols) + LD);
    for (int isa = 0; ops_isa(isa); isa++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            kn_backend *be = ops_open(ops_isa(isa), threads);
            float *x = ops_upload(be, host, (size_t)(n * cols));
            float *bias = ops_upload(be, host + n * cols, LD);
            float *y = be->ops->buffer_alloc(be, p.size * sizeof *y);
            kn_linear outs[2];
            for (int o = 0; o < 2; o++)
                outs[o] = (kn_linear){.w = product_weight(be, &p, o),
                                      .bias = o ? bias : NULL,
                                      .y = y + (size_t)o * size,
                                      .ld_y = LD};
            const kn_train_ops *train = kn_train_ops_of(be);
            void (*linear)(kn_backend *, const float *, int, const kn_linear *, int) =
                train->linear ? train->linear : be->ops->linear;
            linear(be, x, n, outs, 2);
            outs[0].add = true;
            linear(be, x, n, outs, 1);
            products_check(&p, y, isa, threads, "linear");
            for (int o = 0; o < 2; o++)
                be->ops->weight_free(be, (kn_weight *)(uintptr_t)outs[o].w);
            be->ops->buffer_free(be, x);
            be->ops->buffer_free(be, bias);
            be->ops->buffer_free(be, y);
            be->ops->close(be);
        }
    }
    free(host);
    products_free(&p);
}

static void test_linear(void **state)
{
    (void)state;
    static const int rows[] = {1, 7, 65};
    for (int type = 0; type < KN_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            check_forward((kn_type)type, rows[i], 256);
}

/* The backward product is the transpose of the forward one: <y, W x> = <W^T y, x>. */
static void check_transpose(const char *isa, kn_type type)
{
    enum { N = 13, ROWS = 40, COLS = 256 };
    ops_random r = {(uint64_t)type + 3};
    float x_host[N * COLS], y_host[N * ROWS];
    ops_random_fill(&r, x_host, N * COLS);
    ops_random_fill(&r, y_host, N * ROWS);
    void *matrix = ops_random_matrix(&r, type, ROWS, COLS);
    kn_backend *be = ops_open(isa, 2);
    const kn_train_ops *t = kn_train_ops_of(be);
    const kn_matrix m = {.type = type, .rows = ROWS, .cols = COLS, .data = matrix};
    kn_weight *w = be->ops->weight_create(be, &m);
    float *x = ops_upload(be, x_host, N * COLS), *y = ops_upload(be, y_host, N * ROWS);
    float *wx = be->ops->buffer_alloc(be, N * ROWS * sizeof *wx);
    float *wy = be->ops->buffer_alloc(be, N * COLS * sizeof *wy);
    const kn_linear forward = {.w = w, .y = wx, .ld_y = ROWS};
    const kn_linear_grad backward = {w, ROWS, y, ROWS};
    (t->linear ? t->linear : be->ops->linear)(be, x, N, &forward, 1);
    t->linear_backward(be, &backward, 1, N, COLS, false, wy);
    double left = 0, right = 0, size = 0;
    for (int i = 0; i < N * ROWS; i++) {
        left += (double)y[i] * wx[i];
        size += fabs((double)y[i] * wx[i]);
    }
    for (int i = 0; i < N * COLS; i++)
        right += (double)x[i] * wy[i];
    if (!(fabs(left - right) <= product_tolerance(type) / 3 * size))
        fail_msg("%s, type %d: %g and %g", isa, (int)type, left, right);
    be->ops->weight_free(be, w);
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, y);
    be->ops->buffer_free(be, wx);
    be->ops->buffer_free(be, wy);
    be->ops->close(be);
    free(matrix);
}

static void test_linear_transpose(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++)
        for (int type = 0; type < KN_TYPE_COUNT; type++)
            check_transpose(ops_isa(isa), (kn_type)type);
}

/* A value that isn't finite, as a diverging training has, spoils its own row and no other. */
static void check_not_finite(const char *isa, float bad)
{
    enum { N = 5, ROWS = 40, COLS = 64, SPOILED = 3 };
    ops_random r = {9};
    float x_host[N * COLS], y_host[2][N * ROWS];
    ops_random_fill(&r, x_host, N * COLS);
    void *matrix = ops_random_matrix(&r, KN_Q4_1, ROWS, COLS);
    kn_backend *be = ops_open(isa, 1);
    const kn_train_ops *t = kn_train_ops_of(be);
    const kn_matrix m = {.type = KN_Q4_1, .rows = ROWS, .cols = COLS, .data = matrix};
    kn_weight *w = be->ops->weight_create(be, &m);
    float *y = be->ops->buffer_alloc(be, sizeof y_host[0]);
    const kn_linear out = {.w = w, .y = y, .ld_y = ROWS};
    for (int k = 0; k < 2; k++) {
        if (k) x_host[SPOILED * COLS + 50] = bad;
        float *x = ops_upload(be, x_host, N * COLS);
        (t->linear ? t->linear : be->ops->linear)(be, x, N, &out, 1);
        be->ops->download(be, y_host[k], y, sizeof y_host[k]);
        be->ops->buffer_free(be, x);
    }
    for (int i = 0; i < N; i++)
        for (int o = 0; o < ROWS; o++)
            if (i == SPOILED)
                assert_false(isfinite(y_host[1][i * ROWS + o]));
            else
                assert_true(y_host[1][i * ROWS + o] == y_host[0][i * ROWS + o]);
    be->ops->weight_free(be, w);
    be->ops->buffer_free(be, y);
    be->ops->close(be);
    free(matrix);
}

static void test_not_finite(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++) {
        check_not_finite(ops_isa(isa), NAN);
        check_not_finite(ops_isa(isa), INFINITY);
        check_not_finite(ops_isa(isa), -INFINITY);
    }
}

static void test_linear_backward(void **state)
{
    (void)state;
    static const int rows[] = {1, 7, 65};
    for (int type = 0; type < KN_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            check_linear((kn_type)type, rows[i], 256);
}

/* --- device "cuda" ---------------------------------------------------------------------------- */

static void check_cuda_linear(kn_backend *cuda, kn_backend *ref, kn_type type, int n)
{
    enum { COLS = 256 };
    ops_random r = {(uint64_t)type * 31 + (uint64_t)n};
    products p = products_make(&r, type, COLS, (size_t)n * COLS);
    float *host = calloc((size_t)n * LD_GRAD, sizeof *host);
    ops_random_fill(&r, host, (size_t)n * LD_GRAD);
    float *expected = backward(ref, &p, host, n), *got = backward(cuda, &p, host, n);
    double largest = 0;
    for (size_t i = 0; i < p.size; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    cuda_expect_close(cuda, got, expected, p.size, 3e-6 * largest, 0, "linear_backward");
    ref->ops->buffer_free(ref, expected);
    cuda->ops->buffer_free(cuda, got);
    free(host);
    products_free(&p);
}

/* The exact forward product: bias, an output that is added to, rows wider than W. */
static void check_cuda_exact(kn_backend *cuda, kn_backend *ref, kn_type type)
{
    enum { N = 41, COLS = 256, ROWS = 33, LD = 40 };
    ops_random r = {(uint64_t)type + 5};
    float host[N * COLS], bias[ROWS], start[N * LD], *y[2];
    void *matrix = ops_random_matrix(&r, type, ROWS, COLS);
    ops_random_fill(&r, host, N * COLS);
    ops_random_fill(&r, bias, ROWS);
    ops_random_fill(&r, start, N * LD);
    kn_backend *const both[] = {ref, cuda};
    for (int b = 0; b < 2; b++) {
        kn_backend *be = both[b];
        const kn_train_ops *t = kn_train_ops_of(be);
        const kn_matrix m = {.type = type, .rows = ROWS, .cols = COLS, .data = matrix};
        kn_weight *w = be->ops->weight_create(be, &m);
        float *x = ops_upload(be, host, N * COLS), *d_bias = ops_upload(be, bias, ROWS);
        y[b] = ops_upload(be, start, N * LD);
        const kn_linear out = {w, d_bias, y[b], LD, type % 2 == 1};
        (t->linear ? t->linear : be->ops->linear)(be, x, N, &out, 1);
        be->ops->weight_free(be, w);
        be->ops->buffer_free(be, x);
        be->ops->buffer_free(be, d_bias);
    }
    cuda_expect_close(cuda, y[1], y[0], N * LD, 1e-4, 1e-5, "exact linear");
    for (int b = 0; b < 2; b++)
        both[b]->ops->buffer_free(both[b], y[b]);
    free(matrix);
}

static void test_cuda_linear_backward(void **state)
{
    (void)state;
    kn_backend *cuda = cuda_open(NULL), *ref = ops_open("ref", 1);
    for (int type = 0; type < KN_TYPE_COUNT; type++) {
        check_cuda_linear(cuda, ref, (kn_type)type, 1);
        check_cuda_linear(cuda, ref, (kn_type)type, 65);
        check_cuda_exact(cuda, ref, (kn_type)type);
    }
    ref->ops->close(ref);
    cuda->ops->close(cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_backward),
        cmocka_unit_test(test_linear_transpose),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_cuda_linear_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
