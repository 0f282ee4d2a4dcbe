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

/* What the program says meanwhile is whole; the answer above it is not. */
static void said_meanwhile(void **state)
{
    (void)state;
    transcript t = {0};
    add(&t, ENTRY_YOU, "hello");
    size_t answer = add(&t, ENTRY_ANSWER, "");
    add(&t, ENTRY_NOTICE, "Noted: a dog");
    assert_string_equal(draw(&t, 20, 6, "*"), "You            19:02\nhello\n\n*\n\nNoted: a dog\n");
    append(&t, answer, "Good");
    assert_string_equal(draw(&t, 20, 6, "*"),
                        "You            19:02\nhello\n\nGood *\n\nNoted: a dog\n");
    transcript_finish(&t, answer);
    assert_string_equal(draw(&t, 20, 6, "*"),
                        "You            19:02\nhello\n\nGood\n\nNoted: a dog\n");
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

/* --- long conversations ----------------------------------------------------------------------- */

#define MANY 10000

static size_t n_annotated;

static void count_annotated(void *ctx, size_t entry)
{
    transcript *t = ctx;
    n_annotated++;
    transcript_annotate(t, entry, entry % 2 ? "‹1/2›" : NULL, "details");
}

static void fill(transcript *t)
{
    for (int i = 0; i < MANY; i++) {
        char text[64];
        snprintf(text, sizeof text, i % 2 ? "answer %d with **bold** text" : "question %d", i);
        size_t entry = add(t, i % 2 ? ENTRY_ANSWER : ENTRY_YOU, text);
        transcript_finish(t, entry);
        t->entries[entry].message = i + 1;
    }
}

/* Only what comes into view is laid out: counted, not timed. */
static void ten_thousand_messages(void **state)
{
    (void)state;
    transcript t = {.annotate = count_annotated};
    t.annotate_ctx = &t;
    n_annotated = 0;
    fill(&t);
    assert_int_equal(t.laid_out, 0);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "answer 9999 with bold text"));
    assert_in_range(t.laid_out, 1, 12);
    assert_true(n_annotated == t.laid_out);
    for (int i = 0; i < 50; i++) { /* a page is 20 rows: about seven messages */
        size_t before = t.laid_out;
        transcript_scroll(&t, -19);
        draw(&t, 60, 20, "");
        assert_in_range(t.laid_out - before, 0, 12);
    }
    size_t before = t.laid_out;
    transcript_to_start(&t);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "question 0"));
    transcript_to_entry(&t, 5000);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "question 5000"));
    transcript_select(&t, 7001);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "answer 7001"));
    transcript_select(&t, 3);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "answer 3 "));
    transcript_to_end(&t);
    assert_non_null(strstr(draw(&t, 60, 20, ""), "answer 9999"));
    assert_in_range(t.laid_out - before, 1, 60);
    /* Another width lays out what is seen, once. */
    before = t.laid_out;
    draw(&t, 50, 20, "");
    draw(&t, 50, 20, "");
    assert_in_range(t.laid_out - before, 1, 12);
    /* While an answer grows nothing else is laid out. */
    size_t answer = add(&t, ENTRY_ANSWER, "");
    draw(&t, 50, 20, "*");
    before = t.laid_out;
    for (int i = 0; i < 500; i++) {
        append(&t, answer, "word ");
        if (i % 5 == 0) draw(&t, 50, 20, "*");
    }
    assert_in_range(t.laid_out - before, 0, 2);
    transcript_free(&t);
}

/* --- Markdown, marks below, selection ------------------------------------------------------- */

static void shown_both_ways(void **state)
{
    (void)state;
    transcript t = {0};
    size_t answer = add(&t, ENTRY_ANSWER, "");
    append(&t, answer, "# Title\n- **one**\n- two\n");
    transcript_finish(&t, answer);
    assert_string_equal(draw(&t, 20, 5, ""), "Title\n\n• one\n• two\n\n");
    transcript_show_as_written(&t, true);
    assert_string_equal(draw(&t, 20, 5, ""), "# Title\n- **one**\n- two\n\n\n");
    transcript_show_as_written(&t, false);
    t.entries[answer].message = 1;
    transcript_annotate(&t, answer, "‹1/2›  good ✓", "12 tokens read and many more words");
    transcript_show_details(&t, true);
    transcript_select(&t, answer);
    assert_string_equal(draw(&t, 20, 7, ""),
                        "Title              ▐\n                   ▐\n• one              ▐\n"
                        "• two              ▐\n12 tokens read and…▐\n      ‹1/2›  good ✓▐\n\n");
    assert_int_equal(transcript_at(&t, 3), answer);
    assert_int_equal(transcript_at(&t, 7), TRANSCRIPT_NONE);
    transcript_free(&t);
}

/* The reader's place stays when answers are shown otherwise, and at the end of a long paragraph
 * that was laid out in parts. */
static void place_stays(void **state)
{
    (void)state;
    transcript t = {0};
    buf text = {0};
    for (int i = 0; i < 300; i++)
        buf_printf(&text, "w%03d **b** ", i);
    size_t answer = add(&t, ENTRY_ANSWER, "");
    for (size_t at = 0; at < text.len; at += 7) {
        size_t n = text.len - at < 7 ? text.len - at : 7;
        transcript_append(&t, answer, text.data + at, n);
        draw(&t, 41, 5, "*");
    }
    transcript_scroll(&t, -20);
    char top[64], now[64];
    first_line(draw(&t, 41, 5, ""), top, sizeof top);
    transcript_finish(&t, answer);
    first_line(draw(&t, 41, 5, ""), now, sizeof now);
    assert_string_equal(now, top);
    top[4] = '\0';
    transcript_show_as_written(&t, true);
    assert_non_null(strstr(draw(&t, 41, 5, ""), top));
    transcript_show_as_written(&t, false);
    assert_non_null(strstr(draw(&t, 41, 5, ""), top));
    buf_free(&text);
    transcript_free(&t);
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
        cmocka_unit_test(said_meanwhile),
        cmocka_unit_test(harmless),
        cmocka_unit_test(follows_and_stays),
        cmocka_unit_test(keeps_its_place_at_other_widths),
        cmocka_unit_test(sizes),
        cmocka_unit_test(ten_thousand_messages),
        cmocka_unit_test(shown_both_ways),
        cmocka_unit_test(place_stays),
    };
    return cmocka_run_group_tests_name("transcript", tests, NULL, teardown);
}
