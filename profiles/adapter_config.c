#include "profiles/adapter_config.h"

#include "base/file.h"
#include "base/mem.h"
#include "models/adapter_blob.h"
#include "models/tensor.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 16 << 20, MAX_PATTERNS = 4096, MAX_PATTERN = 1000, MAX_LAYER = 4095 };
#define MAX_ALPHA 1e6

struct module_pattern {
    char *text;
    pcre2_code *code;
    double value;
};

/* What each key means for loading. */
typedef enum {
    KEY_READ,    /* obeyed below */
    KEY_IGNORED, /* concerns training or bookkeeping only */
    KEY_OFF      /* changes what the adapter computes; only null, false, "", "none", [] or {} */
} key_rule;

typedef struct {
    const char *name;
    key_rule rule;
} key_entry;

static const key_entry lora_keys[] = {
    {"peft_type", KEY_READ},
    {"base_model_name_or_path", KEY_READ},
    {"position", KEY_READ},
    {"base_digest", KEY_READ},
    {"r", KEY_READ},
    {"lora_alpha", KEY_READ},
    {"use_rslora", KEY_READ},
    {"rank_pattern", KEY_READ},
    {"alpha_pattern", KEY_READ},
    {"target_modules", KEY_READ},
    {"exclude_modules", KEY_READ},
    {"layers_to_transform", KEY_READ},
    {"layers_pattern", KEY_READ},
    {"init_lora_weights", KEY_READ},
    {"auto_mapping", KEY_IGNORED},
    {"inference_mode", KEY_IGNORED},
    {"lora_dropout", KEY_IGNORED},
    {"peft_version", KEY_IGNORED},
    {"revision", KEY_IGNORED},
    {"task_type", KEY_READ},
    {"megatron_core", KEY_IGNORED}, /* a module's name; without effect unless megatron_config */
    {"runtime_config", KEY_IGNORED},
    {"loftq_config", KEY_IGNORED}, /* initialisation: see init_lora_weights */
    {"eva_config", KEY_IGNORED},
    {"corda_config", KEY_IGNORED},
    {"lora_ga_config", KEY_IGNORED},
    {"qalora_group_size", KEY_IGNORED},   /* without effect unless use_qalora */
    {"ensure_weight_tying", KEY_IGNORED}, /* concerns modules_to_save and embeddings only */
    {"bias", KEY_OFF},
    {"lora_bias", KEY_OFF},
    {"use_dora", KEY_OFF},
    {"use_qalora", KEY_OFF},
    {"use_bdlora", KEY_OFF},
    {"fan_in_fan_out", KEY_OFF},
    {"modules_to_save", KEY_OFF},
    {"trainable_token_indices", KEY_OFF},
    {"layer_replication", KEY_OFF},
    {"target_parameters", KEY_OFF},
    {"alora_invocation_tokens", KEY_OFF},
    {"arrow_config", KEY_OFF},
    {"kasa_config", KEY_OFF},
    {"velora_config", KEY_OFF},
    {"monteclora_config", KEY_OFF},
    {"megatron_config", KEY_OFF},
    {NULL, KEY_READ},
};

static const key_entry direft_keys[] = {
    {"peft_type", KEY_READ},
    {"base_model_name_or_path", KEY_READ},
    {"position", KEY_READ},
    {"base_digest", KEY_READ},
    {"component", KEY_READ},
    {"layers", KEY_READ},
    {"low_rank_dimension", KEY_READ},
    {"hidden_size", KEY_READ},
    {"task_type", KEY_READ},
    {"dropout", KEY_IGNORED},
    {"inference_mode", KEY_IGNORED},
    {"peft_version", KEY_IGNORED},
    {"revision", KEY_IGNORED},
    {"act_fn", KEY_OFF},
    {"add_bias", KEY_OFF},
    {NULL, KEY_READ},
};

static pf_status refuse(const adapter_config *c, pf_err *err, const char *what)
{
    return err_set(err, PF_REFUSED, "%s: %s", c->path, what);
}

