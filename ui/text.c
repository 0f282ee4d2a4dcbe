#include "ui/text.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define ZWJ             0x200Du
#define VARIATION_EMOJI 0xFE0Fu
#define BLACK_FLAG      0x1F3F4u

/* --- code points ------------------------------------------------------------------------------ */

static bool is_regional(uint32_t cp)
{
    return cp >= 0x1F1E6 && cp <= 0x1F1FF;
}

static bool is_tag(uint32_t cp)
{
    return cp >= 0xE0000 && cp <= 0xE007F;
}

static bool is_private(uint32_t cp)
{
    return (cp >= 0xE000 && cp <= 0xF8FF) || cp >= 0xF0000;
}

/* Cells of one code point by itself. */
static int code_width(uint32_t cp)
{
    if (is_private(cp)) return 1;
    if (is_tag(cp)) return 0;
    if (cp >= 0x1160 && cp <= 0x11FF) return 0; /* vowels and finals of a Hangul syllable */
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    if (category == UTF8PROC_CATEGORY_CN) {
        bool wide = (cp >= 0x1F000 && cp <= 0x1FAFF) || (cp >= 0x20000 && cp <= 0x3FFFD);
        return wide ? 2 : 1;
    }
    if (category == UTF8PROC_CATEGORY_MC) return 1;
    int width = utf8proc_charwidth((utf8proc_int32_t)cp);
    return width < 0 ? 0 : width > 2 ? 2 : width;
}

/* Single code points on whose width terminals agree. */
static bool is_certain(uint32_t cp)
{
    return cp < 0x0300 || (cp >= 0x0370 && cp < 0x0483) || (cp >= 0x048A && cp < 0x0530) ||
           (cp >= 0x1E00 && cp <= 0x1FFF) || (cp >= 0x2010 && cp <= 0x2027) ||
           (cp >= 0x2030 && cp <= 0x205E) || (cp >= 0x20A0 && cp <= 0x20BF) ||
           (cp >= 0x2400 && cp <= 0x2426) || (cp >= 0x2500 && cp <= 0x259F) ||
           (cp >= 0x2800 && cp <= 0x28FF) || (cp >= 0x3000 && cp <= 0x3029) ||
           (cp >= 0x3041 && cp <= 0x3096) || (cp >= 0x30A0 && cp <= 0x30FF) ||
           (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFC) ||
           (cp >= 0xAC00 && cp <= 0xD7A3) || (cp >= 0xFF01 && cp <= 0xFFDC);
}

/* --- clusters --------------------------------------------------------------------------------- */

/* Decodes one code point; an ill-formed part stands as U+FFFD. */
static size_t decode(const char *text, size_t len, uint32_t *cp)
{
    size_t n = utf8_decode(text, len, cp, NULL);
    if (*cp == UINT32_MAX) *cp = 0xFFFD;
    return n;
}

/* What the code points of a cluster add up to. */
typedef struct {
    uint32_t first, last;
    int base;    /* widest code point */
    int spacing; /* spacing marks after the first */
    bool emoji_variation, regional_pair;
    size_t count;
} cluster_parts;

static void parts_add(cluster_parts *p, uint32_t cp)
{
    int width = code_width(cp);
    if (p->count > 0 && utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_MC)
        p->spacing += width;
    else if (width > p->base)
        p->base = width;
    if (cp == VARIATION_EMOJI) p->emoji_variation = true;
    if (p->count == 1 && is_regional(cp) && is_regional(p->first)) p->regional_pair = true;
    if (p->count == 0) p->first = cp;
    p->last = cp;
    p->count++;
}

static int parts_width(const cluster_parts *p)
{
    int width = p->base + p->spacing;
    if (p->regional_pair || (p->emoji_variation && p->base > 0)) width = 2;
    return width > 2 ? 2 : width;
}

text_cluster text_next(const char *text, size_t len)
{
    unsigned char c = (unsigned char)text[0];
    if (c < 0x80 && (len == 1 || (unsigned char)text[1] < 0x80)) {
        int width = c == '\t' || (c >= 0x20 && c < 0x7F) ? 1 : 0;
        return (text_cluster){.len = 1, .width = width};
    }
    uint32_t cp;
    size_t pos = decode(text, len, &cp);
    cluster_parts parts = {0};
    parts_add(&parts, cp);
    utf8proc_int32_t state = 0;
    while (pos < len) {
        uint32_t next;
        size_t n = decode(text + pos, len - pos, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)parts.last, (utf8proc_int32_t)next,
                                             &state))
            break;
        parts_add(&parts, next);
        pos += n;
    }
    return (text_cluster){
        .len = pos,
        .width = cp == '\t' ? 1 : parts_width(&parts),
        .uncertain = parts.count > 1 || !is_certain(cp),
    };
}

