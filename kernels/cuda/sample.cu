/* Choosing tokens on the device, by the rules of src/engine/sample.h: one block per row of logits.
 *
 * Tokens are ordered by (logit descending, id ascending). That order is one 64-bit number per
 * token, its rank; sets such as the k first or the nucleus are all tokens whose rank is at least a
 * threshold, and thresholds are found digit by digit with histograms of counts or of weights.
 * Weights are integers (exp in double times 2^44), so that their sums don't depend on the order in
 * which threads add. */
#include "kernels/cuda/device.h"

#include <cmath>
#include <cstring>

#define THREADS 512
#define DIGITS  256
#define ONE     17592186044416.0 /* 2^44: the weight of the largest logit */
/* Tokens of the windows that are sent at once: half of the ring. */
#define MOST_WINDOW ((size_t)1 << 20)

typedef unsigned long long u64;

typedef struct {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k, n_top, first_window, n_window;
    double draw;
} sample_row;

typedef struct {
    int32_t token;
    float logprob;
} sample_result;

typedef struct {
    float *logits;
    int vocab;
    const sample_row *rows;
    const int32_t *window;
    float *saved; /* as long as window */
    sample_result *results;
    int32_t *top_id; /* [n, KN_MAX_TOP] */
    float *top_logprob;
} sample_job;

/* What the threads of a block share. */
typedef struct {
    u64 best, total, target, passed, sums[DIGITS];
    u64 list[KN_MAX_TOP];
    double partial[THREADS];
    uint32_t counts[DIGITS];
    int bad, digit, n_list;
} shared_state;

static __device__ __forceinline__ u64 rank_of(float logit, int id)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit); /* one zero */
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | (0xffffffffu - (uint32_t)id);
}

static __device__ __forceinline__ int id_of(u64 rank)
{
    return (int)(0xffffffffu - (uint32_t)rank);
}

/* Most tokens are so far below the best one that nothing is left of them: e^-31 2^44 < 1. */
static __device__ __forceinline__ u64 weight_of(float logit, float best, float temperature)
{
    const double below = ((double)logit - (double)best) / (double)temperature;
    return below < -31 ? 0 : (u64)(exp(below) * ONE);
}

/* A search among the candidates: tokens of at least this rank and weight. */
typedef struct {
    const float *logits;
    int vocab;
    float best, temperature;
    u64 least_rank, least_weight;
    bool by_id;  /* the order is that of ids alone */
    bool counts; /* each token weighs 1 */
} search;

static __device__ __forceinline__ u64 search_rank(const search &s, int id)
{
    return s.by_id ? 0xffffffffu - (uint32_t)id : rank_of(s.logits[id], id);
}

/* The weight of a candidate, 0 for other tokens. */
static __device__ __forceinline__ u64 search_weight(const search &s, int id)
{
    if (!s.by_id && rank_of(s.logits[id], id) < s.least_rank) return 0;
    if (s.counts) return 1;
    const u64 weight = weight_of(s.logits[id], s.best, s.temperature);
    return weight < s.least_weight ? 0 : weight;
}

/* The sum of the candidates' weights. */
static __device__ u64 total_weight(const search &s, shared_state *sh)
{
    u64 sum = 0;
    for (int i = (int)threadIdx.x; i < s.vocab; i += THREADS)
        sum += search_weight(s, i);
    __syncthreads();
    if (threadIdx.x == 0) sh->total = 0;
    __syncthreads();
    atomicAdd(&sh->total, sum);
    __syncthreads();
    return sh->total;
}

/* The histogram of the digit at shift over candidates whose rank begins with prefix. */
static __device__ void fill_histogram(const search &s, u64 prefix, int shift, shared_state *sh)
{
    for (int i = (int)threadIdx.x; i < DIGITS; i += THREADS) {
        sh->sums[i] = 0;
        sh->counts[i] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < s.vocab; i += THREADS) {
        const u64 rank = search_rank(s, i);
        if (shift < 56 && rank >> (shift + 8) != prefix) continue;
        const u64 weight = search_weight(s, i);
        if (weight == 0) continue;
        const int digit = (int)(rank >> shift & 255u);
        atomicAdd(&sh->sums[digit], weight);
        atomicAdd(&sh->counts[digit], 1u);
    }
    __syncthreads();
}

