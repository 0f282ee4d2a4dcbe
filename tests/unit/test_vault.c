/* Keys, wrapping, sealing, streams, set digests: what opens, and above all what doesn't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "profiles/vault.h"
#include "support/cpu_time.h"

#include <sodium.h>

static const unsigned char uid_a[VAULT_UID_BYTES] = "user a, 16 bytes";
static const unsigned char uid_b[VAULT_UID_BYTES] = "user b, 16 bytes";
static const vault_cost cheap = {VAULT_OPS_MIN, VAULT_MEM_MIN};
static pf_err err;

static secret *text(const char *s)
{
    return secret_from(s, strlen(s));
}

/* Whether two keys are the same, as seen from outside. */
static bool same_key(const vault_key *a, const vault_key *b)
{
    unsigned char sealed[8 + VAULT_SEAL_OVERHEAD], out[8];
    vault_place place = {uid_a, "t", "c", 1, 1};
    vault_seal(a, &place, "12345678", 8, sealed);
    return vault_unseal(b, &place, sealed, sizeof sealed, out) == VAULT_GENUINE;
}

static void test_passphrase(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *again = NULL;
    secret *right = text("correct horse battery staple"), *wrong = text("correct horse");
    vault_wrap wrap;
    assert_int_equal(vault_wrap_passphrase(key, uid_a, right, cheap, 1, &wrap, &err), PF_OK);
    assert_int_equal(vault_unwrap(&wrap, uid_a, wrong, &again, &err), PF_DENIED);
    assert_non_null(strstr(err.text, "passphrase is wrong"));
    assert_int_equal(vault_unwrap(&wrap, uid_a, right, &again, &err), PF_OK);
    assert_true(same_key(key, again));
    vault_key_free(again);
    /* another user's record, put in this one's place */
    assert_int_equal(vault_unwrap(&wrap, uid_b, right, &again, &err), PF_DAMAGED);
    vault_key_free(key);
    secret_free(right);
    secret_free(wrong);
}

static void test_composed_and_decomposed(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *again = NULL;
    secret *composed = text("caf\xc3\xa9 au lait"), *decomposed = text("cafe\xcc\x81 au lait");
    secret *upper = text("Caf\xc3\xa9 au lait"), *blank = text("caf\xc3\xa9 au lait ");
    vault_wrap wrap;
    assert_int_equal(vault_wrap_passphrase(key, uid_a, decomposed, cheap, 1, &wrap, &err), PF_OK);
    assert_int_equal(vault_unwrap(&wrap, uid_a, composed, &again, &err), PF_OK);
    vault_key_free(again);
    assert_int_equal(vault_unwrap(&wrap, uid_a, upper, &again, &err), PF_DENIED);
    assert_int_equal(vault_unwrap(&wrap, uid_a, blank, &again, &err), PF_DENIED);
    vault_key_free(key);
    secret_free(composed);
    secret_free(decomposed);
    secret_free(upper);
    secret_free(blank);
}

static void test_passphrase_rules(void **state)
{
    (void)state;
    char long_text[SECRET_MAX + 2];
    memset(long_text, 'x', sizeof long_text);
    static const char *const refused[] = {"",     "a\nb", "tab\tinside",
                                          "\x7f", "\xff", "\xed\xa0\x80"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        secret *s = text(refused[i]);
        assert_int_equal(vault_passphrase_check(s, &err), PF_USAGE);
        secret_free(s);
    }
    secret *longest = secret_from(long_text, SECRET_MAX);
    assert_int_equal(vault_passphrase_check(longest, &err), PF_OK);
    secret_free(longest);
    longest = secret_from(long_text, SECRET_MAX + 1);
    assert_int_equal(vault_passphrase_check(longest, &err), PF_USAGE);
    secret_free(longest);
    /* 1,024 bytes that get longer when decomposed */
    secret *accents = secret_new(SECRET_MAX);
    while (secret_append(accents, "\xe1\xbe\x82", 3))
        continue;
    vault_key *key = vault_key_create(), *again = NULL;
    vault_wrap wrap;
    assert_int_equal(vault_wrap_passphrase(key, uid_a, accents, cheap, 1, &wrap, &err), PF_OK);
    assert_int_equal(vault_unwrap(&wrap, uid_a, accents, &again, &err), PF_OK);
    vault_key_free(again);
    vault_key_free(key);
    secret_free(accents);
}

