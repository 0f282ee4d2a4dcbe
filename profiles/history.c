#include "profiles/history.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/history_rows.h"
#include "profiles/secret.h"
#include "profiles/settings.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TITLE_BYTES 1000

static const char *const role_names[] = {"system", "user", "assistant"};

const char *history_role_name(history_role role)
{
    return role_names[role];
}

bool history_role_parse(const char *name, history_role *out)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, role_names[i]) != 0) continue;
        *out = (history_role)i;
        return true;
    }
    return false;
}

void conversation_info_free(conversation_info *info)
{
    wipe_text(info->title);
    *info = (conversation_info){0};
}

void conversation_list_free(conversation_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        conversation_info_free(&list->items[i]);
    free(list->items);
    *list = (conversation_list){0};
}

void conversation_free(conversation *c)
{
    for (size_t i = 0; i < c->n; i++)
        history_message_free(&c->messages[i]);
    free(c->messages);
    conversation_info_free(&c->info);
    *c = (conversation){0};
}

/* --- conversations ---------------------------------------------------------------------------- */

/* Keeps the items of one page of one profile. */
static void keep_page(conversation_list *list, int64_t profile, size_t offset, size_t limit)
{
    size_t kept = 0;
    list->total = 0;
    for (size_t i = 0; i < list->n; i++) {
        conversation_info *item = &list->items[i];
        bool counts = profile < 0 || item->profile == profile;
        size_t place = list->total;
        if (counts) list->total++;
        if (counts && place >= offset && (limit == 0 || place - offset < limit))
            list->items[kept++] = *item;
        else
            conversation_info_free(item);
    }
    list->n = kept;
}

