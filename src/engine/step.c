/* One turn of the engine: end what was cancelled, plan, compute, deliver. Engine thread only. */
#include "engine/runtime.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* --- ends ------------------------------------------------------------------------------------- */

static void release_adapter(engine *e, sequence *s)
{
    if (s->pinned) adapter_cache_unpin(e->adapters, s->adapter);
    s->pinned = false;
    if (s->adapter) adapter_cache_unref(e->adapters, s->adapter);
    s->adapter = NULL;
}

void engine_count_memory(engine *e)
{
    kv_usage usage = kv_get_usage(e->kv);
    e->stats.kv_tokens_used = (int64_t)usage.in_use * e->limits.page_tokens;
    e->stats.kv_tokens_cached = (int64_t)usage.idle * e->limits.page_tokens;
    e->stats.memory_used = (uint64_t)usage.present * e->page_bytes;
}

static void remove_live(engine *e, const sequence *s)
{
    pthread_mutex_lock(&e->lock);
    engine_count_memory(e);
    int at = 0;
    while (e->live[at] != s)
        at++;
    memmove(e->live + at, e->live + at + 1, (size_t)(e->n_live - at - 1) * sizeof *e->live);
    e->n_live--;
    if (e->n_live == 0) e->n_finishes = 0; /* no competing requests: the fair queue starts afresh */
    e->stats.running -= s->running;
    e->stats.waiting -= !s->running;
    e->stats.never_started += !s->started;
    pthread_mutex_unlock(&e->lock);
}

/* Gives back all that the i-th sequence of the turn holds, then tells its client, then frees it.
 * failure NULL: finished with reason. */
static void end(engine *e, int i, finish_reason reason, const pf_err *failure)
{
    sequence *s = e->turn[i];
    int64_t now = clock_monotonic_ns();
    kv_release(e->kv, &s->table, s->tokens, s->marks, s->computed);
    release_adapter(e, s);
    remove_live(e, s);
    if (failure)
        sequence_send_failed(s, failure, now);
    else
        sequence_send_finished(s, reason, now);
    sequence_free(s);
    e->turn[i] = NULL;
}

static bool end_cancelled(engine *e)
{
    bool any = false;
    for (int i = 0; i < e->n_turn; i++) {
        sequence *s = e->turn[i];
        if (atomic_load(&s->cancelled)) {
            end(e, i, FINISH_CANCELLED, NULL);
            any = true;
        } else if (s->adapter && !s->prompt_read &&
                   adapter_version_dropped(e->adapters, s->adapter)) {
            pf_err err = {0};
            err_set(&err, PF_NOT_FOUND,
                    "the profile's adapter was removed before the prompt was read");
            end(e, i, 0, &err);
            any = true;
        }
    }
    return any;
}

void engine_cancel_all(engine *e)
{
    for (int i = 0; i < e->n_turn; i++)
        if (e->turn[i]) end(e, i, FINISH_CANCELLED, NULL);
}

/* --- plan ------------------------------------------------------------------------------------- */

static void describe(const sequence *s, sched_item *item)
{
    *item = (sched_item){.user = s->user,
                         .priority = s->priority,
                         .tag = s->line_tag,
                         .running = s->running,
                         .limited = s->limited,
                         .tokens = s->n,
                         .computed = s->computed,
                         .writing = sequence_is_writing(s),
                         .limit = s->limit,
                         .reserved = s->reserved,
                         .overtaken = s->overtaken};
}

/* Compacts the remaining sequences of the turn and describes them for the scheduler. */
static void describe_all(engine *e)
{
    int n = 0;
    for (int i = 0; i < e->n_turn; i++)
        if (e->turn[i]) e->turn[n++] = e->turn[i];
    e->n_turn = n;
    for (int i = 0; i < n; i++)
        describe(e->turn[i], &e->items[i]);
}

/* Marks the prompt of a waiting sequence and asks for its adapter. False: it failed and ended. */
static bool prepare(engine *e, int i)
{
    sequence *s = e->turn[i];
    pf_err err = {0};
    bool failed = false;
    wait_reason why = WAIT_NOTHING;
    if (s->adapter) why = adapter_cache_need(e->adapters, s->adapter, &failed, &err);
    if (failed) {
        end(e, i, 0, &err);
        return false;
    }
    if (why == WAIT_NOTHING && !s->marked)
        sequence_mark(s, s->adapter != NULL,
                      s->adapter && adapter_version_prefill_only(s->adapter));
    e->items[i].adapter = why;
    return true;
}

