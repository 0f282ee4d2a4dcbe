#include "train/gather.h"

#include "base/file.h"
#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

#define MOST_FILE_BYTES ((size_t)1 << 30)
#define DEFAULT_TOKENS  1024
#define REWRITE_REPEAT  2 /* times that a conversation with a rewritten answer counts */

void gathered_ids_free(gathered_ids *g)
{
    free(g->ids);
    *g = (gathered_ids){0};
}

pf_status gather_file(train_dataset *d, const model *m, const char *path,
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

/* --- conversations --------------------------------------------------------------------------- */

static bool is_rewritten(const history_message *message)
{
    return message->rewritten && *message->rewritten;
}

static bool wanted(const history_message *message, learn_from from)
{
    if (is_rewritten(message)) return true;
    if (from == LEARN_REWRITES || message->rating < 0) return false;
    return from == LEARN_ALL || message->rating > 0;
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
                            bool *known, learn_from from, const train_dataset_options *options,
                            pf_err *err)
{
    size_t *path = xcalloc(c->n, sizeof *path);
    size_t n = conversation_path(c, last, path);
    chat_message *messages = xcalloc(n, sizeof *messages);
    unsigned char *learn = xcalloc(n, 1);
    train_dataset_options o = *options;
    bool any = false;
    if (last != c->current && from == LEARN_ALL) from = LEARN_GOOD;
    for (size_t i = 0; i < n; i++) {
        const history_message *message = &c->messages[path[i]];
        messages[i] = as_chat(message);
        learn[i] = message->role == HISTORY_ASSISTANT && !known[path[i]] && wanted(message, from);
        known[path[i]] |= learn[i];
        any |= learn[i];
        if (learn[i] && is_rewritten(message)) o.repeat = REWRITE_REPEAT;
    }
    if (options->seen && last == c->current) options->seen(options->seen_ctx, messages, n);
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
                                  learn_from from, const train_dataset_options *options,
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

static pf_status add_stored(train_dataset *d, const model *m, session *s, int64_t id,
                            learn_from from, const train_dataset_options *options,
                            gathered_ids *used, pf_err *err)
{
    conversation c = {0};
    size_t before = d->n;
    pf_status status = conversation_load(s, id, &c, err);
    if (status == PF_OK) status = add_conversation(d, m, &c, from, options, err);
    conversation_free(&c);
    if (status == PF_OK && used && d->n > before) {
        used->ids = xrealloc_array(used->ids, used->n + 1, sizeof *used->ids);
        used->ids[used->n++] = id;
    }
    return status;
}

pf_status gather_conversations(train_dataset *d, const model *m, session *s, const train_request *r,
                               const train_dataset_options *options, gathered_ids *used,
                               pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < r->n_conversations && status == PF_OK; i++)
        status = add_stored(d, m, s, r->conversations[i], r->from, options, used, err);
    if (r->n_conversations > 0 || status != PF_OK) return status;
    conversation_list list = {0};
    status = conversation_list_load(s, r->profile ? r->profile : -1, 0, 0, &list, err);
    for (size_t i = list.n; i-- > 0 && status == PF_OK;) /* oldest first */
        status = add_stored(d, m, s, list.items[i].id, r->from, options, used, err);
    conversation_list_free(&list);
    return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

train_dataset_options gather_options(const train_request *r)
{
    bool prefill_only = r->method == TRAIN_LORAP || r->method == TRAIN_DIREFTP;
    return (train_dataset_options){.policy = prefill_only ? POSITIONS_TURNS : POSITIONS_ALL,
                                   .max_tokens = r->max_tokens ? r->max_tokens : DEFAULT_TOKENS};
}

pf_status gather_examples(session *s, const model *m, const train_request *r, train_dataset *d,
                          gathered_ids *used, lessons_seen *seen, pf_err *err)
{
    train_dataset_options options = gather_options(r);
    if (seen) {
        options.seen = lessons_see;
        options.seen_ctx = seen;
    }
    pf_status status = PF_OK;
    for (size_t i = 0; i < r->n_files && status == PF_OK; i++)
        status = gather_file(d, m, r->files[i], &options, err);
    if (status == PF_OK && r->n_files == 0 && s)
        status = gather_conversations(d, m, s, r, &options, used, err);
    if (status == PF_OK) train_dataset_hold_out(d, r->held_out, r->seed);
    return status;
}
