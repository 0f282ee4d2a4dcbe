/* Markdown as rows: what is shown, that streaming in any pieces gives the same rows, that a token
 * costs the same in a long answer, that nothing harmful comes out. */
#include "ui/markdown.h"
#include "ui/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The rows as text, one line each. */
static void write_rows(const markdown *m, buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < m->sheet.n_rows; i++) {
        const markdown_row *r = &m->sheet.rows[i];
        buf_append(out, m->sheet.text.data + r->text, r->len);
        buf_putc(out, '\n');
    }
}

static void expect(const char *source, int width, const char *rows)
{
    markdown m = {0};
    buf out = {0};
    markdown_update(&m, source, strlen(source), width, true);
    write_rows(&m, &out);
    assert_string_equal(buf_str(&out), rows);
    buf_free(&out);
    markdown_free(&m);
}

static void blocks(void **state)
{
    (void)state;
    expect("# A *title*\ntext\nnext line\n\n\nmore", 20, "A title\n\ntext\nnext line\n\nmore\n");
    expect("one two three four", 9, "one two\nthree\nfour\n");
    expect("- one\n- two and more\n  - in\n\n- three", 10,
           "• one\n• two and\n  more\n  • in\n• three\n");
    expect("3. a\n3. b\n\n   c\n\n- x", 20, "3. a\n4. b\n   \n   c\n\n• x\n");
    expect("- [x] done\n- [ ] open", 20, "[x] done\n[ ] open\n");
    expect("> quoted text here\n> - item", 14, "│ quoted text\n│ here\n│ \n│ • item\n");
    expect("a\n\n***\nb", 4, "a\n\n────\n\nb\n");
    expect("Head\n====\ntext", 20, "Head\n\ntext\n");
    expect("x\n\n    code\n\n    more\n\ny", 20, "x\n\n  code\n  \n  more\n\ny\n");
    expect("", 20, "");
    expect("\n\n", 20, "");
    expect("-", 20, "• \n");
}

static void code(void **state)
{
    (void)state;
    expect("a\n```c\nint x;\n\n\tif\n```\nb", 20, "a\n\nc\n  int x;\n  \n      if\n\nb\n");
    expect("```\nabcdefgh\n```", 6, "  abcd\n  efgh\n");
    expect("```\nnever ends", 20, "  never ends\n");
    expect("~~~\n```\n~~~\n", 20, "  ```\n");
    expect("1. x\n   ```\n   in\n   ```\n", 20, "1. x\n   \n     in\n");
    expect("`a` b ``c`d``", 20, "a b c`d\n");
}

static void tables(void **state)
{
    (void)state;
    expect("|A|Number|\n|---|-----:|\n|漢字|7|\n|c|12|\n", 30,
           "A    │ Number\n─────┼───────\n漢字 │      7\nc    │     12\n");
    expect("|A|B|\n|---|---|\n|one two three|x|\n", 12,
           "A        │ B\n─────────┼──\none two  │ x\nthree    │ \n");
    expect("|A|B|\n|---|---|\n|one two|x|\n", 6, "A\nB\none\ntwo\nx\n");
}

static void spans(void **state)
{
    (void)state;
    expect("**b** *e* ~~d~~ [t](http://a.b) <http://c.d>", 60, "b e d t (http://a.b) http://c.d\n");
    expect("www.a.b and x@y.z", 60, "www.a.b and x@y.z\n");
    expect("![alt](p.png)", 60, "alt (p.png)\n");
    expect("<b>no</b> a &lt; b &amp; c &unknown; &#228;", 60, "<b>no</b> a < b & c &unknown; ä\n");
}

static style style_of(const markdown *m, const char *text)
{
    const char *all = m->sheet.text.data, *at = strstr(all, text);
    assert_non_null(at);
    size_t i = 0;
    while (i + 1 < m->sheet.n_runs && m->sheet.runs[i + 1].text <= (size_t)(at - all))
        i++;
    return (style)m->sheet.runs[i].style;
}

