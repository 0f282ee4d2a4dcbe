/* A data set as bytes, for checkpoints: a resumed training continues with the examples it began
 * with, whatever has happened to the conversations and files since. In native byte order, like the
 * rest of the store. */
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
