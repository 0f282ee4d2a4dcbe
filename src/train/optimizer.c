#include "train/optimizer.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

optimizer_options optimizer_defaults(double rate)
{
    return (optimizer_options){
        .rate = rate, .final_share = 0.05, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
}

double optimizer_rate(const optimizer_options *o, int64_t step, int64_t n_steps)
{
    double warmup = floor(o->warmup_share * (double)n_steps);
    if ((double)step < warmup) return o->rate * (double)(step + 1) / (warmup + 1);
    if (o->schedule == RATE_CONSTANT) return o->rate;
    double rest = (double)n_steps - warmup;
    double share = rest > 1 ? ((double)step - warmup) / (rest - 1) : 0;
    double wave = 0.5 * (1 + cos(3.141592653589793 * share));
    return o->rate * (o->final_share + (1 - o->final_share) * wave);
}

static const kn_train_ops *ops_of(const train_params *p)
{
    return kn_train_ops_of(p->be);
}

/* The norm of all gradients together. */
static double gradient_norm(const train_params *p)
{
    return sqrt(ops_of(p)->sum_squares(p->be, p->grad, p->count));
}

static void orthonormalize_item(const train_params *p, const train_item *item)
{
    size_t n = (size_t)item->rank * (size_t)item->in;
    float *r = xcalloc(n, sizeof *r);
    double *wide = xcalloc(n, sizeof *wide);
    p->be->ops->download(p->be, r, p->value + item->b, n * sizeof *r);
    for (size_t i = 0; i < n; i++)
        wide[i] = r[i];
    train_params_orthonormalize(wide, item->rank, item->in);
    for (size_t i = 0; i < n; i++)
        r[i] = (float)wide[i];
    p->be->ops->upload(p->be, p->value + item->b, r, n * sizeof *r);
    free(wide);
    free(r);
}

void optimizer_orthonormalize(train_params *p)
{
    for (size_t i = 0; p->direft && i < p->n_items; i++)
        orthonormalize_item(p, &p->items[i]);
}

pf_status optimizer_step(const optimizer_options *o, train_params *p, int64_t step, int64_t n_steps,
                         double *grad_norm, pf_err *err)
{
    double norm = gradient_norm(p);
    *grad_norm = norm;
    if (!isfinite(norm)) {
        ops_of(p)->clear(p->be, p->grad, p->count);
        return err_set(err, PF_FAILED, "the gradient of step %lld is not finite",
                       (long long)step + 1);
    }
    double share = o->clip > 0 ? o->clip / (norm + 1e-6) : 1;
    kn_adamw update = {.rate = optimizer_rate(o, step, n_steps),
                       .beta1 = o->beta1,
                       .beta2 = o->beta2,
                       .eps = o->eps,
                       .decay = o->decay,
                       .grad_scale = share < 1 ? share : 1,
                       .t = ++p->updates};
    ops_of(p)->adamw(p->be, &update, p->grad, p->count, p->value, p->m, p->v);
    ops_of(p)->clear(p->be, p->grad, p->count);
    if (o->orthonormal) optimizer_orthonormalize(p);
    return PF_OK;
}
