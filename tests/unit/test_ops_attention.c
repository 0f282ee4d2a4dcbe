/* The paged key and value store and attention over it: every instruction set against the formula
 * in double precision, on keys and values as they are stored. */
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
    int n_heads, n_kv_heads, head_dim, page_tokens;
    kn_kv_type type;
    int context;
} shape;

/* A sequence in the store: K and V [context, n_kv_heads, head_dim], and its pages. */
typedef struct {
    float *k, *v;
    int32_t *pages;
} sequence;

#define LAYERS 2
#define LAYER  1

static int pages_of(const shape *s)
{
    return (s->context + s->page_tokens - 1) / s->page_tokens;
}

static kn_kv *make_store(kn_backend *be, const shape *s, int n_pages)
{
    kn_kv_shape kv = {LAYERS, s->n_kv_heads, s->head_dim, s->page_tokens, n_pages, s->type};
    kn_kv *store = be->ops->kv_create(be, &kv);
    assert_non_null(store);
    assert_true(be->ops->kv_page_bytes(be, &kv) >=
                (size_t)(2 * LAYERS * s->n_kv_heads * s->head_dim * s->page_tokens) *
                    (s->type == KN_KV_F32   ? 4
                     : s->type == KN_KV_F16 ? 2
                                            : 1));
    return store;
}

