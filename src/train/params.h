/* The trainable side of an adapter: float32 masters, gradients and AdamW moments in four flat
 * arrays of backend memory, with a table that says which part belongs to which map or layer.
 *
 * Not thread-safe; the thread that runs the backend owns it. */
#ifndef PF_TRAIN_PARAMS_H
#define PF_TRAIN_PARAMS_H

#include "base/buf.h"
#include "base/err.h"
#include "kernels/train.h"
#include "models/adapter_blob.h"
#include "models/architecture.h"

#include <stdbool.h>
#include <stdint.h>

/* One adapted map (LoRA) or layer (DiReFT). Offsets are floats into the flat arrays. */
typedef struct {
    int32_t layer;
    linear_map map; /* LoRA */
    int32_t rank;
    int64_t in, out; /* DiReFT: both the width d */
    float scale;     /* LoRA: alpha / rank (or alpha / sqrt(rank)); DiReFT: 1 */
    size_t a;        /* LoRA A [rank, in]; DiReFT W [rank, d] */
    size_t b;        /* LoRA B [out, rank]; DiReFT R [rank, d] */
    size_t bias;     /* DiReFT [rank] */
} train_item;

typedef struct {
    kn_backend *be; /* borrowed */
    bool direft, prefill_only;
    train_item *items; /* owned, by layer, then map */
    size_t n_items;
    size_t count; /* floats in each flat array */
    float *value, *grad, *m, *v;
    int64_t updates; /* AdamW steps done */
} train_params;

/* What a new adapter looks like. */
typedef struct {
    bool direft, prefill_only;
    int rank;
    double alpha;  /* LoRA; 0 = 2 * rank */
    bool rslora;   /* scale alpha / sqrt(rank) */
    unsigned maps; /* LoRA: bit per linear_map; 0 = all seven */
    uint64_t seed;
} train_shape;

/* A fresh adapter is an exact no-op. LoRA: A uniform in +-1/sqrt(in) (PEFT's Kaiming start), B = 0.
 * DiReFT: R with orthonormal rows, W = 0, bias = 0. The same seed gives the same bytes.
 * PF_USAGE for a rank out of range, PF_NO_MEMORY. */
pf_status train_params_create(kn_backend *be, const model_config *config, const train_shape *shape,
                              train_params *out, pf_err *err);
/* Starts from an existing adapter: its values become the masters, moments start at zero. */
pf_status train_params_load(kn_backend *be, const model_config *config, const adapter_view *view,
                            train_params *out, pf_err *err);
void train_params_free(train_params *p); /* wiped and zeroed; a zeroed one is fine */

/* The masters as an adapter blob of the given type (KN_BF16 for serving, KN_F32 for checkpoints).
 * Layout and order follow models/adapter_blob.h. */
pf_status train_params_write(const train_params *p, const model_config *config, kn_type type,
                             const unsigned char *base_digest, const char *base_name, buf *out,
                             pf_err *err);

/* Masters, moments and update count as bytes, and back: resuming is exact. */
void train_params_save_state(const train_params *p, buf *out);
pf_status train_params_load_state(train_params *p, const void *bytes, size_t len, pf_err *err);

/* The item of a layer and map (LoRA) or layer (DiReFT); NULL if there is none. */
const train_item *train_params_find(const train_params *p, int layer, linear_map map);
/* The lowest layer that has an item: no gradient is needed below it. */
int train_params_lowest_layer(const train_params *p);

/* r[rank, d] <- Q^T where r^T = Q U with U upper triangular and a positive diagonal: the rows made
 * orthonormal in order. */
void train_params_orthonormalize(double *r, int rank, int64_t d);

#endif
