/* Search in all conversations of the person: hits in context while one types, and the way to them.
 * Everything has to be unsealed for it, so it runs as a job. */
#include "base/mem.h"
#include "profiles/search.h"
#include "profiles/secret.h"
#include "ui/form.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

#define HITS     200 /* most that are shown */
#define HIT_ROWS 2   /* title and context */

typedef struct search_job search_job;

typedef struct {
    view base;
    form form;
    search_job *job;      /* under way; owned by the job system */
    bool again;           /* the text changed meanwhile */
    search_result result; /* of `searched` */
    char *searched;       /* owned; NULL: nothing yet */
    size_t chosen, top;
    area place; /* of the hits, for clicks */
    pf_err err;
} search_screen;

struct search_job {
    job base;
    session *session; /* a reference */
    int pane;
    view *asker; /* may be gone when the job ends */
    unsigned serial;
    char *text;
    search_result result;
    pf_status status;
    pf_err err;
};

/* --- searching -------------------------------------------------------------------------------- */

static void search_run(job *j)
{
    search_job *s = (search_job *)j;
    s->status = search_messages(s->session, s->text, 0, HITS, &s->result, &s->err);
}

static void job_free(search_job *j)
{
    session_unref(j->session);
    search_result_free(&j->result);
    wipe_text(j->text);
    free(j);
}

static void forget_result(search_screen *s)
{
    search_result_free(&s->result);
    s->result = (search_result){0};
    wipe_text(s->searched);
    s->searched = NULL;
    s->chosen = s->top = 0;
}

static void start(search_screen *s);

static void search_done(job *j, void *app_or_null)
{
    search_job *done = (search_job *)j;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, done->pane) : NULL;
    if (!p || !pane_shows(p, done->asker, done->serial)) { /* left meanwhile */
        job_free(done);
        return;
    }
    search_screen *s = (search_screen *)done->asker;
    a->dirty = true;
    s->job = NULL;
    forget_result(s);
    s->err = done->status == PF_OK ? (pf_err){0} : done->err;
    s->result = done->result; /* with damaged messages, too: those that are intact */
    s->searched = done->text;
    done->result = (search_result){0};
    done->text = NULL;
    job_free(done);
    if (s->again) start(s);
}

