#include "ui/jobs.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct jobs {
    int pipe[2]; /* pointers to ended tasks */
    int running;
};

typedef struct {
    jobs *owner;
    job *work;
    pthread_t thread;
} task;

pf_status jobs_open(jobs **out, pf_err *err)
{
    jobs *j = xcalloc(1, sizeof *j);
    if (pipe2(j->pipe, O_CLOEXEC) != 0) {
        pf_status status = err_errno(err, PF_FAILED, errno, "no pipe for jobs could be made");
        free(j);
        return status;
    }
    *out = j;
    return PF_OK;
}

/* A pointer is written whole: it is shorter than PIPE_BUF. */
static void *run_task(void *arg)
{
    task *t = arg;
    t->work->run(t->work);
    while (write(t->owner->pipe[1], &t, sizeof t) < 0 && errno == EINTR)
        continue;
    return NULL;
}

pf_status jobs_start(jobs *j, job *work, pf_err *err)
{
    task *t = xcalloc(1, sizeof *t);
    *t = (task){.owner = j, .work = work};
    /* Signals belong to the thread of the screen. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&t->thread, NULL, run_task, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(t);
        return err_errno(err, PF_FAILED, failed, "no thread could be started");
    }
    j->running++;
    return PF_OK;
}

int jobs_fd(const jobs *j)
{
    return j->pipe[0];
}

int jobs_running(const jobs *j)
{
    return j->running;
}

static void collect_one(jobs *j, void *app)
{
    task *t;
    ssize_t n;
    while ((n = read(j->pipe[0], &t, sizeof t)) < 0 && errno == EINTR)
        continue;
    PF_ASSERT(n == (ssize_t)sizeof t);
    pthread_join(t->thread, NULL);
    job *work = t->work;
    free(t);
    j->running--;
    work->done(work, app);
}

int jobs_collect(jobs *j, void *app)
{
    int n = 0;
    struct pollfd p = {.fd = j->pipe[0], .events = POLLIN};
    for (; poll(&p, 1, 0) == 1 && (p.revents & POLLIN); n++)
        collect_one(j, app);
    return n;
}

void jobs_close(jobs *j)
{
    if (!j) return;
    while (j->running)
        collect_one(j, NULL);
    close(j->pipe[0]);
    close(j->pipe[1]);
    free(j);
}
