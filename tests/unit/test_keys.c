#include "ui/actions.h"
#include "ui/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

static void record(void *ctx, const input_event *ev)
{
    buf *log = ctx;
    static const char *const kinds[] = {
        [INPUT_KEY] = "",         [INPUT_TEXT] = "'",           [INPUT_PASTE] = "paste:",
        [INPUT_WHEEL_UP] = "up@", [INPUT_WHEEL_DOWN] = "down@", [INPUT_CLICK] = "click@",
        [INPUT_DRAG] = "drag@",   [INPUT_RELEASE] = "release@"};
    if (log->len) buf_putc(log, ' ');
    buf_puts(log, kinds[ev->kind]);
    if (ev->kind == INPUT_KEY)
        key_name(ev->key, log);
    else if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE)
        buf_append(log, ev->text, ev->len);
    else
        buf_printf(log, "%d,%d", ev->x, ev->y);
}

/* Feeds bytes at once, then byte by byte, and lets time pass at the end. */
static void check(const char *bytes, size_t len, const char *expected)
{
    for (int piecewise = 0; piecewise < 2; piecewise++) {
        key_decoder d = {0};
        buf log = {0};
        if (piecewise)
            for (size_t i = 0; i < len; i++)
                keys_feed(&d, bytes + i, 1, 1000, record, &log);
        else
            keys_feed(&d, bytes, len, 1000, record, &log);
        keys_tick(&d, 1000 + KEYS_UTF8_MS, record, &log);
        assert_string_equal(buf_str(&log), expected);
        keys_free(&d);
        buf_free(&log);
    }
}
#define CHECK(bytes, expected) check(bytes, sizeof(bytes) - 1, expected)

static void names(void **state)
{
    (void)state;
    static const char *const round_trip[] = {"Ctrl-P", "Alt-Enter", "F12", "PgUp",     "Esc",
                                             "é",      "Alt-x",     "a",   "Ctrl-Left"};
    for (size_t i = 0; i < sizeof round_trip / sizeof *round_trip; i++) {
        key_code key;
        buf name = {0};
        assert_true(key_parse(round_trip[i], &key));
        key_name(key, &name);
        assert_int_equal(strcasecmp(buf_str(&name), round_trip[i]), 0);
        buf_free(&name);
    }
    key_code key;
    assert_false(key_parse("Nokey", &key));
    assert_false(key_parse("", &key));
    assert_false(key_parse("Ctrl-", &key));
}

static void plain_keys(void **state)
{
    (void)state;
    CHECK("a", "'a");
    CHECK("é한🙂", "'é '한 '🙂");
    CHECK("\r\n\t\x7F\x01\x1A", "Enter Enter Tab Backspace Ctrl-A Ctrl-Z");
    CHECK("\x1F", "Ctrl-_");
}

static void sequences(void **state)
{
    (void)state;
    CHECK("\033[A\033OB\033[H\033[4~", "Up Down Home End");
    CHECK("\033[1;5D\033[1;2A\033[5~\033[3;3~", "Ctrl-Left Shift-Up PgUp Alt-Delete");
    CHECK("\033OP\033[11~\033[[A\033[15~\033[24~", "F1 F1 F1 F5 F12");
    CHECK("\033[Z", "Shift-Tab");
    CHECK("\033x\033\r\033\x7F\033\xC3\xA9", "Alt-X Alt-Enter Alt-Backspace Alt-é");
    CHECK("\033[13;2u\033[27;2;13~", "Shift-Enter Shift-Enter");
    CHECK("\033[99;99X\033[?1;2cz", "'z"); /* unknown ones are swallowed whole */
    CHECK("\033[12\001b", "Ctrl-A 'b");    /* broken off */
}

static void lone_escape(void **state)
{
    (void)state;
    CHECK("\033", "Esc");
    CHECK("\033\033", "Esc Esc");
    CHECK("\033[", "Alt-[");
    key_decoder d = {0};
    buf log = {0};
    keys_feed(&d, "\033", 1, 0, record, &log);
    assert_int_equal(log.len, 0);
    assert_in_range(keys_timeout(&d, 0), 1, 100);
    keys_tick(&d, 99, record, &log); /* within 100 ms */
    assert_string_equal(buf_str(&log), "Esc");
    assert_int_equal(keys_timeout(&d, 100), -1);
    keys_feed(&d, "x", 1, 200, record, &log); /* slow: two keys */
    assert_string_equal(buf_str(&log), "Esc 'x");
    keys_free(&d);
    buf_free(&log);
}

static void broken_characters(void **state)
{
    (void)state;
    CHECK("\xFF"
          "a",
          "'\uFFFD 'a");
    CHECK("\xE3\n\x80"
          "b",
          "'\uFFFD Enter '\uFFFD 'b");
    key_decoder d = {0};
    buf log = {0};
    keys_feed(&d, "\xF0\x9F", 2, 0, record, &log);
    keys_tick(&d, 2000, record, &log);
    keys_feed(&d, "\x99\x82", 2, 2000, record, &log); /* two seconds later: still one */
    assert_string_equal(buf_str(&log), "'🙂");
    keys_free(&d);
    buf_free(&log);
}

