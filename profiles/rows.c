/* Sealed rows: one shape for all tables (schema.c), one place where they are sealed and unsealed.
 */
#include "profiles/internal.h"

#include "base/mem.h"
#include "profiles/secret.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Rows of the user, directly or through the table above. */
#define OF_USER         "owner = ?1"
#define OF_PROFILE      "owner IN (SELECT id FROM profile WHERE owner = ?1)"
#define OF_CONVERSATION "owner IN (SELECT id FROM conversation WHERE owner = ?1)"
#define TABLE(name, mine)                                                                          \
    {                                                                                              \
        name, "SELECT id, owner, revision, body FROM " name " WHERE " mine " AND id = ?2",         \
            "SELECT id, owner, revision, body FROM " name " WHERE " mine " AND owner = ?2 "        \
            "ORDER BY id",                                                                         \
            "SELECT id, revision, substr(body, -16) FROM " name " WHERE " mine " AND owner = ?2",  \
            "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '" name "'), 0), "  \
            "coalesce((SELECT max(id) FROM " name "), 0)) + 1",                                    \
            "INSERT INTO " name " (id, owner, revision, body) VALUES (?, ?, ?, ?)",                \
            "UPDATE " name " SET revision = ?, body = ? WHERE id = ? AND revision = ?",            \
            "DELETE FROM " name " WHERE id = ?",                                                   \
            "DELETE FROM " name " WHERE owner = ? AND id BETWEEN ? AND ?"                          \
    }

static const struct {
    const char *name, *read, *scan, *tags, *next_id, *insert, *update, *remove, *remove_from;
} tables[ROW_KINDS] = {
    [ROW_HEAD] = TABLE("user_head", OF_USER),
    [ROW_PROFILE] = TABLE("profile", OF_USER),
    [ROW_VERSION] = TABLE("version", OF_PROFILE),
    [ROW_CHECKPOINT] = TABLE("checkpoint", OF_PROFILE),
    [ROW_CONVERSATION] = TABLE("conversation", OF_USER),
    [ROW_MESSAGE] = TABLE("message", OF_CONVERSATION),
    [ROW_SETTING] = TABLE("setting", OF_USER),
    [ROW_NOTE] = TABLE("note", OF_USER),
};

/* As messages call them. */
static const char *const kind_words[ROW_KINDS] = {
    [ROW_HEAD] = "register",
    [ROW_PROFILE] = "profile",
    [ROW_VERSION] = "adapter version",
    [ROW_CHECKPOINT] = "checkpoint",
    [ROW_CONVERSATION] = "conversation",
    [ROW_MESSAGE] = "message",
    [ROW_SETTING] = "setting",
    [ROW_NOTE] = "note",
};

void row_free(row *r)
{
    wipe_free(r->text, r->len);
    *r = (row){0};
}

static vault_place place_of(const tx *t, row_kind kind, int64_t id, int64_t revision)
{
    return (vault_place){.uid = t->uid,
                         .table = tables[kind].name,
                         .column = "body",
                         .row = id,
                         .revision = revision};
}

/* A row's scope in set digests: the user's own tables have one set each. */
static int64_t scope_of(row_kind kind, int64_t owner)
{
    return kind == ROW_VERSION || kind == ROW_CHECKPOINT || kind == ROW_MESSAGE ? owner : 0;
}

static void head_change(const tx *t, row_kind kind, const row *r, vault_head *head, int sign)
{
    vault_head_update(t->key, head, tables[kind].name, scope_of(kind, r->owner), r->id, r->revision,
                      r->tag, sign);
}

/* The tag, or zeros of a value too short to have one. */
static void copy_tag(unsigned char tag[VAULT_TAG_BYTES], const void *body, size_t len)
{
    memset(tag, 0, VAULT_TAG_BYTES);
    if (len >= VAULT_TAG_BYTES)
        memcpy(tag, (const unsigned char *)body + len - VAULT_TAG_BYTES, VAULT_TAG_BYTES);
}

