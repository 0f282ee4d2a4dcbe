/* Time for background work beside running answers, with a fake clock. */
#include "engine/allowance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TURN_NS 8e6

/* What the engine and the work do. */
typedef struct {
    double turn_ns, jitter; /* undisturbed; share of it, up and down */
    double disturbance;     /* what a turn after work takes longer, as a share */
    double unit_ns;         /* of work: at least one is done */
    int prompt_every;       /* such a turn reads a prompt too, and takes twice as long */
} world;

typedef struct {
    double turns, work, longest; /* per turn; ns */
} outcome;

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 4503599627370496.0 - 1;
}

static outcome play(allowance *a, const world *w, int n)
{
    outcome o = {0};
    uint64_t state = 1;
    double gap = 0;
    for (int i = 0; i < n; i++) {
        double ns = w->turn_ns * (1 + w->jitter * noise(&state));
        if (a->disturbed) ns *= 1 + w->disturbance;
        const bool prompt = w->prompt_every && i % w->prompt_every == 0;
        if (prompt) ns += w->turn_ns;
        o.longest = fmax(o.longest, gap + ns);
        allowance_turn(a, (int64_t)ns, !prompt);
        int64_t left = allowance_left(a);
        gap = left > 0 ? ceil((double)left / w->unit_ns) * w->unit_ns : 0;
        if (left > 0) allowance_spend(a, (int64_t)gap);
        o.turns += ns / n;
        o.work += gap / n;
    }
    return o;
}

/* Whatever the work's units and the harm they do: the bound holds, and the work gets on. */
static void test_bound(void **state)
{
    (void)state;
    static const double units[] = {0.3e6, 3e6, 13e6, 40e6}, harms[] = {0, 0.15, 0.4};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        for (size_t h = 0; h < sizeof harms / sizeof harms[0]; h++) {
            const world w = {TURN_NS, 0.1, harms[h], units[u], 0};
            allowance a = {0};
            const outcome o = play(&a, &w, 4000);
            const double ratio = (o.turns + o.work) / TURN_NS;
            assert_true(ratio < 1.75);
            assert_true(ratio > 1.55);
            assert_true(o.work > 0.35 * TURN_NS);
        }
}

/* Every second turn at least follows another directly. */
static void test_undisturbed_turns(void **state)
{
    (void)state;
    allowance a = {0};
    bool before = false;
    for (int i = 0; i < 100; i++) {
        allowance_turn(&a, (int64_t)TURN_NS, true);
        bool any = allowance_left(&a) > 0;
        assert_false(any && before);
        if (any) allowance_spend(&a, 1000);
        before = any;
    }
}

/* Longer and shorter turns are noticed; work goes on even if all turns are much longer than they
 * were. */
static void test_changes(void **state)
{
    (void)state;
    world w = {TURN_NS, 0.1, 0.15, 3e6, 0};
    allowance a = {0};
    play(&a, &w, 200);
    w.turn_ns = 3 * TURN_NS;
    outcome o = play(&a, &w, 10);
    assert_true(o.work > 0);
    play(&a, &w, 200);
    assert_true(fabs(a.plain_ns / w.turn_ns - 1) < 0.1);
    w.turn_ns = TURN_NS;
    play(&a, &w, 60);
    assert_true(fabs(a.plain_ns / w.turn_ns - 1) < 0.1);
}

/* Turns that read prompts, now and then or a hundred in a row, aren't taken for undisturbed ones;
 * work has its part of their time too. */
static void test_prompts(void **state)
{
    (void)state;
    world w = {TURN_NS, 0.1, 0.15, 3e6, 10};
    allowance a = {0};
    outcome o = play(&a, &w, 1000);
    assert_true(fabs(a.plain_ns / w.turn_ns - 1) < 0.1);
    assert_true((o.turns + o.work) / (1.1 * TURN_NS) < 1.75);
    w.prompt_every = 1;
    o = play(&a, &w, 100);
    assert_true((o.turns + o.work) / (2 * TURN_NS) < 1.95); /* the disturbance isn't seen here */
    assert_true(o.work > 0.5 * TURN_NS);
    w.prompt_every = 0;
    o = play(&a, &w, 100);
    assert_true((o.turns + o.work) / TURN_NS < 1.85); /* with what was saved up */
    allowance unknown = {0};
    w.prompt_every = 1;
    assert_true(play(&unknown, &w, 10).work > 0.3 * TURN_NS);
}

/* Nothing is saved up while nobody waits. */
static void test_idle(void **state)
{
    (void)state;
    allowance a = {0};
    for (int i = 0; i < 1000; i++)
        allowance_turn(&a, (int64_t)TURN_NS, true);
    assert_true(allowance_left(&a) > 0);
    assert_true((double)allowance_left(&a) < 10 * TURN_NS);
    allowance_idle(&a);
    assert_int_equal(allowance_left(&a), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),   cmocka_unit_test(test_undisturbed_turns),
        cmocka_unit_test(test_changes), cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
