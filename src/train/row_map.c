#include "train/row_map.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of a batch for each of its rows, at most: bounds the copies that attention needs. */
#define TOKENS_PER_ROW 4

/* Nobody reads the rows behind the one that predicts the last target. */
static int32_t rows_needed(const train_sequence *s)
{
    int32_t last = s->length - 1;
    while (last > 0 && !s->target[last])
        last--;
    return last;
}

static int32_t same_beginning(const train_sequence *a, const train_sequence *b, int32_t most)
{
    int32_t n = 0;
    while (n < most && a->ids[n] == b->ids[n] && a->adapted[n] == b->adapted[n])
        n++;
    return n;
}

int32_t row_map_shared(const train_sequence *s, size_t n, size_t *which)
{
    const train_sequence *own = &s[n];
    const int32_t needed = rows_needed(own);
    int32_t most = 0, longest = 0;
    while (most < needed && !own->target[most + 1])
        most++;
    *which = 0;
    for (size_t i = 0; i < n && longest < most; i++) {
        int32_t there = rows_needed(&s[i]);
        int32_t same = same_beginning(&s[i], own, most < there ? most : there);
        if (same <= longest) continue;
        longest = same;
        *which = i;
    }
    return longest;
}

bool row_count_add(row_count *count, const train_sequence *s, size_t n, size_t max_rows)
{
    size_t which;
    size_t rows = count->rows + (size_t)(rows_needed(&s[n]) - row_map_shared(s, n, &which));
    size_t tokens = count->tokens + (size_t)s[n].length;
    if (n > 0 && (rows > max_rows || tokens > max_rows * TOKENS_PER_ROW)) return false;
    count->rows = rows;
    count->tokens = tokens;
    return true;
}

void row_map_open(row_map *m, kn_backend *be, const kn_heads *heads, size_t max_rows)
{
    *m = (row_map){.be = be, .heads = *heads, .max_rows = max_rows};
    m->max_tokens = max_rows * TOKENS_PER_ROW;
    m->row = xcalloc(m->max_tokens, sizeof *m->row);
    m->token = xcalloc(max_rows, sizeof *m->token);
    m->spans = xcalloc(m->max_tokens, sizeof *m->spans);
}

void row_map_close(row_map *m)
{
    for (size_t i = 0; i < sizeof m->wide / sizeof m->wide[0]; i++)
        if (m->wide[i]) m->be->ops->buffer_free(m->be, m->wide[i]);
    free(m->row);
    free(m->token);
    free(m->spans);
    *m = (row_map){0};
}

void row_map_clear(row_map *m)
{
    m->n_rows = m->n_tokens = m->n_spans = 0;
}

int32_t row_map_add(row_map *m, const train_sequence *s, size_t n)
{
    size_t which;
    int32_t shared = row_map_shared(s, n, &which), needed = rows_needed(&s[n]);
    int32_t *row = m->row + m->n_tokens;
    if (shared) memcpy(row, m->row + m->spans[which].first, (size_t)shared * sizeof *row);
    for (int32_t i = shared; i < needed; i++) {
        m->token[m->n_rows] = m->n_tokens + i;
        row[i] = m->n_rows++;
    }
    m->spans[m->n_spans++] = (kn_span){.first = m->n_tokens, .length = needed};
    m->n_tokens += needed;
    return shared;
}

/* --- attention ------------------------------------------------------------------------------ */

enum { Q, K, V, Y };

static int64_t width_of(const row_map *m, int what)
{
    return (int64_t)(what == Q || what == Y ? m->heads.n_heads : m->heads.n_kv_heads) *
           m->heads.head_dim;
}

pf_status row_map_reserve(row_map *m, pf_err *err)
{
    if (m->n_tokens == m->n_rows) return PF_OK;
    for (int i = 0; i < 8; i++) {
        const size_t bytes = m->max_tokens * (size_t)width_of(m, i % 4) * sizeof(float);
        if (!m->wide[i]) m->wide[i] = m->be->ops->buffer_alloc(m->be, bytes);
        if (!m->wide[i])
            return err_set(err, PF_NO_MEMORY, "no room for %zu bytes of training memory: %s", bytes,
                           kn_backend_error(m->be));
    }
    return PF_OK;
}

/* Every token's copy of its row of x. */
static const float *spread(const row_map *m, int what, const float *x)
{
    m->be->ops->gather(m->be, x, m->row, m->n_tokens, (int)width_of(m, what), m->wide[what]);
    return m->wide[what];
}

void row_map_attention(const row_map *m, const float *q, const float *k, const float *v, float *y)
{
    const kn_train_ops *train = kn_train_ops_of(m->be);
    if (m->n_tokens == m->n_rows) {
        train->attention(m->be, m->spans, m->n_spans, &m->heads, q, k, v, y);
        return;
    }
    train->attention(m->be, m->spans, m->n_spans, &m->heads, spread(m, Q, q), spread(m, K, k),
                     spread(m, V, v), m->wide[Y]);
    m->be->ops->gather(m->be, m->wide[Y], m->token, m->n_rows, (int)width_of(m, Y), y);
}

/* Adds up the gradients of each row's tokens, sequence by sequence. */
static void collect(const row_map *m, int what, float *d_x)
{
    const kn_train_ops *train = kn_train_ops_of(m->be);
    const int64_t width = width_of(m, what);
    train->clear(m->be, d_x, (size_t)(m->n_rows * width));
    for (int i = 0; i < m->n_spans; i++) {
        const kn_span *s = &m->spans[i];
        train->scatter_add(m->be, m->wide[4 + what] + s->first * width, m->row + s->first,
                           s->length, (int)width, d_x);
    }
}

void row_map_attention_backward(const row_map *m, const float *q, const float *k, const float *v,
                                const float *y, const float *d_y, float *d_q, float *d_k,
                                float *d_v)
{
    const kn_train_ops *train = kn_train_ops_of(m->be);
    if (m->n_tokens == m->n_rows) {
        train->attention_backward(m->be, m->spans, m->n_spans, &m->heads, q, k, v, y, d_y, d_q, d_k,
                                  d_v);
        return;
    }
    const int64_t width = width_of(m, Y);
    float *wide_d_y = m->wide[4 + Y]; /* a row's gradient comes in once: at its first token */
    train->clear(m->be, wide_d_y, (size_t)(m->n_tokens * width));
    train->scatter_add(m->be, d_y, m->token, m->n_rows, (int)width, wide_d_y);
    train->attention_backward(m->be, m->spans, m->n_spans, &m->heads, spread(m, Q, q),
                              spread(m, K, k), spread(m, V, v), spread(m, Y, y), wide_d_y,
                              m->wide[4 + Q], m->wide[4 + K], m->wide[4 + V]);
    collect(m, Q, d_q);
    collect(m, K, d_k);
    collect(m, V, d_v);
}
