/* A whole training of a signed-in user inside a running engine, while others chat: the basis of
 * `preft train` and of the chat's training view.
 *
 * A training reads its examples from the user's conversations or from files, asks sample questions,
 * trains in slices between the engine's steps, asks the same questions again, saves the result as
 * the profile's newest version and can undo that. Encrypted checkpoints are saved in the store at
 * intervals; after a crash, a lock or a sign-out the training can be resumed from the latest one
 * (train_live_unfinished, train_live_resume).
 *
 * Threads. A training has a thread of its own that reads, asks and saves; the computing is done by
 * the engine's thread. All functions may be called from any thread, of one training by one at a
 * time. train_live_plan and train_live_publish decrypt and may take some tenths of a second; the
 * others return at once, but for train_live_close and train_live_wait.
 *
 * Numbers that are not known (yet) are NAN. Losses are means over the learned tokens, in nats. */
#ifndef PF_TRAIN_LIVE_H
#define PF_TRAIN_LIVE_H

#include "base/buf.h"
#include "engine/engine.h"
#include "profiles/profile.h"
#include "train/data/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct train_live train_live;

/* --- before starting ---------------------------------------------------------------------------*/

typedef struct {
    char *label;             /* "conversation 12", "chats.jsonl, line 3" */
    char *question, *answer; /* the last learned answer and what it answers, clean UTF-8 */
    size_t n_tokens, n_learned;
    int repeat; /* times it counts */
    bool held_out;
} train_plan_example;

typedef struct {
    char *label, *reason;
} train_plan_skipped;

typedef struct {
    size_t n_sources; /* conversations offered */
    size_t n_cut;     /* of them cut at turn borders */
    size_t n_tokens, n_learned, n_held_out_learned;
    int64_t n_steps;
    double seconds; /* estimate from this engine's trainings so far, else NAN */
    bool goes_on;   /* from the profile's present adapter */
    bool enough;    /* else hint says what is missing */
    char *hint;
    train_added added;
    train_plan_example *examples; /* all of them */
    size_t n_examples;
    train_plan_skipped *skipped;
    size_t n_skipped;
} train_plan;

/* Reads what a training would learn from; nothing is asked, trained or saved. s may be NULL when
 * files are given. What the model writes (replayed answers, questions, what is distilled) is not in
 * it; added.n_distilled questions would be asked. *out is freed by the caller also on failure. */
pf_status train_live_plan(session *s, engine *e, const train_request *r, train_plan *out,
                          pf_err *err);
/* As gather_count (train/data/gather.h). */
pf_status train_live_count(session *s, int64_t profile, size_t answers[LEARN_REWRITES + 1],
                           pf_err *err);
void train_plan_free(train_plan *p); /* zeroes it; texts are wiped */

/* --- a training --------------------------------------------------------------------------------*/

typedef enum {
    LIVE_PREPARING, /* reads the examples, asks for replayed answers, and the questions */
    LIVE_TRAINING,
    LIVE_PAUSED,
    LIVE_SAVING,
    LIVE_ASKING,    /* saved as a new version; the questions again */
    LIVE_DONE,      /* all done */
    LIVE_STOPPED,   /* diverged; the best state so far was saved as a new version: message */
    LIVE_CANCELLED, /* the profile is as it was; one made for the training: status.made */
    LIVE_FAILED     /* the same: message */
} live_phase;

/* LIVE_DONE and later: nothing changes any more. */
static inline bool live_phase_over(live_phase p)
{
    return p >= LIVE_DONE;
}

/* The profile that a training made for its result. */
typedef enum {
    LIVE_NOT_MADE, /* it was there before, or there is none */
    LIVE_MADE,
    LIVE_MADE_GONE, /* the training had no result: it was removed again */
    LIVE_MADE_USED  /* the same, but it has been used meanwhile: it stays, without an adapter */
} live_made;
/* The same as a sentence for the user; NULL where there is nothing to tell. */
const char *live_made_words(live_made made);

typedef struct {
    live_phase phase;
    pf_status status;  /* of LIVE_FAILED: why, as a status */
    char message[512]; /* of LIVE_STOPPED and LIVE_FAILED */
    char doing[64];    /* of LIVE_PREPARING, in words */
    int64_t profile;   /* 0: none, or not made yet */
    live_made made;

    int64_t step, n_steps;
    double share_done;             /* 0..1 of the training */
    double tokens_per_second;      /* while the training had the processor */
    double wall_tokens_per_second; /* since it began */
    double seconds_left;
    double loss, grad_norm, rate; /* of the last step */
    double loss_before, loss_after, loss_served;
    double held_out_before, held_out_now, held_out_served;
    int64_t tokens_done;
    size_t n_losses, n_samples, n_examples;

    size_t n_learned, n_tokens, n_held_out_learned; /* tokens of the examples */
    size_t n_cut, n_left_out;                       /* conversations; see train_live_left_out */
    train_added added;                              /* what was made beside them */
    bool went_on;                                   /* from the profile's adapter */
    int64_t resumed_step;                           /* > 0: it went on from here */
    int64_t lost_step; /* > 0: a newer state, of this step, was damaged; -1: of an unknown one */
    int64_t checkpoint_step;      /* last one saved; 0 = none */
    char checkpoint_problem[256]; /* why the last one was not saved, or "" */
    int64_t version;        /* LIVE_DONE, LIVE_STOPPED: as which it was saved; 0 = no profile */
    int64_t former_version; /* what was in use before; 0 = no adapter */
} live_status;

