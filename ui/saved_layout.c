#include "ui/saved_layout.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "preft layout 1"

void saved_layout_free(saved_layout *s)
{
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        free(s->panes[i].user);
    *s = (saved_layout){0};
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_node(const saved_layout *s, int node, buf *out)
{
    const layout_node *n = &s->layout.nodes[node];
    if (n->kind == LAYOUT_LEAF) {
        buf_printf(out, "pane %lld", (long long)s->panes[n->pane].conversation);
        if (s->panes[n->pane].user) buf_printf(out, " %s", s->panes[n->pane].user);
        buf_putc(out, '\n');
        return;
    }
    buf_printf(out, "%s %d\n", n->kind == LAYOUT_BESIDE ? "beside" : "below", n->share);
    write_node(s, n->first, out);
    write_node(s, n->second, out);
}

void saved_layout_write(const saved_layout *s, buf *out)
{
    int panes[LAYOUT_MAX_PANES], n = layout_order(&s->layout, panes), focus = 0;
    for (int i = 0; i < n; i++)
        if (panes[i] == s->focus) focus = i;
    buf_printf(out, HEADER "\nfocus %d\nzoomed %d\n", focus, s->zoomed);
    write_node(s, s->layout.root, out);
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct {
    const char *at, *end, *name;
    int line, panes;
    saved_layout *out;
    pf_err *err;
} reader;

static pf_status bad(const reader *r)
{
    return err_set(r->err, PF_REFUSED, "%s, line %d: this is no saved layout", r->name, r->line);
}

/* The next line without its end; false when there is none. */
static bool next_line(reader *r, const char **line, size_t *len)
{
    if (r->at >= r->end) return false;
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!stop) stop = r->end;
    *line = r->at;
    *len = (size_t)(stop - r->at);
    r->at = stop < r->end ? stop + 1 : stop;
    r->line++;
    return true;
}

/* "WORD NUMBER" at the beginning of a line; the bytes they take, 0 if they aren't there. */
static size_t word_number(const char *line, size_t len, const char *word, int64_t most,
                          int64_t *out)
{
    size_t n = strlen(word), at = n + 1;
    if (len < n + 2 || memcmp(line, word, n) != 0 || line[n] != ' ') return 0;
    int64_t value = 0;
    for (; at < len && isdigit((unsigned char)line[at]); at++) {
        value = value * 10 + (line[at] - '0');
        if (value > most) return 0;
    }
    if (at == n + 1) return 0;
    *out = value;
    return at;
}

static pf_status read_head(reader *r, const char *word, int64_t most, int64_t *out)
{
    const char *line;
    size_t len;
    if (!next_line(r, &line, &len) || word_number(line, len, word, most, out) != len) return bad(r);
    return PF_OK;
}

static pf_status read_leaf(reader *r, const char *line, size_t len, size_t used, int64_t id,
                           int *node)
{
    if (r->panes == LAYOUT_MAX_PANES) return bad(r);
    int pane = r->panes++;
    if (used < len) {
        if (line[used] != ' ' || used + 1 == len || memchr(line, '\0', len) ||
            !utf8_valid(line + used + 1, len - used - 1))
            return bad(r);
        r->out->panes[pane].user = xmemdup0(line + used + 1, len - used - 1);
    }
    r->out->panes[pane].conversation = id;
    *node = layout_add_leaf(&r->out->layout, pane);
    return *node < 0 ? bad(r) : PF_OK;
}

/* depth: splits above it; a tree of so many panes has fewer. */
static pf_status read_node(reader *r, int depth, int *node)
{
    const char *line;
    size_t len, used;
    int64_t number;
    if (depth >= LAYOUT_MAX_PANES || !next_line(r, &line, &len)) return bad(r);
    used = word_number(line, len, "pane", INT64_MAX / 16, &number);
    if (used) return read_leaf(r, line, len, used, number, node);
    layout_kind kind = LAYOUT_BESIDE;
    used = word_number(line, len, "beside", LAYOUT_WHOLE - 1, &number);
    if (!used) {
        kind = LAYOUT_BELOW;
        used = word_number(line, len, "below", LAYOUT_WHOLE - 1, &number);
    }
    if (used == 0 || used != len) return bad(r);
    int first, second;
    pf_status status = read_node(r, depth + 1, &first);
    if (status == PF_OK) status = read_node(r, depth + 1, &second);
    if (status != PF_OK) return status;
    *node = layout_add_split(&r->out->layout, kind, (int)number, first, second);
    return *node < 0 ? bad(r) : PF_OK;
}

pf_status saved_layout_parse(const char *text, size_t len, const char *name, saved_layout *out,
                             pf_err *err)
{
    saved_layout read = {0};
    reader r = {.at = text, .end = text + len, .name = name, .out = &read, .err = err};
    const char *line;
    size_t n;
    int64_t focus = 0, zoomed = 0;
    int root;
    pf_status status = PF_OK;
    *out = (saved_layout){0};
    if (!next_line(&r, &line, &n) || n != strlen(HEADER) || memcmp(line, HEADER, n) != 0)
        status = bad(&r);
    if (status == PF_OK) status = read_head(&r, "focus", LAYOUT_MAX_PANES - 1, &focus);
    if (status == PF_OK) status = read_head(&r, "zoomed", 1, &zoomed);
    if (status == PF_OK) status = read_node(&r, 0, &root);
    if (status == PF_OK && (next_line(&r, &line, &n) || focus >= r.panes)) status = bad(&r);
    if (status == PF_OK) {
        read.layout.nodes[root].parent = -1;
        read.focus = (int)focus;
        read.zoomed = zoomed != 0;
        *out = read;
    } else {
        saved_layout_free(&read);
    }
    return status;
}
