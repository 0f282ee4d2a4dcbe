#include "profiles/profile.h"

#include "base/clock.h"
#include "base/mem.h"
#include "profiles/history_rows.h"
#include "profiles/name.h"
#include "profiles/profile_rows.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

/* --- reading ---------------------------------------------------------------------------------- */

void profile_version_free(profile_version *v)
{
    wipe_text(v->kind);
    wipe_text(v->base_name);
    wipe_text(v->training);
    wipe_text(v->provenance);
    *v = (profile_version){0};
}

void profile_info_free(profile_info *info)
{
    wipe_text(info->name);
    wipe_text(info->settings);
    profile_version_free(&info->current);
    *info = (profile_info){0};
}

void profile_list_free(profile_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        profile_info_free(&list->items[i]);
    free(list->items);
    *list = (profile_list){0};
}

/* Fills out from a row; takes over p's texts. PF_DAMAGED: out is filled as far as possible. */
static pf_status info_of(tx *t, profile_row *p, profile_info *out, pf_err *err)
{
    version_rows versions = {0};
    pf_status status = version_rows_read(t, p, &versions, err);
    version_row *current = version_rows_find(&versions, p->current);
    *out = (profile_info){.id = p->row.id,
                          .name = p->name,
                          .settings = *p->settings ? p->settings : NULL,
                          .created_ms = p->created_ms,
                          .updated_ms = p->updated_ms,
                          .n_versions = p->versions.count,
                          .has_adapter = p->current != 0,
                          .damaged = p->current != 0 && !current};
    if (!out->settings) {
        wipe_text(p->settings);
        out->settings = xstrdup("{}");
    }
    p->name = p->settings = NULL;
    if (current) {
        out->current = current->v;
        current->v = (profile_version){0};
    }
    if (out->damaged && status == PF_OK)
        status =
            err_set(err, PF_DAMAGED, "the current adapter of profile \"%s\" is missing", out->name);
    version_rows_free(&versions);
    return status;
}

typedef struct {
    tx *t;
    profile_list *list;
    pf_status status; /* PF_DAMAGED: some version is */
    pf_err err;
} list_visit;

static pf_status take_profile(void *ctx, const row *r, pf_err *err)
{
    list_visit *visit = ctx;
    profile_row p;
    profile_info info = {0};
    profile_row_take(r, &p);
    p.row.id = r->id;
    pf_err found = {0};
    pf_status status = info_of(visit->t, &p, &info, &found);
    p.row = (row){0};
    profile_row_free(&p);
    if (status != PF_OK && status != PF_DAMAGED) {
        profile_info_free(&info);
        if (err) *err = found;
        return status;
    }
    if (status == PF_DAMAGED && visit->status == PF_OK) {
        visit->status = status;
        visit->err = found;
    }
    profile_list *list = visit->list;
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = info;
    return PF_OK;
}

static int by_name(const void *a, const void *b)
{
    char *x = name_key(((const profile_info *)a)->name);
    char *y = name_key(((const profile_info *)b)->name);
    int order = strcmp(x ? x : "", y ? y : "");
    wipe_text(x);
    wipe_text(y);
    return order;
}

static pf_status list_profiles(tx *t, profile_list *out, pf_err *err)
{
    vault_head found;
    user_head head = {0};
    damage bad = {0};
    list_visit visit = {.t = t, .list = out};
    *out = (profile_list){0};
    pf_status kept = user_head_read(t, &head, err);
    pf_status status = kept == PF_DAMAGED ? PF_OK : kept;
    if (status == PF_OK)
        status = row_scan(t, ROW_PROFILE, t->user, &found, &bad, take_profile, &visit, err);
    if (status == PF_OK)
        status =
            damage_report(&bad, &found, kept == PF_OK ? &head.profiles : NULL, "profiles", err);
    if (status == PF_OK && visit.status != PF_OK) {
        status = visit.status;
        if (err) *err = visit.err;
    }
    damage_free(&bad);
    user_head_free(&head);
    if (out->n > 0) qsort(out->items, out->n, sizeof *out->items, by_name);
    return status;
}

