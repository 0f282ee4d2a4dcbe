/* Themes: every style in every theme, few colours, none, what the environment asks for. */
#include "ui/theme.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int fresh(void **state)
{
    (void)state;
    unsetenv("NO_COLOR");
    unsetenv("COLORFGBG");
    return theme_choose("auto") ? 0 : 1;
}

static void every_theme(void **state)
{
    (void)state;
    static const int colors[] = {0, 2, 8, 16, 256};
    for (int t = 0; theme_names[t]; t++) {
        assert_true(theme_choose(theme_names[t]));
        assert_string_equal(theme_chosen(), theme_names[t]);
        for (size_t c = 0; c < sizeof colors / sizeof *colors; c++) {
            const theme *looks = theme_for_terminal(colors[c]);
            int most = colors[c] < 8 ? -1 : colors[c] == 8 ? 7 : 15;
            for (int s = 0; s < STYLE_COUNT; s++) {
                assert_in_range(looks->looks[s].foreground + 1, 0, most + 1);
                assert_in_range(looks->looks[s].background + 1, 0, most + 1);
            }
            /* What is chosen can always be told from the rest. */
            assert_true(memcmp(&looks->looks[STYLE_SELECTED], &looks->looks[STYLE_TEXT],
                               sizeof(look)) != 0);
        }
    }
    assert_false(theme_choose("pink"));
}

/* Text is never drawn in the colour of its own ground, and the contrast theme never dims. */
static void readable(void **state)
{
    (void)state;
    for (int t = 0; theme_names[t]; t++) {
        theme_choose(theme_names[t]);
        const theme *looks = theme_for_terminal(8);
        for (int s = 0; s < STYLE_COUNT; s++) {
            const look *l = &looks->looks[s];
            assert_true(l->foreground == THEME_DEFAULT_COLOR || l->foreground != l->background);
            if (strcmp(theme_names[t], "high-contrast") != 0) continue;
            assert_false(l->dim);
            assert_int_not_equal(l->background, THEME_DEFAULT_COLOR);
        }
    }
}

static void environment(void **state)
{
    (void)state;
    theme dark, light;
    theme_choose("dark");
    dark = *theme_for_terminal(256);
    theme_choose("light");
    light = *theme_for_terminal(256);
    theme_choose("auto");
    const theme *looks = theme_for_terminal(256);
    assert_memory_equal(looks, &dark, sizeof dark);
    setenv("COLORFGBG", "0;default;15", 1);
    assert_memory_equal(theme_for_terminal(256), &light, sizeof light);
    setenv("COLORFGBG", "15;0", 1);
    assert_memory_equal(theme_for_terminal(256), &dark, sizeof dark);
    setenv("NO_COLOR", "1", 1);
    theme_for_terminal(256);
    for (int s = 0; s < STYLE_COUNT; s++)
        assert_int_equal(looks->looks[s].foreground, THEME_DEFAULT_COLOR);
    theme_choose("dark"); /* asked for by name: it wins */
    assert_memory_equal(looks, &dark, sizeof dark);
    setenv("NO_COLOR", "", 1); /* empty: not set */
    theme_choose("auto");
    assert_memory_equal(looks, &dark, sizeof dark);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_theme, fresh),
        cmocka_unit_test_setup(readable, fresh),
        cmocka_unit_test_setup(environment, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, fresh);
}
