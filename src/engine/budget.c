#include "engine/budget.h"

#include <stdio.h>
#include <string.h>

#define LEAST_TOKENS      256 /* below this a chat makes no sense */
#define USUAL_TOKENS      16384
#define USUAL_CONTEXTS    4
#define MOST_ADAPTERS     ((uint64_t)1 << 30)
#define UNKNOWN_AVAILABLE ((uint64_t)4 << 30)

/* The number after key in a small system file; 0: not there ("max" reads as 0 too). */
static uint64_t read_number(const char *path, const char *key)
{
    char line[256];
    uint64_t value = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long long number;
        if (strncmp(line, key, strlen(key)) != 0) continue;
        if (sscanf(line + strlen(key), "%llu", &number) == 1) value = number;
        break;
    }
    fclose(f);
    return value;
}

uint64_t budget_available(void)
{
    uint64_t available = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    if (limit == 0) return available;
    uint64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    uint64_t left = limit > used ? limit - used : 0;
    return available == 0 || left < available ? left : available;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

size_t budget_rest(uint64_t budget, uint64_t taken, size_t most)
{
    return (size_t)min_u64(budget > taken ? budget - taken : 0, most);
}

/* Each has its own part. */
static void divide(const budget_request *r, uint64_t whole, uint64_t usual, memory_budget *out)
{
    uint64_t adapters = r->adapter_bytes;
    if (adapters == 0) adapters = min_u64(whole / 4, MOST_ADAPTERS);
    uint64_t rest = whole > adapters ? whole - adapters : 0;
    out->kv_tokens = r->kv_tokens;
    if (r->kv_tokens == 0) out->kv_tokens = (int64_t)min_u64(rest / r->token_bytes, usual);
    out->adapter_bytes = (size_t)adapters;
    out->bytes = adapters + (uint64_t)out->kv_tokens * r->token_bytes;
}

static void share(const budget_request *r, uint64_t whole, uint64_t usual, memory_budget *out)
{
    out->bytes = min_u64(whole, usual * r->token_bytes + MOST_ADAPTERS);
    out->kv_tokens = (int64_t)min_u64(out->bytes / r->token_bytes, usual);
    uint64_t context = (uint64_t)r->context * r->token_bytes;
    out->adapter_bytes = (size_t)(out->bytes - min_u64(context, out->bytes / 4 * 3));
}

pf_status budget_choose(const budget_request *r, memory_budget *out, pf_err *err)
{
    uint64_t available = r->available ? r->available : UNKNOWN_AVAILABLE;
    uint64_t whole = available > r->weight_bytes ? (available - r->weight_bytes) / 2 : 0;
    if (r->budget_bytes > 0) whole = r->budget_bytes;
    uint64_t usual = (uint64_t)USUAL_CONTEXTS * (uint64_t)r->context;
    if (usual < USUAL_TOKENS) usual = USUAL_TOKENS;
    bool asked = r->kv_tokens > 0 || r->adapter_bytes > 0;
    (asked || r->fixed ? divide : share)(r, whole, usual, out);
    if (r->kv_tokens > 0) return PF_OK;

    /* What a request can count on beside the largest adapter. */
    int64_t least = (int64_t)((out->bytes - out->adapter_bytes) / r->token_bytes);
    if (least >= LEAST_TOKENS || least >= r->context) return PF_OK;
    return err_set(err, PF_NO_MEMORY,
                   "only %llu MB of memory are available: the model takes %llu MB, which leaves no "
                   "room for a conversation. Close other programs or choose a smaller model",
                   (unsigned long long)(available >> 20),
                   (unsigned long long)(r->weight_bytes >> 20));
}
