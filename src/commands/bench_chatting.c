#include "commands/bench_chatting.h"

#include "base/clock.h"
#include "base/mem.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>

#define PROMPT_TOKENS 48
#define WARM_TOKENS   4 /* of an answer, before it counts */
#define WAIT_MS       100

typedef struct {
    engine *e;
    engine_client *client;
    const model *m;
    int people;
    uint64_t seed;
} chatting;

/* One person's answer: when its tokens came. */
typedef struct {
    int64_t first_ns, last_ns, longest_ns;
    int tokens;
    bool ended;
} answer;

static pf_status submit(chatting *c, answer *a, request_id *id, pf_err *err)
{
    uint64_t vocab = (uint64_t)model_get_config(c->m)->vocab;
    int32_t ids[PROMPT_TOKENS];
    for (int i = 0; i < PROMPT_TOKENS; i++) {
        c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((c->seed >> 33) % vocab);
    }
    const engine_request request = {
        .ids = ids, .n_ids = PROMPT_TOKENS, .ignore_eos = true, .tag = a};
    return engine_submit(c->client, &request, id, err);
}

static void take_token(answer *a)
{
    int64_t now = clock_monotonic_ns();
    a->tokens++;
    if (a->tokens == WARM_TOKENS) a->first_ns = now;
    if (a->tokens > WARM_TOKENS && now - a->last_ns > a->longest_ns)
        a->longest_ns = now - a->last_ns;
    a->last_ns = now;
}

static pf_status take_events(chatting *c, pf_err *err)
{
    engine_event ev;
    pf_status status = PF_OK;
    while (engine_client_next(c->client, &ev)) {
        answer *a = ev.tag;
        if (ev.kind == ENGINE_EVENT_TOKEN) take_token(a);
        if (ev.kind == ENGINE_EVENT_FINISHED) a->ended = true;
        if (ev.kind == ENGINE_EVENT_FAILED) {
            a->ended = true;
            status = err_set(err, PF_FAILED, "%s", ev.text);
        }
        engine_event_free(&ev);
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Tokens that the job trains per second, from one end of a step to another. */
typedef struct {
    int64_t tokens, ns;
} job_mark;

typedef struct {
    job_mark first, last;
    int n;
    int64_t step;
} step_marks;

static job_mark next_step(train_job *j)
{
    train_progress p, start;
    train_job_get(j, &start);
    do {
        train_job_wait(j, WAIT_MS);
        train_job_get(j, &p);
    } while (p.step == start.step && p.state == TRAIN_RUNNING && !interrupt_seen());
    return (job_mark){p.tokens_done, clock_monotonic_ns()};
}

static double rate_between(const job_mark *a, const job_mark *b)
{
    return b->ns > a->ns ? (double)(b->tokens - a->tokens) * 1e9 / (double)(b->ns - a->ns) : NAN;
}

/* Ends of steps that were seen: the first and the last. */
static void note_step(train_job *j, step_marks *marks)
{
    train_progress p;
    train_job_get(j, &p);
    if (p.step == marks->step) return;
    const job_mark now = {p.tokens_done, clock_monotonic_ns()};
    if (marks->n++ == 0) marks->first = now;
    marks->last = now;
    marks->step = p.step;
}

/* Everyone gets an answer for so many seconds; with a job until two of its steps have ended too. */
static pf_status measure(chatting *c, double seconds, train_job *job, step_marks *marks,
                         double *per_token, double *longest, pf_err *err)
{
    answer *answers = xcalloc((size_t)c->people, sizeof *answers);
    request_id *ids = xcalloc((size_t)c->people, sizeof *ids);
    double *means = xcalloc((size_t)c->people, sizeof *means);
    pf_status status = PF_OK;
    for (int i = 0; i < c->people && status == PF_OK; i++)
        status = submit(c, &answers[i], &ids[i], err);
    int64_t begin = clock_monotonic_ns();
    while (status == PF_OK &&
           ((double)(clock_monotonic_ns() - begin) < seconds * 1e9 || (job && marks->n < 3))) {
        engine_client_wait(c->client, WAIT_MS);
        status = take_events(c, err);
        if (job) note_step(job, marks);
        if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    }
    *longest = 0;
    for (int i = 0; i < c->people; i++) {
        const answer *a = &answers[i];
        bool any = a->tokens > WARM_TOKENS;
        means[i] =
            any ? (double)(a->last_ns - a->first_ns) * 1e-9 / (a->tokens - WARM_TOKENS) : NAN;
        *longest = fmax(*longest, (double)a->longest_ns * 1e-9);
        if (ids[i]) engine_cancel(c->e, ids[i]);
    }
    for (int i = 0; i < c->people; i++) /* the tags live until the last event */
        while (ids[i] && !answers[i].ended) {
            engine_client_wait(c->client, WAIT_MS);
            (void)take_events(c, NULL);
        }
    qsort(means, (size_t)c->people, sizeof *means, by_value);
    *per_token = means[c->people / 2];
    free(means);
    free(ids);
    free(answers);
    return status;
}

static pf_status measure_all(chatting *c, train_dataset *data, const train_job_options *options,
                             double seconds, bench_chatting *out, pf_err *err)
{
    train_job *job = NULL;
    double unused;
    pf_status status = measure(c, seconds, NULL, NULL, &out->before, &unused, err);
    if (status == PF_OK) status = train_job_start(c->e, data, options, NULL, 0, NULL, 0, &job, err);
    if (status != PF_OK) return status;
    job_mark begin = next_step(job), now = begin; /* its first evaluation is over */
    while ((double)(now.ns - begin.ns) < seconds * 1e9 && !interrupt_seen())
        now = next_step(job);
    out->alone = rate_between(&begin, &now);
    train_progress p;
    train_job_get(job, &p);
    step_marks marks = {.step = p.step};
    status = measure(c, seconds, job, &marks, &out->during, &out->longest, err);
    out->beside = rate_between(&marks.first, &marks.last);
    if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    train_job_free(job);
    return status;
}

pf_status bench_chatting_run(const command_context *ctx, const model *m, train_dataset *data,
                             const train_job_options *options, int people, double seconds,
                             bench_chatting *out, pf_err *err)
{
    chatting c = {.m = m, .people = people, .seed = options->seed};
    engine_options o = open_engine_options(ctx);
    *out = (bench_chatting){NAN, NAN, NAN, NAN, NAN};
    pf_status status = engine_open(m, &o, &c.e, err);
    if (status != PF_OK) return status;
    c.client = engine_client_open(c.e);
    if (!c.client)
        status = err_set(err, PF_FAILED, "no more file descriptors are available");
    else
        status = measure_all(&c, data, options, seconds, out, err);
    if (c.client) engine_client_close(c.client);
    engine_close(c.e);
    return status;
}
