#include "profiles/adapter_file.h"

#include "base/file.h"
#include "base/mem.h"
#include "models/safetensors.h"
#include "models/tensor.h"
#include "profiles/adapter_config.h"
#include "profiles/adapter_export.h"

#include <ctype.h>
#include <dirent.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char weights_name[] = "adapter_model.safetensors";

enum { PART_A, PART_B, PART_BIAS, PART_COUNT };

/* The tensors of one module (LoRA: A, B) or layer (DiReFT: W, R, b); NULL: not there. */
typedef struct {
    const safetensors_tensor *parts[PART_COUNT];
} slot;

typedef struct {
    const char *folder;
    char *path;        /* of the weights file */
    const model *base; /* or NULL */
    adapter_config config;
    int fd; /* of the weights file; -1: not open */
    safetensors st;
    int32_t n_layers; /* of the base, or as many as the tensors name */
    int32_t per_layer;
    slot *slots;                                     /* [n_layers * per_layer] */
    int64_t seen_in[MAP_COUNT], seen_out[MAP_COUNT]; /* without a base: the first module's */
    adapter_view view;
    void **owned; /* tensors made aligned, or F32 */
    size_t n_owned;
    buf *warnings;
    pf_err *err;
} loader;

static void loader_free(loader *l)
{
    for (size_t i = 0; i < l->n_owned; i++)
        free(l->owned[i]);
    free(l->owned);
    free(l->view.items);
    free(l->slots);
    free(l->path);
    adapter_config_free(&l->config);
    safetensors_free(&l->st);
    if (l->fd >= 0) close(l->fd);
}

/* --- the folder ------------------------------------------------------------------------------- */

static bool folder_has(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    bool found = file_exists(path);
    free(path);
    return found;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* A folder as pyreft and pyvene write it: pickles named after their place in the model. */
static bool is_pyvene_file(const char *name)
{
    return strncmp(name, "intkey_", 7) == 0;
}

typedef struct {
    size_t n_safetensors;
    bool pickle, pyvene;
    char other[256]; /* a .safetensors file that is not the one expected */
} folder_listing;

static folder_listing list_folder(const char *folder)
{
    folder_listing found = {0};
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        found.pyvene = found.pyvene || is_pyvene_file(name);
        found.pickle = found.pickle || ends_with(name, ".bin") || ends_with(name, ".pt") ||
                       ends_with(name, ".pth");
        if (!ends_with(name, ".safetensors")) continue;
        found.n_safetensors++;
        if (strcmp(name, weights_name) != 0) snprintf(found.other, sizeof found.other, "%s", name);
    }
    if (dir) closedir(dir);
    return found;
}

bool adapter_file_is_folder(const char *path)
{
    if (!file_is_folder(path)) return false;
    return folder_has(path, "adapter_config.json") || folder_has(path, weights_name) ||
           folder_has(path, "adapter_model.bin") || list_folder(path).pyvene;
}

/* Says what is wrong with a folder before anything in it is read. */
static pf_status check_folder(const char *folder, pf_err *err)
{
    if (!file_exists(folder))
        return err_set(err, PF_NOT_FOUND, "%s: there is no such folder", folder);
    if (!file_is_folder(folder))
        return err_set(err, PF_REFUSED,
                       "%s is not a folder; an adapter is a folder with "
                       "adapter_config.json and %s",
                       folder, weights_name);
    folder_listing found = list_folder(folder);
    bool has_weights = folder_has(folder, weights_name);
    if (found.pyvene && !has_weights)
        return err_set(err, PF_REFUSED,
                       "%s holds interventions as pyreft saves them: pickle files, "
                       "which are never opened; save them as adapter_config.json of peft_type "
                       "DIREFT with %s",
                       folder, weights_name);
    if (!folder_has(folder, "adapter_config.json"))
        return err_set(err, PF_REFUSED, "%s has no adapter_config.json: not an adapter's folder",
                       folder);
    if (!has_weights && found.pickle)
        return err_set(err, PF_REFUSED,
                       "%s has its weights as a pickle file, which is never "
                       "opened; save them as %s",
                       folder, weights_name);
    if (!has_weights) return err_set(err, PF_REFUSED, "%s has no %s", folder, weights_name);
    if (found.n_safetensors > 1)
        return err_set(err, PF_REFUSED, "%s has more than one weights file: %s and %s", folder,
                       weights_name, quote_bytes(found.other, strlen(found.other)).text);
    return PF_OK;
}

