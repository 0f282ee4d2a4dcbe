/* GGUF keys and tensors to a model_source. */
#include "models/gguf.h"
#include "models/model.h"
#include "models/pretokenizer.h"
#include "models/rope.h"
#include "models/source.h"
#include "models/weights.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const gguf *g;
    model_source *out;
    pf_err *err;
    char prefix[16]; /* of the architecture's keys */
} loader;

/* The full name of an architecture's key, in a caller's buffer. */
typedef struct {
    char text[96];
} key_text;

static key_text arch_key(const loader *l, const char *name)
{
    key_text key;
    snprintf(key.text, sizeof key.text, "%s.%s", l->prefix, name);
    return key;
}

static pf_status arch_int(const loader *l, const char *name, bool required, int64_t high,
                          int32_t *out)
{
    int64_t value = *out;
    pf_status status =
        gguf_get_int(l->g, arch_key(l, name).text, required, 1, high, &value, l->err);
    *out = (int32_t)value;
    return status;
}

static pf_status read_architecture(loader *l)
{
    const char *text = NULL;
    size_t len = 0;
    pf_status status = gguf_get_string(l->g, "general.architecture", true, &text, &len, l->err);
    if (status != PF_OK) return status;
    for (architecture a = 0; a < ARCH_COUNT; a++) {
        const char *name = architecture_name(a);
        if (strlen(name) != len || memcmp(name, text, len) != 0) continue;
        l->out->config.arch = a;
        snprintf(l->prefix, sizeof l->prefix, "%s", name);
        return PF_OK;
    }
    return err_set(l->err, PF_REFUSED,
                   "%s: unsupported architecture \"%s\"; llama, qwen2 and qwen3 are supported",
                   l->g->name, quote_bytes(text, len).text);
}

/* Keys that change the arithmetic in ways this program does not compute: refused unless they say
 * "none" (0 for counts, 1 for factors). */
static pf_status refuse_variants(const loader *l)
{
    static const struct {
        const char *name;
        double neutral;
    } variants[] = {
        {"expert_count", 0},
        {"expert_used_count", 0},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"attention.scale", 0},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"logit_scale", 1},
        {"residual_scale", 1},
        {"embedding_scale", 1},
        {"rope.scaling.attn_factor", 1},
        {"rope.scaling.yarn_log_multiplier", 0},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        double value = variants[i].neutral;
        key_text key = arch_key(l, variants[i].name);
        pf_status status =
            gguf_get_real(l->g, key.text, false, -INFINITY, INFINITY, &value, l->err);
        if (status != PF_OK) return status;
        if (value != variants[i].neutral)
            return err_set(l->err, PF_REFUSED, "%s: key \"%s\" is %g, which is not supported",
                           l->g->name, key.text, value);
    }
    bool causal = true;
    pf_status status = gguf_get_bool(l->g, arch_key(l, "attention.causal").text, &causal, l->err);
    if (status == PF_OK && !causal)
        return err_set(l->err, PF_REFUSED, "%s: key \"%s\" is false: not a model that writes text",
                       l->g->name, arch_key(l, "attention.causal").text);
    int64_t parts = 0;
    if (status == PF_OK)
        status = gguf_get_int(l->g, "split.count", false, 0, 65535, &parts, l->err);
    if (status == PF_OK && parts > 1)
        return err_set(l->err, PF_REFUSED,
                       "%s is one part of a model in %lld files (key \"split.count\"); join them "
                       "into one file first",
                       l->g->name, (long long)parts);
    return status;
}

