/* Plays a script on a screen in memory. */
#include "base/clock.h"
#include "profiles/secret.h"
#include "ui/picker.h"
#include "ui/script.h"
#include "ui/theme.h"
#include "ui/window.h"

#include <poll.h>
#include <string.h>

typedef struct {
    const app_options *options;
    app *app;
    const script *script;
    key_decoder keys;
    FILE *out;
    pf_err *err;
} player;

static int64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static void take_input(void *ctx, const input_event *ev)
{
    app_input(ctx, ev);
}

static pf_status failed(const player *p, const script_step *step, const char *what)
{
    buf screen = {0};
    grid_write_text(&p->app->grid, &screen);
    fprintf(p->out, "%s, line %d: %s; the screen is:\n%s", script_name(p->script), step->line, what,
            buf_str(&screen));
    wipe_buf(&screen);
    return err_set(p->err, PF_FAILED, "%s, line %d: %s", script_name(p->script), step->line, what);
}

static bool on_screen(player *p, const buf *text)
{
    buf screen = {0};
    app_draw(p->app);
    grid_write_text(&p->app->grid, &screen);
    bool found = strstr(buf_str(&screen), buf_str(text)) != NULL;
    wipe_buf(&screen);
    return found;
}

static void pass_time(player *p, int ms)
{
    struct pollfd fds[] = {{.fd = engine_client_fd(p->app->client), .events = POLLIN},
                           {.fd = jobs_fd(p->app->jobs), .events = POLLIN}};
    poll(fds, 2, ms);
    keys_tick(&p->keys, now_ms(), take_input, p->app);
    app_events(p->app);
    app_tick(p->app);
}

static bool is_so(player *p, const script_step *step)
{
    if (step->kind == STEP_WAIT_IDLE) return !app_busy(p->app);
    return on_screen(p, &step->text) == (step->kind == STEP_WAIT_TEXT);
}

static pf_status wait_for(player *p, const script_step *step)
{
    int64_t until = now_ms() + (int64_t)(step->limit_s * 1000);
    for (;;) {
        app_events(p->app);
        if (is_so(p, step)) return PF_OK;
        int64_t left = until - now_ms();
        if (left <= 0) break;
        pass_time(p, left < 50 ? (int)left : 50);
    }
    app_draw(p->app);
    static const char *const late[] = {[STEP_WAIT_IDLE] = "still busy at the time limit",
                                       [STEP_WAIT_TEXT] = "the text did not appear in time",
                                       [STEP_WAIT_GONE] = "the text did not disappear in time"};
    return failed(p, step, late[step->kind]);
}

static void type_text(player *p, const script_step *step)
{
    keys_feed(&p->keys, buf_str(&step->text), step->text.len, now_ms(), take_input, p->app);
    /* A text that ends in ESC means the key. */
    keys_tick(&p->keys, now_ms() + KEYS_UTF8_MS, take_input, p->app);
}

static void press(player *p, const script_step *step)
{
    if (step->key == KEY_SPACE)
        app_input(p->app, &(input_event){.kind = INPUT_TEXT, .text = " ", .len = 1});
    else if (step->key < KEY_BASE) {
        char text[4];
        size_t len = 0;
        buf name = {0};
        key_name(step->key, &name);
        len = name.len < sizeof text ? name.len : sizeof text;
        memcpy(text, buf_str(&name), len);
        buf_free(&name);
        app_input(p->app, &(input_event){.kind = INPUT_TEXT, .text = text, .len = len});
    } else {
        app_input(p->app, &(input_event){.kind = INPUT_KEY, .key = step->key});
    }
}

static void write_screen(player *p, const script_step *step)
{
    app_draw(p->app);
    const grid *g = &p->app->grid;
    buf screen = {0};
    grid_write_text(g, &screen);
    fprintf(p->out, "== %s %dx%d", buf_str(&step->text), g->cols, g->rows);
    if (g->cursor_shown) fprintf(p->out, " cursor %d,%d", g->cursor_x, g->cursor_y);
    fprintf(p->out, "\n%s", buf_str(&screen));
    fflush(p->out);
    wipe_buf(&screen);
}

static void put_color(FILE *out, int color)
{
    if (color < 0)
        fputs(" -", out);
    else
        fprintf(out, " %d", color);
}

/* One run of cells of a style: where, how it looks, what it says. */
static void write_run(FILE *out, const grid *g, int y, int from, int to, const look *l)
{
    fprintf(out, "%d %d %d", y, from, to - from);
    put_color(out, l->foreground);
    put_color(out, l->background);
    bool any = l->bold || l->dim || l->reverse || l->underline;
    fprintf(out, " %s%s%s%s%s ", l->bold ? "b" : "", l->dim ? "d" : "", l->reverse ? "r" : "",
            l->underline ? "u" : "", any ? "" : "-");
    for (int x = from; x < to; x++)
        fwrite(grid_at(g, x, y)->text, 1, grid_at(g, x, y)->len, out);
    fputc('\n', out);
}

