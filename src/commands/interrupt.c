#include "commands/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen;

static void on_signal(int signal_number)
{
    (void)signal_number;
    seen = 1;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old;
        /* What the parent ignores (nohup) stays ignored. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN) continue;
        sigaction(signals[i], &action, NULL);
    }
}

bool interrupt_seen(void)
{
    return seen != 0;
}

pf_status interrupt_status(pf_err *err)
{
    return err_set(err, PF_INTERRUPTED, "%s", "");
}
