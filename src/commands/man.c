#include "commands/man.h"

#include "base/file.h"
#include "base/mem.h"
#include "commands/help.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- text ------------------------------------------------------------------------------------- */

void man_put_escaped(buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool line_start = out->len == 0 || out->data[out->len - 1] == '\n';
        if (line_start && (text[i] == '.' || text[i] == '\'')) buf_puts(out, "\\&");
        if (text[i] == '\\')
            buf_puts(out, "\\e");
        else if (text[i] == '`')
            buf_puts(out, "\\(ga");
        else if (text[i] == '~')
            buf_puts(out, "\\(ti");
        else
            buf_putc(out, text[i]);
    }
}

/* Appends one argument of a macro line; quoted if it has blanks, guarded if it could be read as a
 * macro's name ("Ar", "Brq") or as punctuation. */
static void put_argument(buf *out, const char *text, size_t len)
{
    bool quote = len == 0 || memchr(text, ' ', len) || memchr(text, '"', len);
    bool macro =
        len > 1 && len <= 3 && isupper((unsigned char)text[0]) && islower((unsigned char)text[1]);
    buf_puts(out, quote ? " \"" : " ");
    if (macro || (len == 1 && ispunct((unsigned char)text[0]))) buf_puts(out, "\\&");
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            buf_puts(out, "\\(dq");
        else
            man_put_escaped(out, text + i, 1);
    }
    if (quote) buf_putc(out, '"');
}

static void end_line(buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] == ' ') out->data[--out->len] = '\0';
    if (out->len > 0 && out->data[out->len - 1] != '\n') buf_putc(out, '\n');
}

/* A marked piece stands on a macro line of its own, as a flag, an argument or in quotes, with the
 * punctuation that touches it: "(`a`)," becomes ".Ql ( a ) ,". Returns the rest. */
static const char *put_marked(buf *out, const char *p, const char *end)
{
    const char *piece = p + 1;
    size_t len = (size_t)(end - piece);
    const char *macro = *p == '_' ? "Ar" : "Ql";
    if (len > 1 && *piece == '-' && !memchr(piece, ' ', len) && !memchr(piece, '=', len)) {
        macro = "Fl";
        piece++;
        len--;
    }
    bool opened = out->len > 0 && out->data[out->len - 1] == '(';
    if (opened) out->data[--out->len] = '\0';
    end_line(out);
    buf_printf(out, ".%s%s", macro, opened ? " (" : "");
    put_argument(out, piece, len);
    for (p = end + 1; *p && strchr(".,:;)?!", *p); p++)
        buf_printf(out, " %c", *p);
    if (*p && *p != ' ') buf_puts(out, " Ns");
    buf_putc(out, '\n');
    return p + strspn(p, " ");
}

static bool sentence_end(const char *p)
{
    return *p == ' ' && strchr(".?!:", p[-1]) && p[-1] &&
           (isupper((unsigned char)p[1]) || p[1] == '`');
}

/* Bytes of the line being written. */
static size_t line_width(const buf *out)
{
    const char *newline = out->len ? memrchr(out->data, '\n', out->len) : NULL;
    return newline ? out->len - (size_t)(newline + 1 - out->data) : out->len;
}

void man_put_paragraph(buf *out, const char *text)
{
    const char *p = text;
    while (*p) {
        const char *end = text_mark_end(text, p);
        if (end) {
            p = put_marked(out, p, end);
        } else if (*p == ' ' &&
                   (sentence_end(p) || line_width(out) + 1 + strcspn(p + 1, " ") > 78)) {
            end_line(out);
            p++;
        } else {
            man_put_escaped(out, p++, 1);
        }
    }
    end_line(out);
}

static void put_paragraphs(buf *out, const char *const *texts, bool lead)
{
    for (; texts && *texts; texts++) {
        if (lead) buf_puts(out, ".Pp\n");
        man_put_paragraph(out, *texts);
        lead = true;
    }
}

/* --- synopsis --------------------------------------------------------------------------------- */

