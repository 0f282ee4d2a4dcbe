/* Users: names, passphrases, recovery, sessions, removal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/name.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "support/cpu_time.h"
#include "support/store_fixture.h"

#include <pthread.h>

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

static secret *text(const char *s)
{
    return secret_from(s, strlen(s));
}

/* --- names ------------------------------------------------------------------------------------ */

static void test_refused_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"", "empty"},
        {"eva ", "blank"},
        {" eva", "blank"},
        {"e  va", "two blanks"},
        {"ev\xe2\x80\x8b"
         "a",
         "U+200B"},                /* zero width space */
        {"\xd0\xb5va", "scripts"}, /* Cyrillic e */
        {"ev\xc2\xa0"
         "a",
         "U+00A0"}, /* no-break space */
        {"a\nb", "U+000A"},
        {"a/b", "slash"},
        {"../x", "slash"},
        {".hidden", "begins"},
        {"-rf", "begins"},
        {"'); DROP TABLE x;--", "U+0029"},
        {"a\xe2\x80\xae"
         "b",
         "U+202E"},                  /* right-to-left override */
        {"a\xef\xb8\x8f", "U+FE0F"}, /* variation selector */
        {"\xe3\x85\xa4", "U+3164"},  /* Hangul filler */
        {"\xcc\x81"
         "a",
         "combining"},
        {"\xff", "UTF-8"},
        {"a\xee\x80\x80", "U+E000"}, /* private use */
    };
    char *composed = NULL, *key = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(&f, name_check(NAME_USER, cases[i].name, &composed, &key, &f.err), PF_USAGE);
        assert_text(f.err.text, cases[i].says);
    }
    char long_name[301];
    memset(long_name, 'a', 300);
    long_name[300] = '\0';
    assert_status(&f, name_check(NAME_USER, long_name, &composed, &key, &f.err), PF_USAGE);
    long_name[65] = '\0';
    assert_status(&f, name_check(NAME_USER, long_name, &composed, &key, &f.err), PF_USAGE);
    long_name[64] = '\0';
    assert_ok(&f, name_check(NAME_USER, long_name, &composed, &key, &f.err));
    free(composed);
    free(key);
    static const char *const reserved[] = {"base", "None", "BASE",
                                           ("n\xd0\xbe"
                                            "ne")};
    for (size_t i = 0; i < 4; i++)
        assert_status(&f, name_check(NAME_PROFILE, reserved[i], &composed, &key, &f.err), PF_USAGE);
}

static void test_names_that_are_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        {"\xc3\xa9", "e\xcc\x81", true},
        {"Eva", "eva", true},
        {"STRASSE",
         "stra\xc3\x9f"
         "e",
         true},
        {"\xd1\x81\xd0\xbe\xd1\x80", "cop", true},             /* Cyrillic letters alone */
        {"\xce\x9f\xce\x9a", "ok", true},                      /* Greek capitals */
        {"\xef\xbd\x85\xef\xbd\x96\xef\xbd\x81", "eva", true}, /* full width */
        {"eva", "eve", false},
        {"A|B", "A |B", false},
        {"\xe6\x9d\x8e Anna", "\xe6\x9d\x8e anna", true},
        {"o'neil", "oneil", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *a = name_key(cases[i].a), *b = name_key(cases[i].b);
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal(strcmp(a, b) == 0, cases[i].same);
        free(a);
        free(b);
    }
}

