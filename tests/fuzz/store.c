/* A store's backup, restored, opened and read to the end; imported conversations. What must hold of
 * a changed backup: every text that is shown is one that was saved. */
#include "base/file.h"
#include "base/mem.h"
#include "fuzz/formats.h"
#include "models/adapter_blob.h"
#include "profiles/backup.h"
#include "profiles/notes.h"
#include "profiles/settings.h"
#include "support/scratch.h"
#include "support/store_fixture.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSPHRASE "correct horse"

enum { MAX_FILE = 64 << 20, SIGN_IN_EVERY = 16 /* stretching takes long */ };

static const char *const saved_texts[] = {"What is a file lock?", "It keeps others out.",
                                          "My dog is called Biscuit."};

static store_fixture f;
static session *user;

void store_formats_open(void)
{
    int64_t id = 0, profile = 0;
    buf blob = {0};
    fixture_open(&f);
    user = fixture_user(&f, "mira", PASSPHRASE);
    fixture_adapter(1, &blob);
    if (profile_create_with(user, "letters", blob.data, blob.len, NULL, &profile, &f.err) !=
            PF_OK ||
        conversation_create(user, profile, "t", &id, &f.err) != PF_OK)
        die("%s", f.err.text);
    fixture_message(user, id, HISTORY_USER, saved_texts[0]);
    fixture_message(user, id, HISTORY_ASSISTANT, saved_texts[1]);
    char *text = xstrdup(saved_texts[2]);
    const note_info note = {.text = text, .state = NOTE_CONFIRMED};
    if (note_add(user, &note, NULL, &f.err) != PF_OK) die("%s", f.err.text);
    free(text);
    buf_free(&blob);
}

void store_formats_close(void)
{
    session_unref(user);
    fixture_close(&f);
}

void store_make_backup(buf *out)
{
    char *path = path_join(f.folder, "copy");
    if (backup_write(f.store, path, true, &f.err) != PF_OK ||
        file_read(path, MAX_FILE, out, &f.err) != PF_OK)
        die("%s", f.err.text);
    free(path);
}

/* --- conversations -------------------------------------------------------------------------- */

static void remove_conversations(void)
{
    conversation_list list = {0};
    if (conversation_list_load(user, 0, 0, 0, &list, &f.err) != PF_OK) die("%s", f.err.text);
    for (size_t i = 0; i < list.n; i++)
        if (conversation_remove(user, list.items[i].id, &f.err) != PF_OK) die("%s", f.err.text);
    conversation_list_free(&list);
}

/* Writes those of no profile and reads them again: as many, and the same when written again. */
static void write_and_read_again(size_t n)
{
    size_t n_again = 0;
    conversation_list list = {0};
    buf text = {0}, markdown = {0};
    if (conversation_list_load(user, 0, 0, 0, &list, &f.err) != PF_OK) die("%s", f.err.text);
    PF_ASSERT(list.n == n);
    int64_t *ids = xcalloc(n, sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = list.items[i].id;
    if (history_export_jsonl(user, ids, n, &text, &f.err) != PF_OK ||
        history_export_markdown(user, ids, n, &markdown, &f.err) != PF_OK ||
        history_import_jsonl(user, 0, buf_str(&text), text.len, "again", &n_again, &f.err) != PF_OK)
        die("%s", f.err.text);
    PF_ASSERT(n_again == n);
    free(ids);
    buf_free(&text);
    buf_free(&markdown);
    conversation_list_free(&list);
}

pf_status store_read_conversations(const char *path, pf_err *err)
{
    size_t n = 0;
    buf data = {0};
    pf_status status = file_read(path, MAX_FILE, &data, err);
    if (status == PF_OK)
        status = history_import_jsonl(user, 0, buf_str(&data), data.len, path_base(path), &n, err);
    if (status == PF_OK) write_and_read_again(n);
    remove_conversations();
    buf_free(&data);
    return status;
}

/* --- backups -------------------------------------------------------------------------------- */

static void expect_saved(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof saved_texts / sizeof *saved_texts; i++)
        if (strlen(saved_texts[i]) == len && memcmp(saved_texts[i], text, len) == 0) return;
    die("a text that was never saved: %.*s", (int)len, text);
}