static pf_status read_heads(const loader *l)
{
    model_config *c = &l->out->config;
    const char *file = l->g->name;
    pf_status status = arch_int(l, "attention.head_count", true, MODEL_MAX_HEADS, &c->n_heads);
    if (status == PF_OK)
        status = arch_int(l, "attention.head_count_kv", true, MODEL_MAX_HEADS, &c->n_kv_heads);
    if (status == PF_OK)
        status = arch_int(l, "attention.key_length", false, MODEL_MAX_HEAD_DIM, &c->head_dim);
    if (status != PF_OK) return status;
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"%s\" is %d, which does not divide the %d "
                       "heads of \"%s\"",
                       file, arch_key(l, "attention.head_count_kv").text, c->n_kv_heads, c->n_heads,
                       arch_key(l, "attention.head_count").text);
    if (c->n_heads / c->n_kv_heads > MODEL_MAX_GROUP)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"%s\" is %d: %d heads of \"%s\" share each of these; at most %d "
                       "can",
                       file, arch_key(l, "attention.head_count_kv").text, c->n_kv_heads,
                       c->n_heads / c->n_kv_heads, arch_key(l, "attention.head_count").text,
                       MODEL_MAX_GROUP);
    if (c->head_dim == 0) {
        if (c->hidden % c->n_heads != 0)
            return err_set(l->err, PF_REFUSED,
                           "%s: key \"%s\" is %d, which the %d heads of \"%s\" "
                           "do not divide",
                           file, arch_key(l, "embedding_length").text, c->hidden, c->n_heads,
                           arch_key(l, "attention.head_count").text);
        c->head_dim = c->hidden / c->n_heads;
    }
    if (c->head_dim % 2 != 0)
        return err_set(l->err, PF_REFUSED,
                       "%s: the head size %d (keys \"%s\" and \"%s\") is odd; "
                       "rotary embeddings need an even one",
                       file, c->head_dim, arch_key(l, "embedding_length").text,
                       arch_key(l, "attention.head_count").text);
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    for (size_t i = 0; i < 2; i++) {
        int32_t value = c->head_dim;
        status = arch_int(l, same[i], false, MODEL_MAX_HEAD_DIM, &value);
        if (status != PF_OK) return status;
        if (value != c->head_dim)
            return err_set(l->err, PF_REFUSED, "%s: key \"%s\" is %d; it must be the head size %d",
                           file, arch_key(l, same[i]).text, value, c->head_dim);
    }
    return PF_OK;
}

static pf_status read_shape(const loader *l)
{
    model_config *c = &l->out->config;
    double eps = 0;
    pf_status status = arch_int(l, "block_count", true, MODEL_MAX_LAYERS, &c->n_layers);
    if (status == PF_OK)
        status = arch_int(l, "embedding_length", true, MODEL_MAX_WIDTH, &c->hidden);
    if (status == PF_OK) status = arch_int(l, "feed_forward_length", true, MODEL_MAX_FF, &c->ff);
    if (status == PF_OK)
        status = arch_int(l, "context_length", true, MODEL_MAX_CONTEXT, &c->context);
    if (status == PF_OK) status = read_heads(l);
    if (status == PF_OK)
        status = gguf_get_real(l->g, arch_key(l, "attention.layer_norm_rms_epsilon").text, true, 0,
                               1, &eps, l->err);
    if (status != PF_OK) return status;
    c->rms_eps = (float)eps;

    int32_t window = c->context;
    status = arch_int(l, "attention.sliding_window", false, MODEL_MAX_CONTEXT, &window);
    if (status == PF_OK && window < c->context)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"%s\" is %d: attention in a sliding window is not supported",
                       l->g->name, arch_key(l, "attention.sliding_window").text, window);
    return status;
}

/* --- rotary frequencies ----------------------------------------------------------------------- */

