/* A data set as bytes: what a checkpoint keeps, so that a training goes on with what it began with
 * whatever has become of the conversations and files. Not portable between machines of different
 * byte order; the store that holds it is not either. */
#ifndef PF_TRAIN_DATASET_BYTES_H
#define PF_TRAIN_DATASET_BYTES_H

#include "base/buf.h"
#include "train/dataset.h"

/* Appends the examples; what was skipped is left out. */
void train_dataset_write(const train_dataset *d, buf *out);
/* d must be zeroed. vocab bounds the ids. PF_REFUSED, with d empty, unless all of bytes[0..len) is
 * one data set. */
pf_status train_dataset_read(const void *bytes, size_t len, int32_t vocab, train_dataset *d,
                             pf_err *err);

#endif
