/* The scheduler with a fake runner and fake time: what it decides, and what that leads to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/budget.h"
#include "engine/pace.h"
#include "engine/scheduler.h"

/* --- a fake engine ---------------------------------------------------------------------------- */

#define MOST 64

typedef struct {
    sched_limits limits;
    int budget, least; /* prompt tokens of a step, and of a user in it */
    uint64_t step, virtual_time;
    sched_item items[MOST];
    uint64_t finish[MOST]; /* by user */
    int prompt[MOST], name[MOST];
    int n, arrivals;
    /* By name: */
    int first_token_at[MOST], finished_at[MOST], generated[MOST], preempted[MOST];
    wait_reason why[MOST];
} runner;

static runner new_runner(int pages, int max_running, int budget)
{
    return (runner){.limits = {.page_tokens = 16,
                               .total_pages = pages,
                               .max_running = max_running,
                               .quantum = 32},
                    .budget = budget,
                    .least = 1};
}

/* answer 0: no limit but context. Returns the request's name: 0, 1, 2... */
static int arrive(runner *r, uint64_t user, int prompt, int answer, int context)
{
    assert_true(r->n < MOST && r->arrivals < MOST);
    int i = r->n++, name = r->arrivals++;
    r->items[i] = (sched_item){
        .user = user,
        .tag = scheduler_tag(r->virtual_time, (uint64_t)(prompt + answer), &r->finish[user]),
        .limited = answer > 0,
        .tokens = prompt,
        .limit = answer > 0 ? prompt + answer : context};
    r->prompt[i] = prompt;
    r->name[i] = name;
    return name;
}

static void leave(runner *r, int i)
{
    r->finished_at[r->name[i]] = (int)r->step;
    r->n--;
    memmove(r->items + i, r->items + i + 1, (size_t)(r->n - i) * sizeof *r->items);
    memmove(r->prompt + i, r->prompt + i + 1, (size_t)(r->n - i) * sizeof *r->prompt);
    memmove(r->name + i, r->name + i + 1, (size_t)(r->n - i) * sizeof *r->name);
}

/* One step; checks what must hold in every one. Returns the rows computed. */
static int step(runner *r)
{
    sched_decision d[MOST];
    int rows[MOST], reserved = 0, running = 0;
    r->step++;
    scheduler_admit(&r->limits, r->items, r->n, d);
    for (int i = 0; i < r->n; i++) {
        sched_item *item = &r->items[i];
        r->why[r->name[i]] = d[i].why;
        item->reserved = d[i].reserved;
        item->overtaken = d[i].overtaken;
        if (d[i].action == SCHED_PREEMPT) {
            assert_false(item->limited); /* never an answer with a stated limit */
            item->running = item->writing = false;
            item->computed = 0;
            r->preempted[r->name[i]]++;
        } else if (d[i].action == SCHED_ADMIT) {
            item->running = true;
            if (item->tag > r->virtual_time) r->virtual_time = item->tag;
        }
        reserved += item->reserved;
        running += item->running;
        if (item->running)
            assert_true(item->reserved * r->limits.page_tokens >= item->tokens);
        else
            assert_int_equal(item->reserved, 0);
    }
    assert_true(reserved <= r->limits.total_pages);
    assert_true(running <= r->limits.max_running);

    int total = scheduler_share(r->items, r->n, r->budget, r->least, r->step, rows), prompt = 0,
        sum = 0;
    for (int i = 0; i < r->n; i++) {
        sched_item *item = &r->items[i];
        sum += rows[i];
        if (item->writing) assert_int_equal(rows[i], 1); /* answers never wait */
        if (!item->writing) prompt += rows[i];
        assert_true(rows[i] <= item->tokens - item->computed);
    }
    assert_int_equal(sum, total);
    assert_true(prompt <= r->budget);
    for (int i = r->n - 1; i >= 0; i--) {
        sched_item *item = &r->items[i];
        item->computed += rows[i];
        if (rows[i] == 0 || item->computed < item->tokens) continue;
        item->tokens++;
        int *first = &r->first_token_at[r->name[i]];
        if (!*first) *first = (int)r->step;
        r->generated[r->name[i]]++;
        item->writing = true;
        if (item->tokens >= item->limit) leave(r, i);
    }
    return total;
}

