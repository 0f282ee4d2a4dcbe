#include "train/job.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/background.h"
#include "profiles/secret.h"
#include "train/random.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEASURED     24 /* most training examples whose loss is measured before and after */
#define SMOOTH_STEPS 8  /* losses are averaged over this many steps to detect divergence */

/* What the job does next, in this order; evaluations go over examples, training over steps. */
typedef enum {
    PHASE_BEFORE_TRAIN, /* loss over training examples, before */
    PHASE_BEFORE_HELD,  /* and over those kept aside */
    PHASE_STEPS,
    PHASE_EPOCH_HELD, /* after each epoch */
    PHASE_AFTER_TRAIN,
    PHASE_SERVED_TRAIN, /* with rounded weights */
    PHASE_SERVED_HELD,
    PHASE_END
} job_phase;

struct train_job {
    engine *e;
    train_dataset data;
    train_job_options options;
    buf start, checkpoint_in; /* wiped and freed when opened */

    /* The engine thread's own. */
    bool opened;
    train_params params;
    train_pass *pass;
    size_t *examples; /* training examples, repeats included; then this epoch's order of them */
    size_t *held;     /* held-out examples */
    size_t *train;    /* training examples once each; if there are many, some spread over all */
    size_t *order;
    size_t n_examples, n_held, n_train, max_rows;
    train_sequence *sequences; /* of one pass */
    job_phase phase;
    size_t at;       /* next entry of the current list: of the step's batch or the evaluation */
    size_t end;      /* its end */
    double divisor;  /* targets of the step's batch */
    double loss_sum; /* of the step or evaluation so far */
    size_t loss_count;
    int64_t step, n_steps, steps_per_epoch;
    float *best; /* [params.count] masters with the best loss so far, host memory */
    double best_loss;
    float *masters;     /* kept while rounded weights are evaluated */
    int64_t busy_ns;    /* spent on steps */
    int64_t started_ns; /* of the first step; moved on by pauses; 0 = not begun */
    int64_t paused_ns;  /* since when it is paused; 0 = it isn't */
    int64_t train_tokens, first_step, first_tokens; /* first_*: where a resumed job began */

    /* Shared. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    train_progress progress;
    float *losses;
    size_t cap_losses;
    buf checkpoint_out, result;
    int64_t checkpoint_step; /* of checkpoint_out */
    int64_t saved_step;      /* the owner has saved this one */
    bool ended;
    atomic_bool cancel, pause, suspend;
};

/* --- what others see ------------------------------------------------------------------------ */

