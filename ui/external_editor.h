/* external_editor: a text in the person's own editor. */
#ifndef PF_UI_EXTERNAL_EDITOR_H
#define PF_UI_EXTERNAL_EDITOR_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

/* Writes text to a private file, runs the editor on it and appends what it left there to *out
 * (without the line feed that editors put at the end). The file is wiped when the editor has ended,
 * and also when this process is killed meanwhile. on_terminal: the editor gets the terminal, which
 * is ours (ui/screen.h); else it runs as it can. fallback: see private_folder_make. PF_FAILED: it
 * could not be run or ended with an error; the text is to be kept.
 * command: a shell's; NULL or "": $VISUAL, else $EDITOR, else vi. */
pf_status external_edit(const char *command, const char *text, size_t len, const char *fallback,
                        bool on_terminal, buf *out, pf_err *err);

#endif
