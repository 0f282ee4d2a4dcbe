/* Weights and linear operations of every instruction set against plain definitions. */
#include "kernels/ref/ref.h"
#include "support/ops.h"

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

static const int64_t block_cols[] = {32, 64, 96, 160, 256, 576, 1536};
static const int64_t k_cols[] = {256, 512, 1536};
static const int64_t float_cols[] = {1, 7, 64, 65, 96, 160, 577};
static const int64_t row_counts[] = {1, 5, 16, 17, 48, 100};

static kn_matrix matrix_of(const shape *s, const void *data)
{
    return (kn_matrix){s->type, s->rows, s->cols, data, s->order, s->head_rows};
}

/* W as float32, in plain row order. */
static float *dequantized(const kn_matrix *m)
{
    float *w = malloc((size_t)(m->rows * m->cols) * sizeof *w);
    assert_non_null(w);
    for (int64_t r = 0; r < m->rows; r++)
        kn_dequantize(m->type, kn_matrix_row(m, r), w + r * m->cols, m->cols);
    return w;
}

static double *exact_product(const kn_matrix *m, const float *x, int n, const float *bias)
{
    float *w = dequantized(m);
    double *y = malloc((size_t)n * (size_t)m->rows * sizeof *y);
    assert_non_null(y);
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < m->rows; r++) {
            double sum = bias ? bias[r] : 0;
            for (int64_t k = 0; k < m->cols; k++)
                sum += (double)w[r * m->cols + k] * x[i * m->cols + k];
            y[i * m->rows + r] = sum;
        }
    free(w);
    return y;
}

static bool uses_integers(const kn_backend *be, kn_type type)
{
    return strcmp(be->isa, "ref") != 0 && kn_type_get(type)->quantized;
}

/* y[n, rows] of host x. */
static float *run_linear(kn_backend *be, const kn_weight *w, const float *x, int n, int64_t rows,
                         int64_t cols, const float *bias)
{
    float *dx = ops_upload(be, x, (size_t)(n * cols));
    float *dbias = bias ? ops_upload(be, bias, (size_t)rows) : NULL;
    float *dy = be->ops->buffer_alloc(be, (size_t)(n * rows) * sizeof *dy);
    float *y = malloc((size_t)(n * rows) * sizeof *y);
    assert_true(dy && y);
    kn_linear out = {w, dbias, dy, rows, false};
    be->ops->linear(be, dx, n, &out, 1);
    be->ops->download(be, y, dy, (size_t)(n * rows) * sizeof *y);
    be->ops->buffer_free(be, dx);
    be->ops->buffer_free(be, dy);
    if (dbias) be->ops->buffer_free(be, dbias);
    return y;
}

static void check_values(kn_backend *be, const kn_matrix *m, const float *x, int n,
                         const float *bias, const float *y, const char *what)
{
    size_t count = (size_t)n * (size_t)m->rows;
    if (uses_integers(be, m->type)) {
        float *expected = malloc(count * sizeof *expected);
        assert_non_null(expected);
        kn_ref_linear_int(m, x, n, bias, expected);
        ops_expect_same_bits(y, expected, count, what);
        free(expected);
    } else {
        double *expected = exact_product(m, x, n, bias);
        ops_expect_close(y, expected, count, 2e-6 * sqrt((double)m->cols) + 1e-6, 2e-6, what);
        free(expected);
    }
}

static void check_shape(kn_backend *const *backends, int n_backends, const shape *s, int n)
{
    ops_random r = {(uint64_t)(s->rows * 1000 + s->cols * 10 + n + s->type)};
    void *data = ops_random_matrix(&r, s->type, s->rows, s->cols);
    float *x = malloc((size_t)(n * s->cols) * sizeof *x), *first = NULL;
    float *bias = malloc((size_t)s->rows * sizeof *bias);
    assert_true(x && bias);
    ops_random_fill(&r, x, (size_t)(n * s->cols));
    ops_random_fill(&r, bias, (size_t)s->rows);
    kn_matrix m = matrix_of(s, data);
    for (int b = 0; b < n_backends; b++) {
        kn_backend *be = backends[b];
        char what[128];
        snprintf(what, sizeof what, "%s, %d threads, %s [%d, %d] x %d", be->isa, be->threads,
                 kn_type_get(s->type)->name, (int)s->rows, (int)s->cols, n);
        kn_weight *w = be->ops->weight_create(be, &m);
        assert_non_null(w);
        float *y = run_linear(be, w, x, n, s->rows, s->cols, bias);
        if (b == 0) {
            check_values(be, &m, x, n, bias, y, what);
            first = y;
        } else {
            ops_expect_same_bits(y, first, (size_t)n * (size_t)s->rows, what);
        }
        for (int i = 0; i < n; i += n / 3 + 1) { /* rows alone */
            float *alone = run_linear(be, w, x + i * s->cols, 1, s->rows, s->cols, bias);
            ops_expect_same_bits(alone, first + i * s->rows, (size_t)s->rows, what);
            free(alone);
        }
        be->ops->weight_free(be, w);
        if (y != first) free(y);
    }
    free(first);
    free(data);
    free(x);
    free(bias);
}

