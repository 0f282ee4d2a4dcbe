#include "train/pass.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Rows of logits that are computed at once: bounds the workspace at LOGIT_ROWS * vocab floats. */
#define LOGIT_ROWS 64

/* What the backward pass of one block reads. [rows, width] each, backend memory. */
typedef struct {
    float *x;             /* normed input of the attention half [hidden] */
    float *q_raw, *k_raw; /* q and k before the per-head norm (qwen3), else NULL */
    float *q, *k, *v;     /* after the norm and the rotation */
    float *attn;          /* attention's result, input of o */
    float *mid;           /* residual stream between the halves [hidden] */
    float *x2;            /* normed input of the second half [hidden] */
    float *gate, *up;     /* [ff] */
    float *end;           /* residual stream before DiReFT [hidden]; NULL for LoRA */
    float *u;             /* A x of every LoRA item, W h + b of DiReFT; laid out by u_at */
} block;

/* Gradients of the current block. */
typedef struct {
    float *h;               /* of the residual stream [rows, hidden] */
    float *x;               /* of a normed input [rows, hidden] */
    float *q, *k, *v;       /* [rows, heads * head_dim] */
    float *q_raw, *k_raw;   /* qwen3 */
    float *attn;            /* [rows, n_heads * head_dim] */
    float *gate, *up, *act; /* [rows, ff] */
} gradients;

typedef enum { UNIT_FORWARD, UNIT_HEAD, UNIT_BACKWARD_FFN, UNIT_BACKWARD_ATTN, UNIT_END } unit_kind;

struct train_pass {
    const packed_model *w;
    const model_config *c;
    kn_backend *be;
    const kn_backend_ops *ops;
    const kn_train_ops *train;
    /* The products of the forward pass: exact ones, or those that serve. */
    void (*linear)(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
    kn_rope rope;
    row_map rows; /* of the current batch */
    int64_t q_width, kv_width;
    size_t max_rows, activation_bytes;

    float *h; /* [(n_layers + 1), max_rows, hidden]: input of every block and the last output */
    block *blocks; /* [n_blocks]; the last ones keep their layers, blocks[0] is shared */
    float *act;    /* [max_rows, ff]: input of down, cheap to make again from gate and up */
    int n_blocks;
    size_t u_rank; /* floats per row in block.u that are allocated */
    gradients d;
    float *tail, *tail_x, *d_tail, *d_tail_x; /* [LOGIT_ROWS, hidden] */
    float *logits;                            /* [LOGIT_ROWS, vocab] */
    float *teacher_x, *teacher_logits;        /* likewise; NULL until a batch has a teacher */

    /* the current batch */
    train_params *params;
    int n;
    int32_t *ids, *positions, *adapted_rows; /* [max_rows] */
    int n_adapted;
    int32_t *target_rows, *target_ids; /* [max_rows]: row whose logits predict, and the id */
    int n_targets;
    float *logp, *weight, *log_sum; /* [max_rows] */
    const float **teacher;          /* [max_rows]: a target's teacher state, or NULL */
    float *kept;                    /* where states go, or NULL */
    bool backward;
    double divisor;
    train_weigh weigh;
    void *weigh_ctx;

    pf_err failure; /* what went wrong on the device in this batch; status PF_OK: nothing */

    /* progress */
    unit_kind unit;
    int layer, head_done;
    int done, total;
};

/* --- memory --------------------------------------------------------------------------------- */

typedef struct {
    size_t width; /* floats per row */
    float **out;
} row_buffer;

static pf_status alloc_rows(train_pass *p, const row_buffer *list, size_t count, size_t rows,
                            pf_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].width == 0 || *list[i].out) continue;
        *list[i].out = p->ops->buffer_alloc(p->be, rows * list[i].width * sizeof(float));
        if (!*list[i].out)
            return err_set(err, PF_NO_MEMORY, "no room for %zu bytes of training memory: %s",
                           rows * list[i].width * sizeof(float), kn_backend_error(p->be));
    }
    return PF_OK;
}

#define BLOCK_BUFFERS 13

