/* The forward pass: where adapters act and where they don't, what a step reads, refusals. */
#include "support/memory.h"
#include "support/sanitizer.h"
#include "support/sequences.h"

#include "profiles/adapter_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL    "tests/data/models/tiny-llama/hf"
#define ADAPTERS "tests/data/adapters/tiny-llama/"

static runner r;
static int vocab;

static int open_model(void **state)
{
    const runner_options options = {.isa = "ref", .threads = 2, .kv_type = KN_KV_F32};
    pf_err err;

    (void)state;
    if (runner_open(MODEL, &options, &r, &err) != PF_OK) die("%s", err.text);
    vocab = model_get_config(r.m)->vocab;
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    runner_close(&r);
    return 0;
}

static packed_adapter *load(const char *folder)
{
    packed_adapter *a = NULL;
    pf_err err;

    if (runner_adapter(&r, folder, &a, &err) != PF_OK) die("%s", err.text);
    return a;
}

static kn_counters counters(void)
{
    kn_counters c;

    r.be->ops->counters(r.be, &c);
    return c;
}

/* --- where adapters act ----------------------------------------------------------------------- */

/* Runs 40 tokens plain and with the first 20 adapted; says from which token the logits differ and
 * whether later plain tokens do. */
static void compare_with_plain(const packed_adapter *a, int *first, bool *later)
{
    test_sequence plain, adapted;

    test_sequence_init(&plain, 40, vocab, 5);
    test_sequence_copy(&plain, &adapted);
    test_sequence_adapt(&adapted, a, 10, 20);
    test_sequences_run(&r, &plain, 1);
    test_sequences_run(&r, &adapted, 1);
    *first = test_sequence_difference(&plain, &adapted);
    memset(plain.wanted, 0, 20 * sizeof(bool));
    *later = test_sequence_difference(&plain, &adapted) >= 0;
    test_sequence_free(&plain);
    test_sequence_free(&adapted);
}

static void test_adapter_acts_from_its_first_token(void **state)
{
    static const char *const folders[] = {ADAPTERS "lora-all7", ADAPTERS "lora-qv",
                                          ADAPTERS "lora-layers", ADAPTERS "direft-all",
                                          ADAPTERS "direft-mid"};

    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        packed_adapter *a = load(folders[i]);
        bool later = false;
        int first = -1;
        compare_with_plain(a, &first, &later);
        assert_int_equal(first, 10);
        assert_true(later); /* plain tokens read the adapted cache */
        packed_adapter_free(a);
    }
}

static void test_direft_on_last_layer_changes_logits_only(void **state)
{
    packed_adapter *a = load(ADAPTERS "direft-last");
    bool later = true;
    int first = -1;

    (void)state;
    compare_with_plain(a, &first, &later);
    assert_int_equal(first, 10);
    assert_false(later);
    packed_adapter_free(a);
}

static void test_plain_rows_ignore_adapters_beside_them(void **state)
{
    packed_adapter *lora = load(ADAPTERS "lora-all7");
    packed_adapter *direft = load(ADAPTERS "direft-all");
    test_sequence alone, mixed[3];

    (void)state;
    test_sequence_init(&alone, 50, vocab, 9);
    test_sequences_run(&r, &alone, 1);
    for (int i = 0; i < 3; i++)
        test_sequence_copy(&alone, &mixed[i]);
    test_sequence_adapt(&mixed[0], lora, 0, 50);
    test_sequence_adapt(&mixed[2], direft, 0, 50);
    test_sequences_run(&r, mixed, 3);
    assert_int_equal(test_sequence_difference(&alone, &mixed[1]), -1);
    assert_int_equal(test_sequence_difference(&alone, &mixed[0]), 0);
    assert_int_equal(test_sequence_difference(&alone, &mixed[2]), 0);
    for (int i = 0; i < 3; i++)
        test_sequence_free(&mixed[i]);
    test_sequence_free(&alone);
    packed_adapter_free(lora);
    packed_adapter_free(direft);
}

