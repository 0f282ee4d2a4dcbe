/* Profiles: names, settings, versions, copies, blobs, checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "profiles/profile.h"
#include "profiles/profile_settings.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "support/store_fixture.h"

#include <sodium.h>

static store_fixture f;
static session *mira;

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    mira = fixture_user(&f, "mira", "correct horse");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    session_unref(mira);
    fixture_close(&f);
    return 0;
}

static int64_t create(const char *name)
{
    int64_t id = 0;
    assert_ok(&f, profile_create(mira, name, NULL, &id, &f.err));
    return id;
}

static void test_names(void **state)
{
    (void)state;
    int64_t id = create("letters"), other = create("A|B"), third = create("|B");
    profile_info info;
    assert_true(id != other && other != third);
    assert_status(&f, profile_create(mira, "Letters", NULL, NULL, &f.err), PF_USAGE);
    assert_status(&f, profile_create(mira, "none", NULL, NULL, &f.err), PF_USAGE);
    assert_status(&f, profile_create(mira, "x/y", NULL, NULL, &f.err), PF_USAGE);
    assert_status(&f, profile_rename(mira, other, "LETTERS", &f.err), PF_USAGE);
    assert_ok(&f, profile_rename(mira, id, "LETTERS", &f.err)); /* its own name in capitals */
    assert_ok(&f, profile_find(mira, "letters", &info, &f.err));
    assert_string_equal(info.name, "LETTERS");
    assert_int_equal(info.id, id);
    assert_false(info.has_adapter);
    profile_info_free(&info);
    assert_status(&f, profile_find(mira, "letter", &info, &f.err), PF_NOT_FOUND);
    profile_info_free(&info);
    profile_list list;
    assert_ok(&f, profile_list_load(mira, &list, &f.err));
    assert_int_equal(list.n, 3);
    profile_list_free(&list);
    /* a name that is another user's number is just a name */
    session *jonas = fixture_user(&f, "jonas", "battery staple");
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)session_user_id(jonas));
    int64_t digits = create(number);
    assert_ok(&f, profile_list_load(jonas, &list, &f.err));
    assert_int_equal(list.n, 0);
    profile_list_free(&list);
    session_unref(jonas);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    assert_ok(&f, profile_remove(mira, other, &f.err));
    assert_ok(&f, profile_remove(mira, third, &f.err));
    assert_ok(&f, profile_remove(mira, digits, &f.err));
    assert_status(&f, profile_remove(mira, id, &f.err), PF_NOT_FOUND);
}

static void check_adapter(int64_t id, int64_t number, const buf *wanted)
{
    buf out = {0};
    buf_puts(&out, "before");
    assert_ok(&f, profile_read_adapter(mira, id, number, &out, &f.err));
    assert_int_equal(out.len, wanted->len + 6);
    assert_memory_equal(out.data, "before", 6);
    assert_memory_equal(out.data + 6, wanted->data, wanted->len);
    wipe_buf(&out);
}

static void test_versions(void **state)
{
    (void)state;
    buf blobs[3] = {{0}};
    int64_t id = create("versions"), number = 0;
    profile_info info;
    profile_version_list versions;
    for (unsigned i = 0; i < 3; i++) {
        const profile_version_record record = {.base_name = "tiny",
                                               .training = i ? "{\"steps\":10}" : NULL,
                                               .provenance = "{\"conversations\":[1,2]}"};
        fixture_adapter(i, &blobs[i]);
        assert_ok(&f, profile_add_version(mira, id, blobs[i].data, blobs[i].len, &record, &number,
                                          &f.err));
        assert_int_equal(number, i + 1);
    }
    assert_ok(&f, profile_get(mira, id, &info, &f.err));
    assert_true(info.has_adapter);
    assert_int_equal(info.n_versions, 3);
    assert_int_equal(info.current.number, 3);
    assert_string_equal(info.current.kind, "lorap");
    assert_int_equal(info.current.max_rank, 2);
    assert_int_equal(info.current.bytes, blobs[2].len);
    assert_string_equal(info.current.base_name, "tiny");
    assert_string_equal(info.current.training, "{\"steps\":10}");
    unsigned char digest[32];
    crypto_generichash(digest, 32, (unsigned char *)blobs[2].data, blobs[2].len, NULL, 0);
    assert_memory_equal(info.current.digest, digest, 32);
    profile_info_free(&info);
    for (int i = 0; i < 3; i++)
        check_adapter(id, i + 1, &blobs[i]);
    check_adapter(id, 0, &blobs[2]);
    assert_ok(&f, profile_use_version(mira, id, 2, &f.err));
    check_adapter(id, 0, &blobs[1]);
    assert_status(&f, profile_use_version(mira, id, 4, &f.err), PF_NOT_FOUND);
    assert_status(&f, profile_remove_version(mira, id, 2, &f.err), PF_USAGE);
    assert_ok(&f, profile_remove_version(mira, id, 3, &f.err));
    assert_status(&f, profile_remove_version(mira, id, 3, &f.err), PF_NOT_FOUND);
    assert_ok(&f, profile_versions_load(mira, id, &versions, &f.err));
    assert_int_equal(versions.n, 2);
    assert_int_equal(versions.items[1].number, 2);
    profile_version_list_free(&versions);
    /* numbers are not used again */
    assert_ok(&f,
              profile_add_version(mira, id, blobs[2].data, blobs[2].len, NULL, &number, &f.err));
    assert_int_equal(number, 4);
    assert_ok(&f, profile_use_version(mira, id, 0, &f.err));
    buf out = {0};
    assert_status(&f, profile_read_adapter(mira, id, 0, &out, &f.err), PF_NOT_FOUND);
    check_adapter(id, 4, &blobs[2]);
    /* the copy has the version in use only */
    assert_ok(&f, profile_use_version(mira, id, 1, &f.err));
    int64_t copy = 0;
    assert_status(&f, profile_copy(mira, id, "versions", &copy, &f.err), PF_USAGE);
    assert_ok(&f, profile_copy(mira, id, "copy", &copy, &f.err));
    check_adapter(copy, 0, &blobs[0]);
    assert_ok(&f, profile_get(mira, copy, &info, &f.err));
    assert_int_equal(info.n_versions, 1);
    assert_string_equal(info.current.provenance, "{\"conversations\":[1,2]}");
    profile_info_free(&info);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    check_adapter(copy, 0, &blobs[0]);
    assert_ok(&f, profile_remove(mira, copy, &f.err));
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM blob"), 0);
    for (int i = 0; i < 3; i++)
        buf_free(&blobs[i]);
}

