#include "engine/sample.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(KN_MAX_TOP == ENGINE_MAX_TOP, "a device lists as many tokens as the engine gives");

/* --- settings --------------------------------------------------------------------------------- */

static pf_status check_range(const char *field, double value, double low, double high, pf_err *err)
{
    if (isfinite(value) && value >= low && value <= high) return PF_OK;
    return err_set(err, PF_USAGE, "%s is %g: it must be between %g and %g", field, value, low,
                   high);
}

pf_status sampling_check(const sampling_options *o, pf_err *err)
{
    const struct {
        const char *field;
        double value, low, high;
    } rules[] = {
        {"temperature", (double)o->temperature, 0, 100},
        {"top_k", o->top_k, 0, 1 << 30},
        {"top_p", (double)o->top_p, 0, 1},
        {"min_p", (double)o->min_p, 0, 1},
        {"repeat_penalty", (double)o->repeat_penalty, 0, 100},
        {"repeat_last", o->repeat_last, 0, 1 << 30},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        pf_status status =
            check_range(rules[i].field, rules[i].value, rules[i].low, rules[i].high, err);
        if (status != PF_OK) return status;
    }
    return PF_OK;
}

/* --- random numbers --------------------------------------------------------------------------- */

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double sample_draw(uint64_t seed, uint64_t index)
{
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
    uint64_t bits = mix(key + (index + 1) * 0x9e3779b97f4a7c15u);
    return (double)(bits >> 11) * 0x1p-53;
}

/* --- choosing --------------------------------------------------------------------------------- */

void sample_scratch_free(sample_scratch *s)
{
    const size_t n = (size_t)s->cap;
    if (s->logits) explicit_bzero(s->logits, n * sizeof *s->logits);
    if (s->weight) explicit_bzero(s->weight, n * sizeof *s->weight);
    if (s->order) explicit_bzero(s->order, n * sizeof *s->order);
    free(s->logits);
    free(s->weight);
    free(s->order);
    memset(s, 0, sizeof *s);
}

static void reserve(sample_scratch *s, int vocab)
{
    if (s->cap >= vocab) return;
    s->logits = xrealloc_array(s->logits, (size_t)vocab, sizeof *s->logits);
    s->weight = xrealloc_array(s->weight, (size_t)vocab, sizeof *s->weight);
    s->order = xrealloc_array(s->order, (size_t)vocab, sizeof *s->order);
    s->cap = vocab;
}

/* Where the window of the repetition penalty begins. */
static int window_start(const sampling_options *o, int n)
{
    int last = o->repeat_last > 0 ? o->repeat_last : 64;
    return n > last ? n - last : 0;
}

/* Each distinct token of the window once. */
static void penalize(float *dst, const float *src, int vocab, const sampling_options *o,
                     const int32_t *tokens, int n)
{
    int first = window_start(o, n);
    for (int i = first; i < n; i++) {
        int32_t id = tokens[i];
        if (id < 0 || id >= vocab) continue;
        float x = src[id]; /* from the source: a token seen twice is not penalized twice */
        dst[id] = x > 0 ? x / o->repeat_penalty : x * o->repeat_penalty;
    }
}

/* The id of the largest logit; -1 with a NaN or without a finite value. */
static int32_t largest(const float *logits, int vocab)
{
    int32_t best = -1;
    for (int32_t i = 0; i < vocab; i++) {
        if (isnan(logits[i])) return -1;
        if (best < 0 || logits[i] > logits[best]) best = i;
    }
    return best >= 0 && isfinite(logits[best]) ? best : -1;
}

/* a comes before b: larger logit, lower id among equals. */
static bool before(const float *logits, int32_t a, int32_t b)
{
    if (logits[a] != logits[b]) return logits[a] > logits[b];
    return a < b;
}

static int compare_candidates(const void *a, const void *b, void *logits)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (x == y) return 0;
    return before(logits, x, y) ? -1 : 1;
}

static void sift_down(int32_t *heap, int n, int i, const float *logits)
{
    for (;;) {
        int last = i, l = 2 * i + 1, r = l + 1;
        if (l < n && before(logits, heap[last], heap[l])) last = l;
        if (r < n && before(logits, heap[last], heap[r])) last = r;
        if (last == i) return;
        int32_t tmp = heap[i];
        heap[i] = heap[last];
        heap[last] = tmp;
        i = last;
    }
}

/* order[0..k) = the k first candidates of the vocabulary, sorted. */
static void select_top(int32_t *order, int k, const float *logits, int vocab)
{
    for (int i = 0; i < k; i++)
        order[i] = i;
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down(order, k, i, logits); /* the root is the last of the k */
    for (int32_t i = k; i < vocab; i++) {
        if (!before(logits, i, order[0])) continue;
        order[0] = i;
        sift_down(order, k, 0, logits);
    }
    qsort_r(order, (size_t)k, sizeof *order, compare_candidates, (void *)logits);
}

