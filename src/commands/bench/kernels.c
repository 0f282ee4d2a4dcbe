/* preft bench kernels: every operation of the backend on a model's shapes, beside the peaks. */
#include "base/clock.h"
#include "base/mem.h"
#include "commands/bench/bench.h"
#include "commands/interrupt.h"
#include "kernels/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *rows, *types, *ops;
    double time;
    int64_t memory;
} opt = {.time = 0.05, .memory = 200};

static const bench_column columns[] = {
    {"op", "operation", 0},
    {"type", "type", 0},
    {"shape", "shape", 0},
    {"rows", "rows", 0},
    {"us", "us/call", 1},
    {"us_min", NULL, 1},
    {"us_max", NULL, 1},
    {"gop_s", "Gop/s", 2},
    {"compute_share", "of peak", 3},
    {"gb_s", "GB/s", 2},
    {"read_share", "of read peak", 3},
    {0},
};

/* The shapes of a model of 135 million weights. */
enum {
    HIDDEN = 576,
    FF = 1536,
    VOCAB = 49152,
    HEADS = 9,
    KV_HEADS = 3,
    HEAD_DIM = 64,
    PAGE = 16,
    RANK = 16,
    N_TRIALS = 5
};

typedef struct {
    kn_backend *be;
    const kn_backend_ops *ops;
    bench_report *report;
    kn_peak peak;
    bench_list rows;
    bool types[KN_TYPE_COUNT];
} kernels_bench;

/* A call that is timed, with its operations (a multiply-accumulate is two) and the bytes it moves.
 * call is counted up, so that an operation can take other memory each time. */
typedef struct {
    const char *op;
    kn_type type;
    char shape[32];
    int rows;
    double operations, bytes;
    bool integer;
    void (*run)(kernels_bench *k, void *ctx, long call);
} timed;

/* Whether --ops names the operation, or how its name begins. */
static bool op_wanted(const char *op)
{
    for (const char *at = opt.ops; at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        if (len > 0 && strncmp(op, at, len) == 0) return true;
        at += len;
        if (!*at) return false;
    }
    return true;
}

static void time_op(kernels_bench *k, const timed *t, void *ctx)
{
    bench_samples us = {.n = 0};
    long call = 0;
    if (interrupt_seen() || !op_wanted(t->op)) return;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        int64_t begin = clock_monotonic_ns(), elapsed;
        long first = call;
        do
            t->run(k, ctx, call++);
        while ((elapsed = clock_monotonic_ns() - begin) < (int64_t)(opt.time / N_TRIALS * 1e9));
        bench_samples_add(&us, (double)elapsed * 1e-3 / (double)(call - first));
    }
    double seconds = bench_median(&us) * 1e-6;
    json_t *row = bench_report_row(k->report);
    json_object_set_new(row, "op", json_string(t->op));
    json_object_set_new(row, "type", json_string(kn_type_get(t->type)->name));
    json_object_set_new(row, "shape", json_string(t->shape));
    json_object_set_new(row, "rows", json_integer(t->rows));
    bench_set_samples(row, "us", &us);
    bench_set(row, "gb_s", t->bytes / seconds * 1e-9);
    bench_set(row, "read_share", t->bytes / seconds / k->peak.read_bytes);
    if (t->operations <= 0) return;
    bench_set(row, "gop_s", t->operations / seconds * 1e-9);
    bench_set(row, "compute_share",
              t->operations / seconds / (t->integer ? k->peak.int_ops : k->peak.float_ops));
}

static void *device_memory(kernels_bench *k, size_t bytes)
{
    void *p = k->ops->buffer_alloc(k->be, bytes);
    if (!p) die("%s", kn_backend_error(k->be));
    return p;
}

