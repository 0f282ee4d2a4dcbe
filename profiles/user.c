#include "profiles/user.h"

#include "base/clock.h"
#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/name.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* --- the sign-in list ------------------------------------------------------------------------- */

void user_list_free(user_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].name);
    free(list->items);
    *list = (user_list){0};
}

static char *column_text(sqlite3_stmt *statement, int column)
{
    const void *text = sqlite3_column_text(statement, column);
    return xmemdup0(text ? text : "", (size_t)sqlite3_column_bytes(statement, column));
}

pf_status user_list_load(store *s, user_list *out, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool more = false;
    *out = (user_list){0};
    pf_status status = store_begin(s, TX_READ, err);
    if (status != PF_OK) return status;
    status = db_query(&s->main, &statement, err,
                      "SELECT id, name, created_ms, EXISTS (SELECT 1 FROM user_key "
                      "WHERE owner = user.id AND kdf = 2) FROM user ORDER BY name_key",
                      "");
    if (status == PF_OK) status = db_step(&s->main, statement, &more, err);
    while (status == PF_OK && more) {
        out->items = xrealloc_array(out->items, out->n + 1, sizeof *out->items);
        out->items[out->n++] = (user_info){.id = sqlite3_column_int64(statement, 0),
                                           .name = column_text(statement, 1),
                                           .created_ms = sqlite3_column_int64(statement, 2),
                                           .has_recovery = sqlite3_column_int(statement, 3)};
        status = db_step(&s->main, statement, &more, err);
    }
    db_done(statement);
    return store_end(s, TX_READ, status, err);
}

/* --- sessions --------------------------------------------------------------------------------- */

session *session_make(store *st, int64_t user, const unsigned char *uid, const char *name,
                      int64_t revision, vault_key *key)
{
    session *s = xcalloc(1, sizeof *s);
    atomic_init(&s->references, 1);
    atomic_init(&s->revision, revision);
    s->store = store_ref(st);
    s->user = user;
    s->name = xstrdup(name);
    s->key = key;
    memcpy(s->uid, uid, sizeof s->uid);
    unsigned char hash[VAULT_DIGEST_BYTES];
    vault_name_tag(key, "engine", "user", hash);
    memcpy(&s->engine_user, hash, sizeof s->engine_user);
    s->engine_user |= s->engine_user == 0;
    sodium_memzero(hash, sizeof hash);
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* signing out must not starve behind readers; nobody locks twice */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->key_lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    return s;
}

session *session_ref(session *s)
{
    atomic_fetch_add(&s->references, 1);
    return s;
}

void session_sign_out(session *s)
{
    atomic_store(&s->leaving, true);
    store_hurry(s->store, true);
    pthread_rwlock_wrlock(&s->key_lock);
    store_hurry(s->store, false);
    vault_key_free(s->key);
    s->key = NULL;
    pthread_rwlock_unlock(&s->key_lock);
}

void session_unref(session *s)
{
    if (!s || atomic_fetch_sub(&s->references, 1) != 1) return;
    vault_key_free(s->key);
    pthread_rwlock_destroy(&s->key_lock);
    store_close(s->store);
    free(s->name);
    free(s);
}

const char *session_user_name(const session *s)
{
    return s->name;
}

int64_t session_user_id(const session *s)
{
    return s->user;
}

uint64_t session_engine_user(const session *s)
{
    return s->engine_user;
}

store *session_store(const session *s)
{
    return s->store;
}

session_state session_check(session *s)
{
    int64_t revision = 0;
    pthread_rwlock_rdlock(&s->key_lock);
    bool open = s->key != NULL;
    pthread_rwlock_unlock(&s->key_lock);
    if (!open) return SESSION_SIGNED_OUT;
    if (store_begin(s->store, TX_READ, NULL) != PF_OK) return SESSION_OPEN;
    pf_status status =
        db_number(&s->store->main, &revision, NULL,
                  "SELECT revision FROM user_key WHERE owner = ? AND kdf = 1", "i", s->user);
    status = store_end(s->store, TX_READ, status, NULL);
    if (status == PF_NOT_FOUND) return SESSION_USER_REMOVED;
    if (status != PF_OK) return SESSION_OPEN;
    return atomic_exchange(&s->revision, revision) == revision ? SESSION_OPEN
                                                               : SESSION_PASSPHRASE_CHANGED;
}

/* --- key records ------------------------------------------------------------------------------ */

/* A user's row with one key record. */
typedef struct {
    int64_t id;
    unsigned char uid[VAULT_UID_BYTES];
    char *name;
    vault_wrap wrap;
} account;

