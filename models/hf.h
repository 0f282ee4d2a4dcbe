/* The parts of a Hugging Face model folder, combined by hf_model_read (models/source.h). */
#ifndef PF_MODELS_HF_H
#define PF_MODELS_HF_H

#include "models/source.h"

/* Largest JSON file that is read: the largest vocabularies in use are about 35 MB. */
#define HF_MAX_JSON (128u << 20)

/* Parses folder/name, which must be a JSON object. Absent: *out NULL and PF_OK unless required. */
pf_status hf_read_json(const char *folder, const char *name, bool required, json_t **out,
                       pf_err *err);

/* tokenizer.json, tokenizer_config.json, chat_template.jinja -> vocabulary, ids and template.
 * config.vocab must be set: ids beyond the tokenizer's become unused tokens. */
pf_status hf_tokenizer_read(const char *folder, model_source *out, pf_err *err);

#endif