/* One word of a form: an option, a placeholder, a bar or a literal. */
static void put_synopsis_word(buf *out, const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    if (len > 1 && word[0] == '-' && equals) {
        bool optional = equals[-1] == '[';
        size_t name = (size_t)(equals - word) - optional;
        buf_printf(out, " Fl %.*s Ns %s= Ns Ar %.*s%s", (int)name - 1, word + 1,
                   optional ? "Oo " : "", (int)(len - name - 1 - 2 * (size_t)optional), equals + 1,
                   optional ? " Oc" : "");
    } else if (len > 1 && word[0] == '-') {
        buf_printf(out, " Fl %.*s", (int)len - 1, word + 1);
    } else if (isupper((unsigned char)word[0])) {
        buf_puts(out, " Ar");
        put_argument(out, word, len);
    } else if (islower((unsigned char)word[0])) {
        buf_puts(out, " Cm");
        put_argument(out, word, len);
    } else {
        /* A bar is a delimiter inside a line, a word at its start. */
        bool starts_line = out->len == 0 || out->data[out->len - 1] == '\n';
        const char *lead = word[0] != '|' ? "No " : starts_line ? "No \\&" : "";
        buf_printf(out, " %s%.*s", lead, (int)len, word);
    }
}

/* One form, "[PROMPT] [--stop TEXT]... FILE", each outer item on a macro line of its own. */
static void put_synopsis(buf *out, const char *form)
{
    int depth = 0;
    for (const char *p = form + strspn(form, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        const char *next = p + len;
        bool fresh = depth == 0;
        size_t at = out->len;
        while (len > 0 && *p == '[') {
            buf_puts(out, " Oo");
            depth++;
            p++;
            len--;
        }
        bool dots = len > 3 && strncmp(p + len - 3, "...", 3) == 0;
        if (dots) len -= 3;
        size_t closing = 0;
        bool value_bracket = memchr(p, '[', len) != NULL;
        while (len > closing + value_bracket && p[len - 1 - closing] == ']')
            closing++;
        if (closing < len) put_synopsis_word(out, p, len - closing);
        for (size_t i = 0; i < closing; i++, depth--)
            buf_puts(out, " Oc");
        if (dots) buf_puts(out, " Ns ...");
        if (fresh) out->data[at] = '.';
        if (depth == 0) buf_putc(out, '\n');
        p = next;
    }
    end_line(out);
}

static void put_forms(buf *out, const command *c)
{
    const char *const none[] = {"", NULL};
    for (const char *const *f = c->synopsis && c->synopsis[0] ? c->synopsis : none; *f; f++) {
        buf_printf(out, ".Nm preft %s\n", c->name);
        put_synopsis(out, *f);
    }
}

/* --- sections --------------------------------------------------------------------------------- */

static void put_option(buf *out, const option_spec *o)
{
    buf_puts(out, ".It");
    if (o->letter) buf_printf(out, " Fl %c ,", o->letter);
    buf_printf(out, " Fl \\-%s", o->name);
    if (o->kind != OPTION_FLAG && o->optional) {
        buf_printf(out, " Ns Oo = Ns Ar %s Oc", o->value);
    } else if (o->kind != OPTION_FLAG) {
        buf_puts(out, " Ar");
        put_argument(out, o->value, strlen(o->value));
        if (o->kind == OPTION_LIST) buf_puts(out, " ...");
    }
    buf_putc(out, '\n');
    man_put_paragraph(out, o->help);
    if (o->kind == OPTION_CHOICE) {
        buf_puts(out, "One of\n");
        for (int i = 0; o->choices[i]; i++) {
            buf_puts(out, ".Cm");
            put_argument(out, o->choices[i], strlen(o->choices[i]));
            buf_puts(out, o->choices[i + 1] ? " ,\n" : " .\n");
        }
    }
}

static void put_option_table(buf *out, const option_spec *o)
{
    buf_puts(out, ".Bl -tag -width Ds\n");
    for (; o->kind != OPTION_END; o++)
        put_option(out, o);
    buf_puts(out, ".El\n");
}

static void put_option_groups(buf *out, const command *c)
{
    option_group groups[OPTION_GROUPS_MAX];
    command_option_groups(c, groups);
    buf_puts(out, ".Sh OPTIONS\n");
    for (const option_group *g = groups; g->heading; g++) {
        if (g->options != c->options) buf_printf(out, ".Ss %s\n", g->heading);
        put_option_table(out, g->options);
    }
}

static void put_subcommands(buf *out, const command *c)
{
    buf_puts(out, ".Sh COMMANDS\n");
    for (const command *const *s = c->subcommands; *s; s++) {
        if ((*s)->hidden) continue;
        buf_printf(out, ".Ss %s\n", command_last_word(*s));
        man_put_paragraph(out, (*s)->summary);
        out->data[out->len - 1] = '.';
        buf_putc(out, '\n');
        put_paragraphs(out, (*s)->description, true);
        if ((*s)->options && (*s)->options->kind != OPTION_END)
            put_option_table(out, (*s)->options);
    }
}

static void put_exit_status(buf *out, const command *c)
{
    static const char *const codes[][2] = {
        {"0", "Done."},
        {"1", "Failed."},
        {"2", "Wrong usage: an option or argument is not right."},
        {"3", "A file was refused."},
        {"4", "Sign-in was refused."},
        {"5", "Something named was not found."},
        {"130", "Interrupted."}};
    buf_puts(out, ".Sh EXIT STATUS\n.Bl -tag -width 4n -compact\n");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        buf_printf(out, ".It %s\n%s\n", codes[i][0], codes[i][1]);
    buf_puts(out, ".El\n");
    put_paragraphs(out, c->exit_notes, true);
    for (const command *const *s = c->subcommands; s && *s; s++)
        put_paragraphs(out, (*s)->exit_notes, true);
}

static void put_example_list(buf *out, const command_example *e)
{
    for (; e && e->line; e++) {
        buf_puts(out, ".Pp\n");
        man_put_paragraph(out, e->text);
        buf_puts(out, ".Bd -literal -offset indent\n");
        man_put_escaped(out, e->line, strlen(e->line));
        buf_puts(out, "\n.Ed\n");
    }
}

static void put_examples(buf *out, const command *c)
{
    buf list = {0};
    put_example_list(&list, c->examples);
    for (const command *const *s = c->subcommands; s && *s; s++)
        put_example_list(&list, (*s)->examples);
    /* No space between a heading and its first paragraph. */
    if (list.len > 0) buf_printf(out, ".Sh EXAMPLES\n%s", buf_str(&list) + strlen(".Pp\n"));
    buf_free(&list);
}

/* References are sorted by section, then by name. */
static int compare_references(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    int by_section = strcmp(strrchr(x, ' '), strrchr(y, ' '));
    return by_section ? by_section : strcmp(x, y);
}

static void put_see_also(buf *out, const command *c)
{
    const char *list[64] = {"preft 1"};
    size_t n = 1;
    for (const char *const *r = c->see_also; r && *r && n < 64; r++)
        list[n++] = *r;
    for (const command *const *s = c->subcommands; s && *s; s++)
        for (const char *const *r = (*s)->see_also; r && *r && n < 64; r++)
            list[n++] = *r;
    qsort(list, n, sizeof *list, compare_references);
    char *self = xasprintf("preft-%s 1", c->name);
    buf lines = {0};
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], self) != 0 && (i == 0 || strcmp(list[i], list[i - 1]) != 0))
            buf_printf(&lines, "%s.Xr %s", lines.len ? " ,\n" : "", list[i]);
    buf_printf(out, ".Sh SEE ALSO\n%s\n", buf_str(&lines));
    buf_free(&lines);
    free(self);
}