static void test_taken_names(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "Eva", "correct horse");
    secret *p = text("correct horse");
    session *other = NULL;
    static const char *const taken[] = {"eva", "EVA", "Ev\xc3\xa1", "ev\xd0\xb0"};
    assert_status(&f, user_create(f.store, taken[0], p, &other, NULL, &f.err), PF_USAGE);
    assert_text(f.err.text, "looks, the same");
    assert_status(&f, user_create(f.store, taken[1], p, &other, NULL, &f.err), PF_USAGE);
    assert_ok(&f, user_create(f.store, taken[2], p, &other, NULL, &f.err)); /* an accent counts */
    session_unref(other);
    /* sign-in finds the name in any of its forms */
    assert_ok(&f, user_sign_in(f.store, "EVA", p, &other, &f.err));
    assert_string_equal(session_user_name(other), "Eva");
    session_unref(other);
    user_list list;
    assert_ok(&f, user_list_load(f.store, &list, &f.err));
    assert_int_equal(list.n, 2);
    assert_string_equal(list.items[0].name, "Eva");
    user_list_free(&list);
    assert_ok(&f, user_remove(f.store, "eva", &f.err));
    assert_ok(&f, user_remove(f.store, "Ev\xc3\xa1", &f.err));
    secret_free(p);
    session_unref(s);
}

/* --- passphrases ------------------------------------------------------------------------------ */

