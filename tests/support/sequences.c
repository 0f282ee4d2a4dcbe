#include "support/sequences.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void alloc_arrays(test_sequence *s)
{
    s->ids = xcalloc((size_t)s->n, sizeof *s->ids);
    s->adapted = xcalloc((size_t)s->n, sizeof *s->adapted);
    s->wanted = xcalloc((size_t)s->n, sizeof *s->wanted);
    s->logits = xcalloc((size_t)s->n * s->vocab, sizeof *s->logits);
}

void test_sequence_init(test_sequence *s, int n, int vocab, uint32_t seed)
{
    *s = (test_sequence){.n = n, .vocab = vocab};
    alloc_arrays(s);
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        s->ids[i] = (int32_t)((seed >> 8) % (uint32_t)vocab);
        s->wanted[i] = true;
    }
}

void test_sequence_free(test_sequence *s)
{
    free(s->ids);
    free(s->adapted);
    free(s->wanted);
    free(s->logits);
    *s = (test_sequence){0};
}

void test_sequence_copy(const test_sequence *from, test_sequence *to)
{
    *to = *from;
    alloc_arrays(to);
    memcpy(to->ids, from->ids, (size_t)from->n * sizeof *to->ids);
    memcpy(to->adapted, from->adapted, (size_t)from->n * sizeof *to->adapted);
    memcpy(to->wanted, from->wanted, (size_t)from->n * sizeof *to->wanted);
}

void test_sequence_adapt(test_sequence *s, const packed_adapter *adapter, int first, int end)
{
    s->adapter = adapter;
    for (int i = first; i < end; i++)
        s->adapted[i] = true;
}

static void keep_logits(void *ctx, int position, const float *logits, int vocab)
{
    test_sequence *s = ctx;

    PF_ASSERT(vocab == s->vocab);
    memcpy(s->logits + (size_t)position * vocab, logits, (size_t)vocab * sizeof *logits);
}

void test_sequences_run(runner *r, test_sequence *list, int n)
{
    runner_sequence *seqs = xcalloc((size_t)n, sizeof *seqs);
    pf_err err;

    for (int i = 0; i < n; i++) {
        memset(list[i].logits, 0, (size_t)list[i].n * list[i].vocab * sizeof(float));
        seqs[i] = (runner_sequence){.ids = list[i].ids,
                                    .n = list[i].n,
                                    .adapter = list[i].adapter,
                                    .adapted = list[i].adapted,
                                    .wanted = list[i].wanted,
                                    .logits = keep_logits,
                                    .ctx = &list[i]};
    }
    if (runner_run(r, seqs, n, &err) != PF_OK) die("%s", err.text);
    free(seqs);
}

void test_sequences_run_alone(runner *r, test_sequence *list, int n)
{
    for (int i = 0; i < n; i++)
        test_sequences_run(r, &list[i], 1);
}

int test_sequence_difference(const test_sequence *a, const test_sequence *b)
{
    PF_ASSERT(a->vocab == b->vocab);
    for (int i = 0; i < a->n && i < b->n; i++) {
        const size_t at = (size_t)i * a->vocab;
        if (!a->wanted[i] || !b->wanted[i]) continue;
        if (memcmp(a->logits + at, b->logits + at, (size_t)a->vocab * sizeof(float)) != 0) return i;
    }
    return -1;
}
