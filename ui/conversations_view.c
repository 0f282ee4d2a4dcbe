/* The list of saved conversations: go on with one, give it another title, delete it, write it to a
 * file. */
#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "ui/conversation_file.h"
#include "ui/form.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 500 /* newest conversations */

/* What the line at the bottom asks. */
typedef enum { ASK_NOTHING, ASK_TITLE, ASK_REMOVAL, ASK_FILE } question;

typedef struct {
    view base;
    list list;
    question asked;
    int64_t about; /* the conversation it is about */
    form form;     /* TITLE, FILE */
    pf_err err;
} conversations_screen;

/* --- the list --------------------------------------------------------------------------------- */

static const char *profile_of(const profile_list *profiles, int64_t id)
{
    for (size_t i = 0; i < profiles->n; i++)
        if (profiles->items[i].id == id) return profiles->items[i].name;
    return id ? "(a deleted profile)" : "no profile";
}

static void add_item(conversations_screen *s, const conversation_info *c,
                     const profile_list *profiles)
{
    char date[24] = "";
    if (!s->base.pane->app->scripted) {
        time_t seconds = (time_t)(c->updated_ms / 1000);
        struct tm local;
        localtime_r(&seconds, &local);
        strftime(date, sizeof date, "%e %b %H:%M  ", &local);
    }
    buf detail = {0};
    const char *profile = profile_of(profiles, c->profile);
    buf_puts(&detail, date);
    text_clean_label(profile, strlen(profile), &detail);
    list_add(&s->list, c->id, c->title, buf_str(&detail));
    wipe_buf(&detail);
}

static void load(conversations_screen *s)
{
    pane *p = s->base.pane;
    conversation_list found = {0};
    profile_list profiles = {0};
    profile_list_load(p->session, &profiles, NULL);
    pf_err err;
    if (conversation_list_load(p->session, -1, 0, SHOWN, &found, &err) != PF_OK) s->err = err;
    for (size_t i = 0; i < found.n; i++)
        add_item(s, &found.items[i], &profiles);
    conversation_list_free(&found);
    profile_list_free(&profiles);
}

/* Loads again; the filter and the chosen conversation stay. */
static void reload(conversations_screen *s)
{
    const list_item *chosen = list_chosen(&s->list);
    int64_t id = chosen ? chosen->id : 0;
    size_t at = s->list.selected, top = s->list.top;
    buf filter = s->list.filter;
    s->list.filter = (buf){0};
    list_free(&s->list);
    s->list.filter = filter;
    load(s);
    s->list.selected = at;
    s->list.top = top;
    list_select(&s->list, id);
    while (s->list.selected && !list_chosen(&s->list))
        s->list.selected--;
}

pane *conversation_elsewhere(const pane *p, int64_t id)
{
    int64_t user = session_user_id(p->session);
    for (int i = 0; id && i < LAYOUT_MAX_PANES; i++) {
        pane *other = p->app->panes[i];
        if (!other || other == p || !other->session || other->leaving) continue;
        if (session_user_id(other->session) == user &&
            chat_view_conversation(other->views[0]) == id)
            return other;
    }
    return NULL;
}

static void open_chosen(conversations_screen *s, int64_t id)
{
    pane *p = s->base.pane;
    if (chat_view_refuses(p->views[0])) return;
    if (conversation_elsewhere(p, id)) {
        app_say(p->app, "This conversation is open in another pane of yours.");
        return;
    }
    pane_pop(p);
    chat_view_resume(pane_top(p), id);
}

/* --- questions -------------------------------------------------------------------------------- */

static void ask(conversations_screen *s, question q, const list_item *about, const char *label,
                const char *text)
{
    form_free(&s->form);
    s->err = (pf_err){0};
    s->asked = q;
    s->about = about->id;
    form_add(&s->form, FIELD_TEXT, label);
    editor_set(&s->form.fields[0].text, text, strlen(text));
    editor_do(&s->form.fields[0].text, ACTION_LINE_END);
}

static void stop_asking(conversations_screen *s)
{
    s->asked = ASK_NOTHING;
    form_free(&s->form);
}

static void ask_file(conversations_screen *s, const list_item *item)
{
    buf name = {0};
    conversation_offer_file(item->text, &name);
    ask(s, ASK_FILE, item, "File", buf_str(&name));
    wipe_buf(&name);
}