/* Appends the whole page preft-NAME(1) of a top-level command, its sub-commands included. */
static void render_page(const command *c, buf *out)
{
    buf_puts(out,
             ".\\\" Made from the command table by `make man`: edit the command, not this page.\n");
    buf_printf(out, ".Dd %s\n.Dt PREFT-", MAN_DATE);
    for (const char *p = c->name; *p; p++)
        buf_putc(out, (char)toupper((unsigned char)*p));
    buf_printf(out, " 1\n.Os preft\n.Sh NAME\n.Nm preft-%s\n.Nd ", c->name);
    buf_putc(out, (char)tolower((unsigned char)c->summary[0]));
    man_put_escaped(out, c->summary + 1, strlen(c->summary + 1));
    buf_puts(out, "\n.Sh SYNOPSIS\n");
    for (const command *const *s = c->subcommands; s && *s; s++)
        if (!(*s)->hidden) put_forms(out, *s);
    if (!c->subcommands) put_forms(out, c);
    buf_puts(out, ".Sh DESCRIPTION\n");
    if (c->description && c->description[0]) {
        put_paragraphs(out, c->description, false);
    } else {
        man_put_paragraph(out, c->summary);
        out->data[out->len - 1] = '.';
        buf_putc(out, '\n');
    }
    if (c->subcommands) put_subcommands(out, c);
    put_option_groups(out, c);
    if (c->man_sections) c->man_sections(out);
    put_exit_status(out, c);
    put_examples(out, c);
    put_see_also(out, c);
}

