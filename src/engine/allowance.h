/* How much time background work gets between the engine's turns while requests are active: a turn
 * and the work up to the next one must take no more than ALLOWANCE_TURNS times an undisturbed turn,
 * on average. Work also slows the turn after it by evicting its data from the CPU caches, so an
 * undisturbed turn is one that directly follows another turn; every second one does. Pure: the
 * caller supplies the times. */
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

/* A turn with active requests took ns. writing: it only decoded; only such turns are comparable.
 * Next to other turns, work gets its share of the time that they took. */
void allowance_turn(allowance *a, int64_t ns, bool writing);
/* No request is active: saved-up credit expires. */
void allowance_idle(allowance *a);
/* Time that work may take now; 0 = none. */
int64_t allowance_left(const allowance *a);
/* Work took ns. */
void allowance_spend(allowance *a, int64_t ns);

#endif
