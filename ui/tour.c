/* The short tour for someone who is here for the first time: the model, the passphrase, a profile,
 * the keys, a first question. It lies over the chat, can be left at any page and called again. */
#include "base/mem.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "ui/editor.h"
#include "ui/hints.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

#define MOST_COLS      72
#define FIRST_QUESTION "What can I cook with rice, an onion and two eggs?"

typedef enum { PAGE_MODEL, PAGE_SECRET, PAGE_PROFILE, PAGE_KEYS, PAGE_QUESTION, PAGES } page;

typedef struct {
    view base;
    page page;
    editor text; /* the profile's name, or the question */
    pf_err err;
} tour_screen;

static tour_screen *screen_of(view *v)
{
    return (tour_screen *)v;
}

/* --- the pages -------------------------------------------------------------------------------- */

static void put_model(const tour_screen *s, buf *out)
{
    app *a = s->base.pane->app;
    const char *name = model_name(engine_model(a->options.engine));
    buf_puts(out, "The model is here: ");
    text_clean_label(name, strlen(name), out);
    if (!a->scripted) buf_printf(out, ", on %s (%s)", a->stats.device, a->stats.isa);
    buf_puts(out, ". It runs on this machine; nothing you write leaves it.\n\nSeveral people can "
                  "use it at once, each in a pane of their own, answered together: ");
    buf_printf(out, "%s puts another pane beside this one.", hint_key(ACTION_SPLIT_RIGHT));
}

static void put_secret(buf *out)
{
    buf_printf(out,
               "What you write, your profiles and what they learned are encrypted with your "
               "passphrase. Nobody can open them without it, so keep the recovery key if you asked "
               "for one.\n\n%s locks your pane at once; the passphrase opens it again.",
               hint_key(ACTION_LOCK));
}

static void put_profile(buf *out)
{
    buf_puts(
        out,
        "A profile is what the model learns from you: a manner of writing, facts. You can have "
        "several, and chat without any.\n\nGive one a name now, or leave the line empty.");
}

static void put_keys(buf *out)
{
    buf_printf(out,
               "Tell the model what you think of its answers: /good, /bad, /rewrite how it should "
               "have been, /note a fact about you. /train teaches your profile from that, in "
               "minutes, while you go on chatting.\n\n%s shows all keys, %s finds any command by "
               "its name, and / completes commands as you type them.",
               hint_key(ACTION_HELP), hint_key(ACTION_PALETTE));
}

static void put_page(const tour_screen *s, buf *out)
{
    switch (s->page) {
    case PAGE_MODEL:
        put_model(s, out);
        break;
    case PAGE_SECRET:
        put_secret(out);
        break;
    case PAGE_PROFILE:
        put_profile(out);
        break;
    case PAGE_KEYS:
        put_keys(out);
        break;
    case PAGE_QUESTION:
        buf_puts(out, "Now ask something. Enter sends this, or what you make of it.");
        break;
    case PAGES:
        break;
    }
}

static bool has_field(const tour_screen *s)
{
    return s->page == PAGE_PROFILE || s->page == PAGE_QUESTION;
}

