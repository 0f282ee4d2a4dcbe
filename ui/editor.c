#include "ui/editor.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_WIDTH 80 /* for up and down before the first drawing */

static void wipe(char *text, size_t len)
{
    if (text) explicit_bzero(text, len);
    free(text);
}

static void drop_states(editor_state *states, int *n)
{
    while (*n > 0) {
        --*n;
        wipe(states[*n].text, states[*n].len);
    }
}

/* Finds the clusters of the text anew. */
static void segment(editor *e)
{
    e->count = 0;
    for (size_t pos = 0;;) {
        if (e->count + 1 > e->cap) {
            e->cap = e->cap ? e->cap * 2 : 64;
            e->starts = xrealloc_array(e->starts, e->cap, sizeof *e->starts);
        }
        e->starts[e->count] = (uint32_t)pos;
        if (pos >= e->text.len) break;
        pos += text_next(e->text.data + pos, e->text.len - pos).len;
        e->count++;
    }
    text_lines_reset(&e->lines);
}

/* The cluster that begins at or before a byte offset. */
static size_t cluster_at(const editor *e, size_t byte)
{
    size_t low = 0, high = e->count;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (e->starts[middle] <= byte)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void editor_init(editor *e)
{
    *e = (editor){.goal = -1};
    segment(e);
}

void editor_free(editor *e)
{
    drop_states(e->undo, &e->n_undo);
    drop_states(e->redo, &e->n_redo);
    if (e->text.data) explicit_bzero(e->text.data, e->text.cap);
    buf_free(&e->text);
    free(e->starts);
    text_lines_free(&e->lines);
    *e = (editor){.goal = -1};
}

const char *editor_text(const editor *e, size_t *len)
{
    *len = e->text.len;
    return buf_str(&e->text);
}

/* --- undo ------------------------------------------------------------------------------------- */

static void push_state(const editor *e, editor_state *states, int *n)
{
    size_t bytes = e->text.len;
    int kept = 0; /* the newest that fit */
    while (kept < *n && kept < EDITOR_UNDO - 1 && bytes <= EDITOR_UNDO_BYTES)
        bytes += states[*n - ++kept].len;
    int gone = *n - kept;
    for (int i = 0; i < gone; i++)
        wipe(states[i].text, states[i].len);
    memmove(states, states + gone, (size_t)kept * sizeof *states);
    *n = kept;
    states[(*n)++] = (editor_state){
        .text = xmemdup0(buf_str(&e->text), e->text.len),
        .len = e->text.len,
        .cursor = e->cursor,
    };
}

/* Before a change. */
static void remember(editor *e, bool typed)
{
    if (!(typed && e->typing)) push_state(e, e->undo, &e->n_undo);
    drop_states(e->redo, &e->n_redo);
    e->typing = typed;
    e->goal = -1;
}

static bool restore(editor *e, editor_state *from, int *n_from, editor_state *to, int *n_to)
{
    if (*n_from == 0) return true;
    push_state(e, to, n_to);
    editor_state *s = &from[--*n_from];
    buf_clear(&e->text);
    buf_append(&e->text, s->text, s->len);
    wipe(s->text, s->len);
    segment(e);
    e->cursor = s->cursor < e->count ? s->cursor : e->count;
    e->typing = false;
    e->goal = -1;
    return true;
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Brings the clusters up to date after bytes [from, to) of the old text became len bytes. Only the
 * neighbourhood is segmented again: clusters before it end before the change, and as soon as a new
 * boundary meets an old one behind the change, the rest follows as it was. */
static void segment_around(editor *e, size_t from, size_t to, size_t len)
{
    size_t first = cluster_at(e, from), rest = first, n_new = 0, cap_new = 0;
    uint32_t *fresh = NULL;
    if (first > 0) first--;           /* what was inserted may join the cluster before it */
    size_t delta = len - (to - from); /* modulo: added to old offsets behind the change */
    while (e->starts[rest] < to)
        rest++;
    size_t pos = e->starts[first];
    for (;;) {
        while (rest < e->count && e->starts[rest] + delta < pos)
            rest++;
        if (pos >= from + len && pos == e->starts[rest] + delta) break;
        if (n_new == cap_new) {
            cap_new = cap_new ? cap_new * 2 : 16;
            fresh = xrealloc_array(fresh, cap_new, sizeof *fresh);
        }
        fresh[n_new++] = (uint32_t)pos;
        pos += text_next(e->text.data + pos, e->text.len - pos).len;
    }
    size_t n_rest = e->count - rest, count = first + n_new + n_rest;
    if (count + 1 > e->cap) {
        e->cap = count + 1 + count / 2;
        e->starts = xrealloc_array(e->starts, e->cap, sizeof *e->starts);
    }
    memmove(e->starts + first + n_new, e->starts + rest, (n_rest + 1) * sizeof *e->starts);
    for (size_t i = first + n_new; i <= count; i++)
        e->starts[i] = (uint32_t)(e->starts[i] + delta);
    if (n_new) memcpy(e->starts + first, fresh, n_new * sizeof *fresh);
    e->count = count;
    free(fresh);
    text_rewrap(&e->lines, e->text.data, from, to - from, len);
}

/* Replaces bytes [from, to) and puts the cursor behind the new text. */
static void replace(editor *e, size_t from, size_t to, const char *text, size_t len)
{
    size_t tail = e->text.len - to;
    buf_reserve(&e->text, len);
    memmove(e->text.data + from + len, e->text.data + to, tail);
    memcpy(e->text.data + from, text, len);
    e->text.len = from + len + tail;
    e->text.data[e->text.len] = '\0';
    segment_around(e, from, to, len);
    e->cursor = cluster_at(e, from + len);
    /* A joiner or mark may have merged what was inserted with what follows. */
    if (e->starts[e->cursor] < from + len && e->cursor < e->count) e->cursor++;
}

bool editor_insert(editor *e, const char *text, size_t len, bool typed)
{
    buf clean = {0};
    text_clean_draft(text, len, &clean);
    bool fits = e->text.len + clean.len <= EDITOR_MAX;
    if (fits && clean.len) {
        bool breaks = typed && (clean.data[0] == ' ' || clean.data[0] == '\n');
        if (breaks) e->typing = false; /* undo goes word by word */
        remember(e, typed);
        size_t at = e->starts[e->cursor];
        replace(e, at, at, clean.data, clean.len);
    }
    if (clean.data) explicit_bzero(clean.data, clean.cap);
    buf_free(&clean);
    return fits;
}

void editor_set(editor *e, const char *text, size_t len)
{
    drop_states(e->undo, &e->n_undo);
    drop_states(e->redo, &e->n_redo);
    e->typing = false;
    e->goal = -1;
    e->top = 0;
    buf_clear(&e->text);
    if (len <= EDITOR_MAX) text_clean_draft(text, len, &e->text);
    segment(e);
    e->cursor = e->count;
}

bool editor_replace(editor *e, const char *text, size_t len)
{
    buf clean = {0};
    text_clean_draft(text, len, &clean);
    bool fits = clean.len <= EDITOR_MAX;
    if (fits) {
        remember(e, false);
        replace(e, 0, e->text.len, buf_str(&clean), clean.len);
    }
    if (clean.data) explicit_bzero(clean.data, clean.cap);
    buf_free(&clean);
    return fits;
}

void editor_clear(editor *e)
{
    if (e->text.data) explicit_bzero(e->text.data, e->text.cap);
    editor_set(e, "", 0);
}

static bool erase(editor *e, size_t from, size_t to)
{
    if (from == to) return true;
    remember(e, false);
    replace(e, e->starts[from], e->starts[to], "", 0);
    return true;
}

/* --- movement --------------------------------------------------------------------------------- */

static bool is_word(const editor *e, size_t cluster)
{
    unsigned char c = (unsigned char)e->text.data[e->starts[cluster]];
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           c == '_';
}

static size_t word_left(const editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && !is_word(e, at - 1))
        at--;
    while (at > 0 && is_word(e, at - 1))
        at--;
    return at;
}

static size_t word_right(const editor *e)
{
    size_t at = e->cursor;
    while (at < e->count && !is_word(e, at))
        at++;
    while (at < e->count && is_word(e, at))
        at++;
    return at;
}

static bool is_line_feed(const editor *e, size_t cluster)
{
    return e->text.data[e->starts[cluster]] == '\n';
}

static size_t line_start(const editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && !is_line_feed(e, at - 1))
        at--;
    return at;
}