/* Adapters are asked for in the order of the line, so that earlier requests get theirs first. */
static bool prepare_waiting(engine *e)
{
    bool all = true;
    int n = scheduler_line(e->items, e->n_turn, e->line);
    for (int i = 0; i < n; i++)
        if (!prepare(e, e->line[i])) all = false;
    return all;
}

static prefix_key chain_root(const engine *e, const sequence *s)
{
    unsigned char salt[32];
    const unsigned char *digest =
        s->adapter && s->has_adapted ? adapter_version_digest(s->adapter) : NULL;
    crypto_generichash(salt, sizeof salt, (const unsigned char *)&s->user, sizeof s->user,
                       e->secret, sizeof e->secret);
    return prefix_root(model_digest(e->model), digest, salt);
}

/* The adapter's work in this sequence is done: its pages hold all adapted tokens. Only an answer
 * that may be interrupted keeps a reference, to compute its prompt again. */
static void prompt_was_read(engine *e, sequence *s)
{
    s->prompt_read = true;
    if (!s->adapter || s->mark_generated) return;
    if (s->pinned) adapter_cache_unpin(e->adapters, s->adapter);
    s->pinned = false;
    if (s->limited) release_adapter(e, s);
}

static void start(engine *e, sequence *s)
{
    prefix_key root = s->started ? s->table.root : chain_root(e, s);
    kv_table_init(&s->table, s->user, &root);
    /* The last token is always computed: its logits are needed. */
    s->computed = kv_find_prefix(e->kv, &s->table, s->tokens, s->marks, s->n - 1);
    s->running = true;
    s->told = WAIT_NOTHING;
    if (s->adapter) {
        adapter_cache_pin(e->adapters, s->adapter);
        s->pinned = true;
    }
    if (!s->started) {
        s->started = true;
        s->started_at = clock_monotonic_ns();
        s->cached = s->computed;
        sequence_send_started(s);
    }
    if (s->computed >= s->n_prompt) prompt_was_read(e, s);
}

static void interrupt(engine *e, sequence *s)
{
    kv_release(e->kv, &s->table, s->tokens, s->marks, s->computed);
    s->computed = 0;
    s->running = false;
    s->preemptions++;
    if (s->pinned) adapter_cache_unpin(e->adapters, s->adapter);
    s->pinned = false;
}

static void tell_waiting(const engine *e, sequence *s, wait_reason why, int64_t now)
{
    if (why == s->told) return;
    char text[160] = "";
    switch (why) {
    case WAIT_NOTHING:
        return;
    case WAIT_PLACE:
        snprintf(text, sizeof text, "waiting: %d answers are being written, the most at once",
                 e->limits.max_running);
        break;
    case WAIT_PAGES:
        snprintf(text, sizeof text,
                 "waiting for memory: other conversations fill the cache of %d tokens",
                 e->n_pages * e->limits.page_tokens);
        break;
    case WAIT_ADAPTER:
        snprintf(text, sizeof text, "waiting for the profile to be loaded");
        break;
    case WAIT_SLOT:
        snprintf(text, sizeof text, "waiting for a place to load the profile: all are in use");
        break;
    case WAIT_EARLIER:
        snprintf(text, sizeof text, "waiting in line behind earlier requests");
        break;
    }
    sequence_send_waiting(s, why, text, now);
}

/* Carries out what the scheduler decided about memory. True if something started or stopped. */
static bool apply_decisions(engine *e)
{
    bool any = false;
    int64_t now = clock_monotonic_ns();
    for (int i = 0; i < e->n_turn; i++) /* pages come back before they are taken */
        if (e->decisions[i].action == SCHED_PREEMPT) interrupt(e, e->turn[i]);
    for (int i = 0; i < e->n_turn; i++) {
        sequence *s = e->turn[i];
        const sched_decision *d = &e->decisions[i];
        s->reserved = d->reserved;
        s->overtaken = d->overtaken;
        if (d->action == SCHED_ADMIT) start(e, s);
        if (!s->running) tell_waiting(e, s, d->why, now);
        any |= d->action != SCHED_KEEP;
        describe(s, &e->items[i]);
    }
    return any;
}

