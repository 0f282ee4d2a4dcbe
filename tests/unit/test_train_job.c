/* Training jobs and data sets with a tiny model: the same bytes every time, chatting goes on, and
 * whatever breaks leaves something sound. */
#include "base/mem.h"
#include "engine/runtime.h"
#include "models/adapter_blob.h"
#include "support/engine_fixture.h"
#include "support/memory.h"
#include "support/sanitizer.h"
#include "train/data/replay.h"
#include "train/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define F32_MODEL "tests/data/models/tiny-llama/hf"

static model *tiny;

static int setup(void **state)
{
    (void)state;
    tiny = fixture_model(TINY_MODEL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_model_close(tiny);
    return 0;
}

static const train_dataset_options data_options = {.policy = POSITIONS_TURNS, .max_tokens = 256};

/* n conversations of one or two turns. */
static void fill_data(train_dataset *d, const model *m, int n)
{
    for (int i = 0; i < n; i++) {
        char ask[64], answer[64], label[32];
        snprintf(ask, sizeof ask, "What is number %d called?", i);
        snprintf(answer, sizeof answer, "It is called the %dth one.", i);
        snprintf(label, sizeof label, "conversation %d", i);
        const chat_message messages[] = {{ROLE_USER, ask, strlen(ask), NULL, 0},
                                         {ROLE_ASSISTANT, answer, strlen(answer), NULL, 0},
                                         {ROLE_USER, "And then?", 9, NULL, 0},
                                         {ROLE_ASSISTANT, "Then the next.", 14, NULL, 0}};
        pf_err err = {0};
        if (train_dataset_add(d, m, messages, NULL, i % 2 ? 2 : 4, &data_options, label, &err) !=
            PF_OK)
            fail_msg("%s", err.text);
    }
}

static train_job_options job_options(bool direft)
{
    train_job_options o = {.shape = {.direft = direft, .prefill_only = true, .rank = 4, .seed = 11},
                           .optimizer = optimizer_defaults(1e-2),
                           .epochs = 2,
                           .batch = 3,
                           .seed = 11};
    o.optimizer.schedule = RATE_COSINE;
    return o;
}

static train_progress wait_for_end(train_job *j)
{
    train_progress p;
    do {
        train_job_wait(j, 1000);
        train_job_get(j, &p);
    } while (p.state == TRAIN_RUNNING || p.state == TRAIN_PAUSED);
    return p;
}

static train_job *start_job(engine *e, const train_job_options *o, int n, const buf *checkpoint)
{
    train_dataset d = {0};
    train_job *j = NULL;
    pf_err err = {0};
    fill_data(&d, engine_model(e), n);
    if (train_job_start(e, &d, o, NULL, 0, checkpoint ? checkpoint->data : NULL,
                        checkpoint ? checkpoint->len : 0, &j, &err) != PF_OK)
        fail_msg("%s", err.text);
    return j;
}

/* The blob of a job that ends well; frees it. */
static buf finish(train_job *j, train_progress *progress)
{
    buf blob = {0};
    pf_err err = {0};
    train_progress p = wait_for_end(j);
    if (p.state != TRAIN_DONE) fail_msg("the job ended as %d: %s", (int)p.state, p.message);
    if (train_job_result(j, &blob, &err) != PF_OK) fail_msg("%s", err.text);
    if (progress) *progress = p;
    train_job_free(j);
    return blob;
}

static buf train(engine *e, const train_job_options *o, train_progress *progress)
{
    return finish(start_job(e, o, 10, NULL), progress);
}

static void expect_same(const buf *a, const buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void test_same_bytes(void **state)
{
    (void)state;
    const engine_options one = {.threads = 1}, three = {.threads = 3};
    for (int direft = 0; direft < 2; direft++) {
        train_job_options o = job_options(direft);
        train_progress p;
        engine *e = fixture_engine(tiny, &one);
        buf first = train(e, &o, &p), again = train(e, &o, NULL);
        assert_true(p.train_after < p.train_before);
        assert_true(fabs(p.train_served - p.train_after) < 0.05);
        assert_int_equal(p.step, p.n_steps);
        fixture_engine_close(e);
        e = fixture_engine(tiny, &three);
        buf threads = train(e, &o, NULL);
        o.seed = 12;
        buf other = train(e, &o, NULL);
        fixture_engine_close(e);
        expect_same(&again, &first);
        expect_same(&threads, &first);
        assert_memory_not_equal(other.data, first.data, first.len);
        adapter_view view;
        pf_err err = {0};
        assert_int_equal(
            adapter_view_open(first.data, first.len, model_get_config(tiny), &view, &err), PF_OK);
        assert_true(view.prefill_only && view.direft == (direft == 1));
        adapter_view_close(&view);
        buf_free(&first);
        buf_free(&again);
        buf_free(&threads);
        buf_free(&other);
    }
}

static void test_resume(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 2});
    train_job_options o = job_options(false);
    buf whole = train(e, &o, NULL), checkpoint = {0}, rest;
    int64_t step = 0;
    o.checkpoint_steps = 3;
    train_job *j = start_job(e, &o, 10, NULL);
    while (!train_job_take_checkpoint(j, &checkpoint, &step))
        train_job_wait(j, 100);
    train_job_cancel(j);
    train_progress p = wait_for_end(j);
    assert_true(p.state == TRAIN_CANCELLED || p.state == TRAIN_DONE);
    train_job_free(j);
    assert_true(step > 0 && step <= 3);
    o.checkpoint_steps = 0;
    rest = finish(start_job(e, &o, 10, &checkpoint), NULL);
    expect_same(&rest, &whole);
    checkpoint.len -= 5; /* a cut checkpoint is refused, not read */
    j = start_job(e, &o, 10, &checkpoint);
    p = wait_for_end(j);
    assert_int_equal(p.state, TRAIN_FAILED);
    assert_non_null(strstr(p.message, "checkpoint"));
    train_job_free(j);
    buf_free(&whole);
    buf_free(&rest);
    buf_free(&checkpoint);
    fixture_engine_close(e);
}