static void check_shapes(kn_backend *const *group, int n_group)
{
    for (int t = 0; t < KN_TYPE_COUNT; t++) {
        const int64_t *cols = block_cols;
        size_t n_cols = sizeof block_cols / sizeof *cols;
        if (kn_type_get(t)->block == 256) {
            cols = k_cols;
            n_cols = sizeof k_cols / sizeof *cols;
        } else if (kn_type_get(t)->block == 1) {
            cols = float_cols;
            n_cols = sizeof float_cols / sizeof *cols;
        }
        for (size_t c = 0; c < n_cols; c++)
            for (size_t j = 0; j < sizeof row_counts / sizeof *row_counts; j++) {
                shape s = {(kn_type)t, row_counts[j], cols[c], KN_ROWS_PLAIN, 0};
                check_shape(group, n_group, &s, 1 + (int)((c * 5 + j * 3) % 12));
            }
        for (int n = 1; n <= 65; n += 1 + n / 9) {
            shape s = {(kn_type)t, 40, 256, KN_ROWS_PLAIN, 0};
            check_shape(group, n_group, &s, n);
        }
        shape many = {(kn_type)t, 33, 256, KN_ROWS_PLAIN, 0};
        check_shape(group, n_group, &many, 201);
        shape heads = {(kn_type)t, 3 * 24, 256, KN_ROWS_ROPE_PAIRS, 24};
        check_shape(group, n_group, &heads, 3);
    }
}

static void test_linear(void **state)
{
    (void)state;
    for (int simd = 0; simd < 2; simd++) {
        kn_backend *group[OPS_GROUP];
        int n = ops_open_group(simd, group);
        check_shapes(group, n);
        ops_close_group(group, n);
    }
}

/* Several outputs of different types share x; `add`, ld_y larger than rows, no bias. */
static void test_linear_outputs(void **state)
{
    (void)state;
    enum { N = 7, COLS = 256, LD = 60 };
    static const kn_type types[] = {KN_Q4_K, KN_Q6_K, KN_F16, KN_Q8_0};
    static const int64_t rows[] = {48, 7, 33, 16};
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        ops_random r = {5};
        float x[N * COLS], start[N * LD];
        ops_random_fill(&r, x, N * COLS);
        ops_random_fill(&r, start, N * LD);
        float *dx = ops_upload(be, x, N * COLS);
        kn_linear outs[4];
        void *data[4];
        float *alone[4];
        for (int o = 0; o < 4; o++) {
            data[o] = ops_random_matrix(&r, types[o], rows[o], COLS);
            kn_matrix m = {types[o], rows[o], COLS, data[o], KN_ROWS_PLAIN, 0};
            kn_weight *w = be->ops->weight_create(be, &m);
            assert_non_null(w);
            alone[o] = run_linear(be, w, x, N, rows[o], COLS, NULL);
            outs[o] = (kn_linear){w, NULL, ops_upload(be, start, N * LD), LD, o % 2 == 1};
        }
        kn_counters before, after;
        be->ops->counters(be, &before);
        be->ops->linear(be, dx, N, outs, 4);
        be->ops->counters(be, &after);
        assert_int_equal(after.mac - before.mac, N * COLS * (48 + 7 + 33 + 16));
        for (int o = 0; o < 4; o++)
            for (int i = 0; i < N; i++)
                for (int64_t c = 0; c < LD; c++) {
                    float got = outs[o].y[i * LD + c], old = start[i * LD + c];
                    float sum = c < rows[o] ? alone[o][i * rows[o] + c] : 0;
                    float expected = c >= rows[o] ? old : outs[o].add ? old + sum : sum;
                    ops_expect_same_bits(&got, &expected, 1, "outputs");
                }
        for (int o = 0; o < 4; o++) {
            be->ops->weight_free(be, (kn_weight *)(uintptr_t)outs[o].w);
            be->ops->buffer_free(be, outs[o].y);
            free(alone[o]);
            free(data[o]);
        }
        be->ops->buffer_free(be, dx);
        be->ops->close(be);
    }
}

