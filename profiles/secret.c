#include "profiles/secret.h"

#include "base/err.h"
#include "base/mem.h"
#include "profiles/vault.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

secret *secret_new(size_t cap)
{
    pf_err err;
    if (vault_init(&err) != PF_OK) die("%s", err.text);
    secret *s = xcalloc(1, sizeof *s);
    s->data = sodium_malloc(cap + 1);
    if (!s->data) die("out of memory for secrets");
    sodium_memzero(s->data, cap + 1);
    s->cap = cap;
    return s;
}

secret *secret_from(const void *data, size_t len)
{
    secret *s = secret_new(len);
    (void)secret_append(s, data, len);
    return s;
}

bool secret_append(secret *s, const void *data, size_t len)
{
    if (len > s->cap - s->len) return false;
    if (len > 0) memcpy(s->data + s->len, data, len);
    s->len += len;
    return true;
}

void secret_truncate(secret *s, size_t len)
{
    if (len >= s->len) return;
    sodium_memzero(s->data + len, s->len - len);
    s->len = len;
}

bool secret_equal(const secret *a, const secret *b)
{
    return a->len == b->len && sodium_memcmp(a->data, b->data, a->len) == 0;
}

void secret_free(secret *s)
{
    if (!s) return;
    sodium_free(s->data);
    free(s);
}

void wipe_free(void *ptr, size_t len)
{
    if (!ptr) return;
    sodium_memzero(ptr, len);
    free(ptr);
}

void wipe_text(char *text)
{
    if (text) wipe_free(text, strlen(text));
}

void wipe_buf(buf *b)
{
    if (b->data) sodium_memzero(b->data, b->cap);
    buf_free(b);
}
