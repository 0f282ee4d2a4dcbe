/* Options in the GNU style: --name VALUE, --name=VALUE, -n VALUE, -nVALUE, flags joined (-ab), an
 * unambiguous beginning of a long name (--max for --max-tokens), `--` to end them; options and
 * operands may be mixed. A table describes them; the same table feeds --help, the man pages, the
 * completions and the configuration file, so it is the only place where an option is described. */
#ifndef PF_BASE_OPTIONS_H
#define PF_BASE_OPTIONS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of a repeatable option, in order. The texts are borrowed from argv. Zeroed = empty. */
typedef struct {
    const char **items;
    size_t count;
} option_list;
void option_list_free(option_list *list); /* frees the array, zeroes the struct */

typedef enum {
    OPTION_END,    /* ends a table (a zeroed entry) */
    OPTION_FLAG,   /* no value; sets true */
    OPTION_STRING, /* any text, empty too */
    OPTION_INT,    /* a decimal whole number in [low, high] */
    OPTION_REAL,   /* a finite decimal number in [low, high] */
    OPTION_CHOICE, /* one of choices; stores its index */
    OPTION_LIST    /* as STRING, may be given again and again; shown as "FILE ..." */
} option_kind;

/* One option. Make entries with the macros below: they check the type of the target. */
typedef struct {
    option_kind kind;
    char letter;          /* 0: no short form */
    const char *name;     /* long name without dashes */
    const char *value;    /* what the value is called in texts: "N", "FILE"; NULL for flags */
    const char *help;     /* one or two sentences; `x` marks literal text, _X_ a placeholder */
    const char *optional; /* not NULL: the value may be left out, then it is this (--name alone) */
    const char *const *choices; /* CHOICE: names, NULL-terminated */
    double low, high;           /* INT, REAL: the allowed range, both ends included */
    union {
        bool *flag;
        const char **string;
        int64_t *integer;
        double *real;
        int *choice;
        option_list *list;
    } to;        /* where the value goes; holds the default before parsing */
    bool *given; /* set to true when the option was given; may be NULL */
} option_spec;

/* A table is an array of these that ends with OPTIONS_END. Further members can follow the fixed
 * ones: OPTION_INT_SPEC('k', "top-k", &opt.top_k, "N", 0, 1000, "…", .given = &opt.has_top_k). */
#define OPTION_FLAG_SPEC(short_, long_, target, help_, ...)                                        \
    {                                                                                              \
        .kind = OPTION_FLAG, .letter = (short_), .name = (long_), .help = (help_),                 \
        .to.flag = (target), __VA_ARGS__                                                           \
    }
#define OPTION_STRING_SPEC(short_, long_, target, value_, help_, ...)                              \
    {                                                                                              \
        .kind = OPTION_STRING, .letter = (short_), .name = (long_), .value = (value_),             \
        .help = (help_), .to.string = (target), __VA_ARGS__                                        \
    }
#define OPTION_LIST_SPEC(short_, long_, target, value_, help_, ...)                                \
    {                                                                                              \
        .kind = OPTION_LIST, .letter = (short_), .name = (long_), .value = (value_),               \
        .help = (help_), .to.list = (target), __VA_ARGS__                                          \
    }
#define OPTION_INT_SPEC(short_, long_, target, value_, low_, high_, help_, ...)                    \
    {                                                                                              \
        .kind = OPTION_INT, .letter = (short_), .name = (long_), .value = (value_), .low = (low_), \
        .high = (high_), .help = (help_), .to.integer = (target), __VA_ARGS__                      \
    }
#define OPTION_REAL_SPEC(short_, long_, target, value_, low_, high_, help_, ...)                   \
    {                                                                                              \
        .kind = OPTION_REAL, .letter = (short_), .name = (long_), .value = (value_),               \
        .low = (low_), .high = (high_), .help = (help_), .to.real = (target), __VA_ARGS__          \
    }
#define OPTION_CHOICE_SPEC(short_, long_, target, value_, choices_, help_, ...)                    \
    {                                                                                              \
        .kind = OPTION_CHOICE, .letter = (short_), .name = (long_), .value = (value_),             \
        .choices = (choices_), .help = (help_), .to.choice = (target), __VA_ARGS__                 \
    }
#define OPTIONS_END                                                                                \
    {                                                                                              \
        .kind = OPTION_END                                                                         \
    }

/* Most tables that one parse can look through. */
#define OPTIONS_MAX_TABLES 8

/* Reads argv[1..*argc). tables is a NULL-terminated list of tables (earlier ones win a name).
 * The operands are moved to argv[1..], *argc becomes 1 + their number, argv[*argc] NULL. With
 * stop_at_operand the first operand ends the options (for `preft [options] COMMAND ...`).
 * PF_USAGE with a message that names the option: unknown (with the nearest known name),
 * ambiguous, value missing or not wanted, not a number, out of range, not one of the choices. */
pf_status options_parse(const option_spec *const *tables, int *argc, char **argv,
                        bool stop_at_operand, pf_err *err);

/* Stores one value as if `--name=value` had been given; value NULL: `--name` alone. source is put
 * in front of messages in place of --name ("preft.conf, line 3: home"); NULL for the command
 * line. */
pf_status option_set(const option_spec *spec, const char *value, const char *source, pf_err *err);

/* The entry with this long name, or NULL. */
const option_spec *options_find(const option_spec *const *tables, const char *name);
/* The long name of the tables that is nearest to name, or NULL (see nearest_name). */
const char *options_nearest(const option_spec *const *tables, const char *name);

/* A whole decimal number in [low, high]; the text may have a sign but no blanks, no suffix. what
 * names the value in messages ("--seed"). */
pf_status parse_int(const char *text, const char *what, int64_t low, int64_t high, int64_t *out,
                    pf_err *err);
/* A finite decimal number ("0.7", "1e-4") in [low, high]; no hexadecimal, no "nan" or "inf". */
pf_status parse_real(const char *text, const char *what, double low, double high, double *out,
                     pf_err *err);

/* The name among names (NULL-terminated) that is nearest to text, or NULL when none is near: at
 * most a third of its letters are wrong. */
const char *nearest_name(const char *text, const char *const *names);

#endif
