#include "engine/adapter_cache.h"

#include "base/mem.h"
#include "models/adapter_blob.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    LOAD_NONE,
    LOAD_QUEUED,  /* in the loader's queue or being fetched */
    LOAD_FETCHED, /* blob is here, to be packed */
    LOAD_FAILED   /* error is set; forgotten after one round */
} load_state;

/* Everything under the cache's lock, except packed, which the engine thread alone touches. */
struct adapter_version {
    adapter_id id; /* the adapter it is or was a version of */
    unsigned char digest[32];
    adapter_source source;
    packed_adapter *packed;
    bool prefill_only;     /* known once it was packed */
    bool current, dropped; /* registered; its adapter was dropped */
    int refs;              /* requests */
    int pins;
    size_t bytes;       /* packed size; 0 = not known yet */
    uint64_t last_used; /* round */
    load_state load;
    uint64_t failed_in; /* round in which LOAD_FAILED was first seen; 0 = not yet */
    buf blob;
    pf_err error;
    struct adapter_version *next;      /* all versions */
    struct adapter_version *next_load; /* loader's queue */
};

struct adapter_cache {
    const model_config *config;
    kn_backend *be;
    adapter_cache_options options;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t loader;
    bool stopping, stopped;
    adapter_version *versions;
    adapter_version *queue_first, *queue_last;
    adapter_id next_id;
    uint64_t round;
    int n_packed;
    int n_coming; /* queued, fetched: they will take a slot */
    size_t bytes; /* packed */
    size_t bytes_coming;
};

/* --- loader ----------------------------------------------------------------------------------- */

static void fetch(adapter_cache *c, adapter_version *v)
{
    buf blob = {0};
    pf_err err = {0};
    pthread_mutex_unlock(&c->lock);
    pf_status status = v->source.fetch(v->source.ctx, &blob, &err);
    pthread_mutex_lock(&c->lock);
    if (status == PF_OK) {
        v->blob = blob;
        v->load = LOAD_FETCHED;
        return;
    }
    buf_free(&blob);
    v->error = err;
    v->load = LOAD_FAILED;
    v->failed_in = 0;
}

static void *loader_main(void *arg)
{
    adapter_cache *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->stopping && !c->queue_first)
            pthread_cond_wait(&c->work, &c->lock);
        if (c->stopping) break;
        adapter_version *v = c->queue_first;
        c->queue_first = v->next_load;
        if (!c->queue_first) c->queue_last = NULL;
        fetch(c, v);
        pthread_mutex_unlock(&c->lock);
        c->options.wake(c->options.ctx);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

