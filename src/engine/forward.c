#include "engine/forward.h"

#include "base/mem.h"
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

/* Rows of logits that are computed at once: bounds the device's part of the logits. More where they
 * stay on the device. */
#define LOGIT_ROWS        64
#define DEVICE_LOGIT_ROWS 256

/* Activations of a step, backend memory; widths in floats per row. */
typedef struct {
    float *h;         /* [max_rows, hidden] residual stream */
    float *x;         /* [max_rows, hidden] normed input of a block's half */
    float *q, *k, *v; /* [max_rows, heads * head_dim] */
    float *attn;      /* [max_rows, n_heads * head_dim] */
    float *gate, *up; /* [max_rows, ff] */
    float *tail_h;    /* [max_logits, hidden] residual stream of the rows that want logits */
    float *logits;    /* [logit_rows, vocab] */
} activations;

struct forward {
    kn_backend *be;
    const kn_backend_ops *ops;
    const model_config *config;
    forward_options options;
    packed_model *weights;
    kn_kv *kv;
    activations act;
    batch all;  /* every row of the step */
    batch tail; /* the rows that want logits */
    kn_rope rope;
    float *logits; /* [max_logits, vocab] host */
    int n_logits;
    int most_rows, most_logits; /* of a step since forward_forget */
    int logit_rows;             /* min(max_logits, LOGIT_ROWS or DEVICE_LOGIT_ROWS) */
    forward_memory memory;
    forward_probe probe;
    void *probe_ctx;
    float *probe_rows; /* [max_rows, hidden] host, while a probe is set */
};

/* --- open and close --------------------------------------------------------------------------- */

kn_kv_shape forward_kv_shape(const model_config *config, const forward_options *options)
{
    return (kn_kv_shape){
        .n_layers = config->n_layers,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
        .page_tokens = options->page_tokens,
        .n_pages = options->n_pages,
        .type = options->kv_type,
    };
}

static pf_status alloc_rows(forward *f, int64_t rows, int64_t width, float **out, pf_err *err)
{
    size_t bytes = (size_t)rows * (size_t)width * sizeof(float);

    *out = f->ops->buffer_alloc(f->be, bytes);
    if (!*out) {
        return err_set(err, PF_NO_MEMORY,
                       "no room for %zu bytes of work memory (steps of %d rows): %s", bytes,
                       f->options.max_rows, kn_backend_error(f->be));
    }
    f->memory.work += bytes;
    return PF_OK;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* One of the activations. */
typedef struct {
    int64_t rows, width;
    float **at;
} row_buffer;
#define ACTIVATIONS (sizeof(activations) / sizeof(float *))

/* All buffers, for steps of up to this many rows and logits. */
static void list_activations(forward *f, int rows, int tail, row_buffer out[ACTIVATIONS])
{
    const model_config *c = f->config;
    const int64_t q_width = (int64_t)c->n_heads * c->head_dim;
    const int64_t kv_width = (int64_t)c->n_kv_heads * c->head_dim;
    activations *a = &f->act;
    const row_buffer list[ACTIVATIONS] = {
        {rows, c->hidden, &a->h},      {rows, c->hidden, &a->x},
        {rows, q_width, &a->q},        {rows, kv_width, &a->k},
        {rows, kv_width, &a->v},       {rows, q_width, &a->attn},
        {rows, c->ff, &a->gate},       {rows, c->ff, &a->up},
        {tail, c->hidden, &a->tail_h}, {min_int(tail, f->logit_rows), c->vocab, &a->logits},
    };

    memcpy(out, list, sizeof list);
}

static pf_status alloc_activations(forward *f, pf_err *err)
{
    const model_config *c = f->config;
    const int rows = f->options.max_rows;
    const int tail = f->options.max_logits;
    row_buffer buffers[ACTIVATIONS];
    pf_status status = PF_OK;

    f->logit_rows = min_int(tail, f->ops->sample ? DEVICE_LOGIT_ROWS : LOGIT_ROWS);
    list_activations(f, rows, tail, buffers);
    for (size_t i = 0; status == PF_OK && i < ACTIVATIONS; i++)
        status = alloc_rows(f, buffers[i].rows, buffers[i].width, buffers[i].at, err);
    if (status != PF_OK) return status;
    f->logits = try_calloc((size_t)tail, (size_t)c->vocab * sizeof(float));
    if (!f->logits) {
        return err_set(err, PF_NO_MEMORY, "no room for %d rows of logits of %d tokens", tail,
                       c->vocab);
    }
    f->memory.work += (size_t)tail * (size_t)c->vocab * sizeof(float);
    f->memory.work += batch_bytes(rows) + batch_bytes(tail);
    return PF_OK;
}

static pf_status open_kv(forward *f, pf_err *err)
{
    const kn_kv_shape shape = forward_kv_shape(f->config, &f->options);

    f->memory.kv = f->ops->kv_page_bytes(f->be, &shape) * (size_t)shape.n_pages;
    f->kv = f->ops->kv_create(f->be, &shape);
    if (!f->kv) {
        return err_set(err, PF_NO_MEMORY, "no room for %zu bytes of KV pages (%d of %d tokens): %s",
                       f->memory.kv, shape.n_pages, shape.page_tokens, kn_backend_error(f->be));
    }
    return PF_OK;
}

static pf_status check_options(forward_options *o, pf_err *err)
{
    if (o->max_logits == 0) o->max_logits = o->max_rows;
    const struct {
        const char *name;
        int value, high;
    } numbers[] = {
        {"max_rows", o->max_rows, 1 << 16},
        {"max_logits", o->max_logits, o->max_rows},
        {"page_tokens", o->page_tokens, 1 << 16},
        {"n_pages", o->n_pages, 1 << 28},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value >= 1 && numbers[i].value <= numbers[i].high) continue;
        return err_set(err, PF_USAGE, "forward pass: %s is %d, allowed are 1 to %d",
                       numbers[i].name, numbers[i].value, numbers[i].high);
    }
    return PF_OK;
}

