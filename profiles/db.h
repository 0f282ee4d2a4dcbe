/* A SQLite connection with cached prepared statements and this program's error messages. Internal
 * to profiles/; not thread-safe by itself (the store locks). */
#ifndef PF_PROFILES_DB_H
#define PF_PROFILES_DB_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DB_STATEMENTS 96

typedef struct {
    sqlite3 *handle;
    char *path; /* for messages */
    struct {
        const char *sql; /* the literal's address is the key */
        sqlite3_stmt *statement;
    } kept[DB_STATEMENTS];
    size_t n_kept;
} db;

/* Opens an existing file, without following links. read_only: no write, no side effect on it. */
pf_status db_open(db *d, const char *path, bool read_only, pf_err *err);
void db_close(db *d);

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

/* The message of the last failure. code: the call's result. */
pf_status db_error(db *d, int code, pf_err *err);

#endif
