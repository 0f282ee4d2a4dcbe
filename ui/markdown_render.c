/* Blocks of Markdown to rows: md4c's callbacks. A container (quote, list, item) contributes to the
 * beginning of every row; a leaf block collects its inline text, with styles, and is wrapped when
 * it ends. */
#include "base/mem.h"
#include "base/utf8.h"
#include "ui/markdown_sheet.h"
#include "ui/text.h"

#include <md4c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   32 /* of containers and of styles; deeper ones are not told apart */
#define MIN_COLUMN  3  /* cells of a table's column; narrower tables are written as text */
#define COLUMN_GAP  3  /* " │ " */
#define MAX_COLUMNS 64

typedef enum { IN_DOCUMENT, IN_QUOTE, IN_LIST, IN_ITEM } container_kind;

typedef struct {
    container_kind kind;
    int children;
    bool ordered;
    char mark;
    unsigned number; /* list: of the next item */
    char bullet[16]; /* item: until its first row is there */
    int width;       /* cells that it takes of each row; 0: too deep to be shown */
} container;

/* Where inline text comes from. */
typedef struct {
    size_t at, source;
    bool exact; /* byte by byte */
} origin;

typedef struct {
    size_t from, to; /* of the inline text */
    MD_ALIGN align;
} table_cell;

typedef struct {
    markdown_sheet *sheet;
    const char *base; /* what is parsed */
    size_t len, offset;
    int width;
    markdown_place *place;
    container stack[MAX_DEPTH];
    int depth, too_deep;
    enum { LEAF_NONE, LEAF_BLOCK, LEAF_ITEM } leaf; /* ITEM: text of an item without a paragraph */
    /* The leaf block: its text, runs of styles, origins. */
    buf text;
    markdown_run *runs;
    size_t n_runs, cap_runs;
    origin *origins;
    size_t n_origins, cap_origins;
    size_t source; /* the last known origin */
    style ground;  /* style of its text outside of all spans */
    style styles[MAX_DEPTH];
    int n_styles;
    size_t pending;   /* the first mark that a later one might pair with; SIZE_MAX: none */
    size_t brackets;  /* open square brackets */
    size_t link_text; /* where the text of the open link begins */
    /* The table: cells row by row. */
    table_cell *cells;
    size_t n_cells, cap_cells;
    int columns;
    /* The code block. */
    highlighter code;
} renderer;

/* --- containers ------------------------------------------------------------------------------- */

static container *top(renderer *r)
{
    return &r->stack[r->depth - 1];
}

static int prefix_width(const renderer *r)
{
    int width = 0;
    for (int i = 0; i < r->depth; i++)
        width += r->stack[i].width;
    return width;
}

static container *push(renderer *r, container_kind kind, int width)
{
    if (r->depth == MAX_DEPTH) {
        r->too_deep++;
        return NULL;
    }
    bool fits = prefix_width(r) + width <= r->width / 2;
    r->stack[r->depth] = (container){.kind = kind, .width = fits ? width : 0};
    return &r->stack[r->depth++];
}

static void pop(renderer *r)
{
    if (r->too_deep)
        r->too_deep--;
    else
        r->depth--;
}

static void put_prefix(renderer *r, bool bullets)
{
    static const char blanks[] = "                ";
    for (int i = 0; i < r->depth; i++) {
        container *c = &r->stack[i];
        if (c->width == 0) continue;
        if (c->kind == IN_QUOTE) {
            sheet_text(r->sheet, STYLE_MARK, "│ ", strlen("│ "));
        } else if (bullets && c->bullet[0]) {
            sheet_text(r->sheet, STYLE_MARK, c->bullet, strlen(c->bullet));
            c->bullet[0] = '\0';
        } else {
            sheet_text(r->sheet, STYLE_TEXT, blanks, (size_t)c->width);
        }
    }
}

static void begin_row(renderer *r, size_t source)
{
    sheet_begin_row(r->sheet, source);
    put_prefix(r, true);
}

/* Before a block: an empty row behind the one before it, but not between an item's text and the
 * list in it. */
static void begin_block(renderer *r, bool is_list)
{
    container *c = top(r);
    bool close = c->kind == IN_LIST || (c->kind == IN_ITEM && is_list);
    if (c->children++ == 0 || close) return;
    sheet_begin_row(r->sheet, r->source);
    put_prefix(r, false);
    sheet_end_row(r->sheet);
}

