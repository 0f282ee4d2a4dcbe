#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* How long a thread looks for work, or for the others' last items, before it sleeps. Longer than an
 * item of a usual job: threads whose last items end one after the other don't put each other to
 * sleep, from which they would wake late. */
#define SPIN_NS 50000

/* A job's items are cut into shares of neighbours. Each worker has one to begin with, the same in
 * every job, and helps with the others after it: what it computed for the last job is then still in
 * its caches. Few shares for many workers: all are opened and closed for each job. */
#define MAX_SHARES 16

/* The ticket holds the job's number in its upper half and the share's next unclaimed item in its
 * lower half. An item is claimed by compare-and-swap of the whole word, so a worker that read the
 * fields of one job can never claim an item of another: the caller closes the tickets (CLOSED)
 * before it changes the fields and opens them with a new number after. */
#define CLOSED UINT32_MAX

typedef struct {
    _Alignas(64) _Atomic uint64_t ticket;
    _Atomic uint32_t end; /* of the share's items */
} pool_share;

struct kn_pool {
    int threads, n_shares;
    pthread_t *workers;
    int n_started;

    pool_share shares[MAX_SHARES];
    _Alignas(64) _Atomic uint32_t job; /* the number of the last one that was opened */
    kn_pool_fn *_Atomic fn;
    void *_Atomic ctx;
    _Atomic uint32_t n_items;
    _Alignas(64) _Atomic uint32_t n_done;
    _Alignas(64) _Atomic int n_sleeping;
    _Atomic bool caller_sleeping, quit;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
};

typedef struct {
    kn_pool *pool;
    int index;
} worker_start;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Claims and computes items of a share of the job that is open now until none is left. */
static void work_on_share(kn_pool *pool, pool_share *share, int worker)
{
    uint64_t ticket = atomic_load_explicit(&share->ticket, memory_order_acquire);
    for (;;) {
        uint32_t item = (uint32_t)ticket;
        uint32_t end = atomic_load_explicit(&share->end, memory_order_acquire);
        uint32_t n_items = atomic_load_explicit(&pool->n_items, memory_order_acquire);
        kn_pool_fn *fn = atomic_load_explicit(&pool->fn, memory_order_acquire);
        void *ctx = atomic_load_explicit(&pool->ctx, memory_order_acquire);
        if (item == CLOSED || item >= end) return;
        /* Success proves that the ticket was not closed since it was read, so that the fields are
         * this job's. */
        if (!atomic_compare_exchange_weak_explicit(&share->ticket, &ticket, ticket + 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(ctx, (int)item, worker);
        if (atomic_fetch_add(&pool->n_done, 1) + 1 == n_items &&
            atomic_load(&pool->caller_sleeping)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
        ticket = atomic_load_explicit(&share->ticket, memory_order_acquire);
    }
}

static void work_on_job(kn_pool *pool, int worker)
{
    int first = (int)((int64_t)worker * pool->n_shares / pool->threads);
    for (int i = 0; i < pool->n_shares; i++)
        work_on_share(pool, &pool->shares[(first + i) % pool->n_shares], worker);
}

static bool has_news(kn_pool *pool, uint32_t seen)
{
    return atomic_load(&pool->job) != seen || atomic_load(&pool->quit);
}

/* Returns when there is a job newer than seen or the pool ends. */
static void wait_for_job(kn_pool *pool, uint32_t seen)
{
    int64_t deadline = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (has_news(pool, seen)) return;
            relax();
        }
    } while (now_ns() < deadline);
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!has_news(pool, seen))
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    worker_start start = *(worker_start *)arg;
    free(arg);
    uint32_t seen = 0;
    while (!atomic_load(&start.pool->quit)) {
        wait_for_job(start.pool, seen);
        seen = atomic_load_explicit(&start.pool->job, memory_order_acquire);
        work_on_job(start.pool, start.index);
    }
    return NULL;
}

/* Waits until the items that others claimed are done. */
static void wait_for_items(kn_pool *pool, uint32_t n_items)
{
    int64_t deadline = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load(&pool->n_done) == n_items) return;
            relax();
        }
    } while (now_ns() < deadline);
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeping, true);
    while (atomic_load(&pool->n_done) != n_items)
        pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_sleeping, false);
    pthread_mutex_unlock(&pool->mutex);
}

static void publish(kn_pool *pool, uint32_t n_items, kn_pool_fn *fn, void *ctx)
{
    uint32_t number = atomic_load(&pool->job);
    for (int i = 0; i < pool->n_shares; i++)
        atomic_store(&pool->shares[i].ticket, (uint64_t)number << 32 | CLOSED);
    number++;
    atomic_store(&pool->n_done, 0);
    atomic_store_explicit(&pool->n_items, n_items, memory_order_release);
    atomic_store_explicit(&pool->fn, fn, memory_order_release);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_release);
    for (uint64_t i = 0, shares = (uint64_t)pool->n_shares; i < shares; i++) {
        pool_share *share = &pool->shares[i];
        atomic_store_explicit(&share->end, (uint32_t)((i + 1) * n_items / shares),
                              memory_order_release);
        atomic_store(&share->ticket, (uint64_t)number << 32 | i * n_items / shares);
    }
    atomic_store(&pool->job, number);
    if (atomic_load(&pool->n_sleeping) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
}

void kn_pool_run(kn_pool *pool, int n_items, kn_pool_fn *fn, void *ctx)
{
    if (pool->threads == 1 || n_items <= 1) {
        for (int i = 0; i < n_items; i++)
            fn(ctx, i, 0);
        return;
    }
    publish(pool, (uint32_t)n_items, fn, ctx);
    work_on_job(pool, 0);
    wait_for_items(pool, (uint32_t)n_items);
}

kn_pool *kn_pool_create(int threads)
{
    kn_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return NULL;
    *pool = (kn_pool){.threads = threads < 1 ? 1 : threads};
    pool->n_shares = pool->threads < MAX_SHARES ? pool->threads : MAX_SHARES;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 0; i < pool->n_shares; i++)
        atomic_store(&pool->shares[i].ticket, CLOSED);
    pool->workers = calloc((size_t)pool->threads, sizeof *pool->workers);
    for (int i = 1; pool->workers && i < pool->threads; i++) {
        worker_start *start = malloc(sizeof *start);
        if (!start) break;
        *start = (worker_start){pool, i};
        if (pthread_create(&pool->workers[pool->n_started], NULL, worker_main, start) != 0) {
            free(start);
            break;
        }
        pool->n_started++;
    }
    if (!pool->workers || pool->n_started != pool->threads - 1) {
        kn_pool_free(pool);
        return NULL;
    }
    return pool;
}

void kn_pool_free(kn_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->quit, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

int kn_pool_threads(const kn_pool *pool)
{
    return pool->threads;
}

int kn_usable_cores(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
