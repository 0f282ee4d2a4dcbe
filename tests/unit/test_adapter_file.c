/* Adapter folders: LoRA as PEFT writes it and DiReFT, in and out. Every case is a good folder with
 * one change. */
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
#include "models/safetensors.h"
#include "profiles/adapter_file.h"
#include "support/scratch.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADAPTERS "tests/data/adapters/"

static model *base, *other_base;
static char *scratch;
static int made; /* folders, for fresh names */

static int open_models(void **state)
{
    (void)state;
    pf_err err;
    if (model_open("tests/data/models/tiny-llama/tiny-llama-f32.gguf", NULL, &base, &err) != PF_OK)
        fail_msg("%s", err.text);
    if (model_open("tests/data/models/tiny-qwen2/hf", NULL, &other_base, &err) != PF_OK)
        fail_msg("%s", err.text);
    scratch = scratch_make();
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    model_close(base);
    model_close(other_base);
    scratch_remove(scratch);
    return 0;
}

/* --- folders ---------------------------------------------------------------------------------- */

/* A tensor to write: a fresh array of `count` numbers, or a changed copy of a file's. */
typedef struct {
    char name[160];
    int64_t dims[2];
    int n_dims;
    float *values;
} free_tensor;

typedef struct {
    json_t *config;
    free_tensor *tensors;
    size_t n;
} adapter;

static size_t count_of(const free_tensor *t)
{
    return (size_t)(t->dims[0] * (t->n_dims == 2 ? t->dims[1] : 1));
}

static json_t *parse_json(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!value) fail_msg("test data is not JSON: %s", text);
    return value;
}

static adapter load_adapter(const char *folder)
{
    adapter a = {0};
    safetensors st;
    pf_err err;
    buf text = {0}, bytes = {0};
    char *config = path_join(folder, "adapter_config.json");
    char *weights = path_join(folder, "adapter_model.safetensors");
    scratch_read(config, &text);
    scratch_read(weights, &bytes);
    a.config = parse_json(text.data);
    assert_int_equal(safetensors_parse(bytes.data, bytes.len, weights, &st, &err), PF_OK);
    a.tensors = xcalloc(st.n + 4, sizeof *a.tensors);
    for (size_t i = 0; i < st.n; i++) {
        const safetensors_tensor *t = &st.tensors[i];
        free_tensor *copy = &a.tensors[a.n++];
        kn_type type;
        assert_true(safetensors_kn_type(t->dtype, &type));
        snprintf(copy->name, sizeof copy->name, "%s", t->name);
        copy->n_dims = t->n_dims;
        copy->dims[0] = t->dims[0];
        copy->dims[1] = t->n_dims == 2 ? t->dims[1] : 0;
        copy->values = xcalloc(count_of(copy) + 1, sizeof(float));
        kn_dequantize(type, t->data, copy->values, (int64_t)count_of(copy));
    }
    safetensors_free(&st);
    buf_free(&text);
    buf_free(&bytes);
    free(config);
    free(weights);
    return a;
}

static void adapter_free(adapter *a)
{
    json_decref(a->config);
    for (size_t i = 0; i < a->n; i++)
        free(a->tensors[i].values);
    free(a->tensors);
    *a = (adapter){0};
}

static void narrow(kn_type type, const float *from, uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = type == KN_F16 ? kn_f32_to_f16(from[i]) : kn_f32_to_bf16(from[i]);
}

/* Writes the folder with tensors of this type (every other one F32 if mixed). Owned path. */
static char *write_adapter(const adapter *a, kn_type type, bool mixed)
{
    safetensors_item *items = xcalloc(a->n + 1, sizeof *items);
    void **data = xcalloc(a->n + 1, sizeof *data);
    buf weights = {0}, text = {0};
    char *folder = xasprintf("%s/adapter-%d", scratch, made++);
    for (size_t i = 0; i < a->n; i++) {
        const free_tensor *t = &a->tensors[i];
        kn_type own = mixed && i % 2 ? KN_F32 : type;
        data[i] = xcalloc(count_of(t) + 1, sizeof(float));
        if (own == KN_F32)
            memcpy(data[i], t->values, count_of(t) * sizeof(float));
        else
            narrow(own, t->values, data[i], count_of(t));
        items[i] = (safetensors_item){.name = t->name,
                                      .type = own,
                                      .n_dims = t->n_dims,
                                      .dims = {t->dims[0], t->dims[1]},
                                      .data = data[i]};
    }
    safetensors_write(items, a->n, NULL, &weights);
    json_append(&text, a->config);
    free(scratch_write(folder, "adapter_model.safetensors", weights.data, weights.len));
    free(scratch_write(folder, "adapter_config.json", text.data, text.len));
    for (size_t i = 0; i < a->n; i++)
        free(data[i]);
    free(data);
    free(items);
    buf_free(&weights);
    buf_free(&text);
    return folder;
}

