/* The store: damage of every kind is told and kept apart; places, modes, versions, migration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "profiles/backup.h"
#include "profiles/schema.h"
#include "profiles/search.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "support/store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static store_fixture f;
static session *mira, *jonas;
/* mira's: two profiles with adapters, two conversations of four messages, a setting, a checkpoint
 */
static int64_t profiles[2], talks[2], messages[2][4];

static void fill(void)
{
    buf blob = {0};
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "profile %d", i);
        fixture_adapter((unsigned)i, &blob);
        assert_ok(&f, profile_create(mira, name, "{\"system\":\"x\"}", &profiles[i], &f.err));
        assert_ok(&f,
                  profile_add_version(mira, profiles[i], blob.data, blob.len, NULL, NULL, &f.err));
        assert_ok(&f, conversation_create(mira, profiles[i], "a title", &talks[i], &f.err));
        for (int j = 0; j < 4; j++)
            messages[i][j] =
                fixture_message(mira, talks[i], j % 2 ? HISTORY_ASSISTANT : HISTORY_USER,
                                "the same text everywhere");
        buf_clear(&blob);
    }
    assert_ok(&f, checkpoint_save(mira, profiles[0], 1, NULL, "checkpoint", 10, 3, &f.err));
    assert_ok(&f, settings_set(mira, "theme", "dark", 4, &f.err));
    buf_free(&blob);
}

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    mira = fixture_user(&f, "mira", "correct horse");
    jonas = fixture_user(&f, "jonas", "battery staple");
    fill();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    session_unref(mira);
    session_unref(jonas);
    fixture_close(&f);
    return 0;
}

/* Runs a change behind the program's back, checks what `look` says, and takes the change back. */
static void with_change(const char *table, const char *change, void (*look)(void))
{
    char *sql = xasprintf("CREATE TABLE spare AS SELECT * FROM %s; %s", table, change);
    fixture_sql(&f, sql);
    free(sql);
    look();
    sql =
        xasprintf("PRAGMA foreign_keys = OFF; DELETE FROM %s; INSERT INTO %s SELECT * FROM spare; "
                  "DROP TABLE spare",
                  table, table);
    fixture_sql(&f, sql);
    free(sql);
}

/* --- messages --------------------------------------------------------------------------------- */

static const char *wanted;  /* in the message */
static size_t wanted_count; /* messages that still open */

static void look_at_talk(void)
{
    conversation c;
    assert_status(&f, conversation_load(mira, talks[0], &c, &f.err), PF_DAMAGED);
    assert_text(f.err.text, wanted);
    assert_int_equal(c.n, wanted_count);
    for (size_t i = 0; i < c.n; i++)
        assert_string_equal(c.messages[i].text, "the same text everywhere");
    conversation_free(&c);
    /* the other one is as it was */
    assert_ok(&f, conversation_load(mira, talks[1], &c, &f.err));
    assert_int_equal(c.n, 4);
    conversation_free(&c);
}

static void message_change(const char *change, const char *says, size_t still)
{
    wanted = says;
    wanted_count = still;
    with_change("message", change, look_at_talk);
}

static char *sql_of(const char *format, int64_t a, int64_t b)
{
    return xasprintf(format, (long long)a, (long long)b);
}

