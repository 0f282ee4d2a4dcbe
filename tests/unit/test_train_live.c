/* Trainings of signed-in people inside a running engine, with a tiny model and a store: what is
 * planned, saved, published, gone back from, broken off and gone on with. */
#include "base/mem.h"
#include "engine/runtime.h"
#include "profiles/internal.h"
#include "profiles/notes.h"
#include "profiles/secret.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/tiny_adapter.h"
#include "train/dataset_bytes.h"
#include "train/live/live.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sqlite3.h>

#define N_CHATS 8

typedef struct {
    store_fixture st;
    session *mira;
    model *m;
    engine *e;
    int64_t profile, chats[N_CHATS];
} fixture;

static int64_t add_chat(session *s, int64_t profile, int number, int rating)
{
    char ask[64], answer[64];
    int64_t id = 0;
    pf_err err = {0};
    snprintf(ask, sizeof ask, "What is number %d called?", number);
    snprintf(answer, sizeof answer, "It is called the %dth secret.", number);
    assert_int_equal(conversation_create(s, profile, "chat", &id, &err), PF_OK);
    fixture_message(s, id, HISTORY_USER, ask);
    int64_t message = fixture_message(s, id, HISTORY_ASSISTANT, answer);
    if (rating) assert_int_equal(message_rate(s, id, message, rating, NULL, &err), PF_OK);
    return id;
}

static void open_fixture(fixture *f)
{
    fixture_open(&f->st);
    f->mira = fixture_user(&f->st, "mira", "a passphrase of mira");
    f->m = fixture_model(TINY_MODEL);
    f->e = fixture_engine(f->m, &(engine_options){.threads = 2, .context = 256});
    assert_ok(&f->st, profile_create(f->mira, "learned", NULL, &f->profile, &f->st.err));
    for (int i = 0; i < N_CHATS; i++)
        f->chats[i] = add_chat(f->mira, f->profile, i, i % 2 ? 1 : i == 0 ? -1 : 0);
}

static void close_fixture(fixture *f)
{
    fixture_engine_close(f->e);
    fixture_model_close(f->m);
    session_unref(f->mira);
    fixture_close(&f->st);
}

static train_request request_of(const fixture *f)
{
    return (train_request){.profile = f->profile,
                           .rank = 2,
                           .rate = 1e-2,
                           .epochs = 3,
                           .batch = 2,
                           .seed = 7,
                           .sample_questions = 2};
}

static live_status wait_over(train_live *l)
{
    live_status s;
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
    } while (!live_phase_over(s.phase));
    return s;
}

static train_live *start(fixture *f, const train_request *r)
{
    train_live *l = NULL;
    assert_ok(&f->st, train_live_start(f->mira, f->e, r, &l, &f->st.err));
    return l;
}

/* The blob of the profile's current version. */
static buf current_blob(fixture *f)
{
    buf blob = {0};
    assert_ok(&f->st, profile_read_adapter(f->mira, f->profile, 0, &blob, &f->st.err));
    return blob;
}

static void test_plan(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    train_plan p;
    assert_ok(&f.st, train_live_plan(f.mira, f.e, &r, &p, &f.st.err));
    assert_int_equal(p.n_examples, N_CHATS - 1); /* the first one was rated bad */
    assert_true(p.enough && p.n_learned > 0 && p.n_learned < p.n_tokens);
    assert_int_equal(p.n_steps, 12); /* 3 epochs of 7 in twos */
    assert_string_equal(p.examples[0].question, "What is number 1 called?");
    assert_string_equal(p.examples[0].answer, "It is called the 1th secret.");
    assert_false(p.goes_on);
    train_plan_free(&p);
    r.from = LEARN_GOOD;
    assert_ok(&f.st, train_live_plan(f.mira, f.e, &r, &p, &f.st.err));
    assert_int_equal(p.n_examples, N_CHATS / 2);
    train_plan_free(&p);
    r.from = LEARN_ALL;
    r.conversations = f.chats + 1;
    r.n_conversations = 2;
    assert_ok(&f.st, train_live_plan(f.mira, f.e, &r, &p, &f.st.err));
    assert_int_equal(p.n_examples, 2);
    assert_false(p.enough);
    assert_text(p.hint, "at least 4");
    train_plan_free(&p);
    /* With a text to distill the questions are what there is to learn from. */
    r.distill = "You are a pirate. Say arr.";
    assert_ok(&f.st, train_live_plan(f.mira, f.e, &r, &p, &f.st.err));
    assert_true(p.enough);
    assert_string_equal(p.hint, "");
    assert_int_equal(p.n_examples, 0);
    assert_int_equal(p.added.n_distilled, 64);
    assert_int_equal(p.n_steps, 3 * 32);
    assert_true(isnan(p.seconds));
    train_plan_free(&p);
    r.held_out = 0.25;
    assert_ok(&f.st, train_live_plan(f.mira, f.e, &r, &p, &f.st.err));
    assert_int_equal(p.n_steps, 3 * 24);
    train_plan_free(&p);
    r.held_out = 0;
    r.distill = NULL;
    /* The same is found too late by a start, and told. */
    train_live *l = start(&f, &r);
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_int_equal(s.status, PF_USAGE);
    assert_text(s.message, "at least 4");
    train_live_close(l);
    close_fixture(&f);
}

