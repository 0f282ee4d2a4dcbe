#include "train/eval/reward.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/options.h"
#include "train/eval/answer_value.h"
#include "train/eval/instructions.h"
#include "train/eval/pattern.h"
#include "train/eval/sandbox.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES   256
#define MAX_COUNT   1000000
#define MAX_WEIGHT  1e6
#define MAX_KEYS    6
#define MAX_WORDS   10000
#define MAX_PROGRAM 64 /* words of argv */

typedef struct rule_type rule_type;

/* A rule as it was read; which fields are used depends on its type. */
typedef struct {
    const rule_type *type;
    double weight;
    bool required;  /* where its value is below 1 the answer scores 0 */
    json_t *object; /* a reference: texts live in it */
    span value;
    int64_t low, high;
    double share;
    bool flag;
    size_t (*measure)(span); /* length_near */
    pattern *pattern;
    buf want, other;   /* stopwords: "\nword\nword\n" in lower case */
    const char **argv; /* owned array; argv[0] owned */
    sandbox_options limits;
} rule;

/* What a rule looks at. */
typedef struct {
    span answer; /* trimmed */
    span whole;
    const json_t *item;
} subject;

struct rule_type {
    const char *name;
    const char *keys[MAX_KEYS]; /* beside type, weight and note; NULL-terminated if fewer */
    pf_status (*read)(rule *r, pf_err *err);                              /* NULL: nothing */
    pf_status (*check_item)(const rule *r, const json_t *item, pf_err *); /* NULL: nothing */
    double (*value)(const rule *r, const subject *s);
};

struct reward {
    rule *rules;
    size_t n;
};

/* --- reading values ------------------------------------------------------------------------- */

static pf_status missing(const char *key, pf_err *err)
{
    return err_set(err, PF_REFUSED, "\"%s\" is missing", key);
}

static pf_status read_text(rule *r, pf_err *err)
{
    const json_t *value = json_object_get(r->object, "value");
    if (!value) return missing("value", err);
    if (!json_is_string(value)) return err_set(err, PF_REFUSED, "\"value\" must be a string");
    r->value = span_of_json(value);
    return r->value.len ? PF_OK : err_set(err, PF_REFUSED, "\"value\" is empty");
}

static pf_status read_regex(rule *r, pf_err *err)
{
    pf_status status = read_text(r, err);
    if (status != PF_OK) return status;
    status = pattern_compile(r->value, &r->pattern, err);
    if (status != PF_OK) err_context(err, "\"value\"");
    return status;
}

static pf_status read_range(rule *r, pf_err *err)
{
    r->low = 0;
    r->high = MAX_COUNT;
    if (!json_object_get(r->object, "min") && !json_object_get(r->object, "max"))
        return err_set(err, PF_REFUSED, "\"min\" or \"max\" is needed");
    pf_status status = json_get_int(r->object, "min", 0, MAX_COUNT, &r->low, err);
    if (status == PF_OK) status = json_get_int(r->object, "max", r->low, MAX_COUNT, &r->high, err);
    return status;
}

static pf_status read_lines(rule *r, pf_err *err)
{
    if (!json_object_get(r->object, "equals")) return missing("equals", err);
    pf_status status = read_text(r, err);
    if (status == PF_OK) status = json_get_int(r->object, "equals", 0, MAX_COUNT, &r->low, err);
    if (status == PF_OK) status = json_get_bool(r->object, "no_other_lines", &r->flag, err);
    return status;
}

static pf_status read_share(rule *r, pf_err *err)
{
    return json_get_real(r->object, "max_share", 0, 1, &r->share, err);
}

static pf_status read_ignore_case(rule *r, pf_err *err)
{
    return json_get_bool(r->object, "ignore_case", &r->flag, err);
}

