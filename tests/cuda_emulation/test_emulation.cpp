// The emulation itself: what right kernels compute, and that it sees planted faults.
#include "cublas_v2.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "emulation.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#define OK(call) assert_int_equal((call), 0)

static cudaLaunchConfig_t shape(unsigned int grid, unsigned int block,
                                cudaStream_t stream = nullptr)
{
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(grid);
    c.blockDim = dim3(block);
    c.stream = stream;
    return c;
}

template <class T> static T *to_device(const std::vector<T> &v)
{
    T *p = nullptr;
    OK(cudaMalloc(&p, v.size() * sizeof(T)));
    OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> static std::vector<T> to_host(const T *p, size_t n)
{
    std::vector<T> v(n);
    OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

/* --- kernels: right ones --- */

// Sum of a block's values by halves in shared memory.
template <bool WITH_BARRIERS> __global__ void block_sum(const float *x, float *y)
{
    __shared__ float part[128];
    unsigned int t = threadIdx.x;
    part[t] = x[blockIdx.x * 128 + t];
    if (WITH_BARRIERS) __syncthreads();
    for (unsigned int step = 64; step; step /= 2) {
        if (t < step) part[t] += part[t + step];
        if (WITH_BARRIERS) __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}

__global__ void warp_sum(const int *x, int *y)
{
    int v = x[threadIdx.x];
    for (int d = 16; d; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    unsigned int odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    int up = __shfl_up_sync(0xffffffffu, (int)threadIdx.x, 1);
    int down = __shfl_down_sync(0xffffffffu, (int)threadIdx.x, 3, 8);
    y[threadIdx.x] = v;
    if (odd != 0xaaaaaaaau || up != (int)(threadIdx.x % 32 ? threadIdx.x - 1 : threadIdx.x) ||
        down != (int)(threadIdx.x % 8 < 5 ? threadIdx.x + 3 : threadIdx.x))
        y[threadIdx.x] = -1;
    atomicAdd(&y[64], 1);
}

__global__ void scale(float *x, float factor, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] *= factor;
}

/* --- kernels: with a fault in each --- */

__global__ void write_past_end(float *x, int n)
{
    x[n + (int)threadIdx.x] = 1;
}
__global__ void write_far_past_end(float *x)
{
    x[1 << 20] = 1;
}
__global__ void half_waits(float *x)
{
    if (threadIdx.x < 16)
        __shfl_xor_sync(0xffffffffu, x[0], 1);
    else
        __syncthreads();
}
__global__ void wrong_mask(float *x)
{
    x[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1);
}

/* y[n, rows] = x[n, cols] W^T by a library product; the fault: W taken as it lies. */
static cublasStatus_t linear(cublasHandle_t h, const float *w, const float *x, float *y, int rows,
                             int cols, int n, bool transpose_forgotten)
{
    float one = 1, zero = 0;
    if (transpose_forgotten)
        return cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, rows, n, cols, &one, w, rows, x, cols,
                           &zero, y, rows);
    return cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, rows, n, cols, &one, w, cols, x, cols, &zero, y,
                       rows);
}

/* --- right kernels compute what they should, in every order --- */

static void test_barriers_and_orders(void **)
{
    std::vector<float> x(256);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)i;
    float *dx = to_device(x), *dy = to_device(std::vector<float>(2));
    for (int order = CUDA_EMULATION_ASCENDING; order <= CUDA_EMULATION_SHUFFLED; order++) {
        cuda_emulation_set_order((cuda_emulation_order)order);
        cudaLaunchConfig_t c = shape(2, 128);
        OK(cudaLaunchKernelEx(&c, block_sum<true>, (const float *)dx, dy));
        std::vector<float> y = to_host(dy, 2);
        assert_true(y[0] == 8128 && y[1] == 24512);
    }
    cuda_emulation_set_order(CUDA_EMULATION_ASCENDING);
    cudaFree(dx);
    cudaFree(dy);
}

static void test_missing_barrier_is_seen(void **)
{
    std::vector<float> x(128, 1);
    float *dx = to_device(x), *dy = to_device(std::vector<float>(1));
    int wrong = 0;
    for (int order = CUDA_EMULATION_ASCENDING; order <= CUDA_EMULATION_SHUFFLED; order++) {
        cuda_emulation_set_order((cuda_emulation_order)order);
        cudaLaunchConfig_t c = shape(1, 128);
        OK(cudaLaunchKernelEx(&c, block_sum<false>, (const float *)dx, dy));
        wrong += to_host(dy, 1)[0] != 128;
    }
    cuda_emulation_set_order(CUDA_EMULATION_ASCENDING);
    assert_true(wrong > 0);
    cudaFree(dx);
    cudaFree(dy);
}

