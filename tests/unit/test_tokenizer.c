/* Tokenizer: golden ids, bytes and texts of five small models and the real one; hostile sources;
 * long runs; the streaming decoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "models/model.h"
#include "models/pretokenizer.h"
#include "models/tokenizer_bpe.h"
#include "models/tokenizer_nfc.h"
#include "support/tokenizer_json.h"

#include <pthread.h>
#include <sodium.h>

#define DATA "tests/data/tokenizer/"

static const char *const small_models[] = {"tiny-llama", "tiny-llama3", "tiny-qwen2", "tiny-qwen3",
                                           "tiny-wide"};

/* --- golden data ------------------------------------------------------------------------------ */

static void expect_ids(const id_list *got, const json_t *want, const char *where)
{
    bool same = got->len == json_array_size(want);
    for (size_t i = 0; same && i < got->len; i++)
        same = got->ids[i] == json_integer_value(json_array_get(want, i));
    if (same) return;
    print_error("%s: got", where);
    for (size_t i = 0; i < got->len; i++)
        print_error(" %d", got->ids[i]);
    fail_msg("\n%s: other ids than the reference", where);
}

static void expect_bytes(const buf *got, const char *want, size_t len, const char *where)
{
    if (got->len != len || memcmp(buf_str(got), want, len) != 0)
        fail_msg("%s: other bytes than the reference: %s", where, buf_str(got));
}

/* The text of a row, as it is or as bytes in base64. */
static void row_text(const json_t *row, buf *out)
{
    const json_t *text = json_object_get(row, "text");
    if (text)
        buf_append(out, json_string_value(text), json_string_length(text));
    else
        base64_append(json_string_value(json_object_get(row, "b64")), out);
}

static void check_case(const tokenizer *t, const json_t *row, const char *where)
{
    buf text = {0}, raw = {0}, decoded = {0};
    id_list ids = {0};
    row_text(row, &text);
    tokenizer_encode(t, buf_str(&text), text.len,
                     json_is_true(json_object_get(row, "parse_special")),
                     json_is_true(json_object_get(row, "add_special")), &ids);
    expect_ids(&ids, json_object_get(row, "ids"), where);
    tokenizer_decode(t, ids.ids, ids.len, false, &raw);
    utf8_repair(buf_str(&raw), raw.len, &decoded);
    const json_t *want = json_object_get(row, "decode");
    expect_bytes(&decoded, json_string_value(want), json_string_length(want), where);
    buf_free(&text);
    buf_free(&raw);
    buf_free(&decoded);
    id_list_free(&ids);
}

static void check_decode(const tokenizer *t, const json_t *row, const char *where)
{
    buf raw = {0}, want_raw = {0}, shown = {0}, streamed = {0}, joined = {0};
    id_list ids = {0};
    stream_decoder d = {0};
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(row, "ids"), i, value)
        id_list_append(&ids, (int32_t)json_integer_value(value));
    base64_append(json_string_value(json_object_get(row, "b64")), &want_raw);
    tokenizer_decode(t, ids.ids, ids.len, false, &raw);
    expect_bytes(&raw, buf_str(&want_raw), want_raw.len, where);

    const json_t *want = json_object_get(row, "decode_skip_special");
    buf_clear(&raw);
    tokenizer_decode(t, ids.ids, ids.len, true, &raw);
    utf8_repair(buf_str(&raw), raw.len, &shown);
    expect_bytes(&shown, json_string_value(want), json_string_length(want), where);
    for (i = 0; i < ids.len; i++) { /* piece by piece: each valid, together the same */
        buf_clear(&streamed);
        stream_decoder_push(&d, t, ids.ids[i], &streamed);
        assert_true(utf8_valid(buf_str(&streamed), streamed.len));
        buf_append(&joined, buf_str(&streamed), streamed.len);
    }
    stream_decoder_finish(&d, &joined);
    expect_bytes(&joined, json_string_value(want), json_string_length(want), where);
    buf_free(&raw);
    buf_free(&want_raw);
    buf_free(&shown);
    buf_free(&streamed);
    buf_free(&joined);
    id_list_free(&ids);
}

