/* The one rule, end to end: the same request gives the same bits alone, in any batch, with any
 * chunks and threads, after interruption, with a warm and a cold cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sample.h"
#include "support/engine_fixture.h"
#include "support/tiny_adapter.h"

#define N_MIXED    32
#define N_ADAPTERS 8

static model *tiny;

static int open_model(void **state)
{
    (void)state;
    tiny = fixture_model(TINY_MODEL);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    fixture_model_close(tiny);
    return 0;
}

/* --- 32 mixed requests ------------------------------------------------------------------------ */

typedef struct {
    buf blobs[N_ADAPTERS];
    int32_t ids[N_MIXED][512];
    engine_request requests[N_MIXED];
    int adapter[N_MIXED]; /* -1: none */
    outcome alone[N_MIXED];
} mix;

/* Kinds lorap, direftp, lora, direft; all types; ranks 1 to 16; prompts of 1 to 300 tokens; every
 * policy. */
static void make_mix(mix *x)
{
    static const positions_policy policies[] = {POSITIONS_DEFAULT, POSITIONS_TURNS,
                                                POSITIONS_PROMPT, POSITIONS_ALL, POSITIONS_NONE};
    static const int ranks[N_ADAPTERS] = {1, 8, 16, 4, 3, 8, 2, 5};
    const model_config *config = model_get_config(tiny);
    memset(x, 0, sizeof *x);
    for (int i = 0; i < N_ADAPTERS; i++) {
        uint64_t seed = (uint64_t)i + 1;
        if (i & 2)
            tiny_adapter(config, i & 1, false, ranks[i], seed, &x->blobs[i]);
        else
            tiny_adapter_as(i < 4 ? KN_BF16 : KN_F16, config, i & 1, ranks[i], seed, &x->blobs[i]);
    }
    for (int i = 0; i < N_MIXED; i++) {
        engine_request *r = &x->requests[i];
        int n = i == 0 ? 1 : i == 1 ? 300 : 2 + (int)(sample_draw(3, (uint64_t)i) * 90);
        for (int t = 0; t < n; t++)
            x->ids[i][t] =
                (int32_t)(sample_draw(100 + (uint64_t)(i % 20), (uint64_t)t) * config->vocab);
        x->adapter[i] = i % 4 == 3 ? -1 : (i * 5) % N_ADAPTERS;
        *r = (engine_request){.ids = x->ids[i],
                              .n_ids = (size_t)n,
                              .positions = policies[i % 5],
                              .max_tokens = 3 + i % 11,
                              .ignore_eos = true,
                              .logprobs = 64,
                              .user = (uint64_t)(i % 7)};
        if (i % 3 == 1)
            r->sampling = (sampling_options){
                .temperature = 1.2f, .top_p = 0.95f, .has_seed = true, .seed = (uint64_t)i};
    }
}

static void free_outcomes(outcome *o, int n)
{
    for (int i = 0; i < n; i++)
        outcome_free(&o[i]);
}

static void add_adapters(engine *e, mix *x)
{
    adapter_id ids[N_ADAPTERS];
    pf_err err = {0};
    for (int i = 0; i < N_ADAPTERS; i++)
        if (engine_adapter_add(e, x->blobs[i].data, x->blobs[i].len, NULL, &ids[i], NULL, &err))
            fail_msg("%s", err.text);
    for (int i = 0; i < N_MIXED; i++)
        x->requests[i].adapter = x->adapter[i] < 0 ? 0 : ids[x->adapter[i]];
}

/* Runs all 32 at once (order NULL: as they are) and compares with the solo outcomes. */
static void expect_same(mix *x, const engine_options *options, const int *order, int rounds,
                        const char *where)
{
    outcome got[N_MIXED];
    engine *e = fixture_engine(tiny, options);
    add_adapters(e, x);
    for (int round = 0; round < rounds; round++) {
        fixture_run(e, x->requests, N_MIXED, order, got);
        for (int i = 0; i < N_MIXED; i++) {
            char name[80];
            snprintf(name, sizeof name, "%s, round %d, request %d", where, round, i);
            outcome_expect_equal(&got[i], &x->alone[i], name);
        }
        free_outcomes(got, N_MIXED);
    }
    fixture_engine_close(e);
}

