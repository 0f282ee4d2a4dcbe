/* Large products with quantized weights through AMX tiles, for isa "amx": a part of the AVX-512
 * kernels, with the same bits. Tests run it on other machines through
 * emulate_amx.h.
 *
 * dpbsud multiplies 16 tokens' signed columns by 16 rows' unsigned codes, four neighbours at a
 * time, and adds into 32 bits, exactly: a panel's steps are its second operand as they lie. A unit
 * is the columns that share scales (32, or 16): its sums go through memory into the same float
 * operations as everywhere. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/simd_math.inc"
#include "kernels/cpu/int_avx512.inc"
#include "kernels/cpu/simd_tile.inc"
// clang-format on
#ifdef KN_EMULATE_AVX512
#include "kernels/cpu/emulate_amx.h"
#endif

#define TILE_TOKENS 16
#define TILE_UNITS  4 /* in flight: a product's result takes longer than the product */

typedef int32_t unit_sums[TILE_TOKENS][KN_TILE_ROWS];

/* The 64 bytes of LDTILECFG. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Tiles 0 .. 3 are sums, 4 and 5 tokens, 6 and 7 codes; of groups of 32 and of 16 columns. */
_Alignas(64) static const tile_config tile_configs[2] = {
    {.palette = 1,
     .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
     .rows = {16, 16, 16, 16, 16, 16, 8, 8}},
    {.palette = 1,
     .row_bytes = {64, 64, 64, 64, 16, 16, 64, 64},
     .rows = {16, 16, 16, 16, 16, 16, 4, 4}},
};

/* Tile instructions don't say which memory they touch. */
#define TILE_MEMORY() __asm__ volatile("" ::: "memory")

#define TILE_UNIT(i, tokens, rows)                                                                 \
    if (i < n_units) {                                                                             \
        _tile_zero(i);                                                                             \
        _tile_loadd(tokens, q + i * group, cols);                                                  \
        _tile_loadd(rows, codes + i * group * KN_TILE_ROWS, 64);                                   \
        _tile_dpbsud(i, tokens, rows);                                                             \
    }
#define TILE_STORE(i)                                                                              \
    if (i < n_units) _tile_stored(i, sums[i], 64);

/* sums[i] = 16 tokens from q on, cols apart, times the 16 rows' codes, for up to TILE_UNITS units.
 */
ALWAYS_INLINE void tile_dots(int group, int64_t n_units, const int8_t *q, int64_t cols,
                             const uint8_t *codes, unit_sums *sums)
{
    TILE_MEMORY();
    TILE_UNIT(0, 4, 6)
    TILE_UNIT(1, 5, 7)
    TILE_UNIT(2, 4, 6)
    TILE_UNIT(3, 5, 7)
    TILE_STORE(0)
    TILE_STORE(1)
    TILE_STORE(2)
    TILE_STORE(3)
    TILE_MEMORY();
}

/* acc[t] += the sums of count units from unit on. */
ALWAYS_INLINE void add_units(kn_tile_format f, int64_t unit, int64_t count, unit_sums *sums,
                             const float *scales, const kn_act_block *const *blocks, vf *acc)
{
    const int per_block = 32 / f.group;
    for (int64_t u = 0; u < count; u += per_block)
        UNROLLED_FOR (half, per_block) {
            const float *at = scales + (unit + u + half) * 32;
            int_vector dots[TILE_TOKENS];
            UNROLLED_FOR (t, TILE_TOKENS)
                dots[t] = _mm512_loadu_si512(sums[u + half][t]);
            add_group(f, TILE_TOKENS, half, vf_load(at), vf_load(at + 16), dots, blocks,
                      (unit + u) / per_block, acc);
        }
}

/* 16 rows of the tile times the tokens from i on. The next units are multiplied while the sums of
 * the ones before them are added up. */
