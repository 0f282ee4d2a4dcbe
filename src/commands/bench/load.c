#include "commands/bench/load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "commands/interrupt.h"
#include "commands/open.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LEAST_WINDOW (1.0 / 3) /* seconds */

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
    if (o.kv_tokens == 0) o.kv_tokens = room->kv_tokens;
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

pf_status bench_submit(const bench_engine *b, engine_client *client, const bench_load *load, int i,
                       int max_tokens, void *tag, request_id *out, pf_err *err)
{
    uint64_t vocab = (uint64_t)model_get_config(engine_model(b->e))->vocab;
    uint64_t state = first_state(load->seed + ((uint64_t)i << 32)) | 1;
    int32_t *prompt = xcalloc((size_t)load->prompt, sizeof *prompt);
    for (int j = 0; j < load->prompt; j++)
        prompt[j] = (int32_t)(next_random(&state) % vocab);
    bool has_adapter = load->adapters && i < load->n;
    engine_request request = {.ids = prompt,
                              .n_ids = (size_t)load->prompt,
                              .adapter = has_adapter ? load->adapters[i] : 0,
                              .positions = has_adapter ? load->positions : POSITIONS_DEFAULT,
                              .max_tokens = max_tokens,
                              .ignore_eos = true,
                              .user = (uint64_t)i + 1,
                              .tag = tag};
    pf_status status = engine_submit(client, &request, out, err);
    free(prompt);
    return status;
}

static pf_status submit_one(running *r, const bench_load *load, int i, int max_tokens, pf_err *err)
{
    pf_status status =
        bench_submit(r->b, r->b->client, load, i, max_tokens, &r->tokens[i], &r->ids[i], err);
    r->n_submitted += status == PF_OK;
    return status;
}

static pf_status submit_all(running *r, int max_tokens, pf_err *err)
{
    pf_status status = PF_OK;
    mark_begin(r);
    for (int i = 0; i < r->load->n && status == PF_OK; i++)
        status = submit_one(r, r->load, i, max_tokens, err);
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

engine_work bench_work_between(const engine_work *from, const engine_work *to)
{
    return (engine_work){.steps = to->steps - from->steps,
                         .rows = to->rows - from->rows,
                         .weight_bytes = to->weight_bytes - from->weight_bytes,
                         .adapter_bytes = to->adapter_bytes - from->adapter_bytes,
                         .kv_bytes = to->kv_bytes - from->kv_bytes,
                         .mac = to->mac - from->mac,
                         .adapter_mac = to->adapter_mac - from->adapter_mac};
}

void bench_work_add(engine_work *sum, const engine_work *w)
{
    sum->steps += w->steps;
    sum->rows += w->rows;
    sum->weight_bytes += w->weight_bytes;
    sum->adapter_bytes += w->adapter_bytes;
    sum->kv_bytes += w->kv_bytes;
    sum->mac += w->mac;
    sum->adapter_mac += w->adapter_mac;
}

static void measure(const running *r, bench_measure *out)
{
    engine_stats end;
    engine_get_stats(r->b->e, &end);
    out->seconds = (double)(clock_monotonic_ns() - r->begin_ns) * 1e-9;
    out->prefill = bench_work_between(&r->begin.prefill, &end.prefill);
    out->work = bench_work_between(&r->begin.decode, &end.decode);
    bench_work_add(&out->work, &out->prefill);
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
    double elapsed = (double)(clock_monotonic_ns() - r->begin_ns) * 1e-9;
    bool long_enough = bench_opt.quick || elapsed >= LEAST_WINDOW;
    return now.decode.steps - r->begin.decode.steps >= (uint64_t)steps && long_enough;
}

static pf_status run_decode_once(const bench_engine *b, const bench_load *load, int steps,
                                 bool last_try, bench_measure *out, pf_err *err)
{
    running r = load_begin(b, load);
    *out = (bench_measure){0};
    pf_status status = submit_all(&r, BENCH_WINDOW_ROOM, err);
    while (status == PF_OK && r.n_writing < load->n && r.n_ended == 0)
        status = wait_events(&r, err);
    if (status == PF_OK && r.n_writing == load->n && r.n_ended == 0) {
        mark_begin(&r);
        while (status == PF_OK && r.n_ended == 0 && !window_full(&r, steps))
            status = wait_events(&r, err);
        measure(&r, out);
        out->tokens = out->work.rows;
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
    bench_load newcomer = *load;
    newcomer.prompt = long_prompt;
    *wait = (double)NAN;
    pf_status status = submit_all(&r, BENCH_WINDOW_ROOM, err);
    while (status == PF_OK && r.n_writing < load->n && r.n_ended == 0)
        status = wait_events(&r, err);
    r.waits.n = 0;
    while (status == PF_OK && r.waits.n < PLAIN_STEPS && r.n_ended == 0)
        status = wait_events(&r, err);
    double plain = bench_median(&r.waits);
    r.longest = 0;
    if (status == PF_OK && r.n_ended == 0) status = submit_one(&r, &newcomer, load->n, 1, err);
    while (status == PF_OK && r.tokens[load->n] == 0 && r.n_ended == 0)
        status = wait_events(&r, err);
    if (status == PF_OK && r.tokens[load->n] > 0) *wait = r.longest / plain;
    end_all(&r);
    return status;
}
