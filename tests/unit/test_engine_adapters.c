/* Adapters in the running engine: which tokens they touch, what is kept apart, what happens when
 * they are dropped, replaced, evicted, or more than there are slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/adapter_cache.h"
#include "engine/hold.h"
#include "engine/sample.h"
#include "models/adapter_blob.h"
#include "support/engine_fixture.h"
#include "support/sanitizer.h"
#include "support/tiny_adapter.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define N_BLOBS 12

static model *tiny;
static buf blobs[N_BLOBS]; /* lorap and direftp by turns */
static int32_t prompt[400];

static int setup(void **state)
{
    (void)state;
    tiny = fixture_model(TINY_MODEL);
    for (int i = 0; i < N_BLOBS; i++)
        tiny_adapter(model_get_config(tiny), i & 1, true, 4, (uint64_t)i + 1, &blobs[i]);
    for (int i = 0; i < 400; i++)
        prompt[i] = (int32_t)(sample_draw(1, (uint64_t)i) * model_get_config(tiny)->vocab);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_BLOBS; i++)
        buf_free(&blobs[i]);
    fixture_model_close(tiny);
    return 0;
}

static engine_request request_of(uint64_t user, adapter_id adapter, int n, int max_tokens)
{
    return (engine_request){.ids = prompt,
                            .n_ids = (size_t)n,
                            .adapter = adapter,
                            .max_tokens = max_tokens,
                            .ignore_eos = true,
                            .logprobs = 20,
                            .user = user};
}

static adapter_id add(engine *e, const buf *blob)
{
    adapter_id id = 0;
    pf_err err = {0};
    if (engine_adapter_add(e, blob->data, blob->len, NULL, &id, NULL, &err))
        fail_msg("%s", err.text);
    return id;
}

/* The outcome in a fresh engine; blob NULL: base model. */
static outcome solo(const buf *blob, int n, int max_tokens)
{
    outcome o;
    engine *e = fixture_engine(tiny, NULL);
    engine_request r = request_of(1, blob ? add(e, blob) : 0, n, max_tokens);
    fixture_run(e, &r, 1, NULL, &o);
    fixture_engine_close(e);
    return o;
}

