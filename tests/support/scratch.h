/* A private temporary folder for a test, and small file work in it. Everything fails the test (ends
 * the process) on error. */
#ifndef PF_TESTS_SCRATCH_H
#define PF_TESTS_SCRATCH_H

#include "base/buf.h"

#include <stddef.h>

/* Makes a new folder under $TMPDIR or /tmp; owned text. */
char *scratch_make(void);
/* Removes it with all that is in it and frees the text. */
void scratch_remove(char *folder);

/* folder/name with these bytes; owned path. */
char *scratch_write(const char *folder, const char *name, const void *data, size_t len);
/* Copies the regular files of a folder; to is made. */
void scratch_copy_folder(const char *from, const char *to);
/* A whole file, appended to out. */
void scratch_read(const char *path, buf *out);

#endif
