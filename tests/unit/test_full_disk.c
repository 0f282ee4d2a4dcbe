/* A disk that is full at any moment: what was there before stays whole and opens as before, nothing
 * half-made is left behind, and the message says what happened and what to do. The disk is a limit
 * on the size of files, which moves up until all fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "profiles/backup.h"
#include "profiles/internal.h"
#include "profiles/secret.h"
#include "support/store_fixture.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#define OLD            "correct horse"
#define NEW            "battery staple"
#define NEW_PASSPHRASE "new passphrase"
#define TEXT           "what was said before"
#define STEP           9000 /* bytes; a page has 4096 */
#define ROOM           (1u << 20)

static store_fixture f;
static int64_t talk;
static struct rlimit unlimited;

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    session *s = fixture_user(&f, "mira", OLD);
    assert_ok(&f, conversation_create(s, 0, "t", &talk, &f.err));
    fixture_message(s, talk, HISTORY_USER, TEXT);
    session_unref(s);
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    return getrlimit(RLIMIT_FSIZE, &unlimited);
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&f);
    return 0;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit = unlimited;
    if (bytes) limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static size_t count_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.' || strstr(entry->d_name, ".tmp") != NULL;
    if (dir) closedir(dir);
    return n;
}

static bool opens(const char *passphrase, session **out)
{
    *out = NULL;
    pf_status status = fixture_sign_in(&f, "mira", passphrase, out);
    if (status != PF_OK && status != PF_DENIED) fail_msg("%s", f.err.text);
    return status == PF_OK;
}

/* All that was there is, in a store that is opened anew, under the old passphrase alone. */
static void check_unchanged(const char *what)
{
    session *s = NULL;
    conversation c;
    fixture_reopen(&f);
    if (strcmp(what, NEW_PASSPHRASE) == 0 && opens(NEW, &s))
        fail_msg("%s: the new passphrase opens it", what);
    if (!opens(OLD, &s)) fail_msg("%s: the old passphrase does not open it", what);
    assert_ok(&f, conversation_load(s, talk, &c, &f.err));
    assert_int_equal(c.n, 1);
    assert_string_equal(c.messages[0].text, TEXT);
    conversation_free(&c);
    session_unref(s);
}

/* --- what is tried ---------------------------------------------------------------------------- */

static pf_status change_passphrase(session *s)
{
    secret *from = secret_from(OLD, strlen(OLD)), *to = secret_from(NEW, strlen(NEW));
    pf_status status = user_change_passphrase(s, from, to, &f.err);
    secret_free(from);
    secret_free(to);
    return status;
}

static pf_status make_recovery_key(session *s)
{
    secret *pass = secret_from(OLD, strlen(OLD)), *key = NULL;
    pf_status status = user_make_recovery_key(s, pass, &key, &f.err);
    secret_free(pass);
    secret_free(key);
    return status;
}

static pf_status import_profile(session *s)
{
    buf blob = {0};
    int64_t id = 0;
    profile_info info;
    fixture_adapter(1, &blob);
    pf_status status = profile_create_with(s, "imported", blob.data, blob.len, NULL, &id, &f.err);
    pf_status there = profile_find(s, "imported", &info, NULL);
    assert_int_equal(there, status == PF_OK ? PF_OK : PF_NOT_FOUND);
    if (there == PF_OK) assert_int_equal(info.n_versions, 1);
    profile_info_free(&info);
    buf_free(&blob);
    return status;
}

/* As the end of a training does. */
static pf_status add_version(session *s)
{
    buf blob = {0};
    profile_info info;
    if (profile_find(s, "imported", &info, NULL) != PF_OK) fail_msg("no profile");
    const int64_t before = info.n_versions;
    fixture_adapter(2, &blob);
    pf_status status = profile_add_version(s, info.id, blob.data, blob.len, NULL, NULL, &f.err);
    profile_info_free(&info);
    pf_err why = f.err;
    assert_ok(&f, profile_find(s, "imported", &info, NULL));
    assert_int_equal(info.n_versions, before + (status == PF_OK));
    profile_info_free(&info);
    buf_free(&blob);
    f.err = why;
    return status;
}

