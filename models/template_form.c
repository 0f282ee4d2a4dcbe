#include "models/template_form.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* --- tokens of an expression or statement ----------------------------------------------------- */

typedef enum { TOKEN_WORD, TOKEN_STRING, TOKEN_OPERATOR } token_type;

typedef struct {
    token_type type;
    size_t start, len; /* in token_list.text; strings are stored unescaped */
} form_token;

typedef struct {
    form_token *items;
    size_t n, cap;
    buf text;
} token_list;

static void token_push(token_list *l, token_type type, const char *text, size_t len)
{
    if (l->n == l->cap) {
        l->cap = l->cap * 2 + 32;
        l->items = xrealloc_array(l->items, l->cap, sizeof *l->items);
    }
    l->items[l->n++] = (form_token){type, l->text.len, len};
    buf_append(&l->text, text, len);
}

static bool token_is(const token_list *l, size_t i, const char *text)
{
    const form_token *t = &l->items[i];
    return i < l->n && t->type != TOKEN_STRING && t->len == strlen(text) &&
           memcmp(l->text.data + t->start, text, t->len) == 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Reads the string literal at p; returns its length in the source, 0 if it is cut or has an escape
 * that is not known. */
static size_t read_string(const char *p, size_t len, token_list *l)
{
    static const char escapes[] = "n\nt\tr\r\\\\'\'\"\"";
    size_t i = 1;
    token_push(l, TOKEN_STRING, "", 0);
    for (; i < len && p[i] != p[0]; i++) {
        char c = p[i];
        if (c == '\\') {
            if (++i == len) return 0;
            const char *e = escapes;
            while (*e && *e != p[i])
                e += 2;
            if (!*e) return 0;
            c = e[1];
        }
        buf_putc(&l->text, c);
        l->items[l->n - 1].len++;
    }
    return i < len ? i + 1 : 0;
}

static size_t operator_length(const char *p, size_t len)
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t i = 0; len >= 2 && i < sizeof pairs / sizeof pairs[0]; i++)
        if (memcmp(p, pairs[i], 2) == 0) return 2;
    return 1;
}

/* x['name'] -> x.name: the last three tokens, when the bracket follows a value. */
static void fold_subscript(token_list *l)
{
    if (l->n < 4 || !token_is(l, l->n - 1, "]") || !token_is(l, l->n - 3, "[")) return;
    form_token *name = &l->items[l->n - 2];
    const form_token *before = &l->items[l->n - 4];
    bool value =
        before->type == TOKEN_WORD || token_is(l, l->n - 4, "]") || token_is(l, l->n - 4, ")");
    if (name->type != TOKEN_STRING || name->len == 0 || !value) return;
    for (size_t i = 0; i < name->len; i++)
        if (!is_word(l->text.data[name->start + i])) return;
    form_token word = {TOKEN_WORD, name->start, name->len};
    l->n -= 3;
    token_push(l, TOKEN_OPERATOR, ".", 1);
    token_push(l, TOKEN_WORD, "", 0);
    l->items[l->n - 1] = word;
}

/* Reads tokens up to close ("}}" or "%}", possibly after - or +). Returns the length read, the
 * closing mark included, and whether it trims; 0 if the source is cut. */
static size_t read_tag(const char *p, size_t len, const char *close, token_list *l, bool *trims)
{
    int depth = 0;
    for (size_t i = 0; i < len;) {
        size_t mark = p[i] == '-' || p[i] == '+' ? 1 : 0;
        if (depth == 0 && len - i >= mark + 2 && memcmp(p + i + mark, close, 2) == 0) {
            *trims = p[i] == '-';
            return i + mark + 2;
        }
        size_t n = 1;
        if (is_space(p[i])) {
            i++;
            continue;
        }
        if (p[i] == '\'' || p[i] == '"') {
            n = read_string(p + i, len - i, l);
            if (n == 0) return 0;
        } else if (is_word(p[i])) {
            while (i + n < len && is_word(p[i + n]))
                n++;
            token_push(l, TOKEN_WORD, p + i, n);
        } else {
            n = operator_length(p + i, len - i);
            if (strchr("([{", p[i])) depth++;
            if (strchr(")]}", p[i])) depth--;
            if (depth < 0) return 0;
            token_push(l, TOKEN_OPERATOR, p + i, n);
            fold_subscript(l);
        }
        i += n;
    }
    return 0;
}

