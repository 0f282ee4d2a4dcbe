#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float *load_floats(const data_tensors *t, const char *key, const char *part, int64_t *rows,
                          int64_t *cols)
{
    char name[160];

    snprintf(name, sizeof name, "%s.%s", key, part);
    return data_floats(t, name, rows, cols);
}

bool golden_load(const data_tensors *t, const char *key, golden *out)
{
    char name[160];
    int64_t ones = 0, rows = 0;

    *out = (golden){0};
    out->logits = load_floats(t, key, "logits", &out->rows, &out->vocab);
    if (out->logits) return true;
    out->top_values = load_floats(t, key, "top_values", &out->rows, &out->n_top);
    if (!out->top_values) return false;
    snprintf(name, sizeof name, "%s.top_ids", key);
    out->top_ids = data_ints(t, name, &rows, &out->n_top);
    out->logsumexp = load_floats(t, key, "logsumexp", &ones, &rows);
    out->fixed_values = load_floats(t, key, "fixed_values", &rows, &out->n_fixed);
    if (!out->top_ids || !out->logsumexp || !out->fixed_values)
        die("reference data: %s has top values but not all of its other tensors", key);
    return true;
}

void golden_free(golden *g)
{
    free(g->logits);
    free(g->top_values);
    free(g->top_ids);
    free(g->logsumexp);
    free(g->fixed_values);
    *g = (golden){0};
}

double logits_logsumexp(const float *logits, int n)
{
    double max = logits[logits_argmax(logits, n)];
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

int32_t logits_argmax(const float *logits, int n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Written so that a NaN stays. */
static double larger(double worst, double a, double b)
{
    double d = fabs(a - b);

    return d <= worst ? worst : d;
}

/* NaN, which fails every comparison, for an id outside the vocabulary. */
static double value_at(const float *logits, int vocab, int32_t id)
{
    return id >= 0 && id < vocab ? (double)logits[id] : NAN;
}

double golden_error(const golden *g, int64_t row, const float *logits, int vocab,
                    const id_list *fixed_ids)
{
    double worst = 0;

    if (g->logits) {
        if (g->vocab != vocab) return INFINITY;
        const float *stored = g->logits + row * g->vocab;
        for (int i = 0; i < vocab; i++)
            worst = larger(worst, stored[i], logits[i]);
        return worst;
    }
    if (fixed_ids->len != (size_t)g->n_fixed) return INFINITY;
    const int32_t *top_ids = g->top_ids + row * g->n_top;
    for (int64_t i = 0; i < g->n_top; i++)
        worst =
            larger(worst, g->top_values[row * g->n_top + i], value_at(logits, vocab, top_ids[i]));
    for (int64_t i = 0; i < g->n_fixed; i++)
        worst = larger(worst, g->fixed_values[row * g->n_fixed + i],
                       value_at(logits, vocab, fixed_ids->ids[i]));
    return larger(worst, g->logsumexp[row], logits_logsumexp(logits, vocab));
}

static double kl_whole(const float *stored, const float *logits, int vocab)
{
    double zp = logits_logsumexp(stored, vocab);
    double zq = logits_logsumexp(logits, vocab);
    double kl = 0;

    for (int i = 0; i < vocab; i++) {
        double lp = stored[i] - zp;
        kl += exp(lp) * (lp - (logits[i] - zq));
    }
    return kl;
}

static double kl_top(const golden *g, int64_t row, const float *logits, int vocab)
{
    double zp = g->logsumexp[row];
    double zq = logits_logsumexp(logits, vocab);
    double kl = 0, rest_p = 1, rest_q = 1;

    for (int64_t i = 0; i < g->n_top; i++) {
        double lp = g->top_values[row * g->n_top + i] - zp;
        double lq = value_at(logits, vocab, g->top_ids[row * g->n_top + i]) - zq;
        kl += exp(lp) * (lp - lq);
        rest_p -= exp(lp);
        rest_q -= exp(lq);
    }
    if (rest_p > 1e-9 && rest_q > 1e-9) kl += rest_p * log(rest_p / rest_q);
    return kl;
}

double golden_kl(const golden *g, int64_t row, const float *logits, int vocab)
{
    if (!g->logits) return kl_top(g, row, logits, vocab);
    return g->vocab == vocab ? kl_whole(g->logits + row * g->vocab, logits, vocab) : INFINITY;
}

int32_t golden_best(const golden *g, int64_t row, double *margin)
{
    if (!g->logits) {
        const float *top = g->top_values + row * g->n_top;
        *margin = top[0] - top[1];
        return g->top_ids[row * g->n_top];
    }
    const float *stored = g->logits + row * g->vocab;
    int32_t best = logits_argmax(stored, (int)g->vocab);
    *margin = INFINITY;
    for (int64_t i = 0; i < g->vocab; i++)
        if (i != best) *margin = fmin(*margin, (double)stored[best] - stored[i]);
    return best;
}
