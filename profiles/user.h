/* Users and sessions. User names are visible without a passphrase (they are the sign-in list);
 * all else of a user is sealed under the data key, which a session holds. See store.h for threads,
 * ownership and statuses. */
#ifndef PF_PROFILES_USER_H
#define PF_PROFILES_USER_H

#include "profiles/store.h"

#include <stdint.h>

typedef struct session session; /* a signed-in user; counted references */

typedef struct {
    int64_t id; /* never reused after removal */
    char *name;
    int64_t created_ms; /* Unix time */
    bool has_recovery;  /* a recovery key was made */
} user_info;

typedef struct {
    user_info *items; /* by name, case folded */
    size_t n;
} user_list;
pf_status user_list_load(store *s, user_list *out, pf_err *err);
void user_list_free(user_list *list);

/* Whether a new user may have this name: PF_USAGE when it is refused (name.h) or taken. s NULL: by
 * its form alone. */
pf_status user_check_name(store *s, const char *name, pf_err *err);

/* Makes a user and signs in. name: see name.h; PF_USAGE when refused or taken. recovery may be
 * NULL; else it receives the text of a new recovery key, to be shown once (secret_free). */
pf_status user_create(store *s, const char *name, const secret *passphrase, session **out,
                      secret **recovery, pf_err *err);

/* PF_NOT_FOUND: no such user. PF_DENIED: wrong passphrase. PF_DAMAGED: the user's key record is
 * damaged (no passphrase can be right). */
pf_status user_sign_in(store *s, const char *name, const secret *passphrase, session **out,
                       pf_err *err);

/* Signs in with the recovery key and sets a new passphrase. PF_USAGE: the key is mistyped (its
 * checksum is wrong) or the new passphrase refused; PF_DENIED: another user's or an old key. */
pf_status user_recover(store *s, const char *name, const secret *recovery_key,
                       const secret *new_passphrase, session **out, pf_err *err);

/* Rewraps the data key: one row changes; the old wrapping is overwritten in the file. The old
 * passphrase is asked again (PF_DENIED). Other sessions go on and see SESSION_PASSPHRASE_CHANGED.
 * Backups made before still open with the old passphrase. */
pf_status user_change_passphrase(session *s, const secret *old_passphrase,
                                 const secret *new_passphrase, pf_err *err);

/* Makes a new recovery key, which invalidates an older one. The passphrase is asked again. */
pf_status user_make_recovery_key(session *s, const secret *passphrase, secret **out, pf_err *err);
pf_status user_drop_recovery_key(session *s, pf_err *err);

/* Removes a user and everything sealed for them, their wrapped keys first. Needs no passphrase,
 * since accounts with a forgotten one must be removable: callers ask for the name to be typed.
 * Afterwards nothing can be recovered except from backups. PF_NOT_FOUND. */
pf_status user_remove(store *s, const char *name, pf_err *err);

/* --- sessions --------------------------------------------------------------------------------- */

/* Another reference, e.g. for the engine's loader; returns s. */
session *session_ref(session *s);
void session_unref(session *s); /* NULL is fine; the last one signs out and frees */

/* Wipes the keys now, whoever still holds references: later calls give PF_DENIED. Waits for a
 * sealing or unsealing that is under way (at most one chunk of 1 MiB). */
void session_sign_out(session *s);

typedef enum {
    SESSION_OPEN,
    SESSION_SIGNED_OUT,
    SESSION_PASSPHRASE_CHANGED, /* elsewhere; the session goes on, the user should be told */
    SESSION_USER_REMOVED        /* elsewhere; nothing can be saved any more */
} session_state;
/* Asks the store; cheap enough for every message. SESSION_PASSPHRASE_CHANGED is told once. */
session_state session_check(session *s);

const char *session_user_name(const session *s); /* borrowed */
int64_t session_user_id(const session *s);
/* A random-looking non-zero number that stands for the user towards the engine
 * (engine_request.user: fair sharing and cache isolation). The same in every session of the user.
 */
uint64_t session_engine_user(const session *s);
store *session_store(const session *s); /* borrowed */

#endif
