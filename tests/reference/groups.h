/* The groups of reference tests. Each looks for its files under the folder and tests every model it
 * finds; what is absent is counted as skipped with the reason. */
#ifndef REFERENCE_GROUPS_H
#define REFERENCE_GROUPS_H

#include "data.h"
#include "report.h"
#include "scored.h"

#define REAL_MODEL "smollm2-135m"

typedef struct {
    const char *folder;
    const char *real; /* path of the real model's GGUF file, or NULL */
    const char *isa;  /* for the groups that compute */
    int threads;
    char **models; /* names under models/, and REAL_MODEL; NULL-terminated */
} check_context;

void check_tokenizer(const check_context *c, report *rep);
void check_chat(const check_context *c, report *rep);
void check_forward(const check_context *c, report *rep);
void check_adapters(const check_context *c, report *rep);
void check_turns(const check_context *c, report *rep);
void check_quant(const check_context *c, report *rep);
void check_training(const check_context *c, report *rep);
void check_hostile(const check_context *c, report *rep);

/* The files and folders of a model that hold the same weights in float32 and the same tokenizer:
 * the Hugging Face folder and MODEL-f32.gguf, or the real model's file. Owned paths; returns how
 * many (0..2) and says in rep why there are none. */
int model_files(const check_context *c, const char *model, char *paths[2], report *rep);
/* "tiny-llama/hf": the last two parts of a path, for reports; borrowed from it. */
const char *file_label(const char *path);
/* Opens one and reports failure. */
bool open_runner(const check_context *c, const char *path, runner *out, report *rep);
bool open_model(const char *path, model **out, report *rep);
/* The other engine's level on the real model. */
scored_peer real_peer(const check_context *c);

#endif
