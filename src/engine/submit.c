/* Requests come in: checked, rendered and tokenized on the caller's thread, then queued. */
#include "engine/runtime.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/conversation.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* --- checks ----------------------------------------------------------------------------------- */

static pf_status check_stops(const engine_request *r, pf_err *err)
{
    if (r->n_stops < 0 || r->n_stops > ENGINE_MAX_STOPS)
        return err_set(err, PF_USAGE, "stop has %d strings: at most %d are possible", r->n_stops,
                       ENGINE_MAX_STOPS);
    for (int i = 0; i < r->n_stops; i++) {
        size_t len = r->stops[i] ? strlen(r->stops[i]) : 0;
        if (len == 0) return err_set(err, PF_USAGE, "stop string %d is empty: leave it out", i + 1);
        if (len > STOPS_MAX_BYTES)
            return err_set(err, PF_USAGE, "stop string %d has %zu bytes: at most %d are possible",
                           i + 1, len, STOPS_MAX_BYTES);
        if (!utf8_valid(r->stops[i], len))
            return err_set(err, PF_USAGE, "stop string %d is not valid UTF-8", i + 1);
    }
    return PF_OK;
}

static pf_status check_request(const engine *e, const engine_request *r, pf_err *err)
{
    int kinds = (r->messages != NULL) + (r->text != NULL) + (r->ids != NULL);
    if (kinds != 1)
        return err_set(err, PF_USAGE,
                       "a request needs exactly one of messages, text and ids: it has %d", kinds);
    if (r->max_tokens < 0)
        return err_set(err, PF_USAGE, "max_tokens is %d: it must be 1 or more (0 = no limit)",
                       r->max_tokens);
    if (r->logprobs < 0 || r->logprobs > ENGINE_MAX_TOP || r->logprobs > e->config->vocab)
        return err_set(err, PF_USAGE, "logprobs is %d: it must be between 0 and %d", r->logprobs,
                       ENGINE_MAX_TOP < e->config->vocab ? ENGINE_MAX_TOP : e->config->vocab);
    if (r->positions > POSITIONS_NONE)
        return err_set(err, PF_USAGE, "positions has an unknown value: %d", (int)r->positions);
    pf_status status = sampling_check(&r->sampling, err);
    return status == PF_OK ? check_stops(r, err) : status;
}

/* --- prompt ----------------------------------------------------------------------------------- */

/* Room for the answer when old turns may leave: what was asked for, within half the context. */
static size_t answer_room(const engine *e, int max_tokens)
{
    int most = e->context / 2, room = max_tokens > 0 ? max_tokens : e->context / 4;
    if (room > most) room = most;
    return room > 0 ? (size_t)room : 1;
}

static pf_status render(const engine *e, const engine_request *r, conversation_prompt *prompt,
                        pf_err *err)
{
    const chat_template *ct;
    pf_status status = model_template(e->model, &ct, err);
    if (status != PF_OK) return status;
    size_t most = (size_t)e->context - 1;
    conversation_options options = {.policy = POSITIONS_NONE,
                                    .generation = true,
                                    .budget = most,
                                    .drop_oldest = r->drop_oldest};
    if (r->drop_oldest) {
        options.budget = (size_t)e->context - answer_room(e, r->max_tokens);
        status = conversation_render(ct, e->tokenizer, r->messages, r->n_messages, &options, prompt,
                                     NULL);
        if (status == PF_OK) return status;
        conversation_prompt_free(prompt); /* the last turn alone is longer: any room will do */
        options.budget = most;
    }
    return conversation_render(ct, e->tokenizer, r->messages, r->n_messages, &options, prompt, err);
}

static pf_status check_length(const engine *e, size_t n, pf_err *err)
{
    if (n == 0)
        return err_set(err, PF_USAGE, "the prompt is empty: there is nothing to continue from");
    if (n < (size_t)e->context) return PF_OK;
    return err_set(err, PF_REFUSED,
                   "the prompt has %zu tokens, the context holds %d%s and needs room for an answer "
                   "token: shorten it or start a new conversation",
                   n, e->context, e->context_by_kv ? " (the KV budget)" : "");
}

static pf_status read_ids(const engine *e, const engine_request *r, conversation_prompt *prompt,
                          pf_err *err)
{
    pf_status status = check_length(e, r->n_ids, err);
    if (status != PF_OK) return status;
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || r->ids[i] >= e->config->vocab)
            return err_set(err, PF_USAGE, "ids[%zu] is %d: the vocabulary has ids 0 to %d", i,
                           r->ids[i], e->config->vocab - 1);
    id_list_append_all(&prompt->ids, r->ids, r->n_ids);
    if (r->ids_parts) {
        prompt->parts = xmalloc(r->n_ids);
        memcpy(prompt->parts, r->ids_parts, r->n_ids);
    }
    return PF_OK;
}

static pf_status read_prompt(const engine *e, const engine_request *r, conversation_prompt *prompt,
                             pf_err *err)
{
    pf_status status = PF_OK;
    if (r->messages)
        status = render(e, r, prompt, err);
    else if (r->ids)
        return read_ids(e, r, prompt, err);
    else
        tokenizer_encode(e->tokenizer, r->text, r->text_len, false, true, &prompt->ids);
    return status == PF_OK ? check_length(e, prompt->ids.len, err) : status;
}

