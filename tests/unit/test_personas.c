/* Trained profiles on the real model, from outside: imported into a store, measured by `preft
 * eval`, compared with what another implementation answered.
 *
 * Needs $PREFT_TEST_MODEL and $PREFT_PERSONAS, a folder with trained/NAME/{adapter_config.json,
 * adapter_model.safetensors, expected.json}; expected.json holds {"mean_score", "answers": [{
 * "prompt_ids", "greedy" (without the end token), "margins"}]}. Prompts and checks are in
 * tests/data/personas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "support/scratch.h"

/* Below these margins two correct programs may choose differently: integer kernels round
 * activations to eight bits, float ones differ in the order of their sums. */
#define MARGIN_INTEGER  0.5
#define MARGIN_FLOAT    0.01
#define SCORE_TOLERANCE 0.05

typedef struct {
    const char *model, *personas, *preft;
    char *folder;
} fixture;

/* Runs preft with words that the format makes, its output in folder/out. */
static void __attribute__((format(printf, 2, 3))) preft(const fixture *f, const char *format, ...)
{
    char words[2000], line[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(line, sizeof line, "'%s' %s >'%s/out' 2>'%s/err' </dev/null", f->preft, words,
             f->folder, f->folder);
    if (system(line) == 0) return;
    char path[500];
    buf err = {0};
    snprintf(path, sizeof path, "%s/err", f->folder);
    scratch_read(path, &err);
    fail_msg("%s: %s", line, buf_str(&err));
}

static json_t *read_json(const char *folder, const char *name)
{
    char path[1000];
    buf text = {0};
    json_t *json = NULL;
    pf_err err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    scratch_read(path, &text);
    if (json_parse(buf_str(&text), text.len, path, &json, &err) != PF_OK) fail_msg("%s", err.text);
    buf_free(&text);
    return json;
}

static const fixture *need_all(void **state)
{
    const fixture *f = *state;
    if (f->model && f->personas) return f;
    print_message("skipped: %s names no folder or file\n",
                  f->model ? "PREFT_PERSONAS" : "PREFT_TEST_MODEL");
    skip();
    return NULL;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->model = getenv("PREFT_TEST_MODEL");
    f->personas = getenv("PREFT_PERSONAS");
    f->preft = getenv("PREFT") ? getenv("PREFT") : "./preft";
    if (f->model && access(f->model, R_OK) != 0) f->model = NULL;
    if (f->personas && access(f->personas, R_OK) != 0) f->personas = NULL;
    f->folder = scratch_make();
    char *pass = scratch_write(f->folder, "pass", "correct horse\n", 14);
    char *home = malloc(strlen(f->folder) + 10);
    chmod(pass, 0600);
    sprintf(home, "%s/home", f->folder);
    setenv("PREFT_HOME", home, 1);
    setenv("PREFT_CONFIG", "", 1);
    free(home);
    free(pass);
    if (!f->model || !f->personas) return 0;
    preft(f, "user add --kdf interactive --passphrase-file '%s/pass' Robin", f->folder);
    static const char *const profiles[] = {"letter-lorap", "memory-lorap", "letter-direftp"};
    for (size_t i = 0; i < 3; i++)
        preft(f,
              "profile import --user Robin --passphrase-file '%s/pass' --model '%s' %s "
              "'%s/trained/%s'",
              f->folder, f->model, profiles[i], f->personas, profiles[i]);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    scratch_remove(f->folder);
    free(f);
    return 0;
}

/* --- comparing ------------------------------------------------------------------------------ */

static bool same_ids(const json_t *a, const json_t *b)
{
    return json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b) == 1;
}

/* The answer to the prompt with these ids. */
static const json_t *find_answer(const json_t *report, const json_t *prompt_ids)
{
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(report, "items"), i, item)
    {
        const json_t *answer = json_array_get(json_object_get(item, "answers"), 0);
        if (same_ids(json_object_get(answer, "prompt_ids"), prompt_ids)) return answer;
    }
    return NULL;
}

/* The same ids as expected, the end token after them, up to the first margin below the bound.
 * Returns the number of ids that were compared. */
static size_t expect_ids(const json_t *expected, const json_t *answer, double bound)
{
    const json_t *want = json_object_get(expected, "greedy"),
                 *margins = json_object_get(expected, "margins"),
                 *got = json_object_get(answer, "ids");
    size_t n = json_array_size(want);
    for (size_t i = 0; i < n; i++) {
        json_int_t a = json_integer_value(json_array_get(got, i)),
                   b = json_integer_value(json_array_get(want, i));
        double margin = json_number_value(json_array_get(margins, i));
        if (a == b && i < json_array_size(got)) continue;
        if (margin < bound) return i;
        fail_msg("%s: token %zu is %lld instead of %lld, with a margin of %g",
                 json_string_value(json_object_get(answer, "text")), i, (long long)a, (long long)b,
                 margin);
    }
    assert_int_equal(json_array_size(got), n + 1);
    return n;
}

