#include "commands/bench_load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "commands/interrupt.h"
#include "commands/open.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LEAST_WINDOW (1.0 / 3)

/* --- engine ----------------------------------------------------------------------------------- */

pf_status bench_engine_open(const command_context *ctx, const model *m, const bench_room *room,
                            bench_engine *out, pf_err *err)
{
    int64_t begin = clock_monotonic_ns();
    engine_options o = open_engine_options(ctx);
    o.max_batch = room->batch;
    o.adapter_bytes = room->adapter_bytes;
    o.adapter_slots = room->adapter_slots;
    o.no_prefix_cache = true;
    if (o.kv_tokens == 0) o.kv_tokens = (int64_t)room->batch * (room->tokens + 32);
    pf_status status = engine_open(m, &o, &out->e, err);
    if (status != PF_OK) return status;
    out->open_seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    out->client = engine_client_open(out->e);
    if (!out->client) return err_set(err, PF_FAILED, "no more file descriptors are available");
    if (room->tokens > engine_context(out->e))
        return err_set(err, PF_USAGE,
                       "%d tokens are needed, but a sequence can hold %d: choose "
                       "shorter ones",
                       room->tokens, engine_context(out->e));
    const bench_load warm_up = {.n = room->batch, .prompt = 1, .seed = 1};
    bench_measure ignored;
    status = bench_run_answers(out, &warm_up, 1, &ignored, err);
    engine_stats stats;
    engine_get_stats(out->e, &stats);
    out->kv_bytes = stats.memory_used;
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) out->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    return status;
}

void bench_engine_close(bench_engine *b)
{
    engine_client_close(b->client);
    engine_close(b->e);
    *b = (bench_engine){0};
}

/* --- a load under way ------------------------------------------------------------------------- */

typedef struct {
    const bench_engine *b;
    const bench_load *load;
    request_id *ids; /* [n + 1]: one may come later */
    int *tokens;     /* [n + 1] of each answer; the requests' tags point here */
    int n_submitted, n_writing, n_ended;
    uint64_t completed;  /* tokens of ended answers */
    int64_t last_ns;     /* when the first answer's last token came */
    bench_samples waits; /* seconds between its tokens */
    double longest;
    int64_t begin_ns;
    engine_stats begin;
} running;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t first_state(uint64_t seed)
{
    return seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
}

static void mark_begin(running *r)
{
    engine_get_stats(r->b->e, &r->begin);
    r->begin_ns = clock_monotonic_ns();
}

static void take_wait(running *r)
{
    int64_t now = clock_monotonic_ns();
    double wait = (double)(now - r->last_ns) * 1e-9;
    if (r->last_ns && wait > r->longest) r->longest = wait;
    if (r->last_ns) bench_samples_add(&r->waits, wait);
    r->last_ns = now;
}

static pf_status submit_one(running *r, int i, int n_prompt, uint64_t *state, int max_tokens,
                            pf_err *err)
{
    int vocab = model_get_config(engine_model(r->b->e))->vocab;
    int32_t *prompt = xcalloc((size_t)n_prompt, sizeof *prompt);
    for (int j = 0; j < n_prompt; j++)
        prompt[j] = (int32_t)(next_random(state) % (uint64_t)vocab);
    bool has_adapter = r->load->adapters && i < r->load->n;
    engine_request request = {.ids = prompt,
                              .n_ids = (size_t)n_prompt,
                              .adapter = has_adapter ? r->load->adapters[i] : 0,
                              .positions = has_adapter ? r->load->positions : POSITIONS_DEFAULT,
                              .max_tokens = max_tokens,
                              .ignore_eos = true,
                              .user = (uint64_t)i + 1,
                              .tag = &r->tokens[i]};
    pf_status status = engine_submit(r->b->client, &request, &r->ids[i], err);
    r->n_submitted += status == PF_OK;
    free(prompt);
    return status;
}

static pf_status submit_all(running *r, int max_tokens, pf_err *err)
{
    uint64_t state = first_state(r->load->seed) | 1;
    pf_status status = PF_OK;
    mark_begin(r);
    for (int i = 0; i < r->load->n && status == PF_OK; i++)
        status = submit_one(r, i, r->load->prompt, &state, max_tokens, err);
    return status;
}

