#include "engine/sequence.h"

#include "base/mem.h"
#include "engine/conversation.h"

#include <stdlib.h>
#include <string.h>

sequence *sequence_create(engine_client *client)
{
    sequence *s = xcalloc(1, sizeof *s);
    s->client = client_ref(client);
    atomic_init(&s->cancelled, false);
    return s;
}

void sequence_free(sequence *s)
{
    if (!s) return;
    PF_ASSERT(!s->adapter && s->table.n == 0);
    if (s->tokens) explicit_bzero(s->tokens, (size_t)s->cap * sizeof *s->tokens);
    free(s->tokens);
    free(s->marks);
    free(s->parts);
    kv_table_free(&s->table);
    stop_matcher_free(&s->stops);
    explicit_bzero(&s->decoder, sizeof s->decoder);
    client_unref(s->client);
    free(s);
}

/* --- tokens ----------------------------------------------------------------------------------- */

void sequence_append(sequence *s, int32_t token, bool adapted)
{
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 64;
        int32_t *tokens = xmalloc((size_t)cap * sizeof *tokens);
        if (s->n) {
            memcpy(tokens, s->tokens, (size_t)s->n * sizeof *tokens);
            explicit_bzero(s->tokens, (size_t)s->cap * sizeof *tokens);
        }
        free(s->tokens);
        s->tokens = tokens;
        s->marks = xrealloc_array(s->marks, (size_t)cap, 1);
        s->cap = cap;
    }
    s->tokens[s->n] = token;
    s->marks[s->n++] = adapted;
}

int sequence_generated(const sequence *s)
{
    return s->n - s->n_prompt;
}

bool sequence_is_writing(const sequence *s)
{
    return s->n > s->n_prompt && s->n - s->computed == 1;
}

void sequence_mark(sequence *s, bool has_adapter, bool prefill_only)
{
    if (s->marked) return;
    s->policy = positions_resolve(s->policy, has_adapter, prefill_only);
    positions_mark(s->policy, s->parts, (size_t)s->n_prompt, s->marks);
    s->mark_generated = positions_marks_generated(s->policy);
    s->has_adapted = s->mark_generated || memchr(s->marks, 1, (size_t)s->n_prompt) != NULL;
    s->marked = true;
}

/* --- events ----------------------------------------------------------------------------------- */

static void send(sequence *s, engine_event *ev)
{
    ev->request = s->id;
    ev->tag = s->tag;
    if (!ev->text) ev->text = xstrdup("");
    client_push(s->client, ev);
}

static void set_text(engine_event *ev, buf *text)
{
    ev->text_len = text->len;
    ev->text = xmemdup0(buf_str(text), text->len);
    buf_free(text);
}

static request_usage usage_of(const sequence *s, int64_t now)
{
    request_usage u = {.prompt_tokens = s->n_prompt,
                       .cached_tokens = s->cached,
                       .completion_tokens = sequence_generated(s),
                       .preemptions = s->preemptions};
    int64_t started = s->started_at ? s->started_at : now;
    int64_t first = s->first_token_at ? s->first_token_at : now;
    u.queued_ns = started - s->queued_at;
    u.prefill_ns = first - started;
    u.decode_ns = now - first;
    return u;
}

void sequence_send_waiting(sequence *s, wait_reason why, const char *text, int64_t now)
{
    const int64_t second = 1000000000;
    if (why == s->told || (s->told != WAIT_NOTHING && now - s->told_at < second)) return;
    s->told = why;
    s->told_at = now;
    engine_event ev = {
        .kind = ENGINE_EVENT_WAITING, .text = xstrdup(text), .text_len = strlen(text)};
    send(s, &ev);
}

void sequence_send_started(sequence *s)
{
    engine_event ev = {
        .kind = ENGINE_EVENT_STARTED, .n_prompt = s->n_prompt, .n_dropped = s->n_dropped};
    if (s->want_prompt) {
        size_t n = (size_t)s->n_prompt;
        ev.prompt_ids = xmalloc(n * sizeof *ev.prompt_ids);
        ev.marks = xmalloc(n);
        memcpy(ev.prompt_ids, s->tokens, n * sizeof *ev.prompt_ids);
        memcpy(ev.marks, s->marks, n);
    }
    send(s, &ev);
}

static bool is_stop_id(const take_context *ctx, int32_t token)
{
    for (int i = 0; i < ctx->n_stop_ids; i++)
        if (ctx->stop_ids[i] == token) return true;
    return false;
}

bool sequence_take(sequence *s, const take_context *ctx, int32_t token, float logprob,
                   token_logprob *top, finish_reason *reason)
{
    buf decoded = {0}, shown = {0};
    bool ended = false;
    sequence_append(s, token, s->mark_generated);
    if (!s->first_token_at) s->first_token_at = ctx->now;
    if (!s->ignore_eos && is_stop_id(ctx, token)) {
        *reason = FINISH_STOP;
        ended = true;
    } else {
        stream_decoder_push(&s->decoder, ctx->tokenizer, token, &decoded);
        *reason = FINISH_STOP;
        ended = stop_matcher_push(&s->stops, buf_str(&decoded), decoded.len, &shown);
        if (ended) memset(&s->decoder, 0, sizeof s->decoder); /* behind the stop string */
    }
    if (!ended && s->max_tokens > 0 && sequence_generated(s) >= s->max_tokens) {
        *reason = FINISH_LENGTH;
        ended = true;
    } else if (!ended && s->n >= s->limit) {
        *reason = FINISH_CONTEXT;
        ended = true;
    }
    engine_event ev = {.kind = ENGINE_EVENT_TOKEN,
                       .token = token,
                       .logprob = logprob,
                       .top = top,
                       .n_top = top ? s->n_logprobs : 0};
    set_text(&ev, &shown);
    send(s, &ev);
    buf_free(&decoded);
    return ended;
}

/* The text that was held back: an unfinished character, the beginning of a stop string. */
static void take_rest(sequence *s, buf *shown)
{
    buf decoded = {0};
    stream_decoder_finish(&s->decoder, &decoded);
    if (!stop_matcher_push(&s->stops, buf_str(&decoded), decoded.len, shown))
        stop_matcher_flush(&s->stops, shown);
    buf_free(&decoded);
}

void sequence_send_finished(sequence *s, finish_reason reason, int64_t now)
{
    buf shown = {0};
    engine_event ev = {.kind = ENGINE_EVENT_FINISHED, .reason = reason, .usage = usage_of(s, now)};
    take_rest(s, &shown);
    set_text(&ev, &shown);
    send(s, &ev);
}

void sequence_send_failed(sequence *s, const pf_err *err, int64_t now)
{
    engine_event ev = {.kind = ENGINE_EVENT_FAILED,
                       .status = err->status,
                       .usage = usage_of(s, now),
                       .text = xstrdup(err->text),
                       .text_len = strlen(err->text)};
    send(s, &ev);
}
