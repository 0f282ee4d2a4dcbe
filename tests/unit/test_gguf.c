/* GGUF: the container and what a model must say in it. Every case is a small valid file with one
 * change; the message must name the item and the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "models/gguf.h"
#include "models/model.h"
#include "support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALID "tests/data/hostile/gguf/valid.gguf"

static buf original; /* bytes of VALID */
static gguf parsed;  /* of original */
static char *folder;

static int set_up(void **state)
{
    (void)state;
    pf_err err;
    scratch_read(VALID, &original);
    if (gguf_parse(original.data, original.len, VALID, &parsed, &err) != PF_OK)
        fail_msg("%s", err.text);
    folder = scratch_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gguf_free(&parsed);
    buf_free(&original);
    scratch_remove(folder);
    return 0;
}

/* --- building files --------------------------------------------------------------------------- */

static void put_number(buf *b, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        buf_putc(b, (char)(value >> (8 * i)));
}

static void put_string(buf *b, const char *text, size_t len)
{
    put_number(b, len, 8);
    buf_append(b, text, len);
}

static void put_key(buf *b, const char *key, gguf_type type)
{
    put_string(b, key, strlen(key));
    put_number(b, type, 4);
}

static void put_u32(buf *b, const char *key, uint32_t value)
{
    put_key(b, key, GGUF_U32);
    put_number(b, value, 4);
}

static void put_f32(buf *b, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, key, GGUF_F32);
    put_number(b, bits, 4);
}

static void set_number(buf *b, size_t at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        b->data[at + i] = (char)(value >> (8 * i));
}

static buf copy_original(void)
{
    buf copy = {0};
    buf_append(&copy, original.data, original.len);
    return copy;
}

static size_t offset_of(const void *place)
{
    return (size_t)((const char *)place - original.data);
}

static const gguf_value *value_of(const char *key)
{
    const gguf_value *v = gguf_find(&parsed, key);
    assert_non_null(v);
    return v;
}

/* The offset of a tensor's dimension count in its description. */
static size_t dims_offset(const char *name)
{
    const tensor *t = tensor_table_find(&parsed.tensors, name);
    assert_non_null(t);
    return offset_of(t->name) + t->name_len;
}

/* The file with a key's name made another one of the same length: as if the key were not there. */
static buf without_key(const char *key)
{
    buf copy = copy_original();
    copy.data[offset_of(value_of(key)->key)] = 'X';
    return copy;
}

/* from with n more keys in front and, if not NULL, one more F32 tensor of 8 values at the end; the
 * data moves to its new aligned place. */
static buf rebuild(const buf *from, const buf *keys, uint64_t n, const char *extra_tensor)
{
    gguf g;
    pf_err err;
    buf out = {0};
    if (gguf_parse(from->data, from->len, "base", &g, &err) != PF_OK) fail_msg("%s", err.text);
    size_t infos_end = 0;
    for (size_t i = 0; i < g.tensors.n; i++) {
        const tensor *t = &g.tensors.items[i];
        size_t end = (size_t)(t->name - from->data) + t->name_len + 4 + 8 * (size_t)t->n_dims + 12;
        if (end > infos_end) infos_end = end;
    }
    size_t data = from->len - g.data_start;
    size_t padded = (data + g.alignment - 1) / g.alignment * g.alignment;
    buf_append(&out, from->data, 24);
    set_number(&out, 16, g.n_values + n, 8);
    buf_append(&out, buf_str(keys), keys->len);
    buf_append(&out, from->data + 24, infos_end - 24);
    if (extra_tensor) {
        set_number(&out, 8, g.tensors.n + 1, 8);
        put_string(&out, extra_tensor, strlen(extra_tensor));
        put_number(&out, 1, 4);
        put_number(&out, 8, 8);
        put_number(&out, 0, 4);
        put_number(&out, padded, 8);
    }
    while (out.len % g.alignment)
        buf_putc(&out, 0);
    buf_append(&out, from->data + g.data_start, data);
    for (size_t i = data; i < padded + 32 && extra_tensor; i++)
        buf_putc(&out, 0);
    gguf_free(&g);
    return out;
}

