#include "commands/bench/paper.h"

#include "commands/bench/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct paper_shape {
    const char *name;
    int layers, hidden, ff, heads, kv_heads, head_dim, vocab;
    bool tied;
    const char *source;
};

struct paper_machine {
    const char *name;
    int devices;
    double read_gb_s, tflop_s, link_gb_s;
    const char *source;
};

typedef struct {
    const char *shape, *machine;
    double direftp, lorap; /* over lora */
} paper_result;

#define SHAPE(...) {__VA_ARGS__},
#define MACHINE(...)
#define PAPER(...)
static const paper_shape shapes[] = {
#include "commands/bench/paper.def"
};
#undef SHAPE
#undef MACHINE
#define SHAPE(...)
#define MACHINE(...) {__VA_ARGS__},
static const paper_machine machines[] = {
#include "commands/bench/paper.def"
};
#undef MACHINE
#undef PAPER
#define MACHINE(...)
#define PAPER(...) {__VA_ARGS__},
static const paper_result results[] = {
#include "commands/bench/paper.def"
};
#undef SHAPE
#undef MACHINE
#undef PAPER

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* What programs reach of the data sheet's rates, and what a kernel and a meeting of the devices
 * cost beside their work. Assumptions, not measurements: well-tuned serving reaches about these. */
#define READ_SHARE    0.8
#define OPS_SHARE     0.6
#define KERNEL_S      2e-6 /* recorded in a graph */
#define ALL_REDUCE_S  10e-6
#define PREFILL_CHUNK 8192.0 /* tokens of a step that reads prompts */
/* Kernels of a layer: norms, projections, rotation, attention, activation; LoRA: down and up for
 * qkv, o, gate and up, down; DiReFT of general operations: gather, two products, bias, add. */
enum { BASE_KERNELS = 10, LORA_KERNELS = 8, DIREFT_KERNELS = 5 };

const paper_shape *paper_find_shape(const char *name)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

const paper_machine *paper_find_machine(const char *name)
{
    for (size_t i = 0; i < COUNT(machines); i++)
        if (strcmp(machines[i].name, name) == 0) return &machines[i];
    return NULL;
}

/* --- work ------------------------------------------------------------------------------------- */

/* Numbers of an adapter per layer and rank that a device reads. With tensor parallelism the half of
 * a pair that belongs to the divided side of the map is divided, the other half is whole
 * everywhere; DiReFT acts on the whole residual stream. */
static double adapter_numbers(const paper_shape *s, int devices, bool direft)
{
    double q = (double)s->heads * s->head_dim, kv = (double)s->kv_heads * s->head_dim;
    if (direft) return 2.0 * s->hidden;
    double whole = 5.0 * s->hidden + 2.0 * s->hidden; /* A of q k v gate up; B of o and down */
    double divided = q + 2 * kv + 2.0 * s->ff + q + s->ff;
    return whole + divided / devices;
}

static bool acts(bench_kind kind, bool decode)
{
    return kind != BENCH_BASE && !(decode && bench_kind_prefill_only(kind));
}

engine_work paper_work(const paper_shape *s, const paper_machine *m, bench_kind kind, int adapters,
                       int rank, double rows, double context, double logits, bool decode)
{
    double q = (double)s->heads * s->head_dim, kv = (double)s->kv_heads * s->head_dim;
    double blocks = s->layers * (2 * s->hidden * (q + kv) + 3.0 * s->hidden * s->ff);
    double head = (double)s->vocab * s->hidden, d = m->devices;
    double pairs = 2 * q * context * rows * s->layers; /* scores and sums of attention */
    engine_work w = {.steps = 1, .rows = (uint64_t)rows};
    w.weight_bytes = (uint64_t)(2 * (blocks + head) / d);
    w.mac = (uint64_t)((rows * blocks + logits * head + pairs) / d);
    /* A prompt's keys and values are read by all its rows together. */
    w.kv_bytes = (uint64_t)(decode ? rows * context * 4 * kv * s->layers / d : 0);
    if (!acts(kind, decode)) return w;
    double numbers =
        adapter_numbers(s, m->devices, bench_kind_direft(kind)) * s->layers * (double)rank;
    w.adapter_bytes = (uint64_t)(2 * numbers * adapters);
    w.adapter_mac = (uint64_t)(numbers * rows);
    return w;
}