static pf_status take_event(running *r, const engine_event *ev, pf_err *err)
{
    int *tokens = ev->tag;
    if (ev->kind == ENGINE_EVENT_TOKEN && (*tokens)++ == 0) r->n_writing++;
    if (ev->kind == ENGINE_EVENT_TOKEN && tokens == r->tokens) take_wait(r);
    if (ev->kind != ENGINE_EVENT_FINISHED && ev->kind != ENGINE_EVENT_FAILED) return PF_OK;
    r->n_ended++;
    r->completed += (uint64_t)ev->usage.completion_tokens;
    if (ev->kind == ENGINE_EVENT_FAILED) return err_set(err, ev->status, "%s", ev->text);
    return PF_OK;
}

/* Takes all events that are there. */
static pf_status take_events(running *r, pf_err *err)
{
    engine_event ev;
    pf_status status = PF_OK;
    while (engine_client_next(r->b->client, &ev)) {
        pf_status one = take_event(r, &ev, status == PF_OK ? err : NULL);
        if (status == PF_OK) status = one;
        engine_event_free(&ev);
    }
    return status;
}

static pf_status wait_events(running *r, pf_err *err)
{
    engine_client_wait(r->b->client, 200);
    if (interrupt_seen()) return interrupt_status(err);
    return take_events(r, err);
}

/* Cancels what still runs and waits for its end. */
static void end_all(running *r)
{
    if (r->n_ended < r->n_submitted)
        for (int i = 0; i < r->n_submitted; i++)
            engine_cancel(r->b->e, r->ids[i]);
    while (r->n_ended < r->n_submitted) {
        engine_client_wait(r->b->client, 200);
        take_events(r, NULL);
    }
    free(r->ids);
    free(r->tokens);
}

static engine_work work_between(const engine_work *a, const engine_work *b)
{
    return (engine_work){.steps = b->steps - a->steps,
                         .rows = b->rows - a->rows,
                         .weight_bytes = b->weight_bytes - a->weight_bytes,
                         .adapter_bytes = b->adapter_bytes - a->adapter_bytes,
                         .kv_bytes = b->kv_bytes - a->kv_bytes,
                         .mac = b->mac - a->mac,
                         .adapter_mac = b->adapter_mac - a->adapter_mac};
}

static engine_work work_sum(const engine_work *a, const engine_work *b)
{
    return (engine_work){.steps = a->steps + b->steps,
                         .rows = a->rows + b->rows,
                         .weight_bytes = a->weight_bytes + b->weight_bytes,
                         .adapter_bytes = a->adapter_bytes + b->adapter_bytes,
                         .kv_bytes = a->kv_bytes + b->kv_bytes,
                         .mac = a->mac + b->mac,
                         .adapter_mac = a->adapter_mac + b->adapter_mac};
}

static void measure(const running *r, bench_measure *out)
{
    engine_stats end;
    engine_get_stats(r->b->e, &end);
    engine_work decode = work_between(&r->begin.decode, &end.decode);
    out->seconds = (double)(clock_monotonic_ns() - r->begin_ns) * 1e-9;
    out->prefill = work_between(&r->begin.prefill, &end.prefill);
    out->work = work_sum(&decode, &out->prefill);
    out->disturbed = end.preemptions != r->begin.preemptions;
}

static running load_begin(const bench_engine *b, const bench_load *load)
{
    return (running){.b = b,
                     .load = load,
                     .ids = xcalloc((size_t)load->n + 1, sizeof(request_id)),
                     .tokens = xcalloc((size_t)load->n + 1, sizeof(int))};
}

pf_status bench_run_answers(const bench_engine *b, const bench_load *load, int max_tokens,
                            bench_measure *out, pf_err *err)
{
    running r = load_begin(b, load);
    *out = (bench_measure){0};
    pf_status status = submit_all(&r, max_tokens, err);
    while (status == PF_OK && r.n_ended < load->n)
        status = wait_events(&r, err);
    if (status == PF_OK) {
        measure(&r, out);
        out->tokens = r.completed;
    }
    end_all(&r);
    return status;
}

