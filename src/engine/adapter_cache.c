#include "engine/adapter_cache.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The loader yields to the threads that compute: on a busy machine a third of a thread's share. */
#define LOADER_NICE 5

typedef enum {
    LOAD_NONE,
    LOAD_QUEUED,  /* in the loader's queue, or being fetched */
    LOAD_FETCHED, /* the blob is here; the engine thread has to pack it */
    LOAD_FAILED   /* error is set; forgotten after one round */
} load_state;

/* Packed weights, of all versions with the same content. */
typedef struct content {
    packed_adapter *packed;
    adapter_version *owners; /* at least one */
    size_t bytes;
    int pins;
    uint64_t used;      /* when last: a clock of uses */
    uint64_t needed_in; /* round; until the next one it stays */
    struct content *next, **link;
} content;

/* Everything under the cache's lock, except the packed weights' numbers. */
struct adapter_version {
    adapter_id id; /* the adapter it is or was a version of */
    unsigned char digest[32];
    adapter_source source;
    content *content;      /* NULL: not in memory */
    bool prefill_only;     /* known once it was packed */
    bool current, dropped; /* registered; its adapter was dropped */
    bool wanted;           /* prefetched in the next round */
    int refs;              /* requests */
    size_t bytes;          /* packed size; 0 = not known yet */
    size_t reserved;       /* bytes of the budget, while it is being loaded */
    load_state load;
    uint64_t failed_in; /* round in which LOAD_FAILED was first seen; 0 = not yet */
    buf blob;
    pf_err error;
    struct adapter_version *next;       /* all versions */
    struct adapter_version *next_load;  /* loader's queue */
    struct adapter_version *next_owner; /* of its content */
};

struct adapter_cache {
    const model_config *config;
    kn_backend *be;
    bool anywhere; /* the backend's */
    adapter_cache_options options;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the loader */
    pthread_cond_t planned; /* for those who wait for the end of a round */
    pthread_t loader;
    bool stopping, stopped;
    bool planning;
    bool attention;   /* some version has news for the next round */
    size_t room, own; /* see adapter_cache_begin_plan */
    adapter_version *versions;
    content *contents; /* what is packed */
    adapter_version *queue_first, *queue_last;
    packed_adapter **trash; /* evicted, to be freed by the loader */
    size_t n_trash, cap_trash;
    adapter_id next_id;
    uint64_t round, clock, loads, stalls;
    int n_packed;
    int n_wanted;
    int n_coming; /* being loaded: they hold a slot */
    size_t bytes; /* packed */
    size_t bytes_coming;
};

/* --- memory ----------------------------------------------------------------------------------- */

/* Frees packed weights, at once or on the loader's thread: overwriting them takes time. */
static void release_packed(adapter_cache *c, packed_adapter *packed)
{
    if (c->stopped || !c->anywhere) {
        packed_adapter_free(packed);
        c->stalls += !c->stopped;
        return;
    }
    if (c->n_trash == c->cap_trash) {
        c->cap_trash = c->cap_trash ? 2 * c->cap_trash : 16;
        c->trash = xrealloc_array(c->trash, c->cap_trash, sizeof(packed_adapter *));
    }
    c->trash[c->n_trash++] = packed;
    pthread_cond_signal(&c->work);
}

static void attach_owner(adapter_version *v, content *at)
{
    v->content = at;
    v->bytes = at->bytes;
    v->prefill_only = packed_adapter_get_info(at->packed)->prefill_only;
    v->next_owner = at->owners;
    at->owners = v;
}

static void install(adapter_cache *c, adapter_version *v, packed_adapter *packed)
{
    content *n = xcalloc(1, sizeof *n);
    n->packed = packed;
    n->bytes = packed_adapter_get_info(packed)->bytes;
    n->used = ++c->clock;
    n->next = c->contents;
    n->link = &c->contents;
    if (c->contents) c->contents->link = &n->next;
    c->contents = n;
    c->n_packed++;
    c->bytes += n->bytes;
    attach_owner(v, n);
}

/* The version's content is packed, or another version has the same in memory: then both have it. */
static bool have(adapter_cache *c, adapter_version *v)
{
    for (content *n = v->content ? NULL : c->contents; n && !v->content; n = n->next)
        if (memcmp(n->owners->digest, v->digest, sizeof v->digest) == 0) attach_owner(v, n);
    return v->content != NULL;
}

