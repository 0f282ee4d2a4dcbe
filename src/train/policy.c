#include "train/policy.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/background.h"
#include "train/random.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A prompt and an answer to it, end token included, as a pass takes them. */
typedef struct {
    id_list ids;
    unsigned char *adapted, *target; /* [ids.len] */
} marked_ids;

/* One sampled answer. */
typedef struct {
    size_t prompt;
    marked_ids own;   /* behind its own question: what is trained on */
    marked_ids other; /* behind another question of the step; empty where none is asked for */
    int32_t n_targets;
    buf text;
    double advantage;
    float *own_logp, *other_logp; /* [n_targets] under the base model, behind either question */
    float *old_logp; /* [n_targets] under the weights that gave it; NULL before the first update */
    bool ended;      /* nothing more comes */
    bool stopped;    /* the last token is the end token */
    pf_err error;
} rollout;

/* What the engine thread is asked to do. */
typedef enum {
    ASK_NOTHING,
    ASK_OPEN,
    ASK_BASE,     /* how likely the base model finds the rollouts */
    ASK_CONTRAST, /* and behind another question */
    ASK_UPDATE,   /* their gradients and a step of the optimizer */
    ASK_MEASURE,  /* how far that went from the weights that answered; back to options.trust */
    ASK_AVERAGE   /* the average of the weights goes on by those at hand */
} policy_ask;

typedef struct {
    engine *e;
    const policy_options *o;
    const void *start;
    size_t start_len;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    policy_ask ask; /* under the lock */
    pf_status status;
    pf_err err;
    buf blob;      /* of the newest weights; the engine thread writes it while it is asked */
    buf mean_blob; /* of their average, where options.ema asks for one */

    /* The caller's. */
    adapter_id adapter;      /* the engine's, with the newest weights */
    adapter_id mean_adapter; /* with their average; 0 without one */
    uint64_t seed;           /* of the samples; goes on with each */
    size_t *questions; /* [n_questions] all prompts in an order of the seed; the last n_check are
                          kept aside */
    size_t n_questions, n_check;
    buf best; /* the weights that answered those best; empty: none did yet */
    double best_check;

    /* The engine thread's while it is asked, else the caller's. */
    rollout *rollouts;
    size_t n_rollouts, group; /* answers in a row to one prompt */
    train_params params;
    train_pass *pass;
    size_t max_rows;
    policy_ask passes; /* what the passes at hand are for */
    size_t first, end; /* rollouts of the batch at hand */
    bool in_pass;
    train_sequence *sequences; /* [n_rollouts] */
    int32_t *lengths;          /* [n_rollouts] */
    double *advantages;
    float *ref_logp, *old_logp; /* of the batch */
    grpo_batch grpo;
    int64_t step;
    int update; /* of the step, from 0 */
    double loss, kl_sum, grad_norm;
    size_t n_clipped;
    float *answered; /* [params.count] the masters that answered, where the way is bounded */
    float *mean;     /* [params.count] average of the masters after each step; NULL without ema */
    double moved;    /* k3 over the tokens between those and the updated ones */
    size_t n_tokens; /* targets of the step */
} policy;

/* --- on the engine's thread ----------------------------------------------------------------- */

static pf_status write_weights(policy *p, buf *out, pf_err *err)
{
    const model *m = engine_model(p->e);
    buf_clear(out);
    return train_params_write(&p->params, model_get_config(m), KN_BF16, model_digest(m),
                              model_name(m), out, err);
}

static pf_status write_blob(policy *p, pf_err *err)
{
    return write_weights(p, &p->blob, err);
}

static pf_status open_policy(policy *p, const packed_model *weights, pf_err *err)
{
    const model_config *config = model_get_config(engine_model(p->e));
    const train_pass_options options = {.max_rows = p->max_rows,
                                        .activation_bytes = TRAIN_ACTIVATION_BYTES};
    pf_status status = PF_OK;
    if (p->start) {
        adapter_view view = {0};
        status = adapter_view_open(p->start, p->start_len, config, &view, err);
        if (status == PF_OK)
            status = train_params_load(weights->be, config, &view, &p->params, err);
        adapter_view_close(&view);
    } else {
        status = train_params_create(weights->be, config, &p->o->shape, &p->params, err);
    }
    if (status == PF_OK) status = train_pass_open(weights, &options, &p->pass, err);
    if (status == PF_OK && p->o->trust > 0)
        p->answered = xcalloc(p->params.count, sizeof *p->answered);
    if (status == PF_OK && p->o->ema > 0) p->mean = xcalloc(p->params.count, sizeof *p->mean);
    return status == PF_OK ? write_blob(p, err) : status;
}

