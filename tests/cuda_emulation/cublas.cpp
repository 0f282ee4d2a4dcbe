// Matrix products as cuBLAS defines them: column-major, leading dimensions, transposes. Arguments
// are checked as cuBLAS checks them, and the ranges of the operands as nothing else does.
#include "cublas_v2.h"
#include "internal.h"

#include <cstdio>
#include <vector>

using namespace cuda_emulation;

struct cuda_emulation_cublas {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
    bool own_workspace = false; // set by the caller since the stream was
};

namespace
{

struct product {
    bool transpose_a, transpose_b;
    int m, n, k;
    float alpha, beta;
    cudaDataType type_ab, type_c;
    int lda, ldb, ldc;
};

size_t size_of(cudaDataType t)
{
    return t == CUDA_R_32F ? 4 : t == CUDA_R_8I ? 1 : 2;
}

float load(const void *p, size_t i, cudaDataType t)
{
    switch (t) {
    case CUDA_R_32F:
        return ((const float *)p)[i];
    case CUDA_R_16F:
        return ((const __half *)p)[i];
    case CUDA_R_16BF:
        return ((const __nv_bfloat16 *)p)[i];
    default:
        return (float)((const int8_t *)p)[i];
    }
}

void store(void *p, size_t i, cudaDataType t, float v)
{
    if (t == CUDA_R_32F)
        ((float *)p)[i] = v;
    else if (t == CUDA_R_16F)
        ((__half *)p)[i] = __half(v);
    else
        ((__nv_bfloat16 *)p)[i] = __nv_bfloat16(v);
}

size_t extent(int rows, int columns, int ld, cudaDataType t)
{
    return rows && columns ? ((size_t)ld * (size_t)(columns - 1) + (size_t)rows) * size_of(t) : 0;
}

// op(X) [rows, columns] as floats, row-major when by_row, else column-major.
std::vector<float> unpack(const void *x, bool transpose, int rows, int columns, int ld,
                          cudaDataType t, bool by_row)
{
    std::vector<float> out((size_t)rows * (size_t)columns);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            size_t at =
                transpose ? (size_t)i * (size_t)ld + (size_t)j : (size_t)j * (size_t)ld + (size_t)i;
            out[by_row ? (size_t)i * (size_t)columns + (size_t)j
                       : (size_t)j * (size_t)rows + (size_t)i] = load(x, at, t);
        }
    return out;
}

void multiply(const product &p, const void *a, const void *b, void *c)
{
    counts.gemms++;
    bool ta = p.transpose_a, tb = p.transpose_b;
    if (p.alpha != 0 && p.k) {
        check_device_range(a, extent(ta ? p.k : p.m, ta ? p.m : p.k, p.lda, p.type_ab),
                           "matrix A of a product");
        check_device_range(b, extent(tb ? p.n : p.k, tb ? p.k : p.n, p.ldb, p.type_ab),
                           "matrix B of a product");
    }
    check_device_range(c, extent(p.m, p.n, p.ldc, p.type_c), "matrix C of a product");
    std::vector<float> ua = unpack(a, ta, p.m, p.k, p.lda, p.type_ab, false);
    std::vector<float> ub = unpack(b, tb, p.k, p.n, p.ldb, p.type_ab, false);
    std::vector<float> sums((size_t)p.m);
    for (int j = 0; j < p.n; j++) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int l = 0; l < p.k; l++) {
            float factor = ub[(size_t)j * (size_t)p.k + (size_t)l];
            const float *column = &ua[(size_t)l * (size_t)p.m];
            for (int i = 0; i < p.m; i++)
                sums[(size_t)i] += column[i] * factor;
        }
        for (int i = 0; i < p.m; i++) {
            size_t at = (size_t)j * (size_t)p.ldc + (size_t)i;
            // beta 0: what C held, NaN or not, does not count
            float before = p.beta != 0 ? p.beta * load(c, at, p.type_c) : 0;
            store(c, at, p.type_c, p.alpha * sums[(size_t)i] + before);
        }
    }
}

bool supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute)
{
    if (compute == CUBLAS_COMPUTE_16F || a != b) return false;
    bool fast = compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC;
    if (a == CUDA_R_32F) return c == CUDA_R_32F;
    return !fast && (c == CUDA_R_32F || (c == a && a != CUDA_R_8I));
}

