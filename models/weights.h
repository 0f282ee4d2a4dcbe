/* From a file's tensors to weights by role: names, shapes, types and row orders are checked here,
 * for both naming schemes, and vectors become float32. */
#ifndef PF_MODELS_WEIGHTS_H
#define PF_MODELS_WEIGHTS_H

#include "base/err.h"
#include "models/model.h"
#include "models/source.h"

#include <stddef.h>

/* Owns the layers, the float32 vectors and copies of misaligned tensors. */
typedef struct {
    model_weights weights;
    model_layer *layers;
    void **owned;
    size_t n_owned, cap_owned;
} weight_set;

/* Fills out from source; matrices point into the source's mappings, which must outlive it.
 * PF_REFUSED: a missing tensor, a wrong shape or type, a tensor that nothing uses. Free also after
 * failure. */
pf_status weight_set_build(model_source *source, weight_set *out, pf_err *err);
void weight_set_free(weight_set *set);

/* The range of the limits that both loaders hold configuration numbers to. */
enum {
    MODEL_MAX_LAYERS = 4096,
    MODEL_MAX_WIDTH = 1 << 20,
    MODEL_MAX_HEADS = 1 << 14,
    MODEL_MAX_HEAD_DIM = 1 << 14,
    MODEL_MAX_GROUP = 64, /* query heads of a KV head: what attention takes at once */
    MODEL_MAX_FF = 1 << 22,
    MODEL_MAX_VOCAB = 1 << 24,
    MODEL_MAX_CONTEXT = 1 << 28
};

#endif
