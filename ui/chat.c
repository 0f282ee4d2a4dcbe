#include "ui/chat.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "train/live.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_TEMPERATURE 0.2f
#define DEFAULT_TOP_P       0.9f
#define DEFAULT_MAX_TOKENS  1024

static void turn_free(chat_turn *t)
{
    wipe_free(t->text, t->len);
    wipe_free(t->ids, t->n_ids * sizeof *t->ids);
    *t = (chat_turn){0};
}

static void drop_turns(chat *c, size_t from)
{
    while (c->n_turns > from)
        turn_free(&c->turns[--c->n_turns]);
}

static void add_turn(chat *c, history_role role, const char *text, size_t len, const int32_t *ids,
                     size_t n_ids, int64_t created_ms)
{
    if (c->n_turns == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->turns = xrealloc_array(c->turns, c->cap, sizeof *c->turns);
    }
    chat_turn *t = &c->turns[c->n_turns++];
    *t = (chat_turn){
        .role = role, .text = xmemdup0(text, len), .len = len, .created_ms = created_ms};
    if (n_ids == 0) return;
    t->ids = xcalloc(n_ids, sizeof *ids);
    memcpy(t->ids, ids, n_ids * sizeof *ids);
    t->n_ids = n_ids;
}

static void default_settings(chat *c)
{
    wipe_text(c->system);
    c->system = NULL;
    c->positions = POSITIONS_DEFAULT;
    c->sampling = (sampling_options){.temperature = DEFAULT_TEMPERATURE, .top_p = DEFAULT_TOP_P};
    c->max_tokens = DEFAULT_MAX_TOKENS;
}

void chat_init(chat *c, engine *e, engine_client *client, session *s)
{
    *c = (chat){.engine = e, .client = client, .session = s};
    default_settings(c);
}

/* --- profile ---------------------------------------------------------------------------------- */

static pf_status read_sampling(const json_t *object, sampling_options *out, pf_err *err)
{
    double temperature = out->temperature, top_p = out->top_p, min_p = out->min_p;
    double penalty = out->repeat_penalty;
    int64_t top_k = out->top_k;
    pf_status status = json_get_real(object, "temperature", 0, 100, &temperature, err);
    if (status == PF_OK) status = json_get_real(object, "top_p", 0, 1, &top_p, err);
    if (status == PF_OK) status = json_get_real(object, "min_p", 0, 1, &min_p, err);
    if (status == PF_OK) status = json_get_real(object, "repeat_penalty", 0, 10, &penalty, err);
    if (status == PF_OK) status = json_get_int(object, "top_k", 0, INT32_MAX, &top_k, err);
    if (status != PF_OK) return status;
    out->temperature = (float)temperature;
    out->top_p = (float)top_p;
    out->min_p = (float)min_p;
    out->repeat_penalty = (float)penalty;
    out->top_k = (int)top_k;
    return PF_OK;
}

/* The members that a chat obeys; others are for other parts of the program. */
static pf_status read_settings(chat *c, const char *text, pf_err *err)
{
    pf_status status = PF_OK;
    json_t *root = NULL;
    const char *system = NULL, *positions = NULL;
    int64_t max_tokens = DEFAULT_MAX_TOKENS;
    default_settings(c);
    status = json_parse(text, strlen(text), "the profile's settings", &root, err);
    if (status != PF_OK) return status;
    status = json_get_string(root, "system", &system, err);
    if (status == PF_OK) status = json_get_string(root, "positions", &positions, err);
    if (status == PF_OK) status = json_get_int(root, "max_tokens", 1, INT32_MAX, &max_tokens, err);
    if (status == PF_OK) status = read_sampling(root, &c->sampling, err);
    const json_t *sampling = json_object_get(root, "sampling");
    if (status == PF_OK && json_is_object(sampling))
        status = read_sampling(sampling, &c->sampling, err);
    if (status == PF_OK && positions && !positions_parse(positions, &c->positions))
        status = err_set(err, PF_REFUSED, "the profile's settings name unknown positions");
    if (status == PF_OK && system && *system) c->system = xstrdup(system);
    c->max_tokens = (int)max_tokens;
    json_decref(root);
    return status;
}

