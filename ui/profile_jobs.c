#include "ui/profile_jobs.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/adapter_file.h"
#include "profiles/profile.h"
#include "profiles/secret.h"

#include <stdlib.h>

typedef struct {
    job base;
    int pane;
    view *asker; /* may be gone when the job ends */
    unsigned serial;
    folder_done done;
    session *session;
    const model *model;
    char *folder, *name; /* name: of the new profile; NULL: an export */
    folder_result result;
} folder_job;

/* --- on the job's thread ---------------------------------------------------------------------- */

static pf_status save_imported(folder_job *j, const buf *blob, const buf *warnings)
{
    buf provenance = {0};
    json_t *origin = json_pack("{s:s, s:s}", "source", "import", "warnings", buf_str(warnings));
    if (origin) json_append(&provenance, origin);
    json_decref(origin);
    const profile_version_record record = {.base_name = model_name(j->model),
                                           .provenance = buf_str(&provenance)};
    pf_err *err = &j->result.err;
    pf_status status = profile_create_with(j->session, j->name, blob->data, blob->len, &record,
                                           &j->result.profile, err);
    buf_free(&provenance);
    return status;
}

static pf_status import_folder(folder_job *j)
{
    buf blob = {0}, warnings = {0};
    pf_status status =
        adapter_file_import(j->folder, j->model, NULL, &blob, &warnings, &j->result.err);
    if (status == PF_OK) status = save_imported(j, &blob, &warnings);
    wipe_buf(&blob);
    buf_free(&warnings);
    return status;
}

static pf_status export_folder(folder_job *j)
{
    buf blob = {0};
    pf_err *err = &j->result.err;
    pf_status status = profile_read_adapter(j->session, j->result.profile, 0, &blob, err);
    if (status == PF_OK)
        status = adapter_file_export(blob.data, blob.len, model_get_config(j->model), j->folder,
                                     false, err);
    wipe_buf(&blob);
    return status;
}

static void folder_run(job *base)
{
    folder_job *j = (folder_job *)base;
    j->result.status = j->name ? import_folder(j) : export_folder(j);
}

/* --- on the screen's -------------------------------------------------------------------------- */

static void folder_free(folder_job *j)
{
    session_unref(j->session);
    free(j->folder);
    wipe_text(j->name);
    free(j);
}

static void folder_ended(job *base, void *app_or_null)
{
    folder_job *j = (folder_job *)base;
    app *a = app_or_null;
    pane *p = a ? app_pane(a, j->pane) : NULL;
    if (p && pane_shows(p, j->asker, j->serial)) {
        a->dirty = true;
        j->result.path = j->folder;
        j->done(j->asker, &j->result);
    }
    folder_free(j);
}

static pf_status begin(view *asker, const char *folder, const char *name, int64_t profile,
                       folder_done done, pf_err *err)
{
    pane *p = asker->pane;
    folder_job *j = xcalloc(1, sizeof *j);
    *j = (folder_job){.base = {.run = folder_run, .done = folder_ended},
                      .pane = p->number,
                      .asker = asker,
                      .serial = asker->serial,
                      .done = done,
                      .session = session_ref(p->session),
                      .model = engine_model(p->app->options.engine),
                      .folder = path_expand_home(folder),
                      .name = name ? xstrdup(name) : NULL,
                      .result = {.profile = profile}};
    pf_status status = jobs_start(p->app->jobs, &j->base, err);
    if (status != PF_OK) folder_free(j);
    return status;
}

pf_status profile_import_start(view *asker, const char *folder, const char *name, folder_done done,
                               pf_err *err)
{
    return begin(asker, folder, name, 0, done, err);
}

pf_status profile_export_start(view *asker, int64_t profile, const char *folder, folder_done done,
                               pf_err *err)
{
    return begin(asker, folder, NULL, profile, done, err);
}
