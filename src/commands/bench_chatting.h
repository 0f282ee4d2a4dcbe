/* `preft bench train --chatting N`: what people who chat notice of a training, and what is left of
 * its speed. */
#ifndef PF_COMMANDS_BENCH_CHATTING_H
#define PF_COMMANDS_BENCH_CHATTING_H

#include "commands/bench.h"
#include "train/job.h"

typedef struct {
    double before,
        during;     /* seconds per token of a running answer: median over the people's means */
    double longest; /* seconds between two tokens while training, the longest */
    double alone, beside; /* tokens per second of the job: nobody chats, people chat */
} bench_chatting;

/* An engine of its own; data (moved) is trained on with `options` for as long as it is measured.
 * Each of the three windows takes `seconds`. */
pf_status bench_chatting_run(const command_context *ctx, const model *m, train_dataset *data,
                             const train_job_options *options, int people, double seconds,
                             bench_chatting *out, pf_err *err);

#endif
