#include "fuzz/formats.h"

#include "base/config.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/request.h"
#include "models/gguf.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "profiles/adapter_file.h"
#include "train/dataset.h"
#include "train/eval/eval_format.h"
#include "train/eval/reward.h"
#include "train/span.h"
#include "ui/keymap.h"
#include "ui/saved_layout.h"
#include "ui/script.h"

#include <stdlib.h>
#include <string.h>

#define DATA     "tests/data/"
#define MODELS   DATA "models/"
#define ADAPTERS DATA "adapters/tiny-llama/"
#define OWN      DATA "mutations/"

enum { MAX_FILE = 64 << 20 };

static model *base; /* of the adapters, and for data sets */

void formats_open(void)
{
    pf_err err = {0};
    if (model_open(MODELS "tiny-llama/hf", NULL, &base, &err) != PF_OK) die("%s", err.text);
    store_formats_open();
}

void formats_close(void)
{
    store_formats_close();
    model_close(base);
}

/* --- models --------------------------------------------------------------------------------- */

/* Reads the first and last byte of a matrix. */
static unsigned touch(const kn_matrix *m)
{
    const unsigned char *bytes = m->data;
    size_t size = (size_t)m->rows * kn_row_bytes(m->type, m->cols);
    return (unsigned)bytes[0] + bytes[size - 1];
}

static void use_weights(const model *m)
{
    static volatile unsigned sink;
    const model_config *c = model_get_config(m);
    const model_weights *w = model_get_weights(m);
    sink = touch(&w->embedding) + touch(&w->output);
    for (int32_t i = 0; i < c->n_layers; i++)
        sink += touch(&w->layers[i].q) + touch(&w->layers[i].o) + touch(&w->layers[i].down);
    PF_ASSERT(c->n_heads % c->n_kv_heads == 0 && c->head_dim % 2 == 0);
    (void)model_digest(m);
    (void)sink;
}

static void use_tokenizer(const model *m)
{
    static const char text[] = "a 1\n\xff<|im_start|> e\xcc\x81\xf0\x9f\x98\x80 don't";
    const model_config *c = model_get_config(m);
    const tokenizer *t = model_get_tokenizer(m);
    const chat_template *known;
    id_list ids = {0};
    buf decoded = {0};
    tokenizer_encode(t, text, sizeof text - 1, true, true, &ids);
    for (size_t i = 0; i < ids.len; i++)
        PF_ASSERT(ids.ids[i] >= 0 && ids.ids[i] < c->vocab);
    tokenizer_decode(t, ids.ids, ids.len, false, &decoded);
    for (int32_t i = 0; i < c->n_stop_ids; i++)
        PF_ASSERT(c->stop_ids[i] >= 0 && c->stop_ids[i] < c->vocab);
    (void)model_template(m, &known, NULL);
    id_list_free(&ids);
    buf_free(&decoded);
}

/* The container alone, in a block of exactly its size: a mapping hides reads behind its end. */
static void parse_block(const char *path)
{
    buf data = {0};
    gguf container = {0};
    safetensors tensors = {0};
    if (file_read(path, MAX_FILE, &data, NULL) != PF_OK) return;
    void *block = xmalloc(data.len);
    if (data.len) memcpy(block, data.data, data.len);
    if (gguf_parse(block, data.len, path, &container, NULL) == PF_OK)
        PF_ASSERT(container.data_start <= data.len);
    (void)safetensors_parse(block, data.len, path, &tensors, NULL);
    gguf_free(&container);
    safetensors_free(&tensors);
    free(block);
    buf_free(&data);
}

static pf_status read_model(const char *path, pf_err *err)
{
    model *m = NULL;
    pf_status status = model_open(path, NULL, &m, err);
    if (status == PF_OK) {
        use_weights(m);
        use_tokenizer(m);
    } else {
        PF_ASSERT(!m);
    }
    model_close(m);
    return status;
}

static pf_status read_gguf(const char *path, pf_err *err)
{
    parse_block(path);
    return read_model(path, err);
}

