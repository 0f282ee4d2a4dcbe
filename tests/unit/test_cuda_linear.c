/* Weights and linear operations of the CUDA backend against the definitions: kernels/ref on the
 * same inputs, exact products in double. Tolerances: kernels/cuda/README.md. */
#include "kernels/cuda/plugin.h"
#include "kernels/ref/ref.h"
#include "support/cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    kn_type type;
    int64_t rows, cols;
    kn_row_order order;
    int head_rows;
} shape;

typedef struct {
    shape s;
    int n;
    void *data;
    float *x, *bias, *w; /* w: dequantized, plain order */
    kn_matrix m;
} problem;

static problem make_problem(const shape *s, int n)
{
    problem p = {.s = *s, .n = n};
    ops_random r = {(uint64_t)(s->rows * 1000 + s->cols * 10 + n + s->type)};
    p.data = ops_random_matrix(&r, s->type, s->rows, s->cols);
    p.x = malloc((size_t)(n * s->cols) * sizeof *p.x);
    p.bias = malloc((size_t)s->rows * sizeof *p.bias);
    p.w = malloc((size_t)(s->rows * s->cols) * sizeof *p.w);
    assert_true(p.x && p.bias && p.w);
    ops_random_fill(&r, p.x, (size_t)(n * s->cols));
    ops_random_fill(&r, p.bias, (size_t)s->rows);
    p.m = (kn_matrix){s->type, s->rows, s->cols, p.data, s->order, s->head_rows};
    for (int64_t i = 0; i < s->rows; i++)
        kn_dequantize(s->type, kn_matrix_row(&p.m, i), p.w + i * s->cols, s->cols);
    return p;
}

static void free_problem(problem *p)
{
    free(p->data);
    free(p->x);
    free(p->bias);
    free(p->w);
}

/* The largest sum of absolute products of a row: what rounding errors are measured by. */
static double exact_row(const problem *p, int i, int64_t r, double *sum)
{
    double size = fabs((double)p->bias[r]);
    *sum = (double)p->bias[r];
    for (int64_t k = 0; k < p->s.cols; k++) {
        double term = (double)p->w[r * p->s.cols + k] * (double)p->x[i * p->s.cols + k];
        *sum += term;
        size += fabs(term);
    }
    return size;
}

static float *run(kn_backend *be, const kn_weight *w, const problem *p, int first, int n)
{
    const shape *s = &p->s;
    float *dx = ops_upload(be, p->x + first * s->cols, (size_t)(n * s->cols));
    float *dbias = ops_upload(be, p->bias, (size_t)s->rows);
    float *dy = be->ops->buffer_alloc(be, (size_t)(n * s->rows) * sizeof *dy);
    kn_linear out = {w, dbias, dy, s->rows, false};
    be->ops->linear(be, dx, n, &out, 1);
    float *y = cuda_fetch(be, dy, (size_t)(n * s->rows));
    be->ops->buffer_free(be, dx);
    be->ops->buffer_free(be, dbias);
    be->ops->buffer_free(be, dy);
    return y;
}

static bool by_gemm(const kn_backend *be, kn_type type, int n)
{
    if (strstr(be->isa, "exact")) return false;
    if (strstr(be->isa, "precise") && kn_type_get(type)->quantized) return true;
    return n > (kn_type_get(type)->quantized ? KN_CUDA_MATVEC_ROWS : KN_CUDA_MATVEC_FLOAT_ROWS);
}

/* Relative to the sum of absolute products (kernels/cuda/README.md): float32 sums; bfloat inputs
 * 2^-8 each; half 2^-11 twice; "precise" loses nothing of float32. */
static double tolerance_of(const kn_backend *be, kn_type type, int n)
{
    if (strstr(be->isa, "precise")) return 5e-7;
    if (!by_gemm(be, type, n) || type == KN_F32) return 3e-7;
    return type == KN_BF16 ? 4e-3 : 1e-3;
}

static void check_products(const kn_backend *be, const problem *p, const float *y, const char *what)
{
    const double tolerance = tolerance_of(be, p->s.type, p->n);
    for (int i = 0; i < p->n; i++)
        for (int64_t r = 0; r < p->s.rows; r++) {
            double sum, size = exact_row(p, i, r, &sum);
            double error = fabs((double)y[i * p->s.rows + r] - sum);
            if (!(error <= tolerance * size + 1e-6))
                fail_msg("%s: row %d, %d: %.9g, expected %.9g", what, i, (int)r,
                         (double)y[i * p->s.rows + r], sum);
        }
}

