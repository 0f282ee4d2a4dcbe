/* Requests for trainings: copies that own their texts, as JSON in checkpoints and records, and as
 * the options of a job. */
#ifndef PF_TRAIN_LIVE_REQUEST_H
#define PF_TRAIN_LIVE_REQUEST_H

#include "train/job.h"
#include "train/live/live.h"

#include <jansson.h>

/* A deep copy; of files only the names without folders stay when `names_only`. */
void live_request_copy(const train_request *from, bool names_only, train_request *out);
void live_request_free(train_request *r); /* of a copy; zeroes it, texts wiped */

json_t *live_request_write(const train_request *r); /* owned */
/* *out is a copy; freed by the caller also on failure. */
pf_status live_request_read(const json_t *object, train_request *out, pf_err *err);

/* With the defaults filled in, as the data asks for them (NULL: the usual ones). */
train_job_options live_request_options(const train_request *r, const train_dataset *d);

/* Tokens per second of the last training of this process; 0 = there was none (live.c). */
double live_last_rate(void);

#endif
