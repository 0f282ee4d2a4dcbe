#include "ui/editor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FAMILY "\U0001F468\u200D\U0001F469\u200D\U0001F467"

static void type(editor *e, const char *text)
{
    for (size_t pos = 0, len = strlen(text); pos < len;) {
        size_t n = 1;
        while (pos + n < len && ((unsigned char)text[pos + n] & 0xC0) == 0x80)
            n++;
        assert_true(editor_insert(e, text + pos, n, true));
        pos += n;
    }
}

static void check(const editor *e, const char *text, size_t cursor)
{
    size_t len;
    assert_string_equal(editor_text(e, &len), text);
    assert_int_equal(len, strlen(text));
    assert_int_equal(e->cursor, cursor);
    assert_int_equal(e->starts[e->count], len);
}

static void clusters(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    type(&e, "a" FAMILY "e\u0301z");
    check(&e, "a" FAMILY "e\u0301z", 4);
    editor_do(&e, ACTION_LEFT);
    editor_do(&e, ACTION_ERASE_LEFT); /* the letter with its accent */
    check(&e, "a" FAMILY "z", 2);
    editor_do(&e, ACTION_ERASE_LEFT); /* the whole family */
    check(&e, "az", 1);
    editor_do(&e, ACTION_ERASE_RIGHT);
    check(&e, "a", 1);
    editor_insert(&e, "\u0301", 2, true); /* joins what is there */
    check(&e, "a\u0301", 1);
    editor_free(&e);
}

static void movement(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    type(&e, "one two\nthree");
    editor_do(&e, ACTION_LINE_START);
    assert_int_equal(e.cursor, 8);
    editor_do(&e, ACTION_WORD_LEFT);
    assert_int_equal(e.cursor, 4);
    editor_do(&e, ACTION_WORD_RIGHT);
    assert_int_equal(e.cursor, 7);
    editor_do(&e, ACTION_ERASE_WORD);
    check(&e, "one \nthree", 4);
    editor_do(&e, ACTION_ERASE_TO_START);
    check(&e, "\nthree", 0);
    assert_false(editor_do(&e, ACTION_UP)); /* first line: the caller's history */
    assert_true(editor_do(&e, ACTION_DOWN));
    assert_false(editor_do(&e, ACTION_DOWN));
    editor_do(&e, ACTION_ERASE_TO_END);
    check(&e, "\n", 1);
    editor_free(&e);
}

static void columns_across_wide(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    type(&e, "abcdef\n一二三\nabcdef");
    editor_height(&e, 40);
    for (int i = 0; i < 3; i++)
        editor_do(&e, ACTION_LEFT);
    assert_true(editor_do(&e, ACTION_UP)); /* column 3 falls into 二: before it */
    assert_int_equal(e.cursor, 8);
    assert_true(editor_do(&e, ACTION_UP)); /* the goal column is kept */
    assert_int_equal(e.cursor, 3);
    editor_free(&e);
}

static void undo(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    type(&e, "hello world");
    editor_do(&e, ACTION_UNDO);
    check(&e, "hello", 5);
    editor_do(&e, ACTION_UNDO);
    check(&e, "", 0);
    editor_do(&e, ACTION_UNDO); /* nothing left: nothing happens */
    editor_do(&e, ACTION_REDO);
    editor_do(&e, ACTION_REDO);
    check(&e, "hello world", 11);
    editor_do(&e, ACTION_ERASE_WORD);
    editor_do(&e, ACTION_UNDO);
    check(&e, "hello world", 11);
    for (int i = 0; i < 3 * EDITOR_UNDO; i++)
        editor_insert(&e, "x", 1, false);
    for (int i = 0; i < 4 * EDITOR_UNDO; i++)
        editor_do(&e, ACTION_UNDO);
    assert_int_equal(e.text.len, 11 + 2 * EDITOR_UNDO);
    editor_free(&e);
}

static void limits(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    size_t len = EDITOR_MAX;
    char *big = malloc(len + 1);
    memset(big, 'x', len);
    assert_true(editor_insert(&e, big, len, false));
    assert_false(editor_insert(&e, "y", 1, true));
    assert_int_equal(e.count, len);
    editor_clear(&e);
    check(&e, "", 0);
    assert_true(editor_insert(&e, "a\033b\r\nc\x07", 7, false)); /* a paste is cleaned */
    check(&e, "ab\nc", 4);
    free(big);
    editor_free(&e);
}

static void drawing(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 12, 4);
    area a = area_sub(grid_area(&g), 1, 1, 9, 2);
    editor e;
    editor_init(&e);
    type(&e, "一二三四五六");
    editor_draw(&e, a, STYLE_TEXT, true);
    buf screen = {0};
    grid_write_text(&g, &screen);
    assert_string_equal(buf_str(&screen), "\n 一二三四\n 五六\n\n");
    assert_int_equal(g.cursor_x, 1 + 4); /* the sum of the widths before it */
    assert_int_equal(g.cursor_y, 2);
    type(&e, "七八九十"); /* three lines in a height of two: the cursor's line stays in sight */
    editor_draw(&e, a, STYLE_TEXT, true);
    buf_clear(&screen);
    grid_write_text(&g, &screen);
    assert_string_equal(buf_str(&screen), "\n 五六七八\n 九十\n\n");
    assert_int_equal(g.cursor_y, 2);
    buf_free(&screen);
    editor_free(&e);
    grid_free(&g);
}

/* The clusters are those of the text segmented from its start. */
static void check_clusters(const editor *e)
{
    size_t pos = 0, n = 0;
    for (; pos < e->text.len; n++) {
        assert_int_equal(e->starts[n], pos);
        pos += text_next(e->text.data + pos, e->text.len - pos).len;
    }
    assert_int_equal(e->count, n);
    assert_int_equal(e->starts[n], e->text.len);
}

