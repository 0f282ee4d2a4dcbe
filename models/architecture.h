/* The hyperparameters of a model that the engine needs. Filled by the GGUF and the Hugging Face
 * loader from their own key names; every number is checked (range, divisibility) before use. */
#ifndef PF_MODELS_ARCHITECTURE_H
#define PF_MODELS_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { ARCH_LLAMA, ARCH_QWEN2, ARCH_QWEN3, ARCH_COUNT } architecture;

/* "llama", "qwen2", "qwen3" */
const char *architecture_name(architecture arch);

#define MODEL_MAX_STOP_IDS 8

typedef struct {
    architecture arch;
    int32_t n_layers;
    int32_t hidden;     /* width d of the residual stream */
    int32_t n_heads;    /* query heads */
    int32_t n_kv_heads; /* divides n_heads */
    int32_t head_dim;   /* even; q has n_heads * head_dim rows */
    int32_t ff;         /* width of gate and up */
    int32_t vocab;      /* rows of the output matrix */
    int32_t context;    /* tokens the model was made for */
    float rms_eps;
    /* Rotary frequencies: theta^(-2i/head_dim), scaling (linear, llama3, rope_freqs) applied.
     * Owned by the model. */
    const double *rope_inv_freq; /* [head_dim / 2] */
    /* Ids that end a turn: the file's end id, end-of-turn ids of its template and of
     * generation_config.json, and the end-of-text token. */
    int32_t stop_ids[MODEL_MAX_STOP_IDS];
    int32_t n_stop_ids;
} model_config;

/* The seven linear maps of a block that a LoRA may adapt, by their Hugging Face names. */
typedef enum { MAP_Q, MAP_K, MAP_V, MAP_O, MAP_GATE, MAP_UP, MAP_DOWN, MAP_COUNT } linear_map;

/* "q_proj", ..., and the module path inside a layer: "self_attn.q_proj", "mlp.down_proj". */
const char *linear_map_name(linear_map map);
const char *linear_map_path(linear_map map);
/* Columns (in) and rows (out) of a map. */
void linear_map_shape(const model_config *config, linear_map map, int64_t *in, int64_t *out);

#endif
