#include "engine/background.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/runtime.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_SLICE_NS 20000000 /* without requests: how soon a new one is noticed */

static void remove_work(background *b, int i)
{
    background_work work = b->works[i];
    memmove(b->works + i, b->works + i + 1, (size_t)(b->n - i - 1) * sizeof *b->works);
    b->n--;
    work.ended(work.ctx);
}

bool background_turn(engine *e, bool busy, int64_t turn_ns)
{
    background *b = &e->background;
    if (busy) allowance_turn(&b->allowance, turn_ns, e->only_writing);
    if (b->n == 0) return false;
    int64_t budget = busy ? allowance_left(&b->allowance) : IDLE_SLICE_NS;
    if (budget <= 0) return true;
    int64_t start = clock_monotonic_ns();
    bool more = false;
    for (int tried = 0; tried < b->n && !more; tried++) {
        b->next = (b->next + 1) % b->n;
        background_work *work = &b->works[b->next];
        background_state state = work->slice(work->ctx, forward_weights(e->forward), budget);
        if (state == BACKGROUND_DONE) remove_work(b, b->next);
        more = state != BACKGROUND_PAUSED;
    }
    allowance_spend(&b->allowance, clock_monotonic_ns() - start);
    if (!busy) allowance_idle(&b->allowance);
    return more && b->n > 0;
}

void background_close(engine *e)
{
    while (e->background.n > 0)
        remove_work(&e->background, 0);
    free(e->background.works);
    e->background = (background){0};
}

static void do_start(engine *e, void *args)
{
    background *b = &e->background;
    b->works = xrealloc_array(b->works, (size_t)b->n + 1, sizeof *b->works);
    b->works[b->n++] = *(const background_work *)args;
}

void engine_background_start(engine *e, const background_work *work)
{
    background_work copy = *work;
    engine_run_call(e, do_start, &copy);
}

static void do_stop(engine *e, void *args)
{
    for (int i = 0; i < e->background.n; i++)
        if (e->background.works[i].ctx == args) {
            remove_work(&e->background, i);
            return;
        }
}

void engine_background_stop(engine *e, const void *ctx)
{
    engine_run_call(e, do_stop, (void *)(uintptr_t)ctx);
}

void engine_background_wake(engine *e)
{
    engine_attention(e);
}