static bool is_set(const json_t *value)
{
    return value && !json_is_null(value);
}

/* null, false, "", "none", [] and {} ask for nothing. */
static bool is_off(const json_t *value)
{
    const char *text = json_string_value(value);
    return !is_set(value) || json_is_false(value) ||
           (text && (text[0] == '\0' || strcmp(text, "none") == 0)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static pf_status check_keys(const adapter_config *c, const key_entry *known, buf *warnings,
                            pf_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->root, key, value)
    {
        const key_entry *entry = known;
        while (entry->name && strcmp(entry->name, key) != 0)
            entry++;
        quoted name = quote_bytes(key, strlen(key));
        if (!entry->name) {
            if (warnings)
                buf_printf(warnings, "%s: unknown key \"%s\" is ignored\n", c->path, name.text);
        } else if (entry->rule == KEY_OFF && !is_off(value)) {
            buf text = {0};
            json_append(&text, value);
            pf_status status =
                err_set(err, PF_REFUSED, "%s: \"%s\" is %s, which is not supported", c->path,
                        name.text, quote_bytes(buf_str(&text), text.len).text);
            buf_free(&text);
            return status;
        }
    }
    return PF_OK;
}

/* --- patterns --------------------------------------------------------------------------------- */

static void pattern_free(module_pattern *p)
{
    if (!p) return;
    free(p->text);
    pcre2_code_free(p->code);
    free(p);
}

/* prefix and suffix are put around the text; the whole subject must match. */
static pf_status pattern_create(const adapter_config *c, const char *key, const char *text,
                                const char *prefix, const char *suffix, module_pattern **out,
                                pf_err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    if (strlen(text) > MAX_PATTERN)
        return err_set(err, PF_REFUSED, "%s: \"%s\" has an expression of more than %d bytes",
                       c->path, key, MAX_PATTERN);
    module_pattern *p = xcalloc(1, sizeof *p);
    p->text = xasprintf("%s%s%s", prefix, text, suffix);
    p->code = pcre2_compile(
        (PCRE2_SPTR)p->text, PCRE2_ZERO_TERMINATED,
        PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!p->code) {
        pattern_free(p);
        return err_set(err, PF_REFUSED, "%s: \"%s\": \"%s\" is not a regular expression", c->path,
                       key, quote_bytes(text, strlen(text)).text);
    }
    *out = p;
    return PF_OK;
}

static pf_status pattern_match(const adapter_config *c, const module_pattern *p,
                               const char *subject, bool *out, pf_err *err)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(p->code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (!data || !context) die("out of memory");
    pcre2_set_match_limit(context, 20000);
    pcre2_set_heap_limit(context, 1024);
    int rc = pcre2_match(p->code, (PCRE2_SPTR)subject, strlen(subject), 0, 0, data, context);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    *out = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return PF_OK;
    return err_set(err, PF_REFUSED, "%s: the expression \"%s\" takes too long to match", c->path,
                   quote_bytes(p->text, strlen(p->text)).text);
}

/* rank_pattern, alpha_pattern: an object of expression -> number. */
static pf_status read_patterns(const adapter_config *c, const char *key, bool whole, double low,
                               double high, module_pattern ***out, pf_err *err)
{
    const json_t *object = json_object_get(c->root, key);
    if (!is_set(object)) return PF_OK;
    if (!json_is_object(object) || json_object_size(object) > MAX_PATTERNS)
        return err_set(err, PF_REFUSED, "%s: \"%s\" must be an object of at most %d entries",
                       c->path, key, MAX_PATTERNS);
    *out = xcalloc(json_object_size(object) + 1, sizeof **out);
    size_t n = 0;
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, text, value)
    {
        double number = json_number_value(value);
        if (!json_is_number(value) || !isfinite(number) || number < low || number > high ||
            (whole && !json_is_integer(value)))
            return err_set(err, PF_REFUSED,
                           "%s: the value of \"%s\" in \"%s\" must be %s from %g to %g", c->path,
                           quote_bytes(text, strlen(text)).text, key,
                           whole ? "a whole number" : "a number", low, high);
        pf_status status = pattern_create(c, key, text, "(?:.*\\.)?(?:", ")", &(*out)[n], err);
        if (status != PF_OK) return status;
        (*out)[n++]->value = number;
    }
    return PF_OK;
}

