/* Where `preft train` gets its examples: files, and the user's own conversations. */
#ifndef PF_COMMANDS_TRAIN_DATA_H
#define PF_COMMANDS_TRAIN_DATA_H

#include "profiles/user.h"
#include "train/dataset.h"

/* What to learn from conversations, in the order of the option's names. */
typedef enum {
    TRAIN_FROM_ALL,     /* every answer that was not rated bad */
    TRAIN_FROM_GOOD,    /* answers rated good, and rewritten ones */
    TRAIN_FROM_REWRITES /* rewritten answers only */
} train_data_from;

/* Adds a JSONL file. */
pf_status train_data_add_file(train_dataset *d, const model *m, const char *path,
                              const train_dataset_options *options, pf_err *err);

/* Adds the conversations under a profile (0: all of the user). Rewritten answers stand in the place
 * of what the model had said and count twice. */
pf_status train_data_add_history(train_dataset *d, const model *m, session *s, int64_t profile,
                                 train_data_from from, const train_dataset_options *options,
                                 pf_err *err);

/* Prints every token of every example with its mark and whether it is learned; as JSON one object
 * per example. */
pf_status train_data_print(const train_dataset *d, const model *m, bool json);

#endif
