/* Option parser: forms, refusals, hints. */
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct {
    bool flag, other, given;
    const char *text, *maybe;
    int64_t count, seed;
    double rate;
    int kind;
    option_list list;
} opt;

static const char *const kinds[] = {"red", "green", "blue", NULL};

static const option_spec table[] = {
    OPTION_FLAG_SPEC('f', "flag", &opt.flag, "A flag."),
    OPTION_FLAG_SPEC('o', "other", &opt.other, "Another."),
    OPTION_STRING_SPEC('t', "text", &opt.text, "TEXT", "A text.", .given = &opt.given),
    OPTION_STRING_SPEC('y', "maybe", &opt.maybe, "TEXT", "A text.", .optional = "yes"),
    OPTION_INT_SPEC('n', "count", &opt.count, "N", 1, 100, "A number."),
    OPTION_INT_SPEC(0, "seed", &opt.seed, "N", 0, 9.3e18, "Any number."),
    OPTION_REAL_SPEC('r', "rate", &opt.rate, "X", 0, 2, "A real."),
    OPTION_CHOICE_SPEC(0, "colour", &opt.kind, "NAME", kinds, "One of some."),
    OPTION_LIST_SPEC('s', "stop", &opt.list, "TEXT", "A list."),
    OPTIONS_END};
static const option_spec more[] = {OPTION_FLAG_SPEC(0, "count-all", &opt.other, "A long one."),
                                   OPTIONS_END};
static const option_spec *const tables[] = {table, more, NULL};

static char *words[32];
static int n_words;
static pf_err err;

/* Parses the words after the program's name. */
#define PARSE(...) parse((const char *const[]){"preft", __VA_ARGS__, NULL}, false)
static pf_status parse(const char *const *line, bool stop_at_operand)
{
    static char copies[32][64];
    option_list_free(&opt.list);
    memset(&opt, 0, sizeof opt);
    memset(&err, 0, sizeof err);
    for (n_words = 0; line[n_words]; n_words++)
        words[n_words] = strcpy(copies[n_words], line[n_words]);
    words[n_words] = NULL;
    return options_parse(tables, &n_words, words, stop_at_operand, &err);
}

