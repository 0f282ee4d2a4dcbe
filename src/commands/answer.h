/* The events of one request, collected for output as JSON. */
#ifndef PF_COMMANDS_ANSWER_H
#define PF_COMMANDS_ANSWER_H

#include "base/buf.h"
#include "base/json.h"
#include "engine/engine.h"

/* Zeroed = nothing yet. */
typedef struct {
    buf text;
    id_list ids, prompt_ids;
    unsigned char *marks; /* [prompt_ids.len] */
    json_t *logprobs;     /* NULL: not asked for */
    int n_dropped;
    bool ended;
    pf_err error; /* status is not PF_OK: failed */
    finish_reason reason;
    request_usage usage;
} answer;

/* Adds an event and frees it. */
void answer_take(answer *a, engine_event *ev);
void answer_free(answer *a);

/* Adds {text, ids, prompt_ids, marks, finish_reason, usage, logprobs, timings} to object, or
 * {error: {message, status}}. finish_reason is "stop", "length" or "cancelled"; an answer that ends
 * because the context is full has "length" and "context_full": true. */
void answer_write(const answer *a, json_t *object);
/* {error: {message, status}} */
void answer_write_error(json_t *object, const pf_err *error);

#endif
