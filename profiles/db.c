#include "profiles/db.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "profiles/store.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SLEEP_MS 20 /* between two looks whether another process is done */

pf_status db_busy(const char *path, pf_err *err)
{
    return err_set(err, PF_BUSY, "%s: another program keeps the store busy; try again", path);
}

pf_status db_error(db *d, int code, pf_err *err)
{
    const int system_error = d->handle ? sqlite3_system_errno(d->handle) : 0;
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return db_busy(d->path, err);
    case SQLITE_FULL:
        return err_set(err, PF_FAILED,
                       "%s: the disk is full; nothing was saved by this step: make room and try "
                       "again",
                       d->path);
    case SQLITE_IOERR:
        if (file_is_full(system_error) || (code == SQLITE_IOERR_WRITE && !system_error))
            return err_set(err, PF_FAILED,
                           "%s can't be written: the disk is full, a limit on the size of files "
                           "is reached, or it fails; nothing was saved by this step: make room "
                           "and try again",
                           d->path);
        if (system_error)
            return err_errno(err, PF_FAILED, system_error, "%s can't be read or written", d->path);
        return err_set(err, PF_FAILED, "%s can't be read or written (%s)", d->path,
                       sqlite3_errstr(code));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, PF_DAMAGED,
                       "%s is damaged (%s); `preft doctor` examines it, `preft restore` puts a "
                       "backup in its place",
                       d->path, sqlite3_errstr(code));
    case SQLITE_READONLY:
        return err_set(err, PF_FAILED, "%s can't be written to (%s)", d->path,
                       sqlite3_errstr(code));
    case SQLITE_CANTOPEN:
        if (system_error)
            return err_errno(err, PF_FAILED, system_error,
                             "%s or its log beside it can't be opened", d->path);
        return err_set(err, PF_FAILED, "%s can't be opened (%s)", d->path, sqlite3_errstr(code));
    case SQLITE_NOMEM:
        return err_set(err, PF_NO_MEMORY, "%s: out of memory", d->path);
    case SQLITE_TOOBIG:
        return err_set(err, PF_REFUSED, "%s: the value is too large", d->path);
    default:
        return err_set(err, PF_FAILED, "%s: %s", d->path,
                       d->handle ? sqlite3_errmsg(d->handle) : sqlite3_errstr(code));
    }
}

/* --- waiting for other processes -------------------------------------------------------------- */

#define NS_PER_MS 1000000

static _Thread_local int64_t deadline_ns; /* 0: none */

void store_wait_at_most(int ms)
{
    deadline_ns = ms < 0 ? 0 : clock_monotonic_ns() + (int64_t)ms * NS_PER_MS;
}

int64_t db_patience_cut(int ms)
{
    const int64_t former = deadline_ns, wanted = clock_monotonic_ns() + (int64_t)ms * NS_PER_MS;
    if (!former || wanted < former) deadline_ns = wanted;
    return former;
}

void db_patience_back(int64_t former)
{
    deadline_ns = former;
}

int db_patience_ms(int64_t began_ns)
{
    const int64_t end = deadline_ns ? deadline_ns : began_ns + (int64_t)STORE_BUSY_MS * NS_PER_MS;
    const int64_t left = (end - clock_monotonic_ns()) / NS_PER_MS;
    return left < 0 ? 0 : (int)left;
}

bool db_is_waiting(db *d)
{
    const int64_t at = atomic_load(&d->waited_at_ns);
    return at && clock_monotonic_ns() - at < (int64_t)MOST_SLEEP_MS * 10 * NS_PER_MS;
}

/* Called again and again by SQLite while another process has what is needed; 0: give up. */
static int on_busy(void *ctx, int times)
{
    db *d = ctx;
    if (times == 0) d->wait_began_ns = clock_monotonic_ns();
    const int left = db_patience_ms(d->wait_began_ns);
    if (left == 0 || (d->in_haste && atomic_load(d->in_haste) > 0)) {
        atomic_store(&d->waited_at_ns, 0);
        return 0;
    }
    atomic_store(&d->waited_at_ns, clock_monotonic_ns());
    int nap = times < MOST_SLEEP_MS ? times + 1 : MOST_SLEEP_MS;
    sqlite3_sleep(nap < left ? nap : left);
    return 1;
}

