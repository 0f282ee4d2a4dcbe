/* markdown: incremental layout of Markdown as rows of styled text, while it streams in.
 *
 * The text is cut at the borders of its top-level blocks (and of the items of top-level lists).
 * What is before the last border is settled: laid out once and never looked at again. Only the open
 * block is laid out again as it grows, and within it a fenced code block settles row by row, a
 * paragraph row by row as soon as no style can reach back any more. So a token costs the same in a
 * long answer as in a short one. Blocks are parsed by md4c.
 *
 * Differences from CommonMark, all on purpose: a line end within a paragraph stays a line end; HTML
 * is text; a reference definition counts only within its block; items of a list have no empty rows
 * between them.
 *
 * The text must be clean (text_clean); then the rows are: entities are decoded and cleaned again.
 */
#ifndef PF_UI_MARKDOWN_H
#define PF_UI_MARKDOWN_H

#include "ui/grid.h"
#include "ui/highlight.h"

enum {
    ROW_WHOLE,     /* no: the rest would be read as another block */
    ROW_CUT_LOSSY, /* a style that begins before it may be lost */
    ROW_CUT        /* yes */
};

typedef struct {
    size_t text, len; /* bytes of the sheet's text */
    size_t run;       /* the run that the row begins in */
    size_t source;    /* where in the source the row's text begins (about, for decorations) */
    int width;        /* cells */
    uint8_t cut;      /* ROW_*: may its paragraph be parsed in two parts here? */
} markdown_row;

/* A style from here on. */
typedef struct {
    size_t text;
    uint8_t style;
} markdown_run;

/* Rows with their text. */
typedef struct {
    buf text;
    markdown_row *rows;
    size_t n_rows, cap_rows;
    markdown_run *runs;
    size_t n_runs, cap_runs;
} markdown_sheet;

/* What the layout of a block has to know of the text before it. */
typedef struct {
    bool any;         /* there was a block */
    bool continues;   /* the same paragraph goes on */
    bool after_list;  /* a list: an item of the same kind goes on with it */
    char list_mark;   /* its bullet, or the character behind its numbers */
    unsigned number;  /* of its next item */
    bool in_fence;    /* inside a fenced code block at top level */
    char fence_mark;  /* ` or ~ */
    int fence_len;    /* at least so many end it */
    int fence_indent; /* spaces that are taken from its lines */
    bool in_line;     /* settled in the middle of a line of code */
    highlighter code;
} markdown_place;

/* Zeroed = empty. */
typedef struct {
    markdown_sheet sheet;
    int width;
    size_t looked_at; /* bytes of the source at the last layout */
    bool finished;
    /* What is settled: this much of the source and of the sheet. */
    size_t source, text, rows, runs;
    markdown_place place;
    bool split;              /* a paragraph was settled in parts */
    unsigned long long work; /* bytes of source laid out so far, those laid out again included */
} markdown;

/* Brings the rows up to date with the source, which is what it was at the last call plus appended
 * bytes. finished: no more comes; everything is then as if it had been laid out at once. A changed
 * width lays everything out again. */
void markdown_update(markdown *m, const char *source, size_t len, int width, bool finished);
void markdown_free(markdown *m); /* wipes the text */

void markdown_draw_row(const markdown *m, size_t row, area a, int x, int y);

#endif