/* A list of words, each on a line of its own. */
static pf_status read_words(const json_t *object, const char *key, buf *out, pf_err *err)
{
    const json_t *list = json_object_get(object, key), *word;
    size_t i, n = json_array_size(list);
    if (!list) return missing(key, err);
    if (!json_is_array(list) || n == 0 || n > MAX_WORDS)
        return err_set(err, PF_REFUSED, "\"%s\" must be a list of 1 to %d words", key, MAX_WORDS);
    buf_putc(out, '\n');
    json_array_foreach(list, i, word)
    {
        span text = span_of_json(word), rest = text, letters;
        if (!span_next_letters(&rest, &letters) || !span_equal(letters, text))
            return err_set(err, PF_REFUSED, "%s[%zu] must be one word", key, i);
        span_lower(text, out);
        buf_putc(out, '\n');
    }
    return PF_OK;
}

static pf_status read_stopwords(rule *r, pf_err *err)
{
    r->low = 1;
    pf_status status = read_words(r->object, "want", &r->want, err);
    if (status == PF_OK) status = read_words(r->object, "other", &r->other, err);
    if (status == PF_OK) status = json_get_int(r->object, "min_want", 0, MAX_COUNT, &r->low, err);
    return status;
}

static pf_status read_length(rule *r, pf_err *err)
{
    static const struct {
        const char *name;
        size_t (*measure)(span);
    } units[] = {
        {"words", span_count_words}, {"characters", span_count_chars}, {"lines", span_count_lines}};
    const char *unit = "words";
    pf_status status = json_get_string(r->object, "unit", &unit, err);
    if (status == PF_OK) status = json_get_int(r->object, "target", 1, MAX_COUNT, &r->low, err);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].name) == 0) r->measure = units[i].measure;
    if (status == PF_OK && !r->measure)
        status = err_set(err, PF_REFUSED,
                         "\"unit\" is \"%.60s\": words, characters and lines are possible", unit);
    return status;
}

static pf_status read_level(rule *r, pf_err *err)
{
    const char *level = "prompt";
    pf_status status = json_get_string(r->object, "level", &level, err);
    if (status != PF_OK) return status;
    r->flag = strcmp(level, "instruction") == 0;
    if (!r->flag && strcmp(level, "prompt") != 0)
        return err_set(err, PF_REFUSED,
                       "\"level\" is \"%.60s\": prompt (all at once) and instruction (their share) "
                       "are possible",
                       level);
    return PF_OK;
}

static pf_status read_command(rule *r, pf_err *err)
{
    const json_t *list = json_object_get(r->object, "argv"), *word;
    size_t i, n = json_array_size(list);
    char *path = NULL;
    int64_t megabytes = 512;
    r->limits.seconds = 5;
    if (!list) return missing("argv", err);
    if (!json_is_array(list) || n == 0 || n > MAX_PROGRAM)
        return err_set(err, PF_REFUSED, "\"argv\" must be a list of 1 to %d texts", MAX_PROGRAM);
    json_array_foreach(list, i, word)
    {
        span text = span_of_json(word);
        if (!json_is_string(word) || memchr(text.data, '\0', text.len) || (i == 0 && !text.len))
            return err_set(err, PF_REFUSED, "argv[%zu] must be a text", i);
    }
    pf_status status = json_get_real(r->object, "seconds", 0.01, 3600, &r->limits.seconds, err);
    if (status == PF_OK) status = json_get_int(r->object, "megabytes", 1, 1 << 20, &megabytes, err);
    if (status != PF_OK) return status;
    if (sandbox_find(json_string_value(json_array_get(list, 0)), &path, err) != PF_OK)
        return err_set(err, PF_REFUSED, "argv[0]: there is no program %.200s",
                       json_string_value(json_array_get(list, 0)));
    r->argv = xcalloc(n + 1, sizeof *r->argv);
    r->argv[0] = path;
    for (i = 1; i < n; i++)
        r->argv[i] = json_string_value(json_array_get(list, i));
    r->limits.argv = r->argv;
    r->limits.megabytes = (int)megabytes;
    return PF_OK;
}

/* --- what items need ------------------------------------------------------------------------ */

