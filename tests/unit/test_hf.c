/* Hugging Face folders: configurations and tokenizers with one change, shards, and agreement with
 * the GGUF file of the same model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "models/weights.h"
#include "support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define MODELS "tests/data/models/"

_Static_assert((int)MODEL_MAX_GROUP <= KN_ATTEND_QUERIES, "what opens can be computed");

static char *scratch;

static int set_up(void **state)
{
    (void)state;
    scratch = scratch_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(scratch);
    return 0;
}

static json_t *read_json(const char *folder, const char *name)
{
    buf text = {0};
    pf_err err;
    json_t *value = NULL;
    char *path = path_join(folder, name);
    scratch_read(path, &text);
    if (json_parse(text.data, text.len, name, &value, &err) != PF_OK) fail_msg("%s", err.text);
    buf_free(&text);
    free(path);
    return value;
}

static void write_json(const char *folder, const char *name, const json_t *value)
{
    buf text = {0};
    json_append(&text, value);
    free(scratch_write(folder, name, text.data, text.len));
    buf_free(&text);
}

/* A copy of a small model's folder. Owned. */
static char *copy_of(const char *name)
{
    char *from = xasprintf(MODELS "%s/hf", name), *to = path_join(scratch, name);
    scratch_copy_folder(from, to);
    free(from);
    return to;
}

/* Opens model name with key of file set to value (owned; NULL: removed). */
static pf_status open_changed(const char *name, const char *file, const char *key, json_t *value,
                              model **out, pf_err *err)
{
    char *folder = copy_of(name);
    json_t *root = read_json(folder, file);
    if (value)
        json_object_set_new(root, key, value);
    else
        json_object_del(root, key);
    write_json(folder, file, root);
    json_decref(root);
    pf_status status = model_open(folder, NULL, out, err);
    free(folder);
    return status;
}

static void expect_refused(const char *name, const char *file, const char *key, const char *value,
                           const char *words)
{
    model *m = NULL;
    pf_err err = {0};
    json_t *json = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (open_changed(name, file, key, json, &m, &err) != PF_REFUSED)
        fail_msg("%s %s = %s is not refused", file, key, value ? value : "(absent)");
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
    if (!strstr(err.text, name)) fail_msg("no path in: %s", err.text);
}

static model *expect_opens(const char *name, const char *file, const char *key, const char *value)
{
    model *m = NULL;
    pf_err err = {0};
    json_t *json = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (open_changed(name, file, key, json, &m, &err) != PF_OK) fail_msg("%s", err.text);
    return m;
}

static void test_config_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"model_type", "\"mamba\"", "mamba"},
        {"architectures", "[\"Gemma2ForCausalLM\"]", "Gemma2ForCausalLM"},
        {"architectures", "[3]", "architectures"},
        {"num_hidden_layers", NULL, "num_hidden_layers"},
        {"num_hidden_layers", "0", "num_hidden_layers"},
        {"num_hidden_layers", "4", "missing tensor \"model.layers.3."},
        {"num_hidden_layers", "2", "model.layers.2."},
        {"num_hidden_layers", "\"3\"", "num_hidden_layers"},
        {"hidden_size", "63", "hidden_size"},
        {"hidden_size", "1e3", "hidden_size"},
        {"intermediate_size", "161", "shape"},
        {"vocab_size", "16777216", "vocab_size"},
        {"vocab_size", "591", "vocab_size"},
        {"max_position_embeddings", "0", "max_position_embeddings"},
        {"num_attention_heads", "3", "num_key_value_heads"},
        {"num_attention_heads", "256", "share"},
        {"num_key_value_heads", "3", "num_key_value_heads"},
        {"num_key_value_heads", "0", "num_key_value_heads"},
        {"head_dim", "15", "odd"},
        {"head_dim", "32", "shape"},
        {"rms_norm_eps", NULL, "rms_norm_eps"},
        {"rms_norm_eps", "0", "rms_norm_eps"},
        {"rms_norm_eps", "-1e-5", "rms_norm_eps"},
        {"rope_theta", NULL, "rope_theta"},
        {"rope_theta", "0", "rope_theta"},
        {"rope_scaling", "{\"type\":\"yarn\",\"factor\":2}", "yarn"},
        {"rope_scaling", "{\"type\":\"linear\"}", "factor"},
        {"rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8}", "low_freq_factor"},
        {"rope_scaling", "3", "rotary scaling"},
        {"hidden_act", "\"gelu\"", "gelu"},
        {"attention_bias", "true", "attention_bias"},
        {"mlp_bias", "true", "mlp_bias"},
        {"sliding_window", "128", "sliding_window"},
        {"layer_types", "[\"sliding_attention\"]", "sliding_attention"},
        {"partial_rotary_factor", "0.5", "partial_rotary_factor"},
        {"quantization_config", "{\"bits\":4}", "quantization_config"},
        {"tie_word_embeddings", "false", "missing tensor \"lm_head.weight\""},
        {"tie_word_embeddings", "1", "tie_word_embeddings"},
        {"eos_token_id", "590", "eos_token_id"},
        {"eos_token_id", "[2, -1]", "eos_token_id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused("tiny-llama", "config.json", cases[i].key, cases[i].value, cases[i].words);
    expect_refused("tiny-qwen2", "config.json", "use_sliding_window", "3", "use_sliding_window");
}