static void test_messages(void **state)
{
    (void)state;
    char *sql = NULL;
    const int64_t m = messages[0][1], n = messages[0][2];
    static const struct {
        const char *change, *says;
    } bodies[] = {
        {"UPDATE message SET body = x'' WHERE id = %lld", "is damaged"},
        {"UPDATE message SET body = x'00' WHERE id = %lld", "is damaged"},
        {"UPDATE message SET body = substr(body, 1, length(body) - 1) WHERE id = %lld",
         "is damaged"},
        {"UPDATE message SET body = CAST('a text in its place that is long enough to be sealed, if "
         "it were one' AS BLOB) WHERE id = %lld",
         "is damaged"},
        {"UPDATE message SET revision = 2 WHERE id = %lld", "moved here"},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        sql = sql_of(bodies[i].change, m, 0);
        message_change(sql, bodies[i].says, 3);
        free(sql);
    }
    /* two rows swapped */
    sql =
        xasprintf("UPDATE message SET body = (SELECT body FROM spare WHERE id = %lld) WHERE id = "
                  "%lld; UPDATE message SET body = (SELECT body FROM spare WHERE id = %lld) WHERE "
                  "id = %lld",
                  (long long)n, (long long)m, (long long)m, (long long)n);
    message_change(sql, "moved here", 2);
    free(sql);
    /* the last one removed; one in the middle; all */
    sql = sql_of("DELETE FROM message WHERE id = %lld", messages[0][3], 0);
    message_change(sql, "4 were saved, 3 are there", 3);
    free(sql);
    sql = sql_of("DELETE FROM message WHERE owner = %lld", talks[0], 0);
    message_change(sql, "4 were saved, 0 are there", 0);
    free(sql);
    /* one of another conversation of the same user added */
    sql = sql_of("UPDATE message SET owner = %lld WHERE id = %lld", talks[0], messages[1][0]);
    wanted = "4 were saved, 5 are there";
    wanted_count = 5;
    fixture_sql(&f, "CREATE TABLE spare AS SELECT * FROM message");
    fixture_sql(&f, sql);
    conversation c;
    assert_status(&f, conversation_load(mira, talks[0], &c, &f.err), PF_DAMAGED);
    assert_text(f.err.text, wanted);
    conversation_free(&c);
    assert_status(&f, conversation_load(mira, talks[1], &c, &f.err), PF_DAMAGED);
    assert_text(f.err.text, "4 were saved, 3 are there");
    conversation_free(&c);
    fixture_sql(&f,
                "DELETE FROM message; INSERT INTO message SELECT * FROM spare; DROP TABLE spare");
    free(sql);
    assert_ok(&f, conversation_load(mira, talks[0], &c, &f.err));
    conversation_free(&c);
}

static void test_another_users_message(void **state)
{
    (void)state;
    int64_t id = 0;
    assert_ok(&f, conversation_create(jonas, 0, "secret", &id, &f.err));
    int64_t theirs = fixture_message(jonas, id, HISTORY_USER, "the secret of jonas");
    char *sql = xasprintf("UPDATE message SET body = (SELECT body FROM message WHERE id = %lld) "
                          "WHERE id = %lld",
                          (long long)theirs, (long long)messages[0][1]);
    message_change(sql, "belongs to another user", 3);
    assert_null(strstr(f.err.text, "jonas"));
    free(sql);
    assert_ok(&f, conversation_remove(jonas, id, &f.err));
}

static void test_older_form(void **state)
{
    (void)state;
    history_message change = {.id = messages[0][1],
                              .role = HISTORY_ASSISTANT,
                              .text = (char[]){"the same text everywhere"},
                              .len = strlen("the same text everywhere")};
    fixture_sql(&f, "CREATE TABLE older AS SELECT * FROM message");
    assert_ok(&f, message_update(mira, talks[0], &change, &f.err));
    /* body and revision of the older form: genuine, but not the last one */
    char *sql = sql_of("UPDATE message SET (revision, body) = (SELECT revision, body FROM older "
                       "WHERE id = %lld) WHERE id = %lld",
                       messages[0][1], messages[0][1]);
    message_change(sql, "older genuine forms", 4);
    free(sql);
    /* a message deleted and put back */
    int64_t extra = fixture_message(mira, talks[0], HISTORY_USER, "the same text everywhere");
    fixture_sql(&f, "DROP TABLE older; CREATE TABLE older AS SELECT * FROM message");
    assert_ok(&f, message_remove(mira, talks[0], extra, REMOVE_ALONE, &f.err));
    sql = sql_of("INSERT INTO message SELECT * FROM older WHERE id = %lld", extra, 0);
    message_change(sql, "4 were saved, 5 are there", 5);
    free(sql);
    fixture_sql(&f, "DROP TABLE older");
}

