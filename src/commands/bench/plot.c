#include "commands/bench/plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* --- scales ----------------------------------------------------------------------------------- */

/* Where x is between the first and the last, 0 to 1, by its logarithm. */
static double x_place(const bench_plot *p, int i)
{
    double first = log(p->x[0]), last = log(p->x[p->n_points - 1]);
    return last > first ? (log(p->x[i]) - first) / (last - first) : 0.5;
}

/* The top of the scale: 1, 2 or 5 times a power of ten, not below any value. */
static double y_top(const bench_plot *p)
{
    double most = 0;
    for (int c = 0; c < p->n_curves; c++)
        for (int i = 0; i < p->n_points; i++)
            if (isfinite(p->curves[c].y[i])) most = fmax(most, p->curves[c].y[i]);
    if (most <= 0) return 1;
    double unit = pow(10, floor(log10(most)));
    static const double steps[] = {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (most <= unit * steps[i] * (1 + 1e-12)) return unit * steps[i];
    return unit * 10;
}

/* --- SVG -------------------------------------------------------------------------------------- */

enum { LEFT = 70, RIGHT = 620, TOP = 50, BOTTOM = 350, WIDTH = 720, HEIGHT = 410, GRID = 4 };

static void put_escaped(buf *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            buf_puts(out, "&amp;");
            break;
        case '<':
            buf_puts(out, "&lt;");
            break;
        case '>':
            buf_puts(out, "&gt;");
            break;
        default:
            buf_putc(out, *text);
        }
}

static void put_label(buf *out, double x, double y, const char *anchor, const char *text)
{
    buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_escaped(out, text);
    buf_puts(out, "</text>\n");
}

static void put_number(buf *out, double x, double y, const char *anchor, double number)
{
    buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%g</text>\n", x, y, anchor,
               number);
}

static double svg_x(const bench_plot *p, int i)
{
    return LEFT + x_place(p, i) * (RIGHT - LEFT);
}

static double svg_y(double y, double top)
{
    return BOTTOM - y / top * (BOTTOM - TOP);
}

static void put_axes(const bench_plot *p, double top, buf *out)
{
    for (int i = 0; i <= GRID; i++) {
        double y = svg_y(top * i / GRID, top);
        buf_printf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#ccc\" fill=\"none\"/>\n", LEFT, y,
                   RIGHT);
        put_number(out, LEFT - 8, y + 4, "end", top * i / GRID);
    }
    for (int i = 0; i < p->n_points; i++)
        put_number(out, svg_x(p, i), BOTTOM + 20, "middle", p->x[i]);
    buf_puts(out, "<g font-weight=\"bold\">\n");
    put_label(out, LEFT, 25, "start", p->title);
    buf_puts(out, "</g>\n");
    put_label(out, (LEFT + RIGHT) / 2.0, HEIGHT - 15, "middle", p->x_title);
    put_label(out, LEFT, TOP - 8, "start", p->y_title);
}

/* Labels at the curves' ends, moved apart where curves meet. */
static void put_names(const bench_plot *p, double top, const char *const *colours, buf *out)
{
    double places[PLOT_MAX_CURVES];
    bool done[PLOT_MAX_CURVES] = {false};
    double lowest = -1;
    for (int c = 0; c < p->n_curves; c++) {
        double end = 0;
        for (int i = 0; i < p->n_points; i++)
            if (isfinite(p->curves[c].y[i])) end = p->curves[c].y[i];
        places[c] = svg_y(end, top);
    }
    for (int n = 0; n < p->n_curves; n++) {
        int next = -1;
        for (int c = 0; c < p->n_curves; c++)
            if (!done[c] && (next < 0 || places[c] < places[next])) next = c;
        done[next] = true;
        double y = fmax(places[next], lowest + 16);
        lowest = y;
        buf_printf(out, "<g fill=\"%s\">\n", colours[next]);
        put_label(out, RIGHT + 8, y + 4, "start", p->curves[next].name);
        buf_puts(out, "</g>\n");
    }
}

