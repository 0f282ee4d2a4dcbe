/* Thousands of profiles in an encrypted store and room for few of them in memory: every answer is
 * right, and the answers being written don't notice. Nothing here depends on the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sample.h"
#include "models/adapter_blob.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/tiny_adapter.h"

#define USERS    64
#define EACH     64 /* profiles of a user */
#define PROFILES (USERS * EACH)
#define SLOTS    64
#define REQUESTS 320
#define PROMPT   24

typedef struct {
    store_fixture store;
    session *sessions[USERS];
    model *tiny;
    int32_t prompt[512];
} fixture;

/* The adapter of the i-th profile: LoRA and DiReFT, ranks 1 and 2. */
static void blob_of(const fixture *f, int i, buf *out)
{
    tiny_adapter(model_get_config(f->tiny), i & 1, true, 1 + (i >> 1 & 1), (uint64_t)i + 1, out);
}

static void fill_store(fixture *f, int user)
{
    char name[32];
    snprintf(name, sizeof name, "user%d", user);
    f->sessions[user] = fixture_user(&f->store, name, "correct horse");
    for (int i = 0; i < EACH; i++) {
        buf blob = {0};
        int64_t id = 0;
        snprintf(name, sizeof name, "profile %d", i);
        blob_of(f, user * EACH + i, &blob);
        assert_ok(&f->store, profile_create(f->sessions[user], name, NULL, &id, &f->store.err));
        assert_int_equal(id, user * EACH + i + 1);
        assert_ok(&f->store, profile_add_version(f->sessions[user], id, blob.data, blob.len, NULL,
                                                 NULL, &f->store.err));
        buf_free(&blob);
    }
}

static int setup(void **state)
{
    fixture *f = xcalloc(1, sizeof *f);
    *state = f;
    f->tiny = fixture_model(TINY_MODEL);
    for (int i = 0; i < 512; i++)
        f->prompt[i] = (int32_t)(sample_draw(1, (uint64_t)i) * model_get_config(f->tiny)->vocab);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    fixture_model_close(f->tiny);
    free(f);
    return 0;
}

static engine_request request_of(const fixture *f, uint64_t user, adapter_id adapter, int n,
                                 int max_tokens)
{
    return (engine_request){.ids = f->prompt,
                            .n_ids = (size_t)n,
                            .adapter = adapter,
                            .max_tokens = max_tokens,
                            .ignore_eos = true,
                            .logprobs = 5,
                            .user = user};
}

/* The outcome alone in a fresh engine; profile -1: the base model. */
static outcome solo(const fixture *f, int profile, int n, int max_tokens)
{
    outcome o;
    buf blob = {0};
    adapter_id id = 0;
    pf_err err = {0};
    engine *e = fixture_engine(f->tiny, NULL);
    if (profile >= 0) {
        blob_of(f, profile, &blob);
        assert_int_equal(engine_adapter_add(e, blob.data, blob.len, NULL, &id, NULL, &err), PF_OK);
    }
    engine_request r = request_of(f, 1, id, n, max_tokens);
    fixture_run(e, &r, 1, NULL, &o);
    fixture_engine_close(e);
    buf_free(&blob);
    return o;
}

static void expect_solo(const fixture *f, const outcome *got, int profile, int n, int max_tokens)
{
    outcome want = solo(f, profile, n, max_tokens);
    outcome_expect_equal(got, &want, "alone");
    outcome_free(&want);
}

static adapter_id *register_all(fixture *f, engine *e)
{
    adapter_id *ids = xcalloc(PROFILES, sizeof *ids);
    for (int i = 0; i < PROFILES; i++) {
        unsigned char digest[32];
        adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
        assert_ok(&f->store, profile_source_open(f->sessions[i / EACH], i + 1, 0, &source.ctx,
                                                 digest, &f->store.err));
        assert_ok(&f->store, engine_adapter_add_lazy(e, digest, &source, &ids[i], &f->store.err));
    }
    return ids;
}

/* Spread over the store, some of them twice. */
static int profile_of(int request)
{
    return (int)((unsigned)(request % (REQUESTS - 40)) * 2654435761u % PROFILES);
}

