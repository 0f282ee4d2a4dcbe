#include "models/hf.h"

#include "base/mem.h"
#include "models/rope.h"
#include "models/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *folder;
    const json_t *config;
    model_source *out;
    pf_err *err;
} loader;

pf_status hf_read_json(const char *folder, const char *name, bool required, json_t **out,
                       pf_err *err)
{
    buf text = {0};
    *out = NULL;
    char *path = path_join(folder, name);
    pf_status status = PF_OK;
    if (!required && !file_exists(path)) goto out;
    status = file_read(path, HF_MAX_JSON, &text, err);
    if (status == PF_OK) status = json_parse(buf_str(&text), text.len, path, out, err);
    if (status == PF_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        status = err_set(err, PF_REFUSED, "%s is not a JSON object", path);
    }
    if (status == PF_NOT_FOUND && required)
        status = err_set(err, PF_REFUSED,
                         "%s has no %s: not a model folder, or one that is not "
                         "complete",
                         folder, name);
out:
    buf_free(&text);
    free(path);
    return status;
}

/* --- config.json ------------------------------------------------------------------------------ */

static pf_status required_int(const loader *l, const char *key, int64_t high, int32_t *out)
{
    int64_t value = 0;
    if (!json_object_get(l->config, key))
        return err_set(l->err, PF_REFUSED, "the required key \"%s\" is missing", key);
    pf_status status = json_get_int(l->config, key, 1, high, &value, l->err);
    *out = (int32_t)value;
    return status;
}

static bool is_set(const json_t *value)
{
    return value && !json_is_null(value);
}

static pf_status read_architecture(const loader *l)
{
    static const struct {
        const char *class, *type;
        architecture arch;
    } known[] = {
        {"LlamaForCausalLM", "llama", ARCH_LLAMA},
        {"MistralForCausalLM", "mistral", ARCH_LLAMA},
        {"Qwen2ForCausalLM", "qwen2", ARCH_QWEN2},
        {"Qwen3ForCausalLM", "qwen3", ARCH_QWEN3},
    };
    const char *type = NULL;
    pf_status status = json_get_string(l->config, "model_type", &type, l->err);
    if (status != PF_OK) return status;
    const json_t *classes = json_object_get(l->config, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0));
    if (is_set(classes) && !class)
        return err_set(l->err, PF_REFUSED, "\"architectures\" must be an array of names");
    const char *found = class ? class : type;
    for (size_t i = 0; found && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(found, class ? known[i].class : known[i].type) != 0) continue;
        if (type && strcmp(type, known[i].type) != 0) break;
        l->out->config.arch = known[i].arch;
        return PF_OK;
    }
    return err_set(l->err, PF_REFUSED,
                   "unsupported architecture \"%s\" (model_type \"%s\"); llama, mistral, qwen2 and "
                   "qwen3 are supported",
                   quote_bytes(found ? found : "", found ? strlen(found) : 0).text,
                   quote_bytes(type ? type : "", type ? strlen(type) : 0).text);
}

