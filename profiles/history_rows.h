/* Conversations and messages as rows. Internal to profiles/. */
#ifndef PF_PROFILES_HISTORY_ROWS_H
#define PF_PROFILES_HISTORY_ROWS_H

#include "profiles/history.h"
#include "profiles/internal.h"

/* A conversation's row, unsealed and writable. */
typedef struct {
    row row;
    char *title;
    int64_t profile, created_ms, updated_ms;
    int64_t current; /* a message of the current branch; 0: the newest */
    int64_t origin;  /* as in conversation_info */
    vault_head messages;
} conversation_row;

void conversation_row_take(const row *r, conversation_row *out); /* copies; row is left out */
pf_status conversation_row_read(tx *t, int64_t id, conversation_row *out, pf_err *err);
void conversation_row_free(conversation_row *c);
/* Inserts (row.id 0) or updates, keeping head up to date. */
pf_status conversation_row_write(tx *t, user_head *head, conversation_row *c, int64_t *id,
                                 pf_err *err);
/* Inserts a conversation and reads its row again: messages can be added then. */
pf_status conversation_row_make(tx *t, user_head *head, conversation_row *c, pf_err *err);
/* Fills out; takes over c's title. A profile that is gone counts as none. */
pf_status conversation_row_info(tx *t, conversation_row *c, conversation_info *out, pf_err *err);

/* PF_NOT_FOUND: there is no such profile (0: none is needed). */
pf_status conversation_check_profile(tx *t, int64_t profile, pf_err *err);
/* PF_NOT_FOUND, with words. */
pf_status message_missing(int64_t conversation_id, int64_t id, pf_err *err);

/* Checks a message's texts and numbers: PF_USAGE. */
pf_status message_check(const history_message *m, pf_err *err);
void message_put(record_writer *w, const history_message *m);
void message_take(const row *r, history_message *out); /* copies */
/* Of what the store sets itself, origin and judged_ms are taken from m. */
pf_status message_row_insert(tx *t, conversation_row *c, const history_message *m, int64_t *id,
                             pf_err *err);

/* Loads within a transaction; as conversation_load_tree. */
pf_status conversation_read(tx *t, int64_t id, conversation *out, pf_err *err);
/* Keeps the current branch of a tree. */
void conversation_prune(conversation *c);
/* All conversations of the user, newest first; as conversation_list_load. */
pf_status conversation_list_read(tx *t, conversation_list *out, pf_err *err);

#endif
