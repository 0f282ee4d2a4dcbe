/* Where panes are: splitting, closing, lines that are moved, the focus, and the arrangement that
 * the next start finds again. */
#include "base/file.h"
#include "base/mem.h"
#include "profiles/name.h"
#include "ui/picker.h"
#include "ui/saved_layout.h"
#include "ui/window.h"

#include <stdlib.h>
#include <string.h>

#define FILE_NAME "layout"
#define STEP_COLS 2 /* how far a key moves a line */
#define STEP_ROWS 1

/* --- panes ------------------------------------------------------------------------------------ */

static int free_number(const app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        if (!a->panes[i]) return i;
    return -1;
}

pane *arrange_add(app *a, layout_kind kind)
{
    int number = free_number(a);
    if (number < 0) {
        app_say(a, "There are %d panes already, which is the most.", LAYOUT_MAX_PANES);
        return NULL;
    }
    if (!layout_split(&a->layout, a->focus, kind, number)) {
        app_say(a, "The window has no room for another pane here.");
        return NULL;
    }
    a->drag = -1;
    a->zoomed = false;
    a->layout_changed = true;
    return a->panes[number] = pane_open(a, number);
}

static void split(app *a, layout_kind kind)
{
    pane *added = arrange_add(a, kind);
    if (!added) return;
    pane_push(added, start_view(a));
    a->focus = added->number;
}

static void close_focused(app *a)
{
    int number = a->focus;
    if (layout_count(&a->layout) == 1) {
        app_say(a, "This is the last pane; %s leaves.", hint_key(ACTION_QUIT));
        return;
    }
    app_uncover(a);
    a->drag = -1; /* the line may be gone */
    a->focus = layout_next(&a->layout, number);
    layout_remove(&a->layout, number);
    pane_close(a->panes[number]);
    a->panes[number] = NULL;
    if (layout_count(&a->layout) == 1) a->zoomed = false;
    a->redraw = true; /* what it showed is erased */
}

static void focus_towards(app *a, int dx, int dy)
{
    int to = layout_neighbour(&a->layout, a->focus, dx, dy);
    if (to >= 0) a->focus = to;
}

static void zoom(app *a)
{
    if (layout_count(&a->layout) == 1)
        app_say(a, "There is only this pane; it has all the room.");
    else
        a->zoomed = !a->zoomed;
}

static void move_edge(app *a, int dx, int dy)
{
    if (a->zoomed)
        app_say(a, "The pane fills the window; %s shows the others again.", hint_key(ACTION_ZOOM));
    else if (!layout_move_edge(&a->layout, a->focus, dx, dy))
        app_say(a, "There is no edge to move that way, or no room.");
}

/* Moves of the focus (steps of 1) and of lines. */
static bool move_action(app *a, action act)
{
    static const struct {
        action act;
        void (*move)(app *a, int dx, int dy);
        int dx, dy;
    } moves[] = {
        {ACTION_FOCUS_LEFT, focus_towards, -1, 0},    {ACTION_FOCUS_RIGHT, focus_towards, 1, 0},
        {ACTION_FOCUS_UP, focus_towards, 0, -1},      {ACTION_FOCUS_DOWN, focus_towards, 0, 1},
        {ACTION_EDGE_LEFT, move_edge, -STEP_COLS, 0}, {ACTION_EDGE_RIGHT, move_edge, STEP_COLS, 0},
        {ACTION_EDGE_UP, move_edge, 0, -STEP_ROWS},   {ACTION_EDGE_DOWN, move_edge, 0, STEP_ROWS},
    };
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (moves[i].act != act) continue;
        moves[i].move(a, moves[i].dx, moves[i].dy);
        return true;
    }
    return false;
}

bool arrange_action(app *a, action act)
{
    switch (act) {
    case ACTION_SPLIT_RIGHT:
        split(a, LAYOUT_BESIDE);
        break;
    case ACTION_SPLIT_BELOW:
        split(a, LAYOUT_BELOW);
        break;
    case ACTION_CLOSE_PANE:
        close_focused(a);
        break;
    case ACTION_NEXT_PANE:
        a->focus = layout_next(&a->layout, a->focus);
        break;
    case ACTION_ZOOM:
        zoom(a);
        break;
    case ACTION_EQUAL:
        layout_equal(&a->layout);
        break;
    default:
        if (!move_action(a, act)) return false;
    }
    a->layout_changed = true;
    return true;
}

/* --- the mouse -------------------------------------------------------------------------------- */

bool arrange_mouse(app *a, const input_event *ev, int *to)
{
    if (ev->kind == INPUT_DRAG) {
        if (a->drag >= 0 && layout_move_line(&a->layout, a->drag, ev->x, ev->y))
            a->layout_changed = true;
        return true;
    }
    a->drag = -1;
    if (ev->kind == INPUT_RELEASE) return true;
    *to = a->zoomed ? a->focus : layout_at(&a->layout, ev->x, ev->y);
    if (ev->kind != INPUT_CLICK || *to < 0) return false;
    if (!a->zoomed) a->drag = layout_line_at(&a->layout, ev->x, ev->y);
    /* Lines between left and right are nobody's; those between above and below are titles. */
    if (a->drag >= 0 && a->layout.nodes[a->drag].kind == LAYOUT_BESIDE) return true;
    a->focus = *to;
    return false;
}