/* Every row of a step has an adapter of its own, of three kinds and ranks in turn. */
static void test_many_adapters_in_one_step(void **state)
{
    static const char *const folders[] = {ADAPTERS "lora-all7", ADAPTERS "lora-patterns",
                                          ADAPTERS "direft-all"};
    enum { MANY = 60 };
    packed_adapter *adapters[MANY];
    test_sequence alone[MANY], together[MANY];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        adapters[i] = load(folders[i % 3]);
        test_sequence_init(&alone[i], 1 + i % 2, vocab, 100u + (uint32_t)i);
        test_sequence_adapt(&alone[i], adapters[i], 0, alone[i].n);
        test_sequence_copy(&alone[i], &together[i]);
    }
    test_sequences_run_alone(&r, alone, MANY);
    test_sequences_run(&r, together, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(test_sequence_difference(&alone[i], &together[i]), -1);
        test_sequence_free(&alone[i]);
        test_sequence_free(&together[i]);
        packed_adapter_free(adapters[i]);
    }
}

/* --- what a step reads ------------------------------------------------------------------------ */

static void test_adapter_bytes_are_read_for_adapted_rows_only(void **state)
{
    packed_adapter *a = load(ADAPTERS "lora-all7");
    const int32_t pages[] = {3};
    forward_row rows[3];
    pf_err err;

    (void)state;
    for (int i = 0; i < 3; i++)
        rows[i] = (forward_row){.token = i, .position = i, .pages = pages, .wants_logits = i == 2};
    const uint64_t before = counters().adapter_bytes;
    assert_int_equal(forward_run(r.f, rows, 3, &err), PF_OK);
    assert_int_equal(counters().adapter_bytes, before);
    rows[1].adapter = a;
    assert_int_equal(forward_run(r.f, rows, 3, &err), PF_OK);
    assert_true(counters().adapter_bytes > before);
    packed_adapter_free(a);
}

static void test_rows_without_logits(void **state)
{
    const int32_t pages[] = {3};
    const forward_row row = {.token = 1, .position = 0, .pages = pages};
    pf_err err;

    (void)state;
    assert_int_equal(forward_run(r.f, &row, 1, &err), PF_OK);
    assert_int_equal(forward_n_logits(r.f), 0);
    assert_int_equal(forward_run(r.f, NULL, 0, &err), PF_OK);
    assert_int_equal(forward_n_logits(r.f), 0);
}

static void test_logits_follow_the_order_of_rows(void **state)
{
    const int32_t pages[][1] = {{3}, {4}, {5}};
    forward_row rows[3];
    float *first = calloc((size_t)vocab, sizeof *first);
    pf_err err;

    (void)state;
    for (int i = 0; i < 3; i++)
        rows[i] = (forward_row){.token = 7 + i, .pages = pages[i], .wants_logits = true};
    assert_int_equal(forward_run(r.f, &rows[2], 1, &err), PF_OK);
    memcpy(first, forward_logits(r.f, 0), (size_t)vocab * sizeof *first);
    rows[1].wants_logits = false;
    assert_int_equal(forward_run(r.f, rows, 3, &err), PF_OK);
    assert_int_equal(forward_n_logits(r.f), 2);
    assert_memory_equal(first, forward_logits(r.f, 1), (size_t)vocab * sizeof *first);
    assert_memory_not_equal(first, forward_logits(r.f, 0), (size_t)vocab * sizeof *first);
    free(first);
}

/* --- the probe -------------------------------------------------------------------------------- */

typedef struct {
    int calls, last_rows, last_layer;
    bool finite;
} probe_record;

static void record_probe(void *ctx, int layer, const float *h, int n, int hidden)
{
    probe_record *p = ctx;

    p->calls++;
    p->last_rows = n;
    p->last_layer = layer;
    for (int i = 0; i < n * hidden; i++)
        p->finite = p->finite && isfinite(h[i]);
}