static void four_thousand_profiles_and_room_for_sixty_four(void **state)
{
    fixture *f = *state;
    fixture_open(&f->store);
    for (int user = 0; user < USERS; user++)
        fill_store(f, user);
    engine *e = fixture_engine(
        f->tiny, &(engine_options){.adapter_slots = SLOTS, .max_batch = 16, .context = 512});
    adapter_id *ids = register_all(f, e);
    engine_client *c = engine_client_open(e);
    outcome *o = xcalloc(REQUESTS + 1, sizeof *o), *writing = &o[REQUESTS];
    engine_stats stats;

    engine_request long_answer = request_of(f, 1000, 0, PROMPT, 400);
    fixture_submit(c, &long_answer, writing);
    fixture_collect(c, writing, 1, 1);
    for (int i = 0; i < REQUESTS; i++) {
        int profile = profile_of(i);
        engine_request r =
            request_of(f, (uint64_t)(profile / EACH), ids[profile], PROMPT, 1 + i % 5);
        fixture_submit(c, &r, &o[i]);
    }
    for (int i = 0; i < REQUESTS; i++) {
        fixture_collect(c, &o[i], 1, 0);
        engine_get_stats(e, &stats);
        assert_true(stats.adapters_loaded <= SLOTS);
    }
    fixture_collect(c, writing, 1, 0);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.adapters_registered, PROFILES);
    assert_true(stats.adapter_loads >= REQUESTS - 40); /* none was there before */
    assert_int_equal(stats.adapter_stalls, 0);         /* and none held up the engine thread */
    assert_int_equal(stats.decode_waits, 0);           /* nor a running answer a step */
    assert_int_equal(stats.decode.adapter_bytes, 0);
    assert_int_equal(writing->usage.preemptions, 0);
    expect_solo(f, writing, -1, PROMPT, 400);
    for (int i = 0; i < REQUESTS; i += 23)
        expect_solo(f, &o[i], profile_of(i), PROMPT, 1 + i % 5);

    for (int i = 0; i <= REQUESTS; i++)
        outcome_free(&o[i]);
    engine_client_close(c);
    fixture_engine_close(e);
    free(ids);
    free(o);
    for (int user = 0; user < USERS; user++)
        session_unref(f->sessions[user]);
    fixture_close(&f->store);
}

/* --- one budget ------------------------------------------------------------------------------- */

typedef struct {
    buf blob;
    int fetches;
} memory_source;

static pf_status fetch(void *ctx, buf *out, pf_err *err)
{
    memory_source *s = ctx;
    (void)err;
    s->fetches++;
    buf_append(out, s->blob.data, s->blob.len);
    return PF_OK;
}

#define ADAPTERS      12
#define CONVERSATIONS 3

/* A budget of one context of 512 tokens and six adapters. */
static uint64_t small_budget(const fixture *f, const buf *blob)
{
    engine_stats stats;
    adapter_info info;
    adapter_id id;
    pf_err err = {0};
    engine *e = fixture_engine(
        f->tiny, &(engine_options){.context = 512, .kv_tokens = 512, .adapter_bytes = 1 << 20});
    assert_int_equal(engine_adapter_add(e, blob->data, blob->len, NULL, &id, &info, &err), PF_OK);
    engine_get_stats(e, &stats);
    fixture_engine_close(e);
    return stats.memory_bytes - (1 << 20) + 6 * info.packed_bytes + 100;
}

/* For one turn an adapter of unknown size may lie beside the pages that make room for it, and the
 * two halves of the statistics are not of one instant: so what is above the budget is gone soon. */
static void expect_within_budget(engine *e)
{
    engine_stats stats;
    engine_get_stats(e, &stats);
    for (int tries = 0; stats.memory_used > stats.memory_bytes && tries < 10000; tries++) {
        usleep(1000);
        engine_get_stats(e, &stats);
    }
    assert_true(stats.memory_used <= stats.memory_bytes);
}