static buf with_keys(const buf *from, const buf *keys, uint64_t n)
{
    return rebuild(from, keys, n, NULL);
}

/* The file with key replaced by the raw key in replacement. */
static buf replace_key(const char *key, const buf *replacement)
{
    buf cut = without_key(key);
    buf out = with_keys(&cut, replacement, 1);
    buf_free(&cut);
    return out;
}

/* --- expectations ----------------------------------------------------------------------------- */

static pf_status open_bytes(const buf *bytes, pf_err *err)
{
    model *m = NULL;
    char *path = scratch_write(folder, "model.gguf", buf_str(bytes), bytes->len);
    pf_status status = model_open(path, NULL, &m, err);
    model_close(m);
    free(path);
    return status;
}

/* Takes bytes. Every text of the NULL-terminated list must be in the message. */
static void expect_refused(buf bytes, ...)
{
    pf_err err = {0};
    pf_status status = open_bytes(&bytes, &err);
    va_list words;
    va_start(words, bytes);
    for (const char *word; (word = va_arg(words, const char *));) {
        if (status != PF_REFUSED)
            fail_msg("wanted a refusal with \"%s\", got %d %s", word, (int)status, err.text);
        if (!strstr(err.text, word)) fail_msg("no \"%s\" in: %s", word, err.text);
    }
    va_end(words);
    assert_non_null(strstr(err.text, "model.gguf"));
    buf_free(&bytes);
}

static void expect_accepted(buf bytes)
{
    pf_err err = {0};
    if (open_bytes(&bytes, &err) != PF_OK) fail_msg("%s", err.text);
    buf_free(&bytes);
}

/* --- dimensions, types ------------------------------------------------------------------------ */

static void test_dimension_count(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 5, 9, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        buf b = copy_original();
        set_number(&b, dims_offset("blk.0.attn_q.weight"), counts[i], 4);
        expect_refused(b, "blk.0.attn_q.weight", "1 to 4", NULL);
    }
}

static void test_zero_dimension(void **state)
{
    (void)state;
    for (size_t dim = 0; dim < 2; dim++) {
        buf b = copy_original();
        set_number(&b, dims_offset("blk.0.ffn_up.weight") + 4 + 8 * dim, 0, 8);
        expect_refused(b, "blk.0.ffn_up.weight", dim ? "dimension 1" : "dimension 0", "is 0", NULL);
    }
    buf b = {0};
    buf_puts(&b, "GGUF");
    put_number(&b, 3, 4);
    put_number(&b, 1, 8);
    put_number(&b, 0, 8);
    put_string(&b, "t.weight", 8);
    put_number(&b, 2, 4);
    put_number(&b, 32, 8);
    put_number(&b, 0, 8);
    put_number(&b, 0, 4);
    put_number(&b, 0, 8);
    assert_int_equal(b.len, 72);
    expect_refused(b, "t.weight", "dimension 1", NULL);
}

static void test_tensor_types(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *words;
    } cases[] = {
        {4, "unsupported type 4 in tensor"},
        {5, "unsupported type 5 in tensor"},
        {9999, "unsupported type 9999 in tensor"},
        {UINT32_MAX, "unsupported type 4294967295 in tensor"},
        {6, "unsupported type 6 (Q5_0) in tensor"},
        {12, "not a multiple of the block (256) of Q4_K"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf b = copy_original();
        set_number(&b, dims_offset("blk.0.ffn_gate.weight") + 4 + 16, cases[i].type, 4);
        expect_refused(b, "blk.0.ffn_gate.weight", cases[i].words, NULL);
    }
}

/* --- counts and lengths ----------------------------------------------------------------------- */

