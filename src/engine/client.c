#include "engine/client.h"

#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct engine_client {
    engine *e;
    atomic_int refs;
    int fd;
    pthread_mutex_t lock;
    bool shut;
    engine_event *ring; /* [cap], a power of two */
    size_t cap, first, count;
};

engine_client *client_create(engine *e)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return NULL;
    engine_client *c = xcalloc(1, sizeof *c);
    c->e = e;
    c->fd = fd;
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

engine_client *client_ref(engine_client *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void client_unref(engine_client *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1) return;
    client_shut(c);
    close(c->fd);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

engine *client_engine(engine_client *c)
{
    pthread_mutex_lock(&c->lock);
    engine *e = c->e;
    pthread_mutex_unlock(&c->lock);
    return e;
}

void client_detach(engine_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->e = NULL;
    pthread_mutex_unlock(&c->lock);
}

int engine_client_fd(const engine_client *c)
{
    return c->fd;
}

static void grow(engine_client *c)
{
    size_t cap = c->cap ? 2 * c->cap : 64;
    engine_event *ring = xcalloc(cap, sizeof *ring);
    for (size_t i = 0; i < c->count; i++)
        ring[i] = c->ring[(c->first + i) & (c->cap - 1)];
    if (c->ring) explicit_bzero(c->ring, c->cap * sizeof *c->ring);
    free(c->ring);
    c->ring = ring;
    c->cap = cap;
    c->first = 0;
}

/* The descriptor is readable exactly while the ring holds something; its counter only says so. */
static void set_readable(engine_client *c, bool readable)
{
    uint64_t value = 1;
    ssize_t n;
    do
        n = readable ? write(c->fd, &value, sizeof value) : read(c->fd, &value, sizeof value);
    while (n < 0 && errno == EINTR);
}

void client_push(engine_client *c, engine_event *ev)
{
    pthread_mutex_lock(&c->lock);
    if (!c->shut) {
        if (c->count == c->cap) grow(c);
        c->ring[(c->first + c->count) & (c->cap - 1)] = *ev;
        if (c->count++ == 0) set_readable(c, true);
        memset(ev, 0, sizeof *ev);
    }
    pthread_mutex_unlock(&c->lock);
    engine_event_free(ev);
}

bool engine_client_next(engine_client *c, engine_event *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->count > 0;
    if (any) {
        *out = c->ring[c->first];
        explicit_bzero(&c->ring[c->first], sizeof *c->ring); /* an answer's tokens */
        c->first = (c->first + 1) & (c->cap - 1);
        if (--c->count == 0) set_readable(c, false);
    }
    pthread_mutex_unlock(&c->lock);
    return any;
}

bool engine_client_wait(engine_client *c, int timeout_ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

void client_shut(engine_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->shut = true;
    for (; c->count > 0; c->count--) {
        engine_event_free(&c->ring[c->first]);
        c->first = (c->first + 1) & (c->cap - 1);
    }
    free(c->ring);
    c->ring = NULL;
    c->cap = c->first = 0;
    pthread_mutex_unlock(&c->lock);
}

void engine_event_free(engine_event *ev)
{
    if (ev->text) explicit_bzero(ev->text, ev->text_len);
    if (ev->prompt_ids && ev->n_prompt > 0)
        explicit_bzero(ev->prompt_ids, (size_t)ev->n_prompt * sizeof *ev->prompt_ids);
    free(ev->text);
    free(ev->top);
    free(ev->prompt_ids);
    free(ev->marks);
    memset(ev, 0, sizeof *ev);
}
