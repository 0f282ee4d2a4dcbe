/* keymap: the section [keys] of preft.conf, read and written. */
#ifndef PF_UI_KEYMAP_H
#define PF_UI_KEYMAP_H

#include "base/config.h"

/* Gives actions the keys of [keys] (`split-right = F2 Alt-V`, `quit = none`), after putting all
 * back to their defaults. An entry that is refused is left out, with a line in *problems. file may
 * be NULL. */
void keymap_apply(const config *file, buf *problems);

/* Appends the section with every action, its default keys and its description, all commented out.
 */
void keymap_write(buf *out);

#endif