/* A header with one key of this raw type and value. */
static buf tiny_file(const char *key, size_t key_len, uint32_t type, const buf *value)
{
    buf b = {0};
    buf_puts(&b, "GGUF");
    put_number(&b, 3, 4);
    put_number(&b, 0, 8);
    put_number(&b, 1, 8);
    put_number(&b, key_len, 8);
    buf_puts(&b, key);
    put_number(&b, type, 4);
    buf_append(&b, buf_str(value), value->len);
    return b;
}

static void test_counts(void **state)
{
    (void)state;
    buf b = copy_original();
    set_number(&b, 16, (uint64_t)1 << 63, 8);
    expect_refused(b, "9223372036854775808 keys", NULL);
    b = copy_original();
    set_number(&b, 8, (uint64_t)1 << 63, 8);
    expect_refused(b, "9223372036854775808 tensors", NULL);

    buf value = {0};
    put_number(&value, (uint64_t)1 << 63, 8);
    put_number(&value, 0, 8);
    expect_refused(tiny_file("abcd", 4, GGUF_STRING, &value), "abcd", "9223372036854775808", NULL);
    buf_clear(&value);
    put_number(&value, GGUF_U8, 4);
    put_number(&value, (uint64_t)1 << 63, 8);
    put_number(&value, 0, 3);
    expect_refused(tiny_file("abcd", 4, GGUF_ARRAY, &value), "abcd", "9223372036854775808", NULL);
    buf_clear(&value);
    put_number(&value, 0, 8);
    expect_refused(tiny_file("abcd", (size_t)1 << 40, GGUF_U64, &value), "key 0", "1099511627776",
                   NULL);
    buf_clear(&value);
    put_number(&value, 9, 8); /* one more than is left */
    buf_puts(&value, "12345678");
    expect_refused(tiny_file("abcd", 4, GGUF_STRING, &value), "needs 9", "8 are left", NULL);
    buf_free(&value);
}

/* Every cut is refused, and says how long the file is. The copies are exact: reading past the end
 * is seen by the address sanitizer. */
static void test_cuts(void **state)
{
    (void)state;
    for (size_t len = 0; len < original.len; len++) {
        gguf g;
        pf_err err = {0};
        char size[32];
        char *copy = xmalloc(len);
        memcpy(copy, original.data, len);
        if (gguf_parse(copy, len, "cut", &g, &err) != PF_REFUSED)
            fail_msg("a cut to %zu bytes is not refused", len);
        snprintf(size, sizeof size, "%zu", len);
        if (!strstr(err.text, size) || !(strstr(err.text, "shorter") || len == 0))
            fail_msg("cut to %zu: %s", len, err.text);
        gguf_free(&g);
        free(copy);
    }
}

/* Any single wrong byte in the description: never a crash, whatever the answer. */
static void test_flips(void **state)
{
    (void)state;
    char *copy = xmalloc(original.len);
    memcpy(copy, original.data, original.len);
    for (size_t i = 0; i < parsed.data_start; i++) {
        static const unsigned char masks[] = {0x01, 0x80, 0xff};
        for (size_t m = 0; m < sizeof masks; m++) {
            gguf g;
            pf_err err;
            copy[i] = (char)(original.data[i] ^ masks[m]);
            (void)gguf_parse(copy, original.len, "flipped", &g, &err);
            gguf_free(&g);
        }
        copy[i] = original.data[i];
    }
    free(copy);
}

/* --- alignment -------------------------------------------------------------------------------- */

static buf with_alignment(const buf *raw_key)
{
    return gguf_find(&parsed, "general.alignment") ? replace_key("general.alignment", raw_key)
                                                   : with_keys(&original, raw_key, 1);
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 3, 48, 1u << 31};
    buf key = {0};
    for (size_t i = 0; i < 4; i++) {
        buf_clear(&key);
        put_u32(&key, "general.alignment", wrong[i]);
        expect_refused(with_alignment(&key), "alignment", NULL);
    }
    buf_clear(&key);
    put_key(&key, "general.alignment", GGUF_I32);
    put_number(&key, 1u << 31, 4);
    expect_refused(with_alignment(&key), "alignment", "i32", NULL);
    buf_clear(&key);
    put_key(&key, "general.alignment", GGUF_STRING);
    put_string(&key, "32", 2);
    expect_refused(with_alignment(&key), "alignment", "string", NULL);
    buf_clear(&key);
    put_key(&key, "general.alignment", GGUF_ARRAY);
    put_number(&key, GGUF_U32, 4);
    put_number(&key, 1, 8);
    put_number(&key, 32, 4);
    expect_refused(with_alignment(&key), "alignment", "array", NULL);
    buf_clear(&key);
    put_u32(&key, "general.alignment", 32);
    expect_accepted(with_alignment(&key));
    buf_free(&key);
}

