#include "engine/kv.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t user;     /* whose content it holds, if dirty */
    int32_t refs;      /* sequences that use it */
    int32_t next_free; /* -1: the last */
    bool dirty;
    bool present; /* takes memory */
    bool doomed;  /* its user was forgotten: overwrite it when it is given back */
} page_state;

struct kv {
    int n_pages, page_tokens;
    bool use_cache;
    kv_ops ops;
    prefix_cache *cache;
    page_state *pages; /* [n_pages] */
    /* Free pages, last given back, first taken: [1] those that take memory, [0] the others. */
    int32_t first_free[2];
    int n_free[2];
    int n_present, most_present;
};

kv *kv_create(int n_pages, int page_tokens, bool use_cache, const kv_ops *ops)
{
    kv *k = xcalloc(1, sizeof *k);
    k->n_pages = k->most_present = k->n_free[0] = n_pages;
    k->page_tokens = page_tokens;
    k->use_cache = use_cache;
    k->ops = *ops;
    k->cache = prefix_cache_create(n_pages, page_tokens);
    k->pages = xcalloc((size_t)n_pages, sizeof *k->pages);
    for (int32_t p = 0; p < n_pages; p++)
        k->pages[p].next_free = p + 1 < n_pages ? p + 1 : -1;
    k->first_free[0] = n_pages > 0 ? 0 : -1;
    k->first_free[1] = -1;
    return k;
}

static void clear_page(kv *k, int32_t page)
{
    if (k->pages[page].dirty) k->ops.clear(k->ops.ctx, page);
    k->pages[page].dirty = false;
}

void kv_free(kv *k)
{
    if (!k) return;
    for (int32_t p = 0; p < k->n_pages; p++)
        clear_page(k, p);
    prefix_cache_free(k->cache);
    free(k->pages);
    free(k);
}

/* --- pages ------------------------------------------------------------------------------------ */

static void push_free(kv *k, int32_t page)
{
    page_state *s = &k->pages[page];
    if (s->doomed) clear_page(k, page);
    s->doomed = false;
    s->next_free = k->first_free[s->present];
    k->first_free[s->present] = page;
    k->n_free[s->present]++;
}

/* -1: none. */
static int32_t pop_free(kv *k, bool present)
{
    int32_t page = k->first_free[present];
    if (page < 0) return -1;
    k->first_free[present] = k->pages[page].next_free;
    k->n_free[present]--;
    return page;
}

static bool may_grow(const kv *k)
{
    return k->n_free[0] > 0 && k->n_present < k->most_present;
}

static int32_t pop_idle(kv *k)
{
    int32_t page = prefix_cache_oldest_idle(k->cache);
    if (page >= 0) prefix_cache_remove(k->cache, page);
    return page;
}

static int32_t take_page(kv *k, uint64_t user)
{
    int32_t page = pop_free(k, true);
    if (page < 0 && may_grow(k)) page = pop_free(k, false);
    if (page < 0) page = pop_idle(k);
    PF_ASSERT(page >= 0);
    page_state *s = &k->pages[page];
    if (s->user != user) clear_page(k, page);
    k->n_present += !s->present;
    s->user = user;
    s->refs = 1;
    s->dirty = s->present = true;
    return page;
}

void kv_limit(kv *k, int most)
{
    if (!k->ops.discard) return;
    k->most_present = most < k->n_pages ? most : k->n_pages;
    while (k->n_present > k->most_present) {
        int32_t page = pop_free(k, true);
        if (page < 0) page = pop_idle(k);
        if (page < 0) return;
        k->ops.discard(k->ops.ctx, page);
        k->pages[page].dirty = k->pages[page].present = false;
        k->n_present--;
        push_free(k, page);
    }
}

static void use_page(kv *k, int32_t page)
{
    if (k->pages[page].refs++ == 0) prefix_cache_set_idle(k->cache, page, false);
}

static void unuse_page(kv *k, int32_t page)
{
    PF_ASSERT(k->pages[page].refs > 0);
    if (--k->pages[page].refs > 0) return;
    if (prefix_cache_has(k->cache, page))
        prefix_cache_set_idle(k->cache, page, true);
    else
        push_free(k, page);
}

/* --- tables ----------------------------------------------------------------------------------- */

void kv_table_init(kv_table *t, uint64_t user, const prefix_key *root)
{
    PF_ASSERT(t->n == 0);
    t->user = user;
    t->root = t->last = *root;
    t->n_keyed = 0;
}

