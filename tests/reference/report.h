/* The record of one group of reference tests: counts, failures as they happen, and the largest
 * error of each measure beside its tolerance. Skipped tests are counted with their reason. */
#ifndef REFERENCE_REPORT_H
#define REFERENCE_REPORT_H

#include <stdbool.h>

#define REPORT_MEASURES 8
#define REPORT_REASONS  32

typedef struct {
    const char *name; /* "logits", "kl mean" */
    double tolerance;
    double worst;
    char where[96];
} report_measure;

typedef struct {
    char text[160];
    int count;
} report_reason;

typedef struct {
    const char *group;
    const char *isa; /* "" where no kernel runs */
    int passed, failed, skipped;
    int shown; /* failures printed so far */
    report_measure measures[REPORT_MEASURES];
    int n_measures;
    report_reason reasons[REPORT_REASONS];
    int n_reasons;
} report;

void report_init(report *r, const char *group, const char *isa);

/* One test: passed if error <= tolerance (NaN fails). measure is a static string. */
void report_value(report *r, const char *measure, double error, double tolerance, const char *fmt,
                  ...) __attribute__((format(printf, 5, 6)));
/* One exact test; the text says what was compared. Returns ok. */
bool report_check(report *r, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* count tests left out. */
void report_skip(report *r, int count, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prints the group's line and its reasons for skipping. */
void report_print(const report *r);

#endif
