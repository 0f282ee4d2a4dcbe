/* Line mode: asks and answers line by line, for terminals that can't place a cursor (TERM=dumb) and
 * for screen readers. Nothing but text and line feeds is written. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/app.h"
#include "ui/chat.h"
#include "ui/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

#define NAME_MAX_INPUT 512

/* One line of standard input without its end; false at the end of input. */
static bool read_line(buf *out)
{
    buf_clear(out);
    for (;;) {
        char c;
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return out->len > 0;
        if (c == '\n') return true;
        if (c != '\r') buf_putc(out, c);
    }
}

static bool ask(const char *prompt, buf *out)
{
    fputs(prompt, stdout);
    fflush(stdout);
    return read_line(out);
}

/* A line typed without echo, straight into guarded memory. */
static secret *ask_secret(const char *prompt)
{
    struct termios saved, quiet;
    bool terminal = tcgetattr(STDIN_FILENO, &saved) == 0;
    fputs(prompt, stdout);
    fflush(stdout);
    if (terminal) {
        quiet = saved;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    secret *s = secret_new(SECRET_MAX);
    for (;;) {
        char c;
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || c == '\n') break;
        if (c != '\r') secret_append(s, &c, 1);
    }
    if (terminal) tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    putchar('\n');
    return s;
}

static void print_clean(text_cleaner *cleaner, const char *text, size_t len)
{
    buf clean = {0};
    text_clean(cleaner, text, len, &clean);
    fwrite(buf_str(&clean), 1, clean.len, stdout);
    fflush(stdout);
    wipe_buf(&clean);
}

static pf_status create_person(store *s, const char *name, session **out, pf_err *err)
{
    secret *first = ask_secret("New passphrase: "), *again = ask_secret("Again: ");
    secret *recovery = NULL;
    pf_status status;
    if (!secret_equal(first, again))
        status = err_set(err, PF_USAGE, "the two passphrases differ");
    else
        status = user_create(s, name, first, out, &recovery, err);
    if (status == PF_OK)
        printf("Your recovery key, shown only now; write it down: %s\n", recovery->data);
    secret_free(recovery);
    secret_free(first);
    secret_free(again);
    return status;
}

static pf_status sign_in(const app_options *options, session **out, pf_err *err)
{
    buf name = {0};
    user_list users = {0};
    pf_status status = user_list_load(options->store, &users, err);
    if (status != PF_OK) goto out;
    if (options->n_users) {
        buf_puts(&name, options->users[0]);
    } else {
        for (size_t i = 0; i < users.n; i++)
            printf("  %s\n", users.items[i].name);
        if (!ask(users.n ? "Name (a new one makes a new person): " : "Your name: ", &name) ||
            name.len > NAME_MAX_INPUT) {
            status = err_set(err, PF_USAGE, "no name was given");
            goto out;
        }
    }
    secret *pass = NULL;
    bool known = false;
    for (size_t i = 0; i < users.n; i++)
        known |= strcasecmp(users.items[i].name, buf_str(&name)) == 0;
    if (!known && !options->n_users) {
        status = create_person(options->store, buf_str(&name), out, err);
    } else {
        pass = ask_secret("Passphrase: ");
        status = user_sign_in(options->store, buf_str(&name), pass, out, err);
        secret_free(pass);
    }
out:
    user_list_free(&users);
    buf_free(&name);
    return status;
}

/* Waits for the answer of the request under way and prints it as it comes. */
static void print_answer(chat *c)
{
    text_cleaner cleaner = {0};
    for (;;) {
        engine_event ev;
        if (!engine_client_next(c->client, &ev)) {
            engine_client_wait(c->client, -1);
            continue;
        }
        bool dropped_more;
        char *back;
        pf_err err;
        chat_change change = chat_event(c, &ev, &dropped_more, &back, &err);
        if (dropped_more) puts("(The oldest messages no longer fit the model's window.)");
        if (change == CHAT_TEXT || ev.kind == ENGINE_EVENT_FINISHED)
            print_clean(&cleaner, ev.text, ev.text_len);
        engine_event_free(&ev);
        wipe_text(back);
        if (change != CHAT_FINISHED && change != CHAT_TAKEN_BACK) continue;
        putchar('\n');
        if (err.text[0]) printf("(%s)\n", err.text);
        return;
    }
}

pf_status app_run_lines(const app_options *options, pf_err *err)
{
    session *s = NULL;
    engine_client *client = NULL;
    chat c = {0};
    buf line = {0}, prompt = {0};
    pf_status status = sign_in(options, &s, err);
    if (status != PF_OK) return status;
    client = engine_client_open(options->engine);
    chat_init(&c, options->engine, client, s);
    const char *name = session_user_name(s);
    text_clean_label(name, strlen(name), &prompt);
    buf_puts(&prompt, "> ");
    puts("Write a message and press Enter; an empty line or the end of input leaves.");
    while (ask(buf_str(&prompt), &line) && line.len) {
        if (chat_send(&c, buf_str(&line), line.len, 0, NULL, err) == PF_OK)
            print_answer(&c);
        else
            printf("(%s)\n", err->text);
        fflush(stdout);
    }
    chat_close(&c);
    engine_client_close(client);
    session_sign_out(s);
    session_unref(s);
    wipe_buf(&line);
    buf_free(&prompt);
    return PF_OK;
}
