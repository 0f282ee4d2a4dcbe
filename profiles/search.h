/* Search in the user's own messages: everything is unsealed and scanned, nothing is indexed. */
#ifndef PF_PROFILES_SEARCH_H
#define PF_PROFILES_SEARCH_H

#include "profiles/history.h"

typedef struct {
    int64_t conversation, message;
    history_role role;
    char *title; /* of the conversation */
    char
        *context; /* one line around the hit, blanks and line ends made single blanks, "…" where cut
                   */
    size_t start, len; /* the hit within context, in bytes */
    int64_t created_ms;
} search_hit;
typedef struct {
    search_hit *items; /* newest conversation first, then in order; the first hit of each message */
    size_t n;
    bool more; /* limit reached */
} search_result;

/* Finds text (at least one character; letters match in either case) in messages of all the user's
 * conversations, or of one (conversation_id > 0), at most limit hits (0 = 1000). Other
 * work goes on between two conversations; signing out ends it: PF_DENIED. */
pf_status search_messages(session *s, const char *text, int64_t conversation_id, size_t limit,
                          search_result *out, pf_err *err);
void search_result_free(search_result *r);

#endif
