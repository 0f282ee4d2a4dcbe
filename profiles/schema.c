#include "profiles/schema.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "profiles/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sealed tables have one shape: id, owner (the row they belong to), revision, body. `body` is one
 * sealed record (record.h); row, revision, table and user are bound to it as additional data. Ids
 * are never used again (AUTOINCREMENT). */
#define SEALED_TABLE(name, parent, extra)                                                          \
    "CREATE TABLE " name " ("                                                                      \
    "id INTEGER PRIMARY KEY AUTOINCREMENT, "                                                       \
    "owner INTEGER NOT NULL REFERENCES " parent "(id) ON DELETE CASCADE, "                         \
    "revision INTEGER NOT NULL, "                                                                  \
    "body BLOB NOT NULL" extra ") STRICT;"                                                         \
    "CREATE INDEX " name "_owner ON " name "(owner);"

const schema_step schema_steps[] = {
    {"CREATE TABLE user ("
     "id INTEGER PRIMARY KEY AUTOINCREMENT, "
     "uid BLOB NOT NULL UNIQUE, "      /* 16 random bytes: the user in additional data */
     "name TEXT NOT NULL, "            /* as shown */
     "name_key TEXT NOT NULL UNIQUE, " /* as compared: name.h */
     "created_ms INTEGER NOT NULL) STRICT;"
     /* the data key, wrapped by a passphrase and perhaps by a recovery key: vault.h */
     "CREATE TABLE user_key ("
     "owner INTEGER NOT NULL REFERENCES user(id) ON DELETE CASCADE, "
     "kdf INTEGER NOT NULL, "
     "ops INTEGER NOT NULL, "
     "mem INTEGER NOT NULL, "
     "salt BLOB NOT NULL, "
     "revision INTEGER NOT NULL, "
     "wrapped BLOB NOT NULL, "
     "checksum BLOB NOT NULL, "
     "PRIMARY KEY (owner, kdf)) STRICT;"
     /* one row a user, id = the user's: set digests of the tables below */
     SEALED_TABLE("user_head", "user", "") SEALED_TABLE("profile", "user", "")
         SEALED_TABLE("version", "profile", "") SEALED_TABLE("checkpoint", "profile", "")
             SEALED_TABLE("conversation", "user", "") SEALED_TABLE("message", "conversation", "")
     /* tag: a keyed hash of the setting's name */
     SEALED_TABLE("setting", "user", ", tag BLOB NOT NULL, UNIQUE (owner, tag)")
     /* large values: a secretstream in chunks; what they are is told by the row that names them */
     "CREATE TABLE blob ("
     "id INTEGER PRIMARY KEY AUTOINCREMENT, "
     "owner INTEGER NOT NULL REFERENCES profile(id) ON DELETE CASCADE, "
     "header BLOB NOT NULL) STRICT;"
     "CREATE INDEX blob_owner ON blob(owner);"
     "CREATE TABLE chunk ("
     "id INTEGER PRIMARY KEY, "
     "owner INTEGER NOT NULL REFERENCES blob(id) ON DELETE CASCADE, "
     "number INTEGER NOT NULL, "
     "body BLOB NOT NULL, "
     "UNIQUE (owner, number)) STRICT;"},
    /* what a user told the program about themselves: notes.h */
    {SEALED_TABLE("note", "user", "")},
    /* Within sealed bodies only: what a message is a copy of, and when it was judged. A program
     * that doesn't know them would lose them when it saves a message again. */
    {""},
};
const int schema_version = sizeof schema_steps / sizeof *schema_steps;

/* --- the file's header ------------------------------------------------------------------------ */

static uint32_t big_endian_32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static pf_status newer_version(const char *path, long long found, int newest, pf_err *err)
{
    return err_set(err, PF_REFUSED,
                   "%s has version %lld; this program knows versions up to %d and leaves it "
                   "untouched: use the newer preft that wrote it",
                   path, found, newest);
}