static void run_within(engine *e, const engine_request *requests, int n, outcome *o)
{
    engine_client *c = engine_client_open(e);
    memset(o, 0, (size_t)n * sizeof *o);
    for (int i = 0; i < n; i++)
        fixture_submit(c, &requests[i], &o[i]);
    for (int tokens = 1; tokens <= 500; tokens += 7) {
        expect_within_budget(e);
        fixture_collect(c, o, n, tokens);
    }
    fixture_collect(c, o, n, 0);
    engine_client_close(c);
    for (int i = 0; i < n; i++)
        assert_int_equal(o[i].usage.preemptions, 0);
}

/* All adapters in turn; how many are in memory afterwards. */
static int use_adapters(const fixture *f, engine *e, const adapter_id *ids, const outcome *want)
{
    outcome o;
    engine_stats stats;
    for (int i = 0; i < ADAPTERS; i++) {
        engine_request r = request_of(f, 1, ids[i], PROMPT, 4);
        run_within(e, &r, 1, &o);
        outcome_expect_equal(&o, &want[i], "adapter");
        outcome_free(&o);
    }
    engine_get_stats(e, &stats);
    return stats.adapters_loaded;
}

/* Long conversations and adapters take the same memory from each other: together they never exceed
 * the budget, and nothing that is computed depends on it. */
static void kv_and_adapters_share_a_budget(void **state)
{
    fixture *f = *state;
    memory_source sources[ADAPTERS] = {0};
    adapter_id ids[ADAPTERS];
    pf_err err = {0};
    engine_stats before, after;
    outcome want[ADAPTERS], long_want[CONVERSATIONS], o[CONVERSATIONS];
    engine_request r[CONVERSATIONS];
    for (int i = 0; i < ADAPTERS; i++)
        tiny_adapter(model_get_config(f->tiny), false, true, 4, (uint64_t)i + 1, &sources[i].blob);
    uint64_t budget = small_budget(f, &sources[0].blob);
    engine *e = fixture_engine(f->tiny, &(engine_options){.context = 512, .memory_bytes = budget});
    engine *alone = fixture_engine(f->tiny, &(engine_options){.context = 512});
    for (int i = 0; i < ADAPTERS; i++) {
        adapter_id id;
        adapter_source source = {.fetch = fetch, .ctx = &sources[i]};
        const buf *blob = &sources[i].blob;
        assert_int_equal(engine_adapter_add(e, blob->data, blob->len, &source, &ids[i], NULL, &err),
                         PF_OK);
        assert_int_equal(engine_adapter_add(alone, blob->data, blob->len, NULL, &id, NULL, &err),
                         PF_OK);
        engine_request one = request_of(f, 1, id, PROMPT, 4);
        fixture_run(alone, &one, 1, NULL, &want[i]);
    }
    for (int i = 0; i < CONVERSATIONS; i++) {
        r[i] = request_of(f, (uint64_t)i + 10, 0, 300 + i, 200);
        fixture_run(alone, &r[i], 1, NULL, &long_want[i]);
    }

    for (int round = 0; round < 2; round++) {
        int loaded = use_adapters(f, e, ids, want);
        assert_in_range(loaded, 2, 6);
        engine_get_stats(e, &before);
        run_within(e, r, CONVERSATIONS, o);
        engine_get_stats(e, &after);
        assert_true(after.adapters_loaded < loaded); /* KV took their room */
        assert_true(after.kv_tokens_cached > before.kv_tokens_cached);
        for (int i = 0; i < CONVERSATIONS; i++) {
            outcome_expect_equal(&o[i], &long_want[i], "conversation");
            outcome_free(&o[i]);
        }
        use_adapters(f, e, ids, want); /* and they take it back */
        engine_get_stats(e, &before);
        assert_true(before.kv_tokens_cached < after.kv_tokens_cached);
    }
    assert_int_equal(before.adapter_stalls, 0);
    assert_int_equal(before.decode_waits, 0);
    fixture_engine_close(e);
    fixture_engine_close(alone);
    for (int i = 0; i < ADAPTERS; i++) {
        assert_true(sources[i].fetches >= 2);
        buf_free(&sources[i].blob);
        outcome_free(&want[i]);
    }
    for (int i = 0; i < CONVERSATIONS; i++)
        outcome_free(&long_want[i]);
}

