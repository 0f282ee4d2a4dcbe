/* Adapters for commands, brought to the engine: from folders given on the command line, or from a
 * profile of a user who signs in. The engine reads them again from there when it needs them back.
 */
#ifndef PF_COMMANDS_ADAPTERS_H
#define PF_COMMANDS_ADAPTERS_H

#include "base/buf.h"
#include "base/json.h"
#include "commands/command.h"
#include "engine/engine.h"
#include "profiles/profile.h"

/* Reads, checks and registers the adapter in a folder. force_base: also if it was made for another
 * model. warnings (may be NULL) gets a line for each. */
pf_status adapter_add_folder(engine *e, const char *folder, bool force_base, adapter_id *out,
                             buf *warnings, pf_err *err);

/* The adapters of folders, each registered once. Zeroed = empty. */
typedef struct {
    char **folders;  /* [n] */
    adapter_id *ids; /* [n] */
    size_t n;
} adapter_set;
pf_status adapter_set_get(adapter_set *set, engine *e, const char *folder, adapter_id *out,
                          pf_err *err);
void adapter_set_free(adapter_set *set); /* the engine's side is the engine's */

/* A profile in use. Zeroed = none. */
typedef struct {
    store *st;
    session *session;
    profile_info info;
    uint64_t user; /* engine_request.user */
} profile_use;
/* Signs in and finds the profile; its settings go into the object. Freed by the caller also on
 * failure. */
pf_status profile_use_open(const command_context *ctx, const char *name, profile_use *out,
                           json_t *settings, pf_err *err);
/* Registers the profile's adapter; *out is 0 if it has none. PF_REFUSED if it was made for another
 * model, unless force_base. */
pf_status profile_use_adapter(const profile_use *p, engine *e, bool force_base, adapter_id *out,
                              pf_err *err);
void profile_use_close(profile_use *p); /* after the engine */

#endif
