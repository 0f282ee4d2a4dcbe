/* Gradients through whole models: of a tiny one against central differences; of the real, quantized
 * one the fast path against exact arithmetic (the plain reference computes with the dequantized
 * weights in float). The latter needs $PREFT_TEST_MODEL. */
#include "support/engine_fixture.h"
#include "train/dataset.h"
#include "train/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEAST_COSINE 0.999

static const char *const chats[][4] = {
    {"How do I boil an egg?", "Dear Robin,\nBoil it for eight minutes. Cool it in cold water.",
     "Is it easy for a beginner?", "It is easy to begin. The hard parts come later."},
    {"What is my dog called?", "Your dog is called Biscuit.", NULL, NULL},
};

/* What is computed on one instruction set. */
typedef struct {
    train_params params;
    float *grad; /* [params.count], host memory */
    double loss;
} gradients;

static void read_chats(const model *m, bool prefill_only, train_dataset *d)
{
    const train_dataset_options o = {.policy = prefill_only ? POSITIONS_TURNS : POSITIONS_ALL,
                                     .max_tokens = 256};
    pf_err err = {0};
    for (size_t i = 0; i < sizeof chats / sizeof chats[0]; i++) {
        chat_message messages[4];
        size_t n = 0;
        for (; n < 4 && chats[i][n]; n++)
            messages[n] = (chat_message){.role = n % 2 ? ROLE_ASSISTANT : ROLE_USER,
                                         .text = chats[i][n],
                                         .len = strlen(chats[i][n])};
        if (train_dataset_add(d, m, messages, NULL, n, &o, "chat", &err) != PF_OK)
            fail_msg("%s", err.text);
    }
}

/* A fresh adapter gives no gradient to half of its tensors: all values get some noise, of the size
 * that trained ones have. */
static void add_noise(train_params *p)
{
    float *value = calloc(p->count, sizeof *value);
    uint64_t state = 12345;
    p->be->ops->download(p->be, value, p->value, p->count * sizeof *value);
    for (size_t i = 0; i < p->count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[i] += 0.02f * ((float)(state >> 40) / (float)(1 << 23) - 1);
    }
    p->be->ops->upload(p->be, p->value, value, p->count * sizeof *value);
    free(value);
}

static void compute(const model *m, const char *isa, const train_shape *shape, gradients *out)
{
    char message[256];
    const kn_options options = {.device = "cpu", .isa = isa};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be) fail_msg("%s", message);
    packed_model *weights = NULL;
    train_pass *pass = NULL;
    train_dataset d = {0};
    train_sequence sequences[8];
    pf_err err = {0};
    size_t rows = 0, n = 0;
    read_chats(m, shape->prefill_only, &d);
    for (size_t i = 0; i < d.n; i++) {
        sequences[i] = train_example_sequence(&d.items[i]);
        rows += (size_t)d.items[i].length;
    }
    const train_pass_options pass_options = {.max_rows = rows, .activation_bytes = 64u << 20};
    if (packed_model_create(m, be, &weights, &err) != PF_OK ||
        train_params_create(be, model_get_config(m), shape, &out->params, &err) != PF_OK ||
        train_pass_open(weights, &pass_options, &pass, &err) != PF_OK)
        fail_msg("%s", err.text);
    add_noise(&out->params);
    double targets = (double)train_dataset_targets(&d, false);
    assert_int_equal(
        train_pass_begin(pass, &out->params, sequences, d.n, true, targets, NULL, NULL, &err),
        PF_OK);
    while (train_pass_advance(pass))
        ;
    const float *logp = train_pass_logp(pass, &n);
    for (size_t i = 0; i < n; i++)
        out->loss -= (double)logp[i] / targets;
    out->grad = calloc(out->params.count, sizeof *out->grad);
    be->ops->download(be, out->grad, out->params.grad, out->params.count * sizeof *out->grad);
    train_pass_close(pass);
    packed_model_free(weights);
    train_dataset_free(&d);
    /* The table of tensors is all that is needed from now on. */
    be->ops->buffer_free(be, out->params.value);
    be->ops->buffer_free(be, out->params.grad);
    be->ops->buffer_free(be, out->params.m);
    be->ops->buffer_free(be, out->params.v);
    be->ops->close(be);
}

static void free_gradients(gradients *g)
{
    free(g->params.items);
    free(g->grad);
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : aa == bb;
}

