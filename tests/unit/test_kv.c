/* Pages and the prefix cache with a fake store that remembers which tokens were written where: what
 * is found must be what was computed, and must be one's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kv.h"

#define PAGE      16
#define MOST_PAGE 64
#define MOST      512

/* What a token's keys and values depend on: everything before it. */
typedef struct {
    uint64_t content[MOST_PAGE][PAGE];
    int clears, copies, discards;
} store;

static void store_copy(void *ctx, int32_t src, int32_t dst, int n)
{
    store *s = ctx;
    s->copies++;
    memcpy(s->content[dst], s->content[src], (size_t)n * sizeof s->content[0][0]);
}

static void store_clear(void *ctx, int32_t page)
{
    store *s = ctx;
    s->clears++;
    memset(s->content[page], 0, sizeof s->content[page]);
}

static void store_discard(void *ctx, int32_t page)
{
    store *s = ctx;
    s->discards++;
    memset(s->content[page], 0, sizeof s->content[page]);
}

static kv *new_kv(store *s, int pages)
{
    memset(s, 0, sizeof *s);
    return kv_create(pages, PAGE, true, &(kv_ops){store_copy, store_clear, s, store_discard});
}

static prefix_key root_of(uint64_t user, int adapter)
{
    unsigned char digest[32] = {1}, salt[32] = {0}, adapter_digest[32] = {0};
    memcpy(salt, &user, sizeof user);
    adapter_digest[0] = (unsigned char)adapter;
    return prefix_root(digest, adapter ? adapter_digest : NULL, salt);
}

/* A request: tokens, marks, an adapter, a user. */
typedef struct {
    kv_table table;
    uint64_t user;
    int adapter, n, computed;
    int32_t tokens[MOST];
    unsigned char marks[MOST];
} request;

static uint64_t content_of(const request *r, int at)
{
    uint64_t h = 1469598103934665603u + r->user * 1000003u + (uint64_t)r->adapter * 7919u;
    for (int i = 0; i <= at; i++)
        h = (h ^ ((uint64_t)r->tokens[i] * 2 + r->marks[i])) * 1099511628211u;
    return h | 1;
}

static void begin(kv *k, store *s, request *r)
{
    prefix_key root = root_of(r->user, r->adapter);
    kv_table_init(&r->table, r->user, &root);
    r->computed = kv_find_prefix(k, &r->table, r->tokens, r->marks, r->n - 1);
    for (int i = 0; i < r->computed; i++)
        assert_true(s->content[r->table.pages[i / PAGE]][i % PAGE] == content_of(r, i));
}

static void compute(kv *k, store *s, request *r, int to)
{
    kv_extend(k, &r->table, to);
    for (; r->computed < to; r->computed++)
        s->content[r->table.pages[r->computed / PAGE]][r->computed % PAGE] =
            content_of(r, r->computed);
    kv_publish(k, &r->table, r->tokens, r->marks, r->computed);
}

static void end(kv *k, request *r)
{
    kv_release(k, &r->table, r->tokens, r->marks, r->computed);
    kv_table_free(&r->table);
}

static request new_request(uint64_t user, int adapter, int n, int32_t first)
{
    request r = {.user = user, .adapter = adapter, .n = n};
    for (int i = 0; i < n; i++)
        r.tokens[i] = first + i;
    return r;
}

/* Runs a whole request; returns the tokens found. */
static int run(kv *k, store *s, request r)
{
    begin(k, s, &r);
    int found = r.computed;
    compute(k, s, &r, r.n);
    end(k, &r);
    return found;
}

static void a_second_turn_computes_only_the_new_message(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 32);
    request turn = new_request(1, 1, 53, 100);
    assert_int_equal(run(k, &s, turn), 0);
    turn.n = 90; /* the answer and the next message */
    for (int i = 53; i < 90; i++)
        turn.tokens[i] = 1000 + i;
    assert_int_equal(run(k, &s, turn), 53); /* 3 whole pages and 5 tokens of the fourth */
    assert_int_equal(s.copies, 1);
    assert_int_equal(run(k, &s, turn), 89); /* the last token is always computed */
    kv_free(k);
}

static void users_adapters_and_marks_never_meet(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 64);
    request r = new_request(1, 1, 40, 5);
    assert_int_equal(run(k, &s, r), 0);
    r.user = 2;
    assert_int_equal(run(k, &s, r), 0);
    r.user = 1;
    r.adapter = 2;
    assert_int_equal(run(k, &s, r), 0);
    r.adapter = 0;
    assert_int_equal(run(k, &s, r), 0);
    r.adapter = 1;
    r.marks[20] = 1;
    assert_int_equal(run(k, &s, r), 20); /* up to the other mark */
    r.marks[20] = 0;
    assert_int_equal(run(k, &s, r), 39);
    kv_free(k);
}

