/* Files: whole-file reads and maps with clear messages, atomic writes, private folders.
 * Files are opened for reading only if they are regular: a FIFO, a device or a folder is refused by
 * name and never blocks. */
#ifndef PF_BASE_FILE_H
#define PF_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a regular file for reading; *fd is the caller's to close. PF_NOT_FOUND if absent,
 * PF_REFUSED if it is a folder, FIFO, socket or device, PF_FAILED otherwise. */
pf_status file_open_regular(const char *path, int *fd, uint64_t *size, pf_err *err);

/* Reads a whole regular file of at most max bytes; appends to out. */
pf_status file_read(const char *path, size_t max, buf *out, pf_err *err);

/* Reads standard input or another descriptor to its end, at most max bytes. name is for messages.
 */
pf_status file_read_fd(int fd, const char *name, size_t max, buf *out, pf_err *err);

/* Reads len bytes from offset on. PF_REFUSED: the file ends before, as when another program cuts it
 * off meanwhile. name is for messages. */
pf_status file_read_at(int fd, const char *name, uint64_t offset, void *out, size_t len,
                       pf_err *err);

/* A read-only shared mapping of a whole regular file. data is NULL for an empty file. For files too
 * large to be copied, the models': reading a part that another program has cut off meanwhile ends
 * the process (see file_map_explain). */
typedef struct {
    const unsigned char *data;
    size_t size;
} file_map;
pf_status file_map_open(const char *path, file_map *out, pf_err *err);
void file_map_close(file_map *map); /* zeroes it */
/* From now on a process that ends since a mapped file was cut off, or can't be read any more, runs
 * die's hook and says so on standard error, with the file's name; exit code 1. */
void file_map_explain(void);

/* Writes data beside path under an unguessable name, syncs, renames over path. On failure path is
 * as it was and nothing is left behind. */
pf_status file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                            pf_err *err);

/* Writes a file that must not exist yet (links count as existing): PF_USAGE if it does. On failure
 * nothing is left behind. */
pf_status file_write_new(const char *path, const void *data, size_t len, mode_t mode, pf_err *err);

/* Whether an errno says that there is no room: on the disk, in a quota, under a limit of the size
 * of files. */
bool file_is_full(int errno_value);
/* The message of a write that failed; returns PF_FAILED. */
pf_status file_write_failed(pf_err *err, int errno_value, const char *path);

/* Makes path and its missing parents with mode (parents 0755). An existing folder is fine. */
pf_status file_make_folder(const char *path, mode_t mode, pf_err *err);

/* Checks, before long work, that a file could be written at path: its folder exists and is writable
 * (makes_folders: the nearest existing parent is), and path itself is no folder (unless
 * makes_folders). */
pf_status file_check_place(const char *path, bool makes_folders, pf_err *err);

bool file_exists(const char *path);
bool file_is_folder(const char *path);

/* "a/b" with exactly one slash between; owned. */
char *path_join(const char *folder, const char *name);
/* The part after the last slash; borrowed from path. */
const char *path_base(const char *path);
/* "~" and "~/x" mean $HOME, as in a shell; owned. */
char *path_expand_home(const char *path);

#endif