/* The one list of a block's buffers: allocation, release and size come from it. */
static void block_buffers(const train_pass *p, block *b, row_buffer out[BLOCK_BUFFERS])
{
    size_t hidden = (size_t)p->c->hidden, ff = (size_t)p->c->ff;
    size_t q = (size_t)p->q_width, kv = (size_t)p->kv_width;
    bool head_norm = p->w->layers[0].q_norm != NULL;
    const row_buffer list[BLOCK_BUFFERS] = {
        {hidden, &b->x},
        {head_norm ? q : 0, &b->q_raw},
        {head_norm ? kv : 0, &b->k_raw},
        {q, &b->q},
        {kv, &b->k},
        {kv, &b->v},
        {q, &b->attn},
        {hidden, &b->mid},
        {hidden, &b->x2},
        {ff, &b->gate},
        {ff, &b->up},
        {hidden, &b->end},
        {p->u_rank, &b->u},
    };
    memcpy(out, list, sizeof list);
}

static size_t block_bytes(const train_pass *p)
{
    row_buffer list[BLOCK_BUFFERS];
    block unused = {0};
    size_t width = 0;
    block_buffers(p, &unused, list);
    for (size_t i = 0; i < BLOCK_BUFFERS; i++)
        width += list[i].width;
    return width * p->max_rows * sizeof(float);
}

static pf_status alloc_blocks(train_pass *p, pf_err *err)
{
    size_t fit = p->activation_bytes / block_bytes(p);
    p->n_blocks = fit < 1 ? 1 : fit > (size_t)p->c->n_layers ? p->c->n_layers : (int)fit;
    p->blocks = xcalloc((size_t)p->n_blocks, sizeof *p->blocks);
    pf_status status = PF_OK;
    for (int i = 0; i < p->n_blocks && status == PF_OK; i++) {
        row_buffer list[BLOCK_BUFFERS];
        block_buffers(p, &p->blocks[i], list);
        status = alloc_rows(p, list, BLOCK_BUFFERS, p->max_rows, err);
    }
    return status;
}

static void free_blocks(train_pass *p)
{
    for (int i = 0; i < p->n_blocks; i++) {
        row_buffer list[BLOCK_BUFFERS];
        block_buffers(p, &p->blocks[i], list);
        for (size_t j = 0; j < BLOCK_BUFFERS; j++)
            if (*list[j].out) p->ops->buffer_free(p->be, *list[j].out);
    }
    free(p->blocks);
    p->blocks = NULL;
    p->n_blocks = 0;
}

#define WORK_BUFFERS 13

static void work_buffers(train_pass *p, row_buffer out[WORK_BUFFERS])
{
    size_t hidden = (size_t)p->c->hidden, ff = (size_t)p->c->ff;
    size_t q = (size_t)p->q_width, kv = (size_t)p->kv_width;
    bool head_norm = p->w->layers[0].q_norm != NULL;
    const row_buffer list[WORK_BUFFERS] = {
        {hidden * ((size_t)p->c->n_layers + 1), &p->h},
        {ff, &p->act},
        {hidden, &p->d.h},
        {hidden, &p->d.x},
        {q, &p->d.q},
        {kv, &p->d.k},
        {kv, &p->d.v},
        {head_norm ? q : 0, &p->d.q_raw},
        {head_norm ? kv : 0, &p->d.k_raw},
        {q, &p->d.attn},
        {ff, &p->d.gate},
        {ff, &p->d.up},
        {ff, &p->d.act},
    };
    memcpy(out, list, sizeof list);
}

/* For targets with a teacher. */
static pf_status alloc_teacher(train_pass *p, pf_err *err)
{
    const row_buffer list[] = {{(size_t)p->c->hidden, &p->teacher_x},
                               {(size_t)p->c->vocab, &p->teacher_logits}};
    return alloc_rows(p, list, 2, LOGIT_ROWS, err);
}

#define TAIL_BUFFERS 5

static void tail_buffers(train_pass *p, row_buffer out[TAIL_BUFFERS])
{
    size_t hidden = (size_t)p->c->hidden;
    const row_buffer list[TAIL_BUFFERS] = {
        {hidden, &p->tail},
        {hidden, &p->tail_x},
        {hidden, &p->d_tail},
        {hidden, &p->d_tail_x},
        {(size_t)p->c->vocab, &p->logits},
    };
    memcpy(out, list, sizeof list);
}

