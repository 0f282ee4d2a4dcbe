/* preft bench adapters: what different adapters cost, kind by kind, beside the base model. */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "commands/bench/cost.h"
#include "commands/bench/pairs.h"
#include "commands/bench/paper.h"
#include "commands/bench/plot.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "engine/budget.h"
#include "models/adapter_blob.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More adapters than this aren't measured while prompts are read: it is the same work in turns. */
#define MOST_PREFILL 32
/* Memory that stays free when the adapters of a point are made. */
#define SPARE_BYTES ((uint64_t)1 << 30)
/* What is added to a sequence's tokens, for the last page of its keys and values. */
#define PAGE_TOKENS 32
/* Answers in decode grow by so many tokens until others begin: the most that keep to so many tokens
 * of keys and values, within bounds. */
#define LEAST_ROUNDS 32
#define MOST_ROUNDS  256
#define MOST_TOKENS  (1 << 16)

static struct {
    const char *profiles, *ranks, *tokens, *kinds, *phases, *svg, *shape, *machine;
    int64_t prompt, prefill, steps, slots;
    bool same_size;
} opt = {.prefill = 128, .steps = 6, .ranks = "16", .kinds = "all", .phases = "all"};

static const bench_column columns[] = {
    {"profiles", "profiles", 0},
    {"rank", "rank", 0},
    {"kind", "kind", 0},
    {"phase", "phase", 0},
    {"tokens", "tokens", 0},
    {"rate", "tokens/s", 1},
    {"rate_min", "min", 1},
    {"rate_max", "max", 1},
    {"ratio", "of base", 3},
    {"ratio_error", "std error", 4},
    {"spread", "middle half", 0},
    {"full_ratio", "of full", 3},
    {"step_ms", "ms/step", 2},
    {"weight_mb", "MB weights", 1},
    {"adapter_mb", "MB adapters", 2},
    {"kv_mb", "MB KV", 2},
    {"extra_read_share", "adapters' read", 3},
    {"read_share", "read peak", 3},
    {"compute_share", "int peak", 3},
    {"reason", "limited by", 0},
    {"model_ms", "model ms", 2},
    {"adapter_intensity", "op/B adapters", 2},
    {"weight_intensity", "op/B weights", 2},
    {"batch", NULL, 2},
    {"decode_adapter_bytes", NULL, 0},
    {"adapters_loaded", NULL, 0},
    {"repeats", NULL, 0},
    {0},
};

/* What is measured of a kind: the prompts' reading, steps in which all answers are written, and
 * answers of several lengths from beginning to end. */
enum { PHASE_DECODE, PHASE_PREFILL, PHASE_ANSWERS, MAX_PHASES = PHASE_ANSWERS + BENCH_MAX_LIST };
static const char *const phase_names[] = {"decode", "prefill", "answers"};

typedef struct {
    bench_samples rate, ratio, full_ratio;
    bench_samples extra_seconds; /* of a decode step, beside the base model's */
    engine_work work;            /* of all repetitions, or steps */
    uint64_t decode_adapter_bytes;
    double seconds;
    double last; /* rate of this repetition; NAN = none */
} series;

typedef struct {
    int profiles, rank; /* LoRA's; see rank_of */
    int loaded[BENCH_KINDS];
    series of[BENCH_KINDS][MAX_PHASES];
} point;

/* A measured row, for the roofline. */
typedef struct {
    json_t *row;
    bench_kind kind;
    cost_sample sample;
} measured;

typedef struct {
    const command_context *ctx;
    model *m;
    bench_list profiles, ranks, tokens;
    int prompt;
    bool wanted[BENCH_KINDS], phases[PHASE_ANSWERS + 1];
    bench_report report;
    kn_peak peak; /* measured anew for each point: machines grow slower and faster */
    measured *measured;
    int n_measured;
    bench_plot plot;                                  /* of the first rank */
    double full_read, prefill_lorap, prefill_direftp; /* for the goals */
} adapters_bench;

static int rank_of(const adapters_bench *a, bench_kind kind, int rank)
{
    if (!opt.same_size || !bench_kind_direft(kind)) return rank;
    const model_config *config = model_get_config(a->m);
    int64_t same =
        bench_adapter_size(config, BENCH_LORA, rank) / bench_adapter_size(config, BENCH_DIREFT, 1);
    int64_t most = config->hidden < ADAPTER_MAX_RANK ? config->hidden : ADAPTER_MAX_RANK;
    return (int)(same < 1 ? 1 : same > most ? most : same);
}

