/* One memory budget for KV pages and packed adapters.
 *
 * KV reservations of running requests and adapters that are in use have what they need; what is
 * left holds idle pages of the prefix cache and unused adapters. A newcomer takes it from them: an
 * adapter first from longer unused adapters while these hold more than half of the budget, else
 * from idle pages; a reservation from both. Together they take no more than the budget, but for one
 * turn of the engine when an adapter comes in whose size was not known. */
#ifndef PF_ENGINE_BUDGET_H
#define PF_ENGINE_BUDGET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that this process may still take without hurting others: the system's available memory and
 * the control group's limit, whichever is less. 0 = unknown. */
uint64_t budget_available(void);

typedef struct {
    uint64_t available;    /* budget_available() */
    uint64_t weight_bytes; /* what the packed model will take */
    uint64_t token_bytes;  /* K and V of one token, all layers */
    uint64_t budget_bytes; /* asked for, KV and adapters together; 0 = choose */
    int context;
    int64_t kv_tokens;    /* asked for; 0 = choose */
    size_t adapter_bytes; /* asked for; 0 = choose */
    bool fixed;           /* the device can't give pages back: each has its own part */
} budget_request;

typedef struct {
    uint64_t bytes;       /* KV pages and adapters together */
    int64_t kv_tokens;    /* most that KV may take of it */
    size_t adapter_bytes; /* most that adapters may take of it */
} memory_budget;

/* Half of what is left beside the weights is the budget, up to four contexts of KV (16,384 tokens
 * at least) and 1 GiB for adapters. Adapters may take all of it but one context, which is three
 * quarters of a small budget; KV may take all of it up to those four contexts. What was asked for
 * is taken as it is, and then nothing is shared. Pure. PF_NO_MEMORY when not even a few hundred
 * tokens fit. */
pf_status budget_choose(const budget_request *request, memory_budget *out, pf_err *err);

/* What is left of the budget beside so many bytes, and never more than most. */
size_t budget_rest(uint64_t budget, uint64_t taken, size_t most);

#endif
