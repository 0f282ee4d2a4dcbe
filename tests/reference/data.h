/* Reading a folder of reference data: JSON, JSON lines, tensors. A file that is there but can't be
 * read ends the program: the data itself is broken. */
#ifndef REFERENCE_DATA_H
#define REFERENCE_DATA_H

#include "base/file.h"
#include "base/json.h"
#include "models/safetensors.h"
#include "models/tokenizer.h"

#include <stdbool.h>

/* "folder/..." from a format; owned. */
char *data_path(const char *folder, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The value of a JSON file, owned; NULL if the file is absent. */
json_t *data_json(const char *path);

/* Calls line for each object of a .jsonl file; false if the file is absent. */
typedef void (*data_line)(void *ctx, const json_t *object);
bool data_jsonl(const char *path, data_line line, void *ctx);

/* A safetensors file, kept while its tensors are used. False if absent. */
typedef struct {
    file_map map;
    safetensors st;
} data_tensors;
bool data_tensors_open(const char *path, data_tensors *out);
void data_tensors_close(data_tensors *t);

/* [rows, cols] of F32 or I32 (bit patterns kept), NULL if absent; rows = 1 for a vector of cols.
 * A copy, owned, aligned. */
float *data_floats(const data_tensors *t, const char *name, int64_t *rows, int64_t *cols);
int32_t *data_ints(const data_tensors *t, const char *name, int64_t *rows, int64_t *cols);

/* Members of a JSON object; absent ones end the program. Borrowed. */
const json_t *data_get(const json_t *object, const char *key);
const char *data_string(const json_t *object, const char *key);
double data_real(const json_t *object, const char *key);
bool data_bool(const json_t *object, const char *key);
/* Appends an array of integers. */
void data_ids(const json_t *array, id_list *out);

/* Appends the decoded bytes of base64 text. */
void data_base64(const char *text, buf *out);

#endif
