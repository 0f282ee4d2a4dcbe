/* Device functions that several kernels share: sums over a warp, 16-bit loads, one group of a
 * quantized matrix. */
#ifndef KN_CUDA_DEVICE_H
#define KN_CUDA_DEVICE_H

#include "kernels/cuda/cuda.h"

#define FULL_WARP 0xffffffffu

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_xor_sync(FULL_WARP, v, offset);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, offset));
    return v;
}

/* Sums COUNT values (a power of two up to 32) over the warp at once: returns, in lane l, the sum
 * of v[l / (32 / COUNT)]. Each value is summed in the order of warp_sum, whatever COUNT is. */
template <int COUNT, int OFFSET = 16>
static __device__ __forceinline__ float warp_sums(float (&v)[COUNT], int lane)
{
    if constexpr (COUNT == 1) {
        float sum = v[0];
#pragma unroll
        for (int offset = OFFSET; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(FULL_WARP, sum, offset);
        return sum;
    } else {
        float rest[COUNT / 2];
        const bool upper = (lane & OFFSET) != 0;
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            float send = upper ? v[i] : v[i + COUNT / 2];
            float keep = upper ? v[i + COUNT / 2] : v[i];
            rest[i] = keep + __shfl_xor_sync(FULL_WARP, send, OFFSET);
        }
        return warp_sums<COUNT / 2, OFFSET / 2>(rest, lane);
    }
}

/* Sum over a block of THREADS threads, the same in every thread; scratch: [THREADS / 32]. */
template <int THREADS> static __device__ __forceinline__ float block_sum(float v, float *scratch)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    v = warp_sum(v);
    __syncthreads(); /* scratch may still be read */
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        sum += scratch[i];
    return sum;
}

static __device__ __forceinline__ float f16_value(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

static __device__ __forceinline__ float bf16_value(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* An element of an array of a float type. */
static __device__ __forceinline__ float float_at(int type, const void *data, int64_t i)
{
    if (type == KN_F32) return ((const float *)data)[i];
    uint32_t bits = ((const uint16_t *)data)[i];
    return type == KN_F16 ? f16_value(bits) : bf16_value(bits);
}

/* --- a group of a quantized matrix ------------------------------------------------------------ */

/* 32 columns: element 4 i + k is byte k of word[i]. Its value is scale * (code - OFFSET) + min;
 * columns 16.. have scale2 (Q6_K; else the same). */
typedef struct {
    uint32_t word[8];
    float scale, scale2, min;
} kn_cuda_group;

template <kn_type TYPE> struct group_format {
    static constexpr int offset = TYPE == KN_Q4_0 ? 8 : TYPE == KN_Q6_K ? 32 : 0;
    static constexpr bool has_min = TYPE == KN_Q4_1 || TYPE == KN_Q4_K || TYPE == KN_Q5_K;
    static constexpr bool halves = TYPE == KN_Q6_K;
};

/* Bits 0..3 of x to bit 4 of bytes 0..3. */
static __device__ __forceinline__ uint32_t spread_fifth_bits(uint32_t x)
{
    return (((x & 15u) * 0x00204081u) & 0x01010101u) << 4;
}

/* Scale and min of sub-block j of a Q4_K or Q5_K block from its header of 16 bytes: d, dmin and 12
 * bytes of packed 6-bit numbers. All products are exact. */
static __device__ __forceinline__ void k_scale_min(const uint4 &h, int j, float *scale, float *min)
{
    /* Packed bytes 0..3 in y, 4..7 in z, 8..11 in w. */
    const int shift = 8 * (j & 3);
    uint32_t low = (h.y >> shift) & 255u, middle = (h.z >> shift) & 255u;
    uint32_t high = (h.w >> shift) & 255u;
    uint32_t s = j < 4 ? low & 63u : (high & 15u) | (low >> 6) << 4;
    uint32_t m = j < 4 ? middle & 63u : (high >> 4) | (middle >> 6) << 4;
    *scale = f16_value(h.x & 0xffffu) * (float)s;
    *min = -(f16_value(h.x >> 16) * (float)m);
}

template <kn_type TYPE>
static __device__ __forceinline__ void load_group(const kn_cuda_matrix &m, int64_t row, int g,
                                                  kn_cuda_group *out)
{
    const int64_t at = row * m.groups + g;
    out->min = 0;
    if constexpr (TYPE == KN_Q8_0) {
        const uint4 *codes = (const uint4 *)(m.codes + at * 32);
        uint4 a = __ldg(codes), b = __ldg(codes + 1);
        uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            out->word[i] = words[i];
    } else {
        uint4 a = __ldg((const uint4 *)(m.codes + at * 16));
        uint32_t words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out->word[i] = words[i] & 0x0f0f0f0fu;
            out->word[i + 4] = (words[i] >> 4) & 0x0f0f0f0fu;
        }
    }
    if constexpr (TYPE == KN_Q8_0 || TYPE == KN_Q4_0) {
        out->scale = f16_value(((const uint16_t *)m.scales)[at]);
    } else if constexpr (TYPE == KN_Q4_1) {
        uint32_t both = ((const uint32_t *)m.scales)[at];
        out->scale = f16_value(both & 0xffffu);
        out->min = f16_value(both >> 16);
    } else if constexpr (TYPE == KN_Q4_K || TYPE == KN_Q5_K) {
        uint4 header = __ldg((const uint4 *)m.scales + at / 8);
        k_scale_min(header, (int)(at % 8), &out->scale, &out->min);
    }
    out->scale2 = out->scale;
    if constexpr (TYPE == KN_Q5_K) {
        uint32_t bits = ((const uint32_t *)m.high)[at];
#pragma unroll
        for (int i = 0; i < 8; i++)
            out->word[i] |= spread_fifth_bits(bits >> (4 * i));
    }
    if constexpr (TYPE == KN_Q6_K) {
        uint2 pairs = __ldg((const uint2 *)m.high + at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out->word[i] |= ((pairs.x >> (2 * i)) & 0x03030303u) << 4;
            out->word[i + 4] |= ((pairs.y >> (2 * i)) & 0x03030303u) << 4;
        }
        uint32_t scales = ((const uint16_t *)m.scales)[at];
        float d = f16_value(((const uint16_t *)m.super)[at / 8]);
        out->scale = d * (float)(int8_t)(scales & 255u);
        out->scale2 = d * (float)(int8_t)(scales >> 8);
    }
}

/* The value of column i of a group, exactly kn_dequantize's: scale * code has at most 24 bits. */
template <kn_type TYPE>
static __device__ __forceinline__ float group_value(const kn_cuda_group &g, int i)
{
    uint32_t byte = (g.word[i / 4] >> (8 * (i % 4))) & 255u;
    int code = TYPE == KN_Q8_0 ? (int)(int8_t)byte : (int)byte - group_format<TYPE>::offset;
    float product = (i < 16 ? g.scale : g.scale2) * (float)code;
    if constexpr (group_format<TYPE>::has_min) product += g.min;
    return product;
}

#endif
