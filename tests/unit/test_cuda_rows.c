/* Operations on rows, rotary embedding, adapters and sampling of the CUDA backend against the plain
 * backend (and the engine's own sampling) on the same inputs. */
#include "engine/sample.h"
#include "support/cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int widths[] = {1, 7, 31, 64, 96, 160, 257, 576, 1536};
#define N_WIDTHS  ((int)(sizeof widths / sizeof *widths))
#define MAX_WIDTH 1600
#define MAX_ROWS  65

typedef struct {
    kn_backend *cuda, *ref;
    float *host[2], *weight; /* [MAX_ROWS * MAX_WIDTH], [MAX_WIDTH] */
    float *on_cuda[3], *on_ref[3], *cuda_weight;
} bench;

static bench open_bench(void)
{
    bench b = {.cuda = cuda_open(NULL)};
    ops_random r = {42};
    const size_t count = MAX_ROWS * MAX_WIDTH;
    b.ref = ops_open("ref", 1);
    for (int i = 0; i < 2; i++) {
        b.host[i] = malloc(count * sizeof(float));
        assert_non_null(b.host[i]);
        ops_random_fill(&r, b.host[i], count);
        for (size_t k = 0; k < count; k++)
            b.host[i][k] *= 10;
    }
    b.weight = malloc(MAX_WIDTH * sizeof *b.weight);
    assert_non_null(b.weight);
    ops_random_fill(&r, b.weight, MAX_WIDTH);
    b.cuda_weight = ops_upload(b.cuda, b.weight, MAX_WIDTH);
    for (int i = 0; i < 3; i++) {
        b.on_cuda[i] = b.cuda->ops->buffer_alloc(b.cuda, count * sizeof(float));
        b.on_ref[i] = b.ref->ops->buffer_alloc(b.ref, count * sizeof(float));
        assert_true(b.on_cuda[i] && b.on_ref[i]);
    }
    return b;
}

static void fill(bench *b, int slot, const float *host, size_t count)
{
    b->cuda->ops->upload(b->cuda, b->on_cuda[slot], host, count * sizeof *host);
    b->ref->ops->upload(b->ref, b->on_ref[slot], host, count * sizeof *host);
}

static void compare(bench *b, int slot, size_t count, double absolute, double relative,
                    const char *what)
{
    cuda_expect_close(b->cuda, b->on_cuda[slot], b->on_ref[slot], count, absolute, relative, what);
}

static void close_bench(bench *b)
{
    for (int i = 0; i < 3; i++) {
        b->cuda->ops->buffer_free(b->cuda, b->on_cuda[i]);
        b->ref->ops->buffer_free(b->ref, b->on_ref[i]);
    }
    b->cuda->ops->buffer_free(b->cuda, b->cuda_weight);
    b->cuda->ops->close(b->cuda);
    b->ref->ops->close(b->ref);
    free(b->host[0]);
    free(b->host[1]);
    free(b->weight);
}

static int rows_for(int width)
{
    return width < 64 || width == 576 ? MAX_ROWS : 1 + width % 9;
}

static void test_rows(void **state)
{
    (void)state;
    bench b = open_bench();
    for (int j = 0; j < N_WIDTHS; j++) {
        const int d = widths[j], n = rows_for(d);
        const size_t count = (size_t)(n * d);
        const int32_t rows[] = {n - 1, 0, n / 2};
        fill(&b, 0, b.host[0], count);
        fill(&b, 1, b.host[1], count);
        b.cuda->ops->rmsnorm(b.cuda, b.on_cuda[0], b.cuda_weight, 1e-5f, n, d, b.on_cuda[2]);
        b.ref->ops->rmsnorm(b.ref, b.on_ref[0], b.weight, 1e-5f, n, d, b.on_ref[2]);
        compare(&b, 2, count, 1e-7, 2e-6, "rmsnorm");
        float *whole = cuda_fetch(b.cuda, b.on_cuda[2], count);
        float *last = b.on_cuda[0] + (n - 1) * d; /* a row alone, in place */
        b.cuda->ops->rmsnorm(b.cuda, last, b.cuda_weight, 1e-5f, 1, d, last);
        float *alone = cuda_fetch(b.cuda, last, (size_t)d);
        ops_expect_same_bits(alone, whole + (n - 1) * d, (size_t)d, "row alone");
        free(whole);
        free(alone);
        fill(&b, 0, b.host[0], count);
        b.cuda->ops->swiglu(b.cuda, b.on_cuda[0], b.on_cuda[1], n, d, b.on_cuda[0]);
        b.ref->ops->swiglu(b.ref, b.on_ref[0], b.on_ref[1], n, d, b.on_ref[0]);
        compare(&b, 0, count, 1e-12, 1e-6, "swiglu in place");
        b.cuda->ops->add(b.cuda, b.on_cuda[1], n, d, b.on_cuda[2]);
        b.ref->ops->add(b.ref, b.on_ref[1], n, d, b.on_ref[2]);
        compare(&b, 2, count, 2e-6, 2e-6, "add");
        b.cuda->ops->gather(b.cuda, b.on_cuda[1], rows, n < 3 ? n : 3, d, b.on_cuda[2]);
        b.ref->ops->gather(b.ref, b.on_ref[1], rows, n < 3 ? n : 3, d, b.on_ref[2]);
        compare(&b, 2, (size_t)((n < 3 ? n : 3) * d), 0, 0, "gather");
    }
    close_bench(&b);
}

