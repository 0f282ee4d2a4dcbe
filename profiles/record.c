#include "profiles/record.h"

#include "base/err.h"
#include "base/mem.h"
#include "profiles/secret.h"

#include <string.h>

/* A field on the wire: 1 byte number, 4 bytes length (little-endian), bytes. */
#define HEAD 5

static void reserve(record_writer *w, size_t extra)
{
    if (w->cap - w->len >= extra) return;
    size_t cap = w->cap * 2 > w->len + extra ? w->cap * 2 : w->len + extra;
    unsigned char *data = xmalloc(cap);
    if (w->len > 0) memcpy(data, w->data, w->len);
    wipe_free(w->data, w->cap);
    w->data = data;
    w->cap = cap;
}

void record_put(record_writer *w, unsigned field, const void *data, size_t len)
{
    PF_ASSERT(field > 0 && field < 256 && len <= UINT32_MAX);
    reserve(w, HEAD + len);
    unsigned char *at = w->data + w->len;
    at[0] = (unsigned char)field;
    for (int i = 0; i < 4; i++)
        at[1 + i] = (unsigned char)(len >> (8 * i));
    if (len > 0) memcpy(at + HEAD, data, len);
    w->len += HEAD + len;
}

void record_put_text(record_writer *w, unsigned field, const char *text)
{
    if (text) record_put(w, field, text, strlen(text));
}

void record_put_int(record_writer *w, unsigned field, int64_t number)
{
    if (number == 0) return;
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)number >> (8 * i));
    record_put(w, field, bytes, sizeof bytes);
}

void record_free(record_writer *w)
{
    wipe_free(w->data, w->cap);
    *w = (record_writer){0};
}

/* Reads the field at *at and moves behind it; false at the end or when the lengths are wrong. */
static bool next(const record *r, size_t *at, unsigned *field, const unsigned char **data,
                 size_t *len)
{
    if (r->len - *at < HEAD) return false;
    const unsigned char *p = r->data + *at;
    *field = p[0];
    *len = (size_t)p[1] | (size_t)p[2] << 8 | (size_t)p[3] << 16 | (size_t)p[4] << 24;
    if (r->len - *at - HEAD < *len) return false;
    *data = p + HEAD;
    *at += HEAD + *len;
    return true;
}

bool record_valid(const record *r)
{
    size_t at = 0, len = 0;
    unsigned field = 0;
    const unsigned char *data = NULL;
    while (next(r, &at, &field, &data, &len))
        continue;
    return at == r->len;
}

bool record_get(const record *r, unsigned field, const void **data, size_t *len)
{
    size_t at = 0, found_len = 0;
    unsigned found = 0;
    const unsigned char *bytes = NULL;
    *data = NULL;
    *len = 0;
    while (next(r, &at, &found, &bytes, &found_len)) {
        if (found != field) continue;
        *data = bytes;
        *len = found_len;
        return true;
    }
    return false;
}

char *record_get_text(const record *r, unsigned field)
{
    const void *data = NULL;
    size_t len = 0;
    (void)record_get(r, field, &data, &len);
    return xmemdup0(len > 0 ? data : "", len);
}

int64_t record_get_int(const record *r, unsigned field)
{
    const void *data = NULL;
    size_t len = 0;
    uint64_t number = 0;
    if (!record_get(r, field, &data, &len) || len != 8) return 0;
    for (int i = 0; i < 8; i++)
        number |= (uint64_t)((const unsigned char *)data)[i] << (8 * i);
    return (int64_t)number;
}