static bool same_ids(const outcome *a, const outcome *b)
{
    return a->ids.len == b->ids.len &&
           memcmp(a->ids.ids, b->ids.ids, a->ids.len * sizeof *a->ids.ids) == 0;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* --- a source with a counter, a delay and a failure ----------------------------------------- */

typedef struct {
    const buf *blob;
    atomic_int fetches, releases;
    atomic_bool hold, fail;
} source;

static pf_status fetch(void *ctx, buf *out, pf_err *err)
{
    source *s = ctx;
    atomic_fetch_add(&s->fetches, 1);
    while (atomic_load(&s->hold))
        pause_ms(1);
    if (atomic_load(&s->fail)) return err_set(err, PF_DAMAGED, "the stored adapter is damaged");
    buf_append(out, s->blob->data, s->blob->len);
    return PF_OK;
}

static void release(void *ctx)
{
    source *s = ctx;
    atomic_fetch_add(&s->releases, 1);
}

static adapter_source as_source(source *s)
{
    return (adapter_source){.fetch = fetch, .release = release, .ctx = s};
}

static adapter_id add_lazy(engine *e, source *s)
{
    adapter_view view = {0};
    adapter_id id = 0;
    pf_err err = {0};
    adapter_source src = as_source(s);
    assert_int_equal(adapter_view_open(s->blob->data, s->blob->len, NULL, &view, &err), PF_OK);
    assert_int_equal(engine_adapter_add_lazy(e, view.digest, &src, &id, &err), PF_OK);
    adapter_view_close(&view);
    return id;
}

/* --- marks ------------------------------------------------------------------------------------ */

/* LA-15: prompts and answers in one batch. Under "prompt" the answer is written by the base model
 * over adapted pages: forcing its tokens as plain ones onto the same prompt gives the same bits. */
static void an_adapter_acts_on_its_prompt_and_nothing_else(void **state)
{
    (void)state;
    outcome o, forced;
    engine *e = fixture_engine(tiny, &(engine_options){.no_prefix_cache = true});
    for (int kind = 0; kind < 2; kind++) {
        engine_request r = request_of(1, add(e, &blobs[kind]), 50, 12);
        r.want_prompt = true;
        fixture_run(e, &r, 1, NULL, &o);
        for (int i = 0; i < 50; i++)
            assert_int_equal(o.marks[i], 1);
        /* The prompt and 11 answer tokens as a conversation whose answer is plain. */
        int32_t ids[61];
        unsigned char parts[61];
        for (int i = 0; i < 61; i++) {
            ids[i] = i < 50 ? prompt[i] : o.ids.ids[i - 50];
            parts[i] = i < 50 ? PART_PROMPT : PART_ANSWER;
        }
        r.ids = ids;
        r.ids_parts = parts;
        r.n_ids = 61;
        r.max_tokens = 1;
        fixture_run(e, &r, 1, NULL, &forced);
        for (int i = 0; i < 61; i++)
            assert_int_equal(forced.marks[i], i < 50);
        assert_int_equal(forced.ids.ids[0], o.ids.ids[11]);
        assert_memory_equal(forced.top, o.top + 11 * o.n_top, (size_t)o.n_top * sizeof *o.top);
        /* Adapting the answer as well is another thing. */
        r.positions = POSITIONS_PROMPT;
        outcome_free(&forced);
        fixture_run(e, &r, 1, NULL, &forced);
        assert_memory_not_equal(forced.top, o.top + 11 * o.n_top, (size_t)o.n_top * sizeof *o.top);
        outcome_free(&forced);
        outcome_free(&o);
    }
    fixture_engine_close(e);
}

static void decode_reads_no_adapter_byte(void **state)
{
    (void)state;
    engine_request r[4];
    outcome o[4];
    engine_stats stats;
    engine *e = fixture_engine(tiny, NULL);
    for (int i = 0; i < 4; i++)
        r[i] = request_of((uint64_t)i, add(e, &blobs[i]), 40, 30);
    fixture_run(e, r, 4, NULL, o);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.decode_adapter_bytes, 0);
    assert_true(stats.steps > 30 && stats.generated_tokens == 120);
    for (int i = 0; i < 4; i++)
        outcome_free(&o[i]);
    r[0].positions = POSITIONS_ALL; /* the baseline reads them in every step */
    fixture_run(e, r, 1, NULL, o);
    engine_get_stats(e, &stats);
    assert_true(stats.decode_adapter_bytes > 0);
    outcome_free(&o[0]);
    fixture_engine_close(e);
}

/* --- cache isolation -------------------------------------------------------------------------- */

/* LA-10: the same prompt by three users with A, with B and without, in all six orders. */
static void cached_pages_never_cross_users_or_adapters(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    outcome want[3] = {solo(&blobs[0], 300, 8), solo(&blobs[1], 300, 8), solo(NULL, 300, 8)}, got;
    assert_false(same_ids(&want[0], &want[2]) && same_ids(&want[1], &want[2]));
    for (int k = 0; k < 6; k++)
        for (int users = 0; users < 2; users++) {
            engine *e = fixture_engine(tiny, NULL);
            adapter_id adapters[3] = {add(e, &blobs[0]), add(e, &blobs[1]), 0};
            for (int i = 0; i < 6; i++) { /* the second round is warm */
                int who = orders[k][i % 3];
                engine_request r = request_of(users ? (uint64_t)who : 1, adapters[who], 300, 8);
                fixture_run(e, &r, 1, NULL, &got);
                outcome_expect_equal(&got, &want[who], "isolation");
                assert_int_equal(got.usage.cached_tokens, i < 3 ? 0 : 299);
                outcome_free(&got);
            }
            fixture_engine_close(e);
        }
    for (int i = 0; i < 3; i++)
        outcome_free(&want[i]);
}

