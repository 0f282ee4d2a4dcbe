#include "support/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint32_t ops_random_bits(ops_random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

float ops_random_float(ops_random *r)
{
    return (float)((double)ops_random_bits(r) / 2147483648.0 - 1.0);
}

void ops_random_fill(ops_random *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = ops_random_float(r);
}

static void put_half(uint8_t *p, float value)
{
    uint16_t h = kn_f32_to_f16(value);
    memcpy(p, &h, sizeof h);
}

/* Random bytes are valid codes and small scales; float fields get moderate values. */
static void random_block(ops_random *r, kn_type type, uint8_t *block)
{
    int bytes = kn_type_get(type)->block_bytes;
    for (int i = 0; i < bytes; i++)
        block[i] = (uint8_t)ops_random_bits(r);
    float value = ops_random_float(r);
    uint16_t half;
    switch (type) {
    case KN_F32:
        memcpy(block, &value, sizeof value);
        break;
    case KN_F16:
        put_half(block, value);
        break;
    case KN_BF16:
        half = kn_f32_to_bf16(value);
        memcpy(block, &half, sizeof half);
        break;
    case KN_Q6_K:
        put_half(block + 208, value * 2e-4f);
        break;
    case KN_Q4_K:
    case KN_Q5_K:
        put_half(block, value * 2e-3f);
        put_half(block + 2, ops_random_float(r) * 1e-2f);
        break;
    case KN_Q4_1:
        put_half(block, value * 0.1f);
        put_half(block + 2, ops_random_float(r));
        break;
    default:
        put_half(block, value * (type == KN_Q8_0 ? 0.01f : 0.1f));
        break;
    }
}

void *ops_random_matrix(ops_random *r, kn_type type, int64_t rows, int64_t cols)
{
    const kn_type_info *info = kn_type_get(type);
    size_t bytes = (size_t)rows * kn_row_bytes(type, cols);
    uint8_t *data = malloc(bytes);
    assert_non_null(data);
    for (size_t at = 0; at < bytes; at += (size_t)info->block_bytes)
        random_block(r, type, data + at);
    return data;
}

kn_backend *ops_open(const char *isa, int threads)
{
    char message[200] = "";
    kn_options options = {.device = "cpu", .isa = isa, .threads = threads};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be) fail_msg("%s", message);
    return be;
}

const char *ops_isa(int index)
{
    static char names[8][16];
    const char *list = kn_isa_list();
    for (int i = 0; *list && i < 8; i++) {
        size_t len = strcspn(list, " ");
        snprintf(names[i], sizeof names[i], "%.*s", (int)len, list);
        if (i == index) return names[i];
        list += len + (list[len] == ' ');
    }
    return NULL;
}

int ops_open_group(bool simd, kn_backend *group[OPS_GROUP])
{
    int n = 0;
    for (int isa = 0; ops_isa(isa); isa++)
        for (int threads = 1; threads <= 3; threads += 2)
            if ((strcmp(ops_isa(isa), "ref") != 0) == simd) {
                assert_true(n < OPS_GROUP);
                group[n++] = ops_open(ops_isa(isa), threads);
            }
    return n;
}

void ops_close_group(kn_backend *const *group, int n)
{
    for (int i = 0; i < n; i++)
        group[i]->ops->close(group[i]);
}

float *ops_upload(kn_backend *be, const float *host, size_t n)
{
    float *p = be->ops->buffer_alloc(be, n * sizeof *p);
    assert_non_null(p);
    be->ops->upload(be, p, host, n * sizeof *p);
    return p;
}

void ops_expect_close(const float *a, const double *b, size_t n, double absolute, double relative,
                      const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= absolute + relative * fabs(b[i])))
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, (double)a[i], b[i]);
}

void ops_expect_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: element %zu is %.9g here and %.9g there", what, i, (double)a[i],
                     (double)b[i]);
}