static cost_machine rates_of(const paper_shape *s, const paper_machine *m, bench_kind kind,
                             double rows, bool decode)
{
    int kernels = BASE_KERNELS;
    if (acts(kind, decode)) kernels += bench_kind_direft(kind) ? DIREFT_KERNELS : LORA_KERNELS;
    double meet = 0; /* two all-reduces of the residual stream a layer */
    if (m->devices > 1)
        meet = 2 * (ALL_REDUCE_S + 2 * rows * s->hidden * 2 * (m->devices - 1) / m->devices /
                                       (m->link_gb_s * 1e9));
    return (cost_machine){.read_bytes = m->read_gb_s * 1e9 * READ_SHARE,
                          .ops = m->tflop_s * 1e12 * OPS_SHARE,
                          .adapter_ops = m->tflop_s * 1e12 * OPS_SHARE,
                          .overhead = s->layers * (kernels * KERNEL_S + meet)};
}

static int distinct(const paper_setting *s)
{
    return s->batch < s->adapters ? s->batch : s->adapters;
}

double paper_decode(const paper_shape *shape, const paper_machine *m, bench_kind kind,
                    const paper_setting *s)
{
    double context = s->prompt + s->answer / 2.0;
    engine_work w =
        paper_work(shape, m, kind, distinct(s), s->rank, s->batch, context, s->batch, true);
    cost_machine rates = rates_of(shape, m, kind, s->batch, true);
    cost_parts parts = cost_of(&rates, &w);
    return cost_seconds(&parts);
}

/* All prompts, in steps of PREFILL_CHUNK tokens. */
static double paper_prefill(const paper_shape *shape, const paper_machine *m, bench_kind kind,
                            const paper_setting *s)
{
    double tokens = (double)s->batch * s->prompt, steps = ceil(tokens / PREFILL_CHUNK);
    double rows = tokens / steps, in_step = fmin(distinct(s), ceil(rows / s->prompt));
    engine_work w = paper_work(shape, m, kind, (int)in_step, s->rank, rows, s->prompt / 2.0,
                               s->batch / steps, false);
    cost_machine rates = rates_of(shape, m, kind, rows, false);
    cost_parts parts = cost_of(&rates, &w);
    return steps * cost_seconds(&parts);
}

double paper_rate(const paper_shape *shape, const paper_machine *m, bench_kind kind,
                  const paper_setting *s)
{
    double seconds = paper_prefill(shape, m, kind, s) + s->answer * paper_decode(shape, m, kind, s);
    return (double)s->batch * s->answer / seconds;
}

/* --- beside the paper ------------------------------------------------------------------------- */

typedef struct {
    double direftp, lorap; /* rates over lora's */
} pair;

static pair ratios_of(const paper_shape *shape, const paper_machine *m, const paper_setting *s)
{
    double lora = paper_rate(shape, m, BENCH_LORA, s);
    return (pair){paper_rate(shape, m, BENCH_DIREFTP, s) / lora,
                  paper_rate(shape, m, BENCH_LORAP, s) / lora};
}

static double distance(pair a, const paper_result *r)
{
    return fabs(log(a.direftp / r->direftp)) + fabs(log(a.lorap / r->lorap));
}

