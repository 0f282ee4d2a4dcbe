/* The backend interface: one table of operations that a device implements. The forward pass
 * (src/engine/forward) is written once against it.
 *
 * Conventions
 * - Activations are float32, row-major, one row per token: x[n, d] has its row i at x + i * d
 *   unless a leading dimension ld is given.
 * - A pointer called x, y, q, k, v, h, ... is memory of the backend (buffer_alloc). Arrays that
 *   describe work (ids, positions, page tables, segments) and norm weights' sources are host memory
 *   and need to live only for the call.
 * - Operations of one backend run in the order of the calls, from one thread (the engine's); the
 *   backend spreads each over its own pool or device. Results may be read with `download` only.
 * - y never aliases an input unless an operation says so.
 * - Determinism: row i of a result depends on row i of the inputs (and the KV pages it names)
 *   alone, bit for bit: not on n, on the other rows, or on the number of threads. Every reduction
 *   runs in an order fixed by the shapes of the weights and the token's own position. The CUDA
 *   backend keeps this for every operation but `linear` of more than KN_CUDA_MATVEC_ROWS rows,
 *   which goes through cuBLAS: there a row is the same within the tolerance that
 *   kernels/cuda/README.md states. Its isa "exact" keeps it everywhere.
 * - Functions that can fail return false and leave a message for kn_backend_error(). Operations
 *   whose only failure would be a broken invariant return void. */
#ifndef KN_BACKEND_H
#define KN_BACKEND_H

#include "types.h"

typedef struct kn_backend kn_backend;
typedef struct kn_weight kn_weight; /* a packed matrix, immutable, owned by the caller */
typedef struct kn_kv kn_kv;         /* the paged key and value store of one model */
typedef struct kn_adapter_weight kn_adapter_weight; /* a packed LoRA pair or DiReFT triple */

/* Order of the rows of attn_q and attn_k. GGUF files of family llama hold them for rotation of
 * neighbours: file rows (2i, 2i+1) of a head are rows (i, i + head_rows/2) of the plain order.
 * weight_create undoes this, so that the rest of the program knows one order only. */
typedef enum { KN_ROWS_PLAIN, KN_ROWS_ROPE_PAIRS } kn_row_order;

/* A matrix as it lies in a file: y = W x with W[rows, cols]. data is borrowed during the call. */
typedef struct {
    kn_type type;
    int64_t rows, cols;
    const void *data; /* rows * kn_row_bytes(type, cols) bytes */
    kn_row_order order;
    int head_rows; /* rows of one head, for KN_ROWS_ROPE_PAIRS */
} kn_matrix;

/* One output of `linear`: y[n, rows] (+)= x W^T + bias, row i of y at y + i * ld_y.
 * y's elements are sums in a fixed order; `add` adds the finished sum to what y holds. */
typedef struct {
    const kn_weight *w;
    const float *bias; /* [rows] backend memory or NULL */
    float *y;
    int64_t ld_y;
    bool add;
} kn_linear;

/* What linear_fused computes from x[n, cols] before the linear operations:
 * KN_FUSE_RMSNORM: rmsnorm(x, x2, eps), x2 the norm's weight[cols]
 * KN_FUSE_SWIGLU:  swiglu(x, x2), x2 = up[n, cols]
 * y[n, cols] takes the result in float32 (y may be x or, for SwiGLU, x2). */
typedef enum { KN_FUSE_RMSNORM, KN_FUSE_SWIGLU } kn_fuse;
typedef struct {
    kn_fuse fuse;
    const float *x, *x2;
    float eps;
    float *y;
} kn_fused_input;

/* Rotary embedding: for pair i < head_dim/2 of a head, angle = position * inv_freq[i]
 * (inv_freq in host memory; the model's scaling is already in it) and
 * (x[i], x[i+half]) <- (x[i] cos - x[i+half] sin, x[i] sin + x[i+half] cos).
 * Angles are computed in double and rounded once. */
typedef struct {
    int head_dim;
    const double *inv_freq; /* [head_dim / 2] */
} kn_rope;

/* How K and V are stored. KN_KV_Q8: a head's vector of one token is head_dim signed bytes and one
 * float32 scale: scale = max|x| / 127, code = round to nearest even of x * (127 / max|x|), read
 * back as scale * code. max|x| < 2^-100: all zero. A vector with a value that isn't finite has a
 * NaN scale. A backend may refuse a type in kv_create. */
typedef enum { KN_KV_F32, KN_KV_F16, KN_KV_Q8 } kn_kv_type;