int text_width(const char *text, size_t len)
{
    int width = 0;
    for (size_t pos = 0; pos < len;) {
        text_cluster c = text_next(text + pos, len - pos);
        width += text[pos] == '\t' ? TEXT_TAB - width % TEXT_TAB : c.width;
        pos += c.len;
    }
    return width;
}

int text_width_z(const char *text)
{
    return text_width(text, strlen(text));
}

size_t text_count(const char *text, size_t len)
{
    size_t count = 0;
    for (size_t pos = 0; pos < len; count++)
        pos += text_next(text + pos, len - pos).len;
    return count;
}

size_t text_fit(const char *text, size_t len, int cells, int *used)
{
    size_t pos = 0;
    int width = 0;
    while (pos < len) {
        text_cluster c = text_next(text + pos, len - pos);
        int w = text[pos] == '\t' ? TEXT_TAB - width % TEXT_TAB : c.width;
        if (width + w > cells) break;
        width += w;
        pos += c.len;
    }
    if (used) *used = width;
    return pos;
}

size_t text_without_last(const char *text, size_t len)
{
    size_t keep = 0;
    for (size_t pos = 0; pos < len;) {
        keep = pos;
        pos += text_next(text + pos, len - pos).len;
    }
    return keep;
}

void text_ellipsis(const char *text, size_t len, int cells, buf *out)
{
    if (text_fit(text, len, cells, NULL) == len) {
        buf_append(out, text, len);
        return;
    }
    if (cells < 1) return;
    buf_append(out, text, text_fit(text, len, cells - 1, NULL));
    buf_puts(out, "…");
}

/* --- harmless text ---------------------------------------------------------------------------- */

static bool is_direction_control(uint32_t cp)
{
    return (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069) ||
           (cp >= 0x206A && cp <= 0x206F);
}

/* Format characters without a picture of their own. */
static bool is_invisible(uint32_t cp)
{
    return cp == 0x00AD || cp == 0x061C || cp == 0x180E || cp == 0x200B || cp == 0x200E ||
           cp == 0x200F || (cp >= 0x2060 && cp <= 0x2065) || cp == 0xFEFF ||
           (cp >= 0xFFF9 && cp <= 0xFFFB) || cp == 0x2028 || cp == 0x2029;
}

static void put_code(uint32_t cp, buf *out)
{
    char bytes[4];
    buf_append(out, bytes, utf8_encode(cp, bytes));
}

/* A control code as its symbol in the Control Pictures block, or in angle brackets. */
static void put_visible(uint32_t cp, buf *out)
{
    if (cp < 0x20)
        put_code(0x2400 + cp, out);
    else if (cp == 0x7F)
        put_code(0x2421, out);
    else
        buf_printf(out, "<%02X>", cp);
}

static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
}

/* One whole character of a stream. */
static void clean_code(text_cleaner *s, uint32_t cp, buf *out)
{
    bool was_flag = s->in_flag, was_joinable = s->joinable;
    s->in_flag = s->joinable = false;
    if (s->held_cr) {
        s->held_cr = false;
        if (cp != '\n') put_visible('\r', out);
    }
    if (cp == '\r') {
        s->held_cr = true;
    } else if (cp == '\n' || cp == '\t') {
        put_code(cp, out);
    } else if (is_control(cp) || is_direction_control(cp) || (is_tag(cp) && !was_flag)) {
        put_visible(cp, out);
    } else if (cp == 0x2028 || cp == 0x2029) {
        buf_putc(out, '\n'); /* line and paragraph separator */
    } else if (is_invisible(cp)) {
        s->joinable = was_joinable;
    } else if ((cp == ZWJ || cp == 0x200C) && !was_joinable) {
        /* nothing to join */
    } else {
        put_code(cp, out);
        s->joinable = true;
        s->in_flag = cp == BLACK_FLAG || (was_flag && is_tag(cp));
    }
}

void text_clean(text_cleaner *state, const char *text, size_t len, buf *out)
{
    size_t pos = 0;
    while (state->n_held && pos < len) {
        char whole[4 + 1];
        memcpy(whole, state->held, state->n_held);
        whole[state->n_held] = text[pos];
        uint32_t cp;
        bool truncated = false;
        size_t n = utf8_decode(whole, state->n_held + 1u, &cp, &truncated);
        if (cp == UINT32_MAX && truncated) {
            state->held[state->n_held++] = text[pos++];
            continue;
        }
        if (n == state->n_held + 1u) pos++;
        state->n_held = 0;
        clean_code(state, cp == UINT32_MAX ? 0xFFFD : cp, out);
    }
    while (pos < len) {
        uint32_t cp;
        bool truncated = false;
        size_t n = utf8_decode(text + pos, len - pos, &cp, &truncated);
        if (cp == UINT32_MAX && truncated && pos + n == len) {
            memcpy(state->held, text + pos, n);
            state->n_held = (unsigned char)n;
            return;
        }
        clean_code(state, cp == UINT32_MAX ? 0xFFFD : cp, out);
        pos += n;
    }
}

