/* Stored rows of logits and how far computed rows are from them. A set holds whole rows
 * (KEY.logits) or, for large vocabularies, the 64 largest values with their ids, the log of the sum
 * of the exponentials, and the values at fixed ids. */
#ifndef REFERENCE_GOLDEN_H
#define REFERENCE_GOLDEN_H

#include "data.h"

typedef struct {
    int64_t rows;
    int64_t vocab; /* of whole rows */
    float *logits; /* [rows, vocab] or NULL */
    int64_t n_top, n_fixed;
    float *top_values;   /* [rows, n_top] descending */
    int32_t *top_ids;    /* [rows, n_top] */
    float *logsumexp;    /* [rows] */
    float *fixed_values; /* [rows, n_fixed] */
} golden;

/* False if the file has no rows of this key. */
bool golden_load(const data_tensors *t, const char *key, golden *out);
void golden_free(golden *g);

/* Largest absolute difference of logits[vocab] from what row holds. fixed_ids: [n_fixed]. */
double golden_error(const golden *g, int64_t row, const float *logits, int vocab,
                    const id_list *fixed_ids);
/* KL(stored || computed) in nats; from the top values, what is below them counts as one outcome (a
 * lower bound that is close: the top 64 hold nearly all of the mass). */
double golden_kl(const golden *g, int64_t row, const float *logits, int vocab);
/* The stored row's best id and its distance to the second. */
int32_t golden_best(const golden *g, int64_t row, double *margin);

double logits_logsumexp(const float *logits, int n);
int32_t logits_argmax(const float *logits, int n);

#endif