static void run_all(runner *r, int most_steps)
{
    while (r->n > 0) {
        assert_true(step(r) > 0);
        assert_true((int)r->step < most_steps);
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Three contexts fit, ten users want one each: three at a time, nobody is interrupted. */
static void limited_answers_are_served_in_turn_and_never_interrupted(void **state)
{
    (void)state;
    runner r = new_runner(3 * 512 / 16, 64, 64);
    for (uint64_t user = 0; user < 10; user++)
        arrive(&r, user, 12, 500, 512);
    step(&r);
    assert_int_equal(r.why[0], WAIT_NOTHING);
    assert_int_equal(r.why[2], WAIT_NOTHING);
    assert_int_equal(r.why[3], WAIT_PAGES);
    assert_int_equal(r.why[4], WAIT_EARLIER);
    run_all(&r, 3000);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(r.preempted[i], 0);
        assert_int_equal(r.generated[i], 500);
        if (i > 0) assert_true(r.finished_at[i] >= r.finished_at[i - 1]);
    }
}

static void unlimited_answers_are_interrupted_youngest_first_and_all_finish(void **state)
{
    (void)state;
    runner r = new_runner(300 / 16 + 10, 64, 64);
    for (uint64_t user = 0; user < 6; user++)
        arrive(&r, user, 20, 0, 300);
    run_all(&r, 6000);
    int preempted = 0;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(r.generated[i], 280); /* each token once */
        preempted += r.preempted[i];
    }
    assert_int_equal(r.preempted[0], 0); /* the oldest never */
    assert_true(preempted >= 3);
}

static void newcomers_never_take_pages_from_running_answers(void **state)
{
    (void)state;
    runner r = new_runner(20, 64, 64);
    arrive(&r, 0, 20, 0, 300);
    for (int i = 0; i < 100; i++)
        step(&r);
    arrive(&r, 1, 200, 100, 300);
    for (int i = 0; i < 20; i++)
        step(&r);
    assert_int_equal(r.preempted[0], 0);
    assert_int_equal(r.why[1], WAIT_PAGES);
    run_all(&r, 1000);
}

static void random_loads_always_finish(void **state)
{
    (void)state;
    uint32_t x = 12345;
    for (int round = 0; round < 200; round++) {
        runner r = new_runner(16 + round % 9, 1 + round % 7, 1 + round % 50);
        int context = r.limits.total_pages * 16;
        for (int i = 0; i < 20; i++) {
            x = x * 1664525u + 1013904223u;
            int prompt = 1 + (int)(x >> 8) % (context - 1);
            int answer = (x & 64) ? 0 : 1 + (int)(x >> 20) % (context - prompt);
            if (x & 128) prompt = 1 + prompt % 20;
            if (prompt + answer > context) answer = context - prompt;
            arrive(&r, (x >> 4) % 5, prompt, answer, context);
            for (uint32_t s = 0; s < (x >> 28); s++)
                step(&r);
        }
        run_all(&r, 400000);
    }
}

/* --- order and fairness ----------------------------------------------------------------------- */

static void a_second_request_queues_behind_another_users_first(void **state)
{
    (void)state;
    runner r = new_runner(1000, 1, 64);
    int first = arrive(&r, 0, 10, 10, 512), second = arrive(&r, 0, 10, 10, 512);
    int third = arrive(&r, 0, 10, 10, 512), other = arrive(&r, 1, 10, 10, 512);
    run_all(&r, 100);
    assert_true(r.finished_at[first] < r.finished_at[other]);
    assert_true(r.finished_at[other] < r.finished_at[second]);
    assert_true(r.finished_at[second] < r.finished_at[third]);
}

