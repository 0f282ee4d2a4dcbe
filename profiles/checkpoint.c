/* Training checkpoints of profiles: sealed blobs with a step number and a note. */
#include "profiles/profile.h"

#include "base/clock.h"
#include "base/mem.h"
#include "profiles/profile_rows.h"
#include "profiles/secret.h"

#include <jansson.h>
#include <stdlib.h>

enum {
    CHECKPOINT_STEP = 1,
    CHECKPOINT_CREATED,
    CHECKPOINT_BYTES,
    CHECKPOINT_NOTE,
    CHECKPOINT_BLOB
};

typedef struct {
    checkpoint_list list;
    int64_t *blobs; /* of each item */
} checkpoint_rows;

static pf_status take_checkpoint(void *ctx, const row *r, pf_err *err)
{
    (void)err;
    checkpoint_rows *rows = ctx;
    checkpoint_list *list = &rows->list;
    const record *b = &r->body;
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    rows->blobs = xrealloc_array(rows->blobs, list->n + 1, sizeof *rows->blobs);
    rows->blobs[list->n] = record_get_int(b, CHECKPOINT_BLOB);
    list->items[list->n++] =
        (checkpoint_info){.id = r->id,
                          .step = record_get_int(b, CHECKPOINT_STEP),
                          .created_ms = record_get_int(b, CHECKPOINT_CREATED),
                          .bytes = (uint64_t)record_get_int(b, CHECKPOINT_BYTES),
                          .note = record_get_text(b, CHECKPOINT_NOTE)};
    return PF_OK;
}

void checkpoint_list_free(checkpoint_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        wipe_text(list->items[i].note);
    free(list->items);
    *list = (checkpoint_list){0};
}

static void rows_free(checkpoint_rows *rows)
{
    checkpoint_list_free(&rows->list);
    free(rows->blobs);
}

/* In order of ids, which is the order of saving. */
static pf_status read_rows(tx *t, const profile_row *p, checkpoint_rows *out, pf_err *err)
{
    vault_head found;
    damage bad = {0};
    pf_status status =
        row_scan(t, ROW_CHECKPOINT, p->row.id, &found, &bad, take_checkpoint, out, err);
    if (status == PF_OK)
        status = damage_report(&bad, &found, &p->checkpoints, "training checkpoints", err);
    damage_free(&bad);
    return status;
}

static pf_status remove_checkpoint(tx *t, profile_row *p, int64_t id, int64_t blob, pf_err *err)
{
    row r = {0};
    pf_status status = row_read(t, ROW_CHECKPOINT, id, &r, err);
    if (status == PF_OK) status = row_remove(t, ROW_CHECKPOINT, &r, &p->checkpoints, err);
    if (status == PF_OK) status = blob_remove(t, blob, err);
    row_free(&r);
    return status;
}

static pf_status insert_checkpoint(tx *t, profile_row *p, int64_t step, const char *note,
                                   const void *data, size_t len, pf_err *err)
{
    record_writer w = {0};
    int64_t blob = 0;
    pf_status status = blob_save(t, p->row.id, data, len, &blob, err);
    if (status != PF_OK) return status;
    record_put_int(&w, CHECKPOINT_STEP, step);
    record_put_int(&w, CHECKPOINT_CREATED, clock_unix_ms());
    record_put_int(&w, CHECKPOINT_BYTES, (int64_t)len);
    record_put_text(&w, CHECKPOINT_NOTE, note);
    record_put_int(&w, CHECKPOINT_BLOB, blob);
    status = row_insert(t, ROW_CHECKPOINT, p->row.id, &w, NULL, &p->checkpoints, NULL, err);
    record_free(&w);
    return status;
}

