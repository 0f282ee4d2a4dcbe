/* actions: all commands of the interface, bound to keys, listed in the command palette or typed as
 * slash commands. They are defined in one table, actions.def, which explains its columns. */
#ifndef PF_UI_ACTIONS_H
#define PF_UI_ACTIONS_H

#include "base/buf.h"
#include "base/err.h"
#include "ui/keys.h"

/* Where a binding applies. X(constant, title in the help) */
#define CONTEXT_LIST_OF(X)                                                                         \
    X(WINDOW, "Anywhere")                                                                          \
    X(CHAT, "In a conversation")                                                                   \
    X(MESSAGE, "With a message selected")                                                          \
    X(LIST, "In lists and forms")                                                                  \
    X(CONVERSATIONS, "In the list of conversations")                                               \
    X(PROFILES, "In the list of profiles")                                                         \
    X(NOTES, "In the list of notes")                                                               \
    X(TRAIN, "While training is shown")                                                            \
    X(EDITOR, "While writing")

typedef enum {
#define CONTEXT_ENUM(name, title) CONTEXT_##name,
    CONTEXT_LIST_OF(CONTEXT_ENUM)
#undef CONTEXT_ENUM
        CONTEXT_COUNT
} context;

#define CONTEXT_BIT(where) (1u << (where))

typedef enum {
    ACTION_NONE,
#define X(id, context, keys, slash, description) ACTION_##id,
#include "ui/actions.def"
#undef X
    ACTION_COUNT
} action;

#define ACTION_MAX_KEYS 4 /* of one action */

/* --- the table ---------------------------------------------------------------------------- */

context action_context(action a);
const char *context_title(context where);
const char *action_description(action a);
/* "split-right": in preft.conf and in the palette. */
const char *action_name(action a);
/* The action with this name, or ACTION_NONE. */
action action_find(const char *name);
/* "rename TITLE", "lock" or "". */
const char *action_slash(action a);
/* The action whose slash command is word[0..len), without the slash; ACTION_NONE if there is none.
 */
action action_of_slash(const char *word, size_t len);

/* --- keys ------------------------------------------------------------------------------------- */

/* What a key does in a context; ACTION_NONE if nothing. */
action action_of(key_code key, context where);
/* The key of an event: of INPUT_KEY, or the one character of INPUT_TEXT, so that views that take no
 * text may bind letters; 0 for other events. */
key_code input_key(const input_event *ev);
/* "F2 or Alt-V"; nothing if it has no key. */
void action_keys(action a, buf *out);
/* The first key only, for hints. */
void action_key(action a, buf *out);
/* The default keys as the table has them: "F2 Alt-V". */
const char *action_default_keys(action a);

/* Gives an action these keys (names separated by blanks; "none": no key) in place of its own. An
 * action that has one of them by default and would get in the way loses it; one that was given it
 * by an earlier call keeps it, and this call is refused (PF_USAGE), as it is for a word that names
 * no key, for more than ACTION_MAX_KEYS and for letters where text is written. */
pf_status action_bind(action a, const char *keys, pf_err *err);
/* Back to the defaults. */
void action_bind_defaults(void);

#endif
