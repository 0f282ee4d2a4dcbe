/* Several processes on one store: killed while they save, writing at once, waiting for each other.
 * PREFT_TEST_ROUNDS sets the number of kills (default 100). */
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
#include "profiles/internal.h"
#include "support/store_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static store_fixture f;
/* mira's key, without a store: the children open their own. Stretching in each would take longer
 * than all the rest. */
static vault_key *key;
static unsigned char uid[VAULT_UID_BYTES];
static int64_t user;
static int64_t profile, talk;

/* Opens the store as a process of its own would, after its passphrase was right. */
static session *open_session(void)
{
    store *st = NULL;
    pf_err err;
    if (store_open(f.home, NULL, &st, &err) != PF_OK) die("%s", err.text);
    session *s = session_make(st, user, uid, "mira", 1, key);
    store_close(st);
    return s;
}

/* Ends it but keeps the key. */
static void close_session(session *s)
{
    s->key = NULL;
    session_unref(s);
}

static int setup(void **state)
{
    (void)state;
    buf blob = {0};
    fixture_open(&f);
    session *s = fixture_user(&f, "mira", "correct horse");
    key = s->key;
    user = s->user;
    memcpy(uid, s->uid, sizeof uid);
    fixture_adapter(1, &blob);
    assert_ok(&f, profile_create(s, "p", NULL, &profile, &f.err));
    assert_ok(&f, profile_add_version(s, profile, blob.data, blob.len, NULL, NULL, &f.err));
    assert_ok(&f, conversation_create(s, profile, "t", &talk, &f.err));
    close_session(s);
    store_close(f.store);
    f.store = NULL;
    buf_free(&blob);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&f);
    vault_key_free(key);
    return 0;
}

static void number_text(char out[64], int who, int64_t number)
{
    snprintf(out, 64, "message %lld of process %d", (long long)number, who);
}

static pf_status say(session *s, int64_t conversation_id, int who, int64_t number, pf_err *err)
{
    char text[64];
    number_text(text, who, number);
    history_message m = {.role = HISTORY_USER, .text = text, .len = strlen(text)};
    return message_append(s, conversation_id, &m, NULL, err);
}

/* --- kills ------------------------------------------------------------------------------------ */

/* Saves messages for ever and tells the pipe of each one that is saved; in between other things
 * that take several rows. */
static void save_for_ever(int to, int64_t number)
{
    session *s = open_session();
    buf blob = {0};
    fixture_adapter((unsigned)number, &blob);
    for (int turn = 0;; turn++) {
        if (say(s, talk, 0, number, NULL) != PF_OK) _exit(1);
        if (write(to, &number, sizeof number) != sizeof number) _exit(2);
        number++;
        int64_t version = 0;
        if (turn % 8 == 7 &&
            profile_add_version(s, profile, blob.data, blob.len, NULL, &version, NULL) == PF_OK &&
            version > 4)
            (void)profile_remove_version(s, profile, version - 4, NULL);
    }
}

/* Every message up to `confirmed` is there, in order; at most one more; everything is genuine. */
static int64_t check_after_kill(int64_t confirmed, bool thoroughly)
{
    session *s = open_session();
    conversation c;
    char text[64];
    assert_ok(&f, conversation_load(s, talk, &c, &f.err));
    assert_true((int64_t)c.n == confirmed || (int64_t)c.n == confirmed + 1);
    for (size_t i = 0; i < c.n; i++) {
        number_text(text, 0, (int64_t)i);
        assert_string_equal(c.messages[i].text, text);
    }
    int64_t n = (int64_t)c.n;
    conversation_free(&c);
    if (thoroughly) {
        doctor_report report;
        assert_ok(&f, doctor_examine(f.home, s, &report, &f.err));
        for (size_t i = 0; i < report.n; i++)
            if (!report.items[i].ok) fail_msg("%s", report.items[i].detail);
        doctor_report_free(&report);
    }
    close_session(s);
    return n;
}

static void test_kills(void **state)
{
    (void)state;
    const char *wanted = getenv("PREFT_TEST_ROUNDS");
    const int rounds = wanted ? atoi(wanted) : 100;
    int64_t number = 0, at_once = 0;
    unsigned seed = 1;
    for (int round = 0; round < rounds; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            save_for_ever(ends[1], number);
        }
        close(ends[1]);
        /* from a kill while the store is being opened to one among many messages */
        usleep((useconds_t)(rand_r(&seed) % 12000));
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        int64_t confirmed = number, got = 0;
        while (read(ends[0], &got, sizeof got) == sizeof got)
            confirmed = got + 1;
        close(ends[0]);
        at_once += confirmed == number;
        number = check_after_kill(confirmed, round % 10 == 9);
    }
    assert_true(at_once < rounds); /* most children got somewhere */
    assert_true(number > rounds / 4);
}

/* --- at once ---------------------------------------------------------------------------------- */