pf_status schema_examine(const char *path, int newest, int *version, pf_err *err)
{
    /* offsets of SQLite's file format: magic 0, user_version 60, application_id 68 */
    unsigned char header[100];
    int fd = -1;
    uint64_t size = 0;
    pf_status status = file_open_regular(path, &fd, &size, err);
    if (status != PF_OK) return status;
    ssize_t n = pread(fd, header, sizeof header, 0);
    close(fd);
    *version = 0;
    if (n < 0) return err_errno(err, PF_FAILED, errno, "%s can't be read", path);
    if (n == 0) return PF_OK;
    if (memcmp(header, "SQLite format 3", n < 16 ? (size_t)n : 16) != 0)
        return err_set(err, PF_REFUSED, "%s is not a store of preft", path);
    if (n < (ssize_t)sizeof header)
        return err_set(err, PF_DAMAGED, "%s is damaged: it is cut off after %zd bytes", path, n);
    const uint32_t application = big_endian_32(header + 68), found = big_endian_32(header + 60);
    if (application != SCHEMA_APPLICATION && !(application == 0 && found == 0))
        return err_set(err, PF_REFUSED, "%s is a database of another program", path);
    if (found > (uint32_t)newest) return newer_version(path, found, newest, err);
    *version = (int)found;
    return PF_OK;
}

/* --- copies ----------------------------------------------------------------------------------- */

static pf_status copy_pages(db *d, db *to, pf_err *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(to->handle, "main", d->handle, "main");
    if (!backup) return db_error(to, sqlite3_extended_errcode(to->handle), err);
    int code = SQLITE_OK;
    const int64_t began = clock_monotonic_ns();
    while (code == SQLITE_OK || code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        code = sqlite3_backup_step(backup, -1);
        if (code == SQLITE_DONE) break;
        if (code != SQLITE_OK && db_patience_ms(began) == 0) break;
        if (code != SQLITE_OK) sqlite3_sleep(20);
    }
    int end = sqlite3_backup_finish(backup);
    if (code != SQLITE_DONE) return db_error(to, code, err);
    return end == SQLITE_OK ? PF_OK : db_error(to, end, err);
}

static pf_status sync_file(const char *path, pf_err *err)
{
    pf_status status = PF_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fsync(fd) != 0) status = err_errno(err, PF_FAILED, errno, "%s isn't safe", path);
    if (fd >= 0) close(fd);
    return status;
}

/* The name that SQLite gives to a side file of path must not stay behind either. */
static void remove_with_side_files(const char *path)
{
    static const char *const ends[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *name = xasprintf("%s%s", path, ends[i]);
        unlink(name);
        free(name);
    }
}

static pf_status place_copy(const char *from, const char *path, bool replace, pf_err *err)
{
    if (replace) {
        if (rename(from, path) != 0)
            return err_errno(err, PF_FAILED, errno, "%s can't be written", path);
    } else {
        if (renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) != 0)
            return errno == EEXIST
                       ? err_set(err, PF_USAGE, "%s exists already; choose another name", path)
                       : err_errno(err, PF_FAILED, errno, "%s can't be written", path);
    }
    char *folder = xstrdup(path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
    return PF_OK;
}

pf_status schema_copy(db *d, const char *path, bool replace, pf_err *err)
{
    db to = {0};
    char name[64];
    unsigned char random[16];
    randombytes_buf(random, sizeof random);
    char *folder = xstrdup(path), *real = NULL, *temporary = NULL;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    pf_status status = PF_OK;
    if (!replace && file_exists(path)) {
        status = err_set(err, PF_USAGE, "%s exists already; choose another name", path);
        goto out;
    }
    real = realpath(slash ? folder : ".", NULL);
    if (!real) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be written", path);
        goto out;
    }
    sodium_bin2hex(name, sizeof name, random, sizeof random);
    temporary = xasprintf("%s/.%s.tmp", real, name);
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be written", path);
        goto out;
    }
    close(fd);
    status = db_open(&to, temporary, false, err);
    if (status == PF_OK) status = copy_pages(d, &to, err);
    /* the copied header says WAL; a file for keeping must stand alone */
    if (status == PF_OK) status = db_script(&to, "PRAGMA journal_mode = DELETE", err);
    db_close(&to);
    if (status == PF_OK) status = sync_file(temporary, err);
    if (status == PF_OK) status = place_copy(temporary, path, replace, err);
    if (status != PF_OK) err_context(err, "no copy was made");