/* Small batches of quantized weights: the integer definition, up to the order of the sum. */
static void check_integers(const problem *p, const float *y, const char *what)
{
    size_t count = (size_t)p->n * (size_t)p->s.rows;
    float *expected = malloc(count * sizeof *expected);
    assert_non_null(expected);
    kn_ref_linear_int(&p->m, p->x, p->n, p->bias, expected);
    for (size_t i = 0; i < count; i++) {
        double sum, size = exact_row(p, (int)(i / (size_t)p->s.rows),
                                     (int64_t)(i % (size_t)p->s.rows), &sum);
        if (!(fabs((double)y[i] - (double)expected[i]) <= 1e-6 * size + 1e-6))
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, (double)y[i],
                     (double)expected[i]);
    }
    free(expected);
}

/* Rows alone give the bits of the batch: always in matvec, everywhere with "exact". */
static void check_alone(kn_backend *be, const kn_weight *w, const problem *p, const float *y,
                        const char *what)
{
    if (by_gemm(be, p->s.type, p->n)) return;
    for (int i = 0; i < p->n; i += p->n / 2 + 1) {
        float *alone = run(be, w, p, i, 1);
        ops_expect_same_bits(alone, y + i * p->s.rows, (size_t)p->s.rows, what);
        free(alone);
    }
}

static void check(kn_backend *be, const shape *s, int n)
{
    problem p = make_problem(s, n);
    char what[128];
    snprintf(what, sizeof what, "%s, %s [%d, %d] x %d", be->isa, kn_type_get(s->type)->name,
             (int)s->rows, (int)s->cols, n);
    kn_weight *w = be->ops->weight_create(be, &p.m);
    if (!w) fail_msg("%s: %s", what, kn_backend_error(be));
    float *y = run(be, w, &p, 0, n);
    if (kn_type_get(s->type)->quantized && !by_gemm(be, s->type, n))
        check_integers(&p, y, what);
    else
        check_products(be, &p, y, what);
    check_alone(be, w, &p, y, what);
    free(y);
    be->ops->weight_free(be, w);
    free_problem(&p);
}

static int64_t cols_of(kn_type type, int64_t cols)
{
    int64_t block = kn_type_get(type)->block;
    return (cols + block - 1) / block * block;
}

/* The tiny models' shapes and odd ones. */
static void test_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{64, 64},  {16, 64},  {96, 64}, {64, 96},
                                        {300, 64}, {33, 160}, {7, 577}, {1, 32}};
    kn_backend *be = cuda_open(NULL);
    for (int t = 0; t < KN_TYPE_COUNT; t++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            shape s = {(kn_type)t, shapes[j][0], cols_of((kn_type)t, shapes[j][1]), KN_ROWS_PLAIN,
                       0};
            check(be, &s, 1 + (int)(j * 3 + (size_t)t) % 12);
        }
    for (int t = 0; t < KN_TYPE_COUNT; t++) { /* columns that no vector load fits */
        shape heads = {(kn_type)t, 3 * 24, cols_of((kn_type)t, 256), KN_ROWS_ROPE_PAIRS, 24};
        check(be, &heads, 3);
        if (kn_type_get((kn_type)t)->block > 1) continue;
        for (int64_t cols = 1; cols < 14; cols += 3) {
            shape odd = {(kn_type)t, 9, cols, KN_ROWS_PLAIN, 0};
            check(be, &odd, 2);
            check(be, &odd, 11);
        }
    }
    be->ops->close(be);
}

/* SmolLM2's matrices, as far as the emulation has time. */
static void test_real_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{576, 576}, {192, 576}, {1536, 576}, {576, 1536}};
    kn_backend *be = cuda_open(NULL);
    const int rows = cuda_is_emulated() ? 24 : 100000;
    for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++)
        for (int t = 0; t < KN_TYPE_COUNT; t++) {
            int64_t most = shapes[j][0] < rows ? shapes[j][0] : rows;
            shape s = {(kn_type)t, most, cols_of((kn_type)t, shapes[j][1]), KN_ROWS_PLAIN, 0};
            check(be, &s, 1 + (int)j);
        }
    for (size_t j = 0; j < 4; j += 3) /* through cuBLAS */
        for (int t = 0; t < KN_TYPE_COUNT; t++) {
            shape s = {(kn_type)t, 24, cols_of((kn_type)t, shapes[j][1]), KN_ROWS_PLAIN, 0};
            check(be, &s, j ? 65 : 33);
        }
    /* Long rows are shared by the warps of a block. */
    for (int t = 0; t < KN_TYPE_COUNT; t++) {
        shape s = {(kn_type)t, 6, 4096, KN_ROWS_PLAIN, 0};
        check(be, &s, 1);
        check(be, &s, 5);
    }
    be->ops->close(be);
}

