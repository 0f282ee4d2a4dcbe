/* model_open: what every model must offer, digests, weights by role, and the real model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "models/catalogue.h"
#include "models/gguf.h"
#include "models/model.h"
#include "support/scratch.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#define MODELS "tests/data/models/"

static model *open_or_fail(const char *path)
{
    model *m = NULL;
    pf_err err;
    if (model_open(path, NULL, &m, &err) != PF_OK) fail_msg("%s", err.text);
    return m;
}

/* --- architectures ---------------------------------------------------------------------------- */

static void test_architectures(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name;
        architecture arch;
        int32_t layers, head_dim, vocab, stop;
        bool tied, bias, qk_norm, bos;
        kn_row_order order;
    } cases[] = {
        {MODELS "tiny-llama/tiny-llama-q4_1.gguf", "tiny-llama", ARCH_LLAMA, 3, 16, 590, 2, true,
         false, false, false, KN_ROWS_ROPE_PAIRS},
        {MODELS "tiny-llama/hf", "hf", ARCH_LLAMA, 3, 16, 590, 2, true, false, false, false,
         KN_ROWS_PLAIN},
        {MODELS "tiny-llama3/tiny-llama3-q8_0.gguf", "tiny-llama3", ARCH_LLAMA, 3, 16, 597, 596,
         false, false, false, true, KN_ROWS_ROPE_PAIRS},
        {MODELS "tiny-qwen2/tiny-qwen2-q8_0.gguf", "tiny-qwen2", ARCH_QWEN2, 3, 16, 640, 583, true,
         true, false, false, KN_ROWS_PLAIN},
        {MODELS "tiny-qwen3/tiny-qwen3-q8_0.gguf", "tiny-qwen3", ARCH_QWEN3, 2, 32, 586, 583, true,
         false, true, false, KN_ROWS_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model *m = open_or_fail(cases[i].path);
        const model_config *c = model_get_config(m);
        const model_weights *w = model_get_weights(m);
        assert_string_equal(model_name(m), cases[i].name);
        assert_string_equal(model_path(m), cases[i].path);
        assert_int_equal(c->arch, cases[i].arch);
        assert_int_equal(c->n_layers, cases[i].layers);
        assert_int_equal(c->head_dim, cases[i].head_dim);
        assert_int_equal(c->vocab, cases[i].vocab);
        assert_int_equal(c->stop_ids[0], cases[i].stop);
        assert_int_equal(w->tied, cases[i].tied);
        assert_int_equal(w->output.data == w->embedding.data, cases[i].tied);
        assert_int_equal(tokenizer_adds_bos(model_get_tokenizer(m)), cases[i].bos);
        for (int32_t l = 0; l < c->n_layers; l++) {
            const model_layer *layer = &w->layers[l];
            assert_int_equal(layer->q_bias != NULL, cases[i].bias);
            assert_int_equal(layer->v_bias != NULL, cases[i].bias);
            assert_int_equal(layer->q_norm != NULL, cases[i].qk_norm);
            assert_int_equal(layer->q.order, cases[i].order);
            assert_int_equal(layer->k.order, cases[i].order);
            assert_int_equal(layer->v.order, KN_ROWS_PLAIN);
            assert_int_equal(layer->q.rows, c->n_heads * c->head_dim);
            assert_int_equal(layer->k.rows, c->n_kv_heads * c->head_dim);
            assert_int_equal(layer->down.cols, c->ff);
        }
        model_close(m);
    }
}

/* The GGUF file's pairs of rows are the folder's halves: the order that the matrix states. */
static void test_row_order(void **state)
{
    (void)state;
    model *hf = open_or_fail(MODELS "tiny-llama/hf");
    model *file = open_or_fail(MODELS "tiny-llama/tiny-llama-f32.gguf");
    const model_config *c = model_get_config(hf);
    for (int32_t l = 0; l < c->n_layers; l++) {
        const model_layer *a = &model_get_weights(hf)->layers[l];
        const model_layer *b = &model_get_weights(file)->layers[l];
        const float *plain = a->k.data, *pairs = b->k.data;
        const size_t row = (size_t)c->hidden, half = (size_t)c->head_dim / 2;
        for (size_t head = 0; head < (size_t)c->n_kv_heads; head++)
            for (size_t i = 0; i < half; i++) {
                const float *p = plain + (head * 2 * half + i) * row;
                const float *q = pairs + (head * 2 * half + 2 * i) * row;
                assert_memory_equal(p, q, row * sizeof *p);
                assert_memory_equal(p + half * row, q + row, row * sizeof *p);
            }
        assert_memory_equal(a->v.data, b->v.data, (size_t)(a->v.rows * a->v.cols) * sizeof(float));
        assert_memory_equal(a->attn_norm, b->attn_norm, row * sizeof(float));
    }
    model_close(hf);
    model_close(file);
}

