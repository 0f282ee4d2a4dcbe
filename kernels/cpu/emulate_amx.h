/* AMX tiles under their native names on any machine, for tests (KN_EMULATE_AVX512): eight tiles
 * a thread, products in plain C. What the hardware would refuse (shapes that the configuration
 * doesn't allow, tiles used before it) ends the program here too. */
#ifndef KN_CPU_EMULATE_AMX_H
#define KN_CPU_EMULATE_AMX_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int rows, row_bytes;
    uint8_t bytes[16][64];
} kn_amx_tile;

static _Thread_local struct {
    int palette; /* 0: not configured */
    kn_amx_tile tile[8];
} kn_amx;

static inline void kn_amx_expect(int holds)
{
    if (!holds) abort();
}

static inline kn_amx_tile *kn_amx_get(int i)
{
    kn_amx_expect(kn_amx.palette == 1 && i >= 0 && i < 8 && kn_amx.tile[i].rows > 0);
    return &kn_amx.tile[i];
}

/* The 64 bytes of LDTILECFG: palette, start row, 16-bit bytes of a row at 16, rows at 48. */
static inline void kn_amx_loadconfig(const void *config)
{
    const uint8_t *c = (const uint8_t *)config;
    kn_amx_expect(c[0] == 1 && c[1] == 0);
    for (int i = 2; i < 16; i++)
        kn_amx_expect(c[i] == 0);
    for (int i = 8; i < 16; i++)
        kn_amx_expect(c[16 + 2 * i] == 0 && c[17 + 2 * i] == 0 && c[48 + i] == 0);
    memset(&kn_amx, 0, sizeof kn_amx);
    kn_amx.palette = 1;
    for (int i = 0; i < 8; i++) {
        kn_amx_tile *t = &kn_amx.tile[i];
        t->row_bytes = c[16 + 2 * i] | c[17 + 2 * i] << 8;
        t->rows = c[48 + i];
        kn_amx_expect(t->rows <= 16 && t->row_bytes <= 64 && (t->rows > 0) == (t->row_bytes > 0));
    }
}

static inline void kn_amx_release(void)
{
    memset(&kn_amx, 0, sizeof kn_amx);
}

static inline void kn_amx_zero(int i)
{
    memset(kn_amx_get(i)->bytes, 0, sizeof kn_amx.tile[i].bytes);
}

static inline void kn_amx_loadd(int i, const void *from, size_t stride)
{
    kn_amx_tile *t = kn_amx_get(i);
    memset(t->bytes, 0, sizeof t->bytes);
    for (int r = 0; r < t->rows; r++)
        memcpy(t->bytes[r], (const uint8_t *)from + (size_t)r * stride, (size_t)t->row_bytes);
}

static inline void kn_amx_stored(int i, void *to, size_t stride)
{
    const kn_amx_tile *t = kn_amx_get(i);
    for (int r = 0; r < t->rows; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, t->bytes[r], (size_t)t->row_bytes);
}

/* c[m][n] += sum over k of 4 signed bytes a[m][4 k ..] times 4 unsigned bytes b[k][4 n ..]. */
static inline void kn_amx_dpbsud(int c, int a, int b)
{
    kn_amx_tile *tc = kn_amx_get(c);
    const kn_amx_tile *ta = kn_amx_get(a), *tb = kn_amx_get(b);
    kn_amx_expect(c != a && c != b && a != b && tc->rows == ta->rows &&
                  tc->row_bytes == tb->row_bytes && ta->row_bytes == 4 * tb->rows &&
                  tc->row_bytes % 4 == 0);
    for (int m = 0; m < tc->rows; m++)
        for (int n = 0; n < tc->row_bytes / 4; n++) {
            uint32_t sum; /* wraps, as the hardware's */
            memcpy(&sum, tc->bytes[m] + 4 * n, sizeof sum);
            for (int k = 0; k < tb->rows; k++)
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)((int8_t)ta->bytes[m][4 * k + i] * tb->bytes[k][4 * n + i]);
            memcpy(tc->bytes[m] + 4 * n, &sum, sizeof sum);
        }
}

/* Compilers have them as macros or as functions. */
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#define _tile_loadconfig(config)     kn_amx_loadconfig(config)
#define _tile_release()              kn_amx_release()
#define _tile_zero(i)                kn_amx_zero(i)
#define _tile_loadd(i, from, stride) kn_amx_loadd(i, from, (size_t)(stride))
#define _tile_stored(i, to, stride)  kn_amx_stored(i, to, (size_t)(stride))
#define _tile_dpbsud(c, a, b)        kn_amx_dpbsud(c, a, b)

#endif
