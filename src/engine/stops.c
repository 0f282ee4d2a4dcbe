#include "engine/stops.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void stop_matcher_add(stop_matcher *m, const char *text, size_t len)
{
    PF_ASSERT(m->n < STOPS_MAX && len > 0 && len <= STOPS_MAX_BYTES);
    m->text[m->n] = xmemdup0(text, len);
    m->len[m->n++] = len;
}

void stop_matcher_free(stop_matcher *m)
{
    for (int i = 0; i < m->n; i++) {
        explicit_bzero(m->text[i], m->len[i]);
        free(m->text[i]);
    }
    buf_free(&m->held);
    memset(m, 0, sizeof *m);
}

/* The length of the longest stop string that held ends with; 0: none. */
static size_t complete_stop(const stop_matcher *m)
{
    size_t longest = 0;
    for (int i = 0; i < m->n; i++) {
        size_t len = m->len[i];
        if (len > longest && len <= m->held.len &&
            memcmp(m->held.data + m->held.len - len, m->text[i], len) == 0)
            longest = len;
    }
    return longest;
}

/* The length of the longest end of held that a stop string begins with. */
static size_t possible_stop(const stop_matcher *m)
{
    size_t longest = 0;
    for (int i = 0; i < m->n; i++) {
        size_t most = m->len[i] - 1;
        if (most > m->held.len) most = m->held.len;
        for (size_t k = most; k > longest; k--) {
            if (memcmp(m->held.data + m->held.len - k, m->text[i], k) != 0) continue;
            longest = k;
            break;
        }
    }
    return longest;
}

static void release(stop_matcher *m, size_t n, buf *out)
{
    if (n == 0) return;
    buf_append(out, m->held.data, n);
    memmove(m->held.data, m->held.data + n, m->held.len - n);
    m->held.len -= n;
    m->held.data[m->held.len] = '\0';
}

bool stop_matcher_push(stop_matcher *m, const char *text, size_t len, buf *out)
{
    if (m->n == 0) {
        buf_append(out, text, len);
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        buf_putc(&m->held, text[i]);
        size_t stop = complete_stop(m);
        if (stop > 0) {
            release(m, m->held.len - stop, out);
            buf_free(&m->held);
            return true;
        }
        release(m, m->held.len - possible_stop(m), out);
    }
    return false;
}

void stop_matcher_flush(stop_matcher *m, buf *out)
{
    release(m, m->held.len, out);
    buf_free(&m->held);
}
