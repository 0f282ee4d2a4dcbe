/* Random adapters, made in memory (bench/load.h). */
#include "base/mem.h"
#include "commands/bench/load.h"
#include "models/adapter_blob.h"

#include <stdlib.h>
#include <string.h>

const char *const bench_kind_names[] = {"base", "lorap", "direftp", "lora", "direft", NULL};

bool bench_kind_direft(bench_kind kind)
{
    return kind == BENCH_DIREFTP || kind == BENCH_DIREFT;
}

bool bench_kind_prefill_only(bench_kind kind)
{
    return kind == BENCH_LORAP || kind == BENCH_DIREFTP;
}

bench_kind bench_kind_of_prompt(bench_kind full)
{
    return full == BENCH_LORA ? BENCH_LORAP : BENCH_DIREFTP;
}

typedef struct {
    const model_config *config;
    bench_kind kind;
    int rank;
    uint64_t seed;
} recipe;

int64_t bench_adapter_size(const model_config *config, bench_kind kind, int rank)
{
    int64_t per_rank = 0, in, out;
    if (kind == BENCH_BASE) return 0;
    if (bench_kind_direft(kind))
        return (int64_t)config->n_layers * rank * (2 * (int64_t)config->hidden + 1);
    for (int map = 0; map < MAP_COUNT; map++) {
        linear_map_shape(config, (linear_map)map, &in, &out);
        per_rank += in + out;
    }
    return config->n_layers * rank * per_rank;
}

/* Random bfloat16 numbers of either sign in 1/256 .. 1/128: small enough to leave the model's
 * numbers finite, of full length so that nothing is skipped. */
static void fill_random(uint16_t *x, int64_t n, uint64_t seed)
{
    uint64_t state = (seed * 0x9e3779b97f4a7c15u) | 1;
    for (int64_t i = 0; i < n; i += 4) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint64_t four = (state & 0x807f807f807f807fu) | 0x3b803b803b803b80u;
        memcpy(x + i, &four, (size_t)(n - i < 4 ? n - i : 4) * sizeof *x);
    }
}

/* All numbers lie one after the other in `numbers`. */
static void list_items(const recipe *r, const uint16_t *numbers, adapter_view *view)
{
    const uint16_t *at = numbers;
    int per_layer = view->direft ? 1 : MAP_COUNT;
    for (int i = 0; i < r->config->n_layers * per_layer; i++) {
        adapter_item item = {.layer = i / per_layer,
                             .map = (linear_map)(i % per_layer),
                             .rank = r->rank,
                             .scale = 1};
        int64_t in = r->config->hidden, out = in;
        if (!view->direft) linear_map_shape(r->config, item.map, &in, &out);
        item.a = at;
        item.b = at += r->rank * in;
        at += r->rank * out;
        if (view->direft) {
            item.bias = at;
            at += r->rank;
        }
        view->items[view->n_items++] = item;
    }
}

static pf_status make_blob(const recipe *r, buf *out, pf_err *err)
{
    int64_t n = bench_adapter_size(r->config, r->kind, r->rank);
    size_t n_items = (size_t)r->config->n_layers * MAP_COUNT;
    uint16_t *numbers = try_calloc((size_t)n, sizeof *numbers);
    if (!numbers)
        return err_set(err, PF_NO_MEMORY, "no memory for an adapter of %lld numbers", (long long)n);
    fill_random(numbers, n, r->seed);
    adapter_view view = {.direft = bench_kind_direft(r->kind),
                         .prefill_only = bench_kind_prefill_only(r->kind),
                         .type = KN_BF16,
                         .items = xcalloc(n_items, sizeof *view.items)};
    list_items(r, numbers, &view);
    pf_status status = adapter_blob_write(&view, r->config, NULL, NULL, out, err);
    free(view.items);
    free(numbers);
    return status;
}

static pf_status fetch(void *ctx, buf *out, pf_err *err)
{
    return make_blob(ctx, out, err);
}

pf_status bench_adapter_add(engine *e, const model_config *config, bench_kind kind, int rank,
                            uint64_t seed, adapter_id *out, adapter_info *info, pf_err *err)
{
    buf blob = {0};
    recipe *r = xmalloc(sizeof *r);
    *r = (recipe){config, kind, rank, seed};
    adapter_source source = {.fetch = fetch, .release = free, .ctx = r};
    pf_status status = make_blob(r, &blob, err);
    if (status == PF_OK)
        status = engine_adapter_add(e, blob.data, blob.len, &source, out, info, err);
    if (status != PF_OK) free(r);
    buf_free(&blob);
    return status;
}
