/* layout: the arrangement of panes. A tree of splits; leaves are panes by number. A split divides
 * its rectangle equally among the panes below it until its line is moved; from then on it keeps the
 * proportion. Neighbours share the line between them. Pure: no drawing, no panes. */
#ifndef PF_UI_LAYOUT_H
#define PF_UI_LAYOUT_H

#include <stdbool.h>

#define LAYOUT_MAX_PANES 8
#define LAYOUT_MAX_NODES (2 * LAYOUT_MAX_PANES)
#define LAYOUT_WHOLE     10000
/* The smallest pane, its border included. */
#define LAYOUT_MIN_COLS 20
#define LAYOUT_MIN_ROWS 6

typedef struct {
    int x, y, w, h; /* the border included */
} rect;

typedef enum { LAYOUT_LEAF, LAYOUT_BESIDE, LAYOUT_BELOW } layout_kind;

typedef struct {
    layout_kind kind;
    int pane;          /* leaf: the pane's number */
    int first, second; /* split: nodes; first is left or above */
    int parent;        /* -1: the root */
    int share;         /* split: what first gets, of LAYOUT_WHOLE; 0: equal parts */
    rect place;
} layout_node;

typedef struct {
    layout_node nodes[LAYOUT_MAX_NODES];
    bool used[LAYOUT_MAX_NODES];
    int root;
} layout;

/* One pane that fills everything. */
void layout_init(layout *l, int pane);
/* Gives the panes their places in whole. */
void layout_place(layout *l, rect whole);
rect layout_rect(const layout *l, int pane);
/* Splits a pane: the new one is beside (to the right) or below. False when a pane would then be
 * smaller than the smallest in the rectangle of the last layout_place; nothing is changed. */
bool layout_split(layout *l, int pane, layout_kind kind, int added);
/* Takes a pane away; its neighbour gets the room. False for the last one. */
bool layout_remove(layout *l, int pane);
/* The split whose line is at a cell, or -1. */
int layout_line_at(const layout *l, int x, int y);
/* Moves the line of a split to column x or row y, or as near as the smallest panes allow; true if
 * it moved. */
bool layout_move_line(layout *l, int split, int x, int y);
/* Moves the pane's edge by dx columns or dy rows (one of them 0): the line between it and its
 * neighbour, to the right or below where there is one. False where there is none or no room. */
bool layout_move_edge(layout *l, int pane, int dx, int dy);
/* Equal parts again. */
void layout_equal(layout *l);

/* The neighbour in a direction (dx, dy one of -1, 0, 1) of the pane's middle, or -1. */
int layout_neighbour(const layout *l, int pane, int dx, int dy);
/* The next pane in reading order, after the last the first. */
int layout_next(const layout *l, int pane);
/* The pane at a cell, or -1. A line belongs to the pane below it (whose title is in it), or to the
 * one to its right. */
int layout_at(const layout *l, int x, int y);
int layout_count(const layout *l);
/* Panes in reading order (as the tree goes); returns how many. */
int layout_order(const layout *l, int panes[LAYOUT_MAX_PANES]);

/* For building one from the outside (a saved layout): a leaf or a split of two nodes; the index of
 * the node, or -1 when there is no room. The last one made is the root. */
int layout_add_leaf(layout *l, int pane);
int layout_add_split(layout *l, layout_kind kind, int share, int first, int second);

#endif
