/* tokenizer.json to a vocabulary. What a tokenizer does is recognised from its own description
 * (normalizer, pre_tokenizer, post_processor); anything this program does not do is refused. */
#include "models/hf.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WORDS        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Regular expressions of Split pre-tokenizers, as files write them, and whose they are. */
static const struct {
    const char *regex, *name;
} splits[] = {
    {CONTRACTIONS WORDS "\\p{N}{1,3}" REST, "llama-bpe"},
    {CONTRACTIONS WORDS "\\p{N}" REST, "qwen2"},
};

typedef struct {
    const char *path; /* of tokenizer.json */
    const json_t *root, *model;
    model_source *out;
    pf_err *err;
} loader;

static bool is_set(const json_t *value)
{
    return value && !json_is_null(value);
}

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

static bool is_true(const json_t *object, const char *key, bool absent)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_is_true(value) : absent;
}

static pf_status refuse(const loader *l, const char *what)
{
    return err_set(l->err, PF_REFUSED, "%s: %s", l->path, what);
}

/* --- what it does ----------------------------------------------------------------------------- */

static pf_status read_normalizer(const loader *l)
{
    const json_t *n = json_object_get(l->root, "normalizer");
    if (!is_set(n)) return PF_OK;
    const json_t *parts = json_object_get(n, "normalizers");
    if (strcmp(type_of(n), "Sequence") == 0 && json_array_size(parts) == 1)
        n = json_array_get(parts, 0);
    if (strcmp(type_of(n), "Sequence") == 0 && json_array_size(parts) == 0) return PF_OK;
    if (strcmp(type_of(n), "NFC") != 0)
        return err_set(l->err, PF_REFUSED,
                       "%s: the normalizer \"%s\" is not supported; NFC or none is", l->path,
                       quote_bytes(type_of(n), strlen(type_of(n))).text);
    l->out->vocab.nfc = true;
    return PF_OK;
}

/* ByteLevel as a pre-tokenizer: without a prefix space; use_regex tells whether it also splits. */
static bool is_byte_level(const json_t *p, bool use_regex)
{
    return strcmp(type_of(p), "ByteLevel") == 0 && !is_true(p, "add_prefix_space", true) &&
           is_true(p, "use_regex", true) == use_regex;
}

static const char *name_of_split(const json_t *p)
{
    const char *regex = json_string_value(json_object_get(json_object_get(p, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(p, "behavior"));
    if (strcmp(type_of(p), "Split") != 0 || !regex || !behavior ||
        strcmp(behavior, "Isolated") != 0 || is_true(p, "invert", false))
        return NULL;
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
        if (strcmp(regex, splits[i].regex) == 0) return splits[i].name;
    return NULL;
}

static void read_pretokenizer(const loader *l)
{
    const json_t *p = json_object_get(l->root, "pre_tokenizer");
    const json_t *parts = json_object_get(p, "pretokenizers");
    const json_t *first = json_array_get(parts, 0), *second = json_array_get(parts, 1);
    const char *name = NULL;
    if (is_byte_level(p, true))
        name = "gpt2";
    else if (strcmp(type_of(p), "Sequence") != 0 || json_array_size(parts) != 2)
        name = NULL;
    else if (strcmp(type_of(first), "Digits") == 0 && is_true(first, "individual_digits", false) &&
             is_byte_level(second, true))
        name = "smollm";
    else if (is_byte_level(second, false))
        name = name_of_split(first);
    /* Not known: the tokenizer refuses it, unless the user names one. */
    if (name) l->out->vocab.pretokenizer = xstrdup(name);
}

/* TemplateProcessing for one text: the start token, then the text, nothing after it. */
static pf_status read_template_processing(const loader *l, const json_t *p)
{
    const json_t *single = json_object_get(p, "single");
    bool text_seen = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        if (json_object_get(part, "Sequence")) {
            text_seen = true;
            continue;
        }
        const char *id =
            json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        const json_t *entry = id ? json_object_get(json_object_get(p, "special_tokens"), id) : NULL;
        const json_t *ids = json_object_get(entry, "ids");
        const json_t *number = json_array_get(ids, 0);
        if (text_seen || i > 0 || json_array_size(ids) != 1 || !json_is_integer(number))
            return refuse(l, "the post_processor adds tokens other than one start token, which is "
                             "not supported");
        json_int_t bos = json_integer_value(number);
        if (bos < 0 || bos >= l->out->config.vocab)
            return refuse(l, "the post_processor names a token id out of range");
        l->out->vocab.bos_id = (int32_t)bos;
        l->out->vocab.add_bos = true;
    }
    return PF_OK;
}

static pf_status read_post_processor(const loader *l, const json_t *p, int depth)
{
    if (!is_set(p) || strcmp(type_of(p), "ByteLevel") == 0) return PF_OK;
    if (strcmp(type_of(p), "TemplateProcessing") == 0) return read_template_processing(l, p);
    if (strcmp(type_of(p), "Sequence") != 0 || depth > 4)
        return err_set(l->err, PF_REFUSED, "%s: the post_processor \"%s\" is not supported",
                       l->path, quote_bytes(type_of(p), strlen(type_of(p))).text);
    const json_t *parts = json_object_get(p, "processors");
    pf_status status = PF_OK;
    for (size_t i = 0; i < json_array_size(parts) && status == PF_OK; i++)
        status = read_post_processor(l, json_array_get(parts, i), depth + 1);
    return status;
}

static pf_status check_model(const loader *l)
{
    const json_t *m = l->model;
    if (strcmp(type_of(m), "BPE") != 0)
        return err_set(l->err, PF_REFUSED,
                       "%s: the model \"%s\" is not supported; byte-level BPE is", l->path,
                       quote_bytes(type_of(m), strlen(type_of(m))).text);
    if (is_true(m, "byte_fallback", false))
        return refuse(l, "\"byte_fallback\" is true; byte-level BPE has none");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *text = json_string_value(json_object_get(m, affixes[i]));
        if (text && text[0])
            return err_set(l->err, PF_REFUSED, "%s: \"%s\" is not supported", l->path, affixes[i]);
    }
    if (json_number_value(json_object_get(m, "dropout")) != 0)
        return refuse(l, "\"dropout\" is not supported");
    l->out->vocab.ignore_merges = is_true(m, "ignore_merges", false);
    return PF_OK;
}

