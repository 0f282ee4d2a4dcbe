/* Steps of the forward pass and of the engine on device "cuda": recorded decode steps, what they
 * launch and copy, lack of memory, the same answers as the CPU's. */
#include "base/mem.h"
#include "cuda_emulation/emulation.h"
#include "engine/sample.h"
#include "support/cuda.h"
#include "support/engine_fixture.h"
#include "support/sequences.h"
#include "support/tiny_adapter.h"
#include "train/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODELS   "tests/data/models/"
#define ADAPTERS "tests/data/adapters/tiny-llama/"

static void open_runner(const char *path, const char *isa, kn_kv_type kv, runner *r)
{
    const runner_options options = {.isa = isa, .kv_type = kv};
    pf_err err;
    kn_backend *be = cuda_open(NULL); /* skips where there is no device */

    be->ops->close(be);
    if (runner_open(path, &options, r, &err) != PF_OK) die("%s", err.text);
}

static packed_adapter *load(runner *r, const char *name)
{
    packed_adapter *a;
    pf_err err;

    if (runner_adapter(r, name, &a, &err) != PF_OK) die("%s", err.text);
    return a;
}

/* --- isa "exact": the bits of a row ----------------------------------------------------------- */

#define N_SEQUENCES 6

static void test_exact(void **state)
{
    (void)state;
    static const int lengths[N_SEQUENCES] = {1, 7, 16, 17, 33, 60};
    static const struct {
        int chunk;
        bool reverse;
    } orders[] = {{7, true}, {64, false}, {1, false}};
    test_sequence base[N_SEQUENCES], list[N_SEQUENCES];
    packed_adapter *adapters[2];
    runner r;

    open_runner(MODELS "tiny-llama/tiny-llama-q4_1.gguf", "cuda-exact", KN_KV_F16, &r);
    adapters[0] = load(&r, ADAPTERS "lora-patterns");
    adapters[1] = load(&r, ADAPTERS "direft-all");
    for (int i = 0; i < N_SEQUENCES; i++) {
        const int n = lengths[i];
        test_sequence_init(&base[i], n, model_get_config(r.m)->vocab, 77u + (uint32_t)i);
        if (i % 3 < 2) test_sequence_adapt(&base[i], adapters[i % 3], 0, i % 2 ? n : (n + 1) / 2);
        test_sequence_copy(&base[i], &list[i]);
    }
    r.options.chunk = 512;
    test_sequences_run_alone(&r, base, N_SEQUENCES);
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        r.options.chunk = orders[o].chunk;
        r.options.reverse = orders[o].reverse;
        test_sequences_run(&r, list, N_SEQUENCES);
        for (int i = 0; i < N_SEQUENCES; i++) {
            int at = test_sequence_difference(&base[i], &list[i]);
            if (at >= 0)
                fail_msg("chunks of %d: sequence %d of %d tokens differs at token %d",
                         orders[o].chunk, i, base[i].n, at);
        }
    }
    for (int i = 0; i < N_SEQUENCES; i++) {
        test_sequence_free(&base[i]);
        test_sequence_free(&list[i]);
    }
    packed_adapter_free(adapters[0]);
    packed_adapter_free(adapters[1]);
    runner_close(&r);
}

/* --- decode steps ----------------------------------------------------------------------------- */

#define WRITERS 5
#define PROMPT  20
#define MOST    64

static int32_t pages[WRITERS][4];

/* The prompts of all writers, adapted where there is an adapter. */
static void read_prompts(runner *r, const packed_adapter *adapter)
{
    forward_row rows[WRITERS * PROMPT];
    pf_err err;
    int n = 0;

    for (int w = 0; w < WRITERS; w++) {
        for (int i = 0; i < 4; i++)
            pages[w][i] = w * 4 + i;
        for (int i = 0; i < PROMPT; i++)
            rows[n++] = (forward_row){.token = (w * 31 + i * 7) % 300,
                                      .position = i,
                                      .pages = pages[w],
                                      .adapter = w % 2 ? adapter : NULL};
    }
    if (forward_run(r->f, rows, n, &err) != PF_OK) fail_msg("%s", err.text);
}

static void make_step(forward_row *rows, int n, int position)
{
    for (int w = 0; w < n; w++)
        rows[w] = (forward_row){.token = (position * 13 + w) % 300,
                                .position = position,
                                .pages = pages[w],
                                .wants_logits = true};
}

static void ignore_probe(void *ctx, int layer, const float *h, int n, int hidden)
{
    (void)ctx, (void)layer, (void)h, (void)n, (void)hidden;
}

