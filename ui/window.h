/* window: the interface between panes, views and the application. Private to ui/.
 *
 * A pane is a rectangle with a stack of views, of which the top one is drawn and gets the keys. A
 * view is an operations table and its state. All of this runs on one thread, the one that owns the
 * screen; jobs (ui/jobs.h) are the only other threads. */
#ifndef PF_UI_WINDOW_H
#define PF_UI_WINDOW_H

#include "base/buf.h"
#include "engine/engine.h"
#include "profiles/user.h"
#include "ui/actions.h"
#include "ui/app.h"
#include "ui/grid.h"
#include "ui/jobs.h"
#include "ui/keys.h"
#include "ui/layout.h"
#include "ui/unkept.h"

#include <stdbool.h>
#include <stdint.h>

#define PANE_VIEWS 6
#define FRAME_MS   30 /* at most one frame in this time */

typedef struct app app;
typedef struct pane pane;
typedef struct view view;

typedef struct {
    const char *name;
    bool takes_bursts; /* text typed very fast is a paste: its line ends don't send (chat) */
    /* Draws into a. focused: the keys go here (only then may the cursor be placed). */
    void (*draw)(view *v, area a, bool focused);
    /* A key, text, paste or wheel event that the window did not take. */
    void (*input)(view *v, const input_event *ev);
    /* Appends what stands in the pane's border, as clean text. */
    void (*title)(view *v, buf *out);
    void (*event)(view *v, const engine_event *ev); /* optional: of a request of this pane */
    bool (*busy)(const view *v);                    /* optional: an answer is under way */
    /* Optional: rows that the view wants below a divider line of the pane (0: none), and what they
     * show. */
    int (*footer)(view *v, int width, int height);
    void (*draw_footer)(view *v, area a, bool focused);
    /* Optional: the pane is about to be locked or signed out. Saves what isn't saved yet (a draft)
     * and says which conversation to return to (0: none). The view is freed soon after. */
    int64_t (*leave)(view *v);
    void (*free)(view *v);
    /* Whose actions the view has, as CONTEXT_BITs: the command palette offers them. A view with
     * CONTEXT_LIST or CONTEXT_EDITOR, or with none, takes text; in others a letter is a key. */
    unsigned contexts;
    /* Optional: does an action that was asked for by its name, with the argument of a slash command
     * ("" if there is none). False: it is not this view's. */
    bool (*act)(view *v, action a, const char *argument);
} view_ops;

/* Views embed this as their first member. */
struct view {
    const view_ops *ops;
    pane *pane;
    unsigned serial; /* set by pane_push; no two views have the same. A job that ends later asks for
                        it: another view may have got the memory of the one that started it */
};

struct pane {
    app *app;
    int number;
    session *session; /* a reference; NULL: nobody is signed in. Panes side by side may share one */
    bool leaving;     /* signed out as soon as its views are gone */
    char *owner;      /* whose pane it is, signed in or locked; owned, NULL: nobody's */
    int64_t resume;   /* locked: the conversation to return to */
    view *views[PANE_VIEWS];
    int depth;
    struct training *training; /* see ui/training.h; NULL: none */
};

struct app {
    app_options options;
    engine_client *client;
    jobs *jobs;
    grid grid;
    layout layout;
    pane *panes[LAYOUT_MAX_PANES];
    int focus;     /* number of the pane that gets the keys */
    view *overlay; /* over all panes, gets all keys; NULL: none */
    view *leaving[PANE_VIEWS * LAYOUT_MAX_PANES + 1]; /* freed when the event that closed them is
                                                         over */
    int n_leaving;
    unsigned serials; /* the last one that a view got */
    bool quit, dirty, suspend, redraw;
    bool tour_due;       /* the first person was just made: the tour begins with the chat */
    buf problems;        /* with preft.conf, a line each */
    bool zoomed;         /* the focused pane fills the window */
    bool mouse;          /* reports of the mouse are asked for */
    int drag;            /* the split (layout) whose line is dragged; -1: none */
    bool layout_changed; /* since it was saved */
    int64_t input_ms;    /* when the last key or click came */
    char *message;       /* for the status line until the next key; owned */
    bool scripted;       /* no clock, no rates: the same picture every time */
    char clock[8];       /* scripted: the time shown */
    int answer_limit;    /* scripted: most tokens of an answer; 0: the profile's */
    engine_stats stats;
    int64_t stats_ms, last_frame_ms, training_ms;
    bool marked_pastes; /* the terminal marks them: an Enter is always one */
    bool enter_held;    /* an Enter that may turn out to be a line end of pasted text */
    int64_t enter_held_ms, burst_ms; /* since when; when the last such line end came */
    unkept unkept;                   /* what could not be saved yet */
    int64_t refused_ms;              /* when leaving was refused because of that; 0: not */
    int64_t keys_ms;                 /* when the keys that are given to it were read; 0: now */
    bool keys_wait;                  /* more have come and are read next */
};

/* --- panes (ui/pane.c) ------------------------------------------------------------------------ */

