/* The profile picker: choose one, make a plain one, import a folder. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/adapter_file.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "ui/form.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { MODE_CHOOSE, MODE_CREATE, MODE_IMPORT } picker_mode;

typedef struct import_job import_job;

typedef struct {
    view base;
    list list;
    picker_mode mode;
    form form; /* MODE_CREATE: name; MODE_IMPORT: folder, name */
    import_job *job;
    pf_err err;
} profiles_screen;

static profiles_screen *screen_of(view *v)
{
    return (profiles_screen *)v;
}

/* --- list ------------------------------------------------------------------------------------- */

static char *describe(const app *a, const profile_info *info)
{
    char date[16] = "";
    if (!a->scripted) {
        time_t seconds = (time_t)(info->updated_ms / 1000);
        struct tm local;
        localtime_r(&seconds, &local);
        strftime(date, sizeof date, "%-d %b", &local);
    }
    if (!info->has_adapter) return xasprintf("plain  %s", date);
    return xasprintf("%s r%d  v%lld  %s", info->current.kind, info->current.max_rank,
                     (long long)info->current.number, date);
}

static void load(profiles_screen *s)
{
    pane *p = s->base.pane;
    profile_list profiles = {0};
    list_free(&s->list);
    profile_list_load(p->session, &profiles, &s->err); /* intact ones also when some are damaged */
    for (size_t i = 0; i < profiles.n; i++) {
        char *detail = describe(p->app, &profiles.items[i]);
        list_add(&s->list, profiles.items[i].id, profiles.items[i].name, detail);
        free(detail);
    }
    list_add(&s->list, 0, "(no profile)", "the plain model");
    profile_list_free(&profiles);
}

/* The chat below takes the profile, and the picker goes. */
static void use(profiles_screen *s, int64_t profile)
{
    pane *p = s->base.pane;
    pane_pop(p);
    chat_view_use_profile(pane_top(p), profile);
}

/* --- creating --------------------------------------------------------------------------------- */

static void begin_form(profiles_screen *s, picker_mode mode)
{
    s->mode = mode;
    s->err = (pf_err){0};
    form_free(&s->form);
    if (mode == MODE_IMPORT) form_add(&s->form, FIELD_TEXT, "Folder");
    form_add(&s->form, FIELD_TEXT, "Name");
}

static void create(profiles_screen *s)
{
    size_t len;
    int64_t id = 0;
    const char *name = editor_text(&s->form.fields[0].text, &len);
    s->err = (pf_err){0};
    if (profile_create(s->base.pane->session, name, NULL, &id, &s->err) == PF_OK) use(s, id);
}

/* --- importing -------------------------------------------------------------------------------- */

struct import_job {
    job base;
    int pane;
    view *asker; /* may be gone when the job ends: compared only */
    session *session;
    const model *model;
    char *folder, *name;
    int64_t profile; /* result */
    pf_status status;
    pf_err err;
};

static void import_run(job *base)
{
    import_job *j = (import_job *)base;
    buf blob = {0}, warnings = {0}, provenance = {0};
    j->status = adapter_file_import(j->folder, j->model, NULL, &blob, &warnings, &j->err);
    if (j->status != PF_OK) goto out;
    j->status = profile_create(j->session, j->name, NULL, &j->profile, &j->err);
    if (j->status != PF_OK) goto out;
    json_t *origin = json_pack("{s:s, s:s}", "source", "import", "warnings", buf_str(&warnings));
    if (origin) json_append(&provenance, origin);
    json_decref(origin);
    profile_version_record record = {.base_name = model_name(j->model),
                                     .provenance = buf_str(&provenance)};
    j->status =
        profile_add_version(j->session, j->profile, blob.data, blob.len, &record, NULL, &j->err);
    if (j->status != PF_OK) profile_remove(j->session, j->profile, NULL);
out:
    wipe_buf(&blob);
    buf_free(&warnings);
    buf_free(&provenance);
}

static void import_free(import_job *j)
{
    session_unref(j->session);
    free(j->folder);
    wipe_text(j->name);
    free(j);
}

static void import_done(job *base, void *app_or_null)
{
    import_job *j = (import_job *)base;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, j->pane) : NULL;
    view *top = p ? pane_top(p) : NULL;
    profiles_screen *s = top && top == j->asker ? screen_of(top) : NULL;
    if (s && s->job == j) {
        s->job = NULL;
        a->dirty = true;
        if (j->status == PF_OK)
            use(s, j->profile);
        else
            s->err = j->err;
    }
    import_free(j);
}