static void rename_it(conversations_screen *s)
{
    size_t len;
    const char *typed = editor_text(&s->form.fields[0].text, &len);
    while (len && typed[len - 1] == ' ')
        len--;
    if (strspn(typed, " ") >= len) {
        err_set(&s->err, PF_USAGE, "A title is needed.");
        return;
    }
    pf_err err;
    char *title = xmemdup0(typed, len);
    if (conversation_update(s->base.pane->session, s->about, title, -1, &err) == PF_OK) {
        stop_asking(s);
        reload(s);
    } else {
        s->err = err;
    }
    wipe_text(title);
}

/* An answer is being written in it, here or in another pane. */
static bool in_use(const conversations_screen *s, int64_t id)
{
    const pane *p = s->base.pane, *other = conversation_elsewhere(p, id);
    const view *here = p->views[0];
    if (chat_view_conversation(here) == id && here->ops->busy(here)) return true;
    return other && other->views[0]->ops->busy(other->views[0]);
}

static void remove_it(conversations_screen *s)
{
    pane *p = s->base.pane, *other = conversation_elsewhere(p, s->about);
    if (in_use(s, s->about)) {
        err_set(&s->err, PF_BUSY, "An answer is being written in it; stop that first.");
        return;
    }
    pf_err err;
    if (conversation_remove(p->session, s->about, &err) != PF_OK) {
        s->err = err;
        return;
    }
    chat_view_removed(p->views[0], s->about);
    if (other) chat_view_removed(other->views[0], s->about);
    stop_asking(s);
    reload(s);
}

static void export_it(conversations_screen *s)
{
    size_t len;
    char *path = NULL;
    pf_err err;
    const char *name = editor_text(&s->form.fields[0].text, &len);
    if (conversation_write(s->base.pane->session, s->about, name, &path, &err) != PF_OK) {
        s->err = err;
    } else {
        app_say(s->base.pane->app, "Written, readable by all who can read %s.", path);
        stop_asking(s);
    }
    free(path);
}

static void answer_input(conversations_screen *s, const input_event *ev)
{
    if (s->asked != ASK_REMOVAL && form_input(&s->form, ev)) {
        s->err = (pf_err){0};
        return;
    }
    if (ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_BACK) {
        s->err = (pf_err){0};
        stop_asking(s);
    }
    if (a != ACTION_CHOOSE) return;
    s->err = (pf_err){0};
    if (s->asked == ASK_TITLE)
        rename_it(s);
    else if (s->asked == ASK_REMOVAL)
        remove_it(s);
    else
        export_it(s);
}

/* --- the view --------------------------------------------------------------------------------- */

static bool do_action(conversations_screen *s, action a)
{
    pane *p = s->base.pane;
    const list_item *chosen = list_chosen(&s->list);
    switch (a) {
    case ACTION_BACK:
        pane_pop(p);
        return true;
    case ACTION_SEARCH:
        pane_pop(p);
        search_show(p, "");
        return true;
    case ACTION_CHOOSE:
        if (chosen) open_chosen(s, chosen->id);
        return true;
    case ACTION_CONVERSATION_TITLE:
        if (chosen) ask(s, ASK_TITLE, chosen, "Title", chosen->text);
        return true;
    case ACTION_CONVERSATION_DELETE:
        if (chosen) ask(s, ASK_REMOVAL, chosen, "", chosen->text);
        return true;
    case ACTION_CONVERSATION_EXPORT:
        if (chosen) ask_file(s, chosen);
        return true;
    default:
        return false;
    }
}

static bool conversations_act(view *v, action a, const char *argument)
{
    (void)argument;
    conversations_screen *s = (conversations_screen *)v;
    return s->asked == ASK_NOTHING && do_action(s, a);
}

static void conversations_input(view *v, const input_event *ev)
{
    static const context asked[] = {CONTEXT_CONVERSATIONS, CONTEXT_LIST, CONTEXT_CHAT};
    conversations_screen *s = (conversations_screen *)v;
    input_event enter;
    if (s->asked != ASK_NOTHING) {
        answer_input(s, ev);
        return;
    }
    s->err = (pf_err){0};
    ev = list_event(&s->list, ev, &enter);
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (do_action(s, action_of(ev->key, asked[i]))) return;
}

