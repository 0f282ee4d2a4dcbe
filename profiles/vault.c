#include "profiles/vault.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "models/unicode.h"

#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Formats, each named in the additional data it belongs to. */
#define WRAP_LABEL     "preft-wrap-1"
#define SEAL_LABEL     "preft-seal-1"
#define RECOVERY_LABEL "preft-recovery-1"

#define NONCE_BYTES          crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define RECOVERY_BYTES       20 /* of entropy: 32 characters of base 32 */
#define RECOVERY_CHARS       36 /* with four characters of checksum */
#define RECOVERY_GROUP_CHARS 4

struct vault_key {
    unsigned char data[VAULT_KEY_BYTES];
    unsigned char seal[VAULT_KEY_BYTES], stream[VAULT_KEY_BYTES], head[VAULT_KEY_BYTES];
};

_Static_assert(sizeof((vault_wrap){0}.wrapped) ==
                   NONCE_BYTES + VAULT_KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES,
               "a wrapped key is nonce, key and tag");

/* --- start ------------------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready, memory_locked;

/* JSON texts hold private things (settings, imported conversations): the library's memory is wiped
 * when it gives it back. */
static void free_wiped(void *ptr)
{
    if (ptr) explicit_bzero(ptr, malloc_usable_size(ptr));
    free(ptr);
}

static void start(void)
{
    ready = sodium_init() >= 0;
    if (!ready) return;
    json_set_alloc_funcs(malloc, free_wiped);
    unsigned char probe[64];
    memory_locked = sodium_mlock(probe, sizeof probe) == 0;
    if (memory_locked) sodium_munlock(probe, sizeof probe);
}

pf_status vault_init(pf_err *err)
{
    pthread_once(&once, start);
    if (!ready) return err_set(err, PF_FAILED, "the cryptographic library can't be started");
    return PF_OK;
}

bool vault_memory_locked(void)
{
    pthread_once(&once, start);
    return memory_locked;
}

void vault_harden_process(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

/* --- additional data -------------------------------------------------------------------------- */

/* Fields, each behind its length, so that no two lists of fields give the same bytes. */
typedef struct {
    unsigned char data[512];
    size_t len;
} fields;

static void put_bytes(fields *f, const void *data, size_t len)
{
    PF_ASSERT(len <= sizeof f->data - 4 - f->len);
    for (int i = 0; i < 4; i++)
        f->data[f->len++] = (unsigned char)(len >> (8 * i));
    memcpy(f->data + f->len, data, len);
    f->len += len;
}

static void put_text(fields *f, const char *text)
{
    put_bytes(f, text, strlen(text));
}

static void put_number(fields *f, int64_t number)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)number >> (8 * i));
    put_bytes(f, bytes, sizeof bytes);
}

static void put_place(fields *f, const vault_place *place)
{
    put_text(f, SEAL_LABEL);
    put_bytes(f, place->uid, VAULT_UID_BYTES);
    put_text(f, place->table);
    put_text(f, place->column);
    put_number(f, place->row);
    put_number(f, place->revision);
}

static void put_wrap(fields *f, const vault_wrap *wrap, const unsigned char *uid)
{
    put_text(f, WRAP_LABEL);
    put_bytes(f, uid, VAULT_UID_BYTES);
    put_number(f, wrap->kdf);
    put_number(f, wrap->cost.ops);
    put_number(f, wrap->cost.mem);
    put_bytes(f, wrap->salt, wrap->salt_len);
    put_number(f, wrap->revision);
}

