/* A packed adapter: an adapter blob's matrices in the form a backend computes with, one weight per
 * adapted map (LoRA) or layer (DiReFT). Immutable and owned by whoever packed it; a forward step
 * borrows it while it runs and not longer. Nothing here knows names, users or files. */
#ifndef PF_ENGINE_ADAPTER_H
#define PF_ENGINE_ADAPTER_H

#include "base/err.h"
#include "kernels/backend.h"
#include "models/adapter_blob.h"
#include "models/architecture.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct packed_adapter packed_adapter;

typedef struct {
    bool direft;
    bool prefill_only; /* lorap, direftp */
    int max_rank;
    size_t bytes;             /* packed size of all weights, as the backend counts it */
    unsigned char digest[32]; /* BLAKE2b-256 of the blob */
} packed_adapter_info;

/* Checks blob (models/adapter_blob.h) against config and packs it on be; the blob's bytes are not
 * needed afterwards. Runs on the backend's thread, or on any where the backend says so
 * (kn_backend.adapters_anywhere). PF_REFUSED names the tensor and the reason,
 * PF_NO_MEMORY when the backend is out. */
pf_status packed_adapter_create(kn_backend *be, const model_config *config, const void *blob,
                                size_t len, packed_adapter **out, pf_err *err);
/* The same from a blob that was opened and checked against config. */
pf_status packed_adapter_from_view(kn_backend *be, const model_config *config,
                                   const adapter_view *view, packed_adapter **out, pf_err *err);
/* NULL is fine. */
void packed_adapter_free(packed_adapter *a);

/* Borrowed, as long as a. */
const packed_adapter_info *packed_adapter_get_info(const packed_adapter *a);

/* The weight of a map of a layer, or of DiReFT after a layer; NULL where the adapter has none. */
const kn_adapter_weight *packed_adapter_lora(const packed_adapter *a, int layer, linear_map map);
const kn_adapter_weight *packed_adapter_direft(const packed_adapter *a, int layer);

#endif
