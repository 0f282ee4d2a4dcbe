/* Text to ids and back, exact (README section 2). */
#include "groups.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tokenizer *t;
    const char *model; /* rows of other models are passed over */
    const char *file;
    report *rep;
    int row;
} tokenizer_run;

static bool is_mine(tokenizer_run *run, const json_t *row)
{
    run->row++;
    return strcmp(data_string(row, "model"), run->model) == 0;
}

static bool same_ids(const id_list *a, const id_list *b)
{
    return a->len == b->len &&
           (a->len == 0 || memcmp(a->ids, b->ids, a->len * sizeof *a->ids) == 0);
}

static bool same_text(const buf *b, const json_t *text)
{
    size_t len = json_string_length(text);

    return b->len == len && (len == 0 || memcmp(b->data, json_string_value(text), len) == 0);
}

/* Decoded text with ill-formed parts replaced. */
static bool decodes_to(const tokenizer *t, const id_list *ids, bool skip_control,
                       const json_t *text)
{
    buf bytes = {0}, repaired = {0};

    tokenizer_decode(t, ids->ids, ids->len, skip_control, &bytes);
    utf8_repair(bytes.data, bytes.len, &repaired);
    bool same = same_text(&repaired, text);
    buf_free(&bytes);
    buf_free(&repaired);
    return same;
}

static void check_case(void *ctx, const json_t *row)
{
    tokenizer_run *run = ctx;
    id_list want = {0}, got = {0};
    buf text = {0};

    if (!is_mine(run, row)) return;
    const json_t *plain = json_object_get(row, "text");
    if (plain)
        buf_append(&text, json_string_value(plain), json_string_length(plain));
    else
        data_base64(data_string(row, "b64"), &text);
    data_ids(data_get(row, "ids"), &want);
    tokenizer_encode(run->t, buf_str(&text), text.len, data_bool(row, "parse_special"),
                     data_bool(row, "add_special"), &got);
    report_check(run->rep, same_ids(&want, &got), "%s: cases.jsonl line %d: %zu ids, expected %zu",
                 run->file, run->row, got.len, want.len);
    report_check(run->rep, decodes_to(run->t, &want, false, data_get(row, "decode")),
                 "%s: cases.jsonl line %d: decoded text differs", run->file, run->row);
    id_list_free(&want);
    id_list_free(&got);
    buf_free(&text);
}

static void check_decode(void *ctx, const json_t *row)
{
    tokenizer_run *run = ctx;
    id_list ids = {0};
    buf want = {0}, got = {0};

    if (!is_mine(run, row)) return;
    data_ids(data_get(row, "ids"), &ids);
    data_base64(data_string(row, "b64"), &want);
    tokenizer_decode(run->t, ids.ids, ids.len, false, &got);
    report_check(run->rep,
                 want.len == got.len && (got.len == 0 || memcmp(want.data, got.data, got.len) == 0),
                 "%s: decode.jsonl line %d: bytes differ", run->file, run->row);
    report_check(run->rep,
                 decodes_to(run->t, &ids, false, data_get(row, "decode")) &&
                     decodes_to(run->t, &ids, true, data_get(row, "decode_skip_special")),
                 "%s: decode.jsonl line %d: text differs", run->file, run->row);
    id_list_free(&ids);
    buf_free(&want);
    buf_free(&got);
}

/* The digest over (length as little-endian u32, bytes) of tokens 0..n-1. */
static void check_digest(const tokenizer_run *run, const json_t *entry)
{
    const int64_t n = json_integer_value(data_get(entry, "n_vocab"));
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof digest + 1];

    crypto_hash_sha256_init(&state);
    for (int64_t id = 0; id < n; id++) {
        size_t len = 0;
        const char *bytes = tokenizer_bytes(run->t, (int32_t)id, &len);
        const unsigned char length[4] = {len & 0xff, len >> 8 & 0xff, len >> 16 & 0xff,
                                         len >> 24 & 0xff};
        crypto_hash_sha256_update(&state, length, sizeof length);
        if (bytes) crypto_hash_sha256_update(&state, (const unsigned char *)bytes, len);
    }
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    report_check(run->rep, strcmp(hex, data_string(entry, "sha256")) == 0,
                 "%s: the bytes of the %lld tokens differ", run->file, (long long)n);
}

static void check_bytes(const tokenizer_run *run, const json_t *entry)
{
    const json_t *list = json_object_get(entry, "b64");
    size_t id;
    json_t *text;

    check_digest(run, entry);
    json_array_foreach(list, id, text)
    {
        buf want = {0};
        size_t len = 0;
        const char *bytes = tokenizer_bytes(run->t, (int32_t)id, &len);
        data_base64(json_string_value(text), &want);
        report_check(run->rep,
                     bytes && len == want.len && (len == 0 || memcmp(bytes, want.data, len) == 0),
                     "%s: the bytes of token %zu differ", run->file, id);
        buf_free(&want);
    }
}

static void check_model(const check_context *c, const char *name, const char *path, report *rep)
{
    char *cases = data_path(c->folder, "tokenizer/cases.jsonl");
    char *decode = data_path(c->folder, "tokenizer/decode.jsonl");
    char *bytes = data_path(c->folder, "tokenizer/bytes.json");
    model *m = NULL;

    if (open_model(path, &m, rep)) {
        tokenizer_run run = {
            .t = model_get_tokenizer(m), .model = name, .file = file_label(path), .rep = rep};
        json_t *set = data_json(bytes);
        if (!data_jsonl(cases, check_case, &run)) report_skip(rep, 1, "no tokenizer/cases.jsonl");
        run.row = 0;
        if (!data_jsonl(decode, check_decode, &run))
            report_skip(rep, 1, "no tokenizer/decode.jsonl");
        if (json_object_get(set, name))
            check_bytes(&run, json_object_get(set, name));
        else
            report_skip(rep, 1, "no bytes of %s in tokenizer/bytes.json", name);
        json_decref(set);
    }
    model_close(m);
    free(cases);
    free(decode);
    free(bytes);
}

void check_tokenizer(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++) {
        char *paths[2] = {NULL, NULL};
        int n = model_files(c, *name, paths, rep);
        for (int i = 0; i < n; i++) {
            check_model(c, *name, paths[i], rep);
            free(paths[i]);
        }
    }
}
