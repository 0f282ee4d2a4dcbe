/* Commands. One file per command (src/commands/NAME.c) holds its options, its texts and its run
 * function, and exposes one `const struct command NAME_command`. One line COMMAND(NAME) in
 * table.def puts it into the program: --help, man page, completions and the option tests follow
 * from the table. Sub-commands (`preft user add`) are commands too, listed by their parent.
 *
 * A command file looks like this:
 *
 *     static struct { int64_t limit; bool special; } opt = {.limit = 10};
 *     static const option_spec options[] = {
 *         OPTION_INT_SPEC('n', "limit", &opt.limit, "N", 1, 1000, "Most lines to print."),
 *         OPTION_FLAG_SPEC(0, "special", &opt.special, "Parse control tokens."),
 *         OPTIONS_END};
 *     static pf_status run(const command_context *ctx, pf_err *err) { ... }
 *     const struct command tokenize_command = {
 *         .name = "tokenize",
 *         .summary = "Turn text into token ids",
 *         .synopsis = TEXTS("[--special] [TEXT]", "--jsonl < FILE"),
 *         .description = TEXTS("First paragraph.", "Second paragraph."),
 *         .options = options,
 *         .examples = EXAMPLES({"preft tokenize 'Hello'", "Print the ids of one text."}),
 *         .see_also = TEXTS("preft-detokenize 1"),
 *         .max_operands = 1,
 *         .groups = GROUP_MODEL,
 *         .run = run};
 */
#ifndef PF_COMMANDS_COMMAND_H
#define PF_COMMANDS_COMMAND_H

#include "base/buf.h"
#include "base/err.h"
#include "base/options.h"
#include "commands/options.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct command command;

typedef struct {
    const command *command;       /* the one that runs (the sub-command, if there is one) */
    const global_options *global; /* resolved: see commands/options.h */
    const signin_options *signin; /* --user, --passphrase-fd, --passphrase-file (GROUP_SIGN_IN) */
    int argc;                     /* operands, already counted against min and max */
    char **argv;                  /* argv[0..argc), argv[argc] == NULL */
} command_context;

typedef struct {
    const char *line, *text; /* what to type; what it does */
} command_example;

/* Groups of commands in the overview, in this order. */
typedef enum {
    AREA_CHAT,
    AREA_PEOPLE,
    AREA_TRAINING,
    AREA_MODELS,
    AREA_DATA,
    AREA_PROGRAM
} command_area;

/* Which common options a command shows in its help. (Every command accepts the global ones.) */
enum {
    GROUP_MODEL = 1 << 0,      /* --models, --model, --template */
    GROUP_ENGINE = 1 << 1,     /* --device, --threads, --isa, --context, --kv-budget, --kv-type */
    GROUP_PASSPHRASE = 1 << 2, /* --passphrase-fd, --passphrase-file */
    GROUP_USER = 1 << 3,       /* --user (not set by `chat`, which has its own repeatable one) */
    GROUP_SIGN_IN = GROUP_PASSPHRASE | GROUP_USER
};

struct command {
    const char *name;                  /* in full: "run", "user add" */
    const char *summary;               /* one line, no full stop */
    const char *const *synopsis;       /* what may follow the name, one text per form */
    const char *const *description;    /* paragraphs; `x` marks literal text, _X_ a placeholder */
    const option_spec *options;        /* its own; NULL: none */
    const command *const *subcommands; /* NULL-terminated; then run is NULL */
    const command_example *examples;   /* ends with a zeroed one */
    const char *const *exit_notes;     /* what exit codes mean here, beyond the common ones */
    const char *const *see_also;       /* "preft-run 1" */
    int min_operands, max_operands;    /* max < 0: any number */
    unsigned groups;
    command_area area;
    bool hidden; /* not in overviews */
    /* Runs with what is understood of preft.conf, and shows the rest (settings_problems) itself.
     * The others refuse to run with such a file. */
    bool shows_problems;
    /* Further sections of its man page, in mdoc, after the options; NULL: none. */
    void (*man_sections)(buf *out);
    /* PF_OK: exit code 0. Else main prints "preft NAME: text" on standard error and ends with
     * status_exit_code; an empty text prints nothing (the command has said all itself). */
    pf_status (*run)(const command_context *ctx, pf_err *err);
};

#define TEXTS(...)       ((const char *const[]){__VA_ARGS__, NULL})
#define EXAMPLES(...)    ((const command_example[]){__VA_ARGS__, {NULL, NULL}})
#define SUBCOMMANDS(...) ((const command *const[]){__VA_ARGS__, NULL})

/* All commands in the order of table.def, NULL-terminated. */
extern const command *const command_table[];
/* The command of this name ("run", "user", "user add"), or NULL. */
const command *command_find(const char *name);

/* Runs argv as the shell gave it; returns the process exit code. */
int command_main(int argc, char **argv);

/* --- for run functions ---------------------------------------------------------------------- */

/* PF_USAGE, with "see `preft NAME --help`" after the text. */
pf_status usage_error(const command_context *ctx, pf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A note for the person at standard error ("preft NAME: ..."); nothing with --quiet. */
void note(const command_context *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes out what standard output holds. A reader that went away (closed pipe) gives PF_FAILED
 * with an empty text: stop quietly. Call it after each streamed piece; main calls it at the end. */
pf_status output_flush(pf_err *err);

#endif
