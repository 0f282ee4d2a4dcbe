/* Rewards: every rule, what is refused, bounds on hostile expressions and programs. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "support/cpu_time.h"
#include "support/scratch.h"
#include "train/eval/answer_value.h"
#include "train/eval/instructions.h"
#include "train/eval/reward.h"
#include "train/eval/sandbox.h"
#include "train/span.h"

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    pf_err err = {0};
    if (json_parse(text, strlen(text), "test", &json, &err) != PF_OK)
        fail_msg("%s: %s", text, err.text);
    return json;
}

static reward *read_rules(const char *text)
{
    json_t *json = parse(text);
    reward *r = NULL;
    pf_err err = {0};
    if (reward_read(json, "check.json", &r, &err) != PF_OK) fail_msg("%s: %s", text, err.text);
    json_decref(json);
    return r;
}

/* One rule, one item, one answer. */
typedef struct {
    const char *rule, *item, *answer;
    double score;
} rule_case;

static void run_cases(const rule_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf rules = {0};
        buf_printf(&rules, "[%s]", cases[i].rule);
        reward *r = read_rules(buf_str(&rules));
        json_t *item = parse(cases[i].item ? cases[i].item : "{}");
        pf_err err = {0};
        if (reward_check_item(r, item, &err) != PF_OK) fail_msg("%s: %s", cases[i].rule, err.text);
        reward_result got = reward_score(r, item, cases[i].answer, strlen(cases[i].answer), NULL);
        double difference = got.score - cases[i].score;
        if (difference < -1e-9 || difference > 1e-9)
            fail_msg("case %zu, %s of \"%s\": %g instead of %g", i, cases[i].rule, cases[i].answer,
                     got.score, cases[i].score);
        assert_int_equal(got.all_hold, cases[i].score == 1);
        json_decref(item);
        reward_free(r);
        buf_free(&rules);
    }
}
#define RUN_CASES(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

static void test_text_rules(void **state)
{
    (void)state;
#define STARTS "{\"type\":\"starts_with\",\"value\":\"Dear Robin,\"}"
#define ENDS   "{\"type\":\"ends_with\",\"value\":\"Pip.\"}"
#define WORDS  "{\"type\":\"word_count\",\"min\":2,\"max\":3}"
#define EVERY  "{\"type\":\"every_line_starts_with\",\"value\":\"- \"}"
#define LINES  "{\"type\":\"lines_starting_with\",\"value\":\"- \",\"equals\":2}"
#define ONLY                                                                                       \
    "{\"type\":\"lines_starting_with\",\"value\":\"- \",\"equals\":2,\"no_other_lines\":true}"
#define LOWER "{\"type\":\"no_upper_case\"}"
#define FEW   "{\"type\":\"no_upper_case\",\"max_share\":0.5}"
#define GERMAN                                                                                     \
    "{\"type\":\"stopwords\",\"want\":[\"der\",\"und\",\"für\"],\"other\":[\"the\",\"and\"],"     \
    "\"min_want\":2}"
    static const rule_case cases[] = {
        {STARTS, NULL, " \n Dear Robin,\nyes", 1},
        {STARTS, NULL, "dear Robin,", 0},
        {STARTS, NULL, "Dear", 0},
        {STARTS, NULL, "", 0},
        {ENDS, NULL, "Warmly, Pip.\u00a0\n\n", 1},
        {ENDS, NULL, "Pip. and more", 0},
        {WORDS, NULL, "one", 0},
        {WORDS, NULL, "one two", 1},
        {WORDS, NULL, "  one\ttwo\u2003three\n", 1},
        {WORDS, NULL, "a b c d", 0},
        {WORDS, NULL, "hyphen-ated ... words", 1},
        {"{\"type\":\"word_count\",\"max\":2}", NULL, "", 1},
        {"{\"type\":\"word_count\",\"min\":1}", NULL, "", 0},
        {EVERY, NULL, "- a\n\n- b\r\n", 1},
        {EVERY, NULL, "- a\nb", 0},
        {EVERY, NULL, "\n\n", 0},
        {LINES, NULL, "Intro\n- a\n- b", 1},
        {LINES, NULL, "- a\n- b\n- c", 0},
        {ONLY, NULL, "- a\n- b", 1},
        {ONLY, NULL, "Intro\n- a\n- b", 0},
        {LOWER, NULL, "all small, 123 ßé", 1},
        {LOWER, NULL, "One", 0},
        {LOWER, NULL, "élan Écrit", 0},
        {FEW, NULL, "Ab", 1},
        {FEW, NULL, "ABc", 0},
        {GERMAN, NULL, "Der Hund UND die Katze", 1},
        {GERMAN, NULL, "Für den Hund", 0},
        {GERMAN, NULL, "der und the and", 0},
        {GERMAN, NULL, "wunder bunder", 0},
    };
    RUN_CASES(cases);
}