/* --- names ------------------------------------------------------------------------------------ */

static void test_missing_tensor(void **state)
{
    (void)state;
    buf b = copy_original();
    size_t end = dims_offset("blk.0.ffn_up.weight");
    memcpy(b.data + end - strlen("up.weight"), "uq", 2);
    pf_err err = {0};
    assert_int_equal(open_bytes(&b, &err), PF_REFUSED);
    assert_null(strstr(err.text, "shorter"));
    expect_refused(b, "missing tensor \"blk.0.ffn_up.weight\"", NULL);

    b = copy_original();
    memcpy(b.data + offset_of(value_of("general.architecture")->data), "mamba", 5);
    expect_refused(b, "unsupported architecture \"mamba\"", NULL);
}

/* A tensor that nothing uses would be left out without a word. */
static void test_unknown_tensor(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.0.attn_q.bias", "blk.1.attn_norm.weight", "extra"};
    const buf none = {0};
    for (size_t i = 0; i < 3; i++)
        expect_refused(rebuild(&original, &none, 0, names[i]), names[i], "is not part of", NULL);
    /* Rotary factors are used, so their shape counts: a head of 16 has 8 pairs. All zero here. */
    expect_refused(rebuild(&original, &none, 0, "rope_freqs.weight"), "rope_freqs.weight",
                   "above 0", NULL);
}

static void test_duplicates(void **state)
{
    (void)state;
    buf b = copy_original(), key = {0};
    size_t end = dims_offset("blk.0.attn_v.weight");
    b.data[end - strlen("v.weight")] = 'k';
    expect_refused(b, "duplicate tensor \"blk.0.attn_k.weight\"", NULL);

    put_u32(&key, "llama.block_count", 30);
    b = copy_original();
    buf twice = {0};
    buf_append(&twice, b.data, 24);
    set_number(&twice, 16, parsed.n_values + 1, 8);
    buf_append(&twice, key.data, key.len);
    buf_append(&twice, b.data + 24, b.len - 24);
    buf_free(&b);
    expect_refused(twice, "duplicate key \"llama.block_count\"", NULL);

    buf_clear(&key);
    put_u32(&key, "", 1);
    buf_putc(&key, 0); /* a whole key of fourteen bytes and more */
    b = tiny_file("", 0, GGUF_U32, &key);
    expect_refused(b, "key 0", "empty name", NULL);
    buf_free(&key);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void test_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } cases[] = {
        {"llama.attention.head_count", 0},
        {"llama.attention.head_count_kv", 0},
        {"llama.attention.head_count_kv", 3},
        {"llama.attention.head_count", 1 << 13},
        {"llama.block_count", 0},
        {"llama.block_count", 1u << 31},
        {"llama.embedding_length", 31},
        {"llama.rope.dimension_count", 63},
        {"llama.context_length", 0},
        {"llama.feed_forward_length", 0},
        {"llama.vocab_size", 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf key = {0};
        put_u32(&key, cases[i].key, cases[i].value);
        expect_refused(replace_key(cases[i].key, &key), cases[i].key, NULL);
        buf_free(&key);
    }
    static const float epsilons[] = {0, -1, NAN, INFINITY, 2};
    for (size_t i = 0; i < 5; i++) {
        buf key = {0};
        put_f32(&key, "llama.attention.layer_norm_rms_epsilon", epsilons[i]);
        expect_refused(replace_key("llama.attention.layer_norm_rms_epsilon", &key),
                       "llama.attention.layer_norm_rms_epsilon", NULL);
        buf_clear(&key);
        if (epsilons[i] != 2) {
            put_f32(&key, "llama.rope.freq_base", epsilons[i]);
            expect_refused(replace_key("llama.rope.freq_base", &key), "llama.rope.freq_base", NULL);
        }
        buf_free(&key);
    }
}