/* Runs check on every row of path that is the model's; returns how many. */
static size_t for_rows(const char *path, const char *name, const tokenizer *t,
                       void (*check)(const tokenizer *, const json_t *, const char *))
{
    json_t *rows = jsonl_load(path), *row;
    size_t i, n = 0;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "model")), name) != 0) continue;
        char *where = xasprintf("%s line %zu", path, i + 1);
        check(t, row, where);
        free(where);
        n++;
    }
    json_decref(rows);
    return n;
}

/* The digest over (length, bytes) of all tokens up to the count the reference has. */
static void check_token_bytes(const tokenizer *t, const char *name)
{
    json_t *all = jsonl_load(DATA "bytes.json");
    json_t *entry = json_object_get(json_array_get(all, 0), name);
    size_t n = (size_t)json_integer_value(json_object_get(entry, "n_vocab"));
    crypto_hash_sha256_state state;
    unsigned char digest[32];
    char hex[65];
    crypto_hash_sha256_init(&state);
    for (size_t id = 0; id < n; id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, (int32_t)id, &len);
        assert_non_null(bytes);
        unsigned char size[4] = {(unsigned char)len, (unsigned char)(len >> 8), 0, 0};
        crypto_hash_sha256_update(&state, size, sizeof size);
        crypto_hash_sha256_update(&state, (const unsigned char *)bytes, len);
    }
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    assert_string_equal(hex, json_string_value(json_object_get(entry, "sha256")));
    json_decref(all);
}

static void check_model(const tokenizer *t, const char *name)
{
    assert_true(for_rows(DATA "cases.jsonl", name, t, check_case) > 300);
    assert_true(for_rows(DATA "decode.jsonl", name, t, check_decode) > 20);
    check_token_bytes(t, name);
}

static void test_small_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small_models / sizeof small_models[0]; i++) {
        tokenizer *t = tokenizer_of_model(small_models[i]);
        check_model(t, small_models[i]);
        tokenizer_free(t);
    }
}

/* --- the real model --------------------------------------------------------------------------- */

static model *real_model;
static const tokenizer *real; /* NULL: not there, its tests are skipped */

typedef struct {
    const char *text;
    bool special;
    size_t n;
    int32_t ids[32];
} expected_ids;

#define IDS(...)                                                                                   \
    sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const expected_ids real_cases[] = {
    {"Invoice 20391 totals 1,048,576 units", false,
     IDS(27017, 9628, 216, 34, 32, 35, 41, 33, 37651, 216, 33, 28, 32, 36, 40, 28, 37, 39, 38,
         4784)},
    {"in 1999 AND 2007", false, IDS(254, 216, 33, 41, 41, 41, 7485, 216, 34, 32, 32, 39)},
    {"I'LL we'll They'RE don't DON'T", false,
     IDS(57, 23, 16421, 392, 3060, 1069, 23, 3256, 1326, 982, 422, 2154, 23, 68)},
    {"don\u2019t it\u2019s", false, IDS(12420, 417, 100, 357, 417, 99)},
    {"a   b", false, IDS(81, 256, 278)},
    {"tab\t\tend", false, IDS(15999, 197, 197, 486)},
    {"line\r\nline", false, IDS(1311, 201, 198, 1311)},
    {"trail  ", false, IDS(4861, 301, 256)},
    {" \n \n", false, IDS(3717, 3717)},
    {"  \n  x", false, IDS(256, 3805, 1792)},
    {"\r\n\r\n", false, IDS(18682)},
    {"a\xE2\x80"
     "b",
     false, IDS(81, 24211, 82)},
    {"a\xC0\xAF"
     "b",
     false, IDS(81, 24211, 24211, 82)},
    {"a\x80"
     "b",
     false, IDS(81, 24211, 82)},
    {"a\xF8"
     "b",
     false, IDS(81, 24211, 82)},
    {"<|im_start|>user", true, IDS(1, 4093)},
    {"user", true, IDS(4093)},
    {"<|im_start|>", false, IDS(44, 108, 306, 79, 3738, 108, 46)},
    {"<|im_start|>", true, IDS(1)},
};