static void test_done_published_and_back(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    train_live *l = start(&f, &r), *second = NULL;
    assert_status(&f.st, train_live_start(f.mira, f.e, &r, &second, &f.st.err), PF_USAGE);
    struct pollfd poll_for = {.fd = train_live_fd(l), .events = POLLIN};
    assert_int_equal(poll(&poll_for, 1, 20000), 1);
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_DONE);
    assert_int_equal(s.version, 1);
    assert_int_equal(s.former_version, 0);
    assert_int_equal(s.step, 12);
    assert_true(s.loss_after < s.loss_before && isfinite(s.loss_served));
    float losses[20];
    assert_int_equal(train_live_losses(l, 0, 20, losses), 12);
    assert_int_equal(s.n_samples, 2);
    train_sample sample;
    train_live_sample(l, 0, &sample);
    assert_text(sample.question, "What is number");
    assert_true(sample.before && sample.after && strcmp(sample.before, sample.after) != 0);
    train_sample_free(&sample);

    /* A prompt that was submitted before stays on the old weights, the next one gets the new. */
    adapter_id id = 0;
    outcome plain = {0}, trained = {0}, later = {0}, running = {0};
    engine_request ask = {
        .text = "Tell me", .text_len = 7, .max_tokens = 40, .ignore_eos = true, .logprobs = 1};
    fixture_run(f.e, &ask, 1, NULL, &plain);
    assert_ok(&f.st, train_live_publish(f.mira, f.e, f.profile, &id, &f.st.err));
    assert_true(id != 0);
    ask.adapter = id;
    fixture_run(f.e, &ask, 1, NULL, &trained);
    train_live_close(l);
    r.epochs = 6;
    r.fresh = true;
    r.seed = 8;
    l = start(&f, &r);
    s = wait_over(l);
    assert_int_equal(s.version, 2);
    assert_int_equal(s.former_version, 1);
    engine_client *client = engine_client_open(f.e);
    ask.tag = &running;
    fixture_submit(client, &ask, &running);
    assert_ok(&f.st, train_live_publish(f.mira, f.e, f.profile, &id, &f.st.err));
    fixture_collect(client, &running, 1, 0);
    outcome_expect_equal(&running, &trained, "a prompt from before the new version");
    fixture_run(f.e, &ask, 1, NULL, &later);
    assert_true(later.logprobs[0] != trained.logprobs[0]);
    /* Back to version 1. */
    outcome back = {0};
    assert_ok(&f.st, train_live_go_back(l, &f.st.err));
    assert_ok(&f.st, train_live_publish(f.mira, f.e, f.profile, &id, &f.st.err));
    fixture_run(f.e, &ask, 1, NULL, &back);
    outcome_expect_equal(&back, &trained, "back to the former version");
    profile_version_list versions = {0};
    assert_ok(&f.st, profile_versions_load(f.mira, f.profile, &versions, &f.st.err));
    assert_int_equal(versions.n, 2);
    assert_text(versions.items[0].training, "\"losses\":[");
    assert_text(versions.items[0].provenance, "\"conversations\":[");
    profile_version_list_free(&versions);
    engine_client_close(client);
    outcome_free(&plain);
    outcome_free(&trained);
    outcome_free(&later);
    outcome_free(&running);
    outcome_free(&back);
    train_live_close(l);
    close_fixture(&f);
}

/* Waits until the training is at a step of its own. */
static void wait_step(train_live *l, int64_t step)
{
    live_status s;
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
    } while (s.step < step && !live_phase_over(s.phase));
    assert_false(live_phase_over(s.phase));
}

