#include "ui/app.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ui/keymap.h"
#include "ui/theme.h"
#include "ui/training.h"
#include "ui/window.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MARK_MS     150  /* the moving mark of what is under way */
#define STATS_MS    250  /* how old the figures of the status line may be */
#define BURST_MS    15   /* text this close behind an Enter belongs to the same paste */
#define BURST_TAIL  30   /* and so does an Enter this close behind such a line end */
#define SAVE_MS     1000 /* a changed arrangement is saved when no key came for so long */
#define TRAINING_MS 200  /* how often a training is asked how it goes */
/* Of one event; longest wait for another program that has the store. */
#define STORE_WAIT_MS 500
#define INSIST_MS     10000 /* so soon after a refusal leaving is meant */
#define WHEEL_ROWS    3
#define MIN_COLS      20
#define MIN_ROWS      6

static int64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- panes ------------------------------------------------------------------------------------ */

pane *app_pane(app *a, int number)
{
    return number >= 0 && number < LAYOUT_MAX_PANES ? a->panes[number] : NULL;
}

static pane *focused(app *a)
{
    return a->panes[a->focus];
}

/* What is set, from where, and what of it could not be used. */
static void show_settings(app *a)
{
    buf text = {0};
    if (a->problems.len)
        buf_printf(&text, "Not understood and left out; everything else holds:\n\n%s\n",
                   buf_str(&a->problems));
    if (a->options.settings_path)
        buf_printf(&text, "Settings are read from %s at the start, and again with /%s. ",
                   a->options.settings_path, action_slash(ACTION_RELOAD));
    buf_puts(&text, "`preft chat --print-config` writes such a file, with every setting and every "
                    "key explained; preft.conf(5) says more.");
    app_cover(
        a, text_view(a->problems.len ? "Problems with the settings" : "Settings", buf_str(&text)));
    buf_free(&text);
}

/* What the model and the engine are given is fixed since the start. */
static void reload_settings(app *a)
{
    pf_err err = {0};
    app_options *o = &a->options;
    if (!o->reload || !o->settings_path) {
        app_say(a, "There is no settings file in use.");
        return;
    }
    if (o->reload(o, &err) != PF_OK) {
        app_say(a, "The settings stay as they were: %s", err.text);
        return;
    }
    buf_clear(&a->problems);
    if (o->problems) buf_puts(&a->problems, o->problems);
    keymap_apply(o->settings, &a->problems);
    theme_choose(o->theme ? o->theme : "auto");
    a->mouse = !o->no_mouse;
    a->redraw = true;
    if (a->problems.len)
        show_settings(a);
    else
        app_say(a, "Read again: %s. Model and engine take theirs at the next start.",
                o->settings_path);
}

/* --- opening ---------------------------------------------------------------------------------- */

pf_status app_open(const app_options *options, int cols, int rows, app **out, pf_err *err)
{
    app *a = xcalloc(1, sizeof *a);
    a->options = *options;
    a->mouse = !options->no_mouse;
    a->drag = -1;
    a->input_ms = now_ms();
    pf_status status = jobs_open(&a->jobs, err);
    if (status != PF_OK) {
        free(a);
        return status;
    }
    a->client = engine_client_open(options->engine);
    if (!a->client) {
        jobs_close(a->jobs);
        free(a);
        return err_set(err, PF_FAILED, "no more file descriptors are available");
    }
    if (options->problems) buf_puts(&a->problems, options->problems);
    theme_choose(options->theme ? options->theme : "auto");
    keymap_apply(options->settings, &a->problems);
    layout_init(&a->layout, 0);
    app_resize(a, cols, rows);
    arrange_open(a);
    if (a->problems.len) show_settings(a);
    *out = a;
    return PF_OK;
}

static void free_leaving(app *a)
{
    for (int i = 0; i < a->n_leaving; i++)
        a->leaving[i]->ops->free(a->leaving[i]);
    a->n_leaving = 0;
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        if (a->panes[i] && a->panes[i]->leaving) pane_end_session(a->panes[i]);
}