static void test_real_golden(void **state)
{
    (void)state;
    if (!real) skip();
    check_model(real, "smollm2-135m");
}

static void test_real_cases(void **state)
{
    (void)state;
    if (!real) skip();
    for (size_t i = 0; i < sizeof real_cases / sizeof real_cases[0]; i++) {
        const expected_ids *c = &real_cases[i];
        id_list ids = {0};
        tokenizer_encode(real, c->text, strlen(c->text), c->special, false, &ids);
        if (ids.len != c->n || memcmp(ids.ids, c->ids, c->n * sizeof *c->ids) != 0)
            fail_msg("other ids for \"%s\"", c->text);
        id_list_free(&ids);
    }
}

static void test_real_long_pieces(void **state)
{
    (void)state;
    static const struct {
        int32_t id;
        size_t len;
    } long_pieces[] = {{46778, 81}, {45855, 80}, {39910, 76}, {40672, 66}};
    size_t len;
    if (!real) skip();
    for (int32_t id = 17; id < 49152; id++) {
        assert_non_null(tokenizer_bytes(real, id, &len));
        assert_true(len > 0);
    }
    for (size_t i = 0; i < sizeof long_pieces / sizeof long_pieces[0]; i++) {
        tokenizer_bytes(real, long_pieces[i].id, &len);
        assert_int_equal(len, long_pieces[i].len);
    }
    assert_null(tokenizer_bytes(real, 49152, &len));
    assert_null(tokenizer_bytes(real, -1, &len));
}

static void test_real_stream(void **state)
{
    (void)state;
    static const int32_t ids[] = {10813, 235, 119, 321, 231, 10813, 230, 139};
    stream_decoder d = {0};
    buf out = {0}, whole = {0}, repaired = {0};
    if (!real) skip();
    stream_decoder_push(&d, real, 10813, &out);
    assert_int_equal(out.len, 0);
    stream_decoder_push(&d, real, 38887, &out);
    assert_string_equal(buf_str(&out), "\xF0\x9F\x99\x82");
    buf_clear(&out);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        stream_decoder_push(&d, real, ids[i], &out);
    stream_decoder_finish(&d, &out);
    tokenizer_decode(real, ids, sizeof ids / sizeof ids[0], true, &whole);
    utf8_repair(whole.data, whole.len, &repaired);
    assert_string_equal(buf_str(&out), buf_str(&repaired));
    buf_clear(&out);
    tokenizer_decode(real, (int32_t[]){1, 2, 0}, 3, true, &out);
    assert_int_equal(out.len, 0); /* control tokens are not shown */
    buf_free(&out);
    buf_free(&whole);
    buf_free(&repaired);
}

/* --- long runs -------------------------------------------------------------------------------- */

typedef struct {
    const char *unit;
    size_t times, n_ids; /* n_ids: of the real model */
} long_run;

static const long_run long_runs[] = {
    {"A", 43000, 5375},  {" ", 100000, 1563}, {"us", 30000, 30000}, {"\u5B57", 26000, 26000},
    {"9", 20000, 20000}, {"\n", 30000, 7500}, {".", 26000, 1625},
};

typedef struct {
    const tokenizer *t;
    bool check_counts;
    size_t factor;
} long_job;

