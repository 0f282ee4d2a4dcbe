/* The CUDA backend: choosing a device, opening, the table of operations. */
#include "kernels/cuda/cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define BLAS_WORKSPACE_BYTES ((size_t)32 << 20)
#define LEAST_MAJOR          8 /* sm_80: the oldest the library is built for */

/* --- choosing --------------------------------------------------------------------------------- */

/* The first device of a kind that the library has code for; -1 with a sentence. CUDA's own
 * environment (CUDA_VISIBLE_DEVICES) says which one is the first. */
static int find_device(cudaDeviceProp *properties, char *sentence, size_t size)
{
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
        snprintf(sentence, size, "CUDA finds no device: %s",
                 result == cudaSuccess ? "there is none" : cudaGetErrorString(result));
        cudaGetLastError();
        return -1;
    }
    for (int device = 0; device < count; device++) {
        result = cudaGetDeviceProperties(properties, device);
        if (result == cudaSuccess && properties->major >= LEAST_MAJOR) return device;
    }
    snprintf(sentence, size, "%s (sm_%d%d) is too old: sm_%d0 is the least", properties->name,
             properties->major, properties->minor, LEAST_MAJOR);
    return -1;
}

static bool usable(char *sentence, size_t size)
{
    cudaDeviceProp properties;
    memset(&properties, 0, sizeof properties);
    if (find_device(&properties, sentence, size) < 0) return false;
    snprintf(sentence, size, "%s, sm_%d%d, %zu MB", properties.name, properties.major,
             properties.minor, properties.totalGlobalMem >> 20);
    return true;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void cuda_close(kn_backend *be)
{
    kn_cuda *c = kn_cuda_of(be);
    if (c->stream) kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing");
    kn_cuda_forget_graphs(c);
    kn_cuda_arena_close(c);
    kn_cuda_scratch *const scratches[] = {
        &c->activations, &c->weights,   &c->product,  &c->partials, &c->shrunk,
        &c->rope_table,  &c->rope_freq, &c->rows,     &c->raw,      &c->sampling,
        &c->training,    &c->training2, &c->step_ints};
    for (size_t i = 0; i < sizeof scratches / sizeof *scratches; i++)
        kn_cuda_scratch_free(c, scratches[i]);
    kn_cuda_memory_close(c);
    if (c->blas) kn_cuda_check_blas(c, cublasDestroy(c->blas), "closing");
    kn_cuda_wipe_free(c, c->blas_workspace, BLAS_WORKSPACE_BYTES);
    if (c->stream) kn_cuda_check(c, cudaStreamDestroy(c->stream), "closing the stream");
    free(c->freq_key);
    free(c->buffers);
    free(c);
}

/* What rows of activations passed through. Tables of positions' angles stay: they say nothing. */
static void cuda_forget(kn_backend *be)
{
    kn_cuda *c = kn_cuda_of(be);
    const struct {
        void *data;
        size_t bytes;
    } used[] = {{c->activations.data, c->activations.bytes},
                {c->weights.data, c->weights.bytes},
                {c->product.data, c->product.bytes},
                {c->partials.data, c->partials.bytes},
                {c->shrunk.data, c->shrunk.bytes},
                {c->rows.data, c->rows.bytes},
                {c->raw.data, c->raw.bytes},
                {c->sampling.data, c->sampling.bytes},
                {c->training.data, c->training.bytes},
                {c->training2.data, c->training2.bytes},
                {c->step_ints.data, c->step_ints.bytes},
                {c->blas_workspace, BLAS_WORKSPACE_BYTES},
                {c->ring_device, c->ring_bytes}};
    if (!kn_cuda_check(c, cudaStreamSynchronize(c->stream), "computing")) return;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (used[i].data)
            kn_cuda_check(c, cudaMemsetAsync(used[i].data, 0, used[i].bytes, c->stream),
                          "clearing memory");
    memset(c->ring, 0, c->ring_bytes);
}

static void cuda_counters(const kn_backend *be, kn_counters *out)
{
    *out = ((const kn_cuda *)be)->counters;
}

static const kn_backend_ops *operations(void)
{
    static kn_backend_ops ops;
    ops.close = cuda_close;
    ops.buffer_alloc = kn_cuda_buffer_alloc;
    ops.buffer_free = kn_cuda_buffer_free;
    ops.upload = kn_cuda_upload;
    ops.download = kn_cuda_download;
    ops.weight_create = kn_cuda_weight_create;
    ops.weight_free = kn_cuda_weight_free;
    ops.weight_bytes = kn_cuda_weight_bytes;
    ops.weight_rows = kn_cuda_weight_rows;
    ops.adapter_create = kn_cuda_adapter_create;
    ops.adapter_free = kn_cuda_adapter_free;
    ops.adapter_bytes = kn_cuda_adapter_bytes;
    ops.embed = kn_cuda_embed;
    ops.rmsnorm = kn_cuda_rmsnorm;
    ops.linear = kn_cuda_linear;
    ops.rope = kn_cuda_rope;
    ops.swiglu = kn_cuda_swiglu;
    ops.add = kn_cuda_add;
    ops.gather = kn_cuda_gather;
    ops.kv_create = kn_cuda_kv_create;
    ops.kv_free = kn_cuda_kv_free;
    ops.kv_page_bytes = kn_cuda_kv_page_bytes;
    ops.kv_write = kn_cuda_kv_write;
    ops.kv_copy = kn_cuda_kv_copy;
    ops.kv_clear = kn_cuda_kv_clear;
    ops.attention = kn_cuda_attention;
    ops.lora = kn_cuda_lora;
    ops.direft = kn_cuda_direft;
    ops.counters = cuda_counters;
    ops.forget = cuda_forget;
    ops.good = kn_cuda_good;
    ops.recover = kn_cuda_recover;
    ops.memory = kn_cuda_memory;
    ops.step_begin = kn_cuda_step_begin;
    ops.step_end = kn_cuda_step_end;
    ops.step_rows = kn_cuda_step_rows;
    ops.sample = kn_cuda_sample;
    return &ops;
}

/* cuBLAS with a workspace of its own, so that its calls can be recorded. */
static bool open_blas(kn_cuda *c)
{
    if (!kn_cuda_check_blas(c, cublasCreate(&c->blas), "opening")) return false;
    c->blas_workspace = kn_cuda_alloc(c, BLAS_WORKSPACE_BYTES, "the workspace of cuBLAS");
    return c->blas_workspace &&
           kn_cuda_check_blas(c, cublasSetStream(c->blas, c->stream), "setting the stream") &&
           kn_cuda_check_blas(c,
                              cublasSetWorkspace(c->blas, c->blas_workspace, BLAS_WORKSPACE_BYTES),
                              "setting the workspace") &&
           kn_cuda_check_blas(c, cublasSetMathMode(c->blas, CUBLAS_DEFAULT_MATH),
                              "setting the mode");
}

static bool open_parts(kn_cuda *c)
{
    return kn_cuda_check(c, cudaSetDevice(c->device), "choosing the device") &&
           kn_cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                         "making a stream") &&
           kn_cuda_memory_open(c) && open_blas(c) && kn_cuda_arena_open(c);
}