pf_status engine_count_tokens(engine *e, const chat_message *messages, size_t n_messages,
                              size_t *out, pf_err *err)
{
    const chat_template *ct;
    conversation_prompt prompt = {0};
    conversation_options options = {.policy = POSITIONS_NONE, .generation = true};
    pf_status status = model_template(e->model, &ct, err);
    if (status != PF_OK) return status;
    status = conversation_render(ct, e->tokenizer, messages, n_messages, &options, &prompt, err);
    *out = prompt.ids.len;
    conversation_prompt_free(&prompt);
    return status;
}

/* --- queue ------------------------------------------------------------------------------------ */

static void fill(const engine *e, sequence *s, const engine_request *r, conversation_prompt *prompt)
{
    s->tag = r->tag;
    s->user = r->user;
    s->priority = r->priority;
    s->n_prompt = (int)prompt->ids.len;
    for (int i = 0; i < s->n_prompt; i++)
        sequence_append(s, prompt->ids.ids[i], false);
    s->parts = prompt->parts;
    prompt->parts = NULL;
    s->n_dropped = (int)prompt->n_dropped;
    s->policy = r->positions;
    s->limited = r->max_tokens > 0;
    s->limit = e->context;
    if (s->limited && r->max_tokens < e->context - s->n_prompt)
        s->limit = s->n_prompt + r->max_tokens;
    s->max_tokens = r->max_tokens;
    s->sampling = r->sampling;
    s->seed = r->sampling.seed;
    if (!r->sampling.has_seed) randombytes_buf(&s->seed, sizeof s->seed);
    s->n_logprobs = r->logprobs;
    s->ignore_eos = r->ignore_eos;
    s->want_prompt = r->want_prompt;
    for (int i = 0; i < r->n_stops; i++)
        stop_matcher_add(&s->stops, r->stops[i], strlen(r->stops[i]));
    s->queued_at = clock_monotonic_ns();
}

/* The user's place in the fair queue; places that mean nothing any more are reused. */
static uint64_t *finish_of(engine *e, uint64_t user)
{
    user_finish *stale = NULL;
    for (int i = 0; i < e->n_finishes; i++) {
        if (e->finishes[i].user == user) return &e->finishes[i].finish;
        if (e->finishes[i].finish <= e->virtual_time) stale = &e->finishes[i];
    }
    if (!stale) {
        if (e->n_finishes == e->cap_finishes) {
            e->cap_finishes = e->cap_finishes ? 2 * e->cap_finishes : 16;
            e->finishes = xrealloc_array(e->finishes, (size_t)e->cap_finishes, sizeof *e->finishes);
        }
        stale = &e->finishes[e->n_finishes++];
    }
    *stale = (user_finish){user, 0};
    return &stale->finish;
}

/* Tokens that the fair queue counts: those that the request may take at most. */
static uint64_t cost_of(const sequence *s)
{
    enum { USUAL_ANSWER = 256 };
    int tokens = s->n_prompt + USUAL_ANSWER;
    return (uint64_t)(s->limited || tokens > s->limit ? s->limit : tokens);
}

/* False: the engine is closing. */
static bool enqueue(engine *e, sequence *s, request_id *out)
{
    pthread_mutex_lock(&e->lock);
    bool open = !e->stopping;
    if (open) {
        if (e->n_live == e->cap_live) {
            e->cap_live = e->cap_live ? 2 * e->cap_live : 16;
            e->live = xrealloc_array(e->live, (size_t)e->cap_live, sizeof *e->live);
        }
        *out = s->id = ++e->next_request;
        s->line_tag = scheduler_tag(e->virtual_time, cost_of(s), finish_of(e, s->user));
        e->live[e->n_live++] = s;
        e->stats.waiting++;
        e->attention = true;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return open;
}

pf_status engine_submit(engine_client *client, const engine_request *r, request_id *out,
                        pf_err *err)
{
    engine *e = client_engine(client);
    if (!e) return err_set(err, PF_FAILED, "the engine is closed");
    sequence *s = NULL;
    conversation_prompt prompt = {0};
    request_id id = 0;
    pf_status status = check_request(e, r, err);
    if (status != PF_OK) goto out;
    status = read_prompt(e, r, &prompt, err);
    if (status != PF_OK) goto out;
    s = sequence_create(client);
    fill(e, s, r, &prompt);
    if (r->adapter) {
        s->adapter = adapter_cache_ref(e->adapters, r->adapter);
        if (!s->adapter) {
            status = err_set(err, PF_NOT_FOUND, "there is no adapter %llu",
                             (unsigned long long)r->adapter);
            goto out;
        }
        if (r->positions == POSITIONS_NONE) {
            adapter_cache_unref(e->adapters, s->adapter);
            s->adapter = NULL;
        }
    }
    if (!enqueue(e, s, &id)) {
        status = err_set(err, PF_FAILED, "the engine is closing");
        goto out;
    }
    s = NULL; /* the engine's now */
    if (out) *out = id;
out:
    if (s && s->adapter) {
        adapter_cache_unref(e->adapters, s->adapter);
        s->adapter = NULL;
    }
    sequence_free(s);
    conversation_prompt_free(&prompt);
    return status;
}