/* LA-11: having adapters, or having used them, changes no base answer. */
static void loaded_adapters_do_not_touch_the_base_model(void **state)
{
    (void)state;
    outcome want = solo(NULL, 60, 16), got;
    pf_err err = {0};
    engine *e = fixture_engine(tiny, NULL);
    adapter_id ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = add(e, &blobs[i]);
        engine_request r = request_of(1, ids[i], 60, 4);
        fixture_run(e, &r, 1, NULL, &got);
        outcome_free(&got);
    }
    for (int round = 0; round < 2; round++) {
        engine_request r = request_of(1, 0, 60, 16);
        fixture_run(e, &r, 1, NULL, &got);
        outcome_expect_equal(&got, &want, "base");
        outcome_free(&got);
        for (int i = 0; i < 3 && round == 0; i++)
            assert_int_equal(engine_adapter_drop(e, ids[i], &err), PF_OK);
    }
    fixture_engine_close(e);
    outcome_free(&want);
}

/* A retrained profile never meets its old pages, and the old content finds them again. */
static void pages_are_keyed_by_content(void **state)
{
    (void)state;
    outcome a = solo(&blobs[0], 200, 6), b = solo(&blobs[2], 200, 6), got;
    pf_err err = {0};
    engine *e = fixture_engine(tiny, NULL);
    adapter_id id = add(e, &blobs[0]);
    static const int version[] = {0, 2, 0}, cached[] = {0, 0, 199};
    for (int i = 0; i < 3; i++) {
        const buf *blob = &blobs[version[i]];
        if (i)
            assert_int_equal(engine_adapter_replace(e, id, blob->data, blob->len, NULL, NULL, &err),
                             PF_OK);
        engine_request r = request_of(1, id, 200, 6);
        fixture_run(e, &r, 1, NULL, &got);
        outcome_expect_equal(&got, version[i] ? &b : &a, "version");
        assert_int_equal(got.usage.cached_tokens, cached[i]);
        outcome_free(&got);
    }
    fixture_engine_close(e);
    outcome_free(&a);
    outcome_free(&b);
}

/* --- dropped, replaced ------------------------------------------------------------------------ */

/* LA-13, and the rule: what happens to the adapter after the first token changes nothing. */
static void an_answer_goes_on_without_its_adapter(void **state)
{
    (void)state;
    outcome want = solo(&blobs[0], 60, 150);
    pf_err err = {0};
    for (int what = 0; what < 3; what++) {
        engine *e = fixture_engine(tiny, NULL);
        engine_client *c = engine_client_open(e);
        adapter_id id = add(e, &blobs[0]);
        outcome o = {0}, next = {0};
        engine_stats stats;
        engine_request r = request_of(1, id, 60, 150);
        fixture_submit(c, &r, &o);
        fixture_collect(c, &o, 1, 1 + what * 10);
        if (what == 2)
            assert_int_equal(
                engine_adapter_replace(e, id, blobs[2].data, blobs[2].len, NULL, NULL, &err),
                PF_OK);
        else
            assert_int_equal(engine_adapter_drop(e, id, &err), PF_OK);
        assert_false(o.ended);
        fixture_collect(c, &o, 1, 0);
        outcome_expect_equal(&o, &want, "dropped after the first token");
        engine_get_stats(e, &stats);
        assert_int_equal(stats.adapters_registered, what == 2);
        if (what == 2) {
            outcome other = solo(&blobs[2], 60, 20);
            r.max_tokens = 20;
            fixture_submit(c, &r, &next);
            fixture_collect(c, &next, 1, 0);
            outcome_expect_equal(&next, &other, "the new version");
            outcome_free(&other);
            outcome_free(&next);
        } else
            assert_int_equal(engine_submit(c, &r, NULL, &err), PF_NOT_FOUND);
        engine_client_close(c);
        fixture_engine_close(e);
        outcome_free(&o);
    }
    outcome_free(&want);
}

static void a_prompt_that_is_not_read_fails_with_its_adapter(void **state)
{
    (void)state;
    pf_err err = {0};
    engine *e = fixture_engine(tiny, &(engine_options){.step_tokens = 1});
    engine_client *c = engine_client_open(e);
    outcome o[2];
    memset(o, 0, sizeof o);
    engine_request r = request_of(1, add(e, &blobs[0]), 400, 10), base = request_of(2, 0, 5, 10);
    fixture_submit(c, &r, &o[0]);
    fixture_submit(c, &base, &o[1]);
    assert_int_equal(engine_adapter_drop(e, r.adapter, &err), PF_OK);
    fixture_collect(c, o, 2, 0);
    assert_true(o[0].failed && strstr(o[0].message, "removed"));
    assert_false(o[1].failed);
    assert_int_equal(engine_adapter_drop(e, r.adapter, &err), PF_NOT_FOUND);
    engine_client_close(c);
    fixture_engine_close(e);
    outcome_free(&o[0]);
    outcome_free(&o[1]);
}

