/* Inside the CUDA backend. One stream computes, in the order of the calls; a second one brings
 * adapters. Host arrays of a call travel through a ring of pinned memory. Every call of the
 * runtime and of cuBLAS is checked: the first failure is kept (`failed`, message), what follows
 * does nothing until `recover`.
 *
 * The files compile as CUDA and, for tests without a GPU, as C++17 against a host emulation:
 * kernels are launched through launch() alone, shared memory is static, and what needs the real
 * instruction set stands under __CUDA_ARCH__. */
#ifndef KN_CUDA_CUDA_H
#define KN_CUDA_CUDA_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "kernels/cuda/plugin.h"
}

#include <cstddef>
#include <cstdint>

/* --- weights ---------------------------------------------------------------------------------- */

/* A matrix on the device; passed to kernels by value. Quantized types are kept quantized, their
 * fields in planes of their own, so that each is read in aligned pieces. A group is 32 columns.
 *
 *   type        codes                 high            scales                    super
 *   Q8_0        int8[32]              -               half d                    -
 *   Q4_0        nibbles[16]           -               half d                    -
 *   Q4_1        nibbles[16]           -               half d, half m            -
 *   Q4_K, Q5_K  nibbles[16]           Q5_K: 32 bits   per 8 groups: the file's  -
 *                                                     d, dmin, 12 bytes
 *   Q6_K        nibbles[16]           pairs of bits:  int8[2], one per 16       half d per 8
 *                                     2 words         columns                   groups
 *   floats      elements[stride]      -               -                         -
 *
 * Nibbles: low ones are columns 0..15 of the group, high ones columns 16..31. Bit i of Q5_K's word
 * belongs to column i. Q6_K: bits 2 i.. of byte k of word w belong to column 16 w + 4 i + k.
 * stride: columns rounded up to 16 bytes, padding is zero. */
typedef struct {
    kn_type type;
    int groups;
    int64_t rows, cols, stride;
    const uint8_t *codes, *high, *scales, *super;
} kn_cuda_matrix;

struct kn_weight {
    kn_cuda_matrix m;
    void *block; /* all planes */
    size_t bytes;
    bool wide; /* values outside the 16-bit range: stays away from 16-bit GEMM */
};

/* --- keys and values -------------------------------------------------------------------------- */

/* [page][layer][K, V][kv_head][token][head_dim]. KN_KV_Q8: elements are bytes, and each layer of a
 * page ends with the scales, float32 [K, V][kv_head][token], scales_at bytes from its start. */
struct kn_kv {
    kn_kv_shape shape;
    uint8_t *data;
    size_t element;
    int64_t head_elements, layer_elements, page_elements;
    int64_t scales_at; /* 0: no scales */
};

/* --- adapters --------------------------------------------------------------------------------- */

/* t = A x + bias; y += scale * sum_r t[r] b[r, :]. */
typedef struct {
    const void *a, *b; /* [rank, in], [rank, out] */
    const float *bias;
    float scale;
    int rank;
    int type;
    int64_t in, out;
} kn_cuda_adapter;

struct kn_adapter_weight {
    kn_cuda_adapter d;
    uint8_t *block;
    size_t block_bytes; /* in the arena */
    size_t bytes;       /* of a, b and bias: what applying it reads */
    uint64_t ticket;    /* of its upload */
};

/* --- the backend ------------------------------------------------------------------------------ */

/* Device memory that is people's: wiped before it is given back. */
typedef struct {
    void *data;
    size_t bytes;
} kn_cuda_scratch;

/* A step's rows on the device. table[i]: where row i's pages begin in `pages`, -1 = no row. */
typedef struct {
    const int32_t *tokens, *positions, *table, *pages;
    bool shared; /* neighbouring rows share a context */
    int32_t max_position;
    uint64_t context_tokens; /* sum over contexts, each read once per run of neighbours */
} kn_cuda_rows;

typedef struct kn_cuda_graph kn_cuda_graph;
typedef struct kn_cuda_arena kn_cuda_arena;

#define KN_CUDA_STEP_SETS 2

/* isa NULL, "exact", "precise": see README.md. */
typedef enum { KN_CUDA_FAST, KN_CUDA_EXACT, KN_CUDA_PRECISE } kn_cuda_mode;

