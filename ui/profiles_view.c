/* The profiles of a person: choose one for the conversation, make, teach, compare, rename, copy,
 * export, import and delete them. */
#include "base/file.h"
#include "base/mem.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "ui/form.h"
#include "ui/hints.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/profile_jobs.h"
#include "ui/profile_words.h"
#include "ui/text.h"
#include "ui/training.h"

#include <stdlib.h>
#include <string.h>

typedef enum { ASK_NOTHING, ASK_NEW, ASK_IMPORT, ASK_NAME, ASK_COPY, ASK_EXPORT } question;

/* Fields of the forms. */
enum { NEW_NAME, NEW_KIND, NEW_RANK };
enum { IMPORT_FOLDER, IMPORT_NAME };

typedef struct {
    view base;
    list list;
    question asked;
    form form;
    int64_t about;   /* the profile that is asked about */
    int64_t deleted; /* hidden; really deleted when the list is left. 0: none */
    char *deleted_name;
    bool working; /* a job is under way */
    buf told;     /* the last thing done, for the line at the bottom */
    pf_err err;
} profiles_screen;

static profiles_screen *screen_of(view *v)
{
    return (profiles_screen *)v;
}

static bool same_person(const pane *a, const pane *b)
{
    return a->session && b->session && session_user_id(a->session) == session_user_id(b->session);
}

void profile_changed_everywhere(pane *p, int64_t profile)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        pane *other = p->app->panes[i];
        if (other && same_person(p, other)) chat_view_profile_changed(other->views[0], profile);
    }
}

void profile_removed_everywhere(pane *p, int64_t profile)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        pane *other = p->app->panes[i];
        if (other && same_person(p, other)) chat_view_profile_removed(other->views[0], profile);
    }
}

/* --- list ------------------------------------------------------------------------------------- */

static void load(profiles_screen *s)
{
    pane *p = s->base.pane;
    profile_list profiles = {0};
    profile_list_load(p->session, &profiles, &s->err); /* intact ones also when some are damaged */
    for (size_t i = 0; i < profiles.n; i++) {
        buf detail = {0};
        if (profiles.items[i].id == s->deleted) continue;
        profile_line(p->app, &profiles.items[i], &detail);
        list_add(&s->list, profiles.items[i].id, profiles.items[i].name, buf_str(&detail));
        wipe_buf(&detail);
    }
    list_add(&s->list, 0, "(no profile)", "the plain model");
    profile_list_free(&profiles);
}

static void reload(profiles_screen *s, int64_t chosen)
{
    buf filter = s->list.filter;
    s->list.filter = (buf){0};
    list_free(&s->list);
    s->list.filter = filter;
    load(s);
    list_select(&s->list, chosen);
    while (s->list.selected && !list_chosen(&s->list))
        s->list.selected--;
}

/* The chat below takes the profile, and the list goes. */
static void use(profiles_screen *s, int64_t profile)
{
    pane *p = s->base.pane;
    pane_pop(p);
    chat_view_use_profile(pane_top(p), profile);
}

static void tell(profiles_screen *s, const char *what, const char *name)
{
    buf_clear(&s->told);
    buf_puts(&s->told, what);
    text_clean_label(name, strlen(name), &s->told);
}

/* --- deleting --------------------------------------------------------------------------------- */

static bool in_training(const profiles_screen *s, int64_t profile)
{
    const pane *p = s->base.pane;
    return training_runs(p) && training_status(p)->profile == profile;
}

/* The profile that was deleted last can't come back any more. */
static void delete_for_good(profiles_screen *s)
{
    pane *p = s->base.pane;
    pf_err err = {0};
    if (!s->deleted) return;
    profile_removed_everywhere(p, s->deleted);
    if (profile_remove(p->session, s->deleted, &err) != PF_OK)
        app_say(p->app, "The profile could not be deleted: %s", err.text);
    s->deleted = 0;
}

