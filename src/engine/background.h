/* Work that shares the engine thread with answering people: training. It is done in slices between
 * the engine's turns. While answers are being written it gets so little time (allowance.h) that a
 * running answer's time per token stays below twice; when nobody asks, it has the machine.
 *
 * Not part of the public border (engine.h): slices compute with the engine's own weights. */
#ifndef PF_ENGINE_BACKGROUND_H
#define PF_ENGINE_BACKGROUND_H

#include "engine/engine.h"
#include "engine/weights.h"

typedef enum {
    BACKGROUND_MORE,   /* another slice, please */
    BACKGROUND_PAUSED, /* nothing to do until engine_background_wake */
    BACKGROUND_DONE    /* take it off */
} background_state;

typedef struct {
    /* On the engine thread: works for about budget_ns, at least one small unit. */
    background_state (*slice)(void *ctx, const packed_model *weights, int64_t budget_ns);
    /* On the engine thread, once: after DONE, after engine_background_stop, or as the engine
     * closes. Frees what belongs to the backend. */
    void (*ended)(void *ctx);
    void *ctx;
} background_work;

/* Starts work; several take turns. Any thread. */
void engine_background_start(engine *e, const background_work *work);
/* Ends the work with this ctx and returns when `ended` has been called; none: nothing happens. */
void engine_background_stop(engine *e, const void *ctx);
/* After PAUSED: asks again. */
void engine_background_wake(engine *e);

#endif
