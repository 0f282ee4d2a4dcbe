/* chat: a conversation between a signed-in user and the engine, without a screen. It keeps the
 * messages, saves them as they come, submits requests and collects answers. The chat view and line
 * mode are built on it. */
#ifndef PF_UI_CHAT_H
#define PF_UI_CHAT_H

#include "base/buf.h"
#include "engine/engine.h"
#include "profiles/history.h"
#include "profiles/profile.h"

#include <stdbool.h>

/* A message of the current branch. */
typedef struct {
    int64_t id, parent; /* in the store; parent HISTORY_ROOT: the first */
    history_role role;
    char *text; /* as it is shown and as the model reads it: rewritten, if it was */
    size_t len;
    int32_t *ids; /* answers: as they were generated; NULL: unknown, or rewritten */
    size_t n_ids;
    int rating; /* -1 bad, 0 none, 1 good */
    bool rewritten;
    char *finish; /* NULL: unknown */
    int prompt_tokens, cached_tokens, completion_tokens;
    int64_t prefill_us, decode_us, created_ms;
} chat_turn;

/* Any message of the conversation. */
typedef struct {
    int64_t parent, id;
    history_role role;
} chat_node;

typedef struct {
    engine *engine;        /* borrowed */
    engine_client *client; /* borrowed */
    session *session;      /* borrowed: the pane's */
    int64_t conversation;  /* 0: not saved yet */
    chat_turn *turns;
    size_t n_turns, cap;
    chat_node *nodes; /* of all branches, in order of parent and id */
    size_t n_nodes, cap_nodes;
    /* The profile: its adapter as the engine knows it, and its settings. */
    int64_t profile;           /* 0: none */
    int64_t version;           /* the adapter's; 0: plain */
    char *profile_name, *kind; /* owned; kind "lorap" or NULL */
    int rank;
    adapter_id adapter; /* 0: plain */
    char *system;       /* system text or NULL */
    positions_policy positions;
    sampling_options sampling;
    int max_tokens;
    bool greedy; /* whatever the settings say: scripts get the same answer every time */
    /* The answer under way. */
    request_id request; /* 0: none */
    int64_t asked;      /* the message it answers, in the store */
    bool sent;          /* that message came with the request: removed if no answer comes */
    int64_t former;     /* a message of the branch that was left for it; 0: none */
    buf answer;
    id_list ids;
    int n_dropped;  /* messages outside the window, as last told */
    int n_left_out; /* of them: not even given to the engine */
} chat;

void chat_init(chat *c, engine *e, engine_client *client, session *s);
/* Stops an answer (what was written is saved), releases the adapter and wipes the texts. */
void chat_close(chat *c);

/* Chooses a profile (0: none) for what comes next; a conversation that is already saved is moved to
 * it. On failure the former one stays. */
pf_status chat_use_profile(chat *c, int64_t profile, pf_err *err);
/* The profile got another current version or another name: what comes next uses it. */
pf_status chat_refresh_profile(chat *c, pf_err *err);
/* "letters (lorap r16)" or "no profile", clean. */
void chat_profile_label(const chat *c, buf *out);

/* Takes over what another process did to the profile meanwhile: another current version, or that it
 * was deleted, and then the chat has none. Appends what there is to say. False: it was deleted, and
 * nobody should be answered without it unasked. */
bool chat_follow_profile(chat *c, buf *told);

/* Loads a saved conversation with its profile in place of the present one. Intact messages of a
 * damaged one are loaded too, with PF_DAMAGED. Both this and chat_begin stop an answer under way;
 * what was written of it is saved. */
pf_status chat_load(chat *c, int64_t conversation, pf_err *err);
/* Opens a copy of what another chat of the same person shows, as far back as the model's window may
 * reach: a conversation of its own under this chat's profile. Without messages there: a new one. */
pf_status chat_copy(chat *c, const chat *of, pf_err *err);
/* Begins a new, empty conversation with the same profile. */
void chat_begin(chat *c);

/* An answer that could not be saved when it ended (the disk was full, say) stays the last turn,
 * with id 0, and is saved before what comes next is. */
bool chat_has_unsaved(const chat *c);
/* Tries to save it now. PF_NOT_FOUND: the conversation is gone. */
pf_status chat_save_rest(chat *c, pf_err *err);
/* Saves the person's message, then asks for an answer. On failure nothing was kept. limit: most
 * tokens of the answer, 0 = the profile's. tag: for the events. */
pf_status chat_send(chat *c, const char *text, size_t len, int limit, void *tag, pf_err *err);
/* Sends a message in place of one of the person's: a branch beside it. */
pf_status chat_send_instead(chat *c, size_t turn, const char *text, size_t len, int limit,
                            void *tag, pf_err *err);
/* Asks for another answer to the message that a turn is, or answers: a branch beside it. */
pf_status chat_regenerate(chat *c, size_t turn, int limit, void *tag, pf_err *err);
/* Asks the engine to stop; the last event follows. */
void chat_stop(chat *c);

typedef enum {
    CHAT_NOTHING,   /* not of this conversation's answer, or nothing to show */
    CHAT_WAITING,   /* ev->text says why */
    CHAT_STARTED,   /* c->n_dropped messages are outside the window; *dropped_more: more than before
                     */
    CHAT_TEXT,      /* ev->text was appended to the answer */
    CHAT_FINISHED,  /* the answer is saved (or err says why not); ev->reason */
    CHAT_TAKEN_BACK /* no answer came: the conversation is as it was before. err holds the reason
                       when it failed; *back is the text of a message that left it again, owned by
                       the caller, NULL: there was none */
} chat_change;
/* Follows an event. err->text is empty when all went well. */
chat_change chat_event(chat *c, const engine_event *ev, bool *dropped_more, char **back,
                       pf_err *err);

/* --- messages: not while an answer is under way ----------------------------------------------- */

/* Where a turn stands among those with the same parent: 1 of 1 when it is the only one. */
void chat_siblings(const chat *c, size_t turn, int *number, int *count);
/* Shows the branch through the sibling before (-1) or after (1); false: there is none. */
bool chat_choose_branch(chat *c, size_t turn, int direction, pf_err *err);
/* Shows the branch through a message. */
pf_status chat_show_message(chat *c, int64_t message, pf_err *err);
/* Deletes a message; one of the person's with its answers. What follows stays. */
pf_status chat_remove_turn(chat *c, size_t turn, pf_err *err);
pf_status chat_rate(chat *c, size_t turn, int rating, pf_err *err);
/* Replaces an answer by the one it should have been, for training too. "": back to what the model
 * wrote. */
pf_status chat_rewrite(chat *c, size_t turn, const char *text, pf_err *err);

/* Tokens that the conversation takes so far. */
pf_status chat_count_tokens(const chat *c, size_t *out, pf_err *err);

#endif