/* What says nothing new is accepted. */
static void test_config_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"sliding_window", "2048"},
        {"sliding_window", "null"},
        {"layer_types", "[\"full_attention\",\"full_attention\",\"full_attention\"]"},
        {"rope_scaling", "{\"rope_type\":\"default\"}"},
        {"hidden_act", "\"swish\""},
        {"partial_rotary_factor", "1.0"},
        {"eos_token_id", "[2, 0]"},
        {"architectures", NULL},
        {"some_new_key", "{\"x\": 1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        model_close(expect_opens("tiny-llama", "config.json", cases[i].key, cases[i].value));
    char *folder = copy_of("tiny-qwen2");
    json_t *root = read_json(folder, "config.json");
    json_object_set_new(root, "sliding_window", json_integer(4)); /* switched off beside it */
    write_json(folder, "config.json", root);
    json_decref(root);
    model *m = NULL;
    pf_err err;
    if (model_open(folder, NULL, &m, &err) != PF_OK) fail_msg("%s", err.text);
    model_close(m);
    free(folder);
}

static void test_rope(void **state)
{
    (void)state;
    model *plain = expect_opens("tiny-llama", "config.json", "x", "1");
    model *linear = expect_opens("tiny-llama", "config.json", "rope_scaling",
                                 "{\"type\":\"linear\",\"factor\":4.0}");
    const double *f = model_get_config(plain)->rope_inv_freq;
    const double *g = model_get_config(linear)->rope_inv_freq;
    for (int i = 0; i < 8; i++) {
        assert_true(fabs(f[i] - pow(100000.0, -2.0 * i / 16)) < 1e-12);
        assert_true(fabs(g[i] * 4 - f[i]) < 1e-12);
    }
    model_close(plain);
    model_close(linear);

    /* The same scaling as rope_freqs.weight in the GGUF file (float32 there). */
    pf_err err;
    model *hf = NULL, *file = NULL;
    assert_int_equal(model_open(MODELS "tiny-llama3/hf", NULL, &hf, &err), PF_OK);
    assert_int_equal(model_open(MODELS "tiny-llama3/tiny-llama3-q8_0.gguf", NULL, &file, &err),
                     PF_OK);
    f = model_get_config(hf)->rope_inv_freq;
    g = model_get_config(file)->rope_inv_freq;
    double largest_change = 0;
    for (int i = 0; i < 8; i++) {
        assert_true(fabs(f[i] - g[i]) <= 1e-6 * f[i]);
        double unscaled = pow(500000.0, -2.0 * i / 16);
        largest_change = fmax(largest_change, unscaled / f[i]);
    }
    assert_true(fabs(largest_change - 8) < 1e-9); /* the slowest pair is divided by the factor */
    model_close(hf);
    model_close(file);
}

