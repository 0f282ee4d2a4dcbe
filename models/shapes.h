/* Shapes of known models (shapes.def), without weights: what their speed depends on. */
#ifndef PF_MODELS_SHAPES_H
#define PF_MODELS_SHAPES_H

#include "models/architecture.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *name; /* "llama-3.1-8b" */
    architecture arch;
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ff, vocab, context;
    double rope_theta;
    bool tied; /* the embedding is the output matrix */
} model_shape;

/* All shapes; *n is their number. Borrowed, static. */
const model_shape *model_shapes(size_t *n);
/* By name[0..len); NULL if unknown. */
const model_shape *model_shape_find(const char *name, size_t len);
/* The configuration of a model of this shape, rope_inv_freq NULL and no stop ids. */
model_config model_shape_config(const model_shape *shape);

#endif
