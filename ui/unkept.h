/* unkept: what was being written when a conversation was left, while the store could not take it
 * (another program kept it busy). It is tried again, also after the pane was locked: a session is
 * signed out when nothing of it is left here. */
#ifndef PF_UI_UNKEPT_H
#define PF_UI_UNKEPT_H

#include "base/buf.h"
#include "profiles/user.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct app app;
typedef struct unkept_text unkept_text;

/* Of one window; zeroed = nothing. */
typedef struct {
    unkept_text *items;
    size_t n;
    int64_t tried_ms; /* monotonic */
} unkept;

/* Keeps the draft of a conversation (key NULL), or the setting `key`, to be saved later; in place
 * of a former one of the same user. */
void unkept_add(app *a, session *s, int64_t conversation, const char *key, const char *text,
                size_t len);
/* Appends the draft of a conversation and forgets it here; false: there is none. */
bool unkept_take(app *a, const session *s, int64_t conversation, buf *out);
/* It was saved otherwise, or given up. */
void unkept_forget(app *a, const session *s, int64_t conversation, const char *key);
/* Signs out, at once or when what is kept here is saved. */
void unkept_sign_out(app *a, session *s);

/* Tries again now and then; what can't be saved within a minute is given up, and that is said. */
void unkept_tick(app *a);
/* When unkept_tick wants to be called, monotonic, in ms; INT64_MAX: never. */
int64_t unkept_due(const app *a);
/* Tries a last time, for as long as the thread may wait. False: something was lost. */
bool unkept_close(app *a);

#endif
