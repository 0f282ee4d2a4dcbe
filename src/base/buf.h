/* buf: a growable run of bytes. A zeroed struct is an empty buffer; data is always followed by a
 * NUL that len does not count, so a text buffer can be passed as a string once it holds anything
 * (use buf_str for the empty case). Growth ends the process when out of memory. Memory that a
 * buffer releases, also when it grows, is overwritten first, since it may hold private text. */
#ifndef PF_BASE_BUF_H
#define PF_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

typedef struct {
    char *data;
    size_t len;
    size_t cap; /* bytes allocated, including the NUL's */
} buf;

void buf_reserve(buf *b, size_t extra); /* room for extra more bytes */
void buf_append(buf *b, const void *data, size_t len);
void buf_puts(buf *b, const char *text);
void buf_putc(buf *b, char c);
void buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(buf *b, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
void buf_clear(buf *b);            /* len = 0, memory kept */
void buf_free(buf *b);             /* memory released, struct zeroed */
const char *buf_str(const buf *b); /* never NULL; borrowed */
char *buf_take(buf *b);            /* owned NUL-terminated text; b becomes empty */

#endif
