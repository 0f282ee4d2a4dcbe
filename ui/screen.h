/* screen: the terminal. The only place that knows curses, of which it uses the terminfo layer: the
 * full-screen layer of curses cuts clusters of several wide code points apart, so the picture (a
 * grid) is compared and written here. Every run of cells is positioned absolutely, and what follows
 * a cluster of uncertain width is positioned anew, so that a terminal with other width tables shows
 * that one cluster oddly and nothing else.
 *
 * One terminal a process; used by the thread that opened it. The terminal is left as it was found
 * on every way out: screen_close, die(), a crash (SIGSEGV and the like), suspension. */
#ifndef PF_UI_SCREEN_H
#define PF_UI_SCREEN_H

#include "base/err.h"
#include "ui/grid.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SCREEN_FULL, /* a full screen is possible */
    SCREEN_LINE, /* line mode: a pipe or a file on one side, or a terminal without cursor movement
                  */
    SCREEN_NONE  /* nobody to talk to (input from /dev/null), or an unknown terminal */
} screen_kind;

/* What standard input, standard output and $TERM allow; changes nothing. With SCREEN_NONE err says
 * why and what to do (PF_USAGE). */
screen_kind screen_probe(pf_err *err);

/* Enters full-screen mode and catches the signals below. mouse: ask for its reports. */
pf_status screen_open(bool mouse, pf_err *err);
/* Restores the terminal and the signals; harmless when not open. */
void screen_close(void);

/* Asked from the terminal; 80 by 24 where it does not know. */
void screen_size(int *cols, int *rows);
/* Makes the terminal show g: writes what differs from what it shows. What the terminal does not
 * take at once is held and written by screen_flush: nothing here waits for a slow terminal. Not to
 * be called while something is held. */
void screen_show(const grid *g);
/* Writes what is held; true when nothing is left. Until then pictures are better left out. */
bool screen_flush(void);
/* To wait for room (POLLOUT) with; -1: nothing is held. */
int screen_held_fd(void);
/* The next screen_show draws everything. */
void screen_invalidate(void);
/* The same, and what the terminal showed is erased first: also, where there is no alternate screen,
 * what may have scrolled away. */
void screen_erase(void);
/* Asks for reports of the mouse, or leaves it to the terminal's own selection. */
void screen_use_mouse(bool on);
/* While GNU screen reports the mouse it keeps a lone Esc to itself until the next key: inside it
 * the mouse is better left to the terminal. */
bool screen_keeps_esc(void);
/* Bytes written by screen_show so far. */
unsigned long long screen_bytes_written(void);

/* Leaves full-screen mode, stops the process group as Ctrl-Z does in a shell, and enters again when
 * continued in the foreground. */
void screen_suspend(void);
/* Gives the terminal, as it was found, to another program; it stops on Ctrl-Z together with us. */
void screen_lend(void);
void screen_take_back(void);
/* Sends text to the terminal's clipboard (OSC 52). Whether it arrives there nobody tells. False: no
 * terminal, or more than terminals take. */
bool screen_copy(const char *text, size_t len);
/* After a SIGCONT that screen_suspend did not wait for (SIGSTOP from outside). */
void screen_resume(void);

/* --- signals ---------------------------------------------------------------------------------- */

enum {
    SCREEN_RESIZED = 1 << 0,  /* SIGWINCH */
    SCREEN_STOP = 1 << 1,     /* SIGTSTP */
    SCREEN_CONTINUE = 1 << 2, /* SIGCONT */
    SCREEN_END = 1 << 3       /* SIGTERM, SIGHUP, SIGINT: see screen_end_signal */
};
/* Readable when a signal came. */
int screen_signal_fd(void);
/* The signals since the last call, as bits. */
unsigned screen_take_signals(void);
int screen_end_signal(void); /* the number of the signal that asked to end; 0 = none */

#endif
