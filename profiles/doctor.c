#include "profiles/backup.h"

#include "base/file.h"
#include "base/mem.h"
#include "profiles/history_rows.h"
#include "profiles/profile_rows.h"
#include "profiles/schema.h"
#include "profiles/secret.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESTORE_ADVICE "put a backup in its place: preft restore FILE"
#define REACH_ADVICE                                                                               \
    "the file can't be reached as it must be: see that its folder and disk can be written to, or " \
    "examine a copy of the folder elsewhere (--home)"
#define REPAIR_ADVICE                                                                              \
    "put a backup in its place (preft restore FILE), or give up what is damaged and go on: preft " \
    "doctor --repair --user NAME"

static void add(doctor_report *r, bool ok, const char *what, const char *detail, const char *advice)
{
    r->items = xrealloc_array(r->items, r->n + 1, sizeof *r->items);
    r->items[r->n++] = (doctor_item){.ok = ok,
                                     .what = xstrdup(what),
                                     .detail = xstrdup(detail),
                                     .advice = xstrdup(ok ? "" : advice)};
    if (!ok) r->n_bad++;
}

/* An item made of a call's outcome. */
static void add_status(doctor_report *r, pf_status status, const pf_err *err, const char *what,
                       const char *good, const char *advice)
{
    add(r, status == PF_OK, what, status == PF_OK ? good : err->text, advice);
}

void doctor_report_free(doctor_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->items[i].what);
        wipe_text(r->items[i].detail);
        free(r->items[i].advice);
    }
    free(r->items);
    *r = (doctor_report){0};
}

/* --- the file --------------------------------------------------------------------------------- */

static void examine_integrity(db *d, doctor_report *r)
{
    sqlite3_stmt *statement = NULL;
    pf_err err = {0};
    bool more = false;
    buf detail = {0};
    pf_status status = db_query(d, &statement, &err, "PRAGMA integrity_check(10)", "");
    if (status == PF_OK) status = db_step(d, statement, &more, &err);
    while (status == PF_OK && more) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        buf_printf(&detail, "%s%s", detail.len > 0 ? "; " : "", text ? text : "?");
        status = db_step(d, statement, &more, &err);
    }
    db_done(statement);
    bool ok = status == PF_OK && strcmp(buf_str(&detail), "ok") == 0;
    add(r, ok, "integrity",
        ok                ? "every page and index is sound"
        : status == PF_OK ? buf_str(&detail)
                          : err.text,
        RESTORE_ADVICE);
    buf_free(&detail);
}

static void examine_orphans(db *d, doctor_report *r)
{
    pf_err err = {0};
    int64_t n = 0;
    char text[64];
    pf_status status = db_number(d, &n, &err, "SELECT count(*) FROM pragma_foreign_key_check", "");
    snprintf(text, sizeof text, "%lld rows belong to nothing", (long long)n);
    add(r, status == PF_OK && n == 0, "orphans",
        status != PF_OK ? err.text
        : n > 0         ? text
                        : "every row belongs to something",
        RESTORE_ADVICE);
}

static bool read_wrap(sqlite3_stmt *statement, unsigned char uid[VAULT_UID_BYTES], vault_wrap *w)
{
    *w = (vault_wrap){
        .kdf = sqlite3_column_int64(statement, 2),
        .cost = {sqlite3_column_int64(statement, 3), sqlite3_column_int64(statement, 4)},
        .salt_len = (size_t)sqlite3_column_bytes(statement, 5),
        .revision = sqlite3_column_int64(statement, 6),
        .wrapped_len = (size_t)sqlite3_column_bytes(statement, 7),
        .checksum_len = (size_t)sqlite3_column_bytes(statement, 8)};
    const size_t uid_len = (size_t)sqlite3_column_bytes(statement, 0);
    if (uid_len != VAULT_UID_BYTES || w->salt_len > sizeof w->salt ||
        w->wrapped_len > sizeof w->wrapped || w->checksum_len > sizeof w->checksum)
        return false;
    memcpy(uid, sqlite3_column_blob(statement, 0), uid_len);
    if (w->salt_len) memcpy(w->salt, sqlite3_column_blob(statement, 5), w->salt_len);
    if (w->wrapped_len) memcpy(w->wrapped, sqlite3_column_blob(statement, 7), w->wrapped_len);
    if (w->checksum_len) memcpy(w->checksum, sqlite3_column_blob(statement, 8), w->checksum_len);
    return true;
}

