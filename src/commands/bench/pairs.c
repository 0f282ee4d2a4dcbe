#include "commands/bench/pairs.h"

#include "base/mem.h"
#include "commands/interrupt.h"
#include "engine/hold.h"

#include <math.h>
#include <stdlib.h>

/* Each group comes first, second and last equally often, and after each other one. */
#define ORDERS 6
static const unsigned char orders[ORDERS][PAIRS_GROUPS] = {
    {0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2},
};

typedef struct {
    engine_client *client; /* NULL: none, or all could not be read */
    int n_tokens;          /* events that were taken */
} group;

typedef struct {
    const bench_engine *b;
    const pairs_plan *plan;
    pairs_result *out;
    group groups[PAIRS_GROUPS];
    double elapsed; /* seconds of all steps so far */
    pf_status status;
    pf_err *err;
} pairs;

/* The first token comes with the prompt; a warm-up round follows, and the last token would end the
 * answer. */
int pairs_answer(int room)
{
    return room + 3;
}

/* --- a group ---------------------------------------------------------------------------------- */

static void fail(pairs *p, pf_status status)
{
    if (p->status == PF_OK) p->status = status;
}

static void take_events(pairs *p, group *g)
{
    engine_event ev;
    while (engine_client_next(g->client, &ev)) {
        g->n_tokens += ev.kind == ENGINE_EVENT_TOKEN;
        if (ev.kind == ENGINE_EVENT_FAILED && p->status == PF_OK)
            fail(p, err_set(p->err, ev.status, "%s", ev.text));
        engine_event_free(&ev);
    }
}

/* Cancels what runs; a step later it has ended. */
static void end_group(pairs *p, group *g)
{
    engine_client_close(g->client);
    *g = (group){0};
    engine_held_step(p->b->e, p->b->client);
}

static void submit_group(pairs *p, group *g, const bench_load *load)
{
    g->client = engine_client_open(p->b->e);
    if (!g->client) fail(p, err_set(p->err, PF_FAILED, "no more file descriptors are available"));
    for (int i = 0; i < load->n && p->status == PF_OK; i++)
        fail(p, bench_submit(p->b, g->client, load, i, pairs_answer(p->plan->room), NULL, NULL,
                             p->err));
}

/* Has the prompts read. Those that find no room for their adapters or pages wait in vain. */
static void begin_group(pairs *p, group *g, const bench_load *load)
{
    if (load->n == 0) return;
    submit_group(p, g, load);
    while (p->status == PF_OK && engine_held_step(p->b->e, g->client) > 0) {
        take_events(p, g);
        if (g->n_tokens == load->n) return;
        if (interrupt_seen()) fail(p, interrupt_status(p->err));
    }
    end_group(p, g);
}

static void begin_groups(pairs *p)
{
    engine_stats stats;
    for (int i = 0; i < PAIRS_GROUPS && p->status == PF_OK; i++)
        begin_group(p, &p->groups[i], &p->plan->loads[i]);
    engine_get_stats(p->b->e, &stats);
    p->out->loaded = stats.adapters_loaded;
}

static void end_groups(pairs *p)
{
    for (int i = 0; i < PAIRS_GROUPS; i++)
        if (p->groups[i].client) end_group(p, &p->groups[i]);
}

/* --- rounds ----------------------------------------------------------------------------------- */

/* A decode step of a group, in seconds; its work is added to *work. */
static double make_step(pairs *p, group *g, engine_work *work)
{
    engine_stats before, after;
    if (!g->client) return (double)NAN;
    engine_get_stats(p->b->e, &before);
    double seconds = (double)engine_held_step(p->b->e, g->client) * 1e-9;
    engine_get_stats(p->b->e, &after);
    engine_work done = bench_work_between(&before.decode, &after.decode);
    bench_work_add(work, &done);
    p->elapsed += seconds;
    return seconds;
}

static void make_round(pairs *p, const unsigned char *order, double *seconds, engine_work *work)
{
    for (int i = 0; i < PAIRS_GROUPS; i++)
        seconds[order[i]] = make_step(p, &p->groups[order[i]], &work[order[i]]);
    for (int i = 0; i < PAIRS_GROUPS; i++)
        if (p->groups[i].client) take_events(p, &p->groups[i]);
    if (interrupt_seen()) fail(p, interrupt_status(p->err));
}

static bool again(const pairs *p)
{
    const pairs_plan *plan = p->plan;
    int n = p->out->n;
    return p->status == PF_OK && n < plan->most && (n < plan->least || p->elapsed < plan->seconds);
}

static void make_rounds(pairs *p)
{
    pairs_result *out = p->out;
    double warm_up[PAIRS_GROUPS];
    engine_work ignored[PAIRS_GROUPS] = {{0}};
    make_round(p, orders[0], warm_up, ignored);
    for (int i = 0; i < p->plan->room && again(p); i++) {
        make_round(p, orders[out->n % ORDERS], out->seconds[out->n], out->work);
        out->n++;
    }
}

/* On the engine's thread: answers from their beginning until they are as long as they may get. */
static void run_load(engine *e, void *ctx)
{
    (void)e;
    pairs *p = ctx;
    begin_groups(p);
    if (p->status == PF_OK && p->groups[0].client) make_rounds(p);
    end_groups(p);
}

pf_status pairs_run(const bench_engine *b, const pairs_plan *plan, pairs_result *out, pf_err *err)
{
    *out = (pairs_result){.seconds = xcalloc((size_t)plan->most, sizeof *out->seconds)};
    pairs p = {.b = b, .plan = plan, .out = out, .err = err};
    for (int before = -1; out->n > before && again(&p);) {
        before = out->n;
        engine_hold(b->e, run_load, &p);
    }
    return p.status;
}

void pairs_free(pairs_result *r)
{
    free(r->seconds);
    *r = (pairs_result){0};
}
