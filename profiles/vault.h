/* The vault: keys and authenticated encryption under the store.
 *
 * Every user has one random data key. It is kept only wrapped: by Argon2id(passphrase) and, if
 * wanted, by a recovery key of 160 random bits. From the data key come the sealing key (columns),
 * the stream key (large blobs) and the head key (set digests). Keys live in sodium_malloc memory:
 * guard pages around them, locked when the system allows, wiped when freed.
 *
 * A sealed value is bound to its place: user, table, column, row and revision are additional data,
 * every field with its length in front, so that no two places give the same bytes. */
#ifndef PF_PROFILES_VAULT_H
#define PF_PROFILES_VAULT_H

#include "base/err.h"
#include "profiles/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VAULT_KEY_BYTES    32
#define VAULT_SALT_BYTES   16
#define VAULT_UID_BYTES    16
#define VAULT_DIGEST_BYTES 32
#define VAULT_TAG_BYTES    16

/* --- start ------------------------------------------------------------------------------------ */

/* Prepares the cryptographic library; idempotent, thread-safe. store_open calls it. */
pf_status vault_init(pf_err *err);

/* False when the system refuses to lock memory (RLIMIT_MEMLOCK): keys could then reach swap. The
 * caller warns once and goes on, or refuses when the user asked for that. */
bool vault_memory_locked(void);

/* No core file and no attaching debugger of the same user from now on. Called by main first of
 * all. (Not in sanitizer builds, whose leak checker attaches to the process.) */
void vault_harden_process(void);

/* --- stretching and wrapping ------------------------------------------------------------------ */

typedef enum { VAULT_ARGON2ID = 1, VAULT_RECOVERY = 2 } vault_kdf;

/* Cost of stretching a passphrase. What is outside these limits is refused before any stretching,
 * wherever it comes from; there is no switch below the floor (libsodium's "interactive"). */
#define VAULT_OPS_MIN 2
#define VAULT_OPS_MAX 16
#define VAULT_MEM_MIN (64ll << 20)
#define VAULT_MEM_MAX (1ll << 30)
typedef struct {
    int64_t ops;
    int64_t mem; /* bytes */
} vault_cost;
/* "interactive" (2 x 64 MiB), "moderate" (3 x 256 MiB, the default), "sensitive" (4 x 1 GiB). */
bool vault_cost_parse(const char *name, vault_cost *out);
vault_cost vault_cost_default(void);

/* A wrapped data key as it is stored: every field but `wrapped` is public. */
typedef struct {
    int64_t kdf; /* vault_kdf */
    vault_cost cost;
    unsigned char salt[VAULT_SALT_BYTES];
    size_t salt_len;
    int64_t revision;          /* counts rewraps */
    unsigned char wrapped[72]; /* nonce 24, key 32, tag 16 */
    size_t wrapped_len;
    /* BLAKE2b of all the above and the user id: tells a damaged record from a wrong passphrase. It
     * protects against accidents only; against forgery there is the wrapping itself. */
    unsigned char checksum[VAULT_DIGEST_BYTES];
    size_t checksum_len;
} vault_wrap;

typedef struct vault_key vault_key; /* a data key with what is derived from it; opaque */

/* A new random data key. */
vault_key *vault_key_create(void);
void vault_key_free(vault_key *key); /* wipes; NULL is fine */

/* Passphrases: 1..1024 bytes of valid UTF-8 without control characters, compared after composing
 * (NFC): the same letters typed composed or decomposed are one passphrase. Nothing else is changed:
 * case and blanks count. PF_USAGE says what is wrong. */
pf_status vault_passphrase_check(const secret *passphrase, pf_err *err);

/* Fills *out (salt, cost, wrapped, checksum) under a passphrase. revision is the new one. */
pf_status vault_wrap_passphrase(const vault_key *key, const unsigned char uid[VAULT_UID_BYTES],
                                const secret *passphrase, vault_cost cost, int64_t revision,
                                vault_wrap *out, pf_err *err);
/* Makes a recovery key, wraps under it, and gives its text: nine groups of four characters, the
 * last of which is a checksum. *text is the caller's, shown once and never stored. */
pf_status vault_wrap_recovery(const vault_key *key, const unsigned char uid[VAULT_UID_BYTES],
                              int64_t revision, vault_wrap *out, secret **text, pf_err *err);

