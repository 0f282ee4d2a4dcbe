/* Generated examples: questions about the user's facts in many wordings, and the base model's own
 * answers to general questions (replay). The same code serves the plan, the training and a dry run.
 */
#ifndef PF_TRAIN_DATA_LESSONS_H
#define PF_TRAIN_DATA_LESSONS_H

#include "engine/engine.h"
#include "profiles/user.h"
#include "train/data/facts.h"
#include "train/data/request.h"
#include "train/dataset.h"

/* What the given conversations hold; zeroed = nothing seen yet. */
typedef struct {
    fact_pairs asked;       /* questions about the user, with their answers */
    fact_list found;        /* what users state about themselves */
    char *system;           /* what the profile puts before its chats; NULL: nothing */
    wording_list questions; /* what users began conversations with, not too long */
    size_t n_conversations; /* looked at */
    size_t n_asking;        /* that ask for facts */
} lessons_seen;
/* Looks at one conversation; ctx is a lessons_seen. */
void lessons_see(void *ctx, const chat_message *messages, size_t n);
void lessons_seen_free(lessons_seen *s);

/* Adds generated examples to d; with a text to distill, they replace what d has. e NULL: without
 * asking the model (and without replay; added->n_distilled is what would be asked then). s
 * NULL: no notes. Blocks while the engine answers; PF_INTERRUPTED when cancelled(ctx) says so. */
pf_status lessons_add(train_dataset *d, const model *m, engine *e, session *s,
                      const train_request *r, const lessons_seen *seen,
                      bool (*cancelled)(void *ctx), void *ctx, train_added *added, pf_err *err);

#endif
