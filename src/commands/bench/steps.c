/* preft bench prefill, preft bench decode: the base model by context and batch. */
#include "base/clock.h"
#include "base/mem.h"
#include "commands/bench/load.h"
#include "commands/bench/neighbour.h"
#include "commands/interrupt.h"
#include "commands/open.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct {
    const char *contexts, *batches;
    int64_t steps;
} opt = {.steps = 16};

static const bench_column columns[] = {
    {"context", "context", 0},      {"batch", "batch", 0},
    {"rate", "tokens/s", 1},        {"rate_min", "min", 1},
    {"rate_max", "max", 1},         {"step_rows", "rows/step", 1},
    {"weight_mb", "MB weights", 1}, {"kv_mb", "MB KV", 1},
    {"read_gb_s", "GB/s", 2},       {"read_share", "read peak", 3},
    {"gop_s", "Gop/s", 1},          {"compute_share", "int peak", 3},
    {"repeats", NULL, 0},           {0},
};

typedef struct {
    int context, batch;
    bench_samples rate, read, ops;
    engine_work work; /* of the last repetition */
} point;

typedef struct {
    const command_context *ctx;
    bool decode;
    double model_seconds; /* to open the model's file */
    uint64_t model_bytes; /* of the file; 0: a folder */
    bench_list contexts, batches;
    point *points; /* [contexts.n * batches.n] */
    int n_points;
    bench_engine b;
    bench_report report;
    kn_peak peak;
    bench_samples arrival;   /* longest wait, in plain steps */
    bench_samples neighbour; /* rate beside a busy process, of the free run's */
} steps_bench;

static pf_status measure_point(steps_bench *s, point *p, int repeat, pf_err *err)
{
    bench_load load = {
        .n = p->batch, .prompt = p->context, .seed = (uint64_t)bench_opt.seed + (uint64_t)repeat};
    bench_measure m;
    pf_status status = s->decode ? bench_run_decode(&s->b, &load, (int)opt.steps, &m, err)
                                 : bench_run_answers(&s->b, &load, 1, &m, err);
    if (status != PF_OK) return status;
    const engine_work *w = &m.work;
    bench_samples_add(&p->rate, (double)w->rows / m.seconds);
    bench_samples_add(&p->read, (double)(w->weight_bytes + w->kv_bytes) / m.seconds);
    bench_samples_add(&p->ops, 2 * (double)w->mac / m.seconds);
    if (m.disturbed) note(s->ctx, "batch %d: prompts were read again: pages were short", p->batch);
    p->work = m.work;
    return PF_OK;
}

/* How long the largest batch of answers waits when the longest prompt arrives. */
static pf_status measure_arrival(steps_bench *s, int repeat, pf_err *err)
{
    bench_load load = {.n = (int)bench_list_max(&s->batches),
                       .prompt = 16,
                       .seed = (uint64_t)bench_opt.seed + (uint64_t)repeat};
    double wait = 0;
    pf_status status =
        bench_run_arrival(&s->b, &load, (int)bench_list_max(&s->contexts), &wait, err);
    if (status == PF_OK) bench_samples_add(&s->arrival, wait);
    return status;
}

/* The most answers again, and once more while another process keeps one core busy. */
static pf_status measure_neighbour(steps_bench *s, int repeat, pf_err *err)
{
    bench_load load = {.n = (int)bench_list_max(&s->batches),
                       .prompt = (int)s->contexts.v[0],
                       .seed = (uint64_t)bench_opt.seed + (uint64_t)repeat};
    bench_measure free_run, beside;
    pid_t neighbour = 0;
    pf_status status = bench_run_decode(&s->b, &load, (int)opt.steps, &free_run, err);
    if (status == PF_OK) status = neighbour_start(&neighbour, err);
    if (status == PF_OK) status = bench_run_decode(&s->b, &load, (int)opt.steps, &beside, err);
    neighbour_stop(neighbour);
    if (status != PF_OK || free_run.seconds <= 0 || beside.seconds <= 0) return status;
    bench_samples_add(&s->neighbour, (double)beside.work.rows / beside.seconds /
                                         ((double)free_run.work.rows / free_run.seconds));
    return PF_OK;
}

