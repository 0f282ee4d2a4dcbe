#include "commands/options.h"

#include "base/buf.h"
#include "base/config.h"
#include "base/file.h"
#include "base/mem.h"
#include "commands/command.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

global_options global_values = {.device = "auto", .system_models = "/usr/share/preft/models"};
signin_options signin_values = {.passphrase_fd = -1};

static const char *const kv_types[] = {"auto", "f32", "f16", "q8", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const isas[] = {"auto", "ref",   "avx2",    "avx512",
                                   "amx",  "exact", "precise", NULL};
static int device_choice, isa_choice;

const option_spec general_table[] = {
    OPTION_STRING_SPEC(0, "home", &global_values.home, "DIR",
                       "The folder of the encrypted store. Default: `$PREFT_HOME`, else "
                       "`$XDG_DATA_HOME/preft`, else `~/.local/share/preft`."),
    OPTION_FLAG_SPEC(0, "json", &global_values.json,
                     "Write JSON to standard output, for other programs."),
    OPTION_FLAG_SPEC('q', "quiet", &global_values.quiet, "Print no notes and no progress."),
    OPTION_STRING_SPEC(0, "log", &global_values.log, "FILE",
                       "Append a log to FILE: ids, counts and times, never texts or names."),
    OPTION_FLAG_SPEC('h', "help", &global_values.help, "Print this help and exit."),
    OPTIONS_END};

const option_spec version_table[] = {
    OPTION_FLAG_SPEC('V', "version", &global_values.version, "Print the version and end."),
    OPTIONS_END};

const option_spec model_table[] = {
    OPTION_STRING_SPEC(0, "model", &global_values.model, "NAME|PATH",
                       "The base model: a name of `preft model list`, a GGUF file or a Hugging "
                       "Face folder. Default: the first one that `preft model list` knows."),
    OPTION_STRING_SPEC(0, "models", &global_values.models, "DIR",
                       "The folder of downloaded models. Default: `$PREFT_MODELS`, else "
                       "`$XDG_DATA_HOME/preft/models`; `/usr/share/preft/models` is read too."),
    OPTION_STRING_SPEC(0, "template", &global_values.chat_template, "NAME",
                       "The chat template to use in place of the model's own: `chatml`, `llama3`, "
                       "`llama3.1` or `plain`."),
    OPTION_STRING_SPEC(0, "pretokenizer", &global_values.pretokenizer, "NAME",
                       "The pre-tokenizer to use in place of the one the model names."),
    OPTIONS_END};

const option_spec engine_table[] = {
    OPTION_CHOICE_SPEC(0, "device", &device_choice, "NAME", devices,
                       "Where the model runs. Default: `auto`, an NVIDIA GPU if a usable one is "
                       "found (`preft doctor` tells), else the CPU."),
    OPTION_INT_SPEC(0, "threads", &global_values.threads, "N", 0, 1024,
                    "Number of compute threads. Default: 0, all usable cores."),
    OPTION_CHOICE_SPEC(0, "isa", &isa_choice, "NAME", isas,
                       "Instruction set of the CPU kernels, for tests. Default: `auto`, the "
                       "fastest one this machine supports. With `--device cuda` the numerical "
                       "precision, see preft(7): `exact`, the same bits in any batch, or "
                       "`precise`, nothing rounded below 32 bits; both are slower."),
    OPTION_INT_SPEC(0, "context", &global_values.context, "N", 0, 16777216,
                    "Context length in tokens. Default: 0, what the model was made for."),
    OPTION_INT_SPEC(
        0, "kv-budget", &global_values.kv_budget, "TOKENS", 0, 1073741824,
        "Size of the KV cache in tokens, over all conversations. Default: 0, chosen from "
        "the free memory."),
    OPTION_CHOICE_SPEC(0, "kv-type", &global_values.kv_type, "TYPE", kv_types,
                       "Data type of the KV cache. Default: `auto`."),
    OPTIONS_END};

const option_spec passphrase_table[] = {
    OPTION_INT_SPEC(0, "passphrase-fd", &signin_values.passphrase_fd, "N", 0, 65535,
                    "Read the passphrase from file descriptor N, up to the end of the line."),
    OPTION_STRING_SPEC(0, "passphrase-file", &signin_values.passphrase_file, "FILE",
                       "Read the passphrase from the first line of FILE."),
    OPTIONS_END};

const option_spec user_table[] = {
    OPTION_STRING_SPEC('u', "user", &signin_values.user, "NAME", "The user who signs in."),
    OPTIONS_END};

/* --- defaults --------------------------------------------------------------------------------- */

/* The folder an XDG variable names, else ~/fallback. The specification says that a path that is not
 * absolute is to be ignored. Owned. */
static char *xdg_folder(const char *variable, const char *fallback)
{
    const char *folder = getenv(variable);
    if (folder && folder[0] == '/') return xstrdup(folder);
    const char *home = getenv("HOME");
    if (!home || !*home) {
        const struct passwd *entry = getpwuid(getuid());
        home = entry ? entry->pw_dir : "/";
    }
    return path_join(home, fallback);
}

/* A setting's environment variable, or NULL when it is unset or empty. */
static const char *setting(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

/* The values of preft.conf stay borrowed by the options until the process ends. */
static config file_values, *former_values;
static size_t n_former;
static buf file_problems;

#define KEYS_SECTION "keys" /* of the interface; every other section is a command's */

static void check_sections(void)
{
    for (size_t i = 0; i < file_values.count; i++) {
        const config_entry *e = &file_values.entries[i];
        if (!*e->section || strcmp(e->section, KEYS_SECTION) == 0 || command_find(e->section))
            continue;
        char *text = xasprintf("there is no command %s; sections are [%s] and names of commands",
                               e->section, KEYS_SECTION);
        config_problem(&file_values, e, text, &file_problems);
        free(text);
    }
}

static pf_status read_config(config *out, buf *problems, pf_err *err)
{
    const char *named = getenv("PREFT_CONFIG");
    char *path = settings_path();
    pf_status status = PF_OK;
    if (path && (named || file_exists(path))) status = config_read(path, out, problems, err);
    free(path);
    return status;
}

pf_status global_read_settings(pf_err *err)
{
    const option_spec *const tables[] = {general_table, model_table, engine_table, NULL};
    pf_status status = read_config(&file_values, &file_problems, err);
    check_sections();
    if (status == PF_OK) status = config_apply(&file_values, "", tables, &file_problems, err);
    if (setting("PREFT_HOME")) global_values.home = setting("PREFT_HOME");
    if (setting("PREFT_MODELS")) global_values.models = setting("PREFT_MODELS");
    return status;
}

pf_status command_read_settings(const char *name, const option_spec *const *tables, pf_err *err)
{
    return config_apply(&file_values, name, tables, &file_problems, err);
}

pf_status settings_read_again(pf_err *err)
{
    config values = {0};
    buf problems = {0};
    pf_status status = read_config(&values, &problems, err);
    if (status != PF_OK) {
        buf_free(&problems);
        return status;
    }
    former_values = xrealloc_array(former_values, n_former + 1, sizeof *former_values);
    former_values[n_former++] = file_values;
    file_values = values;
    buf_free(&file_problems);
    file_problems = problems;
    check_sections();
    return PF_OK;
}

char *settings_path(void)
{
    const char *named = getenv("PREFT_CONFIG");
    if (named) return *named ? xstrdup(named) : NULL;
    char *folder = xdg_folder("XDG_CONFIG_HOME", ".config");
    char *path = path_join(folder, "preft/preft.conf");
    free(folder);
    return path;
}

const struct config *settings_file(void)
{
    return &file_values;
}

const char *settings_problems(void)
{
    return buf_str(&file_problems);
}

void global_resolve(void)
{
    char *data = xdg_folder("XDG_DATA_HOME", ".local/share");
    if (!global_values.home || !*global_values.home) global_values.home = path_join(data, "preft");
    if (!global_values.models || !*global_values.models)
        global_values.models = path_join(data, "preft/models");
    free(data);
    global_values.device = devices[device_choice];
    global_values.isa = isa_choice ? isas[isa_choice] : NULL;
}
