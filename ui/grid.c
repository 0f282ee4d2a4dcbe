#include "ui/grid.h"

#include "base/mem.h"
#include "ui/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const cell blank = {.text = " ", .len = 1, .width = 1};

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static cell *at(const grid *g, int x, int y)
{
    return &g->cells[(size_t)y * (size_t)g->cols + (size_t)x];
}

const cell *grid_at(const grid *g, int x, int y)
{
    return at(g, x, y);
}

void grid_free(grid *g)
{
    if (g->cells) {
        size_t size = (size_t)g->cols * (size_t)g->rows * sizeof *g->cells;
        explicit_bzero(g->cells, size);
        free(g->cells);
    }
    *g = (grid){0};
}

void grid_resize(grid *g, int cols, int rows)
{
    cols = clamp(cols, 1, 1000);
    rows = clamp(rows, 1, 1000);
    if (cols != g->cols || rows != g->rows) {
        grid_free(g);
        g->cols = cols;
        g->rows = rows;
        g->cells = xcalloc((size_t)cols * (size_t)rows, sizeof *g->cells);
    }
    g->cursor_shown = false;
    area_clear(grid_area(g), STYLE_TEXT);
}

void grid_write_text(const grid *g, buf *out)
{
    for (int y = 0; y < g->rows; y++) {
        size_t end = out->len;
        for (int x = 0; x < g->cols; x++) {
            const cell *c = at(g, x, y);
            buf_append(out, c->text, c->len);
            if (c->len && !(c->len == 1 && c->text[0] == ' ')) end = out->len;
        }
        out->len = end;
        buf_putc(out, '\n');
    }
}

area grid_area(grid *g)
{
    return (area){.g = g, .w = g->cols, .h = g->rows};
}

area area_sub(area a, int x, int y, int w, int h)
{
    int left = clamp(x, 0, a.w), top = clamp(y, 0, a.h);
    int right = clamp(x + (w > 0 ? w : 0), left, a.w);
    int bottom = clamp(y + (h > 0 ? h : 0), top, a.h);
    return (area){a.g, a.x + left, a.y + top, right - left, bottom - top};
}

/* Writes one cell; the half of a wide cluster that is cut loose becomes a space. */
static void set_cell(grid *g, int x, int y, const cell *c)
{
    cell *old = at(g, x, y);
    if (old->len == 0 && x > 0) {
        cell *left = at(g, x - 1, y);
        uint8_t s = left->style;
        *left = blank;
        left->style = s;
    }
    if (old->width == 2 && x + 1 < g->cols) {
        cell *right = at(g, x + 1, y);
        uint8_t s = right->style;
        *right = blank;
        right->style = s;
    }
    *old = *c;
}

void area_clear(area a, style s)
{
    cell c = blank;
    c.style = (uint8_t)s;
    for (int y = 0; y < a.h; y++)
        for (int x = 0; x < a.w; x++)
            set_cell(a.g, a.x + x, a.y + y, &c);
}

/* The leading code points of a cluster that a cell has room for. */
static size_t cell_fit(const char *text, size_t len)
{
    if (len <= CELL_TEXT) return len;
    size_t n = CELL_TEXT;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

static void put_cluster(area a, int x, int y, style s, const char *text, const text_cluster *tc)
{
    cell c = {.width = (uint8_t)tc->width, .style = (uint8_t)s, .uncertain = tc->uncertain};
    c.len = (uint8_t)cell_fit(text, tc->len);
    memcpy(c.text, text, c.len);
    if (tc->width == 2) {
        cell half = {.style = (uint8_t)s};
        set_cell(a.g, a.x + x + 1, a.y + y, &blank);
        set_cell(a.g, a.x + x, a.y + y, &c);
        *at(a.g, a.x + x + 1, a.y + y) = half;
    } else {
        set_cell(a.g, a.x + x, a.y + y, &c);
    }
}

int area_text(area a, int x, int y, style s, const char *text, size_t len)
{
    static const text_cluster space = {.len = 1, .width = 1};
    if (y < 0 || y >= a.h) return 0;
    int col = x;
    for (size_t pos = 0; pos < len && col < a.w;) {
        text_cluster c = text_next(text + pos, len - pos);
        if (text[pos] == '\t') {
            for (int n = TEXT_TAB - (col - x) % TEXT_TAB; n > 0 && col < a.w; n--, col++)
                if (col >= 0) put_cluster(a, col, y, s, " ", &space);
        } else if (c.width > 0) {
            if (col + c.width > a.w) break;
            if (col >= 0) put_cluster(a, col, y, s, text + pos, &c);
            col += c.width;
        }
        pos += c.len;
    }
    return col - x;
}

int area_put(area a, int x, int y, style s, const char *text)
{
    return area_text(a, x, y, s, text, strlen(text));
}

int area_printf(area a, int x, int y, style s, const char *fmt, ...)
{
    buf text = {0};
    va_list args;
    va_start(args, fmt);
    buf_vprintf(&text, fmt, args);
    va_end(args);
    int used = area_text(a, x, y, s, buf_str(&text), text.len);
    buf_free(&text);
    return used;
}

int area_paragraph(area a, int y, style s, const char *text)
{
    text_lines lines = {0};
    text_wrap(&lines, text, strlen(text), a.w);
    for (size_t i = 0; i < lines.len; i++)
        area_text(a, 0, y + (int)i, s, text + lines.lines[i].start, lines.lines[i].len);
    int rows = (int)lines.len;
    text_lines_free(&lines);
    return rows;
}

void area_put_right(area a, int y, style s, const char *text)
{
    area_put(a, a.w - text_width_z(text), y, s, text);
}

void area_hline(area a, int x, int y, int n, style s, const char *symbol)
{
    for (int i = 0; i < n && x + i < a.w; i++)
        area_put(area_sub(a, 0, 0, a.w, a.h), x + i, y, s, symbol);
}

void area_vline(area a, int x, int y, int n, style s, const char *symbol)
{
    for (int i = 0; i < n; i++)
        area_put(a, x, y + i, s, symbol);
}

void area_box(area a, style s, const char *title, style title_style)
{
    if (a.w < 2 || a.h < 2) return;
    area_hline(a, 1, 0, a.w - 2, s, "─");
    area_hline(a, 1, a.h - 1, a.w - 2, s, "─");
    area_vline(a, 0, 1, a.h - 2, s, "│");
    area_vline(a, a.w - 1, 1, a.h - 2, s, "│");
    area_put(a, 0, 0, s, "┌");
    area_put(a, a.w - 1, 0, s, "┐");
    area_put(a, 0, a.h - 1, s, "└");
    area_put(a, a.w - 1, a.h - 1, s, "┘");
    if (!title || a.w < 7) return;
    buf text = {0};
    text_ellipsis(title, strlen(title), a.w - 6, &text);
    area_printf(a, 1, 0, title_style, " %s ", buf_str(&text));
    buf_free(&text);
}

void area_cursor(area a, int x, int y)
{
    if (a.w < 1 || a.h < 1) return;
    a.g->cursor_x = a.x + clamp(x, 0, a.w - 1);
    a.g->cursor_y = a.y + clamp(y, 0, a.h - 1);
    a.g->cursor_shown = true;
}
