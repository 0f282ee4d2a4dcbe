#include "profiles/history_rows.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

/* --- conversations ---------------------------------------------------------------------------- */

enum {
    CONVERSATION_TITLE = 1,
    CONVERSATION_PROFILE,
    CONVERSATION_CREATED,
    CONVERSATION_UPDATED,
    CONVERSATION_MESSAGES,
    CONVERSATION_CURRENT,
    CONVERSATION_ORIGIN
};

void conversation_row_take(const row *r, conversation_row *out)
{
    const record *b = &r->body;
    *out = (conversation_row){.title = record_get_text(b, CONVERSATION_TITLE),
                              .profile = record_get_int(b, CONVERSATION_PROFILE),
                              .created_ms = record_get_int(b, CONVERSATION_CREATED),
                              .updated_ms = record_get_int(b, CONVERSATION_UPDATED),
                              .current = record_get_int(b, CONVERSATION_CURRENT),
                              .origin = record_get_int(b, CONVERSATION_ORIGIN),
                              .messages = record_get_head(b, CONVERSATION_MESSAGES)};
}

pf_status conversation_row_read(tx *t, int64_t id, conversation_row *out, pf_err *err)
{
    row r = {0};
    *out = (conversation_row){0};
    pf_status status = row_read(t, ROW_CONVERSATION, id, &r, err);
    if (status != PF_OK) return status;
    conversation_row_take(&r, out);
    out->row = r;
    return PF_OK;
}

void conversation_row_free(conversation_row *c)
{
    row_free(&c->row);
    wipe_text(c->title);
    *c = (conversation_row){0};
}

pf_status conversation_row_write(tx *t, user_head *head, conversation_row *c, int64_t *id,
                                 pf_err *err)
{
    record_writer w = {0};
    pf_status status = PF_OK;
    c->updated_ms = clock_unix_ms();
    record_put_text(&w, CONVERSATION_TITLE, c->title);
    record_put_int(&w, CONVERSATION_PROFILE, c->profile);
    record_put_int(&w, CONVERSATION_CREATED, c->created_ms);
    record_put_int(&w, CONVERSATION_UPDATED, c->updated_ms);
    record_put_head(&w, CONVERSATION_MESSAGES, &c->messages);
    record_put_int(&w, CONVERSATION_CURRENT, c->current);
    record_put_int(&w, CONVERSATION_ORIGIN, c->origin);
    if (c->row.id)
        status = row_update(t, ROW_CONVERSATION, &c->row, &w, &head->conversations, err);
    else
        status = row_insert(t, ROW_CONVERSATION, t->user, &w, NULL, &head->conversations, id, err);
    record_free(&w);
    return status;
}

pf_status conversation_row_make(tx *t, user_head *head, conversation_row *c, pf_err *err)
{
    int64_t id = 0;
    pf_status status = conversation_row_write(t, head, c, &id, err);
    conversation_row_free(c);
    return status == PF_OK ? conversation_row_read(t, id, c, err) : status;
}

pf_status conversation_row_info(tx *t, conversation_row *c, conversation_info *out, pf_err *err)
{
    bool exists = true;
    pf_status status = PF_OK;
    if (c->profile) status = profile_exists(t, c->profile, &exists, err);
    if (status != PF_OK) return status;
    *out = (conversation_info){.id = c->row.id,
                               .profile = exists ? c->profile : 0,
                               .title = c->title,
                               .created_ms = c->created_ms,
                               .updated_ms = c->updated_ms,
                               .n_messages = c->messages.count,
                               .origin = c->origin};
    c->title = NULL;
    return PF_OK;
}

pf_status conversation_check_profile(tx *t, int64_t profile, pf_err *err)
{
    bool exists = true;
    pf_status status = profile ? profile_exists(t, profile, &exists, err) : PF_OK;
    if (status == PF_OK && !exists)
        status = err_set(err, PF_NOT_FOUND, "there is no profile %lld", (long long)profile);
    return status;
}

/* --- messages --------------------------------------------------------------------------------- */

