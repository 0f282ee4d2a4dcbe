/* Log: levels, one line per message, to a file of mode 0600 or to standard error. Logs hold ids,
 * counts and lengths, never texts, names of profiles or secrets. Off until log_open. Thread-safe.
 */
#ifndef PF_BASE_LOG_H
#define PF_BASE_LOG_H

#include "base/err.h"

typedef enum { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

/* Logs messages up to level `most` to a file (appended to; NULL: standard error). PF_FAILED if it
 * can't be opened. */
pf_status log_open(const char *path, log_level most, pf_err *err);
void log_close(void); /* logging is off again */
/* One line; dropped when logging is off or level is above the log's. No final newline needed. */
void log_write(log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