static void delete_chosen(profiles_screen *s, const list_item *item)
{
    if (in_training(s, item->id)) {
        err_set(&s->err, PF_BUSY, "%s is being trained; cancel that first.", item->text);
        return;
    }
    delete_for_good(s);
    s->deleted = item->id;
    wipe_text(s->deleted_name);
    s->deleted_name = xstrdup(item->text);
    buf_clear(&s->told);
    buf_printf(&s->told, "%s is deleted with all its versions; %s brings it back until you leave.",
               item->text, hint_key(ACTION_PROFILE_UNDO));
    reload(s, 0);
}

static void bring_back(profiles_screen *s)
{
    int64_t id = s->deleted;
    if (!id) return;
    s->deleted = 0;
    tell(s, "Back again: ", s->deleted_name);
    reload(s, id);
}

/* --- forms ------------------------------------------------------------------------------------ */

static const char *const kinds[] = {"lorap", "direftp", "lora", "direft", NULL};
static const char *const ranks[] = {"1", "2", "4", "8", "16", "32", "64", "128", "256", NULL};
enum { RANK_8 = 3, RANK_64 = 6 };

static void set_text(form_field *field, const char *text)
{
    editor_set(&field->text, text, strlen(text));
    editor_do(&field->text, ACTION_LINE_END);
}

static void begin_form(profiles_screen *s, question asked, const list_item *about)
{
    s->asked = asked;
    s->err = (pf_err){0};
    s->about = about ? about->id : 0;
    buf_clear(&s->told);
    form_free(&s->form);
    if (asked == ASK_IMPORT || asked == ASK_EXPORT) form_add(&s->form, FIELD_TEXT, "Folder");
    if (asked != ASK_EXPORT) form_add(&s->form, FIELD_TEXT, "Name");
    if (asked == ASK_NEW) {
        form_add_choice(&s->form, "Kind", kinds, 0);
        form_add_choice(&s->form, "Rank", ranks, RANK_8);
    }
    if (asked == ASK_NAME) set_text(&s->form.fields[0], about->text);
    if (asked == ASK_COPY || asked == ASK_EXPORT) {
        buf text = {0};
        buf_printf(&text, asked == ASK_COPY ? "%s 2" : "~/%s", about->text);
        set_text(&s->form.fields[0], buf_str(&text));
        wipe_buf(&text);
    }
}

static void end_form(profiles_screen *s)
{
    s->asked = ASK_NOTHING;
    s->err = (pf_err){0};
    form_free(&s->form);
}

static const char *field(const profiles_screen *s, int i)
{
    size_t len;
    return editor_text(&s->form.fields[i].text, &len);
}

static train_method chosen_kind(const profiles_screen *s)
{
    return (train_method)s->form.fields[NEW_KIND].chosen;
}

static int chosen_rank(const profiles_screen *s)
{
    return atoi(ranks[s->form.fields[NEW_RANK].chosen]);
}

static void create(profiles_screen *s)
{
    pane *p = s->base.pane;
    int64_t id = 0;
    if (profile_create(p->session, field(s, NEW_NAME), NULL, &id, &s->err) != PF_OK) return;
    training_choice_save(p->session, id, chosen_kind(s), chosen_rank(s));
    use(s, id);
    buf text = {0};
    buf_printf(&text,
               "This profile has learned nothing yet. Rate or rewrite answers as you chat; "
               "%s teaches it from them.",
               hint_key(ACTION_TRAIN));
    chat_view_notice(p->views[0], false, buf_str(&text));
    buf_free(&text);
}

static void copy(profiles_screen *s)
{
    int64_t id = 0;
    pane *p = s->base.pane;
    if (profile_copy(p->session, s->about, field(s, 0), &id, &s->err) != PF_OK) return;
    tell(s, "Copied: ", field(s, 0));
    end_form(s);
    reload(s, id);
}