static free_tensor *tensor_called(adapter *a, const char *part)
{
    for (size_t i = 0; i < a->n; i++)
        if (strstr(a->tensors[i].name, part)) return &a->tensors[i];
    fail_msg("no tensor %s", part);
    return NULL;
}

static void drop_tensors(adapter *a, const char *part)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (strstr(a->tensors[i].name, part))
            free(a->tensors[i].values);
        else
            a->tensors[kept++] = a->tensors[i];
    }
    a->n = kept;
}

static void add_tensor(adapter *a, const char *name, int64_t rows, int64_t cols)
{
    free_tensor *t = &a->tensors[a->n++]; /* load_adapter leaves room for a few */
    *t = (free_tensor){.dims = {rows, cols}, .n_dims = cols ? 2 : 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->values = xcalloc(count_of(t) + 1, sizeof(float));
}

/* Replaces the first occurrence of a text in every tensor's name. */
static void rename_tensors(adapter *a, const char *from, const char *to)
{
    for (size_t i = 0; i < a->n; i++) {
        free_tensor *t = &a->tensors[i];
        char *at = strstr(t->name, from), name[160];
        if (!at) continue;
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - t->name), t->name, to,
                 at + strlen(from));
        memcpy(t->name, name, sizeof name);
    }
}

/* --- expectations ----------------------------------------------------------------------------- */

static void import_or_fail(const char *folder, const model *m, buf *blob, buf *warnings)
{
    pf_err err;
    if (adapter_file_import(folder, m, NULL, blob, warnings, &err) != PF_OK)
        fail_msg("%s", err.text);
}

static void view_or_fail(const buf *blob, adapter_view *v)
{
    pf_err err;
    if (adapter_view_open(blob->data, blob->len, model_get_config(base), v, &err) != PF_OK)
        fail_msg("%s", err.text);
}

/* Takes a. */
static void expect_refused(adapter a, const char *words)
{
    pf_err err = {0};
    buf blob = {0};
    char *folder = write_adapter(&a, KN_F32, false);
    if (adapter_file_import(folder, base, NULL, &blob, NULL, &err) != PF_REFUSED)
        fail_msg("not refused (%s)", words);
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
    assert_int_equal(blob.len, 0);
    adapter_free(&a);
    buf_free(&blob);
    free(folder);
}

static adapter with_key(const char *folder, const char *key, const char *value)
{
    adapter a = load_adapter(folder);
    if (value)
        json_object_set_new(a.config, key, parse_json(value));
    else
        json_object_del(a.config, key);
    return a;
}

#define ALL7   ADAPTERS "tiny-llama/lora-all7"
#define QV     ADAPTERS "tiny-llama/lora-qv"
#define DIREFT ADAPTERS "tiny-llama/direft-all"

/* The first item's scale after import of QV's copy with these keys. */
static float scale_with(const char *r_slora, const char *alpha)
{
    adapter_view v;
    buf blob = {0};
    adapter a = with_key(QV, "use_rslora", r_slora);
    if (alpha)
        json_object_set_new(a.config, "lora_alpha", parse_json(alpha));
    else
        json_object_del(a.config, "lora_alpha");
    char *folder = write_adapter(&a, KN_F32, false);
    import_or_fail(folder, base, &blob, NULL);
    view_or_fail(&blob, &v);
    float scale = v.items[0].scale;
    adapter_view_close(&v);
    adapter_free(&a);
    buf_free(&blob);
    free(folder);
    return scale;
}

/* --- reference folders ------------------------------------------------------------------------ */

