/* Unicode normalisation form C in linear time (the library's own reordering of combining marks is
 * quadratic in the length of a run). */
#ifndef PF_MODELS_TOKENIZER_NFC_H
#define PF_MODELS_TOKENIZER_NFC_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* True if text needs no look at its characters: nothing in it is affected by the form. */
bool nfc_is_trivial(const char *text, size_t len);

/* Appends the NFC of text, which must be valid UTF-8. */
void nfc_append(const char *text, size_t len, buf *out);

#endif
