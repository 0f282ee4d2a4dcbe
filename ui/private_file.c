#include "ui/private_file.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX ".preft-text-"
#define LOCK   ".preft-text-lock"

/* A folder of the person's own that nobody else can write to (the folder itself, or, as /dev/shm
 * is, one where others can't touch what isn't theirs). */
static bool usable(const char *path)
{
    struct stat st;
    if (!path || path[0] != '/' || stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return false;
    bool own = st.st_uid == geteuid() && !(st.st_mode & 077);
    bool sticky = st.st_mode & S_ISVTX;
    return (own || sticky) && access(path, W_OK | X_OK) == 0;
}

static void wipe_file(int folder, const char *name)
{
    static const char zeros[4096];
    int fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        for (off_t left = st.st_size; left > 0;) {
            size_t n = left < (off_t)sizeof zeros ? (size_t)left : sizeof zeros;
            ssize_t done = write(fd, zeros, n);
            if (done <= 0) break;
            left -= done;
        }
        fdatasync(fd);
    }
    if (fd >= 0) close(fd);
    unlinkat(folder, name, 0);
}

static void wipe_folder(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return;
    for (const struct dirent *d; (d = readdir(dir));)
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            wipe_file(dirfd(dir), d->d_name);
    closedir(dir);
    rmdir(path);
}

/* Is this a folder of ours whose process is gone? */
static bool left_behind(const char *path)
{
    struct stat st;
    bool gone = false;
    char *name = xasprintf("%s/" LOCK, path);
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
        !(st.st_mode & 077)) {
        int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        gone = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (fd >= 0) close(fd);
    }
    free(name);
    return gone;
}

static void wipe_left_behind(const char *base)
{
    DIR *dir = opendir(base);
    if (!dir) return;
    for (const struct dirent *d; (d = readdir(dir));) {
        if (strncmp(d->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        char *path = xasprintf("%s/%s", base, d->d_name);
        if (left_behind(path)) wipe_folder(path);
        free(path);
    }
    closedir(dir);
}

pf_status private_folder_make(const char *fallback, private_folder *out, pf_err *err)
{
    const char *bases[] = {getenv("XDG_RUNTIME_DIR"), "/dev/shm", fallback}, *base = NULL;
    *out = (private_folder){.lock = -1};
    for (size_t i = 0; i < sizeof bases / sizeof *bases && !base; i++)
        if (usable(bases[i])) base = bases[i];
    if (!base)
        return err_set(err, PF_FAILED,
                       "there is no private place for a file: neither $XDG_RUNTIME_DIR nor "
                       "/dev/shm can be written to");
    wipe_left_behind(base);
    out->path = xasprintf("%s/" PREFIX "XXXXXX", base);
    char *lock = NULL;
    pf_status status = PF_OK;
    if (!mkdtemp(out->path)) {
        status = err_errno(err, PF_FAILED, errno, "no folder could be made in %s", base);
        free(out->path);
        out->path = NULL;
        return status;
    }
    lock = xasprintf("%s/" LOCK, out->path);
    out->lock = open(lock, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out->lock < 0 || flock(out->lock, LOCK_EX | LOCK_NB) != 0) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be used", out->path);
        private_folder_wipe(out);
    }
    free(lock);
    return status;
}

pf_status private_folder_write(const private_folder *f, const char *name, const char *text,
                               size_t len, char **path, pf_err *err)
{
    char *file = xasprintf("%s/%s", f->path, name);
    pf_status status = PF_OK;
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) status = err_errno(err, PF_FAILED, errno, "%s can't be written", file);
    for (size_t done = 0; status == PF_OK && done < len;) {
        ssize_t n = write(fd, text + done, len - done);
        if (n < 0 && errno != EINTR)
            status = err_errno(err, PF_FAILED, errno, "%s can't be written", file);
        if (n > 0) done += (size_t)n;
    }
    if (fd >= 0) close(fd);
    if (status == PF_OK)
        *path = file;
    else
        free(file);
    return status;
}

void private_folder_wipe(private_folder *f)
{
    if (!f->path) return;
    wipe_folder(f->path);
    if (f->lock >= 0) close(f->lock);
    free(f->path);
    *f = (private_folder){.lock = -1};
}
