/* What a training keeps in the store: its checkpoints while it runs, its record afterwards. Private
 * to src/train/live. */
#ifndef PF_TRAIN_LIVE_STORE_H
#define PF_TRAIN_LIVE_STORE_H

#include "train/data/gather.h"
#include "train/live/live.h"

#include <jansson.h>

/* What is needed to resume from a checkpoint, beside its bytes. */
typedef struct {
    train_request request;  /* a copy, files by name */
    gathered_list used;     /* conversations that were learned from */
    json_t *notes;          /* the user's notes as they were: [[id, revision], ...]; NULL: none */
    train_added added;      /* what was made beside them: facts, pairs, replay, distilled */
    char *made;             /* the name of the profile that it made; NULL: it was there */
    int64_t started_ms;     /* names the training */
    int64_t former_version; /* in use when it began; 0 = none */
    bool went_on;           /* it began with that version's weights */
    int64_t step, n_steps;  /* of the checkpoint */
    char base[65];          /* digest of the base model, in hexadecimal */
} live_note;
void live_note_free(live_note *n);

/* Sets n->notes to those that a training with the note's request may learn from. */
pf_status live_note_take_notes(live_note *n, session *s, pf_err *err);

/* Sets the counts in a JSON object: "facts", "questions", "replay", "distilled". */
void live_added_write(const train_added *a, json_t *object);

/* Makes the profile n->made with what the training begins with: a checkpoint without a state.
 * PF_REFUSED as below. */
pf_status live_checkpoint_begin(session *s, const live_note *n, const buf *data, int64_t *profile,
                                pf_err *err);
/* n->step is the checkpoint's. data: the examples as bytes (train/dataset_bytes.h); state: the
 * job's checkpoint; next: the training has saved one before. PF_REFUSED: what it learns from was
 * deleted meanwhile. */
pf_status live_checkpoint_save(session *s, int64_t profile, const live_note *n, const buf *data,
                               const buf *state, bool next, pf_err *err);
/* The newest intact one of a training that was not finished; its state is empty at the beginning.
 * PF_NOT_FOUND: there is none. data and state are appended to; NULL: only the note is wanted, and
 * looked at. *lost_step is as in live_status. */
pf_status live_checkpoint_load(session *s, int64_t profile, live_note *n, buf *data, buf *state,
                               int64_t *saved_ms, int64_t *lost_step, pf_err *err);

#endif
