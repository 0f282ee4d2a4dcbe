/* On-policy reinforcement learning with GRPO (train/grpo.h): answers are sampled by the same engine
 * that serves everyone, with the weights of the moment; rewarded; and one update is made from them.
 * After each step the new weights are published to the engine (weight sync): a new version with a
 * new digest, so that no page of the old one is ever used again.
 *
 * policy_run blocks the calling thread, which samples and scores; gradients are computed on the
 * engine's thread in slices between other people's steps. */
#ifndef PF_TRAIN_POLICY_H
#define PF_TRAIN_POLICY_H

#include "base/buf.h"
#include "engine/engine.h"
#include "train/grpo.h"
#include "train/optimizer.h"
#include "train/params.h"

#include <stddef.h>
#include <stdint.h>

/* A question; messages are borrowed until policy_run returns. */
typedef struct {
    const chat_message *messages;
    size_t n_messages;
} policy_prompt;

typedef struct {
    train_shape shape; /* of a new adapter */
    optimizer_options optimizer;
    grpo_options grpo;
    grpo_advantage advantage;
    int prompts_per_step; /* questions of a step */
    int group;            /* answers to each, at least 2 */
    int max_tokens;       /* of an answer */
    int updates;          /* steps of the optimizer with the answers of a step; from the second on
                             the clipped surrogate keeps the weights near those that answered */
    int check_prompts;    /* prompts that are kept aside; at most a quarter of all are. After each
                             step they are answered greedily, and the result is the weights whose
                             answers did best. 0: those after the last step */
    double temperature;   /* of sampling in the first step; the gradient is that of temperature 1 */
    double last_temperature; /* in the last step, on a line between; 0 = as in the first */
    double cut_off; /* share of its reward that an answer keeps which max_tokens cut off, 0 to 1: at
                       0 the rules' chance hits on pieces of answers don't drown what ended */
    double trust;   /* nats per token that a step may move the weights' answers (KL): a step that
                       goes further is cut short, so that one lucky answer can't upset all. 0: any */
    double ema; /* decay of the weights' exponential moving average over the steps, 0 to below 1: a
                   run results in the average, and check_prompts judges it, while answers are
                   sampled with the newest weights. 0: the newest weights themselves */
    double sense, sense_free; /* rewards are multiplied by grpo_sense: nonsense that keeps the rules
                                 counts less. They must not be negative then */
    double about;             /* and by 1 - about (1 - grpo_about), the other question being the
                                 step's next: words that would answer anything count less. 0 to 1;
                                 without effect where the questions have the same text */
    double spread;            /* of grpo_advantages, at least GRPO_LEAST_SPREAD */
    int64_t steps;
    uint64_t seed; /* questions, samples */
} policy_options;

/* A step's account. */
typedef struct {
    int64_t step, n_steps;      /* step counts from 1 */
    double reward;              /* mean over the step's answers, what they score by the rules */
    double ended;               /* share of the answers that max_tokens did not cut off */
    double base_loss;           /* mean over the answers of their loss under the base model */
    double about;               /* mean over the answers of grpo_about; 0 where it has no effect */
    size_t checked;             /* greedy answers to what is kept aside, after the step; 0: none */
    double check, check_reward; /* means over them: what they count for, and the score alone */
    bool kept;                  /* the weights after this step are the result so far */
    double kl;              /* mean k3 per token against the base, of the weights that answered */
    double loss, grad_norm; /* of the step's first update */
    double moved;   /* nats per token that the updates went, before options.trust; 0 without it */
    double clipped; /* share of the tokens that the last update clips */
    double tokens;  /* mean length of the answers */
    double sample_seconds, train_seconds, sync_seconds;
} policy_step;

/* The caller's side. score: the reward of an answer to prompts[prompt]. step: called after each
 * step; false stops the run (its result is what was reached). */
typedef struct {
    double (*score)(void *ctx, size_t prompt, const char *answer, size_t len);
    bool (*step)(void *ctx, const policy_step *s);
    void *ctx;
} policy_caller;

/* Runs the steps; start: NULL for a new adapter, or a blob to go on from. *blob receives the
 * adapter in bf16, see ema and check_prompts. PF_FAILED when a gradient is not finite (the result
 * is one of the weights before it then, and *blob is filled), PF_USAGE for options out of range. */
pf_status policy_run(engine *e, const policy_prompt *prompts, size_t n_prompts,
                     const policy_options *options, const void *start, size_t start_len,
                     const policy_caller *caller, buf *blob, pf_err *err);

#endif
