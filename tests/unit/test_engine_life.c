/* Clients, cancelling, closing, fair sharing, conversations over several turns, forgetting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/hold.h"
#include "engine/runtime.h"
#include "engine/sample.h"
#include "support/engine_fixture.h"
#include "support/memory.h"
#include "support/sanitizer.h"
#include "support/tiny_adapter.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static model *tiny;
static int32_t prompt[4000];

static int setup(void **state)
{
    (void)state;
    tiny = fixture_model(TINY_MODEL);
    for (int i = 0; i < 4000; i++)
        prompt[i] = (int32_t)(sample_draw(1, (uint64_t)i) * model_get_config(tiny)->vocab);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_model_close(tiny);
    return 0;
}

static engine_request request_of(uint64_t user, int n, int max_tokens)
{
    return (engine_request){.ids = prompt,
                            .n_ids = (size_t)n,
                            .max_tokens = max_tokens,
                            .ignore_eos = true,
                            .user = user};
}

/* --- cancelling ------------------------------------------------------------------------------- */

/* KV-03: during the prompt, while queued and during the answer. */
static void a_cancelled_request_ends_at_once_and_frees_its_memory(void **state)
{
    (void)state;
    outcome o[3], alone, next;
    engine_stats stats;
    memset(o, 0, sizeof o);
    engine *e = fixture_engine(tiny, &(engine_options){.max_batch = 2, .step_tokens = 1});
    engine_client *c = engine_client_open(e);
    engine_request reading = request_of(1, 2000, 5), writing = request_of(2, 3, 1500);
    request_id ids[3];
    ids[1] = fixture_submit(c, &writing, &o[1]);
    fixture_collect(c, o, 2, 3);
    ids[0] = fixture_submit(c, &reading, &o[0]);
    ids[2] = fixture_submit(c, &writing, &o[2]); /* no place for it */
    for (int n = 20; n == 20 || !o[0].started; n++)
        fixture_collect(c, &o[1], 1, n);
    for (int i = 0; i < 3; i++)
        engine_cancel(e, ids[i]);
    engine_cancel(e, 999999); /* nobody */
    fixture_collect(c, o, 3, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(o[i].reason, FINISH_CANCELLED);
    assert_int_equal(o[0].ids.len, 0);
    assert_true(o[0].started && !o[2].started);
    assert_in_range(o[1].ids.len, 20, 1000);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.never_started, 1);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(stats.kv_tokens_used, 0);

    /* The half-read prompt does no harm to the next request, and is of use. */
    engine *fresh = fixture_engine(tiny, NULL);
    engine_request r = request_of(1, 100, 8);
    r.logprobs = 20;
    fixture_run(fresh, &r, 1, NULL, &alone);
    fixture_run(e, &r, 1, NULL, &next);
    outcome_expect_equal(&next, &alone, "after a cancel");
    engine_client_close(c);
    fixture_engine_close(e);
    fixture_engine_close(fresh);
    for (int i = 0; i < 3; i++)
        outcome_free(&o[i]);
    outcome_free(&alone);
    outcome_free(&next);
}

/* KV-04: one long answer at capacity 1; five wait and their client goes. */
static void requests_of_a_client_that_left_are_never_started(void **state)
{
    (void)state;
    outcome running = {0}, queued[5];
    engine_stats stats;
    memset(queued, 0, sizeof queued);
    engine *e = fixture_engine(tiny, &(engine_options){.max_batch = 1});
    engine_client *c = engine_client_open(e), *leaving = engine_client_open(e);
    engine_request r = request_of(1, 10, 400);
    fixture_submit(c, &r, &running);
    fixture_collect(c, &running, 1, 2);
    r.user = 2;
    for (int i = 0; i < 5; i++)
        fixture_submit(leaving, &r, &queued[i]);
    engine_client_close(leaving);
    fixture_collect(c, &running, 1, 0);
    assert_int_equal(running.ids.len, 400);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.never_started, 5);
    engine_client_close(c);
    fixture_engine_close(e);
    outcome_free(&running);
}

/* --- held ------------------------------------------------------------------------------------- */