static bool window_full(const running *r, int steps)
{
    engine_stats now;
    engine_get_stats(r->b->e, &now);
    double least = r->load->window > 0 ? r->load->window : LEAST_WINDOW;
    double elapsed = (double)(clock_monotonic_ns() - r->begin_ns) * 1e-9;
    bool long_enough = bench_opt.quick || elapsed >= least;
    return now.decode.steps - r->begin.decode.steps >= (uint64_t)steps && long_enough;
}

/* The decode steps there had been, and when. */
typedef struct {
    uint64_t steps;
    int64_t ns;
} step_clock;

/* Seconds of a step, of those that ended since the last look. */
static void take_steps(const running *r, step_clock *last, bench_samples *seconds)
{
    engine_stats now;
    engine_get_stats(r->b->e, &now);
    step_clock this = {now.decode.steps, clock_monotonic_ns()};
    if (this.steps == last->steps) return;
    bench_samples_add(seconds,
                      (double)(this.ns - last->ns) * 1e-9 / (double)(this.steps - last->steps));
    *last = this;
}

static pf_status run_decode_once(const bench_engine *b, const bench_load *load, int steps,
                                 bool last_try, bench_measure *out, pf_err *err)
{
    running r = load_begin(b, load);
    bench_samples steps_seen = {.n = 0};
    *out = (bench_measure){0};
    pf_status status = submit_all(&r, BENCH_WINDOW_ROOM, err);
    while (status == PF_OK && r.n_writing < load->n && r.n_ended == 0)
        status = wait_events(&r, err);
    if (status == PF_OK && r.n_writing == load->n && r.n_ended == 0) {
        mark_begin(&r);
        step_clock clock = {r.begin.decode.steps, r.begin_ns};
        while (status == PF_OK && r.n_ended == 0 && !window_full(&r, steps)) {
            status = wait_events(&r, err);
            take_steps(&r, &clock, &steps_seen);
        }
        measure(&r, out);
        out->tokens = out->work.rows;
        out->step_seconds =
            steps_seen.n ? bench_median(&steps_seen) : out->seconds / (double)out->work.steps;
        out->disturbed |= out->prefill.steps > 0;
        /* Some answers had ended before this thread looked. */
        bool late = out->work.rows < out->work.steps * (uint64_t)load->n;
        if (late && !out->disturbed && !last_try) *out = (bench_measure){0};
    }
    end_all(&r);
    return status;
}

/* A window can be missed: on a busy machine a small model has written its answers before this
 * thread sees that all have begun. */
#define DECODE_TRIES 8

pf_status bench_run_decode(const bench_engine *b, const bench_load *load, int steps,
                           bench_measure *out, pf_err *err)
{
    pf_status status = PF_OK;
    *out = (bench_measure){0};
    for (int i = 0; status == PF_OK && out->tokens == 0 && i < DECODE_TRIES; i++)
        status = run_decode_once(b, load, steps, i + 1 == DECODE_TRIES, out, err);
    return status;
}

#define PLAIN_STEPS 20

pf_status bench_run_arrival(const bench_engine *b, const bench_load *load, int long_prompt,
                            double *wait, pf_err *err)
{
    running r = load_begin(b, load);
    uint64_t state = first_state(load->seed + 1) | 1;
    *wait = (double)NAN;
    pf_status status = submit_all(&r, BENCH_WINDOW_ROOM, err);
    while (status == PF_OK && r.n_writing < load->n && r.n_ended == 0)
        status = wait_events(&r, err);
    r.waits.n = 0;
    while (status == PF_OK && r.waits.n < PLAIN_STEPS && r.n_ended == 0)
        status = wait_events(&r, err);
    double plain = bench_median(&r.waits);
    r.longest = 0;
    if (status == PF_OK && r.n_ended == 0)
        status = submit_one(&r, load->n, long_prompt, &state, 1, err);
    while (status == PF_OK && r.tokens[load->n] == 0 && r.n_ended == 0)
        status = wait_events(&r, err);
    if (status == PF_OK && r.tokens[load->n] > 0) *wait = r.longest / plain;
    end_all(&r);
    return status;
}
