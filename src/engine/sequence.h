/* A request inside the engine: its tokens with their marks, its KV pages, and the state of its
 * events. Owned by the engine thread once it is queued; only `cancelled` is written by other
 * threads.
 *
 * tokens[0..n) is the prompt and everything generated; a mark is set when its token enters and
 * never changes. computed tokens have their keys and values in the pages; the logits after token n
 * - 1 give the next one. Preemption sets computed back to 0 and nothing else, so recomputing goes
 * through exactly the same tokens and marks, and no token is sampled or delivered twice. */
#ifndef PF_ENGINE_SEQUENCE_H
#define PF_ENGINE_SEQUENCE_H

#include "engine/adapter_cache.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include "engine/stops.h"

#include <stdatomic.h>

typedef struct sequence {
    request_id id;
    engine_client *client; /* a reference */
    void *tag;
    uint64_t user;
    int priority;
    uint64_t line_tag; /* place in the queue (scheduler_tag) */
    atomic_bool cancelled;

    int32_t *tokens;      /* [n] */
    unsigned char *marks; /* [n]; valid once marked */
    unsigned char *parts; /* [n_prompt] token_part; NULL: all prompt */
    int n, cap;
    int n_prompt;
    int limit;    /* tokens it may reach */
    bool limited; /* max_tokens was given: all of limit is reserved */
    bool marked;
    bool mark_generated; /* the mark of generated tokens */
    bool has_adapted;    /* some prompt token is adapted */

    int computed;
    kv_table table;
    int reserved;  /* pages */
    int overtaken; /* see sched_item */

    adapter_version *adapter; /* a reference; NULL: none, or no longer needed */
    bool pinned;
    positions_policy policy; /* as asked until marked */

    sampling_options sampling;
    uint64_t seed;
    int n_logprobs;
    bool ignore_eos, want_prompt;
    int max_tokens; /* 0 = no limit */
    stop_matcher stops;
    stream_decoder decoder;

    bool running, started, prompt_read;
    wait_reason told; /* the last WAITING event's reason, WAIT_NOTHING since it last ran */
    int64_t told_at;
    int n_dropped;
    int cached; /* prompt tokens found in the cache at the first start */
    int preemptions;
    int64_t queued_at, started_at, first_token_at; /* clock_monotonic_ns; 0 = not yet */
} sequence;

/* Takes a reference to client. Zeroed otherwise. */
sequence *sequence_create(engine_client *client);
/* Wiped. Its pages and its adapter must have been released. */
void sequence_free(sequence *s);

void sequence_append(sequence *s, int32_t token, bool adapted);
int sequence_generated(const sequence *s);
/* Whether it is decoding: one generated token is to be computed, and nothing else. */
bool sequence_is_writing(const sequence *s);

/* Gives every prompt token its mark. prefill_only: of its adapter's kind. */
void sequence_mark(sequence *s, bool has_adapter, bool prefill_only);

/* --- events: each goes to the sequence's client --------------------------------------------- */

/* WAITING, if why is another reason than the one told last; once a second at most, so that reasons
 * that come and go don't fill the queue of a client that reads slowly. */
void sequence_send_waiting(sequence *s, wait_reason why, const char *text, int64_t now);
void sequence_send_started(sequence *s);
typedef struct {
    const tokenizer *tokenizer;
    const int32_t *stop_ids;
    int n_stop_ids;
    int64_t now; /* clock_monotonic_ns */
} take_context;
/* Delivers a sampled token: appends it, sends TOKEN (which takes top over), and says whether it was
 * the last one, with the reason. stop_ids end an answer unless ignore_eos. */
bool sequence_take(sequence *s, const take_context *ctx, int32_t token, float logprob,
                   token_logprob *top, finish_reason *reason);
void sequence_send_finished(sequence *s, finish_reason reason, int64_t now);
void sequence_send_failed(sequence *s, const pf_err *err, int64_t now);

#endif
