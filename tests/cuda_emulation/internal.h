/* Shared by the emulation's own files. Everything here is used under the one lock that every call
 * of the interface takes: a device executes one thing at a time. */
#ifndef CUDA_EMULATION_INTERNAL_H
#define CUDA_EMULATION_INTERNAL_H

#include "cuda_runtime.h"
#include "emulation.h"

#include <mutex>
#include <string>

namespace cuda_emulation
{

typedef std::lock_guard<std::recursive_mutex> guard;
std::recursive_mutex &lock(void);

/* Remembers the error for cudaGetLastError and returns it. */
cudaError_t failed(cudaError_t error);

extern cuda_emulation_counts counts;

/* --- memory.cpp: device memory --- */

/* Device memory may be touched only while one of these lives. */
struct device_access {
    device_access();
    ~device_access();
    device_access(const device_access &) = delete;
    device_access &operator=(const device_access &) = delete;
};
/* Faults unless [p, p + bytes) lies in one allocation of device memory. what: for the message. */
void check_device_range(const void *p, size_t bytes, const char *what);
bool is_device_pointer(const void *p);
bool is_pinned(const void *p);
/* Faults if bytes right before or after an allocation were written. who: what ran last. */
void check_canaries(const char *who);
// cudaFree for the emulation's own memory on the device.
void give_back(void *ptr);

/* --- stream.cpp: queues --- */

/* cudaSuccess, or what makes every call fail. */
cudaError_t device_state(void);
/* A kernel is launched, or runs: the planted failure may be due. */
cudaError_t count_launch(void);
void count_run(void);
/* What may not happen while any stream records: cudaErrorStreamCaptureUnsupported, and the
 * recording is worthless. */
cudaError_t forbid_capture(void);
bool captures(cudaStream_t stream);

/* Queues work on a stream (NULL or cudaStreamLegacy: the default stream), or adds it to the graph
 * that the stream is capturing. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/* --- launch.cpp: blocks of threads --- */

/* Runs a grid to its end. */
void run_grid(dim3 grid, dim3 block, const std::string &name, const std::function<void()> &thread);
/* "kernel NAME, block (x,y,z), thread (x,y,z)" inside a kernel, else "host code". */
std::string where(void);
/* Called by the handler of invalid accesses: the address lies in device memory. */
[[noreturn]] void invalid_access(const void *address);

} // namespace cuda_emulation

#endif
