#include "models/model.h"

#include "base/mem.h"
#include "models/random_model.h"
#include "models/source.h"
#include "models/weights.h"

#include <ctype.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct model {
    model_source source;
    weight_set set;
    tokenizer *tok;
    chat_template *tmpl; /* NULL: template_err says why */
    pf_err template_err;
    unsigned char vocabulary_digest[32];
    unsigned char digest[32];
    bool has_digest;
    pthread_mutex_t digest_lock;
};

/* --- digest ----------------------------------------------------------------------------------- */

static void hash_number(crypto_generichash_state *h, int64_t number)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)number >> (8 * i));
    crypto_generichash_update(h, bytes, sizeof bytes);
}

static void hash_text(crypto_generichash_state *h, const char *text, size_t len)
{
    hash_number(h, (int64_t)len);
    crypto_generichash_update(h, (const unsigned char *)text, len);
}

/* The texts are gone once the tokenizer is made, so they are hashed before. */
static void hash_vocabulary(const vocabulary *v, unsigned char out[32])
{
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, 32);
    hash_text(&h, v->pretokenizer ? v->pretokenizer : "",
              v->pretokenizer ? strlen(v->pretokenizer) : 0);
    hash_number(&h, v->add_bos | v->ignore_merges << 1 | v->nfc << 2);
    hash_number(&h, v->bos_id);
    hash_number(&h, (int64_t)v->n_tokens);
    for (size_t i = 0; i < v->n_tokens; i++) {
        hash_number(&h, v->kinds[i]);
        hash_text(&h, v->pieces[i], v->piece_lengths[i]);
    }
    hash_number(&h, (int64_t)v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++)
        hash_text(&h, v->merges[i], v->merge_lengths[i]);
    crypto_generichash_final(&h, out, 32);
}

static void hash_config(crypto_generichash_state *h, const model_config *c)
{
    const int64_t numbers[] = {c->arch,       c->n_layers, c->hidden, c->n_heads,
                               c->n_kv_heads, c->head_dim, c->ff,     c->vocab};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash_number(h, numbers[i]);
    crypto_generichash_update(h, (const unsigned char *)&c->rms_eps, sizeof c->rms_eps);
    /* As float32: the last digits of a double differ between mathematical libraries. */
    for (int32_t i = 0; i < c->head_dim / 2; i++) {
        float f = (float)c->rope_inv_freq[i];
        crypto_generichash_update(h, (const unsigned char *)&f, sizeof f);
    }
}

/* Name, type, shape and content: whole when small, else blocks spread from the first byte to the
 * last, so that the time does not grow with the model. */
static void hash_tensor(crypto_generichash_state *h, const tensor *t)
{
    enum { BLOCK = 4096, BLOCKS = 16 };
    const unsigned char *data = t->data;
    hash_text(h, t->name, t->name_len);
    hash_number(h, t->type);
    hash_number(h, t->n_dims);
    for (int i = 0; i < t->n_dims; i++)
        hash_number(h, t->dims[i]);
    if (t->bytes <= (size_t)BLOCK * BLOCKS) {
        crypto_generichash_update(h, data, t->bytes);
        return;
    }
    size_t step = (t->bytes - BLOCK) / (BLOCKS - 1);
    for (size_t i = 0; i + 1 < BLOCKS; i++)
        crypto_generichash_update(h, data + i * step, BLOCK);
    crypto_generichash_update(h, data + t->bytes - BLOCK, BLOCK);
}

