#include "ui/slash.h"

#include "base/mem.h"
#include "base/options.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "ui/text.h"
#include "ui/theme.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 8

/* --- reading ---------------------------------------------------------------------------------- */

/* The bytes of the command's word without the slash; -1: text is a message. */
static ptrdiff_t command_word(const char *text)
{
    if (text[0] != '/' || strchr(text, '\n')) return -1;
    size_t len = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz-");
    return text[1 + len] == '\0' || text[1 + len] == ' ' ? (ptrdiff_t)len : -1;
}

static const char *argument_form(action a)
{
    const char *blank = strchr(action_slash(a), ' ');
    return blank ? blank + 1 : "";
}

static pf_status unknown(const char *word, size_t len, pf_err *err)
{
    char *names[ACTION_COUNT] = {0}, *given = xmemdup0(word, len);
    int n = 0;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *slash = action_slash((action)a);
        if (*slash) names[n++] = xmemdup0(slash, strcspn(slash, " "));
    }
    const char *near = nearest_name(given, (const char *const *)names);
    pf_status status =
        near ? err_set(err, PF_USAGE, "No command /%s: did you mean /%s?", given, near)
             : err_set(err, PF_USAGE,
                       "No command /%s. To send it as a message, put a blank before the /.", given);
    while (n)
        free(names[--n]);
    free(given);
    return status;
}

pf_status slash_parse(const char *text, action *a, const char **argument, pf_err *err)
{
    ptrdiff_t len = command_word(text);
    if (len <= 0) return PF_NOT_FOUND;
    *a = action_of_slash(text + 1, (size_t)len);
    if (*a == ACTION_NONE) return unknown(text + 1, (size_t)len, err);
    *argument = text + 1 + len;
    *argument += strspn(*argument, " ");
    const char *form = argument_form(*a);
    if (*form && *form != '[' && !**argument)
        return err_set(err, PF_USAGE, "/%s: the %s is missing.", action_slash(*a), form);
    if (!*form && **argument)
        return err_set(err, PF_USAGE, "/%s stands alone; \"%s\" was left in the draft.",
                       action_slash(*a), *argument);
    return PF_OK;
}

/* --- completions ------------------------------------------------------------------------------ */

static void clear(slash_menu *m)
{
    while (m->n) {
        slash_item *item = &m->items[--m->n];
        wipe_text(item->draft);
        wipe_text(item->label);
    }
    m->selected = m->top = 0;
}

void slash_free(slash_menu *m)
{
    clear(m);
    wipe_text(m->of);
    *m = (slash_menu){0};
}

static void add(slash_menu *m, char *draft, const char *label, const char *description)
{
    if (m->n == SLASH_MOST) {
        free(draft);
        return;
    }
    buf clean = {0};
    text_clean_label(label, strlen(label), &clean);
    m->items[m->n++] =
        (slash_item){.draft = draft, .label = buf_take(&clean), .description = description};
}

static void complete_word(slash_menu *m, const char *word, size_t len)
{
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *slash = action_slash((action)a);
        if (!*slash || strncmp(slash, word, len) != 0) continue;
        char *label = xasprintf("/%s", slash);
        char *draft = xasprintf("/%.*s%s", (int)strcspn(slash, " "), slash,
                                *argument_form((action)a) ? " " : "");
        add(m, draft, label, action_description((action)a));
        free(label);
    }
}

static void complete_value(slash_menu *m, const char *word, const char *begun, const char *value,
                           const char *description)
{
    if (strncasecmp(value, begun, strlen(begun)) != 0) return;
    add(m, xasprintf("/%.*s %s", (int)strcspn(word, " "), word, value), value, description);
}