/* --- writing the form ------------------------------------------------------------------------- */

typedef struct {
    buf *out;
    buf literal; /* gathered, not yet written */
} form_writer;

static void put_quoted(buf *out, const char *text, size_t len, char quote)
{
    buf_putc(out, quote);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n') {
            buf_puts(out, "\\n");
            continue;
        }
        if (text[i] == quote || text[i] == '\\') buf_putc(out, '\\');
        buf_putc(out, text[i]);
    }
    buf_putc(out, quote);
}

static void flush_literal(form_writer *w)
{
    if (w->literal.len) put_quoted(w->out, w->literal.data, w->literal.len, '"');
    buf_clear(&w->literal);
}

static void put_tokens(buf *out, const token_list *l, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const form_token *t = &l->items[i];
        if (t->type == TOKEN_STRING) {
            put_quoted(out, buf_str(&l->text) + t->start, t->len, '\'');
            continue;
        }
        if (i > from && t->type == TOKEN_WORD && l->items[i - 1].type == TOKEN_WORD)
            buf_putc(out, ' ');
        buf_append(out, l->text.data + t->start, t->len);
    }
}

static bool is_plain_sum(const token_list *l)
{
    static const char *const looser[] = {"if", "else", "or", "and", "not", "in", "is",
                                         "==", "!=",   "<",  ">",   "<=",  ">="};
    int depth = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (token_is(l, i, "(") || token_is(l, i, "[") || token_is(l, i, "{")) depth++;
        if (token_is(l, i, ")") || token_is(l, i, "]") || token_is(l, i, "}")) depth--;
        for (size_t j = 0; depth == 0 && j < sizeof looser / sizeof looser[0]; j++)
            if (token_is(l, i, looser[j])) return false;
    }
    return true;
}

static void put_operand(form_writer *w, const token_list *l, size_t from, size_t to)
{
    if (to - from == 1 && l->items[from].type == TOKEN_STRING) {
        buf_append(&w->literal, buf_str(&l->text) + l->items[from].start, l->items[from].len);
        return;
    }
    flush_literal(w);
    buf_putc(w->out, '{');
    put_tokens(w->out, l, from, to);
    buf_putc(w->out, '}');
}

/* An output expression, cut into the operands of its sum. */
static void put_output(form_writer *w, const token_list *l)
{
    size_t from = 0;
    int depth = 0;
    bool sum = is_plain_sum(l);
    for (size_t i = 0; i < l->n; i++) {
        if (token_is(l, i, "(") || token_is(l, i, "[") || token_is(l, i, "{")) depth++;
        if (token_is(l, i, ")") || token_is(l, i, "]") || token_is(l, i, "}")) depth--;
        if (!sum || depth || i == from || !(token_is(l, i, "+") || token_is(l, i, "~"))) continue;
        put_operand(w, l, from, i);
        from = i + 1;
    }
    put_operand(w, l, from, l->n);
}

static void put_statement(form_writer *w, const token_list *l)
{
    flush_literal(w);
    buf_putc(w->out, '%');
    put_tokens(w->out, l, 0, l->n);
    buf_putc(w->out, '%');
}

/* --- the source ------------------------------------------------------------------------------- */

static size_t find_tag(const char *p, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++)
        if (p[i] == '{' && (p[i + 1] == '{' || p[i + 1] == '%' || p[i + 1] == '#')) return i;
    return len;
}

static size_t find_text(const char *p, size_t len, const char *text)
{
    const char *at = len ? memmem(p, len, text, strlen(text)) : NULL;
    return at ? (size_t)(at - p) : len;
}

/* The text before a tag, less what the tag takes away: with - all blanks; else, before a statement
 * or comment that is first on its line, the blanks of that line. */
static size_t trimmed_text(const char *p, size_t len, char kind, char mark)
{
    size_t n = len;
    if (mark == '-') {
        while (n && is_space(p[n - 1]))
            n--;
        return n;
    }
    if (kind == '{' || mark == '+') return n;
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    return n == 0 || p[n - 1] == '\n' ? n : len;
}