static pf_status find_value(const adapter_config *c, module_pattern *const *patterns,
                            const char *name, double *value, pf_err *err)
{
    for (size_t i = 0; patterns && patterns[i]; i++) {
        bool matches = false;
        pf_status status = pattern_match(c, patterns[i], name, &matches, err);
        if (status != PF_OK) return status;
        if (!matches) continue;
        *value = patterns[i]->value;
        return PF_OK;
    }
    return PF_OK;
}

/* --- sets of modules -------------------------------------------------------------------------- */

static pf_status read_set(const adapter_config *c, const char *key, module_set *out, pf_err *err)
{
    const json_t *value = json_object_get(c->root, key);
    if (!is_set(value)) return PF_OK;
    if (json_is_string(value)) {
        if (strcmp(json_string_value(value), "all-linear") == 0) {
            out->kind = MODULES_ALL_LINEAR;
            return PF_OK;
        }
        out->kind = MODULES_REGEX;
        return pattern_create(c, key, json_string_value(value), "(?:", ")", &out->regex, err);
    }
    if (!json_is_array(value) || json_array_size(value) > MAX_PATTERNS)
        return err_set(err, PF_REFUSED,
                       "%s: \"%s\" must be a list of at most %d names or one regular expression",
                       c->path, key, MAX_PATTERNS);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_string(json_array_get(value, i)))
            return err_set(err, PF_REFUSED, "%s: entry %zu of \"%s\" is not a name", c->path, i,
                           key);
    out->kind = MODULES_LIST;
    out->list = value;
    return PF_OK;
}

/* A list entry means the module of that name and every one that ends in "." and it. */
static bool ends_in(const char *name, const char *entry)
{
    size_t len = strlen(name), end = strlen(entry);
    return len >= end && strcmp(name + len - end, entry) == 0 &&
           (len == end || name[len - end - 1] == '.');
}

static pf_status set_holds(const adapter_config *c, const module_set *set, const char *name,
                           bool *out, pf_err *err)
{
    *out = set->kind == MODULES_ALL_LINEAR;
    if (set->kind == MODULES_REGEX) return pattern_match(c, set->regex, name, out, err);
    for (size_t i = 0; set->kind == MODULES_LIST && i < json_array_size(set->list) && !*out; i++)
        *out = ends_in(name, json_string_value(json_array_get(set->list, i)));
    return PF_OK;
}

/* Modules outside the seven maps of a block can't be adapted here; a configuration that targets
 * one must not load with that part left out. */
static pf_status check_targets(const adapter_config *c, buf *warnings, pf_err *err)
{
    static const char *const others[] = {"lm_head", "model.embed_tokens", "model.norm",
                                         "model.layers.0.input_layernorm",
                                         "model.layers.0.post_attention_layernorm"};
    if (c->target.kind == MODULES_NONE) return refuse(c, err, "\"target_modules\" is missing");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        bool targeted = false, excluded = false;
        if (c->target.kind == MODULES_ALL_LINEAR) break;
        pf_status status = set_holds(c, &c->target, others[i], &targeted, err);
        if (status == PF_OK) status = set_holds(c, &c->exclude, others[i], &excluded, err);
        if (status != PF_OK) return status;
        if (targeted && !excluded)
            return err_set(err, PF_REFUSED,
                           "%s: \"target_modules\" names %s; only the linear maps of the blocks "
                           "can be adapted (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
                           "down_proj)",
                           c->path, others[i]);
    }
    for (size_t i = 0; c->target.kind == MODULES_LIST && i < json_array_size(c->target.list); i++) {
        const char *entry = json_string_value(json_array_get(c->target.list, i));
        bool known = false;
        for (linear_map m = 0; m < MAP_COUNT; m++)
            known = known || strstr(entry, linear_map_name(m));
        if (!known && warnings)
            buf_printf(warnings, "%s: \"target_modules\" names \"%s\", which the model lacks\n",
                       c->path, quote_bytes(entry, strlen(entry)).text);
    }
    return PF_OK;
}

