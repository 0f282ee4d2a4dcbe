/* preft completion: command-line completion for three shells, from the command table. */
#include "base/buf.h"
#include "commands/command.h"
#include "commands/help.h"

#include <stdio.h>
#include <string.h>

/* Calls visit for every command and sub-command that is not hidden. */
static void each_command(void (*visit)(const command *c))
{
    for (const command *const *c = command_table; *c; c++) {
        if ((*c)->hidden) continue;
        visit(*c);
        for (const command *const *s = (*c)->subcommands; s && *s; s++)
            visit(*s);
    }
}

static bool takes_file(const option_spec *o)
{
    return o->value &&
           (strstr(o->value, "FILE") || strstr(o->value, "DIR") || strstr(o->value, "PATH"));
}

static void print_names(const command *const *list)
{
    for (; *list; list++)
        if (!(*list)->hidden) printf(" %s", command_last_word(*list));
}

static void print_choices(const option_spec *o, const char *separator)
{
    for (int i = 0; o->choices[i]; i++)
        printf("%s%s", i ? separator : "", o->choices[i]);
}

/* The first sentence of a text, without marks and without the characters that the shell would
 * take for its own. */
static void print_short(const char *text, const char *forbidden)
{
    for (const char *p = text; *p && !(p[0] == '.' && (p[1] == ' ' || p[1] == '\0')); p++)
        if (*p != '`' && !strchr(forbidden, *p)) putchar(*p);
}

#define ZSH_FORBIDDEN  "'[]:"
#define FISH_FORBIDDEN "'\\"

/* --- bash ------------------------------------------------------------------------------------- */

static void bash_options(const command *c)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    command_tables(c, tables);
    printf("    \"%s\")\n        words=\"", c->name);
    if (c->subcommands) print_names(c->subcommands);
    for (const option_spec *const *t = tables; *t; t++)
        for (const option_spec *o = *t; o->kind != OPTION_END; o++)
            printf(" --%s", o->name);
    printf("\"\n        case $previous in\n");
    for (const option_spec *const *t = tables; *t; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            if (o->kind == OPTION_FLAG || o->optional) continue;
            printf("        --%s", o->name);
            if (o->letter) printf(" | -%c", o->letter);
            printf(") ");
            if (o->kind == OPTION_CHOICE) {
                printf("words=\"");
                print_choices(o, " ");
                printf("\" ;;\n");
            } else {
                printf("%s ;;\n", takes_file(o) ? "words= files=1" : "words=");
            }
        }
    }
    printf("        esac ;;\n");
}

static void print_bash(void)
{
    printf(
        "# bash completion for preft; made by `preft completion bash`\n"
        "_preft() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
        "    local command= word words= files= i\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        word=${COMP_WORDS[i]}\n"
        "        case \"$command\" in\n"
        "        \"\") case \" $_preft_commands \" in *\" $word \"*) command=$word ;; esac ;;\n");
    for (const command *const *c = command_table; *c; c++) {
        if ((*c)->hidden || !(*c)->subcommands) continue;
        printf("        %s) case \"", (*c)->name);
        print_names((*c)->subcommands);
        printf(" \" in *\" $word \"*) command+=\" $word\" ;; esac ;;\n");
    }
    printf("        esac\n    done\n    case $command in\n"
           "    \"\") words=\"$_preft_commands --help --version\" ;;\n");
    each_command(bash_options);
    printf("    esac\n"
           "    [[ $current == -* || -n $words ]] || files=1\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
           "    if [[ $current != -* && ( -n $files || ${#COMPREPLY[@]} -eq 0 ) ]]; then\n"
           "        mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$current\")\n"
           "    fi\n}\n_preft_commands=\"");
    print_names(command_table);
    printf("\"\ncomplete -o filenames -F _preft preft\n");
}

/* --- zsh -------------------------------------------------------------------------------------- */

