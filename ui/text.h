/* text: UTF-8 in grapheme clusters. The only part of the interface that knows how wide text is.
 *
 * The unit is the extended grapheme cluster (utf8proc); positions that people see (a cursor, a
 * selection) are cluster indexes, columns are computed from widths, and byte offsets stay inside
 * this module and those that store text.
 *
 * Widths, in terminal cells: East Asian wide and emoji 2, a cluster with variation selector 16, a
 * pair of regional indicators, a ZWJ sequence 2, combining marks add nothing, spacing marks of
 * Indic scripts add one (a terminal gives them a cell), private use 1, code points newer than the
 * tables 1 (2 in the emoji blocks and in the ideographic planes). No cluster is wider than 2.
 *
 * Every function takes any bytes; ill-formed UTF-8 counts as one cell for each maximal part. What
 * goes to a screen must have passed text_clean, after which no control character other than line
 * feed and tab and no direction control is left. */
#ifndef PF_UI_TEXT_H
#define PF_UI_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_TAB 4 /* a tab reaches the next multiple of this many columns */

typedef struct {
    size_t len; /* bytes, > 0 */
    int width;  /* cells: 0 (invisible), 1 or 2; tab and line feed count 1 and 0 */
    /* Terminals are known to disagree on the width: joined emoji, flags, combining marks, new code
     * points. The screen positions what follows such a cluster absolutely. */
    bool uncertain;
} text_cluster;

/* The cluster at the start of text[0..len), len > 0. */
text_cluster text_next(const char *text, size_t len);
/* Cells that text takes on one line (tabs counted from column 0, line feeds 0). */
int text_width(const char *text, size_t len);
int text_width_z(const char *text);
/* The number of clusters. */
size_t text_count(const char *text, size_t len);
/* The longest prefix, in bytes, of whole clusters that takes at most cells; *used gets its width
 * (used may be NULL). */
size_t text_fit(const char *text, size_t len, int cells, int *used);

/* The bytes of text without its last cluster: what an erasing key leaves. */
size_t text_without_last(const char *text, size_t len);

/* Appends text cut to at most cells; a cut text ends in "…". */
void text_ellipsis(const char *text, size_t len, int cells, buf *out);

/* --- sanitising ---------------------------------------------------------------------------- */

/* Cleaning works on a stream: the state carries what a later chunk may still decide. Zeroed =
 * start of a text. */
typedef struct {
    bool held_cr;  /* a CR whose LF may follow */
    bool in_flag;  /* inside a black flag's tag sequence */
    bool joinable; /* the last character may be continued by a joiner */
    char held[4];  /* an incomplete UTF-8 character */
    unsigned char n_held;
} text_cleaner;

/* Appends text with everything that could act on a terminal made visible: C0 controls as their
 * symbols (ESC as U+241B), C1 controls and direction embeddings, overrides and isolates as <9B>,
 * <202E>, stray tag characters likewise, ill-formed bytes as U+FFFD. CR LF becomes LF; LF and tab
 * stay. Invisible characters that do nothing here (zero-width space, direction marks, soft hyphen,
 * byte order mark) are dropped; joiners stay between characters. */
void text_clean(text_cleaner *state, const char *text, size_t len, buf *out);
/* The end of the text: what was held back comes out (CR as its symbol, a cut character as U+FFFD).
 */
void text_clean_finish(text_cleaner *state, buf *out);

/* A whole name or title on one line: as text_clean, but line feeds, tabs and invisible characters
 * are shown too, so that no name can look like another by what can't be seen. */
void text_clean_label(const char *text, size_t len, buf *out);

/* For a draft (typed or pasted text): CR LF and CR become LF; control characters other than LF and
 * tab and ill-formed bytes are dropped. Everything else is kept as it is. */
void text_clean_draft(const char *text, size_t len, buf *out);

/* --- wrapping --------------------------------------------------------------------------------- */

typedef struct {
    size_t start, len; /* bytes; without the spaces at which it was broken and without the LF */
    int width;         /* cells */
    bool hard;         /* ended by a line feed in the text */
} text_line;

/* The lines of a text at a width. Wrapping is greedy, so a line that is not the last never changes
 * when text is appended: text_wrap looks again only at the last line. Zeroed = empty. */
typedef struct {
    text_line *lines;
    size_t len, cap;
    int width; /* the width that lines was made for */
} text_lines;

/* Brings lines up to date with text, which is what it was at the last call plus appended bytes.
 * Breaks at spaces, after hyphens and slashes within words, around ideographs and kana (closing
 * punctuation never starts a line, opening never ends one), and, where nothing else fits, between
 * clusters. An empty text has one empty line; width < 1 counts as 1. A changed width wraps all. */
void text_wrap(text_lines *lines, const char *text, size_t len, int width);
/* The same after `removed` bytes at `from` were replaced by `added` ones: only the paragraphs
 * (parts between line feeds) that the change touched are wrapped again. */
void text_rewrap(text_lines *lines, const char *text, size_t from, size_t removed, size_t added);
/* The last line that begins at or before a byte; lines is not empty. */
size_t text_line_at(const text_lines *lines, size_t byte);
void text_lines_reset(text_lines *lines); /* after any other change */
void text_lines_free(text_lines *lines);

#endif
