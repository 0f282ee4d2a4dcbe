/* adapter_config.json of a LoRA or DiReFT folder: reads it, accounting for every key, and answers
 * which modules are adapted and how. */
#ifndef PF_PROFILES_ADAPTER_CONFIG_H
#define PF_PROFILES_ADAPTER_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "models/architecture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct module_pattern module_pattern; /* a compiled regular expression with a number */

/* Which modules a "target_modules" or "exclude_modules" means. */
typedef enum { MODULES_NONE, MODULES_LIST, MODULES_REGEX, MODULES_ALL_LINEAR } module_set_kind;
typedef struct {
    module_set_kind kind;
    const json_t *list; /* names or name endings, borrowed from root */
    module_pattern *regex;
} module_set;

typedef struct {
    char *path; /* of the file, for messages */
    json_t *root;
    bool direft;
    bool has_position, prefill_only; /* "position" */
    bool has_base_digest;
    unsigned char base_digest[32];
    const char *base_name; /* base_model_name_or_path, or NULL; borrowed from root */

    int32_t rank; /* r, or low_rank_dimension */
    bool has_layers;
    int32_t *layers; /* layers_to_transform, or layers (DiReFT) */
    size_t n_layers;

    /* LoRA */
    double alpha;
    bool rslora;
    module_set target, exclude;
    module_pattern **ranks, **alphas; /* NULL-terminated, in file order; NULL: none */

    /* DiReFT */
    int64_t hidden;
} adapter_config;

/* Reads folder/adapter_config.json. Features that this program does not support are refused by the
 * key's name; unknown keys give a line in warnings (may be NULL). Free also after
 * failure. */
pf_status adapter_config_read(const char *folder, adapter_config *out, buf *warnings, pf_err *err);
void adapter_config_free(adapter_config *c);

/* Whether the configuration adapts this module (LoRA) or layer (DiReFT; map is ignored). */
pf_status adapter_config_adapts(const adapter_config *c, int32_t layer, linear_map map, bool *out,
                                pf_err *err);
/* Rank and scale of a module. */
pf_status adapter_config_module(const adapter_config *c, int32_t layer, linear_map map,
                                int32_t *rank, float *scale, pf_err *err);

/* Full module name in the base model: "model.layers.3.self_attn.q_proj". */
typedef struct {
    char text[64];
} module_name;
module_name module_name_of(int32_t layer, linear_map map);

#endif
