#include "support/window_fixture.h"

#include "ui/text.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void window_press(app *a, key_code key)
{
    app_input(a, &(input_event){.kind = INPUT_KEY, .key = key});
}

void window_type(app *a, const char *text)
{
    app_input(a, &(input_event){.kind = INPUT_TEXT, .text = text, .len = strlen(text)});
}

void window_paste(app *a, const char *text)
{
    app_input(a, &(input_event){.kind = INPUT_PASTE, .text = text, .len = strlen(text)});
}

void window_settle(app *a)
{
    do {
        struct pollfd fds[] = {{.fd = engine_client_fd(a->client), .events = POLLIN},
                               {.fd = jobs_fd(a->jobs), .events = POLLIN}};
        if (app_busy(a)) poll(fds, 2, 20);
        app_events(a);
        app_tick(a);
    } while (app_busy(a));
}

static void look_for(app *a, const char *text, bool wanted)
{
    buf screen = {0};
    app_draw(a);
    window_check_picture(a);
    grid_write_text(&a->grid, &screen);
    bool there = strstr(buf_str(&screen), text) != NULL;
    if (there != wanted)
        fail_msg("\"%s\" is %son the screen:\n%s", text, there ? "" : "not ", buf_str(&screen));
    buf_free(&screen);
}

void window_expect(app *a, const char *text)
{
    look_for(a, text, true);
}

void window_reject(app *a, const char *text)
{
    look_for(a, text, false);
}

/* --- what must hold of every picture ---------------------------------------------------------- */

static void check_cell(const grid *g, int x, int y)
{
    const cell *c = grid_at(g, x, y);
    if (c->len == 0) {
        if (x == 0 || grid_at(g, x - 1, y)->width != 2) fail_msg("half a cell at %d,%d", x, y);
        return;
    }
    unsigned char first = (unsigned char)c->text[0];
    if (first < 0x20 || first == 0x7F) fail_msg("control character %d at %d,%d", first, x, y);
    if (c->width == 2 && (x + 1 >= g->cols || grid_at(g, x + 1, y)->len != 0))
        fail_msg("a wide cell at %d,%d without its other half", x, y);
    text_cluster cluster = text_next(c->text, c->len);
    bool cut = c->len > CELL_TEXT - 4; /* a very long cluster is kept in part */
    if (!cut && (cluster.len != c->len || cluster.width != c->width))
        fail_msg("the cell at %d,%d has width %d, its text \"%.*s\" %d", x, y, c->width, c->len,
                 c->text, cluster.width);
}

void window_check_picture(const app *a)
{
    const grid *g = &a->grid;
    for (int y = 0; y < g->rows; y++) {
        int sum = 0;
        for (int x = 0; x < g->cols; x++) {
            sum += grid_at(g, x, y)->width;
            check_cell(g, x, y);
        }
        assert_int_equal(sum, g->cols);
    }
    if (!g->cursor_shown) return;
    rect r = arrange_place(a, a->focus);
    if (a->overlay) r = (rect){0, 0, g->cols, g->rows};
    if (g->cursor_x < r.x || g->cursor_x >= r.x + r.w || g->cursor_y < r.y ||
        g->cursor_y >= r.y + r.h)
        fail_msg("the cursor is at %d,%d, its pane at %d,%d with %dx%d", g->cursor_x, g->cursor_y,
                 r.x, r.y, r.w, r.h);
}

/* --- one pane by itself ----------------------------------------------------------------------- */

static const cell untouched = {.text = "\1", .len = 1, .width = 1};

/* Draws one pane on a screen that is full of marks; the caller frees *g. */
static rect draw_alone(app *a, int number, bool alone, grid *g)
{
    grid kept = a->grid;
    a->grid = (grid){0};
    grid_resize(&a->grid, kept.cols, kept.rows);
    for (int i = 0; i < kept.cols * kept.rows; i++)
        a->grid.cells[i] = untouched;
    rect place = arrange_place(a, number);
    pane_draw_frame(a->panes[number], place, number == a->focus, alone);
    pane_draw(a->panes[number], place, number == a->focus, alone);
    *g = a->grid;
    a->grid = kept;
    return place;
}

static bool inside(rect r, int x, int y)
{
    return x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h;
}

void window_check_places(app *a)
{
    int panes[LAYOUT_MAX_PANES], n = arrange_shown(a, panes);
    for (int i = 0; i < n; i++) {
        grid g;
        rect r = draw_alone(a, panes[i], n == 1, &g);
        for (int y = 0; y < g.rows; y++)
            for (int x = 0; x < g.cols; x++)
                if (!inside(r, x, y) && memcmp(grid_at(&g, x, y), &untouched, sizeof untouched))
                    fail_msg("a pane at %d,%d with %dx%d (%s) drew at %d,%d", r.x, r.y, r.w, r.h,
                             pane_top(a->panes[panes[i]])->ops->name, x, y);
        grid_free(&g);
    }
}

void window_check_privacy(app *a, const char *owner, const char *text)
{
    int panes[LAYOUT_MAX_PANES], n = arrange_shown(a, panes);
    for (int i = 0; i < n; i++) {
        const pane *p = a->panes[panes[i]];
        if (p->session && strcmp(session_user_name(p->session), owner) == 0) continue;
        grid g;
        buf screen = {0};
        draw_alone(a, panes[i], n == 1, &g);
        grid_write_text(&g, &screen);
        if (strstr(buf_str(&screen), text))
            fail_msg("\"%s\" of %s in a pane of %s:\n%s", text, owner,
                     p->session ? session_user_name(p->session) : "nobody", buf_str(&screen));
        buf_free(&screen);
        grid_free(&g);
    }
}
