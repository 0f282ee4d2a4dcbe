/* Adapters in two tiers: packed in memory, within a budget of bytes and slots, and evicted, with a
 * source (the encrypted store) to load them from again. A loader thread fetches, decrypts, checks
 * and packs them, and frees evicted ones, while the engine thread continues with answers. Where the
 * backend needs adapters packed on its own thread, the engine thread packs them.
 *
 * Versions with the same content (digest), of one adapter or of several, share their packed form.
 *
 * A registered adapter has a current version. Requests hold a reference to the version that was
 * current when they were submitted; replacing or dropping the adapter doesn't touch it. A version
 * is pinned while a prompt is read with it. Unpinned versions with a source are evicted, least
 * recently used first, when another one or KV pages need the room. A version that is neither
 * registered nor referenced is freed.
 *
 * The engine plans in rounds, between adapter_cache_begin_plan and adapter_cache_end_plan: what
 * was requested in a round stays in memory until the next one. Other threads register adapters
 * between rounds.
 *
 * "Engine thread" marks functions that belong to a round or may call the backend (which may be
 * limited to that thread: kn_backend.adapters_anywhere); the others may be called by any thread. */
#ifndef PF_ENGINE_ADAPTER_CACHE_H
#define PF_ENGINE_ADAPTER_CACHE_H

#include "engine/adapter.h"
#include "engine/engine.h"
#include "engine/scheduler.h"

typedef struct adapter_cache adapter_cache;
typedef struct adapter_version adapter_version;

typedef struct {
    size_t bytes;            /* most bytes of packed weights; a round's room may be less */
    int slots;               /* most packed adapters; 0 = no limit */
    void (*wake)(void *ctx); /* called by the loader thread when an adapter was loaded or failed */
    void *ctx;
} adapter_cache_options;

/* Starts the loader thread. config and be are borrowed. */
pf_status adapter_cache_open(const model_config *config, kn_backend *be,
                             const adapter_cache_options *options, adapter_cache **out,
                             pf_err *err);
/* Ends the loader thread: no fetch is running afterwards and none begins. Not within a round. */
void adapter_cache_stop(adapter_cache *c);
/* After adapter_cache_stop, without references left; the backend's thread. NULL is fine. */
void adapter_cache_close(adapter_cache *c);

/* Engine thread, unless the backend packs anywhere; not within a round. Registers (id 0 in *id) or
 * replaces (an id in *id) an adapter and packs it now; if there is no room but a source, it is
 * packed when a prompt needs it. Takes ownership of source on success only. */
pf_status adapter_cache_put(adapter_cache *c, const void *blob, size_t len,
                            const adapter_source *source, adapter_id *id, adapter_info *info,
                            pf_err *err);
/* Registers an adapter by its digest alone. */
adapter_id adapter_cache_put_lazy(adapter_cache *c, const unsigned char digest[32],
                                  const adapter_source *source);
/* Hints that an adapter will be needed soon: the next round loads it unless that would evict one
 * used since. */
void adapter_cache_prefetch(adapter_cache *c, adapter_id id);
/* Engine thread, not within a round. Unregisters; false: unknown id. */
bool adapter_cache_drop(adapter_cache *c, adapter_id id);

/* A reference to the current version; NULL: unknown id. */
adapter_version *adapter_cache_ref(adapter_cache *c, adapter_id id);
void adapter_cache_unref(adapter_cache *c, adapter_version *v);

/* Engine thread. Starts a round in which adapters may take `room` bytes. Beyond `own` bytes (the
 * rest is shared with cached KV pages) a new adapter evicts less recently used ones. Versions
 * needed earlier in the round are not evicted for later ones. Also frees what is no longer
 * referenced. */
void adapter_cache_begin_plan(adapter_cache *c, size_t room, size_t own);
/* Engine thread, in a round: bytes that can't be evicted now, including adapters being loaded. */
size_t adapter_cache_held(adapter_cache *c);
/* Engine thread. Ends the round: until the next one adapters take at most `room` bytes, which is at
 * least adapter_cache_held; least recently used ones are evicted. Returns the bytes taken,
 * including adapters being loaded. */
size_t adapter_cache_end_plan(adapter_cache *c, size_t room);
/* In a round. WAIT_NOTHING: packed. WAIT_ADAPTER: being loaded. WAIT_SLOT: no room until a prompt
 * is done with another one. *failed is set, with the reason in err, if it can't be loaded. */
wait_reason adapter_cache_need(adapter_cache *c, adapter_version *v, bool *failed, pf_err *err);
void adapter_cache_pin(adapter_cache *c, adapter_version *v);
void adapter_cache_unpin(adapter_cache *c, adapter_version *v);

/* Engine thread. Valid while packed, digest from the beginning. */
const packed_adapter *adapter_version_packed(const adapter_version *v);
bool adapter_version_prefill_only(const adapter_version *v);
const unsigned char *adapter_version_digest(const adapter_version *v);
/* The adapter was dropped (not: replaced) after this version was referenced. */
bool adapter_version_dropped(adapter_cache *c, const adapter_version *v);

typedef struct {
    int registered, loaded, coming; /* coming: being loaded */
    size_t bytes;
    uint64_t loads, stalls; /* see engine_stats */
} adapter_cache_usage;
adapter_cache_usage adapter_cache_get_usage(adapter_cache *c);

#endif