static void test_refused_adapters(void **state)
{
    (void)state;
    int64_t id = create("refused"), number = 0;
    buf blob = {0};
    profile_info info;
    fixture_adapter(1, &blob);
    assert_status(&f, profile_add_version(mira, id, "garbage!", 8, NULL, &number, &f.err),
                  PF_REFUSED);
    for (size_t cut = 1; cut < blob.len; cut += 97)
        assert_status(
            &f, profile_add_version(mira, id, blob.data, blob.len - cut, NULL, &number, &f.err),
            PF_REFUSED);
    const profile_version_record bad = {.training = "[1]"};
    assert_status(&f, profile_add_version(mira, id, blob.data, blob.len, &bad, &number, &f.err),
                  PF_REFUSED);
    assert_status(&f, profile_add_version(mira, 99999, blob.data, blob.len, NULL, &number, &f.err),
                  PF_NOT_FOUND);
    assert_ok(&f, profile_get(mira, id, &info, &f.err));
    assert_int_equal(info.n_versions, 0);
    profile_info_free(&info);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    buf_free(&blob);
}

/* A profile that comes with a version is there with it or not at all: one transaction. */
static void test_made_with_a_version(void **state)
{
    (void)state;
    buf blob = {0};
    profile_info info;
    int64_t id = 0;
    int commits = 0, failed = 0;
    fixture_adapter(1, &blob);
    assert_status(&f, profile_create_with(mira, "made", "garbage!", 8, NULL, &id, &f.err),
                  PF_REFUSED);
    assert_status(&f, profile_create_with(mira, "x/y", blob.data, blob.len, NULL, &id, &f.err),
                  PF_USAGE);
    fixture_count_commits(&f, &commits);
    for (int step = 1;; step += 1 + step / 16) {
        fixture_fail_step(&f, step);
        pf_status status =
            profile_create_with(mira, "made", blob.data, blob.len, NULL, &id, &f.err);
        fixture_fail_step(&f, 0);
        if (status == PF_OK) break;
        failed++;
        assert_int_equal(id, 0);
        assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM profile"), 0);
    }
    fixture_count_commits(&f, NULL);
    assert_true(failed > 20);
    assert_int_equal(commits, 1);
    assert_ok(&f, profile_find(mira, "made", &info, &f.err));
    assert_int_equal(info.id, id);
    assert_int_equal(info.current.number, 1);
    profile_info_free(&info);
    assert_status(&f, profile_create_with(mira, "Made", blob.data, blob.len, NULL, &id, &f.err),
                  PF_USAGE);
    check_adapter(id, 1, &blob);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    buf_free(&blob);
}

static void test_source(void **state)
{
    (void)state;
    int64_t id = create("source");
    buf blob = {0}, newer = {0}, out = {0};
    unsigned char digest[32];
    void *ctx = NULL;
    fixture_adapter(1, &blob);
    fixture_adapter(2, &newer);
    assert_status(&f, profile_source_open(mira, id, 0, &ctx, digest, &f.err), PF_NOT_FOUND);
    assert_ok(&f, profile_add_version(mira, id, blob.data, blob.len, NULL, NULL, &f.err));
    assert_ok(&f, profile_source_open(mira, id, 0, &ctx, digest, &f.err));
    /* a source stays with its version when a newer one comes */
    assert_ok(&f, profile_add_version(mira, id, newer.data, newer.len, NULL, NULL, &f.err));
    assert_ok(&f, profile_source_fetch(ctx, &out, &f.err));
    assert_int_equal(out.len, blob.len);
    assert_memory_equal(out.data, blob.data, blob.len);
    wipe_buf(&out);
    /* and tells when that is gone */
    assert_ok(&f, profile_remove(mira, id, &f.err));
    assert_status(&f, profile_source_fetch(ctx, &out, &f.err), PF_DAMAGED);
    assert_int_equal(out.len, 0);
    profile_source_release(ctx);
    buf_free(&blob);
    buf_free(&newer);
}

