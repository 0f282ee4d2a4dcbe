/* Random events: keys, pastes, the mouse, sizes, bytes that are nothing, at the whole interface
 * with a real store and engine. After each: the picture holds together, no pane draws outside its
 * place, nobody sees what another person wrote. PREFT_TEST_EVENTS sets their number (1500),
 * PREFT_TEST_SEED the first seed (42). */
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/window_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define EVENTS     1500
#define WINDOW     500 /* events until the interface is closed and opened again */
#define EVERY      16  /* the costlier checks, of single panes */
#define MIRAS_WORD "m1ra"
#define JONAS_WORD "j0nas"

static store_fixture disk;
static model *tiny;
static engine *shared;
static app *window;
static key_decoder keys;
static uint32_t seed;
static int64_t now_ms;

static int setup(void **state)
{
    (void)state;
    fixture_open(&disk);
    setenv("HOME", disk.folder, 1); /* conversations may be written to files there */
    setenv("VISUAL", "true", 1);    /* an editor that changes nothing */
    session_unref(fixture_user(&disk, "mira", "pw-mira"));
    session_unref(fixture_user(&disk, "jonas", "pw-jonas"));
    tiny = fixture_model(TINY_MODEL);
    shared = fixture_engine(tiny, &(engine_options){.threads = 1});
    return chdir(disk.folder); /* what is written to a name without a folder goes there too */
}

static int teardown(void **state)
{
    (void)state;
    fixture_engine_close(shared);
    fixture_model_close(tiny);
    int back = chdir("/");
    fixture_close(&disk);
    return back;
}

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* --- events ----------------------------------------------------------------------------------- */

static void take_input(void *ctx, const input_event *ev)
{
    app_input(ctx, ev);
}

static void feed(const char *bytes, size_t len)
{
    keys_feed(&keys, bytes, len, now_ms, take_input, window);
}

static void random_text(void)
{
    static const char *const texts[] = {
        "a",
        "word ",
        " ",
        "漢字",
        "한국어",
        "हिन्दी",
        "مرحبا",
        "\U0001F469\u200D\U0001F33E",
        "\U0001F44D\U0001F3FD",
        "e\u0301",
        "\u202E\u200B",
        "\t",
        "# head\n\n| a | b |\n|---|---|\n| 1 | 2 |\n```c\nint x;\n```\n",
        "\033[2J\033]52;c;aGk=\007",
        "line\nline\r\n",
        "/",
    };
    const char *text = texts[draw(sizeof texts / sizeof *texts)];
    const pane *p = window->panes[window->focus];
    if (p->session && draw(3) == 0) /* a word that only this person may see */
        text = strcmp(session_user_name(p->session), "mira") == 0 ? MIRAS_WORD : JONAS_WORD;
    if (draw(3))
        window_type(window, text);
    else
        window_paste(window, text);
}

static void random_size(void)
{
    static const int sizes[][2] = {{80, 24}, {20, 6},   {1, 1},   {300, 100}, {40, 10}, {19, 30},
                                   {120, 5}, {100, 40}, {500, 2}, {2, 200},   {61, 17}, {80, 24}};
    const int *size = sizes[draw(sizeof sizes / sizeof *sizes)];
    app_resize(window, size[0], size[1]);
}

static void random_mouse(void)
{
    static const input_kind kinds[] = {INPUT_WHEEL_UP, INPUT_WHEEL_DOWN, INPUT_CLICK,  INPUT_CLICK,
                                       INPUT_DRAG,     INPUT_DRAG,       INPUT_RELEASE};
    app_input(window, &(input_event){.kind = kinds[draw(sizeof kinds / sizeof *kinds)],
                                     .x = (int)draw(120),
                                     .y = (int)draw(40)});
}

