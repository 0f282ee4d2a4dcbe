/* A client of the engine: a queue of events and a file descriptor that is readable while events are
 * queued. The engine never waits for a client: the queue grows, bounded by what the client's own
 * requests can produce. A client lives until it is closed and its last request has ended. */
#ifndef PF_ENGINE_CLIENT_H
#define PF_ENGINE_CLIENT_H

#include "engine/engine.h"

/* One reference, the caller's. NULL when the system has no more descriptors. */
engine_client *client_create(engine *e);
engine_client *client_ref(engine_client *c);
void client_unref(engine_client *c);

engine *client_engine(engine_client *c); /* NULL: closed */
/* The engine is closed: queued events can still be read. */
void client_detach(engine_client *c);

/* Takes ownership of the event's memory. Events for a closed client are dropped. */
void client_push(engine_client *c, engine_event *ev);
/* Accepts no more events; queued ones are wiped and freed. */
void client_shut(engine_client *c);

#endif