static void test_sign_in(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse"), *again = NULL;
    assert_status(&f, fixture_sign_in(&f, "mira", "Correct horse", &again), PF_DENIED);
    assert_text(f.err.text, "wrong");
    assert_status(&f, fixture_sign_in(&f, "nobody", "correct horse", &again), PF_NOT_FOUND);
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &again));
    assert_true(session_engine_user(s) != 0);
    assert_true(session_engine_user(s) == session_engine_user(again));
    session_unref(again);
    session_unref(s);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static size_t wrapped_bytes(const char *name, unsigned char out[72])
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *raw = NULL;
    assert_int_equal(sqlite3_open(store_path(f.store), &raw), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(raw,
                                        "SELECT wrapped FROM user_key JOIN user ON id = owner "
                                        "WHERE name = ? AND kdf = 1",
                                        -1, &statement, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    size_t len = (size_t)sqlite3_column_bytes(statement, 0);
    memcpy(out, sqlite3_column_blob(statement, 0), len);
    sqlite3_finalize(statement);
    sqlite3_close(raw);
    return len;
}

static void test_change_passphrase(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse"), *elsewhere = NULL, *again = NULL;
    int64_t id = 0;
    unsigned char old[3][72];
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    for (int i = 0; i < 50; i++)
        fixture_message(s, id, HISTORY_USER, "a message");
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &elsewhere));
    char longest[SECRET_MAX + 1];
    memset(longest, 'z', SECRET_MAX);
    longest[SECRET_MAX] = '\0';
    const char *const line[] = {"correct horse", "battery staple", "battery staple", longest};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wrapped_bytes("mira", old[i]), 72);
        secret *from = text(line[i]), *to = text(line[i + 1]), *wrong = text("something else");
        assert_status(&f, user_change_passphrase(s, wrong, to, &f.err), PF_DENIED);
        assert_ok(&f, user_change_passphrase(s, from, to, &f.err));
        secret_free(from);
        secret_free(to);
        secret_free(wrong);
    }
    assert_int_equal(session_check(s), SESSION_OPEN); /* its own doing */
    assert_int_equal(session_check(elsewhere), SESSION_PASSPHRASE_CHANGED);
    assert_int_equal(session_check(elsewhere), SESSION_OPEN); /* told once */
    fixture_message(elsewhere, id, HISTORY_USER, "goes on");
    assert_status(&f, fixture_sign_in(&f, "mira", "correct horse", &again), PF_DENIED);
    assert_status(&f, fixture_sign_in(&f, "mira", "battery staple", &again), PF_DENIED);
    assert_ok(&f, fixture_sign_in(&f, "mira", longest, &again));
    conversation c;
    assert_ok(&f, conversation_load(again, id, &c, &f.err));
    assert_int_equal(c.n, 51);
    conversation_free(&c);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_find_bytes(&f, old[i] + 24, 48), 0);
    secret *p = text(longest), *empty = text("");
    assert_status(&f, user_change_passphrase(s, p, empty, &f.err), PF_USAGE);
    secret_free(p);
    secret_free(empty);
    session_unref(s);
    session_unref(elsewhere);
    session_unref(again);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static void test_recovery(void **state)
{
    (void)state;
    secret *p = text("correct horse"), *new = text("battery staple"), *key = NULL, *newer = NULL;
    session *s = NULL, *again = NULL;
    assert_ok(&f, user_create(f.store, "mira", p, &s, &key, &f.err));
    int64_t id = 0;
    assert_ok(&f, conversation_create(s, 0, "kept", &id, &f.err));
    assert_status(&f, user_recover(f.store, "mira", p, new, &again, &f.err), PF_USAGE);
    assert_ok(&f, user_recover(f.store, "mira", key, new, &again, &f.err));
    conversation_info info;
    assert_ok(&f, conversation_get(again, id, &info, &f.err));
    assert_string_equal(info.title, "kept");
    conversation_info_free(&info);
    session_unref(again);
    assert_status(&f, user_sign_in(f.store, "mira", p, &again, &f.err), PF_DENIED);
    assert_ok(&f, user_sign_in(f.store, "mira", new, &again, &f.err));
    /* a new recovery key voids the old one */
    assert_status(&f, user_make_recovery_key(again, p, &newer, &f.err), PF_DENIED);
    assert_ok(&f, user_make_recovery_key(again, new, &newer, &f.err));
    session_unref(again);
    assert_status(&f, user_recover(f.store, "mira", key, p, &again, &f.err), PF_DENIED);
    /* the way on when the passphrase's record is destroyed */
    fixture_sql(&f, "UPDATE user_key SET wrapped = zeroblob(72) WHERE kdf = 1");
    assert_status(&f, user_sign_in(f.store, "mira", new, &again, &f.err), PF_DAMAGED);
    assert_ok(&f, user_recover(f.store, "mira", newer, p, &again, &f.err));
    assert_ok(&f, user_drop_recovery_key(again, &f.err));
    session_unref(again);
    assert_status(&f, user_recover(f.store, "mira", newer, p, &again, &f.err), PF_NOT_FOUND);
    assert_ok(&f, user_sign_in(f.store, "mira", p, &again, &f.err));
    session_unref(again);
    session_unref(s);
    secret_free(p);
    secret_free(new);
    secret_free(key);
    secret_free(newer);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static void test_bad_key_records(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    session_unref(s);
    static const char *const changes[] = {
        "UPDATE user_key SET mem = 1099511627776",
        "UPDATE user_key SET mem = 0",
        "UPDATE user_key SET ops = 0",
        "UPDATE user_key SET ops = 1",
        "UPDATE user_key SET ops = 2147483648",
        "UPDATE user_key SET salt = zeroblob(16)",
        "UPDATE user_key SET salt = substr(salt, 1, 8)",
        "UPDATE user_key SET salt = zeroblob(100000)",
        "UPDATE user_key SET wrapped = x''",
        "UPDATE user_key SET wrapped = zeroblob(100000)",
        "UPDATE user_key SET checksum = x'00'",
        "UPDATE user_key SET kdf = 99",
        "UPDATE user SET uid = x'00'",
        "UPDATE user SET uid = randomblob(16)",
        "DELETE FROM user_key",
    };
    fixture_sql(&f, "CREATE TABLE spare_key AS SELECT * FROM user_key");
    fixture_sql(&f, "CREATE TABLE spare_user AS SELECT * FROM user");
    int64_t start = cpu_time_ns();
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        fixture_sql(&f, changes[i]);
        assert_status(&f, fixture_sign_in(&f, "mira", "correct horse", &s), PF_DAMAGED);
        assert_text(f.err.text, "mira");
        fixture_sql(&f, "UPDATE user SET uid = (SELECT uid FROM spare_user);"
                        "DELETE FROM user_key; INSERT INTO user_key SELECT * FROM spare_key");
    }
    assert_true(cpu_time_ns() - start < 5000000000);
    fixture_sql(&f, "DROP TABLE spare_key; DROP TABLE spare_user");
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &s));
    session_unref(s);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

