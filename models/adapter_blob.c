#include "models/adapter_blob.h"

#include "base/json.h"
#include "base/mem.h"
#include "models/safetensors.h"
#include "models/tensor.h"
#include "models/weights.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "preft-adapter-1";

/* The tensors of an item, by the last part of their names. */
enum { PART_A, PART_B, PART_BIAS, PART_COUNT };
static const char *const lora_parts[PART_COUNT] = {"A", "B", NULL};
static const char *const direft_parts[PART_COUNT] = {"W", "R", "b"};

const char *adapter_kind_name(bool direft, bool prefill_only)
{
    static const char *const names[2][2] = {{"lora", "lorap"}, {"direft", "direftp"}};
    return names[direft][prefill_only];
}

/* --- names ------------------------------------------------------------------------------------ */

typedef struct {
    char text[48];
} item_name;

/* "3.q_proj" or "3" */
static item_name name_item(bool direft, const adapter_item *item)
{
    item_name name;
    if (direft)
        snprintf(name.text, sizeof name.text, "%d", item->layer);
    else
        snprintf(name.text, sizeof name.text, "%d.%s", item->layer, linear_map_name(item->map));
    return name;
}

static item_name name_tensor(bool direft, const adapter_item *item, int part)
{
    item_name name;
    snprintf(name.text, sizeof name.text, "%.40s.%s", name_item(direft, item).text,
             direft ? direft_parts[part] : lora_parts[part]);
    return name;
}

/* The one tensor name of an item's part reads back as that item and part. */
static bool read_name(bool direft, const char *name, adapter_item *item, int *part)
{
    char *end = NULL;
    if (name[0] < '0' || name[0] > '9') return false;
    long layer = strtol(name, &end, 10);
    if (layer < 0 || layer >= MODEL_MAX_LAYERS || *end != '.') return false;
    *item = (adapter_item){.layer = (int32_t)layer};
    const char *last = strrchr(name, '.');
    for (linear_map m = 0; m < MAP_COUNT && !direft; m++) {
        size_t len = strlen(linear_map_name(m));
        if ((size_t)(last - end) == len + 1 && memcmp(end + 1, linear_map_name(m), len) == 0)
            item->map = m;
    }
    const char *const *parts = direft ? direft_parts : lora_parts;
    for (*part = 0; *part < PART_COUNT; (*part)++)
        if (parts[*part] && strcmp(last + 1, parts[*part]) == 0)
            return strcmp(name_tensor(direft, item, *part).text, name) == 0;
    return false;
}