static int n_phases(const adapters_bench *a)
{
    return PHASE_ANSWERS + a->tokens.n;
}

static int phase_kind(int phase)
{
    return phase < PHASE_ANSWERS ? phase : PHASE_ANSWERS;
}

static bool phase_wanted(const adapters_bench *a, const point *p, int phase)
{
    if (phase == PHASE_PREFILL && p->profiles > MOST_PREFILL) return false;
    return a->phases[phase_kind(phase)];
}

/* --- measuring -------------------------------------------------------------------------------- */

static bench_load load_of(const adapters_bench *a, const point *p, bench_kind kind,
                          const adapter_id *ids, int repeat)
{
    return (bench_load){.n = p->profiles,
                        .prompt = a->prompt,
                        .seed = (uint64_t)bench_opt.seed + (uint64_t)repeat * 1000003,
                        .adapters = kind == BENCH_BASE ? NULL : ids,
                        .positions =
                            bench_kind_prefill_only(kind) ? POSITIONS_PROMPT : POSITIONS_ALL};
}

/* Answers that are in the engine at once while decode is measured. */
static int decode_answers(const adapters_bench *a, int profiles)
{
    bool prompt_only = a->wanted[BENCH_LORAP] || a->wanted[BENCH_DIREFTP];
    bool full = a->wanted[BENCH_LORA] || a->wanted[BENCH_DIREFT];
    return profiles * (1 + prompt_only + full);
}

/* Rounds of decode steps until other answers begin. */
static int decode_room(const adapters_bench *a, int profiles)
{
    int room = MOST_TOKENS / decode_answers(a, profiles) - a->prompt;
    return room < LEAST_ROUNDS ? LEAST_ROUNDS : room > MOST_ROUNDS ? MOST_ROUNDS : room;
}

static void add_decode(point *p, const bench_kind *kinds, const pairs_result *r)
{
    const double n = p->profiles;
    for (int i = 0; i < PAIRS_GROUPS; i++) {
        series *s = &p->of[kinds[i]][PHASE_DECODE];
        if (r->work[i].steps == 0) continue;
        for (int round = 0; round < r->n; round++) {
            const double *seconds = r->seconds[round];
            bench_samples_add(&s->rate, n / seconds[i]);
            bench_samples_add(&s->ratio, seconds[0] / seconds[i]);
            bench_samples_add(&s->extra_seconds, seconds[i] - seconds[0]);
            if (i == 1) bench_samples_add(&s->full_ratio, seconds[2] / seconds[1]);
        }
        bench_work_add(&s->work, &r->work[i]);
        s->decode_adapter_bytes = s->work.adapter_bytes;
        s->seconds = (double)s->work.steps * n / bench_median(&s->rate);
    }
}

/* The base model, and the prefill-only and the full-position kind of a family with the same
 * adapters. Rated by the median step: what other programs take away for a moment doesn't count. */
static pf_status measure_decode(adapters_bench *a, const bench_engine *b, point *p, bench_kind full,
                                const adapter_id *ids, pf_err *err)
{
    const bench_kind kinds[PAIRS_GROUPS] = {BENCH_BASE, bench_kind_of_prompt(full), full};
    pairs_plan plan = {.room = decode_room(a, p->profiles),
                       .least = (int)opt.steps,
                       .most = bench_opt.quick ? (int)opt.steps : BENCH_MAX_SAMPLES,
                       .seconds = bench_opt.seconds};
    pairs_result r = {0};
    for (int i = 0; i < PAIRS_GROUPS; i++)
        if (a->wanted[kinds[i]]) plan.loads[i] = load_of(a, p, kinds[i], ids, 0);
    pf_status status = pairs_run(b, &plan, &r, err);
    for (int i = 0; i < PAIRS_GROUPS && status == PF_OK; i++)
        p->loaded[kinds[i]] = kinds[i] == BENCH_BASE ? 0 : r.loaded;
    if (status == PF_OK) add_decode(p, kinds, &r);
    pairs_free(&r);
    return status;
}

static double rate_of(const bench_measure *m, int phase)
{
    if (m->seconds <= 0 || m->work.steps == 0) return (double)NAN;
    return (double)(phase >= PHASE_ANSWERS ? m->tokens : m->work.rows) / m->seconds;
}