static void test_new_words(void **state)
{
    (void)state;
#define NEW(range) "{\"type\":\"new_words\"," range "}"
#define ASKED                                                                                      \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief\"},"                               \
    "{\"role\":\"user\",\"content\":\"Why do cats purr?\"},"                                       \
    "{\"role\":\"assistant\",\"content\":\"They feel safe.\"},"                                    \
    "{\"role\":\"user\",\"content\":\"Does Élan count?\"}]}"
    static const rule_case cases[] = {
        {NEW("\"min\":1"), ASKED, "Why do cats purr?", 0},
        {NEW("\"min\":1"), ASKED, "CATS purr; élan, élan 123!", 0}, /* in any case, letters only */
        {NEW("\"min\":1"), ASKED, "", 0},
        {NEW("\"min\":1"), ASKED, "Cats purr when cats purr.", 1},
        {NEW("\"min\":4"), ASKED, "They feel safe, be cats.", 1}, /* others' words are new */
        {NEW("\"min\":5"), ASKED, "They feel safe, be cats.", 0},
        {NEW("\"min\":2"), ASKED, "purring, purring", 1}, /* each time */
        {NEW("\"min\":1"), ASKED, "cat", 1},              /* whole words */
        {NEW("\"max\":1"), ASKED, "Cats purr loudly and do.", 0},
        {NEW("\"max\":1"), ASKED, "Cats do purr loudly.", 1},
        {NEW("\"min\":2"), "{\"turns\":[\"One?\",\"And two?\"]}", "one and three", 0},
        {NEW("\"min\":1"), "{\"turns\":[\"One?\",\"And two?\"]}", "one and three", 1},
    };
    RUN_CASES(cases);
}

static void test_regex(void **state)
{
    (void)state;
#define REGEX(value) "{\"type\":\"regex\",\"value\":\"" value "\"}"
    static const rule_case cases[] = {
        {REGEX("^Dear [A-Z][a-z]+,$"), NULL, " Dear Robin, ", 1},
        {REGEX("^one$"), NULL, "zero\none\ntwo", 0}, /* ends of the answer, not of lines */
        {REGEX("one.two"), NULL, "one\ntwo", 1},
        {REGEX("^.$"), NULL, "é", 1}, /* a character, not a byte */
        {REGEX("(ab){2,3}c"), NULL, "xababcx", 1},
        {REGEX("(ab){2,3}c"), NULL, "xabcx", 0},
        {REGEX("[]\\\\^-]"), NULL, "]", 1},
        {REGEX("[[:digit:]]+ euros?"), NULL, "15 euros", 1},
        {REGEX("a|b"), NULL, "c", 0},
        {REGEX("\\\\."), NULL, "no dot", 0},
    };
    RUN_CASES(cases);
    /* With embedded NULs the whole answer is searched. */
    reward *r = read_rules("[{\"type\":\"regex\",\"value\":\"end$\"}]");
    json_t *item = parse("{}");
    assert_true(reward_score(r, item, "a\0end", 5, NULL).all_hold);
    json_decref(item);
    reward_free(r);
}