static void begin_import(profiles_screen *s)
{
    pane *p = s->base.pane;
    size_t len;
    const char *folder = editor_text(&s->form.fields[0].text, &len);
    const char *name = editor_text(&s->form.fields[1].text, &len);
    import_job *j = xcalloc(1, sizeof *j);
    *j = (import_job){
        .base = {.run = import_run, .done = import_done},
        .pane = p->number,
        .asker = &s->base,
        .session = session_ref(p->session),
        .model = engine_model(p->app->options.engine),
        .folder = path_expand_home(folder),
        .name = xstrdup(name),
    };
    s->err = (pf_err){0};
    s->job = j;
    if (jobs_start(p->app->jobs, &j->base, &s->err) == PF_OK) return;
    s->job = NULL;
    import_free(j);
}

/* Leaving the folder's field: its last part is offered as the name. */
static void suggest_name(profiles_screen *s)
{
    size_t len, have;
    const char *folder = editor_text(&s->form.fields[0].text, &len);
    editor_text(&s->form.fields[1].text, &have);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    size_t start = len;
    while (start > 0 && folder[start - 1] != '/')
        start--;
    if (!have && len > start)
        editor_insert(&s->form.fields[1].text, folder + start, len - start, false);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void form_keys(profiles_screen *s, const input_event *ev)
{
    int before = s->form.focus;
    bool taken = form_input(&s->form, ev);
    if (s->mode == MODE_IMPORT && before == 0 && s->form.focus == 1) suggest_name(s);
    if (taken || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_BACK) {
        s->mode = MODE_CHOOSE;
        s->err = (pf_err){0};
    } else if (a == ACTION_CHOOSE && s->mode == MODE_CREATE) {
        create(s);
    } else if (a == ACTION_CHOOSE) {
        begin_import(s);
    }
}

static void profiles_input(view *v, const input_event *ev)
{
    profiles_screen *s = screen_of(v);
    if (s->job) return;
    if (s->mode != MODE_CHOOSE) {
        form_keys(s, ev);
        return;
    }
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    const list_item *chosen;
    action a = action_of(ev->key, CONTEXT_PROFILES);
    switch (a ? a : action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_CHOOSE:
        chosen = list_chosen(&s->list);
        if (chosen) use(s, chosen->id);
        break;
    case ACTION_BACK:
        pane_pop(v->pane);
        break;
    case ACTION_CREATE:
        begin_form(s, MODE_CREATE);
        break;
    case ACTION_IMPORT:
        begin_form(s, MODE_IMPORT);
        break;
    default:
        break;
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void draw_hint(area a, int y)
{
    buf text = {0};
    buf_puts(&text, "Enter use   ");
    buf_printf(&text, "%s new   ", hint_key(ACTION_CREATE));
    buf_printf(&text, "%s import   Esc back", hint_key(ACTION_IMPORT));
    area_put(a, 0, y, STYLE_DIM, buf_str(&text));
    buf_free(&text);
}

static void profiles_draw(view *v, area a, bool focused)
{
    profiles_screen *s = screen_of(v);
    if (s->mode == MODE_CHOOSE) {
        int hint = a.h > 5 ? 2 : 0;
        if (s->list.filter.len)
            area_printf(a, 0, a.h - 1, STYLE_KEY, "filter: %s", buf_str(&s->list.filter));
        else if (hint)
            draw_hint(a, a.h - 1);
        list_draw(&s->list, area_sub(a, 0, 0, a.w, a.h - hint));
        if (s->err.text[0]) area_paragraph(a, a.h / 2, STYLE_ERROR, s->err.text);
        return;
    }
    bool import = s->mode == MODE_IMPORT;
    area_put(a, 0, 0, STYLE_TITLE,
             import ? "Import an adapter (a PEFT LoRA or DiReFT folder)"
                    : "A new profile: the plain model, to be trained later");
    int y = 2;
    y += form_draw(&s->form, area_sub(a, 0, y, a.w, a.h - y), focused && !s->job, -1, NULL,
                   STYLE_TEXT);
    y++;
    if (s->job)
        area_put(a, 0, y, STYLE_NOTICE, "reading and checking …");
    else if (s->err.text[0])
        area_paragraph(a, y, STYLE_ERROR, s->err.text);
    else
        area_put(a, 0, y, STYLE_DIM,
                 import ? "Enter next, import   Esc back" : "Enter create   Esc back");
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
    list_free(&s->list);
    form_free(&s->form);
    free(s);
}

static const view_ops profiles_ops = {.name = "profiles",
                                      .contexts =
                                          CONTEXT_BIT(CONTEXT_PROFILES) | CONTEXT_BIT(CONTEXT_LIST),
                                      .draw = profiles_draw,
                                      .input = profiles_input,
                                      .title = profiles_title,
                                      .free = profiles_free};

view *profiles_view(pane *p)
{
    profiles_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &profiles_ops, .pane = p};
    int64_t current = chat_view_profile(pane_top(p));
    load(s);
    list_select(&s->list, current);
    return &s->base;
}
