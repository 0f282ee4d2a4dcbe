#include "commands/open.h"

#include "base/mem.h"
#include "models/catalogue.h"
#include "models/random_model.h"

#include <stdlib.h>

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

engine_options open_engine_options(const command_context *ctx)
{
    const global_options *g = ctx->global;
    return (engine_options){.device = g->device,
                            .isa = g->isa,
                            .threads = (int)g->threads,
                            .context = (int)g->context,
                            .kv_tokens = g->kv_budget,
                            .kv_type = (engine_kv_type)g->kv_type};
}
