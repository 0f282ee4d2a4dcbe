#include "profiles/backup.h"

#include "base/file.h"
#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT_NAME STORE_FILE ".before-restore"

pf_status backup_write(store *s, const char *path, bool replace, pf_err *err)
{
    db reader = {0};
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return err_set(err, PF_REFUSED, "%s is not a regular file; choose another name", path);
    /* an own connection: others go on writing meanwhile */
    pf_status status = db_open(&reader, s->path, true, err);
    if (status == PF_OK) status = schema_copy(&reader, path, replace, err);
    db_close(&reader);
    return status;
}

/* --- restoring -------------------------------------------------------------------------------- */

/* Copies a file into the folder of the store, so that it is checked as it will be used: nobody can
 * change it meanwhile. *path is the copy's. */
static pf_status copy_in(const char *from, const char *home, char **path, pf_err *err)
{
    unsigned char random[16];
    char hex[33];
    char block[65536];
    int in = -1, out = -1;
    uint64_t size = 0;
    randombytes_buf(random, sizeof random);
    sodium_bin2hex(hex, sizeof hex, random, sizeof random);
    *path = xasprintf("%s/.%s.tmp", home, hex);
    pf_status status = file_open_regular(from, &in, &size, err);
    if (status != PF_OK) return status;
    out = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0) status = err_errno(err, PF_FAILED, errno, "%s can't be written", home);
    while (status == PF_OK) {
        ssize_t n = read(in, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = err_errno(err, PF_FAILED, errno, "%s can't be read", from);
        if (n <= 0) break;
        for (ssize_t done = 0, w = 0; done < n && status == PF_OK; done += w) {
            w = write(out, block + done, (size_t)(n - done));
            if (w < 0 && errno == EINTR) w = 0;
            if (w < 0) status = file_write_failed(err, errno, home);
        }
    }
    if (status == PF_OK && fsync(out) != 0) status = file_write_failed(err, errno, home);
    if (out >= 0) close(out);
    close(in);
    return status;
}

/* The size that the database says it has, against the file's: SQLite takes what is missing at the
 * end for zeros. */
static pf_status check_size(db *d, const char *copy, pf_err *err)
{
    struct stat info;
    int64_t bytes = 0;
    pf_status status =
        db_number(d, &bytes, err,
                  "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", "");
    if (status == PF_OK && stat(copy, &info) != 0)
        status = err_errno(err, PF_FAILED, errno, "%s can't be examined", copy);
    if (status == PF_OK && info.st_size != bytes)
        status = err_set(err, PF_DAMAGED, "it has %lld bytes and should have %lld",
                         (long long)info.st_size, (long long)bytes);
    return status;
}

/* All checks that need no passphrase. */
static pf_status check_copy(const char *copy, pf_err *err)
{
    int version = 0;
    int64_t broken = 0;
    db d = {0};
    sqlite3_stmt *statement = NULL;
    bool found = false;
    pf_status status = schema_examine(copy, schema_version, &version, err);
    if (status == PF_OK && version == 0)
        status = err_set(err, PF_REFUSED, "it holds no store of preft");
    if (status == PF_OK) status = db_open(&d, copy, false, err);
    if (status == PF_OK) status = check_size(&d, copy, err);
    if (status == PF_OK) status = db_query(&d, &statement, err, "PRAGMA integrity_check(1)", "");
    if (status == PF_OK) status = db_step(&d, statement, &found, err);
    if (status == PF_OK &&
        (!found || strcmp((const char *)sqlite3_column_text(statement, 0), "ok")))
        status = err_set(err, PF_DAMAGED, "the database in it is damaged (%s)",
                         found ? (const char *)sqlite3_column_text(statement, 0) : "no answer");
    db_done(statement);
    if (status == PF_OK)
        status = db_number(&d, &broken, err, "SELECT count(*) FROM pragma_foreign_key_check", "");
    if (status == PF_OK && broken > 0)
        status = err_set(err, PF_DAMAGED, "%lld of its rows belong to nothing", (long long)broken);
    /* an older version is migrated when it is opened */
    if (status == PF_OK && version == schema_version) status = schema_check(&d, err);
    db_close(&d);
    return status;
}