pf_status db_open(db *d, const char *path, bool read_only, pf_err *err)
{
    *d = (db){.path = xstrdup(path)};
    int flags = SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    flags |= read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    int code = sqlite3_open_v2(path, &d->handle, flags, NULL);
    if (code != SQLITE_OK) {
        pf_status status = db_error(d, code, err);
        db_close(d);
        return status;
    }
    (void)sqlite3_busy_handler(d->handle, on_busy, d);
    (void)sqlite3_db_config(d->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    (void)sqlite3_db_config(d->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    (void)sqlite3_db_config(d->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    (void)sqlite3_db_config(d->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    return PF_OK;
}

void db_close(db *d)
{
    for (size_t i = 0; i < d->n_kept; i++)
        sqlite3_finalize(d->kept[i].statement);
    if (d->handle) sqlite3_close(d->handle);
    free(d->path);
    *d = (db){0};
}

static pf_status prepare(db *d, const char *sql, sqlite3_stmt **out, pf_err *err)
{
    for (size_t i = 0; i < d->n_kept; i++) {
        if (d->kept[i].sql != sql) continue;
        /* one that is still running would be reset under its reader */
        PF_ASSERT(!sqlite3_stmt_busy(d->kept[i].statement));
        *out = d->kept[i].statement;
        return PF_OK;
    }
    PF_ASSERT(d->n_kept < DB_STATEMENTS);
    int code = sqlite3_prepare_v3(d->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    if (code != SQLITE_OK) return db_error(d, code, err);
    d->kept[d->n_kept].sql = sql;
    d->kept[d->n_kept++].statement = *out;
    return PF_OK;
}

static pf_status bind(db *d, sqlite3_stmt *statement, const char *types, va_list args, pf_err *err)
{
    int code = SQLITE_OK;
    for (int i = 1; *types && code == SQLITE_OK; i++, types++) {
        const void *data = NULL;
        switch (*types) {
        case 'i':
            code = sqlite3_bind_int64(statement, i, va_arg(args, int64_t));
            break;
        case 'b':
            data = va_arg(args, const void *);
            code = sqlite3_bind_blob64(statement, i, data, va_arg(args, size_t), SQLITE_STATIC);
            break;
        case 't':
            code = sqlite3_bind_text(statement, i, va_arg(args, const char *), -1, SQLITE_STATIC);
            break;
        case 'n':
            code = sqlite3_bind_null(statement, i);
            break;
        default:
            die("unknown parameter type %c", *types);
        }
    }
    return code == SQLITE_OK ? PF_OK : db_error(d, code, err);
}

static pf_status query(db *d, sqlite3_stmt **out, pf_err *err, const char *sql, const char *types,
                       va_list args)
{
    *out = NULL;
    pf_status status = prepare(d, sql, out, err);
    if (status == PF_OK) status = bind(d, *out, types, args, err);
    return status;
}

pf_status db_query(db *d, sqlite3_stmt **out, pf_err *err, const char *sql, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    pf_status status = query(d, out, err, sql, types, args);
    va_end(args);
    return status;
}

pf_status db_step(db *d, sqlite3_stmt *statement, bool *row, pf_err *err)
{
    int code = sqlite3_step(statement);
    *row = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE ? PF_OK : db_error(d, code, err);
}

void db_done(sqlite3_stmt *statement)
{
    if (!statement) return;
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

pf_status db_run(db *d, pf_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    bool row = false;
    va_list args;
    va_start(args, types);
    pf_status status = query(d, &statement, err, sql, types, args);
    va_end(args);
    if (status == PF_OK) status = db_step(d, statement, &row, err);
    db_done(statement);
    return status;
}

pf_status db_number(db *d, int64_t *out, pf_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    bool row = false;
    va_list args;
    va_start(args, types);
    pf_status status = query(d, &statement, err, sql, types, args);
    va_end(args);
    if (status == PF_OK) status = db_step(d, statement, &row, err);
    if (status == PF_OK && !row) status = err_set(err, PF_NOT_FOUND, "%s: no such row", d->path);
    if (status == PF_OK) *out = sqlite3_column_int64(statement, 0);
    db_done(statement);
    return status;
}

pf_status db_numbers(db *d, row_id_list *out, pf_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    bool more = false;
    va_list args;
    *out = (row_id_list){0};
    va_start(args, types);
    pf_status status = query(d, &statement, err, sql, types, args);
    va_end(args);
    if (status == PF_OK) status = db_step(d, statement, &more, err);
    while (status == PF_OK && more) {
        out->items = xrealloc_array(out->items, out->n + 1, sizeof *out->items);
        out->items[out->n++] = sqlite3_column_int64(statement, 0);
        status = db_step(d, statement, &more, err);
    }
    db_done(statement);
    return status;
}

pf_status db_script(db *d, const char *sql, pf_err *err)
{
    int code = sqlite3_exec(d->handle, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? PF_OK : db_error(d, code, err);
}