static void test_required_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "general.architecture",          "llama.block_count",
        "llama.embedding_length",        "llama.feed_forward_length",
        "llama.context_length",          "llama.attention.head_count",
        "llama.attention.head_count_kv", "llama.attention.layer_norm_rms_epsilon",
        "llama.rope.freq_base",          "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",         "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        expect_refused(without_key(keys[i]), keys[i], "missing", NULL);
}

/* Keys that change the arithmetic must not be ignored. */
static void test_variants(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float neutral, other;
    } cases[] = {
        {"llama.expert_count", 0, 8},
        {"llama.attention.clamp_kqv", 0, 8},
        {"llama.logit_scale", 1, 0.5f},
        {"llama.final_logit_softcapping", 0, 30},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf key = {0};
        put_f32(&key, cases[i].key, cases[i].other);
        expect_refused(with_keys(&original, &key, 1), cases[i].key, NULL);
        buf_clear(&key);
        put_f32(&key, cases[i].key, cases[i].neutral);
        expect_accepted(with_keys(&original, &key, 1));
        buf_free(&key);
    }
    buf key = {0};
    put_key(&key, "llama.rope.scaling.type", GGUF_STRING);
    put_string(&key, "yarn", 4);
    expect_refused(with_keys(&original, &key, 1), "llama.rope.scaling.type", "yarn", NULL);
    buf_clear(&key);
    put_u32(&key, "llama.attention.sliding_window", 4);
    expect_refused(with_keys(&original, &key, 1), "sliding_window", NULL);
    buf_free(&key);
}

/* --- vocabulary ------------------------------------------------------------------------------- */

static void put_strings(buf *b, const char *key, const char *const *texts, size_t n)
{
    put_key(b, key, GGUF_ARRAY);
    put_number(b, GGUF_STRING, 4);
    put_number(b, n, 8);
    for (size_t i = 0; i < n; i++)
        put_string(b, texts[i], strlen(texts[i]));
}

static void test_merges(void **state)
{
    (void)state;
    char *long_line = xmalloc(70001);
    memset(long_line, 'a', 70000);
    long_line[35000] = ' ';
    long_line[70000] = '\0';
    const char *const lines[] = {"ab", "a  b", "a \xff", "", long_line};
    for (size_t i = 0; i < 5; i++) {
        buf key = {0};
        put_strings(&key, "tokenizer.ggml.merges", &lines[i], 1);
        expect_refused(replace_key("tokenizer.ggml.merges", &key), "merge 0", NULL);
        buf_free(&key);
    }
    free(long_line);
    buf key = {0};
    put_key(&key, "tokenizer.ggml.merges", GGUF_ARRAY);
    put_number(&key, GGUF_U8, 4);
    put_number(&key, 0, 8);
    expect_refused(replace_key("tokenizer.ggml.merges", &key), "tokenizer.ggml.merges",
                   "array of u8", NULL);
    buf_free(&key);
}