static void test_batches(void **state)
{
    (void)state;
    static const char *const isas[] = {NULL, "exact", "precise"};
    for (int i = 0; i < 3; i++) {
        kn_backend *be = cuda_open(isas[i]);
        for (int t = 0; t < KN_TYPE_COUNT; t++)
            for (int n = 1; n <= 65; n += 1 + n / 5 * (i ? 3 : 1)) {
                shape s = {(kn_type)t, 20, 256, KN_ROWS_PLAIN, 0};
                check(be, &s, n);
            }
        be->ops->close(be);
    }
}

enum { OUTS = 5 };
static const kn_type mixed[OUTS] = {KN_Q4_K, KN_Q6_K, KN_F16, KN_Q4_K, KN_F32};
static const kn_type floats[OUTS] = {KN_F32, KN_F32, KN_F32, KN_F16, KN_F32};

/* Several outputs of these types share x; `add`, ld_y larger than rows, no bias. Returns the
 * launches. */
static int check_outputs(kn_backend *be, const kn_type types[OUTS], int n)
{
    enum { MOST = 40, COLS = 256, LD = 60 };
    static const int64_t rows[OUTS] = {48, 7, 33, 16, 5};
    ops_random r = {5};
    float x[MOST * COLS], start[MOST * LD];
    ops_random_fill(&r, x, MOST * COLS);
    ops_random_fill(&r, start, MOST * LD);
    float *dx = ops_upload(be, x, (size_t)(n * COLS));
    kn_linear outs[OUTS];
    problem problems[OUTS];
    for (int o = 0; o < OUTS; o++) {
        shape s = {types[o], rows[o], COLS, KN_ROWS_PLAIN, 0};
        problems[o] = make_problem(&s, n);
        memcpy(problems[o].x, x, (size_t)(n * COLS) * sizeof *x);
        memset(problems[o].bias, 0, (size_t)rows[o] * sizeof(float));
        kn_weight *w = be->ops->weight_create(be, &problems[o].m);
        assert_non_null(w);
        outs[o] = (kn_linear){w, NULL, ops_upload(be, start, (size_t)(n * LD)), LD, o % 2 == 1};
    }
    kn_counters before, after;
    be->ops->counters(be, &before);
    be->ops->linear(be, dx, n, outs, OUTS);
    be->ops->counters(be, &after);
    assert_int_equal(after.mac - before.mac, n * COLS * (48 + 7 + 33 + 16 + 5));
    for (int o = 0; o < OUTS; o++) {
        float *y = cuda_fetch(be, outs[o].y, (size_t)(n * LD));
        float *alone = run(be, outs[o].w, &problems[o], 0, n);
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < LD; k++) {
                float old = start[i * LD + k], sum = k < rows[o] ? alone[i * rows[o] + k] : 0;
                float expected = k >= rows[o] ? old : outs[o].add ? old + sum : sum;
                if (!(fabsf(y[i * LD + k] - expected) <= 1e-6f * fabsf(expected) + 1e-5f))
                    fail_msg("output %d, row %d, %d: %g, expected %g", o, i, (int)k,
                             (double)y[i * LD + k], (double)expected);
            }
        free(y);
        free(alone);
        be->ops->weight_free(be, (kn_weight *)(uintptr_t)outs[o].w);
        be->ops->buffer_free(be, outs[o].y);
        free_problem(&problems[o]);
    }
    be->ops->buffer_free(be, dx);
    return (int)(after.launches - before.launches);
}

static void test_outputs(void **state)
{
    (void)state;
    kn_backend *be = cuda_open(NULL);
    check_outputs(be, mixed, 7);
    check_outputs(be, mixed, 40);
    check_outputs(be, floats, 7);
    /* Float32 outputs are one grouped product; F16: inputs, product, scaling and adding. */
    assert_int_equal(check_outputs(be, floats, 40), 1 + 3);
    be->ops->close(be);
}

/* Packing keeps every value: rows read back are the dequantized ones, bit for bit. */
static void test_weight_rows(void **state)
{
    (void)state;
    kn_backend *be = cuda_open(NULL);
    for (int t = 0; t < KN_TYPE_COUNT; t++) {
        enum { ROWS = 72, COLS = 512 };
        shape s = {(kn_type)t, ROWS, COLS, KN_ROWS_ROPE_PAIRS, 24};
        problem p = make_problem(&s, 1);
        kn_weight *w = be->ops->weight_create(be, &p.m);
        assert_non_null(w);
        float *dst = be->ops->buffer_alloc(be, ROWS * COLS * sizeof *dst);
        be->ops->weight_rows(be, w, 2, ROWS - 2, dst);
        float *rows = cuda_fetch(be, dst, (ROWS - 2) * COLS);
        ops_expect_same_bits(rows, p.w + 2 * COLS, (ROWS - 2) * COLS, kn_type_get(s.type)->name);
        const int32_t ids[] = {71, 0, 13, 13};
        be->ops->embed(be, w, ids, 4, dst);
        float *embedded = cuda_fetch(be, dst, 4 * COLS);
        for (int i = 0; i < 4; i++)
            ops_expect_same_bits(embedded + i * COLS, p.w + ids[i] * COLS, COLS, "embed");
        size_t stored = ROWS * kn_row_bytes(s.type, COLS);
        assert_in_range(be->ops->weight_bytes(w), stored, stored * 115 / 100 + 1024);
        free(rows);
        free(embedded);
        be->ops->buffer_free(be, dst);
        be->ops->weight_free(be, w);
        free_problem(&p);
    }
    be->ops->close(be);
}

