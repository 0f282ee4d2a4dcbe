#include "support/store_fixture.h"

#include "base/file.h"
#include "base/mem.h"
#include "profiles/internal.h"
#include "support/tiny_adapter.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

store_options fixture_options(void)
{
    return (store_options){.cost = {VAULT_OPS_MIN, VAULT_MEM_MIN}};
}

static void open_store(store_fixture *f)
{
    store_options options = fixture_options();
    if (store_open(f->home, &options, &f->store, &f->err) != PF_OK) die("%s", f->err.text);
}

void fixture_open(store_fixture *f)
{
    *f = (store_fixture){0};
    /* in memory where there is such a place: the tests sync thousands of times */
    snprintf(f->folder, sizeof f->folder, "%s/preft-test-XXXXXX",
             access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(f->folder)) die("no temporary folder");
    f->home = path_join(f->folder, "home");
    open_store(f);
}

void fixture_reopen(store_fixture *f)
{
    store_close(f->store);
    f->store = NULL;
    open_store(f);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void fixture_close(store_fixture *f)
{
    store_close(f->store);
    nftw(f->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f->home);
    *f = (store_fixture){0};
}

session *fixture_user(store_fixture *f, const char *name, const char *passphrase)
{
    session *s = NULL;
    secret *p = secret_from(passphrase, strlen(passphrase));
    if (user_create(f->store, name, p, &s, NULL, &f->err) != PF_OK) die("%s", f->err.text);
    secret_free(p);
    return s;
}

pf_status fixture_sign_in(store_fixture *f, const char *name, const char *passphrase, session **out)
{
    secret *p = secret_from(passphrase, strlen(passphrase));
    pf_status status = user_sign_in(f->store, name, p, out, &f->err);
    secret_free(p);
    return status;
}

int64_t fixture_message(session *s, int64_t conversation_id, history_role role, const char *text)
{
    pf_err err;
    int64_t id = 0;
    char *copy = xstrdup(text);
    history_message m = {.role = role, .text = copy, .len = strlen(text)};
    if (message_append(s, conversation_id, &m, &id, &err) != PF_OK) die("%s", err.text);
    free(copy);
    return id;
}

static sqlite3 *open_raw(store_fixture *f)
{
    sqlite3 *raw = NULL;
    char *path = path_join(f->home, STORE_FILE);
    if (sqlite3_open_v2(path, &raw, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        die("%s", sqlite3_errmsg(raw));
    sqlite3_busy_timeout(raw, 5000);
    sqlite3_exec(raw, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    free(path);
    return raw;
}

void fixture_sql(store_fixture *f, const char *sql)
{
    sqlite3 *raw = open_raw(f);
    if (sqlite3_exec(raw, sql, NULL, NULL, NULL) != SQLITE_OK)
        die("%s: %s", sql, sqlite3_errmsg(raw));
    sqlite3_close(raw);
}

static int fail_in;

static int step_fails(void *unused)
{
    (void)unused;
    return fail_in > 0 && --fail_in == 0;
}

void fixture_fail_step(store_fixture *f, int step)
{
    fail_in = step;
    sqlite3_progress_handler(f->store->main.handle, step ? 1 : 0, step ? step_fails : NULL, NULL);
}

static int count_commit(void *n)
{
    ++*(int *)n;
    return 0;
}

void fixture_count_commits(store_fixture *f, int *n)
{
    sqlite3_commit_hook(f->store->main.handle, n ? count_commit : NULL, n);
}

void fixture_flip(store_fixture *f, const char *table, const char *column, int64_t at)
{
    sqlite3 *raw = open_raw(f);
    sqlite3_blob *blob = NULL;
    sqlite3_stmt *statement = NULL;
    unsigned char byte = 0;
    char *sql = xasprintf("SELECT min(id) FROM %s", table);
    if (sqlite3_prepare_v2(raw, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW ||
        sqlite3_blob_open(raw, "main", table, column, sqlite3_column_int64(statement, 0), 1,
                          &blob) != SQLITE_OK ||
        sqlite3_blob_read(blob, &byte, 1, (int)at) != SQLITE_OK)
        die("%s", sqlite3_errmsg(raw));
    byte ^= 1;
    if (sqlite3_blob_write(blob, &byte, 1, (int)at) != SQLITE_OK) die("%s", sqlite3_errmsg(raw));
    sqlite3_finalize(statement);
    if (sqlite3_blob_close(blob) != SQLITE_OK) die("%s", sqlite3_errmsg(raw));
    sqlite3_close(raw);
    free(sql);
}

int64_t fixture_sql_number(store_fixture *f, const char *sql)
{
    sqlite3 *raw = open_raw(f);
    sqlite3_stmt *statement = NULL;
    int64_t number = 0;
    if (sqlite3_prepare_v2(raw, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        die("%s: %s", sql, sqlite3_errmsg(raw));
    number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(raw);
    return number;
}

static size_t count_in(const buf *content, const void *bytes, size_t len)
{
    size_t n = 0;
    const char *at = content->data, *end = content->data + content->len;
    while (at && (at = memmem(at, (size_t)(end - at), bytes, len))) {
        n++;
        at++;
    }
    return n;
}

size_t fixture_find_bytes(store_fixture *f, const void *bytes, size_t len)
{
    size_t n = 0;
    DIR *folder = opendir(f->home);
    if (!folder) die("no folder %s", f->home);
    for (struct dirent *entry; (entry = readdir(folder));) {
        buf content = {0};
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = path_join(f->home, entry->d_name);
        /* SQLite's own locks on the file would be dropped by closing it here: read in a child */
        FILE *reader = NULL;
        char *command = xasprintf("cat '%s'", path);
        reader = popen(command, "r");
        if (reader) {
            char block[65536];
            size_t got;
            while ((got = fread(block, 1, sizeof block, reader)) > 0)
                buf_append(&content, block, got);
            pclose(reader);
        }
        n += count_in(&content, bytes, len);
        buf_free(&content);
        free(command);
        free(path);
    }
    closedir(folder);
    return n;
}

void fixture_adapter(unsigned seed, buf *out)
{
    const model_config config = {.n_layers = 2,
                                 .hidden = 8,
                                 .n_heads = 2,
                                 .n_kv_heads = 1,
                                 .head_dim = 4,
                                 .ff = 16,
                                 .vocab = 32,
                                 .context = 64};
    tiny_adapter(&config, false, true, 2, seed, out);
}