void text_clean_finish(text_cleaner *state, buf *out)
{
    if (state->n_held) {
        state->n_held = 0;
        clean_code(state, 0xFFFD, out);
    }
    if (state->held_cr) put_visible('\r', out);
    *state = (text_cleaner){0};
}

void text_clean_label(const char *text, size_t len, buf *out)
{
    bool in_flag = false, joinable = false;
    for (size_t pos = 0; pos < len;) {
        uint32_t cp;
        pos += decode(text + pos, len - pos, &cp);
        bool joiner = cp == ZWJ || cp == 0x200C;
        bool hidden = is_control(cp) || is_direction_control(cp) || is_invisible(cp) ||
                      (is_tag(cp) && !in_flag) || (joiner && !joinable);
        if (hidden)
            put_visible(cp, out);
        else
            put_code(cp, out);
        in_flag = cp == BLACK_FLAG || (in_flag && is_tag(cp));
        joinable = !hidden && cp != ' ';
    }
}

void text_clean_draft(const char *text, size_t len, buf *out)
{
    buf_reserve(out, len);
    for (size_t pos = 0; pos < len;) {
        uint32_t cp;
        size_t n = utf8_decode(text + pos, len - pos, &cp, NULL);
        if (cp == '\r') {
            bool crlf = pos + 1 < len && text[pos + 1] == '\n';
            if (!crlf) buf_putc(out, '\n');
        } else if (cp == '\n' || cp == '\t' || (cp != UINT32_MAX && !is_control(cp))) {
            buf_append(out, text + pos, n);
        }
        pos += n;
    }
}

/* --- wrapping --------------------------------------------------------------------------------- */

static bool is_ideographic(uint32_t cp)
{
    return (cp >= 0x2E80 && cp <= 0x303F) || (cp >= 0x3041 && cp <= 0x33FF) ||
           (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0xA4CF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0xFE30 && cp <= 0xFE4F) ||
           (cp >= 0xFF01 && cp <= 0xFF9F) || (cp >= 0x1F300 && cp <= 0x1FAFF) ||
           (cp >= 0x20000 && cp <= 0x3FFFD);
}

static bool contains(const uint32_t *codes, size_t n, uint32_t cp)
{
    for (size_t i = 0; i < n; i++)
        if (codes[i] == cp) return true;
    return false;
}

/* Closing punctuation, small kana and iteration marks stay with what is before them. */
static bool never_starts_line(uint32_t cp)
{
    static const uint32_t codes[] = {
        0x3001, 0x3002, 0x3005, 0x3009, 0x300B, 0x300D, 0x300F, 0x3011, 0x3015, 0x3017, 0x3019,
        0x301F, 0x3041, 0x3043, 0x3045, 0x3047, 0x3049, 0x3063, 0x3083, 0x3085, 0x3087, 0x309D,
        0x309E, 0x30A1, 0x30A3, 0x30A5, 0x30A7, 0x30A9, 0x30C3, 0x30E3, 0x30E5, 0x30E7, 0x30FB,
        0x30FC, 0x30FD, 0x30FE, 0xFF01, 0xFF09, 0xFF0C, 0xFF0E, 0xFF1A, 0xFF1B, 0xFF1F, 0xFF3D,
        0xFF5D, 0xFF61, 0xFF63, 0xFF64, 0xFF70, '!',    ')',    ',',    '.',    ':',    ';',
        '?',    ']',    '}',    0x2019, 0x201D, 0x2026, 0x00BB, '%',    0x2014,
    };
    return contains(codes, sizeof codes / sizeof *codes, cp);
}

static bool never_ends_line(uint32_t cp)
{
    static const uint32_t codes[] = {
        0x3008, 0x300A, 0x300C, 0x300E, 0x3010, 0x3014, 0x3016, 0x3018, 0x301D, 0xFF08,
        0xFF3B, 0xFF5B, 0xFF62, '(',    '[',    '{',    0x2018, 0x201C, 0x00AB, 0xFF04,
    };
    return contains(codes, sizeof codes / sizeof *codes, cp);
}