/* Weight sync: what was submitted before reads on with the old version. */
static void requests_keep_the_version_they_were_submitted_with(void **state)
{
    (void)state;
    outcome old = solo(&blobs[0], 300, 10), new = solo(&blobs[2], 300, 10), o[2];
    memset(o, 0, sizeof o);
    pf_err err = {0};
    engine *e = fixture_engine(tiny, &(engine_options){.step_tokens = 16});
    engine_client *c = engine_client_open(e);
    engine_request r = request_of(1, add(e, &blobs[0]), 300, 10);
    fixture_submit(c, &r, &o[0]);
    assert_int_equal(
        engine_adapter_replace(e, r.adapter, blobs[2].data, blobs[2].len, NULL, NULL, &err), PF_OK);
    fixture_submit(c, &r, &o[1]);
    fixture_collect(c, o, 2, 0);
    outcome_expect_equal(&o[0], &old, "old version");
    outcome_expect_equal(&o[1], &new, "new version");
    engine_stats stats;
    engine_get_stats(e, &stats);
    engine_client_close(c);
    fixture_engine_close(e);
    outcome_free(&old);
    outcome_free(&new);
    outcome_free(&o[0]);
    outcome_free(&o[1]);
}

/* --- tiers ------------------------------------------------------------------------------------ */

/* LA-12: twelve users, twelve adapters, one slot, three rounds. */
static void more_adapters_than_slots_take_turns(void **state)
{
    (void)state;
    outcome want[N_BLOBS], got[N_BLOBS];
    engine_request r[N_BLOBS];
    source sources[N_BLOBS];
    engine_stats stats;
    int waited = 0, fetches = 0;
    memset(sources, 0, sizeof sources);
    engine *e = fixture_engine(tiny, &(engine_options){.adapter_slots = 1});
    for (int i = 0; i < N_BLOBS; i++) {
        want[i] = solo(&blobs[i], 40 + i, 8);
        sources[i].blob = &blobs[i];
        r[i] = request_of((uint64_t)i, add_lazy(e, &sources[i]), 40 + i, 8);
    }
    for (int round = 0; round < 3; round++) {
        fixture_run(e, r, N_BLOBS, NULL, got);
        for (int i = 0; i < N_BLOBS; i++) {
            outcome_expect_equal(&got[i], &want[i], "slots");
            waited += got[i].waited[0] != '\0';
            outcome_free(&got[i]);
        }
        engine_get_stats(e, &stats);
        assert_true(stats.adapters_loaded <= 1);
    }
    assert_int_equal(stats.adapters_registered, N_BLOBS);
    fixture_engine_close(e);
    for (int i = 0; i < N_BLOBS; i++) {
        fetches += sources[i].fetches;
        assert_int_equal(sources[i].releases, 1);
        outcome_free(&want[i]);
    }
    assert_true(waited > 20 && fetches >= N_BLOBS);
}

/* By bytes: what is longest unused leaves, and comes back when it is needed again. */
typedef struct {
    engine_client *client;
    engine_request requests[3];
    outcome o[3];
    bool full; /* the adapters act on every token: one slot holds one request */
} held_case;

static void hold(engine *e, void *ctx)
{
    held_case *h = ctx;
    request_id ids[3];
    for (int i = 0; i < 3; i++)
        ids[i] = fixture_submit(h->client, &h->requests[i], &h->o[i]);
    for (int read = 1; read <= 3; read++) {
        if (engine_held_step(e, h->client) <= 0) die("prompt %d was not read", read);
        fixture_take(h->client);
        for (int i = 0; i < 3; i++)
            if (h->o[i].ids.len != (i < read)) die("answer %d is written too early", i);
        if (!h->full || read == 3) continue;
        if (engine_held_step(e, h->client) != 0) die("there was no room for the next one");
        engine_cancel(e, ids[read - 1]);
    }
}

