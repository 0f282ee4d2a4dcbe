/* Holding the engine between two steps: it then makes single steps with the requests of one client
 * at a time, and no others. For measurements that compare steps of different requests one right
 * after the other.
 *
 * Not part of the public border (engine.h). */
#ifndef PF_ENGINE_HOLD_H
#define PF_ENGINE_HOLD_H

#include "engine/engine.h"

/* Has fn run on the engine thread, between two steps, and returns when it has returned; then the
 * engine goes on by itself. Meanwhile it makes no steps but those that fn makes. Requests can be
 * submitted and cancelled by anybody and events taken, by fn too; calls that need the engine
 * thread (dropping adapters, forgetting users, background work) wait, and fn must not make them. */
void engine_hold(engine *e, void (*fn)(engine *e, void *ctx), void *ctx);

/* Within fn: a step with this client's requests. While some of their prompts are to be read, it
 * reads of those as much as a step may, and no answer gets longer; afterwards each answer becomes
 * one token longer. Cancelled requests of all clients end. Adapters on their way into memory are
 * waited for. Returns how many nanoseconds the step took, planning and delivery included, waiting
 * not; 0: nothing could be computed (nothing is left, or there is no room for the rest). */
int64_t engine_held_step(engine *e, const engine_client *client);

#endif
