/* Operations on rows, rotary embedding, adapters: every instruction set against the formulas of
 * backend.h in double precision. */
#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int widths[] = {1, 7, 16, 31, 64, 96, 160, 256, 576, 1536};
#define N_WIDTHS  ((int)(sizeof widths / sizeof *widths))
#define MAX_WIDTH 1536
#define MAX_ROWS  40

typedef struct {
    float x[MAX_ROWS * MAX_WIDTH], x2[MAX_ROWS * MAX_WIDTH], weight[MAX_WIDTH];
    double expected[MAX_ROWS * MAX_WIDTH];
} inputs;

static inputs *make_inputs(uint64_t seed, float scale)
{
    inputs *in = calloc(1, sizeof *in);
    assert_non_null(in);
    ops_random r = {seed};
    ops_random_fill(&r, in->x, MAX_ROWS * MAX_WIDTH);
    ops_random_fill(&r, in->x2, MAX_ROWS * MAX_WIDTH);
    ops_random_fill(&r, in->weight, MAX_WIDTH);
    for (int i = 0; i < MAX_ROWS * MAX_WIDTH; i++)
        in->x[i] *= scale;
    return in;
}

static int rows_for(int width)
{
    return width < 64 ? MAX_ROWS : 1 + width % 9;
}

static void test_rmsnorm(void **state)
{
    (void)state;
    const double eps = 1e-5f;
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        inputs *in = make_inputs(1, 10);
        float *weight = ops_upload(be, in->weight, MAX_WIDTH);
        for (int j = 0; j < N_WIDTHS; j++) {
            int d = widths[j], n = rows_for(d);
            float *x = ops_upload(be, in->x, (size_t)(n * d));
            float *y = be->ops->buffer_alloc(be, (size_t)(n * d) * sizeof *y);
            for (int i = 0; i < n; i++) {
                double squares = 0;
                for (int k = 0; k < d; k++)
                    squares += (double)in->x[i * d + k] * in->x[i * d + k];
                for (int k = 0; k < d; k++)
                    in->expected[i * d + k] =
                        in->x[i * d + k] / sqrt(squares / d + eps) * in->weight[k];
            }
            be->ops->rmsnorm(be, x, weight, (float)eps, n, d, y);
            ops_expect_close(y, in->expected, (size_t)(n * d), 1e-7, 1e-6, "rmsnorm");
            be->ops->rmsnorm(be, x + (n - 1) * d, weight, (float)eps, 1, d, x + (n - 1) * d);
            ops_expect_same_bits(x + (n - 1) * d, y + (n - 1) * d, (size_t)d, "row in place");
            be->ops->buffer_free(be, x);
            be->ops->buffer_free(be, y);
        }
        be->ops->buffer_free(be, weight);
        be->ops->close(be);
        free(in);
    }
}

static void test_swiglu_add_gather(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        inputs *in = make_inputs(2, 30);
        for (int j = 0; j < N_WIDTHS; j++) {
            int d = widths[j], n = rows_for(d), count = n * d;
            float *x = ops_upload(be, in->x, (size_t)count);
            float *x2 = ops_upload(be, in->x2, (size_t)count);
            float *y = be->ops->buffer_alloc(be, (size_t)count * sizeof *y);
            for (int k = 0; k < count; k++)
                in->expected[k] = (double)in->x[k] / (1 + exp(-(double)in->x[k])) * in->x2[k];
            be->ops->swiglu(be, x, x2, n, d, y);
            ops_expect_close(y, in->expected, (size_t)count, 1e-12, 5e-7, "swiglu");
            be->ops->swiglu(be, x, x2, n, d, x2);
            ops_expect_same_bits(x2, y, (size_t)count, "swiglu in place");
            for (int k = 0; k < count; k++)
                in->expected[k] = (double)(float)(x[k] + y[k]);
            be->ops->add(be, x, n, d, y);
            ops_expect_close(y, in->expected, (size_t)count, 0, 0, "add");
            const int32_t rows[] = {n - 1, 0, n / 2};
            be->ops->gather(be, x, rows, n < 3 ? n : 3, d, y);
            for (int i = 0; i < (n < 3 ? n : 3); i++)
                ops_expect_same_bits(y + i * d, x + rows[i] * d, (size_t)d, "gather");
            be->ops->buffer_free(be, x);
            be->ops->buffer_free(be, x2);
            be->ops->buffer_free(be, y);
        }
        be->ops->close(be);
        free(in);
    }
}

