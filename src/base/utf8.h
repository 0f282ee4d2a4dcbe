/* UTF-8: checking and repair. Widths and graphemes are the interface's (ui/text). */
#ifndef PF_BASE_UTF8_H
#define PF_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at the start of data[0..len). Returns its length in bytes (1..4) and sets
 * *code_point. Ill-formed: *code_point = UINT32_MAX and the length of the maximal ill-formed part
 * (1..3), as the Unicode standard recommends; *truncated tells whether more bytes could still
 * complete it. len must be > 0. truncated may be NULL. */
size_t utf8_decode(const void *data, size_t len, uint32_t *code_point, bool *truncated);

/* Writes code_point (a scalar value) as UTF-8; returns 1..4. */
size_t utf8_encode(uint32_t code_point, char out[4]);

bool utf8_valid(const void *data, size_t len);

/* Appends data with every maximal ill-formed part replaced by U+FFFD. */
void utf8_repair(const void *data, size_t len, buf *out);

/* The length of the longest prefix of data that does not end inside a character that more bytes
 * could still complete: what may be shown now of a stream. */
size_t utf8_complete_prefix(const void *data, size_t len);

#endif
