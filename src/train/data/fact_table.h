/* Tables about the kinds of facts: how they are stated, said and asked for. Internal to the
 * modules fact_*. English only: notes in other languages are FACT_GENERAL. */
#ifndef PF_TRAIN_DATA_FACT_TABLE_H
#define PF_TRAIN_DATA_FACT_TABLE_H

#include "train/data/facts.h"

/* A way of stating a fact. words are lower-case words with alternatives ("i'm/am"), and
 *   T  the thing, one to three words; with `things`, one of them
 *   V  the value: up to a comma, a conjunction or the end     S  likewise, up to a preposition too
 *   C  the value: one to four words that begin with upper case
 *   .  nothing more may follow */
typedef struct {
    fact_kind kind;
    const char *words;
    const char *thing;  /* given by the pattern itself; NULL: captured, or none */
    const char *things; /* NULL: any */
    bool notes_only;    /* too weak an indication in a chat, strong enough in a note */
} fact_pattern;
const fact_pattern *fact_patterns(size_t *n);

/* The fact as a sentence, to the user ("Your dog's name is Biscuit.") or by the user ("My dog is
 * called Biscuit."). Owned. */
char *fact_say(const fact *f, bool to_user);

/* Ways of asking for facts of a kind, NULL-terminated; %T stands for the thing. */
const char *const *fact_questions(fact_kind kind);
/* Those that only things like this one have; number counts from 0, NULL: no more. */
const char *const *fact_questions_about(fact_kind kind, const char *thing, size_t number);

/* Reads an answer ("Your dog's name is Biscuit.") as a statement about the user. */
bool fact_read_answer(span answer, fact *out);

/* The content words of a note: an answer must contain half of them. */
void fact_note_words(const char *note, wording_list *out);

/* Whether a text speaks of the user, as said by them ("my") or to them ("your"). */
bool fact_about_user(span text);
bool fact_to_user(span text);

/* Questions that the model writes about facts, and its answers with the note in its system text;
 * kept are those about the user whose answers hold the note's words. numbers[n]: the facts'. e
 * NULL: nothing is asked. */
pf_status facts_ask_model(engine *e, const fact *facts, size_t n, const size_t *numbers,
                          const facts_options *options, fact_pairs *out, facts_report *report,
                          pf_err *err);

/* Whether word is one of a list of words with single blanks between. */
bool fact_word_in(const char *word, const char *list);

#endif