static void evict_content(adapter_cache *c, content *n)
{
    for (adapter_version *v = n->owners; v; v = v->next_owner)
        v->content = NULL;
    release_packed(c, n->packed);
    *n->link = n->next;
    if (n->next) n->next->link = n->link;
    c->n_packed--;
    c->bytes -= n->bytes;
    free(n);
}

/* The version no longer needs its content, which is freed with its last owner. */
static void detach_owner(adapter_cache *c, adapter_version *v)
{
    content *n = v->content;
    if (!n) return;
    adapter_version **link = &n->owners;
    while (*link != v)
        link = &(*link)->next_owner;
    if (n->owners == v && !v->next_owner) {
        evict_content(c, n);
        return;
    }
    *link = v->next_owner;
    v->content = NULL;
}

/* May leave memory now. A replaced or dropped version can't get it back: its source may hold
 * something else by now. */
static bool evictable(const adapter_cache *c, const content *n)
{
    if (n->pins > 0 || n->needed_in == c->round) return false;
    for (const adapter_version *v = n->owners; v; v = v->next_owner)
        if (!v->source.fetch || !v->current) return false;
    return true;
}

static content *least_recently_used(const adapter_cache *c)
{
    content *oldest = NULL;
    for (content *n = c->contents; n; n = n->next)
        if (evictable(c, n) && (!oldest || n->used < oldest->used)) oldest = n;
    return oldest;
}

/* Evicts until this many more bytes and slots fit. False: they can't, and nothing was evicted: what
 * is evictable is counted first. */
static bool make_room(adapter_cache *c, size_t bytes, int slots)
{
    int taken = c->n_packed + c->n_coming, n_loose = 0;
    size_t used = c->bytes + c->bytes_coming, loose = 0;
    for (const content *n = c->contents; n; n = n->next) {
        if (!evictable(c, n)) continue;
        loose += n->bytes;
        n_loose++;
    }
    if (c->options.slots > 0 && taken - n_loose + slots > c->options.slots) return false;
    if (used - loose + bytes > c->room) return false;
    size_t most = used - loose + bytes > c->own ? c->room : c->own;
    while ((c->options.slots > 0 && c->n_packed + c->n_coming + slots > c->options.slots) ||
           c->bytes + c->bytes_coming + bytes > most) {
        content *oldest = least_recently_used(c);
        PF_ASSERT(oldest);
        evict_content(c, oldest);
    }
    return true;
}

/* Others change what is in memory only between rounds. */
static void wait_for_plan(adapter_cache *c)
{
    while (c->planning)
        pthread_cond_wait(&c->planned, &c->lock);
}

/* Reserves a slot and bytes for an adapter being loaded; make_room has found them. */
static void reserve(adapter_cache *c, adapter_version *v, size_t bytes)
{
    c->n_coming += v->reserved == 0;
    c->bytes_coming += bytes - v->reserved;
    v->reserved = bytes;
}

static void unreserve(adapter_cache *c, adapter_version *v)
{
    c->n_coming -= v->reserved > 0;
    c->bytes_coming -= v->reserved;
    v->reserved = 0;
}

/* Whether what was packed has room, where its blob's length was reserved for it: some take more. */
static bool fits(adapter_cache *c, const adapter_version *v, const packed_adapter *packed)
{
    size_t bytes = packed_adapter_get_info(packed)->bytes;
    return bytes <= v->reserved || make_room(c, bytes - v->reserved, 0);
}

/* --- packing ---------------------------------------------------------------------------------- */

static pf_status too_large(const adapter_cache *c, size_t bytes, pf_err *err)
{
    return err_set(err, PF_REFUSED,
                   "the adapter takes %zu bytes in memory, the budget for adapters is %zu bytes",
                   bytes, c->options.bytes);
}

/* Without the lock. */
static pf_status pack(const adapter_cache *c, const adapter_view *view, packed_adapter **out,
                      pf_err *err)
{
    packed_adapter *packed = NULL;
    pf_status status = packed_adapter_from_view(c->be, c->config, view, &packed, err);
    if (status != PF_OK) return status;
    size_t bytes = packed_adapter_get_info(packed)->bytes;
    if (bytes <= c->options.bytes) {
        *out = packed;
        return PF_OK;
    }
    packed_adapter_free(packed);
    return too_large(c, bytes, err);
}