/* --- places ----------------------------------------------------------------------------------- */

int arrange_shown(const app *a, int panes[LAYOUT_MAX_PANES])
{
    if (!a->zoomed) return layout_order(&a->layout, panes);
    panes[0] = a->focus;
    return 1;
}

rect arrange_place(const app *a, int number)
{
    return a->zoomed ? a->layout.nodes[a->layout.root].place : layout_rect(&a->layout, number);
}

/* --- the next start --------------------------------------------------------------------------- */

/* By key: someone may write a name in small letters. */
static bool is_user(const user_list *users, const char *name)
{
    char *wanted = name ? name_key(name) : NULL;
    bool found = false;
    for (size_t i = 0; wanted && !found && i < users->n; i++) {
        char *key = name_key(users->items[i].name);
        found = key && strcmp(key, wanted) == 0;
        free(key);
    }
    free(wanted);
    return found;
}

/* Panes for the people that the command line names. */
static void open_named(app *a)
{
    user_list users = {0};
    user_list_load(a->options.store, &users, NULL);
    for (size_t i = 0; i < a->options.n_users; i++) {
        int number = (int)i;
        layout_kind kind = i % 2 ? LAYOUT_BESIDE : LAYOUT_BELOW;
        if (i > 0 && (i >= LAYOUT_MAX_PANES || !layout_split(&a->layout, a->focus, kind, number))) {
            app_say(a, "The window has no room for more than %d panes.", number);
            break;
        }
        a->focus = number;
        a->panes[number] = pane_open(a, number);
        if (is_user(&users, a->options.users[i])) {
            pane_set_owner(a->panes[number], a->options.users[i], 0);
            pane_push(a->panes[number], passphrase_view(a->options.users[i], 0, false));
        } else {
            pane_push(a->panes[number], start_view(a));
            app_say(a, "There is no user %s yet.", a->options.users[i]);
        }
    }
    user_list_free(&users);
    a->focus = 0;
}

static void open_saved(app *a, const saved_layout *saved)
{
    int panes[LAYOUT_MAX_PANES];
    user_list users = {0};
    user_list_load(a->options.store, &users, NULL);
    rect whole = a->layout.nodes[a->layout.root].place;
    a->layout = saved->layout;
    a->focus = saved->focus;
    a->zoomed = saved->zoomed && layout_count(&a->layout) > 1;
    layout_place(&a->layout, whole);
    for (int n = layout_order(&a->layout, panes), i = 0; i < n; i++) {
        pane *p = a->panes[panes[i]] = pane_open(a, panes[i]);
        const char *user = saved->panes[panes[i]].user;
        int64_t resume = saved->panes[panes[i]].conversation;
        if (is_user(&users, user)) {
            pane_set_owner(p, user, resume);
            pane_push(p, passphrase_view(user, resume, false));
        } else {
            pane_push(p, start_view(a));
        }
    }
    user_list_free(&users);
}

void arrange_open(app *a)
{
    saved_layout saved = {0};
    buf text = {0};
    pf_err err = {0};
    char *path = path_join(store_home(a->options.store), FILE_NAME);
    pf_status status = PF_NOT_FOUND;
    if (!a->options.n_users) {
        status = file_read(path, SAVED_LAYOUT_MAX_BYTES, &text, &err);
        if (status == PF_OK)
            status = saved_layout_parse(buf_str(&text), text.len, path, &saved, &err);
    }
    if (a->options.n_users) {
        open_named(a);
    } else if (status == PF_OK) {
        open_saved(a, &saved);
    } else {
        a->panes[0] = pane_open(a, 0);
        pane_push(a->panes[0], start_view(a));
        if (status != PF_NOT_FOUND) app_say(a, "%s", err.text);
    }
    a->layout_changed = false;
    saved_layout_free(&saved);
    buf_free(&text);
    free(path);
}

void arrange_save(app *a)
{
    a->layout_changed = false;
    if (a->options.n_users) return; /* panes of a command line are for that one time */
    saved_layout now = {.layout = a->layout, .focus = a->focus, .zoomed = a->zoomed};
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        const pane *p = a->panes[i];
        if (!p || !p->owner) continue;
        now.panes[i].user = xstrdup(p->owner);
        now.panes[i].conversation =
            p->session && !p->leaving ? chat_view_conversation(p->views[0]) : p->resume;
    }
    buf text = {0};
    saved_layout_write(&now, &text);
    char *path = path_join(store_home(a->options.store), FILE_NAME);
    file_write_atomic(path, text.data, text.len, 0600, NULL);
    free(path);
    buf_free(&text);
    saved_layout_free(&now);
}