/* --- tensor names ----------------------------------------------------------------------------- */

typedef struct {
    int32_t layer;
    linear_map map;
    int part;
} tensor_role;

/* Takes prefix off the text. */
static bool skip(const char **text, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*text, prefix, len) != 0) return false;
    *text += len;
    return true;
}

/* "12." -> 12, without leading zeros. */
static bool skip_layer(const char **text, int32_t *layer)
{
    enum { MAX_DIGITS = 4 };
    int digits = 0;
    *layer = 0;
    if ((*text)[0] == '0' && isdigit((unsigned char)(*text)[1])) return false;
    while (digits < MAX_DIGITS && isdigit((unsigned char)**text)) {
        *layer = *layer * 10 + (*(*text)++ - '0');
        digits++;
    }
    return digits > 0 && skip(text, ".");
}

/* [base_model.model.]model.layers.N.MODULE.lora_A[.default].weight */
static bool read_lora_name(const char *name, tensor_role *out)
{
    static const char *const parts[] = {[PART_A] = ".lora_A", [PART_B] = ".lora_B"};
    skip(&name, "base_model.model.");
    if (!skip(&name, "model.layers.") || !skip_layer(&name, &out->layer)) return false;
    for (linear_map m = 0; m < MAP_COUNT; m++) {
        if (!skip(&name, linear_map_path(m))) continue;
        out->map = m;
        for (out->part = PART_A; out->part <= PART_B; out->part++) {
            const char *rest = name;
            if (!skip(&rest, parts[out->part])) continue;
            skip(&rest, ".default");
            return strcmp(rest, ".weight") == 0;
        }
        return false;
    }
    return false;
}

/* layers.N.rotate_layer.weight, layers.N.learned_source.weight and .bias */
static bool read_direft_name(const char *name, tensor_role *out)
{
    static const char *const parts[PART_COUNT] = {[PART_A] = "learned_source.weight",
                                                  [PART_B] = "rotate_layer.weight",
                                                  [PART_BIAS] = "learned_source.bias"};
    out->map = 0;
    if (!skip(&name, "layers.") || !skip_layer(&name, &out->layer)) return false;
    for (out->part = 0; out->part < PART_COUNT; out->part++)
        if (strcmp(name, parts[out->part]) == 0) return true;
    return false;
}

