#include "commands/sample_config.h"

#include "commands/help.h"
#include "commands/options.h"
#include "ui/keymap.h"

#include <string.h>

#define COLUMNS 78

/* Appends a text of the tables without its marks. */
static void put_plain(buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        const char *end = text_mark_end(text, p);
        if (end) buf_append(out, p + 1, (size_t)(end - p) - 1);
        if (end)
            p = end;
        else
            buf_putc(out, *p);
    }
}

/* Appends text as comment lines. */
static void put_comment(buf *out, const char *marked)
{
    buf plain = {0};
    size_t column = 1;
    put_plain(&plain, marked);
    const char *text = buf_str(&plain);
    buf_putc(out, '#');
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t len = strcspn(text, " ");
        if (column + 1 + len > COLUMNS) {
            buf_puts(out, "\n#");
            column = 1;
        }
        buf_putc(out, ' ');
        buf_append(out, text, len);
        column += 1 + len;
        text += len;
    }
    buf_putc(out, '\n');
    buf_free(&plain);
}

/* What makes sense on the command line alone. */
static bool left_out(const char *name)
{
    static const char *const names[] = {"help", "json", "print-config", "script", "size"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static void put_options(const option_spec *table, buf *out)
{
    for (; table->kind != OPTION_END; table++) {
        if (left_out(table->name)) continue;
        buf_putc(out, '\n');
        put_comment(out, table->help);
        if (table->choices) {
            buf choices = {0};
            buf_puts(&choices, "One of:");
            for (const char *const *c = table->choices; *c; c++)
                buf_printf(&choices, " %s", *c);
            put_comment(out, buf_str(&choices));
            buf_free(&choices);
        }
        buf_printf(out, "#%s = %s\n", table->name, table->value ? table->value : "yes");
    }
}

void sample_config_write(const option_spec *chat, buf *out)
{
    put_comment(out, "preft.conf: settings of preft, see preft.conf(5). To use a line, take the # "
                     "in front of it away and write the value you want. A line that is not "
                     "understood is shown when the chat starts; the others hold.");
    buf_puts(out, "\n# --- for every command ---\n");
    put_options(general_table, out);
    put_options(model_table, out);
    put_options(engine_table, out);
    buf_puts(out, "\n[chat]\n");
    put_options(chat, out);
    buf_putc(out, '\n');
    keymap_write(out);
}
