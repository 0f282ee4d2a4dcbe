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

/* Adds one branch of a conversation. Of branches that the person left behind only what was rated
 * good or rewritten is learned from; known: messages that another branch has brought in. */
static pf_status add_branch(train_dataset *d, const model *m, const conversation *c, int64_t last,
                            bool *known, train_data_from from, const train_dataset_options *options,
                            pf_err *err)
{
    size_t *path = xcalloc(c->n, sizeof *path);
    size_t n = conversation_path(c, last, path);
    chat_message *messages = xcalloc(n, sizeof *messages);
    unsigned char *learn = xcalloc(n, 1);
    train_dataset_options o = *options;
    bool any = false;
    if (last != c->current && from == TRAIN_FROM_ALL) from = TRAIN_FROM_GOOD;
    for (size_t i = 0; i < n; i++) {
        const history_message *message = &c->messages[path[i]];
        messages[i] = as_chat(message);
        learn[i] = message->role == HISTORY_ASSISTANT && !known[path[i]] && wanted(message, from);
        known[path[i]] |= learn[i];
        any |= learn[i];
        if (learn[i] && is_rewritten(message)) o.repeat = 2;
    }
    char *label = xasprintf("conversation %lld", (long long)c->info.id);
    pf_status status = PF_OK;
    if (any) status = train_dataset_add(d, m, messages, learn, n, &o, label, err);
    free(label);
    free(learn);
    free(messages);
    free(path);
    return status;
}

static pf_status add_conversation(train_dataset *d, const model *m, const conversation *c,
                                  train_data_from from, const train_dataset_options *options,
                                  pf_err *err)
{
    bool *known = xcalloc(c->n, sizeof *known), *goes_on = xcalloc(c->n + 1, sizeof *goes_on);
    for (size_t i = 0; i < c->n; i++)
        goes_on[conversation_find(c, c->messages[i].parent)] = true;
    pf_status status = add_branch(d, m, c, c->current, known, from, options, err);
    for (size_t i = 0; i < c->n && status == PF_OK; i++)
        if (!goes_on[i] && c->messages[i].id != c->current)
            status = add_branch(d, m, c, c->messages[i].id, known, from, options, err);
    free(goes_on);
    free(known);
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
        status = conversation_load_tree(s, list.items[i].id, &c, err);
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