/* Names that say what an unsupported adapter is. */
static const char *explain_name(const char *name)
{
    static const struct {
        const char *part, *words;
    } kinds[] = {
        {"lora_magnitude_vector", "weight-decomposed adapters (DoRA) are not supported"},
        {"lora_embedding_", "adapted embeddings are not supported"},
        {"embed_tokens", "adapted embeddings are not supported"},
        {"lm_head", "an adapted output layer is not supported"},
        {"modules_to_save", "fully trained modules (modules_to_save) are not supported"},
        {"token_adapter", "trainable tokens are not supported"},
        {"parametrizations", "the rotation is there under its training-time name only; save it as "
                             "rotate_layer.weight"},
        {"hada_", "LoHa adapters are not supported"},
        {"lokr_", "LoKr adapters are not supported"},
        {"ia3_", "IA3 adapters are not supported"},
        {"lora_E", "AdaLoRA adapters are not supported"},
        {"vera_", "VeRA adapters are not supported"},
        {"prompt_embeddings", "prompt and prefix tuning are not supported"},
        {"learned_source", "tensors of DiReFT do not go with this peft_type or prefix"},
        {"rotate_layer", "tensors of DiReFT do not go with this peft_type or prefix"},
        {".bias", "trained biases are not supported"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strstr(name, kinds[i].part)) return kinds[i].words;
    return NULL;
}

static bool read_name(const loader *l, const char *name, tensor_role *out)
{
    return l->config.direft ? read_direft_name(name, out) : read_lora_name(name, out);
}

static pf_status refuse_unmatched(const loader *l, size_t matched, const char *example,
                                  bool out_of_range)
{
    const char *why = explain_name(example);
    char range[64] = "";
    if (out_of_range)
        snprintf(range, sizeof range, "; the base's last layer is %d", l->n_layers - 1);
    return err_set(l->err, PF_REFUSED,
                   "%s: %zu tensor names match the base model and %zu do not, for example "
                   "\"%s\"%s%s%s",
                   l->path, matched, l->st.n - matched, quote_bytes(example, strlen(example)).text,
                   range, why ? ": " : "", why ? why : "");
}

/* Puts every tensor into its slot. */
static pf_status sort_tensors(loader *l)
{
    size_t matched = 0;
    const char *unmatched = NULL;
    bool out_of_range = false;
    tensor_role role;
    if (l->st.n == 0) return err_set(l->err, PF_REFUSED, "%s has no tensors", l->path);
    l->n_layers = l->base ? model_get_config(l->base)->n_layers : 0;
    for (size_t i = 0; i < l->st.n && !l->base; i++)
        if (read_name(l, l->st.tensors[i].name, &role) && role.layer >= l->n_layers)
            l->n_layers = role.layer + 1;
    l->per_layer = l->config.direft ? 1 : MAP_COUNT;
    l->slots = xcalloc((size_t)l->n_layers * (size_t)l->per_layer + 1, sizeof *l->slots);
    for (size_t i = 0; i < l->st.n; i++) {
        const safetensors_tensor *t = &l->st.tensors[i];
        bool known = read_name(l, t->name, &role);
        if (!known || role.layer >= l->n_layers) {
            if (!unmatched) {
                unmatched = t->name;
                out_of_range = known;
            }
            continue;
        }
        matched++;
        slot *s = &l->slots[role.layer * l->per_layer + (int32_t)role.map];
        if (s->parts[role.part])
            return err_set(
                l->err, PF_REFUSED,
                "%s: \"%s\" and \"%s\" are the same tensor in two "
                "spellings",
                l->path,
                quote_bytes(s->parts[role.part]->name, strlen(s->parts[role.part]->name)).text,
                quote_bytes(t->name, strlen(t->name)).text);
        s->parts[role.part] = t;
    }
    return unmatched ? refuse_unmatched(l, matched, unmatched, out_of_range) : PF_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

typedef struct {
    char text[128];
} role_text;

/* The usual spelling of a tensor's name, for one that is missing. */
static role_text expected_name(const loader *l, int32_t layer, linear_map map, int part)
{
    static const char *const direft[PART_COUNT] = {"learned_source.weight", "rotate_layer.weight",
                                                   "learned_source.bias"};
    role_text name;
    if (l->config.direft)
        snprintf(name.text, sizeof name.text, "layers.%d.%s", layer, direft[part]);
    else
        snprintf(name.text, sizeof name.text, "base_model.model.%s.lora_%c.weight",
                 module_name_of(layer, map).text, part == PART_A ? 'A' : 'B');
    return name;
}

static pf_status refuse_shape(const loader *l, const safetensors_tensor *t, int32_t layer,
                              const int64_t *wanted, int n_dims)
{
    return err_set(l->err, PF_REFUSED,
                   "%s: tensor \"%s\" (layer %d) has the shape %s; expected is %s", l->path,
                   quote_bytes(t->name, strlen(t->name)).text, layer,
                   shape_words(t->dims, t->n_dims).text, shape_words(wanted, n_dims).text);
}

/* Input and output width of a module: the base model's, or without one what its first tensors
 * say (then only agreement is checked). */
static void module_widths(loader *l, const slot *s, linear_map map, int64_t *in, int64_t *out)
{
    if (l->config.direft) {
        *in = *out = l->config.hidden;
    } else if (l->base) {
        linear_map_shape(model_get_config(l->base), map, in, out);
    } else {
        const safetensors_tensor *a = s->parts[PART_A], *b = s->parts[PART_B];
        if (!l->seen_in[map] && a->n_dims == 2 && b->n_dims == 2) {
            l->seen_in[map] = a->dims[1];
            l->seen_out[map] = b->dims[0];
        }
        *in = l->seen_in[map];
        *out = l->seen_out[map];
    }
}

static pf_status check_shapes(loader *l, const slot *s, int32_t layer, linear_map map, int32_t rank)
{
    int64_t in, out;
    module_widths(l, s, map, &in, &out);
    const int64_t lora[2][2] = {{rank, in}, {out, rank}};
    const int64_t direft[PART_COUNT][2] = {{rank, in}, {rank, in}, {rank, 0}};
    for (int part = 0; part < (l->config.direft ? 3 : 2); part++) {
        const safetensors_tensor *t = s->parts[part];
        const int64_t *wanted = l->config.direft ? direft[part] : lora[part];
        int n_dims = part == PART_BIAS ? 1 : 2;
        if (t->n_dims != n_dims || memcmp(t->dims, wanted, (size_t)n_dims * sizeof *wanted) != 0 ||
            t->bytes == 0)
            return refuse_shape(l, t, layer, wanted, n_dims);
    }
    return PF_OK;
}

/* The one type of all tensors, or F32 where they differ. */
static pf_status choose_type(loader *l)
{
    for (size_t i = 0; i < l->st.n; i++) {
        const safetensors_tensor *t = &l->st.tensors[i];
        kn_type type;
        if (!safetensors_kn_type(t->dtype, &type))
            return err_set(l->err, PF_REFUSED,
                           "%s: tensor \"%s\" is stored as %s; F32, F16 and BF16 are supported",
                           l->path, quote_bytes(t->name, strlen(t->name)).text, t->dtype);
        if (i == 0) l->view.type = type;
        if (type != l->view.type) l->view.type = KN_F32;
    }
    return PF_OK;
}

/* A tensor's elements, aligned and of the view's type. */
static pf_status take_data(loader *l, const safetensors_tensor *t, const void **out)
{
    kn_type type = KN_F32;
    safetensors_kn_type(t->dtype, &type);
    size_t n = t->bytes / kn_row_bytes(type, 1);
    void *copy = xmalloc(n * kn_row_bytes(l->view.type, 1) + 1);
    l->owned = xrealloc_array(l->owned, l->n_owned + 1, sizeof *l->owned);
    l->owned[l->n_owned++] = copy;
    void *stored = type == l->view.type ? copy : xmalloc(t->bytes + 1);
    pf_status status = file_read_at(l->fd, l->path, t->offset, stored, t->bytes, l->err);
    if (stored != copy) {
        if (status == PF_OK) kn_dequantize(type, stored, copy, (int64_t)n);
        free(stored);
    }
    if (status != PF_OK) return status;
    if (!tensor_all_finite(l->view.type, copy, n))
        return err_set(l->err, PF_REFUSED, "%s: tensor \"%s\" has a value that is not finite",
                       l->path, quote_bytes(t->name, strlen(t->name)).text);
    *out = copy;
    return PF_OK;
}

static pf_status add_item(loader *l, const slot *s, int32_t layer, linear_map map)
{
    adapter_item *item = &l->view.items[l->view.n_items];
    *item = (adapter_item){.layer = layer, .map = map};
    pf_status status =
        adapter_config_module(&l->config, layer, map, &item->rank, &item->scale, l->err);
    if (status == PF_OK) status = check_shapes(l, s, layer, map, item->rank);
    if (status == PF_OK) status = take_data(l, s->parts[PART_A], &item->a);
    if (status == PF_OK) status = take_data(l, s->parts[PART_B], &item->b);
    if (status == PF_OK && l->config.direft)
        status = take_data(l, s->parts[PART_BIAS], &item->bias);
    if (status == PF_OK) l->view.n_items++;
    return status;
}

/* One module: what the configuration asks for and what the file holds must agree. */
static pf_status check_slot(loader *l, int32_t layer, linear_map map)
{
    const slot *s = &l->slots[layer * l->per_layer + (int32_t)map];
    const int n_parts = l->config.direft ? 3 : 2;
    const safetensors_tensor *present = NULL;
    bool wanted = false;
    for (int part = n_parts - 1; part >= 0; part--)
        if (s->parts[part]) present = s->parts[part];
    pf_status status = adapter_config_adapts(&l->config, layer, map, &wanted, l->err);
    if (status != PF_OK) return status;
    if (!wanted && present)
        return err_set(l->err, PF_REFUSED,
                       "%s: tensor \"%s\" belongs to a module that "
                       "adapter_config.json does not name",
                       l->path, quote_bytes(present->name, strlen(present->name)).text);
    for (int part = 0; part < n_parts && wanted; part++)
        if (!s->parts[part])
            return err_set(l->err, PF_REFUSED, "%s: missing tensor \"%s\"", l->path,
                           expected_name(l, layer, map, part).text);
    return wanted ? add_item(l, s, layer, map) : PF_OK;
}

/* Layers that the configuration names must exist. */
static pf_status check_layers(const loader *l)
{
    const adapter_config *c = &l->config;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i] >= l->n_layers)
            return err_set(
                l->err, PF_REFUSED, "%s names layer %d, but %s %d layers, numbered from 0", c->path,
                c->layers[i], l->base ? "the base has" : "there are tensors of", l->n_layers);
    if (c->direft && l->base && c->hidden != model_get_config(l->base)->hidden)
        return err_set(l->err, PF_REFUSED,
                       "%s: \"hidden_size\" is %lld, but the base model's width is %d", c->path,
                       (long long)c->hidden, model_get_config(l->base)->hidden);
    return PF_OK;
}