static void test_probe_sees_every_block(void **state)
{
    const int32_t pages[] = {3};
    const int n_layers = model_get_config(r.m)->n_layers;
    probe_record record = {.finite = true};
    forward_row rows[4];
    pf_err err;

    (void)state;
    for (int i = 0; i < 4; i++)
        rows[i] = (forward_row){.token = i, .position = i, .pages = pages, .wants_logits = i == 3};
    forward_set_probe(r.f, record_probe, &record);
    assert_int_equal(forward_run(r.f, rows, 4, &err), PF_OK);
    forward_set_probe(r.f, NULL, NULL);
    assert_int_equal(forward_run(r.f, rows, 4, &err), PF_OK);
    assert_int_equal(record.calls, n_layers + 1);
    assert_int_equal(record.last_layer, n_layers - 1);
    assert_int_equal(record.last_rows, 1);
    assert_true(record.finite);
}

/* --- forgetting ------------------------------------------------------------------------------- */

#define TRACE 8

typedef struct {
    int n_layers;
    float h[2][TRACE]; /* behind the last block but one, and behind the last: for the logits */
} trace;

static void record_trace(void *ctx, int layer, const float *h, int n, int hidden)
{
    trace *t = ctx;
    if (layer < t->n_layers - 2 || layer < 0) return;
    memcpy(t->h[layer - (t->n_layers - 2)], h + (size_t)(n - 1) * hidden, sizeof t->h[0]);
}