pf_status profile_list_load(session *s, profile_list *out, pf_err *err)
{
    tx t;
    *out = (profile_list){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    return tx_end(&t, list_profiles(&t, out, err), err);
}

pf_status profile_get(session *s, int64_t id, profile_info *out, pf_err *err)
{
    tx t;
    profile_row p = {0};
    *out = (profile_info){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = profile_row_read(&t, id, &p, err);
    if (status == PF_OK) status = info_of(&t, &p, out, err);
    profile_row_free(&p);
    return tx_end(&t, status, err);
}

pf_status profile_find(session *s, const char *name, profile_info *out, pf_err *err)
{
    profile_list list = {0};
    char *key = name_key(name);
    *out = (profile_info){0};
    pf_status status = profile_list_load(s, &list, err);
    if (status != PF_OK && status != PF_DAMAGED) goto out;
    for (size_t i = 0; key && i < list.n; i++) {
        char *other = name_key(list.items[i].name);
        bool same = other && strcmp(other, key) == 0;
        wipe_text(other);
        if (!same) continue;
        *out = list.items[i];
        list.items[i] = (profile_info){0};
        /* damage elsewhere is not this profile's */
        if (!out->damaged) status = PF_OK;
        goto out;
    }
    if (status == PF_OK)
        status = err_set(err, PF_NOT_FOUND,
                         "%s has no profile \"%s\"; `preft profile list` shows which there are",
                         session_user_name(s), name);
out:
    wipe_text(key);
    profile_list_free(&list);
    return status;
}

/* --- changing --------------------------------------------------------------------------------- */

/* Whether another profile has the same key: taken names are refused. */
typedef struct {
    const char *key;
    int64_t except; /* id that may have it: the profile itself */
    bool taken;
} taken_visit;

static pf_status compare_name(void *ctx, const row *r, pf_err *err)
{
    (void)err;
    taken_visit *visit = ctx;
    profile_row p;
    profile_row_take(r, &p);
    char *key = name_key(p.name);
    if (r->id != visit->except && key && strcmp(key, visit->key) == 0) visit->taken = true;
    wipe_text(key);
    profile_row_free(&p);
    return PF_OK;
}

pf_status profile_free_name(tx *t, const char *name, int64_t except, char **composed, pf_err *err)
{
    char *key = NULL;
    damage bad = {0};
    pf_status status = name_check(NAME_PROFILE, name, composed, &key, err);
    if (status != PF_OK) return status;
    taken_visit visit = {.key = key, .except = except};
    status = row_scan(t, ROW_PROFILE, t->user, NULL, &bad, compare_name, &visit, err);
    if (status == PF_OK && visit.taken)
        status = err_set(err, PF_USAGE,
                         "there is already a profile whose name is, or looks, the same as \"%s\"",
                         *composed);
    damage_free(&bad);
    wipe_text(key);
    if (status != PF_OK) {
        wipe_text(*composed);
        *composed = NULL;
    }
    return status;
}

pf_status profile_create(session *s, const char *name, const char *settings, int64_t *id,
                         pf_err *err)
{
    profile_change c;
    pf_status status = json_object_check(settings, "the profile's settings", err);
    if (status == PF_OK) status = profile_change_create(&c, s, name, settings, err);
    if (status != PF_OK) return status;
    const int64_t made = c.p.row.id;
    status = profile_change_close(&c, user_head_write(&c.t, &c.head, err), err);
    if (status == PF_OK && id) *id = made;
    return status;
}

pf_status profile_rename(session *s, int64_t id, const char *name, pf_err *err)
{
    profile_change c;
    char *composed = NULL;
    pf_status status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    status = profile_free_name(&c.t, name, id, &composed, err);
    if (status == PF_OK) {
        wipe_text(c.p.name);
        c.p.name = composed;
    }
    return profile_change_end(&c, status, err);
}

pf_status profile_set_settings(session *s, int64_t id, const char *settings, pf_err *err)
{
    profile_change c;
    pf_status status = json_object_check(settings, "the profile's settings", err);
    if (status == PF_OK) status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    wipe_text(c.p.settings);
    c.p.settings = xstrdup(settings ? settings : "");
    return profile_change_end(&c, PF_OK, err);
}

/* Removes the opened row with what belongs to the profile elsewhere. */
static pf_status remove_opened(profile_change *c, pf_err *err)
{
    char *inputs = input_history_key(c->p.row.id);
    pf_status status = row_remove(&c->t, ROW_PROFILE, &c->p.row, &c->head.profiles, err);
    if (status == PF_OK) status = settings_drop(&c->t, &c->head, inputs, err);
    if (status == PF_OK) status = user_head_write(&c->t, &c->head, err);
    free(inputs);
    return status;
}

pf_status profile_remove(session *s, int64_t id, pf_err *err)
{
    profile_change c;
    pf_status status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    status = profile_change_close(&c, remove_opened(&c, err), err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

static bool has_name(const profile_row *p, const char *name)
{
    char *key = name_key(p->name), *wanted = name_key(name);
    bool same = key && wanted && strcmp(key, wanted) == 0;
    wipe_text(key);
    wipe_text(wanted);
    return same;
}

/* What is damaged may be of the profile: it counts as used then. */
static pf_status find_use(profile_change *c, const char *name, profile_usage *use, pf_err *err)
{
    conversation_list list = {0};
    const profile_row *p = &c->p;
    bool any = p->next_number > 1 || p->versions.count || !has_name(p, name) ||
               (*p->settings && strcmp(p->settings, "{}") != 0);
    pf_status status = any ? PF_OK : notes_any(&c->t, &c->head, p->row.id, &any, err);
    if (status == PF_OK && !any) status = conversation_list_read(&c->t, &list, err);
    for (size_t i = 0; i < list.n; i++)
        any |= list.items[i].profile == p->row.id;
    conversation_list_free(&list);
    *use = any || status == PF_DAMAGED ? PROFILE_USED
           : p->checkpoints.count      ? PROFILE_UNFINISHED
                                       : PROFILE_UNUSED;
    return status == PF_DAMAGED ? PF_OK : status;
}

pf_status profile_remove_unused(session *s, int64_t id, const char *name, profile_usage *use,
                                pf_err *err)
{
    profile_change c;
    *use = PROFILE_USED;
    pf_status status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    status = find_use(&c, name, use, err);
    if (status == PF_OK && *use == PROFILE_UNUSED) status = remove_opened(&c, err);
    status = profile_change_close(&c, status, err);
    if (status == PF_OK && *use == PROFILE_UNUSED) store_scrub(s->store);
    return status;
}
