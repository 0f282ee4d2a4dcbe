#include "ui/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FAMILY "\U0001F468\u200D\U0001F469\u200D\U0001F467"
#define FARMER "\U0001F469\u200D\U0001F33E"
#define HEART  "\u2764\uFE0F"
#define FLAG   "\U0001F1F0\U0001F1F7"
#define WALES  "\U0001F3F4\U000E0067\U000E0062\U000E0077\U000E006C\U000E0073\U000E007F"

static void widths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int width;
        size_t clusters;
    } cases[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"é", 1, 1},
        {"e\u0301", 1, 1},              /* combining */
        {"a\u0300\u0301\u0302b", 2, 2}, /* several */
        {"한글", 4, 2},
        {"\u1112\u1161\u11AB", 2, 1}, /* conjoining jamo */
        {"一二三", 6, 3},
        {"ＡＢＣ", 6, 3},
        {"ｱｲｳ", 3, 3}, /* half-width */
        {FARMER, 2, 1},
        {FAMILY, 2, 1},
        {HEART, 2, 1},
        {"\u2764", 1, 1},
        {FLAG, 2, 1},
        {FLAG FLAG, 4, 2},
        {"\U0001F44D\U0001F3FD", 2, 1}, /* skin tone */
        {"1\uFE0F\u20E3", 2, 1},        /* keycap */
        {WALES, 2, 1},
        {"\uE0B0", 1, 1},       /* private use */
        {"\U000F0001", 1, 1},   /* private use, plane 15 */
        {"\U0001FAE8", 2, 1},   /* newer than the tables, emoji block */
        {"\U0001E4D0", 1, 1},   /* newer than the tables, a script */
        {"\u0915\u093F", 2, 1}, /* Devanagari with a spacing mark */
        {"שלום", 4, 4},
        {"مرحبا", 5, 5},
        {"a\tb", 5, 3},
        {"\xFF", 1, 1}, /* ill-formed */
        {"\xE3\x81", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].text);
        if (text_width(cases[i].text, len) != cases[i].width ||
            text_count(cases[i].text, len) != cases[i].clusters)
            fail_msg("\"%s\": width %d, %zu clusters; expected %d, %zu", cases[i].text,
                     text_width(cases[i].text, len), text_count(cases[i].text, len), cases[i].width,
                     cases[i].clusters);
    }
}

static void uncertainty(void **state)
{
    (void)state;
    static const char *const certain[] = {"a", "é", "─", "一", "한", "あ", "Я", "…"};
    static const char *const uncertain[] = {FARMER,    HEART,        FLAG,
                                            "e\u0301", "\U0001FAE8", "\U0001F600"};
    for (size_t i = 0; i < sizeof certain / sizeof *certain; i++)
        assert_false(text_next(certain[i], strlen(certain[i])).uncertain);
    for (size_t i = 0; i < sizeof uncertain / sizeof *uncertain; i++)
        assert_true(text_next(uncertain[i], strlen(uncertain[i])).uncertain);
}

static void fit(void **state)
{
    (void)state;
    int used;
    assert_int_equal(text_fit("一二三", 9, 5, &used), 6); /* a wide cluster is never halved */
    assert_int_equal(used, 4);
    assert_int_equal(text_fit("abc", 3, 0, &used), 0);
    buf out = {0};
    text_ellipsis("abcdef", 6, 4, &out);
    assert_string_equal(buf_str(&out), "abc…");
    buf_clear(&out);
    text_ellipsis("一二三", 9, 5, &out);
    assert_string_equal(buf_str(&out), "一二…");
    buf_clear(&out);
    text_ellipsis("abc", 3, 3, &out);
    assert_string_equal(buf_str(&out), "abc");
    buf_free(&out);
}

/* Cleans text in pieces of every size: the result must not depend on them. */
static void check_clean(const char *text, size_t len, const char *expected)
{
    for (size_t piece = 1; piece <= len + 1; piece++) {
        text_cleaner cleaner = {0};
        buf out = {0};
        for (size_t pos = 0; pos < len; pos += piece)
            text_clean(&cleaner, text + pos, pos + piece < len ? piece : len - pos, &out);
        text_clean_finish(&cleaner, &out);
        assert_string_equal(buf_str(&out), expected);
        buf_free(&out);
    }
}

static void clean_controls(void **state)
{
    (void)state;
#define CHECK(text, expected) check_clean(text, sizeof(text) - 1, expected)
    CHECK("plain\ttext\nline", "plain\ttext\nline");
    CHECK("\033]52;c;aGk=\a", "␛]52;c;aGk=␇");
    CHECK("\033[2J\033[6n", "␛[2J␛[6n");
    CHECK("\033P1;1|x\033\\\033c", "␛P1;1|x␛\\␛c");
    CHECK("\033]never ends", "␛]never ends");
    CHECK("a\r\nb\rc\r", "a\nb␍c␍");
    CHECK("ab\b\b\x7F", "ab␈␈␡");
    CHECK("\x00x", "␀x");
    CHECK("\xC2\x9B"
          "2J\xC2\x85",
          "<9B>2J<85>");
    CHECK("bad \xFF\xFE end", "bad \uFFFD\uFFFD end");
    CHECK("cut \xF0\x9F\x99", "cut \uFFFD");
    CHECK("\xE3\n\x80", "\uFFFD\n\uFFFD");
#undef CHECK
}