static void priority_goes_first(void **state)
{
    (void)state;
    runner r = new_runner(1000, 1, 64);
    int a = arrive(&r, 0, 10, 10, 512), b = arrive(&r, 1, 10, 10, 512);
    int c = arrive(&r, 2, 10, 10, 512);
    r.items[2].priority = 5;
    run_all(&r, 100);
    assert_true(r.finished_at[c] < r.finished_at[a] && r.finished_at[a] < r.finished_at[b]);
}

static void a_wait_for_an_adapter_blocks_nobody(void **state)
{
    (void)state;
    runner r = new_runner(1000, 1, 64);
    int slow = arrive(&r, 0, 10, 5, 512), next = arrive(&r, 1, 10, 5, 512);
    r.items[0].adapter = WAIT_ADAPTER;
    step(&r);
    assert_int_equal(r.why[slow], WAIT_ADAPTER);
    assert_int_equal(r.why[next], WAIT_NOTHING);
    r.items[0].adapter = WAIT_NOTHING;
    run_all(&r, 100);
}

/* A large adapter has room only while nobody else runs, and others come so often that somebody
 * always would. */
static void a_large_adapter_gets_its_turn(void **state)
{
    (void)state;
    runner r = new_runner(1000, 64, 64);
    int large = arrive(&r, 0, 10, 5, 512), before = 0;
    while (r.arrivals < MOST && !r.first_token_at[large]) {
        arrive(&r, (uint64_t)r.arrivals, 10, 8, 512);
        for (int i = 0; i < 4 && !r.first_token_at[large]; i++) {
            bool others = false;
            for (int k = 1; k < r.n; k++)
                others |= r.items[k].running;
            r.items[0].adapter = others || r.step == 0 ? WAIT_SLOT : WAIT_NOTHING;
            step(&r);
        }
    }
    assert_true(r.first_token_at[large] > 0);
    for (int i = 1; i < r.arrivals; i++)
        before += r.first_token_at[i] && r.first_token_at[i] < r.first_token_at[large];
    assert_int_equal(before, SCHED_MOST_OVERTAKING);
    run_all(&r, 1000);
}

/* Two long prompts and two answers run; a short question starts at once, also with a budget that is
 * smaller than the number of users. */
static void a_short_prompt_starts_while_long_ones_are_read(void **state)
{
    (void)state;
    for (int budget = 1; budget <= 64; budget *= 2) {
        runner r = new_runner(10000, 64, budget);
        arrive(&r, 3, 4, 2000, 8192);
        arrive(&r, 4, 4, 2000, 8192);
        for (int i = 0; i < 20; i++)
            step(&r);
        arrive(&r, 1, 4000, 10, 8192);
        arrive(&r, 2, 4000, 10, 8192);
        for (int i = 0; i < 10; i++)
            step(&r);
        int hi = arrive(&r, 5, 30, 10, 8192);
        int before = (int)r.step;
        while (!r.first_token_at[hi])
            step(&r);
        int waited = r.first_token_at[hi] - before, fair = (3 * 30 + budget - 1) / budget + 1;
        assert_true(waited <= fair);
    }
}

static void prompt_tokens_are_shared_equally_between_users(void **state)
{
    (void)state;
    sched_item items[4] = {
        {.user = 1, .tag = 1, .running = true, .tokens = 1000},
        {.user = 1, .tag = 2, .running = true, .tokens = 1000},
        {.user = 2, .tag = 3, .running = true, .tokens = 1000},
        {.user = 3, .tag = 4, .running = true, .tokens = 5},
    };
    int rows[4];
    assert_int_equal(scheduler_share(items, 4, 65, 1, 0, rows), 65);
    assert_int_equal(rows[3], 5);
    assert_int_equal(rows[0] + rows[2], 60);
    assert_int_equal(rows[0], 30);
    assert_int_equal(rows[1], 0); /* one after the other within a user */
}

/* Equal parts would be two tokens: users take turns instead, nobody is left behind, and no part of
 * the budget is. */