static void test_token_types(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 6, 99, UINT32_MAX};
    const gguf_value *types = value_of("tokenizer.ggml.token_type");
    for (size_t i = 0; i < 4; i++) {
        buf b = copy_original();
        set_number(&b, offset_of(types->data) + 4 * 7, wrong[i], 4);
        expect_refused(b, "element 7", "tokenizer.ggml.token_type", NULL);
    }
    const gguf_value *tokens = value_of("tokenizer.ggml.tokens");
    const char **texts = xcalloc((size_t)tokens->count, sizeof *texts);
    const unsigned char *cursor = tokens->data;
    for (size_t i = 0; i < tokens->count; i++) {
        size_t len;
        const char *text = gguf_next_string(&cursor, &len);
        texts[i] = i == 9 ? xstrdup("") : xmemdup0(text, len);
    }
    buf key = {0};
    put_strings(&key, "tokenizer.ggml.tokens", texts, (size_t)tokens->count);
    expect_refused(replace_key("tokenizer.ggml.tokens", &key), "token 9", "empty", NULL);
    buf_free(&key);
    for (size_t i = 0; i < tokens->count; i++)
        free((void *)(uintptr_t)texts[i]);
    free(texts);
}

/* --- other files ------------------------------------------------------------------------------ */

static void test_other_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *words;
    } files[] = {
        {"<!DOCTYPE html><html><body>404</body></html>", "web page"},
        {"PK\3\4............................", "zip"},
        {"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"},
        {"FUGG....................", "big-endian"},
        {"some text that is no model", "not a GGUF file"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        buf b = {0};
        buf_puts(&b, files[i].begin);
        expect_refused(b, "not a GGUF file", files[i].words, NULL);
    }
    static const uint32_t versions[] = {0, 1, 4, 99};
    for (size_t i = 0; i < 4; i++) {
        buf b = copy_original();
        set_number(&b, 4, versions[i], 4);
        char words[64];
        snprintf(words, sizeof words, "version %u is not supported", versions[i]);
        expect_refused(b, words, NULL);
    }
    buf b = copy_original();
    set_number(&b, 4, 0x03000000, 4);
    expect_refused(b, "big-endian", NULL);
    b = copy_original();
    set_number(&b, 4, 2, 4);
    expect_accepted(b);
}

/* Paths that are no files: refused by name at once, never waited for. */
static void test_other_paths(void **state)
{
    (void)state;
    pf_err err;
    model *m = NULL;
    char *fifo = path_join(folder, "fifo"), *dangling = path_join(folder, "dangling");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("nowhere", dangling), 0);
    assert_int_equal(model_open(fifo, NULL, &m, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "FIFO"));
    assert_int_equal(model_open("/dev/zero", NULL, &m, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "device"));
    assert_int_equal(model_open(dangling, NULL, &m, &err), PF_NOT_FOUND);
    assert_non_null(strstr(err.text, "dangling"));
    assert_int_equal(model_open(folder, NULL, &m, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "config.json"));
    char *closed = scratch_write(folder, "closed.gguf", original.data, original.len);
    assert_int_equal(chmod(closed, 0), 0);
    const bool root = geteuid() == 0; /* who may read everything */
    if (root) assert_int_equal(seteuid(65534), 0);
    assert_int_equal(model_open(closed, NULL, &m, &err), PF_FAILED);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_non_null(strstr(err.text, "closed.gguf"));
    assert_non_null(strstr(err.text, "ermission denied"));
    assert_null(m);
    free(closed);
    free(fifo);
    free(dangling);
}

/* --- the name --------------------------------------------------------------------------------- */

/* A file that is named as the convention asks is called so; else by its key, which may be the
 * folder of a training run. */
