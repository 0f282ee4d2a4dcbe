/* What a loader (GGUF file or Hugging Face folder) hands to model_open: configuration, tensors,
 * vocabulary and template text in one form, whatever the file called them. */
#ifndef PF_MODELS_SOURCE_H
#define PF_MODELS_SOURCE_H

#include "base/file.h"
#include "base/json.h"
#include "models/architecture.h"
#include "models/safetensors.h"
#include "models/tensor.h"
#include "models/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose tensor names and row order the file uses. */
typedef enum { NAMES_GGUF, NAMES_HF } weight_names;

/* The arrays behind a tokenizer_source. Texts borrow from the mapping, json or arena. */
typedef struct {
    const char **pieces;
    size_t *piece_lengths;
    token_kind *kinds;
    size_t n_tokens;
    const char **merges;
    size_t *merge_lengths;
    size_t n_merges;
    char *pretokenizer; /* NULL: the file names none */
    bool add_bos, ignore_merges, nfc;
    int32_t bos_id, eos_id; /* -1: none */
    buf arena;
    json_t *json;
} vocabulary;

typedef struct {
    char *path;
    char *name; /* for people */
    model_config config;
    double *inv_freq; /* [head_dim / 2], also in config.rope_inv_freq */
    bool tied;        /* the embedding is the output matrix */
    weight_names names;
    tensor_table tensors;
    bool *used; /* [tensors.n]: consumed already, or known and without effect */
    vocabulary vocab;
    char *template_text; /* NULL: none */
    size_t template_len;
    file_map *maps; /* the files that tensors lie in */
    size_t n_maps;
    safetensors *headers; /* [n_maps] for NAMES_HF: tensor names borrow from them */
} model_source;

void model_source_free(model_source *s);
/* Allocates used once the tensor table is final. */
void model_source_index(model_source *s);
/* Marks a tensor as consumed; no-op if there is none of that name. */
void model_source_mark_used(model_source *s, const char *name);
/* Adds an id to config.stop_ids unless it is there, negative or the list is full. */
void model_source_add_stop(model_source *s, int64_t id);
/* Room for n tokens, or merges; zeroed. */
void vocabulary_reserve_tokens(vocabulary *v, size_t n);
void vocabulary_reserve_merges(vocabulary *v, size_t n);
void vocabulary_free(vocabulary *v); /* zeroes it */

/* PF_REFUSED names the key, tensor or file and the reason; free also after failure. path must be
 * a regular file, or a folder. */
pf_status gguf_model_read(const char *path, model_source *out, pf_err *err);
pf_status hf_model_read(const char *folder, model_source *out, pf_err *err);

#endif
