#include "profiles/adapter_export.h"

#include "base/file.h"
#include "base/mem.h"
#include "models/safetensors.h"
#include "profiles/adapter_config.h"
#include "profiles/adapter_file.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that the blob keeps as metadata of its own. */
static const char *const own_keys[] = {"position", "base_digest", "base_model_name_or_path"};
enum { N_OWN_KEYS = sizeof own_keys / sizeof own_keys[0] };

/* Compact, keys in their order (rank_pattern depends on it), doubles that read back the same. */
static char *dump(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text) die("an adapter's configuration could not be written");
    return text;
}

char *adapter_config_canonical(const json_t *root, const adapter_view *view,
                               const model_config *config)
{
    json_t *own = json_deep_copy(root);
    for (size_t i = 0; i < N_OWN_KEYS; i++)
        json_object_del(own, own_keys[i]);
    char *text = dump(own);
    json_t *generated = adapter_config_generate(view, config);
    if (generated && json_equal(own, generated)) {
        free(text);
        text = NULL;
    }
    json_decref(generated);
    json_decref(own);
    return text;
}

/* --- a configuration for weights that came without one ---------------------------------------- */

static json_t *number(double value)
{
    bool whole = value == floor(value) && fabs(value) < 1e15;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

/* Whether every adapted layer has the same adapted maps; fills both lists. Items are distinct, so
 * counting them is enough. */
static bool is_regular(const adapter_view *v, bool *maps, bool *layers)
{
    size_t n_maps = 0, n_layers = 0;
    for (size_t i = 0; i < v->n_items; i++) {
        const adapter_item *item = &v->items[i];
        n_maps += !maps[item->map];
        n_layers += !layers[item->layer];
        maps[item->map] = layers[item->layer] = true;
    }
    return n_maps * n_layers == v->n_items;
}

static void set_targets(json_t *root, const adapter_view *v, const model_config *config)
{
    bool maps[MAP_COUNT] = {false};
    bool *layers = xcalloc((size_t)config->n_layers, sizeof *layers);
    json_t *names = json_array(), *numbers = json_array();
    bool regular = is_regular(v, maps, layers);
    for (size_t i = 0; i < v->n_items && !regular; i++)
        json_array_append_new(names,
                              json_string(module_name_of(v->items[i].layer, v->items[i].map).text));
    for (linear_map m = 0; m < MAP_COUNT && regular; m++)
        if (maps[m]) json_array_append_new(names, json_string(linear_map_name(m)));
    for (int32_t l = 0; l < config->n_layers && regular; l++)
        if (layers[l]) json_array_append_new(numbers, json_integer(l));
    bool some = regular && json_array_size(numbers) < (size_t)config->n_layers;
    json_object_set_new(root, "target_modules", names);
    json_object_set_new(root, "layers_to_transform", some ? json_incref(numbers) : json_null());
    json_decref(numbers);
    free(layers);
}

static json_t *generate_lora(const adapter_view *v, const model_config *config)
{
    /* alpha = scale * r is exact in double and gives the same scale back. */
    const int32_t rank = v->items[0].rank;
    const double alpha = (double)v->items[0].scale * rank;
    json_t *root = json_object(), *ranks = json_object(), *alphas = json_object();
    json_object_set_new(root, "peft_type", json_string("LORA"));
    json_object_set_new(root, "task_type", json_string("CAUSAL_LM"));
    json_object_set_new(root, "r", json_integer(rank));
    json_object_set_new(root, "lora_alpha", number(alpha));
    for (size_t i = 0; i < v->n_items; i++) {
        const adapter_item *item = &v->items[i];
        module_name name = module_name_of(item->layer, item->map);
        double own = (double)item->scale * item->rank;
        if (item->rank != rank) json_object_set_new(ranks, name.text, json_integer(item->rank));
        if (own != alpha) json_object_set_new(alphas, name.text, number(own));
    }
    json_object_set_new(root, "rank_pattern", ranks);
    json_object_set_new(root, "alpha_pattern", alphas);
    set_targets(root, v, config);
    json_object_set_new(root, "lora_dropout", json_real(0));
    json_object_set_new(root, "bias", json_string("none"));
    json_object_set_new(root, "fan_in_fan_out", json_false());
    json_object_set_new(root, "use_rslora", json_false());
    json_object_set_new(root, "use_dora", json_false());
    json_object_set_new(root, "modules_to_save", json_null());
    json_object_set_new(root, "inference_mode", json_true());
    return root;
}

json_t *adapter_config_generate(const adapter_view *v, const model_config *config)
{
    if (!v->direft) return generate_lora(v, config);
    json_t *layers = json_array();
    json_t *root = json_object();
    json_object_set_new(root, "peft_type", json_string("DIREFT"));
    json_object_set_new(root, "component", json_string("block_output"));
    json_object_set_new(root, "layers", layers);
    json_object_set_new(root, "low_rank_dimension", json_integer(v->items[0].rank));
    json_object_set_new(root, "hidden_size", json_integer(config->hidden));
    for (size_t i = 0; i < v->n_items; i++) {
        json_array_append_new(layers, json_integer(v->items[i].layer));
        if (v->items[i].rank == v->items[0].rank) continue;
        json_decref(root);
        return NULL;
    }
    return root;
}

/* --- export ----------------------------------------------------------------------------------- */

/* The blob's own text, or a generated one, with the keys that the blob keeps itself. */
static pf_status build_config(const safetensors *st, const adapter_view *v,
                              const model_config *config, json_t **out, pf_err *err)
{
    const char *text = safetensors_metadata(st, "config");
    const char *base_name = safetensors_metadata(st, "base_name");
    pf_status status = PF_OK;
    if (text)
        status = json_parse(text, strlen(text), "the adapter's configuration", out, err);
    else
        *out = adapter_config_generate(v, config);
    if (status != PF_OK) return status;
    if (!json_is_object(*out))
        return err_set(err, PF_REFUSED,
                       "the adapter has layers of different ranks or a damaged configuration; no "
                       "adapter_config.json can describe it");
    json_object_set_new(*out, "position", json_string(v->prefill_only ? "prefill" : "all"));
    if (base_name) json_object_set_new(*out, "base_model_name_or_path", json_string(base_name));
    if (v->has_base_digest) {
        char hex[65];
        sodium_bin2hex(hex, sizeof hex, v->base_digest, 32);
        json_object_set_new(*out, "base_digest", json_string(hex));
    }
    return PF_OK;
}

static void build_weights(const adapter_view *v, const model_config *config, buf *out)
{
    enum { MAX_PARTS = 3 };
    typedef struct {
        char text[128];
    } tensor_name;
    const size_t parts = v->direft ? 3 : 2, n = v->n_items * parts;
    static const char *const lora[] = {"lora_A.weight", "lora_B.weight"};
    static const char *const direft[MAX_PARTS] = {"learned_source.weight", "rotate_layer.weight",
                                                  "learned_source.bias"};
    safetensors_item *items = xcalloc(n + 1, sizeof *items);
    tensor_name *names = xcalloc(n + 1, sizeof *names);
    for (size_t i = 0; i < n; i++) {
        const adapter_item *item = &v->items[i / parts];
        const size_t part = i % parts;
        const void *const data[MAX_PARTS] = {item->a, item->b, item->bias};
        int64_t in = config->hidden, rows = config->hidden;
        if (v->direft) {
            snprintf(names[i].text, sizeof names[i].text, "layers.%d.%s", item->layer,
                     direft[part]);
        } else {
            linear_map_shape(config, item->map, &in, &rows);
            snprintf(names[i].text, sizeof names[i].text, "base_model.model.%s.%s",
                     module_name_of(item->layer, item->map).text, lora[part]);
        }
        bool rank_first = v->direft || part == 0;
        items[i] = (safetensors_item){
            .name = names[i].text,
            .type = v->type,
            .n_dims = part == 2 ? 1 : 2,
            .dims = {rank_first ? item->rank : rows, rank_first ? in : item->rank},
            .data = data[part],
        };
    }
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    safetensors_write(items, n, metadata, out);
    json_decref(metadata);
    free(items);
    free(names);
}

/* Weights first: a folder with a configuration is whole. */
static pf_status write_folder(const char *folder, const json_t *root, const buf *weights,
                              bool replace, pf_err *err)
{
    char *config_path = path_join(folder, "adapter_config.json");
    char *weights_path = path_join(folder, "adapter_model.safetensors");
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    pf_status status = PF_OK;
    if (!text) die("an adapter's configuration could not be written");
    if (!replace && (file_exists(config_path) || file_exists(weights_path)))
        status = err_set(err, PF_FAILED, "%s already holds an adapter", folder);
    if (status == PF_OK) status = file_make_folder(folder, 0700, err);
    if (status == PF_OK)
        status = file_write_atomic(weights_path, weights->data, weights->len, 0600, err);
    if (status == PF_OK) status = file_write_atomic(config_path, text, strlen(text), 0600, err);
    free(text);
    free(config_path);
    free(weights_path);
    return status;
}

pf_status adapter_file_export(const void *blob, size_t len, const model_config *config,
                              const char *folder, bool replace, pf_err *err)
{
    adapter_view view = {0};
    safetensors st = {0};
    json_t *root = NULL;
    buf weights = {0};
    pf_status status = adapter_view_open(blob, len, config, &view, err);
    if (status == PF_OK) status = safetensors_parse(blob, len, "adapter", &st, err);
    if (status == PF_OK) status = build_config(&st, &view, config, &root, err);
    if (status != PF_OK) goto out;
    build_weights(&view, config, &weights);
    status = write_folder(folder, root, &weights, replace, err);
out:
    buf_free(&weights);
    json_decref(root);
    safetensors_free(&st);
    adapter_view_close(&view);
    return status;
}