/* Every folder: import, export, import again: the same bytes; without its configuration too. */
static void check_round_trip(const char *folder, const model *m)
{
    buf first = {0}, second = {0}, bare = {0}, third = {0};
    adapter_view v;
    pf_err err;
    struct stat info;
    char *copy = xasprintf("%s/export-%d", scratch, made++);
    import_or_fail(folder, m, &first, NULL);
    if (adapter_file_export(first.data, first.len, model_get_config(m), copy, false, &err) != PF_OK)
        fail_msg("%s", err.text);
    import_or_fail(copy, m, &second, NULL);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
        fail_msg("%s: another blob after export and import", folder);
    char *weights = path_join(copy, "adapter_model.safetensors");
    assert_int_equal(stat(weights, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);

    assert_int_equal(
        adapter_file_export(first.data, first.len, model_get_config(m), copy, false, &err),
        PF_FAILED); /* nothing is overwritten unasked */
    assert_int_equal(adapter_view_open(first.data, first.len, model_get_config(m), &v, &err),
                     PF_OK);
    assert_int_equal(adapter_blob_write(&v, model_get_config(m), NULL, NULL, &bare, &err), PF_OK);
    if (adapter_file_export(bare.data, bare.len, model_get_config(m), copy, true, &err) != PF_OK)
        fail_msg("%s", err.text);
    import_or_fail(copy, m, &third, NULL);
    if (bare.len != third.len || memcmp(bare.data, third.data, bare.len) != 0)
        fail_msg("%s: another blob after export without configuration", folder);
    adapter_view_close(&v);
    buf_free(&first);
    buf_free(&second);
    buf_free(&bare);
    buf_free(&third);
    free(weights);
    free(copy);
}

static void test_reference_folders(void **state)
{
    (void)state;
    const struct {
        const char *folder;
        const model *m;
    } sets[] = {{ADAPTERS "tiny-llama", base}, {ADAPTERS "tiny-qwen2", other_base}};
    for (size_t i = 0; i < 2; i++) {
        size_t n = 0;
        struct dirent *entry;
        DIR *dir = opendir(sets[i].folder);
        assert_non_null(dir);
        while ((entry = readdir(dir))) {
            char *path = path_join(sets[i].folder, entry->d_name);
            if (entry->d_name[0] != '.' && adapter_file_is_folder(path)) {
                check_round_trip(path, sets[i].m);
                n++;
            }
            free(path);
        }
        closedir(dir);
        assert_int_equal(n, 9);
    }
    assert_false(adapter_file_is_folder("tests/data/models/tiny-llama/hf"));
    assert_false(adapter_file_is_folder("tests/data/nothing"));
}

/* Ranks and scales of lora-patterns, worked out by hand from its adapter_config.json. */
static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        int32_t layer;
        linear_map map;
        int32_t rank;
        float scale;
    } wanted[] = {
        {0, MAP_Q, 2, 4},           {0, MAP_K, 4, 0.5f}, {0, MAP_O, 1, 8},    {1, MAP_O, 4, 2},
        {1, MAP_DOWN, 3, 5.0f / 3}, {2, MAP_GATE, 4, 4}, {2, MAP_DOWN, 4, 2},
    };
    buf blob = {0};
    adapter_view v;
    import_or_fail(ADAPTERS "tiny-llama/lora-patterns", base, &blob, NULL);
    view_or_fail(&blob, &v);
    assert_int_equal(v.n_items, 21);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const adapter_item *item = &v.items[wanted[i].layer * MAP_COUNT + (int)wanted[i].map];
        assert_int_equal(item->layer, wanted[i].layer);
        assert_int_equal(item->map, wanted[i].map);
        assert_int_equal(item->rank, wanted[i].rank);
        assert_true(item->scale == wanted[i].scale);
    }
    adapter_view_close(&v);
    buf_free(&blob);
}

