#include "engine/background.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/runtime.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_SLICE_NS 20000000 /* when nobody asks: how soon a new request is noticed */
/* Of a turn of the engine, when somebody is waiting: an answer's time per token then rises to less
 * than twice. The rest is for the caches that slice and turn take from each other. */
#define SHARE          0.75
#define MOST_CREDIT_NS 60000000 /* turns save up for units that are longer than a turn */

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
    if (b->n == 0) return false;
    if (busy) {
        b->credit_ns += (int64_t)(SHARE * (double)turn_ns);
        if (b->credit_ns > MOST_CREDIT_NS) b->credit_ns = MOST_CREDIT_NS;
        if (b->credit_ns <= 0) return true;
    }
    int64_t budget = busy ? b->credit_ns : IDLE_SLICE_NS, start = clock_monotonic_ns();
    bool more = false;
    for (int tried = 0; tried < b->n && !more; tried++) {
        b->next = (b->next + 1) % b->n;
        background_work *work = &b->works[b->next];
        background_state state = work->slice(work->ctx, forward_weights(e->forward), budget);
        if (state == BACKGROUND_DONE) remove_work(b, b->next);
        more = state != BACKGROUND_PAUSED;
    }
    b->credit_ns = busy ? b->credit_ns - (clock_monotonic_ns() - start) : 0;
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
