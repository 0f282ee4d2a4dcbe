#include "ui/training.h"

#include "base/mem.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct training {
    train_live *live;
    live_status status; /* as it was last asked for */
    char *name;         /* clean */
    bool told;          /* its end was told */
    bool went_back;
};

/* --- asking ----------------------------------------------------------------------------------- */

train_live *training_live(const pane *p)
{
    return p->training ? p->training->live : NULL;
}

const live_status *training_status(const pane *p)
{
    return p->training ? &p->training->status : NULL;
}

bool training_runs(const pane *p)
{
    return p->training && !live_phase_over(p->training->status.phase);
}

const char *training_name(const pane *p)
{
    return p->training && p->training->name ? p->training->name : "the profile";
}

bool training_went_back(const pane *p)
{
    return p->training && p->training->went_back;
}

bool training_any(const app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        if (a->panes[i] && training_runs(a->panes[i])) return true;
    return false;
}

/* --- starting and ending ---------------------------------------------------------------------- */

/* new_profile: the name of one that the training is to make, where there is none yet. */
static char *clean_name(session *s, int64_t profile, const char *new_profile)
{
    profile_info info = {0};
    buf clean = {0};
    const char *name = new_profile;
    if (profile && profile_get(s, profile, &info, NULL) == PF_OK) name = info.name;
    if (name) text_clean_label(name, strlen(name), &clean);
    profile_info_free(&info);
    return clean.len ? buf_take(&clean) : NULL;
}

static void take_up(pane *p, train_live *live, int64_t profile, const char *new_profile)
{
    training_end(p);
    p->training = xcalloc(1, sizeof *p->training);
    p->training->live = live;
    p->training->name = clean_name(p->session, profile, new_profile);
    train_live_get(live, &p->training->status);
    p->app->dirty = true;
}

static pf_status refuse_second(const pane *p, pf_err *err)
{
    if (!training_runs(p)) return PF_OK;
    return err_set(err, PF_USAGE, "%s is being trained; wait for its end or cancel it.",
                   training_name(p));
}

pf_status training_start(pane *p, const train_request *r, pf_err *err)
{
    train_live *live = NULL;
    pf_status status = refuse_second(p, err);
    if (status == PF_OK)
        status = train_live_start(p->session, p->app->options.engine, r, &live, err);
    if (status == PF_OK) take_up(p, live, r->profile, r->new_profile);
    return status;
}

pf_status training_resume(pane *p, int64_t profile, pf_err *err)
{
    train_live *live = NULL;
    pf_status status = refuse_second(p, err);
    if (status == PF_OK)
        status = train_live_resume(p->session, p->app->options.engine, profile, NULL, &live, err);
    if (status == PF_OK) take_up(p, live, profile, NULL);
    return status;
}

void training_end(pane *p)
{
    if (!p->training) return;
    store_hurry(p->app->options.store, true); /* its thread's last save is waited for */
    train_live_close(p->training->live);
    store_hurry(p->app->options.store, false);
    wipe_text(p->training->name);
    explicit_bzero(p->training, sizeof *p->training);
    free(p->training);
    p->training = NULL;
}

/* --- news ------------------------------------------------------------------------------------- */

static void add_loss(buf *out, double before, double after)
{
    if (isfinite(before) && isfinite(after))
        buf_printf(out, ": loss %.2f, %.2f before", after, before);
}

static void tell_end(pane *p)
{
    struct training *t = p->training;
    const live_status *s = &t->status;
    buf text = {0};
    t->told = true;
    if (s->version) profile_changed_everywhere(p, s->profile);
    if (s->made == LIVE_MADE_GONE) profile_removed_everywhere(p, s->profile);
    if (s->phase == LIVE_DONE || s->phase == LIVE_STOPPED) {
        buf_printf(&text, "%s is now version %lld", training_name(p), (long long)s->version);
        if (isfinite(s->held_out_served))
            add_loss(&text, s->held_out_before, s->held_out_served);
        else
            add_loss(&text, s->loss_before, s->loss_served);
        buf_puts(&text, ". /train shows what changed, and goes back if you don't like it.");
    } else if (s->phase == LIVE_FAILED) {
        buf_printf(&text, "%s was not trained: %s", training_name(p), s->message);
    }
    const char *made = live_made_words(s->made);
    if (made) buf_printf(&text, "%s%s", text.len ? " " : "", made);
    if (s->phase == LIVE_STOPPED) buf_printf(&text, " It ended early: %s", s->message);
    if (text.len) chat_view_notice(p->views[0], s->phase == LIVE_FAILED, buf_str(&text));
    wipe_buf(&text);
}

