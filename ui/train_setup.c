/* What a training is to learn from: chosen, counted and looked at before it starts. */
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/secret.h"
#include "ui/editor.h"
#include "ui/hints.h"
#include "ui/text.h"
#include "ui/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of the form. The first is there only when a new profile is made. */
typedef enum { ROW_NAME, ROW_REWRITES, ROW_GOOD, ROW_ALL, ROW_FILE, ROW_KIND, ROW_RANK, ROWS } row;

#define LABEL_WIDTH 8  /* of "Kind" and "Rank" */
#define FIELD_WIDTH 60 /* most columns */

typedef struct plan_job plan_job;

typedef struct {
    view base;
    int64_t profile; /* 0: a new one */
    char *name;      /* clean; NULL for a new one */
    row focus, source;
    editor new_name, file;
    train_method method;
    int rank;
    bool fresh;    /* another kind or rank than the profile has: it begins from nothing */
    char *present; /* the kind it has; owned, NULL: none */
    int present_rank;
    plan_job *job;  /* under way */
    bool stale;     /* the choice changed meanwhile */
    bool start;     /* start when the plan is there */
    bool untouched; /* the first choice is the program's: one that has examples */
    bool counted;   /* answers are known */
    size_t answers[LEARN_REWRITES + 1]; /* that each choice would learn */
    bool planned;                       /* plan is of the present choice */
    train_plan plan;
    int top; /* first example shown */
    pf_err err;
} setup_screen;

static setup_screen *screen_of(view *v)
{
    return (setup_screen *)v;
}

/* --- planning --------------------------------------------------------------------------------- */

struct plan_job {
    job base;
    int pane;
    view *asker; /* may be gone when the job ends: compared only */
    session *session;
    engine *engine;
    train_request request;
    char *file; /* owned; request.files points here */
    const char *files[1];
    bool counts;     /* count the answers too */
    train_plan plan; /* results */
    size_t answers[LEARN_REWRITES + 1];
    pf_status status;
    pf_err err;
};

static const learn_from choices[ROWS] = {
    [ROW_REWRITES] = LEARN_REWRITES, [ROW_GOOD] = LEARN_GOOD, [ROW_ALL] = LEARN_ALL};

/* The present choice; file gets the owned path that it points to. */
static void make_request(const setup_screen *s, train_request *r, char **file, const char **files)
{
    size_t len;
    *r = (train_request){.profile = s->profile,
                         .method = s->method,
                         .from = choices[s->source],
                         .rank = s->rank,
                         .fresh = s->fresh,
                         .held_out = 0.1,
                         .seed = 1,
                         .sample_questions = 2};
    *file = NULL;
    if (s->source != ROW_FILE) return;
    *file = path_expand_home(editor_text(&s->file, &len));
    files[0] = *file;
    r->files = files;
    r->n_files = 1;
}

static void plan_run(job *base)
{
    plan_job *j = (plan_job *)base;
    if (j->counts)
        j->counts = train_live_count(j->session, j->request.profile, j->answers, NULL) == PF_OK;
    j->status = train_live_plan(j->session, j->engine, &j->request, &j->plan, &j->err);
}

static void plan_free(plan_job *j)
{
    train_plan_free(&j->plan);
    session_unref(j->session);
    free(j->file);
    free(j);
}

static void begin_plan(setup_screen *s);
static void choose_source(setup_screen *s, row source);
static void start(setup_screen *s);

static void plan_done(job *base, void *app_or_null)
{
    plan_job *j = (plan_job *)base;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, j->pane) : NULL;
    view *top = p ? pane_top(p) : NULL;
    setup_screen *s = top && top == j->asker ? screen_of(top) : NULL;
    if (!s || s->job != j) {
        plan_free(j);
        return;
    }
    s->job = NULL;
    a->dirty = true;
    if (j->counts) {
        memcpy(s->answers, j->answers, sizeof s->answers);
        s->counted = true;
    }
    if (s->stale) {
        plan_free(j);
        begin_plan(s);
        return;
    }
    train_plan_free(&s->plan);
    s->plan = j->plan;
    j->plan = (train_plan){0};
    s->err = j->err;
    s->planned = j->status == PF_OK;
    s->top = 0;
    plan_free(j);
    bool nothing = s->planned && s->plan.n_examples == 0;
    if (s->untouched && nothing && s->source == ROW_GOOD) choose_source(s, s->focus = ROW_ALL);
    s->untouched = false;
    if (s->start) start(s);
}