/* The least rank such that the candidates from the top down to it weigh at least target (1 ..
 * total): the threshold of that set. *last is the token at the threshold when exact is asked
 * for. */
static __device__ u64 find_threshold(const search &s, u64 target, bool exact, shared_state *sh,
                                     int *last)
{
    u64 prefix = 0;
    int shift = s.by_id ? 24 : 56;
    if (threadIdx.x == 0) sh->target = target;
    for (;; shift -= 8) {
        fill_histogram(s, prefix, shift, sh);
        if (threadIdx.x == 0) {
            int digit = DIGITS - 1;
            while (digit > 0 && sh->sums[digit] < sh->target)
                sh->target -= sh->sums[digit--];
            sh->digit = digit;
        }
        __syncthreads();
        prefix = prefix << 8 | (u64)sh->digit;
        /* One token left, or a bucket that is taken as a whole. */
        const bool single = sh->counts[sh->digit] == 1;
        const bool whole = sh->sums[sh->digit] == sh->target;
        __syncthreads();
        if (shift == 0 || single || (whole && !exact)) break;
    }
    if (exact) { /* ranks are unique: one token has this prefix */
        for (int i = (int)threadIdx.x; i < s.vocab; i += THREADS)
            if (search_rank(s, i) >> shift == prefix && search_weight(s, i) > 0) sh->digit = i;
        __syncthreads();
        *last = sh->digit;
    }
    return prefix << shift;
}

/* --- a row ------------------------------------------------------------------------------------ */

/* Saves the window's logits and applies the penalty: a token that is there twice gets the same
 * value twice. */
static __device__ void penalize(const sample_job &job, const sample_row &row, float *logits)
{
    for (int i = (int)threadIdx.x; i < row.n_window; i += THREADS) {
        const int id = job.window[row.first_window + i];
        job.saved[row.first_window + i] = id >= 0 && id < job.vocab ? logits[id] : 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < row.n_window; i += THREADS) {
        const int id = job.window[row.first_window + i];
        const float x = job.saved[row.first_window + i];
        if (id >= 0 && id < job.vocab)
            logits[id] = x > 0 ? x / row.repeat_penalty : x * row.repeat_penalty;
    }
    __syncthreads();
}

static __device__ void restore(const sample_job &job, const sample_row &row, float *logits)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < row.n_window; i += THREADS) {
        const int id = job.window[row.first_window + i];
        if (id >= 0 && id < job.vocab) logits[id] = job.saved[row.first_window + i];
    }
    __syncthreads();
}

/* The first token of the order; -1 with a NaN or without a finite value. */
static __device__ int find_best(const float *logits, int vocab, shared_state *sh)
{
    u64 best = 0;
    bool bad = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        sh->best = 0;
        sh->bad = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < vocab; i += THREADS) {
        const float x = logits[i];
        bad = bad || x != x;
        const u64 rank = rank_of(x, i);
        best = rank > best ? rank : best;
    }
    if (bad) atomicExch(&sh->bad, 1);
    atomicMax(&sh->best, best);
    __syncthreads();
    const int id = id_of(sh->best);
    return sh->bad || !(fabsf(logits[id]) < INFINITY) ? -1 : id;
}

/* Temperature, top-k, top-p, min-p, and the choice by the drawn number. */
static __device__ int draw_token(const float *logits, int vocab, const sample_row &row, int best,
                                 shared_state *sh)
{
    search s = {logits, vocab, logits[best], row.temperature, 0, 0, false, false};
    const bool ranked = row.top_k > 0 && row.top_k < vocab;
    const bool nucleus = row.top_p > 0 && row.top_p < 1;
    int token = best;
    if (ranked) {
        search k = s;
        k.counts = true;
        s.least_rank = find_threshold(k, (u64)row.top_k, false, sh, NULL);
    }
    if (nucleus) {
        const u64 total = total_weight(s, sh);
        u64 target = (u64)ceil((double)row.top_p * (double)total);
        target = target < 1 ? 1 : target > total ? total : target;
        const u64 least = find_threshold(s, target, false, sh, NULL);
        s.least_rank = least > s.least_rank ? least : s.least_rank;
    }
    if (row.min_p > 0) s.least_weight = (u64)ceil((double)row.min_p * ONE);
    s.by_id = !ranked && !nucleus && row.min_p <= 0;
    const u64 total = total_weight(s, sh);
    u64 target = (u64)(row.draw * (double)total) + 1;
    target = target > total ? total : target;
    find_threshold(s, target, true, sh, &token);
    return token;
}

