/* Proposals: statements of users about themselves, found in their messages and saved as notes that
 * wait for confirmation (profiles/notes.h). */
#ifndef PF_TRAIN_DATA_PROPOSE_H
#define PF_TRAIN_DATA_PROPOSE_H

#include "profiles/user.h"

#include <stddef.h>

/* Reads the user's messages of all conversations under a profile (-1: of all, 0: of none) and saves
 * each statement that no note says yet, under the conversation's profile, as NOTE_PROPOSED. Refused
 * ones are not proposed again. *n (may be NULL) is the number of new ones. Reads and decrypts
 * everything: some tenths of a second for a large history. */
pf_status notes_propose(session *s, int64_t profile, size_t *n, pf_err *err);

#endif
