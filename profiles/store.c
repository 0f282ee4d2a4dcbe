#include "profiles/store.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_FILE "lock"

#define NS_PER_S      1000000000
#define LOOK_AGAIN_NS 50000000 /* a thread that waits for a lock looks who has it */

/* --- places ----------------------------------------------------------------------------------- */

static pf_status check_owner(const struct stat *info, const char *path, pf_err *err)
{
    if (info->st_uid == geteuid()) return PF_OK;
    return err_set(err, PF_REFUSED,
                   "%s belongs to user number %lu, not to you (%lu); it is left alone", path,
                   (unsigned long)info->st_uid, (unsigned long)geteuid());
}

/* What others may write to is refused; what they may only read is closed to them. */
static pf_status check_mode(const struct stat *info, const char *path, mode_t wanted, pf_err *err)
{
    if (info->st_mode & 022)
        return err_set(err, PF_REFUSED,
                       "%s can be written to by others (mode %03o); if you trust what is in it: "
                       "chmod %o %s",
                       path, (unsigned)(info->st_mode & 07777), (unsigned)wanted, path);
    if ((info->st_mode & 077) && chmod(path, wanted) != 0)
        return err_errno(err, PF_FAILED, errno, "%s can't be closed to others", path);
    return PF_OK;
}

pf_status store_check_home(const char *home, bool make, char **real, pf_err *err)
{
    struct stat info;
    char *trimmed = path_join(home, ""); /* lstat of "link/" would look through the link */
    size_t len = strlen(trimmed);
    if (len > 1) trimmed[len - 1] = '\0';
    pf_status status = PF_OK;
    if (lstat(trimmed, &info) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) {
            status = err_errno(err, PF_FAILED, errno, "the folder %s can't be examined", home);
            goto out;
        }
        if (!make) {
            status = err_set(err, PF_NOT_FOUND,
                             "there is no store in %s; `preft user add NAME` makes one", home);
            goto out;
        }
        status = file_make_folder(trimmed, 0700, err);
        if (status != PF_OK) goto out;
        if (lstat(trimmed, &info) != 0) {
            status = err_errno(err, PF_FAILED, errno, "the folder %s can't be examined", home);
            goto out;
        }
    }
    if (!S_ISDIR(info.st_mode)) {
        status = err_set(err, PF_REFUSED, "%s is %s; the store needs a folder of its own", home,
                         S_ISLNK(info.st_mode) ? "a link" : "no folder");
        goto out;
    }
    status = check_owner(&info, home, err);
    if (status == PF_OK) status = check_mode(&info, trimmed, 0700, err);
    if (status != PF_OK) goto out;
    *real = realpath(trimmed, NULL);
    if (!*real) status = err_errno(err, PF_FAILED, errno, "%s can't be found", home);
out:
    free(trimmed);
    return status;
}

/* A file of the store: absent, or regular, the caller's own and private. Side files must have one
 * name only, since SQLite would write through another one. */
static pf_status check_file(const char *home, const char *name, bool side, pf_err *err)
{
    char *path = path_join(home, name);
    struct stat info;
    pf_status status = PF_OK;
    if (lstat(path, &info) != 0) {
        if (errno != ENOENT)
            status = err_errno(err, PF_FAILED, errno, "%s can't be examined", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        status = err_set(err, PF_REFUSED, "%s is %s, not a file of the store; it is left alone",
                         path, S_ISLNK(info.st_mode) ? "a link" : "no regular file");
        goto out;
    }
    if (side && info.st_nlink > 1) {
        status =
            err_set(err, PF_REFUSED, "%s is a file with several names; it is left alone", path);
        goto out;
    }
    status = check_owner(&info, path, err);
    if (status == PF_OK) status = check_mode(&info, path, 0600, err);
out:
    free(path);
    return status;
}

pf_status store_check_files(const char *home, pf_err *err)
{
    static const char *const names[] = {STORE_FILE, STORE_FILE "-wal", STORE_FILE "-shm",
                                        STORE_FILE "-journal", LOCK_FILE};
    pf_status status = PF_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == PF_OK; i++)
        status = check_file(home, names[i], i > 0, err);
    return status;
}

pf_status store_lock_home(const char *home, bool exclusive, int *fd, pf_err *err)
{
    char *path = path_join(home, LOCK_FILE);
    pf_status status = PF_OK;
    int handle = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (handle < 0) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be opened", path);
    } else if (flock(handle, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
        status =
            errno != EWOULDBLOCK ? err_errno(err, PF_FAILED, errno, "%s can't be locked", path)
            : exclusive
                ? err_set(err, PF_BUSY,
                          "the store in %s is in use; end the other preft programs first", home)
                : err_set(err, PF_BUSY,
                          "the store in %s is being restored; try again when that is done", home);
        close(handle);
    } else {
        *fd = handle;
    }
    free(path);
    return status;
}