static pf_status read_shape(const loader *l)
{
    model_config *c = &l->out->config;
    pf_status status = required_int(l, "num_hidden_layers", MODEL_MAX_LAYERS, &c->n_layers);
    if (status == PF_OK) status = required_int(l, "hidden_size", MODEL_MAX_WIDTH, &c->hidden);
    if (status == PF_OK) status = required_int(l, "intermediate_size", MODEL_MAX_FF, &c->ff);
    if (status == PF_OK) status = required_int(l, "vocab_size", MODEL_MAX_VOCAB, &c->vocab);
    if (status == PF_OK)
        status = required_int(l, "max_position_embeddings", MODEL_MAX_CONTEXT, &c->context);
    if (status == PF_OK)
        status = required_int(l, "num_attention_heads", MODEL_MAX_HEADS, &c->n_heads);
    if (status != PF_OK) return status;
    c->n_kv_heads = c->n_heads; /* the format's default */
    if (is_set(json_object_get(l->config, "num_key_value_heads")))
        status = required_int(l, "num_key_value_heads", MODEL_MAX_HEADS, &c->n_kv_heads);
    if (status == PF_OK && is_set(json_object_get(l->config, "head_dim")))
        status = required_int(l, "head_dim", MODEL_MAX_HEAD_DIM, &c->head_dim);
    if (status != PF_OK) return status;
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(
            l->err, PF_REFUSED,
            "\"num_key_value_heads\" is %d, which does not divide the %d attention heads",
            c->n_kv_heads, c->n_heads);
    if (c->n_heads / c->n_kv_heads > MODEL_MAX_GROUP)
        return err_set(l->err, PF_REFUSED,
                       "%d of the \"num_attention_heads\" share one of the %d "
                       "\"num_key_value_heads\"; at most %d can",
                       c->n_heads / c->n_kv_heads, c->n_kv_heads, MODEL_MAX_GROUP);
    if (c->head_dim == 0 && c->arch == ARCH_QWEN3)
        c->head_dim = 128; /* this architecture's documented default */
    if (c->head_dim == 0) {
        if (c->hidden % c->n_heads != 0)
            return err_set(l->err, PF_REFUSED,
                           "\"hidden_size\" is %d, which the %d attention heads do not divide",
                           c->hidden, c->n_heads);
        c->head_dim = c->hidden / c->n_heads;
    }
    if (c->head_dim % 2 != 0)
        return err_set(l->err, PF_REFUSED,
                       "the head size %d is odd; rotary embeddings need an even one", c->head_dim);
    double eps = 0;
    if (!json_object_get(l->config, "rms_norm_eps"))
        return err_set(l->err, PF_REFUSED, "the required key \"rms_norm_eps\" is missing");
    status = json_get_real(l->config, "rms_norm_eps", 1e-30, 1, &eps, l->err);
    c->rms_eps = (float)eps;
    return status;
}

/* A flag that must be false or absent. */
static pf_status refuse_flag(const loader *l, const char *key)
{
    bool value = false;
    if (!is_set(json_object_get(l->config, key))) return PF_OK;
    pf_status status = json_get_bool(l->config, key, &value, l->err);
    if (status == PF_OK && value)
        return err_set(l->err, PF_REFUSED, "\"%s\" is true, which is not supported", key);
    return status;
}

/* Attention in a window is exact only where no context is longer than the window. */
static pf_status check_window(const loader *l)
{
    const json_t *window = json_object_get(l->config, "sliding_window");
    bool used = true; /* mistral has no switch; qwen2 and qwen3 have */
    if (l->out->config.arch != ARCH_LLAMA) {
        used = false;
        if (is_set(json_object_get(l->config, "use_sliding_window"))) {
            pf_status status = json_get_bool(l->config, "use_sliding_window", &used, l->err);
            if (status != PF_OK) return status;
        }
    }
    const json_t *types = json_object_get(l->config, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention") != 0)
            return err_set(l->err, PF_REFUSED,
                           "\"layer_types\" names \"%s\" for layer %zu; only full_attention is "
                           "supported",
                           type ? quote_bytes(type, strlen(type)).text : "?", i);
    }
    if (!used || !is_set(window)) return PF_OK;
    int64_t size = 0;
    pf_status status = json_get_int(l->config, "sliding_window", 1, INT64_MAX, &size, l->err);
    if (status == PF_OK && size < l->out->config.context)
        return err_set(l->err, PF_REFUSED,
                       "\"sliding_window\" is %lld: attention in a sliding window is not supported",
                       (long long)size);
    return status;
}

static pf_status refuse_variants(const loader *l)
{
    static const char *const flags[] = {"attention_bias", "mlp_bias", "is_encoder_decoder"};
    pf_status status = PF_OK;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && status == PF_OK; i++)
        status = refuse_flag(l, flags[i]);
    if (status != PF_OK) return status;
    const char *activation = "silu";
    status = json_get_string(l->config, "hidden_act", &activation, l->err);
    if (status != PF_OK) return status;
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return err_set(l->err, PF_REFUSED, "\"hidden_act\" is \"%s\"; silu is supported",
                       quote_bytes(activation, strlen(activation)).text);
    if (is_set(json_object_get(l->config, "quantization_config")))
        return err_set(l->err, PF_REFUSED,
                       "\"quantization_config\" is set: quantized folders are not supported; use "
                       "a GGUF file or the original weights");
    double part = 1;
    if (is_set(json_object_get(l->config, "partial_rotary_factor")))
        status = json_get_real(l->config, "partial_rotary_factor", 0, 1, &part, l->err);
    if (status == PF_OK && part != 1)
        return err_set(l->err, PF_REFUSED, "\"partial_rotary_factor\" is %g; 1 is supported", part);
    return status == PF_OK ? check_window(l) : status;
}