/* The activation function over its whole range, and where nothing is left of it. */
static void test_swiglu_range(void **state)
{
    (void)state;
    enum { N = 2000 };
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 1);
        static float x[N], one[N], y[N];
        static double expected[N];
        for (int i = 0; i < N; i++) {
            x[i] = (float)(i - N / 2) * 0.11f;
            one[i] = 1;
            expected[i] = x[i] / (1 + exp(-(double)x[i]));
        }
        be->ops->swiglu(be, x, one, N, 1, y);
        ops_expect_close(y, expected, N, 1e-36, 5e-7, "silu");
        const float special[4] = {NAN, INFINITY, 1e30f, -1e30f};
        be->ops->swiglu(be, special, one, 1, 4, y);
        assert_true(isnan(y[0]) && y[1] > 1e38f && y[2] == 1e30f && fabsf(y[3]) < 1e-6f);
        be->ops->close(be);
    }
}

static void test_rope(void **state)
{
    (void)state;
    enum { N = 9 };
    static const int head_dims[] = {2, 8, 16, 24, 32, 64, 80, 128};
    static const int32_t positions[N] = {0, 1, 2, 77, 1000, 8191, 131071, 5, 4};
    static float x[N * 3 * 128], start[N * 3 * 128];
    static double expected[N * 3 * 128], inv_freq[64];
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        for (size_t j = 0; j < sizeof head_dims / sizeof *head_dims; j++) {
            int hd = head_dims[j], half = hd / 2;
            ops_random r = {(uint64_t)hd};
            ops_random_fill(&r, start, (size_t)(N * 3 * hd));
            for (int i = 0; i < half; i++)
                inv_freq[i] = pow(10000, -2.0 * i / hd);
            for (int i = 0; i < N * 3; i++)
                for (int k = 0; k < half; k++) {
                    double angle = positions[i / 3] * inv_freq[k];
                    double a = start[i * hd + k], b = start[i * hd + k + half];
                    expected[i * hd + k] = a * cos(angle) - b * sin(angle);
                    expected[i * hd + k + half] = a * sin(angle) + b * cos(angle);
                }
            kn_rope rope = {hd, inv_freq};
            memcpy(x, start, sizeof x);
            be->ops->rope(be, &rope, x, N, 3, positions);
            ops_expect_close(x, expected, (size_t)(N * 3 * hd), 2e-7, 0, "rope");
            /* Other positions, another number of heads, a row alone: nothing is left behind. */
            memcpy(x, start, sizeof x);
            be->ops->rope(be, &rope, x + 4 * 3 * hd, 1, 3, positions + 4);
            be->ops->rope(be, &rope, x, 4, 3, positions);
            be->ops->rope(be, &rope, x + 5 * 3 * hd, N - 5, 3, positions + 5);
            ops_expect_close(x, expected, (size_t)(N * 3 * hd), 2e-7, 0, "rope in parts");
        }
        be->ops->close(be);
    }
}

/* --- adapters ------------------------------------------------------------------------------- */

typedef struct {
    bool direft;
    int rank;
    int64_t in, out;
    kn_type type;
} adapter_shape;

/* What an adapter adds to a row, in double. */
static void exact_adapter(const kn_adapter_matrices *m, const float *x, double *delta)
{
    size_t a_count = (size_t)m->rank * (size_t)m->in, b_count = (size_t)m->rank * (size_t)m->out;
    float *a = malloc(a_count * sizeof *a), *b = malloc(b_count * sizeof *b);
    assert_true(a && b);
    kn_dequantize(m->type, m->a, a, (int64_t)a_count);
    kn_dequantize(m->type, m->b, b, (int64_t)b_count);
    memset(delta, 0, (size_t)m->out * sizeof *delta);
    for (int r = 0; r < m->rank; r++) {
        double t = m->bias ? m->bias[r] : 0;
        for (int64_t k = 0; k < m->in; k++)
            t += (double)a[r * m->in + k] * x[k];
        for (int64_t o = 0; o < m->out; o++)
            delta[o] += m->scale * t * (m->direft ? b[r * m->out + o] : b[o * m->rank + r]);
    }
    free(a);
    free(b);
}

#define BATCH 41

static void apply(kn_backend *be, const adapter_shape *s, const kn_segment *segments, int n,
                  const float *x, float *y, int64_t width)
{
    if (s->direft)
        be->ops->direft(be, segments, n, y);
    else
        be->ops->lora(be, segments, n, x, y, width);
}

/* One row at a time gives the same bits as y; start: what y was before. */
static void check_alone(kn_backend *be, const adapter_shape *s, const kn_segment segments[2],
                        const float *x, const float *start, const float *y, int64_t width)
{
    float *alone = ops_upload(be, start, (size_t)(BATCH * width));
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < segments[j].n_rows; i++) {
            kn_segment one = {segments[j].w, &segments[j].row_index[i], 1};
            apply(be, s, &one, 1, x, alone, width);
        }
    ops_expect_same_bits(alone, y, (size_t)(BATCH * width), "adapter rows alone");
    be->ops->buffer_free(be, alone);
}

