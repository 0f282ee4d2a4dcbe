#include "train/params.h"

#include "base/mem.h"
#include "profiles/secret.h"
#include "train/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- layout --------------------------------------------------------------------------------- */

/* Gives the item its part of the flat arrays. */
static void place_item(train_params *p, train_item *item)
{
    item->a = p->count;
    p->count += (size_t)item->rank * (size_t)item->in;
    item->b = p->count;
    p->count += (size_t)item->rank * (size_t)item->out;
    item->bias = p->count;
    if (p->direft) p->count += (size_t)item->rank;
}

static train_item *add_item(train_params *p, const model_config *config, int layer, linear_map map,
                            int rank, float scale)
{
    p->items = xrealloc_array(p->items, p->n_items + 1, sizeof *p->items);
    train_item *item = &p->items[p->n_items++];
    *item = (train_item){.layer = layer, .map = map, .rank = rank, .scale = scale};
    item->in = item->out = config->hidden;
    if (!p->direft) linear_map_shape(config, map, &item->in, &item->out);
    place_item(p, item);
    return item;
}

static pf_status no_room(size_t count, const char *why, pf_err *err)
{
    return err_set(err, PF_NO_MEMORY, "no room for %zu trainable numbers%s%s", count,
                   *why ? ": " : "", why);
}

static pf_status alloc_arrays(train_params *p, pf_err *err)
{
    float **arrays[] = {&p->value, &p->grad, &p->m, &p->v};
    for (size_t i = 0; i < 4; i++) {
        *arrays[i] = p->be->ops->buffer_alloc(p->be, p->count * sizeof(float));
        if (!*arrays[i]) return no_room(p->count, kn_backend_error(p->be), err);
    }
    return PF_OK;
}

void train_params_free(train_params *p)
{
    float *arrays[] = {p->value, p->grad, p->m, p->v};
    const kn_train_ops *train = p->be ? kn_train_ops_of(p->be) : NULL;
    for (size_t i = 0; i < 4; i++) {
        if (!arrays[i]) continue;
        if (train) train->clear(p->be, arrays[i], p->count); /* an adapter is a person's */
        p->be->ops->buffer_free(p->be, arrays[i]);
    }
    free(p->items);
    *p = (train_params){0};
}

const train_item *train_params_find(const train_params *p, int layer, linear_map map)
{
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].layer == layer && (p->direft || p->items[i].map == map))
            return &p->items[i];
    return NULL;
}

int train_params_lowest_layer(const train_params *p)
{
    return p->n_items ? p->items[0].layer : 0;
}

/* --- a fresh adapter ------------------------------------------------------------------------ */

/* Gram-Schmidt over the rows in order, twice for accuracy. */
void train_params_orthonormalize(double *r, int rank, int64_t d)
{
    for (int i = 0; i < rank; i++) {
        double *row = r + i * d, square = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int j = 0; j < i; j++) {
                const double *other = r + j * d;
                double dot = 0;
                for (int64_t c = 0; c < d; c++)
                    dot += row[c] * other[c];
                for (int64_t c = 0; c < d; c++)
                    row[c] -= dot * other[c];
            }
        }
        for (int64_t c = 0; c < d; c++)
            square += row[c] * row[c];
        double norm = sqrt(square);
        for (int64_t c = 0; norm > 0 && c < d; c++)
            row[c] /= norm;
    }
}

/* Random rows, made orthonormal. */
static void fill_rotation(float *r, int rank, int64_t d, uint64_t *state)
{
    size_t n = (size_t)rank * (size_t)d;
    double *wide = xcalloc(n, sizeof *wide);
    for (size_t i = 0; i < n; i++)
        wide[i] = random_normal(state);
    train_params_orthonormalize(wide, rank, d);
    for (size_t i = 0; i < n; i++)
        r[i] = (float)wide[i];
    free(wide);
}

static void fill_fresh(const train_params *p, uint64_t seed, float *value)
{
    uint64_t state = seed;
    for (size_t i = 0; i < p->n_items; i++) {
        const train_item *item = &p->items[i];
        size_t n = (size_t)item->rank * (size_t)item->in;
        if (p->direft) {
            fill_rotation(value + item->b, item->rank, item->in, &state);
        } else {
            double bound = 1 / sqrt((double)item->in);
            for (size_t j = 0; j < n; j++)
                value[item->a + j] = (float)((2 * random_uniform(&state) - 1) * bound);
        }
    }
}

/* The arrays, with these values (owned; NULL: there was no memory). p becomes *out, or is freed. */
static pf_status finish(train_params *p, float *value, train_params *out, pf_err *err)
{
    pf_status status = value ? alloc_arrays(p, err) : no_room(p->count, "", err);
    if (status == PF_OK) {
        p->be->ops->upload(p->be, p->value, value, p->count * sizeof *value);
        *out = *p;
    }
    wipe_free(value, p->count * sizeof *value);
    if (status != PF_OK) train_params_free(p);
    return status;
}

