/* The engine: one process, one base model, many users.
 *
 * This header is its complete interface: opaque handles, ids and copied bytes. No pointer into
 * engine memory crosses it, so that a remote engine could be used behind the same interface.
 *
 * Threads. engine_open starts one engine thread, which owns weights, KV pages and the adapters in
 * use; a loader thread that loads and frees adapters; and the backend's thread pool. All
 * functions here may be called from any thread. Templates and tokenizing run on the caller's
 * thread, inside engine_submit. Events arrive in the client's ring, and then its fd is readable.
 *
 * Marks. Every token carries one bit, adapted or plain, set when it enters a sequence and kept for
 * ever (chunking, batching, caching and recompute don't change it). See the positions policies. */
#ifndef PF_ENGINE_ENGINE_H
#define PF_ENGINE_ENGINE_H

#include "base/err.h"
#include "models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;
typedef struct engine_client engine_client; /* one ring of events, one owner */
typedef uint64_t request_id;                /* never reused; 0 is none */
typedef uint64_t adapter_id;                /* a registered adapter; 0 is none */

/* `auto` of the KV type: F32 with isa "ref" or unquantized weights, else F16. */
typedef enum { ENGINE_KV_AUTO, ENGINE_KV_F32, ENGINE_KV_F16, ENGINE_KV_Q8 } engine_kv_type;

/* Zeroed = all defaults. */
typedef struct {
    const char *device; /* "auto", "cpu", "cuda"; NULL = auto */
    const char *isa;    /* NULL = best */
    int threads;        /* 0 = all usable cores */
    int context;        /* tokens a sequence may hold; 0 = the model's */
    int64_t kv_tokens;  /* KV budget in tokens over all sequences; 0 = chosen from memory */
    engine_kv_type kv_type;
    int step_tokens;      /* most tokens of one step (prefill chunks); 0 = default */
    int max_batch;        /* most sequences decoding at once; 0 = default */
    int adapter_slots;    /* most adapters packed in memory; 0 = by bytes only */
    size_t adapter_bytes; /* most bytes of packed adapters; 0 = as the budget has it */
    size_t memory_bytes;  /* budget of KV and adapters together; 0 = chosen from memory */
    bool no_prefix_cache;
} engine_options;

/* The model must outlive the engine. */
pf_status engine_open(const model *m, const engine_options *options, engine **out, pf_err *err);
/* Cancels all requests, joins the threads, wipes KV and adapters; no other call may be in progress.
 * Queued events can still be read, and clients are closed as usual. NULL is fine. */
void engine_close(engine *e);

/* --- adapters --------------------------------------------------------------------------------- */

/* Where the engine finds an adapter's blob (models/adapter_blob.h) when it is not packed in memory.
 * fetch is called on the loader thread; it appends the blob's bytes to *out (wiped by the engine
 * after packing) or fails. release is called once, when the engine no longer needs ctx. */
typedef struct {
    pf_status (*fetch)(void *ctx, buf *out, pf_err *err);
    void (*release)(void *ctx);
    void *ctx;
} adapter_source;

typedef struct {
    bool direft, prefill_only;
    int max_rank;
    size_t packed_bytes;
    unsigned char digest[32]; /* of the content: cache keys are made of this, never of names */
} adapter_info;

/* Registers an adapter; blob is checked against the model and packed now. source may be NULL or
 * have no fetch: then the packed form stays in memory for as long as the adapter is registered. */
pf_status engine_adapter_add(engine *e, const void *blob, size_t len, const adapter_source *source,
                             adapter_id *out, adapter_info *info, pf_err *err);
/* Registers without loading: the blob is fetched when a prompt first needs it. digest must be the
 * content's (BLAKE2b-256 of the blob); a fetched blob with another digest fails the request. */
pf_status engine_adapter_add_lazy(engine *e, const unsigned char digest[32],
                                  const adapter_source *source, adapter_id *out, pf_err *err);
/* New weights, same id (weight sync): prompts submitted before finish on the old version. */
pf_status engine_adapter_replace(engine *e, adapter_id id, const void *blob, size_t len,
                                 const adapter_source *source, adapter_info *info, pf_err *err);
