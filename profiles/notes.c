#include "profiles/notes.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "models/unicode.h"
#include "profiles/internal.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELD_PROFILE = 1,
    FIELD_TEXT,
    FIELD_STATE,
    FIELD_CONVERSATION,
    FIELD_CREATED,
    FIELD_UPDATED
};

static const char *const state_names[] = {"proposed", "confirmed", "refused"};

const char *note_state_name(note_state state)
{
    return state_names[state];
}

void note_list_free(note_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        wipe_text(list->items[i].text);
    free(list->items);
    *list = (note_list){0};
}

/* --- texts ------------------------------------------------------------------------------------ */

/* The text without white space around it. Owned. */
static char *trimmed(const char *text)
{
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    size_t first = 0;
    while (first < len && strchr(" \t\r\n", text[first]))
        first++;
    return xmemdup0(text + first, len - first);
}

static pf_status check_text(const char *text, pf_err *err)
{
    const size_t len = strlen(text);
    if (len == 0) return err_set(err, PF_USAGE, "a note needs a text");
    if (len > NOTE_MAX_BYTES)
        return err_set(err, PF_USAGE, "a note has %zu bytes; at most %d can be kept", len,
                       NOTE_MAX_BYTES);
    if (!utf8_valid(text, len)) return err_set(err, PF_USAGE, "a note is not valid UTF-8");
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return err_set(err, PF_USAGE, "a note is one line, without control characters");
    return PF_OK;
}

static uint32_t next_lower(const char **p)
{
    uint32_t c = 0;
    *p += utf8_decode(*p, strlen(*p), &c, NULL);
    return unicode_lower(c);
}

static bool same_text(const char *a, const char *b)
{
    while (*a && *b)
        if (next_lower(&a) != next_lower(&b)) return false;
    return *a == *b;
}

/* --- rows ------------------------------------------------------------------------------------- */

static void take(const row *r, note_info *out)
{
    const record *b = &r->body;
    *out = (note_info){.id = r->id,
                       .profile = record_get_int(b, FIELD_PROFILE),
                       .text = record_get_text(b, FIELD_TEXT),
                       .state = (note_state)record_get_int(b, FIELD_STATE),
                       .conversation = record_get_int(b, FIELD_CONVERSATION),
                       .created_ms = record_get_int(b, FIELD_CREATED),
                       .updated_ms = record_get_int(b, FIELD_UPDATED),
                       .revision = r->revision};
    if (out->state < NOTE_PROPOSED || out->state > NOTE_REFUSED) out->state = NOTE_REFUSED;
}

static void put(record_writer *w, const note_info *note)
{
    record_put_int(w, FIELD_PROFILE, note->profile);
    record_put_text(w, FIELD_TEXT, note->text);
    record_put_int(w, FIELD_STATE, note->state);
    record_put_int(w, FIELD_CONVERSATION, note->conversation);
    record_put_int(w, FIELD_CREATED, note->created_ms);
    record_put_int(w, FIELD_UPDATED, clock_unix_ms());
}

typedef struct {
    tx *t;
    note_list *list;
} list_visit;

static pf_status take_note(void *ctx, const row *r, pf_err *err)
{
    list_visit *visit = ctx;
    note_list *list = visit->list;
    note_info note;
    bool exists = true;
    take(r, &note);
    pf_status status = note.profile ? profile_exists(visit->t, note.profile, &exists, err) : PF_OK;
    if (status != PF_OK) {
        wipe_text(note.text);
        return status;
    }
    if (!exists) note.profile = 0;
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = note;
    return PF_OK;
}

static pf_status read_all(tx *t, const user_head *head, note_list *out, pf_err *err)
{
    vault_head found;
    damage bad = {0};
    list_visit visit = {t, out};
    *out = (note_list){0};
    pf_status status = row_scan(t, ROW_NOTE, t->user, &found, &bad, take_note, &visit, err);
    if (status == PF_OK) status = damage_report(&bad, &found, &head->notes, "notes", err);
    damage_free(&bad);
    return status;
}

pf_status notes_any(tx *t, const user_head *head, int64_t profile, bool *any, pf_err *err)
{
    note_list list = {0};
    *any = false;
    pf_status status = read_all(t, head, &list, err);
    for (size_t i = 0; i < list.n; i++)
        *any |= list.items[i].profile == profile;
    note_list_free(&list);
    return status;
}

static void keep_of_profile(note_list *list, int64_t profile)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        int64_t of = list->items[i].profile;
        if (profile < 0 || of == 0 || of == profile)
            list->items[kept++] = list->items[i];
        else
            wipe_text(list->items[i].text);
    }
    list->n = kept;
}

