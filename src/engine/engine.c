/* The engine's life and the calls that other threads make. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/budget.h"
#include "engine/runtime.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CONTEXT (1 << 24)

const char *finish_reason_name(finish_reason r)
{
    static const char *const names[] = {"stop", "length", "context", "cancelled"};
    return names[r];
}

/* --- engine thread ---------------------------------------------------------------------------- */

static void reserve_turn(engine *e, int n)
{
    if (n <= e->cap_turn) return;
    size_t cap = (size_t)n * 2;
    e->turn = xrealloc_array(e->turn, cap, sizeof *e->turn);
    e->items = xrealloc_array(e->items, cap, sizeof *e->items);
    e->decisions = xrealloc_array(e->decisions, cap, sizeof *e->decisions);
    e->shares = xrealloc_array(e->shares, cap, sizeof *e->shares);
    e->line = xrealloc_array(e->line, cap, sizeof *e->line);
    e->cap_turn = (int)cap;
}

/* Runs the queued calls. The lock is held, but not while a call runs. */
static void run_calls(engine *e)
{
    while (e->calls) {
        engine_call *call = e->calls;
        e->calls = call->next;
        if (!e->calls) e->calls_end = &e->calls;
        pthread_mutex_unlock(&e->lock);
        call->fn(e, call->args);
        pthread_mutex_lock(&e->lock);
        call->done = true;
        pthread_cond_broadcast(&e->call_done);
    }
}

void engine_take_turn(engine *e)
{
    reserve_turn(e, e->n_live);
    e->n_turn = e->n_live;
    if (e->n_live) memcpy(e->turn, e->live, (size_t)e->n_live * sizeof *e->turn);
}

static void *engine_main(void *arg)
{
    engine *e = arg;
    bool busy = false, more = false; /* more: background work goes on */
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!busy && !more && !e->attention && !e->stopping)
            pthread_cond_wait(&e->wake, &e->lock);
        e->attention = false;
        engine_take_turn(e); /* first: that an adapter is dropped is seen by whoever came before */
        run_calls(e);
        if (e->stopping) break;
        pthread_mutex_unlock(&e->lock);
        int64_t start = clock_monotonic_ns();
        busy = engine_turn(e);
        more = background_turn(e, busy, clock_monotonic_ns() - start);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    background_close(e);
    engine_cancel_all(e);
    return NULL;
}

