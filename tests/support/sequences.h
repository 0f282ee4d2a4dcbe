/* Mixed sequences for tests of the forward pass and their logits, kept for comparing bit by bit. */
#ifndef TEST_SEQUENCES_H
#define TEST_SEQUENCES_H

#include "support/runner.h"

/* A sequence with all logits that a run produced. */
typedef struct {
    int n, vocab;
    int32_t *ids;
    bool *adapted, *wanted; /* all wanted by default */
    const packed_adapter *adapter;
    float *logits; /* [n, vocab], rows of unwanted positions are zero */
} test_sequence;

/* n pseudo-random ids below vocab; the same seed gives the same ids. Plain. */
void test_sequence_init(test_sequence *s, int n, int vocab, uint32_t seed);
void test_sequence_free(test_sequence *s);
/* Marks tokens [first, end) as adapted by adapter. */
void test_sequence_adapt(test_sequence *s, const packed_adapter *adapter, int first, int end);

/* Runs list in one batch and fills logits anew. Ends the program on failure. */
void test_sequences_run(runner *r, test_sequence *list, int n);
/* Runs every sequence on its own. */
void test_sequences_run_alone(runner *r, test_sequence *list, int n);

/* The first position where the wanted rows of both differ in any bit, or -1. */
int test_sequence_difference(const test_sequence *a, const test_sequence *b);
/* Copies everything but the logits, which are zeroed. */
void test_sequence_copy(const test_sequence *from, test_sequence *to);

#endif
