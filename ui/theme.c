#include "ui/theme.h"

#include <stdlib.h>
#include <string.h>

enum { RED = 1, GREEN = 2, YELLOW = 3, BLUE = 4, CYAN = 6 };
#define INK(color) .foreground = (color), .background = THEME_DEFAULT_COLOR
#define PLAIN      INK(THEME_DEFAULT_COLOR)

static const theme themes[] = {
    {"default",
     {
         [STYLE_TEXT] = {PLAIN},
         [STYLE_DIM] = {PLAIN, .dim = true},
         [STYLE_TITLE] = {PLAIN, .bold = true},
         [STYLE_BORDER] = {PLAIN, .dim = true},
         [STYLE_BORDER_ACTIVE] = {INK(CYAN), .bold = true},
         [STYLE_SPEAKER] = {INK(CYAN), .bold = true},
         [STYLE_NOTICE] = {INK(BLUE)},
         [STYLE_ERROR] = {INK(RED), .bold = true},
         [STYLE_SELECTED] = {PLAIN, .reverse = true},
         [STYLE_FIELD] = {PLAIN, .underline = true},
         [STYLE_KEY] = {INK(YELLOW)},
         [STYLE_STATUS] = {PLAIN, .dim = true},
         [STYLE_GOOD] = {INK(GREEN)},
     }},
    {"mono",
     {
         [STYLE_TEXT] = {PLAIN},
         [STYLE_DIM] = {PLAIN},
         [STYLE_TITLE] = {PLAIN, .bold = true},
         [STYLE_BORDER] = {PLAIN},
         [STYLE_BORDER_ACTIVE] = {PLAIN, .bold = true},
         [STYLE_SPEAKER] = {PLAIN, .bold = true},
         [STYLE_NOTICE] = {PLAIN},
         [STYLE_ERROR] = {PLAIN, .bold = true},
         [STYLE_SELECTED] = {PLAIN, .reverse = true},
         [STYLE_FIELD] = {PLAIN, .underline = true},
         [STYLE_KEY] = {PLAIN, .bold = true},
         [STYLE_STATUS] = {PLAIN},
         [STYLE_GOOD] = {PLAIN},
     }},
};

const theme *theme_find(const char *name)
{
    for (size_t i = 0; i < sizeof themes / sizeof *themes; i++)
        if (strcmp(themes[i].name, name) == 0) return &themes[i];
    return NULL;
}

const theme *theme_for_terminal(int colors)
{
    const char *no_color = getenv("NO_COLOR");
    bool mono = colors < 8 || (no_color && *no_color);
    return theme_find(mono ? "mono" : "default");
}
