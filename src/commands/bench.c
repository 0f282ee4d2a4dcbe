/* preft bench: figures of this machine. Each kind has a file of its own. */
#include "commands/bench/bench.h"

#include "base/clock.h"
#include "commands/interrupt.h"

#include <math.h>
#include <string.h>

bench_options bench_opt = {.repeats = 5, .seconds = 20, .seed = 1};

bool bench_again(int done, int64_t began_ns)
{
    double elapsed = (double)(clock_monotonic_ns() - began_ns) * 1e-9;
    int64_t most = bench_opt.quick ? 1 : bench_opt.repeats;
    return !interrupt_seen() && (done == 0 || (done < most && elapsed < bench_opt.seconds));
}

pf_status bench_list_parse(const char *text, const char *option, int64_t low, int64_t high,
                           bench_list *out, pf_err *err)
{
    *out = (bench_list){.n = 0};
    for (const char *at = text;; at++) {
        char number[32];
        size_t len = strcspn(at, ",");
        if (out->n == BENCH_MAX_LIST)
            return err_set(err, PF_USAGE, "%s: at most %d numbers", option, BENCH_MAX_LIST);
        if (len >= sizeof number)
            return err_set(err, PF_USAGE, "%s: \"%s\" is not a list of numbers", option, text);
        memcpy(number, at, len);
        number[len] = '\0';
        pf_status status = parse_int(number, option, low, high, &out->v[out->n++], err);
        if (status != PF_OK) return status;
        at += len;
        if (*at == '\0') return PF_OK;
    }
}

int64_t bench_list_max(const bench_list *list)
{
    int64_t most = list->v[0];
    for (int i = 1; i < list->n; i++)
        if (list->v[i] > most) most = list->v[i];
    return most;
}

void bench_samples_add(bench_samples *s, double x)
{
    if (!isfinite(x) || s->n == BENCH_MAX_SAMPLES) return;
    int at = s->n++;
    for (; at > 0 && s->v[at - 1] > x; at--)
        s->v[at] = s->v[at - 1];
    s->v[at] = x;
}

double bench_quantile(const bench_samples *s, double share)
{
    if (s->n == 0) return (double)NAN;
    double at = share * (s->n - 1);
    int below = (int)at, above = below + 1 < s->n ? below + 1 : below;
    return s->v[below] + (at - below) * (s->v[above] - s->v[below]);
}

double bench_median(const bench_samples *s)
{
    return bench_quantile(s, 0.5);
}

double bench_median_error(const bench_samples *s)
{
    const double z = 2.5758; /* of a normal distribution, 99 % lie within */
    int below = (int)lround((s->n + 1) / 2.0 - z * sqrt(s->n / 4.0));
    if (below < 1) return (double)NAN;
    return (s->v[s->n - below] - s->v[below - 1]) / (2 * z);
}

const command bench_command = {
    .name = "bench",
    .summary = "Measure speed on this machine",
    .synopsis = TEXTS("prefill|decode|adapters|train|kernels"),
    .description = TEXTS(
        "Runs the engine, the training pass or the kernels as in normal use, and prints their "
        "rates beside the limits of this machine: its memory's read bandwidth and the peak rates "
        "of its integer and float units, measured first. Bytes and operations are counted, not "
        "estimated.",
        "Repetitions are interleaved, so that a change of the machine's speed affects all alike. "
        "Rates are medians; the minimum and maximum of the repetitions are in the CSV and JSON "
        "output, and ratios are medians over pairs of the same repetition. Only figures of one run "
        "can be compared. Goals that a run can judge are listed below its table as met or missed, "
        "or not decided if the error of the figure is too large for either.",
        "Prompts and adapters are random, made from `--seed`; answers always have their full "
        "length."),
    .subcommands =
        SUBCOMMANDS(&bench_prefill_command, &bench_decode_command, &bench_adapters_command,
                    &bench_train_command, &bench_kernels_command),
    .see_also = TEXTS("preft-run 1", "preft 7"),
    .area = AREA_MODELS,
};
