/* Sequences that begin alike share rows in a pass: losses and gradients are those of the repeated
 * form, every sequence in a pass of its own. */
#include "support/engine_fixture.h"
#include "train/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH 24
#define N      7
#define ROWS   128

/* Conversations over the same random tokens: which of them a sequence takes, where it leaves them
 * and what it learns. */
typedef struct {
    int32_t same, length; /* tokens in common with the first; of all */
    int32_t marks;        /* so many are adapted */
    int32_t target;       /* the first that is learned */
    int32_t shared;       /* rows that are computed already */
} beginning;

static const beginning beginnings[N] = {
    {LENGTH, LENGTH, 12, 12, 0},
    {12, LENGTH, 12, 12, 11}, /* another answer to the same prompt; its last token predicts */
    {12, 20, 12, 12, 11},
    {5, 18, 12, 9, 5},               /* another question */
    {LENGTH, LENGTH, 7, 12, 7},      /* the same tokens, fewer of them adapted */
    {LENGTH, 16, 12, 4, 3},          /* learns in the middle of what the first has too */
    {LENGTH, LENGTH, 12, LENGTH, 0}, /* nothing to learn: no rows */
};

typedef struct {
    int32_t ids[N][LENGTH];
    unsigned char adapted[N][LENGTH], target[N][LENGTH];
    train_sequence sequences[N];
} batch;

static void make_batch(batch *b, int32_t vocab)
{
    uint64_t state = 7;
    memset(b, 0, sizeof *b);
    for (int i = 0; i < N; i++) {
        const beginning *s = &beginnings[i];
        for (int32_t t = 0; t < s->length; t++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            b->ids[i][t] = t < s->same && i > 0 ? b->ids[0][t] : (int32_t)((state >> 33) % 97);
            if (i > 0 && t == s->same) b->ids[i][t] = (b->ids[0][t] + i) % vocab;
            b->adapted[i][t] = t < s->marks;
            b->target[i][t] = t >= s->target;
        }
        b->sequences[i] = (train_sequence){.ids = b->ids[i],
                                           .adapted = b->adapted[i],
                                           .target = b->target[i],
                                           .length = s->length};
    }
}

typedef struct {
    kn_backend *be;
    packed_model *weights;
    train_pass *pass;
    train_params params;
} training;

static void open_training(training *t, const model *m, const kn_options *options,
                          const train_shape *shape)
{
    const train_pass_options pass = {.max_rows = ROWS, .activation_bytes = 1 << 20};
    char message[256];
    pf_err err = {0};
    t->be = kn_backend_open(options, message, sizeof message);
    if (!t->be) fail_msg("%s", message);
    if (packed_model_create(m, t->be, &t->weights, &err) != PF_OK ||
        train_params_create(t->be, model_get_config(m), shape, &t->params, &err) != PF_OK ||
        train_pass_open(t->weights, &pass, &t->pass, &err) != PF_OK)
        fail_msg("%s", err.text);
    float *value = calloc(t->params.count, sizeof *value);
    uint64_t state = 12345;
    t->be->ops->download(t->be, value, t->params.value, t->params.count * sizeof *value);
    for (size_t i = 0; i < t->params.count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[i] += 0.05f * ((float)(state >> 40) / (float)(1 << 23) - 1);
    }
    t->be->ops->upload(t->be, t->params.value, value, t->params.count * sizeof *value);
    free(value);
}

static void close_training(training *t)
{
    train_pass_close(t->pass);
    train_params_free(&t->params);
    packed_model_free(t->weights);
    t->be->ops->close(t->be);
}

/* Adds the gradients of n sequences; their log-probabilities to logp. Returns how many. */
static size_t run(training *t, const train_sequence *sequences, size_t n, row_count *count,
                  float *logp)
{
    size_t targets = 0;
    pf_err err = {0};
    if (train_pass_begin(t->pass, &t->params, sequences, n, true, 10, NULL, NULL, &err) != PF_OK)
        fail_msg("%s", err.text);
    train_pass_count(t->pass, count);
    while (train_pass_advance(t->pass))
        ;
    const float *got = train_pass_logp(t->pass, &targets);
    memcpy(logp, got, targets * sizeof *logp);
    return targets;
}

