/* How much time background work gets between the engine's turns while somebody waits for answers: a
 * turn and what lies between it and the next shall take no more than ALLOWANCE_TURNS times an
 * undisturbed turn, in the mean. Work disturbs also by what it takes from the caches, so an
 * undisturbed turn is one that follows another turn directly; every second one does. Pure: the
 * caller brings the clock. */
#ifndef PF_ENGINE_ALLOWANCE_H
#define PF_ENGINE_ALLOWANCE_H

#include <stdbool.h>
#include <stdint.h>

#define ALLOWANCE_TURNS 1.7

typedef struct {
    double plain_ns;  /* moving average of an undisturbed turn; 0 = none seen */
    double credit_ns; /* time that turns have left; below 0 when work took longer than it should */
    bool disturbed;   /* work was done since the last turn */
    bool pure;        /* the last turn was an undisturbed one */
} allowance;

/* A turn while somebody waits took ns. writing: it wrote answers and did nothing else; only such
 * turns are alike. Beside the others work gets its part of the time that they took. */
void allowance_turn(allowance *a, int64_t ns, bool writing);
/* Nobody waits for anything: what was saved up is void. */
void allowance_idle(allowance *a);
/* Time that work may take now; 0 = none. */
int64_t allowance_left(const allowance *a);
/* Work took ns. */
void allowance_spend(allowance *a, int64_t ns);

#endif
