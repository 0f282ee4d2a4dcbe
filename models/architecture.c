#include "models/architecture.h"

#include "base/err.h"

static const char *const architecture_names[ARCH_COUNT] = {"llama", "qwen2", "qwen3"};

static const struct {
    const char *name, *path;
} linear_maps[MAP_COUNT] = {
    [MAP_Q] = {"q_proj", "self_attn.q_proj"},    [MAP_K] = {"k_proj", "self_attn.k_proj"},
    [MAP_V] = {"v_proj", "self_attn.v_proj"},    [MAP_O] = {"o_proj", "self_attn.o_proj"},
    [MAP_GATE] = {"gate_proj", "mlp.gate_proj"}, [MAP_UP] = {"up_proj", "mlp.up_proj"},
    [MAP_DOWN] = {"down_proj", "mlp.down_proj"},
};

const char *architecture_name(architecture arch)
{
    PF_ASSERT((unsigned)arch < ARCH_COUNT);
    return architecture_names[arch];
}

const char *linear_map_name(linear_map map)
{
    PF_ASSERT((unsigned)map < MAP_COUNT);
    return linear_maps[map].name;
}

const char *linear_map_path(linear_map map)
{
    PF_ASSERT((unsigned)map < MAP_COUNT);
    return linear_maps[map].path;
}

void linear_map_shape(const model_config *config, linear_map map, int64_t *in, int64_t *out)
{
    const int64_t d = config->hidden, ff = config->ff;
    const int64_t q = (int64_t)config->n_heads * config->head_dim;
    const int64_t kv = (int64_t)config->n_kv_heads * config->head_dim;
    const int64_t shapes[MAP_COUNT][2] = {
        [MAP_Q] = {d, q},     [MAP_K] = {d, kv},  [MAP_V] = {d, kv},    [MAP_O] = {q, d},
        [MAP_GATE] = {d, ff}, [MAP_UP] = {d, ff}, [MAP_DOWN] = {ff, d},
    };
    PF_ASSERT((unsigned)map < MAP_COUNT);
    *in = shapes[map][0];
    *out = shapes[map][1];
}