/* Recorded steps give the bits of plain ones (a probe keeps a step from being recorded), for every
 * number of rows, and launch nothing of an adapter whose prompts they go on from. */
static void test_decode(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    kn_counters before, after;
    runner r;
    pf_err err;

    open_runner(MODELS "tiny-llama/tiny-llama-q8_0.gguf", "cuda", KN_KV_F16, &r);
    const size_t vocab = (size_t)model_get_config(r.m)->vocab;
    packed_adapter *adapter = load(&r, ADAPTERS "lora-all7");
    float *plain = xcalloc(WRITERS * vocab, sizeof *plain);
    r.be->ops->counters(r.be, &before);
    read_prompts(&r, adapter);
    r.be->ops->counters(r.be, &after);
    assert_true(after.adapter_launches > before.adapter_launches);
    packed_adapter_free(adapter); /* its answers go on */
    before = after;
    for (int position = PROMPT; position < PROMPT + 30; position++) {
        const int n = 1 + position % WRITERS;
        if (position % 3 == 0) forward_forget(r.f); /* no step needs what former ones left */
        make_step(rows, n, position);
        forward_set_probe(r.f, ignore_probe, NULL);
        if (forward_run(r.f, rows, n, &err) != PF_OK) fail_msg("%s", err.text);
        for (int i = 0; i < n; i++)
            memcpy(plain + (size_t)i * vocab, forward_logits(r.f, i), vocab * sizeof *plain);
        forward_set_probe(r.f, NULL, NULL);
        if (forward_run(r.f, rows, n, &err) != PF_OK) fail_msg("%s", err.text);
        for (int i = 0; i < n; i++)
            ops_expect_same_bits(forward_logits(r.f, i), plain + (size_t)i * vocab, vocab,
                                 "recorded step");
    }
    r.be->ops->counters(r.be, &after);
    assert_int_equal(after.adapter_launches, before.adapter_launches);
    assert_int_equal(after.adapter_bytes, before.adapter_bytes);
    /* Classes of 1, 2, 4 and 8 rows: the first step of each is plain, the second is recorded. */
    assert_int_equal(after.replays - before.replays, 30 - 4 * 2);
    free(plain);
    runner_close(&r);
}

/* A replayed step counts the work of the step that it is. */
static void test_counts(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    kn_counters c[4];
    runner r;
    pf_err err;

    open_runner(MODELS "tiny-llama/tiny-llama-q8_0.gguf", "cuda", KN_KV_F16, &r);
    const model_config *config = model_get_config(r.m);
    read_prompts(&r, NULL);
    make_step(rows, 4, PROMPT);
    for (int i = 0; i < 4; i++) { /* plain, recorded, replayed */
        r.be->ops->counters(r.be, &c[i]);
        if (forward_run(r.f, rows, 4, &err) != PF_OK) fail_msg("%s", err.text);
    }
    assert_int_equal(c[3].replays - c[2].replays, 1);
    assert_int_equal(c[3].mac - c[2].mac, c[1].mac - c[0].mac);
    assert_int_equal(c[3].weight_bytes - c[2].weight_bytes, c[1].weight_bytes - c[0].weight_bytes);
    assert_int_equal(c[3].kv_bytes - c[2].kv_bytes, c[1].kv_bytes - c[0].kv_bytes);
    assert_int_equal(c[1].kv_bytes - c[0].kv_bytes, 2 * 2 * 4 * (PROMPT + 1) * config->n_layers *
                                                        config->n_kv_heads * config->head_dim);
    runner_close(&r);
}

/* Tokens that the device chooses: nothing but them comes back. */
static void test_choices(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    kn_sample samples[WRITERS] = {0};
    kn_choice choices[WRITERS];
    kn_counters before, after;
    sample_scratch scratch = {0};
    const sampling_options greedy = {0};
    runner r;
    pf_err err;

    open_runner(MODELS "tiny-llama/hf", "cuda", KN_KV_F32, &r);
    read_prompts(&r, NULL);
    make_step(rows, WRITERS, PROMPT);
    if (forward_run(r.f, rows, WRITERS, &err) != PF_OK) fail_msg("%s", err.text);
    assert_true(forward_can_choose(r.f));
    int32_t expected[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        expected[i] = sample_token(&scratch, &greedy, forward_logits(r.f, i),
                                   model_get_config(r.m)->vocab, NULL, 0, 0, 0);
        samples[i].n_top = -1;
    }
    r.be->ops->counters(r.be, &before);
    if (forward_run_choose(r.f, rows, WRITERS, samples, choices, &err) != PF_OK)
        fail_msg("%s", err.text);
    r.be->ops->counters(r.be, &after);
    assert_int_equal(after.downloaded_bytes - before.downloaded_bytes, WRITERS * 8);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(choices[i].token, expected[i]);
    sample_scratch_free(&scratch);
    runner_close(&r);
}

