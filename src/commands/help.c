#include "commands/help.h"

#include "base/buf.h"

#include <ctype.h>
#include <string.h>

#define WIDTH 80

/* --- wrapped text ----------------------------------------------------------------------------- */

/* Characters of text[0..len), counting no continuation bytes. */
static size_t columns(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xC0) != 0x80;
    return n;
}

/* Writes text word by word. The cursor stands at column at; further lines begin at indent. */
static void print_wrapped(FILE *out, const char *text, size_t at, size_t indent)
{
    bool first = true;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, " ");
        size_t need = columns(p, len);
        if (!first && at + 1 + need > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        if (!first) fputc(' ', out);
        fwrite(p, 1, len, out);
        at += need + !first;
        first = false;
        p += len;
        p += strspn(p, " ");
    }
    fputc('\n', out);
}

const char *text_mark_end(const char *text, const char *p)
{
    if (*p == '`') return strchr(p + 1, '`');
    if (*p != '_' || !isupper((unsigned char)p[1]) || (p > text && !strchr(" (", p[-1])))
        return NULL;
    const char *end = p + 1 + strspn(p + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789|-.");
    return *end == '_' ? end : NULL;
}

/* Prints a text of the table: `x` as it is, _X_ as X. */
static void print_paragraph(FILE *out, const char *text, size_t at, size_t indent)
{
    buf plain = {0};
    for (const char *p = text; *p; p++) {
        const char *end = text_mark_end(text, p);
        if (!end) {
            buf_putc(&plain, *p);
        } else {
            bool literal = *p == '`';
            buf_append(&plain, p + !literal, (size_t)(end - p) - !literal + literal);
            p = end;
        }
    }
    print_wrapped(out, buf_str(&plain), at, indent);
    buf_free(&plain);
}

/* --- options ---------------------------------------------------------------------------------- */

static void print_option(FILE *out, const option_spec *o)
{
    buf left = {0};
    if (o->letter)
        buf_printf(&left, "  -%c, --%s", o->letter, o->name);
    else
        buf_printf(&left, "      --%s", o->name);
    if (o->kind != OPTION_FLAG)
        buf_printf(&left, "%s%s%s%s", o->optional ? "[=" : " ", o->value, o->optional ? "]" : "",
                   o->kind == OPTION_LIST ? " ..." : "");
    fputs(buf_str(&left), out);
    const size_t indent = 28;
    if (left.len + 2 > indent)
        fprintf(out, "\n%*s", (int)indent, "");
    else
        fprintf(out, "%*s", (int)(indent - left.len), "");
    buf text = {0};
    buf_puts(&text, o->help);
    if (o->kind == OPTION_CHOICE) {
        buf_puts(&text, " One of:");
        for (int i = 0; o->choices[i]; i++)
            buf_printf(&text, "%s %s", i ? "," : "", o->choices[i]);
        buf_puts(&text, ".");
    }
    print_paragraph(out, buf_str(&text), indent, indent);
    buf_free(&text);
    buf_free(&left);
}

void command_option_groups(const command *c, option_group *groups)
{
    size_t n = 0;
    unsigned shown = c->groups;
    for (const command *const *s = c->subcommands; s && *s; s++)
        shown |= (*s)->groups;
    if (c->options && c->options->kind != OPTION_END)
        groups[n++] = (option_group){"Options", c->options};
    if (shown & GROUP_USER) groups[n++] = (option_group){"Sign-in options", user_table};
    if (shown & GROUP_PASSPHRASE)
        groups[n++] = (option_group){"Passphrase options", passphrase_table};
    if (shown & GROUP_MODEL) groups[n++] = (option_group){"Model options", model_table};
    if (shown & GROUP_ENGINE) groups[n++] = (option_group){"Engine options", engine_table};
    groups[n++] = (option_group){"General options", general_table};
    groups[n] = (option_group){NULL, NULL};
}

static void print_option_groups(FILE *out, const command *c)
{
    option_group groups[OPTION_GROUPS_MAX];
    command_option_groups(c, groups);
    for (const option_group *g = groups; g->heading; g++) {
        fprintf(out, "\n%s:\n", g->heading);
        for (const option_spec *o = g->options; o->kind != OPTION_END; o++)
            print_option(out, o);
    }
}

/* --- one command ------------------------------------------------------------------------------ */

static void print_synopsis(FILE *out, const command *c)
{
    const char *lead = "Usage: ";
    const char *const none[] = {"", NULL};
    for (const char *const *s = c->synopsis && c->synopsis[0] ? c->synopsis : none; *s; s++) {
        fprintf(out, "%spreft %s%s", lead, c->name, **s ? " " : "");
        size_t at = strlen(lead) + strlen("preft ") + strlen(c->name) + 1;
        print_paragraph(out, *s, at, strlen(lead) + 4);
        lead = "       ";
    }
}

static void print_command_lines(FILE *out, const command *const *list)
{
    size_t widest = 0;
    for (const command *const *s = list; *s; s++)
        if (strlen((*s)->name) > widest) widest = strlen((*s)->name);
    for (; *list; list++)
        if (!(*list)->hidden)
            fprintf(out, "  %-*s  %s\n", (int)widest, (*list)->name, (*list)->summary);
}

void help_print_command(const command *c, FILE *out)
{
    if (c->subcommands)
        fprintf(out, "Usage: preft %s COMMAND [options]\n", c->name);
    else
        print_synopsis(out, c);
    fprintf(out, "\n%s.\n", c->summary);
    for (const char *const *p = c->description; p && *p; p++) {
        fputc('\n', out);
        print_paragraph(out, *p, 0, 0);
    }
    if (c->subcommands) {
        fprintf(out, "\nCommands:\n");
        print_command_lines(out, c->subcommands);
    }
    print_option_groups(out, c);
    if (c->examples) fprintf(out, "\nExamples:\n");
    for (const command_example *e = c->examples; e && e->line; e++) {
        fprintf(out, "  %s\n      ", e->line);
        print_paragraph(out, e->text, 6, 6);
    }
    fprintf(out, "\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 file refused, 4 sign-in refused,"
                 "\n5 not found, 130 interrupted.\n");
    for (const char *const *p = c->exit_notes; p && *p; p++)
        print_paragraph(out, *p, 0, 0);
}

/* --- the overview ----------------------------------------------------------------------------- */

static const struct {
    command_area area;
    const char *heading;
} areas[] = {{AREA_CHAT, "Chat and answers"}, {AREA_PEOPLE, "People and profiles"},
             {AREA_TRAINING, "Training"},     {AREA_MODELS, "Models and files"},
             {AREA_DATA, "Your data"},        {AREA_PROGRAM, "The program"}};

void help_print_overview(FILE *out)
{
    fputs("Usage: preft [COMMAND] [options]\n\n"
          "A chat for the terminal where each person has a personal, encrypted model.\n"
          "Without a command, `preft` opens the chat.\n",
          out);
    for (size_t a = 0; a < sizeof areas / sizeof *areas; a++) {
        bool any = false;
        for (const command *const *c = command_table; *c; c++) {
            if ((*c)->area != areas[a].area || (*c)->hidden) continue;
            if (!any) fprintf(out, "\n%s:\n", areas[a].heading);
            any = true;
            fprintf(out, "  %-12s %s\n", (*c)->name, (*c)->summary);
        }
    }
    fputs("\n`preft COMMAND --help` explains one command, `man preft` the whole program.\n", out);
}

/* --- preft help ------------------------------------------------------------------------------- */

static pf_status run(const command_context *ctx, pf_err *err)
{
    if (ctx->argc == 0) {
        help_print_overview(stdout);
        return PF_OK;
    }
    buf name = {0};
    for (int i = 0; i < ctx->argc; i++)
        buf_printf(&name, "%s%s", i ? " " : "", ctx->argv[i]);
    const command *c = command_find(buf_str(&name));
    pf_status status = PF_OK;
    if (c)
        help_print_command(c, stdout);
    else
        status =
            err_set(err, PF_USAGE, "no command \"%s\"; `preft help` lists them", buf_str(&name));
    buf_free(&name);
    return status;
}

const command help_command = {
    .name = "help",
    .summary = "Explain a command",
    .synopsis = TEXTS("[COMMAND [SUBCOMMAND]]"),
    .description = TEXTS("Prints the same text as `preft COMMAND --help`; without an argument, the "
                         "list of commands."),
    .examples = EXAMPLES({"preft help run", "Explain the command that writes one answer."}),
    .max_operands = 2,
    .area = AREA_PROGRAM,
    .run = run,
};
