#include "models/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool map(const char *text, size_t len, utf8proc_option_t options, buf *out)
{
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, &result, options);
    if (n >= 0) buf_append(out, result, (size_t)n);
    if (n > 0) explicit_bzero(result, (size_t)n); /* it may be private */
    free(result);
    return n >= 0;
}

bool unicode_nfc(const char *text, size_t len, buf *out)
{
    return map(text, len, UTF8PROC_STABLE | UTF8PROC_COMPOSE, out);
}

bool unicode_fold(const char *text, size_t len, buf *out)
{
    return map(text, len, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD,
               out);
}

bool unicode_nfc_in(const char *text, size_t len, int32_t *work, size_t n_work, size_t *out_len)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t n = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len,
                                            work, (utf8proc_ssize_t)n_work, options);
    /* reencode needs one free element behind the input */
    if (n < 0 || (size_t)n >= n_work) return false;
    n = utf8proc_reencode(work, n, options);
    if (n < 0) return false;
    *out_len = (size_t)n;
    return true;
}

unicode_class unicode_classify(uint32_t code_point)
{
    if (code_point == 0x2800) return UNICODE_INVISIBLE; /* a braille cell without a dot */
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)code_point);
    if (property->ignorable) return UNICODE_INVISIBLE;
    switch (property->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return UNICODE_MARK;
    case UTF8PROC_CATEGORY_ND:
        return UNICODE_DIGIT;
    case UTF8PROC_CATEGORY_ZS:
        return UNICODE_SPACE;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return UNICODE_INVISIBLE;
    default:
        return UNICODE_VISIBLE;
    }
}

uint32_t unicode_lower(uint32_t code_point)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point);
}