/* --- lack of memory --------------------------------------------------------------------------- */

static void set_memory(size_t bytes)
{
    void (*set)(size_t);
    *(void **)&set = cuda_emulation_symbol("cuda_emulation_set_memory");
    set(bytes);
}

static cuda_emulation_counts emulation_counts(void)
{
    void (*get)(cuda_emulation_counts *);
    cuda_emulation_counts counts;
    *(void **)&get = cuda_emulation_symbol("cuda_emulation_get");
    get(&counts);
    return counts;
}

static size_t memory_in_use(void)
{
    return emulation_counts().memory_in_use;
}

/* What people's texts passed through is wiped before it is given back, also where working memory
 * has grown: as much is given back unwiped (the model) as of a model that nobody asked. */
static void test_wiped(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    uint64_t unwiped[2];
    runner r;
    pf_err err;

    if (!cuda_is_emulated()) skip(); /* a real device doesn't show it */
    for (int asked = 0; asked < 2; asked++) {
        const uint64_t before = emulation_counts().unwiped;
        open_runner(MODELS "tiny-llama/tiny-llama-q8_0.gguf", "cuda", KN_KV_F16, &r);
        for (int round = 0; asked && round < 2; round++) {
            make_step(rows, round ? WRITERS : 1, PROMPT);
            for (int i = 0; i < 3; i++) /* plain, recorded, replayed */
                if (forward_run(r.f, rows, round ? WRITERS : 1, &err) != PF_OK)
                    fail_msg("%s", err.text);
            read_prompts(&r, NULL);
        }
        runner_close(&r);
        unwiped[asked] = emulation_counts().unwiped - before;
    }
    assert_true(unwiped[0] > 0);
    assert_int_equal(unwiped[1], unwiped[0]);
}

static void test_no_memory(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    kn_sample samples[WRITERS] = {0};
    kn_choice choices[WRITERS];
    runner r, other;
    pf_err err;

    if (!cuda_is_emulated()) skip(); /* a real device's memory isn't ours to fill */
    const runner_options options = {.isa = "cuda"};
    open_runner(MODELS "tiny-llama/hf", "cuda", KN_KV_F32, &r);
    read_prompts(&r, NULL);
    make_step(rows, WRITERS, PROMPT);
    set_memory(memory_in_use() + (40 << 20) + 4096); /* no room for a second model's pages */
    assert_int_equal(runner_open(MODELS "tiny-llama/hf", &options, &other, &err), PF_NO_MEMORY);
    assert_non_null(strstr(err.text, "are free"));
    set_memory(memory_in_use()); /* none for the working memory of sampling */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(forward_run_choose(r.f, rows, WRITERS, samples, choices, &err), PF_FAILED);
        assert_non_null(strstr(err.text, "sampling needs"));
    }
    set_memory((size_t)1 << 30); /* the next step is well again */
    if (forward_run_choose(r.f, rows, WRITERS, samples, choices, &err) != PF_OK)
        fail_msg("%s", err.text);
    set_memory((size_t)16 << 30);
    runner_close(&r);
}

/* No memory for a recorded step: it runs plainly, with the same bits. */
static void test_not_recorded(void **state)
{
    (void)state;
    forward_row rows[WRITERS];
    kn_counters c[3];
    runner r;
    pf_err err;

    if (!cuda_is_emulated()) skip();
    open_runner(MODELS "tiny-llama/tiny-llama-q8_0.gguf", "cuda", KN_KV_F16, &r);
    const size_t count = 4 * (size_t)model_get_config(r.m)->vocab;
    float *first = xcalloc(count, sizeof *first);
    read_prompts(&r, NULL);
    make_step(rows, 4, PROMPT);
    for (int i = 0; i < 3; i++) {
        if (forward_run(r.f, rows, 4, &err) != PF_OK) fail_msg("%s", err.text);
        if (i == 0) memcpy(first, forward_logits(r.f, 0), count * sizeof *first);
        ops_expect_same_bits(forward_logits(r.f, 0), first, count, "step without memory");
        r.be->ops->counters(r.be, &c[i]);
        set_memory(memory_in_use() + 1024);
    }
    assert_int_equal(c[2].replays, c[0].replays);
    assert_int_equal(c[2].mac - c[1].mac, c[1].mac - c[0].mac);
    assert_int_equal(c[2].launches - c[1].launches, c[1].launches - c[0].launches);
    set_memory((size_t)16 << 30);
    free(first);
    runner_close(&r);
}

