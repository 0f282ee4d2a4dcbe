/* bfloat16 of the CUDA math headers, in software: see README.md. */
#ifndef CUDA_EMULATION_CUDA_BF16_H
#define CUDA_EMULATION_CUDA_BF16_H

#include "cuda_runtime.h"

namespace cuda_emulation
{
/* Nearest, ties to even. */
static inline uint16_t bfloat16_bits(float f)
{
    uint32_t x = cuda_emulation_bits<uint32_t>(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((x + 0x7fffu + (x >> 16 & 1)) >> 16);
}
static inline float bfloat16_value(uint16_t h)
{
    return cuda_emulation_bits<float>((uint32_t)h << 16);
}
} // namespace cuda_emulation

struct __align__(2) __nv_bfloat16
{
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) : bits(cuda_emulation::bfloat16_bits(f))
    {
    }
    operator float() const
    {
        return cuda_emulation::bfloat16_value(bits);
    }
};
struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 v)
{
    return (float)v;
}
static inline __nv_bfloat16 __float2bfloat16(float v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return __nv_bfloat16(v);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {(float)v.x, (float)v.y};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}
static inline float __low2float(__nv_bfloat162 v)
{
    return (float)v.x;
}
static inline float __high2float(__nv_bfloat162 v)
{
    return (float)v.y;
}
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v)
{
    __nv_bfloat16 out;
    out.bits = v;
    return out;
}

#endif