pane *pane_open(app *a, int number);
/* Closes the views and signs out. */
void pane_close(pane *p);
view *pane_top(const pane *p);
/* Pushes a view, which is owned by the pane from then on. */
void pane_push(pane *p, view *v);
/* Whether the view with this serial number is still the pane's top one. */
bool pane_shows(const pane *p, const view *v, unsigned serial);
/* Removes the top view (after the current event); the one below is drawn again. */
void pane_pop(pane *p);
/* Replaces all views by this one. */
void pane_replace(pane *p, view *v);
/* Signs out and shows the sign-in list. */
void pane_sign_out(pane *p);
/* Signs out and shows who locked it; unlocking returns to the conversation. Nothing happens when
 * nobody is signed in. What the terminal showed is erased, not only overwritten. */
void pane_lock(pane *p);
/* Wipes the keys and the cache of the one who was signed in, unless another pane shares the
 * session. */
void pane_end_session(pane *p);
/* Whose pane it is from now on; NULL: nobody's. */
void pane_set_owner(pane *p, const char *user, int64_t resume);
/* Frames of all panes are drawn first: neighbours share lines. alone: it fills the screen. */
void pane_draw_frame(pane *p, rect place, bool focused, bool alone);
void pane_draw(pane *p, rect place, bool focused, bool alone);
/* The pane with this number, or NULL when it was closed meanwhile. */
pane *app_pane(app *a, int number);

/* --- arrangement (ui/arrange.c) --------------------------------------------------------------- */

/* The panes of the start: those of options, else the saved ones, else one. */
void arrange_open(app *a);
/* Splits the focused pane: the new one, still without a view, or NULL after saying why. */
pane *arrange_add(app *a, layout_kind kind);
/* Splits, closes, moves the focus and the lines; false if the action is another kind's. */
bool arrange_action(app *a, action act);
/* Focus by click, lines that are dragged. False: the event is for the pane under it, whose number
 * is in *to (-1: nobody's). */
bool arrange_mouse(app *a, const input_event *ev, int *to);
/* The panes that are drawn, in reading order, and their places. */
int arrange_shown(const app *a, int panes[LAYOUT_MAX_PANES]);
rect arrange_place(const app *a, int number);
/* Writes the arrangement beside the store, without anything secret. A failure is not reported:
 * nothing important is lost. */
void arrange_save(app *a);

/* --- application (ui/app.c) ------------------------------------------------------------------- */

/* One line for the status line, cleared by the next key. */
void app_say(app *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The time for a message, "19:02". */
void app_clock(const app *a, char out[8]);
/* The spinner: a mark of one cell that changes while something is in progress. Busy views and jobs
 * redraw it as often as it changes. */
const char *app_mark(const app *a);
/* The line for what is waited for: "⠋ making your keys …". */
void app_put_waiting(const app *a, area where, int y, style s, const char *what);
/* "Ctrl-O": the first key of an action, borrowed until the next call. */
const char *hint_key(action a);

/* The view covers the panes (help, command palette) until app_uncover; its pane is the focused one.
 * A former one goes. */
void app_cover(app *a, view *v);
void app_uncover(app *a);
/* The keys and wheel of a text of so many lines that covers the panes, height of which are seen
 * from *top on: scrolls, closes or leaves. The caller keeps *top in range when it draws. */
void app_read(app *a, const input_event *ev, int *top, int height, int lines);
/* Does an action by name: the window's, or the focused pane's. Says so where there is none. */
void app_do(app *a, action act, const char *argument);

/* Used by the three ways to run. */
pf_status app_open(const app_options *options, int cols, int rows, app **out, pf_err *err);
/* False: what was being written could not be saved. */
bool app_close(app *a);
void app_resize(app *a, int cols, int rows);
void app_input(app *a, const input_event *ev);
/* Lets time pass; app_timeout says in how many milliseconds it wants to be called (-1: never). */
void app_tick(app *a);
int app_timeout(const app *a);
/* Handles the events of the engine and of finished jobs. */
void app_events(app *a);
/* Something is under way: a job, an answer, a profile that is read into memory. */
bool app_busy(const app *a);
void app_draw(app *a);

/* In the last row; a long message takes rows above it too (ui/status.c). */
void status_draw(app *a, area whole);

/* --- views: constructors ---------------------------------------------------------------------- */

view *start_view(app *a);         /* the sign-in list, or the first run */
view *create_view(bool first);    /* first: nobody is here yet */
view *recovery_view(secret *key); /* takes the key; the person goes on to the chat */
/* resume: the conversation to return to after a lock; 0 = a new one. */
view *passphrase_view(const char *user, int64_t resume, bool locked);
view *locked_view(const char *user, int64_t resume);
view *chat_view(pane *p, int64_t resume);
view *help_view(void); /* covers: every key and command (ui/help.c) */
view *text_view(const char *title, const char *text); /* covers: a text to read; title static */
view *tour_view(pane *p);    /* covers: for someone who is new; over a chat (ui/tour.c) */
view *palette_view(pane *p); /* covers: find a command by its name (ui/palette.c) */

#endif