static pf_status read_tensors(loader *l)
{
    uint64_t size = 0;
    pf_status status = file_open_regular(l->path, &l->fd, &size, l->err);
    if (status == PF_OK) status = safetensors_read_header(l->fd, size, l->path, &l->st, l->err);
    if (status == PF_OK) status = sort_tensors(l);
    if (status == PF_OK) status = check_layers(l);
    if (status == PF_OK) status = choose_type(l);
    if (status != PF_OK) return status;
    size_t n = (size_t)l->n_layers * (size_t)l->per_layer;
    l->view.items = xcalloc(n + 1, sizeof *l->view.items);
    for (size_t i = 0; i < n && status == PF_OK; i++)
        status = check_slot(l, (int32_t)(i / (size_t)l->per_layer),
                            (linear_map)(i % (size_t)l->per_layer));
    if (status == PF_OK && l->view.n_items == 0)
        status = err_set(l->err, PF_REFUSED, "%s adapts no module of the base model", l->path);
    return status;
}

/* --- the base model --------------------------------------------------------------------------- */

static bool names_agree(const char *recorded, const model *base)
{
    char wanted[256], name[512], path[4096];
    const char *called = model_name(base), *file = model_path(base);
    recorded = path_base(recorded);
    model_name_squeeze(recorded, strlen(recorded), wanted, sizeof wanted);
    model_name_squeeze(called, strlen(called), name, sizeof name);
    model_name_squeeze(file, strlen(file), path, sizeof path);
    return strstr(name, wanted) || strstr(path, wanted);
}

