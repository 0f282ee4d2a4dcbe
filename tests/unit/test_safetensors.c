/* safetensors: the header against the bytes that are there, and writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "models/safetensors.h"
#include "support/cpu_time.h"

#include <stdio.h>

static void put_length(buf *b, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        buf_putc(b, (char)(value >> (8 * i)));
}

/* Parses an exact copy, so that the address sanitizer sees every read past the end. */
static pf_status parse(const buf *bytes, pf_err *err)
{
    safetensors st = {0};
    char *copy = xmalloc(bytes->len);
    memcpy(copy, buf_str(bytes), bytes->len);
    pf_status status = safetensors_parse(copy, bytes->len, "case", &st, err);
    safetensors_free(&st);
    free(copy);
    return status;
}

static buf file_with(const char *header, size_t header_len, size_t data)
{
    buf b = {0};
    put_length(&b, header_len);
    buf_append(&b, header, header_len);
    for (size_t i = 0; i < data; i++)
        buf_putc(&b, 0);
    return b;
}

static void expect_refused(const char *header, size_t header_len, size_t data, const char *words)
{
    pf_err err = {0};
    buf b = file_with(header, header_len, data);
    if (parse(&b, &err) != PF_REFUSED) fail_msg("not refused: %.200s", header);
    if (!strstr(err.text, words)) fail_msg("no \"%s\" in: %s", words, err.text);
    buf_free(&b);
}

static void test_header_length(void **state)
{
    (void)state;
    enum { SIZE = 100 };
    static const struct {
        uint64_t length;
        const char *words;
    } cases[] = {
        {0, "100"},
        {1, "100"},
        {(uint64_t)1 << 63, "100000000"},
        {UINT64_MAX, "100000000"},
        {UINT64_MAX - 7, "100000000"},
        {SIZE - 7, "shorter than it claims"},
        {100000001, "100000000"},
        {100000000, "shorter than it claims"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pf_err err = {0};
        buf b = {0};
        put_length(&b, cases[i].length);
        while (b.len < SIZE)
            buf_putc(&b, ' ');
        assert_int_equal(parse(&b, &err), PF_REFUSED);
        if (!strstr(err.text, cases[i].words)) fail_msg("no %s in: %s", cases[i].words, err.text);
        buf_free(&b);
    }
    for (size_t len = 0; len < 8; len++) {
        pf_err err = {0};
        buf b = {0};
        while (b.len < len)
            buf_putc(&b, 1);
        assert_int_equal(parse(&b, &err), PF_REFUSED);
        assert_non_null(strstr(err.text, "at least 8"));
        buf_free(&b);
    }
}

static void test_tensor_entries(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        size_t data;
        const char *words;
    } cases[] = {
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]", 8, "end before they begin"},
        {"\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]", 8, "needs 12 bytes"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", 4, "only 4 bytes"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8]", 8, "two numbers"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,16]", 16, "two numbers"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]", 8, "not negative"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]", 8, "whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]", 8, "whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]", 8,
         "too large"},
        {"\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]", 8, "F33"},
        {"\"shape\":[2],\"data_offsets\":[0,8]", 8, "dtype"},
        {"\"dtype\":\"F32\",\"data_offsets\":[0,8]", 8, "shape"},
        {"\"dtype\":\"F32\",\"shape\":[2]", 8, "data_offsets"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[\"0\",\"8\"]", 8, "whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", 9, "follow the last tensor"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]", 12, "hole"},
        {"\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]", 8, "dimensions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *header = xasprintf("{\"odd.name\":{%s}}", cases[i].entry);
        expect_refused(header, strlen(header), cases[i].data, cases[i].words);
        expect_refused(header, strlen(header), cases[i].data, "odd.name");
        free(header);
    }
}

/* An empty tensor beside a normal one, and between two. */
static void test_empty_tensors(void **state)
{
    (void)state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"f\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[8,8]},"
        "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}   ";
    safetensors st;
    pf_err err;
    buf b = file_with(header, sizeof header - 1, 10);
    assert_int_equal(safetensors_parse(b.data, b.len, "case", &st, &err), PF_OK);
    assert_int_equal(st.n, 4);
    assert_int_equal(safetensors_find(&st, "e")->bytes, 0);
    assert_int_equal(safetensors_find(&st, "s")->n_dims, 0);
    assert_int_equal(safetensors_find(&st, "s")->bytes, 2);
    assert_null(safetensors_find(&st, "t"));
    safetensors_free(&st);
    buf_free(&b);
}

