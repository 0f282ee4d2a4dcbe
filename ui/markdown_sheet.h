/* markdown_sheet: what the two halves of the Markdown layout share. Private to ui/markdown*. */
#ifndef PF_UI_MARKDOWN_SHEET_H
#define PF_UI_MARKDOWN_SHEET_H

#include "ui/markdown.h"

/* Rows are made from left to right: begin, text in pieces, end. */
void sheet_begin_row(markdown_sheet *s, size_t source);
void sheet_text(markdown_sheet *s, style st, const char *text, size_t len);
void sheet_end_row(markdown_sheet *s);

/* Lays out source[from..to), whole top-level blocks that are not fenced code (markdown_render.c).
 * place is brought up to date. */
void markdown_render(markdown_sheet *s, const char *source, size_t from, size_t to, int width,
                     markdown_place *place);
/* Code: appends one piece of a line, indented, to the row; h is carried on. */
#define CODE_INDENT 2
void sheet_code(markdown_sheet *s, highlighter *h, const char *text, size_t len, bool line_ends);
/* The bytes of a line of code that fit one row at a width; at least one cluster. */
size_t markdown_code_fit(const char *text, size_t len, int width);

#endif
