/* What backends keep of a failure, and what they forget. */
#include "kernels/backend.h"
#include "support/memory.h"
#include "support/sanitizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static kn_backend *open_backend(const char *isa)
{
    char message[256];
    const kn_options options = {.device = "cpu", .isa = isa, .threads = 2};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be) fail_msg("%s", message);
    return be;
}

/* More than there is; the message names the bytes. */
static void fail_to_allocate(kn_backend *be, size_t bytes)
{
    char number[32];
    assert_null(be->ops->buffer_alloc(be, bytes));
    snprintf(number, sizeof number, " %zu ", bytes);
    assert_non_null(strstr(kn_backend_error(be), number));
}

static void *fail_beside(void *be)
{
    fail_to_allocate(be, SIZE_MAX - 20);
    return NULL;
}

/* Adapters are packed by the loader, by whoever adds one and by the engine, side by side. */
static void each_thread_has_its_own_failure(void **state)
{
    (void)state;
    pthread_t beside;
    char before[160];
    kn_backend *be = open_backend("ref");
    assert_string_equal(kn_backend_error(be), "");
    fail_to_allocate(be, SIZE_MAX - 10);
    snprintf(before, sizeof before, "%s", kn_backend_error(be));
    assert_int_equal(pthread_create(&beside, NULL, fail_beside, be), 0);
    pthread_join(beside, NULL);
    assert_string_equal(kn_backend_error(be), before);
    be->ops->close(be);
}

#define COLS 32

/* One row through a matrix of Q8_0, all its codes zero. x / scale are whole numbers: the row's
 * codes. */
static void multiply(kn_backend *be, const int8_t codes[COLS])
{
    static const uint8_t zeros[COLS * 34];
    const kn_matrix m = {.data = zeros, .type = KN_Q8_0, .rows = COLS, .cols = COLS};
    float row[COLS];
    for (int i = 0; i < COLS; i++)
        row[i] = (float)codes[i];
    float *x = be->ops->buffer_alloc(be, sizeof row), *y = be->ops->buffer_alloc(be, sizeof row);
    kn_weight *w = be->ops->weight_create(be, &m);
    assert_true(x && y && w);
    const kn_linear out = {.w = w, .y = y, .ld_y = COLS};
    be->ops->upload(be, x, row, sizeof row);
    be->ops->linear(be, x, 1, &out, 1);
    if (MEMORY_IS_SEARCHABLE) assert_true(memory_count(row, sizeof row) > 0);
    be->ops->weight_free(be, w);
    be->ops->buffer_free(be, x);
    be->ops->buffer_free(be, y);
    if (MEMORY_IS_SEARCHABLE) assert_int_equal(memory_count(row, sizeof row), 0);
}

static void what_was_multiplied_is_forgotten(void **state)
{
    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip();
    char isas[64], *rest = isas;
    snprintf(isas, sizeof isas, "%s", kn_isa_list());
    for (const char *isa; (isa = strtok_r(rest, " ", &rest));) {
        int8_t codes[COLS];
        for (int i = 0; i < COLS; i++)
            codes[i] = (int8_t)(127 - (i * 37 + isa[0]) % 101);
        codes[0] = 127;
        kn_backend *be = open_backend(isa);
        multiply(be, codes);
        /* half a block: what lies side by side in every form that the sets have */
        bool kept = memory_count(codes, sizeof codes / 2) > 0;
        if (strcmp(isa, "ref") != 0) assert_true(kept);
        be->ops->forget(be);
        assert_int_equal(memory_count(codes, sizeof codes / 2), 0);
        be->ops->close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_has_its_own_failure),
        cmocka_unit_test(what_was_multiplied_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