static void run_alone(mix *x, const engine_options *options)
{
    for (int i = 0; i < N_MIXED; i++) {
        engine *e = fixture_engine(tiny, options);
        add_adapters(e, x);
        fixture_run(e, &x->requests[i], 1, NULL, &x->alone[i]);
        assert_false(x->alone[i].failed);
        assert_int_equal(x->alone[i].ids.len, x->requests[i].max_tokens);
        fixture_engine_close(e);
    }
}

/* few: the plain C reference is slow, and the same code decides what it is given. */
static void mixed_requests_are_bit_identical(const char *isa, engine_kv_type kv, bool few)
{
    mix *x = xmalloc(sizeof *x);
    make_mix(x);
    engine_options solo = {.isa = isa, .threads = 1, .kv_type = kv, .kv_tokens = 2048};
    run_alone(x, &solo);
    int reversed[N_MIXED], count = 0;
    for (int i = 0; i < N_MIXED; i++)
        reversed[i] = N_MIXED - 1 - i;

    static const int chunks[] = {1, 7, 64, 512}, threads[] = {1, 2, 4};
    for (size_t c = 0; c < 4; c++)
        for (size_t t = 0; t < 3; t++) {
            if (few ? c != 1 || t != 1 : c != 2 && t != (c & 1)) continue;
            engine_options o = {.isa = isa,
                                .threads = threads[t],
                                .step_tokens = chunks[c],
                                .kv_type = kv,
                                .kv_tokens = 8192};
            char where[64];
            snprintf(where, sizeof where, "chunks of %d, %d threads", chunks[c], threads[t]);
            expect_same(x, &o, count++ % 2 ? reversed : NULL, 1, where);
        }
    engine_options plain = {.isa = isa, .threads = 2, .kv_type = kv, .kv_tokens = 8192};
    expect_same(x, &plain, reversed, few ? 2 : 3, "cold and warm cache");
    plain.no_prefix_cache = true;
    plain.max_batch = 3;
    plain.kv_tokens = 512;
    expect_same(x, &plain, reversed, 1, "little memory");
    for (int i = 0; i < N_ADAPTERS; i++)
        buf_free(&x->blobs[i]);
    free_outcomes(x->alone, N_MIXED);
    free(x);
}

static void mixed_requests_on_the_reference(void **state)
{
    (void)state;
    mixed_requests_are_bit_identical("ref", ENGINE_KV_F32, true);
}

static void mixed_requests_on_the_best_instruction_set(void **state)
{
    (void)state;
    mixed_requests_are_bit_identical(NULL, ENGINE_KV_F16, false);
}

static void mixed_requests_with_keys_and_values_in_8_bits(void **state)
{
    (void)state;
    mixed_requests_are_bit_identical(NULL, ENGINE_KV_Q8, true);
}

/* KV-06: base model, prompt of 777 tokens, pieces of 1, 7, 64, 256 and whole. */
static void pieces_of_a_long_prompt_change_nothing(void **state)
{
    (void)state;
    static const int pieces[] = {777, 256, 64, 7, 1};
    int32_t ids[777];
    outcome want = {0};
    for (int i = 0; i < 777; i++)
        ids[i] = (int32_t)(sample_draw(9, (uint64_t)i) * model_get_config(tiny)->vocab);
    for (int i = 0; i < 5; i++) {
        engine *e = fixture_engine(tiny, &(engine_options){.step_tokens = pieces[i]});
        engine_request r = {
            .ids = ids, .n_ids = 777, .max_tokens = 64, .ignore_eos = true, .logprobs = 64};
        outcome got;
        fixture_run(e, &r, 1, NULL, &got);
        if (i == 0)
            want = got;
        else {
            outcome_expect_equal(&got, &want, "pieces");
            outcome_free(&got);
        }
        fixture_engine_close(e);
    }
    outcome_free(&want);
}

/* --- preemption ------------------------------------------------------------------------------- */

/* KV-08: answers without a limit outgrow the memory; the younger ones are interrupted again and
 * again and come out as if undisturbed, sampled ones with adapters too. */