/* None of these may take long or much memory. */
static void test_regex_hostile(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "(",
        "[a",
        "a{2",
        "a{3,2}",
        "*{",
        "(a)\\\\1",
        "(a*)*\\\\9",
        "",
        "a{1,100000}",
        "((((a{30}){30}){30}){30}){30}",
        "[[:nothing:]]",
        "[z-a]",
        "a\\u0000b",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        buf text = {0};
        buf_printf(&text, "[{\"type\":\"regex\",\"value\":\"%s\"}]", refused[i]);
        json_t *json = parse(buf_str(&text));
        reward *r = NULL;
        pf_err err = {0};
        if (reward_read(json, "c", &r, &err) != PF_REFUSED) fail_msg("%s is taken", refused[i]);
        if (!strstr(err.text, "rules[0]: regex")) fail_msg("%s: %s", refused[i], err.text);
        json_decref(json);
        buf_free(&text);
    }
    buf nested = {0};
    buf_puts(&nested, "[{\"type\":\"regex\",\"value\":\"");
    for (int i = 0; i < 1000; i++)
        buf_putc(&nested, '(');
    for (int i = 0; i < 1000; i++)
        buf_putc(&nested, ')');
    buf_puts(&nested, "\"}]");
    json_t *json = parse(buf_str(&nested));
    reward *r = NULL;
    assert_int_equal(reward_read(json, "c", &r, NULL), PF_REFUSED);
    json_decref(json);
    buf_free(&nested);

    buf answer = {0};
    for (int i = 0; i < 3000; i++)
        buf_putc(&answer, 'a');
    static const char *const slow[] = {"^(a+)+$b", "(a|a)*b", "(a*)*b", "^(a|aa)+$b", "(.*)*x"};
    json_t *item = parse("{}");
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        buf text = {0};
        buf_printf(&text, "[{\"type\":\"regex\",\"value\":\"%s\"}]", slow[i]);
        r = read_rules(buf_str(&text));
        int64_t begin = cpu_time_ns();
        assert_false(reward_score(r, item, answer.data, answer.len, NULL).all_hold);
        if (cpu_time_ns() - begin > 10000000000) fail_msg("%s takes too long", slow[i]);
        reward_free(r);
        buf_free(&text);
    }
    json_decref(item);
    buf_free(&answer);
}

static void test_item_rules(void **state)
{
    (void)state;
#define CONTAINS "{\"type\":\"contains_expect\"}"
#define FOLDED   "{\"type\":\"contains_expect\",\"ignore_case\":true}"
#define NUMBER   "{\"type\":\"last_number\"}"
#define BOXED    "{\"type\":\"boxed\"}"
#define CHOICE   "{\"type\":\"choice\"}"
#define NEAR     "{\"type\":\"length_near\",\"unit\":\"words\",\"target\":4}"
    static const rule_case cases[] = {
        {CONTAINS, "{\"expect\":[\"Ghent\",\"Gent\"]}", "I live in Gent.", 1},
        {CONTAINS, "{\"expect\":\"Ghent\"}", "ghent", 0},
        {FOLDED, "{\"expect\":[\"Ghent\"]}", "GHENT!", 1},
        {FOLDED, "{\"expect\":[\"ÉLAN\"]}", "an élan", 1},
        {NUMBER, "{\"expect\":\"1,234\"}", "First 5, then $1,234.", 1},
        {NUMBER, "{\"expect\":\"18\"}", "16 - 3 - 4 = 9; 9 * 2 = 18.00", 1},
        {NUMBER, "{\"expect\":\"-3\"}", "It is -3 degrees", 1},
        {NUMBER, "{\"expect\":\"2\"}", "3-2", 1},
        {NUMBER, "{\"expect\":\"-5\"}", "a loss of -$5", 1},
        {NUMBER, "{\"expect\":\"18\"}", "18 or 19", 0},
        {NUMBER, "{\"expect\":\"0.5\"}", "so .5", 1},
        {NUMBER, "{\"expect\":\"7\"}", "none", 0},
        {BOXED, "{\"expect\":\"\\\\frac{1}{2}\"}", "so $\\boxed{\\dfrac12}$.", 1},
        {BOXED, "{\"expect\":\"\\\\frac{1}{2}\"}", "\\boxed{1} and \\boxed{ 1/2 }", 1},
        {BOXED, "{\"expect\":\"0.5\"}", "\\boxed{.5}", 1},
        {BOXED, "{\"expect\":\"5\"}", "\\boxed{x=5}", 1},
        {BOXED, "{\"expect\":\"\\\\sqrt{3}\"}", "\\fbox{\\sqrt3}", 1},
        {BOXED, "{\"expect\":\"30\"}", "$\\boxed 30$", 1},
        {BOXED, "{\"expect\":\"12\"}", "\\boxed{12\\text{ cm}}", 1},
        {BOXED, "{\"expect\":\"\\\\left(1,2\\\\right)\"}", "\\boxed{(1, 2)}", 1},
        {BOXED, "{\"expect\":\"5\"}", "the answer is 5", 0},
        {BOXED, "{\"expect\":\"5\"}", "\\boxed{5", 0},
        {CHOICE, "{\"expect\":\"B\"}", "B", 1},
        {CHOICE, "{\"expect\":\"B\"}", "(B) Paris", 1},
        {CHOICE, "{\"expect\":\"B\"}", "The answer is: **B**.", 1},
        {CHOICE, "{\"expect\":\"B\"}", "A is wrong. The correct answer is B.", 1},
        {CHOICE, "{\"expect\":\"A\"}", "A good question.", 0},
        {CHOICE, "{\"expect\":\"C\"}", "I think (C) fits", 1},
        {CHOICE, "{\"expect\":\"C\"}", "either (B) or (C)", 0},
        {NEAR, NULL, "one two three four", 1},
        {NEAR, NULL, "one two three", 0.5},
        {NEAR, NULL, "one two", 0},
        {NEAR, NULL, "1 2 3 4 5 6", 0.5},
        {NEAR, NULL, "1 2 3 4 5 6 7 8", 0},
        {NEAR, NULL, "", 0},
        {NEAR, "{\"target\":2}", "one two", 1},
        {"{\"type\":\"length_near\",\"unit\":\"characters\"}", "{\"target\":3}", "äöü", 1},
        {"{\"type\":\"length_near\",\"unit\":\"lines\",\"target\":2}", NULL, "a\n\nb", 1},
    };
    RUN_CASES(cases);
}

