/* Failures, device memory, copies. */
#include "kernels/cuda/cuda.h"

#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define RING_BYTES ((size_t)8 << 20)

/* --- failures --------------------------------------------------------------------------------- */

void kn_cuda_fail(kn_cuda *c, const char *format, ...)
{
    if (c->failed) return; /* the first one is the cause */
    c->failed = true;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->base.message, sizeof c->base.message, format, arguments);
    va_end(arguments);
}

bool kn_cuda_check(kn_cuda *c, cudaError_t result, const char *what)
{
    if (result == cudaSuccess) return true;
    kn_cuda_fail(c, "CUDA: %s failed: %s (%s)", what, cudaGetErrorString(result),
                 cudaGetErrorName(result));
    cudaGetLastError(); /* forgotten, unless it stays */
    return false;
}

bool kn_cuda_check_blas(kn_cuda *c, cublasStatus_t result, const char *what)
{
    if (result == CUBLAS_STATUS_SUCCESS) return true;
    kn_cuda_fail(c, "cuBLAS: %s failed: %s", what, cublasGetStatusString(result));
    return false;
}

bool kn_cuda_good(kn_backend *be)
{
    kn_cuda *c = kn_cuda_of(be);
    kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing");
    return !c->failed;
}

bool kn_cuda_recover(kn_backend *be)
{
    kn_cuda *c = kn_cuda_of(be);
    if (!c->failed) return true;
    cudaGetLastError();
    c->lost = cudaStreamSynchronize(c->stream) != cudaSuccess;
    c->failed = c->lost;
    return !c->lost;
}

void kn_cuda_memory(kn_backend *be, size_t *free_bytes, size_t *total_bytes)
{
    kn_cuda *c = kn_cuda_of(be);
    *free_bytes = *total_bytes = 0;
    kn_cuda_check(c, cudaMemGetInfo(free_bytes, total_bytes), "asking for the free memory");
}

/* --- device memory ---------------------------------------------------------------------------- */

void *kn_cuda_alloc(kn_cuda *c, size_t bytes, const char *what)
{
    void *p = NULL;
    cudaSetDevice(c->device); /* the calling thread's own setting */
    cudaError_t result = cudaMalloc(&p, bytes ? bytes : 1);
    if (result == cudaSuccess) return p;
    size_t free_bytes = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total);
    snprintf(c->base.message, sizeof c->base.message,
             "out of device memory: %s needs %zu bytes, %zu of %zu are free%s%s", what, bytes,
             free_bytes, total, result == cudaErrorMemoryAllocation ? "" : ": ",
             result == cudaErrorMemoryAllocation ? "" : cudaGetErrorString(result));
    return NULL;
}

void kn_cuda_free(kn_cuda *c, void *p)
{
    if (!p) return;
    kn_cuda_forget_graphs(c);
    kn_cuda_check(c, cudaFree(p), "giving memory back"); /* waits for the work that uses it */
}

void kn_cuda_wipe_free(kn_cuda *c, void *p, size_t bytes)
{
    if (!p) return;
    kn_cuda_check(c, cudaMemsetAsync(p, 0, bytes, c->stream), "wiping memory");
    kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing");
    kn_cuda_free(c, p);
}

void *kn_cuda_scratch_get(kn_cuda *c, kn_cuda_scratch *s, size_t bytes, const char *what)
{
    if (c->failed) return NULL;
    if (bytes <= s->bytes) return s->data;
    if (c->recording) {
        kn_cuda_fail(c, "a recorded step asked for memory (%s)", what);
        return NULL;
    }
    size_t wanted = (bytes + bytes / 4 + 255) / 256 * 256;
    kn_cuda_scratch_free(c, s);
    s->data = kn_cuda_alloc(c, wanted, what);
    if (!s->data) {
        wanted = bytes;
        s->data = kn_cuda_alloc(c, wanted, what);
    }
    if (!s->data) {
        c->failed = true; /* kn_cuda_alloc left the sentence */
        return NULL;
    }
    s->bytes = wanted;
    return s->data;
}

void kn_cuda_scratch_free(kn_cuda *c, kn_cuda_scratch *s)
{
    kn_cuda_wipe_free(c, s->data, s->bytes);
    *s = (kn_cuda_scratch){NULL, 0};
}

/* --- the ring --------------------------------------------------------------------------------- */

bool kn_cuda_memory_open(kn_cuda *c)
{
    c->ring_bytes = RING_BYTES;
    if (!kn_cuda_check(c, cudaMallocHost((void **)&c->ring, RING_BYTES), "taking pinned memory"))
        return false;
    c->ring_device = (uint8_t *)kn_cuda_alloc(c, RING_BYTES, "the staging area");
    return c->ring_device != NULL;
}