static void test_linear_map_shapes(void **state)
{
    (void)state;
    const model_config c = {.hidden = 10, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .ff = 30};
    static const int64_t want[MAP_COUNT][2] = {{10, 24}, {10, 12}, {10, 12}, {24, 10},
                                               {10, 30}, {10, 30}, {30, 10}};
    for (linear_map m = 0; m < MAP_COUNT; m++) {
        int64_t in, out;
        linear_map_shape(&c, m, &in, &out);
        assert_int_equal(in, want[m][0]);
        assert_int_equal(out, want[m][1]);
        assert_non_null(strstr(linear_map_path(m), linear_map_name(m)));
    }
}

/* --- options ---------------------------------------------------------------------------------- */

static void test_options(void **state)
{
    (void)state;
    pf_err err;
    model *m = NULL;
    const chat_template *t = NULL;
    const model_options named = {.template_name = "no-such-template"};
    assert_int_equal(model_open(MODELS "tiny-llama/hf", &named, &m, &err), PF_OK);
    assert_int_equal(model_template(m, &t, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "no-such-template"));
    model_close(m);
    const model_options wrong = {.pretokenizer_name = "no-such-rule"};
    assert_int_equal(model_open(MODELS "tiny-llama/hf", &wrong, &m, &err), PF_REFUSED);
    assert_null(m);
    /* A name takes the place of one that is unknown. */
    const model_options gpt2 = {.pretokenizer_name = "gpt2"};
    assert_int_equal(model_open("tests/data/hostile/gguf/pre-unknown.gguf", &gpt2, &m, &err),
                     PF_OK);
    model_close(m);
}

/* --- digest ----------------------------------------------------------------------------------- */

static char *scratch;

/* The digest of a copy of path with one byte at offset changed (SIZE_MAX: none). */
static void changed_digest(const buf *bytes, size_t offset, unsigned char out[32])
{
    buf copy = {0};
    buf_append(&copy, bytes->data, bytes->len);
    if (offset != SIZE_MAX) copy.data[offset] = (char)(copy.data[offset] ^ 1);
    char *path = scratch_write(scratch, "other-name.gguf", copy.data, copy.len);
    model *m = open_or_fail(path);
    memcpy(out, model_digest(m), 32);
    model_close(m);
    free(path);
    buf_free(&copy);
}

static void test_digest(void **state)
{
    (void)state;
    static const char path[] = MODELS "tiny-llama/tiny-llama-q8_0.gguf";
    unsigned char first[32], other[32];
    buf bytes = {0};
    gguf g;
    pf_err err;
    scratch = scratch_make();
    scratch_read(path, &bytes);
    assert_int_equal(gguf_parse(bytes.data, bytes.len, path, &g, &err), PF_OK);
    model *m = open_or_fail(path);
    memcpy(first, model_digest(m), 32);
    assert_ptr_equal(model_digest(m), model_digest(m));
    model_close(m);
    changed_digest(&bytes, SIZE_MAX, other); /* the path does not count */
    assert_memory_equal(first, other, 32);

    const tensor *t = tensor_table_find(&g.tensors, "blk.2.ffn_down.weight");
    size_t at = (size_t)((const char *)t->data - bytes.data);
    changed_digest(&bytes, at + t->bytes - 1, other);
    assert_memory_not_equal(first, other, 32);
    changed_digest(&bytes, at + t->bytes / 2, other);
    assert_memory_not_equal(first, other, 32);
    const gguf_value *v = gguf_find(&g, "llama.rope.freq_base");
    changed_digest(&bytes, (size_t)((const char *)v->data - bytes.data), other);
    assert_memory_not_equal(first, other, 32);
    v = gguf_find(&g, "general.name"); /* decides no result */
    changed_digest(&bytes, (size_t)((const char *)v->data - bytes.data), other);
    assert_memory_equal(first, other, 32);
    gguf_free(&g);
    buf_free(&bytes);
    scratch_remove(scratch);
}

static void *ask_digest(void *m)
{
    return (void *)(uintptr_t)model_digest(m);
}

static void test_digest_threads(void **state)
{
    (void)state;
    enum { N = 4 };
    pthread_t threads[N];
    model *m = open_or_fail(MODELS "tiny-llama/tiny-llama-f32.gguf");
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_digest, m), 0);
    for (int i = 0; i < N; i++) {
        void *digest = NULL;
        assert_int_equal(pthread_join(threads[i], &digest), 0);
        assert_ptr_equal(digest, model_digest(m));
    }
    model_close(m);
}

