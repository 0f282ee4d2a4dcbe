#include "commands/signin.h"

#include "base/mem.h"
#include "profiles/name.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define SHORT_PASSPHRASE 8 /* bytes; below, a warning */

/* --- reading lines ---------------------------------------------------------------------------- */

/* One line without its end, byte by byte: nothing is read ahead, since the next line may be the
 * next secret or belong to someone else. Interrupted by a signal: PF_INTERRUPTED. */
static pf_status read_line(int fd, const char *name, secret **out, pf_err *err)
{
    secret *s = secret_new(SECRET_MAX);
    pf_status status = PF_OK;
    bool any = false;
    char c = 0;
    for (;;) {
        ssize_t n = read(fd, &c, 1);
        if (n < 0 && errno == EINTR) {
            status = err_set(err, PF_INTERRUPTED, "%s", "");
            break;
        }
        if (n < 0) {
            status = err_errno(err, PF_USAGE, errno, "no passphrase can be read from %s", name);
            break;
        }
        if (n == 0 && !any)
            status = err_set(err, PF_USAGE, "there is no passphrase (left) in %s", name);
        if (n == 0 || c == '\n') break;
        any = true;
        if (!secret_append(s, &c, 1)) {
            status = err_set(err, PF_USAGE, "the passphrase in %s is longer than %d bytes", name,
                             SECRET_MAX);
            break;
        }
    }
    c = 0;
    if (status == PF_OK)
        *out = s;
    else
        secret_free(s);
    return status;
}

/* Opened once: the next secret is its next line. */
static int open_private(const char *path, pf_err *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        err_errno(err, errno == ENOENT ? PF_NOT_FOUND : PF_FAILED, errno, "%s can't be opened",
                  path);
        return -1;
    }
    if (fstat(fd, &info) != 0)
        err_errno(err, PF_FAILED, errno, "%s can't be examined", path);
    else if (!S_ISREG(info.st_mode))
        err_set(err, PF_REFUSED, "%s is no regular file", path);
    else if (info.st_uid != geteuid())
        err_set(err, PF_REFUSED, "%s belongs to another user; a passphrase file must be yours",
                path);
    else if (info.st_mode & 077)
        err_set(
            err, PF_REFUSED,
            "%s can be read or written by others (mode %03o); make it yours alone: chmod 600 %s",
            path, (unsigned)(info.st_mode & 0777), path);
    else
        return fd;
    close(fd);
    return -1;
}

static pf_status read_file(const char *path, secret **out, pf_err *err)
{
    static int fd = -1;
    if (fd < 0) fd = open_private(path, err);
    if (fd < 0) return err ? err->status : PF_REFUSED;
    return read_line(fd, path, out, err);
}

/* --- the terminal ----------------------------------------------------------------------------- */

static volatile sig_atomic_t signal_seen;

static void on_signal(int number)
{
    signal_seen = number;
}

/* Signals that would leave the terminal without echo. */
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
#define N_SIGNALS (sizeof signals / sizeof *signals)

static void put(int fd, const char *text)
{
    (void)!write(fd, text, strlen(text));
}

static pf_status prompt_once(int fd, const char *prompt, secret **out, pf_err *err)
{
    struct termios with_echo, without;
    struct sigaction act = {.sa_handler = on_signal}, old[N_SIGNALS];
    if (tcgetattr(fd, &with_echo) != 0)
        return err_errno(err, PF_FAILED, errno, "the terminal can't be set");
    signal_seen = 0;
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &act, &old[i]);
    without = with_echo;
    without.c_lflag &= (tcflag_t) ~(ECHO | ECHONL);
    without.c_lflag |= ICANON | ISIG;
    without.c_iflag |= ICRNL;
    tcsetattr(fd, TCSAFLUSH, &without);
    put(fd, prompt);
    pf_status status = read_line(fd, "the terminal", out, err);
    put(fd, "\n");
    tcsetattr(fd, TCSAFLUSH, &with_echo);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &old[i], NULL);
    return status;
}

static pf_status prompt_terminal(const char *prompt, secret **out, pf_err *err)
{
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_set(err, PF_USAGE,
                       "a passphrase is needed and there is no terminal to ask on: use "
                       "--passphrase-fd N or --passphrase-file FILE");
    pf_status status = PF_OK;
    for (;;) {
        status = prompt_once(fd, prompt, out, err);
        if (status != PF_INTERRUPTED) break;
        int number = signal_seen;
        if (!number) continue;
        /* what the signal would have done, now that the terminal is as it was */
        raise(number);
        if (number != SIGTSTP) break;
    }
    close(fd);
    return status;
}

/* --- secrets ---------------------------------------------------------------------------------- */

static bool asks_terminal(const command_context *ctx)
{
    return ctx->signin->passphrase_fd < 0 && !ctx->signin->passphrase_file;
}

static void warn_unlocked(const command_context *ctx)
{
    static bool told;
    if (told || vault_memory_locked()) return;
    told = true;
    note(ctx, "the system doesn't let memory be locked (ulimit -l), so keys could be written to "
              "swap space");
}

