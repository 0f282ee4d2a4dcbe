/* How a training goes: losses, time, answers before and after; and what to do with it when it is
 * over. Or: a training that was broken off, to go on with. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/picker.h"
#include "ui/plot.h"
#include "ui/text.h"
#include "ui/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLOT_ROWS   4
#define LABEL_WIDTH 8

typedef struct {
    view base;
    int64_t unfinished; /* the profile whose training was broken off; 0: the pane's training */
    char *name;         /* clean, of unfinished */
    int64_t step, n_steps;
    bool sure; /* cancel was pressed once */
    pf_err err;
} train_screen;

static train_screen *screen_of(view *v)
{
    return (train_screen *)v;
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool over(const pane *p)
{
    return p->training && !training_runs(p);
}

static void pause_or_go_on(train_screen *s)
{
    pane *p = s->base.pane;
    train_live_pause(training_live(p), training_status(p)->phase != LIVE_PAUSED);
}

static void cancel(train_screen *s)
{
    if (s->sure) train_live_cancel(training_live(s->base.pane));
    s->sure = !s->sure;
}

static void go_on(train_screen *s)
{
    pane *p = s->base.pane;
    if (training_resume(p, s->unfinished, &s->err) == PF_OK) s->unfinished = 0;
}

static void discard(train_screen *s)
{
    pane *p = s->base.pane;
    int64_t profile = s->unfinished;
    if (train_live_discard(p->session, profile, &s->err) != PF_OK) return;
    pane_pop(p);
    pane_push(p, train_setup_view(p, profile));
}

/* Both versions answer the same question. */
static void compare(train_screen *s)
{
    const live_status *now = training_status(s->base.pane);
    if (now->version)
        pane_push(s->base.pane,
                  compare_view(s->base.pane, now->profile, now->version, now->former_version));
}

static void undo(train_screen *s)
{
    pane *p = s->base.pane;
    if (training_status(p)->version && !training_went_back(p)) training_go_back(p, &s->err);
}

static void hide(train_screen *s)
{
    pane_pop(s->base.pane);
}

static void keep(train_screen *s)
{
    pane *p = s->base.pane;
    pane_pop(p);
    training_end(p);
}

/* What a key does depends on where the training is. */
typedef enum { UNFINISHED = 1, RUNNING = 2, OVER = 4 } training_stage;

static const struct {
    action action;
    int stages; /* training_stage, or-ed */
    void (*act)(train_screen *s);
} acts[] = {
    {ACTION_TRAIN_RESUME, UNFINISHED, go_on},
    {ACTION_TRAIN_DISCARD, UNFINISHED, discard},
    {ACTION_TRAIN_PAUSE, RUNNING, pause_or_go_on},
    {ACTION_TRAIN_CANCEL, RUNNING, cancel},
    {ACTION_TRAIN_UNDO, OVER, undo},
    {ACTION_TRAIN_COMPARE, OVER, compare},
    {ACTION_TRAIN_KEEP, OVER, keep},
    {ACTION_TRAIN_HIDE, UNFINISHED | RUNNING | OVER, hide},
};

static bool train_act(view *v, action a, const char *argument)
{
    (void)argument;
    train_screen *s = screen_of(v);
    bool sure = s->sure;
    if (a != ACTION_TRAIN_CANCEL) s->sure = false;
    s->err = (pf_err){0};
    if (!s->unfinished && !v->pane->training) return false;
    training_stage stage = s->unfinished ? UNFINISHED : over(v->pane) ? OVER : RUNNING;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (acts[i].action != a || !(acts[i].stages & stage)) continue;
        acts[i].act(s);
        return true;
    }
    s->sure = sure;
    return false;
}

