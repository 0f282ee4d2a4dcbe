#include "train/eval/evaluate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/background.h"
#include "train/pass.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ACTIVATION_BYTES (64u << 20) /* losses keep nothing; at least a block is kept anyway */
#define WAIT_MS          200         /* how soon a cancellation is noticed */
#define Z95              1.959963985

/* --- talks ---------------------------------------------------------------------------------- */

void eval_talk_add(eval_talk *t, chat_role role, const char *text, size_t len)
{
    t->messages = xrealloc_array(t->messages, t->n_messages + 1, sizeof *t->messages);
    t->messages[t->n_messages++] = (chat_message){.role = role, .text = text, .len = len};
}

void eval_talk_free(eval_talk *t)
{
    for (size_t i = 0; i < t->n_answers; i++) {
        buf_free(&t->answers[i].text);
        id_list_free(&t->answers[i].ids);
        id_list_free(&t->answers[i].prompt_ids);
    }
    free(t->answers);
    free(t->messages);
    *t = (eval_talk){0};
}

/* --- answering ------------------------------------------------------------------------------ */

typedef struct {
    engine *e;
    engine_client *client;
    const eval_settings *settings;
    size_t n_open;
} run;

/* A request that the talk waits for. */
static void submit(run *r, eval_talk *t)
{
    request_id id = 0;
    engine_request request = {.messages = t->messages,
                              .n_messages = t->n_messages,
                              .adapter = t->adapter,
                              .max_tokens = r->settings->max_tokens,
                              .n_stops = r->settings->n_stops,
                              .user = r->settings->user,
                              .want_prompt = true,
                              .tag = t};
    if (t->adapter) request.positions = r->settings->positions;
    memcpy(request.stops, r->settings->stops, sizeof request.stops);
    if (engine_submit(r->client, &request, &id, &t->error) != PF_OK) return;
    t->answers = xrealloc_array(t->answers, t->n_answers + 1, sizeof *t->answers);
    t->answers[t->n_answers++] = (eval_answer){0};
    r->n_open++;
}

static size_t count_content(const engine *e, const id_list *ids)
{
    const model_config *config = model_get_config(engine_model(e));
    for (int i = 0; ids->len > 0 && i < config->n_stop_ids; i++)
        if (ids->ids[ids->len - 1] == config->stop_ids[i]) return ids->len - 1;
    return ids->len;
}

/* Puts the next user text behind the answer. An answer that a stop string cut short is kept as its
 * text, since its ids reach beyond that. */
static void next_turn(run *r, eval_talk *t)
{
    const json_t *text = json_array_get(t->turns, t->n_answers);
    if (!text) return;
    /* The array of answers is about to move, but not the texts and ids in it. */
    const eval_answer *a = &t->answers[t->n_answers - 1];
    bool cut = a->reason == FINISH_STOP && a->n_content == a->ids.len;
    eval_talk_add(t, ROLE_ASSISTANT, buf_str(&a->text), a->text.len);
    if (!cut) {
        t->messages[t->n_messages - 1].ids = a->ids.ids;
        t->messages[t->n_messages - 1].n_ids = a->n_content;
    }
    eval_talk_add(t, ROLE_USER, json_string_value(text), json_string_length(text));
    submit(r, t);
}

static void take_event(run *r, const engine_event *ev)
{
    eval_talk *t = ev->tag;
    eval_answer *a = &t->answers[t->n_answers - 1];
    switch (ev->kind) {
    case ENGINE_EVENT_WAITING:
        break;
    case ENGINE_EVENT_STARTED:
        id_list_append_all(&a->prompt_ids, ev->prompt_ids, (size_t)ev->n_prompt);
        break;
    case ENGINE_EVENT_TOKEN:
        id_list_append(&a->ids, ev->token);
        buf_append(&a->text, ev->text, ev->text_len);
        break;
    case ENGINE_EVENT_FINISHED:
        r->n_open--;
        buf_append(&a->text, ev->text, ev->text_len);
        a->reason = ev->reason;
        a->n_content = count_content(r->e, &a->ids);
        if (ev->reason != FINISH_CANCELLED) next_turn(r, t);
        break;
    case ENGINE_EVENT_FAILED:
        r->n_open--;
        t->n_answers--;
        buf_free(&a->text);
        id_list_free(&a->ids);
        id_list_free(&a->prompt_ids);
        err_set(&t->error, ev->status, "%s", ev->text);
        break;
    }
}