/* Two clients with two answers each, and one more that is cancelled on the way. */
enum { HELD = 5, CANCELLED = 4, HELD_TOKENS = 12 };

typedef struct {
    engine_client *clients[2];
    engine_request requests[HELD];
    outcome o[HELD];
} held_case;

static int client_of(int i)
{
    return i / 2 % 2;
}

/* Has a client's requests make n steps. Its answers have from least to most tokens then, the
 * other's as many as they had. */
static void held_steps(engine *e, held_case *h, int client, int n, size_t least, size_t most)
{
    size_t low[HELD], high[HELD];
    for (int i = 0; i < HELD; i++) {
        bool moves = client_of(i) == client && !h->o[i].ended;
        low[i] = moves ? least : h->o[i].ids.len;
        high[i] = moves ? most : h->o[i].ids.len;
    }
    for (int i = 0; i < n; i++)
        if (engine_held_step(e, h->clients[client]) <= 0) die("step %d was not made", i);
    for (int i = 0; i < 2; i++)
        fixture_take(h->clients[i]);
    for (int i = 0; i < HELD; i++)
        if (h->o[i].ids.len < low[i] || h->o[i].ids.len > high[i])
            die("answer %d has %zu tokens, not %zu to %zu", i, h->o[i].ids.len, low[i], high[i]);
}

static void hold(engine *e, void *ctx)
{
    held_case *h = ctx;
    request_id id = 0;
    for (int i = 0; i < HELD; i++)
        id = fixture_submit(h->clients[client_of(i)], &h->requests[i], &h->o[i]);
    /* Prompts of 30, 41 and 74 tokens in steps of 16, then of 52 and 60: whoever was read first has
     * its first token and waits for the last. */
    held_steps(e, h, 0, 9, 0, 1);
    held_steps(e, h, 0, 1, 1, 1);
    held_steps(e, h, 1, 7, 1, 1);
    held_steps(e, h, 1, 3, 4, 4);
    held_steps(e, h, 0, 1, 2, 2);
    held_steps(e, h, 1, 1, 5, 5);
    engine_cancel(e, id);
    held_steps(e, h, 1, 1, 6, 6);
    if (!h->o[CANCELLED].ended) die("a cancelled request goes on");
    held_steps(e, h, 0, 1, 3, 3);
    held_steps(e, h, 1, HELD_TOKENS - 6, HELD_TOKENS, HELD_TOKENS);
    if (engine_held_step(e, h->clients[1]) != 0) die("a step of nobody");
}

static void a_held_engine_makes_steps_of_one_client(void **state)
{
    (void)state;
    static const int prompts[HELD] = {30, 41, 52, 60, 74};
    outcome alone[HELD];
    held_case h = {.clients = {NULL}};
    for (int i = 0; i < HELD; i++) {
        h.requests[i] = request_of((uint64_t)i, prompts[i], HELD_TOKENS);
        h.requests[i].logprobs = 20;
    }
    engine_options options = {.step_tokens = 16, .no_prefix_cache = true};
    engine *e = fixture_engine(tiny, &options), *free_one = fixture_engine(tiny, NULL);
    for (int i = 0; i < 2; i++)
        h.clients[i] = engine_client_open(e);
    engine_hold(e, hold, &h);
    fixture_collect(h.clients[0], h.o, 2, 0); /* it goes on by itself */
    for (int i = 0; i < HELD; i++) {
        if (i == CANCELLED) continue;
        fixture_run(free_one, &h.requests[i], 1, NULL, &alone[i]);
        outcome_expect_equal(&h.o[i], &alone[i], "held");
        outcome_free(&alone[i]);
    }
    assert_int_equal(h.o[CANCELLED].reason, FINISH_CANCELLED);
    for (int i = 0; i < HELD; i++)
        outcome_free(&h.o[i]);
    for (int i = 0; i < 2; i++)
        engine_client_close(h.clients[i]);
    fixture_engine_close(e);
    fixture_engine_close(free_one);
}

/* --- the line --------------------------------------------------------------------------------- */

/* What a request costs in the fair queue is what it may take, not the limit that it names: who asks
 * for a million tokens where 64 fit isn't sent behind everybody. */