static void users_take_turns_where_equal_parts_are_small(void **state)
{
    (void)state;
    enum { USERS = 8, PROMPT = 100 };
    for (int budget = 1; budget <= 64; budget++) {
        sched_item items[USERS];
        int rows[USERS], parts = 0, left = USERS * PROMPT, turns = budget / 16 ? budget / 16 : 1;
        for (int i = 0; i < USERS; i++)
            items[i] = (sched_item){
                .user = (uint64_t)i, .tag = (uint64_t)i, .running = true, .tokens = PROMPT};
        uint64_t step = 3;
        for (; left > 0; step++) {
            int sum = scheduler_share(items, USERS, budget, 16, step, rows), least = PROMPT,
                most = 0;
            assert_int_equal(sum, left < budget ? left : budget);
            left -= sum;
            for (int i = 0; i < USERS; i++) {
                parts += rows[i] > 0;
                items[i].computed += rows[i];
                if (items[i].computed < least) least = items[i].computed;
                if (items[i].computed > most) most = items[i].computed;
                items[i].running = items[i].computed < PROMPT;
            }
            assert_true(most - least <= 3 * (budget / turns + 1) || most == PROMPT);
        }
        /* About one part for every 16 tokens, or for every budget. */
        int size = budget < 16 ? budget : 16;
        assert_true(parts <= USERS * PROMPT / size + (int)step + USERS);
    }
}

/* A short prompt among long ones waits for its turn, not for their ends. */
static void a_short_prompt_gets_its_turn(void **state)
{
    (void)state;
    runner r = new_runner(10000, 64, 20);
    r.least = 16;
    for (uint64_t user = 1; user < 9; user++)
        arrive(&r, user, 4000, 10, 8192);
    for (int i = 0; i < 10; i++)
        step(&r);
    int hi = arrive(&r, 9, 30, 10, 8192), before = (int)r.step;
    while (!r.first_token_at[hi])
        step(&r);
    assert_true(r.first_token_at[hi] - before <= 3 * 9);
}

/* Adapters take pages and give them back: the scheduler is told anew for every step how many there
 * are, never fewer than are reserved. */
static void pages_come_and_go(void **state)
{
    (void)state;
    uint32_t x = 99;
    for (int round = 0; round < 100; round++) {
        const int pages = 40, least = 16; /* what a request may need */
        runner r = new_runner(pages, 1 + round % 7, 1 + round % 50);
        for (int i = 0; i < 50000 && (i < 300 || r.n > 0); i++) {
            x = x * 1664525u + 1013904223u;
            if (i < 300 && r.arrivals < MOST && (x >> 28) < 3) {
                int prompt = 1 + (int)(x >> 8) % (least * 16 - 1);
                int answer = (x & 64) ? 0 : 1 + (int)(x >> 20) % (least * 16 - prompt);
                arrive(&r, (x >> 4) % 5, prompt, answer, least * 16);
            }
            int reserved = 0;
            for (int j = 0; j < r.n; j++)
                reserved += r.items[j].reserved;
            int held = (int)(x >> 12) % (pages - least + 1);
            r.limits.total_pages = pages - held > reserved ? pages - held : reserved;
            step(&r);
        }
        assert_int_equal(r.n, 0);
    }
}

static void nobody_starves_behind_a_stream_of_short_requests(void **state)
{
    (void)state;
    runner r = new_runner(64, 4, 64);
    for (uint64_t user = 0; user < 4; user++)
        arrive(&r, user, 10, 30, 1000);
    step(&r);
    int big = arrive(&r, 9, 900, 100, 1024); /* needs nearly all pages */
    for (uint64_t i = 0; i < 50 && !r.finished_at[big]; i++) {
        arrive(&r, i % 4, 10, 30, 1000);
        for (int s = 0; s < 12; s++)
            step(&r);
    }
    assert_true(r.finished_at[big] > 0);
}

/* --- pace ------------------------------------------------------------------------------------- */