/* Checks and packs a blob of the registered content, without the lock. */
static pf_status open_and_pack(const adapter_cache *c, const unsigned char digest[32],
                               const buf *blob, packed_adapter **out, pf_err *err)
{
    adapter_view view = {0};
    pf_status status = adapter_view_open(blob->data, blob->len, c->config, &view, err);
    if (status == PF_OK && memcmp(view.digest, digest, sizeof view.digest) != 0)
        status = err_set(err, PF_DAMAGED,
                         "the adapter's stored content is not the registered one (its digest "
                         "differs): import or train it again");
    if (status == PF_OK) status = pack(c, &view, out, err);
    adapter_view_close(&view);
    return status;
}

/* Packs what was fetched; a slot and v->reserved bytes are reserved. If it turns out to need more
 * than there is, it waits again, now with a known size. The lock is held, but not while it packs.
 */
static pf_status pack_fetched(adapter_cache *c, adapter_version *v, const buf *blob, pf_err *err)
{
    packed_adapter *packed = NULL;
    pf_status status = PF_OK;
    if (c->anywhere) wait_for_plan(c);
    if (have(c, v)) goto out;
    if (blob->len > c->options.bytes) {
        status = too_large(c, blob->len, err);
        goto out;
    }
    if (v->bytes == 0) {
        v->bytes = blob->len;
        if (!make_room(c, blob->len - v->reserved, 0)) goto out;
        reserve(c, v, blob->len);
    }
    pthread_mutex_unlock(&c->lock);
    status = open_and_pack(c, v->digest, blob, &packed, err);
    pthread_mutex_lock(&c->lock);
    if (status != PF_OK) goto out;
    if (c->anywhere) wait_for_plan(c);
    if (have(c, v) || !fits(c, v, packed)) {
        v->bytes = packed_adapter_get_info(packed)->bytes;
        release_packed(c, packed);
        goto out;
    }
    install(c, v, packed);
    c->loads++;
    c->stalls += !c->anywhere;
out:
    unreserve(c, v);
    return status;
}

static void end_load(adapter_cache *c, adapter_version *v, pf_status status, const pf_err *err)
{
    v->load = status == PF_OK ? LOAD_NONE : LOAD_FAILED;
    if (v->content) v->content->needed_in = c->round; /* until whoever waits for it asks again */
    v->failed_in = 0;
    v->error = *err;
    c->attention = true;
}

/* --- loader ----------------------------------------------------------------------------------- */

/* The lock is held. */
static void load(adapter_cache *c, adapter_version *v)
{
    buf blob = {0};
    pf_err err = {0};
    if (have(c, v)) {
        unreserve(c, v);
        end_load(c, v, PF_OK, &err);
        return;
    }
    pthread_mutex_unlock(&c->lock);
    pf_status status = v->source.fetch(v->source.ctx, &blob, &err);
    pthread_mutex_lock(&c->lock);
    if (status == PF_OK && !c->anywhere) {
        v->blob = blob;
        v->load = LOAD_FETCHED;
        c->attention = true;
        return;
    }
    if (status == PF_OK)
        status = pack_fetched(c, v, &blob, &err);
    else
        unreserve(c, v);
    end_load(c, v, status, &err);
    pthread_mutex_unlock(&c->lock);
    buf_free(&blob);
    pthread_mutex_lock(&c->lock);
}

/* The lock is held, but not while it frees. */
static void drain_trash(adapter_cache *c)
{
    while (c->n_trash > 0) {
        packed_adapter *packed = c->trash[--c->n_trash];
        pthread_mutex_unlock(&c->lock);
        packed_adapter_free(packed);
        pthread_mutex_lock(&c->lock);
    }
}

static void *loader_main(void *arg)
{
    adapter_cache *c = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOADER_NICE); /* of this thread alone */
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->stopping && !c->queue_first && c->n_trash == 0)
            pthread_cond_wait(&c->work, &c->lock);
        drain_trash(c); /* first: loading needs the room */
        if (c->stopping) break;
        adapter_version *v = c->queue_first;
        if (!v) continue;
        c->queue_first = v->next_load;
        if (!c->queue_first) c->queue_last = NULL;
        load(c, v);
        pthread_mutex_unlock(&c->lock);
        c->options.wake(c->options.ctx);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void start_load(adapter_cache *c, adapter_version *v)
{
    v->load = LOAD_QUEUED;
    v->next_load = NULL;
    *(c->queue_last ? &c->queue_last->next_load : &c->queue_first) = v;
    c->queue_last = v;
    reserve(c, v, v->bytes ? v->bytes : 1);
    pthread_cond_signal(&c->work);
}

/* --- opening and closing ---------------------------------------------------------------------- */