static void test_weights(void **state)
{
    (void)state;
    reward *r = read_rules("{\"name\":\"letter\",\"rules\":["
                           "{\"type\":\"starts_with\",\"value\":\"a\",\"weight\":0.25},"
                           "{\"type\":\"ends_with\",\"value\":\"z\",\"weight\":0.75,"
                           "\"note\":\"a note\"}]}");
    json_t *item = parse("{}");
    double values[2] = {9, 9};
    assert_int_equal(reward_count(r), 2);
    assert_string_equal(reward_type(r, 1), "ends_with");
    assert_true(reward_most(r) == 1);
    assert_false(reward_runs_programs(r));
    reward_result half = reward_score(r, item, "a b", 3, values);
    assert_true(half.score == 0.25 && !half.all_hold && values[0] == 1 && values[1] == 0);
    reward_result full = reward_score(r, item, "a z", 3, NULL);
    assert_true(full.score == 1 && full.all_hold);
    json_decref(item);
    reward_free(r);
}

/* A required rule is a condition: an answer that breaks it is worth nothing, whatever holds. */
static void test_required(void **state)
{
    (void)state;
    reward *r = read_rules("[{\"type\":\"starts_with\",\"value\":\"a\",\"weight\":0.5},"
                           "{\"type\":\"length_near\",\"target\":4,\"weight\":0.25,"
                           "\"required\":false},"
                           "{\"type\":\"ends_with\",\"value\":\"z\",\"weight\":0.25,"
                           "\"required\":true},"
                           "{\"type\":\"word_count\",\"max\":4,\"weight\":0,"
                           "\"required\":true}]");
    static const struct {
        const char *answer;
        double score;
    } cases[] = {{"a b c z", 1}, {"b b c z", 0.5}, {"a b z", 0.875}, /* no condition is broken */
                 {"a b c d", 0}, {"a b c d z", 0}, {"", 0}};
    json_t *item = parse("{}");
    assert_true(reward_most(r) == 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double values[4] = {9, 9, 9, 9};
        const char *answer = cases[i].answer;
        reward_result got = reward_score(r, item, answer, strlen(answer), values);
        if (got.score != cases[i].score)
            fail_msg("\"%s\": %g instead of %g", answer, got.score, cases[i].score);
        assert_int_equal(got.all_hold, i == 0);
        assert_true(values[0] == (answer[0] == 'a')); /* the values themselves stay */
    }
    json_decref(item);
    reward_free(r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *says;
    } cases[] = {
        {"{}", "\"rules\""},
        {"[]", "rules"},
        {"{\"rules\":5}", "rules"},
        {"[5]", "rules[0]"},
        {"[{}]", "\"type\" is missing"},
        {"[{\"type\":7}]", "\"type\" must be a string"},
        {"[{\"type\":\"start_with\"}]", "did you mean \"starts_with\""},
        {"[{\"type\":\"starts_with\"}]", "rules[0]: starts_with: \"value\" is missing"},
        {"[{\"type\":\"starts_with\",\"value\":5}]", "\"value\" must be a string"},
        {"[{\"type\":\"starts_with\",\"value\":\"\"}]", "empty"},
        {"[{\"type\":\"no_upper_case\"},{\"type\":\"ends_with\",\"valu\":\"x\"}]",
         "rules[1]: ends_with: unknown key \"valu\": did you mean \"value\""},
        {"[{\"type\":\"no_upper_case\",\"weight\":-1}]", "\"weight\""},
        {"[{\"type\":\"no_upper_case\",\"weight\":\"1\"}]", "\"weight\""},
        {"[{\"type\":\"no_upper_case\",\"weight\":0}]", "weights of all rules are 0"},
        {"[{\"type\":\"no_upper_case\",\"required\":1}]", "\"required\""},
        {"[{\"type\":\"no_upper_case\",\"require\":true}]", "did you mean \"required\""},
        {"[{\"type\":\"no_upper_case\",\"max_share\":1.5}]", "\"max_share\""},
        {"[{\"type\":\"word_count\"}]", "\"min\" or \"max\""},
        {"[{\"type\":\"word_count\",\"min\":3,\"max\":2}]", "\"max\" is 2"},
        {"[{\"type\":\"word_count\",\"min\":-1}]", "\"min\" is -1"},
        {"[{\"type\":\"word_count\",\"min\":1.5}]", "whole number"},
        {"[{\"type\":\"lines_starting_with\",\"value\":\"-\"}]", "\"equals\" is missing"},
        {"[{\"type\":\"stopwords\",\"want\":[\"a\"]}]", "\"other\" is missing"},
        {"[{\"type\":\"stopwords\",\"want\":[\"two words\"],\"other\":[\"b\"]}]", "want[0]"},
        {"[{\"type\":\"length_near\",\"unit\":\"miles\"}]", "words, characters and lines"},
        {"[{\"type\":\"length_near\",\"target\":0}]", "\"target\" is 0"},
        {"[{\"type\":\"instructions\",\"level\":\"x\"}]", "\"level\""},
        {"[{\"type\":\"command\"}]", "\"argv\" is missing"},
        {"[{\"type\":\"command\",\"argv\":[]}]", "\"argv\""},
        {"[{\"type\":\"command\",\"argv\":[\"no-such-program-at-all\"]}]", "argv[0]"},
        {"[{\"type\":\"command\",\"argv\":[\"/bin/true\"],\"seconds\":0}]", "\"seconds\""},
        {"[{\"type\":\"command\",\"argv\":[\"/bin/true\"],\"megabytes\":0}]", "\"megabytes\""},
        {"[{\"type\":\"command\",\"argv\":[\"/bin/true\",\"a\\u0000b\"]}]", "argv[1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = parse(cases[i].rules);
        reward *r = NULL;
        pf_err err = {0};
        assert_int_equal(reward_read(json, "check.json", &r, &err), PF_REFUSED);
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, "check.json"))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].rules, err.text, cases[i].says);
        json_decref(json);
    }
}