/* Checks all fields of a stored record without stretching: PF_DAMAGED names the field. */
pf_status vault_wrap_check(const vault_wrap *wrap, const unsigned char uid[VAULT_UID_BYTES],
                           pf_err *err);
/* Unwraps with the passphrase, or with the recovery key's text (case, blanks and dashes don't
 * matter; a mistyped one is told by its checksum: PF_USAGE). PF_DENIED: wrong; PF_DAMAGED: the
 * record itself is damaged. Takes as long as the stretching costs; call it without locks. */
pf_status vault_unwrap(const vault_wrap *wrap, const unsigned char uid[VAULT_UID_BYTES],
                       const secret *text, vault_key **out, pf_err *err);

/* --- sealing ---------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *uid; /* [VAULT_UID_BYTES] of the owner */
    const char *table, *column;
    int64_t row;
    int64_t revision;
} vault_place;

/* XChaCha20-Poly1305: version 1, hints 16, nonce 24, text, tag 16. The hints are short hashes of
 * the user and of the place; they serve only to say why a value can't be opened. */
#define VAULT_SEAL_HINTS    16
#define VAULT_SEAL_OVERHEAD (1 + VAULT_SEAL_HINTS + 24 + VAULT_TAG_BYTES)

typedef enum {
    VAULT_GENUINE,
    VAULT_DAMAGED, /* changed since it was sealed */
    VAULT_MOVED,   /* of another row or column, or an older form of this one */
    VAULT_FOREIGN  /* of another user */
} vault_verdict;
const char *vault_verdict_words(vault_verdict v); /* "is damaged", "was moved here ...", ... */

/* out has len + VAULT_SEAL_OVERHEAD bytes. */
void vault_seal(const vault_key *key, const vault_place *place, const void *text, size_t len,
                unsigned char *out);
/* out has sealed_len - VAULT_SEAL_OVERHEAD bytes (room for 1 if that is not positive); it holds
 * nothing of the content unless the verdict is VAULT_GENUINE. */
vault_verdict vault_unseal(const vault_key *key, const vault_place *place, const void *sealed,
                           size_t sealed_len, unsigned char *out);

/* Large blobs: a secretstream whose chunks are stored as rows. Chunks can't be left out, swapped,
 * repeated or cut off at the end; each is bound to the place and its number. */
#define VAULT_STREAM_HEADER_BYTES 24
#define VAULT_STREAM_OVERHEAD     17
#define VAULT_STREAM_CHUNK        (1u << 20) /* bytes of text in every chunk but the last */
typedef struct vault_stream vault_stream;
vault_stream *vault_stream_seal_start(const vault_key *key, const vault_place *place,
                                      unsigned char header[VAULT_STREAM_HEADER_BYTES]);
/* out has len + VAULT_STREAM_OVERHEAD bytes. */
void vault_stream_seal(vault_stream *s, const void *text, size_t len, bool last,
                       unsigned char *out);
vault_stream *vault_stream_open_start(const vault_key *key, const vault_place *place,
                                      const unsigned char header[VAULT_STREAM_HEADER_BYTES]);
/* out has sealed_len - VAULT_STREAM_OVERHEAD bytes; false: not the next chunk of this stream. */
bool vault_stream_open(vault_stream *s, const void *sealed, size_t sealed_len, unsigned char *out,
                       bool *last);
void vault_stream_free(vault_stream *s); /* wipes; NULL is fine */

/* --- set digests ------------------------------------------------------------------------------ */

/* A digest of a set of sealed rows that can be kept up to date by adding and removing one: count,
 * and the exclusive or of a keyed hash of (table, row, revision, tag) of each. Kept sealed, it
 * detects rows that were removed, added, or rolled back to an older authentic form. */
typedef struct {
    int64_t count;
    unsigned char digest[VAULT_DIGEST_BYTES];
} vault_head;
/* Adds (sign +1) or takes away (sign -1) a row; tag is the last 16 bytes of its sealed value. scope
 * is the row the set belongs to (a conversation; 0: the user). */
void vault_head_update(const vault_key *key, vault_head *head, const char *table, int64_t scope,
                       int64_t row, int64_t revision, const unsigned char *tag, int sign);
bool vault_head_equal(const vault_head *a, const vault_head *b);

/* A keyed hash that stands for a name in an index, without revealing it. */
void vault_name_tag(const vault_key *key, const char *what, const char *name,
                    unsigned char out[VAULT_DIGEST_BYTES]);

#endif
