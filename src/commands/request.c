#include "commands/request.h"

#include "base/mem.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

static const char *const request_keys[] = {
    "id",    "messages",    "prompt",         "raw",         "ids",
    "turns", "system",      "adapter",        "positions",   "max_tokens",
    "seed",  "greedy",      "top_k",          "temperature", "top_p",
    "min_p", "repeat_last", "repeat_penalty", "logprobs",    "ignore_eos",
    "stop",  "user",        "priority",       "drop_oldest", NULL};

void request_free(request_input *r)
{
    free(r->messages);
    free(r->turns);
    id_list_free(&r->ids);
    json_decref(r->object);
    memset(r, 0, sizeof *r);
}

void request_add_message(request_input *r, chat_role role, const char *text, size_t len,
                         const int32_t *ids, size_t n_ids)
{
    r->messages = xrealloc_array(r->messages, r->n_messages + 1, sizeof *r->messages);
    r->messages[r->n_messages++] =
        (chat_message){.role = role, .text = text, .len = len, .ids = ids, .n_ids = n_ids};
    r->request.messages = r->messages;
    r->request.n_messages = r->n_messages;
}

static void add_text(request_input *r, chat_role role, const json_t *text)
{
    request_add_message(r, role, json_string_value(text), json_string_length(text), NULL, 0);
}

/* --- prompts ---------------------------------------------------------------------------------- */

static pf_status read_messages(request_input *r, const json_t *list, pf_err *err)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_USAGE, "messages must be a list of {\"role\", \"content\"}");
    json_array_foreach(list, i, item)
    {
        const json_t *content = json_object_get(item, "content");
        const char *name = json_string_value(json_object_get(item, "role"));
        chat_role role;
        if (!name || !chat_role_parse(name, &role))
            return err_set(err, PF_USAGE,
                           "messages[%zu]: role must be \"system\", \"user\" or \"assistant\"", i);
        if (!json_is_string(content))
            return err_set(err, PF_USAGE, "messages[%zu]: content must be a text", i);
        add_text(r, role, content);
    }
    return PF_OK;
}

static pf_status read_prompt(request_input *r, const json_t *text, pf_err *err)
{
    bool raw = json_is_true(json_object_get(r->object, "raw"));
    if (!json_is_string(text)) return err_set(err, PF_USAGE, "prompt must be a text");
    if (!raw) {
        add_text(r, ROLE_USER, text);
        return PF_OK;
    }
    r->request.text = json_string_value(text);
    r->request.text_len = json_string_length(text);
    return PF_OK;
}

static pf_status read_ids(request_input *r, const json_t *list, pf_err *err)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_USAGE, "ids must be a list of token ids");
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            return err_set(err, PF_USAGE, "ids[%zu] is not a token id", i);
        id_list_append(&r->ids, (int32_t)id);
    }
    r->request.ids = r->ids.ids;
    r->request.n_ids = r->ids.len;
    return PF_OK;
}

static pf_status read_turns(request_input *r, const json_t *list, pf_err *err)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_USAGE, "turns must be a list of texts");
    r->turns = xcalloc(json_array_size(list), sizeof *r->turns);
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item)) return err_set(err, PF_USAGE, "turns[%zu] must be a text", i);
        r->turns[r->n_turns++] = json_string_value(item);
    }
    add_text(r, ROLE_USER, json_array_get(list, 0));
    return PF_OK;
}

static pf_status read_kind(request_input *r, pf_err *err)
{
    static const struct {
        const char *key;
        pf_status (*read)(request_input *, const json_t *, pf_err *);
    } kinds[] = {{"messages", read_messages},
                 {"prompt", read_prompt},
                 {"ids", read_ids},
                 {"turns", read_turns}};
    const json_t *system = json_object_get(r->object, "system");
    int found = -1;
    for (int i = 0; i < 4; i++) {
        if (!json_object_get(r->object, kinds[i].key)) continue;
        if (found >= 0)
            return err_set(err, PF_USAGE, "%s and %s exclude each other", kinds[found].key,
                           kinds[i].key);
        found = i;
    }
    if (found < 0)
        return err_set(err, PF_USAGE, "one of messages, prompt, ids and turns is needed");
    if (system) {
        if (!json_is_string(system)) return err_set(err, PF_USAGE, "system must be a text");
        if (kinds[found].read == read_ids)
            return err_set(err, PF_USAGE, "system and ids exclude each other");
        r->system = json_string_value(system);
        add_text(r, ROLE_SYSTEM, system);
    }
    pf_status status = kinds[found].read(r, json_object_get(r->object, kinds[found].key), err);
    if (status == PF_OK && r->request.text && r->n_messages)
        status = err_set(err, PF_USAGE, "system and raw exclude each other");
    return status;
}

/* --- settings --------------------------------------------------------------------------------- */

