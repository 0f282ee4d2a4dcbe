/* A pool of worker threads that share the items of one job at a time.
 *
 * Items are claimed one by one from atomic counters, the calling thread claims too, and nobody
 * waits for a worker that has claimed nothing: a worker whose core is taken by another program
 * costs its share, never the whole job. Workers spin for some microseconds before they sleep, so an
 * idle pool uses no processor time. A worker begins with the same part of the items in every job,
 * so for cache locality neighbouring items should share data, and so should the same item of
 * successive jobs. Which thread computes an item must not affect the result. */
#ifndef KN_POOL_H
#define KN_POOL_H

typedef struct kn_pool kn_pool;

/* Computes item (0..n_items) of a job. worker (0..threads) is unique among those running at the
 * same time: an index into scratch memory. */
typedef void kn_pool_fn(void *ctx, int item, int worker);

/* threads counts the caller, so threads - 1 workers are started. NULL when threads can't be
 * started. */
kn_pool *kn_pool_create(int threads);
/* Ends and joins the workers. NULL is fine. No job may be running. */
void kn_pool_free(kn_pool *pool);
int kn_pool_threads(const kn_pool *pool);
/* Runs fn for each item and returns when all are done. One caller at a time; not from within an
 * item. With one thread or one item everything runs in the caller, in order. */
void kn_pool_run(kn_pool *pool, int n_items, kn_pool_fn *fn, void *ctx);

/* Processors this process may use (its affinity mask), at least 1. */
int kn_usable_cores(void);

#endif
