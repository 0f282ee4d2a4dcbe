/* The one budget of KV pages and adapters in a turn of the engine: reservations of running answers
 * and adapters in use come first, then adapters that waiting requests ask for, then what is kept
 * because it may be of use again. Engine thread only. */
#include "engine/runtime.h"

/* Bytes of the reservations, and of the next quantum of answers without a limit: they would be
 * interrupted for a newcomer's adapter otherwise. */
static uint64_t reserved_bytes(const engine *e)
{
    int pages = 0, quantum = scheduler_pages(&e->limits, e->limits.quantum);
    for (int i = 0; i < e->n_turn; i++) {
        const sequence *s = e->turn[i];
        if (!s || !s->running) continue;
        pages += s->reserved;
        if (s->limited) continue;
        int rest = scheduler_pages(&e->limits, s->limit) - s->reserved;
        pages += rest < quantum ? rest : quantum;
    }
    return (uint64_t)pages * e->page_bytes;
}

static size_t adapter_room(const engine *e)
{
    if (!e->shared_memory) return e->budget.adapter_bytes;
    return budget_rest(e->budget.bytes, reserved_bytes(e), e->budget.adapter_bytes);
}

void memory_begin_plan(engine *e)
{
    size_t own = e->shared_memory ? (size_t)(e->budget.bytes / 2) : e->budget.adapter_bytes;
    adapter_cache_begin_plan(e->adapters, adapter_room(e), own);
}

void memory_set_pages(engine *e)
{
    if (!e->shared_memory) return;
    uint64_t most = (uint64_t)e->n_pages * e->page_bytes;
    size_t rest = budget_rest(e->budget.bytes, adapter_cache_held(e->adapters), (size_t)most);
    e->limits.total_pages = (int)(rest / e->page_bytes);
}

void memory_end_plan(engine *e)
{
    size_t taken = adapter_cache_end_plan(e->adapters, adapter_room(e));
    if (!e->shared_memory) return;
    uint64_t most = (uint64_t)e->n_pages * e->page_bytes;
    kv_limit(e->kv, (int)(budget_rest(e->budget.bytes, taken, (size_t)most) / e->page_bytes));
}