static void clean_directions(void **state)
{
    (void)state;
#define CHECK(text, expected) check_clean(text, sizeof(text) - 1, expected)
    CHECK("abc\u202Edef", "abc<202E>def");
    CHECK("\u2066x\u2069\u202A", "<2066>x<2069><202A>");
    CHECK("tags \U000E0041\U000E0042", "tags <E0041><E0042>");
    CHECK(WALES, WALES); /* tags belong to a flag */
    CHECK("al\u200Bice\u200F\uFEFF", "alice");
    CHECK(FARMER "x\u200Dy", FARMER "x\u200Dy");
    CHECK("\u200D"
          "a\n\u200D"
          "b",
          "a\nb"); /* joiners that join nothing */
    CHECK("שלום عليكم", "שלום عليكم");
    CHECK("a\u2028b", "a\nb");
#undef CHECK
}

static void clean_labels(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"alice", "alice"},       {"al\u200Bice", "al<200B>ice"}, {"a\nb\tc", "a␊b␉c"},
        {"x\u202Ey", "x<202E>y"}, {"mi\u0301ra", "mi\u0301ra"},   {FARMER, FARMER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf out = {0};
        text_clean_label(cases[i][0], strlen(cases[i][0]), &out);
        assert_string_equal(buf_str(&out), cases[i][1]);
        buf_free(&out);
    }
}

static void clean_drafts(void **state)
{
    (void)state;
    static const char pasted[] = "a\tb\033[A\003\004\032\000c\r\nd\re\xFF";
    buf out = {0};
    text_clean_draft(pasted, sizeof pasted - 1, &out);
    assert_string_equal(buf_str(&out), "a\tb[Ac\nd\ne");
    buf_free(&out);
}

/* Wraps and compares the lines, joined by "|". */
static void check_wrap(const char *text, int width, const char *expected)
{
    text_lines lines = {0};
    buf joined = {0};
    size_t len = strlen(text);
    text_wrap(&lines, text, len, width);
    for (size_t i = 0; i < lines.len; i++) {
        const text_line *l = &lines.lines[i];
        assert_true(l->start + l->len <= len);
        assert_int_equal(l->width, text_width(text + l->start, l->len));
        if (i) buf_putc(&joined, '|');
        buf_append(&joined, text + l->start, l->len);
    }
    assert_string_equal(buf_str(&joined), expected);
    /* Appended byte by character, the lines are the same. */
    text_lines grown = {0};
    for (size_t n = 0; n <= len; n++)
        if (n == len || ((unsigned char)text[n] & 0xC0) != 0x80) text_wrap(&grown, text, n, width);
    assert_int_equal(grown.len, lines.len);
    for (size_t i = 0; i < lines.len; i++) {
        assert_int_equal(grown.lines[i].start, lines.lines[i].start);
        assert_int_equal(grown.lines[i].len, lines.lines[i].len);
        assert_int_equal(grown.lines[i].width, lines.lines[i].width);
        assert_int_equal(grown.lines[i].hard, lines.lines[i].hard);
    }
    text_lines_free(&lines);
    text_lines_free(&grown);
    buf_free(&joined);
}

static void wrap(void **state)
{
    (void)state;
    check_wrap("", 10, "");
    check_wrap("one two three", 7, "one two|three");
    check_wrap("one two   three", 7, "one two|three");
    check_wrap("a\nb\n", 10, "a|b|");
    check_wrap("  indented text", 10, "  indented|text");
    check_wrap("abcdefghij", 4, "abcd|efgh|ij");
    check_wrap("a abcdefghij", 4, "a|abcd|efgh|ij");
    check_wrap("well-known words", 7, "well-|known|words");
    check_wrap("end) (begin", 6, "end)|(begin");
    check_wrap("x", 0, "x");
    check_wrap("一二", 1, "一|二"); /* wider than the line: one each */
    check_wrap("a    ", 3, "a");
    check_wrap("\n\n", 5, "||");
}

static void wrap_east_asian(void **state)
{
    (void)state;
    check_wrap("一二三四五六七八九十", 8, "一二三四|五六七八|九十");
    check_wrap("一二三四五", 5, "一二|三四|五"); /* a wide one never straddles the edge */
    check_wrap("一二三。四", 6, "一二|三。四");  /* a full stop starts no line */
    check_wrap("一二「三四」五", 6, "一二|「三|四」五");
    check_wrap("한국어 문장을 접는다", 8, "한국어|문장을|접는다"); /* Korean breaks at spaces */
    check_wrap("mix 漢字 and words", 9, "mix 漢字|and words");
    check_wrap("ABC一二", 4, "ABC|一二");
}

static void wrap_clusters(void **state)
{
    (void)state;
    check_wrap("ab" FARMER "cd", 3, "ab|" FARMER "|cd");
    check_wrap("e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301|e\u0301");
    check_wrap(FLAG FLAG FLAG, 4, FLAG FLAG "|" FLAG);
}

/* Re-wrapping for one more token looks at the last line only, however long the text is. */
static void wrap_tail_only(void **state)
{
    (void)state;
    buf text = {0};
    text_lines lines = {0};
    for (int i = 0; i < 20000; i++)
        buf_puts(&text, "word ");
    text_wrap(&lines, text.data, text.len, 40);
    size_t before = lines.len;
    /* Earlier text is out of sight of the wrapper: it must not be read again. */
    memset(text.data, 'x', lines.lines[lines.len - 1].start);
    buf_puts(&text, "more");
    text_wrap(&lines, text.data, text.len, 40);
    assert_in_range(lines.len, before, before + 1);
    assert_int_equal(lines.lines[0].len, 39);
    text_lines_free(&lines);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),
        cmocka_unit_test(uncertainty),
        cmocka_unit_test(fit),
        cmocka_unit_test(clean_controls),
        cmocka_unit_test(clean_directions),
        cmocka_unit_test(clean_labels),
        cmocka_unit_test(clean_drafts),
        cmocka_unit_test(wrap),
        cmocka_unit_test(wrap_east_asian),
        cmocka_unit_test(wrap_clusters),
        cmocka_unit_test(wrap_tail_only),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
