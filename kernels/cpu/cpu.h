/* Inside the CPU backend: packed forms, and the table of row-level functions that an instruction
 * set implements (plain C in kernels/ref, SIMD in kernels/cpu/avx*). The functions compute; they
 * neither allocate nor know of threads. What the backend's operations promise (a row's result
 * depends on that row alone, bit for bit) holds because each function computes an output element
 * in an order fixed by the shapes, however many rows or tokens are asked for at once. */
#ifndef KN_CPU_CPU_H
#define KN_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/pool.h"

/* Columns of one activation block. */
#define KN_ACT_BLOCK 32
/* A block whose largest value is below this counts as zero: its reciprocal could overflow. */
#define KN_ACT_TINY 0x1p-100f

/* Memory that several weights share, in pages of 2 MiB where the system has them. */
typedef struct {
    uint8_t *memory;
    size_t size, used;
    int users; /* reference count: the weights in it, and the backend while it fills it */
} kn_chunk;

/* A matrix cut into tiles of tile_rows rows; the last tile is padded with zero rows. What a tile
 * looks like is the instruction set's business. */
struct kn_weight {
    kn_type type;
    int64_t rows, cols, n_tiles;
    size_t tile_bytes;
    uint8_t *data; /* n_tiles * tile_bytes, 64-byte aligned, in chunk */
    kn_chunk *chunk;
};

/* LoRA and DiReFT alike: t = A x + bias; y += scale * sum_r t[r] * b[r, :]. Either plain, or, where
 * adapter_vectors is set in the table, in vectors of 16 elements (the last of a row filled up with
 * zeros, those of BF16 in the order 0, 8, 1, 9, ... 7, 15) in the order in which they are read:
 *   a: four rows side by side, [rank / 4][vectors of in][4], then the other rows
 *   b: four vectors side by side, [out / 64][rank][4], then the other vectors, [rank] each
 * The maps of an adapter that were made together lie one after the other. */
struct kn_adapter_weight {
    bool direft;
    int rank;
    int64_t in, out;
    kn_type type;
    float scale;
    size_t bytes; /* of a, b and bias: what applying it reads */
    uint8_t *a;   /* [rank, in] */
    uint8_t *b;   /* [rank, out]: R, or B transposed */
    float *bias;  /* [rank] or NULL */
    kn_chunk *chunk;
};

/* Vector j of row i of a; or of row j of b, there i is the vector and the row has n vectors. n_four
 * of what i counts may lie side by side: rank, or the whole vectors of out. */
static inline int64_t kn_adapter_place(int64_t i, int64_t j, int64_t n_four, int64_t n)
{
    int64_t first = i / 4 * 4;
    return first + 4 <= n_four ? first * n + j * 4 + (i - first) : i * n + j;
}

/* One page holds, layer after layer, K as [n_kv_heads][head_dim][page_stride] (a token is a
 * column, so that 16 neighbouring tokens are one vector), V as [n_kv_heads][page_tokens][head_dim]
 * and, for KN_KV_Q8, float32 scales of K and then of V, both [n_kv_heads][page_stride].
 * page_stride is page_tokens rounded up to 16. */
struct kn_kv {
    kn_kv_shape shape;
    int page_stride;
    int split_tokens; /* attention over a context is cut at multiples of this: whole pages */
    size_t element_bytes;
    size_t k_bytes, scales_at, layer_bytes, page_bytes; /* scales_at: in a layer */
    void *block;   /* from calloc: pages that are never written take no memory */
    uint8_t *data; /* block, aligned to 64 */
};

/* K and V of one head in one page. */
static inline uint8_t *kn_kv_k(const kn_kv *kv, int32_t page, int layer, int head)
{
    size_t head_bytes = (size_t)kv->shape.head_dim * kv->page_stride * kv->element_bytes;
    return kv->data + (size_t)page * kv->page_bytes + (size_t)layer * kv->layer_bytes +
           (size_t)head * head_bytes;
}
static inline uint8_t *kn_kv_v(const kn_kv *kv, int32_t page, int layer, int head)
{
    size_t head_bytes = (size_t)kv->shape.head_dim * kv->shape.page_tokens * kv->element_bytes;
    return kv->data + (size_t)page * kv->page_bytes + (size_t)layer * kv->layer_bytes +
           kv->k_bytes + (size_t)head * head_bytes;
}

/* Scales of one head's tokens in one page. KN_KV_Q8 only. */
static inline float *kn_kv_k_scales(const kn_kv *kv, int32_t page, int layer, int head)
{
    return (float *)(void *)(kv->data + (size_t)page * kv->page_bytes +
                             (size_t)layer * kv->layer_bytes + kv->scales_at) +
           (size_t)head * (size_t)kv->page_stride;
}
static inline float *kn_kv_v_scales(const kn_kv *kv, int32_t page, int layer, int head)
{
    return kn_kv_k_scales(kv, page, layer, head + kv->shape.n_kv_heads);
}