static void test_broken_off_and_resumed(void **state)
{
    (void)state;
    fixture f = {0};
    live_unfinished_list list = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    r.epochs = 60;
    r.held_out = 0.3;
    train_live *l = start(&f, &r);
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_DONE);
    buf whole = current_blob(&f), again = {0};
    train_live_close(l);
    r.fresh = true;
    l = start(&f, &r);
    wait_step(l, 7);
    train_live_close(l); /* as at sign-out */
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0].name, "learned");
    assert_true(list.items[0].step >= 7 && list.items[0].n_steps == s.n_steps);
    live_unfinished_list_free(&list);
    /* With other settings than it was started with: refused. What became of the chats since then is
     * no matter. */
    train_live *resumed = NULL;
    r.rank = 3;
    assert_status(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &resumed, &f.st.err),
                  PF_REFUSED);
    r.rank = 2;
    add_chat(f.mira, f.profile, 77, 1);
    assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &resumed, &f.st.err));
    live_status end = wait_over(resumed);
    assert_int_equal(end.phase, LIVE_DONE);
    assert_true(end.resumed_step >= 7);
    assert_int_equal(end.n_losses, s.n_losses);
    again = current_blob(&f);
    assert_int_equal(again.len, whole.len);
    assert_memory_equal(again.data, whole.data, whole.len);
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 0);
    train_live_close(resumed);
    wipe_buf(&whole);
    wipe_buf(&again);
    assert_int_equal(fixture_find_bytes(&f.st, "secret", 6), 0);
    close_fixture(&f);
}

/* Breaks a training off once it has two checkpoints. Returns their steps. */
static void break_off(fixture *f, const train_request *r, int64_t steps[2])
{
    checkpoint_list list = {0};
    train_live *l = start(f, r);
    wait_step(l, 6);
    train_live_close(l);
    assert_ok(&f->st, checkpoint_list_load(f->mira, f->profile, &list, &f->st.err));
    assert_int_equal(list.n, 2);
    for (int i = 0; i < 2; i++)
        steps[i] = list.items[i].step;
    assert_true(steps[0] > 0 && steps[0] <= steps[1]);
    checkpoint_list_free(&list);
}

/* A damaged newest checkpoint: it is gone on from the one before, to the same result, and told. All
 * damaged: told, and they can still be thrown away. */
static void test_damaged_checkpoint(void **state)
{
    (void)state;
    static const struct {
        const char *sql; /* what becomes of the newest */
        bool step_known;
    } cases[] = {
        {"UPDATE chunk SET body = zeroblob(length(body)) WHERE owner = (SELECT max(id) FROM blob) "
         "AND number = 0",
         true},
        {"DELETE FROM chunk WHERE owner = (SELECT max(id) FROM blob)", true},
        {"UPDATE checkpoint SET body = zeroblob(length(body)) "
         "WHERE id = (SELECT max(id) FROM checkpoint)",
         false},
        {"DELETE FROM checkpoint WHERE id = (SELECT max(id) FROM checkpoint)", false},
    };
    fixture f = {0};
    live_unfinished_list list = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    r.epochs = 30;
    r.checkpoint_steps = 2;
    r.fresh = true;
    int64_t steps[2];
    train_live *l = start(&f, &r);
    assert_int_equal(wait_over(l).phase, LIVE_DONE);
    train_live_close(l);
    buf whole = current_blob(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf words = {0}, again = {0};
        live_status s;
        break_off(&f, &r, steps);
        fixture_sql(&f.st, cases[i].sql);
        assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &l, &f.st.err));
        train_live_get(l, &s);
        assert_int_equal(s.resumed_step, steps[0]);
        assert_int_equal(s.lost_step, cases[i].step_known ? steps[1] : -1);
        live_lost_words(&s, &words);
        assert_text(buf_str(&words), "damaged");
        /* the first and the last of them to the end */
        const bool to_the_end = i % 3 == 0;
        if (!to_the_end) train_live_cancel(l);
        s = wait_over(l);
        assert_int_equal(s.phase, to_the_end ? LIVE_DONE : LIVE_CANCELLED);
        assert_string_equal(s.checkpoint_problem, "");
        train_live_close(l);
        again = current_blob(&f);
        assert_int_equal(again.len, whole.len);
        assert_memory_equal(again.data, whole.data, whole.len);
        buf_free(&words);
        wipe_buf(&again);
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM checkpoint"), 0);
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM blob"), 2 + (i == 3));
    }
    break_off(&f, &r, steps);
    fixture_sql(&f.st, "UPDATE checkpoint SET body = zeroblob(length(body))");
    assert_status(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &l, &f.st.err), PF_DAMAGED);
    assert_ok(&f.st, train_live_discard(f.mira, f.profile, &f.st.err));
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 0);
    assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM blob"), 3);
    wipe_buf(&whole);
    close_fixture(&f);
}