pf_status forward_open(const model *m, kn_backend *be, const forward_options *options,
                       forward **out, pf_err *err)
{
    forward *f = xcalloc(1, sizeof *f);

    f->be = be;
    f->ops = be->ops;
    f->config = model_get_config(m);
    f->options = *options;
    f->rope = (kn_rope){.head_dim = f->config->head_dim, .inv_freq = f->config->rope_inv_freq};
    pf_status status = check_options(&f->options, err);
    if (status != PF_OK) goto out;
    status = packed_model_create(m, be, &f->weights, err);
    if (status != PF_OK) goto out;
    f->memory.weights = f->weights->bytes;
    status = open_kv(f, err);
    if (status != PF_OK) goto out;
    status = alloc_activations(f, err);
    if (status != PF_OK) goto out;
    batch_init(&f->all, f->options.max_rows);
    batch_init(&f->tail, f->options.max_logits);
    *out = f;
    f = NULL;
out:
    forward_close(f);
    return status;
}

static void wipe_logits(forward *f)
{
    if (f->logits)
        explicit_bzero(f->logits,
                       (size_t)f->most_logits * (size_t)f->config->vocab * sizeof(float));
}

void forward_close(forward *f)
{
    if (!f) return;
    row_buffer buffers[ACTIVATIONS];

    list_activations(f, 0, 0, buffers);
    for (size_t i = 0; i < ACTIVATIONS; i++)
        if (*buffers[i].at) f->ops->buffer_free(f->be, *buffers[i].at);
    if (f->kv) f->ops->kv_free(f->be, f->kv);
    packed_model_free(f->weights);
    batch_free(&f->all);
    batch_free(&f->tail);
    wipe_logits(f);
    free(f->logits);
    free(f->probe_rows);
    free(f);
}

/* --- one block -------------------------------------------------------------------------------- */

/* y of a map of the layer. */
typedef struct {
    linear_map map;
    float *y;
    int64_t ld_y;
} lora_target;