static void a_limit_beyond_the_context_costs_the_context(void **state)
{
    (void)state;
    enum { N = 8, SECOND = 2, LAST = N - 1 };
    outcome o[N];
    memset(o, 0, sizeof o);
    engine *e = fixture_engine(tiny, &(engine_options){.max_batch = 1, .context = 64});
    engine_client *c = engine_client_open(e);
    engine_request r[N] = {request_of(9, 10, 0), request_of(1, 10, 1000000),
                           request_of(1, 10, 1000000)};
    for (int i = 3; i < N; i++)
        r[i] = request_of(2, 10, 8);
    for (int i = 0; i < N; i++)
        fixture_submit(c, &r[i], &o[i]);
    fixture_collect(c, o, N, 0);
    assert_true(o[SECOND].usage.queued_ns < o[LAST].usage.queued_ns);
    engine_client_close(c);
    fixture_engine_close(e);
    for (int i = 0; i < N; i++)
        outcome_free(&o[i]);
}

/* --- clients ---------------------------------------------------------------------------------- */

/* A client that reads nothing keeps its events and holds nobody up. */
static void a_slow_client_stalls_nobody_and_loses_nothing(void **state)
{
    (void)state;
    outcome slow = {0}, quick = {0};
    engine *e = fixture_engine(tiny, NULL);
    engine_client *a = engine_client_open(e), *b = engine_client_open(e);
    engine_request r = request_of(1, 10, 300);
    fixture_submit(a, &r, &slow);
    fixture_submit(b, &r, &quick);
    fixture_collect(b, &quick, 1, 0);
    assert_int_equal(slow.n_events, 0);
    struct pollfd p = {.fd = engine_client_fd(a), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 1);
    fixture_collect(a, &slow, 1, 0);
    outcome_expect_equal(&slow, &quick, "slow");
    assert_int_equal(slow.ids.len, 300);
    engine_event ev;
    assert_false(engine_client_next(a, &ev));
    assert_int_equal(poll(&p, 1, 0), 0); /* readable exactly while events wait */
    assert_false(engine_client_wait(a, 1));
    engine_client_close(a);
    engine_client_close(b);
    fixture_engine_close(e);
    outcome_free(&slow);
    outcome_free(&quick);
}

static void closing_the_engine_ends_what_runs(void **state)
{
    (void)state;
    outcome o[3];
    memset(o, 0, sizeof o);
    engine *e = fixture_engine(tiny, &(engine_options){.max_batch = 2});
    engine_client *c = engine_client_open(e);
    engine_request r = request_of(1, 20, 2000);
    for (int i = 0; i < 3; i++)
        fixture_submit(c, &r, &o[i]);
    fixture_collect(c, o, 3, 2);
    fixture_engine_close(e);
    fixture_collect(c, o, 3, 0); /* the last events can still be read */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o[i].reason, FINISH_CANCELLED);
        outcome_free(&o[i]);
    }
    pf_err err = {0};
    assert_int_equal(engine_submit(c, &r, NULL, &err), PF_FAILED);
    engine_client_close(c);
}

/* Threads that submit, cancel, register, drop and ask all at once (for the thread sanitizer too).
 */
typedef struct {
    engine *e;
    int number;
    const buf *blob;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    engine_client *c = engine_client_open(w->e);
    for (int round = 0; round < 6; round++) {
        outcome o[3];
        adapter_id adapter = 0;
        engine_stats stats;
        memset(o, 0, sizeof o);
        if (engine_adapter_add(w->e, w->blob->data, w->blob->len, NULL, &adapter, NULL, NULL))
            die("not added");
        for (int i = 0; i < 3; i++) {
            engine_request r = request_of((uint64_t)w->number, 20 + 9 * i, 20);
            r.adapter = i == 1 ? 0 : adapter;
            request_id id = fixture_submit(c, &r, &o[i]);
            if (i == 2) engine_cancel(w->e, id);
        }
        engine_get_stats(w->e, &stats);
        if (round == 3) engine_forget_user(w->e, (uint64_t)w->number);
        fixture_collect(c, o, 3, 0);
        if (o[0].failed || o[1].failed || o[0].ids.len != 20) die("round %d", round);
        if (engine_adapter_drop(w->e, adapter, NULL) != PF_OK) die("not dropped");
        for (int i = 0; i < 3; i++)
            outcome_free(&o[i]);
    }
    engine_client_close(c);
    return NULL;
}