static void alloc_lists(train_pass *p)
{
    size_t rows = p->max_rows;
    p->ids = xcalloc(rows, sizeof *p->ids);
    p->positions = xcalloc(rows, sizeof *p->positions);
    p->adapted_rows = xcalloc(rows, sizeof *p->adapted_rows);
    p->target_rows = xcalloc(rows, sizeof *p->target_rows);
    p->target_ids = xcalloc(rows, sizeof *p->target_ids);
    p->logp = xcalloc(rows, sizeof *p->logp);
    p->weight = xcalloc(rows, sizeof *p->weight);
    p->log_sum = xcalloc(rows, sizeof *p->log_sum);
    p->teacher = xcalloc(rows, sizeof *p->teacher);
}

pf_status train_pass_open(const packed_model *weights, const train_pass_options *options,
                          train_pass **out, pf_err *err)
{
    const model_config *c = weights->config;
    train_pass *p = xcalloc(1, sizeof *p);
    p->w = weights;
    p->c = c;
    p->be = weights->be;
    p->ops = weights->be->ops;
    p->train = kn_train_ops_of(weights->be);
    train_pass_as_served(p, false);
    p->rope = (kn_rope){.head_dim = c->head_dim, .inv_freq = c->rope_inv_freq};
    p->q_width = (int64_t)c->n_heads * c->head_dim;
    p->kv_width = (int64_t)c->n_kv_heads * c->head_dim;
    p->max_rows = options->max_rows;
    p->activation_bytes = options->activation_bytes;
    p->u_rank = (size_t)MAP_COUNT * 64;
    row_map_open(&p->rows, p->be, &(kn_heads){c->n_heads, c->n_kv_heads, c->head_dim}, p->max_rows);
    pf_status status = PF_OK;
    if (!p->train) {
        status = err_set(err, PF_FAILED, "the device %s can't train", p->be->device);
        goto out;
    }
    if (c->head_dim > KN_MAX_HEAD_DIM) {
        status = err_set(err, PF_FAILED, "heads of %d are too wide to train: at most %d",
                         c->head_dim, KN_MAX_HEAD_DIM);
        goto out;
    }
    row_buffer work[WORK_BUFFERS], tail[TAIL_BUFFERS];
    work_buffers(p, work);
    tail_buffers(p, tail);
    status = alloc_rows(p, work, WORK_BUFFERS, p->max_rows, err);
    if (status == PF_OK) status = alloc_rows(p, tail, TAIL_BUFFERS, LOGIT_ROWS, err);
    if (status == PF_OK) status = alloc_blocks(p, err);
    if (status != PF_OK) goto out;
    alloc_lists(p);
    p->unit = UNIT_END;
    *out = p;
    p = NULL;
out:
    train_pass_close(p);
    return status;
}

void train_pass_as_served(train_pass *p, bool served)
{
    bool exact = !served && p->train && p->train->linear;
    p->linear = exact ? p->train->linear : p->ops->linear;
}

void train_pass_close(train_pass *p)
{
    if (!p) return;
    row_buffer work[WORK_BUFFERS], tail[TAIL_BUFFERS];
    work_buffers(p, work);
    tail_buffers(p, tail);
    for (size_t i = 0; i < WORK_BUFFERS; i++)
        if (*work[i].out) p->ops->buffer_free(p->be, *work[i].out);
    for (size_t i = 0; i < TAIL_BUFFERS; i++)
        if (*tail[i].out) p->ops->buffer_free(p->be, *tail[i].out);
    if (p->teacher_x) p->ops->buffer_free(p->be, p->teacher_x);
    if (p->teacher_logits) p->ops->buffer_free(p->be, p->teacher_logits);
    free_blocks(p);
    row_map_close(&p->rows);
    if (p->ids) explicit_bzero(p->ids, p->max_rows * sizeof *p->ids);
    if (p->target_ids) explicit_bzero(p->target_ids, p->max_rows * sizeof *p->target_ids);
    free(p->ids);
    free(p->positions);
    free(p->adapted_rows);
    free(p->target_rows);
    free(p->target_ids);
    free(p->logp);
    free(p->weight);
    free(p->log_sum);
    free(p->teacher);
    free(p);
}

/* --- adapters ------------------------------------------------------------------------------- */

/* Where an item's u begins in block.u: items of a layer follow each other in the order of maps. */
static size_t u_offset(const train_pass *p, const train_item *item)
{
    size_t rank = 0;
    if (!p->params->direft)
        for (int map = 0; map < (int)item->map; map++) {
            const train_item *before = train_params_find(p->params, item->layer, (linear_map)map);
            if (before) rank += (size_t)before->rank;
        }
    return rank * (size_t)p->n;
}

