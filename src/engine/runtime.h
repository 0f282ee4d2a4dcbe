/* Internal to the engine: what engine.c (lifetime, calls), submit.c (incoming requests) and step.c
 * (plan, compute, deliver) share.
 *
 * The engine thread owns the backend, the forward pass, KV, packed adapters and every sequence that
 * is in `live`. Other threads only append to live, set a sequence's cancelled, queue calls and read
 * statistics, under the lock. */
#ifndef PF_ENGINE_RUNTIME_H
#define PF_ENGINE_RUNTIME_H

#include "engine/adapter_cache.h"
#include "engine/allowance.h"
#include "engine/background.h"
#include "engine/budget.h"
#include "engine/engine.h"
#include "engine/forward.h"
#include "engine/kv.h"
#include "engine/pace.h"
#include "engine/sample.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

#include <pthread.h>

#define ENGINE_PAGE_TOKENS 16
#define ENGINE_STEP_TOKENS 512 /* most prompt tokens of a step, when paced */
#define ENGINE_MAX_BATCH   64
/* Fewest prompt tokens of a user in a step, where the prompt has them. With 16-bit weights a token
 * is one operation per byte of the adapter, so fewer would leave its pass bound by memory. */
#define ENGINE_LEAST_PART 16

/* A call to be run on the engine thread, between two steps. Lives on the caller's stack. */
typedef struct engine_call {
    void (*fn)(engine *e, void *args);
    void *args;
    bool done;
    struct engine_call *next;
} engine_call;

/* A user's virtual finish time in the fair queue. */
typedef struct {
    uint64_t user, finish;
} user_finish;

/* Tokens of the last second, in tenths. */
#define RATE_SLOTS 10
typedef struct {
    int64_t tenth[RATE_SLOTS]; /* which tenth of a second a slot holds */
    int prompt[RATE_SLOTS], generated[RATE_SLOTS];
} rate_meter;

/* Background work, the engine thread's own. */
typedef struct {
    background_work *works;
    int n, next; /* next: whose turn it was last */
    allowance allowance;
} background;

struct engine {
    const model *model;
    const model_config *config;
    const tokenizer *tokenizer;
    kn_backend *be;
    forward *forward;
    kv *kv;
    adapter_cache *adapters;
    sched_limits limits; /* total_pages: what adapters in use leave, set anew for every turn */
    int n_pages;         /* total KV pages */
    uint64_t page_bytes; /* of one, all layers */
    memory_budget budget;
    bool shared_memory; /* KV pages and adapters take room from each other */
    int context;
    bool context_by_kv; /* the KV budget is smaller than the context asked for */
    bool paced;         /* else every step carries up to step_tokens */
    int step_tokens;
    unsigned char secret[32]; /* user salts are made of it */

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t wake;      /* for the engine thread */
    pthread_cond_t call_done; /* for callers of engine_call */

    /* Under the lock. */
    bool stopping, attention;
    sequence **live; /* in order of arrival */
    int n_live, cap_live;
    engine_call *calls, **calls_end;
    engine_client **clients;
    int n_clients, cap_clients;
    request_id next_request;
    uint64_t virtual_time;
    user_finish *finishes;
    int n_finishes, cap_finishes;
    engine_stats stats;
    rate_meter rates;

    /* The engine thread's own. */
    background background;
    pace pace;
    uint64_t n_steps;
    bool only_writing;         /* the turn's step wrote answers and read no prompt */
    const engine_client *only; /* whose requests compute (hold.h); NULL: everybody's */
    sample_scratch scratch;
    sequence **turn; /* this turn's live sequences; NULL where one has ended */
    sched_item *items;
    sched_decision *decisions;
    int *shares, *line;
    int n_turn, cap_turn;
    forward_row *rows; /* [max_running + step_tokens] */
    /* Where the device chooses tokens, else NULL: [max_running], in the order of the logits. */
    kn_sample *samples;
    kn_choice *choices;
};

/* Copies the live sequences for the next turn. Under the lock. */
void engine_take_turn(engine *e);
/* One turn over e->turn[0..n_turn): ends what was cancelled or failed, plans, computes, delivers.
 * True if anything happened; false: nothing to do until engine_attention. */
bool engine_turn(engine *e);
/* The budget of KV pages and adapters in a turn: memory_begin_plan before adapters are asked for,
 * memory_set_pages (limits.total_pages) before the scheduler decides, memory_end_plan when its
 * decisions are carried out, in any case after memory_begin_plan. */
void memory_begin_plan(engine *e);
void memory_set_pages(engine *e);
void memory_end_plan(engine *e);
/* Updates the statistics of KV memory. Under the lock. */
void engine_count_memory(engine *e);
/* Ends every live sequence as cancelled. */
void engine_cancel_all(engine *e);
/* A slice of background work after a turn that took turn_ns; true if it wants more. */
bool background_turn(engine *e, bool busy, int64_t turn_ns);
/* Ends all background work. Engine thread, or after it. */
void background_close(engine *e);
/* Runs fn on the engine thread, between two turns, and waits for it. */
void engine_run_call(engine *e, void (*fn)(engine *, void *), void *args);
/* Wakes the engine thread. Takes the lock. */
void engine_attention(engine *e);

#endif