/* --- every sealed column ---------------------------------------------------------------------- */

static void look_at_all(void)
{
    doctor_report report;
    assert_ok(&f, doctor_examine(f.home, mira, &report, &f.err));
    size_t bad = 0;
    for (size_t i = 0; i < report.n; i++)
        bad += strcmp(report.items[i].what, "values") == 0 && !report.items[i].ok;
    doctor_report_free(&report);
    assert_true(bad > 0);
}

/* One bit at every 7th byte of every sealed column. */
static void test_every_bit(void **state)
{
    (void)state;
    static const struct {
        const char *table, *column;
    } columns[] = {
        {"user_head", "body"},    {"profile", "body"}, {"version", "body"},
        {"checkpoint", "body"},   {"setting", "body"}, {"message", "body"},
        {"conversation", "body"}, {"chunk", "body"},   {"blob", "header"},
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        char *sql = xasprintf("SELECT length(%s) FROM %s WHERE id = (SELECT min(id) FROM %s)",
                              columns[i].column, columns[i].table, columns[i].table);
        int64_t len = fixture_sql_number(&f, sql);
        free(sql);
        /* chunks are long: fewer places */
        int64_t step = len > 700 ? len / 100 : 7;
        for (int64_t at = 0; at < len; at += step) {
            fixture_flip(&f, columns[i].table, columns[i].column, at);
            look_at_all();
            fixture_flip(&f, columns[i].table, columns[i].column, at);
        }
    }
    doctor_report report;
    assert_ok(&f, doctor_examine(f.home, mira, &report, &f.err));
    assert_int_equal(report.n_bad, 0);
    doctor_report_free(&report);
}

static void test_profiles_and_rest(void **state)
{
    (void)state;
    profile_list list;
    profile_info info;
    buf blob = {0};
    int64_t first = fixture_sql_number(&f, "SELECT min(id) FROM profile");
    assert_int_equal(first, profiles[0]);
    fixture_flip(&f, "profile", "body", 60);
    assert_status(&f, profile_list_load(mira, &list, &f.err), PF_DAMAGED);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0].name, "profile 1");
    profile_list_free(&list);
    assert_ok(&f, profile_find(mira, "profile 1", &info, &f.err));
    profile_info_free(&info);
    assert_status(&f, profile_find(mira, "profile 0", &info, &f.err), PF_DAMAGED);
    profile_info_free(&info);
    assert_ok(&f, profile_read_adapter(mira, profiles[1], 0, &blob, &f.err));
    fixture_flip(&f, "profile", "body", 60);
    /* an adapter that can't be opened: the profile is told to be damaged, never plain */
    fixture_flip(&f, "version", "body", 60);
    assert_status(&f, profile_get(mira, profiles[0], &info, &f.err), PF_DAMAGED);
    assert_text(f.err.text, "profile 0");
    assert_true(info.has_adapter);
    assert_true(info.damaged);
    profile_info_free(&info);
    assert_status(&f, profile_read_adapter(mira, profiles[0], 0, &blob, &f.err), PF_DAMAGED);
    fixture_flip(&f, "version", "body", 60);
    size_t len = blob.len;
    fixture_flip(&f, "chunk", "body", 200);
    assert_status(&f, profile_read_adapter(mira, profiles[0], 0, &blob, &f.err), PF_DAMAGED);
    assert_text(f.err.text, "profile 0");
    assert_int_equal(blob.len, len);
    fixture_flip(&f, "chunk", "body", 200);
    /* one profile's adapter in another one's place */
    fixture_sql(&f, "CREATE TABLE spare AS SELECT * FROM chunk;"
                    "UPDATE chunk SET body = (SELECT body FROM chunk WHERE id = (SELECT max(id) "
                    "FROM chunk WHERE owner < (SELECT max(owner) FROM chunk)))"
                    " WHERE id = (SELECT min(id) FROM chunk)");
    assert_status(&f, profile_read_adapter(mira, profiles[0], 0, &blob, &f.err), PF_DAMAGED);
    fixture_sql(&f, "DELETE FROM chunk; INSERT INTO chunk SELECT * FROM spare; DROP TABLE spare");
    assert_ok(&f, profile_read_adapter(mira, profiles[0], 0, &blob, &f.err));
    /* the register itself */
    fixture_flip(&f, "user_head", "body", 60);
    assert_status(&f, profile_list_load(mira, &list, &f.err), PF_DAMAGED);
    assert_int_equal(list.n, 2);
    profile_list_free(&list);
    assert_status(&f, profile_create(mira, "new", NULL, NULL, &f.err), PF_DAMAGED);
    fixture_flip(&f, "user_head", "body", 60);
    assert_ok(&f, profile_list_load(mira, &list, &f.err));
    profile_list_free(&list);
    buf_free(&blob);
}