static void let_go_of_profile(chat *c)
{
    if (c->adapter) engine_adapter_drop(c->engine, c->adapter, NULL);
    c->adapter = 0;
    c->profile = 0;
    wipe_text(c->profile_name);
    free(c->kind);
    c->profile_name = c->kind = NULL;
}

/* Tells the engine of a profile's current version; the weights are read when a prompt needs them.
 */
static pf_status register_adapter(session *s, engine *e, int64_t profile, adapter_id *out,
                                  pf_err *err)
{
    adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
    unsigned char digest[32];
    pf_status status = profile_source_open(s, profile, 0, &source.ctx, digest, err);
    if (status != PF_OK) return status;
    status = engine_adapter_add_lazy(e, digest, &source, out, err);
    if (status != PF_OK) profile_source_release(source.ctx);
    return status;
}

pf_status chat_use_profile(chat *c, int64_t profile, pf_err *err)
{
    pf_status status = PF_OK;
    profile_info info = {0};
    adapter_id adapter = 0;
    if (profile) {
        status = profile_get(c->session, profile, &info, err);
        if (status != PF_OK) goto out;
        if (info.has_adapter)
            status = register_adapter(c->session, c->engine, profile, &adapter, err);
        if (status != PF_OK) goto out;
    }
    if (c->conversation && profile != c->profile) {
        status = conversation_update(c->session, c->conversation, NULL, profile, err);
        if (status != PF_OK) goto out;
    }
    let_go_of_profile(c);
    default_settings(c);
    c->profile = profile;
    c->adapter = adapter;
    adapter = 0;
    if (!profile) goto out;
    c->profile_name = xstrdup(info.name);
    if (info.has_adapter) {
        c->kind = xstrdup(info.current.kind);
        c->rank = info.current.max_rank;
    }
    status = read_settings(c, info.settings, err);
out:
    if (adapter) engine_adapter_drop(c->engine, adapter, NULL);
    profile_info_free(&info);
    return status;
}

pf_status chat_refresh_profile(chat *c, pf_err *err)
{
    profile_info info = {0};
    pf_status status = profile_get(c->session, c->profile, &info, err);
    if (status == PF_OK)
        status = train_live_publish(c->session, c->engine, c->profile, &c->adapter, err);
    if (status != PF_OK) goto out;
    wipe_text(c->profile_name);
    free(c->kind);
    c->profile_name = xstrdup(info.name);
    c->kind = info.has_adapter ? xstrdup(info.current.kind) : NULL;
    c->rank = info.has_adapter ? info.current.max_rank : 0;
out:
    profile_info_free(&info);
    return status;
}

void chat_profile_label(const chat *c, buf *out)
{
    if (!c->profile) {
        buf_puts(out, "no profile");
        return;
    }
    text_clean_label(c->profile_name, strlen(c->profile_name), out);
    if (c->kind)
        buf_printf(out, " (%s r%d)", c->kind, c->rank);
    else
        buf_puts(out, " (plain)");
}

/* --- conversation ----------------------------------------------------------------------------- */

static void forget_answer(chat *c)
{
    c->request = 0;
    wipe_buf(&c->answer);
    if (c->ids.ids) explicit_bzero(c->ids.ids, c->ids.cap * sizeof *c->ids.ids);
    id_list_free(&c->ids);
}