static void change_name(profiles_screen *s)
{
    pane *p = s->base.pane;
    if (profile_rename(p->session, s->about, field(s, 0), &s->err) != PF_OK) return;
    profile_changed_everywhere(p, s->about);
    tell(s, "Renamed: ", field(s, 0));
    end_form(s);
    reload(s, s->about);
}

static void imported(view *asker, const folder_result *result)
{
    profiles_screen *s = screen_of(asker);
    s->working = false;
    s->err = result->err;
    if (result->status == PF_OK) use(s, result->profile);
}

static void exported(view *asker, const folder_result *result)
{
    profiles_screen *s = screen_of(asker);
    s->working = false;
    if (result->status != PF_OK) {
        s->err = result->err;
        return;
    }
    end_form(s);
    tell(s, "Written, unencrypted and yours alone to read: ", result->path);
}

static void answer(profiles_screen *s)
{
    s->err = (pf_err){0};
    switch (s->asked) {
    case ASK_NEW:
        create(s);
        break;
    case ASK_COPY:
        copy(s);
        break;
    case ASK_NAME:
        change_name(s);
        break;
    case ASK_IMPORT:
        s->working = profile_import_start(&s->base, field(s, IMPORT_FOLDER), field(s, IMPORT_NAME),
                                          imported, &s->err) == PF_OK;
        break;
    case ASK_EXPORT:
        s->working =
            profile_export_start(&s->base, s->about, field(s, 0), exported, &s->err) == PF_OK;
        break;
    case ASK_NOTHING:
        break;
    }
}

/* Leaving the folder's field: its last part is offered as the name. */
static void suggest_name(profiles_screen *s)
{
    const char *folder = field(s, IMPORT_FOLDER);
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    size_t start = len;
    while (start > 0 && folder[start - 1] != '/')
        start--;
    if (!*field(s, IMPORT_NAME) && len > start)
        editor_insert(&s->form.fields[IMPORT_NAME].text, folder + start, len - start, false);
}

/* Another kind has another usual rank: it follows while it was not changed. */
static void follow_kind(profiles_screen *s, train_method before)
{
    form_field *rank = &s->form.fields[NEW_RANK];
    bool usual = chosen_rank(s) == training_usual_rank(before);
    if (chosen_kind(s) != before && usual)
        rank->chosen = training_usual_rank(chosen_kind(s)) == 64 ? RANK_64 : RANK_8;
}

