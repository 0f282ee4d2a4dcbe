/* hints: the keys for what can be done here, as they are bound now. Private to ui/. */
#ifndef PF_UI_HINTS_H
#define PF_UI_HINTS_H

#include "ui/window.h"

typedef struct {
    action key;
    const char *words; /* "use", "back" */
    action also;       /* a second one, "Up/Down move"; ACTION_NONE: none */
} hint;

#define HINT(key, words)                                                                           \
    {                                                                                              \
        key, words, ACTION_NONE                                                                    \
    }
#define HINT_BOTH(key, also, words)                                                                \
    {                                                                                              \
        key, words, also                                                                           \
    }

/* "Enter use   Esc back" in the last rows of a, as many to a row as fit, at most `most` rows; what
 * does not fit is left out from the end, and so are actions without a key. Returns the rows that
 * were used. */
int hints_draw(area a, int most, const hint *hints, size_t n);

/* For an array. */
#define HINTS_DRAW(a, most, hints) hints_draw(a, most, hints, sizeof(hints) / sizeof *(hints))

#endif
