/* Conversations and messages, sealed.
 *
 * The messages of a conversation form a tree: a regenerated answer or an edited question is added
 * beside the older one, as a further child of the same parent. The current branch is what the user
 * sees and the model is given; the others stay until they are deleted. Each conversation keeps a
 * sealed count and digest of its messages, each user one of their conversations, so that removed,
 * added and rolled-back rows are detected. A rollback of the whole file can't be detected. See
 * store.h for threads, ownership and statuses. */
#ifndef PF_PROFILES_HISTORY_H
#define PF_PROFILES_HISTORY_H

#include "base/buf.h"
#include "profiles/user.h"

#define HISTORY_MAX_TEXT (16u << 20) /* bytes of one message */
#define HISTORY_ROOT     (-1)        /* a parent: none, the message begins the conversation */

typedef enum { HISTORY_SYSTEM, HISTORY_USER, HISTORY_ASSISTANT } history_role;
const char *history_role_name(history_role role); /* "system", "user", "assistant" */
bool history_role_parse(const char *name, history_role *out);

/* A message. As an argument every pointer is borrowed and only the marked members count. */
typedef struct {
    int64_t id; /* set by the store; never reused */
    /* * The message it answers or follows, or HISTORY_ROOT. As an argument 0 = the newest message;
     * when loaded never 0. */
    int64_t parent;
    history_role role;
    char *text; /* * valid UTF-8, NUL-terminated; may hold NULs inside: use len */
    size_t len; /* * */
    /* Assistant: the generated ids without the end token, so that the conversation is read back as
     * it was written; n_ids 0: unknown (imported or rewritten). */
    int32_t *ids; /* * */
    size_t n_ids; /* * */
    char *finish; /* * "stop", "length", "context", "cancelled", ...; NULL or "" = unknown */
    int prompt_tokens, cached_tokens, completion_tokens; /* * */
    int64_t prefill_us, decode_us;  /* * time of reading the prompt and of writing; 0 = unknown */
    int rating;                     /* * -1 bad, 0 none, 1 good */
    char *rewritten;                /* * the user's better answer, for training; NULL = none */
    int64_t created_ms, updated_ms; /* created_ms: * 0 = now */
    int64_t judged_ms;              /* when it was last rated or rewritten; 0: never, or unknown */
    /* The original message that it is a copy of (through other copies too); 0: it is no copy.
     * Copies of one message have the same origin, even when that is deleted. */
    int64_t origin;
} history_message;

typedef struct {
    int64_t id;      /* never reused */
    int64_t profile; /* 0: none, or removed since */
    char *title;
    int64_t created_ms, updated_ms;
    int64_t n_messages;
    /* Likewise: the original conversation it is a copy of. Only conversations of the same origin,
     * and the origin itself, hold copies of each other's messages. */
    int64_t origin;
} conversation_info;

typedef struct {
    conversation_info *items; /* newest change first */
    size_t n;
    size_t total; /* before paging */
} conversation_list;

/* profile -1: of all; 0: of none. limit 0: no limit. */
pf_status conversation_list_load(session *s, int64_t profile, size_t offset, size_t limit,
                                 conversation_list *out, pf_err *err);
void conversation_list_free(conversation_list *list);

pf_status conversation_create(session *s, int64_t profile, const char *title, int64_t *id,
                              pf_err *err);
/* Makes a conversation of its first message, which gives it its title, in one step; the message as
 * in message_append. */
pf_status conversation_begin(session *s, int64_t profile, const history_message *first, int64_t *id,
                             int64_t *message, pf_err *err);
pf_status conversation_get(session *s, int64_t id, conversation_info *out, pf_err *err);
void conversation_info_free(conversation_info *info);
/* Copies the messages of a branch, from `first` to `last`, to a new conversation, atomically. They
 * keep their times, token ids, rating and rewritten answer. Damaged ones are left out.
 * PF_NOT_FOUND: there is no branch that ends at `last` and holds `first`. */
pf_status conversation_copy(session *s, int64_t id, int64_t first, int64_t last, int64_t profile,
                            int64_t *copy, pf_err *err);
/* title NULL, profile -1: unchanged. */
pf_status conversation_update(session *s, int64_t id, const char *title, int64_t profile,
                              pf_err *err);