/* 32 columns of an input row, as x = scale * q: scale = max|x| / 127, q = round(x / scale) to
 * nearest even. A block with a value that isn't finite has a NaN scale, so that every result it
 * takes part in is NaN. */
typedef struct {
    float scale;
    float scaled_sum; /* scale * (float)sum */
    int32_t sum;      /* of the 32 q */
    int32_t half_sum; /* of the first 16 */
} kn_act_block;

/* The input of a linear operation: float32 rows and, for quantized weights, their blocks. */
typedef struct {
    int64_t cols;
    const float *x;       /* [n, cols] */
    int8_t *q;            /* [n, cols] */
    kn_act_block *blocks; /* [n, cols / 32] */
} kn_activations;

/* Attention of n_queries vectors over positions first .. min(end - 1, limit) of one context. */
typedef struct {
    const kn_kv *kv;
    int layer, kv_head;
    const int32_t *pages;
    int32_t first, end;
    int n_queries;
    const float *const *q; /* [n_queries]: vectors of head_dim */
    const int32_t *limit;  /* [n_queries]: last position that the query reads */
    float *const *partial; /* [n_queries]: kn_partial_floats each */
    float *scratch;        /* kn_attend_scratch_floats */
} kn_attend;

/* What attend leaves for a query: maximum m of the scaled scores, sum of exp(score - m), and
 * sum of exp(score - m) V[head_dim]. A query with limit < first: m = -infinity, the rest 0. */
static inline size_t kn_partial_floats(int head_dim)
{
    return (size_t)head_dim + 2;
}
#define KN_ATTEND_QUERIES 64 /* most queries of one call */
static inline size_t kn_attend_scratch_floats(const kn_kv *kv)
{
    return (size_t)KN_ATTEND_QUERIES * (size_t)(kv->split_tokens + 32);
}

/* For a tile of 16 rows unpacked to two bytes a code, scales and mins for each 16 columns, and for
 * the input rows as words. */
static inline size_t kn_linear_scratch_bytes(int64_t cols, int rows)
{
    return (size_t)cols * (32 + 8 + 2 * (size_t)rows) + 64;
}

/* Some rows of a segment: y[rows[i], :] += scale * sum_r t[i, r] * b[r, :] with
 * t[i, :] = A x[rows[i], :] + bias. */
typedef struct {
    const kn_adapter_weight *w, *next; /* next: what is probably read after w; may be w */
    const int32_t *rows;
    int n;
    const float *x;
    float *y;
    int64_t ld_y;
} kn_adapt;

typedef struct {
    const char *isa;
    int tile_rows;
    bool adapter_vectors; /* see kn_adapter_weight */

    size_t (*tile_bytes)(kn_type type, int64_t cols);
    /* Packs rows first_row .. first_row + tile_rows - 1 (plain order). scratch: floats[cols]. */
    void (*pack_tile)(const kn_matrix *m, int64_t first_row, void *dst);
    /* dst[cols] = row of w, exactly kn_dequantize's values. */
    void (*unpack_row)(const kn_weight *w, int64_t row, float *dst);
    /* Fills row i of a from a->x. NULL: the kernels work on float32 rows only. */
    void (*quantize_row)(const kn_activations *a, int i);
    /* out->y[i, r] (+)= x_i . W_r + bias_r for tiles first_tile .. end_tile - 1 and input rows
     * first .. end - 1. scratch: kn_linear_scratch_bytes, this thread's, 64-byte aligned. */
    void (*linear)(const kn_linear *out, int64_t first_tile, int64_t end_tile,
                   const kn_activations *a, int first, int end, void *scratch);

    void (*rmsnorm)(const float *x, const float *weight, float eps, int d, float *y);
    /* One row x[n_heads, head_dim]; cosines and sines [head_dim / 2]. */
    void (*rope)(float *x, int n_heads, int head_dim, const float *cosines, const float *sines);
    void (*swiglu)(const float *gate, const float *up, int64_t n, float *y);
    void (*add)(const float *x, int64_t n, float *y);
    /* One head's K and V of one token. */
    void (*kv_write)(const kn_kv *kv, int layer, int head, int32_t page, int slot, const float *k,
                     const float *v);
    void (*attend)(const kn_attend *a);
    /* y may be x (DiReFT). scratch: floats[n * rank]. */
    void (*adapt)(const kn_adapt *a, float *scratch);
} kn_cpu_kernels;

extern const kn_cpu_kernels kn_ref_kernels;
#if defined(__x86_64__)
extern const kn_cpu_kernels kn_avx2_kernels;
extern const kn_cpu_kernels kn_avx512_kernels;
#endif

/* The kernels of an instruction set that this machine can run, or NULL. name NULL: the best. */
const kn_cpu_kernels *kn_cpu_kernels_find(const char *name);

/* File row of row r of the plain order. */
static inline int64_t kn_matrix_file_row(const kn_matrix *m, int64_t r)
{
    if (m->order == KN_ROWS_PLAIN) return r;
    int64_t half = m->head_rows / 2, head = r / m->head_rows, i = r % m->head_rows;
    return head * m->head_rows + (i < half ? 2 * i : 2 * (i - half) + 1);
}
static inline const uint8_t *kn_matrix_row(const kn_matrix *m, int64_t r)
{
    return (const uint8_t *)m->data +
           (size_t)kn_matrix_file_row(m, r) * kn_row_bytes(m->type, m->cols);
}

