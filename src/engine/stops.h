/* Stop strings over a stream of text. What is found depends on the text alone, not on how tokens
 * cut it: the stream is read byte by byte and the first stop string that becomes complete ends it.
 * Text that could still be the beginning of a stop string is held back until it can't be one. */
#ifndef PF_ENGINE_STOPS_H
#define PF_ENGINE_STOPS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define STOPS_MAX       16
#define STOPS_MAX_BYTES 1024 /* of one stop string */

/* Zeroed = no stop strings: everything passes. */
typedef struct {
    char *text[STOPS_MAX]; /* owned */
    size_t len[STOPS_MAX];
    int n;
    buf held; /* the text that may be the beginning of a stop string */
} stop_matcher;

/* Copies one more stop string (whole UTF-8, 1..STOPS_MAX_BYTES bytes; at most STOPS_MAX). */
void stop_matcher_add(stop_matcher *m, const char *text, size_t len);
/* Wiped and released. */
void stop_matcher_free(stop_matcher *m);

/* Reads text and appends to *out what may be shown. True: a stop string is complete; the text
 * before it has been appended, it and everything after it are dropped. If text is whole UTF-8, so
 * is what is appended. */
bool stop_matcher_push(stop_matcher *m, const char *text, size_t len, buf *out);
/* The end of the text: appends what was held back. */
void stop_matcher_flush(stop_matcher *m, buf *out);

#endif
