#include "ui/keys.h"
#include "ui/script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void good(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n"
                               "\n"
                               "\"ab\\x41\\e[A\\\"\" Enter Ctrl-O Alt-Left é\n"
                               ":wait idle\n"
                               ":wait text \"a b\" 7\n"
                               ":resize 100x40\n"
                               ":screen\n"
                               ":clock 19:02\n"
                               "  :wheel up 3 4\n";
    script *s = NULL;
    pf_err err = {0};
    assert_int_equal(script_parse(text, sizeof text - 1, "t", &s, &err), PF_OK);
    assert_int_equal(script_len(s), 11);
    assert_string_equal(buf_str(&script_at(s, 0)->text), "abA\033[A\"");
    assert_int_equal(script_at(s, 0)->line, 3);
    assert_int_equal(script_at(s, 1)->key, KEY_ENTER);
    assert_int_equal(script_at(s, 3)->key, KEY_ALT | KEY_LEFT);
    assert_int_equal(script_at(s, 4)->key, 0xE9);
    assert_int_equal(script_at(s, 6)->kind, STEP_WAIT_TEXT);
    assert_true(script_at(s, 6)->limit_s == 7);
    assert_int_equal(script_at(s, 7)->x, 100);
    assert_int_equal(script_at(s, 7)->y, 40);
    assert_int_equal(script_at(s, 10)->kind, STEP_WHEEL_UP);
    script_free(s);
}

static void bad(void **state)
{
    (void)state;
    static const char *const cases[] = {
        ":nosuch",      "Nokey",        "\"open",      "\"\\q\"",         "\"\\x4\"",
        ":wait",        ":wait for",    ":wait gone",  ":wait text",      ":wait text x",
        ":wait idle 0", ":wait idle x", ":resize 80",  ":resize 0x5",     ":resize 80x24x1",
        ":pane 0",      ":pane 9",      ":click 1",    ":wheel left 1 1", ":clock 7:00",
        ":limit -1",    ":sleep",       ":screen a b", ":expect",         ":answer 2",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf text = {0};
        script *s = NULL;
        pf_err err = {0};
        buf_printf(&text, "# first\nEnter\n%s\n", cases[i]);
        if (script_parse(text.data, text.len, "t", &s, &err) != PF_USAGE)
            fail_msg("\"%s\" was accepted", cases[i]);
        if (!strstr(err.text, "t, line 3: ")) fail_msg("\"%s\": %s", cases[i], err.text);
        buf_free(&text);
    }
    script *s = NULL;
    assert_int_equal(script_parse("\"a\0b\"\n", 6, "t", &s, NULL), PF_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad)};
    return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
