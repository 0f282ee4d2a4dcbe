/* The views before a conversation: who is here, a new person, the passphrase, the recovery key, and
 * the lock. Stretching a passphrase takes about a second, so it runs as a job. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/form.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/strength.h"
#include "ui/text.h"
#include "ui/window.h"

#include <stdlib.h>
#include <string.h>

/* --- the job ---------------------------------------------------------------------------------- */

typedef enum { SIGN_IN, CREATE, RECOVER } signin_kind;

/* Signs a user in, makes one, or gives one a new passphrase for the recovery key. */
typedef struct {
    job base;
    store *store;
    int pane;
    view *asker; /* may be gone when the job ends */
    unsigned serial;
    signin_kind kind;
    bool with_recovery; /* CREATE */
    char *user;
    secret *passphrase;
    secret *key; /* RECOVER */
    session *session;
    secret *recovery;
    pf_status status;
    pf_err err;
} signin_job;

static void signin_run(job *j)
{
    signin_job *s = (signin_job *)j;
    switch (s->kind) {
    case SIGN_IN:
        s->status = user_sign_in(s->store, s->user, s->passphrase, &s->session, &s->err);
        break;
    case CREATE:
        s->status = user_create(s->store, s->user, s->passphrase, &s->session,
                                s->with_recovery ? &s->recovery : NULL, &s->err);
        break;
    case RECOVER:
        s->status = user_recover(s->store, s->user, s->key, s->passphrase, &s->session, &s->err);
        break;
    }
}

static void signin_free(signin_job *s)
{
    if (s->session) session_sign_out(s->session);
    session_unref(s->session);
    secret_free(s->passphrase);
    secret_free(s->key);
    secret_free(s->recovery);
    free(s->user);
    free(s);
}

/* What views that sign in have in common. */
typedef struct {
    view base;
    form form;
    char *user;     /* passphrase view; owned */
    int64_t resume; /* conversation to return to */
    bool locked, first;
    bool looked, has_recovery; /* passphrase view: is known, and a recovery key was made */
    signin_job *job;           /* under way; owned by the job system */
    pf_err err;                /* shown; empty text: none */
    secret *key;               /* recovery view */
} signin_screen;

static signin_screen *screen_of(view *v)
{
    return (signin_screen *)v;
}

/* To the conversation; the very first person gets the tour. */
static void enter_chat(pane *p, int64_t resume)
{
    app *a = p->app;
    pane_replace(p, chat_view(p, resume));
    if (a->tour_due && a->focus == p->number) app_cover(a, tour_view(p));
    a->tour_due = false;
}

static void signin_done(job *j, void *app_or_null)
{
    signin_job *s = (signin_job *)j;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, s->pane) : NULL;
    if (!p || !pane_shows(p, s->asker, s->serial)) { /* left meanwhile */
        signin_free(s);
        return;
    }
    signin_screen *screen = screen_of(s->asker);
    screen->job = NULL;
    a->dirty = true;
    if (s->status != PF_OK) {
        screen->err = s->err;
        if (s->kind != RECOVER) form_clear_secrets(&screen->form); /* a long key stays, to mend */
        if (s->kind == CREATE) screen->form.focus = s->status == PF_USAGE ? 0 : 1;
        if (s->kind == RECOVER) screen->form.focus = 0;
    } else {
        int64_t resume = screen->resume;
        if (screen->first) p->app->tour_due = true;
        p->session = s->session;
        s->session = NULL;
        if (conversation_elsewhere(p, resume)) resume = 0;
        pane_set_owner(p, session_user_name(p->session), resume);
        if (s->recovery) {
            pane_replace(p, recovery_view(s->recovery));
            s->recovery = NULL;
        } else {
            enter_chat(p, resume);
        }
    }
    signin_free(s);
}

static void start_job(signin_screen *s, signin_kind kind, const char *user,
                      const secret *passphrase, const secret *key, bool with_recovery)
{
    app *a = s->base.pane->app;
    signin_job *j = xcalloc(1, sizeof *j);
    *j = (signin_job){
        .base = {.run = signin_run, .done = signin_done},
        .store = a->options.store,
        .pane = s->base.pane->number,
        .asker = &s->base,
        .serial = s->base.serial,
        .kind = kind,
        .with_recovery = with_recovery,
        .user = xstrdup(user),
        .passphrase = secret_from(passphrase->data, passphrase->len),
        .key = key ? secret_from(key->data, key->len) : NULL,
    };
    s->err = (pf_err){0};
    s->job = j;
    if (jobs_start(a->jobs, &j->base, &s->err) == PF_OK) return;
    s->job = NULL;
    signin_free(j);
}

