/* Predictions for other machines and models: the roofline model of bench/cost.h with the shapes and
 * figures of bench/paper.def. Pure except for printing. */
#ifndef PF_COMMANDS_BENCH_PAPER_H
#define PF_COMMANDS_BENCH_PAPER_H

#include "commands/bench/bench.h"
#include "commands/bench/load.h"

typedef struct paper_shape paper_shape;
typedef struct paper_machine paper_machine;
const paper_shape *paper_find_shape(const char *name);     /* NULL: unknown */
const paper_machine *paper_find_machine(const char *name); /* NULL: unknown */

/* One serving situation: batch requests at once, each with an adapter of its own of `adapters`
 * different ones (0: the base model alone), prompts and answers of so many tokens. */
typedef struct {
    int batch, adapters, rank, prompt, answer;
} paper_setting;

/* Bytes and multiply-accumulates of one device in a step of `rows` tokens (decode: one of each
 * sequence at this context; prefill: of prompts, context their mean length so far), 16-bit weights.
 * Logits are computed for `logits` rows. Only kinds that act on the step's tokens add adapters. */
engine_work paper_work(const paper_shape *shape, const paper_machine *machine, bench_kind kind,
                       int adapters, int rank, double rows, double context, double logits,
                       bool decode);
/* Seconds of a decode step in the middle of the answers. */
double paper_decode(const paper_shape *shape, const paper_machine *machine, bench_kind kind,
                    const paper_setting *s);
/* Generated tokens per second from the arrival of all prompts to the end of all answers. */
double paper_rate(const paper_shape *shape, const paper_machine *machine, bench_kind kind,
                  const paper_setting *s);

/* preft bench adapters --shape: the table for lists of batches and ranks, the paper's ratios beside
 * the predicted ones, and the settings that come nearest to them. machine NULL: the paper's, or one
 * H100. PF_USAGE names what is unknown and lists what there is. */
pf_status paper_run(const command_context *ctx, const char *shape, const char *machine,
                    const bench_list *batches, const bench_list *ranks, int prompt, int answer,
                    pf_err *err);

#endif
