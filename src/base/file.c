#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_words(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a folder";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return "not a regular file";
    }
}

pf_status file_open_regular(const char *path, int *fd, uint64_t *size, pf_err *err)
{
    /* O_NONBLOCK: opening a FIFO without a writer must return, to be refused below. */
    int handle = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (handle < 0) {
        pf_status status = errno == ENOENT || errno == ENOTDIR ? PF_NOT_FOUND : PF_FAILED;
        return err_errno(err, status, errno, "%s can't be opened", path);
    }
    struct stat info;
    if (fstat(handle, &info) != 0) {
        int saved = errno;
        close(handle);
        return err_errno(err, PF_FAILED, saved, "%s can't be examined", path);
    }
    if (!S_ISREG(info.st_mode)) {
        close(handle);
        return err_set(err, PF_REFUSED, "%s is %s; a regular file is needed", path,
                       kind_words(info.st_mode));
    }
    *fd = handle;
    *size = (uint64_t)info.st_size;
    return PF_OK;
}

pf_status file_read_fd(int fd, const char *name, size_t max, buf *out, pf_err *err)
{
    size_t start = out->len;
    for (;;) {
        buf_reserve(out, 65536);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(err, PF_FAILED, errno, "%s can't be read", name);
        if (n == 0) break;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len - start > max)
            return err_set(err, PF_REFUSED, "%s is larger than the limit of %zu bytes", name, max);
    }
    return PF_OK;
}

pf_status file_read(const char *path, size_t max, buf *out, pf_err *err)
{
    int fd = -1;
    uint64_t size = 0;
    pf_status status = file_open_regular(path, &fd, &size, err);
    if (status != PF_OK) return status;
    if (size > max)
        status = err_set(err, PF_REFUSED, "%s has %llu bytes, more than the limit of %zu", path,
                         (unsigned long long)size, max);
    else
        status = file_read_fd(fd, path, max, out, err);
    close(fd);
    return status;
}

pf_status file_read_at(int fd, const char *name, uint64_t offset, void *out, size_t len,
                       pf_err *err)
{
    char *to = out;
    while (len > 0) {
        ssize_t n = pread(fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(err, PF_FAILED, errno, "%s can't be read", name);
        if (n == 0)
            return err_set(err, PF_REFUSED,
                           "%s became shorter while it was read; try again when the program that "
                           "writes it is done",
                           name);
        to += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return PF_OK;
}

bool file_is_full(int errno_value)
{
    return errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG;
}

pf_status file_write_failed(pf_err *err, int errno_value, const char *path)
{
    if (!file_is_full(errno_value))
        return err_errno(err, PF_FAILED, errno_value, "%s can't be written", path);
    return err_errno(err, PF_FAILED, errno_value,
                     "%s can't be written, the disk is full; make room and try again", path);
}

static pf_status write_all(int fd, const char *data, size_t len, const char *path, pf_err *err)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_write_failed(err, errno, path);
        data += n;
        len -= (size_t)n;
    }
    return PF_OK;
}

/* The folder that path stands in. Owned. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return xstrdup(".");
    return slash == path ? xstrdup("/") : xmemdup0(path, (size_t)(slash - path));
}

/* Syncs the folder that holds path, so that a rename in it survives a power cut. */
static void sync_folder_of(const char *path)
{
    char *folder = folder_of(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems can't sync folders; the data itself is synced */
        close(fd);
    }
    free(folder);
}

pf_status file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                            pf_err *err)
{
    pf_status status = PF_OK;
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(err, PF_FAILED, errno, "no random bytes for a temporary name");
    char *temporary = xasprintf("%s.%016llx%016llx", path, (unsigned long long)random[0],
                                (unsigned long long)random[1]);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be written", path);
        goto out;
    }
    status = write_all(fd, data, len, path, err);
    if (status == PF_OK && fsync(fd) != 0) status = file_write_failed(err, errno, path);
    if (close(fd) != 0 && status == PF_OK) status = file_write_failed(err, errno, path);
    if (status == PF_OK && rename(temporary, path) != 0)
        status = err_errno(err, PF_FAILED, errno, "%s can't be replaced", path);
    if (status != PF_OK)
        unlink(temporary);
    else
        sync_folder_of(path);
out:
    free(temporary);
    return status;
}

pf_status file_write_new(const char *path, const void *data, size_t len, mode_t mode, pf_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return err_set(err, PF_USAGE, "%s is there already; choose another name", path);
    if (fd < 0) return err_errno(err, PF_FAILED, errno, "%s can't be written", path);
    pf_status status = write_all(fd, data, len, path, err);
    if (status == PF_OK && fsync(fd) != 0) status = file_write_failed(err, errno, path);
    if (close(fd) != 0 && status == PF_OK) status = file_write_failed(err, errno, path);
    if (status != PF_OK)
        unlink(path);
    else
        sync_folder_of(path);
    return status;
}

pf_status file_make_folder(const char *path, mode_t mode, pf_err *err)
{
    char *partial = xstrdup(path);
    pf_status status = PF_OK;
    for (char *p = partial + 1; *p && status == PF_OK; p++) {
        if (*p != '/') continue;
        *p = '\0';
        if (mkdir(partial, 0755) != 0 && errno != EEXIST)
            status = err_errno(err, PF_FAILED, errno, "the folder %s can't be made", partial);
        *p = '/';
    }
    if (status == PF_OK && mkdir(path, mode) != 0 && !(errno == EEXIST && file_is_folder(path)))
        status = err_errno(err, PF_FAILED, errno, "the folder %s can't be made", path);
    free(partial);
    return status;
}

pf_status file_check_place(const char *path, bool makes_folders, pf_err *err)
{
    if (!makes_folders && file_is_folder(path))
        return err_set(err, PF_USAGE, "%s is a folder; a file is to be written", path);
    char *place = makes_folders ? xstrdup(path) : folder_of(path);
    while (makes_folders && !file_exists(place)) {
        char *above = folder_of(place);
        free(place);
        place = above;
    }
    pf_status status = PF_OK;
    if (!file_is_folder(place))
        status = err_set(err, PF_NOT_FOUND, "%s can't be written: %s is no folder", path, place);
    else if (access(place, W_OK | X_OK) != 0)
        status =
            err_errno(err, PF_FAILED, errno, "%s can't be written: the folder %s", path, place);
    free(place);
    return status;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *path_join(const char *folder, const char *name)
{
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    const char *slash = len == 1 && folder[0] == '/' ? "" : "/";
    return xasprintf("%.*s%s%s", (int)len, folder, slash, name);
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *path_expand_home(const char *path)
{
    const char *home = getenv("HOME");
    if (home && path[0] == '~' && (path[1] == '/' || !path[1]))
        return xasprintf("%s%s", home, path + 1);
    return xstrdup(path);
}
