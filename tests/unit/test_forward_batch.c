/* The one rule, numerically: a row's logits are the same bits alone and in any batch, in any order,
 * chunk size and number of threads, with adapters of any kind beside it. */
#include "support/sequences.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS      "tests/data/models/"
#define ADAPTERS    "tests/data/adapters/tiny-llama/"
#define N_SEQUENCES 14
#define N_ADAPTERS  5

static const char *const adapter_names[N_ADAPTERS] = {
    ADAPTERS "lora-all7", ADAPTERS "lora-patterns", ADAPTERS "lora-qv", ADAPTERS "direft-all",
    ADAPTERS "direft-last"};

/* Lengths around the borders of pages (16), chunks and kernels' tiles. */
static const int lengths[N_SEQUENCES] = {1, 2, 7, 15, 16, 17, 31, 33, 48, 64, 65, 70, 90, 200};

static void open_or_die(const char *path, const char *isa, int threads, kn_kv_type kv, runner *r)
{
    const runner_options options = {
        .isa = isa, .threads = threads, .kv_type = kv, .step_rows = 1024};
    pf_err err;

    if (runner_open(path, &options, r, &err) != PF_OK) die("%s", err.text);
}

static void load_adapters(runner *r, packed_adapter *adapters[N_ADAPTERS])
{
    pf_err err;

    for (int i = 0; i < N_ADAPTERS; i++)
        if (runner_adapter(r, adapter_names[i], &adapters[i], &err) != PF_OK) die("%s", err.text);
}

static void free_adapters(packed_adapter *adapters[N_ADAPTERS])
{
    for (int i = 0; i < N_ADAPTERS; i++)
        packed_adapter_free(adapters[i]);
}

/* Plain, prefill-only and full-position sequences over all adapters. */
static void make_sequences(test_sequence *list, int vocab, packed_adapter *adapters[N_ADAPTERS])
{
    for (int i = 0; i < N_SEQUENCES; i++) {
        const int n = lengths[i];
        test_sequence_init(&list[i], n, vocab, 77u + (uint32_t)i);
        if (i % 4 == 3) continue;
        test_sequence_adapt(&list[i], adapters[i % N_ADAPTERS], 0, i % 2 ? n : (n + 1) / 2);
    }
}

static void free_sequences(test_sequence *list)
{
    for (int i = 0; i < N_SEQUENCES; i++)
        test_sequence_free(&list[i]);
}

static void assert_same(const test_sequence *base, const test_sequence *now, const char *what)
{
    for (int i = 0; i < N_SEQUENCES; i++) {
        int at = test_sequence_difference(&base[i], &now[i]);
        if (at >= 0)
            fail_msg("%s: sequence %d of %d tokens differs at token %d", what, i, base[i].n, at);
    }
}

/* Only the last token wants logits: the rest of the last block is not computed. */
static void compare_last_only(runner *r, const test_sequence *base)
{
    test_sequence list[N_SEQUENCES];

    for (int i = 0; i < N_SEQUENCES; i++) {
        test_sequence_copy(&base[i], &list[i]);
        memset(list[i].wanted, 0, (size_t)list[i].n * sizeof(bool));
        list[i].wanted[list[i].n - 1] = true;
    }
    test_sequences_run(r, list, N_SEQUENCES);
    assert_same(base, list, "logits of the last token only");
    free_sequences(list);
}

/* All chunk sizes on one thread, two of them on more. */
static void compare_orders(runner *r, const test_sequence *base, int threads)
{
    static const struct {
        int chunk;
        bool reverse, threaded;
    } orders[] = {{1, false, false}, {7, false, true},    {7, true, false},  {64, false, false},
                  {64, true, true},  {512, false, false}, {512, true, false}};
    test_sequence list[N_SEQUENCES];
    char what[96];

    for (int i = 0; i < N_SEQUENCES; i++)
        test_sequence_copy(&base[i], &list[i]);
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (threads > 1 && !orders[i].threaded) continue;
        r->options.chunk = orders[i].chunk;
        r->options.reverse = orders[i].reverse;
        snprintf(what, sizeof what, "one batch, chunks of %d, %s order, %d threads",
                 orders[i].chunk, orders[i].reverse ? "reversed" : "given", threads);
        test_sequences_run(r, list, N_SEQUENCES);
        assert_same(base, list, what);
    }
    r->options.chunk = 5;
    test_sequences_run_alone(r, list, N_SEQUENCES);
    assert_same(base, list, "alone, chunks of 5");
    free_sequences(list);
}

/* base[] = every sequence alone in one chunk on one thread. */
static void check_invariance(const char *path, const char *isa, kn_kv_type kv)
{
    test_sequence base[N_SEQUENCES];
    packed_adapter *adapters[N_ADAPTERS];
    runner r;

    if (!strstr(kn_isa_list(), isa)) skip();
    for (int threads = 1; threads <= 4; threads *= 2) {
        open_or_die(path, isa, threads, kv, &r);
        load_adapters(&r, adapters);
        if (threads == 1) {
            make_sequences(base, model_get_config(r.m)->vocab, adapters);
            r.options.chunk = 512;
            test_sequences_run_alone(&r, base, N_SEQUENCES);
        }
        /* The adapters of this backend are others than those of the first. */
        for (int i = 0; i < N_SEQUENCES; i++)
            if (base[i].adapter) base[i].adapter = adapters[i % N_ADAPTERS];
        compare_orders(&r, base, threads);
        if (threads == 2) compare_last_only(&r, base);
        free_adapters(adapters);
        runner_close(&r);
    }
    free_sequences(base);
}

static void test_ref_f32(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/hf", "ref", KN_KV_F32);
}

static void test_ref_quantized(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/tiny-llama-q4_1.gguf", "ref", KN_KV_F16);
}

static void test_avx2_f32(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/tiny-llama-f32.gguf", "avx2", KN_KV_F32);
}

static void test_avx2_q4_1(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/tiny-llama-q4_1.gguf", "avx2", KN_KV_F16);
}

static void test_avx2_q8_0(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/tiny-llama-q8_0.gguf", "avx2", KN_KV_F32);
}

static void test_avx512_q4_1(void **state)
{
    (void)state;
    check_invariance(MODELS "tiny-llama/tiny-llama-q4_1.gguf", "avx512", KN_KV_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_f32),   cmocka_unit_test(test_ref_quantized),
        cmocka_unit_test(test_avx2_f32),  cmocka_unit_test(test_avx2_q4_1),
        cmocka_unit_test(test_avx2_q8_0), cmocka_unit_test(test_avx512_q4_1),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