/* log sum exp of a row, in double and in a fixed order. */
static __device__ double log_sum(const float *logits, int vocab, float most, shared_state *sh)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < vocab; i += THREADS)
        sum += exp((double)logits[i] - (double)most);
    __syncthreads();
    sh->partial[threadIdx.x] = sum;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step) sh->partial[threadIdx.x] += sh->partial[threadIdx.x + step];
    }
    __syncthreads();
    return (double)most + log(sh->partial[0]);
}

/* The n_top first tokens in order. */
static __device__ void list_top(const sample_job &job, const float *logits, int row, int n_top,
                                double sum, shared_state *sh)
{
    search s = {logits, job.vocab, 0, 1, 0, 0, false, true};
    const u64 least = find_threshold(s, (u64)n_top, false, sh, NULL);
    if (threadIdx.x == 0) sh->n_list = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < job.vocab; i += THREADS) {
        const u64 rank = rank_of(logits[i], i);
        if (rank >= least) sh->list[atomicAdd(&sh->n_list, 1)] = rank;
    }
    __syncthreads();
    if ((int)threadIdx.x >= n_top) return;
    const u64 own = sh->list[threadIdx.x];
    int place = 0;
    for (int i = 0; i < n_top; i++)
        place += sh->list[i] > own;
    job.top_id[(int64_t)row * KN_MAX_TOP + place] = id_of(own);
    job.top_logprob[(int64_t)row * KN_MAX_TOP + place] = (float)((double)logits[id_of(own)] - sum);
}

static __global__ void __launch_bounds__(THREADS) choose_tokens(sample_job job)
{
    __shared__ shared_state sh;
    const int row_index = (int)blockIdx.x;
    const sample_row row = job.rows[row_index];
    float *logits = job.logits + (int64_t)row_index * job.vocab;
    if (row.n_window > 0) penalize(job, row, logits);
    const int best = find_best(logits, job.vocab, &sh);
    int token = best;
    if (best >= 0 && row.temperature > 0) token = draw_token(logits, job.vocab, row, best, &sh);
    if (row.n_window > 0) restore(job, row, logits);
    float logprob = 0;
    if (token >= 0 && row.n_top >= 0) {
        const int most = row.n_window > 0 ? find_best(logits, job.vocab, &sh) : best;
        const double sum = log_sum(logits, job.vocab, logits[most < 0 ? token : most], &sh);
        logprob = (float)((double)logits[token] - sum);
        if (row.n_top > 0) list_top(job, logits, row_index, row.n_top, sum, &sh);
    }
    if (threadIdx.x == 0) {
        sample_result result = {token, logprob};
        job.results[row_index] = result;
    }
}

/* --- starting --------------------------------------------------------------------------------- */