/* "expect" is a text or a list of texts. */
static size_t count_expected(const json_t *item)
{
    const json_t *list = json_object_get(item, "expect");
    return json_is_string(list) ? 1 : json_array_size(list);
}

static span expected(const json_t *item, size_t i)
{
    const json_t *list = json_object_get(item, "expect");
    return span_of_json(json_is_string(list) ? list : json_array_get(list, i));
}

static pf_status needs_expect(const rule *r, const json_t *item, pf_err *err)
{
    (void)r;
    size_t n = count_expected(item);
    if (n == 0) return err_set(err, PF_REFUSED, "the item has no \"expect\"");
    for (size_t i = 0; i < n; i++)
        if (expected(item, i).len == 0)
            return err_set(err, PF_REFUSED, "the item's expect[%zu] must be a text", i);
    return PF_OK;
}

static pf_status needs_number(const rule *r, const json_t *item, pf_err *err)
{
    double number;
    pf_status status = needs_expect(r, item, err);
    for (size_t i = 0; status == PF_OK && i < count_expected(item); i++)
        if (!answer_last_number(expected(item, i), &number))
            status = err_set(err, PF_REFUSED, "the item's expect[%zu] is no number", i);
    return status;
}

static pf_status needs_letter(const rule *r, const json_t *item, pf_err *err)
{
    pf_status status = needs_expect(r, item, err);
    for (size_t i = 0; status == PF_OK && i < count_expected(item); i++) {
        span letter = expected(item, i);
        if (letter.len != 1 || letter.data[0] < 'A' || letter.data[0] > 'Z')
            status = err_set(err, PF_REFUSED, "the item's expect[%zu] is no letter A to Z", i);
    }
    return status;
}

static pf_status needs_target(const rule *r, const json_t *item, pf_err *err)
{
    int64_t target = r->low;
    pf_status status = json_get_int(item, "target", 1, MAX_COUNT, &target, err);
    if (status == PF_OK && target == 0)
        status = err_set(err, PF_REFUSED, "neither the rule nor the item has a \"target\"");
    return status;
}

static pf_status needs_question(const rule *r, const json_t *item, pf_err *err)
{
    (void)r;
    if (json_array_size(json_object_get(item, "messages")) == 0 &&
        json_array_size(json_object_get(item, "turns")) == 0)
        return err_set(err, PF_REFUSED, "the item has neither \"messages\" nor \"turns\"");
    return PF_OK;
}

static pf_status needs_instructions(const rule *r, const json_t *item, pf_err *err)
{
    (void)r;
    const json_t *list = json_object_get(item, "instructions"), *one;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_REFUSED, "the item has no list of \"instructions\"");
    json_array_foreach(list, i, one)
    {
        pf_status status = instruction_check(one, err);
        if (status == PF_OK) continue;
        err_context(err, "instructions[%zu]", i);
        return status;
    }
    return PF_OK;
}

static pf_status needs_program(const rule *r, const json_t *item, pf_err *err)
{
    (void)r;
    const json_t *program = json_object_get(item, "program");
    const char *before = "", *after = "";
    if (!json_is_object(program)) return err_set(err, PF_REFUSED, "the item has no \"program\"");
    pf_status status = json_get_string(program, "before", &before, err);
    if (status == PF_OK) status = json_get_string(program, "after", &after, err);
    return status;
}

/* --- values --------------------------------------------------------------------------------- */

static double starts_with(const rule *r, const subject *s)
{
    return span_starts(s->answer, r->value);
}

static double ends_with(const rule *r, const subject *s)
{
    return span_ends(s->answer, r->value);
}

static double regex(const rule *r, const subject *s)
{
    return pattern_matches(r->pattern, s->answer);
}

static double word_count(const rule *r, const subject *s)
{
    int64_t n = (int64_t)span_count_words(s->answer);
    return n >= r->low && n <= r->high;
}

