/* A SQLite connection with cached prepared statements and this program's error messages. Internal
 * to profiles/; not thread-safe by itself (the store locks). */
#ifndef PF_PROFILES_DB_H
#define PF_PROFILES_DB_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DB_STATEMENTS 96

typedef struct {
    sqlite3 *handle;
    char *path;                /* for messages */
    int64_t wait_began_ns;     /* for another process, the present time */
    atomic_llong waited_at_ns; /* the last moment that it waited at; 0: never */
    atomic_int *in_haste;      /* not 0: don't wait; NULL: nothing says so */
    struct {
        const char *sql; /* the literal's address is the key */
        sqlite3_stmt *statement;
    } kept[DB_STATEMENTS];
    size_t n_kept;
} db;

/* Opens an existing file, without following links. read_only: no write, no side effect on it. */
pf_status db_open(db *d, const char *path, bool read_only, pf_err *err);
void db_close(db *d);

/* How long a wait of the calling thread that began at a moment may go on (store_wait_at_most), in
 * ms; 0: no longer. */
int db_patience_ms(int64_t began_ns);
/* The calling thread waits at most ms from here to db_patience_back, which takes what it gave. */
int64_t db_patience_cut(int ms);
void db_patience_back(int64_t former);
/* Whether who uses the connection is waiting for another process. */
bool db_is_waiting(db *d);

/* Starts a statement. sql is a string literal; types has one letter per parameter: i int64_t, b
 * (const void *, size_t), t (const char *), n nothing. Blobs and texts are borrowed until db_done.
 * A statement must be finished with db_done, whatever happened. */
pf_status db_query(db *d, sqlite3_stmt **out, pf_err *err, const char *sql, const char *types, ...);
/* *row: whether there is a row to read. */
pf_status db_step(db *d, sqlite3_stmt *statement, bool *row, pf_err *err);
void db_done(sqlite3_stmt *statement); /* NULL is fine */

/* A statement without rows, from start to end. */
pf_status db_run(db *d, pf_err *err, const char *sql, const char *types, ...);
/* The first column of the first row; PF_NOT_FOUND without a row. */
pf_status db_number(db *d, int64_t *out, pf_err *err, const char *sql, const char *types, ...);
typedef struct {
    int64_t *items; /* freed by the owner */
    size_t n;
} row_id_list;
/* The first column of all rows; *out is owned also on failure. */
pf_status db_numbers(db *d, row_id_list *out, pf_err *err, const char *sql, const char *types, ...);
/* Statements without parameters, not kept: schema, pragmas. */
pf_status db_script(db *d, const char *sql, pf_err *err);

/* PF_BUSY: the store at path is in use by another process. */
pf_status db_busy(const char *path, pf_err *err);
/* The message of the last failure. code: the call's result. */
pf_status db_error(db *d, int code, pf_err *err);

#endif
