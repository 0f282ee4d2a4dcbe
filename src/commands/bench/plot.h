/* A plot of a few curves over counts (logarithmic), as SVG and as text. Pure. */
#ifndef PF_COMMANDS_BENCH_PLOT_H
#define PF_COMMANDS_BENCH_PLOT_H

#include "base/buf.h"

#define PLOT_MAX_CURVES 8
#define PLOT_MAX_POINTS 16

typedef struct {
    const char *name;
    double y[PLOT_MAX_POINTS]; /* at the plot's x; NAN: none */
} plot_curve;

typedef struct {
    const char *title, *x_title, *y_title;
    double x[PLOT_MAX_POINTS]; /* > 0, ascending */
    int n_points;
    plot_curve curves[PLOT_MAX_CURVES];
    int n_curves;
} bench_plot;

/* Appends a document of its own; texts are escaped. */
void plot_svg(const bench_plot *p, buf *out);
/* Appends lines of at most 78 columns in ASCII: curves by letters, their names below. */
void plot_text(const bench_plot *p, buf *out);

#endif