static void *encode_long_runs(void *arg)
{
    const long_job *job = arg;
    for (size_t i = 0; i < sizeof long_runs / sizeof long_runs[0]; i++) {
        const long_run *r = &long_runs[i];
        buf text = {0}, back = {0};
        id_list ids = {0};
        for (size_t j = 0; j < r->times * job->factor; j++)
            buf_puts(&text, r->unit);
        tokenizer_encode(job->t, text.data, text.len, false, false, &ids);
        tokenizer_decode(job->t, ids.ids, ids.len, false, &back);
        bool same = back.len == text.len && memcmp(back.data, text.data, text.len) == 0;
        if (!same || (job->check_counts && ids.len != r->n_ids)) return (void *)r->unit;
        buf_free(&text);
        buf_free(&back);
        id_list_free(&ids);
    }
    return NULL;
}

static void run_on_small_stack(void *(*run)(void *), void *arg)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 512 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, arg), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    pthread_attr_destroy(&attributes);
    if (result) fail_msg("a run of \"%s\" came out wrong", (const char *)result);
}

static void test_real_long_runs(void **state)
{
    (void)state;
    if (!real) skip();
    long_job job = {real, true, 1};
    run_on_small_stack(encode_long_runs, &job);
}

static void test_long_runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small_models / sizeof small_models[0]; i++) {
        tokenizer *t = tokenizer_of_model(small_models[i]);
        long_job job = {t, false, 2};
        run_on_small_stack(encode_long_runs, &job);
        tokenizer_free(t);
    }
}

/* The work of the merges is counted, not timed: twice the text, a little over twice the steps. */
static void test_merging_is_linear_but_for_a_logarithm(void **state)
{
    (void)state;
    tokenizer_json f;
    bpe *b = NULL;
    pf_err err;
    uint64_t steps[2];
    tokenizer_json_open(&f, "tests/data/models/tiny-llama/hf/tokenizer.json", "smollm");
    size_t n = f.source.n_tokens;
    token_bytes v = {.bytes = xmalloc(1 << 16), .offsets = xcalloc(n + 1, sizeof(size_t)), .n = n};
    for (size_t i = 0; i < n; i++) {
        size_t len =
            f.kinds[i] == TOKEN_NORMAL
                ? byte_alphabet_decode(f.pieces[i], f.piece_lengths[i], v.bytes + v.offsets[i])
                : 0;
        v.offsets[i + 1] = v.offsets[i] + len;
    }
    assert_int_equal(bpe_create(&f.source, &v, &b, &err), PF_OK);
    for (int round = 0; round < 2; round++) {
        bpe_scratch scratch = {0};
        id_list ids = {0};
        buf text = {0};
        for (int i = 0; i < (round ? 40000 : 20000); i++)
            buf_puts(&text, "ther");
        bpe_encode(b, &scratch, text.data, text.len, &ids);
        steps[round] = scratch.steps;
        bpe_scratch_free(&scratch);
        id_list_free(&ids);
        buf_free(&text);
    }
    assert_true(steps[0] > 20000);
    assert_true(steps[1] < steps[0] * 5 / 2);
    bpe_free(b);
    free(v.bytes);
    free(v.offsets);
    tokenizer_json_close(&f);
}

/* --- splits ----------------------------------------------------------------------------------- */

static void join_pieces(void *ctx, const char *piece, size_t len)
{
    buf *joined = ctx;
    if (joined->len) buf_putc(joined, '|');
    buf_append(joined, piece, len);
}