/* The current row of a statement of kind `tags`, without its content. */
static row sealed_row(sqlite3_stmt *statement, int64_t owner)
{
    row r = {.id = sqlite3_column_int64(statement, 0),
             .owner = owner,
             .revision = sqlite3_column_int64(statement, 1)};
    copy_tag(r.tag, sqlite3_column_blob(statement, 2), (size_t)sqlite3_column_bytes(statement, 2));
    return r;
}

/* Unseals the statement's current row into out. */
static vault_verdict unseal_row(const tx *t, row_kind kind, sqlite3_stmt *statement, row *out)
{
    const void *body = sqlite3_column_blob(statement, 3);
    const size_t len = (size_t)sqlite3_column_bytes(statement, 3);
    *out = (row){.id = sqlite3_column_int64(statement, 0),
                 .owner = sqlite3_column_int64(statement, 1),
                 .revision = sqlite3_column_int64(statement, 2)};
    copy_tag(out->tag, body, len);
    if (len < VAULT_SEAL_OVERHEAD) return VAULT_DAMAGED;
    out->len = len - VAULT_SEAL_OVERHEAD;
    out->text = xmalloc(out->len + 1);
    vault_place place = place_of(t, kind, out->id, out->revision);
    vault_verdict verdict = vault_unseal(t->key, &place, body, len, out->text);
    if (verdict != VAULT_GENUINE) {
        free(out->text);
        out->text = NULL;
        out->len = 0;
        return verdict;
    }
    out->body = (record){out->text, out->len};
    return record_valid(&out->body) ? VAULT_GENUINE : VAULT_DAMAGED;
}

pf_status row_read(tx *t, row_kind kind, int64_t id, row *out, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    *out = (row){0};
    pf_status status = db_query(t->d, &statement, err, tables[kind].read, "ii", t->user, id);
    if (status == PF_OK) status = db_step(t->d, statement, &found, err);
    if (status != PF_OK) goto out;
    if (!found) {
        status = err_set(err, PF_NOT_FOUND, "there is no %s %lld", kind_words[kind], (long long)id);
        goto out;
    }
    vault_verdict verdict = unseal_row(t, kind, statement, out);
    if (verdict != VAULT_GENUINE)
        status = err_set(err, PF_DAMAGED,
                         "%s %lld of %s can't be opened: what is stored there %s; `preft restore` "
                         "brings back a backup",
                         kind_words[kind], (long long)id, t->session->name,
                         vault_verdict_words(verdict));
out:
    db_done(statement);
    if (status != PF_OK) row_free(out);
    return status;
}

static void damage_add(damage *d, int64_t id, vault_verdict verdict)
{
    if (d->n++ < 5)
        buf_printf(&d->text, "%s%lld %s", d->n > 1 ? ", " : "", (long long)id,
                   vault_verdict_words(verdict));
}

void damage_free(damage *d)
{
    buf_free(&d->text);
    d->n = 0;
}

pf_status damage_report(damage *d, const vault_head *found, const vault_head *expected,
                        const char *what, pf_err *err)
{
    pf_status status = PF_OK;
    if (d->n > 0)
        status = err_set(err, PF_DAMAGED, "%s: %lld can't be opened (%s%s); the others are intact",
                         what, (long long)d->n, buf_str(&d->text), d->n > 5 ? ", ..." : "");
    else if (!expected)
        status = err_set(err, PF_DAMAGED,
                         "%s: their register is damaged, so it can't be told whether any are "
                         "missing; `preft doctor` says more",
                         what);
    else if (found->count != expected->count)
        status = err_set(err, PF_DAMAGED,
                         "%s: %lld were saved, %lld are there; some were %s behind this program's "
                         "back",
                         what, (long long)expected->count, (long long)found->count,
                         found->count < expected->count ? "removed" : "added");
    else if (!vault_head_equal(found, expected))
        status =
            err_set(err, PF_DAMAGED,
                    "%s: some were replaced by older genuine forms outside this program", what);
    damage_free(d);
    return status;
}