pf_status signin_read_secret(const command_context *ctx, const char *prompt, secret **out,
                             pf_err *err)
{
    const signin_options *options = ctx->signin;
    if (options->passphrase_fd >= 0 && options->passphrase_file)
        return usage_error(ctx, err, "--passphrase-fd and --passphrase-file exclude each other");
    warn_unlocked(ctx);
    if (options->passphrase_file) return read_file(options->passphrase_file, out, err);
    if (asks_terminal(ctx)) return prompt_terminal(prompt, out, err);
    char name[40];
    snprintf(name, sizeof name, "descriptor %lld", (long long)options->passphrase_fd);
    return read_line((int)options->passphrase_fd, name, out, err);
}

pf_status signin_read_new(const command_context *ctx, const char *prompt, secret **out, pf_err *err)
{
    secret *first = NULL, *second = NULL;
    pf_status status = signin_read_secret(ctx, prompt, &first, err);
    if (status == PF_OK) status = vault_passphrase_check(first, err);
    if (status == PF_OK && asks_terminal(ctx)) {
        status = signin_read_secret(ctx, "Once more: ", &second, err);
        if (status == PF_OK && !secret_equal(first, second))
            status = err_set(err, PF_USAGE, "the two passphrases differ; nothing was changed");
    }
    if (status == PF_OK && first->len < SHORT_PASSPHRASE)
        note(ctx, "this passphrase is short; several words are safer");
    secret_free(second);
    if (status == PF_OK)
        *out = first;
    else
        secret_free(first);
    return status;
}

pf_status signin_ask(const command_context *ctx, const char *question, char **out, pf_err *err)
{
    (void)ctx;
    FILE *tty = fopen("/dev/tty", "r+e");
    char line[1024];
    if (!tty) return err_set(err, PF_USAGE, "there is no terminal to ask on");
    fprintf(tty, "%s", question);
    fflush(tty);
    bool got = fgets(line, sizeof line, tty) != NULL;
    fclose(tty);
    if (!got) return err_set(err, PF_USAGE, "no answer");
    line[strcspn(line, "\n")] = '\0';
    *out = xstrdup(line);
    return PF_OK;
}

/* --- signing in ------------------------------------------------------------------------------- */

pf_status signin_open_store(const command_context *ctx, store **out, pf_err *err)
{
    const store_options options = {.must_exist = true};
    return store_open(ctx->global->home, &options, out, err);
}

static bool user_is_listed(const user_list *list, const char *name)
{
    char *wanted = name_key(name);
    bool found = false;
    for (size_t i = 0; wanted && i < list->n && !found; i++) {
        char *key = name_key(list->items[i].name);
        found = key && strcmp(key, wanted) == 0;
        free(key);
    }
    free(wanted);
    return found;
}

/* The user of --user, or the only one. Owned. Names are no secret: nobody is asked for a passphrase
 * in vain. */
static pf_status choose_user(const command_context *ctx, store *st, char **out, pf_err *err)
{
    user_list list;
    const char *wanted = ctx->signin->user;
    pf_status status = user_list_load(st, &list, err);
    if (status == PF_OK && wanted && user_is_listed(&list, wanted))
        *out = xstrdup(wanted);
    else if (status == PF_OK && wanted)
        status = err_set(err, PF_NOT_FOUND, "there is no user %s; `preft user list` shows who is",
                         wanted);
    else if (status == PF_OK && list.n == 1)
        *out = xstrdup(list.items[0].name);
    else if (status == PF_OK)
        status = list.n == 0
                     ? err_set(err, PF_NOT_FOUND,
                               "there is no user yet; `preft user add NAME` makes one")
                     : usage_error(ctx, err, "--user NAME is needed: there are %zu users", list.n);
    user_list_free(&list);
    return status;
}

pf_status signin_open(const command_context *ctx, store **st, session **out, pf_err *err)
{
    char *name = NULL, *prompt = NULL;
    secret *passphrase = NULL;
    store *s = NULL;
    pf_status status = signin_open_store(ctx, &s, err);
    if (status == PF_OK) status = choose_user(ctx, s, &name, err);
    if (status != PF_OK) goto out;
    prompt = xasprintf("Passphrase of %s: ", name);
    status = signin_read_secret(ctx, prompt, &passphrase, err);
    if (status == PF_OK) status = user_sign_in(s, name, passphrase, out, err);
    if (status != PF_OK) goto out;
    *st = s;
    s = NULL;
out:
    secret_free(passphrase);
    store_close(s);
    free(prompt);
    free(name);
    return status;
}

pf_status signin_begin(const command_context *ctx, signed_in *s, pf_err *err)
{
    *s = (signed_in){0};
    return signin_open(ctx, &s->store, &s->session, err);
}

void signin_end(signed_in *s)
{
    session_unref(s->session);
    store_close(s->store);
}