static size_t copy_column(sqlite3_stmt *statement, int column, void *to, size_t room)
{
    size_t len = (size_t)sqlite3_column_bytes(statement, column);
    const void *data = sqlite3_column_blob(statement, column);
    if (len > 0) memcpy(to, data, len < room ? len : room);
    return len;
}

static pf_status key_damaged(const char *name, pf_err *err)
{
    return err_context(err,
                       "the key record of %s is damaged, so no passphrase can open it (a backup or "
                       "the recovery key still may)",
                       name);
}

static pf_status read_account(store *s, const char *name, vault_kdf kdf, account *out, pf_err *err)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    *out = (account){0};
    char *key = name_key(name);
    pf_status status = store_begin(s, TX_READ, err);
    if (status != PF_OK) {
        free(key);
        return status;
    }
    status = db_query(&s->main, &statement, err,
                      "SELECT id, uid, name, kdf, ops, mem, salt, revision, wrapped, checksum "
                      "FROM user LEFT JOIN user_key ON owner = id AND kdf = ?1 "
                      "WHERE name_key = ?2",
                      "it", (int64_t)kdf, key ? key : "");
    if (status == PF_OK) status = db_step(&s->main, statement, &found, err);
    if (status != PF_OK) goto out;
    if (!found) {
        status =
            err_set(err, PF_NOT_FOUND, "there is no user %s; `preft user list` shows who is", name);
        goto out;
    }
    out->id = sqlite3_column_int64(statement, 0);
    out->name = column_text(statement, 2);
    if (copy_column(statement, 1, out->uid, sizeof out->uid) != sizeof out->uid) {
        err_set(err, PF_DAMAGED, "the user's number is cut off");
        status = key_damaged(out->name, err);
    } else if (sqlite3_column_type(statement, 3) == SQLITE_NULL) {
        status = kdf == VAULT_RECOVERY
                     ? err_set(err, PF_NOT_FOUND, "%s has no recovery key", out->name)
                     : err_set(err, PF_DAMAGED, "the key record of %s is missing", out->name);
    } else {
        vault_wrap *w = &out->wrap;
        w->kdf = sqlite3_column_int64(statement, 3);
        w->cost.ops = sqlite3_column_int64(statement, 4);
        w->cost.mem = sqlite3_column_int64(statement, 5);
        w->salt_len = copy_column(statement, 6, w->salt, sizeof w->salt);
        w->revision = sqlite3_column_int64(statement, 7);
        w->wrapped_len = copy_column(statement, 8, w->wrapped, sizeof w->wrapped);
        w->checksum_len = copy_column(statement, 9, w->checksum, sizeof w->checksum);
    }
out:
    db_done(statement);
    free(key);
    return store_end(s, TX_READ, status, err);
}

static void account_free(account *a)
{
    free(a->name);
    *a = (account){0};
}

static pf_status write_wrap(db *d, int64_t user, const vault_wrap *w, pf_err *err)
{
    return db_run(d, err,
                  "INSERT OR REPLACE INTO user_key "
                  "(owner, kdf, ops, mem, salt, revision, wrapped, checksum) "
                  "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                  "iiiibibb", user, w->kdf, w->cost.ops, w->cost.mem, w->salt, w->salt_len,
                  w->revision, w->wrapped, w->wrapped_len, w->checksum, w->checksum_len);
}

/* --- creating --------------------------------------------------------------------------------- */

static pf_status name_taken(const char *name, pf_err *err)
{
    return err_set(err, PF_USAGE, "there is already a user whose name is, or looks, the same as %s",
                   name);
}

static pf_status insert_user(tx *t, const char *name, const char *key, pf_err *err)
{
    int64_t taken = 0;
    pf_status status =
        db_number(t->d, &taken, err, "SELECT count(*) FROM user WHERE name_key = ?", "t", key);
    if (status != PF_OK) return status;
    if (taken) return name_taken(name, err);
    status =
        db_run(t->d, err, "INSERT INTO user (uid, name, name_key, created_ms) VALUES (?, ?, ?, ?)",
               "btti", t->uid, (size_t)VAULT_UID_BYTES, name, key, clock_unix_ms());
    t->user = sqlite3_last_insert_rowid(t->d->handle);
    return status;
}

/* Everything of a new user in one transaction; the session's user id is set by it. */
static pf_status save_user(session *s, const char *key, const vault_wrap *wrap,
                           const vault_wrap *recovery, pf_err *err)
{
    tx t;
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = insert_user(&t, s->name, key, err);
    if (status == PF_OK) status = write_wrap(t.d, t.user, wrap, err);
    if (status == PF_OK && recovery) status = write_wrap(t.d, t.user, recovery, err);
    if (status == PF_OK) status = user_head_create(&t, err);
    s->user = t.user;
    return tx_end(&t, status, err);
}