/* The gradients so far, which begin anew. */
static float *take_gradients(training *t)
{
    float *grad = calloc(t->params.count, sizeof *grad);
    t->be->ops->download(t->be, grad, t->params.grad, t->params.count * sizeof *grad);
    kn_train_ops_of(t->be)->clear(t->be, t->params.grad, t->params.count);
    return grad;
}

static void expect_close(const float *a, const float *b, size_t n, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    assert_true(largest > 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * largest))
            fail_msg("%zu: %g instead of %g (largest %g)", i, (double)a[i], (double)b[i], largest);
}

static void check_kind(const model *m, const char *isa, const train_shape *shape)
{
    const kn_options options = {.device = "cpu", .isa = isa, .threads = 1};
    float together[N * LENGTH], apart[N * LENGTH];
    size_t n = 0, n_apart = 0;
    row_count count, one;
    training t = {0};
    batch b;
    make_batch(&b, model_get_config(m)->vocab);
    open_training(&t, m, &options, shape);
    n = run(&t, b.sequences, N, &count, together);
    float *shared = take_gradients(&t);
    size_t tokens = 0, rows = 0;
    for (int i = 0; i < N; i++) {
        n_apart += run(&t, &b.sequences[i], 1, &one, apart + n_apart);
        /* the last token is a target, from which nothing is predicted */
        bool learns = beginnings[i].target < beginnings[i].length;
        assert_int_equal(one.rows, learns ? beginnings[i].length - 1 : 0);
        tokens += one.tokens;
        rows += one.rows - (size_t)beginnings[i].shared;
    }
    assert_int_equal(count.tokens, tokens);
    assert_int_equal(count.rows, rows);
    float *repeated = take_gradients(&t);
    assert_int_equal(n, n_apart);
    expect_close(together, apart, n, 1e-5);
    expect_close(shared, repeated, t.params.count, 2e-5);
    free(shared);
    free(repeated);
    close_training(&t);
}

static void test_same_gradients(void **state)
{
    (void)state;
    static const train_shape shapes[] = {
        {.prefill_only = true, .rank = 3, .seed = 3},
        {.direft = true, .prefill_only = true, .rank = 3, .seed = 3},
    };
    model *m = fixture_model("tests/data/models/tiny-llama/hf");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_kind(m, "ref", &shapes[i]);
        check_kind(m, NULL, &shapes[i]);
    }
    model_close(m);
}

/* The same bytes on any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    const train_shape shape = {.prefill_only = true, .rank = 3, .seed = 3};
    model *m = fixture_model("tests/data/models/tiny-llama/hf");
    float *grad[2], logp[N * LENGTH];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        const kn_options options = {.device = "cpu", .threads = 1 + 2 * i};
        training t = {0};
        row_count count;
        batch b;
        make_batch(&b, model_get_config(m)->vocab);
        open_training(&t, m, &options, &shape);
        run(&t, b.sequences, N, &count, logp);
        grad[i] = take_gradients(&t);
        bytes = t.params.count * sizeof *grad[i];
        close_training(&t);
    }
    assert_memory_equal(grad[0], grad[1], bytes);
    free(grad[0]);
    free(grad[1]);
    model_close(m);
}

/* A batch takes what it computes, and a bounded number of copies. */
static void test_count(void **state)
{
    (void)state;
    const int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const unsigned char marks[8] = {0}, target[8] = {0, 0, 0, 0, 0, 0, 1, 1};
    train_sequence s[32];
    row_count count = {0};
    size_t n = 0;
    for (; n < 32; n++) {
        s[n] = (train_sequence){.ids = ids, .adapted = marks, .target = target, .length = 8};
        if (!row_count_add(&count, s, n, 16)) break;
    }
    assert_int_equal(n, 5); /* 7 rows, then 2 each */
    assert_int_equal(count.rows, 15);
    for (; n < 32; n++) { /* without targets: no row at all, but tokens */
        s[n] = (train_sequence){.ids = ids, .adapted = marks, .target = marks, .length = 8};
        if (!row_count_add(&count, s, n, 15)) break;
    }
    assert_int_equal(n, 7);
    assert_int_equal(count.rows, 15);
    assert_int_equal(count.tokens, 56);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_gradients),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