/* What the rows' adapters add to n outputs of the same x, in the order of the maps in an adapter.
 */
static void apply_lora(forward *f, batch *b, int layer, const float *x, const lora_target *targets,
                       int n)
{
    kn_lora_map maps[BATCH_MAPS];
    int count = 0;

    if (b->n_groups == 0) return;
    for (int i = 0; i < n; i++) {
        kn_lora_map *m = &maps[count];
        m->n_segments = batch_lora(b, layer, targets[i].map, count, &m->segments);
        m->y = targets[i].y;
        m->ld_y = targets[i].ld_y;
        count += m->n_segments > 0;
    }
    if (f->ops->lora_maps && count > 0) {
        f->ops->lora_maps(f->be, maps, count, x);
        return;
    }
    for (int i = 0; i < count; i++)
        f->ops->lora(f->be, maps[i].segments, maps[i].n_segments, x, maps[i].y, maps[i].ld_y);
}

/* y = in's norm or SwiGLU, then outs of it: at once where the backend can. */
static void linear_of(forward *f, const kn_fused_input *in, int n, const kn_linear *outs,
                      int n_outs, int width)
{
    if (f->ops->linear_fused) {
        f->ops->linear_fused(f->be, in, n, outs, n_outs);
        return;
    }
    if (in->fuse == KN_FUSE_RMSNORM)
        f->ops->rmsnorm(f->be, in->x, in->x2, in->eps, n, width, in->y);
    else
        f->ops->swiglu(f->be, in->x, in->x2, n, width, in->y);
    f->ops->linear(f->be, in->y, n, outs, n_outs);
}

/* act.x = norm of h, and outs of it. */
static void linear_of_norm(forward *f, const float *h, const float *weight, int n,
                           const kn_linear *outs, int n_outs)
{
    const kn_fused_input in = {KN_FUSE_RMSNORM, h, weight, f->config->rms_eps, f->act.x};

    linear_of(f, &in, n, outs, n_outs, f->config->hidden);
}

/* Per-head norm (where the model has one), then rotation, in place on x[n, n_heads, head_dim]. */
static void place_heads(forward *f, float *x, const batch *b, int n_heads, const float *norm)
{
    const model_config *c = f->config;

    if (norm) f->ops->rmsnorm(f->be, x, norm, c->rms_eps, b->n * n_heads, c->head_dim, x);
    f->ops->rope(f->be, &f->rope, x, b->n, n_heads, b->positions);
}

/* k and v of the rows h into the layer's pages. With want_q, q of the same rows too: the three maps
 * read the same normed input, act.x. */
static void project_qkv(forward *f, batch *b, int layer, const float *h, bool want_q)
{
    const model_config *c = f->config;
    const packed_layer *l = &f->weights->layers[layer];
    const activations *a = &f->act;
    const int64_t q_width = (int64_t)c->n_heads * c->head_dim;
    const int64_t kv_width = (int64_t)c->n_kv_heads * c->head_dim;
    const kn_linear outs[] = {
        {.w = l->map[MAP_K], .bias = l->k_bias, .y = a->k, .ld_y = kv_width},
        {.w = l->map[MAP_V], .bias = l->v_bias, .y = a->v, .ld_y = kv_width},
        {.w = l->map[MAP_Q], .bias = l->q_bias, .y = a->q, .ld_y = q_width},
    };

    const lora_target targets[] = {
        {MAP_Q, a->q, q_width}, {MAP_K, a->k, kv_width}, {MAP_V, a->v, kv_width}};

    linear_of_norm(f, h, l->attn_norm, b->n, outs, want_q ? 3 : 2);
    apply_lora(f, b, layer, a->x, want_q ? targets : targets + 1, want_q ? 3 : 2);
    place_heads(f, a->k, b, c->n_kv_heads, l->k_norm);
    f->ops->kv_write(f->be, f->kv, layer, a->k, a->v, b->kv, b->n);
    if (!want_q) return;
    place_heads(f, a->q, b, c->n_heads, l->q_norm);
}

