#include "profiles/profile_rows.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROFILE_NAME = 1,
    PROFILE_SETTINGS,
    PROFILE_CREATED,
    PROFILE_UPDATED,
    PROFILE_CURRENT,
    PROFILE_NEXT,
    PROFILE_VERSIONS,
    PROFILE_CHECKPOINTS
};

void profile_row_take(const row *r, profile_row *out)
{
    const record *b = &r->body;
    *out = (profile_row){.name = record_get_text(b, PROFILE_NAME),
                         .settings = record_get_text(b, PROFILE_SETTINGS),
                         .created_ms = record_get_int(b, PROFILE_CREATED),
                         .updated_ms = record_get_int(b, PROFILE_UPDATED),
                         .current = record_get_int(b, PROFILE_CURRENT),
                         .next_number = record_get_int(b, PROFILE_NEXT),
                         .versions = record_get_head(b, PROFILE_VERSIONS),
                         .checkpoints = record_get_head(b, PROFILE_CHECKPOINTS)};
}

pf_status profile_row_read(tx *t, int64_t id, profile_row *out, pf_err *err)
{
    row r = {0};
    *out = (profile_row){0};
    pf_status status = row_read(t, ROW_PROFILE, id, &r, err);
    if (status != PF_OK) return status;
    profile_row_take(&r, out);
    out->row = r;
    return PF_OK;
}

void profile_row_free(profile_row *p)
{
    row_free(&p->row);
    wipe_text(p->name);
    wipe_text(p->settings);
    *p = (profile_row){0};
}

pf_status profile_row_write(tx *t, user_head *head, profile_row *p, int64_t *id, pf_err *err)
{
    record_writer w = {0};
    pf_status status = PF_OK;
    p->updated_ms = clock_unix_ms();
    record_put_text(&w, PROFILE_NAME, p->name);
    record_put_text(&w, PROFILE_SETTINGS, p->settings);
    record_put_int(&w, PROFILE_CREATED, p->created_ms);
    record_put_int(&w, PROFILE_UPDATED, p->updated_ms);
    record_put_int(&w, PROFILE_CURRENT, p->current);
    record_put_int(&w, PROFILE_NEXT, p->next_number);
    record_put_head(&w, PROFILE_VERSIONS, &p->versions);
    record_put_head(&w, PROFILE_CHECKPOINTS, &p->checkpoints);
    if (p->row.id)
        status = row_update(t, ROW_PROFILE, &p->row, &w, &head->profiles, err);
    else
        status = row_insert(t, ROW_PROFILE, t->user, &w, NULL, &head->profiles, id, err);
    record_free(&w);
    return status;
}

pf_status profile_row_create(tx *t, const char *name, const char *settings, user_head *head,
                             profile_row *p, pf_err *err)
{
    int64_t id = 0;
    *p = (profile_row){.settings = xstrdup(settings ? settings : ""),
                       .created_ms = clock_unix_ms(),
                       .next_number = 1};
    pf_status status = user_head_read(t, head, err);
    if (status == PF_OK) status = profile_free_name(t, name, 0, &p->name, err);
    if (status == PF_OK) status = profile_row_write(t, head, p, &id, err);
    profile_row_free(p);
    return status == PF_OK ? profile_row_read(t, id, p, err) : status;
}

pf_status profile_row_save(tx *t, user_head *head, profile_row *p, pf_err *err)
{
    pf_status status = profile_row_write(t, head, p, NULL, err);
    return status == PF_OK ? user_head_write(t, head, err) : status;
}

pf_status profile_change_close(profile_change *c, pf_status status, pf_err *err)
{
    profile_row_free(&c->p);
    user_head_free(&c->head);
    return tx_end(&c->t, status, err);
}

pf_status profile_change_begin(profile_change *c, session *s, int64_t id, pf_err *err)
{
    *c = (profile_change){0};
    pf_status status = tx_begin(s, TX_WRITE, &c->t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&c->t, &c->head, err);
    if (status == PF_OK) status = profile_row_read(&c->t, id, &c->p, err);
    return status == PF_OK ? PF_OK : profile_change_close(c, status, err);
}