static void test_name(void **state)
{
    (void)state;
    static const char stated[] = "Small 135M 8k Mix1 Ep2";
    static const struct {
        const char *file, *base, *size, *name;
    } cases[] = {
        {"Small-135M-Instruct.Q4_1.gguf", "small", "135M", "Small-135M-Instruct.Q4_1"},
        {"small2.5-0.5b-instruct-q4_k_m.gguf", "Small2.5", "0.5B", "small2.5-0.5b-instruct-q4_k_m"},
        {"Small-Instruct.gguf", "small", "135M", stated},
        {"model.gguf", "small", "135M", stated},
        {"135M-small.gguf", "small", "135M", stated},
        {"Small-135M.gguf", "small", "", stated},
        {"Small-135M.gguf", "", "135M", stated},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf keys = {0};
        pf_err err = {0};
        model *m = NULL;
        const char *const texts[][2] = {{"general.basename", cases[i].base},
                                        {"general.size_label", cases[i].size},
                                        {"general.name", stated}};
        for (size_t k = 0; k < 3; k++) {
            put_key(&keys, texts[k][0], GGUF_STRING);
            put_string(&keys, texts[k][1], strlen(texts[k][1]));
        }
        buf unnamed = without_key("general.name"), b = with_keys(&unnamed, &keys, 3);
        char *path = scratch_write(folder, cases[i].file, b.data, b.len);
        if (model_open(path, NULL, &m, &err) != PF_OK) fail_msg("%s", err.text);
        assert_string_equal(model_name(m), cases[i].name);
        model_close(m);
        free(path);
        buf_free(&keys);
        buf_free(&unnamed);
        buf_free(&b);
    }
}

/* --- typed values ----------------------------------------------------------------------------- */

static void test_values(void **state)
{
    (void)state;
    buf keys = {0};
    pf_err err;
    gguf g;
    put_key(&keys, "t.i8", GGUF_I8);
    put_number(&keys, 0xfe, 1);
    put_key(&keys, "t.u64", GGUF_U64);
    put_number(&keys, UINT64_MAX, 8);
    put_key(&keys, "t.i64", GGUF_I64);
    put_number(&keys, (uint64_t)-5, 8);
    put_key(&keys, "t.bool", GGUF_BOOL);
    put_number(&keys, 1, 1);
    put_f32(&keys, "t.f32", 0.25f);
    buf b = with_keys(&original, &keys, 5);
    assert_int_equal(gguf_parse(b.data, b.len, "values", &g, &err), PF_OK);
    int64_t number = 7;
    double real = 0;
    bool flag = false;
    assert_int_equal(gguf_get_int(&g, "t.i8", true, -10, 10, &number, &err), PF_OK);
    assert_int_equal(number, -2);
    assert_int_equal(gguf_get_int(&g, "t.i64", true, -10, 10, &number, &err), PF_OK);
    assert_int_equal(number, -5);
    assert_int_equal(gguf_get_int(&g, "t.u64", true, 0, INT64_MAX - 1, &number, &err), PF_REFUSED);
    assert_int_equal(gguf_get_int(&g, "t.absent", false, 0, 1, &number, &err), PF_OK);
    assert_int_equal(number, -5);
    assert_int_equal(gguf_get_int(&g, "t.absent", true, 0, 1, &number, &err), PF_REFUSED);
    assert_int_equal(gguf_get_int(&g, "t.f32", true, 0, 1, &number, &err), PF_REFUSED);
    assert_int_equal(gguf_get_real(&g, "t.f32", true, 0, 1, &real, &err), PF_OK);
    assert_true(real == 0.25);
    assert_int_equal(gguf_get_real(&g, "t.f32", true, 0.25, 1, &real, &err), PF_REFUSED);
    assert_int_equal(gguf_get_bool(&g, "t.bool", &flag, &err), PF_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_bool(&g, "t.i8", &flag, &err), PF_REFUSED);
    gguf_free(&g);
    buf_free(&b);
    buf_free(&keys);
}

static void test_quoting(void **state)
{
    (void)state;
    char long_name[200];
    memset(long_name, 'x', sizeof long_name);
    assert_string_equal(quote_bytes("a\x1b[2J\xff\n\xc3\xa9", 9).text, "a?[2J??\xc3\xa9");
    assert_string_equal(quote_bytes("a\xe2\x80\xae"
                                    "b",
                                    5)
                            .text,
                        "a?b"); /* direction override */
    assert_int_equal(strlen(quote_bytes(long_name, sizeof long_name).text), 99);
    assert_string_equal(quote_bytes("", 0).text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dimension_count),
        cmocka_unit_test(test_zero_dimension),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_missing_tensor),
        cmocka_unit_test(test_unknown_tensor),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_required_keys),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_token_types),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_other_paths),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_quoting),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