typedef struct {
    int n_layers, n_kv_heads, head_dim;
    int page_tokens; /* tokens per page */
    int n_pages;
    kn_kv_type type;
} kn_kv_shape;

/* Where a token's K and V go, or whose context a query row reads. */
typedef struct {
    const int32_t *pages; /* page of tokens [j*page_tokens, (j+1)*page_tokens), host memory */
    int32_t position;     /* of this row's token; it reads positions 0..position */
} kn_kv_row;

/* An adapter's maps in host memory, converted and packed once by adapter_create. LoRA:
 * y += scale * B(A x), A[rank, in], B[out, rank]. DiReFT: h += R^T (W h + bias), R[rank, d],
 * W[rank, d], bias[rank]. Types F32, F16 or BF16; computed in float32. */
typedef struct {
    bool direft;
    int rank;
    int64_t in, out;   /* DiReFT: in = out = d */
    kn_type type;      /* of all tensors here */
    const void *a;     /* A, or W */
    const void *b;     /* B, or R */
    const float *bias; /* DiReFT: [rank], float32 whatever the type; LoRA: NULL */
    float scale;       /* DiReFT: 1 */
} kn_adapter_matrices;

/* The unit of adapter work: rows row_index[0..n_rows) of the step's batch use weight w.
 * Row indexes are host memory, ascending; segments of one call never share a row. */
typedef struct {
    const kn_adapter_weight *w;
    const int32_t *row_index;
    int32_t n_rows;
} kn_segment;

/* One output of `lora_maps`: its segments' rows of y[*, out], leading dimension ld_y. */
typedef struct {
    const kn_segment *segments;
    int n_segments;
    float *y;
    int64_t ld_y;
} kn_lora_map;

/* Work done since the backend was opened; the caller takes differences. */
typedef struct {
    uint64_t weight_bytes;  /* base weights read, counted once per call */
    uint64_t adapter_bytes; /* adapter weights read; none in a decode step of prefill-only kinds */
    uint64_t kv_bytes;      /* K and V read by attention */
    uint64_t mac;           /* multiply-accumulates of linear operations */
    uint64_t adapter_mac;   /* those of lora and direft */
    /* Of devices; 0 on the CPU. */
    uint64_t launches;         /* kernels and library calls, inside replayed graphs too */
    uint64_t adapter_launches; /* those of lora and direft */
    uint64_t replays;          /* recorded steps that were run again */
    uint64_t downloaded_bytes;
} kn_counters;

/* The host arrays that the calls of one step refer to: a device uploads them once. */
typedef struct {
    int n;
    const int32_t *positions; /* [n] */
    const int32_t *tokens;    /* [n] ids for embed, or rows for gather */
    const kn_kv_row *kv;      /* [n] */
} kn_step_rows;

typedef struct {
    const kn_step_rows *sets;
    int n_sets;      /* at most 2 */
    int page_tokens; /* of the store whose pages kv names */
    /* Apart from the contents of the sets' arrays, the calls and their arguments depend on `owner`
     * and sets[0].n alone: no adapter acts, and nothing is downloaded before step_end. Such a step
     * may be recorded (as a CUDA graph, say) and replayed without its calls. */
    bool repeatable;
    const void *owner;
} kn_step;

/* How the next token is chosen from a row of logits; the rules are src/engine/sample.h's. */
typedef struct {
    float temperature, top_p, min_p, repeat_penalty; /* 0 = off */
    int32_t top_k;                                   /* 0 = off */
    const int32_t *window; /* [n_window] tokens that repeat_penalty acts on, once each; host */
    int32_t n_window;
    double draw;   /* the random number in [0, 1) */
    int32_t n_top; /* log-probabilities: of the chosen token and the n_top largest; -1 = none */
} kn_sample;

#define KN_MAX_TOP 64
typedef struct {
    int32_t token; /* -1: the logits hold a NaN or no finite value */
    float logprob;
    int32_t top_id[KN_MAX_TOP]; /* descending, lower id first among equals */
    float top_logprob[KN_MAX_TOP];
} kn_choice;

typedef struct {
    const char *device; /* "cpu", "cuda", "auto" = cuda if it is usable; NULL = cpu */
    const char *isa;    /* "ref", "avx2", "avx512", "amx"; "exact", "precise"; NULL = fastest */
    int threads;        /* 0 = one per usable core */
} kn_options;

