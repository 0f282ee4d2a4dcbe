/* An open model: configuration, weights in the mapped file, tokenizer and chat template, all
 * checked. Immutable after model_open, so every thread may use it without a lock. */
#ifndef PF_MODELS_MODEL_H
#define PF_MODELS_MODEL_H

#include "base/err.h"
#include "kernels/backend.h"
#include "models/architecture.h"
#include "models/template.h"
#include "models/tokenizer.h"

#include <stdint.h>

typedef struct model model;

/* Matrices and vectors by role. A matrix with data == NULL is absent (bias, q/k norms, output when
 * the embedding is tied). Vectors are float32, converted at load, owned by the model. */
typedef struct {
    const float *attn_norm; /* [hidden] */
    kn_matrix q, k, v, o;
    const float *q_bias, *k_bias, *v_bias; /* [rows of q, k, v], plain row order, or NULL */
    const float *q_norm, *k_norm;          /* [head_dim] or NULL (qwen3) */
    const float *ffn_norm;                 /* [hidden] */
    kn_matrix gate, up, down;
} model_layer;

typedef struct {
    kn_matrix embedding; /* [vocab, hidden] */
    kn_matrix output;    /* [vocab, hidden]; the embedding again when tied */
    bool tied;
    const float *output_norm;  /* [hidden] */
    const model_layer *layers; /* [n_layers] */
} model_weights;

typedef struct {
    /* Chooses a known chat template by name instead of recognising the file's ("chatml", "llama3",
     * "plain", ...); NULL: recognise. */
    const char *template_name;
    /* Chooses a pre-tokenizer by name when the file's is unknown or absent; NULL: the file's. */
    const char *pretokenizer_name;
} model_options;

/* Opens a GGUF file, a Hugging Face folder or random weights (random_model.h). Reads and checks
 * everything a run would use; an unknown chat template is not refused here but by model_template
 * (raw prompts still work). PF_REFUSED names the file, the item and the reason. */
pf_status model_open(const char *path, const model_options *options, model **out, pf_err *err);
void model_close(model *m); /* NULL is fine */

const model_config *model_get_config(const model *m);
const model_weights *model_get_weights(const model *m);
const tokenizer *model_get_tokenizer(const model *m);
/* PF_REFUSED with the list of known templates when the file's is not one of them. */
pf_status model_template(const model *m, const chat_template **out, pf_err *err);

/* As people call it, clean: the file's name without its ending where it follows GGUF's naming
 * convention or the file states no name, else general.name. */
const char *model_name(const model *m);
/* The letters and digits of a name, in lower case: models are spelled in many ways. */
void model_name_squeeze(const char *name, size_t len, char *out, size_t size);
const char *model_path(const model *m);
/* Digest of the content that decides results (tensor data, types, shapes, configuration,
 * vocabulary): 32 bytes. Computed at first call from the mapped file in bounded time: BLAKE2b over
 * metadata and over samples spread through every tensor; same file, same digest. Thread-safe. */
const unsigned char *model_digest(const model *m);

/* Tells the operating system that the mapped tensor data is not needed soon (after packing). */
void model_release_pages(const model *m);

#endif