static pid_t start_writer(int64_t conversation_id, int who, int64_t n)
{
    pid_t child = fork();
    if (child != 0) return child;
    session *s = open_session();
    pf_err err;
    for (int64_t i = 0; i < n; i++) {
        if (say(s, conversation_id, who, i, &err) == PF_OK) continue;
        fprintf(stderr, "process %d: %s\n", who, err.text);
        _exit(1);
    }
    close_session(s);
    _exit(0);
}

static void expect_success(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* All n messages of each of two processes, each one's in order. */
static void check_both(int64_t conversation_id, int first_who, int n_who, int64_t n)
{
    session *s = open_session();
    conversation c;
    int64_t next[2] = {0};
    assert_ok(&f, conversation_load(s, conversation_id, &c, &f.err));
    assert_int_equal(c.n, n * n_who);
    for (size_t i = 0; i < c.n; i++) {
        char text[64];
        int who = 0;
        while (who < n_who) {
            number_text(text, first_who + who, next[who]);
            if (strcmp(text, c.messages[i].text) == 0) break;
            who++;
        }
        assert_true(who < n_who);
        next[who]++;
    }
    conversation_free(&c);
    close_session(s);
}

static int64_t new_talk(void)
{
    session *s = open_session();
    int64_t id = 0;
    assert_ok(&f, conversation_create(s, 0, "t", &id, &f.err));
    close_session(s);
    return id;
}

static void test_two_writers(void **state)
{
    (void)state;
    int64_t a = new_talk(), b = new_talk(), both = new_talk();
    pid_t first = start_writer(a, 1, 500), second = start_writer(b, 2, 500);
    /* a listing now and then meanwhile */
    for (int i = 0; i < 20; i++) {
        session *s = open_session();
        conversation_list list;
        assert_ok(&f, conversation_list_load(s, -1, 0, 0, &list, &f.err));
        assert_true(list.n >= 3);
        conversation_list_free(&list);
        close_session(s);
    }
    expect_success(first);
    expect_success(second);
    check_both(a, 1, 1, 500);
    check_both(b, 2, 1, 500);
    first = start_writer(both, 1, 500);
    second = start_writer(both, 2, 500);
    expect_success(first);
    expect_success(second);
    check_both(both, 1, 2, 500);
}

static void test_waiting(void **state)
{
    (void)state;
    int64_t id = new_talk();
    int held[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(held), 0);
    assert_int_equal(pipe(go), 0);
    pid_t holder = fork();
    if (holder == 0) { /* holds the lock until a second after it was told to let go */
        session *s = open_session();
        tx t;
        if (tx_begin(s, TX_WRITE, &t, NULL) != PF_OK) _exit(1);
        if (write(held[1], "x", 1) != 1 || read(go[0], &byte, 1) != 1) _exit(2);
        sleep(1);
        tx_end(&t, PF_OK, NULL);
        _exit(0);
    }
    assert_int_equal(read(held[0], &byte, 1), 1);
    session *s = open_session();
    conversation_list list;
    assert_ok(&f, conversation_list_load(s, -1, 0, 0, &list, &f.err)); /* readers don't wait */
    conversation_list_free(&list);
    int64_t start = clock_monotonic_ns();
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_ok(&f, say(s, id, 1, 0, &f.err)); /* writers do, without an error */
    assert_true(clock_monotonic_ns() - start >= 1000000000);
    close_session(s);
    expect_success(holder);
    for (int i = 0; i < 2; i++) {
        close(held[i]);
        close(go[i]);
    }
}

/* Four processes make the same new store at the same moment. */
static void test_made_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        char *home = xasprintf("%s/new-%d", f.folder, round);
        pid_t children[4];
        for (int i = 0; i < 4; i++) {
            children[i] = fork();
            if (children[i] != 0) continue;
            store *st = NULL;
            pf_err err;
            if (store_open(home, NULL, &st, &err) == PF_OK) _exit(0);
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
        for (int i = 0; i < 4; i++)
            expect_success(children[i]);
        free(home);
    }
}

/* A process that has the store open keeps restore away. */
static void test_restore_waits_for_nobody(void **state)
{
    (void)state;
    int ends[2], back[2];
    char byte = 0;
    char *copy = path_join(f.folder, "backup.db"), *kept = NULL;
    session *s = open_session();
    assert_ok(&f, backup_write(s->store, copy, false, &f.err));
    close_session(s);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(back), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)open_session();
        if (write(ends[1], "x", 1) != 1) _exit(1);
        _exit(read(back[0], &byte, 1) != 1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_status(&f, backup_restore(f.home, copy, &kept, &f.err), PF_BUSY);
    assert_text(f.err.text, "in use");
    assert_int_equal(write(back[1], "x", 1), 1);
    expect_success(child);
    assert_ok(&f, backup_restore(f.home, copy, &kept, &f.err));
    free(kept);
    free(copy);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(back[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_made_at_once),
        cmocka_unit_test(test_restore_waits_for_nobody),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
