/* The same questions in two panes of one person: one with the profile, one without it, or with
 * another. Both are conversations like any other. */
#include "ui/chat_screen.h"

#include <string.h>

#define BESIDE_COLS 60 /* narrower panes are split below each other */

chat_screen *pair_of(const chat_screen *s)
{
    pane *p = s->pair_serial ? app_pane(s->base.pane->app, s->pair) : NULL;
    bool there = p && p->depth && !p->leaving && p->views[0]->serial == s->pair_serial;
    return there ? chat_screen_of(p->views[0]) : NULL;
}

bool pair_busy(const chat_screen *s)
{
    const chat_screen *other = pair_of(s);
    return s->chat.request || (other && other->chat.request);
}

static void join(chat_screen *s, const chat_screen *other)
{
    s->pair = other->base.pane->number;
    s->pair_serial = other->base.serial;
}

void pair_part(chat_screen *s)
{
    chat_screen *other = pair_of(s);
    if (other) other->pair_serial = 0;
    s->pair_serial = 0;
}

/* The pane beside, or below where there is no room. */
static pane *add_pane(app *a, const pane *p)
{
    bool wide = layout_rect(&a->layout, p->number).w >= BESIDE_COLS;
    pane *added = arrange_add(a, wide ? LAYOUT_BESIDE : LAYOUT_BELOW);
    return added ? added : arrange_add(a, wide ? LAYOUT_BELOW : LAYOUT_BESIDE);
}

static chat_screen *open_other(chat_screen *s)
{
    pane *p = s->base.pane;
    pf_err err = {0};
    if (!s->chat.profile) {
        app_say(p->app, "There is nothing to compare: choose a profile with %s.",
                hint_key(ACTION_PROFILES));
        return NULL;
    }
    pane *added = add_pane(p->app, p);
    if (!added) return NULL;
    added->session = session_ref(p->session);
    pane_set_owner(added, session_user_name(p->session), 0);
    chat_screen *other = chat_screen_open(added);
    pane_push(added, &other->base);
    if (chat_copy(&other->chat, &s->chat, &err) != PF_OK) say_error(other, &err);
    show_turns(other);
    join(s, other);
    join(other, s);
    return other;
}

void pair_ask(chat_screen *s, const char *question)
{
    app *a = s->base.pane->app;
    if (pair_refuse(s)) return;
    if (pair_of(s) && !*question) {
        pair_part(s);
        app_say(a, "Each pane gets its own questions again.");
        return;
    }
    if (!pair_of(s) && !open_other(s)) return;
    app_say(a, "Both panes get what is written here; %s again parts them.",
            hint_key(ACTION_BESIDE));
    if (*question) chat_screen_send(s, question, strlen(question));
}