static void test_bad_records(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *again = NULL;
    secret *p = text("correct horse");
    vault_wrap good, bad;
    assert_int_equal(vault_wrap_passphrase(key, uid_a, p, cheap, 1, &good, &err), PF_OK);
    static const struct {
        int64_t kdf, ops, mem;
        const char *says;
    } cases[] = {
        {99, 2, VAULT_MEM_MIN, "99"},
        {0, 2, VAULT_MEM_MIN, "unknown"},
        {VAULT_ARGON2ID, 0, VAULT_MEM_MIN, "time cost"},
        {VAULT_ARGON2ID, 1, VAULT_MEM_MIN, "time cost"},
        {VAULT_ARGON2ID, INT64_C(1) << 31, VAULT_MEM_MIN, "time cost"},
        {VAULT_ARGON2ID, 2, 0, "memory cost"},
        {VAULT_ARGON2ID, 2, -1, "memory cost"},
        {VAULT_ARGON2ID, 2, INT64_C(1) << 40, "memory cost"},
        {VAULT_ARGON2ID, 3, VAULT_MEM_MIN, "checksum"},
        {VAULT_RECOVERY, 0, 0, "checksum"},
        {VAULT_RECOVERY, 2, VAULT_MEM_MIN, "recovery"},
    };
    int64_t start = cpu_time_ns();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad = good;
        bad.kdf = cases[i].kdf;
        bad.cost = (vault_cost){cases[i].ops, cases[i].mem};
        assert_int_equal(vault_unwrap(&bad, uid_a, p, &again, &err), PF_DAMAGED);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    bad = good;
    memset(bad.salt, 0, sizeof bad.salt);
    assert_int_equal(vault_unwrap(&bad, uid_a, p, &again, &err), PF_DAMAGED);
    assert_non_null(strstr(err.text, "all zero"));
    bad = good;
    bad.salt_len = 8;
    assert_int_equal(vault_unwrap(&bad, uid_a, p, &again, &err), PF_DAMAGED);
    bad = good;
    bad.wrapped_len = 71;
    assert_int_equal(vault_unwrap(&bad, uid_a, p, &again, &err), PF_DAMAGED);
    /* every bit of the wrapped key and the salt: told before any stretching */
    for (size_t i = 0; i < sizeof bad.wrapped; i++) {
        bad = good;
        bad.wrapped[i] ^= (unsigned char)(1u << i % 8);
        assert_int_equal(vault_unwrap(&bad, uid_a, p, &again, &err), PF_DAMAGED);
    }
    assert_true(cpu_time_ns() - start < 1000000000);
    vault_key_free(key);
    secret_free(p);
}

/* A record whose checksum was made right again by a forger is told by the wrapping itself. */
static void test_forged_record(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *other = vault_key_create(), *again = NULL;
    secret *p = text("correct horse");
    vault_wrap a, b;
    assert_int_equal(vault_wrap_passphrase(key, uid_a, p, cheap, 1, &a, &err), PF_OK);
    assert_int_equal(vault_wrap_passphrase(other, uid_a, p, cheap, 2, &b, &err), PF_OK);
    memcpy(a.wrapped, b.wrapped, sizeof a.wrapped);
    assert_int_equal(vault_unwrap(&a, uid_a, p, &again, &err), PF_DAMAGED);
    vault_key_free(key);
    vault_key_free(other);
    secret_free(p);
}

static void test_recovery(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *again = NULL;
    secret *shown = NULL, *other = NULL;
    vault_wrap wrap, wrap2;
    assert_int_equal(vault_wrap_recovery(key, uid_a, 1, &wrap, &shown, &err), PF_OK);
    assert_int_equal(vault_wrap_recovery(key, uid_a, 2, &wrap2, &other, &err), PF_OK);
    assert_int_equal(shown->len, 44);
    assert_int_equal(vault_unwrap(&wrap, uid_a, shown, &again, &err), PF_OK);
    assert_true(same_key(key, again));
    vault_key_free(again);
    assert_int_equal(vault_unwrap(&wrap, uid_a, other, &again, &err), PF_DENIED);
    /* as people type it */
    secret *typed = secret_new(100);
    for (size_t i = 0; i < shown->len; i++) {
        char c = shown->data[i];
        if (c == '-') continue;
        if (c == '0') c = i % 2 ? 'o' : 'O';
        if (c == '1') c = i % 2 ? 'l' : 'I';
        if (c >= 'A' && c <= 'Z' && i % 3 == 0) c = (char)(c - 'A' + 'a');
        secret_append(typed, &c, 1);
        if (i % 5 == 0) secret_append(typed, " ", 1);
    }
    assert_int_equal(vault_unwrap(&wrap, uid_a, typed, &again, &err), PF_OK);
    vault_key_free(again);
    /* one character wrong: nearly always told by the checksum, never accepted */
    size_t told = 0, tried = 0;
    for (size_t i = 0; i < shown->len; i++) {
        if (shown->data[i] == '-') continue;
        char old = shown->data[i];
        shown->data[i] = old == '7' ? '8' : '7';
        pf_status status = vault_unwrap(&wrap, uid_a, shown, &again, &err);
        assert_true(status == PF_USAGE || status == PF_DENIED);
        told += status == PF_USAGE;
        tried++;
        shown->data[i] = old;
    }
    assert_true(told >= tried - 1);
    secret_truncate(shown, 43);
    assert_int_equal(vault_unwrap(&wrap, uid_a, shown, &again, &err), PF_USAGE);
    secret_free(typed);
    secret_free(shown);
    secret_free(other);
    vault_key_free(key);
}

