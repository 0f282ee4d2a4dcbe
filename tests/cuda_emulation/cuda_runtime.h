/* The part of the CUDA runtime that kernels/cuda uses, run on the processor: see README.md.
 * Names, types and meanings are those of the CUDA Runtime API reference (CUDA 13). */
#ifndef CUDA_EMULATION_CUDA_RUNTIME_H
#define CUDA_EMULATION_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUDART_VERSION 13000
#define CUDA_EMULATION 1

#define __global__
#define __device__
#define __host__
#define __constant__ static
/* One block runs at a time, so a static variable is what its threads share. */
#define __shared__      static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define CUDART_CB

/* --- vectors -------------------------------------------------------------------------------- */

#define CUDA_EMULATION_VECTORS(T, name, size)                                                      \
    struct name##1                                                                                 \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct __align__(2 * size) name##2                                                             \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __align__((4 * size > 16 ? 16 : 4 * size)) name##4                                      \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##1 make_##name##1(T x)                                                      \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline name##2 make_##name##2(T x, T y)                                                 \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(T x, T y, T z)                                            \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                       \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

CUDA_EMULATION_VECTORS(signed char, char, 1)
CUDA_EMULATION_VECTORS(unsigned char, uchar, 1)
CUDA_EMULATION_VECTORS(short, short, 2)
CUDA_EMULATION_VECTORS(unsigned short, ushort, 2)
CUDA_EMULATION_VECTORS(int, int, 4)
CUDA_EMULATION_VECTORS(unsigned int, uint, 4)
CUDA_EMULATION_VECTORS(long long, longlong, 8)
CUDA_EMULATION_VECTORS(float, float, 4)
CUDA_EMULATION_VECTORS(double, double, 8)
#undef CUDA_EMULATION_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
};

/* --- errors --------------------------------------------------------------------------------- */

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorGraphExecUpdateFailure = 910,
    cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

/* --- devices -------------------------------------------------------------------------------- */

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    size_t totalConstMem;
    int major, minor;
    int multiProcessorCount;
    int integrated;
    int concurrentKernels;
    int asyncEngineCount;
    int unifiedAddressing;
    int memoryBusWidth;
    int l2CacheSize;
    int maxThreadsPerMultiProcessor;
    size_t sharedMemPerMultiprocessor;
    size_t sharedMemPerBlockOptin;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

/* --- streams, events, memory ---------------------------------------------------------------- */

typedef struct cuda_emulation_stream *cudaStream_t;
typedef struct cuda_emulation_event *cudaEvent_t;
typedef struct cuda_emulation_graph *cudaGraph_t;
typedef struct cuda_emulation_graph_exec *cudaGraphExec_t;

#define cudaStreamDefault          0x00
#define cudaStreamNonBlocking      0x01
#define cudaStreamLegacy           ((cudaStream_t)0x1)
#define cudaEventDefault           0x00
#define cudaEventBlockingSync      0x01
#define cudaEventDisableTiming     0x02
#define cudaHostAllocDefault       0x00
#define cudaHostAllocPortable      0x01
#define cudaHostAllocMapped        0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault    0x00

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void *), void *data);

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaMalloc(void **ptr, size_t bytes);
template <class T> static inline cudaError_t cudaMalloc(T **ptr, size_t bytes)
{
    return cudaMalloc((void **)ptr, bytes);
}
cudaError_t cudaFree(void *ptr);
cudaError_t cudaMallocHost(void **ptr, size_t bytes);
template <class T> static inline cudaError_t cudaMallocHost(T **ptr, size_t bytes)
{
    return cudaMallocHost((void **)ptr, bytes);
}
cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *ptr, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream = nullptr);

/* --- graphs --------------------------------------------------------------------------------- */

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaGraphExecUpdateResult {
    cudaGraphExecUpdateSuccess = 0,
    cudaGraphExecUpdateError = 1,
    cudaGraphExecUpdateErrorTopologyChanged = 2
};
struct cudaGraphExecUpdateResultInfo {
    cudaGraphExecUpdateResult result;
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* --- launches ------------------------------------------------------------------------------- */

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
struct cudaLaunchAttribute {
    int id;
    char value[64];
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
};

namespace cuda_emulation
{
/* Queues a grid; name_of is the kernel's address, looked up for messages. */
cudaError_t launch(dim3 grid, dim3 block, size_t dynamic_shared, cudaStream_t stream,
                   const void *name_of, std::function<void()> thread);
/* What a thread calls inside a kernel. */
void barrier(void);
int barrier_count(int predicate);
/* Every lane of mask deposits value; returns all lanes' values (index = lane) when the live ones
 * have come. present: the lanes that did. */
const uint64_t *warp_exchange(unsigned int mask, uint64_t value, unsigned int *present);
unsigned int lane(void);
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace cuda_emulation

template <class... Expected, class... Actual>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(Expected...), Actual &&...args)
{
    std::tuple<Expected...> copies(static_cast<Expected>(args)...);
    return cuda_emulation::launch(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                  config->stream, (const void *)kernel,
                                  [kernel, copies]() { std::apply(kernel, copies); });
}
template <class F> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, F *)
{
    *a = {0, 0, 0, 1024, 32, 90, 90};
    return cudaSuccess;
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
template <class F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F *, int,
                                                                        size_t)
{
    *blocks = 1;
    return cudaSuccess;
}

/* --- inside kernels ------------------------------------------------------------------------- */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

