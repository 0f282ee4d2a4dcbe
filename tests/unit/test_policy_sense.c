/* Reinforcement learning by nothing but what the base model finds of an answer: how likely it is,
 * and how much likelier behind its own question. */
#include "support/engine_fixture.h"
#include "train/policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define ENDS 5 /* steps at both ends of a run that are compared */

typedef struct {
    double first, last;             /* mean losses under the base model */
    double first_about, last_about; /* mean policy_step.about */
    double first_ended, last_ended; /* mean policy_step.ended */
} account;

static double same_reward(void *ctx, size_t prompt, const char *answer, size_t len)
{
    (void)ctx;
    (void)prompt;
    (void)answer;
    (void)len;
    return 1;
}

static bool note_step(void *ctx, const policy_step *s)
{
    account *a = ctx;
    assert_true(isfinite(s->base_loss) && s->base_loss > 0);
    assert_true(fabs(s->reward - 1) < 1e-9);
    if (s->step <= ENDS) a->first += s->base_loss / ENDS, a->first_about += s->about / ENDS;
    if (s->step > s->n_steps - ENDS)
        a->last += s->base_loss / ENDS, a->last_about += s->about / ENDS;
    if (s->step <= ENDS) a->first_ended += s->ended / ENDS;
    if (s->step > s->n_steps - ENDS) a->last_ended += s->ended / ENDS;
    return true;
}

static account run_with(engine *e, int max_tokens, double cut_off, double sense, double about)
{
    const chat_message asks[] = {{ROLE_USER, "Tell me a word.", 15, NULL, 0},
                                 {ROLE_USER, "And a number?", 13, NULL, 0}};
    const policy_prompt prompts[] = {{&asks[0], 1}, {&asks[1], 1}};
    const policy_options o = {.shape = {.prefill_only = true, .rank = 4, .seed = 3},
                              .optimizer = optimizer_defaults(1e-2),
                              .grpo = {.low = 0.8, .high = 1.2},
                              .advantage = GRPO_CENTRED,
                              .prompts_per_step = 2,
                              .group = 12,
                              .max_tokens = max_tokens,
                              .updates = 1,
                              .cut_off = cut_off,
                              .temperature = 1,
                              .spread = GRPO_LEAST_SPREAD,
                              .sense = sense,
                              .about = about,
                              .steps = 30,
                              .seed = 5};
    account a = {0};
    const policy_caller caller = {.score = same_reward, .step = note_step, .ctx = &a};
    buf blob = {0};
    pf_err err = {0};
    if (policy_run(e, prompts, 2, &o, NULL, 0, &caller, &blob, &err) != PF_OK)
        fail_msg("%s", err.text);
    buf_free(&blob);
    return a;
}

static account run(engine *e, double sense, double about)
{
    return run_with(e, 4, 1, sense, about);
}

static account run_cut_off(engine *e, double cut_off)
{
    return run_with(e, 16, cut_off, 0, 0);
}