static void keep(pf_status status, pf_status *first)
{
    if (*first == PF_OK) *first = status;
}

static void read_conversations(session *s, pf_status *first, pf_err *err)
{
    conversation_list list = {0};
    keep(conversation_list_load(s, -1, 0, 0, &list, err), first);
    for (size_t i = 0; i < list.n; i++) {
        conversation c = {0};
        keep(conversation_load_tree(s, list.items[i].id, &c, err), first);
        for (size_t j = 0; j < c.n; j++)
            expect_saved(c.messages[j].text, c.messages[j].len);
        conversation_free(&c);
    }
    conversation_list_free(&list);
}

static void read_profiles(session *s, pf_status *first, pf_err *err)
{
    profile_list list = {0};
    keep(profile_list_load(s, &list, err), first);
    for (size_t i = 0; i < list.n; i++) {
        buf blob = {0};
        adapter_view view = {0};
        pf_status status = profile_read_adapter(s, list.items[i].id, 0, &blob, err);
        if (status == PF_OK)
            PF_ASSERT(adapter_view_open(blob.data, blob.len, NULL, &view, NULL) == PF_OK);
        else
            keep(status, first);
        adapter_view_close(&view);
        buf_free(&blob);
    }
    profile_list_free(&list);
}

static void read_notes(session *s, pf_status *first, pf_err *err)
{
    note_list list = {0};
    keep(note_list_load(s, -1, &list, err), first);
    for (size_t i = 0; i < list.n; i++)
        expect_saved(list.items[i].text, strlen(list.items[i].text));
    note_list_free(&list);
}

static pf_status read_as_user(store *st, const char *home, pf_err *err)
{
    session *s = NULL;
    doctor_report report = {0};
    int64_t n_removed = 0;
    secret *passphrase = secret_from(PASSPHRASE, strlen(PASSPHRASE));
    pf_status status = user_sign_in(st, "mira", passphrase, &s, err);
    secret_free(passphrase);
    if (status != PF_OK) return status;
    read_conversations(s, &status, err);
    read_profiles(s, &status, err);
    read_notes(s, &status, err);
    PF_ASSERT(doctor_examine(home, s, &report, err) == PF_OK);
    doctor_report_free(&report);
    pf_status repaired = doctor_repair(s, &n_removed, err);
    if (repaired == PF_OK) {
        pf_status after = PF_OK;
        read_conversations(s, &after, err);
        read_notes(s, &after, err);
        if (after != PF_OK) die("after a repair: %s", err->text);
    }
    session_unref(s);
    return status;
}

static pf_status read_restored(const char *home, pf_err *err)
{
    static unsigned n_read;
    store *st = NULL;
    user_list users = {0};
    doctor_report report = {0};
    store_options options = fixture_options();
    options.must_exist = true;
    PF_ASSERT(doctor_examine(home, NULL, &report, err) == PF_OK);
    doctor_report_free(&report);
    pf_status status = store_open(home, &options, &st, err);
    if (status == PF_OK) status = user_list_load(st, &users, err);
    user_list_free(&users);
    if (status == PF_OK && n_read++ % SIGN_IN_EVERY == 0) status = read_as_user(st, home, err);
    store_close(st);
    return status;
}

pf_status store_read_backup(const char *path, pf_err *err)
{
    char *home = path_join(f.folder, "restored"), *kept = NULL;
    pf_status status = backup_restore(home, path, &kept, err);
    free(kept);
    if (status == PF_OK && read_restored(home, err) != PF_OK) {
        PF_ASSERT(err->text[0]);
        status = err_context(err, "%s, restored", path);
    }
    if (file_exists(home))
        scratch_remove(home);
    else
        free(home);
    return status;
}

