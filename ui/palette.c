/* The command palette: some letters of a command's name or description find it. Made from the
 * action table. */
#include "base/mem.h"
#include "ui/fuzzy.h"
#include "ui/hints.h"
#include "ui/text.h"
#include "ui/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COLS 78
#define MOST_ROWS 18

typedef struct {
    action what;
    int score;
} found_action;

typedef struct {
    view base;
    unsigned contexts; /* whose actions are offered */
    buf query;         /* what was typed: the search, or the argument of `asking` */
    action asking;     /* chosen; its argument is typed */
    found_action found[ACTION_COUNT];
    int n, selected, top;
} palette_screen;

static palette_screen *screen_of(view *v)
{
    return (palette_screen *)v;
}

/* --- searching -------------------------------------------------------------------------------- */

/* Moving about in lists and texts is for keys: it makes no sense by name. */
static bool offered(const palette_screen *s, action a)
{
    context where = action_context(a);
    return a != ACTION_PALETTE && where != CONTEXT_LIST && where != CONTEXT_EDITOR &&
           (s->contexts & CONTEXT_BIT(where));
}

static int score(const palette_screen *s, action a)
{
    buf text = {0};
    buf_printf(&text, "%s %s /%s", action_name(a), action_description(a), action_slash(a));
    int n = fuzzy_score(buf_str(&s->query), buf_str(&text));
    buf_free(&text);
    return n;
}

