/* Texts made from the command table: --help, the overview, man pages and completions. */
#ifndef PF_COMMANDS_HELP_H
#define PF_COMMANDS_HELP_H

#include "commands/command.h"

#include <stdio.h>

/* What `preft --help` and `preft help` print. */
void help_print_overview(FILE *out);
/* What `preft NAME --help` prints: plain text, at most 80 columns. */
void help_print_command(const command *c, FILE *out);

/* All option tables a command accepts, its own first, NULL-terminated. c NULL: the global ones.
 * tables holds OPTIONS_MAX_TABLES. */
void command_tables(const command *c, const option_spec **tables);
/* "add" of "user add". */
const char *command_last_word(const command *c);

/* If a marked piece of text begins at p (`literal`, or _NAME_ in capitals), its closing mark, else
 * NULL. */
const char *text_mark_end(const char *text, const char *p);

/* A group of options with its heading; the table ends with a NULL heading. */
typedef struct {
    const char *heading;
    const option_spec *options;
} option_group;
#define OPTION_GROUPS_MAX 8
/* The groups that the command's help lists, in order. */
void command_option_groups(const command *c, option_group *groups);

#endif
