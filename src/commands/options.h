/* The global options (every command takes them), the sign-in options, and their defaults. Order of
 * precedence: command line, environment (PREFT_HOME, PREFT_MODELS), preft.conf, built-in default.
 */
#ifndef PF_COMMANDS_OPTIONS_H
#define PF_COMMANDS_OPTIONS_H

#include "base/err.h"
#include "base/options.h"

#include <stdbool.h>
#include <stdint.h>

/* Indices of --kv-type; the same order as engine_kv_type. */
enum { KV_TYPE_AUTO, KV_TYPE_F32, KV_TYPE_F16, KV_TYPE_Q8 };

/* All texts are set after parsing (never NULL) unless said otherwise. */
typedef struct {
    const char *home;          /* the store: --home, $PREFT_HOME, $XDG_DATA_HOME/preft */
    const char *models;        /* downloads go here: --models, $PREFT_MODELS,
                                  $XDG_DATA_HOME/preft/models */
    const char *system_models; /* read too: /usr/share/preft/models */
    const char *model;         /* NAME or PATH; NULL: the default model of the catalogue */
    const char *chat_template; /* chatml, llama3, plain...; NULL: the model's own */
    const char *pretokenizer;  /* NULL: the model's own */
    const char *device;        /* "auto", "cpu", "cuda" */
    const char *isa;           /* "ref", "avx2", "avx512"; NULL: the best one */
    int64_t threads;           /* 0: all usable cores */
    int64_t context;           /* tokens of a sequence; 0: the model's */
    int64_t kv_budget;         /* tokens over all sequences; 0: chosen from memory */
    int kv_type;               /* KV_TYPE_* */
    const char *log;           /* log file; NULL: none */
    bool json, quiet, help, version;
} global_options;

typedef struct {
    const char *user;            /* NULL: not given */
    int64_t passphrase_fd;       /* -1: not given */
    const char *passphrase_file; /* NULL: not given */
} signin_options;

/* The parsed values (defaults before parsing) and the tables that fill them. */
extern global_options global_values;
extern signin_options signin_values;
extern const option_spec general_table[];    /* --home --json --quiet --log --help */
extern const option_spec model_table[];      /* --models --model --template --pretokenizer */
extern const option_spec engine_table[];     /* --device ... --kv-type */
extern const option_spec passphrase_table[]; /* --passphrase-fd --passphrase-file */
extern const option_spec user_table[];       /* --user */
extern const option_spec version_table[];    /* --version, before a command's name only */

/* Reads preft.conf ($PREFT_CONFIG, else $XDG_CONFIG_HOME/preft/preft.conf; an empty $PREFT_CONFIG
 * means none) and the environment into the global values. To be called before the command line is
 * parsed, which is stronger. */
pf_status global_read_settings(pf_err *err);
/* The part of preft.conf under [name], into the command's tables. */
pf_status command_read_settings(const char *name, const option_spec *const *tables, pf_err *err);
/* Lines of preft.conf that these two could not use, a line of text each; "" if there are none. */
const char *settings_problems(void);
/* The whole file as it was read; empty if there is none. */
const struct config *settings_file(void);
/* Reads the file again: from then on the two functions above return the new file's contents and
 * problems (command_read_settings adds its part). Texts of the old one stay valid. On failure
 * nothing changes; a missing file counts as empty. */
pf_status settings_read_again(pf_err *err);
/* Its path, existing or not; owned. NULL: no file is to be read. */
char *settings_path(void);
/* Fills what is still not set, by the XDG rules. After parsing. */
void global_resolve(void);

#endif
