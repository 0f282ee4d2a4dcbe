#include "commands/command.h"

#include <string.h>

#define COMMAND(name) extern const command name##_command;
#include "commands/table.def"
#undef COMMAND

const command *const command_table[] = {
#define COMMAND(name) &name##_command,
#include "commands/table.def"
#undef COMMAND
    NULL};

const command *command_find(const char *name)
{
    for (const command *const *c = command_table; *c; c++) {
        if (strcmp((*c)->name, name) == 0) return *c;
        for (const command *const *s = (*c)->subcommands; s && *s; s++)
            if (strcmp((*s)->name, name) == 0) return *s;
    }
    return NULL;
}