static void turn_to(tour_screen *s, page to)
{
    s->page = to;
    s->err = (pf_err){0};
    editor_clear(&s->text);
    if (to != PAGE_QUESTION) return;
    editor_set(&s->text, FIRST_QUESTION, strlen(FIRST_QUESTION));
    editor_do(&s->text, ACTION_LINE_END);
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool make_profile(tour_screen *s)
{
    pane *p = s->base.pane;
    size_t len;
    int64_t id = 0;
    const char *name = editor_text(&s->text, &len);
    if (strspn(name, " ") == len) return true;
    if (profile_create(p->session, name, NULL, &id, &s->err) != PF_OK) return false;
    chat_view_use_profile(p->views[0], id);
    return true;
}

static void ask(tour_screen *s)
{
    pane *p = s->base.pane;
    view *chat = pane_top(p);
    size_t len;
    char *question = xstrdup(editor_text(&s->text, &len));
    app_uncover(p->app);
    chat->ops->input(chat, &(input_event){.kind = INPUT_PASTE, .text = question, .len = len});
    chat->ops->act(chat, ACTION_SEND, "");
    wipe_text(question);
}

static void next(tour_screen *s)
{
    if (s->page == PAGE_QUESTION)
        ask(s);
    else if (s->page != PAGE_PROFILE || make_profile(s))
        turn_to(s, s->page + 1);
}

static void tour_key(tour_screen *s, key_code key)
{
    app *a = s->base.pane->app;
    action list = action_of(key, CONTEXT_LIST), edit = action_of(key, CONTEXT_EDITOR);
    if (action_of(key, CONTEXT_WINDOW) == ACTION_QUIT)
        a->quit = true;
    else if (list == ACTION_BACK)
        app_uncover(a);
    else if (list == ACTION_CHOOSE || list == ACTION_PAGE_ON)
        next(s);
    else if (list == ACTION_PAGE_BACK || (list == ACTION_PREVIOUS && s->page > 0))
        turn_to(s, s->page ? s->page - 1 : s->page);
    else if (has_field(s) && edit != ACTION_NEWLINE)
        editor_do(&s->text, edit);
}

static void tour_input(view *v, const input_event *ev)
{
    tour_screen *s = screen_of(v);
    if (ev->kind == INPUT_KEY) tour_key(s, ev->key);
    if (has_field(s) && (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE))
        editor_insert(&s->text, ev->text, ev->len, ev->kind == INPUT_TEXT);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void tour_draw(view *v, area whole, bool focused)
{
    static const hint first[] = {HINT(ACTION_CHOOSE, "next"), HINT(ACTION_BACK, "skip the tour")},
                      middle[] = {HINT(ACTION_CHOOSE, "next"), HINT(ACTION_PAGE_BACK, "back"),
                                  HINT(ACTION_BACK, "skip the tour")},
                      last[] = {HINT(ACTION_CHOOSE, "ask"), HINT(ACTION_PAGE_BACK, "back"),
                                HINT(ACTION_BACK, "end the tour")};
    tour_screen *s = screen_of(v);
    buf text = {0};
    char title[40];
    int w = whole.w < MOST_COLS ? whole.w : MOST_COLS;
    put_page(s, &text);
    snprintf(title, sizeof title, "Welcome · %d of %d", (int)s->page + 1, (int)PAGES);
    int rows = area_paragraph(area_sub(whole, 0, 0, w - 4, 0), 0, STYLE_TEXT, buf_str(&text));
    int h = rows + (has_field(s) ? 2 : 0) + (s->err.text[0] ? 2 : 0) + 4;
    if (h > whole.h) h = whole.h;
    area box = area_sub(whole, (whole.w - w) / 2, (whole.h - h) / 3, w, h);
    area_clear(box, STYLE_TEXT);
    area_box(box, STYLE_BORDER_ACTIVE, title, STYLE_TITLE);
    area inside = area_sub(box, 2, 1, w - 4, h - 2);
    int field = inside.h - 3, room = has_field(s) ? field : inside.h - 1;
    area_paragraph(area_sub(inside, 0, 0, inside.w, room), 0, STYLE_TEXT, buf_str(&text));
    if (has_field(s) && s->err.text[0])
        area_paragraph(area_sub(inside, 0, field - 2, inside.w, 2), 0, STYLE_ERROR, s->err.text);
    if (has_field(s))
        editor_draw_field(&s->text, area_sub(inside, 0, field, inside.w, 1), STYLE_FIELD, focused);
    if (s->page == PAGE_MODEL)
        HINTS_DRAW(inside, 1, first);
    else if (s->page == PAGE_QUESTION)
        HINTS_DRAW(inside, 1, last);
    else
        HINTS_DRAW(inside, 1, middle);
    buf_free(&text);
}

static void tour_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "Welcome");
}

static void tour_free(view *v)
{
    editor_free(&screen_of(v)->text);
    free(v);
}

static const view_ops tour_ops = {.name = "tour",
                                  .draw = tour_draw,
                                  .input = tour_input,
                                  .title = tour_title,
                                  .free = tour_free,
                                  .contexts = CONTEXT_BIT(CONTEXT_LIST)};

view *tour_view(pane *p)
{
    tour_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &tour_ops, .pane = p};
    editor_init(&s->text);
    return &s->base;
}