bool app_close(app *a)
{
    if (!a) return true;
    store_wait_at_most(STORE_BUSY_MS); /* in all */
    app_uncover(a);
    free_leaving(a);
    arrange_save(a);
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        if (a->panes[i]) pane_close(a->panes[i]);
        a->panes[i] = NULL; /* views of the others look for their person's panes */
    }
    const bool kept = unkept_close(a);
    store_wait_at_most(-1);
    jobs_close(a->jobs);
    engine_client_close(a->client);
    grid_free(&a->grid);
    free(a->message);
    buf_free(&a->problems);
    free(a);
    return kept;
}

void app_resize(app *a, int cols, int rows)
{
    grid_resize(&a->grid, cols, rows);
    layout_place(&a->layout, (rect){0, 0, a->grid.cols, a->grid.rows - 1});
    a->dirty = true;
}

void app_say(app *a, const char *fmt, ...)
{
    va_list args;
    buf text = {0};
    va_start(args, fmt);
    buf_vprintf(&text, fmt, args);
    va_end(args);
    free(a->message);
    a->message = buf_take(&text);
    a->dirty = true;
}

void app_clock(const app *a, char out[8])
{
    if (a->scripted) {
        memcpy(out, a->clock, 8);
        return;
    }
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(out, 8, "%H:%M", &local);
}

const char *hint_key(action a)
{
    static char text[8][32]; /* a few may be used in one message */
    static int turn;
    buf name = {0};
    action_key(a, &name);
    turn = (turn + 1) % 8;
    strncpy(text[turn], buf_str(&name), sizeof text[turn] - 1);
    buf_free(&name);
    return text[turn];
}

/* --- input ------------------------------------------------------------------------------------ */

void app_uncover(app *a)
{
    if (!a->overlay) return;
    PF_ASSERT(a->n_leaving < (int)(sizeof a->leaving / sizeof *a->leaving));
    a->leaving[a->n_leaving++] = a->overlay;
    a->overlay = NULL;
    a->dirty = true;
}

void app_cover(app *a, view *v)
{
    app_uncover(a);
    v->pane = focused(a);
    a->overlay = v;
    a->dirty = true;
}

void app_read(app *a, const input_event *ev, int *top, int height, int lines)
{
    int page = height > 2 ? height - 1 : 1;
    if (ev->kind == INPUT_WHEEL_UP) *top -= WHEEL_ROWS;
    if (ev->kind == INPUT_WHEEL_DOWN) *top += WHEEL_ROWS;
    if (ev->kind != INPUT_KEY) return;
    if (action_of(ev->key, CONTEXT_WINDOW) == ACTION_QUIT) a->quit = true;
    switch (action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_BACK:
    case ACTION_CHOOSE:
        app_uncover(a);
        break;
    case ACTION_PREVIOUS:
        --*top;
        break;
    case ACTION_NEXT:
        ++*top;
        break;
    case ACTION_PAGE_BACK:
        *top -= page;
        break;
    case ACTION_PAGE_ON:
        *top += page;
        break;
    case ACTION_FIRST:
        *top = 0;
        break;
    case ACTION_LAST:
        *top = lines;
        break;
    default:
        break;
    }
}

static void lock_all(app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        if (a->panes[i]) pane_lock(a->panes[i]);
    app_uncover(a);
}

static void lock_focused(app *a)
{
    pane *p = focused(a);
    app_uncover(a); /* a text over the panes may be this person's */
    if (p->session)
        pane_lock(p);
    else
        app_say(a, "Nobody is signed in here.");
}

static void switch_mouse(app *a)
{
    a->mouse = !a->mouse;
    app_say(a,
            a->mouse ? "The mouse moves the focus, lines and lists again."
                     : "The mouse is the terminal's: select and copy with it. %s brings it back.",
            hint_key(ACTION_MOUSE));
}

/* Without a name the next one. */
static void change_theme(app *a, const char *name)
{
    int i = 0, n = 0;
    while (theme_names[n])
        n++;
    while (strcmp(theme_names[i], theme_chosen()) != 0)
        i++;
    if (!*name) name = theme_names[(i + 1) % n];
    if (theme_choose(name))
        app_say(a, "Colours: %s. A line `theme = %s` under [chat] in preft.conf keeps them.", name,
                name);
    else
        app_say(a, "There are no colours \"%s\"; auto, dark, light, high-contrast, mono.", name);
    a->redraw = true;
}