static void styles(void **state)
{
    (void)state;
    static const char source[] =
        "# Top\nplain **strong** *soft* `mono` [link](u)\n\n"
        "```python\nreturn 'text' + 42  # why\n\"\"\"doc\nreturn\n\"\"\"\n```\n"
        "```unknown\nreturn 1\n```\n";
    markdown m = {0};
    markdown_update(&m, source, sizeof source - 1, 60, true);
    assert_int_equal(style_of(&m, "Top"), STYLE_HEADING);
    assert_int_equal(style_of(&m, "plain"), STYLE_TEXT);
    assert_int_equal(style_of(&m, "strong"), STYLE_STRONG);
    assert_int_equal(style_of(&m, "soft"), STYLE_EMPHASIS);
    assert_int_equal(style_of(&m, "mono"), STYLE_CODE);
    assert_int_equal(style_of(&m, "link"), STYLE_LINK);
    assert_int_equal(style_of(&m, "return 'text'"), STYLE_CODE_WORD);
    assert_int_equal(style_of(&m, "'text'"), STYLE_CODE_STRING);
    assert_int_equal(style_of(&m, "42"), STYLE_CODE_NUMBER);
    assert_int_equal(style_of(&m, "# why"), STYLE_CODE_COMMENT);
    assert_int_equal(style_of(&m, "doc"), STYLE_CODE_STRING);
    assert_int_equal(style_of(&m, "return 1"), STYLE_CODE);
    markdown_free(&m);
}

/* --- streams ---------------------------------------------------------------------------------- */

static const char mixed[] =
    "# Title with *emphasis*\n\nA paragraph with **bold**, `code`, a [link](http://a.b/c) that "
    "goes on for a while, so that it wraps; and **this is a long strong part over two rows**.\n"
    "Second line; &amp; &#27;[2J &hellip;\n\n- one\n- two has a longer text that wraps\n"
    "  - nested **x**\n- three\n\n1. first\n\n   more of the first\n2. second\n\n> quoted text "
    "that "
    "is long enough to wrap\n> - in quote\n\n| Name | Age |\n|:-----|----:|\n| Ann  | 3 |\n"
    "| 漢字 | 12 |\n\n```python\ndef f(x):  # comment\n\treturn \"str\" + 1\n\n```\n\n    "
    "indented\n"
    "\nSetext\n------\n- [x] done\n***\nThe end 👩‍🌾 of it: "
    "漢字漢字漢字漢字漢字漢字漢字 "
    "שלום "
    "مرحبا नमस्ते e\xcc\x81";

static void in_pieces(void **state)
{
    (void)state;
    static const int widths[] = {1, 7, 10, 24, 50, 100};
    buf whole = {0}, pieces = {0};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        markdown all = {0};
        markdown_update(&all, mixed, sizeof mixed - 1, widths[w], true);
        write_rows(&all, &whole);
        for (size_t step = 1; step < 60; step += step < 8 ? 1 : 17) {
            markdown m = {0};
            for (size_t n = step; n < sizeof mixed - 1; n += step)
                markdown_update(&m, mixed, n, widths[w], false);
            markdown_update(&m, mixed, sizeof mixed - 1, widths[w], false);
            write_rows(&m, &pieces); /* before it is known that no more comes */
            assert_string_equal(buf_str(&pieces), buf_str(&whole));
            markdown_update(&m, mixed, sizeof mixed - 1, widths[w], true);
            write_rows(&m, &pieces);
            assert_string_equal(buf_str(&pieces), buf_str(&whole));
            markdown_free(&m);
        }
        markdown_free(&all);
    }
    buf_free(&whole);
    buf_free(&pieces);
}

/* Where rows come from never goes back, and points into the text. */
static void sources(void **state)
{
    (void)state;
    for (int width = 1; width < 90; width += 8) {
        markdown m = {0};
        markdown_update(&m, mixed, sizeof mixed - 1, width, true);
        for (size_t i = 1; i < m.sheet.n_rows; i++)
            assert_true(m.sheet.rows[i].source >= m.sheet.rows[i - 1].source);
        assert_true(m.sheet.rows[m.sheet.n_rows - 1].source < sizeof mixed);
        markdown_free(&m);
    }
}

/* --- cost ------------------------------------------------------------------------------------- */

#define TOKEN 4 /* bytes */

