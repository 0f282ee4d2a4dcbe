/* How much memory this process has allocated: counts what malloc and its kin give out, in plain
 * builds by standing in for them, under the address sanitizer through its hooks. Linked into the
 * programs that use it only. */
#ifndef PF_TESTS_HEAP_H
#define PF_TESTS_HEAP_H

#include <stdint.h>

/* Begins to count. Before that the two below are 0; they stay so under the sanitizers of threads
 * and of uninitialised memory, which have a malloc of their own. */
void heap_start(void);
int64_t heap_now(void);
/* The most since the last call, and begins anew. */
int64_t heap_take_peak(void);

#endif
