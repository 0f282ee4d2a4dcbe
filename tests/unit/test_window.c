/* The whole interface on a screen in memory, with a real store and engine: random keys, and what a
 * person must not lose. */
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
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

#define ROUNDS 4000

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
    engine_close(shared);
    model_close(tiny);
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

/* --- random keys ------------------------------------------------------------------------------ */

static app *window;

static void press(key_code key)
{
    app_input(window, &(input_event){.kind = INPUT_KEY, .key = key});
}

static void type(const char *text, input_kind kind)
{
    app_input(window, &(input_event){.kind = kind, .text = text, .len = strlen(text)});
}

static void settle(void)
{
    while (app_busy(window)) {
        struct pollfd fds[] = {{.fd = engine_client_fd(window->client), .events = POLLIN},
                               {.fd = jobs_fd(window->jobs), .events = POLLIN}};
        poll(fds, 2, 20);
        app_events(window);
        app_tick(window);
    }
}

/* Cells add up in every row, and the cursor is inside the pane that has the keys. */
static void check_picture(void)
{
    const grid *g = &window->grid;
    for (int y = 0; y < g->rows; y++) {
        int sum = 0;
        for (int x = 0; x < g->cols; x++)
            sum += grid_at(g, x, y)->width;
        assert_int_equal(sum, g->cols);
    }
    if (!g->cursor_shown) return;
    rect r = arrange_place(window, window->focus);
    if (window->overlay) r = (rect){0, 0, g->cols, g->rows};
    assert_in_range(g->cursor_x, r.x, r.x + r.w - 1);
    assert_in_range(g->cursor_y, r.y, r.y + r.h - 1);
}

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static void random_event(void)
{
    static const char *const texts[] = {
        "a",       "mira", " ",           "漢字",          "\U0001F469\u200D\U0001F33E",
        "e\u0301", "\t",   "\033[2J\x07", "line\nline\r\n"};
    static const int sizes[][2] = {{80, 24}, {20, 6}, {1, 1}, {300, 100}, {40, 10}, {19, 30}};
    switch (draw(10)) {
    case 0:
    case 1:
    case 2:
        type(texts[draw(sizeof texts / sizeof *texts)], draw(3) ? INPUT_TEXT : INPUT_PASTE);
        break;
    case 3: {
        const int *size = sizes[draw(sizeof sizes / sizeof *sizes)];
        if (draw(4) == 0) app_resize(window, size[0], size[1]);
        break;
    }
    case 4:
        app_input(window, &(input_event){.kind = (input_kind)(INPUT_WHEEL_UP + draw(3)),
                                         .x = (int)draw(120),
                                         .y = (int)draw(40)});
        break;
    default: {
        action a = (action)(1 + draw(ACTION_COUNT - 1));
        buf name = {0};
        key_code key;
        action_key(a, &name);
        if (name.len == 0 || draw(8) == 0) { /* by its name, as the palette does */
            app_do(window, a, "");
        } else {
            assert_true(key_parse(buf_str(&name), &key));
            press(key);
        }
        buf_free(&name);
    }
    }
}

static void random_keys(void **state)
{
    (void)state;
    app_options options = {.store = disk.store, .engine = shared};
    seed = 42;
    assert_ok(&disk, app_open(&options, 80, 24, &window, &disk.err));
    window->scripted = true;
    window->answer_limit = 3;
    for (int i = 0; i < ROUNDS; i++) {
        random_event();
        app_events(window);
        /* Now and then someone really signs in, so that conversations are in it too. */
        const char *at = pane_top(window->panes[window->focus])->ops->name;
        if (strcmp(at, "passphrase") == 0 && draw(12) == 0) {
            press(KEY_CTRL | 'u');
            type(draw(2) ? "pw-mira" : "pw-jonas", INPUT_TEXT);
            press(KEY_ENTER);
            settle();
        }
        if (i % 8 == 0) {
            app_draw(window);
            check_picture();
        }
        window->quit = window->suspend = false;
    }
    app_close(window);
}

/* --- pastes without marks --------------------------------------------------------------------- */

static void bursts(void **state)
{
    (void)state;
    static const char *const users[] = {"mira"};
    app_options options = {.store = disk.store, .engine = shared, .users = users, .n_users = 1};
    assert_ok(&disk, app_open(&options, 80, 24, &window, &disk.err));
    type("pw-mira", INPUT_TEXT);
    press(KEY_ENTER);
    settle();
    /* Twelve lines within a moment: one draft. */
    for (int i = 0; i < 12; i++) {
        type("x", INPUT_TEXT);
        press(KEY_ENTER);
    }
    poll(NULL, 0, 60);
    app_tick(window);
    app_draw(window);
    buf screen = {0};
    grid_write_text(&window->grid, &screen);
    assert_null(strstr(buf_str(&screen), "You"));
    buf_clear(&screen);
    /* A single Enter after a pause sends. */
    press(KEY_ENTER);
    poll(NULL, 0, 60);
    app_tick(window);
    app_draw(window);
    grid_write_text(&window->grid, &screen);
    assert_non_null(strstr(buf_str(&screen), "You"));
    buf_free(&screen);
    app_close(window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_and_loaded), cmocka_unit_test(closed_meanwhile),
        cmocka_unit_test(refused),          cmocka_unit_test(random_keys),
        cmocka_unit_test(bursts),
    };
    return cmocka_run_group_tests_name("window", tests, setup, teardown);
}