static void count_decisions(engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_turn; i++) {
        const sequence *s = e->turn[i];
        if (e->decisions[i].action == SCHED_ADMIT) {
            e->stats.running++;
            e->stats.waiting--;
            if (s->preemptions == 0) e->stats.cached_tokens += (uint64_t)s->cached;
            if (s->line_tag > e->virtual_time) e->virtual_time = s->line_tag;
        } else if (e->decisions[i].action == SCHED_PREEMPT) {
            e->stats.running--;
            e->stats.waiting++;
            e->stats.preemptions++;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* --- compute ---------------------------------------------------------------------------------- */

typedef struct {
    int rows, writing, prompt; /* prompt: of sequences that are not writing */
    int left_out;              /* sequences that are writing, without a row */
    int prompt_rows;           /* tokens of prompts, recomputed ones too */
    int generated, sequences;
    kn_counters done;
} step_count;

static void add_rows(engine *e, sequence *s, int n, step_count *count)
{
    const packed_adapter *adapter = s->pinned ? adapter_version_packed(s->adapter) : NULL;
    kv_extend(e->kv, &s->table, s->computed + n);
    for (int i = 0; i < n; i++) {
        int at = s->computed + i;
        PF_ASSERT(!s->marks[at] || adapter);
        e->rows[count->rows++] = (forward_row){.token = s->tokens[at],
                                               .position = at,
                                               .pages = s->table.pages,
                                               .adapter = s->marks[at] ? adapter : NULL,
                                               .wants_logits = at == s->n - 1};
        count->prompt_rows += at < s->n_prompt;
        count->generated += at == s->n - 1;
    }
}

static void describe_sample(const sequence *s, kn_sample *out)
{
    sample_describe(&s->sampling, s->tokens, s->n, s->seed, (uint64_t)sequence_generated(s),
                    s->n_logprobs > 0 ? s->n_logprobs : -1, out);
}

static pf_status compute(engine *e, step_count *count, pf_err *err)
{
    kn_counters before, *done = &count->done;
    int n_logits = 0;
    for (int i = 0; i < e->n_turn; i++) {
        int n = e->shares[i];
        count->left_out += n == 0 && e->items[i].running && e->items[i].writing;
        if (n == 0) continue;
        add_rows(e, e->turn[i], n, count);
        if (e->samples && e->turn[i]->computed + n == e->turn[i]->n)
            describe_sample(e->turn[i], &e->samples[n_logits++]);
        count->sequences++;
        *(e->items[i].writing ? &count->writing : &count->prompt) += n;
    }
    e->be->ops->counters(e->be, &before);
    pf_status status;
    if (e->samples)
        status = forward_run_choose(e->forward, e->rows, count->rows, e->samples, e->choices, err);
    else
        status = forward_run(e->forward, e->rows, count->rows, err);
    e->be->ops->counters(e->be, done);
    done->weight_bytes -= before.weight_bytes;
    done->adapter_bytes -= before.adapter_bytes;
    done->kv_bytes -= before.kv_bytes;
    done->mac -= before.mac;
    done->adapter_mac -= before.adapter_mac;
    return status;
}

/* --- deliver ---------------------------------------------------------------------------------- */

/* The next token of a sequence from the step's row-th logits; -1 if they are worthless. top: as
 * many as the sequence asked for, owned, or NULL. */
static int32_t choose(engine *e, const sequence *s, int row, float *logprob, token_logprob **top)
{
    int vocab = e->config->vocab;
    const kn_choice *made = e->choices ? &e->choices[row] : NULL;
    const float *logits = made ? NULL : forward_logits(e->forward, row);
    int32_t token = made ? made->token
                         : sample_token(&e->scratch, &s->sampling, logits, vocab, s->tokens, s->n,
                                        s->seed, (uint64_t)sequence_generated(s));
    if (token < 0 || s->n_logprobs <= 0) return token;
    *top = xcalloc((size_t)s->n_logprobs, sizeof **top);
    if (!made) {
        sample_logprobs(logits, vocab, token, s->n_logprobs, logprob, *top);
        return token;
    }
    *logprob = made->logprob;
    for (int i = 0; i < s->n_logprobs; i++)
        (*top)[i] = (token_logprob){made->top_id[i], made->top_logprob[i]};
    return token;
}

/* Chooses the next token of the i-th sequence and sends it. */
static void deliver(engine *e, int i, int row, const take_context *ctx)
{
    sequence *s = e->turn[i];
    float logprob = 0;
    token_logprob *top = NULL;
    finish_reason reason;
    int32_t token = choose(e, s, row, &logprob, &top);
    if (token < 0) {
        pf_err err = {0};
        err_set(&err, PF_DAMAGED,
                "the model's output is not a number: its weights or the adapter's are damaged");
        end(e, i, 0, &err);
        return;
    }
    if (sequence_take(s, ctx, token, logprob, top, &reason)) end(e, i, reason, NULL);
}

static void deliver_all(engine *e)
{
    int n_logits = 0;
    take_context ctx = {.tokenizer = e->tokenizer,
                        .stop_ids = e->config->stop_ids,
                        .n_stop_ids = e->config->n_stop_ids,
                        .now = clock_monotonic_ns()};
    for (int i = 0; i < e->n_turn; i++) {
        sequence *s = e->turn[i];
        if (e->shares[i] == 0) continue;
        s->computed += e->shares[i];
        kv_publish(e->kv, &s->table, s->tokens, s->marks, s->computed);
        if (s->computed >= s->n_prompt && (s->pinned || !s->prompt_read)) prompt_was_read(e, s);
        if (s->computed < s->n) continue;
        deliver(e, i, n_logits++, &ctx);
    }
}

static void fail_step(engine *e, const pf_err *err)
{
    for (int i = 0; i < e->n_turn; i++)
        if (e->shares[i] > 0) end(e, i, 0, err);
}

static void count_work(engine_work *work, const step_count *count)
{
    work->steps++;
    work->rows += (uint64_t)count->rows;
    work->weight_bytes += count->done.weight_bytes;
    work->adapter_bytes += count->done.adapter_bytes;
    work->kv_bytes += count->done.kv_bytes;
    work->mac += count->done.mac;
    work->adapter_mac += count->done.adapter_mac;
}

static void count_step(engine *e, const step_count *count, int64_t now)
{
    rate_meter *r = &e->rates;
    int64_t tenth = now / 100000000;
    int slot = (int)(tenth % RATE_SLOTS);
    pthread_mutex_lock(&e->lock);
    if (r->tenth[slot] != tenth) {
        r->tenth[slot] = tenth;
        r->prompt[slot] = r->generated[slot] = 0;
    }
    r->prompt[slot] += count->prompt;
    r->generated[slot] += count->generated;
    engine_count_memory(e);
    e->stats.steps++;
    e->stats.last_batch = count->sequences;
    e->stats.prompt_tokens += (uint64_t)count->prompt;
    e->stats.generated_tokens += (uint64_t)count->generated;
    count_work(count->prompt_rows ? &e->stats.prefill : &e->stats.decode, count);
    e->stats.decode_waits += (uint64_t)count->left_out;
    e->stats.decode_adapter_bytes = e->stats.decode.adapter_bytes;
    pthread_mutex_unlock(&e->lock);
}

static void run_step(engine *e)
{
    step_count count = {0};
    pf_err err = {0};
    int64_t begin = clock_monotonic_ns();
    pf_status status = compute(e, &count, &err);
    e->n_steps++;
    if (status != PF_OK) {
        fail_step(e, &err);
        return;
    }
    count_step(e, &count, clock_monotonic_ns()); /* before any client can ask */
    deliver_all(e);
    pace_record(&e->pace, clock_monotonic_ns() - begin, count.writing, count.prompt);
    e->only_writing = count.writing > 0 && count.prompt == 0;
}

/* A held step: only this client's requests take part, and its answers rest while one of its prompts
 * is still to be read. */
static void exclude_other_clients(engine *e)
{
    bool reading = false;
    for (int i = 0; i < e->n_turn; i++) {
        bool taken = e->turn[i]->client == e->only;
        e->items[i].running &= taken;
        reading |= taken && !e->items[i].writing;
    }
    for (int i = 0; reading && i < e->n_turn; i++)
        e->items[i].running &= !e->items[i].writing;
}

bool engine_turn(engine *e)
{
    bool any = end_cancelled(e);
    e->only_writing = false;
    describe_all(e);
    memory_begin_plan(e);
    if (!prepare_waiting(e)) {
        memory_end_plan(e);
        return true; /* one failed: plan again without it */
    }
    memory_set_pages(e);
    scheduler_admit(&e->limits, e->items, e->n_turn, e->decisions);
    any |= apply_decisions(e);
    memory_end_plan(e);
    count_decisions(e);
    if (e->only) exclude_other_clients(e);
    int writing = 0;
    for (int i = 0; i < e->n_turn; i++)
        writing += e->items[i].running && e->items[i].writing;
    int budget = e->paced ? pace_budget(&e->pace, writing) : e->step_tokens;
    int rows =
        scheduler_share(e->items, e->n_turn, budget, ENGINE_LEAST_PART, e->n_steps, e->shares);
    if (rows > 0) run_step(e);
    return any || rows > 0;
}