static void test_cancelled_and_discarded(void **state)
{
    (void)state;
    fixture f = {0};
    live_unfinished_list list = {0};
    checkpoint_list checkpoints = {0};
    profile_info info = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    r.epochs = 2000;
    r.checkpoint_steps = 2;
    train_live *l = start(&f, &r);
    wait_step(l, 6);
    train_live_pause(l, true);
    live_status s;
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
    } while (s.phase != LIVE_PAUSED);
    train_live_cancel(l);
    s = wait_over(l);
    assert_int_equal(s.phase, LIVE_CANCELLED);
    train_live_close(l);
    assert_ok(&f.st, checkpoint_list_load(f.mira, f.profile, &checkpoints, &f.st.err));
    assert_int_equal(checkpoints.n, 0);
    assert_ok(&f.st, profile_get(f.mira, f.profile, &info, &f.st.err));
    assert_int_equal(info.n_versions, 0);
    profile_info_free(&info);
    /* Broken off, and then a conversation that it learned from goes: it is not gone on with. */
    l = start(&f, &r);
    wait_step(l, 3);
    train_live_close(l);
    assert_ok(&f.st, conversation_remove(f.mira, f.chats[3], &f.st.err));
    if (train_live_resume(f.mira, f.e, f.profile, NULL, &l, &f.st.err) == PF_OK) {
        s = wait_over(l);
        assert_int_equal(s.phase, LIVE_FAILED);
        assert_text(s.message, "deleted");
        train_live_close(l);
    }
    assert_ok(&f.st, train_live_discard(f.mira, f.profile, &f.st.err));
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 0);
    close_fixture(&f);
}

/* --- a profile that a training makes -------------------------------------------------------- */

static bool exists(fixture *f, const char *name)
{
    profile_info info = {0};
    bool found = profile_find(f->mira, name, &info, NULL) == PF_OK;
    profile_info_free(&info);
    return found;
}

static train_request request_of_new(fixture *f)
{
    train_request r = request_of(f);
    r.profile = 0;
    r.new_profile = "made";
    r.epochs = 2000;
    r.checkpoint_steps = 2;
    return r;
}

static live_status cancelled(train_live *l)
{
    train_live_cancel(l);
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_CANCELLED);
    train_live_close(l);
    return s;
}

/* Cancelled, it is gone again; unless it has been used meanwhile, in whatever way. */
static void test_made_and_cancelled(void **state)
{
    (void)state;
    enum { NOTHING, TALKED, NOTED, SET, RENAMED, WAYS };
    fixture f = {0};
    open_fixture(&f);
    const train_request r = request_of_new(&f);
    for (int way = NOTHING; way < WAYS; way++) {
        const note_info fact = {.text = (char[]){"My dog is called Biscuit"},
                                .state = NOTE_CONFIRMED};
        note_info note = fact;
        int64_t id = 0;
        train_live *l = start(&f, &r);
        wait_step(l, 3);
        live_status s;
        train_live_get(l, &s);
        assert_int_equal(s.made, LIVE_MADE);
        note.profile = s.profile;
        if (way == TALKED)
            assert_ok(&f.st, conversation_create(f.mira, s.profile, "t", &id, &f.st.err));
        if (way == NOTED) assert_ok(&f.st, note_add(f.mira, &note, NULL, &f.st.err));
        if (way == SET)
            assert_ok(&f.st,
                      profile_set_settings(f.mira, s.profile, "{\"system\":\"x\"}", &f.st.err));
        if (way == RENAMED) assert_ok(&f.st, profile_rename(f.mira, s.profile, "mine", &f.st.err));
        s = cancelled(l);
        assert_int_equal(s.made, way == NOTHING ? LIVE_MADE_GONE : LIVE_MADE_USED);
        assert_int_equal(exists(&f, "made"), way != NOTHING && way != RENAMED);
        assert_int_equal(exists(&f, "mine"), way == RENAMED);
        if (way != NOTHING) assert_ok(&f.st, profile_remove(f.mira, s.profile, &f.st.err));
    }
    close_fixture(&f);
}

/* Broken off, it can be gone on with, also before the first step, and one learns of a later
 * cancelling that it was made for the training. */
