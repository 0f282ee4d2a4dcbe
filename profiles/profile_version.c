/* Adapter versions of profiles. */
#include "profiles/profile.h"

#include "base/clock.h"
#include "base/mem.h"
#include "models/adapter_blob.h"
#include "profiles/name.h"
#include "profiles/profile_rows.h"
#include "profiles/secret.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* What a blob says about itself. */
typedef struct {
    const char *kind;
    int max_rank;
    bool has_base_digest;
    unsigned char base_digest[32], digest[32];
} blob_facts;

static pf_status examine_blob(const void *blob, size_t len, blob_facts *out, pf_err *err)
{
    adapter_view view = {0};
    pf_status status = adapter_view_open(blob, len, NULL, &view, err);
    if (status != PF_OK) return status;
    *out = (blob_facts){.kind = adapter_kind_name(view.direft, view.prefill_only),
                        .has_base_digest = view.has_base_digest};
    for (size_t i = 0; i < view.n_items; i++)
        if (view.items[i].rank > out->max_rank) out->max_rank = view.items[i].rank;
    memcpy(out->base_digest, view.base_digest, sizeof out->base_digest);
    memcpy(out->digest, view.digest, sizeof out->digest);
    adapter_view_close(&view);
    return PF_OK;
}

static pf_status insert_version(tx *t, profile_row *p, const void *blob, size_t len,
                                const blob_facts *facts, const profile_version_record *about,
                                pf_err *err)
{
    record_writer w = {0};
    int64_t blob_id = 0;
    pf_status status = blob_save(t, p->row.id, blob, len, &blob_id, err);
    if (status != PF_OK) return status;
    record_put_int(&w, VERSION_NUMBER, p->next_number);
    record_put_int(&w, VERSION_CREATED, clock_unix_ms());
    record_put_text(&w, VERSION_KIND, facts->kind);
    record_put_int(&w, VERSION_RANK, facts->max_rank);
    record_put_int(&w, VERSION_BYTES, (int64_t)len);
    record_put(&w, VERSION_DIGEST, facts->digest, 32);
    if (facts->has_base_digest) record_put(&w, VERSION_BASE_DIGEST, facts->base_digest, 32);
    record_put_text(&w, VERSION_BASE_NAME, about->base_name);
    record_put_text(&w, VERSION_TRAINING, about->training);
    record_put_text(&w, VERSION_PROVENANCE, about->provenance);
    record_put_int(&w, VERSION_BLOB, blob_id);
    status = row_insert(t, ROW_VERSION, p->row.id, &w, NULL, &p->versions, NULL, err);
    record_free(&w);
    if (status != PF_OK) return status;
    p->current = p->next_number++;
    return PF_OK;
}

static pf_status check_record(const profile_version_record *about, pf_err *err)
{
    pf_status status = json_object_check(about->training, "the training record", err);
    return status == PF_OK ? json_object_check(about->provenance, "the provenance", err) : status;
}

/* Of the profile *id; 0: of one that is made with the name. */
static pf_status add_version(session *s, int64_t *id, const char *name, const void *blob,
                             size_t len, const profile_version_record *about, int64_t *number,
                             pf_err *err)
{
    static const profile_version_record nothing = {0};
    profile_change c;
    blob_facts facts;
    if (!about) about = &nothing;
    if (len > PROFILE_MAX_ADAPTER_BYTES)
        return err_set(err, PF_REFUSED, "the adapter has %zu bytes; at most %llu can be kept", len,
                       PROFILE_MAX_ADAPTER_BYTES);
    pf_status status = examine_blob(blob, len, &facts, err);
    if (status == PF_OK) status = check_record(about, err);
    if (status == PF_OK)
        status = *id ? profile_change_begin(&c, s, *id, err)
                     : profile_change_create(&c, s, name, NULL, err);
    if (status != PF_OK) return status;
    status = insert_version(&c.t, &c.p, blob, len, &facts, about, err);
    const int64_t profile = c.p.row.id, made = c.p.current;
    status = profile_change_end(&c, status, err);
    if (status != PF_OK) return status;
    *id = profile;
    *number = made;
    return PF_OK;
}

pf_status profile_add_version(session *s, int64_t id, const void *blob, size_t len,
                              const profile_version_record *about, int64_t *number, pf_err *err)
{
    int64_t made = 0;
    return add_version(s, &id, NULL, blob, len, about, number ? number : &made, err);
}