/* The operations. Dimensions: n rows (tokens), d width. n == 0 is a no-op everywhere. */
typedef struct {
    void (*close)(kn_backend *be);

    /* Memory of the device, 64-byte aligned, zeroed. NULL when out of memory (message left). */
    void *(*buffer_alloc)(kn_backend *be, size_t bytes);
    void (*buffer_free)(kn_backend *be, void *ptr); /* overwritten first: may hold users' data */
    void (*upload)(kn_backend *be, void *dst, const void *host, size_t bytes);
    void (*download)(kn_backend *be, void *host, const void *src, size_t bytes);

    /* Packs a matrix for this device; the source may be unmapped afterwards. NULL on failure. */
    kn_weight *(*weight_create)(kn_backend *be, const kn_matrix *m);
    void (*weight_free)(kn_backend *be, kn_weight *w);
    size_t (*weight_bytes)(const kn_weight *w);
    /* dst[count, cols] = rows first.. of W as float32 (exactly kn_dequantize's values). */
    void (*weight_rows)(kn_backend *be, const kn_weight *w, int64_t first, int64_t count,
                        float *dst);

    kn_adapter_weight *(*adapter_create)(kn_backend *be, const kn_adapter_matrices *m);
    void (*adapter_free)(kn_backend *be, kn_adapter_weight *w);
    size_t (*adapter_bytes)(const kn_adapter_weight *w);

    /* y[n, cols] = rows ids[i] of the embedding matrix. */
    void (*embed)(kn_backend *be, const kn_weight *w, const int32_t *ids, int n, float *y);
    /* y[i,:] = x[i,:] * weight / sqrt(mean(x[i,:]^2) + eps); y may be x. weight[d] backend memory.
     */
    void (*rmsnorm)(kn_backend *be, const float *x, const float *weight, float eps, int n, int d,
                    float *y);
    /* For each output o of outs: y_o (+)= x[n, cols] W_o^T + bias_o. All W_o have the same cols, so
     * that x is prepared (quantized to the kernels' form) once. */
    void (*linear)(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs);
    /* Optional, NULL where a backend has nothing to gain: rmsnorm or swiglu into in->y, then linear
     * with x = in->y, in one pass over the rows. Bit for bit what the two operations give. */
    void (*linear_fused)(kn_backend *be, const kn_fused_input *in, int n, const kn_linear *outs,
                         int n_outs);
    /* In place on x[n, n_heads, head_dim]; positions[n] host memory. */
    void (*rope)(kn_backend *be, const kn_rope *rope, float *x, int n, int n_heads,
                 const int32_t *positions);
    /* y[n, d] = silu(gate) * up; y may be gate or up. */
    void (*swiglu)(kn_backend *be, const float *gate, const float *up, int n, int d, float *y);
    /* y[n, d] += x[n, d] */
    void (*add)(kn_backend *be, const float *x, int n, int d, float *y);
    /* y[i,:] = x[rows[i],:], rows in host memory. */
    void (*gather)(kn_backend *be, const float *x, const int32_t *rows, int n, int d, float *y);

    kn_kv *(*kv_create)(kn_backend *be, const kn_kv_shape *shape);
    void (*kv_free)(kn_backend *be, kn_kv *kv);
    size_t (*kv_page_bytes)(kn_backend *be, const kn_kv_shape *shape); /* all layers, K and V */
    /* Stores k[n, n_kv_heads, head_dim] and v of the rows' tokens in layer's pages, rounded to the
     * store's type. */
    void (*kv_write)(kn_backend *be, kn_kv *kv, int layer, const float *k, const float *v,
                     const kn_kv_row *rows, int n);
    /* Copies the first n_tokens tokens of page src to page dst, all layers. */
    void (*kv_copy)(kn_backend *be, kn_kv *kv, int32_t src, int32_t dst, int n_tokens);
    /* Overwrites a page with zeros, all layers (before another user gets it). */
    void (*kv_clear)(kn_backend *be, kn_kv *kv, int32_t page);
    /* As kv_clear, and returns the page's memory to the system until the page is next written.
     * NULL: all pages keep their memory for as long as the store lives. */
    void (*kv_discard)(kn_backend *be, kn_kv *kv, int32_t page);
    /* y[i, h, :] = sum_t softmax_t(q[i,h,:] . K[t, h / group, :] / sqrt(head_dim)) V[t, h / group,
     * :] over t = 0..rows[i].position, group = n_heads / n_kv_heads. K and V are read as stored.
     * Long contexts are split at fixed positions. q, y: [n, n_heads, head_dim]. */
    void (*attention)(kn_backend *be, kn_kv *kv, int layer, const float *q, const kn_kv_row *rows,
                      int n, int n_heads, float *y);

    /* y[row, :] += scale * B (A x[row, :]) for every row of every segment. x[*, in], y[*, out]
     * with leading dimension ld_y. */
    void (*lora)(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                 float *y, int64_t ld_y);
    /* h[row, :] += R^T (W h[row, :] + bias), in place, leading dimension d. */
    void (*direft)(kn_backend *be, const kn_segment *segments, int n_segments, float *h);

    void (*counters)(const kn_backend *be, kn_counters *out);

    /* The operations below are optional: NULL where the device has nothing better than the caller's
     * generic way. */

    /* As adapter_create, for n maps of one adapter in the order in which a step uses them, so that
     * they can be laid out in memory in that order. False: none was created. Each is freed by
     * itself, on one thread at a time. */
    bool (*adapters_create)(kn_backend *be, const kn_adapter_matrices *m, int n,
                            kn_adapter_weight **out);
    /* lora for each of the maps, which read the same x: bit for bit, in one pass. */
    void (*lora_maps)(kn_backend *be, const kn_lora_map *maps, int n_maps, const float *x);

    /* The message for kn_backend_error where several threads can fail at once (adapters_anywhere);
     * NULL: it is be->message. */
    const char *(*error)(const kn_backend *be);
    /* Overwrites what the last operations left in working memory, which may hold parts of users'
     * texts. Between two steps. */
    void (*forget)(kn_backend *be);

    /* False: a call since the last `recover` failed on the device (kn_backend_error says how), and
     * what it should have written is undefined. Waits for the device. */
    bool (*good)(kn_backend *be);
    /* Forgets a failure such as a lack of working memory, before the next step. False: the device
     * itself is lost. */
    bool (*recover)(kn_backend *be);
    /* Bytes of device memory that are free, and in all. */
    void (*memory)(kn_backend *be, size_t *free_bytes, size_t *total_bytes);

    /* Begins a step, to which all calls up to step_end belong. True: a recording of the same calls
     * has just been replayed; the caller skips them and step_end. */
    bool (*step_begin)(kn_backend *be, const kn_step *step);
    /* False: recording the calls failed and nothing has been computed; the caller repeats them and
     * ends the step again. */
    bool (*step_end)(kn_backend *be);
    /* The number of rows, >= n, to which a repeatable step of n rows should be padded. Padding rows
     * have token 0, position 0 and pages NULL; their results are meaningless. */
    int (*step_rows)(const kn_backend *be, int n);

    /* out[i] <- a choice from row i of logits[n, vocab], all on the device. Rows of logits may be
     * overwritten. */
    void (*sample)(kn_backend *be, float *logits, int64_t vocab, const kn_sample *rows, int n,
                   kn_choice *out);
} kn_backend_ops;