/* Dropping the mapped pages changes nothing that can be read. */
static void test_release_pages(void **state)
{
    (void)state;
    model *m = open_or_fail(MODELS "tiny-llama/tiny-llama-f32.gguf");
    const model_layer *l = &model_get_weights(m)->layers[0];
    const float *data = l->up.data;
    float before = data[17];
    model_release_pages(m);
    assert_true(data[17] == before);
    assert_true(isfinite(l->attn_norm[3]));
    model_close(m);
    model_close(NULL);
}

/* --- the real model --------------------------------------------------------------------------- */

static void test_real_model(void **state)
{
    (void)state;
    pf_err err;
    const char *path = getenv("PREFT_TEST_MODEL");
    if (!path || !path[0]) {
        print_message("skipped: PREFT_TEST_MODEL is not set\n");
        skip();
    }
    int64_t start = clock_monotonic_ns();
    model *m = open_or_fail(path);
    int64_t opened = clock_monotonic_ns();
    (void)model_digest(m);
    int64_t hashed = clock_monotonic_ns();
    const model_config *c = model_get_config(m);
    print_message("opened in %.0f ms, digest in %.0f ms\n", (double)(opened - start) / 1e6,
                  (double)(hashed - opened) / 1e6);
    assert_int_equal(c->n_layers, 30);
    assert_int_equal(c->hidden, 576);
    assert_int_equal(c->n_heads, 9);
    assert_int_equal(c->n_kv_heads, 3);
    assert_int_equal(c->ff, 1536);
    assert_int_equal(c->vocab, 49152);
    assert_int_equal(c->context, 8192);
    assert_int_equal(c->stop_ids[0], 2);
    assert_true(model_get_weights(m)->tied);
    assert_int_equal(tokenizer_bos(model_get_tokenizer(m)), 1);
    assert_false(tokenizer_adds_bos(model_get_tokenizer(m)));
    const chat_template *t = NULL;
    assert_int_equal(model_template(m, &t, &err), PF_OK);
    model_close(m);
    const catalogue_entry *known = catalogue_find("smollm2-135m");
    if (catalogue_verify(known, path, &err) != PF_OK) fail_msg("%s", err.text);
}

/* --- catalogue -------------------------------------------------------------------------------- */

static void test_catalogue(void **state)
{
    (void)state;
    pf_err err;
    char *path = NULL, *folder = scratch_make(), *empty = path_join(folder, "empty");
    catalogue_list list;
    size_t n = 0;
    assert_string_equal(catalogue_entries(&n)->name, "smollm2-135m");
    assert_null(catalogue_find("nothing"));
    assert_int_equal(catalogue_locate(empty, NULL, &path, &err), PF_NOT_FOUND);
    assert_non_null(strstr(err.text, "preft model pull"));
    assert_int_equal(catalogue_locate(empty, "smollm2-135m", &path, &err), PF_NOT_FOUND);
    assert_int_equal(catalogue_locate(empty, "/no/such/model", &path, &err), PF_NOT_FOUND);

    free(scratch_write(folder, "one.gguf", "x", 1));
    free(scratch_write(folder, "notes.txt", "x", 1));
    assert_int_equal(catalogue_locate(folder, NULL, &path, &err), PF_OK); /* the only one */
    assert_string_equal(path_base(path), "one.gguf");
    free(path);
    char *hf = path_join(folder, "two");
    free(scratch_write(hf, "config.json", "{}", 2));
    assert_int_equal(catalogue_locate(folder, "two", &path, &err), PF_OK);
    assert_string_equal(path, hf);
    free(path);
    assert_int_equal(catalogue_locate(folder, "one", &path, &err), PF_OK);
    free(path);
    assert_int_equal(catalogue_locate(folder, NULL, &path, &err), PF_NOT_FOUND);
    assert_non_null(strstr(err.text, "--model"));
    catalogue_scan(folder, &list);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.items[0].name, "one.gguf");
    assert_int_equal(list.items[0].size, 1);
    catalogue_list_free(&list);

    /* A file under the known name that is not the known file. */
    const catalogue_entry *known = catalogue_find("smollm2-135m");
    char *fake = scratch_write(folder, known->file, "x", 1);
    assert_int_equal(catalogue_locate(folder, NULL, &path, &err), PF_OK);
    assert_string_equal(path, fake);
    assert_int_equal(catalogue_verify(known, fake, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "98362432"));
    free(path);
    assert_int_equal(catalogue_pull(known, folder, NULL, NULL, &path, &err), PF_REFUSED);
    assert_null(path);
    free(fake);
    free(hf);
    free(empty);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_row_order),
        cmocka_unit_test(test_linear_map_shapes),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_digest_threads),
        cmocka_unit_test(test_release_pages),
        cmocka_unit_test(test_real_model),
        cmocka_unit_test(test_catalogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
