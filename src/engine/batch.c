#include "engine/batch.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* At most half full, so that a search ends. */
static uint32_t slot_count(int max_rows)
{
    uint32_t count = 16;

    while (count < 2 * (uint32_t)max_rows)
        count *= 2;
    return count;
}

void batch_init(batch *b, int max_rows)
{
    size_t n = (size_t)max_rows;

    *b = (batch){.max_rows = max_rows};
    b->source = xcalloc(n, sizeof *b->source);
    b->tokens = xcalloc(n, sizeof *b->tokens);
    b->positions = xcalloc(n, sizeof *b->positions);
    b->kv = xcalloc(n, sizeof *b->kv);
    b->groups = xcalloc(n, sizeof *b->groups);
    b->group_rows = xcalloc(n, sizeof *b->group_rows);
    b->row_group = xcalloc(n, sizeof *b->row_group);
    b->segments = xcalloc(BATCH_MAPS * n, sizeof *b->segments);
    b->slots = xcalloc(slot_count(max_rows), sizeof *b->slots);
    b->slot_mask = slot_count(max_rows) - 1;
}

void batch_free(batch *b)
{
    free(b->source);
    free(b->tokens);
    free(b->positions);
    free(b->kv);
    free(b->groups);
    free(b->group_rows);
    free(b->row_group);
    free(b->segments);
    free(b->slots);
    *b = (batch){0};
}

void batch_forget(batch *b)
{
    explicit_bzero(b->tokens, (size_t)b->max_rows * sizeof *b->tokens);
}

size_t batch_bytes(int max_rows)
{
    const batch b = {0};
    size_t row = sizeof *b.source + sizeof *b.tokens + sizeof *b.positions + sizeof *b.kv +
                 sizeof *b.groups + sizeof *b.group_rows + sizeof *b.row_group +
                 BATCH_MAPS * sizeof *b.segments;

    return (size_t)max_rows * row + slot_count(max_rows) * sizeof *b.slots;
}

static uint32_t hash_pointer(const void *p)
{
    uint64_t x = (uint64_t)(uintptr_t)p * 0x9E3779B97F4A7C15u;

    return (uint32_t)(x >> 32);
}

/* The group of an adapter, made when it is new. */
static int32_t group_of(batch *b, const packed_adapter *adapter)
{
    uint32_t slot = hash_pointer(adapter) & b->slot_mask;

    for (; b->slots[slot] >= 0; slot = (slot + 1) & b->slot_mask)
        if (b->groups[b->slots[slot]].adapter == adapter) return b->slots[slot];
    b->slots[slot] = b->n_groups;
    b->groups[b->n_groups] = (batch_group){.adapter = adapter};
    return b->n_groups++;
}

static void count_groups(batch *b, const forward_row *rows)
{
    const packed_adapter *last = NULL;
    int32_t group = -1;

    memset(b->slots, 0xff, (b->slot_mask + 1) * sizeof *b->slots);
    for (int i = 0; i < b->n; i++) {
        const packed_adapter *adapter = rows[b->source[i]].adapter;
        /* Rows of one prompt follow each other. */
        if (adapter != last) group = adapter ? group_of(b, adapter) : -1;
        last = adapter;
        b->row_group[i] = group;
        if (group >= 0) b->groups[group].n_rows++;
    }
}

static void fill_groups(batch *b)
{
    int32_t first = 0;

    for (int g = 0; g < b->n_groups; g++) {
        b->groups[g].first = first;
        first += b->groups[g].n_rows;
        b->groups[g].n_rows = 0;
    }
    for (int i = 0; i < b->n; i++) {
        if (b->row_group[i] < 0) continue;
        batch_group *g = &b->groups[b->row_group[i]];
        b->group_rows[g->first + g->n_rows++] = i;
    }
}

void batch_build(batch *b, const forward_row *rows, int n, bool logits_only)
{
    bool adapted = false;

    b->n = 0;
    b->n_groups = 0;
    for (int i = 0; i < n; i++) {
        if (logits_only && !rows[i].wants_logits) continue;
        b->source[b->n] = i;
        b->tokens[b->n] = rows[i].token;
        b->positions[b->n] = rows[i].position;
        b->kv[b->n] = (kn_kv_row){.pages = rows[i].pages, .position = rows[i].position};
        adapted = adapted || rows[i].adapter;
        b->n++;
    }
    if (!adapted) return;
    count_groups(b, rows);
    fill_groups(b);
}

void batch_pad(batch *b, int n)
{
    for (; b->n < n; b->n++) {
        b->source[b->n] = b->n;
        b->tokens[b->n] = b->positions[b->n] = 0;
        b->kv[b->n] = (kn_kv_row){.pages = NULL, .position = 0};
        b->row_group[b->n] = -1;
    }
}

static int add_segment(const batch *b, kn_segment *segments, int count, const batch_group *g,
                       const kn_adapter_weight *w)
{
    if (!w) return count;
    segments[count] =
        (kn_segment){.w = w, .row_index = b->group_rows + g->first, .n_rows = g->n_rows};
    return count + 1;
}

int batch_lora(batch *b, int layer, linear_map map, int slot, const kn_segment **segments)
{
    kn_segment *to = b->segments + (size_t)slot * (size_t)b->max_rows;
    int count = 0;

    for (int g = 0; g < b->n_groups; g++) {
        const batch_group *group = &b->groups[g];
        count = add_segment(b, to, count, group, packed_adapter_lora(group->adapter, layer, map));
    }
    *segments = to;
    return count;
}

int batch_direft(batch *b, int layer, const kn_segment **segments)
{
    int count = 0;

    for (int g = 0; g < b->n_groups; g++) {
        const batch_group *group = &b->groups[g];
        const kn_adapter_weight *w = packed_adapter_direft(group->adapter, layer);
        count = add_segment(b, b->segments, count, group, w);
    }
    *segments = b->segments;
    return count;
}