/* Measures a profile and compares the expected answers among those it gave. */
static json_t *measure(const fixture *f, const char *profile, const char *set, const char *isa,
                       const char *more, double bound, size_t n_expected)
{
    char trained[1000];
    preft(f,
          "eval --json --user Robin --passphrase-file '%s/pass' --model '%s' --profile %s --isa %s "
          "--data tests/data/personas/%s/eval.jsonl --check tests/data/personas/%s/check.json %s",
          f->folder, f->model, profile, isa, set, set, more);
    json_t *report = read_json(f->folder, "out");
    snprintf(trained, sizeof trained, "%s/trained/%s", f->personas, profile);
    json_t *expected = read_json(trained, "expected.json");
    const json_t *one;
    size_t i, found = 0, compared = 0, all = 0;
    json_array_foreach(json_object_get(expected, "answers"), i, one)
    {
        const json_t *answer = find_answer(report, json_object_get(one, "prompt_ids"));
        if (!answer) continue;
        found++;
        compared += expect_ids(one, answer, bound);
        all += json_array_size(json_object_get(one, "greedy"));
    }
    double score = json_number_value(json_object_get(report, "score")),
           wanted = json_number_value(json_object_get(expected, "mean_score"));
    print_message("%s on %s: score %.3f, expected %.3f; %zu of %zu ids compared\n", profile, isa,
                  score, wanted, compared, all);
    assert_int_equal(found, n_expected);
    if (json_array_size(json_object_get(report, "items")) == 40 &&
        fabs(score - wanted) > SCORE_TOLERANCE + 1e-9)
        fail_msg("%s: score %g instead of %g", profile, score, wanted);
    json_decref(expected);
    return report;
}

/* --- tests ---------------------------------------------------------------------------------- */

static void test_letter_lorap(void **state)
{
    const fixture *f = need_all(state);
    json_decref(measure(f, "letter-lorap", "letter", "avx2", "", MARGIN_INTEGER, 12));
}

static void test_letter_direftp(void **state)
{
    const fixture *f = need_all(state);
    json_decref(measure(f, "letter-direftp", "letter", "avx2", "", MARGIN_INTEGER, 12));
}

/* Trained with replay: little damage elsewhere, hardly a leak. */
static void test_memory_lorap(void **state)
{
    const fixture *f = need_all(state);
    json_t *report = measure(f, "memory-lorap", "memory", "avx2",
                             "--damage tests/data/personas/general.jsonl", MARGIN_INTEGER, 12);
    const json_t *damage = json_object_get(report, "damage");
    double base = json_number_value(json_object_get(damage, "loss_base")),
           own = json_number_value(json_object_get(damage, "loss"));
    int leaks = (int)json_integer_value(json_object_get(damage, "leaks"));
    print_message("damage: %.3f instead of %.3f, %d leaks\n", own, base, leaks);
    assert_int_equal(json_integer_value(json_object_get(damage, "n")), 30);
    assert_true(fabs(base - 0.62) < 0.05);
    assert_true(fabs(own - 0.72) < 0.08);
    assert_true(leaks <= 4);
    json_decref(report);
}

/* In plain C nothing is rounded: the same ids but for ties. */
static void test_exact(void **state)
{
    const fixture *f = need_all(state);
    json_decref(measure(f, "letter-lorap", "letter", "ref", "--limit 2", MARGIN_FLOAT, 2));
    json_decref(measure(f, "letter-direftp", "letter", "ref", "--limit 2", MARGIN_FLOAT, 2));
    json_decref(measure(f, "memory-lorap", "memory", "ref", "--limit 3", MARGIN_FLOAT, 3));
}

static void test_without_a_profile(void **state)
{
    const fixture *f = need_all(state);
    static const char *const sets[] = {"letter", "memory"};
    for (size_t i = 0; i < 2; i++) {
        preft(f,
              "eval --json --model '%s' --limit 8 --data tests/data/personas/%s/eval.jsonl "
              "--check tests/data/personas/%s/check.json base",
              f->model, sets[i], sets[i]);
        json_t *report = read_json(f->folder, "out");
        assert_true(json_number_value(json_object_get(report, "score")) == 0);
        assert_int_equal(json_integer_value(json_object_get(report, "n")), 8);
        json_decref(report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_letter_lorap),      cmocka_unit_test(test_letter_direftp),
        cmocka_unit_test(test_memory_lorap),      cmocka_unit_test(test_exact),
        cmocka_unit_test(test_without_a_profile),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
