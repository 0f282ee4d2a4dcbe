/* Replay: the base model's own answers to general questions, mixed into a training set so that a
 * profile neither degrades unrelated answers nor leaks into them. They are also put before other
 * turns, so that what is learned holds later in a conversation too. */
#ifndef PF_TRAIN_DATA_REPLAY_H
#define PF_TRAIN_DATA_REPLAY_H

#include "engine/engine.h"
#include "train/dataset.h"
#include "train/eval/evaluate.h"

/* Number of general questions that there are. */
size_t replay_questions(void);
const char *replay_question(size_t number); /* number < replay_questions() */

/* Questions with the base model's answers. */
typedef struct {
    eval_talk *talks; /* [n], owned; each of one question and one answer */
    size_t n;
} replay_set;
void replay_free(replay_set *r);

typedef struct {
    size_t n;           /* questions, chosen by seed */
    const char *system; /* text before them, borrowed until replay_free; NULL: none */
    uint64_t user;      /* whose text it is: the engine's number of the user; 0: nobody's */
    int max_tokens;     /* of an answer */
    uint64_t seed;
    bool (*cancelled)(void *ctx); /* NULL: never */
    void *ctx;
} replay_options;

/* Asks the base model; answers are greedy, all in one batch. Blocks while the engine answers. */
pf_status replay_ask(engine *e, const replay_options *options, replay_set *out, pf_err *err);

/* Adds questions and answers as examples; an answer that was cut off is learned without its end. */
pf_status replay_add(train_dataset *d, const model *m, const replay_set *r,
                     const train_dataset_options *options, pf_err *err);

/* Talk number modulo n as two messages; text is borrowed. Returns whether the answer ended by
 * itself: else it is no example of how to end one. */
bool replay_messages(const replay_set *r, size_t number, chat_message out[2]);

#endif
