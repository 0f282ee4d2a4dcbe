/* Storage types: dequantization against golden data, 16-bit floats. */
#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static kn_type type_named(const char *name)
{
    for (int t = 0; t < KN_TYPE_COUNT; t++)
        if (strcmp(kn_type_get((kn_type)t)->name, name) == 0) return (kn_type)t;
    fail_msg("no type %s", name);
    return KN_F32;
}

/* The records of tests/data/kernels/dequantize.bin (see make_dequantize.py beside it). */
static void test_golden(void **state)
{
    (void)state;
    FILE *f = fopen("tests/data/kernels/dequantize.bin", "rb");
    if (!f) fail_msg("tests/data/kernels/dequantize.bin: run from the project's top folder");
    char name[9] = "";
    bool seen[KN_TYPE_COUNT] = {false};
    while (fread(name, 1, 8, f) == 8) {
        uint32_t sizes[2];
        assert_int_equal(fread(sizes, sizeof *sizes, 2, f), 2);
        kn_type type = type_named(name);
        assert_int_equal(kn_row_bytes(type, sizes[0]), sizes[1]);
        void *blocks = malloc(sizes[1]);
        float *expected = malloc(sizes[0] * sizeof *expected);
        float *values = malloc(sizes[0] * sizeof *values);
        assert_true(blocks && expected && values);
        assert_int_equal(fread(blocks, 1, sizes[1], f), sizes[1]);
        assert_int_equal(fread(expected, sizeof *expected, sizes[0], f), sizes[0]);
        kn_dequantize(type, blocks, values, sizes[0]);
        ops_expect_same_bits(values, expected, sizes[0], name);
        seen[type] = true;
        free(blocks);
        free(expected);
        free(values);
    }
    fclose(f);
    for (int t = KN_F16; t < KN_TYPE_COUNT; t++)
        assert_true(seen[t]);
}

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) { /* every half survives the way there and back */
        float f = kn_f16_to_f32((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
        assert_int_equal(isnan(f) != 0, nan);
        if (!nan)
            assert_int_equal(kn_f32_to_f16(f), h);
        else
            assert_int_equal(kn_f32_to_f16(f), h | 0x200);
    }
    assert_true(kn_f16_to_f32(0x3c00) == 1 && kn_f16_to_f32(0xc000) == -2);
    assert_true(kn_f16_to_f32(1) == 0x1p-24f && kn_f16_to_f32(0x7bff) == 65504);
    /* Between neighbours: to the nearest, ties to even. */
    for (uint32_t h = 0; h < 0x7bff; h++) {
        double low = kn_f16_to_f32((uint16_t)h), high = kn_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        assert_int_equal(kn_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(kn_f32_to_f16(-middle), (h & 1 ? h + 1 : h) | 0x8000);
    }
    assert_int_equal(kn_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(kn_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(-INFINITY), 0xfc00);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = kn_bf16_to_f32((uint16_t)h);
        if (!isnan(f))
            assert_int_equal(kn_f32_to_bf16(f), h);
        else
            assert_true(isnan(kn_bf16_to_f32(kn_f32_to_bf16(f))));
    }
    assert_int_equal(kn_f32_to_bf16(1.00390625f), 0x3f80);            /* tie, to even */
    assert_int_equal(kn_f32_to_bf16(1.01171875f), 0x3f82);            /* tie, to even */
    assert_int_equal(kn_f32_to_bf16(1.0039063692092896f), 0x3f81);    /* just above the tie */
    assert_int_equal(kn_f32_to_bf16(3.4028234663852886e38f), 0x7f80); /* rounds to infinity */
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(kn_row_bytes(KN_F32, 7), 28);
    assert_int_equal(kn_row_bytes(KN_Q8_0, 64), 68);
    assert_int_equal(kn_row_bytes(KN_Q4_1, 576), 360);
    assert_int_equal(kn_row_bytes(KN_Q6_K, 512), 420);
    for (int t = 0; t < KN_TYPE_COUNT; t++)
        assert_int_equal(kn_type_get((kn_type)t)->quantized, kn_type_get((kn_type)t)->block > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("types", tests, NULL, NULL);
}