/* The shapes of a real model's output matrix; a sample of rows is checked. */
static void test_large_output(void **state)
{
    (void)state;
    enum { ROWS = 49152, COLS = 576, N = 2 };
    ops_random r = {77};
    uint8_t *data = ops_random_matrix(&r, KN_Q8_0, ROWS, COLS);
    float x[N * COLS];
    ops_random_fill(&r, x, N * COLS);
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        kn_matrix m = {KN_Q8_0, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
        kn_weight *w = be->ops->weight_create(be, &m);
        assert_non_null(w);
        float *y = run_linear(be, w, x, N, ROWS, COLS, NULL);
        for (int64_t row = 0; row < ROWS; row += 509) {
            kn_matrix one = m;
            one.data = data + (size_t)row * kn_row_bytes(KN_Q8_0, COLS);
            one.rows = 1;
            float part[N] = {y[row], y[ROWS + row]};
            check_values(be, &one, x, N, NULL, part, be->isa);
        }
        free(y);
        be->ops->weight_free(be, w);
        be->ops->close(be);
    }
    free(data);
}

/* Packing keeps every value: rows read back are the dequantized ones, bit for bit. */
static void test_weight_rows(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        for (int t = 0; t < KN_TYPE_COUNT; t++) {
            ops_random r = {(uint64_t)t + 9};
            shape s = {(kn_type)t, 72, 512, KN_ROWS_ROPE_PAIRS, 24};
            void *data = ops_random_matrix(&r, s.type, s.rows, s.cols);
            kn_matrix m = matrix_of(&s, data);
            kn_weight *w = be->ops->weight_create(be, &m);
            assert_non_null(w);
            float *expected = dequantized(&m);
            float *rows = be->ops->buffer_alloc(be, 72 * 512 * sizeof *rows);
            be->ops->weight_rows(be, w, 0, 72, rows);
            ops_expect_same_bits(rows, expected, 72 * 512, kn_type_get(t)->name);
            const int32_t ids[] = {71, 0, 13, 13};
            be->ops->embed(be, w, ids, 4, rows);
            for (int i = 0; i < 4; i++)
                ops_expect_same_bits(rows + i * 512, expected + ids[i] * 512, 512, "embed");
            /* Packed weights stay about as small as they were. */
            size_t stored = 72 * kn_row_bytes(s.type, 512);
            assert_in_range(be->ops->weight_bytes(w), stored / 2, stored * 80 * 110 / 72 / 100);
            be->ops->buffer_free(be, rows);
            be->ops->weight_free(be, w);
            free(expected);
            free(data);
        }
        be->ops->close(be);
    }
}

