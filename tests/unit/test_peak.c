/* The measuring loops: all instruction sets read the same bytes, and work grows with the rounds. */
#include "kernels/backend.h"
#include "kernels/cpu/peak_cpu.h"
#include "kernels/peak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 4096 };

static const kn_peak_loops *const loops[] = {
    &kn_peak_ref,
#if defined(__x86_64__)
    &kn_peak_avx2,
    &kn_peak_avx512,
    &kn_peak_amx,
#endif
};
#define N_LOOPS (sizeof loops / sizeof *loops)

static bool usable(const kn_peak_loops *l)
{
    return strstr(kn_isa_list(), l->isa) != NULL;
}

/* The exclusive or of all 64-bit words. */
static uint64_t plain_read(const uint8_t *data)
{
    uint64_t sum = 0, word;
    for (size_t i = 0; i < BYTES; i += sizeof word) {
        memcpy(&word, data + i, sizeof word);
        sum ^= word;
    }
    return sum;
}

static void every_byte_is_read(void **state)
{
    (void)state;
    uint8_t *data = aligned_alloc(64, BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * i * 7 + i / 3);
    for (size_t l = 0; l < N_LOOPS; l++) {
        if (!usable(loops[l])) continue;
        assert_true(loops[l]->read(data, BYTES) == plain_read(data));
        for (size_t i = 0; i < BYTES; i += 37) {
            data[i] ^= 0x5a;
            assert_true(loops[l]->read(data, BYTES) == plain_read(data));
        }
        assert_true(loops[l]->read(data, 0) == 0);
    }
    free(data);
}

static void operations_are_counted(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_LOOPS; l++) {
        if (!usable(loops[l])) continue;
        assert_true(loops[l]->int_ops(1) > 0 && loops[l]->float_ops(1) > 0);
        assert_true(loops[l]->int_ops(30) == 30 * loops[l]->int_ops(1));
        assert_true(loops[l]->float_ops(30) == 30 * loops[l]->float_ops(1));
    }
}

static void peaks_are_measured(void **state)
{
    (void)state;
    char list[64];
    snprintf(list, sizeof list, "%s", kn_isa_list());
    for (char *save = NULL, *isa = strtok_r(list, " ", &save); isa;
         isa = strtok_r(NULL, " ", &save)) {
        kn_peak peak = {0};
        const kn_peak_options o = {.isa = isa, .threads = 2, .seconds = 1e-3, .bytes = 3 << 20};
        assert_true(kn_peak_measure(&o, &peak));
        assert_true(peak.read_bytes > 0 && peak.int_ops > 0 && peak.float_ops > 0);
    }
}

static void an_unknown_set_is_refused(void **state)
{
    (void)state;
    kn_peak peak;
    const kn_peak_options o = {.isa = "avx99", .threads = 1, .seconds = 1e-3, .bytes = 1 << 20};
    assert_false(kn_peak_measure(&o, &peak));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_read),
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(peaks_are_measured),
        cmocka_unit_test(an_unknown_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