/* Tries every setting of a grid; the sum of the distances to results[first .. last). */
static paper_setting nearest(size_t first, size_t last, double *off)
{
    static const int ranks[] = {1, 2, 4, 8, 16, 32, 64}, batches[] = {16, 32, 64, 128, 256, 512};
    static const int lengths[] = {32, 64, 128, 256, 512, 1024, 2048, 4096};
    paper_setting best = {0};
    *off = INFINITY;
    for (size_t r = 0; r < COUNT(ranks); r++)
        for (size_t b = 0; b < COUNT(batches); b++)
            for (size_t p = 0; p < COUNT(lengths); p++)
                for (size_t a = 0; a < COUNT(lengths); a++) {
                    paper_setting s = {batches[b], 512, ranks[r], lengths[p], lengths[a]};
                    double sum = 0;
                    for (size_t i = first; i < last; i++)
                        sum += distance(ratios_of(paper_find_shape(results[i].shape),
                                                  paper_find_machine(results[i].machine), &s),
                                        &results[i]);
                    if (sum >= *off) continue;
                    *off = sum;
                    best = s;
                }
    return best;
}

static void note_setting(bench_report *r, size_t i, const char *what, const paper_setting *s)
{
    pair p =
        ratios_of(paper_find_shape(results[i].shape), paper_find_machine(results[i].machine), s);
    bench_report_note(r,
                      "%-14s %-7s direftp %.2f (paper %.2f)  lorap %.2f (paper %.2f)  %s: rank %d, "
                      "%d at once, prompts of %d, answers of %d",
                      results[i].shape, results[i].machine, p.direftp, results[i].direftp, p.lorap,
                      results[i].lorap, what, s->rank, s->batch, s->prompt, s->answer);
}

static void note_paper(bench_report *r, const paper_setting *asked)
{
    double off;
    bench_report_note(r, "\nRates over full-position lora's with 512 adapters, whole requests:");
    for (size_t i = 0; i < COUNT(results); i++)
        note_setting(r, i, "as asked", asked);
    for (size_t i = 0; i < COUNT(results); i++) {
        paper_setting own = nearest(i, i + 1, &off);
        note_setting(r, i, "nearest", &own);
    }
    paper_setting common = nearest(0, COUNT(results), &off);
    for (size_t i = 0; i < COUNT(results); i++)
        note_setting(r, i, "nearest for all", &common);
    bench_report_note(r,
                      "Assumed: %.0f %% of the read and %.0f %% of the compute rate, %.0f us a "
                      "kernel, %.0f us a meeting of devices, steps of %.0f prompt tokens.",
                      100 * READ_SHARE, 100 * OPS_SHARE, KERNEL_S * 1e6, ALL_REDUCE_S * 1e6,
                      PREFILL_CHUNK);
}

/* --- the table -------------------------------------------------------------------------------- */

static const bench_column columns[] = {
    {"shape", "shape", 0},
    {"machine", "machine", 0},
    {"profiles", "profiles", 0},
    {"rank", "rank", 0},
    {"kind", "kind", 0},
    {"context", "context", 0},
    {"step_ms", "ms/step", 3},
    {"weight_mb", "MB weights", 0},
    {"adapter_mb", "MB adapters", 1},
    {"kv_mb", "MB KV", 1},
    {"reason", "limited by", 0},
    {"ratio", "of base", 3},
    {"full_ratio", "of full", 3},
    {"rate", "tokens/s", 0},
    {"rate_ratio", "whole, of base", 3},
    {"rate_full_ratio", "whole, of full", 3},
    {0},
};

static void set_reason(json_t *row, const cost_machine *rates, const engine_work *w)
{
    char text[64];
    cost_parts parts = cost_of(rates, w);
    double share;
    const char *reason = cost_reason(rates, w, cost_seconds(&parts), &share);
    snprintf(text, sizeof text, "%s %.0f %%", reason, 100 * share);
    json_object_set_new(row, "reason", json_string(text));
}