static void test_sealing(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *other = vault_key_create();
    const char message[] = "nothing of this may show";
    unsigned char sealed[sizeof message + VAULT_SEAL_OVERHEAD], copy[sizeof sealed];
    unsigned char out[sizeof message];
    vault_place place = {uid_a, "message", "body", 7, 3};
    vault_seal(key, &place, message, sizeof message, sealed);
    assert_int_equal(vault_unseal(key, &place, sealed, sizeof sealed, out), VAULT_GENUINE);
    assert_memory_equal(out, message, sizeof message);
    for (size_t bit = 0; bit < 8 * sizeof sealed; bit++) {
        memcpy(copy, sealed, sizeof copy);
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        memset(out, 0, sizeof out);
        assert_true(vault_unseal(key, &place, copy, sizeof copy, out) != VAULT_GENUINE);
        assert_memory_not_equal(out, message, sizeof message);
    }
    for (size_t len = 0; len < sizeof sealed; len++)
        assert_int_equal(vault_unseal(key, &place, sealed, len, out), VAULT_DAMAGED);
    assert_int_equal(vault_unseal(other, &place, sealed, sizeof sealed, out), VAULT_DAMAGED);
    static const struct {
        vault_place place;
        vault_verdict verdict;
    } places[] = {
        {{uid_b, "message", "body", 7, 3}, VAULT_FOREIGN},
        {{uid_a, "messages", "body", 7, 3}, VAULT_MOVED},
        {{uid_a, "message", "title", 7, 3}, VAULT_MOVED},
        {{uid_a, "message", "body", 8, 3}, VAULT_MOVED},
        {{uid_a, "message", "body", 7, 4}, VAULT_MOVED},
        {{uid_a, "messageb", "ody", 7, 3}, VAULT_MOVED},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        assert_int_equal(vault_unseal(key, &places[i].place, sealed, sizeof sealed, out),
                         places[i].verdict);
    /* an empty text is a text */
    vault_seal(key, &place, NULL, 0, sealed);
    assert_int_equal(vault_unseal(key, &place, sealed, VAULT_SEAL_OVERHEAD, out), VAULT_GENUINE);
    vault_key_free(key);
    vault_key_free(other);
}

/* Fields joined without lengths would make some of these places the same. */
static void test_places_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *table, *column;
        int64_t row, revision;
    } places[] = {
        {"ab", "c", 1, 11},  {"a", "bc", 1, 11}, {"a", "bc", 11, 1}, {"a", "bc", 1, 111},
        {"a", "bc", 111, 1}, {"", "abc", 1, 1},  {"abc", "", 1, 1},  {"abc", "", 256, 1},
    };
    const size_t n = sizeof places / sizeof *places;
    vault_key *key = vault_key_create();
    unsigned char sealed[1 + VAULT_SEAL_OVERHEAD], out[1];
    for (size_t i = 0; i < n; i++) {
        vault_place from = {uid_a, places[i].table, places[i].column, places[i].row,
                            places[i].revision};
        vault_seal(key, &from, "x", 1, sealed);
        for (size_t j = 0; j < n; j++) {
            vault_place to = {uid_a, places[j].table, places[j].column, places[j].row,
                              places[j].revision};
            assert_int_equal(vault_unseal(key, &to, sealed, sizeof sealed, out) == VAULT_GENUINE,
                             i == j);
        }
    }
    vault_key_free(key);
}