static void pastes(void **state)
{
    (void)state;
    CHECK("\033[200~a\tb\033[A\003\004\032c\033[201~d", "paste:a\tb\033[A\003\004\032c 'd");
    CHECK("\033[200~\033[201~", "paste:");
    CHECK("\033[200~x\033[201", "paste:x\033[201"); /* no end: over after a while */
    CHECK("\033[201~z", "'z");                      /* an end without a start */
    key_decoder d = {0};
    buf log = {0};
    keys_feed(&d, "\033[200~never ends", 16, 0, record, &log);
    assert_in_range(keys_timeout(&d, 0), 1, 1000);
    keys_tick(&d, 1000, record, &log);
    keys_feed(&d, "k", 1, 1001, record, &log);
    assert_string_equal(buf_str(&log), "paste:never ends 'k");
    keys_free(&d);
    buf_free(&log);
}

static void check_marks(const char *bytes, bool known)
{
    key_decoder d = {0};
    buf log = {0};
    for (size_t i = 0; bytes[i]; i++)
        keys_feed(&d, bytes + i, 1, 0, record, &log);
    assert_int_equal(d.marks_pastes, known);
    keys_free(&d);
    buf_free(&log);
}

static void marked_pastes(void **state)
{
    (void)state;
    CHECK("\033[?2004;2$ya", "'a"); /* an answer is no key */
    check_marks("\033[?2004;1$y", true);
    check_marks("\033[?2004;2$y", true);
    check_marks("\033[?2004;0$y", false); /* not known there */
    check_marks("\033[?2004;4$y", false); /* never */
    check_marks("\033[?1004;1$y", false);
    check_marks("a\033[A\r", false);
    check_marks("\033[200~x\033[201~", true);
}

static void count_bytes(void *ctx, const input_event *ev)
{
    if (ev->kind == INPUT_PASTE) *(size_t *)ctx += ev->len;
}

static void large_paste(void **state)
{
    (void)state;
    size_t size = 5 << 20, got = 0;
    buf text = {0};
    buf_puts(&text, "\033[200~");
    for (size_t i = 0; i < size; i++)
        buf_putc(&text, (char)('a' + i % 26));
    buf_puts(&text, "\033[201~");
    key_decoder d = {0};
    for (size_t pos = 0; pos < text.len; pos += 4096)
        keys_feed(&d, text.data + pos, text.len - pos < 4096 ? text.len - pos : 4096, 0,
                  count_bytes, &got);
    assert_int_equal(got, size);
    assert_false(d.in_paste);
    keys_free(&d);
    buf_free(&text);
}

static void mouse(void **state)
{
    (void)state;
    CHECK("\033[<64;10;5M\033[<65;231;5M", "up@9,4 down@230,4");
    CHECK("\033[<0;230;3M\033[<32;231;3M\033[<0;231;3m", "click@229,2 drag@230,2 release@230,2");
    CHECK("\033[<2;1;1M\033[<35;1;1M\033[<34;1;1M\033[<2;1;1m\033[<0;0;0M",
          ""); /* other buttons, motion, nonsense */
}

static void action_table(void **state)
{
    (void)state;
    /* No key does two things where both could be meant. */
    for (int a = 1; a < ACTION_COUNT; a++) {
        buf keys = {0};
        action_keys((action)a, &keys);
        assert_true(keys.len > 0 || action_name((action)a)[0]); /* some go by their name only */
        assert_true(strlen(action_description((action)a)) > 0);
        for (char *rest = keys.len ? keys.data : NULL, *end; rest; rest = end ? end + 4 : NULL) {
            end = strstr(rest, " or ");
            if (end) *end = '\0';
            key_code key;
            assert_true(key_parse(rest, &key));
            assert_int_equal(action_of(key, action_context((action)a)), a);
            if (action_context((action)a) != CONTEXT_WINDOW) continue;
            for (int c = 0; c < CONTEXT_COUNT; c++)
                if (c != CONTEXT_WINDOW) assert_int_equal(action_of(key, (context)c), ACTION_NONE);
        }
        buf_free(&keys);
    }
    assert_int_equal(action_of('q', CONTEXT_WINDOW), ACTION_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(plain_keys),
        cmocka_unit_test(sequences),
        cmocka_unit_test(lone_escape),
        cmocka_unit_test(broken_characters),
        cmocka_unit_test(pastes),
        cmocka_unit_test(marked_pastes),
        cmocka_unit_test(large_paste),
        cmocka_unit_test(mouse),
        cmocka_unit_test(action_table),
    };
    return cmocka_run_group_tests_name("keys", tests, NULL, NULL);
}