static void assert_refused(pf_status status, const char *part)
{
    assert_int_equal(status, PF_USAGE);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void forms(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--text", "a", "x", "--count=7", "-fo", "-r0.5", "y"), PF_OK);
    assert_string_equal(opt.text, "a");
    assert_true(opt.given && opt.flag && opt.other);
    assert_int_equal(opt.count, 7);
    assert_true(opt.rate == 0.5);
    assert_int_equal(n_words, 3);
    assert_string_equal(words[1], "x");
    assert_string_equal(words[2], "y");
    assert_null(words[3]);

    assert_int_equal(PARSE("-fn9", "--colour", "blue"), PF_OK);
    assert_int_equal(opt.count, 9);
    assert_int_equal(opt.kind, 2);
    assert_int_equal(PARSE("--text="), PF_OK);
    assert_string_equal(opt.text, "");
    assert_int_equal(PARSE("--te=abc"), PF_OK);
    assert_string_equal(opt.text, "abc");
    assert_int_equal(PARSE("-t", "-f"), PF_OK);
    assert_string_equal(opt.text, "-f");
    assert_false(opt.flag);
}

static void operands(void **state)
{
    (void)state;
    assert_int_equal(PARSE("-", "--", "--flag", "-f"), PF_OK);
    assert_int_equal(n_words, 4);
    assert_string_equal(words[1], "-");
    assert_string_equal(words[2], "--flag");
    assert_false(opt.flag);

    const char *const line[] = {"preft", "-f", "run", "--unknown", NULL};
    assert_int_equal(parse(line, true), PF_OK);
    assert_true(opt.flag);
    assert_int_equal(n_words, 3);
    assert_string_equal(words[2], "--unknown");
}

static void repeated(void **state)
{
    (void)state;
    assert_int_equal(PARSE("-s", "a", "--stop=b", "-sc", "--count", "1", "--count", "2"), PF_OK);
    assert_int_equal(opt.list.count, 3);
    assert_string_equal(opt.list.items[0], "a");
    assert_string_equal(opt.list.items[2], "c");
    assert_int_equal(opt.count, 2);
}

static void optional_value(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--maybe", "x"), PF_OK);
    assert_string_equal(opt.maybe, "yes");
    assert_int_equal(n_words, 2);
    assert_int_equal(PARSE("--maybe=z"), PF_OK);
    assert_string_equal(opt.maybe, "z");
}

static void bad_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"5x", "", " 5", "5 ", "0x10", "1e2", "1.0", "--", "five"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(PARSE("--count", bad[i]), "--count takes a whole number");
    assert_refused(PARSE("--count", "0"), "--count must be from 1 to 100, not 0");
    assert_refused(PARSE("-n", "101"), "--count must be from 1 to 100");
    assert_refused(PARSE("--count=99999999999999999999999"), "--count must be from 1 to 100");
    assert_refused(PARSE("--count=-3"), "--count must be from 1 to 100");
    static const char *const bad_reals[] = {"nan", "inf", "0x1p1", "1,5", "1.5.5",
                                            "",    "e",   "-",     "1e"};
    for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++)
        assert_refused(PARSE("--rate", bad_reals[i]), "--rate takes a number");
    assert_refused(PARSE("--rate", "1e99"), "--rate must be from 0 to 2");
    assert_refused(PARSE("--rate", "1e999"), "--rate must be from 0 to 2");
    assert_refused(PARSE("--rate", "-0.1"), "--rate must be from 0 to 2");
    assert_int_equal(PARSE("--seed", "9223372036854775807"), PF_OK);
    assert_true(opt.seed == INT64_MAX);
    assert_refused(PARSE("--seed", "9223372036854775808"), "--seed must be");
    assert_int_equal(PARSE("--rate", "1e-4"), PF_OK);
    assert_true(opt.rate == 1e-4);
}

static void refusals(void **state)
{
    (void)state;
    assert_refused(PARSE("--cuont", "5"), "did you mean --count?");
    assert_refused(PARSE("--zzzzzz"), "unknown option --zzzzzz");
    assert_refused(PARSE("--tezt=secret"), "unknown option --tezt: did you mean --text?");
    assert_null(strstr(err.text, "secret"));
    assert_refused(PARSE("-z"), "unknown option -z");
    assert_refused(PARSE("-fz"), "unknown option -z");
    assert_refused(PARSE("--cou", "5"), "--cou could be --count or --count-all");
    assert_int_equal(PARSE("--count", "5"), PF_OK);
    assert_refused(PARSE("--flag=1"), "--flag takes no value");
    assert_refused(PARSE("--text"), "--text needs a value (TEXT)");
    assert_refused(PARSE("-t"), "--text needs a value");
    assert_refused(PARSE("--colour=pink"), "red, green, blue");
    assert_refused(PARSE("-\xC3\xA9"), "unknown option -\xC3\xA9");
}

static void nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenize", "detokenize", "train", "render", NULL};
    assert_string_equal(nearest_name("tokenise", names), "tokenize");
    assert_string_equal(nearest_name("tarin", names), "train");
    assert_null(nearest_name("xyzzy", names));
    assert_null(nearest_name("", names));
    char letters[400];
    memset(letters, 'a', sizeof letters);
    letters[sizeof letters - 1] = '\0';
    assert_null(nearest_name(letters, names));
}

static int release(void **state)
{
    (void)state;
    option_list_free(&opt.list);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),          cmocka_unit_test(operands),    cmocka_unit_test(repeated),
        cmocka_unit_test(optional_value), cmocka_unit_test(bad_numbers), cmocka_unit_test(refusals),
        cmocka_unit_test(nearest),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