static pf_status read_hf_weights(const char *folder, pf_err *err)
{
    char *path = path_join(folder, "model.safetensors");
    parse_block(path);
    free(path);
    return read_model(folder, err);
}

static pf_status read_template(const char *path, pf_err *err)
{
    model *m = NULL;
    const chat_template *known = NULL;
    pf_status status = model_open(path, NULL, &m, err);
    if (status == PF_OK) status = model_template(m, &known, err);
    model_close(m);
    return status;
}

static pf_status read_adapter(const char *folder, pf_err *err)
{
    buf blob = {0}, warnings = {0};
    adapter_view view = {0};
    pf_status status = adapter_file_import(folder, base, NULL, &blob, &warnings, err);
    if (status == PF_OK) {
        pf_err again = {0};
        if (adapter_view_open(blob.data, blob.len, model_get_config(base), &view, &again) != PF_OK)
            die("imported, but its blob is refused: %s", again.text);
        adapter_view_close(&view);
    } else {
        PF_ASSERT(blob.len == 0);
    }
    buf_free(&blob);
    buf_free(&warnings);
    return status;
}

/* --- data sets, rules, requests ------------------------------------------------------------- */

static pf_status read_training_data(const char *path, pf_err *err)
{
    static const train_dataset_options options = {.policy = POSITIONS_TURNS, .max_tokens = 256};
    train_dataset d = {0};
    buf data = {0};
    pf_status status = file_read(path, MAX_FILE, &data, err);
    if (status == PF_OK)
        status = train_dataset_add_jsonl(&d, base, buf_str(&data), data.len, path_base(path),
                                         &options, err);
    PF_ASSERT(status == PF_OK || d.n == 0);
    for (size_t i = 0; i < d.n; i++)
        PF_ASSERT(d.items[i].length <= 256 && d.items[i].n_targets > 0);
    train_dataset_free(&d);
    buf_free(&data);
    return status;
}

/* The format is the file's name up to its ending. */
static pf_status read_questions(const char *path, pf_err *err)
{
    int format = 0;
    size_t n_left_out = 0;
    json_t *items = NULL;
    buf data = {0};
    const char *name = path_base(path);
    while (strncmp(eval_format_names[format], name, strcspn(name, ".")) != 0)
        format++;
    pf_status status = file_read(path, MAX_FILE, &data, err);
    if (status == PF_OK)
        status = eval_format_read((eval_format)format, buf_str(&data), data.len, name, &items,
                                  &n_left_out, err);
    PF_ASSERT((status == PF_OK) == (json_array_size(items) > 0));
    json_t *check = status == PF_OK ? eval_format_check((eval_format)format) : NULL;
    reward *rules = NULL;
    if (check && reward_read(check, "check", &rules, err) != PF_OK) die("%s", err->text);
    for (size_t i = 0; rules && i < json_array_size(items); i++)
        if (reward_check_item(rules, json_array_get(items, i), err) == PF_OK &&
            !reward_runs_programs(rules))
            reward_score(rules, json_array_get(items, i), "It is \\boxed{3}: C", 18, NULL);
    reward_free(rules);
    json_decref(check);
    json_decref(items);
    buf_free(&data);
    return status;
}

static void score_answers(const reward *rules)
{
    static const char *const answers[] = {"", "Dear Robin,\n- one\n- two 12.\nPip",
                                          "\xc3\x89\xff A"};
    const char *item_text = "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}],\"expect\":"
                            "\"12\",\"target\":5,\"instructions\":[{\"id\":\"x:y\"}]}";
    json_t *item = NULL;
    pf_err err = {0};
    if (json_parse(item_text, strlen(item_text), "item", &item, &err) != PF_OK) die("%s", err.text);
    if (reward_check_item(rules, item, &err) == PF_OK)
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
            reward_result r = reward_score(rules, item, answers[i], strlen(answers[i]), NULL);
            PF_ASSERT(r.score >= 0 && r.score <= reward_most(rules) * (1 + 1e-9));
        }
    json_decref(item);
}

