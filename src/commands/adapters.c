#include "commands/adapters.h"

#include "base/mem.h"
#include "commands/signin.h"
#include "profiles/adapter_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const model *model;
    char *folder;
    bool force_base;
} folder_source;

static pf_status fetch_folder(void *ctx, buf *out, pf_err *err)
{
    const folder_source *s = ctx;
    const adapter_import_options options = {.force_base = s->force_base};
    return adapter_file_import(s->folder, s->model, &options, out, NULL, err);
}

static void release_folder(void *ctx)
{
    folder_source *s = ctx;
    free(s->folder);
    free(s);
}

pf_status adapter_add_folder(engine *e, const char *folder, bool force_base, adapter_id *out,
                             buf *warnings, pf_err *err)
{
    buf blob = {0};
    const adapter_import_options options = {.force_base = force_base};
    pf_status status = adapter_file_import(folder, engine_model(e), &options, &blob, warnings, err);
    if (status == PF_OK) {
        folder_source *s = xcalloc(1, sizeof *s);
        *s = (folder_source){engine_model(e), xstrdup(folder), force_base};
        adapter_source source = {.fetch = fetch_folder, .release = release_folder, .ctx = s};
        status = engine_adapter_add(e, blob.data, blob.len, &source, out, NULL, err);
        if (status != PF_OK) release_folder(s);
    }
    buf_free(&blob);
    return status;
}

pf_status adapter_set_get(adapter_set *set, engine *e, const char *folder, adapter_id *out,
                          pf_err *err)
{
    for (size_t i = 0; i < set->n; i++) {
        if (strcmp(set->folders[i], folder) != 0) continue;
        *out = set->ids[i];
        return PF_OK;
    }
    pf_status status = adapter_add_folder(e, folder, false, out, NULL, err);
    if (status != PF_OK) return status;
    set->folders = xrealloc_array(set->folders, set->n + 1, sizeof *set->folders);
    set->ids = xrealloc_array(set->ids, set->n + 1, sizeof *set->ids);
    set->folders[set->n] = xstrdup(folder);
    set->ids[set->n++] = *out;
    return PF_OK;
}

void adapter_set_free(adapter_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        free(set->folders[i]);
    free(set->folders);
    free(set->ids);
    memset(set, 0, sizeof *set);
}

/* --- profiles --------------------------------------------------------------------------------- */

pf_status profile_use_open(const command_context *ctx, const char *name, profile_use *out,
                           json_t *settings, pf_err *err)
{
    json_t *object = NULL;
    pf_status status = signin_open(ctx, &out->st, &out->session, err);
    if (status != PF_OK) return status;
    out->user = session_engine_user(out->session);
    status = profile_find(out->session, name, &out->info, err);
    if (status != PF_OK) return status;
    const char *text = out->info.settings;
    if (!text || !*text) return PF_OK;
    status = json_parse(text, strlen(text), "the profile's settings", &object, err);
    if (status == PF_OK) json_object_update(settings, object);
    json_decref(object);
    return status;
}

pf_status profile_use_adapter(const profile_use *p, engine *e, bool force_base, adapter_id *out,
                              pf_err *err)
{
    const profile_version *v = &p->info.current;
    unsigned char digest[32];
    *out = 0;
    if (!p->info.has_adapter) return PF_OK;
    if (v->has_base_digest && !force_base &&
        memcmp(v->base_digest, model_digest(engine_model(e)), sizeof v->base_digest) != 0)
        return err_set(err, PF_REFUSED,
                       "the adapter of profile %s was made for another model%s%s: choose that one "
                       "with --model, or use --force-base",
                       p->info.name, v->base_name && *v->base_name ? " " : "",
                       v->base_name ? v->base_name : "");
    adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
    pf_status status =
        profile_source_open(p->session, p->info.id, v->number, &source.ctx, digest, err);
    if (status != PF_OK) return status;
    status = engine_adapter_add_lazy(e, digest, &source, out, err);
    if (status != PF_OK) profile_source_release(source.ctx);
    return status;
}

void profile_use_close(profile_use *p)
{
    profile_info_free(&p->info);
    session_unref(p->session);
    store_close(p->st);
    memset(p, 0, sizeof *p);
}