static bool window_action(app *a, action act, const char *argument)
{
    switch (act) {
    case ACTION_NONE:
        return false;
    case ACTION_HELP:
        app_cover(a, help_view());
        break;
    case ACTION_PALETTE:
        app_cover(a, palette_view(focused(a)));
        break;
    case ACTION_THEME:
        change_theme(a, argument);
        break;
    case ACTION_SETTINGS:
        show_settings(a);
        break;
    case ACTION_RELOAD:
        reload_settings(a);
        break;
    case ACTION_LOCK:
        lock_focused(a);
        break;
    case ACTION_LOCK_ALL:
        lock_all(a);
        break;
    case ACTION_MOUSE:
        switch_mouse(a);
        break;
    case ACTION_REDRAW:
        a->redraw = true;
        break;
    case ACTION_SUSPEND:
        a->suspend = true;
        break;
    case ACTION_QUIT:
        a->quit = true;
        break;
    default:
        return arrange_action(a, act);
    }
    return true;
}

void app_do(app *a, action act, const char *argument)
{
    view *v = pane_top(focused(a));
    if (window_action(a, act, argument) || (v->ops->act && v->ops->act(v, act, argument))) return;
    app_say(a, "%s is not possible here.", action_name(act));
}

/* The key of an event; letters are keys where the view says that no text is written. */
static key_code key_of(const view *v, const input_event *ev)
{
    const unsigned text = CONTEXT_BIT(CONTEXT_LIST) | CONTEXT_BIT(CONTEXT_EDITOR);
    bool letters = v->ops->contexts && !(v->ops->contexts & text);
    return ev->kind == INPUT_KEY || letters ? input_key(ev) : 0;
}

static void to_view(app *a, int number, const input_event *ev)
{
    view *v = pane_top(a->panes[number]);
    /* With nothing to stop, the key means to quit. */
    if (ev->kind == INPUT_KEY && ev->key == (KEY_CTRL | 'c') && !v->ops->busy)
        app_say(a, "%s leaves.", hint_key(ACTION_QUIT));
    v->ops->input(v, ev);
    free_leaving(a);
}

static bool of_mouse(const input_event *ev)
{
    return ev->kind != INPUT_KEY && ev->kind != INPUT_TEXT && ev->kind != INPUT_PASTE;
}

static void mouse(app *a, const input_event *ev)
{
    int to;
    if (!arrange_mouse(a, ev, &to) && to >= 0) to_view(a, to, ev);
}

static bool keeps_message(const input_event *ev)
{
    return of_mouse(ev) && ev->kind != INPUT_CLICK;
}

static void deliver(app *a, const input_event *ev)
{
    a->input_ms = now_ms();
    a->stats_ms = 0; /* what this changes is seen at once */
    if (!keeps_message(ev)) {
        free(a->message);
        a->message = NULL;
    }
    action act = action_of(key_of(pane_top(focused(a)), ev), CONTEXT_WINDOW);
    bool locks = act == ACTION_LOCK || act == ACTION_LOCK_ALL;
    if (a->overlay && !locks)
        a->overlay->ops->input(a->overlay, ev);
    else if (of_mouse(ev))
        mouse(a, ev);
    else if (!window_action(a, act, ""))
        to_view(a, a->focus, ev);
    free_leaving(a);
    a->dirty = true;
}

/* Keys that came together are of one moment, however long a busy machine takes over them. */
static int64_t keys_time(const app *a)
{
    return a->keys_ms ? a->keys_ms : now_ms();
}

static void release_enter(app *a, bool as_line_end)
{
    a->enter_held = false;
    if (as_line_end) {
        a->burst_ms = keys_time(a);
        deliver(a, &(input_event){.kind = INPUT_TEXT, .text = "\n", .len = 1});
    } else {
        deliver(a, &(input_event){.kind = INPUT_KEY, .key = KEY_ENTER});
    }
}