/* Sends the rows' settings and windows. False: failed. */
static bool send_rows(kn_cuda *c, const kn_sample *rows, int n, sample_job *job, size_t *n_window)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (rows[i].repeat_penalty > 0 && rows[i].repeat_penalty != 1)
            total += (size_t)rows[i].n_window;
    const size_t head = ((size_t)n * sizeof(sample_row) + 255) / 256 * 256;
    const size_t bytes = head + total * sizeof(int32_t);
    uint8_t *p = (uint8_t *)kn_cuda_ring(c, bytes);
    if (!p) return false;
    sample_row *to = (sample_row *)p;
    int32_t *window = (int32_t *)(p + head);
    for (int i = 0; i < n; i++) {
        const kn_sample *s = &rows[i];
        const bool penalized = s->repeat_penalty > 0 && s->repeat_penalty != 1;
        const int32_t n_top = s->n_top > KN_MAX_TOP   ? KN_MAX_TOP
                              : s->n_top > job->vocab ? job->vocab
                                                      : s->n_top;
        to[i] = {s->temperature, s->top_p, s->min_p,    s->repeat_penalty,
                 s->top_k,       n_top,    (int32_t)at, penalized ? s->n_window : 0,
                 s->draw};
        if (!penalized || s->n_window == 0) continue;
        memcpy(window + at, s->window, (size_t)s->n_window * sizeof *window);
        at += (size_t)s->n_window;
    }
    const uint8_t *sent = (const uint8_t *)kn_cuda_send(c, p, bytes);
    job->rows = (const sample_row *)sent;
    job->window = (const int32_t *)(sent + head);
    *n_window = total;
    return !c->failed;
}

/* Results: [n] tokens, [n, KN_MAX_TOP] ids and log-probabilities, the saved logits. */
static bool place_results(kn_cuda *c, int n, size_t n_window, sample_job *job)
{
    const size_t head = ((size_t)n * sizeof(sample_result) + 255) / 256 * 256;
    const size_t top = (size_t)n * KN_MAX_TOP * sizeof(int32_t);
    uint8_t *p = (uint8_t *)kn_cuda_scratch_get(
        c, &c->sampling, head + 2 * top + n_window * sizeof(float), "sampling");
    if (!p) return false;
    job->results = (sample_result *)p;
    job->top_id = (int32_t *)(p + head);
    job->top_logprob = (float *)(p + head + top);
    job->saved = (float *)(p + head + 2 * top);
    return true;
}

/* The listed tokens of a row. */
static void fetch_top(kn_backend *be, const sample_job *job, int row, int n_top, kn_choice *out)
{
    n_top = n_top < KN_MAX_TOP ? n_top : KN_MAX_TOP;
    n_top = n_top < job->vocab ? n_top : job->vocab;
    if (n_top <= 0) return;
    const size_t bytes = (size_t)n_top * sizeof(int32_t), at = (size_t)row * KN_MAX_TOP;
    kn_cuda_download(be, out->top_id, job->top_id + at, bytes);
    kn_cuda_download(be, out->top_logprob, job->top_logprob + at, bytes);
}

/* Only what was asked for comes back. */
static void fetch(kn_backend *be, const sample_job *job, const kn_sample *rows, int n,
                  kn_choice *out)
{
    enum { PART = 128 };
    sample_result results[PART];
    for (int first = 0; first < n; first += PART) {
        const int count = n - first < PART ? n - first : PART;
        kn_cuda_download(be, results, job->results + first, (size_t)count * sizeof *results);
        for (int i = 0; i < count; i++) {
            out[first + i].token = results[i].token;
            out[first + i].logprob = results[i].logprob;
            fetch_top(be, job, first + i, rows[first + i].n_top, &out[first + i]);
        }
    }
}

/* Rows whose windows travel together. */
static int count_rows(const kn_sample *rows, int n)
{
    size_t window = 0;
    int count = 0;
    while (count < n && (count == 0 || window + (size_t)rows[count].n_window <= MOST_WINDOW))
        window += (size_t)rows[count++].n_window;
    return count;
}

void kn_cuda_sample(kn_backend *be, float *logits, int64_t vocab, const kn_sample *rows, int n,
                    kn_choice *out)
{
    kn_cuda *c = kn_cuda_of(be);
    for (int i = 0; i < n; i++)
        out[i].token = -1;
    for (int first = 0, count; first < n; first += count) {
        count = count_rows(rows + first, n - first);
        sample_job job = {};
        size_t n_window = 0;
        job.logits = logits + first * vocab;
        job.vocab = (int)vocab;
        if (!send_rows(c, rows + first, count, &job, &n_window) ||
            !place_results(c, count, n_window, &job))
            break;
        launch(c, choose_tokens, (unsigned)count, THREADS, job);
        fetch(be, &job, rows + first, count, out + first);
    }
    if (c->failed)
        for (int i = 0; i < n; i++)
            out[i].token = -1;
}
