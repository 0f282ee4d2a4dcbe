/* Profiles and their versions as rows. Internal to profiles/. */
#ifndef PF_PROFILES_PROFILE_ROWS_H
#define PF_PROFILES_PROFILE_ROWS_H

#include "profiles/internal.h"
#include "profiles/profile.h"

/* A profile's row, unsealed and writable. */
typedef struct {
    row row;
    char *name, *settings;
    int64_t created_ms, updated_ms;
    int64_t current;     /* version's number; 0: plain */
    int64_t next_number; /* of the next version */
    vault_head versions, checkpoints;
} profile_row;

void profile_row_take(const row *r, profile_row *out); /* copies; row itself is left out */
pf_status profile_row_read(tx *t, int64_t id, profile_row *out, pf_err *err);
void profile_row_free(profile_row *p);

/* Inserts (row.id 0) or updates, keeping head up to date. *id may be NULL. */
pf_status profile_row_write(tx *t, user_head *head, profile_row *p, int64_t *id, pf_err *err);
/* Makes a profile, if the name is free, and reads head and row for a change. settings may be NULL.
 */
pf_status profile_row_create(tx *t, const char *name, const char *settings, user_head *head,
                             profile_row *p, pf_err *err);
/* Writes both back. */
pf_status profile_row_save(tx *t, user_head *head, profile_row *p, pf_err *err);

/* A change of one profile, in a transaction of its own. */
typedef struct {
    tx t;
    user_head head;
    profile_row p;
} profile_change;
/* Of one that is there, or of one that is made as by profile_row_create. Not PF_OK: nothing is
 * open.
 */
pf_status profile_change_begin(profile_change *c, session *s, int64_t id, pf_err *err);
pf_status profile_change_create(profile_change *c, session *s, const char *name,
                                const char *settings, pf_err *err);
/* If status is PF_OK, commits what was changed in head and p and elsewhere; else nothing. */
pf_status profile_change_end(profile_change *c, pf_status status, pf_err *err);
/* The same where head is written already and p as it should be, or gone. */
pf_status profile_change_close(profile_change *c, pf_status status, pf_err *err);

/* Checks a new name (except: the id that may have it already) and gives its composed form, owned.
 */
pf_status profile_free_name(tx *t, const char *name, int64_t except, char **composed, pf_err *err);

/* Fields of a version's record. */
enum {
    VERSION_NUMBER = 1,
    VERSION_CREATED,
    VERSION_KIND,
    VERSION_RANK,
    VERSION_BYTES,
    VERSION_DIGEST,
    VERSION_BASE_DIGEST,
    VERSION_BASE_NAME,
    VERSION_TRAINING,
    VERSION_PROVENANCE,
    VERSION_BLOB
};

/* A version with its blob's id. */
typedef struct {
    profile_version v;
    int64_t blob;
} version_row;

/* All versions of a profile, in order; PF_DAMAGED as lists do. */
typedef struct {
    version_row *items;
    size_t n;
} version_rows;
pf_status version_rows_read(tx *t, const profile_row *p, version_rows *out, pf_err *err);
void version_rows_free(version_rows *rows);
/* NULL: not there. */
version_row *version_rows_find(version_rows *rows, int64_t number);

#endif