static void expect_same_ids(const model *a, const model *b, const char *text)
{
    id_list x = {0}, y = {0};
    tokenizer_encode(model_get_tokenizer(a), text, strlen(text), true, true, &x);
    tokenizer_encode(model_get_tokenizer(b), text, strlen(text), true, true, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.ids, y.ids, x.len * sizeof *x.ids);
    id_list_free(&x);
    id_list_free(&y);
}

/* Folder and GGUF file describe one model: configuration, vocabulary, stops, template. */
static void test_agrees_with_gguf(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {MODELS "tiny-llama/hf", MODELS "tiny-llama/tiny-llama-f32.gguf"},
        {MODELS "tiny-llama3/hf", MODELS "tiny-llama3/tiny-llama3-q8_0.gguf"},
        {MODELS "tiny-qwen2/hf", MODELS "tiny-qwen2/tiny-qwen2-q8_0.gguf"},
        {MODELS "tiny-qwen3/hf", MODELS "tiny-qwen3/tiny-qwen3-q8_0.gguf"},
        {MODELS "tiny-wide/hf", MODELS "tiny-wide/tiny-wide-q4_k_m.gguf"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        pf_err err;
        model *a = NULL, *b = NULL;
        const chat_template *s = NULL, *t = NULL;
        if (model_open(pairs[i][0], NULL, &a, &err) != PF_OK) fail_msg("%s", err.text);
        if (model_open(pairs[i][1], NULL, &b, &err) != PF_OK) fail_msg("%s", err.text);
        const model_config *c = model_get_config(a), *d = model_get_config(b);
        assert_int_equal(c->arch, d->arch);
        assert_int_equal(c->n_layers, d->n_layers);
        assert_int_equal(c->hidden, d->hidden);
        assert_int_equal(c->n_heads, d->n_heads);
        assert_int_equal(c->n_kv_heads, d->n_kv_heads);
        assert_int_equal(c->head_dim, d->head_dim);
        assert_int_equal(c->ff, d->ff);
        assert_int_equal(c->vocab, d->vocab);
        assert_int_equal(c->context, d->context);
        assert_true(c->rms_eps == d->rms_eps);
        assert_int_equal(c->n_stop_ids, d->n_stop_ids);
        for (int k = 0; k < c->n_stop_ids; k++)
            assert_int_equal(c->stop_ids[k], d->stop_ids[k]);
        assert_int_equal(model_get_weights(a)->tied, model_get_weights(b)->tied);
        for (int32_t id = 0; id < c->vocab; id++)
            assert_int_equal(tokenizer_kind(model_get_tokenizer(a), id),
                             tokenizer_kind(model_get_tokenizer(b), id));
        expect_same_ids(a, b, "Hello, 1234 worlds!\n\n  caf\xc3\xa9 e\xcc\x81 <think> <|im_end|>");
        assert_int_equal(model_template(a, &s, &err), PF_OK);
        assert_int_equal(model_template(b, &t, &err), PF_OK);
        assert_string_equal(chat_template_name(s), chat_template_name(t));
        assert_memory_not_equal(model_digest(a), model_digest(b), 32); /* other bytes */
        model_close(a);
        model_close(b);
    }
}

static void test_stop_ids(void **state)
{
    (void)state;
    model *m = expect_opens("tiny-llama", "generation_config.json", "eos_token_id", "[3, 2]");
    const model_config *c = model_get_config(m);
    assert_int_equal(c->n_stop_ids, 3);
    assert_int_equal(c->stop_ids[0], 2); /* config.json comes first */
    assert_int_equal(c->stop_ids[1], 3);
    assert_int_equal(c->stop_ids[2], 0); /* <|endoftext|>, a marker of the vocabulary */
    model_close(m);
    expect_refused("tiny-llama", "generation_config.json", "eos_token_id", "\"x\"", "eos_token_id");
}

/* --- tokenizer.json --------------------------------------------------------------------------- */

