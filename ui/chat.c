#include "ui/chat.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "train/live/live.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_TEMPERATURE 0.2f
#define DEFAULT_TOP_P       0.9f
#define DEFAULT_MAX_TOKENS  1024
#define MAX_TOKEN_BYTES     64 /* more than tokens have on average in any text */

static void turn_free(chat_turn *t)
{
    wipe_free(t->text, t->len);
    wipe_free(t->ids, t->n_ids * sizeof *t->ids);
    free(t->finish);
    *t = (chat_turn){0};
}

static void drop_turns(chat *c, size_t from)
{
    while (c->n_turns > from)
        turn_free(&c->turns[--c->n_turns]);
}

static void add_turn(chat *c, const history_message *m)
{
    if (c->n_turns == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->turns = xrealloc_array(c->turns, c->cap, sizeof *c->turns);
    }
    chat_turn *t = &c->turns[c->n_turns++];
    bool rewritten = m->rewritten && *m->rewritten;
    *t = (chat_turn){
        .id = m->id,
        .parent = m->parent,
        .role = m->role,
        .rating = m->rating,
        .rewritten = rewritten,
        .finish = m->finish && *m->finish ? xstrdup(m->finish) : NULL,
        .prompt_tokens = m->prompt_tokens,
        .cached_tokens = m->cached_tokens,
        .completion_tokens = m->completion_tokens,
        .prefill_us = m->prefill_us,
        .decode_us = m->decode_us,
        .created_ms = m->created_ms ? m->created_ms : clock_unix_ms(),
    };
    t->len = rewritten ? strlen(m->rewritten) : m->len;
    t->text = xmemdup0(rewritten ? m->rewritten : m->text, t->len);
    if (m->n_ids == 0 || rewritten) return;
    t->ids = xcalloc(m->n_ids, sizeof *t->ids);
    memcpy(t->ids, m->ids, m->n_ids * sizeof *t->ids);
    t->n_ids = m->n_ids;
}

