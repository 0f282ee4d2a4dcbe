#include "engine/hold.h"

#include "base/clock.h"
#include "engine/runtime.h"

typedef struct {
    void (*fn)(engine *e, void *ctx);
    void *ctx;
} holder;

static void run_holder(engine *e, void *args)
{
    const holder *h = args;
    h->fn(e, h->ctx);
    pthread_mutex_lock(&e->lock);
    engine_take_turn(e); /* requests came and went since the thread took its turn */
    pthread_mutex_unlock(&e->lock);
}

void engine_hold(engine *e, void (*fn)(engine *e, void *ctx), void *ctx)
{
    holder h = {fn, ctx};
    engine_run_call(e, run_holder, &h);
}

static void begin_turn(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->attention = false;
    engine_take_turn(e);
    pthread_mutex_unlock(&e->lock);
}

/* After a turn in which nothing was done: whether one of the client's prompts waits for an adapter
 * that is on its way. */
static bool adapter_comes(const engine *e)
{
    for (int i = 0; i < e->n_turn; i++)
        if (e->turn[i]->client == e->only && e->decisions[i].why == WAIT_ADAPTER) return true;
    return false;
}

/* An adapter that comes, or can't be had, calls for attention. */
static void wait_for_attention(engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->attention)
        pthread_cond_wait(&e->wake, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

int64_t engine_held_step(engine *e, const engine_client *client)
{
    int64_t ns = 0;
    e->only = client;
    for (bool again = true; ns == 0 && again;) {
        begin_turn(e);
        int64_t begin = clock_monotonic_ns();
        uint64_t before = e->n_steps;
        again = engine_turn(e);
        if (e->n_steps > before) ns = clock_monotonic_ns() - begin;
        if (!again && adapter_comes(e)) {
            wait_for_attention(e);
            again = true;
        }
    }
    e->only = NULL;
    return ns;
}
