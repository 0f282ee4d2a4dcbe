/* theme: how the styles of cells look. Colours are the terminal's first sixteen, so that a theme
 * goes with the person's own palette; on a terminal with eight the bright ones become bold, on one
 * without colours only bold, dim, reverse and underline are left.
 *
 * Themes: dark and light for such grounds, high-contrast (its own black ground, no dim text), mono
 * (no colours), and auto: light or dark as $COLORFGBG says, dark where it says nothing, mono where
 * $NO_COLOR is set. */
#ifndef PF_UI_THEME_H
#define PF_UI_THEME_H

#include "ui/grid.h"

#define THEME_DEFAULT_COLOR (-1)

typedef struct {
    int8_t foreground, background; /* 0..15 or THEME_DEFAULT_COLOR */
    bool bold, dim, reverse, underline;
} look;

typedef struct {
    look looks[STYLE_COUNT];
} theme;

/* "auto", "dark", ...; NULL-terminated. */
extern const char *const theme_names[];

/* The chosen theme, made for a terminal with this many colours. The pointer stays good; what it
 * points to follows theme_choose. */
const theme *theme_for_terminal(int colors);
/* Chooses by name ("auto" at first); false if there is none, nothing is changed. What is on the
 * screen has to be drawn anew. */
bool theme_choose(const char *name);
const char *theme_chosen(void);

#endif