/* --- layers ----------------------------------------------------------------------------------- */

static pf_status add_layer(adapter_config *c, const char *key, const json_t *value, pf_err *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > MAX_LAYER)
        return err_set(err, PF_REFUSED, "%s: \"%s\" must hold layer numbers from 0 to %d", c->path,
                       key, MAX_LAYER);
    int32_t layer = (int32_t)json_integer_value(value);
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i] == layer)
            return err_set(err, PF_REFUSED, "%s: \"%s\" names layer %d twice", c->path, key, layer);
    c->layers[c->n_layers++] = layer;
    return PF_OK;
}

static pf_status read_layers(adapter_config *c, const char *key, pf_err *err)
{
    const json_t *value = json_object_get(c->root, key);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (!is_set(value)) return PF_OK;
    if (n > MAX_LAYER + 1) return err_set(err, PF_REFUSED, "%s: \"%s\" is too long", c->path, key);
    c->has_layers = true;
    c->layers = xcalloc(n + 1, sizeof *c->layers);
    if (!json_is_array(value)) return add_layer(c, key, value, err);
    pf_status status = PF_OK;
    for (size_t i = 0; i < n && status == PF_OK; i++)
        status = add_layer(c, key, json_array_get(value, i), err);
    if (status == PF_OK && n == 0)
        return err_set(err, PF_REFUSED, "%s: \"%s\" is empty", c->path, key);
    return status;
}

/* layers_pattern names the list that the layer numbers count; in these models it is "layers". */
static pf_status check_layers_pattern(const adapter_config *c, pf_err *err)
{
    const json_t *value = json_object_get(c->root, "layers_pattern");
    if (is_off(value)) return PF_OK;
    bool found = json_is_string(value) && strcmp(json_string_value(value), "layers") == 0;
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        const char *name = json_string_value(json_array_get(value, i));
        found = name && strcmp(name, "layers") == 0;
    }
    if (found) return PF_OK;
    return refuse(c, err, "\"layers_pattern\" does not name \"layers\", the list of blocks");
}

static bool has_layer(const adapter_config *c, int32_t layer)
{
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i] == layer) return true;
    return !c->has_layers;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Initialisations that also change the base model's weights: the adapter means nothing without
 * them. */
static pf_status check_initialisation(const adapter_config *c, pf_err *err)
{
    static const char *const harmless[] = {"gaussian", "orthogonal", "eva"};
    const json_t *value = json_object_get(c->root, "init_lora_weights");
    const char *text = json_string_value(value);
    if (!is_set(value) || json_is_boolean(value)) return PF_OK;
    for (size_t i = 0; text && i < sizeof harmless / sizeof harmless[0]; i++)
        if (strcmp(text, harmless[i]) == 0) return PF_OK;
    return err_set(err, PF_REFUSED,
                   "%s: \"init_lora_weights\" is \"%s\": such an adapter belongs to changed base "
                   "weights; convert it to a plain LoRA first",
                   c->path, text ? quote_bytes(text, strlen(text)).text : "not a name");
}