static void test_answers_become_likelier(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    account with = run(e, 1, 0), without = run(e, 0, 0);
    print_message("loss under the base model: %.3f, then %.3f; without the weight %.3f\n",
                  with.first, with.last, without.last);
    assert_true(with.last < with.first - 0.2);
    assert_true(with.last < without.last - 0.2);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* A short answer and a long one whose tokens are as likely count the same, however unlikely it is
 * that the short one ends. */
static void test_the_end_is_free(void **state)
{
    (void)state;
    const float said[] = {-1, -2, -1, -2, -1, -2}, stops[] = {-1, -2, -9}, silent[] = {-3};
    assert_true(fabs(grpo_sense(1, 0, said, 6, false) - exp(-1.5)) < 1e-12);
    assert_true(fabs(grpo_sense(0.5, 0, stops, 3, true) - exp(-0.75)) < 1e-12);
    assert_true(fabs(grpo_sense(1, 0, stops, 3, false) - exp(-4)) < 1e-12);
    assert_true(fabs(grpo_sense(1, 0, silent, 1, true) - exp(-3)) < 1e-12);
    assert_true(fabs(grpo_sense(2, 1, said, 6, false) - exp(-1)) < 1e-12); /* only what is above */
    assert_true(grpo_sense(2, 1.5, said, 6, false) == 1);
    assert_true(grpo_sense(1, 0, NULL, 0, false) == 1 && grpo_sense(0, 0, stops, 3, true) == 1);
}

/* A group that is almost of one mind counts as much as one of two without a spread, and little with
 * one. */
static void test_the_spread_damps(void **state)
{
    (void)state;
    const double alike[] = {0.90, 0.92, 0.90, 0.92}, apart[] = {0, 1, 0, 1};
    double little[4], much[4];
    grpo_advantages(GRPO_STD_POPULATION, 0, alike, 4, little);
    grpo_advantages(GRPO_STD_POPULATION, 0, apart, 4, much);
    assert_true(fabs(little[1] - 1) < 1e-9 && fabs(much[1] - 1) < 1e-9);
    grpo_advantages(GRPO_STD_POPULATION, 0.25, alike, 4, little);
    grpo_advantages(GRPO_STD_POPULATION, 0.25, apart, 4, much);
    assert_true(fabs(little[1] - 0.01 / 0.26) < 1e-9 && fabs(much[1] - 0.5 / 0.75) < 1e-9);
    grpo_advantages(GRPO_CENTRED, 0.25, apart, 4, much);
    assert_true(fabs(much[0] + 0.5) < 1e-9);
}

/* What is as likely behind another question earns nothing, what is far likelier behind its own all,
 * however long it is, and the end token has no say. */
static void test_answers_are_about_their_question(void **state)
{
    (void)state;
    const float own[] = {-1, -2, -0.5F}, same[] = {-1, -2, -9}, away[] = {-9, -20, -0.5F};
    assert_true(grpo_about(own, same, 3, true) == 0);
    assert_true(fabs(grpo_about(own, same, 3, false) - tanh(4.25)) < 1e-6);
    assert_true(grpo_about(own, away, 3, true) > 1 - 1e-9);
    assert_true(grpo_about(away, own, 3, true) == 0); /* likelier behind the other one */
    assert_true(grpo_about(own, same, 0, true) == 0);
}

/* With nothing but that to go by, answers come to tell their question from the other. */
static void test_answers_come_to_be_about_it(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    account with = run(e, 0, 1), without = run(e, 0, 0);
    print_message("about their questions: %.3f, then %.3f\n", with.first_about, with.last_about);
    assert_true(1 - with.last_about < (1 - with.first_about) / 2);
    assert_true(without.first_about == 0 && without.last_about == 0);
    fixture_engine_close(e);
    fixture_model_close(m);
}

static bool expect_without_effect(void *ctx, const policy_step *s)
{
    (void)ctx;
    assert_true(s->about == 0 && s->grad_norm > 0);
    return true;
}

static double length_reward(void *ctx, size_t prompt, const char *answer, size_t len)
{
    (void)ctx;
    (void)prompt;
    (void)answer;
    return (double)len;
}

/* A question that stands in the data twice is no other question: answers would be about neither. */
static void test_a_repeated_question_is_the_same(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    const chat_message ask = {ROLE_USER, "Tell me a word.", 15, NULL, 0};
    const policy_prompt prompts[] = {{&ask, 1}, {&ask, 1}};
    const policy_options o = {.shape = {.prefill_only = true, .rank = 4, .seed = 3},
                              .optimizer = optimizer_defaults(1e-2),
                              .grpo = {.low = 0.8, .high = 1.2},
                              .spread = GRPO_LEAST_SPREAD,
                              .prompts_per_step = 2,
                              .group = 4,
                              .max_tokens = 4,
                              .updates = 1,
                              .cut_off = 1,
                              .temperature = 1,
                              .about = 1,
                              .steps = 1,
                              .seed = 5};
    const policy_caller caller = {.score = length_reward, .step = expect_without_effect};
    buf blob = {0};
    pf_err err = {0};
    if (policy_run(e, prompts, 2, &o, NULL, 0, &caller, &blob, &err) != PF_OK)
        fail_msg("%s", err.text);
    buf_free(&blob);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* An answer that is cut off counts nothing, whatever the rules find in it: it comes to end. */
static void test_answers_come_to_end(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    const account with = run_cut_off(e, 0), without = run_cut_off(e, 1);
    print_message("ended: %.2f, then %.2f; where pieces count as much %.2f\n", with.first_ended,
                  with.last_ended, without.last_ended);
    assert_true(with.last_ended > with.first_ended + 0.1);
    assert_true(with.last_ended > without.last_ended + 0.1);
    fixture_engine_close(e);
    fixture_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers_become_likelier),
                                       cmocka_unit_test(test_the_end_is_free),
                                       cmocka_unit_test(test_the_spread_damps),
                                       cmocka_unit_test(test_answers_are_about_their_question),
                                       cmocka_unit_test(test_a_repeated_question_is_the_same),
                                       cmocka_unit_test(test_answers_come_to_end),
                                       cmocka_unit_test(test_answers_come_to_be_about_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