static void test_made_and_broken_off(void **state)
{
    (void)state;
    fixture f = {0};
    profile_info info = {0};
    open_fixture(&f);
    train_request r = request_of_new(&f);
    train_live *l = start(&f, &r);
    wait_step(l, 3);
    train_live_close(l);
    assert_ok(&f.st, profile_find(f.mira, "made", &info, &f.st.err));
    assert_ok(&f.st, train_live_resume(f.mira, f.e, info.id, NULL, &l, &f.st.err));
    wait_step(l, 5);
    live_status s = cancelled(l);
    assert_int_equal(s.made, LIVE_MADE_GONE);
    assert_false(exists(&f, "made"));
    profile_info_free(&info);
    live_unfinished_list list = {0};
    r.checkpoint_steps = -1; /* the beginning is known all the same */
    l = start(&f, &r);
    train_live_pause(l, true);
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
    } while (s.made == LIVE_NOT_MADE);
    train_live_close(l);
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0].name, "made");
    assert_true(list.items[0].n_steps >= 2000);
    assert_ok(&f.st, train_live_resume(f.mira, f.e, list.items[0].profile, NULL, &l, &f.st.err));
    live_unfinished_list_free(&list);
    wait_step(l, 2);
    s = cancelled(l);
    assert_int_equal(s.made, LIVE_MADE_GONE);
    assert_false(exists(&f, "made"));
    close_fixture(&f);
}

/* A file, a profile that is made, no profile at all. */
static void test_files(void **state)
{
    (void)state;
    fixture f = {0};
    profile_info info = {0};
    buf blob = {0};
    open_fixture(&f);
    char *path = xasprintf("%s/chats.jsonl", f.st.folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 6; i++)
        fprintf(file,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Q%d?\"},"
                "{\"role\":\"assistant\",\"content\":\"A%d.\"}]}\n",
                i, i);
    fclose(file);
    const char *const files[] = {path};
    train_request r = request_of(&f);
    r.profile = 0;
    r.files = files;
    r.n_files = 1;
    train_live *l = NULL;
    assert_ok(&f.st, train_live_start(NULL, f.e, &r, &l, &f.st.err));
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_DONE);
    assert_int_equal(s.version, 0);
    assert_ok(&f.st, train_live_result(l, &blob, &f.st.err));
    assert_true(blob.len > 0);
    train_live_close(l);
    r.new_profile = "made";
    l = start(&f, &r);
    s = wait_over(l);
    assert_int_equal(s.phase, LIVE_DONE);
    train_live_close(l);
    assert_ok(&f.st, profile_find(f.mira, "made", &info, &f.st.err));
    assert_int_equal(info.id, s.profile);
    assert_text(info.current.provenance, "\"files\":[\"chats.jsonl\"]");
    profile_info_free(&info);
    wipe_buf(&blob);
    free(path);
    close_fixture(&f);
}

/* A data set as bytes: whole or refused. */
static void test_bytes(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    const train_dataset_options options = {.policy = POSITIONS_TURNS, .max_tokens = 256};
    const chat_message messages[] = {{ROLE_USER, "Ask?", 4, NULL, 0},
                                     {ROLE_ASSISTANT, "Say.", 4, NULL, 0}};
    train_dataset d = {0}, back = {0};
    pf_err err = {0};
    buf bytes = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(train_dataset_add(&d, m, messages, NULL, 2, &options, "chat", &err),
                         PF_OK);
    d.items[1].held_out = true;
    d.items[2].repeat = 5;
    train_dataset_write(&d, &bytes);
    int32_t vocab = model_get_config(m)->vocab;
    assert_int_equal(train_dataset_read(bytes.data, bytes.len, vocab, &back, &err), PF_OK);
    assert_int_equal(back.n, 3);
    assert_true(back.items[1].held_out && back.items[2].repeat == 5);
    assert_memory_equal(back.items[2].ids, d.items[2].ids,
                        (size_t)d.items[2].length * sizeof *d.items[2].ids);
    assert_string_equal(back.items[0].question, "Ask?");
    train_dataset_free(&back);
    for (size_t len = 0; len < bytes.len; len++) /* every cut */
        assert_int_equal(train_dataset_read(bytes.data, len, vocab, &back, &err), PF_REFUSED);
    for (size_t i = 0; i < bytes.len; i++) { /* every byte changed: no crash, no id out of range */
        bytes.data[i] ^= 0x55;
        if (train_dataset_read(bytes.data, bytes.len, vocab, &back, &err) == PF_OK)
            for (size_t e = 0; e < back.n; e++)
                for (int32_t t = 0; t < back.items[e].length; t++)
                    assert_in_range(back.items[e].ids[t], 0, vocab - 1);
        train_dataset_free(&back);
        bytes.data[i] ^= 0x55;
    }
    train_dataset_free(&d);
    buf_free(&bytes);
    fixture_model_close(m);
}

/* What a training asks the model holds texts of the person: none of it stays in memory when the
 * engine forgets the person. */