pf_status note_list_load(session *s, int64_t profile, note_list *out, pf_err *err)
{
    tx t;
    user_head head = {0};
    *out = (note_list){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = read_all(&t, &head, out, err);
    user_head_free(&head);
    keep_of_profile(out, profile);
    return tx_end(&t, status, err);
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Writes a note over the row old (row id 0: as a new one). */
static pf_status write_note(tx *t, user_head *head, const row *old, const note_info *note,
                            int64_t *id, pf_err *err)
{
    record_writer w = {0};
    put(&w, note);
    pf_status status = old->id ? row_update(t, ROW_NOTE, old, &w, &head->notes, err)
                               : row_insert(t, ROW_NOTE, t->user, &w, NULL, &head->notes, id, err);
    record_free(&w);
    if (status == PF_OK) status = user_head_write(t, head, err);
    return status;
}

/* The note of the same text and profile, or NULL. */
static const note_info *find_same(const note_list *list, const char *text, int64_t profile)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].profile == profile && same_text(list->items[i].text, text))
            return &list->items[i];
    return NULL;
}

static pf_status add(tx *t, const note_info *note, int64_t *id, pf_err *err)
{
    user_head head = {0};
    note_list list = {0};
    row old = {0};
    bool exists = true;
    note_info now = *note;
    now.created_ms = clock_unix_ms();
    pf_status status = note->profile ? profile_exists(t, note->profile, &exists, err) : PF_OK;
    if (status == PF_OK && !exists)
        status = err_set(err, PF_USAGE, "there is no profile %lld", (long long)note->profile);
    if (status == PF_OK) status = user_head_read(t, &head, err);
    if (status == PF_OK) status = read_all(t, &head, &list, err);
    const note_info *same = status == PF_OK ? find_same(&list, note->text, note->profile) : NULL;
    if (same) {
        *id = same->id;
        now.created_ms = same->created_ms;
        now.conversation = same->conversation;
        status = row_read(t, ROW_NOTE, same->id, &old, err);
    }
    const bool as_it_is =
        same && (note->state == NOTE_PROPOSED ||
                 (note->state == same->state && strcmp(note->text, same->text) == 0));
    if (status == PF_OK && same && !as_it_is)
        status = checkpoints_forget(t, &head, "notes", same->id, err);
    if (status == PF_OK && !as_it_is) status = write_note(t, &head, &old, &now, id, err);
    row_free(&old);
    note_list_free(&list);
    user_head_free(&head);
    return status;
}

pf_status note_add(session *s, const note_info *note, int64_t *id, pf_err *err)
{
    tx t;
    int64_t made = 0;
    note_info clean = *note;
    clean.text = trimmed(note->text);
    pf_status status = check_text(clean.text, err);
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status == PF_OK) status = tx_end(&t, add(&t, &clean, &made, err), err);
    if (status == PF_OK && id) *id = made;
    wipe_text(clean.text);
    return status;
}

static pf_status update(tx *t, int64_t id, char *text, note_state state, pf_err *err)
{
    user_head head = {0};
    row old = {0};
    note_info note = {0};
    pf_status status = user_head_read(t, &head, err);
    if (status == PF_OK) status = row_read(t, ROW_NOTE, id, &old, err);
    if (status == PF_OK) {
        take(&old, &note);
        char *before = note.text;
        if (text) note.text = text;
        note.state = state;
        status = checkpoints_forget(t, &head, "notes", id, err);
        if (status == PF_OK) status = write_note(t, &head, &old, &note, NULL, err);
        wipe_text(before);
    }
    row_free(&old);
    user_head_free(&head);
    return status;
}

pf_status note_update(session *s, int64_t id, const char *text, note_state state, pf_err *err)
{
    tx t;
    char *clean = text ? trimmed(text) : NULL;
    pf_status status = clean ? check_text(clean, err) : PF_OK;
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status == PF_OK) status = tx_end(&t, update(&t, id, clean, state, err), err);
    wipe_text(clean);
    return status;
}

pf_status notes_forget(tx *t, user_head *head, int64_t conversation, int64_t since_ms, pf_err *err)
{
    note_list list = {0};
    pf_status status = read_all(t, head, &list, err);
    if (status == PF_DAMAGED) status = PF_OK; /* damage elsewhere is no reason to keep */
    for (size_t i = 0; i < list.n && status == PF_OK; i++) {
        row r = {0};
        const note_info *n = &list.items[i];
        if (n->conversation != conversation || n->state == NOTE_CONFIRMED ||
            n->created_ms < since_ms)
            continue;
        status = row_read(t, ROW_NOTE, n->id, &r, err);
        if (status == PF_OK) status = row_remove(t, ROW_NOTE, &r, &head->notes, err);
        row_free(&r);
    }
    note_list_free(&list);
    return status;
}

pf_status note_remove(session *s, int64_t id, pf_err *err)
{
    tx t;
    user_head head = {0};
    row r = {0};
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = row_read(&t, ROW_NOTE, id, &r, err);
    if (status == PF_OK) status = row_remove(&t, ROW_NOTE, &r, &head.notes, err);
    if (status == PF_OK) status = checkpoints_forget(&t, &head, "notes", id, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    row_free(&r);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}