/* The copy's name says nothing to anybody: "it" is the backup. */
static void leave_name_out(const char *copy, pf_err *err)
{
    const char *at = err ? strstr(err->text, copy) : NULL;
    if (at)
        err_set(err, err->status, "%.*sit%s", (int)(at - err->text), err->text, at + strlen(copy));
}

/* Brings the write-ahead file's content of the present store into its main file, if it is sound,
 * so that what is kept of it is one file. */
static void settle_old(const char *path)
{
    db d = {0};
    int version = 0;
    if (schema_examine(path, schema_version, &version, NULL) == PF_OK && version > 0 &&
        db_open(&d, path, false, NULL) == PF_OK)
        (void)db_script(&d, "PRAGMA journal_mode = DELETE", NULL);
    db_close(&d);
}

static void move_aside(const char *path, const char *kept, const char *end)
{
    char *from = xasprintf("%s%s", path, end), *to = xasprintf("%s%s", kept, end);
    if (rename(from, to) != 0) unlink(to); /* no such file now: nor an old one of that name */
    free(from);
    free(to);
}

/* Gives the present store a second name that nothing has: what an earlier restore kept may be the
 * only copy of it. *kept is owned; NULL if there is no store. */
static pf_status keep_old(const char *path, const char *home, char **kept, pf_err *err)
{
    for (int n = 1; n < 1000; n++) {
        char number[16] = "";
        if (n > 1) snprintf(number, sizeof number, "-%d", n);
        char *name = xasprintf("%s/%s%s", home, KEPT_NAME, number);
        if (link(path, name) == 0) {
            *kept = name;
            return PF_OK;
        }
        const int why = errno;
        free(name);
        if (why == ENOENT) return PF_OK;
        if (why != EEXIST)
            return err_errno(err, PF_FAILED, why, "the present store can't be kept in %s", home);
    }
    return err_set(err, PF_FAILED,
                   "%s holds too many older copies (%s-...); delete what you no longer need", home,
                   KEPT_NAME);
}

/* The exchange. At every moment the store's name is either the old file or the new one: the old
 * one gets a second name first, and side files that would be read with the new one go before. */
static pf_status exchange(const char *copy, const char *path, const char *home, char **kept,
                          pf_err *err)
{
    settle_old(path);
    pf_status status = keep_old(path, home, kept, err);
    if (status != PF_OK) return status;
    char *rest = *kept ? xstrdup(*kept) : path_join(home, KEPT_NAME);
    move_aside(path, rest, "-wal");
    move_aside(path, rest, "-shm");
    move_aside(path, rest, "-journal");
    free(rest);
    if (rename(copy, path) != 0)
        return err_errno(err, PF_FAILED, errno, "%s can't be replaced", path);
    char *folder = xmemdup0(path, (size_t)(path_base(path) - path));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
    return PF_OK;
}

pf_status backup_restore(const char *home, const char *path, char **kept, pf_err *err)
{
    char *real = NULL, *copy = NULL, *target = NULL;
    int lock = -1;
    *kept = NULL;
    pf_status status = vault_init(err);
    if (status == PF_OK) status = store_check_home(home, true, &real, err);
    if (status == PF_OK) status = store_check_files(real, err);
    if (status == PF_OK) status = store_lock_home(real, true, &lock, err);
    if (status == PF_OK) {
        status = copy_in(path, real, &copy, err);
        if (status != PF_OK) err_context(err, "nothing was changed");
    }
    if (status == PF_OK) {
        status = check_copy(copy, err);
        if (status != PF_OK) {
            leave_name_out(copy, err);
            err_context(err, "the backup %s is refused and nothing was changed", path);
        }
    }
    if (status != PF_OK) goto out;
    target = path_join(real, STORE_FILE);
    status = exchange(copy, target, real, kept, err);
out:
    if (copy) {
        static const char *const ends[] = {"", "-journal", "-wal", "-shm"};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            char *name = xasprintf("%s%s", copy, ends[i]);
            unlink(name);
            free(name);
        }
    }
    if (lock >= 0) close(lock);
    free(target);
    free(copy);
    free(real);
    return status;
}