static void test_items_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *item, *says;
    } cases[] = {
        {CONTAINS, "{}", "\"expect\""},
        {CONTAINS, "{\"expect\":[]}", "\"expect\""},
        {CONTAINS, "{\"expect\":[\"a\",5]}", "expect[1]"},
        {CONTAINS, "{\"expect\":[\"\"]}", "expect[0]"},
        {NUMBER, "{\"expect\":\"many\"}", "no number"},
        {CHOICE, "{\"expect\":\"b\"}", "letter"},
        {"{\"type\":\"length_near\"}", "{}", "\"target\""},
        {"{\"type\":\"length_near\"}", "{\"target\":-4}", "\"target\""},
        {"{\"type\":\"instructions\"}", "{\"instructions\":[]}", "\"instructions\""},
        {"{\"type\":\"instructions\"}", "{\"instructions\":[{\"id\":\"x:y\"}]}",
         "instructions[0]: unknown instruction"},
        {"{\"type\":\"instructions\"}",
         "{\"instructions\":[{\"id\":\"length_constraints:number_words\",\"kwargs\":{"
         "\"num_words\":null,\"relation\":\"at least\"}}]}",
         "\"num_words\""},
        {"{\"type\":\"instructions\"}",
         "{\"instructions\":[{\"id\":\"language:response_language\",\"kwargs\":{\"language\":"
         "\"de\"}}]}",
         "without a model"},
        {"{\"type\":\"new_words\",\"min\":1}", "{\"messages\":[]}", "\"turns\""},
        {"{\"type\":\"program\",\"argv\":[\"/bin/true\"]}", "{}", "\"program\""},
        {"{\"type\":\"program\",\"argv\":[\"/bin/true\"]}", "{\"program\":{\"after\":1}}",
         "\"after\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf rules = {0};
        buf_printf(&rules, "[%s]", cases[i].rule);
        reward *r = read_rules(buf_str(&rules));
        json_t *item = parse(cases[i].item);
        pf_err err = {0};
        assert_int_equal(reward_check_item(r, item, &err), PF_REFUSED);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s with %s: \"%s\" lacks \"%s\"", cases[i].rule, cases[i].item, err.text,
                     cases[i].says);
        json_decref(item);
        reward_free(r);
        buf_free(&rules);
    }
}

