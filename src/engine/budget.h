/* One memory budget for KV pages and packed adapters.
 *
 * KV reservations of running requests and adapters in use have what they need; the rest holds idle
 * pages of the prefix cache and unused adapters. New demand is met by evicting these: an adapter
 * first displaces less recently used adapters while these hold more than half of the budget, else
 * idle pages; a reservation displaces both. The total exceeds the budget only for one turn of the
 * engine, when an adapter is loaded whose size was not known. */
#ifndef PF_ENGINE_BUDGET_H
#define PF_ENGINE_BUDGET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that this process can still allocate: the smaller of the system's available memory and what
 * the control group's limit leaves. 0 = unknown. */
uint64_t budget_available(void);

typedef struct {
    uint64_t available;    /* budget_available() */
    uint64_t weight_bytes; /* what the packed model will take */
    uint64_t token_bytes;  /* K and V of one token, all layers */
    uint64_t budget_bytes; /* asked for, KV and adapters together; 0 = choose */
    int context;
    int64_t kv_tokens;    /* asked for; 0 = choose */
    size_t adapter_bytes; /* asked for; 0 = choose */
    bool fixed;           /* the device can't release pages: KV and adapters have fixed parts */
} budget_request;

typedef struct {
    uint64_t bytes;       /* KV pages and adapters together */
    int64_t kv_tokens;    /* most that KV may take of it */
    size_t adapter_bytes; /* most that adapters may take of it */
} memory_budget;

/* The budget is half of the memory left beside the weights, up to four contexts of KV (at least
 * 16,384 tokens) and 1 GiB for adapters. Adapters may take all of it but one context, which is
 * three quarters of a small budget; KV may take all of it up to those four contexts. Explicit sizes
 * are used as given, and then nothing is shared. Pure. PF_NO_MEMORY when not even a few hundred
 * tokens fit. */
pf_status budget_choose(const budget_request *request, memory_budget *out, pf_err *err);

/* What is left of the budget beside so many bytes, and never more than most. */
size_t budget_rest(uint64_t budget, uint64_t taken, size_t most);

#endif
