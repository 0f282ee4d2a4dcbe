/* Monotonic time for measuring and timeouts, wall time for records. */
#ifndef PF_BASE_CLOCK_H
#define PF_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_monotonic_ns(void); /* from an arbitrary start */
int64_t clock_unix_ms(void);      /* since 1970-01-01 UTC */

/* A condition whose waits are measured by the monotonic clock: setting the clock doesn't disturb
 * them. pthread_cond_destroy ends it. */
void clock_cond_init(pthread_cond_t *c);
/* Waits for c, which clock_cond_init made, at most ms; the lock is held before and after. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int ms);

#endif