/* The first node that is not before (parent, id). */
static size_t find_node(const chat *c, int64_t parent, int64_t id)
{
    size_t low = 0, high = c->n_nodes;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const chat_node *n = &c->nodes[middle];
        if (n->parent < parent || (n->parent == parent && n->id < id))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_node(chat *c, int64_t parent, int64_t id, history_role role)
{
    if (c->n_nodes == c->cap_nodes) {
        c->cap_nodes = c->cap_nodes ? c->cap_nodes * 2 : 16;
        c->nodes = xrealloc_array(c->nodes, c->cap_nodes, sizeof *c->nodes);
    }
    size_t at = find_node(c, parent, id);
    memmove(&c->nodes[at + 1], &c->nodes[at], (c->n_nodes - at) * sizeof *c->nodes);
    c->nodes[at] = (chat_node){parent, id, role};
    c->n_nodes++;
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

static void release_profile(chat *c)
{
    if (c->adapter) engine_adapter_drop(c->engine, c->adapter, NULL);
    c->adapter = 0;
    c->profile = c->version = 0;
    wipe_text(c->profile_name);
    free(c->kind);
    c->profile_name = c->kind = NULL;
}

/* Tells the engine of a profile's current version. Its weights are read now, if there is room: the
 * first message finds them there. */
static pf_status register_adapter(session *s, engine *e, int64_t profile, adapter_id *out,
                                  pf_err *err)
{
    adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
    unsigned char digest[32];
    pf_status status = profile_source_open(s, profile, 0, &source.ctx, digest, err);
    if (status != PF_OK) return status;
    status = engine_adapter_add_lazy(e, digest, &source, out, err);
    if (status == PF_OK)
        engine_adapter_prefetch(e, *out);
    else
        profile_source_release(source.ctx);
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
    release_profile(c);
    default_settings(c);
    c->profile = profile;
    c->adapter = adapter;
    adapter = 0;
    if (!profile) goto out;
    c->profile_name = xstrdup(info.name);
    if (info.has_adapter) {
        c->kind = xstrdup(info.current.kind);
        c->rank = info.current.max_rank;
        c->version = info.current.number;
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
    c->version = info.has_adapter ? info.current.number : 0;
out:
    profile_info_free(&info);
    return status;
}

bool chat_follow_profile(chat *c, buf *told)
{
    profile_info info = {0};
    if (!c->profile) return true;
    pf_status status = profile_get(c->session, c->profile, &info, NULL);
    int64_t version = info.has_adapter ? info.current.number : 0;
    profile_info_free(&info);
    if (status == PF_NOT_FOUND) {
        buf_puts(told, "The profile ");
        chat_profile_label(c, told);
        buf_puts(told,
                 " was deleted elsewhere, and nothing was sent. What you send now is answered "
                 "without a profile.");
        release_profile(c);
        default_settings(c);
        return false;
    }
    if (status == PF_OK && version != c->version && chat_refresh_profile(c, NULL) == PF_OK) {
        chat_profile_label(c, told);
        buf_puts(told, " was changed elsewhere: its present version answers from now on.");
    }
    return true;
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
    c->former = 0;
    c->sent = false;
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
        .parent = c->asked,
        .role = HISTORY_ASSISTANT,
        .text = (char *)buf_str(&c->answer),
        .len = c->answer.len,
        .ids = c->ids.ids,
        .n_ids = c->ids.len,
        .finish = reason,
        .prompt_tokens = usage->prompt_tokens,
        .cached_tokens = usage->cached_tokens,
        .completion_tokens = usage->completion_tokens,
        .prefill_us = usage->prefill_ns / 1000,
        .decode_us = usage->decode_ns / 1000,
    };
    pf_status status = message_append(c->session, c->conversation, &message, &message.id, err);
    add_turn(c, &message);
    if (status == PF_OK) add_node(c, message.parent, message.id, message.role);
    free(reason);
    return status;
}

bool chat_has_unsaved(const chat *c)
{
    return c->n_turns && !c->turns[c->n_turns - 1].id;
}

pf_status chat_save_rest(chat *c, pf_err *err)
{
    if (!chat_has_unsaved(c)) return PF_OK;
    chat_turn *t = &c->turns[c->n_turns - 1];
    const history_message message = {
        .parent = t->parent,
        .role = t->role,
        .text = t->text,
        .len = t->len,
        .ids = t->ids,
        .n_ids = t->n_ids,
        .finish = t->finish,
        .prompt_tokens = t->prompt_tokens,
        .cached_tokens = t->cached_tokens,
        .completion_tokens = t->completion_tokens,
        .prefill_us = t->prefill_us,
        .decode_us = t->decode_us,
        .created_ms = t->created_ms,
    };
    pf_status status = message_append(c->session, c->conversation, &message, &t->id, err);
    if (status == PF_OK) add_node(c, t->parent, t->id, t->role);
    return status;
}

/* Before the conversation is left: what is not saved is saved, if that can be. */
static void end_conversation(chat *c)
{
    if (c->request) {
        engine_cancel(c->engine, c->request);
        if (c->answer.len) save_answer(c, "cancelled", &(request_usage){0}, NULL);
        forget_answer(c);
    } else {
        chat_save_rest(c, NULL);
    }
}

void chat_close(chat *c)
{
    end_conversation(c);
    forget_answer(c);
    release_profile(c);
    default_settings(c);
    drop_turns(c, 0);
    free(c->turns);
    free(c->nodes);
    *c = (chat){0};
}

void chat_begin(chat *c)
{
    end_conversation(c);
    drop_turns(c, 0);
    c->n_nodes = 0;
    c->conversation = 0;
    c->n_dropped = 0;
}

static int by_parent(const void *a, const void *b)
{
    const chat_node *x = a, *y = b;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Takes over what was loaded: the current branch, and the shape of the tree. */
static void show_tree(chat *c, const conversation *tree)
{
    size_t *path = xcalloc(tree->n + 1, sizeof *path);
    size_t n = conversation_path(tree, tree->current, path);
    drop_turns(c, 0);
    for (size_t i = 0; i < n; i++) {
        const history_message *m = &tree->messages[path[i]];
        if (m->role != HISTORY_SYSTEM) add_turn(c, m); /* the profile's settings hold it */
    }
    free(path);
    if (c->cap_nodes < tree->n) {
        c->cap_nodes = tree->n;
        c->nodes = xrealloc_array(c->nodes, c->cap_nodes, sizeof *c->nodes);
    }
    c->n_nodes = tree->n;
    for (size_t i = 0; i < tree->n; i++)
        c->nodes[i] =
            (chat_node){tree->messages[i].parent, tree->messages[i].id, tree->messages[i].role};
    if (c->n_nodes) qsort(c->nodes, c->n_nodes, sizeof *c->nodes, by_parent);
}

pf_status chat_load(chat *c, int64_t conversation_id, pf_err *err)
{
    conversation loaded = {0};
    pf_err profile_err = {0};
    end_conversation(c); /* first: it may be the same one */
    pf_status status = conversation_load_tree(c->session, conversation_id, &loaded, err);
    if (status != PF_OK && status != PF_DAMAGED) goto out;
    chat_begin(c);
    c->conversation = conversation_id;
    show_tree(c, &loaded);
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

/* Messages for the engine. Messages of the person in a row (answers between them were lost, or
 * deleted) are read as one; *joined owns their text. */
static chat_message *collect_messages(const chat *c, size_t from, size_t *n, buf *joined)
{
    chat_message *messages = xcalloc(c->n_turns + 1, sizeof *messages);
    *n = 0;
    if (c->system)
        messages[(*n)++] =
            (chat_message){.role = ROLE_SYSTEM, .text = c->system, .len = strlen(c->system)};
    size_t room = 0, start = 0;
    bool joining = false; /* the last message is what joined has from start on */
    for (size_t i = from; i < c->n_turns; i++)
        room += c->turns[i].len + 2;
    buf_reserve(joined, room); /* each text comes in once, so that pointers into it stay */
    for (size_t i = from; i < c->n_turns; i++) {
        const chat_turn *t = &c->turns[i];
        bool person = t->role == HISTORY_USER;
        chat_message *last = *n ? &messages[*n - 1] : NULL;
        if (person && last && last->role == ROLE_USER) {
            if (!joining) {
                start = joined->len;
                buf_append(joined, last->text, last->len);
                joining = true;
            }
            buf_puts(joined, "\n\n");
            buf_append(joined, t->text, t->len);
            last->text = joined->data + start;
            last->len = joined->len - start;
            continue;
        }
        joining = false;
        messages[(*n)++] = (chat_message){.role = person ? ROLE_USER : ROLE_ASSISTANT,
                                          .text = t->text,
                                          .len = t->len,
                                          .ids = t->ids,
                                          .n_ids = t->n_ids};
    }
    return messages;
}

/* The first turn that may be in the model's window. The engine leaves out what doesn't fit, but it
 * reads everything first: of a very long conversation it gets what a window of the longest tokens
 * could hold. */
static size_t first_turn(const chat *c)
{
    size_t room = (size_t)engine_context(c->engine) * MAX_TOKEN_BYTES, from = c->n_turns;
    while (from > 0 && c->turns[from - 1].len <= room)
        room -= c->turns[--from].len;
    while (from > 0 && from < c->n_turns && c->turns[from].role != HISTORY_USER)
        from++;
    return from < c->n_turns ? from : c->n_turns - 1;
}

pf_status chat_copy(chat *c, const chat *of, pf_err *err)
{
    int64_t copy = 0;
    size_t end = of->n_turns;
    chat_begin(c);
    while (end > 0 && !of->turns[end - 1].id) /* an answer that could not be saved */
        end--;
    if (end == 0) return PF_OK;
    const size_t first = first_turn(of);
    if (first >= end) return PF_OK;
    pf_status status = conversation_copy(c->session, of->conversation, of->turns[first].id,
                                         of->turns[end - 1].id, c->profile, &copy, err);
    if (status == PF_OK) status = chat_load(c, copy, err);
    if (status != PF_OK && copy) conversation_remove(c->session, copy, NULL);
    return status;
}

static pf_status submit(chat *c, int limit, void *tag, pf_err *err)
{
    size_t n, from = first_turn(c);
    buf joined = {0};
    chat_message *messages = collect_messages(c, from, &n, &joined);
    c->n_left_out = (int)from;
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

/* Loads the current branch again. */
static pf_status reload(chat *c, pf_err *err)
{
    conversation tree = {0};
    pf_status status = conversation_load_tree(c->session, c->conversation, &tree, err);
    if (status == PF_OK || status == PF_DAMAGED) show_tree(c, &tree);
    conversation_free(&tree);
    return status;
}

/* As it was before the request: what was sent leaves the conversation and the store, and the branch
 * that was left is shown again. */
static pf_status take_back(chat *c, pf_err *err)
{
    pf_status status = PF_OK;
    if (!c->conversation) return PF_OK; /* it did not come to be */
    if (c->n_nodes == 0 || (c->sent && c->n_nodes == 1)) {
        status = conversation_remove(c->session, c->conversation, err);
        if (status == PF_OK) chat_begin(c);
        return status;
    }
    if (c->sent || c->former)
        status =
            message_take_back(c->session, c->conversation, c->sent ? c->asked : 0, c->former, err);
    return status == PF_OK ? reload(c, err) : status;
}

static pf_status tell_deleted(pf_status status, pf_err *err)
{
    if (status != PF_NOT_FOUND) return status;
    return err_set(err, status,
                   "This conversation, or what comes before in it, was deleted elsewhere. What "
                   "you wrote isn't lost: begin a new conversation (/new) with it.");
}

/* The first message begins the conversation. */
static pf_status save_question(chat *c, history_message *m, pf_err *err)
{
    if (!c->conversation)
        return conversation_begin(c->session, c->profile, m, &c->conversation, &m->id, err);
    return tell_deleted(message_append(c->session, c->conversation, m, &m->id, err), err);
}

/* Saves a message of the person's behind a parent and asks for an answer to it. */
static pf_status send_after(chat *c, int64_t parent, const char *text, size_t len, int limit,
                            void *tag, pf_err *err)
{
    history_message message = {
        .parent = parent, .role = HISTORY_USER, .text = (char *)text, .len = len};
    pf_status status = save_question(c, &message, err);
    if (status != PF_OK) return status;
    c->asked = message.id;
    c->sent = true;
    add_turn(c, &message);
    add_node(c, parent, message.id, message.role);
    return submit(c, limit, tag, err);
}

static pf_status ask_failed(chat *c, pf_status status)
{
    c->request = 0;
    take_back(c, NULL);
    forget_answer(c);
    return status;
}

pf_status chat_send(chat *c, const char *text, size_t len, int limit, void *tag, pf_err *err)
{
    pf_status status = chat_save_rest(c, err);
    if (status != PF_OK) return tell_deleted(status, err);
    int64_t parent = c->n_turns ? c->turns[c->n_turns - 1].id : HISTORY_ROOT;
    c->former = 0;
    c->sent = false;
    status = send_after(c, parent, text, len, limit, tag, err);
    return status == PF_OK ? PF_OK : ask_failed(c, status);
}

pf_status chat_send_instead(chat *c, size_t turn, const char *text, size_t len, int limit,
                            void *tag, pf_err *err)
{
    pf_status status = chat_save_rest(c, err);
    if (status != PF_OK) return tell_deleted(status, err);
    int64_t parent = c->turns[turn].parent;
    c->former = c->turns[c->n_turns - 1].id;
    c->sent = false;
    drop_turns(c, turn);
    status = send_after(c, parent, text, len, limit, tag, err);
    return status == PF_OK ? PF_OK : ask_failed(c, status);
}

pf_status chat_regenerate(chat *c, size_t turn, int limit, void *tag, pf_err *err)
{
    size_t question = turn;
    while (question > 0 && c->turns[question].role != HISTORY_USER)
        question--;
    if (c->turns[question].role != HISTORY_USER)
        return err_set(err, PF_USAGE, "there is no message of yours that this answers");
    pf_status status = chat_save_rest(c, err);
    if (status != PF_OK) return tell_deleted(status, err);
    c->former = c->turns[c->n_turns - 1].id;
    c->sent = false;
    c->asked = c->turns[question].id;
    drop_turns(c, question + 1);
    status = submit(c, limit, tag, err);
    return status == PF_OK ? PF_OK : ask_failed(c, status);
}

void chat_stop(chat *c)
{
    if (c->request) engine_cancel(c->engine, c->request);
}

/* The end of a request that brought no text: the person's message is given back. */
static chat_change end_without_answer(chat *c, char **back)
{
    const chat_turn *last = c->n_turns ? &c->turns[c->n_turns - 1] : NULL;
    if (c->sent && last) *back = xmemdup0(last->text, last->len);
    take_back(c, NULL);
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
        *dropped_more = ev->n_dropped + c->n_left_out > c->n_dropped;
        c->n_dropped = ev->n_dropped + c->n_left_out;
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

/* --- messages --------------------------------------------------------------------------------- */

/* The nodes with a turn's parent: first and behind the last. */
static void sibling_range(const chat *c, size_t turn, size_t *from, size_t *to)
{
    *from = find_node(c, c->turns[turn].parent, INT64_MIN);
    *to = find_node(c, c->turns[turn].parent, INT64_MAX);
}

void chat_siblings(const chat *c, size_t turn, int *number, int *count)
{
    size_t from, to, at = find_node(c, c->turns[turn].parent, c->turns[turn].id);
    sibling_range(c, turn, &from, &to);
    bool known = at < to && c->nodes[at].id == c->turns[turn].id;
    *number = known ? (int)(at - from) + 1 : 1;
    *count = known ? (int)(to - from) : 1;
}

pf_status chat_show_message(chat *c, int64_t message, pf_err *err)
{
    pf_status status = chat_save_rest(c, err);
    if (status == PF_OK) status = conversation_choose(c->session, c->conversation, message, err);
    return status == PF_OK ? reload(c, err) : status;
}

bool chat_choose_branch(chat *c, size_t turn, int direction, pf_err *err)
{
    size_t from, to, at = find_node(c, c->turns[turn].parent, c->turns[turn].id);
    sibling_range(c, turn, &from, &to);
    if (direction < 0 ? at == from : at + 1 >= to) return false;
    chat_show_message(c, c->nodes[direction < 0 ? at - 1 : at + 1].id, err);
    return true;
}

pf_status chat_remove_turn(chat *c, size_t turn, pf_err *err)
{
    pf_status status = chat_save_rest(c, err);
    if (status == PF_OK)
        status = message_remove(c->session, c->conversation, c->turns[turn].id, REMOVE_WITH_ANSWERS,
                                err);
    return status == PF_OK ? reload(c, err) : status;
}

pf_status chat_rate(chat *c, size_t turn, int rating, pf_err *err)
{
    chat_turn *t = &c->turns[turn];
    pf_status status = chat_save_rest(c, err);
    if (status == PF_OK)
        status = message_rate(c->session, c->conversation, t->id, rating, NULL, err);
    if (status == PF_OK) t->rating = rating;
    return status;
}

pf_status chat_rewrite(chat *c, size_t turn, const char *text, pf_err *err)
{
    chat_turn *t = &c->turns[turn];
    pf_status status = chat_save_rest(c, err);
    if (status == PF_OK)
        status = message_rate(c->session, c->conversation, t->id, t->rating, text, err);
    return status == PF_OK ? reload(c, err) : status;
}

pf_status chat_count_tokens(const chat *c, size_t *out, pf_err *err)
{
    size_t n;
    buf joined = {0};
    chat_message *messages = collect_messages(c, c->n_turns ? first_turn(c) : 0, &n, &joined);
    pf_status status = PF_OK;
    *out = 0;
    if (n) status = engine_count_tokens(c->engine, messages, n, out, err);
    free(messages);
    wipe_buf(&joined);
    return status;
}
