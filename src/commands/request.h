/* A request for the engine as one JSON object: a line of `preft batch`, and what `preft run` makes
 * of its options. The keys are listed in request_keys; others are refused by name. */
#ifndef PF_COMMANDS_REQUEST_H
#define PF_COMMANDS_REQUEST_H

#include "base/json.h"
#include "engine/engine.h"

#define REQUEST_MAX_TOKENS 512 /* when nothing is said */

/* What a request points to. Zeroed = empty. */
typedef struct {
    engine_request request;     /* adapter is 0: see adapter_folder */
    const char *adapter_folder; /* NULL: none */
    const char *system;         /* NULL: none */
    chat_message *messages;     /* grows with the turns of a conversation */
    size_t n_messages;
    const char **turns; /* user texts that are answered one after another */
    size_t n_turns;
    id_list ids;
    json_t *object; /* a reference: the texts live in it */
} request_input;

/* Reads an object; *out must be zeroed and is freed by the caller also on failure. PF_USAGE names
 * the key. */
pf_status request_read(json_t *object, request_input *out, pf_err *err);
void request_free(request_input *r);

/* Adds a message; its text (and ids) must live as long as r. */
void request_add_message(request_input *r, chat_role role, const char *text, size_t len,
                         const int32_t *ids, size_t n_ids);

#endif