/* Saves what was generated; stop ids at the end are not part of an answer. */
static pf_status save_answer(chat *c, const char *finish, const request_usage *usage, pf_err *err)
{
    const model_config *config = model_get_config(engine_model(c->engine));
    for (int i = 0; i < config->n_stop_ids && c->ids.len; i++)
        if (c->ids.ids[c->ids.len - 1] == config->stop_ids[i]) {
            c->ids.len--;
            break;
        }
    char *reason = xstrdup(finish);
    history_message message = {
        .role = HISTORY_ASSISTANT,
        .text = (char *)buf_str(&c->answer),
        .len = c->answer.len,
        .ids = c->ids.ids,
        .n_ids = c->ids.len,
        .finish = reason,
        .prompt_tokens = usage->prompt_tokens,
        .cached_tokens = usage->cached_tokens,
        .completion_tokens = usage->completion_tokens,
    };
    pf_status status = message_append(c->session, c->conversation, &message, NULL, err);
    add_turn(c, HISTORY_ASSISTANT, buf_str(&c->answer), c->answer.len, c->ids.ids, c->ids.len,
             clock_unix_ms());
    free(reason);
    return status;
}

void chat_close(chat *c)
{
    if (c->request) {
        engine_cancel(c->engine, c->request);
        if (c->answer.len) save_answer(c, "cancelled", &(request_usage){0}, NULL);
    }
    forget_answer(c);
    let_go_of_profile(c);
    default_settings(c);
    drop_turns(c, 0);
    free(c->turns);
    *c = (chat){0};
}

void chat_begin(chat *c)
{
    drop_turns(c, 0);
    c->conversation = 0;
    c->n_dropped = 0;
}

pf_status chat_load(chat *c, int64_t conversation_id, pf_err *err)
{
    conversation loaded = {0};
    pf_err profile_err = {0};
    pf_status status = conversation_load(c->session, conversation_id, &loaded, err);
    if (status != PF_OK && status != PF_DAMAGED) goto out;
    chat_begin(c);
    c->conversation = conversation_id;
    for (size_t i = 0; i < loaded.n; i++) {
        const history_message *m = &loaded.messages[i];
        if (m->role == HISTORY_SYSTEM) continue; /* the profile's settings hold it */
        add_turn(c, m->role, m->text, m->len, m->ids, m->n_ids, m->created_ms);
    }
    if (loaded.info.profile != c->profile) {
        pf_status used = chat_use_profile(c, loaded.info.profile, &profile_err);
        if (used != PF_OK && status == PF_OK) {
            status = used;
            if (err) *err = profile_err;
        }
    }
out:
    conversation_free(&loaded);
    return status;
}

/* Messages for the engine. Two messages of the person in a row (an answer was lost) are read as
 * one; *joined owns their text. */
static chat_message *collect_messages(const chat *c, size_t *n, buf *joined)
{
    chat_message *messages = xcalloc(c->n_turns + 1, sizeof *messages);
    *n = 0;
    if (c->system)
        messages[(*n)++] =
            (chat_message){.role = ROLE_SYSTEM, .text = c->system, .len = strlen(c->system)};
    size_t room = 0;
    for (size_t i = 0; i < c->n_turns; i++)
        room += c->turns[i].len + 2;
    buf_reserve(joined, room); /* so that pointers into it stay */
    for (size_t i = 0; i < c->n_turns; i++) {
        const chat_turn *t = &c->turns[i];
        bool person = t->role == HISTORY_USER;
        chat_message *last = *n ? &messages[*n - 1] : NULL;
        if (person && last && last->role == ROLE_USER) {
            size_t start = joined->len;
            buf_append(joined, last->text, last->len);
            buf_puts(joined, "\n\n");
            buf_append(joined, t->text, t->len);
            last->text = joined->data + start;
            last->len = joined->len - start;
            continue;
        }
        messages[(*n)++] = (chat_message){.role = person ? ROLE_USER : ROLE_ASSISTANT,
                                          .text = t->text,
                                          .len = t->len,
                                          .ids = t->ids,
                                          .n_ids = t->n_ids};
    }
    return messages;
}

static pf_status submit(chat *c, int limit, void *tag, pf_err *err)
{
    size_t n;
    buf joined = {0};
    chat_message *messages = collect_messages(c, &n, &joined);
    engine_request request = {
        .messages = messages,
        .n_messages = n,
        .adapter = c->adapter,
        .positions = c->adapter ? c->positions : POSITIONS_DEFAULT,
        .sampling = c->greedy ? (sampling_options){0} : c->sampling,
        .max_tokens = limit ? limit : c->max_tokens,
        .drop_oldest = true,
        .user = session_engine_user(c->session),
        .tag = tag,
    };
    pf_status status = engine_submit(c->client, &request, &c->request, err);
    free(messages);
    wipe_buf(&joined);
    return status;
}