void plot_svg(const bench_plot *p, buf *out)
{
    static const char *const colours[PLOT_MAX_CURVES] = {
        "#444444", "#0072b2", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};
    double top = y_top(p);
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
               "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
               WIDTH, HEIGHT);
    put_axes(p, top, out);
    for (int c = 0; c < p->n_curves; c++) {
        bool drawing = false;
        buf_puts(out, "<path d=\"");
        for (int i = 0; i < p->n_points; i++) {
            double y = p->curves[c].y[i];
            if (isfinite(y))
                buf_printf(out, "%c%.1f %.1f", drawing ? 'L' : 'M', svg_x(p, i), svg_y(y, top));
            drawing = isfinite(y);
        }
        buf_printf(out, "\" stroke=\"%s\" stroke-width=\"2.5\" fill=\"none\"/>\n", colours[c]);
        for (int i = 0; i < p->n_points; i++)
            if (isfinite(p->curves[c].y[i]))
                buf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
                           svg_x(p, i), svg_y(p->curves[c].y[i], top), colours[c]);
    }
    put_names(p, top, colours, out);
    buf_puts(out, "</svg>\n");
}

/* --- text ------------------------------------------------------------------------------------- */

enum { COLUMNS = 61, ROWS = 16, MARGIN = 8 };

static char letter_of(int curve)
{
    return (char)('a' + curve);
}

static int text_column(const bench_plot *p, int i)
{
    return (int)lround(x_place(p, i) * (COLUMNS - 1));
}

/* One line of the grid; two curves in one place: the later one's letter, and a '*' for more. */
static void put_row(const bench_plot *p, double top, int row, buf *out)
{
    char line[COLUMNS + 1];
    memset(line, row == 0 ? '-' : ' ', COLUMNS);
    line[COLUMNS] = '\0';
    for (int c = 0; c < p->n_curves; c++)
        for (int i = 0; i < p->n_points; i++) {
            double y = p->curves[c].y[i];
            if (!isfinite(y) || (int)lround(y / top * ROWS) != row) continue;
            char *at = &line[text_column(p, i)];
            *at = *at == ' ' || *at == '-' ? letter_of(c) : '*';
        }
    for (int end = COLUMNS; end > 0 && line[end - 1] == ' '; end--)
        line[end - 1] = '\0';
    if (row % (ROWS / GRID) == 0)
        buf_printf(out, "%*.4g |%s\n", MARGIN, top * row / ROWS, line);
    else
        buf_printf(out, "%*s |%s\n", MARGIN, "", line);
}

static void put_x_numbers(const bench_plot *p, buf *out)
{
    char line[MARGIN + COLUMNS + 20];
    memset(line, ' ', sizeof line);
    for (int i = 0; i < p->n_points; i++) {
        char number[16];
        int n = snprintf(number, sizeof number, "%g", p->x[i]);
        memcpy(line + MARGIN + 2 + text_column(p, i) - (i > 0 ? n / 2 : 0), number, (size_t)n);
    }
    size_t end = sizeof line;
    while (end > 0 && line[end - 1] == ' ')
        end--;
    buf_append(out, line, end);
    buf_putc(out, '\n');
}

void plot_text(const bench_plot *p, buf *out)
{
    double top = y_top(p);
    buf_printf(out, "%s\n%*s  (%s)\n", p->title, MARGIN, "", p->y_title);
    for (int row = ROWS; row >= 0; row--)
        put_row(p, top, row, out);
    put_x_numbers(p, out);
    buf_printf(out, "%*s  %s:", MARGIN, "", p->x_title);
    for (int c = 0; c < p->n_curves; c++)
        buf_printf(out, " %c %s", letter_of(c), p->curves[c].name);
    buf_puts(out, "; * several\n");
}