/* Key records by their form; only a passphrase can tell whether they open. */
static void examine_keys(db *d, doctor_report *r)
{
    sqlite3_stmt *statement = NULL;
    pf_err err = {0};
    bool more = false;
    size_t n = 0, bad = 0;
    pf_status status =
        db_query(d, &statement, &err,
                 "SELECT uid, name, coalesce(kdf, 0), coalesce(ops, 0), coalesce(mem, 0), salt, "
                 "coalesce(revision, 0), wrapped, checksum "
                 "FROM user LEFT JOIN user_key ON owner = id ORDER BY id",
                 "");
    if (status == PF_OK) status = db_step(d, statement, &more, &err);
    while (status == PF_OK && more) {
        vault_wrap wrap;
        unsigned char uid[VAULT_UID_BYTES];
        const char *name = (const char *)sqlite3_column_text(statement, 1);
        pf_status found = read_wrap(statement, uid, &wrap)
                              ? vault_wrap_check(&wrap, uid, &err)
                              : err_set(&err, PF_DAMAGED, "a field has the wrong length");
        if (found != PF_OK) {
            err_context(&err, "the key record of %s", name ? name : "?");
            add(r, false, "keys", err.text, RESTORE_ADVICE);
            bad++;
        }
        n++;
        status = db_step(d, statement, &more, &err);
    }
    db_done(statement);
    if (status != PF_OK) add(r, false, "keys", err.text, RESTORE_ADVICE);
    if (status != PF_OK || bad > 0) return;
    char text[64];
    snprintf(text, sizeof text, "%zu key records are well formed", n);
    add(r, true, "keys", text, "");
}

char *backup_copies(const char *home)
{
    DIR *folder = opendir(home);
    buf text = {0};
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        const size_t len = strlen(name);
        bool copy = strncmp(name, STORE_FILE ".", strlen(STORE_FILE ".")) == 0;
        bool rest = name[0] == '.' && len > 4 && strcmp(name + len - 4, ".tmp") == 0;
        if (copy || rest) buf_printf(&text, "%s%s", text.len > 0 ? ", " : "", name);
    }
    if (folder) closedir(folder);
    return text.len > 0 ? buf_take(&text) : NULL;
}

/* Older copies hold what was deleted since; they are listed, not examined. */
static void list_copies(const char *home, doctor_report *r)
{
    char *names = backup_copies(home);
    if (!names) return;
    char *text = xasprintf(
        "%s (older copies, still sealed; delete them when you no longer need them)", names);
    add(r, true, "copies", text, "");
    free(text);
    free(names);
}

/* --- a user's values -------------------------------------------------------------------------- */

typedef struct {
    tx *t;
    doctor_report *report;
    int64_t n; /* values that are genuine */
    size_t bad;
} audit;

static void audit_bad(audit *a, const char *text)
{
    add(a->report, false, "values", text, REPAIR_ADVICE);
    a->bad++;
}

static pf_status count_row(void *ctx, const row *r, pf_err *err)
{
    (void)r;
    (void)err;
    ((audit *)ctx)->n++;
    return PF_OK;
}

/* Scans one set of rows against its kept digest. */
static pf_status audit_set(audit *a, row_kind kind, int64_t owner, const vault_head *kept,
                           const char *what, row_visit visit, pf_err *err)
{
    damage bad = {0};
    vault_head found;
    pf_err finding = {0};
    pf_status status = row_scan(a->t, kind, owner, &found, &bad, visit, a, err);
    if (status == PF_OK && damage_report(&bad, &found, kept, what, &finding) != PF_OK)
        audit_bad(a, finding.text);
    damage_free(&bad);
    return status;
}

static pf_status audit_versions(audit *a, const profile_row *p, pf_err *err)
{
    version_rows rows = {0};
    pf_err finding = {0};
    pf_status status = version_rows_read(a->t, p, &rows, &finding);
    if (status == PF_DAMAGED) {
        audit_bad(a, finding.text);
        status = PF_OK;
    } else if (status != PF_OK && err) {
        *err = finding;
    }
    for (size_t i = 0; i < rows.n && status == PF_OK; i++) {
        unsigned char digest[32];
        const version_row *v = &rows.items[i];
        pf_status blob = blob_verify(a->t, v->blob, v->v.bytes, digest, &finding);
        if (blob == PF_OK && memcmp(digest, v->v.digest, sizeof digest) != 0)
            blob = err_set(&finding, PF_DAMAGED, "the content is not the one that was saved");
        if (blob != PF_OK) {
            err_context(&finding, "adapter version %lld of profile \"%s\"", (long long)v->v.number,
                        p->name);
            audit_bad(a, finding.text);
        }
        a->n++;
    }
    if (status == PF_OK && p->current && !version_rows_find(&rows, p->current))
        audit_bad(a, "the current adapter of a profile is missing");
    version_rows_free(&rows);
    return status;
}

