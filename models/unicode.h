/* Unicode for names, passphrases and search: composing, folding, classes. */
#ifndef PF_MODELS_UNICODE_H
#define PF_MODELS_UNICODE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Appends text composed (NFC). False if it is not valid UTF-8 (out unchanged). */
bool unicode_nfc(const char *text, size_t len, buf *out);
/* Appends text for comparing: compatibility forms and case folded, composed (NFKC casefold). */
bool unicode_fold(const char *text, size_t len, buf *out);

/* As unicode_nfc, within memory of the caller's (for secrets): work has n_work elements, at least 4
 * for each byte of text and one more; the result is at its start, *out_len bytes and a NUL. */
bool unicode_nfc_in(const char *text, size_t len, int32_t *work, size_t n_work, size_t *out_len);

typedef enum {
    UNICODE_LETTER,
    UNICODE_MARK, /* combining */
    UNICODE_DIGIT,
    UNICODE_SPACE,
    UNICODE_VISIBLE,  /* punctuation, symbols, other numbers */
    UNICODE_INVISIBLE /* control, format, fillers, variation selectors, private, unassigned */
} unicode_class;
unicode_class unicode_classify(uint32_t code_point);

uint32_t unicode_lower(uint32_t code_point); /* simple mapping, one character to one */

#endif