/* The order of the keys decides: the first that matches counts. */
static void test_pattern_order(void **state)
{
    (void)state;
    static const char *const orders[2] = {"{\"q_proj\":1,\"layers.0.self_attn.q_proj\":9}",
                                          "{\"layers.0.self_attn.q_proj\":9,\"q_proj\":1}"};
    for (size_t i = 0; i < 2; i++) {
        adapter a = with_key(QV, "alpha_pattern", orders[i]);
        char *folder = write_adapter(&a, KN_F32, false);
        buf blob = {0};
        adapter_view v;
        import_or_fail(folder, base, &blob, NULL);
        view_or_fail(&blob, &v);
        assert_true(v.items[0].scale == (i ? 4.5f : 0.5f));
        assert_true(v.items[2].scale == 0.5f); /* layer 1, q */
        adapter_view_close(&v);
        adapter_free(&a);
        buf_free(&blob);
        check_round_trip(folder, base);
        free(folder);
    }
}

static void test_scales(void **state)
{
    (void)state;
    assert_true(scale_with("false", "4") == 2); /* 4 / 2 */
    assert_true(scale_with("true", "6") == (float)(6 / sqrt(2)));
    assert_true(scale_with("null", "0") == 0);   /* no effect, but allowed */
    assert_true(scale_with("false", NULL) == 4); /* the format's default, 8 */
    assert_true(scale_with("false", "-1.5") == -0.75f);
}

/* --- names ------------------------------------------------------------------------------------ */

static void test_spellings(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {".lora_A.weight", ".lora_A.default.weight"},
        {".lora_B.weight", ".lora_B.default.weight"},
        {"base_model.model.model.", "model."},
    };
    buf want = {0};
    import_or_fail(ALL7, base, &want, NULL);
    for (size_t i = 0; i < 3; i++) {
        buf blob = {0};
        adapter a = load_adapter(ALL7);
        rename_tensors(&a, changes[i][0], changes[i][1]);
        char *folder = write_adapter(&a, KN_F32, false);
        import_or_fail(folder, base, &blob, NULL);
        assert_int_equal(blob.len, want.len);
        assert_memory_equal(blob.data, want.data, want.len);
        adapter_free(&a);
        buf_free(&blob);
        free(folder);
    }
    buf_free(&want);

    static const char *const wrong[][3] = {
        {"base_model.model.", "language_model.", "0 tensor names match"},
        {"model.layers.2.", "model.layers.3.",
         "28 tensor names match the base model and 14 do not"},
        {"layers.1.", "blocks.1.", "28 tensor names match"},
        {".weight", ".other.weight", "0 tensor names match"},
        {"layers.0.", "layers.00.", "28 tensor names match"},
        {"lora_A", "lora_magnitude_vector", "DoRA"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        adapter a = load_adapter(ALL7);
        rename_tensors(&a, wrong[i][0], wrong[i][1]);
        expect_refused(a, wrong[i][2]);
    }
    adapter a = load_adapter(ALL7); /* beside the other spelling */
    add_tensor(&a, "model.layers.0.self_attn.q_proj.lora_A.weight", 4, 64);
    expect_refused(a, "same tensor in two spellings");
}

static void test_odd_tensors(void **state)
{
    (void)state;
    static const char *const extra[][2] = {
        {"rope_freqs.weight", "rope_freqs.weight"},
        {"base_model.model.lm_head.weight", "output layer"},
        {"base_model.model.model.embed_tokens.lora_embedding_A", "embeddings"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "DoRA"},
        {"base_model.model.lm_head.modules_to_save.weight", "lm_head"},
    };
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        adapter a = load_adapter(QV);
        add_tensor(&a, extra[i][0], 8, 0);
        expect_refused(a, extra[i][1]);
    }
    adapter a = load_adapter(QV);
    drop_tensors(&a, "layers.1.self_attn.v_proj.lora_B");
    expect_refused(a, "missing tensor \"base_model.model.model.layers.1.self_attn.v_proj.lora_B");
    a = load_adapter(QV);
    drop_tensors(&a, "layers.2.");
    expect_refused(a, "missing tensor \"base_model.model.model.layers.2.");
    a = load_adapter(QV);
    drop_tensors(&a, "");
    expect_refused(a, "no tensors");
}

