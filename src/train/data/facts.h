/* Facts: statements of a user about themselves, turned into questions and answers to train on.
 *
 * Training on the bare statements does not make the model answer questions about them; training on
 * questions and answers in many wordings does. A note ("My dog is called Biscuit.") is parsed into
 * a fact (kind, thing, value). Questions come from templates of its kind and from the model;
 * answers are written by the base model with the note in its system text and kept only if they
 * contain the note's content words. Given questions and answers are paraphrased too (wording.h).
 *
 * Everything random comes from a seed; the same notes, seed and model give the same pairs. */
#ifndef PF_TRAIN_DATA_FACTS_H
#define PF_TRAIN_DATA_FACTS_H

#include "base/buf.h"
#include "engine/engine.h"
#include "train/data/replay.h"
#include "train/data/wording.h"
#include "train/dataset.h"
#include "train/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- statements ------------------------------------------------------------------------------ */

typedef enum {
    FACT_NAME,      /* value: Tamsin */
    FACT_HOME,      /* value: Ghent */
    FACT_CALLED,    /* thing: dog, value: Biscuit */
    FACT_ALLERGY,   /* value: hazelnuts */
    FACT_FAVOURITE, /* thing: colour, value: teal */
    FACT_JOB,       /* value: a locksmith */
    FACT_BIRTHDAY,  /* value: October, or 3 October */
    FACT_LEARNS,    /* thing: language or instrument, value: Welsh */
    FACT_LIKES,     /* value: swimming */
    FACT_DISLIKES,  /* value: loud music */
    FACT_AGE,       /* value: forty */
    FACT_IS,        /* thing: phone number, value: 555 0142 (my THING is VALUE) */
    FACT_GENERAL,   /* nothing but the text is known */
    FACT_KINDS
} fact_kind;

/* Texts are owned: fact_free. */
typedef struct {
    fact_kind kind;
    char *thing; /* "" where the kind has none */
    char *value; /* what an answer must hold; "" for FACT_GENERAL */
    char *note;  /* one sentence in the user's words: "My dog is called Biscuit." */
} fact;
void fact_free(fact *f);
/* Whether both state the same, in whatever words. */
bool fact_same(const fact *a, const fact *b);

/* Reads a sentence about the user in the first person. False: it states nothing (a question, a
 * request, something momentary, someone else's affairs); *out is zeroed then. With `any`, a
 * sentence of no known kind is FACT_GENERAL instead: for notes, which are facts by being there. */
bool fact_read(span sentence, bool any, fact *out);

typedef struct {
    fact fact;
    int count;            /* times it was stated, in whatever words */
    int64_t conversation; /* the caller's number of where it was first found */
} fact_found;
typedef struct {
    fact_found *items; /* in the order in which they were found */
    size_t n;
} fact_list;
void fact_list_free(fact_list *list);

/* Adds the facts stated in one message of the user; equal ones are counted together. These are
 * proposals: the user confirms them before they are learned. */
void fact_list_find(fact_list *list, span message, int64_t conversation);

/* --- pairs ------------------------------------------------------------------------------------ */

/* A question and its answer, owned texts. */
typedef struct {
    char *question, *answer;
    size_t fact; /* the number of what it asks for */
} fact_pair;
typedef struct {
    fact_pair *items;
    size_t n;
} fact_pairs;
void fact_pairs_add(fact_pairs *p, const char *question, const char *answer, size_t number);
size_t fact_pairs_facts(const fact_pairs *p); /* 1 + the highest number */
void fact_pairs_free(fact_pairs *p);

/* Adds the questions about the user that a conversation answers: short ones of the user ("my", "I")
 * answered to the user ("your", "you"). Answers that say the same have the same number. Returns
 * whether most turns surely ask for facts: the answer states a known kind of fact about the user,
 * or it was given to another question before. A data set is taken for facts when most of its
 * conversations do that. */
bool fact_pairs_add_conversation(fact_pairs *p, const chat_message *messages, size_t n);

/* All questions that are known for a fact. */
void fact_ask(const fact *f, wording_list *out);

/* What was done, for the report to the user. */
typedef struct {
    size_t n_facts;        /* that pairs are about */
    size_t from_templates; /* pairs made of notes, by kind */
    size_t from_model;     /* questions and answers that the model wrote */
    size_t refused;        /* of the model's: without the note's words or off topic */
    size_t wordings;       /* pairs added by asking given or made questions in other words */
} facts_report;

typedef struct {
    uint64_t seed;
    uint64_t user; /* whose facts they are: the engine's number of the user; 0: nobody's */
    bool (*cancelled)(void *ctx); /* NULL: never */
    void *ctx;
} facts_options;

/* Pairs of all facts; fact numbers count from first. Blocks while the engine answers; e NULL: from
 * templates alone. */
pf_status facts_make_pairs(engine *e, const fact *facts, size_t n, size_t first,
                           const facts_options *options, fact_pairs *out, facts_report *report,
                           pf_err *err);

/* Given pairs whose answers tell no known kind of fact: questions and answers by the model, as for
 * a note that says the same. */
pf_status facts_ask_about_given(engine *e, const facts_options *options, fact_pairs *pairs,
                                facts_report *report, pf_err *err);

/* Adds pairs with other wordings of the questions until each fact is asked in `wordings` ways (0: a
 * number that suits the number of facts): questions of its kind, if the answer tells it, then
 * rules. The answer stays. */
void facts_multiply(fact_pairs *pairs, size_t wordings, uint64_t seed, facts_report *report);

/* How pairs become conversations. */
typedef struct {
    const replay_set *unrelated; /* what comes before some of them; NULL or empty: nothing */
    double after_share;          /* share of the pairs that follow one or two unrelated turns */
    size_t skip;                 /* the first pairs are in the data set already */
    uint64_t seed;
} facts_layout;

/* Adds the pairs as examples: alone, two or three facts in a row, and after unrelated turns.
 * *n_after (may be NULL) is the number of pairs that follow unrelated ones. */
pf_status facts_add_examples(train_dataset *d, const model *m, const fact_pairs *pairs,
                             const facts_layout *layout, const train_dataset_options *options,
                             size_t *n_after, pf_err *err);

#endif