static void train_input(view *v, const input_event *ev)
{
    action a = action_of(input_key(ev), CONTEXT_TRAIN);
    if (a == ACTION_NONE || !train_act(v, a, "")) screen_of(v)->sure = false;
    if (!v->pane->training && !screen_of(v)->unfinished && pane_top(v->pane) == v)
        pane_pop(v->pane);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void put_loss(buf *out, double loss)
{
    if (isfinite(loss))
        buf_printf(out, "%.2f", loss);
    else
        buf_puts(out, "-");
}

/* Row with the loss now, and of the examples kept aside. */
static void draw_losses(const live_status *now, area line)
{
    buf text = {0};
    buf_puts(&text, "loss ");
    put_loss(&text, live_phase_over(now->phase) && isfinite(now->loss_served) ? now->loss_served
                                                                              : now->loss);
    if (isfinite(now->loss_before)) buf_printf(&text, " (before %.2f)", now->loss_before);
    buf_puts(&text, " · on what was kept aside ");
    put_loss(&text, isfinite(now->held_out_served) ? now->held_out_served : now->held_out_now);
    if (isfinite(now->held_out_before)) buf_printf(&text, " (before %.2f)", now->held_out_before);
    area_put(line, 0, 0, STYLE_TEXT, buf_str(&text));
    buf_free(&text);
}

static void draw_plot(const train_screen *s, area a)
{
    train_live *live = training_live(s->base.pane);
    size_t n = training_status(s->base.pane)->n_losses;
    float *losses = xcalloc(n + 1, sizeof *losses);
    n = train_live_losses(live, 0, n, losses);
    if (n == 0)
        area_put(a, 0, a.h - 1, STYLE_DIM, "The curve of the loss comes here; it should fall.");
    plot_with_scale(a, losses, n);
    free(losses);
}

static void put_time(buf *out, double seconds)
{
    if (!isfinite(seconds)) return;
    if (seconds < 90)
        buf_printf(out, "   about %.0f s left", ceil(seconds));
    else
        buf_printf(out, "   about %.0f min left", ceil(seconds / 60));
}

static void draw_progress(const train_screen *s, const live_status *now, area line)
{
    bool figures = !s->base.pane->app->scripted; /* they differ from run to run */
    buf text = {0};
    double share = live_phase_over(now->phase) ? 1 : now->share_done;
    buf_printf(&text, "%3.0f %%   step %lld/%lld", 100 * share, (long long)now->step,
               (long long)now->n_steps);
    if (figures && isfinite(now->tokens_per_second) && now->tokens_per_second > 0)
        buf_printf(&text, "   %.0f tok/s", now->tokens_per_second);
    if (figures && !live_phase_over(now->phase)) put_time(&text, now->seconds_left);
    int width = text_width(buf_str(&text), text.len), bar = line.w - width - 2;
    if (bar > 40) bar = 40;
    if (bar < 4) bar = 0;
    if (bar) plot_bar(area_sub(line, 0, 0, bar, 1), STYLE_GOOD, share);
    area_put(line, bar ? bar + 2 : 0, 0, STYLE_TEXT, buf_str(&text));
    buf_free(&text);
}

/* In few rows: line ends become blanks. */
static int draw_text(area a, int y, const char *label, style s, const char *text, int most)
{
    buf clean = {0};
    text_cleaner cleaner = {0};
    area_put(a, 0, y, STYLE_DIM, label);
    text_clean(&cleaner, text ? text : "…", text ? strlen(text) : strlen("…"), &clean);
    text_clean_finish(&cleaner, &clean);
    for (size_t i = 0; i < clean.len; i++)
        if (clean.data[i] == '\n') clean.data[i] = ' ';
    int left = a.h - y < most ? a.h - y : most;
    int rows =
        area_paragraph(area_sub(a, LABEL_WIDTH, y, a.w - LABEL_WIDTH, left), 0, s, buf_str(&clean));
    wipe_buf(&clean);
    return y + (rows < most ? rows : most);
}

/* Questions with the answers before and after. */
static void draw_samples(const train_screen *s, area a)
{
    const live_status *now = training_status(s->base.pane);
    int most = now->n_samples ? ((a.h + 1) / (int)now->n_samples - 2) / 2 : 1, y = 0;
    if (most < 1) most = 1;
    for (size_t i = 0; i < now->n_samples && y + 3 <= a.h; i++, y++) {
        train_sample sample;
        train_live_sample(training_live(s->base.pane), i, &sample);
        y = draw_text(a, y, "asked", STYLE_SPEAKER, sample.question, 1);
        y = draw_text(a, y, "before", STYLE_DIM, sample.before, most);
        y = draw_text(a, y, "now", STYLE_TEXT, sample.after, most);
        train_sample_free(&sample);
    }
}

static void put_phase(const train_screen *s, buf *out)
{
    const pane *p = s->base.pane;
    const live_status *now = training_status(p);
    switch (now->phase) {
    case LIVE_PREPARING:
        buf_printf(out, "preparing: %s …", now->doing);
        break;
    case LIVE_TRAINING:
        buf_puts(out, now->n_steps && now->step == now->n_steps
                          ? "checking what was learned …"
                          : "learning; you can go on chatting");
        break;
    case LIVE_PAUSED:
        buf_puts(out, "paused");
        break;
    case LIVE_SAVING:
        buf_puts(out, "saving …");
        break;
    case LIVE_ASKING:
        buf_puts(out, "asking the questions again …");
        break;
    case LIVE_DONE:
    case LIVE_STOPPED:
        if (training_went_back(p))
            buf_printf(out, "%s is as it was before; version %lld stays in its list of versions.",
                       training_name(p), (long long)now->version);
        else
            buf_printf(out, "%s is now version %lld.", training_name(p), (long long)now->version);
        break;
    case LIVE_CANCELLED:
        if (now->made == LIVE_NOT_MADE)
            buf_printf(out, "cancelled: %s is as it was.", training_name(p));
        else
            buf_puts(out, "cancelled.");
        break;
    case LIVE_FAILED:
        buf_printf(out, "not trained: %s", now->message);
        break;
    }
    if (now->phase == LIVE_STOPPED) buf_printf(out, " It ended early: %s", now->message);
    const char *made = live_made_words(now->made);
    if (made) buf_printf(out, " %s", made);
    if (now->resumed_step && !live_phase_over(now->phase)) {
        buf_printf(out, "; resumed from step %lld", (long long)now->resumed_step);
        live_lost_words(now, out);
    }
    if (now->checkpoint_problem[0])
        buf_printf(out, " Its state could not be saved: %s", now->checkpoint_problem);
}

static void put_hint(const train_screen *s, buf *out)
{
    const pane *p = s->base.pane;
    const live_status *now = training_status(p);
    if (s->sure)
        buf_printf(out, "%s again cancels: nothing of it is kept", hint_key(ACTION_TRAIN_CANCEL));
    else if (!live_phase_over(now->phase))
        buf_printf(out, "%s %s   %s cancel   %s on in the background", hint_key(ACTION_TRAIN_PAUSE),
                   now->phase == LIVE_PAUSED ? "go on" : "pause", hint_key(ACTION_TRAIN_CANCEL),
                   hint_key(ACTION_TRAIN_HIDE));
    else if (now->version && !training_went_back(p))
        buf_printf(out, "%s keep   %s go back   %s compare on a question   %s close",
                   hint_key(ACTION_TRAIN_KEEP), hint_key(ACTION_TRAIN_UNDO),
                   hint_key(ACTION_TRAIN_COMPARE), hint_key(ACTION_TRAIN_HIDE));
    else
        buf_printf(out, "%s done   %s close", hint_key(ACTION_TRAIN_KEEP),
                   hint_key(ACTION_TRAIN_HIDE));
}

static void draw_unfinished(const train_screen *s, area a)
{
    buf text = {0};
    buf_printf(&text,
               "The training of %s was broken off at step %lld of %lld. Its state is saved; it can "
               "go on from there, to the same result.",
               s->name, (long long)s->step, (long long)s->n_steps);
    int y = area_paragraph(a, 0, STYLE_TEXT, buf_str(&text)) + 1;
    buf_free(&text);
    if (s->err.text[0]) y += area_paragraph(a, y, STYLE_ERROR, s->err.text) + 1;
    area_printf(a, 0, y, STYLE_DIM, "%s go on   %s forget it and choose anew   %s not now",
                hint_key(ACTION_TRAIN_RESUME), hint_key(ACTION_TRAIN_DISCARD),
                hint_key(ACTION_TRAIN_HIDE));
}

static void draw_training(train_screen *s, area a)
{
    const live_status *now = training_status(s->base.pane);
    buf text = {0};
    int y = 0, plot = a.h >= 16 ? PLOT_ROWS : a.h >= 10 ? 2 : 1;
    put_phase(s, &text);
    style look = now->phase == LIVE_FAILED || now->phase == LIVE_STOPPED ? STYLE_ERROR
                 : now->phase == LIVE_DONE                               ? STYLE_GOOD
                                                                         : STYLE_TEXT;
    int hint = a.h - 1; /* always there */
    area above = area_sub(a, 0, 0, a.w, hint);
    y += area_paragraph(above, y, look, buf_str(&text));
    buf_clear(&text);
    if (s->err.text[0]) y += area_paragraph(above, y, STYLE_ERROR, s->err.text);
    put_hint(s, &text);
    area_put(a, 0, hint, STYLE_DIM, buf_str(&text));
    buf_free(&text);
    draw_plot(s, area_sub(above, 0, y, above.w, plot));
    y += plot;
    draw_losses(now, area_sub(above, 0, y++, above.w, 1));
    draw_progress(s, now, area_sub(above, 0, y++, above.w, 1));
    if (above.h - y > 4) draw_samples(s, area_sub(above, 0, y + 1, above.w, above.h - y - 2));
}

static void train_draw(view *v, area a, bool focused)
{
    (void)focused;
    train_screen *s = screen_of(v);
    if (s->unfinished)
        draw_unfinished(s, a);
    else if (v->pane->training)
        draw_training(s, a);
}

static void train_title(view *v, buf *out)
{
    const train_screen *s = screen_of(v);
    buf_printf(out, "Training of %s", s->unfinished ? s->name : training_name(v->pane));
}

static void train_free(view *v)
{
    wipe_text(screen_of(v)->name);
    free(v);
}

static const view_ops train_ops = {.name = "training",
                                   .draw = train_draw,
                                   .input = train_input,
                                   .title = train_title,
                                   .free = train_free,
                                   .contexts = CONTEXT_BIT(CONTEXT_TRAIN),
                                   .act = train_act};

view *train_view(pane *p, int64_t unfinished)
{
    train_screen *s = xcalloc(1, sizeof *s);
    live_unfinished_list list = {0};
    s->base = (view){.ops = &train_ops, .pane = p};
    if (!unfinished || train_live_unfinished(p->session, &list, &s->err) != PF_OK) return &s->base;
    for (size_t i = 0; i < list.n; i++) {
        const live_unfinished *u = &list.items[i];
        if (u->profile != unfinished) continue;
        buf clean = {0};
        text_clean_label(u->name, strlen(u->name), &clean);
        s->name = buf_take(&clean);
        s->step = u->step;
        s->n_steps = u->n_steps;
        s->unfinished = unfinished;
    }
    live_unfinished_list_free(&list);
    return &s->base;
}
