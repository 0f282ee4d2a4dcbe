/* slash: commands typed as a message, "/rename Letters to the landlord", with completion. Which
 * commands there are, the table of actions says.
 *
 * A draft is a command when it is one line that begins with "/" and a word of letters and hyphens.
 * "/usr/bin is full" is a message; so is everything after a blank: " /help". */
#ifndef PF_UI_SLASH_H
#define PF_UI_SLASH_H

#include "profiles/user.h"
#include "ui/actions.h"
#include "ui/editor.h"

#define SLASH_MOST 64 /* completions */

typedef struct {
    char *draft; /* what the draft becomes */
    char *label; /* clean */
    const char *description;
} slash_item;

/* The completions of a draft. Zeroed = none. */
typedef struct {
    slash_item items[SLASH_MOST];
    int n, selected, top;
    bool closed; /* by Esc, until the draft changes */
    char *of;    /* the draft they were made for; owned */
    size_t word; /* bytes of the command's word in it */
} slash_menu;

void slash_free(slash_menu *m);
/* Follows the draft: to be called after every change of it. s: whose profiles are completed. */
void slash_update(slash_menu *m, const editor *e, session *s);
/* Takes the keys that belong to an open menu (complete, up, down, stop to close, send to complete
 * an unfinished command's word); true if the key's action was taken and nothing else is to be done.
 */
bool slash_do(slash_menu *m, editor *e, session *s, action a);
/* Draws the open menu over the bottom rows of a. */
void slash_draw(slash_menu *m, area a);

/* PF_NOT_FOUND: the draft is a message. PF_OK: *a and *argument (inside text, which must be
 * NUL-terminated; "" if none). PF_USAGE: no such command, or its argument is missing. */
pf_status slash_parse(const char *text, action *a, const char **argument, pf_err *err);

#endif
