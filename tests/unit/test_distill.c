/* Distilling a text: the teacher's states, the same targets without the text, what training on them
 * does, and that they survive a checkpoint. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/architecture.h"
#include "support/engine_fixture.h"
#include "train/data/distill.h"
#include "train/dataset_bytes.h"
#include "train/eval/evaluate.h"
#include "train/job.h"

#define TINY "tests/data/models/tiny-llama/tiny-llama-q8_0.gguf"

static model *m;
static engine *e;
static const train_dataset_options data_options = {.policy = POSITIONS_TURNS, .max_tokens = 512};

static int setup(void **state)
{
    (void)state;
    m = fixture_model(TINY);
    e = fixture_engine(m, &(engine_options){.threads = 2, .context = 512});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_engine_close(e);
    fixture_model_close(m);
    return 0;
}

static void fill(train_dataset *d, const char *text)
{
    pf_err err = {0};
    wording_list own = {0};
    size_t asked = 0, refused = 0;
    (void)wording_list_add(&own, "What do I have for lunch?");
    const distill_options o = {.text = text, .asked = &own, .seed = 3};
    if (distill_add(d, e, &o, &data_options, &asked, &refused, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_true(asked >= 60);
    assert_int_equal(d->n + refused, asked);
    wording_list_free(&own);
}

static double loss_of(const train_dataset *d)
{
    pf_err err = {0};
    eval_loss total;
    assert_int_equal(evaluate_loss(e, d, NULL, 0, NULL, NULL, &total, NULL, &err), PF_OK);
    assert_int_equal(total.n_targets, train_dataset_targets(d, false));
    return total.loss;
}

/* A model is its own teacher: nothing is left to learn. With another text there is. */
static void test_divergence(void **state)
{
    (void)state;
    pf_err err = {0};
    train_dataset d = {0};
    fill(&d, "Answer like a pirate.");
    assert_true(d.n > 50);
    double other = loss_of(&d);
    assert_true(other > 1e-4);
    float **states = calloc(d.n, sizeof *states);
    assert_int_equal(evaluate_states(e, &d, NULL, NULL, states, &err), PF_OK);
    for (size_t i = 0; i < d.n; i++) {
        assert_int_equal(d.items[i].width, model_get_config(m)->hidden);
        free(d.items[i].teacher);
        d.items[i].teacher = states[i];
    }
    assert_true(fabs(loss_of(&d)) < 1e-6);
    free(states);
    train_dataset_free(&d);
}

/* Every question is a conversation of its own: some of them can be kept aside. */
static void test_held_out(void **state)
{
    (void)state;
    train_dataset d = {0};
    size_t held = 0;
    fill(&d, "Answer like a pirate.");
    train_dataset_hold_out(&d, 0.25, 1);
    for (size_t i = 0; i < d.n; i++)
        held += d.items[i].held_out;
    assert_int_equal(held, (size_t)(0.25 * (double)d.n + 0.5));
    train_dataset_free(&d);
}

/* Facts in the text are asked for, and answers without their words refused: this model of random
 * weights knows none. */
static void test_facts_in_the_text(void **state)
{
    (void)state;
    pf_err err = {0};
    train_dataset d = {0};
    size_t asked = 0, refused = 0;
    const distill_options o = {.text = "The user's dog is called Biscuit. The user lives in Ghent.",
                               .seed = 3};
    assert_int_equal(distill_add(&d, e, &o, &data_options, &asked, &refused, &err), PF_OK);
    assert_true(refused >= 30); /* sixteen questions for each fact; empty answers too */
    assert_true(asked >= refused + d.n);
    train_dataset_free(&d);
}

static void test_training(void **state)
{
    (void)state;
    pf_err err = {0};
    train_dataset d = {0};
    train_job *job = NULL;
    fill(&d, "Answer like a pirate.");
    train_job_options o = {.shape = {.prefill_only = true, .rank = 4, .seed = 1},
                           .optimizer = optimizer_defaults(5e-3),
                           .epochs = 2,
                           .batch = 8,
                           .seed = 1};
    assert_int_equal(train_job_start(e, &d, &o, NULL, 0, NULL, 0, &job, &err), PF_OK);
    train_progress p;
    do {
        train_job_wait(job, 1000);
        train_job_get(job, &p);
    } while (p.state == TRAIN_RUNNING);
    assert_int_equal(p.state, TRAIN_DONE);
    print_message("divergence %.4f before, %.4f after\n", p.train_before, p.train_after);
    assert_true(p.train_after < 0.9 * p.train_before);
    train_job_free(job);
}

static void test_bytes(void **state)
{
    (void)state;
    pf_err err = {0};
    train_dataset d = {0}, copy = {0};
    buf bytes = {0};
    const int32_t vocab = model_get_config(m)->vocab;
    fill(&d, "Answer like a pirate.");
    train_dataset_write(&d, &bytes);
    assert_int_equal(train_dataset_read(bytes.data, bytes.len, vocab, &copy, &err), PF_OK);
    assert_int_equal(copy.n, d.n);
    for (size_t i = 0; i < d.n; i++) {
        assert_int_equal(copy.items[i].width, d.items[i].width);
        assert_memory_equal(copy.items[i].teacher, d.items[i].teacher,
                            (size_t)d.items[i].n_targets * d.items[i].width * sizeof(float));
    }
    train_dataset_free(&copy);
    for (size_t cut = 0; cut < bytes.len; cut += 1 + bytes.len / 97)
        assert_int_equal(train_dataset_read(bytes.data, cut, vocab, &copy, &err), PF_REFUSED);
    buf_free(&bytes);
    train_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_facts_in_the_text),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