/* What an argument may be, where that is known. */
static void complete_argument(slash_menu *m, action a, const char *begun, session *s)
{
    const char *word = action_slash(a);
    if (a == ACTION_THEME)
        for (int i = 0; theme_names[i]; i++)
            complete_value(m, word, begun, theme_names[i], "");
    if (a != ACTION_PROFILES || !s) return;
    profile_list list = {0};
    profile_list_load(s, &list, NULL); /* intact ones also when some are damaged */
    for (size_t i = 0; i < list.n; i++)
        complete_value(m, word, begun, list.items[i].name,
                       list.items[i].has_adapter ? "" : "the plain model");
    profile_list_free(&list);
}

void slash_update(slash_menu *m, const editor *e, session *s)
{
    size_t size;
    const char *text = editor_text(e, &size);
    if (m->of && strcmp(m->of, text) == 0) return;
    ptrdiff_t len = command_word(text);
    clear(m);
    m->closed = false;
    if (len < 0) {
        wipe_text(m->of);
        m->of = NULL;
        return;
    }
    wipe_text(m->of);
    m->of = xmemdup0(text, size);
    m->word = (size_t)len;
    const char *rest = text + 1 + len;
    action a = action_of_slash(text + 1, (size_t)len);
    if (!*rest)
        complete_word(m, text + 1, (size_t)len);
    else if (a)
        complete_argument(m, a, rest + strspn(rest, " "), s);
    /* A draft that is complete already needs no menu. */
    if (m->n == 1 && strcmp(m->items[0].draft, text) == 0) clear(m);
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool is_open(const slash_menu *m)
{
    return m->n > 0 && !m->closed;
}

static void take_selected(slash_menu *m, editor *e, session *s)
{
    char *draft = xstrdup(m->items[m->selected].draft);
    editor_set(e, draft, strlen(draft));
    wipe_text(draft);
    slash_update(m, e, s);
}

/* Sending "/loc" means /lock, but "/profile" is left as it is: its argument may stay away. */
static bool finish_word(slash_menu *m, editor *e, session *s)
{
    if (m->of[1 + m->word] || action_of_slash(m->of + 1, m->word)) return false;
    action a = action_of_slash(m->items[m->selected].draft + 1,
                               strcspn(m->items[m->selected].draft + 1, " "));
    take_selected(m, e, s);
    return *argument_form(a) != '\0';
}

bool slash_do(slash_menu *m, editor *e, session *s, action a)
{
    if (!is_open(m)) return a == ACTION_COMPLETE;
    switch (a) {
    case ACTION_COMPLETE:
        take_selected(m, e, s);
        return true;
    case ACTION_UP:
        m->selected = m->selected ? m->selected - 1 : m->n - 1;
        return true;
    case ACTION_DOWN:
        m->selected = m->selected + 1 < m->n ? m->selected + 1 : 0;
        return true;
    case ACTION_STOP:
        m->closed = true;
        return true;
    case ACTION_SEND:
        return finish_word(m, e, s);
    default:
        return false;
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

void slash_draw(slash_menu *m, area a)
{
    if (!is_open(m) || a.h < 1) return;
    int rows = m->n < MOST_ROWS ? m->n : MOST_ROWS, column = 0;
    if (rows > a.h) rows = a.h;
    if (m->top > m->selected) m->top = m->selected;
    if (m->selected >= m->top + rows) m->top = m->selected - rows + 1;
    for (int i = 0; i < m->n; i++) {
        int width = text_width_z(m->items[i].label);
        if (width > column) column = width;
    }
    for (int y = 0; y < rows; y++) {
        const slash_item *item = &m->items[m->top + y];
        bool chosen = m->top + y == m->selected;
        area row = area_sub(a, 0, a.h - rows + y, a.w, 1);
        area_clear(row, chosen ? STYLE_SELECTED : STYLE_TEXT);
        area_put(row, 0, 0, chosen ? STYLE_SELECTED : STYLE_KEY, chosen ? "▸" : " ");
        area_put(row, 2, 0, chosen ? STYLE_SELECTED : STYLE_KEY, item->label);
        area_put(row, 2 + column + 2, 0, chosen ? STYLE_SELECTED : STYLE_DIM, item->description);
    }
}