/* Two adapters over interleaved rows, some rows without any. */
static void check_adapter(kn_backend *be, const adapter_shape *s)
{
    ops_random r = {(uint64_t)(s->rank + s->in * 7 + s->out * 3 + s->type)};
    int64_t width = s->direft ? s->out : s->out + 5;
    float *x = malloc((size_t)(BATCH * s->in) * sizeof *x);
    float *start = malloc((size_t)(BATCH * width) * sizeof *start);
    double *expected = malloc((size_t)(BATCH * width) * sizeof *expected);
    double *delta = malloc((size_t)s->out * sizeof *delta);
    float bias[128];
    assert_true(x && start && expected && delta && s->rank <= 128);
    ops_random_fill(&r, start, (size_t)(BATCH * width));
    ops_random_fill(&r, bias, 128);
    if (s->direft)
        memcpy(x, start, (size_t)(BATCH * width) * sizeof *x);
    else
        ops_random_fill(&r, x, (size_t)(BATCH * s->in));
    for (int64_t i = 0; i < BATCH * width; i++)
        expected[i] = start[i];

    kn_adapter_weight *w[2];
    int32_t rows[2][BATCH];
    kn_segment segments[2];
    size_t bytes = 0;
    for (int j = 0; j < 2; j++) {
        void *a = ops_random_matrix(&r, s->type, s->rank, s->in);
        void *b = ops_random_matrix(&r, s->type, s->rank, s->out);
        kn_adapter_matrices m = {.direft = s->direft,
                                 .rank = s->rank,
                                 .in = s->in,
                                 .out = s->out,
                                 .type = s->type,
                                 .a = a,
                                 .b = b,
                                 .bias = s->direft ? bias : NULL,
                                 .scale = s->direft ? 1.0f : 0.75f};
        w[j] = be->ops->adapter_create(be, &m);
        assert_non_null(w[j]);
        segments[j] = (kn_segment){w[j], rows[j], 0};
        for (int32_t i = j; i < BATCH; i += 3 - j) {
            if (j == 1 && i % 3 == 0) continue;
            rows[j][segments[j].n_rows++] = i;
            exact_adapter(&m, x + i * s->in, delta);
            for (int64_t o = 0; o < s->out; o++)
                expected[i * width + o] += delta[o];
        }
        bytes += be->ops->adapter_bytes(w[j]);
        free(a);
        free(b);
    }
    float *dx = ops_upload(be, x, (size_t)(BATCH * s->in));
    float *y = ops_upload(be, start, (size_t)(BATCH * width));
    kn_counters before, after;
    be->ops->counters(be, &before);
    apply(be, s, segments, 2, dx, y, width);
    be->ops->counters(be, &after);
    assert_int_equal(after.adapter_bytes - before.adapter_bytes, bytes);
    ops_expect_close(y, expected, (size_t)(BATCH * width), 1e-6 * (double)(s->in + s->rank), 1e-6,
                     s->direft ? "direft" : "lora");

    check_alone(be, s, segments, dx, start, y, width);
    for (int j = 0; j < 2; j++)
        be->ops->adapter_free(be, w[j]);
    be->ops->buffer_free(be, dx);
    be->ops->buffer_free(be, y);
    free(x);
    free(start);
    free(expected);
    free(delta);
}

static void test_adapters(void **state)
{
    (void)state;
    static const int ranks[] = {1, 4, 7, 16, 66};
    static const int64_t sizes[][2] = {{64, 64}, {96, 33}, {160, 17}, {576, 192}, {31, 577}};
    for (int isa = 0; ops_isa(isa); isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            kn_backend *be = ops_open(ops_isa(isa), threads);
            for (int t = KN_F32; t <= KN_BF16; t++)
                for (int i = 0; i < 5; i++) {
                    adapter_shape lora = {false, ranks[i], sizes[i][0], sizes[i][1], (kn_type)t};
                    adapter_shape direft = {true, ranks[4 - i], sizes[i][0], sizes[i][0],
                                            (kn_type)t};
                    check_adapter(be, &lora);
                    check_adapter(be, &direft);
                }
            be->ops->close(be);
        }
}