/* --- rotary embedding ------------------------------------------------------------------------- */

static pf_status rope_real(const loader *l, const json_t *object, const char *key, double low,
                           double high, double *out)
{
    if (!json_object_get(object, key))
        return err_set(l->err, PF_REFUSED, "the rotary scaling has no \"%s\"", key);
    return json_get_real(object, key, low, high, out, l->err);
}

static pf_status scale_llama3(const loader *l, const json_t *scaling)
{
    rope_llama3 s = {0};
    pf_status status = rope_real(l, scaling, "factor", 1, 1e6, &s.factor);
    if (status == PF_OK) status = rope_real(l, scaling, "low_freq_factor", 1e-3, 1e6, &s.low);
    if (status == PF_OK) status = rope_real(l, scaling, "high_freq_factor", 1e-3, 1e6, &s.high);
    if (status == PF_OK)
        status = rope_real(l, scaling, "original_max_position_embeddings", 1, MODEL_MAX_CONTEXT,
                           &s.context);
    if (status != PF_OK) return status;
    if (s.high <= s.low)
        return err_set(l->err, PF_REFUSED,
                       "\"high_freq_factor\" must be above \"low_freq_factor\"");
    rope_scale_llama3(l->out->inv_freq, l->out->config.head_dim / 2, &s);
    return PF_OK;
}

/* "rope_scaling" with "rope_theta" beside it, or (newer) "rope_parameters" with both inside. */
static pf_status read_rope(const loader *l)
{
    model_source *s = l->out;
    const json_t *scaling = json_object_get(l->config, "rope_parameters");
    const json_t *theta_in = l->config;
    if (is_set(scaling))
        theta_in = json_object_get(scaling, "rope_theta") ? scaling : l->config;
    else
        scaling = json_object_get(l->config, "rope_scaling");
    if (is_set(scaling) && !json_is_object(scaling))
        return err_set(l->err, PF_REFUSED, "the rotary scaling must be an object or null");
    double theta = 0, factor = 1;
    if (!json_object_get(theta_in, "rope_theta"))
        return err_set(l->err, PF_REFUSED, "the required key \"rope_theta\" is missing");
    pf_status status = json_get_real(theta_in, "rope_theta", 1e-6, 1e12, &theta, l->err);
    if (status != PF_OK) return status;
    s->inv_freq = rope_frequencies(theta, s->config.head_dim);

    const char *type = "default";
    if (is_set(scaling)) {
        const char *key = json_object_get(scaling, "rope_type") ? "rope_type" : "type";
        status = json_get_string(scaling, key, &type, l->err);
        if (status != PF_OK) return status;
    }
    if (strcmp(type, "default") == 0) return PF_OK;
    if (strcmp(type, "llama3") == 0) return scale_llama3(l, scaling);
    if (strcmp(type, "linear") == 0) {
        status = rope_real(l, scaling, "factor", 1e-3, 1e6, &factor);
        if (status == PF_OK) rope_scale_linear(s->inv_freq, s->config.head_dim / 2, factor);
        return status;
    }
    return err_set(l->err, PF_REFUSED,
                   "rotary scaling of type \"%s\" is not supported; default, linear and llama3 are",
                   quote_bytes(type, strlen(type)).text);
}

/* "eos_token_id": a number, a list of numbers or null. */
static pf_status read_stop_ids(const loader *l, const json_t *object)
{
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!is_set(value)) return PF_OK;
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || number >= l->out->config.vocab)
            return err_set(l->err, PF_REFUSED,
                           "\"eos_token_id\" must be ids below the vocabulary's size %d",
                           l->out->config.vocab);
        if (l->out->vocab.eos_id < 0) l->out->vocab.eos_id = (int32_t)number;
        model_source_add_stop(l->out, number);
    }
    return PF_OK;
}

