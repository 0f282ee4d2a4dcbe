/* All weights of a model packed on a backend: what the forward pass and training compute with.
 * Immutable after packing. */
#ifndef PF_ENGINE_WEIGHTS_H
#define PF_ENGINE_WEIGHTS_H

#include "base/err.h"
#include "kernels/backend.h"
#include "models/model.h"

#include <stddef.h>

/* Vectors are backend memory; NULL where the architecture has none. */
typedef struct {
    kn_weight *map[MAP_COUNT]; /* q, k, v, o, gate, up, down */
    float *attn_norm;          /* [hidden] */
    float *ffn_norm;           /* [hidden] */
    float *q_bias;             /* [n_heads * head_dim] (qwen2) */
    float *k_bias;             /* [n_kv_heads * head_dim] */
    float *v_bias;             /* [n_kv_heads * head_dim] */
    float *q_norm;             /* [head_dim] (qwen3) */
    float *k_norm;             /* [head_dim] */
} packed_layer;

typedef struct {
    kn_backend *be;             /* borrowed */
    const model_config *config; /* borrowed from the model */
    kn_weight *embedding;       /* [vocab, hidden] */
    kn_weight *output;          /* the embedding again when tied */
    float *output_norm;         /* [hidden] */
    packed_layer *layers;       /* [config->n_layers] */
    size_t bytes;               /* of everything above, as the backend counts it */
} packed_model;

/* Packs m on be and releases the mapped file's pages. m and be must outlive the result.
 * PF_NO_MEMORY when the backend is out. */
pf_status packed_model_create(const model *m, kn_backend *be, packed_model **out, pf_err *err);
void packed_model_free(packed_model *p); /* NULL is fine */

#endif