/* SmolLM2's heads, a whole batch. */
static void check_rope_batch(bench *b)
{
    enum { HD = 64, HEADS = 9, WIDTH = HD * HEADS };
    double inv_freq[HD / 2];
    int32_t positions[MAX_ROWS];
    for (int i = 0; i < HD / 2; i++)
        inv_freq[i] = pow(100000, -2.0 * i / HD);
    for (int i = 0; i < MAX_ROWS; i++)
        positions[i] = i * 37 % 2048;
    const kn_rope rope = {HD, inv_freq};
    fill(b, 0, b->host[0], MAX_ROWS * WIDTH);
    b->ref->ops->rope(b->ref, &rope, b->on_ref[0], MAX_ROWS, HEADS, positions);
    b->cuda->ops->rope(b->cuda, &rope, b->on_cuda[0], MAX_ROWS, HEADS, positions);
    compare(b, 0, MAX_ROWS * WIDTH, 2e-6, 1e-6, "rope of a batch");
}

static void test_rope(void **state)
{
    (void)state;
    enum { N = 9, HEADS = 3 };
    static const int head_dims[] = {2, 8, 16, 24, 64, 80, 128};
    static const int32_t positions[N] = {0, 1, 2, 77, 1000, 8191, 131071, 5, 4};
    double inv_freq[64];
    bench b = open_bench();
    for (size_t j = 0; j < sizeof head_dims / sizeof *head_dims; j++) {
        const int hd = head_dims[j], width = HEADS * hd;
        for (int i = 0; i < hd / 2; i++)
            inv_freq[i] = pow(10000, -2.0 * i / hd);
        const kn_rope rope = {hd, inv_freq};
        fill(&b, 0, b.host[0], (size_t)(N * width));
        b.ref->ops->rope(b.ref, &rope, b.on_ref[0], N, HEADS, positions);
        b.cuda->ops->rope(b.cuda, &rope, b.on_cuda[0], 4, HEADS, positions);
        b.cuda->ops->rope(b.cuda, &rope, b.on_cuda[0] + 4 * width, N - 4, HEADS, positions + 4);
        compare(&b, 0, (size_t)(N * width), 2e-6, 1e-6, "rope");
    }
    check_rope_batch(&b);
    close_bench(&b);
}

/* --- adapters --------------------------------------------------------------------------------- */

#define BATCH    65
#define ADAPTERS 5

typedef struct {
    kn_adapter_weight *cuda[ADAPTERS], *ref[ADAPTERS];
    int32_t rows[ADAPTERS][BATCH];
    int n_rows[ADAPTERS];
    size_t bytes;
} adapters;

/* Adapters of mixed ranks and types over interleaved rows; every sixth row has none. */
static void make_adapters(bench *b, bool direft, int64_t in, int64_t out, adapters *a)
{
    static const int ranks[ADAPTERS] = {1, 8, 16, 66, 7};
    ops_random r = {(uint64_t)(in * 3 + out)};
    *a = (adapters){0};
    for (int j = 0; j < ADAPTERS; j++) {
        const kn_type type = (kn_type)(j % 3);
        float bias[128];
        ops_random_fill(&r, bias, 128);
        void *wa = ops_random_matrix(&r, type, ranks[j], in);
        void *wb = ops_random_matrix(&r, type, ranks[j], out);
        const kn_adapter_matrices m = {.direft = direft,
                                       .rank = ranks[j],
                                       .in = in,
                                       .out = out,
                                       .type = type,
                                       .a = wa,
                                       .b = wb,
                                       .bias = direft ? bias : NULL,
                                       .scale = direft ? 1.0f : 0.75f};
        a->cuda[j] = b->cuda->ops->adapter_create(b->cuda, &m);
        a->ref[j] = b->ref->ops->adapter_create(b->ref, &m);
        assert_true(a->cuda[j] && a->ref[j]);
        assert_int_equal(b->cuda->ops->adapter_bytes(a->cuda[j]),
                         b->ref->ops->adapter_bytes(a->ref[j]));
        a->bytes += b->cuda->ops->adapter_bytes(a->cuda[j]);
        for (int32_t i = j; i < BATCH; i += ADAPTERS + 1)
            a->rows[j][a->n_rows[j]++] = i;
        free(wa);
        free(wb);
    }
}