static pf_status audit_profile(void *ctx, const row *r, pf_err *err)
{
    audit *a = ctx;
    profile_row p;
    a->n++;
    profile_row_take(r, &p);
    p.row.id = r->id;
    pf_status status = audit_versions(a, &p, err);
    if (status == PF_OK)
        status = audit_set(a, ROW_CHECKPOINT, r->id, &p.checkpoints, "training checkpoints",
                           count_row, err);
    p.row = (row){0};
    profile_row_free(&p);
    return status;
}

static pf_status audit_conversation(void *ctx, const row *r, pf_err *err)
{
    audit *a = ctx;
    conversation_row c;
    a->n++;
    conversation_row_take(r, &c);
    char *what = xasprintf("messages of conversation %lld", (long long)r->id);
    pf_status status = audit_set(a, ROW_MESSAGE, r->id, &c.messages, what, count_row, err);
    free(what);
    conversation_row_free(&c);
    return status;
}

static pf_status audit_user(audit *a, pf_err *err)
{
    user_head head = {0};
    pf_err finding = {0};
    pf_status status = user_head_read(a->t, &head, &finding);
    const bool known = status == PF_OK;
    const int64_t user = a->t->user;
    if (status == PF_DAMAGED) {
        audit_bad(a, finding.text);
        status = PF_OK;
    } else if (status != PF_OK && err) {
        *err = finding;
    }
    if (status == PF_OK)
        status = audit_set(a, ROW_PROFILE, user, known ? &head.profiles : NULL, "profiles",
                           audit_profile, err);
    if (status == PF_OK)
        status = audit_set(a, ROW_CONVERSATION, user, known ? &head.conversations : NULL,
                           "conversations", audit_conversation, err);
    if (status == PF_OK)
        status = audit_set(a, ROW_SETTING, user, known ? &head.settings : NULL, "settings",
                           count_row, err);
    if (status == PF_OK)
        status = audit_set(a, ROW_NOTE, user, known ? &head.notes : NULL, "notes", count_row, err);
    user_head_free(&head);
    return status;
}

static pf_status examine_values(session *s, doctor_report *r, pf_err *err)
{
    tx t;
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    audit a = {.t = &t, .report = r};
    status = tx_end(&t, audit_user(&a, err), err);
    if (status == PF_OK && a.bad == 0) {
        char *text = xasprintf("all %lld sealed values of %s are genuine", (long long)a.n,
                               session_user_name(s));
        add(r, true, "values", text, "");
        free(text);
    }
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static void examine_database(db *d, doctor_report *r)
{
    pf_err err = {0};
    pf_status status = schema_check(d, &err);
    const bool reached = status == PF_OK || status == PF_DAMAGED;
    add_status(r, status, &err, "schema", "the tables are as this program makes them",
               reached ? RESTORE_ADVICE : REACH_ADVICE);
    if (!reached) return; /* nothing can be said of what is in it */
    examine_integrity(d, r);
    examine_orphans(d, r);
    examine_keys(d, r);
}

/* The store can't be opened in the usual way: look at the file as far as it can be read, without
 * writing to it. */
static void examine_closed(const char *home, doctor_report *r)
{
    db d = {0};
    pf_err err = {0};
    int version = 0;
    char *path = path_join(home, STORE_FILE);
    if (file_exists(path) && schema_examine(path, schema_version, &version, &err) == PF_OK &&
        version == schema_version && db_open(&d, path, true, &err) == PF_OK)
        examine_database(&d, r);
    db_close(&d);
    free(path);
}

pf_status doctor_examine(const char *home, session *s, doctor_report *out, pf_err *err)
{
    const store_options options = {.must_exist = true};
    store *st = NULL;
    pf_err found = {0};
    *out = (doctor_report){0};
    pf_status status = store_open(home, &options, &st, &found);
    if (status == PF_NOT_FOUND) {
        if (err) *err = found;
        return status;
    }
    add_status(out, status, &found, "store",
               "folder and files are private and of a version that this program knows",
               status == PF_DAMAGED ? RESTORE_ADVICE : "follow the message");
    if (status != PF_OK) {
        if (status != PF_BUSY) examine_closed(home, out);
        return PF_OK;
    }
    pthread_mutex_lock(&st->lock);
    examine_database(&st->main, out);
    pthread_mutex_unlock(&st->lock);
    list_copies(st->home, out);
    status = s ? examine_values(s, out, err) : PF_OK;
    store_close(st);
    return status;
}
