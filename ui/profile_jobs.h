/* profile jobs: reading and writing adapter folders, on threads of their own. Private to ui/. */
#ifndef PF_UI_PROFILE_JOBS_H
#define PF_UI_PROFILE_JOBS_H

#include "ui/window.h"

/* What a job came to. profile: the one imported, or exported; path as it was given, "~" expanded.
 */
typedef struct {
    pf_status status;
    pf_err err;
    int64_t profile;
    const char *path;
} folder_result;

/* Called on the screen's thread when the job has ended, if its view is still the pane's top. */
typedef void (*folder_done)(view *asker, const folder_result *result);

/* Imports an adapter's folder as a new profile. */
pf_status profile_import_start(view *asker, const char *folder, const char *name, folder_done done,
                               pf_err *err);
/* Writes the current version's adapter to a folder. */
pf_status profile_export_start(view *asker, int64_t profile, const char *folder, folder_done done,
                               pf_err *err);

#endif
