/* `preft train --dry-run`: what would be learned, token by token. */
#ifndef PF_COMMANDS_TRAIN_DATA_H
#define PF_COMMANDS_TRAIN_DATA_H

#include "train/dataset.h"

/* Prints every token of every example with its mark and whether it is learned; as JSON one object
 * per example. */
pf_status train_data_print(const train_dataset *d, const model *m, bool json);

#endif
