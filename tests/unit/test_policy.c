/* Reinforcement learning with a tiny model: rewards rise, the same seed gives the same bytes, and
 * the engine answers as before when it is over. */
#include "models/adapter_blob.h"
#include "support/engine_fixture.h"
#include "train/policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    double first, last; /* mean rewards of the first and last three steps */
    int64_t steps, stop_after;
    double best; /* of the answers to what is kept aside */
    int64_t best_step;
    bool finite;
    double clipped, moved, kl; /* in the last step */
} account;

/* The share of capital letters: rare at first, and easy to learn. */
static double count_capitals(void *ctx, size_t prompt, const char *answer, size_t len)
{
    (void)ctx;
    (void)prompt;
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += answer[i] >= 'A' && answer[i] <= 'Z';
    return len ? (double)n / (double)len : 0;
}

static bool note_step(void *ctx, const policy_step *s)
{
    account *a = ctx;
    if (s->step <= 3) a->first += s->reward / 3;
    if (s->step > s->n_steps - 3) a->last += s->reward / 3;
    a->finite &= isfinite(s->loss) && isfinite(s->grad_norm) && s->kl >= 0 && s->tokens > 0;
    a->steps = s->step;
    a->clipped = s->clipped;
    a->moved = s->moved;
    a->kl = s->kl;
    if (s->step == 1 || s->check > a->best) {
        a->best = s->check;
        a->best_step = s->step;
    }
    return a->stop_after == 0 || s->step < a->stop_after;
}

static policy_options options_of(bool direft)
{
    policy_options o = {.shape = {.direft = direft, .prefill_only = true, .rank = 4, .seed = 3},
                        .optimizer = optimizer_defaults(1e-2),
                        .grpo = {.low = 0.8, .high = 1.2, .beta = 0.001},
                        .advantage = GRPO_STD,
                        .spread = GRPO_LEAST_SPREAD,
                        .prompts_per_step = 2,
                        .group = 12,
                        .max_tokens = 3,
                        .updates = 1,
                        .cut_off = 1,
                        .temperature = 1,
                        .steps = 25,
                        .seed = 9};
    return o;
}

static buf run(engine *e, const policy_options *o, account *a)
{
    static const char *const texts[] = {"Tell me a word.", "Something short, please.",
                                        "Go on.",          "And then?",
                                        "A letter?",       "Who?",
                                        "Why not?",        "Well."};
    enum { N = sizeof texts / sizeof texts[0] };
    chat_message asks[N];
    policy_prompt prompts[N];
    const policy_caller caller = {.score = count_capitals, .step = note_step, .ctx = a};
    const size_t n = o->check_prompts ? N : 3;
    buf blob = {0};
    pf_err err = {0};
    for (size_t i = 0; i < N; i++) {
        asks[i] = (chat_message){ROLE_USER, texts[i], strlen(texts[i]), NULL, 0};
        prompts[i] = (policy_prompt){&asks[i], 1};
    }
    a->finite = true;
    if (policy_run(e, prompts, n, o, NULL, 0, &caller, &blob, &err) != PF_OK)
        fail_msg("%s", err.text);
    return blob;
}