/* --- inline text ------------------------------------------------------------------------------ */

static style now_style(const renderer *r)
{
    return r->n_styles ? r->styles[(r->n_styles < MAX_DEPTH ? r->n_styles : MAX_DEPTH) - 1]
                       : r->ground;
}

static void begin_leaf(renderer *r, style ground)
{
    if (r->text.data) explicit_bzero(r->text.data, r->text.len);
    r->text.len = r->n_runs = r->n_origins = r->brackets = 0;
    r->n_styles = 0;
    r->pending = SIZE_MAX;
    r->ground = ground;
    r->leaf = LEAF_BLOCK;
}

/* The items of a tight list have their text without a block around it. */
static void need_leaf(renderer *r)
{
    if (r->leaf != LEAF_NONE) return;
    begin_block(r, false);
    begin_leaf(r, STYLE_TEXT);
    r->leaf = LEAF_ITEM;
}

static void add_text(renderer *r, style s, const char *text, size_t len)
{
    if (len == 0) return;
    if (r->n_runs == 0 || r->runs[r->n_runs - 1].style != s) {
        if (r->n_runs == r->cap_runs) {
            r->cap_runs = r->cap_runs ? r->cap_runs * 2 : 32;
            r->runs = xrealloc_array(r->runs, r->cap_runs, sizeof *r->runs);
        }
        r->runs[r->n_runs++] = (markdown_run){.text = r->text.len, .style = (uint8_t)s};
    }
    size_t start = r->text.len;
    buf_append(&r->text, text, len);
    for (size_t i = start; i < r->text.len; i++) /* tabs would depend on where a style changes */
        if (r->text.data[i] == '\t') r->text.data[i] = ' ';
}

/* Notes where the text that is added next comes from. */
static void note_origin(renderer *r, const char *text)
{
    bool exact = text >= r->base && text < r->base + r->len;
    if (r->n_origins == r->cap_origins) {
        r->cap_origins = r->cap_origins ? r->cap_origins * 2 : 32;
        r->origins = xrealloc_array(r->origins, r->cap_origins, sizeof *r->origins);
    }
    if (exact) r->source = r->offset + (size_t)(text - r->base);
    r->origins[r->n_origins++] = (origin){r->text.len, r->source, exact};
}

static size_t origin_of(const renderer *r, size_t at, bool *exact)
{
    size_t low = 0, high = r->n_origins;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (r->origins[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    *exact = r->n_origins > 0 && r->origins[low].exact;
    if (!r->n_origins) return r->source;
    return r->origins[low].source + (*exact ? at - r->origins[low].at : 0);
}

#define ENTITY_CHARS "#0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Looks for marks in plain text that what comes later may pair with. */
static void note_pending(renderer *r, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i], next = i + 1 < len ? text[i + 1] : '\0';
        bool opens = false;
        if (c == '[' && r->brackets++ == 0) opens = true;
        if (c == ']' && r->brackets > 0 && --r->brackets == 0 && next != '(' && next != '[' && next)
            r->pending = SIZE_MAX; /* as far as brackets go; other marks are found again below */
        if (c == '*' || c == '~' || c == '_') opens = next != ' ' && next != '\n';
        if (c == '`' || c == '<') opens = true;
        if (c == '&') opens = i + 1 + strspn(text + i + 1, ENTITY_CHARS) >= len;
        if (opens && r->pending == SIZE_MAX) r->pending = r->text.len + i;
    }
}

static const struct {
    const char *name, *text;
} entities[] = {
    {"&amp;", "&"},   {"&lt;", "<"},     {"&gt;", ">"},    {"&quot;", "\""},  {"&apos;", "'"},
    {"&nbsp;", " "},  {"&hellip;", "…"}, {"&mdash;", "—"}, {"&ndash;", "–"},  {"&copy;", "©"},
    {"&reg;", "®"},   {"&deg;", "°"},    {"&times;", "×"}, {"&middot;", "·"}, {"&bull;", "•"},
    {"&euro;", "€"},  {"&laquo;", "«"},  {"&raquo;", "»"}, {"&rarr;", "→"},   {"&larr;", "←"},
    {"&lsquo;", "‘"}, {"&rsquo;", "’"},  {"&ldquo;", "“"}, {"&rdquo;", "”"},  {"&auml;", "ä"},
    {"&ouml;", "ö"},  {"&uuml;", "ü"},   {"&szlig;", "ß"}, {"&eacute;", "é"}, {"&egrave;", "è"},
};

