/* The canonical form of a chat template's source: a text in which spellings that mean the same are
 * the same, so that known templates can be recognised by comparison. The source is never run. */
#ifndef PF_MODELS_TEMPLATE_FORM_H
#define PF_MODELS_TEMPLATE_FORM_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the canonical form of a Jinja source (read with trim_blocks and lstrip_blocks on, as
 * chat templates are):
 * - what is written out as it stands, text and string literals alike: "text", neighbours joined,
 *   with \n, \" and \\ escaped
 * - other operands of an output expression: {operand}
 * - statements: %tokens%
 * with comments and needless blanks gone, x['name'] as x.name, and strings inside expressions in
 * single quotes. False if the source is cut or uses what no known template uses. */
bool template_form_append(const char *source, size_t len, buf *out);

/* Finds the default system text in a ChatML form: the literal between "<|im_start|>system\n and
 * <|im_end|>\n". Appends it to *text (unescaped) and puts * in its place wherever it stands in
 * form. False, and nothing changed, if there is none. */
bool template_form_take_system(buf *form, buf *text);

#endif
