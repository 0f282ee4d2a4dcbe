/* Commands that read one JSON object a line and write one a line, and the values they share. */
#ifndef PF_COMMANDS_JSONL_H
#define PF_COMMANDS_JSONL_H

#include "base/buf.h"
#include "commands/command.h"
#include "models/template.h"

#include <jansson.h>
#include <stdint.h>

/* Fills answer (an empty object) for one line. A failure becomes the line's {"line", "error"}. */
typedef pf_status (*jsonl_handler)(void *ctx, const json_t *line, json_t *answer, pf_err *err);

/* Reads path (NULL or "-": standard input) to its end; writes an answer for every line that is not
 * blank, in order. PF_FAILED with the count at the end if a line failed, PF_REFUSED at a line of
 * more than 64 MiB. */
pf_status jsonl_run(const char *path, jsonl_handler handler, void *ctx, pf_err *err);

/* Writes value as one line on standard output. */
pf_status json_print(const json_t *value, pf_err *err);

/* Appends the bytes of the member "text" (a string) or "b64" (base64): exactly one is there. */
pf_status json_get_bytes(const json_t *object, buf *out, pf_err *err);
/* A new string: the bytes as UTF-8, ill-formed parts replaced. */
json_t *json_text(const char *bytes, size_t len);
/* A new string: the bytes as base64. */
json_t *json_base64(const char *bytes, size_t len);
/* A new array of numbers. */
json_t *json_ids(const int32_t *ids, size_t n);
/* Appends the numbers of a JSON array; all must be in [0, size). */
pf_status json_read_ids(const json_t *array, size_t size, id_list *out, pf_err *err);

/* Messages out of [{"role", "content", "ids"?}, ...]. Texts are borrowed from array. PF_REFUSED
 * names the message by its index: no object, role missing or unknown, content missing or no text,
 * ids not of an answer. */
typedef struct {
    chat_message *items;
    size_t n;
    id_list *ids; /* [n] */
} message_list;
pf_status messages_read(const json_t *array, const tokenizer *t, message_list *out, pf_err *err);
void messages_free(message_list *list);

#endif