pf_status adapter_cache_open(const model_config *config, kn_backend *be,
                             const adapter_cache_options *options, adapter_cache **out, pf_err *err)
{
    adapter_cache *c = xcalloc(1, sizeof *c);
    c->config = config;
    c->be = be;
    c->anywhere = be->adapters_anywhere;
    c->options = *options;
    c->room = c->own = options->bytes;
    c->next_id = 1;
    c->round = 1; /* 0: never needed */
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->planned, NULL);
    int rc = pthread_create(&c->loader, NULL, loader_main, c);
    if (rc != 0) {
        c->stopped = true;
        adapter_cache_close(c);
        return err_errno(err, PF_FAILED, rc, "the loader thread can't be started");
    }
    *out = c;
    return PF_OK;
}

void adapter_cache_stop(adapter_cache *c)
{
    if (c->stopped) return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->loader, NULL);
    pthread_mutex_lock(&c->lock);
    c->stopped = true;
    pthread_mutex_unlock(&c->lock);
}

static void free_version(adapter_cache *c, adapter_version *v)
{
    detach_owner(c, v);
    unreserve(c, v); /* it was fetched, and dropped before it was packed */
    buf_free(&v->blob);
    if (v->source.release) v->source.release(v->source.ctx);
    free(v);
}

void adapter_cache_close(adapter_cache *c)
{
    if (!c) return;
    adapter_cache_stop(c);
    while (c->versions) {
        adapter_version *v = c->versions;
        c->versions = v->next;
        free_version(c, v);
    }
    pthread_mutex_lock(&c->lock);
    drain_trash(c);
    pthread_mutex_unlock(&c->lock);
    free(c->trash);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->planned);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* --- registry --------------------------------------------------------------------------------- */

static adapter_version *find_current(const adapter_cache *c, adapter_id id)
{
    for (adapter_version *v = c->versions; v; v = v->next)
        if (v->id == id && v->current) return v;
    return NULL;
}

/* Frees a version that is no longer referenced. */
static void forget_if_unused(adapter_cache *c, adapter_version *v)
{
    adapter_version **link = &c->versions;
    if (v->current || v->refs > 0 || v->load == LOAD_QUEUED) return;
    while (*link != v)
        link = &(*link)->next;
    *link = v->next;
    free_version(c, v);
}

static adapter_version *new_version(const unsigned char digest[32], const adapter_source *source)
{
    adapter_version *v = xcalloc(1, sizeof *v);
    memcpy(v->digest, digest, sizeof v->digest);
    if (source) v->source = *source;
    v->current = true;
    return v;
}

static void enter_version(adapter_cache *c, adapter_version *v, adapter_id id)
{
    v->id = id;
    v->next = c->versions;
    c->versions = v;
}

static int max_rank(const adapter_view *view)
{
    int rank = 0;
    for (size_t i = 0; i < view->n_items; i++)
        if (view->items[i].rank > rank) rank = view->items[i].rank;
    return rank;
}

/* There was no room. Without a source a new version must be packed now and stays; with one it may
 * wait. */
static pf_status check_can_wait(const adapter_cache *c, const adapter_version *v, pf_err *err)
{
    if (v->source.fetch) return PF_OK;
    return err_set(err, PF_BUSY,
                   "no room for another adapter: %d are loaded with %zu bytes and can't leave "
                   "memory (budget: %zu bytes, %d slots; 0 = no limit)",
                   c->n_packed, c->bytes, c->options.bytes, c->options.slots);
}

/* Whether there is room to pack a new version now. */
static pf_status find_room(adapter_cache *c, adapter_version *v, size_t len, bool *room,
                           pf_err *err)
{
    if (len > c->options.bytes) return too_large(c, len, err);
    *room = make_room(c, len, 1);
    if (!*room) return check_can_wait(c, v, err);
    reserve(c, v, len);
    return PF_OK;
}

/* Makes v the current version of adapter id, of a new one if that is 0. */
static pf_status enter(adapter_cache *c, adapter_version *v, adapter_id *id, pf_err *err)
{
    adapter_version *old = *id ? find_current(c, *id) : NULL;
    if (*id && !old)
        return err_set(err, PF_NOT_FOUND, "there is no adapter %llu to replace",
                       (unsigned long long)*id);
    if (!*id) *id = c->next_id++;
    enter_version(c, v, *id);
    if (!old) return PF_OK;
    old->current = false;
    forget_if_unused(c, old);
    return PF_OK;
}

/* Packs a new version, if there is room or its content is there already. The lock is held, but not
 * while it packs. */
