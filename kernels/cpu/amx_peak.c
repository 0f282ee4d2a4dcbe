/* What AMX can do at most: integer products of whole tiles. Floats and reading are AVX-512's. */
#include "kernels/cpu/peak_cpu.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)

#ifdef KN_EMULATE_AVX512
#include "kernels/cpu/emulate_amx.h"
#else
#include <immintrin.h>
#endif

/* Two tiles of operands and six of sums, 16 x 64 bytes each. */
static double int_ops(long rounds)
{
    _Alignas(64) static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (long r = 0; r < rounds; r++) {
        _tile_dpbsud(0, 6, 7);
        _tile_dpbsud(1, 6, 7);
        _tile_dpbsud(2, 6, 7);
        _tile_dpbsud(3, 6, 7);
        _tile_dpbsud(4, 6, 7);
        _tile_dpbsud(5, 6, 7);
    }
    _tile_release();
    return 2.0 * 16 * 16 * 64 * 6 * (double)rounds;
}

static double float_ops(long rounds)
{
    return kn_peak_avx512.float_ops(rounds);
}

static uint64_t read_all(const uint8_t *data, size_t bytes)
{
    return kn_peak_avx512.read(data, bytes);
}

const kn_peak_loops kn_peak_amx = {"amx", int_ops, float_ops, read_all};

#else
typedef int kn_amx_peak_needs_x86_64;
#endif