/* Of a DiReFT adapter of high rank, whose biases take more in memory than in its 16-bit blob. */
static void an_adapter_that_grows_in_memory_keeps_to_the_budget(void **state)
{
    fixture *f = *state;
    buf blob = {0};
    engine_stats stats;
    adapter_info info;
    adapter_id id;
    pf_err err = {0};
    outcome o[2] = {0}, after;
    tiny_adapter_as(KN_BF16, model_get_config(f->tiny), true, 512, 1, &blob);
    uint64_t context = small_budget(f, &blob);
    engine *e = fixture_engine(f->tiny, &(engine_options){.context = 512});
    assert_int_equal(engine_adapter_add(e, blob.data, blob.len, NULL, &id, &info, &err), PF_OK);
    fixture_engine_close(e);
    assert_true(info.packed_bytes > blob.len);
    context -= 6 * info.packed_bytes + 100;
    uint64_t budget = 2 * context + blob.len + (info.packed_bytes - blob.len) / 2;
    e = fixture_engine(f->tiny, &(engine_options){.context = 512, .memory_bytes = budget});
    engine_client *c = engine_client_open(e);
    for (int i = 0; i < 2; i++) { /* two whole contexts are reserved */
        engine_request r = request_of(f, (uint64_t)i, 0, PROMPT, 512 - PROMPT);
        fixture_submit(c, &r, &o[i]);
    }
    fixture_collect(c, o, 2, 1);
    pf_status status = engine_adapter_add(e, blob.data, blob.len, NULL, &id, NULL, &err);
    engine_get_stats(e, &stats);
    if (stats.running == 2) assert_int_equal(status, PF_BUSY); /* else they are done already */
    fixture_collect(c, o, 2, 0);
    /* An answer's end is told a moment before its pages are given back. */
    for (int tries = 0; status == PF_BUSY && tries < 60000; tries++) {
        usleep(1000);
        status = engine_adapter_add(e, blob.data, blob.len, NULL, &id, NULL, &err);
    }
    assert_int_equal(status, PF_OK);
    engine_request r = request_of(f, 1, id, PROMPT, 4);
    fixture_run(e, &r, 1, NULL, &after);
    assert_false(after.failed);
    expect_within_budget(e);
    for (int i = 0; i < 2; i++)
        outcome_free(&o[i]);
    outcome_free(&after);
    engine_client_close(c);
    fixture_engine_close(e);
    buf_free(&blob);
}

/* An adapter that was asked for in advance is there when it is needed. */
static void a_prefetched_adapter_is_there(void **state)
{
    fixture *f = *state;
    memory_source source = {0};
    adapter_id id;
    pf_err err = {0};
    engine_stats stats;
    outcome o;
    unsigned char digest[32];
    adapter_view view = {0};
    tiny_adapter(model_get_config(f->tiny), false, true, 4, 1, &source.blob);
    assert_int_equal(adapter_view_open(source.blob.data, source.blob.len, NULL, &view, &err),
                     PF_OK);
    memcpy(digest, view.digest, sizeof digest);
    adapter_view_close(&view);
    adapter_source from = {.fetch = fetch, .ctx = &source};
    engine *e = fixture_engine(f->tiny, NULL);
    assert_int_equal(engine_adapter_add_lazy(e, digest, &from, &id, &err), PF_OK);
    engine_adapter_prefetch(e, id + 1); /* none */
    engine_adapter_prefetch(e, id);
    engine_adapter_prefetch(e, id);
    do
        engine_get_stats(e, &stats);
    while (stats.adapters_loaded == 0);
    engine_request r = request_of(f, 1, id, PROMPT, 4);
    fixture_run(e, &r, 1, NULL, &o);
    assert_false(o.failed);
    assert_string_equal(o.waited, "");
    assert_int_equal(source.fetches, 1);
    outcome_free(&o);
    fixture_engine_close(e);
    buf_free(&source.blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_thousand_profiles_and_room_for_sixty_four),
        cmocka_unit_test(kv_and_adapters_share_a_budget),
        cmocka_unit_test(an_adapter_that_grows_in_memory_keeps_to_the_budget),
        cmocka_unit_test(a_prefetched_adapter_is_there),
    };
    return cmocka_run_group_tests_name("many_profiles", tests, setup, teardown);
}