cublasStatus_t describe(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                        int m, int n, int k, const void *alpha, cudaDataType type_a, int lda,
                        cudaDataType type_b, int ldb, const void *beta, cudaDataType type_c,
                        int ldc, cublasComputeType_t compute, product *out)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
    if (m < 0 || n < 0 || k < 0 || lda < std::max(1, ta ? k : m) || ldb < std::max(1, tb ? n : k) ||
        ldc < std::max(1, m) || !alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(type_a, type_b, type_c, compute) ||
        handle->pointer_mode != CUBLAS_POINTER_MODE_HOST)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!handle->own_workspace && captures(handle->stream))
        fault("a matrix product is recorded, and no workspace was set after the stream: cuBLAS "
              "would allocate one");
    *out = {ta,     tb,     m,   n,   k,  *(const float *)alpha, *(const float *)beta,
            type_a, type_c, lda, ldb, ldc};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t status_of(cudaError_t e)
{
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = new cuda_emulation_cublas;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *version)
{
    *version = 130000;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->own_workspace = false; // so is the real one's
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t *stream)
{
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
    handle->pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    guard g(lock());
    if ((uintptr_t)workspace % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    handle->own_workspace = true;
    check_device_range(workspace, bytes, "workspace of cuBLAS");
    return CUBLAS_STATUS_SUCCESS;
}

static const struct {
    cublasStatus_t status;
    const char *name, *text;
} STATUSES[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "library not initialized"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an argument is invalid"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "execution failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "not supported"},
};

const char *cublasGetStatusName(cublasStatus_t status)
{
    for (const auto &s : STATUSES)
        if (s.status == status) return s.name;
    return "unknown status";
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    for (const auto &s : STATUSES)
        if (s.status == status) return s.text;
    return "unknown status";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t)
{
    guard g(lock());
    product p;
    cublasStatus_t s = describe(handle, op_a, op_b, m, n, k, alpha, type_a, lda, type_b, ldb, beta,
                                type_c, ldc, compute, &p);
    if (s != CUBLAS_STATUS_SUCCESS || !m || !n) return s;
    return status_of(enqueue(handle->stream, [=]() {
        for (long long i = 0; i < batch; i++)
            multiply(p, (const char *)a + i * stride_a * (long long)size_of(type_a),
                     (const char *)b + i * stride_b * (long long)size_of(type_b),
                     (char *)c + i * stride_c * (long long)size_of(type_c));
    }));
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType type_a, int lda, const void *b, cudaDataType type_b,
                            int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b,
                                      type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute,
                                      algorithm);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb,
                        beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int batch)
{
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda,
                                      stride_a, b, CUDA_R_32F, ldb, stride_b, beta, c, CUDA_R_32F,
                                      ldc, stride_c, batch, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT);
}

static void multiply_listed(const product &p, const void *const *a, const void *const *b,
                            void *const *c, int count)
{
    size_t bytes = (size_t)count * sizeof(void *);
    check_device_range(a, bytes, "list of matrices A");
    check_device_range(b, bytes, "list of matrices B");
    check_device_range(c, bytes, "list of matrices C");
    for (int i = 0; i < count; i++)
        multiply(p, a[i], b[i], c[i]);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                   cublasOperation_t op_b, int m, int n, int k, const void *alpha,
                                   const void *const a[], cudaDataType type_a, int lda,
                                   const void *const b[], cudaDataType type_b, int ldb,
                                   const void *beta, void *const c[], cudaDataType type_c, int ldc,
                                   int batch, cublasComputeType_t compute, cublasGemmAlgo_t)
{
    guard g(lock());
    product p;
    cublasStatus_t s = describe(handle, op_a, op_b, m, n, k, alpha, type_a, lda, type_b, ldb, beta,
                                type_c, ldc, compute, &p);
    if (s != CUBLAS_STATUS_SUCCESS || !m || !n) return s;
    return status_of(enqueue(handle->stream, [=]() { multiply_listed(p, a, b, c, batch); }));
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t op_a[], const cublasOperation_t op_b[],
    const int m[], const int n[], const int k[], const void *alpha, const void *const a[],
    cudaDataType_t type_a, const int lda[], const void *const b[], cudaDataType_t type_b,
    const int ldb[], const void *beta, void *const c[], cudaDataType_t type_c, const int ldc[],
    int groups, const int group_size[], cublasComputeType_t compute)
{
    guard g(lock());
    int first = 0;
    for (int i = 0; i < groups; i++) {
        product p;
        cublasStatus_t s =
            describe(handle, op_a[i], op_b[i], m[i], n[i], k[i], (const float *)alpha + i, type_a,
                     lda[i], type_b, ldb[i], (const float *)beta + i, type_c, ldc[i], compute, &p);
        if (s != CUBLAS_STATUS_SUCCESS) return s;
        int count = group_size[i];
        const void *const *ga = a + first, *const *gb = b + first;
        void *const *gc = c + first;
        if (m[i] && n[i]) {
            s = status_of(
                enqueue(handle->stream, [=]() { multiply_listed(p, ga, gb, gc, count); }));
            if (s != CUBLAS_STATUS_SUCCESS) return s;
        }
        first += count;
    }
    return CUBLAS_STATUS_SUCCESS;
}