static pf_status read_lora(adapter_config *c, buf *warnings, pf_err *err)
{
    int64_t rank = 8; /* the format's defaults */
    c->alpha = 8;
    pf_status status = json_get_int(c->root, "r", 1, INT32_MAX, &rank, err);
    if (status == PF_OK)
        status = json_get_real(c->root, "lora_alpha", -MAX_ALPHA, MAX_ALPHA, &c->alpha, err);
    if (status == PF_OK && is_set(json_object_get(c->root, "use_rslora")))
        status = json_get_bool(c->root, "use_rslora", &c->rslora, err);
    if (status != PF_OK) return err_context(err, "%s", c->path);
    if (rank > ADAPTER_MAX_RANK)
        return err_set(err, PF_REFUSED, "%s: the rank \"r\" is %lld; the limit is %d", c->path,
                       (long long)rank, ADAPTER_MAX_RANK);
    c->rank = (int32_t)rank;
    status = check_initialisation(c, err);
    if (status == PF_OK)
        status = read_patterns(c, "rank_pattern", true, 1, ADAPTER_MAX_RANK, &c->ranks, err);
    if (status == PF_OK)
        status = read_patterns(c, "alpha_pattern", false, -MAX_ALPHA, MAX_ALPHA, &c->alphas, err);
    if (status == PF_OK) status = read_set(c, "target_modules", &c->target, err);
    if (status == PF_OK) status = read_set(c, "exclude_modules", &c->exclude, err);
    if (status == PF_OK) status = check_targets(c, warnings, err);
    if (status == PF_OK) status = read_layers(c, "layers_to_transform", err);
    if (status == PF_OK) status = check_layers_pattern(c, err);
    if (status == PF_OK && c->has_layers && c->target.kind == MODULES_REGEX)
        return refuse(c, err,
                      "\"layers_to_transform\" does not go with a regular expression in "
                      "\"target_modules\"");
    return status;
}