/* What isn't finite in x shows in its own row and nowhere else. */
static void test_not_finite(void **state)
{
    (void)state;
    enum { N = 5, COLS = 256, ROWS = 20 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        for (int t = 0; t < KN_TYPE_COUNT; t++)
            for (int b = 0; b < 3; b++) {
                ops_random r = {(uint64_t)t + 1};
                float x[N * COLS];
                ops_random_fill(&r, x, N * COLS);
                void *data = ops_random_matrix(&r, (kn_type)t, ROWS, COLS);
                kn_matrix m = {(kn_type)t, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
                kn_weight *w = be->ops->weight_create(be, &m);
                assert_non_null(w);
                float *good = run_linear(be, w, x, N, ROWS, COLS, NULL);
                x[2 * COLS + 100 + b] = bad[b];
                float *y = run_linear(be, w, x, N, ROWS, COLS, NULL);
                for (int i = 0; i < N; i++)
                    for (int c = 0; c < ROWS; c++) {
                        assert_int_equal(isfinite(y[i * ROWS + c]) != 0, i != 2);
                        if (i != 2)
                            ops_expect_same_bits(&y[i * ROWS + c], &good[i * ROWS + c], 1, "row");
                    }
                be->ops->weight_free(be, w);
                free(good);
                free(y);
                free(data);
            }
        be->ops->close(be);
    }
}

/* Quantizing the activations costs little: relative error of the result below 1 %. */
static void test_integer_accuracy(void **state)
{
    (void)state;
    enum { N = 4, COLS = 1536, ROWS = 64 };
    for (int t = KN_Q8_0; t < KN_TYPE_COUNT; t++) {
        ops_random r = {(uint64_t)t + 3};
        float *x = malloc(N * COLS * sizeof *x), *y = malloc(N * ROWS * sizeof *y);
        assert_true(x && y);
        ops_random_fill(&r, x, N * COLS);
        void *data = ops_random_matrix(&r, (kn_type)t, ROWS, COLS);
        kn_matrix m = {(kn_type)t, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
        kn_ref_linear_int(&m, x, N, NULL, y);
        double *exact = exact_product(&m, x, N, NULL), error = 0, size = 0;
        for (int i = 0; i < N * ROWS; i++) {
            error += (y[i] - exact[i]) * (y[i] - exact[i]);
            size += exact[i] * exact[i];
        }
        assert_true(sqrt(error / size) < 0.01);
        free(exact);
        free(x);
        free(y);
        free(data);
    }
}

/* The largest codes with the largest activations: nothing overflows on the way. */
static void test_extreme_codes(void **state)
{
    (void)state;
    enum { COLS = 512, ROWS = 20, N = 5 };
    static const uint8_t fills[] = {0xff, 0x00, 0x7f, 0x80};
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 1);
        for (int t = KN_Q8_0; t < KN_TYPE_COUNT; t++)
            for (int f = 0; f < 4; f++) {
                size_t bytes = ROWS * kn_row_bytes((kn_type)t, COLS);
                size_t block = (size_t)kn_type_get((kn_type)t)->block_bytes;
                uint8_t *data = malloc(bytes);
                assert_non_null(data);
                memset(data, fills[f], bytes);
                for (size_t at = 0; at < bytes; at += block) { /* scales 1, where they may lie */
                    const uint8_t one[2] = {0x00, 0x3c};
                    memcpy(data + at + (t == KN_Q6_K ? block - 2 : 0), one, 2);
                    if (t != KN_Q8_0 && t != KN_Q4_0 && t != KN_Q6_K) memcpy(data + at + 2, one, 2);
                }
                float x[N * COLS];
                for (int i = 0; i < N * COLS; i++)
                    x[i] = i / COLS == 0 ? 1 : i / COLS == 1 ? -1 : i % (i / COLS) ? 1 : -1;
                kn_matrix m = {(kn_type)t, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
                kn_weight *w = be->ops->weight_create(be, &m);
                assert_non_null(w);
                for (int n = 2; n <= N; n += 3) { /* tiles as packed, and unpacked first */
                    float *y = run_linear(be, w, x, n, ROWS, COLS, NULL);
                    if (uses_integers(be, m.type))
                        check_values(be, &m, x, n, NULL, y, kn_type_get(m.type)->name);
                    free(y);
                }
                be->ops->weight_free(be, w);
                free(data);
            }
        be->ops->close(be);
    }
}

/* Tiny, zero and huge activations. */
static void test_quantize_extremes(void **state)
{
    (void)state;
    enum { COLS = 256, ROWS = 16, N = 5 };
    static const float factors[N] = {0, 1e-38f, 1e-42f, 1e30f, 1e-28f};
    ops_random r = {8};
    float x[N * COLS];
    ops_random_fill(&r, x, N * COLS);
    for (int i = 0; i < N * COLS; i++)
        x[i] *= factors[i / COLS];
    void *data = ops_random_matrix(&r, KN_Q4_1, ROWS, COLS);
    kn_matrix m = {KN_Q4_1, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 1);
        kn_weight *w = be->ops->weight_create(be, &m);
        float *y = run_linear(be, w, x, N, ROWS, COLS, NULL);
        double *exact = exact_product(&m, x, N, NULL);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < ROWS; c++)
                assert_true(fabs(y[i * ROWS + c] - exact[i * ROWS + c]) <=
                            (double)factors[i] * 0.3 + 1e-27);
        if (uses_integers(be, KN_Q4_1)) check_values(be, &m, x, N, NULL, y, "extremes");
        free(exact);
        free(y);
        be->ops->weight_free(be, w);
        be->ops->close(be);
    }
    free(data);
}

