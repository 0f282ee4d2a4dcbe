#include "ui/theme.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { THEME_AUTO, THEME_DARK, THEME_LIGHT, THEME_CONTRAST, THEME_MONO };
const char *const theme_names[] = {"auto", "dark", "light", "high-contrast", "mono", NULL};

/* Words: a colour, "bright-" and a colour, "on-" and a colour (the ground), bold, dim, reverse,
 * underline. A style without a row looks like text. */
static const struct {
    const char *dark, *light, *contrast, *mono;
} rows[STYLE_COUNT] = {
    [STYLE_TEXT] = {"", "", "bright-white on-black", ""},
    [STYLE_DIM] = {"dim", "dim", "bright-white on-black", ""},
    [STYLE_TITLE] = {"bold", "bold", "bright-white on-black bold", "bold"},
    [STYLE_BORDER] = {"dim", "dim", "bright-white on-black", ""},
    [STYLE_BORDER_ACTIVE] = {"cyan bold", "blue bold", "bright-yellow on-black bold", "bold"},
    [STYLE_SPEAKER] = {"cyan bold", "blue bold", "bright-cyan on-black bold", "bold"},
    [STYLE_NOTICE] = {"bright-blue", "blue", "bright-cyan on-black", ""},
    [STYLE_ERROR] = {"bright-red bold", "red bold", "black on-bright-red bold", "bold"},
    [STYLE_SELECTED] = {"reverse", "reverse", "black on-bright-yellow bold", "reverse"},
    [STYLE_FIELD] = {"underline", "underline", "bright-white on-black underline", "underline"},
    [STYLE_KEY] = {"yellow", "magenta", "bright-yellow on-black", "bold"},
    [STYLE_STATUS] = {"dim", "dim", "bright-white on-black", ""},
    [STYLE_GOOD] = {"green", "green", "bright-green on-black bold", "bold"},
    [STYLE_HEADING] = {"cyan bold", "blue bold", "bright-cyan on-black bold", "bold"},
    [STYLE_STRONG] = {"bold", "bold", "bright-white on-black bold", "bold"},
    [STYLE_EMPHASIS] = {"underline", "underline", "bright-white on-black underline", "underline"},
    [STYLE_LINK] = {"bright-blue underline", "blue underline", "bright-cyan on-black underline",
                    "underline"},
    [STYLE_MARK] = {"cyan", "blue", "bright-yellow on-black", ""},
    [STYLE_CODE] = {"bright-white", "", "bright-white on-black", ""},
    [STYLE_CODE_WORD] = {"magenta", "magenta", "bright-magenta on-black bold", "bold"},
    [STYLE_CODE_STRING] = {"green", "green", "bright-green on-black", ""},
    [STYLE_CODE_NUMBER] = {"cyan", "cyan", "bright-cyan on-black", ""},
    [STYLE_CODE_COMMENT] = {"dim", "dim", "bright-white on-black", ""},
};

static struct {
    theme looks;
    int chosen, colors;
} now;

/* --- reading the words ------------------------------------------------------------------------ */

static int color_of(const char *word, size_t len)
{
    static const char *const names[] = {"black", "red",     "green", "yellow",
                                        "blue",  "magenta", "cyan",  "white"};
    bool bright = len > 7 && memcmp(word, "bright-", 7) == 0;
    if (bright) {
        word += 7;
        len -= 7;
    }
    for (int i = 0; i < 8; i++)
        if (strlen(names[i]) == len && memcmp(names[i], word, len) == 0) return i + 8 * bright;
    return THEME_DEFAULT_COLOR;
}

static void read_word(const char *word, size_t len, look *out)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"bold", &out->bold},
                 {"dim", &out->dim},
                 {"reverse", &out->reverse},
                 {"underline", &out->underline}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strlen(flags[i].name) == len && memcmp(flags[i].name, word, len) == 0) {
            *flags[i].flag = true;
            return;
        }
    bool ground = len > 3 && memcmp(word, "on-", 3) == 0;
    int color = color_of(word + 3 * ground, len - 3 * ground);
    PF_ASSERT(color != THEME_DEFAULT_COLOR);
    *(ground ? &out->background : &out->foreground) = (int8_t)color;
}

static look read_look(const char *text)
{
    look l = {.foreground = THEME_DEFAULT_COLOR, .background = THEME_DEFAULT_COLOR};
    for (; text && *text; text += strspn(text, " ")) {
        size_t len = strcspn(text, " ");
        read_word(text, len, &l);
        text += len;
    }
    return l;
}

/* --- choosing --------------------------------------------------------------------------------- */

/* "15;0": foreground; background. Some terminals put a word between them. */
static bool ground_is_light(void)
{
    const char *colors = getenv("COLORFGBG");
    const char *last = colors ? strrchr(colors, ';') : NULL;
    return last && (strcmp(last, ";7") == 0 || strcmp(last, ";15") == 0);
}

static int resolved(void)
{
    const char *no_color = getenv("NO_COLOR");
    if (now.chosen != THEME_AUTO) return now.chosen;
    if (no_color && *no_color) return THEME_MONO;
    return ground_is_light() ? THEME_LIGHT : THEME_DARK;
}

static void fit_to_terminal(look *l)
{
    if (now.colors >= 16) return;
    if (l->foreground >= 8) {
        l->foreground = (int8_t)(l->foreground - 8);
        l->bold = true;
    }
    if (l->background >= 8) l->background = (int8_t)(l->background - 8);
}

static void make_looks(void)
{
    int chosen = now.colors < 8 ? THEME_MONO : resolved();
    for (int s = 0; s < STYLE_COUNT; s++) {
        const char *const words[] = {[THEME_DARK] = rows[s].dark,
                                     [THEME_LIGHT] = rows[s].light,
                                     [THEME_CONTRAST] = rows[s].contrast,
                                     [THEME_MONO] = rows[s].mono};
        const char *text = words[chosen];
        if (!text && chosen == THEME_CONTRAST) text = rows[STYLE_TEXT].contrast;
        now.looks.looks[s] = read_look(text);
        fit_to_terminal(&now.looks.looks[s]);
    }
}

const theme *theme_for_terminal(int colors)
{
    now.colors = colors;
    make_looks();
    return &now.looks;
}

bool theme_choose(const char *name)
{
    for (int i = 0; theme_names[i]; i++) {
        if (strcmp(theme_names[i], name) != 0) continue;
        now.chosen = i;
        make_looks();
        return true;
    }
    return false;
}

const char *theme_chosen(void)
{
    return theme_names[now.chosen];
}
