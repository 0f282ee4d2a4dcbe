#include "models/weights.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of a role in the two schemes. Layer roles get "blk.N." or "model.layers.N." in front. */
typedef struct {
    const char *gguf, *hf;
} role_name;

static const role_name embedding_name = {"token_embd.weight", "model.embed_tokens.weight"};
static const role_name output_norm_name = {"output_norm.weight", "model.norm.weight"};
static const role_name output_name = {"output.weight", "lm_head.weight"};
static const role_name attn_norm_name = {"attn_norm.weight", "input_layernorm.weight"};
static const role_name ffn_norm_name = {"ffn_norm.weight", "post_attention_layernorm.weight"};
static const role_name q_norm_name = {"attn_q_norm.weight", "self_attn.q_norm.weight"};
static const role_name k_norm_name = {"attn_k_norm.weight", "self_attn.k_norm.weight"};
static const role_name map_names[MAP_COUNT] = {
    [MAP_Q] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [MAP_K] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [MAP_V] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [MAP_O] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [MAP_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [MAP_UP] = {"ffn_up.weight", "mlp.up_proj.weight"},
    [MAP_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight"},
};
static const role_name bias_names[] = {
    [MAP_Q] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [MAP_K] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [MAP_V] = {"attn_v.bias", "self_attn.v_proj.bias"},
};

/* What an architecture has beside the common parts. */
static const struct {
    bool qkv_bias, qk_norm, rotated_pairs; /* pairs: in GGUF files, rows of q and k */
} traits[ARCH_COUNT] = {
    [ARCH_LLAMA] = {.rotated_pairs = true},
    [ARCH_QWEN2] = {.qkv_bias = true},
    [ARCH_QWEN3] = {.qk_norm = true},
};

typedef struct {
    model_source *source;
    weight_set *set;
    pf_err *err;
} builder;

static void *keep(weight_set *set, void *memory)
{
    if (set->n_owned == set->cap_owned) {
        set->cap_owned = set->cap_owned ? set->cap_owned * 2 : 64;
        set->owned = xrealloc_array(set->owned, set->cap_owned, sizeof *set->owned);
    }
    set->owned[set->n_owned++] = memory;
    return memory;
}

/* layer < 0: a role outside the layers. */
static pf_status find_tensor(const builder *b, int layer, role_name role, const tensor **out)
{
    char name[128];
    bool is_gguf = b->source->names == NAMES_GGUF;
    const char *part = is_gguf ? role.gguf : role.hf;
    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "%s.%d.%s", is_gguf ? "blk" : "model.layers", layer, part);
    *out = tensor_table_find(&b->source->tensors, name);
    if (!*out)
        return err_set(b->err, PF_REFUSED, "%s: missing tensor \"%s\"", b->source->path, name);
    b->source->used[*out - b->source->tensors.items] = true;
    return PF_OK;
}

static pf_status check_shape(const builder *b, const tensor *t, const int64_t *dims, int n_dims)
{
    if (t->n_dims == n_dims && memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims) == 0)
        return PF_OK;
    return err_set(b->err, PF_REFUSED,
                   "%s: tensor \"%s\" has the shape %s; the configuration asks for %s",
                   b->source->path, quote_bytes(t->name, t->name_len).text,
                   shape_words(t->dims, t->n_dims).text, shape_words(dims, n_dims).text);
}

/* A safetensors header of odd length leaves the data misaligned; kernels read whole elements. */
static const void *aligned_data(const builder *b, const tensor *t)
{
    uintptr_t element = t->type == KN_F32 ? sizeof(float) : sizeof(uint16_t);
    if ((uintptr_t)t->data % element == 0) return t->data;
    void *copy = keep(b->set, xmalloc(t->bytes));
    memcpy(copy, t->data, t->bytes);
    return copy;
}

static pf_status take_matrix(const builder *b, int layer, role_name role, int64_t rows,
                             int64_t cols, kn_matrix *out)
{
    const tensor *t = NULL;
    const int64_t dims[2] = {rows, cols};
    pf_status status = find_tensor(b, layer, role, &t);
    if (status == PF_OK) status = check_shape(b, t, dims, 2);
    if (status != PF_OK) return status;
    *out = (kn_matrix){.type = t->type, .rows = rows, .cols = cols, .data = aligned_data(b, t)};
    return PF_OK;
}

