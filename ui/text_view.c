/* A text over the panes, to read and close. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/hints.h"
#include "ui/text.h"
#include "ui/window.h"

#include <stdlib.h>
#include <string.h>

#define MOST_COLS 90

typedef struct {
    view base;
    const char *title;
    buf text; /* clean */
    text_lines lines;
    int top, height;
} text_screen;

static text_screen *screen_of(view *v)
{
    return (text_screen *)v;
}

static void text_draw(view *v, area whole, bool focused)
{
    (void)focused;
    text_screen *s = screen_of(v);
    int w = whole.w < MOST_COLS ? whole.w : MOST_COLS;
    text_wrap(&s->lines, buf_str(&s->text), s->text.len, w - 4);
    int n = (int)s->lines.len, h = n + 3 < whole.h ? n + 3 : whole.h;
    area box = area_sub(whole, (whole.w - w) / 2, (whole.h - h) / 3, w, h);
    area_clear(box, STYLE_TEXT);
    area_box(box, STYLE_BORDER_ACTIVE, s->title, STYLE_TITLE);
    s->height = h - 3;
    int last = n - s->height;
    if (s->top > last) s->top = last;
    if (s->top < 0) s->top = 0;
    area inside = area_sub(box, 2, 1, w - 4, s->height);
    for (int y = 0; y < inside.h && s->top + y < n; y++) {
        const text_line *line = &s->lines.lines[s->top + y];
        area_text(inside, 0, y, STYLE_TEXT, s->text.data + line->start, line->len);
    }
    static const hint hints[] = {HINT(ACTION_BACK, "closes"), HINT(ACTION_NEXT, "more")};
    hints_draw(area_sub(box, 2, 1, w - 4, h - 2), 1, hints, s->top < last ? 2 : 1);
}

static void text_input(view *v, const input_event *ev)
{
    text_screen *s = screen_of(v);
    app_read(v->pane->app, ev, &s->top, s->height, (int)s->lines.len);
}

static void text_title(view *v, buf *out)
{
    buf_puts(out, screen_of(v)->title);
}

static void text_free(view *v)
{
    text_screen *s = screen_of(v);
    text_lines_free(&s->lines);
    wipe_buf(&s->text);
    free(s);
}

static const view_ops text_ops = {.name = "text",
                                  .draw = text_draw,
                                  .input = text_input,
                                  .title = text_title,
                                  .free = text_free,
                                  .contexts = CONTEXT_BIT(CONTEXT_LIST)};

view *text_view(const char *title, const char *text)
{
    text_screen *s = xcalloc(1, sizeof *s);
    text_cleaner cleaner = {0};
    s->base.ops = &text_ops;
    s->title = title;
    text_clean(&cleaner, text, strlen(text), &s->text);
    text_clean_finish(&cleaner, &s->text);
    return &s->base;
}
