/* Models of random weights, for measuring: speed doesn't depend on what a model has learned.
 * Named "random:SHAPE" or "random:SHAPE:TYPE" (shapes.def; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K,
 * Q5_K, Q6_K, default Q4_0) wherever a path of a model is expected. */
#ifndef PF_MODELS_RANDOM_MODEL_H
#define PF_MODELS_RANDOM_MODEL_H

#include "base/err.h"
#include "models/source.h"

#include <stdbool.h>

/* Whether a path means a model of random weights. */
bool random_model_named(const char *path);

/* All matrices are one block of memory of the largest one's size: a model of 70B opens with about
 * 1 GB. Its values are finite, small and the same at every call. The vocabulary is the 256 bytes
 * and unused tokens. PF_REFUSED lists the shapes or types, or says that the type's blocks don't
 * fit the shape. Free with model_source_free, also after failure. */
pf_status random_model_read(const char *path, model_source *out, pf_err *err);

#endif