pf_status profile_change_create(profile_change *c, session *s, const char *name,
                                const char *settings, pf_err *err)
{
    *c = (profile_change){0};
    pf_status status = tx_begin(s, TX_WRITE, &c->t, err);
    if (status != PF_OK) return status;
    status = profile_row_create(&c->t, name, settings, &c->head, &c->p, err);
    return status == PF_OK ? PF_OK : profile_change_close(c, status, err);
}

pf_status profile_change_end(profile_change *c, pf_status status, pf_err *err)
{
    if (status == PF_OK) status = profile_row_save(&c->t, &c->head, &c->p, err);
    return profile_change_close(c, status, err);
}

pf_status profile_exists(tx *t, int64_t id, bool *out, pf_err *err)
{
    int64_t n = 0;
    pf_status status =
        db_number(t->d, &n, err, "SELECT count(*) FROM profile WHERE id = ? AND owner = ?", "ii",
                  id, t->user);
    *out = n > 0;
    return status;
}

pf_status json_object_check(const char *text, const char *what, pf_err *err)
{
    json_t *value = NULL;
    if (!text || !*text) return PF_OK;
    pf_status status = json_parse(text, strlen(text), what, &value, err);
    if (status == PF_OK && !json_is_object(value))
        status = err_set(err, PF_REFUSED, "%s must be a JSON object", what);
    json_decref(value);
    return status;
}

/* --- versions --------------------------------------------------------------------------------- */

static void copy_digest(const record *b, unsigned field, unsigned char out[32], bool *has)
{
    const void *data = NULL;
    size_t len = 0;
    bool found = record_get(b, field, &data, &len) && len == 32;
    if (found) memcpy(out, data, 32);
    if (has) *has = found;
}

static pf_status take_version(void *ctx, const row *r, pf_err *err)
{
    (void)err;
    version_rows *rows = ctx;
    const record *b = &r->body;
    rows->items = xrealloc_array(rows->items, rows->n + 1, sizeof *rows->items);
    version_row *v = &rows->items[rows->n++];
    *v = (version_row){.blob = record_get_int(b, VERSION_BLOB),
                       .v = {.id = r->id,
                             .number = record_get_int(b, VERSION_NUMBER),
                             .created_ms = record_get_int(b, VERSION_CREATED),
                             .kind = record_get_text(b, VERSION_KIND),
                             .max_rank = (int)record_get_int(b, VERSION_RANK),
                             .bytes = (uint64_t)record_get_int(b, VERSION_BYTES),
                             .base_name = record_get_text(b, VERSION_BASE_NAME),
                             .training = record_get_text(b, VERSION_TRAINING),
                             .provenance = record_get_text(b, VERSION_PROVENANCE)}};
    copy_digest(b, VERSION_DIGEST, v->v.digest, NULL);
    copy_digest(b, VERSION_BASE_DIGEST, v->v.base_digest, &v->v.has_base_digest);
    return PF_OK;
}

pf_status version_rows_read(tx *t, const profile_row *p, version_rows *out, pf_err *err)
{
    vault_head found;
    damage bad = {0};
    *out = (version_rows){0};
    pf_status status = row_scan(t, ROW_VERSION, p->row.id, &found, &bad, take_version, out, err);
    if (status == PF_OK) {
        buf what = {0};
        buf_printf(&what, "adapter versions of profile \"%s\"", p->name);
        status = damage_report(&bad, &found, &p->versions, buf_str(&what), err);
        wipe_buf(&what);
    }
    damage_free(&bad);
    return status;
}

void version_rows_free(version_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        profile_version_free(&rows->items[i].v);
    free(rows->items);
    *rows = (version_rows){0};
}

version_row *version_rows_find(version_rows *rows, int64_t number)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->items[i].v.number == number) return &rows->items[i];
    return NULL;
}
