/* Adapter blobs: writing gives the same bytes for the same content, reading checks all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "models/adapter_blob.h"
#include "models/safetensors.h"

#include <math.h>
#include <stdio.h>

static const model_config config = {.arch = ARCH_LLAMA,
                                    .n_layers = 4,
                                    .hidden = 8,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = 4,
                                    .ff = 12,
                                    .vocab = 10};

static float numbers[512];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < 512; i++)
        numbers[i] = (float)i * 0.25f - 7;
    return 0;
}

/* Two maps in an order that is not the canonical one. */
static adapter_item lora_items[2] = {
    {.layer = 2, .map = MAP_DOWN, .rank = 3, .scale = 0.1f, .a = numbers, .b = numbers + 40},
    {.layer = 0, .map = MAP_K, .rank = 2, .scale = 1.0f / 3, .a = numbers + 90, .b = numbers + 5},
};
static adapter_item direft_items[1] = {
    {.layer = 3, .rank = 2, .scale = 1, .a = numbers, .b = numbers + 16, .bias = numbers + 32},
};

static adapter_view lora_view(void)
{
    return (adapter_view){.prefill_only = true, .type = KN_F32, .items = lora_items, .n_items = 2};
}

static void write_or_fail(const adapter_view *v, const char *name, const char *text, buf *out)
{
    pf_err err;
    if (adapter_blob_write(v, &config, name, text, out, &err) != PF_OK) fail_msg("%s", err.text);
}

