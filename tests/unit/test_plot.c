/* Curves and bars made of characters. */
#include "ui/plot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_curve(int w, int h, plot_kind kind, const float *values, size_t n,
                         const char *expected)
{
    grid g = {0};
    buf text = {0};
    grid_resize(&g, w, h);
    area_clear(grid_area(&g), STYLE_TEXT);
    plot_curve(grid_area(&g), STYLE_GOOD, kind, values, n, 0, 4);
    grid_write_text(&g, &text);
    assert_string_equal(buf_str(&text), expected);
    buf_free(&text);
    grid_free(&g);
}

static void curves(void **state)
{
    (void)state;
    static const float falling[] = {4, 3, 2, 1};
    expect_curve(2, 1, PLOT_BRAILLE, falling, 4, "⣷⣄\n");
    expect_curve(4, 2, PLOT_BLOCKS, falling, 4, "█▄\n███▄\n");
    /* fewer values are stretched, more are averaged */
    expect_curve(4, 1, PLOT_BRAILLE, falling, 2, "⣿⣿⣶⣶\n");
    expect_curve(1, 1, PLOT_BRAILLE, falling, 4, "⣧\n");
    /* the lowest value shows, what is too high ends at the top, what is no number leaves a gap */
    static const float odd[] = {0, 100, NAN, -INFINITY, 4, 4};
    expect_curve(3, 1, PLOT_BRAILLE, odd, 6, "⣸ ⣿\n");
    expect_curve(3, 1, PLOT_BRAILLE, odd, 0, "\n");
}

static void bars(void **state)
{
    (void)state;
    static const struct {
        double share;
        const char *expected;
    } cases[] = {{0, "░░░░\n"}, {0.5, "██░░\n"},         {1, "████\n"},
                 {7, "████\n"}, {(double)NAN, "░░░░\n"}, {-1, "░░░░\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        grid g = {0};
        buf text = {0};
        grid_resize(&g, 4, 1);
        plot_bar(grid_area(&g), STYLE_GOOD, cases[i].share);
        grid_write_text(&g, &text);
        assert_string_equal(buf_str(&text), cases[i].expected);
        buf_free(&text);
        grid_free(&g);
    }
}

static void terminals(void **state)
{
    (void)state;
    setenv("TERM", "linux", 1);
    assert_int_equal(plot_kind_of_terminal(), PLOT_BLOCKS);
    setenv("TERM", "xterm-256color", 1);
    assert_int_equal(plot_kind_of_terminal(), PLOT_BRAILLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves),
        cmocka_unit_test(bars),
        cmocka_unit_test(terminals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