static void set_state(train_job *j, train_state state, const char *message)
{
    pthread_mutex_lock(&j->lock);
    j->progress.state = state;
    if (message) {
        size_t n = strlen(message) < sizeof j->progress.message - 1
                       ? strlen(message)
                       : sizeof j->progress.message - 1;
        memcpy(j->progress.message, message, n);
        j->progress.message[n] = '\0';
    }
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

void train_job_get(train_job *j, train_progress *out)
{
    pthread_mutex_lock(&j->lock);
    *out = j->progress;
    pthread_mutex_unlock(&j->lock);
}

size_t train_job_losses(train_job *j, size_t first, size_t n, float *out)
{
    pthread_mutex_lock(&j->lock);
    size_t have = j->progress.n_losses > first ? j->progress.n_losses - first : 0;
    if (have < n) n = have;
    if (n) memcpy(out, j->losses + first, n * sizeof *out);
    pthread_mutex_unlock(&j->lock);
    return n;
}

void train_job_wait(train_job *j, int timeout_ms)
{
    pthread_mutex_lock(&j->lock);
    bool over = j->progress.state != TRAIN_RUNNING && j->progress.state != TRAIN_PAUSED;
    if (!over) clock_cond_wait(&j->changed, &j->lock, timeout_ms);
    pthread_mutex_unlock(&j->lock);
}

void train_job_pause(train_job *j, bool pause)
{
    atomic_store(&j->pause, pause);
    engine_background_wake(j->e);
}

void train_job_cancel(train_job *j)
{
    atomic_store(&j->cancel, true);
    engine_background_wake(j->e);
}

void train_job_suspend(train_job *j)
{
    atomic_store(&j->suspend, true);
    engine_background_wake(j->e);
}

void train_job_checkpoint_saved(train_job *j, int64_t step)
{
    pthread_mutex_lock(&j->lock);
    j->saved_step = step;
    pthread_mutex_unlock(&j->lock);
    engine_background_wake(j->e);
}

bool train_job_take_checkpoint(train_job *j, buf *out, int64_t *step)
{
    pthread_mutex_lock(&j->lock);
    bool any = j->checkpoint_out.len > 0;
    if (any) {
        buf_append(out, j->checkpoint_out.data, j->checkpoint_out.len);
        *step = j->checkpoint_step;
        buf_clear(&j->checkpoint_out);
    }
    pthread_mutex_unlock(&j->lock);
    return any;
}

pf_status train_job_result(train_job *j, buf *blob, pf_err *err)
{
    pthread_mutex_lock(&j->lock);
    bool any = j->result.len > 0;
    if (any) buf_append(blob, j->result.data, j->result.len);
    pthread_mutex_unlock(&j->lock);
    return any ? PF_OK : err_set(err, PF_FAILED, "the training has no result");
}

/* --- opening -------------------------------------------------------------------------------- */

/* What a checkpoint begins with; then n_losses floats, the best state, and masters, moments and
 * count of updates as train_params saves them. */
typedef struct {
    uint64_t magic;
    int64_t step, tokens;
    double best_loss, held_out_before, held_out_now, train_before;
    uint64_t n_losses;
} checkpoint_header;
#define CHECKPOINT_MAGIC 0x3254504b46455250u /* "PREFKPT2" */

/* The state after j->step steps; the gradients of a step under way are left out. */
static void make_checkpoint(train_job *j)
{
    buf bytes = {0};
    const train_progress *p = &j->progress;
    checkpoint_header header = {.magic = CHECKPOINT_MAGIC,
                                .step = j->step,
                                .tokens = p->tokens_done,
                                .best_loss = j->best_loss,
                                .held_out_before = p->held_out_before,
                                .held_out_now = p->held_out_now,
                                .train_before = p->train_before,
                                .n_losses = p->n_losses};
    buf_append(&bytes, &header, sizeof header);
    buf_append(&bytes, j->losses, p->n_losses * sizeof *j->losses);
    buf_append(&bytes, j->best, j->params.count * sizeof *j->best);
    train_params_save_state(&j->params, &bytes);
    pthread_mutex_lock(&j->lock);
    buf_free(&j->checkpoint_out);
    j->checkpoint_out = bytes;
    j->checkpoint_step = j->step;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static void restore_progress(train_job *j, const checkpoint_header *header, const char *losses)
{
    size_t n = (size_t)header->n_losses;
    pthread_mutex_lock(&j->lock);
    train_progress *p = &j->progress;
    j->losses = xcalloc(n, sizeof *j->losses);
    if (n) memcpy(j->losses, losses, n * sizeof *j->losses);
    j->cap_losses = p->n_losses = n;
    p->held_out_before = header->held_out_before;
    p->held_out_now = header->held_out_now;
    p->train_before = header->train_before;
    p->step = header->step;
    p->share_done = (double)p->step / (double)j->n_steps;
    p->tokens_done = header->tokens;
    if (n) p->loss = j->losses[n - 1];
    pthread_mutex_unlock(&j->lock);
    j->step = j->first_step = header->step;
    j->train_tokens = j->first_tokens = header->tokens;
    j->saved_step = header->step;
    j->best_loss = header->best_loss;
}

static pf_status read_checkpoint(train_job *j, pf_err *err)
{
    checkpoint_header header;
    const char *at = j->checkpoint_in.data;
    size_t best = j->params.count * sizeof *j->best, left = j->checkpoint_in.len;
    if (left < sizeof header) return err_set(err, PF_REFUSED, "the checkpoint is too short");
    memcpy(&header, at, sizeof header);
    if (header.magic != CHECKPOINT_MAGIC || header.step < 0 || header.step > j->n_steps ||
        header.n_losses != (uint64_t)header.step)
        return err_set(err, PF_REFUSED, "the checkpoint is not one of this training");
    at += sizeof header;
    left -= sizeof header;
    if (header.n_losses > left / sizeof(float) ||
        left - (size_t)header.n_losses * sizeof(float) < best)
        return err_set(err, PF_REFUSED, "the checkpoint is too short");
    const char *losses = at;
    at += (size_t)header.n_losses * sizeof(float);
    left -= (size_t)header.n_losses * sizeof(float);
    pf_status status = train_params_load_state(&j->params, at + best, left - best, err);
    if (status != PF_OK) return status;
    memcpy(j->best, at, best);
    restore_progress(j, &header, losses);
    return PF_OK;
}

/* Whether the held-out data is evaluated after this step. */
static bool checks_held_out(const train_job *j, int64_t steps)
{
    return j->n_held > 0 && steps > 0 && (steps % j->steps_per_epoch == 0 || steps == j->n_steps);
}

static void keep_best(train_job *j, double loss)
{
    if (!(loss < j->best_loss)) return;
    j->best_loss = loss;
    j->params.be->ops->download(j->params.be, j->best, j->params.value,
                                j->params.count * sizeof *j->best);
}

static pf_status open_params(train_job *j, kn_backend *be, pf_err *err)
{
    const model_config *config = model_get_config(engine_model(j->e));
    if (j->start.len == 0)
        return train_params_create(be, config, &j->options.shape, &j->params, err);
    adapter_view view = {0};
    pf_status status = adapter_view_open(j->start.data, j->start.len, config, &view, err);
    if (status == PF_OK) status = train_params_load(be, config, &view, &j->params, err);
    adapter_view_close(&view);
    return status;
}

static void begin_phase(train_job *j, job_phase phase);

/* On the engine thread: memory of the backend, masters, the first phase. */
static pf_status open_job(train_job *j, const packed_model *weights, pf_err *err)
{
    train_pass_options options = {.max_rows = j->max_rows,
                                  .activation_bytes = j->options.activation_bytes
                                                          ? j->options.activation_bytes
                                                          : TRAIN_ACTIVATION_BYTES};
    pf_status status = open_params(j, weights->be, err);
    if (status == PF_OK) status = train_pass_open(weights, &options, &j->pass, err);
    if (status != PF_OK) return status;
    j->best = try_calloc(j->params.count, sizeof *j->best);
    j->masters = try_calloc(j->params.count, sizeof *j->masters);
    if (!j->best || !j->masters)
        return err_set(err, PF_NO_MEMORY, "no room for the state of %zu trainable numbers",
                       j->params.count);
    j->best_loss = INFINITY;
    if (j->checkpoint_in.len > 0) {
        status = read_checkpoint(j, err);
        if (status != PF_OK) return status;
        begin_phase(j, checks_held_out(j, j->step) ? PHASE_EPOCH_HELD : PHASE_STEPS);
    } else {
        keep_best(j, 1e30);
        begin_phase(j, PHASE_BEFORE_TRAIN);
    }
    buf_free(&j->start);
    buf_free(&j->checkpoint_in);
    j->opened = true;
    return PF_OK;
}

/* --- phases --------------------------------------------------------------------------------- */

/* The list that a phase goes over, entries at..end of it. */
static const size_t *phase_list(const train_job *j)
{
    switch (j->phase) {
    case PHASE_STEPS:
        return j->order;
    case PHASE_BEFORE_TRAIN:
    case PHASE_AFTER_TRAIN:
    case PHASE_SERVED_TRAIN:
        return j->train;
    default:
        return j->held;
    }
}

static void shuffle_epoch(train_job *j)
{
    int64_t epoch = j->step / j->steps_per_epoch;
    size_t *permutation = xcalloc(j->n_examples, sizeof *permutation);
    random_permutation(j->options.seed + (uint64_t)epoch * 0x9E3779B97F4A7C15u, permutation,
                       j->n_examples);
    for (size_t i = 0; i < j->n_examples; i++)
        j->order[i] = j->examples[permutation[i]];
    free(permutation);
}

/* The batch of step j->step in this epoch's order. */
static void begin_step(train_job *j)
{
    int64_t in_epoch = j->step % j->steps_per_epoch;
    shuffle_epoch(j);
    j->at = (size_t)(in_epoch * j->options.batch);
    j->end = j->at + (size_t)j->options.batch;
    if (j->end > j->n_examples) j->end = j->n_examples;
    j->divisor = 0;
    for (size_t i = j->at; i < j->end; i++)
        j->divisor += j->data.items[j->order[i]].n_targets;
    j->loss_sum = 0;
    j->loss_count = 0;
}

static void use_values(train_job *j, const float *values)
{
    j->params.be->ops->upload(j->params.be, j->params.value, values,
                              j->params.count * sizeof *values);
}

/* Rounds the weights as they will serve; the masters are kept aside. */
static void round_weights(train_job *j)
{
    const kn_backend_ops *ops = j->params.be->ops;
    float part[1024];
    size_t n;
    ops->download(j->params.be, j->masters, j->params.value, j->params.count * sizeof *j->masters);
    for (size_t at = 0; at < j->params.count; at += n) {
        for (n = 0; n < 1024 && at + n < j->params.count; n++)
            part[n] = kn_bf16_to_f32(kn_f32_to_bf16(j->masters[at + n]));
        ops->upload(j->params.be, j->params.value + at, part, n * sizeof *part);
    }
}

static void begin_phase(train_job *j, job_phase phase)
{
    if (phase == PHASE_STEPS && j->step >= j->n_steps) phase = PHASE_AFTER_TRAIN;
    bool held =
        phase == PHASE_BEFORE_HELD || phase == PHASE_EPOCH_HELD || phase == PHASE_SERVED_HELD;
    j->phase = phase;
    j->at = 0;
    j->end = held ? j->n_held : j->n_train;
    j->loss_sum = 0;
    j->loss_count = 0;
    if (phase == PHASE_STEPS) {
        if (j->started_ns == 0) j->started_ns = clock_monotonic_ns();
        begin_step(j);
    }
    if (phase == PHASE_SERVED_TRAIN) round_weights(j);
    train_pass_as_served(j->pass, phase == PHASE_SERVED_TRAIN || phase == PHASE_SERVED_HELD);
}

static void finish(train_job *j, train_state state, const char *message)
{
    pf_err err = {0};
    buf blob = {0};
    const model *m = engine_model(j->e);
    pf_status status = train_params_write(&j->params, model_get_config(m), KN_BF16, model_digest(m),
                                          model_name(m), &blob, &err);
    if (status == PF_OK) {
        pthread_mutex_lock(&j->lock);
        j->result = blob;
        pthread_mutex_unlock(&j->lock);
    } else {
        buf_free(&blob);
        state = TRAIN_FAILED;
        message = err.text;
    }
    j->phase = PHASE_END;
    set_state(j, state, message);
}

/* Something went wrong in training: the best state so far is the result. */
static void stop_at_best(train_job *j, const char *reason)
{
    char message[512];
    bool any = j->best_loss < 1e29;
    snprintf(message, sizeof message, "%s (step %lld of %lld); %s", reason,
             (long long)(j->step < j->n_steps ? j->step + 1 : j->step), (long long)j->n_steps,
             any ? "the best state so far was kept. A smaller learning rate may help"
                 : "nothing was learned that could be kept. Try a smaller learning rate");
    if (!any) {
        j->phase = PHASE_END;
        set_state(j, TRAIN_FAILED, message);
        return;
    }
    use_values(j, j->best);
    finish(j, TRAIN_STOPPED, message);
}

/* What the job holds is worthless. After a want of memory or a lost device the last checkpoint can
 * be gone on from; data or a checkpoint that were refused would be again. */
static void fail(train_job *j, const pf_err *err)
{
    char message[512];
    pthread_mutex_lock(&j->lock);
    j->progress.resumable = err->status == PF_NO_MEMORY || err->status == PF_FAILED;
    pthread_mutex_unlock(&j->lock);
    if (j->phase == PHASE_STEPS)
        snprintf(message, sizeof message, "step %lld of %lld: %.440s", (long long)j->step + 1,
                 (long long)j->n_steps, err->text);
    else
        snprintf(message, sizeof message, "%.500s", err->text);
    j->phase = PHASE_END;
    set_state(j, TRAIN_FAILED, message);
}

/* Mean of the last losses; *known: there are enough of them. */
static double smooth_loss(train_job *j, bool *known)
{
    double sum = 0;
    size_t n = j->progress.n_losses;
    *known = n >= SMOOTH_STEPS;
    size_t count = *known ? SMOOTH_STEPS : n;
    for (size_t i = n - count; i < n; i++)
        sum += j->losses[i];
    return sum / (double)(count ? count : 1);
}

static void record_step(train_job *j, double loss, double grad_norm)
{
    int64_t now = clock_monotonic_ns();
    pthread_mutex_lock(&j->lock);
    train_progress *p = &j->progress;
    if (p->n_losses == j->cap_losses) {
        j->cap_losses = j->cap_losses ? j->cap_losses * 2 : 256;
        j->losses = xrealloc_array(j->losses, j->cap_losses, sizeof *j->losses);
    }
    j->losses[p->n_losses++] = (float)loss;
    p->loss = loss;
    p->grad_norm = grad_norm;
    p->rate = optimizer_rate(&j->options.optimizer, j->step, j->n_steps);
    p->step = j->step + 1;
    p->share_done = (double)p->step / (double)j->n_steps;
    p->tokens_done = j->train_tokens;
    double tokens = (double)(j->train_tokens - j->first_tokens);
    if (j->busy_ns > 0) p->tokens_per_second = tokens * 1e9 / (double)j->busy_ns;
    double wall = (double)(now - j->started_ns) * 1e-9;
    if (wall > 0) p->wall_tokens_per_second = tokens / wall;
    p->seconds_left = wall / (double)(p->step - j->first_step) * (double)(j->n_steps - p->step);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* Saving takes time in which the job goes on: checkpoints are offered twice as often as promised,
 * so that the one before is not too old when the process dies meanwhile. */
static int64_t offer_steps(const train_job *j)
{
    return j->options.checkpoint_steps > 1 ? j->options.checkpoint_steps / 2 : 1;
}

/* The job is as far ahead of the last saved checkpoint as may get lost. */
static bool must_wait(train_job *j)
{
    if (j->options.checkpoint_steps <= 0 || j->phase != PHASE_STEPS) return false;
    pthread_mutex_lock(&j->lock);
    bool wait = j->step - j->saved_step >= j->options.checkpoint_steps;
    pthread_mutex_unlock(&j->lock);
    return wait;
}

/* The batch is through: update, look for divergence, go on. */
static void end_step(train_job *j)
{
    double norm = 0, loss = j->loss_sum / j->divisor;
    pf_err err = {0};
    if (!isfinite(loss)) {
        stop_at_best(j, "the loss is not finite");
        return;
    }
    pf_status status =
        optimizer_step(&j->options.optimizer, &j->params, j->step, j->n_steps, &norm, &err);
    if (train_pass_check(j->pass, &err) != PF_OK) {
        fail(j, &err);
        return;
    }
    if (status != PF_OK) {
        stop_at_best(j, "the gradient is not finite");
        return;
    }
    record_step(j, loss, norm);
    bool known;
    double smooth = smooth_loss(j, &known);
    if (known && smooth > 1.5 * j->progress.train_before + 1) {
        stop_at_best(j, "the loss grows instead of falling");
        return;
    }
    if (known && j->n_held == 0) keep_best(j, smooth);
    j->step++;
    if (j->options.checkpoint_steps > 0 && j->step % offer_steps(j) == 0 && j->step < j->n_steps)
        make_checkpoint(j);
    begin_phase(j, checks_held_out(j, j->step) ? PHASE_EPOCH_HELD : PHASE_STEPS);
}

/* An evaluation is through: note its loss, go on. */
static void end_evaluation(train_job *j)
{
    double loss = j->loss_count ? j->loss_sum / (double)j->loss_count : NAN;
    static const job_phase next[] = {
        [PHASE_BEFORE_TRAIN] = PHASE_BEFORE_HELD, [PHASE_BEFORE_HELD] = PHASE_STEPS,
        [PHASE_EPOCH_HELD] = PHASE_STEPS,         [PHASE_AFTER_TRAIN] = PHASE_SERVED_TRAIN,
        [PHASE_SERVED_TRAIN] = PHASE_SERVED_HELD,
    };
    train_progress *p = &j->progress;
    pthread_mutex_lock(&j->lock);
    if (j->phase == PHASE_BEFORE_TRAIN) p->train_before = loss;
    if (j->phase == PHASE_BEFORE_HELD) p->held_out_before = p->held_out_now = loss;
    if (j->phase == PHASE_EPOCH_HELD) p->held_out_now = loss;
    if (j->phase == PHASE_AFTER_TRAIN) p->train_after = loss;
    if (j->phase == PHASE_SERVED_TRAIN) p->train_served = loss;
    if (j->phase == PHASE_SERVED_HELD) p->held_out_served = loss;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    if (j->phase == PHASE_EPOCH_HELD) keep_best(j, loss);
    if (j->phase == PHASE_AFTER_TRAIN && !(loss < p->train_before)) {
        stop_at_best(j, "the loss is not lower than before the training");
        return;
    }
    if (j->phase == PHASE_SERVED_HELD) {
        use_values(j, j->masters);
        finish(j, TRAIN_DONE, NULL);
        return;
    }
    begin_phase(j, next[j->phase]);
}

/* --- slices --------------------------------------------------------------------------------- */

/* Starts a pass over the next examples of the list that fit; false when the list is through, or the
 * job with it because the pass can't be computed. */
static bool begin_pass(train_job *j)
{
    const size_t *list = phase_list(j);
    row_count count = {0};
    size_t n = 0;
    for (; j->at + n < j->end; n++) {
        j->sequences[n] = train_example_sequence(&j->data.items[list[j->at + n]]);
        if (!row_count_add(&count, j->sequences, n, j->max_rows)) break;
    }
    if (n == 0) return false;
    pf_err err = {0};
    bool training = j->phase == PHASE_STEPS;
    if (train_pass_begin(j->pass, &j->params, j->sequences, n, training, j->divisor, NULL, NULL,
                         &err) != PF_OK) {
        fail(j, &err);
        return false;
    }
    j->at += n;
    if (training) j->train_tokens += (int64_t)count.tokens;
    return true;
}

static void take_pass_loss(train_job *j)
{
    size_t n = 0;
    const float *logp = train_pass_logp(j->pass, &n);
    for (size_t i = 0; i < n; i++)
        j->loss_sum -= logp[i];
    j->loss_count += n;
}

/* The next pass, of this step or evaluation or of what follows; false when the job has ended. */
static bool next_pass(train_job *j)
{
    while (!begin_pass(j)) {
        if (j->phase == PHASE_STEPS)
            end_step(j);
        else if (j->phase != PHASE_END)
            end_evaluation(j);
        if (j->phase == PHASE_END) return false;
    }
    return true;
}

/* The next unit of work; false when the job has ended. */
static bool advance(train_job *j)
{
    pf_err err = {0};
    if (train_pass_advance(j->pass)) return true;
    if (train_pass_check(j->pass, &err) != PF_OK) {
        fail(j, &err);
        return false;
    }
    take_pass_loss(j);
    return next_pass(j);
}

/* Opens the job and its first pass; false when it has ended. */
static bool open_slice(train_job *j, const packed_model *weights)
{
    pf_err err = {0};
    if (open_job(j, weights, &err) != PF_OK) {
        fail(j, &err);
        return false;
    }
    return next_pass(j);
}

/* Offers the present state, so that the job can be gone on from. Before the first step there is
 * nothing worth keeping. */
static void suspend(train_job *j)
{
    if (j->phase < PHASE_STEPS || j->phase == PHASE_END) return;
    if (j->phase == PHASE_SERVED_TRAIN || j->phase == PHASE_SERVED_HELD) use_values(j, j->masters);
    make_checkpoint(j);
}

static background_state slice(void *ctx, const packed_model *weights, int64_t budget_ns)
{
    train_job *j = ctx;
    int64_t start = clock_monotonic_ns();
    if (atomic_load(&j->cancel)) {
        set_state(j, TRAIN_CANCELLED, NULL);
        return BACKGROUND_DONE;
    }
    if (atomic_load(&j->suspend)) {
        if (j->opened) suspend(j);
        set_state(j, TRAIN_SUSPENDED, NULL);
        return BACKGROUND_DONE;
    }
    if (atomic_load(&j->pause)) {
        if (j->paused_ns == 0) j->paused_ns = start;
        set_state(j, TRAIN_PAUSED, NULL);
        return BACKGROUND_PAUSED;
    }
    if (j->paused_ns) {
        if (j->started_ns) j->started_ns += start - j->paused_ns;
        j->paused_ns = 0;
        set_state(j, TRAIN_RUNNING, NULL);
    }
    if (!j->opened && !open_slice(j, weights)) return BACKGROUND_DONE;
    bool more = true;
    int64_t now = clock_monotonic_ns();
    while (more && now - start < budget_ns) {
        if (must_wait(j)) return BACKGROUND_PAUSED;
        int64_t begin = now;
        bool training = j->phase == PHASE_STEPS;
        more = advance(j);
        now = clock_monotonic_ns();
        if (training) j->busy_ns += now - begin;
    }
    return more ? BACKGROUND_MORE : BACKGROUND_DONE;
}

static void ended(void *ctx)
{
    train_job *j = ctx;
    wipe_free(j->best, j->params.count * sizeof *j->best);
    wipe_free(j->masters, j->params.count * sizeof *j->masters);
    j->best = j->masters = NULL;
    train_pass_close(j->pass);
    j->pass = NULL;
    train_params_free(&j->params);
    pthread_mutex_lock(&j->lock);
    if (j->progress.state == TRAIN_RUNNING || j->progress.state == TRAIN_PAUSED)
        j->progress.state = TRAIN_CANCELLED;
    j->ended = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* --- life ----------------------------------------------------------------------------------- */

static void list_examples(train_job *j)
{
    size_t repeats = 0, longest = TRAIN_PASS_ROWS;
    for (size_t i = 0; i < j->data.n; i++) {
        repeats += (size_t)j->data.items[i].repeat;
        if ((size_t)j->data.items[i].length > longest) longest = (size_t)j->data.items[i].length;
    }
    j->max_rows = longest;
    j->examples = xcalloc(repeats, sizeof *j->examples);
    j->order = xcalloc(repeats, sizeof *j->order);
    j->held = xcalloc(j->data.n, sizeof *j->held);
    j->train = xcalloc(j->data.n, sizeof *j->train);
    for (size_t i = 0; i < j->data.n; i++) {
        if (j->data.items[i].held_out) {
            j->held[j->n_held++] = i;
            continue;
        }
        j->train[j->n_train++] = i;
        for (int r = 0; r < j->data.items[i].repeat; r++)
            j->examples[j->n_examples++] = i;
    }
    size_t stride = (j->n_train + MEASURED - 1) / MEASURED, kept = 0;
    for (size_t i = 0; i < j->n_train; i += stride)
        j->train[kept++] = j->train[i];
    j->n_train = kept;
    size_t most = j->n_examples > j->data.n ? j->n_examples : j->data.n;
    j->sequences = xcalloc(most + 1, sizeof *j->sequences);
}

pf_status train_job_check_count(size_t n, const train_job_options *o, pf_err *err)
{
    if (n < TRAIN_MIN_EXAMPLES)
        return err_set(
            err, PF_USAGE,
            "%zu example%s to learn from; at least %d are needed. Rate or rewrite more answers, or "
            "give a file of conversations",
            n, n == 1 ? "" : "s", TRAIN_MIN_EXAMPLES);
    if (o->batch < 1 || o->epochs < 1)
        return err_set(err, PF_USAGE, "batch and epochs must be at least 1");
    if (!(o->optimizer.rate > 0) || !isfinite(o->optimizer.rate))
        return err_set(err, PF_USAGE, "the learning rate must be positive");
    return PF_OK;
}

pf_status train_job_check(const train_dataset *data, size_t replayed, const train_job_options *o,
                          pf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < data->n; i++)
        n += !data->items[i].held_out;
    return train_job_check_count(n > replayed ? n - replayed : 0, o, err);
}

train_steps train_job_steps(size_t n, const train_job_options *o)
{
    const size_t batch = o->batch > 0 ? (size_t)o->batch : 1;
    train_steps steps = {.per_epoch = (int64_t)((n + batch - 1) / batch)};
    steps.all = steps.per_epoch * o->epochs;
    if (o->max_steps > 0 && o->max_steps < steps.all) steps.all = o->max_steps;
    return steps;
}

pf_status train_job_start(engine *e, train_dataset *data, const train_job_options *options,
                          const void *start, size_t start_len, const void *checkpoint,
                          size_t checkpoint_len, train_job **out, pf_err *err)
{
    pf_status status = train_job_check(data, 0, options, err);
    if (status != PF_OK) return status;
    train_job *j = xcalloc(1, sizeof *j);
    j->e = e;
    j->data = *data;
    *data = (train_dataset){0};
    j->options = *options;
    if (start) buf_append(&j->start, start, start_len);
    if (checkpoint) buf_append(&j->checkpoint_in, checkpoint, checkpoint_len);
    list_examples(j);
    const train_steps steps = train_job_steps(j->n_examples, options);
    j->steps_per_epoch = steps.per_epoch;
    j->n_steps = steps.all;
    train_progress *p = &j->progress;
    p->n_steps = j->n_steps;
    p->loss = p->grad_norm = p->seconds_left = NAN;
    p->held_out_before = p->held_out_now = p->held_out_served = NAN;
    p->train_before = p->train_after = p->train_served = NAN;
    pthread_mutex_init(&j->lock, NULL);
    clock_cond_init(&j->changed);
    background_work work = {.slice = slice, .ended = ended, .ctx = j};
    engine_background_start(e, &work);
    *out = j;
    return PF_OK;
}

void train_job_free(train_job *j)
{
    if (!j) return;
    engine_background_stop(j->e, j);
    train_dataset_free(&j->data);
    buf_free(&j->start);
    buf_free(&j->checkpoint_in);
    buf_free(&j->checkpoint_out);
    buf_free(&j->result);
    free(j->examples);
    free(j->order);
    free(j->held);
    free(j->train);
    free(j->sequences);
    free(j->losses);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    free(j);
}
