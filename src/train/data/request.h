/* What a training is asked to do: what it learns from, and how. */
#ifndef PF_TRAIN_DATA_REQUEST_H
#define PF_TRAIN_DATA_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { TRAIN_LORAP, TRAIN_DIREFTP, TRAIN_LORA, TRAIN_DIREFT } train_method;
/* "lorap", "direftp", "lora", "direft": the kinds of profile_version. */
const char *train_method_name(train_method m);
bool train_method_parse(const char *name, train_method *out);

/* Which answers of conversations are learned. */
typedef enum {
    LEARN_ALL,     /* every answer that was not rated bad */
    LEARN_GOOD,    /* answers rated good, and rewritten ones */
    LEARN_REWRITES /* rewritten answers only */
} learn_from;

/* Facts about the user (facts.h). */
typedef enum {
    LEARN_FACTS,       /* confirmed notes; questions about the user in the data get many wordings */
    LEARN_FOUND_FACTS, /* also what users state about themselves in the data, unconfirmed */
    LEARN_NO_FACTS
} learn_facts;

/* The examples that were generated for a training, beside the given ones. Zeroed = none. */
typedef struct {
    size_t n_facts, n_pairs;               /* facts, and questions that ask for them */
    size_t n_given, n_by_kind, n_by_model; /* where the questions come from */
    size_t n_reworded;                     /* in other words than those */
    size_t n_refused;                      /* of the model's: without the notes' words */
    size_t n_notes;                        /* confirmed notes that are learned */
    size_t n_found;                        /* statements of users found in the data */
    size_t n_replayed;                     /* the model's own answers to general questions */
    size_t n_distilled;                    /* questions asked with the text to distill */
    size_t n_after;                        /* generated questions after unrelated turns */
} train_added;

/* Zeroed members are defaults. Copied by the functions that take it. */
typedef struct {
    int64_t profile;         /* of the session's user; 0: a new one, or none */
    const char *new_profile; /* profile 0: its name; it is made when there is enough to learn from,
                                with what is needed to go on if it is broken off. NULL: the result
                                is taken with train_live_result */
    train_method method;

    learn_from from;
    const int64_t *conversations; /* only these; none: all under the profile */
    size_t n_conversations;
    const char *const *files; /* JSONL {"messages": [...]}: learned instead of conversations */
    size_t n_files;
    size_t max_tokens; /* longest example; longer conversations are cut at turns. 0 = 1024 */
    double held_out;   /* share of the conversations held out for evaluation */
    /* The model's own answers to general questions that are mixed in; 0 = 40 where facts are
     * learned, else none; -1 = none. */
    int replay;
    learn_facts facts;
    int wordings; /* of each fact; 0 = by the number of facts */
    /* Not NULL: a system text whose effect is learned instead (distill.h). The conversations or
     * files only give questions then; neither need be there. */
    const char *distill;
    const double *after; /* share of generated questions after unrelated turns; NULL = 0.25 */

    bool fresh; /* start from scratch, even if the profile has an adapter of this kind */
    int rank;   /* 0 = 8 for LoRA, 64 for DiReFT */
    double alpha, rate;
    int epochs, batch;
    int64_t steps; /* at most so many; 0 = as the epochs give */
    bool constant_rate, orthonormal;
    const double *warmup, *clip; /* NULL = default: 0.05 of the steps; norm 1 */
    uint64_t seed;
    int64_t checkpoint_steps; /* most steps that a crash may cost; 0 = 20, -1 = none is saved while
                                 it runs */

    const char *const *questions; /* asked before and after */
    size_t n_questions;
    int sample_questions; /* without questions: take so many from the examples; 0 = none */
} train_request;

#endif
