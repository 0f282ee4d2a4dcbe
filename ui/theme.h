/* theme: how the styles of cells look. Colours are the terminal's first sixteen, so that a theme
 * goes with the person's own palette, on dark and light grounds. */
#ifndef PF_UI_THEME_H
#define PF_UI_THEME_H

#include "ui/grid.h"

#define THEME_DEFAULT_COLOR (-1)

typedef struct {
    int8_t foreground, background; /* 0..15 or THEME_DEFAULT_COLOR */
    bool bold, dim, reverse, underline;
} look;

typedef struct {
    const char *name;
    look looks[STYLE_COUNT];
} theme;

/* By name ("default", "mono"); NULL if there is none. */
const theme *theme_find(const char *name);
/* The theme for a terminal with this many colours (NO_COLOR asks for none). */
const theme *theme_for_terminal(int colors);

#endif
