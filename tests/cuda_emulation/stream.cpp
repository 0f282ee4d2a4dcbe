// Streams are queues that are worked off as late as the rules allow: only when the host, or another
// stream, waits for them. Code that forgets to wait sees stale data.
#include "internal.h"

#include <deque>
#include <memory>
#include <set>
#include <vector>

namespace cuda_emulation
{

std::recursive_mutex &lock(void)
{
    static std::recursive_mutex the_lock;
    return the_lock;
}

cuda_emulation_counts counts;
static cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

} // namespace cuda_emulation

using namespace cuda_emulation;

typedef std::function<void()> work;

// Device memory that an executable graph takes for each of its nodes.
static const size_t NODE_BYTES = 1024;

struct cuda_emulation_graph {
    std::vector<work> nodes;
    bool invalid = false;
};
struct cuda_emulation_graph_exec {
    std::vector<work> nodes;
    void *memory = nullptr;
};
struct cuda_emulation_stream {
    bool blocking = true; // waits for the default stream, and it for this one
    std::deque<work> queue;
    uint64_t queued = 0, done = 0;
    cuda_emulation_graph *capture = nullptr;
    bool capture_origin = false;
};
struct cuda_emulation_event {
    cuda_emulation_stream *stream = nullptr; // where it was recorded last
    uint64_t at = 0;                         // done when stream->done >= at
    cuda_emulation_graph *capture = nullptr; // recorded while capturing
    double seconds = 0;
};

namespace
{

cuda_emulation_stream default_stream;
std::set<cuda_emulation_stream *> streams;
std::vector<std::unique_ptr<cuda_emulation_stream>> destroyed; // an event may still name one

cuda_emulation_stream *real(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy) return &default_stream;
    if (!streams.count(s)) fault("a stream is used that does not exist (destroyed?)");
    return s;
}

bool anyone_captures(void)
{
    for (cuda_emulation_stream *s : streams)
        if (s->capture) return true;
    return false;
}

// Works off s until `upto` items are done.
void drain(cuda_emulation_stream *s, uint64_t upto)
{
    device_access access;
    while (s->done < upto && !s->queue.empty()) {
        work w = std::move(s->queue.front());
        s->queue.pop_front();
        if (device_state() == cudaSuccess) w();
        s->done++;
    }
}

void drain(cuda_emulation_stream *s)
{
    if (!s->queue.empty()) drain(s, s->queued);
}

// The default stream and the blocking ones wait for each other.
void order_with_default(cuda_emulation_stream *s)
{
    if (s == &default_stream) {
        for (cuda_emulation_stream *other : streams)
            if (other->blocking && !other->capture) drain(other);
    } else if (s->blocking) {
        drain(&default_stream);
    }
}

} // namespace

static cuda_emulation_failure planted = CUDA_EMULATION_NONE;
static uint64_t planted_after = 0;
static bool lost = false;

extern "C" void cuda_emulation_plant_failure(cuda_emulation_failure kind, uint64_t after)
{
    guard g(lock());
    cudaDeviceSynchronize();
    planted = kind;
    planted_after = after;
    if (kind == CUDA_EMULATION_NONE) lost = false;
}