pf_status evaluate_answers(engine *e, eval_talk *talks, size_t n, const eval_settings *settings,
                           pf_err *err)
{
    run r = {.e = e, .settings = settings, .client = engine_client_open(e)};
    pf_status status = PF_OK;
    engine_event ev;
    if (!r.client) return err_set(err, PF_FAILED, "no more file descriptors are available");
    for (size_t i = 0; i < n; i++)
        submit(&r, &talks[i]);
    while (r.n_open > 0 && status == PF_OK) {
        if (settings->cancelled && settings->cancelled(settings->ctx))
            status = err_set(err, PF_INTERRUPTED, "%s", "");
        else if (engine_client_next(r.client, &ev)) {
            take_event(&r, &ev);
            engine_event_free(&ev);
        } else
            engine_client_wait(r.client, WAIT_MS);
    }
    engine_client_close(r.client);
    return status;
}

/* --- losses --------------------------------------------------------------------------------- */

/* A forward pass over all examples, in slices on the engine's thread. */
typedef struct {
    const train_dataset *data;
    const void *blob;
    size_t len;
    const model_config *config;
    size_t max_rows;
    /* The engine thread's own. */
    bool opened, running;
    train_params params;
    train_pass *pass;
    train_sequence *sequences; /* [data->n] */
    size_t first, at;          /* examples of the pass that runs: [first, at) */
    eval_loss *each;           /* [data->n] sums until the end */
    float **states;            /* [data->n] to be filled; NULL: not asked for */
    float *kept;               /* states of the pass that runs */
    /* Shared. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, ended;
    pf_err error;
} measurement;

static pf_status open_measurement(measurement *m, const packed_model *weights)
{
    const train_pass_options options = {.max_rows = m->max_rows,
                                        .activation_bytes = ACTIVATION_BYTES};
    adapter_view view = {0};
    pf_status status = PF_OK;
    if (m->blob) {
        status = adapter_view_open(m->blob, m->len, m->config, &view, &m->error);
        if (status == PF_OK)
            status = train_params_load(weights->be, m->config, &view, &m->params, &m->error);
        adapter_view_close(&view);
    }
    if (status == PF_OK) status = train_pass_open(weights, &options, &m->pass, &m->error);
    if (status == PF_OK) train_pass_as_served(m->pass, true);
    m->opened = status == PF_OK;
    return status;
}

/* Starts a pass over the next examples that fit; false at the end or when it can't. */
static bool begin_pass(measurement *m)
{
    row_count count = {0};
    for (m->first = m->at; m->at < m->data->n; m->at++) {
        m->sequences[m->at - m->first] = train_example_sequence(&m->data->items[m->at]);
        if (!row_count_add(&count, m->sequences, m->at - m->first, m->max_rows)) break;
    }
    if (m->at == m->first) return false;
    m->running = train_pass_begin(m->pass, m->blob ? &m->params : NULL, m->sequences,
                                  m->at - m->first, false, 1, NULL, NULL, &m->error) == PF_OK;
    if (m->running && m->states) {
        m->kept = xcalloc(count.rows * (size_t)m->config->hidden, sizeof *m->kept);
        train_pass_keep_states(m->pass, m->kept);
    }
    return m->running;
}

static void take_states(measurement *m)
{
    const float *from = m->kept;
    for (size_t i = m->first; i < m->at; i++) {
        size_t n = (size_t)m->data->items[i].n_targets * (size_t)m->config->hidden;
        m->states[i] = xcalloc(n + 1, sizeof **m->states);
        memcpy(m->states[i], from, n * sizeof **m->states);
        from += n;
    }
    free(m->kept);
    m->kept = NULL;
}

static void end_pass(measurement *m)
{
    size_t n = 0, target = 0;
    const float *logp = train_pass_logp(m->pass, &n);
    for (size_t i = m->first; i < m->at; i++) {
        eval_loss *l = &m->each[i];
        l->n_targets = (size_t)m->data->items[i].n_targets;
        for (size_t k = 0; k < l->n_targets && target < n; k++)
            l->loss -= (double)logp[target++];
    }
    if (m->states) take_states(m);
    m->running = false;
}

static background_state slice(void *ctx, const packed_model *weights, int64_t budget_ns)
{
    measurement *m = ctx;
    int64_t begin = clock_monotonic_ns();
    if (!m->opened && open_measurement(m, weights) != PF_OK) return BACKGROUND_DONE;
    while (clock_monotonic_ns() - begin < budget_ns) {
        if (!m->running && !begin_pass(m)) {
            m->done = m->error.status == PF_OK;
            return BACKGROUND_DONE;
        }
        if (train_pass_advance(m->pass)) continue;
        if (train_pass_check(m->pass, &m->error) != PF_OK) return BACKGROUND_DONE;
        end_pass(m);
    }
    return BACKGROUND_MORE;
}

static void ended(void *ctx)
{
    measurement *m = ctx;
    train_pass_close(m->pass);
    train_params_free(&m->params);
    free(m->kept);
    m->kept = NULL;
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* Until it has ended; false when cancelled. */
static bool wait_ended(measurement *m, bool (*cancelled)(void *ctx), void *ctx)
{
    bool over = false;
    while (!over && !(cancelled && cancelled(ctx))) {
        pthread_mutex_lock(&m->lock);
        if (!m->ended) clock_cond_wait(&m->changed, &m->lock, WAIT_MS);
        over = m->ended;
        pthread_mutex_unlock(&m->lock);
    }
    return over;
}

static void finish_losses(measurement *m, eval_loss *total, eval_loss *each)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < m->data->n; i++) {
        eval_loss *l = &m->each[i];
        sum += l->loss;
        n += l->n_targets;
        l->loss = l->n_targets ? l->loss / (double)l->n_targets : NAN;
        if (each) each[i] = *l;
    }
    *total = (eval_loss){n ? sum / (double)n : NAN, n};
}

