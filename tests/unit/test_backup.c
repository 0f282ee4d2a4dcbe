/* Backup and restore; what the data folder gives away; full disks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "profiles/backup.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "support/store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static store_fixture f;

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&f);
    return 0;
}

static void check_talk(const char *home, int64_t id, size_t n)
{
    store *st = NULL;
    session *s = NULL;
    conversation c;
    store_options options = fixture_options();
    options.must_exist = true;
    secret *p = secret_from("correct horse", 13);
    assert_ok(&f, store_open(home, &options, &st, &f.err));
    assert_ok(&f, user_sign_in(st, "mira", p, &s, &f.err));
    assert_ok(&f, conversation_load(s, id, &c, &f.err));
    assert_int_equal(c.n, n);
    conversation_free(&c);
    secret_free(p);
    session_unref(s);
    store_close(st);
}

static void read_whole(const char *path, buf *out)
{
    assert_ok(&f, file_read(path, 1 << 24, out, &f.err));
}

static void write_whole(const char *path, const void *data, size_t len)
{
    assert_ok(&f, file_write_atomic(path, data, len, 0600, &f.err));
}

static void test_backup_and_restore(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    char *copy = path_join(f.folder, "backup.db"), *kept = NULL;
    char *other = path_join(f.folder, "restored");
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    for (int i = 0; i < 100; i++)
        fixture_message(s, id, HISTORY_USER, "one of a hundred secrets");
    assert_ok(&f, backup_write(f.store, copy, false, &f.err)); /* with the program still open */
    assert_status(&f, backup_write(f.store, copy, false, &f.err), PF_USAGE);
    struct stat info;
    assert_int_equal(stat(copy, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    buf content = {0};
    read_whole(copy, &content);
    assert_null(memmem(content.data, content.len, "secret", 6));
    assert_int_equal(content.data[18], 1); /* no write-ahead file belongs to it */
    fixture_message(s, id, HISTORY_USER, "the 101st");
    assert_ok(&f, backup_restore(other, copy, &kept, &f.err));
    assert_null(kept);
    check_talk(other, id, 100);
    /* over the store itself: not while it is open */
    assert_status(&f, backup_restore(f.home, copy, &kept, &f.err), PF_BUSY);
    session_unref(s);
    store_close(f.store);
    f.store = NULL;
    check_talk(f.home, id, 101);
    assert_ok(&f, backup_restore(f.home, copy, &kept, &f.err));
    assert_non_null(kept);
    check_talk(f.home, id, 100);
    /* once more: what is kept already is not given up */
    char *kept_later = NULL;
    assert_ok(&f, backup_restore(f.home, copy, &kept_later, &f.err));
    assert_string_not_equal(kept_later, kept);
    free(kept_later);
    /* what was there before is kept, whole */
    char *back = path_join(f.folder, "back"), *none = NULL;
    assert_ok(&f, backup_restore(back, kept, &none, &f.err));
    check_talk(back, id, 101);
    free(kept);
    char *copies = backup_copies(f.home);
    assert_text(copies, "preft.db.before-restore");
    free(copies);
    fixture_reopen(&f);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
    free(copy);
    free(other);
    free(back);
    buf_free(&content);
}

/* A write-ahead file of another state lies in the place: it must not be mixed in. */
static void test_stale_side_files(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    buf wal = {0}, shm = {0};
    char *copy = path_join(f.folder, "stale.db"), *place = path_join(f.folder, "stale");
    char *kept = NULL, *path = path_join(f.home, "preft.db-wal");
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    for (int i = 0; i < 3; i++)
        fixture_message(s, id, HISTORY_USER, "in the backup");
    assert_ok(&f, backup_write(f.store, copy, false, &f.err));
    for (int i = 0; i < 3; i++)
        fixture_message(s, id, HISTORY_USER, "in the write-ahead file");
    read_whole(path, &wal);
    assert_true(wal.len > 0);
    free(path);
    for (int with_store = 0; with_store < 2; with_store++) {
        if (!with_store) assert_int_equal(mkdir(place, 0700), 0);
        path = path_join(place, "preft.db-wal");
        write_whole(path, wal.data, wal.len);
        free(path);
        path = path_join(place, "preft.db-shm");
        write_whole(path, "nonsense", 8);
        free(path);
        assert_ok(&f, backup_restore(place, copy, &kept, &f.err));
        free(kept);
        check_talk(place, id, 3);
    }
    session_unref(s);
    buf_free(&wal);
    buf_free(&shm);
    free(copy);
    free(place);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static void test_bad_backups(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    buf whole = {0}, before = {0}, after = {0};
    char *copy = path_join(f.folder, "good.db"), *bad = path_join(f.folder, "bad.db"), *kept = NULL;
    char *place = path_join(f.folder, "bad"), *path = path_join(place, "preft.db");
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    for (int i = 0; i < 50; i++)
        fixture_message(s, id, HISTORY_USER, "a message that takes some room in the file");
    assert_ok(&f, backup_write(f.store, copy, false, &f.err));
    assert_ok(&f, backup_restore(place, copy, &kept, &f.err));
    read_whole(copy, &whole);
    read_whole(path, &before);
    const size_t cuts[] = {0, 15, 99, 100, 4095, 4096, whole.len / 2, whole.len - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_whole(bad, whole.data, cuts[i]);
        assert_int_not_equal(backup_restore(place, bad, &kept, &f.err), PF_OK);
        assert_text(f.err.text, "nothing was changed");
        assert_text(f.err.text, bad);
    }
    /* a page overwritten; another program's database; a newer version; no file; a folder */
    memset(whole.data + 8192, 0x55, 4096);
    write_whole(bad, whole.data, whole.len);
    assert_status(&f, backup_restore(place, bad, &kept, &f.err), PF_DAMAGED);
    whole.data[71] ^= 1;
    write_whole(bad, whole.data, whole.len);
    assert_status(&f, backup_restore(place, bad, &kept, &f.err), PF_REFUSED);
    whole.data[71] ^= 1;
    whole.data[63] = 9;
    write_whole(bad, whole.data, whole.len);
    assert_status(&f, backup_restore(place, bad, &kept, &f.err), PF_REFUSED);
    assert_text(f.err.text, "newer");
    unlink(bad);
    assert_status(&f, backup_restore(place, bad, &kept, &f.err), PF_NOT_FOUND);
    assert_status(&f, backup_restore(place, f.folder, &kept, &f.err), PF_REFUSED);
    read_whole(path, &after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    check_talk(place, id, 50);
    /* backups go to regular files only */
    assert_int_equal(symlink(path, bad), 0);
    assert_status(&f, backup_write(f.store, bad, true, &f.err), PF_REFUSED);
    session_unref(s);
    buf_free(&whole);
    buf_free(&before);
    buf_free(&after);
    free(copy);
    free(bad);
    free(place);
    free(path);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

/* --- what the folder gives away --------------------------------------------------------------- */

static void check_absent(const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fixture_find_bytes(&f, words[i], strlen(words[i])) != 0)
            fail_msg("\"%s\" is in the data folder", words[i]);
}

static void test_no_plain_text(void **state)
{
    (void)state;
    static const char *const words[] = {
        "MESSAGEMARK", "TITLEMARK",     "PROFILEMARK", "SETTINGMARK",  "KEYMARK",
        "INPUTMARK",   "REWRITTENMARK", "SYSTEMMARK",  "TRAINMARK",    "CHECKMARK",
        "BASEMARK",    "assistant",     "lora",        "__metadata__", "PASSPHRASEMARK"};
    const size_t n = sizeof words / sizeof *words;
    session *s = fixture_user(&f, "mira", "PASSPHRASEMARK one two");
    int64_t profile = 0, id = 0, message = 0;
    buf blob = {0};
    const profile_version_record record = {.base_name = "BASEMARK",
                                           .training = "{\"x\":\"TRAINMARK\"}"};
    fixture_adapter(3, &blob);
    assert_ok(&f,
              profile_create(s, "PROFILEMARK", "{\"system\":\"SYSTEMMARK\"}", &profile, &f.err));
    assert_ok(&f, profile_add_version(s, profile, blob.data, blob.len, &record, NULL, &f.err));
    assert_ok(&f, conversation_create(s, profile, "TITLEMARK", &id, &f.err));
    for (int i = 0; i < 200; i++)
        message = fixture_message(s, id, HISTORY_ASSISTANT, "MESSAGEMARK and more");
    assert_ok(&f, message_rate(s, id, message, 1, "REWRITTENMARK", &f.err));
    assert_ok(&f, settings_set(s, "KEYMARK", "SETTINGMARK", 11, &f.err));
    assert_ok(&f, input_history_add(s, profile, "INPUTMARK", &f.err));
    assert_ok(&f, checkpoint_save(s, profile, 1, NULL, "CHECKMARK", 9, 3, &f.err));
    check_absent(words, n);
    /* the adapter's numbers, too */
    assert_int_equal(fixture_find_bytes(&f, blob.data + blob.len - 64, 32), 0);
    char *copy = path_join(f.home, "copy");
    assert_ok(&f, backup_write(f.store, copy, false, &f.err));
    check_absent(words, n);
    unlink(copy);
    /* the search does find what is there in the plain */
    assert_true(fixture_find_bytes(&f, "mira", 4) > 0);
    assert_ok(&f, message_remove(s, id, message, REMOVE_ALONE, &f.err));
    assert_ok(&f, conversation_remove(s, id, &f.err));
    assert_ok(&f, profile_remove(s, profile, &f.err));
    check_absent(words, n);
    session_unref(s);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
    fixture_reopen(&f);
    check_absent(words, n);
    free(copy);
    buf_free(&blob);
}

/* Deleted rows are overwritten: not even their sealed form stays in the folder. */
static void test_deleting_overwrites(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0, doomed = 0;
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    for (int i = 0; i < 20; i++) {
        int64_t m = fixture_message(s, id, HISTORY_USER, "some message to be deleted or not");
        if (i == 10) doomed = m;
    }
    sqlite3 *raw = NULL;
    sqlite3_stmt *statement = NULL;
    unsigned char body[40];
    assert_int_equal(sqlite3_open(store_path(f.store), &raw), SQLITE_OK);
    sqlite3_prepare_v2(raw, "SELECT body FROM message WHERE id = ?", -1, &statement, NULL);
    sqlite3_bind_int64(statement, 1, doomed);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    memcpy(body, (const char *)sqlite3_column_blob(statement, 0) + 17, sizeof body);
    sqlite3_finalize(statement);
    sqlite3_close(raw);
    assert_true(fixture_find_bytes(&f, body, sizeof body) > 0);
    assert_ok(&f, message_remove(s, id, doomed, REMOVE_ALONE, &f.err));
    assert_int_equal(fixture_find_bytes(&f, body, sizeof body), 0);
    session_unref(s);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

/* --- a full disk ------------------------------------------------------------------------------ */

static void test_full_disk(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    size_t saved = 0;
    char big[20000];
    struct rlimit old, small;
    struct stat info;
    memset(big, 'b', sizeof big);
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    assert_int_equal(stat(store_path(f.store), &info), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = (rlim_t)info.st_size + 300000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pf_status status = PF_OK;
    for (int i = 0; i < 200 && status == PF_OK; i++) {
        history_message m = {.role = HISTORY_USER, .text = big, .len = sizeof big};
        status = message_append(s, id, &m, NULL, &f.err);
        saved += status == PF_OK;
    }
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, PF_FAILED);
    assert_true(saved > 0 && saved < 200);
    /* everything that was saved is there, and saving goes on when there is room again */
    conversation c;
    assert_ok(&f, conversation_load(s, id, &c, &f.err));
    assert_int_equal(c.n, saved);
    conversation_free(&c);
    fixture_message(s, id, HISTORY_USER, "room again");
    session_unref(s);
    fixture_reopen(&f);
    check_talk(f.home, id, saved + 1);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backup_and_restore),  cmocka_unit_test(test_stale_side_files),
        cmocka_unit_test(test_bad_backups),         cmocka_unit_test(test_no_plain_text),
        cmocka_unit_test(test_deleting_overwrites), cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
