/* LoRA and DiReFT on the CPU backend. */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- packing -------------------------------------------------------------------------------- */

/* rows x cols elements; row r begins at src + r * row_step, its elements are `step` apart. */
typedef struct {
    const uint8_t *src;
    int64_t rows, cols, row_step, step; /* steps in elements */
    kn_type type;
} map_source;

static inline __attribute__((always_inline)) void
copy_vector(const uint8_t *src, size_t element, size_t step, int n, bool pairs, uint8_t *dst)
{
    for (int i = 0; i < n; i++) {
        int place = pairs ? (i < 8 ? 2 * i : 2 * (i - 8) + 1) : i;
        memcpy(dst + (size_t)place * element, src + (size_t)i * step, element);
    }
}

/* Row r of the source as vectors, vector v at dst + 16 * place(r, v) elements. */
static void pack_vectors(const map_source *m, bool side_by_side_rows, uint8_t *dst)
{
    const size_t element = kn_row_bytes(m->type, 1);
    const int64_t n_vectors = (m->cols + 15) / 16;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t v = 0; v < n_vectors; v++) {
            int64_t place = side_by_side_rows ? kn_adapter_place(r, v, m->rows, n_vectors)
                                              : kn_adapter_place(v, r, m->cols / 16, m->rows);
            const uint8_t *src = m->src + (size_t)(r * m->row_step + 16 * v * m->step) * element;
            uint8_t *to = dst + (size_t)place * 16 * element;
            int n = m->cols - 16 * v < 16 ? (int)(m->cols - 16 * v) : 16;
            if (element == 2)
                copy_vector(src, 2, 2 * (size_t)m->step, n, m->type == KN_BF16, to);
            else
                copy_vector(src, 4, 4 * (size_t)m->step, n, false, to);
        }
}

static void pack_plain(const map_source *m, uint8_t *dst)
{
    const size_t element = kn_row_bytes(m->type, 1);
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++)
            memcpy(dst + (size_t)(r * m->cols + c) * element,
                   m->src + (size_t)(r * m->row_step + c * m->step) * element, element);
}

/* Where the parts of a map lie, from its beginning. */
typedef struct {
    size_t a_bytes, b_bytes, bias_bytes;
    size_t bias_at, b_at, end; /* multiples of 64 */
} map_place;

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static map_place place_of(const kn_cpu *cpu, const kn_adapter_matrices *m)
{
    const int64_t whole = cpu->kernels->adapter_vectors ? 16 : 1;
    const size_t element = kn_row_bytes(m->type, 1), rank = (size_t)m->rank;
    map_place p = {.a_bytes = rank * (size_t)((m->in + whole - 1) / whole * whole) * element,
                   .b_bytes = rank * (size_t)((m->out + whole - 1) / whole * whole) * element,
                   .bias_bytes = m->bias ? rank * sizeof(float) : 0};
    p.bias_at = aligned(p.a_bytes);
    p.b_at = p.bias_at + aligned(p.bias_bytes);
    p.end = p.b_at + aligned(p.b_bytes);
    return p;
}

static void pack_map(const kn_cpu *cpu, const kn_adapter_matrices *m, kn_adapter_weight *w)
{
    const map_source a = {m->a, m->rank, m->in, m->in, 1, m->type};
    map_source b = {m->b, m->rank, m->out, m->out, 1, m->type};
    if (!m->direft) {
        b.row_step = 1;
        b.step = m->rank;
    }
    if (cpu->kernels->adapter_vectors) {
        pack_vectors(&a, true, w->a);
        pack_vectors(&b, false, w->b);
    } else {
        pack_plain(&a, w->a);
        pack_plain(&b, w->b);
    }
    if (m->bias) memcpy(w->bias, m->bias, (size_t)m->rank * sizeof *w->bias);
}

/* One map in the next bytes of the chunk; NULL when out of memory. */
static kn_adapter_weight *create_map(const kn_cpu *cpu, const kn_adapter_matrices *m,
                                     kn_chunk *chunk)
{
    const map_place p = place_of(cpu, m);
    kn_adapter_weight *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    uint8_t *at = chunk->memory + chunk->used;
    *w = (kn_adapter_weight){.direft = m->direft,
                             .rank = m->rank,
                             .in = m->in,
                             .out = m->out,
                             .type = m->type,
                             .scale = m->scale,
                             .bytes = p.a_bytes + p.b_bytes + p.bias_bytes,
                             .a = at,
                             .b = at + p.b_at,
                             .bias = m->bias ? (float *)(void *)(at + p.bias_at) : NULL,
                             .chunk = chunk};
    chunk->used += p.end;
    chunk->users++;
    pack_map(cpu, m, w);
    return w;
}

bool kn_cpu_adapters_create(kn_backend *be, const kn_adapter_matrices *m, int n,
                            kn_adapter_weight **out)
{
    const kn_cpu *cpu = kn_cpu_of(be);
    size_t bytes = 0;
    int made = 0;
    for (int i = 0; i < n; i++) {
        assert(m[i].rank > 0 && m[i].in > 0 && m[i].out > 0);
        assert(!kn_type_get(m[i].type)->quantized && (!m[i].direft || m[i].in == m[i].out));
        bytes += place_of(cpu, &m[i]).end;
    }
    kn_chunk *chunk = kn_chunk_create(bytes);
    while (chunk && made < n && (out[made] = create_map(cpu, &m[made], chunk)))
        made++;
    if (made < n) kn_cpu_fail("out of memory: an adapter of %zu bytes", bytes);
    for (int i = 0; made < n && i < made; i++)
        kn_cpu_adapter_free(be, out[i]);
    kn_chunk_drop(chunk);
    return made == n;
}