/* --- the engine ------------------------------------------------------------------------------- */

#define REQUESTS 6

static const char *const prompts[REQUESTS] = {"one",
                                              "two words",
                                              "a third, longer prompt of them",
                                              "four",
                                              "the fifth one says more than that",
                                              "6"};

static void answer(const model *m, const char *device, engine_kv_type kv, outcome *outcomes)
{
    const engine_options options = {
        .device = device, .isa = strcmp(device, "cpu") ? NULL : "ref", .kv_type = kv};
    engine *e = fixture_engine(m, &options);
    engine_request requests[REQUESTS] = {0};
    adapter_id ids[2];
    pf_err err;

    for (int i = 0; i < 2; i++) {
        buf blob = {0};
        tiny_adapter(model_get_config(m), i == 1, true, 4, (uint64_t)i, &blob);
        if (engine_adapter_add(e, blob.data, blob.len, NULL, &ids[i], NULL, &err) != PF_OK)
            fail_msg("%s", err.text);
        buf_free(&blob);
    }
    for (int i = 0; i < REQUESTS; i++)
        requests[i] = (engine_request){.text = prompts[i],
                                       .text_len = strlen(prompts[i]),
                                       .adapter = i % 3 < 2 ? ids[i % 3] : 0,
                                       .sampling = {.temperature = i < 3 ? 0 : 0.9f,
                                                    .top_k = i == 4 ? 10 : 0,
                                                    .top_p = i == 5 ? 0.9f : 0,
                                                    .has_seed = true,
                                                    .seed = 7},
                                       .max_tokens = 12,
                                       .ignore_eos = true,
                                       .logprobs = i == 1 ? 3 : 0};
    fixture_run(e, requests, REQUESTS, NULL, outcomes);
    engine_stats stats;
    engine_get_stats(e, &stats);
    assert_string_equal(stats.device, device);
    assert_int_equal(stats.decode.adapter_bytes, 0);
    fixture_engine_close(e);
}

/* Six answers in one batch, with adapters, greedy and drawn: those of the plain backend. */
static void check_engine(const model *m, engine_kv_type kv)
{
    outcome cuda[REQUESTS] = {0}, cpu[REQUESTS] = {0};
    answer(m, "cuda", kv, cuda);
    answer(m, "cpu", kv, cpu);
    for (int i = 0; i < REQUESTS; i++) {
        if (cuda[i].failed) fail_msg("%s", cuda[i].message);
        assert_int_equal(cuda[i].ids.len, 12);
        assert_memory_equal(cuda[i].ids.ids, cpu[i].ids.ids, 12 * sizeof(int32_t));
    }
    for (int i = 0; i < 12 * 3; i++)
        assert_int_equal(cuda[1].top[i].id, cpu[1].top[i].id);
    for (int i = 0; i < REQUESTS; i++) {
        outcome_free(&cuda[i]);
        outcome_free(&cpu[i]);
    }
}

static void test_engine(void **state)
{
    (void)state;
    kn_backend *be = cuda_open(NULL);
    be->ops->close(be);
    model *m = fixture_model(MODELS "tiny-llama/hf");
    check_engine(m, ENGINE_KV_AUTO);
    check_engine(m, ENGINE_KV_Q8);
    fixture_model_close(m);
}

/* --- failures --------------------------------------------------------------------------------- */

static void plant(cuda_emulation_failure kind, uint64_t after)
{
    void (*function)(cuda_emulation_failure, uint64_t);
    *(void **)&function = cuda_emulation_symbol("cuda_emulation_plant_failure");
    function(kind, after);
}

/* Skips the test where there is no emulation; else the caller closes the engine and *m. */
static engine *emulated_engine(model **m)
{
    const engine_options options = {.device = "cuda", .context = 256, .kv_tokens = 1024};
    if (!cuda_is_emulated()) skip();
    *m = fixture_model(MODELS "tiny-llama/hf");
    return fixture_engine(*m, &options);
}

static void ask(engine *e, adapter_id adapter, outcome *o)
{
    const engine_request request = {
        .text = "four", .text_len = 4, .adapter = adapter, .max_tokens = 3, .ignore_eos = true};
    *o = (outcome){0};
    fixture_run(e, &request, 1, NULL, o);
}

static void expect_answer(engine *e)
{
    outcome o;
    ask(e, 0, &o);
    if (o.failed) fail_msg("%s", o.message);
    assert_int_equal(o.ids.len, 3);
    outcome_free(&o);
}

static void expect_failure(engine *e, adapter_id adapter, const char *says)
{
    outcome o;
    ask(e, adapter, &o);
    assert_true(o.failed);
    if (!strstr(o.message, says)) fail_msg("expected \"%s\": %s", says, o.message);
    outcome_free(&o);
}

