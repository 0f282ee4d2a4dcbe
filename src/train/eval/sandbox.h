/* Runs a program on a text, within limits, isolated from the network and the user's files: for
 * rewards that are programs, and for code that a model wrote.
 *
 * Where the system lets an ordinary user make namespaces, the program has no network, sees no other
 * process, finds all files read-only but for a small empty folder of its own, and dies with all its
 * children. Elsewhere only the limits hold: sandbox_isolated tells. In either case it ends with the
 * thread that waits for it, also when that is killed. */
#ifndef PF_TRAIN_EVAL_SANDBOX_H
#define PF_TRAIN_EVAL_SANDBOX_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *const *argv; /* NULL-terminated; argv[0] an absolute path (sandbox_find) */
    double seconds;          /* of wall time; processor time is limited to the same */
    int megabytes;           /* of address space */
} sandbox_options;

typedef enum {
    SANDBOX_EXITED,
    SANDBOX_CRASHED, /* ended by a signal */
    SANDBOX_TOO_LONG /* killed at the time limit */
} sandbox_end;

/* Runs it with the text as standard input; its output is discarded. *exit_code is set for EXITED.
 * Waits interrupted by a signal continue. PF_FAILED: it could not be run at all. */
pf_status sandbox_run(const sandbox_options *options, const void *text, size_t len,
                      sandbox_end *end, int *exit_code, pf_err *err);

/* True if programs run without network and with read-only files here. Tried once. */
bool sandbox_isolated(void);

/* The absolute path of a program named as for a shell; owned. PF_NOT_FOUND. */
pf_status sandbox_find(const char *name, char **out, pf_err *err);

#endif