static void test_repair(void **state)
{
    (void)state;
    int64_t removed = 0;
    conversation c;
    doctor_report report;
    char *sql = sql_of("UPDATE message SET body = x'0000' WHERE id IN (%lld, %lld)", messages[1][0],
                       messages[1][3]);
    fixture_sql(&f, sql);
    free(sql);
    fixture_flip(&f, "user_head", "body", 70);
    fixture_flip(&f, "chunk", "body", 100);
    assert_ok(&f, doctor_repair(mira, &removed, &f.err));
    assert_int_equal(removed, 4); /* two messages, a version, the register */
    assert_ok(&f, doctor_examine(f.home, mira, &report, &f.err));
    assert_int_equal(report.n_bad, 0);
    doctor_report_free(&report);
    assert_ok(&f, conversation_load(mira, talks[1], &c, &f.err));
    assert_int_equal(c.n, 2);
    conversation_free(&c);
    profile_info info;
    assert_ok(&f, profile_get(mira, profiles[0], &info, &f.err));
    assert_false(info.has_adapter);
    profile_info_free(&info);
    fixture_message(mira, talks[1], HISTORY_USER, "goes on");
    assert_ok(&f, doctor_repair(mira, &removed, &f.err));
    assert_int_equal(removed, 0);
}

/* --- places ----------------------------------------------------------------------------------- */

static void refused(const char *home, pf_status wanted_status, const char *says)
{
    store *st = NULL;
    store_options options = fixture_options();
    assert_status(&f, store_open(home, &options, &st, &f.err), wanted_status);
    assert_text(f.err.text, says);
}

static void write_text(const char *path, const char *content)
{
    assert_ok(&f, file_write_atomic(path, content, strlen(content), 0600, &f.err));
}

static void check_text(const char *path, const char *content)
{
    buf text = {0};
    assert_ok(&f, file_read(path, 1000, &text, &f.err));
    assert_string_equal(buf_str(&text), content);
    buf_free(&text);
}

