#include "engine/conversation.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* --- policies --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    positions_policy policy;
} policies[] = {
    {"turns", POSITIONS_TURNS},
    {"prompt", POSITIONS_PROMPT},
    {"all", POSITIONS_ALL},
    {"none", POSITIONS_NONE},
};
#define N_POLICIES (sizeof policies / sizeof policies[0])

bool positions_parse(const char *name, positions_policy *out)
{
    for (size_t i = 0; i < N_POLICIES; i++) {
        if (strcmp(policies[i].name, name) != 0) continue;
        *out = policies[i].policy;
        return true;
    }
    return false;
}

const char *positions_name(positions_policy p)
{
    for (size_t i = 0; i < N_POLICIES; i++)
        if (policies[i].policy == p) return policies[i].name;
    return "default";
}

positions_policy positions_resolve(positions_policy policy, bool has_adapter, bool prefill_only)
{
    if (!has_adapter) return POSITIONS_NONE;
    if (policy != POSITIONS_DEFAULT) return policy;
    return prefill_only ? POSITIONS_TURNS : POSITIONS_ALL;
}

void positions_mark(positions_policy policy, const unsigned char *parts, size_t n,
                    unsigned char *marks)
{
    PF_ASSERT(policy != POSITIONS_DEFAULT);
    for (size_t i = 0; i < n; i++) {
        bool prompt = !parts || parts[i] == PART_PROMPT;
        marks[i] = policy == POSITIONS_TURNS ? prompt : policy != POSITIONS_NONE;
    }
}

bool positions_marks_generated(positions_policy policy)
{
    return policy == POSITIONS_ALL;
}

/* --- rendering within a window ---------------------------------------------------------------- */

void conversation_prompt_free(conversation_prompt *p)
{
    id_list_free(&p->ids);
    free(p->parts);
    free(p->marks);
    *p = (conversation_prompt){0};
}

/* The messages that stay: the system text at the front and everything from message first on. */
typedef struct {
    const chat_message *messages;
    size_t n_messages, n_system, first;
} window;

static size_t count_system(const chat_message *messages, size_t n)
{
    size_t i = 0;
    while (i < n && messages[i].role == ROLE_SYSTEM)
        i++;
    return i;
}

/* The beginning of the turn after the one at first, or n_messages if that is the last. */
static size_t next_turn(const window *w, size_t first)
{
    for (size_t i = first + 1; i < w->n_messages; i++)
        if (w->messages[i].role == ROLE_USER) return i;
    return w->n_messages;
}

static pf_status render_window(const chat_template *ct, const tokenizer *t, const window *w,
                               bool generation, chat_rendering *out, pf_err *err)
{
    size_t n_tail = w->n_messages - w->first;
    chat_message *kept = xcalloc(w->n_system + n_tail, sizeof *kept);
    if (w->n_system) memcpy(kept, w->messages, w->n_system * sizeof *kept);
    if (n_tail) memcpy(kept + w->n_system, w->messages + w->first, n_tail * sizeof *kept);
    pf_status status =
        chat_template_render(ct, t, kept, w->n_system + n_tail, generation, out, err);
    free(kept);
    return status;
}

/* Moves w->first on by whole turns until r, the rendering of w as it was, would lose at least
 * excess ids (an estimate: the caller renders again). False if the last turn is reached before. */
static bool drop_turns(window *w, const chat_rendering *r, size_t excess)
{
    size_t start = w->first, lost = 0;
    while (lost < excess) {
        size_t next = next_turn(w, w->first);
        if (next >= w->n_messages) break;
        w->first = next;
        size_t before = w->n_system ? r->message_end[w->n_system - 1] : 0;
        lost = r->message_end[w->n_system + (next - start) - 1] - before;
    }
    return w->first > start;
}

/* The beginning of the last turns that take about this many bytes, or more; n_system: all. */
static size_t last_turns(const window *w, size_t bytes)
{
    enum { TEMPLATE_BYTES = 32 }; /* about what the template writes around a message */
    size_t taken = 0;
    for (size_t i = w->n_messages; i-- > w->n_system;) {
        taken += w->messages[i].len + TEMPLATE_BYTES;
        if (w->messages[i].role == ROLE_USER && taken >= bytes) return i;
    }
    return w->n_system;
}

/* What can't be in the window isn't looked at: a conversation may be a thousand windows long. */
static pf_status fit(const chat_template *ct, const tokenizer *t, window *w,
                     const conversation_options *options, chat_rendering *r, pf_err *err)
{
    enum { USUAL_TOKEN_BYTES = 8 };
    bool whole = true; /* the turns from w->first on are all that may fit */
    size_t bytes = options->budget * USUAL_TOKEN_BYTES;
    if (options->drop_oldest && options->budget) {
        w->first = last_turns(w, bytes);
        whole = w->first == w->n_system;
    }
    for (;;) {
        pf_status status = render_window(ct, t, w, options->generation, r, err);
        if (status != PF_OK) return status;
        size_t n = r->ids.len;
        if (!whole && n <= options->budget) {
            w->first = last_turns(w, bytes *= 4);
            whole = w->first == w->n_system;
            chat_rendering_free(r);
            continue;
        }
        if (options->budget == 0 || n <= options->budget) return PF_OK;
        whole = true;
        bool dropped = options->drop_oldest && drop_turns(w, r, n - options->budget);
        if (!dropped)
            return err_set(err, PF_REFUSED,
                           "%s takes %zu tokens; there is room for %zu. Shorten it, or begin a "
                           "new conversation",
                           options->drop_oldest ? "the last message with the system text"
                                                : "the conversation",
                           n, options->budget);
        chat_rendering_free(r);
    }
}

pf_status conversation_render(const chat_template *ct, const tokenizer *t,
                              const chat_message *messages, size_t n_messages,
                              const conversation_options *options, conversation_prompt *out,
                              pf_err *err)
{
    window w = {.messages = messages, .n_messages = n_messages};
    chat_rendering r = {0};
    w.n_system = w.first = count_system(messages, n_messages);
    pf_status status = fit(ct, t, &w, options, &r, err);
    if (status != PF_OK) goto out;
    out->ids = r.ids;
    out->parts = r.parts;
    r.ids = (id_list){0};
    r.parts = NULL;
    out->marks = xmalloc(out->ids.len);
    positions_mark(options->policy, out->parts, out->ids.len, out->marks);
    out->n_dropped = w.first - w.n_system;
out:
    chat_rendering_free(&r);
    return status;
}
