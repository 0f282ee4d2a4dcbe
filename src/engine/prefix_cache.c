#include "engine/prefix_cache.h"

#include "base/err.h"
#include "base/mem.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    prefix_key parent;
    int32_t n;              /* tokens; 0: not in the cache */
    int32_t next_in_bucket; /* -1: the last */
    int32_t older, newer;   /* idle list; -1: none */
    bool idle;
} entry;

struct prefix_cache {
    int n_pages, page_tokens;
    entry *entries;       /* [n_pages] */
    int32_t *tokens;      /* [n_pages, page_tokens] */
    unsigned char *marks; /* [n_pages, page_tokens] */
    int32_t *buckets;     /* [n_buckets] first page or -1 */
    uint32_t n_buckets;   /* a power of two */
    int32_t oldest, newest;
    int n_idle;
};

/* --- keys ------------------------------------------------------------------------------------- */

static void hash_text(crypto_generichash_state *state, const char *tag)
{
    crypto_generichash_init(state, NULL, 0, PREFIX_KEY_BYTES);
    crypto_generichash_update(state, (const unsigned char *)tag, strlen(tag) + 1);
}

prefix_key prefix_root(const unsigned char model_digest[32], const unsigned char *adapter_digest,
                       const unsigned char user_salt[32])
{
    prefix_key key;
    crypto_generichash_state state;
    unsigned char has_adapter = adapter_digest != NULL;
    hash_text(&state, "preft-kv-root-1");
    crypto_generichash_update(&state, model_digest, 32);
    crypto_generichash_update(&state, &has_adapter, 1);
    if (adapter_digest) crypto_generichash_update(&state, adapter_digest, 32);
    crypto_generichash_update(&state, user_salt, 32);
    crypto_generichash_final(&state, key.bytes, sizeof key.bytes);
    return key;
}

prefix_key prefix_child(const prefix_key *parent, const int32_t *tokens, const unsigned char *marks,
                        int n)
{
    prefix_key key;
    crypto_generichash_state state;
    int32_t count = n;
    hash_text(&state, "preft-kv-page-1");
    crypto_generichash_update(&state, parent->bytes, sizeof parent->bytes);
    crypto_generichash_update(&state, (const unsigned char *)&count, sizeof count);
    crypto_generichash_update(&state, (const unsigned char *)tokens,
                              (unsigned long long)n * sizeof *tokens);
    crypto_generichash_update(&state, marks, (unsigned long long)n);
    crypto_generichash_final(&state, key.bytes, sizeof key.bytes);
    return key;
}

/* --- table ------------------------------------------------------------------------------------ */

prefix_cache *prefix_cache_create(int n_pages, int page_tokens)
{
    prefix_cache *c = xcalloc(1, sizeof *c);
    size_t pages = (size_t)n_pages;
    c->n_pages = n_pages;
    c->page_tokens = page_tokens;
    c->entries = xcalloc(pages, sizeof *c->entries);
    c->tokens = xcalloc(pages * (size_t)page_tokens, sizeof *c->tokens);
    c->marks = xcalloc(pages * (size_t)page_tokens, 1);
    c->n_buckets = 16;
    while (c->n_buckets < (uint32_t)n_pages)
        c->n_buckets *= 2;
    c->buckets = xmalloc(c->n_buckets * sizeof *c->buckets);
    memset(c->buckets, 0xff, c->n_buckets * sizeof *c->buckets);
    c->oldest = c->newest = -1;
    return c;
}

void prefix_cache_free(prefix_cache *c)
{
    if (!c) return;
    explicit_bzero(c->tokens, (size_t)c->n_pages * (size_t)c->page_tokens * sizeof *c->tokens);
    free(c->entries);
    free(c->tokens);
    free(c->marks);
    free(c->buckets);
    free(c);
}

static int32_t *bucket(const prefix_cache *c, const prefix_key *parent)
{
    uint32_t hash;
    memcpy(&hash, parent->bytes, sizeof hash);
    return &c->buckets[hash & (c->n_buckets - 1)];
}

