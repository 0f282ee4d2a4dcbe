/* The help, made from the action table: every key and command, narrowed by what is typed. */
#include "base/mem.h"
#include "ui/text.h"
#include "ui/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_WIDTH 26 /* of the column, where there is room for one */
#define NARROW     60 /* up to this width descriptions stand below the keys */

typedef struct {
    enum { ROW_EMPTY, ROW_TITLE, ROW_ACTION, ROW_TEXT } kind;
    int what;          /* a context or an action */
    size_t start, len; /* TEXT: the part of the action's text */
} help_row;

typedef struct {
    view base;
    buf filter;
    help_row *rows; /* made for width */
    int n, cap, width;
    int top, height;
} help_screen;

static help_screen *screen_of(view *v)
{
    return (help_screen *)v;
}

static bool passes(const help_screen *s, action a)
{
    buf text = {0};
    action_keys(a, &text);
    buf_printf(&text, " %s %s /%s", action_name(a), action_description(a), action_slash(a));
    bool found = s->filter.len == 0 || strcasestr(buf_str(&text), buf_str(&s->filter));
    buf_free(&text);
    return found;
}

/* What an action does, and its slash command. */
static void put_text(action a, buf *out)
{
    buf_puts(out, action_description(a));
    if (*action_slash(a)) buf_printf(out, "  /%s", action_slash(a));
}

static void add_row(help_screen *s, help_row row)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 128;
        s->rows = xrealloc_array(s->rows, (size_t)s->cap, sizeof *s->rows);
    }
    s->rows[s->n++] = row;
}

static void add_action(help_screen *s, action a)
{
    text_lines lines = {0};
    buf text = {0};
    add_row(s, (help_row){.kind = ROW_ACTION, .what = a});
    if (s->width > NARROW) return;
    put_text(a, &text);
    text_wrap(&lines, buf_str(&text), text.len, s->width - 2);
    for (size_t i = 0; i < lines.len; i++)
        add_row(s, (help_row){ROW_TEXT, a, lines.lines[i].start, lines.lines[i].len});
    text_lines_free(&lines);
    buf_free(&text);
}

static void fill(help_screen *s)
{
    s->n = 0;
    for (int c = 0; c < CONTEXT_COUNT; c++) {
        bool any = false;
        for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
            if (action_context((action)a) != (context)c || !passes(s, (action)a)) continue;
            if (!any && s->n) add_row(s, (help_row){.kind = ROW_EMPTY});
            if (!any) add_row(s, (help_row){.kind = ROW_TITLE, .what = c});
            any = true;
            add_action(s, (action)a);
        }
    }
}

static void draw_action(area line, action a, bool narrow)
{
    buf text = {0};
    int keys_width = narrow ? line.w : KEYS_WIDTH;
    action_keys(a, &text);
    if (narrow && text.len == 0) buf_puts(&text, action_name(a));
    area_text(area_sub(line, 0, 0, keys_width, 1), 1, 0, STYLE_KEY, buf_str(&text), text.len);
    if (!narrow) {
        int x = keys_width + area_put(line, keys_width, 0, STYLE_TEXT, action_description(a));
        if (*action_slash(a)) area_printf(line, x + 2, 0, STYLE_KEY, "/%s", action_slash(a));
    }
    buf_free(&text);
}

static void draw_row(const help_screen *s, const help_row *row, area line)
{
    buf text = {0};
    if (row->kind == ROW_TITLE)
        area_put(line, 0, 0, STYLE_TITLE, context_title((context)row->what));
    if (row->kind == ROW_ACTION) draw_action(line, (action)row->what, s->width <= NARROW);
    if (row->kind == ROW_TEXT) {
        put_text((action)row->what, &text);
        area_text(line, 2, 0, STYLE_TEXT, buf_str(&text) + row->start, row->len);
    }
    buf_free(&text);
}

static void help_draw(view *v, area whole, bool focused)
{
    (void)focused;
    help_screen *s = screen_of(v);
    area_clear(whole, STYLE_TEXT);
    char title[80];
    snprintf(title, sizeof title, "Keys and commands · type to search · %s closes",
             hint_key(ACTION_BACK));
    area_box(whole, STYLE_BORDER_ACTIVE, title, STYLE_TITLE);
    area inside = area_sub(whole, 2, 1, whole.w - 4, whole.h - 2);
    if (s->width != inside.w) {
        s->width = inside.w;
        fill(s);
    }
    int last = s->n - inside.h;
    s->height = inside.h;
    if (s->top > last) s->top = last;
    if (s->top < 0) s->top = 0;
    for (int y = 0; y < inside.h && s->top + y < s->n; y++)
        draw_row(s, &s->rows[s->top + y], area_sub(inside, 0, y, inside.w, 1));
    if (s->n == 0) area_put(inside, 0, 0, STYLE_DIM, "nothing has this in its name");
    if (s->filter.len)
        area_printf(whole, 2, whole.h - 1, STYLE_KEY, " search: %s ", buf_str(&s->filter));
    if (s->top < last) area_put_right(whole, whole.h - 1, STYLE_KEY, " ↓ more ");
}

static void filter_add(help_screen *s, const char *text, size_t len)
{
    text_clean_draft(text, len, &s->filter);
    s->top = 0;
    fill(s);
}

static void filter_erase(help_screen *s)
{
    s->filter.len = text_without_last(buf_str(&s->filter), s->filter.len);
    if (s->filter.data) s->filter.data[s->filter.len] = '\0';
    s->top = 0;
    fill(s);
}

static void help_input(view *v, const input_event *ev)
{
    help_screen *s = screen_of(v);
    app *a = v->pane->app;
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE) filter_add(s, ev->text, ev->len);
    if (ev->kind == INPUT_KEY && ev->key == KEY_BACKSPACE) filter_erase(s);
    if (ev->kind == INPUT_KEY && action_of(ev->key, CONTEXT_WINDOW) == ACTION_HELP)
        app_uncover(a);
    else
        app_read(a, ev, &s->top, s->height, s->n);
}

static void help_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "Keys and commands");
}

static void help_free(view *v)
{
    buf_free(&screen_of(v)->filter);
    free(screen_of(v)->rows);
    free(v);
}

static const view_ops help_ops = {.name = "help",
                                  .draw = help_draw,
                                  .input = help_input,
                                  .title = help_title,
                                  .free = help_free,
                                  .contexts = CONTEXT_BIT(CONTEXT_LIST)};

view *help_view(void)
{
    help_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &help_ops;
    return &s->base;
}