static void signin_screen_free(view *v)
{
    signin_screen *s = screen_of(v);
    form_free(&s->form);
    free(s->user);
    secret_free(s->key);
    free(s);
}

/* Space around the contents where there is enough of it. */
static area with_margin(area a)
{
    return a.w > 30 && a.h > 8 ? area_sub(a, 2, 1, a.w - 4, a.h - 1) : a;
}

/* --- who is here ------------------------------------------------------------------------------ */

typedef struct {
    view base;
    list list;
    pf_err err;
} start_screen;

#define NEW_PERSON 0 /* user ids begin at 1 */

static void load_users(start_screen *s, store *store_)
{
    user_list users = {0};
    list_free(&s->list);
    if (user_list_load(store_, &users, &s->err) == PF_OK)
        for (size_t i = 0; i < users.n; i++)
            list_add(&s->list, users.items[i].id, users.items[i].name, NULL);
    list_add(&s->list, NEW_PERSON, "(someone new)", NULL);
    user_list_free(&users);
}

/* The name as it is stored: what the list shows may have marks for invisible characters. */
static char *user_name_of(store *store_, int64_t id)
{
    user_list users = {0};
    char *name = NULL;
    if (user_list_load(store_, &users, NULL) == PF_OK)
        for (size_t i = 0; i < users.n && !name; i++)
            if (users.items[i].id == id) name = xstrdup(users.items[i].name);
    user_list_free(&users);
    return name;
}

static void start_input(view *v, const input_event *ev)
{
    start_screen *s = (start_screen *)v;
    app *a = v->pane->app;
    input_event enter;
    ev = list_event(&s->list, ev, &enter);
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    action act = action_of(ev->key, CONTEXT_LIST);
    if (act == ACTION_BACK && layout_count(&a->layout) == 1)
        app_say(a, "%s leaves.", hint_key(ACTION_QUIT));
    if (act != ACTION_CHOOSE) return;
    const list_item *chosen = list_chosen(&s->list);
    if (!chosen) return;
    if (chosen->id == NEW_PERSON) {
        pane_push(v->pane, create_view(s->list.len == 1));
        return;
    }
    char *name = user_name_of(a->options.store, chosen->id);
    if (name)
        pane_push(v->pane, passphrase_view(name, 0, false));
    else
        load_users(s, a->options.store); /* removed meanwhile */
    free(name);
}

static void start_draw(view *v, area a, bool focused)
{
    (void)focused;
    start_screen *s = (start_screen *)v;
    a = with_margin(a);
    int y = 0;
    area_put(a, 0, y, STYLE_TITLE, "Who is here?");
    if (s->list.filter.len) area_put_right(a, y, STYLE_KEY, buf_str(&s->list.filter));
    y += a.h > 6 ? 2 : 1;
    if (s->err.text[0]) y += area_paragraph(a, y, STYLE_ERROR, s->err.text);
    list_draw(&s->list, area_sub(a, 0, y, a.w, a.h - y));
}

static void start_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "sign in");
}

static void start_free(view *v)
{
    start_screen *s = (start_screen *)v;
    list_free(&s->list);
    free(s);
}

static const view_ops start_ops = {.name = "start",
                                   .draw = start_draw,
                                   .input = start_input,
                                   .title = start_title,
                                   .free = start_free};

view *start_view(app *a)
{
    start_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &start_ops;
    load_users(s, a->options.store);
    if (s->list.len == 1 && !s->err.text[0]) { /* nobody yet: straight to the first person */
        start_free(&s->base);
        return create_view(true);
    }
    return &s->base;
}

/* --- a new person ----------------------------------------------------------------------------- */

enum { FIELD_NAME, FIELD_PASS, FIELD_AGAIN, FIELD_RECOVERY };

