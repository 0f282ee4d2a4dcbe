/* Man pages of the interface, made from the table of actions: sections of preft-chat(1), and
 * preft.conf(5). */
#include "commands/man.h"
#include "ui/actions.h"

#include <string.h>

/* "F2 , Alt-V" as arguments of a list item. */
static void put_keys(buf *out, const char *keys)
{
    if (!*keys) keys = "none";
    for (bool first = true; *keys; first = false) {
        size_t len = strcspn(keys, " ");
        buf_puts(out, first ? " Sy " : " , ");
        /* A key that is punctuation would end the macro. */
        if (len == 1 || keys[len - 1] == ',' || keys[len - 1] == '.') buf_puts(out, "\\&");
        man_put_escaped(out, keys, len);
        if (keys[len - 1] == ',' || keys[len - 1] == '.') buf_puts(out, "\\&");
        keys += len + strspn(keys + len, " ");
    }
}

/* The description as a sentence. */
static void put_description(buf *out, action a)
{
    buf text = {0};
    buf_puts(&text, action_description(a));
    if (text.data[0] >= 'a' && text.data[0] <= 'z') text.data[0] = (char)(text.data[0] - 0x20);
    buf_putc(&text, '.');
    man_put_paragraph(out, buf_str(&text));
    buf_free(&text);
}

static bool in_context(action a, context where)
{
    return action_context(a) == where;
}

static void put_context(buf *out, context where, bool names)
{
    buf_printf(out, ".Ss %s\n.Bl -tag -width Ds\n", context_title(where));
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *keys = action_default_keys((action)a);
        if (!in_context((action)a, where) || (!names && !*keys)) continue;
        buf_puts(out, ".It");
        if (names) buf_printf(out, " Ic %s =", action_name((action)a));
        put_keys(out, keys);
        buf_putc(out, '\n');
        put_description(out, (action)a);
    }
    buf_puts(out, ".El\n");
}

static void put_slash_commands(buf *out)
{
    buf_puts(out, ".Bl -tag -width Ds\n");
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *slash = action_slash((action)a);
        size_t word = strcspn(slash, " ");
        if (!word) continue;
        buf_printf(out, ".It Ic /%.*s", (int)word, slash);
        bool optional = slash[word] && slash[word + 1] == '[';
        if (optional)
            buf_printf(out, " Op Ar %.*s", (int)strlen(slash + word + 2) - 1, slash + word + 2);
        else if (slash[word])
            buf_printf(out, " Ar %s", slash + word + 1);
        buf_putc(out, '\n');
        put_description(out, (action)a);
    }
    buf_puts(out, ".El\n");
}

void man_put_interface(buf *out)
{
    buf_puts(out, ".Sh KEYS\n");
    man_put_paragraph(out, "All keys can be changed in `preft.conf`. Contexts further down take a "
                           "key before those above them, but for the keys that hold anywhere.");
    for (int c = 0; c < CONTEXT_COUNT; c++)
        put_context(out, (context)c, false);
    buf_puts(out, ".Sh SLASH COMMANDS\n");
    man_put_paragraph(
        out,
        "A message of one line that begins with `/` and a word is a command; "
        "`Tab` completes it. A message that begins with `/` needs a blank in front. The command "
        "palette finds these and all other actions by some letters of their names.");
    put_slash_commands(out);
}

void man_render_config(buf *out)
{
    static const char *const intro[] = {
        "holds options that preft(1) would otherwise be given on every command line, and the keys "
        "of the chat. A line has the form",
        "where the name is that of a long option without its dashes, or in `[keys]` that of an "
        "action. Options that are switches take `yes` or `no`. Blanks around name and value do not "
        "count; a value may stand in double quotes to keep them. Empty lines and lines that begin "
        "with `#` or `;` are skipped.",
        "What stands before the first line of the form `[command]` are options of preft(1) that "
        "every command takes. What follows such a line are the options of that command alone, with "
        "its name written in full: `[run]`, `[user add]`. What follows `[keys]` are keys.",
        "`preft chat --print-config` prints such a file with every option and every action in it, "
        "explained and commented out, to begin with.",
        "The environment is stronger than the file, and the command line is stronger than both."};
    static const char *const errors[] = {
        "A line that can't be used is named with the file, the line, the reason and what to do. "
        "`preft chat` shows such lines when it starts and goes on with all others; `/settings` "
        "shows them again. Every other command refuses to run with such a file, so that nothing is "
        "done with half of the settings.",
        "A key that is given to an action is taken from the action that has it by default where "
        "both could be meant; given to two actions, the second line is refused."};
    buf_puts(out, ".\\\" Made from the table of actions by `make man`: edit "
                  "src/commands/man_interface.c.\n.Dd " MAN_DATE
                  "\n.Dt PREFT.CONF 5\n.Os preft\n.Sh NAME\n.Nm preft.conf\n.Nd settings of preft\n"
                  ".Sh SYNOPSIS\n.Nm ~/.config/preft/preft.conf\n.Sh DESCRIPTION\n.Nm\n");
    man_put_paragraph(out, intro[0]);
    buf_puts(out, ".Pp\n.Dl name = value\n.Pp\n");
    for (size_t i = 1; i < sizeof intro / sizeof *intro; i++) {
        if (i > 1) buf_puts(out, ".Pp\n");
        man_put_paragraph(out, intro[i]);
    }
    buf_puts(out, ".Ss Lines that can't be used\n");
    man_put_paragraph(out, errors[0]);
    buf_puts(out, ".Pp\n");
    man_put_paragraph(out, errors[1]);
    buf_puts(out, ".Ss The chat\n");
    man_put_paragraph(
        out,
        "The options of preft-chat(1) stand under `[chat]`: `theme` for the colours, `no-mouse` "
        "to leave the mouse to the terminal, `lock-after` for minutes after which idle panes "
        "are locked, `editor` for the editor of long texts, `user` for the panes at the start. "
        "`/reload` in the chat reads these, all but `user`, "
        "and the keys again; the model and the engine take theirs at the next start.");
    buf_puts(out, ".Sh KEYS\n");
    man_put_paragraph(
        out, "Each action takes up to four keys, separated by blanks, or `none`. Keys are "
             "written like `F2`, `Ctrl-P`, `Alt-Enter`, `Shift-Up`, `Ctrl-Alt-X`; a letter "
             "alone is a key only where no text is written. These are the defaults.");
    for (int c = 0; c < CONTEXT_COUNT; c++)
        put_context(out, (context)c, true);
    buf_puts(out,
             ".Sh FILES\n.Bl -tag -width Ds\n.It Pa $XDG_CONFIG_HOME/preft/preft.conf\n"
             "or, if the variable is not set,\n.Pa ~/.config/preft/preft.conf .\n"
             ".It Pa $PREFT_CONFIG\nis read in place of it, if set; empty: no file is read.\n"
             ".El\n.Sh EXAMPLES\n.Bd -literal -offset indent\n# all commands\nthreads = 4\n"
             "models = /srv/models\n\n[run]\nmax-tokens = 400\n\n[chat]\ntheme = light\n"
             "lock-after = 10\n\n[keys]\nsend = Alt-Enter\nnewline = Enter\nquit = Ctrl-X\n.Ed\n"
             ".Sh SEE ALSO\n.Xr preft 1 ,\n.Xr preft-chat 1\n");
}
