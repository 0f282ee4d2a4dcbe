#include "base/clock.h"

#include <time.h>

int64_t clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attributes);
    pthread_condattr_destroy(&attributes);
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int ms)
{
    int64_t ns = clock_monotonic_ns() + (int64_t)ms * 1000000;
    struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    pthread_cond_timedwait(c, lock, &until);
}