/* One slot for three: prompt by prompt while the adapters' answers need them no more. Those that
 * need theirs on every token keep the slot, and there is nothing to be done for the others. */
static void a_held_engine_waits_for_adapters_that_come(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        held_case h = {.full = full};
        source sources[3];
        engine *e = fixture_engine(tiny, &(engine_options){.adapter_slots = 1});
        memset(sources, 0, sizeof sources);
        h.client = engine_client_open(e);
        for (int i = 0; i < 3; i++) {
            sources[i].blob = &blobs[i];
            h.requests[i] = request_of((uint64_t)i, add_lazy(e, &sources[i]), 10 + i, 4);
            if (full) h.requests[i].positions = POSITIONS_ALL;
        }
        engine_hold(e, hold, &h);
        fixture_collect(h.client, h.o, 3, 0);
        for (int i = 0; i < 3; i++) {
            assert_false(h.o[i].failed);
            assert_int_equal(sources[i].fetches, 1);
            outcome_free(&h.o[i]);
        }
        engine_client_close(h.client);
        fixture_engine_close(e);
    }
}

static void adapters_stay_within_their_budget(void **state)
{
    (void)state;
    source sources[3];
    adapter_id ids[3];
    adapter_info info[3];
    pf_err err = {0};
    engine_stats stats;
    outcome want[3], got;
    memset(sources, 0, sizeof sources);
    engine *probe = fixture_engine(tiny, NULL);
    for (int i = 0; i < 3; i++) {
        adapter_id id;
        const buf *blob = &blobs[2 * i]; /* of one size */
        assert_int_equal(
            engine_adapter_add(probe, blob->data, blob->len, NULL, &id, &info[i], &err), PF_OK);
        want[i] = solo(blob, 30, 4);
    }
    fixture_engine_close(probe);
    size_t budget = 2 * info[0].packed_bytes + 1000;
    engine *e =
        fixture_engine(tiny, &(engine_options){.adapter_bytes = budget, .no_prefix_cache = true});
    for (int i = 0; i < 3; i++) {
        sources[i].blob = &blobs[2 * i];
        adapter_source src = as_source(&sources[i]);
        assert_int_equal(engine_adapter_add(e, sources[i].blob->data, sources[i].blob->len, &src,
                                            &ids[i], NULL, &err),
                         PF_OK);
    }
    static const int order[] = {0, 1, 0, 2, 0, 1, 2};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        engine_request r = request_of(1, ids[order[i]], 30, 4);
        fixture_run(e, &r, 1, NULL, &got);
        outcome_expect_equal(&got, &want[order[i]], "budget");
        outcome_free(&got);
        engine_get_stats(e, &stats);
        assert_true(stats.adapter_bytes_used <= budget && stats.adapters_loaded <= 2);
    }
    assert_true(sources[0].fetches + sources[1].fetches + sources[2].fetches >= 3);
    assert_true(sources[0].fetches <= 1); /* used most */
    fixture_engine_close(e);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sources[i].releases, 1);
        outcome_free(&want[i]);
    }
}

static void a_slow_fetch_blocks_nobody(void **state)
{
    (void)state;
    source slow = {.blob = &blobs[0]};
    outcome want = solo(&blobs[0], 50, 8), o[2];
    memset(o, 0, sizeof o);
    engine *e = fixture_engine(tiny, &(engine_options){.max_batch = 1});
    engine_client *c = engine_client_open(e);
    atomic_store(&slow.hold, true);
    engine_request first = request_of(1, add_lazy(e, &slow), 50, 8),
                   second = request_of(2, 0, 9, 8);
    fixture_submit(c, &first, &o[0]);
    while (atomic_load(&slow.fetches) == 0)
        pause_ms(1);
    fixture_submit(c, &second, &o[1]);
    fixture_collect(c, &o[1], 1, 0);
    assert_false(o[0].started);
    assert_non_null(strstr(o[0].waited, "loaded"));
    atomic_store(&slow.hold, false);
    fixture_collect(c, o, 2, 0);
    outcome_expect_equal(&o[0], &want, "fetched");
    engine_client_close(c);
    fixture_engine_close(e);
    assert_int_equal(slow.releases, 1);
    outcome_free(&want);
    outcome_free(&o[0]);
    outcome_free(&o[1]);
}

