#include "ui/markdown.h"

#include "base/mem.h"
#include "ui/markdown_sheet.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

/* An open paragraph longer than this is settled even where a style might still reach back. */
#define SOFT_LIMIT 2048
/* Other open blocks longer than this are laid out again only when they have grown by a
 * LAZY_SHARE-th: all of an answer is still looked at a bounded number of times. */
#define LAZY_LIMIT 512
#define LAZY_SHARE 32

/* --- rows ------------------------------------------------------------------------------------- */

void sheet_begin_row(markdown_sheet *s, size_t source)
{
    if (s->n_rows == s->cap_rows) {
        s->cap_rows = s->cap_rows ? s->cap_rows * 2 : 32;
        s->rows = xrealloc_array(s->rows, s->cap_rows, sizeof *s->rows);
    }
    size_t before = s->n_rows ? s->rows[s->n_rows - 1].source : 0;
    if (source < before) source = before; /* decorations are part of what is above them */
    s->rows[s->n_rows++] = (markdown_row){.text = s->text.len, .run = s->n_runs, .source = source};
}

void sheet_text(markdown_sheet *s, style st, const char *text, size_t len)
{
    if (len == 0) return;
    markdown_row *row = &s->rows[s->n_rows - 1];
    bool goes_on = s->n_runs > row->run && s->runs[s->n_runs - 1].style == st;
    if (!goes_on) {
        if (s->n_runs == s->cap_runs) {
            s->cap_runs = s->cap_runs ? s->cap_runs * 2 : 64;
            s->runs = xrealloc_array(s->runs, s->cap_runs, sizeof *s->runs);
        }
        s->runs[s->n_runs++] = (markdown_run){.text = s->text.len, .style = (uint8_t)st};
    }
    buf_append(&s->text, text, len);
    row->width += text_width(text, len);
}

void sheet_end_row(markdown_sheet *s)
{
    markdown_row *row = &s->rows[s->n_rows - 1];
    row->len = s->text.len - row->text;
}

static void sheet_empty_row(markdown_sheet *s, size_t source)
{
    sheet_begin_row(s, source);
    sheet_end_row(s);
}

void markdown_draw_row(const markdown *m, size_t row, area a, int x, int y)
{
    const markdown_sheet *s = &m->sheet;
    const markdown_row *r = &s->rows[row];
    size_t end = r->text + r->len;
    for (size_t i = r->run; i < s->n_runs && s->runs[i].text < end; i++) {
        size_t from = s->runs[i].text, to = i + 1 < s->n_runs ? s->runs[i + 1].text : end;
        if (to > end) to = end;
        x += area_text(a, x, y, (style)s->runs[i].style, s->text.data + from, to - from);
    }
}

/* --- lines of the source ---------------------------------------------------------------------- */

typedef enum {
    LINE_OPEN, /* could still become anything: only its beginning has arrived */
    LINE_BLANK,
    LINE_TEXT,
    LINE_HEADING,
    LINE_RULE,
    LINE_FENCE,
    LINE_ITEM,
    LINE_QUOTE,
    LINE_INDENTED
} line_kind;

static size_t line_len(const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    return end ? (size_t)(end - text) : len;
}

static size_t count_char(const char *text, size_t len, char c)
{
    size_t n = 0;
    while (n < len && text[n] == c)
        n++;
    return n;
}

static bool is_rule(const char *line, size_t len)
{
    size_t marks = 0;
    if (len == 0 || !strchr("*-_", line[0])) return false;
    for (size_t i = 0; i < len; i++) {
        if (line[i] == line[0])
            marks++;
        else if (line[i] != ' ' && line[i] != '\t')
            return false;
    }
    return marks >= 3;
}

/* Bytes of the marker at the start of a list item, the blank behind it included; 0: none. The item
 * must have content: a bare marker may still be an underline or a number. */
static size_t item_marker(const char *line, size_t len)
{
    size_t n = 0;
    if (len && strchr("-*+", line[0])) {
        n = 1;
    } else {
        while (n < len && n < 9 && line[n] >= '0' && line[n] <= '9')
            n++;
        if (n == 0 || n == len || !strchr(".)", line[n])) return 0;
        n++;
    }
    if (n >= len || (line[n] != ' ' && line[n] != '\t')) return 0;
    size_t content = n + strspn(line + n, " \t");
    return content < len ? n + 1 : 0;
}

