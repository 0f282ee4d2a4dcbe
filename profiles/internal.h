/* Shared by the files of profiles/: the store's internals, sessions, transactions, sealed rows. */
#ifndef PF_PROFILES_INTERNAL_H
#define PF_PROFILES_INTERNAL_H

#include "base/buf.h"
#include "profiles/db.h"
#include "profiles/record.h"
#include "profiles/user.h"

#include <pthread.h>
#include <stdatomic.h>

struct store {
    atomic_int references; /* of handles and sessions */
    store *next;           /* in the list of stores open in this process */
    char *home, *path;
    int lock_fd; /* holds a shared lock on HOME/lock; restore takes it exclusively */
    vault_cost cost;
    pthread_mutex_t lock; /* around main */
    atomic_int waiting;   /* threads that want the lock */
    atomic_int in_haste;  /* see store_hurry */
    db main;
    pthread_mutex_t reader_lock; /* around reader */
    db reader;                   /* for adapters; opened when first needed (handle NULL) */
};

struct session {
    atomic_int references;
    store *store;
    int64_t user;
    unsigned char uid[VAULT_UID_BYTES];
    char *name;
    uint64_t engine_user;
    pthread_rwlock_t key_lock; /* readers use the key, signing out writes */
    vault_key *key;            /* NULL: signed out */
    atomic_bool leaving;       /* is being signed out: long reads end at once */
    atomic_llong revision;     /* of the passphrase's wrap at sign-in */
};

/* Lock order: session key_lock, then store lock or reader_lock. */

store *store_ref(store *s);
/* A session of a user whose data key is at hand; takes over key. */
session *session_make(store *st, int64_t user, const unsigned char *uid, const char *name,
                      int64_t revision, vault_key *key);
/* Folder, links, owners, modes (store.h). real: the folder's absolute path, owned. */
pf_status store_check_home(const char *home, bool make, char **real, pf_err *err);
pf_status store_check_files(const char *home, pf_err *err);
/* Takes HOME/lock, shared or exclusive, without waiting: PF_BUSY. */
pf_status store_lock_home(const char *home, bool exclusive, int *fd, pf_err *err);
/* After deletions and key changes: truncates the write-ahead log and removes the copies that
 * migrations made, so that no old content is left in them. Best effort, waits briefly; call without
 * the lock. */
void store_scrub(store *s);
/* Takes one of the store's locks. PF_BUSY, and not taken: who has it waits for another process, for
 * longer than the calling thread may wait (store_wait_at_most). */
pf_status store_take(store *s, pthread_mutex_t *lock, db *d, pf_err *err);
/* For long reads, between two transactions: yields the store to waiting threads. */
void store_give_way(store *s);

/* --- transactions ----------------------------------------------------------------------------- */

typedef enum { TX_READ, TX_WRITE } tx_mode;

/* A transaction of one user: both locks are held until tx_end. */
typedef struct {
    session *session;
    db *d;
    const vault_key *key;
    const unsigned char *uid;
    int64_t user;
    tx_mode mode;
} tx;

/* PF_DENIED after sign-out. When it fails there is nothing to end. */
pf_status tx_begin(session *s, tx_mode mode, tx *out, pf_err *err);
/* Commits if status is PF_OK or PF_DAMAGED of a reader, else rolls back; unlocks. Returns status,
 * or why it could not be committed. */
pf_status tx_end(tx *t, pf_status status, pf_err *err);

/* The same for what needs no user. */
pf_status store_begin(store *s, tx_mode mode, pf_err *err);
pf_status store_end(store *s, tx_mode mode, pf_status status, pf_err *err);

/* --- sealed rows ------------------------------------------------------------------------------ */

typedef enum {
    ROW_HEAD, /* user_head: one row a user */
    ROW_PROFILE,
    ROW_VERSION,
    ROW_CHECKPOINT,
    ROW_CONVERSATION,
    ROW_MESSAGE,
    ROW_SETTING,
    ROW_NOTE,
    ROW_KINDS
} row_kind;

/* An unsealed row. */
typedef struct {
    int64_t id, owner, revision;
    unsigned char tag[VAULT_TAG_BYTES]; /* of the sealed body, for set digests */
    record body;                        /* points into text */
    unsigned char *text;
    size_t len;
} row;
void row_free(row *r); /* wiped */

/* Reads one row of the user. PF_NOT_FOUND: no such row, or another user's (alike); PF_DAMAGED names
 * kind and row, and what is wrong. */
pf_status row_read(tx *t, row_kind kind, int64_t id, row *out, pf_err *err);

/* The damaged rows of a list, collected to be reported at its end as one PF_DAMAGED. */
typedef struct {
    int64_t n;
    buf text; /* "12 is damaged, 14 belongs to another user" */
} damage;
void damage_free(damage *d);
/* PF_OK if all is well. what: "messages of conversation 3". found: as scanned; expected: as kept,
 * NULL if that itself is damaged. Frees d. */
