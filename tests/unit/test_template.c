/* Chat templates: golden texts and ids, recognition, parts, and what must never become a marker. */
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
#include "models/template.h"
#include "models/template_form.h"
#include "support/tokenizer_json.h"

#define CASES "tests/data/chat/cases.jsonl"

static const char *const small_models[] = {"tiny-llama", "tiny-llama3", "tiny-qwen2", "tiny-qwen3",
                                           "tiny-wide"};

/* The model's own template text, from either file. */
static void template_text(const char *model, buf *out)
{
    pf_err err;
    char *jinja = xasprintf("tests/data/models/%s/hf/chat_template.jinja", model);
    char *config = xasprintf("tests/data/models/%s/hf/tokenizer_config.json", model);
    if (file_exists(jinja)) {
        assert_int_equal(file_read(jinja, 1 << 20, out, &err), PF_OK);
    } else {
        buf text = {0};
        json_t *json;
        assert_int_equal(file_read(config, 1 << 20, &text, &err), PF_OK);
        assert_int_equal(json_parse(text.data, text.len, config, &json, &err), PF_OK);
        buf_puts(out, json_string_value(json_object_get(json, "chat_template")));
        json_decref(json);
        buf_free(&text);
    }
    free(jinja);
    free(config);
}

static chat_template *create(const char *text, const tokenizer *t)
{
    chat_template *ct = NULL;
    pf_err err = {0};
    if (chat_template_create(NULL, text, strlen(text), t, &ct, &err) != PF_OK)
        fail_msg("%s", err.text);
    return ct;
}

static chat_template *create_named(const char *name, const tokenizer *t)
{
    chat_template *ct = NULL;
    pf_err err = {0};
    if (chat_template_create(name, NULL, 0, t, &ct, &err) != PF_OK) fail_msg("%s", err.text);
    return ct;
}

static chat_message *messages_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    chat_message *messages = xcalloc(*n, sizeof *messages);
    for (size_t i = 0; i < *n; i++) {
        const json_t *m = json_array_get(list, i), *text = json_object_get(m, "content");
        assert_true(chat_role_parse(json_string_value(json_object_get(m, "role")),
                                    &messages[i].role));
        messages[i].text = json_string_value(text);
        messages[i].len = json_string_length(text);
    }
    return messages;
}

static void check_rendering(const chat_rendering *r, const json_t *row, const char *where)
{
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids_safe");
    if (r->text.len != json_string_length(text) ||
        memcmp(buf_str(&r->text), json_string_value(text), r->text.len) != 0)
        fail_msg("%s: other text than the reference: %s", where, buf_str(&r->text));
    bool same = r->ids.len == json_array_size(ids);
    for (size_t i = 0; same && i < r->ids.len; i++)
        same = r->ids.ids[i] == json_integer_value(json_array_get(ids, i));
    if (!same) fail_msg("%s: other ids than the reference", where);
    for (size_t i = 0; i + 1 < r->n_messages; i++)
        assert_true(r->message_end[i] < r->message_end[i + 1]);
    assert_true(r->message_end[r->n_messages - 1] <= r->ids.len);
}

static void check_model(const chat_template *ct, const tokenizer *t, const char *model)
{
    json_t *rows = jsonl_load(CASES), *row;
    size_t i, checked = 0;
    json_array_foreach(rows, i, row)
    {
        size_t n;
        chat_rendering r = {0};
        pf_err err = {0};
        if (strcmp(json_string_value(json_object_get(row, "model")), model) != 0) continue;
        char *where = xasprintf("%s line %zu", CASES, i + 1);
        chat_message *messages = messages_of(json_object_get(row, "messages"), &n);
        bool generation = json_is_true(json_object_get(row, "add_generation_prompt"));
        if (chat_template_render(ct, t, messages, n, generation, &r, &err) != PF_OK)
            fail_msg("%s: %s", where, err.text);
        check_rendering(&r, row, where);
        chat_rendering_free(&r);
        free(messages);
        free(where);
        checked++;
    }
    json_decref(rows);
    assert_int_equal(checked, 48);
}

static void test_small_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small_models / sizeof small_models[0]; i++) {
        buf text = {0};
        tokenizer *t = tokenizer_of_model(small_models[i]);
        template_text(small_models[i], &text);
        chat_template *ct = create(text.data, t);
        check_model(ct, t, small_models[i]);
        chat_template_free(ct);
        tokenizer_free(t);
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
