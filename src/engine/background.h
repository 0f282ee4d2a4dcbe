/* Work that shares the engine thread with requests: training. It runs in slices between the
 * engine's turns. While answers are being decoded its time is limited (allowance.h) so that a
 * running answer's time per token less than doubles; without requests it has the machine to itself.
 *
 * Not part of the public interface (engine.h): slices compute with the engine's own weights. */
#ifndef PF_ENGINE_BACKGROUND_H
#define PF_ENGINE_BACKGROUND_H

#include "engine/engine.h"
#include "engine/weights.h"

typedef enum {
    BACKGROUND_MORE,   /* wants another slice */
    BACKGROUND_PAUSED, /* nothing to do until engine_background_wake */
    BACKGROUND_DONE    /* finished: remove it */
} background_state;

typedef struct {
    /* On the engine thread: works for about budget_ns, at least one small unit. */
    background_state (*slice)(void *ctx, const packed_model *weights, int64_t budget_ns);
    /* On the engine thread, once: after DONE, after engine_background_stop, or as the engine
     * closes. Frees what belongs to the backend. */
    void (*ended)(void *ctx);
    void *ctx;
} background_work;

/* Starts work; several works take turns. Any thread. */
void engine_background_start(engine *e, const background_work *work);
/* Ends the work with this ctx and returns when `ended` has been called; no-op if there is none. */
void engine_background_stop(engine *e, const void *ctx);
/* Resumes work that returned PAUSED. */
void engine_background_wake(engine *e);

#endif
