/* Errors: what becomes of texts that are long, ill-formed or full of control characters. */
#include "base/err.h"
#include "base/utf8.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void plain(void **state)
{
    (void)state;
    pf_err err = {0};
    assert_int_equal(err_set(&err, PF_REFUSED, "%s: %d", "a file", 7), PF_REFUSED);
    assert_int_equal(err.status, PF_REFUSED);
    assert_string_equal(err.text, "a file: 7");
    assert_int_equal(err_context(&err, "reading %s", "x"), PF_REFUSED);
    assert_string_equal(err.text, "reading x: a file: 7");
    assert_int_equal(err_errno(&err, PF_FAILED, ENOENT, "y"), PF_FAILED);
    assert_string_equal(err.text, "y: No such file or directory");
    assert_int_equal(err_set(NULL, PF_BUSY, "nobody asks"), PF_BUSY);
}

/* Names and pieces of files stand in messages, which go to a terminal. */
static void harmless(void **state)
{
    (void)state;
    pf_err err = {0};
    err_set(&err, PF_REFUSED, "key \"%s\"",
            "\x1b[2J\a\x7f\xc2\x9b"
            "1m\r");
    assert_string_equal(err.text, "key \"?[2J???1m?\"");
    err_set(&err, PF_REFUSED, "%s", "two\nlines\tand a tab");
    assert_string_equal(err.text, "two lines and a tab");
    err_set(&err, PF_REFUSED, "%s|%.1s|%s", "\xff", "\xc3\xa9", "\xc3\xa9\xe2\x82");
    assert_string_equal(err.text, "?|?|\xc3\xa9?");
}

static void cut(void **state)
{
    (void)state;
    pf_err err = {0};
    char text[3000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    for (int shift = 0; shift < 3; shift++) {
        err_set(&err, PF_REFUSED, "%.*s%s", shift, "ab", text);
        size_t len = strlen(err.text);
        assert_true(len < sizeof err.text && len > sizeof err.text - 8);
        assert_true(utf8_valid(err.text, len));
        assert_string_equal(err.text + len - 3, "...");
        assert_null(strchr(err.text, '?'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(harmless),
        cmocka_unit_test(cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