static void form_keys(profiles_screen *s, const input_event *ev)
{
    int before = s->form.focus;
    action a = ev->kind == INPUT_KEY ? action_of(ev->key, CONTEXT_LIST) : ACTION_NONE;
    train_method kind = s->asked == ASK_NEW ? chosen_kind(s) : TRAIN_LORAP;
    if (a == ACTION_BACK) {
        end_form(s);
        return;
    }
    /* A new profile's kind and rank have their usual values: the name is enough. */
    bool taken = (a != ACTION_CHOOSE || s->asked != ASK_NEW) && form_input(&s->form, ev);
    if (s->asked == ASK_NEW) follow_kind(s, kind);
    if (s->asked == ASK_IMPORT && before == IMPORT_FOLDER && s->form.focus == IMPORT_NAME)
        suggest_name(s);
    if (!taken && a == ACTION_CHOOSE) answer(s);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void compare(profiles_screen *s, int64_t profile)
{
    pane *p = s->base.pane;
    profile_info info = {0};
    if (profile_get(p->session, profile, &info, &s->err) != PF_OK) return;
    if (info.has_adapter)
        pane_push(p, compare_view(p, profile, info.current.number, 0));
    else
        err_set(&s->err, PF_USAGE, "%s has learned nothing yet; there is nothing to compare.",
                list_chosen(&s->list)->text);
    profile_info_free(&info);
}

/* About the chosen profile. */
static bool profile_action(profiles_screen *s, action a, const list_item *item)
{
    pane *p = s->base.pane;
    switch (a) {
    case ACTION_PROFILE_INFO:
        pane_push(p, profile_info_view(p, item->id));
        break;
    case ACTION_PROFILE_TRAIN:
        training_open(p, item->id);
        break;
    case ACTION_PROFILE_COMPARE:
        compare(s, item->id);
        break;
    case ACTION_PROFILE_RENAME:
        begin_form(s, ASK_NAME, item);
        break;
    case ACTION_PROFILE_COPY:
        begin_form(s, ASK_COPY, item);
        break;
    case ACTION_PROFILE_EXPORT:
        begin_form(s, ASK_EXPORT, item);
        break;
    case ACTION_PROFILE_DELETE:
        delete_chosen(s, item);
        break;
    default:
        return false;
    }
    return true;
}

static bool profiles_act(view *v, action a, const char *argument)
{
    (void)argument;
    profiles_screen *s = screen_of(v);
    const list_item *item = list_chosen(&s->list);
    if (s->working || s->asked != ASK_NOTHING) return false;
    if (a != ACTION_NONE) {
        s->err = (pf_err){0};
        buf_clear(&s->told);
    }
    switch (a) {
    case ACTION_PROFILE_CREATE:
        begin_form(s, ASK_NEW, NULL);
        return true;
    case ACTION_PROFILE_IMPORT:
        begin_form(s, ASK_IMPORT, NULL);
        return true;
    case ACTION_PROFILE_UNDO:
        bring_back(s);
        return true;
    default:
        return item && item->id && profile_action(s, a, item);
    }
}

static void profiles_input(view *v, const input_event *ev)
{
    profiles_screen *s = screen_of(v);
    input_event as_key;
    if (s->working) return;
    if (s->asked != ASK_NOTHING) {
        form_keys(s, ev);
        return;
    }
    ev = list_event(&s->list, ev, &as_key);
    if (ev->kind == INPUT_KEY && profiles_act(v, action_of(ev->key, CONTEXT_PROFILES), "")) return;
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    const list_item *chosen = list_chosen(&s->list);
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_BACK) pane_pop(v->pane);
    if (a == ACTION_CHOOSE && chosen) use(s, chosen->id);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void draw_list(profiles_screen *s, area a)
{
    static const hint hints[] = {HINT(ACTION_CHOOSE, "use"),
                                 HINT(ACTION_PROFILE_CREATE, "new"),
                                 HINT(ACTION_PROFILE_INFO, "info"),
                                 HINT(ACTION_PROFILE_TRAIN, "train"),
                                 HINT(ACTION_PROFILE_COMPARE, "compare"),
                                 HINT(ACTION_PROFILE_RENAME, "rename"),
                                 HINT(ACTION_PROFILE_COPY, "copy"),
                                 HINT(ACTION_PROFILE_EXPORT, "export"),
                                 HINT(ACTION_PROFILE_IMPORT, "import"),
                                 HINT(ACTION_PROFILE_DELETE, "delete"),
                                 HINT(ACTION_BACK, "back")};
    int rows = HINTS_DRAW(a, a.h > 10 ? 3 : a.h > 8 ? 2 : a.h > 5 ? 1 : 0, hints);
    int below = rows ? rows + 1 : 0;
    if (s->list.filter.len) {
        if (!below) below = 1;
        area_printf(a, 0, a.h - below, STYLE_KEY, "filter: %s", buf_str(&s->list.filter));
    }
    if (s->told.len) {
        int lines = area_paragraph(area_sub(a, 0, 0, a.w, 0), 0, STYLE_NOTICE, buf_str(&s->told));
        below += lines;
        area_paragraph(area_sub(a, 0, a.h - below, a.w, lines), 0, STYLE_NOTICE, buf_str(&s->told));
    }
    list_draw(&s->list, area_sub(a, 0, 0, a.w, a.h - below));
    if (s->err.text[0]) area_paragraph(a, a.h / 2, STYLE_ERROR, s->err.text);
}

static int draw_explanations(const profiles_screen *s, area a, int y)
{
    buf text = {0};
    buf_printf(&text, "%s: %s.", kinds[chosen_kind(s)], training_kind_words(chosen_kind(s)));
    y += area_paragraph(a, y, STYLE_DIM, buf_str(&text));
    buf_clear(&text);
    buf_printf(&text, "Rank %d: %s.", chosen_rank(s),
               training_rank_words(chosen_kind(s), chosen_rank(s)));
    y += area_paragraph(a, y, STYLE_DIM, buf_str(&text));
    buf_free(&text);
    return y + 1;
}

static void draw_form_hints(const profiles_screen *s, area line, const char *does)
{
    const hint hints[] = {HINT(ACTION_CHOOSE, does), HINT(ACTION_BACK, "back"),
                          HINT_BOTH(ACTION_PREVIOUS, ACTION_NEXT, "move"),
                          HINT_BOTH(ACTION_LEFT, ACTION_RIGHT, "change")};
    hints_draw(line, 1, hints, s->asked == ASK_NEW ? 4 : 2);
}

static void draw_form(profiles_screen *s, area a, bool focused)
{
    static const char *const titles[] = {[ASK_NEW] = "A new profile, to be taught later",
                                         [ASK_IMPORT] =
                                             "Import an adapter (a PEFT LoRA or DiReFT folder)",
                                         [ASK_NAME] = "Another name",
                                         [ASK_COPY] = "A copy of the version in use",
                                         [ASK_EXPORT] = "Write the adapter to a new folder"};
    static const char *const does[] = {[ASK_NEW] = "create",
                                       [ASK_IMPORT] = "next, import",
                                       [ASK_NAME] = "rename",
                                       [ASK_COPY] = "copy",
                                       [ASK_EXPORT] = "write"};
    int gap = a.h > 8 ? 1 : 0, y = 1 + gap;
    area_put(a, 0, 0, STYLE_TITLE, titles[s->asked]);
    y += form_draw(&s->form, area_sub(a, 0, y, a.w, a.h - y), focused && !s->working, -1, NULL,
                   STYLE_TEXT);
    y += gap;
    if (s->asked == ASK_NEW) y = draw_explanations(s, a, y);
    if (s->working)
        app_put_waiting(s->base.pane->app, a, y, STYLE_NOTICE, "reading and checking");
    else if (s->err.text[0])
        area_paragraph(a, y, STYLE_ERROR, s->err.text);
    else
        draw_form_hints(s, area_sub(a, 0, y, a.w, 1), does[s->asked]);
}

static void profiles_draw(view *v, area a, bool focused)
{
    profiles_screen *s = screen_of(v);
    if (s->asked == ASK_NOTHING)
        draw_list(s, a);
    else
        draw_form(s, a, focused);
}

static void profiles_title(view *v, buf *out)
{
    buf_puts(out, "Profiles of ");
    const char *name = session_user_name(v->pane->session);
    text_clean_label(name, strlen(name), out);
}

static void profiles_free(view *v)
{
    profiles_screen *s = screen_of(v);
    delete_for_good(s);
    list_free(&s->list);
    form_free(&s->form);
    wipe_text(s->deleted_name);
    wipe_buf(&s->told);
    free(s);
}

static const view_ops profiles_ops = {.name = "profiles",
                                      .draw = profiles_draw,
                                      .input = profiles_input,
                                      .title = profiles_title,
                                      .free = profiles_free,
                                      .contexts =
                                          CONTEXT_BIT(CONTEXT_PROFILES) | CONTEXT_BIT(CONTEXT_LIST),
                                      .act = profiles_act};

view *profiles_view(pane *p)
{
    profiles_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &profiles_ops, .pane = p};
    int64_t current = chat_view_profile(pane_top(p));
    load(s);
    list_select(&s->list, current);
    return &s->base;
}