static void add_measure(series *s, const series *base, int phase, const bench_measure *m)
{
    s->last = rate_of(m, phase);
    if (!isfinite(s->last)) return;
    bench_samples_add(&s->rate, s->last);
    bench_samples_add(&s->ratio, s->last / base->last);
    bench_work_add(&s->work, &m->work);
    s->decode_adapter_bytes += m->work.adapter_bytes - m->prefill.adapter_bytes;
    s->seconds += m->seconds;
}

static pf_status measure_kind(adapters_bench *a, const bench_engine *b, point *p, bench_kind kind,
                              const adapter_id *ids, int phase, int repeat, bench_measure *m,
                              pf_err *err)
{
    bench_load load = load_of(a, p, kind, ids, repeat);
    int tokens = 1;
    if (phase == PHASE_PREFILL)
        load.prompt = (int)opt.prefill;
    else
        tokens = (int)a->tokens.v[phase - PHASE_ANSWERS];
    pf_status status = bench_run_answers(b, &load, tokens, m, err);
    engine_stats stats;
    engine_get_stats(b->e, &stats);
    p->loaded[kind] = kind == BENCH_BASE ? 0 : stats.adapters_loaded;
    return status;
}

/* One repetition of a phase: the base model, and the prefill-only and the full-position kind of a
 * family with the same adapters, one right after the other; every other time in reverse, so that a
 * machine that grows slower or faster meanwhile favours none. */
static pf_status measure_phase(adapters_bench *a, const bench_engine *b, point *p, bench_kind full,
                               const adapter_id *ids, int phase, int repeat, pf_err *err)
{
    const bench_kind kinds[] = {BENCH_BASE, bench_kind_of_prompt(full), full};
    bench_measure measures[3];
    pf_status status = PF_OK;
    for (int i = 0; i < 3 && status == PF_OK; i++) {
        int turn = repeat % 2 ? 2 - i : i;
        if (a->wanted[kinds[turn]])
            status = measure_kind(a, b, p, kinds[turn], ids, phase, repeat, &measures[turn], err);
    }
    for (int i = 0; i < 3 && status == PF_OK; i++)
        if (a->wanted[kinds[i]])
            add_measure(&p->of[kinds[i]][phase], &p->of[BENCH_BASE][phase], phase, &measures[i]);
    series *prefill_only = &p->of[kinds[1]][phase];
    if (status == PF_OK && a->wanted[full])
        bench_samples_add(&prefill_only->full_ratio, prefill_only->last / p->of[full][phase].last);
    return status;
}

static pf_status measure_turns(adapters_bench *a, const bench_engine *b, point *p, bench_kind full,
                               const adapter_id *ids, pf_err *err)
{
    pf_status status = PF_OK;
    int64_t begin = clock_monotonic_ns();
    for (int repeat = 0; status == PF_OK && bench_again(repeat, begin); repeat++)
        for (int phase = PHASE_DECODE + 1; phase < n_phases(a) && status == PF_OK; phase++)
            if (phase_wanted(a, p, phase))
                status = measure_phase(a, b, p, full, ids, phase, repeat, err);
    return status;
}

static pf_status measure_family(adapters_bench *a, const bench_engine *b, point *p, bench_kind full,
                                pf_err *err)
{
    adapter_id *ids = xcalloc((size_t)p->profiles, sizeof *ids);
    pf_status status = PF_OK;
    int n = 0;
    while (n < p->profiles && status == PF_OK) {
        status =
            interrupt_seen()
                ? interrupt_status(err)
                : bench_adapter_add(b->e, model_get_config(a->m), full, rank_of(a, full, p->rank),
                                    (uint64_t)bench_opt.seed + (uint64_t)n, &ids[n], NULL, err);
        n += status == PF_OK;
    }
    if (status == PF_OK && a->phases[PHASE_DECODE])
        status = measure_decode(a, b, p, full, ids, err);
    if (status == PF_OK) status = measure_turns(a, b, p, full, ids, err);
    for (int i = 0; i < n; i++)
        engine_adapter_drop(b->e, ids[i], NULL);
    free(ids);
    return status;
}

static bool family_wanted(const adapters_bench *a, bench_kind full)
{
    return a->wanted[full] || a->wanted[bench_kind_of_prompt(full)];
}