static pf_status read_config(const loader *l)
{
    pf_status status = read_architecture(l);
    if (status == PF_OK) status = read_shape(l);
    if (status == PF_OK) status = refuse_variants(l);
    if (status == PF_OK) status = read_rope(l);
    if (status == PF_OK)
        status = json_get_bool(l->config, "tie_word_embeddings", &l->out->tied, l->err);
    if (status == PF_OK) status = read_stop_ids(l, l->config);
    return status;
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Maps one safetensors file and adds its tensors. */
static pf_status add_file(model_source *s, const char *folder, const char *name, pf_err *err)
{
    char *path = path_join(folder, name);
    file_map *map = &s->maps[s->n_maps];
    safetensors *st = &s->headers[s->n_maps];
    pf_status status = file_map_open(path, map, err);
    if (status == PF_NOT_FOUND)
        status = err_set(err, PF_REFUSED, "%s has no %s, which its index names", folder, name);
    if (status != PF_OK) goto out;
    s->n_maps++;
    status = safetensors_parse(map->data, map->size, path, st, err);
    for (size_t i = 0; i < st->n && status == PF_OK; i++) {
        const safetensors_tensor *from = &st->tensors[i];
        tensor t = {.name = from->name,
                    .name_len = strlen(from->name),
                    .n_dims = from->n_dims,
                    .data = from->data,
                    .bytes = from->bytes};
        if (!safetensors_kn_type(from->dtype, &t.type) || from->n_dims > TENSOR_MAX_DIMS) {
            status =
                err_set(err, PF_REFUSED,
                        "%s: tensor \"%s\" is %s with %d dimensions; F32, F16 and BF16 with at "
                        "most %d are supported",
                        path, quote_bytes(t.name, t.name_len).text, from->dtype, from->n_dims,
                        TENSOR_MAX_DIMS);
            break;
        }
        memcpy(t.dims, from->dims, sizeof t.dims);
        tensor_table_add(&s->tensors, &t);
    }
out:
    free(path);
    return status;
}

/* A shard's name from the index: a plain file name in the same folder. */
static bool is_plain_name(const char *name)
{
    size_t len = strlen(name);
    static const char suffix[] = ".safetensors";
    const size_t suffix_len = sizeof suffix - 1;
    return len > suffix_len && len < 256 && !strchr(name, '/') && name[0] != '.' &&
           strcmp(name + len - suffix_len, suffix) == 0;
}

static size_t find_shard(char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    return n;
}

/* The distinct file names of the index, in its order. */
static pf_status list_shards(const json_t *map, const char *folder, char ***out, size_t *n,
                             pf_err *err)
{
    enum { MAX_SHARDS = 1000 };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *name = json_string_value(value);
        if (!name || !is_plain_name(name))
            return err_set(err, PF_REFUSED,
                           "%s/model.safetensors.index.json: tensor \"%s\" is placed in \"%s\", "
                           "which is not the name of a .safetensors file in this folder",
                           folder, quote_bytes(key, strlen(key)).text,
                           name ? quote_bytes(name, strlen(name)).text : "");
        if (find_shard(*out, *n, name) < *n) continue;
        if (*n == MAX_SHARDS)
            return err_set(err, PF_REFUSED,
                           "%s/model.safetensors.index.json names more than %d "
                           "files",
                           folder, MAX_SHARDS);
        *out = xrealloc_array(*out, *n + 1, sizeof **out);
        (*out)[(*n)++] = xstrdup(name);
    }
    if (*n == 0)
        return err_set(err, PF_REFUSED, "%s/model.safetensors.index.json names no tensors", folder);
    return PF_OK;
}

/* Index and files must name the same tensors in the same places. */
static pf_status check_index(const model_source *s, const json_t *map, const char *folder,
                             char *const *names, pf_err *err)
{
    size_t found = 0;
    for (size_t f = 0; f < s->n_maps; f++) {
        for (size_t i = 0; i < s->headers[f].n; i++, found++) {
            const char *tensor_name = s->headers[f].tensors[i].name;
            const char *place = json_string_value(json_object_get(map, tensor_name));
            if (!place || strcmp(place, names[f]) != 0)
                return err_set(err, PF_REFUSED,
                               "%s: tensor \"%s\" is in %s, but the index places it in %s", folder,
                               quote_bytes(tensor_name, strlen(tensor_name)).text, names[f],
                               place ? place : "no file");
        }
    }
    if (found != json_object_size(map))
        return err_set(err, PF_REFUSED, "%s: the index names %zu tensors, but its files hold %zu",
                       folder, json_object_size(map), found);
    return PF_OK;
}

