/* Pages of keys and values: who uses them, whose they were, and which can be reused.
 *
 * A page is free, in use by one or more sequences, or idle: in the prefix cache and unused. Idle
 * pages are evicted, least recently used first, when no free one is left. A page that passes to
 * another user is overwritten first. Pages take memory from their first use until they are
 * discarded; their number is limited, since KV shares its memory with adapters (budget.h). Contents
 * are touched through kv_ops only, so that all this is tested without a model. */
#ifndef PF_ENGINE_KV_H
#define PF_ENGINE_KV_H

#include "engine/prefix_cache.h"

typedef struct {
    void (*copy)(void *ctx, int32_t src, int32_t dst, int n_tokens);
    void (*clear)(void *ctx, int32_t page);
    void *ctx;
    void (*discard)(void *ctx, int32_t page); /* clear and release its memory; NULL: can't */
} kv_ops;

typedef struct kv kv;

/* One sequence's pages. Zeroed with root set = empty. Owned by the sequence; pages by kv. */
typedef struct {
    uint64_t user;
    prefix_key root; /* of its chain of keys */
    prefix_key last; /* key of page n_keyed - 1; root if there is none */
    int n_keyed;     /* full pages that have been offered to the cache */
    bool forgotten;  /* nothing of it is kept: its user was forgotten while it ran */
    int32_t *pages;
    int n, cap;
} kv_table;

/* use_cache false: nothing is ever found or kept. All n_pages may take memory. */
kv *kv_create(int n_pages, int page_tokens, bool use_cache, const kv_ops *ops);
void kv_free(kv *k); /* overwrites what is not clear; NULL is fine */

/* Empties a table (its pages must have been released) and gives it its user and root. */
void kv_table_init(kv_table *t, uint64_t user, const prefix_key *root);
void kv_table_free(kv_table *t);

/* Takes over the cached pages that agree with tokens[0..n) and marks, and copies the agreeing part
 * of one more page into a fresh one if there is memory for it. The table must be empty. Returns the
 * number of leading tokens whose keys and values are now there. */
int kv_find_prefix(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n);
/* Makes room for n tokens in all. The scheduler's reservations guarantee that pages are there; a
 * violation ends the process. */
void kv_extend(kv *k, kv_table *t, int n);
/* Offers the pages that became full to the cache. The first n tokens are computed. */
void kv_publish(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n);
/* Releases all pages; those of the first n tokens stay in the cache, a last partial one too. */
void kv_release(kv *k, kv_table *t, const int32_t *tokens, const unsigned char *marks, int n);

/* From now on at most `most` pages take memory; most is not below the pages in use and reserved.
 * Free pages are discarded first, then idle ones, least recently used first. No-op without
 * kv_ops.discard. */
void kv_limit(kv *k, int most);

/* Drops everything cached of a user and overwrites it; pages that the user's running sequences
 * still hold leave the cache and are overwritten when they are released (the caller also sets
 * their tables' forgotten). */
void kv_forget_user(kv *k, uint64_t user);

typedef struct {
    int total, in_use, idle; /* pages */
    int present;             /* pages that take memory */
} kv_usage;
kv_usage kv_get_usage(const kv *k);

#endif