/* An Enter that would send what is written so far. */
static bool is_sending_enter(const input_event *ev)
{
    return ev->kind == INPUT_KEY && ev->key == KEY_ENTER &&
           action_of(KEY_ENTER, CONTEXT_EDITOR) == ACTION_NONE &&
           action_of(KEY_ENTER, CONTEXT_CHAT) == ACTION_SEND;
}

/* Whether the window may close: not before what is being written is saved, unless that is asked for
 * once more. */
static bool may_close(app *a)
{
    const int64_t now = now_ms();
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        pane *p = a->panes[i];
        for (int k = 0; p && k < p->depth; k++)
            if (p->session && p->views[k]->ops->leave) (void)p->views[k]->ops->leave(p->views[k]);
    }
    if (a->unkept.n == 0 || (a->refused_ms && now - a->refused_ms < INSIST_MS)) return true;
    a->refused_ms = now;
    app_say(a,
            "Another program keeps the store busy: what you are writing is not saved yet. %s once "
            "more leaves without it.",
            hint_key(ACTION_QUIT));
    return false;
}

/* A terminal without paste marks sends a paste as keys, and its line ends as Enter. So an Enter
 * waits for a moment: text right behind it makes it a line end. Where pastes are known to be marked
 * that would only mistake keys that a slow line delivered together. */
static void take_input(app *a, const input_event *ev)
{
    bool enter = is_sending_enter(ev);
    int64_t now = keys_time(a);
    if (a->enter_held) {
        bool close = now - a->enter_held_ms < BURST_MS;
        release_enter(a, close && (enter || ev->kind == INPUT_TEXT));
    }
    bool bursts =
        pane_top(focused(a))->ops->takes_bursts && !a->overlay && !a->scripted && !a->marked_pastes;
    if (!enter || !bursts) {
        deliver(a, ev);
    } else if (now - a->burst_ms < BURST_TAIL) {
        release_enter(a, true);
    } else {
        a->enter_held = true;
        a->enter_held_ms = now;
    }
}

void app_input(app *a, const input_event *ev)
{
    store_wait_at_most(STORE_WAIT_MS);
    take_input(a, ev);
    if (a->quit && !may_close(a)) a->quit = false;
    store_wait_at_most(-1);
}

/* --- events and time -------------------------------------------------------------------------- */

static void to_views(app *a, const engine_event *ev)
{
    pane *p = app_pane(a, (int)(uintptr_t)ev->tag - 1);
    for (int i = 0; p && i < p->depth; i++)
        if (p->views[i]->ops->event) p->views[i]->ops->event(p->views[i], ev);
}

void app_events(app *a)
{
    engine_event ev;
    store_wait_at_most(STORE_WAIT_MS);
    while (engine_client_next(a->client, &ev)) {
        to_views(a, &ev);
        engine_event_free(&ev);
        free_leaving(a);
    }
    if (jobs_collect(a->jobs, a)) a->stats_ms = 0;
    free_leaving(a);
    store_wait_at_most(-1);
}

static bool answering(const app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        const pane *p = a->panes[i];
        for (int k = 0; p && k < p->depth; k++)
            if (p->views[k]->ops->busy && p->views[k]->ops->busy(p->views[k])) return true;
    }
    return false;
}

static bool profiles_are_read(const app *a)
{
    engine_stats now;
    engine_get_stats(a->options.engine, &now);
    return now.adapters_coming > 0;
}

bool app_busy(const app *a)
{
    return jobs_running(a->jobs) > 0 || a->enter_held || answering(a) || profiles_are_read(a);
}

static bool figures_move(const app *a)
{
    return a->stats.running > 0 || a->stats.adapters_coming > 0 || a->stats.decode_rate > 0 ||
           a->stats.prefill_rate > 0;
}

/* Something on the screen moves by itself. */
static bool picture_moves(const app *a)
{
    return answering(a) || figures_move(a) || jobs_running(a->jobs) > 0;
}

static bool anybody_signed_in(const app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        if (a->panes[i] && a->panes[i]->session) return true;
    return false;
}