/* How many leading tokens of a page's entry agree with tokens[0..n). */
static int agreement(const prefix_cache *c, int32_t page, const int32_t *tokens,
                     const unsigned char *marks, int n)
{
    const int32_t *t = c->tokens + (size_t)page * (size_t)c->page_tokens;
    const unsigned char *m = c->marks + (size_t)page * (size_t)c->page_tokens;
    int most = c->entries[page].n < n ? c->entries[page].n : n, i = 0;
    while (i < most && t[i] == tokens[i] && m[i] == marks[i])
        i++;
    return i;
}

static bool is_child(const prefix_cache *c, int32_t page, const prefix_key *parent)
{
    return memcmp(c->entries[page].parent.bytes, parent->bytes, PREFIX_KEY_BYTES) == 0;
}

int32_t prefix_cache_find(const prefix_cache *c, const prefix_key *parent, const int32_t *tokens,
                          const unsigned char *marks, int n, int *agreed)
{
    int32_t best = -1;
    *agreed = 0;
    for (int32_t p = *bucket(c, parent); p >= 0; p = c->entries[p].next_in_bucket) {
        if (!is_child(c, p, parent)) continue;
        int same = agreement(c, p, tokens, marks, n);
        if (same <= *agreed) continue;
        best = p;
        *agreed = same;
    }
    return best;
}

int32_t prefix_cache_find_shorter(const prefix_cache *c, const prefix_key *parent,
                                  const int32_t *tokens, const unsigned char *marks, int n)
{
    for (int32_t p = *bucket(c, parent); p >= 0; p = c->entries[p].next_in_bucket) {
        const entry *e = &c->entries[p];
        if (e->idle && e->n < n && is_child(c, p, parent) &&
            agreement(c, p, tokens, marks, n) == e->n)
            return p;
    }
    return -1;
}

bool prefix_cache_has(const prefix_cache *c, int32_t page)
{
    return c->entries[page].n > 0;
}

bool prefix_cache_add(prefix_cache *c, int32_t page, const prefix_key *parent,
                      const int32_t *tokens, const unsigned char *marks, int n)
{
    entry *e = &c->entries[page];
    PF_ASSERT(e->n == 0 && n > 0 && n <= c->page_tokens);
    int agreed;
    prefix_cache_find(c, parent, tokens, marks, n, &agreed);
    if (agreed == n) return false;
    size_t at = (size_t)page * (size_t)c->page_tokens;
    memcpy(c->tokens + at, tokens, (size_t)n * sizeof *tokens);
    memcpy(c->marks + at, marks, (size_t)n);
    int32_t *first = bucket(c, parent);
    *e = (entry){*parent, n, *first, -1, -1, false};
    *first = page;
    return true;
}

void prefix_cache_remove(prefix_cache *c, int32_t page)
{
    entry *e = &c->entries[page];
    if (e->n == 0) return;
    prefix_cache_set_idle(c, page, false);
    int32_t *link = bucket(c, &e->parent);
    while (*link != page)
        link = &c->entries[*link].next_in_bucket;
    *link = e->next_in_bucket;
    size_t at = (size_t)page * (size_t)c->page_tokens;
    explicit_bzero(c->tokens + at, (size_t)c->page_tokens * sizeof *c->tokens);
    explicit_bzero(e, sizeof *e);
}

/* --- idle list -------------------------------------------------------------------------------- */

void prefix_cache_set_idle(prefix_cache *c, int32_t page, bool idle)
{
    entry *e = &c->entries[page];
    PF_ASSERT(e->n > 0);
    if (e->idle) {
        *(e->older >= 0 ? &c->entries[e->older].newer : &c->oldest) = e->newer;
        *(e->newer >= 0 ? &c->entries[e->newer].older : &c->newest) = e->older;
        c->n_idle--;
    }
    e->idle = idle;
    e->older = e->newer = -1;
    if (!idle) return;
    e->older = c->newest;
    *(c->newest >= 0 ? &c->entries[c->newest].newer : &c->oldest) = page;
    c->newest = page;
    c->n_idle++;
}

int32_t prefix_cache_oldest_idle(const prefix_cache *c)
{
    return c->oldest;
}

int prefix_cache_n_idle(const prefix_cache *c)
{
    return c->n_idle;
}