/* --- opening ---------------------------------------------------------------------------------- */

static pf_status make_file(const store_options *options, const char *path, pf_err *err)
{
    if (options->must_exist && !file_exists(path))
        return err_set(err, PF_NOT_FOUND,
                       "there is no store at %s; `preft user add NAME` makes one", path);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(err, PF_FAILED, errno, "the store %s can't be made", path);
    close(fd);
    return PF_OK;
}

static pf_status set_up(db *d, pf_err *err)
{
    static const char pragmas[] = "PRAGMA synchronous = FULL;"
                                  "PRAGMA foreign_keys = ON;"
                                  "PRAGMA secure_delete = ON;"
                                  "PRAGMA temp_store = MEMORY;"
                                  "PRAGMA cell_size_check = ON;"
                                  "PRAGMA mmap_size = 0";
    return db_script(d, pragmas, err);
}

/* Changing the journal's mode doesn't wait by itself when two processes do it at once. */
static pf_status set_wal(db *d, pf_err *err)
{
    pf_status status = PF_OK;
    const int64_t began = clock_monotonic_ns();
    while (db_patience_ms(began) > 0) {
        status = db_script(d, "PRAGMA journal_mode = WAL", err);
        if (status != PF_BUSY) break;
        sqlite3_sleep(20);
    }
    return status;
}