static void test_warps(void **)
{
    std::vector<int> x(64), zero(65, 0);
    for (int i = 0; i < 64; i++)
        x[(size_t)i] = i;
    int *dx = to_device(x), *dy = to_device(zero);
    cudaLaunchConfig_t c = shape(1, 64);
    OK(cudaLaunchKernelEx(&c, warp_sum, (const int *)dx, dy));
    std::vector<int> y = to_host(dy, 65);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(y[i], i < 32 ? 496 : 1520);
    assert_int_equal(y[64], 64);
    cudaFree(dx);
    cudaFree(dy);
}

static void test_graphs(void **)
{
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *d = to_device(std::vector<float>{1, 2, 3});
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cudaLaunchConfig_t c = shape(1, 32, s);
    OK(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3));
    OK(cudaLaunchKernelEx(&c, scale, d, 5.0f, 3));
    OK(cudaStreamEndCapture(s, &graph));
    assert_true(to_host(d, 3)[2] == 3); // captured, not run
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    assert_true(to_host(d, 3)[2] == 300);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(s));
    cudaFree(d);
}

// What a device refuses while a stream records; the recording is worthless then.
static void test_recording_rules(void **)
{
    cudaStream_t s;
    cudaGraph_t graph;
    float *d = to_device(std::vector<float>{1, 2, 3}), *more = nullptr;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int what = 0; what < 3; what++) {
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        cudaError_t e = what == 0   ? cudaMalloc(&more, 4)
                        : what == 1 ? cudaFree(d)
                                    : cudaStreamSynchronize(s);
        assert_int_equal(e, cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    }
    assert_true(to_host(d, 3)[2] == 3);
    OK(cudaStreamDestroy(s));
    cudaFree(d);
    cudaGetLastError();
}

// A launch that is refused leaves the rest alone; a lost device fails everywhere.
static void test_planted_failures(void **)
{
    float *d = to_device(std::vector<float>{1, 2, 3}), *more = nullptr;
    cudaLaunchConfig_t c = shape(1, 32);
    cuda_emulation_plant_failure(CUDA_EMULATION_REFUSED, 2);
    OK(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3));
    assert_int_equal(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3), cudaErrorLaunchOutOfResources);
    OK(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3));
    assert_true(to_host(d, 3)[2] == 12);
    cuda_emulation_plant_failure(CUDA_EMULATION_LOST, 2);
    OK(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3));
    OK(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3)); // it shows later
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&more, 4), cudaErrorIllegalAddress);
    assert_int_equal(cudaLaunchKernelEx(&c, scale, d, 2.0f, 3), cudaErrorIllegalAddress);
    cuda_emulation_plant_failure(CUDA_EMULATION_NONE, 0);
    assert_true(to_host(d, 3)[2] == 24);
    cudaFree(d);
    cudaGetLastError();
}

// Two streams: with the event the second sees the first one's result, without it the old value.
static void test_streams_wait_only_for_events(void **)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int waits = 0; waits < 2; waits++) {
        float *d = to_device(std::vector<float>{1});
        float *pinned;
        OK(cudaMallocHost(&pinned, sizeof *pinned));
        cudaLaunchConfig_t c = shape(1, 1, first);
        OK(cudaLaunchKernelEx(&c, scale, d, 7.0f, 1));
        OK(cudaEventRecord(event, first));
        if (waits) OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaMemcpyAsync(pinned, d, sizeof *pinned, cudaMemcpyDeviceToHost, second));
        OK(cudaStreamSynchronize(second));
        assert_true(*pinned == (waits ? 7 : 1));
        OK(cudaFreeHost(pinned));
        cudaFree(d);
    }
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}

static void test_half(void **)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = __half2float(__ushort_as_half((unsigned short)h));
        if (f == f) assert_int_equal(__half_as_ushort(__float2half(f)), h);
    }
    assert_int_equal(__half_as_ushort(__float2half(1.00048828125f)), 0x3c00);     // tie to even
    assert_int_equal(__half_as_ushort(__float2half(1.00146484375f)), 0x3c02);     // tie to even
    assert_int_equal(__half_as_ushort(__float2half(65520)), 0x7c00);              // to infinity
    assert_int_equal(__half_as_ushort(__float2half(2.98023223876953125e-8f)), 0); // tie to zero
}

static void test_products(void **)
{
    const int rows = 3, cols = 4, n = 2;
    std::vector<float> w, x;
    for (int i = 0; i < rows * cols; i++)
        w.push_back((float)(i * i % 7));
    for (int i = 0; i < n * cols; i++)
        x.push_back((float)(i % 5 - 2));
    float *dw = to_device(w), *dx = to_device(x), *dy = to_device(std::vector<float>(rows * n));
    cublasHandle_t h;
    OK(cublasCreate(&h));
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        OK(linear(h, dw, dx, dy, rows, cols, n, forgotten));
        std::vector<float> y = to_host(dy, (size_t)(rows * n));
        int wrong = 0;
        for (int i = 0; i < n; i++)
            for (int r = 0; r < rows; r++) {
                float sum = 0;
                for (int k = 0; k < cols; k++)
                    sum += w[(size_t)(r * cols + k)] * x[(size_t)(i * cols + k)];
                wrong += y[(size_t)(i * rows + r)] != sum;
            }
        assert_true(forgotten ? wrong > 0 : wrong == 0);
    }
    // a leading dimension that is too small for the matrix as it is named
    float one = 1, zero = 0;
    assert_int_equal(
        cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 2, 3, &one, dw, 3, dx, 3, &zero, dy, 4),
        CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasDestroy(h));
    cudaFree(dw);
    cudaFree(dx);
    cudaFree(dy);
}

