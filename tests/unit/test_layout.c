#include "ui/frame.h"
#include "ui/layout.h"
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
        cmocka_unit_test(equal_parts),
        cmocka_unit_test(limits),
        cmocka_unit_test(borders),
        cmocka_unit_test(hints),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