/* Maps made together and applied in one pass are what they are one by one. */
static void check_maps(kn_backend *be)
{
    enum { MAPS = 3, ROWS = 9, IN = 96, RANK = 7 };
    static const int64_t out[MAPS] = {64, 33, 130};
    static float values[ROWS * 130];
    static const int32_t index[2][5] = {{0, 2, 4, 6, 8}, {1, 3, 5}};
    static const int n_rows[2] = {5, 3};
    ops_random r = {9};
    ops_random_fill(&r, values, ROWS * 130);
    float *x = ops_upload(be, values, ROWS * IN), *once[MAPS], *alone[MAPS];
    kn_adapter_matrices m[MAPS];
    kn_adapter_weight *together[2][MAPS], *single[2][MAPS];
    kn_segment segments[2][MAPS][2];
    for (int i = 0; i < MAPS; i++)
        m[i] = (kn_adapter_matrices){.rank = RANK,
                                     .in = IN,
                                     .out = out[i],
                                     .type = KN_BF16,
                                     .a = ops_random_matrix(&r, KN_BF16, RANK, IN),
                                     .b = ops_random_matrix(&r, KN_BF16, RANK, out[i]),
                                     .scale = 0.5f};
    for (int j = 0; j < 2; j++) {
        assert_true(be->ops->adapters_create(be, m, MAPS, together[j]));
        for (int i = 0; i < MAPS; i++) {
            single[j][i] = be->ops->adapter_create(be, &m[i]);
            assert_non_null(single[j][i]);
            segments[0][i][j] = (kn_segment){together[j][i], index[j], n_rows[j]};
            segments[1][i][j] = (kn_segment){single[j][i], index[j], n_rows[j]};
        }
    }
    kn_lora_map maps[MAPS];
    for (int i = 0; i < MAPS; i++) {
        once[i] = ops_upload(be, values, (size_t)(ROWS * out[i]));
        alone[i] = ops_upload(be, values, (size_t)(ROWS * out[i]));
        /* The second map acts for the first adapter only. */
        maps[i] = (kn_lora_map){segments[0][i], i == 1 ? 1 : 2, once[i], out[i]};
        be->ops->lora(be, segments[1][i], i == 1 ? 1 : 2, x, alone[i], out[i]);
    }
    be->ops->lora_maps(be, maps, MAPS, x);
    for (int i = 0; i < MAPS; i++) {
        ops_expect_same_bits(once[i], alone[i], (size_t)(ROWS * out[i]), "maps in one pass");
        be->ops->buffer_free(be, once[i]);
        be->ops->buffer_free(be, alone[i]);
        for (int j = 0; j < 2; j++) {
            be->ops->adapter_free(be, together[j][i]);
            be->ops->adapter_free(be, single[j][i]);
        }
        free((void *)(uintptr_t)m[i].a);
        free((void *)(uintptr_t)m[i].b);
    }
    be->ops->buffer_free(be, x);
}

static void test_adapter_maps(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            kn_backend *be = ops_open(ops_isa(isa), threads);
            check_maps(be);
            be->ops->close(be);
        }
}

/* More adapters of one row each than threads have items: several are done in one go, whichever
 * thread takes them, with the bits of each alone. */
static void check_many_segments(kn_backend *be)
{
    enum { ROWS = 203, IN = 96, OUT = 80, RANK = 7, ADAPTERS = 3 };
    static float x_values[ROWS * IN], y_values[ROWS * OUT];
    static int32_t index[ROWS];
    static kn_segment segments[ROWS];
    ops_random r = {10};
    ops_random_fill(&r, x_values, ROWS * IN);
    ops_random_fill(&r, y_values, ROWS * OUT);
    kn_adapter_weight *w[ADAPTERS];
    for (int i = 0; i < ADAPTERS; i++) {
        void *a = ops_random_matrix(&r, KN_BF16, RANK, IN);
        void *b = ops_random_matrix(&r, KN_BF16, RANK, OUT);
        const kn_adapter_matrices m = {false, RANK, IN, OUT, KN_BF16, a, b, NULL, 0.5f};
        w[i] = be->ops->adapter_create(be, &m);
        assert_non_null(w[i]);
        free(a);
        free(b);
    }
    float *x = ops_upload(be, x_values, ROWS * IN);
    float *once = ops_upload(be, y_values, ROWS * OUT);
    float *alone = ops_upload(be, y_values, ROWS * OUT);
    for (int i = 0; i < ROWS; i++) {
        index[i] = i;
        segments[i] = (kn_segment){w[i * i % ADAPTERS], &index[i], 1};
        be->ops->lora(be, &segments[i], 1, x, alone, OUT);
    }
    be->ops->lora(be, segments, ROWS, x, once, OUT);
    ops_expect_same_bits(once, alone, ROWS * OUT, "many segments");
    assert_memory_not_equal(once, y_values, sizeof y_values);
    for (int i = 0; i < ADAPTERS; i++)
        be->ops->adapter_free(be, w[i]);
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, once);
    be->ops->buffer_free(be, alone);
}

static void test_many_segments(void **state)
{
    (void)state;
    for (int isa = 0; ops_isa(isa); isa++)
        for (int threads = 1; threads <= 3; threads++) {
            kn_backend *be = ops_open(ops_isa(isa), threads);
            check_many_segments(be);
            be->ops->close(be);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_segments),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_swiglu_add_gather),
        cmocka_unit_test(test_swiglu_range),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_adapter_maps),
    };
    return cmocka_run_group_tests_name("ops_rows", tests, NULL, NULL);
}
