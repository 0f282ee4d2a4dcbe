#include "ui/frame.h"

#include <string.h>

enum { UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8 };

/* Characters by the directions in which their lines go. */
static const char *const lines[16] = {
    [UP | DOWN] = "│",
    [LEFT | RIGHT] = "─",
    [DOWN | RIGHT] = "┌",
    [DOWN | LEFT] = "┐",
    [UP | RIGHT] = "└",
    [UP | LEFT] = "┘",
    [UP | DOWN | RIGHT] = "├",
    [UP | DOWN | LEFT] = "┤",
    [DOWN | LEFT | RIGHT] = "┬",
    [UP | LEFT | RIGHT] = "┴",
    [UP | DOWN | LEFT | RIGHT] = "┼",
};

static int directions_at(const grid *g, int x, int y)
{
    const cell *c = grid_at(g, x, y);
    if (c->style != STYLE_BORDER && c->style != STYLE_BORDER_ACTIVE) return 0;
    for (int i = 1; i < 16; i++)
        if (lines[i] && strlen(lines[i]) == c->len && memcmp(lines[i], c->text, c->len) == 0)
            return i;
    return 0;
}

static void join(grid *g, int x, int y, int directions, style s)
{
    if (x < 0 || y < 0 || x >= g->cols || y >= g->rows) return;
    directions |= directions_at(g, x, y);
    const char *symbol = lines[directions];
    area_put(grid_area(g), x, y, s, symbol ? symbol : (directions & (UP | DOWN)) ? "│" : "─");
}

static void horizontal(grid *g, int x, int y, int w, style s)
{
    join(g, x, y, RIGHT, s);
    for (int i = 1; i < w - 1; i++)
        join(g, x + i, y, LEFT | RIGHT, s);
    join(g, x + w - 1, y, LEFT, s);
}

void frame_box(grid *g, rect r, style s)
{
    if (r.w < 2 || r.h < 2) return;
    /* The corners come first: each gets both its directions. */
    join(g, r.x, r.y, DOWN | RIGHT, s);
    join(g, r.x + r.w - 1, r.y, DOWN | LEFT, s);
    join(g, r.x, r.y + r.h - 1, UP | RIGHT, s);
    join(g, r.x + r.w - 1, r.y + r.h - 1, UP | LEFT, s);
    for (int i = 1; i < r.w - 1; i++) {
        join(g, r.x + i, r.y, LEFT | RIGHT, s);
        join(g, r.x + i, r.y + r.h - 1, LEFT | RIGHT, s);
    }
    for (int i = 1; i < r.h - 1; i++) {
        join(g, r.x, r.y + i, UP | DOWN, s);
        join(g, r.x + r.w - 1, r.y + i, UP | DOWN, s);
    }
}

void frame_divider(grid *g, rect r, int y, style s)
{
    if (r.w < 2 || y <= r.y || y >= r.y + r.h - 1) return;
    horizontal(g, r.x, y, r.w, s);
}
