/* Rule-based paraphrasing of questions: an indirect question ("Do you know where I live?"), a
 * request ("Tell me where I live."), a lead-in ("By the way, where do I live?"), common words in
 * place of others, contractions, and how people type (no capital, no question mark).
 *
 * English; questions in other languages get lead-ins only where those fit any text. */
#ifndef PF_TRAIN_DATA_WORDING_H
#define PF_TRAIN_DATA_WORDING_H

#include "train/span.h"

#include <stddef.h>
#include <stdint.h>

/* Owned texts. */
typedef struct {
    char **items;
    size_t n;
} wording_list;
void wording_list_free(wording_list *list);
/* Adds a text unless it is there already (letters in either case); whether it was added. */
bool wording_list_add(wording_list *list, const char *text);

/* Adds other wordings of a question or request, in a fixed order, the most different ones first. */
void wording_vary(const char *question, wording_list *out);

/* The clause that a question has inside: "Where do I live?" -> "where I live", "What is my dog's
 * name?" -> "what my dog's name is". Owned; NULL if the form is not known. */
char *wording_clause(const char *question);

/* A text with the sides exchanged, as far as single words tell: to_user "I keep my key here." ->
 * "You keep your key here."; else "Are you at home?" -> "Am I at home?" Owned. */
char *wording_turn(span text, bool to_user);

#endif