static void create_submit(signin_screen *s)
{
    size_t len;
    const char *name = editor_text(&s->form.fields[FIELD_NAME].text, &len);
    const secret *pass = s->form.fields[FIELD_PASS].value;
    s->err = (pf_err){0};
    if (len == 0) {
        s->form.focus = FIELD_NAME;
        err_set(&s->err, PF_USAGE, "A name is needed.");
    } else if (pass->len == 0) {
        s->form.focus = FIELD_PASS;
        err_set(&s->err, PF_USAGE,
                "A passphrase is needed: it is the key to everything you write.");
    } else if (!secret_equal(pass, s->form.fields[FIELD_AGAIN].value)) {
        s->form.focus = FIELD_AGAIN;
        secret_truncate(s->form.fields[FIELD_AGAIN].value, 0);
        err_set(&s->err, PF_USAGE, "The two passphrases differ; type the second one again.");
    } else {
        start_job(s, CREATE, name, pass, NULL, s->form.fields[FIELD_RECOVERY].checked);
    }
}

static void create_input(view *v, const input_event *ev)
{
    signin_screen *s = screen_of(v);
    if (s->job) return; /* being made */
    if (form_input(&s->form, ev) || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_CHOOSE) create_submit(s);
    if (a != ACTION_BACK) return;
    if (v->pane->depth > 1)
        pane_pop(v->pane);
    else if (layout_count(&v->pane->app->layout) == 1)
        v->pane->app->quit = true;
}

static void create_draw(view *v, area a, bool focused)
{
    signin_screen *s = screen_of(v);
    a = with_margin(a);
    int y = 0;
    bool roomy = a.h > 11;
    if (s->first && a.h > 7) {
        y += area_paragraph(a, y, STYLE_TEXT,
                            a.h > 9 ? "Nobody is here yet. Your name will be shown on this "
                                      "machine's sign-in list; everything else you write is "
                                      "encrypted."
                                    : "Nobody is here yet.");
        y += roomy;
    }
    const secret *pass = s->form.fields[FIELD_PASS].value;
    strength how = strength_of(pass->data, pass->len);
    y += form_draw(&s->form, area_sub(a, 0, y, a.w, a.h - y), focused && !s->job, FIELD_PASS,
                   strength_words(how),
                   how == STRENGTH_STRONG ? STYLE_GOOD
                   : how == STRENGTH_WEAK ? STYLE_ERROR
                                          : STYLE_KEY);
    y += roomy;
    if (s->job)
        app_put_waiting(v->pane->app, a, y, STYLE_NOTICE, "making your keys");
    else if (s->err.text[0])
        area_paragraph(a, y, STYLE_ERROR, s->err.text);
    else
        area_put(a, 0, y, STYLE_DIM,
                 v->pane->depth > 1 ? "Enter  next, create   Esc  back"
                                    : "Enter  next, create   Esc  leave");
}

static void create_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "someone new");
}

static const view_ops create_ops = {.name = "create",
                                    .draw = create_draw,
                                    .input = create_input,
                                    .title = create_title,
                                    .free = signin_screen_free};

view *create_view(bool first)
{
    signin_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &create_ops;
    s->first = first;
    form_add(&s->form, FIELD_TEXT, "Name");
    form_add(&s->form, FIELD_SECRET, "Passphrase");
    form_add(&s->form, FIELD_SECRET, "Again");
    form_add(&s->form, FIELD_CHECK,
             "Show a recovery key once (without it a forgotten passphrase loses everything)");
    s->form.fields[FIELD_RECOVERY].checked = true;
    return &s->base;
}

/* --- the recovery key ------------------------------------------------------------------------- */

static void recovery_input(view *v, const input_event *ev)
{
    if (ev->kind == INPUT_KEY && action_of(ev->key, CONTEXT_LIST) == ACTION_CHOOSE)
        enter_chat(v->pane, 0);
}

static void recovery_draw(view *v, area a, bool focused)
{
    (void)focused;
    signin_screen *s = screen_of(v);
    a = with_margin(a);
    int y = area_paragraph(a, 0, STYLE_TEXT,
                           a.h > 8 ? "Write this recovery key down and keep it away from this "
                                     "machine. It is shown only now; with it you can set a new "
                                     "passphrase when you have forgotten yours."
                                   : "Your recovery key, shown only now:");
    y += a.h > 8;
    y += area_paragraph(a, y, STYLE_TITLE, s->key->data);
    y += a.h > 8;
    area_put(a, 0, y, STYLE_DIM, "Enter  I have written it down");
}

