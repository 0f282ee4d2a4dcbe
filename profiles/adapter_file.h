/* Import and export of other programs' adapter folders: PEFT LoRA and DiReFT (the pair of files
 * adapter_config.json and adapter_model.safetensors) <-> the canonical blob of models/adapter_blob.
 *
 * Everything that affects what an adapter computes is honoured or refused by name; a tensor that is
 * unknown, missing or misshapen refuses the folder. Keys that only concern training are accepted,
 * unknown keys are reported as warnings. Pickle files are never opened.
 *
 * LoRA: y += s B(A x), s = alpha/r, with use_rslora alpha/sqrt(r); r and alpha of a module from the
 * first key K of rank_pattern / alpha_pattern (in file order) whose regular expression
 * ^(.*\.)?(K)$ matches the full module name; target_modules and exclude_modules as a list of name
 * endings or one regular expression for the whole name; layers_to_transform. lora_alpha missing: 8,
 * the format's default. DiReFT: h += R^T(W h + b), `layers.N.rotate_layer.weight` R,
 * `layers.N.learned_source.weight` W and `.bias` b. */
#ifndef PF_PROFILES_ADAPTER_FILE_H
#define PF_PROFILES_ADAPTER_FILE_H

#include "base/buf.h"
#include "base/err.h"
#include "models/adapter_blob.h"
#include "models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the adapter acts: as the folder says (key "position"; a LoRA without it acts on every
 * token, PEFT's meaning), or the caller's choice. */
typedef enum {
    ADAPTER_POSITION_FILE,
    ADAPTER_POSITION_PREFILL,
    ADAPTER_POSITION_ALL
} adapter_position;

/* Zeroed = defaults. */
typedef struct {
    /* Import although the folder records another base model (its shapes must still fit). The blob
     * then records the model that was given. */
    bool force_base;
    adapter_position position;
} adapter_import_options;

/* What a folder holds; zeroed by adapter_file_inspect before use. */
typedef struct {
    bool direft, prefill_only;
    kn_type type;     /* of the tensors in the blob: F32 where the folder mixes types */
    size_t n_items;   /* adapted maps (LoRA) or layers (DiReFT) */
    int32_t n_layers; /* layers that have at least one */
    int32_t min_rank, max_rank;
    int64_t parameters;
    bool has_base_digest;
    unsigned char base_digest[32];
    char base_name[256]; /* base_model_name_or_path; empty if absent */
} adapter_summary;

/* True if path is a folder that looks like an adapter's (to tell it from a model's folder). */
bool adapter_file_is_folder(const char *path);

/* Reads and checks folder; base NULL: everything but what needs the model's shapes. warnings (may
 * be NULL) gets one line per warning. PF_REFUSED names the key or tensor and the reason. */
pf_status adapter_file_inspect(const char *folder, const model *base,
                               const adapter_import_options *options, adapter_summary *out,
                               buf *warnings, pf_err *err);

/* Reads folder, checks every tensor against base and appends the canonical blob to *blob.
 * options may be NULL. Exporting the blob and importing it again gives the same bytes. */
pf_status adapter_file_import(const char *folder, const model *base,
                              const adapter_import_options *options, buf *blob, buf *warnings,
                              pf_err *err);

/* Writes a blob as a PEFT or DiReFT folder (made if absent; files 0600, written atomically; an
 * existing adapter there is refused unless replace). The configuration gets the extra keys
 * "position" and "base_digest". */
pf_status adapter_file_export(const void *blob, size_t len, const model_config *config,
                              const char *folder, bool replace, pf_err *err);

#endif
