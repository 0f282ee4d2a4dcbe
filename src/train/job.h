/* A training job: epochs over a data set, in slices on the engine's thread, so that chats continue
 * meanwhile. It does not know the store: its owner saves the checkpoints that it offers, and its
 * result.
 *
 * Threads. The functions here may be called from any thread; the work itself is done by the engine
 * thread. Everything random comes from the seed: the same job gives the same bytes on any number of
 * threads, however often it was paused or resumed from a checkpoint. */
#ifndef PF_TRAIN_JOB_H
#define PF_TRAIN_JOB_H

#include "base/buf.h"
#include "engine/engine.h"
#include "train/dataset.h"
#include "train/optimizer.h"
#include "train/params.h"

#include <stdint.h>

typedef struct train_job train_job;

typedef struct {
    train_shape shape; /* of a new adapter */
    optimizer_options optimizer;
    int epochs;
    int64_t max_steps;        /* 0 = as the epochs give */
    int batch;                /* conversations per step */
    uint64_t seed;            /* order of the examples */
    int64_t checkpoint_steps; /* most steps that a crash may lose; 0 = no checkpoints */
    size_t activation_bytes;  /* 0 = default */
} train_job_options;

typedef enum {
    TRAIN_RUNNING,
    TRAIN_PAUSED,
    TRAIN_DONE,      /* all steps done */
    TRAIN_CANCELLED, /* no result */
    TRAIN_SUSPENDED, /* ended; offers a checkpoint to resume from, if a step had begun */
    TRAIN_STOPPED,   /* diverged or not finite: the best state so far is the result */
    TRAIN_FAILED     /* could not run: message */
} train_state;

/* Loss: mean over targets, nats. NAN where it is not known (yet). */
typedef struct {
    train_state state;
    char message[512]; /* of STOPPED and FAILED */
    bool resumable;    /* of FAILED: the cause was external; checkpoints remain valid */
    int64_t step, n_steps;
    double share_done;             /* 0..1, evaluations included */
    double tokens_per_second;      /* of training, while the job had the processor */
    double wall_tokens_per_second; /* since the start */
    double seconds_left;           /* estimate; NAN at first */
    double loss, grad_norm, rate;  /* of the last step */
    double held_out_before, held_out_now;
    double train_before, train_after;     /* over training examples, at most 24 of them */
    double held_out_served, train_served; /* as they serve: bf16, the serving kernels */
    int64_t tokens_done;
    size_t n_losses; /* see train_job_losses */
} train_progress;

/* Checks what train_job_start would refuse: too little data (says how much is needed), options out
 * of range. replayed: the number of examples that don't count as training data of the user's own.
 */
pf_status train_job_check(const train_dataset *data, size_t replayed,
                          const train_job_options *options, pf_err *err);

/* The same for n examples that are learned, where they are not there yet. */
pf_status train_job_check_count(size_t n, const train_job_options *options, pf_err *err);

typedef struct {
    int64_t per_epoch, all;
} train_steps;
/* The optimizer steps of a training on n examples, max_steps included. */
train_steps train_job_steps(size_t n, const train_job_options *options);

/* Starts a job on e. data is moved (the job frees it; d is zeroed). start: NULL for a new adapter
 * of options->shape, or a blob to go on from. checkpoint: NULL or what train_job_take_checkpoint
 * gave, made by the same job (options, data and start). PF_USAGE as train_job_check. */
pf_status train_job_start(engine *e, train_dataset *data, const train_job_options *options,
                          const void *start, size_t start_len, const void *checkpoint,
                          size_t checkpoint_len, train_job **out, pf_err *err);

void train_job_get(train_job *j, train_progress *out);
/* Losses of steps first.. (at most n), from the very first step also when resumed; returns how many
 * were written. */
size_t train_job_losses(train_job *j, size_t first, size_t n, float *out);
/* Blocks until something changed (a step, the state) or timeout_ms passed. */
void train_job_wait(train_job *j, int timeout_ms);

void train_job_pause(train_job *j, bool pause);
void train_job_cancel(train_job *j);
/* Ends the job as soon as possible; if it had begun to train, it offers a checkpoint first. */
void train_job_suspend(train_job *j);

/* Takes the newest checkpoint that was not taken yet; false if there is none. They are offered more
 * often than checkpoint_steps, and the job waits before it is further ahead of the last saved one
 * than that: train_job_checkpoint_saved has to follow. */
bool train_job_take_checkpoint(train_job *j, buf *out, int64_t *step);
void train_job_checkpoint_saved(train_job *j, int64_t step);

/* The adapter as a blob in bf16, after DONE or STOPPED; PF_FAILED in other states. */
pf_status train_job_result(train_job *j, buf *blob, pf_err *err);

/* Ends the job if it runs, and frees it. Before engine_close. NULL is fine. */
void train_job_free(train_job *j);

/* The fewest conversations to train on. */
#define TRAIN_MIN_EXAMPLES 4

#endif