/* Checks a new user's name (st NULL: its form only); gives it composed, and its key. */
static pf_status check_new_name(store *st, const char *name, char **composed, char **key,
                                pf_err *err)
{
    int64_t taken = 0;
    pf_status status = name_check(NAME_USER, name, composed, key, err);
    if (status != PF_OK || !st) return status;
    status = store_begin(st, TX_READ, err);
    if (status != PF_OK) return status;
    status = db_number(&st->main, &taken, err, "SELECT count(*) FROM user WHERE name_key = ?", "t",
                       *key);
    if (status == PF_OK && taken) status = name_taken(*composed, err);
    return store_end(st, TX_READ, status, err);
}

pf_status user_check_name(store *s, const char *name, pf_err *err)
{
    char *composed = NULL, *key = NULL;
    pf_status status = check_new_name(s, name, &composed, &key, err);
    free(composed);
    free(key);
    return status;
}

pf_status user_create(store *st, const char *name, const secret *passphrase, session **out,
                      secret **recovery, pf_err *err)
{
    char *composed = NULL, *key = NULL;
    unsigned char uid[VAULT_UID_BYTES];
    vault_wrap wrap, recovery_wrap;
    secret *recovery_text = NULL;
    session *s = NULL;
    /* before stretching, which takes a second */
    pf_status status = check_new_name(st, name, &composed, &key, err);
    if (status == PF_OK) status = vault_passphrase_check(passphrase, err);
    if (status != PF_OK) goto out;
    randombytes_buf(uid, sizeof uid);
    s = session_make(st, 0, uid, composed, 1, vault_key_create());
    status = vault_wrap_passphrase(s->key, uid, passphrase, st->cost, 1, &wrap, err);
    if (status == PF_OK && recovery)
        status = vault_wrap_recovery(s->key, uid, 1, &recovery_wrap, &recovery_text, err);
    if (status == PF_OK) status = save_user(s, key, &wrap, recovery ? &recovery_wrap : NULL, err);
    if (status != PF_OK) goto out;
    *out = s;
    s = NULL;
    if (recovery) {
        *recovery = recovery_text;
        recovery_text = NULL;
    }
out:
    session_unref(s);
    secret_free(recovery_text);
    free(composed);
    free(key);
    return status;
}

/* --- signing in ------------------------------------------------------------------------------- */

static pf_status sign_in(store *st, const char *name, vault_kdf kdf, const secret *text,
                         session **out, pf_err *err)
{
    account a = {0};
    vault_key *key = NULL;
    pf_status status = read_account(st, name, kdf, &a, err);
    if (status == PF_OK) status = vault_unwrap(&a.wrap, a.uid, text, &key, err);
    if (status == PF_OK)
        *out = session_make(st, a.id, a.uid, a.name, a.wrap.revision, key);
    else if (status == PF_DAMAGED && a.name)
        status = key_damaged(a.name, err);
    else if (status == PF_DENIED)
        status = err_context(err, "%s isn't signed in", a.name);
    account_free(&a);
    return status;
}

pf_status user_sign_in(store *s, const char *name, const secret *passphrase, session **out,
                       pf_err *err)
{
    return sign_in(s, name, VAULT_ARGON2ID, passphrase, out, err);
}

/* Saves a wrap in the place of an older one. The wrap was made outside the lock: if the record was
 * changed meanwhile, that is told instead of being overwritten. */