static void interrupted_answers_are_the_same(void **state)
{
    (void)state;
    enum { N = 6, CONTEXT = 352 };
    static int32_t ids[N][40];
    engine_request requests[N];
    outcome want[N], got[N];
    buf blobs[2] = {{0}, {0}};
    adapter_id adapters[2];
    pf_err err = {0};
    tiny_adapter(model_get_config(tiny), false, true, 8, 5, &blobs[0]);
    tiny_adapter(model_get_config(tiny), true, false, 8, 6, &blobs[1]);
    for (int i = 0; i < N; i++) {
        for (int t = 0; t < 40; t++)
            ids[i][t] = (int32_t)(sample_draw(20 + (uint64_t)i, (uint64_t)t) * 500);
        requests[i] = (engine_request){.ids = ids[i],
                                       .n_ids = 30 + (size_t)i,
                                       .ignore_eos = true,
                                       .logprobs = 20,
                                       .user = (uint64_t)i};
        if (i & 1)
            requests[i].sampling =
                (sampling_options){.temperature = 1, .has_seed = true, .seed = 9};
    }
    for (int cache = 0; cache < 2; cache++) {
        int preemptions = 0, most = 0;
        for (int tight = 0; tight < 2; tight++) {
            engine_options o = {.context = CONTEXT,
                                .kv_tokens = tight ? CONTEXT + 160 : N * CONTEXT,
                                .no_prefix_cache = !cache};
            engine *e = fixture_engine(tiny, &o);
            for (int i = 0; i < 2; i++)
                assert_int_equal(engine_adapter_add(e, blobs[i].data, blobs[i].len, NULL,
                                                    &adapters[i], NULL, &err),
                                 PF_OK);
            for (int i = 0; i < N; i++)
                requests[i].adapter = i % 3 ? adapters[i % 3 - 1] : 0;
            fixture_run(e, requests, N, NULL, tight ? got : want);
            fixture_engine_close(e);
        }
        for (int i = 0; i < N; i++) {
            outcome_expect_equal(&got[i], &want[i], "interrupted");
            assert_int_equal(got[i].ids.len, CONTEXT - (int)requests[i].n_ids);
            assert_int_equal(got[i].reason, FINISH_CONTEXT);
            assert_int_equal(want[i].usage.preemptions, 0);
            preemptions += got[i].usage.preemptions;
            if (got[i].usage.preemptions > most) most = got[i].usage.preemptions;
        }
        assert_int_equal(got[0].usage.preemptions, 0);
        assert_true(preemptions >= 6 && most >= 3);
        free_outcomes(want, N);
        free_outcomes(got, N);
    }
    buf_free(&blobs[0]);
    buf_free(&blobs[1]);
}

/* KV-07: room for three contexts, ten users who want one each, then one that can never fit. */
static void more_than_memory_can_carry_waits_and_is_told(void **state)
{
    (void)state;
    int32_t ids[600] = {5, 6, 7, 8};
    engine_request requests[10];
    outcome alone, got[10];
    for (int i = 0; i < 10; i++)
        requests[i] = (engine_request){
            .ids = ids, .n_ids = 12, .max_tokens = 244, .ignore_eos = true, .user = (uint64_t)i};
    engine *e = fixture_engine(tiny, &(engine_options){.context = 256, .kv_tokens = 768});
    fixture_run(e, requests, 1, NULL, &alone);
    fixture_run(e, requests, 10, NULL, got);
    int told = 0, why = 0;
    for (int i = 0; i < 10; i++) {
        outcome_expect_equal(&got[i], &alone, "in turn");
        assert_int_equal(got[i].usage.preemptions, 0);
        told += got[i].waited[0] != '\0';
        why += strstr(got[i].waited, "768 tokens") != NULL;
    }
    assert_true(told >= 7 && why >= 1);

    engine_client *c = engine_client_open(e);
    pf_err err = {0};
    requests[0].n_ids = 600;
    assert_int_equal(engine_submit(c, &requests[0], NULL, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "600"));
    assert_non_null(strstr(err.text, "256"));
    engine_client_close(c);
    fixture_engine_close(e);
    outcome_free(&alone);
    free_outcomes(got, 10);
}

