/* The files that come from outside, each with a valid one, its parts, and the function that reads
 * it: what tests/unit/test_mutations.c goes through. */
#ifndef PF_TESTS_FORMATS_H
#define PF_TESTS_FORMATS_H

#include "base/err.h"
#include "fuzz/mutate.h"

typedef struct {
    const char *name;
    const char *source;                /* a valid file, or a folder; NULL: make does it */
    const char *file;                  /* the file of the folder that is damaged, or NULL */
    void (*make)(buf *out);            /* writes the valid file; NULL: source */
    void (*find_parts)(mutate_file *); /* NULL: none are known */
    /* Damages the file at path, in place of mutate_damage. NULL: mutate_damage */
    void (*damage)(const char *path, mutate_random *r);
    /* Reads as the program does, and uses what was read. path: the file, or the folder. Ends the
     * process (PF_ASSERT) where something is accepted that isn't whole. */
    pf_status (*read)(const char *path, pf_err *err);
    unsigned cases; /* in a quick run */
} file_format;

extern const file_format file_formats[];
extern const size_t n_file_formats;

/* What the readers need: a small model, a store with a user. */
void formats_open(void);
void formats_close(void);

/* --- a store's backup (store.c) ------------------------------------------------------------- */

void store_make_backup(buf *out);
void store_damage_rows(const char *path, mutate_random *r);
pf_status store_read_backup(const char *path, pf_err *err);
pf_status store_read_conversations(const char *path, pf_err *err);
void store_formats_open(void);
void store_formats_close(void);

#endif