ALWAYS_INLINE void tile_rows(kn_tile_format f, const kn_linear *out, int64_t tile,
                             const int_panel *panel, const kn_activations *a, int i)
{
    const int64_t n_blocks = a->cols / KN_ACT_BLOCK, n_units = n_blocks * 32 / f.group;
    const int8_t *q = a->q + i * a->cols;
    const kn_act_block *blocks[TILE_TOKENS];
    _Alignas(64) unit_sums sums[2][TILE_UNITS];
    vf acc[TILE_TOKENS];
    UNROLLED_FOR (t, TILE_TOKENS) {
        blocks[t] = a->blocks + (i + t) * n_blocks;
        acc[t] = vf_set1(0);
    }
    tile_dots(f.group, n_units, q, a->cols, panel->codes, sums[0]);
    for (int64_t u = 0; u < n_units; u += TILE_UNITS) {
        const int64_t next = u + TILE_UNITS, left = n_units - u;
        if (next < n_units)
            tile_dots(f.group, n_units - next, q + next * f.group, a->cols,
                      panel->codes + next * f.group * KN_TILE_ROWS, sums[(next / TILE_UNITS) & 1]);
        add_units(f, u, left < TILE_UNITS ? left : TILE_UNITS, sums[(u / TILE_UNITS) & 1],
                  panel->scales, blocks, acc);
    }
    UNROLLED_FOR (t, TILE_TOKENS)
        store_tile(out, tile, i + t, acc[t]);
}

/* Whole tiles of tokens only. The tiles are the thread's own, and the system saves them at each
 * switch until they are released. */
ALWAYS_INLINE void linear_tiles(kn_type type, kn_tile_format f, const kn_linear *out,
                                int64_t first_tile, int64_t end_tile, const kn_activations *a,
                                int first, int end, uint8_t *scratch)
{
    const int64_t n_blocks = a->cols / KN_ACT_BLOCK;
    const size_t code_bytes = PANEL_CODE_BYTES(f.bits);
    const int64_t share = (int64_t)out->w->tile_bytes * TILE_TOKENS / (end - first) / 64 * 64 + 64;
    const int_panel panel = {scratch, (float *)(void *)(scratch + (size_t)n_blocks * code_bytes),
                             code_bytes};
    _tile_loadconfig(&tile_configs[f.group == 32 ? 0 : 1]);
    for (int64_t tile = first_tile; tile < end_tile; tile++) {
        const uint8_t *packed = out->w->data + (size_t)tile * out->w->tile_bytes;
        const uint8_t *next = packed + out->w->tile_bytes;
        fill_panel(type, f, packed, n_blocks, &panel);
        for (int i = first; i < end; i += TILE_TOKENS, next += share) {
            prefetch_bytes(next, share);
            tile_rows(f, out, tile, &panel, a, i);
        }
    }
    _tile_release();
}

typedef void tiles_fn(const kn_linear *, int64_t, int64_t, const kn_activations *, int, int,
                      uint8_t *);

#define LINEAR_TILES(name, type, ...)                                                              \
    static void name(const kn_linear *out, int64_t first_tile, int64_t end_tile,                   \
                     const kn_activations *a, int first, int end, uint8_t *scratch)                \
    {                                                                                              \
        const kn_tile_format f = __VA_ARGS__;                                                      \
        linear_tiles(type, f, out, first_tile, end_tile, a, first, end, scratch);                  \
    }
LINEAR_TILES(tiles_q8_0, KN_Q8_0, KN_FORMAT_Q8_0)
LINEAR_TILES(tiles_q4_0, KN_Q4_0, KN_FORMAT_Q4_0)
LINEAR_TILES(tiles_q4_1, KN_Q4_1, KN_FORMAT_Q4_1)
LINEAR_TILES(tiles_q4_k, KN_Q4_K, KN_FORMAT_Q4_K)
LINEAR_TILES(tiles_q5_k, KN_Q5_K, KN_FORMAT_Q5_K)
LINEAR_TILES(tiles_q6_k, KN_Q6_K, KN_FORMAT_Q6_K)

void kn_amx_linear(const kn_linear *out, int64_t first_tile, int64_t end_tile,
                   const kn_activations *a, int first, int end, void *scratch)
{
    static tiles_fn *const by_type[KN_TYPE_COUNT] = {
        [KN_Q8_0] = tiles_q8_0, [KN_Q4_0] = tiles_q4_0, [KN_Q4_1] = tiles_q4_1,
        [KN_Q4_K] = tiles_q4_k, [KN_Q5_K] = tiles_q5_k, [KN_Q6_K] = tiles_q6_k,
    };
    tiles_fn *tiles = by_type[out->w->type];
    const int whole = tiles ? (end - first) / TILE_TOKENS * TILE_TOKENS : 0;
    if (whole) tiles(out, first_tile, end_tile, a, first, first + whole, scratch);
    first += whole;
    if (first < end) kn_avx512_kernels.linear(out, first_tile, end_tile, a, first, end, scratch);
}

#else
typedef int kn_amx_needs_x86_64;
#endif
