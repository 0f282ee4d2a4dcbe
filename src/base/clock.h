/* Monotonic time for measuring and timeouts, wall time for records. */
#ifndef PF_BASE_CLOCK_H
#define PF_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_monotonic_ns(void);
int64_t clock_unix_ms(void); /* since 1970-01-01 UTC */

#endif
