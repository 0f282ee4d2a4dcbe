/* Holding the engine between two steps, to run single steps with the requests of one client at a
 * time. For measurements that compare consecutive steps of different requests.
 *
 * Not part of the public interface (engine.h). */
#ifndef PF_ENGINE_HOLD_H
#define PF_ENGINE_HOLD_H

#include "engine/engine.h"

/* Runs fn on the engine thread, between two steps, and waits for it; then the engine continues.
 * Meanwhile only fn runs steps. Any thread, fn included, may submit and cancel requests and take
 * events; calls that need the engine thread (dropping adapters, forgetting users, background work)
 * wait, and fn must not make them. */
void engine_hold(engine *e, void (*fn)(engine *e, void *ctx), void *ctx);

/* Within fn: one step with this client's requests. While prompts are pending it is a prefill step
 * of as many prompt tokens as a step may have; otherwise a decode step, one token for each answer.
 * Cancelled requests of all clients end. Waits for adapters being loaded. Returns the step's
 * nanoseconds, planning and delivery included, waiting excluded; 0: nothing could be computed
 * (nothing is left, or there is no room for the rest). */
int64_t engine_held_step(engine *e, const engine_client *client);

#endif
