/* Replay: the base model's own answers to general questions, mixed into a training set so that a
 * profile neither damages nor leaks into answers that have nothing to do with it. */
#ifndef PF_TRAIN_REPLAY_H
#define PF_TRAIN_REPLAY_H

#include "engine/engine.h"
#include "train/dataset.h"

/* Number of general questions that there are. */
size_t replay_questions(void);

/* Asks the base model n of them (chosen by seed, answered greedily in one batch, at most max_tokens
 * each) and adds question and answer to d. Blocks while the engine answers. */
pf_status replay_add(train_dataset *d, engine *e, size_t n, int max_tokens, uint64_t seed,
                     const train_dataset_options *options, pf_err *err);

#endif