/* What the store holds of x[head_dim]. */
static void rounded(const shape *s, const float *x, double *y)
{
    float max = 0;
    for (int i = 0; i < s->head_dim; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    for (int i = 0; i < s->head_dim; i++)
        if (s->type == KN_KV_Q8)
            y[i] = max > 0 ? (double)(max / 127.0f) * (double)lrintf(x[i] * (127.0f / max)) : 0;
        else
            y[i] = s->type == KN_KV_F16 ? kn_f16_to_f32(kn_f32_to_f16(x[i])) : x[i];
}

/* Pages of sequences interleave: sequence q has pages q, q + count, ... backwards. */
static sequence make_sequence(const shape *s, int which, int count)
{
    size_t floats = (size_t)s->context * (size_t)s->n_kv_heads * (size_t)s->head_dim;
    ops_random r = {(uint64_t)which * 31 + 5};
    sequence q = {malloc(floats * sizeof(float)), malloc(floats * sizeof(float)),
                  malloc((size_t)pages_of(s) * sizeof(int32_t))};
    assert_true(q.k && q.v && q.pages);
    ops_random_fill(&r, q.k, floats);
    ops_random_fill(&r, q.v, floats);
    for (size_t i = 0; i < floats; i++)
        q.k[i] *= 3;
    for (int i = 0; i < pages_of(s); i++)
        q.pages[i] = (pages_of(s) - 1 - i) * count + which;
    return q;
}

static void write_sequence(kn_backend *be, kn_kv *kv, const shape *s, const sequence *q, int layer,
                           int first, int end)
{
    int n = end - first;
    size_t width = (size_t)s->n_kv_heads * (size_t)s->head_dim;
    kn_kv_row *rows = malloc((size_t)n * sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < n; i++)
        rows[i] = (kn_kv_row){q->pages, first + i};
    float *k = ops_upload(be, q->k + (size_t)first * width, (size_t)n * width);
    float *v = ops_upload(be, q->v + (size_t)first * width, (size_t)n * width);
    be->ops->kv_write(be, kv, layer, k, v, rows, n);
    be->ops->buffer_free(be, k);
    be->ops->buffer_free(be, v);
    free(rows);
}

static void free_sequence(sequence *q)
{
    free(q->k);
    free(q->v);
    free(q->pages);
}

/* y[head_dim] of one head of one row. */
static void exact_attention(const shape *s, const sequence *seq, const float *q, int kv_head,
                            int position, double *y)
{
    double *p = malloc((size_t)(position + 1) * sizeof *p), max = -INFINITY, sum = 0;
    double *stored = malloc((size_t)s->head_dim * sizeof *stored);
    assert_true(p && stored);
    for (int t = 0; t <= position; t++) {
        const float *k = seq->k + (t * s->n_kv_heads + kv_head) * s->head_dim;
        p[t] = 0;
        rounded(s, k, stored);
        for (int i = 0; i < s->head_dim; i++)
            p[t] += (double)q[i] * stored[i];
        p[t] /= sqrt(s->head_dim);
        max = p[t] > max ? p[t] : max;
    }
    memset(y, 0, (size_t)s->head_dim * sizeof *y);
    for (int t = 0; t <= position; t++) {
        const float *v = seq->v + (t * s->n_kv_heads + kv_head) * s->head_dim;
        double e = exp(p[t] - max);
        sum += e;
        rounded(s, v, stored);
        for (int i = 0; i < s->head_dim; i++)
            y[i] += e * stored[i];
    }
    for (int i = 0; i < s->head_dim; i++)
        y[i] /= sum;
    free(stored);
    free(p);
}

/* A batch as a step has it: a chunk of sequence 0's last tokens, single rows of sequence 1. */
#define CHUNK  7
#define SINGLE 3
#define BATCH  (CHUNK + SINGLE)

static void make_rows(const shape *s, const sequence *seqs, kn_kv_row rows[BATCH])
{
    for (int i = 0; i < CHUNK; i++) {
        int position = s->context - CHUNK + i;
        rows[i] = (kn_kv_row){seqs[0].pages, position < 0 ? 0 : position};
    }
    const int32_t single[SINGLE] = {0, s->context / 2, s->context - 1};
    for (int i = 0; i < SINGLE; i++)
        rows[CHUNK + i] = (kn_kv_row){seqs[1].pages, single[i]};
}

static void check_attention(kn_backend *const *backends, int n_backends, const shape *s)
{
    size_t width = (size_t)s->n_heads * (size_t)s->head_dim;
    float *q = malloc(BATCH * width * sizeof *q), *first = malloc(BATCH * width * sizeof *first);
    double *expected = malloc(BATCH * width * sizeof *expected);
    assert_true(q && first && expected);
    ops_random r = {(uint64_t)(s->context + s->head_dim)};
    ops_random_fill(&r, q, BATCH * width);
    sequence seqs[2] = {make_sequence(s, 0, 2), make_sequence(s, 1, 2)};
    kn_kv_row rows[BATCH];
    make_rows(s, seqs, rows);
    for (int i = 0; i < BATCH * s->n_heads; i++) {
        int row = i / s->n_heads, head = i % s->n_heads;
        exact_attention(s, &seqs[row >= CHUNK], q + i * s->head_dim,
                        head / (s->n_heads / s->n_kv_heads), rows[row].position,
                        expected + i * s->head_dim);
    }
    char what[128];
    for (int b = 0; b < n_backends; b++) {
        kn_backend *be = backends[b];
        snprintf(what, sizeof what, "%s, %d threads: %d/%d heads of %d, pages of %d, context %d",
                 be->isa, be->threads, s->n_heads, s->n_kv_heads, s->head_dim, s->page_tokens,
                 s->context);
        kn_kv *kv = make_store(be, s, 2 * pages_of(s));
        for (int j = 0; j < 2; j++) {
            write_sequence(be, kv, s, &seqs[j], LAYER, 0, s->context);
            write_sequence(be, kv, s, &seqs[1 - j], 1 - LAYER, 0, s->context);
        }
        write_sequence(be, kv, s, &seqs[0], LAYER, 0, s->context);
        write_sequence(be, kv, s, &seqs[1], LAYER, 0, s->context);
        float *dq = ops_upload(be, q, BATCH * width);
        float *y = be->ops->buffer_alloc(be, BATCH * width * sizeof *y);
        be->ops->attention(be, kv, LAYER, dq, rows, BATCH, s->n_heads, y);
        ops_expect_close(y, expected, BATCH * width, 3e-6, 2e-6, what);
        if (b == 0) memcpy(first, y, BATCH * width * sizeof *y);
        ops_expect_same_bits(y, first, BATCH * width, what);
        for (int i = 0; i < BATCH; i += 2) { /* a row alone */
            memset(y, 0, width * sizeof *y);
            be->ops->attention(be, kv, LAYER, dq + (size_t)i * width, rows + i, 1, s->n_heads, y);
            ops_expect_same_bits(y, first + (size_t)i * width, width, what);
        }
        be->ops->buffer_free(be, dq);
        be->ops->buffer_free(be, y);
        be->ops->kv_free(be, kv);
    }
    free_sequence(&seqs[0]);
    free_sequence(&seqs[1]);
    free(q);
    free(first);
    free(expected);
}

static void test_attention(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {4, 2, 16, 16, KN_KV_F32, 40},  {4, 4, 24, 16, KN_KV_F16, 33},
        {9, 3, 64, 32, KN_KV_F16, 300}, {9, 3, 64, 16, KN_KV_F32, 1100},
        {6, 1, 32, 7, KN_KV_F32, 61},   {8, 2, 128, 64, KN_KV_F16, 130},
        {2, 2, 80, 16, KN_KV_F32, 18},  {4, 2, 8, 16, KN_KV_F16, 1},
        {32, 1, 16, 16, KN_KV_F32, 50}, {3, 1, 20, 100, KN_KV_F16, 1250},
        {4, 2, 16, 16, KN_KV_Q8, 40},   {9, 3, 64, 16, KN_KV_Q8, 1100},
        {6, 1, 20, 7, KN_KV_Q8, 61},    {8, 2, 128, 64, KN_KV_Q8, 130},
    };
    for (int simd = 0; simd < 2; simd++) {
        kn_backend *group[OPS_GROUP];
        int n = ops_open_group(simd, group);
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++)
            check_attention(group, n, &shapes[j]);
        ops_close_group(group, n);
    }
}

