#include "support/tiny_adapter.h"

#include "base/err.h"
#include "base/mem.h"
#include "models/adapter_blob.h"

#include <math.h>
#include <stdlib.h>

/* What the numbers are drawn for. */
typedef struct {
    kn_type type;
    bool exact; /* only numbers that all types hold */
    uint64_t state;
} generator;

/* n numbers of the generator's type in [-scale, scale). */
static void *random_numbers(int64_t n, double scale, generator *g)
{
    float *x = xmalloc((size_t)n * sizeof *x);
    uint16_t *half = xmalloc((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        g->state = g->state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(scale * ((double)(g->state >> 33) / (double)(1u << 31) * 2 - 1));
        if (g->exact) x[i] = roundf(x[i] * 256) / 256; /* at most six bits */
        half[i] = g->type == KN_F16 ? kn_f32_to_f16(x[i]) : kn_f32_to_bf16(x[i]);
    }
    void *unused = g->type == KN_F32 ? (void *)half : x;
    void *numbers = g->type == KN_F32 ? (void *)x : half;
    free(unused);
    return numbers;
}

static adapter_item new_item(const model_config *config, int layer, linear_map map, bool direft,
                             int rank, generator *g)
{
    int64_t in = config->hidden, out = config->hidden;
    if (!direft) linear_map_shape(config, map, &in, &out);
    return (adapter_item){.layer = layer,
                          .map = map,
                          .rank = rank,
                          .scale = direft ? 1 : 2,
                          .a = random_numbers(rank * in, 0.2, g),
                          .b = random_numbers(rank * out, 0.1, g),
                          .bias = direft ? random_numbers(rank, 0.2, g) : NULL};
}

static void build(const model_config *config, bool direft, bool prefill_only, int rank,
                  generator *g, buf *out)
{
    pf_err err = {0};
    int per_layer = direft ? 1 : MAP_COUNT;
    adapter_view view = {.direft = direft, .prefill_only = prefill_only, .type = g->type};
    view.items = xcalloc((size_t)(config->n_layers * per_layer), sizeof *view.items);
    for (int layer = 0; layer < config->n_layers; layer++)
        for (int map = 0; map < per_layer; map++)
            view.items[view.n_items++] = new_item(config, layer, (linear_map)map, direft, rank, g);
    if (adapter_blob_write(&view, config, NULL, NULL, out, &err) != PF_OK) die("%s", err.text);
    for (size_t i = 0; i < view.n_items; i++) {
        free((void *)view.items[i].a);
        free((void *)view.items[i].b);
        free((void *)view.items[i].bias);
    }
    free(view.items);
}

void tiny_adapter(const model_config *config, bool direft, bool prefill_only, int rank,
                  uint64_t seed, buf *out)
{
    build(config, direft, prefill_only, rank, &(generator){.type = KN_F32, .state = seed}, out);
}

void tiny_adapter_as(kn_type type, const model_config *config, bool direft, int rank, uint64_t seed,
                     buf *out)
{
    build(config, direft, true, rank, &(generator){.type = type, .exact = true, .state = seed},
          out);
}
