#include "models/random_model.h"

#include "base/mem.h"
#include "models/rope.h"
#include "models/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

static const char prefix[] = "random:";

bool random_model_named(const char *path)
{
    return strncmp(path, prefix, sizeof prefix - 1) == 0;
}

/* --- values --------------------------------------------------------------------------------- */

/* Where a block keeps its factors (F16): they are set to 2^-9, all else of a block may be anything.
 */
static const struct {
    int n, at[2];
} factors[KN_TYPE_COUNT] = {
    [KN_Q8_0] = {1, {0}},    [KN_Q4_0] = {1, {0}},    [KN_Q4_1] = {2, {0, 2}},
    [KN_Q4_K] = {2, {0, 2}}, [KN_Q5_K] = {2, {0, 2}}, [KN_Q6_K] = {1, {208}},
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random blocks of a type; floats lie within +-1/32. */
static void fill_blocks(kn_type type, unsigned char *data, size_t bytes)
{
    const uint16_t factor = kn_f32_to_f16(1.0f / 512);
    const size_t block = (size_t)kn_type_get(type)->block_bytes;
    uint64_t state = 0x9e3779b97f4a7c15u;
    if (kn_type_get(type)->quantized) {
        for (size_t i = 0; i + 8 <= bytes; i += 8) {
            uint64_t r = next_random(&state);
            memcpy(data + i, &r, sizeof r);
        }
        for (size_t at = 0; at < bytes; at += block)
            for (int f = 0; f < factors[type].n; f++)
                memcpy(data + at + factors[type].at[f], &factor, sizeof factor);
        return;
    }
    for (size_t at = 0; at < bytes; at += block) {
        float f = (float)((double)(next_random(&state) >> 11) / 9007199254740992.0 - 0.5) / 16;
        uint16_t half = type == KN_F16 ? kn_f32_to_f16(f) : kn_f32_to_bf16(f);
        memcpy(data + at, type == KN_F32 ? (const void *)&f : (const void *)&half, block);
    }
}

/* --- tensors -------------------------------------------------------------------------------- */

typedef struct {
    model_source *out;
    kn_type type;
    const unsigned char *matrices; /* the block that all matrices share */
    const float *ones;             /* and the one of all vectors */
    char *names;                   /* where the next tensor's name goes */
} plan;

enum { MAX_NAME = 48, MAX_LAYER_TENSORS = MAP_COUNT + 3 + 4, OTHER_TENSORS = 3 };

static void add_tensor(plan *p, const char *name, kn_type type, int64_t rows, int64_t cols)
{
    tensor t = {.type = type, .n_dims = rows ? 2 : 1, .data = p->ones};
    t.dims[0] = rows ? rows : cols;
    t.dims[1] = rows ? cols : 0;
    if (rows) t.data = p->matrices;
    t.bytes = kn_row_bytes(type, cols) * (size_t)(rows ? rows : 1);
    t.name_len = strlen(name);
    t.name = memcpy(p->names, name, t.name_len);
    p->names += t.name_len;
    tensor_table_add(&p->out->tensors, &t);
}

static void add_layer(plan *p, int index)
{
    static const char *const maps[MAP_COUNT] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                                "ffn_gate", "ffn_up", "ffn_down"};
    const model_config *c = &p->out->config;
    char name[MAX_NAME];
    for (int m = 0; m < MAP_COUNT; m++) {
        int64_t in, rows;
        linear_map_shape(c, (linear_map)m, &in, &rows);
        snprintf(name, sizeof name, "blk.%d.%s.weight", index, maps[m]);
        add_tensor(p, name, p->type, rows, in);
        if (c->arch != ARCH_QWEN2 || m > MAP_V) continue;
        snprintf(name, sizeof name, "blk.%d.%s.bias", index, maps[m]);
        add_tensor(p, name, KN_F32, 0, rows);
    }
    static const char *const norms[] = {"attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"};
    for (int i = 0; i < (c->arch == ARCH_QWEN3 ? 4 : 2); i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", index, norms[i]);
        add_tensor(p, name, KN_F32, 0, i < 2 ? c->hidden : c->head_dim);
    }
}

static int64_t widest(const model_config *c)
{
    int64_t q = (int64_t)c->n_heads * c->head_dim;
    return q > c->hidden ? q : c->hidden;
}

