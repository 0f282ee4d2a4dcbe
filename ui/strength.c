#include "ui/strength.h"

#include <math.h>
#include <stdbool.h>

#define FAIR_BITS   45
#define STRONG_BITS 65

/* How many characters the kinds used so far offer. */
static double alphabet(const char *text, size_t len)
{
    bool lower = false, upper = false, digit = false, other = false, wide = false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        lower |= c >= 'a' && c <= 'z';
        upper |= c >= 'A' && c <= 'Z';
        digit |= c >= '0' && c <= '9';
        wide |= c >= 0x80;
        other |= c < 0x80 && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !(c >= '0' && c <= '9');
    }
    return lower * 26.0 + upper * 26.0 + digit * 10.0 + other * 20.0 + wide * 64.0;
}

strength strength_of(const char *text, size_t len)
{
    if (len == 0) return STRENGTH_NONE;
    double counted = 0;
    for (size_t i = 0; i < len; i++) {
        int step = i ? text[i] - text[i - 1] : 9;
        bool period = i >= 4 && text[i] == text[i - 2] && text[i - 1] == text[i - 3];
        counted += (step >= -1 && step <= 1) || period ? 0.25 : 1;
    }
    double bits = counted * log2(alphabet(text, len));
    /* Letters of words follow from each other: long texts of one kind count less than random ones.
     */
    bits *= 0.8;
    return bits >= STRONG_BITS ? STRENGTH_STRONG
           : bits >= FAIR_BITS ? STRENGTH_FAIR
                               : STRENGTH_WEAK;
}

const char *strength_words(strength s)
{
    static const char *const words[] = {"", "weak", "fair", "strong"};
    return words[s];
}