/* The fused operation gives what its two parts give, bit for bit, in y and in the outputs. */
static void check_fused(kn_backend *be, kn_type type, kn_fuse fuse, int n)
{
    enum { COLS = 256, ROWS = 40, MOST = 70 };
    ops_random r = {(uint64_t)n + type};
    float *x = malloc(MOST * COLS * sizeof *x), *other = malloc(MOST * COLS * sizeof *other);
    void *data = ops_random_matrix(&r, type, ROWS, COLS);
    kn_matrix m = {type, ROWS, COLS, data, KN_ROWS_PLAIN, 0};
    kn_weight *w = be->ops->weight_create(be, &m);
    assert_true(x && other && w);
    ops_random_fill(&r, x, MOST * COLS);
    ops_random_fill(&r, other, MOST * COLS);
    float *dx = ops_upload(be, x, MOST * COLS), *dother = ops_upload(be, other, MOST * COLS);
    float *plain = be->ops->buffer_alloc(be, MOST * COLS * sizeof *plain);
    float *y[2] = {be->ops->buffer_alloc(be, MOST * ROWS * sizeof *x),
                   be->ops->buffer_alloc(be, MOST * ROWS * sizeof *x)};
    kn_linear out = {.w = w, .y = y[0], .ld_y = ROWS};
    if (fuse == KN_FUSE_RMSNORM)
        be->ops->rmsnorm(be, dx, dother, 1e-5f, n, COLS, plain);
    else
        be->ops->swiglu(be, dx, dother, n, COLS, plain);
    be->ops->linear(be, plain, n, &out, 1);
    out.y = y[1];
    kn_fused_input in = {fuse, dx, dother, 1e-5f, dx};
    be->ops->linear_fused(be, &in, n, &out, 1);
    char what[80];
    snprintf(what, sizeof what, "%s, %s, fused %d, %d rows", be->isa, kn_type_get(type)->name, fuse,
             n);
    be->ops->download(be, x, dx, (size_t)n * COLS * sizeof *x);
    be->ops->download(be, other, plain, (size_t)n * COLS * sizeof *x);
    ops_expect_same_bits(x, other, (size_t)n * COLS, what);
    be->ops->download(be, x, y[0], (size_t)n * ROWS * sizeof *x);
    be->ops->download(be, other, y[1], (size_t)n * ROWS * sizeof *x);
    ops_expect_same_bits(other, x, (size_t)n * ROWS, what);
    float *const buffers[] = {dx, dother, plain, y[0], y[1]};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        be->ops->buffer_free(be, buffers[i]);
    be->ops->weight_free(be, w);
    free(data);
    free(x);
    free(other);
}

static void test_linear_fused(void **state)
{
    (void)state;
    static const kn_type types[] = {KN_Q4_1, KN_Q8_0, KN_F16};
    static const int counts[] = {1, 3, 8, 70};
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        for (size_t t = 0; be->ops->linear_fused && t < sizeof types / sizeof *types; t++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                check_fused(be, types[t], KN_FUSE_RMSNORM, counts[c]);
                check_fused(be, types[t], KN_FUSE_SWIGLU, counts[c]);
            }
        be->ops->close(be);
    }
}

static void test_open(void **state)
{
    (void)state;
    char message[200] = "";
    kn_options options = {.device = "cpu", .isa = "sse9", .threads = 1};
    assert_null(kn_backend_open(&options, message, sizeof message));
    assert_non_null(strstr(message, "sse9"));
    assert_non_null(strstr(message, kn_isa_list()));
    options = (kn_options){.device = "abacus"};
    assert_null(kn_backend_open(&options, message, sizeof message));
    assert_non_null(strstr(message, "abacus"));
    kn_backend *be = ops_open(NULL, 0);
    assert_true(be->threads >= 1);
    const char *list = kn_isa_list(), *last = strrchr(list, ' ');
    assert_string_equal(be->isa, last ? last + 1 : list);
    assert_string_equal(kn_backend_error(be), "");
    be->ops->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),           cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_outputs), cmocka_unit_test(test_linear_fused),
        cmocka_unit_test(test_large_output),   cmocka_unit_test(test_weight_rows),
        cmocka_unit_test(test_not_finite),     cmocka_unit_test(test_integer_accuracy),
        cmocka_unit_test(test_extreme_codes),  cmocka_unit_test(test_quantize_extremes),
    };
    return cmocka_run_group_tests_name("ops_linear", tests, NULL, NULL);
}