/* --- vocabulary ------------------------------------------------------------------------------- */

static pf_status set_piece(const loader *l, const char *text, size_t len, const json_t *id,
                           token_kind kind)
{
    vocabulary *v = &l->out->vocab;
    quoted name = quote_bytes(text, len);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= (json_int_t)v->n_tokens)
        return err_set(l->err, PF_REFUSED,
                       "%s: the id of token \"%s\" must be a number below \"vocab_size\" (%zu) of "
                       "config.json",
                       l->path, name.text, v->n_tokens);
    size_t i = (size_t)json_integer_value(id);
    bool same = v->pieces[i] && v->piece_lengths[i] == len && memcmp(v->pieces[i], text, len) == 0;
    if (v->pieces[i] && !(kind != TOKEN_NORMAL && same))
        return err_set(l->err, PF_REFUSED, "%s: id %zu belongs to two tokens, \"%s\" and \"%s\"",
                       l->path, i, quote_bytes(v->pieces[i], v->piece_lengths[i]).text, name.text);
    v->pieces[i] = text;
    v->piece_lengths[i] = len;
    v->kinds[i] = kind;
    return PF_OK;
}

static pf_status read_added_tokens(const loader *l)
{
    const json_t *added = json_object_get(l->root, "added_tokens");
    if (is_set(added) && !json_is_array(added)) return refuse(l, "\"added_tokens\" is no array");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const json_t *content = json_object_get(token, "content");
        if (!json_is_string(content) || json_string_length(content) == 0)
            return err_set(l->err, PF_REFUSED, "%s: added token %zu has no \"content\"", l->path,
                           i);
        static const char *const rules[] = {"single_word", "lstrip", "rstrip"};
        for (size_t r = 0; r < 3; r++)
            if (is_true(token, rules[r], false))
                return err_set(l->err, PF_REFUSED,
                               "%s: added token %zu has \"%s\", which is not supported", l->path, i,
                               rules[r]);
        if (is_true(token, "normalized", false) && l->out->vocab.nfc &&
            !is_true(token, "special", false))
            return err_set(l->err, PF_REFUSED,
                           "%s: added token %zu is \"normalized\", which is not supported", l->path,
                           i);
        pf_status status =
            set_piece(l, json_string_value(content), json_string_length(content),
                      json_object_get(token, "id"),
                      is_true(token, "special", false) ? TOKEN_CONTROL : TOKEN_ADDED);
        if (status != PF_OK) return status;
    }
    return PF_OK;
}

static pf_status read_pieces(const loader *l)
{
    vocabulary *v = &l->out->vocab;
    const json_t *vocab = json_object_get(l->model, "vocab");
    if (!json_is_object(vocab)) return refuse(l, "\"model\" has no object \"vocab\"");
    vocabulary_reserve_tokens(v, (size_t)l->out->config.vocab);
    const char *text;
    size_t len;
    json_t *id;
    json_object_keylen_foreach((json_t *)(uintptr_t)vocab, text, len, id)
    {
        pf_status status = set_piece(l, text, len, id, TOKEN_NORMAL);
        if (status != PF_OK) return status;
    }
    pf_status status = read_added_tokens(l);
    if (status != PF_OK) return status;
    /* Rows of a padded embedding matrix. */
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (v->pieces[i]) continue;
        v->pieces[i] = "";
        v->kinds[i] = TOKEN_UNUSED;
    }
    return PF_OK;
}

