/* Regular expressions from files: POSIX extended ones, with bounds on what they may cost. */
#ifndef PF_TRAIN_EVAL_PATTERN_H
#define PF_TRAIN_EVAL_PATTERN_H

#include "base/err.h"
#include "train/span.h"

typedef struct pattern pattern;

/* Compiles it. `^` and `$` are the ends of the text, `.` matches a newline too. PF_REFUSED:
 * malformed, with back references (which are no part of the standard and can take for ever), or too
 * large with its repetitions written out. */
pf_status pattern_compile(span expression, pattern **out, pf_err *err);
void pattern_free(pattern *p); /* NULL is fine */
bool pattern_matches(const pattern *p, span text);

#endif