/* Chooses the next rollouts that fit a pass, and makes sequences of them; false when all are
 * through. The answers to a prompt follow each other and share it. */
static bool next_batch(policy *p)
{
    row_count count = {0};
    for (p->first = p->end; p->end < p->n_rollouts; p->end++) {
        const rollout *r = &p->rollouts[p->end];
        const marked_ids *m = p->passes == ASK_CONTRAST ? &r->other : &r->own;
        const size_t n = p->end - p->first;
        p->sequences[n] = (train_sequence){.ids = m->ids.ids,
                                           .adapted = m->adapted,
                                           .target = m->target,
                                           .length = (int32_t)m->ids.len};
        if (!row_count_add(&count, p->sequences, n, p->max_rows)) break;
    }
    return p->end > p->first;
}

static pf_status begin_pass(policy *p, pf_err *err)
{
    const bool update = p->passes == ASK_UPDATE, adapted = update || p->passes == ASK_MEASURE;
    size_t n = p->end - p->first;
    size_t targets = 0;
    for (size_t i = 0; i < n; i++) {
        rollout *r = &p->rollouts[p->first + i];
        p->lengths[i] = r->n_targets;
        p->advantages[i] = r->advantage;
        const size_t n_targets = (size_t)r->n_targets;
        if (update) memcpy(p->ref_logp + targets, r->own_logp, n_targets * sizeof(float));
        if (update && p->update > 0)
            memcpy(p->old_logp + targets, r->old_logp, n_targets * sizeof(float));
        targets += n_targets;
    }
    p->grpo = (grpo_batch){.options = p->o->grpo,
                           .n_answers = n,
                           .length = p->lengths,
                           .advantage = p->advantages,
                           .old_logp = p->update > 0 ? p->old_logp : NULL,
                           .ref_logp = p->ref_logp,
                           .n_in_all = p->n_rollouts,
                           .tokens_in_all = p->n_tokens};
    pf_status status = train_pass_begin(p->pass, adapted ? &p->params : NULL, p->sequences, n,
                                        update, 1, grpo_weigh, &p->grpo, err);
    p->in_pass = status == PF_OK;
    return status;
}

/* k3 between the weights that answered and the ones at hand, whose log-probabilities logp holds. */
static double distance(const rollout *r, const float *logp)
{
    double sum = 0;
    for (int32_t i = 0; i < r->n_targets; i++) {
        double change = (double)logp[i] - r->old_logp[i];
        sum += exp(change) - change - 1;
    }
    return sum;
}

static void end_pass(policy *p)
{
    size_t n = 0, at = 0;
    const float *logp = train_pass_logp(p->pass, &n);
    p->in_pass = false;
    if (p->passes == ASK_UPDATE) {
        p->loss += p->grpo.loss;
        p->kl_sum += p->grpo.kl_sum;
        p->n_clipped += p->grpo.n_clipped;
        if (p->update > 0) return;
    }
    for (size_t i = p->first; i < p->end; i++) {
        rollout *r = &p->rollouts[i];
        float *const to[] = {
            [ASK_BASE] = r->own_logp, [ASK_CONTRAST] = r->other_logp, [ASK_UPDATE] = r->old_logp};
        if (p->passes == ASK_MEASURE)
            p->moved += distance(r, logp + at);
        else
            memcpy(to[p->passes], logp + at, (size_t)r->n_targets * sizeof *logp);
        at += (size_t)r->n_targets;
    }
}

/* One unit of the passes over all rollouts; true when they are through or one has failed (*status).
 */