static void prompt_chunks_fit_into_two_plain_steps(void **state)
{
    (void)state;
    pace p;
    pace_init(&p, 512);
    assert_in_range(pace_budget(&p, 4), 1, 512);
    for (int i = 0; i < 50; i++) { /* a plain step takes 10 ms, a prompt token 0.25 ms */
        pace_record(&p, 10000000, 8, 0);
        int n = pace_budget(&p, 8);
        pace_record(&p, 10000000 + n * 250000, 8, n);
    }
    assert_in_range(pace_budget(&p, 8), 30, 42);
    assert_int_equal(pace_budget(&p, 0), 512); /* nobody waits */
    for (int i = 0; i < 50; i++)
        pace_record(&p, 64 * 20000000, 0, 64);  /* a slow machine: 20 ms a token */
    assert_in_range(pace_budget(&p, 0), 8, 12); /* a cancel takes effect soon */
}

/* Many prompts at once on a fresh engine: answers are under way before a plain step was seen. What
 * their rows cost isn't taken for the price of the prompts, so the steps grow with the answers. */
static void a_first_burst_is_read_in_growing_steps(void **state)
{
    (void)state;
    const int64_t weights_ns = 4000000, row_ns = 1000000;
    pace p;
    pace_init(&p, 512);
    int writing = 0, steps = 0;
    for (; writing < 512 && steps < 1000; steps++) {
        int n = pace_budget(&p, writing);
        int64_t plain = weights_ns + writing * row_ns;
        if (writing > 8) assert_true(n * row_ns <= plain); /* nobody waits longer than two steps */
        pace_record(&p, plain + n * row_ns, writing, n);
        writing += n / 4; /* prompts of four tokens */
    }
    assert_in_range(steps, 8, 40);
    pace_record(&p, weights_ns + 512 * row_ns, 512, 0);
    assert_in_range(pace_budget(&p, 512), 256, 512);
}

/* Plain steps were seen, but only with one answer, when hundreds of prompts come at once: what the
 * rows of so many answers cost isn't taken for the price of the prompts, nor is a plain step taken
 * for as short as it was. A token may cost more than an answer's row, for its adapter, or less, for
 * an answer's logits. */
static void a_burst_after_small_steps_is_read_in_growing_steps(void **state)
{
    (void)state;
    const int64_t weights_ns = 6000000, row_ns = 1000000;
    for (int64_t token_ns = row_ns / 2; token_ns <= row_ns * 5 / 4; token_ns += row_ns / 4) {
        pace p;
        pace_init(&p, 512);
        for (int i = 0; i < 20; i++)
            pace_record(&p, weights_ns + row_ns, 1, 0);
        int writing = 1, steps = 0;
        for (; writing < 512 && steps < 1000; steps++) {
            int n = pace_budget(&p, writing);
            int64_t plain = weights_ns + writing * row_ns;
            if (steps > 0 && n > 8) assert_true(n * token_ns <= plain + plain / 10);
            pace_record(&p, plain + n * token_ns, writing, n);
            writing += n / 4;
        }
        assert_in_range(steps, 8, 40);
        assert_in_range(pace_budget(&p, 512), 384, 512);
    }
}

/* A long prompt arrives beside running answers, on machines of many kinds: once a mixed step was
 * seen, none takes longer than two plain ones, whatever an adapter costs on top. */
static void running_answers_wait_no_longer_than_two_plain_steps(void **state)
{
    (void)state;
    for (int64_t plain = 2000000; plain <= 200000000; plain *= 3)
        for (int64_t token = plain / 100; token <= plain / 9; token += plain / 50)
            for (int64_t adapter = 0; adapter <= plain / 10; adapter += plain / 20) {
                pace p;
                pace_init(&p, 512);
                for (int i = 0; i < 5; i++)
                    pace_record(&p, plain, 8, 0);
                for (int i = 0; i < 40; i++) {
                    int n = pace_budget(&p, 8);
                    int64_t ns = plain + n * token + adapter;
                    if (i >= 12) assert_true(ns <= 2 * plain + plain / 10);
                    pace_record(&p, ns, 8, n);
                }
            }
}

