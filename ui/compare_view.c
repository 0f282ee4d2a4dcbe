/* The same question to two models side by side: with a profile and without it, or with two of its
 * versions. Nothing of it is saved. Both answer with their likeliest words, so that what differs is
 * the profile's doing. */
#include "base/mem.h"
#include "profiles/profile.h"
#include "profiles/profile_settings.h"
#include "profiles/secret.h"
#include "ui/editor.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_TOKENS  400
#define BESIDE_COLUMNS 50 /* narrower ones lie below each other */

typedef struct {
    char *label; /* clean */
    adapter_id adapter;
    request_id request; /* 0: none under way */
    buf text;           /* the answer, clean */
    text_cleaner cleaner;
    text_lines lines;
    char *note; /* how it ended, or why it waits; owned */
    bool failed;
} side;

typedef struct {
    view base;
    char *name;   /* of the profile, clean */
    char *system; /* its system text; NULL: none */
    side sides[2];
    editor editor;
    char *question; /* the last one, clean; NULL: none yet */
    int top;        /* first line of the answers */
    bool reading;   /* scrolled up: the end is not followed */
    pf_err err;
} compare_screen;

static compare_screen *screen_of(view *v)
{
    return (compare_screen *)v;
}

static engine *engine_of(const compare_screen *s)
{
    return s->base.pane->app->options.engine;
}

