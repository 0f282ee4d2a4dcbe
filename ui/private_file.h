/* private_file: texts that have to be files temporarily: a draft in $EDITOR, a copied message. They
 * are kept in a memory-backed folder where the system has one, else in the store's folder; only
 * their owner can read them; they are overwritten before they are removed. Files left by a killed
 * process are wiped when the next one makes a folder. */
#ifndef PF_UI_PRIVATE_FILE_H
#define PF_UI_PRIVATE_FILE_H

#include "base/buf.h"
#include "base/err.h"

typedef struct {
    char *path; /* absolute; NULL: none */
    int lock;   /* held while the process lives */
} private_folder;

/* Makes a folder; fallback: where to, when there is neither $XDG_RUNTIME_DIR nor /dev/shm. */
pf_status private_folder_make(const char *fallback, private_folder *out, pf_err *err);
/* Writes a new file; *path (owned) is where. */
pf_status private_folder_write(const private_folder *f, const char *name, const char *text,
                               size_t len, char **path, pf_err *err);
/* Overwrites and removes everything in it, then the folder. Harmless when there is none. */
void private_folder_wipe(private_folder *f);

#endif