/* A paste that arrives as single keys costs little more than its length. */
static void long_typing(void **state)
{
    (void)state;
    editor e;
    editor_init(&e);
    for (int i = 0; i < 60000; i++)
        editor_insert(&e,
                      i % 50 == 49 ? "\n"
                      : i % 7      ? "x"
                                   : "한",
                      i % 7 || i % 50 == 49 ? 1 : 3, true);
    check_clusters(&e);
    assert_int_equal(e.count, 60000);
    editor_free(&e);
}

/* Random edits keep the invariants: the cursor is a cluster, offsets rise, text is well formed. */
static void random_edits(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a",      " ",          "\n", "一", FAMILY, "\u0301",
                                         "\u200D", "\U0001F1F0", "\t", "한", "\xFF", "e\u0301"};
    editor e;
    editor_init(&e);
    grid g = {0};
    grid_resize(&g, 20, 6);
    uint32_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t r = seed >> 8;
        if (r % 3 == 0) {
            editor_do(&e, (action)(ACTION_NEWLINE + (r / 3) % (ACTION_COUNT - ACTION_NEWLINE)));
        } else {
            const char *piece = pieces[r / 3 % (sizeof pieces / sizeof *pieces)];
            editor_insert(&e, piece, strlen(piece), r & 1);
        }
        if (e.text.len > 2000) editor_clear(&e);
        assert_true(e.cursor <= e.count);
        check_clusters(&e);
        if (i % 16) continue;
        int w = (int)(r % 12), h = (int)(r / 12 % 5);
        g.cursor_shown = false;
        editor_draw(&e, area_sub(grid_area(&g), 3, 1, w, h), STYLE_TEXT, true);
        if (!g.cursor_shown) continue;
        assert_in_range(g.cursor_x, 3, 3 + w - 1);
        assert_in_range(g.cursor_y, 1, 1 + h - 1);
    }
    grid_free(&g);
    editor_free(&e);
}

/* --- wrapping and long drafts ----------------------------------------------------------------- */

static void expect_wrapped(editor *e, int width)
{
    text_lines fresh = {0};
    editor_height(e, width);
    text_wrap(&fresh, buf_str(&e->text), e->text.len, width - 1);
    assert_int_equal(e->lines.len, fresh.len);
    for (size_t i = 0; i < fresh.len; i++) {
        assert_int_equal(e->lines.lines[i].start, fresh.lines[i].start);
        assert_int_equal(e->lines.lines[i].len, fresh.lines[i].len);
        assert_int_equal(e->lines.lines[i].width, fresh.lines[i].width);
        assert_int_equal(e->lines.lines[i].hard, fresh.lines[i].hard);
    }
    text_lines_free(&fresh);
}

/* Only what a change touched is wrapped again; the result is that of wrapping everything. */
static void wrapped_in_parts(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "a", " ", "\n", "word ", "漢字", "\n\n", "long long line of words ", "e\u0301", "\t"};
    static const action moves[] = {ACTION_LEFT,         ACTION_WORD_LEFT,  ACTION_UP,
                                   ACTION_DOWN,         ACTION_LINE_START, ACTION_LINE_END,
                                   ACTION_ERASE_LEFT,   ACTION_ERASE_WORD, ACTION_ERASE_RIGHT,
                                   ACTION_ERASE_TO_END, ACTION_UNDO,       ACTION_REDO};
    editor e;
    uint32_t seed = 11;
    editor_init(&e);
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t n = seed >> 8;
        if (n % 3) editor_do(&e, moves[n / 3 % (sizeof moves / sizeof *moves)]);
        const char *part = parts[n / 64 % (sizeof parts / sizeof *parts)];
        editor_insert(&e, part, strlen(part), n % 2);
        if (n % 5 == 0) expect_wrapped(&e, 12);
        if (n % 97 == 0) expect_wrapped(&e, 30);
        if (e.text.len > 3000) editor_clear(&e);
    }
    editor_free(&e);
}

static void ten_thousand_lines(void **state)
{
    (void)state;
    editor e;
    buf paste = {0};
    editor_init(&e);
    for (int i = 0; i < 10000; i++)
        buf_printf(&paste, "line %d of what was pasted, 漢字 and all\r\n", i);
    editor_insert(&e, "before ", 7, true);
    assert_true(editor_insert(&e, paste.data, paste.len, false));
    assert_int_equal(editor_height(&e, 80), 10001);
    expect_wrapped(&e, 80);
    for (int i = 0; i < 5000; i++)
        editor_do(&e, ACTION_UP);
    for (int i = 0; i < 200; i++) /* a key costs what its paragraph costs */
        assert_true(editor_insert(&e, "x", 1, true));
    expect_wrapped(&e, 80);
    size_t len;
    editor_do(&e, ACTION_UNDO);
    editor_do(&e, ACTION_UNDO);
    assert_string_equal(editor_text(&e, &len), "before ");
    editor_do(&e, ACTION_REDO);
    assert_int_equal(editor_height(&e, 80), 10001);
    buf_free(&paste);
    editor_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrapped_in_parts),
        cmocka_unit_test(ten_thousand_lines),
        cmocka_unit_test(clusters),
        cmocka_unit_test(movement),
        cmocka_unit_test(columns_across_wide),
        cmocka_unit_test(undo),
        cmocka_unit_test(limits),
        cmocka_unit_test(drawing),
        cmocka_unit_test(random_edits),
        cmocka_unit_test(long_typing),
    };
    return cmocka_run_group_tests_name("editor", tests, NULL, NULL);
}
