/* The tables and the migrations between schema versions. Internal to profiles/. */
#ifndef PF_PROFILES_SCHEMA_H
#define PF_PROFILES_SCHEMA_H

#include "profiles/db.h"

/* Marks the file as this program's (SQLite's application_id): "prft". */
#define SCHEMA_APPLICATION 0x70726674

/* Element n migrates a store from version n to n + 1. */
typedef struct {
    const char *sql;
} schema_step;
extern const schema_step schema_steps[];
extern const int schema_version; /* of this program: the number of steps */

/* Looks at the header of the file without opening it as a database: nothing is written, no side
 * file made. PF_OK: *version (0: an empty file); PF_REFUSED: another kind of file, or newer than
 * `newest`; PF_DAMAGED: shorter than its header. */
pf_status schema_examine(const char *path, int newest, int *version, pf_err *err);

/* The path of the copy that is made of a store before it is migrated from a version. Owned. */
char *schema_copy_name(const char *path, int version);

/* Brings d to version n_steps, in one transaction. A store that has tables is first copied to
 * PATH.v<version>, mode 0600. Safe when several processes do it at once. */
pf_status schema_migrate(db *d, const schema_step *steps, int n_steps, pf_err *err);

/* Compares every object of the schema with what the steps make. PF_DAMAGED names the first
 * difference: an added trigger, say. */
pf_status schema_check(db *d, pf_err *err);

/* Copies an open database to a new file of mode 0600 that needs no side file, by way of an
 * unguessable name, synced. With `replace` an existing file is replaced, else PF_USAGE. */
pf_status schema_copy(db *d, const char *path, bool replace, pf_err *err);

#endif