static void project_q(forward *f, batch *b, int layer, const float *h)
{
    const model_config *c = f->config;
    const packed_layer *l = &f->weights->layers[layer];
    const int64_t q_width = (int64_t)c->n_heads * c->head_dim;
    const kn_linear q = {.w = l->map[MAP_Q], .bias = l->q_bias, .y = f->act.q, .ld_y = q_width};

    const lora_target target = {MAP_Q, f->act.q, q_width};

    linear_of_norm(f, h, l->attn_norm, b->n, &q, 1);
    apply_lora(f, b, layer, f->act.x, &target, 1);
    place_heads(f, f->act.q, b, c->n_heads, l->q_norm);
}

/* q is ready and this step's K and V are stored. */
static void attend(forward *f, batch *b, int layer, float *h)
{
    const float *x = f->act.attn;
    const kn_linear out = {
        .w = f->weights->layers[layer].map[MAP_O], .y = h, .ld_y = f->config->hidden, .add = true};

    const lora_target target = {MAP_O, h, f->config->hidden};

    f->ops->attention(f->be, f->kv, layer, f->act.q, b->kv, b->n, f->config->n_heads, f->act.attn);
    f->ops->linear(f->be, x, b->n, &out, 1);
    apply_lora(f, b, layer, x, &target, 1);
}

static void feed_forward(forward *f, batch *b, int layer, float *h)
{
    const model_config *c = f->config;
    const packed_layer *l = &f->weights->layers[layer];
    const activations *a = &f->act;
    const kn_linear outs[] = {
        {.w = l->map[MAP_GATE], .y = a->gate, .ld_y = c->ff},
        {.w = l->map[MAP_UP], .y = a->up, .ld_y = c->ff},
    };
    const kn_fused_input product = {KN_FUSE_SWIGLU, a->gate, a->up, 0, a->gate};
    const kn_linear down = {.w = l->map[MAP_DOWN], .y = h, .ld_y = c->hidden, .add = true};

    const lora_target wide[] = {{MAP_GATE, a->gate, c->ff}, {MAP_UP, a->up, c->ff}};
    const lora_target narrow = {MAP_DOWN, h, c->hidden};

    linear_of_norm(f, h, l->ffn_norm, b->n, outs, 2);
    apply_lora(f, b, layer, a->x, wide, 2);
    linear_of(f, &product, b->n, &down, 1, c->ff);
    apply_lora(f, b, layer, a->gate, &narrow, 1);
}

static void apply_direft(forward *f, batch *b, int layer, float *h)
{
    const kn_segment *segments;
    int n = batch_direft(b, layer, &segments);

    if (n > 0) f->ops->direft(f->be, segments, n, h);
}

static void show_probe(forward *f, int layer, const float *h, int n)
{
    if (!f->probe) return;
    f->ops->download(f->be, f->probe_rows, h, (size_t)n * f->config->hidden * sizeof(float));
    f->probe(f->probe_ctx, layer, f->probe_rows, n, f->config->hidden);
}

static void run_block(forward *f, int layer)
{
    float *h = f->act.h;

    project_qkv(f, &f->all, layer, h, true);
    attend(f, &f->all, layer, h);
    feed_forward(f, &f->all, layer, h);
    apply_direft(f, &f->all, layer, h);
    show_probe(f, layer, h, f->all.n);
}

/* After the last block's K and V only the rows that want logits matter: the rest of the block runs
 * for those alone. */
static void run_last_block(forward *f, int layer)
{
    const bool same_rows = f->tail.n == f->all.n;
    float *h = f->act.tail_h;

    project_qkv(f, &f->all, layer, f->act.h, same_rows);
    f->ops->gather(f->be, f->act.h, f->tail.source, f->tail.n, f->config->hidden, h);
    if (f->tail.n == 0) return;
    if (!same_rows) project_q(f, &f->tail, layer, h);
    attend(f, &f->tail, layer, h);
    feed_forward(f, &f->tail, layer, h);
    apply_direft(f, &f->tail, layer, h);
    show_probe(f, layer, h, f->tail.n);
}