static void test_shapes(void **state)
{
    (void)state;
    static const char name[] = "layers.1.self_attn.q_proj.lora_A";
    static const struct {
        int64_t rows, cols;
    } wrong[] = {{2, 128}, {64, 2}, {1, 64}, {0, 64}, {128, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        adapter a = load_adapter(QV);
        free_tensor *t = tensor_called(&a, name);
        t->dims[0] = wrong[i].rows;
        t->dims[1] = wrong[i].cols;
        t->n_dims = i == 4 ? 1 : 2;
        t->values = xrealloc_array(t->values, count_of(t) + 1, sizeof(float));
        memset(t->values, 0, count_of(t) * sizeof(float));
        expect_refused(a, "(layer 1) has the shape");
    }
    /* Made for another model. */
    pf_err err;
    buf blob = {0};
    adapter_summary s;
    assert_int_equal(adapter_file_inspect(QV, NULL, NULL, &s, NULL, &err), PF_OK);
    assert_int_equal(s.n_items, 6);
    assert_int_equal(s.min_rank, 2);
    assert_int_equal(s.parameters, 1344);
    assert_string_equal(s.base_name, "tiny-llama");
    buf_free(&blob);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void test_config_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"peft_type", "\"ADALORA\"", "ADALORA"},
        {"peft_type", "\"LOHA\"", "LOHA"},
        {"peft_type", "\"IA3\"", "IA3"},
        {"peft_type", "3", "peft_type"},
        {"task_type", "\"SEQ_CLS\"", "SEQ_CLS"},
        {"use_dora", "true", "use_dora"},
        {"bias", "\"lora_only\"", "bias"},
        {"lora_bias", "true", "lora_bias"},
        {"modules_to_save", "[\"embed_tokens\"]", "embed_tokens"},
        {"trainable_token_indices", "[1]", "trainable_token_indices"},
        {"fan_in_fan_out", "true", "fan_in_fan_out"},
        {"layer_replication", "[[0,1]]", "layer_replication"},
        {"target_parameters", "[\"x\"]", "target_parameters"},
        {"alora_invocation_tokens", "[1]", "alora_invocation_tokens"},
        {"use_qalora", "true", "use_qalora"},
        {"init_lora_weights", "\"pissa\"", "pissa"},
        {"init_lora_weights", "\"olora\"", "olora"},
        {"r", "1024", "1024; the limit is 512"},
        {"r", "513", "513; the limit is 512"},
        {"r", "2.0", "\"r\""},
        {"r", "4", "expected is [4, 64]"},
        {"lora_alpha", "\"4\"", "lora_alpha"},
        {"use_rslora", "1", "use_rslora"},
        {"rank_pattern", "{\"q_proj\":0}", "rank_pattern"},
        {"rank_pattern", "{\"q_proj\":2.5}", "rank_pattern"},
        {"rank_pattern", "[2]", "rank_pattern"},
        {"rank_pattern", "{\"q_(\":2}", "regular expression"},
        {"alpha_pattern", "{\"q_proj\":\"x\"}", "alpha_pattern"},
        {"target_modules", NULL, "target_modules"},
        {"target_modules", "[]", "does not name"},
        {"target_modules", "[\"q_proj\"]", "v_proj"},
        {"target_modules", "[\"q_proj\",\"v_proj\",\"k_proj\"]", "k_proj.lora_A"},
        {"target_modules", "[\"q_proj\",\"v_proj\",\"lm_head\"]", "lm_head"},
        {"target_modules", "[\"q_proj\",\"v_proj\",\"embed_tokens\"]", "embed_tokens"},
        {"target_modules", "\".*\"", "lm_head"},
        {"target_modules", "\"all-linear\"", "missing tensor"},
        {"target_modules", "\"[\"", "regular expression"},
        {"target_modules", "[1]", "not a name"},
        {"exclude_modules", "[\"v_proj\"]", "does not name"},
        {"layers_to_transform", "[0,1]", "does not name"},
        {"layers_to_transform", "[0,1,2,3]", "layer 3"},
        {"layers_to_transform", "[0,0]", "twice"},
        {"layers_to_transform", "[]", "empty"},
        {"layers_to_transform", "\"0\"", "layer numbers"},
        {"layers_pattern", "\"h\"", "layers_pattern"},
        {"position", "\"last\"", "position"},
        {"base_digest", "\"12\"", "base_digest"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(with_key(QV, cases[i].key, cases[i].value), cases[i].words);
}

/* Other ways to say what QV says. */
static void test_config_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"target_modules", "\".*self_attn\\\\.(q|v)_proj\""},
        {"target_modules", "[\"model.layers.0.self_attn.q_proj\",\"self_attn.v_proj\","
                           "\"1.self_attn.q_proj\",\"layers.2.self_attn.q_proj\"]"},
        {"exclude_modules", "[\"k_proj\"]"},
        {"exclude_modules", "\".*mlp.*\""},
        {"layers_to_transform", "[0,2,1]"},
        {"layers_pattern", "\"layers\""},
        {"layers_pattern", "[\"h\",\"layers\"]"},
        {"init_lora_weights", "\"gaussian\""},
        {"lora_dropout", "0.3"},
        {"rank_pattern", "{\"nothing\":7}"},
        {"rank_pattern", "{\"(q|v)_proj\":2}"},
        {"loftq_config", "{\"loftq_bits\":4}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        adapter a = with_key(QV, cases[i].key, cases[i].value);
        buf blob = {0}, warnings = {0};
        char *folder = write_adapter(&a, KN_F32, false);
        import_or_fail(folder, base, &blob, &warnings);
        if (warnings.len) fail_msg("%s: %s", cases[i].key, warnings.data);
        check_round_trip(folder, base);
        adapter_free(&a);
        buf_free(&blob);
        free(folder);
    }
}

