/* The paged store and attention of the CUDA backend against the plain backend on the same keys,
 * values and queries. */
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
    int n_heads, n_kv_heads, head_dim, page_tokens;
    kn_kv_type type;
    int context;
} shape;

#define LAYERS 2
#define LAYER  1
/* A batch as a step has it: a chunk of sequence 0's last tokens, single rows of sequence 1. */
#define CHUNK  7
#define SINGLE 3
#define BATCH  (CHUNK + SINGLE)

typedef struct {
    kn_backend *be;
    kn_kv *kv;
    float *q, *y;
} side;

static int pages_of(const shape *s)
{
    return (s->context + s->page_tokens - 1) / s->page_tokens;
}

static void write_all(side *sd, const shape *s, const int32_t *pages, int layer, uint64_t seed)
{
    const size_t floats = (size_t)s->context * (size_t)(s->n_kv_heads * s->head_dim);
    float *host = malloc(2 * floats * sizeof *host);
    kn_kv_row *rows = malloc((size_t)s->context * sizeof *rows);
    ops_random r = {seed};
    assert_true(host && rows);
    ops_random_fill(&r, host, 2 * floats);
    for (size_t i = 0; i < floats; i++)
        host[i] *= 3;
    for (int i = 0; i < s->context; i++)
        rows[i] = (kn_kv_row){pages, i};
    float *k = ops_upload(sd->be, host, floats), *v = ops_upload(sd->be, host + floats, floats);
    sd->be->ops->kv_write(sd->be, sd->kv, layer, k, v, rows, s->context);
    sd->be->ops->buffer_free(sd->be, k);
    sd->be->ops->buffer_free(sd->be, v);
    free(host);
    free(rows);
}

static side open_side(kn_backend *be, const shape *s, int32_t *const pages[2], const float *q,
                      int n)
{
    const kn_kv_shape kv = {LAYERS,         s->n_kv_heads,   s->head_dim,
                            s->page_tokens, 2 * pages_of(s), s->type};
    const size_t width = (size_t)s->n_heads * (size_t)s->head_dim;
    side sd = {.be = be, .kv = be->ops->kv_create(be, &kv)};
    assert_non_null(sd.kv);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int j = 0; j < 2; j++)
            write_all(&sd, s, pages[j], layer, (uint64_t)(layer * 2 + j) + 7);
    sd.q = ops_upload(be, q, (size_t)n * width);
    sd.y = be->ops->buffer_alloc(be, (size_t)n * width * sizeof *sd.y);
    return sd;
}

static void close_side(side *sd)
{
    sd->be->ops->buffer_free(sd->be, sd->q);
    sd->be->ops->buffer_free(sd->be, sd->y);
    sd->be->ops->kv_free(sd->be, sd->kv);
}

static void check_alone(side *sd, const shape *s, const kn_kv_row *rows, const float *whole,
                        const char *what)
{
    const size_t width = (size_t)s->n_heads * (size_t)s->head_dim;
    for (int i = 0; i < BATCH; i += 2) {
        sd->be->ops->attention(sd->be, sd->kv, LAYER, sd->q + (size_t)i * width, rows + i, 1,
                               s->n_heads, sd->y);
        float *alone = cuda_fetch(sd->be, sd->y, width);
        ops_expect_same_bits(alone, whole + (size_t)i * width, width, what);
        free(alone);
    }
}

static void check(kn_backend *cuda, kn_backend *ref, const shape *s)
{
    const size_t width = (size_t)s->n_heads * (size_t)s->head_dim, count = BATCH * width;
    float *q = malloc(count * sizeof *q);
    int32_t *pages[2];
    kn_kv_row rows[BATCH];
    const int32_t single[SINGLE] = {0, s->context / 2, s->context - 1};
    ops_random r = {(uint64_t)(s->context + s->head_dim)};
    char what[128];
    snprintf(what, sizeof what, "%d/%d heads of %d, pages of %d, context %d", s->n_heads,
             s->n_kv_heads, s->head_dim, s->page_tokens, s->context);
    assert_non_null(q);
    ops_random_fill(&r, q, count);
    for (int j = 0; j < 2; j++) { /* the two sequences' pages interleave, backwards */
        pages[j] = malloc((size_t)pages_of(s) * sizeof(int32_t));
        assert_non_null(pages[j]);
        for (int i = 0; i < pages_of(s); i++)
            pages[j][i] = (pages_of(s) - 1 - i) * 2 + j;
    }
    for (int i = 0; i < CHUNK; i++) {
        const int position = s->context - CHUNK + i;
        rows[i] = (kn_kv_row){pages[0], position < 0 ? 0 : position};
    }
    for (int i = 0; i < SINGLE; i++)
        rows[CHUNK + i] = (kn_kv_row){pages[1], single[i]};
    side a = open_side(cuda, s, pages, q, BATCH), b = open_side(ref, s, pages, q, BATCH);
    cuda->ops->attention(cuda, a.kv, LAYER, a.q, rows, BATCH, s->n_heads, a.y);
    ref->ops->attention(ref, b.kv, LAYER, b.q, rows, BATCH, s->n_heads, b.y);
    cuda_expect_close(cuda, a.y, b.y, count, 3e-6, 3e-6, what);
    float *whole = cuda_fetch(cuda, a.y, count);
    check_alone(&a, s, rows, whole, what);
    free(whole);
    close_side(&a);
    close_side(&b);
    free(pages[0]);
    free(pages[1]);
    free(q);
}