/* Best first; equally good ones in the order of the table. */
static void search(palette_screen *s)
{
    s->n = s->selected = s->top = 0;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        int fit = offered(s, (action)a) ? score(s, (action)a) : -1;
        if (fit < 0) continue;
        int at = s->n++;
        for (; at > 0 && s->found[at - 1].score < fit; at--)
            s->found[at] = s->found[at - 1];
        s->found[at] = (found_action){(action)a, fit};
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

static const char *argument_form(action a)
{
    const char *blank = strchr(action_slash(a), ' ');
    return blank ? blank + 1 : "";
}

static void choose(palette_screen *s)
{
    app *a = s->base.pane->app;
    if (s->asking && s->query.len == 0) return;
    action chosen = s->asking ? s->asking : s->n ? s->found[s->selected].what : ACTION_NONE;
    if (chosen == ACTION_NONE) return;
    const char *form = argument_form(chosen);
    if (!s->asking && *form && *form != '[') { /* it needs an argument */
        s->asking = chosen;
        buf_clear(&s->query);
        return;
    }
    char *argument = xstrdup(s->asking ? buf_str(&s->query) : "");
    app_uncover(a);
    app_do(a, chosen, argument);
    free(argument);
}

static void go_back(palette_screen *s)
{
    if (!s->asking) {
        app_uncover(s->base.pane->app);
        return;
    }
    s->asking = ACTION_NONE;
    buf_clear(&s->query);
    search(s);
}

static void erase(palette_screen *s)
{
    s->query.len = text_without_last(buf_str(&s->query), s->query.len);
    if (s->query.data) s->query.data[s->query.len] = '\0';
    if (!s->asking) search(s);
}

static void move(palette_screen *s, int by)
{
    s->selected += by;
    if (s->selected >= s->n) s->selected = s->n - 1;
    if (s->selected < 0) s->selected = 0;
}

static void palette_key(palette_screen *s, key_code key)
{
    app *a = s->base.pane->app;
    if (key == KEY_BACKSPACE) erase(s);
    switch (action_of(key, CONTEXT_WINDOW)) {
    case ACTION_PALETTE:
        app_uncover(a);
        return;
    case ACTION_QUIT:
        a->quit = true;
        return;
    default:
        break;
    }
    switch (action_of(key, CONTEXT_LIST)) {
    case ACTION_CHOOSE:
        choose(s);
        break;
    case ACTION_BACK:
        go_back(s);
        break;
    case ACTION_PREVIOUS:
        move(s, -1);
        break;
    case ACTION_NEXT:
        move(s, 1);
        break;
    case ACTION_PAGE_BACK:
        move(s, -MOST_ROWS / 2);
        break;
    case ACTION_PAGE_ON:
        move(s, MOST_ROWS / 2);
        break;
    case ACTION_FIRST:
        move(s, -s->n);
        break;
    case ACTION_LAST:
        move(s, s->n);
        break;
    default:
        break;
    }
}

static void palette_input(view *v, const input_event *ev)
{
    palette_screen *s = screen_of(v);
    switch (ev->kind) {
    case INPUT_TEXT:
    case INPUT_PASTE:
        text_clean_draft(ev->text, ev->len, &s->query);
        if (!s->asking) search(s);
        break;
    case INPUT_WHEEL_UP:
        move(s, -1);
        break;
    case INPUT_WHEEL_DOWN:
        move(s, 1);
        break;
    case INPUT_KEY:
        palette_key(s, ev->key);
        break;
    default:
        break;
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void draw_row(area row, action a, bool chosen)
{
    style s = chosen ? STYLE_SELECTED : STYLE_TEXT;
    buf keys = {0};
    action_key(a, &keys);
    area_clear(row, s);
    int room = row.w - (keys.len ? text_width(keys.data, keys.len) + 2 : 0);
    area left = area_sub(row, 0, 0, room, 1);
    area_put(left, 0, 0, s, chosen ? "▸" : " ");
    int x = 2 + area_put(left, 2, 0, s, action_description(a));
    if (*action_slash(a))
        area_printf(left, x + 2, 0, chosen ? s : STYLE_DIM, "/%s", action_slash(a));
    area_put_right(row, 0, chosen ? s : STYLE_KEY, buf_str(&keys));
    buf_free(&keys);
}

static void draw_list(palette_screen *s, area a)
{
    if (s->top > s->selected) s->top = s->selected;
    if (a.h > 0 && s->selected >= s->top + a.h) s->top = s->selected - a.h + 1;
    for (int y = 0; y < a.h && s->top + y < s->n; y++)
        draw_row(area_sub(a, 0, y, a.w, 1), s->found[s->top + y].what, s->top + y == s->selected);
    if (s->n == 0) area_put(a, 2, 0, STYLE_DIM, "no command is like this");
}

static void palette_draw(view *v, area whole, bool focused)
{
    (void)focused;
    static const hint hints[] = {HINT(ACTION_CHOOSE, "does it"), HINT(ACTION_BACK, "back")};
    palette_screen *s = screen_of(v);
    int w = whole.w < MOST_COLS ? whole.w : MOST_COLS;
    int h = s->asking ? 5 : whole.h < MOST_ROWS ? whole.h : MOST_ROWS;
    area box = area_sub(whole, (whole.w - w) / 2, (whole.h - h) / 3, w, h);
    area_clear(box, STYLE_TEXT);
    char title[80];
    snprintf(title, sizeof title, "Commands · type to find one · %s closes", hint_key(ACTION_BACK));
    area_box(box, STYLE_BORDER_ACTIVE, s->asking ? action_description(s->asking) : title,
             STYLE_TITLE);
    area inside = area_sub(box, 2, 1, w - 4, h - 2);
    area_put(inside, 0, 0, STYLE_KEY, s->asking ? argument_form(s->asking) : ">");
    int x = s->asking ? text_width_z(argument_form(s->asking)) + 1 : 2;
    /* The end of a long text is what is being typed. */
    const char *text = buf_str(&s->query);
    size_t len = s->query.len;
    while (len && text_width(text, len) >= inside.w - x) {
        size_t n = text_next(text, len).len;
        text += n;
        len -= n;
    }
    x += area_text(inside, x, 0, STYLE_TEXT, text, len);
    area_cursor(inside, x, 0);
    if (s->asking)
        HINTS_DRAW(inside, 1, hints);
    else
        draw_list(s, area_sub(inside, 0, 1, inside.w, inside.h - 1));
}

static void palette_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "Commands");
}

static void palette_free(view *v)
{
    buf_free(&screen_of(v)->query);
    free(v);
}

static const view_ops palette_ops = {.name = "palette",
                                     .draw = palette_draw,
                                     .input = palette_input,
                                     .title = palette_title,
                                     .free = palette_free,
                                     .contexts = CONTEXT_BIT(CONTEXT_LIST)};

view *palette_view(pane *p)
{
    palette_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &palette_ops;
    s->contexts = pane_top(p)->ops->contexts | CONTEXT_BIT(CONTEXT_WINDOW);
    search(s);
    return &s->base;
}
