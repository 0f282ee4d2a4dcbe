#include "ui/layout.h"

#include "base/err.h"

#include <stdint.h>

static int new_node(layout *l)
{
    for (int i = 0; i < LAYOUT_MAX_NODES; i++) {
        if (l->used[i]) continue;
        l->used[i] = true;
        l->nodes[i] = (layout_node){.parent = -1};
        return i;
    }
    die("no room for a pane in the layout");
}

static int free_nodes(const layout *l)
{
    int n = 0;
    for (int i = 0; i < LAYOUT_MAX_NODES; i++)
        n += !l->used[i];
    return n;
}

int layout_add_leaf(layout *l, int pane)
{
    if (free_nodes(l) == 0) return -1;
    l->root = new_node(l);
    l->nodes[l->root].pane = pane;
    return l->root;
}

int layout_add_split(layout *l, layout_kind kind, int share, int first, int second)
{
    if (free_nodes(l) == 0) return -1;
    l->root = new_node(l);
    l->nodes[l->root] =
        (layout_node){.kind = kind, .share = share, .first = first, .second = second, .parent = -1};
    l->nodes[first].parent = l->nodes[second].parent = l->root;
    return l->root;
}

static int find_leaf(const layout *l, int pane)
{
    for (int i = 0; i < LAYOUT_MAX_NODES; i++)
        if (l->used[i] && l->nodes[i].kind == LAYOUT_LEAF && l->nodes[i].pane == pane) return i;
    die("pane %d is not in the layout", pane);
}

void layout_init(layout *l, int pane)
{
    *l = (layout){0};
    l->root = new_node(l);
    l->nodes[l->root].pane = pane;
}

