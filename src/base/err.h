/* Errors: one style for the whole program.
 *
 * A function that can fail returns a pf_status and takes a `pf_err *err` as its last parameter.
 * On failure it fills err with one sentence that says what happened, where, why and what to do;
 * callers may put context in front with err_context(). err may be NULL where the text is unwanted.
 * Nothing is printed below the commands and the interface. */
#ifndef PF_BASE_ERR_H
#define PF_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

/* X(name, process exit code, words) */
#define PF_STATUS_LIST(X)                                                                          \
    X(PF_OK, 0, "ok")                                                                              \
    X(PF_FAILED, 1, "failed")                                                                      \
    X(PF_USAGE, 2, "wrong usage")                                                                  \
    X(PF_REFUSED, 3, "file refused")                                                               \
    X(PF_DENIED, 4, "sign-in refused")                                                             \
    X(PF_NOT_FOUND, 5, "not found")                                                                \
    X(PF_NO_MEMORY, 1, "out of memory")                                                            \
    X(PF_BUSY, 1, "busy")                                                                          \
    X(PF_DAMAGED, 3, "data damaged")                                                               \
    X(PF_INTERRUPTED, 130, "interrupted")

typedef enum {
#define PF_STATUS_ENUM(name, exit_code, words) name,
    PF_STATUS_LIST(PF_STATUS_ENUM)
#undef PF_STATUS_ENUM
} pf_status;

typedef struct {
    pf_status status;
    char text[1024]; /* NUL-terminated: one line of valid UTF-8 without control characters */
} pf_err;

/* Fills err (if not NULL); returns status, for `return err_set(err, PF_REFUSED, "...")`. A text too
 * long ends in "..."; line feeds and tabs become blanks, other controls and bad UTF-8 "?". */
pf_status err_set(pf_err *err, pf_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": " and the text of errno_value appended. */
pf_status err_errno(pf_err *err, pf_status status, int errno_value, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "context: " in front of the text; returns err's status (PF_FAILED if err is NULL). */
pf_status err_context(pf_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The process exit code of a status: 0 done, 1 failed, 2 usage, 3 refused, ... (PF_STATUS_LIST). */
int status_exit_code(pf_status status);
const char *status_words(pf_status status);

/* Ends the process: only when out of memory or when an invariant is broken. Runs the hook first
 * (the interface registers one that restores the terminal), prints "preft: ..." to standard error,
 * exits 1. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void die_set_hook(void (*hook)(void));

/* Invariant check that stays in release builds. */
#define PF_ASSERT(cond)                                                                            \
    ((cond) ? (void)0 : die("%s:%d: broken invariant: %s", __FILE__, __LINE__, #cond))

#endif