static pf_status read_rules(const char *path, pf_err *err)
{
    reward *rules = NULL;
    json_t *value = NULL;
    buf data = {0};
    pf_status status = file_read(path, MAX_FILE, &data, err);
    if (status == PF_OK) status = json_parse(buf_str(&data), data.len, path, &value, err);
    if (status == PF_OK) status = reward_read(value, path_base(path), &rules, err);
    if (status == PF_OK && !reward_runs_programs(rules)) score_answers(rules);
    PF_ASSERT((status == PF_OK) == (rules != NULL));
    reward_free(rules);
    json_decref(value);
    buf_free(&data);
    return status;
}

static pf_status read_requests(const char *path, pf_err *err)
{
    buf data = {0};
    pf_status status = file_read(path, MAX_FILE, &data, err);
    span rest = {buf_str(&data), data.len}, line;
    while (status == PF_OK && span_next_line(&rest, &line)) {
        request_input input = {0};
        json_t *object = NULL;
        status = json_parse(line.data, line.len, path, &object, err);
        if (status == PF_OK && request_read(object, &input, err) != PF_OK)
            status = err_context(err, "%s", path);
        request_free(&input);
        json_decref(object);
    }
    buf_free(&data);
    return status;
}

/* --- settings ------------------------------------------------------------------------------- */

/* With problems NULL at the first refusal, else all of it. */
static pf_status apply_all(const config *c, buf *problems, pf_err *err)
{
    const option_spec *const general[] = {general_table, model_table, engine_table, NULL};
    pf_status status = config_apply(c, "", general, problems, err);
    for (size_t i = 0; command_table[i] && status == PF_OK; i++) {
        const option_spec *const tables[] = {command_table[i]->options, passphrase_table, NULL};
        if (command_table[i]->options)
            status = config_apply(c, command_table[i]->name, tables, problems, err);
    }
    return status;
}

/* Repeatable options keep their values in memory of their own. */
static void forget_lists(void)
{
    for (size_t i = 0; command_table[i]; i++)
        for (const option_spec *o = command_table[i]->options; o && o->kind != OPTION_END; o++)
            if (o->kind == OPTION_LIST) option_list_free(o->to.list);
}

/* Twice: as most commands read it, and as the chat does, which goes on with what is understood. */
static pf_status read_config(const char *path, pf_err *err)
{
    config c = {0};
    buf problems = {0};
    pf_status status = config_read(path, &c, NULL, err);
    if (status == PF_OK) status = apply_all(&c, NULL, err);
    config_free(&c);
    if (config_read(path, &c, &problems, NULL) == PF_OK) {
        PF_ASSERT(apply_all(&c, &problems, NULL) == PF_OK);
        PF_ASSERT(status == PF_OK || problems.len > 0);
        keymap_apply(&c, &problems);
        keymap_apply(NULL, &problems);
    }
    forget_lists();
    config_free(&c);
    buf_free(&problems);
    return status;
}

static pf_status read_layout(const char *path, pf_err *err)
{
    saved_layout saved = {0};
    buf data = {0}, again = {0};
    pf_status status = file_read(path, SAVED_LAYOUT_MAX_BYTES, &data, err);
    if (status == PF_OK) status = saved_layout_parse(buf_str(&data), data.len, path, &saved, err);
    if (status == PF_OK) {
        saved_layout_write(&saved, &again);
        layout_place(&saved.layout, (rect){0, 0, 80, 24});
        PF_ASSERT(again.len > 0);
    }
    saved_layout_free(&saved);
    buf_free(&data);
    buf_free(&again);
    return status;
}

static pf_status read_script(const char *path, pf_err *err)
{
    script *s = NULL;
    pf_status status = script_load(path, &s, err);
    PF_ASSERT((status == PF_OK) == (s != NULL));
    script_free(s);
    return status;
}

/* --- all ------------------------------------------------------------------------------------ */

#define IN_FOLDER(name_, source_, file_, parts_, read_, cases_)                                    \
    {                                                                                              \
        .name = (name_), .source = (source_), .file = (file_), .find_parts = (parts_),             \
        .read = (read_), .cases = (cases_)                                                         \
    }
