/* Single decode steps of several groups of requests in turn, one right after the other: on a
 * machine whose speed changes from moment to moment, what neighbouring steps have in common is the
 * same for all. All groups are in one engine, with as many answers of the same lengths. */
#ifndef PF_COMMANDS_BENCH_PAIRS_H
#define PF_COMMANDS_BENCH_PAIRS_H

#include "commands/bench/load.h"

#define PAIRS_GROUPS 3

typedef struct {
    /* Of equal n, prompt and seed; n = 0: there is no such group. The engine has room for all, with
     * answers of pairs_answer(room) tokens. */
    bench_load loads[PAIRS_GROUPS];
    int room;        /* rounds until the answers are as long as they may get: then others begin */
    int least, most; /* rounds in all */
    double seconds;  /* of steps, after which no round begins but the least */
} pairs_plan;

typedef struct {
    int n; /* rounds: 0 where the memory doesn't hold the first group at once */
    double (*seconds)[PAIRS_GROUPS]; /* [n] of a step; NAN: no such group, or no room for it */
    engine_work work[PAIRS_GROUPS];  /* of all rounds */
    int loaded;                      /* adapters in memory while answers were written */
} pairs_result;

/* Tokens that answers of so many rounds have at most. */
int pairs_answer(int room);
/* The caller frees *out in any case. */
pf_status pairs_run(const bench_engine *b, const pairs_plan *plan, pairs_result *out, pf_err *err);
void pairs_free(pairs_result *r);

#endif
