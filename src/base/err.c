#include "base/err.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*die_hook)(void);

/* Cuts text (size bytes of room, full) at a character boundary and ends it with "...". */
static void mark_cut(char *text, size_t size)
{
    size_t end = size - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

/* One line that a terminal shows as it is: arguments may come from any file. In place, since no
 * character becomes longer. */
static void make_plain(char *text)
{
    size_t len = strlen(text), to = 0;
    for (size_t at = 0, n; at < len; at += n) {
        uint32_t c = 0;
        n = utf8_decode(text + at, len - at, &c, NULL);
        if (c == '\n' || c == '\t')
            text[to++] = ' ';
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == UINT32_MAX)
            text[to++] = '?';
        else {
            memmove(text + to, text + at, n);
            to += n;
        }
    }
    text[to] = '\0';
}

static void vformat(char *text, size_t size, const char *fmt, va_list args)
{
    int n = vsnprintf(text, size, fmt, args);
    if (n < 0) snprintf(text, size, "(message could not be formatted)");
    if (n >= 0 && (size_t)n >= size) mark_cut(text, size);
    make_plain(text);
}

pf_status err_set(pf_err *err, pf_status status, const char *fmt, ...)
{
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    char text[sizeof err->text]; /* arguments may point into err->text */
    vformat(text, sizeof text, fmt, args);
    va_end(args);
    err->status = status;
    memcpy(err->text, text, sizeof text);
    return status;
}

pf_status err_errno(pf_err *err, pf_status status, int errno_value, const char *fmt, ...)
{
    if (!err) return status;
    char text[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vformat(text, sizeof text, fmt, args);
    va_end(args);
    char reason[128];
    const char *words = strerror_r(errno_value, reason, sizeof reason);
    return err_set(err, status, "%s: %s", text, words);
}

pf_status err_context(pf_err *err, const char *fmt, ...)
{
    if (!err) return PF_FAILED;
    char context[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vformat(context, sizeof context, fmt, args);
    va_end(args);
    return err_set(err, err->status, "%s: %s", context, err->text);
}

static const struct {
    int exit_code;
    const char *words;
} status_table[] = {
#define PF_STATUS_ROW(name, exit_code, words) [name] = {exit_code, words},
    PF_STATUS_LIST(PF_STATUS_ROW)
#undef PF_STATUS_ROW
};

int status_exit_code(pf_status status)
{
    return status_table[status].exit_code;
}

const char *status_words(pf_status status)
{
    return status_table[status].words;
}

void die_set_hook(void (*hook)(void))
{
    die_hook = hook;
}

void die(const char *fmt, ...)
{
    void (*hook)(void) = die_hook;
    die_hook = NULL; /* a hook that dies itself must not run twice */
    if (hook) hook();
    va_list args;
    va_start(args, fmt);
    fputs("preft: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}