/* Most ranks of one layer together: the width of block.u. */
static size_t layer_rank(const train_params *params, int n_layers)
{
    size_t most = 0;
    for (int layer = 0; layer < n_layers; layer++) {
        size_t sum = 0;
        for (size_t i = 0; i < params->n_items; i++)
            if (params->items[i].layer == layer) sum += (size_t)params->items[i].rank;
        if (sum > most) most = sum;
    }
    return most;
}

/* The map's LoRA as an operation's argument; false where the layer has none or nothing is adapted.
 */
static bool lora_of(const train_pass *p, const block *b, int layer, linear_map map,
                    kn_lora_train *out)
{
    if (!p->params || p->params->direft || p->n_adapted == 0) return false;
    const train_item *item = train_params_find(p->params, layer, map);
    if (!item) return false;
    *out = (kn_lora_train){
        .row_index = p->adapted_rows,
        .n_rows = p->n_adapted,
        .rank = item->rank,
        .in = item->in,
        .out = item->out,
        .scale = item->scale,
        .a = p->params->value + item->a,
        .b = p->params->value + item->b,
        .d_a = p->params->grad + item->a,
        .d_b = p->params->grad + item->b,
        .u = b->u + u_offset(p, item),
    };
    return true;
}

static bool direft_of(const train_pass *p, const block *b, int layer, kn_direft_train *out)
{
    if (!p->params || !p->params->direft || p->n_adapted == 0) return false;
    const train_item *item = train_params_find(p->params, layer, MAP_Q);
    if (!item) return false;
    const train_params *t = p->params;
    *out = (kn_direft_train){
        .row_index = p->adapted_rows,
        .n_rows = p->n_adapted,
        .rank = item->rank,
        .r = t->value + item->b,
        .w = t->value + item->a,
        .bias = t->value + item->bias,
        .d_r = t->grad + item->b,
        .d_w = t->grad + item->a,
        .d_bias = t->grad + item->bias,
        .u = b->u,
    };
    return true;
}

static void lora_forward(const train_pass *p, const block *b, int layer, linear_map map,
                         const float *x, float *y)
{
    kn_lora_train l;
    if (lora_of(p, b, layer, map, &l)) p->train->lora(p->be, &l, x, y, l.out);
}

static void lora_backward(const train_pass *p, const block *b, int layer, linear_map map,
                          const float *x, const float *d_y, float *d_x)
{
    kn_lora_train l;
    if (lora_of(p, b, layer, map, &l)) p->train->lora_backward(p->be, &l, x, d_y, l.out, d_x);
}

/* --- one block ------------------------------------------------------------------------------ */

static float *layer_input(const train_pass *p, int layer)
{
    return p->h + (size_t)layer * p->max_rows * (size_t)p->c->hidden;
}

/* The last n_blocks - 1 layers keep blocks of their own; the others share blocks[0]. */
static block *layer_block(const train_pass *p, int layer)
{
    int slot = layer - (p->c->n_layers - p->n_blocks);
    return &p->blocks[slot > 0 ? slot : 0];
}

static void copy_rows(const train_pass *p, const float *x, int64_t width, float *y)
{
    p->train->clear(p->be, y, (size_t)p->n * (size_t)width);
    p->ops->add(p->be, x, p->n, (int)width, y);
}