static void start(search_screen *s)
{
    size_t len;
    const char *text = editor_text(&s->form.fields[0].text, &len);
    s->again = s->job != NULL;
    if (s->job) return;
    if (strspn(text, " ") == len) {
        forget_result(s);
        return;
    }
    search_job *j = xcalloc(1, sizeof *j);
    *j = (search_job){.base = {.run = search_run, .done = search_done},
                      .session = session_ref(s->base.pane->session),
                      .pane = s->base.pane->number,
                      .asker = &s->base,
                      .serial = s->base.serial,
                      .text = xmemdup0(text, len)};
    s->job = j;
    if (jobs_start(s->base.pane->app->jobs, &j->base, &s->err) == PF_OK) return;
    s->job = NULL;
    job_free(j);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void open_chosen(search_screen *s)
{
    pane *p = s->base.pane;
    if (s->chosen >= s->result.n) return;
    int64_t id = s->result.items[s->chosen].conversation;
    int64_t message = s->result.items[s->chosen].message;
    if (chat_view_refuses(p->views[0])) return;
    if (conversation_elsewhere(p, id)) {
        app_say(p->app, "This conversation is open in another pane of yours.");
        return;
    }
    pane_pop(p);
    chat_view_resume_at(pane_top(p), id, message);
}

static void move(search_screen *s, ptrdiff_t by)
{
    ptrdiff_t last = (ptrdiff_t)s->result.n - 1, at = (ptrdiff_t)s->chosen + by;
    s->chosen = at < 0 || last < 0 ? 0 : at > last ? (size_t)last : (size_t)at;
}

static bool inside(area a, const input_event *ev)
{
    return ev->x >= a.x && ev->x < a.x + a.w && ev->y >= a.y && ev->y < a.y + a.h;
}

static void click(search_screen *s, const input_event *ev)
{
    size_t at = s->top + (size_t)(ev->y - s->place.y) / HIT_ROWS;
    if (at >= s->result.n) return;
    if (at == s->chosen)
        open_chosen(s);
    else
        s->chosen = at;
}

static void search_input(view *v, const input_event *ev)
{
    search_screen *s = (search_screen *)v;
    ptrdiff_t page = s->place.h / HIT_ROWS;
    if (ev->kind == INPUT_WHEEL_UP || ev->kind == INPUT_WHEEL_DOWN) {
        move(s, ev->kind == INPUT_WHEEL_UP ? -1 : 1);
        return;
    }
    if (ev->kind == INPUT_CLICK && inside(s->place, ev)) {
        click(s, ev);
        return;
    }
    switch (ev->kind == INPUT_KEY ? action_of(ev->key, CONTEXT_LIST) : ACTION_NONE) {
    case ACTION_PREVIOUS:
        move(s, -1);
        return;
    case ACTION_NEXT:
        move(s, 1);
        return;
    case ACTION_PAGE_BACK:
        move(s, -page);
        return;
    case ACTION_PAGE_ON:
        move(s, page);
        return;
    case ACTION_CHOOSE:
        open_chosen(s);
        return;
    case ACTION_BACK:
        pane_pop(v->pane);
        return;
    default:
        break;
    }
    if (form_input(&s->form, ev)) start(s);
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* One line of context with the hit marked; where there is little room it begins near the hit. */
static void draw_context(const search_hit *hit, area a, style plain)
{
    buf before = {0}, found = {0}, after = {0};
    size_t end = hit->start + hit->len;
    text_clean_label(hit->context, hit->start, &before);
    text_clean_label(hit->context + hit->start, hit->len, &found);
    text_clean_label(hit->context + end, strlen(hit->context + end), &after);
    const char *from = buf_str(&before);
    size_t left = before.len;
    while (left && text_width(from, left) > a.w / 2) {
        size_t n = text_next(from, left).len;
        from += n;
        left -= n;
    }
    int x = area_text(a, 0, 0, plain, from, left);
    x += area_text(a, x, 0, STYLE_KEY, buf_str(&found), found.len);
    area_text(a, x, 0, plain, buf_str(&after), after.len);
    wipe_buf(&before);
    wipe_buf(&found);
    wipe_buf(&after);
}

static void draw_hit(const search_screen *s, size_t at, area a)
{
    const search_hit *hit = &s->result.items[at];
    bool chosen = at == s->chosen;
    buf clean = {0}, title = {0};
    text_clean_label(hit->title, strlen(hit->title), &clean);
    text_ellipsis(buf_str(&clean), clean.len, a.w - 12, &title);
    area head = area_sub(a, 0, 0, a.w, 1);
    style how = chosen ? STYLE_SELECTED : STYLE_TITLE;
    if (chosen) area_clear(head, how);
    area_put(head, 0, 0, how, chosen ? "▸" : " ");
    area_put(head, 2, 0, how, buf_str(&title));
    area_put_right(head, 0, chosen ? how : STYLE_DIM,
                   hit->role == HISTORY_USER ? "you " : "answer ");
    draw_context(hit, area_sub(a, 2, 1, a.w - 2, 1), STYLE_TEXT);
    wipe_buf(&clean);
    wipe_buf(&title);
}

static void draw_hits(search_screen *s, area a)
{
    size_t rows = a.h >= HIT_ROWS ? (size_t)a.h / HIT_ROWS : 1;
    s->place = a;
    if (s->top > s->chosen) s->top = s->chosen;
    if (s->chosen >= s->top + rows) s->top = s->chosen - rows + 1;
    for (size_t i = 0; i < rows && s->top + i < s->result.n; i++)
        draw_hit(s, s->top + i, area_sub(a, 0, (int)i * HIT_ROWS, a.w, HIT_ROWS));
}

static void draw_count(const search_screen *s, area line)
{
    size_t n = s->result.n;
    if (s->err.text[0])
        area_put(line, 0, 0, STYLE_ERROR, s->err.text);
    else if (!s->searched && s->job)
        app_put_waiting(s->base.pane->app, line, 0, STYLE_DIM, "searching");
    else if (!s->searched)
        area_put(line, 0, 0, STYLE_DIM, "Type what to look for.");
    else if (n == 0)
        area_put(line, 0, 0, STYLE_DIM, "found nowhere");
    else
        area_printf(line, 0, 0, STYLE_DIM, "%s%zu %s   Enter opens   Esc back",
                    s->result.more ? "the first " : "", n, n == 1 ? "message" : "messages");
}

static void search_draw(view *v, area a, bool focused)
{
    search_screen *s = (search_screen *)v;
    form_draw(&s->form, area_sub(a, 0, 0, a.w, 1), focused, -1, NULL, STYLE_TEXT);
    int y = a.h > 6 ? 2 : 1;
    draw_hits(s, area_sub(a, 0, y, a.w, a.h - y - 1));
    draw_count(s, area_sub(a, 0, a.h - 1, a.w, 1));
}

static void search_title(view *v, buf *out)
{
    buf_puts(out, "Search in the conversations of ");
    const char *name = session_user_name(v->pane->session);
    text_clean_label(name, strlen(name), out);
}

static void search_free(view *v)
{
    search_screen *s = (search_screen *)v;
    forget_result(s);
    form_free(&s->form);
    free(s);
}

static const view_ops search_ops = {.name = "search",
                                    .draw = search_draw,
                                    .input = search_input,
                                    .title = search_title,
                                    .contexts = CONTEXT_BIT(CONTEXT_LIST),
                                    .free = search_free};

void search_show(pane *p, const char *text)
{
    search_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &search_ops, .pane = p};
    form_add(&s->form, FIELD_TEXT, "Search");
    editor_set(&s->form.fields[0].text, text, strlen(text));
    editor_do(&s->form.fields[0].text, ACTION_LINE_END);
    pane_push(p, &s->base);
    start(s);
}
