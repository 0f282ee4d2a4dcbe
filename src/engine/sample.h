/* From logits to the next token. Everything is a function of one row of logits, the request's own
 * tokens and (seed, number of the generated token): the batch, preemption and recompute can't
 * change a choice. Sums run in a fixed order, in double. */
#ifndef PF_ENGINE_SAMPLE_H
#define PF_ENGINE_SAMPLE_H

#include "engine/engine.h"
#include "kernels/backend.h"

#include <stdbool.h>
#include <stdint.h>

/* PF_USAGE naming the field when a setting is not finite or out of range. */
pf_status sampling_check(const sampling_options *options, pf_err *err);

/* Scratch memory for one row; reused from row to row. Zeroed = empty. */
typedef struct {
    float *logits;  /* [cap] with the repetition penalty */
    double *weight; /* [cap] */
    int32_t *order; /* [cap] candidates */
    int cap;
} sample_scratch;
void sample_scratch_free(sample_scratch *s); /* overwritten first */

/* The next token. Order: repetition penalty over the last repeat_last of tokens[0..n), then
 * temperature 0: the largest logit (the lowest id among equals); else temperature, top-k, top-p,
 * min-p, and a choice by the number draw(seed, index). -1: the logits hold a NaN or no finite
 * value. */
int32_t sample_token(sample_scratch *s, const sampling_options *options, const float *logits,
                     int vocab, const int32_t *tokens, int n, uint64_t seed, uint64_t index);

/* The same choice as a device makes it (kn_backend_ops.sample), with the log-probabilities of
 * sample_logprobs. Borrows tokens. n_top: -1 = none. */
void sample_describe(const sampling_options *options, const int32_t *tokens, int n, uint64_t seed,
                     uint64_t index, int n_top, kn_sample *out);

/* A number in [0, 1) that depends on (seed, index) alone. */
double sample_draw(uint64_t seed, uint64_t index);

/* Log-probabilities of the unmodified logits: of id, and of the n_top largest in descending order
 * (ids ascending among equals). Finite for finite logits. n_top <= ENGINE_MAX_TOP, <= vocab. */
void sample_logprobs(const float *logits, int vocab, int32_t id, int n_top, float *logprob,
                     token_logprob *top);

#endif