static void wrap_checksum(const vault_wrap *wrap, const unsigned char *uid,
                          unsigned char out[VAULT_DIGEST_BYTES])
{
    fields f = {0};
    put_wrap(&f, wrap, uid);
    put_bytes(&f, wrap->wrapped, wrap->wrapped_len);
    crypto_generichash(out, VAULT_DIGEST_BYTES, f.data, f.len, NULL, 0);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void *secure_alloc(size_t size)
{
    pf_err err;
    if (vault_init(&err) != PF_OK) die("%s", err.text);
    void *p = sodium_malloc(size);
    if (!p) die("out of memory for keys");
    return p;
}

static void key_derive(vault_key *key)
{
    static const char context[crypto_kdf_CONTEXTBYTES + 1] = "preftkey";
    crypto_kdf_derive_from_key(key->seal, VAULT_KEY_BYTES, 1, context, key->data);
    crypto_kdf_derive_from_key(key->stream, VAULT_KEY_BYTES, 2, context, key->data);
    crypto_kdf_derive_from_key(key->head, VAULT_KEY_BYTES, 3, context, key->data);
    sodium_mprotect_readonly(key);
}

vault_key *vault_key_create(void)
{
    vault_key *key = secure_alloc(sizeof *key);
    randombytes_buf(key->data, sizeof key->data);
    key_derive(key);
    return key;
}

void vault_key_free(vault_key *key)
{
    sodium_free(key);
}

/* --- stretching and wrapping ------------------------------------------------------------------ */

static const struct {
    const char *name;
    vault_cost cost;
} costs[] = {
    {"interactive", {2, 64ll << 20}},
    {"moderate", {3, 256ll << 20}},
    {"sensitive", {4, 1024ll << 20}},
};

bool vault_cost_parse(const char *name, vault_cost *out)
{
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        if (strcmp(costs[i].name, name) != 0) continue;
        *out = costs[i].cost;
        return true;
    }
    return false;
}

vault_cost vault_cost_default(void)
{
    return costs[1].cost;
}

pf_status vault_passphrase_check(const secret *passphrase, pf_err *err)
{
    if (passphrase->len == 0) return err_set(err, PF_USAGE, "the passphrase is empty");
    if (passphrase->len > SECRET_MAX)
        return err_set(err, PF_USAGE, "the passphrase is longer than %d bytes", SECRET_MAX);
    if (!utf8_valid(passphrase->data, passphrase->len))
        return err_set(err, PF_USAGE,
                       "the passphrase is not valid UTF-8; the terminal must be set to UTF-8");
    for (size_t i = 0; i < passphrase->len; i++) {
        unsigned char c = (unsigned char)passphrase->data[i];
        if (c < 0x20 || c == 0x7f)
            return err_set(err, PF_USAGE, "the passphrase has a control character (byte %zu)",
                           i + 1);
    }
    return PF_OK;
}

static bool all_zero(const unsigned char *data, size_t len)
{
    return sodium_is_zero(data, len) == 1;
}

/* Argon2id over the composed passphrase; kek is secure memory. */
static pf_status stretch(const secret *passphrase, const vault_wrap *wrap, unsigned char *kek,
                         pf_err *err)
{
    pf_status status = PF_OK;
    size_t n_work = 4 * passphrase->len + 1, len = 0;
    int32_t *composed = secure_alloc(n_work * sizeof *composed);
    if (!unicode_nfc_in(passphrase->data, passphrase->len, composed, n_work, &len)) {
        status = err_set(err, PF_USAGE, "the passphrase can't be composed");
    } else if (crypto_pwhash(kek, VAULT_KEY_BYTES, (const char *)composed, len, wrap->salt,
                             (unsigned long long)wrap->cost.ops, (size_t)wrap->cost.mem,
                             crypto_pwhash_ALG_ARGON2ID13) != 0) {
        status = err_set(err, PF_NO_MEMORY,
                         "stretching the passphrase needs %lld MiB of memory, which the system "
                         "doesn't give; close other programs and try again",
                         (long long)(wrap->cost.mem >> 20));
    }
    sodium_free(composed);
    return status;
}

static void recovery_kek(const unsigned char *entropy, const vault_wrap *wrap, unsigned char *kek)
{
    fields f = {0};
    put_text(&f, RECOVERY_LABEL);
    put_bytes(&f, wrap->salt, wrap->salt_len);
    crypto_generichash(kek, VAULT_KEY_BYTES, f.data, f.len, entropy, RECOVERY_BYTES);
}

static void wrap_start(vault_wrap *wrap, vault_kdf kdf, vault_cost cost, int64_t revision)
{
    *wrap = (vault_wrap){.kdf = kdf,
                         .cost = cost,
                         .salt_len = VAULT_SALT_BYTES,
                         .revision = revision,
                         .wrapped_len = sizeof wrap->wrapped,
                         .checksum_len = VAULT_DIGEST_BYTES};
    randombytes_buf(wrap->salt, sizeof wrap->salt);
}