/* Panes that stand one after another in the direction of kind. */
static int span(const layout *l, int node, layout_kind kind)
{
    const layout_node *n = &l->nodes[node];
    if (n->kind != kind) return 1;
    return span(l, n->first, kind) + span(l, n->second, kind);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* The least columns (kind BESIDE) or rows (BELOW) that the panes under a node can do with. */
static int least(const layout *l, int node, layout_kind kind)
{
    const layout_node *n = &l->nodes[node];
    if (n->kind == LAYOUT_LEAF) return kind == LAYOUT_BESIDE ? LAYOUT_MIN_COLS : LAYOUT_MIN_ROWS;
    int first = least(l, n->first, kind), second = least(l, n->second, kind);
    return n->kind == kind ? first + second - 1 : larger(first, second);
}

/* Where the line of a split stands in an extent of size cells, counted from its beginning. */
static int line_of(const layout *l, const layout_node *n, int size)
{
    int first = span(l, n->first, n->kind), all = first + span(l, n->second, n->kind);
    int at =
        n->share ? (int)((int64_t)(size - 1) * n->share / LAYOUT_WHOLE) : (size - 1) * first / all;
    int low = least(l, n->first, n->kind) - 1, high = size - least(l, n->second, n->kind);
    if (low > high) return at; /* too small for both: each gets its part of too little */
    return at < low ? low : at > high ? high : at;
}

static void place(layout *l, int node, rect r)
{
    layout_node *n = &l->nodes[node];
    n->place = r;
    if (n->kind == LAYOUT_LEAF) return;
    rect a = r, b = r;
    if (n->kind == LAYOUT_BESIDE) { /* the column between belongs to both */
        int at = line_of(l, n, r.w);
        a.w = at + 1;
        b.x = r.x + at;
        b.w = r.w - at;
    } else {
        int at = line_of(l, n, r.h);
        a.h = at + 1;
        b.y = r.y + at;
        b.h = r.h - at;
    }
    place(l, n->first, a);
    place(l, n->second, b);
}

void layout_place(layout *l, rect whole)
{
    place(l, l->root, whole);
}

rect layout_rect(const layout *l, int pane)
{
    return l->nodes[find_leaf(l, pane)].place;
}

static bool all_fit(const layout *l)
{
    for (int i = 0; i < LAYOUT_MAX_NODES; i++) {
        const layout_node *n = &l->nodes[i];
        if (l->used[i] && n->kind == LAYOUT_LEAF &&
            (n->place.w < LAYOUT_MIN_COLS || n->place.h < LAYOUT_MIN_ROWS))
            return false;
    }
    return true;
}

bool layout_split(layout *l, int pane, layout_kind kind, int added)
{
    if (layout_count(l) >= LAYOUT_MAX_PANES) return false;
    layout before = *l;
    rect whole = l->nodes[l->root].place;
    int leaf = find_leaf(l, pane), split = new_node(l), fresh = new_node(l);
    l->nodes[split] = (layout_node){
        .kind = kind, .first = leaf, .second = fresh, .parent = l->nodes[leaf].parent};
    l->nodes[fresh] = (layout_node){.kind = LAYOUT_LEAF, .pane = added, .parent = split};
    int parent = l->nodes[leaf].parent;
    if (parent < 0)
        l->root = split;
    else if (l->nodes[parent].first == leaf)
        l->nodes[parent].first = split;
    else
        l->nodes[parent].second = split;
    l->nodes[leaf].parent = split;
    layout_place(l, whole);
    if (all_fit(l)) return true;
    *l = before;
    return false;
}

bool layout_remove(layout *l, int pane)
{
    int leaf = find_leaf(l, pane), split = l->nodes[leaf].parent;
    if (split < 0) return false;
    rect whole = l->nodes[l->root].place;
    const layout_node *s = &l->nodes[split];
    int other = s->first == leaf ? s->second : s->first, parent = s->parent;
    l->nodes[other].parent = parent;
    if (parent < 0)
        l->root = other;
    else if (l->nodes[parent].first == split)
        l->nodes[parent].first = other;
    else
        l->nodes[parent].second = other;
    l->used[leaf] = l->used[split] = false;
    layout_place(l, whole);
    return true;
}

/* --- moving lines ----------------------------------------------------------------------------- */

int layout_line_at(const layout *l, int x, int y)
{
    for (int i = 0; i < LAYOUT_MAX_NODES; i++) {
        const layout_node *n = &l->nodes[i];
        if (!l->used[i] || n->kind == LAYOUT_LEAF) continue;
        const rect *r = &n->place, *second = &l->nodes[n->second].place;
        bool across = n->kind == LAYOUT_BESIDE ? x == second->x && y >= r->y && y < r->y + r->h
                                               : y == second->y && x >= r->x && x < r->x + r->w;
        if (across) return i;
    }
    return -1;
}

bool layout_move_line(layout *l, int split, int x, int y)
{
    layout_node *n = &l->nodes[split];
    if (!l->used[split] || n->kind == LAYOUT_LEAF) return false;
    bool beside = n->kind == LAYOUT_BESIDE;
    int size = beside ? n->place.w : n->place.h;
    int at = beside ? x - n->place.x : y - n->place.y;
    int low = least(l, n->first, n->kind) - 1, high = size - least(l, n->second, n->kind);
    if (size < 2 || low > high) return false;
    at = at < low ? low : at > high ? high : at;
    if (at == line_of(l, n, size)) return false;
    /* Rounded up, so that the line is at this cell again when it is placed. */
    n->share = (int)(((int64_t)at * LAYOUT_WHOLE + size - 2) / (size - 1));
    place(l, split, n->place);
    return true;
}

bool layout_move_edge(layout *l, int pane, int dx, int dy)
{
    layout_kind kind = dx ? LAYOUT_BESIDE : LAYOUT_BELOW;
    int left_or_above = -1;
    for (int node = find_leaf(l, pane), up; (up = l->nodes[node].parent) >= 0; node = up) {
        const layout_node *n = &l->nodes[up];
        if (n->kind != kind) continue;
        const rect *second = &l->nodes[n->second].place;
        if (n->first == node) return layout_move_line(l, up, second->x + dx, second->y + dy);
        if (left_or_above < 0) left_or_above = up;
    }
    if (left_or_above < 0) return false;
    const rect *second = &l->nodes[l->nodes[left_or_above].second].place;
    return layout_move_line(l, left_or_above, second->x + dx, second->y + dy);
}

void layout_equal(layout *l)
{
    for (int i = 0; i < LAYOUT_MAX_NODES; i++)
        l->nodes[i].share = 0;
    layout_place(l, l->nodes[l->root].place);
}

/* --- finding panes ---------------------------------------------------------------------------- */

int layout_at(const layout *l, int x, int y)
{
    int found = -1;
    for (int i = 0; i < LAYOUT_MAX_NODES; i++) {
        const rect *r = &l->nodes[i].place, *best = found < 0 ? r : &l->nodes[found].place;
        if (!l->used[i] || l->nodes[i].kind != LAYOUT_LEAF || x < r->x || x >= r->x + r->w ||
            y < r->y || y >= r->y + r->h)
            continue;
        if (found < 0 || r->y > best->y || (r->y == best->y && r->x > best->x)) found = i;
    }
    return found < 0 ? -1 : l->nodes[found].pane;
}

int layout_neighbour(const layout *l, int pane, int dx, int dy)
{
    rect r = layout_rect(l, pane);
    /* Just before the middle: of two neighbours whose line is there, the first. */
    int x = dx < 0 ? r.x - 1 : dx > 0 ? r.x + r.w : r.x + (r.w - 2) / 2;
    int y = dy < 0 ? r.y - 1 : dy > 0 ? r.y + r.h : r.y + (r.h - 2) / 2;
    return layout_at(l, x, y);
}

static int walk(const layout *l, int node, int *panes, int n)
{
    const layout_node *at = &l->nodes[node];
    if (at->kind != LAYOUT_LEAF) return walk(l, at->second, panes, walk(l, at->first, panes, n));
    panes[n] = at->pane;
    return n + 1;
}

int layout_order(const layout *l, int panes[LAYOUT_MAX_PANES])
{
    return walk(l, l->root, panes, 0);
}

int layout_count(const layout *l)
{
    int panes[LAYOUT_MAX_PANES];
    return layout_order(l, panes);
}

int layout_next(const layout *l, int pane)
{
    int panes[LAYOUT_MAX_PANES], n = layout_order(l, panes);
    for (int i = 0; i < n; i++)
        if (panes[i] == pane) return panes[(i + 1) % n];
    return panes[0];
}
