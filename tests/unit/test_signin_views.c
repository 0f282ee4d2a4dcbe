/* Signing in on the screen: a wrong passphrase is told apart from damaged data, the recovery key
 * works where the passphrase is lost, and nothing of it stays on the screen. */
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/window_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static store_fixture disk;
static model *tiny;
static engine *shared;
static app *window;
static char *key; /* mira's recovery key, as it was shown */

static int setup(void **state)
{
    (void)state;
    session *s = NULL;
    secret *pass = secret_from("pw-mira", 7), *recovery = NULL;
    fixture_open(&disk);
    assert_ok(&disk, user_create(disk.store, "mira", pass, &s, &recovery, &disk.err));
    key = strdup(recovery->data);
    session_unref(s);
    secret_free(pass);
    secret_free(recovery);
    session_unref(fixture_user(&disk, "jonas", "pw-jonas"));
    tiny = fixture_model(TINY_MODEL);
    shared = fixture_engine(tiny, &(engine_options){.threads = 1});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(key);
    fixture_engine_close(shared);
    fixture_model_close(tiny);
    fixture_close(&disk);
    return 0;
}

static void open_for(const char *user)
{
    static const char *users[1];
    users[0] = user;
    app_options options = {.store = disk.store, .engine = shared, .users = users, .n_users = 1};
    assert_ok(&disk, app_open(&options, 80, 24, &window, &disk.err));
    window->scripted = true;
}

static void enter(const char *text)
{
    window_type(window, text);
    window_press(window, KEY_ENTER);
    window_settle(window);
}

/* `preft chat --user`: a name in other letters is the person's, another one gets the list. */
static void named_at_the_start(void **state)
{
    (void)state;
    open_for("MIRA");
    window_expect(window, "Passphrase");
    app_close(window);
    open_for("ghost");
    window_expect(window, "(someone new)");
    window_expect(window, "There is no user ghost yet.");
    window_reject(window, "Passphrase");
    app_close(window);
}

static void lost_passphrase(void **state)
{
    (void)state;
    open_for("mira");
    window_reject(window, "passphrase lost"); /* offered where it helps */
    enter("wrong");
    window_expect(window, "mira isn't signed in: the passphrase is wrong");
    window_expect(window, "F7  passphrase lost");
    window_press(window, KEY_F7);
    window_expect(window, "With the recovery key");
    /* mistyped: one character is another one */
    char *typed = strdup(key);
    typed[0] = typed[0] == '2' ? '3' : '2';
    enter(typed);
    window_expect(window, typed); /* what is copied from paper is shown while it is typed */
    enter("new words");
    enter("other words");
    window_expect(window, "The two passphrases differ");
    enter("new words");
    window_expect(window, "mistyped");
    window_reject(window, "new words");
    /* mended, it opens the account and sets the passphrase */
    window_press(window, KEY_CTRL | 'u');
    enter(key);
    window_press(window, KEY_ENTER);
    window_press(window, KEY_ENTER);
    window_settle(window);
    window_expect(window, "mira · no profile");
    window_reject(window, key);
    free(typed);
    window_press(window, KEY_CTRL | 'l');
    window_expect(window, "locked · mira");
    window_press(window, KEY_ENTER);
    enter("pw-mira");
    window_expect(window, "the passphrase is wrong");
    enter("new words");
    window_expect(window, "mira · no profile");
    app_close(window);
}

/* While the passphrase is stretched, on a thread of its own, the mark moves: a picture is asked for
 * as often as that, with nobody typing. */
static void moving_mark(void **state)
{
    (void)state;
    open_for("jonas");
    assert_int_equal(app_timeout(window), 0);
    window_reject(window, "one moment");
    assert_int_equal(app_timeout(window), -1); /* nothing moves */
    window_type(window, "pw-jonas");
    window_press(window, KEY_ENTER);
    window_expect(window, "⠿ one moment …");
    assert_false(window->dirty);
    assert_in_range(app_timeout(window), 0, 150);
    while (!window->dirty) { /* the job ends for the window when its end is looked for */
        poll(NULL, 0, 10);
        app_tick(window);
    }
    window_settle(window);
    window_expect(window, "jonas · no profile");
    window_reject(window, "one moment");
    app_close(window);
}

static void no_recovery_key(void **state)
{
    (void)state;
    open_for("jonas");
    enter("wrong");
    window_reject(window, "passphrase lost");
    window_press(window, KEY_F7);
    window_expect(window, "No recovery key was made for jonas.");
    app_close(window);
}

static void damaged_record(void **state)
{
    (void)state;
    fixture_sql(&disk, "UPDATE user_key SET wrapped = zeroblob(72) WHERE kdf = 1 AND owner = "
                       "(SELECT id FROM user WHERE name = 'jonas')");
    open_for("jonas");
    enter("pw-jonas");
    window_reject(window, "the passphrase is wrong");
    window_expect(window, "damaged");
    app_close(window);
}

/* The account of another process: removed while its pane is locked. */
static void removed_meanwhile(void **state)
{
    (void)state;
    session_unref(fixture_user(&disk, "petra", "pw-petra"));
    open_for("petra");
    enter("pw-petra");
    window_press(window, KEY_CTRL | 'l');
    assert_ok(&disk, user_remove(disk.store, "petra", &disk.err));
    window_press(window, KEY_ENTER);
    enter("pw-petra");
    window_expect(window, "petra");
    window_expect(window, "there is no user");
    window_press(window, KEY_ESC);
    window_press(window, KEY_ESC);
    window_expect(window, "Who is here?");
    window_reject(window, "petra");
    app_close(window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_at_the_start), cmocka_unit_test(lost_passphrase),
        cmocka_unit_test(moving_mark),        cmocka_unit_test(no_recovery_key),
        cmocka_unit_test(damaged_record),     cmocka_unit_test(removed_meanwhile),
    };
    return cmocka_run_group_tests_name("signin_views", tests, setup, teardown);
}
