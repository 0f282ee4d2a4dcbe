/* preft bench train: tokens per second of a training pass, and its memory. */
#include "base/clock.h"
#include "base/mem.h"
#include "commands/bench/chatting.h"
#include "commands/bench/load.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "train/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct {
    int64_t rank, length, batch, chatting;
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
    {"alone_rate", NULL, 1},
    {"share", "share", 3},
    {"chat_ms", "chat ms/token", 2},
    {"chat_during_ms", "while training", 2},
    {"chat_ratio", "ratio", 2},
    {"chat_longest_ms", NULL, 1},
    {"beside_rate", NULL, 1},
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
    if (status == PF_OK) status = train_pass_check(t->pass, err);
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

/* The same conversations as a data set for a job. */
static void make_dataset(const train_bench *t, train_dataset *d)
{
    size_t length = (size_t)opt.length;
    d->n = (size_t)opt.batch < TRAIN_MIN_EXAMPLES ? TRAIN_MIN_EXAMPLES : (size_t)opt.batch;
    d->items = xcalloc(d->n, sizeof *d->items);
    for (size_t i = 0; i < d->n; i++) {
        train_example *e = &d->items[i];
        *e = (train_example){.label = xstrdup("random"),
                             .ids = xcalloc(length, sizeof *e->ids),
                             .adapted = xcalloc(length, 1),
                             .target = xcalloc(length, 1),
                             .length = (int32_t)length,
                             .n_targets = (int32_t)(length - length / 2),
                             .repeat = 1};
        memcpy(e->ids, t->ids + i % (size_t)opt.batch * length, length * sizeof *e->ids);
        memcpy(e->adapted, t->adapted, length);
        memcpy(e->target, t->target, length);
    }
}

/* The training steps of measure_chatting's job, on this thread: a conversation each. */
typedef struct {
    train_bench *t;
    const train_job_options *options;
    int64_t step;
} free_steps;

static pf_status free_step(void *ctx, double *tokens, pf_err *err)
{
    free_steps *f = ctx;
    train_bench *t = f->t;
    double norm;
    pf_status status =
        train_pass_begin(t->pass, &t->params, &t->sequences[f->step % opt.batch], 1, true,
                         (double)(opt.length - opt.length / 2), NULL, NULL, err);
    while (status == PF_OK && train_pass_advance(t->pass))
        ;
    *tokens = (double)opt.length;
    if (status == PF_OK)
        status =
            optimizer_step(&f->options->optimizer, &t->params, f->step++, INT64_MAX, &norm, err);
    return status == PF_OK ? train_pass_check(t->pass, err) : status;
}

/* A pass of the size that the job's steps have. */
static pf_status open_small_pass(train_bench *t, pf_err *err)
{
    const train_pass_options pass = {.max_rows = (size_t)opt.length,
                                     .activation_bytes = TRAIN_ACTIVATION_BYTES};
    train_pass_close(t->pass);
    t->pass = NULL;
    return train_pass_open(t->weights, &pass, &t->pass, err);
}

/* People who chat while a job runs in the same engine. */
static pf_status measure_chatting(train_bench *t, bench_report *r, json_t *row, pf_err *err)
{
    train_dataset d = {0};
    bench_chatting figures;
    const train_job_options options = {.shape = {.direft = opt.kind & 1,
                                                 .prefill_only = opt.kind < 2,
                                                 .rank = (int)opt.rank,
                                                 .seed = (uint64_t)bench_opt.seed},
                                       .optimizer = optimizer_defaults(1e-6),
                                       .epochs = 1000000,
                                       .batch = 1,
                                       .seed = (uint64_t)bench_opt.seed};
    free_steps steps = {.t = t, .options = &options};
    pf_status status = open_small_pass(t, err);
    if (status != PF_OK) return status;
    make_dataset(t, &d);
    status = bench_chatting_run(t->ctx, t->m, &d, &options, (int)opt.chatting,
                                bench_opt.quick ? 0.3 : bench_opt.seconds / 3, free_step, &steps,
                                &figures, err);
    train_dataset_free(&d);
    if (status != PF_OK) return status;
    bench_set(row, "alone_rate", figures.alone);
    bench_set(row, "share", figures.share);
    bench_set(row, "chat_ms", figures.before * 1e3);
    bench_set(row, "chat_during_ms", figures.during * 1e3);
    bench_set(row, "chat_ratio", figures.ratio);
    bench_set(row, "chat_longest_ms", figures.longest * 1e3);
    bench_set(row, "beside_rate", figures.beside);
    bench_report_goal(r, "a job's share of the undisturbed speed when nobody chats", figures.share,
                      0.95);
    bench_report_goal(r, "time per token without a job, of that with one", 1 / figures.ratio, 0.5);
    bench_report_note(r,
                      "%lld people chatting: %.1f ms per token, %.1f ms while a job runs, %.0f ms "
                      "at the longest; the job %.0f tokens/s beside them, %.0f when nobody chats",
                      (long long)opt.chatting, figures.before * 1e3, figures.during * 1e3,
                      figures.longest * 1e3, figures.beside, figures.alone);
    return PF_OK;
}

static json_t *report(train_bench *t, bench_report *r)
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
    return row;
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
    json_t *row = status == PF_OK ? report(&t, &r) : NULL; /* the peaks' buffer doesn't count */
    if (status == PF_OK && opt.chatting > 0) status = measure_chatting(&t, &r, row, err);
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
    OPTION_INT_SPEC(0, "chatting", &opt.chatting, "N", 0, 64,
                    "Also let N users chat, without and with a training job in the engine: their "
                    "time per token, and the job's share of its undisturbed speed."),
    BENCH_OPTIONS,
    OPTIONS_END};

const command bench_train_command = {
    .name = "bench train",
    .summary = "Measure how fast an adapter is trained",
    .synopsis = TEXTS("[--method METHOD] [--rank R] [--length N] [--batch N] [OPTIONS]"),
    .description = TEXTS(
        "Runs passes over random conversations: the base model's losses, then forward and backward "
        "with an adapter. The losses' own gradients count as forward; blocks that are recomputed "
        "in the backward pass to save memory count as backward. The peak is the process's "
        "memory, model included."),
    .options = options,
    .examples = EXAMPLES({"preft bench train --rank 8", "The usual training."}),
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run};
