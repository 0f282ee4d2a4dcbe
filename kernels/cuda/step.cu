/* Steps: the arrays that a step's calls name are sent once, and a repeatable step is recorded as a
 * CUDA graph, one for each number of rows (a class: step_rows) and length of context (a power of
 * two of parts). The first step of a kind runs plainly, so that all working memory is there; the
 * second is recorded; later ones send their arrays and start the graph. */
#include "kernels/cuda/cuda.h"

#include <cstdlib>
#include <cstring>

/* Each takes device memory: about a kilobyte per kernel. */
#define MOST_GRAPHS 64

struct kn_cuda_graph {
    const void *owner;
    int n, split_class;
    bool unfit; /* can't be recorded */
    cudaGraphExec_t exec;
    kn_counters work;        /* of one run, but for kv_bytes */
    uint64_t kv_token_bytes; /* K and V bytes of a token of context, over all layers */
    kn_cuda_graph *next;
};

/* --- classes ---------------------------------------------------------------------------------- */

int kn_cuda_step_rows(const kn_backend *be, int n)
{
    (void)be;
    int unit = 4;
    if (n <= 2) return n;
    while (unit * 8 < n) /* 4, 8, 12, ... 32, 40, ... 64, 80, ... */
        unit *= 2;
    return (n + unit - 1) / unit * unit;
}

