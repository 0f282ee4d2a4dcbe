/* Training's products with base weights. An item is a run of token rows times some columns of the
 * result. It goes over the sum in parts: of each it unpacks what it needs of the weights into its
 * worker's panel of strips, which stays in the second cache, and multiplies. Quantized weights are
 * multiplied as integers (train_simd.h), others in float.
 *
 * How the work is cut doesn't matter to the result: a sum's order is that of the weights. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train_simd.h"

#include <string.h>

#define LONG_WORK   1e9 /* for kn_cpu_run: always worth sharing */
#define PART        576 /* of the sum; whole groups */
#define FLOAT_COLS  64  /* columns of a panel */
#define INT_COLS    32
#define MOST_ROWS   480 /* of an item */
#define LEAST_ROWS  96  /* fewer aren't worth a panel of their own */
#define ROW_RUN     16  /* rows of an item that quantizes */
#define STRIP       16
#define PART_GROUPS (PART / KN_GROUP)

const kn_train_simd *kn_train_simd_of(const kn_cpu *cpu)
{
#if defined(__x86_64__)
    if (strcmp(cpu->base.isa, "avx512") == 0 || strcmp(cpu->base.isa, "amx") == 0)
        return &kn_train_simd_avx512;
    return &kn_train_simd_avx2;
#else
    (void)cpu;
    return NULL;
#endif
}

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

typedef struct {
    kn_cpu *cpu;
    const kn_train_simd *simd;
    int n;              /* token rows */
    int64_t panel_cols; /* of the result, in an item */
    int rows_per_item, n_row_items;
    /* forward: an output each; an item belongs to one of them */
    const kn_linear *outs;
    const float *x;
    /* backward: all outputs are summed up in every item */
    const kn_linear_grad *grads;
    int n_outs;
    int64_t cols;
    bool add; /* to what d_x holds */
    float *d_x;
    /* Of integer products: the rows' codes, of all outputs' gradients side by side. */
    int16_t *codes; /* [n, ld] */
    float *scale;   /* [n, ld / KN_GROUP] */
    int64_t ld;
} product_job;

/* Rows are cut only as far as the workers need items. */
static void run_items(product_job *j, int64_t n_panels, kn_pool_fn *fn)
{
    int64_t runs = ceil_div(j->n, MOST_ROWS), wanted = 4 * j->cpu->base.threads;
    while (n_panels * runs < wanted && j->n / (runs + 1) >= LEAST_ROWS)
        runs++;
    j->rows_per_item = (int)(ceil_div(ceil_div(j->n, runs), 12) * 12); /* whole register tiles */
    j->n_row_items = (int)ceil_div(j->n, j->rows_per_item);
    kn_cpu_run(j->cpu, (int)n_panels * j->n_row_items, LONG_WORK, fn, j);
}

/* The part of the result that is an item's. */
typedef struct {
    int first, rows;
    int64_t at; /* the first column */
    int width;
} item_part;

static item_part part_of(const product_job *j, int item, int64_t panel, int64_t cols)
{
    item_part p = {.first = item % j->n_row_items * j->rows_per_item, .at = panel * j->panel_cols};
    p.rows = (int)min64(j->rows_per_item, j->n - p.first);
    p.width = (int)min64(j->panel_cols, cols - p.at);
    return p;
}

/* A forward item's output and its part of it, which is set to what the sums begin with. */
static const kn_linear *begin_output(const product_job *j, int item, item_part *p)
{
    int64_t panel = item / j->n_row_items;
    const kn_linear *out = j->outs;
    for (int64_t n; panel >= (n = ceil_div(out->w->rows, j->panel_cols)); out++)
        panel -= n;
    *p = part_of(j, item, panel, out->w->rows);
    for (int i = 0; i < p->rows; i++) {
        float *y = out->y + (p->first + i) * out->ld_y + p->at;
        if (!out->add) memset(y, 0, (size_t)p->width * sizeof *y);
        if (out->bias) j->simd->add(out->bias + p->at, p->width, y);
    }
    return out;
}

/* A backward item's part of d_x, likewise. */
static item_part begin_gradient(const product_job *j, int item)
{
    const item_part p = part_of(j, item, item / j->n_row_items, j->cols);
    for (int i = 0; i < p.rows && !j->add; i++)
        memset(j->d_x + (p.first + i) * j->cols + p.at, 0, (size_t)p.width * sizeof *j->d_x);
    return p;
}

/* --- float ---------------------------------------------------------------------------------- */

/* The panel, and a row of a part for the types that are unpacked by rows. */
static float *float_panel(const product_job *j, int worker, float **row)
{
    size_t panel = FLOAT_COLS * PART;
    float *scratch = kn_scratch_get(&j->cpu->worker[worker], (panel + PART) * sizeof *scratch);
    *row = scratch + panel;
    return scratch;
}

