/* frame: lines between panes. Lines that meet become the right junction (┬, ├, ┼, ...), whichever
 * pane draws first. */
#ifndef PF_UI_FRAME_H
#define PF_UI_FRAME_H

#include "ui/grid.h"
#include "ui/layout.h"

/* Draws the border of a rectangle over what is there, joined to lines it touches. */
void frame_box(grid *g, rect r, style s);
/* A line across the inside of a rectangle at row y (of the grid), joined to its sides. */
void frame_divider(grid *g, rect r, int y, style s);

#endif
