/* Blobs: large values as rows of sealed chunks. */
#include "profiles/internal.h"

#include "base/mem.h"
#include "profiles/secret.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static vault_place blob_place(const unsigned char *uid, int64_t id)
{
    return (vault_place){.uid = uid, .table = "blob", .column = "chunks", .row = id, .revision = 1};
}

static pf_status save_chunks(tx *t, vault_stream *stream, int64_t id, const unsigned char *data,
                             size_t len, pf_err *err)
{
    pf_status status = PF_OK;
    unsigned char *sealed = xmalloc(VAULT_STREAM_CHUNK + VAULT_STREAM_OVERHEAD);
    int64_t number = 0;
    size_t done = 0;
    do {
        size_t n = len - done < VAULT_STREAM_CHUNK ? len - done : VAULT_STREAM_CHUNK;
        vault_stream_seal(stream, data + done, n, done + n == len, sealed);
        status = db_run(t->d, err, "INSERT INTO chunk (owner, number, body) VALUES (?, ?, ?)",
                        "iib", id, number++, sealed, n + VAULT_STREAM_OVERHEAD);
        done += n;
    } while (status == PF_OK && done < len);
    free(sealed);
    return status;
}

pf_status blob_save(tx *t, int64_t profile, const void *data, size_t len, int64_t *id, pf_err *err)
{
    unsigned char header[VAULT_STREAM_HEADER_BYTES];
    pf_status status =
        db_number(t->d, id, err,
                  "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'blob'), 0), "
                  "coalesce((SELECT max(id) FROM blob), 0)) + 1",
                  "");
    if (status != PF_OK) return status;
    vault_place place = blob_place(t->uid, *id);
    vault_stream *stream = vault_stream_seal_start(t->key, &place, header);
    status = db_run(t->d, err, "INSERT INTO blob (id, owner, header) VALUES (?, ?, ?)", "iib", *id,
                    profile, header, sizeof header);
    if (status == PF_OK) status = save_chunks(t, stream, *id, data, len, err);
    vault_stream_free(stream);
    return status;
}

pf_status blob_remove(tx *t, int64_t id, pf_err *err)
{
    return db_run(t->d, err, "DELETE FROM blob WHERE id = ?", "i", id);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A blob being read from a connection, one chunk after the other. */
typedef struct {
    db *d;
    int64_t id;
    const char *what;
    vault_stream *stream;
    int64_t number;
    bool last;
    unsigned char *chunk; /* the text of the chunk */
    size_t len;
} reading;

static pf_status damaged(const reading *r, pf_err *err)
{
    return err_set(err, PF_DAMAGED,
                   "%s can't be opened: part %lld of what is stored is damaged, missing or of "
                   "another place; use another version or a backup",
                   r->what, (long long)r->number + 1);
}

static pf_status reading_start(reading *r, const vault_key *key, const unsigned char *uid,
                               pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    pf_status status =
        db_query(r->d, &statement, err, "SELECT header FROM blob WHERE id = ?", "i", r->id);
    if (status == PF_OK) status = db_step(r->d, statement, &found, err);
    if (status == PF_OK &&
        (!found || sqlite3_column_bytes(statement, 0) != VAULT_STREAM_HEADER_BYTES))
        status = damaged(r, err);
    if (status == PF_OK) {
        vault_place place = blob_place(uid, r->id);
        r->stream = vault_stream_open_start(key, &place, sqlite3_column_blob(statement, 0));
        r->chunk = xmalloc(VAULT_STREAM_CHUNK);
    }
    db_done(statement);
    return status;
}

static pf_status reading_next(reading *r, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    pf_status status =
        db_query(r->d, &statement, err, "SELECT body FROM chunk WHERE owner = ? AND number = ?",
                 "ii", r->id, r->number);
    if (status == PF_OK) status = db_step(r->d, statement, &found, err);
    if (status == PF_OK) {
        size_t len = found ? (size_t)sqlite3_column_bytes(statement, 0) : 0;
        r->len = 0;
        if (len < VAULT_STREAM_OVERHEAD || len > VAULT_STREAM_CHUNK + VAULT_STREAM_OVERHEAD ||
            !vault_stream_open(r->stream, sqlite3_column_blob(statement, 0), len, r->chunk,
                               &r->last))
            status = damaged(r, err);
        else
            r->len = len - VAULT_STREAM_OVERHEAD;
    }
    if (status == PF_OK) r->number++;
    db_done(statement);
    return status;
}

static void reading_end(reading *r)
{
    vault_stream_free(r->stream);
    wipe_free(r->chunk, r->chunk ? VAULT_STREAM_CHUNK : 0);
}

/* One step under the session's and the reader's locks, so that signing out never waits longer. */
static pf_status locked_step(session *s, reading *r, pf_err *err)
{
    pf_status status = PF_OK;
    pthread_rwlock_rdlock(&s->key_lock);
    store *st = s->store;
    status = store_take(st, &st->reader_lock, &st->reader, err);
    if (status != PF_OK) goto out;
    if (!s->key)
        status = err_set(err, PF_DENIED, "%s can't be read: %s is signed out", r->what, s->name);
    if (status == PF_OK && !st->reader.handle) {
        status = db_open(&st->reader, st->path, true, err);
        st->reader.in_haste = &st->in_haste;
    }
    if (status == PF_OK)
        status = r->stream ? reading_next(r, err) : reading_start(r, s->key, s->uid, err);
    pthread_mutex_unlock(&st->reader_lock);
out:
    pthread_rwlock_unlock(&s->key_lock);
    return status;
}

pf_status blob_read(session *s, int64_t id, uint64_t len, const char *what, buf *out, pf_err *err)
{
    reading r = {.d = &s->store->reader, .id = id, .what = what};
    const size_t start = out->len;
    buf whole = {0};
    if (len > SIZE_MAX / 2 - start)
        return err_set(err, PF_DAMAGED, "%s has an impossible size", what);
    /* reserved at once, so that growing leaves no copies of the content behind */
    buf_reserve(&whole, (size_t)len);
    pf_status status = locked_step(s, &r, err);
    while (status == PF_OK && !r.last) {
        status = locked_step(s, &r, err);
        if (status == PF_OK && whole.len + r.len > len) status = damaged(&r, err);
        if (status == PF_OK) buf_append(&whole, r.chunk, r.len);
    }
    if (status == PF_OK && whole.len != len) status = damaged(&r, err);
    if (status == PF_OK) {
        if (!out->data) {
            *out = whole;
            whole = (buf){0};
        } else {
            buf_append(out, whole.data, whole.len);
        }
    }
    reading_end(&r);
    wipe_buf(&whole);
    return status;
}

pf_status blob_verify(tx *t, int64_t id, uint64_t len, unsigned char digest[32], pf_err *err)
{
    reading r = {.d = t->d, .id = id, .what = "a blob"};
    crypto_generichash_state hash;
    uint64_t total = 0;
    crypto_generichash_init(&hash, NULL, 0, 32);
    pf_status status = reading_start(&r, t->key, t->uid, err);
    while (status == PF_OK && !r.last) {
        status = reading_next(&r, err);
        if (status != PF_OK) break;
        total += r.len;
        crypto_generichash_update(&hash, r.chunk, r.len);
    }
    if (status == PF_OK && total != len) status = damaged(&r, err);
    crypto_generichash_final(&hash, digest, 32);
    reading_end(&r);
    return status;
}