/* Bytes as a terminal, or a cat, might send them. */
static void random_bytes(void)
{
    static const char *const pieces[] = {"\033", "[",         "O",         "<0;5;5M",
                                         "200~", "\033[200~", "\033[201~", "\xF0\x9F",
                                         "\xff", "1;4C",      "A",         "\033[<64;3;3M"};
    for (int n = 1 + (int)draw(6); n > 0; n--) {
        const char *piece = pieces[draw(sizeof pieces / sizeof *pieces)];
        char byte = (char)draw(256);
        if (draw(3))
            feed(piece, strlen(piece));
        else
            feed(&byte, 1);
    }
    now_ms += 10000; /* whatever was begun is over */
    keys_tick(&keys, now_ms, take_input, window);
}

static void random_action(void)
{
    action a = (action)(1 + draw(ACTION_COUNT - 1));
    buf name = {0};
    key_code key;
    action_key(a, &name);
    if (name.len == 0 || draw(8) == 0) { /* by its name, as the palette does */
        app_do(window, a, draw(4) ? "" : "some words");
    } else {
        assert_true(key_parse(buf_str(&name), &key));
        window_press(window, key);
    }
    buf_free(&name);
}

static void random_event(void)
{
    switch (draw(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        random_text();
        break;
    case 6:
        random_size();
        break;
    case 7:
    case 8:
        random_mouse();
        break;
    case 9:
        if (draw(4) == 0) random_bytes();
        break;
    case 10:
        window_press(window, draw(2) ? KEY_ENTER : KEY_ESC);
        break;
    default:
        random_action();
    }
}

static const char *top_view(void)
{
    return pane_top(window->panes[window->focus])->ops->name;
}

/* Who is not signed in soon is, so that conversations, lists and profiles are in it too. */
static void sign_in(void)
{
    if (window->overlay || window->panes[window->focus]->session || draw(4)) return;
    if (strcmp(top_view(), "create") == 0) window_press(window, KEY_ESC);
    if (strcmp(top_view(), "locked") == 0) window_press(window, KEY_ENTER);
    if (strcmp(top_view(), "start") == 0) {
        for (int i = 0; i < 60; i++) /* no filter */
            window_press(window, KEY_BACKSPACE);
        window_press(window, KEY_HOME);
        if (draw(2)) window_press(window, KEY_DOWN);
        window_press(window, KEY_ENTER);
    }
    if (strcmp(top_view(), "passphrase") != 0) return;
    const char *owner = window->panes[window->focus]->owner;
    bool mira = owner ? strcmp(owner, "mira") == 0 : draw(2) == 0;
    window_press(window, KEY_CTRL | 'u');
    window_type(window, mira ? "pw-mira" : "pw-jonas");
    window_press(window, KEY_ENTER);
    window_settle(window);
}

/* --- the test --------------------------------------------------------------------------------- */

static void open_window(void)
{
    app_options options = {.store = disk.store, .engine = shared, .lock_after = 100};
    assert_ok(&disk, app_open(&options, 80, 24, &window, &disk.err));
    window->scripted = true;
    window->answer_limit = 3;
}

static void check(int i)
{
    app_draw(window);
    window_check_picture(window);
    if (i % EVERY) return;
    window_check_places(window);
    if (window->overlay) return; /* what covers the panes is the focused one's */
    window_check_privacy(window, "mira", MIRAS_WORD);
    window_check_privacy(window, "jonas", JONAS_WORD);
}

static void random_events(void **state)
{
    (void)state;
    int events = number_from("PREFT_TEST_EVENTS", EVENTS);
    seed = (uint32_t)number_from("PREFT_TEST_SEED", 42);
    open_window();
    for (int i = 0; i < events; i++) {
        random_event();
        app_events(window);
        sign_in();
        if (draw(400) == 0) window->input_ms -= 200 * 1000; /* a long time without a key */
        app_tick(window);
        check(i);
        window->quit = window->suspend = false;
        if (i % WINDOW == WINDOW - 1) { /* what was arranged is there again */
            int panes = layout_count(&window->layout);
            app_close(window);
            open_window();
            assert_int_equal(layout_count(&window->layout), panes);
        }
        if (i % 10000 == 9999) fprintf(stderr, "%d events\n", i + 1);
    }
    app_close(window);
    keys_free(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_events)};
    return cmocka_run_group_tests_name("events", tests, setup, teardown);
}