pf_status damage_report(damage *d, const vault_head *found, const vault_head *expected,
                        const char *what, pf_err *err);

/* Calls visit for each genuine row of owner in order of ids; the others go to bad. visit may keep
 * r's content by copying only; a status other than PF_OK ends the scan. *found (may be NULL)
 * receives the set digest of all rows. scope: owner, or 0 for rows the user owns. */
typedef pf_status (*row_visit)(void *ctx, const row *r, pf_err *err);
pf_status row_scan(tx *t, row_kind kind, int64_t owner, vault_head *found, damage *bad,
                   row_visit visit, void *ctx, pf_err *err);
/* The set digest only, without unsealing. */
pf_status row_head(tx *t, row_kind kind, int64_t owner, vault_head *found, pf_err *err);

/* The ids of all rows of owner, genuine or not; as db_numbers. */
pf_status row_ids(tx *t, row_kind kind, int64_t owner, row_id_list *out, pf_err *err);

/* Changes of rows. head is the set's digest, brought up to date; the caller saves it. tag is for
 * settings only (else NULL). */
pf_status row_insert(tx *t, row_kind kind, int64_t owner, const record_writer *body,
                     const unsigned char *tag, vault_head *head, int64_t *id, pf_err *err);
/* old: the row as read in this transaction. */
pf_status row_update(tx *t, row_kind kind, const row *old, const record_writer *body,
                     vault_head *head, pf_err *err);
pf_status row_remove(tx *t, row_kind kind, const row *old, vault_head *head, pf_err *err);

/* Removes the rows of owner from id `first` on (only_one: that row alone), genuine or not. */
pf_status row_remove_from(tx *t, row_kind kind, int64_t owner, int64_t first, bool only_one,
                          vault_head *head, int64_t *n, pf_err *err);

/* --- the user's head: set digests of profiles, conversations, settings, notes --------------- */

typedef struct {
    row row; /* as stored */
    vault_head profiles, conversations, settings, notes;
} user_head;
pf_status user_head_create(tx *t, pf_err *err); /* for a new user */
pf_status user_head_read(tx *t, user_head *out, pf_err *err);
pf_status user_head_write(tx *t, user_head *head, pf_err *err);
void user_head_free(user_head *head);

void record_put_head(record_writer *w, unsigned field, const vault_head *head);
/* Absent: an empty set. */
vault_head record_get_head(const record *r, unsigned field);

/* Removes a setting within a transaction; absent is fine. */
pf_status settings_drop(tx *t, user_head *head, const char *key, pf_err *err);
/* The key of a profile's input history. Owned. */
char *input_history_key(int64_t profile);
/* The key of a conversation's draft. Owned. */
char *draft_key(int64_t conversation);

/* Removes the checkpoints of trainings that learn from something (their notes list it under kind,
 * "conversations" or "notes"): they hold its text. */
pf_status checkpoints_forget(tx *t, user_head *head, const char *kind, int64_t id, pf_err *err);

/* Removes the notes that were found in a conversation since a time and not confirmed: they may hold
 * words of messages of that time. */
pf_status notes_forget(tx *t, user_head *head, int64_t conversation, int64_t since_ms, pf_err *err);

/* Whether there are notes of a profile. */
pf_status notes_any(tx *t, const user_head *head, int64_t profile, bool *any, pf_err *err);

/* Removes from the input history of a profile what is one of the n texts (zero-terminated). */
pf_status inputs_forget(tx *t, user_head *head, int64_t profile, const char *const *texts, size_t n,
                        pf_err *err);

/* Checks that text is a JSON object (NULL and "" are fine); what is for messages. */
pf_status json_object_check(const char *text, const char *what, pf_err *err);

/* Whether a profile of the user exists, by its row alone. */
pf_status profile_exists(tx *t, int64_t id, bool *out, pf_err *err);

/* --- blobs ------------------------------------------------------------------------------------ */

/* Saves data as a blob of a profile, in chunks. */
pf_status blob_save(tx *t, int64_t profile, const void *data, size_t len, int64_t *id, pf_err *err);
pf_status blob_remove(tx *t, int64_t id, pf_err *err);
/* Appends a blob of `len` bytes to out, through the reader's connection, chunk by chunk; other work
 * goes on meanwhile. what is for messages. On failure out is as before. */
pf_status blob_read(session *s, int64_t id, uint64_t len, const char *what, buf *out, pf_err *err);
/* Authenticates all chunks within a transaction; gives the content's digest. */
pf_status blob_verify(tx *t, int64_t id, uint64_t len, unsigned char digest[32], pf_err *err);

#endif