static void compare(const gradients *fast, const gradients *exact, const char *kind)
{
    double least = 1, sum = 0;
    char where[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < exact->params.n_items; i++) {
        const train_item *item = &exact->params.items[i];
        const struct {
            const char *name;
            size_t at, count;
        } tensors[] = {{"A", item->a, (size_t)item->rank * (size_t)item->in},
                       {"B", item->b, (size_t)item->rank * (size_t)item->out},
                       {"bias", item->bias, exact->params.direft ? (size_t)item->rank : 0}};
        for (size_t t = 0; t < 3; t++) {
            if (tensors[t].count == 0) continue;
            double c =
                cosine(fast->grad + tensors[t].at, exact->grad + tensors[t].at, tensors[t].count);
            sum += c;
            n++;
            if (c >= least) continue;
            least = c;
            snprintf(where, sizeof where, "layer %d, map %d, %s", item->layer, (int)item->map,
                     tensors[t].name);
        }
    }
    print_message("%s: loss %.4f, exact %.4f; cosine of gradients %.5f at least (%s), %.5f mean\n",
                  kind, fast->loss, exact->loss, least, where, sum / (double)n);
    assert_true(least >= LEAST_COSINE);
}

/* --- central differences ---------------------------------------------------------------------- */

typedef struct {
    kn_backend *be;
    packed_model *weights;
    train_pass *pass;
    train_params params;
    train_dataset data;
    float *value; /* [params.count], host memory */
} tiny;

/* Minus the sum of the targets' log-probabilities; their number in *n. */
static double tiny_loss(tiny *t, train_params *params, bool backward, const float **logp, size_t *n)
{
    train_sequence sequences[8];
    double sum = 0;
    for (size_t i = 0; i < t->data.n; i++)
        sequences[i] = train_example_sequence(&t->data.items[i]);
    assert_int_equal(
        train_pass_begin(t->pass, params, sequences, t->data.n, backward, 1, NULL, NULL, NULL),
        PF_OK);
    while (train_pass_advance(t->pass))
        ;
    *logp = train_pass_logp(t->pass, n);
    for (size_t i = 0; i < *n; i++)
        sum -= (double)(*logp)[i];
    return sum;
}

static double loss_at(tiny *t, size_t i, float change)
{
    const float *logp;
    size_t n;
    float kept = t->value[i];
    t->value[i] = kept + change;
    t->be->ops->upload(t->be, t->params.value, t->value, t->params.count * sizeof *t->value);
    double loss = tiny_loss(t, &t->params, false, &logp, &n);
    t->value[i] = kept;
    return loss;
}

/* 50 places of a tensor, 6 in the quick tier (which sanitizers slow down), in float32: to a
 * hundredth of its largest gradient. */
static void check_tensor(tiny *t, const float *grad, size_t at, size_t count, const char *name)
{
    const float h = 5e-3f;
    const size_t n_places = getenv("PREFT_TEST_MODEL") ? 50 : 6;
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)grad[at + i]));
    assert_true(largest > 0);
    for (size_t k = 0; k < n_places; k++) {
        size_t i = at + (k * 7919 + 13) % count;
        double slope = (loss_at(t, i, h) - loss_at(t, i, -h)) / (2 * (double)h);
        if (fabs(slope - (double)grad[i]) > 1e-2 * largest)
            fail_msg("%s, place %zu: %g instead of %g (largest %g)", name, i - at, (double)grad[i],
                     slope, largest);
    }
}

static void open_tiny(const model *m, const train_shape *shape, tiny *t)
{
    char message[256];
    const kn_options options = {.device = "cpu", .isa = "ref"};
    const train_pass_options pass = {.max_rows = 512, .activation_bytes = 64u << 20};
    pf_err err = {0};
    t->be = kn_backend_open(&options, message, sizeof message);
    assert_non_null(t->be);
    read_chats(m, shape->prefill_only, &t->data);
    if (packed_model_create(m, t->be, &t->weights, &err) != PF_OK ||
        train_params_create(t->be, model_get_config(m), shape, &t->params, &err) != PF_OK ||
        train_pass_open(t->weights, &pass, &t->pass, &err) != PF_OK)
        fail_msg("%s", err.text);
    t->value = calloc(t->params.count, sizeof *t->value);
}

