/* plot: a curve and a bar made of characters. */
#ifndef PF_UI_PLOT_H
#define PF_UI_PLOT_H

#include "ui/grid.h"

/* BRAILLE: eight dots a cell. BLOCKS: half blocks, for terminals whose font has no braille. */
typedef enum { PLOT_BRAILLE, PLOT_BLOCKS } plot_kind;
/* Blocks on the console of Linux (TERM=linux), else braille. */
plot_kind plot_kind_of_terminal(void);

/* values[0..n), the oldest left, filled from below over the whole area; low is the lowest dot's
 * value, high the highest one's. More values than dots are averaged, fewer are stretched; values
 * that are not finite leave a gap. */
void plot_curve(area a, style s, plot_kind kind, const float *values, size_t n, float low,
                float high);

/* A curve from its lowest value to its highest, with both written to its left where it has two
 * rows or more. */
void plot_with_scale(area a, const float *values, size_t n);

/* The first row of a, filled to a share (0..1) of its width. */
void plot_bar(area a, style s, double share);

#endif
