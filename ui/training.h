/* training: the training of a pane's user. It belongs to the pane and continues whatever the pane
 * shows; a lock or a sign-out saves a checkpoint and ends it, and it can be resumed later. Private
 * to ui/. */
#ifndef PF_UI_TRAINING_H
#define PF_UI_TRAINING_H

#include "train/live/live.h"
#include "ui/window.h"

/* Starts a training for the person of a pane, which has none, or whose former one is over. */
pf_status training_start(pane *p, const train_request *r, pf_err *err);
/* Resumes one that was interrupted. */
pf_status training_resume(pane *p, int64_t profile, pf_err *err);
/* Saves the state of a running one, and frees it. Nothing to do: fine. */
void training_end(pane *p);

/* What the pane's training is; NULL: there is none. Borrowed until the next call. */
train_live *training_live(const pane *p);
const live_status *training_status(const pane *p);
bool training_runs(const pane *p); /* not over yet */
/* The profile's name, clean; owned by the training. */
const char *training_name(const pane *p);

/* The former version becomes the current one again, everywhere. */
pf_status training_go_back(pane *p, pf_err *err);
bool training_went_back(const pane *p);

/* Polls all trainings: passes new versions to the chats of their user and says so there. To be
 * called several times a second while training_any. */
void training_tick(app *a);
bool training_any(const app *a);

/* Says in a chat which trainings of its user were interrupted. */
void training_offer(view *chat);

/* What a person chose for a profile that has no adapter yet: kind and rank. */
void training_choice_save(session *s, int64_t profile, train_method method, int rank);
bool training_choice_load(session *s, int64_t profile, train_method *method, int *rank);

/* In plain words: what a kind is good for; what a rank means. */
const char *training_kind_words(train_method method);
const char *training_rank_words(train_method method, int rank);
/* The recommended rank. */
int training_usual_rank(train_method method);
/* The next rank up (by > 0) or down that is offered. */
int training_step_rank(int rank, int by);

/* The views: what to learn from, and how it goes (or what was broken off). */
view *train_setup_view(pane *p, int64_t profile);
view *train_view(pane *p, int64_t unfinished);
/* The one that fits: progress, an unfinished training of the profile, or the choice. */
void training_open(pane *p, int64_t profile);

#endif