static void wrap_finish(vault_wrap *wrap, const vault_key *key, const unsigned char *uid,
                        const unsigned char *kek)
{
    fields f = {0};
    put_wrap(&f, wrap, uid);
    randombytes_buf(wrap->wrapped, NONCE_BYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(wrap->wrapped + NONCE_BYTES, NULL, key->data,
                                               VAULT_KEY_BYTES, f.data, f.len, NULL, wrap->wrapped,
                                               kek);
    wrap_checksum(wrap, uid, wrap->checksum);
}

static pf_status cost_check(const vault_cost *cost, pf_err *err)
{
    if (cost->ops < VAULT_OPS_MIN || cost->ops > VAULT_OPS_MAX)
        return err_set(err, PF_DAMAGED,
                       "the time cost of stretching is %lld; only %d to %d are accepted",
                       (long long)cost->ops, VAULT_OPS_MIN, VAULT_OPS_MAX);
    if (cost->mem < VAULT_MEM_MIN || cost->mem > VAULT_MEM_MAX)
        return err_set(
            err, PF_DAMAGED,
            "the memory cost of stretching is %lld bytes; only %lld to %lld are accepted",
            (long long)cost->mem, (long long)VAULT_MEM_MIN, (long long)VAULT_MEM_MAX);
    return PF_OK;
}

pf_status vault_wrap_passphrase(const vault_key *key, const unsigned char uid[VAULT_UID_BYTES],
                                const secret *passphrase, vault_cost cost, int64_t revision,
                                vault_wrap *out, pf_err *err)
{
    unsigned char *kek = NULL;
    pf_status status = vault_passphrase_check(passphrase, err);
    if (status == PF_OK) status = cost_check(&cost, err);
    if (status != PF_OK) return status;
    kek = secure_alloc(VAULT_KEY_BYTES);
    wrap_start(out, VAULT_ARGON2ID, cost, revision);
    status = stretch(passphrase, out, kek, err);
    if (status == PF_OK) wrap_finish(out, key, uid, kek);
    sodium_free(kek);
    return status;
}

/* --- the recovery key's text ------------------------------------------------------------------ */

/* Base 32 without the letters I, L, O and U, which are misread; reading takes them for 1, 1, 0. */
static const char base32[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

static int base32_value(char c)
{
    if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
    if (c == 'I' || c == 'L') c = '1';
    if (c == 'O') c = '0';
    const char *at = c ? strchr(base32, c) : NULL;
    return at ? (int)(at - base32) : -1;
}

/* 20 bits of checksum, one character in each of the low five bits of digits[0..4). */
static void recovery_checksum(const unsigned char *entropy, unsigned char digits[4])
{
    unsigned char hash[VAULT_DIGEST_BYTES];
    fields f = {0};
    put_text(&f, RECOVERY_LABEL);
    put_text(&f, "checksum");
    crypto_generichash(hash, sizeof hash, entropy, RECOVERY_BYTES, f.data, f.len);
    for (int i = 0; i < 4; i++)
        digits[i] = hash[i] & 31;
    sodium_memzero(hash, sizeof hash);
}

static secret *recovery_text(const unsigned char *entropy)
{
    unsigned char digits[RECOVERY_CHARS];
    for (int i = 0; i < RECOVERY_BYTES * 8 / 5; i++) {
        unsigned bit = (unsigned)i * 5;
        unsigned pair = (unsigned)entropy[bit / 8] << 8;
        if (bit / 8 + 1 < RECOVERY_BYTES) pair |= entropy[bit / 8 + 1];
        digits[i] = pair >> (11 - bit % 8) & 31;
    }
    recovery_checksum(entropy, digits + RECOVERY_BYTES * 8 / 5);
    secret *text = secret_new(RECOVERY_CHARS + RECOVERY_CHARS / RECOVERY_GROUP_CHARS);
    for (int i = 0; i < RECOVERY_CHARS; i++) {
        if (i > 0 && i % RECOVERY_GROUP_CHARS == 0) (void)secret_append(text, "-", 1);
        (void)secret_append(text, &base32[digits[i]], 1);
    }
    sodium_memzero(digits, sizeof digits);
    return text;
}

static pf_status recovery_parse(const secret *text, unsigned char *entropy, pf_err *err)
{
    pf_status status = PF_OK;
    unsigned char digits[RECOVERY_CHARS] = {0}, check[4];
    int n = 0;
    for (size_t i = 0; i < text->len && status == PF_OK; i++) {
        char c = text->data[i];
        if (c == '-' || c == ' ') continue;
        int value = base32_value(c);
        if (value < 0 || n == RECOVERY_CHARS) {
            n = -1;
            break;
        }
        digits[n++] = (unsigned char)value;
    }
    if (n != RECOVERY_CHARS) {
        status = err_set(err, PF_USAGE,
                         "this is no recovery key: it has nine groups of four letters and digits");
        goto out;
    }
    memset(entropy, 0, RECOVERY_BYTES);
    for (int i = 0; i < RECOVERY_BYTES * 8; i++) {
        if (digits[i / 5] >> (4 - i % 5) & 1) entropy[i / 8] |= (unsigned char)(0x80 >> i % 8);
    }
    recovery_checksum(entropy, check);
    if (memcmp(check, digits + RECOVERY_BYTES * 8 / 5, sizeof check) != 0)
        status = err_set(err, PF_USAGE, "the recovery key is mistyped: its checksum is wrong");
out:
    sodium_memzero(digits, sizeof digits);
    return status;
}

pf_status vault_wrap_recovery(const vault_key *key, const unsigned char uid[VAULT_UID_BYTES],
                              int64_t revision, vault_wrap *out, secret **text, pf_err *err)
{
    (void)err;
    unsigned char *kek = secure_alloc(VAULT_KEY_BYTES);
    unsigned char *entropy = secure_alloc(RECOVERY_BYTES);
    randombytes_buf(entropy, RECOVERY_BYTES);
    wrap_start(out, VAULT_RECOVERY, (vault_cost){0, 0}, revision);
    recovery_kek(entropy, out, kek);
    wrap_finish(out, key, uid, kek);
    *text = recovery_text(entropy);
    sodium_free(entropy);
    sodium_free(kek);
    return PF_OK;
}

/* --- unwrapping ------------------------------------------------------------------------------- */

pf_status vault_wrap_check(const vault_wrap *wrap, const unsigned char uid[VAULT_UID_BYTES],
                           pf_err *err)
{
    if (wrap->kdf != VAULT_ARGON2ID && wrap->kdf != VAULT_RECOVERY)
        return err_set(err, PF_DAMAGED, "key stretching number %lld is unknown",
                       (long long)wrap->kdf);
    if (wrap->kdf == VAULT_ARGON2ID) {
        pf_status status = cost_check(&wrap->cost, err);
        if (status != PF_OK) return status;
    } else if (wrap->cost.ops != 0 || wrap->cost.mem != 0) {
        return err_set(err, PF_DAMAGED, "a recovery key record has costs of stretching");
    }
    if (wrap->salt_len != VAULT_SALT_BYTES || all_zero(wrap->salt, sizeof wrap->salt))
        return err_set(err, PF_DAMAGED, "the salt has %zu bytes%s; %d random bytes are needed",
                       wrap->salt_len, wrap->salt_len == VAULT_SALT_BYTES ? " and is all zero" : "",
                       VAULT_SALT_BYTES);
    if (wrap->wrapped_len != sizeof wrap->wrapped || wrap->checksum_len != VAULT_DIGEST_BYTES)
        return err_set(err, PF_DAMAGED, "the wrapped key or its checksum has the wrong length");
    unsigned char checksum[VAULT_DIGEST_BYTES];
    wrap_checksum(wrap, uid, checksum);
    if (sodium_memcmp(checksum, wrap->checksum, sizeof checksum) != 0)
        return err_set(err, PF_DAMAGED, "its checksum is wrong");
    return PF_OK;
}

pf_status vault_unwrap(const vault_wrap *wrap, const unsigned char uid[VAULT_UID_BYTES],
                       const secret *text, vault_key **out, pf_err *err)
{
    pf_status status = vault_wrap_check(wrap, uid, err);
    if (status != PF_OK) return status;
    unsigned char *kek = secure_alloc(VAULT_KEY_BYTES);
    vault_key *key = secure_alloc(sizeof *key);
    const bool recovery = wrap->kdf == VAULT_RECOVERY;
    if (recovery) {
        unsigned char *entropy = secure_alloc(RECOVERY_BYTES);
        status = recovery_parse(text, entropy, err);
        if (status == PF_OK) recovery_kek(entropy, wrap, kek);
        sodium_free(entropy);
    } else {
        status = vault_passphrase_check(text, err);
        if (status == PF_OK) status = stretch(text, wrap, kek, err);
    }
    if (status != PF_OK) goto out;
    fields f = {0};
    put_wrap(&f, wrap, uid);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(
            key->data, NULL, NULL, wrap->wrapped + NONCE_BYTES, wrap->wrapped_len - NONCE_BYTES,
            f.data, f.len, wrap->wrapped, kek) != 0) {
        status =
            err_set(err, PF_DENIED, "the %s is wrong", recovery ? "recovery key" : "passphrase");
        goto out;
    }
    key_derive(key);
    *out = key;
    key = NULL;
out:
    sodium_free(key);
    sodium_free(kek);
    return status;
}

/* --- sealing ---------------------------------------------------------------------------------- */

#define SEAL_VERSION 1

#define HINT_BYTES (VAULT_SEAL_HINTS / 2)

/* Two short public hashes: of the user, and of the whole place. */
static void seal_hints(const vault_place *place, const fields *f, unsigned char *out)
{
    unsigned char hash[VAULT_DIGEST_BYTES];
    crypto_generichash(hash, sizeof hash, place->uid, VAULT_UID_BYTES, NULL, 0);
    memcpy(out, hash, HINT_BYTES);
    crypto_generichash(hash, sizeof hash, f->data, f->len, NULL, 0);
    memcpy(out + HINT_BYTES, hash, HINT_BYTES);
}

void vault_seal(const vault_key *key, const vault_place *place, const void *text, size_t len,
                unsigned char *out)
{
    unsigned char *nonce = out + 1 + VAULT_SEAL_HINTS;
    fields f = {0};
    put_place(&f, place);
    out[0] = SEAL_VERSION;
    seal_hints(place, &f, out + 1);
    randombytes_buf(nonce, NONCE_BYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(nonce + NONCE_BYTES, NULL, text, len, f.data, f.len,
                                               NULL, nonce, key->seal);
}

vault_verdict vault_unseal(const vault_key *key, const vault_place *place, const void *sealed,
                           size_t sealed_len, unsigned char *out)
{
    const unsigned char *in = sealed, *nonce = in + 1 + VAULT_SEAL_HINTS;
    unsigned char hints[VAULT_SEAL_HINTS];
    if (sealed_len < VAULT_SEAL_OVERHEAD || in[0] != SEAL_VERSION) return VAULT_DAMAGED;
    const size_t len = sealed_len - VAULT_SEAL_OVERHEAD;
    fields f = {0};
    put_place(&f, place);
    seal_hints(place, &f, hints);
    bool opened = crypto_aead_xchacha20poly1305_ietf_decrypt(out, NULL, NULL, nonce + NONCE_BYTES,
                                                             len + VAULT_TAG_BYTES, f.data, f.len,
                                                             nonce, key->seal) == 0;
    bool same_user = memcmp(hints, in + 1, HINT_BYTES) == 0;
    bool same_place = memcmp(hints + HINT_BYTES, in + 1 + HINT_BYTES, HINT_BYTES) == 0;
    if (opened && same_user && same_place) return VAULT_GENUINE;
    if (opened) sodium_memzero(out, len); /* only the hints were changed: refused all the same */
    if (opened || (same_user && same_place)) return VAULT_DAMAGED;
    return same_user ? VAULT_MOVED : VAULT_FOREIGN;
}

const char *vault_verdict_words(vault_verdict v)
{
    static const char *const words[] = {
        "is genuine", "is damaged",
        "was moved here from another place or rolled back to an older form",
        "belongs to another user"};
    return words[v];
}

/* --- streams ---------------------------------------------------------------------------------- */

struct vault_stream {
    crypto_secretstream_xchacha20poly1305_state state;
    fields place;
    int64_t number; /* of the next chunk */
};

_Static_assert(VAULT_STREAM_HEADER_BYTES == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
               "stream header");
_Static_assert(VAULT_STREAM_OVERHEAD == crypto_secretstream_xchacha20poly1305_ABYTES,
               "stream overhead");

static vault_stream *stream_new(const vault_place *place)
{
    vault_stream *s = secure_alloc(sizeof *s);
    sodium_memzero(s, sizeof *s);
    put_place(&s->place, place);
    return s;
}

static fields chunk_fields(vault_stream *s)
{
    fields f = s->place;
    put_number(&f, s->number++);
    return f;
}

vault_stream *vault_stream_seal_start(const vault_key *key, const vault_place *place,
                                      unsigned char header[VAULT_STREAM_HEADER_BYTES])
{
    vault_stream *s = stream_new(place);
    crypto_secretstream_xchacha20poly1305_init_push(&s->state, header, key->stream);
    return s;
}

void vault_stream_seal(vault_stream *s, const void *text, size_t len, bool last, unsigned char *out)
{
    fields f = chunk_fields(s);
    unsigned char tag = last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
                             : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
    crypto_secretstream_xchacha20poly1305_push(&s->state, out, NULL, text, len, f.data, f.len, tag);
}

vault_stream *vault_stream_open_start(const vault_key *key, const vault_place *place,
                                      const unsigned char header[VAULT_STREAM_HEADER_BYTES])
{
    vault_stream *s = stream_new(place);
    /* fails only for a malformed key, which a derived one can't be */
    (void)crypto_secretstream_xchacha20poly1305_init_pull(&s->state, header, key->stream);
    return s;
}

bool vault_stream_open(vault_stream *s, const void *sealed, size_t sealed_len, unsigned char *out,
                       bool *last)
{
    if (sealed_len < VAULT_STREAM_OVERHEAD) return false;
    fields f = chunk_fields(s);
    unsigned char tag = 0;
    if (crypto_secretstream_xchacha20poly1305_pull(&s->state, out, NULL, &tag, sealed, sealed_len,
                                                   f.data, f.len) != 0)
        return false;
    *last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
    return true;
}

void vault_stream_free(vault_stream *s)
{
    sodium_free(s);
}

/* --- set digests ------------------------------------------------------------------------------ */

void vault_head_update(const vault_key *key, vault_head *head, const char *table, int64_t scope,
                       int64_t row, int64_t revision, const unsigned char *tag, int sign)
{
    fields f = {0};
    unsigned char hash[VAULT_DIGEST_BYTES];
    put_text(&f, "row");
    put_text(&f, table);
    put_number(&f, scope);
    put_number(&f, row);
    put_number(&f, revision);
    put_bytes(&f, tag, VAULT_TAG_BYTES);
    crypto_generichash(hash, sizeof hash, f.data, f.len, key->head, VAULT_KEY_BYTES);
    for (size_t i = 0; i < sizeof hash; i++)
        head->digest[i] ^= hash[i];
    head->count += sign;
    sodium_memzero(hash, sizeof hash);
}

bool vault_head_equal(const vault_head *a, const vault_head *b)
{
    return a->count == b->count && sodium_memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

void vault_name_tag(const vault_key *key, const char *what, const char *name,
                    unsigned char out[VAULT_DIGEST_BYTES])
{
    crypto_generichash_state state;
    fields f = {0};
    put_text(&f, "name");
    put_text(&f, what);
    crypto_generichash_init(&state, key->head, VAULT_KEY_BYTES, VAULT_DIGEST_BYTES);
    crypto_generichash_update(&state, f.data, f.len);
    crypto_generichash_update(&state, (const unsigned char *)name, strlen(name));
    crypto_generichash_final(&state, out, VAULT_DIGEST_BYTES);
    sodium_memzero(&state, sizeof state);
}