static pf_status replace_wrap(session *s, const vault_wrap *wrap, pf_err *err)
{
    tx t;
    int64_t revision = 0;
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status =
        db_number(t.d, &revision, err,
                  "SELECT coalesce(max(revision), 0) FROM user_key WHERE owner = ? AND kdf = ?",
                  "ii", t.user, wrap->kdf);
    if (status == PF_OK && revision != wrap->revision - 1)
        status = err_set(err, PF_BUSY,
                         "the keys of %s were changed by another process just now; nothing was "
                         "changed here",
                         s->name);
    if (status == PF_OK) status = write_wrap(t.d, t.user, wrap, err);
    status = tx_end(&t, status, err);
    /* the old wrapping must not linger in the write-ahead file */
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

static pf_status set_passphrase(session *s, const secret *passphrase, vault_cost cost,
                                int64_t revision, pf_err *err)
{
    vault_wrap wrap;
    pf_status status = PF_OK;
    pthread_rwlock_rdlock(&s->key_lock);
    if (!s->key)
        status = err_set(err, PF_DENIED, "%s is signed out; sign in again", s->name);
    else
        status = vault_wrap_passphrase(s->key, s->uid, passphrase, cost, revision, &wrap, err);
    pthread_rwlock_unlock(&s->key_lock);
    if (status == PF_OK) status = replace_wrap(s, &wrap, err);
    if (status == PF_OK) atomic_store(&s->revision, revision);
    return status;
}

pf_status user_recover(store *st, const char *name, const secret *recovery_key,
                       const secret *new_passphrase, session **out, pf_err *err)
{
    session *s = NULL;
    account a = {0};
    pf_status status = vault_passphrase_check(new_passphrase, err);
    if (status == PF_OK) status = sign_in(st, name, VAULT_RECOVERY, recovery_key, &s, err);
    if (status != PF_OK) return status;
    /* the passphrase's record may be missing or damaged: this is a way out of that too */
    status = read_account(st, name, VAULT_ARGON2ID, &a, err);
    int64_t revision = status == PF_OK ? a.wrap.revision : 0;
    if (status == PF_OK || status == PF_DAMAGED)
        status = set_passphrase(s, new_passphrase, st->cost, revision + 1, err);
    account_free(&a);
    if (status == PF_OK) {
        *out = s;
        return PF_OK;
    }
    session_unref(s);
    return status;
}

/* Checks a passphrase of a session's user; gives the record it belongs to. */
static pf_status check_passphrase(session *s, const secret *passphrase, account *out, pf_err *err)
{
    vault_key *key = NULL;
    pf_status status = read_account(s->store, s->name, VAULT_ARGON2ID, out, err);
    if (status == PF_OK && out->id != s->user)
        status = err_set(err, PF_NOT_FOUND, "the user %s has been removed", s->name);
    if (status == PF_OK) status = vault_unwrap(&out->wrap, out->uid, passphrase, &key, err);
    vault_key_free(key);
    if (status == PF_DAMAGED) status = key_damaged(s->name, err);
    return status;
}

pf_status user_change_passphrase(session *s, const secret *old_passphrase,
                                 const secret *new_passphrase, pf_err *err)
{
    account a = {0};
    pf_status status = vault_passphrase_check(new_passphrase, err);
    if (status == PF_OK) status = check_passphrase(s, old_passphrase, &a, err);
    if (status == PF_OK) {
        vault_cost cost = a.wrap.cost, floor = s->store->cost;
        if (cost.ops < floor.ops) cost.ops = floor.ops;
        if (cost.mem < floor.mem) cost.mem = floor.mem;
        status = set_passphrase(s, new_passphrase, cost, a.wrap.revision + 1, err);
    }
    account_free(&a);
    return status;
}

pf_status user_make_recovery_key(session *s, const secret *passphrase, secret **out, pf_err *err)
{
    account a = {0};
    vault_wrap wrap;
    secret *text = NULL;
    int64_t revision = 0;
    pf_status status = check_passphrase(s, passphrase, &a, err);
    account_free(&a);
    if (status != PF_OK) return status;
    status = read_account(s->store, s->name, VAULT_RECOVERY, &a, err);
    if (status == PF_OK) revision = a.wrap.revision;
    account_free(&a);
    if (status != PF_OK && status != PF_NOT_FOUND) return status;
    pthread_rwlock_rdlock(&s->key_lock);
    status = s->key ? vault_wrap_recovery(s->key, s->uid, revision + 1, &wrap, &text, err)
                    : err_set(err, PF_DENIED, "%s is signed out; sign in again", s->name);
    pthread_rwlock_unlock(&s->key_lock);
    if (status == PF_OK) status = replace_wrap(s, &wrap, err);
    if (status == PF_OK)
        *out = text;
    else
        secret_free(text);
    return status;
}

pf_status user_drop_recovery_key(session *s, pf_err *err)
{
    tx t;
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = db_run(t.d, err, "DELETE FROM user_key WHERE owner = ? AND kdf = 2", "i", t.user);
    status = tx_end(&t, status, err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

pf_status user_remove(store *s, const char *name, pf_err *err)
{
    char *key = name_key(name);
    pf_status status = store_begin(s, TX_WRITE, err);
    if (status != PF_OK) {
        free(key);
        return status;
    }
    status = db_run(&s->main, err, "DELETE FROM user WHERE name_key = ?", "t", key ? key : "");
    if (status == PF_OK && sqlite3_changes(s->main.handle) == 0)
        status =
            err_set(err, PF_NOT_FOUND, "there is no user %s; `preft user list` shows who is", name);
    status = store_end(s, TX_WRITE, status, err);
    if (status == PF_OK) store_scrub(s);
    free(key);
    return status;
}