static size_t line_end(const editor *e)
{
    size_t at = e->cursor;
    while (at < e->count && !is_line_feed(e, at))
        at++;
    return at;
}

static void wrap(editor *e, int width)
{
    text_wrap(&e->lines, buf_str(&e->text), e->text.len, width);
}

/* The wrapped line that the cursor is in, and its column there. */
static size_t cursor_line(const editor *e, int *column)
{
    size_t byte = e->starts[e->cursor], line = text_line_at(&e->lines, byte);
    size_t start = e->lines.lines[line].start;
    *column = text_width(buf_str(&e->text) + start, byte - start);
    return line;
}

static void place_in_line(editor *e, size_t line, int column)
{
    const text_line *l = &e->lines.lines[line];
    size_t byte = l->start + text_fit(buf_str(&e->text) + l->start, l->len, column, NULL);
    e->cursor = cluster_at(e, byte);
}

/* Up (-1) or down (+1) among the wrapped lines; false at the edge. */
static bool move_line(editor *e, int direction)
{
    wrap(e, e->lines.width > 0 ? e->lines.width : DEFAULT_WIDTH);
    int column;
    size_t line = cursor_line(e, &column);
    if (direction < 0 ? line == 0 : line + 1 >= e->lines.len) return false;
    if (e->goal < 0) e->goal = column;
    int goal = e->goal;
    place_in_line(e, line + (size_t)(ptrdiff_t)direction, goal);
    e->goal = goal;
    return true;
}

