/* highlight: syntax highlighting. One small scanner for many languages: comments, strings, numbers
 * and a list of words each. It goes forward only and carries its state from piece to piece, so that
 * code can be coloured while it streams in. */
#ifndef PF_UI_HIGHLIGHT_H
#define PF_UI_HIGHLIGHT_H

#include "ui/grid.h"

typedef enum { HIGHLIGHT_CODE, HIGHLIGHT_COMMENT, HIGHLIGHT_STRING } highlight_mode;

/* Zeroed = a language without rules. Copied freely. */
typedef struct {
    int language;        /* of the table in highlight.c; 0: none */
    highlight_mode mode; /* what the piece before ended in: a comment or string of several lines */
    char quote;          /* that ends the string */
    bool triple;         /* three of them do */
    bool to_line_end;    /* the comment or string ends with the line */
} highlighter;

/* name as behind the fence: "python", "C++"; in any case of letters. */
void highlight_begin(highlighter *h, const char *name, size_t len);

typedef void (*highlight_fn)(void *ctx, size_t start, size_t len, style s);
/* Colours a piece of one line without its line feed: calls put for parts in order, which cover all
 * of it. line_ends: the line ends behind it. */
void highlight_piece(highlighter *h, const char *text, size_t len, bool line_ends, highlight_fn put,
                     void *ctx);

#endif