pf_status adapter_cache_open(const model_config *config, kn_backend *be,
                             const adapter_cache_options *options, adapter_cache **out, pf_err *err)
{
    adapter_cache *c = xcalloc(1, sizeof *c);
    c->config = config;
    c->be = be;
    c->options = *options;
    c->next_id = 1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
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
    c->stopped = true;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void unpack(adapter_cache *c, adapter_version *v)
{
    if (!v->packed) return;
    packed_adapter_free(v->packed);
    v->packed = NULL;
    c->n_packed--;
    c->bytes -= v->bytes;
}

static void free_version(adapter_cache *c, adapter_version *v)
{
    unpack(c, v);
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
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* May leave memory now. A replaced or dropped one can't come back: its source may hold something
 * else by now. */
static bool evictable(const adapter_cache *c, const adapter_version *v)
{
    return v->packed && v->pins == 0 && v->source.fetch && v->current && v->last_used != c->round;
}

/* Evicts until one more adapter of so many bytes fits. False: it doesn't, and nothing was evicted
 * in vain: what can go is counted first. */
static bool make_room(adapter_cache *c, size_t bytes)
{
    int slots = c->n_packed + c->n_coming;
    size_t used = c->bytes + c->bytes_coming, loose = 0;
    int n_loose = 0;
    for (adapter_version *v = c->versions; v; v = v->next) {
        if (!evictable(c, v)) continue;
        loose += v->bytes;
        n_loose++;
    }
    bool slot_fits = c->options.slots == 0 || slots - n_loose < c->options.slots;
    if (!slot_fits || used - loose + bytes > c->options.bytes) return false;
    while ((c->options.slots > 0 && c->n_packed + c->n_coming >= c->options.slots) ||
           c->bytes + c->bytes_coming + bytes > c->options.bytes) {
        adapter_version *oldest = NULL;
        for (adapter_version *v = c->versions; v; v = v->next)
            if (evictable(c, v) && (!oldest || v->last_used < oldest->last_used)) oldest = v;
        PF_ASSERT(oldest);
        unpack(c, oldest);
    }
    return true;
}

static pf_status too_large(const adapter_cache *c, size_t bytes, pf_err *err)
{
    return err_set(err, PF_REFUSED,
                   "the adapter takes %zu bytes in memory, the budget for adapters is %zu bytes",
                   bytes, c->options.bytes);
}

/* Packs a blob into v. The lock is held; only this thread packs and frees. */
static pf_status pack(adapter_cache *c, adapter_version *v, const void *blob, size_t len,
                      pf_err *err)
{
    packed_adapter *packed = NULL;
    pf_status status = packed_adapter_create(c->be, c->config, blob, len, &packed, err);
    if (status != PF_OK) return status;
    const packed_adapter_info *info = packed_adapter_get_info(packed);
    if (memcmp(info->digest, v->digest, sizeof v->digest) != 0) {
        packed_adapter_free(packed);
        return err_set(err, PF_DAMAGED,
                       "the adapter's stored content is not the registered one (its digest "
                       "differs): import or train it again");
    }
    if (info->bytes > c->options.bytes) {
        size_t bytes = info->bytes;
        packed_adapter_free(packed);
        return too_large(c, bytes, err);
    }
    v->packed = packed;
    v->prefill_only = info->prefill_only;
    v->bytes = info->bytes;
    v->last_used = c->round;
    c->n_packed++;
    c->bytes += v->bytes;
    return PF_OK;
}

/* --- registry --------------------------------------------------------------------------------- */

static adapter_version *find_current(const adapter_cache *c, adapter_id id)
{
    for (adapter_version *v = c->versions; v; v = v->next)
        if (v->id == id && v->current) return v;
    return NULL;
}

static adapter_version *new_version(adapter_cache *c, const unsigned char digest[32],
                                    const adapter_source *source)
{
    adapter_version *v = xcalloc(1, sizeof *v);
    memcpy(v->digest, digest, sizeof v->digest);
    if (source) v->source = *source;
    v->current = true;
    v->next = c->versions;
    c->versions = v;
    return v;
}

static void forget_version(adapter_cache *c, adapter_version *v)
{
    adapter_version **link = &c->versions;
    while (*link != v)
        link = &(*link)->next;
    *link = v->next;
    free_version(c, v);
}

static int max_rank(const adapter_view *view)
{
    int rank = 0;
    for (size_t i = 0; i < view->n_items; i++)
        if (view->items[i].rank > rank) rank = view->items[i].rank;
    return rank;
}

/* Without a source it must be packed now and stays; with one it may wait for room. */
static pf_status pack_new(adapter_cache *c, adapter_version *v, const void *blob, size_t len,
                          pf_err *err)
{
    if (len > c->options.bytes) return too_large(c, len, err);
    bool room = make_room(c, len);
    if (!room && !v->source.fetch)
        return err_set(err, PF_BUSY,
                       "no room for another adapter: %d are loaded with %zu bytes and can't leave "
                       "memory (budget: %zu bytes, %d slots; 0 = no limit)",
                       c->n_packed, c->bytes, c->options.bytes, c->options.slots);
    return room ? pack(c, v, blob, len, err) : PF_OK;
}

pf_status adapter_cache_put(adapter_cache *c, const void *blob, size_t len,
                            const adapter_source *source, adapter_id *id, adapter_info *info,
                            pf_err *err)
{
    adapter_view view = {0};
    pf_status status = adapter_view_open(blob, len, c->config, &view, err);
    if (status != PF_OK) return status;

    pthread_mutex_lock(&c->lock);
    adapter_version *old = *id ? find_current(c, *id) : NULL, *v = NULL;
    if (*id && !old) {
        status = err_set(err, PF_NOT_FOUND, "there is no adapter %llu to replace",
                         (unsigned long long)*id);
        goto out;
    }
    v = new_version(c, view.digest, source);
    v->prefill_only = view.prefill_only;
    status = pack_new(c, v, blob, len, err);
    if (status != PF_OK) {
        v->source.release = NULL; /* still the caller's */
        forget_version(c, v);
        goto out;
    }
    v->id = *id ? *id : c->next_id++;
    *id = v->id;
    if (old) old->current = false;
    if (info) {
        *info = (adapter_info){.direft = view.direft,
                               .prefill_only = view.prefill_only,
                               .max_rank = max_rank(&view),
                               .packed_bytes = v->bytes};
        memcpy(info->digest, view.digest, sizeof info->digest);
    }
out:
    pthread_mutex_unlock(&c->lock);
    adapter_view_close(&view);
    return status;
}

adapter_id adapter_cache_put_lazy(adapter_cache *c, const unsigned char digest[32],
                                  const adapter_source *source)
{
    pthread_mutex_lock(&c->lock);
    adapter_version *v = new_version(c, digest, source);
    adapter_id id = v->id = c->next_id++;
    pthread_mutex_unlock(&c->lock);
    return id;
}

bool adapter_cache_drop(adapter_cache *c, adapter_id id)
{
    pthread_mutex_lock(&c->lock);
    bool known = find_current(c, id) != NULL;
    for (adapter_version *v = c->versions; known && v; v = v->next) {
        if (v->id != id) continue;
        v->current = false;
        v->dropped = true;
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
    v->refs--;
    pthread_mutex_unlock(&c->lock);
}

/* --- use -------------------------------------------------------------------------------------- */

static void fail_load(adapter_version *v)
{
    v->load = LOAD_FAILED;
    v->failed_in = 0;
}

/* Packs what the loader brought. The slot was kept for it; if the bytes turn out not to be there,
 * the version waits again, now with a known size. */
static void finish_load(adapter_cache *c, adapter_version *v)
{
    c->n_coming--;
    c->bytes_coming -= v->bytes;
    if (v->load == LOAD_FAILED) return;
    v->load = LOAD_NONE;
    if (v->bytes == 0) v->bytes = v->blob.len;
    if (v->blob.len > c->options.bytes) {
        too_large(c, v->blob.len, &v->error);
        fail_load(v);
    } else if (make_room(c, v->bytes)) {
        if (pack(c, v, v->blob.data, v->blob.len, &v->error) != PF_OK) fail_load(v);
    }
    buf_free(&v->blob);
}

void adapter_cache_begin_plan(adapter_cache *c)
{
    pthread_mutex_lock(&c->lock);
    c->round++;
    for (adapter_version *v = c->versions, *next; v; v = next) {
        next = v->next;
        if (v->load == LOAD_FETCHED || (v->load == LOAD_FAILED && v->failed_in == 0)) {
            finish_load(c, v);
            if (v->load == LOAD_FAILED) v->failed_in = c->round;
        } else if (v->load == LOAD_FAILED && v->failed_in < c->round) {
            v->load = LOAD_NONE; /* everybody who waited has been told; the next one tries again */
        }
        if (!v->current && v->refs == 0 && v->load != LOAD_QUEUED) forget_version(c, v);
    }
    pthread_mutex_unlock(&c->lock);
}

static void start_load(adapter_cache *c, adapter_version *v)
{
    v->load = LOAD_QUEUED;
    v->next_load = NULL;
    *(c->queue_last ? &c->queue_last->next_load : &c->queue_first) = v;
    c->queue_last = v;
    c->n_coming++;
    c->bytes_coming += v->bytes;
    pthread_cond_signal(&c->work);
}

wait_reason adapter_cache_need(adapter_cache *c, adapter_version *v, bool *failed, pf_err *err)
{
    wait_reason why = WAIT_ADAPTER;
    pthread_mutex_lock(&c->lock);
    *failed = false;
    if (v->packed) {
        v->last_used = c->round;
        why = WAIT_NOTHING;
    } else if (v->load == LOAD_FAILED) {
        *failed = true;
        if (err) *err = v->error;
    } else if (v->load == LOAD_NONE && (v->dropped || !v->source.fetch)) {
        *failed = true;
        err_set(err, PF_NOT_FOUND, "the adapter was removed while the answer waited for memory");
    } else if (v->load == LOAD_NONE) {
        if (make_room(c, v->bytes))
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
    PF_ASSERT(v->packed);
    v->pins++;
    pthread_mutex_unlock(&c->lock);
}

void adapter_cache_unpin(adapter_cache *c, adapter_version *v)
{
    pthread_mutex_lock(&c->lock);
    PF_ASSERT(v->pins > 0);
    v->pins--;
    v->last_used = c->round;
    pthread_mutex_unlock(&c->lock);
}

const packed_adapter *adapter_version_packed(const adapter_version *v)
{
    return v->packed;
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
    usage.bytes = c->bytes;
    pthread_mutex_unlock(&c->lock);
    return usage;
}