static void write_cells(player *p, const script_step *step)
{
    const theme *t = theme_for_terminal(16);
    app_draw(p->app);
    const grid *g = &p->app->grid;
    fprintf(p->out, "== %s %dx%d cells\n", buf_str(&step->text), g->cols, g->rows);
    for (int y = 0; y < g->rows; y++)
        for (int x = 0, from = 0; x < g->cols; from = x) {
            int s = grid_at(g, from, y)->style;
            while (x < g->cols && (grid_at(g, x, y)->style == s || grid_at(g, x, y)->len == 0))
                x++;
            write_run(p->out, g, y, from, x, &t->looks[s]);
        }
    fflush(p->out);
}

static pf_status focus_pane(player *p, const script_step *step)
{
    int panes[LAYOUT_MAX_PANES], n = layout_order(&p->app->layout, panes);
    if (step->x > n) return failed(p, step, "there is no such pane");
    p->app->focus = panes[step->x - 1];
    return PF_OK;
}

static void write_answer(player *p)
{
    pane *focused = app_pane(p->app, p->app->focus);
    buf text = {0};
    if (focused->session) chat_view_last_answer(focused->views[0], &text);
    fprintf(p->out, "%s\n", buf_str(&text));
    wipe_buf(&text);
}

static void at_place(player *p, const script_step *step)
{
    static const input_kind kinds[] = {[STEP_CLICK] = INPUT_CLICK,
                                       [STEP_WHEEL_UP] = INPUT_WHEEL_UP,
                                       [STEP_WHEEL_DOWN] = INPUT_WHEEL_DOWN};
    app_draw(p->app);
    app_input(p->app, &(input_event){.kind = kinds[step->kind], .x = step->x, .y = step->y});
}

static void drag(player *p, const script_step *step)
{
    app_draw(p->app);
    app_input(p->app, &(input_event){.kind = INPUT_CLICK, .x = step->x, .y = step->y});
    app_input(p->app, &(input_event){.kind = INPUT_DRAG, .x = step->to_x, .y = step->to_y});
    app_input(p->app, &(input_event){.kind = INPUT_RELEASE, .x = step->to_x, .y = step->to_y});
}

static void as_scripted(app *a, const char clock[8], int limit)
{
    a->scripted = true;
    memcpy(a->clock, clock, sizeof a->clock);
    a->answer_limit = limit;
}

static pf_status restart(player *p)
{
    int cols = p->app->grid.cols, rows = p->app->grid.rows, limit = p->app->answer_limit;
    char clock[8];
    memcpy(clock, p->app->clock, sizeof clock);
    app_close(p->app);
    p->app = NULL;
    pf_status status = app_open(p->options, cols, rows, &p->app, p->err);
    if (status == PF_OK) as_scripted(p->app, clock, limit);
    return status;
}

static pf_status play(player *p, const script_step *step)
{
    switch (step->kind) {
    case STEP_TYPE:
        type_text(p, step);
        break;
    case STEP_KEY:
        press(p, step);
        break;
    case STEP_PASTE:
        app_input(p->app, &(input_event){.kind = INPUT_PASTE,
                                         .text = buf_str(&step->text),
                                         .len = step->text.len});
        break;
    case STEP_WAIT_IDLE:
    case STEP_WAIT_TEXT:
    case STEP_WAIT_GONE:
        return wait_for(p, step);
    case STEP_EXPECT:
        if (!on_screen(p, &step->text)) return failed(p, step, "the text is not on the screen");
        break;
    case STEP_REJECT:
        if (on_screen(p, &step->text)) return failed(p, step, "the text is on the screen");
        break;
    case STEP_SCREEN:
        write_screen(p, step);
        break;
    case STEP_RESIZE:
        app_resize(p->app, step->x, step->y);
        break;
    case STEP_PANE:
        return focus_pane(p, step);
    case STEP_CLICK:
    case STEP_WHEEL_UP:
    case STEP_WHEEL_DOWN:
        at_place(p, step);
        break;
    case STEP_DRAG:
        drag(p, step);
        break;
    case STEP_IDLE:
        p->app->input_ms -= (int64_t)step->x * 1000;
        app_tick(p->app);
        break;
    case STEP_RESTART:
        return restart(p);
    case STEP_CELLS:
        write_cells(p, step);
        break;
    case STEP_CLOCK:
        strncpy(p->app->clock, buf_str(&step->text), sizeof p->app->clock - 1);
        break;
    case STEP_LIMIT:
        p->app->answer_limit = step->x;
        break;
    case STEP_ANSWER:
        write_answer(p);
        break;
    case STEP_SLEEP:
        for (int64_t until = now_ms() + step->x; now_ms() < until;)
            pass_time(p, (int)(until - now_ms()));
        break;
    }
    return PF_OK;
}

pf_status app_run_script(const app_options *options, const char *path, int cols, int rows,
                         FILE *out, pf_err *err)
{
    script *s = NULL;
    player p = {.options = options, .out = out, .err = err};
    pf_status status = script_load(path, &s, err);
    if (status != PF_OK) return status;
    status = app_open(options, cols, rows, &p.app, err);
    if (status != PF_OK) goto out;
    p.script = s;
    as_scripted(p.app, (const char[8]){"12:00"}, 0);
    for (size_t i = 0; i < script_len(s) && status == PF_OK && !p.app->quit; i++) {
        app_events(p.app);
        status = play(&p, script_at(s, i));
        if (p.app->redraw || p.app->suspend) p.app->redraw = p.app->suspend = false;
    }
out:
    keys_free(&p.keys);
    app_close(p.app);
    script_free(s);
    return status;
}