static void apply(bench *b, const adapters *a, bool cuda, bool direft, int first, int n_rows,
                  float *y, int64_t ld)
{
    kn_backend *be = cuda ? b->cuda : b->ref;
    kn_segment segments[ADAPTERS];
    for (int j = 0; j < ADAPTERS; j++) {
        const int left = a->n_rows[j] > first ? a->n_rows[j] - first : 0;
        segments[j] = (kn_segment){cuda ? a->cuda[j] : a->ref[j], a->rows[j] + first,
                                   left < n_rows ? left : n_rows};
    }
    if (direft)
        be->ops->direft(be, segments, ADAPTERS, y);
    else
        be->ops->lora(be, segments, ADAPTERS, cuda ? b->on_cuda[0] : b->on_ref[0], y, ld);
}

static void check_adapters(bench *b, bool direft, int64_t in, int64_t out)
{
    const int64_t ld = direft ? out : out + 5;
    const size_t count = (size_t)(BATCH * ld);
    adapters a;
    kn_counters before, after;
    make_adapters(b, direft, in, out, &a);
    fill(b, 0, b->host[0], (size_t)(BATCH * in));
    fill(b, 1, b->host[1], count);
    fill(b, 2, b->host[1], count);
    b->cuda->ops->counters(b->cuda, &before);
    apply(b, &a, true, direft, 0, BATCH, b->on_cuda[1], ld);
    b->cuda->ops->counters(b->cuda, &after);
    assert_int_equal(after.adapter_bytes - before.adapter_bytes, a.bytes);
    /* All segments in one launch for each half. */
    assert_int_equal(after.adapter_launches - before.adapter_launches, 2);
    apply(b, &a, false, direft, 0, BATCH, b->on_ref[1], ld);
    compare(b, 1, count, 1e-5 * (double)(in + 66), 2e-6, direft ? "direft" : "lora");
    for (int first = 0; first < BATCH; first += 2) /* fewer rows at a time: the same bits */
        apply(b, &a, true, direft, first, 2, b->on_cuda[2], ld);
    float *whole = cuda_fetch(b->cuda, b->on_cuda[1], count);
    float *parts = cuda_fetch(b->cuda, b->on_cuda[2], count);
    ops_expect_same_bits(parts, whole, count, "adapter rows in parts");
    free(whole);
    free(parts);
    for (int j = 0; j < ADAPTERS; j++) {
        b->cuda->ops->adapter_free(b->cuda, a.cuda[j]);
        b->ref->ops->adapter_free(b->ref, a.ref[j]);
    }
}

static void test_adapters(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{64, 96}, {96, 33}, {31, 577}, {576, 192}, {1536, 576}};
    bench b = open_bench();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_adapters(&b, false, sizes[i][0], sizes[i][1]);
        if (sizes[i][0] <= 576) check_adapters(&b, true, sizes[i][0], sizes[i][0]);
    }
    close_bench(&b);
}

/* Adapters come and go while work with others is queued: pieces of the arena are used again, and
 * what is freed does not harm what was queued before. */
