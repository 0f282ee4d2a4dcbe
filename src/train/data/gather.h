/* Collects the examples of a training from files and from the user's own conversations. The same
 * code serves the plan, the training and a dry run. */
#ifndef PF_TRAIN_DATA_GATHER_H
#define PF_TRAIN_DATA_GATHER_H

#include "profiles/history.h"
#include "profiles/user.h"
#include "train/data/lessons.h"
#include "train/data/request.h"
#include "train/dataset.h"

/* Conversations that were learned from, as they were read. Zeroed = none. */
typedef struct {
    conversation_extent *items;
    size_t n;
} gathered_list;
void gathered_list_free(gathered_list *g);

/* Adds a JSONL file. */
pf_status gather_file(train_dataset *d, const model *m, const char *path,
                      const train_dataset_options *options, pf_err *err);

/* Adds conversations: those chosen, or all under a profile (0: all of the user). Rewritten answers
 * replace what the model had said and count twice. Of copies of a message one is used (copies.h).
 * Those that gave an example, or a text to one, are added to *used (may be NULL). */
pf_status gather_conversations(train_dataset *d, const model *m, session *s, const train_request *r,
                               const train_dataset_options *options, gathered_list *used,
                               pf_err *err);

/* How many answers of the conversations under a profile (0: of all) each choice would learn:
 * answers[LEARN_ALL], .... Decrypts them all. */
pf_status gather_count(session *s, int64_t profile, size_t answers[LEARN_REWRITES + 1],
                       pf_err *err);

/* How the request's kind marks tokens, and the longest example; system: as in lessons_seen. */
train_dataset_options gather_options(const train_request *r, const char *system);

/* All that r names, without generated examples (lessons.h), part of it held out. s may be NULL when
 * there are files or a text to distill. seen is shown every conversation. */
pf_status gather_examples(session *s, const model *m, const train_request *r, train_dataset *d,
                          gathered_list *used, lessons_seen *seen, pf_err *err);

#endif
