/* The index of cached KV pages: which page holds the keys and values of which tokens.
 *
 * A page's key is a hash over (model digest, adapter content digest or none, user salt) for the
 * root, and over (parent's key, token ids, marks) from page to page: it names everything that the
 * page's content depends on, and never a name. Pages are looked up under their parent's key and
 * then compared token by token, so that a page which agrees only in its first tokens is found too.
 * Pages of different users never meet: the salt is random for each user and engine.
 *
 * Entries are numbered by page. An entry is either in use by sequences or idle; idle ones form a
 * list in LRU order. */
#ifndef PF_ENGINE_PREFIX_CACHE_H
#define PF_ENGINE_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_KEY_BYTES 32

typedef struct {
    unsigned char bytes[PREFIX_KEY_BYTES];
} prefix_key;

typedef struct prefix_cache prefix_cache;

prefix_cache *prefix_cache_create(int n_pages, int page_tokens);
void prefix_cache_free(prefix_cache *c); /* wiped; NULL is fine */

/* The root of a user's chains. adapter_digest NULL: no adapter. */
prefix_key prefix_root(const unsigned char model_digest[32], const unsigned char *adapter_digest,
                       const unsigned char user_salt[32]);
/* The key of a full page under its parent. */
prefix_key prefix_child(const prefix_key *parent, const int32_t *tokens, const unsigned char *marks,
                        int n);

/* Enters a page whose first n tokens (1..page_tokens) are these, as in use. False if a page with
 * the same parent already begins with all of them; then nothing is entered. */
bool prefix_cache_add(prefix_cache *c, int32_t page, const prefix_key *parent,
                      const int32_t *tokens, const unsigned char *marks, int n);
bool prefix_cache_has(const prefix_cache *c, int32_t page);
void prefix_cache_remove(prefix_cache *c, int32_t page); /* wiped */

/* The page under parent that agrees longest with tokens[0..n) and marks; -1: none agrees in the
 * first. *agreed = the number of leading tokens that agree. */
int32_t prefix_cache_find(const prefix_cache *c, const prefix_key *parent, const int32_t *tokens,
                          const unsigned char *marks, int n, int *agreed);
/* The longest idle page under parent that holds fewer than n tokens, all of them tokens[0..): what
 * a longer entry makes useless; -1: none. */
int32_t prefix_cache_find_shorter(const prefix_cache *c, const prefix_key *parent,
                                  const int32_t *tokens, const unsigned char *marks, int n);

void prefix_cache_set_idle(prefix_cache *c, int32_t page, bool idle); /* idle: the latest used */
int32_t prefix_cache_oldest_idle(const prefix_cache *c);              /* -1: none */
int prefix_cache_n_idle(const prefix_cache *c);

#endif