/* Room for all adapters of the larger family, if the machine has it; else what the engine chooses,
 * and adapters come and go. */
static size_t adapter_budget(const adapters_bench *a, const point *p)
{
    int64_t most = 0;
    for (int kind = BENCH_LORA; kind <= BENCH_DIREFT; kind++) {
        int64_t size = bench_adapter_size(model_get_config(a->m), (bench_kind)kind,
                                          rank_of(a, (bench_kind)kind, p->rank));
        if (family_wanted(a, (bench_kind)kind) && size > most) most = size;
    }
    /* Biases are kept as float32, and the newest adapter is there as a blob too. */
    uint64_t need = (uint64_t)most * 2 * (uint64_t)(p->profiles + 1) + ((uint64_t)4 << 20);
    return need + SPARE_BYTES <= budget_available() ? (size_t)need : 0;
}

static bench_room room_of(const adapters_bench *a, const point *p)
{
    int longest = a->prompt + (int)bench_list_max(&a->tokens), n = p->profiles;
    if (p->profiles <= MOST_PREFILL && opt.prefill + 1 > longest) longest = (int)opt.prefill + 1;
    bench_room room = {.batch = n,
                       .tokens = longest,
                       .adapter_slots = (int)opt.slots,
                       .adapter_bytes = adapter_budget(a, p),
                       .kv_tokens = (int64_t)n * (longest + PAGE_TOKENS)};
    if (!a->phases[PHASE_DECODE]) return room;
    int tokens = a->prompt + pairs_answer(decode_room(a, n));
    room.batch = decode_answers(a, n);
    int64_t kv_tokens = (int64_t)room.batch * (tokens + PAGE_TOKENS);
    if (tokens > longest) room.tokens = tokens;
    if (kv_tokens > room.kv_tokens) room.kv_tokens = kv_tokens;
    return room;
}

static pf_status open_engine(adapters_bench *a, const point *p, bench_engine *b, pf_err *err)
{
    const bench_room room = room_of(a, p);
    pf_status status = bench_engine_open(a->ctx, a->m, &room, b, err);
    if (status != PF_OK) return status;
    engine_stats stats;
    engine_get_stats(b->e, &stats);
    return bench_report_peak(&a->report, stats.isa, stats.threads, &a->peak, err);
}

static pf_status measure_point(adapters_bench *a, point *p, pf_err *err)
{
    bench_engine b = {0};
    pf_status status = open_engine(a, p, &b, err);
    for (int full = BENCH_LORA; full <= BENCH_DIREFT && status == PF_OK; full++)
        if (family_wanted(a, (bench_kind)full))
            status = measure_family(a, &b, p, (bench_kind)full, err);
    if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
    bench_engine_close(&b);
    return status;
}

/* --- reporting -------------------------------------------------------------------------------- */

static double ratio(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : (double)NAN;
}

static cost_machine peak_of(const adapters_bench *a)
{
    return (cost_machine){
        .read_bytes = a->peak.read_bytes, .ops = a->peak.int_ops, .adapter_ops = a->peak.float_ops};
}

static void keep_sample(adapters_bench *a, json_t *row, bench_kind kind, const series *s)
{
    a->measured = xrealloc_array(a->measured, (size_t)a->n_measured + 1, sizeof *a->measured);
    a->measured[a->n_measured++] =
        (measured){row, kind, {s->work, s->seconds / (double)s->work.steps}};
}

static void set_reason(const adapters_bench *a, json_t *row, const series *s)
{
    cost_machine peak = peak_of(a);
    double share, seconds = s->seconds / (double)s->work.steps;
    const char *reason = cost_reason(&peak, &s->work, seconds, &share);
    char text[64];
    snprintf(text, sizeof text, "%s %.0f %%", reason, 100 * share);
    if (isfinite(share)) json_object_set_new(row, "reason", json_string(text));
    bench_set(row, "step_ms", seconds * 1e3);
}

