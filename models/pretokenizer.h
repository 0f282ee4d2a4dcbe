/* Pre-tokenizers: how a text is cut into the pieces that byte-pair merges never cross. Each known
 * one is a regular expression (PCRE2), written with atomic forms so that a match takes time linear
 * in its length and no stack, whatever the text. */
#ifndef PF_MODELS_PRETOKENIZER_H
#define PF_MODELS_PRETOKENIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pretokenizer pretokenizer;

/* What a pre-tokenizer's name implies of the rest of the tokenizer, for files that don't record it
 * (GGUF). */
typedef struct {
    bool nfc;           /* text between special tokens is brought into form NFC first */
    bool ignore_merges; /* a piece that is a token as a whole is that token */
    bool add_bos;       /* the start token goes in front, unless the file says otherwise */
} pretokenizer_traits;

/* PF_REFUSED with the known names for any other name (NULL: the file names none). */
pf_status pretokenizer_create(const char *name, pretokenizer **out, pf_err *err);
void pretokenizer_free(pretokenizer *p);

/* False if name is unknown. */
bool pretokenizer_get_traits(const char *name, pretokenizer_traits *out);

/* Calls visit for every piece in order; the pieces are the text. text must be valid UTF-8.
 * Thread-safe. */
typedef void (*pretokenizer_visit)(void *ctx, const char *piece, size_t len);
void pretokenizer_split(const pretokenizer *p, const char *text, size_t len,
                        pretokenizer_visit visit, void *ctx);

#endif
