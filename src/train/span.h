/* Looking at text without copying it: trimming, words, lines, searching. White space, letters and
 * case are Unicode's. Texts are UTF-8; ill-formed bytes count as visible characters. */
#ifndef PF_TRAIN_SPAN_H
#define PF_TRAIN_SPAN_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A borrowed part of a text. */
typedef struct {
    const char *data;
    size_t len;
} span;

span span_of(const char *text);          /* NUL-terminated */
span span_of_json(const json_t *string); /* empty if it is no string; may hold NULs */
span span_trim(span s);                  /* without leading and trailing white space */
bool span_equal(span a, span b);         /* byte by byte */
bool span_equal_folded(span a, span b);  /* letters in either case are the same */
bool span_starts(span s, span start);
bool span_ends(span s, span end);
/* Where needle first occurs at or after from; -1: nowhere. An empty needle is found at once. */
ptrdiff_t span_find(span s, span needle, size_t from);
bool span_contains(span s, span needle, bool ignore_case);
/* Whether a word of s begins with needle, in any case: "teal" in "teal-green", not in "stealth". */
bool span_has_word(span s, span needle);
void span_lower(span s, buf *out); /* appends it in lower case */

/* The next part of *rest, which is moved behind it; false at the end. */
bool span_next_word(span *rest, span *word);    /* a run of characters that are no white space */
bool span_next_letters(span *rest, span *word); /* a run of letters, marks and inner apostrophes */
bool span_next_line(span *rest, span *line); /* up to \n, without \r at its end; blank ones too */
bool span_next_full_line(span *rest, span *line); /* the next one that is not blank */
/* The next character; ill-formed bytes come as UINT32_MAX. */
bool span_next_char(span *rest, uint32_t *code_point);

size_t span_count_words(span s);
size_t span_count_chars(span s);
size_t span_count_lines(span s); /* that are not blank */
/* Letters; *upper: the upper-case ones among them. */
size_t span_count_letters(span s, size_t *upper);

#endif