static void report_work(adapters_bench *a, json_t *row, const series *s)
{
    const engine_work *w = &s->work;
    double steps = (double)w->steps;
    uint64_t bytes = w->weight_bytes + w->adapter_bytes + w->kv_bytes;
    bench_set(row, "weight_mb", (double)w->weight_bytes / steps * 1e-6);
    bench_set(row, "adapter_mb", (double)w->adapter_bytes / steps * 1e-6);
    bench_set(row, "kv_mb", (double)w->kv_bytes / steps * 1e-6);
    bench_set(row, "read_share", (double)bytes / s->seconds / a->peak.read_bytes);
    bench_set(row, "compute_share", 2 * (double)w->mac / s->seconds / a->peak.int_ops);
    bench_set(row, "adapter_intensity", 2 * ratio(w->adapter_mac, w->adapter_bytes));
    bench_set(row, "weight_intensity", 2 * ratio(w->mac, w->weight_bytes));
    bench_set(row, "batch", ratio(w->rows, w->steps));
    json_object_set_new(row, "decode_adapter_bytes",
                        json_integer((json_int_t)s->decode_adapter_bytes));
}

/* Bandwidth at which the adapters of a full-position kind were read: their bytes over the time by
 * which a step is longer than the base model's, in pairs. NAN when they are too small to tell. */
static double extra_read(const point *p, bench_kind kind)
{
    const series *s = &p->of[kind][PHASE_DECODE], *base = &p->of[BENCH_BASE][PHASE_DECODE];
    double bytes = ratio(s->work.adapter_bytes, s->work.steps);
    double base_bytes = ratio(base->work.weight_bytes, base->work.steps);
    double extra = bench_median(&s->extra_seconds);
    return bytes > base_bytes && extra > 0 ? bytes / extra : (double)NAN;
}

/* Where the middle half of the ratios lies. */
static void set_spread(json_t *row, const bench_samples *ratio)
{
    char text[64];
    snprintf(text, sizeof text, "%.3f-%.3f", bench_quantile(ratio, 0.25),
             bench_quantile(ratio, 0.75));
    if (ratio->n > 1) json_object_set_new(row, "spread", json_string(text));
}

static void report_series(adapters_bench *a, const point *p, bench_kind kind, int phase)
{
    const series *s = &p->of[kind][phase];
    if (!phase_wanted(a, p, phase)) return;
    json_t *row = bench_report_row(&a->report);
    int64_t tokens = phase == PHASE_PREFILL  ? opt.prefill
                     : phase == PHASE_DECODE ? (int64_t)s->rate.n
                                             : a->tokens.v[phase - PHASE_ANSWERS];
    json_object_set_new(row, "profiles", json_integer(p->profiles));
    if (kind != BENCH_BASE)
        json_object_set_new(row, "rank", json_integer(rank_of(a, kind, p->rank)));
    json_object_set_new(row, "kind", json_string(bench_kind_names[kind]));
    json_object_set_new(row, "phase", json_string(phase_names[phase_kind(phase)]));
    json_object_set_new(row, "tokens", json_integer(tokens));
    json_object_set_new(row, "repeats", json_integer(s->rate.n));
    json_object_set_new(row, "adapters_loaded", json_integer(p->loaded[kind]));
    if (s->rate.n == 0) return; /* never all at once */
    bench_set_samples(row, "rate", &s->rate);
    bench_set(row, "ratio", bench_median(&s->ratio));
    if (kind != BENCH_BASE) bench_set(row, "ratio_error", bench_median_error(&s->ratio));
    if (kind != BENCH_BASE) set_spread(row, &s->ratio);
    bench_set(row, "extra_read_share", extra_read(p, kind) / a->peak.read_bytes);
    if (s->full_ratio.n > 0) bench_set(row, "full_ratio", bench_median(&s->full_ratio));
    set_reason(a, row, s);
    report_work(a, row, s);
    keep_sample(a, row, kind, s);
}

static void report_decode_goal(adapters_bench *a, const point *p, bench_kind kind)
{
    const bench_samples *ratio = &p->of[kind][PHASE_DECODE].ratio;
    char text[96];
    snprintf(text, sizeof text, "decode with %d %s of rank %d, rate of base's", p->profiles,
             bench_kind_names[kind], rank_of(a, kind, p->rank));
    bench_report_goal_within(&a->report, text, bench_median(ratio), bench_median_error(ratio),
                             0.98);
}