pf_status row_scan(tx *t, row_kind kind, int64_t owner, vault_head *found, damage *bad,
                   row_visit visit, void *ctx, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool more = false;
    pf_status status = db_query(t->d, &statement, err, tables[kind].scan, "ii", t->user, owner);
    if (found) *found = (vault_head){0};
    if (status == PF_OK) status = db_step(t->d, statement, &more, err);
    while (status == PF_OK && more) {
        row r = {0};
        vault_verdict verdict = unseal_row(t, kind, statement, &r);
        if (found) head_change(t, kind, &r, found, +1);
        if (verdict == VAULT_GENUINE)
            status = visit(ctx, &r, err);
        else
            damage_add(bad, r.id, verdict);
        row_free(&r);
        if (status == PF_OK) status = db_step(t->d, statement, &more, err);
    }
    db_done(statement);
    return status;
}

pf_status row_head(tx *t, row_kind kind, int64_t owner, vault_head *found, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool more = false;
    *found = (vault_head){0};
    pf_status status = db_query(t->d, &statement, err, tables[kind].tags, "ii", t->user, owner);
    if (status == PF_OK) status = db_step(t->d, statement, &more, err);
    while (status == PF_OK && more) {
        const row r = sealed_row(statement, owner);
        head_change(t, kind, &r, found, +1);
        status = db_step(t->d, statement, &more, err);
    }
    db_done(statement);
    return status;
}

pf_status row_ids(tx *t, row_kind kind, int64_t owner, row_id_list *out, pf_err *err)
{
    return db_numbers(t->d, out, err, tables[kind].tags, "ii", t->user, owner);
}

/* --- changes ---------------------------------------------------------------------------------- */

static unsigned char *seal_body(const tx *t, row_kind kind, const record_writer *body, row *r,
                                size_t *len)
{
    *len = body->len + VAULT_SEAL_OVERHEAD;
    unsigned char *sealed = xmalloc(*len);
    vault_place place = place_of(t, kind, r->id, r->revision);
    vault_seal(t->key, &place, body->data, body->len, sealed);
    copy_tag(r->tag, sealed, *len);
    return sealed;
}

pf_status row_insert(tx *t, row_kind kind, int64_t owner, const record_writer *body,
                     const unsigned char *tag, vault_head *head, int64_t *id, pf_err *err)
{
    row r = {.owner = owner, .revision = 1};
    size_t len = 0;
    pf_status status = db_number(t->d, &r.id, err, tables[kind].next_id, "");
    if (status != PF_OK) return status;
    unsigned char *sealed = seal_body(t, kind, body, &r, &len);
    if (tag)
        status =
            db_run(t->d, err,
                   "INSERT INTO setting (id, owner, revision, body, tag) "
                   "VALUES (?, ?, ?, ?, ?)",
                   "iiibb", r.id, owner, r.revision, sealed, len, tag, (size_t)VAULT_DIGEST_BYTES);
    else
        status =
            db_run(t->d, err, tables[kind].insert, "iiib", r.id, owner, r.revision, sealed, len);
    free(sealed);
    if (status != PF_OK) return status;
    if (head) head_change(t, kind, &r, head, +1);
    if (id) *id = r.id;
    return PF_OK;
}

pf_status row_update(tx *t, row_kind kind, const row *old, const record_writer *body,
                     vault_head *head, pf_err *err)
{
    row r = {.id = old->id, .owner = old->owner, .revision = old->revision + 1};
    size_t len = 0;
    unsigned char *sealed = seal_body(t, kind, body, &r, &len);
    pf_status status = db_run(t->d, err, tables[kind].update, "ibii", r.revision, sealed, len, r.id,
                              old->revision);
    free(sealed);
    if (status != PF_OK) return status;
    PF_ASSERT(sqlite3_changes(t->d->handle) == 1);
    if (head) {
        head_change(t, kind, old, head, -1);
        head_change(t, kind, &r, head, +1);
    }
    return PF_OK;
}

pf_status row_remove(tx *t, row_kind kind, const row *old, vault_head *head, pf_err *err)
{
    pf_status status = db_run(t->d, err, tables[kind].remove, "i", old->id);
    if (status == PF_OK && head) head_change(t, kind, old, head, -1);
    return status;
}