typedef struct {
    kn_backend base;
    int device, processors;
    kn_cuda_mode mode;
    bool failed, lost;
    bool no_groups; /* this cuBLAS has no grouped products */
    cudaStream_t stream;
    cublasHandle_t blas;
    void *blas_workspace;
    kn_counters counters;

    /* Pinned ring and its image on the device. */
    uint8_t *ring, *ring_device;
    size_t ring_bytes, ring_at;

    kn_cuda_scratch *buffers; /* those of buffer_alloc that are there, in no order */
    int n_buffers, room_for_buffers;

    kn_cuda_scratch activations, weights, product, partials, shrunk, rope_table, rope_freq, rows,
        raw, sampling, training, training2;

    /* What rope_freq holds, and rope_table within a step. */
    double *freq_key;
    int freq_half;
    const int32_t *table_positions;
    int table_rows;

    /* The step that is running. */
    bool in_step, recording;
    kn_step step;
    kn_step_rows sets[KN_CUDA_STEP_SETS];
    kn_cuda_rows set_rows[KN_CUDA_STEP_SETS];
    kn_cuda_scratch step_ints;    /* the sets' arrays */
    size_t step_rows, step_pages; /* room in it, per set */
    int split_class; /* most splits of a context in this step, rounded up to a power of two */
    uint64_t kv_token_bytes; /* of a recorded step: K and V bytes per token of context */
    kn_counters at_begin;
    kn_cuda_graph *graphs;

    kn_cuda_arena *arena;
} kn_cuda;

static inline kn_cuda *kn_cuda_of(kn_backend *be)
{
    return (kn_cuda *)be;
}

extern const kn_train_ops kn_cuda_train_ops;

/* --- failures: memory.cu ---------------------------------------------------------------------- */

/* False, with the failure kept, unless the result is success. what: "copying to the device". */
bool kn_cuda_check(kn_cuda *c, cudaError_t result, const char *what);
bool kn_cuda_check_blas(kn_cuda *c, cublasStatus_t result, const char *what);
/* Keeps a failure of our own. */
void kn_cuda_fail(kn_cuda *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- memory: memory.cu ------------------------------------------------------------------------ */

/* Device memory, not cleared; NULL with a sentence that names what was asked for and what is free;
 * `failed` is not set. */
void *kn_cuda_alloc(kn_cuda *c, size_t bytes, const char *what);
void kn_cuda_free(kn_cuda *c, void *p);
/* The same for what is people's: wiped first. */
void kn_cuda_wipe_free(kn_cuda *c, void *p, size_t bytes);
/* At least bytes, 256-byte aligned, content undefined; lives until the next call for the same s.
 * NULL: failed. */
void *kn_cuda_scratch_get(kn_cuda *c, kn_cuda_scratch *s, size_t bytes, const char *what);
void kn_cuda_scratch_free(kn_cuda *c, kn_cuda_scratch *s);
/* Room in the pinned ring, to be filled at once and sent with kn_cuda_send; NULL: failed. */
void *kn_cuda_ring(kn_cuda *c, size_t bytes);
/* The ring's room p goes to its image on the device, or to dst. Returns where it lies there. */
void *kn_cuda_send(kn_cuda *c, const void *p, size_t bytes);
void kn_cuda_send_to(kn_cuda *c, void *dst, const void *p, size_t bytes);
/* A host array's copy on the device, alive for the calls that follow at once. NULL: failed. */
void *kn_cuda_stage(kn_cuda *c, const void *host, size_t bytes);
bool kn_cuda_memory_open(kn_cuda *c);
void kn_cuda_memory_close(kn_cuda *c);

void *kn_cuda_buffer_alloc(kn_backend *be, size_t bytes);
void kn_cuda_buffer_free(kn_backend *be, void *p);
void kn_cuda_upload(kn_backend *be, void *dst, const void *host, size_t bytes);
void kn_cuda_download(kn_backend *be, void *host, const void *src, size_t bytes);
bool kn_cuda_good(kn_backend *be);
bool kn_cuda_recover(kn_backend *be);
void kn_cuda_memory(kn_backend *be, size_t *free_bytes, size_t *total_bytes);

/* --- launching -------------------------------------------------------------------------------- */

template <typename... P, typename... A>
static inline void launch(kn_cuda *c, void (*kernel)(P...), dim3 grid, int threads, A... arguments)
{
    if (c->failed || grid.x == 0 || grid.y == 0) return; /* nothing to do is not an error */
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.stream = c->stream;
    c->counters.launches++;
    kn_cuda_check(c, cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...),
                  "starting a kernel");
}