pf_status train_params_create(kn_backend *be, const model_config *config, const train_shape *shape,
                              train_params *out, pf_err *err)
{
    int most = config->hidden < ADAPTER_MAX_RANK ? config->hidden : ADAPTER_MAX_RANK;
    if (shape->rank < 1 || shape->rank > most)
        return err_set(err, PF_USAGE, "rank %d is not possible with this model: 1 to %d are",
                       shape->rank, most);
    train_params p = {.be = be, .direft = shape->direft, .prefill_only = shape->prefill_only};
    double alpha = shape->alpha > 0 ? shape->alpha : 2.0 * shape->rank;
    double divisor = shape->rslora ? sqrt(shape->rank) : shape->rank;
    float scale = shape->direft ? 1 : (float)(alpha / divisor);
    for (int layer = 0; layer < config->n_layers; layer++) {
        for (int map = 0; map < (shape->direft ? 1 : MAP_COUNT); map++) {
            if (!shape->direft && shape->maps && !(shape->maps & 1u << map)) continue;
            add_item(&p, config, layer, (linear_map)map, shape->rank, scale);
        }
    }
    float *value = try_calloc(p.count, sizeof *value);
    if (value) fill_fresh(&p, shape->seed, value);
    return finish(&p, value, out, err);
}

/* --- from and to blobs ---------------------------------------------------------------------- */

pf_status train_params_load(kn_backend *be, const model_config *config, const adapter_view *view,
                            train_params *out, pf_err *err)
{
    train_params p = {.be = be, .direft = view->direft, .prefill_only = view->prefill_only};
    for (size_t i = 0; i < view->n_items; i++) {
        const adapter_item *from = &view->items[i];
        add_item(&p, config, from->layer, from->map, from->rank, from->scale);
    }
    float *value = try_calloc(p.count, sizeof *value);
    for (size_t i = 0; value && i < view->n_items; i++) {
        const adapter_item *from = &view->items[i];
        const train_item *item = &p.items[i];
        kn_dequantize(view->type, from->a, value + item->a, item->rank * item->in);
        kn_dequantize(view->type, from->b, value + item->b, item->rank * item->out);
        if (p.direft) kn_dequantize(view->type, from->bias, value + item->bias, item->rank);
    }
    return finish(&p, value, out, err);
}

pf_status train_params_write(const train_params *p, const model_config *config, kn_type type,
                             const unsigned char *base_digest, const char *base_name, buf *out,
                             pf_err *err)
{
    PF_ASSERT(type == KN_BF16 || type == KN_F32);
    pf_status status = PF_OK;
    size_t n_half = type == KN_BF16 ? p->count : 0;
    float *value = try_calloc(p->count, sizeof *value);
    uint16_t *half = try_calloc(n_half, sizeof *half);
    adapter_item *items = xcalloc(p->n_items, sizeof *items);
    if (!value || !half) {
        status = no_room(p->count, "", err);
        goto out;
    }
    p->be->ops->download(p->be, value, p->value, p->count * sizeof *value);
    for (size_t i = 0; i < n_half; i++)
        half[i] = kn_f32_to_bf16(value[i]);
    size_t size = type == KN_BF16 ? sizeof *half : sizeof *value;
    const char *base = type == KN_BF16 ? (const char *)half : (const char *)value;
    for (size_t i = 0; i < p->n_items; i++) {
        const train_item *from = &p->items[i];
        items[i] = (adapter_item){.layer = from->layer,
                                  .map = from->map,
                                  .rank = from->rank,
                                  .scale = from->scale,
                                  .a = base + from->a * size,
                                  .b = base + from->b * size,
                                  .bias = p->direft ? base + from->bias * size : NULL};
    }
    adapter_view view = {.direft = p->direft,
                         .prefill_only = p->prefill_only,
                         .type = type,
                         .items = items,
                         .n_items = p->n_items};
    if (base_digest) {
        view.has_base_digest = true;
        memcpy(view.base_digest, base_digest, sizeof view.base_digest);
    }
    status = adapter_blob_write(&view, config, base_name, NULL, out, err);
out:
    free(items);
    wipe_free(half, n_half * sizeof *half);
    wipe_free(value, p->count * sizeof *value);
    return status;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

typedef struct {
    uint64_t count;
    int64_t updates;
} state_header;

void train_params_save_state(const train_params *p, buf *out)
{
    const float *arrays[] = {p->value, p->m, p->v};
    state_header header = {.count = p->count, .updates = p->updates};
    size_t bytes = p->count * sizeof(float);
    buf_append(out, &header, sizeof header);
    for (size_t i = 0; i < 3; i++) {
        buf_reserve(out, bytes);
        p->be->ops->download(p->be, out->data + out->len, arrays[i], bytes);
        out->len += bytes;
    }
    out->data[out->len] = '\0';
}

pf_status train_params_load_state(train_params *p, const void *bytes, size_t len, pf_err *err)
{
    state_header header;
    size_t array = p->count * sizeof(float);
    if (len != sizeof header + 3 * array)
        return err_set(err, PF_REFUSED, "the checkpoint has %zu bytes; this adapter needs %zu", len,
                       sizeof header + 3 * array);
    memcpy(&header, bytes, sizeof header);
    if (header.count != p->count || header.updates < 0)
        return err_set(err, PF_REFUSED, "the checkpoint is of another adapter shape");
    float *arrays[] = {p->value, p->m, p->v};
    for (size_t i = 0; i < 3; i++)
        p->be->ops->upload(p->be, arrays[i], (const char *)bytes + sizeof header + i * array,
                           array);
    p->updates = header.updates;
    return PF_OK;
}
