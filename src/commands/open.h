/* Opening the model and the engine that the global options ask for. */
#ifndef PF_COMMANDS_OPEN_H
#define PF_COMMANDS_OPEN_H

#include "commands/command.h"
#include "engine/engine.h"
#include "models/model.h"

/* Finds and opens --model (or the default model) with --template and --pretokenizer. */
pf_status open_model(const command_context *ctx, model **out, pf_err *err);

/* The engine settings of --device, --threads, --isa, --context, --kv-budget and --kv-type; the
 * other fields are zero for the command to set. */
engine_options open_engine_options(const command_context *ctx);

#endif
