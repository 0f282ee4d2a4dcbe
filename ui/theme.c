#include "ui/theme.h"

#include <stdlib.h>
#include <string.h>

enum { RED = 1, GREEN = 2, YELLOW = 3, BLUE = 4, MAGENTA = 5, CYAN = 6 };
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
         [STYLE_HEADING] = {INK(CYAN), .bold = true},
         [STYLE_STRONG] = {PLAIN, .bold = true},
         [STYLE_EMPHASIS] = {PLAIN, .underline = true},
         [STYLE_LINK] = {INK(BLUE), .underline = true},
         [STYLE_MARK] = {INK(CYAN)},
         [STYLE_CODE] = {INK(GREEN)},
         [STYLE_CODE_WORD] = {INK(CYAN)},
         [STYLE_CODE_STRING] = {INK(YELLOW)},
         [STYLE_CODE_NUMBER] = {INK(MAGENTA)},
         [STYLE_CODE_COMMENT] = {PLAIN, .dim = true},
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
         [STYLE_HEADING] = {PLAIN, .bold = true},
         [STYLE_STRONG] = {PLAIN, .bold = true},
         [STYLE_EMPHASIS] = {PLAIN, .underline = true},
         [STYLE_LINK] = {PLAIN, .underline = true},
         [STYLE_MARK] = {PLAIN},
         [STYLE_CODE] = {PLAIN},
         [STYLE_CODE_WORD] = {PLAIN, .bold = true},
         [STYLE_CODE_STRING] = {PLAIN},
         [STYLE_CODE_NUMBER] = {PLAIN},
         [STYLE_CODE_COMMENT] = {PLAIN, .dim = true},
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