/* Forgets an adapter. Requests whose prompt is not yet read fail with a clear message; answers
 * being decoded continue unchanged. Its weights are freed at once, or after the last answer that
 * may still need them: answers of full-position kinds, and those without max_tokens, which may be
 * preempted and recomputed. Unknown id: PF_NOT_FOUND. */
pf_status engine_adapter_drop(engine *e, adapter_id id, pf_err *err);
/* Loads an adapter into memory if there is room, because it will be needed soon: its owner signed
 * in, or began to type. Returns at once. Requests load their adapters without it. */
void engine_adapter_prefetch(engine *e, adapter_id id);

/* --- requests --------------------------------------------------------------------------------- */

/* Which tokens of a request are adapted; fixed when a token enters the sequence. DEFAULT: turns for
 * prefill-only kinds, all for lora and direft, none without an adapter. */
typedef enum {
    POSITIONS_DEFAULT,
    POSITIONS_TURNS,  /* system and user turns and the template; answers and their end plain */
    POSITIONS_PROMPT, /* every token of the prompt as given; generated ones plain */
    POSITIONS_ALL,    /* every token, generated ones too */
    POSITIONS_NONE
} positions_policy;
bool positions_parse(const char *name, positions_policy *out); /* "turns", ... */
const char *positions_name(positions_policy p);

/* Zeroed = greedy. Order: repetition penalty, temperature, top-k, top-p, min-p. */
typedef struct {
    float temperature;    /* 0 = greedy */
    int top_k;            /* 0 = off */
    float top_p;          /* 0 or 1 = off */
    float min_p;          /* 0 = off */
    float repeat_penalty; /* 0 or 1 = off; > 1 divides positive and multiplies negative logits */
    int repeat_last;      /* tokens looked back at; 0 = 64 */
    bool has_seed;
    uint64_t seed; /* the same seed gives the same text alone or in any batch */
} sampling_options;

#define ENGINE_MAX_STOPS 16
#define ENGINE_MAX_TOP   64

typedef struct {
    /* The prompt: one of messages, text (raw, no template) or ids. Borrowed for the call. */
    const chat_message *messages;
    size_t n_messages;
    const char *text;
    size_t text_len;
    const int32_t *ids;
    const unsigned char *ids_parts; /* with ids: a token_part each (TURNS); NULL = prompt */
    size_t n_ids;

    adapter_id adapter; /* 0 = base model */
    positions_policy positions;
    sampling_options sampling;
    int max_tokens;   /* 0 = as many as the context holds */
    bool ignore_eos;  /* stop ids don't end the answer (benchmarks) */
    bool drop_oldest; /* messages that don't fit: drop the oldest turns, keep the system text */
    const char *stops[ENGINE_MAX_STOPS]; /* stop strings, not part of the answer */
    int n_stops;
    int logprobs;     /* > 0: report log-probabilities with this many alternatives */
    bool want_prompt; /* ENGINE_EVENT_STARTED carries ids and marks */
    uint64_t user;    /* fair sharing and cache isolation: pages are never shared across users */
    int priority;     /* higher first; 0 = normal */
    void *tag;        /* the client's, comes back in every event */
} engine_request;

/* Checks, renders and tokenizes here, then queues. What can never run is refused: a prompt longer
 * than the context (PF_REFUSED) or empty, an unknown adapter, a setting out of range (PF_USAGE). */
pf_status engine_submit(engine_client *client, const engine_request *request, request_id *out,
                        pf_err *err);
/* Stops a request: its memory is free at most one step later; FINISHED(cancelled) follows. */
void engine_cancel(engine *e, request_id id);
/* Tokens that messages would take (template included). */
pf_status engine_count_tokens(engine *e, const chat_message *messages, size_t n_messages,
                              size_t *out, pf_err *err);

/* --- events ----------------------------------------------------------------------------------- */

