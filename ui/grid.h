/* grid: the screen's contents as a grid of cells that views draw into. It is independent of any
 * terminal: the screen module displays it, script mode writes it as text. Drawing goes through an
 * area, a clipped rectangle, so that no view can draw outside its own. */
#ifndef PF_UI_GRID_H
#define PF_UI_GRID_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a cell is for; a theme says how it looks. X(name) */
#define STYLE_LIST(X)                                                                              \
    X(STYLE_TEXT)                                                                                  \
    X(STYLE_DIM)                                                                                   \
    X(STYLE_TITLE)                                                                                 \
    X(STYLE_BORDER)                                                                                \
    X(STYLE_BORDER_ACTIVE)                                                                         \
    X(STYLE_SPEAKER)                                                                               \
    X(STYLE_NOTICE)                                                                                \
    X(STYLE_ERROR)                                                                                 \
    X(STYLE_SELECTED)                                                                              \
    X(STYLE_FIELD)                                                                                 \
    X(STYLE_KEY)                                                                                   \
    X(STYLE_STATUS)                                                                                \
    X(STYLE_GOOD)                                                                                  \
    /* Markdown */                                                                                 \
    X(STYLE_HEADING)                                                                               \
    X(STYLE_STRONG)                                                                                \
    X(STYLE_EMPHASIS)                                                                              \
    X(STYLE_LINK)                                                                                  \
    X(STYLE_MARK) /* bullets, the bar beside a quote, lines of tables */                           \
    X(STYLE_CODE)                                                                                  \
    X(STYLE_CODE_WORD) /* keywords */                                                              \
    X(STYLE_CODE_STRING)                                                                           \
    X(STYLE_CODE_NUMBER)                                                                           \
    X(STYLE_CODE_COMMENT)

typedef enum {
#define STYLE_ENUM(name) name,
    STYLE_LIST(STYLE_ENUM)
#undef STYLE_ENUM
        STYLE_COUNT
} style;

/* Longest cluster a cell holds; of a longer one the leading code points are kept. */
#define CELL_TEXT 44

typedef struct {
    char text[CELL_TEXT]; /* not terminated; len bytes, unused bytes are zero */
    uint8_t len;          /* 0: the right half of the wide cluster to the left */
    uint8_t width;        /* 1 or 2; 0 with len 0 */
    uint8_t style;
    uint8_t uncertain; /* see text_cluster */
} cell;

typedef struct {
    int cols, rows;
    cell *cells; /* [rows * cols] */
    int cursor_x, cursor_y;
    bool cursor_shown;
} grid;

/* Zeroed = 0 by 0. The former picture is overwritten and dropped; sizes are clamped to 1..1000. */
void grid_resize(grid *g, int cols, int rows);
void grid_free(grid *g); /* overwrites the cells first */
const cell *grid_at(const grid *g, int x, int y);
/* Appends the picture as text: one line a row, spaces at the end of rows left out. */
void grid_write_text(const grid *g, buf *out);

typedef struct {
    grid *g;
    int x, y, w, h; /* inside the grid; w and h may be 0 */
} area;

area grid_area(grid *g);
/* The part of a that this rectangle (relative to a) covers; empty where there is none. */
area area_sub(area a, int x, int y, int w, int h);
/* Fills the whole area with spaces of a style. */
void area_clear(area a, style s);
/* Draws clean text (no line feeds) from column x of row y to the area's right edge; returns the
 * cells used. A wide cluster that would straddle the edge is left out. */
int area_text(area a, int x, int y, style s, const char *text, size_t len);
int area_put(area a, int x, int y, style s, const char *text); /* NUL-terminated */
int area_printf(area a, int x, int y, style s, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Clean text of any length, wrapped at the area's width, from row y on; returns the rows it takes
 * (those below the area are not drawn). */
int area_paragraph(area a, int y, style s, const char *text);
/* Right-aligned so that the last cell is at the area's right edge. */
void area_put_right(area a, int y, style s, const char *text);
/* A line of one repeated one-cell character. */
void area_hline(area a, int x, int y, int n, style s, const char *symbol);
void area_vline(area a, int x, int y, int n, style s, const char *symbol);
/* A frame around the area's inside; title may be NULL. */
void area_box(area a, style s, const char *title, style title_style);
void area_cursor(area a, int x, int y);

#endif