/* --- the backend object ----------------------------------------------------------------------- */

typedef struct {
    void *data;
    size_t bytes;
} kn_scratch;

typedef struct {
    kn_backend base;
    const kn_cpu_kernels *kernels;
    kn_pool *pool;
    kn_counters counters;
    kn_scratch activations, rope, runs, partials, training, segments;
    kn_scratch *worker; /* [threads] */
    kn_chunk *chunk;    /* takes the next weights; NULL before the first */
    /* What the rope tables hold (one step uses the same positions in every layer). */
    int rope_rows, rope_half;
    kn_scratch rope_key;
} kn_cpu;

static inline kn_cpu *kn_cpu_of(kn_backend *be)
{
    return (kn_cpu *)be;
}

kn_backend *kn_cpu_open(const kn_options *options, char *message, size_t message_size);
/* At least bytes, 64-byte aligned, content undefined; lives until the next call for the same s.
 * Ends the program when out of memory. */
void *kn_scratch_get(kn_scratch *s, size_t bytes);
/* Overwrites with zeros; never optimised away. */
void kn_wipe(void *p, size_t bytes);
/* As kn_wipe, but whole system pages are returned to the system until they are next written, so
 * that pages never touched take no memory. */
void kn_discard(void *p, size_t bytes);
/* Sets the message for kn_backend_error, for the calling thread. */
__attribute__((format(printf, 1, 2))) void kn_cpu_fail(const char *format, ...);
/* Runs fn over items: in the caller when the work (in units of about a nanosecond) is too small to
 * share. */
void kn_cpu_run(kn_cpu *cpu, int n_items, double work, kn_pool_fn *fn, void *ctx);
/* Drops a reference to a chunk; the last one frees it. NULL is fine. */
void kn_chunk_drop(kn_chunk *chunk);
/* A chunk of at least `bytes` zeroed bytes with one reference, the caller's; NULL when out of
 * memory. */
kn_chunk *kn_chunk_create(size_t bytes);

/* Operations, by file: linear.c, rows.c, attention.c, adapter.c. */
kn_weight *kn_cpu_weight_create(kn_backend *be, const kn_matrix *m);
void kn_cpu_weight_free(kn_backend *be, kn_weight *w);
size_t kn_cpu_weight_bytes(const kn_weight *w);
void kn_cpu_weight_rows(kn_backend *be, const kn_weight *w, int64_t first, int64_t count,
                        float *dst);
void kn_cpu_embed(kn_backend *be, const kn_weight *w, const int32_t *ids, int n, float *y);
void kn_cpu_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
void kn_cpu_linear_fused(kn_backend *be, const kn_fused_input *in, int n, const kn_linear *outs,
                         int n_outs);
void kn_cpu_rmsnorm(kn_backend *be, const float *x, const float *weight, float eps, int n, int d,
                    float *y);
void kn_cpu_rope(kn_backend *be, const kn_rope *rope, float *x, int n, int n_heads,
                 const int32_t *positions);
void kn_cpu_swiglu(kn_backend *be, const float *gate, const float *up, int n, int d, float *y);
void kn_cpu_add(kn_backend *be, const float *x, int n, int d, float *y);
void kn_cpu_gather(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y);
kn_kv *kn_cpu_kv_create(kn_backend *be, const kn_kv_shape *shape);
void kn_cpu_kv_free(kn_backend *be, kn_kv *kv);
size_t kn_cpu_kv_page_bytes(kn_backend *be, const kn_kv_shape *shape);
void kn_cpu_kv_write(kn_backend *be, kn_kv *kv, int layer, const float *k, const float *v,
                     const kn_kv_row *rows, int n);
void kn_cpu_kv_copy(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens);
void kn_cpu_kv_discard(kn_backend *be, kn_kv *kv, int32_t page);
void kn_cpu_kv_clear(kn_backend *be, kn_kv *kv, int32_t page);
void kn_cpu_attention(kn_backend *be, kn_kv *kv, int layer, const float *q, const kn_kv_row *rows,
                      int n, int n_heads, float *y);
kn_adapter_weight *kn_cpu_adapter_create(kn_backend *be, const kn_adapter_matrices *m);
bool kn_cpu_adapters_create(kn_backend *be, const kn_adapter_matrices *m, int n,
                            kn_adapter_weight **out);
void kn_cpu_adapter_free(kn_backend *be, kn_adapter_weight *w);
size_t kn_cpu_adapter_bytes(const kn_adapter_weight *w);
void kn_cpu_lora(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                 float *y, int64_t ld_y);
void kn_cpu_lora_maps(kn_backend *be, const kn_lora_map *maps, int n_maps, const float *x);
void kn_cpu_direft(kn_backend *be, const kn_segment *segments, int n_segments, float *h);

#endif