/* Lines that begin so, and lines that don't. */
static void count_starts(const rule *r, const subject *s, int64_t *with, int64_t *without)
{
    *with = *without = 0;
    span rest = s->answer;
    for (span line; span_next_full_line(&rest, &line);)
        (*(span_starts(line, r->value) ? with : without))++;
}

static double every_line_starts_with(const rule *r, const subject *s)
{
    int64_t with, without;
    count_starts(r, s, &with, &without);
    return with > 0 && without == 0;
}

static double lines_starting_with(const rule *r, const subject *s)
{
    int64_t with, without;
    count_starts(r, s, &with, &without);
    return with == r->low && !(r->flag && without > 0);
}

static double no_upper_case(const rule *r, const subject *s)
{
    size_t upper = 0, letters = span_count_letters(s->answer, &upper);
    return (double)upper <= r->share * (double)letters;
}

static bool listed(const buf *words, span word)
{
    buf line = {0};
    buf_putc(&line, '\n');
    span_lower(word, &line);
    buf_putc(&line, '\n');
    bool found = span_find((span){words->data, words->len}, (span){line.data, line.len}, 0) >= 0;
    buf_free(&line);
    return found;
}

static double stopwords(const rule *r, const subject *s)
{
    int64_t want = 0, other = 0;
    span rest = s->answer;
    for (span word; span_next_letters(&rest, &word);) {
        want += listed(&r->want, word);
        other += listed(&r->other, word);
    }
    return want >= r->low && want > other;
}

/* Adds a text's words to a list as `listed` searches it. */
static void list_words(span text, buf *out)
{
    if (out->len == 0) buf_putc(out, '\n');
    for (span word; span_next_letters(&text, &word);) {
        span_lower(word, out);
        buf_putc(out, '\n');
    }
}

/* The words of all that the user says in the item. */
static void list_asked(const json_t *item, buf *out)
{
    const json_t *part;
    size_t i;
    json_array_foreach(json_object_get(item, "turns"), i, part) list_words(span_of_json(part), out);
    json_array_foreach(json_object_get(item, "messages"), i, part)
    {
        const char *role = json_string_value(json_object_get(part, "role"));
        if (role && strcmp(role, "user") == 0)
            list_words(span_of_json(json_object_get(part, "content")), out);
    }
}

static double new_words(const rule *r, const subject *s)
{
    buf asked = {0};
    int64_t n = 0;
    span rest = s->answer;
    list_asked(s->item, &asked);
    for (span word; span_next_letters(&rest, &word);)
        n += !listed(&asked, word);
    buf_free(&asked);
    return n >= r->low && n <= r->high;
}

static double contains_expect(const rule *r, const subject *s)
{
    for (size_t i = 0; i < count_expected(s->item); i++)
        if (span_contains(s->answer, expected(s->item, i), r->flag)) return 1;
    return 0;
}

static double last_number(const rule *r, const subject *s)
{
    (void)r;
    double got, wanted;
    if (!answer_last_number(s->answer, &got)) return 0;
    for (size_t i = 0; i < count_expected(s->item); i++)
        if (answer_last_number(expected(s->item, i), &wanted) &&
            fabs(got - wanted) <= 1e-9 * fmax(1, fabs(wanted)))
            return 1;
    return 0;
}

static double boxed(const rule *r, const subject *s)
{
    (void)r;
    span content;
    if (!answer_boxed(s->answer, &content)) return 0;
    for (size_t i = 0; i < count_expected(s->item); i++)
        if (answer_same_math(content, expected(s->item, i))) return 1;
    return 0;
}

static double choice(const rule *r, const subject *s)
{
    (void)r;
    char letter = answer_choice(s->answer);
    for (size_t i = 0; letter && i < count_expected(s->item); i++)
        if (expected(s->item, i).data[0] == letter) return 1;
    return 0;
}

static double length_near(const rule *r, const subject *s)
{
    int64_t target = r->low;
    if (json_get_int(s->item, "target", 1, MAX_COUNT, &target, NULL) != PF_OK) return 0;
    double length = (double)r->measure(s->answer), t = (double)target;
    double value = length < t ? (length - t / 2) / (t / 2) : (2 * t - length) / t;
    return value > 0 ? value : 0;
}