static pf_status pack_new(adapter_cache *c, adapter_version *v, size_t len,
                          const adapter_view *view, pf_err *err)
{
    packed_adapter *packed = NULL;
    bool room = false;
    wait_for_plan(c);
    if (have(c, v)) return PF_OK;
    pf_status status = find_room(c, v, len, &room, err);
    if (!room) return status;
    drain_trash(c);
    pthread_mutex_unlock(&c->lock);
    status = pack(c, view, &packed, err);
    pthread_mutex_lock(&c->lock);
    wait_for_plan(c);
    if (status == PF_OK && !have(c, v)) {
        if (fits(c, v, packed)) {
            install(c, v, packed);
            packed = NULL;
        } else {
            status = check_can_wait(c, v, err);
        }
    }
    unreserve(c, v);
    if (packed) release_packed(c, packed);
    return status;
}

pf_status adapter_cache_put(adapter_cache *c, const void *blob, size_t len,
                            const adapter_source *source, adapter_id *id, adapter_info *info,
                            pf_err *err)
{
    adapter_view view = {0};
    pf_status status = adapter_view_open(blob, len, c->config, &view, err);
    if (status != PF_OK) return status;

    adapter_version *v = new_version(view.digest, source);
    v->prefill_only = view.prefill_only;
    pthread_mutex_lock(&c->lock);
    status = pack_new(c, v, len, &view, err);
    if (status == PF_OK) status = enter(c, v, id, err);
    if (status == PF_OK && info) {
        *info = (adapter_info){.direft = view.direft,
                               .prefill_only = view.prefill_only,
                               .max_rank = max_rank(&view),
                               .packed_bytes = v->bytes};
        memcpy(info->digest, view.digest, sizeof info->digest);
    }
    if (status != PF_OK) {
        detach_owner(c, v);
        free(v); /* the source is still the caller's */
    }
    pthread_mutex_unlock(&c->lock);
    adapter_view_close(&view);
    return status;
}

adapter_id adapter_cache_put_lazy(adapter_cache *c, const unsigned char digest[32],
                                  const adapter_source *source)
{
    adapter_version *v = new_version(digest, source);
    pthread_mutex_lock(&c->lock);
    adapter_id id = c->next_id++;
    enter_version(c, v, id);
    pthread_mutex_unlock(&c->lock);
    return id;
}

void adapter_cache_prefetch(adapter_cache *c, adapter_id id)
{
    pthread_mutex_lock(&c->lock);
    adapter_version *v = find_current(c, id);
    if (v && !v->content && v->load == LOAD_NONE && !v->wanted) {
        v->wanted = true;
        c->n_wanted++;
    }
    pthread_mutex_unlock(&c->lock);
}

bool adapter_cache_drop(adapter_cache *c, adapter_id id)
{
    pthread_mutex_lock(&c->lock);
    bool known = find_current(c, id) != NULL;
    for (adapter_version *v = known ? c->versions : NULL, *next; v; v = next) {
        next = v->next;
        if (v->id != id) continue;
        v->current = false;
        v->dropped = true;
        forget_if_unused(c, v);
    }
    pthread_mutex_unlock(&c->lock);
    return known;
}

adapter_version *adapter_cache_ref(adapter_cache *c, adapter_id id)
{
    pthread_mutex_lock(&c->lock);
    adapter_version *v = find_current(c, id);
    if (v) v->refs++;
    pthread_mutex_unlock(&c->lock);
    return v;
}

void adapter_cache_unref(adapter_cache *c, adapter_version *v)
{
    pthread_mutex_lock(&c->lock);
    PF_ASSERT(v->refs > 0);
    if (--v->refs == 0 && !v->current) c->attention = true;
    pthread_mutex_unlock(&c->lock);
}

/* --- rounds ----------------------------------------------------------------------------------- */

/* Handles what happened to a version since the last round. */
static void update_version(adapter_cache *c, adapter_version *v)
{
    if (v->load == LOAD_FETCHED) {
        pf_err err = {0};
        pf_status status = pack_fetched(c, v, &v->blob, &err);
        buf_free(&v->blob);
        end_load(c, v, status, &err);
    }
    if (v->load == LOAD_FAILED) {
        c->attention = true;
        if (v->failed_in == 0)
            v->failed_in = c->round;
        else
            v->load = LOAD_NONE; /* everybody who waited has been told; the next one tries again */
    }
    forget_if_unused(c, v);
}

