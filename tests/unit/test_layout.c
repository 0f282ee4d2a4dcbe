#include "ui/frame.h"
#include "ui/layout.h"
#include "ui/saved_layout.h"
#include "ui/strength.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_rect(const layout *l, int pane, int x, int y, int w, int h)
{
    rect r = layout_rect(l, pane);
    assert_int_equal(r.x, x);
    assert_int_equal(r.y, y);
    assert_int_equal(r.w, w);
    assert_int_equal(r.h, h);
}

static void equal_parts(void **state)
{
    (void)state;
    layout l;
    layout_init(&l, 0);
    layout_place(&l, (rect){0, 0, 91, 31});
    assert_true(layout_split(&l, 0, LAYOUT_BESIDE, 1));
    assert_true(layout_split(&l, 1, LAYOUT_BESIDE, 2)); /* three in a row: a third each */
    expect_rect(&l, 0, 0, 0, 31, 31);
    expect_rect(&l, 1, 30, 0, 31, 31);
    expect_rect(&l, 2, 60, 0, 31, 31);
    assert_true(layout_split(&l, 1, LAYOUT_BELOW, 3));
    expect_rect(&l, 1, 30, 0, 31, 16);
    expect_rect(&l, 3, 30, 15, 31, 16);
    int order[LAYOUT_MAX_PANES];
    assert_int_equal(layout_order(&l, order), 4);
    const int expected[] = {0, 1, 3, 2};
    assert_memory_equal(order, expected, sizeof expected);
    assert_int_equal(layout_next(&l, 2), 0);
    assert_int_equal(layout_neighbour(&l, 0, 1, 0), 1);
    assert_int_equal(layout_neighbour(&l, 1, 0, 1), 3);
    assert_int_equal(layout_neighbour(&l, 3, 1, 0), 2);
    assert_int_equal(layout_neighbour(&l, 0, -1, 0), -1);
    assert_true(layout_remove(&l, 1));
    expect_rect(&l, 3, 30, 0, 31, 31);
    assert_true(layout_remove(&l, 0));
    assert_true(layout_remove(&l, 2));
    assert_false(layout_remove(&l, 3));
    expect_rect(&l, 3, 0, 0, 91, 31);
}

static void limits(void **state)
{
    (void)state;
    layout l;
    layout_init(&l, 0);
    layout_place(&l, (rect){0, 0, 300, 100});
    for (int i = 1; i < LAYOUT_MAX_PANES; i++)
        assert_true(layout_split(&l, i - 1, LAYOUT_BESIDE, i));
    assert_false(layout_split(&l, 0, LAYOUT_BESIDE, 9));
    layout_place(&l, (rect){0, 0, 10, 3}); /* smaller than all of them: places stay inside */
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        rect r = layout_rect(&l, i);
        assert_true(r.x >= 0 && r.y >= 0 && r.w >= 1 && r.h >= 1);
        assert_true(r.x + r.w <= 10 && r.y + r.h <= 3);
    }
    layout_init(&l, 0);
    layout_place(&l, (rect){0, 0, 38, 9});
    layout before = l;
    assert_false(layout_split(&l, 0, LAYOUT_BESIDE, 1));
    assert_false(layout_split(&l, 0, LAYOUT_BELOW, 1));
    assert_memory_equal(&l, &before, sizeof l);
}

static void moving_lines(void **state)
{
    (void)state;
    layout l;
    layout_init(&l, 0);
    layout_place(&l, (rect){0, 0, 101, 41});
    assert_true(layout_split(&l, 0, LAYOUT_BESIDE, 1));
    assert_true(layout_split(&l, 1, LAYOUT_BELOW, 2));
    int across = layout_line_at(&l, 50, 7), along = layout_line_at(&l, 70, 20);
    assert_true(across >= 0 && along >= 0 && across != along);
    assert_int_equal(layout_line_at(&l, 10, 7), -1);
    assert_int_equal(layout_at(&l, 70, 20), 2); /* a title belongs to the pane below it */
    for (int x = LAYOUT_MIN_COLS - 1; x <= 101 - LAYOUT_MIN_COLS; x++) { /* exactly there */
        layout_move_line(&l, across, x, 0);
        assert_int_equal(layout_rect(&l, 1).x, x);
    }
    assert_true(layout_move_line(&l, across, 3, 0));
    expect_rect(&l, 0, 0, 0, LAYOUT_MIN_COLS, 41);
    assert_false(layout_move_line(&l, across, 0, 0));
    assert_true(layout_move_line(&l, across, 500, 0));
    assert_int_equal(layout_rect(&l, 1).w, LAYOUT_MIN_COLS);
    assert_true(layout_move_edge(&l, 0, -5, 0)); /* its right edge */
    assert_int_equal(layout_rect(&l, 1).w, LAYOUT_MIN_COLS + 5);
    assert_true(layout_move_edge(&l, 2, -5, 0)); /* its left edge: it has no other */
    assert_int_equal(layout_rect(&l, 2).w, LAYOUT_MIN_COLS + 10);
    assert_true(layout_move_edge(&l, 1, 0, 3));
    assert_int_equal(layout_rect(&l, 2).y, 23);
    assert_false(layout_move_edge(&l, 0, 0, 1)); /* nothing above or below it */
    /* the proportion is kept at other sizes, and no pane gets too small where there is room */
    layout_place(&l, (rect){0, 0, 51, 21});
    assert_in_range(layout_rect(&l, 1).w, LAYOUT_MIN_COLS, 51 - LAYOUT_MIN_COLS + 1);
    layout_place(&l, (rect){0, 0, 101, 41});
    assert_int_equal(layout_rect(&l, 2).y, 23);
    layout_equal(&l);
    expect_rect(&l, 0, 0, 0, 51, 41);
    expect_rect(&l, 2, 50, 20, 51, 21);
}

