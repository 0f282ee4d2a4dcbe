/* Byte-pair merges: the vocabulary by its bytes, the merges by their rank, and the merging of one
 * piece in n log n. Immutable after creation. */
#ifndef PF_MODELS_TOKENIZER_BPE_H
#define PF_MODELS_TOKENIZER_BPE_H

#include "models/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct bpe bpe;

/* The bytes of all tokens: token i is bytes[offsets[i] .. offsets[i + 1]). */
typedef struct {
    char *bytes;
    size_t *offsets; /* [n + 1] */
    size_t n;
} token_bytes;

/* Translates text in the byte-level alphabet (each byte stands as one character, GPT-2's map) to
 * bytes. out has room for len bytes. Returns their number, SIZE_MAX if a character is no part of
 * the alphabet or the text is ill-formed. */
size_t byte_alphabet_decode(const char *text, size_t len, char *out);

/* Only tokens of kind TOKEN_NORMAL take part. vocabulary is borrowed for as long as the result
 * lives. PF_REFUSED names the first bad merge by its index. */
pf_status bpe_create(const tokenizer_source *source, const token_bytes *vocabulary, bpe **out,
                     pf_err *err);
void bpe_free(bpe *b);

/* Working memory of one thread, reused from piece to piece. Zeroed = empty. */
typedef struct {
    struct bpe_symbol *symbols;
    size_t symbols_cap;
    uint64_t *heap;
    size_t heap_len, heap_cap;
    uint64_t steps; /* heap operations so far: what the linearity test counts */
} bpe_scratch;
void bpe_scratch_free(bpe_scratch *s);

/* Appends the ids of one piece. Bytes that the vocabulary lacks give no id. */
void bpe_encode(const bpe *b, bpe_scratch *s, const char *piece, size_t len, id_list *out);

#endif