static pf_status import_history(session *s)
{
    static const char line[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"},"
                               "{\"role\":\"assistant\",\"content\":\"two\"}]}\n";
    buf all = {0};
    conversation_list list;
    for (int i = 0; i < 4; i++)
        buf_puts(&all, line);
    pf_status status = history_import_jsonl(s, 0, all.data, all.len, "chats", NULL, &f.err);
    pf_err why = f.err;
    assert_ok(&f, conversation_list_load(s, -1, 0, 0, &list, &f.err));
    assert_int_equal(list.n, status == PF_OK ? 5 : 1);
    conversation_list_free(&list);
    buf_free(&all);
    f.err = why;
    return status;
}

/* In one step: the change of the passphrase comes last, as it changes what opens the store. */
static void test_saving(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        pf_status (*act)(session *s);
    } acts[] = {{"recovery key", make_recovery_key},
                {"import of conversations", import_history},
                {"import of a profile", import_profile},
                {"new version", add_version},
                {NEW_PASSPHRASE, change_passphrase}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        pf_status status = PF_FAILED;
        int refused = 0;
        for (rlim_t bytes = 1; status != PF_OK; bytes += STEP) {
            session *s = NULL;
            fixture_reopen(&f);
            assert_true(opens(OLD, &s));
            limit_files(bytes);
            status = acts[i].act(s);
            limit_files(0);
            session_unref(s);
            if (status == PF_OK) break;
            refused++;
            if (status != PF_FAILED || !strstr(f.err.text, "the disk is full") ||
                !strstr(f.err.text, "make room"))
                fail_msg("%s: %s", acts[i].name, f.err.text);
            check_unchanged(acts[i].name);
            if (bytes > ROOM) fail_msg("%s: never fits", acts[i].name);
        }
        assert_true(refused > 0);
    }
    session *s = NULL;
    fixture_reopen(&f);
    assert_false(opens(OLD, &s));
    assert_true(opens(NEW, &s));
    session_unref(s);
}

/* --- copies ----------------------------------------------------------------------------------- */

static void test_backup(void **state)
{
    (void)state;
    char *copy = xasprintf("%s/backup.db", f.folder), *kept = NULL;
    assert_ok(&f, backup_write(f.store, copy, false, &f.err));
    const size_t files = count_files(f.folder);
    pf_status status = PF_FAILED;
    int refused = 0;
    for (rlim_t bytes = 1; status != PF_OK; bytes += 5 * STEP) {
        limit_files(bytes);
        status = backup_write(f.store, copy, true, &f.err);
        limit_files(0);
        if (status == PF_OK) break;
        refused++;
        assert_text(f.err.text, "no copy was made");
        assert_text(f.err.text, "the disk is full");
        assert_int_equal(count_files(f.folder), files);
        assert_true(bytes < ROOM);
    }
    assert_true(refused > 0);
    /* the same for what brings it back */
    store_close(f.store);
    f.store = NULL;
    const size_t home_files = count_files(f.home);
    refused = 0;
    status = PF_FAILED;
    for (rlim_t bytes = 1; status != PF_OK; bytes += 5 * STEP) {
        limit_files(bytes);
        status = backup_restore(f.home, copy, &kept, &f.err);
        limit_files(0);
        if (status == PF_OK) break;
        refused++;
        assert_text(f.err.text, "nothing was changed");
        assert_text(f.err.text, "the disk is full");
        assert_int_equal(count_files(f.home), home_files);
        check_unchanged("restore");
        store_close(f.store);
        f.store = NULL;
        assert_true(bytes < ROOM);
    }
    assert_true(refused > 0);
    check_unchanged("restore");
    free(kept);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_saving, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backup, setup, teardown),
    };
    return cmocka_run_group_tests_name("full_disk", tests, NULL, NULL);
}
