/* Byte-level BPE tokenizer. Immutable after creation; every function is thread-safe. */
#ifndef PF_MODELS_TOKENIZER_H
#define PF_MODELS_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;

/* A growable array of token ids; zeroed = empty. */
typedef struct {
    int32_t *ids;
    size_t len, cap;
} id_list;
void id_list_append(id_list *list, int32_t id);
void id_list_append_all(id_list *list, const int32_t *ids, size_t n);
void id_list_free(id_list *list); /* wiped */

typedef enum {
    TOKEN_NORMAL,  /* a piece of text */
    TOKEN_CONTROL, /* a marker: only templates and parse_special produce it; no text when shown */
    TOKEN_ADDED,   /* an added token that is ordinary text (<think>): matched in any text */
    TOKEN_UNUSED   /* padding of the vocabulary: stands for no bytes */
} token_kind;

/* What a file says of its tokenizer; borrowed during tokenizer_create. Pieces are in the byte-level
 * alphabet for TOKEN_NORMAL (GPT-2's byte-to-character map) and literal text for the other kinds.
 */
typedef struct {
    const char *name;         /* of the file, for messages */
    const char *pretokenizer; /* "smollm", "llama-bpe", "qwen2", "gpt2" */
    size_t n_tokens;
    const char *const *pieces;   /* [n_tokens] NUL-free text with the lengths below */
    const size_t *piece_lengths; /* [n_tokens] */
    const token_kind *kinds;     /* [n_tokens] */
    size_t n_merges;
    const char *const *merges; /* [n_merges] "left right" in rank order */
    const size_t *merge_lengths;
    bool add_bos;
    int32_t bos_id, eos_id; /* -1: none */
    bool ignore_merges;     /* a piece that is a token as a whole is that token */
    bool nfc;               /* compose characters between special tokens first */
} tokenizer_source;

/* PF_REFUSED names the bad entry by index. An unknown pre-tokenizer is refused with the known ones.
 */
pf_status tokenizer_create(const tokenizer_source *source, tokenizer **out, pf_err *err);
void tokenizer_free(tokenizer *t);

/* Appends the ids of text[0..len). Ill-formed UTF-8 is read as U+FFFD for each maximal ill-formed
 * part. parse_special: the text of a control token becomes its id; else it is ordinary text.
 * add_bos: puts the model's start token in front where the model asks for it. Linear time in len.
 */
void tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool parse_special,
                      bool add_bos, id_list *out);

/* The bytes that a token stands for; NULL if id is out of range. Control tokens: their own text.
 * Borrowed. */
const char *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *len);
token_kind tokenizer_kind(const tokenizer *t, int32_t id);
/* The id of the control or added token with this text, or -1. */
int32_t tokenizer_find_special(const tokenizer *t, const char *text);

/* Appends the concatenated bytes of ids (may be ill-formed UTF-8: see utf8_repair).
 * skip_control leaves control tokens out, as for display. Ids out of range are skipped. */
void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_control,
                      buf *out);

size_t tokenizer_size(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);

/* Streaming decoder: tokens in, whole UTF-8 out. A character split over tokens is held back until
 * it is whole; bytes that can't become valid come out as U+FFFD. Zeroed = fresh. */
typedef struct {
    char held[4];
    size_t n_held;
} stream_decoder;
/* Appends what may be shown after this token (control tokens: nothing). */
void stream_decoder_push(stream_decoder *d, const tokenizer *t, int32_t id, buf *out);
/* At the end: a held incomplete character comes out as U+FFFD. */
void stream_decoder_finish(stream_decoder *d, buf *out);

#endif