static void test_attention(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {4, 2, 16, 16, KN_KV_F32, 40},  {4, 4, 24, 16, KN_KV_F16, 33},
        {9, 3, 64, 32, KN_KV_F16, 300}, {9, 3, 64, 16, KN_KV_F32, 600},
        {6, 1, 32, 7, KN_KV_F32, 61},   {8, 2, 128, 64, KN_KV_F16, 130},
        {2, 2, 80, 16, KN_KV_F32, 18},  {4, 2, 8, 16, KN_KV_F16, 1},
        {32, 1, 16, 16, KN_KV_F32, 50}, {3, 1, 20, 100, KN_KV_F16, 530},
        {2, 1, 256, 16, KN_KV_F16, 20}, {2, 1, 256, 16, KN_KV_F32, 20},
        {2, 1, 300, 16, KN_KV_F32, 50}, {2, 1, 512, 16, KN_KV_F16, 270},
        {3, 3, 6, 5, KN_KV_F16, 23},    {4, 2, 16, 16, KN_KV_Q8, 40},
        {9, 3, 64, 16, KN_KV_Q8, 600},  {6, 1, 20, 7, KN_KV_Q8, 61},
        {8, 2, 128, 64, KN_KV_Q8, 130}, {2, 1, 300, 3, KN_KV_Q8, 50},
        {2, 1, 512, 16, KN_KV_Q8, 270}, {3, 3, 6, 5, KN_KV_Q8, 23},
    };
    kn_backend *cuda = cuda_open(NULL), *ref = ops_open("ref", 1);
    for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++)
        check(cuda, ref, &shapes[j]);
    ref->ops->close(ref);
    cuda->ops->close(cuda);
}

/* Batches as an engine makes them, of SmolLM2's heads: n/2 neighbouring tokens of one prompt, then
 * single tokens of two others in turn. */
static void check_batch(kn_backend *cuda, kn_backend *ref, kn_kv_type type, int n)
{
    enum { CONTEXT = 70, PAGE = 16, MOST = 65 };
    const shape s = {9, 3, 64, PAGE, type, CONTEXT};
    const size_t width = (size_t)s.n_heads * (size_t)s.head_dim;
    float q[MOST * 9 * 64];
    int32_t a[CONTEXT / PAGE + 1], b[CONTEXT / PAGE + 1];
    int32_t *pages[2] = {a, b};
    kn_kv_row rows[MOST];
    ops_random r = {(uint64_t)n};
    ops_random_fill(&r, q, (size_t)n * width);
    for (int i = 0; i < pages_of(&s); i++) {
        a[i] = 2 * i + 1;
        b[i] = 2 * i;
    }
    for (int i = 0; i < n; i++)
        rows[i] = i < n / 2 ? (kn_kv_row){a, CONTEXT - n / 2 + i}
                            : (kn_kv_row){i % 2 ? a : b, i * 7 % CONTEXT};
    side c = open_side(cuda, &s, pages, q, n), p = open_side(ref, &s, pages, q, n);
    cuda->ops->attention(cuda, c.kv, LAYER, c.q, rows, n, s.n_heads, c.y);
    ref->ops->attention(ref, p.kv, LAYER, p.q, rows, n, s.n_heads, p.y);
    cuda_expect_close(cuda, c.y, p.y, (size_t)n * width, 3e-6, 3e-6, "a batch of attention");
    close_side(&c);
    close_side(&p);
}

static void test_batches(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 5, 31, 32, 33, 65};
    kn_backend *cuda = cuda_open(NULL), *ref = ops_open("ref", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_batch(cuda, ref, (kn_kv_type)(i % 3), sizes[i]);
    ref->ops->close(ref);
    cuda->ops->close(cuda);
}

