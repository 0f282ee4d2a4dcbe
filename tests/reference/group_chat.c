/* Messages to text and ids, exact (README section 3). */
#include "groups.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const model *m;
    const chat_template *ct;
    const char *model;
    const char *file;
    report *rep;
} chat_run;

/* Owned array; texts borrow from row. */
static chat_message *load_messages(const json_t *row, size_t *n)
{
    const json_t *list = data_get(row, "messages");

    *n = json_array_size(list);
    chat_message *messages = xcalloc(*n, sizeof *messages);
    for (size_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *content = data_get(item, "content");
        if (!chat_role_parse(data_string(item, "role"), &messages[i].role))
            die("reference data: unknown role");
        messages[i].text = json_string_value(content);
        messages[i].len = json_string_length(content);
    }
    return messages;
}

static bool ids_are(const id_list *ids, const json_t *array)
{
    id_list want = {0};

    data_ids(array, &want);
    bool same = want.len == ids->len &&
                (want.len == 0 || memcmp(want.ids, ids->ids, want.len * sizeof *want.ids) == 0);
    id_list_free(&want);
    return same;
}

static void check_rendering(const chat_run *run, const json_t *row, const chat_rendering *r)
{
    const char *name = data_string(row, "case");
    const json_t *text = data_get(row, "text");
    id_list parsed = {0};

    report_check(run->rep,
                 r->text.len == json_string_length(text) &&
                     memcmp(buf_str(&r->text), json_string_value(text), r->text.len) == 0,
                 "%s: %s: the text differs", run->file, name);
    report_check(run->rep, ids_are(&r->ids, data_get(row, "ids_safe")), "%s: %s: the ids differ",
                 run->file, name);
    tokenizer_encode(model_get_tokenizer(run->m), json_string_value(text), json_string_length(text),
                     true, false, &parsed);
    report_check(run->rep, ids_are(&parsed, data_get(row, "ids")),
                 "%s: %s: the ids of the text differ", run->file, name);
    id_list_free(&parsed);
}

static void check_case(void *ctx, const json_t *row)
{
    chat_run *run = ctx;
    chat_rendering r = {0};
    pf_err err;
    size_t n = 0;

    if (strcmp(data_string(row, "model"), run->model) != 0) return;
    chat_message *messages = load_messages(row, &n);
    pf_status status = chat_template_render(run->ct, model_get_tokenizer(run->m), messages, n,
                                            data_bool(row, "add_generation_prompt"), &r, &err);
    if (status == PF_OK)
        check_rendering(run, row, &r);
    else
        report_check(run->rep, false, "%s: %s: %s", run->file, data_string(row, "case"), err.text);
    chat_rendering_free(&r);
    free(messages);
}

static void check_model(const check_context *c, const char *name, const char *path, report *rep)
{
    char *cases = data_path(c->folder, "chat/cases.jsonl");
    chat_run run = {.model = name, .file = file_label(path), .rep = rep};
    model *m = NULL;
    pf_err err;

    if (open_model(path, &m, rep)) {
        run.m = m;
        if (model_template(m, &run.ct, &err) != PF_OK)
            report_check(rep, false, "%s: %s", run.file, err.text);
        else if (!data_jsonl(cases, check_case, &run))
            report_skip(rep, 1, "no chat/cases.jsonl");
    }
    model_close(m);
    free(cases);
}

void check_chat(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++) {
        char *paths[2] = {NULL, NULL};
        int n = model_files(c, *name, paths, rep);
        for (int i = 0; i < n; i++) {
            check_model(c, *name, paths[i], rep);
            free(paths[i]);
        }
    }
}
