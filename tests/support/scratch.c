#include "support/scratch.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_FILE = 256 << 20 };

char *scratch_make(void)
{
    const char *parent = getenv("TMPDIR");
    char *folder = path_join(parent && parent[0] ? parent : "/tmp", "preft-test-XXXXXX");
    if (!mkdtemp(folder)) die("no temporary folder %s", folder);
    return folder;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

void scratch_remove(char *folder)
{
    if (nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) die("%s stays behind", folder);
    free(folder);
}

char *scratch_write(const char *folder, const char *name, const void *data, size_t len)
{
    pf_err err;
    char *path = path_join(folder, name);
    if (file_make_folder(folder, 0700, &err) != PF_OK ||
        file_write_atomic(path, data, len, 0600, &err) != PF_OK)
        die("%s", err.text);
    return path;
}

void scratch_read(const char *path, buf *out)
{
    pf_err err;
    if (file_read(path, MAX_FILE, out, &err) != PF_OK) die("%s", err.text);
}

void scratch_copy_folder(const char *from, const char *to)
{
    struct dirent *entry;
    DIR *dir = opendir(from);
    if (!dir) die("%s can't be listed", from);
    while ((entry = readdir(dir))) {
        buf data = {0};
        char *path = path_join(from, entry->d_name);
        if (entry->d_name[0] != '.' && !file_is_folder(path)) {
            scratch_read(path, &data);
            free(scratch_write(to, entry->d_name, buf_str(&data), data.len));
        }
        buf_free(&data);
        free(path);
    }
    closedir(dir);
}
