/* Adapter folders given on the command line, brought to the engine: each folder once, read again
 * from the folder when the engine needs it back. */
#ifndef PF_COMMANDS_ADAPTERS_H
#define PF_COMMANDS_ADAPTERS_H

#include "base/buf.h"
#include "engine/engine.h"

/* Zeroed = empty. */
typedef struct {
    char **folders;  /* [n] */
    adapter_id *ids; /* [n] */
    size_t n;
} adapter_set;

/* The adapter of this folder; read, checked and registered at its first use. warnings (may be NULL)
 * gets a line for each. */
pf_status adapter_set_get(adapter_set *set, engine *e, const char *folder, adapter_id *out,
                          buf *warnings, pf_err *err);
void adapter_set_free(adapter_set *set); /* the engine's side is the engine's */

#endif