/* Also deletes what is derived from it: checkpoints of unfinished trainings that learn from it,
 * unconfirmed notes found in it, its messages in the input history, its draft. */
pf_status conversation_remove(session *s, int64_t id, pf_err *err);

typedef struct {
    conversation_info info;
    history_message *messages; /* in order: parents before children */
    size_t n;
    int64_t current; /* the last message of the current branch; 0: there are no messages */
} conversation;
/* The current branch (10,000 messages: well under a second). */
pf_status conversation_load(session *s, int64_t id, conversation *out, pf_err *err);
/* All branches: every message, in order of ids. */
pf_status conversation_load_tree(session *s, int64_t id, conversation *out, pf_err *err);
void conversation_free(conversation *c);

/* What a conversation held when it was loaded with all branches. Ids are never used again: fewer
 * messages up to the last one later mean that some were deleted. */
typedef struct {
    int64_t id;
    int64_t n_messages, last_message;
} conversation_extent;
conversation_extent conversation_measure(const conversation *tree);

/* The index of a message in a tree; c->n: there is none. */
size_t conversation_find(const conversation *c, int64_t message);
/* The branch of a tree that ends at message `last`: path[0..n) gets the indexes of its messages
 * from the beginning on; path has room for c->n. Returns n; 0: there is no such message. */
size_t conversation_path(const conversation *c, int64_t last, size_t *path);
/* The last message below a message, following the newest child at every fork. */
int64_t conversation_last(const conversation *c, int64_t message);
/* Makes the branch that goes through this message (and below it along the newest ones) the current
 * one. Appending a message does this too. */
pf_status conversation_choose(session *s, int64_t id, int64_t message, pf_err *err);
void history_message_free(history_message *m); /* the members, wiped */

/* Saves a message, which ends the current branch from then on; *id (may be NULL) is its id. PF_OK
 * means committed. PF_NOT_FOUND: the conversation has no such parent. */
pf_status message_append(session *s, int64_t conversation_id, const history_message *message,
                         int64_t *id, pf_err *err);
/* Replaces all the marked members but parent and created_ms. */
pf_status message_update(session *s, int64_t conversation_id, const history_message *message,
                         pf_err *err);
/* Changes rating and rewritten answer alone; rewritten NULL: unchanged, "": none. */
pf_status message_rate(session *s, int64_t conversation_id, int64_t id, int rating,
                       const char *rewritten, pf_err *err);
typedef enum {
    REMOVE_ALONE,
    REMOVE_WITH_ANSWERS, /* a user's message with the answers to it; any other alone */
    REMOVE_AND_LATER     /* with all that follow it in any branch */
} message_removal;
/* Deletes a message, and others with it, atomically. Remaining messages below them become children
 * of the nearest remaining ancestor; the current branch stays the current one. */
pf_status message_remove(session *s, int64_t conversation_id, int64_t id, message_removal how,
                         pf_err *err);
/* Undoes a question that got no answer, atomically: deletes the message and all that follow it (id
 * 0: nothing), then makes the branch through `former` the current one, if it is there. */
pf_status message_take_back(session *s, int64_t conversation_id, int64_t id, int64_t former,
                            pf_err *err);

/* --- import and export ---------------------------------------------------------------------- */

/* What is written is the current branch, with rewritten answers in place of the model's. */

/* One line of JSON per conversation: {"messages":[{"role","content"}]}. Appends to *out. */
pf_status history_export_jsonl(session *s, const int64_t *ids, size_t n, buf *out, pf_err *err);
/* Markdown for reading: the title, then one section for each message. */
pf_status history_export_markdown(session *s, const int64_t *ids, size_t n, buf *out, pf_err *err);

/* Reads JSONL as above (other members are allowed and ignored), checks every line (roles, order of
 * turns, texts) and saves all conversations or none. name is for messages ("chats.jsonl, line 3").
 * *n (may be NULL) is their number. Titles come from the first user message. */
pf_status history_import_jsonl(session *s, int64_t profile, const char *data, size_t len,
                               const char *name, size_t *n, pf_err *err);

/* A title made of a message: its first line, cut at a word, at most 60 characters. Owned. */
char *history_title(const char *text, size_t len);

#endif
