/* The hottest kernels, one call each on fixed shapes. Under callgrind (tests/structure/
 * test_kernel_cost.sh) it shows how many instructions they take; by itself, that results are
 * finite. */
#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_finite(const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(isfinite(y[i]));
}

static void run_linear(kn_backend *be, kn_type type, int64_t rows, int64_t cols, int n)
{
    ops_random r = {3};
    void *data = ops_random_matrix(&r, type, rows, cols);
    kn_matrix m = {type, rows, cols, data, KN_ROWS_PLAIN, 0};
    kn_weight *w = be->ops->weight_create(be, &m);
    float *x = malloc((size_t)(n * cols) * sizeof *x);
    assert_true(w && x);
    ops_random_fill(&r, x, (size_t)(n * cols));
    float *dx = ops_upload(be, x, (size_t)(n * cols));
    float *y = be->ops->buffer_alloc(be, (size_t)(n * rows) * sizeof *y);
    kn_linear out = {.w = w, .y = y, .ld_y = rows};
    be->ops->linear(be, dx, n, &out, 1);
    expect_finite(y, (size_t)(n * rows));
    be->ops->buffer_free(be, dx);
    be->ops->buffer_free(be, y);
    be->ops->weight_free(be, w);
    free(x);
    free(data);
}

/* Eight answers with contexts of 256. */
static void run_attention(kn_backend *be)
{
    enum { N = 8, CONTEXT = 256, HEADS = 9, KV_HEADS = 3, DIM = 64, PAGE = 16 };
    const kn_kv_shape shape = {1, KV_HEADS, DIM, PAGE, CONTEXT / PAGE, KN_KV_F16};
    kn_kv *kv = be->ops->kv_create(be, &shape);
    ops_random r = {4};
    static float k[CONTEXT * KV_HEADS * DIM], q[N * HEADS * DIM];
    ops_random_fill(&r, k, CONTEXT * KV_HEADS * DIM);
    ops_random_fill(&r, q, N * HEADS * DIM);
    static int32_t pages[N][CONTEXT / PAGE]; /* the same ones, but contexts of their own */
    static kn_kv_row rows[CONTEXT];
    for (int i = 0; i < N * (CONTEXT / PAGE); i++)
        pages[i / (CONTEXT / PAGE)][i % (CONTEXT / PAGE)] = i % (CONTEXT / PAGE);
    for (int i = 0; i < CONTEXT; i++)
        rows[i] = (kn_kv_row){pages[0], i};
    float *dk = ops_upload(be, k, CONTEXT * KV_HEADS * DIM),
          *dq = ops_upload(be, q, N * HEADS * DIM);
    float *y = be->ops->buffer_alloc(be, N * HEADS * DIM * sizeof *y);
    be->ops->kv_write(be, kv, 0, dk, dk, rows, CONTEXT);
    for (int i = 0; i < N; i++)
        rows[i] = (kn_kv_row){pages[i], CONTEXT - 1};
    be->ops->attention(be, kv, 0, dq, rows, N, HEADS, y);
    expect_finite(y, N * HEADS * DIM);
    be->ops->buffer_free(be, dk);
    be->ops->buffer_free(be, dq);
    be->ops->buffer_free(be, y);
    be->ops->kv_free(be, kv);
}

/* Eight adapters of rank 16, four rows each. */
static void run_adapters(kn_backend *be)
{
    enum { N = 8, EACH = 4, RANK = 16, IN = 576, OUT = 1536 };
    static uint16_t a[RANK * IN], b[RANK * OUT];
    ops_random r = {5};
    for (int i = 0; i < RANK * IN; i++)
        a[i] = kn_f32_to_bf16(ops_random_float(&r));
    for (int i = 0; i < RANK * OUT; i++)
        b[i] = kn_f32_to_bf16(ops_random_float(&r));
    const kn_adapter_matrices m = {false, RANK, IN, OUT, KN_BF16, a, b, NULL, 1};
    float *x = be->ops->buffer_alloc(be, N * EACH * IN * sizeof *x);
    float *y = be->ops->buffer_alloc(be, N * EACH * OUT * sizeof *y);
    static int32_t index[N * EACH];
    kn_segment segments[N];
    kn_adapter_weight *w[N];
    for (int i = 0; i < N; i++) {
        w[i] = be->ops->adapter_create(be, &m);
        assert_non_null(w[i]);
        segments[i] = (kn_segment){w[i], index + i * EACH, EACH};
        for (int j = 0; j < EACH; j++)
            index[i * EACH + j] = i * EACH + j;
    }
    be->ops->lora(be, segments, N, x, y, OUT);
    expect_finite(y, N * EACH * OUT);
    for (int i = 0; i < N; i++)
        be->ops->adapter_free(be, w[i]);
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, y);
}

static void test_hot_kernels(void **state)
{
    (void)state;
    bool usable = false;
    for (int i = 0; ops_isa(i); i++)
        usable = usable || strcmp(ops_isa(i), "avx2") == 0;
    if (!usable) skip();
    kn_backend *be = ops_open("avx2", 1);
    run_linear(be, KN_Q4_1, 576, 576, 32);
    run_linear(be, KN_Q8_0, 1024, 576, 8);
    run_attention(be);
    run_adapters(be);
    be->ops->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hot_kernels)};
    return cmocka_run_group_tests_name("kernel_cost", tests, NULL, NULL);
}