static pf_status check_base(const loader *l, const adapter_import_options *options)
{
    const adapter_config *c = &l->config;
    if (!l->base) return PF_OK;
    if (c->has_base_digest && memcmp(c->base_digest, model_digest(l->base), 32) != 0 &&
        !options->force_base) {
        char recorded[17], actual[17];
        sodium_bin2hex(recorded, sizeof recorded, c->base_digest, 8);
        sodium_bin2hex(actual, sizeof actual, model_digest(l->base), 8);
        return err_set(l->err, PF_REFUSED,
                       "%s: the adapter was made for another base model (%s, digest %s...; this "
                       "one's is %s...); its answers would be wrong. Force the import if you know "
                       "that it fits",
                       l->folder,
                       c->base_name ? quote_bytes(c->base_name, strlen(c->base_name)).text
                                    : "no name recorded",
                       recorded, actual);
    }
    if (!c->has_base_digest && c->base_name && l->warnings && !names_agree(c->base_name, l->base))
        buf_printf(
            l->warnings, "%s: the adapter names \"%s\" as its base; the model here is \"%s\"\n",
            l->folder, quote_bytes(c->base_name, strlen(c->base_name)).text, model_name(l->base));
    return PF_OK;
}

static pf_status load(loader *l, const adapter_import_options *options)
{
    pf_status status = check_folder(l->folder, l->err);
    if (status == PF_OK) status = adapter_config_read(l->folder, &l->config, l->warnings, l->err);
    if (status == PF_OK) status = read_tensors(l);
    if (status == PF_OK) status = check_base(l, options);
    if (status != PF_OK) return status;
    l->view.direft = l->config.direft;
    l->view.prefill_only = options->position == ADAPTER_POSITION_FILE
                               ? l->config.prefill_only
                               : options->position == ADAPTER_POSITION_PREFILL;
    l->view.has_base_digest = l->base || l->config.has_base_digest;
    if (l->view.has_base_digest)
        memcpy(l->view.base_digest, l->base ? model_digest(l->base) : l->config.base_digest, 32);
    return PF_OK;
}