static double instructions(const rule *r, const subject *s)
{
    const json_t *list = json_object_get(s->item, "instructions"), *one;
    size_t i, n = json_array_size(list), followed = 0;
    json_array_foreach(list, i, one) followed += instruction_followed(one, s->answer);
    return r->flag ? (double)followed / (double)n : followed == n;
}

static double run_program(const rule *r, const char *text, size_t len)
{
    sandbox_end end = SANDBOX_CRASHED;
    int code = -1;
    return sandbox_run(&r->limits, text, len, &end, &code, NULL) == PF_OK &&
           end == SANDBOX_EXITED && code == 0;
}

static double command(const rule *r, const subject *s)
{
    return run_program(r, s->answer.data, s->answer.len);
}

/* The content of the first fenced block, or all of it. */
static span code_of(span answer)
{
    span fence = span_of("```"), line;
    ptrdiff_t open = span_find(answer, fence, 0);
    if (open < 0) return answer;
    span rest = {answer.data + open, answer.len - (size_t)open};
    span_next_line(&rest, &line);
    ptrdiff_t close = span_find(rest, fence, 0);
    return close < 0 ? rest : (span){rest.data, (size_t)close};
}

static double program(const rule *r, const subject *s)
{
    const json_t *around = json_object_get(s->item, "program");
    span before = span_of_json(json_object_get(around, "before")), code = code_of(s->whole),
         after = span_of_json(json_object_get(around, "after"));
    buf text = {0};
    buf_append(&text, before.data, before.len);
    buf_append(&text, code.data, code.len);
    buf_putc(&text, '\n');
    buf_append(&text, after.data, after.len);
    double value = run_program(r, buf_str(&text), text.len);
    buf_free(&text);
    return value;
}

/* --- types ---------------------------------------------------------------------------------- */

static const rule_type types[] = {
    {"starts_with", {"value"}, read_text, NULL, starts_with},
    {"ends_with", {"value"}, read_text, NULL, ends_with},
    {"regex", {"value"}, read_regex, NULL, regex},
    {"word_count", {"min", "max"}, read_range, NULL, word_count},
    {"every_line_starts_with", {"value"}, read_text, NULL, every_line_starts_with},
    {"lines_starting_with",
     {"value", "equals", "no_other_lines"},
     read_lines,
     NULL,
     lines_starting_with},
    {"no_upper_case", {"max_share"}, read_share, NULL, no_upper_case},
    {"stopwords", {"want", "other", "min_want"}, read_stopwords, NULL, stopwords},
    {"new_words", {"min", "max"}, read_range, needs_question, new_words},
    {"contains_expect", {"ignore_case"}, read_ignore_case, needs_expect, contains_expect},
    {"last_number", {0}, NULL, needs_number, last_number},
    {"boxed", {0}, NULL, needs_expect, boxed},
    {"choice", {0}, NULL, needs_letter, choice},
    {"length_near", {"unit", "target"}, read_length, needs_target, length_near},
    {"instructions", {"level"}, read_level, needs_instructions, instructions},
    {"command", {"argv", "seconds", "megabytes"}, read_command, NULL, command},
    {"program", {"argv", "seconds", "megabytes"}, read_command, needs_program, program},
};
#define N_TYPES (sizeof types / sizeof *types)

