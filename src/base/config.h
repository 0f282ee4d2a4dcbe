/* The configuration file: lines `name = value`, where name is a long option without dashes. Blank
 * lines and lines that begin with # or ; are skipped. A value may stand in double quotes to keep
 * blanks at its ends. A line `[command]` says that what follows is for that command alone. */
#ifndef PF_BASE_CONFIG_H
#define PF_BASE_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "base/options.h"

typedef struct {
    char *section, *name, *value; /* section "" before the first [..] line */
    int line;
} config_entry;

typedef struct config {
    char *path;
    config_entry *entries;
    size_t count;
} config;

/* Reads a file of at most 1 MiB; PF_NOT_FOUND if it does not exist, PF_USAGE (file and line in the
 * message) if a line is not understood. out is filled only on success; config_free releases it.
 * problems not NULL: lines that are not understood are left out, each with a line of text there. */
pf_status config_read(const char *path, config *out, buf *problems, pf_err *err);
void config_free(config *c);

/* Sets the options of the tables that have an entry in section. An entry of this section that no
 * table knows is refused with the nearest name. String values are borrowed from c. problems not
 * NULL: what is refused is left out, each with a line of text there. */
pf_status config_apply(const config *c, const char *section, const option_spec *const *tables,
                       buf *problems, pf_err *err);

/* A problem with an entry, ready for *problems: "FILE, line N: NAME: TEXT\n". */
void config_problem(const config *c, const config_entry *entry, const char *text, buf *problems);

#endif
