#include "kernels/pool.h"
#include "support/cpu_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_ITEMS 200

typedef struct {
    int threads;
    int done[MAX_ITEMS];
    atomic_int running[64]; /* by worker */
    atomic_int wrong;
} job;

static void count_item(void *ctx, int item, int worker)
{
    job *j = ctx;
    if (worker < 0 || worker >= j->threads || atomic_fetch_add(&j->running[worker], 1) != 0)
        atomic_store(&j->wrong, 1);
    j->done[item]++; /* no two threads share an item, and the pool orders it before the caller */
    atomic_fetch_sub(&j->running[worker], 1);
}

/* Every item of every job exactly once, however many threads and however short the jobs. */
static void test_stress(void **state)
{
    (void)state;
    static const int thread_counts[] = {1, 2, 3, 8};
    for (int t = 0; t < 4; t++) {
        kn_pool *pool = kn_pool_create(thread_counts[t]);
        assert_non_null(pool);
        assert_int_equal(kn_pool_threads(pool), thread_counts[t]);
        job j = {.threads = thread_counts[t]};
        for (int round = 0; round < 3000; round++) {
            int n = round * 7 % MAX_ITEMS;
            memset(j.done, 0, sizeof j.done);
            kn_pool_run(pool, n, count_item, &j);
            for (int i = 0; i < MAX_ITEMS; i++)
                assert_int_equal(j.done[i], i < n);
        }
        assert_int_equal(atomic_load(&j.wrong), 0);
        kn_pool_free(pool);
    }
}

/* Workers that went to sleep wake up again. */
static void test_sleep_and_wake(void **state)
{
    (void)state;
    kn_pool *pool = kn_pool_create(4);
    assert_non_null(pool);
    job j = {.threads = 4};
    for (int round = 0; round < 20; round++) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        memset(j.done, 0, sizeof j.done);
        kn_pool_run(pool, 50, count_item, &j);
        for (int i = 0; i < 50; i++)
            assert_int_equal(j.done[i], 1);
    }
    kn_pool_free(pool);
}

/* An idle pool uses no processor time. */
static void test_idle(void **state)
{
    (void)state;
    kn_pool *pool = kn_pool_create(8);
    assert_non_null(pool);
    job j = {.threads = 8};
    kn_pool_run(pool, 50, count_item, &j);
    const struct timespec idle = {0, 200000000};
    int64_t used = INT64_MAX;
    /* on a busy machine workers may come late to their last look for work */
    for (int i = 0; i < 100 && used > 10000000; i++) {
        int64_t before = cpu_time_ns();
        nanosleep(&idle, NULL);
        used = cpu_time_ns() - before;
    }
    assert_true(used <= 10000000);
    kn_pool_free(pool);
}

static void test_edges(void **state)
{
    (void)state;
    kn_pool_free(NULL);
    assert_true(kn_usable_cores() >= 1);
    kn_pool *pool = kn_pool_create(0);
    assert_int_equal(kn_pool_threads(pool), 1);
    job j = {.threads = 1};
    kn_pool_run(pool, 0, count_item, &j);
    kn_pool_run(pool, 3, count_item, &j);
    assert_int_equal(j.done[2], 1);
    kn_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