/* rope_freqs.weight: the frequency of pair i is divided by element i. */
static pf_status apply_rope_freqs(const loader *l)
{
    static const char name[] = "rope_freqs.weight";
    model_source *s = l->out;
    const tensor *t = tensor_table_find(&s->tensors, name);
    if (!t || s->config.arch != ARCH_LLAMA) return PF_OK; /* elsewhere: refused as unused */
    int32_t half = s->config.head_dim / 2;
    if (t->type != KN_F32 || t->n_dims != 1 || t->dims[0] != half)
        return err_set(l->err, PF_REFUSED,
                       "%s: tensor \"%s\" is %s of shape %s; F32 of shape [%d] is expected",
                       l->g->name, name, kn_type_get(t->type)->name,
                       shape_words(t->dims, t->n_dims).text, half);
    const float *factors = t->data;
    for (int32_t i = 0; i < half; i++) {
        if (!isfinite(factors[i]) || factors[i] <= 0)
            return err_set(l->err, PF_REFUSED,
                           "%s: tensor \"%s\": element %d is %g; it must be above 0", l->g->name,
                           name, i, (double)factors[i]);
        s->inv_freq[i] /= (double)factors[i];
    }
    model_source_mark_used(s, name);
    return PF_OK;
}

static pf_status read_rope(const loader *l)
{
    model_source *s = l->out;
    int32_t half = s->config.head_dim / 2;
    double theta = 0, factor = 1;
    pf_status status =
        gguf_get_real(l->g, arch_key(l, "rope.freq_base").text, true, 0, 1e12, &theta, l->err);
    if (status != PF_OK) return status;
    s->inv_freq = rope_frequencies(theta, s->config.head_dim);

    const char *type = "none";
    size_t len = 4;
    key_text type_key = arch_key(l, "rope.scaling.type");
    key_text factor_key = arch_key(l, "rope.scaling.factor");
    status = gguf_get_string(l->g, type_key.text, false, &type, &len, l->err);
    if (status == PF_OK)
        status = gguf_get_real(l->g, arch_key(l, "rope.scale_linear").text, false, 0, 1e6, &factor,
                               l->err);
    if (status == PF_OK)
        status = gguf_get_real(l->g, factor_key.text, false, 0, 1e6, &factor, l->err);
    if (status != PF_OK) return status;
    bool none = len == 4 && memcmp(type, "none", 4) == 0;
    bool linear = len == 6 && memcmp(type, "linear", 6) == 0;
    if (!none && !linear)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"%s\" is \"%s\"; none and linear are supported", l->g->name,
                       type_key.text, quote_bytes(type, len).text);
    /* Files of the time before the type key give a factor alone and mean linear. */
    if (linear || !gguf_find(l->g, type_key.text)) rope_scale_linear(s->inv_freq, half, factor);
    return apply_rope_freqs(l);
}

/* --- tokenizer -------------------------------------------------------------------------------- */

static pf_status read_strings(const loader *l, const char *key, const gguf_value *v,
                              const char **texts, size_t *lengths)
{
    const unsigned char *cursor = v->data;
    for (uint64_t i = 0; i < v->count; i++) {
        texts[i] = gguf_next_string(&cursor, &lengths[i]);
        if (memchr(texts[i], '\0', lengths[i]))
            return err_set(l->err, PF_REFUSED, "%s: element %llu of key \"%s\" holds a NUL byte",
                           l->g->name, (unsigned long long)i, key);
    }
    return PF_OK;
}

static pf_status read_token_types(const loader *l, const gguf_value *types)
{
    /* normal, unknown, control, user-defined, unused; 6 (byte) belongs to other tokenizers */
    static const token_kind kinds[] = {[1] = TOKEN_NORMAL,
                                       [2] = TOKEN_CONTROL,
                                       [3] = TOKEN_CONTROL,
                                       [4] = TOKEN_ADDED,
                                       [5] = TOKEN_UNUSED};
    vocabulary *v = &l->out->vocab;
    if (types->count != v->n_tokens)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"tokenizer.ggml.token_type\" has %llu elements, but there are %zu "
                       "tokens",
                       l->g->name, (unsigned long long)types->count, v->n_tokens);
    for (size_t i = 0; i < v->n_tokens; i++) {
        int32_t type;
        memcpy(&type, types->data + 4 * i, sizeof type);
        if (type < 1 || type > 5)
            return err_set(l->err, PF_REFUSED,
                           "%s: element %zu of key \"tokenizer.ggml.token_type\" is %d; a "
                           "byte-level vocabulary has types 1 to 5",
                           l->g->name, i, type);
        v->kinds[i] = kinds[type];
    }
    return PF_OK;
}