static void test_splits(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *pieces;
    } cases[] = {
        {"qwen2", "I'LL pay 1999 to Ann's", "I|'LL| pay| |1|9|9|9| to| Ann|'s"},
        {"qwen2", "x  \n \n  y", "x|  \n \n| | y"},
        {"llama-bpe", "pay 12345!\n\n ok", "pay| |123|45|!\n\n| ok"},
        {"llama-bpe", "(a)b  'S", "(a|)b| | '|S"},
        {"gpt2", "I'LL we'll 1999  x", "I|'|LL| we|'ll| 1999| | x"},
        {"gpt-2", "a\n\nb", "a|\n|\n|b"},
        {"smollm", "x 12  3 y", "x| |1|2|  |3| y"},
        {"smollm", "a\u1680\u180Eb", "a|\u1680|\u180E|b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pretokenizer *p = NULL;
        buf joined = {0};
        assert_int_equal(pretokenizer_create(cases[i].name, &p, NULL), PF_OK);
        pretokenizer_split(p, cases[i].text, strlen(cases[i].text), join_pieces, &joined);
        assert_string_equal(buf_str(&joined), cases[i].pieces);
        buf_free(&joined);
        pretokenizer_free(p);
    }
}

static void test_unknown_pretokenizer(void **state)
{
    (void)state;
    pretokenizer *p = NULL;
    pf_err err;
    assert_int_equal(pretokenizer_create("smolln", &p, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "smolln"));
    assert_non_null(strstr(err.text, "smollm, llama-bpe, qwen2, gpt2"));
    assert_int_equal(pretokenizer_create(NULL, &p, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "smollm"));
    assert_null(p);
}

/* --- normalisation ---------------------------------------------------------------------------- */

static void test_nfc(void **state)
{
    (void)state;
    static const struct {
        const char *text, *composed;
    } cases[] = {
        {"e\u0301te\u0301", "\u00E9t\u00E9"},
        {"\u00E9t\u00E9", "\u00E9t\u00E9"},
        {"\u1112\u1161\u11AB", "\uD55C"},  /* Hangul */
        {"\u212B", "\u00C5"},              /* a singleton */
        {"a\u0301\u0316", "\u00E1\u0316"}, /* marks in canonical order */
        {"q\u0307\u0323", "q\u0323\u0307"},
        {"\u0958", "\u0915\u093C"}, /* excluded from composition */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf out = {0};
        nfc_append(cases[i].text, strlen(cases[i].text), &out);
        assert_string_equal(buf_str(&out), cases[i].composed);
        buf_free(&out);
    }
}

/* A run of marks in the worst order must not take quadratic time (it would be minutes). */
static void test_nfc_of_many_marks(void **state)
{
    (void)state;
    buf text = {0}, out = {0};
    buf_putc(&text, 'x');
    for (int i = 0; i < 400000; i++)
        buf_puts(&text, i < 200000 ? "\u0302" : "\u0316");
    nfc_append(text.data, text.len, &out);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data, "x\u0316", 3);
    assert_memory_equal(out.data + out.len - 2, "\u0302", 2);
    buf_free(&text);
    buf_free(&out);
}

/* --- hostile sources -------------------------------------------------------------------------- */

typedef struct {
    const char *what;
    void (*damage)(tokenizer_json *f);
    const char *message; /* must be in the refusal; NULL: it loads */
} hostile_source;

static void set_merge(tokenizer_json *f, size_t i, char *text)
{
    free(f->merges[i]);
    f->merges[i] = text;
    f->merge_lengths[i] = strlen(text);
}

static void set_piece(tokenizer_json *f, size_t i, char *text)
{
    free(f->pieces[i]);
    f->pieces[i] = text;
    f->piece_lengths[i] = strlen(text);
}

static char *long_text(size_t n)
{
    char *text = xmalloc(n + 1);
    memset(text, 'a', n);
    text[n] = 0;
    return text;
}

