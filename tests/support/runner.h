/* A model on a backend and sequences run through the real forward pass: all sequences of a call
 * share steps, in uneven chunks, as a server would mix them. */
#ifndef TEST_RUNNER_H
#define TEST_RUNNER_H

#include "engine/forward.h"
#include "models/model.h"

/* Zeroed = defaults. */
typedef struct {
    const char *isa; /* of kn_isa_list(), "cuda", "cuda-exact" or "cuda-precise"; NULL = "ref" */
    int threads;     /* 0 = one per core */
    kn_kv_type kv_type;
    int step_rows; /* most rows of a step; 0 = 256 */
    int chunk;     /* most tokens of one sequence in a step; 0 = 37 */
    bool reverse;  /* sequences take their places in a step from the last to the first */
} runner_options;

typedef struct {
    runner_options options; /* may be changed between runs, but for isa, threads and kv_type */
    model *m;
    kn_backend *be;
    forward *f;
    bool integer; /* quantized weights on an instruction set that computes with integers */
} runner;

/* A sequence to run. logits is called with each wanted position's row; the rows of a sequence come
 * in ascending order. */
typedef struct {
    const int32_t *ids; /* [n] borrowed */
    int n;
    const packed_adapter *adapter; /* or NULL */
    const bool *adapted;           /* [n], or NULL: all tokens plain */
    const bool *wanted;            /* [n] */
    void (*logits)(void *ctx, int position, const float *logits, int vocab);
    void *ctx;
} runner_sequence;

/* How the backend of an isa's name is opened. */
kn_options runner_backend(const char *isa, int threads);
/* Opens a model and a backend with a KV store of 4096 tokens. */
pf_status runner_open(const char *model_path, const runner_options *options, runner *out,
                      pf_err *err);
void runner_close(runner *r);

/* Runs all sequences to their ends, those that fit into the store at once together. Ends the
 * program if one alone does not fit. */
pf_status runner_run(runner *r, const runner_sequence *sequences, int n, pf_err *err);

/* Imports an adapter folder and packs it. */
pf_status runner_adapter(runner *r, const char *folder, packed_adapter **out, pf_err *err);

#endif