void training_tick(app *a)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        pane *p = a->panes[i];
        if (!p || !p->training || p->training->told) continue;
        train_live_get(p->training->live, &p->training->status);
        a->dirty = true;
        if (live_phase_over(p->training->status.phase)) tell_end(p);
    }
}

pf_status training_go_back(pane *p, pf_err *err)
{
    pf_status status = train_live_go_back(p->training->live, err);
    if (status != PF_OK) return status;
    p->training->went_back = true;
    profile_changed_everywhere(p, p->training->status.profile);
    return PF_OK;
}

void training_offer(view *chat)
{
    live_unfinished_list list = {0};
    if (train_live_unfinished(chat->pane->session, &list, NULL) != PF_OK) return;
    for (size_t i = 0; i < list.n; i++) {
        const live_unfinished *u = &list.items[i];
        buf text = {0};
        buf_puts(&text, "The training of ");
        text_clean_label(u->name, strlen(u->name), &text);
        buf_printf(&text,
                   " was broken off at step %lld of %lld. Choose the profile and type /train to go "
                   "on with it.",
                   (long long)u->step, (long long)u->n_steps);
        chat_view_notice(chat, false, buf_str(&text));
        wipe_buf(&text);
    }
    live_unfinished_list_free(&list);
}

static bool is_unfinished(session *s, int64_t profile)
{
    live_unfinished_list list = {0};
    bool found = false;
    if (train_live_unfinished(s, &list, NULL) != PF_OK) return false;
    for (size_t i = 0; i < list.n; i++)
        found |= list.items[i].profile == profile;
    live_unfinished_list_free(&list);
    return found;
}

void training_open(pane *p, int64_t profile)
{
    if (p->training)
        pane_push(p, train_view(p, 0));
    else if (profile && is_unfinished(p->session, profile))
        pane_push(p, train_view(p, profile));
    else
        pane_push(p, train_setup_view(p, profile));
}

/* --- what was chosen for a new profile ------------------------------------------------------ */

static void choice_key(int64_t profile, char out[40])
{
    snprintf(out, 40, "train %lld", (long long)profile);
}

void training_choice_save(session *s, int64_t profile, train_method method, int rank)
{
    char key[40];
    buf value = {0};
    choice_key(profile, key);
    buf_printf(&value, "%s %d", train_method_name(method), rank);
    settings_set(s, key, value.data, value.len, NULL);
    buf_free(&value);
}

bool training_choice_load(session *s, int64_t profile, train_method *method, int *rank)
{
    char key[40], name[16];
    buf value = {0};
    choice_key(profile, key);
    bool found = settings_get(s, key, &value, NULL) == PF_OK &&
                 sscanf(buf_str(&value), "%15s %d", name, rank) == 2 &&
                 train_method_parse(name, method);
    buf_free(&value);
    return found;
}

/* --- words ------------------------------------------------------------------------------------ */

const char *training_kind_words(train_method method)
{
    static const char *const words[] = {
        [TRAIN_LORAP] = "changes how questions are read; the usual choice, answers stay fast",
        [TRAIN_DIREFTP] = "the same with far fewer numbers; learns a manner, loads at once",
        [TRAIN_LORA] = "acts on every word of an answer too: slower, for comparison",
        [TRAIN_DIREFT] = "few numbers, acts on every word of an answer too: for comparison"};
    return words[method];
}

static bool is_direft(train_method method)
{
    return method == TRAIN_DIREFTP || method == TRAIN_DIREFT;
}

int training_usual_rank(train_method method)
{
    return is_direft(method) ? 64 : 8;
}

int training_step_rank(int rank, int by)
{
    int next = by > 0 ? rank * 2 : rank / 2;
    return next < 1 ? 1 : next > 256 ? 256 : next;
}

const char *training_rank_words(train_method method, int rank)
{
    int usual = training_usual_rank(method);
    return rank * 2 <= usual   ? "little room: a tone, a greeting"
           : rank <= usual * 2 ? "right for most: a style, some facts"
           : rank <= usual * 8 ? "much room: needs more examples"
                               : "very much room: needs hundreds of examples";
}