/* A number may be that of a control character: what comes out is made harmless as all text is. */
static void add_entity(renderer *r, const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (strlen(entities[i].name) == len && memcmp(entities[i].name, text, len) == 0) {
            add_text(r, now_style(r), entities[i].text, strlen(entities[i].text));
            return;
        }
    char number[12] = "", bytes[4];
    bool hex = len > 3 && (text[2] | 0x20) == 'x';
    size_t skip = hex ? 3 : 2;
    if (len < 4 || text[1] != '#' || len - skip > sizeof number) {
        add_text(r, now_style(r), text, len);
        return;
    }
    memcpy(number, text + skip, len - skip - 1);
    unsigned long code = strtoul(number, NULL, hex ? 16 : 10);
    bool scalar = code > 0 && code < 0x110000 && !(code >= 0xD800 && code < 0xE000);
    text_cleaner cleaner = {0};
    buf clean = {0};
    text_clean(&cleaner, bytes, utf8_encode(scalar ? (uint32_t)code : 0xFFFD, bytes), &clean);
    text_clean_finish(&cleaner, &clean);
    add_text(r, now_style(r), buf_str(&clean), clean.len);
    buf_free(&clean);
}

/* --- wrapping --------------------------------------------------------------------------------- */

/* The run that a place of the inline text is in. */
static size_t run_at(const renderer *r, size_t at)
{
    size_t low = 0, high = r->n_runs;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (r->runs[middle].text <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Writes inline text[from..to) with its styles. */
static void put_inline(renderer *r, size_t from, size_t to)
{
    for (size_t i = run_at(r, from); i < r->n_runs && from < to; i++) {
        size_t end = i + 1 < r->n_runs ? r->runs[i + 1].text : r->text.len;
        if (end > to) end = to;
        if (end <= from) continue;
        sheet_text(r->sheet, (style)r->runs[i].style, r->text.data + from, end - from);
        from = end;
    }
}

static style style_at(const renderer *r, size_t at)
{
    return r->n_runs ? (style)r->runs[run_at(r, at)].style : r->ground;
}

/* Would text that begins a document like this be a paragraph? */
static bool begins_paragraph(const char *text, size_t len)
{
    size_t digits = 0;
    if (len == 0 || strchr(" \n\t#>-*+=`~_<|&\\[!", text[0])) return false;
    while (digits < len && text[digits] >= '0' && text[digits] <= '9')
        digits++;
    return digits < len && !(digits && strchr(".)", text[digits]));
}

static void wrap_leaf(renderer *r, bool paragraph)
{
    text_lines lines = {0};
    int width = r->width - prefix_width(r);
    bool exact;
    /* with bars in it, it may still turn out to be a table's head */
    paragraph = paragraph && !memchr(buf_str(&r->text), '|', r->text.len);
    text_wrap(&lines, buf_str(&r->text), r->text.len, width);
    for (size_t i = 0; i < lines.len; i++) {
        const text_line *l = &lines.lines[i];
        begin_row(r, origin_of(r, l->start, &exact));
        markdown_row *row = &r->sheet->rows[r->sheet->n_rows - 1];
        if (paragraph && exact && r->depth == 1 &&
            begins_paragraph(r->text.data + l->start, l->len))
            row->cut = style_at(r, l->start) == r->ground && r->pending > l->start ? ROW_CUT
                                                                                   : ROW_CUT_LOSSY;
        put_inline(r, l->start, l->start + l->len);
        sheet_end_row(r->sheet);
    }
    text_lines_free(&lines);
    r->leaf = LEAF_NONE;
}

static void end_item_text(renderer *r)
{
    if (r->leaf == LEAF_ITEM) wrap_leaf(r, false);
}

/* --- code ------------------------------------------------------------------------------------- */

typedef struct {
    markdown_sheet *sheet;
    const char *text;
    int margin; /* cells of the row before the code: tabs are counted from there */
} code_piece;

static void put_code(void *ctx, size_t start, size_t len, style s)
{
    const code_piece *piece = ctx;
    const char *text = piece->text + start, *end = text + len;
    while (text < end) {
        const char *tab = memchr(text, '\t', (size_t)(end - text)), *stop = tab ? tab : end;
        sheet_text(piece->sheet, s, text, (size_t)(stop - text));
        if (!tab) return;
        int column = piece->sheet->rows[piece->sheet->n_rows - 1].width - piece->margin;
        sheet_text(piece->sheet, s, "    ", (size_t)(TEXT_TAB - column % TEXT_TAB));
        text = tab + 1;
    }
}

void sheet_code(markdown_sheet *s, highlighter *h, const char *text, size_t len, bool line_ends)
{
    sheet_text(s, STYLE_CODE, "  ", CODE_INDENT);
    code_piece piece = {s, text, s->rows[s->n_rows - 1].width};
    highlight_piece(h, text, len, line_ends, put_code, &piece);
}

size_t markdown_code_fit(const char *text, size_t len, int width)
{
    if (len == 0) return 0;
    size_t n = text_fit(text, len, width > CODE_INDENT ? width - CODE_INDENT : 1, NULL);
    return n ? n : text_next(text, len).len;
}

/* A code block that md4c has collected (indented, or within a container). */
static void lay_code(renderer *r)
{
    const char *text = buf_str(&r->text);
    size_t len = r->text.len;
    int width = r->width - prefix_width(r);
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end ? (size_t)(end - text) - at : len - at, taken = 0;
        do {
            bool exact;
            size_t n = markdown_code_fit(text + at + taken, line - taken, width);
            begin_row(r, origin_of(r, at + taken, &exact));
            sheet_code(r->sheet, &r->code, text + at + taken, n, taken + n == line);
            sheet_end_row(r->sheet);
            taken += n;
        } while (taken < line);
        at += line + 1;
    }
}

/* --- tables ----------------------------------------------------------------------------------- */

static void end_cell(renderer *r, size_t from, MD_ALIGN align)
{
    if (r->n_cells == r->cap_cells) {
        r->cap_cells = r->cap_cells ? r->cap_cells * 2 : 32;
        r->cells = xrealloc_array(r->cells, r->cap_cells, sizeof *r->cells);
    }
    r->cells[r->n_cells++] = (table_cell){from, r->text.len, align};
}

/* Widths that fit, the widest columns made narrower; false: there is no room for a table. */
static bool column_widths(const renderer *r, int width, int *widths)
{
    int total = COLUMN_GAP * (r->columns - 1);
    for (size_t i = 0; i < r->n_cells; i++) {
        const table_cell *c = &r->cells[i];
        int w = text_width(buf_str(&r->text) + c->from, c->to - c->from);
        int *column = &widths[i % (size_t)r->columns];
        if (w > *column) *column = w;
    }
    for (int i = 0; i < r->columns; i++) {
        if (widths[i] < 1) widths[i] = 1;
        total += widths[i];
    }
    for (; total > width; total--) {
        int widest = 0;
        for (int i = 1; i < r->columns; i++)
            if (widths[i] > widths[widest]) widest = i;
        if (widths[widest] <= MIN_COLUMN) return false;
        widths[widest]--;
    }
    return true;
}

static void put_blanks(renderer *r, int n)
{
    for (; n > 0; n--)
        sheet_text(r->sheet, STYLE_TEXT, " ", 1);
}

/* Line `line` of a cell, padded to the column; last: without blanks at the end. */
static void put_cell(renderer *r, const table_cell *c, const text_lines *lines, size_t line,
                     int width, bool last)
{
    const text_line none = {0}, *l = line < lines->len ? &lines->lines[line] : &none;
    int room = width - l->width, left = 0;
    if (c->align == MD_ALIGN_RIGHT) left = room;
    if (c->align == MD_ALIGN_CENTER) left = room / 2;
    put_blanks(r, left);
    put_inline(r, c->from + l->start, c->from + l->start + l->len);
    if (!last) put_blanks(r, room - left);
}

static void put_table_row(renderer *r, const table_cell *cells, const int *widths)
{
    text_lines lines[MAX_COLUMNS] = {0};
    size_t height = 1;
    bool exact;
    for (int i = 0; i < r->columns; i++) {
        text_wrap(&lines[i], buf_str(&r->text) + cells[i].from, cells[i].to - cells[i].from,
                  widths[i]);
        if (lines[i].len > height) height = lines[i].len;
    }
    for (size_t line = 0; line < height; line++) {
        begin_row(r, origin_of(r, cells[0].from, &exact));
        for (int i = 0; i < r->columns; i++) {
            bool last = i + 1 == r->columns;
            put_cell(r, &cells[i], &lines[i], line, widths[i], last);
            if (!last) sheet_text(r->sheet, STYLE_MARK, " │ ", strlen(" │ "));
        }
        sheet_end_row(r->sheet);
    }
    for (int i = 0; i < r->columns; i++)
        text_lines_free(&lines[i]);
}

static void put_table_line(renderer *r, const int *widths)
{
    begin_row(r, 0); /* the line above says where */
    for (int i = 0; i < r->columns; i++) {
        int n = widths[i] + (i == 0 ? 1 : 2) - (i + 1 == r->columns ? 1 : 0);
        if (i) sheet_text(r->sheet, STYLE_MARK, "┼", strlen("┼"));
        for (; n > 0; n--)
            sheet_text(r->sheet, STYLE_MARK, "─", strlen("─"));
    }
    sheet_end_row(r->sheet);
}

/* Too narrow for columns: a row's cells one below the other. */
static void put_cells_as_text(renderer *r)
{
    bool exact;
    int width = r->width - prefix_width(r);
    for (size_t i = 0; i < r->n_cells; i++) {
        const table_cell *c = &r->cells[i];
        text_lines lines = {0};
        text_wrap(&lines, buf_str(&r->text) + c->from, c->to - c->from, width);
        for (size_t k = 0; k < lines.len; k++) {
            const text_line *l = &lines.lines[k];
            begin_row(r, origin_of(r, c->from + l->start, &exact));
            put_inline(r, c->from + l->start, c->from + l->start + l->len);
            sheet_end_row(r->sheet);
        }
        text_lines_free(&lines);
    }
}

static void lay_table(renderer *r)
{
    int widths[MAX_COLUMNS] = {0};
    if (r->columns < 1 || r->columns > MAX_COLUMNS ||
        !column_widths(r, r->width - prefix_width(r), widths)) {
        put_cells_as_text(r);
        return;
    }
    size_t columns = (size_t)r->columns;
    for (size_t i = 0; i + columns <= r->n_cells; i += columns) {
        put_table_row(r, &r->cells[i], widths);
        if (i == 0) put_table_line(r, widths);
    }
}

/* --- callbacks: blocks ------------------------------------------------------------------------ */

static void enter_list(renderer *r, bool ordered, char mark, unsigned number)
{
    markdown_place *p = r->place;
    bool first = r->depth == 1 && r->stack[0].children == 0;
    bool goes_on = first && p->after_list && p->list_mark == mark;
    if (first && (goes_on || !p->any)) /* no empty row in front of it */
        r->stack[0].children = 1;
    else if (first)
        r->stack[0].children = 2;
    if (!first || (!goes_on && p->any)) begin_block(r, true);
    if (r->depth == 1) p->after_list = p->continues = false;
    container *c = push(r, IN_LIST, 0);
    if (!c) return;
    c->ordered = ordered;
    c->mark = mark;
    c->number = goes_on && ordered ? p->number : number;
}

static void enter_item(renderer *r, const MD_BLOCK_LI_DETAIL *detail)
{
    container *list = top(r);
    char bullet[16] = "• ";
    if (list->ordered) snprintf(bullet, sizeof bullet, "%u%c ", list->number++, list->mark);
    if (detail->is_task) strcpy(bullet, detail->task_mark == ' ' ? "[ ] " : "[x] ");
    container *c = push(r, IN_ITEM, text_width_z(bullet));
    if (c) strcpy(c->bullet, bullet);
}

static void leave_item(renderer *r)
{
    if (!r->too_deep && top(r)->bullet[0] && top(r)->width) { /* nothing in it */
        begin_row(r, r->source);
        sheet_end_row(r->sheet);
    }
    pop(r);
}

static void leave_list(renderer *r)
{
    if (r->depth == 2 && !r->too_deep) {
        const container *list = top(r);
        r->place->after_list = true;
        r->place->list_mark = list->mark;
        r->place->number = list->number;
    }
    pop(r);
}

/* A block at top level that is no list: the blank row in front of it is due when there was a block
 * before what is parsed now. */
static void enter_block_here(renderer *r)
{
    container *c = top(r);
    if (r->depth == 1) {
        if (c->children == 0 && r->place->any && !r->place->continues) c->children = 1;
        r->place->after_list = r->place->continues = false;
    }
    begin_block(r, false);
}

static void enter_code(renderer *r, const MD_BLOCK_CODE_DETAIL *detail)
{
    enter_block_here(r);
    begin_leaf(r, STYLE_CODE);
    highlight_begin(&r->code, detail->lang.text ? detail->lang.text : "", detail->lang.size);
    if (detail->lang.size == 0) return;
    begin_row(r, r->source);
    int width = r->width - prefix_width(r);
    sheet_text(r->sheet, STYLE_DIM, detail->lang.text,
               text_fit(detail->lang.text, detail->lang.size, width, NULL));
    sheet_end_row(r->sheet);
}

static void put_rule(renderer *r)
{
    enter_block_here(r);
    begin_row(r, r->source);
    for (int n = r->width - prefix_width(r); n > 0; n--)
        sheet_text(r->sheet, STYLE_MARK, "─", strlen("─"));
    sheet_end_row(r->sheet);
}

static int enter_block(MD_BLOCKTYPE type, void *detail, void *ctx)
{
    renderer *r = ctx;
    end_item_text(r);
    switch (type) {
    case MD_BLOCK_QUOTE:
        enter_block_here(r);
        push(r, IN_QUOTE, 2);
        break;
    case MD_BLOCK_UL:
        enter_list(r, false, ((MD_BLOCK_UL_DETAIL *)detail)->mark, 0);
        break;
    case MD_BLOCK_OL: {
        const MD_BLOCK_OL_DETAIL *list = detail;
        enter_list(r, true, list->mark_delimiter, list->start);
        break;
    }
    case MD_BLOCK_LI:
        enter_item(r, detail);
        break;
    case MD_BLOCK_HR:
        put_rule(r);
        break;
    case MD_BLOCK_CODE:
        enter_code(r, detail);
        break;
    case MD_BLOCK_H:
        enter_block_here(r);
        begin_leaf(r, STYLE_HEADING);
        break;
    case MD_BLOCK_P:
    case MD_BLOCK_HTML:
        enter_block_here(r);
        begin_leaf(r, STYLE_TEXT);
        break;
    case MD_BLOCK_TABLE:
        enter_block_here(r);
        begin_leaf(r, STYLE_TEXT);
        r->columns = (int)((MD_BLOCK_TABLE_DETAIL *)detail)->col_count;
        r->n_cells = 0;
        break;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        r->ground = type == MD_BLOCK_TH ? STYLE_STRONG : STYLE_TEXT;
        end_cell(r, r->text.len, ((MD_BLOCK_TD_DETAIL *)detail)->align);
        break;
    default:
        break;
    }
    return 0;
}

static int leave_block(MD_BLOCKTYPE type, void *detail, void *ctx)
{
    (void)detail;
    renderer *r = ctx;
    end_item_text(r);
    switch (type) {
    case MD_BLOCK_QUOTE:
        if (!r->too_deep && top(r)->children == 0) {
            begin_row(r, r->source);
            sheet_end_row(r->sheet);
        }
        pop(r);
        break;
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
        leave_list(r);
        break;
    case MD_BLOCK_LI:
        leave_item(r);
        break;
    case MD_BLOCK_CODE:
        lay_code(r);
        r->leaf = LEAF_NONE;
        break;
    case MD_BLOCK_H:
    case MD_BLOCK_P:
    case MD_BLOCK_HTML:
        wrap_leaf(r, type == MD_BLOCK_P);
        break;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        r->cells[r->n_cells - 1].to = r->text.len;
        break;
    case MD_BLOCK_TABLE:
        lay_table(r);
        r->leaf = LEAF_NONE;
        break;
    default:
        break;
    }
    return 0;
}

/* --- callbacks: spans and text ---------------------------------------------------------------- */

static int enter_span(MD_SPANTYPE type, void *detail, void *ctx)
{
    (void)detail;
    static const style styles[] = {
        [MD_SPAN_EM] = STYLE_EMPHASIS, [MD_SPAN_STRONG] = STYLE_STRONG, [MD_SPAN_A] = STYLE_LINK,
        [MD_SPAN_IMG] = STYLE_LINK,    [MD_SPAN_CODE] = STYLE_CODE,     [MD_SPAN_DEL] = STYLE_DIM,
    };
    renderer *r = ctx;
    need_leaf(r);
    style s = (size_t)type < sizeof styles / sizeof *styles ? styles[type] : now_style(r);
    if (type == MD_SPAN_EM && now_style(r) == STYLE_STRONG) s = STYLE_STRONG;
    if (r->n_styles < MAX_DEPTH) r->styles[r->n_styles] = s;
    r->n_styles++;
    if (type == MD_SPAN_A || type == MD_SPAN_IMG) r->link_text = r->text.len;
    return 0;
}

/* Behind a link's text the address, unless the text is the address. */
static void put_address(renderer *r, const MD_ATTRIBUTE *address)
{
    const char *text = buf_str(&r->text) + r->link_text;
    size_t len = r->text.len - r->link_text;
    bool mail = address->size > 7 && memcmp(address->text, "mailto:", 7) == 0;
    const char *shown = address->text + (mail ? 7 : 0);
    size_t n = address->size - (mail ? 7 : 0);
    if (n == 0 || (len == n && memcmp(text, shown, n) == 0)) return;
    if (len < n && len && memcmp(shown + n - len, text, len) == 0) return; /* www.… */
    note_origin(r, "");
    add_text(r, STYLE_DIM, " (", 2);
    add_text(r, STYLE_DIM, shown, n);
    add_text(r, STYLE_DIM, ")", 1);
}

static int leave_span(MD_SPANTYPE type, void *detail, void *ctx)
{
    renderer *r = ctx;
    r->n_styles--;
    if (type == MD_SPAN_A) put_address(r, &((MD_SPAN_A_DETAIL *)detail)->href);
    if (type == MD_SPAN_IMG) put_address(r, &((MD_SPAN_IMG_DETAIL *)detail)->src);
    return 0;
}

static int take_text(MD_TEXTTYPE type, const MD_CHAR *text, MD_SIZE size, void *ctx)
{
    renderer *r = ctx;
    need_leaf(r);
    note_origin(r, text);
    switch (type) {
    case MD_TEXT_BR:
    case MD_TEXT_SOFTBR:
        add_text(r, now_style(r), "\n", 1);
        break;
    case MD_TEXT_ENTITY:
        add_entity(r, text, size);
        break;
    case MD_TEXT_NORMAL:
        if (!r->n_styles) note_pending(r, text, size);
        add_text(r, now_style(r), text, size);
        break;
    default:
        add_text(r, now_style(r), text, size);
        break;
    }
    return 0;
}

void markdown_render(markdown_sheet *s, const char *source, size_t from, size_t to, int width,
                     markdown_place *place)
{
    static const MD_PARSER parser = {
        .flags = MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS | MD_FLAG_NOHTML |
                 MD_FLAG_PERMISSIVEAUTOLINKS,
        .enter_block = enter_block,
        .leave_block = leave_block,
        .enter_span = enter_span,
        .leave_span = leave_span,
        .text = take_text,
    };
    /* md4c 0.4.8 reads past the end of a text whose last line has no line feed. */
    buf text = {0};
    buf_reserve(&text, to - from + 1);
    buf_append(&text, source + from, to - from);
    buf_putc(&text, '\n');
    renderer r = {.sheet = s,
                  .base = text.data,
                  .len = to - from,
                  .offset = from,
                  .source = from,
                  .width = width,
                  .place = place};
    push(&r, IN_DOCUMENT, 0);
    md_parse(text.data, (MD_SIZE)text.len, &parser, &r);
    if (s->n_rows) place->any = true;
    if (r.text.data) explicit_bzero(r.text.data, r.text.cap);
    buf_free(&r.text);
    explicit_bzero(text.data, text.cap);
    buf_free(&text);
    free(r.runs);
    free(r.origins);
    free(r.cells);
}
