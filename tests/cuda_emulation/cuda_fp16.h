/* IEEE binary16 of the CUDA math headers, in software: see README.md. */
#ifndef CUDA_EMULATION_CUDA_FP16_H
#define CUDA_EMULATION_CUDA_FP16_H

#include "cuda_runtime.h"

namespace cuda_emulation
{
/* Nearest, ties to even; what is too large becomes infinity. */
static inline uint16_t half_bits(float f)
{
    uint32_t x = cuda_emulation_bits<uint32_t>(f);
    uint16_t sign = (uint16_t)(x >> 16 & 0x8000u);
    x &= 0x7fffffffu;
    if (x > 0x7f800000u) return (uint16_t)(sign | 0x7fffu);
    if (x >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (x < 0x38800000u) { /* subnormal: adding 0.5 lines its mantissa up and rounds */
        float shifted = cuda_emulation_bits<float>(x) + 0.5f;
        return (uint16_t)(sign | (cuda_emulation_bits<uint32_t>(shifted) - 0x3f000000u));
    }
    x += 0xfffu + (x >> 13 & 1);
    return (uint16_t)(sign | (x - 0x38000000u) >> 13);
}
static inline float half_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u)
        return cuda_emulation_bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u) return cuda_emulation_bits<float>(sign | ((rest << 13) + 0x38000000u));
    float value = (float)rest * 5.9604644775390625e-8f; /* 2^-24 */
    return sign ? -value : value;
}
} // namespace cuda_emulation

struct __align__(2) __half
{
    uint16_t bits;
    __half() = default;
    __half(float f) : bits(cuda_emulation::half_bits(f))
    {
    }
    operator float() const
    {
        return cuda_emulation::half_value(bits);
    }
};
struct __align__(4) __half2
{
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half v)
{
    return (float)v;
}
static inline __half __float2half(float v)
{
    return __half(v);
}
static inline __half __float2half_rn(float v)
{
    return __half(v);
}
static inline float2 __half22float2(__half2 v)
{
    return {(float)v.x, (float)v.y};
}
static inline __half2 __float22half2_rn(float2 v)
{
    return {__half(v.x), __half(v.y)};
}
static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}
static inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}
static inline float __low2float(__half2 v)
{
    return (float)v.x;
}
static inline float __high2float(__half2 v)
{
    return (float)v.y;
}
static inline __half __low2half(__half2 v)
{
    return v.x;
}
static inline __half __high2half(__half2 v)
{
    return v.y;
}
static inline unsigned short __half_as_ushort(__half v)
{
    return v.bits;
}
static inline __half __ushort_as_half(unsigned short v)
{
    __half out;
    out.bits = v;
    return out;
}

#endif