static void test_pause_and_cancel(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 1});
    train_job_options o = job_options(false);
    o.epochs = 200;
    train_job *j = start_job(e, &o, 10, NULL);
    train_progress p;
    train_job_pause(j, true);
    do {
        train_job_wait(j, 100);
        train_job_get(j, &p);
    } while (p.state != TRAIN_PAUSED);
    int64_t step = p.step;
    train_job_wait(j, 50);
    train_job_get(j, &p);
    assert_int_equal(p.step, step);
    train_job_pause(j, false);
    do {
        train_job_wait(j, 100);
        train_job_get(j, &p);
    } while (p.step <= step && p.state == TRAIN_RUNNING);
    train_job_cancel(j);
    p = wait_for_end(j);
    assert_int_equal(p.state, TRAIN_CANCELLED);
    buf blob = {0};
    assert_int_not_equal(train_job_result(j, &blob, NULL), PF_OK);
    train_job_free(j);
    fixture_engine_close(e);
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident;
}

/* Nothing of a training stays behind in the process: A, B, A again; answers of the base model. */
static void test_nothing_stays_behind(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 2});
    train_job_options a = job_options(false), b = job_options(true);
    b.seed = b.shape.seed = 6;
    const engine_request request = {
        .text = "Tell me", .text_len = 7, .max_tokens = 16, .ignore_eos = true, .logprobs = 2};
    outcome before = {0}, between = {0}, after = {0};
    fixture_run(e, &request, 1, NULL, &before);
    buf first = train(e, &a, NULL);
    long pages = resident_pages();
    buf other = train(e, &b, NULL);
    fixture_run(e, &request, 1, NULL, &between);
    buf third = train(e, &a, NULL);
    fixture_run(e, &request, 1, NULL, &after);
    expect_same(&third, &first);
    outcome_expect_equal(&between, &before, "between trainings");
    outcome_expect_equal(&after, &before, "after trainings");
    if (MEMORY_IS_SEARCHABLE) assert_in_range(resident_pages(), 0, pages + pages / 20);
    outcome_free(&before);
    outcome_free(&between);
    outcome_free(&after);
    buf_free(&first);
    buf_free(&other);
    buf_free(&third);
    fixture_engine_close(e);
}