pf_status profile_create_with(session *s, const char *name, const void *blob, size_t len,
                              const profile_version_record *about, int64_t *id, pf_err *err)
{
    int64_t made = 0, number = 0;
    pf_status status = add_version(s, &made, name, blob, len, about, &number, err);
    if (status == PF_OK) *id = made;
    return status;
}

pf_status profile_versions_load(session *s, int64_t id, profile_version_list *out, pf_err *err)
{
    tx t;
    profile_row p = {0};
    version_rows rows = {0};
    *out = (profile_version_list){0};
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = profile_row_read(&t, id, &p, err);
    if (status == PF_OK) status = version_rows_read(&t, &p, &rows, err);
    if (rows.n > 0) out->items = xcalloc(rows.n, sizeof *out->items);
    for (size_t i = 0; i < rows.n; i++) {
        out->items[out->n++] = rows.items[i].v;
        rows.items[i].v = (profile_version){0};
    }
    version_rows_free(&rows);
    profile_row_free(&p);
    return tx_end(&t, status, err);
}

void profile_version_list_free(profile_version_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        profile_version_free(&list->items[i]);
    free(list->items);
    *list = (profile_version_list){0};
}

static pf_status no_version(const profile_row *p, int64_t number, pf_err *err)
{
    return err_set(err, PF_NOT_FOUND, "profile \"%s\" has no adapter version %lld", p->name,
                   (long long)number);
}

/* Finds a version of a profile (number 0: the current one). Damage of other versions is no
 * obstacle. */
static pf_status find_version(tx *t, const profile_row *p, int64_t number, version_rows *rows,
                              version_row **out, pf_err *err)
{
    pf_status status = version_rows_read(t, p, rows, err);
    if (status != PF_OK && status != PF_DAMAGED) return status;
    if (number == 0 && p->current == 0)
        return err_set(err, PF_NOT_FOUND, "profile \"%s\" has no adapter", p->name);
    *out = version_rows_find(rows, number ? number : p->current);
    if (*out) return PF_OK;
    return status == PF_DAMAGED ? status : no_version(p, number ? number : p->current, err);
}

pf_status profile_use_version(session *s, int64_t id, int64_t number, pf_err *err)
{
    profile_change c;
    version_rows rows = {0};
    version_row *found = NULL;
    pf_status status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    if (number != 0) status = find_version(&c.t, &c.p, number, &rows, &found, err);
    c.p.current = number;
    version_rows_free(&rows);
    return profile_change_end(&c, status, err);
}

pf_status profile_remove_version(session *s, int64_t id, int64_t number, pf_err *err)
{
    profile_change c;
    version_rows rows = {0};
    version_row *found = NULL;
    row r = {0};
    pf_status status = profile_change_begin(&c, s, id, err);
    if (status != PF_OK) return status;
    if (number == 0)
        status = no_version(&c.p, number, err);
    else if (number == c.p.current)
        status = err_set(err, PF_USAGE,
                         "version %lld is the current one of \"%s\"; choose another first",
                         (long long)number, c.p.name);
    if (status == PF_OK) status = find_version(&c.t, &c.p, number, &rows, &found, err);
    if (status == PF_OK) status = row_read(&c.t, ROW_VERSION, found->v.id, &r, err);
    if (status == PF_OK) status = row_remove(&c.t, ROW_VERSION, &r, &c.p.versions, err);
    if (status == PF_OK) status = blob_remove(&c.t, found->blob, err);
    row_free(&r);
    version_rows_free(&rows);
    status = profile_change_end(&c, status, err);
    if (status == PF_OK) store_scrub(s->store);
    return status;
}

/* --- reading blobs ---------------------------------------------------------------------------- */

/* One version's blob, to be read at any time. */
typedef struct {
    session *session; /* referenced */
    int64_t blob;
    uint64_t bytes;
    unsigned char digest[32];
    char *what; /* for messages */
    version_row version;
} source;

static void source_free(source *f)
{
    session_unref(f->session);
    wipe_text(f->what);
    profile_version_free(&f->version.v);
    free(f);
}

