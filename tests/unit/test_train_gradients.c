/* Gradients through the real, quantized model: the fast path against exact arithmetic (the plain
 * reference computes with the dequantized weights in float). Needs $PREFT_TEST_MODEL. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_real_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
