/* preft bench train: tokens per second of a training pass, and its memory. */
#include "base/clock.h"
#include "base/mem.h"
#include "commands/bench_load.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "train/pass.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

static struct {
    int64_t rank, length, batch;
    int kind;
} opt = {.rank = 8, .length = 256, .batch = 4};

static const bench_column columns[] = {
    {"kind", "kind", 0},
    {"rank", "rank", 0},
    {"length", "length", 0},
    {"batch", "batch", 0},
    {"rate", "tokens/s", 1},
    {"rate_min", "min", 1},
    {"rate_max", "max", 1},
    {"forward_rate", "forward tokens/s", 1},
    {"backward_rate", "backward tokens/s", 1},
    {"base_rate", "base forward tokens/s", 1},
    {"peak_mb", "peak MB", 0},
    {"repeats", NULL, 0},
    {0},
};

static const char *const kinds[] = {"lorap", "direftp", "lora", "direft", NULL};

/* The backend is this thread's: a training pass runs here as on the engine thread. */
typedef struct {
    const command_context *ctx;
    model *m;
    kn_backend *be;
    packed_model *weights;
    train_params params;
    train_pass *pass;
    int32_t *ids;           /* [batch * length] */
    unsigned char *adapted; /* [length], the same in all conversations */
    unsigned char *target;  /* [length] */
    train_sequence *sequences;
    bench_samples rate, forward, backward, base;
} train_bench;

/* Conversations of a question and an answer of the same length: the first half is adapted, the
 * second is learned. */
static void make_conversations(train_bench *t)
{
    size_t length = (size_t)opt.length, batch = (size_t)opt.batch;
    uint64_t state = (uint64_t)bench_opt.seed, vocab = (uint64_t)model_get_config(t->m)->vocab;
    bool everywhere = opt.kind >= 2;
    t->ids = xcalloc(length * batch, sizeof *t->ids);
    t->adapted = xcalloc(length, 1);
    t->target = xcalloc(length, 1);
    t->sequences = xcalloc(batch, sizeof *t->sequences);
    for (size_t i = 0; i < length * batch; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        t->ids[i] = (int32_t)((state >> 33) % vocab);
    }
    for (size_t i = 0; i < length; i++) {
        t->target[i] = i > 0 && i >= length / 2;
        t->adapted[i] = everywhere || i < length / 2;
    }
    for (size_t i = 0; i < batch; i++)
        t->sequences[i] = (train_sequence){.ids = t->ids + i * length,
                                           .adapted = t->adapted,
                                           .target = t->target,
                                           .length = (int32_t)length};
}

static pf_status open_bench(train_bench *t, pf_err *err)
{
    const global_options *g = t->ctx->global;
    char message[256] = "";
    kn_options kn = {.device = "cpu", .isa = g->isa, .threads = (int)g->threads};
    const train_pass_options pass = {.max_rows = (size_t)(opt.length * opt.batch),
                                     .activation_bytes = (size_t)256 << 20};
    train_shape shape = {.direft = opt.kind & 1,
                         .prefill_only = opt.kind < 2,
                         .rank = (int)opt.rank,
                         .seed = (uint64_t)bench_opt.seed};
    pf_status status = open_model(t->ctx, &t->m, err);
    if (status != PF_OK) return status;
    t->be = kn_backend_open(&kn, message, sizeof message);
    if (!t->be) return err_set(err, PF_USAGE, "%s", message);
    status = packed_model_create(t->m, t->be, &t->weights, err);
    if (status == PF_OK)
        status = train_params_create(t->be, model_get_config(t->m), &shape, &t->params, err);
    if (status == PF_OK) status = train_pass_open(t->weights, &pass, &t->pass, err);
    if (status == PF_OK) make_conversations(t);
    return status;
}

static void close_bench(train_bench *t)
{
    train_pass_close(t->pass);
    train_params_free(&t->params);
    packed_model_free(t->weights);
    if (t->be) t->be->ops->close(t->be);
    model_close(t->m);
    free(t->ids);
    free(t->adapted);
    free(t->target);
    free(t->sequences);
}

/* Seconds of one pass; params NULL: the base model, forward only. *forward gets those of the first
 * forward_units units. */