static bool advance(policy *p, pf_status *status, pf_err *err)
{
    if (!p->in_pass) {
        *status = begin_pass(p, err);
        return *status != PF_OK;
    }
    if (train_pass_advance(p->pass)) return false;
    *status = train_pass_check(p->pass, err);
    if (*status != PF_OK) {
        p->in_pass = false;
        return true;
    }
    end_pass(p);
    return !next_batch(p);
}

static pf_status make_step(policy *p, pf_err *err)
{
    kn_backend *be = p->params.be;
    if (p->answered && p->update == 0)
        be->ops->download(be, p->answered, p->params.value, p->params.count * sizeof(float));
    pf_status status =
        optimizer_step(&p->o->optimizer, &p->params, p->step * p->o->updates + p->update,
                       p->o->steps * p->o->updates, &p->grad_norm, err);
    const pf_status device = train_pass_check(p->pass, err);
    if (device != PF_OK) return device;
    pf_status written = write_blob(p, status == PF_OK ? err : NULL);
    return status == PF_OK ? written : status;
}

/* A sum over the step's targets as a mean. */
static double per_token(const policy *p, double sum)
{
    return p->n_tokens ? sum / (double)p->n_tokens : 0;
}

/* Where the updates went further than options.trust, goes back towards the weights that answered:
 * close to them the divergence grows with the square of the way. */
static pf_status bound_step(policy *p, pf_err *err)
{
    kn_backend *be = p->params.be;
    const size_t n = p->params.count;
    const double far = per_token(p, p->moved);
    if (!(far > p->o->trust)) return PF_OK;
    const float share = (float)sqrt(p->o->trust / far);
    float *value = xcalloc(n, sizeof *value);
    be->ops->download(be, value, p->params.value, n * sizeof *value);
    for (size_t i = 0; i < n; i++)
        value[i] = p->answered[i] + share * (value[i] - p->answered[i]);
    be->ops->upload(be, p->params.value, value, n * sizeof *value);
    free(value);
    return write_blob(p, err);
}

/* The average of the weights after each step so far, the newest weighing 1, each older one `ema`
 * times as much as the next: what starts from 0 is corrected, as Adam does. */
static pf_status average_weights(policy *p, pf_err *err)
{
    kn_backend *be = p->params.be;
    const size_t n = p->params.count;
    const float share = (float)((1 - p->o->ema) / (1 - pow(p->o->ema, (double)(p->step + 1))));
    float *value = xcalloc(n, sizeof *value);
    be->ops->download(be, value, p->params.value, n * sizeof *value);
    for (size_t i = 0; i < n; i++)
        p->mean[i] += share * (value[i] - p->mean[i]);
    be->ops->upload(be, p->params.value, p->mean, n * sizeof *value);
    if (p->o->optimizer.orthonormal) optimizer_orthonormalize(&p->params);
    pf_status status = write_weights(p, &p->mean_blob, err);
    be->ops->upload(be, p->params.value, value, n * sizeof *value);
    free(value);
    return status;
}