void engine_attention(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->attention = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void engine_run_call(engine *e, void (*fn)(engine *, void *), void *args)
{
    engine_call call = {.fn = fn, .args = args};
    pthread_mutex_lock(&e->lock);
    *e->calls_end = &call;
    e->calls_end = &call.next;
    e->attention = true;
    pthread_cond_signal(&e->wake);
    while (!call.done)
        pthread_cond_wait(&e->call_done, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static pf_status check_options(const model_config *config, const engine_options *o, pf_err *err)
{
    const struct {
        const char *field;
        int64_t value, high;
    } rules[] = {
        {"context", o->context, config->context},
        {"kv_tokens", o->kv_tokens, (int64_t)1 << 34},
        {"threads", o->threads, 1024},
        {"step_tokens", o->step_tokens, 65536},
        {"max_batch", o->max_batch, 16384},
        {"adapter_slots", o->adapter_slots, 1 << 20},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].value < 0 || rules[i].value > rules[i].high)
            return err_set(err, PF_USAGE, "%s is %lld: it must be between 1 and %lld (0 = default)",
                           rules[i].field, (long long)rules[i].value, (long long)rules[i].high);
    return PF_OK;
}

static kn_kv_type choose_kv_type(const model *m, const kn_backend *be, engine_kv_type asked)
{
    static const kn_kv_type types[] = {
        [ENGINE_KV_F32] = KN_KV_F32, [ENGINE_KV_F16] = KN_KV_F16, [ENGINE_KV_Q8] = KN_KV_Q8};
    if (asked != ENGINE_KV_AUTO) return types[asked];
    kn_type type = model_get_weights(m)->layers[0].q.type;
    return strcmp(be->isa, "ref") == 0 || !kn_type_get(type)->quantized ? KN_KV_F32 : KN_KV_F16;
}

static uint64_t matrix_bytes(const kn_matrix *m)
{
    return m->data ? (uint64_t)m->rows * kn_row_bytes(m->type, m->cols) : 0;
}

/* What the packed model will take, about: the file's bytes, with room for padding. */
static uint64_t weight_bytes(const model *m)
{
    const model_weights *w = model_get_weights(m);
    uint64_t bytes = matrix_bytes(&w->embedding) + (w->tied ? 0 : matrix_bytes(&w->output));
    for (int i = 0; i < model_get_config(m)->n_layers; i++) {
        const model_layer *l = &w->layers[i];
        const kn_matrix *maps[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof maps / sizeof *maps; j++)
            bytes += matrix_bytes(maps[j]);
    }
    return bytes + bytes / 4;
}

/* What may still be taken where weights, pages and adapters will lie. */
static uint64_t available_bytes(kn_backend *be)
{
    size_t free_bytes, total_bytes;
    if (!be->ops->memory) return budget_available();
    be->ops->memory(be, &free_bytes, &total_bytes);
    return free_bytes;
}

/* Chooses KV pages, adapter bytes and the context, and opens the forward pass. */
static pf_status open_forward(engine *e, const engine_options *o, pf_err *err)
{
    e->limits.page_tokens = ENGINE_PAGE_TOKENS;
    e->limits.max_running = o->max_batch ? o->max_batch : ENGINE_MAX_BATCH;
    e->step_tokens = o->step_tokens ? o->step_tokens : ENGINE_STEP_TOKENS;
    e->paced = o->step_tokens == 0;
    e->context = o->context ? o->context : e->config->context;
    if (e->context > MOST_CONTEXT) e->context = MOST_CONTEXT;

    forward_options f = {.max_rows = e->limits.max_running + e->step_tokens,
                         .max_logits = e->limits.max_running,
                         .page_tokens = ENGINE_PAGE_TOKENS,
                         .n_pages = 1,
                         .kv_type = choose_kv_type(e->model, e->be, o->kv_type)};
    kn_kv_shape shape = forward_kv_shape(e->config, &f);
    e->page_bytes = e->be->ops->kv_page_bytes(e->be, &shape);
    uint64_t token_bytes = (e->page_bytes + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
    budget_request request = {.available = available_bytes(e->be),
                              .weight_bytes = weight_bytes(e->model),
                              .token_bytes = token_bytes,
                              .context = (e->context + ENGINE_PAGE_TOKENS - 1) /
                                         ENGINE_PAGE_TOKENS * ENGINE_PAGE_TOKENS,
                              .budget_bytes = o->memory_bytes,
                              .kv_tokens = o->kv_tokens,
                              .adapter_bytes = o->adapter_bytes,
                              .fixed = !e->be->ops->kv_discard};
    pf_status status = budget_choose(&request, &e->budget, err);
    if (status != PF_OK) return status;
    e->shared_memory = !request.fixed && o->kv_tokens == 0 && o->adapter_bytes == 0;
    int64_t pages = e->budget.kv_tokens / ENGINE_PAGE_TOKENS;
    if (pages < 1 || pages > INT32_MAX / ENGINE_PAGE_TOKENS)
        return err_set(err, PF_USAGE, "a KV budget of %lld tokens: it must be between %d and %d",
                       (long long)e->budget.kv_tokens, ENGINE_PAGE_TOKENS, INT32_MAX);
    f.n_pages = e->n_pages = e->limits.total_pages = (int)pages;
    /* Beside the most that adapters may take. */
    int64_t least = (int64_t)((e->budget.bytes - e->budget.adapter_bytes) / e->page_bytes);
    if (!e->shared_memory || least > pages) least = pages;
    if (least * ENGINE_PAGE_TOKENS < e->context) {
        e->context = (int)least * ENGINE_PAGE_TOKENS;
        e->context_by_kv = true;
    }
    int quantum = e->context / 16;
    if (quantum < ENGINE_PAGE_TOKENS) quantum = ENGINE_PAGE_TOKENS;
    e->limits.quantum = quantum < 256 ? quantum : 256;
    /* Kept from here on, so that nobody waits for it. It reads samples of the whole file, whose
     * pages and the packed weights shall not be there at once. */
    model_digest(e->model);
    model_release_pages(e->model);
    return forward_open(e->model, e->be, &f, &e->forward, err);
}

static void copy_page(void *ctx, int32_t src, int32_t dst, int n_tokens)
{
    engine *e = ctx;
    e->be->ops->kv_copy(e->be, forward_kv(e->forward), src, dst, n_tokens);
}

static void clear_page(void *ctx, int32_t page)
{
    engine *e = ctx;
    e->be->ops->kv_clear(e->be, forward_kv(e->forward), page);
}

static void discard_page(void *ctx, int32_t page)
{
    engine *e = ctx;
    e->be->ops->kv_discard(e->be, forward_kv(e->forward), page);
}

static void wake_engine(void *ctx)
{
    engine_attention(ctx);
}

static void fill_stats(engine *e)
{
    e->stats.device = e->be->device;
    e->stats.isa = e->be->isa;
    e->stats.threads = e->be->threads;
    e->stats.kv_tokens_total = (int64_t)e->n_pages * ENGINE_PAGE_TOKENS;
    e->stats.memory_bytes = e->budget.bytes;
}

static pf_status open_parts(engine *e, const engine_options *o, pf_err *err)
{
    char message[256] = "";
    kn_options kn = {
        .device = o->device ? o->device : "auto", .isa = o->isa, .threads = o->threads};
    e->be = kn_backend_open(&kn, message, sizeof message);
    if (!e->be) return err_set(err, PF_USAGE, "%s", message);
    pf_status status = open_forward(e, o, err);
    if (status != PF_OK) return status;
    kv_ops ops = {.copy = copy_page,
                  .clear = clear_page,
                  .ctx = e,
                  .discard = e->be->ops->kv_discard ? discard_page : NULL};
    e->kv = kv_create(e->n_pages, ENGINE_PAGE_TOKENS, !o->no_prefix_cache, &ops);
    adapter_cache_options a = {
        .bytes = e->budget.adapter_bytes, .slots = o->adapter_slots, .wake = wake_engine, .ctx = e};
    status = adapter_cache_open(e->config, e->be, &a, &e->adapters, err);
    if (status != PF_OK) return status;
    e->rows = xcalloc((size_t)(e->limits.max_running + e->step_tokens), sizeof *e->rows);
    if (forward_can_choose(e->forward)) {
        e->samples = xcalloc((size_t)e->limits.max_running, sizeof *e->samples);
        e->choices = xcalloc((size_t)e->limits.max_running, sizeof *e->choices);
    }
    pace_init(&e->pace, e->step_tokens);
    fill_stats(e);
    int rc = pthread_create(&e->thread, NULL, engine_main, e);
    if (rc != 0) return err_errno(err, PF_FAILED, rc, "the engine thread can't be started");
    e->thread_runs = true;
    return PF_OK;
}

pf_status engine_open(const model *m, const engine_options *options, engine **out, pf_err *err)
{
    static const engine_options defaults;
    if (!options) options = &defaults;
    pf_status status = check_options(model_get_config(m), options, err);
    if (status != PF_OK) return status;
    if (sodium_init() < 0) return err_set(err, PF_FAILED, "libsodium can't be initialised");
    engine *e = xcalloc(1, sizeof *e);
    e->model = m;
    e->config = model_get_config(m);
    e->tokenizer = model_get_tokenizer(m);
    e->calls_end = &e->calls;
    randombytes_buf(e->secret, sizeof e->secret);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    pthread_cond_init(&e->call_done, NULL);
    status = open_parts(e, options, err);
    if (status == PF_OK)
        *out = e;
    else
        engine_close(e);
    return status;
}

static void stop_thread(engine *e)
{
    if (!e->thread_runs) return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

void engine_close(engine *e)
{
    if (!e) return;
    if (e->adapters) adapter_cache_stop(e->adapters);
    stop_thread(e);
    for (int i = 0; i < e->n_clients; i++)
        client_detach(e->clients[i]);
    kv_free(e->kv);
    adapter_cache_close(e->adapters);
    forward_close(e->forward);
    if (e->be) e->be->ops->close(e->be);
    sample_scratch_free(&e->scratch);
    free(e->turn);
    free(e->items);
    free(e->decisions);
    free(e->shares);
    free(e->line);
    free(e->rows);
    free(e->samples);
    free(e->choices);
    free(e->live);
    free(e->clients);
    free(e->finishes);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->call_done);
    pthread_mutex_destroy(&e->lock);
    explicit_bzero(e->secret, sizeof e->secret);
    free(e);
}

/* --- clients ---------------------------------------------------------------------------------- */

engine_client *engine_client_open(engine *e)
{
    engine_client *c = client_create(e);
    if (!c) return NULL;
    pthread_mutex_lock(&e->lock);
    if (e->n_clients == e->cap_clients) {
        e->cap_clients = e->cap_clients ? 2 * e->cap_clients : 8;
        e->clients = xrealloc_array(e->clients, (size_t)e->cap_clients, sizeof *e->clients);
    }
    e->clients[e->n_clients++] = c;
    pthread_mutex_unlock(&e->lock);
    return c;
}

static void forget_client(engine *e, const engine_client *c)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_live; i++)
        if (e->live[i]->client == c) atomic_store(&e->live[i]->cancelled, true);
    for (int i = 0; i < e->n_clients; i++)
        if (e->clients[i] == c) e->clients[i] = e->clients[--e->n_clients];
    e->attention = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void engine_client_close(engine_client *c)
{
    if (!c) return;
    engine *e = client_engine(c);
    if (e) forget_client(e, c);
    client_shut(c);
    client_unref(c);
}

void engine_cancel(engine *e, request_id id)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_live; i++)
        if (e->live[i]->id == id) atomic_store(&e->live[i]->cancelled, true);
    e->attention = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* --- adapters --------------------------------------------------------------------------------- */

typedef struct {
    const void *blob;
    size_t len;
    const adapter_source *source;
    adapter_id *id;
    adapter_info *info;
    pf_err *err;
    pf_status status;
} put_args;

static void do_put(engine *e, void *args)
{
    put_args *a = args;
    a->status = adapter_cache_put(e->adapters, a->blob, a->len, a->source, a->id, a->info, a->err);
}

/* Adapters are packed by the caller where the backend allows it, else by the engine thread. */
static void put(engine *e, put_args *a)
{
    if (e->be->adapters_anywhere)
        do_put(e, a);
    else
        engine_run_call(e, do_put, a);
}

pf_status engine_adapter_add(engine *e, const void *blob, size_t len, const adapter_source *source,
                             adapter_id *out, adapter_info *info, pf_err *err)
{
    adapter_id id = 0;
    put_args a = {blob, len, source, &id, info, err, PF_OK};
    put(e, &a);
    if (a.status == PF_OK) *out = id;
    return a.status;
}

void engine_adapter_prefetch(engine *e, adapter_id id)
{
    adapter_cache_prefetch(e->adapters, id);
    engine_attention(e);
}

pf_status engine_adapter_add_lazy(engine *e, const unsigned char digest[32],
                                  const adapter_source *source, adapter_id *out, pf_err *err)
{
    if (!source || !source->fetch)
        return err_set(err, PF_USAGE, "an adapter that is not loaded now needs a source");
    *out = adapter_cache_put_lazy(e->adapters, digest, source);
    return PF_OK;
}

pf_status engine_adapter_replace(engine *e, adapter_id id, const void *blob, size_t len,
                                 const adapter_source *source, adapter_info *info, pf_err *err)
{
    if (id == 0) return err_set(err, PF_NOT_FOUND, "there is no adapter 0 to replace");
    put_args a = {blob, len, source, &id, info, err, PF_OK};
    put(e, &a);
    return a.status;
}

typedef struct {
    adapter_id id;
    bool known;
} drop_args;

static void do_drop(engine *e, void *args)
{
    drop_args *a = args;
    a->known = adapter_cache_drop(e->adapters, a->id);
}

pf_status engine_adapter_drop(engine *e, adapter_id id, pf_err *err)
{
    drop_args a = {id, false};
    engine_run_call(e, do_drop, &a);
    if (a.known) return PF_OK;
    return err_set(err, PF_NOT_FOUND, "there is no adapter %llu", (unsigned long long)id);
}

/* --- state ------------------------------------------------------------------------------------ */

void engine_get_stats(engine *e, engine_stats *out)
{
    adapter_cache_usage adapters = adapter_cache_get_usage(e->adapters);
    int64_t tenth = clock_monotonic_ns() / 100000000;
    double prompt = 0, generated = 0;
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    for (int i = 0; i < RATE_SLOTS; i++) {
        if (e->rates.tenth[i] <= tenth - RATE_SLOTS) continue;
        prompt += e->rates.prompt[i];
        generated += e->rates.generated[i];
    }
    pthread_mutex_unlock(&e->lock);
    out->prefill_rate = prompt;
    out->decode_rate = generated;
    out->adapters_registered = adapters.registered;
    out->adapters_loaded = adapters.loaded;
    out->adapters_coming = adapters.coming;
    out->adapter_bytes_used = adapters.bytes;
    out->memory_used += adapters.bytes;
    out->adapter_loads = adapters.loads;
    out->adapter_stalls = adapters.stalls;
}

const model *engine_model(const engine *e)
{
    return e->model;
}

int engine_context(const engine *e)
{
    return e->context;
}

static void do_forget(engine *e, void *args)
{
    uint64_t user = *(const uint64_t *)args;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_live; i++) /* also those that came after the turn was taken */
        if (e->live[i]->user == user) e->live[i]->table.forgotten = true;
    pthread_mutex_unlock(&e->lock);
    kv_forget_user(e->kv, user);
    forward_forget(e->forward);
    sample_scratch_free(&e->scratch);
    explicit_bzero(e->rows, (size_t)(e->limits.max_running + e->step_tokens) * sizeof *e->rows);
    const size_t most = (size_t)e->limits.max_running;
    if (e->samples) explicit_bzero(e->samples, most * sizeof *e->samples);
    if (e->choices) explicit_bzero(e->choices, most * sizeof *e->choices);
    pthread_mutex_lock(&e->lock);
    engine_count_memory(e);
    pthread_mutex_unlock(&e->lock);
}

void engine_forget_user(engine *e, uint64_t user)
{
    engine_run_call(e, do_forget, &user);
}