static void merge_no_space(tokenizer_json *f)
{
    set_merge(f, 7, xstrdup("ab"));
}
static void merge_two_spaces(tokenizer_json *f)
{
    set_merge(f, 8, xstrdup("a b c"));
}
static void merge_double_space(tokenizer_json *f)
{
    set_merge(f, 9, xstrdup("a  b"));
}
static void merge_unknown(tokenizer_json *f)
{
    set_merge(f, 10, xstrdup("zzzz qqqq"));
}
static void merge_unknown_result(tokenizer_json *f)
{
    set_merge(f, 11, xstrdup("~ ~"));
}
static void merge_empty(tokenizer_json *f)
{
    set_merge(f, 12, xstrdup(""));
}
static void merge_long(tokenizer_json *f)
{
    set_merge(f, 13, long_text(70000));
}
static void merge_foreign(tokenizer_json *f)
{
    set_merge(f, 14, xstrdup("\u5B57 a"));
}
static void piece_empty(tokenizer_json *f)
{
    set_piece(f, 300, xstrdup(""));
}
static void piece_foreign(tokenizer_json *f)
{
    set_piece(f, 301, xstrdup("a b"));
}
static void piece_ill_formed(tokenizer_json *f)
{
    set_piece(f, 302, xstrdup("\xC4"));
}
static void piece_long(tokenizer_json *f)
{
    set_piece(f, 303, long_text(70000));
}
static void marker_long(tokenizer_json *f)
{
    set_piece(f, 1, long_text(1025));
}
static void kind_unknown(tokenizer_json *f)
{
    f->kinds[304] = (token_kind)99;
}
static void start_out_of_range(tokenizer_json *f)
{
    f->source.bos_id = 590;
}
static void end_out_of_range(tokenizer_json *f)
{
    f->source.eos_id = 4000000;
}
static void end_negative(tokenizer_json *f)
{
    f->source.eos_id = -2;
}
static void no_tokens(tokenizer_json *f)
{
    f->source.n_tokens = 0;
}
static void splitter_unknown(tokenizer_json *f)
{
    f->source.pretokenizer = "smolln";
}
static void splitter_absent(tokenizer_json *f)
{
    f->source.pretokenizer = NULL;
}
static void equal_pieces(tokenizer_json *f)
{
    f->source.n_merges = 0;
    set_piece(f, 589, xstrdup("a"));
}
static void equal_merges(tokenizer_json *f)
{
    set_merge(f, 329, xstrdup(f->merges[2]));
}
static void as_it_is(tokenizer_json *f)
{
    (void)f;
}

static void test_hostile_sources(void **state)
{
    (void)state;
    static const hostile_source cases[] = {
        {"no space", merge_no_space, "merge 7 "},
        {"two spaces", merge_two_spaces, "merge 8 "},
        {"double space", merge_double_space, "merge 9 "},
        {"unknown parts", merge_unknown, "merge 10 "},
        {"unknown result", merge_unknown_result, "merge 11 "},
        {"empty merge", merge_empty, "merge 12 "},
        {"long merge", merge_long, "merge 13 "},
        {"foreign merge", merge_foreign, "merge 14 "},
        {"empty piece", piece_empty, "token 300 "},
        {"foreign piece", piece_foreign, "token 301 "},
        {"ill-formed piece", piece_ill_formed, "token 302 "},
        {"long piece", piece_long, "token 303 "},
        {"long marker", marker_long, "token 1 "},
        {"unknown kind", kind_unknown, "token 304 "},
        {"start id", start_out_of_range, "590"},
        {"end id", end_out_of_range, "4000000"},
        {"negative end id", end_negative, "-2"},
        {"no tokens", no_tokens, "0 tokens"},
        {"unknown splitter", splitter_unknown, "smolln"},
        {"no splitter", splitter_absent, "not named"},
        {"equal pieces", equal_pieces, NULL},
        {"equal merges", equal_merges, NULL},
        {"undamaged", as_it_is, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tokenizer_json f;
        tokenizer *t = NULL;
        pf_err err = {0};
        tokenizer_json_open(&f, "tests/data/models/tiny-llama/hf/tokenizer.json", "smollm");
        cases[i].damage(&f);
        pf_status status = tokenizer_create(&f.source, &t, &err);
        const char *message = cases[i].message;
        if (status != (message ? PF_REFUSED : PF_OK) || (message && !strstr(err.text, message)))
            fail_msg("%s: status %d, \"%s\"", cases[i].what, status, err.text);
        assert_true((t != NULL) == (message == NULL));
        tokenizer_free(t);
        tokenizer_json_close(&f);
    }
}

/* --- special tokens --------------------------------------------------------------------------- */

static void test_specials(void **state)
{
    (void)state;
    tokenizer *t = tokenizer_of_model("tiny-qwen3");
    id_list ids = {0};
    assert_int_equal(tokenizer_find_special(t, "<|im_end|>"), 583);
    assert_int_equal(tokenizer_find_special(t, "<think>"), 584);
    assert_int_equal(tokenizer_find_special(t, "<think"), -1);
    assert_int_equal(tokenizer_find_special(t, "<think>>"), -1);
    assert_int_equal(tokenizer_find_special(t, ""), -1);
    assert_int_equal(tokenizer_kind(t, 584), TOKEN_ADDED);
    assert_int_equal(tokenizer_kind(t, 583), TOKEN_CONTROL);
    assert_int_equal(tokenizer_kind(t, -5), TOKEN_UNUSED);
    /* Added text is matched also where control text is not. */
    const char *text = "<think><|im_end|></think>";
    tokenizer_encode(t, text, strlen(text), false, true, &ids);
    assert_int_equal(ids.ids[0], 584);
    assert_int_equal(ids.ids[ids.len - 1], 585);
    for (size_t i = 0; i < ids.len; i++)
        assert_int_not_equal(tokenizer_kind(t, ids.ids[i]), TOKEN_CONTROL);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), 583);
    assert_int_equal(tokenizer_size(t), 586);
    id_list_free(&ids);
    tokenizer_free(t);
}

