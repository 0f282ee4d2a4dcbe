/* From messages to what the engine runs: ids, the part of every id, and the marks that a positions
 * policy gives them. The only place where marks are decided (man/preft.7). Runs on the caller's
 * thread; every function is pure. positions_parse and positions_name (engine/engine.h) are
 * implemented here too. */
#ifndef PF_ENGINE_CONVERSATION_H
#define PF_ENGINE_CONVERSATION_H

#include "engine/engine.h"
#include "models/template.h"

#include <stdbool.h>
#include <stddef.h>

/* What POSITIONS_DEFAULT stands for: none without an adapter, turns for prefill-only kinds, all for
 * the full-position ones. Other policies come back as they are, but NONE without an adapter. */
positions_policy positions_resolve(positions_policy policy, bool has_adapter, bool prefill_only);

/* Marks of n prompt tokens: marks[i] = 1 where the token is adapted. parts holds a token_part for
 * each; NULL: all are PART_PROMPT. policy must be resolved (not DEFAULT). */
void positions_mark(positions_policy policy, const unsigned char *parts, size_t n,
                    unsigned char *marks);

/* The mark of every generated token, its end token included: true under ALL only. */
bool positions_marks_generated(positions_policy policy);

/* A rendered conversation. Owned by the caller; zeroed = empty. */
typedef struct {
    id_list ids;
    unsigned char *parts; /* [ids.len] token_part */
    unsigned char *marks; /* [ids.len] 1: adapted */
    size_t n_dropped;     /* messages dropped to fit, oldest first, never the system text */
} conversation_prompt;
void conversation_prompt_free(conversation_prompt *p);

typedef struct {
    positions_policy policy; /* resolved: not DEFAULT */
    bool generation;         /* with the header for the next answer */
    size_t budget;           /* most ids; 0 = no limit */
    bool drop_oldest;        /* too long: drop the oldest turns instead of refusing */
} conversation_options;

/* Renders messages into *out (must be zeroed; freed by the caller also on failure). A turn is a
 * user message with the answers after it; system messages at the front stay, and so does the last
 * turn. PF_REFUSED with both numbers when what must stay is longer than the budget, and what the
 * template refuses (role order, no messages). */
pf_status conversation_render(const chat_template *ct, const tokenizer *t,
                              const chat_message *messages, size_t n_messages,
                              const conversation_options *options, conversation_prompt *out,
                              pf_err *err);

#endif
