#include "train/grpo.h"

#include <math.h>

void grpo_advantages(grpo_advantage kind, double spread, const double *rewards, size_t n,
                     double *out)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += rewards[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (rewards[i] - mean) * (rewards[i] - mean);
    double count = kind == GRPO_STD ? (double)n - 1 : (double)n;
    double deviation = count > 0 ? sqrt(square / count) : 0;
    for (size_t i = 0; i < n; i++)
        out[i] =
            kind == GRPO_CENTRED ? rewards[i] - mean : (rewards[i] - mean) / (deviation + spread);
}

double grpo_sense(double sense, double free, const float *logp, size_t n, bool ends)
{
    double sum = 0;
    if (ends && n > 1) n--;
    for (size_t i = 0; i < n; i++)
        sum += (double)logp[i];
    return n ? exp(-sense * fmax(0, -sum / (double)n - free)) : 1;
}

double grpo_about(const float *own, const float *other, size_t n, bool ends)
{
    double odds = 0;
    if (ends) n -= n > 0;
    for (size_t i = 0; i < n; i++)
        odds += (double)own[i] - (double)other[i];
    return fmax(0, tanh(odds / 2));
}

static size_t count_targets(const grpo_batch *b)
{
    size_t sum = 0;
    for (size_t i = 0; i < b->n_answers; i++)
        sum += (size_t)b->length[i];
    return sum;
}

/* The share of one token of an answer in the step's loss. */
static double token_share(const grpo_batch *b, size_t answer)
{
    double answers = (double)(b->n_in_all ? b->n_in_all : b->n_answers);
    switch (b->options.average) {
    case GRPO_SEQUENCE_MEAN:
        return 1 / (answers * b->length[answer]);
    case GRPO_FIXED_LENGTH:
        return 1 / (answers * b->options.max_length);
    default:
        return 1 / (double)(b->tokens_in_all ? b->tokens_in_all : count_targets(b));
    }
}

void grpo_weigh(void *ctx, int first_target, int n, const float *logp, float *weight)
{
    grpo_batch *b = ctx;
    size_t answer = 0;
    int start = 0; /* first target of the answer at hand */
    for (int i = 0; i < n; i++) {
        int t = first_target + i;
        while (t >= start + b->length[answer])
            start += b->length[answer++];
        double a = b->advantage[answer];
        double ratio = b->old_logp ? exp((double)logp[i] - b->old_logp[t]) : 1;
        double bounded = fmin(fmax(ratio, b->options.low), b->options.high);
        double away = (double)b->ref_logp[t] - logp[i], k3 = exp(away) - away - 1;
        int clipped = bounded * a < ratio * a;
        double share = token_share(b, answer);
        b->loss += share * (-(clipped ? bounded : ratio) * a + b->options.beta * k3);
        /* d loss / d logp, negated: the pass descends along -weight * logp. */
        double slope = (clipped ? 0 : ratio * a) - b->options.beta * (1 - exp(away));
        weight[i] = (float)(share * slope);
        b->kl_sum += k3;
        b->n_clipped += (size_t)clipped;
        if (b->ratio) b->ratio[t] = (float)ratio;
        if (b->kl) b->kl[t] = (float)k3;
        if (b->clipped) b->clipped[t] = (unsigned char)clipped;
    }
}