static float *device_floats(kernels_bench *k, size_t n)
{
    float *host = xcalloc(n, sizeof *host), *x = device_memory(k, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        host[i] = (float)((int)(i % 113) - 56) / 64;
    k->ops->upload(k->be, x, host, n * sizeof *x);
    free(host);
    return x;
}

/* --- linear ----------------------------------------------------------------------------------- */

typedef struct {
    kn_matrix matrix;
    kn_weight **weights; /* [copies]: more than the caches hold */
    int copies, n;
    float *x, *y, *product;
    int32_t *ids;
} linear_case;

/* Random codes; the scales at the start of each block are 2^-7 (as float16). */
static uint8_t *random_matrix(kn_type type, int64_t rows, int64_t cols)
{
    const kn_type_info *info = kn_type_get(type);
    size_t bytes = (size_t)rows * kn_row_bytes(type, cols), block = (size_t)info->block_bytes;
    uint8_t *data = xmalloc(bytes);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    if (!info->quantized) {
        for (size_t i = block - 1; i < bytes; i += block)
            data[i] = (data[i] & 0x80) | 0x2c; /* the exponent: small numbers */
        return data;
    }
    size_t at = type == KN_Q6_K ? block - 2 : 0;
    bool two = type == KN_Q4_1 || type == KN_Q4_K || type == KN_Q5_K;
    for (size_t i = 0; i < bytes; i += block) {
        memcpy(data + i + at, "\x00\x20", 2);
        if (two) memcpy(data + i + at + 2, "\x00\x20", 2);
    }
    return data;
}

static void run_linear(kernels_bench *k, void *ctx, long call)
{
    linear_case *c = ctx;
    kn_linear out = {c->weights[call % c->copies], NULL, c->y, c->matrix.rows, false};
    k->ops->linear(k->be, c->x, c->n, &out, 1);
}

static void run_fused(kernels_bench *k, void *ctx, long call)
{
    linear_case *c = ctx;
    kn_linear out = {c->weights[call % c->copies], NULL, c->y, c->matrix.rows, false};
    kn_fused_input in = {KN_FUSE_SWIGLU, c->x, c->x, 0, c->product};
    k->ops->linear_fused(k->be, &in, c->n, &out, 1);
}

static void run_pack(kernels_bench *k, void *ctx, long call)
{
    linear_case *c = ctx;
    (void)call;
    kn_weight *w = k->ops->weight_create(k->be, &c->matrix);
    if (!w) die("%s", kn_backend_error(k->be));
    k->ops->weight_free(k->be, w);
}

static void run_unpack(kernels_bench *k, void *ctx, long call)
{
    linear_case *c = ctx;
    int64_t first = call * c->n % (c->matrix.rows - c->n + 1);
    k->ops->weight_rows(k->be, c->weights[0], first, c->n, c->y);
}

static void run_embed(kernels_bench *k, void *ctx, long call)
{
    linear_case *c = ctx;
    (void)call;
    k->ops->embed(k->be, c->weights[0], c->ids, c->n, c->y);
}

static void case_open(kernels_bench *k, linear_case *c, kn_type type, int64_t rows, int64_t cols)
{
    int64_t most = bench_list_max(&k->rows);
    size_t bytes = (size_t)rows * kn_row_bytes(type, cols);
    size_t wide = (size_t)(rows > cols ? rows : cols);
    c->matrix = (kn_matrix){type, rows, cols, random_matrix(type, rows, cols), KN_ROWS_PLAIN, 0};
    c->copies = (int)(((size_t)opt.memory << 20) / bytes) + 1;
    c->weights = xcalloc((size_t)c->copies, sizeof *c->weights);
    c->x = device_floats(k, (size_t)(most * cols));
    c->product = device_floats(k, (size_t)(most * cols));
    c->y = device_floats(k, (size_t)most * wide);
    c->ids = xcalloc((size_t)most, sizeof *c->ids);
    for (int64_t i = 0; i < most; i++)
        c->ids[i] = (int32_t)(i * 7919 % rows);
    for (int i = 0; i < c->copies; i++) {
        c->weights[i] = k->ops->weight_create(k->be, &c->matrix);
        if (!c->weights[i]) die("%s", kn_backend_error(k->be));
    }
}

static void case_close(kernels_bench *k, linear_case *c)
{
    for (int i = 0; i < c->copies; i++)
        k->ops->weight_free(k->be, c->weights[i]);
    k->ops->buffer_free(k->be, c->x);
    k->ops->buffer_free(k->be, c->product);
    k->ops->buffer_free(k->be, c->y);
    free((void *)(uintptr_t)c->matrix.data);
    free(c->weights);
    free(c->ids);
}

static bool extras_wanted(void)
{
    return op_wanted("swiglu+linear") || op_wanted("embed") || op_wanted("weight_rows") ||
           op_wanted("weight_create");
}

static void bench_matrix(kernels_bench *k, kn_type type, int64_t rows, int64_t cols, bool extras)
{
    linear_case c;
    if (!op_wanted("linear") && !(extras && extras_wanted())) return;
    case_open(k, &c, type, rows, cols);
    double file = (double)rows * (double)kn_row_bytes(type, cols);
    timed t = {.type = type, .integer = kn_type_get(type)->quantized, .op = "linear"};
    snprintf(t.shape, sizeof t.shape, "%lldx%lld", (long long)rows, (long long)cols);
    t.run = run_linear;
    for (int i = 0; i < k->rows.n; i++) {
        t.rows = c.n = (int)k->rows.v[i];
        t.operations = 2.0 * (double)rows * (double)cols * c.n;
        t.bytes = (double)k->ops->weight_bytes(c.weights[0]);
        time_op(k, &t, &c);
    }
    if (extras && k->ops->linear_fused) {
        t.op = "swiglu+linear";
        t.run = run_fused;
        time_op(k, &t, &c);
    }
    t.operations = 0;
    if (extras) {
        t.rows = c.n = (int)k->rows.v[k->rows.n - 1];
        if (c.n > rows) t.rows = c.n = (int)rows;
        t.bytes = c.n * ((double)kn_row_bytes(type, cols) + (double)cols * sizeof(float));
        t.op = "embed";
        t.run = run_embed;
        time_op(k, &t, &c);
        t.op = "weight_rows";
        t.run = run_unpack;
        time_op(k, &t, &c);
        t.op = "weight_create";
        t.rows = (int)rows;
        t.bytes = file + (double)k->ops->weight_bytes(c.weights[0]);
        t.run = run_pack;
        time_op(k, &t, &c);
    }
    case_close(k, &c);
}

static void bench_linear(kernels_bench *k)
{
    static const struct {
        kn_type type;
        int64_t rows, cols;
        bool extras;
    } cases[] = {
        {KN_Q4_1, FF, HIDDEN, true},      {KN_Q4_1, HIDDEN, FF, false},
        {KN_Q4_1, HIDDEN, HIDDEN, false}, {KN_Q8_0, VOCAB, HIDDEN, true},
        {KN_Q4_0, FF, HIDDEN, true},      {KN_Q4_K, FF, 512, true},
        {KN_Q5_K, FF, 512, true},         {KN_Q6_K, FF, 512, true},
        {KN_F16, FF, HIDDEN, true},       {KN_BF16, FF, HIDDEN, true},
        {KN_F32, FF, HIDDEN, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !interrupt_seen(); i++)
        if (k->types[cases[i].type])
            bench_matrix(k, cases[i].type, cases[i].rows, cases[i].cols, cases[i].extras);
}

/* --- row operations --------------------------------------------------------------------------- */

typedef struct {
    int n, d;
    float *x, *y, *weight, *host;
    int32_t *positions; /* and rows to gather, backwards */
    double inv_freq[HEAD_DIM / 2];
} rows_case;

static void run_rmsnorm(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->rmsnorm(k->be, c->x, c->weight, 1e-5f, c->n, c->d, c->y);
}

static void run_swiglu(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->swiglu(k->be, c->x, c->x, c->n, c->d, c->y);
}

static void run_add(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->add(k->be, c->x, c->n, c->d, c->y);
}

static void run_gather(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->gather(k->be, c->x, c->positions, c->n, c->d, c->y);
}

static void run_rope(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    kn_rope rope = {HEAD_DIM, c->inv_freq};
    (void)call;
    k->ops->rope(k->be, &rope, c->x, c->n, HEADS, c->positions);
}

static void run_upload(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->upload(k->be, c->y, c->host, (size_t)c->n * (size_t)c->d * sizeof *c->y);
}

static void run_download(kernels_bench *k, void *ctx, long call)
{
    rows_case *c = ctx;
    (void)call;
    k->ops->download(k->be, c->host, c->x, (size_t)c->n * (size_t)c->d * sizeof *c->x);
}

static void bench_rows(kernels_bench *k)
{
    static const struct {
        const char *op;
        int d;
        double operations, bytes; /* per element */
        void (*run)(kernels_bench *, void *, long);
    } ops[] = {
        {"rmsnorm", HIDDEN, 4, 8, run_rmsnorm},   {"rope", HEADS * HEAD_DIM, 3, 8, run_rope},
        {"swiglu", FF, 4, 12, run_swiglu},        {"add", HIDDEN, 1, 12, run_add},
        {"gather", HIDDEN, 0, 8, run_gather},     {"upload", HIDDEN, 0, 8, run_upload},
        {"download", HIDDEN, 0, 8, run_download},
    };
    size_t most = (size_t)bench_list_max(&k->rows);
    rows_case c = {.x = device_floats(k, most * FF),
                   .y = device_floats(k, most * FF),
                   .weight = device_floats(k, FF),
                   .host = xcalloc(most * FF, sizeof *c.host),
                   .positions = xcalloc(most, sizeof *c.positions)};
    for (int i = 0; i < HEAD_DIM / 2; i++)
        c.inv_freq[i] = pow(10000, -2.0 * i / HEAD_DIM);
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++)
        for (int i = 0; i < k->rows.n; i++) {
            c.n = (int)k->rows.v[i];
            c.d = ops[op].d;
            for (int j = 0; j < c.n; j++)
                c.positions[j] = c.n - 1 - j;
            timed t = {.op = ops[op].op, .type = KN_F32, .rows = c.n, .run = ops[op].run};
            snprintf(t.shape, sizeof t.shape, "%d", c.d);
            t.operations = ops[op].operations * c.n * c.d;
            t.bytes = ops[op].bytes * c.n * c.d;
            time_op(k, &t, &c);
        }
    k->ops->buffer_free(k->be, c.x);
    k->ops->buffer_free(k->be, c.y);
    k->ops->buffer_free(k->be, c.weight);
    free(c.host);
    free(c.positions);
}

/* --- keys and values -------------------------------------------------------------------------- */

typedef struct {
    kn_kv *kv;
    int context, n;
    int32_t *pages; /* those of all sequences */
    kn_kv_row *rows;
    float *q, *y, *k, *v;
} kv_case;

static void run_attention(kernels_bench *k, void *ctx, long call)
{
    kv_case *c = ctx;
    (void)call;
    k->ops->attention(k->be, c->kv, 0, c->q, c->rows, c->n, HEADS, c->y);
}

static void run_kv_write(kernels_bench *k, void *ctx, long call)
{
    kv_case *c = ctx;
    (void)call;
    k->ops->kv_write(k->be, c->kv, 0, c->k, c->v, c->rows, c->n);
}

static void run_kv_copy(kernels_bench *k, void *ctx, long call)
{
    kv_case *c = ctx;
    k->ops->kv_copy(k->be, c->kv, (int32_t)(2 * call % c->n), (int32_t)(2 * call % c->n + 1), PAGE);
}

static void run_kv_clear(kernels_bench *k, void *ctx, long call)
{
    kv_case *c = ctx;
    k->ops->kv_clear(k->be, c->kv, (int32_t)(call % c->n));
}

/* How the table calls a KV type, and its bytes per element with its part of the scale. */
static const struct {
    kn_type name;
    double bytes;
} kv_types[] = {[KN_KV_F32] = {KN_F32, 4},
                [KN_KV_F16] = {KN_F16, 2},
                [KN_KV_Q8] = {KN_Q8_0, 1 + 4.0 / HEAD_DIM}};

/* n queries: the last ones of one context, or the last one of each of n contexts. */
static void kv_open(kernels_bench *k, kv_case *c, kn_kv_type type, int context, int n, bool prefill)
{
    int per_sequence = (context + PAGE - 1) / PAGE, sequences = prefill ? 1 : n;
    kn_kv_shape shape = {1, KV_HEADS, HEAD_DIM, PAGE, per_sequence * sequences, type};
    *c = (kv_case){.context = context, .n = n};
    c->kv = k->ops->kv_create(k->be, &shape);
    if (!c->kv) die("%s", kn_backend_error(k->be));
    c->pages = xcalloc((size_t)shape.n_pages, sizeof *c->pages);
    c->rows = xcalloc((size_t)(n > context ? n : context), sizeof *c->rows);
    c->q = device_floats(k, (size_t)n * HEADS * HEAD_DIM);
    c->y = device_floats(k, (size_t)n * HEADS * HEAD_DIM);
    c->k = device_floats(k, (size_t)context * KV_HEADS * HEAD_DIM);
    c->v = device_floats(k, (size_t)context * KV_HEADS * HEAD_DIM);
    for (int i = 0; i < shape.n_pages; i++)
        c->pages[i] = i;
    for (int s = 0; s < sequences; s++) { /* every page holds numbers */
        for (int i = 0; i < context; i++)
            c->rows[i] = (kn_kv_row){c->pages + s * per_sequence, i};
        k->ops->kv_write(k->be, c->kv, 0, c->k, c->v, c->rows, context);
    }
    for (int i = 0; i < n; i++)
        c->rows[i] = prefill ? (kn_kv_row){c->pages, context - n + i}
                             : (kn_kv_row){c->pages + i * per_sequence, context - 1};
}

static void kv_close(kernels_bench *k, kv_case *c)
{
    k->ops->kv_free(k->be, c->kv);
    k->ops->buffer_free(k->be, c->q);
    k->ops->buffer_free(k->be, c->y);
    k->ops->buffer_free(k->be, c->k);
    k->ops->buffer_free(k->be, c->v);
    free(c->pages);
    free(c->rows);
}

static void bench_attention_case(kernels_bench *k, kn_kv_type type, int context, int n,
                                 bool prefill)
{
    kv_case c;
    kn_counters before, after;
    timed t = {.op = prefill ? "attention of a prompt" : "attention of answers",
               .type = kv_types[type].name,
               .rows = n,
               .run = run_attention};
    kv_open(k, &c, type, context, n, prefill);
    snprintf(t.shape, sizeof t.shape, "%d", context);
    for (int i = 0; i < n; i++)
        t.operations += 4.0 * HEADS * HEAD_DIM * (c.rows[i].position + 1);
    k->ops->counters(k->be, &before);
    run_attention(k, &c, 0);
    k->ops->counters(k->be, &after);
    t.bytes = (double)(after.kv_bytes - before.kv_bytes);
    time_op(k, &t, &c);
    kv_close(k, &c);
}

static void bench_pages(kernels_bench *k, kn_kv_type type)
{
    kv_case c;
    timed t = {.type = kv_types[type].name};
    double element = kv_types[type].bytes, token = 2.0 * KV_HEADS * HEAD_DIM;
    int n = (int)bench_list_max(&k->rows);
    n = (n + 2 * PAGE - 1) / (2 * PAGE) * 2 * PAGE; /* an even number of pages */
    kv_open(k, &c, type, n, n, true);
    snprintf(t.shape, sizeof t.shape, "%dx%d", KV_HEADS, HEAD_DIM);
    t.op = "kv_write";
    t.rows = n;
    t.bytes = n * token * (sizeof(float) + element);
    t.run = run_kv_write;
    time_op(k, &t, &c);
    c.n = n / PAGE;
    t.op = "kv_copy";
    t.rows = PAGE;
    t.bytes = 2 * PAGE * token * element;
    t.run = run_kv_copy;
    time_op(k, &t, &c);
    t.op = "kv_clear";
    t.bytes = PAGE * token * element;
    t.run = run_kv_clear;
    time_op(k, &t, &c);
    kv_close(k, &c);
}

static void bench_attention(kernels_bench *k)
{
    int n = (int)bench_list_max(&k->rows);
    for (int type = KN_KV_F32; type <= KN_KV_Q8; type++) {
        for (int i = 0; i < k->rows.n && !interrupt_seen(); i++)
            bench_attention_case(k, (kn_kv_type)type, 512, (int)k->rows.v[i], false);
        bench_attention_case(k, (kn_kv_type)type, 4096, 1, false);
        bench_attention_case(k, (kn_kv_type)type, n, n, true);
        bench_attention_case(k, (kn_kv_type)type, 4 * n, n, true);
        bench_pages(k, (kn_kv_type)type);
    }
}

/* --- adapters --------------------------------------------------------------------------------- */

typedef struct {
    kn_segment *segments; /* [copies][n_segments]: more than the caches hold */
    int32_t *row_index;
    int n_segments, copies, width;
    float *x, *y;
} adapter_case;

static const kn_segment *segments_of(const adapter_case *c, long call)
{
    return c->segments + call % c->copies * c->n_segments;
}

static void run_lora(kernels_bench *k, void *ctx, long call)
{
    adapter_case *c = ctx;
    k->ops->lora(k->be, segments_of(c, call), c->n_segments, c->x, c->y, c->width);
}

static void run_direft(kernels_bench *k, void *ctx, long call)
{
    adapter_case *c = ctx;
    k->ops->direft(k->be, segments_of(c, call), c->n_segments, c->y);
}

/* n maps of one adapter. Zeros: DiReFT works in place and stays finite when it is done again and
 * again. */
static void make_adapters(kernels_bench *k, bool direft, kn_type type, int64_t out, int n,
                          kn_adapter_weight **made)
{
    int64_t in = HIDDEN;
    void *a = xcalloc((size_t)(RANK * in), kn_row_bytes(type, 1));
    void *b = xcalloc((size_t)(RANK * out), kn_row_bytes(type, 1));
    float bias[RANK] = {0};
    kn_adapter_matrices *m = xcalloc((size_t)n, sizeof *m);
    for (int i = 0; i < n; i++)
        m[i] = (kn_adapter_matrices){direft, RANK, in, out, type, a, b, direft ? bias : NULL, 1};
    if (!kn_adapters_create(k->be, m, n, made)) die("%s", kn_backend_error(k->be));
    free(m);
    free(a);
    free(b);
}

/* A call takes one map of each adapter, as in a step. Every other call gives an adapter's rows to
 * the one at the other end: the thread that takes them hasn't written them last, since in a step
 * they come from an operation that is split in another way. */
static void bench_adapter_case(kernels_bench *k, bool direft, kn_type type, int n_segments,
                               int rows_each)
{
    int n = n_segments * rows_each;
    if (!op_wanted(direft ? "direft" : "lora")) return;
    adapter_case c = {.n_segments = n_segments, .width = direft ? HIDDEN : FF};
    int64_t bytes = (int64_t)n_segments * RANK * (HIDDEN + c.width) * kn_row_bytes(type, 1);
    c.copies = (int)(((int64_t)opt.memory << 20) / bytes) + 1;
    c.segments = xcalloc((size_t)n_segments * c.copies, sizeof *c.segments);
    c.row_index = xcalloc((size_t)n, sizeof *c.row_index);
    c.x = device_floats(k, (size_t)n * HIDDEN);
    c.y = device_floats(k, (size_t)n * (size_t)c.width);
    timed t = {.type = type, .rows = n, .run = direft ? run_direft : run_lora};
    t.op = direft ? "direft" : "lora";
    for (int i = 0; i < n; i++)
        c.row_index[i] = i;
    kn_adapter_weight **made = xcalloc((size_t)c.copies, sizeof(kn_adapter_weight *));
    for (int i = 0; i < n_segments; i++) {
        make_adapters(k, direft, type, c.width, c.copies, made);
        for (int copy = 0; copy < c.copies; copy++)
            c.segments[copy * n_segments + i] = (kn_segment){
                made[copy], c.row_index + (copy % 2 ? n_segments - 1 - i : i) * rows_each,
                rows_each};
    }
    free(made);
    t.bytes = (double)k->ops->adapter_bytes(c.segments->w) * n_segments;
    snprintf(t.shape, sizeof t.shape, "%d of rank %d", n_segments, RANK);
    t.operations = 2.0 * RANK * (HIDDEN + c.width) * n;
    time_op(k, &t, &c);
    for (int i = 0; i < n_segments * c.copies; i++)
        k->ops->adapter_free(k->be, (kn_adapter_weight *)(uintptr_t)c.segments[i].w);
    k->ops->buffer_free(k->be, c.x);
    k->ops->buffer_free(k->be, c.y);
    free(c.segments);
    free(c.row_index);
}

static void bench_adapter_ops(kernels_bench *k)
{
    static const kn_type types[] = {KN_BF16, KN_F16, KN_F32};
    int most = (int)bench_list_max(&k->rows);
    for (int direft = 0; direft < 2; direft++)
        for (size_t t = 0; t < 3 && !interrupt_seen(); t++) {
            bench_adapter_case(k, direft, types[t], 1, most);
            bench_adapter_case(k, direft, types[t], 8, most < 8 ? 1 : most / 8);
            bench_adapter_case(k, direft, types[t], 8, 1);
            bench_adapter_case(k, direft, types[t], 32, 1);
            bench_adapter_case(k, direft, types[t], 64, 1);
            bench_adapter_case(k, direft, types[t], 512, 1);
        }
}

/* --- the command ------------------------------------------------------------------------------ */

static pf_status parse_types(kernels_bench *k, const command_context *ctx, pf_err *err)
{
    for (const char *at = opt.types; at;) {
        size_t len = strcspn(at, ",");
        int type = 0;
        while (type < KN_TYPE_COUNT && (strlen(kn_type_get((kn_type)type)->name) != len ||
                                        memcmp(kn_type_get((kn_type)type)->name, at, len) != 0))
            type++;
        if (type == KN_TYPE_COUNT)
            return usage_error(ctx, err, "--types: there is no type \"%.*s\"",
                               (int)(len < 40 ? len : 40), at);
        k->types[type] = true;
        at = at[len] ? at + len + 1 : NULL;
    }
    for (int type = 0; !opt.types && type < KN_TYPE_COUNT; type++)
        k->types[type] = true;
    return PF_OK;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    bench_report r;
    kernels_bench k = {.report = &r};
    char message[256] = "";
    kn_options options = {
        .device = "cpu", .isa = ctx->global->isa, .threads = (int)ctx->global->threads};
    bench_report_init(&r, "kernels", columns);
    interrupt_catch();
    if (bench_opt.quick) {
        opt.time = 0;
        opt.memory = 0;
    }
    if (!opt.rows) opt.rows = bench_opt.quick ? "1,4" : "1,2,4,8,16,32,64,512";
    pf_status status = bench_list_parse(opt.rows, "--rows", 1, 65536, &k.rows, err);
    if (status == PF_OK) status = parse_types(&k, ctx, err);
    if (status != PF_OK) goto out;
    k.be = kn_backend_open(&options, message, sizeof message);
    if (!k.be) {
        status = err_set(err, PF_USAGE, "%s", message);
        goto out;
    }
    k.ops = k.be->ops;
    status = bench_report_peak(&r, k.be->isa, k.be->threads, &k.peak, err);
    if (status != PF_OK) goto out;
    bench_linear(&k);
    bench_rows(&k);
    bench_attention(&k);
    bench_adapter_ops(&k);
    status = interrupt_seen() ? interrupt_status(err) : bench_report_write(ctx, &r, err);
out:
    if (k.be) k.ops->close(k.be);
    bench_report_free(&r);
    return status;
}

static const option_spec kernels_options[] = {
    OPTION_STRING_SPEC(0, "rows", &opt.rows, "LIST",
                       "Rows (tokens) of a call (default "
                       "1,2,4,8,16,32,64,512)."),
    OPTION_STRING_SPEC(0, "types", &opt.types, "LIST",
                       "Weight types, such as Q4_1,Q8_0 (default: all)."),
    OPTION_STRING_SPEC(0, "ops", &opt.ops, "LIST",
                       "Operations, or how their names begin, such as lora,attention (default: "
                       "all)."),
    OPTION_REAL_SPEC(0, "time", &opt.time, "S", 0, 60, "Seconds for each line (default 0.05)."),
    OPTION_INT_SPEC(0, "memory", &opt.memory, "MB", 0, 1 << 20,
                    "Cycle through copies of a matrix that take MB megabytes in total, so that no "
                    "cache holds them (default 200)."),
    OPTION_STRING_SPEC(0, "csv", &bench_opt.csv, "FILE", "Write the table to FILE as CSV too."),
    OPTION_FLAG_SPEC(0, "quick", &bench_opt.quick,
                     "Shortest runs and small buffers: a smoke test; the figures mean little."),
    OPTIONS_END};

const command bench_kernels_command = {
    .name = "bench kernels",
    .summary = "Measure each operation separately",
    .synopsis = TEXTS("[--rows LIST] [--types LIST] [OPTIONS]"),
    .description = TEXTS(
        "Every operation of the backend on the shapes of a model of 135 million weights; no model "
        "is read. Operations of quantized weights are compared with the integer peak, others with "
        "the float peak. Where all that an operation touches fits into caches, its share of the "
        "read peak may be above one."),
    .options = kernels_options,
    .examples = EXAMPLES(
        {"preft bench kernels --types Q4_1 --rows 1,512 --threads 1", "One type on one core."}),
    .groups = GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run};