void adapter_cache_begin_plan(adapter_cache *c, size_t room, size_t own)
{
    pthread_mutex_lock(&c->lock);
    c->round++;
    c->planning = true;
    c->room = room < c->options.bytes ? room : c->options.bytes;
    c->own = own < c->room ? own : c->room;
    bool attention = c->attention;
    c->attention = false;
    for (adapter_version *v = attention ? c->versions : NULL, *next; v; v = next) {
        next = v->next;
        update_version(c, v);
    }
    pthread_mutex_unlock(&c->lock);
}

size_t adapter_cache_held(adapter_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t held = c->bytes_coming;
    for (const content *n = c->contents; n; n = n->next)
        if (!evictable(c, n)) held += n->bytes;
    pthread_mutex_unlock(&c->lock);
    return held;
}

/* Last in the round, so that it evicts no adapter of a request that waits for something else. */
static void start_wanted(adapter_cache *c)
{
    for (adapter_version *v = c->versions; v && c->n_wanted > 0; v = v->next) {
        if (!v->wanted) continue;
        v->wanted = false;
        c->n_wanted--;
        bool absent = !have(c, v) && v->load == LOAD_NONE && v->current && v->source.fetch;
        if (absent && make_room(c, v->bytes, 1)) start_load(c, v);
    }
    c->n_wanted = 0;
}

size_t adapter_cache_end_plan(adapter_cache *c, size_t room)
{
    pthread_mutex_lock(&c->lock);
    c->room = room < c->options.bytes ? room : c->options.bytes;
    if (c->own > c->room) c->own = c->room;
    if (c->n_wanted > 0) start_wanted(c);
    for (content *n; c->bytes + c->bytes_coming > c->room && (n = least_recently_used(c));)
        evict_content(c, n);
    size_t taken = c->bytes + c->bytes_coming;
    c->planning = false;
    pthread_cond_broadcast(&c->planned);
    pthread_mutex_unlock(&c->lock);
    return taken;
}

wait_reason adapter_cache_need(adapter_cache *c, adapter_version *v, bool *failed, pf_err *err)
{
    wait_reason why = WAIT_ADAPTER;
    pthread_mutex_lock(&c->lock);
    *failed = false;
    if (have(c, v)) {
        v->content->used = ++c->clock;
        v->content->needed_in = c->round;
        why = WAIT_NOTHING;
    } else if (v->load == LOAD_FAILED) {
        *failed = true;
        if (err) *err = v->error;
    } else if (v->load == LOAD_NONE && (v->dropped || !v->source.fetch)) {
        *failed = true;
        err_set(err, PF_NOT_FOUND, "the adapter was removed while the answer waited for memory");
    } else if (v->load == LOAD_NONE) {
        if (make_room(c, v->bytes, 1))
            start_load(c, v);
        else
            why = WAIT_SLOT;
    }
    pthread_mutex_unlock(&c->lock);
    return why;
}

void adapter_cache_pin(adapter_cache *c, adapter_version *v)
{
    pthread_mutex_lock(&c->lock);
    PF_ASSERT(v->content);
    v->content->pins++;
    pthread_mutex_unlock(&c->lock);
}

void adapter_cache_unpin(adapter_cache *c, adapter_version *v)
{
    pthread_mutex_lock(&c->lock);
    PF_ASSERT(v->content && v->content->pins > 0);
    v->content->pins--;
    v->content->used = ++c->clock;
    pthread_mutex_unlock(&c->lock);
}

const packed_adapter *adapter_version_packed(const adapter_version *v)
{
    return v->content->packed;
}

bool adapter_version_prefill_only(const adapter_version *v)
{
    return v->prefill_only;
}

const unsigned char *adapter_version_digest(const adapter_version *v)
{
    return v->digest;
}

bool adapter_version_dropped(adapter_cache *c, const adapter_version *v)
{
    pthread_mutex_lock(&c->lock);
    bool dropped = v->dropped;
    pthread_mutex_unlock(&c->lock);
    return dropped;
}

adapter_cache_usage adapter_cache_get_usage(adapter_cache *c)
{
    adapter_cache_usage usage = {0};
    pthread_mutex_lock(&c->lock);
    for (adapter_version *v = c->versions; v; v = v->next)
        usage.registered += v->current;
    usage.loaded = c->n_packed;
    usage.coming = c->n_wanted + c->n_coming;
    usage.bytes = c->bytes;
    usage.loads = c->loads;
    usage.stalls = c->stalls;
    pthread_mutex_unlock(&c->lock);
    return usage;
}