static void many_threads_use_one_engine(void **state)
{
    (void)state;
    enum { N = 4 };
    pthread_t threads[N];
    worker workers[N];
    buf blob = {0};
    tiny_adapter(model_get_config(tiny), false, true, 4, 3, &blob);
    engine *e =
        fixture_engine(tiny, &(engine_options){.threads = 2, .kv_tokens = 512, .context = 256});
    for (int i = 0; i < N; i++) {
        workers[i] = (worker){e, i, &blob};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    engine_stats stats;
    engine_get_stats(e, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(stats.adapters_registered, 0);
    fixture_engine_close(e);
    buf_free(&blob);
}

/* --- sharing ---------------------------------------------------------------------------------- */

/* KV-05: two long prompts, two long answers, and a fifth user who asks something short. In tokens,
 * not seconds: the answer begins long before the long prompts are read. */
static void a_short_request_does_not_wait_for_long_prompts(void **state)
{
    (void)state;
    outcome o[5];
    memset(o, 0, sizeof o);
    engine *e = fixture_engine(tiny, &(engine_options){.context = 2048, .step_tokens = 48});
    engine_client *c = engine_client_open(e);
    for (int i = 0; i < 2; i++) {
        engine_request r = request_of(10 + (uint64_t)i, 5, 1500);
        fixture_submit(c, &r, &o[i]);
    }
    fixture_collect(c, o, 2, 5);
    for (int i = 2; i < 4; i++) {
        engine_request r = request_of(20 + (uint64_t)i, 1900, 5);
        fixture_submit(c, &r, &o[i]);
    }
    engine_stats before, after;
    engine_get_stats(e, &before);
    engine_request r = request_of(30, 35, 2);
    fixture_submit(c, &r, &o[4]);
    fixture_collect(c, &o[4], 1, 0);
    engine_get_stats(e, &after);
    /* 35 tokens at a third of 48 per step are 3 steps; leave some for starting. */
    assert_true(after.steps - before.steps < 30);
    assert_int_equal(o[2].ids.len + o[3].ids.len, 0);
    engine_client_close(c);
    fixture_engine_close(e);
    for (int i = 0; i < 5; i++)
        outcome_free(&o[i]);
}

/* --- conversations ---------------------------------------------------------------------------- */

static engine_request chat_request(chat_message *messages, size_t n, adapter_id adapter)
{
    return (engine_request){.messages = messages,
                            .n_messages = n,
                            .adapter = adapter,
                            .max_tokens = 20,
                            .ignore_eos = true,
                            .logprobs = 20,
                            .want_prompt = true,
                            .user = 5};
}

static chat_message message(chat_role role, const char *text)
{
    return (chat_message){.role = role, .text = text, .len = strlen(text)};
}

/* A second turn computes only the new message, and gives what a restart gives. */
static void a_second_turn_computes_only_the_new_message(void **state)
{
    (void)state;
    for (int direft = 0; direft < 2; direft++) {
        buf blob = {0};
        pf_err err = {0};
        outcome first, second, restarted;
        chat_message messages[3] = {message(ROLE_USER, "the first question, long enough to fill "
                                                       "several pages of keys and values")};
        tiny_adapter(model_get_config(tiny), direft, true, 6, 1, &blob);
        for (int restart = 0; restart < 2; restart++) {
            engine *e = fixture_engine(tiny, NULL);
            adapter_id adapter = 0;
            assert_int_equal(engine_adapter_add(e, blob.data, blob.len, NULL, &adapter, NULL, &err),
                             PF_OK);
            if (!restart) {
                engine_request r = chat_request(messages, 1, adapter);
                fixture_run(e, &r, 1, NULL, &first);
                messages[1] = message(ROLE_ASSISTANT, buf_str(&first.text));
                messages[1].ids = first.ids.ids;
                messages[1].n_ids = first.ids.len;
                messages[2] = message(ROLE_USER, "and the second one");
            }
            engine_request r = chat_request(messages, 3, adapter);
            fixture_run(e, &r, 1, NULL, restart ? &restarted : &second);
            fixture_engine_close(e);
        }
        outcome_expect_equal(&second, &restarted, "second turn");
        size_t known = first.prompt_ids.len + first.ids.len;
        assert_int_equal(second.usage.cached_tokens, known - 1); /* but the last, never computed */
        for (size_t i = 0; i < second.prompt_ids.len; i++) {
            bool answer = i >= first.prompt_ids.len && i < known;
            bool end = i == known; /* the token that closes the answer */
            assert_int_equal(second.marks[i], !answer && !end);
        }
        outcome_free(&first);
        outcome_free(&second);
        outcome_free(&restarted);
        buf_free(&blob);
    }
}

static void the_oldest_turns_leave_a_full_context(void **state)
{
    (void)state;
    enum { TURNS = 12 };
    chat_message messages[2 * TURNS + 2];
    size_t n = 0;
    messages[n++] = message(ROLE_SYSTEM, "system");
    for (int i = 0; i < TURNS; i++) {
        messages[n++] = message(ROLE_USER, "a question with some words in it");
        messages[n++] = message(ROLE_ASSISTANT, "an answer with some more words in it");
    }
    messages[n++] = message(ROLE_USER, "the last question");
    engine *e = fixture_engine(tiny, &(engine_options){.context = 256});
    engine_client *c = engine_client_open(e);
    pf_err err = {0};
    engine_request r = chat_request(messages, n, 0);
    size_t total = 0;
    assert_int_equal(engine_count_tokens(e, messages, n, &total, &err), PF_OK);
    assert_true(total > 256);
    char number[16];
    snprintf(number, sizeof number, "%zu", total);
    assert_int_equal(engine_submit(c, &r, NULL, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, number));
    r.drop_oldest = true;
    outcome o = {0};
    fixture_submit(c, &r, &o);
    fixture_collect(c, &o, 1, 0);
    assert_int_equal(o.reason, FINISH_LENGTH);
    assert_int_equal(o.ids.len, 20); /* there was room for the whole answer */
    assert_in_range(o.usage.prompt_tokens, 100, 236);
    outcome_free(&o);
    engine_client_close(c);
    fixture_engine_close(e);
}

/* --- forgetting ------------------------------------------------------------------------------- */

/* KV-10: what a user leaves behind reaches nobody, and is gone after sign-out. */
static void a_forgotten_user_leaves_no_trace_in_answers(void **state)
{
    (void)state;
    outcome alone[10], got;
    engine_stats stats;
    engine *fresh = fixture_engine(tiny, NULL);
    engine *e = fixture_engine(tiny, &(engine_options){.kv_tokens = 2048});
    engine_request secret = request_of(1, 1800, 50);
    fixture_run(e, &secret, 1, NULL, &got);
    outcome_free(&got);
    engine_get_stats(e, &stats);
    assert_true(stats.kv_tokens_cached > 1700);
    engine_forget_user(e, 1);
    for (int i = 0; i < 10; i++) {
        engine_request r = request_of(2, 15 + 40 * i, 8);
        r.ids = prompt + i;
        r.logprobs = 20;
        fixture_run(fresh, &r, 1, NULL, &alone[i]);
        fixture_run(e, &r, 1, NULL, &got);
        outcome_expect_equal(&got, &alone[i], "after another user");
        outcome_free(&got);
        outcome_free(&alone[i]);
    }
    fixture_run(e, &secret, 1, NULL, &got);
    assert_int_equal(got.usage.cached_tokens, 0);
    outcome_free(&got);
    fixture_engine_close(fresh);
    fixture_engine_close(e);
}

typedef struct {
    engine *e;
    atomic_bool running, go_on;
} blocker;

static void wait_for_word(engine *e, void *args)
{
    (void)e;
    blocker *b = args;
    atomic_store(&b->running, true);
    while (!atomic_load(&b->go_on))
        sched_yield();
}

static void *run_blocker(void *arg)
{
    blocker *b = arg;
    engine_run_call(b->e, wait_for_word, b);
    return NULL;
}

static void *forget_user_one(void *arg)
{
    engine_forget_user(arg, 1);
    return NULL;
}

/* Submitted just before, while the engine thread was busy with another call. */
static void a_request_just_before_forgetting_keeps_nothing(void **state)
{
    (void)state;
    pthread_t threads[2];
    engine_stats stats;
    outcome o = {0};
    engine *e = fixture_engine(tiny, NULL);
    engine_client *c = engine_client_open(e);
    blocker b = {.e = e};
    assert_int_equal(pthread_create(&threads[0], NULL, run_blocker, &b), 0);
    while (!atomic_load(&b.running))
        sched_yield();
    engine_request r = request_of(1, 200, 5);
    fixture_submit(c, &r, &o);
    assert_int_equal(pthread_create(&threads[1], NULL, forget_user_one, e), 0);
    for (bool queued = false; !queued; sched_yield()) {
        pthread_mutex_lock(&e->lock);
        queued = e->calls != NULL;
        pthread_mutex_unlock(&e->lock);
    }
    atomic_store(&b.go_on, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    fixture_collect(c, &o, 1, 0);
    outcome_free(&o);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.kv_tokens_cached, 0);
    engine_client_close(c);
    fixture_engine_close(e);
}

/* Ids from the middle of a text's. */
static void middle_ids(const char *text, int32_t *out, size_t n)
{
    id_list all = {0};
    tokenizer_encode(model_get_tokenizer(tiny), text, strlen(text), false, false, &all);
    assert_true(all.len > 4 * n);
    memcpy(out, all.ids + all.len / 2, n * sizeof *out);
    id_list_free(&all);
}

static void forgotten_text_is_not_in_memory_any_more(void **state)
{
    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip();
    enum { REPEATS = 100, LEN = 12, IDS = 12 };
    int32_t ids[IDS];
    char marker[] = "[DCS@,5506!a"; /* not there as it is: each letter is changed by one bit */
    for (int i = 0; i < 10; i++)
        marker[i] ^= 1;
    for (int chat = 0; chat < 2; chat++) {
        engine *e = fixture_engine(tiny, NULL);
        engine_client *c = engine_client_open(e);
        char *text = xcalloc(REPEATS, LEN + 1);
        for (int i = 0; i < REPEATS; i++)
            memcpy(text + i * LEN, marker, LEN);
        middle_ids(text, ids, IDS);
        assert_true(memory_count(marker, LEN) > 0);
        chat_message m = message(ROLE_USER, text);
        engine_request r = {.max_tokens = 20, .stops = {marker}, .n_stops = 1, .user = 4};
        if (chat) {
            r.messages = &m;
            r.n_messages = 1;
        } else {
            r.text = text;
            r.text_len = strlen(text);
        }
        outcome o = {0};
        fixture_submit(c, &r, &o);
        explicit_bzero(text, REPEATS * LEN);
        free(text);
        fixture_collect(c, &o, 1, 0);
        outcome_free(&o);
        engine_forget_user(e, 4);
        assert_int_equal(memory_count(marker, LEN), 0);
        assert_int_equal(memory_count(ids, sizeof ids), 0);
        engine_client_close(c);
        fixture_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_request_ends_at_once_and_frees_its_memory),
        cmocka_unit_test(requests_of_a_client_that_left_are_never_started),
        cmocka_unit_test(a_held_engine_makes_steps_of_one_client),
        cmocka_unit_test(a_limit_beyond_the_context_costs_the_context),
        cmocka_unit_test(a_slow_client_stalls_nobody_and_loses_nothing),
        cmocka_unit_test(closing_the_engine_ends_what_runs),
        cmocka_unit_test(many_threads_use_one_engine),
        cmocka_unit_test(a_short_request_does_not_wait_for_long_prompts),
        cmocka_unit_test(a_second_turn_computes_only_the_new_message),
        cmocka_unit_test(the_oldest_turns_leave_a_full_context),
        cmocka_unit_test(a_forgotten_user_leaves_no_trace_in_answers),
        cmocka_unit_test(a_request_just_before_forgetting_keeps_nothing),
        cmocka_unit_test(forgotten_text_is_not_in_memory_any_more),
    };
    return cmocka_run_group_tests_name("engine_life", tests, setup, teardown);
}
