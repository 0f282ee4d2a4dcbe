/* One training pass: forward and backward over a batch of conversations, in small units of work, so
 * that the engine can serve requests between them.
 *
 * The base model is frozen and stays quantized: gradients run through its packed weights. The same
 * marks are used as in serving: a token whose mark is set is adapted, all others see the base.
 * Common prefixes of the conversations of a batch are computed once (row_map.h). Activations are
 * kept for as many blocks as the budget allows; the other blocks are recomputed in the backward
 * pass (activation checkpointing).
 *
 * Not thread-safe; runs on the backend's thread. */
#ifndef PF_TRAIN_PASS_H
#define PF_TRAIN_PASS_H

#include "base/err.h"
#include "engine/weights.h"
#include "train/params.h"
#include "train/row_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct train_pass train_pass;

/* Turns the log-probabilities of some targets into the weights of their gradients: the loss is
 * -sum weight * logp as far as the gradient is concerned. Targets are numbered over the batch in
 * order. NULL callback: every weight is 1 / divisor. Targets with a teacher have that weight too,
 * and are not shown. */
typedef void (*train_weigh)(void *ctx, int first_target, int n, const float *logp, float *weight);

/* Defaults of jobs; longer conversations get more rows. */
#define TRAIN_PASS_ROWS        512
#define TRAIN_ACTIVATION_BYTES ((size_t)448 << 20)

typedef struct {
    size_t max_rows;         /* most rows of a batch: row_count_add tells what fits */
    size_t activation_bytes; /* budget for kept blocks; at least one block is always kept */
} train_pass_options;

/* weights is borrowed (the engine's packed model). PF_NO_MEMORY names what was asked for. */
pf_status train_pass_open(const packed_model *weights, const train_pass_options *options,
                          train_pass **out, pf_err *err);
void train_pass_close(train_pass *p); /* NULL is fine */

/* Whether the forward passes from now on compute as answers are served, with quantized activations
 * on some devices; else (the default) exactly, as gradients need it. */
void train_pass_as_served(train_pass *p, bool served);

/* Starts a pass: p's gradients will be added to params->grad (params may be NULL: the base model,
 * forward only). backward false: losses only. divisor as in train_weigh. The batch must fit
 * max_rows (PF_USAGE; row_count_add). PF_FAILED: the device failed, now or in what was done before
 * the batch. */
pf_status train_pass_begin(train_pass *p, train_params *params, const train_sequence *sequences,
                           size_t n_sequences, bool backward, double divisor, train_weigh weigh,
                           void *weigh_ctx, pf_err *err);
/* Does the next unit of work (about one half of a block) and waits for it; false when the pass has
 * ended, or when the device failed: train_pass_check tells. */
bool train_pass_advance(train_pass *p);
/* PF_FAILED, saying how, when the device has failed in this batch or in what was done with its
 * gradients since (the losses, gradients and trained values are undefined then); the device is
 * ready for other work again. Each unit checks by itself, before the engine's steps clear the
 * failure. */
pf_status train_pass_check(train_pass *p, pf_err *err);
/* Units done and in all, for progress and slicing. */
void train_pass_progress(const train_pass *p, int *done, int *total);

/* Rows and tokens of the current batch. */
void train_pass_count(const train_pass *p, row_count *count);

/* Writes the normed output state that each target is predicted from to states[targets, hidden]
 * (host memory, borrowed until the pass has ended). After begin, before the first advance. */
void train_pass_keep_states(train_pass *p, float *states);

/* After the pass: the targets' log-probabilities in order (of targets with a teacher: -KL);
 * borrowed until the next begin. */
const float *train_pass_logp(const train_pass *p, size_t *n);

#endif