/* One private mapping holds the matrices' block, behind it the vectors' ones and the names. */
static pf_status make_values(plan *p, pf_err *err)
{
    const model_config *c = &p->out->config;
    int64_t rows = c->vocab > c->ff ? c->vocab : c->ff;
    size_t wide = kn_row_bytes(p->type, c->hidden) * (size_t)rows;
    size_t down = kn_row_bytes(p->type, c->ff) * (size_t)c->hidden;
    size_t matrices = ((wide > down ? wide : down) + 63) / 64 * 64;
    size_t vectors = (size_t)widest(c) * sizeof(float);
    size_t names = (size_t)(c->n_layers * MAX_LAYER_TENSORS + OTHER_TENSORS) * MAX_NAME;
    size_t total = matrices + vectors + names;
    unsigned char *data =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return err_set(err, PF_FAILED, "%s: no memory for %zu bytes of random weights",
                       p->out->path, total);
    p->out->maps = xcalloc(1, sizeof *p->out->maps);
    p->out->maps[0] = (file_map){data, total};
    p->out->n_maps = 1;
    fill_blocks(p->type, data,
                matrices / (size_t)kn_type_get(p->type)->block_bytes *
                    (size_t)kn_type_get(p->type)->block_bytes);
    float *ones = (float *)(void *)(data + matrices);
    for (int64_t i = 0; i < widest(c); i++)
        ones[i] = 1;
    p->matrices = data;
    p->ones = ones;
    p->names = (char *)(data + matrices + vectors);
    return PF_OK;
}

/* --- vocabulary ----------------------------------------------------------------------------- */

/* The character that stands for a byte in GPT-2's alphabet, as UTF-8; returns its length. */
static size_t byte_character(int byte, char out[2])
{
    int c = 0, others = 0;
    for (int b = 0; b <= byte; b++) {
        bool itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
        c = itself ? b : 256 + others++;
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static void make_vocabulary(model_source *out)
{
    vocabulary *v = &out->vocab;
    size_t n = (size_t)out->config.vocab;
    vocabulary_reserve_tokens(v, n);
    buf_reserve(&v->arena, n * 20); /* in full: pieces point into it */
    v->pretokenizer = xstrdup("smollm");
    v->bos_id = v->eos_id = -1;
    for (size_t i = 0; i < n; i++) {
        char text[32];
        size_t len = i < 256 ? byte_character((int)i, text)
                             : (size_t)snprintf(text, sizeof text, "<unused%zu>", i);
        v->pieces[i] = (const char *)v->arena.data + v->arena.len;
        v->piece_lengths[i] = len;
        v->kinds[i] = i < 256 ? TOKEN_NORMAL : TOKEN_UNUSED;
        buf_append(&v->arena, text, len);
    }
    v->n_tokens = n;
}

/* --- reading a name ------------------------------------------------------------------------- */

static pf_status refuse_shape(const char *path, pf_err *err)
{
    char list[400] = "";
    size_t n, len = 0;
    const model_shape *shapes = model_shapes(&n);
    for (size_t i = 0; i < n; i++)
        len +=
            (size_t)snprintf(list + len, sizeof list - len, "%s%s", i ? ", " : "", shapes[i].name);
    return err_set(err, PF_REFUSED, "%s: unknown shape; known are: %s", path, list);
}

static pf_status read_type(const char *path, const char *name, const model_shape *shape,
                           kn_type *out, pf_err *err)
{
    *out = KN_Q4_0;
    for (kn_type t = 0; name && t < KN_TYPE_COUNT; t++)
        if (strcasecmp(name, kn_type_get(t)->name) == 0) {
            *out = t;
            name = NULL;
        }
    if (name) return err_set(err, PF_REFUSED, "%s: \"%s\" is no type of weights", path, name);
    int block = kn_type_get(*out)->block;
    if (shape->hidden % block || shape->ff % block)
        return err_set(err, PF_REFUSED,
                       "%s: rows of %d and %d values are no whole number of %s blocks of %d; Q4_0 "
                       "and Q8_0 fit",
                       path, shape->hidden, shape->ff, kn_type_get(*out)->name, block);
    return PF_OK;
}

pf_status random_model_read(const char *path, model_source *out, pf_err *err)
{
    *out = (model_source){.path = xstrdup(path), .names = NAMES_GGUF};
    const char *name = path + sizeof prefix - 1, *colon = strchr(name, ':');
    size_t name_len = colon ? (size_t)(colon - name) : strlen(name);
    const model_shape *shape = model_shape_find(name, name_len);
    if (!shape) return refuse_shape(path, err);
    plan p = {.out = out};
    pf_status status = read_type(path, colon ? colon + 1 : NULL, shape, &p.type, err);
    if (status != PF_OK) return status;
    out->config = model_shape_config(shape);
    out->inv_freq = rope_frequencies(shape->rope_theta, shape->head_dim);
    out->tied = shape->tied;
    out->name = xstrdup(path);
    status = make_values(&p, err);
    if (status != PF_OK) return status;
    make_vocabulary(out);
    add_tensor(&p, "token_embd.weight", p.type, shape->vocab, shape->hidden);
    add_tensor(&p, "output_norm.weight", KN_F32, 0, shape->hidden);
    if (!shape->tied) add_tensor(&p, "output.weight", p.type, shape->vocab, shape->hidden);
    for (int i = 0; i < shape->n_layers; i++)
        add_layer(&p, i);
    status = tensor_table_sort(&out->tensors, path, err);
    if (status == PF_OK) model_source_index(out);
    return status;
}