static loader loader_for(const char *folder, const model *base, buf *warnings, pf_err *err)
{
    return (loader){.folder = folder,
                    .path = path_join(folder, weights_name),
                    .base = base,
                    .fd = -1,
                    .warnings = warnings,
                    .err = err};
}

/* --- public ----------------------------------------------------------------------------------- */

static void summarize(const loader *l, adapter_summary *out)
{
    const adapter_view *v = &l->view;
    out->direft = v->direft;
    out->prefill_only = v->prefill_only;
    out->type = v->type;
    out->n_items = v->n_items;
    out->has_base_digest = l->config.has_base_digest;
    memcpy(out->base_digest, l->config.base_digest, 32);
    if (l->config.base_name)
        snprintf(out->base_name, sizeof out->base_name, "%s",
                 quote_bytes(l->config.base_name, strlen(l->config.base_name)).text);
    out->min_rank = INT32_MAX;
    int32_t last = -1;
    for (size_t i = 0; i < v->n_items; i++) {
        const adapter_item *item = &v->items[i];
        const slot *s = &l->slots[item->layer * l->per_layer + (int32_t)item->map];
        if (item->rank < out->min_rank) out->min_rank = item->rank;
        if (item->rank > out->max_rank) out->max_rank = item->rank;
        out->n_layers += item->layer != last;
        last = item->layer;
        for (int part = 0; part < PART_COUNT; part++) {
            int64_t n = s->parts[part] ? 1 : 0;
            for (int d = 0; s->parts[part] && d < s->parts[part]->n_dims; d++)
                n *= s->parts[part]->dims[d];
            out->parameters += n;
        }
    }
}

pf_status adapter_file_inspect(const char *folder, const model *base,
                               const adapter_import_options *options, adapter_summary *out,
                               buf *warnings, pf_err *err)
{
    static const adapter_import_options defaults = {0};
    loader l = loader_for(folder, base, warnings, err);
    *out = (adapter_summary){0};
    pf_status status = load(&l, options ? options : &defaults);
    if (status == PF_OK) summarize(&l, out);
    loader_free(&l);
    return status;
}

pf_status adapter_file_import(const char *folder, const model *base,
                              const adapter_import_options *options, buf *blob, buf *warnings,
                              pf_err *err)
{
    static const adapter_import_options defaults = {0};
    loader l = loader_for(folder, base, warnings, err);
    char *config_text = NULL;
    PF_ASSERT(base);
    pf_status status = load(&l, options ? options : &defaults);
    if (status == PF_OK) {
        const model_config *shape = model_get_config(base);
        config_text = adapter_config_canonical(l.config.root, &l.view, shape);
        status = adapter_blob_write(&l.view, shape, l.config.base_name, config_text, blob, err);
    }
    free(config_text);
    loader_free(&l);
    return status;
}
