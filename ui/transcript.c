#include "ui/transcript.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void entry_free(transcript_entry *e)
{
    if (e->text.data) explicit_bzero(e->text.data, e->text.cap);
    buf_free(&e->text);
    text_lines_free(&e->lines);
}

void transcript_free(transcript *t)
{
    for (size_t i = 0; i < t->len; i++)
        entry_free(&t->entries[i]);
    free(t->entries);
    *t = (transcript){0};
}

size_t transcript_add(transcript *t, entry_kind kind, const char *time, const char *text,
                      size_t len)
{
    if (t->len == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 16;
        t->entries = xrealloc_array(t->entries, t->cap, sizeof *t->entries);
    }
    size_t index = t->len++;
    transcript_entry *e = &t->entries[index];
    *e = (transcript_entry){.kind = kind};
    if (time) strncpy(e->time, time, sizeof e->time - 1);
    transcript_append(t, index, text, len);
    if (kind != ENTRY_ANSWER) transcript_finish(t, index);
    return index;
}

/* Models like to begin with a space or an empty line. */
static void drop_leading_space(buf *text)
{
    size_t n = strspn(buf_str(text), " \n");
    if (n == 0) return;
    memmove(text->data, text->data + n, text->len - n + 1);
    text->len -= n;
}

void transcript_append(transcript *t, size_t entry, const char *text, size_t len)
{
    transcript_entry *e = &t->entries[entry];
    size_t before = e->text.len;
    text_clean(&e->cleaner, text, len, &e->text);
    if (e->kind == ENTRY_ANSWER && before == 0) drop_leading_space(&e->text);
    if (t->reading && (e->text.len > before || entry + 1 == t->len)) t->new_text = true;
}

void transcript_finish(transcript *t, size_t entry)
{
    transcript_entry *e = &t->entries[entry];
    text_clean_finish(&e->cleaner, &e->text);
    /* Trailing white space would be empty rows. Lines that showed it are made anew. */
    size_t len = e->text.len;
    while (len > 0 && strchr(" \t\n", e->text.data[len - 1]))
        len--;
    if (len < e->text.len) {
        e->text.len = len;
        e->text.data[len] = '\0';
        text_lines_reset(&e->lines);
    }
}

void transcript_insert_notice(transcript *t, size_t before, const char *text)
{
    size_t last = transcript_add(t, ENTRY_NOTICE, NULL, text, strlen(text));
    transcript_entry notice = t->entries[last];
    memmove(&t->entries[before + 1], &t->entries[before], (last - before) * sizeof notice);
    t->entries[before] = notice;
    if (t->reading && t->top >= before) t->top++;
}

void transcript_remove_last(transcript *t, size_t n)
{
    for (; n > 0 && t->len > 0; n--)
        entry_free(&t->entries[--t->len]);
    if (t->top >= t->len) transcript_to_end(t);
}

/* --- rows --------------------------------------------------------------------------------------
 */

static int header_rows(const transcript_entry *e)
{
    return e->kind == ENTRY_YOU ? 1 : 0;
}

/* Rows of an entry at the current width, with the empty row below it. */
static int entry_rows(transcript *t, size_t index)
{
    transcript_entry *e = &t->entries[index];
    bool rewrapped = e->lines.width != t->width;
    text_wrap(&e->lines, buf_str(&e->text), e->text.len, t->width);
    int header = header_rows(e);
    if (rewrapped && t->reading && index == t->top && t->top_row >= header) {
        size_t line = 0;
        while (line + 1 < e->lines.len && e->lines.lines[line + 1].start <= t->top_byte)
            line++;
        t->top_row = header + (int)line;
    }
    return header + (int)e->lines.len + 1;
}

/* Notes which text the first visible row shows. */
static void remember_top(transcript *t)
{
    const transcript_entry *e = &t->entries[t->top];
    int line = t->top_row - header_rows(e);
    bool known = line >= 0 && (size_t)line < e->lines.len;
    t->top_byte = known ? e->lines.lines[line].start : line < 0 ? 0 : e->text.len;
}

