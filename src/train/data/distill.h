/* Context distillation: learning the effect of a system text, so that the text is no longer needed.
 * The base model answers questions with the text before them (the teacher); the profile is trained
 * to match the teacher's distribution at every token of these answers: KL(teacher || profile).
 *
 * Questions are the user's own, general ones, and, where the text states facts about the user, ones
 * that ask for them; answers to those are kept only if they hold the fact's words. */
#ifndef PF_TRAIN_DATA_DISTILL_H
#define PF_TRAIN_DATA_DISTILL_H

#include "engine/engine.h"
#include "train/data/wording.h"
#include "train/dataset.h"

typedef struct {
    const char *text;          /* the teacher's system text */
    const wording_list *asked; /* the user's own questions; NULL or empty: none */
    uint64_t seed;
    uint64_t user; /* whose text it is: the engine's number of the user; 0: nobody's */
    bool (*cancelled)(void *ctx); /* NULL: never */
    void *ctx;
} distill_options;

/* Adds the answered questions, with the teacher's states, as examples to d. Blocks while the engine
 * works. *n_asked: questions asked; *n_refused: answers without the fact's words. */
pf_status distill_add(train_dataset *d, engine *e, const distill_options *options,
                      const train_dataset_options *data_options, size_t *n_asked, size_t *n_refused,
                      pf_err *err);

/* How many questions that asks. */
size_t distill_questions(const distill_options *options);

#endif
