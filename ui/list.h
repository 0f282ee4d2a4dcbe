/* list: a list to choose from, with a type-to-filter. */
#ifndef PF_UI_LIST_H
#define PF_UI_LIST_H

#include "base/buf.h"
#include "ui/grid.h"
#include "ui/keys.h"

#include <stdbool.h>

typedef struct {
    char *text;   /* clean; what the filter looks at; owned */
    char *detail; /* to its right; owned, may be NULL */
    int64_t id;
} list_item;

typedef struct {
    list_item *items;
    size_t len, cap;
    buf filter;
    size_t selected; /* among the items that pass the filter */
    size_t top;
    int height; /* of the last drawing */
    area place; /* likewise, for clicks */
} list;

void list_free(list *l);
void list_add(list *l, int64_t id, const char *text, const char *detail);
/* The chosen item, or NULL when none passes the filter. */
const list_item *list_chosen(const list *l);
void list_select(list *l, int64_t id);
/* What an event means to a list: a click on the chosen item is the key that chooses it. Returns ev,
 * or as_key filled. To be asked first by views that hold a list. */
const input_event *list_event(const list *l, const input_event *ev, input_event *as_key);
/* Takes movement keys, clicks and filter text; false if the event is not the list's. */
bool list_input(list *l, const input_event *ev);
void list_draw(list *l, area a);

#endif
