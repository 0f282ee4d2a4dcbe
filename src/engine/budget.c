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

pf_status budget_choose(const budget_request *r, memory_budget *out, pf_err *err)
{
    uint64_t available = r->available ? r->available : UNKNOWN_AVAILABLE;
    uint64_t left = available > r->weight_bytes ? available - r->weight_bytes : 0;
    uint64_t whole = left / 2, adapters = r->adapter_bytes;
    if (adapters == 0) adapters = whole / 4 < MOST_ADAPTERS ? whole / 4 : MOST_ADAPTERS;
    out->adapter_bytes = (size_t)adapters;
    out->kv_tokens = r->kv_tokens;
    if (r->kv_tokens > 0) return PF_OK;

    uint64_t bytes = whole > adapters ? whole - adapters : 0;
    int64_t fits = (int64_t)(bytes / r->token_bytes);
    int64_t usual = (int64_t)USUAL_CONTEXTS * r->context;
    if (usual < USUAL_TOKENS) usual = USUAL_TOKENS;
    out->kv_tokens = fits < usual ? fits : usual;
    if (out->kv_tokens >= LEAST_TOKENS || out->kv_tokens >= r->context) return PF_OK;
    return err_set(err, PF_NO_MEMORY,
                   "only %llu MB of memory are available: the model takes %llu MB, which leaves no "
                   "room for a conversation. Close other programs or choose a smaller model",
                   (unsigned long long)(available >> 20),
                   (unsigned long long)(r->weight_bytes >> 20));
}