/* Positions after a row's own don't touch it, whatever is stored there; NaN that it reads shows. */
static void check_not_finite(kn_kv_type type)
{
    enum { WIDTH = 4 * 32, KV_WIDTH = 2 * 32, TOKENS = 48 };
    const kn_kv_shape store = {1, 2, 32, 16, 3, type};
    const int32_t pages[3] = {2, 0, 1};
    const kn_kv_row rows[2] = {{pages, 20}, {pages, 22}};
    kn_backend *be = cuda_open(NULL);
    kn_kv *kv = be->ops->kv_create(be, &store);
    float host[TOKENS * KV_WIDTH], q[2 * WIDTH];
    kn_kv_row all[TOKENS];
    ops_random r = {4};
    ops_random_fill(&r, host, TOKENS * KV_WIDTH);
    ops_random_fill(&r, q, 2 * WIDTH);
    for (int i = 0; i < TOKENS; i++)
        all[i] = (kn_kv_row){pages, i};
    float *k = ops_upload(be, host, TOKENS * KV_WIDTH), *dq = ops_upload(be, q, 2 * WIDTH);
    float *y = be->ops->buffer_alloc(be, sizeof q);
    be->ops->kv_write(be, kv, 0, k, k, all, TOKENS);
    be->ops->attention(be, kv, 0, dq, rows, 2, 4, y);
    float *before = cuda_fetch(be, y, 2 * WIDTH);
    for (int i = 0; i < KV_WIDTH; i++)
        host[21 * KV_WIDTH + i] = i % 2 ? NAN : INFINITY;
    be->ops->upload(be, k, host, sizeof host);
    be->ops->kv_write(be, kv, 0, k, k, all, TOKENS);
    be->ops->attention(be, kv, 0, dq, rows, 2, 4, y);
    float *after = cuda_fetch(be, y, 2 * WIDTH);
    ops_expect_same_bits(after, before, WIDTH, "row before the NaN");
    for (int i = WIDTH; i < 2 * WIDTH; i++)
        assert_false(isfinite(after[i]));
    free(before);
    free(after);
    be->ops->buffer_free(be, k);
    be->ops->buffer_free(be, dq);
    be->ops->buffer_free(be, y);
    be->ops->kv_free(be, kv);
    be->ops->close(be);
}

static void test_not_finite(void **state)
{
    (void)state;
    for (int type = KN_KV_F32; type <= KN_KV_Q8; type++)
        check_not_finite((kn_kv_type)type);
}

static float *attend_one(kn_backend *be, kn_kv *kv, int layer, const float *q, float *y,
                         int32_t page, int position, int width)
{
    const kn_kv_row row = {&page, position};
    be->ops->attention(be, kv, layer, q, &row, 1, 4, y);
    return cuda_fetch(be, y, (size_t)width);
}

/* A copied prefix gives the same results; what is cleared holds zeros in every layer; rows that
 * stand for nothing write nothing. */
static void test_pages(void **state)
{
    (void)state;
    enum { WIDTH = 4 * 24, KV_WIDTH = 2 * 24, TOKENS = 10 };
    for (int type = KN_KV_F32; type <= KN_KV_Q8; type++) {
        const kn_kv_shape store = {LAYERS, 2, 24, TOKENS, 3, (kn_kv_type)type};
        const int32_t pages[3] = {0, 1, 2};
        kn_backend *be = cuda_open(NULL);
        kn_kv *kv = be->ops->kv_create(be, &store);
        float host[2 * TOKENS * KV_WIDTH], q[WIDTH];
        kn_kv_row to[2][TOKENS + 2];
        ops_random r = {4};
        ops_random_fill(&r, host, 2 * TOKENS * KV_WIDTH);
        ops_random_fill(&r, q, WIDTH);
        for (int i = 0; i < TOKENS; i++)
            for (int j = 0; j < 2; j++)
                to[j][i] = (kn_kv_row){&pages[2 * j], i};
        float *k = ops_upload(be, host, 2 * TOKENS * KV_WIDTH), *dq = ops_upload(be, q, WIDTH);
        float *y = be->ops->buffer_alloc(be, sizeof q);
        for (int layer = 0; layer < LAYERS; layer++) {
            be->ops->kv_write(be, kv, layer, k, k, to[0], TOKENS);
            be->ops->kv_write(be, kv, layer, k + TOKENS * KV_WIDTH, k, to[1], TOKENS);
            to[1][0] = (kn_kv_row){NULL, 0};
            be->ops->kv_write(be, kv, layer, k + TOKENS * KV_WIDTH, k, to[1], 1);
            to[1][0] = (kn_kv_row){&pages[2], 0};
        }
        be->ops->kv_copy(be, kv, 0, 2, 6);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int position = 5; position <= 6; position++) {
                float *a = attend_one(be, kv, layer, dq, y, 0, position, WIDTH);
                float *b = attend_one(be, kv, layer, dq, y, 2, position, WIDTH);
                if (position == 5)
                    ops_expect_same_bits(b, a, WIDTH, "copied");
                else /* the seventh token was not copied */
                    assert_memory_not_equal(b, a, sizeof q);
                free(a);
                free(b);
            }
        be->ops->kv_clear(be, kv, 2);
        for (int layer = 0; layer < LAYERS; layer++) {
            float *b = attend_one(be, kv, layer, dq, y, 2, 9, WIDTH);
            float *a = attend_one(be, kv, layer, dq, y, 0, 9, WIDTH);
            for (int i = 0; i < WIDTH; i++)
                assert_true(b[i] == 0);
            assert_true(a[0] != 0);
            free(a);
            free(b);
        }
        be->ops->buffer_free(be, k);
        be->ops->buffer_free(be, dq);
        be->ops->buffer_free(be, y);
        be->ops->kv_free(be, kv);
        be->ops->close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests_name("cuda_attention", tests, NULL, NULL);
}