static void report_kind(bench_report *r, const paper_shape *shape, const paper_machine *m,
                        bench_kind kind, const paper_setting *s)
{
    json_t *row = bench_report_row(r);
    double context = s->prompt + s->answer / 2.0;
    engine_work w =
        paper_work(shape, m, kind, distinct(s), s->rank, s->batch, context, s->batch, true);
    cost_machine rates = rates_of(shape, m, kind, s->batch, true);
    double step = paper_decode(shape, m, kind, s), rate = paper_rate(shape, m, kind, s);
    json_object_set_new(row, "shape", json_string(shape->name));
    json_object_set_new(row, "machine", json_string(m->name));
    json_object_set_new(row, "profiles", json_integer(s->batch));
    if (kind != BENCH_BASE) json_object_set_new(row, "rank", json_integer(s->rank));
    json_object_set_new(row, "kind", json_string(bench_kind_names[kind]));
    json_object_set_new(row, "context", json_integer((json_int_t)context));
    bench_set(row, "step_ms", step * 1e3);
    bench_set(row, "weight_mb", (double)w.weight_bytes * 1e-6);
    bench_set(row, "adapter_mb", (double)w.adapter_bytes * 1e-6);
    bench_set(row, "kv_mb", (double)w.kv_bytes * 1e-6);
    set_reason(row, &rates, &w);
    bench_set(row, "ratio", paper_decode(shape, m, BENCH_BASE, s) / step);
    bench_set(row, "rate", rate);
    bench_set(row, "rate_ratio", rate / paper_rate(shape, m, BENCH_BASE, s));
    if (!bench_kind_prefill_only(kind)) return;
    bench_kind full = kind == BENCH_LORAP ? BENCH_LORA : BENCH_DIREFT;
    bench_set(row, "full_ratio", paper_decode(shape, m, full, s) / step);
    bench_set(row, "rate_full_ratio", rate / paper_rate(shape, m, full, s));
}

static pf_status unknown(const command_context *ctx, const char *option, const char *name,
                         pf_err *err)
{
    buf known = {0};
    bool shape = strcmp(option, "--shape") == 0;
    for (size_t i = 0; i < (shape ? COUNT(shapes) : COUNT(machines)); i++)
        buf_printf(&known, "%s%s", i ? ", " : "", shape ? shapes[i].name : machines[i].name);
    pf_status status =
        usage_error(ctx, err, "%s: \"%s\" is none of %s", option, name, buf_str(&known));
    buf_free(&known);
    return status;
}

static const char *usual_machine(const char *shape)
{
    for (size_t i = 0; i < COUNT(results); i++)
        if (strcmp(results[i].shape, shape) == 0) return results[i].machine;
    return machines[0].name;
}

pf_status paper_run(const command_context *ctx, const char *shape_name, const char *machine_name,
                    const bench_list *batches, const bench_list *ranks, int prompt, int answer,
                    pf_err *err)
{
    const paper_shape *shape = paper_find_shape(shape_name);
    if (!shape) return unknown(ctx, "--shape", shape_name, err);
    if (!machine_name) machine_name = usual_machine(shape_name);
    const paper_machine *m = paper_find_machine(machine_name);
    if (!m) return unknown(ctx, "--machine", machine_name, err);

    bench_report r;
    paper_setting asked = {512, 512, (int)ranks->v[0], prompt, answer};
    bench_report_init(&r, "paper", columns);
    for (int i = 0; i < ranks->n; i++)
        for (int j = 0; j < batches->n; j++)
            for (int kind = 0; kind < BENCH_KINDS; kind++) {
                int batch = (int)batches->v[j];
                paper_setting s = {batch, batch, (int)ranks->v[i], prompt, answer};
                report_kind(&r, shape, m, (bench_kind)kind, &s);
            }
    bench_report_note(&r, "%s: %s; %s: %s", shape->name, shape->source, m->name, m->source);
    note_paper(&r, &asked);
    pf_status status = bench_report_write(ctx, &r, err);
    bench_report_free(&r);
    return status;
}
