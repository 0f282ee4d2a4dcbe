#include "commands/answer.h"

#include "base/mem.h"
#include "commands/jsonl.h"

#include <stdlib.h>
#include <string.h>

static json_t *logprob_json(const token_logprob *l)
{
    json_t *pair = json_array();
    json_array_append_new(pair, json_integer(l->id));
    json_array_append_new(pair, json_real((double)l->logprob));
    return pair;
}

static void take_logprobs(answer *a, const engine_event *ev)
{
    if (!a->logprobs) a->logprobs = json_array();
    json_t *entry = json_object(), *top = json_array();
    json_object_set_new(entry, "id", json_integer(ev->token));
    json_object_set_new(entry, "logprob", json_real((double)ev->logprob));
    for (int i = 0; i < ev->n_top; i++)
        json_array_append_new(top, logprob_json(&ev->top[i]));
    json_object_set_new(entry, "top", top);
    json_array_append_new(a->logprobs, entry);
}

static void take_prompt(answer *a, engine_event *ev)
{
    a->n_dropped = ev->n_dropped;
    if (!ev->prompt_ids) return;
    id_list_append_all(&a->prompt_ids, ev->prompt_ids, (size_t)ev->n_prompt);
    a->marks = ev->marks;
    ev->marks = NULL;
}

void answer_take(answer *a, engine_event *ev)
{
    switch (ev->kind) {
    case ENGINE_EVENT_WAITING:
        break;
    case ENGINE_EVENT_STARTED:
        take_prompt(a, ev);
        break;
    case ENGINE_EVENT_TOKEN:
        id_list_append(&a->ids, ev->token);
        buf_append(&a->text, ev->text, ev->text_len);
        if (ev->n_top > 0) take_logprobs(a, ev);
        break;
    case ENGINE_EVENT_FINISHED:
        buf_append(&a->text, ev->text, ev->text_len);
        a->reason = ev->reason;
        a->usage = ev->usage;
        a->ended = true;
        break;
    case ENGINE_EVENT_FAILED:
        err_set(&a->error, ev->status, "%s", ev->text);
        a->usage = ev->usage;
        a->ended = true;
        break;
    }
    engine_event_free(ev);
}

void answer_free(answer *a)
{
    buf_free(&a->text);
    id_list_free(&a->ids);
    id_list_free(&a->prompt_ids);
    free(a->marks);
    json_decref(a->logprobs);
    memset(a, 0, sizeof *a);
}

/* --- output ----------------------------------------------------------------------------------- */

static json_t *ids_json(const id_list *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->len; i++)
        json_array_append_new(list, json_integer(ids->ids[i]));
    return list;
}

static json_t *marks_json(const answer *a)
{
    json_t *list = json_array();
    for (size_t i = 0; a->marks && i < a->prompt_ids.len; i++)
        json_array_append_new(list, json_integer(a->marks[i]));
    return list;
}

static json_t *usage_json(const request_usage *u)
{
    json_t *o = json_object();
    json_object_set_new(o, "prompt_tokens", json_integer(u->prompt_tokens));
    json_object_set_new(o, "completion_tokens", json_integer(u->completion_tokens));
    json_object_set_new(o, "cached_tokens", json_integer(u->cached_tokens));
    json_object_set_new(o, "preemptions", json_integer(u->preemptions));
    return o;
}

static json_t *timings_json(const request_usage *u)
{
    json_t *o = json_object();
    json_object_set_new(o, "queued_ms", json_real((double)u->queued_ns / 1e6));
    json_object_set_new(o, "prefill_ms", json_real((double)u->prefill_ns / 1e6));
    json_object_set_new(o, "decode_ms", json_real((double)u->decode_ns / 1e6));
    return o;
}

void answer_write_error(json_t *object, const pf_err *error)
{
    json_t *o = json_object();
    json_object_set_new(o, "message", json_text(error->text, strlen(error->text)));
    json_object_set_new(o, "status", json_string(status_words(error->status)));
    json_object_set_new(object, "error", o);
}

void answer_write(const answer *a, json_t *object)
{
    if (a->error.status != PF_OK) {
        answer_write_error(object, &a->error);
        return;
    }
    bool full = a->reason == FINISH_CONTEXT;
    json_object_set_new(object, "text", json_stringn(buf_str(&a->text), a->text.len));
    json_object_set_new(object, "ids", ids_json(&a->ids));
    json_object_set_new(object, "prompt_ids", ids_json(&a->prompt_ids));
    json_object_set_new(object, "marks", marks_json(a));
    json_object_set_new(object, "finish_reason",
                        json_string(finish_reason_name(full ? FINISH_LENGTH : a->reason)));
    if (full) json_object_set_new(object, "context_full", json_true());
    if (a->n_dropped) json_object_set_new(object, "dropped_messages", json_integer(a->n_dropped));
    json_object_set_new(object, "usage", usage_json(&a->usage));
    if (a->logprobs) json_object_set(object, "logprobs", a->logprobs);
    json_object_set_new(object, "timings", timings_json(&a->usage));
}
