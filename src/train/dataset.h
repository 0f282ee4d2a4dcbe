/* Training examples: conversations as ids, marks and targets. Template, end token and marks come
 * from engine/conversation, the same code that serves the chat.
 *
 * A target is a token of an answer to learn from, its end token included. What can't be used is
 * listed with the reason, never silently dropped. */
#ifndef PF_TRAIN_DATASET_H
#define PF_TRAIN_DATASET_H

#include "base/err.h"
#include "engine/conversation.h"
#include "models/model.h"
#include "train/pass.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *label;                     /* where it comes from, for messages */
    char *question, *answer;         /* the last answer that is learned and what it answers */
    int32_t *ids;                    /* [length] */
    unsigned char *adapted, *target; /* [length], as in train_sequence */
    int32_t length;
    int32_t n_targets;
    int32_t repeat; /* times it counts in an epoch, at least 1 */
    float *teacher; /* [n_targets, width] states of a teacher (train/pass.h); NULL: none */
    size_t width;
    bool held_out; /* held out for evaluation */
} train_example;

typedef struct {
    char *label, *reason;
} train_skipped;

typedef struct {
    train_example *items;
    size_t n;
    train_skipped *skipped;
    size_t n_skipped;
    size_t n_cut;     /* conversations that were cut at turn borders */
    size_t n_sources; /* conversations offered */
    bool facts;       /* it teaches facts: other training defaults apply (live/live_request.h) */
} train_dataset;
void train_dataset_free(train_dataset *d); /* texts are wiped; zeroes it */

typedef struct {
    positions_policy policy; /* resolved: turns for prefill-only kinds, all for the baselines */
    size_t max_tokens;       /* longest example */
    int repeat;              /* 0 = 1 */
    const char *system;      /* stands before conversations without a system text; NULL: nothing */
    /* Shown every conversation of a file before it is added; NULL: nobody. Texts are borrowed. */
    void (*seen)(void *ctx, const chat_message *messages, size_t n_messages);
    void *seen_ctx;
} train_dataset_options;

/* Adds a conversation. learn[n_messages] tells which assistant messages to learn from; NULL: all.
 * Longer conversations become several examples, cut at turn borders, each with the system text.
 * A conversation that can't be used is listed in skipped, which is no failure; PF_FAILED only when
 * the model has no usable template. */
pf_status train_dataset_add(train_dataset *d, const model *m, const chat_message *messages,
                            const unsigned char *learn, size_t n_messages,
                            const train_dataset_options *options, const char *label, pf_err *err);

/* Adds every line of JSONL {"messages":[{"role","content"},...]}. A malformed line is refused with
 * its number and nothing of the file is added. name is for messages. */
pf_status train_dataset_add_jsonl(train_dataset *d, const model *m, const char *data, size_t len,
                                  const char *name, const train_dataset_options *options,
                                  pf_err *err);

/* Holds out about `share` of the conversations for evaluation, whole conversations only (examples
 * with the same label stay together), chosen by seed; at least one and at most half when share > 0
 * and there are four or more, none below four. */
void train_dataset_hold_out(train_dataset *d, double share, uint64_t seed);
/* How many of n conversations that holds out. */
size_t train_dataset_kept_aside(double share, size_t n);

/* Moves everything of from to the end of d; from is empty then. */
void train_dataset_move(train_dataset *d, train_dataset *from);
/* Keeps the first n examples only. */
void train_dataset_cut(train_dataset *d, size_t n);

size_t train_dataset_targets(const train_dataset *d, bool held_out);
/* Examples that an epoch goes over: a repeated one as often as it counts. */
size_t train_dataset_repeats(const train_dataset *d);
size_t train_dataset_tokens(const train_dataset *d, bool held_out);

train_sequence train_example_sequence(const train_example *e);

#endif