static void test_tokenizer_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"normalizer", "{\"type\":\"Lowercase\"}", "Lowercase"},
        {"pre_tokenizer", "{\"type\":\"Whitespace\"}", "pre-tokenizer"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}",
         "pre-tokenizer"},
        {"post_processor", "{\"type\":\"BertProcessing\"}", "BertProcessing"},
        {"post_processor",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
         "{\"SpecialToken\":{\"id\":\"<|im_end|>\"}}],\"special_tokens\":{\"<|im_end|>\":"
         "{\"ids\":[2]}}}",
         "post_processor"},
        {"added_tokens", "[{\"id\":0,\"content\":\"other\",\"special\":true}]", "two tokens"},
        {"added_tokens", "[{\"id\":9999,\"content\":\"x\",\"special\":true}]", "vocab_size"},
        {"added_tokens", "[{\"id\":0,\"special\":true}]", "content"},
        {"added_tokens", "[{\"id\":0,\"content\":\"<|endoftext|>\",\"lstrip\":true}]", "lstrip"},
        {"model", "{\"type\":\"Unigram\"}", "Unigram"},
        {"model", "{\"type\":\"BPE\",\"byte_fallback\":true}", "byte_fallback"},
        {"model", "{\"type\":\"BPE\",\"merges\":[]}", "vocab"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4}}", "merges"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4,\"b\":4},\"merges\":[]}", "two tokens"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4},\"merges\":[[\"a\"]]}", "merge 0"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4},\"merges\":[[\"a b\",\"c\"]]}", "merge 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused("tiny-llama", "tokenizer.json", cases[i].key, cases[i].value,
                       cases[i].words);
    expect_refused("tiny-llama", "tokenizer_config.json", "chat_template", "3", "chat_template");
}

/* Merges as texts (older files) and as pairs (newer ones) are the same. */
static void test_merge_spellings(void **state)
{
    (void)state;
    char *folder = copy_of("tiny-llama");
    json_t *root = read_json(folder, "tokenizer.json");
    json_t *model_part = json_object_get(root, "model");
    json_t *pairs = json_object_get(model_part, "merges"), *texts = json_array();
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        json_t *pair = json_array_get(pairs, i);
        json_array_append_new(texts,
                              json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                           json_string_value(json_array_get(pair, 1))));
    }
    json_object_set_new(model_part, "merges", texts);
    write_json(folder, "tokenizer.json", root);
    json_decref(root);
    model *a = NULL, *b = NULL;
    pf_err err;
    assert_int_equal(model_open(MODELS "tiny-llama/hf", NULL, &a, &err), PF_OK);
    assert_int_equal(model_open(folder, NULL, &b, &err), PF_OK);
    expect_same_ids(a, b, "Merging the same way, whatever the file says.");
    assert_memory_equal(model_digest(a), model_digest(b), 32);
    model_close(a);
    model_close(b);
    free(folder);
}

/* A template list: the default one counts. Unknown ones are no reason to refuse the model. */
static void test_templates(void **state)
{
    (void)state;
    pf_err err;
    const chat_template *t = NULL;
    json_t *config = read_json(MODELS "tiny-llama/hf", "tokenizer_config.json");
    json_t *list =
        json_pack("[{s:s,s:s},{s:s,s:O}]", "name", "tool_use", "template", "{{ 1 }}", "name",
                  "default", "template", json_object_get(config, "chat_template"));
    buf text = {0};
    json_append(&text, list);
    model *m = expect_opens("tiny-llama", "tokenizer_config.json", "chat_template", text.data);
    assert_int_equal(model_template(m, &t, &err), PF_OK);
    model_close(m);
    m = expect_opens("tiny-llama", "tokenizer_config.json", "chat_template", "\"{{ unknown }}\"");
    assert_int_equal(model_template(m, &t, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "chatml"));
    assert_null(t);
    model_close(m);
    buf_free(&text);
    json_decref(list);
    json_decref(config);
}

/* --- shards ----------------------------------------------------------------------------------- */