/* --- budget ----------------------------------------------------------------------------------- */

static void one_budget_serves_kv_and_adapters(void **state)
{
    (void)state;
    const uint64_t GB = (uint64_t)1 << 30;
    memory_budget b;
    pf_err err = {0};
    budget_request r = {
        .available = 20 * GB, .weight_bytes = 2 * GB, .token_bytes = 23040, .context = 8192};
    assert_int_equal(budget_choose(&r, &b, &err), PF_OK);
    assert_int_equal(b.kv_tokens, 4 * 8192); /* there is plenty */
    assert_true(b.bytes == (uint64_t)b.kv_tokens * r.token_bytes + GB);
    assert_true(b.adapter_bytes == b.bytes - 8192 * r.token_bytes); /* one context is KV's */
    r.available = 3 * GB;
    r.token_bytes = 131072;
    assert_int_equal(budget_choose(&r, &b, &err), PF_OK);
    assert_true(b.bytes == GB / 2);
    assert_int_equal(b.kv_tokens, GB / 2 / r.token_bytes); /* each may take the other's */
    assert_true(b.adapter_bytes == GB / 8);
    r.fixed = true;
    assert_int_equal(budget_choose(&r, &b, &err), PF_OK);
    uint64_t kv = (uint64_t)b.kv_tokens * r.token_bytes;
    assert_true(b.adapter_bytes == GB / 8 && kv == GB / 2 - GB / 8 && b.bytes == GB / 2);
    r.fixed = false;
    r.kv_tokens = 777;
    r.adapter_bytes = 12345;
    assert_int_equal(budget_choose(&r, &b, &err), PF_OK);
    assert_int_equal(b.kv_tokens, 777);
    assert_int_equal(b.adapter_bytes, 12345);
    assert_true(b.bytes == 777 * r.token_bytes + 12345);
    r.kv_tokens = 0;
    r.adapter_bytes = 0;
    r.available = 2 * GB + 1000000;
    assert_int_equal(budget_choose(&r, &b, &err), PF_NO_MEMORY);
    assert_non_null(strstr(err.text, "2048 MB"));
    assert_true(budget_available() > 0);
    assert_int_equal(budget_rest(100, 30, 1000), 70);
    assert_int_equal(budget_rest(100, 30, 50), 50);
    assert_int_equal(budget_rest(100, 130, 50), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limited_answers_are_served_in_turn_and_never_interrupted),
        cmocka_unit_test(unlimited_answers_are_interrupted_youngest_first_and_all_finish),
        cmocka_unit_test(newcomers_never_take_pages_from_running_answers),
        cmocka_unit_test(random_loads_always_finish),
        cmocka_unit_test(a_second_request_queues_behind_another_users_first),
        cmocka_unit_test(priority_goes_first),
        cmocka_unit_test(a_wait_for_an_adapter_blocks_nobody),
        cmocka_unit_test(a_large_adapter_gets_its_turn),
        cmocka_unit_test(a_short_prompt_starts_while_long_ones_are_read),
        cmocka_unit_test(prompt_tokens_are_shared_equally_between_users),
        cmocka_unit_test(users_take_turns_where_equal_parts_are_small),
        cmocka_unit_test(a_short_prompt_gets_its_turn),
        cmocka_unit_test(pages_come_and_go),
        cmocka_unit_test(nobody_starves_behind_a_stream_of_short_requests),
        cmocka_unit_test(prompt_chunks_fit_into_two_plain_steps),
        cmocka_unit_test(a_first_burst_is_read_in_growing_steps),
        cmocka_unit_test(a_burst_after_small_steps_is_read_in_growing_steps),
        cmocka_unit_test(running_answers_wait_no_longer_than_two_plain_steps),
        cmocka_unit_test(one_budget_serves_kv_and_adapters),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