static void test_forget_overwrites_activations(void **state)
{
    const int32_t pages[] = {3};
    trace t = {.n_layers = model_get_config(r.m)->n_layers}; /* on the stack: not searched */
    float logits[TRACE];
    forward_row rows[4];
    pf_err err;

    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip();
    for (int i = 0; i < 4; i++)
        rows[i] =
            (forward_row){.token = 40 + i, .position = i, .pages = pages, .wants_logits = i == 3};
    forward_set_probe(r.f, record_trace, &t);
    assert_int_equal(forward_run(r.f, rows, 4, &err), PF_OK);
    forward_set_probe(r.f, NULL, NULL);
    memcpy(logits, forward_logits(r.f, 0), sizeof logits);
    for (int i = 0; i < 2; i++)
        assert_true(memory_count(t.h[i], sizeof t.h[i]) > 0);
    assert_true(memory_count(logits, sizeof logits) > 0);
    forward_forget(r.f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(memory_count(t.h[i], sizeof t.h[i]), 0);
    assert_int_equal(memory_count(logits, sizeof logits), 0);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void assert_refused(forward_row row, const char *words)
{
    const int32_t pages[] = {3};
    forward_row rows[2] = {{.token = 1, .pages = pages}, row};
    pf_err err;

    assert_int_equal(forward_run(r.f, rows, 2, &err), PF_USAGE);
    assert_non_null(strstr(err.text, "row 1"));
    assert_non_null(strstr(err.text, words));
}

static void test_rows_that_do_not_fit(void **state)
{
    static const int32_t page[] = {4}, far_page[] = {1 << 20}, negative_page[] = {-1};

    (void)state;
    assert_refused((forward_row){.token = vocab, .pages = page}, "vocabulary");
    assert_refused((forward_row){.token = -1, .pages = page}, "vocabulary");
    assert_refused((forward_row){.position = -1, .pages = page}, "position");
    assert_refused((forward_row){.position = 1 << 30, .pages = page}, "position");
    assert_refused((forward_row){.pages = far_page}, "page");
    assert_refused((forward_row){.pages = negative_page}, "page");
}

static void test_too_many_rows(void **state)
{
    const int32_t pages[] = {3};
    forward_row rows[300] = {0};
    pf_err err;

    (void)state;
    for (int i = 0; i < 300; i++)
        rows[i].pages = pages;
    assert_int_equal(forward_run(r.f, rows, 300, &err), PF_USAGE);
    assert_non_null(strstr(err.text, "300"));
}

static void test_options_out_of_range(void **state)
{
    static const forward_options bad[] = {
        {.max_rows = 0, .page_tokens = 16, .n_pages = 4},
        {.max_rows = 8, .max_logits = 9, .page_tokens = 16, .n_pages = 4},
        {.max_rows = 8, .page_tokens = 0, .n_pages = 4},
        {.max_rows = 8, .page_tokens = 16, .n_pages = -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        forward *f = NULL;
        pf_err err;
        assert_int_equal(forward_open(r.m, r.be, &bad[i], &f, &err), PF_USAGE);
        assert_null(f);
    }
}

static void test_fewer_logits_than_rows(void **state)
{
    const forward_options options = {
        .max_rows = 8, .max_logits = 1, .page_tokens = 16, .n_pages = 4, .kv_type = KN_KV_F16};
    const int32_t pages[] = {0};
    forward_row rows[8];
    forward *f = NULL;
    pf_err err;

    (void)state;
    assert_int_equal(forward_open(r.m, r.be, &options, &f, &err), PF_OK);
    for (int i = 0; i < 8; i++)
        rows[i] = (forward_row){.token = i, .position = i, .pages = pages, .wants_logits = i > 6};
    assert_int_equal(forward_run(f, rows, 8, &err), PF_OK);
    assert_int_equal(forward_n_logits(f), 1);
    rows[0].wants_logits = true;
    assert_int_equal(forward_run(f, rows, 8, &err), PF_USAGE);
    forward_close(f);
}

static void test_memory_is_counted(void **state)
{
    const forward_memory m = forward_get_memory(r.f);
    const model_config *c = model_get_config(r.m);

    (void)state;
    assert_true(m.weights >= (size_t)c->vocab * c->hidden * sizeof(float));
    assert_true(m.kv >= (size_t)4096 * c->n_layers * 2 * c->n_kv_heads * c->head_dim * 4);
    assert_true(m.work > 0);
}

/* --- packed adapters -------------------------------------------------------------------------- */

static void test_packed_adapter_info(void **state)
{
    packed_adapter *lora = load(ADAPTERS "lora-all7");
    packed_adapter *direft = load(ADAPTERS "direft-last");
    const packed_adapter_info *li = packed_adapter_get_info(lora);
    const packed_adapter_info *di = packed_adapter_get_info(direft);
    const int last = model_get_config(r.m)->n_layers - 1;

    (void)state;
    assert_false(li->direft);
    assert_true(di->direft);
    assert_true(li->bytes > 0 && di->bytes > 0);
    assert_true(li->max_rank > 0 && di->max_rank > 0);
    assert_memory_not_equal(li->digest, di->digest, sizeof li->digest);
    for (int map = 0; map < MAP_COUNT; map++) {
        assert_non_null(packed_adapter_lora(lora, 0, (linear_map)map));
        assert_null(packed_adapter_lora(direft, last, (linear_map)map));
    }
    assert_null(packed_adapter_direft(lora, last));
    assert_null(packed_adapter_direft(direft, 0));
    assert_non_null(packed_adapter_direft(direft, last));
    packed_adapter_free(lora);
    packed_adapter_free(direft);
}

static void test_damaged_blob_is_refused(void **state)
{
    buf blob = {0};
    packed_adapter *a = NULL;
    pf_err err;

    (void)state;
    assert_int_equal(adapter_file_import(ADAPTERS "lora-qv", r.m, NULL, &blob, NULL, &err), PF_OK);
    for (size_t cut = 0; cut < blob.len; cut += blob.len / 7) {
        pf_status status =
            packed_adapter_create(r.be, model_get_config(r.m), blob.data, cut, &a, &err);
        assert_int_not_equal(status, PF_OK);
        assert_null(a);
    }
    buf_free(&blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapter_acts_from_its_first_token),
        cmocka_unit_test(test_direft_on_last_layer_changes_logits_only),
        cmocka_unit_test(test_plain_rows_ignore_adapters_beside_them),
        cmocka_unit_test(test_many_adapters_in_one_step),
        cmocka_unit_test(test_adapter_bytes_are_read_for_adapted_rows_only),
        cmocka_unit_test(test_rows_without_logits),
        cmocka_unit_test(test_logits_follow_the_order_of_rows),
        cmocka_unit_test(test_probe_sees_every_block),
        cmocka_unit_test(test_forget_overwrites_activations),
        cmocka_unit_test(test_rows_that_do_not_fit),
        cmocka_unit_test(test_too_many_rows),
        cmocka_unit_test(test_options_out_of_range),
        cmocka_unit_test(test_fewer_logits_than_rows),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_packed_adapter_info),
        cmocka_unit_test(test_damaged_blob_is_refused),
    };

    return cmocka_run_group_tests(tests, open_model, close_model);
}
