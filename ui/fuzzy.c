#include "ui/fuzzy.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SCORE_LETTER 1
#define SCORE_RUN    4 /* directly after the letter before */
#define SCORE_START  6 /* begins a word */
#define SCORE_EARLY  8 /* begins in the first letters: this, less its place */

static int lower(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte < 0x80 ? tolower(byte) : byte;
}

static bool starts_word(const char *text, size_t at)
{
    unsigned char before = at ? (unsigned char)text[at - 1] : ' ';
    return before < 0x80 && !isalnum(before);
}

/* One word from text[from] on, letter by letter at the first place; negative if it isn't there. */
static int match_from(const char *word, size_t len, const char *text, size_t from)
{
    int score = from < SCORE_EARLY ? SCORE_EARLY - (int)from : 0;
    size_t at = from, last = from;
    for (size_t i = 0; i < len; i++, at++) {
        while (text[at] && lower(text[at]) != lower(word[i]))
            at++;
        if (!text[at]) return -1;
        score += SCORE_LETTER;
        if (i > 0 && at == last + 1) score += SCORE_RUN;
        if (starts_word(text, at)) score += SCORE_START;
        last = at;
    }
    return score;
}

/* The best place for a word. */
static int match_word(const char *word, size_t len, const char *text)
{
    int best = -1;
    for (size_t from = 0; text[from]; from++) {
        if (lower(text[from]) != lower(word[0])) continue;
        int score = match_from(word, len, text, from);
        if (score < 0) break; /* a later beginning has even less to choose from */
        if (score > best) best = score;
    }
    return best;
}

int fuzzy_score(const char *pattern, const char *text)
{
    int sum = 0;
    for (pattern += strspn(pattern, " "); *pattern; pattern += strspn(pattern, " ")) {
        size_t len = strcspn(pattern, " ");
        int score = match_word(pattern, len, text);
        if (score < 0) return -1;
        sum += score;
        pattern += len;
    }
    return sum;
}
