/* Man pages (mdoc) of the commands, from the same table as --help. */
#ifndef PF_COMMANDS_MAN_H
#define PF_COMMANDS_MAN_H

#include "base/buf.h"
#include "commands/command.h"

/* Appends the whole page preft.conf(5). */
void man_render_config(buf *out);

/* The date in the pages: when their texts last changed for a release. */
#define MAN_DATE "November 29, 2026"

/* Appends text so that roff prints it as it is. */
void man_put_escaped(buf *out, const char *text, size_t len);
/* A paragraph of the table's texts: new sentences on new lines, as man pages are written. */
void man_put_paragraph(buf *out, const char *text);

/* Of preft-chat(1): the keys and the slash commands, from the table of actions. */
void man_put_interface(buf *out);

#endif