static pf_status read_vocabulary(const loader *l)
{
    vocabulary *v = &l->out->vocab;
    const gguf_value *tokens = NULL, *types = NULL, *merges = NULL;
    pf_status status =
        gguf_get_array(l->g, "tokenizer.ggml.tokens", true, GGUF_STRING, &tokens, l->err);
    if (status == PF_OK)
        status = gguf_get_array(l->g, "tokenizer.ggml.token_type", true, GGUF_I32, &types, l->err);
    if (status == PF_OK)
        status = gguf_get_array(l->g, "tokenizer.ggml.merges", true, GGUF_STRING, &merges, l->err);
    if (status != PF_OK) return status;
    if (tokens->count != (uint64_t)l->out->config.vocab)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"tokenizer.ggml.tokens\" has %llu elements, but the embedding "
                       "matrix has %d rows",
                       l->g->name, (unsigned long long)tokens->count, l->out->config.vocab);
    vocabulary_reserve_tokens(v, (size_t)tokens->count);
    vocabulary_reserve_merges(v, (size_t)merges->count);
    status = read_strings(l, "tokenizer.ggml.tokens", tokens, v->pieces, v->piece_lengths);
    if (status == PF_OK) status = read_token_types(l, types);
    if (status == PF_OK)
        status = read_strings(l, "tokenizer.ggml.merges", merges, v->merges, v->merge_lengths);
    return status;
}

/* A token id key: within the vocabulary, absent = -1. */
static pf_status read_id(const loader *l, const char *key, int32_t *out)
{
    int64_t id = -1;
    pf_status status = gguf_get_int(l->g, key, false, 0, l->out->config.vocab - 1, &id, l->err);
    *out = (int32_t)id;
    return status;
}