#define ALONE(name_, source_, parts_, read_, cases_)                                               \
    IN_FOLDER(name_, source_, NULL, parts_, read_, cases_)

#define QWEN3 MODELS "tiny-qwen3/hf"

const file_format file_formats[] = {
    ALONE("gguf", DATA "hostile/gguf/valid.gguf", parts_of_gguf, read_gguf, 400),
    IN_FOLDER("hf_config", QWEN3, "config.json", parts_of_json, read_model, 100),
    IN_FOLDER("hf_generation", QWEN3, "generation_config.json", parts_of_json, read_model, 30),
    IN_FOLDER("hf_tokenizer", QWEN3, "tokenizer.json", parts_of_json, read_model, 120),
    IN_FOLDER("hf_tokenizer_config", QWEN3, "tokenizer_config.json", parts_of_json, read_model,
              100),
    IN_FOLDER("hf_template", MODELS "tiny-llama3/hf", "chat_template.jinja", NULL, read_template,
              50),
    IN_FOLDER("hf_weights", QWEN3, "model.safetensors", parts_of_safetensors, read_hf_weights, 100),
    IN_FOLDER("hf_index", MODELS "tiny-wide/hf", "model.safetensors.index.json", parts_of_json,
              read_model, 60),
    IN_FOLDER("lora_config", ADAPTERS "lora-patterns", "adapter_config.json", parts_of_json,
              read_adapter, 200),
    IN_FOLDER("lora_weights", ADAPTERS "lora-qv", "adapter_model.safetensors", parts_of_safetensors,
              read_adapter, 200),
    IN_FOLDER("direft_config", ADAPTERS "direft-all", "adapter_config.json", parts_of_json,
              read_adapter, 200),
    IN_FOLDER("direft_weights", ADAPTERS "direft-all", "adapter_model.safetensors",
              parts_of_safetensors, read_adapter, 200),
    ALONE("training_data", OWN "chats.jsonl", parts_of_json_lines, read_training_data, 300),
    ALONE("eval_chat", DATA "eval/chat.jsonl", parts_of_json_lines, read_questions, 200),
    ALONE("eval_gsm8k", DATA "eval/gsm8k.jsonl", parts_of_json_lines, read_questions, 50),
    ALONE("eval_math", DATA "eval/math.jsonl", parts_of_json_lines, read_questions, 50),
    ALONE("eval_humaneval", DATA "eval/humaneval.jsonl", parts_of_json_lines, read_questions, 50),
    ALONE("eval_mbpp", DATA "eval/mbpp.jsonl", parts_of_json_lines, read_questions, 50),
    ALONE("eval_ifeval", DATA "eval/ifeval.jsonl", parts_of_json_lines, read_questions, 100),
    ALONE("eval_mmlu", DATA "eval/mmlu.jsonl", parts_of_json_lines, read_questions, 50),
    ALONE("eval_mmlu_csv", DATA "eval/mmlu.csv", NULL, read_questions, 100),
    ALONE("eval_longbench", DATA "eval/longbench-write.jsonl", parts_of_json_lines, read_questions,
          50),
    ALONE("rules", OWN "check.json", parts_of_json, read_rules, 300),
    ALONE("requests", OWN "requests.jsonl", parts_of_json_lines, read_requests, 200),
    ALONE("config", OWN "preft.conf", parts_of_lines, read_config, 200),
    ALONE("layout", OWN "panes.layout", parts_of_lines, read_layout, 100),
    ALONE("script", "tests/ui/tour.script", parts_of_lines, read_script, 100),
    ALONE("conversations", OWN "chats.jsonl", parts_of_json_lines, store_read_conversations, 150),
    {.name = "backup",
     .make = store_make_backup,
     .file = "store.backup",
     .find_parts = parts_of_sqlite,
     .read = store_read_backup,
     .cases = 60},
    {.name = "backup_rows",
     .make = store_make_backup,
     .file = "store.backup",
     .damage = store_damage_rows,
     .read = store_read_backup,
     .cases = 40},
};
const size_t n_file_formats = sizeof file_formats / sizeof *file_formats;
