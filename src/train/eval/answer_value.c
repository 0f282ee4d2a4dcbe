#include "train/eval/answer_value.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers -------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The length of the number at text[0..len), which begins with a digit or a full stop before one.
 * Commas are part of it when three digits follow. Its digits go to out. */
static size_t read_number(const char *text, size_t len, buf *out)
{
    size_t at = 0;
    while (at < len && is_digit(text[at])) {
        buf_putc(out, text[at++]);
        bool group = at + 3 < len && text[at] == ',' && is_digit(text[at + 1]) &&
                     is_digit(text[at + 2]) && is_digit(text[at + 3]) &&
                     (at + 4 == len || !is_digit(text[at + 4]));
        if (group) at++;
    }
    if (at + 1 < len && text[at] == '.' && is_digit(text[at + 1])) {
        buf_putc(out, text[at++]);
        while (at < len && is_digit(text[at]))
            buf_putc(out, text[at++]);
    }
    return at;
}

/* A minus before the number (and a dollar between) that subtracts nothing: no word or number
 * stands before it. */
static bool is_negative(span text, size_t at)
{
    if (at > 0 && text.data[at - 1] == '$') at--;
    if (at == 0 || text.data[at - 1] != '-') return false;
    return at == 1 || !isalnum((unsigned char)text.data[at - 2]);
}

bool answer_last_number(span text, double *out)
{
    buf digits = {0};
    bool found = false;
    for (size_t at = 0; at < text.len;) {
        bool begins = is_digit(text.data[at]) ||
                      (text.data[at] == '.' && at + 1 < text.len && is_digit(text.data[at + 1]));
        if (!begins) {
            at++;
            continue;
        }
        buf_clear(&digits);
        size_t len = read_number(text.data + at, text.len - at, &digits);
        double value = strtod(buf_str(&digits), NULL);
        if (isfinite(value)) {
            *out = is_negative(text, at) ? -value : value;
            found = true;
        }
        at += len;
    }
    buf_free(&digits);
    return found;
}

/* --- boxed expressions ---------------------------------------------------------------------- */

/* The content of the braces that open at text[at]; false if they don't close. */
static bool braces(span text, size_t at, span *out)
{
    size_t depth = 0;
    for (size_t i = at; i < text.len; i++) {
        if (text.data[i] == '{') depth++;
        if (text.data[i] == '}' && --depth == 0) {
            *out = (span){text.data + at + 1, i - at - 1};
            return true;
        }
    }
    return false;
}

static bool boxed_at(span text, size_t at, span *out)
{
    if (at < text.len && text.data[at] == '{') return braces(text, at, out);
    if (at >= text.len || text.data[at] != ' ') return false;
    span rest = span_trim((span){text.data + at, text.len - at});
    const char *end = memchr(rest.data, '$', rest.len);
    *out = span_trim((span){rest.data, end ? (size_t)(end - rest.data) : rest.len});
    return out->len > 0;
}

bool answer_boxed(span text, span *out)
{
    static const char *const names[] = {"\\boxed", "\\fbox"};
    size_t best = 0;
    bool found = false;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        span name = span_of(names[n]), content;
        for (ptrdiff_t at = -1; (at = span_find(text, name, (size_t)(at + 1))) >= 0;) {
            if (!boxed_at(text, (size_t)at + name.len, &content)) continue;
            if (found && (size_t)at < best) continue;
            best = (size_t)at;
            *out = content;
            found = true;
        }
    }
    return found;
}

/* --- comparing expressions ------------------------------------------------------------------ */

/* Every occurrence of what becomes with. */
static void replace_all(buf *text, const char *what, const char *with)
{
    buf out = {0};
    span s = {buf_str(text), text->len}, w = span_of(what);
    size_t from = 0;
    for (ptrdiff_t at; (at = span_find(s, w, from)) >= 0; from = (size_t)at + w.len) {
        buf_append(&out, s.data + from, (size_t)at - from);
        buf_puts(&out, with);
    }
    buf_append(&out, s.data + from, s.len - from);
    buf_free(text);
    *text = out;
}

/* Units: a text of letters at the end, as in "5\text{ cm}". */
static void drop_units(buf *text)
{
    span s = {buf_str(text), text->len};
    ptrdiff_t at = span_find(s, span_of("\\text{ "), 0);
    if (at < 0) at = span_find(s, span_of("\\mbox{ "), 0);
    if (at <= 0) return;
    text->len = (size_t)at;
    text->data[text->len] = '\0';
}

/* Appends the argument at text[at]: braces as they are, a single character in braces. Returns its
 * length in text, 0 at the end. */
static size_t put_argument(span text, size_t at, buf *out)
{
    span content;
    if (at >= text.len) return 0;
    if (text.data[at] == '{' && braces(text, at, &content)) {
        buf_append(out, text.data + at, content.len + 2);
        return content.len + 2;
    }
    if (text.data[at] == '\\') return 0;
    buf_printf(out, "{%c}", text.data[at]);
    return 1;
}