static pf_status read_tokenizer(const loader *l)
{
    static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id",
                                           "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
    vocabulary *v = &l->out->vocab;
    const char *kind = NULL, *pre = NULL;
    size_t len = 0, pre_len = 0;
    pf_status status = gguf_get_string(l->g, "tokenizer.ggml.model", true, &kind, &len, l->err);
    if (status != PF_OK) return status;
    if (len != 4 || memcmp(kind, "gpt2", 4) != 0)
        return err_set(l->err, PF_REFUSED,
                       "%s: unsupported tokenizer \"%s\" (key \"tokenizer.ggml.model\"); gpt2 "
                       "(byte-level BPE) is supported",
                       l->g->name, quote_bytes(kind, len).text);
    status = gguf_get_string(l->g, "tokenizer.ggml.pre", false, &pre, &pre_len, l->err);
    if (status == PF_OK) status = read_vocabulary(l);
    if (status == PF_OK) status = read_id(l, "tokenizer.ggml.bos_token_id", &v->bos_id);
    for (size_t i = 0; i < 3 && status == PF_OK; i++) {
        int32_t id = -1;
        status = read_id(l, end_keys[i], &id);
        if (i == 0) v->eos_id = id;
        model_source_add_stop(l->out, id);
    }
    if (status != PF_OK) return status;
    if (pre) v->pretokenizer = xmemdup0(pre, pre_len);
    pretokenizer_traits traits = {0};
    if (pre) pretokenizer_get_traits(v->pretokenizer, &traits);
    v->nfc = traits.nfc;
    v->ignore_merges = traits.ignore_merges;
    v->add_bos = traits.add_bos;
    return gguf_get_bool(l->g, "tokenizer.ggml.add_bos_token", &v->add_bos, l->err);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The vocabulary's size is the embedding's number of rows; the key, where there is one, agrees. */
static pf_status read_vocab_size(const loader *l)
{
    model_source *s = l->out;
    const tensor *t = tensor_table_find(&s->tensors, "token_embd.weight");
    if (!t)
        return err_set(l->err, PF_REFUSED, "%s: missing tensor \"token_embd.weight\"", l->g->name);
    if (t->n_dims != 2 || t->dims[0] > MODEL_MAX_VOCAB)
        return err_set(l->err, PF_REFUSED, "%s: tensor \"token_embd.weight\" has the shape %s",
                       l->g->name, shape_words(t->dims, t->n_dims).text);
    s->config.vocab = (int32_t)t->dims[0];
    int32_t stated = s->config.vocab;
    pf_status status = arch_int(l, "vocab_size", false, MODEL_MAX_VOCAB, &stated);
    if (status == PF_OK && stated != s->config.vocab)
        return err_set(l->err, PF_REFUSED,
                       "%s: key \"%s\" is %d, but tensor \"token_embd.weight\" has %d rows",
                       l->g->name, arch_key(l, "vocab_size").text, stated, s->config.vocab);
    return status;
}

#define NAME_ROOM 256

static pf_status squeezed(const loader *l, const char *key, char out[NAME_ROOM])
{
    const char *text = "";
    size_t len = 0;
    pf_status status = gguf_get_string(l->g, key, false, &text, &len, l->err);
    if (status == PF_OK) model_name_squeeze(text, len, out, NAME_ROOM);
    return status;
}

/* GGUF's naming convention: a file is called BaseName-SizeLabel-... Such a name is the one that
 * people know; general.name is often the folder of a training run. */
static pf_status named_by_convention(const loader *l, bool *out)
{
    char base[NAME_ROOM] = "", size[NAME_ROOM] = "", name[NAME_ROOM];
    const char *file = path_base(l->g->name);
    pf_status status = squeezed(l, "general.basename", base);
    if (status == PF_OK) status = squeezed(l, "general.size_label", size);
    model_name_squeeze(file, strlen(file), name, sizeof name);
    const size_t len = strlen(base);
    *out = len > 0 && *size && strncmp(name, base, len) == 0 && strstr(name + len, size);
    return status;
}

static pf_status read_name(const loader *l)
{
    const char *text = NULL;
    size_t len = 0;
    bool by_file = false;
    pf_status status = named_by_convention(l, &by_file);
    if (status == PF_OK) status = gguf_get_string(l->g, "general.name", false, &text, &len, l->err);
    if (status == PF_OK && text && len > 0 && !by_file)
        l->out->name = xstrdup(quote_bytes(text, len).text);
    return status;
}

static pf_status read_template(const loader *l)
{
    model_source *s = l->out;
    const char *text = NULL;
    size_t len = 0;
    pf_status status = gguf_get_string(l->g, "tokenizer.chat_template", false, &text, &len, l->err);
    if (status != PF_OK || !text) return status;
    s->template_text = xmemdup0(text, len);
    s->template_len = len;
    return PF_OK;
}

pf_status gguf_model_read(const char *path, model_source *out, pf_err *err)
{
    gguf g = {0};
    *out = (model_source){.path = xstrdup(path), .names = NAMES_GGUF};
    loader l = {.g = &g, .out = out, .err = err};
    out->maps = xcalloc(1, sizeof *out->maps);
    pf_status status = file_map_open(path, &out->maps[0], err);
    if (status != PF_OK) goto out;
    out->n_maps = 1;
    status = gguf_parse(out->maps[0].data, out->maps[0].size, out->path, &g, err);
    if (status == PF_OK) status = read_architecture(&l);
    if (status == PF_OK) status = refuse_variants(&l);
    if (status == PF_OK) status = read_shape(&l);
    if (status != PF_OK) goto out;
    out->tensors = g.tensors; /* moved */
    g.tensors = (tensor_table){0};
    model_source_index(out);
    out->tied = !tensor_table_find(&out->tensors, "output.weight");
    status = read_vocab_size(&l);
    if (status == PF_OK) status = read_rope(&l);
    if (status == PF_OK) status = read_tokenizer(&l);
    if (status == PF_OK) status = read_name(&l);
    if (status == PF_OK) status = read_template(&l);
out:
    gguf_free(&g);
    return status;
}
