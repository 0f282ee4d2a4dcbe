/* The whole interface on a screen in memory, with a real store and engine: what a person must not
 * lose. (Random events: test_events.) */
#include "base/clock.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/window_fixture.h"
#include "ui/chat.h"
#include "ui/window.h"

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

static int setup(void **state)
{
    (void)state;
    fixture_open(&disk);
    session_unref(fixture_user(&disk, "mira", "pw-mira"));
    session_unref(fixture_user(&disk, "jonas", "pw-jonas"));
    tiny = fixture_model(TINY_MODEL);
    shared = fixture_engine(tiny, &(engine_options){.threads = 1});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_engine_close(shared);
    fixture_model_close(tiny);
    fixture_close(&disk);
    return 0;
}

/* --- conversations ---------------------------------------------------------------------------- */

/* Follows events until the answer has ended; returns how. */
static chat_change finish(chat *c, char **back)
{
    for (;;) {
        engine_event ev;
        pf_err err;
        bool dropped;
        if (!engine_client_next(c->client, &ev)) {
            engine_client_wait(c->client, 1000);
            continue;
        }
        chat_change change = chat_event(c, &ev, &dropped, back, &err);
        engine_event_free(&ev);
        if (change == CHAT_FINISHED || change == CHAT_TAKEN_BACK) return change;
        assert_string_equal(err.text, "");
    }
}

static void ask(chat *c, const char *text, int limit)
{
    char *back = NULL;
    assert_ok(&disk, chat_send(c, text, strlen(text), limit, NULL, &disk.err));
    assert_int_equal(finish(c, &back), CHAT_FINISHED);
}

static void saved_and_loaded(void **state)
{
    (void)state;
    session *s = NULL;
    assert_ok(&disk, fixture_sign_in(&disk, "mira", "pw-mira", &s));
    engine_client *client = engine_client_open(shared);
    chat c, again;
    chat_init(&c, shared, client, s);
    c.greedy = true;
    ask(&c, "first question", 6);
    ask(&c, "second question", 6);
    assert_int_equal(c.n_turns, 4);
    chat_init(&again, shared, client, s);
    again.greedy = true;
    assert_ok(&disk, chat_load(&again, c.conversation, &disk.err));
    assert_int_equal(again.n_turns, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(again.turns[i].len, c.turns[i].len);
        assert_memory_equal(again.turns[i].text, c.turns[i].text, c.turns[i].len);
        assert_int_equal(again.turns[i].n_ids, c.turns[i].n_ids);
    }
    /* It goes on as if it had never been closed. */
    ask(&c, "third", 8);
    assert_ok(&disk, chat_load(&again, c.conversation, &disk.err));
    chat other;
    chat_init(&other, shared, client, s);
    other.greedy = true;
    ask(&other, "first question", 6);
    ask(&other, "second question", 6);
    ask(&other, "third", 8);
    assert_string_equal(other.turns[5].text, again.turns[5].text);
    chat_close(&other);
    chat_close(&again);
    chat_close(&c);
    engine_client_close(client);
    session_unref(s);
}

/* Closing while an answer is written keeps what was there; a question without answer is read
 * together with the next one. */
static void closed_meanwhile(void **state)
{
    (void)state;
    session *s = NULL;
    assert_ok(&disk, fixture_sign_in(&disk, "mira", "pw-mira", &s));
    engine_client *client = engine_client_open(shared);
    chat c;
    chat_init(&c, shared, client, s);
    assert_ok(&disk, chat_send(&c, "a long one", 10, 400, NULL, &disk.err));
    while (c.answer.len < 20) {
        engine_event ev;
        pf_err err;
        bool dropped;
        char *back;
        if (!engine_client_next(client, &ev)) {
            engine_client_wait(client, 1000);
            continue;
        }
        chat_event(&c, &ev, &dropped, &back, &err);
        engine_event_free(&ev);
    }
    int64_t id = c.conversation;
    size_t len = c.answer.len;
    chat_close(&c);
    conversation saved = {0};
    assert_ok(&disk, conversation_load(s, id, &saved, &disk.err));
    assert_int_equal(saved.n, 2);
    assert_int_equal(saved.messages[1].len, len);
    assert_string_equal(saved.messages[1].finish, "cancelled");
    conversation_free(&saved);
    fixture_message(s, id, HISTORY_USER, "never answered");
    chat_init(&c, shared, client, s);
    assert_ok(&disk, chat_load(&c, id, &disk.err));
    ask(&c, "and this?", 4);
    assert_int_equal(c.n_turns, 5);
    chat_close(&c);
    engine_client_close(client);
    session_unref(s);
}

/* A question that can't be asked leaves nothing behind. */
static void refused(void **state)
{
    (void)state;
    session *s = NULL;
    assert_ok(&disk, fixture_sign_in(&disk, "jonas", "pw-jonas", &s));
    engine_client *client = engine_client_open(shared);
    chat c;
    chat_init(&c, shared, client, s);
    size_t len = 100000; /* more than the model's window */
    char *text = malloc(len);
    for (size_t i = 0; i < len; i++)
        text[i] = "ab cd ef"[i % 8];
    assert_int_equal(chat_send(&c, text, len, 0, NULL, &disk.err), PF_REFUSED);
    assert_int_equal(c.n_turns, 0);
    conversation_list list = {0};
    assert_ok(&disk, conversation_list_load(s, -1, 0, 0, &list, &disk.err));
    assert_int_equal(list.n, 0);
    conversation_list_free(&list);
    free(text);
    chat_close(&c);
    engine_client_close(client);
    session_unref(s);
}

static app *window;

/* --- pastes without marks --------------------------------------------------------------------- */

static void bursts(void **state)
{
    (void)state;
    static const char *const users[] = {"mira"};
    app_options options = {.store = disk.store, .engine = shared, .users = users, .n_users = 1};
    assert_ok(&disk, app_open(&options, 80, 24, &window, &disk.err));
    window_type(window, "pw-mira");
    window_press(window, KEY_ENTER);
    window_settle(window);
    window->answer_limit = 3;
    /* Twelve lines that were read at once: one draft, however long each of them takes. */
    window->keys_ms = clock_monotonic_ns() / 1000000;
    for (int i = 0; i < 12; i++) {
        window_type(window, "x");
        window_press(window, KEY_ENTER);
        if (i == 6) poll(NULL, 0, 60);
    }
    window->keys_ms = 0;
    poll(NULL, 0, 60);
    app_tick(window);
    app_draw(window);
    buf screen = {0};
    grid_write_text(&window->grid, &screen);
    assert_null(strstr(buf_str(&screen), "You"));
    buf_clear(&screen);
    /* A single Enter after a pause sends, but not while more waits to be read. */
    window_press(window, KEY_ENTER);
    window->keys_wait = true;
    poll(NULL, 0, 60);
    app_tick(window);
    assert_true(window->enter_held);
    window->keys_wait = false;
    app_tick(window);
    assert_false(window->enter_held);
    app_draw(window);
    grid_write_text(&window->grid, &screen);
    assert_non_null(strstr(buf_str(&screen), "You"));
    buf_free(&screen);
    window_settle(window);
    /* Where the terminal marks pastes an Enter is one, however close the text. */
    window->marked_pastes = true;
    window_type(window, "first one");
    window_press(window, KEY_ENTER);
    window_type(window, "typed ahead");
    window_settle(window);
    window_expect(window, "│ first one ");
    window_expect(window, "> typed ahead");
    app_close(window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(closed_meanwhile),
        cmocka_unit_test(refused),
        cmocka_unit_test(bursts),
    };
    return cmocka_run_group_tests_name("window", tests, setup, teardown);
}
