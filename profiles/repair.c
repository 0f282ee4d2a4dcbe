/* Making a user's data whole again after damage: what is genuine stays, the rest goes. */
#include "profiles/backup.h"

#include "base/mem.h"
#include "profiles/history_rows.h"
#include "profiles/profile_rows.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tx *t;
    int64_t n_removed;
} repair;

/* Removes the rows of owner that can't be opened, and gives the digest of what is left. keep (may
 * be NULL) looks at each genuine row and may ask for its removal with PF_DAMAGED. */
typedef pf_status (*keeper)(repair *r, int64_t id, pf_err *err);

static pf_status clean(repair *r, row_kind kind, int64_t owner, keeper keep, vault_head *head,
                       pf_err *err)
{
    row_id_list list;
    vault_head ignored = {0};
    pf_status status = row_ids(r->t, kind, owner, &list, err);
    for (size_t i = 0; i < list.n && status == PF_OK; i++) {
        row opened = {0};
        int64_t n = 0;
        status = row_read(r->t, kind, list.items[i], &opened, err);
        row_free(&opened);
        if (status == PF_OK && keep) status = keep(r, list.items[i], err);
        if (status != PF_DAMAGED) continue;
        status = row_remove_from(r->t, kind, owner, list.items[i], true, &ignored, &n, err);
        r->n_removed += n;
    }
    free(list.items);
    if (status == PF_OK) status = row_head(r->t, kind, owner, head, err);
    return status;
}

/* A version is kept if its blob is whole. */
static pf_status keep_version(repair *r, int64_t id, pf_err *err)
{
    row opened = {0};
    unsigned char digest[32];
    const void *kept = NULL;
    size_t len = 0;
    pf_status status = row_read(r->t, ROW_VERSION, id, &opened, err);
    if (status != PF_OK) return status;
    int64_t blob = record_get_int(&opened.body, VERSION_BLOB);
    status =
        blob_verify(r->t, blob, (uint64_t)record_get_int(&opened.body, VERSION_BYTES), digest, err);
    if (status == PF_OK && (!record_get(&opened.body, VERSION_DIGEST, &kept, &len) || len != 32 ||
                            memcmp(kept, digest, 32) != 0))
        status = err_set(err, PF_DAMAGED, "the content is not the one that was saved");
    if (status == PF_DAMAGED && blob_remove(r->t, blob, err) != PF_OK) status = PF_FAILED;
    row_free(&opened);
    return status;
}

static pf_status keep_profile(repair *r, int64_t id, pf_err *err)
{
    user_head ignored = {0};
    profile_row p = {0};
    version_rows versions = {0};
    pf_status status = profile_row_read(r->t, id, &p, err);
    if (status == PF_OK) status = clean(r, ROW_VERSION, id, keep_version, &p.versions, err);
    if (status == PF_OK) status = clean(r, ROW_CHECKPOINT, id, NULL, &p.checkpoints, err);
    if (status == PF_OK) status = version_rows_read(r->t, &p, &versions, err);
    if (status == PF_OK && p.current && !version_rows_find(&versions, p.current)) p.current = 0;
    if (status == PF_OK) status = profile_row_write(r->t, &ignored, &p, NULL, err);
    version_rows_free(&versions);
    profile_row_free(&p);
    return status;
}

static pf_status keep_conversation(repair *r, int64_t id, pf_err *err)
{
    user_head ignored = {0};
    conversation_row c = {0};
    pf_status status = conversation_row_read(r->t, id, &c, err);
    if (status == PF_OK) status = clean(r, ROW_MESSAGE, id, NULL, &c.messages, err);
    if (status == PF_OK) status = conversation_row_write(r->t, &ignored, &c, NULL, err);
    conversation_row_free(&c);
    return status;
}

static pf_status renew_head(repair *r, user_head *head, pf_err *err)
{
    pf_status status = user_head_read(r->t, head, err);
    if (status != PF_DAMAGED) return status;
    status = db_run(r->t->d, err, "DELETE FROM user_head WHERE owner = ?", "i", r->t->user);
    if (status == PF_OK) status = user_head_create(r->t, err);
    r->n_removed++;
    return status == PF_OK ? user_head_read(r->t, head, err) : status;
}

pf_status doctor_repair(session *s, int64_t *n_removed, pf_err *err)
{
    tx t;
    user_head head = {0};
    repair r = {.t = &t};
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    const int64_t user = t.user;
    status = renew_head(&r, &head, err);
    if (status == PF_OK) status = clean(&r, ROW_PROFILE, user, keep_profile, &head.profiles, err);
    if (status == PF_OK)
        status = clean(&r, ROW_CONVERSATION, user, keep_conversation, &head.conversations, err);
    if (status == PF_OK) status = clean(&r, ROW_SETTING, user, NULL, &head.settings, err);
    if (status == PF_OK) status = clean(&r, ROW_NOTE, user, NULL, &head.notes, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK) *n_removed = r.n_removed;
    if (status == PF_OK) store_scrub(s->store);
    return status;
}