static void expect_folder_refused(const char *folder, const char *words)
{
    model *m = NULL;
    pf_err err = {0};
    if (model_open(folder, NULL, &m, &err) != PF_REFUSED) fail_msg("%s opens", folder);
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
}

static void test_shards(void **state)
{
    (void)state;
    static const char index_name[] = "model.safetensors.index.json";
    static const char *const places[] = {"../model-00001-of-00002.safetensors",
                                         "/etc/x.safetensors",
                                         ".safetensors",
                                         "model.bin",
                                         "sub/model.safetensors",
                                         ".hidden.safetensors"};
    char *folder = copy_of("tiny-wide");
    json_t *index = read_json(folder, index_name);
    json_t *map = json_object_get(index, "weight_map");
    json_t *kept = json_deep_copy(map);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        json_object_set_new(map, "model.norm.weight", json_string(places[i]));
        write_json(folder, index_name, index);
        expect_folder_refused(folder, "which is not the name of a .safetensors file");
    }
    json_object_set(index, "weight_map", kept);
    map = json_object_get(index, "weight_map");
    const char *here = json_string_value(json_object_get(map, "model.norm.weight"));
    bool first = strcmp(here, "model-00001-of-00002.safetensors") == 0;
    json_object_set_new(map, "model.norm.weight",
                        json_string(first ? "model-00002-of-00002.safetensors"
                                          : "model-00001-of-00002.safetensors"));
    write_json(folder, index_name, index);
    expect_folder_refused(folder, "the index places it in");
    json_object_del(map, "model.norm.weight");
    write_json(folder, index_name, index);
    expect_folder_refused(folder, "the index places it in no file");
    json_object_set_new(index, "weight_map", json_object());
    write_json(folder, index_name, index);
    expect_folder_refused(folder, "names no tensors");
    json_decref(index);
    json_decref(kept);
    free(folder);
}

/* Data at an odd address is copied, with the same result. */
static void test_misaligned_data(void **state)
{
    (void)state;
    char *folder = copy_of("tiny-llama"), *path = path_join(folder, "model.safetensors");
    buf bytes = {0}, moved = {0};
    scratch_read(path, &bytes);
    uint64_t header = 0;
    memcpy(&header, bytes.data, 8);
    uint64_t longer = header + 1;
    buf_append(&moved, &longer, 8);
    buf_append(&moved, bytes.data + 8, header);
    buf_putc(&moved, ' ');
    buf_append(&moved, bytes.data + 8 + header, bytes.len - 8 - header);
    free(scratch_write(folder, "model.safetensors", moved.data, moved.len));
    model *a = NULL, *b = NULL;
    pf_err err;
    assert_int_equal(model_open(MODELS "tiny-llama/hf", NULL, &a, &err), PF_OK);
    assert_int_equal(model_open(folder, NULL, &b, &err), PF_OK);
    assert_memory_equal(model_digest(a), model_digest(b), 32);
    const kn_matrix *x = &model_get_weights(a)->layers[1].up;
    const kn_matrix *y = &model_get_weights(b)->layers[1].up;
    assert_int_equal((uintptr_t)y->data % sizeof(float), 0);
    assert_memory_equal(x->data, y->data, (size_t)(x->rows * x->cols) * sizeof(float));
    model_close(a);
    model_close(b);
    buf_free(&bytes);
    buf_free(&moved);
    free(path);
    free(folder);
}

static void test_incomplete_folders(void **state)
{
    (void)state;
    char *folder = copy_of("tiny-qwen3"), *path = path_join(folder, "tokenizer.json");
    assert_int_equal(unlink(path), 0);
    expect_folder_refused(folder, "tokenizer.json");
    free(path);
    path = path_join(folder, "model.safetensors");
    assert_int_equal(unlink(path), 0);
    free(scratch_write(folder, "pytorch_model.bin", "pickle", 6));
    expect_folder_refused(folder, "pickle files are not read");
    free(path);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_config_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_config_accepted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rope, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agrees_with_gguf, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tokenizer_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_merge_spellings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_templates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misaligned_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_incomplete_folders, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