static void report_point(steps_bench *s, const point *p)
{
    json_t *row = bench_report_row(&s->report);
    double steps = (double)p->work.steps;
    json_object_set_new(row, "context", json_integer(p->context));
    json_object_set_new(row, "batch", json_integer(p->batch));
    json_object_set_new(row, "repeats", json_integer(p->rate.n));
    bench_set_samples(row, "rate", &p->rate);
    bench_set(row, "step_rows", (double)p->work.rows / steps);
    bench_set(row, "weight_mb", (double)p->work.weight_bytes / steps * 1e-6);
    bench_set(row, "kv_mb", (double)p->work.kv_bytes / steps * 1e-6);
    bench_set(row, "read_gb_s", bench_median(&p->read) * 1e-9);
    bench_set(row, "read_share", bench_median(&p->read) / s->peak.read_bytes);
    bench_set(row, "gop_s", bench_median(&p->ops) * 1e-9);
    bench_set(row, "compute_share", bench_median(&p->ops) / s->peak.int_ops);
}

/* Time and memory until the model has answered for the first time. */
static void report_opening(steps_bench *s)
{
    const double peak = (double)s->b.peak_bytes, kv = (double)s->b.kv_bytes;
    const double file = (double)s->model_bytes, seconds = s->model_seconds + s->b.open_seconds;
    json_t *machine = s->report.machine;
    json_object_set_new(machine, "open_seconds", json_real(seconds));
    json_object_set_new(machine, "open_peak_bytes", json_integer((json_int_t)s->b.peak_bytes));
    json_object_set_new(machine, "model_bytes", json_integer((json_int_t)s->model_bytes));
    json_object_set_new(machine, "kv_bytes", json_integer((json_int_t)s->b.kv_bytes));
    bench_report_note(
        &s->report,
        "opened in %.2f s, with at most %.1f MB of memory (the model's file: %.1f MB, "
        "keys and values: %.1f MB)",
        seconds, peak * 1e-6, file * 1e-6, kv * 1e-6);
    bench_report_goal(&s->report, "0.5 s over the time to open the model", 0.5 / seconds, 1);
    if (s->model_bytes > 0)
        bench_report_goal(&s->report,
                          "the model's file, keys and values and a fifth over the peak memory",
                          1.2 * (file + kv) / peak, 1);
}

static void report_goals(steps_bench *s)
{
    double single = (double)NAN, best = (double)NAN;
    for (int i = 0; i < s->n_points; i++) {
        const point *p = &s->points[i];
        if (p->batch != 1) continue;
        if (isnan(single)) single = bench_median(&p->read) / s->peak.read_bytes;
        best = fmax(best, bench_median(&p->ops) / s->peak.int_ops);
    }
    if (s->decode) {
        bench_report_goal(&s->report, "one sequence's share of the read bandwidth", single, 0.70);
        bench_report_goal(&s->report,
                          "2 plain steps over the longest wait while a long prompt arrives",
                          2 / bench_median(&s->arrival), 1);
        bench_report_goal(&s->report,
                          "beside a process that keeps one core busy, rate of the free run's",
                          bench_median(&s->neighbour), 0.45);
        return;
    }
    bench_report_goal(&s->report, "one prompt's share of the integer peak", best, 0.65);
    report_opening(s);
}

/* Of the usual contexts those that the model can hold. */
static void drop_long_contexts(bench_list *contexts, int64_t most)
{
    int n = 0;
    for (int i = 0; i < contexts->n; i++)
        if (contexts->v[i] <= most || i == 0) contexts->v[n++] = contexts->v[i];
    contexts->n = n;
}

static pf_status prepare(steps_bench *s, const model *m, pf_err *err)
{
    const char *contexts = opt.contexts      ? opt.contexts
                           : bench_opt.quick ? "32"
                           : s->decode       ? "128,512"
                                             : "128,512,2048";
    int room = s->decode ? BENCH_WINDOW_ROOM : 1; /* for the answer */
    pf_status status = bench_list_parse(contexts, "--contexts", 1, 1 << 24, &s->contexts, err);
    if (!opt.contexts) drop_long_contexts(&s->contexts, model_get_config(m)->context - room);
    if (status == PF_OK)
        status = bench_list_parse(opt.batches, "--batches", 1, 4096, &s->batches, err);
    if (status != PF_OK) return status;
    s->points = xcalloc((size_t)(s->contexts.n * s->batches.n), sizeof *s->points);
    for (int c = 0; c < s->contexts.n; c++)
        for (int b = 0; b < s->batches.n; b++)
            s->points[s->n_points++] =
                (point){.context = (int)s->contexts.v[c], .batch = (int)s->batches.v[b]};
    /* One more sequence: the new prompt of measure_arrival. */
    const bench_room needs = {.batch = (int)bench_list_max(&s->batches) + s->decode,
                              .tokens = (int)bench_list_max(&s->contexts) + room};
    status = bench_engine_open(s->ctx, m, &needs, &s->b, err);
    if (status != PF_OK) return status;
    engine_stats stats;
    engine_get_stats(s->b.e, &stats);
    return bench_report_peak(&s->report, stats.isa, stats.threads, &s->peak, err);
}