static void forward_attention_half(const train_pass *p, const block *b, int layer, const float *h)
{
    const packed_layer *w = &p->w->layers[layer];
    float *q = w->q_norm ? b->q_raw : b->q, *k = w->k_norm ? b->k_raw : b->k;
    const kn_linear qkv[] = {
        {.w = w->map[MAP_Q], .bias = w->q_bias, .y = q, .ld_y = p->q_width},
        {.w = w->map[MAP_K], .bias = w->k_bias, .y = k, .ld_y = p->kv_width},
        {.w = w->map[MAP_V], .bias = w->v_bias, .y = b->v, .ld_y = p->kv_width},
    };
    p->ops->rmsnorm(p->be, h, w->attn_norm, p->c->rms_eps, p->n, p->c->hidden, b->x);
    p->linear(p->be, b->x, p->n, qkv, 3);
    lora_forward(p, b, layer, MAP_Q, b->x, q);
    lora_forward(p, b, layer, MAP_K, b->x, k);
    lora_forward(p, b, layer, MAP_V, b->x, b->v);
    if (w->q_norm)
        p->ops->rmsnorm(p->be, q, w->q_norm, p->c->rms_eps, p->n * p->c->n_heads, p->c->head_dim,
                        b->q);
    if (w->k_norm)
        p->ops->rmsnorm(p->be, k, w->k_norm, p->c->rms_eps, p->n * p->c->n_kv_heads, p->c->head_dim,
                        b->k);
    p->ops->rope(p->be, &p->rope, b->q, p->n, p->c->n_heads, p->positions);
    p->ops->rope(p->be, &p->rope, b->k, p->n, p->c->n_kv_heads, p->positions);
    row_map_attention(&p->rows, b->q, b->k, b->v, b->attn);
    const kn_linear o = {.w = w->map[MAP_O], .y = b->mid, .ld_y = p->c->hidden, .add = true};
    copy_rows(p, h, p->c->hidden, b->mid);
    p->linear(p->be, b->attn, p->n, &o, 1);
    lora_forward(p, b, layer, MAP_O, b->attn, b->mid);
}

static void forward_ffn_half(const train_pass *p, const block *b, int layer, float *out)
{
    const packed_layer *w = &p->w->layers[layer];
    const kn_linear gate_up[] = {
        {.w = w->map[MAP_GATE], .y = b->gate, .ld_y = p->c->ff},
        {.w = w->map[MAP_UP], .y = b->up, .ld_y = p->c->ff},
    };
    const kn_linear down = {.w = w->map[MAP_DOWN], .y = b->end, .ld_y = p->c->hidden, .add = true};
    p->ops->rmsnorm(p->be, b->mid, w->ffn_norm, p->c->rms_eps, p->n, p->c->hidden, b->x2);
    p->linear(p->be, b->x2, p->n, gate_up, 2);
    lora_forward(p, b, layer, MAP_GATE, b->x2, b->gate);
    lora_forward(p, b, layer, MAP_UP, b->x2, b->up);
    p->ops->swiglu(p->be, b->gate, b->up, p->n, p->c->ff, p->act);
    copy_rows(p, b->mid, p->c->hidden, b->end);
    p->linear(p->be, p->act, p->n, &down, 1);
    lora_forward(p, b, layer, MAP_DOWN, p->act, b->end);
    copy_rows(p, b->end, p->c->hidden, out);
    kn_direft_train direft;
    if (direft_of(p, b, layer, &direft)) p->train->direft(p->be, &direft, p->c->hidden, out);
}

static void forward_block(train_pass *p, int layer)
{
    const block *b = layer_block(p, layer);
    forward_attention_half(p, b, layer, layer_input(p, layer));
    forward_ffn_half(p, b, layer, layer_input(p, layer + 1));
}

/* d.h comes in as the gradient of the block's output and leaves as that of block.mid. */
static void backward_ffn_half(train_pass *p, const block *b, int layer)
{
    const packed_layer *w = &p->w->layers[layer];
    gradients *d = &p->d;
    kn_direft_train direft;
    if (direft_of(p, b, layer, &direft))
        p->train->direft_backward(p->be, &direft, p->c->hidden, b->end, d->h);
    const kn_linear_grad down = {w->map[MAP_DOWN], p->c->hidden, d->h, p->c->hidden};
    p->train->linear_backward(p->be, &down, 1, p->n, p->c->ff, false, d->act);
    p->ops->swiglu(p->be, b->gate, b->up, p->n, p->c->ff, p->act);
    lora_backward(p, b, layer, MAP_DOWN, p->act, d->h, d->act);
    p->train->swiglu_backward(p->be, b->gate, b->up, d->act, p->n, p->c->ff, d->gate, d->up);
    const kn_linear_grad gate_up[] = {
        {w->map[MAP_GATE], p->c->ff, d->gate, p->c->ff},
        {w->map[MAP_UP], p->c->ff, d->up, p->c->ff},
    };
    p->train->linear_backward(p->be, gate_up, 2, p->n, p->c->hidden, false, d->x);
    lora_backward(p, b, layer, MAP_GATE, b->x2, d->gate, d->x);
    lora_backward(p, b, layer, MAP_UP, b->x2, d->up, d->x);
    p->train->rmsnorm_backward(p->be, b->mid, w->ffn_norm, p->c->rms_eps, d->x, p->n, p->c->hidden,
                               d->h);
}