static void keys_are_separate_by_every_part(void **state)
{
    (void)state;
    int32_t tokens[PAGE] = {0};
    unsigned char marks[PAGE] = {0};
    prefix_key a = root_of(1, 0), b = root_of(2, 0), c = root_of(1, 3);
    assert_memory_not_equal(a.bytes, b.bytes, sizeof a);
    assert_memory_not_equal(a.bytes, c.bytes, sizeof a);
    prefix_key x = prefix_child(&a, tokens, marks, PAGE);
    marks[3] = 1;
    prefix_key y = prefix_child(&a, tokens, marks, PAGE);
    marks[3] = 0;
    tokens[3] = 1;
    prefix_key z = prefix_child(&a, tokens, marks, PAGE);
    assert_memory_not_equal(x.bytes, y.bytes, sizeof x);
    assert_memory_not_equal(x.bytes, z.bytes, sizeof x);
    prefix_key w = prefix_child(&b, tokens, marks, PAGE);
    assert_memory_not_equal(z.bytes, w.bytes, sizeof x);
}

static void pages_are_overwritten_before_another_user_gets_them(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 4);
    run(k, &s, new_request(1, 0, 64, 7));
    assert_int_equal(kv_get_usage(k).idle, 4);
    request r = new_request(2, 0, 40, 9000);
    begin(k, &s, &r);
    kv_extend(k, &r.table, 40);
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < PAGE; i++)
            assert_true(s.content[r.table.pages[p]][i] == 0);
    assert_int_equal(s.clears, 3);
    end(k, &r);
    kv_free(k);
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < PAGE; i++)
            assert_true(s.content[p][i] == 0); /* closing leaves nothing */
}

static void a_forgotten_user_leaves_nothing(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 16);
    run(k, &s, new_request(1, 0, 40, 100));
    run(k, &s, new_request(2, 0, 40, 100));
    request running = new_request(1, 0, 20, 500);
    begin(k, &s, &running);
    compute(k, &s, &running, 20);
    running.table.forgotten = true;
    kv_forget_user(k, 1);
    compute(k, &s, &running, 20); /* it goes on */
    end(k, &running);
    for (int p = 0; p < 16; p++)
        for (int i = 0; i < PAGE; i++)
            for (int at = 0; at < 40; at++) {
                request old = new_request(1, 0, 40, 100);
                assert_true(s.content[p][i] != content_of(&old, at));
                if (at < 20) assert_true(s.content[p][i] != content_of(&running, at));
            }
    assert_int_equal(run(k, &s, new_request(1, 0, 40, 100)), 0);
    assert_int_equal(run(k, &s, new_request(2, 0, 40, 100)), 39);
    kv_free(k);
}

static void the_longest_unused_page_goes_first_and_children_before_parents(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 8);
    run(k, &s, new_request(1, 0, 48, 100)); /* three pages each */
    run(k, &s, new_request(1, 0, 48, 300));
    assert_int_equal(run(k, &s, new_request(1, 0, 48, 100)), 47); /* used again */
    run(k, &s, new_request(1, 0, 64, 500));                       /* four more: takes two */
    request r = new_request(1, 0, 48, 300);
    begin(k, &s, &r);
    assert_int_equal(r.computed, 16); /* its end went, its beginning is still of use */
    end(k, &r);
    kv_free(k);
}

static void a_full_pool_takes_over_the_page_it_would_copy(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 3);
    run(k, &s, new_request(1, 0, 48, 100));
    request r = new_request(1, 0, 48, 100);
    r.tokens[40] = 1;
    assert_int_equal(run(k, &s, r), 40);
    assert_int_equal(s.copies, 0);
    kv_free(k);
}

/* Adapters hold the memory for now: a page that somebody else uses can be neither copied nor taken
 * over, so what agrees only in part is computed again. */
static void without_memory_for_a_copy_only_whole_pages_are_found(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 8);
    request a = new_request(1, 0, 40, 100), b = new_request(1, 0, 40, 100);
    b.tokens[20] = 1;
    begin(k, &s, &a);
    compute(k, &s, &a, 40);
    kv_limit(k, 3); /* a's */
    begin(k, &s, &b);
    assert_int_equal(b.computed, 16);
    assert_int_equal(s.copies, 0);
    kv_limit(k, 8);
    compute(k, &s, &b, 40);
    end(k, &a);
    end(k, &b);
    assert_int_equal(kv_get_usage(k).in_use, 0);
    kv_free(k);
}