static void test_adapter_turnover(void **state)
{
    (void)state;
    enum { D = 64, RANK = 8, ROUNDS = 40 };
    bench b = open_bench();
    ops_random r = {3};
    const int32_t row = 0;
    fill(&b, 1, b.host[1], D);
    kn_adapter_weight *old = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        void *wa = ops_random_matrix(&r, KN_F16, RANK + i % 5, D);
        void *wb = ops_random_matrix(&r, KN_F16, RANK + i % 5, D);
        float bias[RANK + 5] = {0};
        const kn_adapter_matrices m = {true, RANK + i % 5, D, D, KN_F16, wa, wb, bias, 1};
        kn_adapter_weight *cuda = b.cuda->ops->adapter_create(b.cuda, &m);
        kn_adapter_weight *ref = b.ref->ops->adapter_create(b.ref, &m);
        assert_true(cuda && ref);
        const kn_segment on_cuda = {cuda, &row, 1}, on_ref = {ref, &row, 1};
        fill(&b, 1, b.host[1] + i, D);
        b.cuda->ops->direft(b.cuda, &on_cuda, 1, b.on_cuda[1]);
        b.cuda->ops->adapter_free(b.cuda, old);
        old = NULL;
        if (i % 3 == 0)
            old = cuda;
        else
            b.cuda->ops->adapter_free(b.cuda, cuda); /* before anything has run */
        b.ref->ops->direft(b.ref, &on_ref, 1, b.on_ref[1]);
        compare(&b, 1, D, 1e-4, 1e-5, "adapter turnover");
        b.ref->ops->adapter_free(b.ref, ref);
        free(wa);
        free(wb);
    }
    b.cuda->ops->adapter_free(b.cuda, old);
    close_bench(&b);
}

/* --- sampling --------------------------------------------------------------------------------- */

static void make_logits(ops_random *r, float *logits, int vocab, int kind)
{
    for (int i = 0; i < vocab; i++) {
        logits[i] = ops_random_float(r) * 8;
        if (kind == 1) logits[i] = (float)(int)(logits[i]); /* many equals, both zeros */
        if (kind == 2 && i % 3) logits[i] = -INFINITY;
    }
}

static void check_choice(const kn_choice *got, const sampling_options *o, const float *logits,
                         int vocab, const int32_t *tokens, int n, uint64_t seed, int n_top)
{
    static sample_scratch scratch;
    int32_t expected = sample_token(&scratch, o, logits, vocab, tokens, n, seed, 7);
    if (got->token != expected)
        fail_msg("temperature %g, top_k %d, top_p %g, min_p %g, penalty %g: token %d, expected %d",
                 (double)o->temperature, o->top_k, (double)o->top_p, (double)o->min_p,
                 (double)o->repeat_penalty, got->token, expected);
    token_logprob top[KN_MAX_TOP];
    float logprob = 0;
    if (n_top < 0) return;
    sample_logprobs(logits, vocab, expected, n_top, &logprob, top);
    assert_true(fabsf(logprob - got->logprob) <= 1e-6f * fabsf(logprob) + 1e-6f);
    for (int i = 0; i < n_top; i++) {
        assert_int_equal(got->top_id[i], top[i].id);
        assert_true(got->top_logprob[i] == top[i].logprob ||
                    fabsf(got->top_logprob[i] - top[i].logprob) <= 1e-5f);
    }
}

static const sampling_options sampling_cases[] = {
    {0},
    {.repeat_penalty = 1.3f},
    {.temperature = 0.7f},
    {.temperature = 1.5f, .top_k = 1},
    {.temperature = 1, .top_k = 40},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 2, .min_p = 0.05f},
    {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.02f, .repeat_penalty = 1.1f},
    {.temperature = 5, .top_p = 0.5f, .repeat_penalty = 0.8f, .repeat_last = 3},
    {.temperature = 0.01f, .top_p = 0.999f},
};
#define N_CASES ((int)(sizeof sampling_cases / sizeof *sampling_cases))

static void test_sampling(void **state)
{
    (void)state;
    static const int vocabs[] = {5, 300, 2049};
    enum { MOST = 2049, WINDOW = 6 };
    kn_backend *be = cuda_open(NULL);
    float *logits = malloc(N_CASES * MOST * sizeof *logits);
    assert_non_null(logits);
    for (int v = 0; v < 3; v++)
        for (int kind = 0; kind < 3; kind++) {
            const int vocab = vocabs[v];
            ops_random r = {(uint64_t)(v * 3 + kind) + 99};
            kn_sample samples[N_CASES];
            kn_choice choices[N_CASES];
            int32_t tokens[WINDOW];
            for (int i = 0; i < WINDOW; i++)
                tokens[i] = (int32_t)(ops_random_bits(&r) % (uint32_t)vocab);
            tokens[3] = tokens[1]; /* twice in the window */
            for (int i = 0; i < N_CASES; i++) {
                make_logits(&r, logits + i * vocab, vocab, kind);
                sample_describe(&sampling_cases[i], tokens, WINDOW, (uint64_t)i, 7,
                                i % 3 == 0   ? -1
                                : i % 3 == 1 ? 0
                                             : (vocab < 20 ? vocab : 20),
                                &samples[i]);
            }
            float *device = ops_upload(be, logits, (size_t)(N_CASES * vocab));
            be->ops->sample(be, device, vocab, samples, N_CASES, choices);
            cuda_expect_good(be);
            for (int i = 0; i < N_CASES; i++)
                check_choice(&choices[i], &sampling_cases[i], logits + i * vocab, vocab, tokens,
                             WINDOW, (uint64_t)i, samples[i].n_top);
            be->ops->buffer_free(be, device);
        }
    free(logits);
    be->ops->close(be);
}