const unsigned char *model_digest(const model *m)
{
    model *own = (model *)(uintptr_t)m; /* a cache behind a lock; m stays the same to readers */
    pthread_mutex_lock(&own->digest_lock);
    if (!own->has_digest) {
        crypto_generichash_state h;
        crypto_generichash_init(&h, NULL, 0, 32);
        hash_text(&h, "preft-model-1", 13);
        hash_config(&h, &m->source.config);
        crypto_generichash_update(&h, m->vocabulary_digest, 32);
        hash_number(&h, m->source.names);
        hash_number(&h, m->source.tied);
        for (size_t i = 0; i < m->source.tensors.n; i++) /* sorted by name */
            hash_tensor(&h, &m->source.tensors.items[i]);
        crypto_generichash_final(&h, own->digest, 32);
        own->has_digest = true;
    }
    pthread_mutex_unlock(&own->digest_lock);
    return own->digest;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* End-of-turn and end-of-text markers of the known families: a model that writes one has ended its
 * answer, whether or not the file lists it. */
static void add_known_stops(model_source *s, const tokenizer *t)
{
    static const char *const markers[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>",
                                          "<|end_of_text|>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++) {
        int32_t id = tokenizer_find_special(t, markers[i]);
        if (id >= 0 && tokenizer_kind(t, id) == TOKEN_CONTROL) model_source_add_stop(s, id);
    }
}

static pf_status open_tokenizer(model *m, const model_options *options, pf_err *err)
{
    vocabulary *v = &m->source.vocab;
    const char *chosen = options ? options->pretokenizer_name : NULL;
    if (chosen) {
        free(v->pretokenizer);
        v->pretokenizer = xstrdup(chosen);
    }
    hash_vocabulary(v, m->vocabulary_digest);
    const tokenizer_source source = {
        .name = m->source.path,
        .pretokenizer = v->pretokenizer,
        .n_tokens = v->n_tokens,
        .pieces = v->pieces,
        .piece_lengths = v->piece_lengths,
        .kinds = v->kinds,
        .n_merges = v->n_merges,
        .merges = v->merges,
        .merge_lengths = v->merge_lengths,
        .add_bos = v->add_bos,
        .bos_id = v->bos_id,
        .eos_id = v->eos_id,
        .ignore_merges = v->ignore_merges,
        .nfc = v->nfc,
    };
    pf_status status = tokenizer_create(&source, &m->tok, err);
    if (status != PF_OK) return status;
    add_known_stops(&m->source, m->tok);
    vocabulary_free(v);
    pf_status known =
        chat_template_create(options ? options->template_name : NULL, m->source.template_text,
                             m->source.template_len, m->tok, &m->tmpl, &m->template_err);
    if (known != PF_OK) m->template_err.status = known;
    return PF_OK;
}

/* The file's name without folder and ending. */
static char *name_from_path(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t start = len;
    while (start > 0 && path[start - 1] != '/')
        start--;
    static const char ending[] = ".gguf";
    const size_t ending_len = sizeof ending - 1;
    if (len - start > ending_len && memcmp(path + len - ending_len, ending, ending_len) == 0)
        len -= ending_len;
    return xstrdup(quote_bytes(path + start, len - start).text);
}

pf_status model_open(const char *path, const model_options *options, model **out, pf_err *err)
{
    *out = NULL;
    if (sodium_init() < 0) return err_set(err, PF_FAILED, "the cryptographic library can't start");
    model *m = xcalloc(1, sizeof *m);
    pthread_mutex_init(&m->digest_lock, NULL);
    pf_status status = random_model_named(path) ? random_model_read(path, &m->source, err)
                       : file_is_folder(path)   ? hf_model_read(path, &m->source, err)
                                                : gguf_model_read(path, &m->source, err);
    if (status != PF_OK) goto out;
    m->source.config.rope_inv_freq = m->source.inv_freq;
    status = weight_set_build(&m->source, &m->set, err);
    if (status == PF_OK) status = open_tokenizer(m, options, err);
    if (status != PF_OK) goto out;
    if (!m->source.name) m->source.name = name_from_path(path);
    *out = m;
    m = NULL;
out:
    model_close(m);
    return status;
}

void model_close(model *m)
{
    if (!m) return;
    chat_template_free(m->tmpl);
    tokenizer_free(m->tok);
    weight_set_free(&m->set);
    model_source_free(&m->source);
    pthread_mutex_destroy(&m->digest_lock);
    free(m);
}

const model_config *model_get_config(const model *m)
{
    return &m->source.config;
}

const model_weights *model_get_weights(const model *m)
{
    return &m->set.weights;
}

const tokenizer *model_get_tokenizer(const model *m)
{
    return m->tok;
}

pf_status model_template(const model *m, const chat_template **out, pf_err *err)
{
    *out = m->tmpl;
    if (m->tmpl) return PF_OK;
    return err_set(err, m->template_err.status, "%s: %s", m->source.path, m->template_err.text);
}

const char *model_name(const model *m)
{
    return m->source.name;
}

void model_name_squeeze(const char *name, size_t len, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++)
        if (isalnum((unsigned char)name[i])) out[n++] = (char)tolower((unsigned char)name[i]);
    out[n] = '\0';
}

const char *model_path(const model *m)
{
    return m->source.path;
}

void model_release_pages(const model *m)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < m->source.n_maps; i++) {
        const file_map *map = &m->source.maps[i];
        if (map->data)
            (void)madvise((void *)((uintptr_t)map->data & ~(page - 1)), map->size, MADV_DONTNEED);
    }
}