static inline void __syncthreads(void)
{
    cuda_emulation::barrier();
}
static inline int __syncthreads_count(int p)
{
    return cuda_emulation::barrier_count(p);
}
static inline int __syncthreads_or(int p)
{
    return cuda_emulation::barrier_count(p) != 0;
}
static inline int __syncthreads_and(int p)
{
    return cuda_emulation::barrier_count(!p) == 0;
}
static inline void __syncwarp(unsigned int mask = 0xffffffffu)
{
    unsigned int present;
    cuda_emulation::warp_exchange(mask, 0, &present);
}
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}

namespace cuda_emulation
{
template <class T> static inline T shuffle(unsigned int mask, T value, unsigned int source)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    unsigned int present;
    const uint64_t *all = warp_exchange(mask, bits, &present);
    if (!(present >> source & 1))
        fault("a shuffle reads lane %u, which takes no part in it", source);
    T out;
    std::memcpy(&out, &all[source], sizeof out);
    return out;
}
/* Lane that a shuffle within sections of `width` lanes reads; out of the section: its own. */
static inline unsigned int in_section(int64_t source, int width)
{
    unsigned int me = lane();
    int64_t first = me - me % (unsigned int)width;
    return source < first || source >= first + width ? me : (unsigned int)source;
}
} // namespace cuda_emulation

template <class T> static inline T __shfl_sync(unsigned int mask, T v, int source, int width = 32)
{
    unsigned int me = cuda_emulation::lane();
    unsigned int first = me - me % (unsigned int)width;
    return cuda_emulation::shuffle(mask, v, first + (unsigned int)source % (unsigned int)width);
}
template <class T>
static inline T __shfl_xor_sync(unsigned int mask, T v, int lanes, int width = 32)
{
    return cuda_emulation::shuffle(
        mask, v,
        cuda_emulation::in_section((int64_t)(cuda_emulation::lane() ^ (unsigned int)lanes), width));
}
template <class T>
static inline T __shfl_down_sync(unsigned int mask, T v, unsigned int delta, int width = 32)
{
    return cuda_emulation::shuffle(
        mask, v, cuda_emulation::in_section((int64_t)cuda_emulation::lane() + delta, width));
}
template <class T>
static inline T __shfl_up_sync(unsigned int mask, T v, unsigned int delta, int width = 32)
{
    return cuda_emulation::shuffle(
        mask, v, cuda_emulation::in_section((int64_t)cuda_emulation::lane() - delta, width));
}
static inline unsigned int __ballot_sync(unsigned int mask, int predicate)
{
    unsigned int present, votes = 0;
    const uint64_t *all = cuda_emulation::warp_exchange(mask, predicate != 0, &present);
    for (unsigned int i = 0; i < 32; i++)
        votes |= (present >> i & 1) && all[i] ? 1u << i : 0;
    return votes;
}
static inline int __any_sync(unsigned int mask, int p)
{
    return __ballot_sync(mask, p) != 0;
}
static inline int __all_sync(unsigned int mask, int p)
{
    return __ballot_sync(mask, !p) == 0;
}

/* Threads are switched only where they wait, so plain operations are atomic. */
template <class T, class U> static inline T atomicAdd(T *p, U v)
{
    T old = *p;
    *p = old + (T)v;
    return old;
}
template <class T, class U> static inline T atomicSub(T *p, U v)
{
    T old = *p;
    *p = old - (T)v;
    return old;
}
template <class T, class U> static inline T atomicMax(T *p, U v)
{
    T old = *p;
    *p = old > (T)v ? old : (T)v;
    return old;
}
template <class T, class U> static inline T atomicMin(T *p, U v)
{
    T old = *p;
    *p = old < (T)v ? old : (T)v;
    return old;
}
template <class T, class U> static inline T atomicOr(T *p, U v)
{
    T old = *p;
    *p = old | (T)v;
    return old;
}
template <class T, class U> static inline T atomicExch(T *p, U v)
{
    T old = *p;
    *p = (T)v;
    return old;
}
template <class T, class U, class V> static inline T atomicCAS(T *p, U compare, V v)
{
    T old = *p;
    if (old == (T)compare) *p = (T)v;
    return old;
}

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}

static inline float rsqrtf(float x)
{
    return 1.0f / std::sqrt(x);
}
#define __expf expf /* the C library keeps these names for itself */
#define __logf logf
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x)
{
    return std::sqrt(x);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline void sincospif(float x, float *s, float *c)
{
    *s = (float)std::sin((double)x * M_PI);
    *c = (float)std::cos((double)x * M_PI);
}
static inline int __float2int_rn(float x)
{
    return (int)std::nearbyint(x);
}
static inline int __float2int_rd(float x)
{
    return (int)std::floor(x);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline int __popc(unsigned int x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned int)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned int __umulhi(unsigned int a, unsigned int b)
{
    return (unsigned int)((uint64_t)a * b >> 32);
}

template <class To, class From> static inline To cuda_emulation_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To out;
    std::memcpy(&out, &v, sizeof out);
    return out;
}
static inline int __float_as_int(float v)
{
    return cuda_emulation_bits<int>(v);
}
static inline unsigned int __float_as_uint(float v)
{
    return cuda_emulation_bits<unsigned>(v);
}
static inline float __int_as_float(int v)
{
    return cuda_emulation_bits<float>(v);
}
static inline float __uint_as_float(unsigned int v)
{
    return cuda_emulation_bits<float>(v);
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
    return c;
}
static inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c)
{
    for (int i = 0; i < 4; i++)
        c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
static inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned int out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned int)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

enum cudaDataType {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14
};
typedef enum cudaDataType cudaDataType_t;

#endif
