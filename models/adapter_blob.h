/* The canonical form of an adapter: one safetensors byte string that the store keeps (encrypted),
 * the engine loads and training writes. Import (profiles/adapter_file) turns PEFT and DiReFT
 * folders into it after checking every tensor against the base model; export turns it back.
 *
 * Metadata of the safetensors header, all strings: "format" = "preft-adapter-1", "kind" = "lora" |
 * "direft", "position" = "prefill" | "all", "base_digest" = 64 hex digits (model_digest; absent
 * when unknown), "base_name", "config" = the original adapter_config.json (for export,
 * informational), and for LoRA "scales" = JSON object {"L.MAP": scale}. Tensors, F32, F16 or BF16
 * (one type for all): LoRA "L.MAP.A" [rank, in] and "L.MAP.B" [out, rank], in plain (Hugging Face)
 * row order; DiReFT "L.R" [rank, d], "L.W" [rank, d], "L.b" [rank]. L is the layer's number, MAP a
 * linear_map_name. */
#ifndef PF_MODELS_ADAPTER_BLOB_H
#define PF_MODELS_ADAPTER_BLOB_H

#include "base/buf.h"
#include "base/err.h"
#include "kernels/types.h"
#include "models/architecture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADAPTER_MAX_RANK 512

/* One adapted map (LoRA) or layer (DiReFT); pointers borrow from the blob's bytes. */
typedef struct {
    int32_t layer;
    linear_map map; /* LoRA only */
    int32_t rank;
    float scale;      /* LoRA: alpha/r or alpha/sqrt(r); DiReFT: 1 */
    const void *a;    /* LoRA A [rank, in]; DiReFT W [rank, d] */
    const void *b;    /* LoRA B [out, rank]; DiReFT R [rank, d] */
    const void *bias; /* DiReFT [rank]; LoRA NULL */
} adapter_item;

typedef struct {
    bool direft;
    bool prefill_only;   /* position "prefill" */
    kn_type type;        /* KN_F32, KN_F16 or KN_BF16: of all tensors */
    adapter_item *items; /* owned, sorted by layer, then map */
    size_t n_items;
    bool has_base_digest;
    unsigned char base_digest[32];
    unsigned char digest[32]; /* BLAKE2b-256 of the blob's bytes: the adapter's content digest */
} adapter_view;

/* "lorap", "direftp", "lora", "direft". */
const char *adapter_kind_name(bool direft, bool prefill_only);

/* Reads a blob; the view borrows bytes, which must outlive it. config != NULL: every shape is
 * checked against the model. Everything is checked, non-finite values too; unknown, missing or
 * misshapen tensors are refused by name. */
pf_status adapter_view_open(const void *bytes, size_t len, const model_config *config,
                            adapter_view *out, pf_err *err);
void adapter_view_close(adapter_view *view);

/* For writing: an adapter_view filled by the caller (digest ignored) to canonical bytes.
 * config_json and base_name may be NULL. The result is the same bytes for the same content. */
pf_status adapter_blob_write(const adapter_view *view, const model_config *config,
                             const char *base_name, const char *config_json, buf *out, pf_err *err);

#endif
