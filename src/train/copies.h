/* Messages that are copies of each other (conversation_copy): what is learned from them is learned
 * once, and what the person said about one of them holds for all. */
#ifndef PF_TRAIN_COPIES_H
#define PF_TRAIN_COPIES_H

#include "profiles/history.h"
#include "train/live.h"

typedef struct copied_message copied_message;

/* The messages of a user of which there is more than one. Zeroed = none. */
typedef struct {
    copied_message *items; /* in order of their origin */
    size_t n;
} copy_table;

/* Looks through all conversations of the user that are copies or were copied, whatever profile they
 * are under. What is damaged there is passed over. */
pf_status copies_load(session *s, copy_table *out, pf_err *err);
void copies_free(copy_table *t); /* wiped */

/* Gives the messages of a loaded conversation what was last said about any copy of them: the
 * rating, and to an answer without a better one of its own the one that was last written. lent
 * (room for c->n) gets the other conversations whose texts these are, in any order; returns their
 * number. */
size_t copies_judge(const copy_table *t, conversation *c, int64_t *lent);

/* Whether nothing has been learned yet, at this choice, from a copy of a judged message with the
 * same text. From now on something has. */
bool copies_learn(copy_table *t, const history_message *m, learn_from from);
/* The same for looking at a message: whether no copy of it was looked at. */
bool copies_look(copy_table *t, const history_message *m);

#endif