static void saved(void **state)
{
    (void)state;
    static const char text[] = "preft layout 1\nfocus 2\nzoomed 1\nbeside 6000\npane 12 mira\n"
                               "below 0\npane 0 Ünal 名\npane 0\n";
    saved_layout s = {0};
    pf_err err = {0};
    buf again = {0};
    assert_int_equal(saved_layout_parse(text, strlen(text), "layout", &s, &err), PF_OK);
    layout_place(&s.layout, (rect){0, 0, 101, 41});
    expect_rect(&s.layout, 0, 0, 0, 61, 41);
    expect_rect(&s.layout, 2, 60, 20, 41, 21);
    assert_true(s.zoomed);
    assert_int_equal(s.focus, 2);
    assert_string_equal(s.panes[1].user, "Ünal 名");
    assert_null(s.panes[2].user);
    assert_int_equal(s.panes[0].conversation, 12);
    saved_layout_write(&s, &again);
    assert_string_equal(buf_str(&again), text);
    saved_layout_free(&s);
    /* Cut anywhere, and with any byte changed, it is refused or a layout. */
    for (size_t n = 0; n < strlen(text); n++) {
        char bytes[sizeof text];
        memcpy(bytes, text, sizeof text);
        if (saved_layout_parse(bytes, n, "layout", &s, &err) == PF_OK)
            assert_in_range(layout_count(&s.layout), 1, 3);
        saved_layout_free(&s);
        for (int bit = 0; bit < 8; bit++) {
            bytes[n] = (char)(text[n] ^ (1 << bit));
            if (saved_layout_parse(bytes, strlen(text), "layout", &s, &err) == PF_OK)
                assert_int_equal(layout_count(&s.layout), 3);
            saved_layout_free(&s);
        }
    }
    buf_free(&again);
}

static void saved_refused(void **state)
{
    (void)state;
    static const char head[] = "preft layout 1\nfocus 0\nzoomed 0\n";
    static const char *const bodies[] = {
        "",
        "pane\n",
        "pane x\n",
        "pane -1\n",
        "pane 99999999999999999999\n",
        "pane 0 \n",
        "pane 0 a\xff\n",
        "pane 0\npane 0\n",
        "beside 10000\npane 0\npane 0\n",
        "beside 5000\npane 0\n",
        "beside 1\nbeside 1\nbeside 1\nbeside 1\nbeside 1\nbeside 1\nbeside 1\nbeside 1\n"
        "pane 0\npane 0\npane 0\npane 0\npane 0\npane 0\npane 0\npane 0\npane 0\n",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        saved_layout s;
        pf_err err = {0};
        buf text = {0};
        buf_puts(&text, head);
        buf_puts(&text, bodies[i]);
        if (saved_layout_parse(buf_str(&text), text.len, "FILE", &s, &err) != PF_REFUSED)
            fail_msg("taken: %s", bodies[i]);
        assert_non_null(strstr(err.text, "FILE, line "));
        buf_free(&text);
    }
}

static void borders(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 9, 5);
    frame_box(&g, (rect){0, 0, 5, 5}, STYLE_BORDER);
    frame_box(&g, (rect){4, 0, 5, 3}, STYLE_BORDER);
    frame_box(&g, (rect){4, 2, 5, 3}, STYLE_BORDER_ACTIVE);
    frame_divider(&g, (rect){0, 0, 5, 5}, 2, STYLE_BORDER);
    buf out = {0};
    grid_write_text(&g, &out);
    assert_string_equal(buf_str(&out), "┌───┬───┐\n"
                                       "│   │   │\n"
                                       "├───┼───┤\n"
                                       "│   │   │\n"
                                       "└───┴───┘\n");
    buf_free(&out);
    grid_free(&g);
}

static void hints(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        strength expected;
    } cases[] = {
        {"", STRENGTH_NONE},
        {"password", STRENGTH_WEAK},
        {"aaaaaaaaaaaaaaaaaaaaaaaa", STRENGTH_WEAK},
        {"12345678901234567890", STRENGTH_WEAK},
        {"abababababababababab", STRENGTH_WEAK},
        {"kT9#wq2!zx", STRENGTH_FAIR},
        {"correct horse battery staple", STRENGTH_STRONG},
        {"강아지가 골목에서 노래한다", STRENGTH_STRONG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strength_of(cases[i].text, strlen(cases[i].text)) != cases[i].expected)
            fail_msg("\"%s\" is called %s", cases[i].text,
                     strength_words(strength_of(cases[i].text, strlen(cases[i].text))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts),   cmocka_unit_test(limits),
        cmocka_unit_test(moving_lines),  cmocka_unit_test(saved),
        cmocka_unit_test(saved_refused), cmocka_unit_test(borders),
        cmocka_unit_test(hints),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
