#include "commands/describe.h"

#include "base/buf.h"
#include "commands/print.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    int64_t parameters, bytes;
    int64_t by_type[KN_TYPE_COUNT]; /* matrices of each type */
} weight_count;

static void count_matrix(weight_count *count, const kn_matrix *m)
{
    if (!m->data) return;
    count->parameters += m->rows * m->cols;
    count->bytes += m->rows * (int64_t)kn_row_bytes(m->type, m->cols);
    count->by_type[m->type]++;
}

static weight_count count_weights(const model *m)
{
    const model_weights *w = model_get_weights(m);
    const model_config *c = model_get_config(m);
    weight_count count = {0};
    count_matrix(&count, &w->embedding);
    if (!w->tied) count_matrix(&count, &w->output);
    for (int32_t i = 0; i < c->n_layers; i++) {
        const model_layer *l = &w->layers[i];
        const kn_matrix *const maps[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof maps / sizeof maps[0]; k++)
            count_matrix(&count, maps[k]);
    }
    return count;
}

static void set_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

/* Texts come from files: what is not UTF-8 becomes null. */
static void set_text(json_t *o, const char *key, const char *text)
{
    json_t *value = json_string(text);
    json_object_set_new(o, key, value ? value : json_null());
}

static void set_digest(json_t *o, const char *key, const unsigned char digest[32])
{
    char hex[65];
    sodium_bin2hex(hex, sizeof hex, digest, 32);
    set_text(o, key, hex);
}

json_t *describe_model(const model *m)
{
    const model_config *c = model_get_config(m);
    const weight_count count = count_weights(m);
    const chat_template *template = NULL;
    pf_err err = {0};
    json_t *o = json_object(), *types = json_object(), *stops = json_array();
    set_text(o, "kind", "model");
    set_text(o, "name", model_name(m));
    set_text(o, "architecture", architecture_name(c->arch));
    set_int(o, "layers", c->n_layers);
    set_int(o, "width", c->hidden);
    set_int(o, "heads", c->n_heads);
    set_int(o, "kv_heads", c->n_kv_heads);
    set_int(o, "head_size", c->head_dim);
    set_int(o, "feed_forward", c->ff);
    set_int(o, "vocabulary", c->vocab);
    set_int(o, "context", c->context);
    set_int(o, "parameters", count.parameters);
    set_int(o, "weight_bytes", count.bytes);
    for (kn_type t = 0; t < KN_TYPE_COUNT; t++)
        if (count.by_type[t]) set_int(types, kn_type_get(t)->name, count.by_type[t]);
    json_object_set_new(o, "matrix_types", types);
    json_object_set_new(o, "tied_output", json_boolean(model_get_weights(m)->tied));
    json_object_set_new(o, "adds_start_token",
                        json_boolean(tokenizer_adds_bos(model_get_tokenizer(m))));
    for (int32_t i = 0; i < c->n_stop_ids; i++)
        json_array_append_new(stops, json_integer(c->stop_ids[i]));
    json_object_set_new(o, "stop_ids", stops);
    if (model_template(m, &template, &err) == PF_OK)
        set_text(o, "chat_template", chat_template_name(template));
    else
        set_text(o, "chat_template_problem", err.text);
    set_digest(o, "digest", model_digest(m));
    return o;
}

json_t *describe_adapter(const adapter_summary *a)
{
    json_t *o = json_object();
    set_text(o, "kind", "adapter");
    set_text(o, "method", adapter_kind_name(a->direft, a->prefill_only));
    set_text(o, "position", a->prefill_only ? "prefill" : "all");
    set_int(o, a->direft ? "adapted_layers" : "adapted_maps", (int64_t)a->n_items);
    if (!a->direft) set_int(o, "layers", a->n_layers);
    set_int(o, "rank", a->max_rank);
    if (a->min_rank != a->max_rank) set_int(o, "smallest_rank", a->min_rank);
    set_int(o, "parameters", a->parameters);
    set_text(o, "type", kn_type_get(a->type)->name);
    if (a->base_name[0]) set_text(o, "base_name", a->base_name);
    if (a->has_base_digest) set_digest(o, "base_digest", a->base_digest);
    return o;
}

json_t *describe_safetensors(const safetensors *st)
{
    int64_t bytes = 0;
    json_t *o = json_object();
    for (size_t i = 0; i < st->n; i++)
        bytes += (int64_t)st->tensors[i].bytes;
    set_text(o, "kind", "safetensors");
    set_int(o, "tensors", (int64_t)st->n);
    set_int(o, "data_bytes", bytes);
    return o;
}

void describe_print(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        buf text = {0};
        if (json_is_null(value)) continue;
        if (json_is_string(value))
            buf_puts(&text, json_string_value(value));
        else
            json_append(&text, value);
        printf("  %s: ", key);
        print_plain(buf_str(&text));
        putchar('\n');
        buf_free(&text);
    }
}
