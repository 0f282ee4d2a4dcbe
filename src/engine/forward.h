/* The forward pass: rows in, logits out. One row is one token of one sequence; one call is one step
 * of the model over any mix of rows: prompt chunks and single tokens, with adapters of any kind and
 * rank or none. Who runs when, and which pages belong to whom, is the caller's business.
 *
 * A row's logits, and the K and V it leaves behind, depend on its token, its position, its adapter
 * and the pages before it alone, bit for bit: not on the other rows of the step (the backend's
 * determinism rule, kernels/backend.h). Rows of the same sequence may share a step in any order;
 * each reads positions 0..its own, this step's included.
 *
 * Everything runs on the backend's thread. */
#ifndef PF_ENGINE_FORWARD_H
#define PF_ENGINE_FORWARD_H

#include "engine/adapter.h"
#include "engine/weights.h"

typedef struct forward forward;

typedef struct {
    int max_rows;    /* most rows of a step */
    int max_logits;  /* most rows of a step that want logits; 0 = max_rows */
    int page_tokens; /* tokens of a KV page */
    int n_pages;     /* KV pages in all */
    kn_kv_type kv_type;
} forward_options;

typedef struct {
    int32_t token;
    int32_t position;              /* 0-based place in its sequence */
    const int32_t *pages;          /* [position / page_tokens + 1] pages of its sequence */
    const packed_adapter *adapter; /* an adapted token's adapter; NULL = plain */
    bool wants_logits;
} forward_row;

typedef struct {
    size_t weights; /* packed weights and norms */
    size_t kv;      /* all pages */
    size_t work;    /* activations and logits, both sides */
} forward_memory;

/* The KV store that forward_open makes for these options: for be->ops->kv_page_bytes, when n_pages
 * is to be chosen from a budget. */
kn_kv_shape forward_kv_shape(const model_config *config, const forward_options *options);

/* Packs the model's weights on be, releases the mapped file's pages, allocates the KV pages and all
 * work memory: forward_run allocates nothing. m and be are borrowed and must outlive the result.
 * PF_USAGE for options out of range, PF_NO_MEMORY naming the bytes asked for. */
pf_status forward_open(const model *m, kn_backend *be, const forward_options *options,
                       forward **out, pf_err *err);
void forward_close(forward *f); /* NULL is fine */

/* One step over rows[0..n), 0 <= n <= max_rows. Rows and what they point to are borrowed for the
 * call; no two rows may name the same place of the same page. A step without adapted rows makes no
 * adapter call. A row that does not fit (token outside the vocabulary, position or page outside
 * the store, too many rows or logits): PF_USAGE with its index, and nothing has been computed. A
 * failure of the device: PF_FAILED with its message; what the rows should have stored is
 * undefined, and later steps may succeed. */
pf_status forward_run(forward *f, const forward_row *rows, int n, pf_err *err);

/* Whether the device samples tokens itself, so that forward_run_choose may be called. */
bool forward_can_choose(const forward *f);
/* As forward_run, but the logits stay on the device: choices[i] is made from those of the i-th row
 * that wants some, as samples[i] says. */
pf_status forward_run_choose(forward *f, const forward_row *rows, int n, const kn_sample *samples,
                             kn_choice *choices, pf_err *err);

/* The logits [vocab] of the i-th row that wanted some in the last forward_run, in the order of the
 * rows; host memory, borrowed until the next forward_run. */
const float *forward_logits(const forward *f, int i);
int forward_n_logits(const forward *f);

/* Overwrites what earlier steps left: tokens, activations, logits; not during a step. */
void forward_forget(forward *f);

/* For the caller's page work (kv_copy, kv_clear through the backend). Borrowed. */
kn_kv *forward_kv(const forward *f);
/* Borrowed; training computes with the same weights. */
const packed_model *forward_weights(const forward *f);
forward_memory forward_get_memory(const forward *f);

/* For debugging and tests: called in forward_run with the residual stream h[n, hidden] (host copy)
 * after the embedding (layer -1) and after every block, DiReFT included. The last block is computed
 * for the rows that want logits only: there n is their number. NULL switches it off. */
typedef void (*forward_probe)(void *ctx, int layer, const float *h, int n, int hidden);
void forward_set_probe(forward *f, forward_probe probe, void *ctx);

#endif
