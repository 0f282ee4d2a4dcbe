/* Another process that keeps one core busy, to measure the engine beside it. */
#ifndef PF_COMMANDS_BENCH_NEIGHBOUR_H
#define PF_COMMANDS_BENCH_NEIGHBOUR_H

#include "base/err.h"

#include <sys/types.h>

/* Starts a process that computes on the first core we may use, until neighbour_stop or our end. */
pf_status neighbour_start(pid_t *out, pf_err *err);
/* Ends it and waits for it; 0: nothing happens. */
void neighbour_stop(pid_t neighbour);

#endif
