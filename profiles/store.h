/* The store: one SQLite file, HOME/preft.db, shared by all users of this account.
 *
 * Files. The folder is 0700, files are 0600 and the caller's own; links, foreign owners and places
 * others can write to are refused with the reason. WAL, synchronous FULL, secure_delete: when a
 * function that writes returns PF_OK the change is committed and on disk.
 *
 * Processes. Several may use one store: writers wait for each other (up to STORE_BUSY_MS). restore
 * alone needs the store for itself and is refused while anyone has it open.
 *
 * Threads and locking, for all headers of profiles/. Every function may be called from any thread;
 * a store's operations exclude each other for the time of one database call, sealing included
 * (milliseconds). Two things run outside that lock: stretching a passphrase (about a second; call
 * user_sign_in and the like from a worker thread to keep a screen alive) and reading adapters
 * (profile_read_adapter, profile_source_fetch: a connection of their own, for the engine's loader
 * thread).
 * No callback is ever called with the lock held.
 *
 * Results are copies that belong to the caller; their free functions wipe them. Out structs need
 * not be initialised, and may be freed after a failure. Statuses that recur: PF_DAMAGED, a value
 * isn't what was sealed for its place (or rows were removed or rolled back); the functions that
 * give lists then still give all intact items, and err names the others. PF_DENIED, signed out.
 * PF_BUSY, another process held the store too long (STORE_BUSY_MS, or see store_wait_at_most).
 * Messages never speak of other users' data. */
#ifndef PF_PROFILES_STORE_H
#define PF_PROFILES_STORE_H

#include "base/err.h"
#include "profiles/vault.h"

#include <stdbool.h>

#define STORE_BUSY_MS 10000
#define STORE_FILE    "preft.db"

typedef struct store store;

/* Zeroed = defaults. */
typedef struct {
    bool must_exist; /* don't make a store where none is: PF_NOT_FOUND */
    vault_cost cost; /* for users made through this handle; ops 0 = vault_cost_default() */
} store_options;

/* Opens or makes the store in folder home (options may be NULL). An older schema is migrated in one
 * transaction after a backup beside it; a newer one is refused and left byte for byte as it is. A
 * second handle of one process on the same folder shares the first one's. */
pf_status store_open(const char *home, const store_options *options, store **out, pf_err *err);
/* Releases the handle; sessions of it that are still referenced keep the file open. NULL is fine.
 */
void store_close(store *s);

/* For a thread that must answer keys: until it is called again, the calling thread waits for other
 * processes at most ms in all, over all its calls and stores; -1: up to STORE_BUSY_MS at a time, as
 * every thread does at first. */
void store_wait_at_most(int ms);

/* While a thread is waited for (between true and false; calls nest): no thread of this process
 * waits for another process over this store, what can't be done at once is PF_BUSY. */
void store_hurry(store *s, bool on);

const char *store_home(const store *s); /* absolute; borrowed */
const char *store_path(const store *s); /* of preft.db; borrowed */

#endif