/* --- a step ----------------------------------------------------------------------------------- */

static void project_logits(forward *f, int first, int rows)
{
    const model_config *c = f->config;
    const kn_linear out = {.w = f->weights->output, .y = f->act.logits, .ld_y = c->vocab};

    linear_of_norm(f, f->act.tail_h + (size_t)first * c->hidden, f->weights->output_norm, rows,
                   &out, 1);
}

/* Everything up to the logits of the first logit_rows rows that want some. */
static void compute(forward *f)
{
    const model_config *c = f->config;
    const int last = c->n_layers - 1;

    f->ops->embed(f->be, f->weights->embedding, f->all.tokens, f->all.n, f->act.h);
    show_probe(f, -1, f->act.h, f->all.n);
    for (int layer = 0; layer < last; layer++)
        run_block(f, layer);
    run_last_block(f, last);
    if (f->tail.n == 0) return;
    project_logits(f, 0, min_int(f->tail.n, f->logit_rows));
}

/* A step without adapters whose rows all want logits looks like the ones before it: the device may
 * record it, and wants its number of rows rounded up. */
static bool is_repeatable(const forward *f)
{
    return f->all.n_groups == 0 && f->tail.n == f->all.n && f->all.n <= f->logit_rows && !f->probe;
}

static void pad_step(forward *f)
{
    int n = f->ops->step_rows(f->be, f->all.n);

    if (n > f->logit_rows || n > f->options.max_rows) return;
    batch_pad(&f->all, n);
    batch_pad(&f->tail, n);
}

static void run_step(forward *f)
{
    if (!f->ops->step_begin) {
        compute(f);
        return;
    }
    const bool repeatable = is_repeatable(f);
    if (repeatable) pad_step(f);
    const kn_step_rows sets[2] = {
        {f->all.n, f->all.positions, f->all.tokens, f->all.kv},
        {f->tail.n, f->tail.positions, f->tail.source, f->tail.kv},
    };
    const kn_step step = {.sets = sets,
                          .n_sets = 2,
                          .page_tokens = f->options.page_tokens,
                          .repeatable = repeatable,
                          .owner = f};
    if (f->ops->step_begin(f->be, &step)) return;
    do
        compute(f);
    while (!f->ops->step_end(f->be));
}

/* The logits to the host, or what was chosen from them, logit_rows rows at a time. */
static void take_logits(forward *f, const kn_sample *samples, kn_choice *choices)
{
    const size_t vocab = (size_t)f->config->vocab;

    for (int first = 0; first < f->n_logits; first += f->logit_rows) {
        const int rows = min_int(f->n_logits - first, f->logit_rows);
        if (first > 0) project_logits(f, first, rows);
        if (samples)
            f->ops->sample(f->be, f->act.logits, (int64_t)vocab, samples + first, rows,
                           choices + first);
        else
            f->ops->download(f->be, f->logits + (size_t)first * vocab, f->act.logits,
                             (size_t)rows * vocab * sizeof(float));
    }
}

static pf_status check_row(const forward *f, const forward_row *row, int i, pf_err *err)
{
    const int page_tokens = f->options.page_tokens;

    if (row->token < 0 || row->token >= f->config->vocab) {
        return err_set(err, PF_USAGE,
                       "row %d of the step: token %d is outside the vocabulary of %d", i,
                       row->token, f->config->vocab);
    }
    if (row->position < 0 || row->position / page_tokens >= f->options.n_pages) {
        return err_set(err, PF_USAGE, "row %d of the step: position %d is outside the KV store", i,
                       row->position);
    }
    int32_t page = row->pages[row->position / page_tokens];
    if (page < 0 || page >= f->options.n_pages) {
        return err_set(err, PF_USAGE, "row %d of the step: page %d is outside the KV store of %d",
                       i, page, f->options.n_pages);
    }
    return PF_OK;
}