/* When all panes are to be locked for inactivity; INT64_MAX: never. */
static int64_t lock_due(const app *a)
{
    if (!a->options.lock_after || !anybody_signed_in(a)) return INT64_MAX;
    return a->input_ms + (int64_t)a->options.lock_after * 1000;
}

void app_tick(app *a)
{
    int64_t now = now_ms();
    store_wait_at_most(STORE_WAIT_MS);
    if (a->enter_held && !a->keys_wait && now - a->enter_held_ms >= BURST_MS)
        release_enter(a, false);
    bool writing = answering(a);
    if (now - a->last_frame_ms >= MARK_MS && picture_moves(a)) a->dirty = true;
    if (writing || training_any(a)) a->input_ms = now; /* someone waits for it */
    if (training_any(a) && now - a->training_ms >= TRAINING_MS) {
        training_tick(a);
        a->training_ms = now;
    }
    if (now >= lock_due(a)) {
        lock_all(a);
        free_leaving(a);
        a->dirty = true;
    }
    if (a->layout_changed && now - a->input_ms >= SAVE_MS) arrange_save(a);
    store_wait_at_most(-1);
    unkept_tick(a);
}

int app_timeout(const app *a)
{
    int64_t due = lock_due(a);
    if (a->dirty)
        due = sooner(due, a->last_frame_ms + FRAME_MS);
    else if (picture_moves(a))
        due = sooner(due, a->last_frame_ms + MARK_MS);
    if (a->enter_held) due = sooner(due, a->enter_held_ms + BURST_MS);
    if (a->layout_changed) due = sooner(due, a->input_ms + SAVE_MS);
    if (training_any(a)) due = sooner(due, a->training_ms + TRAINING_MS);
    due = sooner(due, unkept_due(a));
    if (due == INT64_MAX) return -1;
    int64_t left = due - now_ms();
    return left < 0 ? 0 : left < INT32_MAX ? (int)left : INT32_MAX;
}

/* --- drawing ---------------------------------------------------------------------------------- */

const char *app_mark(const app *a)
{
    static const char *const marks[] = {"⠋", "⠙", "⠸", "⠴", "⠦", "⠇"};
    if (a->scripted) return "⠿";
    return marks[(size_t)(now_ms() / MARK_MS) % (sizeof marks / sizeof *marks)];
}

void app_put_waiting(const app *a, area where, int y, style s, const char *what)
{
    area_printf(where, 0, y, s, "%s %s …", app_mark(a), what);
}

static void draw_panes(app *a)
{
    int panes[LAYOUT_MAX_PANES], n = arrange_shown(a, panes);
    bool alone = n == 1;
    for (int pass = 0; pass < 2; pass++) /* the focused pane's border lies on top */
        for (int i = 0; i < n; i++)
            if ((panes[i] == a->focus) == (pass == 1))
                pane_draw_frame(a->panes[panes[i]], arrange_place(a, panes[i]), pass == 1, alone);
    for (int i = 0; i < n; i++)
        pane_draw(a->panes[panes[i]], arrange_place(a, panes[i]), panes[i] == a->focus, alone);
}

void app_draw(app *a)
{
    int64_t now = now_ms();
    a->last_frame_ms = now;
    a->dirty = false;
    area whole = grid_area(&a->grid);
    a->grid.cursor_shown = false;
    area_clear(whole, STYLE_TEXT);
    if (now - a->stats_ms >= STATS_MS || a->scripted) {
        engine_get_stats(a->options.engine, &a->stats);
        a->stats_ms = now;
    }
    if (whole.w < MIN_COLS || whole.h < MIN_ROWS) {
        area_put(whole, 0, 0, STYLE_TEXT, "too small");
        area_printf(whole, 0, 1, STYLE_TEXT, "(%dx%d at least)", MIN_COLS, MIN_ROWS);
        return;
    }
    draw_panes(a);
    if (a->overlay) {
        a->grid.cursor_shown = false;
        a->overlay->ops->draw(a->overlay, area_sub(whole, 0, 0, whole.w, whole.h - 1), true);
    }
    status_draw(a, whole);
}