static void take_goals(adapters_bench *a, const point *p)
{
    for (int kind = BENCH_LORAP; kind <= BENCH_DIREFTP; kind++)
        if (a->wanted[kind]) report_decode_goal(a, p, (bench_kind)kind);
    a->full_read = fmin(a->full_read, extra_read(p, BENCH_LORA) / a->peak.read_bytes);
    if (p->profiles != 8 || p->rank != 16) return;
    a->prefill_lorap = bench_median(&p->of[BENCH_LORAP][PHASE_PREFILL].ratio);
    if (opt.same_size)
        a->prefill_direftp = bench_median(&p->of[BENCH_DIREFTP][PHASE_PREFILL].ratio);
}

static void report_goals(adapters_bench *a)
{
    bench_report *r = &a->report;
    bench_report_goal(r, "reading prompts with 8 lorap of rank 16, rate of base's",
                      a->prefill_lorap, 0.8);
    bench_report_goal(r, "reading prompts with 8 direftp of the same size, rate of base's",
                      a->prefill_direftp, 0.8);
    bench_report_goal(r, "full-position lora, least share of the read bandwidth in adapter bytes",
                      a->full_read, 0.70);
}

/* Predicts every row from its bytes and operations, with the shares of the peaks that the base
 * model's rows reach, and says how far off that is. */
static void report_roofline(adapters_bench *a)
{
    cost_sample *base = xcalloc((size_t)a->n_measured + 1, sizeof *base);
    bench_samples off = {0};
    int n = 0;
    for (int i = 0; i < a->n_measured; i++)
        if (a->measured[i].kind == BENCH_BASE) base[n++] = a->measured[i].sample;
    cost_machine peak = peak_of(a), fitted = cost_fit(&peak, base, n);
    free(base);
    if (n == 0) return;
    for (int i = 0; i < a->n_measured; i++) {
        const measured *m = &a->measured[i];
        cost_parts parts = cost_of(&fitted, &m->sample.work);
        double seconds = cost_seconds(&parts);
        bench_set(m->row, "model_ms", seconds * 1e3);
        if (m->kind != BENCH_BASE)
            bench_samples_add(&off, fabs(seconds / m->sample.seconds - 1) * 100);
    }
    if (off.n == 0) return;
    bench_report_note(&a->report,
                      "roofline: %.2f of the read peak, %.2f of the compute peaks and %.2f ms a "
                      "step, taken from base rows; rows with adapters are predicted within %.0f %% "
                      "(median), %.0f %% (most)",
                      fitted.read_bytes / peak.read_bytes, fitted.ops / peak.ops,
                      fitted.overhead * 1e3, bench_median(&off), off.v[off.n - 1]);
}

/* --- the plot --------------------------------------------------------------------------------- */

static void begin_plot(adapters_bench *a)
{
    static char title[80];
    snprintf(title, sizeof title, "Decode rate with different adapters of rank %lld",
             (long long)a->ranks.v[0]);
    a->plot =
        (bench_plot){.title = title, .x_title = "profiles, one a user", .y_title = "tokens/s"};
    for (int kind = 0; kind < BENCH_KINDS; kind++)
        if (a->wanted[kind]) a->plot.curves[a->plot.n_curves++].name = bench_kind_names[kind];
}

static void plot_point(adapters_bench *a, const point *p)
{
    bench_plot *plot = &a->plot;
    bool later = plot->n_points == 0 || p->profiles > plot->x[plot->n_points - 1];
    if (p->rank != a->ranks.v[0] || !later || plot->n_points == PLOT_MAX_POINTS) return;
    int at = plot->n_points++, curve = 0;
    plot->x[at] = p->profiles;
    for (int kind = 0; kind < BENCH_KINDS; kind++)
        if (a->wanted[kind])
            plot->curves[curve++].y[at] = bench_median(&p->of[kind][PHASE_DECODE].rate);
}

static pf_status write_plot(adapters_bench *a, pf_err *err)
{
    buf text = {0}, svg = {0};
    pf_status status = PF_OK;
    if (!a->phases[PHASE_DECODE] || a->plot.n_points == 0) return PF_OK;
    plot_text(&a->plot, &text);
    if (a->plot.n_points > 1) bench_report_note(&a->report, "\n%s", buf_str(&text));
    if (opt.svg) {
        plot_svg(&a->plot, &svg);
        status = file_write_atomic(opt.svg, buf_str(&svg), svg.len, 0644, err);
    }
    buf_free(&text);
    buf_free(&svg);
    return status;
}

/* --- the command ------------------------------------------------------------------------------ */

