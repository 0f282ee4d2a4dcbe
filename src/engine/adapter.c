#include "engine/adapter.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct packed_adapter {
    kn_backend *be;
    packed_adapter_info info;
    int n_layers;
    int per_layer;               /* MAP_COUNT for LoRA, 1 for DiReFT */
    kn_adapter_weight **weights; /* [n_layers * per_layer], NULL where absent */
};

static size_t weight_index(const packed_adapter *a, const adapter_item *item)
{
    return (size_t)item->layer * a->per_layer + (a->info.direft ? 0 : (size_t)item->map);
}

/* bias[ADAPTER_MAX_RANK] holds DiReFT's as float32, which is what backends take. */
static void matrices_of(const adapter_view *view, const adapter_item *item,
                        const model_config *config, float *bias, kn_adapter_matrices *out)
{
    if (item->bias) kn_dequantize(view->type, item->bias, bias, item->rank);
    *out = (kn_adapter_matrices){
        .direft = view->direft,
        .rank = item->rank,
        .in = config->hidden,
        .out = config->hidden,
        .type = view->type,
        .a = item->a,
        .b = item->b,
        .bias = item->bias ? bias : NULL,
        .scale = item->scale,
    };
    if (!view->direft) linear_map_shape(config, item->map, &out->in, &out->out);
}

static pf_status pack_items(packed_adapter *a, const adapter_view *view, const model_config *config,
                            pf_err *err)
{
    const size_t n = view->n_items;
    kn_adapter_matrices *m = xcalloc(n + 1, sizeof *m);
    kn_adapter_weight **made = xcalloc(n + 1, sizeof(kn_adapter_weight *));
    float *biases = view->direft ? xcalloc(n + 1, ADAPTER_MAX_RANK * sizeof *biases) : NULL;
    for (size_t i = 0; i < n; i++)
        matrices_of(view, &view->items[i], config, biases ? biases + i * ADAPTER_MAX_RANK : NULL,
                    &m[i]);
    bool all = kn_adapters_create(a->be, m, (int)n, made);
    for (size_t i = 0; all && i < n; i++) {
        const adapter_item *item = &view->items[i];
        a->weights[weight_index(a, item)] = made[i];
        a->info.bytes += a->be->ops->adapter_bytes(made[i]);
        if (item->rank > a->info.max_rank) a->info.max_rank = item->rank;
    }
    free(m);
    free(made);
    if (biases) explicit_bzero(biases, n * ADAPTER_MAX_RANK * sizeof *biases);
    free(biases);
    if (all) return PF_OK;
    return err_set(err, PF_NO_MEMORY, "packing the adapter failed: %s", kn_backend_error(a->be));
}

pf_status packed_adapter_from_view(kn_backend *be, const model_config *config,
                                   const adapter_view *view, packed_adapter **out, pf_err *err)
{
    packed_adapter *a = xcalloc(1, sizeof *a);
    a->be = be;
    a->n_layers = config->n_layers;
    a->per_layer = view->direft ? 1 : MAP_COUNT;
    a->weights = xcalloc((size_t)a->n_layers * a->per_layer, sizeof(kn_adapter_weight *));
    a->info.direft = view->direft;
    a->info.prefill_only = view->prefill_only;
    memcpy(a->info.digest, view->digest, sizeof a->info.digest);
    pf_status status = pack_items(a, view, config, err);
    if (status == PF_OK)
        *out = a;
    else
        packed_adapter_free(a);
    return status;
}

pf_status packed_adapter_create(kn_backend *be, const model_config *config, const void *blob,
                                size_t len, packed_adapter **out, pf_err *err)
{
    adapter_view view = {0};
    pf_status status = adapter_view_open(blob, len, config, &view, err);
    if (status == PF_OK) status = packed_adapter_from_view(be, config, &view, out, err);
    adapter_view_close(&view);
    return status;
}

void packed_adapter_free(packed_adapter *a)
{
    if (!a) return;
    for (size_t i = 0; i < (size_t)a->n_layers * a->per_layer; i++)
        if (a->weights[i]) a->be->ops->adapter_free(a->be, a->weights[i]);
    free(a->weights);
    free(a);
}

const packed_adapter_info *packed_adapter_get_info(const packed_adapter *a)
{
    return &a->info;
}

const kn_adapter_weight *packed_adapter_lora(const packed_adapter *a, int layer, linear_map map)
{
    if (a->info.direft) return NULL;
    return a->weights[(size_t)layer * MAP_COUNT + map];
}

const kn_adapter_weight *packed_adapter_direft(const packed_adapter *a, int layer)
{
    return a->info.direft ? a->weights[layer] : NULL;
}