static pf_status unknown_type(const char *name, pf_err *err)
{
    const char *names[N_TYPES + 1] = {0};
    for (size_t i = 0; i < N_TYPES; i++)
        names[i] = types[i].name;
    const char *near = nearest_name(name, names);
    return err_set(err, PF_REFUSED, "unknown type \"%.60s\"%s%s%s", name,
                   near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static pf_status check_keys(const json_t *object, const rule_type *type, pf_err *err)
{
    const char *names[MAX_KEYS + 5] = {"type", "weight", "required", "note"}, *key;
    json_t *value;
    for (size_t i = 0; i < MAX_KEYS && type->keys[i]; i++)
        names[4 + i] = type->keys[i];
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0)
            i++;
        if (names[i]) continue;
        const char *near = nearest_name(key, names);
        return err_set(err, PF_REFUSED, "unknown key \"%.60s\"%s%s%s", key,
                       near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return PF_OK;
}

/* --- rules ---------------------------------------------------------------------------------- */

static pf_status read_rule(json_t *object, rule *r, pf_err *err)
{
    const char *name = NULL;
    if (!json_is_object(object)) return err_set(err, PF_REFUSED, "it is no object");
    pf_status status = json_get_string(object, "type", &name, err);
    if (status != PF_OK) return status;
    if (!name) return missing("type", err);
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) r->type = &types[i];
    if (!r->type) return unknown_type(name, err);
    r->object = json_incref(object);
    r->weight = 1;
    status = check_keys(object, r->type, err);
    if (status == PF_OK) status = json_get_real(object, "weight", 0, MAX_WEIGHT, &r->weight, err);
    if (status == PF_OK) status = json_get_bool(object, "required", &r->required, err);
    if (status == PF_OK && r->type->read) status = r->type->read(r, err);
    if (status != PF_OK) err_context(err, "%s", name);
    return status;
}

pf_status reward_read(const json_t *rules, const char *name, reward **out, pf_err *err)
{
    const json_t *list = json_is_object(rules) ? json_object_get(rules, "rules") : rules;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > MAX_RULES)
        return err_set(err, PF_REFUSED, "%s: a list of 1 to %d \"rules\" is needed", name,
                       MAX_RULES);
    reward *r = xcalloc(1, sizeof *r);
    pf_status status = PF_OK;
    r->rules = xcalloc(n, sizeof *r->rules);
    for (r->n = 0; r->n < n && status == PF_OK; r->n++) {
        status = read_rule(json_array_get(list, r->n), &r->rules[r->n], err);
        if (status != PF_OK) err_context(err, "%s: rules[%zu]", name, r->n);
    }
    if (status == PF_OK && reward_most(r) <= 0)
        status = err_set(err, PF_REFUSED, "%s: the weights of all rules are 0", name);
    if (status == PF_OK)
        *out = r;
    else
        reward_free(r);
    return status;
}

void reward_free(reward *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) {
        rule *one = &r->rules[i];
        pattern_free(one->pattern);
        buf_free(&one->want);
        buf_free(&one->other);
        if (one->argv) free((char *)(uintptr_t)one->argv[0]);
        free(one->argv);
        json_decref(one->object);
    }
    free(r->rules);
    free(r);
}

size_t reward_count(const reward *r)
{
    return r->n;
}

const char *reward_type(const reward *r, size_t i)
{
    return r->rules[i].type->name;
}

double reward_most(const reward *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->rules[i].weight;
    return sum;
}

bool reward_runs_programs(const reward *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->rules[i].argv) return true;
    return false;
}

pf_status reward_check_item(const reward *r, const json_t *item, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < r->n && status == PF_OK; i++) {
        const rule_type *type = r->rules[i].type;
        if (type->check_item) status = type->check_item(&r->rules[i], item, err);
        if (status != PF_OK) err_context(err, "rule %s", type->name);
    }
    return status;
}

reward_result reward_score(const reward *r, const json_t *item, const char *answer, size_t len,
                           double *values)
{
    reward_result result = {.all_hold = true};
    bool worthless = false;
    subject s = {.whole = {answer, len}, .item = item};
    s.answer = span_trim(s.whole);
    for (size_t i = 0; i < r->n; i++) {
        double value = r->rules[i].type->value(&r->rules[i], &s);
        result.score += r->rules[i].weight * value;
        if (value < 1) result.all_hold = false;
        if (value < 1 && r->rules[i].required) worthless = true;
        if (values) values[i] = value;
    }
    if (worthless) result.score = 0;
    return result;
}
