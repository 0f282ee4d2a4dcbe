#include "engine/weights.h"

#include "base/mem.h"

#include <stdlib.h>

static pf_status pack_matrix(packed_model *p, const kn_matrix *m, const char *what, int layer,
                             kn_weight **out, pf_err *err)
{
    *out = p->be->ops->weight_create(p->be, m);
    if (!*out) {
        return err_set(err, PF_NO_MEMORY, "packing the model's %s matrix (layer %d) failed: %s",
                       what, layer, kn_backend_error(p->be));
    }
    p->bytes += p->be->ops->weight_bytes(*out);
    return PF_OK;
}

/* Absent vectors stay NULL. */
static pf_status pack_vector(packed_model *p, const float *host, int64_t n, float **out,
                             pf_err *err)
{
    if (!host) return PF_OK;
    size_t bytes = (size_t)n * sizeof(float);
    *out = p->be->ops->buffer_alloc(p->be, bytes);
    if (!*out) {
        return err_set(err, PF_NO_MEMORY, "no room for %zu bytes of the model's vectors: %s", bytes,
                       kn_backend_error(p->be));
    }
    p->be->ops->upload(p->be, *out, host, bytes);
    p->bytes += bytes;
    return PF_OK;
}

static pf_status pack_vectors(packed_model *p, const model_layer *from, packed_layer *to,
                              pf_err *err)
{
    const model_config *c = p->config;
    const int64_t q_rows = (int64_t)c->n_heads * c->head_dim;
    const int64_t kv_rows = (int64_t)c->n_kv_heads * c->head_dim;
    const struct {
        const float *host;
        int64_t n;
        float **out;
    } vectors[] = {
        {from->attn_norm, c->hidden, &to->attn_norm}, {from->ffn_norm, c->hidden, &to->ffn_norm},
        {from->q_bias, q_rows, &to->q_bias},          {from->k_bias, kv_rows, &to->k_bias},
        {from->v_bias, kv_rows, &to->v_bias},         {from->q_norm, c->head_dim, &to->q_norm},
        {from->k_norm, c->head_dim, &to->k_norm},
    };
    pf_status status = PF_OK;

    for (size_t i = 0; status == PF_OK && i < sizeof vectors / sizeof vectors[0]; i++)
        status = pack_vector(p, vectors[i].host, vectors[i].n, vectors[i].out, err);
    return status;
}

static pf_status pack_layer(packed_model *p, const model_layer *from, int layer, pf_err *err)
{
    packed_layer *to = &p->layers[layer];
    const kn_matrix *maps[MAP_COUNT] = {
        [MAP_Q] = &from->q,       [MAP_K] = &from->k,       [MAP_V] = &from->v,
        [MAP_O] = &from->o,       [MAP_GATE] = &from->gate, [MAP_UP] = &from->up,
        [MAP_DOWN] = &from->down,
    };
    pf_status status = PF_OK;

    for (int map = 0; status == PF_OK && map < MAP_COUNT; map++)
        status = pack_matrix(p, maps[map], linear_map_name(map), layer, &to->map[map], err);
    return status == PF_OK ? pack_vectors(p, from, to, err) : status;
}

pf_status packed_model_create(const model *m, kn_backend *be, packed_model **out, pf_err *err)
{
    const model_config *config = model_get_config(m);
    const model_weights *w = model_get_weights(m);
    packed_model *p = xcalloc(1, sizeof *p);

    p->be = be;
    p->config = config;
    p->layers = xcalloc((size_t)config->n_layers, sizeof *p->layers);
    pf_status status = pack_matrix(p, &w->embedding, "embedding", -1, &p->embedding, err);
    if (status == PF_OK && w->tied) p->output = p->embedding;
    if (status == PF_OK && !w->tied)
        status = pack_matrix(p, &w->output, "output", -1, &p->output, err);
    if (status == PF_OK)
        status = pack_vector(p, w->output_norm, config->hidden, &p->output_norm, err);
    for (int layer = 0; status == PF_OK && layer < config->n_layers; layer++) {
        status = pack_layer(p, &w->layers[layer], layer, err);
        /* Packed and mapped forms of one layer at a time, never of the whole model. */
        model_release_pages(m);
    }
    if (status == PF_OK) {
        *out = p;
    } else {
        packed_model_free(p);
    }
    return status;
}

static void free_weight(packed_model *p, kn_weight *w)
{
    if (w) p->be->ops->weight_free(p->be, w);
}

static void free_vector(packed_model *p, float *vector)
{
    if (vector) p->be->ops->buffer_free(p->be, vector);
}

static void free_layer(packed_model *p, packed_layer *l)
{
    for (int map = 0; map < MAP_COUNT; map++)
        free_weight(p, l->map[map]);
    free_vector(p, l->attn_norm);
    free_vector(p, l->ffn_norm);
    free_vector(p, l->q_bias);
    free_vector(p, l->k_bias);
    free_vector(p, l->v_bias);
    free_vector(p, l->q_norm);
    free_vector(p, l->k_norm);
}

void packed_model_free(packed_model *p)
{
    if (!p) return;
    for (int layer = 0; layer < p->config->n_layers; layer++)
        free_layer(p, &p->layers[layer]);
    if (p->output != p->embedding) free_weight(p, p->output);
    free_weight(p, p->embedding);
    free_vector(p, p->output_norm);
    free(p->layers);
    free(p);
}
