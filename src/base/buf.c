#include "base/buf.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers may hold private text: released memory is overwritten. */
static void wipe_and_free(buf *b)
{
    if (b->data) explicit_bzero(b->data, b->cap);
    free(b->data);
}

void buf_reserve(buf *b, size_t extra)
{
    size_t need;
    if (__builtin_add_overflow(b->len, extra, &need) || need + 1 < need)
        die("out of memory: a buffer of %zu + %zu bytes", b->len, extra);
    need++;
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : 32;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2; /* doubling: appends stay cheap */
    char *data = xmalloc(cap);
    if (b->len) memcpy(data, b->data, b->len);
    data[b->len] = '\0';
    wipe_and_free(b);
    b->data = data;
    b->cap = cap;
}

void buf_append(buf *b, const void *data, size_t len)
{
    buf_reserve(b, len);
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

void buf_putc(buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    buf_vprintf(b, fmt, args);
    va_end(args);
}

void buf_vprintf(buf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0) die("a text could not be formatted: %s", fmt);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void buf_clear(buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void buf_free(buf *b)
{
    wipe_and_free(b);
    *b = (buf){0};
}

const char *buf_str(const buf *b)
{
    return b->data ? b->data : "";
}

char *buf_take(buf *b)
{
    buf_reserve(b, 0);
    char *text = b->data;
    *b = (buf){0};
    return text;
}
