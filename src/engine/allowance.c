#include "engine/allowance.h"

#include <math.h>

#define FASTER 0.25 /* of the moving average: it follows shorter turns sooner than longer ones */
#define SLOWER 0.05
/* Bounds, in undisturbed turns. */
#define LEAST_SAMPLE 0.5
#define MOST_SAMPLE  2.0
#define MOST_CHARGE  0.5 /* for a turn that took longer: work never starves */
#define MOST_CREDIT  6.0 /* units of work may be longer than a turn */

static void writing_turn(allowance *a, double ns)
{
    if (!(a->plain_ns > 0)) a->plain_ns = ns;
    const double plain = a->plain_ns;
    double longer = fmin(fmax(ns - plain, 0), MOST_CHARGE * plain);
    a->credit_ns += (ALLOWANCE_TURNS - 1) * plain - longer;
    if (a->disturbed) return;
    double sample = fmin(fmax(ns, LEAST_SAMPLE * plain), MOST_SAMPLE * plain);
    a->plain_ns += (sample < plain ? FASTER : SLOWER) * (sample - plain);
}

void allowance_turn(allowance *a, int64_t ns, bool writing)
{
    if (writing)
        writing_turn(a, (double)ns);
    else
        a->credit_ns += (ALLOWANCE_TURNS - 1) * (double)ns;
    a->credit_ns = fmin(a->credit_ns, fmax(MOST_CREDIT * a->plain_ns, (double)ns));
    a->pure = !a->disturbed;
    a->disturbed = false;
}

void allowance_idle(allowance *a)
{
    a->credit_ns = 0;
}

int64_t allowance_left(const allowance *a)
{
    return a->pure && a->credit_ns > 0 ? (int64_t)a->credit_ns : 0;
}

void allowance_spend(allowance *a, int64_t ns)
{
    a->credit_ns -= (double)ns;
    a->disturbed = true;
    a->pure = false;
}