/* --- sessions --------------------------------------------------------------------------------- */

static void test_sign_out(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    session_ref(s);
    session_sign_out(s);
    assert_int_equal(session_check(s), SESSION_SIGNED_OUT);
    assert_null(s->key);
    conversation c;
    assert_status(&f, conversation_load(s, id, &c, &f.err), PF_DENIED);
    assert_text(f.err.text, "signed out");
    conversation_free(&c);
    profile_list list;
    assert_status(&f, profile_list_load(s, &list, &f.err), PF_DENIED);
    profile_list_free(&list);
    session_sign_out(s);
    session_unref(s);
    session_unref(s);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static void test_store_outlived(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t id = 0;
    store_close(f.store);
    f.store = NULL;
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    session_unref(s);
    store_options options = fixture_options();
    assert_ok(&f, store_open(f.home, &options, &f.store, &f.err));
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

static void test_remove(void **state)
{
    (void)state;
    session *mira = fixture_user(&f, "mira", "correct horse");
    session *jonas = fixture_user(&f, "jonas", "battery staple"), *again = NULL;
    int64_t profile = 0, id = 0, kept = 0;
    buf blob = {0};
    unsigned char wrapped[72];
    fixture_adapter(1, &blob);
    assert_ok(&f, profile_create(mira, "p", NULL, &profile, &f.err));
    assert_ok(&f, profile_add_version(mira, profile, blob.data, blob.len, NULL, NULL, &f.err));
    assert_ok(&f, conversation_create(mira, profile, "t", &id, &f.err));
    fixture_message(mira, id, HISTORY_USER, "gone");
    assert_ok(&f, conversation_create(jonas, 0, "stays", &kept, &f.err));
    wrapped_bytes("mira", wrapped);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
    assert_status(&f, user_remove(f.store, "mira", &f.err), PF_NOT_FOUND);
    assert_status(&f, fixture_sign_in(&f, "mira", "correct horse", &again), PF_NOT_FOUND);
    assert_int_equal(fixture_find_bytes(&f, wrapped + 24, 48), 0);
    static const char *const tables[] = {"profile", "version", "message", "blob", "chunk"};
    for (size_t i = 0; i < 5; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[i]);
        assert_int_equal(fixture_sql_number(&f, sql), 0);
    }
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM conversation"), 1);
    /* the session that is still open elsewhere */
    assert_int_equal(session_check(mira), SESSION_USER_REMOVED);
    assert_status(&f, conversation_create(mira, 0, "t", &id, &f.err), PF_NOT_FOUND);
    assert_text(f.err.text, "removed");
    /* a new user of that name is another one */
    session *second = fixture_user(&f, "mira", "correct horse");
    assert_true(session_user_id(second) != session_user_id(mira));
    assert_true(session_engine_user(second) != session_engine_user(mira));
    assert_status(&f, conversation_create(mira, 0, "t", &id, &f.err), PF_NOT_FOUND);
    conversation_info info;
    assert_ok(&f, conversation_get(jonas, kept, &info, &f.err));
    conversation_info_free(&info);
    session_unref(second);
    session_unref(mira);
    session_unref(jonas);
    buf_free(&blob);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
    assert_ok(&f, user_remove(f.store, "jonas", &f.err));
}

static void test_other_users_ids(void **state)
{
    (void)state;
    session *mira = fixture_user(&f, "mira", "correct horse");
    session *jonas = fixture_user(&f, "jonas", "battery staple");
    int64_t profile = 0, id = 0, message = 0;
    assert_ok(&f, profile_create(mira, "p", NULL, &profile, &f.err));
    assert_ok(&f, conversation_create(mira, profile, "t", &id, &f.err));
    message = fixture_message(mira, id, HISTORY_USER, "mine");
    conversation c;
    profile_info info;
    history_message m = {.id = message, .role = HISTORY_USER, .text = (char[]){"x"}, .len = 1};
    /* what belongs to someone else looks like what isn't there */
    assert_status(&f, conversation_load(jonas, id, &c, &f.err), PF_NOT_FOUND);
    assert_null(strstr(f.err.text, "mira"));
    conversation_free(&c);
    assert_status(&f, profile_get(jonas, profile, &info, &f.err), PF_NOT_FOUND);
    profile_info_free(&info);
    assert_status(&f, message_append(jonas, id, &m, NULL, &f.err), PF_NOT_FOUND);
    assert_status(&f, message_update(jonas, id, &m, &f.err), PF_NOT_FOUND);
    assert_status(&f, message_remove(jonas, id, message, REMOVE_AND_LATER, &f.err), PF_NOT_FOUND);
    assert_status(&f, message_take_back(jonas, id, message, 0, &f.err), PF_NOT_FOUND);
    int64_t copy = 0;
    assert_status(&f, conversation_copy(jonas, id, message, message, 0, &copy, &f.err),
                  PF_NOT_FOUND);
    assert_int_equal(copy, 0);
    assert_status(&f, conversation_remove(jonas, id, &f.err), PF_NOT_FOUND);
    assert_status(&f, profile_remove(jonas, profile, &f.err), PF_NOT_FOUND);
    assert_status(&f, conversation_create(jonas, profile, "t", &id, &f.err), PF_NOT_FOUND);
    session_unref(mira);
    session_unref(jonas);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
    assert_ok(&f, user_remove(f.store, "jonas", &f.err));
}

/* --- fetching while signing out --------------------------------------------------------------- */

static void *fetch_many(void *ctx)
{
    for (int i = 0; i < 200; i++) {
        buf out = {0};
        pf_err err;
        pf_status status = profile_source_fetch(ctx, &out, &err);
        if (status != PF_OK && status != PF_DENIED) die("%s", err.text);
        if (status == PF_DENIED && out.len != 0) die("content after sign-out");
        wipe_buf(&out);
    }
    profile_source_release(ctx);
    return NULL;
}

static void test_sign_out_while_fetching(void **state)
{
    (void)state;
    session *s = fixture_user(&f, "mira", "correct horse");
    int64_t profile = 0;
    buf blob = {0}, out = {0};
    unsigned char digest[32];
    void *ctx[3];
    pthread_t threads[2];
    fixture_adapter(1, &blob);
    assert_ok(&f, profile_create(s, "p", NULL, &profile, &f.err));
    assert_ok(&f, profile_add_version(s, profile, blob.data, blob.len, NULL, NULL, &f.err));
    for (int i = 0; i < 3; i++)
        assert_ok(&f, profile_source_open(s, profile, 0, &ctx[i], digest, &f.err));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fetch_many, ctx[i]), 0);
    for (int i = 0; i < 20; i++) {
        int64_t id = 0;
        assert_ok(&f, conversation_create(s, profile, "t", &id, &f.err));
    }
    session_sign_out(s);
    assert_status(&f, profile_source_fetch(ctx[2], &out, &f.err), PF_DENIED);
    profile_source_release(ctx[2]);
    session_unref(s);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    buf_free(&blob);
    buf_free(&out);
    assert_ok(&f, user_remove(f.store, "mira", &f.err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_names),     cmocka_unit_test(test_names_that_are_the_same),
        cmocka_unit_test(test_taken_names),       cmocka_unit_test(test_sign_in),
        cmocka_unit_test(test_change_passphrase), cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_bad_key_records),   cmocka_unit_test(test_sign_out),
        cmocka_unit_test(test_store_outlived),    cmocka_unit_test(test_remove),
        cmocka_unit_test(test_other_users_ids),   cmocka_unit_test(test_sign_out_while_fetching),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