static bool names(const int64_t *ids, size_t n, int64_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Removes the profile's blobs that neither a version nor one of the checkpoints names; none while a
 * version can't be opened, as they may be its. */
static pf_status drop_unnamed_blobs(tx *t, const profile_row *p, const checkpoint_rows *rows,
                                    pf_err *err)
{
    version_rows versions = {0};
    row_id_list blobs = {0};
    pf_status status = version_rows_read(t, p, &versions, err);
    if (status == PF_OK)
        status =
            db_numbers(t->d, &blobs, err, "SELECT id FROM blob WHERE owner = ?", "i", p->row.id);
    for (size_t i = 0; i < blobs.n && status == PF_OK; i++) {
        bool named = names(rows->blobs, rows->list.n, blobs.items[i]);
        for (size_t k = 0; k < versions.n && !named; k++)
            named = versions.items[k].blob == blobs.items[i];
        if (!named) status = blob_remove(t, blobs.items[i], err);
    }
    free(blobs.items);
    version_rows_free(&versions);
    return status == PF_DAMAGED ? PF_OK : status;
}

/* Removes what can't be opened; the intact ones are taken as they are. */
static pf_status drop_damaged(tx *t, profile_row *p, const checkpoint_rows *rows, pf_err *err)
{
    row_id_list all;
    int64_t removed = 0;
    pf_status status = row_ids(t, ROW_CHECKPOINT, p->row.id, &all, err);
    for (size_t i = 0; i < all.n && status == PF_OK; i++) {
        bool intact = false;
        for (size_t k = 0; k < rows->list.n && !intact; k++)
            intact = rows->list.items[k].id == all.items[i];
        if (!intact)
            status = row_remove_from(t, ROW_CHECKPOINT, p->row.id, all.items[i], true,
                                     &p->checkpoints, &removed, err);
    }
    free(all.items);
    if (status == PF_OK) status = row_head(t, ROW_CHECKPOINT, p->row.id, &p->checkpoints, err);
    return status == PF_OK ? drop_unnamed_blobs(t, p, rows, err) : status;
}

/* Removes all but the newest keep, and damaged ones. */
static pf_status drop_old(tx *t, profile_row *p, size_t keep, pf_err *err)
{
    checkpoint_rows rows = {0};
    pf_status status = read_rows(t, p, &rows, err);
    if (status == PF_DAMAGED) status = drop_damaged(t, p, &rows, err);
    for (size_t i = 0; status == PF_OK && i + keep < rows.list.n; i++)
        status = remove_checkpoint(t, p, rows.list.items[i].id, rows.blobs[i], err);
    rows_free(&rows);
    return status;
}

/* Whether one of the note's lists, of ids or of arrays that begin with one, holds an id. */
static bool learns_from(const char *note, const char *kind, int64_t wanted)
{
    json_t *object = note ? json_loads(note, 0, NULL) : NULL, *id;
    bool found = false;
    size_t i;
    json_array_foreach(json_object_get(object, kind), i, id)
    {
        const json_t *number = json_is_array(id) ? json_array_get(id, 0) : id;
        found |= json_integer_value(number) == wanted;
    }
    json_decref(object);
    return found;
}

static pf_status drop_those_of(tx *t, user_head *head, int64_t profile, const char *kind,
                               int64_t id, pf_err *err)
{
    profile_row p = {0};
    checkpoint_rows rows = {0};
    bool any = false;
    pf_status status = profile_row_read(t, profile, &p, err);
    if (status == PF_OK) status = read_rows(t, &p, &rows, err);
    for (size_t i = 0; i < rows.list.n && status == PF_OK; i++) {
        if (!learns_from(rows.list.items[i].note, kind, id)) continue;
        status = remove_checkpoint(t, &p, rows.list.items[i].id, rows.blobs[i], err);
        any = true;
    }
    if (status == PF_OK && any) status = profile_row_write(t, head, &p, NULL, err);
    rows_free(&rows);
    profile_row_free(&p);
    return status == PF_DAMAGED ? PF_OK : status; /* damage elsewhere is no reason to keep */
}

pf_status checkpoints_forget(tx *t, user_head *head, const char *kind, int64_t id, pf_err *err)
{
    row_id_list profiles;
    pf_status status = row_ids(t, ROW_PROFILE, t->user, &profiles, err);
    for (size_t i = 0; i < profiles.n && status == PF_OK; i++)
        status = drop_those_of(t, head, profiles.items[i], kind, id, err);
    free(profiles.items);
    return status;
}

/* That a conversation is there, with all messages it had when it was read (NULL: not known). */
static pf_status check_source(tx *t, int64_t conversation, const json_t *extent, pf_err *err)
{
    int64_t there = 0, messages = 0;
    pf_status status =
        db_number(t->d, &there, err, "SELECT count(*) FROM conversation WHERE id = ? AND owner = ?",
                  "ii", conversation, t->user);
    if (status == PF_OK && there == 0)
        return err_set(err, PF_REFUSED, "a conversation that it learns from was deleted");
    if (status != PF_OK || !extent) return status;
    status =
        db_number(t->d, &messages, err, "SELECT count(*) FROM message WHERE owner = ? AND id <= ?",
                  "ii", conversation, (int64_t)json_integer_value(json_array_get(extent, 1)));
    if (status == PF_OK && messages < json_integer_value(json_array_get(extent, 0)))
        status = err_set(err, PF_REFUSED,
                         "something that it learns from was deleted: messages of conversation %lld",
                         (long long)conversation);
    return status;
}

/* That a note is there as it was read: {id, revision}. */
static pf_status check_note(tx *t, const json_t *read, pf_err *err)
{
    int64_t n = 0;
    pf_status status = db_number(
        t->d, &n, err, "SELECT count(*) FROM note WHERE id = ? AND owner = ? AND revision = ?",
        "iii", (int64_t)json_integer_value(json_array_get(read, 0)), t->user,
        (int64_t)json_integer_value(json_array_get(read, 1)));
    if (status == PF_OK && n == 0)
        status =
            err_set(err, PF_REFUSED,
                    "something that it learns from was deleted: a note was changed or deleted");
    return status;
}

/* A state holds what it learns from, and must not outlive it. */
static pf_status check_sources(tx *t, const char *note, pf_err *err)
{
    json_t *object = note ? json_loads(note, 0, NULL) : NULL, *id;
    const json_t *extents = json_object_get(object, "messages");
    pf_status status = PF_OK;
    size_t i;
    json_array_foreach(json_object_get(object, "conversations"), i, id)
    {
        status = check_source(t, json_integer_value(id), json_array_get(extents, i), err);
        if (status != PF_OK) break;
    }
    json_array_foreach(json_object_get(object, "notes"), i, id)
    {
        if (status == PF_OK) status = check_note(t, id, err);
    }
    json_decref(object);
    return status;
}

/* Where the states before are gone, something that they learned from was deleted. */
static pf_status check_former(tx *t, const profile_row *p, pf_err *err)
{
    checkpoint_rows rows = {0};
    pf_status status = read_rows(t, p, &rows, err);
    bool gone = status == PF_OK && rows.list.n == 0;
    rows_free(&rows);
    if (!gone) return status == PF_DAMAGED ? PF_OK : status;
    return err_set(err, PF_REFUSED,
                   "something that it learns from was deleted, or it was begun anew elsewhere");
}

pf_status checkpoint_begin(session *s, const char *name, const char *note, const void *data,
                           size_t len, int64_t *profile, pf_err *err)
{
    profile_change c;
    pf_status status = json_object_check(note, "the checkpoint's note", err);
    if (status == PF_OK) status = profile_change_create(&c, s, name, NULL, err);
    if (status != PF_OK) return status;
    const int64_t made = c.p.row.id;
    status = check_sources(&c.t, note, err);
    if (status == PF_OK) status = insert_checkpoint(&c.t, &c.p, 0, note, data, len, err);
    status = profile_change_end(&c, status, err);
    if (status == PF_OK) *profile = made;
    return status;
}

static pf_status save(session *s, int64_t profile, int64_t step, const char *note, const void *data,
                      size_t len, int keep, bool next, pf_err *err)
{
    profile_change c;
    pf_status status = json_object_check(note, "the checkpoint's note", err);
    if (status == PF_OK) status = profile_change_begin(&c, s, profile, err);
    if (status != PF_OK) return status;
    status = check_sources(&c.t, note, err);
    if (status == PF_OK && next) status = check_former(&c.t, &c.p, err);
    if (status == PF_OK) status = insert_checkpoint(&c.t, &c.p, step, note, data, len, err);
    if (status == PF_OK) status = drop_old(&c.t, &c.p, keep > 0 ? (size_t)keep : 1, err);
    return profile_change_end(&c, status, err);
}

pf_status checkpoint_save(session *s, int64_t profile, int64_t step, const char *note,
                          const void *data, size_t len, int keep, pf_err *err)
{
    return save(s, profile, step, note, data, len, keep, false, err);
}

pf_status checkpoint_save_next(session *s, int64_t profile, int64_t step, const char *note,
                               const void *data, size_t len, int keep, pf_err *err)
{
    return save(s, profile, step, note, data, len, keep, true, err);
}

pf_status checkpoint_list_load(session *s, int64_t profile, checkpoint_list *out, pf_err *err)
{
    tx t;
    profile_row p = {0};
    checkpoint_rows rows = {0};
    *out = (checkpoint_list){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = profile_row_read(&t, profile, &p, err);
    if (status == PF_OK) status = read_rows(&t, &p, &rows, err);
    *out = rows.list;
    rows.list = (checkpoint_list){0};
    rows_free(&rows);
    profile_row_free(&p);
    return tx_end(&t, status, err);
}

pf_status checkpoint_read(session *s, int64_t profile, int64_t id, buf *out, pf_err *err)
{
    tx t;
    profile_row p = {0};
    checkpoint_rows rows = {0};
    size_t i = 0;
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = profile_row_read(&t, profile, &p, err);
    if (status == PF_OK) status = read_rows(&t, &p, &rows, err);
    while (i < rows.list.n && rows.list.items[i].id != id)
        i++;
    if ((status == PF_OK || status == PF_DAMAGED) && i < rows.list.n)
        status = PF_OK; /* damage of others is no obstacle */
    else if (status == PF_OK)
        status = err_set(err, PF_NOT_FOUND, "profile \"%s\" has no checkpoint %lld", p.name,
                         (long long)id);
    profile_row_free(&p);
    status = tx_end(&t, status, err);
    if (status == PF_OK)
        status = blob_read(s, rows.blobs[i], rows.list.items[i].bytes, "a training checkpoint", out,
                           err);
    rows_free(&rows);
    return status;
}

pf_status checkpoint_remove_all(session *s, int64_t profile, pf_err *err)
{
    profile_change c;
    pf_status status = profile_change_begin(&c, s, profile, err);
    if (status != PF_OK) return status;
    status = profile_change_end(&c, drop_old(&c.t, &c.p, 0, err), err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}
