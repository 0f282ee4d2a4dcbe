/* Facts: what a user stated about themselves, made into questions and answers to learn from.
 *
 * Raw statements teach nothing that can be asked for; questions and answers do, if they are asked
 * in many words. A note ("My dog is called Biscuit.") is read into a fact (kind, thing, value);
 * questions come from templates of its kind and from the model, answers are written by the base
 * model with the note in its system text and kept only if they hold the note's words. Given
 * questions and answers are multiplied into other wordings in the same way (train/wording.h).
 *
 * Everything random comes from a seed; the same notes, seed and model give the same pairs. */
#ifndef PF_TRAIN_FACTS_H
#define PF_TRAIN_FACTS_H

#include "base/buf.h"
#include "engine/engine.h"
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

/* Reads a sentence about the user in the first person. False: it states nothing (a question, a
 * request, something of a moment, someone else's affairs); *out is zeroed then. With `any`, a
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
    size_t fact; /* which one it asks for; pairs of the same answer have the same number */
} fact_pair;
typedef struct {
    fact_pair *items;
    size_t n;
} fact_pairs;
void fact_pairs_add(fact_pairs *p, const char *question, const char *answer, size_t fact);
void fact_pairs_free(fact_pairs *p);

/* Questions and answers from templates alone: no model needed. FACT_GENERAL has none. */
void fact_pairs_from_templates(const fact *f, size_t number, fact_pairs *out);

/* What was done, to be told to the user. */
typedef struct {
    size_t n_facts;
    size_t from_templates, from_model; /* pairs made of notes */
    size_t wordings;                   /* pairs added by saying given or made ones in other words */
    size_t refused;                    /* answers of the model without the note's words */
} facts_report;

typedef struct {
    int wordings;   /* wordings of each fact to reach, given ones included; 0 = 24 */
    bool ask_model; /* questions and answers from the model too */
    uint64_t seed;
    bool (*cancelled)(void); /* NULL: never */
} facts_options;

/* Pairs of all facts, answered and multiplied. Blocks while the engine answers. Facts of kind
 * FACT_GENERAL need ask_model. */
pf_status facts_make_pairs(engine *e, const fact *facts, size_t n, const facts_options *options,
                           fact_pairs *out, facts_report *report, pf_err *err);

/* Whether a conversation teaches facts about the user: short questions about the user ("my", "I")
 * answered to the user ("your", "you"). Sets are seen as facts when most conversations are. */
bool facts_are_asked(const chat_message *messages, size_t n);

#endif