/* The position `rows` above the end; the start if there are not that many. */
static void position_from_end(transcript *t, int rows, size_t *entry, int *row)
{
    *entry = 0;
    *row = 0;
    rows++; /* the empty row below the last entry is not shown */
    for (size_t i = t->len; i-- > 0;) {
        int n = entry_rows(t, i);
        if (n >= rows) {
            *entry = i;
            *row = n - rows;
            return;
        }
        rows -= n;
    }
}

static bool is_before(size_t entry_a, int row_a, size_t entry_b, int row_b)
{
    return entry_a < entry_b || (entry_a == entry_b && row_a < row_b);
}

void transcript_to_end(transcript *t)
{
    t->reading = t->new_text = false;
}

void transcript_to_start(transcript *t)
{
    transcript_scroll(t, -1); /* leaves the following mode if there is something above */
    if (!t->reading) return;
    t->top = 0;
    t->top_row = 0;
    entry_rows(t, 0);
    remember_top(t);
}

void transcript_to_entry(transcript *t, size_t entry)
{
    if (entry >= t->len) return;
    t->reading = true;
    t->top = entry;
    t->top_row = 0;
    t->top_byte = 0;
}

void transcript_scroll(transcript *t, int rows)
{
    if (t->len == 0 || t->width < 1) return;
    bool stays = t->reading && rows == 0; /* then the text at the top is the known one */
    size_t last_entry;
    int last_row;
    position_from_end(t, t->height, &last_entry, &last_row);
    if (!t->reading) {
        t->top = last_entry;
        t->top_row = last_row;
    } else {
        entry_rows(t, t->top);
    }
    for (; rows < 0; rows++) {
        if (t->top_row > 0)
            t->top_row--;
        else if (t->top > 0)
            t->top_row = entry_rows(t, --t->top) - 1;
        else
            break;
    }
    for (; rows > 0 && is_before(t->top, t->top_row, last_entry, last_row); rows--) {
        if (++t->top_row >= entry_rows(t, t->top)) {
            t->top++;
            t->top_row = 0;
        }
    }
    t->reading = is_before(t->top, t->top_row, last_entry, last_row);
    if (!t->reading)
        t->new_text = false;
    else if (!stays)
        remember_top(t);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static style text_style(entry_kind kind)
{
    static const style styles[] = {
        [ENTRY_YOU] = STYLE_TEXT,
        [ENTRY_ANSWER] = STYLE_TEXT,
        [ENTRY_NOTICE] = STYLE_NOTICE,
        [ENTRY_ERROR] = STYLE_ERROR,
    };
    return styles[kind];
}

static void draw_row(const transcript *t, const transcript_entry *e, int row, area a, int y,
                     const char *busy)
{
    int line = row - header_rows(e);
    if (line < 0) {
        area_put(a, 0, y, STYLE_SPEAKER, "You");
        area_put_right(a, y, STYLE_DIM, e->time);
        return;
    }
    if ((size_t)line >= e->lines.len) return;
    const text_line *l = &e->lines.lines[line];
    area_text(a, 0, y, text_style(e->kind), buf_str(&e->text) + l->start, l->len);
    bool last = (size_t)line + 1 == e->lines.len && e == &t->entries[t->len - 1];
    if (last && *busy) {
        int column = l->width + (l->width > 0 ? 1 : 0);
        area_put(a, column < a.w ? column : a.w - 1, y, STYLE_DIM, busy);
    }
}

void transcript_draw(transcript *t, area a, const char *busy)
{
    area_clear(a, STYLE_TEXT);
    t->width = a.w > 1 ? a.w - 1 : 1; /* the last column is the busy mark's */
    t->height = a.h;
    if (t->len == 0 || a.w < 1 || a.h < 1) return;
    size_t entry;
    int row;
    if (t->reading) {
        entry_rows(t, t->top);
        transcript_scroll(t, 0); /* after a resize the end may be in sight */
    }
    if (t->reading) {
        entry = t->top;
        row = t->top_row;
    } else {
        position_from_end(t, a.h, &entry, &row);
    }
    int n = entry_rows(t, entry);
    for (int y = 0; y < a.h; y++, row++) {
        while (row >= n) {
            if (++entry >= t->len) return;
            row = 0;
            n = entry_rows(t, entry);
        }
        draw_row(t, &t->entries[entry], row, a, y, busy);
    }
}