/* Appends why it went on from an older state: " (the state of step 40 is damaged)"; else nothing.
 */
void live_lost_words(const live_status *s, buf *out);

/* Starts a training. s is referenced; NULL only without a profile. PF_USAGE for settings out of
 * range; what needs reading (too little data, a malformed file) ends in LIVE_FAILED. One training a
 * profile at a time: PF_USAGE. */
pf_status train_live_start(session *s, engine *e, const train_request *r, train_live **out,
                           pf_err *err);
/* Frees it. One that runs is ended, after its state was saved so that it can be resumed. Before
 * engine_close, and before the session is signed out. NULL is fine. */
void train_live_close(train_live *l);

void train_live_get(train_live *l, live_status *out);
/* A descriptor that becomes readable (poll) when something changed, until train_live_get. */
int train_live_fd(const train_live *l);
/* Blocks until something changed or timeout_ms passed (-1 = for ever). */
void train_live_wait(train_live *l, int timeout_ms);

/* Losses of steps first.. (at most n), from the very first step also after a resume; returns how
 * many were written. */
size_t train_live_losses(train_live *l, size_t first, size_t n, float *out);

/* What was left out and why, i < n_left_out; owned by the receiver (train_plan_skipped_free). */
void train_live_left_out(train_live *l, size_t i, train_plan_skipped *out);
void train_plan_skipped_free(train_plan_skipped *s);

/* A question with the answers before and after; NULL: not there yet, or it could not be asked for
 * want of memory. Owned by the receiver. */
typedef struct {
    char *question, *before, *after;
} train_sample;
/* Sample i < n_samples. */
void train_live_sample(train_live *l, size_t i, train_sample *out);
void train_sample_free(train_sample *s);

void train_live_pause(train_live *l, bool pause);
/* Ends it for good: its checkpoints are removed, the profile stays as it was. One that was made for
 * the training goes with it, unless it has been used. */
void train_live_cancel(train_live *l);

/* The adapter as a blob, after LIVE_DONE or LIVE_STOPPED. */
pf_status train_live_result(train_live *l, buf *blob, pf_err *err);
/* The record of the training, as the profile keeps it: text of a JSON object, appended. Then too.
 */
pf_status train_live_record(train_live *l, buf *json, pf_err *err);

/* --- afterwards --------------------------------------------------------------------------------*/

/* Undo: makes the version that was in use before the training the current one again; the new
 * version stays in the list. After LIVE_DONE or LIVE_STOPPED of a training with a profile. */
pf_status train_live_go_back(train_live *l, pf_err *err);

/* Replaces the engine's adapter *id by the profile's current version (weight sync): prompts
 * submitted before finish on the old version, later ones use the new. 0 in *id: registers it. For a
 * profile without an adapter *id is dropped and becomes 0. To be called for each adapter of the
 * profile that a chat holds, after a training ended in a new version and after train_live_go_back.
 */
pf_status train_live_publish(session *s, engine *e, int64_t profile, adapter_id *id, pf_err *err);

/* --- unfinished trainings ----------------------------------------------------------------------*/

/* Interrupted by a crash, a lock or a sign-out. */
typedef struct {
    int64_t profile;
    char *name; /* the profile's */
    train_method method;
    int64_t step, n_steps;
    int64_t saved_ms; /* Unix time of the checkpoint */
} live_unfinished;

typedef struct {
    live_unfinished *items;
    size_t n;
} live_unfinished_list;

/* Those of the session's user; to be offered at sign-in. */
pf_status train_live_unfinished(session *s, live_unfinished_list *out, pf_err *err);
void live_unfinished_list_free(live_unfinished_list *list);

/* Whether two requests would train the same from the same conversations and files. */
bool train_request_equal(const train_request *a, const train_request *b);

/* Resumes from the newest checkpoint that can be opened, with the examples and settings the
 * training was started with; the result is byte for byte that of an uninterrupted one.
 * PF_NOT_FOUND: there is none. PF_REFUSED: it belongs to another base model, or a conversation that
 * it learned from was deleted since, or expected is not NULL and the training was started with
 * other settings. */
pf_status train_live_resume(session *s, engine *e, int64_t profile, const train_request *expected,
                            train_live **out, pf_err *err);
/* Removes the state of an unfinished training. */
pf_status train_live_discard(session *s, int64_t profile, pf_err *err);

#endif