/* A pattern that takes exponential time in a backtracking matcher is stopped. */
static void test_slow_pattern(void **state)
{
    (void)state;
    adapter a = with_key(QV, "target_modules", "\"(([a-z._0-9]+)*)*!\"");
    pf_err err;
    buf blob = {0};
    char *folder = write_adapter(&a, KN_F32, false);
    assert_int_equal(adapter_file_import(folder, base, NULL, &blob, NULL, &err), PF_REFUSED);
    adapter_free(&a);
    buf_free(&blob);
    free(folder);
}

static void test_warnings(void **state)
{
    (void)state;
    adapter a = with_key(QV, "some_future_key", "1");
    json_object_set_new(a.config, "base_model_name_or_path", json_string("org/another-model"));
    buf blob = {0}, warnings = {0};
    char *folder = write_adapter(&a, KN_F32, false);
    import_or_fail(folder, base, &blob, &warnings);
    assert_non_null(strstr(warnings.data, "some_future_key"));
    assert_non_null(strstr(warnings.data, "org/another-model"));
    adapter_free(&a);
    buf_free(&blob);
    buf_free(&warnings);
    free(folder);
}

/* --- types and values ------------------------------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    static const struct {
        kn_type type;
        bool mixed;
        kn_type want;
        float tolerance;
    } cases[] = {{KN_F32, false, KN_F32, 0},
                 {KN_F16, false, KN_F16, 1e-3f},
                 {KN_BF16, false, KN_BF16, 8e-3f},
                 {KN_BF16, true, KN_F32, 8e-3f}};
    adapter a = load_adapter(QV);
    const free_tensor *t = tensor_called(&a, "layers.0.self_attn.q_proj.lora_A");
    for (size_t i = 0; i < 4; i++) {
        buf blob = {0};
        adapter_view v;
        char *folder = write_adapter(&a, cases[i].type, cases[i].mixed);
        import_or_fail(folder, base, &blob, NULL);
        view_or_fail(&blob, &v);
        assert_int_equal(v.type, cases[i].want);
        float values[128];
        kn_dequantize(v.type, v.items[0].a, values, 128);
        for (size_t k = 0; k < 128; k++)
            assert_true(fabsf(values[k] - t->values[k]) <=
                        cases[i].tolerance * fabsf(t->values[k]));
        adapter_view_close(&v);
        buf_free(&blob);
        check_round_trip(folder, base);
        free(folder);
    }
    adapter_free(&a);
}

static void test_values(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        adapter a = load_adapter(QV);
        tensor_called(&a, "layers.2.self_attn.v_proj.lora_B")->values[7] = bad[i];
        expect_refused(a,
                       "layers.2.self_attn.v_proj.lora_B.weight\" has a value that is not finite");
    }
    adapter a = load_adapter(QV); /* too large for F16: infinity in the file */
    tensor_called(&a, "layers.0.self_attn.q_proj.lora_A")->values[0] = 1e5f;
    pf_err err;
    buf blob = {0};
    char *folder = write_adapter(&a, KN_F16, false);
    assert_int_equal(adapter_file_import(folder, base, NULL, &blob, NULL, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "not finite"));
    adapter_free(&a);
    buf_free(&blob);
    free(folder);
}