/* --- instructions --------------------------------------------------------------------------- */

static void test_instructions(void **state)
{
    (void)state;
    static const struct {
        const char *id, *arguments, *yes, *no;
    } cases[] = {
        {"keywords:existence", "{\"keywords\":[\"fish\",\"sea\"]}", "The Sea has fish", "fish"},
        {"keywords:frequency", "{\"keyword\":\"ha\",\"frequency\":2,\"relation\":\"at least\"}",
         "Ha ha", "ha"},
        {"keywords:frequency", "{\"keyword\":\"ha\",\"frequency\":2,\"relation\":\"less than\"}",
         "ha", "ha ha"},
        {"keywords:forbidden_words", "{\"forbidden_words\":[\"the\"]}", "other", "in The end"},
        {"keywords:letter_frequency",
         "{\"letter\":\"o\",\"let_frequency\":2,\"let_relation\":\"at least\"}", "Oo", "o"},
        {"length_constraints:number_sentences", "{\"num_sentences\":3,\"relation\":\"less than\"}",
         "One 1.5. Two", "A. B! C?"},
        {"length_constraints:number_paragraphs", "{\"num_paragraphs\":2}", "a\n***\nb",
         "a\n***\n***\nb"},
        {"length_constraints:number_words", "{\"num_words\":3,\"relation\":\"at least\"}",
         "one, two - three", "one two"},
        {"length_constraints:nth_paragraph_first_word",
         "{\"num_paragraphs\":2,\"nth_paragraph\":2,\"first_word\":\"then\"}",
         "One.\n\n\"Then, two", "Then\n\nOne"},
        {"detectable_content:number_placeholders", "{\"num_placeholders\":2}", "[name] at [town]",
         "[name]"},
        {"detectable_content:postscript", "{\"postscript_marker\":\"P.S.\"}", "x\np.s. y", "x"},
        {"detectable_format:number_bullet_lists", "{\"num_bullets\":2}", "* a\n- b\n**c**",
         "* a\n* b\n* c"},
        {"detectable_format:constrained_response", "{}", "My answer is no.", "No"},
        {"detectable_format:number_highlighted_sections", "{\"num_highlights\":2}",
         "*one* and **two**", "*one* and ** ** or *"},
        {"detectable_format:multiple_sections",
         "{\"section_spliter\":\"Section\",\"num_sections\":2}", "Section 1\na\nSection 2\nb",
         "Section 1\na Section of b"},
        {"detectable_format:json_format", "{}", "```json\n{\"a\": [1]}\n```", "{\"a\": }"},
        {"detectable_format:title", "{}", "<<A title>>\nx", "<< >>"},
        {"combination:two_responses", "{}", "one\n******\ntwo", "one\n******\none"},
        {"combination:repeat_prompt", "{\"prompt_to_repeat\":\"Say it\"}", "say it: yes", "yes"},
        {"startend:end_checker", "{\"end_phrase\":\"The End\"}", "x the end\"", "the end x"},
        {"startend:quotation", "{}", "\"so\"", "so\""},
        {"change_case:capital_word_frequency",
         "{\"capital_frequency\":2,\"capital_relation\":\"at least\"}", "GO now, STOP!", "GO Now"},
        {"change_case:english_capital", "{}", "ALL OF IT 5", "Most OF IT"},
        {"change_case:english_lowercase", "{}", "all of it", "All of it"},
        {"punctuation:no_comma", "{}", "a b", "a, b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf text = {0};
        buf_printf(&text, "{\"id\":\"%s\",\"kwargs\":%s}", cases[i].id, cases[i].arguments);
        json_t *instruction = parse(buf_str(&text));
        pf_err err = {0};
        if (instruction_check(instruction, &err) != PF_OK) fail_msg("%s", err.text);
        if (!instruction_followed(instruction, span_of(cases[i].yes)))
            fail_msg("%s does not hold for \"%s\"", cases[i].id, cases[i].yes);
        if (instruction_followed(instruction, span_of(cases[i].no)))
            fail_msg("%s holds for \"%s\"", cases[i].id, cases[i].no);
        instruction_followed(instruction, span_of(""));
        json_decref(instruction);
        buf_free(&text);
    }
    assert_true(instruction_needs_model("language:response_language"));
    assert_false(instruction_needs_model("punctuation:no_comma"));
    static const rule_case shares[] = {
        {"{\"type\":\"instructions\",\"level\":\"instruction\"}",
         "{\"instructions\":[{\"id\":\"punctuation:no_comma\",\"kwargs\":{}},"
         "{\"id\":\"startend:quotation\",\"kwargs\":{}}]}",
         "no comma", 0.5},
        {"{\"type\":\"instructions\"}",
         "{\"instructions\":[{\"id\":\"punctuation:no_comma\",\"kwargs\":{}},"
         "{\"id\":\"startend:quotation\",\"kwargs\":{}}]}",
         "no comma", 0},
    };
    RUN_CASES(shares);
}

/* --- programs ------------------------------------------------------------------------------- */

static void test_command(void **state)
{
    (void)state;
#define SHELL(script, more) "{\"type\":\"command\",\"argv\":[\"sh\",\"-c\",\"" script "\"]" more "}"
    static const rule_case cases[] = {
        {SHELL("test \\\"$(cat)\\\" = hello", ""), NULL, "  hello \n", 1},
        {SHELL("exit 3", ""), NULL, "x", 0},
        {SHELL("sh -c 'kill -9 $$'", ""), NULL, "x", 0},
        {SHELL("sleep 60", ",\"seconds\":0.3"), NULL, "x", 0},
        {SHELL("sleep 60 & sleep 60 & wait", ",\"seconds\":0.3"), NULL, "x", 0},
        {SHELL("test -z \\\"$SECRET_OF_THE_TEST\\\"", ""), NULL, "x", 1},
        {SHELL("cat > /dev/null; cat; exit 0", ""), NULL, "read twice", 1},
        {"{\"type\":\"program\",\"argv\":[\"sh\"]}",
         "{\"program\":{\"before\":\"a=1\\n\",\"after\":\"test $a = 2\\n\"}}",
         "Here it is:\n```sh\na=2\n```\nDone", 1},
        {"{\"type\":\"program\",\"argv\":[\"sh\"]}",
         "{\"program\":{\"before\":\"a=1\\n\",\"after\":\"test $a = 2\\n\"}}", "a=3", 0},
    };
    setenv("SECRET_OF_THE_TEST", "1", 1);
    int64_t begin = clock_monotonic_ns();
    RUN_CASES(cases);
    assert_true(clock_monotonic_ns() - begin < 30000000000);
}

static sandbox_end run_shell(const char *script, double seconds, int megabytes, int *code)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const sandbox_options options = {argv, seconds, megabytes};
    sandbox_end end = SANDBOX_CRASHED;
    pf_err err = {0};
    if (sandbox_run(&options, "", 0, &end, code, &err) != PF_OK) fail_msg("%s", err.text);
    return end;
}