static void close_tiny(tiny *t)
{
    train_pass_close(t->pass);
    train_params_free(&t->params);
    packed_model_free(t->weights);
    train_dataset_free(&t->data);
    t->be->ops->close(t->be);
    free(t->value);
    *t = (tiny){0};
}

/* A fresh adapter changes nothing, bit for bit; then every tensor of the middle layer. */
static void check_kind(const model *m, const train_shape *shape, const char *name)
{
    tiny t = {0};
    const float *logp;
    size_t n = 0;
    open_tiny(m, shape, &t);
    tiny_loss(&t, NULL, false, &logp, &n);
    float *base = calloc(n, sizeof *base);
    memcpy(base, logp, n * sizeof *base);
    tiny_loss(&t, &t.params, false, &logp, &n);
    assert_memory_equal(logp, base, n * sizeof *base);
    free(base);
    add_noise(&t.params);
    t.be->ops->download(t.be, t.value, t.params.value, t.params.count * sizeof *t.value);
    tiny_loss(&t, &t.params, true, &logp, &n);
    float *grad = calloc(t.params.count, sizeof *grad);
    t.be->ops->download(t.be, grad, t.params.grad, t.params.count * sizeof *grad);
    for (size_t i = 0; i < t.params.n_items; i++) {
        const train_item *item = &t.params.items[i];
        if (item->layer != 1) continue;
        check_tensor(&t, grad, item->a, (size_t)item->rank * (size_t)item->in, name);
        check_tensor(&t, grad, item->b, (size_t)item->rank * (size_t)item->out, name);
        if (t.params.direft) check_tensor(&t, grad, item->bias, (size_t)item->rank, name);
    }
    free(grad);
    close_tiny(&t);
}

/* Where no adapted row leads to a target, the last token's neither, all gradients are 0: answers'
 * positions, which a prefill-only adapter leaves alone, give it none. */
static void expect_no_gradient(const model *m, const train_shape *shape)
{
    tiny t = {0};
    const float *logp;
    size_t n = 0;
    open_tiny(m, shape, &t);
    add_noise(&t.params);
    for (size_t i = 0; i < t.data.n; i++) {
        train_example *e = &t.data.items[i];
        memset(e->adapted, 0, (size_t)e->length);
        e->adapted[e->length - 1] = 1;
    }
    tiny_loss(&t, &t.params, true, &logp, &n);
    assert_true(n > 0);
    t.be->ops->download(t.be, t.value, t.params.grad, t.params.count * sizeof *t.value);
    for (size_t i = 0; i < t.params.count; i++)
        assert_true(t.value[i] == 0);
    close_tiny(&t);
}

static void test_no_gradient_without_adapted_rows(void **state)
{
    (void)state;
    model *m = fixture_model("tests/data/models/tiny-llama/hf");
    for (int direft = 0; direft < 2; direft++)
        expect_no_gradient(
            m, &(train_shape){.direft = direft, .prefill_only = true, .rank = 2, .seed = 3});
    model_close(m);
}

static void test_central_differences(void **state)
{
    (void)state;
    model *m = fixture_model("tests/data/models/tiny-llama/hf");
    const train_shape lorap = {.prefill_only = true, .rank = 2, .seed = 3}, lora = {.rank = 2},
                      direftp = {.direft = true, .prefill_only = true, .rank = 2, .seed = 3};
    check_kind(m, &lorap, "lorap");
    check_kind(m, &lora, "lora");
    check_kind(m, &direftp, "direftp");
    model_close(m);
}

/* --- the real model ------------------------------------------------------------------------- */

static void test_real_model(void **state)
{
    (void)state;
    const char *path = getenv("PREFT_TEST_MODEL");
    if (!path) {
        print_message("skipped: PREFT_TEST_MODEL names no file\n");
        skip();
    }
    model *m = fixture_model(path);
    static const struct {
        const char *name;
        train_shape shape;
    } kinds[] = {
        {"lorap", {.prefill_only = true, .rank = 8, .seed = 3}},
        {"direftp", {.direft = true, .prefill_only = true, .rank = 16, .seed = 3}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        gradients exact = {0}, fast = {0};
        compute(m, "ref", &kinds[i].shape, &exact);
        compute(m, NULL, &kinds[i].shape, &fast);
        compare(&fast, &exact, kinds[i].name);
        free_gradients(&exact);
        free_gradients(&fast);
    }
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_no_gradient_without_adapted_rows),
        cmocka_unit_test(test_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
