#include "ui/transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static grid g;

static const char *draw(transcript *t, int cols, int rows, const char *busy)
{
    static char text[4096];
    grid_resize(&g, cols, rows);
    transcript_draw(t, grid_area(&g), busy);
    buf out = {0};
    grid_write_text(&g, &out);
    assert_true(out.len < sizeof text);
    memcpy(text, buf_str(&out), out.len + 1);
    buf_free(&out);
    return text;
}

static size_t add(transcript *t, entry_kind kind, const char *text)
{
    return transcript_add(t, kind, "19:02", text, strlen(text));
}

static void append(transcript *t, size_t entry, const char *text)
{
    transcript_append(t, entry, text, strlen(text));
}

static void first_line(const char *screen, char *out, size_t size)
{
    size_t n = strcspn(screen, "\n");
    assert_true(n < size);
    memcpy(out, screen, n);
    out[n] = '\0';
}

static void conversation(void **state)
{
    (void)state;
    transcript t = {0};
    add(&t, ENTRY_YOU, "hello");
    size_t answer = add(&t, ENTRY_ANSWER, "");
    append(&t, answer, "Good ");
    append(&t, answer, "day\n");
    assert_string_equal(draw(&t, 20, 6, "*"), "You            19:02\nhello\n\nGood day *\n\n\n");
    transcript_finish(&t, answer);
    assert_string_equal(draw(&t, 20, 6, ""), "You            19:02\nhello\n\nGood day\n\n\n");
    transcript_free(&t);
}

static void harmless(void **state)
{
    (void)state;
    transcript t = {0};
    size_t answer = add(&t, ENTRY_ANSWER, "");
    append(&t, answer, "\033]52;c;a");
    append(&t, answer, "Gk=\a\033[2J");
    const char *screen = draw(&t, 40, 2, "");
    assert_string_equal(screen, "␛]52;c;aGk=␇␛[2J\n\n");
    transcript_free(&t);
}

static void follows_and_stays(void **state)
{
    (void)state;
    transcript t = {0};
    size_t answer = add(&t, ENTRY_ANSWER, "");
    for (int i = 0; i < 30; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %02d\n", i);
        append(&t, answer, line);
    }
    char top[64], now[64];
    draw(&t, 20, 5, "");
    transcript_scroll(&t, -10);
    assert_true(t.reading);
    first_line(draw(&t, 20, 5, ""), top, sizeof top);
    assert_string_equal(top, "line 15");
    assert_false(t.new_text);
    append(&t, answer, "more and more text\nin lines\n");
    first_line(draw(&t, 20, 5, ""), now, sizeof now);
    assert_string_equal(now, top); /* the reader's place is kept */
    assert_true(t.new_text);
    transcript_scroll(&t, 1000);
    assert_false(t.reading);
    assert_false(t.new_text);
    transcript_to_start(&t);
    first_line(draw(&t, 20, 5, ""), now, sizeof now);
    assert_string_equal(now, "line 00");
    transcript_scroll(&t, -5); /* nothing above */
    first_line(draw(&t, 20, 5, ""), now, sizeof now);
    assert_string_equal(now, "line 00");
    transcript_to_end(&t);
    assert_non_null(strstr(draw(&t, 20, 5, ""), "in lines"));
    transcript_free(&t);
}

static void keeps_its_place_at_other_widths(void **state)
{
    (void)state;
    transcript t = {0};
    buf text = {0};
    for (int i = 0; i < 200; i++)
        buf_printf(&text, "w%03d ", i);
    add(&t, ENTRY_ANSWER, buf_str(&text));
    draw(&t, 41, 5, "");
    transcript_scroll(&t, -12);
    char top[64], now[64];
    first_line(draw(&t, 41, 5, ""), top, sizeof top);
    for (int width = 10; width < 60; width += 7) {
        first_line(draw(&t, width, 5, ""), now, sizeof now);
        top[4] = '\0';
        assert_non_null(strstr(now, top)); /* the word that was first is in the first line */
    }
    buf_free(&text);
    transcript_free(&t);
}

static void sizes(void **state)
{
    (void)state;
    transcript t = {0};
    add(&t, ENTRY_YOU, "一二三 \U0001F469\u200D\U0001F33E text");
    add(&t, ENTRY_ERROR, "an error");
    for (int w = 1; w < 30; w++)
        for (int h = 1; h < 8; h++) {
            draw(&t, w, h, "*");
            transcript_scroll(&t, (w + h) % 3 - 1);
        }
    grid_resize(&g, 5, 5);
    transcript_draw(&t, area_sub(grid_area(&g), 2, 2, 0, 0), "*");
    transcript_free(&t);
    assert_string_equal(draw(&t, 3, 1, ""), "\n");
}

static int teardown(void **state)
{
    (void)state;
    grid_free(&g);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversation),
        cmocka_unit_test(harmless),
        cmocka_unit_test(follows_and_stays),
        cmocka_unit_test(keeps_its_place_at_other_widths),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests_name("transcript", tests, NULL, teardown);
}
