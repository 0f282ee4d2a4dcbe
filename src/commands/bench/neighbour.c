#include "commands/bench/neighbour.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void keep_busy(pid_t parent, int core)
{
    cpu_set_t one;
    volatile unsigned long count = 0;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || sched_setaffinity(0, sizeof one, &one) != 0) _exit(1);
    for (;;)
        count = count + 1;
}

pf_status neighbour_start(pid_t *out, pf_err *err)
{
    cpu_set_t usable;
    int core = 0;
    pid_t parent = getpid();
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        return err_errno(err, PF_FAILED, errno, "the cores that may be used can't be found out");
    while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &usable))
        core++;
    /* The child calls nothing but the system: this process has threads. */
    pid_t child = fork();
    if (child < 0) return err_errno(err, PF_FAILED, errno, "a process can't be started");
    if (child == 0) keep_busy(parent, core);
    *out = child;
    return PF_OK;
}

void neighbour_stop(pid_t neighbour)
{
    if (neighbour <= 0) return;
    kill(neighbour, SIGKILL);
    while (waitpid(neighbour, NULL, 0) < 0 && errno == EINTR)
        continue;
}