enum {
    MESSAGE_PARENT = 1,
    MESSAGE_ROLE,
    MESSAGE_TEXT,
    MESSAGE_IDS,
    MESSAGE_FINISH,
    MESSAGE_PROMPT_TOKENS,
    MESSAGE_CACHED_TOKENS,
    MESSAGE_COMPLETION_TOKENS,
    MESSAGE_RATING,
    MESSAGE_REWRITTEN,
    MESSAGE_CREATED,
    MESSAGE_UPDATED,
    MESSAGE_PREFILL_US,
    MESSAGE_DECODE_US,
    MESSAGE_JUDGED,
    MESSAGE_ORIGIN
};

pf_status message_missing(int64_t conversation_id, int64_t id, pf_err *err)
{
    return err_set(err, PF_NOT_FOUND, "conversation %lld has no message %lld",
                   (long long)conversation_id, (long long)id);
}

pf_status message_check(const history_message *m, pf_err *err)
{
    if (m->role < HISTORY_SYSTEM || m->role > HISTORY_ASSISTANT)
        return err_set(err, PF_USAGE, "a message has an unknown role (%d)", (int)m->role);
    if (m->len > HISTORY_MAX_TEXT)
        return err_set(err, PF_USAGE, "a message has %zu bytes; at most %u can be saved", m->len,
                       HISTORY_MAX_TEXT);
    if (!utf8_valid(m->text, m->len)) return err_set(err, PF_USAGE, "a message is not valid UTF-8");
    if (m->rewritten && (strlen(m->rewritten) > HISTORY_MAX_TEXT ||
                         !utf8_valid(m->rewritten, strlen(m->rewritten))))
        return err_set(err, PF_USAGE, "a rewritten answer is too long or not valid UTF-8");
    if (m->n_ids > HISTORY_MAX_TEXT)
        return err_set(err, PF_USAGE, "a message has too many token ids (%zu)", m->n_ids);
    if (m->rating < -1 || m->rating > 1)
        return err_set(err, PF_USAGE, "a rating is -1, 0 or 1, not %d", m->rating);
    return PF_OK;
}

static void put_ids(record_writer *w, const int32_t *ids, size_t n)
{
    unsigned char *bytes = xmalloc(4 * n);
    for (size_t i = 0; i < 4 * n; i++)
        bytes[i] = (unsigned char)((uint32_t)ids[i / 4] >> (8 * (i % 4)));
    record_put(w, MESSAGE_IDS, bytes, 4 * n);
    wipe_free(bytes, 4 * n);
}

void message_put(record_writer *w, const history_message *m)
{
    record_put_int(w, MESSAGE_PARENT, m->parent);
    record_put_int(w, MESSAGE_ROLE, m->role);
    record_put(w, MESSAGE_TEXT, m->text, m->len);
    if (m->n_ids > 0) put_ids(w, m->ids, m->n_ids);
    record_put_text(w, MESSAGE_FINISH, m->finish);
    record_put_int(w, MESSAGE_PROMPT_TOKENS, m->prompt_tokens);
    record_put_int(w, MESSAGE_CACHED_TOKENS, m->cached_tokens);
    record_put_int(w, MESSAGE_COMPLETION_TOKENS, m->completion_tokens);
    record_put_int(w, MESSAGE_RATING, m->rating);
    record_put_text(w, MESSAGE_REWRITTEN, m->rewritten);
    record_put_int(w, MESSAGE_CREATED, m->created_ms);
    record_put_int(w, MESSAGE_UPDATED, m->updated_ms);
    record_put_int(w, MESSAGE_PREFILL_US, m->prefill_us);
    record_put_int(w, MESSAGE_DECODE_US, m->decode_us);
    record_put_int(w, MESSAGE_JUDGED, m->judged_ms);
    record_put_int(w, MESSAGE_ORIGIN, m->origin);
}

