/* A tokenizer out of a tokenizer.json, for tests that want no model around it. */
#ifndef PF_TESTS_SUPPORT_TOKENIZER_JSON_H
#define PF_TESTS_SUPPORT_TOKENIZER_JSON_H

#include "models/tokenizer.h"

#include <jansson.h>

/* A tokenizer_source with the memory it borrows. */
typedef struct {
    tokenizer_source source;
    json_t *json;
    char **pieces, **merges;
    size_t *piece_lengths, *merge_lengths;
    token_kind *kinds;
    size_t n_pieces, n_merges;
} tokenizer_json;

/* Reads path; fails the running test if it can't. pretokenizer: "smollm", ... The source's start
 * and end ids are -1: set them as needed. */
void tokenizer_json_open(tokenizer_json *f, const char *path, const char *pretokenizer);
void tokenizer_json_close(tokenizer_json *f);

/* The tokenizer of tests/data/models/NAME ("tiny-llama", ...), with its start token. Owned. */
tokenizer *tokenizer_of_model(const char *name);

/* The rows of a .jsonl file as a JSON array; fails the test if there are none. */
json_t *jsonl_load(const char *path);

/* Appends the bytes of base64 text. */
void base64_append(const char *text, buf *out);

#endif