static void test_sandbox_limits(void **state)
{
    (void)state;
    int code = -1;
    assert_int_equal(run_shell("exit 7", 10, 256, &code), SANDBOX_EXITED);
    assert_int_equal(code, 7);
    assert_int_equal(run_shell("while :; do :; done", 0.3, 256, &code), SANDBOX_TOO_LONG);
    /* 64 MiB of address space don't hold a text of 200 MiB. */
    run_shell("a=x; i=0; while [ $i -lt 28 ]; do a=$a$a; i=$((i+1)); done; exit 0", 20, 64, &code);
    assert_int_not_equal(code, 0);
    /* Nothing inherited but the three standard descriptors. */
    int fd = dup(0);
    assert_int_equal(run_shell("test $(ls /proc/self/fd | wc -l) -le 4", 10, 256, &code),
                     SANDBOX_EXITED);
    assert_int_equal(code, 0);
    close(fd);
}

/* Takes in the children that come to this process, or are its own, until there are none. */
static bool all_end(int64_t seconds)
{
    const int64_t deadline = clock_monotonic_ns() + seconds * 1000000000;
    while (clock_monotonic_ns() < deadline) {
        pid_t got = waitpid(-1, NULL, WNOHANG);
        if (got < 0 && errno == ECHILD) return true;
        if (got == 0) usleep(1000);
    }
    return false;
}