static void begin_plan(setup_screen *s)
{
    pane *p = s->base.pane;
    size_t len;
    editor_text(&s->file, &len);
    s->stale = s->job != NULL;
    s->planned = false;
    s->err = (pf_err){0};
    if (s->job || (s->source == ROW_FILE && len == 0)) return;
    plan_job *j = xcalloc(1, sizeof *j);
    *j = (plan_job){.base = {.run = plan_run, .done = plan_done},
                    .pane = p->number,
                    .asker = &s->base,
                    .session = session_ref(p->session),
                    .engine = p->app->options.engine,
                    .counts = !s->counted};
    make_request(s, &j->request, &j->file, j->files);
    s->job = j;
    if (jobs_start(p->app->jobs, &j->base, &s->err) == PF_OK) return;
    s->job = NULL;
    plan_free(j);
}

/* --- starting --------------------------------------------------------------------------------- */

/* Starts with the plan that is shown; without one it is made first. */
static void start(setup_screen *s)
{
    pane *p = s->base.pane;
    train_request r;
    char *file = NULL;
    const char *files[1];
    size_t len;
    s->start = false;
    if (!s->planned && s->err.text[0]) return;
    if (!s->planned) {
        s->start = s->source != ROW_FILE || s->job || editor_text(&s->file, &len)[0];
        if (!s->job) begin_plan(s);
        return;
    }
    if (!s->plan.enough) return; /* its hint is shown */
    make_request(s, &r, &file, files);
    if (!s->profile) r.new_profile = editor_text(&s->new_name, &len);
    pf_status status = PF_OK;
    if (r.new_profile && !*r.new_profile) {
        status = err_set(&s->err, PF_USAGE, "Give the new profile a name first.");
        s->focus = ROW_NAME; /* what is typed now is it */
    }
    if (status == PF_OK) status = training_start(p, &r, &s->err);
    free(file);
    if (status != PF_OK) return;
    pane_pop(p);
    pane_push(p, train_view(p, 0));
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool is_source(row r)
{
    return r >= ROW_REWRITES && r <= ROW_FILE;
}

static void move_focus(setup_screen *s, int by)
{
    int first = s->profile ? ROW_REWRITES : ROW_NAME;
    int to = (int)s->focus + by;
    s->focus = (row)(to < first ? ROWS - 1 : to >= ROWS ? first : to);
}

static void choose_source(setup_screen *s, row source)
{
    if (s->source == source) return;
    s->source = source;
    begin_plan(s);
}

static void change_kind(setup_screen *s, int by)
{
    enum { KINDS = TRAIN_DIREFT + 1 };
    bool usual = s->rank == training_usual_rank(s->method);
    s->method = (train_method)(((int)s->method + by + KINDS) % KINDS);
    if (usual) s->rank = training_usual_rank(s->method);
}

static void change_value(setup_screen *s, int by)
{
    if (s->focus == ROW_KIND)
        change_kind(s, by);
    else
        s->rank = training_step_rank(s->rank, by);
    s->fresh = s->present && (strcmp(s->present, train_method_name(s->method)) != 0 ||
                              s->present_rank != s->rank);
    begin_plan(s);
}

static editor *focused_text(setup_screen *s)
{
    return s->focus == ROW_NAME ? &s->new_name : s->focus == ROW_FILE ? &s->file : NULL;
}

static void editor_key(setup_screen *s, key_code key)
{
    action a = action_of(key, CONTEXT_EDITOR);
    editor *text = focused_text(s);
    if (text && a != ACTION_NEWLINE) {
        editor_do(text, a);
        if (s->focus == ROW_FILE) s->planned = false;
    } else if (a == ACTION_LEFT || a == ACTION_RIGHT) {
        if (s->focus == ROW_KIND || s->focus == ROW_RANK)
            change_value(s, a == ACTION_LEFT ? -1 : 1);
    }
}

static void setup_key(setup_screen *s, key_code key)
{
    switch (action_of(key, CONTEXT_LIST)) {
    case ACTION_PREVIOUS:
        move_focus(s, -1);
        break;
    case ACTION_NEXT:
        move_focus(s, 1);
        break;
    case ACTION_PAGE_BACK:
        s->top -= 5;
        break;
    case ACTION_PAGE_ON:
        s->top += 5;
        break;
    case ACTION_CHOOSE:
        if (is_source(s->focus) && s->focus != s->source)
            choose_source(s, s->focus);
        else
            start(s);
        break;
    case ACTION_BACK:
        pane_pop(s->base.pane);
        break;
    default:
        editor_key(s, key);
    }
}

static void setup_input(view *v, const input_event *ev)
{
    setup_screen *s = screen_of(v);
    s->untouched = false;
    editor *text = focused_text(s);
    if (ev->kind == INPUT_KEY) setup_key(s, ev->key);
    if (ev->kind == INPUT_WHEEL_UP) s->top -= 3;
    if (ev->kind == INPUT_WHEEL_DOWN) s->top += 3;
    if (ev->kind != INPUT_TEXT && ev->kind != INPUT_PASTE) return;
    if (!text && is_source(s->focus) && ev->len && ev->text[0] == ' ') choose_source(s, s->focus);
    if (!text) return;
    size_t line = 0; /* the text is not terminated */
    while (line < ev->len && ev->text[line] != '\r' && ev->text[line] != '\n')
        line++;
    editor_insert(text, ev->text, line, ev->kind == INPUT_TEXT);
    if (s->focus != ROW_FILE) return;
    s->source = ROW_FILE;
    begin_plan(s);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void draw_source(setup_screen *s, area line, row r, bool here, bool focused)
{
    static const char *const labels[ROWS] = {
        [ROW_REWRITES] = "answers you rewrote",
        [ROW_GOOD] = "answers you called good, and those you rewrote",
        [ROW_ALL] = "whole conversations, but for answers you called bad",
        [ROW_FILE] = "a file:"};
    area_put(line, 0, 0, here ? STYLE_SELECTED : STYLE_TEXT, s->source == r ? "(•)" : "( )");
    int x = 4 + area_put(line, 4, 0, here ? STYLE_TITLE : STYLE_TEXT, labels[r]) + 1;
    int width = line.w - x < FIELD_WIDTH ? line.w - x : FIELD_WIDTH;
    if (r != ROW_FILE && s->counted)
        area_printf(line, x, 0, STYLE_DIM, r == ROW_ALL ? "· %zu answers" : "· %zu",
                    s->answers[choices[r]]);
    if (r == ROW_FILE)
        editor_draw_field(&s->file, area_sub(line, x, 0, width, 1), STYLE_FIELD, here && focused);
}

static void draw_value(area line, const char *label, const char *value, const char *words,
                       bool here)
{
    area_put(line, 0, 0, STYLE_DIM, label);
    area_printf(line, LABEL_WIDTH, 0, here ? STYLE_SELECTED : STYLE_TEXT, "‹ %s ›", value);
    area_put(line, LABEL_WIDTH + 13, 0, STYLE_DIM, words);
}

static void draw_name(setup_screen *s, area line, bool here)
{
    int x = area_put(line, 0, 0, here ? STYLE_TITLE : STYLE_DIM, "A new profile, called") + 1;
    int width = line.w - x < FIELD_WIDTH ? line.w - x : FIELD_WIDTH;
    editor_draw_field(&s->new_name, area_sub(line, x, 0, width, 1), STYLE_FIELD, here);
}

static void draw_row(setup_screen *s, area line, row r, bool focused)
{
    bool here = focused && s->focus == r;
    char rank[16];
    if (r == ROW_NAME) {
        draw_name(s, line, here);
    } else if (is_source(r)) {
        draw_source(s, area_sub(line, 2, 0, line.w - 2, 1), r, here, focused);
    } else if (r == ROW_KIND) {
        draw_value(line, "Kind", train_method_name(s->method), training_kind_words(s->method),
                   here);
    } else {
        snprintf(rank, sizeof rank, "%d", s->rank);
        draw_value(line, "Rank", rank, training_rank_words(s->method, s->rank), here);
    }
}

/* The rows of the form, with a heading above the sources where there is room for all; else those
 * around the focus. Returns the next row of the screen. */
static int draw_rows(setup_screen *s, area a, bool focused)
{
    int first = s->profile ? ROW_REWRITES : ROW_NAME, y = 0;
    bool all = a.h >= ROWS + 4;
    int shown = all || a.h >= ROWS - first + 2 ? ROWS - first : a.h - 2;
    if (shown < 1) shown = 1;
    int from = (int)s->focus - shown / 2;
    if (from > ROWS - shown) from = ROWS - shown;
    if (from < first) from = first;
    for (int r = from; r < from + shown; r++) {
        if (all && r == ROW_REWRITES) area_put(a, 0, y++, STYLE_DIM, "Learn from");
        draw_row(s, area_sub(a, 0, y++, a.w, 1), (row)r, focused);
        if (all && r == ROW_NAME) y++;
    }
    return y + all;
}

static void count_plan(const train_plan *p, buf *out)
{
    size_t aside = 0;
    for (size_t i = 0; i < p->n_examples; i++)
        aside += p->examples[i].held_out;
    buf_printf(out, "%zu %s · %zu tokens to learn · %zu kept aside to check", p->n_examples - aside,
               p->n_examples - aside == 1 ? "example" : "examples", p->n_learned, aside);
    if (p->added.n_notes)
        buf_printf(out, " · %zu %s about you", p->added.n_notes,
                   p->added.n_notes == 1 ? "note" : "notes");
    if (p->n_skipped) buf_printf(out, " · %zu left out, shown with x", p->n_skipped);
    buf_printf(out, " · %lld steps", (long long)p->n_steps);
}

static int draw_missing(area a, int y, const char *missing)
{
    buf text = {0};
    buf_printf(&text, "Not yet: %s.", missing);
    int rows = area_paragraph(a, y, STYLE_ERROR, buf_str(&text));
    buf_free(&text);
    return rows;
}

/* The summary of the plan and what prevents a start. Returns the next row. */
static int draw_counts(const setup_screen *s, area a, int y)
{
    buf text = {0};
    style look = STYLE_TEXT;
    if (s->err.text[0]) {
        buf_puts(&text, s->err.text);
        look = STYLE_ERROR;
    } else if (s->job) {
        buf_printf(&text, "%s counting …", app_mark(s->base.pane->app));
    } else if (s->planned) {
        count_plan(&s->plan, &text);
        if (isfinite(s->plan.seconds) && !s->base.pane->app->scripted)
            buf_printf(&text, " · about %.0f s", ceil(s->plan.seconds));
    } else {
        buf_puts(&text, s->source == ROW_FILE ? "Lines like {\"messages\": [{\"role\": \"user\", "
                                                "\"content\": \"…\"}, …]} are read from it."
                                              : "");
    }
    y += area_paragraph(a, y, look, buf_str(&text));
    buf_free(&text);
    if (s->planned && !s->plan.enough)
        y += draw_missing(a, y, s->plan.hint);
    else if (s->planned)
        y += area_paragraph(a, y, STYLE_DIM,
                            s->plan.goes_on ? "It goes on from what the profile has learned."
                            : s->present    ? "Another kind or rank: it begins from nothing."
                                            : "It begins from the plain model.");
    return y;
}

/* The beginning of a text on one line. */
static void put_clean(buf *out, const char *text)
{
    enum { MOST = 600 }; /* bytes: more than any line shows */
    buf line = {0}, clean = {0};
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0; i < len && i < MOST; i++)
        buf_putc(&line, text[i] == '\n' || text[i] == '\t' ? ' ' : text[i]);
    line.len = utf8_complete_prefix(buf_str(&line), line.len);
    text_clean_label(buf_str(&line), line.len, &clean);
    buf_append(out, buf_str(&clean), clean.len);
    wipe_buf(&line);
    wipe_buf(&clean);
}

static void draw_example(const train_plan_example *e, area line)
{
    buf text = {0};
    put_clean(&text, e->question);
    area_put(line, 0, 0, STYLE_KEY, e->held_out ? "o" : " ");
    int half = (line.w - 14) / 2;
    area_put(area_sub(line, 2, 0, half, 1), 0, 0, STYLE_DIM, buf_str(&text));
    wipe_buf(&text);
    put_clean(&text, e->answer);
    area_put(area_sub(line, 2 + half + 1, 0, half, 1), 0, 0, STYLE_TEXT, buf_str(&text));
    wipe_buf(&text);
    char count[32];
    if (e->repeat > 1)
        snprintf(count, sizeof count, "%zu ×%d", e->n_learned, e->repeat);
    else
        snprintf(count, sizeof count, "%zu", e->n_learned);
    area_put_right(line, 0, STYLE_DIM, count);
}

static void draw_skipped(const train_plan_skipped *e, area line)
{
    buf text = {0};
    put_clean(&text, e->label);
    buf_puts(&text, ": ");
    put_clean(&text, e->reason);
    area_put(line, 0, 0, STYLE_ERROR, "x");
    area_put(line, 2, 0, STYLE_DIM, buf_str(&text));
    wipe_buf(&text);
}

static void draw_examples(setup_screen *s, area a)
{
    int n = (int)(s->plan.n_examples + s->plan.n_skipped), last = n - a.h;
    if (s->top > last) s->top = last;
    if (s->top < 0) s->top = 0;
    for (int y = 0; y < a.h && s->top + y < n; y++) {
        size_t i = (size_t)(s->top + y);
        area line = area_sub(a, 0, y, a.w, 1);
        if (i < s->plan.n_skipped)
            draw_skipped(&s->plan.skipped[i], line);
        else
            draw_example(&s->plan.examples[i - s->plan.n_skipped], line);
    }
}

static void draw_keys(const setup_screen *s, area a)
{
    bool choose = is_source(s->focus) && s->focus != s->source;
    bool value = s->focus == ROW_KIND || s->focus == ROW_RANK;
    const hint hints[] = {HINT(ACTION_CHOOSE, choose ? "choose" : "start"),
                          HINT_BOTH(ACTION_PREVIOUS, ACTION_NEXT, "move"),
                          HINT_BOTH(value ? ACTION_LEFT : ACTION_PAGE_BACK,
                                    value ? ACTION_RIGHT : ACTION_PAGE_ON,
                                    value ? "change" : "look at examples"),
                          HINT(ACTION_BACK, "back")};
    HINTS_DRAW(a, 1, hints);
}

static void setup_draw(view *v, area a, bool focused)
{
    setup_screen *s = screen_of(v);
    int y = draw_counts(s, a, draw_rows(s, a, focused));
    int hint_rows = a.h - y >= 3 ? 1 : 0;
    if (s->planned && a.h - y - hint_rows > 1)
        draw_examples(s, area_sub(a, 0, y + 1, a.w, a.h - y - 1 - 2 * hint_rows));
    if (hint_rows) draw_keys(s, a);
}

static void setup_title(view *v, buf *out)
{
    const setup_screen *s = screen_of(v);
    buf_printf(out, "Train %s", s->name ? s->name : "a new profile");
}

static void setup_free(view *v)
{
    setup_screen *s = screen_of(v);
    train_plan_free(&s->plan);
    editor_free(&s->new_name);
    editor_free(&s->file);
    wipe_text(s->name);
    free(s->present);
    free(s);
}

static const view_ops setup_ops = {.name = "train setup",
                                   .draw = setup_draw,
                                   .input = setup_input,
                                   .title = setup_title,
                                   .free = setup_free,
                                   .contexts = CONTEXT_BIT(CONTEXT_LIST)};

/* What the profile is now: its kind and rank are the first choice. */
static void take_profile(setup_screen *s, session *person)
{
    profile_info info = {0};
    buf clean = {0};
    if (!s->profile || profile_get(person, s->profile, &info, &s->err) != PF_OK) return;
    text_clean_label(info.name, strlen(info.name), &clean);
    s->name = buf_take(&clean);
    if (info.has_adapter && train_method_parse(info.current.kind, &s->method)) {
        s->rank = s->present_rank = info.current.max_rank;
        s->present = xstrdup(info.current.kind);
    } else {
        training_choice_load(person, s->profile, &s->method, &s->rank);
    }
    profile_info_free(&info);
}

view *train_setup_view(pane *p, int64_t profile)
{
    setup_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &setup_ops, .pane = p};
    s->profile = profile;
    s->method = TRAIN_LORAP;
    s->rank = training_usual_rank(TRAIN_LORAP);
    s->source = ROW_GOOD;
    s->untouched = true;
    s->focus = profile ? ROW_GOOD : ROW_NAME;
    editor_init(&s->new_name);
    editor_init(&s->file);
    take_profile(s, p->session);
    begin_plan(s);
    return &s->base;
}