/* "left right", or (newer files) ["left", "right"], which is joined in the arena. */
static pf_status read_merge(const loader *l, const json_t *merge, size_t index, size_t *offset)
{
    vocabulary *v = &l->out->vocab;
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    *offset = SIZE_MAX;
    if (json_is_string(merge)) {
        v->merges[index] = json_string_value(merge);
        v->merge_lengths[index] = json_string_length(merge);
        return PF_OK;
    }
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right) ||
        memchr(json_string_value(left), ' ', json_string_length(left)) ||
        memchr(json_string_value(right), ' ', json_string_length(right)))
        return err_set(l->err, PF_REFUSED, "%s: merge %zu is not a pair of pieces", l->path, index);
    *offset = v->arena.len;
    buf_append(&v->arena, json_string_value(left), json_string_length(left));
    buf_putc(&v->arena, ' ');
    buf_append(&v->arena, json_string_value(right), json_string_length(right));
    v->merge_lengths[index] = v->arena.len - *offset;
    return PF_OK;
}

static pf_status read_merges(const loader *l)
{
    vocabulary *v = &l->out->vocab;
    const json_t *merges = json_object_get(l->model, "merges");
    if (!json_is_array(merges)) return refuse(l, "\"model\" has no array \"merges\"");
    size_t n = json_array_size(merges);
    vocabulary_reserve_merges(v, n);
    size_t *offsets = xcalloc(n + 1, sizeof *offsets);
    pf_status status = PF_OK;
    for (size_t i = 0; i < n && status == PF_OK; i++)
        status = read_merge(l, json_array_get(merges, i), i, &offsets[i]);
    for (size_t i = 0; i < n && status == PF_OK; i++) /* the arena has moved while it grew */
        if (offsets[i] != SIZE_MAX) v->merges[i] = v->arena.data + offsets[i];
    free(offsets);
    return status;
}

/* --- tokenizer_config.json -------------------------------------------------------------------- */

/* "bos_token": a text, or an object with "content"; -1 if it is null or not in the vocabulary. */
static int32_t find_named(const loader *l, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const json_t *content = json_object_get(value, "content");
    const char *text = json_string_value(content ? content : value);
    const vocabulary *v = &l->out->vocab;
    for (size_t i = 0; text && i < v->n_tokens; i++)
        if (v->kinds[i] != TOKEN_NORMAL && v->piece_lengths[i] == strlen(text) &&
            memcmp(v->pieces[i], text, v->piece_lengths[i]) == 0)
            return (int32_t)i;
    return -1;
}

static void take_template(const loader *l, const char *text, size_t len)
{
    free(l->out->template_text);
    l->out->template_text = xmemdup0(text, len);
    l->out->template_len = len;
}

/* A text, or a list of {name, template} of which "default" counts. */
static pf_status read_template(const loader *l, const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    if (!is_set(value)) return PF_OK;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) value = json_object_get(entry, "template");
    }
    if (json_is_array(value)) return PF_OK; /* none is the default one */
    if (!json_is_string(value))
        return err_set(l->err, PF_REFUSED,
                       "tokenizer_config.json beside %s: \"chat_template\" is neither a text nor a "
                       "list of named ones",
                       l->path);
    take_template(l, json_string_value(value), json_string_length(value));
    return PF_OK;
}

static pf_status read_tokenizer_config(const loader *l, const char *folder)
{
    enum { MAX_TEMPLATE = 1 << 20 };
    json_t *config = NULL;
    buf text = {0};
    char *path = path_join(folder, "chat_template.jinja");
    pf_status status = hf_read_json(folder, "tokenizer_config.json", false, &config, l->err);
    if (status != PF_OK) goto out;
    vocabulary *v = &l->out->vocab;
    if (v->bos_id < 0) v->bos_id = find_named(l, config, "bos_token");
    int32_t eos = find_named(l, config, "eos_token");
    if (eos >= 0) v->eos_id = eos;
    model_source_add_stop(l->out, eos);
    status = read_template(l, config);
    if (status == PF_OK && file_exists(path)) {
        status = file_read(path, MAX_TEMPLATE, &text, l->err);
        if (status == PF_OK) take_template(l, buf_str(&text), text.len);
    }
out:
    json_decref(config);
    buf_free(&text);
    free(path);
    return status;
}

pf_status hf_tokenizer_read(const char *folder, model_source *out, pf_err *err)
{
    pf_status status = hf_read_json(folder, "tokenizer.json", true, &out->vocab.json, err);
    if (status != PF_OK) return status;
    char *path = path_join(folder, "tokenizer.json");
    const json_t *root = out->vocab.json;
    const loader l = {path, root, json_object_get(root, "model"), out, err};
    status = check_model(&l);
    if (status == PF_OK) status = read_normalizer(&l);
    if (status == PF_OK) status = read_pieces(&l);
    if (status == PF_OK) status = read_merges(&l);
    if (status == PF_OK)
        status = read_post_processor(&l, json_object_get(root, "post_processor"), 0);
    if (status == PF_OK) read_pretokenizer(&l);
    if (status == PF_OK) status = read_tokenizer_config(&l, folder);
    free(path);
    return status;
}
