#include "train/live/live.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/history.h"
#include "profiles/secret.h"
#include "train/data/gather.h"
#include "train/data/lessons.h"
#include "train/dataset_bytes.h"
#include "train/eval/evaluate.h"
#include "train/job.h"
#include "train/live/live_request.h"
#include "train/live/live_store.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS       250 /* how soon a wish is noticed while nothing changes */
#define ANSWER_TOKENS 96  /* of samples */
#define RECORD_LOSSES 200 /* most points of the loss curve that a profile keeps */

struct train_live {
    engine *e;
    session *s;
    live_note note; /* the request and what a checkpoint needs */
    pthread_t thread;
    train_live *next; /* of the trainings under way, see claim */

    /* The thread's own. */
    train_dataset data; /* moved to the job when it starts */
    train_job_options options;
    buf data_bytes, start, checkpoint; /* checkpoint: the state to go on from, if resumed */
    bool resumed;                      /* one that was broken off; at its beginning: no state */
    int64_t started_ns;

    /* Shared. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd;
    live_status status;
    train_job *job;
    train_sample *samples;
    train_skipped *skipped;
    buf result, record;
    atomic_bool pause, cancel, closing;
};

/* --- what others see ------------------------------------------------------------------------- */

/* Under the lock. */
static void tell(train_live *l)
{
    const uint64_t one = 1;
    pthread_cond_broadcast(&l->changed);
    (void)!write(l->fd, &one, sizeof one); /* full: it is readable already */
}

static void set_text(char *to, size_t size, const char *text)
{
    size_t len = strlen(text);
    if (len >= size) len = utf8_complete_prefix(text, size - 1);
    memcpy(to, text, len);
    to[len] = '\0';
}

static void set_phase(train_live *l, live_phase phase, const char *doing)
{
    pthread_mutex_lock(&l->lock);
    l->status.phase = phase;
    set_text(l->status.doing, sizeof l->status.doing, doing ? doing : "");
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

static void end_with(train_live *l, live_phase phase, pf_status status, const char *message)
{
    pthread_mutex_lock(&l->lock);
    l->status.phase = phase;
    l->status.status = status;
    if (message) set_text(l->status.message, sizeof l->status.message, message);
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

void train_live_get(train_live *l, live_status *out)
{
    uint64_t count;
    pthread_mutex_lock(&l->lock);
    (void)!read(l->fd, &count, sizeof count);
    *out = l->status;
    pthread_mutex_unlock(&l->lock);
}

int train_live_fd(const train_live *l)
{
    return l->fd;
}

void train_live_wait(train_live *l, int timeout_ms)
{
    pthread_mutex_lock(&l->lock);
    if (!live_phase_over(l->status.phase)) {
        if (timeout_ms < 0)
            pthread_cond_wait(&l->changed, &l->lock);
        else
            clock_cond_wait(&l->changed, &l->lock, timeout_ms);
    }
    pthread_mutex_unlock(&l->lock);
}

size_t train_live_losses(train_live *l, size_t first, size_t n, float *out)
{
    pthread_mutex_lock(&l->lock);
    size_t got = l->job ? train_job_losses(l->job, first, n, out) : 0;
    pthread_mutex_unlock(&l->lock);
    return got;
}

static char *copy_or_null(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

void train_live_sample(train_live *l, size_t i, train_sample *out)
{
    *out = (train_sample){0};
    pthread_mutex_lock(&l->lock);
    if (i < l->status.n_samples)
        *out =
            (train_sample){copy_or_null(l->samples[i].question), copy_or_null(l->samples[i].before),
                           copy_or_null(l->samples[i].after)};
    pthread_mutex_unlock(&l->lock);
}

void train_sample_free(train_sample *s)
{
    wipe_text(s->question);
    wipe_text(s->before);
    wipe_text(s->after);
    *s = (train_sample){0};
}

void train_live_left_out(train_live *l, size_t i, train_plan_skipped *out)
{
    *out = (train_plan_skipped){0};
    pthread_mutex_lock(&l->lock);
    if (i < l->status.n_left_out)
        *out = (train_plan_skipped){xstrdup(l->skipped[i].label), xstrdup(l->skipped[i].reason)};
    pthread_mutex_unlock(&l->lock);
}

void train_plan_skipped_free(train_plan_skipped *s)
{
    wipe_text(s->label);
    wipe_text(s->reason);
    *s = (train_plan_skipped){0};
}

void train_live_pause(train_live *l, bool pause)
{
    atomic_store(&l->pause, pause);
    pthread_mutex_lock(&l->lock);
    if (l->job) train_job_pause(l->job, pause);
    pthread_mutex_unlock(&l->lock);
}

void train_live_cancel(train_live *l)
{
    atomic_store(&l->cancel, true);
    pthread_mutex_lock(&l->lock);
    if (l->job) train_job_cancel(l->job);
    pthread_mutex_unlock(&l->lock);
}

static pf_status copy_out(train_live *l, const buf *from, const char *what, buf *out, pf_err *err)
{
    pthread_mutex_lock(&l->lock);
    bool any = from->len > 0;
    if (any) buf_append(out, from->data, from->len);
    pthread_mutex_unlock(&l->lock);
    return any ? PF_OK : err_set(err, PF_FAILED, "the training has no %s", what);
}

pf_status train_live_result(train_live *l, buf *blob, pf_err *err)
{
    return copy_out(l, &l->result, "result", blob, err);
}

pf_status train_live_record(train_live *l, buf *json, pf_err *err)
{
    return copy_out(l, &l->record, "record", json, err);
}

/* --- one training a profile ------------------------------------------------------------------ */

static pthread_mutex_t claims_lock = PTHREAD_MUTEX_INITIALIZER;
static train_live *claims;

static bool same_profile(const train_live *a, const train_live *b)
{
    return a->note.request.profile && a->note.request.profile == b->note.request.profile &&
           session_user_id(a->s) == session_user_id(b->s) &&
           strcmp(store_path(session_store(a->s)), store_path(session_store(b->s))) == 0;
}

static pf_status claim(train_live *l, pf_err *err)
{
    pf_status status = PF_OK;
    pthread_mutex_lock(&claims_lock);
    for (const train_live *other = claims; other && status == PF_OK; other = other->next)
        if (same_profile(l, other))
            status = err_set(err, PF_USAGE, "this profile is being trained already");
    if (status == PF_OK) {
        l->next = claims;
        claims = l;
    }
    pthread_mutex_unlock(&claims_lock);
    return status;
}

static void unclaim(train_live *l)
{
    pthread_mutex_lock(&claims_lock);
    for (train_live **at = &claims; *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    pthread_mutex_unlock(&claims_lock);
}

/* --- preparing ------------------------------------------------------------------------------- */

static bool given_up(void *ctx)
{
    const train_live *l = ctx;
    return atomic_load(&l->cancel) || atomic_load(&l->closing);
}

/* The profile's present adapter, if the training goes on from it. */
static pf_status read_start(train_live *l, pf_err *err)
{
    live_note *n = &l->note;
    profile_info info = {0};
    if (!n->request.profile) return PF_OK;
    if (!l->resumed) {
        pf_status status = profile_get(l->s, n->request.profile, &info, err);
        if (status != PF_OK) return status;
        n->former_version = info.has_adapter ? info.current.number : 0;
        n->went_on = info.has_adapter && !n->request.fresh &&
                     strcmp(info.current.kind, train_method_name(n->request.method)) == 0;
        profile_info_free(&info);
    }
    if (!n->went_on) return PF_OK;
    return profile_read_adapter(l->s, n->request.profile, n->former_version, &l->start, err);
}

static pf_status check_resumed(const train_live *l, pf_err *err)
{
    for (size_t i = 0; i < l->note.used.n; i++) {
        conversation_info info = {0};
        pf_status status = conversation_get(l->s, l->note.used.items[i].id, &info, err);
        conversation_info_free(&info);
        if (status == PF_NOT_FOUND)
            return err_set(err, PF_REFUSED,
                           "a conversation that this training learns from was deleted; begin anew");
        if (status != PF_OK) return status;
    }
    return PF_OK;
}

/* What is made beside the given examples: facts in many words, replayed answers. */
static pf_status add_lessons(train_live *l, const lessons_seen *seen, pf_err *err)
{
    train_job_options options;
    train_added added = {0};
    set_phase(l, LIVE_PREPARING, "asking the model");
    pf_status status = lessons_add(&l->data, engine_model(l->e), l->e, l->s, &l->note.request, seen,
                                   given_up, l, &added, err);
    pthread_mutex_lock(&l->lock);
    l->status.added = l->note.added = added;
    pthread_mutex_unlock(&l->lock);
    options = live_request_options(&l->note.request, &l->data);
    if (status == PF_OK) status = train_job_check(&l->data, added.n_replayed, &options, err);
    return status;
}

static pf_status read_data(train_live *l, pf_err *err)
{
    const model *m = engine_model(l->e);
    if (l->resumed) {
        pf_status status = check_resumed(l, err);
        if (status != PF_OK) return status;
        return train_dataset_read(l->data_bytes.data, l->data_bytes.len, model_get_config(m)->vocab,
                                  &l->data, err);
    }
    lessons_seen seen = {0};
    pf_status status = live_note_take_notes(&l->note, l->s, err);
    if (status == PF_OK)
        status = gather_examples(l->s, m, &l->note.request, &l->data, &l->note.used, &seen, err);
    if (status == PF_OK) status = add_lessons(l, &seen, err);
    lessons_seen_free(&seen);
    return status;
}

/* Creates the profile together with the initial state of the training, so that after an
 * interruption either the training can be resumed or the profile does not exist. */
static pf_status make_profile(train_live *l, pf_err *err)
{
    train_request *r = &l->note.request;
    const train_job_options options = live_request_options(r, &l->data);
    int64_t profile = 0;
    l->note.made = xstrdup(r->new_profile);
    l->note.n_steps = train_job_steps(train_dataset_repeats(&l->data), &options).all;
    pf_status status = live_checkpoint_begin(l->s, &l->note, &l->data_bytes, &profile, err);
    pthread_mutex_lock(&claims_lock); /* others look whether it is trained already */
    r->profile = profile;
    pthread_mutex_unlock(&claims_lock);
    if (status != PF_OK) {
        wipe_text(l->note.made);
        l->note.made = NULL;
    }
    pthread_mutex_lock(&l->lock);
    l->status.profile = profile;
    l->status.made = status == PF_OK ? LIVE_MADE : LIVE_NOT_MADE;
    tell(l);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* What was found, for others to see. */
static void publish_data(train_live *l)
{
    train_dataset *d = &l->data;
    pthread_mutex_lock(&l->lock);
    live_status *s = &l->status;
    s->went_on = l->note.went_on;
    s->former_version = l->note.former_version;
    s->n_examples = d->n;
    s->n_learned = train_dataset_targets(d, false);
    s->n_tokens = train_dataset_tokens(d, false);
    s->n_held_out_learned = train_dataset_targets(d, true);
    s->n_cut = d->n_cut;
    s->n_left_out = d->n_skipped;
    l->skipped = d->skipped;
    d->skipped = NULL;
    d->n_skipped = 0;
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

static pf_status prepare(train_live *l, pf_err *err)
{
    const train_request *r = &l->note.request;
    pf_status status = read_start(l, err);
    if (status == PF_OK) status = read_data(l, err);
    publish_data(l);
    if (status != PF_OK || l->resumed || !(r->profile || r->new_profile)) return status;
    train_dataset_write(&l->data, &l->data_bytes);
    return r->profile ? checkpoint_remove_all(l->s, r->profile, err) : make_profile(l, err);
}

/* --- samples --------------------------------------------------------------------------------- */

/* The person's questions, or some of the examples': those kept aside first, spread over the rest.
 */
static void choose_samples(train_live *l)
{
    const train_request *r = &l->note.request;
    size_t n = 0, wanted = r->n_questions ? r->n_questions : (size_t)r->sample_questions;
    train_sample *list = xcalloc(wanted + 1, sizeof *list);
    for (size_t i = 0; i < r->n_questions; i++)
        list[n++].question = xstrdup(r->questions[i]);
    for (int held = 1; held >= 0 && n < wanted; held--) {
        size_t candidates = 0, stride, seen = 0;
        for (size_t i = 0; i < l->data.n; i++)
            candidates += l->data.items[i].held_out == held;
        stride = candidates > wanted - n ? candidates / (wanted - n) : 1;
        for (size_t i = 0; i < l->data.n && n < wanted; i++) {
            const train_example *e = &l->data.items[i];
            if (e->held_out != held || seen++ % stride || !e->question || !*e->question) continue;
            list[n++].question = xstrdup(e->question);
        }
    }
    pthread_mutex_lock(&l->lock);
    l->samples = list;
    l->status.n_samples = n;
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

static void keep_answers(train_live *l, eval_talk *talks, bool after)
{
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->status.n_samples; i++) {
        const eval_talk *t = &talks[i];
        buf clean = {0};
        if (t->n_answers) utf8_repair(buf_str(&t->answers[0].text), t->answers[0].text.len, &clean);
        char *text = buf_take(&clean);
        *(after ? &l->samples[i].after : &l->samples[i].before) = text;
    }
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

/* Asks all questions under a blob (empty: the base model). */
static pf_status ask(train_live *l, const buf *blob, bool after, pf_err *err)
{
    size_t n = l->status.n_samples;
    adapter_id adapter = 0;
    static const adapter_source pinned;
    const eval_settings settings = {.max_tokens = ANSWER_TOKENS,
                                    .user = l->s ? session_engine_user(l->s) : 0,
                                    .cancelled = given_up,
                                    .ctx = l};
    pf_status status = PF_OK;
    if (n == 0) return PF_OK;
    if (blob->len)
        status = engine_adapter_add(l->e, blob->data, blob->len, &pinned, &adapter, NULL, err);
    if (status != PF_OK) return status;
    eval_talk *talks = xcalloc(n, sizeof *talks);
    for (size_t i = 0; i < n; i++) {
        const char *question = l->samples[i].question;
        eval_talk_add(&talks[i], ROLE_USER, question, strlen(question));
        talks[i].adapter = adapter;
    }
    status = evaluate_answers(l->e, talks, n, &settings, err);
    if (status == PF_OK) keep_answers(l, talks, after);
    for (size_t i = 0; i < n; i++)
        eval_talk_free(&talks[i]);
    free(talks);
    if (adapter) (void)engine_adapter_drop(l->e, adapter, NULL);
    return status;
}

static pf_status ask_before(train_live *l, pf_err *err)
{
    choose_samples(l);
    if (l->status.n_samples == 0) return PF_OK;
    set_phase(l, LIVE_PREPARING, "asking the questions");
    pf_status status = ask(l, &l->start, false, err);
    return status == PF_BUSY ? PF_OK : status; /* no room for the adapter: they are only for show */
}

/* --- training -------------------------------------------------------------------------------- */

/* A checkpoint that can't be saved is told and tried again at the next one; but nothing goes on for
 * somebody who has signed out (PF_DENIED), or for a profile that was deleted (PF_NOT_FOUND). */
static pf_status save_checkpoint(train_live *l, pf_err *err)
{
    buf state = {0};
    int64_t step = 0;
    if (!l->note.request.profile || !train_job_take_checkpoint(l->job, &state, &step)) return PF_OK;
    l->note.step = step;
    const bool next = l->status.checkpoint_step > 0 || l->note.made;
    pf_status status = live_checkpoint_save(l->s, l->note.request.profile, &l->note, &l->data_bytes,
                                            &state, next, err);
    wipe_buf(&state);
    train_job_checkpoint_saved(l->job,
                               step); /* a failed one too: it is told, and the job goes on */
    pthread_mutex_lock(&l->lock);
    if (status == PF_OK) l->status.checkpoint_step = step;
    set_text(l->status.checkpoint_problem, sizeof l->status.checkpoint_problem,
             status == PF_OK ? "" : err->text);
    pthread_mutex_unlock(&l->lock);
    if (status == PF_NOT_FOUND) err_context(err, "what is learned can't be saved any more");
    return status == PF_DENIED || status == PF_NOT_FOUND ? status : PF_OK;
}

static void take_progress(train_live *l, const train_progress *p)
{
    pthread_mutex_lock(&l->lock);
    live_status *s = &l->status;
    if (p->state == TRAIN_RUNNING || p->state == TRAIN_PAUSED)
        s->phase = p->state == TRAIN_PAUSED ? LIVE_PAUSED : LIVE_TRAINING;
    s->doing[0] = '\0';
    s->step = p->step;
    s->n_steps = p->n_steps;
    s->share_done = p->share_done;
    s->tokens_per_second = p->tokens_per_second;
    s->wall_tokens_per_second = p->wall_tokens_per_second;
    s->seconds_left = p->seconds_left;
    s->loss = p->loss;
    s->grad_norm = p->grad_norm;
    s->rate = p->rate;
    s->loss_before = p->train_before;
    s->loss_after = p->train_after;
    s->loss_served = p->train_served;
    s->held_out_before = p->held_out_before;
    s->held_out_now = p->held_out_now;
    s->held_out_served = p->held_out_served;
    s->tokens_done = p->tokens_done;
    s->n_losses = p->n_losses;
    tell(l);
    pthread_mutex_unlock(&l->lock);
}

static pf_status start_job(train_live *l, pf_err *err)
{
    train_job_options options = live_request_options(&l->note.request, &l->data);
    train_job *job = NULL;
    l->options = options;
    if (!l->note.request.profile) options.checkpoint_steps = 0;
    pf_status status =
        train_job_start(l->e, &l->data, &options, l->start.len ? l->start.data : NULL, l->start.len,
                        l->checkpoint.data, l->checkpoint.len, &job, err);
    if (status != PF_OK) return status;
    train_progress p;
    train_job_get(job, &p);
    l->note.n_steps = p.n_steps;
    pthread_mutex_lock(&l->lock);
    l->job = job;
    if (atomic_load(&l->pause)) train_job_pause(job, true);
    pthread_mutex_unlock(&l->lock);
    return PF_OK;
}

/* Until the job has ended. */
static pf_status watch_job(train_live *l, train_progress *p, pf_err *err)
{
    pf_status status = PF_OK;
    do {
        train_job_wait(l->job, WAIT_MS);
        train_job_get(l->job, p);
        take_progress(l, p);
        if (status == PF_OK) status = save_checkpoint(l, err);
        if (atomic_load(&l->cancel) || status != PF_OK)
            train_job_cancel(l->job);
        else if (atomic_load(&l->closing))
            train_job_suspend(l->job);
    } while (p->state == TRAIN_RUNNING || p->state == TRAIN_PAUSED);
    return status;
}

/* --- the result ------------------------------------------------------------------------------ */

static void put_real(json_t *object, const char *name, double x)
{
    json_object_set_new(object, name, isfinite(x) ? json_real(x) : json_null());
}

/* The loss curve, thinned: means of runs of steps. */
static json_t *write_losses(train_live *l, size_t n)
{
    json_t *array = json_array();
    float *all = xcalloc(n + 1, sizeof *all);
    n = train_job_losses(l->job, 0, n, all);
    size_t run = n > RECORD_LOSSES ? (n + RECORD_LOSSES - 1) / RECORD_LOSSES : 1;
    for (size_t i = 0; i < n; i += run) {
        double sum = 0;
        size_t count = 0;
        for (; count < run && i + count < n; count++)
            sum += (double)all[i + count];
        json_array_append_new(array, json_real(round(sum / (double)count * 1e4) / 1e4));
    }
    free(all);
    return array;
}

/* The record that a profile keeps of its training. */
static void write_record(train_live *l, const train_progress *p)
{
    const train_request *r = &l->note.request;
    const train_job_options o = l->options;
    json_t *record = json_pack(
        "{s:s, s:i, s:i, s:i, s:I, s:I, s:f, s:I, s:I, s:b, s:I, s:f, s:s}", "method",
        train_method_name(r->method), "rank", o.shape.rank, "epochs", o.epochs, "batch", o.batch,
        "steps", (json_int_t)p->step, "seed", (json_int_t)r->seed, "rate", o.optimizer.rate,
        "examples", (json_int_t)l->status.n_examples, "tokens", (json_int_t)p->tokens_done,
        "went_on", (int)l->note.went_on, "started_ms", (json_int_t)l->note.started_ms, "seconds",
        (double)(clock_monotonic_ns() - l->started_ns) * 1e-9, "ended",
        p->state == TRAIN_DONE ? "done" : "stopped");
    put_real(record, "loss_before", p->train_before);
    put_real(record, "loss", p->train_after);
    put_real(record, "loss_served", p->train_served);
    put_real(record, "held_out_before", p->held_out_before);
    put_real(record, "held_out", p->held_out_now);
    put_real(record, "held_out_served", p->held_out_served);
    json_object_set_new(record, "losses", write_losses(l, p->n_losses));
    pthread_mutex_lock(&l->lock);
    json_append(&l->record, record);
    pthread_mutex_unlock(&l->lock);
    json_decref(record);
}

static void write_provenance(const train_live *l, buf *out)
{
    static const char *const from[] = {
        [LEARN_ALL] = "all", [LEARN_GOOD] = "good", [LEARN_REWRITES] = "rewrites"};
    const train_request *r = &l->note.request;
    json_t *request = live_request_write(r), *used = json_array();
    for (size_t i = 0; i < l->note.used.n; i++)
        json_array_append_new(used, json_integer(l->note.used.items[i].id));
    json_t *object = json_pack("{s:s, s:O, s:o}", "source",
                               r->distill   ? "text"
                               : r->n_files ? "files"
                                            : from[r->from],
                               "files", json_object_get(request, "files"), "conversations", used);
    live_added_write(&l->note.added, object);
    json_append(out, object);
    json_decref(object);
    json_decref(request);
}

static void forget_checkpoints(train_live *l)
{
    if (l->note.request.profile) (void)checkpoint_remove_all(l->s, l->note.request.profile, NULL);
}

static pf_status save_version(train_live *l, pf_err *err)
{
    buf provenance = {0};
    int64_t version = 0;
    write_provenance(l, &provenance);
    const profile_version_record record = {.base_name = model_name(engine_model(l->e)),
                                           .training = buf_str(&l->record),
                                           .provenance = buf_str(&provenance)};
    pf_status status = profile_add_version(l->s, l->note.request.profile, l->result.data,
                                           l->result.len, &record, &version, err);
    /* A checkpoint that is left is recognised by the version's record, so it is never resumed. */
    if (status == PF_OK) forget_checkpoints(l);
    wipe_buf(&provenance);
    pthread_mutex_lock(&l->lock);
    l->status.version = version;
    tell(l);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Adds to the error how to resume, if the training has a checkpoint. */
static void add_resume_hint(const train_live *l, pf_err *err)
{
    if (l->status.checkpoint_step > 0)
        err_set(err, err->status, "%s. It can be resumed from step %lld", err->text,
                (long long)l->status.checkpoint_step);
}

static pf_status take_result(train_live *l, const train_progress *p, pf_err *err)
{
    buf blob = {0};
    set_phase(l, LIVE_SAVING, NULL);
    pf_status status = train_job_result(l->job, &blob, err);
    if (status != PF_OK) return status;
    write_record(l, p);
    pthread_mutex_lock(&l->lock);
    l->result = blob;
    pthread_mutex_unlock(&l->lock);
    if (l->note.request.profile) status = save_version(l, err);
    if (status != PF_OK && status != PF_NOT_FOUND) add_resume_hint(l, err);
    if (status != PF_OK) return status;
    set_phase(l, LIVE_ASKING, NULL);
    (void)ask(l, &blob, true, NULL); /* the version is saved; samples are for looking at */
    end_with(l, p->state == TRAIN_DONE ? LIVE_DONE : LIVE_STOPPED, PF_OK, p->message);
    return PF_OK;
}

/* --- the thread ------------------------------------------------------------------------------ */

static double last_rate; /* tokens per second of the last training; under claims_lock */

/* Of a job that failed. What it had learned by its last checkpoint stays, unless that is to blame.
 */
static pf_status give_up(train_live *l, const train_progress *p, pf_err *err)
{
    err_set(err, PF_FAILED, "%s", p->message);
    if (p->resumable)
        add_resume_hint(l, err);
    else
        forget_checkpoints(l);
    return PF_FAILED;
}

/* The profile that the training made goes with it when nothing came of it and nothing can be gone
 * on with. One that can't be removed (signed out, say) stays unused. */
static void drop_made_profile(train_live *l)
{
    profile_usage use = PROFILE_USED;
    if (!l->note.made || l->status.version) return;
    if (profile_remove_unused(l->s, l->note.request.profile, l->note.made, &use, NULL) != PF_OK)
        return;
    pthread_mutex_lock(&l->lock);
    l->status.made = use == PROFILE_UNUSED ? LIVE_MADE_GONE
                     : use == PROFILE_USED ? LIVE_MADE_USED
                                           : LIVE_MADE;
    pthread_mutex_unlock(&l->lock);
}

static pf_status work(train_live *l, pf_err *err)
{
    pf_status status = prepare(l, err);
    if (status == PF_OK) status = ask_before(l, err);
    if (status == PF_OK && given_up(l)) status = err_set(err, PF_INTERRUPTED, "cancelled");
    if (status == PF_OK) status = start_job(l, err);
    if (status != PF_OK) return status;
    train_progress p;
    status = watch_job(l, &p, err);
    if (status != PF_OK) return status;
    pthread_mutex_lock(&claims_lock);
    if (p.tokens_per_second > 0) last_rate = p.tokens_per_second;
    pthread_mutex_unlock(&claims_lock);
    switch (p.state) {
    case TRAIN_DONE:
    case TRAIN_STOPPED:
        return take_result(l, &p, err);
    case TRAIN_FAILED:
        return give_up(l, &p, err);
    default:
        return err_set(err, PF_INTERRUPTED, "cancelled");
    }
}

static void *run(void *arg)
{
    train_live *l = arg;
    pf_err err = {0};
    l->started_ns = clock_monotonic_ns();
    pf_status status = work(l, &err);
    if (status == PF_INTERRUPTED) {
        if (atomic_load(&l->cancel)) forget_checkpoints(l);
        drop_made_profile(l);
        end_with(l, LIVE_CANCELLED, PF_INTERRUPTED, NULL);
    } else if (status != PF_OK) {
        if (!l->resumed && l->status.checkpoint_step == 0)
            forget_checkpoints(l); /* what it began with */
        drop_made_profile(l);
        end_with(l, LIVE_FAILED, status, err.text);
    }
    unclaim(l);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static void free_live(train_live *l)
{
    train_job_free(l->job);
    train_dataset_free(&l->data);
    for (size_t i = 0; l->samples && i < l->status.n_samples; i++)
        train_sample_free(&l->samples[i]);
    for (size_t i = 0; i < l->status.n_left_out; i++) {
        wipe_text(l->skipped[i].label);
        wipe_text(l->skipped[i].reason);
    }
    free(l->samples);
    free(l->skipped);
    wipe_buf(&l->data_bytes);
    wipe_buf(&l->start);
    wipe_buf(&l->checkpoint);
    wipe_buf(&l->result);
    wipe_buf(&l->record);
    live_note_free(&l->note);
    session_unref(l->s);
    if (l->fd >= 0) close(l->fd);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static train_live *make_live(session *s, engine *e)
{
    train_live *l = xcalloc(1, sizeof *l);
    l->e = e;
    if (s) l->s = session_ref(s);
    l->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    live_status *p = &l->status;
    p->loss = p->grad_norm = p->seconds_left = p->rate = NAN;
    p->loss_before = p->loss_after = p->loss_served = NAN;
    p->held_out_before = p->held_out_now = p->held_out_served = NAN;
    p->tokens_per_second = p->wall_tokens_per_second = NAN;
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->changed);
    return l;
}

/* Starts the thread; l is freed on failure. */
static pf_status begin(train_live *l, train_live **out, pf_err *err)
{
    pf_status status = PF_OK;
    set_text(l->status.doing, sizeof l->status.doing, "reading the examples");
    l->status.profile = l->note.request.profile;
    if (l->fd < 0) status = err_set(err, PF_FAILED, "no more file descriptors are available");
    if (status == PF_OK) status = claim(l, err);
    if (status == PF_OK && pthread_create(&l->thread, NULL, run, l) != 0) {
        unclaim(l);
        status = err_set(err, PF_FAILED, "no more threads are available");
    }
    if (status == PF_OK)
        *out = l;
    else
        free_live(l);
    return status;
}

static void set_base(train_live *l)
{
    const unsigned char *digest = model_digest(engine_model(l->e));
    for (int i = 0; i < 32; i++)
        snprintf(l->note.base + 2 * i, 3, "%02x", digest[i]);
}

pf_status train_live_start(session *s, engine *e, const train_request *r, train_live **out,
                           pf_err *err)
{
    if (!s && (r->profile || r->new_profile || (r->n_files == 0 && !r->distill)))
        return err_set(err, PF_USAGE, "a training without a user needs files and has no profile");
    train_live *l = make_live(s, e);
    live_request_copy(r, false, &l->note.request);
    l->note.started_ms = clock_unix_ms();
    set_base(l);
    return begin(l, out, err);
}

pf_status train_live_resume(session *s, engine *e, int64_t profile, const train_request *expected,
                            train_live **out, pf_err *err)
{
    train_live *l = make_live(s, e);
    char base[sizeof l->note.base];
    set_base(l);
    memcpy(base, l->note.base, sizeof base);
    pf_status status = live_checkpoint_load(s, profile, &l->note, &l->data_bytes, &l->checkpoint,
                                            NULL, &l->status.lost_step, err);
    if (status == PF_OK && strcmp(base, l->note.base) != 0)
        status = err_set(err, PF_REFUSED, "the training was begun with another base model");
    if (status == PF_OK && expected && !train_request_equal(expected, &l->note.request))
        status = err_set(err, PF_REFUSED,
                         "the checkpoint belongs to a training with other data or options; give "
                         "the same ones or none, or begin anew");
    if (status != PF_OK) {
        free_live(l);
        return status;
    }
    l->resumed = true;
    l->status.resumed_step = l->status.checkpoint_step = l->note.step;
    if (l->note.made) l->status.made = LIVE_MADE;
    return begin(l, out, err);
}

void train_live_close(train_live *l)
{
    if (!l) return;
    atomic_store(&l->closing, true);
    pthread_mutex_lock(&l->lock);
    if (l->job) train_job_suspend(l->job);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    free_live(l);
}

/* --- afterwards ------------------------------------------------------------------------------ */

pf_status train_live_go_back(train_live *l, pf_err *err)
{
    live_status now;
    train_live_get(l, &now);
    if (now.version == 0)
        return err_set(err, PF_USAGE, "the training saved no version that one could go back from");
    return profile_use_version(l->s, now.profile, now.former_version, err);
}

double live_last_rate(void)
{
    pthread_mutex_lock(&claims_lock);
    double rate = last_rate;
    pthread_mutex_unlock(&claims_lock);
    return rate;
}