static pf_status time_pass(train_bench *t, train_params *params, int forward_units, double *forward,
                           double *whole, pf_err *err)
{
    int64_t begin = clock_monotonic_ns(), middle = begin;
    double divisor = (double)(opt.batch * opt.length) / 2;
    int done = 0, total = 0;
    pf_status status = train_pass_begin(t->pass, params, t->sequences, (size_t)opt.batch,
                                        params != NULL, divisor, NULL, NULL, err);
    while (status == PF_OK && train_pass_advance(t->pass)) {
        train_pass_progress(t->pass, &done, &total);
        if (done == forward_units) middle = clock_monotonic_ns();
        if (interrupt_seen()) status = interrupt_status(err);
    }
    *forward = (double)(middle - begin) * 1e-9;
    *whole = (double)(clock_monotonic_ns() - begin) * 1e-9;
    return status;
}

static pf_status measure(train_bench *t, pf_err *err)
{
    double tokens = (double)(opt.batch * opt.length), base, forward, whole;
    int done = 0, forward_units = 0;
    pf_status status = time_pass(t, NULL, 0, &forward, &base, err);
    if (status != PF_OK) return status;
    train_pass_progress(t->pass, &done, &forward_units); /* a pass without backward has no others */
    status = time_pass(t, &t->params, forward_units, &forward, &whole, err);
    if (status != PF_OK) return status;
    bench_samples_add(&t->base, tokens / base);
    bench_samples_add(&t->forward, tokens / forward);
    bench_samples_add(&t->backward, tokens / (whole - forward));
    bench_samples_add(&t->rate, tokens / whole);
    return status;
}

static void report(train_bench *t, bench_report *r)
{
    struct rusage usage;
    json_t *row = bench_report_row(r);
    json_object_set_new(row, "kind", json_string(kinds[opt.kind]));
    json_object_set_new(row, "rank", json_integer(opt.rank));
    json_object_set_new(row, "length", json_integer(opt.length));
    json_object_set_new(row, "batch", json_integer(opt.batch));
    json_object_set_new(row, "repeats", json_integer(t->rate.n));
    bench_set_samples(row, "rate", &t->rate);
    bench_set(row, "forward_rate", bench_median(&t->forward));
    bench_set(row, "backward_rate", bench_median(&t->backward));
    bench_set(row, "base_rate", bench_median(&t->base));
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        bench_set(row, "peak_mb", (double)usage.ru_maxrss / 1024 * 1.048576);
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    train_bench t = {.ctx = ctx};
    bench_report r;
    kn_peak peak;
    bench_report_init(&r, "train", columns);
    interrupt_catch();
    if (bench_opt.quick) opt.length = opt.length < 32 ? opt.length : 32;
    pf_status status = open_bench(&t, err);
    int64_t begin = clock_monotonic_ns();
    for (int repeat = 0; status == PF_OK && bench_again(repeat, begin); repeat++)
        status = measure(&t, err);
    if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    if (status == PF_OK) report(&t, &r); /* the peaks' buffer is not training's memory */
    if (status == PF_OK) status = bench_report_peak(&r, t.be->isa, t.be->threads, &peak, err);
    if (status == PF_OK) status = bench_report_write(ctx, &r, err);
    close_bench(&t);
    bench_report_free(&r);
    return status;
}

static const option_spec options[] = {
    OPTION_CHOICE_SPEC('m', "method", &opt.kind, "METHOD", kinds,
                       "`lorap` (the default), `direftp`, `lora` or `direft`."),
    OPTION_INT_SPEC('r', "rank", &opt.rank, "R", 1, ADAPTER_MAX_RANK, "Rank (default 8)."),
    OPTION_INT_SPEC(0, "length", &opt.length, "N", 2, 65536,
                    "Tokens of a conversation, half of them learned (default 256)."),
    OPTION_INT_SPEC('b', "batch", &opt.batch, "N", 1, 4096, "Conversations of a pass (default 4)."),
    BENCH_OPTIONS,
    OPTIONS_END};

const command bench_train_command = {
    .name = "bench train",
    .summary = "Measure how fast an adapter is trained",
    .synopsis = TEXTS("[--method METHOD] [--rank R] [--length N] [--batch N] [OPTIONS]"),
    .description = TEXTS(
        "Runs passes over random conversations: the base model's losses, then forward and backward "
        "with an adapter. The losses' own gradients count as forward; blocks that are computed "
        "again on the way back, for want of memory, count as backward. The peak is the process's "
        "memory, model included."),
    .options = options,
    .examples = EXAMPLES({"preft bench train --rank 8", "The usual training."}),
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run};
