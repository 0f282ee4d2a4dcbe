/* jobs: work that would block the screen (stretching a passphrase, reading an adapter), each on a
 * thread of its own. Completion is signalled through a descriptor that wakes the event loop. */
#ifndef PF_UI_JOBS_H
#define PF_UI_JOBS_H

#include "base/err.h"

typedef struct jobs jobs;

/* A job's context begins with this. run is called on the job's thread and must not touch the
 * screen; done is called by jobs_collect and owns the context from then on. */
typedef struct job job;
struct job {
    void (*run)(job *j);
    void (*done)(job *j, void *app);
};

pf_status jobs_open(jobs **out, pf_err *err);
/* Waits for running jobs (their done functions are called with app == NULL). NULL is fine. */
void jobs_close(jobs *j);
pf_status jobs_start(jobs *j, job *work, pf_err *err);
/* Readable when a job has ended. */
int jobs_fd(const jobs *j);
int jobs_running(const jobs *j);
/* Calls done of every ended job; returns how many. */
int jobs_collect(jobs *j, void *app);

#endif
