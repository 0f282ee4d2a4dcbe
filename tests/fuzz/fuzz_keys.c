/* Bytes of a terminal. What must hold: nothing crashes; typed text is one whole character; what a
 * paste puts into a draft has no control character; the draft's clusters add up to its text; no
 * control byte is left for the screen; wrapped lines fit and lose nothing but blanks. */
#include "base/err.h"
#include "base/utf8.h"
#include "ui/editor.h"
#include "ui/keys.h"
#include "ui/text.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    editor draft;
    buf shown; /* everything that was typed, made harmless */
    text_cleaner cleaner;
} state;

static void check_draft(const editor *e)
{
    size_t len, clusters = 0;
    const char *text = editor_text(e, &len);
    PF_ASSERT(utf8_valid(text, len));
    PF_ASSERT(e->cursor <= e->count);
    for (size_t pos = 0; pos < len; clusters++) {
        PF_ASSERT(e->starts[clusters] == pos);
        unsigned char c = (unsigned char)text[pos];
        PF_ASSERT(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7F));
        pos += text_next(text + pos, len - pos).len;
    }
    PF_ASSERT(clusters == e->count);
}

static void take(void *ctx, const input_event *ev)
{
    state *s = ctx;
    switch (ev->kind) {
    case INPUT_TEXT:
        PF_ASSERT(ev->len >= 1 && ev->len <= 4 && utf8_valid(ev->text, ev->len));
        editor_insert(&s->draft, ev->text, ev->len, true);
        break;
    case INPUT_PASTE:
        editor_insert(&s->draft, ev->text, ev->len, false);
        text_clean(&s->cleaner, ev->text, ev->len, &s->shown);
        break;
    case INPUT_KEY: {
        buf name = {0};
        key_code again;
        key_name(ev->key, &name);
        PF_ASSERT(name.len > 0);
        if (key_parse(buf_str(&name), &again))
            editor_do(&s->draft, action_of(again, CONTEXT_EDITOR));
        buf_free(&name);
        break;
    }
    default:
        PF_ASSERT(ev->x >= 0 && ev->y >= 0);
    }
}

/* Text that is ready for a screen, at a width. */
static void check_shown(const buf *text, int width)
{
    text_lines lines = {0};
    text_wrap(&lines, buf_str(text), text->len, width);
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        PF_ASSERT(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7F));
    }
    PF_ASSERT(utf8_valid(buf_str(text), text->len));
    size_t at = 0;
    for (size_t i = 0; i < lines.len; i++) {
        const text_line *l = &lines.lines[i];
        PF_ASSERT(l->start >= at && l->start + l->len <= text->len);
        PF_ASSERT(l->width <= width || width < 2 || text_count(text->data + l->start, l->len) == 1);
        at = l->start + l->len;
    }
    text_lines_free(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    /* The first two bytes choose how the input is cut and the width. */
    size_t piece = 1 + data[0] % 64;
    int width = 1 + data[1] % 80;
    const char *bytes = (const char *)data + 2;
    key_decoder keys = {0};
    state s = {0};
    int64_t now = 0;
    size -= 2;
    editor_init(&s.draft);
    for (size_t pos = 0; pos < size; pos += piece) {
        size_t n = size - pos < piece ? size - pos : piece;
        keys_feed(&keys, bytes + pos, n, now, take, &s);
        now += data[0] % 3 ? 1 : 60; /* slow ones let lone ESC keys through */
    }
    keys_tick(&keys, now + KEYS_UTF8_MS, take, &s);
    PF_ASSERT(keys_timeout(&keys, now) == -1);
    check_draft(&s.draft);
    text_clean(&s.cleaner, bytes, size, &s.shown);
    text_clean_finish(&s.cleaner, &s.shown);
    check_shown(&s.shown, width);
    grid g = {0};
    grid_resize(&g, width, 4);
    editor_draw(&s.draft, grid_area(&g), STYLE_TEXT, true);
    PF_ASSERT(g.cursor_x < width && g.cursor_y < 4);
    grid_free(&g);
    editor_free(&s.draft);
    buf_free(&s.shown);
    keys_free(&keys);
    return 0;
}
