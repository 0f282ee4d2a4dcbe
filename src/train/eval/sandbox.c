#include "train/eval/sandbox.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATHS         "/usr/local/bin:/usr/bin:/bin"
#define SCRATCH       "/dev/shm" /* covered by an empty file system of the program's own */
#define FILE_BYTES    (16u << 20)
#define MAX_PROCESSES 64

/* What the child needs, made ready before the fork: after it only system calls are allowed. */
typedef struct {
    const sandbox_options *options;
    int in, null;
    pid_t parent;
    bool isolate;
    char uid_map[64], gid_map[64];
} plan;

/* --- the child: system calls only ----------------------------------------------------------- */

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t len = strlen(text);
    bool ok = write(fd, text, len) == (ssize_t)len;
    close(fd);
    return ok;
}

/* Namespaces of its own: user, network, processes, mounts. Files become read-only. */
static bool enter_namespaces(const plan *p)
{
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) != 0)
        return false;
    if (!write_file("/proc/self/uid_map", p->uid_map)) return false;
    if (!write_file("/proc/self/setgroups", "deny")) return false;
    if (!write_file("/proc/self/gid_map", p->gid_map)) return false;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return false;
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only) != 0) return false;
    return mount("tmpfs", SCRATCH, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0700") == 0;
}

static void limit(int what, rlim_t value)
{
    struct rlimit l = {value, value};
    setrlimit((__rlimit_resource_t)what, &l);
}

static _Noreturn void start(const plan *p)
{
    static char *const environment[] = {(char *)"PATH=" PATHS, (char *)"LANG=C.UTF-8",
                                        (char *)"HOME=" SCRATCH, (char *)"TMPDIR=" SCRATCH, NULL};
    const sandbox_options *o = p->options;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(p->in, 0) < 0 || dup2(p->null, 1) < 0 || dup2(p->null, 2) < 0) _exit(126);
    close_range(3, UINT_MAX, 0);
    if (chdir(p->isolate ? SCRATCH : "/") != 0) _exit(126);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, FILE_BYTES);
    limit(RLIMIT_CPU, (rlim_t)o->seconds + 1);
    if (p->isolate) limit(RLIMIT_NPROC, MAX_PROCESSES);
    limit(RLIMIT_AS, (rlim_t)o->megabytes << 20);
    execve(o->argv[0], (char *const *)o->argv, environment);
    _exit(127);
}

/* From now on the child ends with the thread that waits for it, however that ends: killed, too. */
static void end_with_parent(const plan *p)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != p->parent) _exit(126); /* it was gone before */
}

/* The first process of a new world sees no process outside, not even its parent: the end of a pipe
 * that only the parent holds tells whether it was gone before. */
static _Noreturn void run_inner(const plan *p, const int alive[2])
{
    struct pollfd end = {.fd = alive[0]};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    close(alive[1]);
    if (poll(&end, 1, 0) != 0) _exit(126);
    start(p);
}

/* The outer child leads a process group. With namespaces, an inner one is the first process of its
 * own world: when it goes, all that it started go too. */
static _Noreturn void run_child(const plan *p)
{
    int status = 0, alive[2];
    setsid();
    end_with_parent(p);
    if (!p->isolate) start(p);
    if (!enter_namespaces(p) || pipe2(alive, O_CLOEXEC) != 0) _exit(126);
    end_with_parent(p); /* a change of identity may have undone it */
    pid_t inner = _Fork();
    if (inner < 0) _exit(126);
    if (inner == 0) run_inner(p, alive);
    close(alive[0]);
    while (waitpid(inner, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    limit(RLIMIT_CORE, 0);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(126);
}

/* --- the parent ----------------------------------------------------------------------------- */

/* A file in memory with the text, at its beginning. */
static int text_file(const void *text, size_t len)
{
    int fd = memfd_create("answer", MFD_CLOEXEC);
    if (fd < 0) return -1;
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)text + done, len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            close(fd);
            return -1;
        }
        done += (size_t)n;
    }
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* False if the process did not end by itself before the deadline. */
static bool wait_until(int pidfd, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        int64_t left = deadline_ns - clock_monotonic_ns();
        if (left <= 0) return false;
        int n = poll(&end, 1, (int)(left / 1000000) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

static pf_status run(const sandbox_options *options, bool isolate, const void *text, size_t len,
                     sandbox_end *end, int *exit_code, pf_err *err)
{
    pf_status status = PF_OK;
    plan p = {.options = options, .in = -1, .null = -1, .parent = getpid(), .isolate = isolate};
    int pidfd = -1, wait_status = 0;
    snprintf(p.uid_map, sizeof p.uid_map, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(p.gid_map, sizeof p.gid_map, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    p.in = text_file(text, len);
    p.null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t child = p.in < 0 || p.null < 0 ? -1 : fork();
    if (child == 0) run_child(&p);
    if (child < 0) {
        status = err_errno(err, PF_FAILED, errno, "%s can't be run", options->argv[0]);
        goto out;
    }
    pidfd = pidfd_open(child, 0);
    bool in_time =
        pidfd >= 0 && wait_until(pidfd, clock_monotonic_ns() + (int64_t)(options->seconds * 1e9));
    /* Before it is reaped its number can't belong to anyone else. */
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (pidfd < 0) {
        status = err_set(err, PF_FAILED, "%s can't be watched while it runs", options->argv[0]);
        goto out;
    }
    *exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    *end = !in_time ? SANDBOX_TOO_LONG : WIFEXITED(wait_status) ? SANDBOX_EXITED : SANDBOX_CRASHED;
out:
    if (pidfd >= 0) close(pidfd);
    if (p.in >= 0) close(p.in);
    if (p.null >= 0) close(p.null);
    return status;
}

static pthread_once_t tried = PTHREAD_ONCE_INIT;
static bool isolated;

static void try_isolation(void)
{
    const char *const argv[] = {"/bin/true", NULL};
    const sandbox_options options = {argv, 10, 256};
    sandbox_end end = SANDBOX_CRASHED;
    int code = -1;
    isolated = run(&options, true, "", 0, &end, &code, NULL) == PF_OK && end == SANDBOX_EXITED &&
               code == 0;
}

bool sandbox_isolated(void)
{
    pthread_once(&tried, try_isolation);
    return isolated;
}

pf_status sandbox_run(const sandbox_options *options, const void *text, size_t len,
                      sandbox_end *end, int *exit_code, pf_err *err)
{
    return run(options, sandbox_isolated(), text, len, end, exit_code, err);
}

pf_status sandbox_find(const char *name, char **out, pf_err *err)
{
    char paths[] = PATHS, *rest = NULL;
    if (strchr(name, '/')) {
        char *here = name[0] == '/' ? NULL : getcwd(NULL, 0);
        *out = here ? xasprintf("%s/%s", here, name) : xstrdup(name);
        free(here);
        if (access(*out, X_OK) == 0) return PF_OK;
        free(*out);
        *out = NULL;
        return err_set(err, PF_NOT_FOUND, "there is no program %s", name);
    }
    for (char *folder = strtok_r(paths, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest)) {
        *out = xasprintf("%s/%s", folder, name);
        if (access(*out, X_OK) == 0) return PF_OK;
        free(*out);
        *out = NULL;
    }
    return err_set(err, PF_NOT_FOUND, "there is no program %s in %s", name, PATHS);
}