static void test_out_of_memory(void **)
{
    size_t free_bytes, total;
    void *p;
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(cudaMalloc(&p, free_bytes + 1), cudaErrorMemoryAllocation);
    assert_null(p);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
}

/* --- planted faults end the program with a sentence that names them --- */

static void fault_past_end(void)
{
    float *d = to_device(std::vector<float>(10));
    cudaLaunchConfig_t c = shape(1, 2);
    cudaLaunchKernelEx(&c, write_past_end, d, 10);
    cudaDeviceSynchronize();
}

static void fault_far_past_end(void)
{
    float *d = to_device(std::vector<float>(10));
    cudaLaunchConfig_t c = shape(1, 1);
    cudaLaunchKernelEx(&c, write_far_past_end, d);
    cudaDeviceSynchronize();
}

static void fault_freed(void)
{
    float *d = to_device(std::vector<float>(10));
    cudaFree(d);
    cudaLaunchConfig_t c = shape(1, 1);
    cudaLaunchKernelEx(&c, scale, d, 2.0f, 1);
    cudaDeviceSynchronize();
}

static void fault_host_reads(void)
{
    float *d = to_device(std::vector<float>(10));
    volatile float f = *d;
    (void)f;
}

static void fault_deadlock(void)
{
    float *d = to_device(std::vector<float>(1));
    cudaLaunchConfig_t c = shape(1, 32);
    cudaLaunchKernelEx(&c, half_waits, d);
    cudaDeviceSynchronize();
}

static void fault_mask(void)
{
    float *d = to_device(std::vector<float>(32));
    cudaLaunchConfig_t c = shape(1, 32);
    cudaLaunchKernelEx(&c, wrong_mask, d);
    cudaDeviceSynchronize();
}

static void fault_product(void)
{
    float *d = to_device(std::vector<float>(11)), *out = to_device(std::vector<float>(16));
    cublasHandle_t h;
    cublasCreate(&h);
    linear(h, d, d, out, 3, 4, 1, false); // W needs 12 floats
    cudaDeviceSynchronize();
}

// Four floats from the second one on.
__global__ void load_four(const float *x, float *y)
{
    *(float4 *)y = *(const float4 *)(x + 1);
}

static void fault_alignment(void)
{
    float *x = to_device(std::vector<float>(8)), *y = to_device(std::vector<float>(4));
    cudaLaunchConfig_t c = shape(1, 1);
    cudaLaunchKernelEx(&c, load_four, (const float *)x, y);
    cudaDeviceSynchronize();
}

static cudaStream_t recording_stream(void)
{
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    return s;
}

static void fault_recorded_copy(void)
{
    float *d = to_device(std::vector<float>(4)), host[4] = {0};
    cudaMemcpyAsync(d, host, sizeof host, cudaMemcpyHostToDevice, recording_stream());
}

static void fault_recorded_product(void)
{
    float *d = to_device(std::vector<float>(64)), *out = to_device(std::vector<float>(16));
    cublasHandle_t h;
    cublasCreate(&h);
    cublasSetWorkspace(h, d, 256);
    cublasSetStream(h, recording_stream()); // forgets the workspace
    linear(h, d, d, out, 3, 4, 1, false);
}

static void test_planted_faults(void **)
{
    const struct {
        void (*run)(void);
        const char *says;
    } faults[] = {
        {fault_past_end, "written behind the end of an allocation of 40 bytes"},
        {fault_far_past_end, "invalid access to device memory"},
        {fault_freed, "invalid access to device memory"},
        {fault_host_reads, "touched outside of kernels"},
        {fault_deadlock, "waits for its warp"},
        {fault_mask, "leaves it out"},
        {fault_product, "leave an allocation of 44 bytes"},
        {fault_alignment, "no multiple of what is read"},
        {fault_recorded_copy, "isn't pinned is recorded"},
        {fault_recorded_product, "no workspace was set"},
    };
    for (const auto &f : faults) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            dup2(ends[1], 2);
            f.run();
            _exit(0);
        }
        close(ends[1]);
        std::string text;
        char buffer[512];
        for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
            text.append(buffer, (size_t)n);
        close(ends[0]);
        int status;
        waitpid(child, &status, 0);
        if (text.find(f.says) == std::string::npos)
            fail_msg("expected \"%s\", read: %s", f.says, text.c_str());
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers_and_orders),
        cmocka_unit_test(test_missing_barrier_is_seen),
        cmocka_unit_test(test_warps),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_recording_rules),
        cmocka_unit_test(test_planted_failures),
        cmocka_unit_test(test_streams_wait_only_for_events),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_planted_faults),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
