#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The mappings that are open, for on_bus_error: more than these are not told by name. */
#define MOST_NAMED 64
static struct {
    const unsigned char *data; /* NULL: free */
    size_t size;
    char path[512];
} named[MOST_NAMED];
static pthread_mutex_t named_lock = PTHREAD_MUTEX_INITIALIZER;

static void name_map(const file_map *map, const char *path)
{
    pthread_mutex_lock(&named_lock);
    for (size_t i = 0; i < MOST_NAMED; i++) {
        if (named[i].data) continue;
        snprintf(named[i].path, sizeof named[i].path, "%s", path);
        named[i].size = map->size;
        named[i].data = map->data;
        break;
    }
    pthread_mutex_unlock(&named_lock);
}

static void forget_map(const file_map *map)
{
    pthread_mutex_lock(&named_lock);
    for (size_t i = 0; i < MOST_NAMED; i++)
        if (named[i].data == map->data) named[i].data = NULL;
    pthread_mutex_unlock(&named_lock);
}

pf_status file_map_open(const char *path, file_map *out, pf_err *err)
{
    *out = (file_map){0};
    int fd = -1;
    uint64_t size = 0;
    pf_status status = file_open_regular(path, &fd, &size, err);
    if (status != PF_OK) return status;
    if (size > SIZE_MAX / 2) {
        close(fd);
        return err_set(err, PF_REFUSED, "%s is too large to be mapped", path);
    }
    if (size > 0) {
        void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            int saved = errno;
            close(fd);
            return err_errno(err, PF_FAILED, saved, "%s can't be mapped", path);
        }
        out->data = data;
        out->size = (size_t)size;
        name_map(out, path);
    }
    close(fd);
    return PF_OK;
}

void file_map_close(file_map *map)
{
    if (map->data) {
        forget_map(map);
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (file_map){0};
}

/* The fault is a thread's own, while it reads a mapping: it holds no lock that die needs. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (size_t i = 0; info->si_code > 0 && i < MOST_NAMED; i++) {
        const uintptr_t start = (uintptr_t)named[i].data;
        if (start && at >= start && at - start < named[i].size)
            die("%s was cut off by another program, or can't be read any more, while it was in "
                "use; what had been saved is safe. Put the whole file in its place and start again",
                named[i].path);
    }
    raise(number); /* the handler was reset: this ends the process as it would have ended */
}

void file_map_explain(void)
{
    struct sigaction before,
        action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
    if (sigaction(SIGBUS, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
        before.sa_handler == SIG_DFL)
        (void)sigaction(SIGBUS, &action, NULL);
}
