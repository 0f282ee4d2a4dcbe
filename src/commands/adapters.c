#include "commands/adapters.h"

#include "base/mem.h"
#include "profiles/adapter_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const model *model;
    char *folder;
} folder_source;

static pf_status fetch_folder(void *ctx, buf *out, pf_err *err)
{
    const folder_source *s = ctx;
    return adapter_file_import(s->folder, s->model, NULL, out, NULL, err);
}

static void release_folder(void *ctx)
{
    folder_source *s = ctx;
    free(s->folder);
    free(s);
}

static pf_status add_folder(engine *e, const char *folder, adapter_id *out, buf *warnings,
                            pf_err *err)
{
    buf blob = {0};
    pf_status status = adapter_file_import(folder, engine_model(e), NULL, &blob, warnings, err);
    if (status == PF_OK) {
        folder_source *s = xcalloc(1, sizeof *s);
        *s = (folder_source){engine_model(e), xstrdup(folder)};
        adapter_source source = {.fetch = fetch_folder, .release = release_folder, .ctx = s};
        status = engine_adapter_add(e, blob.data, blob.len, &source, out, NULL, err);
        if (status != PF_OK) release_folder(s);
    }
    buf_free(&blob);
    return status;
}

pf_status adapter_set_get(adapter_set *set, engine *e, const char *folder, adapter_id *out,
                          buf *warnings, pf_err *err)
{
    for (size_t i = 0; i < set->n; i++) {
        if (strcmp(set->folders[i], folder) != 0) continue;
        *out = set->ids[i];
        return PF_OK;
    }
    pf_status status = add_folder(e, folder, out, warnings, err);
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