/* A character split over tokens is held, also across a control token; hopeless bytes are not. */
static void test_stream_holds_characters(void **state)
{
    (void)state;
    tokenizer *t = tokenizer_of_model("tiny-llama");
    int32_t byte[256];
    for (int32_t id = 0; id < (int32_t)tokenizer_size(t); id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, id, &len);
        if (len == 1) byte[(unsigned char)bytes[0]] = id;
    }
    const int32_t ids[] = {byte[0xE5], 2, byte[0xAD], byte[0x97], byte[0xF0], byte[0x41]};
    static const char *const shown[] = {"",
                                        "",
                                        "",
                                        "\u5B57",
                                        "",
                                        "\uFFFD"
                                        "A"};
    stream_decoder d = {0};
    buf out = {0};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        buf_clear(&out);
        stream_decoder_push(&d, t, ids[i], &out);
        assert_string_equal(buf_str(&out), shown[i]);
    }
    buf_clear(&out);
    stream_decoder_push(&d, t, byte[0xC3], &out);
    stream_decoder_finish(&d, &out);
    assert_string_equal(buf_str(&out), "\uFFFD");
    buf_free(&out);
    tokenizer_free(t);
}

static int open_real(void **state)
{
    (void)state;
    pf_err err;
    const char *path = getenv("PREFT_TEST_MODEL");
    if (!path || !*path) {
        print_message("PREFT_TEST_MODEL is not set: tests of the real model are skipped\n");
        return 0;
    }
    if (model_open(path, NULL, &real_model, &err) != PF_OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    real = model_get_tokenizer(real_model);
    return 0;
}

static int close_real(void **state)
{
    (void)state;
    model_close(real_model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_models),
        cmocka_unit_test(test_real_golden),
        cmocka_unit_test(test_real_cases),
        cmocka_unit_test(test_real_long_pieces),
        cmocka_unit_test(test_real_stream),
        cmocka_unit_test(test_real_long_runs),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_merging_is_linear_but_for_a_logarithm),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_unknown_pretokenizer),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_nfc_of_many_marks),
        cmocka_unit_test(test_hostile_sources),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_stream_holds_characters),
    };
    return cmocka_run_group_tests(tests, open_real, close_real);
}