/* --- base model ------------------------------------------------------------------------------- */

static void test_base_digest(void **state)
{
    (void)state;
    pf_err err;
    buf blob = {0};
    adapter_view v;
    const adapter_import_options force = {.force_base = true};
    adapter a = with_key(QV, "base_digest",
                         "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"");
    char *folder = write_adapter(&a, KN_F32, false);
    assert_int_equal(adapter_file_import(folder, base, NULL, &blob, NULL, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "0123456789abcdef"));
    assert_non_null(strstr(err.text, "another base model"));
    if (adapter_file_import(folder, base, &force, &blob, NULL, &err) != PF_OK)
        fail_msg("%s", err.text);
    view_or_fail(&blob, &v);
    assert_memory_equal(v.base_digest, model_digest(base), 32);
    adapter_view_close(&v);
    buf_free(&blob);
    adapter_free(&a);
    free(folder);
}

static void test_position(void **state)
{
    (void)state;
    static const struct {
        const char *in_file;
        adapter_position asked;
        bool prefill;
    } cases[] = {
        {NULL, ADAPTER_POSITION_FILE, false},         {"\"prefill\"", ADAPTER_POSITION_FILE, true},
        {"\"all\"", ADAPTER_POSITION_FILE, false},    {NULL, ADAPTER_POSITION_PREFILL, true},
        {"\"prefill\"", ADAPTER_POSITION_ALL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pf_err err;
        buf blob = {0};
        adapter_view v;
        const adapter_import_options how = {.position = cases[i].asked};
        adapter a = with_key(QV, "position", cases[i].in_file);
        char *folder = write_adapter(&a, KN_F32, false);
        if (adapter_file_import(folder, base, &how, &blob, NULL, &err) != PF_OK)
            fail_msg("%s", err.text);
        view_or_fail(&blob, &v);
        assert_int_equal(v.prefill_only, cases[i].prefill);
        adapter_view_close(&v);
        buf_free(&blob);
        adapter_free(&a);
        free(folder);
    }
}

/* --- DiReFT ----------------------------------------------------------------------------------- */

static void test_direft(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"component", "\"mlp_output\"", "mlp_output"},
        {"component", NULL, "component"},
        {"layers", "[0,1]", "does not name"},
        {"layers", "[0,1,2,3]", "layer 3"},
        {"layers", NULL, "layers"},
        {"layers", "[-1]", "layer numbers"},
        {"low_rank_dimension", "5", "expected is [5, 64]"},
        {"low_rank_dimension", "65", "limit is 64"},
        {"low_rank_dimension", NULL, "missing"},
        {"hidden_size", "32", "hidden_size"},
        {"position", NULL, "position"},
        {"act_fn", "\"gelu\"", "act_fn"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(with_key(DIREFT, cases[i].key, cases[i].value), cases[i].words);
    adapter a = load_adapter(DIREFT);
    rename_tensors(&a, "rotate_layer.weight", "rotate_layer.parametrizations.weight.original");
    expect_refused(a, "training-time name");
    a = load_adapter(DIREFT);
    json_object_set_new(a.config, "peft_type", json_string("LORA"));
    json_object_set_new(a.config, "target_modules", parse_json("[\"q_proj\"]"));
    expect_refused(a, "DiReFT");

    buf blob = {0};
    adapter_view v;
    import_or_fail(DIREFT, base, &blob, NULL);
    view_or_fail(&blob, &v);
    assert_true(v.direft && v.prefill_only);
    a = load_adapter(DIREFT);
    const free_tensor *r = tensor_called(&a, "layers.1.rotate_layer.weight");
    const free_tensor *w = tensor_called(&a, "layers.1.learned_source.weight");
    assert_memory_equal(v.items[1].b, r->values, count_of(r) * sizeof(float));
    assert_memory_equal(v.items[1].a, w->values, count_of(w) * sizeof(float));
    adapter_free(&a);
    adapter_view_close(&v);
    buf_free(&blob);
}

/* --- folders that are not adapters ------------------------------------------------------------ */

static void expect_folder(const char *folder, pf_status status, const char *words)
{
    pf_err err = {0};
    buf blob = {0};
    assert_int_equal(adapter_file_import(folder, base, NULL, &blob, NULL, &err), status);
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
    buf_free(&blob);
}

static void test_folders(void **state)
{
    (void)state;
    char *pyreft = path_join(scratch, "pyreft"), *two = path_join(scratch, "two-files");
    char *pickle = path_join(scratch, "pickle");
    free(scratch_write(pyreft, "intkey_layer_0_comp_block_output_unit_pos_nunit_1#0.bin", "x", 1));
    assert_true(adapter_file_is_folder(pyreft));
    expect_folder(pyreft, PF_REFUSED, "pickle files, which are never opened");
    scratch_copy_folder(QV, two);
    free(scratch_write(two, "adapter_model-2.safetensors", "x", 1));
    expect_folder(two, PF_REFUSED, "adapter_model-2.safetensors");
    free(scratch_write(pickle, "adapter_config.json", "{\"peft_type\":\"LORA\"}", 20));
    free(scratch_write(pickle, "adapter_model.bin", "x", 1));
    expect_folder(pickle, PF_REFUSED, "pickle");
    expect_folder("/no/such/folder", PF_NOT_FOUND, "no such folder");
    expect_folder(QV "/adapter_config.json", PF_REFUSED, "not a folder");
    expect_folder("tests/data/models/tiny-llama/hf", PF_REFUSED, "adapter_config.json");
    free(pyreft);
    free(two);
    free(pickle);
}

/* An unwritable place: a clear failure. */
/* Another program cuts the file off and writes it anew, again and again. */
typedef struct {
    const char *path;
    const buf *bytes;
    atomic_bool enough;
} rewriter;

static void *rewrite(void *arg)
{
    rewriter *r = arg;
    while (!atomic_load(&r->enough)) {
        FILE *f = fopen(r->path, "w");
        if (f) {
            sched_yield(); /* a moment for it to be read while it is empty */
            (void)fwrite(r->bytes->data, 1, r->bytes->len, f);
            fclose(f);
        }
    }
    return NULL;
}

/* Whatever is read of it, it is an adapter or it is refused. */
static void test_rewritten_while_read(void **state)
{
    (void)state;
    adapter a = load_adapter(ADAPTERS "tiny-llama/lora-all7");
    char *folder = write_adapter(&a, KN_F32, false);
    char *path = path_join(folder, "adapter_model.safetensors");
    buf bytes = {0};
    pthread_t thread;
    scratch_read(path, &bytes);
    rewriter r = {.path = path, .bytes = &bytes};
    atomic_init(&r.enough, false);
    assert_int_equal(pthread_create(&thread, NULL, rewrite, &r), 0);
    for (int i = 0; i < 400; i++) {
        pf_err err = {0};
        buf blob = {0};
        adapter_summary summary;
        pf_status status = i % 2 ? adapter_file_import(folder, base, NULL, &blob, NULL, &err)
                                 : adapter_file_inspect(folder, NULL, NULL, &summary, NULL, &err);
        if (status != PF_OK && status != PF_REFUSED) fail_msg("%s", err.text);
        buf_free(&blob);
    }
    atomic_store(&r.enough, true);
    pthread_join(thread, NULL);
    buf blob = {0};
    import_or_fail(folder, base, &blob, NULL);
    buf_free(&blob);
    buf_free(&bytes);
    adapter_free(&a);
    free(path);
    free(folder);
}

static void test_export_fails(void **state)
{
    (void)state;
    pf_err err;
    buf blob = {0};
    char *file = scratch_write(scratch, "a-file", "x", 1), *inside = path_join(file, "folder");
    import_or_fail(QV, base, &blob, NULL);
    assert_int_equal(
        adapter_file_export(blob.data, blob.len, model_get_config(base), inside, false, &err),
        PF_FAILED);
    assert_int_equal(adapter_file_export("junk", 4, model_get_config(base), inside, false, &err),
                     PF_REFUSED);
    buf_free(&blob);
    free(file);
    free(inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_folders),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_pattern_order),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_odd_tensors),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_config_refused),
        cmocka_unit_test(test_config_accepted),
        cmocka_unit_test(test_slow_pattern),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_base_digest),
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_direft),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_rewritten_while_read),
        cmocka_unit_test(test_export_fails),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