struct kn_train_ops;

/* First member of every backend's own struct. */
struct kn_backend {
    const kn_backend_ops *ops;
    const char *device; /* "cpu", "cuda" */
    const char *isa;    /* what runs: "ref", "avx2", "avx512", "amx"; "sm_90", "sm_90 exact" */
    int threads;
    const struct kn_train_ops *train; /* NULL: train.h finds them by isa */
    bool adapters_anywhere; /* adapter_create, adapter_free and adapter_bytes may run on any threads
                               while operations run */
    char message[160];      /* of the last failure, for kn_backend_error */
};

/* Opens a backend; NULL on failure with a sentence in message. Unknown or unavailable isa or
 * device: refused, naming what this machine has. With "auto", message says why the CPU was taken
 * ("" otherwise). */
kn_backend *kn_backend_open(const kn_options *options, char *message, size_t message_size);
/* The message of the last failure (with adapters_anywhere: of the calling thread's last one); never
 * NULL. */
const char *kn_backend_error(const kn_backend *be);
/* Packs n maps of one adapter: with adapters_create where the backend has it, else one by one. */
bool kn_adapters_create(kn_backend *be, const kn_adapter_matrices *m, int n,
                        kn_adapter_weight **out);
/* Space-separated list of the instruction sets usable here, best last ("ref avx2"). Borrowed. */
const char *kn_isa_list(void);
/* Whether device "cuda" can be opened, with a sentence about it: what it is, or what is missing.
 * Without the driver's library nothing is loaded. */
bool kn_cuda_usable(char *sentence, size_t size);

#endif