static void zsh_options(const command *c)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    command_tables(c, tables);
    printf("    \"%s\")\n        _arguments -S", c->name);
    for (const option_spec *const *t = tables; *t; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            printf(" \\\n            '%s--%s%s[", o->kind == OPTION_LIST ? "*" : "", o->name,
                   o->kind == OPTION_FLAG ? "" : "=");
            print_short(o->help, ZSH_FORBIDDEN);
            printf("]");
            if (o->kind == OPTION_CHOICE) {
                printf(":%s:(", o->value);
                print_choices(o, " ");
                printf(")");
            } else if (o->kind != OPTION_FLAG) {
                printf("%s%s:%s", o->optional ? "::" : ":", o->value,
                       takes_file(o) ? "_files" : " ");
            }
            printf("'");
        }
    }
    if (c->subcommands) {
        printf(" \\\n            '1:command:(");
        print_names(c->subcommands);
        printf(")'");
    }
    printf(" \\\n            '*:file:_files' ;;\n");
}

static void print_zsh(void)
{
    printf("#compdef preft\n# zsh completion for preft; made by `preft completion zsh`\n"
           "local name=$words[2]\n"
           "if (( CURRENT == 2 )); then\n    local -a names=(\n");
    for (const command *const *c = command_table; *c; c++)
        if (!(*c)->hidden) {
            printf("        '%s:", (*c)->name);
            print_short((*c)->summary, ZSH_FORBIDDEN);
            printf("'\n");
        }
    printf("    )\n    _describe command names\n    return\nfi\n"
           "shift words\n(( CURRENT-- ))\n"
           "case $name in\n");
    for (const command *const *c = command_table; *c; c++) {
        if ((*c)->hidden || !(*c)->subcommands) continue;
        printf("%s) if (( CURRENT > 2 )); then name+=\" $words[2]\"; shift words; (( CURRENT-- )); "
               "fi ;;\n",
               (*c)->name);
    }
    printf("esac\ncase $name in\n");
    each_command(zsh_options);
    printf("esac\n");
}

/* --- fish ------------------------------------------------------------------------------------- */

/* The end of a line that completes an option. */
static void fish_option(const option_spec *o)
{
    printf(" -l %s", o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->kind != OPTION_FLAG && !o->optional) printf(takes_file(o) ? " -r" : " -x");
    if (o->kind == OPTION_CHOICE) {
        printf(" -a '");
        print_choices(o, " ");
        printf("'");
    }
    printf(" -d '");
    print_short(o->help, FISH_FORBIDDEN);
    printf("'\n");
}

static void fish_options(const command *c)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    command_tables(c, tables);
    const char *word = command_last_word(c);
    size_t parent = (size_t)(word - c->name);
    if (parent == 0)
        printf("complete -c preft -n __fish_use_subcommand -a %s", c->name);
    else
        printf("complete -c preft -n '__fish_seen_subcommand_from %.*s' -f -a %s", (int)parent - 1,
               c->name, word);
    printf(" -d '");
    print_short(c->summary, FISH_FORBIDDEN);
    printf("'\n");
    for (const option_spec *const *t = tables; *t && *t != model_table; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            printf("complete -c preft -n '__fish_seen_subcommand_from %.*s",
                   parent ? (int)parent - 1 : (int)strlen(c->name), c->name);
            if (parent) printf("; and __fish_seen_subcommand_from %s", word);
            printf("'");
            fish_option(o);
        }
    }
}

static void print_fish(void)
{
    static const option_spec *const common[] = {model_table, engine_table, general_table, NULL};
    printf("# fish completion for preft; made by `preft completion fish`\n");
    each_command(fish_options);
    for (const option_spec *const *t = common; *t; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            printf("complete -c preft");
            fish_option(o);
        }
    }
}

/* --- the command ------------------------------------------------------------------------------ */

static pf_status run(const command_context *ctx, pf_err *err)
{
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(ctx->argv[0], shells[i].shell) != 0) continue;
        shells[i].print();
        return PF_OK;
    }
    return usage_error(ctx, err, "no completion for \"%s\": bash, zsh and fish are known",
                       ctx->argv[0]);
}

const command completion_command = {
    .name = "completion",
    .summary = "Print command-line completion for a shell",
    .synopsis = TEXTS("bash|zsh|fish"),
    .description = TEXTS("Prints a script for the shell named. `make install` puts all three where "
                         "the shells look for them; this command serves where nothing can be "
                         "installed."),
    .examples = EXAMPLES({"source <(preft completion bash)", "Complete in this bash from now on."}),
    .min_operands = 1,
    .max_operands = 1,
    .area = AREA_PROGRAM,
    .run = run,
};
