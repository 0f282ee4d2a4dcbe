/* The rows of a step laid out for the backend: arrays of tokens, positions and KV places, and the
 * adapted rows grouped by adapter. Only forward.c includes this. */
#ifndef PF_ENGINE_BATCH_H
#define PF_ENGINE_BATCH_H

#include "engine/forward.h"

/* Most maps of one input. */
#define BATCH_MAPS 3

/* Rows that share an adapter: batch.group_rows[first .. first + n_rows), ascending. */
typedef struct {
    const packed_adapter *adapter;
    int32_t first, n_rows;
} batch_group;

typedef struct {
    int n, max_rows;
    int32_t *source; /* [n] index of the batch's row among the step's rows */
    int32_t *tokens;
    int32_t *positions;
    kn_kv_row *kv;

    int n_groups; /* 0: no row is adapted */
    batch_group *groups;
    int32_t *group_rows;
    int32_t *row_group;   /* [n] group of a row, -1 = plain */
    kn_segment *segments; /* [BATCH_MAPS][max_rows] filled by batch_lora and batch_direft */

    int32_t *slots; /* hash table: adapter -> group, -1 = free */
    uint32_t slot_mask;
} batch;

/* Room for max_rows rows; everything later allocates nothing. */
void batch_init(batch *b, int max_rows);
void batch_free(batch *b); /* a zeroed batch is fine */

void batch_forget(batch *b); /* overwrites the tokens of earlier steps */

/* Lays out the step's rows[0..n), or only those that want logits. */
void batch_build(batch *b, const forward_row *rows, int n, bool logits_only);

/* Appends padding rows (kernels/backend.h, step_rows) up to n rows in all; their source is their
 * own index. */
void batch_pad(batch *b, int n);

/* The groups whose adapter acts on this map, or after this layer: *segments of them, returns how
 * many there are. They are valid until the next call for the same `slot` < BATCH_MAPS. */
int batch_lora(batch *b, int layer, linear_map map, int slot, const kn_segment **segments);
int batch_direft(batch *b, int layer, const kn_segment **segments);

/* Bytes that batch_init allocates for max_rows. */
size_t batch_bytes(int max_rows);

#endif