static int compare_items(const void *a, const void *b)
{
    const adapter_item *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return ((int)x->map > (int)y->map) - ((int)x->map < (int)y->map);
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct {
    safetensors st;
    const model_config *config;
    adapter_view *out;
    pf_err *err;
} reader;

static pf_status read_metadata(reader *r)
{
    adapter_view *v = r->out;
    const char *format = safetensors_metadata(&r->st, "format");
    const char *kind = safetensors_metadata(&r->st, "kind");
    const char *position = safetensors_metadata(&r->st, "position");
    const char *digest = safetensors_metadata(&r->st, "base_digest");
    if (!format || strcmp(format, format_name) != 0)
        return err_set(r->err, PF_REFUSED, "adapter: its format is not \"%s\"", format_name);
    if (!kind || (strcmp(kind, "lora") != 0 && strcmp(kind, "direft") != 0))
        return err_set(r->err, PF_REFUSED, "adapter: \"kind\" must be lora or direft");
    if (!position || (strcmp(position, "prefill") != 0 && strcmp(position, "all") != 0))
        return err_set(r->err, PF_REFUSED, "adapter: \"position\" must be prefill or all");
    v->direft = strcmp(kind, "direft") == 0;
    v->prefill_only = strcmp(position, "prefill") == 0;
    if (!digest) return PF_OK;
    size_t n = 0;
    if (strlen(digest) != 64 ||
        sodium_hex2bin(v->base_digest, 32, digest, 64, NULL, &n, NULL) != 0 || n != 32)
        return err_set(r->err, PF_REFUSED, "adapter: \"base_digest\" must be 64 hex digits");
    v->has_base_digest = true;
    return PF_OK;
}

static pf_status read_tensor(reader *r, const safetensors_tensor *t, adapter_item *item)
{
    adapter_view *v = r->out;
    int part = 0;
    quoted name = quote_bytes(t->name, strlen(t->name));
    if (!read_name(v->direft, t->name, item, &part))
        return err_set(r->err, PF_REFUSED, "adapter: unknown tensor \"%s\"", name.text);
    kn_type type;
    if (!safetensors_kn_type(t->dtype, &type))
        return err_set(r->err, PF_REFUSED,
                       "adapter: tensor \"%s\" is %s; F32, F16 or BF16 is "
                       "needed",
                       name.text, t->dtype);
    if (t == r->st.tensors) v->type = type;
    if (type != v->type)
        return err_set(r->err, PF_REFUSED,
                       "adapter: tensor \"%s\" is of another type than the "
                       "others",
                       name.text);
    size_t element = kn_row_bytes(type, 1);
    if ((uintptr_t)t->data % element != 0)
        return err_set(r->err, PF_REFUSED, "adapter: tensor \"%s\" is not aligned", name.text);
    if (t->n_dims != (part == PART_BIAS ? 1 : 2))
        return err_set(r->err, PF_REFUSED, "adapter: tensor \"%s\" has the shape %s", name.text,
                       shape_words(t->dims, t->n_dims).text);
    bool rank_first = part == PART_A || v->direft;
    int64_t rank = t->dims[rank_first ? 0 : 1];
    if (rank < 1 || rank > ADAPTER_MAX_RANK)
        return err_set(r->err, PF_REFUSED, "adapter: tensor \"%s\" has rank %lld; the limit is %d",
                       name.text, (long long)rank, ADAPTER_MAX_RANK);
    if (r->config) {
        int64_t in = r->config->hidden, out = r->config->hidden;
        if (item->layer >= r->config->n_layers)
            return err_set(r->err, PF_REFUSED,
                           "adapter: tensor \"%s\" is for layer %d of a model "
                           "with %d layers",
                           name.text, item->layer, r->config->n_layers);
        if (!v->direft) linear_map_shape(r->config, item->map, &in, &out);
        int64_t wanted = rank_first ? in : out;
        int64_t found = part == PART_BIAS ? wanted : t->dims[rank_first ? 1 : 0];
        if (found != wanted)
            return err_set(r->err, PF_REFUSED,
                           "adapter: tensor \"%s\" has the shape %s; this "
                           "model needs %lld in place of %lld",
                           name.text, shape_words(t->dims, t->n_dims).text, (long long)wanted,
                           (long long)found);
    }
    if (!tensor_all_finite(type, t->data, t->bytes / element))
        return err_set(r->err, PF_REFUSED, "adapter: tensor \"%s\" has a value that is not finite",
                       name.text);
    item->rank = (int32_t)rank;
    const void **place[PART_COUNT] = {&item->a, &item->b, &item->bias};
    *place[part] = t->data;
    return PF_OK;
}

/* Joins the parts of one item: sorted, they are neighbours. */
static pf_status join_items(reader *r, const adapter_item *parts, size_t n)
{
    adapter_view *v = r->out;
    size_t per_item = v->direft ? 3 : 2;
    v->items = xcalloc(n + 1, sizeof *v->items);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || compare_items(&parts[i - 1], &parts[i]) != 0) {
            v->items[v->n_items] = parts[i];
            v->items[v->n_items++].scale = 1;
            continue;
        }
        adapter_item *item = &v->items[v->n_items - 1];
        if (item->rank != parts[i].rank)
            return err_set(r->err, PF_REFUSED,
                           "adapter: the tensors of \"%s\" have ranks %d and "
                           "%d",
                           name_item(v->direft, item).text, item->rank, parts[i].rank);
        if (parts[i].a) item->a = parts[i].a;
        if (parts[i].b) item->b = parts[i].b;
        if (parts[i].bias) item->bias = parts[i].bias;
    }
    for (size_t i = 0; i < v->n_items; i++) {
        const adapter_item *item = &v->items[i];
        const void *const have[PART_COUNT] = {item->a, item->b, item->bias};
        for (int p = 0; p < (int)per_item; p++)
            if (!have[p])
                return err_set(r->err, PF_REFUSED, "adapter: missing tensor \"%s\"",
                               name_tensor(v->direft, item, p).text);
    }
    return PF_OK;
}

static pf_status read_tensors(reader *r)
{
    pf_status status = PF_OK;
    adapter_item *parts = xcalloc(r->st.n + 1, sizeof *parts);
    if (r->st.n == 0) status = err_set(r->err, PF_REFUSED, "adapter: it has no tensors");
    for (size_t i = 0; i < r->st.n && status == PF_OK; i++)
        status = read_tensor(r, &r->st.tensors[i], &parts[i]);
    if (status != PF_OK) goto out;
    qsort(parts, r->st.n, sizeof *parts, compare_items);
    status = join_items(r, parts, r->st.n);
out:
    free(parts);
    return status;
}

static pf_status read_scales(reader *r)
{
    adapter_view *v = r->out;
    json_t *scales = NULL;
    pf_status status = PF_OK;
    const char *text = safetensors_metadata(&r->st, "scales");
    if (v->direft) return PF_OK;
    if (!text) return err_set(r->err, PF_REFUSED, "adapter: \"scales\" is missing");
    status = json_parse(text, strlen(text), "adapter: \"scales\"", &scales, r->err);
    if (status != PF_OK) return status;
    if (!json_is_object(scales) || json_object_size(scales) != v->n_items)
        status = err_set(r->err, PF_REFUSED,
                         "adapter: \"scales\" must have one entry for each of "
                         "the %zu maps",
                         v->n_items);
    for (size_t i = 0; i < v->n_items && status == PF_OK; i++) {
        item_name name = name_item(false, &v->items[i]);
        double scale = 0;
        if (!json_object_get(scales, name.text))
            status = err_set(r->err, PF_REFUSED, "adapter: \"scales\" lacks \"%s\"", name.text);
        else
            status = json_get_real(scales, name.text, -1e9, 1e9, &scale, r->err);
        v->items[i].scale = (float)scale;
    }
    json_decref(scales);
    return status;
}

