/* What the kinds of `preft bench` share: common options, lists of numbers, samples, and the report
 * that is printed as a table, CSV or JSON. */
#ifndef PF_COMMANDS_BENCH_H
#define PF_COMMANDS_BENCH_H

#include "base/json.h"
#include "commands/command.h"
#include "kernels/peak.h"

#include <stdbool.h>
#include <stdint.h>

/* --- common options --------------------------------------------------------------------------- */

typedef struct {
    const char *csv; /* NULL: none */
    int64_t repeats, seed;
    double seconds;
    bool quick;
} bench_options;
extern bench_options bench_opt;

#define BENCH_MAX_REPEATS 100

#define BENCH_OPTIONS                                                                              \
    OPTION_STRING_SPEC(0, "csv", &bench_opt.csv, "FILE", "Write the table to FILE as CSV too."),   \
        OPTION_INT_SPEC(0, "repeats", &bench_opt.repeats, "N", 1, BENCH_MAX_REPEATS,               \
                        "Most repetitions, interleaved (default 5)."),                             \
        OPTION_REAL_SPEC(0, "seconds", &bench_opt.seconds, "S", 0, 86400,                          \
                         "Start no more repetitions of a grid point after S seconds (default "     \
                         "20); each is measured at least once."),                                  \
        OPTION_INT_SPEC(0, "seed", &bench_opt.seed, "N", 0, (int64_t)1 << 53,                      \
                        "Seed of random prompts and adapters (default 1)."),                       \
        OPTION_FLAG_SPEC(                                                                          \
            0, "quick", &bench_opt.quick,                                                          \
            "Shortest runs and small buffers: a smoke test; the figures mean little.")

/* Whether another repetition should begin: none done yet, or neither --repeats nor --seconds
 * reached. False after Ctrl-C. */
bool bench_again(int done, int64_t began_ns);

/* --- lists ------------------------------------------------------------------------------------ */

#define BENCH_MAX_LIST 16
typedef struct {
    int64_t v[BENCH_MAX_LIST];
    int n;
} bench_list;
/* "1,8,32": whole numbers in [low, high]; PF_USAGE naming the option. */
pf_status bench_list_parse(const char *text, const char *option, int64_t low, int64_t high,
                           bench_list *out, pf_err *err);
int64_t bench_list_max(const bench_list *list);

/* --- samples ---------------------------------------------------------------------------------- */

#define BENCH_MAX_SAMPLES 1200
typedef struct {
    double v[BENCH_MAX_SAMPLES]; /* ascending */
    int n;
} bench_samples;
/* Values that aren't finite are left out, and those for which there is no room. */
void bench_samples_add(bench_samples *s, double x);
double bench_median(const bench_samples *s); /* NAN when empty */
/* Standard error of the median, from the distance of two order statistics around it (McKean and
 * Schrader 1984), which assumes nothing about the samples' distribution. NAN with fewer than 7. */
double bench_median_error(const bench_samples *s);
/* The value that a share of the samples, 0 to 1, is below; bench_median for 0.5. NAN when empty. */
double bench_quantile(const bench_samples *s, double share);

/* --- the report ------------------------------------------------------------------------------- */

/* A column; a table of them ends with a zeroed one. */
typedef struct {
    const char *key, *title; /* in CSV and JSON; above the table (NULL: not in the table) */
    int decimals;
} bench_column;

typedef struct {
    const char *kind; /* "decode" */
    const bench_column *columns;
    json_t *machine, *rows, *goals, *notes; /* owned */
} bench_report;

void bench_report_init(bench_report *r, const char *kind, const bench_column *columns);
void bench_report_free(bench_report *r); /* a zeroed one is fine */

/* Measures the peaks for an instruction set and threads, and notes them in the report. */
pf_status bench_report_peak(bench_report *r, const char *isa, int threads, kn_peak *out,
                            pf_err *err);
/* A new row, borrowed. */
json_t *bench_report_row(bench_report *r);
/* Sets a number; one that isn't finite is left out. */
void bench_set(json_t *row, const char *key, double x);
/* Sets KEY to the median, KEY_min, KEY_max to the extremes. */
void bench_set_samples(json_t *row, const char *key, const bench_samples *s);
/* A goal: value >= goal is "met". A value that isn't finite was not measured: nothing is
 * said, nor with --quick. */
void bench_report_goal(bench_report *r, const char *text, double value, double goal);
/* The same of a value with a standard error: neither met nor missed while the goal lies within two
 * of them. */
void bench_report_goal_within(bench_report *r, const char *text, double value, double error,
                              double goal);
/* A sentence, or a picture of several lines, that stands below the table. */
void bench_report_note(bench_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints (or as JSON with --json), and writes --csv. */
pf_status bench_report_write(const command_context *ctx, const bench_report *r, pf_err *err);

/* --- the kinds -------------------------------------------------------------------------------- */

extern const command bench_prefill_command, bench_decode_command, bench_adapters_command,
    bench_train_command, bench_kernels_command;

#endif