/* --- preft manual ----------------------------------------------------------------------------- */

static struct {
    const char *folder;
    bool list;
} opt;

static const option_spec options[] = {
    OPTION_FLAG_SPEC(0, "list", &opt.list, "Print the names of all commands and sub-commands."),
    OPTION_STRING_SPEC(0, "write", &opt.folder, "DIR", "Write all pages into this folder."),
    OPTIONS_END};

static void print_names(void)
{
    for (const command *const *c = command_table; *c; c++) {
        puts((*c)->name);
        for (const command *const *s = (*c)->subcommands; s && *s; s++)
            puts((*s)->name);
    }
}

static pf_status write_page(const command *c, pf_err *err)
{
    buf page = {0};
    render_page(c, &page);
    char *path = xasprintf("%s/preft-%s.1", opt.folder, c->name);
    pf_status status = file_write_atomic(path, page.data, page.len, 0644, err);
    free(path);
    buf_free(&page);
    return status;
}

static pf_status write_config_page(pf_err *err)
{
    buf page = {0};
    man_render_config(&page);
    char *path = xasprintf("%s/preft.conf.5", opt.folder);
    pf_status status = file_write_atomic(path, page.data, page.len, 0644, err);
    free(path);
    buf_free(&page);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    if (opt.list) {
        print_names();
        return PF_OK;
    }
    pf_status status = PF_OK;
    for (const command *const *c = command_table; *c && opt.folder && status == PF_OK; c++)
        if (!(*c)->hidden) status = write_page(*c, err);
    if (opt.folder && status == PF_OK) status = write_config_page(err);
    if (opt.folder) return status;
    if (ctx->argc == 0) return usage_error(ctx, err, "name a command or give --write");

    buf page = {0};
    bool config = strcmp(ctx->argv[0], "preft.conf") == 0;
    const command *c = command_find(ctx->argv[0]);
    if (!config && (!c || strchr(c->name, ' ')))
        return usage_error(ctx, err, "no command \"%s\"", ctx->argv[0]);
    if (config)
        man_render_config(&page);
    else
        render_page(c, &page);
    fwrite(page.data, 1, page.len, stdout);
    buf_free(&page);
    return PF_OK;
}

const command manual_command = {
    .name = "manual",
    .summary = "Write the man pages of the commands",
    .synopsis = TEXTS("COMMAND|preft.conf", "--list", "--write DIR"),
    .description = TEXTS("Prints the page of one command in mdoc, or writes the pages of all."),
    .options = options,
    .max_operands = 1,
    .area = AREA_PROGRAM,
    .hidden = true,
    .run = run,
};