static void test_lora_round_trip(void **state)
{
    (void)state;
    pf_err err;
    adapter_view in = lora_view(), out;
    buf first = {0}, second = {0}, third = {0};
    in.has_base_digest = true;
    memset(in.base_digest, 0xa5, 32);
    write_or_fail(&in, "base \"x\"", "{\"r\":3}", &first);
    if (adapter_view_open(first.data, first.len, &config, &out, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_false(out.direft);
    assert_true(out.prefill_only);
    assert_int_equal(out.type, KN_F32);
    assert_int_equal(out.n_items, 2);
    assert_true(out.has_base_digest);
    assert_memory_equal(out.base_digest, in.base_digest, 32);
    assert_int_equal(out.items[0].layer, 0); /* sorted */
    assert_int_equal(out.items[0].map, MAP_K);
    assert_int_equal(out.items[1].layer, 2);
    assert_int_equal(out.items[1].rank, 3);
    assert_true(out.items[0].scale == 1.0f / 3); /* exactly */
    assert_true(out.items[1].scale == 0.1f);
    assert_memory_equal(out.items[1].a, numbers, 3 * 12 * sizeof(float));
    assert_memory_equal(out.items[1].b, numbers + 40, 8 * 3 * sizeof(float));
    assert_memory_equal(out.items[0].b, numbers + 5, 4 * 2 * sizeof(float));

    write_or_fail(&out, "base \"x\"", "{\"r\":3}", &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    write_or_fail(&out, "base \"y\"", "{\"r\":3}", &third);
    adapter_view other;
    assert_int_equal(adapter_view_open(third.data, third.len, &config, &other, &err), PF_OK);
    assert_memory_not_equal(out.digest, other.digest, 32);
    adapter_view_close(&other);
    adapter_view_close(&out);
    buf_free(&first);
    buf_free(&second);
    buf_free(&third);
}

static void test_direft_round_trip(void **state)
{
    (void)state;
    pf_err err;
    adapter_view out, in = {.direft = true, .type = KN_F32, .items = direft_items, .n_items = 1};
    buf blob = {0};
    write_or_fail(&in, NULL, NULL, &blob);
    if (adapter_view_open(blob.data, blob.len, &config, &out, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_true(out.direft);
    assert_false(out.prefill_only);
    assert_false(out.has_base_digest);
    assert_int_equal(out.items[0].layer, 3);
    assert_memory_equal(out.items[0].b, numbers + 16, 16 * sizeof(float));
    assert_memory_equal(out.items[0].bias, numbers + 32, 2 * sizeof(float));
    assert_true(out.items[0].scale == 1);
    adapter_view_close(&out);
    buf_free(&blob);
    assert_string_equal(adapter_kind_name(true, true), "direftp");
    assert_string_equal(adapter_kind_name(false, true), "lorap");
    assert_string_equal(adapter_kind_name(true, false), "direft");
    assert_string_equal(adapter_kind_name(false, false), "lora");
}

/* --- refusals --------------------------------------------------------------------------------- */

static void expect_blob_refused(const buf *blob, const model_config *c, const char *words)
{
    adapter_view v;
    pf_err err = {0};
    if (adapter_view_open(blob->data, blob->len, c, &v, &err) != PF_REFUSED)
        fail_msg("not refused (%s)", words);
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
}

/* A blob of one LoRA pair with free names, shapes and metadata. */
typedef struct {
    const char *a_name, *b_name, *kind, *position, *format, *scales, *digest;
    int64_t a[2], b[2];
} raw_blob;

static const raw_blob good = {.a_name = "1.q_proj.A",
                              .b_name = "1.q_proj.B",
                              .kind = "lora",
                              .position = "all",
                              .format = "preft-adapter-1",
                              .scales = "{\"1.q_proj\":2.0}",
                              .a = {2, 8},
                              .b = {8, 2}};

static buf write_raw(const raw_blob *r)
{
    buf out = {0};
    json_t *m = json_object();
    const char *const pairs[][2] = {{"format", r->format},
                                    {"kind", r->kind},
                                    {"position", r->position},
                                    {"scales", r->scales},
                                    {"base_digest", r->digest}};
    for (size_t i = 0; i < 5; i++)
        if (pairs[i][1]) json_object_set_new(m, pairs[i][0], json_string(pairs[i][1]));
    const safetensors_item items[2] = {
        {.name = r->a_name,
         .type = KN_F32,
         .n_dims = 2,
         .dims = {r->a[0], r->a[1]},
         .data = numbers},
        {.name = r->b_name,
         .type = KN_F32,
         .n_dims = 2,
         .dims = {r->b[0], r->b[1]},
         .data = numbers},
    };
    safetensors_write(items, r->b_name ? 2 : 1, m, &out);
    json_decref(m);
    return out;
}

static void expect_raw_refused(raw_blob r, const char *words)
{
    buf blob = write_raw(&r);
    expect_blob_refused(&blob, &config, words);
    buf_free(&blob);
}

static void test_refusals(void **state)
{
    (void)state;
    adapter_view v;
    pf_err err;
    buf blob = write_raw(&good);
    assert_int_equal(adapter_view_open(blob.data, blob.len, &config, &v, &err), PF_OK);
    assert_true(v.items[0].scale == 2);
    adapter_view_close(&v);
    buf_free(&blob);

#define WITH(words, ...)                                                                           \
    do {                                                                                           \
        raw_blob r = good;                                                                         \
        __VA_ARGS__;                                                                               \
        expect_raw_refused(r, words);                                                              \
    } while (0)
    WITH("format", r.format = "preft-adapter-2");
    WITH("format", r.format = NULL);
    WITH("kind", r.kind = "dora");
    WITH("position", r.position = "some");
    WITH("base_digest", r.digest = "abc");
    WITH("scales", r.scales = NULL);
    WITH("scales", r.scales = "{}");
    WITH("scales", r.scales = "{\"0.q_proj\":1.0}");
    WITH("1.q_proj", r.scales = "{\"1.q_proj\":\"2\"}");
    WITH("not valid JSON", r.scales = "{");
    WITH("unknown tensor", r.a_name = "1.x_proj.A");
    WITH("unknown tensor", r.a_name = "01.q_proj.A");
    WITH("unknown tensor", r.a_name = "-1.q_proj.A");
    WITH("unknown tensor", r.a_name = "99999999999.q_proj.A");
    WITH("unknown tensor", r.a_name = "1.q_proj.W");
    WITH("unknown tensor", r.a_name = "1.A");
    WITH("layer 4 of a model with 4", r.a_name = "4.q_proj.A");
    WITH("missing tensor \"1.q_proj.B\"", r.b_name = NULL);
    WITH("missing tensor \"1.q_proj.B\"", r.b_name = "2.q_proj.B");
    WITH("shape", (r.a[0] = 2, r.a[1] = 9));
    WITH("shape", (r.b[0] = 9));
    WITH("ranks 2 and 3", (r.b[1] = 3));
    WITH("rank 0", (r.a[0] = 0));
}

static void test_values_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        adapter_view v = lora_view();
        buf blob = {0};
        float kept = numbers[3];
        numbers[3] = bad[i];
        write_or_fail(&v, NULL, NULL, &blob);
        numbers[3] = kept;
        expect_blob_refused(&blob, &config, "not finite");
        buf_free(&blob);
    }
    adapter_view v = lora_view();
    buf blob = {0};
    pf_err err;
    lora_items[0].scale = NAN;
    assert_int_equal(adapter_blob_write(&v, &config, NULL, NULL, &blob, &err), PF_REFUSED);
    lora_items[0].scale = 0.1f;
    lora_items[0].rank = ADAPTER_MAX_RANK + 1;
    assert_int_equal(adapter_blob_write(&v, &config, NULL, NULL, &blob, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "512"));
    lora_items[0].rank = 3;
    v.n_items = 0;
    assert_int_equal(adapter_blob_write(&v, &config, NULL, NULL, &blob, &err), PF_REFUSED);
    assert_int_equal(blob.len, 0);
}

/* Cut anywhere, or with any byte of the header changed: never a crash, and a cut is refused. */
static void test_damage(void **state)
{
    (void)state;
    adapter_view v = lora_view(), out;
    pf_err err;
    buf blob = {0};
    write_or_fail(&v, "base", NULL, &blob);
    for (size_t len = 0; len < blob.len; len++) {
        char *copy = xmalloc(len);
        memcpy(copy, blob.data, len);
        assert_int_equal(adapter_view_open(copy, len, &config, &out, &err), PF_REFUSED);
        free(copy);
    }
    char *copy = xmalloc(blob.len);
    memcpy(copy, blob.data, blob.len);
    uint64_t header;
    memcpy(&header, blob.data, 8);
    for (size_t i = 0; i < 8 + header; i++) {
        for (int bit = 0; bit < 8; bit++) {
            copy[i] = (char)(blob.data[i] ^ (1 << bit));
            if (adapter_view_open(copy, blob.len, &config, &out, &err) == PF_OK)
                adapter_view_close(&out);
        }
        copy[i] = blob.data[i];
    }
    free(copy);
    buf_free(&blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora_round_trip), cmocka_unit_test(test_direft_round_trip),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
