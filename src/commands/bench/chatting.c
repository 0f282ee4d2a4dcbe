#include "commands/bench/chatting.h"

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
#define ROUNDS        9

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

/* Ends of steps that were seen. */
typedef struct {
    int64_t tokens, ns;
} job_mark;

typedef struct {
    job_mark first, last;
    int n;
    int64_t step;
} step_marks;

static double rate_between(const job_mark *a, const job_mark *b)
{
    return b->ns > a->ns ? (double)(b->tokens - a->tokens) * 1e9 / (double)(b->ns - a->ns) : NAN;
}

/* Keeps the first and the last. */
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

/* Everyone gets an answer for so many seconds; with a job until one of its steps has been seen from
 * end to end too. */
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
           ((double)(clock_monotonic_ns() - begin) < seconds * 1e9 || (job && marks->n < 2))) {
        engine_client_wait(c->client, WAIT_MS);
        status = take_events(c, err);
        if (job) note_step(job, marks);
        if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    }
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

/* The job without chats, for this many seconds and at least one whole step. */
static double measure_alone(train_job *job, double seconds)
{
    train_progress p;
    train_job_get(job, &p);
    step_marks marks = {.step = p.step};
    int64_t begin = clock_monotonic_ns();
    while (((double)(clock_monotonic_ns() - begin) < seconds * 1e9 || marks.n < 2) &&
           p.state == TRAIN_RUNNING && !interrupt_seen()) {
        train_job_wait(job, WAIT_MS);
        train_job_get(job, &p);
        note_step(job, &marks);
    }
    return rate_between(&marks.first, &marks.last);
}

static void pause_job(train_job *job, bool pause)
{
    train_progress p;
    train_job_pause(job, pause);
    for (train_job_get(job, &p);
         p.state == (pause ? TRAIN_RUNNING : TRAIN_PAUSED) && !interrupt_seen();
         train_job_get(job, &p))
        train_job_wait(job, WAIT_MS);
}

typedef struct {
    bench_chatting_step step;
    void *ctx;
    double seconds; /* of each kind in a round */
} round_plan;

static pf_status measure_free(const round_plan *plan, double *rate, pf_err *err)
{
    double sum = 0, tokens = 0;
    int64_t begin = clock_monotonic_ns(), now = begin;
    pf_status status = PF_OK;
    while (status == PF_OK && (double)(now - begin) < plan->seconds * 1e9) {
        status = plan->step(plan->ctx, &tokens, err);
        sum += tokens;
        now = clock_monotonic_ns();
    }
    *rate = sum * 1e9 / (double)(now - begin);
    return status;
}

typedef struct {
    bench_samples before, during, ratio, alone, beside, share;
    double longest;
} round_samples;

static pf_status measure_round(chatting *c, train_job *job, const round_plan *plan,
                               round_samples *out, pf_err *err)
{
    double before = NAN, during = NAN, alone = NAN, without = NAN, unused = 0;
    train_progress p;
    pause_job(job, true);
    pf_status status = measure(c, plan->seconds, NULL, NULL, &before, &unused, err);
    if (status == PF_OK) status = measure_free(plan, &without, err);
    pause_job(job, false);
    if (status != PF_OK) return status;
    alone = measure_alone(job, plan->seconds);
    train_job_get(job, &p);
    step_marks marks = {.step = p.step};
    status = measure(c, plan->seconds, job, &marks, &during, &out->longest, err);
    if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    if (status != PF_OK) return status;
    bench_samples_add(&out->before, before);
    bench_samples_add(&out->during, during);
    bench_samples_add(&out->ratio, during / before);
    bench_samples_add(&out->alone, alone);
    bench_samples_add(&out->share, alone / without);
    bench_samples_add(&out->beside, rate_between(&marks.first, &marks.last));
    return PF_OK;
}

static pf_status measure_all(chatting *c, train_dataset *data, const train_job_options *options,
                             const round_plan *plan, bench_chatting *out, pf_err *err)
{
    train_job *job = NULL;
    round_samples s = {0};
    pf_status status = train_job_start(c->e, data, options, NULL, 0, NULL, 0, &job, err);
    if (status != PF_OK) return status;
    (void)measure_alone(job, 0); /* its first evaluation is over then */
    for (int i = 0; i < (bench_opt.quick ? 1 : ROUNDS) && status == PF_OK; i++)
        status = measure_round(c, job, plan, &s, err);
    train_job_free(job);
    out->before = bench_median(&s.before);
    out->during = bench_median(&s.during);
    out->ratio = bench_median(&s.ratio);
    out->alone = bench_median(&s.alone);
    out->beside = bench_median(&s.beside);
    out->share = bench_median(&s.share);
    out->longest = s.longest;
    return status;
}

pf_status bench_chatting_run(const command_context *ctx, const model *m, train_dataset *data,
                             const train_job_options *options, int people, double seconds,
                             bench_chatting_step step, void *step_ctx, bench_chatting *out,
                             pf_err *err)
{
    chatting c = {.m = m, .people = people, .seed = options->seed};
    const round_plan plan = {step, step_ctx, seconds / ROUNDS};
    engine_options o = open_engine_options(ctx);
    *out = (bench_chatting){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    pf_status status = engine_open(m, &o, &c.e, err);
    if (status != PF_OK) return status;
    c.client = engine_client_open(c.e);
    if (!c.client)
        status = err_set(err, PF_FAILED, "no more file descriptors are available");
    else
        status = measure_all(&c, data, options, &plan, out, err);
    if (c.client) engine_client_close(c.client);
    engine_close(c.e);
    return status;
}