kn_adapter_weight *kn_cpu_adapter_create(kn_backend *be, const kn_adapter_matrices *m)
{
    kn_adapter_weight *w = NULL;
    return kn_cpu_adapters_create(be, m, 1, &w) ? w : NULL;
}

void kn_cpu_adapter_free(kn_backend *be, kn_adapter_weight *w)
{
    if (!w) return;
    const kn_adapter_matrices shape = {
        .rank = w->rank, .in = w->in, .out = w->out, .type = w->type, .bias = w->bias};
    kn_wipe(w->a, place_of(kn_cpu_of(be), &shape).end);
    kn_chunk_drop(w->chunk);
    free(w);
}

size_t kn_cpu_adapter_bytes(const kn_adapter_weight *w)
{
    return w->bytes;
}

/* --- applying ------------------------------------------------------------------------------- */

typedef struct {
    kn_cpu *cpu;
    kn_adapt *parts;
    int n_parts, parts_per_item;
} adapt_job;

static void adapt_item(void *ctx, int item, int worker)
{
    const adapt_job *job = ctx;
    int first = item * job->parts_per_item, end = first + job->parts_per_item;
    if (end > job->n_parts) end = job->n_parts;
    for (const kn_adapt *a = &job->parts[first]; a < &job->parts[end]; a++) {
        float *scratch = kn_scratch_get(&job->cpu->worker[worker],
                                        (size_t)a->n * (size_t)a->w->rank * sizeof *scratch);
        job->cpu->kernels->adapt(a, scratch);
    }
}

/* What there is to do for all maps. */
typedef struct {
    int64_t rows;
    int most_segments; /* of a map */
    double work;
} adapt_size;

static adapt_size count_work(kn_cpu *cpu, const kn_lora_map *maps, int n_maps)
{
    adapt_size size = {0};
    for (int m = 0; m < n_maps; m++) {
        if (maps[m].n_segments > size.most_segments) size.most_segments = maps[m].n_segments;
        for (int s = 0; s < maps[m].n_segments; s++) {
            const kn_adapter_weight *w = maps[m].segments[s].w;
            int n = maps[m].segments[s].n_rows;
            if (n <= 0) continue;
            uint64_t mac = (uint64_t)w->rank * (uint64_t)(w->in + w->out) * (uint64_t)n;
            cpu->counters.adapter_bytes += w->bytes;
            cpu->counters.adapter_mac += mac;
            size.rows += n;
            size.work += 0.1 * (double)mac;
        }
    }
    return size;
}

/* Cuts a map's segment into parts of at most `rows` rows. */
static void add_parts(adapt_job *job, const kn_lora_map *map, int segment, const float *x, int rows)
{
    const kn_segment *s = &map->segments[segment];
    for (int first = 0; first < s->n_rows; first += rows) {
        int n = s->n_rows - first < rows ? s->n_rows - first : rows;
        kn_adapt *part = &job->parts[job->n_parts];
        *part = (kn_adapt){s->w, s->w, s->row_index + first, n, x, map->y, map->ld_y};
        if (job->n_parts++ > 0) part[-1].next = s->w;
    }
}

/* The maps of an adapter lie one after the other and are read like that. */
static void adapt(kn_cpu *cpu, const kn_lora_map *maps, int n_maps, const float *x)
{
    enum { ITEMS_A_THREAD = 24 };
    const adapt_size size = count_work(cpu, maps, n_maps);
    const int64_t wanted = size.rows / (4 * cpu->base.threads) + 1;
    const int rows_per_part = (int)(wanted > 16 ? 16 : wanted);
    const size_t most = (size_t)(size.rows / rows_per_part) + (size_t)n_maps * size.most_segments;
    adapt_job job = {.cpu = cpu, .parts = kn_scratch_get(&cpu->segments, most * sizeof *job.parts)};
    for (int s = 0; s < size.most_segments; s++)
        for (int m = 0; m < n_maps; m++)
            if (s < maps[m].n_segments) add_parts(&job, &maps[m], s, x, rows_per_part);
    job.parts_per_item = 1 + job.n_parts / (ITEMS_A_THREAD * cpu->base.threads);
    const int n_items = (job.n_parts + job.parts_per_item - 1) / job.parts_per_item;
    kn_cpu_run(cpu, n_items, size.work, adapt_item, &job);
}

void kn_cpu_lora(kn_backend *be, const kn_segment *segments, int n_segments, const float *x,
                 float *y, int64_t ld_y)
{
    const kn_lora_map map = {segments, n_segments, y, ld_y};
    adapt(kn_cpu_of(be), &map, 1, x);
}

void kn_cpu_lora_maps(kn_backend *be, const kn_lora_map *maps, int n_maps, const float *x)
{
    adapt(kn_cpu_of(be), maps, n_maps, x);
}

void kn_cpu_direft(kn_backend *be, const kn_segment *segments, int n_segments, float *h)
{
    if (n_segments <= 0) return;
    const kn_lora_map map = {segments, n_segments, h, segments[0].w->out};
    adapt(kn_cpu_of(be), &map, 1, h);
}
