/* Configuration file: lines, sections, refusals with the place. */
#include "base/config.h"
#include "base/file.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    bool quiet;
    const char *model;
    int64_t threads;
} opt;

static const option_spec table[] = {
    OPTION_FLAG_SPEC(0, "quiet", &opt.quiet, "Quiet."),
    OPTION_STRING_SPEC(0, "model", &opt.model, "NAME", "Model."),
    OPTION_INT_SPEC(0, "threads", &opt.threads, "N", 0, 64, "Threads."), OPTIONS_END};
static const option_spec *const tables[] = {table, NULL};

static char *path;
static config values;
static pf_err err;

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    path = path_join(tmp ? tmp : "/tmp", "preft-config-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int remove_folder(void **state)
{
    (void)state;
    config_free(&values);
    unlink(path);
    free(path);
    return 0;
}

static pf_status read_text(const char *text, size_t len)
{
    config_free(&values);
    memset(&opt, 0, sizeof opt);
    assert_int_equal(file_write_atomic(path, text, len, 0600, &err), PF_OK);
    return config_read(path, &values, NULL, &err);
}

static void assert_refused(pf_status status, const char *part)
{
    assert_int_equal(status, PF_USAGE);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void values_and_sections(void **state)
{
    (void)state;
    static const char text[] =
        "# note\n; note\n\n  threads =  4 \r\nquiet = yes\nmodel = \" a b \"\n"
        "[run]\nthreads=8\nmodel = x = y";
    assert_int_equal(read_text(text, sizeof text - 1), PF_OK);
    assert_int_equal(config_apply(&values, "", tables, NULL, &err), PF_OK);
    assert_int_equal(opt.threads, 4);
    assert_true(opt.quiet);
    assert_string_equal(opt.model, " a b ");
    assert_int_equal(config_apply(&values, "run", tables, NULL, &err), PF_OK);
    assert_int_equal(opt.threads, 8);
    assert_string_equal(opt.model, "x = y");
    assert_int_equal(config_apply(&values, "chat", tables, NULL, &err), PF_OK);
}

#define READ(text) read_text(text, sizeof(text) - 1)

static void refusals(void **state)
{
    (void)state;
    assert_refused(READ("quiet = yes\nthreads\n"), "line 2: expected");
    assert_refused(READ("= 5\n"), "line 1: no name");
    assert_refused(READ("[run\n"), "line 1: the ] is missing");
    assert_refused(READ("a = \0b\n"), "not a text file");

    assert_int_equal(READ("\n\nthraeds = 4\n"), PF_OK);
    assert_refused(config_apply(&values, "", tables, NULL, &err), "line 3: unknown option thraeds");
    assert_non_null(strstr(err.text, "did you mean threads?"));
    assert_int_equal(READ("threads = many\n"), PF_OK);
    assert_refused(config_apply(&values, "", tables, NULL, &err),
                   "line 1: threads takes a whole number");
    assert_int_equal(READ("quiet = perhaps\n"), PF_OK);
    assert_refused(config_apply(&values, "", tables, NULL, &err), "yes or no");

    unlink(path);
    config_free(&values);
    assert_int_equal(config_read(path, &values, NULL, &err), PF_NOT_FOUND);
    assert_null(values.entries);
}

/* With a place for problems the rest holds. */
static void problems(void **state)
{
    (void)state;
    buf text = {0};
    static const char file[] = "quiet = yes\nthreads\nthreads = x\nmodle = m\nmodel = m\n";
    assert_int_equal(file_write_atomic(path, file, sizeof file - 1, 0600, &err), PF_OK);
    memset(&opt, 0, sizeof opt);
    config_free(&values);
    assert_int_equal(config_read(path, &values, &text, &err), PF_OK);
    assert_int_equal(config_apply(&values, "", tables, &text, &err), PF_OK);
    assert_true(opt.quiet);
    assert_string_equal(opt.model, "m");
    assert_non_null(strstr(buf_str(&text), "line 2: expected"));
    assert_non_null(strstr(buf_str(&text), "line 3: threads takes"));
    assert_non_null(strstr(buf_str(&text), "line 4: unknown option modle: did you mean model?"));
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_sections),
        cmocka_unit_test(refusals),
        cmocka_unit_test(problems),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
