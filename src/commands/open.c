#include "commands/open.h"

#include "base/mem.h"
#include "kernels/backend.h"
#include "models/catalogue.h"
#include "models/random_model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pf_status open_model(const command_context *ctx, model **out, pf_err *err)
{
    const global_options *g = ctx->global;
    const model_options options = {.template_name = g->chat_template,
                                   .pretokenizer_name = g->pretokenizer};
    char *path = NULL;
    pf_status status = PF_OK;
    if (g->model && random_model_named(g->model))
        path = xstrdup(g->model);
    else
        status = catalogue_locate(g->models, g->model, &path, err);
    if (status == PF_OK) status = model_open(path, &options, out, err);
    free(path);
    return status;
}

_Static_assert((int)KV_TYPE_AUTO == (int)ENGINE_KV_AUTO && (int)KV_TYPE_F32 == (int)ENGINE_KV_F32 &&
                   (int)KV_TYPE_F16 == (int)ENGINE_KV_F16,
               "--kv-type lists the engine's types in the engine's order");

/* A machine with an NVIDIA device that can't be used: says why the processor is taken. */
static void note_device(const command_context *ctx)
{
    const global_options *g = ctx->global;
    char sentence[256];
    if (strcmp(g->device, "auto") != 0 || access("/dev/nvidiactl", F_OK) != 0) return;
    bool usable = kn_cuda_usable(sentence, sizeof sentence);
    note(ctx, "running on %s%s", usable ? "" : "the processor: ", sentence);
}

engine_options open_engine_options(const command_context *ctx)
{
    const global_options *g = ctx->global;
    note_device(ctx);
    return (engine_options){.device = g->device,
                            .isa = g->isa,
                            .threads = (int)g->threads,
                            .context = (int)g->context,
                            .kv_tokens = g->kv_budget,
                            .kv_type = (engine_kv_type)g->kv_type};
}