static pf_status read_numbers(const json_t *o, engine_request *r, pf_err *err)
{
    sampling_options *s = &r->sampling;
    const struct {
        const char *key;
        int64_t low, high;
        int *to;
    } ints[] = {
        {"max_tokens", 0, INT32_MAX, &r->max_tokens},
        {"top_k", 0, INT32_MAX, &s->top_k},
        {"repeat_last", 0, INT32_MAX, &s->repeat_last},
        {"logprobs", 0, ENGINE_MAX_TOP, &r->logprobs},
        {"priority", -100, 100, &r->priority},
    };
    const struct {
        const char *key;
        double low, high;
        float *to;
    } reals[] = {
        {"temperature", 0, 100, &s->temperature},
        {"top_p", 0, 1, &s->top_p},
        {"min_p", 0, 1, &s->min_p},
        {"repeat_penalty", 0, 100, &s->repeat_penalty},
    };
    pf_status status = PF_OK;
    for (size_t i = 0; i < sizeof ints / sizeof *ints && status == PF_OK; i++) {
        int64_t value = *ints[i].to;
        status = json_get_int(o, ints[i].key, ints[i].low, ints[i].high, &value, err);
        *ints[i].to = (int)value;
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals && status == PF_OK; i++) {
        double value = (double)*reals[i].to;
        status = json_get_real(o, reals[i].key, reals[i].low, reals[i].high, &value, err);
        *reals[i].to = (float)value;
    }
    return status;
}

static pf_status read_stops(const json_t *o, engine_request *r, pf_err *err)
{
    const json_t *stop = json_object_get(o, "stop"), *item;
    size_t i;
    if (!stop) return PF_OK;
    if (json_is_string(stop)) {
        r->stops[r->n_stops++] = json_string_value(stop);
        return PF_OK;
    }
    if (!json_is_array(stop) || json_array_size(stop) > ENGINE_MAX_STOPS)
        return err_set(err, PF_USAGE, "stop must be a text or a list of at most %d texts",
                       ENGINE_MAX_STOPS);
    json_array_foreach(stop, i, item)
    {
        if (!json_is_string(item)) return err_set(err, PF_USAGE, "stop[%zu] must be a text", i);
        r->stops[r->n_stops++] = json_string_value(item);
    }
    return PF_OK;
}

/* A user is a number, or a name that stands for one. */
static pf_status read_user(const json_t *o, engine_request *r, pf_err *err)
{
    const json_t *user = json_object_get(o, "user");
    if (!user) return PF_OK;
    if (json_is_integer(user)) {
        r->user = (uint64_t)json_integer_value(user);
        return PF_OK;
    }
    if (!json_is_string(user)) return err_set(err, PF_USAGE, "user must be a number or a name");
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    const char *name = json_string_value(user);
    for (size_t i = 0; i < json_string_length(user); i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    r->user = hash;
    return PF_OK;
}

static pf_status read_settings(request_input *in, pf_err *err)
{
    const json_t *o = in->object;
    engine_request *r = &in->request;
    const char *positions = NULL;
    bool greedy = false, raw = false;
    int64_t seed = 0;
    r->max_tokens = REQUEST_MAX_TOKENS;
    pf_status status = read_numbers(o, r, err);
    if (status == PF_OK) status = json_get_bool(o, "ignore_eos", &r->ignore_eos, err);
    if (status == PF_OK) status = json_get_bool(o, "drop_oldest", &r->drop_oldest, err);
    if (status == PF_OK) status = json_get_bool(o, "greedy", &greedy, err);
    if (status == PF_OK) status = json_get_bool(o, "raw", &raw, err);
    if (status == PF_OK) status = json_get_int(o, "seed", 0, INT64_MAX, &seed, err);
    if (status == PF_OK) status = json_get_string(o, "adapter", &in->adapter_folder, err);
    if (status == PF_OK) status = json_get_string(o, "positions", &positions, err);
    if (status == PF_OK) status = read_stops(o, r, err);
    if (status == PF_OK) status = read_user(o, r, err);
    if (status != PF_OK) return status;
    r->sampling.has_seed = json_object_get(o, "seed") != NULL;
    r->sampling.seed = (uint64_t)seed;
    if (greedy) r->sampling.temperature = 0;
    if (positions && !positions_parse(positions, &r->positions))
        return err_set(err, PF_USAGE,
                       "positions is \"%s\": turns, prompt, all and none are possible", positions);
    return PF_OK;
}

static pf_status check_keys(json_t *object, pf_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return err_set(err, PF_USAGE, "a JSON object is needed");
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (request_keys[i] && strcmp(request_keys[i], key) != 0)
            i++;
        if (request_keys[i]) continue;
        const char *near = nearest_name(key, request_keys);
        return err_set(err, PF_USAGE, "unknown key \"%.100s\"%s%s%s", key,
                       near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return PF_OK;
}

pf_status request_read(json_t *object, request_input *out, pf_err *err)
{
    pf_status status = check_keys(object, err);
    if (status != PF_OK) return status;
    out->object = json_incref(object);
    status = read_kind(out, err);
    if (status == PF_OK) status = read_settings(out, err);
    return status;
}