static void test_forgotten(void **state)
{
    (void)state;
    fixture f = {0};
    engine_stats stats;
    open_fixture(&f);
    fixture_message(f.mira, f.chats[1], HISTORY_USER,
                    "I work as a baker. My dog is called Biscuit.");
    const char *const texts[] = {"You are a pirate called Mira.", NULL};
    for (int i = 0; i < 2; i++) {
        train_request r = request_of(&f);
        r.steps = 1;
        r.distill = texts[i];
        r.replay = 3;
        r.facts = LEARN_FOUND_FACTS;
        train_live *l = start(&f, &r);
        live_status s = wait_over(l);
        if (s.phase != LIVE_DONE && s.phase != LIVE_STOPPED) fail_msg("%s", s.message);
        assert_true(texts[i] ? s.added.n_distilled > 0 : s.added.n_pairs + s.added.n_replayed > 0);
        train_live_close(l);
        engine_get_stats(f.e, &stats);
        assert_true(stats.kv_tokens_cached > 0);
        engine_forget_user(f.e, session_engine_user(f.mira));
        engine_get_stats(f.e, &stats);
        assert_int_equal(stats.kv_tokens_used + stats.kv_tokens_cached, 0);
    }
    close_fixture(&f);
}

/* Other people's adapters fill the memory: the questions can't be asked with the profile's, and the
 * training goes on without their answers. */
static void test_no_room_for_questions(void **state)
{
    (void)state;
    fixture f = {0};
    buf blob = {0};
    adapter_id id = 0;
    open_fixture(&f);
    train_request r = request_of(&f);
    train_live *l = start(&f, &r);
    assert_int_equal(wait_over(l).phase, LIVE_DONE);
    train_live_close(l);
    fixture_engine_close(f.e);
    f.e = fixture_engine(f.m, &(engine_options){.threads = 2, .context = 256, .adapter_slots = 1});
    tiny_adapter(model_get_config(f.m), false, true, 1, 1, &blob);
    assert_ok(&f.st, engine_adapter_add(f.e, blob.data, blob.len, NULL, &id, NULL, &f.st.err));
    r.seed = 8;
    l = start(&f, &r);
    live_status s = wait_over(l);
    if (s.phase != LIVE_DONE && s.phase != LIVE_STOPPED) fail_msg("%s", s.message);
    assert_true(s.went_on);
    train_live_close(l);
    buf_free(&blob);
    close_fixture(&f);
}

/* --- a machine that fails ------------------------------------------------------------------- */

static struct {
    kn_backend_ops ops;
    const kn_backend_ops *real;
    atomic_bool lost, full; /* the device; its memory */
} failing;

static bool still_good(kn_backend *be)
{
    (void)be;
    return !atomic_load(&failing.lost);
}

static bool recover(kn_backend *be)
{
    (void)be;
    return true;
}

static void *alloc_unless_full(kn_backend *be, size_t bytes)
{
    return atomic_load(&failing.full) ? NULL : failing.real->buffer_alloc(be, bytes);
}

static void make_failing(kn_backend *be)
{
    failing.real = be->ops;
    failing.ops = *be->ops;
    failing.ops.good = still_good;
    failing.ops.recover = recover;
    failing.ops.buffer_alloc = alloc_unless_full;
    be->ops = &failing.ops;
}

/* A training that goes on for long, with a first checkpoint. */
static train_live *start_to_checkpoint(fixture *f, train_request *r, int64_t every)
{
    r->epochs = 5000;
    r->checkpoint_steps = every;
    train_live *l = start(f, r);
    live_status s;
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
    } while (s.checkpoint_step == 0);
    return l;
}

/* A lost device and a lack of memory cost nothing but the steps since the last checkpoint. */
static void test_machine_fails(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    make_failing(f.e->be);
    train_request r = request_of(&f);
    train_live *l = start_to_checkpoint(&f, &r, 4);
    live_status s;
    atomic_store(&failing.lost, true);
    s = wait_over(l);
    train_live_close(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_text(s.message, "the device failed");
    assert_text(s.message, "resumed from step");
    atomic_store(&failing.lost, false);

    atomic_store(&failing.full, true);
    assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &l, &f.st.err));
    s = wait_over(l);
    train_live_close(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_text(s.message, "no room");
    atomic_store(&failing.full, false);

    assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &l, &f.st.err));
    train_live_get(l, &s);
    assert_true(s.resumed_step > 0);
    wait_step(l, s.resumed_step + 3);
    train_live_close(l);
    close_fixture(&f);
}

