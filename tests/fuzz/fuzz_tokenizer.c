/* Tokenizer. First byte: which pre-tokenizer and what settings; the rest is text, and the same
 * bytes once more as the lines of a vocabulary. What must hold: nothing crashes; decoding gives the
 * text back with ill-formed parts replaced; control tokens come only when asked for; the stream
 * shows what the whole shows. */
#include "base/mem.h"
#include "base/utf8.h"
#include "models/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N_BYTES 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const splits[] = {"smollm", "llama-bpe", "qwen2", "gpt2"};
static const char *const extra[] = {"th", "the", "in", "ing", "\u0120\u0120", "\u010A\u010A", "99"};
static const char *const merges[] = {"t h",  "th e",          "i n",           "n g",
                                     "in g", "\u0120 \u0120", "\u010A \u010A", "9 9"};
static const char *const markers[] = {"<|im_start|>", "<|im_end|>", "<|", "<think>"};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define N_TOKENS (N_BYTES + COUNT(extra) + 1 + COUNT(markers))

/* The byte-level alphabet, written out independently of the tokenizer's. */
static void byte_piece(unsigned byte, char *out)
{
    unsigned next = 256, c = byte;
    for (unsigned b = 0; b < 256; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) {
            c = itself ? b : next;
            break;
        }
        next += !itself;
    }
    out[utf8_encode(c, out)] = 0;
}

static tokenizer *create(unsigned char settings)
{
    static char bytes[N_BYTES][8];
    const char *pieces[N_TOKENS];
    size_t lengths[N_TOKENS], merge_lengths[COUNT(merges)], n = 0;
    token_kind kinds[N_TOKENS] = {TOKEN_NORMAL};
    tokenizer *t = NULL;
    for (unsigned b = 0; b < N_BYTES; b++) {
        byte_piece(b, bytes[b]);
        pieces[n++] = bytes[b];
    }
    for (size_t i = 0; i < COUNT(extra); i++)
        pieces[n++] = extra[i];
    pieces[n++] = "ng";
    for (size_t i = 0; i < COUNT(markers); i++) {
        kinds[n] = i + 1 < COUNT(markers) ? TOKEN_CONTROL : TOKEN_ADDED;
        pieces[n++] = markers[i];
    }
    for (size_t i = 0; i < n; i++)
        lengths[i] = strlen(pieces[i]);
    for (size_t i = 0; i < COUNT(merges); i++)
        merge_lengths[i] = strlen(merges[i]);
    tokenizer_source source = {.name = "fuzz",
                               .pretokenizer = splits[settings & 3],
                               .n_tokens = n,
                               .pieces = pieces,
                               .piece_lengths = lengths,
                               .kinds = kinds,
                               .n_merges = COUNT(merges),
                               .merges = merges,
                               .merge_lengths = merge_lengths,
                               .bos_id = 0,
                               .eos_id = 1,
                               .ignore_merges = settings & 4,
                               .nfc = settings & 8};
    pf_err err;
    if (tokenizer_create(&source, &t, &err) != PF_OK) die("%s", err.text);
    return t;
}

static void check_text(const tokenizer *t, const char *text, size_t len, bool special, bool nfc)
{
    id_list ids = {0};
    buf back = {0}, want = {0}, streamed = {0}, shown = {0}, raw = {0};
    stream_decoder d = {0};
    tokenizer_encode(t, text, len, special, false, &ids);
    tokenizer_decode(t, ids.ids, ids.len, false, &back);
    utf8_repair(text, len, &want);
    bool same = back.len == want.len && (len == 0 || memcmp(back.data, want.data, want.len) == 0);
    PF_ASSERT(nfc || same);
    for (size_t i = 0; i < ids.len; i++) {
        PF_ASSERT(special || tokenizer_kind(t, ids.ids[i]) != TOKEN_CONTROL);
        size_t before = streamed.len;
        stream_decoder_push(&d, t, ids.ids[i], &streamed);
        PF_ASSERT(utf8_valid(buf_str(&streamed) + before, streamed.len - before));
    }
    stream_decoder_finish(&d, &streamed);
    tokenizer_decode(t, ids.ids, ids.len, true, &raw);
    utf8_repair(buf_str(&raw), raw.len, &shown);
    PF_ASSERT(shown.len == streamed.len);
    PF_ASSERT(shown.len == 0 || memcmp(shown.data, streamed.data, shown.len) == 0);
    id_list_free(&ids);
    buf_free(&back);
    buf_free(&want);
    buf_free(&streamed);
    buf_free(&shown);
    buf_free(&raw);
}

/* Lines of the input as pieces (first byte: the kind) and merges. */
static void check_source(const char *text, size_t len)
{
    const char *lines[64];
    size_t lengths[64], n = 0;
    token_kind kinds[64];
    for (size_t at = 0; at < len && n < 64; n++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end ? (size_t)(end - text) - at : len - at;
        kinds[n] = line ? (token_kind)((unsigned char)text[at] % 5) : TOKEN_NORMAL;
        lines[n] = text + at;
        lengths[n] = line;
        at += line + 1;
    }
    tokenizer_source source = {.name = "fuzz",
                               .pretokenizer = "smollm",
                               .n_tokens = n - n / 3,
                               .pieces = lines,
                               .piece_lengths = lengths,
                               .kinds = kinds,
                               .n_merges = n / 3,
                               .merges = lines + (n - n / 3),
                               .merge_lengths = lengths + (n - n / 3),
                               .bos_id = -1,
                               .eos_id = -1};
    tokenizer *t = NULL;
    id_list ids = {0};
    if (tokenizer_create(&source, &t, NULL) == PF_OK)
        tokenizer_encode(t, text, len, true, true, &ids);
    id_list_free(&ids);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tokenizer *all[16];
    if (size == 0) return 0;
    unsigned char settings = data[0] & 15;
    if (!all[settings]) all[settings] = create(settings);
    const char *text = (const char *)data + 1;
    check_text(all[settings], text, size - 1, data[0] & 16, settings & 8);
    check_source(text, size - 1);
    return 0;
}
