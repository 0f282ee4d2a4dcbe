#include "ui/external_editor.h"

#include "base/file.h"
#include "base/mem.h"
#include "ui/private_file.h"
#include "ui/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME     "message.md"
#define MOST     (16u << 20) /* bytes that are read back */
#define LOOK_MS  200         /* how often it is looked whether the editor has ended */
#define GRACE_MS 2000        /* that an editor has to end when we are asked to */
#define WATCH_FD "9"         /* in the shell below: ends when this process does */

/* $1: the folder, $2: the file, $3: the editor or "". The watcher is told by the end of its
 * standard input that this process has ended, in whatever way, and removes the files, which lie in
 * memory; what lies on a disk is overwritten if the system has the tool for it. */
static const char script[] = "(trap '' HUP INT QUIT TERM TSTP\n"
                             " read -r _ <&" WATCH_FD "\n"
                             " [ -d \"$1\" ] || exit 0\n"
                             " command -v shred >/dev/null && shred -f \"$1\"/* 2>/dev/null\n"
                             " rm -rf \"$1\") >/dev/null 2>&1 &\n"
                             "exec " WATCH_FD "<&-\n"
                             "eval \"${3:-${VISUAL:-${EDITOR:-vi}}} \\\"\\$2\\\"\"\n";

static pf_status start(const char *command, const private_folder *folder, const char *file,
                       int watch, pid_t *pid, pf_err *err)
{
    extern char **environ;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t standard, none;
    char *const argv[] = {(char[]){"sh"},
                          (char[]){"-c"},
                          (char *)(uintptr_t)script,
                          (char[]){"preft-editor"},
                          folder->path,
                          (char *)(uintptr_t)file,
                          (char *)(uintptr_t)(command ? command : ""),
                          NULL};
    sigemptyset(&none);
    sigemptyset(&standard);
    static const int signals[] = {SIGINT, SIGQUIT, SIGPIPE, SIGTSTP, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&standard, signals[i]);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, watch, atoi(WATCH_FD));
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigdefault(&how, &standard);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int code = posix_spawn(pid, "/bin/sh", &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return code ? err_errno(err, PF_FAILED, code, "the editor could not be started") : PF_OK;
}

/* Waits for the editor; when we are asked to end, it is too. */
static int wait_for(pid_t pid)
{
    int status = 0, asked_ms = -1;
    for (;;) {
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid) return status;
        if (done < 0 && errno != EINTR) return -1;
        if (screen_end_signal() && asked_ms < 0) {
            kill(pid, SIGTERM);
            asked_ms = 0;
        }
        if (asked_ms >= GRACE_MS) kill(pid, SIGKILL);
        poll(NULL, 0, LOOK_MS / 4);
        if (asked_ms >= 0) asked_ms += LOOK_MS / 4;
    }
}

pf_status external_edit(const char *command, const char *text, size_t len, const char *fallback,
                        bool on_terminal, buf *out, pf_err *err)
{
    private_folder folder = {.lock = -1};
    char *file = NULL;
    int watch[2] = {-1, -1}, ended = 0;
    pid_t pid = 0;
    buf changed = {0};
    pf_status status = private_folder_make(fallback, &folder, err);
    if (status == PF_OK) status = private_folder_write(&folder, NAME, text, len, &file, err);
    if (status == PF_OK && pipe2(watch, O_CLOEXEC) != 0)
        status = err_errno(err, PF_FAILED, errno, "no pipe to the editor could be made");
    if (status != PF_OK) goto out;
    if (on_terminal) screen_lend();
    status = start(command, &folder, file, watch[0], &pid, err);
    if (status == PF_OK) ended = wait_for(pid);
    if (on_terminal) screen_take_back();
    if (status == PF_OK && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0))
        status = err_set(err, PF_FAILED, "the editor ended with an error; your text is as it was");
    if (status == PF_OK) status = file_read(file, MOST, &changed, err);
    if (status == PF_OK && changed.len && changed.data[changed.len - 1] == '\n') changed.len--;
    if (status == PF_OK) buf_append(out, buf_str(&changed), changed.len);
out:
    if (changed.data) explicit_bzero(changed.data, changed.cap);
    buf_free(&changed);
    private_folder_wipe(&folder); /* before the watcher looks */
    if (watch[0] >= 0) close(watch[0]);
    if (watch[1] >= 0) close(watch[1]);
    free(file);
    return status;
}