static void a_failed_fetch_fails_its_request_and_can_be_tried_again(void **state)
{
    (void)state;
    source s = {.blob = &blobs[0]};
    outcome want = solo(&blobs[0], 50, 8), o;
    engine *e = fixture_engine(tiny, NULL);
    engine_request r = request_of(1, add_lazy(e, &s), 50, 8);
    atomic_store(&s.fail, true);
    fixture_run(e, &r, 1, NULL, &o);
    assert_true(o.failed && strstr(o.message, "damaged"));
    outcome_free(&o);
    atomic_store(&s.fail, false);
    fixture_run(e, &r, 1, NULL, &o);
    outcome_expect_equal(&o, &want, "second try");
    outcome_free(&o);
    source forged = {.blob = &blobs[0]};
    unsigned char digest[32] = {1, 2, 3};
    adapter_source src = as_source(&forged);
    pf_err err = {0};
    assert_int_equal(engine_adapter_add_lazy(e, digest, &src, &r.adapter, &err), PF_OK);
    fixture_run(e, &r, 1, NULL, &o);
    assert_true(o.failed && strstr(o.message, "digest"));
    outcome_free(&o);
    outcome_free(&want);
    fixture_engine_close(e);
}

/* Pages of this process in memory; 0 where a sanitizer keeps what was freed. */
static long resident_pages(void)
{
    long pages = 0;
    if (!MEMORY_IS_SEARCHABLE) return 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%*d %ld", &pages), 1);
    fclose(statm);
    return pages;
}

/* LA-14: loading and dropping leaves nothing behind. */
static void dropping_gives_memory_back(void **state)
{
    (void)state;
    engine_stats stats;
    pf_err err = {0};
    engine *e = fixture_engine(tiny, NULL);
    buf big = {0};
    tiny_adapter(model_get_config(tiny), false, true, 64, 1, &big);
    long early = 0;
    for (int i = 0; i < 200; i++) {
        if (i == 10) early = resident_pages();
        adapter_info info;
        adapter_id id;
        assert_int_equal(engine_adapter_add(e, big.data, big.len, NULL, &id, &info, &err), PF_OK);
        assert_true(info.packed_bytes > 0 && info.max_rank == 64 && info.prefill_only);
        engine_get_stats(e, &stats);
        assert_true(stats.adapter_bytes_used <= 2 * info.packed_bytes);
        assert_int_equal(engine_adapter_drop(e, id, &err), PF_OK);
    }
    assert_true(resident_pages() <= early + early / 20);
    engine_request r = request_of(1, 0, 4, 1);
    outcome o;
    fixture_run(e, &r, 1, NULL, &o); /* a turn of the engine */
    engine_get_stats(e, &stats);
    assert_int_equal(stats.adapter_bytes_used, 0);
    assert_int_equal(stats.adapters_loaded, 0);
    outcome_free(&o);
    buf_free(&big);
    fixture_engine_close(e);
}

/* LA-09: refused with both numbers; the running answer does not notice. */
static void an_adapter_above_the_limits_is_refused(void **state)
{
    (void)state;
    outcome want = solo(NULL, 30, 60), o = {0};
    pf_err err = {0};
    adapter_id id;
    engine *e = fixture_engine(tiny, &(engine_options){.adapter_bytes = 4096});
    engine_client *c = engine_client_open(e);
    engine_request r = request_of(1, 0, 30, 60);
    fixture_submit(c, &r, &o);
    assert_int_equal(engine_adapter_add(e, blobs[0].data, blobs[0].len, NULL, &id, NULL, &err),
                     PF_REFUSED);
    assert_non_null(strstr(err.text, "4096"));
    assert_int_equal(engine_adapter_add(e, "junk", 4, NULL, &id, NULL, &err), PF_REFUSED);
    fixture_collect(c, &o, 1, 0);
    outcome_expect_equal(&o, &want, "beside a refusal");
    engine_client_close(c);
    fixture_engine_close(e);
    outcome_free(&o);
    outcome_free(&want);
}