pf_status adapter_view_open(const void *bytes, size_t len, const model_config *config,
                            adapter_view *out, pf_err *err)
{
    *out = (adapter_view){0};
    reader r = {.config = config, .out = out, .err = err};
    pf_status status = safetensors_parse(bytes, len, "adapter", &r.st, err);
    if (status == PF_OK) status = read_metadata(&r);
    if (status == PF_OK) status = read_tensors(&r);
    if (status == PF_OK) status = read_scales(&r);
    if (status == PF_OK) crypto_generichash(out->digest, 32, bytes, len, NULL, 0);
    safetensors_free(&r.st);
    if (status != PF_OK) adapter_view_close(out);
    return status;
}

void adapter_view_close(adapter_view *view)
{
    free(view->items);
    *view = (adapter_view){0};
}

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *build_metadata(const adapter_view *view, const adapter_item *items,
                              const char *base_name, const char *config_json)
{
    json_t *m = json_object();
    json_object_set_new(m, "format", json_string(format_name));
    json_object_set_new(m, "kind", json_string(view->direft ? "direft" : "lora"));
    json_object_set_new(m, "position", json_string(view->prefill_only ? "prefill" : "all"));
    if (view->has_base_digest) {
        char hex[65];
        sodium_bin2hex(hex, sizeof hex, view->base_digest, 32);
        json_object_set_new(m, "base_digest", json_string(hex));
    }
    if (base_name) json_object_set_new(m, "base_name", json_string(base_name));
    if (config_json) json_object_set_new(m, "config", json_string(config_json));
    if (!view->direft) {
        json_t *scales = json_object();
        buf text = {0};
        for (size_t i = 0; i < view->n_items; i++)
            json_object_set_new(scales, name_item(false, &items[i]).text,
                                json_real((double)items[i].scale));
        json_append(&text, scales);
        json_object_set_new(m, "scales", json_string(buf_str(&text)));
        buf_free(&text);
        json_decref(scales);
    }
    return m;
}

static safetensors_item describe(const adapter_view *view, const model_config *config,
                                 const adapter_item *item, int part, const char *name)
{
    int64_t in = config->hidden, out = config->hidden;
    if (!view->direft) linear_map_shape(config, item->map, &in, &out);
    bool rank_first = part == PART_A || view->direft;
    const void *const data[PART_COUNT] = {item->a, item->b, item->bias};
    safetensors_item t = {
        .name = name,
        .type = view->type,
        .n_dims = part == PART_BIAS ? 1 : 2,
        .dims = {rank_first ? item->rank : out, rank_first ? in : item->rank},
        .data = data[part],
    };
    return t;
}

static pf_status check_items(const adapter_view *view, const model_config *config,
                             const adapter_item *items, pf_err *err)
{
    if (view->n_items == 0) return err_set(err, PF_REFUSED, "adapter: it has no tensors");
    for (size_t i = 0; i < view->n_items; i++) {
        const adapter_item *item = &items[i];
        bool whole = item->a && item->b && (!view->direft || item->bias);
        if (item->layer < 0 || item->layer >= config->n_layers || item->rank < 1 ||
            item->rank > ADAPTER_MAX_RANK || !whole || !isfinite(item->scale))
            return err_set(err, PF_REFUSED,
                           "adapter: layer %d, rank %d does not fit the model "
                           "(%d layers, rank at most %d)",
                           item->layer, item->rank, config->n_layers, ADAPTER_MAX_RANK);
        if (i > 0 && compare_items(&items[i - 1], item) == 0)
            return err_set(err, PF_REFUSED, "adapter: \"%s\" is there twice",
                           name_item(view->direft, item).text);
    }
    return PF_OK;
}

pf_status adapter_blob_write(const adapter_view *view, const model_config *config,
                             const char *base_name, const char *config_json, buf *out, pf_err *err)
{
    const size_t parts = view->direft ? 3 : 2, n = view->n_items * parts;
    adapter_item *items = xcalloc(view->n_items + 1, sizeof *items);
    safetensors_item *tensors = xcalloc(n + 1, sizeof *tensors);
    item_name *names = xcalloc(n + 1, sizeof *names);
    if (view->n_items) {
        memcpy(items, view->items, view->n_items * sizeof *items);
        qsort(items, view->n_items, sizeof *items, compare_items);
    }
    pf_status status = check_items(view, config, items, err);
    if (status != PF_OK) goto out;
    for (size_t i = 0; i < n; i++) {
        const adapter_item *item = &items[i / parts];
        int part = (int)(i % parts);
        names[i] = name_tensor(view->direft, item, part);
        tensors[i] = describe(view, config, item, part, names[i].text);
    }
    json_t *metadata = build_metadata(view, items, base_name, config_json);
    safetensors_write(tensors, n, metadata, out);
    json_decref(metadata);
out:
    free(items);
    free(tensors);
    free(names);
    return status;
}