static void two_sequences_share_full_pages(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 8);
    request a = new_request(1, 0, 40, 100), b = new_request(1, 0, 50, 100);
    begin(k, &s, &a);
    compute(k, &s, &a, 40);
    begin(k, &s, &b); /* while a still runs: its full pages */
    assert_int_equal(b.computed, 32);
    compute(k, &s, &b, 50);
    assert_int_equal(kv_get_usage(k).in_use, 2 + 1 + 2);
    end(k, &a);
    end(k, &b);
    assert_int_equal(kv_get_usage(k).in_use, 0);
    kv_free(k);
}

/* Random requests against the fake store: begin() checks every token that is found. */
static void random_requests_find_only_what_was_computed(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 24);
    uint32_t x = 7;
    int found = 0;
    for (int round = 0; round < 3000; round++) {
        request r[3];
        for (int i = 0; i < 3; i++) {
            x = x * 1664525u + 1013904223u;
            int n = 1 + (int)(x >> 8) % 100;
            r[i] = new_request((x >> 24) % 3, (int)(x >> 26) % 2, n, (int32_t)((x >> 28) % 3));
            if (x & 8) r[i].tokens[n / 2] = 77;
            if (x & 16) r[i].marks[n / 3] = 1;
            begin(k, &s, &r[i]);
            found += r[i].computed;
            compute(k, &s, &r[i], r[i].computed + (n - r[i].computed) / 2);
        }
        for (int i = 2; i >= 0; i--) {
            compute(k, &s, &r[i], r[i].n);
            for (int at = 0; at < r[i].n; at++)
                assert_true(s.content[r[i].table.pages[at / PAGE]][at % PAGE] ==
                            content_of(&r[i], at));
            end(k, &r[i]);
        }
        kv_usage u = kv_get_usage(k);
        assert_int_equal(u.in_use, 0);
        if (round % 100 == 99) kv_forget_user(k, (uint64_t)round / 100 % 3);
    }
    assert_true(found > 10000);
    kv_free(k);
}

static int present(kv *k)
{
    return kv_get_usage(k).present;
}

/* Adapters want the memory: free pages give theirs back first, then the longest unused ones; pages
 * in use stay, and what is still cached is right. */
static void pages_give_their_memory_back(void **state)
{
    (void)state;
    store s;
    kv *k = new_kv(&s, 16);
    request old = new_request(1, 0, 48, 100), newer = new_request(2, 0, 48, 500);
    request running = new_request(3, 0, 60, 900);
    assert_int_equal(run(k, &s, old), 0); /* three pages each */
    assert_int_equal(run(k, &s, newer), 0);
    begin(k, &s, &running);
    compute(k, &s, &running, 60); /* four */
    assert_int_equal(present(k), 10);
    kv_limit(k, 16);
    assert_int_equal(s.discards, 0);
    kv_forget_user(k, 2); /* three free pages that take memory */
    kv_limit(k, 8);
    assert_int_equal(s.discards, 2);
    assert_int_equal(kv_get_usage(k).idle, 3);
    kv_limit(k, 5); /* the last free one, and two of the old ones */
    assert_int_equal(s.discards, 5);
    assert_int_equal(kv_get_usage(k).idle, 1);
    kv_limit(k, 4);
    assert_int_equal(kv_get_usage(k).idle, 0);
    kv_limit(k, 4); /* all in use */
    assert_int_equal(present(k), 4);
    end(k, &running);
    assert_int_equal(run(k, &s, running), 59); /* it is still there */
    assert_int_equal(run(k, &s, old), 0);      /* and this takes three of its pages */
    assert_true(present(k) <= 4);
    kv_limit(k, 16);
    assert_int_equal(run(k, &s, running), 16);
    assert_int_equal(run(k, &s, old), 47);
    assert_true(present(k) > 4);
    kv_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_turn_computes_only_the_new_message),
        cmocka_unit_test(users_adapters_and_marks_never_meet),
        cmocka_unit_test(keys_are_separate_by_every_part),
        cmocka_unit_test(pages_are_overwritten_before_another_user_gets_them),
        cmocka_unit_test(a_forgotten_user_leaves_nothing),
        cmocka_unit_test(the_longest_unused_page_goes_first_and_children_before_parents),
        cmocka_unit_test(a_full_pool_takes_over_the_page_it_would_copy),
        cmocka_unit_test(without_memory_for_a_copy_only_whole_pages_are_found),
        cmocka_unit_test(two_sequences_share_full_pages),
        cmocka_unit_test(pages_give_their_memory_back),
        cmocka_unit_test(random_requests_find_only_what_was_computed),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