static const view_ops recovery_ops = {.name = "recovery",
                                      .draw = recovery_draw,
                                      .input = recovery_input,
                                      .title = create_title,
                                      .free = signin_screen_free};

view *recovery_view(secret *key)
{
    signin_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &recovery_ops;
    s->key = key;
    return &s->base;
}

/* --- a lost passphrase ------------------------------------------------------------------------ */

enum { FIELD_KEY_TEXT, FIELD_NEW, FIELD_NEW_AGAIN };

static void lost_submit(signin_screen *s)
{
    const secret *key = s->form.fields[FIELD_KEY_TEXT].value,
                 *pass = s->form.fields[FIELD_NEW].value;
    s->err = (pf_err){0};
    if (key->len == 0) {
        s->form.focus = FIELD_KEY_TEXT;
        err_set(&s->err, PF_USAGE, "The recovery key is needed.");
    } else if (pass->len == 0) {
        s->form.focus = FIELD_NEW;
        err_set(&s->err, PF_USAGE, "A new passphrase is needed.");
    } else if (!secret_equal(pass, s->form.fields[FIELD_NEW_AGAIN].value)) {
        s->form.focus = FIELD_NEW_AGAIN;
        secret_truncate(s->form.fields[FIELD_NEW_AGAIN].value, 0);
        err_set(&s->err, PF_USAGE, "The two passphrases differ; type the second one again.");
    } else {
        start_job(s, RECOVER, s->user, pass, key, false);
    }
}

static void lost_input(view *v, const input_event *ev)
{
    signin_screen *s = screen_of(v);
    if (s->job) return; /* being looked at */
    if (form_input(&s->form, ev) || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_CHOOSE) lost_submit(s);
    if (a == ACTION_BACK) pane_pop(v->pane);
}

static void lost_draw(view *v, area a, bool focused)
{
    signin_screen *s = screen_of(v);
    a = with_margin(a);
    bool roomy = a.h > 9;
    int y = 0;
    if (a.h > 7)
        y = area_paragraph(a, 0, STYLE_TEXT,
                           "With the recovery key that you once wrote down you can set a new "
                           "passphrase; everything is still there.") +
            roomy;
    y += form_draw(&s->form, area_sub(a, 0, y, a.w, a.h - y), focused && !s->job, -1, NULL,
                   STYLE_TEXT);
    y += roomy;
    if (s->job)
        app_put_waiting(v->pane->app, a, y, STYLE_NOTICE, "one moment");
    else if (s->err.text[0])
        area_paragraph(a, y, STYLE_ERROR, s->err.text);
    else
        area_put(a, 0, y, STYLE_DIM, "Enter  next, sign in   Esc  back");
}

static void lost_title(view *v, buf *out)
{
    (void)v;
    buf_puts(out, "passphrase lost");
}

static const view_ops lost_ops = {.name = "lost",
                                  .draw = lost_draw,
                                  .input = lost_input,
                                  .title = lost_title,
                                  .free = signin_screen_free};

static view *lost_view(const char *user, int64_t resume)
{
    signin_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &lost_ops;
    s->user = xstrdup(user);
    s->resume = resume;
    form_add(&s->form, FIELD_KEY, "Recovery key");
    form_add(&s->form, FIELD_SECRET, "New passphrase");
    form_add(&s->form, FIELD_SECRET, "Again");
    return &s->base;
}

static bool made_recovery_key(store *store_, const char *name)
{
    user_list users = {0};
    bool made = false;
    if (user_list_load(store_, &users, NULL) == PF_OK)
        for (size_t i = 0; i < users.n; i++)
            made |= users.items[i].has_recovery && strcasecmp(users.items[i].name, name) == 0;
    user_list_free(&users);
    return made;
}

static void to_recovery(signin_screen *s)
{
    if (s->has_recovery)
        pane_push(s->base.pane, lost_view(s->user, s->resume));
    else
        app_say(s->base.pane->app, "No recovery key was made for %s.", s->user);
}

/* --- the passphrase --------------------------------------------------------------------------- */