/* More than one chunk, and a length that is an exact number of chunks. */
static void test_checkpoints(void **state)
{
    (void)state;
    int64_t id = create("training");
    const size_t sizes[] = {0, 1, VAULT_STREAM_CHUNK, 3 * VAULT_STREAM_CHUNK + 5, 10};
    checkpoint_list list;
    unsigned char *data = xmalloc(sizes[3]);
    randombytes_buf(data, sizes[3]);
    for (int i = 0; i < 5; i++) {
        assert_ok(&f, checkpoint_save(mira, id, i * 10, "{\"loss\":1}", data, sizes[i], 4, &f.err));
        assert_ok(&f, checkpoint_list_load(mira, id, &list, &f.err));
        assert_int_equal(list.n, i < 4 ? i + 1 : 4);
        for (size_t j = 0; j < list.n; j++) {
            buf out = {0};
            assert_ok(&f, checkpoint_read(mira, id, list.items[j].id, &out, &f.err));
            assert_int_equal(out.len, list.items[j].bytes);
            assert_int_equal(out.len, sizes[list.items[j].step / 10]);
            if (out.len) assert_memory_equal(out.data, data, out.len);
            wipe_buf(&out);
        }
        checkpoint_list_free(&list);
    }
    buf out = {0};
    assert_status(&f, checkpoint_read(mira, id, 12345, &out, &f.err), PF_NOT_FOUND);
    assert_ok(&f, checkpoint_remove_all(mira, id, &f.err));
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM chunk"), 0);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    free(data);
}

static void test_input_history_goes_with_it(void **state)
{
    (void)state;
    int64_t id = create("typed");
    assert_ok(&f, input_history_add(mira, id, "what I typed", &f.err));
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM setting"), 1);
    assert_ok(&f, profile_remove(mira, id, &f.err));
    assert_int_equal(fixture_sql_number(&f, "SELECT count(*) FROM setting"), 0);
}

static void test_settings(void **state)
{
    (void)state;
    profile_settings s;
    assert_ok(&f, profile_settings_parse(NULL, &s, &f.err));
    assert_null(s.system);
    assert_true(s.temperature < 0 && s.top_k < 0 && s.seed < 0);
    assert_ok(&f, profile_settings_set(&s, "system", "Be \"kind\"", &f.err));
    assert_ok(&f, profile_settings_set(&s, "temperature", "0.7", &f.err));
    assert_ok(&f, profile_settings_set(&s, "seed", "123456789012345", &f.err));
    assert_ok(&f, profile_settings_set(&s, "positions", "turns", &f.err));
    char *json = profile_settings_write(&s);
    assert_string_equal(json, "{\"system\":\"Be \\\"kind\\\"\",\"positions\":\"turns\","
                              "\"temperature\":0.7,\"seed\":123456789012345}");
    profile_settings again;
    assert_ok(&f, profile_settings_parse(json, &again, &f.err));
    assert_string_equal(again.system, s.system);
    assert_true(again.seed == 123456789012345);
    free(json);
    profile_settings_free(&again);
    assert_ok(&f, profile_settings_set(&s, "seed", "", &f.err));
    assert_ok(&f, profile_settings_set(&s, "positions", NULL, &f.err));
    assert_ok(&f, profile_settings_set(&s, "system", "", &f.err));
    json = profile_settings_write(&s);
    assert_string_equal(json, "{\"system\":\"\",\"temperature\":0.7}");
    free(json);
    static const struct {
        const char *key, *value;
    } bad[] = {{"temperature", "warm"}, {"temperature", "-1"},     {"temperature", "nan"},
               {"top_p", "1.1"},        {"top_k", "2.5"},          {"max_tokens", "0"},
               {"positions", "some"},   {"nothing", "1"},          {"seed", "1e300"},
               {"temperature", "0.5x"}, {"repeat_penalty", "inf"}, {"system", "not \xff UTF-8"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_status(&f, profile_settings_set(&s, bad[i].key, bad[i].value, &f.err), PF_USAGE);
    profile_settings_free(&s);
    static const char *const texts[] = {"[]", "{\"temperature\":\"1\"}", "{\"x\":1}",
                                        "{",  "{\"system\":1}",          "{\"top_k\":1.5}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_status(&f, profile_settings_parse(texts[i], &s, &f.err), PF_REFUSED);
    assert_status(&f, profile_create(mira, "bad", "[1]", NULL, &f.err), PF_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refused_adapters),
        cmocka_unit_test(test_made_with_a_version),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_input_history_goes_with_it),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
