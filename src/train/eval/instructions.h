/* Instructions that can be checked without a model: those of the IFEval data set, by its names
 * ("length_constraints:number_words") and arguments ("num_words", "relation"). */
#ifndef PF_TRAIN_EVAL_INSTRUCTIONS_H
#define PF_TRAIN_EVAL_INSTRUCTIONS_H

#include "base/err.h"
#include "train/span.h"

#include <jansson.h>
#include <stdbool.h>

/* Whether the name is known but can't be checked here (the language of an answer). */
bool instruction_needs_model(const char *name);

/* Checks an instruction {"id", "kwargs": {...}}; arguments that are null count as missing.
 * PF_REFUSED: unknown name, argument missing or of a wrong type. */
pf_status instruction_check(const json_t *instruction, pf_err *err);

/* Whether the trimmed answer follows it; instruction passed instruction_check. */
bool instruction_followed(const json_t *instruction, span answer);

#endif