/* Reads the tag at p (its opening mark included). Returns its length, 0 if it is not understood. */
static size_t put_tag(form_writer *w, token_list *l, const char *p, size_t len, bool *trims)
{
    size_t open = len > 2 && (p[2] == '-' || p[2] == '+') ? 3 : 2;
    *trims = false;
    if (p[1] == '#') {
        size_t end = find_text(p + open, len - open, "#}");
        if (end == len - open) return 0;
        *trims = end && p[open + end - 1] == '-';
        return open + end + 2;
    }
    l->n = 0;
    buf_clear(&l->text);
    bool output = p[1] == '{';
    size_t n = read_tag(p + open, len - open, output ? "}}" : "%}", l, trims);
    if (n == 0 || l->n == 0 || token_is(l, 0, "raw")) return 0;
    if (output)
        put_output(w, l);
    else
        put_statement(w, l);
    return open + n;
}

/* Blanks that the tag before takes from the text after it. */
static size_t skip_after(const char *p, size_t len, bool output, bool trims)
{
    size_t n = 0;
    if (trims)
        while (n < len && is_space(p[n]))
            n++;
    else if (!output && len && p[0] == '\n')
        n = 1;
    return n;
}

static bool put_source(form_writer *w, token_list *l, const char *p, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t n = find_tag(p + i, len - i);
        const char *tag = p + i + n;
        size_t rest = len - i - n;
        size_t keep = rest ? trimmed_text(p + i, n, tag[1], rest > 2 ? tag[2] : 0) : n;
        buf_append(&w->literal, p + i, keep);
        if (rest == 0) break;
        bool trims;
        size_t tag_len = put_tag(w, l, tag, rest, &trims);
        if (tag_len == 0) return false;
        i += n + tag_len;
        i += skip_after(p + i, len - i, tag[1] == '{', trims);
    }
    flush_literal(w);
    return true;
}

bool template_form_append(const char *source, size_t len, buf *out)
{
    form_writer w = {.out = out};
    token_list l = {0};
    buf text = {0};
    for (size_t i = 0; i < len; i++) /* line ends as the template engine reads them */
        if (source[i] != '\r' || i + 1 == len || source[i + 1] != '\n') buf_putc(&text, source[i]);
    if (text.len && text.data[text.len - 1] == '\n') text.len--;
    bool ok = put_source(&w, &l, buf_str(&text), text.len);
    buf_free(&text);
    buf_free(&w.literal);
    buf_free(&l.text);
    free(l.items);
    return ok;
}

/* --- the default system text ------------------------------------------------------------------ */

static void append_unescaped(const char *text, size_t len, buf *out)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\' && i + 1 < len) {
            i++;
            buf_putc(out, text[i] == 'n' ? '\n' : text[i]);
        } else {
            buf_putc(out, text[i]);
        }
    }
}

/* True if form[at..at + len) is all of a literal, or of a line of one up to an end marker. */
static bool stands_alone(const buf *form, size_t at, size_t len)
{
    static const char end[] = "<|im_end|>";
    const char *before = form->data + at, *after = before + len;
    size_t rest = form->len - at - len;
    bool starts = at && (before[-1] == '"' || (at > 1 && memcmp(before - 2, "\\n", 2) == 0));
    bool ends = rest && (*after == '"' ||
                         (rest >= sizeof end - 1 && memcmp(after, end, sizeof end - 1) == 0));
    return starts && ends;
}

static void replace_system(buf *form, const char *text, size_t len)
{
    buf out = {0};
    for (size_t i = 0; i < form->len;) {
        bool here = form->len - i >= len && memcmp(form->data + i, text, len) == 0 &&
                    stands_alone(form, i, len);
        buf_putc(&out, here ? '*' : form->data[i]);
        i += here ? len : 1;
    }
    buf_free(form);
    *form = out;
}

bool template_form_take_system(buf *form, buf *text)
{
    static const char open[] = "\"<|im_start|>system\\n", close[] = "<|im_end|>\\n\"";
    size_t at = 0;
    for (;;) {
        at += find_text(buf_str(form) + at, form->len - at, open);
        if (at == form->len) return false;
        const char *start = form->data + at + sizeof open - 1;
        size_t rest = form->len - at - (sizeof open - 1), n = 0;
        while (n < rest && start[n] != '"')
            n += start[n] == '\\' ? 2 : 1;
        size_t len = n + 1 >= sizeof close ? n + 2 - sizeof close : 0;
        if (n < rest && len > 0 && memcmp(start + len, close, sizeof close - 1) == 0) {
            char *system = xmemdup0(start, len);
            append_unescaped(system, len, text);
            replace_system(form, system, len);
            free(system);
            return true;
        }
        at += sizeof open - 1;
    }
}
