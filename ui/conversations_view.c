/* The list of saved conversations: choose one to go on with it. */
#include "base/mem.h"
#include "profiles/history.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 500 /* newest conversations */

typedef struct {
    view base;
    list list;
    pf_err err;
} conversations_screen;

static void load(conversations_screen *s)
{
    pane *p = s->base.pane;
    conversation_list found = {0};
    conversation_list_load(p->session, -1, 0, SHOWN, &found, &s->err);
    for (size_t i = 0; i < found.n; i++) {
        const conversation_info *c = &found.items[i];
        char date[24] = "";
        if (!p->app->scripted) {
            time_t seconds = (time_t)(c->updated_ms / 1000);
            struct tm local;
            localtime_r(&seconds, &local);
            strftime(date, sizeof date, "%-d %b %H:%M  ", &local);
        }
        char *detail = xasprintf("%s%lld messages", date, (long long)c->n_messages);
        list_add(&s->list, c->id, c->title, detail);
        free(detail);
    }
    conversation_list_free(&found);
}

static void conversations_input(view *v, const input_event *ev)
{
    conversations_screen *s = (conversations_screen *)v;
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    action a = action_of(ev->key, CONTEXT_LIST);
    if (a == ACTION_BACK) pane_pop(v->pane);
    const list_item *chosen = list_chosen(&s->list);
    if (a != ACTION_CHOOSE || !chosen) return;
    int64_t id = chosen->id;
    pane *p = v->pane;
    pane_pop(p);
    chat_view_resume(pane_top(p), id);
}

static void conversations_draw(view *v, area a, bool focused)
{
    (void)focused;
    conversations_screen *s = (conversations_screen *)v;
    int hint = a.h > 5 ? 2 : 0;
    if (s->list.filter.len)
        area_printf(a, 0, a.h - 1, STYLE_KEY, "filter: %s", buf_str(&s->list.filter));
    else if (hint)
        area_put(a, 0, a.h - 1, STYLE_DIM, "Enter resume   type to filter   Esc back");
    list_draw(&s->list, area_sub(a, 0, 0, a.w, a.h - hint));
    if (s->err.text[0]) area_paragraph(a, a.h / 2, STYLE_ERROR, s->err.text);
}

static void conversations_title(view *v, buf *out)
{
    buf_puts(out, "Conversations of ");
    const char *name = session_user_name(v->pane->session);
    text_clean_label(name, strlen(name), out);
}

static void conversations_free(view *v)
{
    conversations_screen *s = (conversations_screen *)v;
    list_free(&s->list);
    free(s);
}

static const view_ops conversations_ops = {.name = "conversations",
                                           .contexts = CONTEXT_BIT(CONTEXT_CONVERSATIONS) |
                                                       CONTEXT_BIT(CONTEXT_LIST),
                                           .draw = conversations_draw,
                                           .input = conversations_input,
                                           .title = conversations_title,
                                           .free = conversations_free};

view *conversations_view(pane *p)
{
    conversations_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &conversations_ops, .pane = p};
    load(s);
    return &s->base;
}
