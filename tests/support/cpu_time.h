/* What this process has computed so far. Bounds on it hold on a busy machine too, where the clock
 * on the wall says more about the others. */
#ifndef PF_TESTS_CPU_TIME_H
#define PF_TESTS_CPU_TIME_H

#include <stdint.h>
#include <time.h>

static inline int64_t cpu_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