/* Rows that hold nothing to choose from; what comes back is what was asked for. */
static void test_sampling_worthless(void **state)
{
    (void)state;
    enum { VOCAB = 100, N = 4 };
    kn_backend *be = cuda_open(NULL);
    float logits[N * VOCAB];
    for (int i = 0; i < N * VOCAB; i++)
        logits[i] = (float)(i % 7);
    logits[30] = NAN;
    for (int i = 0; i < VOCAB; i++)
        logits[VOCAB + i] = -INFINITY;
    logits[2 * VOCAB + 5] = INFINITY;
    const sampling_options hot = {.temperature = 1};
    kn_sample samples[N];
    kn_choice choices[N];
    kn_counters before, after;
    for (int i = 0; i < N; i++)
        sample_describe(&hot, NULL, 0, 1, 0, -1, &samples[i]);
    float *device = ops_upload(be, logits, N * VOCAB);
    be->ops->counters(be, &before);
    be->ops->sample(be, device, VOCAB, samples, N, choices);
    be->ops->counters(be, &after);
    cuda_expect_good(be);
    for (int i = 0; i < 3; i++)
        assert_int_equal(choices[i].token, -1);
    assert_true(choices[3].token >= 0);
    assert_int_equal(after.downloaded_bytes - before.downloaded_bytes, N * 8);
    be->ops->buffer_free(be, device);
    be->ops->close(be);
}

/* A vocabulary of SmolLM2's size, and windows that are too long to be sent at once. */
static void test_sampling_large(void **state)
{
    (void)state;
    enum { VOCAB = 49152, LONG = 600000, N = 2 };
    kn_backend *be = cuda_open(NULL);
    ops_random r = {12};
    float *logits = malloc(N * LONG * sizeof *logits);
    int32_t *window = malloc(LONG * sizeof *window);
    kn_sample samples[N];
    kn_choice choices[N];
    assert_true(logits && window);
    make_logits(&r, logits, N * VOCAB, 0);
    for (int i = 0; i < N; i++)
        sample_describe(&sampling_cases[i ? 7 : 2], NULL, 0, (uint64_t)i, 7, i ? 5 : -1,
                        &samples[i]);
    float *device = ops_upload(be, logits, N * VOCAB);
    be->ops->sample(be, device, VOCAB, samples, N, choices);
    cuda_expect_good(be);
    for (int i = 0; i < N; i++)
        check_choice(&choices[i], &sampling_cases[i ? 7 : 2], logits + i * VOCAB, VOCAB, NULL, 0,
                     (uint64_t)i, samples[i].n_top);
    be->ops->buffer_free(be, device);
    for (int i = 0; i < N * LONG; i++)
        logits[i] = (float)(i % 1000);
    logits[4321] = 5000;
    logits[LONG + 1234] = 3000;
    for (int i = 0; i < LONG; i++)
        window[i] = i;
    device = ops_upload(be, logits, N * LONG);
    for (int i = 0; i < N; i++)
        samples[i] = (kn_sample){
            .repeat_penalty = i ? 2 : 10, .window = window, .n_window = LONG, .n_top = -1};
    be->ops->sample(be, device, LONG, samples, N, choices);
    cuda_expect_good(be);
    assert_int_equal(choices[0].token, 4321);
    assert_int_equal(choices[1].token, 1234);
    be->ops->buffer_free(be, device);
    free(logits);
    free(window);
    be->ops->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_rope),
        cmocka_unit_test(test_adapters),       cmocka_unit_test(test_adapter_turnover),
        cmocka_unit_test(test_sampling),       cmocka_unit_test(test_sampling_worthless),
        cmocka_unit_test(test_sampling_large),
    };
    return cmocka_run_group_tests_name("cuda_rows", tests, NULL, NULL);
}