static void float_item(void *ctx, int item, int worker)
{
    const product_job *j = ctx;
    item_part p;
    const kn_linear *out = begin_output(j, item, &p);
    const kn_weight *w = out->w;
    float *row, *panel = float_panel(j, worker, &row), *y = out->y + p.first * out->ld_y + p.at;
    for (int64_t k = 0; k < w->cols; k += PART) {
        int64_t end = min64(k + PART, w->cols), strip = (end - k) * STRIP;
        for (int64_t t = 0; t * STRIP < p.width; t++)
            j->simd->unpack_columns(w, p.at / STRIP + t, k, end, row, panel + t * strip);
        j->simd->strip_gemm(p.rows, p.width, (int)(end - k), j->x + p.first * w->cols + k, w->cols,
                            panel, strip, y, out->ld_y);
    }
}

static void float_gradient_item(void *ctx, int item, int worker)
{
    const product_job *j = ctx;
    const item_part p = begin_gradient(j, item);
    float *row, *panel = float_panel(j, worker, &row), *d_x = j->d_x + p.first * j->cols + p.at;
    for (int o = 0; o < j->n_outs; o++) {
        const kn_linear_grad *g = &j->grads[o];
        for (int64_t k = 0; k < g->rows; k += PART) {
            int64_t depth = min64(PART, g->rows - k),
                    strip = ceil_div(depth, STRIP) * STRIP * STRIP;
            for (int64_t t = 0; t * STRIP < depth; t++)
                j->simd->unpack_tile(g->w, k / STRIP + t, p.at, p.at + p.width, row,
                                     panel + t * STRIP * STRIP, strip);
            j->simd->strip_gemm(p.rows, p.width, (int)depth, g->d_y + p.first * g->ld + k, g->ld,
                                panel, strip, d_x, j->cols);
        }
    }
}

/* --- integers ------------------------------------------------------------------------------- */

/* An integer item's working space. */
typedef struct {
    kn_strip_group panel[INT_COLS / STRIP][PART_GROUPS];
    float strips[INT_COLS / STRIP][KN_GROUP * STRIP]; /* of a group, as numbers */
    float row[INT_COLS];
} integer_space;

static void quantize_item(void *ctx, int item, int worker)
{
    (void)worker;
    const product_job *j = ctx;
    const int64_t ld_scale = j->ld / KN_GROUP;
    int end = (int)min64(j->n, (int64_t)(item + 1) * ROW_RUN);
    for (int i = item * ROW_RUN; i < end; i++) {
        int16_t *codes = j->codes + i * j->ld;
        float *scale = j->scale + i * ld_scale;
        if (j->x) j->simd->quantize_row(j->x + i * j->ld, j->ld, codes, scale);
        for (int o = 0; o < j->n_outs && !j->x; o++) {
            const kn_linear_grad *g = &j->grads[o];
            int64_t groups = ceil_div(g->rows, KN_GROUP);
            j->simd->quantize_row(g->d_y + i * g->ld, g->rows, codes, scale);
            codes += groups * KN_GROUP;
            scale += groups;
        }
    }
}

/* Codes of rows of width ld. */
static void quantize_rows(product_job *j, int64_t ld)
{
    size_t codes = ((size_t)j->n * (size_t)ld * sizeof *j->codes + 63) / 64 * 64;
    size_t scale = (size_t)j->n * (size_t)(ld / KN_GROUP) * sizeof *j->scale;
    char *scratch = kn_scratch_get(&j->cpu->training, codes + scale);
    j->codes = (int16_t *)(void *)scratch;
    j->scale = (float *)(void *)(scratch + codes);
    j->ld = ld;
    kn_cpu_run(j->cpu, (int)ceil_div(j->n, ROW_RUN), (double)j->n * (double)ld, quantize_item, j);
}

/* y[rows, width] += groups of codes from `group` on times the panel. */
static void multiply(const product_job *j, const item_part *p, const integer_space *s,
                     int64_t group, int groups, float *y, int64_t ld_y)
{
    const int64_t ld_scale = j->ld / KN_GROUP;
    for (int t = 0; t * STRIP < p->width; t++)
        j->simd->integer_gemm(p->rows, (int)min64(STRIP, p->width - t * STRIP), groups,
                              j->codes + p->first * j->ld + group * KN_GROUP, j->ld,
                              j->scale + p->first * ld_scale + group, ld_scale, s->panel[t],
                              y + t * STRIP, ld_y);
}

static integer_space *space_of(const product_job *j, int worker)
{
    return kn_scratch_get(&j->cpu->worker[worker], sizeof(integer_space));
}

