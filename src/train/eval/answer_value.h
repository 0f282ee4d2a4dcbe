/* Extracting the final value of an answer (its last number, its boxed expression, its chosen
 * letter) and comparing two of them. */
#ifndef PF_TRAIN_EVAL_ANSWER_VALUE_H
#define PF_TRAIN_EVAL_ANSWER_VALUE_H

#include "train/span.h"

/* The last number of a text, with its sign, without thousands separators and a closing full stop.
 * False if there is none. "3-2" ends in 2. */
bool answer_last_number(span text, double *out);

/* The content of the last \boxed{...} or \fbox{...} with balanced braces, or what follows
 * "\boxed " up to the next $. False if there is none. */
bool answer_boxed(span text, span *out);

/* Appends a mathematical expression in a normal form for comparison, as the MATH data set's own
 * check does:
 * spaces, sizes, units, degrees, per cents and dollars dropped, fractions and roots with braces,
 * a/b of whole numbers and 0.5 as fractions, a short left side of "=" dropped. */
void answer_normalise_math(span expression, buf *out);
bool answer_same_math(span a, span b);

/* The letter (A to Z, in upper case) that an answer to a multiple-choice question chooses: one that
 * stands first ("B", "(B)", "B. Paris"), else the one after the last "answer is" or "answer:", else
 * the only letter in parentheses. 0: none. */
char answer_choice(span text);

#endif