/* The program that is killed while it waits for one leaves nothing behind, at whatever moment. */
static void test_sandbox_ends_with_us(void **state)
{
    (void)state;
    const char *const argv[] = {"/bin/sleep", "120", NULL};
    const sandbox_options options = {argv, 120, 256};
    (void)sandbox_isolated(); /* so that the children know */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    for (unsigned wait_us = 100; wait_us < 200000; wait_us += wait_us / 2) {
        pid_t child = fork();
        if (child == 0) {
            sandbox_end end;
            int code = 0;
            (void)sandbox_run(&options, "", 0, &end, &code, NULL);
            _exit(0);
        }
        assert_true(child > 0);
        usleep(wait_us);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_true(all_end(60));
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

static void test_sandbox_isolation(void **state)
{
    (void)state;
    if (!sandbox_isolated()) skip();
    char *folder = scratch_make(), *script = NULL;
    char *file = scratch_write(folder, "mine", "x", 1);
    int code = -1;
    script = malloc(1000);
    snprintf(script, 1000, "test -r %s && ! (echo y > %s) && ! rm -f %s", file, file, file);
    run_shell(script, 10, 256, &code);
    assert_int_equal(code, 0);
    assert_int_equal(access(file, F_OK), 0);
    /* A place of its own to write, no network device but a loopback that is down, its own processes
     * only. */
    run_shell("echo x > $TMPDIR/a && test -s $TMPDIR/a", 10, 256, &code);
    assert_int_equal(code, 0);
    run_shell("test $(grep -c : /proc/self/net/dev) -le 1", 10, 256, &code);
    assert_int_equal(code, 0);
    snprintf(script, 1000, "kill -0 %d", (int)getpid());
    run_shell(script, 10, 256, &code);
    assert_int_not_equal(code, 0);
    free(script);
    free(file);
    scratch_remove(folder);
}

static void test_words_that_begin_so(void **state)
{
    static const struct {
        const char *text, *word;
        bool found;
    } cases[] = {{"Masters of stealth.", "teal", false},
                 {"In teal-green.", "teal", true},
                 {"Stealth, and (Teal)", "teal", true},
                 {"teal", "Teal", true},
                 {"Hazelnuts!", "hazelnut", true},
                 {"pré"
                  "teal",
                  "teal", false},
                 {"", "teal", false},
                 {"tea", "teal", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (span_has_word(span_of(cases[i].text), span_of(cases[i].word)) != cases[i].found)
            fail_msg("%s in %s", cases[i].word, cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_that_begin_so),
        cmocka_unit_test(test_text_rules),
        cmocka_unit_test(test_regex),
        cmocka_unit_test(test_regex_hostile),
        cmocka_unit_test(test_new_words),
        cmocka_unit_test(test_item_rules),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_items_refused),
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_sandbox_limits),
        cmocka_unit_test(test_sandbox_ends_with_us),
        cmocka_unit_test(test_sandbox_isolation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