/* The last message leaves the conversation and the store. */
static pf_status take_back(chat *c, int64_t message, pf_err *err)
{
    drop_turns(c, c->n_turns - 1);
    if (c->n_turns) return message_remove(c->session, c->conversation, message, true, err);
    pf_status status = conversation_remove(c->session, c->conversation, err);
    if (status == PF_OK) c->conversation = 0;
    return status;
}

pf_status chat_send(chat *c, const char *text, size_t len, int limit, void *tag, pf_err *err)
{
    pf_status status = PF_OK;
    if (!c->conversation) {
        char *title = history_title(text, len);
        status = conversation_create(c->session, c->profile, title, &c->conversation, err);
        wipe_text(title);
        if (status != PF_OK) return status;
    }
    history_message message = {.role = HISTORY_USER, .text = (char *)text, .len = len};
    status = message_append(c->session, c->conversation, &message, &c->asked, err);
    if (status != PF_OK) return status;
    add_turn(c, HISTORY_USER, text, len, NULL, 0, clock_unix_ms());
    status = submit(c, limit, tag, err);
    if (status != PF_OK) {
        c->request = 0;
        take_back(c, c->asked, NULL);
    }
    return status;
}

void chat_stop(chat *c)
{
    if (c->request) engine_cancel(c->engine, c->request);
}

/* The end of a request that brought no text: the person's message is given back. */
static chat_change end_without_answer(chat *c, char **back)
{
    chat_turn *last = &c->turns[c->n_turns - 1];
    *back = xmemdup0(last->text, last->len);
    take_back(c, c->asked, NULL);
    forget_answer(c);
    return CHAT_TAKEN_BACK;
}

chat_change chat_event(chat *c, const engine_event *ev, bool *dropped_more, char **back,
                       pf_err *err)
{
    *err = (pf_err){0};
    *dropped_more = false;
    *back = NULL;
    if (!c->request || ev->request != c->request) return CHAT_NOTHING;
    switch (ev->kind) {
    case ENGINE_EVENT_WAITING:
        return CHAT_WAITING;
    case ENGINE_EVENT_STARTED:
        *dropped_more = ev->n_dropped > c->n_dropped;
        c->n_dropped = ev->n_dropped;
        return CHAT_STARTED;
    case ENGINE_EVENT_TOKEN:
        id_list_append(&c->ids, ev->token);
        buf_append(&c->answer, ev->text, ev->text_len);
        return ev->text_len ? CHAT_TEXT : CHAT_NOTHING;
    case ENGINE_EVENT_FAILED:
        err_set(err, PF_FAILED, "%s", ev->text);
        if (c->answer.len == 0) return end_without_answer(c, back);
        save_answer(c, "failed", &ev->usage, NULL);
        forget_answer(c);
        return CHAT_FINISHED;
    case ENGINE_EVENT_FINISHED:
        buf_append(&c->answer, ev->text, ev->text_len); /* what was held back to the end */
        if (c->answer.len == 0 && ev->reason == FINISH_CANCELLED)
            return end_without_answer(c, back);
        save_answer(c, finish_reason_name(ev->reason), &ev->usage, err);
        forget_answer(c);
        return CHAT_FINISHED;
    }
    return CHAT_NOTHING;
}

pf_status chat_count_tokens(const chat *c, size_t *out, pf_err *err)
{
    size_t n;
    buf joined = {0};
    chat_message *messages = collect_messages(c, &n, &joined);
    pf_status status = PF_OK;
    *out = 0;
    if (n) status = engine_count_tokens(c->engine, messages, n, out, err);
    free(messages);
    wipe_buf(&joined);
    return status;
}
