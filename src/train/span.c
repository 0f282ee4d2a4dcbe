#include "train/span.h"

#include "base/utf8.h"
#include "models/unicode.h"

#include <ctype.h>
#include <string.h>

span span_of(const char *text)
{
    return (span){text, strlen(text)};
}

span span_of_json(const json_t *string)
{
    if (!json_is_string(string)) return (span){"", 0};
    return (span){json_string_value(string), json_string_length(string)};
}

bool span_next_char(span *rest, uint32_t *code_point)
{
    if (rest->len == 0) return false;
    size_t n = utf8_decode(rest->data, rest->len, code_point, NULL);
    rest->data += n;
    rest->len -= n;
    return true;
}

static bool is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || (c != UINT32_MAX && unicode_classify(c) == UNICODE_SPACE);
}

static bool is_letter(uint32_t c)
{
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == UINT32_MAX) return false;
    unicode_class class = unicode_classify(c);
    return class == UNICODE_LETTER || class == UNICODE_MARK;
}

static span behind(span s, size_t n)
{
    return (span){s.data + n, s.len - n};
}

static span without_leading_space(span s)
{
    uint32_t c = 0;
    for (span rest = s; span_next_char(&rest, &c) && is_space(c);)
        s = rest;
    return s;
}

span span_trim(span s)
{
    s = without_leading_space(s);
    span rest = s;
    size_t end = 0;
    for (uint32_t c = 0; span_next_char(&rest, &c);)
        if (!is_space(c)) end = (size_t)(rest.data - s.data);
    return (span){s.data, end};
}

bool span_equal(span a, span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool span_starts(span s, span start)
{
    return s.len >= start.len && span_equal((span){s.data, start.len}, start);
}

bool span_ends(span s, span end)
{
    return s.len >= end.len && span_equal(behind(s, s.len - end.len), end);
}

ptrdiff_t span_find(span s, span needle, size_t from)
{
    if (from > s.len) return -1;
    if (needle.len == 0) return (ptrdiff_t)from;
    const char *at = memmem(s.data + from, s.len - from, needle.data, needle.len);
    return at ? at - s.data : -1;
}

void span_lower(span s, buf *out)
{
    uint32_t c = 0;
    for (span rest = s; span_next_char(&rest, &c); s = rest) {
        char bytes[4];
        if (c == UINT32_MAX)
            buf_append(out, s.data, (size_t)(rest.data - s.data));
        else
            buf_append(out, bytes, utf8_encode(unicode_lower(c), bytes));
    }
}

bool span_equal_folded(span a, span b)
{
    uint32_t x = 0, y = 0;
    for (;;) {
        bool more = span_next_char(&a, &x);
        if (more != span_next_char(&b, &y)) return false;
        if (!more) return true;
        if (x == UINT32_MAX || y == UINT32_MAX ? x != y : unicode_lower(x) != unicode_lower(y))
            return false;
    }
}

bool span_contains(span s, span needle, bool ignore_case)
{
    if (!ignore_case) return span_find(s, needle, 0) >= 0;
    buf text = {0}, wanted = {0};
    span_lower(s, &text);
    span_lower(needle, &wanted);
    bool found =
        span_find((span){buf_str(&text), text.len}, (span){buf_str(&wanted), wanted.len}, 0) >= 0;
    buf_free(&text);
    buf_free(&wanted);
    return found;
}

bool span_has_word(span s, span needle)
{
    buf text = {0}, wanted = {0};
    span_lower(s, &text);
    span_lower(needle, &wanted);
    const span in = {buf_str(&text), text.len}, what = {buf_str(&wanted), wanted.len};
    bool found = false;
    for (ptrdiff_t at = 0; !found && (at = span_find(in, what, (size_t)at)) >= 0; at++) {
        const unsigned char before = at > 0 ? (unsigned char)in.data[at - 1] : ' ';
        found = before < 0x80 && !isalnum(before);
    }
    buf_free(&text);
    buf_free(&wanted);
    return found;
}

bool span_next_word(span *rest, span *word)
{
    span s = without_leading_space(*rest), at = s;
    uint32_t c = 0;
    size_t len = 0;
    while (span_next_char(&at, &c) && !is_space(c))
        len = (size_t)(at.data - s.data);
    *word = (span){s.data, len};
    *rest = behind(s, len);
    return len > 0;
}

static bool is_apostrophe(uint32_t c)
{
    return c == '\'' || c == 0x2019;
}

bool span_next_letters(span *rest, span *word)
{
    uint32_t c = 0;
    span s = *rest, at = *rest;
    while (span_next_char(&at, &c) && !is_letter(c))
        s = at;
    at = s;
    size_t len = 0;
    while (span_next_char(&at, &c) && (is_letter(c) || (len > 0 && is_apostrophe(c))))
        if (is_letter(c)) len = (size_t)(at.data - s.data);
    *word = (span){s.data, len};
    *rest = behind(s, len);
    return len > 0;
}

bool span_next_line(span *rest, span *line)
{
    if (rest->len == 0) return false;
    const char *end = memchr(rest->data, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    *line = (span){rest->data, len};
    if (len > 0 && line->data[len - 1] == '\r') line->len--;
    *rest = behind(*rest, end ? len + 1 : len);
    return true;
}

bool span_next_full_line(span *rest, span *line)
{
    while (span_next_line(rest, line))
        if (span_trim(*line).len > 0) return true;
    return false;
}

size_t span_count_words(span s)
{
    size_t n = 0;
    for (span word; span_next_word(&s, &word);)
        n++;
    return n;
}

size_t span_count_chars(span s)
{
    size_t n = 0;
    for (uint32_t c = 0; span_next_char(&s, &c);)
        n++;
    return n;
}

size_t span_count_lines(span s)
{
    size_t n = 0;
    for (span line; span_next_full_line(&s, &line);)
        n++;
    return n;
}

size_t span_count_letters(span s, size_t *upper)
{
    size_t n = 0;
    *upper = 0;
    for (uint32_t c = 0; span_next_char(&s, &c);) {
        if (c == UINT32_MAX || unicode_classify(c) != UNICODE_LETTER) continue;
        n++;
        *upper += unicode_lower(c) != c;
    }
    return n;
}