/* Gradient of q or k before the rotation and the per-head norm; returns where it lies. */
static float *backward_heads(train_pass *p, const float *raw, const float *norm, int n_heads,
                             float *d_heads, float *d_raw)
{
    p->train->rope_backward(p->be, &p->rope, d_heads, p->n, n_heads, p->positions);
    if (!norm) return d_heads;
    size_t rows = (size_t)p->n * (size_t)n_heads;
    p->train->clear(p->be, d_raw, rows * (size_t)p->c->head_dim);
    p->train->rmsnorm_backward(p->be, raw, norm, p->c->rms_eps, d_heads, (int)rows, p->c->head_dim,
                               d_raw);
    return d_raw;
}

/* d.h comes in as the gradient of block.mid and leaves as that of the block's input. */
static void backward_attention_half(train_pass *p, const block *b, int layer)
{
    const packed_layer *w = &p->w->layers[layer];
    gradients *d = &p->d;
    const kn_linear_grad o = {w->map[MAP_O], p->c->hidden, d->h, p->c->hidden};
    p->train->linear_backward(p->be, &o, 1, p->n, p->q_width, false, d->attn);
    lora_backward(p, b, layer, MAP_O, b->attn, d->h, d->attn);
    row_map_attention_backward(&p->rows, b->q, b->k, b->v, b->attn, d->attn, d->q, d->k, d->v);
    const float *d_q = backward_heads(p, b->q_raw, w->q_norm, p->c->n_heads, d->q, d->q_raw);
    const float *d_k = backward_heads(p, b->k_raw, w->k_norm, p->c->n_kv_heads, d->k, d->k_raw);
    const kn_linear_grad qkv[] = {
        {w->map[MAP_Q], p->q_width, d_q, p->q_width},
        {w->map[MAP_K], p->kv_width, d_k, p->kv_width},
        {w->map[MAP_V], p->kv_width, d->v, p->kv_width},
    };
    p->train->linear_backward(p->be, qkv, 3, p->n, p->c->hidden, false, d->x);
    lora_backward(p, b, layer, MAP_Q, b->x, d_q, d->x);
    lora_backward(p, b, layer, MAP_K, b->x, d_k, d->x);
    lora_backward(p, b, layer, MAP_V, b->x, d->v, d->x);
    p->train->rmsnorm_backward(p->be, layer_input(p, layer), w->attn_norm, p->c->rms_eps, d->x,
                               p->n, p->c->hidden, d->h);
}

/* --- logits and loss ------------------------------------------------------------------------ */

static void weigh_targets(train_pass *p, int first, int n)
{
    if (p->weigh) {
        p->weigh(p->weigh_ctx, first, n, p->logp + first, p->weight + first);
        return;
    }
    for (int i = first; i < first + n; i++)
        p->weight[i] = (float)(1 / p->divisor);
}

/* How many of the next targets go together: at most LOGIT_ROWS, all with a teacher or all without.
 */
static int chunk_length(const train_pass *p)
{
    const int first = p->head_done;
    int n = 1;
    while (n < LOGIT_ROWS && first + n < p->n_targets &&
           !p->teacher[first + n] == !p->teacher[first])
        n++;
    return n;
}

/* logits[n, vocab] of the given targets' rows. */
static void chunk_logits(train_pass *p, int first, int n)
{
    const kn_linear out = {.w = p->w->output, .y = p->logits, .ld_y = p->c->vocab};
    p->ops->gather(p->be, layer_input(p, p->c->n_layers), p->target_rows + first, n, p->c->hidden,
                   p->tail);
    p->ops->rmsnorm(p->be, p->tail, p->w->output_norm, p->c->rms_eps, n, p->c->hidden, p->tail_x);
    p->linear(p->be, p->tail_x, n, &out, 1);
    if (!p->kept) return;
    const size_t width = (size_t)p->c->hidden;
    p->ops->download(p->be, p->kept + (size_t)first * width, p->tail_x,
                     (size_t)n * width * sizeof(float));
}