static void integer_item(void *ctx, int item, int worker)
{
    const product_job *j = ctx;
    integer_space *s = space_of(j, worker);
    item_part p;
    const kn_linear *out = begin_output(j, item, &p);
    float *y = out->y + p.first * out->ld_y + p.at;
    const int64_t n_groups = out->w->cols / KN_GROUP;
    for (int64_t first = 0; first < n_groups; first += PART_GROUPS) {
        int groups = (int)min64(PART_GROUPS, n_groups - first);
        for (int t = 0; t * STRIP < p.width; t++)
            for (int g = 0; g < groups; g++) {
                int64_t k = (first + g) * KN_GROUP;
                j->simd->unpack_columns(out->w, p.at / STRIP + t, k, k + KN_GROUP, s->row,
                                        s->strips[0]);
                j->simd->quantize_strip(s->strips[0], &s->panel[t][g]);
            }
        multiply(j, &p, s, first, groups, y, out->ld_y);
    }
}

/* One group of weight rows for the item's columns. Rows past the last are 0. */
static void gradient_group(const product_job *j, const kn_weight *w, const item_part *p,
                           int64_t first, int g, integer_space *s)
{
    const int64_t k = (first + g) * KN_GROUP, rows = min64(KN_GROUP, w->rows - k);
    for (int64_t t = 0; t * STRIP < rows; t++)
        j->simd->unpack_tile(w, k / STRIP + t, p->at, p->at + p->width, s->row,
                             s->strips[0] + t * STRIP * STRIP, KN_GROUP * STRIP);
    for (int t = 0; t * STRIP < p->width; t++) {
        memset(s->strips[t] + rows * STRIP, 0, (size_t)(KN_GROUP - rows) * STRIP * sizeof(float));
        j->simd->quantize_strip(s->strips[t], &s->panel[t][g]);
    }
}

static void integer_gradient_item(void *ctx, int item, int worker)
{
    const product_job *j = ctx;
    integer_space *s = space_of(j, worker);
    const item_part p = begin_gradient(j, item);
    int64_t before = 0; /* groups of the outputs before this one */
    for (int o = 0; o < j->n_outs; o++) {
        const int64_t n_groups = ceil_div(j->grads[o].rows, KN_GROUP);
        for (int64_t first = 0; first < n_groups; first += PART_GROUPS) {
            int groups = (int)min64(PART_GROUPS, n_groups - first);
            for (int g = 0; g < groups; g++)
                gradient_group(j, j->grads[o].w, &p, first, g, s);
            multiply(j, &p, s, before + first, groups, j->d_x + p.first * j->cols + p.at, j->cols);
        }
        before += n_groups;
    }
}

/* --- the operations ------------------------------------------------------------------------- */

static bool is_quantized(const kn_weight *w)
{
    return kn_type_get(w->type)->quantized;
}

void kn_train_linear(kn_backend *be, const float *x, int n, const kn_linear *outs, int n_outs)
{
    for (int o = 0, end; n > 0 && o < n_outs; o = end) { /* runs that are computed alike */
        const bool integers = is_quantized(outs[o].w);
        product_job job = {.cpu = kn_cpu_of(be), .n = n, .outs = &outs[o], .x = x};
        int64_t panels = 0;
        job.simd = kn_train_simd_of(job.cpu);
        job.panel_cols = integers ? INT_COLS : FLOAT_COLS;
        for (end = o; end < n_outs && is_quantized(outs[end].w) == integers; end++)
            panels += ceil_div(outs[end].w->rows, job.panel_cols);
        if (integers) quantize_rows(&job, outs[o].w->cols);
        run_items(&job, panels, integers ? integer_item : float_item);
    }
}

void kn_train_linear_backward(kn_backend *be, const kn_linear_grad *outs, int n_outs, int n,
                              int64_t cols, bool add, float *d_x)
{
    if (n <= 0) return;
    for (int o = 0, end; o < n_outs; o = end) {
        const bool integers = is_quantized(outs[o].w);
        product_job job = {.cpu = kn_cpu_of(be), .n = n, .grads = &outs[o], .cols = cols};
        job.add = add || o > 0;
        job.d_x = d_x;
        int64_t groups = 0;
        job.simd = kn_train_simd_of(job.cpu);
        job.panel_cols = integers ? INT_COLS : FLOAT_COLS;
        for (end = o; end < n_outs && is_quantized(outs[end].w) == integers; end++)
            groups += ceil_div(outs[end].rows, KN_GROUP);
        job.n_outs = end - o;
        if (integers) quantize_rows(&job, groups * KN_GROUP);
        run_items(&job, ceil_div(cols, job.panel_cols),
                  integers ? integer_gradient_item : float_gradient_item);
    }
}