static pf_status check_rows(const forward *f, const forward_row *rows, int n, pf_err *err)
{
    int wanted = 0;

    if (n < 0 || n > f->options.max_rows) {
        return err_set(err, PF_USAGE, "a step of %d rows; this pass was opened for at most %d", n,
                       f->options.max_rows);
    }
    for (int i = 0; i < n; i++) {
        pf_status status = check_row(f, &rows[i], i, err);
        if (status != PF_OK) return status;
        wanted += rows[i].wants_logits;
        if (wanted > f->options.max_logits) {
            return err_set(err, PF_USAGE,
                           "row %d of the step: more than %d rows want logits, the most this pass "
                           "was opened for",
                           i, f->options.max_logits);
        }
    }
    return PF_OK;
}

static pf_status run(forward *f, const forward_row *rows, int n, const kn_sample *samples,
                     kn_choice *choices, pf_err *err)
{
    pf_status status = check_rows(f, rows, n, err);

    if (status != PF_OK) return status;
    batch_build(&f->all, rows, n, false);
    batch_build(&f->tail, rows, n, true);
    f->n_logits = f->tail.n;
    if (n == 0) return PF_OK;
    run_step(f);
    f->most_rows = max_int(f->most_rows, f->all.n);
    f->most_logits = max_int(f->most_logits, f->tail.n);
    take_logits(f, samples, choices);
    if (!f->ops->good || f->ops->good(f->be)) return PF_OK;
    status = err_set(err, PF_FAILED, "the device failed in this step: %s", kn_backend_error(f->be));
    f->ops->recover(f->be); /* who comes next starts well, if the device still works */
    return status;
}

pf_status forward_run(forward *f, const forward_row *rows, int n, pf_err *err)
{
    return run(f, rows, n, NULL, NULL, err);
}

bool forward_can_choose(const forward *f)
{
    return f->ops->sample != NULL;
}

pf_status forward_run_choose(forward *f, const forward_row *rows, int n, const kn_sample *samples,
                             kn_choice *choices, pf_err *err)
{
    return run(f, rows, n, samples, choices, err);
}

static void wipe_activations(forward *f)
{
    static const float zeros[4096];
    row_buffer buffers[ACTIVATIONS];

    list_activations(f, f->most_rows, f->most_logits, buffers);
    for (size_t i = 0; i < ACTIVATIONS; i++) {
        size_t count = (size_t)buffers[i].rows * (size_t)buffers[i].width;
        for (size_t at = 0, n; at < count; at += n) {
            n = count - at < 4096 ? count - at : 4096;
            f->ops->upload(f->be, *buffers[i].at + at, zeros, n * sizeof *zeros);
        }
    }
}

void forward_forget(forward *f)
{
    wipe_activations(f);
    wipe_logits(f);
    if (f->probe_rows)
        explicit_bzero(f->probe_rows,
                       (size_t)f->options.max_rows * (size_t)f->config->hidden * sizeof(float));
    f->most_rows = f->most_logits = 0;
    if (f->ops->forget) f->ops->forget(f->be);
    batch_forget(&f->all);
    batch_forget(&f->tail);
}

/* --- results ---------------------------------------------------------------------------------- */

const float *forward_logits(const forward *f, int i)
{
    PF_ASSERT(i >= 0 && i < f->n_logits);
    return f->logits + (size_t)i * f->config->vocab;
}

int forward_n_logits(const forward *f)
{
    return f->n_logits;
}

kn_kv *forward_kv(const forward *f)
{
    return f->kv;
}

const packed_model *forward_weights(const forward *f)
{
    return f->weights;
}

forward_memory forward_get_memory(const forward *f)
{
    return f->memory;
}

void forward_set_probe(forward *f, forward_probe probe, void *ctx)
{
    f->probe = probe;
    f->probe_ctx = ctx;
    if (probe && !f->probe_rows)
        f->probe_rows = xcalloc((size_t)f->options.max_rows * f->config->hidden, sizeof(float));
}