void kn_cuda_memory_close(kn_cuda *c)
{
    kn_cuda_wipe_free(c, c->ring_device, c->ring_bytes);
    if (c->ring) memset(c->ring, 0, c->ring_bytes);
    if (c->ring) kn_cuda_check(c, cudaFreeHost(c->ring), "giving pinned memory back");
}

void *kn_cuda_ring(kn_cuda *c, size_t bytes)
{
    if (c->failed) return NULL;
    if (c->recording) {
        kn_cuda_fail(c, "a recorded step sent an array of its own");
        return NULL;
    }
    if (bytes > c->ring_bytes) {
        kn_cuda_fail(c, "an array of %zu bytes in one call; at most %zu can be sent", bytes,
                     c->ring_bytes);
        return NULL;
    }
    if (c->ring_at + bytes > c->ring_bytes) { /* from the start again, when all has been read */
        if (!kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing")) return NULL;
        c->ring_at = 0;
    }
    void *p = c->ring + c->ring_at;
    c->ring_at += (bytes + 255) / 256 * 256;
    return p;
}

void kn_cuda_send_to(kn_cuda *c, void *dst, const void *p, size_t bytes)
{
    if (c->failed || bytes == 0) return;
    kn_cuda_check(c, cudaMemcpyAsync(dst, p, bytes, cudaMemcpyHostToDevice, c->stream),
                  "copying to the device");
}

void *kn_cuda_send(kn_cuda *c, const void *p, size_t bytes)
{
    void *dst = c->ring_device + ((const uint8_t *)p - c->ring);
    kn_cuda_send_to(c, dst, p, bytes);
    return dst;
}

void *kn_cuda_stage(kn_cuda *c, const void *host, size_t bytes)
{
    void *p = kn_cuda_ring(c, bytes);
    if (!p) return NULL;
    memcpy(p, host, bytes);
    return kn_cuda_send(c, p, bytes);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static bool reserve_buffer(kn_cuda *c)
{
    if (c->n_buffers < c->room_for_buffers) return true;
    const int room = c->room_for_buffers ? 2 * c->room_for_buffers : 64;
    kn_cuda_scratch *more =
        (kn_cuda_scratch *)realloc(c->buffers, (size_t)room * sizeof *c->buffers);
    if (!more) {
        snprintf(c->base.message, sizeof c->base.message, "out of memory");
        return false;
    }
    c->buffers = more;
    c->room_for_buffers = room;
    return true;
}

void *kn_cuda_buffer_alloc(kn_backend *be, size_t bytes)
{
    kn_cuda *c = kn_cuda_of(be);
    const size_t size = bytes ? bytes : 1;
    void *p = reserve_buffer(c) ? kn_cuda_alloc(c, size, "a buffer") : NULL;
    if (!p) return NULL;
    if (kn_cuda_check(c, cudaMemsetAsync(p, 0, size, c->stream), "clearing memory")) {
        c->buffers[c->n_buffers++] = (kn_cuda_scratch){p, size};
        return p;
    }
    kn_cuda_free(c, p);
    return NULL;
}

void kn_cuda_buffer_free(kn_backend *be, void *p)
{
    kn_cuda *c = kn_cuda_of(be);
    int i = 0;
    if (!p) return;
    while (c->buffers[i].data != p) {
        i++;
        assert(i < c->n_buffers);
    }
    kn_cuda_wipe_free(c, p, c->buffers[i].bytes);
    c->buffers[i] = c->buffers[--c->n_buffers];
}

void kn_cuda_upload(kn_backend *be, void *dst, const void *host, size_t bytes)
{
    kn_cuda *c = kn_cuda_of(be);
    const size_t most = RING_BYTES / 4;
    for (size_t at = 0; at < bytes; at += most) {
        size_t part = bytes - at < most ? bytes - at : most;
        void *p = kn_cuda_ring(c, part);
        if (!p) return;
        memcpy(p, (const uint8_t *)host + at, part);
        kn_cuda_send_to(c, (uint8_t *)dst + at, p, part);
    }
}

void kn_cuda_download(kn_backend *be, void *host, const void *src, size_t bytes)
{
    kn_cuda *c = kn_cuda_of(be);
    if (bytes == 0) return;
    if (c->failed) {
        memset(host, 0, bytes); /* defined, and known to be worthless: good() is false */
        return;
    }
    c->counters.downloaded_bytes += bytes;
    kn_cuda_check(c, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, c->stream),
                  "copying from the device");
    kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing");
}