/* Every number of the adapter counts the same in all types, a DiReFT's bias too. */
static void an_adapter_acts_alike_in_every_type(void **state)
{
    (void)state;
    const kn_type types[] = {KN_F32, KN_BF16, KN_F16};
    outcome base = solo(NULL, 40, 1);
    for (int direft = 0; direft < 2; direft++) {
        outcome o[3];
        for (int i = 0; i < 3; i++) {
            buf blob = {0};
            tiny_adapter_as(types[i], model_get_config(tiny), direft, 5, 77, &blob);
            o[i] = solo(&blob, 40, 1);
            buf_free(&blob);
            assert_int_equal(o[i].ids.ids[0], o[0].ids.ids[0]);
            assert_true(fabsf(o[i].logprobs[0] - o[0].logprobs[0]) < 0.01f);
        }
        assert_true(fabsf(o[0].top[1].logprob - base.top[1].logprob) > 0.05f);
        for (int i = 0; i < 3; i++)
            outcome_free(&o[i]);
    }
    outcome_free(&base);
}

static void note_wake(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* A device that packs adapters on its own thread: one that was fetched ahead is dropped before that
 * thread gets to it. Neither its slot nor its bytes stay taken. */
static void what_was_fetched_and_dropped_takes_nothing(void **state)
{
    (void)state;
    atomic_int woken = 0;
    adapter_cache *c = NULL;
    adapter_view view = {0};
    pf_err err = {0};
    char message[256];
    kn_backend *be = kn_backend_open(&(kn_options){.threads = 1}, message, sizeof message);
    assert_non_null(be);
    be->adapters_anywhere = false;
    const adapter_cache_options options = {
        .bytes = 1 << 20, .slots = 1, .wake = note_wake, .ctx = &woken};
    const model_config *config = model_get_config(tiny);
    assert_int_equal(adapter_cache_open(config, be, &options, &c, &err), PF_OK);
    assert_int_equal(adapter_view_open(blobs[0].data, blobs[0].len, config, &view, &err), PF_OK);
    source s = {.blob = &blobs[0]};
    adapter_source from = as_source(&s);
    adapter_id id = adapter_cache_put_lazy(c, view.digest, &from);
    adapter_cache_prefetch(c, id);
    adapter_cache_begin_plan(c, options.bytes, options.bytes);
    adapter_cache_end_plan(c, options.bytes);
    while (atomic_load(&woken) == 0)
        pause_ms(1);
    assert_int_equal(adapter_cache_get_usage(c).coming, 1);
    assert_true(adapter_cache_drop(c, id));
    assert_int_equal(adapter_cache_get_usage(c).coming, 0);
    assert_int_equal(adapter_cache_held(c), 0);
    assert_int_equal(
        adapter_cache_put(c, blobs[1].data, blobs[1].len, NULL, &(adapter_id){0}, NULL, &err),
        PF_OK); /* the only slot */
    adapter_view_close(&view);
    adapter_cache_close(c);
    be->ops->close(be);
}

/* --- the same content ----------------------------------------------------------------------- */

static void the_same_content_is_in_memory_once(void **state)
{
    (void)state;
    enum { SAME = 3 };
    outcome want = solo(&blobs[0], 60, 8), other = solo(&blobs[1], 60, 8), got[SAME];
    source sources[SAME] = {{.blob = &blobs[0]}, {.blob = &blobs[0]}, {.blob = &blobs[1]}};
    adapter_id ids[SAME];
    adapter_info info;
    engine_request r[SAME];
    engine_stats stats;
    pf_err err = {0};
    engine *e = fixture_engine(tiny, &(engine_options){.adapter_slots = 1});
    for (int i = 0; i < SAME; i++)
        r[i] = request_of((uint64_t)i, ids[i] = add_lazy(e, &sources[i]), 60, 8);

    fixture_run(e, r, 2, NULL, got); /* in one batch, with one slot */
    for (int i = 0; i < 2; i++) {
        outcome_expect_equal(&got[i], &want, "shared");
        outcome_free(&got[i]);
    }
    assert_int_equal(sources[0].fetches + sources[1].fetches, 1);
    adapter_source again = as_source(&sources[1]);
    assert_int_equal(
        engine_adapter_replace(e, ids[1], blobs[0].data, blobs[0].len, &again, &info, &err), PF_OK);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.adapters_loaded, 1);
    assert_int_equal(stats.adapter_bytes_used, info.packed_bytes);

    assert_int_equal(engine_adapter_drop(e, ids[0], &err), PF_OK); /* the other one's stays */
    fixture_run(e, &r[1], 1, NULL, got);
    outcome_expect_equal(&got[0], &want, "after the other was dropped");
    outcome_free(&got[0]);
    assert_int_equal(sources[0].fetches + sources[1].fetches, 1);

    fixture_run(e, &r[2], 1, NULL, got); /* takes the slot */
    outcome_expect_equal(&got[0], &other, "another one");
    outcome_free(&got[0]);
    fixture_run(e, &r[1], 1, NULL, got); /* and back */
    outcome_expect_equal(&got[0], &want, "after it left memory");
    outcome_free(&got[0]);
    assert_int_equal(sources[0].fetches + sources[1].fetches, 2);
    for (int i = 1; i < SAME; i++)
        assert_int_equal(engine_adapter_drop(e, ids[i], &err), PF_OK);
    engine_get_stats(e, &stats);
    assert_int_equal(stats.adapters_loaded, 0);
    assert_int_equal(stats.adapter_bytes_used, 0);
    fixture_engine_close(e);
    assert_int_equal(sources[0].releases, 1);
    assert_int_equal(sources[1].releases, 2);
    outcome_free(&want);
    outcome_free(&other);
}