static pf_status source_open(session *s, int64_t id, int64_t number, source **out, pf_err *err)
{
    tx t;
    profile_row p = {0};
    version_rows rows = {0};
    version_row *found = NULL;
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = profile_row_read(&t, id, &p, err);
    if (status == PF_OK) status = find_version(&t, &p, number, &rows, &found, err);
    if (status == PF_OK) {
        source *f = xcalloc(1, sizeof *f);
        *f = (source){
            .session = session_ref(s),
            .blob = found->blob,
            .bytes = found->v.bytes,
            .what = xasprintf("version %lld of profile \"%s\"", (long long)found->v.number, p.name),
            .version = *found};
        memcpy(f->digest, found->v.digest, sizeof f->digest);
        found->v = (profile_version){0};
        *out = f;
    }
    version_rows_free(&rows);
    profile_row_free(&p);
    return tx_end(&t, status, err);
}

pf_status profile_source_open(session *s, int64_t id, int64_t number, void **ctx,
                              unsigned char digest[32], pf_err *err)
{
    source *f = NULL;
    pf_status status = source_open(s, id, number, &f, err);
    if (status != PF_OK) return status;
    memcpy(digest, f->digest, sizeof f->digest);
    *ctx = f;
    return PF_OK;
}

pf_status profile_source_fetch(void *ctx, buf *out, pf_err *err)
{
    const source *f = ctx;
    unsigned char digest[32];
    buf content = {0};
    pf_status status = blob_read(f->session, f->blob, f->bytes, f->what, &content, err);
    if (status != PF_OK) return status;
    crypto_generichash(digest, sizeof digest, (const unsigned char *)content.data, content.len,
                       NULL, 0);
    if (memcmp(digest, f->digest, sizeof digest) != 0) {
        status = err_set(err, PF_DAMAGED, "%s: the content is not the one that was saved", f->what);
    } else if (!out->data) {
        *out = content;
        content = (buf){0};
    } else {
        buf_append(out, content.data, content.len);
    }
    wipe_buf(&content);
    return status;
}

void profile_source_release(void *ctx)
{
    if (ctx) source_free(ctx);
}

pf_status profile_read_adapter(session *s, int64_t id, int64_t number, buf *out, pf_err *err)
{
    source *f = NULL;
    pf_status status = source_open(s, id, number, &f, err);
    if (status != PF_OK) return status;
    status = profile_source_fetch(f, out, err);
    source_free(f);
    return status;
}

/* --- copying ---------------------------------------------------------------------------------- */

/* The copy's row and, if there is one, the adapter with all that is known about it. */
static pf_status insert_copy(tx *t, const profile_row *from, const char *name, const source *f,
                             const buf *blob, int64_t *id, pf_err *err)
{
    user_head head = {0};
    profile_row p = {0};
    pf_status status = profile_row_create(t, name, from->settings, &head, &p, err);
    *id = p.row.id;
    if (status == PF_OK && f) {
        const profile_version *v = &f->version.v;
        blob_facts facts = {
            .kind = v->kind, .max_rank = v->max_rank, .has_base_digest = v->has_base_digest};
        memcpy(facts.base_digest, v->base_digest, sizeof facts.base_digest);
        memcpy(facts.digest, v->digest, sizeof facts.digest);
        profile_version_record about = {v->base_name, v->training, v->provenance};
        status = insert_version(t, &p, blob->data, blob->len, &facts, &about, err);
    }
    if (status == PF_OK) status = profile_row_save(t, &head, &p, err);
    profile_row_free(&p);
    user_head_free(&head);
    return status;
}

pf_status profile_copy(session *s, int64_t id, const char *name, int64_t *copy, pf_err *err)
{
    tx t;
    source *f = NULL;
    profile_row p = {0};
    buf blob = {0};
    int64_t made = 0;
    pf_status status = source_open(s, id, 0, &f, err);
    if (status == PF_NOT_FOUND) status = PF_OK; /* plain, or no such profile: told below */
    if (status == PF_OK && f) status = profile_source_fetch(f, &blob, err);
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) goto out;
    status = profile_row_read(&t, id, &p, err);
    if (status == PF_OK) status = insert_copy(&t, &p, name, f, &blob, &made, err);
    profile_row_free(&p);
    status = tx_end(&t, status, err);
    if (status == PF_OK && copy) *copy = made;
out:
    wipe_buf(&blob);
    if (f) source_free(f);
    return status;
}