typedef enum {
    ENGINE_EVENT_WAITING,  /* why it waits, in words; once a second at most */
    ENGINE_EVENT_STARTED,  /* the prompt is being read; n_dropped messages did not fit */
    ENGINE_EVENT_TOKEN,    /* one token; text is whole UTF-8 and may be empty */
    ENGINE_EVENT_FINISHED, /* the last event of a request; text, part of the answer, is what was
                              still held back (beginning of a stop string, half a character) */
    ENGINE_EVENT_FAILED    /* the last event of a request; text is the message, status its kind */
} engine_event_kind;

typedef enum {
    FINISH_STOP,    /* end of turn or a stop string */
    FINISH_LENGTH,  /* max_tokens */
    FINISH_CONTEXT, /* the context is full */
    FINISH_CANCELLED
} finish_reason;
const char *finish_reason_name(finish_reason r); /* "stop", "length", "context", "cancelled" */

typedef struct {
    int32_t id;
    float logprob; /* of the unmodified logits; finite */
} token_logprob;

typedef struct {
    int prompt_tokens, cached_tokens, completion_tokens;
    int64_t queued_ns, prefill_ns, decode_ns; /* wall time in each phase */
    int preemptions;
} request_usage;

/* Owned by the receiver: engine_event_free. */
typedef struct {
    engine_event_kind kind;
    request_id request;
    void *tag;
    char *text; /* NUL-terminated, also when empty */
    size_t text_len;
    int32_t token; /* TOKEN: the sampled id (end tokens too, with empty text) */
    float logprob; /* TOKEN, if asked */
    token_logprob *top;
    int n_top;
    finish_reason reason;
    pf_status status;     /* FAILED */
    request_usage usage;  /* FINISHED and FAILED */
    int32_t *prompt_ids;  /* STARTED with want_prompt */
    unsigned char *marks; /* [n_prompt]: 1 adapted */
    int n_prompt;
    int n_dropped; /* STARTED: messages that did not fit */
} engine_event;

/* NULL when the system has no more descriptors. */
engine_client *engine_client_open(engine *e);
/* Cancels the client's requests and frees the ring. */
void engine_client_close(engine_client *c);
int engine_client_fd(const engine_client *c); /* readable (poll) while events wait */
/* Takes the next event; false when there is none. */
bool engine_client_next(engine_client *c, engine_event *out);
/* Blocks until an event is there or timeout_ms (-1 = for ever) passed. */
bool engine_client_wait(engine_client *c, int timeout_ms);
void engine_event_free(engine_event *ev);

/* --- state ------------------------------------------------------------------------------------ */

/* What steps read and computed since the engine was opened. */
typedef struct {
    uint64_t steps, rows;                           /* a row is a token of a sequence */
    uint64_t weight_bytes, adapter_bytes, kv_bytes; /* read */
    uint64_t mac, adapter_mac;                      /* multiply-accumulates */
} engine_work;

typedef struct {
    const char *device, *isa; /* static strings */
    int threads;
    int running, waiting;             /* requests */
    int last_batch;                   /* sequences in the last step */
    double prefill_rate, decode_rate; /* tokens per second over the last second; 0 = idle */
    int64_t kv_tokens_total, kv_tokens_used, kv_tokens_cached;
    int adapters_registered, adapters_loaded;
    int adapters_coming; /* being loaded */
    size_t adapter_bytes_used;
    uint64_t memory_bytes, memory_used; /* the budget of KV pages and adapters together */
    uint64_t adapter_loads;             /* adapters loaded from their sources */
    uint64_t adapter_stalls;            /* packed or freed on the engine thread: answers waited */
    uint64_t decode_waits;              /* rows of running answers that a step left out */
    uint64_t steps, prompt_tokens, cached_tokens, generated_tokens;
    uint64_t decode_adapter_bytes;       /* decode.adapter_bytes */
    engine_work prefill, decode;         /* steps with prompt tokens; steps without */
    uint64_t preemptions, never_started; /* never_started: cancelled before their first step */
} engine_stats;
void engine_get_stats(engine *e, engine_stats *out);
const model *engine_model(const engine *e);
int engine_context(const engine *e);
/* For lock and sign-out: drops and overwrites the user's cached pages, and the tokens of earlier
 * steps. */
void engine_forget_user(engine *e, uint64_t user);

#endif
