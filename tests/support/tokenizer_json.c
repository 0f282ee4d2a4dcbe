#include "support/tokenizer_json.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json_t *load(const char *path)
{
    buf text = {0};
    json_t *json = NULL;
    pf_err err = {0};
    if (file_read(path, 64u << 20, &text, &err) != PF_OK ||
        json_parse(text.data, text.len, path, &json, &err) != PF_OK)
        fail_msg("%s", err.text);
    buf_free(&text);
    return json;
}

static size_t count_tokens(const json_t *vocabulary, const json_t *added)
{
    size_t n = 0, i;
    const char *piece;
    json_t *value;
    json_object_foreach((json_t *)vocabulary, piece, value)
    {
        size_t id = (size_t)json_integer_value(value);
        if (id >= n) n = id + 1;
    }
    json_array_foreach(added, i, value)
    {
        size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
        if (id >= n) n = id + 1;
    }
    return n;
}

static void read_vocabulary(tokenizer_json *f, json_t *vocabulary, const json_t *added)
{
    const char *piece;
    json_t *value;
    size_t i, n = count_tokens(vocabulary, added);
    f->pieces = xcalloc(n, sizeof *f->pieces);
    f->piece_lengths = xcalloc(n, sizeof *f->piece_lengths);
    f->kinds = xcalloc(n, sizeof *f->kinds);
    for (i = 0; i < n; i++)
        f->kinds[i] = TOKEN_UNUSED;
    json_object_foreach(vocabulary, piece, value)
    {
        size_t id = (size_t)json_integer_value(value);
        f->pieces[id] = xstrdup(piece);
        f->kinds[id] = TOKEN_NORMAL;
    }
    json_array_foreach(added, i, value)
    {
        size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
        free(f->pieces[id]);
        f->pieces[id] = xstrdup(json_string_value(json_object_get(value, "content")));
        f->kinds[id] =
            json_is_true(json_object_get(value, "special")) ? TOKEN_CONTROL : TOKEN_ADDED;
    }
    for (i = 0; i < n; i++)
        f->piece_lengths[i] = f->pieces[i] ? strlen(f->pieces[i]) : 0;
    f->source.n_tokens = f->n_pieces = n;
}

static void read_merges(tokenizer_json *f, const json_t *merges)
{
    size_t i, n = json_array_size(merges);
    json_t *value;
    f->merges = xcalloc(n, sizeof *f->merges);
    f->merge_lengths = xcalloc(n, sizeof *f->merge_lengths);
    json_array_foreach(merges, i, value)
    {
        f->merges[i] = json_is_string(value)
                           ? xstrdup(json_string_value(value))
                           : xasprintf("%s %s", json_string_value(json_array_get(value, 0)),
                                       json_string_value(json_array_get(value, 1)));
        f->merge_lengths[i] = strlen(f->merges[i]);
    }
    f->source.n_merges = f->n_merges = n;
}

void tokenizer_json_open(tokenizer_json *f, const char *path, const char *pretokenizer)
{
    *f = (tokenizer_json){.json = load(path)};
    json_t *model = json_object_get(f->json, "model");
    read_vocabulary(f, json_object_get(model, "vocab"), json_object_get(f->json, "added_tokens"));
    read_merges(f, json_object_get(model, "merges"));
    tokenizer_source *s = &f->source;
    s->name = path;
    s->pretokenizer = pretokenizer;
    s->pieces = (const char *const *)f->pieces;
    s->piece_lengths = f->piece_lengths;
    s->kinds = f->kinds;
    s->merges = (const char *const *)f->merges;
    s->merge_lengths = f->merge_lengths;
    s->bos_id = s->eos_id = -1;
    s->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    s->nfc = json_is_object(json_object_get(f->json, "normalizer"));
}

void tokenizer_json_close(tokenizer_json *f)
{
    for (size_t i = 0; i < f->n_pieces; i++)
        free(f->pieces[i]);
    for (size_t i = 0; i < f->n_merges; i++)
        free(f->merges[i]);
    free(f->pieces);
    free(f->merges);
    free(f->piece_lengths);
    free(f->merge_lengths);
    free(f->kinds);
    json_decref(f->json);
    *f = (tokenizer_json){0};
}

tokenizer *tokenizer_of_model(const char *name)
{
    static const struct {
        const char *model, *pretokenizer;
        int32_t bos, eos;
        bool add_bos;
    } models[] = {
        {"tiny-llama", "smollm", 1, 2, false},   {"tiny-llama3", "llama-bpe", 591, 596, true},
        {"tiny-qwen2", "qwen2", -1, 583, false}, {"tiny-qwen3", "qwen2", -1, 583, false},
        {"tiny-wide", "smollm", 1, 2, false},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].model, name) != 0) continue;
        tokenizer_json f;
        tokenizer *t = NULL;
        pf_err err = {0};
        char *path = xasprintf("tests/data/models/%s/hf/tokenizer.json", name);
        tokenizer_json_open(&f, path, models[i].pretokenizer);
        f.source.bos_id = models[i].bos;
        f.source.eos_id = models[i].eos;
        f.source.add_bos = models[i].add_bos;
        if (tokenizer_create(&f.source, &t, &err) != PF_OK) fail_msg("%s", err.text);
        tokenizer_json_close(&f);
        free(path);
        return t;
    }
    fail_msg("no model \"%s\" among the test data", name);
    return NULL;
}

json_t *jsonl_load(const char *path)
{
    buf text = {0};
    pf_err err = {0};
    json_t *rows = json_array();
    if (file_read(path, 64u << 20, &text, &err) != PF_OK) fail_msg("%s", err.text);
    for (char *line = text.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        json_t *row = NULL;
        if (json_parse(line, (size_t)(end - line), path, &row, &err) != PF_OK)
            fail_msg("%s", err.text);
        json_array_append_new(rows, row);
    }
    buf_free(&text);
    assert_true(json_array_size(rows) > 0);
    return rows;
}

void base64_append(const char *text, buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, n = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        assert_non_null(digit);
        bits = bits << 6 | (unsigned)(digit - digits);
        n += 6;
        if (n >= 8) {
            n -= 8;
            buf_putc(out, (char)(bits >> n & 0xFF));
        }
    }
}
