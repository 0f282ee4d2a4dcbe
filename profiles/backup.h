/* Backup, restore and examination of a store. */
#ifndef PF_PROFILES_BACKUP_H
#define PF_PROFILES_BACKUP_H

#include "profiles/user.h"

/* Writes the whole store, still sealed, as one self-contained file of mode 0600, while it is in
 * use. Appears under its name only when complete and checked. An existing file is replaced only
 * with `replace` (else PF_USAGE). */
pf_status backup_write(store *s, const char *path, bool replace, pf_err *err);

/* Puts a backup in the place of the store of folder home (made if absent). The backup is copied and
 * checked first (format, version, integrity, schema); only then is anything replaced, in one step.
 * Refused while the store is open anywhere (PF_BUSY). What was there before is kept beside it under
 * the name *kept (owned; NULL if there was nothing), which is a new one. */
pf_status backup_restore(const char *home, const char *path, char **kept, pf_err *err);

/* The names of older copies of the store in its folder (left by a restore or a format migration),
 * separated by commas; owned. They hold data that was deleted since. NULL: none. */
char *backup_copies(const char *home);

/* One finding of an examination. */
typedef struct {
    bool ok;
    char *what;   /* what was examined: "integrity", "permissions", "keys", ... */
    char *detail; /* what was found */
    char *advice; /* what to do; "" if ok */
} doctor_item;
typedef struct {
    doctor_item *items;
    size_t n;
    size_t n_bad;
} doctor_report;

/* Examines folder, files, format, schema, integrity, key records and orphan rows of the store in
 * home; with a session (may be NULL) also authenticates every sealed value of that user. Works on
 * stores that store_open refuses. PF_OK also when there are findings: see n_bad. */
pf_status doctor_examine(const char *home, session *s, doctor_report *out, pf_err *err);
void doctor_report_free(doctor_report *r);

/* Makes a user's data consistent again, in one transaction: removes what is not authentic (values
 * that can't be opened, rows moved from other places) and seals new set digests over what is left.
 * Lost content stays lost; without this, a damaged set digest keeps the user from saving.
 * *n_removed is the number of rows that were removed. */
pf_status doctor_repair(session *s, int64_t *n_removed, pf_err *err);

#endif