static void test_places(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "place"), *link = path_join(f.folder, "link");
    char *victim = path_join(f.folder, "victim");
    static const char *const names[] = {"preft.db", "preft.db-wal", "preft.db-shm",
                                        "preft.db-journal", "lock"};
    assert_int_equal(mkdir(place, 0700), 0);
    write_text(victim, "precious");
    assert_int_equal(symlink(place, link), 0);
    refused(link, PF_REFUSED, "a link");
    char *slash = xasprintf("%s/", link);
    refused(slash, PF_REFUSED, "a link");
    free(slash);
    refused(victim, PF_REFUSED, "no folder");
    assert_int_equal(chmod(place, 0777), 0);
    refused(place, PF_REFUSED, "written to by others");
    assert_int_equal(chmod(place, 0700), 0);
    for (size_t i = 0; i < 5; i++) {
        char *path = path_join(place, names[i]);
        assert_int_equal(symlink(victim, path), 0);
        refused(place, PF_REFUSED, "a link");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        refused(place, PF_REFUSED, "no regular file");
        assert_int_equal(unlink(path), 0);
        if (i > 0) {
            assert_int_equal(linkat(AT_FDCWD, victim, AT_FDCWD, path, 0), 0);
            refused(place, PF_REFUSED, "several names");
            assert_int_equal(unlink(path), 0);
        }
        free(path);
    }
    check_text(victim, "precious");
    if (geteuid() == 0) {
        assert_int_equal(chown(place, 12345, 12345), 0);
        refused(place, PF_REFUSED, "belongs to user number 12345");
        assert_int_equal(chown(place, 0, 0), 0);
        char *path = path_join(place, "preft.db");
        write_text(path, "");
        assert_int_equal(chown(path, 12345, 12345), 0);
        refused(place, PF_REFUSED, "belongs to user number 12345");
        unlink(path);
        free(path);
    }
    /* readable by others: closed to them */
    assert_int_equal(chmod(place, 0755), 0);
    store *st = NULL;
    store_options options = fixture_options();
    assert_ok(&f, store_open(place, &options, &st, &f.err));
    struct stat info;
    assert_int_equal(stat(place, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(stat(store_path(st), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    store_close(st);
    free(place);
    free(link);
    free(victim);
}

static void test_modes_of_all_files(void **state)
{
    (void)state;
    mode_t old = umask(0);
    char *place = path_join(f.folder, "deep/er/place");
    store *st = NULL;
    session *s = NULL;
    store_options options = fixture_options();
    assert_ok(&f, store_open(place, &options, &st, &f.err));
    secret *p = secret_from("correct horse", 13);
    assert_ok(&f, user_create(st, "a", p, &s, NULL, &f.err));
    secret_free(p);
    static const char *const names[] = {"preft.db", "preft.db-wal", "preft.db-shm", "lock"};
    for (size_t i = 0; i < 4; i++) {
        struct stat info;
        char *path = path_join(place, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        free(path);
    }
    umask(old);
    session_unref(s);
    store_close(st);
    free(place);
}

/* --- versions --------------------------------------------------------------------------------- */

static void test_versions(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "versions"), *path = path_join(place, "preft.db");
    store *st = NULL;
    store_options options = fixture_options();
    options.must_exist = true;
    assert_status(&f, store_open(place, &options, &st, &f.err), PF_NOT_FOUND);
    assert_false(file_exists(place));
    options.must_exist = false;
    assert_ok(&f, store_open(place, &options, &st, &f.err));
    store_close(st);
    static const struct {
        const char *change;
        pf_status status;
        const char *says;
    } cases[] = {
        {"PRAGMA user_version = 4", PF_REFUSED, "newer"},
        {"PRAGMA user_version = 1000000", PF_REFUSED, "newer"},
        {"PRAGMA user_version = -1", PF_REFUSED, "newer"},
        {"PRAGMA user_version = 0", PF_REFUSED, "no version"},
        {"PRAGMA application_id = 7", PF_REFUSED, "another program"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf before = {0}, after = {0};
        sqlite3 *raw = NULL;
        assert_int_equal(sqlite3_open(path, &raw), SQLITE_OK);
        assert_int_equal(sqlite3_exec(raw, cases[i].change, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(raw);
        assert_ok(&f, file_read(path, 1 << 20, &before, &f.err));
        refused(place, cases[i].status, cases[i].says);
        assert_ok(&f, file_read(path, 1 << 20, &after, &f.err));
        assert_int_equal(before.len, after.len);
        assert_memory_equal(before.data, after.data, before.len);
        assert_int_equal(sqlite3_open(path, &raw), SQLITE_OK);
        sqlite3_exec(raw, "PRAGMA user_version = 3; PRAGMA application_id = 1886545524", NULL, NULL,
                     NULL);
        sqlite3_close(raw);
        buf_free(&before);
        buf_free(&after);
    }
    assert_ok(&f, store_open(place, &options, &st, &f.err));
    store_close(st);
    /* a version that is still in the write-ahead file only */
    sqlite3 *raw = NULL;
    assert_int_equal(sqlite3_open(path, &raw), SQLITE_OK);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    assert_int_equal(
        sqlite3_exec(raw, "PRAGMA journal_mode = WAL; PRAGMA user_version = 9", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(raw);
    buf before = {0}, after = {0};
    assert_ok(&f, file_read(path, 1 << 20, &before, &f.err));
    refused(place, PF_REFUSED, "version 9");
    assert_ok(&f, file_read(path, 1 << 20, &after, &f.err));
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    buf_free(&before);
    buf_free(&after);
    free(place);
    free(path);
}

static void test_other_files(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "other"), *path = path_join(place, "preft.db");
    assert_int_equal(mkdir(place, 0700), 0);
    write_text(path, "this is a letter, not a database; it is long enough to have a header, which "
                     "has one hundred bytes in all");
    refused(place, PF_REFUSED, "not a store");
    write_text(path, "short");
    refused(place, PF_REFUSED, "not a store");
    write_text(path, "SQLite format 3");
    refused(place, PF_DAMAGED, "cut off after 15");
    free(place);
    free(path);
}

/* A store cut off at many lengths: refused or told to be damaged, never a crash, never half. */
static void test_cut_off(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "cut"), *path = path_join(place, "preft.db");
    char *copy = path_join(f.folder, "whole");
    buf whole = {0};
    assert_ok(&f, backup_write(f.store, copy, true, &f.err));
    assert_ok(&f, file_read(copy, 1 << 24, &whole, &f.err));
    assert_int_equal(mkdir(place, 0700), 0);
    for (size_t len = 1; len < whole.len; len = len < 4096 ? len * 3 : len + 8192 - 100) {
        store *st = NULL;
        session *s = NULL;
        store_options options = fixture_options();
        assert_ok(&f, file_write_atomic(path, whole.data, len, 0600, &f.err));
        pf_status status = store_open(place, &options, &st, &f.err);
        doctor_report report;
        pf_err err;
        if (status == PF_OK) {
            secret *p = secret_from("correct horse", 13);
            status = user_sign_in(st, "mira", p, &s, &f.err);
            secret_free(p);
        }
        if (doctor_examine(place, s, &report, &err) == PF_OK) {
            assert_true(report.n_bad > 0);
            doctor_report_free(&report);
        }
        session_unref(s);
        store_close(st);
        static const char *const rest[] = {"preft.db-wal", "preft.db-shm", "preft.db"};
        for (size_t i = 0; i < 3; i++) {
            char *name = path_join(place, rest[i]);
            unlink(name);
            free(name);
        }
    }
    buf_free(&whole);
    free(place);
    free(path);
    free(copy);
}

/* The file is sound but can't be opened, as on a disk that can't be written to: nobody is told to
 * put an older copy in its place. */
static void test_out_of_reach(void **state)
{
    (void)state;
    doctor_report report;
    char *log = path_join(f.home, "preft.db-shm");
    session_unref(mira);
    session_unref(jonas);
    store_close(f.store);
    f.store = NULL;
    assert_int_equal(symlink("nowhere", log), 0);
    assert_ok(&f, doctor_examine(f.home, NULL, &report, &f.err));
    assert_int_equal(report.n_bad, report.n);
    assert_int_equal(report.n, 2);
    assert_text(report.items[1].detail, "log beside it can't be opened");
    assert_text(report.items[1].advice, "examine a copy of the folder");
    for (size_t i = 0; i < report.n; i++)
        assert_null(strstr(report.items[i].advice, "restore"));
    doctor_report_free(&report);
    assert_int_equal(unlink(log), 0);
    free(log);
    fixture_reopen(&f);
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &mira));
    assert_ok(&f, fixture_sign_in(&f, "jonas", "battery staple", &jonas));
}

static void test_strange_schema(void **state)
{
    (void)state;
    doctor_report report;
    fixture_sql(&f, "CREATE TABLE extra (x)");
    assert_ok(&f, doctor_examine(f.home, NULL, &report, &f.err));
    assert_int_equal(report.n_bad, 1);
    assert_text(report.items[1].detail, "extra");
    doctor_report_free(&report);
    fixture_sql(&f, "DROP TABLE extra");
    fixture_sql(&f, "CREATE TRIGGER spy AFTER INSERT ON message BEGIN DELETE FROM message; END");
    session_unref(mira);
    session_unref(jonas);
    store_close(f.store);
    f.store = NULL;
    refused(f.home, PF_DAMAGED, "triggers");
    fixture_sql(&f, "DROP TRIGGER spy");
    fixture_reopen(&f);
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &mira));
    assert_ok(&f, fixture_sign_in(&f, "jonas", "battery staple", &jonas));
}

/* --- migration -------------------------------------------------------------------------------- */

static const schema_step newer_steps[] = {
    {NULL},
    {NULL},
    {NULL}, /* versions 1 to 3, which the store has */
    {"ALTER TABLE message ADD COLUMN extra TEXT;"
     "CREATE TABLE more (id INTEGER PRIMARY KEY, x BLOB);"
     "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
     "INSERT INTO more SELECT i, randomblob(500) FROM n"},
    {"CREATE INDEX more_x ON more(x)"},
};

static void make_old_store(const char *place)
{
    store *st = NULL;
    store_options options = fixture_options();
    assert_ok(&f, store_open(place, &options, &st, &f.err));
    store_close(st);
}

static int64_t version_of(const char *path)
{
    db d;
    int64_t version = -1;
    assert_ok(&f, db_open(&d, path, false, &f.err));
    assert_ok(&f, db_number(&d, &version, &f.err, "PRAGMA user_version", ""));
    db_close(&d);
    return version;
}

static void test_migration(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "old"), *path = path_join(place, "preft.db");
    char *copy = path_join(place, "preft.db.v3");
    make_old_store(place);
    db d;
    assert_ok(&f, db_open(&d, path, false, &f.err));
    assert_ok(&f, schema_migrate(&d, newer_steps, 5, &f.err));
    assert_ok(&f, schema_migrate(&d, newer_steps, 5, &f.err)); /* nothing left to do */
    assert_status(&f, schema_migrate(&d, newer_steps, 4, &f.err), PF_REFUSED);
    db_close(&d);
    assert_int_equal(version_of(path), 5);
    assert_int_equal(version_of(copy), 3);
    struct stat info;
    assert_int_equal(stat(copy, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    /* what this program knows is version 3 */
    refused(place, PF_REFUSED, "newer");
    /* a step that fails changes nothing */
    static const schema_step broken[] = {
        {NULL}, {NULL}, {NULL}, {"CREATE TABLE half (x)"}, {"CREATE TABLE half (x)"}};
    char *other = path_join(f.folder, "broken"), *other_path = path_join(other, "preft.db");
    make_old_store(other);
    assert_ok(&f, db_open(&d, other_path, false, &f.err));
    assert_status(&f, schema_migrate(&d, broken, 5, &f.err), PF_FAILED);
    assert_text(f.err.text, "stays at version 3");
    db_close(&d);
    assert_int_equal(version_of(other_path), 3);
    make_old_store(other); /* opens as before */
    free(place);
    free(path);
    free(copy);
    free(other);
    free(other_path);
}

/* The copy of before a migration goes with the first deletion, and when a passphrase changes: it
 * would keep what was deleted, and keys that an old passphrase opens. */
static void test_migration_copy_goes(void **state)
{
    (void)state;
    char *copy = path_join(f.home, "preft.db.v1");
    int64_t id = 0;
    session *s = fixture_user(&f, "copied", "correct horse");
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    assert_ok(&f, file_write_atomic(copy, "x", 1, 0600, &f.err));
    assert_ok(&f, conversation_update(s, id, "kept", -1, &f.err));
    assert_true(file_exists(copy));
    assert_ok(&f, conversation_remove(s, id, &f.err));
    assert_false(file_exists(copy));
    assert_ok(&f, file_write_atomic(copy, "x", 1, 0600, &f.err));
    assert_ok(&f, user_drop_recovery_key(s, &f.err));
    assert_false(file_exists(copy));
    session_unref(s);
    free(copy);
}

static void test_killed_migration(void **state)
{
    (void)state;
    char *place = path_join(f.folder, "killed"), *path = path_join(place, "preft.db");
    int old = 0, new = 0;
    unsigned wait_us = 100;
    for (int round = 0; round < 50; round++) {
        make_old_store(place);
        pid_t child = fork();
        if (child == 0) {
            db d;
            if (db_open(&d, path, false, NULL) == PF_OK)
                (void)schema_migrate(&d, newer_steps, 5, NULL);
            _exit(0);
        }
        usleep(wait_us);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        int64_t version = version_of(path);
        assert_true(version == 3 || version == 5);
        old += version == 3;
        new += version == 5;
        /* wait about as long as the whole takes, so that kills fall everywhere into it */
        wait_us = version == 3 ? wait_us + wait_us / 4 + 50 : wait_us / 2;
        db d;
        int64_t tables = 0;
        assert_ok(&f, db_open(&d, path, false, &f.err));
        assert_ok(&f,
                  db_number(&d, &tables, &f.err,
                            "SELECT count(*) FROM sqlite_schema WHERE name IN ('more', 'more_x')",
                            ""));
        assert_int_equal(tables, version == 3 ? 0 : 2);
        if (version == 3) assert_ok(&f, schema_migrate(&d, newer_steps, 5, &f.err));
        db_close(&d);
        static const char *const rest[] = {"preft.db-wal", "preft.db-shm", "preft.db"};
        for (size_t i = 0; i < 3; i++) {
            char *name = path_join(place, rest[i]);
            unlink(name);
            free(name);
        }
    }
    assert_true(old > 0 && new > 0);
    free(place);
    free(path);
}

/* --- reopening -------------------------------------------------------------------------------- */

static void test_hundred_reopenings(void **state)
{
    (void)state;
    char settings[64];
    unsigned char digest[32];
    void *ctx = NULL;
    /* the session keeps its store open; what is reopened is a second process's view of it */
    for (int i = 0; i < 100; i++) {
        snprintf(settings, sizeof settings, "{\"round\":%d}", i);
        assert_ok(&f, profile_set_settings(mira, profiles[1], settings, &f.err));
        assert_ok(&f, profile_source_open(mira, profiles[1], 0, &ctx, digest, &f.err));
        profile_source_release(ctx);
        if (i % 20 != 0) continue;
        session_unref(mira);
        session_unref(jonas);
        fixture_reopen(&f);
        assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &mira));
        assert_ok(&f, fixture_sign_in(&f, "jonas", "battery staple", &jonas));
        profile_info info;
        assert_ok(&f, profile_get(mira, profiles[1], &info, &f.err));
        assert_string_equal(info.settings, settings);
        profile_info_free(&info);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_another_users_message),
        cmocka_unit_test(test_older_form),
        cmocka_unit_test(test_profiles_and_rest),
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_modes_of_all_files),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_strange_schema),
        cmocka_unit_test(test_out_of_reach),
        cmocka_unit_test(test_migration),
        cmocka_unit_test(test_migration_copy_goes),
        cmocka_unit_test(test_killed_migration),
        cmocka_unit_test(test_hundred_reopenings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
