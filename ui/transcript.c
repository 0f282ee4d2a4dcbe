#include "ui/transcript.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void wipe(buf *b)
{
    if (b->data) explicit_bzero(b->data, b->cap);
    buf_free(b);
}

static void entry_free(transcript_entry *e)
{
    wipe(&e->raw);
    wipe(&e->text);
    free(e->note);
    free(e->details);
    text_lines_free(&e->lines);
    if (e->rendered) markdown_free(e->rendered);
    free(e->rendered);
}

void transcript_free(transcript *t)
{
    for (size_t i = 0; i < t->len; i++)
        entry_free(&t->entries[i]);
    free(t->entries);
    *t = (transcript){0};
}

void transcript_clear(transcript *t)
{
    transcript kept = {.as_written = t->as_written,
                       .details = t->details,
                       .annotate = t->annotate,
                       .annotate_ctx = t->annotate_ctx,
                       .width = t->width,
                       .height = t->height,
                       .laid_out = t->laid_out};
    transcript_free(t);
    *t = kept;
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

void transcript_append(transcript *t, size_t entry, const char *text, size_t len)
{
    PF_ASSERT(entry < t->len);
    transcript_entry *e = &t->entries[entry];
    buf_append(&e->raw, text, len);
    if (t->reading && (len > 0 || entry + 1 == t->len)) t->new_text = true;
}

void transcript_finish(transcript *t, size_t entry)
{
    PF_ASSERT(entry < t->len);
    t->entries[entry].whole = true;
}

static char *copy_or_null(const char *text)
{
    return text && *text ? xstrdup(text) : NULL;
}

void transcript_annotate(transcript *t, size_t entry, const char *note, const char *details)
{
    PF_ASSERT(entry < t->len);
    transcript_entry *e = &t->entries[entry];
    free(e->note);
    free(e->details);
    e->note = copy_or_null(note);
    e->details = copy_or_null(details);
}

void transcript_changed(transcript *t, size_t entry)
{
    PF_ASSERT(entry < t->len);
    t->entries[entry].annotated = false;
}

void transcript_insert_notice(transcript *t, size_t before, const char *text)
{
    size_t last = transcript_add(t, ENTRY_NOTICE, NULL, text, strlen(text));
    transcript_entry notice = t->entries[last];
    memmove(&t->entries[before + 1], &t->entries[before], (last - before) * sizeof notice);
    t->entries[before] = notice;
    if (t->reading && t->top >= before) t->top++;
    if (t->selecting && t->selected >= before) t->selected++;
}

/* --- layout ----------------------------------------------------------------------------------- */

/* Models like to begin with a space or an empty line. */
static void drop_leading_space(buf *text)
{
    size_t n = strspn(buf_str(text), " \n");
    if (n == 0) return;
    memmove(text->data, text->data + n, text->len - n + 1);
    text->len -= n;
}

/* Trailing white space would be empty rows. Lines that showed it are made anew. */
static void drop_trailing_space(transcript_entry *e)
{
    size_t len = e->text.len;
    while (len > 0 && strchr(" \t\n", e->text.data[len - 1]))
        len--;
    if (len == e->text.len) return;
    e->text.len = len;
    e->text.data[len] = '\0';
    text_lines_reset(&e->lines);
}

/* Makes what came in harmless. */
static void take_text(transcript_entry *e)
{
    bool came = e->raw.len > 0, first = e->text.len == 0;
    if (came) {
        text_clean(&e->cleaner, e->raw.data, e->raw.len, &e->text);
        explicit_bzero(e->raw.data, e->raw.len);
        buf_clear(&e->raw);
        if (e->kind == ENTRY_ANSWER && first) drop_leading_space(&e->text);
    }
    if (!e->whole) return;
    text_clean_finish(&e->cleaner, &e->text);
    drop_trailing_space(e);
    buf_free(&e->raw);
}

static bool is_rendered(const transcript *t, const transcript_entry *e)
{
    return e->kind == ENTRY_ANSWER && !t->as_written;
}

/* Brings the rows up to date. True when they were made anew, so that row numbers changed. */
static bool layout(transcript *t, transcript_entry *e)
{
    bool anew;
    take_text(e);
    if (is_rendered(t, e)) {
        if (!e->rendered) e->rendered = xcalloc(1, sizeof *e->rendered);
        markdown *m = e->rendered;
        anew = m->width != t->width || (m->split && e->whole && !m->finished);
        markdown_update(m, buf_str(&e->text), e->text.len, t->width, e->whole);
    } else {
        anew = e->lines.width != t->width || e->lines.len == 0;
        text_wrap(&e->lines, buf_str(&e->text), e->text.len, t->width);
    }
    t->laid_out += anew;
    return anew;
}

static int header_rows(const transcript_entry *e)
{
    return e->kind == ENTRY_YOU ? 1 : 0;
}

/* An empty answer has one row, where the mark of its beginning stands. */
static int body_rows(const transcript *t, const transcript_entry *e)
{
    if (!is_rendered(t, e)) return (int)e->lines.len;
    return e->rendered->sheet.n_rows ? (int)e->rendered->sheet.n_rows : 1;
}

static int row_width(const transcript *t, const transcript_entry *e, int row)
{
    if (!is_rendered(t, e)) return e->lines.lines[row].width;
    return e->rendered->sheet.n_rows ? e->rendered->sheet.rows[row].width : 0;
}

/* Where in the text a row begins. */
static size_t row_byte(const transcript *t, const transcript_entry *e, int row)
{
    if (!is_rendered(t, e)) return e->lines.lines[row].start;
    return e->rendered->sheet.n_rows ? e->rendered->sheet.rows[row].source : 0;
}

/* The row that shows a byte of the text. */
static int row_of_byte(const transcript *t, const transcript_entry *e, size_t byte)
{
    int low = 0, high = body_rows(t, e) - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (row_byte(t, e, middle) <= byte)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool shows_details(const transcript *t, const transcript_entry *e)
{
    return t->details && e->details;
}

static int below_rows(const transcript *t, const transcript_entry *e)
{
    return (e->note ? 1 : 0) + (shows_details(t, e) ? 1 : 0);
}

/* Rows of an entry at the current width, with the empty row below it. */
static int entry_rows(transcript *t, size_t index)
{
    transcript_entry *e = &t->entries[index];
    if (e->message && !e->annotated && t->annotate) {
        e->annotated = true;
        t->annotate(t->annotate_ctx, index);
    }
    bool anew = layout(t, e);
    int header = header_rows(e);
    if (anew && t->reading && index == t->top && t->top_row >= header)
        t->top_row = header + row_of_byte(t, e, t->top_byte);
    return header + body_rows(t, e) + below_rows(t, e) + 1;
}

/* Notes which text the first visible row shows. */
static void remember_top(transcript *t)
{
    const transcript_entry *e = &t->entries[t->top];
    int row = t->top_row - header_rows(e);
    if (row >= 0 && row < body_rows(t, e))
        t->top_byte = row_byte(t, e, row);
    else
        t->top_byte = row < 0 ? 0 : e->text.len;
}

/* --- scrolling -------------------------------------------------------------------------------- */

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

/* Stands at a row, or follows the end where the end is in sight. */
static void stand_at(transcript *t, size_t entry, int row)
{
    size_t last_entry;
    int last_row;
    position_from_end(t, t->height, &last_entry, &last_row);
    t->reading = is_before(entry, row, last_entry, last_row);
    if (!t->reading) {
        t->new_text = false;
        return;
    }
    t->top = entry;
    t->top_row = 0; /* not found again by its text while it is laid out */
    entry_rows(t, entry);
    t->top_row = row;
    remember_top(t);
}

void transcript_to_start(transcript *t)
{
    if (t->len && t->width > 0) stand_at(t, 0, 0);
}

/* The first visible row. */
static void find_top(transcript *t, size_t *entry, int *row)
{
    if (!t->reading) {
        position_from_end(t, t->height, entry, row);
        return;
    }
    entry_rows(t, t->top); /* may move top_row */
    *entry = t->top;
    *row = t->top_row;
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
    find_top(t, &t->top, &t->top_row);
    for (; rows < 0; rows++) {
        if (t->top_row > 0)
            t->top_row--;
        else if (t->top > 0)
            t->top_row = entry_rows(t, t->top - 1) - 1, t->top--;
        else
            break;
    }
    position_from_end(t, t->height, &last_entry, &last_row);
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

/* --- what is shown ---------------------------------------------------------------------------- */

void transcript_show_as_written(transcript *t, bool as_written)
{
    if (as_written == t->as_written) return;
    t->as_written = as_written;
    if (!t->reading || t->width < 1) return;
    transcript_entry *e = &t->entries[t->top];
    layout(t, e);
    if (t->top_row >= header_rows(e)) t->top_row = header_rows(e) + row_of_byte(t, e, t->top_byte);
}

void transcript_show_details(transcript *t, bool details)
{
    t->details = details;
    if (!t->reading || t->width < 1) return;
    int n = entry_rows(t, t->top);
    if (t->top_row >= n) t->top_row = n - 1;
}

void transcript_select(transcript *t, size_t entry)
{
    t->selecting = entry < t->len;
    if (!t->selecting) return;
    t->selected = entry;
    if (t->width < 1 || t->height < 1) return;
    size_t top;
    int row;
    find_top(t, &top, &row);
    if (is_before(entry, 0, top, row)) {
        stand_at(t, entry, 0);
        return;
    }
    int below = -row; /* rows from the top of the screen to the end of the entry */
    for (size_t i = top; i <= entry && below <= t->height * 2; i++)
        below += entry_rows(t, i);
    below--; /* the empty row need not be seen */
    if (below <= t->height) return;
    int rows = entry_rows(t, entry) - 1;
    if (rows >= t->height) {
        stand_at(t, entry, 0);
    } else { /* the position from which the entry's last row is the last one */
        int left = t->height - rows, at = 0;
        size_t i = entry;
        while (left > 0 && i > 0) {
            int n = entry_rows(t, --i);
            at = n > left ? n - left : 0;
            left -= n;
        }
        stand_at(t, i, at);
    }
}

size_t transcript_at(transcript *t, int y)
{
    size_t entry;
    int row;
    if (t->len == 0 || t->width < 1) return TRANSCRIPT_NONE;
    find_top(t, &entry, &row);
    for (y += row; entry < t->len; entry++) {
        int n = entry_rows(t, entry);
        if (y < n) return entry;
        y -= n;
    }
    return TRANSCRIPT_NONE;
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

static void draw_body(const transcript *t, const transcript_entry *e, int row, area a, int y)
{
    if (!is_rendered(t, e)) {
        const text_line *l = &e->lines.lines[row];
        area_text(a, 0, y, text_style(e->kind), buf_str(&e->text) + l->start, l->len);
    } else if (e->rendered->sheet.n_rows) {
        markdown_draw_row(e->rendered, (size_t)row, a, 0, y);
    }
}

static void draw_below(const transcript *t, const transcript_entry *e, int row, area a, int y)
{
    area line = area_sub(a, 0, 0, t->width, a.h);
    if (shows_details(t, e) && row-- == 0) {
        buf cut = {0};
        text_ellipsis(e->details, strlen(e->details), line.w, &cut);
        area_put(line, 0, y, STYLE_DIM, buf_str(&cut));
        buf_free(&cut);
    } else if (e->note && row == 0) {
        area_put_right(line, y, STYLE_DIM, e->note);
    }
}

static void draw_row(const transcript *t, size_t index, int row, area a, int y, const char *busy)
{
    const transcript_entry *e = &t->entries[index];
    int body = row - header_rows(e), n = body_rows(t, e), below = below_rows(t, e);
    bool marked = t->selecting && t->selected == index && body < n + below;
    if (marked) area_put(a, a.w - 1, y, STYLE_KEY, "▐");
    if (body < 0) {
        area_put(a, 0, y, STYLE_SPEAKER, "You");
        area_put_right(area_sub(a, 0, 0, a.w - marked, a.h), y, STYLE_DIM, e->time);
    } else if (body >= n) {
        draw_below(t, e, body - n, a, y);
    } else {
        draw_body(t, e, body, a, y);
        if (e->kind != ENTRY_ANSWER || e->whole || body + 1 < n || !*busy) return;
        int column = row_width(t, e, body);
        if (column > 0) column++;
        area_put(a, column < a.w ? column : a.w - 1, y, STYLE_DIM, busy);
    }
}

void transcript_draw(transcript *t, area a, const char *busy)
{
    area_clear(a, STYLE_TEXT);
    t->width = a.w > 1 ? a.w - 1 : 1; /* the last column is for marks */
    t->height = a.h;
    if (t->len == 0 || a.w < 1 || a.h < 1) return;
    size_t entry;
    int row;
    if (t->reading) transcript_scroll(t, 0); /* after a resize the end may be in sight */
    find_top(t, &entry, &row);
    int n = entry_rows(t, entry);
    for (int y = 0; y < a.h; y++, row++) {
        while (row >= n) {
            if (++entry >= t->len) return;
            row = 0;
            n = entry_rows(t, entry);
        }
        draw_row(t, entry, row, a, y, busy);
    }
}
