/* Memory: allocations that end the process when a small one fails, and failing forms for sizes
 * that come from a file, a model or a client. Sizes of zero give a unique pointer to free. */
#ifndef PF_BASE_MEM_H
#define PF_BASE_MEM_H

#include <stddef.h>

/* die() on failure or overflow of count * size. xcalloc is zeroed. */
void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull, alloc_size(1)));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull, alloc_size(1, 2)));
void *xrealloc_array(void *ptr, size_t count, size_t size)
    __attribute__((returns_nonnull, warn_unused_result, alloc_size(2, 3)));
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull, nonnull(1)));
/* Copies len bytes and adds a NUL. */
char *xmemdup0(const void *data, size_t len) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), malloc, returns_nonnull));

/* NULL on failure or overflow; zeroed. For sizes that come from outside. */
void *try_calloc(size_t count, size_t size) __attribute__((malloc, alloc_size(1, 2)));

#endif