static pf_status open_database(store *s, pf_err *err)
{
    int version = 0;
    int64_t strange = 0, applied = 0;
    pf_status status = schema_examine(s->path, schema_version, &version, err);
    if (status == PF_OK) status = db_open(&s->main, s->path, false, err);
    if (status != PF_OK) return status;
    s->main.in_haste = &s->in_haste;
    /* until the version is known for sure (it may still be in the write-ahead file), closing must
     * not change the file */
    (void)sqlite3_db_config(s->main.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    status = db_number(&s->main, &applied, err, "SELECT user_version FROM pragma_user_version", "");
    if (status == PF_OK && applied > schema_version)
        status = err_set(err, PF_REFUSED,
                         "%s has version %lld; this program knows versions up to %d and leaves it "
                         "untouched: use the newer preft that wrote it",
                         s->path, (long long)applied, schema_version);
    if (status != PF_OK) return status;
    (void)sqlite3_db_config(s->main.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, (int *)NULL);
    status = set_up(&s->main, err);
    if (status == PF_OK) status = set_wal(&s->main, err);
    if (status == PF_OK) status = schema_migrate(&s->main, schema_steps, schema_version, err);
    if (status == PF_OK)
        status =
            db_number(&s->main, &strange, err,
                      "SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view')", "");
    if (status == PF_OK && strange > 0)
        status = err_set(err, PF_DAMAGED,
                         "%s has triggers or views, which this program never makes; `preft doctor` "
                         "examines it",
                         s->path);
    return status;
}

static void destroy(store *s)
{
    db_close(&s->reader);
    db_close(&s->main);
    if (s->lock_fd >= 0) close(s->lock_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->reader_lock);
    free(s->home);
    free(s->path);
    free(s);
}

/* The stores open in this process, one per folder. A second handle on a folder shares the first
 * one's connection: opening and closing the file again would drop the locks that SQLite holds on
 * it (POSIX locks belong to the process, and any close() ends them). */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static store *open_stores;

static store *find_open(const char *home)
{
    store *s = open_stores;
    while (s && strcmp(s->home, home) != 0)
        s = s->next;
    return s;
}

static pf_status open_first(const char *home, const store_options *options, store **out,
                            pf_err *err)
{
    store *s = xcalloc(1, sizeof *s);
    *s = (store){.home = xstrdup(home), .path = path_join(home, STORE_FILE), .lock_fd = -1};
    atomic_init(&s->references, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->reader_lock, NULL);
    s->cost = vault_cost_default();
    pf_status status = store_check_files(home, err);
    if (status == PF_OK) status = store_lock_home(home, false, &s->lock_fd, err);
    if (status == PF_OK) status = make_file(options, s->path, err);
    if (status == PF_OK) status = open_database(s, err);
    if (status != PF_OK) {
        destroy(s);
        return status;
    }
    s->next = open_stores;
    open_stores = *out = s;
    return PF_OK;
}

pf_status store_open(const char *home, const store_options *options, store **out, pf_err *err)
{
    const store_options defaults = {0};
    char *real = NULL;
    if (!options) options = &defaults;
    pf_status status = vault_init(err);
    if (status == PF_OK) status = store_check_home(home, !options->must_exist, &real, err);
    if (status != PF_OK) return status;
    pthread_mutex_lock(&open_lock);
    *out = find_open(real);
    if (*out)
        store_ref(*out);
    else
        status = open_first(real, options, out, err);
    if (status == PF_OK && options->cost.ops) (*out)->cost = options->cost;
    pthread_mutex_unlock(&open_lock);
    free(real);
    return status;
}

void store_close(store *s)
{
    if (!s) return;
    pthread_mutex_lock(&open_lock);
    bool last = atomic_fetch_sub(&s->references, 1) == 1;
    if (last) {
        store **at = &open_stores;
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
        destroy(s);
    }
    pthread_mutex_unlock(&open_lock);
}

store *store_ref(store *s)
{
    atomic_fetch_add(&s->references, 1);
    return s;
}

void store_hurry(store *s, bool on)
{
    atomic_fetch_add(&s->in_haste, on ? 1 : -1);
}

const char *store_home(const store *s)
{
    return s->home;
}

const char *store_path(const store *s)
{
    return s->path;
}

static void remove_migration_copies(const store *s)
{
    for (int version = 1; version < schema_version; version++) {
        char *copy = schema_copy_name(s->path, version);
        unlink(copy);
        free(copy);
    }
}

void store_scrub(store *s)
{
    remove_migration_copies(s);
    if (store_take(s, &s->lock, &s->main, NULL) != PF_OK) return;
    const int64_t former = db_patience_cut(250);
    (void)sqlite3_wal_checkpoint_v2(s->main.handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    db_patience_back(former);
    pthread_mutex_unlock(&s->lock);
}

/* --- transactions ----------------------------------------------------------------------------- */

/* A mutex alone isn't fair: who lets go of it and takes it again at once keeps all others out. */
void store_give_way(store *s)
{
    for (int i = 0; i < 100 && atomic_load(&s->waiting) > 0; i++)
        sqlite3_sleep(1);
}

pf_status store_take(store *s, pthread_mutex_t *lock, db *d, pf_err *err)
{
    const int64_t began = clock_monotonic_ns();
    pf_status status = PF_OK;
    atomic_fetch_add(&s->waiting, 1);
    while (status == PF_OK && pthread_mutex_trylock(lock) != 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_AGAIN_NS;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        if (pthread_mutex_timedlock(lock, &until) == 0) break;
        if (db_is_waiting(d) && db_patience_ms(began) == 0) status = db_busy(s->path, err);
    }
    atomic_fetch_sub(&s->waiting, 1);
    return status;
}

pf_status store_begin(store *s, tx_mode mode, pf_err *err)
{
    pf_status status = store_take(s, &s->lock, &s->main, err);
    if (status != PF_OK) return status;
    status = db_run(&s->main, err, mode == TX_WRITE ? "BEGIN IMMEDIATE" : "BEGIN DEFERRED", "");
    if (status == PF_OK) return PF_OK;
    if (!sqlite3_get_autocommit(s->main.handle)) /* it failed, but only after it had begun */
        (void)db_run(&s->main, NULL, "ROLLBACK", "");
    pthread_mutex_unlock(&s->lock);
    return status;
}

pf_status store_end(store *s, tx_mode mode, pf_status status, pf_err *err)
{
    bool keep = status == PF_OK || (mode == TX_READ && status == PF_DAMAGED);
    pf_status ended = PF_OK;
    if (keep) ended = db_run(&s->main, status == PF_OK ? err : NULL, "COMMIT", "");
    /* after some errors SQLite has rolled back by itself */
    if ((!keep || ended != PF_OK) && !sqlite3_get_autocommit(s->main.handle))
        (void)db_run(&s->main, NULL, "ROLLBACK", "");
    pthread_mutex_unlock(&s->lock);
    return status != PF_OK ? status : ended;
}

pf_status tx_begin(session *s, tx_mode mode, tx *out, pf_err *err)
{
    pthread_rwlock_rdlock(&s->key_lock);
    pf_status status = PF_OK;
    if (!s->key) {
        status = err_set(err, PF_DENIED, "%s is signed out; sign in again", s->name);
    } else {
        *out = (tx){.session = s,
                    .d = &s->store->main,
                    .key = s->key,
                    .uid = s->uid,
                    .user = s->user,
                    .mode = mode};
        status = store_begin(s->store, mode, err);
    }
    if (status != PF_OK) pthread_rwlock_unlock(&s->key_lock);
    return status;
}

pf_status tx_end(tx *t, pf_status status, pf_err *err)
{
    status = store_end(t->session->store, t->mode, status, err);
    pthread_rwlock_unlock(&t->session->key_lock);
    return status;
}