/* What isn't finite in x shows in its own row and nowhere else; huge and tiny rows keep their
 * precision through 16-bit products. */
static void check_extremes(kn_backend *be, kn_type type, int n)
{
    enum { COLS = 256, ROWS = 20 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    shape s = {type, ROWS, COLS, KN_ROWS_PLAIN, 0};
    problem p = make_problem(&s, n);
    kn_weight *w = be->ops->weight_create(be, &p.m);
    assert_non_null(w);
    memset(p.bias, 0, ROWS * sizeof *p.bias);
    float *good = run(be, w, &p, 0, n);
    for (int k = 0; k < COLS; k++) {
        p.x[k] *= 0x1p30f;
        p.x[COLS + k] *= 0x1p-30f;
    }
    p.x[2 * COLS + 100] = bad[type % 3];
    float *y = run(be, w, &p, 0, n);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < ROWS; c++) {
            double factor = i == 0 ? 0x1p30 : i == 1 ? 0x1p-30 : 1;
            double expected = (double)good[i * ROWS + c] * factor;
            bool close = fabs((double)y[i * ROWS + c] - expected) <= 1e-5 * factor;
            if (i == 2 ? isfinite(y[i * ROWS + c]) : !close)
                fail_msg("%s x %d: row %d, %d is %g", kn_type_get(type)->name, n, i, c,
                         (double)y[i * ROWS + c]);
        }
    free(good);
    free(y);
    be->ops->weight_free(be, w);
    free_problem(&p);
}

static void test_extremes(void **state)
{
    (void)state;
    kn_backend *be = cuda_open(NULL);
    for (int t = 0; t < KN_TYPE_COUNT; t++) {
        check_extremes(be, (kn_type)t, 4);
        check_extremes(be, (kn_type)t, 34);
    }
    be->ops->close(be);
}

/* Values beyond the 16-bit range are never made half. */
static void test_wide_weights(void **state)
{
    (void)state;
    enum { COLS = 32, ROWS = 4, N = 40 };
    kn_backend *be = cuda_open(NULL);
    uint8_t data[ROWS * 34] = {0};
    float x[N * COLS], *dx, *dy = be->ops->buffer_alloc(be, N * ROWS * sizeof *dy);
    for (int r = 0; r < ROWS; r++) {
        const uint16_t scale = kn_f32_to_f16(30000);
        memcpy(data + r * 34, &scale, sizeof scale);
        memset(data + r * 34 + 2, 100, 32);
    }
    for (int i = 0; i < N * COLS; i++)
        x[i] = 1;
    dx = ops_upload(be, x, N * COLS);
    kn_matrix m = {KN_Q8_0, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
    kn_weight *w = be->ops->weight_create(be, &m);
    assert_non_null(w);
    kn_linear out = {w, NULL, dy, ROWS, false};
    be->ops->linear(be, dx, N, &out, 1);
    float *y = cuda_fetch(be, dy, N * ROWS);
    for (int i = 0; i < N * ROWS; i++)
        assert_true(fabsf(y[i] - 30000.0f * 100 * 32) <= 100);
    free(y);
    be->ops->weight_free(be, w);
    be->ops->buffer_free(be, dx);
    be->ops->buffer_free(be, dy);
    be->ops->close(be);
}

static void test_open(void **state)
{
    (void)state;
    kn_backend *be = cuda_open(NULL);
    char message[256] = "";
    const kn_options wrong = {.device = "cuda", .isa = "avx2"};
    assert_null(kn_backend_open(&wrong, message, sizeof message));
    assert_non_null(strstr(message, "avx2"));
    assert_string_equal(be->device, "cuda");
    assert_true(kn_cuda_usable(message, sizeof message));
    assert_non_null(strstr(message, "sm_"));
    be->ops->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_real_shapes), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_outputs),     cmocka_unit_test(test_weight_rows),
        cmocka_unit_test(test_extremes),    cmocka_unit_test(test_wide_weights),
    };
    return cmocka_run_group_tests_name("cuda_linear", tests, NULL, NULL);
}