/* Answers are the same while a job runs, and the job's result is the same while people chat. */
static void test_chat_goes_on(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 2});
    train_job_options o = job_options(false);
    o.epochs = 4;
    buf quiet = train(e, &o, NULL), busy;
    const engine_request request = {
        .text = "Tell me", .text_len = 7, .max_tokens = 24, .ignore_eos = true, .logprobs = 2};
    outcome before = {0}, during = {0};
    fixture_run(e, &request, 1, NULL, &before);
    train_job *j = start_job(e, &o, 10, NULL);
    fixture_run(e, &request, 1, NULL, &during);
    outcome_expect_equal(&during, &before, "while training");
    busy = finish(j, NULL);
    expect_same(&busy, &quiet);
    outcome_free(&before);
    outcome_free(&during);
    buf_free(&quiet);
    buf_free(&busy);
    fixture_engine_close(e);
}

/* What a job that stopped has kept is finite: the view refuses anything else. */
static void expect_sound(train_job *j)
{
    adapter_view view;
    buf blob = {0};
    pf_err err = {0};
    assert_int_equal(train_job_result(j, &blob, &err), PF_OK);
    assert_int_equal(adapter_view_open(blob.data, blob.len, model_get_config(tiny), &view, &err),
                     PF_OK);
    adapter_view_close(&view);
    buf_free(&blob);
}

static void test_divergence(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 2});
    train_job_options o = job_options(false);
    o.optimizer.rate = 1e20; /* at 1000 this model's loss still falls */
    o.optimizer.schedule = RATE_CONSTANT;
    o.epochs = 50;
    train_job *j = start_job(e, &o, 10, NULL);
    train_progress p = wait_for_end(j);
    assert_true(p.state == TRAIN_STOPPED || p.state == TRAIN_FAILED);
    assert_non_null(strstr(p.message, "step"));
    if (p.state == TRAIN_STOPPED) expect_sound(j);
    train_job_free(j);
    fixture_engine_close(e);
}

/* --- an activation that is not a number ----------------------------------------------------- */

static struct {
    const kn_backend_ops *real;
    _Atomic(train_job *) job; /* NULL: nothing is planted */
    int64_t step;             /* from this one on */
} planted;

static void plant(kn_backend *be, const float *gate, const float *up, int n, int d, float *y)
{
    train_job *j = atomic_load(&planted.job);
    train_progress p = {0};
    planted.real->swiglu(be, gate, up, n, d, y);
    if (j) train_job_get(j, &p);
    if (j && p.step >= planted.step) y[0] = NAN;
}

/* Before anything was learned nothing comes of it; later the best state so far does. */
static void test_planted_nan(void **state)
{
    (void)state;
    static const int64_t steps[] = {0, 20};
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 2});
    kn_backend_ops ops = *e->be->ops;
    train_job_options o = job_options(false);
    planted.real = e->be->ops;
    ops.swiglu = plant;
    o.epochs = 50;
    for (int i = 0; i < 2; i++) {
        planted.step = steps[i];
        e->be->ops = &ops;
        train_job *j = start_job(e, &o, 10, NULL);
        atomic_store(&planted.job, j);
        train_progress p = wait_for_end(j);
        atomic_store(&planted.job, NULL);
        assert_non_null(strstr(p.message, "is not finite (step "));
        assert_true(p.step >= steps[i] && p.step < p.n_steps);
        if (p.step < 8) { /* too few losses to know a best one */
            assert_int_equal(p.state, TRAIN_FAILED);
            assert_int_not_equal(train_job_result(j, &(buf){0}, NULL), PF_OK);
        } else {
            assert_int_equal(p.state, TRAIN_STOPPED);
            expect_sound(j);
        }
        train_job_free(j); /* waits for the engine's thread */
        e->be->ops = planted.real;
    }
    fixture_engine_close(e);
}

/* Freeing ends a job that runs; too little data never starts. */
static void test_ends(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 1});
    train_job_options o = job_options(true);
    train_dataset d = {0};
    train_job *j = NULL;
    pf_err err = {0};
    fill_data(&d, tiny, 3);
    assert_int_equal(train_job_start(e, &d, &o, NULL, 0, NULL, 0, &j, &err), PF_USAGE);
    assert_non_null(strstr(err.text, "at least"));
    assert_null(j);
    train_dataset_free(&d);
    o.epochs = 1000;
    j = start_job(e, &o, 10, NULL);
    train_job_wait(j, 50);
    train_job_free(j); /* while it runs */
    fixture_engine_close(e);
}

