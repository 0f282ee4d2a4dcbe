/* A store that another program keeps busy: whoever answers keys waits for a moment only, and
 * nothing that was typed is lost. */
#include "base/clock.h"
#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/internal.h"
#include "profiles/settings.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/window_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORDS "words that nobody has sent"

static store_fixture disk;
static model *tiny;
static engine *shared;
static app *window;
static sqlite3 *other; /* the other program's connection */

static int setup(void **state)
{
    (void)state;
    fixture_open(&disk);
    session_unref(fixture_user(&disk, "mira", "pw-mira"));
    tiny = fixture_model(TINY_MODEL);
    shared = fixture_engine(tiny, &(engine_options){.threads = 1});
    assert_int_equal(sqlite3_open_v2(store_path(disk.store), &other, SQLITE_OPEN_READWRITE, NULL),
                     SQLITE_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sqlite3_close(other);
    fixture_engine_close(shared);
    fixture_model_close(tiny);
    fixture_close(&disk);
    return 0;
}

static void keep_busy(bool on)
{
    sqlite3_busy_timeout(other, 5000);
    assert_int_equal(sqlite3_exec(other, on ? "BEGIN IMMEDIATE" : "ROLLBACK", NULL, NULL, NULL),
                     SQLITE_OK);
}

/* --- the store -------------------------------------------------------------------------------- */

typedef struct {
    session *session;
    pf_status status;
} patient;

static void *save_patiently(void *arg)
{
    patient *p = arg;
    p->status = settings_set(p->session, "patient", "x", 1, NULL);
    return NULL;
}

static void test_wait_at_most(void **state)
{
    (void)state;
    session *s = NULL;
    pthread_t thread;
    assert_ok(&disk, fixture_sign_in(&disk, "mira", "pw-mira", &s));
    const int64_t began = clock_monotonic_ns();
    keep_busy(true);
    store_wait_at_most(100);
    assert_status(&disk, settings_set(s, "k", "v", 1, &disk.err), PF_BUSY);
    assert_non_null(strstr(disk.err.text, "another program keeps the store busy"));
    assert_status(&disk, settings_set(s, "k", "v", 1, &disk.err), PF_BUSY); /* at once */
    buf value = {0};
    assert_status(&disk, settings_get(s, "k", &value, &disk.err), PF_NOT_FOUND); /* reading goes */
    /* A thread that waits longer has the store's lock meanwhile: that is no longer wait either. */
    patient p = {.session = s};
    assert_int_equal(pthread_create(&thread, NULL, save_patiently, &p), 0);
    while (!db_is_waiting(&disk.store->main))
        sqlite3_sleep(1);
    store_wait_at_most(100);
    assert_status(&disk, settings_set(s, "k", "v", 1, &disk.err), PF_BUSY);
    store_wait_at_most(-1);
    if (clock_monotonic_ns() - began > (int64_t)STORE_BUSY_MS * 800000) fail_msg("it waited");
    keep_busy(false);
    pthread_join(thread, NULL);
    assert_int_equal(p.status, PF_OK);
    /* In a hurry nobody waits. */
    keep_busy(true);
    store_hurry(disk.store, true);
    assert_status(&disk, settings_set(s, "k", "v", 1, &disk.err), PF_BUSY);
    store_hurry(disk.store, false);
    keep_busy(false);
    assert_ok(&disk, settings_set(s, "k", "v", 1, &disk.err));
    assert_ok(&disk, settings_remove(s, "k", &disk.err));
    buf_free(&value);
    session_unref(s);
}

/* --- the window ------------------------------------------------------------------------------- */

static void sign_in(void)
{
    window_type(window, "pw-mira");
    window_press(window, KEY_ENTER);
    window_settle(window);
}

static void open_window(void)
{
    static const char *users[] = {"mira"};
    app_options options = {.store = disk.store, .engine = shared, .users = users, .n_users = 1};
    assert_ok(&disk, app_open(&options, 100, 30, &window, &disk.err));
    window->scripted = true;
    window->answer_limit = 3;
    sign_in();
    window_expect(window, "mira");
}

static void press(action a)
{
    buf name = {0};
    key_code key;
    action_key(a, &name);
    assert_true(key_parse(buf_str(&name), &key));
    window_press(window, key);
    buf_free(&name);
}

/* What can't be sent stays in the editor, and goes out at the next try. */
static void test_send_again(void **state)
{
    (void)state;
    open_window();
    window_type(window, WORDS);
    keep_busy(true);
    const int64_t began = clock_monotonic_ns();
    window_press(window, KEY_ENTER);
    window_settle(window);
    if (clock_monotonic_ns() - began > (int64_t)STORE_BUSY_MS * 800000) fail_msg("it waited");
    window_expect(window, "another program keeps the store busy; try again");
    window_expect(window, "> " WORDS);
    assert_int_equal(fixture_sql_number(&disk, "SELECT count(*) FROM message"), 0);
    keep_busy(false);
    window_press(window, KEY_ENTER);
    window_settle(window);
    window_reject(window, "> " WORDS);
    assert_int_equal(fixture_sql_number(&disk, "SELECT count(*) FROM message"), 2);
    assert_true(app_close(window));
}

/* Lets time pass until nothing is to be saved later. */
static void wait_kept(void)
{
    while (window->unkept.n) {
        app_tick(window);
        sqlite3_sleep(5);
    }
}

/* A pane that is locked meanwhile hides its text at once and saves it later; the person finds it
 * again, before and after that. */
static void test_locked_meanwhile(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        open_window();
        window_type(window, WORDS);
        session *s = session_ref(window->panes[window->focus]->session);
        keep_busy(true);
        press(ACTION_LOCK);
        window_reject(window, WORDS);
        window_expect(window, "locked");
        assert_int_equal(window->unkept.n, 1);
        assert_int_equal(session_check(s), SESSION_OPEN);
        if (late) {
            keep_busy(false);
            wait_kept();
            assert_int_equal(session_check(s), SESSION_SIGNED_OUT);
        }
        window_press(window, KEY_ENTER);
        sign_in();
        window_expect(window, "> " WORDS);
        assert_int_equal(window->unkept.n, 0);
        assert_int_equal(session_check(s), SESSION_SIGNED_OUT);
        if (!late) keep_busy(false);
        session_unref(s);
        for (size_t i = 0; i < strlen(WORDS); i++)
            window_press(window, KEY_BACKSPACE);
        assert_true(app_close(window));
    }
}

/* Leaving is refused once; what is left behind all the same is said to be lost. */
static void test_leaving(void **state)
{
    (void)state;
    open_window();
    window_type(window, WORDS);
    keep_busy(true);
    press(ACTION_QUIT);
    assert_false(window->quit);
    window_expect(window, "not saved yet");
    window_expect(window, "> " WORDS);
    press(ACTION_QUIT);
    assert_true(window->quit);
    window->quit = false;
    keep_busy(false);
    wait_kept();
    press(ACTION_QUIT);
    assert_true(window->quit);
    assert_true(app_close(window));
    open_window();
    window_expect(window, "> " WORDS);
    assert_true(app_close(window));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_at_most),
        cmocka_unit_test(test_send_again),
        cmocka_unit_test(test_locked_meanwhile),
        cmocka_unit_test(test_leaving),
    };
    return cmocka_run_group_tests_name("busy_store", tests, setup, teardown);
}
