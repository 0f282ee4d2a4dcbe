#include "train/eval/instructions.h"

#include "base/json.h"
#include "base/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGUMENTS 3

/* Arguments end in a mark of their type: # a whole number, $ a text, @ a list of texts, ~ a
 * relation. */
typedef struct {
    const char *name;
    const char *arguments[MAX_ARGUMENTS];
    bool (*followed)(const json_t *arguments, span answer); /* NULL: needs a model */
} instruction;

/* --- arguments ------------------------------------------------------------------------------ */

static int64_t number(const json_t *a, const char *key)
{
    return json_integer_value(json_object_get(a, key));
}

static span text(const json_t *a, const char *key)
{
    return span_of_json(json_object_get(a, key));
}

/* "at least", "less than" (the data set's), or "at most", "exactly". */
static bool relation_known(const char *name)
{
    static const char *const names[] = {"at least", "less than", "at most", "exactly"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static bool relation_holds(const json_t *a, const char *key, int64_t got, int64_t wanted)
{
    const char *name = json_string_value(json_object_get(a, key));
    if (strcmp(name, "at least") == 0) return got >= wanted;
    if (strcmp(name, "less than") == 0) return got < wanted;
    return strcmp(name, "at most") == 0 ? got <= wanted : got == wanted;
}

static pf_status check_argument(const json_t *arguments, const char *marked, pf_err *err)
{
    char key[64];
    size_t len = strlen(marked) - 1, i;
    memcpy(key, marked, len);
    key[len] = '\0';
    const json_t *value = json_object_get(arguments, key), *one;
    bool ok = true;
    switch (marked[len]) {
    case '#':
        ok = json_is_integer(value) && json_integer_value(value) >= 0;
        break;
    case '@':
        ok = json_is_array(value) && json_array_size(value) > 0;
        json_array_foreach(value, i, one) ok = ok && json_string_length(one) > 0;
        break;
    case '~':
        ok = json_is_string(value) && relation_known(json_string_value(value));
        break;
    default:
        ok = json_is_string(value);
        break;
    }
    return ok ? PF_OK : err_set(err, PF_REFUSED, "the argument \"%s\" is missing or wrong", key);
}

/* --- keywords ------------------------------------------------------------------------------- */

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Occurrences in either case; whole: not within a longer word. */
static int64_t count_text(span answer, span wanted, bool whole)
{
    buf low = {0}, want = {0};
    int64_t n = 0;
    span_lower(answer, &low);
    span_lower(wanted, &want);
    span s = {buf_str(&low), low.len}, w = {buf_str(&want), want.len};
    for (ptrdiff_t at = 0; w.len && (at = span_find(s, w, (size_t)at)) >= 0;) {
        size_t end = (size_t)at + w.len;
        bool inside =
            (at > 0 && is_word_byte(s.data[at - 1])) || (end < s.len && is_word_byte(s.data[end]));
        n += !(whole && inside);
        at += (ptrdiff_t)w.len;
    }
    buf_free(&low);
    buf_free(&want);
    return n;
}

static bool keywords_exist(const json_t *a, span answer)
{
    const json_t *word;
    size_t i;
    json_array_foreach(json_object_get(a, "keywords"), i,
                       word) if (count_text(answer, span_of_json(word), false) == 0) return false;
    return true;
}

static bool keywords_frequency(const json_t *a, span answer)
{
    return relation_holds(a, "relation", count_text(answer, text(a, "keyword"), false),
                          number(a, "frequency"));
}

static bool keywords_forbidden(const json_t *a, span answer)
{
    const json_t *word;
    size_t i;
    json_array_foreach(json_object_get(a, "forbidden_words"), i,
                       word) if (count_text(answer, span_of_json(word), true) > 0) return false;
    return true;
}

static bool letter_frequency(const json_t *a, span answer)
{
    return relation_holds(a, "let_relation", count_text(answer, text(a, "letter"), false),
                          number(a, "let_frequency"));
}

/* --- lengths -------------------------------------------------------------------------------- */

static bool number_words(const json_t *a, span answer)
{
    int64_t n = 0;
    for (size_t i = 0; i < answer.len; i++)
        n += is_word_byte(answer.data[i]) && (i == 0 || !is_word_byte(answer.data[i - 1]));
    return relation_holds(a, "relation", n, number(a, "num_words"));
}

/* A sentence ends with . ! or ? before white space or the end; what is left over is one too. */
static bool number_sentences(const json_t *a, span answer)
{
    int64_t n = 0;
    bool open = false;
    for (size_t i = 0; i < answer.len; i++) {
        bool last = i + 1 == answer.len || isspace((unsigned char)answer.data[i + 1]);
        if (strchr(".!?", answer.data[i]) && answer.data[i] && last) {
            n += open;
            open = false;
        } else if (is_word_byte(answer.data[i])) {
            open = true;
        }
    }
    return relation_holds(a, "relation", n + open, number(a, "num_sentences"));
}

/* The parts between separators; the first and the last may be empty, others count as -1. */
static int64_t count_parts(span answer, span separator)
{
    int64_t n = 0;
    for (size_t from = 0;;) {
        ptrdiff_t at = span_find(answer, separator, from);
        size_t end = at < 0 ? answer.len : (size_t)at;
        bool blank = span_trim((span){answer.data + from, end - from}).len == 0;
        if (blank && from > 0 && at >= 0) return -1;
        n += !blank;
        if (at < 0) return n;
        from = end + separator.len;
    }
}

static bool number_paragraphs(const json_t *a, span answer)
{
    return count_parts(answer, span_of("***")) == number(a, "num_paragraphs");
}

static bool nth_paragraph_first_word(const json_t *a, span answer)
{
    int64_t n = 0, nth = number(a, "nth_paragraph");
    span found = {0}, separator = span_of("\n\n"), word;
    for (size_t from = 0;;) {
        ptrdiff_t at = span_find(answer, separator, from);
        size_t end = at < 0 ? answer.len : (size_t)at;
        span part = span_trim((span){answer.data + from, end - from});
        if (part.len > 0 && ++n == nth) found = part;
        if (at < 0) break;
        from = end + separator.len;
    }
    if (n != number(a, "num_paragraphs") || found.len == 0) return false;
    return span_next_letters(&found, &word) && span_equal_folded(word, text(a, "first_word"));
}

/* --- content and format --------------------------------------------------------------------- */

/* Non-blank texts on one line between open and close. */
static int64_t count_enclosed(span answer, const char *open, const char *close)
{
    int64_t n = 0;
    span o = span_of(open), c = span_of(close);
    for (size_t from = 0;;) {
        ptrdiff_t begin = span_find(answer, o, from);
        if (begin < 0) return n;
        size_t inner = (size_t)begin + o.len;
        ptrdiff_t end = span_find(answer, c, inner);
        if (end < 0) return n;
        span content = {answer.data + inner, (size_t)end - inner};
        bool one_line = !memchr(content.data, '\n', content.len);
        n += one_line && span_trim(content).len > 0;
        from = one_line ? (size_t)end + c.len : inner;
    }
}

static bool number_placeholders(const json_t *a, span answer)
{
    return count_enclosed(answer, "[", "]") >= number(a, "num_placeholders");
}

static bool postscript(const json_t *a, span answer)
{
    return span_contains(answer, text(a, "postscript_marker"), true);
}

static bool number_bullets(const json_t *a, span answer)
{
    int64_t n = 0;
    for (span line; span_next_line(&answer, &line);) {
        line = span_trim(line);
        n += span_starts(line, span_of("-")) ||
             (span_starts(line, span_of("*")) && line.len > 1 && line.data[1] != '*');
    }
    return n == number(a, "num_bullets");
}

static bool constrained_response(const json_t *a, span answer)
{
    (void)a;
    return span_contains(answer, span_of("My answer is yes."), false) ||
           span_contains(answer, span_of("My answer is no."), false) ||
           span_contains(answer, span_of("My answer is maybe."), false);
}

/* Texts between two marks of stars, on one line and without a star inside. */
static int64_t count_marked(span answer, const char *mark)
{
    int64_t n = 0;
    span m = span_of(mark);
    for (size_t i = 0; i < answer.len;) {
        span rest = {answer.data + i, answer.len - i};
        size_t end = i + m.len;
        while (end < answer.len && answer.data[end] != '*' && answer.data[end] != '\n')
            end++;
        span close = {answer.data + end, end < answer.len ? answer.len - end : 0};
        if (!span_starts(rest, m) || !span_starts(close, m)) {
            i++;
            continue;
        }
        n += span_trim((span){answer.data + i + m.len, end - i - m.len}).len > 0;
        i = end + m.len;
    }
    return n;
}

static bool number_highlights(const json_t *a, span answer)
{
    return count_marked(answer, "*") + count_marked(answer, "**") >= number(a, "num_highlights");
}

/* The splitter followed by a number, as in "Section 3". */
static bool multiple_sections(const json_t *a, span answer)
{
    int64_t n = 0;
    span splitter = text(a, "section_spliter");
    if (splitter.len == 0) return false;
    for (ptrdiff_t at = 0; (at = span_find(answer, splitter, (size_t)at)) >= 0;) {
        size_t i = (size_t)at + splitter.len;
        if (i < answer.len && isspace((unsigned char)answer.data[i])) i++;
        n += i < answer.len && isdigit((unsigned char)answer.data[i]);
        at += (ptrdiff_t)splitter.len;
    }
    return n >= number(a, "num_sections");
}

static bool json_format(const json_t *a, span answer)
{
    (void)a;
    static const char *const fences[] = {"```json", "```Json", "```JSON", "```"};
    json_t *value = NULL;
    for (size_t i = 0; i < sizeof fences / sizeof *fences; i++) {
        span fence = span_of(fences[i]);
        if (!span_starts(answer, fence)) continue;
        answer = (span){answer.data + fence.len, answer.len - fence.len};
        break;
    }
    if (span_ends(answer, span_of("```"))) answer.len -= 3;
    bool ok = json_parse(answer.data, answer.len, "answer", &value, NULL) == PF_OK;
    json_decref(value);
    return ok;
}

static bool title(const json_t *a, span answer)
{
    (void)a;
    return count_enclosed(answer, "<<", ">>") > 0;
}

/* --- combinations, ends, case --------------------------------------------------------------- */

static bool two_responses(const json_t *a, span answer)
{
    (void)a;
    span separator = span_of("******");
    ptrdiff_t at = span_find(answer, separator, 0);
    if (at < 0 || count_parts(answer, separator) != 2) return false;
    span first = span_trim((span){answer.data, (size_t)at});
    size_t begin = (size_t)at + separator.len;
    span second = {answer.data + begin, answer.len - begin};
    at = span_find(second, separator, 0);
    if (at >= 0) second.len = (size_t)at;
    return !span_equal(first, span_trim(second));
}

static bool repeat_prompt(const json_t *a, span answer)
{
    buf low = {0}, want = {0};
    span_lower(answer, &low);
    span_lower(span_trim(text(a, "prompt_to_repeat")), &want);
    bool starts = span_starts((span){buf_str(&low), low.len}, (span){buf_str(&want), want.len});
    buf_free(&low);
    buf_free(&want);
    return starts;
}

static bool end_checker(const json_t *a, span answer)
{
    buf low = {0}, want = {0};
    while (answer.len && answer.data[answer.len - 1] == '"')
        answer.len--;
    span_lower(span_trim(answer), &low);
    span_lower(span_trim(text(a, "end_phrase")), &want);
    bool ends = span_ends((span){buf_str(&low), low.len}, (span){buf_str(&want), want.len});
    buf_free(&low);
    buf_free(&want);
    return ends;
}

static bool quotation(const json_t *a, span answer)
{
    (void)a;
    return answer.len > 1 && answer.data[0] == '"' && answer.data[answer.len - 1] == '"';
}

static bool all_upper(span s)
{
    size_t upper = 0, letters = span_count_letters(s, &upper);
    return letters > 0 && upper == letters;
}

static bool english_capital(const json_t *a, span answer)
{
    (void)a;
    return all_upper(answer);
}

static bool english_lowercase(const json_t *a, span answer)
{
    (void)a;
    size_t upper = 0;
    return span_count_letters(answer, &upper) > 0 && upper == 0;
}

static bool capital_words(const json_t *a, span answer)
{
    int64_t n = 0;
    for (span word; span_next_word(&answer, &word);)
        n += all_upper(word);
    return relation_holds(a, "capital_relation", n, number(a, "capital_frequency"));
}

static bool no_comma(const json_t *a, span answer)
{
    (void)a;
    return answer.len == 0 || !memchr(answer.data, ',', answer.len);
}

/* --- the table ------------------------------------------------------------------------------ */

static const instruction known[] = {
    {"keywords:existence", {"keywords@"}, keywords_exist},
    {"keywords:frequency", {"keyword$", "frequency#", "relation~"}, keywords_frequency},
    {"keywords:forbidden_words", {"forbidden_words@"}, keywords_forbidden},
    {"keywords:letter_frequency", {"letter$", "let_frequency#", "let_relation~"}, letter_frequency},
    {"language:response_language", {"language$"}, NULL},
    {"length_constraints:number_sentences", {"num_sentences#", "relation~"}, number_sentences},
    {"length_constraints:number_paragraphs", {"num_paragraphs#"}, number_paragraphs},
    {"length_constraints:number_words", {"num_words#", "relation~"}, number_words},
    {"length_constraints:nth_paragraph_first_word",
     {"num_paragraphs#", "nth_paragraph#", "first_word$"},
     nth_paragraph_first_word},
    {"detectable_content:number_placeholders", {"num_placeholders#"}, number_placeholders},
    {"detectable_content:postscript", {"postscript_marker$"}, postscript},
    {"detectable_format:number_bullet_lists", {"num_bullets#"}, number_bullets},
    {"detectable_format:constrained_response", {0}, constrained_response},
    {"detectable_format:number_highlighted_sections", {"num_highlights#"}, number_highlights},
    {"detectable_format:multiple_sections",
     {"section_spliter$", "num_sections#"},
     multiple_sections},
    {"detectable_format:json_format", {0}, json_format},
    {"detectable_format:title", {0}, title},
    {"combination:two_responses", {0}, two_responses},
    {"combination:repeat_prompt", {"prompt_to_repeat$"}, repeat_prompt},
    {"startend:end_checker", {"end_phrase$"}, end_checker},
    {"startend:quotation", {0}, quotation},
    {"change_case:capital_word_frequency",
     {"capital_frequency#", "capital_relation~"},
     capital_words},
    {"change_case:english_capital", {0}, english_capital},
    {"change_case:english_lowercase", {0}, english_lowercase},
    {"punctuation:no_comma", {0}, no_comma},
};
#define N_KNOWN (sizeof known / sizeof *known)

static const instruction *find(const char *name)
{
    for (size_t i = 0; name && i < N_KNOWN; i++)
        if (strcmp(known[i].name, name) == 0) return &known[i];
    return NULL;
}

bool instruction_needs_model(const char *name)
{
    const instruction *k = find(name);
    return k && !k->followed;
}

pf_status instruction_check(const json_t *object, pf_err *err)
{
    const char *name = json_string_value(json_object_get(object, "id"));
    const instruction *k = find(name);
    if (!k)
        return err_set(err, PF_REFUSED, "unknown instruction \"%.80s\"", name ? name : "(no id)");
    if (!k->followed) return err_set(err, PF_REFUSED, "%s can't be checked without a model", name);
    pf_status status = PF_OK;
    for (size_t i = 0; i < MAX_ARGUMENTS && k->arguments[i] && status == PF_OK; i++)
        status = check_argument(json_object_get(object, "kwargs"), k->arguments[i], err);
    if (status != PF_OK) err_context(err, "%s", name);
    return status;
}

bool instruction_followed(const json_t *object, span answer)
{
    const instruction *k = find(json_string_value(json_object_get(object, "id")));
    return k->followed(json_object_get(object, "kwargs"), span_trim(answer));
}