/* --- data ----------------------------------------------------------------------------------- */

/* A pass that can't be computed ends its training, not the process in which others chat. */
static void test_impossible_pass(void **state)
{
    (void)state;
    model *m = fixture_model(F32_MODEL);
    engine *e = fixture_engine(m, NULL);
    train_dataset d = {0};
    train_job_options o = job_options(false);
    train_job *j = NULL;
    pf_err err = {0};
    fill_data(&d, m, 6);
    d.items[3].ids[1] = model_get_config(m)->vocab;
    assert_int_equal(train_job_start(e, &d, &o, NULL, 0, NULL, 0, &j, &err), PF_OK);
    train_progress p = wait_for_end(j);
    assert_int_equal(p.state, TRAIN_FAILED);
    assert_non_null(strstr(p.message, "vocabulary"));
    train_job_free(j);
    train_job *next = start_job(e, &o, 6, NULL);
    assert_int_equal(wait_for_end(next).state, TRAIN_DONE);
    train_job_free(next);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* Nothing of the examples is left in memory after a training, neither text nor ids. */
static void test_nothing_is_remembered(void **state)
{
    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip();
    enum { IDS = 8 };
    model *m = fixture_model(F32_MODEL);
    engine *e = fixture_engine(m, NULL);
    train_dataset d = {0};
    train_job_options o = job_options(false);
    train_job *j = NULL;
    pf_err err = {0};
    char secret[] = "Uid!e`v!tonnuiber"; /* not there as it is: each letter is changed by one bit */
    int32_t ids[IDS];
    for (size_t i = 0; i + 1 < sizeof secret; i++)
        secret[i] ^= 1;
    for (int i = 0; i < 6; i++) {
        const chat_message messages[] = {{ROLE_USER, secret, strlen(secret), NULL, 0},
                                         {ROLE_ASSISTANT, secret, strlen(secret), NULL, 0}};
        assert_int_equal(train_dataset_add(&d, m, messages, NULL, 2, &data_options, "x", &err),
                         PF_OK);
    }
    assert_true(d.items[0].length > IDS + 6);
    memcpy(ids, d.items[0].ids + 6, sizeof ids);
    o.checkpoint_steps = 1;
    assert_true(memory_count(secret, strlen(secret)) > 0 && memory_count(ids, sizeof ids) > 0);
    assert_int_equal(train_job_start(e, &d, &o, NULL, 0, NULL, 0, &j, &err), PF_OK);
    train_job_wait(j, 1000);
    train_job_free(j);
    assert_int_equal(memory_count(secret, strlen(secret)), 0);
    assert_int_equal(memory_count(ids, sizeof ids), 0);
    fixture_engine_close(e);
    fixture_model_close(m);
}

static void test_targets_and_cuts(void **state)
{
    (void)state;
    model *m = fixture_model(F32_MODEL);
    train_dataset d = {0};
    pf_err err = {0};
    const chat_message messages[] = {
        {ROLE_SYSTEM, "Be brief.", 9, NULL, 0},  {ROLE_USER, "One?", 4, NULL, 0},
        {ROLE_ASSISTANT, "First.", 6, NULL, 0},  {ROLE_USER, "Two?", 4, NULL, 0},
        {ROLE_ASSISTANT, "Second.", 7, NULL, 0},
    };
    const unsigned char second_only[] = {0, 0, 0, 0, 1};
    train_dataset_options o = data_options;
    assert_int_equal(train_dataset_add(&d, m, messages, NULL, 5, &o, "both", &err), PF_OK);
    assert_int_equal(train_dataset_add(&d, m, messages, second_only, 5, &o, "one", &err), PF_OK);
    assert_int_equal(d.n, 2);
    const train_example first = d.items[0], second = d.items[1], *both = &first, *one = &second;
    assert_int_equal(both->length, one->length);
    assert_true(one->n_targets < both->n_targets);
    for (int32_t i = 0; i < both->length; i++) {
        assert_false(both->target[i] && both->adapted[i]); /* answers are plain under turns */
        assert_true(both->target[i] || both->adapted[i] == 1);
        if (one->target[i]) assert_true(both->target[i]);
    }
    assert_true(both->target[both->length - 1]); /* nothing follows the last target */
    /* Too long: cut at the turn border into two, each with the system text. */
    o.max_tokens = (size_t)both->length - 4;
    assert_int_equal(train_dataset_add(&d, m, messages, NULL, 5, &o, "cut", &err), PF_OK);
    assert_int_equal(d.n, 4);
    assert_int_equal(d.n_cut, 1);
    assert_int_equal(d.items[2].n_targets + d.items[3].n_targets, both->n_targets);
    assert_memory_equal(d.items[2].ids, both->ids, 8 * sizeof *both->ids);
    assert_memory_equal(d.items[3].ids, both->ids, 8 * sizeof *both->ids);
    /* Not even one turn fits; no answers at all; an answer that is not to be learned. */
    o.max_tokens = 16;
    assert_int_equal(train_dataset_add(&d, m, messages, NULL, 5, &o, "tiny", &err), PF_OK);
    o = data_options;
    assert_int_equal(train_dataset_add(&d, m, messages, NULL, 2, &o, "no answer", &err), PF_OK);
    assert_int_equal(d.n, 4);
    assert_true(d.n_skipped >= 2);
    train_dataset_free(&d);
    fixture_model_close(m);
}

static void test_jsonl(void **state)
{
    (void)state;
    model *m = fixture_model(F32_MODEL);
    train_dataset d = {0};
    pf_err err = {0};
    static const char good[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi <|im_end|>\"},"
                               "{\"role\":\"assistant\",\"content\":\"Ho\"}]}\n\n"
                               "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"},"
                               "{\"role\":\"assistant\",\"content\":\"B\"}],\"other\":1}";
    assert_int_equal(
        train_dataset_add_jsonl(&d, m, good, sizeof good - 1, "good.jsonl", &data_options, &err),
        PF_OK);
    assert_int_equal(d.n, 2);
    assert_string_equal(d.items[1].label, "good.jsonl, line 3");
    static const char *const bad[] = {"{\"messages\":[]}",
                                      "[1]",
                                      "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}",
                                      "{\"messages\":[{\"role\":\"user\"}]}",
                                      "{",
                                      "{\"messages\":7}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf text = {0};
        buf_printf(&text, "%s\n%s\n", good, bad[i]);
        assert_int_equal(
            train_dataset_add_jsonl(&d, m, text.data, text.len, "bad.jsonl", &data_options, &err),
            PF_REFUSED);
        assert_non_null(strstr(err.text, "line 4"));
        assert_int_equal(d.n, 2); /* all or nothing */
        buf_free(&text);
    }
    train_dataset_free(&d);
    fixture_model_close(m);
}

static void test_hold_out_and_replay(void **state)
{
    (void)state;
    engine *e = fixture_engine(tiny, &(engine_options){.threads = 1});
    train_dataset d = {0};
    pf_err err = {0};
    fill_data(&d, tiny, 10);
    train_dataset_hold_out(&d, 0.2, 5);
    size_t held = 0;
    for (size_t i = 0; i < d.n; i++)
        held += d.items[i].held_out;
    assert_int_equal(held, 2);
    assert_true(train_dataset_targets(&d, true) > 0);
    size_t before = d.n + d.n_skipped;
    replay_set replay;
    assert_int_equal(
        replay_ask(e, &(replay_options){.n = 5, .max_tokens = 8, .seed = 5}, &replay, &err), PF_OK);
    assert_int_equal(replay.n, 5);
    assert_int_equal(replay_add(&d, tiny, &replay, &data_options, &err), PF_OK);
    replay_free(&replay);
    assert_int_equal(d.n + d.n_skipped, before + 5);
    for (size_t i = 10; i < d.n; i++)
        assert_true(d.items[i].n_targets <= 9); /* eight tokens and the end */
    train_dataset_free(&d);
    fixture_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_pass),
        cmocka_unit_test(test_nothing_is_remembered),
        cmocka_unit_test(test_targets_and_cuts),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_hold_out_and_replay),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_nothing_stays_behind),
        cmocka_unit_test(test_pause_and_cancel),
        cmocka_unit_test(test_chat_goes_on),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_planted_nan),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