static const char *const mode_names[] = {"", "exact", "precise"}; /* kn_cuda_mode */
#define N_MODES ((int)(sizeof mode_names / sizeof *mode_names))

/* False: there is no such isa. */
static bool find_mode(const char *isa, kn_cuda_mode *mode)
{
    *mode = KN_CUDA_FAST;
    for (int i = 1; isa && i < N_MODES; i++)
        if (strcmp(isa, mode_names[i]) == 0) *mode = (kn_cuda_mode)i;
    return !isa || *mode != KN_CUDA_FAST;
}

static kn_backend *cuda_open(const kn_options *options, char *message, size_t message_size)
{
    cudaDeviceProp properties;
    kn_cuda_mode mode;
    memset(&properties, 0, sizeof properties);
    if (!find_mode(options->isa, &mode)) {
        snprintf(message, message_size, "isa '%s' is not one of CUDA's; there are: exact, precise",
                 options->isa);
        return NULL;
    }
    int device = find_device(&properties, message, message_size);
    if (device < 0) return NULL;
    kn_cuda *c = (kn_cuda *)calloc(1, sizeof *c);
    if (!c) {
        snprintf(message, message_size, "out of memory");
        return NULL;
    }
    static char isa[N_MODES][32]; /* callers keep the name */
    snprintf(isa[mode], sizeof isa[mode], "sm_%d%d%s%s", properties.major, properties.minor,
             mode == KN_CUDA_FAST ? "" : " ", mode_names[mode]);
    c->base.ops = operations();
    c->base.device = "cuda";
    c->base.isa = isa[mode];
    c->base.threads = 1;
    c->base.train = &kn_cuda_train_ops;
    c->device = device;
    c->processors = properties.multiProcessorCount;
    c->mode = mode;
    if (open_parts(c)) return &c->base;
    snprintf(message, message_size, "%s", c->base.message);
    cuda_close(&c->base);
    return NULL;
}

extern "C" __attribute__((visibility("default"))) const kn_cuda_plugin kn_cuda_plugin_table =
    KN_CUDA_PLUGIN(cuda_open, usable);
