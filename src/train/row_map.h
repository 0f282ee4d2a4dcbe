/* The rows of a training pass, with common prefixes shared. Sequences of a batch often begin with
 * the same system text or, when several answers to one question are learned from, with the whole
 * question. A row depends only on the tokens up to its own and on their marks, so a common prefix
 * is computed once, forward and backward, and the gradients of all sequences that read it add up in
 * its rows. Only attention needs whole sequences: it works on copies. Tokens from a sequence's last
 * target on have no rows: nothing is predicted from them.
 *
 * Not thread-safe; the owner's thread runs the backend. */
#ifndef PF_TRAIN_ROW_MAP_H
#define PF_TRAIN_ROW_MAP_H

#include "base/err.h"
#include "kernels/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A conversation; arrays are borrowed until the pass over it has ended. */
typedef struct {
    const int32_t *ids;           /* [length] */
    const unsigned char *adapted; /* [length] marks */
    const unsigned char *target;  /* [length]: 1 = predicted by the logits before it; never at 0 */
    int32_t length;
    /* [targets, hidden]: the states that train_pass_keep_states gave for the same targets under a
     * teacher. The loss of the target is then KL(teacher || model) instead of -log p. NULL: none.
     */
    const float *teacher;
} train_sequence;

/* The size of a batch. */
typedef struct {
    size_t rows;   /* computed */
    size_t tokens; /* of all sequences, those that share a row or have none included */
} row_count;

/* The length of the longest prefix that s[n] shares with one of s[0..n); *which receives the first
 * such sequence. The shared rows predict no target of s[n], so that each row predicts at most one.
 */
int32_t row_map_shared(const train_sequence *s, size_t n, size_t *which);
/* Whether s[n] fits a pass of max_rows rows together with s[0..n), whose size *count is; if so,
 * adds it to *count. The first sequence always fits if it has at most max_rows tokens. */
bool row_count_add(row_count *count, const train_sequence *s, size_t n, size_t max_rows);

typedef struct {
    kn_backend *be; /* borrowed */
    kn_heads heads;
    size_t max_rows, max_tokens;
    int n_rows, n_tokens;
    int32_t *row;   /* [max_tokens] row of each token that has one, sequence after sequence */
    int32_t *token; /* [max_rows] the first token that has the row */
    kn_span *spans; /* [max_tokens] of tokens: the sequences */
    int n_spans;
    float *wide[8]; /* copies for attention: q, k, v, y and their gradients; NULL until needed */
} row_map;

void row_map_open(row_map *m, kn_backend *be, const kn_heads *heads, size_t max_rows);
void row_map_close(row_map *m); /* a zeroed one is fine */

/* Forgets the batch. */
void row_map_clear(row_map *m);
/* Appends s[n] after s[0..n), which are in already; it must fit. Returns its first token that got a
 * row of its own: those from there on have rows n_rows (before the call) up to n_rows (after it).
 */
int32_t row_map_add(row_map *m, const train_sequence *s, size_t n);
/* Memory for the batch, once all is in. PF_NO_MEMORY. */
pf_status row_map_reserve(row_map *m, pf_err *err);

/* kn_train_ops.attention over the batch's sequences, with arrays of n_rows rows. */
void row_map_attention(const row_map *m, const float *q, const float *k, const float *v, float *y);
/* Likewise attention_backward. */
void row_map_attention_backward(const row_map *m, const float *q, const float *k, const float *v,
                                const float *y, const float *d_y, float *d_q, float *d_k,
                                float *d_v);

#endif
