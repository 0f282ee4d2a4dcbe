#include "commands/train_data.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "commands/print.h"
#include "profiles/history.h"
#include "profiles/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FILE_BYTES ((size_t)1 << 30)

pf_status train_data_add_file(train_dataset *d, const model *m, const char *path,
                              const train_dataset_options *options, pf_err *err)
{
    buf data = {0};
    pf_status status = file_read(path, MOST_FILE_BYTES, &data, err);
    if (status == PF_OK)
        status =
            train_dataset_add_jsonl(d, m, buf_str(&data), data.len, path_base(path), options, err);
    buf_free(&data);
    return status;
}

/* --- history -------------------------------------------------------------------------------------
 */

static bool is_rewritten(const history_message *message)
{
    return message->rewritten && *message->rewritten;
}

static bool wanted(const history_message *message, train_data_from from)
{
    if (is_rewritten(message)) return true;
    if (from == TRAIN_FROM_REWRITES || message->rating < 0) return false;
    return from == TRAIN_FROM_ALL || message->rating > 0;
}

static chat_message as_chat(const history_message *from)
{
    static const chat_role roles[] = {[HISTORY_SYSTEM] = ROLE_SYSTEM,
                                      [HISTORY_USER] = ROLE_USER,
                                      [HISTORY_ASSISTANT] = ROLE_ASSISTANT};
    chat_message to = {.role = roles[from->role], .text = from->text, .len = from->len};
    if (from->role == HISTORY_ASSISTANT && is_rewritten(from)) {
        to.text = from->rewritten;
        to.len = strlen(from->rewritten);
    } else if (from->role == HISTORY_ASSISTANT && from->n_ids) {
        to.ids = from->ids;
        to.n_ids = from->n_ids;
    }
    return to;
}

static pf_status add_conversation(train_dataset *d, const model *m, const conversation *c,
                                  train_data_from from, const train_dataset_options *options,
                                  pf_err *err)
{
    chat_message *messages = xcalloc(c->n, sizeof *messages);
    unsigned char *learn = xcalloc(c->n, 1);
    train_dataset_options o = *options;
    bool any = false;
    for (size_t i = 0; i < c->n; i++) {
        messages[i] = as_chat(&c->messages[i]);
        learn[i] = c->messages[i].role == HISTORY_ASSISTANT && wanted(&c->messages[i], from);
        any |= learn[i];
        if (learn[i] && is_rewritten(&c->messages[i])) o.repeat = 2;
    }
    char *label = xasprintf("conversation %lld", (long long)c->info.id);
    pf_status status = PF_OK;
    if (any) status = train_dataset_add(d, m, messages, learn, c->n, &o, label, err);
    free(label);
    free(learn);
    free(messages);
    return status;
}

pf_status train_data_add_history(train_dataset *d, const model *m, session *s, int64_t profile,
                                 train_data_from from, const train_dataset_options *options,
                                 pf_err *err)
{
    conversation_list list = {0};
    pf_status status = conversation_list_load(s, profile ? profile : -1, 0, 0, &list, err);
    for (size_t i = list.n; i-- > 0 && status == PF_OK;) { /* oldest first */
        conversation c = {0};
        status = conversation_load(s, list.items[i].id, &c, err);
        if (status == PF_OK) status = add_conversation(d, m, &c, from, options, err);
        conversation_free(&c);
    }
    conversation_list_free(&list);
    return status;
}

/* --- dry run -------------------------------------------------------------------------------- */

static json_t *flags_json(const unsigned char *flags, int32_t n)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(flags[i]));
    return array;
}

static void print_example_json(const train_example *e)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < e->length; i++)
        json_array_append_new(ids, json_integer(e->ids[i]));
    print_json(json_pack("{s:s, s:o, s:o, s:o, s:b, s:i}", "label", e->label, "ids", ids, "adapted",
                         flags_json(e->adapted, e->length), "target",
                         flags_json(e->target, e->length), "held_out", (int)e->held_out, "repeat",
                         (int)e->repeat));
}

static void print_example(const train_example *e, const tokenizer *t)
{
    printf("%s%s\n", e->label, e->held_out ? " (kept aside)" : "");
    for (int32_t i = 0; i < e->length; i++) {
        buf shown = {0};
        size_t len = 0;
        const char *bytes = tokenizer_bytes(t, e->ids[i], &len);
        utf8_repair(bytes ? bytes : "", bytes ? len : 0, &shown);
        printf("%6d %8d  %-7s %-6s ", i, e->ids[i], e->adapted[i] ? "adapted" : "plain",
               e->target[i] ? "learn" : "");
        for (const char *p = buf_str(&shown); *p; p++) {
            if (*p == '\n')
                fputs("\\n", stdout);
            else
                putchar((unsigned char)*p < 32 ? '?' : *p);
        }
        putchar('\n');
        buf_free(&shown);
    }
}

pf_status train_data_print(const train_dataset *d, const model *m, bool json)
{
    for (size_t i = 0; i < d->n; i++) {
        if (json)
            print_example_json(&d->items[i]);
        else
            print_example(&d->items[i], model_get_tokenizer(m));
    }
    return PF_OK;
}