/* Against the teacher: logits becomes the gradient of the weighted KL, logp is -KL. */
static void chunk_teacher(train_pass *p, int first, int n)
{
    const size_t width = (size_t)p->c->hidden;
    const kn_linear out = {.w = p->w->output, .y = p->teacher_logits, .ld_y = p->c->vocab};
    for (int i = 0; i < n; i++) {
        p->weight[first + i] = (float)(1 / p->divisor);
        p->ops->upload(p->be, p->teacher_x + (size_t)i * width, p->teacher[first + i],
                       width * sizeof(float));
    }
    p->linear(p->be, p->teacher_x, n, &out, 1);
    p->train->distill_grad(p->be, p->logits, p->teacher_logits, n, p->c->vocab, p->weight + first,
                           p->logp + first);
    for (int i = first; i < first + n; i++)
        p->logp[i] = -p->logp[i];
}

/* The next targets: their log-probabilities and, going back, the gradient of d.h. */
static void head_chunk(train_pass *p)
{
    const int first = p->head_done, n = chunk_length(p);
    const int32_t *ids = p->target_ids + first;
    const bool taught = p->teacher[first] != NULL;
    chunk_logits(p, first, n);
    if (taught)
        chunk_teacher(p, first, n);
    else
        p->train->log_softmax(p->be, p->logits, n, p->c->vocab, ids, p->log_sum + first,
                              p->logp + first);
    p->head_done += n;
    if (!p->backward) return;
    if (!taught) {
        weigh_targets(p, first, n);
        p->train->softmax_grad(p->be, p->logits, n, p->c->vocab, ids, p->log_sum + first,
                               p->weight + first);
    }
    const kn_linear_grad back = {p->w->output, p->c->vocab, p->logits, p->c->vocab};
    p->train->linear_backward(p->be, &back, 1, n, p->c->hidden, false, p->d_tail_x);
    p->train->clear(p->be, p->d_tail, (size_t)n * (size_t)p->c->hidden);
    p->train->rmsnorm_backward(p->be, p->tail, p->w->output_norm, p->c->rms_eps, p->d_tail_x, n,
                               p->c->hidden, p->d_tail);
    p->train->scatter_add(p->be, p->d_tail, p->target_rows + first, n, p->c->hidden, p->d.h);
}

/* --- the pass ------------------------------------------------------------------------------- */

static void read_sequence(train_pass *p, const train_sequence *sequences, size_t at)
{
    const train_sequence *s = &sequences[at];
    const float *teacher = s->teacher;
    for (int32_t i = row_map_add(&p->rows, sequences, at); p->n < p->rows.n_rows; i++) {
        if (s->adapted[i]) p->adapted_rows[p->n_adapted++] = p->n;
        p->ids[p->n] = s->ids[i];
        p->positions[p->n++] = i;
        if (!s->target[i + 1]) continue;
        p->teacher[p->n_targets] = teacher;
        if (teacher) teacher += p->c->hidden;
        p->target_rows[p->n_targets] = p->n - 1;
        p->target_ids[p->n_targets++] = s->ids[i + 1];
    }
}

/* Room for the adapter's u: an adapter of higher ranks than before makes the blocks anew. */
static pf_status fit_ranks(train_pass *p, pf_err *err)
{
    size_t rank = p->params ? layer_rank(p->params, p->c->n_layers) : 0;
    if (rank <= p->u_rank && p->n_blocks > 0) return PF_OK;
    free_blocks(p);
    if (rank > p->u_rank) p->u_rank = rank;
    pf_status status = alloc_blocks(p, err);
    if (status != PF_OK) free_blocks(p);
    return status;
}

pf_status train_pass_check(train_pass *p, pf_err *err)
{
    if (p->failure.status == PF_OK && p->ops->good && !p->ops->good(p->be)) {
        err_set(&p->failure, PF_FAILED, "the device failed: %s", kn_backend_error(p->be));
        p->ops->recover(p->be);
        p->unit = UNIT_END;
    }
    if (p->failure.status != PF_OK) *err = p->failure;
    return p->failure.status;
}

static pf_status check_batch(const train_pass *p, const train_sequence *s, size_t n, pf_err *err)
{
    row_count count = {0};
    for (size_t i = 0; i < n; i++) {
        if (s[i].length < 1) return err_set(err, PF_USAGE, "sequence %zu of the batch is empty", i);
        for (int32_t j = 0; j < s[i].length; j++)
            if (s[i].ids[j] < 0 || s[i].ids[j] >= p->c->vocab)
                return err_set(err, PF_USAGE,
                               "sequence %zu: token %d at %d is not in the vocabulary", i,
                               s[i].ids[j], j);
        if (!row_count_add(&count, s, i, p->max_rows) || count.rows > p->max_rows)
            return err_set(err, PF_USAGE,
                           "sequence %zu of the batch does not fit the %zu rows of a pass", i,
                           p->max_rows);
    }
    return PF_OK;
}