/* An adapter for which the device has no room: its request is refused with what was asked for and
 * what is free, others go on, and it works when there is room again. */
static void test_adapter_without_memory(void **state)
{
    (void)state;
    model *m;
    engine *e = emulated_engine(&m);
    adapter_id id;
    buf blob = {0};
    pf_err err;
    outcome o;

    expect_answer(e); /* working memory is there */
    tiny_adapter(model_get_config(m), false, true, 4, 1, &blob);
    if (engine_adapter_add(e, blob.data, blob.len, NULL, &id, NULL, &err) != PF_OK)
        fail_msg("%s", err.text);
    set_memory(memory_in_use());
    expect_failure(e, id, "are free");
    expect_answer(e);
    set_memory((size_t)16 << 30);
    ask(e, id, &o);
    if (o.failed) fail_msg("%s", o.message);
    outcome_free(&o);
    buf_free(&blob);
    fixture_engine_close(e);
    fixture_model_close(m);
}

/* A kernel that is refused costs the requests of that step; a lost device every one, with the
 * reason, and the engine still closes. */
static void test_device_failures(void **state)
{
    (void)state;
    model *m;
    engine *e = emulated_engine(&m);

    plant(CUDA_EMULATION_REFUSED, 9);
    expect_failure(e, 0, "too many resources");
    expect_answer(e);
    plant(CUDA_EMULATION_LOST, 9);
    expect_failure(e, 0, "illegal memory access");
    expect_failure(e, 0, "illegal memory access");
    fixture_engine_close(e);
    plant(CUDA_EMULATION_NONE, 0);
    fixture_model_close(m);
}

/* --- failures while training ------------------------------------------------------------------ */

static train_job *start_training(engine *e)
{
    static const train_dataset_options data = {.policy = POSITIONS_TURNS, .max_tokens = 128};
    train_job_options options = {.shape = {.prefill_only = true, .rank = 2, .seed = 11},
                                 .optimizer = optimizer_defaults(1e-3),
                                 .epochs = 1,
                                 .batch = 1};
    train_dataset d = {0};
    train_job *j = NULL;
    pf_err err;

    for (int i = 0; i < 4; i++) {
        const chat_message messages[] = {{ROLE_USER, &"abcd"[i], 1, NULL, 0},
                                         {ROLE_ASSISTANT, "c", 1, NULL, 0}};
        if (train_dataset_add(&d, engine_model(e), messages, NULL, 2, &data, "pair", &err) != PF_OK)
            fail_msg("%s", err.text);
    }
    if (train_job_start(e, &d, &options, NULL, 0, NULL, 0, &j, &err) != PF_OK)
        fail_msg("%s", err.text);
    return j;
}

/* in_step: in a step, not in a measurement before it. */
static void expect_training_fails(engine *e, const char *says, bool in_step)
{
    train_job *j = start_training(e);
    train_progress p;
    do {
        train_job_wait(j, 1000);
        train_job_get(j, &p);
    } while (p.state == TRAIN_RUNNING || p.state == TRAIN_PAUSED);
    assert_int_equal(p.state, TRAIN_FAILED);
    if (!strstr(p.message, "the device failed") || !strstr(p.message, says))
        fail_msg("expected \"%s\": %s", says, p.message);
    assert_int_equal(strncmp(p.message, "step ", 5) == 0, in_step);
    train_job_free(j);
}

/* Wherever a kernel is refused, in the measurement before the first step or in a step's way back,
 * the job ends with the reason, and the engine goes on answering. */
static void test_training_failures(void **state)
{
    (void)state;
    static const struct {
        uint64_t place;
        bool in_step;
    } places[] = {{3, false}, {50, false}, {400, true}, {500, true}};
    model *m;
    engine *e = emulated_engine(&m);

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        plant(CUDA_EMULATION_REFUSED, places[i].place);
        expect_training_fails(e, "too many resources", places[i].in_step);
        plant(CUDA_EMULATION_NONE, 0);
    }
    expect_answer(e);
    plant(CUDA_EMULATION_LOST, 60);
    expect_training_fails(e, "illegal memory access", false);
    expect_failure(e, 0, "illegal memory access");
    fixture_engine_close(e);
    plant(CUDA_EMULATION_NONE, 0);
    fixture_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_wiped),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_not_recorded),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_adapter_without_memory),
        cmocka_unit_test(test_device_failures),
        cmocka_unit_test(test_training_failures),
    };
    return cmocka_run_group_tests_name("cuda_step", tests, NULL, NULL);
}
