/* How much memory this process has allocated: counts what malloc and its kin give out, in plain
 * builds by standing in for them, under the address sanitizer through its hooks. Linked into the
 * programs that use it only. */
#ifndef PF_TESTS_HEAP_H
#define PF_TESTS_HEAP_H

#include <stdbool.h>
#include <stdint.h>

bool heap_is_counted(void); /* not so under the other sanitizers that have their own malloc */
void heap_start(void);      /* begins to count; before that the two below are 0 */
int64_t heap_now(void);
/* The most since the last call, and begins anew. */
int64_t heap_take_peak(void);

#endif
