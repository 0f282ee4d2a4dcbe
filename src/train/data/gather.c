#include "train/data/gather.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "train/data/copies.h"

#include <stdlib.h>
#include <string.h>

#define MOST_FILE_BYTES ((size_t)1 << 30)
#define DEFAULT_TOKENS  1024
#define REWRITE_REPEAT  2 /* times that a conversation with a rewritten answer counts */

void gathered_list_free(gathered_list *g)
{
    free(g->items);
    *g = (gathered_list){0};
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

/* A branch as the chat would send it: without stored system messages (the profile's settings hold
 * the text), and two messages of the person in a row (an answer was lost) as one. */
typedef struct {
    chat_message *messages;
    unsigned char *learn;
    size_t n;
    buf *joined; /* [n] texts of joined messages */
    int repeat;
    bool any;   /* something is learned */
    bool fresh; /* not all of it was in other conversations that were looked at */
} branch;

static void join_message(branch *b, const chat_message *more)
{
    chat_message *last = &b->messages[b->n - 1];
    buf text = {0};
    buf_append(&text, last->text, last->len);
    buf_puts(&text, "\n\n");
    buf_append(&text, more->text, more->len);
    wipe_buf(&b->joined[b->n - 1]);
    b->joined[b->n - 1] = text;
    last->text = buf_str(&b->joined[b->n - 1]);
    last->len = text.len;
}

static void free_branch(branch *b)
{
    for (size_t i = 0; i < b->n; i++)
        wipe_buf(&b->joined[i]);
    free(b->joined);
    free(b->messages);
    free(b->learn);
}

/* The choice for a branch: of one that the person left behind only good and rewritten answers. */
static learn_from choice_for(bool current, learn_from from)
{
    return !current && from == LEARN_ALL ? LEARN_GOOD : from;
}

/* A conversation that is being added, with what others have brought in. */
typedef struct {
    const conversation *c;
    bool *known; /* [c->n] messages that another branch has brought in */
    copy_table *copies;
    learn_from from;
} source;

/* Of branches that the person left behind only what was rated good or rewritten is learned from. */
static void read_branch(const source *s, int64_t last, branch *b)
{
    const conversation *c = s->c;
    const learn_from from = choice_for(last == c->current, s->from);
    size_t *path = xcalloc(c->n, sizeof *path), n = conversation_path(c, last, path);
    *b = (branch){.messages = xcalloc(n, sizeof *b->messages),
                  .learn = xcalloc(n, 1),
                  .joined = xcalloc(n, sizeof *b->joined)};
    for (size_t i = 0; i < n; i++) {
        const history_message *message = &c->messages[path[i]];
        const chat_message chat = as_chat(message);
        if (message->role == HISTORY_SYSTEM) continue;
        if (last == c->current && copies_look(s->copies, message)) b->fresh = true;
        if (b->n && chat.role == ROLE_USER && b->messages[b->n - 1].role == ROLE_USER) {
            join_message(b, &chat);
            continue;
        }
        bool learn = chat.role == ROLE_ASSISTANT && !s->known[path[i]] && wanted(message, from) &&
                     copies_learn(s->copies, message, s->from);
        s->known[path[i]] |= learn;
        b->any |= learn;
        if (learn && is_rewritten(message)) b->repeat = REWRITE_REPEAT;
        b->learn[b->n] = learn;
        b->messages[b->n++] = chat;
    }
    free(path);
}

static pf_status add_branch(train_dataset *d, const model *m, const source *s, int64_t last,
                            const train_dataset_options *options, pf_err *err)
{
    branch b;
    train_dataset_options o = *options;
    pf_status status = PF_OK;
    read_branch(s, last, &b);
    o.repeat = b.repeat;
    if (o.seen && b.fresh) o.seen(o.seen_ctx, b.messages, b.n);
    char *label = xasprintf("conversation %lld", (long long)s->c->info.id);
    if (b.any) status = train_dataset_add(d, m, b.messages, b.learn, b.n, &o, label, err);
    free(label);
    free_branch(&b);
    return status;
}

static pf_status add_conversation(train_dataset *d, const model *m, const conversation *c,
                                  copy_table *copies, learn_from from,
                                  const train_dataset_options *options, pf_err *err)
{
    bool *known = xcalloc(c->n, sizeof *known), *goes_on = xcalloc(c->n + 1, sizeof *goes_on);
    const source s = {.c = c, .known = known, .copies = copies, .from = from};
    for (size_t i = 0; i < c->n; i++)
        goes_on[conversation_find(c, c->messages[i].parent)] = true;
    pf_status status = add_branch(d, m, &s, c->current, options, err);
    for (size_t i = 0; i < c->n && status == PF_OK; i++)
        if (!goes_on[i] && c->messages[i].id != c->current)
            status = add_branch(d, m, &s, c->messages[i].id, options, err);
    free(goes_on);
    free(known);
    return status;
}

static void note_used(gathered_list *used, const conversation_extent *read)
{
    for (size_t i = 0; i < used->n; i++)
        if (used->items[i].id == read->id) return;
    used->items = xrealloc_array(used->items, used->n + 1, sizeof *used->items);
    used->items[used->n++] = *read;
}

static pf_status add_stored(train_dataset *d, const model *m, session *s, int64_t id,
                            copy_table *copies, learn_from from,
                            const train_dataset_options *options, gathered_list *used, pf_err *err)
{
    conversation c = {0};
    size_t before = d->n, n_lent = 0;
    const conversation_extent **lent = NULL;
    pf_status status = conversation_load_tree(s, id, &c, err);
    if (status == PF_OK) {
        lent = xcalloc(c.n + 1, sizeof *lent);
        n_lent = copies_judge(copies, &c, lent);
        status = add_conversation(d, m, &c, copies, from, options, err);
    }
    if (status == PF_OK && used && d->n > before) {
        const conversation_extent own = conversation_measure(&c);
        note_used(used, &own);
        for (size_t i = 0; i < n_lent; i++)
            note_used(used, lent[i]);
    }
    free(lent);
    conversation_free(&c);
    return status;
}

pf_status gather_conversations(train_dataset *d, const model *m, session *s, const train_request *r,
                               const train_dataset_options *options, gathered_list *used,
                               pf_err *err)
{
    copy_table copies = {0};
    conversation_list list = {0};
    pf_status status = copies_load(s, &copies, err);
    for (size_t i = 0; i < r->n_conversations && status == PF_OK; i++)
        status = add_stored(d, m, s, r->conversations[i], &copies, r->from, options, used, err);
    if (r->n_conversations > 0 || status != PF_OK) goto out;
    status = conversation_list_load(s, r->profile ? r->profile : -1, 0, 0, &list, err);
    for (size_t i = list.n; i-- > 0 && status == PF_OK;) /* oldest first */
        status = add_stored(d, m, s, list.items[i].id, &copies, r->from, options, used, err);
out:
    conversation_list_free(&list);
    copies_free(&copies);
    return status;
}

static void count_conversation(const conversation *c, copy_table *copies,
                               size_t answers[LEARN_REWRITES + 1])
{
    bool *current = xcalloc(c->n + 1, sizeof *current);
    size_t *path = xcalloc(c->n + 1, sizeof *path), n = conversation_path(c, c->current, path);
    for (size_t i = 0; i < n; i++)
        current[path[i]] = true;
    for (size_t i = 0; i < c->n; i++)
        for (learn_from from = LEARN_ALL; from <= LEARN_REWRITES; from++)
            answers[from] += c->messages[i].role == HISTORY_ASSISTANT &&
                             wanted(&c->messages[i], choice_for(current[i], from)) &&
                             copies_learn(copies, &c->messages[i], from);
    free(path);
    free(current);
}

static pf_status count_stored(session *s, int64_t id, copy_table *copies,
                              size_t answers[LEARN_REWRITES + 1], pf_err *err)
{
    conversation c = {0};
    pf_status status = conversation_load_tree(s, id, &c, err);
    if (status == PF_OK) {
        const conversation_extent **lent = xcalloc(c.n + 1, sizeof *lent);
        (void)copies_judge(copies, &c, lent);
        free(lent);
        count_conversation(&c, copies, answers);
    }
    conversation_free(&c);
    return status;
}

pf_status gather_count(session *s, int64_t profile, size_t answers[LEARN_REWRITES + 1], pf_err *err)
{
    copy_table copies = {0};
    conversation_list list = {0};
    for (learn_from from = LEARN_ALL; from <= LEARN_REWRITES; from++)
        answers[from] = 0;
    pf_status status = copies_load(s, &copies, err);
    if (status == PF_OK)
        status = conversation_list_load(s, profile ? profile : -1, 0, 0, &list, err);
    for (size_t i = 0; i < list.n && status == PF_OK; i++)
        status = count_stored(s, list.items[i].id, &copies, answers, err);
    conversation_list_free(&list);
    copies_free(&copies);
    return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

train_dataset_options gather_options(const train_request *r, const char *system)
{
    bool prefill_only = r->method == TRAIN_LORAP || r->method == TRAIN_DIREFTP;
    return (train_dataset_options){.policy = prefill_only ? POSITIONS_TURNS : POSITIONS_ALL,
                                   .max_tokens = r->max_tokens ? r->max_tokens : DEFAULT_TOKENS,
                                   .system = system};
}

/* The system text that the profile's settings put before every chat. Owned; NULL: none. */
static pf_status read_system(session *s, int64_t profile, char **out, pf_err *err)
{
    profile_info info = {0};
    json_t *settings = NULL;
    if (!s || !profile) return PF_OK;
    pf_status status = profile_get(s, profile, &info, err);
    if (status == PF_OK)
        status = json_parse(info.settings, strlen(info.settings), "the profile's settings",
                            &settings, err);
    const char *system = json_string_value(json_object_get(settings, "system"));
    if (system && *system) *out = xstrdup(system);
    json_decref(settings);
    profile_info_free(&info);
    return status;
}

pf_status gather_examples(session *s, const model *m, const train_request *r, train_dataset *d,
                          gathered_list *used, lessons_seen *seen, pf_err *err)
{
    pf_status status = read_system(s, r->profile, &seen->system, err);
    train_dataset_options options = gather_options(r, seen->system);
    options.seen = lessons_see;
    options.seen_ctx = seen;
    for (size_t i = 0; i < r->n_files && status == PF_OK; i++)
        status = gather_file(d, m, r->files[i], &options, err);
    if (status == PF_OK && r->n_files == 0 && s)
        status = gather_conversations(d, m, s, r, &options, used, err);
    if (status == PF_OK) train_dataset_hold_out(d, r->held_out, r->seed);
    return status;
}