static pf_status take_vector(const builder *b, int layer, role_name role, int64_t n,
                             const float **out)
{
    const tensor *t = NULL;
    pf_status status = find_tensor(b, layer, role, &t);
    if (status == PF_OK) status = check_shape(b, t, &n, 1);
    if (status != PF_OK) return status;
    const kn_type_info *info = kn_type_get(t->type);
    quoted name = quote_bytes(t->name, t->name_len);
    if (info->quantized)
        return err_set(b->err, PF_REFUSED,
                       "%s: tensor \"%s\" is stored as %s; norms and biases must be F32, F16 or "
                       "BF16",
                       b->source->path, name.text, info->name);
    float *vector = keep(b->set, xcalloc((size_t)n, sizeof *vector));
    kn_dequantize(t->type, aligned_data(b, t), vector, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(vector[i]))
            return err_set(b->err, PF_REFUSED,
                           "%s: tensor \"%s\" has a value that is not finite "
                           "at index %lld",
                           b->source->path, name.text, (long long)i);
    *out = vector;
    return PF_OK;
}

static pf_status build_maps(const builder *b, int index, model_layer *layer)
{
    const model_config *c = &b->source->config;
    kn_matrix *const maps[MAP_COUNT] = {
        [MAP_Q] = &layer->q,       [MAP_K] = &layer->k,       [MAP_V] = &layer->v,
        [MAP_O] = &layer->o,       [MAP_GATE] = &layer->gate, [MAP_UP] = &layer->up,
        [MAP_DOWN] = &layer->down,
    };
    for (linear_map m = 0; m < MAP_COUNT; m++) {
        int64_t in, out;
        linear_map_shape(c, m, &in, &out);
        pf_status status = take_matrix(b, index, map_names[m], out, in, maps[m]);
        if (status != PF_OK) return status;
    }
    if (b->source->names == NAMES_GGUF && traits[c->arch].rotated_pairs) {
        layer->q.order = layer->k.order = KN_ROWS_ROPE_PAIRS;
        layer->q.head_rows = layer->k.head_rows = c->head_dim;
    }
    return PF_OK;
}

static pf_status build_layer(const builder *b, int index, model_layer *layer)
{
    const model_config *c = &b->source->config;
    pf_status status = take_vector(b, index, attn_norm_name, c->hidden, &layer->attn_norm);
    if (status == PF_OK) status = build_maps(b, index, layer);
    if (status == PF_OK) status = take_vector(b, index, ffn_norm_name, c->hidden, &layer->ffn_norm);
    if (status == PF_OK && traits[c->arch].qkv_bias) {
        const float **biases[] = {&layer->q_bias, &layer->k_bias, &layer->v_bias};
        for (int m = MAP_Q; m <= MAP_V && status == PF_OK; m++) {
            int64_t in, out;
            linear_map_shape(c, (linear_map)m, &in, &out);
            status = take_vector(b, index, bias_names[m], out, biases[m]);
        }
    }
    if (status == PF_OK && traits[c->arch].qk_norm) {
        status = take_vector(b, index, q_norm_name, c->head_dim, &layer->q_norm);
        if (status == PF_OK)
            status = take_vector(b, index, k_norm_name, c->head_dim, &layer->k_norm);
    }
    return status;
}

static pf_status check_all_used(const builder *b)
{
    const model_source *s = b->source;
    for (size_t i = 0; i < s->tensors.n; i++)
        if (!s->used[i])
            return err_set(b->err, PF_REFUSED,
                           "%s: tensor \"%s\" is not part of a %s model with %d layers; leaving it "
                           "out would change results",
                           s->path,
                           quote_bytes(s->tensors.items[i].name, s->tensors.items[i].name_len).text,
                           architecture_name(s->config.arch), s->config.n_layers);
    return PF_OK;
}

pf_status weight_set_build(model_source *source, weight_set *out, pf_err *err)
{
    const builder b = {source, out, err};
    const model_config *c = &source->config;
    model_weights *w = &out->weights;
    *out = (weight_set){0};
    pf_status status = take_matrix(&b, -1, embedding_name, c->vocab, c->hidden, &w->embedding);
    if (status != PF_OK) return status;
    w->tied = source->tied;
    w->output = w->embedding;
    if (!w->tied) status = take_matrix(&b, -1, output_name, c->vocab, c->hidden, &w->output);
    if (status == PF_OK) status = take_vector(&b, -1, output_norm_name, c->hidden, &w->output_norm);
    if (status != PF_OK) return status;

    /* A layer has nine tensors or more: a count beyond that is false before anything is sized by
     * it. The loop below would name the first missing tensor all the same. */
    size_t possible = source->tensors.n / 9 + 1;
    size_t n_layers = (size_t)c->n_layers < possible ? (size_t)c->n_layers : possible;
    out->layers = xcalloc(n_layers, sizeof *out->layers);
    w->layers = out->layers;
    for (size_t i = 0; i < n_layers && status == PF_OK; i++)
        status = build_layer(&b, (int)i, &out->layers[i]);
    return status == PF_OK ? check_all_used(&b) : status;
}

void weight_set_free(weight_set *set)
{
    for (size_t i = 0; i < set->n_owned; i++)
        free(set->owned[i]);
    free(set->owned);
    free(set->layers);
    *set = (weight_set){0};
}
