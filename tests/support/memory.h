/* Looking for bytes in the test's own memory: what should have been overwritten. Only where
 * MEMORY_IS_SEARCHABLE (support/sanitizer.h). */
#ifndef PF_TESTS_MEMORY_H
#define PF_TESTS_MEMORY_H

#include <stddef.h>

/* How often these bytes stand in this process's writable memory, the stack (where they are built)
 * left out. */
int memory_count(const void *what, size_t len);

#endif