static bool move_to(editor *e, size_t cluster)
{
    e->cursor = cluster;
    e->goal = -1;
    e->typing = false;
    return true;
}

bool editor_do(editor *e, action a)
{
    switch (a) {
    case ACTION_NEWLINE:
        editor_insert(e, "\n", 1, true);
        return true;
    case ACTION_LEFT:
        return move_to(e, e->cursor > 0 ? e->cursor - 1 : 0);
    case ACTION_RIGHT:
        return move_to(e, e->cursor < e->count ? e->cursor + 1 : e->count);
    case ACTION_WORD_LEFT:
        return move_to(e, word_left(e));
    case ACTION_WORD_RIGHT:
        return move_to(e, word_right(e));
    case ACTION_UP:
        return move_line(e, -1);
    case ACTION_DOWN:
        return move_line(e, 1);
    case ACTION_LINE_START:
        return move_to(e, line_start(e));
    case ACTION_LINE_END:
        return move_to(e, line_end(e));
    case ACTION_ERASE_LEFT:
        return erase(e, e->cursor > 0 ? e->cursor - 1 : 0, e->cursor);
    case ACTION_ERASE_RIGHT:
        return erase(e, e->cursor, e->cursor < e->count ? e->cursor + 1 : e->count);
    case ACTION_ERASE_WORD:
        return erase(e, word_left(e), e->cursor);
    case ACTION_ERASE_TO_START:
        return erase(e, line_start(e), e->cursor);
    case ACTION_ERASE_TO_END:
        return erase(e, e->cursor, line_end(e));
    case ACTION_UNDO:
        return restore(e, e->undo, &e->n_undo, e->redo, &e->n_redo);
    case ACTION_REDO:
        return restore(e, e->redo, &e->n_redo, e->undo, &e->n_undo);
    default:
        return false;
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

int editor_height(editor *e, int width)
{
    wrap(e, width < 2 ? 1 : width - 1); /* the last column is the cursor's after a full line */
    return (int)e->lines.len;
}

void editor_draw(editor *e, area a, style s, bool with_cursor)
{
    area_clear(a, s);
    if (a.w < 1 || a.h < 1) return;
    int height = editor_height(e, a.w), column;
    int line = (int)cursor_line(e, &column);
    if (e->top > line) e->top = line;
    if (e->top < line - a.h + 1) e->top = line - a.h + 1;
    if (e->top > height - a.h) e->top = height > a.h ? height - a.h : 0;
    for (int y = 0; y < a.h && e->top + y < height; y++) {
        const text_line *l = &e->lines.lines[e->top + y];
        area_text(a, 0, y, s, buf_str(&e->text) + l->start, l->len);
    }
    if (with_cursor) area_cursor(a, column < a.w ? column : a.w - 1, line - e->top);
}

void editor_draw_field(editor *e, area a, style s, bool with_cursor)
{
    area_clear(a, s);
    if (a.w < 1) return;
    const char *text = buf_str(&e->text);
    size_t end = e->starts[e->cursor], first = 0;
    while (text_width(text + e->starts[first], end - e->starts[first]) >= a.w)
        first++;
    size_t start = e->starts[first];
    area_text(a, 0, 0, s, text + start, e->text.len - start);
    if (with_cursor) area_cursor(a, text_width(text + start, end - start), 0);
}