out:
    if (temporary) remove_with_side_files(temporary);
    free(temporary);
    free(real);
    free(folder);
    return status;
}

/* --- migration -------------------------------------------------------------------------------- */

static pf_status run_steps(db *d, const schema_step *steps, int from, int n_steps, pf_err *err)
{
    pf_status status = PF_OK;
    for (int i = from; i < n_steps && status == PF_OK; i++)
        status = db_script(d, steps[i].sql, err);
    if (status != PF_OK) return status;
    char pragmas[128];
    snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             SCHEMA_APPLICATION, n_steps);
    return db_script(d, pragmas, err);
}

char *schema_copy_name(const char *path, int version)
{
    return xasprintf("%s.v%d", path, version);
}

pf_status schema_migrate(db *d, const schema_step *steps, int n_steps, pf_err *err)
{
    int64_t version = 0, objects = 0;
    pf_status status = db_number(d, &version, err, "PRAGMA user_version", "");
    if (status != PF_OK || version == n_steps) return status;
    if (version > n_steps) return newer_version(d->path, version, n_steps, err);
    status = db_script(d, "BEGIN IMMEDIATE", err);
    if (status != PF_OK) return status;
    /* another process may have been faster: look again under the lock */
    status = db_number(d, &version, err, "SELECT user_version FROM pragma_user_version", "");
    if (status == PF_OK)
        status = db_number(d, &objects, err, "SELECT count(*) FROM sqlite_schema", "");
    if (status != PF_OK) goto out;
    if (version == 0 && objects > 0) {
        status = err_set(err, PF_REFUSED,
                         "%s has tables but no version: it is not a store of preft", d->path);
        goto out;
    }
    if (version > n_steps) status = newer_version(d->path, version, n_steps, err);
    if (status != PF_OK || version == n_steps) goto out;
    if (version > 0) {
        char *copy = schema_copy_name(d->path, (int)version);
        db reader = {0};
        status = db_open(&reader, d->path, true, err);
        if (status == PF_OK) status = schema_copy(&reader, copy, true, err);
        db_close(&reader);
        free(copy);
    }
    if (status == PF_OK) status = run_steps(d, steps, (int)version, n_steps, err);
out:
    if (status == PF_OK) status = db_script(d, "COMMIT", err);
    if (status != PF_OK) {
        (void)db_script(d, "ROLLBACK", NULL);
        return err_context(err, "the store stays at version %d", (int)version);
    }
    /* the version must also be in the main file's header, where older programs look first */
    (void)sqlite3_wal_checkpoint_v2(d->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return PF_OK;
}

/* --- the schema as it should be --------------------------------------------------------------- */

#define OBJECTS_SQL                                                                                \
    "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' "           \
    "ESCAPE '!' ORDER BY type, name"

static const char *column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

pf_status schema_check(db *d, pf_err *err)
{
    db expected = {.path = xstrdup("the expected schema")};
    sqlite3_stmt *have = NULL, *want = NULL;
    bool have_row = true, want_row = true;
    pf_status status = PF_OK;
    int code =
        sqlite3_open_v2(":memory:", &expected.handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY, NULL);
    if (code != SQLITE_OK) status = db_error(&expected, code, err);
    if (status == PF_OK) status = run_steps(&expected, schema_steps, 0, schema_version, err);
    if (status == PF_OK) status = db_query(&expected, &want, err, OBJECTS_SQL, "");
    if (status == PF_OK) status = db_query(d, &have, err, OBJECTS_SQL, "");
    while (status == PF_OK && have_row && want_row) {
        status = db_step(&expected, want, &want_row, err);
        if (status == PF_OK) status = db_step(d, have, &have_row, err);
        if (status != PF_OK || (!have_row && !want_row)) break;
        const char *name = have_row ? column_text(have, 0) : column_text(want, 0);
        if (!have_row || !want_row || strcmp(name, column_text(want, 0)) != 0 ||
            strcmp(column_text(have, 1), column_text(want, 1)) != 0)
            status = err_set(err, PF_DAMAGED,
                             "%s: the table or index \"%s\" is not as this program made it; "
                             "`preft restore` puts a backup in its place",
                             d->path, name);
    }
    db_done(have);
    db_done(want);
    db_close(&expected);
    return status;
}
