#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Failures printed per group; the rest is only counted. */
#define MOST_SHOWN 12

void report_init(report *r, const char *group, const char *isa)
{
    *r = (report){.group = group, .isa = isa};
}

static void show_failure(report *r, const char *where, const char *what)
{
    if (r->shown++ < MOST_SHOWN)
        printf("  FAIL %s %s: %s%s\n", r->group, r->isa, where, what);
    else if (r->shown == MOST_SHOWN + 1)
        printf("  FAIL %s %s: more failures, not printed\n", r->group, r->isa);
}

static report_measure *find_measure(report *r, const char *name, double tolerance)
{
    for (int i = 0; i < r->n_measures; i++) {
        report_measure *m = &r->measures[i];
        if (strcmp(m->name, name) == 0 && m->tolerance == tolerance) return m;
    }
    if (r->n_measures == REPORT_MEASURES) return NULL;
    report_measure *m = &r->measures[r->n_measures++];
    *m = (report_measure){.name = name, .tolerance = tolerance, .worst = -1};
    return m;
}

void report_value(report *r, const char *measure, double error, double tolerance, const char *fmt,
                  ...)
{
    char where[96];
    char what[96];
    va_list args;

    va_start(args, fmt);
    vsnprintf(where, sizeof where, fmt, args);
    va_end(args);
    report_measure *m = find_measure(r, measure, tolerance);
    /* Written so that a NaN becomes the worst and fails. */
    if (m && !(error <= m->worst)) {
        m->worst = error;
        memcpy(m->where, where, sizeof m->where);
    }
    if (error <= tolerance) {
        r->passed++;
        return;
    }
    r->failed++;
    snprintf(what, sizeof what, ": %s %.3g, allowed %.3g", measure, error, tolerance);
    show_failure(r, where, what);
}

bool report_check(report *r, bool ok, const char *fmt, ...)
{
    char where[512];
    va_list args;

    if (ok) {
        r->passed++;
        return true;
    }
    r->failed++;
    va_start(args, fmt);
    vsnprintf(where, sizeof where, fmt, args);
    va_end(args);
    show_failure(r, where, "");
    return false;
}

void report_skip(report *r, int count, const char *fmt, ...)
{
    char text[sizeof r->reasons[0].text];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->skipped += count;
    for (int i = 0; i < r->n_reasons; i++) {
        if (strcmp(r->reasons[i].text, text) != 0) continue;
        r->reasons[i].count += count;
        return;
    }
    if (r->n_reasons == REPORT_REASONS) return;
    report_reason *reason = &r->reasons[r->n_reasons++];
    memcpy(reason->text, text, sizeof text);
    reason->count = count;
}

void report_print(const report *r)
{
    printf("%-10s %-7s %5d passed, %d failed, %d skipped", r->group, r->isa, r->passed, r->failed,
           r->skipped);
    for (int i = 0; i < r->n_measures; i++) {
        const report_measure *m = &r->measures[i];
        printf("; %s %.2g of %.2g (%s)", m->name, m->worst, m->tolerance, m->where);
    }
    printf("\n");
    for (int i = 0; i < r->n_reasons; i++)
        printf("  skipped %d: %s\n", r->reasons[i].count, r->reasons[i].text);
    fflush(stdout);
}