/* --- limits ----------------------------------------------------------------------------------- */

/* KV-01, KV-02 */
static void the_context_is_exact(void **state)
{
    (void)state;
    static int32_t ids[600];
    engine *e = fixture_engine(tiny, &(engine_options){.context = 512});
    engine_client *c = engine_client_open(e);
    pf_err err = {0};
    engine_request r = {.ids = ids, .n_ids = 511, .ignore_eos = true};
    outcome o = {0};
    fixture_submit(c, &r, &o);
    fixture_collect(c, &o, 1, 0);
    assert_int_equal(o.ids.len, 1);
    assert_int_equal(o.reason, FINISH_CONTEXT);
    outcome_free(&o);
    static const size_t too_long[] = {512, 513, 600};
    for (int i = 0; i < 3; i++) {
        char number[16];
        r.n_ids = too_long[i];
        assert_int_equal(engine_submit(c, &r, NULL, &err), PF_REFUSED);
        snprintf(number, sizeof number, "%zu", too_long[i]);
        assert_non_null(strstr(err.text, number));
        assert_non_null(strstr(err.text, "holds 512"));
    }
    engine_client_close(c);
    fixture_engine_close(e);

    e = fixture_engine(tiny, &(engine_options){.context = 256});
    r = (engine_request){.ids = ids, .n_ids = 200, .max_tokens = 1000, .ignore_eos = true};
    fixture_run(e, &r, 1, NULL, &o);
    assert_int_equal(o.ids.len, 56);
    assert_int_equal(o.reason, FINISH_CONTEXT);
    outcome_free(&o);
    r.max_tokens = 56;
    fixture_run(e, &r, 1, NULL, &o);
    assert_int_equal(o.ids.len, 56);
    assert_int_equal(o.reason, FINISH_LENGTH);
    outcome_free(&o);
    fixture_engine_close(e);
}

static void what_can_never_run_is_refused_by_name(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3}, bad_id[] = {1, 99999};
    engine *e = fixture_engine(tiny, &(engine_options){.context = 256});
    engine_client *c = engine_client_open(e);
    const struct {
        engine_request r;
        pf_status status;
        const char *word;
    } cases[] = {
        {{.ids = ids, .n_ids = 0}, PF_USAGE, "empty"},
        {{.text = "", .text_len = 0}, PF_USAGE, "empty"},
        {{.n_ids = 3}, PF_USAGE, "exactly one"},
        {{.ids = ids, .text = "x", .n_ids = 3}, PF_USAGE, "exactly one"},
        {{.ids = bad_id, .n_ids = 2}, PF_USAGE, "ids[1]"},
        {{.ids = ids, .n_ids = 3, .max_tokens = -1}, PF_USAGE, "max_tokens"},
        {{.ids = ids, .n_ids = 3, .logprobs = 65}, PF_USAGE, "logprobs"},
        {{.ids = ids, .n_ids = 3, .sampling = {.top_p = 2}}, PF_USAGE, "top_p"},
        {{.ids = ids, .n_ids = 3, .n_stops = 1, .stops = {""}}, PF_USAGE, "stop"},
        {{.ids = ids, .n_ids = 3, .n_stops = 17}, PF_USAGE, "stop"},
        {{.ids = ids, .n_ids = 3, .adapter = 77}, PF_NOT_FOUND, "77"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pf_err err = {0};
        pf_status status = engine_submit(c, &cases[i].r, NULL, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].word))
            fail_msg("case %zu: status %d, \"%s\"", i, (int)status, err.text);
    }
    engine_client_close(c);
    fixture_engine_close(e);
}

/* --- sampling, stops, text -------------------------------------------------------------------- */