static bool is_word_char(uint32_t cp)
{
    return cp > 0x7F || (cp >= '0' && cp <= '9') || ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z');
}

static bool is_space(uint32_t cp)
{
    return cp == ' ' || cp == '\t' || (cp >= 0x2000 && cp <= 0x200A && cp != 0x2007) ||
           cp == 0x3000;
}

/* May a line break stand between two characters that no space divides? */
static bool may_break(uint32_t before_prev, uint32_t prev, uint32_t next)
{
    if ((prev == '-' || prev == '/') && is_word_char(before_prev) && is_word_char(next))
        return true;
    if (never_starts_line(next) || never_ends_line(prev)) return false;
    return is_ideographic(prev) || is_ideographic(next);
}

static void add_line(text_lines *l, size_t start, size_t len, int width, bool hard)
{
    if (l->len == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->lines = xrealloc_array(l->lines, l->cap, sizeof *l->lines);
    }
    l->lines[l->len++] = (text_line){.start = start, .len = len, .width = width, .hard = hard};
}

/* Where a line's content ends and the next line begins. */
typedef struct {
    size_t end, next;
    int width;
    bool hard, last;
} line_end;

/* Finds the end of the line that begins at start. */
static line_end find_line_end(const char *text, size_t len, size_t start, int width)
{
    line_end best = {0};
    bool have_break = false;
    size_t solid_end = start; /* after the last cluster that is no space */
    int col = 0, solid_col = 0;
    uint32_t prev = 0, before_prev = 0;
    for (size_t pos = start; pos < len;) {
        uint32_t cp;
        decode(text + pos, len - pos, &cp);
        if (cp == '\n')
            return (line_end){.end = solid_end, .next = pos + 1, .width = solid_col, .hard = true};
        text_cluster c = text_next(text + pos, len - pos);
        if (is_space(cp)) {
            col += cp == '\t' ? TEXT_TAB - col % TEXT_TAB : c.width;
        } else {
            bool after_space = pos > start && is_space(prev) && solid_end > start;
            if (after_space ||
                (pos > start && solid_end == pos && may_break(before_prev, prev, cp))) {
                best = (line_end){.end = solid_end, .next = pos, .width = solid_col};
                have_break = true;
            }
            if (col + c.width > width && pos > start) {
                if (have_break) return best;
                return (line_end){.end = solid_end, .next = pos, .width = solid_col};
            }
            col += c.width;
            solid_end = pos + c.len;
            solid_col = col;
        }
        before_prev = prev;
        prev = cp;
        pos += c.len;
    }
    return (line_end){.end = solid_end, .next = len, .width = solid_col, .last = true};
}

void text_wrap(text_lines *l, const char *text, size_t len, int width)
{
    if (width < 1) width = 1;
    if (width != l->width) l->len = 0;
    l->width = width;
    size_t start = l->len ? l->lines[--l->len].start : 0;
    for (;;) {
        line_end e = find_line_end(text, len, start, width);
        add_line(l, start, e.end - start, e.width, e.hard);
        if (e.last) return;
        start = e.next;
    }
}

size_t text_line_at(const text_lines *l, size_t byte)
{
    size_t low = 0, high = l->len - 1;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (l->lines[middle].start <= byte)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void text_rewrap(text_lines *l, const char *text, size_t from, size_t removed, size_t added)
{
    if (l->len == 0) return;
    size_t first = text_line_at(l, from), rest = first + 1, delta = added - removed; /* modulo */
    while (first > 0 && !l->lines[first - 1].hard)
        first--;
    while (rest < l->len && !(l->lines[rest - 1].hard && l->lines[rest].start > from + removed))
        rest++;
    size_t n_rest = l->len - rest, start = l->lines[first].start;
    if (n_rest == 0) { /* the end of the text is in it: text_wrap does this part */
        l->len = first + 1;
        l->lines[first].hard = false;
        return;
    }
    text_line *tail = xcalloc(n_rest, sizeof *tail);
    memcpy(tail, l->lines + rest, n_rest * sizeof *tail);
    size_t end = tail[0].start + delta;
    l->len = first;
    while (start < end) {
        line_end e = find_line_end(text, end, start, l->width);
        add_line(l, start, e.end - start, e.width, e.hard);
        start = e.next;
    }
    for (size_t i = 0; i < n_rest; i++)
        add_line(l, tail[i].start + delta, tail[i].len, tail[i].width, tail[i].hard);
    free(tail);
}

void text_lines_reset(text_lines *l)
{
    l->len = 0;
}

void text_lines_free(text_lines *l)
{
    free(l->lines);
    *l = (text_lines){0};
}