/* Marks the words of a list: out[i] for names[i]. */
static pf_status parse_words(const command_context *ctx, const char *option, const char *list,
                             const char *const *names, int n_names, bool *out, pf_err *err)
{
    bool all = strcmp(list, "all") == 0;
    for (int i = 0; i < n_names; i++)
        out[i] = all;
    for (const char *at = list; !all;) {
        size_t len = strcspn(at, ",");
        int i = 0;
        while (i < n_names && (strlen(names[i]) != len || memcmp(names[i], at, len) != 0))
            i++;
        if (i == n_names)
            return usage_error(ctx, err, "%s: \"%.*s\" is none of those that `--help` names",
                               option, (int)(len < 40 ? len : 40), at);
        out[i] = true;
        if (at[len] == '\0') break;
        at += len + 1;
    }
    return PF_OK;
}

static pf_status parse_lists(adapters_bench *a, const command_context *ctx, pf_err *err)
{
    const char *profiles = opt.profiles ? opt.profiles : bench_opt.quick ? "1,3" : "1,8,32,128,512";
    const char *tokens = opt.tokens ? opt.tokens : opt.shape ? "256" : bench_opt.quick ? "4" : "16";
    pf_status status = bench_list_parse(profiles, "--profiles", 1, 4096, &a->profiles, err);
    if (status == PF_OK)
        status = bench_list_parse(opt.ranks, "--ranks", 1, ADAPTER_MAX_RANK, &a->ranks, err);
    if (status == PF_OK) status = bench_list_parse(tokens, "--tokens", 1, 65536, &a->tokens, err);
    if (status == PF_OK)
        status =
            parse_words(ctx, "--kinds", opt.kinds, bench_kind_names, BENCH_KINDS, a->wanted, err);
    if (status == PF_OK)
        status = parse_words(ctx, "--phases", opt.phases, phase_names, PHASE_ANSWERS + 1, a->phases,
                             err);
    a->wanted[BENCH_BASE] = true;
    a->prompt = opt.prompt ? (int)opt.prompt : opt.shape ? 512 : 16;
    return status;
}

static pf_status run_point(adapters_bench *a, int profiles, int rank, pf_err *err)
{
    point *p = xcalloc(1, sizeof *p);
    p->profiles = profiles;
    p->rank = rank;
    note(a->ctx, "%d profiles, rank %d", profiles, rank);
    pf_status status = measure_point(a, p, err);
    for (int kind = 0; kind < BENCH_KINDS && status == PF_OK; kind++)
        for (int phase = 0; a->wanted[kind] && phase < n_phases(a); phase++)
            report_series(a, p, (bench_kind)kind, phase);
    if (status == PF_OK) take_goals(a, p);
    if (status == PF_OK) plot_point(a, p);
    free(p);
    return status;
}

static pf_status measure_all(adapters_bench *a, pf_err *err)
{
    pf_status status = PF_OK;
    begin_plot(a);
    for (int r = 0; r < a->ranks.n && status == PF_OK; r++)
        for (int n = 0; n < a->profiles.n && status == PF_OK; n++)
            status = run_point(a, (int)a->profiles.v[n], (int)a->ranks.v[r], err);
    if (status != PF_OK) return status;
    report_roofline(a);
    report_goals(a);
    return write_plot(a, err);
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    adapters_bench a = {.ctx = ctx,
                        .full_read = (double)NAN,
                        .prefill_lorap = (double)NAN,
                        .prefill_direftp = (double)NAN};
    bench_report_init(&a.report, "adapters", columns);
    interrupt_catch();
    pf_status status = parse_lists(&a, ctx, err);
    if (status == PF_OK && opt.shape) {
        status = paper_run(ctx, opt.shape, opt.machine, &a.profiles, &a.ranks, a.prompt,
                           (int)a.tokens.v[0], err);
        goto out;
    }
    if (status == PF_OK) status = open_model(ctx, &a.m, err);
    if (status == PF_OK) status = measure_all(&a, err);
    if (status == PF_OK) status = bench_report_write(ctx, &a.report, err);
out:
    model_close(a.m);
    free(a.measured);
    bench_report_free(&a.report);
    return status;
}

