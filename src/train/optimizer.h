/* The optimizer: gradient clipping, learning-rate schedules, AdamW, and DiReFT's orthonormal rows.
 */
#ifndef PF_TRAIN_OPTIMIZER_H
#define PF_TRAIN_OPTIMIZER_H

#include "train/params.h"

typedef enum { RATE_CONSTANT, RATE_COSINE } rate_schedule;

typedef struct {
    double rate; /* peak learning rate */
    rate_schedule schedule;
    double final_share;  /* cosine: rate at the end, as a share of the peak */
    double warmup_share; /* share of the steps in which the rate rises from 0 */
    double beta1, beta2, eps, decay;
    double clip;      /* largest gradient norm; 0 = no clipping */
    bool orthonormal; /* DiReFT: R's rows are made orthonormal after each step */
} optimizer_options;

/* AdamW with betas 0.9 and 0.999, eps 1e-8, no decay, clip 1, constant rate. */
optimizer_options optimizer_defaults(double rate);

/* Learning rate of step number step (from 0) of n_steps. */
double optimizer_rate(const optimizer_options *o, int64_t step, int64_t n_steps);

/* One step with the gradients in p->grad, scaled by min(1, clip / (norm + 1e-6)); clears them.
 * PF_FAILED, and nothing changed but the cleared gradients, when the norm is not finite. */
pf_status optimizer_step(const optimizer_options *o, train_params *p, int64_t step, int64_t n_steps,
                         double *grad_norm, pf_err *err);

/* DiReFT: makes the rows of each R orthonormal, as a step with that option does. */
void optimizer_orthonormalize(train_params *p);

#endif