/* \frac12 and \sqrt3 get their braces. */
static void add_braces(buf *text)
{
    static const struct {
        const char *name;
        int arguments;
    } commands[] = {{"\\frac", 2}, {"\\sqrt", 1}};
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        buf out = {0};
        span s = {buf_str(text), text->len}, name = span_of(commands[c].name);
        size_t from = 0;
        for (ptrdiff_t at; (at = span_find(s, name, from)) >= 0;) {
            size_t end = (size_t)at + name.len;
            buf_append(&out, s.data + from, end - from);
            for (int i = 0; i < commands[c].arguments; i++)
                end += put_argument(s, end, &out);
            from = end;
        }
        buf_append(&out, s.data + from, s.len - from);
        buf_free(text);
        *text = out;
    }
}

static bool is_whole(span s)
{
    if (s.len > 1 && s.data[0] == '-') s = (span){s.data + 1, s.len - 1};
    for (size_t i = 0; i < s.len; i++)
        if (!is_digit(s.data[i])) return false;
    return s.len > 0;
}

/* A lone a/b of whole numbers becomes \frac{a}{b}. */
static void slash_to_fraction(buf *text)
{
    span s = {buf_str(text), text->len};
    const char *slash = memchr(s.data, '/', s.len);
    if (!slash) return;
    span a = {s.data, (size_t)(slash - s.data)}, b = {slash + 1, s.len - a.len - 1};
    if (!is_whole(a) || !is_whole(b)) return;
    buf out = {0};
    buf_printf(&out, "\\frac{%.*s}{%.*s}", (int)a.len, a.data, (int)b.len, b.data);
    buf_free(text);
    *text = out;
}

/* "x=5" is 5. */
static void drop_left_side(buf *text)
{
    span s = {buf_str(text), text->len};
    const char *equals = memchr(s.data, '=', s.len);
    if (!equals || equals - s.data > 2 ||
        memchr(equals + 1, '=', s.len - (size_t)(equals - s.data) - 1))
        return;
    buf out = {0};
    buf_append(&out, equals + 1, s.len - (size_t)(equals - s.data) - 1);
    buf_free(text);
    *text = out;
}

void answer_normalise_math(span expression, buf *out)
{
    static const char *const pairs[][2] = {
        {"\n", ""},        {"\r", ""},        {"\\!", ""},    {"\\\\", "\\"},
        {"tfrac", "frac"}, {"dfrac", "frac"}, {"\\left", ""}, {"\\right", ""},
        {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""},    {"$", ""},
    };
    static const char *const later[][2] = {
        {"\\%", ""},
        {"%", ""},
        {" .", " 0."},
        {"{.", "{0."},
    };
    buf text = {0};
    buf_append(&text, expression.data, expression.len);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        replace_all(&text, pairs[i][0], pairs[i][1]);
    drop_units(&text);
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        replace_all(&text, later[i][0], later[i][1]);
    replace_all(&text, " ", "");
    drop_left_side(&text);
    if (text.len > 0 && text.data[0] == '.') {
        buf with_zero = {0};
        buf_printf(&with_zero, "0%s", buf_str(&text));
        buf_free(&text);
        text = with_zero;
    }
    add_braces(&text);
    if (strcmp(buf_str(&text), "0.5") == 0) {
        buf_clear(&text);
        buf_puts(&text, "\\frac{1}{2}");
    }
    slash_to_fraction(&text);
    buf_append(out, buf_str(&text), text.len);
    buf_free(&text);
}

bool answer_same_math(span a, span b)
{
    buf x = {0}, y = {0};
    answer_normalise_math(a, &x);
    answer_normalise_math(b, &y);
    bool same = span_equal((span){buf_str(&x), x.len}, (span){buf_str(&y), y.len});
    buf_free(&x);
    buf_free(&y);
    return same;
}

/* --- choices -------------------------------------------------------------------------------- */

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* A letter that stands alone at text[at], perhaps in parentheses or emphasis; 0: none. An "A" or
 * "I" before another word is a word itself. */
static char lone_letter(span text, size_t at)
{
    while (at < text.len && strchr(" \t*_(\"'", text.data[at]))
        at++;
    if (at >= text.len || !is_upper(text.data[at])) return 0;
    char letter = text.data[at++];
    if (at >= text.len || strchr(".):,*_\n\"'", text.data[at])) return letter;
    return text.data[at] == ' ' && letter != 'A' && letter != 'I' ? letter : 0;
}

char answer_choice(span text)
{
    static const char *const cues[] = {"answer is", "answer:", "answer is:"};
    text = span_trim(text);
    char letter = lone_letter(text, 0);
    if (letter) return letter;
    buf lower = {0};
    ptrdiff_t last = -1;
    for (size_t i = 0; i < text.len; i++)
        buf_putc(&lower, (char)tolower((unsigned char)text.data[i]));
    for (size_t i = 0; i < sizeof cues / sizeof *cues; i++)
        for (ptrdiff_t at = -1; (at = span_find((span){buf_str(&lower), lower.len},
                                                span_of(cues[i]), (size_t)(at + 1))) >= 0;) {
            char found = lone_letter(text, (size_t)at + strlen(cues[i]));
            if (!found || at < last) continue;
            letter = found;
            last = at;
        }
    buf_free(&lower);
    if (letter) return letter;
    for (size_t i = 0; i + 2 < text.len; i++) {
        if (text.data[i] != '(' || !is_upper(text.data[i + 1]) || text.data[i + 2] != ')') continue;
        if (letter && letter != text.data[i + 1]) return 0;
        letter = text.data[i + 1];
    }
    return letter;
}