static const option_spec options[] = {
    OPTION_STRING_SPEC(0, "profiles", &opt.profiles, "LIST",
                       "Numbers of different adapters, one for each of as many users at once "
                       "(default 1,8,32,128,512)."),
    OPTION_STRING_SPEC(0, "ranks", &opt.ranks, "LIST", "Ranks (default 16)."),
    OPTION_FLAG_SPEC(0, "same-size", &opt.same_size,
                     "Give DiReFT the rank at which it has as many numbers as LoRA (up to the "
                     "largest rank there is)."),
    OPTION_STRING_SPEC(0, "tokens", &opt.tokens, "LIST",
                       "Lengths of the answers that are measured from beginning to end (default "
                       "16)."),
    OPTION_STRING_SPEC(0, "kinds", &opt.kinds, "LIST",
                       "Kinds beside base: lorap, direftp, lora, direft (default `all`)."),
    OPTION_STRING_SPEC(0, "phases", &opt.phases, "LIST",
                       "What is measured: decode, prefill, answers (default `all`)."),
    OPTION_STRING_SPEC(0, "svg", &opt.svg, "FILE",
                       "Draw the decode rates over the number of profiles into FILE."),
    OPTION_INT_SPEC(0, "adapter-slots", &opt.slots, "N", 1, 1 << 20,
                    "Most adapters in memory at once (default: by memory)."),
    OPTION_INT_SPEC(0, "prompt", &opt.prompt, "N", 1, 65536,
                    "Tokens of a prompt (default 16, with --shape 512)."),
    OPTION_INT_SPEC(0, "prefill", &opt.prefill, "N", 1, 65536,
                    "Tokens of a prompt where the reading of prompts is measured, with up to 32 "
                    "adapters (default 128)."),
    OPTION_INT_SPEC(0, "steps", &opt.steps, "N", 1, 128,
                    "Least number of decode steps of each kind (default 6)."),
    OPTION_STRING_SPEC(0, "shape", &opt.shape, "NAME",
                       "Measure nothing: predict for a model of this shape (llama-3.1-70b, "
                       "llama-3.1-8b, qwen-2.5-0.5b, smollm2-135m)."),
    OPTION_STRING_SPEC(0, "machine", &opt.machine, "NAME",
                       "With --shape: on this machine (h100, 4xh100, h200, a100)."),
    BENCH_OPTIONS,
    OPTIONS_END};

const command bench_adapters_command = {
    .name = "bench adapters",
    .summary = "Measure what different adapters cost",
    .synopsis = TEXTS("[--profiles LIST] [--ranks LIST] [--kinds LIST] [OPTIONS]"),
    .description = TEXTS(
        "For each number of profiles and each rank, the base model and each kind of adapter in "
        "turn. Three phases: decode, steps in which all answers are being written and nothing else "
        "is done; prefill, prompts read until their first tokens; answers, whole requests from "
        "their arrival to the last token of the last answer, rated by generated tokens.",
        "The bytes (MB) are what a step reads of base weights, adapters and cached keys "
        "and "
        "values; `read peak` and `int peak` are shares of the machine's peak rates. The adapters' "
        "intensity is operations per byte of adapter read, the "
        "down-projection's place on the roofline (its up-projection has the same): about one per "
        "row and adapter in bfloat16, so decode with full-position adapters is bound by memory; "
        "prefill-only kinds read none there, and the column is empty.",
        "Decode is measured in single steps: all kinds' answers are in one engine, which makes a "
        "step of each in turn, one right after the other and in changing orders, for `--seconds`. "
        "Its rate is that of the median step, `tokens` is the number of steps of each kind, `of "
        "base` the median over the pairs of neighbouring steps, with its standard error; `middle "
        "half` is their interquartile range. A goal is met or missed when it lies more than two "
        "standard errors away. `adapters' read` is the share of the read bandwidth at "
        "which full-position adapters were read, from the time by which they make a step longer; "
        "it is empty where they are smaller than the weights.",
        "A decode row without figures means that the memory doesn't hold all adapters, or the keys "
        "and values of all kinds, at once: there was no step with all answers. The whole grid is "
        "`--ranks 8,16,64 --tokens "
        "16,64,256`; it takes a long time."),
    .options = options,
    .examples = EXAMPLES(
        {"preft bench adapters --profiles 8 --kinds lorap,lora", "Eight profiles of two kinds."},
        {"preft bench adapters --ranks 8,16,64 --csv adapters.csv",
         "Three ranks; the table in a file too."}),
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_MODELS,
    .run = run};