static bool compare_busy(const view *v)
{
    const compare_screen *s = (const compare_screen *)v;
    return s->sides[0].request || s->sides[1].request;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void set_note(side *d, bool failed, char *note)
{
    free(d->note);
    d->note = note;
    d->failed = failed;
}

static void clear_answer(side *d)
{
    buf_clear(&d->text);
    d->cleaner = (text_cleaner){0};
    text_lines_reset(&d->lines);
    set_note(d, false, NULL);
}

static void ask_side(compare_screen *s, side *d, const char *question, size_t len)
{
    pane *p = s->base.pane;
    pf_err err = {0};
    const chat_message messages[] = {
        {.role = ROLE_SYSTEM, .text = s->system, .len = s->system ? strlen(s->system) : 0},
        {.role = ROLE_USER, .text = question, .len = len}};
    bool has_system = s->system && *s->system;
    const engine_request request = {.messages = messages + !has_system,
                                    .n_messages = 1 + has_system,
                                    .adapter = d->adapter,
                                    .max_tokens =
                                        p->app->answer_limit ? p->app->answer_limit : ANSWER_TOKENS,
                                    .user = session_engine_user(p->session),
                                    .tag = (void *)(uintptr_t)(p->number + 1)};
    clear_answer(d);
    if (engine_submit(p->app->client, &request, &d->request, &err) == PF_OK) return;
    d->request = 0;
    set_note(d, true, xstrdup(err.text));
}

static void ask(compare_screen *s)
{
    size_t len;
    buf clean = {0};
    const char *text = editor_text(&s->editor, &len);
    if (strspn(text, " \t\n") == len || s->err.text[0]) return;
    if (compare_busy(&s->base)) {
        app_say(s->base.pane->app, "The answers are still being written; %s stops them.",
                hint_key(ACTION_STOP));
        return;
    }
    for (int i = 0; i < 2; i++)
        ask_side(s, &s->sides[i], text, len);
    text_clean_label(text, len, &clean);
    wipe_text(s->question);
    s->question = buf_take(&clean);
    s->reading = false;
    s->top = 0;
    editor_clear(&s->editor);
}

static void stop_or_leave(compare_screen *s)
{
    bool busy = compare_busy(&s->base);
    for (int i = 0; i < 2; i++)
        if (s->sides[i].request) engine_cancel(engine_of(s), s->sides[i].request);
    if (!busy) pane_pop(s->base.pane);
}

static void compare_event(view *v, const engine_event *ev)
{
    compare_screen *s = screen_of(v);
    side *d = NULL;
    for (int i = 0; i < 2; i++)
        if (s->sides[i].request && s->sides[i].request == ev->request) d = &s->sides[i];
    if (!d) return;
    v->pane->app->dirty = true;
    if (ev->kind == ENGINE_EVENT_WAITING)
        set_note(d, false, xstrdup(ev->text));
    else if (ev->kind != ENGINE_EVENT_FAILED)
        set_note(d, false, NULL);
    if (ev->kind == ENGINE_EVENT_TOKEN || ev->kind == ENGINE_EVENT_FINISHED)
        text_clean(&d->cleaner, ev->text, ev->text_len, &d->text);
    if (ev->kind == ENGINE_EVENT_FAILED) set_note(d, true, xstrdup(ev->text));
    if (ev->kind != ENGINE_EVENT_FINISHED && ev->kind != ENGINE_EVENT_FAILED) return;
    text_clean_finish(&d->cleaner, &d->text);
    d->request = 0;
    if (ev->kind == ENGINE_EVENT_FINISHED && ev->reason == FINISH_CANCELLED)
        set_note(d, false, xstrdup("stopped"));
    else if (ev->kind == ENGINE_EVENT_FINISHED)
        set_note(d, false, xasprintf("%d tokens", ev->usage.completion_tokens));
}

/* --- keys ------------------------------------------------------------------------------------- */

static void scroll(compare_screen *s, int rows)
{
    s->top += rows;
    s->reading = true;
}

static bool compare_act(view *v, action a, const char *argument)
{
    (void)argument;
    compare_screen *s = screen_of(v);
    switch (a) {
    case ACTION_SEND:
        ask(s);
        break;
    case ACTION_STOP:
        stop_or_leave(s);
        break;
    case ACTION_SCROLL_UP:
        scroll(s, -8);
        break;
    case ACTION_SCROLL_DOWN:
        scroll(s, 8);
        break;
    case ACTION_LINE_UP:
        scroll(s, -1);
        break;
    case ACTION_LINE_DOWN:
        scroll(s, 1);
        break;
    case ACTION_TO_START:
        scroll(s, -s->top);
        break;
    case ACTION_TO_END:
        s->reading = false;
        break;
    default:
        return false;
    }
    return true;
}

static void compare_input(view *v, const input_event *ev)
{
    compare_screen *s = screen_of(v);
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE)
        editor_insert(&s->editor, ev->text, ev->len, ev->kind == INPUT_TEXT);
    if (ev->kind == INPUT_WHEEL_UP) scroll(s, -3);
    if (ev->kind == INPUT_WHEEL_DOWN) scroll(s, 3);
    if (ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_EDITOR);
    if (a != ACTION_NONE)
        editor_do(&s->editor, a);
    else
        compare_act(v, action_of(ev->key, CONTEXT_CHAT), "");
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* The label, and the lines of the answer from s->top on. Returns the number of lines it has. */
static int draw_side(compare_screen *s, side *d, area a)
{
    text_wrap(&d->lines, buf_str(&d->text), d->text.len, a.w);
    int n = (int)d->lines.len;
    int x = area_put(a, 0, 0, STYLE_SPEAKER, d->label) + 2;
    const char *note = d->note ? d->note : d->request ? "…" : "";
    area_put(a, x, 0, d->failed ? STYLE_ERROR : STYLE_DIM, d->failed ? "" : note);
    if (d->failed) area_paragraph(a, 1, STYLE_ERROR, d->note);
    for (int y = 0; y + 1 < a.h && s->top + y < n; y++) {
        const text_line *line = &d->lines.lines[s->top + y];
        area_text(a, 0, y + 1, STYLE_TEXT, buf_str(&d->text) + line->start, line->len);
    }
    return n;
}

static void draw_sides(compare_screen *s, area a)
{
    bool beside = a.w >= BESIDE_COLUMNS;
    int half = beside ? (a.w - 3) / 2 : a.h / 2, rows = beside ? a.h - 1 : half - 1, longest = 0;
    area places[2] = {beside ? area_sub(a, 0, 0, half, a.h) : area_sub(a, 0, 0, a.w, half),
                      beside ? area_sub(a, half + 3, 0, a.w - half - 3, a.h)
                             : area_sub(a, 0, half, a.w, a.h - half)};
    if (s->top < 0) s->top = 0;
    for (int i = 0; i < 2; i++) {
        text_wrap(&s->sides[i].lines, buf_str(&s->sides[i].text), s->sides[i].text.len,
                  places[i].w);
        if ((int)s->sides[i].lines.len > longest) longest = (int)s->sides[i].lines.len;
    }
    if (!s->reading || s->top > longest - rows) s->top = longest > rows ? longest - rows : 0;
    for (int i = 0; i < 2; i++)
        draw_side(s, &s->sides[i], places[i]);
    if (beside) area_vline(a, half + 1, 0, a.h, STYLE_BORDER, "│");
}

static void compare_draw(view *v, area a, bool focused)
{
    (void)focused;
    compare_screen *s = screen_of(v);
    int y = 0;
    if (s->err.text[0]) y += area_paragraph(a, y, STYLE_ERROR, s->err.text);
    if (s->question)
        area_printf(a, 0, y++, STYLE_TITLE, "You: %s", s->question);
    else
        y += area_paragraph(a, y, STYLE_DIM,
                            "Write a question below: both answer it. Nothing of it is saved.");
    draw_sides(s, area_sub(a, 0, y + 1, a.w, a.h - y - 1));
}

static int compare_footer(view *v, int width, int height)
{
    int most = height / 3, rows = editor_height(&screen_of(v)->editor, width - 2);
    if (most < 1) most = 1;
    return rows < most ? rows : most;
}

static void compare_draw_footer(view *v, area a, bool focused)
{
    area_put(a, 0, 0, focused ? STYLE_KEY : STYLE_DIM, ">");
    editor_draw(&screen_of(v)->editor, area_sub(a, 2, 0, a.w - 2, a.h), STYLE_TEXT, focused);
}

static void compare_title(view *v, buf *out)
{
    buf_printf(out, "Compare %s", screen_of(v)->name ? screen_of(v)->name : "");
}

static void compare_free(view *v)
{
    compare_screen *s = screen_of(v);
    for (int i = 0; i < 2; i++) {
        side *d = &s->sides[i];
        if (d->request) engine_cancel(engine_of(s), d->request);
        if (d->adapter) engine_adapter_drop(engine_of(s), d->adapter, NULL);
        wipe_text(d->label);
        wipe_buf(&d->text);
        text_lines_free(&d->lines);
        free(d->note);
    }
    editor_free(&s->editor);
    wipe_text(s->question);
    wipe_text(s->system);
    wipe_text(s->name);
    free(s);
}

static const view_ops compare_ops = {
    .name = "compare",
    .draw = compare_draw,
    .input = compare_input,
    .title = compare_title,
    .event = compare_event,
    .busy = compare_busy,
    .footer = compare_footer,
    .draw_footer = compare_draw_footer,
    .free = compare_free,
    .contexts = CONTEXT_BIT(CONTEXT_CHAT) | CONTEXT_BIT(CONTEXT_EDITOR),
    .act = compare_act,
};

/* --- opening ---------------------------------------------------------------------------------- */

/* Tells the engine of a version (0: the plain model). */
static void open_side(compare_screen *s, side *d, int64_t profile, int64_t version)
{
    adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
    unsigned char digest[32];
    if (version == 0) {
        d->label = xstrdup("the plain model");
        return;
    }
    d->label = xasprintf("%s, version %lld", s->name, (long long)version);
    pf_status status =
        profile_source_open(s->base.pane->session, profile, version, &source.ctx, digest, &s->err);
    if (status != PF_OK) return;
    status = engine_adapter_add_lazy(engine_of(s), digest, &source, &d->adapter, &s->err);
    if (status != PF_OK) profile_source_release(source.ctx);
}

static void take_settings(compare_screen *s, const profile_info *info)
{
    profile_settings settings = profile_settings_none();
    buf clean = {0};
    text_clean_label(info->name, strlen(info->name), &clean);
    s->name = buf_take(&clean);
    if (profile_settings_parse(info->settings, &settings, &s->err) == PF_OK && settings.system)
        s->system = xstrdup(settings.system);
    profile_settings_free(&settings);
}

view *compare_view(pane *p, int64_t profile, int64_t version, int64_t other)
{
    compare_screen *s = xcalloc(1, sizeof *s);
    profile_info info = {0};
    s->base = (view){.ops = &compare_ops, .pane = p};
    editor_init(&s->editor);
    if (profile_get(p->session, profile, &info, &s->err) == PF_OK) {
        take_settings(s, &info);
        open_side(s, &s->sides[0], profile, version);
        open_side(s, &s->sides[1], profile, other);
    }
    profile_info_free(&info);
    return &s->base;
}

void compare_view_ask(view *v, const char *question)
{
    compare_screen *s = screen_of(v);
    editor_set(&s->editor, question, strlen(question));
    ask(s);
}