/* The candidates of at least this weight, sorted. */
static int select_heavy(sample_scratch *s, const float *logits, int vocab, double least)
{
    int n = 0;
    for (int32_t i = 0; i < vocab; i++)
        if (s->weight[i] >= least) s->order[n++] = i;
    qsort_r(s->order, (size_t)n, sizeof *s->order, compare_candidates, (void *)logits);
    return n;
}

/* Chooses among order[0..n) by their weights; u in [0, 1). */
static int32_t choose(const sample_scratch *s, const int32_t *order, int n, double u)
{
    double total = 0, sum = 0;
    for (int i = 0; i < n; i++)
        total += s->weight[order ? order[i] : i];
    for (int i = 0; i < n; i++) {
        int32_t id = order ? order[i] : i;
        sum += s->weight[id];
        if (u * total < sum) return id;
    }
    for (int i = n - 1; i > 0; i--) /* rounding left nothing over: the last that weighs */
        if (s->weight[order ? order[i] : i] > 0) return order ? order[i] : i;
    return order ? order[0] : 0;
}

/* How many of order[0..n) (sorted) top-p and min-p keep; at least one. total: the weight of all
 * candidates, also of those that order leaves out. */
static int cut(const sample_scratch *s, const sampling_options *o, int n, double total)
{
    if (o->top_p > 0 && o->top_p < 1) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += s->weight[s->order[i]];
            if (sum < (double)o->top_p * total) continue;
            n = i + 1;
            break;
        }
    }
    if (o->min_p > 0) {
        double least = (double)o->min_p * s->weight[s->order[0]];
        while (n > 1 && s->weight[s->order[n - 1]] < least)
            n--;
    }
    return n;
}

int32_t sample_token(sample_scratch *s, const sampling_options *o, const float *logits, int vocab,
                     const int32_t *tokens, int n_tokens, uint64_t seed, uint64_t index)
{
    reserve(s, vocab);
    if (o->repeat_penalty > 0 && o->repeat_penalty != 1) {
        memcpy(s->logits, logits, (size_t)vocab * sizeof *logits);
        penalize(s->logits, logits, vocab, o, tokens, n_tokens);
        logits = s->logits;
    }
    int32_t best = largest(logits, vocab);
    if (best < 0 || o->temperature <= 0) return best;

    double u = sample_draw(seed, index), top = (double)logits[best];
    double total = 0;
    bool ranked = o->top_k > 0 && o->top_k < vocab;
    int n = ranked ? o->top_k : vocab;
    if (ranked) select_top(s->order, n, logits, vocab);
    for (int i = 0; i < n; i++) {
        int32_t id = ranked ? s->order[i] : i;
        s->weight[id] = exp(((double)logits[id] - top) / (double)o->temperature);
        total += s->weight[id];
    }
    bool nucleus = o->top_p > 0 && o->top_p < 1;
    if (!ranked && !nucleus && o->min_p <= 0) return choose(s, NULL, vocab, u);
    if (!ranked) {
        /* Only a shortcut for the sort. Tokens each lighter than (1 - p) / vocab of the whole weigh
         * less than 1 - p together and are the lightest: none of them is in the nucleus. The
         * heaviest token's weight is 1, so min-p is a bound itself. */
        double least = nucleus ? total * (1 - (double)o->top_p) / vocab : (double)o->min_p;
        n = select_heavy(s, logits, vocab, least);
    }
    return choose(s, s->order, cut(s, o, n, total), u);
}

void sample_describe(const sampling_options *o, const int32_t *tokens, int n, uint64_t seed,
                     uint64_t index, int n_top, kn_sample *out)
{
    int first = window_start(o, n);
    *out = (kn_sample){.temperature = o->temperature,
                       .top_p = o->top_p,
                       .min_p = o->min_p,
                       .repeat_penalty = o->repeat_penalty,
                       .top_k = o->top_k,
                       .window = tokens + first,
                       .n_window = n - first,
                       .draw = sample_draw(seed, index),
                       .n_top = n_top};
}

/* --- log-probabilities ------------------------------------------------------------------------ */

void sample_logprobs(const float *logits, int vocab, int32_t id, int n_top, float *logprob,
                     token_logprob *top)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < vocab; i++)
        if ((double)logits[i] > most) most = (double)logits[i];
    for (int i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    double log_sum = most + log(sum);
    *logprob = (float)((double)logits[id] - log_sum);
    if (n_top <= 0) return;
    int32_t order[ENGINE_MAX_TOP];
    select_top(order, n_top, logits, vocab);
    for (int i = 0; i < n_top; i++) {
        top[i].id = order[i];
        top[i].logprob = (float)((double)logits[order[i]] - log_sum);
    }
}
