#include "ui/list.h"

#include "base/mem.h"
#include "ui/actions.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>

void list_free(list *l)
{
    for (size_t i = 0; i < l->len; i++) {
        explicit_bzero(l->items[i].text, strlen(l->items[i].text));
        free(l->items[i].text);
        free(l->items[i].detail);
    }
    free(l->items);
    buf_free(&l->filter);
    *l = (list){0};
}

void list_add(list *l, int64_t id, const char *text, const char *detail)
{
    if (l->len == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->items = xrealloc_array(l->items, l->cap, sizeof *l->items);
    }
    buf clean = {0};
    text_clean_label(text, strlen(text), &clean);
    l->items[l->len++] =
        (list_item){.text = buf_take(&clean), .detail = detail ? xstrdup(detail) : NULL, .id = id};
}

static bool passes(const list *l, const list_item *item)
{
    return l->filter.len == 0 || strcasestr(item->text, buf_str(&l->filter));
}

static size_t count_passing(const list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->len; i++)
        n += passes(l, &l->items[i]);
    return n;
}

const list_item *list_chosen(const list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->len; i++)
        if (passes(l, &l->items[i]) && n++ == l->selected) return &l->items[i];
    return NULL;
}

void list_select(list *l, int64_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < l->len; i++) {
        if (!passes(l, &l->items[i])) continue;
        if (l->items[i].id == id) l->selected = n;
        n++;
    }
}

static void move(list *l, ptrdiff_t by)
{
    ptrdiff_t last = (ptrdiff_t)count_passing(l) - 1, at = (ptrdiff_t)l->selected + by;
    l->selected = at < 0 || last < 0 ? 0 : at > last ? (size_t)last : (size_t)at;
}

/* The position, among the items that pass, that a click means; false outside the rows. */
static bool clicked(const list *l, const input_event *ev, size_t *at)
{
    const area *a = &l->place;
    if (ev->kind != INPUT_CLICK || ev->x < a->x || ev->x >= a->x + a->w || ev->y < a->y ||
        ev->y >= a->y + a->h)
        return false;
    *at = l->top + (size_t)(ev->y - a->y);
    return *at < count_passing(l);
}

const input_event *list_event(const list *l, const input_event *ev, input_event *as_key)
{
    size_t at;
    if (!clicked(l, ev, &at) || at != l->selected) return ev;
    *as_key = (input_event){.kind = INPUT_KEY, .key = KEY_ENTER};
    return as_key;
}

bool list_input(list *l, const input_event *ev)
{
    if (ev->kind == INPUT_CLICK) {
        clicked(l, ev, &l->selected);
        return true;
    }
    if (ev->kind == INPUT_WHEEL_UP || ev->kind == INPUT_WHEEL_DOWN) {
        move(l, ev->kind == INPUT_WHEEL_UP ? -1 : 1);
        return true;
    }
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE) {
        text_clean_draft(ev->text, ev->len, &l->filter);
        l->selected = 0;
        return true;
    }
    if (ev->kind != INPUT_KEY) return false;
    ptrdiff_t page = l->height > 1 ? l->height - 1 : 1, all = (ptrdiff_t)l->len;
    switch (action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_PREVIOUS:
        move(l, -1);
        return true;
    case ACTION_NEXT:
        move(l, 1);
        return true;
    case ACTION_PAGE_BACK:
        move(l, -page);
        return true;
    case ACTION_PAGE_ON:
        move(l, page);
        return true;
    case ACTION_FIRST:
        move(l, -all);
        return true;
    case ACTION_LAST:
        move(l, all);
        return true;
    default:
        break;
    }
    if (ev->key != KEY_BACKSPACE || l->filter.len == 0) return false;
    l->filter.len = text_without_last(l->filter.data, l->filter.len);
    l->filter.data[l->filter.len] = '\0';
    l->selected = 0;
    return true;
}

void list_draw(list *l, area a)
{
    l->height = a.h;
    l->place = a;
    if (a.h < 1) return;
    size_t height = (size_t)a.h;
    if (l->top > l->selected) l->top = l->selected;
    if (l->selected >= l->top + height) l->top = l->selected - height + 1;
    int column = 0, details = 0;
    for (size_t i = 0; i < l->len; i++) {
        int width = text_width_z(l->items[i].text);
        if (width > column) column = width;
        width = l->items[i].detail ? text_width_z(l->items[i].detail) : 0;
        if (width > details) details = width;
    }
    int least = a.w < 40 ? a.w / 2 : a.w * 2 / 5,
        most = a.w - 4 - details; /* then details are cut */
    if (most < least) most = least;
    if (column > most) column = most;
    size_t n = 0;
    for (size_t i = 0; i < l->len; i++) {
        const list_item *item = &l->items[i];
        if (!passes(l, item)) continue;
        size_t at = n++;
        if (at < l->top || at >= l->top + height) continue;
        int y = (int)(at - l->top);
        bool chosen = at == l->selected;
        style s = chosen ? STYLE_SELECTED : STYLE_TEXT;
        area row = area_sub(a, 0, y, a.w, 1);
        area_clear(row, s);
        area_put(row, 0, 0, s, chosen ? "▸" : " ");
        int room = item->detail && *item->detail ? column : a.w - 2;
        buf text = {0};
        text_ellipsis(item->text, strlen(item->text), room, &text);
        area_put(row, 2, 0, s, buf_str(&text));
        buf_free(&text);
        if (item->detail) area_put(row, 2 + column + 2, 0, chosen ? s : STYLE_DIM, item->detail);
    }
    if (n == 0) area_put(a, 2, 0, STYLE_DIM, l->len ? "nothing matches" : "nothing here yet");
}