/* KV-09 */
static void a_seed_belongs_to_its_request(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 88, 86, 262, 202};
    engine_request requests[6];
    for (int i = 0; i < 6; i++)
        requests[i] = (engine_request){.ids = ids,
                                       .n_ids = 5,
                                       .max_tokens = 24,
                                       .ignore_eos = true,
                                       .sampling = {.temperature = 1}};
    requests[0].sampling.has_seed = true;
    requests[0].sampling.seed = 7;
    outcome alone, got[6];
    engine *e = fixture_engine(tiny, NULL);
    fixture_run(e, requests, 1, NULL, &alone);
    fixture_run(e, requests, 6, NULL, got);
    outcome_expect_equal(&got[0], &alone, "seed 7");
    int different = 0;
    for (int i = 2; i < 6; i++)
        different += memcmp(got[i].ids.ids, got[1].ids.ids, 24 * sizeof(int32_t)) != 0;
    assert_true(different >= 3);
    fixture_engine_close(e);
    outcome_free(&alone);
    free_outcomes(got, 6);
}

static void stop_strings_end_the_text_where_they_begin(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 88, 86, 262, 202, 49, 68, 80};
    engine_request r = {.ids = ids, .n_ids = 8, .max_tokens = 60, .ignore_eos = true};
    outcome free_run, got;
    engine *e = fixture_engine(tiny, NULL);
    fixture_run(e, &r, 1, NULL, &free_run);
    /* A piece out of the middle of the text, wherever its tokens begin and end. */
    size_t at = free_run.text.len / 2, len = 5;
    while (((unsigned char)free_run.text.data[at] & 0xc0) == 0x80)
        at--;
    while (((unsigned char)free_run.text.data[at + len] & 0xc0) == 0x80)
        len++;
    char *stop = xmemdup0(free_run.text.data + at, len);
    size_t first = (size_t)(strstr(free_run.text.data, stop) - free_run.text.data);
    r.stops[r.n_stops++] = "never in there";
    r.stops[r.n_stops++] = stop;
    fixture_run(e, &r, 1, NULL, &got);
    assert_int_equal(got.reason, FINISH_STOP);
    assert_int_equal(got.text.len, first);
    assert_memory_equal(buf_str(&got.text), free_run.text.data, first);
    assert_true(got.ids.len < free_run.ids.len);
    fixture_engine_close(e);
    free(stop);
    outcome_free(&free_run);
    outcome_free(&got);
}

static void an_end_token_ends_an_answer_unless_ignored(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 88, 86, 262, 202};
    const model_config *config = model_get_config(tiny);
    engine *e = fixture_engine(tiny, NULL);
    outcome o;
    for (uint64_t seed = 0; seed < 200; seed++) { /* until one draws an end token */
        engine_request r = {.ids = ids,
                            .n_ids = 5,
                            .max_tokens = 100,
                            .sampling = {.temperature = 3, .has_seed = true, .seed = seed}};
        fixture_run(e, &r, 1, NULL, &o);
        bool ended = o.reason == FINISH_STOP;
        if (ended) {
            int32_t last = o.ids.ids[o.ids.len - 1];
            bool is_stop = false;
            for (int i = 0; i < config->n_stop_ids; i++)
                is_stop |= config->stop_ids[i] == last;
            assert_true(is_stop);
            size_t n = o.ids.len;
            outcome_free(&o);
            r.ignore_eos = true;
            fixture_run(e, &r, 1, NULL, &o);
            assert_int_equal(o.reason, FINISH_LENGTH);
            assert_true(o.ids.len == 100 && o.ids.ids[n - 1] == last);
        }
        outcome_free(&o);
        if (ended) break;
        assert_true(seed < 199);
    }
    fixture_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_requests_on_the_reference),
        cmocka_unit_test(mixed_requests_on_the_best_instruction_set),
        cmocka_unit_test(mixed_requests_with_keys_and_values_in_8_bits),
        cmocka_unit_test(pieces_of_a_long_prompt_change_nothing),
        cmocka_unit_test(interrupted_answers_are_the_same),
        cmocka_unit_test(more_than_memory_can_carry_waits_and_is_told),
        cmocka_unit_test(the_context_is_exact),
        cmocka_unit_test(what_can_never_run_is_refused_by_name),
        cmocka_unit_test(a_seed_belongs_to_its_request),
        cmocka_unit_test(stop_strings_end_the_text_where_they_begin),
        cmocka_unit_test(an_end_token_ends_an_answer_unless_ignored),
    };
    return cmocka_run_group_tests_name("engine", tests, open_model, close_model);
}
