/* A sequence with what is known about it: stored logits at some positions, the reference's greedy
 * choice at others. Greedy continuations are compared by teacher forcing: the reference's tokens
 * are fed and every step's choice is compared where the reference's margin is large enough. */
#ifndef REFERENCE_SCORED_H
#define REFERENCE_SCORED_H

#include "golden.h"
#include "report.h"
#include "support/runner.h"

typedef struct {
    char name[96];
    double tolerance; /* on logits, where the arithmetic is float32 */
    id_list ids;
    bool *adapted, *wanted;        /* [ids.len] */
    int64_t *row;                  /* [ids.len] row of rows, -1 = none */
    int32_t *choice;               /* [ids.len] greedy choice after this token, -1 = none */
    double *margin;                /* [ids.len] */
    const packed_adapter *adapter; /* of the adapted tokens */
    golden rows;                   /* owned */
    const id_list *fixed_ids;

    /* filled while running */
    double error, kl_sum, kl_max;
    int n_rows, n_choices, n_wrong;
    bool integer;
} scored;

/* Copies ids and follow (may be NULL) behind them. */
void scored_init(scored *s, const id_list *ids, const id_list *follow, double tolerance,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void scored_free(scored *s);

/* Stored row `row` belongs to the logits after token `position`. */
void scored_expect_row(scored *s, int64_t position, int64_t row);
/* greedy[i] is the choice after token first + i; margins in JSON. */
void scored_expect_greedy(scored *s, int64_t first, const id_list *greedy, const json_t *margins);

/* What integer arithmetic is measured by: the level of another engine (nats). kl_mean 0: not
 * measured. */
typedef struct {
    double kl_mean, kl_max;
} scored_peer;

/* Runs all and reports: float32 arithmetic by largest error against each one's tolerance; integer
 * arithmetic by KL over all rows, at most twice the peer's mean and three times its maximum. name
 * says what ran. False if the run itself failed (reported). level (may be NULL) gets the KL of
 * this run where the arithmetic is integer. */
bool scored_run(runner *r, scored *list, int n, const scored_peer *peer, const char *name,
                scored_peer *level, report *rep);

#endif
