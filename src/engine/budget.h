/* One memory budget for KV pages and packed adapters. */
#ifndef PF_ENGINE_BUDGET_H
#define PF_ENGINE_BUDGET_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes that this process may still take without hurting others: the system's available memory and
 * the control group's limit, whichever is less. 0 = unknown. */
uint64_t budget_available(void);

typedef struct {
    uint64_t available;    /* budget_available() */
    uint64_t weight_bytes; /* what the packed model will take */
    uint64_t token_bytes;  /* K and V of one token, all layers */
    int context;
    int64_t kv_tokens;    /* asked for; 0 = choose */
    size_t adapter_bytes; /* asked for; 0 = choose */
} budget_request;

typedef struct {
    int64_t kv_tokens;
    size_t adapter_bytes;
} memory_budget;

/* Half of what is left beside the weights is the budget: a quarter of it, 1 GiB at most, for
 * adapters, the rest for KV, up to four contexts (16,384 tokens at least). What was asked for is
 * taken as it is. Pure. PF_NO_MEMORY when not even a few hundred tokens fit. */
pf_status budget_choose(const budget_request *request, memory_budget *out, pf_err *err);

#endif
