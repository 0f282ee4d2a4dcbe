#include "base/mem.h"

#include "base/err.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *xmalloc(size_t size)
{
    void *ptr = malloc(size ? size : 1);
    if (!ptr) die("out of memory: %zu bytes could not be had", size);
    return ptr;
}

void *xcalloc(size_t count, size_t size)
{
    void *ptr = try_calloc(count, size);
    if (!ptr) die("out of memory: %zu x %zu bytes could not be had", count, size);
    return ptr;
}

void *xrealloc_array(void *ptr, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        die("out of memory: %zu x %zu bytes overflow", count, size);
    void *grown = realloc(ptr, bytes ? bytes : 1);
    if (!grown) die("out of memory: %zu bytes could not be had", bytes);
    return grown;
}

char *xstrdup(const char *text)
{
    return xmemdup0(text, strlen(text));
}

char *xmemdup0(const void *data, size_t len)
{
    char *copy = xmalloc(len + 1);
    if (len) memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, args) < 0) die("out of memory in formatting");
    va_end(args);
    return text;
}

void *try_calloc(size_t count, size_t size)
{
    if (count == 0 || size == 0) return calloc(1, 1);
    return calloc(count, size);
}