static pf_status run_grid(steps_bench *s, pf_err *err)
{
    pf_status status = PF_OK;
    int64_t begin = clock_monotonic_ns();
    /* --seconds is meant for a point, and the points take turns. */
    for (int repeat = 0; status == PF_OK; repeat++) {
        int64_t shared = (clock_monotonic_ns() - begin) / s->n_points;
        if (!bench_again(repeat, clock_monotonic_ns() - shared)) break;
        for (int i = 0; i < s->n_points && status == PF_OK; i++)
            status = measure_point(s, &s->points[i], repeat, err);
        if (status == PF_OK && s->decode) status = measure_arrival(s, repeat, err);
        if (status == PF_OK && s->decode) status = measure_neighbour(s, repeat, err);
    }
    if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    return status;
}

static pf_status run_steps(const command_context *ctx, bool decode, pf_err *err)
{
    steps_bench s = {.ctx = ctx, .decode = decode};
    model *m = NULL;
    bench_report_init(&s.report, decode ? "decode" : "prefill", columns);
    interrupt_catch();
    if (!opt.batches) opt.batches = bench_opt.quick ? "1,2" : decode ? "1,8,32" : "1,8";
    int64_t begin = clock_monotonic_ns();
    pf_status status = open_model(ctx, &m, err);
    s.model_seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    struct stat file;
    if (status == PF_OK && stat(model_path(m), &file) == 0 && S_ISREG(file.st_mode))
        s.model_bytes = (uint64_t)file.st_size;
    if (status == PF_OK) status = prepare(&s, m, err);
    if (status == PF_OK) status = run_grid(&s, err);
    if (status == PF_OK) {
        for (int i = 0; i < s.n_points; i++)
            report_point(&s, &s.points[i]);
        report_goals(&s);
        status = bench_report_write(ctx, &s.report, err);
    }
    bench_engine_close(&s.b);
    model_close(m);
    bench_report_free(&s.report);
    free(s.points);
    return status;
}

static pf_status run_prefill(const command_context *ctx, pf_err *err)
{
    return run_steps(ctx, false, err);
}

static pf_status run_decode(const command_context *ctx, pf_err *err)
{
    return run_steps(ctx, true, err);
}

static const option_spec prefill_options[] = {
    OPTION_STRING_SPEC(0, "contexts", &opt.contexts, "LIST",
                       "Lengths of the prompts (default 128,512,2048)."),
    OPTION_STRING_SPEC(0, "batches", &opt.batches, "LIST", "Prompts at once (default 1,8)."),
    BENCH_OPTIONS, OPTIONS_END};

const command bench_prefill_command = {
    .name = "bench prefill",
    .summary = "Measure how fast prompts are read",
    .synopsis = TEXTS("[--contexts LIST] [--batches LIST] [OPTIONS]"),
    .description =
        TEXTS("For each length and number of prompts: from their arrival until each has its first "
              "token."),
    .options = prefill_options,
    .examples = EXAMPLES({"preft bench prefill --contexts 512 --batches 1", "One figure."}),
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run_prefill};

static const option_spec decode_options[] = {
    OPTION_STRING_SPEC(0, "contexts", &opt.contexts, "LIST",
                       "Lengths of the prompts before the answers (default 128,512)."),
    OPTION_STRING_SPEC(0, "batches", &opt.batches, "LIST", "Answers at once (default 1,8,32)."),
    OPTION_INT_SPEC(0, "steps", &opt.steps, "N", 1, 128,
                    "Least number of steps that are measured (default 16)."),
    BENCH_OPTIONS, OPTIONS_END};

const command bench_decode_command = {
    .name = "bench decode",
    .summary = "Measure how fast answers are written",
    .synopsis = TEXTS("[--contexts LIST] [--batches LIST] [OPTIONS]"),
    .description = TEXTS("For each context and number of answers: steps in which all of them are "
                         "decoded and nothing else is done. It counts the bytes (MB) that a step "
                         "reads of base weights and of cached keys and values; `read peak` and "
                         "`int peak` are shares of the machine's peak rates.",
                         "Then, with the largest number of answers running, another prompt of the "
                         "longest context arrives: how long an answer waits for its next token, in "
                         "plain decode steps, is one of the goals. Another is the rate with the "
                         "largest number of answers while another process keeps one core busy."),
    .options = decode_options,
    .examples = EXAMPLES({"preft bench decode --batches 1,32 --csv decode.csv",
                          "One answer and 32; the table in a file too."}),
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run_decode};