static pf_status read_direft(adapter_config *c, pf_err *err)
{
    int64_t rank = 0;
    const char *component = NULL;
    static const char *const required[] = {"component", "layers", "low_rank_dimension",
                                           "hidden_size", "position"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (!is_set(json_object_get(c->root, required[i])))
            return err_set(err, PF_REFUSED, "%s: the required key \"%s\" is missing", c->path,
                           required[i]);
    pf_status status = json_get_string(c->root, "component", &component, err);
    if (status == PF_OK)
        status = json_get_int(c->root, "low_rank_dimension", 1, INT32_MAX, &rank, err);
    if (status == PF_OK)
        status = json_get_int(c->root, "hidden_size", 1, INT32_MAX, &c->hidden, err);
    if (status != PF_OK) return err_context(err, "%s", c->path);
    if (strcmp(component, "block_output") != 0)
        return err_set(err, PF_REFUSED, "%s: \"component\" is \"%s\"; block_output is supported",
                       c->path, quote_bytes(component, strlen(component)).text);
    if (rank > ADAPTER_MAX_RANK || rank > c->hidden)
        return err_set(err, PF_REFUSED, "%s: \"low_rank_dimension\" is %lld; the limit is %lld",
                       c->path, (long long)rank,
                       (long long)(c->hidden < ADAPTER_MAX_RANK ? c->hidden : ADAPTER_MAX_RANK));
    c->rank = (int32_t)rank;
    return read_layers(c, "layers", err);
}

static pf_status read_common(adapter_config *c, pf_err *err)
{
    const char *digest = NULL, *position = NULL;
    pf_status status = PF_OK;
    if (is_set(json_object_get(c->root, "base_model_name_or_path")))
        status = json_get_string(c->root, "base_model_name_or_path", &c->base_name, err);
    if (status == PF_OK && is_set(json_object_get(c->root, "base_digest")))
        status = json_get_string(c->root, "base_digest", &digest, err);
    if (status == PF_OK && is_set(json_object_get(c->root, "position")))
        status = json_get_string(c->root, "position", &position, err);
    if (status != PF_OK) return err_context(err, "%s", c->path);
    if (digest) {
        size_t n = 0;
        if (strlen(digest) != 64 ||
            sodium_hex2bin(c->base_digest, 32, digest, 64, NULL, &n, NULL) != 0 || n != 32)
            return refuse(c, err, "\"base_digest\" must be 64 hex digits");
        c->has_base_digest = true;
    }
    if (!position) return PF_OK;
    c->has_position = true;
    c->prefill_only = strcmp(position, "prefill") == 0;
    if (!c->prefill_only && strcmp(position, "all") != 0)
        return err_set(err, PF_REFUSED, "%s: \"position\" is \"%s\"; prefill and all are supported",
                       c->path, quote_bytes(position, strlen(position)).text);
    return PF_OK;
}

static pf_status read_type(adapter_config *c, pf_err *err)
{
    const char *type = NULL, *task = "CAUSAL_LM";
    pf_status status = json_get_string(c->root, "peft_type", &type, err);
    if (status == PF_OK && is_set(json_object_get(c->root, "task_type")))
        status = json_get_string(c->root, "task_type", &task, err);
    if (status != PF_OK) return err_context(err, "%s", c->path);
    if (!type) return refuse(c, err, "the required key \"peft_type\" is missing");
    c->direft = strcmp(type, "DIREFT") == 0;
    if (!c->direft && strcmp(type, "LORA") != 0)
        return err_set(err, PF_REFUSED,
                       "%s: adapters of type \"%s\" are not supported; LORA and DIREFT are",
                       c->path, quote_bytes(type, strlen(type)).text);
    if (strcmp(task, "CAUSAL_LM") != 0)
        return err_set(err, PF_REFUSED, "%s: \"task_type\" is \"%s\"; CAUSAL_LM is supported",
                       c->path, quote_bytes(task, strlen(task)).text);
    return PF_OK;
}

pf_status adapter_config_read(const char *folder, adapter_config *out, buf *warnings, pf_err *err)
{
    buf text = {0};
    *out = (adapter_config){.path = path_join(folder, "adapter_config.json")};
    pf_status status = file_read(out->path, MAX_CONFIG, &text, err);
    if (status == PF_OK) status = json_parse(buf_str(&text), text.len, out->path, &out->root, err);
    if (status == PF_OK && !json_is_object(out->root))
        status = refuse(out, err, "it is not a JSON object");
    if (status == PF_OK) status = read_type(out, err);
    if (status == PF_OK)
        status = check_keys(out, out->direft ? direft_keys : lora_keys, warnings, err);
    if (status == PF_OK) status = read_common(out, err);
    if (status == PF_OK)
        status = out->direft ? read_direft(out, err) : read_lora(out, warnings, err);
    buf_free(&text);
    return status;
}

static void patterns_free(module_pattern **patterns)
{
    for (size_t i = 0; patterns && patterns[i]; i++)
        pattern_free(patterns[i]);
    free(patterns);
}

void adapter_config_free(adapter_config *c)
{
    patterns_free(c->ranks);
    patterns_free(c->alphas);
    pattern_free(c->target.regex);
    pattern_free(c->exclude.regex);
    free(c->layers);
    free(c->path);
    json_decref(c->root);
    *c = (adapter_config){0};
}

/* --- questions -------------------------------------------------------------------------------- */

module_name module_name_of(int32_t layer, linear_map map)
{
    module_name name;
    snprintf(name.text, sizeof name.text, "model.layers.%d.%s", layer, linear_map_path(map));
    return name;
}

pf_status adapter_config_adapts(const adapter_config *c, int32_t layer, linear_map map, bool *out,
                                pf_err *err)
{
    *out = has_layer(c, layer);
    if (c->direft || !*out) return PF_OK;
    module_name name = module_name_of(layer, map);
    bool targeted = false, excluded = false;
    pf_status status = set_holds(c, &c->target, name.text, &targeted, err);
    if (status == PF_OK) status = set_holds(c, &c->exclude, name.text, &excluded, err);
    *out = targeted && !excluded;
    return status;
}

pf_status adapter_config_module(const adapter_config *c, int32_t layer, linear_map map,
                                int32_t *rank, float *scale, pf_err *err)
{
    *rank = c->rank;
    *scale = 1;
    if (c->direft) return PF_OK;
    module_name name = module_name_of(layer, map);
    double r = c->rank, alpha = c->alpha;
    pf_status status = find_value(c, c->ranks, name.text, &r, err);
    if (status == PF_OK) status = find_value(c, c->alphas, name.text, &alpha, err);
    *rank = (int32_t)r;
    *scale = (float)(alpha / (c->rslora ? sqrt(r) : r));
    return status;
}