static inline unsigned ceil_div(int64_t n, int64_t d)
{
    return (unsigned)((n + d - 1) / d);
}

/* --- steps: step.cu --------------------------------------------------------------------------- */

bool kn_cuda_step_begin(kn_backend *be, const kn_step *step);
bool kn_cuda_step_end(kn_backend *be);
int kn_cuda_step_rows(const kn_backend *be, int n);
/* Recorded steps hold addresses: freeing or moving memory ends them. */
void kn_cuda_forget_graphs(kn_cuda *c);
/* A host array of a call on the device: the step's copy, or one made now. NULL: failed. */
const int32_t *kn_cuda_ints(kn_cuda *c, const int32_t *host, int n);
/* The rows of a kv_write or attention call. False: failed. */
bool kn_cuda_rows_of(kn_cuda *c, const kn_kv *kv, const kn_kv_row *rows, int n, kn_cuda_rows *out);

/* --- operations, by file ---------------------------------------------------------------------- */

kn_weight *kn_cuda_weight_create(kn_backend *be, const kn_matrix *m);
void kn_cuda_weight_free(kn_backend *be, kn_weight *w);
size_t kn_cuda_weight_bytes(const kn_weight *w);
void kn_cuda_weight_rows(kn_backend *be, const kn_weight *w, int64_t first, int64_t count,
                         float *dst);
void kn_cuda_embed(kn_backend *be, const kn_weight *w, const int32_t *ids, int n, float *y);
/* Rows first .. first + count - 1 as half, or as float32: [count, cols]. */
void kn_cuda_dequantize_half(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count,
                             __half *dst);
void kn_cuda_dequantize_float(kn_cuda *c, const kn_cuda_matrix *m, int64_t first, int64_t count,
                              float *dst);

void kn_cuda_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
/* matvec.cu: outs of any types, n of any size, sums in an order that depends on W's shape alone. */
void kn_cuda_matvec(kn_cuda *c, const float *x, int n, const kn_linear *outs, int n_outs);

void kn_cuda_rmsnorm(kn_backend *be, const float *x, const float *weight, float eps, int n, int d,
                     float *y);
void kn_cuda_rope(kn_backend *be, const kn_rope *rope, float *x, int n, int n_heads,
                  const int32_t *positions);
void kn_cuda_rotate(kn_cuda *c, const kn_rope *rope, float *x, int n, int n_heads,
                    const int32_t *positions, bool backward);
void kn_cuda_swiglu(kn_backend *be, const float *gate, const float *up, int n, int d, float *y);
void kn_cuda_add(kn_backend *be, const float *x, int n, int d, float *y);
void kn_cuda_gather(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y);

kn_kv *kn_cuda_kv_create(kn_backend *be, const kn_kv_shape *shape);
void kn_cuda_kv_free(kn_backend *be, kn_kv *kv);
size_t kn_cuda_kv_page_bytes(kn_backend *be, const kn_kv_shape *shape);
void kn_cuda_kv_write(kn_backend *be, kn_kv *kv, int layer, const float *k, const float *v,
                      const kn_kv_row *rows, int n);
void kn_cuda_kv_copy(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens);
void kn_cuda_kv_clear(kn_backend *be, kn_kv *kv, int32_t page);
void kn_cuda_attention(kn_backend *be, kn_kv *kv, int layer, const float *q, const kn_kv_row *rows,
                       int n, int n_heads, float *y);
/* Tokens of a context that one partial result covers. */
#define KN_CUDA_SPLIT_TOKENS 256

kn_adapter_weight *kn_cuda_adapter_create(kn_backend *be, const kn_adapter_matrices *m);
void kn_cuda_adapter_free(kn_backend *be, kn_adapter_weight *w);
size_t kn_cuda_adapter_bytes(const kn_adapter_weight *w);
void kn_cuda_lora(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                  float *y, int64_t ld_y);
void kn_cuda_direft(kn_backend *be, const kn_segment *segments, int n_segments, float *h);
bool kn_cuda_arena_open(kn_cuda *c);
void kn_cuda_arena_close(kn_cuda *c);

void kn_cuda_sample(kn_backend *be, float *logits, int64_t vocab, const kn_sample *rows, int n,
                    kn_choice *out);

#endif