static void test_json(void **state)
{
    (void)state;
#define A(name) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
    static const char twice[] = "{" A("a") "," A("a") "}";
    static const char overlap[] = "{" A("a") "," A("b") "}";
    static const char trailing[] = "{" A("a") "}\0\0\0";
    static const char not_utf8[] = "{" A("a\xff") "}";
    static const char metadata[] = "{\"__metadata__\":{\"x\":1}," A("a") "}";
    static const char metadata_array[] = "{\"__metadata__\":[]," A("a") "}";
    expect_refused(twice, sizeof twice - 1, 8, "duplicate");
    expect_refused(overlap, sizeof overlap - 1, 8, "overlaps");
    expect_refused(trailing, sizeof trailing - 1, 8, "not valid JSON");
    expect_refused(not_utf8, sizeof not_utf8 - 1, 8, "0xff");
    expect_refused(metadata, sizeof metadata - 1, 8, "__metadata__");
    expect_refused(metadata_array, sizeof metadata_array - 1, 8, "__metadata__");
    expect_refused("[1]", 3, 0, "not a JSON object");
    expect_refused("{\"a\":3}", 7, 0, "not an object");

    enum { DEPTH = 200000 };
    buf deep = {0};
    buf_puts(&deep, "{\"a\":");
    for (int i = 0; i < DEPTH; i++)
        buf_putc(&deep, '[');
    expect_refused(deep.data, deep.len, 0, "depth");
    buf_free(&deep);
}

/* A hundred thousand tensors take linear time. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum { N = 100000 };
    buf header = {0};
    pf_err err;
    for (int i = 0; i < N; i++)
        buf_printf(&header, "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                   i ? "," : "{", i);
    buf_putc(&header, '}');
    buf b = file_with(header.data, header.len, 0);
    int64_t start = cpu_time_ns();
    if (parse(&b, &err) != PF_OK) fail_msg("%s", err.text);
    assert_true(cpu_time_ns() - start < 20 * (int64_t)1000000000); /* 2 s without sanitizer */
    buf_free(&b);
    buf_free(&header);
}

static void test_write(void **state)
{
    (void)state;
    const float a[6] = {1, 2, 3, 4, 5, 6};
    const uint16_t c[3] = {0x3f80, 0x4000, 0};
    const safetensors_item items[] = {
        {.name = "z.a", .type = KN_F32, .n_dims = 2, .dims = {2, 3}, .data = a},
        {.name = "b", .type = KN_BF16, .n_dims = 1, .dims = {3}, .data = c},
    };
    json_t *metadata = json_pack("{s:s,s:s}", "format", "x", "\xc3\xa9", "\"quoted\"\n");
    buf first = {0}, second = {0};
    safetensors st;
    pf_err err;
    safetensors_write(items, 2, metadata, &first);
    safetensors_write(items, 2, metadata, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    if (safetensors_parse(first.data, first.len, "written", &st, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_int_equal(st.n, 2);
    const safetensors_tensor *t = safetensors_find(&st, "z.a");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_memory_equal(t->data, a, sizeof a);
    assert_int_equal(((size_t)(t->data - (const unsigned char *)first.data)) % 8, 0);
    assert_memory_equal(safetensors_find(&st, "b")->data, c, sizeof c);
    assert_string_equal(safetensors_metadata(&st, "format"), "x");
    assert_string_equal(safetensors_metadata(&st, "\xc3\xa9"), "\"quoted\"\n");
    assert_null(safetensors_metadata(&st, "absent"));
    safetensors_free(&st);
    json_decref(metadata);
    buf_free(&first);
    buf_free(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_length), cmocka_unit_test(test_tensor_entries),
        cmocka_unit_test(test_empty_tensors), cmocka_unit_test(test_json),
        cmocka_unit_test(test_many_tensors),  cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