static void test_reward_rises(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    const engine_request request = {
        .text = "Tell me", .text_len = 7, .max_tokens = 12, .ignore_eos = true, .logprobs = 2};
    outcome before = {0}, after = {0};
    fixture_run(e, &request, 1, NULL, &before);
    for (int direft = 0; direft < 2; direft++) {
        policy_options o = options_of(direft);
        account a = {0};
        buf blob = run(e, &o, &a);
        assert_int_equal(a.steps, o.steps);
        assert_true(a.finite);
        assert_true(a.last > a.first + 0.08);
        adapter_view view;
        pf_err err = {0};
        assert_int_equal(adapter_view_open(blob.data, blob.len, model_get_config(m), &view, &err),
                         PF_OK);
        assert_true(view.prefill_only);
        adapter_view_close(&view);
        buf_free(&blob);
    }
    fixture_run(e, &request, 1, NULL, &after);
    outcome_expect_equal(&after, &before, "after the training");
    outcome_free(&before);
    outcome_free(&after);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* On any number of threads, and in an engine that has run another one before. */
static void test_same_bytes(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    for (int direft = 0; direft < 2; direft++) {
        policy_options o = options_of(direft);
        o.steps = 3;
        o.updates = 1 + direft;
        o.trust = 0.01;
        o.sense = 0.3;
        o.about = 0.5;
        buf blobs[3], again = {0};
        for (int i = 0; i < 3; i++) {
            engine *e = fixture_engine(m, &(engine_options){.threads = i + 1});
            account first = {0}, second = {0};
            if (i == 2) o.seed = 10;
            blobs[i] = run(e, &o, &first);
            if (i == 1) again = run(e, &o, &second);
            fixture_engine_close(e);
        }
        assert_int_equal(blobs[0].len, blobs[1].len);
        assert_memory_equal(blobs[0].data, blobs[1].data, blobs[0].len);
        assert_int_equal(blobs[0].len, again.len);
        assert_memory_equal(blobs[0].data, again.data, blobs[0].len);
        assert_memory_not_equal(blobs[0].data, blobs[2].data, blobs[0].len);
        for (int i = 0; i < 3; i++)
            buf_free(&blobs[i]);
        buf_free(&again);
    }
    fixture_model_close(m);
}

/* The result is the weights that answered what is kept aside best, not the last ones: those that a
 * training gets which ends there. */
static void test_the_best_weights_are_kept(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    policy_options o = options_of(false);
    account whole = {0}, shorter = {0}, stopped = {0};
    o.check_prompts = 2;
    o.max_tokens = 8;
    o.steps = 10;
    buf best = run(e, &o, &whole);
    print_message("best in step %d of %d\n", (int)whole.best_step, (int)o.steps);
    assert_in_range(whole.best_step, 2, o.steps - 1);
    stopped.stop_after = o.steps - 1;
    buf same = run(e, &o, &stopped);
    o.steps = whole.best_step;
    buf last = run(e, &o, &shorter);
    assert_int_equal(shorter.best_step, o.steps);
    assert_int_equal(best.len, last.len);
    assert_memory_equal(best.data, last.data, best.len);
    assert_memory_equal(best.data, same.data, best.len);
    o.steps--;
    buf before = run(e, &o, &shorter);
    assert_memory_not_equal(best.data, before.data, best.len);
    buf_free(&best);
    buf_free(&same);
    buf_free(&last);
    buf_free(&before);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* The first update is the same for any number of them; from the second on the surrogate clips, and
 * with bounds that nothing leaves it doesn't. */
static void test_updates(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    policy_options o = options_of(false);
    account one = {0}, narrow = {0}, wide = {0}, many = {0};
    o.steps = 1;
    buf first = run(e, &o, &one);
    assert_true(one.clipped == 0);
    o.updates = 3;
    o.grpo.low = o.grpo.high = 1;
    buf bounded = run(e, &o, &narrow);
    assert_true(narrow.clipped > 0.1);
    o.grpo.low = 0;
    o.grpo.high = 1e9;
    buf unbounded = run(e, &o, &wide);
    assert_true(wide.clipped == 0);
    assert_memory_not_equal(first.data, unbounded.data, first.len);
    assert_memory_not_equal(bounded.data, unbounded.data, first.len);
    o.grpo.low = 0.8;
    o.grpo.high = 1.2;
    o.steps = 10; /* as good as 25 with one update each */
    buf last = run(e, &o, &many);
    assert_true(many.finite && many.last > many.first + 0.08);
    buf_free(&first);
    buf_free(&bounded);
    buf_free(&unbounded);
    buf_free(&last);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* A step that goes further than it may is cut short; one that doesn't stays as it is. */
static void test_the_step_is_bounded(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    policy_options o = options_of(false);
    account plain = {0}, far = {0}, near = {0}, first = {0};
    o.optimizer.rate = 0.02;
    o.trust = 1e9;
    o.steps = 1;
    buf one = run(e, &o, &first);
    o.steps = 2; /* the second step's answers tell how far the first one went from the base */
    buf unbounded = run(e, &o, &far);
    o.trust = 0;
    buf same = run(e, &o, &plain);
    assert_true(plain.moved == 0 && first.moved > 0);
    assert_int_equal(same.len, unbounded.len);
    assert_memory_equal(same.data, unbounded.data, same.len);
    o.trust = first.moved / 16;
    buf bounded = run(e, &o, &near);
    print_message("the first step goes %.4f, and %.4f from the base; bounded %.4f\n", first.moved,
                  far.kl, near.kl);
    assert_true(near.kl > 0 && near.kl < far.kl / 4);
    buf_free(&one);
    buf_free(&unbounded);
    buf_free(&same);
    buf_free(&bounded);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* The first map's B of a lorap blob in bf16, rank after rank, as numbers; starts at 0. */
static void read_b(const buf *blob, const model *m, float *out, size_t n)
{
    adapter_view view;
    pf_err err = {0};
    if (adapter_view_open(blob->data, blob->len, model_get_config(m), &view, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_int_equal(view.type, KN_BF16);
    const uint16_t *b = view.items[0].b;
    for (size_t i = 0; i < n; i++)
        out[i] = kn_bf16_to_f32(b[i]);
    adapter_view_close(&view);
}

/* The result is the mean of the weights that the same steps lead to without it, older ones weighing
 * less; the way there is the same. */
static void test_the_mean_of_the_weights(void **state)
{
    (void)state;
    enum { STEPS = 3, N = 64 };
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    policy_options o = options_of(false);
    o.optimizer.rate = 0.02;
    float after[STEPS][N], mean[N];
    double reward = 0;
    for (int i = 0; i < STEPS; i++) {
        account a = {0};
        o.steps = i + 1;
        buf blob = run(e, &o, &a);
        read_b(&blob, m, after[i], N);
        buf_free(&blob);
        reward = a.last;
    }
    account a = {0};
    o.ema = 0.5;
    buf blob = run(e, &o, &a);
    read_b(&blob, m, mean, N);
    assert_true(a.last == reward);
    double far = 0;
    for (size_t i = 0; i < N; i++) {
        const double want = (4 * after[2][i] + 2 * after[1][i] + after[0][i]) / 7.0;
        assert_true(fabs(mean[i] - want) <= 1e-6 + 0.01 * fabs(after[2][i]) + 0.008 * fabs(want));
        far = fmax(far, fabs(mean[i] - after[2][i]));
    }
    print_message("the mean is up to %.4f from the last weights\n", far);
    assert_true(far > 0.005);
    buf_free(&blob);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* A mean of rotations is none: with that option it is made one again. */
static void test_the_mean_is_orthonormal(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    const size_t d = (size_t)model_get_config(m)->hidden;
    policy_options o = options_of(true);
    o.optimizer.orthonormal = true;
    o.optimizer.rate = 0.1;
    o.steps = 3;
    o.ema = 0.8;
    account a = {0};
    buf blob = run(e, &o, &a);
    adapter_view view;
    pf_err err = {0};
    if (adapter_view_open(blob.data, blob.len, model_get_config(m), &view, &err) != PF_OK)
        fail_msg("%s", err.text);
    for (size_t k = 0; k < view.n_items; k++) {
        const uint16_t *r = view.items[k].b;
        for (int i = 0; i < view.items[k].rank; i++) {
            double square = 0;
            for (size_t j = 0; j < d; j++) {
                const double x = (double)kn_bf16_to_f32(r[(size_t)i * d + j]);
                square += x * x;
            }
            assert_true(fabs(square - 1) < 0.02);
        }
    }
    adapter_view_close(&view);
    buf_free(&blob);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* What is kept aside is answered by the mean, and the best one is the result. */
static void test_the_best_mean_is_kept(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 2});
    policy_options o = options_of(false);
    o.check_prompts = 2;
    o.ema = 0.8;
    account whole = {0}, there = {0};
    buf best = run(e, &o, &whole);
    o.steps = whole.best_step;
    buf ended = run(e, &o, &there);
    assert_true(there.best == whole.best);
    assert_int_equal(best.len, ended.len);
    assert_memory_equal(best.data, ended.data, best.len);
    o.ema = 0;
    account newest = {0};
    buf other = run(e, &o, &newest);
    assert_memory_not_equal(best.data, other.data, best.len);
    buf_free(&best);
    buf_free(&ended);
    buf_free(&other);
    fixture_engine_close(e);
    fixture_model_close(m);
}

static void test_stops_and_refuses(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 1});
    policy_options o = options_of(false);
    account a = {.stop_after = 2};
    buf blob = run(e, &o, &a);
    assert_int_equal(a.steps, 2);
    assert_true(blob.len > 0);
    buf_free(&blob);
    pf_err err = {0};
    const policy_caller caller = {count_capitals, note_step, &a};
    assert_int_equal(policy_run(e, NULL, 0, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    const chat_message ask = {ROLE_USER, "Hi", 2, NULL, 0};
    const policy_prompt prompt = {&ask, 1};
    o.group = 1;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    assert_non_null(strstr(err.text, "two answers"));
    o.group = 2;
    o.updates = 0;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    o.updates = 1;
    o.trust = -1;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    o.trust = 0;
    o.ema = 1;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    o.ema = 0;
    o.cut_off = 2;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    o.cut_off = 1;
    o.about = 1.5;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    o.about = 0;
    o.spread = 0;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    assert_non_null(strstr(err.text, "spread"));
    o.sense = NAN;
    assert_int_equal(policy_run(e, &prompt, 1, &o, NULL, 0, &caller, &blob, &err), PF_USAGE);
    fixture_engine_close(e);
    fixture_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reward_rises),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_the_best_weights_are_kept),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_the_step_is_bounded),
        cmocka_unit_test(test_the_mean_of_the_weights),
        cmocka_unit_test(test_the_mean_is_orthonormal),
        cmocka_unit_test(test_the_best_mean_is_kept),
        cmocka_unit_test(test_stops_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
