/* The help overlay, made from the action table. */
#include "ui/text.h"
#include "ui/window.h"

#include <string.h>

/* Row n of the help: a heading, an action, or an empty row. False past the end. */
static bool help_row(int n, area a, int y, int keys_width)
{
    for (int c = 0; c < CONTEXT_COUNT; c++) {
        if (n == 0) {
            area_put(a, 0, y, STYLE_TITLE, context_title((context)c));
            return true;
        }
        n--;
        for (int act = ACTION_NONE + 1; act < ACTION_COUNT; act++) {
            if (action_context((action)act) != (context)c) continue;
            if (n-- > 0) continue;
            buf keys = {0};
            action_keys((action)act, &keys);
            area_text(area_sub(a, 0, 0, keys_width, a.h), 1, y, STYLE_KEY, buf_str(&keys),
                      keys.len);
            area_put(a, keys_width, y, STYLE_TEXT, action_description((action)act));
            buf_free(&keys);
            return true;
        }
        if (n-- == 0) return true;
    }
    return false;
}

static int count_rows(void)
{
    return CONTEXT_COUNT * 2 + ACTION_COUNT - 1;
}

void help_draw(app *a, area whole)
{
    area_clear(whole, STYLE_TEXT);
    area_box(whole, STYLE_BORDER_ACTIVE, "Keys · Esc closes", STYLE_TITLE);
    area inside = area_sub(whole, 2, 1, whole.w - 4, whole.h - 2);
    int keys_width = inside.w > 60 ? 26 : inside.w / 2, last = count_rows() - inside.h;
    if (a->help_top > last) a->help_top = last;
    if (a->help_top < 0) a->help_top = 0;
    for (int y = 0; y < inside.h; y++)
        if (!help_row(a->help_top + y, inside, y, keys_width)) break;
    if (a->help_top < last) area_put_right(whole, whole.h - 1, STYLE_KEY, " ↓ more ");
}

void help_input(app *a, const input_event *ev)
{
    int page = a->grid.rows > 6 ? a->grid.rows - 4 : 1;
    if (ev->kind == INPUT_WHEEL_UP) a->help_top -= 3;
    if (ev->kind == INPUT_WHEEL_DOWN) a->help_top += 3;
    if (ev->kind != INPUT_KEY) return;
    if (action_of(ev->key, CONTEXT_WINDOW) == ACTION_HELP) a->help_shown = false;
    if (action_of(ev->key, CONTEXT_WINDOW) == ACTION_QUIT) a->quit = true;
    switch (action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_BACK:
    case ACTION_CHOOSE:
        a->help_shown = false;
        break;
    case ACTION_PREVIOUS:
        a->help_top--;
        break;
    case ACTION_NEXT:
        a->help_top++;
        break;
    case ACTION_PAGE_BACK:
        a->help_top -= page;
        break;
    case ACTION_PAGE_ON:
        a->help_top += page;
        break;
    case ACTION_FIRST:
        a->help_top = 0;
        break;
    case ACTION_LAST:
        a->help_top = count_rows();
        break;
    default:
        break;
    }
}
