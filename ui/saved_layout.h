/* saved_layout: the arrangement of panes as a small text file, kept between runs. Nothing in it
 * is secret: where panes are, the names of the people (the sign-in list shows them anyhow) and the
 * numbers of their conversations. One node a line, a split before its two parts:
 *
 *   preft layout 1
 *   focus 1              the pane with the keys, in the order of the lines below, from 0
 *   zoomed 0
 *   beside 6000          60 % for the part on the left; 0: equal parts; likewise "below"
 *   pane 12 mira         conversation (0: none) and person
 *   pane 0               nobody's
 */
#ifndef PF_UI_SAVED_LAYOUT_H
#define PF_UI_SAVED_LAYOUT_H

#include "base/buf.h"
#include "base/err.h"
#include "ui/layout.h"

#include <stdint.h>

#define SAVED_LAYOUT_MAX_BYTES 65536

typedef struct {
    layout layout; /* not placed */
    int focus;     /* a pane's number */
    bool zoomed;
    struct {
        char *user; /* NULL: nobody's */
        int64_t conversation;
    } panes[LAYOUT_MAX_PANES]; /* by number */
} saved_layout;

void saved_layout_free(saved_layout *s); /* zeroed again */
/* Appends the text. */
void saved_layout_write(const saved_layout *s, buf *out);
/* Reads such a text; out is zeroed first and filled only on success. name is for messages. Panes
 * are numbered from 0 in the order of the lines. PF_REFUSED: it is none. */
pf_status saved_layout_parse(const char *text, size_t len, const char *name, saved_layout *out,
                             pf_err *err);

#endif