cudaError_t cuda_emulation::device_state(void)
{
    return lost ? failed(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cuda_emulation::count_launch(void)
{
    if (planted != CUDA_EMULATION_REFUSED || --planted_after > 0) return cudaSuccess;
    planted = CUDA_EMULATION_NONE;
    return failed(cudaErrorLaunchOutOfResources);
}

void cuda_emulation::count_run(void)
{
    if (planted == CUDA_EMULATION_LOST && planted_after > 0 && --planted_after == 0) lost = true;
}

cudaError_t cuda_emulation::forbid_capture(void)
{
    if (!anyone_captures()) return cudaSuccess;
    for (cuda_emulation_stream *s : streams)
        if (s->capture) s->capture->invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported);
}

bool cuda_emulation::captures(cudaStream_t stream)
{
    return real(stream)->capture != nullptr;
}

cudaError_t cuda_emulation::enqueue(cudaStream_t stream, work w)
{
    cuda_emulation_stream *s = real(stream);
    if (device_state() != cudaSuccess) return device_state();
    if (s->capture) {
        s->capture->nodes.push_back(std::move(w));
        return cudaSuccess;
    }
    if (s == &default_stream && anyone_captures()) return failed(cudaErrorStreamCaptureUnsupported);
    order_with_default(s);
    s->queue.push_back(std::move(w));
    s->queued++;
    return cudaSuccess;
}

/* --- streams -------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    guard g(lock());
    *stream = new cuda_emulation_stream;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    if (s == &default_stream) return failed(cudaErrorInvalidResourceHandle);
    drain(s);
    streams.erase(s);
    destroyed.emplace_back(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    if (s->capture) {
        s->capture->invalid = true;
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    if (s == &default_stream) order_with_default(s);
    drain(s);
    return device_state();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    if (s->queue.empty()) return cudaSuccess;
    drain(s, s->done + 1); // time passes
    return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard g(lock());
    for (cuda_emulation_stream *s : streams) {
        if (s->capture) {
            s->capture->invalid = true;
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        drain(s);
    }
    drain(&default_stream);
    return device_state();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void *), void *data)
{
    guard g(lock());
    return enqueue(stream, [fn, data]() { fn(data); });
}

/* --- events --------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int)
{
    guard g(lock());
    *event = new cuda_emulation_event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    guard g(lock());
    cudaDeviceSynchronize();
    delete event;
    return cudaSuccess;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    event->capture = s->capture;
    if (s->capture) return cudaSuccess; // work of a graph keeps the order in which it was captured
    cudaError_t e = enqueue(stream, [event]() { event->seconds = now(); });
    event->stream = s;
    event->at = s->queued;
    return e;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    if (event->capture && !s->capture) { // the stream joins the capture
        s->capture = event->capture;
        return cudaSuccess;
    }
    cuda_emulation_stream *of = event->stream;
    uint64_t at = event->at;
    if (!of || s->capture) return cudaSuccess;
    return enqueue(stream, [of, at]() { drain(of, at); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    guard g(lock());
    if (forbid_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    if (event->stream) drain(event->stream, event->at);
    return device_state();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    guard g(lock());
    if (!event->stream || event->stream->done >= event->at) return cudaSuccess;
    drain(event->stream, event->stream->done + 1); // time passes
    return event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    guard g(lock());
    if (!start->stream || !end->stream) return failed(cudaErrorInvalidResourceHandle);
    if (start->stream->done < start->at || end->stream->done < end->at) return cudaErrorNotReady;
    *milliseconds = (float)((end->seconds - start->seconds) * 1e3);
    return cudaSuccess;
}

/* --- copies --------------------------------------------------------------------------------- */

static void copy_rows(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                      size_t height)
{
    if (!width || !height) return;
    size_t dst_extent = dst_pitch * (height - 1) + width;
    size_t src_extent = src_pitch * (height - 1) + width;
    if (is_device_pointer(dst)) check_device_range(dst, dst_extent, "copy to device memory");
    if (is_device_pointer(src)) check_device_range(src, src_extent, "copy from device memory");
    if (is_device_pointer(dst) && !is_device_pointer(src)) counts.to_device += width * height;
    if (!is_device_pointer(dst) && is_device_pointer(src)) counts.to_host += width * height;
    for (size_t i = 0; i < height; i++)
        memmove((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width);
}

static bool kind_fits(const void *dst, const void *src, cudaMemcpyKind kind)
{
    bool to = is_device_pointer(dst), from = is_device_pointer(src);
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to && !from;
    case cudaMemcpyHostToDevice:
        return to && !from;
    case cudaMemcpyDeviceToHost:
        return !to && from;
    case cudaMemcpyDeviceToDevice:
        return to && from;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    guard g(lock());
    if (!width || !height) return cudaSuccess;
    if (!kind_fits(dst, src, kind) || (height > 1 && (width > dst_pitch || width > src_pitch)))
        return failed(cudaErrorInvalidValue);
    bool capturing = real(stream)->capture != nullptr;
    if (capturing && ((!is_device_pointer(src) && !is_pinned(src)) ||
                      (!is_device_pointer(dst) && !is_pinned(dst))))
        fault("a copy of host memory that isn't pinned is recorded: who keeps it until the graph "
              "runs?");
    // Memory that isn't pinned is staged: its contents count at the time of the call.
    if (!is_device_pointer(src) && !is_pinned(src) && !capturing) {
        auto staged = std::make_shared<std::vector<char>>(width * height);
        for (size_t i = 0; i < height; i++)
            memcpy(staged->data() + i * width, (const char *)src + i * src_pitch, width);
        return enqueue(stream,
                       [=]() { copy_rows(dst, dst_pitch, staged->data(), width, width, height); });
    }
    cudaError_t e =
        enqueue(stream, [=]() { copy_rows(dst, dst_pitch, src, src_pitch, width, height); });
    if (e == cudaSuccess && !is_device_pointer(dst) && !is_pinned(dst) && !capturing)
        return cudaStreamSynchronize(stream);
    return e;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind)
{
    guard g(lock());
    cudaError_t e = cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, nullptr);
    return e == cudaSuccess ? cudaStreamSynchronize(nullptr) : e;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    return cudaMemcpy2D(dst, bytes, src, bytes, bytes, 1, kind);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    guard g(lock());
    if (!bytes) return cudaSuccess;
    return enqueue(stream, [=]() {
        check_device_range(ptr, bytes, "memset of device memory");
        memset(ptr, value, bytes);
    });
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    return cudaMemsetAsync(ptr, value, bytes, nullptr);
}

/* --- graphs --------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    if (s == &default_stream || s->capture) return failed(cudaErrorStreamCaptureUnsupported);
    drain(s);
    s->capture = new cuda_emulation_graph;
    s->capture_origin = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    *graph = nullptr;
    if (!s->capture || !s->capture_origin) return failed(cudaErrorStreamCaptureInvalidated);
    cuda_emulation_graph *captured = s->capture;
    for (cuda_emulation_stream *other : streams)
        if (other->capture == captured) other->capture = nullptr;
    s->capture_origin = false;
    if (captured->invalid) {
        delete captured;
        return failed(cudaErrorStreamCaptureInvalidated);
    }
    *graph = captured;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    guard g(lock());
    cuda_emulation_stream *s = real(stream);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    guard g(lock());
    void *memory = nullptr;
    *exec = nullptr;
    if (cudaMalloc(&memory, (graph->nodes.size() + 1) * NODE_BYTES) != cudaSuccess)
        return failed(cudaErrorMemoryAllocation);
    *exec = new cuda_emulation_graph_exec{graph->nodes, memory};
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    guard g(lock());
    if (exec->nodes.size() != graph->nodes.size()) {
        info->result = cudaGraphExecUpdateErrorTopologyChanged;
        return failed(cudaErrorGraphExecUpdateFailure);
    }
    exec->nodes = graph->nodes;
    info->result = cudaGraphExecUpdateSuccess;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    guard g(lock());
    auto nodes = std::make_shared<std::vector<work>>(exec->nodes);
    return enqueue(stream, [nodes]() {
        counts.graphs++;
        for (const work &w : *nodes)
            w();
    });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    guard g(lock());
    cudaDeviceSynchronize(); // it may still run
    give_back(exec->memory);
    delete exec;
    return cudaSuccess;
}

/* --- the device and its errors -------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
    guard g(lock());
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    guard g(lock());
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : ERRORS)
        if (e.error == error) return e.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : ERRORS)
        if (e.error == error) return e.text;
    return "unknown error";
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    if (device != 0) return failed(cudaErrorInvalidDevice);
    *prop = {};
    size_t free_bytes;
    strcpy(prop->name, "emulated device");
    cudaMemGetInfo(&free_bytes, &prop->totalGlobalMem);
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = 48 << 10;
    prop->sharedMemPerMultiprocessor = 64 << 10;
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->minor = 0;
    prop->multiProcessorCount = 4;
    prop->l2CacheSize = 4 << 20;
    prop->memoryBusWidth = 256;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device)
{
    cudaDeviceProp prop;
    cudaError_t e = cudaGetDeviceProperties(&prop, device);
    if (e != cudaSuccess) return e;
    const struct {
        cudaDeviceAttr attr;
        int value;
    } values[] = {
        {cudaDevAttrMaxThreadsPerBlock, prop.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)prop.sharedMemPerBlock},
        {cudaDevAttrWarpSize, prop.warpSize},
        {cudaDevAttrClockRate, 1000000},
        {cudaDevAttrMultiProcessorCount, prop.multiProcessorCount},
        {cudaDevAttrMemoryClockRate, 1000000},
        {cudaDevAttrGlobalMemoryBusWidth, prop.memoryBusWidth},
        {cudaDevAttrL2CacheSize, prop.l2CacheSize},
        {cudaDevAttrComputeCapabilityMajor, prop.major},
        {cudaDevAttrComputeCapabilityMinor, prop.minor},
    };
    for (const auto &v : values)
        if (v.attr == attr) {
            *value = v.value;
            return cudaSuccess;
        }
    return failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

extern "C" void cuda_emulation_get(cuda_emulation_counts *out)
{
    guard g(lock());
    *out = counts;
}