pf_status conversation_list_load(session *s, int64_t profile, size_t offset, size_t limit,
                                 conversation_list *out, pf_err *err)
{
    tx t;
    *out = (conversation_list){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = conversation_list_read(&t, out, err);
    keep_page(out, profile, offset, limit);
    return tx_end(&t, status, err);
}

static pf_status check_title(const char *title, pf_err *err)
{
    if (!title || (strlen(title) <= MAX_TITLE_BYTES && utf8_valid(title, strlen(title))))
        return PF_OK;
    return err_set(err, PF_USAGE, "a title has at most %d bytes of valid UTF-8", MAX_TITLE_BYTES);
}

pf_status conversation_create(session *s, int64_t profile, const char *title, int64_t *id,
                              pf_err *err)
{
    tx t;
    user_head head = {0};
    conversation_row c = {.profile = profile, .created_ms = clock_unix_ms()};
    int64_t made = 0;
    pf_status status = check_title(title, err);
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    c.title = xstrdup(title ? title : "");
    status = conversation_check_profile(&t, profile, err);
    if (status == PF_OK) status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = conversation_row_write(&t, &head, &c, &made, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    conversation_row_free(&c);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK) *id = made;
    return status;
}

static pf_status save_first(tx *t, conversation_row *c, const history_message *first,
                            int64_t *message, pf_err *err)
{
    user_head head = {0};
    pf_status status = conversation_check_profile(t, c->profile, err);
    if (status == PF_OK) status = user_head_read(t, &head, err);
    if (status == PF_OK) status = conversation_row_make(t, &head, c, err);
    if (status == PF_OK) status = message_row_insert(t, c, first, message, err);
    c->current = *message;
    if (status == PF_OK) status = conversation_row_write(t, &head, c, NULL, err);
    if (status == PF_OK) status = user_head_write(t, &head, err);
    user_head_free(&head);
    return status;
}

pf_status conversation_begin(session *s, int64_t profile, const history_message *first, int64_t *id,
                             int64_t *message, pf_err *err)
{
    tx t;
    conversation_row c = {.profile = profile, .created_ms = clock_unix_ms()};
    history_message m = *first;
    int64_t saved = 0;
    m.origin = m.judged_ms = 0;
    pf_status status = message_check(&m, err);
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    c.title = history_title(m.text, m.len);
    status = save_first(&t, &c, &m, &saved, err);
    const int64_t made = c.row.id;
    conversation_row_free(&c);
    status = tx_end(&t, status, err);
    if (status != PF_OK) return status;
    *id = made;
    *message = saved;
    return PF_OK;
}

pf_status conversation_get(session *s, int64_t id, conversation_info *out, pf_err *err)
{
    tx t;
    conversation_row c = {0};
    *out = (conversation_info){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = conversation_row_read(&t, id, &c, err);
    if (status == PF_OK) status = conversation_row_info(&t, &c, out, err);
    conversation_row_free(&c);
    return tx_end(&t, status, err);
}

conversation_extent conversation_measure(const conversation *tree)
{
    return (conversation_extent){.id = tree->info.id,
                                 .n_messages = (int64_t)tree->n,
                                 .last_message = tree->n ? tree->messages[tree->n - 1].id : 0};
}

pf_status conversation_load_tree(session *s, int64_t id, conversation *out, pf_err *err)
{
    tx t;
    *out = (conversation){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    return status == PF_OK ? tx_end(&t, conversation_read(&t, id, out, err), err) : status;
}

pf_status conversation_load(session *s, int64_t id, conversation *out, pf_err *err)
{
    pf_status status = conversation_load_tree(s, id, out, err);
    conversation_prune(out);
    return status;
}

/* --- changes: read head and conversation, change, write both back --------------------------- */

typedef struct {
    tx t;
    user_head head;
    conversation_row c;
} change;

static pf_status change_begin(change *ch, session *s, int64_t conversation_id, pf_err *err)
{
    *ch = (change){0};
    pf_status status = tx_begin(s, TX_WRITE, &ch->t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&ch->t, &ch->head, err);
    if (status == PF_OK) status = conversation_row_read(&ch->t, conversation_id, &ch->c, err);
    if (status == PF_OK) return PF_OK;
    user_head_free(&ch->head);
    return tx_end(&ch->t, status, err);
}

static pf_status change_end(change *ch, pf_status status, pf_err *err)
{
    if (status == PF_OK) status = conversation_row_write(&ch->t, &ch->head, &ch->c, NULL, err);
    if (status == PF_OK) status = user_head_write(&ch->t, &ch->head, err);
    conversation_row_free(&ch->c);
    user_head_free(&ch->head);
    return tx_end(&ch->t, status, err);
}

/* Reads a message of the conversation being changed. */
static pf_status read_message(change *ch, int64_t id, row *r, history_message *out, pf_err *err)
{
    *out = (history_message){0};
    pf_status status = row_read(&ch->t, ROW_MESSAGE, id, r, err);
    if (status == PF_NOT_FOUND || (status == PF_OK && r->owner != ch->c.row.id))
        status = message_missing(ch->c.row.id, id, err);
    if (status == PF_OK) message_take(r, out);
    return status;
}

static pf_status write_message(change *ch, const row *r, history_message *m, pf_err *err)
{
    record_writer w = {0};
    m->updated_ms = clock_unix_ms();
    message_put(&w, m);
    pf_status status = row_update(&ch->t, ROW_MESSAGE, r, &w, &ch->c.messages, err);
    record_free(&w);
    return status;
}

pf_status conversation_update(session *s, int64_t id, const char *title, int64_t profile,
                              pf_err *err)
{
    change ch;
    pf_status status = check_title(title, err);
    if (status == PF_OK) status = change_begin(&ch, s, id, err);
    if (status != PF_OK) return status;
    if (profile >= 0) {
        status = conversation_check_profile(&ch.t, profile, err);
        ch.c.profile = profile;
    }
    if (title) {
        wipe_text(ch.c.title);
        ch.c.title = xstrdup(title);
    }
    return change_end(&ch, status, err);
}

static pf_status choose(change *ch, int64_t message, pf_err *err)
{
    row r = {0};
    history_message m = {0};
    pf_status status = read_message(ch, message, &r, &m, err);
    if (status == PF_OK) ch->c.current = message;
    history_message_free(&m);
    row_free(&r);
    return status;
}

pf_status conversation_choose(session *s, int64_t id, int64_t message, pf_err *err)
{
    change ch;
    pf_status status = change_begin(&ch, s, id, err);
    return status == PF_OK ? change_end(&ch, choose(&ch, message, err), err) : status;
}

static pf_status drop_message_drafts(tx *t, user_head *head, int64_t message, pf_err *err)
{
    pf_status status = PF_OK;
    for (int rewrite = 0; rewrite < 2 && status == PF_OK; rewrite++) {
        char *key = message_draft_key(message, rewrite);
        status = settings_drop(t, head, key, err);
        free(key);
    }
    return status;
}

/* What the messages that go (gone NULL: all) have left outside the conversation: checkpoints of
 * trainings, notes that were not confirmed, what was typed, and changes that were begun. */
static pf_status forget_elsewhere(tx *t, user_head *head, const conversation *tree, int64_t id,
                                  const bool *gone, pf_err *err)
{
    const char **texts = xcalloc(tree->n + 1, sizeof *texts);
    size_t n = 0;
    int64_t since_ms = gone ? INT64_MAX : INT64_MIN;
    pf_status status = checkpoints_forget(t, head, "conversations", id, err);
    for (size_t i = 0; i < tree->n && status == PF_OK; i++) {
        const history_message *m = &tree->messages[i];
        if (gone && !gone[i]) continue;
        status = drop_message_drafts(t, head, m->id, err);
        if (m->role != HISTORY_USER) continue;
        texts[n++] = m->text;
        if (m->created_ms < since_ms) since_ms = m->created_ms;
    }
    if (status == PF_OK) status = notes_forget(t, head, id, since_ms, err);
    if (status == PF_OK) status = inputs_forget(t, head, 0, texts, n, err);
    if (status == PF_OK && tree->info.profile)
        status = inputs_forget(t, head, tree->info.profile, texts, n, err);
    free(texts);
    return status;
}

pf_status conversation_remove(session *s, int64_t id, pf_err *err)
{
    tx t;
    user_head head = {0};
    row r = {0};
    conversation tree = {0};
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = row_read(&t, ROW_CONVERSATION, id, &r, err);
    if (status == PF_OK) {
        status = conversation_read(&t, id, &tree, err);
        if (status == PF_DAMAGED) status = PF_OK;
    }
    if (status == PF_OK) status = row_remove(&t, ROW_CONVERSATION, &r, &head.conversations, err);
    if (status == PF_OK) status = forget_elsewhere(&t, &head, &tree, id, NULL, err);
    if (status == PF_OK) {
        char *draft = draft_key(id);
        status = settings_drop(&t, &head, draft, err);
        free(draft);
    }
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    conversation_free(&tree);
    row_free(&r);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

static pf_status check_parent(change *ch, int64_t parent, pf_err *err)
{
    row r = {0};
    history_message m = {0};
    pf_status status = read_message(ch, parent, &r, &m, err);
    history_message_free(&m);
    row_free(&r);
    return status == PF_DAMAGED ? PF_OK : status;
}

pf_status message_append(session *s, int64_t conversation_id, const history_message *message,
                         int64_t *id, pf_err *err)
{
    change ch;
    int64_t made = 0;
    history_message m = *message;
    m.origin = m.judged_ms = 0;
    pf_status status = message_check(&m, err);
    if (status == PF_OK) status = change_begin(&ch, s, conversation_id, err);
    if (status != PF_OK) return status;
    if (m.parent > 0) status = check_parent(&ch, m.parent, err);
    if (status == PF_OK) status = message_row_insert(&ch.t, &ch.c, &m, &made, err);
    if (status == PF_OK) ch.c.current = made;
    status = change_end(&ch, status, err);
    if (status == PF_OK && id) *id = made;
    return status;
}

pf_status message_update(session *s, int64_t conversation_id, const history_message *message,
                         pf_err *err)
{
    change ch;
    row r = {0};
    history_message old = {0};
    pf_status status = message_check(message, err);
    if (status == PF_OK) status = change_begin(&ch, s, conversation_id, err);
    if (status != PF_OK) return status;
    status = read_message(&ch, message->id, &r, &old, err);
    if (status == PF_OK) {
        history_message now = *message;
        now.parent = old.parent;
        now.created_ms = old.created_ms;
        now.judged_ms = clock_unix_ms();
        now.origin = old.origin;
        status = write_message(&ch, &r, &now, err);
    }
    history_message_free(&old);
    row_free(&r);
    return change_end(&ch, status, err);
}

pf_status message_rate(session *s, int64_t conversation_id, int64_t id, int rating,
                       const char *rewritten, pf_err *err)
{
    change ch;
    row r = {0};
    history_message m = {0};
    pf_status status = change_begin(&ch, s, conversation_id, err);
    if (status != PF_OK) return status;
    status = read_message(&ch, id, &r, &m, err);
    if (status == PF_OK) {
        m.rating = rating;
        m.judged_ms = clock_unix_ms();
        if (rewritten) {
            wipe_text(m.rewritten);
            m.rewritten = *rewritten ? xstrdup(rewritten) : NULL;
        }
        status = message_check(&m, err);
    }
    if (status == PF_OK) status = write_message(&ch, &r, &m, err);
    history_message_free(&m);
    row_free(&r);
    return change_end(&ch, status, err);
}

/* Where a message hangs when the marked ones are gone: on the nearest one above it that stays. */
static int64_t remaining_parent(const conversation *tree, const bool *gone, size_t at)
{
    int64_t parent = tree->messages[at].parent;
    for (size_t above = conversation_find(tree, parent); above < tree->n && gone[above];
         above = conversation_find(tree, parent))
        parent = tree->messages[above].parent;
    return parent;
}

/* Gives what follows a marked message and stays to the nearest one above it that stays. */
static pf_status hand_on_children(change *ch, const conversation *tree, const bool *gone,
                                  pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < tree->n && status == PF_OK; i++) {
        row r = {0};
        history_message m = {0};
        int64_t heir = gone[i] ? 0 : remaining_parent(tree, gone, i);
        if (gone[i] || heir == tree->messages[i].parent) continue;
        status = read_message(ch, tree->messages[i].id, &r, &m, err);
        m.parent = heir;
        if (status == PF_OK) status = write_message(ch, &r, &m, err);
        history_message_free(&m);
        row_free(&r);
    }
    return status;
}

/* Marks a message and what is to go with it. Owned. */
static bool *choose_gone(const conversation *tree, int64_t id, message_removal how)
{
    bool *gone = xcalloc(tree->n + 1, sizeof *gone);
    const size_t at = conversation_find(tree, id);
    const bool with_answers =
        how == REMOVE_WITH_ANSWERS && at < tree->n && tree->messages[at].role == HISTORY_USER;
    for (size_t i = 0; i < tree->n; i++) {
        const history_message *m = &tree->messages[i];
        size_t above = conversation_find(tree, m->parent);
        bool below = m->parent == id || (above < tree->n && gone[above]);
        gone[i] = m->id == id || (how == REMOVE_AND_LATER && below) ||
                  (with_answers && m->parent == id && m->role == HISTORY_ASSISTANT);
    }
    return gone;
}

/* Removes the marked messages but the one with the id, which may be damaged and not in the tree. */
static pf_status remove_others(change *ch, const conversation *tree, const bool *gone, int64_t id,
                               pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < tree->n && status == PF_OK; i++) {
        int64_t n = 0;
        if (gone[i] && tree->messages[i].id != id)
            status = row_remove_from(&ch->t, ROW_MESSAGE, ch->c.row.id, tree->messages[i].id, true,
                                     &ch->c.messages, &n, err);
    }
    return status;
}

/* The branch that is shown stays the current one, as far as it stays. */
static void keep_branch(change *ch, const conversation *tree, const bool *gone)
{
    size_t at = conversation_find(tree, tree->current);
    int64_t end = tree->current;
    if (at < tree->n && gone[at]) end = remaining_parent(tree, gone, at);
    ch->c.current = end > 0 ? end : 0;
}

/* A title that was made of a message that goes is made of the first question that stays. */
static void renew_title(change *ch, const conversation *tree, const bool *gone)
{
    const history_message *first = NULL;
    bool lost = false;
    for (size_t i = 0; i < tree->n; i++) {
        const history_message *m = &tree->messages[i];
        if (m->role != HISTORY_USER) continue;
        if (!gone[i]) {
            if (!first) first = m;
            continue;
        }
        char *made = history_title(m->text, m->len);
        lost = lost || strcmp(made, ch->c.title) == 0;
        wipe_text(made);
    }
    if (!lost) return;
    wipe_text(ch->c.title);
    ch->c.title = first ? history_title(first->text, first->len) : xstrdup("");
}

/* Deletes a message, and others with it, of the conversation being changed. */
static pf_status remove_messages(change *ch, int64_t id, message_removal how, pf_err *err)
{
    row r = {0};
    history_message m = {0};
    conversation tree = {0};
    bool *gone = NULL;
    int64_t n = 0;
    const int64_t conversation_id = ch->c.row.id;
    /* a damaged message can be deleted, one that isn't there can't */
    pf_status status = read_message(ch, id, &r, &m, err);
    if (status == PF_OK || status == PF_DAMAGED)
        status = conversation_read(&ch->t, conversation_id, &tree, err);
    if (status == PF_OK || status == PF_DAMAGED) {
        gone = choose_gone(&tree, id, how);
        keep_branch(ch, &tree, gone);
        status = hand_on_children(ch, &tree, gone, err);
    }
    if (status == PF_OK) status = remove_others(ch, &tree, gone, id, err);
    if (status == PF_OK)
        status = row_remove_from(&ch->t, ROW_MESSAGE, conversation_id, id, true, &ch->c.messages,
                                 &n, err);
    if (status == PF_OK && n == 0) status = message_missing(conversation_id, id, err);
    if (status == PF_OK) renew_title(ch, &tree, gone);
    if (status == PF_OK)
        status = forget_elsewhere(&ch->t, &ch->head, &tree, conversation_id, gone, err);
    free(gone);
    conversation_free(&tree);
    history_message_free(&m);
    row_free(&r);
    return status;
}

pf_status message_remove(session *s, int64_t conversation_id, int64_t id, message_removal how,
                         pf_err *err)
{
    change ch;
    pf_status status = change_begin(&ch, s, conversation_id, err);
    if (status != PF_OK) return status;
    status = change_end(&ch, remove_messages(&ch, id, how, err), err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

pf_status message_take_back(session *s, int64_t conversation_id, int64_t id, int64_t former,
                            pf_err *err)
{
    change ch;
    pf_status status = change_begin(&ch, s, conversation_id, err);
    if (status != PF_OK) return status;
    if (id) status = remove_messages(&ch, id, REMOVE_AND_LATER, err);
    if (status == PF_OK && former) {
        status = choose(&ch, former, err);
        if (status == PF_NOT_FOUND) status = PF_OK; /* deleted meanwhile, elsewhere */
    }
    status = change_end(&ch, status, err);
    if (status == PF_OK && id) store_scrub(s->store);
    return status;
}
