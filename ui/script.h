/* script: the interface without a terminal, played from a file. For tests and demonstrations:
 * answers are greedy, the clock is fixed, live figures are dashes, so that the same script gives
 * the same screens.
 *
 * One step or several keys a line; empty lines and lines that begin with # are left out.
 *
 *   "text"              types the text; \n is Enter, \t Tab, \e Esc, \\ \" and \xHH as in C
 *   Enter Ctrl-O F1     presses keys, by their names in the help; may be mixed with texts
 *   :wait idle [S]      until no answer and no job is under way, at most S seconds (120)
 *   :wait text "T" [S]  until T is on the screen
 *   :wait gone "T" [S]  until T is on it no longer
 *   :expect "T"         T must be on the screen now
 *   :reject "T"         T must not be on the screen now
 *   :screen [NAME]      writes the screen: a line "== NAME COLSxROWS cursor X,Y", then its rows
 *   :resize COLSxROWS
 *   :pane N             gives the keys to pane N (in reading order, from 1)
 *   :paste "T"          pastes T as a terminal with paste marks does
 *   :click X Y, :wheel up|down X Y
 *   :drag X Y X Y       presses the button at the first place and lets go at the second
 *   :clock HH:MM        the time that is shown from now on (at first 12:00)
 *   :limit N            most tokens of an answer from now on; 0: the profile's setting
 *   :answer             writes the last answer's text of the pane that has the keys
 *   :sleep MS           lets time pass
 *   :idle SECONDS       as if that much time had passed without a key
 *   :restart            leaves and starts again
 *   :cells NAME         writes the screen with its colours (tests/screens.awk makes pictures of
 *                       it): a line "== NAME COLSxROWS cells", then runs of cells of one style,
 *                       "Y X WIDTH FOREGROUND BACKGROUND ATTRIBUTES TEXT". Colours are 0..15 or -,
 *                       attributes any of b(old), d(im), r(everse), u(nderlined), or -
 *
 * The keys of a quoted text go through the same decoder as a terminal's. */
#ifndef PF_UI_SCRIPT_H
#define PF_UI_SCRIPT_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct script script;

/* Reads and checks the whole file before anything is played. PF_USAGE names the line. */
pf_status script_load(const char *path, script **out, pf_err *err);
pf_status script_parse(const char *text, size_t len, const char *name, script **out, pf_err *err);
void script_free(script *s);

typedef enum {
    STEP_TYPE,
    STEP_KEY,
    STEP_WAIT_IDLE,
    STEP_WAIT_TEXT,
    STEP_WAIT_GONE,
    STEP_EXPECT,
    STEP_REJECT,
    STEP_SCREEN,
    STEP_RESIZE,
    STEP_PANE,
    STEP_PASTE,
    STEP_CLICK,
    STEP_WHEEL_UP,
    STEP_WHEEL_DOWN,
    STEP_CLOCK,
    STEP_LIMIT,
    STEP_ANSWER,
    STEP_SLEEP,
    STEP_DRAG,
    STEP_IDLE,
    STEP_RESTART,
    STEP_CELLS
} step_kind;

typedef struct {
    step_kind kind;
    int line;       /* in the file */
    buf text;       /* owned */
    uint32_t key;   /* STEP_KEY: a key_code */
    int x, y;       /* numbers of the step, in order */
    int to_x, to_y; /* STEP_DRAG: the second place */
    double limit_s; /* waits */
} script_step;

size_t script_len(const script *s);
const script_step *script_at(const script *s, size_t i);
const char *script_name(const script *s);

#endif