pf_status train_pass_begin(train_pass *p, train_params *params, const train_sequence *sequences,
                           size_t n_sequences, bool backward, double divisor, train_weigh weigh,
                           void *weigh_ctx, pf_err *err)
{
    pf_status status = check_batch(p, sequences, n_sequences, err);
    if (status != PF_OK) return status;
    p->params = params;
    status = fit_ranks(p, err);
    for (size_t i = 0; i < n_sequences && status == PF_OK; i++)
        if (sequences[i].teacher) status = alloc_teacher(p, err);
    if (status != PF_OK) return status;
    p->failure = (pf_err){0};
    p->kept = NULL;
    p->n = p->n_adapted = p->n_targets = 0;
    row_map_clear(&p->rows);
    for (size_t i = 0; i < n_sequences; i++)
        read_sequence(p, sequences, i);
    status = row_map_reserve(&p->rows, err);
    if (status != PF_OK) return status;
    p->backward = backward && params;
    p->divisor = divisor;
    p->weigh = weigh;
    p->weigh_ctx = weigh_ctx;
    p->ops->embed(p->be, p->w->embedding, p->ids, p->n, layer_input(p, 0));
    p->train->clear(p->be, p->d.h, (size_t)p->n * (size_t)p->c->hidden);
    p->unit = p->n > 0 ? UNIT_FORWARD : UNIT_END;
    p->layer = p->head_done = p->done = 0;
    int chunks = 0;
    for (; p->head_done < p->n_targets; chunks++)
        p->head_done += chunk_length(p);
    p->head_done = 0;
    int back = p->backward ? 2 * (p->c->n_layers - train_params_lowest_layer(params)) : 0;
    p->total = p->n > 0 ? p->c->n_layers + chunks + back : 0;
    return train_pass_check(p, err);
}

/* After the last layer's forward pass or a chunk of targets: what comes next. */
static unit_kind after_forward(train_pass *p)
{
    if (p->head_done < p->n_targets) return UNIT_HEAD;
    p->layer = p->c->n_layers - 1;
    bool nothing = !p->backward || p->n_targets == 0 || p->params->n_items == 0;
    return nothing ? UNIT_END : UNIT_BACKWARD_FFN;
}

static void advance_backward(train_pass *p)
{
    block *b = layer_block(p, p->layer);
    if (p->unit == UNIT_BACKWARD_FFN) {
        /* The shared block holds another layer's values by now. */
        bool kept = b != &p->blocks[0] || p->layer == p->c->n_layers - p->n_blocks;
        if (!kept) {
            forward_attention_half(p, b, p->layer, layer_input(p, p->layer));
            forward_ffn_half(p, b, p->layer, layer_input(p, p->layer + 1));
        }
        backward_ffn_half(p, b, p->layer);
        p->unit = UNIT_BACKWARD_ATTN;
        return;
    }
    backward_attention_half(p, b, p->layer);
    p->unit = --p->layer < train_params_lowest_layer(p->params) ? UNIT_END : UNIT_BACKWARD_FFN;
}

bool train_pass_advance(train_pass *p)
{
    if (p->unit == UNIT_END) return false;
    switch (p->unit) {
    case UNIT_FORWARD:
        forward_block(p, p->layer);
        if (++p->layer == p->c->n_layers) p->unit = after_forward(p);
        break;
    case UNIT_HEAD:
        head_chunk(p);
        p->unit = after_forward(p);
        break;
    default:
        advance_backward(p);
        break;
    }
    p->done++;
    pf_err err;
    return train_pass_check(p, &err) == PF_OK && p->unit != UNIT_END;
}

void train_pass_keep_states(train_pass *p, float *states)
{
    p->kept = states;
}

void train_pass_progress(const train_pass *p, int *done, int *total)
{
    *done = p->done;
    *total = p->total;
}

void train_pass_count(const train_pass *p, row_count *count)
{
    *count = (row_count){(size_t)p->rows.n_rows, (size_t)p->rows.n_tokens};
}

const float *train_pass_logp(const train_pass *p, size_t *n)
{
    *n = (size_t)p->n_targets;
    return p->logp;
}