/* As many to a line as fit. */
static void add_hints(int width, buf *out)
{
    static const struct {
        action key;
        const char *words;
    } hints[] = {{ACTION_CHOOSE, "resume"},
                 {ACTION_CONVERSATION_TITLE, "title"},
                 {ACTION_CONVERSATION_DELETE, "delete"},
                 {ACTION_CONVERSATION_EXPORT, "export"},
                 {ACTION_SEARCH, "search"},
                 {ACTION_BACK, "back"}};
    for (size_t i = 0, line = out->len; i < sizeof hints / sizeof *hints; i++) {
        const char *key = hint_key(hints[i].key);
        int wide = text_width_z(key) + 1 + text_width_z(hints[i].words) + 3;
        bool fits = text_width(out->data + line, out->len - line) + wide <= width;
        if (i) buf_puts(out, fits ? " · " : "\n");
        if (!fits) line = out->len;
        buf_printf(out, "%s %s", key, hints[i].words);
    }
}

/* What is said at the bottom; its style is returned. */
static style bottom_text(const conversations_screen *s, int width, buf *out)
{
    size_t len;
    const char *title;
    if (s->err.text[0]) {
        buf_puts(out, s->err.text);
        return STYLE_ERROR;
    }
    switch (s->asked) {
    case ASK_REMOVAL:
        title = editor_text(&s->form.fields[0].text, &len);
        buf_puts(out, "Delete \"");
        text_ellipsis(title, len, width / 2, out);
        buf_puts(out, "\" for ever? Enter deletes it, Esc keeps it.");
        return STYLE_KEY;
    case ASK_TITLE:
        buf_puts(out, "Enter  keep this title   Esc  back");
        return STYLE_DIM;
    case ASK_FILE:
        buf_puts(out, "Enter  write   Esc  back   .md to read, .jsonl for programs");
        return STYLE_DIM;
    default:
        break;
    }
    if (s->list.filter.len == 0) {
        add_hints(width, out);
        return STYLE_DIM;
    }
    buf_puts(out, "filter: ");
    text_clean_label(buf_str(&s->list.filter), s->list.filter.len, out);
    return STYLE_KEY;
}

/* A field that asks, and what is to be said about it; returns the rows it takes at the bottom. */
static int draw_bottom(conversations_screen *s, area a, bool focused)
{
    buf text = {0};
    bool field = s->asked == ASK_TITLE || s->asked == ASK_FILE;
    int most = a.h / 3 > 1 ? a.h / 3 : 1, rows;
    style how = bottom_text(s, a.w, &text);
    text_lines lines = {0};
    text_wrap(&lines, buf_str(&text), text.len, a.w);
    rows = (int)lines.len + field;
    text_lines_free(&lines);
    if (rows > most) rows = most;
    area bottom = area_sub(a, 0, a.h - rows, a.w, rows);
    area_clear(bottom, STYLE_TEXT);
    if (field) form_draw(&s->form, bottom, focused, -1, NULL, STYLE_TEXT);
    area_paragraph(area_sub(bottom, 0, field, a.w, rows - field), 0, how, buf_str(&text));
    wipe_buf(&text);
    return a.h > rows + 3 ? rows + 1 : rows; /* an empty row where there is room */
}

static void conversations_draw(view *v, area a, bool focused)
{
    conversations_screen *s = (conversations_screen *)v;
    int bottom = draw_bottom(s, a, focused);
    list_draw(&s->list, area_sub(a, 0, 0, a.w, a.h - bottom));
}

static void conversations_title(view *v, buf *out)
{
    buf_puts(out, "Conversations of ");
    const char *name = session_user_name(v->pane->session);
    text_clean_label(name, strlen(name), out);
}

static void conversations_free(view *v)
{
    conversations_screen *s = (conversations_screen *)v;
    list_free(&s->list);
    form_free(&s->form);
    free(s);
}

static const view_ops conversations_ops = {.name = "conversations",
                                           .contexts = CONTEXT_BIT(CONTEXT_CONVERSATIONS) |
                                                       CONTEXT_BIT(CONTEXT_LIST),
                                           .draw = conversations_draw,
                                           .input = conversations_input,
                                           .act = conversations_act,
                                           .title = conversations_title,
                                           .free = conversations_free};

view *conversations_view(pane *p)
{
    conversations_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &conversations_ops, .pane = p};
    load(s);
    return &s->base;
}
