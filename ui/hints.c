#include "ui/hints.h"

#include "ui/text.h"

#define GAP 3 /* columns between two hints */

/* "Enter use", "Up/Down move"; nothing for an action without a key. */
static void put_hint(const hint *h, buf *out)
{
    const char *key = hint_key(h->key), *also = h->also ? hint_key(h->also) : "";
    if (*key) buf_printf(out, "%s%s%s %s", key, *also ? "/" : "", also, h->words);
}

/* Draws from the row y on (a NULL: nothing); returns the rows that are used. */
static int flow(const area *a, int y, int width, int most, const hint *hints, size_t n)
{
    int x = 0, rows = 0;
    bool room = true;
    for (size_t i = 0; i < n && room; i++) {
        buf text = {0};
        put_hint(&hints[i], &text);
        int wide = text_width(buf_str(&text), text.len);
        bool wraps = rows == 0 || x + GAP + wide > width;
        room = !wraps || rows < most;
        if (wide && room) {
            rows += wraps;
            x = wraps ? 0 : x + GAP;
            if (a) area_put(*a, x, y + rows - 1, STYLE_DIM, buf_str(&text));
            x += wide;
        }
        buf_free(&text);
    }
    return rows;
}

int hints_draw(area a, int most, const hint *hints, size_t n)
{
    if (most < 1 || a.h < 1) return 0;
    if (most > a.h) most = a.h;
    int rows = flow(NULL, 0, a.w, most, hints, n);
    flow(&a, a.h - rows, a.w, most, hints, n);
    return rows;
}