/* --- rows ----------------------------------------------------------------------------------- */

static const char *const tables[][6] = {
    {"user", "uid", "name", "name_key", "created_ms"},
    {"user_key", "kdf", "ops", "mem", "salt", "revision"},
    {"user_key", "wrapped", "checksum", "owner"},
    {"user_head", "id", "owner", "revision", "body"},
    {"profile", "id", "owner", "revision", "body"},
    {"version", "id", "owner", "revision", "body"},
    {"conversation", "id", "owner", "revision", "body"},
    {"message", "id", "owner", "revision", "body"},
    {"note", "id", "owner", "revision", "body"},
    {"blob", "id", "owner", "header"},
    {"chunk", "owner", "number", "body"},
};

/* %1$s is a table, %2$s a column. What the schema forbids fails, which is fine. */
static const char *const changes[] = {
    "UPDATE %1$s SET %2$s = NULL",
    "UPDATE %1$s SET %2$s = 0",
    "UPDATE %1$s SET %2$s = -1",
    "UPDATE %1$s SET %2$s = %2$s + 1",
    "UPDATE %1$s SET %2$s = 9223372036854775807",
    "UPDATE %1$s SET %2$s = x''",
    "UPDATE %1$s SET %2$s = ''",
    "UPDATE %1$s SET %2$s = x'00'",
    "UPDATE %1$s SET %2$s = zeroblob(3000000)",
    "UPDATE %1$s SET %2$s = substr(%2$s, 1, length(%2$s) / 2)",
    "UPDATE %1$s SET %2$s = CAST(%2$s || x'00' AS BLOB)",
    "UPDATE %1$s SET %2$s = CAST(x'ff' || substr(%2$s, 2) AS BLOB)",
    "UPDATE %1$s SET %2$s = CAST(x'fffe1b5b' AS TEXT)",
    "UPDATE %1$s SET %2$s = (SELECT %2$s FROM %1$s ORDER BY 1 DESC LIMIT 1)",
    "DELETE FROM %1$s",
    "DELETE FROM %1$s WHERE rowid = (SELECT max(rowid) FROM %1$s)",
    "INSERT INTO %1$s SELECT * FROM %1$s",
    "DROP TABLE %1$s",
    "ALTER TABLE %1$s RENAME COLUMN %2$s TO other",
    "ALTER TABLE %1$s ADD COLUMN %2$s_more BLOB",
    "CREATE TRIGGER t AFTER UPDATE ON %1$s BEGIN DELETE FROM %1$s; END",
    "CREATE TRIGGER t AFTER INSERT ON %1$s BEGIN UPDATE %1$s SET %2$s = 1; END",
    "CREATE VIEW v AS SELECT %2$s FROM %1$s",
    "CREATE TABLE %1$s_more (%2$s)",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 1000000",
    "PRAGMA application_id = 0",
    "PRAGMA journal_mode = WAL",
    "PRAGMA encoding = 'UTF-16'; VACUUM",
    "PRAGMA page_size = 512; VACUUM",
};

void store_damage_rows(const char *path, mutate_random *r)
{
    sqlite3 *raw = NULL;
    char sql[256];
    if (sqlite3_open_v2(path, &raw, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        die("%s", sqlite3_errmsg(raw));
    sqlite3_exec(raw, "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF", NULL, NULL, NULL);
    do {
        const char *const *table = tables[mutate_below(r, sizeof tables / sizeof *tables)];
        size_t n = 0;
        while (n < 5 && table[1 + n])
            n++;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(sql, sizeof sql, changes[mutate_below(r, sizeof changes / sizeof *changes)],
                 table[0], table[1 + mutate_below(r, n)]);
#pragma GCC diagnostic pop
        sqlite3_exec(raw, sql, NULL, NULL, NULL);
    } while (mutate_below(r, 3) == 0);
    sqlite3_close(raw);
}