static int split_class_of(int32_t max_position)
{
    int splits = 1;
    while (splits <= max_position / KN_CUDA_SPLIT_TOKENS)
        splits *= 2;
    return splits;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Rows from i on that share row i's pages. */
static int run_length(const kn_kv_row *rows, int n, int i)
{
    int end = i + 1;
    while (end < n && rows[end].pages == rows[i].pages)
        end++;
    return end - i;
}

static int run_pages(const kn_kv_row *rows, int i, int count, int page_tokens)
{
    int32_t last = 0;
    for (int j = i; j < i + count; j++)
        last = rows[j].position > last ? rows[j].position : last;
    return rows[i].pages ? last / page_tokens + 1 : 0;
}

static size_t count_pages(const kn_kv_row *rows, int n, int page_tokens)
{
    size_t pages = 0;
    for (int i = 0, count; i < n; i += count) {
        count = run_length(rows, n, i);
        pages += (size_t)run_pages(rows, i, count, page_tokens);
    }
    return pages;
}

/* Fills table[n] and pages, and what is to be known of the rows. */
static void lay_out(const kn_kv_row *rows, int n, int page_tokens, int32_t *table, int32_t *pages,
                    kn_cuda_rows *out)
{
    int32_t used = 0;
    out->shared = false;
    out->max_position = 0;
    out->context_tokens = 0;
    for (int i = 0, count; i < n; i += count) {
        count = run_length(rows, n, i);
        const int n_pages = run_pages(rows, i, count, page_tokens);
        for (int j = i; j < i + count; j++)
            table[j] = n_pages > 0 ? used : -1;
        if (n_pages == 0) continue;
        memcpy(pages + used, rows[i].pages, (size_t)n_pages * sizeof *pages);
        used += n_pages;
        int32_t last = 0;
        for (int j = i; j < i + count; j++)
            last = rows[j].position > last ? rows[j].position : last;
        out->shared = out->shared || count > 1;
        out->max_position = last > out->max_position ? last : out->max_position;
        out->context_tokens += (uint64_t)last + 1;
    }
}

/* Rows that no step announced. */
static bool send_rows(kn_cuda *c, const kn_kv_row *rows, int n, int page_tokens, kn_cuda_rows *out)
{
    const size_t ints = 2 * (size_t)n + count_pages(rows, n, page_tokens);
    int32_t *p = (int32_t *)kn_cuda_ring(c, ints * sizeof *p);
    if (!p) return false;
    for (int i = 0; i < n; i++)
        p[i] = rows[i].position;
    lay_out(rows, n, page_tokens, p + n, p + 2 * n, out);
    out->positions = (const int32_t *)kn_cuda_send(c, p, ints * sizeof *p);
    out->table = out->positions + n;
    out->pages = out->positions + 2 * n;
    out->tokens = NULL;
    return true;
}

bool kn_cuda_rows_of(kn_cuda *c, const kn_kv *kv, const kn_kv_row *rows, int n, kn_cuda_rows *out)
{
    if (c->failed) return false;
    for (int s = 0; c->in_step && s < c->step.n_sets; s++)
        if (c->sets[s].kv == rows && c->sets[s].n == n) {
            *out = c->set_rows[s];
            return true;
        }
    return send_rows(c, rows, n, kv->shape.page_tokens, out);
}

const int32_t *kn_cuda_ints(kn_cuda *c, const int32_t *host, int n)
{
    if (c->failed) return NULL;
    for (int s = 0; c->in_step && s < c->step.n_sets; s++) {
        if (n > c->sets[s].n) continue;
        if (host == c->sets[s].positions) return c->set_rows[s].positions;
        if (host == c->sets[s].tokens) return c->set_rows[s].tokens;
    }
    return (const int32_t *)kn_cuda_stage(c, host, (size_t)n * sizeof *host);
}

/* --- sending a step --------------------------------------------------------------------------- */

/* Room for the sets' arrays at addresses that stay. */
static bool reserve(kn_cuda *c, size_t rows, size_t pages)
{
    if (rows <= c->step_rows && pages <= c->step_pages) return true;
    const size_t new_rows = rows > c->step_rows ? rows + rows / 2 + 64 : c->step_rows;
    const size_t new_pages = pages > c->step_pages ? 2 * pages + 1024 : c->step_pages;
    const size_t bytes = KN_CUDA_STEP_SETS * (3 * new_rows + new_pages) * sizeof(int32_t);
    kn_cuda_scratch_free(c, &c->step_ints);
    c->step_rows = c->step_pages = 0;
    c->step_ints.data = kn_cuda_alloc(c, bytes, "the rows of a step");
    if (!c->step_ints.data) {
        c->failed = true;
        return false;
    }
    c->step_ints.bytes = bytes;
    c->step_rows = new_rows;
    c->step_pages = new_pages;
    return true;
}

static bool send_set(kn_cuda *c, int s, int page_tokens)
{
    const kn_step_rows *set = &c->sets[s];
    const size_t n = (size_t)set->n, room = c->step_rows;
    const size_t ints = 3 * room + count_pages(set->kv, set->n, page_tokens);
    int32_t *to = (int32_t *)c->step_ints.data + (size_t)s * (3 * room + c->step_pages);
    int32_t *p = (int32_t *)kn_cuda_ring(c, ints * sizeof *p);
    kn_cuda_rows *rows = &c->set_rows[s];
    if (!p) return false;
    memcpy(p, set->tokens, n * sizeof *p);
    memcpy(p + room, set->positions, n * sizeof *p);
    lay_out(set->kv, set->n, page_tokens, p + 2 * room, p + 3 * room, rows);
    kn_cuda_send_to(c, to, p, ints * sizeof *p);
    rows->tokens = to;
    rows->positions = to + room;
    rows->table = to + 2 * room;
    rows->pages = to + 3 * room;
    return !c->failed;
}

static bool send_step(kn_cuda *c, const kn_step *step)
{
    size_t rows = 0, pages = 0;
    for (int s = 0; s < step->n_sets; s++) {
        const kn_step_rows *set = &step->sets[s];
        const size_t set_pages = count_pages(set->kv, set->n, step->page_tokens);
        rows = (size_t)set->n > rows ? (size_t)set->n : rows;
        pages = set_pages > pages ? set_pages : pages;
    }
    if (!reserve(c, rows, pages)) return false;
    int32_t max_position = 0;
    for (int s = 0; s < step->n_sets; s++) {
        c->sets[s] = step->sets[s];
        if (!send_set(c, s, step->page_tokens)) return false;
        if (c->set_rows[s].max_position > max_position) max_position = c->set_rows[s].max_position;
    }
    c->split_class = split_class_of(max_position);
    for (int s = 0; step->repeatable && s < step->n_sets; s++) /* of the class, not of this step */
        c->set_rows[s].max_position = c->split_class * KN_CUDA_SPLIT_TOKENS - 1;
    return true;
}

/* --- recording -------------------------------------------------------------------------------- */

/* The step's graph, which becomes the first of the list. */
static kn_cuda_graph *find_graph(kn_cuda *c)
{
    for (kn_cuda_graph **at = &c->graphs; *at; at = &(*at)->next) {
        kn_cuda_graph *g = *at;
        if (g->owner != c->step.owner || g->n != c->sets[0].n || g->split_class != c->split_class)
            continue;
        *at = g->next;
        g->next = c->graphs;
        return c->graphs = g;
    }
    return NULL;
}

/* Frees *at and what follows it. */
static void free_graphs(kn_cuda *c, kn_cuda_graph **at)
{
    while (*at) {
        kn_cuda_graph *g = *at;
        *at = g->next;
        if (g->exec) kn_cuda_check(c, cudaGraphExecDestroy(g->exec), "forgetting a recorded step");
        free(g);
    }
}

void kn_cuda_forget_graphs(kn_cuda *c)
{
    free_graphs(c, &c->graphs);
}

/* A place for the step's graph; the one that was of no use for longest gives way. */
static void add_graph(kn_cuda *c)
{
    kn_cuda_graph **last = &c->graphs;
    for (int i = 1; *last && i < MOST_GRAPHS; i++)
        last = &(*last)->next;
    free_graphs(c, last);
    kn_cuda_graph *g = (kn_cuda_graph *)calloc(1, sizeof *g);
    if (!g) return; /* it runs plainly again */
    g->owner = c->step.owner;
    g->n = c->sets[0].n;
    g->split_class = c->split_class;
    g->next = c->graphs;
    c->graphs = g;
}

static bool replay(kn_cuda *c, const kn_cuda_graph *g)
{
    if (!kn_cuda_check(c, cudaGraphLaunch(g->exec, c->stream), "starting a recorded step"))
        return true; /* failed: nothing else can be done for this step */
    c->counters.weight_bytes += g->work.weight_bytes;
    c->counters.mac += g->work.mac;
    c->counters.launches += g->work.launches;
    c->counters.kv_bytes += g->kv_token_bytes * c->set_rows[0].context_tokens;
    c->counters.replays++;
    return true;
}

bool kn_cuda_step_begin(kn_backend *be, const kn_step *step)
{
    kn_cuda *c = kn_cuda_of(be);
    if (!kn_cuda_recover(be) || !kn_cuda_check(c, cudaSetDevice(c->device), "choosing the device"))
        return false;
    c->step = *step;
    c->step.sets = c->sets;
    c->table_positions = NULL;
    c->kv_token_bytes = 0;
    c->in_step = send_step(c, step);
    c->at_begin = c->counters;
    if (!c->in_step || !step->repeatable) return false;
    kn_cuda_graph *g = find_graph(c);
    if (!g) {
        add_graph(c);
        return false;
    }
    if (g->exec) {
        c->in_step = false;
        return replay(c, g);
    }
    if (g->unfit) return false;
    c->recording = kn_cuda_check(
        c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "recording a step");
    return false;
}

/* Ends the recording and runs it. False: there is nothing to run, and nothing has been computed:
 * the calls must be made again. */
static bool run_recorded(kn_cuda *c, kn_cuda_graph *g)
{
    cudaGraph_t graph = NULL;
    c->recording = false;
    bool ready = cudaStreamEndCapture(c->stream, &graph) == cudaSuccess && graph && g &&
                 !c->failed && cudaGraphInstantiate(&g->exec, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    if (ready) {
        kn_cuda_check(c, cudaGraphLaunch(g->exec, c->stream), "starting a recorded step");
        return true;
    }
    cudaGetLastError();
    c->failed = false; /* that was the recording; a device that is lost fails again */
    if (!g) return false;
    g->unfit = true;
    g->exec = NULL;
    return false;
}

bool kn_cuda_step_end(kn_backend *be)
{
    kn_cuda *c = kn_cuda_of(be);
    if (c->recording) {
        kn_cuda_graph *g = find_graph(c);
        if (!run_recorded(c, g)) {
            c->counters = c->at_begin;
            c->table_positions = NULL;
            return false;
        }
        g->kv_token_bytes = c->kv_token_bytes;
        g->work.weight_bytes = c->counters.weight_bytes - c->at_begin.weight_bytes;
        g->work.mac = c->counters.mac - c->at_begin.mac;
        g->work.launches = c->counters.launches - c->at_begin.launches;
    }
    c->in_step = false;
    return true;
}