/* Runs m, which has its data, blob and states, to the end. */
static pf_status measure(measurement *m, engine *e, bool (*cancelled)(void *ctx), void *ctx,
                         pf_err *err)
{
    const train_dataset *d = m->data;
    pf_status status = PF_OK;
    m->config = model_get_config(engine_model(e));
    m->max_rows = TRAIN_PASS_ROWS;
    pthread_mutex_init(&m->lock, NULL);
    clock_cond_init(&m->changed);
    for (size_t i = 0; i < d->n; i++)
        if ((size_t)d->items[i].length > m->max_rows) m->max_rows = (size_t)d->items[i].length;
    m->sequences = xcalloc(d->n, sizeof *m->sequences);
    m->each = xcalloc(d->n, sizeof *m->each);
    const background_work work = {.slice = slice, .ended = ended, .ctx = m};
    engine_background_start(e, &work);
    bool over = wait_ended(m, cancelled, ctx);
    engine_background_stop(e, m);
    if (m->error.status != PF_OK) {
        status = m->error.status;
        if (err) *err = m->error;
    } else if (!over || !m->done)
        status = err_set(err, PF_INTERRUPTED, "%s", "");
    free(m->sequences);
    free(m->kept);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    return status;
}

pf_status evaluate_loss(engine *e, const train_dataset *d, const void *blob, size_t len,
                        bool (*cancelled)(void *ctx), void *ctx, eval_loss *total, eval_loss *each,
                        pf_err *err)
{
    measurement m = {.data = d, .blob = blob, .len = len};
    pf_status status = measure(&m, e, cancelled, ctx, err);
    if (status == PF_OK) finish_losses(&m, total, each);
    free(m.each);
    return status;
}

pf_status evaluate_states(engine *e, const train_dataset *d, bool (*cancelled)(void *ctx),
                          void *ctx, float **states, pf_err *err)
{
    measurement m = {.data = d, .states = xcalloc(d->n + 1, sizeof *m.states)};
    pf_status status = measure(&m, e, cancelled, ctx, err);
    for (size_t i = 0; i < d->n; i++) {
        if (status == PF_OK)
            states[i] = m.states[i];
        else
            free(m.states[i]);
    }
    free(m.states);
    free(m.each);
    return status;
}

pf_status evaluate_add_answer(train_dataset *d, const model *m, const eval_talk *t,
                              positions_policy policy, size_t max_tokens, pf_err *err)
{
    if (t->n_answers == 0 || t->answers[t->n_answers - 1].n_content == 0) return PF_OK;
    const eval_answer *a = &t->answers[t->n_answers - 1];
    const train_dataset_options options = {.policy = policy, .max_tokens = max_tokens};
    size_t n = t->n_messages + 1, before = d->n;
    chat_message *messages = xcalloc(n, sizeof *messages);
    unsigned char *learn = xcalloc(n, 1);
    memcpy(messages, t->messages, t->n_messages * sizeof *messages);
    messages[n - 1] = (chat_message){.role = ROLE_ASSISTANT,
                                     .text = buf_str(&a->text),
                                     .len = a->text.len,
                                     .ids = a->ids.ids,
                                     .n_ids = a->n_content};
    learn[n - 1] = 1;
    pf_status status = train_dataset_add(d, m, messages, learn, n, &options, "an answer", err);
    if (status == PF_OK && d->n == before + 1 && a->n_content == a->ids.len) {
        train_example *e = &d->items[before];
        e->length--;
        e->n_targets--;
    }
    free(messages);
    free(learn);
    return status;
}

/* --- how sure ------------------------------------------------------------------------------- */

eval_interval evaluate_wilson(double p, size_t n)
{
    if (n == 0) return (eval_interval){0, 1};
    double count = (double)n, z2 = Z95 * Z95, scale = 1 / (1 + z2 / count);
    double centre = (p + z2 / (2 * count)) * scale;
    double half = Z95 * sqrt(p * (1 - p) / count + z2 / (4 * count * count)) * scale;
    return (eval_interval){fmax(0, centre - half), fmin(1, centre + half)};
}