static void passphrase_input(view *v, const input_event *ev)
{
    signin_screen *s = screen_of(v);
    if (s->job) return; /* being looked at */
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE) s->err = (pf_err){0};
    if (form_input(&s->form, ev) || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_RECOVER) to_recovery(s);
    if (a == ACTION_CHOOSE) start_job(s, SIGN_IN, s->user, s->form.fields[0].value, NULL, false);
    if (a != ACTION_BACK) return;
    if (v->pane->depth > 1) {
        pane_pop(v->pane);
    } else {
        pane_set_owner(v->pane, NULL, 0);
        pane_replace(v->pane, start_view(v->pane->app));
    }
}

static void passphrase_draw(view *v, area a, bool focused)
{
    signin_screen *s = screen_of(v);
    a = with_margin(a);
    int y = 0;
    if (!s->looked) {
        s->looked = true;
        s->has_recovery = made_recovery_key(v->pane->app->options.store, s->user);
    }
    buf name = {0};
    text_clean_label(s->user, strlen(s->user), &name);
    area_printf(a, 0, y, STYLE_TITLE, s->locked ? "locked · %s" : "%s", buf_str(&name));
    buf_free(&name);
    y += a.h > 5 ? 2 : 1;
    y += form_draw(&s->form, area_sub(a, 0, y, a.w, a.h - y), focused && !s->job, -1, NULL,
                   STYLE_TEXT);
    y += a.h > 5;
    if (s->job) {
        app_put_waiting(v->pane->app, a, y, STYLE_NOTICE, "one moment");
        return;
    }
    if (s->err.text[0]) y += area_paragraph(a, y, STYLE_ERROR, s->err.text) + (a.h > 7);
    buf hint = {0};
    buf_puts(&hint, s->locked ? "Enter  unlock   Esc  back" : "Enter  sign in   Esc  back");
    if (s->has_recovery && s->err.text[0])
        buf_printf(&hint, "   %s  passphrase lost", hint_key(ACTION_RECOVER));
    if (s->err.text[0])
        area_paragraph(a, y, STYLE_DIM, buf_str(&hint));
    else
        area_put(a, 0, y, STYLE_DIM, buf_str(&hint));
    buf_free(&hint);
}

static void passphrase_title(view *v, buf *out)
{
    buf_puts(out, screen_of(v)->locked ? "locked" : "sign in");
}

static const view_ops passphrase_ops = {.name = "passphrase",
                                        .draw = passphrase_draw,
                                        .input = passphrase_input,
                                        .title = passphrase_title,
                                        .free = signin_screen_free};

view *passphrase_view(const char *user, int64_t resume, bool locked)
{
    signin_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &passphrase_ops;
    s->user = xstrdup(user);
    s->resume = resume;
    s->locked = locked;
    form_add(&s->form, FIELD_SECRET, "Passphrase");
    return &s->base;
}

/* --- locked ----------------------------------------------------------------------------------- */

static void locked_input(view *v, const input_event *ev)
{
    signin_screen *s = screen_of(v);
    if (ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_CHOOSE) pane_push(v->pane, passphrase_view(s->user, s->resume, true));
    if (a != ACTION_BACK) return;
    pane_set_owner(v->pane, NULL, 0);
    pane_replace(v->pane, start_view(v->pane->app));
}

static void locked_draw(view *v, area a, bool focused)
{
    (void)focused;
    buf line = {0}, name = {0};
    const char *user = screen_of(v)->user;
    text_clean_label(user, strlen(user), &name);
    buf_printf(&line, "locked · %s", buf_str(&name));
    if (a.w >= text_width_z(buf_str(&line)) + 18) buf_puts(&line, " · Enter to unlock");
    int x = (a.w - text_width_z(buf_str(&line))) / 2;
    area_put(a, x > 0 ? x : 0, a.h / 2, STYLE_DIM, buf_str(&line));
    buf_free(&line);
    buf_free(&name);
}

static const view_ops locked_ops = {.name = "locked",
                                    .draw = locked_draw,
                                    .input = locked_input,
                                    .title = passphrase_title,
                                    .free = signin_screen_free};

view *locked_view(const char *user, int64_t resume)
{
    signin_screen *s = xcalloc(1, sizeof *s);
    s->base.ops = &locked_ops;
    s->user = xstrdup(user);
    s->resume = resume;
    s->locked = true;
    return &s->base;
}
