/* Man pages (mdoc) of the commands, from the same table as --help. */
#ifndef PF_COMMANDS_MAN_H
#define PF_COMMANDS_MAN_H

#include "base/buf.h"
#include "commands/command.h"

/* Appends the whole page preft-NAME(1) of a top-level command, its sub-commands included. */
void man_render(const command *c, buf *out);

#endif