/* What a line is that begins at top level. whole: its end is known. */
static line_kind kind_of(const char *line, size_t len, bool whole)
{
    size_t indent = count_char(line, len, ' ');
    if (indent == len) return whole ? LINE_BLANK : LINE_OPEN;
    if (strspn(line, " \t") == len) return whole ? LINE_BLANK : LINE_OPEN;
    if (indent >= 4 || line[0] == '\t') return LINE_INDENTED;
    line += indent;
    len -= indent;
    if (*line == '>') return LINE_QUOTE;
    if (*line == '`' || *line == '~') {
        size_t n = count_char(line, len, *line);
        if (n >= 3 && !(*line == '`' && memchr(line + n, '`', len - n))) return LINE_FENCE;
        return !whole && n == len ? LINE_OPEN : LINE_TEXT;
    }
    if (*line == '#') {
        size_t n = count_char(line, len, '#');
        bool blank = n < len && (line[n] == ' ' || line[n] == '\t');
        if (n <= 6 && (blank || (whole && n == len))) return LINE_HEADING;
        return !whole && n == len ? LINE_OPEN : LINE_TEXT;
    }
    if (is_rule(line, len)) return whole ? LINE_RULE : LINE_OPEN;
    if (item_marker(line, len)) return LINE_ITEM;
    bool may_be_item = strspn(line, "0123456789-*+_.) \t") == len;
    return !whole && may_be_item ? LINE_OPEN : LINE_TEXT;
}

static bool is_first_number(const char *line, size_t len)
{
    return len > 1 && (strchr("-*+", line[0]) || (line[0] == '1' && strchr(".)", line[1])));
}

/* Does a line of this kind begin a new block within a block that began with `first`? Its own
 * indentation is left to md4c: only lines without any count. */
static bool begins_block(line_kind first, line_kind k, const char *line, size_t len)
{
    if (k == LINE_INDENTED || k == LINE_BLANK || k == LINE_OPEN) return false;
    if (line[0] == ' ') return false;
    if (first == LINE_INDENTED || k == LINE_FENCE || k == LINE_HEADING) return true;
    switch (k) {
    case LINE_ITEM:
        return first != LINE_TEXT || is_first_number(line, len);
    case LINE_QUOTE:
        return first != LINE_QUOTE;
    case LINE_RULE:
        return first != LINE_TEXT || line[0] != '-';
    default:
        return false;
    }
}

/* Behind blank lines of a list or of indented code: where the next block begins, 0 when this is not
 * known yet, `at` when the block goes on there. */
static size_t behind_blanks(const char *text, size_t len, size_t *at)
{
    while (*at < len) {
        size_t n = line_len(text + *at, len - *at);
        if (strspn(text + *at, " \t") < n) break;
        if (*at + n == len) return 0;
        *at += n + 1;
    }
    if (*at == len || text[*at] == ' ' || text[*at] == '\t') return 0;
    return *at;
}

/* The end of the block that begins at from; 0: it is still open. */
static size_t block_end(const char *text, size_t len, size_t from)
{
    size_t n = line_len(text + from, len - from), at = from + n + 1;
    if (at > len) return 0;
    line_kind first = kind_of(text + from, n, true);
    if (first == LINE_BLANK || first == LINE_HEADING || first == LINE_RULE || first == LINE_FENCE)
        return at;
    while (at < len) {
        n = line_len(text + at, len - at);
        bool whole = at + n < len;
        line_kind k = kind_of(text + at, n, whole);
        if (begins_block(first, k, text + at, n)) return at;
        if (k == LINE_BLANK) {
            if (first != LINE_ITEM && first != LINE_INDENTED) return at;
            size_t next = behind_blanks(text, len, &at);
            if (next || at >= len) return next;
            n = line_len(text + at, len - at);
            whole = at + n < len;
        }
        if (!whole) return 0;
        at += n + 1;
    }
    return 0;
}

/* --- fenced code at top level --------------------------------------------------------------- */

static void settle(markdown *m, size_t source)
{
    m->source = source;
    m->text = m->sheet.text.len;
    m->rows = m->sheet.n_rows;
    m->runs = m->sheet.n_runs;
}

static void drop_open(markdown *m)
{
    m->sheet.text.len = m->text;
    m->sheet.n_rows = m->rows;
    m->sheet.n_runs = m->runs;
}

static void begin_fence(markdown *m, const char *line, size_t len, size_t source)
{
    size_t indent = count_char(line, len, ' ');
    size_t n = count_char(line + indent, len - indent, line[indent]);
    const char *name = line + indent + n;
    size_t rest = len - indent - n, blanks = count_char(name, rest, ' ');
    name += blanks;
    size_t name_len = 0;
    while (name_len < rest - blanks && !strchr(" \t{", name[name_len]))
        name_len++;
    if (m->place.any) sheet_empty_row(&m->sheet, source);
    if (name_len) {
        sheet_begin_row(&m->sheet, source);
        sheet_text(&m->sheet, STYLE_DIM, name, text_fit(name, name_len, m->width, NULL));
        sheet_end_row(&m->sheet);
    }
    m->place = (markdown_place){.any = true,
                                .in_fence = true,
                                .fence_mark = line[indent],
                                .fence_len = (int)n,
                                .fence_indent = (int)indent};
    highlight_begin(&m->place.code, name, name_len);
}

/* Is this (so far) the line that ends the fence? */
static bool ends_fence(const markdown_place *p, const char *line, size_t len, bool whole)
{
    size_t indent = count_char(line, len, ' ');
    size_t n = count_char(line + indent, len - indent, p->fence_mark);
    if (indent > 3 || p->in_line || strspn(line + indent + n, " \t\n") < len - indent - n)
        return false;
    return n >= (size_t)p->fence_len || (!whole && n > 0);
}

