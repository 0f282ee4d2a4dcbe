#include "ui/grid.h"

#include "ui/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const grid *g, const char *expected)
{
    buf out = {0};
    grid_write_text(g, &out);
    assert_string_equal(buf_str(&out), expected);
    buf_free(&out);
}

/* Every row's widths add up to the number of columns. */
static void check_widths(const grid *g)
{
    for (int y = 0; y < g->rows; y++) {
        int sum = 0;
        for (int x = 0; x < g->cols; x++) {
            const cell *c = grid_at(g, x, y);
            sum += c->width;
            if (c->width == 2) assert_int_equal(grid_at(g, x + 1, y)->len, 0);
            if (c->len == 0) assert_int_equal(grid_at(g, x - 1, y)->width, 2);
        }
        assert_int_equal(sum, g->cols);
    }
}

static void borders_stay(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 12, 4);
    area a = grid_area(&g);
    area_box(a, STYLE_BORDER, "名前 of a pane", STYLE_TITLE);
    area inside = area_sub(a, 1, 1, 10, 2);
    area_put(inside, 0, 0, STYLE_TEXT, "一二三四五六");
    area_put(inside, 1, 1, STYLE_TEXT, "一二三四五六"); /* the fifth would straddle the edge */
    check(&g, "┌ 名前 … ──┐\n"
              "│一二三四五│\n"
              "│ 一二三四 │\n"
              "└──────────┘\n");
    check_widths(&g);
    grid_free(&g);
}

static void halves(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 6, 1);
    area a = grid_area(&g);
    area_put(a, 0, 0, STYLE_TEXT, "一二三");
    area_put(a, 1, 0, STYLE_TEXT, "x"); /* over the right half of 一 */
    check_widths(&g);
    check(&g, " x二三\n");
    area_put(a, 3, 0, STYLE_TEXT, "四"); /* over halves of 二 and 三 */
    check_widths(&g);
    check(&g, " x 四\n");
    area_put(a, -1, 0, STYLE_TEXT, "ab"); /* begins left of the area */
    check(&g, "bx 四\n");
    grid_free(&g);
}

static void clipping(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 5, 3);
    area a = area_sub(grid_area(&g), 1, 1, 3, 1);
    assert_int_equal(area_put(a, 0, 0, STYLE_TEXT, "abcdef"), 3);
    area_put(a, 0, 1, STYLE_TEXT, "no");
    area_put(a, 0, -1, STYLE_TEXT, "no");
    area_put(a, 7, 0, STYLE_TEXT, "no");
    area_put_right(a, 0, STYLE_TEXT, "longer than the area z");
    area_hline(a, 2, 0, 9, STYLE_TEXT, "-");
    area_vline(a, 2, 0, 9, STYLE_TEXT, "-");
    area empty = area_sub(a, 5, 5, 10, 10);
    assert_int_equal(empty.w * empty.h, 0);
    area_put(empty, 0, 0, STYLE_TEXT, "no");
    area_box(empty, STYLE_TEXT, "no", STYLE_TEXT);
    area_cursor(empty, 0, 0);
    assert_false(g.cursor_shown);
    for (int x = 0; x < 5; x++) {
        assert_int_equal(grid_at(&g, x, 0)->text[0], ' ');
        assert_int_equal(grid_at(&g, x, 2)->text[0], ' ');
    }
    assert_int_equal(grid_at(&g, 0, 1)->text[0], ' ');
    assert_int_equal(grid_at(&g, 4, 1)->text[0], ' ');
    grid_free(&g);
}

static void long_clusters(void **state)
{
    (void)state;
    buf text = {0};
    buf_puts(&text, "a");
    for (int i = 0; i < 100; i++)
        buf_puts(&text, "\u0301");
    buf_puts(&text, "b");
    grid g = {0};
    grid_resize(&g, 4, 1);
    area_text(grid_area(&g), 0, 0, STYLE_TEXT, text.data, text.len);
    assert_true(grid_at(&g, 0, 0)->len <= CELL_TEXT);
    assert_int_equal(grid_at(&g, 0, 0)->len % 2, 1); /* whole marks only */
    assert_int_equal(grid_at(&g, 1, 0)->text[0], 'b');
    grid_free(&g);
    buf_free(&text);
}

static void tabs(void **state)
{
    (void)state;
    grid g = {0};
    grid_resize(&g, 10, 1);
    area_put(grid_area(&g), 0, 0, STYLE_TEXT, "a\tb\t\tc");
    check(&g, "a   b\n");
    assert_int_equal(grid_at(&g, 4, 0)->text[0], 'b');
    grid_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders_stay),  cmocka_unit_test(halves), cmocka_unit_test(clipping),
        cmocka_unit_test(long_clusters), cmocka_unit_test(tabs),
    };
    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
