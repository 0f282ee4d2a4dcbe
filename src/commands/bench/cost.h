/* The roofline model of a step: its parts run one after the other, and each takes the longer of the
 * time to read its bytes and the time to compute its operations. Pure. */
#ifndef PF_COMMANDS_BENCH_COST_H
#define PF_COMMANDS_BENCH_COST_H

#include "engine/engine.h"

/* Rates that are reached, per second. A multiply-accumulate counts as two operations. */
typedef struct {
    double read_bytes;
    double ops;         /* of base weights */
    double adapter_ops; /* of adapters: another kind of arithmetic */
    double overhead;    /* seconds of a step */
} cost_machine;

typedef struct {
    double weights, adapters, kv, overhead; /* seconds */
} cost_parts;

/* The parts of an average step of this work. */
cost_parts cost_of(const cost_machine *machine, const engine_work *work);
double cost_seconds(const cost_parts *parts);

/* Which of the two explains more of a step that took so many seconds at the machine's peak rates:
 * "bytes" or "operations", with the share of the time in *share. */
const char *cost_reason(const cost_machine *peak, const engine_work *work, double seconds,
                        double *share);

/* A step that was measured. */
typedef struct {
    engine_work work;
    double seconds; /* of an average step */
} cost_sample;

/* Shares of the peak rates (and an overhead) with which the samples are predicted best: least
 * squares of the logarithms, on a grid. */
cost_machine cost_fit(const cost_machine *peak, const cost_sample *samples, int n);

#endif