/* Rows of a line of code; of one that may go on, those that are full are settled. */
static void lay_code_line(markdown *m, const char *text, size_t at, size_t len, bool whole)
{
    markdown_place *p = &m->place;
    highlighter h = p->code;
    size_t taken = p->in_line ? 0 : count_char(text + at, len, ' ');
    if (taken > (size_t)p->fence_indent) taken = (size_t)p->fence_indent;
    for (;;) {
        size_t n = markdown_code_fit(text + at + taken, len - taken, m->width);
        bool last = taken + n == len;
        sheet_begin_row(&m->sheet, at + taken);
        sheet_code(&m->sheet, &h, text + at + taken, n, last && whole);
        sheet_end_row(&m->sheet);
        m->work += n;
        taken += n;
        if (last && !whole) return;
        p->code = h;
        p->in_line = !last;
        settle(m, at + taken + (last ? 1 : 0));
        if (last) return;
    }
}

/* False when there is no more to settle. */
static bool lay_fence(markdown *m, const char *text, size_t len)
{
    size_t at = m->source, n = line_len(text + at, len - at);
    bool whole = at + n < len;
    if (at == len) return false;
    if (ends_fence(&m->place, text + at, n, whole)) {
        if (!whole) return false; /* not shown as code */
        m->place = (markdown_place){.any = true};
        settle(m, at + n + 1);
        return true;
    }
    lay_code_line(m, text, at, n, whole);
    return whole;
}

/* --- layout ----------------------------------------------------------------------------------- */

static void markdown_reset(markdown *m)
{
    markdown_sheet sheet = m->sheet;
    unsigned long long work = m->work;
    if (sheet.text.data) explicit_bzero(sheet.text.data, sheet.text.len);
    sheet.text.len = sheet.n_rows = sheet.n_runs = 0;
    *m = (markdown){.sheet = sheet, .work = work};
}

void markdown_free(markdown *m)
{
    if (m->sheet.text.data) explicit_bzero(m->sheet.text.data, m->sheet.text.cap);
    buf_free(&m->sheet.text);
    free(m->sheet.rows);
    free(m->sheet.runs);
    *m = (markdown){0};
}

/* One block, or a blank line, that ends at `end`; it is settled. */
static void lay_block(markdown *m, const char *text, size_t end)
{
    size_t from = m->source, n = line_len(text + from, end - from);
    line_kind k = kind_of(text + from, n, true);
    m->work += end - from;
    if (k == LINE_FENCE)
        begin_fence(m, text + from, n, from);
    else if (k != LINE_BLANK)
        markdown_render(&m->sheet, text, from, end, m->width, &m->place);
    settle(m, end);
}

/* Settles the rows of an open paragraph before which nothing can change any more. The last row is
 * never among them: its end is open. */
static void settle_rows(markdown *m, size_t open)
{
    if (m->sheet.n_rows < m->rows + 3) return;
    for (size_t i = m->sheet.n_rows - 2; i > m->rows; i--) {
        const markdown_row *row = &m->sheet.rows[i];
        bool may = row->cut == ROW_CUT || (row->cut == ROW_CUT_LOSSY && open > SOFT_LIMIT);
        if (!may || row->source <= m->source) continue;
        m->source = row->source;
        m->text = row->text;
        m->rows = i;
        m->runs = row->run;
        m->place = (markdown_place){.any = true, .continues = true};
        m->split = true;
        return;
    }
}

/* The part of the incomplete block that has arrived. */
static void lay_open(markdown *m, const char *text, size_t len)
{
    size_t from = m->source, n = line_len(text + from, len - from);
    line_kind k = kind_of(text + from, n, from + n < len || m->finished);
    bool marks_only = k == LINE_OPEN && n && strchr("`~#", text[from]);
    if (k == LINE_BLANK || k == LINE_FENCE || marks_only) return; /* not shown yet */
    markdown_place place = m->place;
    m->work += len - from;
    markdown_render(&m->sheet, text, from, len, m->width, &place);
    if (k == LINE_TEXT && !m->finished) settle_rows(m, len - from);
}

void markdown_update(markdown *m, const char *source, size_t len, int width, bool finished)
{
    if (width < 1) width = 1;
    bool again = width != m->width || len < m->looked_at || (finished && m->split && !m->finished);
    if (again) markdown_reset(m);
    if (!again && len == m->looked_at && finished == m->finished) return;
    size_t open = m->looked_at - m->source;
    if (!again && !finished && open > LAZY_LIMIT && len - m->looked_at < open / LAZY_SHARE) return;
    m->width = width;
    m->finished = finished;
    m->looked_at = len;
    drop_open(m);
    while (m->source < len) {
        if (m->place.in_fence) {
            if (!lay_fence(m, source, len)) return;
            continue;
        }
        size_t end = block_end(source, len, m->source);
        if (!end) break;
        lay_block(m, source, end);
    }
    if (m->source < len) lay_open(m, source, len);
}
