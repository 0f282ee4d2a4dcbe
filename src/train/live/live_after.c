/* What does not need a training under way: publishing versions, and trainings that were broken off.
 */
#include "base/mem.h"
#include "profiles/secret.h"
#include "train/live/live.h"
#include "train/live/live_store.h"

#include <stdlib.h>

pf_status train_live_publish(session *s, engine *e, int64_t profile, adapter_id *id, pf_err *err)
{
    profile_info info = {0};
    buf blob = {0};
    unsigned char digest[32];
    adapter_source source = {.fetch = profile_source_fetch, .release = profile_source_release};
    pf_status status = profile_get(s, profile, &info, err);
    if (status != PF_OK) goto out;
    if (!info.has_adapter) {
        if (*id) status = engine_adapter_drop(e, *id, err);
        *id = 0;
        goto out;
    }
    int64_t number = info.current.number;
    status = profile_read_adapter(s, profile, number, &blob, err);
    if (status == PF_OK) status = profile_source_open(s, profile, number, &source.ctx, digest, err);
    if (status != PF_OK) goto out;
    status = *id ? engine_adapter_replace(e, *id, blob.data, blob.len, &source, NULL, err)
                 : engine_adapter_add(e, blob.data, blob.len, &source, id, NULL, err);
    if (status != PF_OK) profile_source_release(source.ctx);
out:
    wipe_buf(&blob);
    profile_info_free(&info);
    return status;
}

const char *live_made_words(live_made made)
{
    static const char *const words[] = {
        [LIVE_MADE_GONE] = "The profile that was made for it is gone again.",
        [LIVE_MADE_USED] = "The profile that was made for it has been used and stays, without an "
                           "adapter."};
    return (size_t)made < sizeof words / sizeof *words ? words[made] : NULL;
}

void live_lost_words(const live_status *s, buf *out)
{
    if (s->lost_step > 0)
        buf_printf(out, " (the state of step %lld is damaged)", (long long)s->lost_step);
    else if (s->lost_step < 0)
        buf_puts(out, " (a newer state is damaged)");
}

/* --- unfinished trainings -------------------------------------------------------------------- */

pf_status train_live_unfinished(session *s, live_unfinished_list *out, pf_err *err)
{
    profile_list profiles = {0};
    *out = (live_unfinished_list){0};
    pf_status status = profile_list_load(s, &profiles, err);
    for (size_t i = 0; i < profiles.n; i++) {
        live_note note = {0};
        int64_t saved_ms = 0, lost = 0;
        if (live_checkpoint_load(s, profiles.items[i].id, &note, NULL, NULL, &saved_ms, &lost,
                                 NULL) == PF_OK) {
            out->items = xrealloc_array(out->items, out->n + 1, sizeof *out->items);
            out->items[out->n++] = (live_unfinished){.profile = profiles.items[i].id,
                                                     .name = xstrdup(profiles.items[i].name),
                                                     .method = note.request.method,
                                                     .step = note.step,
                                                     .n_steps = note.n_steps,
                                                     .saved_ms = saved_ms};
        }
        live_note_free(&note);
    }
    profile_list_free(&profiles);
    return status;
}

void live_unfinished_list_free(live_unfinished_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        wipe_text(list->items[i].name);
    free(list->items);
    *list = (live_unfinished_list){0};
}

pf_status train_live_discard(session *s, int64_t profile, pf_err *err)
{
    return checkpoint_remove_all(s, profile, err);
}
