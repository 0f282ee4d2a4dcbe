/* Messages that are copies of each other (conversation_copy): they count once as training data, and
 * a rating or rewrite of one of them applies to all. */
#ifndef PF_TRAIN_DATA_COPIES_H
#define PF_TRAIN_DATA_COPIES_H

#include "profiles/history.h"
#include "train/data/request.h"

typedef struct copied_message copied_message;

/* The messages of a user of which there is more than one. Zeroed = none. */
typedef struct {
    copied_message *items; /* in order of their origin */
    size_t n;
    conversation_extent *read; /* the conversations that were read, by id */
    size_t n_read;
} copy_table;

/* Reads all conversations of the user that are copies or were copied, under any profile. Damaged
 * messages are skipped. */
pf_status copies_load(session *s, copy_table *out, pf_err *err);
void copies_free(copy_table *t); /* wiped */

/* Sets the messages of a loaded conversation to the latest rating of any of their copies, and gives
 * an answer without a rewrite of its own the latest rewrite of a copy. lent (room for c->n)
 * receives the other conversations that these texts come from, in any order, borrowed from the
 * table; returns their number. */
size_t copies_judge(const copy_table *t, conversation *c, const conversation_extent **lent);

/* Whether no copy of a message with the same text has been used yet for this choice of data; marks
 * it as used. */
bool copies_learn(copy_table *t, const history_message *m, learn_from from);
/* Whether no copy of a message has been inspected yet; marks it as inspected. */
bool copies_look(copy_table *t, const history_message *m);

#endif
