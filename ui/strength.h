/* strength: how hard a passphrase is to guess, roughly, as a hint while it is typed. */
#ifndef PF_UI_STRENGTH_H
#define PF_UI_STRENGTH_H

#include <stddef.h>

typedef enum { STRENGTH_NONE, STRENGTH_WEAK, STRENGTH_FAIR, STRENGTH_STRONG } strength;

/* Counts what a guesser would have to try: kinds of characters and length, without what repeats or
 * follows in order (aaa, abc, 123). */
strength strength_of(const char *text, size_t len);
const char *strength_words(strength s); /* "", "weak", "fair", "strong" */

#endif