static void answer_ask(policy *p, pf_status status, const pf_err *err)
{
    pthread_mutex_lock(&p->lock);
    p->status = status;
    p->err = *err;
    p->ask = ASK_NOTHING;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static background_state slice(void *ctx, const packed_model *weights, int64_t budget_ns)
{
    policy *p = ctx;
    int64_t start = clock_monotonic_ns();
    pthread_mutex_lock(&p->lock);
    policy_ask ask = p->ask;
    pthread_mutex_unlock(&p->lock);
    pf_status status = PF_OK;
    pf_err err = {0};
    if (ask == ASK_NOTHING) return BACKGROUND_PAUSED;
    if (ask == ASK_OPEN) {
        status = open_policy(p, weights, &err);
        answer_ask(p, status, &err);
        return BACKGROUND_PAUSED;
    }
    while (clock_monotonic_ns() - start < budget_ns) {
        if (ask != ASK_AVERAGE && !advance(p, &status, &err)) continue;
        if (status == PF_OK && ask == ASK_UPDATE) status = make_step(p, &err);
        if (status == PF_OK && ask == ASK_MEASURE) status = bound_step(p, &err);
        if (ask == ASK_AVERAGE) status = average_weights(p, &err);
        answer_ask(p, status, &err);
        return BACKGROUND_PAUSED;
    }
    return BACKGROUND_MORE;
}

static void ended(void *ctx)
{
    policy *p = ctx;
    train_pass_close(p->pass);
    p->pass = NULL;
    free(p->answered);
    free(p->mean);
    p->answered = p->mean = NULL;
    train_params_free(&p->params);
}

/* The engine keeps the weights packed; nobody fetches them again. */
static const adapter_source pinned;

/* --- on the caller's thread ----------------------------------------------------------------- */

/* Has the engine thread do it and waits. */
static pf_status ask_engine(policy *p, policy_ask ask, pf_err *err)
{
    pthread_mutex_lock(&p->lock);
    p->ask = ask;
    pthread_mutex_unlock(&p->lock);
    engine_background_wake(p->e);
    pthread_mutex_lock(&p->lock);
    while (p->ask != ASK_NOTHING)
        pthread_cond_wait(&p->changed, &p->lock);
    pf_status status = p->status;
    if (status != PF_OK && err) *err = p->err;
    pthread_mutex_unlock(&p->lock);
    return status;
}

static void free_marked(marked_ids *m)
{
    id_list_free(&m->ids);
    free(m->adapted);
    free(m->target);
}

static void clear_rollouts(policy *p)
{
    for (size_t i = 0; i < p->n_rollouts; i++) {
        rollout *r = &p->rollouts[i];
        free_marked(&r->own);
        free_marked(&r->other);
        free(r->own_logp);
        free(r->other_logp);
        free(r->old_logp);
        buf_free(&r->text);
    }
    free(p->rollouts);
    free(p->sequences);
    free(p->lengths);
    free(p->advantages);
    free(p->ref_logp);
    free(p->old_logp);
    p->rollouts = NULL;
    p->sequences = NULL;
    p->lengths = NULL;
    p->advantages = NULL;
    p->ref_logp = NULL;
    p->old_logp = NULL;
    p->n_rollouts = 0;
}

static void take_event(rollout *r, const engine_event *ev, id_list *answer)
{
    switch (ev->kind) {
    case ENGINE_EVENT_STARTED:
        r->own.ids.len = 0;
        id_list_append_all(&r->own.ids, ev->prompt_ids, (size_t)ev->n_prompt);
        r->own.adapted = xcalloc((size_t)ev->n_prompt, 1);
        memcpy(r->own.adapted, ev->marks, (size_t)ev->n_prompt);
        break;
    case ENGINE_EVENT_TOKEN:
        id_list_append(answer, ev->token);
        buf_append(&r->text, ev->text, ev->text_len);
        break;
    case ENGINE_EVENT_FINISHED:
        buf_append(&r->text, ev->text, ev->text_len);
        r->stopped = ev->reason == FINISH_STOP;
        r->ended = true;
        break;
    case ENGINE_EVENT_FAILED:
        err_set(&r->error, ev->status, "%s", ev->text);
        r->ended = true;
        break;
    case ENGINE_EVENT_WAITING:
        break;
    }
}

/* Puts the answer behind the prompt: its tokens are the targets, marked as generated tokens are. */
static void join_answer(marked_ids *m, const int32_t *answer, size_t n, bool adapted)
{
    const size_t prompt = m->ids.len, length = prompt + n;
    m->adapted = xrealloc_array(m->adapted, length ? length : 1, 1);
    memset(m->adapted + prompt, adapted, n);
    m->target = xcalloc(length ? length : 1, 1);
    memset(m->target + prompt, 1, n);
    id_list_append_all(&m->ids, answer, n);
}

static double temperature_now(const policy *p)
{
    const policy_options *o = p->o;
    if (!(o->last_temperature > 0) || o->steps < 2) return o->temperature;
    double share = (double)p->step / (double)(o->steps - 1);
    return o->temperature + share * (o->last_temperature - o->temperature);
}

static pf_status submit_all(policy *p, engine_client *client, const policy_prompt *prompts,
                            adapter_id adapter, double temperature, pf_err *err)
{
    for (size_t i = 0; i < p->n_rollouts; i++) {
        const policy_prompt *q = &prompts[p->rollouts[i].prompt];
        engine_request request = {.messages = q->messages,
                                  .n_messages = q->n_messages,
                                  .adapter = adapter,
                                  .max_tokens = p->o->max_tokens,
                                  .want_prompt = true,
                                  .tag = &p->rollouts[i]};
        request.sampling.temperature = (float)temperature;
        request.sampling.has_seed = true;
        if (temperature > 0) request.sampling.seed = random_next(&p->seed);
        request_id id = 0;
        pf_status status = engine_submit(client, &request, &id, err);
        if (status != PF_OK) return status;
    }
    return PF_OK;
}

/* Has all rollouts answered in one batch. */
static pf_status sample(policy *p, const policy_prompt *prompts, adapter_id adapter,
                        double temperature, pf_err *err)
{
    engine_client *client = engine_client_open(p->e);
    if (!client) return err_set(err, PF_FAILED, "no more file descriptors are available");
    id_list *answers = xcalloc(p->n_rollouts, sizeof *answers);
    size_t open = p->n_rollouts;
    pf_status status = submit_all(p, client, prompts, adapter, temperature, err);
    while (status == PF_OK && open > 0) {
        engine_event ev;
        if (!engine_client_next(client, &ev)) {
            engine_client_wait(client, 1000);
            continue;
        }
        rollout *r = ev.tag;
        take_event(r, &ev, &answers[r - p->rollouts]);
        open -= r->ended;
        engine_event_free(&ev);
    }
    engine_client_close(client);
    p->n_tokens = 0;
    for (size_t i = 0; i < p->n_rollouts; i++) {
        rollout *r = &p->rollouts[i];
        if (status == PF_OK && r->error.status != PF_OK) {
            status = r->error.status;
            if (err) *err = r->error;
        }
        if (status == PF_OK) {
            join_answer(&r->own, answers[i].ids, answers[i].len, !p->o->shape.prefill_only);
            r->n_targets = (int32_t)answers[i].len;
            r->own_logp = xcalloc(answers[i].len, sizeof *r->own_logp);
            r->old_logp = xcalloc(answers[i].len, sizeof *r->old_logp);
        }
        p->n_tokens += (size_t)r->n_targets;
        id_list_free(&answers[i]);
    }
    free(answers);
    return status;
}

static void open_rollouts(policy *p, size_t n, size_t group)
{
    p->n_rollouts = n;
    p->group = group;
    p->rollouts = xcalloc(n, sizeof *p->rollouts);
    p->sequences = xcalloc(n, sizeof *p->sequences);
    p->lengths = xcalloc(n, sizeof *p->lengths);
    p->advantages = xcalloc(n, sizeof *p->advantages);
}

/* The step's questions, each with its group of answers to come. */
static void plan_step(policy *p, int64_t step)
{
    size_t per_step = (size_t)p->o->prompts_per_step, group = (size_t)p->o->group;
    const size_t n_prompts = p->n_questions - p->n_check;
    size_t *order = xcalloc(n_prompts, sizeof *order);
    size_t rounds = (n_prompts + per_step - 1) / per_step;
    size_t round = (size_t)step % rounds;
    random_permutation(p->o->seed + (uint64_t)step / rounds, order, n_prompts);
    open_rollouts(p, per_step * group, group);
    for (size_t i = 0; i < p->n_rollouts; i++)
        p->rollouts[i].prompt = p->questions[order[(round * per_step + i / group) % n_prompts]];
    free(order);
}

/* The mean log-probability of a token of the answer under the base model. */
static double likelihood(const rollout *r)
{
    double sum = 0;
    for (int32_t i = 0; i < r->n_targets; i++)
        sum += (double)r->own_logp[i];
    return r->n_targets ? sum / r->n_targets : 0;
}

/* The rewards of all rollouts, as they are trained for. */
static void reward_all(policy *p, const policy_caller *caller, double *rewards,
                       policy_step *account)
{
    const size_t n = p->n_rollouts;
    for (size_t i = 0; i < n; i++) {
        const rollout *r = &p->rollouts[i];
        rewards[i] = caller->score(caller->ctx, r->prompt, buf_str(&r->text), r->text.len);
        account->reward += rewards[i] / (double)n;
        account->ended += r->stopped / (double)n;
        account->base_loss -= likelihood(r) / (double)n;
        const size_t n_tokens = (size_t)r->n_targets;
        if (!r->stopped) rewards[i] *= p->o->cut_off;
        rewards[i] *= grpo_sense(p->o->sense, p->o->sense_free, r->own_logp, n_tokens, r->stopped);
        if (!r->other_logp) continue;
        double kept = grpo_about(r->own_logp, r->other_logp, n_tokens, r->stopped);
        account->about += kept / (double)n;
        rewards[i] *= 1 - p->o->about * (1 - kept);
    }
}

static void compare_groups(policy *p, const double *rewards)
{
    const size_t n = p->n_rollouts, group = p->group;
    double *advantages = xcalloc(n, sizeof *advantages);
    for (size_t g = 0; g + group <= n; g += group)
        grpo_advantages(p->o->advantage, p->o->spread, rewards + g, group, advantages + g);
    for (size_t i = 0; i < n; i++)
        p->rollouts[i].advantage = advantages[i];
    free(advantages);
}

static double seconds_since(int64_t *start)
{
    int64_t now = clock_monotonic_ns(), before = *start;
    *start = now;
    return (double)(now - before) * 1e-9;
}

static size_t prompt_tokens(const rollout *r)
{
    return r->own.ids.len - (size_t)r->n_targets;
}

/* Data may hold a question twice: what counts is its text. */
static bool same_question(const rollout *a, const rollout *b)
{
    const size_t n = prompt_tokens(a);
    return n == prompt_tokens(b) &&
           memcmp(a->own.ids.ids, b->own.ids.ids, n * sizeof(int32_t)) == 0;
}

/* Puts every answer behind the step's next question that isn't its own; false where there is none.
 * The base model has no marks. */
static bool make_contrast(policy *p)
{
    const size_t n = p->n_rollouts, group = p->group;
    for (size_t i = 0; i < n; i++) {
        rollout *r = &p->rollouts[i];
        size_t at = (i / group + 1) * group % n;
        while (same_question(&p->rollouts[at], r) && at != i / group * group)
            at = (at + group) % n;
        const rollout *q = &p->rollouts[at];
        if (same_question(q, r)) return false;
        const size_t prompt = prompt_tokens(q), length = (size_t)r->n_targets;
        id_list_append_all(&r->other.ids, q->own.ids.ids, prompt);
        r->other.adapted = xcalloc(prompt, 1);
        join_answer(&r->other, r->own.ids.ids + r->own.ids.len - length, length, false);
        r->other_logp = xcalloc(length, sizeof *r->other_logp);
    }
    return true;
}

/* Passes over all rollouts. */
static pf_status run_passes(policy *p, policy_ask ask, pf_err *err)
{
    p->passes = ask;
    p->first = p->end = 0;
    next_batch(p);
    return ask_engine(p, ask, err);
}

/* Has the planned rollouts answered, and rewards them; rewards[n_rollouts]. */
static pf_status roll_out(policy *p, const policy_prompt *prompts, adapter_id adapter,
                          double temperature, const policy_caller *caller, double *rewards,
                          policy_step *account, pf_err *err)
{
    int64_t clock = clock_monotonic_ns();
    pf_status status = sample(p, prompts, adapter, temperature, err);
    account->sample_seconds += seconds_since(&clock);
    if (status != PF_OK) return status;
    p->ref_logp = xcalloc(p->n_tokens, sizeof *p->ref_logp);
    p->old_logp = xcalloc(p->n_tokens, sizeof *p->old_logp);
    status = run_passes(p, ASK_BASE, err);
    if (status == PF_OK && p->o->about > 0 && make_contrast(p))
        status = run_passes(p, ASK_CONTRAST, err);
    account->train_seconds += seconds_since(&clock);
    if (status == PF_OK) reward_all(p, caller, rewards, account);
    return status;
}

static pf_status learn(policy *p, const double *rewards, policy_step *account, pf_err *err)
{
    int64_t clock = clock_monotonic_ns();
    compare_groups(p, rewards);
    pf_status status = PF_OK;
    for (p->update = 0; p->update < p->o->updates && status == PF_OK; p->update++) {
        p->loss = p->kl_sum = 0;
        p->n_clipped = 0;
        status = run_passes(p, ASK_UPDATE, err);
        if (p->update > 0) continue;
        account->loss = p->loss;
        account->grad_norm = p->grad_norm;
        account->kl = per_token(p, p->kl_sum);
    }
    p->moved = 0;
    if (status == PF_OK && p->o->trust > 0) status = run_passes(p, ASK_MEASURE, err);
    account->train_seconds += seconds_since(&clock);
    if (status != PF_OK) return status;
    status =
        engine_adapter_replace(p->e, p->adapter, p->blob.data, p->blob.len, &pinned, NULL, err);
    if (status == PF_OK && p->o->ema > 0) status = ask_engine(p, ASK_AVERAGE, err);
    if (status == PF_OK && p->mean_adapter)
        status = engine_adapter_replace(p->e, p->mean_adapter, p->mean_blob.data, p->mean_blob.len,
                                        &pinned, NULL, err);
    account->sync_seconds = seconds_since(&clock);
    account->tokens = (double)p->n_tokens / (double)p->n_rollouts;
    account->moved = per_token(p, p->moved);
    account->clipped = per_token(p, (double)p->n_clipped);
    return status;
}

static pf_status run_step(policy *p, const policy_prompt *prompts, const policy_caller *caller,
                          policy_step *account, pf_err *err)
{
    plan_step(p, p->step);
    double *rewards = xcalloc(p->n_rollouts, sizeof *rewards);
    pf_status status =
        roll_out(p, prompts, p->adapter, temperature_now(p), caller, rewards, account, err);
    if (status == PF_OK) status = learn(p, rewards, account, err);
    account->step = p->step + 1;
    account->n_steps = p->o->steps;
    clear_rollouts(p);
    free(rewards);
    return status;
}

/* How the weights answer the questions that are kept aside, greedily. The best weights so far are
 * kept. */
static pf_status check(policy *p, const policy_prompt *prompts, const policy_caller *caller,
                       policy_step *account, pf_err *err)
{
    policy_step seen = {0};
    account->kept = true;
    if (p->n_check == 0) return PF_OK;
    double *rewards = xcalloc(p->n_check, sizeof *rewards), mean = 0;
    open_rollouts(p, p->n_check, 1);
    for (size_t i = 0; i < p->n_check; i++)
        p->rollouts[i].prompt = p->questions[p->n_questions - p->n_check + i];
    pf_status status = roll_out(p, prompts, p->mean_adapter ? p->mean_adapter : p->adapter, 0,
                                caller, rewards, &seen, err);
    for (size_t i = 0; i < p->n_check; i++)
        mean += rewards[i] / (double)p->n_check;
    account->sample_seconds += seen.sample_seconds;
    account->train_seconds += seen.train_seconds;
    account->checked = p->n_check;
    account->check = mean;
    account->check_reward = seen.reward;
    account->kept = status == PF_OK && (p->best.len == 0 || mean > p->best_check);
    if (account->kept) {
        p->best_check = mean;
        buf_clear(&p->best);
        const buf *now = p->mean_blob.len ? &p->mean_blob : &p->blob;
        buf_append(&p->best, now->data, now->len);
    }
    clear_rollouts(p);
    free(rewards);
    return status;
}

static pf_status run_steps(policy *p, const policy_prompt *prompts, const policy_caller *caller,
                           pf_err *err)
{
    pf_status status = ask_engine(p, ASK_OPEN, err);
    if (status == PF_OK)
        status =
            engine_adapter_add(p->e, p->blob.data, p->blob.len, &pinned, &p->adapter, NULL, err);
    if (status == PF_OK && p->o->ema > 0 && p->n_check > 0)
        status = engine_adapter_add(p->e, p->blob.data, p->blob.len, &pinned, &p->mean_adapter,
                                    NULL, err);
    bool go_on = true;
    for (p->step = 0; status == PF_OK && go_on && p->step < p->o->steps; p->step++) {
        policy_step account = {0};
        status = run_step(p, prompts, caller, &account, err);
        if (status == PF_OK) status = check(p, prompts, caller, &account, err);
        if (status == PF_OK) go_on = caller->step(caller->ctx, &account);
    }
    if (p->mean_adapter) (void)engine_adapter_drop(p->e, p->mean_adapter, NULL);
    if (p->adapter) (void)engine_adapter_drop(p->e, p->adapter, NULL);
    return status;
}

/* Longest prompt and answer together: what a pass must hold. */
static pf_status measure(policy *p, const policy_prompt *prompts, size_t n, pf_err *err)
{
    p->max_rows = TRAIN_PASS_ROWS;
    for (size_t i = 0; i < n; i++) {
        size_t tokens = 0;
        pf_status status =
            engine_count_tokens(p->e, prompts[i].messages, prompts[i].n_messages, &tokens, err);
        if (status != PF_OK) return err_context(err, "prompt %zu", i + 1);
        tokens += (size_t)p->o->max_tokens + 1;
        if (tokens > p->max_rows) p->max_rows = tokens;
    }
    return PF_OK;
}

pf_status policy_run(engine *e, const policy_prompt *prompts, size_t n_prompts,
                     const policy_options *options, const void *start, size_t start_len,
                     const policy_caller *caller, buf *blob, pf_err *err)
{
    if (n_prompts == 0 || options->prompts_per_step < 1 || options->group < 2 ||
        options->max_tokens < 1 || options->steps < 1 || options->updates < 1 ||
        !(options->temperature > 0))
        return err_set(err, PF_USAGE,
                       "reinforcement learning needs prompts, at least two answers to each, and a "
                       "temperature above 0");
    if (!(options->sense >= 0) || !(options->about >= 0 && options->about <= 1))
        return err_set(err, PF_USAGE,
                       "sense is %g, about is %g: sense must be 0 or more, about from 0 to 1",
                       options->sense, options->about);
    if (!(options->cut_off >= 0 && options->cut_off <= 1))
        return err_set(err, PF_USAGE, "answers that are cut off keep %g of their reward: 0 to 1",
                       options->cut_off);
    if (!(options->ema >= 0 && options->ema < 1))
        return err_set(err, PF_USAGE,
                       "the average of the weights decays by %g: 0 to below 1 is possible",
                       options->ema);
    if (!(options->trust >= 0))
        return err_set(err, PF_USAGE, "a step may move the answers by %g: 0 or more is possible",
                       options->trust);
    if (!(options->sense_free >= 0) || !(options->spread >= GRPO_LEAST_SPREAD) ||
        options->check_prompts < 0)
        return err_set(err, PF_USAGE,
                       "the free loss is %g, the spread %g, %d questions are kept aside: none may "
                       "be negative, the spread at least %g",
                       options->sense_free, options->spread, options->check_prompts,
                       GRPO_LEAST_SPREAD);
    policy p = {.e = e,
                .o = options,
                .start = start,
                .start_len = start_len,
                .seed = options->seed,
                .questions = xcalloc(n_prompts, sizeof *p.questions),
                .n_questions = n_prompts,
                .n_check = (size_t)options->check_prompts};
    if (p.n_check > n_prompts / 4) p.n_check = n_prompts / 4;
    random_permutation(options->seed, p.questions, n_prompts);
    pf_status status = measure(&p, prompts, n_prompts, err);
    if (status != PF_OK) goto out;
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.changed, NULL);
    const background_work work = {.slice = slice, .ended = ended, .ctx = &p};
    engine_background_start(e, &work);
    status = run_steps(&p, prompts, caller, err);
    engine_background_stop(e, &p);
    clear_rollouts(&p);
    const buf *result = p.best.len ? &p.best : p.mean_blob.len ? &p.mean_blob : &p.blob;
    if (result->len) buf_append(blob, result->data, result->len);
    pthread_cond_destroy(&p.changed);
    pthread_mutex_destroy(&p.lock);
out:
    buf_free(&p.blob);
    buf_free(&p.mean_blob);
    buf_free(&p.best);
    free(p.questions);
    return status;
}