void kv_table_free(kv_table *t)
{
    PF_ASSERT(t->n == 0);
    free(t->pages);
    memset(t, 0, sizeof *t);
}

static void append_page(kv_table *t, int32_t page)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 16;
        t->pages = xrealloc_array(t->pages, (size_t)t->cap, sizeof *t->pages);
    }
    t->pages[t->n++] = page;
}

/* A page of the table's own whose first n tokens are those of the cached page, which is in use by
 * this call. If no other page can be had, the cached one is taken over, unless somebody else uses
 * it too: then -1. (The memory for the copy may be an adapter's until the end of the turn.) */
static int32_t begin_as(kv *k, const kv_table *t, int32_t page, int n)
{
    bool full = k->n_free[1] == 0 && !may_grow(k) && prefix_cache_n_idle(k->cache) == 0;
    if (full && k->pages[page].refs == 1) {
        prefix_cache_remove(k->cache, page);
        return page;
    }
    int32_t fresh = full ? -1 : take_page(k, t->user);
    if (fresh >= 0) k->ops.copy(k->ops.ctx, page, fresh, n);
    unuse_page(k, page);
    return fresh;
}

int kv_find_prefix(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n)
{
    PF_ASSERT(t->n == 0);
    int found = 0;
    while (k->use_cache && found < n) {
        int want = n - found < k->page_tokens ? n - found : k->page_tokens, agreed;
        int32_t page =
            prefix_cache_find(k->cache, &t->last, tokens + found, marks + found, want, &agreed);
        if (page < 0) break;
        use_page(k, page);
        if (agreed == k->page_tokens) {
            append_page(t, page);
            t->last = prefix_child(&t->last, tokens + found, marks + found, agreed);
            t->n_keyed++;
            found += agreed;
            continue;
        }
        page = begin_as(k, t, page, agreed);
        if (page >= 0) {
            append_page(t, page);
            found += agreed;
        }
        break;
    }
    return found;
}

void kv_extend(kv *k, kv_table *t, int n)
{
    while (t->n * k->page_tokens < n)
        append_page(t, take_page(k, t->user));
}

/* Enters page i of the table, n tokens long, under the table's last key. */
static void offer(kv *k, kv_table *t, int i, const int32_t *tokens, const unsigned char *marks,
                  int n)
{
    int32_t page = t->pages[i];
    if (t->forgotten || k->pages[page].doomed || prefix_cache_has(k->cache, page)) return;
    if (!prefix_cache_add(k->cache, page, &t->last, tokens, marks, n)) return;
    int32_t shorter;
    while ((shorter = prefix_cache_find_shorter(k->cache, &t->last, tokens, marks, n)) >= 0) {
        prefix_cache_remove(k->cache, shorter);
        push_free(k, shorter);
    }
}

void kv_publish(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n)
{
    if (!k->use_cache) return;
    while ((t->n_keyed + 1) * k->page_tokens <= n) {
        int at = t->n_keyed * k->page_tokens;
        offer(k, t, t->n_keyed, tokens + at, marks + at, k->page_tokens);
        t->last = prefix_child(&t->last, tokens + at, marks + at, k->page_tokens);
        t->n_keyed++;
    }
}

void kv_release(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n)
{
    kv_publish(k, t, tokens, marks, n);
    int at = t->n_keyed * k->page_tokens;
    if (k->use_cache && n > at) offer(k, t, t->n_keyed, tokens + at, marks + at, n - at);
    /* From the end, so that children become idle, and are taken, before their parents. */
    while (t->n > 0) {
        int32_t page = t->pages[--t->n];
        if (t->forgotten) k->pages[page].doomed = true;
        unuse_page(k, page);
    }
    kv_table_init(t, t->user, &t->root);
}

void kv_forget_user(kv *k, uint64_t user)
{
    for (int32_t p = 0; p < k->n_pages; p++) {
        page_state *s = &k->pages[p];
        if (!s->dirty || s->user != user) continue;
        bool cached = prefix_cache_has(k->cache, p);
        if (cached) prefix_cache_remove(k->cache, p);
        if (s->refs > 0) {
            s->doomed = true;
            continue;
        }
        clear_page(k, p);
        if (cached) push_free(k, p);
    }
}

kv_usage kv_get_usage(const kv *k)
{
    int idle = prefix_cache_n_idle(k->cache);
    int in_use = k->n_pages - k->n_free[0] - k->n_free[1] - idle;
    return (kv_usage){k->n_pages, in_use, idle, k->n_present};
}