static void *add_and_drop(void *arg)
{
    engine *e = arg;
    engine_client *c = engine_client_open(e);
    for (int i = 0; i < 30; i++) {
        adapter_id id = add(e, &blobs[0]);
        engine_request r = request_of(9, id, 10, 2);
        outcome o = {0};
        fixture_submit(c, &r, &o);
        if (i % 2) fixture_collect(c, &o, 1, 0);
        assert_int_equal(engine_adapter_drop(e, id, NULL), PF_OK);
        if (i % 2 == 0) fixture_collect(c, &o, 1, 0); /* it may have failed: dropped too early */
        outcome_free(&o);
    }
    engine_client_close(c);
    return NULL;
}

static void the_same_content_comes_and_goes_on_many_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    engine_stats stats;
    engine *e = fixture_engine(tiny, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_and_drop, e), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    engine_request r = request_of(1, 0, 4, 1);
    outcome o;
    fixture_run(e, &r, 1, NULL, &o); /* a turn of the engine */
    engine_get_stats(e, &stats);
    assert_int_equal(stats.adapters_registered, 0);
    assert_int_equal(stats.adapters_loaded, 0);
    assert_int_equal(stats.adapter_bytes_used, 0);
    outcome_free(&o);
    fixture_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_acts_on_its_prompt_and_nothing_else),
        cmocka_unit_test(decode_reads_no_adapter_byte),
        cmocka_unit_test(an_adapter_acts_alike_in_every_type),
        cmocka_unit_test(cached_pages_never_cross_users_or_adapters),
        cmocka_unit_test(loaded_adapters_do_not_touch_the_base_model),
        cmocka_unit_test(pages_are_keyed_by_content),
        cmocka_unit_test(an_answer_goes_on_without_its_adapter),
        cmocka_unit_test(a_prompt_that_is_not_read_fails_with_its_adapter),
        cmocka_unit_test(requests_keep_the_version_they_were_submitted_with),
        cmocka_unit_test(more_adapters_than_slots_take_turns),
        cmocka_unit_test(a_held_engine_waits_for_adapters_that_come),
        cmocka_unit_test(adapters_stay_within_their_budget),
        cmocka_unit_test(a_slow_fetch_blocks_nobody),
        cmocka_unit_test(a_failed_fetch_fails_its_request_and_can_be_tried_again),
        cmocka_unit_test(dropping_gives_memory_back),
        cmocka_unit_test(the_same_content_is_in_memory_once),
        cmocka_unit_test(the_same_content_comes_and_goes_on_many_threads),
        cmocka_unit_test(what_was_fetched_and_dropped_takes_nothing),
        cmocka_unit_test(an_adapter_above_the_limits_is_refused),
    };
    return cmocka_run_group_tests_name("engine_adapters", tests, setup, teardown);
}
