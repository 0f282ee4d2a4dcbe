/* Ctrl-C and termination signals for commands that run for a while: the first one asks the command
 * to finish cleanly, a second one ends the process at once. */
#ifndef PF_COMMANDS_INTERRUPT_H
#define PF_COMMANDS_INTERRUPT_H

#include "base/err.h"

#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP are noted. Blocking calls return with EINTR. */
void interrupt_catch(void);
/* True once a signal came: stop, clean up, return interrupt_status. */
bool interrupt_seen(void);
/* PF_INTERRUPTED with an empty text: nothing needs to be said. */
pf_status interrupt_status(pf_err *err);

#endif
