/* editor: a draft of one or more lines. The cursor is a cluster index; bytes and columns are
 * computed. Holds plain text (see text_clean_draft), at most EDITOR_MAX bytes. */
#ifndef PF_UI_EDITOR_H
#define PF_UI_EDITOR_H

#include "base/buf.h"
#include "ui/actions.h"
#include "ui/grid.h"
#include "ui/text.h"

#include <stdbool.h>

#define EDITOR_MAX        (4u << 20)
#define EDITOR_UNDO       100         /* steps that can be undone */
#define EDITOR_UNDO_BYTES (32u << 20) /* of all of them; of longer texts fewer steps are kept */

/* A former state of the text. */
typedef struct {
    char *text;
    size_t len, cursor;
} editor_state;

typedef struct {
    buf text;
    uint32_t *starts;  /* [count + 1]: byte offset of every cluster; the last is text.len */
    size_t count, cap; /* clusters */
    size_t cursor;     /* 0..count */
    int goal;          /* column that up and down try to keep; -1: the cursor's */
    int top;           /* first visible line */
    text_lines lines;
    editor_state undo[EDITOR_UNDO], redo[EDITOR_UNDO];
    int n_undo, n_redo;
    bool typing; /* the last change was typing: the next one joins its undo step */
} editor;

/* Zeroed = empty, but call editor_init before use. */
void editor_init(editor *e);
void editor_free(editor *e); /* wipes the text */

/* Inserts text at the cursor, cleaned for drafts; false: it would become too long, nothing is
 * changed. typed: one typed character (joins the undo step of the one before). */
bool editor_insert(editor *e, const char *text, size_t len, bool typed);
void editor_set(editor *e, const char *text, size_t len); /* undo is forgotten */
/* The same, as a step that can be undone; false: it would be too long, nothing is changed. */
bool editor_replace(editor *e, const char *text, size_t len);
void editor_clear(editor *e);
const char *editor_text(const editor *e, size_t *len);

/* Does an editor action. False when there was nothing to do there: up in the first line and down in
 * the last one (where the caller offers the input history), or an action that is not the editor's.
 */
bool editor_do(editor *e, action a);

/* Lines that the text takes at a width; at least 1. */
int editor_height(editor *e, int width);
/* Draws the lines around the cursor; with_cursor places the terminal's cursor. */
void editor_draw(editor *e, area a, style s, bool with_cursor);
/* For a field of one line: draws the part around the cursor, without wrapping. */
void editor_draw_field(editor *e, area a, style s, bool with_cursor);

#endif
