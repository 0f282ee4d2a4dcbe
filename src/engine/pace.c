#include "engine/pace.h"

#define STEP_NS      200e6 /* longest step without running answers: how late a cancel takes effect */
#define FIRST_BUDGET 64    /* tokens, before anything was measured */
#define LEAST_MIXED  8     /* tokens, so that a prompt always makes progress */
#define ROW          0.8   /* least time of an answer's row, as a share of a prompt token's */
#define WEIGHT       0.2   /* of the newest step in the averages */

void pace_init(pace *p, int most)
{
    *p = (pace){.most = most};
}

static void average(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + WEIGHT * (value - *mean) : value;
}

/* Answers beyond those of the plain steps that were seen: in a burst of prompts answers begin
 * before a plain step is made with them, or with anybody. */
static double unknown_rows(const pace *p, int writing)
{
    return writing > p->plain_rows ? writing - p->plain_rows : 0;
}

void pace_record(pace *p, int64_t ns, int writing, int prompt)
{
    if (ns <= 0) return;
    if (prompt == 0 && writing > 0) {
        average(&p->plain_ns, (double)ns);
        average(&p->plain_rows, writing);
    } else if (prompt > 0) {
        /* Reading the weights is paid once per step, by the answers if there are some. */
        double added = (double)ns - (writing > 0 ? p->plain_ns : 0);
        double least = 0.05 * (double)ns;
        average(&p->token_ns,
                (added > least ? added : least) / (prompt + unknown_rows(p, writing)));
    }
}

int pace_budget(const pace *p, int writing)
{
    double budget = FIRST_BUDGET;
    if (p->token_ns > 0) {
        budget = STEP_NS / p->token_ns;
        if (writing > 0) budget = p->plain_ns / p->token_ns + ROW * unknown_rows(p, writing);
    }
    if (budget < LEAST_MIXED) budget = LEAST_MIXED;
    return budget < p->most ? (int)budget : p->most;
}
