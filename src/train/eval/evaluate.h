/* Evaluation: many conversations answered in one batched run, losses of given answers, and
 * confidence intervals. The basis of `preft eval`. */
#ifndef PF_TRAIN_EVAL_EVALUATE_H
#define PF_TRAIN_EVAL_EVALUATE_H

#include "engine/engine.h"
#include "train/dataset.h"

#include <jansson.h>

/* --- answers -------------------------------------------------------------------------------- */

typedef struct {
    buf text;
    id_list ids;      /* as generated, end token included */
    size_t n_content; /* ids without the end token */
    id_list prompt_ids;
    finish_reason reason;
} eval_answer;

/* A conversation to be answered: messages, then one user text after another. Owned by the caller
 * (eval_talk_free); texts are borrowed. */
typedef struct {
    chat_message *messages; /* grows with the answers and the user texts to come */
    size_t n_messages;
    const json_t *turns; /* NULL or all user texts; messages end with the first */
    adapter_id adapter;
    eval_answer *answers; /* [n_answers] what came back, in order */
    size_t n_answers;
    pf_err error; /* status is not PF_OK: it was refused or failed after n_answers answers */
} eval_talk;

void eval_talk_add(eval_talk *t, chat_role role, const char *text, size_t len);
void eval_talk_free(eval_talk *t);

/* Zeroed = defaults. */
typedef struct {
    int max_tokens; /* of an answer; 0 = as many as the context holds */
    const char *stops[ENGINE_MAX_STOPS];
    int n_stops;
    positions_policy positions; /* for talks with an adapter */
    uint64_t user;
    bool (*cancelled)(void *ctx); /* asked now and then; NULL: never */
    void *ctx;
} eval_settings;

/* Answers all talks greedily, together. A talk that can't be answered has its error, the others go
 * on. PF_INTERRUPTED when cancelled. */
pf_status evaluate_answers(engine *e, eval_talk *talks, size_t n, const eval_settings *settings,
                           pf_err *err);

/* --- losses --------------------------------------------------------------------------------- */

typedef struct {
    double loss;      /* mean over the targets, nats */
    size_t n_targets; /* 0: loss is NAN */
} eval_loss;

/* Losses of the examples, all of them together in *total and each in each[d->n] (may be NULL),
 * under the adapter blob (NULL: the base model) with the marks that the examples have. Runs on the
 * engine's thread beside what else it does; blocks. PF_INTERRUPTED when cancelled. */
pf_status evaluate_loss(engine *e, const train_dataset *d, const void *blob, size_t len,
                        bool (*cancelled)(void *ctx), void *ctx, eval_loss *total, eval_loss *each,
                        pf_err *err);

/* The base model's states behind the targets of each example (train/pass.h): states[d->n], each
 * [n_targets, hidden], owned by the caller. Runs and ends as evaluate_loss does; on failure nothing
 * is given. */
pf_status evaluate_states(engine *e, const train_dataset *d, bool (*cancelled)(void *ctx),
                          void *ctx, float **states, pf_err *err);

/* Adds a conversation whose last answer is a generated one, as an example whose targets are that
 * answer's tokens; its end token too if it ended by itself. */
pf_status evaluate_add_answer(train_dataset *d, const model *m, const eval_talk *t,
                              positions_policy policy, size_t max_tokens, pf_err *err);

/* --- confidence ------------------------------------------------------------------------------ */

typedef struct {
    double low, high;
} eval_interval;

/* Wilson's 95 % interval of a share p over n items; [0, 1] for n = 0. For the mean of values in
 * [0, 1] it is never too narrow, since their variance is at most p(1 - p). */
eval_interval evaluate_wilson(double p, size_t n);

#endif