/* Bytes laid out for each of 100 tokens, from the nth on. */
static double cost_at(const char *text, size_t n)
{
    markdown m = {0};
    size_t from = n * TOKEN;
    for (size_t at = TOKEN; at <= from; at += TOKEN)
        markdown_update(&m, text, at, 80, false);
    unsigned long long before = m.work;
    for (size_t at = from + TOKEN; at <= from + 100 * TOKEN; at += TOKEN)
        markdown_update(&m, text, at, 80, false);
    double cost = (double)(m.work - before) / 100;
    markdown_free(&m);
    return cost;
}

static void fill(buf *text, const char *start, const char *part)
{
    buf_clear(text);
    buf_puts(text, start);
    while (text->len < (10000 + 100) * TOKEN)
        buf_puts(text, part);
}

static void cost(void **state)
{
    (void)state;
    static const struct {
        const char *name, *start, *part;
    } shapes[] = {
        {"a paragraph", "", "one long paragraph with some words in it, on and on "},
        {"a paragraph with styles", "", "one with **bold** and `code` in it, on and on it goes "},
        {"a line of code", "```c\n", "x = x + 1; "},
        {"a code block", "```c\n", "int f(void) { return 1; } // says so\n"},
        {"a list", "", "- an item with **bold** text in it\n"},
        {"paragraphs", "", "A paragraph of a line or so, as they come, one after another.\n\n"},
        {"an open mark", "**", "one long paragraph with some words in it, on and on "},
    };
    buf text = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fill(&text, shapes[i].start, shapes[i].part);
        double early = cost_at(text.data, 100), late = cost_at(text.data, 10000);
        print_message("%-24s %7.1f bytes a token at 100, %7.1f at 10,000\n", shapes[i].name, early,
                      late);
        bool soft = strcmp(shapes[i].name, "an open mark") == 0; /* up to the soft limit */
        assert_true(late <= (soft ? 2048 : early * 1.2));
    }
    buf_free(&text);
}

/* --- hostile ---------------------------------------------------------------------------------- */

static void harmless(void **state)
{
    (void)state;
    static const char source[] = "&#27;]52;c;x&#7; &#x1b;[2J &#x9b;m &#8238;x &#0; &#1114112; "
                                 "&#xD800; &#99999999999999;";
    markdown m = {0};
    buf out = {0};
    markdown_update(&m, source, sizeof source - 1, 200, true);
    write_rows(&m, &out);
    for (size_t i = 0; i + 1 < out.len; i++) {
        unsigned char c = (unsigned char)out.data[i];
        assert_true(c >= 0x20 && c != 0x7f);
        assert_false(c == 0xC2 && (unsigned char)out.data[i + 1] < 0xA0);
    }
    assert_non_null(strstr(out.data, "␛]52;c;x␇"));
    assert_non_null(strstr(out.data, "<202E>x"));
    buf_free(&out);
    markdown_free(&m);
}

/* Deep nesting, endless marks, links that never end: no crash, rows not too wide. */
static void odd(void **state)
{
    (void)state;
    static const char *const parts[] = {"> ",   "- ",    "* ",      "1. ", "`",   "```\n", "~~~",
                                        "[",    "](",    "**",      "_",   "|",   "|-|\n", "\n",
                                        "\n\n", "    ",  "\t",      "# ",  "===", "<a",    "&#1",
                                        "漢",   "word ", "http://", "\\",  "!",   "---\n", "x"};
    uint32_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        buf text = {0};
        markdown m = {0};
        int width = 1 + round % 40;
        for (int i = 0; i < 60; i++) {
            seed = seed * 1664525u + 1013904223u;
            buf_puts(&text, parts[(seed >> 8) % (sizeof parts / sizeof *parts)]);
            markdown_update(&m, buf_str(&text), text.len, width, false);
        }
        markdown_update(&m, buf_str(&text), text.len, width, true);
        for (size_t i = 0; i < m.sheet.n_rows; i++)
            assert_true(m.sheet.rows[i].width <= width || width < 12);
        markdown_free(&m);
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),  cmocka_unit_test(code),   cmocka_unit_test(tables),
        cmocka_unit_test(spans),   cmocka_unit_test(styles), cmocka_unit_test(in_pieces),
        cmocka_unit_test(sources), cmocka_unit_test(cost),   cmocka_unit_test(harmless),
        cmocka_unit_test(odd),
    };
    return cmocka_run_group_tests_name("markdown", tests, NULL, NULL);
}