static void take_ids(const record *b, history_message *out)
{
    const void *data = NULL;
    size_t len = 0;
    if (!record_get(b, MESSAGE_IDS, &data, &len) || len < 4) return;
    const unsigned char *bytes = data;
    out->n_ids = len / 4;
    out->ids = xcalloc(out->n_ids, sizeof *out->ids);
    for (size_t i = 0; i < out->n_ids; i++, bytes += 4)
        out->ids[i] = (int32_t)((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                                (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
}

void message_take(const row *r, history_message *out)
{
    const record *b = &r->body;
    const void *data = NULL;
    size_t len = 0;
    *out = (history_message){.id = r->id,
                             .parent = record_get_int(b, MESSAGE_PARENT),
                             .role = (history_role)record_get_int(b, MESSAGE_ROLE),
                             .finish = record_get_text(b, MESSAGE_FINISH),
                             .prompt_tokens = (int)record_get_int(b, MESSAGE_PROMPT_TOKENS),
                             .cached_tokens = (int)record_get_int(b, MESSAGE_CACHED_TOKENS),
                             .completion_tokens = (int)record_get_int(b, MESSAGE_COMPLETION_TOKENS),
                             .rating = (int)record_get_int(b, MESSAGE_RATING),
                             .created_ms = record_get_int(b, MESSAGE_CREATED),
                             .updated_ms = record_get_int(b, MESSAGE_UPDATED),
                             .prefill_us = record_get_int(b, MESSAGE_PREFILL_US),
                             .decode_us = record_get_int(b, MESSAGE_DECODE_US),
                             .judged_ms = record_get_int(b, MESSAGE_JUDGED),
                             .origin = record_get_int(b, MESSAGE_ORIGIN)};
    (void)record_get(b, MESSAGE_TEXT, &data, &len);
    out->text = xmemdup0(len > 0 ? data : "", len);
    out->len = len;
    if (record_get(b, MESSAGE_REWRITTEN, &data, &len)) out->rewritten = xmemdup0(data, len);
    take_ids(b, out);
}

void history_message_free(history_message *m)
{
    wipe_free(m->text, m->len);
    wipe_free(m->ids, m->n_ids * sizeof *m->ids);
    wipe_text(m->finish);
    wipe_text(m->rewritten);
    *m = (history_message){0};
}

pf_status message_row_insert(tx *t, conversation_row *c, const history_message *m, int64_t *id,
                             pf_err *err)
{
    record_writer w = {0};
    history_message now = *m;
    now.updated_ms = clock_unix_ms();
    if (!now.created_ms) now.created_ms = now.updated_ms;
    message_put(&w, &now);
    pf_status status = row_insert(t, ROW_MESSAGE, c->row.id, &w, NULL, &c->messages, id, err);
    record_free(&w);
    return status;
}

/* --- loading ---------------------------------------------------------------------------------- */

static pf_status take_message(void *ctx, const row *r, pf_err *err)
{
    (void)err;
    conversation *c = ctx;
    if ((c->n & (c->n - 1)) == 0) /* grows by doubling: at 0, 1, 2, 4, ... */
        c->messages = xrealloc_array(c->messages, c->n ? 2 * c->n : 1, sizeof *c->messages);
    message_take(r, &c->messages[c->n++]);
    return PF_OK;
}

/* --- the tree --------------------------------------------------------------------------------- */

size_t conversation_find(const conversation *c, int64_t message)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->messages[middle].id < message)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n && c->messages[low].id == message ? low : c->n;
}

/* Says of every message what it follows. A parent that is missing (its row is damaged) is replaced
 * by the message before. */
static void resolve_parents(conversation *c)
{
    for (size_t i = 0; i < c->n; i++) {
        history_message *m = &c->messages[i];
        bool known = m->parent == HISTORY_ROOT ||
                     (m->parent > 0 && m->parent < m->id && conversation_find(c, m->parent) < c->n);
        if (!known) m->parent = i > 0 ? c->messages[i - 1].id : HISTORY_ROOT;
    }
}

int64_t conversation_last(const conversation *c, int64_t message)
{
    /* children come after their parents, so one pass finds the newest at every fork from the end */
    size_t from = conversation_find(c, message);
    if (from == c->n) return 0;
    int64_t *newest = xcalloc(c->n, sizeof *newest); /* of each message: its newest child */
    for (size_t i = from + 1; i < c->n; i++) {
        size_t parent = conversation_find(c, c->messages[i].parent);
        if (parent < c->n) newest[parent] = c->messages[i].id;
    }
    while (newest[from]) {
        message = newest[from];
        from = conversation_find(c, message);
    }
    free(newest);
    return message;
}

size_t conversation_path(const conversation *c, int64_t last, size_t *path)
{
    size_t n = 0;
    for (size_t at = conversation_find(c, last); at < c->n;
         at = conversation_find(c, c->messages[at].parent))
        path[n++] = at;
    for (size_t i = 0; i < n / 2; i++) {
        size_t swap = path[i];
        path[i] = path[n - 1 - i];
        path[n - 1 - i] = swap;
    }
    return n;
}

void conversation_prune(conversation *c)
{
    size_t *path = xcalloc(c->n, sizeof *path), kept = 0;
    size_t n = conversation_path(c, c->current, path);
    for (size_t i = 0; i < c->n; i++) {
        if (kept < n && path[kept] == i)
            c->messages[kept++] = c->messages[i];
        else
            history_message_free(&c->messages[i]);
    }
    c->n = kept;
    free(path);
}

pf_status conversation_read(tx *t, int64_t id, conversation *out, pf_err *err)
{
    conversation_row c = {0};
    vault_head found;
    damage bad = {0};
    *out = (conversation){0};
    pf_status status = conversation_row_read(t, id, &c, err);
    if (status == PF_OK)
        status = row_scan(t, ROW_MESSAGE, id, &found, &bad, take_message, out, err);
    if (status == PF_OK) status = conversation_row_info(t, &c, &out->info, err);
    if (status == PF_OK && out->n) {
        resolve_parents(out);
        bool known = conversation_find(out, c.current) < out->n;
        out->current = conversation_last(out, known ? c.current : out->messages[out->n - 1].id);
    }
    if (status == PF_OK) {
        char *what = xasprintf("messages of conversation %lld", (long long)id);
        status = damage_report(&bad, &found, &c.messages, what, err);
        free(what);
    }
    damage_free(&bad);
    conversation_row_free(&c);
    return status;
}

typedef struct {
    tx *t;
    conversation_list *list;
} list_visit;

static pf_status take_conversation(void *ctx, const row *r, pf_err *err)
{
    list_visit *visit = ctx;
    conversation_list *list = visit->list;
    conversation_row c;
    conversation_info info = {0};
    conversation_row_take(r, &c);
    c.row.id = r->id;
    pf_status status = conversation_row_info(visit->t, &c, &info, err);
    c.row = (row){0};
    conversation_row_free(&c);
    if (status != PF_OK) return status;
    if ((list->n & (list->n - 1)) == 0)
        list->items = xrealloc_array(list->items, list->n ? 2 * list->n : 1, sizeof *list->items);
    list->items[list->n++] = info;
    return PF_OK;
}

static int newest_first(const void *a, const void *b)
{
    const conversation_info *x = a, *y = b;
    if (x->updated_ms != y->updated_ms) return x->updated_ms > y->updated_ms ? -1 : 1;
    return x->id > y->id ? -1 : x->id < y->id;
}

pf_status conversation_list_read(tx *t, conversation_list *out, pf_err *err)
{
    vault_head found;
    user_head head = {0};
    damage bad = {0};
    list_visit visit = {t, out};
    *out = (conversation_list){0};
    pf_status kept = user_head_read(t, &head, err);
    pf_status status = kept == PF_DAMAGED ? PF_OK : kept;
    if (status == PF_OK)
        status =
            row_scan(t, ROW_CONVERSATION, t->user, &found, &bad, take_conversation, &visit, err);
    if (status == PF_OK)
        status = damage_report(&bad, &found, kept == PF_OK ? &head.conversations : NULL,
                               "conversations", err);
    damage_free(&bad);
    user_head_free(&head);
    if (out->n > 0) qsort(out->items, out->n, sizeof *out->items, newest_first);
    out->total = out->n;
    return status;
}
