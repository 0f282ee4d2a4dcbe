#include "ui/plot.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCALE_WIDTH 7 /* of the numbers beside a curve */

plot_kind plot_kind_of_terminal(void)
{
    const char *term = getenv("TERM");
    return term && strncmp(term, "linux", 5) == 0 ? PLOT_BLOCKS : PLOT_BRAILLE;
}

/* The mean of the finite values that fall into column i of `columns`; NAN if there is none. */
static float column_value(const float *values, size_t n, int i, int columns)
{
    size_t from = (size_t)i * n / (size_t)columns, to = (size_t)(i + 1) * n / (size_t)columns;
    float sum = 0;
    size_t count = 0;
    for (size_t k = from; k < (to > from ? to : from + 1) && k < n; k++) {
        if (!isfinite(values[k])) continue;
        sum += values[k];
        count++;
    }
    return count ? sum / (float)count : NAN;
}

/* How many of `dots` a value fills: at least one, so that a curve at its lowest is seen. */
static int filled(float value, float low, float high, int dots)
{
    if (!isfinite(value)) return 0;
    float share = high > low ? (value - low) / (high - low) : 0;
    int n = (int)lroundf(share * (float)dots);
    return n < 1 ? 1 : n > dots ? dots : n;
}

/* Dots filled in the cell that is `above` cells over the lowest one, of `dots` a cell. */
static int in_cell(int fill, int above, int dots)
{
    int n = fill - above * dots;
    return n < 0 ? 0 : n > dots ? dots : n;
}

static void put_braille(area a, int x, int y, style s, int left, int right)
{
    /* Bits of the dots from below, and what the cell's code point begins with. */
    static const unsigned char bits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};
    uint32_t cp = 0x2800;
    char text[4];
    for (int i = 0; i < left; i++)
        cp |= bits[0][i];
    for (int i = 0; i < right; i++)
        cp |= bits[1][i];
    if (cp != 0x2800) area_text(a, x, y, s, text, utf8_encode(cp, text));
}

void plot_curve(area a, style s, plot_kind kind, const float *values, size_t n, float low,
                float high)
{
    static const char *const blocks[] = {"", "▄", "█"};
    if (n == 0) return;
    int wide = kind == PLOT_BRAILLE ? 2 : 1, tall = kind == PLOT_BRAILLE ? 4 : 2;
    for (int x = 0; x < a.w; x++) {
        int fill[2] = {0};
        for (int i = 0; i < wide; i++)
            fill[i] =
                filled(column_value(values, n, x * wide + i, a.w * wide), low, high, a.h * tall);
        for (int y = 0; y < a.h; y++) {
            int above = a.h - 1 - y;
            if (kind == PLOT_BRAILLE)
                put_braille(a, x, y, s, in_cell(fill[0], above, tall),
                            in_cell(fill[1], above, tall));
            else
                area_put(a, x, y, s, blocks[in_cell(fill[0], above, tall)]);
        }
    }
}

void plot_with_scale(area a, const float *values, size_t n)
{
    float low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    if (!(low <= high)) return;
    int scale = a.h > 1 ? SCALE_WIDTH : 0;
    if (scale) {
        area_printf(a, 0, 0, STYLE_DIM, "%6.2f", (double)high);
        area_printf(a, 0, a.h - 1, STYLE_DIM, "%6.2f", (double)low);
    }
    plot_curve(area_sub(a, scale, 0, a.w - scale, a.h), STYLE_GOOD, plot_kind_of_terminal(), values,
               n, low, high);
}

void plot_bar(area a, style s, double share)
{
    int full = (int)(share * a.w);
    if (!(share > 0)) full = 0;
    if (full > a.w) full = a.w;
    area_hline(a, 0, 0, full, s, "█");
    area_hline(a, full, 0, a.w - full, STYLE_DIM, "░");
}
