/* The notes of a person: what training teaches about them. Those found in messages wait here until
 * the person says yes. */
#include "base/mem.h"
#include "profiles/notes.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "train/data/propose.h"
#include "ui/hints.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    view base;
    list list;
    note_list notes;
    bool searching; /* the messages are being read */
    char *told;     /* what the search came to; owned */
    pf_err err;
} notes_screen;

static notes_screen *screen_of(view *v)
{
    return (notes_screen *)v;
}

static void unload(notes_screen *s)
{
    note_list_free(&s->notes);
    list_free(&s->list);
}

static void add_note(notes_screen *s, const note_info *note, const profile_list *profiles)
{
    buf detail = {0};
    const char *whose = "every profile";
    for (size_t i = 0; i < profiles->n; i++)
        if (profiles->items[i].id == note->profile) whose = profiles->items[i].name;
    if (note->state == NOTE_PROPOSED) buf_puts(&detail, "is it so?  ");
    buf_puts(&detail, "for ");
    text_clean_label(whose, strlen(whose), &detail);
    list_add(&s->list, note->id, note->text, buf_str(&detail));
    wipe_buf(&detail);
}

static void load(notes_screen *s)
{
    session *person = s->base.pane->session;
    profile_list profiles = {0};
    pf_err err;
    profile_list_load(person, &profiles, NULL);
    if (note_list_load(person, -1, &s->notes, &err) != PF_OK) s->err = err;
    for (size_t i = 0; i < s->notes.n; i++)
        if (s->notes.items[i].state != NOTE_REFUSED) add_note(s, &s->notes.items[i], &profiles);
    profile_list_free(&profiles);
}

static void reload(notes_screen *s)
{
    size_t at = s->list.selected;
    unload(s);
    load(s);
    s->list.selected = at;
    while (s->list.selected && !list_chosen(&s->list))
        s->list.selected--;
}

static const note_info *chosen(const notes_screen *s)
{
    const list_item *item = list_chosen(&s->list);
    for (size_t i = 0; item && i < s->notes.n; i++)
        if (s->notes.items[i].id == item->id) return &s->notes.items[i];
    return NULL;
}

/* --- finding ---------------------------------------------------------------------------------- */

typedef struct {
    job base;
    int pane;
    view *asker; /* may be gone when the job ends */
    unsigned serial;
    session *session;
    size_t found;
    pf_status status;
    pf_err err;
} find_job;

static void find_run(job *base)
{
    find_job *j = (find_job *)base;
    j->status = notes_propose(j->session, -1, &j->found, &j->err);
}

static void find_done(job *base, void *app_or_null)
{
    find_job *j = (find_job *)base;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, j->pane) : NULL;
    if (p && pane_shows(p, j->asker, j->serial)) {
        notes_screen *s = screen_of(j->asker);
        s->searching = false;
        s->err = j->err;
        free(s->told);
        s->told = j->found == 0 ? xstrdup("Nothing new was found in your messages.")
                                : xasprintf("%zu found; say to each whether it is so.", j->found);
        a->dirty = true;
        reload(s);
    }
    session_unref(j->session);
    free(j);
}

static void find(notes_screen *s)
{
    pane *p = s->base.pane;
    find_job *j = xcalloc(1, sizeof *j);
    *j = (find_job){.base = {.run = find_run, .done = find_done},
                    .pane = p->number,
                    .asker = &s->base,
                    .serial = s->base.serial,
                    .session = session_ref(p->session)};
    s->searching = jobs_start(p->app->jobs, &j->base, &s->err) == PF_OK;
    if (s->searching) return;
    session_unref(j->session);
    free(j);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void confirm(notes_screen *s)
{
    const note_info *note = chosen(s);
    if (!note || note->state != NOTE_PROPOSED) return;
    if (note_update(s->base.pane->session, note->id, NULL, NOTE_CONFIRMED, &s->err) == PF_OK)
        reload(s);
}

static void delete_it(notes_screen *s)
{
    const note_info *note = chosen(s);
    session *person = s->base.pane->session;
    if (!note) return;
    pf_status status = note->state == NOTE_PROPOSED
                           ? note_update(person, note->id, NULL, NOTE_REFUSED, &s->err)
                           : note_remove(person, note->id, &s->err);
    if (status == PF_OK) reload(s);
}

static bool notes_act(view *v, action a, const char *argument)
{
    (void)argument;
    notes_screen *s = screen_of(v);
    if (s->searching || (a != ACTION_NOTE_DELETE && a != ACTION_NOTE_FIND)) return false;
    s->err = (pf_err){0};
    free(s->told);
    s->told = NULL;
    if (a == ACTION_NOTE_FIND)
        find(s);
    else
        delete_it(s);
    return true;
}

static void notes_input(view *v, const input_event *ev)
{
    notes_screen *s = screen_of(v);
    input_event as_key;
    ev = list_event(&s->list, ev, &as_key);
    if (ev->kind == INPUT_KEY && notes_act(v, action_of(ev->key, CONTEXT_NOTES), "")) return;
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_BACK) pane_pop(v->pane);
    if (a == ACTION_CHOOSE) confirm(s);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void notes_draw(view *v, area a, bool focused)
{
    (void)focused;
    notes_screen *s = screen_of(v);
    static const hint hints[] = {
        HINT(ACTION_CHOOSE, "it is so"), HINT(ACTION_NOTE_DELETE, "delete"),
        HINT(ACTION_NOTE_FIND, "find in messages"), HINT(ACTION_BACK, "back")};
    int hint_rows = a.h > 5 ? 2 : 0;
    const note_info *note = chosen(s);
    bool waits = note && note->state == NOTE_PROPOSED;
    if (s->list.filter.len)
        area_printf(a, 0, a.h - 1, STYLE_KEY, "filter: %s", buf_str(&s->list.filter));
    else
        hints_draw(a, hint_rows ? 1 : 0, hints + !waits, sizeof hints / sizeof *hints - !waits);
    const char *told = s->told        ? s->told
                       : !s->list.len ? "Write /note and a fact about you: training teaches it."
                                      : NULL;
    if (hint_rows && s->searching)
        app_put_waiting(s->base.pane->app, a, a.h - 2, STYLE_NOTICE, "reading");
    else if (hint_rows && told)
        area_put(a, 0, a.h - 2, STYLE_NOTICE, told);
    list_draw(&s->list, area_sub(a, 0, 0, a.w, a.h - hint_rows));
    if (s->err.text[0]) area_paragraph(a, a.h / 2, STYLE_ERROR, s->err.text);
}

static void notes_title(view *v, buf *out)
{
    const char *name = session_user_name(v->pane->session);
    buf_puts(out, "Notes of ");
    text_clean_label(name, strlen(name), out);
}

static void notes_free(view *v)
{
    unload(screen_of(v));
    free(screen_of(v)->told);
    free(v);
}

static const view_ops notes_ops = {.name = "notes",
                                   .draw = notes_draw,
                                   .input = notes_input,
                                   .title = notes_title,
                                   .free = notes_free,
                                   .contexts =
                                       CONTEXT_BIT(CONTEXT_NOTES) | CONTEXT_BIT(CONTEXT_LIST),
                                   .act = notes_act};

view *notes_view(pane *p)
{
    notes_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &notes_ops, .pane = p};
    load(s);
    return &s->base;
}
