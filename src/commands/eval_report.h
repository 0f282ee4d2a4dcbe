/* What `preft eval` found: scoring the answers, and the result as JSON and as text. */
#ifndef PF_COMMANDS_EVAL_REPORT_H
#define PF_COMMANDS_EVAL_REPORT_H

#include "train/eval/eval_format.h"
#include "train/eval/evaluate.h"
#include "train/eval/reward.h"

/* Unrelated questions, answered by the base model and under the adapter. */
typedef struct {
    json_t *items;
    size_t n;
    eval_talk *base, *own;     /* [n] */
    eval_loss loss_base, loss; /* of the base model's answers; loss NAN: not measured */
    size_t n_leaks;            /* own answers with a fact that the base's answer does not have */
    size_t n_same;             /* answers that are the same */
} eval_damage;

/* An answer's score. */
typedef struct {
    reward_result result;
    double *values; /* [rules] */
} eval_score;

/* A data set and what was found. Zeroed = empty. */
typedef struct {
    json_t *items, *check; /* check may be NULL */
    reward *rules;         /* NULL: nothing is scored */
    size_t n_left_out;
    eval_talk *talks; /* [n_talks] about the first items */
    size_t n_talks;
    eval_talk *samples; /* [n_samples] the base model's */
    size_t n_samples;
    /* How likely answers are to the base model: its own samples, and the adapter's. */
    eval_loss sense_base, sense;
    eval_score **scores;     /* [n_talks][answers wanted of the item] */
    eval_loss loss, *losses; /* all; each item's (NULL: none has an answer) */
    eval_damage damage;
} eval_set;

/* Scores all answers and counts leaks. */
void eval_set_score(eval_set *set);
void eval_set_free(eval_set *set);

json_t *eval_report_json(const eval_set *set); /* owned */
void eval_report_print(const eval_set *set);

#endif
