/* Synthetic loads on the engine, and random adapters for them. */
#ifndef PF_COMMANDS_BENCH_LOAD_H
#define PF_COMMANDS_BENCH_LOAD_H

#include "commands/bench/bench.h"
#include "engine/engine.h"

/* --- engine ----------------------------------------------------------------------------------- */

/* Tokens that an answer may have while a decode window waits and is measured. */
#define BENCH_WINDOW_ROOM 256

typedef struct {
    engine *e;
    engine_client *client;
    double open_seconds; /* of the engine alone */
    /* After the warm-up: most memory that the process has had, and what keys and values take. */
    uint64_t peak_bytes, kv_bytes;
} bench_engine;

/* What an engine must have room for: batch sequences of tokens tokens each, adapter_bytes of
 * packed adapters (0: the engine's choice), adapter_slots of them (0: any number). */
typedef struct {
    int batch, tokens, adapter_slots;
    int64_t kv_tokens; /* 0: for all at once */
    size_t adapter_bytes;
} bench_room;
/* Opens an engine without a prefix cache and warms it up. A --kv-budget given by the person is
 * kept. Closed by the caller also on failure. */
pf_status bench_engine_open(const command_context *ctx, const model *m, const bench_room *room,
                            bench_engine *out, pf_err *err);
void bench_engine_close(bench_engine *b); /* a zeroed one is fine */

/* --- loads ------------------------------------------------------------------------------------ */

/* n requests of n users at once, prompts of random ids, answers that don't end by themselves. */
typedef struct {
    int n, prompt;
    const adapter_id *adapters; /* [n], or NULL: the base model */
    positions_policy positions; /* of the adapters */
    uint64_t seed;
} bench_load;

typedef struct {
    double seconds;
    uint64_t tokens;           /* answers: generated; decode: in the window */
    engine_work prefill, work; /* in this time: steps with prompt tokens; all steps */
    bool disturbed;            /* a prompt was read again for want of pages, or (decode) at all */
} bench_measure;

/* Submits the i-th request of a load; one with i >= n uses no adapter. out may be NULL. */
pf_status bench_submit(const bench_engine *b, engine_client *client, const bench_load *load, int i,
                       int max_tokens, void *tag, request_id *out, pf_err *err);

engine_work bench_work_between(const engine_work *from, const engine_work *to);
void bench_work_add(engine_work *sum, const engine_work *w);

/* From the first submission until all answers of max_tokens are written. */
pf_status bench_run_answers(const bench_engine *b, const bench_load *load, int max_tokens,
                            bench_measure *out, pf_err *err);
/* The time in which all n answers are being written and nothing else is done: at least `steps`
 * steps (and a third of a second, unless --quick). *out is zero if there was no such time: the
 * memory doesn't hold all at once. */
pf_status bench_run_decode(const bench_engine *b, const bench_load *load, int steps,
                           bench_measure *out, pf_err *err);

/* Lets the load's answers be written, then has somebody's prompt of long_prompt tokens arrive.
 * *wait is the longest time between two tokens of the first answer until the newcomer's first
 * token, in plain steps: median times between tokens before it arrived. NAN if the memory doesn't
 * hold all.
 */
pf_status bench_run_arrival(const bench_engine *b, const bench_load *load, int long_prompt,
                            double *wait, pf_err *err);

/* --- adapters --------------------------------------------------------------------------------- */

typedef enum { BENCH_BASE, BENCH_LORAP, BENCH_DIREFTP, BENCH_LORA, BENCH_DIREFT } bench_kind;
#define BENCH_KINDS 5
extern const char *const bench_kind_names[BENCH_KINDS + 1]; /* NULL-terminated */
bool bench_kind_direft(bench_kind kind);
bool bench_kind_prefill_only(bench_kind kind);
/* The prefill-only kind with the same matrices as a full-position one. */
bench_kind bench_kind_of_prompt(bench_kind full);

/* Registers a random adapter (all seven maps, or DiReFT on every layer; bfloat16) that the engine
 * can fetch again at any time, since the same seed makes the same bytes. config is borrowed for the
 * engine's life. */
pf_status bench_adapter_add(engine *e, const model_config *config, bench_kind kind, int rank,
                            uint64_t seed, adapter_id *out, adapter_info *info, pf_err *err);
/* Numbers in an adapter. */
int64_t bench_adapter_size(const model_config *config, bench_kind kind, int rank);

#endif
