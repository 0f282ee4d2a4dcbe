/* `preft bench train --chatting N`: how a training slows concurrent chats, and how they slow the
 * training. */
#ifndef PF_COMMANDS_BENCH_CHATTING_H
#define PF_COMMANDS_BENCH_CHATTING_H

#include "commands/bench/bench.h"
#include "train/job.h"

/* Medians over rounds that take turns at everything: an answer with the job paused and with it
 * running, the job with nobody chatting, and the same training steps without an engine. */
typedef struct {
    double before,
        during;     /* seconds per token of a running answer: median over the people's means */
    double ratio;   /* during / before, of a round */
    double longest; /* seconds between two tokens while training, the longest of all */
    double alone, beside; /* tokens per second of the job: nobody chats, people chat */
    double share;         /* alone, of the rate of the steps without an engine, in a round */
} bench_chatting;

/* One of the job's steps, on the caller's thread. Sets *tokens that it trained. */
typedef pf_status (*bench_chatting_step)(void *ctx, double *tokens, pf_err *err);

/* An engine of its own; data (moved) is trained on with `options` for as long as it is measured,
 * about `seconds` for each of the four kinds. */
pf_status bench_chatting_run(const command_context *ctx, const model *m, train_dataset *data,
                             const train_job_options *options, int people, double seconds,
                             bench_chatting_step step, void *step_ctx, bench_chatting *out,
                             pf_err *err);

#endif