#define PART  100
#define PARTS 4
static void test_streams(void **state)
{
    (void)state;
    vault_key *key = vault_key_create();
    vault_place place = {uid_a, "blob", "chunks", 5, 1}, elsewhere = place;
    elsewhere.row = 6;
    unsigned char header[VAULT_STREAM_HEADER_BYTES], sealed[PARTS][PART + VAULT_STREAM_OVERHEAD];
    unsigned char part[PART], out[PART];
    memset(part, 'p', sizeof part);
    vault_stream *s = vault_stream_seal_start(key, &place, header);
    for (int i = 0; i < PARTS; i++)
        vault_stream_seal(s, part, sizeof part, i == PARTS - 1, sealed[i]);
    vault_stream_free(s);
    bool last = false;
    s = vault_stream_open_start(key, &place, header);
    for (int i = 0; i < PARTS; i++) {
        assert_true(vault_stream_open(s, sealed[i], sizeof sealed[i], out, &last));
        assert_memory_equal(out, part, PART);
        assert_int_equal(last, i == PARTS - 1);
    }
    vault_stream_free(s);
    /* another place, a part left out, repeated, swapped, changed */
    s = vault_stream_open_start(key, &elsewhere, header);
    assert_false(vault_stream_open(s, sealed[0], sizeof sealed[0], out, &last));
    vault_stream_free(s);
    static const int orders[][2] = {{1, 0}, {0, 2}, {0, 0}, {0, 3}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        s = vault_stream_open_start(key, &place, header);
        bool first = vault_stream_open(s, sealed[orders[i][0]], sizeof sealed[0], out, &last);
        bool second =
            first && vault_stream_open(s, sealed[orders[i][1]], sizeof sealed[0], out, &last);
        assert_false(second);
        vault_stream_free(s);
    }
    sealed[0][50] ^= 1;
    s = vault_stream_open_start(key, &place, header);
    assert_false(vault_stream_open(s, sealed[0], sizeof sealed[0], out, &last));
    vault_stream_free(s);
    vault_key_free(key);
}

static void test_heads(void **state)
{
    (void)state;
    vault_key *key = vault_key_create(), *other = vault_key_create();
    unsigned char tag[3][VAULT_TAG_BYTES] = {"tag one", "tag two", "tag three"};
    vault_head a = {0}, b = {0}, empty = {0};
    vault_head_update(key, &a, "message", 1, 10, 1, tag[0], +1);
    vault_head_update(key, &a, "message", 1, 11, 1, tag[1], +1);
    vault_head_update(key, &b, "message", 1, 11, 1, tag[1], +1);
    assert_false(vault_head_equal(&a, &b));
    vault_head_update(key, &b, "message", 1, 10, 1, tag[0], +1);
    assert_true(vault_head_equal(&a, &b)); /* a set: order is nothing */
    static const struct {
        const char *table;
        int64_t scope, row, revision;
        int tag;
    } others[] = {
        {"messages", 1, 11, 1, 1}, {"message", 2, 11, 1, 1}, {"message", 1, 12, 1, 1},
        {"message", 1, 11, 2, 1},  {"message", 1, 11, 1, 2}, {"message", 11, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        b = (vault_head){0};
        vault_head_update(key, &b, "message", 1, 10, 1, tag[0], +1);
        vault_head_update(key, &b, others[i].table, others[i].scope, others[i].row,
                          others[i].revision, tag[others[i].tag], +1);
        assert_false(vault_head_equal(&a, &b));
    }
    b = (vault_head){0};
    vault_head_update(other, &b, "message", 1, 10, 1, tag[0], +1);
    vault_head_update(other, &b, "message", 1, 11, 1, tag[1], +1);
    assert_false(vault_head_equal(&a, &b));
    vault_head_update(key, &a, "message", 1, 10, 1, tag[0], -1);
    vault_head_update(key, &a, "message", 1, 11, 1, tag[1], -1);
    assert_true(vault_head_equal(&a, &empty));
    vault_key_free(key);
    vault_key_free(other);
}

static void test_secrets(void **state)
{
    (void)state;
    secret *s = secret_new(4);
    assert_true(secret_append(s, "abc", 3));
    assert_false(secret_append(s, "de", 2));
    assert_int_equal(s->len, 3);
    assert_string_equal(s->data, "abc");
    secret_truncate(s, 1);
    assert_string_equal(s->data, "a");
    assert_int_equal(s->data[2], 0); /* wiped, not only cut off */
    secret *t = text("a"), *u = text("b");
    assert_true(secret_equal(s, t));
    assert_false(secret_equal(t, u));
    secret_free(s);
    secret_free(t);
    secret_free(u);
    secret_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passphrase),       cmocka_unit_test(test_composed_and_decomposed),
        cmocka_unit_test(test_passphrase_rules), cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_forged_record),    cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_sealing),          cmocka_unit_test(test_places_are_told_apart),
        cmocka_unit_test(test_streams),          cmocka_unit_test(test_heads),
        cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
