#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/frame.h"
#include "ui/text.h"
#include "ui/training.h"
#include "ui/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below this a pane has no room for anything but the word that says so. */
#define MIN_INSIDE_COLS 12
#define MIN_INSIDE_ROWS 3
/* Below this a pane that fills the screen shows a title line in place of a border. */
#define BORDER_ROWS 9
#define BORDER_COLS 30

pane *pane_open(app *a, int number)
{
    pane *p = xcalloc(1, sizeof *p);
    *p = (pane){.app = a, .number = number};
    return p;
}

view *pane_top(const pane *p)
{
    return p->depth ? p->views[p->depth - 1] : NULL;
}

/* Views are freed when the event that closed them is over: they may be on the call stack. */
static void leave(pane *p)
{
    app *a = p->app;
    PF_ASSERT(a->n_leaving < (int)(sizeof a->leaving / sizeof *a->leaving));
    a->leaving[a->n_leaving++] = p->views[--p->depth];
    a->dirty = true;
}

void pane_push(pane *p, view *v)
{
    PF_ASSERT(p->depth < PANE_VIEWS);
    v->pane = p;
    v->serial = ++p->app->serials;
    p->views[p->depth++] = v;
    p->app->dirty = true;
}

bool pane_shows(const pane *p, const view *v, unsigned serial)
{
    return pane_top(p) == v && v->serial == serial;
}

void pane_pop(pane *p)
{
    if (p->depth > 1) leave(p);
}

void pane_replace(pane *p, view *v)
{
    if (p->app->overlay && p->app->overlay->pane == p) app_uncover(p->app);
    while (p->depth)
        leave(p);
    pane_push(p, v);
}

void pane_set_owner(pane *p, const char *user, int64_t resume)
{
    char *owner = user ? xstrdup(user) : NULL; /* user may be the present owner */
    free(p->owner);
    p->owner = owner;
    p->resume = resume;
    p->app->layout_changed = true;
}

/* Saves what the views have not saved yet; the conversation to return to. */
static int64_t leave_views(pane *p)
{
    int64_t resume = 0;
    for (int i = 0; i < p->depth; i++) {
        view *v = p->views[i];
        int64_t id = v->ops->leave ? v->ops->leave(v) : 0;
        if (id) resume = id;
    }
    return resume;
}

void pane_sign_out(pane *p)
{
    leave_views(p);
    pane_set_owner(p, NULL, 0);
    pane_replace(p, start_view(p->app));
    p->leaving = p->session != NULL;
    p->app->redraw = true;
}

void pane_lock(pane *p)
{
    if (!p->session || p->leaving) return;
    pane_set_owner(p, session_user_name(p->session), leave_views(p));
    pane_replace(p, locked_view(p->owner, p->resume));
    p->leaving = true;
    p->app->redraw = true;
}

static bool shares_session(const pane *p)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        const pane *other = p->app->panes[i];
        if (other && other != p && other->session == p->session) return true;
    }
    return false;
}

void pane_end_session(pane *p)
{
    p->leaving = false;
    if (!p->session) return;
    training_end(p);
    if (!shares_session(p)) unkept_sign_out(p->app, p->session);
    session_unref(p->session);
    p->session = NULL;
}

void pane_close(pane *p)
{
    if (p->session) leave_views(p);
    while (p->depth) {
        view *v = p->views[--p->depth];
        v->ops->free(v);
    }
    pane_end_session(p);
    free(p->owner);
    free(p);
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* " 2 of 3 ": which of the panes fills the window. Returns the columns it takes. */
static int draw_zoomed(const pane *p, area line)
{
    int panes[LAYOUT_MAX_PANES], n = layout_order(&p->app->layout, panes), at = 0;
    if (!p->app->zoomed || line.w < 20) return 0;
    while (panes[at] != p->number)
        at++;
    char text[24];
    snprintf(text, sizeof text, " %d of %d ", at + 1, n);
    area_put_right(area_sub(line, 0, 0, line.w - 1, 1), 0, STYLE_KEY, text);
    return (int)strlen(text) + 1;
}

static void draw_title(pane *p, area line, bool focused)
{
    view *v = pane_top(p);
    buf title = {0}, cut = {0};
    v->ops->title(v, &title);
    line.w -= draw_zoomed(p, line);
    text_ellipsis(buf_str(&title), title.len, line.w - 3, &cut);
    if (line.w > 4)
        area_printf(line, 1, 0, focused ? STYLE_TITLE : STYLE_DIM, " %s ", buf_str(&cut));
    wipe_buf(&title);
    wipe_buf(&cut);
}

/* Is there a border around it, or (a small screen) only a title line? */
static bool has_border(rect r, bool alone)
{
    return !alone || (r.h >= BORDER_ROWS && r.w >= BORDER_COLS);
}

static style border_style(bool focused, bool alone)
{
    return focused && !alone ? STYLE_BORDER_ACTIVE : STYLE_BORDER;
}

void pane_draw_frame(pane *p, rect r, bool focused, bool alone)
{
    grid *g = &p->app->grid;
    style s = border_style(focused, alone);
    if (has_border(r, alone))
        frame_box(g, r, s);
    else
        area_hline(area_sub(grid_area(g), r.x, r.y, r.w, r.h), 0, 0, r.w, s, "─");
}

/* The view's rows below the divider, the divider, and the rest of the pane. */
static void draw_inside(pane *p, rect r, area inside, bool bordered, bool focused, style border)
{
    view *v = pane_top(p);
    area text = bordered ? area_sub(inside, 1, 0, inside.w - 2, inside.h) : inside;
    int footer = v->ops->footer ? v->ops->footer(v, text.w, text.h) : 0;
    int divider = footer && text.h >= 6 ? 1 : 0;
    int line = text.h - footer - divider;
    if (divider && bordered) frame_divider(&p->app->grid, r, text.y + line, border);
    if (divider && !bordered) area_hline(text, 0, line, text.w, border, "─");
    v->ops->draw(v, area_sub(text, 0, 0, text.w, line), focused);
    if (footer) v->ops->draw_footer(v, area_sub(text, 0, line + divider, text.w, footer), focused);
}

static void draw_too_small(area a)
{
    buf hint = {0};
    area_put(a, 0, 0, STYLE_DIM, "too small");
    buf_printf(&hint, "%s zooms", hint_key(ACTION_ZOOM));
    if (a.w >= text_width_z(buf_str(&hint))) area_put(a, 0, 1, STYLE_DIM, buf_str(&hint));
    buf_free(&hint);
}

void pane_draw(pane *p, rect r, bool focused, bool alone)
{
    bool bordered = has_border(r, alone);
    int side = bordered ? 1 : 0;
    area whole = area_sub(grid_area(&p->app->grid), r.x, r.y, r.w, r.h);
    area inside = area_sub(whole, side, 1, r.w - 2 * side, r.h - 1 - side);
    draw_title(p, area_sub(whole, side, 0, r.w - 2 * side, 1), focused);
    if (inside.w < MIN_INSIDE_COLS || inside.h < MIN_INSIDE_ROWS)
        draw_too_small(inside);
    else
        draw_inside(p, r, inside, bordered, focused, border_style(focused, alone));
}
