/* Small values kept per user, sealed: interface settings, drafts, input history. Keys are sealed
 * too. */
#ifndef PF_PROFILES_SETTINGS_H
#define PF_PROFILES_SETTINGS_H

#include "base/buf.h"
#include "profiles/user.h"

#define SETTINGS_MAX_BYTES (1u << 20)

/* Appends the value to *out; PF_NOT_FOUND if there is none (err is set, out unchanged). */
pf_status settings_get(session *s, const char *key, buf *out, pf_err *err);
pf_status settings_set(session *s, const char *key, const void *value, size_t len, pf_err *err);
pf_status settings_remove(session *s, const char *key, pf_err *err); /* absent: PF_OK */

/* The input history: what the user typed under a profile (0: none), oldest first, at most
 * SETTINGS_INPUTS; a repetition of the last one is not kept. Never pass passphrases here. */
#define SETTINGS_INPUTS 500
typedef struct {
    char **items;
    size_t n;
} input_history;
pf_status input_history_load(session *s, int64_t profile, input_history *out, pf_err *err);
pf_status input_history_add(session *s, int64_t profile, const char *text, pf_err *err);
void input_history_free(input_history *h);

/* What is being written in a conversation (0: in a new one) and not sent yet; it goes with the
 * conversation. A draft of more than SETTINGS_MAX_BYTES is refused (PF_REFUSED). */
/* Appends to *out; nothing where there is none. */
pf_status draft_load(session *s, int64_t conversation, buf *out, pf_err *err);
pf_status draft_save(session *s, int64_t conversation, const char *text, size_t len, pf_err *err);
/* The setting under which an unfinished change of a message is kept, or the better answer that is
 * being written; it goes with the message. Owned. */
char *message_draft_key(int64_t message, bool rewrite);

#endif
