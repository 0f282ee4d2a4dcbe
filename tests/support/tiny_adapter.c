#include "support/tiny_adapter.h"

#include "base/err.h"
#include "base/mem.h"
#include "models/adapter_blob.h"

#include <stdlib.h>

static float *random_floats(int64_t n, double scale, uint64_t *state)
{
    float *x = xmalloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(scale * ((double)(*state >> 33) / (double)(1u << 31) * 2 - 1));
    }
    return x;
}

static adapter_item new_item(const model_config *config, int layer, linear_map map, bool direft,
                             int rank, uint64_t *state)
{
    int64_t in = config->hidden, out = config->hidden;
    if (!direft) linear_map_shape(config, map, &in, &out);
    return (adapter_item){.layer = layer,
                          .map = map,
                          .rank = rank,
                          .scale = direft ? 1 : 2,
                          .a = random_floats(rank * in, 0.2, state),
                          .b = random_floats(rank * out, 0.1, state),
                          .bias = direft ? random_floats(rank, 0.2, state) : NULL};
}

void tiny_adapter(const model_config *config, bool direft, bool prefill_only, int rank,
                  uint64_t seed, buf *out)
{
    pf_err err = {0};
    int per_layer = direft ? 1 : MAP_COUNT;
    adapter_view view = {.direft = direft, .prefill_only = prefill_only, .type = KN_F32};
    view.items = xcalloc((size_t)(config->n_layers * per_layer), sizeof *view.items);
    for (int layer = 0; layer < config->n_layers; layer++)
        for (int map = 0; map < per_layer; map++)
            view.items[view.n_items++] =
                new_item(config, layer, (linear_map)map, direft, rank, &seed);
    if (adapter_blob_write(&view, config, NULL, NULL, out, &err) != PF_OK) die("%s", err.text);
    for (size_t i = 0; i < view.n_items; i++) {
        free((void *)view.items[i].a);
        free((void *)view.items[i].b);
        free((void *)view.items[i].bias);
    }
    free(view.items);
}