/* Positions after a row's own don't touch it, whatever is stored there; NaN that it reads shows. */
static void check_not_finite(kn_kv_type type)
{
    const shape s = {4, 2, 32, 16, type, 48};
    const int width = 4 * 32, kv_width = 2 * 32;
    for (int isa = 0; ops_isa(isa); isa++) {
        kn_backend *be = ops_open(ops_isa(isa), 2);
        kn_kv *kv = make_store(be, &s, 3);
        sequence seq = make_sequence(&s, 0, 1);
        float q[2 * 4 * 32], *y = be->ops->buffer_alloc(be, sizeof q), before[2 * 4 * 32];
        ops_random r = {4};
        ops_random_fill(&r, q, 2 * 4 * 32);
        const kn_kv_row rows[2] = {{seq.pages, 20}, {seq.pages, 22}};
        write_sequence(be, kv, &s, &seq, LAYER, 0, 48);
        be->ops->attention(be, kv, LAYER, q, rows, 2, 4, y);
        memcpy(before, y, sizeof before);
        for (int i = 0; i < kv_width; i++)
            seq.k[21 * kv_width + i] = seq.v[21 * kv_width + i] = i % 2 ? NAN : INFINITY;
        write_sequence(be, kv, &s, &seq, LAYER, 0, 48);
        be->ops->attention(be, kv, LAYER, q, rows, 2, 4, y);
        ops_expect_same_bits(y, before, (size_t)width, "row before the NaN");
        for (int i = width; i < 2 * width; i++)
            assert_false(isfinite(y[i]));
        free_sequence(&seq);
        be->ops->buffer_free(be, y);
        be->ops->kv_free(be, kv);
        be->ops->close(be);
    }
}

static void test_not_finite(void **state)
{
    (void)state;
    check_not_finite(KN_KV_F32);
    check_not_finite(KN_KV_F16);
    check_not_finite(KN_KV_Q8);
}

/* A copied prefix gives the same results; what is cleared holds zeros in every layer. */
static void test_copy_and_clear(void **state)
{
    (void)state;
    for (int type = KN_KV_F32; type <= KN_KV_Q8; type++)
        for (int isa = 0; ops_isa(isa); isa++) {
            const shape s = {4, 2, 24, 10, (kn_kv_type)type, 10};
            enum { WIDTH = 4 * 24 };
            kn_backend *be = ops_open(ops_isa(isa), 1);
            kn_kv *kv = make_store(be, &s, 3);
            sequence seq = make_sequence(&s, 0, 1), other = make_sequence(&s, 1, 1);
            float q[WIDTH], *y = be->ops->buffer_alloc(be, sizeof q), first[WIDTH];
            ops_random r = {4};
            ops_random_fill(&r, q, WIDTH);
            const int32_t pages[3] = {0, 1, 2};
            for (int layer = 0; layer < LAYERS; layer++) {
                seq.pages[0] = 0;
                write_sequence(be, kv, &s, &seq, layer, 0, 10);
                seq.pages[0] = 2;
                other.pages[0] = 2;
                write_sequence(be, kv, &s, &other, layer, 0, 10);
            }
            be->ops->kv_copy(be, kv, 0, 2, 6);
            for (int layer = 0; layer < LAYERS; layer++)
                for (int position = 5; position <= 6; position++) {
                    const kn_kv_row a = {&pages[0], position}, b = {&pages[2], position};
                    be->ops->attention(be, kv, layer, q, &a, 1, 4, first);
                    be->ops->attention(be, kv, layer, q, &b, 1, 4, y);
                    if (position == 5)
                        ops_expect_same_bits(y, first, WIDTH, "copied");
                    else /* the seventh token was not copied */
                        assert_memory_not_equal(y, first, sizeof first);
                }
            be->ops->kv_clear(be, kv, 2);
            for (int layer = 0; layer < LAYERS; layer++) {
                const kn_kv_row b = {&pages[2], 9}, a = {&pages[0], 9};
                be->ops->attention(be, kv, layer, q, &b, 1, 4, y);
                for (int i = 0; i < WIDTH; i++)
                    assert_true(y[i] == 0);
                be->ops->attention(be, kv, layer, q, &a, 1, 4, y);
                assert_true(y[0] != 0);
            }
            free_sequence(&seq);
            free_sequence(&other);
            be->ops->buffer_free(be, y);
            be->ops->kv_free(be, kv);
            be->ops->close(be);
        }
}

static void test_counters(void **state)
{
    (void)state;
    const shape s = {4, 2, 32, 16, KN_KV_F16, 48};
    kn_backend *be = ops_open(NULL, 1);
    kn_kv *kv = make_store(be, &s, 3);
    sequence seq = make_sequence(&s, 0, 1);
    float q[4 * 32] = {0}, y[4 * 32];
    const kn_kv_row row = {seq.pages, 20};
    kn_counters before, after;
    be->ops->counters(be, &before);
    be->ops->attention(be, kv, LAYER, q, &row, 1, 4, y);
    be->ops->counters(be, &after);
    assert_int_equal(after.kv_bytes - before.kv_bytes, 21 * 2 * 2 * 32 * 2);
    free_sequence(&seq);
    be->ops->kv_free(be, kv);
    be->ops->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_copy_and_clear),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests_name("ops_attention", tests, NULL, NULL);
}
