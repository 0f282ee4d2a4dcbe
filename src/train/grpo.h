/* Group-relative policy optimisation: advantages of a group of answers to one prompt, the clipped
 * surrogate with a KL term against the base, and its variants. Pure arithmetic; rollouts are the
 * job's business.
 *
 * Per token: ratio = exp(logp - old), loss = -min(ratio A, clip(ratio, low, high) A) + beta k3 with
 * k3 = exp(ref - logp) - (ref - logp) - 1 (Schulman's estimator of KL(policy || ref)). */
#ifndef PF_TRAIN_GRPO_H
#define PF_TRAIN_GRPO_H

#include "train/pass.h"

typedef enum {
    GRPO_STD,            /* (r - mean) / (s + spread), s the sample standard deviation (n - 1) */
    GRPO_STD_POPULATION, /* the same with n */
    GRPO_CENTRED         /* r - mean (Dr. GRPO) */
} grpo_advantage;

/* What keeps the division finite, as in the paper's formula. */
#define GRPO_LEAST_SPREAD 1e-4

typedef enum {
    GRPO_SEQUENCE_MEAN, /* mean over the tokens of an answer, then over the answers */
    GRPO_TOKEN_MEAN,    /* mean over all tokens */
    GRPO_FIXED_LENGTH   /* sum / (answers * longest possible answer) (Dr. GRPO) */
} grpo_average;

typedef struct {
    double low, high; /* 0.8, 1.2 */
    double beta;      /* 0.04 */
    grpo_average average;
    int max_length; /* of an answer, for GRPO_FIXED_LENGTH */
} grpo_options;

/* Advantages of one group. With a spread as large as a common s, a group whose rewards hardly
 * differ hardly counts; with GRPO_LEAST_SPREAD it counts as much as any other. */
void grpo_advantages(grpo_advantage kind, double spread, const double *rewards, size_t n,
                     double *out);

/* How much of its reward an answer keeps for being likely: exp(-sense * max(0, loss - free)), loss
 * the mean over its n tokens under the base model, whose log-probabilities logp holds; free: the
 * loss that costs nothing. With ends the last token is the end token, which isn't counted (unless
 * it is all there is): the end is unlikely in a short answer, and weighs more the shorter it is, so
 * that asking for likely answers would ask for long ones. 1 without tokens. */
double grpo_sense(double sense, double free, const float *logp, size_t n, bool ends);

/* How surely an answer is about its own question: tanh(d / 2), or 0 where that is less. d is the
 * sum over its tokens (without the end token) of own - other: log-probabilities under the base
 * model behind its own question and behind another one. It is the logarithm of the odds that the
 * answer belongs to its own of the two: 0 where it says nothing about that, 1 where it leaves no
 * doubt. What is as likely behind every question (the system text, a greeting) gets 0. */
double grpo_about(const float *own, const float *other, size_t n, bool ends);

/* The answers of a batch, as train_pass sees them: targets in order, answer after answer. Arrays
 * are borrowed; the last four are written per target when not NULL. */
typedef struct {
    grpo_options options;
    size_t n_answers;
    const int32_t *length;   /* [n_answers] targets of each answer */
    const double *advantage; /* [n_answers] */
    const float *old_logp; /* [targets]; NULL: the policy is as it was when it answered (ratio 1) */
    const float *ref_logp; /* [targets] */
    float *ratio, *kl;
    unsigned char *clipped; /* 1 where the clipped branch is the smaller */
    double loss;            /* summed up by grpo_weigh; set to 0 before a pass */
    double kl_sum;          /* k3 over the tokens, likewise */
    size_t n_clipped;       /* tokens whose clipped branch is the smaller, likewise */
    size_t n_in_all;        /* answers of the whole step, over all its batches; 0 = n_answers */
    size_t tokens_in_all;   /* targets of the whole step; 0 = of this batch */
} grpo_batch;

/* The train_weigh callback; ctx is a grpo_batch. */
void grpo_weigh(void *ctx, int first_target, int n, const float *logp, float *weight);

#endif
