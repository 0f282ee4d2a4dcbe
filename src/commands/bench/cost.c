#include "commands/bench/cost.h"

#include <math.h>

static double longer(double bytes, double read, double mac, double ops)
{
    return fmax(bytes / read, 2 * mac / ops);
}

cost_parts cost_of(const cost_machine *m, const engine_work *w)
{
    double steps = w->steps ? (double)w->steps : 1;
    return (cost_parts){
        .weights = longer((double)w->weight_bytes, m->read_bytes, (double)w->mac, m->ops) / steps,
        .adapters = longer((double)w->adapter_bytes, m->read_bytes, (double)w->adapter_mac,
                           m->adapter_ops) /
                    steps,
        .kv = (double)w->kv_bytes / m->read_bytes / steps,
        .overhead = m->overhead};
}

double cost_seconds(const cost_parts *p)
{
    return p->weights + p->adapters + p->kv + p->overhead;
}

const char *cost_reason(const cost_machine *peak, const engine_work *w, double seconds,
                        double *share)
{
    double steps = w->steps ? (double)w->steps : 1;
    double bytes = (double)(w->weight_bytes + w->adapter_bytes + w->kv_bytes) / peak->read_bytes;
    double ops = 2 * (double)w->mac / peak->ops + 2 * (double)w->adapter_mac / peak->adapter_ops;
    *share = fmax(bytes, ops) / steps / seconds;
    return bytes >= ops ? "bytes" : "operations";
}

/* Sum of the squared logarithms of predicted over measured. */
static double misfit(const cost_machine *m, const cost_sample *samples, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        cost_parts parts = cost_of(m, &samples[i].work);
        double off = log(cost_seconds(&parts) / samples[i].seconds);
        sum += off * off;
    }
    return sum;
}

cost_machine cost_fit(const cost_machine *peak, const cost_sample *samples, int n)
{
    enum { SHARES = 50, OVERHEADS = 9 };
    double shortest = INFINITY, least = INFINITY;
    cost_machine best = *peak;
    for (int i = 0; i < n; i++)
        shortest = fmin(shortest, samples[i].seconds);
    for (int read = 1; n > 0 && read <= SHARES; read++)
        for (int ops = 1; ops <= SHARES; ops++)
            for (int o = 0; o < OVERHEADS; o++) {
                double compute = (double)ops / SHARES;
                cost_machine m = {.read_bytes = peak->read_bytes * read / SHARES,
                                  .ops = peak->ops * compute,
                                  .adapter_ops = peak->adapter_ops * compute,
                                  .overhead = shortest * o / 10};
                double off = misfit(&m, samples, n);
                if (off >= least) continue;
                least = off;
                best = m;
            }
    return best;
}