/* A training that fails takes the profile that it made along, unless it can be gone on with. */
static void test_made_and_failed(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    make_failing(f.e->be);
    train_request r = request_of_new(&f);
    atomic_store(&failing.full, true);
    train_live *l = start(&f, &r);
    live_status s = wait_over(l);
    train_live_close(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_true(s.profile > 0);
    assert_int_equal(s.made, LIVE_MADE_GONE);
    assert_false(exists(&f, "made"));
    atomic_store(&failing.full, false);

    l = start_to_checkpoint(&f, &r, 4);
    atomic_store(&failing.lost, true);
    s = wait_over(l);
    train_live_close(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_int_equal(s.made, LIVE_MADE);
    assert_true(exists(&f, "made"));
    atomic_store(&failing.lost, false);
    close_fixture(&f);
}

/* Cancelled as soon as it is in a phase: the profile is as it was, or it was too late and the new
 * version is whole. */
static void test_cancelled_in_every_phase(void **state)
{
    (void)state;
    static const live_phase phases[] = {LIVE_PREPARING, LIVE_TRAINING, LIVE_SAVING, LIVE_ASKING};
    fixture f = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    int64_t versions = 0;
    r.checkpoint_steps = 1;
    r.fresh = true;
    for (size_t i = 0; i < 2 * (sizeof phases / sizeof *phases); i++) {
        live_phase phase = phases[i / 2];
        bool at_last = i % 2; /* or some steps later */
        profile_info info = {0};
        checkpoint_list kept = {0};
        live_status s;
        train_live *l = start(&f, &r);
        do {
            train_live_wait(l, 10);
            train_live_get(l, &s);
        } while (s.phase < phase ||
                 (at_last && phase == LIVE_TRAINING && s.step < 3 && !live_phase_over(s.phase)));
        train_live_cancel(l);
        s = wait_over(l);
        train_live_close(l);
        assert_true(s.phase == LIVE_CANCELLED || s.phase == LIVE_DONE);
        versions += s.phase == LIVE_DONE;
        assert_ok(&f.st, profile_get(f.mira, f.profile, &info, &f.st.err));
        assert_int_equal(info.n_versions, versions);
        assert_true(info.has_adapter == (versions > 0));
        assert_ok(&f.st, checkpoint_list_load(f.mira, f.profile, &kept, &f.st.err));
        assert_int_equal(kept.n, 0);
        checkpoint_list_free(&kept);
        profile_info_free(&info);
    }
    close_fixture(&f);
}

/* Signed out in the middle, whatever the interface does: the training ends with a message and can
 * be gone on with from the last checkpoint. */
static void test_signed_out(void **state)
{
    (void)state;
    fixture f = {0};
    live_unfinished_list list = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    train_live *l = start_to_checkpoint(&f, &r, 5);
    live_status s;
    session_sign_out(f.mira);
    s = wait_over(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_int_equal(s.status, PF_DENIED);
    train_live_close(l);
    session_unref(f.mira);
    assert_ok(&f.st, fixture_sign_in(&f.st, "mira", "a passphrase of mira", &f.mira));
    assert_ok(&f.st, train_live_unfinished(f.mira, &list, &f.st.err));
    assert_int_equal(list.n, 1);
    live_unfinished_list_free(&list);
    assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, NULL, &l, &f.st.err));
    wait_step(l, s.checkpoint_step + 3);
    train_live_close(l);
    close_fixture(&f);
}

/* Waits until the training says that its state can't be saved. */
static void wait_problem(train_live *l, const char *words)
{
    live_status s;
    do {
        train_live_wait(l, 1000);
        train_live_get(l, &s);
        assert_false(live_phase_over(s.phase));
    } while (!s.checkpoint_problem[0]);
    assert_text(s.checkpoint_problem, words);
    wait_step(l, s.step + 6);
}

/* What a training learns from is deleted meanwhile: none of its states holds it any more, nor does
 * a later one. */
static void test_learned_from_is_deleted(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        fixture f = {0};
        conversation c = {0};
        int64_t note = 0;
        open_fixture(&f);
        const note_info dog = {.text = "My dog is called Biscuit.", .state = NOTE_CONFIRMED};
        assert_ok(&f.st, note_add(f.mira, &dog, &note, &f.st.err));
        train_request r = request_of(&f);
        train_live *l = start_to_checkpoint(&f, &r, 2);
        assert_ok(&f.st, conversation_load(f.mira, f.chats[3], &c, &f.st.err));
        assert_ok(&f.st, which == 0   ? conversation_remove(f.mira, f.chats[3], &f.st.err)
                         : which == 1 ? message_remove(f.mira, f.chats[3], c.messages[1].id,
                                                       REMOVE_ALONE, &f.st.err)
                                      : note_remove(f.mira, note, &f.st.err));
        wait_problem(l, which ? "something that it learns from was deleted"
                              : "a conversation that it learns from was deleted");
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM checkpoint"), 0);
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM blob"), 0);
        train_live_close(l); /* as at sign-out */
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM checkpoint"), 0);
        conversation_free(&c);
        close_fixture(&f);
    }
}

