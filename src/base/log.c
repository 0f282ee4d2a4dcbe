#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static log_level most_level;

pf_status log_open(const char *path, log_level most, pf_err *err)
{
    int fd = STDERR_FILENO;
    if (path) {
        /* without waiting for someone to read a FIFO */
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0) return err_errno(err, PF_FAILED, errno, "the log %s can't be opened", path);
        fcntl(fd, F_SETFL, O_APPEND);
    }
    pthread_mutex_lock(&lock);
    log_fd = fd;
    most_level = most;
    pthread_mutex_unlock(&lock);
    return PF_OK;
}

void log_close(void)
{
    pthread_mutex_lock(&lock);
    if (log_fd > STDERR_FILENO) close(log_fd);
    log_fd = -1;
    pthread_mutex_unlock(&lock);
}

void log_write(log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    pthread_mutex_lock(&lock);
    if (log_fd >= 0 && level <= most_level) {
        int64_t now = clock_unix_ms();
        dprintf(log_fd, "%lld.%03d %s ", (long long)(now / 1000), (int)(now % 1000), names[level]);
        va_list args;
        va_start(args, fmt);
        vdprintf(log_fd, fmt, args);
        va_end(args);
        dprintf(log_fd, "\n");
    }
    pthread_mutex_unlock(&lock);
}