pf_status row_remove_from(tx *t, row_kind kind, int64_t owner, int64_t first, bool only_one,
                          vault_head *head, int64_t *n, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool more = false;
    *n = 0;
    pf_status status = db_query(t->d, &statement, err, tables[kind].tags, "ii", t->user, owner);
    if (status == PF_OK) status = db_step(t->d, statement, &more, err);
    while (status == PF_OK && more) {
        const row r = sealed_row(statement, owner);
        if (only_one ? r.id == first : r.id >= first) {
            head_change(t, kind, &r, head, -1);
            ++*n;
        }
        status = db_step(t->d, statement, &more, err);
    }
    db_done(statement);
    if (status == PF_OK && *n > 0)
        status = db_run(t->d, err, tables[kind].remove_from, "iii", owner, first,
                        only_one ? first : INT64_MAX);
    return status;
}

/* --- heads ------------------------------------------------------------------------------------ */

#define HEAD_BYTES (8 + VAULT_DIGEST_BYTES)

void record_put_head(record_writer *w, unsigned field, const vault_head *head)
{
    unsigned char bytes[HEAD_BYTES];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)head->count >> (8 * i));
    memcpy(bytes + 8, head->digest, VAULT_DIGEST_BYTES);
    record_put(w, field, bytes, sizeof bytes);
}

vault_head record_get_head(const record *r, unsigned field)
{
    const void *data = NULL;
    size_t len = 0;
    vault_head head = {0};
    if (!record_get(r, field, &data, &len) || len != HEAD_BYTES) return head;
    uint64_t count = 0;
    for (int i = 0; i < 8; i++)
        count |= (uint64_t)((const unsigned char *)data)[i] << (8 * i);
    head.count = (int64_t)count;
    memcpy(head.digest, (const unsigned char *)data + 8, VAULT_DIGEST_BYTES);
    return head;
}

enum { HEAD_PROFILES = 1, HEAD_CONVERSATIONS, HEAD_SETTINGS, HEAD_NOTES };

static void head_record(const user_head *head, record_writer *w)
{
    record_put_head(w, HEAD_PROFILES, &head->profiles);
    record_put_head(w, HEAD_CONVERSATIONS, &head->conversations);
    record_put_head(w, HEAD_SETTINGS, &head->settings);
    record_put_head(w, HEAD_NOTES, &head->notes);
}

pf_status user_head_create(tx *t, pf_err *err)
{
    user_head head = {0};
    record_writer w = {0};
    head_record(&head, &w);
    pf_status status = row_insert(t, ROW_HEAD, t->user, &w, NULL, NULL, NULL, err);
    record_free(&w);
    return status;
}

pf_status user_head_read(tx *t, user_head *out, pf_err *err)
{
    int64_t id = 0;
    *out = (user_head){0};
    pf_status status =
        db_number(t->d, &id, err, "SELECT id FROM user_head WHERE owner = ?", "i", t->user);
    if (status == PF_OK) status = row_read(t, ROW_HEAD, id, &out->row, err);
    if (status == PF_NOT_FOUND) {
        int64_t users = 0;
        status =
            db_number(t->d, &users, err, "SELECT count(*) FROM user WHERE id = ?", "i", t->user);
        if (status == PF_OK)
            status =
                users ? err_set(err, PF_DAMAGED, "the register of %s is missing", t->session->name)
                      : err_set(err, PF_NOT_FOUND,
                                "the user %s has been removed; nothing can be saved",
                                t->session->name);
    }
    if (status != PF_OK) return status;
    out->profiles = record_get_head(&out->row.body, HEAD_PROFILES);
    out->conversations = record_get_head(&out->row.body, HEAD_CONVERSATIONS);
    out->settings = record_get_head(&out->row.body, HEAD_SETTINGS);
    out->notes = record_get_head(&out->row.body, HEAD_NOTES);
    return PF_OK;
}

pf_status user_head_write(tx *t, user_head *head, pf_err *err)
{
    record_writer w = {0};
    head_record(head, &w);
    pf_status status = row_update(t, ROW_HEAD, &head->row, &w, NULL, err);
    record_free(&w);
    return status;
}

void user_head_free(user_head *head)
{
    row_free(&head->row);
}