static pf_status read_shards(model_source *s, const char *folder, const json_t *index, pf_err *err)
{
    char **names = NULL;
    size_t n = 0;
    const json_t *map = json_object_get(index, "weight_map");
    pf_status status = PF_OK;
    if (!json_is_object(map))
        status = err_set(err, PF_REFUSED,
                         "%s/model.safetensors.index.json has no object \"weight_map\"", folder);
    if (status == PF_OK) status = list_shards(map, folder, &names, &n, err);
    if (status != PF_OK) goto out;
    s->maps = xcalloc(n, sizeof *s->maps);
    s->headers = xcalloc(n, sizeof *s->headers);
    for (size_t i = 0; i < n && status == PF_OK; i++)
        status = add_file(s, folder, names[i], err);
    if (status == PF_OK) status = check_index(s, map, folder, names, err);
out:
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return status;
}

static pf_status read_weights(model_source *s, const char *folder, pf_err *err)
{
    static const char single[] = "model.safetensors";
    json_t *index = NULL;
    char *path = path_join(folder, single);
    pf_status status = PF_OK;
    if (file_exists(path)) {
        s->maps = xcalloc(1, sizeof *s->maps);
        s->headers = xcalloc(1, sizeof *s->headers);
        status = add_file(s, folder, single, err);
    } else {
        status = hf_read_json(folder, "model.safetensors.index.json", false, &index, err);
        if (status == PF_OK && index)
            status = read_shards(s, folder, index, err);
        else if (status == PF_OK)
            status = err_set(err, PF_REFUSED,
                             "%s has no weights: neither model.safetensors nor "
                             "model.safetensors.index.json (pickle files are not read)",
                             folder);
    }
    if (status == PF_OK) status = tensor_table_sort(&s->tensors, folder, err);
    if (status == PF_OK) model_source_index(s);
    json_decref(index);
    free(path);
    return status;
}

/* Tensors that old files carry and that nothing reads: the output matrix of a tied model, and
 * rotary frequencies (they follow from the configuration). */
static void mark_without_effect(model_source *s)
{
    static const char suffix[] = ".rotary_emb.inv_freq";
    const size_t len = sizeof suffix - 1;
    if (s->tied) model_source_mark_used(s, "lm_head.weight");
    for (size_t i = 0; i < s->tensors.n; i++) {
        const tensor *t = &s->tensors.items[i];
        if (t->name_len > len && memcmp(t->name + t->name_len - len, suffix, len) == 0)
            s->used[i] = true;
    }
}

/* Before anything is sized by "vocab_size", the embedding matrix must bear it out. */
static pf_status check_vocab_size(const model_source *s, pf_err *err)
{
    static const char name[] = "model.embed_tokens.weight";
    const tensor *t = tensor_table_find(&s->tensors, name);
    if (!t) return err_set(err, PF_REFUSED, "%s: missing tensor \"%s\"", s->path, name);
    if (t->n_dims == 2 && t->dims[0] == s->config.vocab && t->bytes > 0) return PF_OK;
    return err_set(err, PF_REFUSED,
                   "%s: tensor \"%s\" has the shape %s, but \"vocab_size\" in config.json is %d",
                   s->path, name, shape_words(t->dims, t->n_dims).text, s->config.vocab);
}

pf_status hf_model_read(const char *folder, model_source *out, pf_err *err)
{
    json_t *config = NULL, *generation = NULL;
    *out = (model_source){.path = xstrdup(folder), .names = NAMES_HF};
    out->vocab.eos_id = out->vocab.bos_id = -1;
    pf_status status = hf_read_json(folder, "config.json", true, &config, err);
    if (status != PF_OK) goto out;
    const loader l = {folder, config, out, err};
    status = read_config(&l);
    if (status != PF_OK) {
        err_context(err, "%s/config.json", folder);
        goto out;
    }
    status = hf_read_json(folder, "generation_config.json", false, &generation, err);
    if (status == PF_OK && read_stop_ids(&l, generation) != PF_OK)
        status = err_context(err, "%s/generation_config.json", folder);
    if (status == PF_OK) status = read_weights(out, folder, err);
    if (status != PF_OK) goto out;
    mark_without_effect(out);
    status = check_vocab_size(out, err);
    if (status == PF_OK) status = hf_tokenizer_read(folder, out, err);
out:
    json_decref(config);
    json_decref(generation);
    return status;
}
