/* app: the terminal interface. Panes side by side, in each a signed-in person and a conversation;
 * one engine answers all of them. Three ways to run it: on a terminal, from a script of keys
 * (tests, demonstrations), and line by line where the terminal can't do more. */
#ifndef PF_UI_APP_H
#define PF_UI_APP_H

#include "base/err.h"
#include "engine/engine.h"
#include "profiles/secret.h"
#include "profiles/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config; /* base/config.h */

typedef struct app_options app_options;
struct app_options {
    store *store;             /* borrowed */
    engine *engine;           /* borrowed */
    const char *const *users; /* one pane for each at the start; may be NULL */
    size_t n_users;
    bool no_mouse;
    const char *theme;             /* see ui/theme.h; NULL: auto */
    const char *editor;            /* command for long texts; NULL: $VISUAL, $EDITOR, vi */
    const struct config *settings; /* preft.conf: its [keys] are used; may be NULL */
    const char *settings_path;     /* its path, existing or not; may be NULL */
    const char *problems;          /* lines about entries that could not be used; may be NULL */
    /* Line mode: asks for a passphrase without echo, or reads it from where the command line says.
     * *out is the caller's. */
    pf_status (*read_secret)(const void *ctx, const char *prompt, secret **out, pf_err *err);
    const void *secret_ctx;
    int lock_after; /* seconds without a key until all panes are locked; 0: never */
    /* Reads preft.conf again: no_mouse, theme, editor, lock_after, settings and problems of *o
     * become what would hold after a new start. On failure nothing changes. May be NULL. */
    pf_status (*reload)(app_options *o, pf_err *err);
};

/* Runs on the terminal until the person leaves. PF_INTERRUPTED after SIGINT, SIGTERM or SIGHUP. The
 * terminal is restored before this returns. */
pf_status app_run(const app_options *options, pf_err *err);

/* Plays a script (see ui/script.h) on a screen of this size that exists in memory only; what it
 * asks for is written to out. */
pf_status app_run_script(const app_options *options, const char *path, int cols, int rows,
                         FILE *out, pf_err *err);

/* Asks and answers line by line on standard input and output, without any control sequences. Each
 * line (a backslash at its end: with the next one) is a message; /help shows the commands. */
pf_status app_run_lines(const app_options *options, pf_err *err);

#endif