/* The same before the first checkpoint: what a training keeps when it is broken off does not hold a
 * message that was deleted after it had been read. */
static void test_deleted_before_first_checkpoint(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) {
        fixture f = {0};
        conversation c = {0};
        train_live *l = NULL;
        int64_t note = 0;
        open_fixture(&f);
        const note_info dog = {.text = "My dog is called Biscuit.", .state = NOTE_CONFIRMED};
        assert_ok(&f.st, note_add(f.mira, &dog, &note, &f.st.err));
        train_request r = request_of(&f);
        r.epochs = 5000;
        r.checkpoint_steps = 1000000;
        l = start(&f, &r);
        wait_step(l, 2);
        assert_ok(&f.st, conversation_load(f.mira, f.chats[3], &c, &f.st.err));
        if (which == 0)
            assert_ok(&f.st, message_remove(f.mira, f.chats[3], c.messages[1].id, REMOVE_ALONE,
                                            &f.st.err));
        else if (which == 1)
            assert_ok(&f.st, conversation_remove(f.mira, f.chats[3], &f.st.err));
        else if (which == 3)
            assert_ok(&f.st, note_remove(f.mira, note, &f.st.err));
        else if (which == 4)
            assert_ok(&f.st,
                      note_update(f.mira, note, "I have no dog.", NOTE_CONFIRMED, &f.st.err));
        else /* what was not read yet may go */
            assert_ok(&f.st,
                      message_remove(f.mira, f.chats[3],
                                     fixture_message(f.mira, f.chats[3], HISTORY_USER, "And?"),
                                     REMOVE_ALONE, &f.st.err));
        train_live_close(l); /* as at sign-out: saves what it has */
        assert_int_equal(fixture_sql_number(&f.st, "SELECT count(*) FROM checkpoint"), which == 2);
        conversation_free(&c);
        close_fixture(&f);
    }
}

/* The profile that is trained is deleted by another program: the training ends and says so, rather
 * than learn to the end for nothing. */
static void test_profile_is_deleted(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    train_live *l = start_to_checkpoint(&f, &r, 2);
    assert_ok(&f.st, profile_remove(f.mira, f.profile, &f.st.err));
    live_status s = wait_over(l);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_int_equal(s.status, PF_NOT_FOUND);
    assert_text(s.message, "can't be saved any more");
    assert_true(s.step < s.n_steps);
    train_live_close(l);
    close_fixture(&f);
}

/* Only the version can't be saved, as when the disk is full in the end. */
static int deny_versions(void *unused, int action, const char *table, const char *column,
                         const char *schema, const char *trigger)
{
    (void)unused, (void)column, (void)schema, (void)trigger;
    return action == SQLITE_INSERT && table && strcmp(table, "version") == 0 ? SQLITE_DENY
                                                                             : SQLITE_OK;
}

/* Then it is said from where the training can be gone on with, and it can. */
static void test_version_not_saved(void **state)
{
    (void)state;
    fixture f = {0};
    open_fixture(&f);
    train_request r = request_of(&f);
    r.epochs = 4;
    r.checkpoint_steps = 2;
    sqlite3_set_authorizer(f.st.store->main.handle, deny_versions, NULL);
    train_live *l = start(&f, &r);
    live_status s = wait_over(l);
    train_live_close(l);
    sqlite3_set_authorizer(f.st.store->main.handle, NULL, NULL);
    assert_int_equal(s.phase, LIVE_FAILED);
    assert_true(s.checkpoint_step > 0);
    assert_text(s.message, "It can be resumed from step");
    assert_ok(&f.st, train_live_resume(f.mira, f.e, f.profile, &r, &l, &f.st.err));
    s = wait_over(l);
    assert_int_equal(s.phase, LIVE_DONE);
    assert_int_equal(s.version, 1);
    train_live_close(l);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_done_published_and_back),
        cmocka_unit_test(test_broken_off_and_resumed),
        cmocka_unit_test(test_damaged_checkpoint),
        cmocka_unit_test(test_cancelled_and_discarded),
        cmocka_unit_test(test_made_and_cancelled),
        cmocka_unit_test(test_made_and_broken_off),
        cmocka_unit_test(test_made_and_failed),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_no_room_for_questions),
        cmocka_unit_test(test_machine_fails),
        cmocka_unit_test(test_cancelled_in_every_phase),
        cmocka_unit_test(test_signed_out),
        cmocka_unit_test(test_learned_from_is_deleted),
        cmocka_unit_test(test_deleted_before_first_checkpoint),
        cmocka_unit_test(test_profile_is_deleted),
        cmocka_unit_test(test_version_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
