/* Line mode: asks and answers line by line, for terminals that can't place a cursor (TERM=dumb),
 * for screen readers and for pipes. Nothing but text and line feeds is written: answers to standard
 * output; prompts there too on a terminal, and nowhere when messages come from a pipe; notes to
 * standard error unless all is one terminal. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/app.h"
#include "ui/chat.h"
#include "ui/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LISTED  20  /* conversations that /conversations shows */
#define WAIT_MS 100 /* how soon Ctrl-C is noticed */

typedef struct {
    const app_options *options;
    session *session;
    engine_client *client;
    chat chat;
    FILE *prompts, *notes; /* prompts NULL: none */
    bool leaving;
} lines;

/* --- in and out ------------------------------------------------------------------------------- */

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

static bool ask(const lines *l, const char *prompt, buf *out)
{
    fflush(stdout);
    if (l->prompts) {
        fputs(prompt, l->prompts);
        fflush(l->prompts);
    }
    return read_line(out);
}

static void put_label(FILE *to, const char *text)
{
    buf clean = {0};
    text_clean_label(text, strlen(text), &clean);
    fputs(buf_str(&clean), to);
    wipe_buf(&clean);
}

/* "(what went wrong)" */
static void note(const lines *l, const char *text)
{
    fputc('(', l->notes);
    put_label(l->notes, text);
    fputs(")\n", l->notes);
    fflush(l->notes);
}

static void print_clean(text_cleaner *cleaner, const char *text, size_t len)
{
    buf clean = {0};
    text_clean(cleaner, text, len, &clean);
    fwrite(buf_str(&clean), 1, clean.len, stdout);
    fflush(stdout);
    wipe_buf(&clean);
}

/* --- signing in ------------------------------------------------------------------------------- */

static pf_status read_secret(const lines *l, const char *prompt, secret **out, pf_err *err)
{
    fflush(stdout);
    return l->options->read_secret(l->options->secret_ctx, prompt, out, err);
}

static pf_status create_person(lines *l, const char *name, pf_err *err)
{
    secret *first = NULL, *again = NULL, *recovery = NULL;
    pf_status status = read_secret(l, "New passphrase: ", &first, err);
    if (status == PF_OK) status = read_secret(l, "Again: ", &again, err);
    if (status == PF_OK && !secret_equal(first, again))
        status = err_set(err, PF_USAGE, "the two passphrases differ");
    if (status == PF_OK)
        status = user_create(l->options->store, name, first, &l->session, &recovery, err);
    if (status == PF_OK)
        fprintf(l->prompts, "Your recovery key, shown only now; write it down: %s\n",
                recovery->data);
    secret_free(recovery);
    secret_free(first);
    secret_free(again);
    return status;
}

static bool is_known(const user_list *users, const char *name)
{
    for (size_t i = 0; i < users->n; i++)
        if (strcasecmp(users->items[i].name, name) == 0) return true;
    return false;
}

/* Who it is: named by an option, the only one there is, or asked for. */
static pf_status find_name(const lines *l, const user_list *users, buf *name, pf_err *err)
{
    if (l->options->n_users) {
        buf_puts(name, l->options->users[0]);
        return PF_OK;
    }
    if (!l->prompts && users->n == 1) {
        buf_puts(name, users->items[0].name);
        return PF_OK;
    }
    if (!l->prompts) return err_set(err, PF_USAGE, "who signs in? Say it with --user NAME");
    for (size_t i = 0; i < users->n; i++) {
        fputs("  ", l->prompts);
        put_label(l->prompts, users->items[i].name);
        fputc('\n', l->prompts);
    }
    if (ask(l, users->n ? "Name (a new one makes a new person): " : "Your name: ", name))
        return PF_OK;
    return err_set(err, PF_USAGE, "no name was given");
}

static pf_status sign_in(lines *l, pf_err *err)
{
    buf name = {0}, prompt = {0};
    secret *pass = NULL;
    user_list users = {0};
    pf_status status = user_list_load(l->options->store, &users, err);
    if (status == PF_OK) status = find_name(l, &users, &name, err);
    if (status != PF_OK) goto out;
    if (!is_known(&users, buf_str(&name)) && !l->options->n_users) {
        status = create_person(l, buf_str(&name), err);
        goto out;
    }
    buf_puts(&prompt, "Passphrase: ");
    status = read_secret(l, buf_str(&prompt), &pass, err);
    if (status == PF_OK)
        status = user_sign_in(l->options->store, buf_str(&name), pass, &l->session, err);
out:
    secret_free(pass);
    user_list_free(&users);
    buf_free(&name);
    buf_free(&prompt);
    return status;
}

/* --- answers ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Waits for the answer under way and prints it as it comes. */
static void print_answer(lines *l)
{
    text_cleaner cleaner = {0};
    chat_change change = CHAT_NOTHING;
    while (change != CHAT_FINISHED && change != CHAT_TAKEN_BACK) {
        engine_event ev;
        if (interrupted) {
            interrupted = 0;
            chat_stop(&l->chat);
        }
        if (!engine_client_next(l->client, &ev)) {
            engine_client_wait(l->client, WAIT_MS);
            continue;
        }
        bool dropped_more;
        char *back;
        pf_err err;
        change = chat_event(&l->chat, &ev, &dropped_more, &back, &err);
        if (dropped_more) note(l, "The oldest messages no longer fit the model's window.");
        if (change == CHAT_TEXT || ev.kind == ENGINE_EVENT_FINISHED)
            print_clean(&cleaner, ev.text, ev.text_len);
        engine_event_free(&ev);
        wipe_text(back);
        if (err.text[0]) note(l, err.text);
    }
    putchar('\n');
    fflush(stdout);
}

/* False: the profile was deleted by another program, and nothing is sent. */
static bool follow_profile(lines *l)
{
    buf told = {0};
    bool there = chat_follow_profile(&l->chat, &told);
    if (told.len) note(l, buf_str(&told));
    wipe_buf(&told);
    return there;
}

/* Ctrl-C stops an answer; where none is under way it ends the program as ever. */
static void send(lines *l, const char *text, size_t len)
{
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    pf_err err;
    if (!follow_profile(l)) return;
    if (chat_send(&l->chat, text, len, 0, NULL, &err) != PF_OK) {
        note(l, err.text);
        return;
    }
    interrupted = 0;
    sigaction(SIGINT, &stop, &before);
    print_answer(l);
    sigaction(SIGINT, &before, NULL);
}

/* --- commands --------------------------------------------------------------------------------- */

static void do_new(lines *l, const char *argument)
{
    (void)argument;
    chat_begin(&l->chat);
    note(l, "A new conversation.");
}

static void do_profiles(lines *l, const char *argument)
{
    (void)argument;
    profile_list found = {0};
    pf_err err;
    if (profile_list_load(l->session, &found, &err) != PF_OK) note(l, err.text);
    for (size_t i = 0; i < found.n; i++) {
        put_label(stdout, found.items[i].name);
        puts(found.items[i].id == l->chat.profile ? " (in use)" : "");
    }
    if (found.n == 0) puts("There are no profiles.");
    profile_list_free(&found);
}

static void do_profile(lines *l, const char *argument)
{
    profile_info info = {0};
    pf_err err;
    pf_status status = PF_OK;
    if (strcmp(argument, "none") != 0) status = profile_find(l->session, argument, &info, &err);
    if (status == PF_OK) status = chat_use_profile(&l->chat, info.id, &err);
    if (status != PF_OK) {
        note(l, err.text);
    } else {
        buf label = {0};
        chat_profile_label(&l->chat, &label);
        note(l, buf_str(&label));
        wipe_buf(&label);
    }
    profile_info_free(&info);
}

static void do_conversations(lines *l, const char *argument)
{
    (void)argument;
    conversation_list found = {0};
    pf_err err;
    if (conversation_list_load(l->session, -1, 0, LISTED, &found, &err) != PF_OK) note(l, err.text);
    for (size_t i = 0; i < found.n; i++) {
        printf("%lld ", (long long)found.items[i].id);
        put_label(stdout, found.items[i].title);
        putchar('\n');
    }
    if (found.n == 0) puts("There are no conversations.");
    conversation_list_free(&found);
}

static void do_resume(lines *l, const char *argument)
{
    pf_err err;
    char *end;
    long long id = strtoll(argument, &end, 10);
    if (end == argument || *end) {
        note(l, "The number of a conversation is needed; /conversations shows them.");
        return;
    }
    if (chat_load(&l->chat, id, &err) != PF_OK) note(l, err.text);
    for (size_t i = 0; i < l->chat.n_turns; i++) {
        const chat_turn *t = &l->chat.turns[i];
        text_cleaner cleaner = {0};
        if (t->role == HISTORY_USER) printf("> ");
        print_clean(&cleaner, t->text, t->len);
        putchar('\n');
    }
}

static void do_quit(lines *l, const char *argument)
{
    (void)argument;
    l->leaving = true;
}

static void do_help(lines *l, const char *argument);

static const struct {
    const char *name, *argument, *words;
    void (*run)(lines *l, const char *argument);
} commands[] = {
    {"help", "", "this list", do_help},
    {"new", "", "begin a new conversation", do_new},
    {"conversations", "", "list the newest conversations with their numbers", do_conversations},
    {"resume", "NUMBER", "go on with one of them", do_resume},
    {"profiles", "", "list the profiles", do_profiles},
    {"profile", "NAME", "use a profile (none: the plain model)", do_profile},
    {"quit", "", "leave; so does an empty line or the end of input", do_quit},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void do_help(lines *l, const char *argument)
{
    (void)l;
    (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("/%s%s%s: %s\n", commands[i].name, *commands[i].argument ? " " : "",
               commands[i].argument, commands[i].words);
    puts("A line that ends in \\ goes on in the next one. //TEXT sends a text that begins with /.");
}

/* text begins with a slash. */
static void run_command(lines *l, const char *text)
{
    size_t n = strcspn(text + 1, " ");
    const char *argument = text + 1 + n + strspn(text + 1 + n, " ");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) != n || strncmp(text + 1, commands[i].name, n) != 0) continue;
        if (*commands[i].argument && !*argument) {
            note(l, "Something is missing after it; /help says what.");
            return;
        }
        commands[i].run(l, argument);
        fflush(stdout);
        return;
    }
    note(l, "There is no such command; /help shows them. //TEXT sends it as it is.");
}

/* --- the conversation ------------------------------------------------------------------------- */

/* A message: one line, or several of which all but the last end in a backslash. */
static bool read_message(const lines *l, const char *prompt, buf *out)
{
    buf line = {0};
    bool more = true, any = false;
    buf_clear(out);
    while (more && ask(l, any ? "> " : prompt, &line)) {
        if (any) buf_putc(out, '\n');
        any = true;
        more = line.len && line.data[line.len - 1] == '\\';
        buf_append(out, buf_str(&line), line.len - more);
    }
    wipe_buf(&line);
    return any;
}

static void converse(lines *l)
{
    buf message = {0}, prompt = {0};
    const char *name = session_user_name(l->session);
    text_clean_label(name, strlen(name), &prompt);
    buf_puts(&prompt, "> ");
    if (l->prompts)
        fputs("Write a message and press Enter. /help shows the commands; an empty line leaves.\n",
              l->prompts);
    while (!l->leaving && !ferror(stdout)) {
        if (!read_message(l, buf_str(&prompt), &message)) {
            if (l->prompts) fputc('\n', l->prompts); /* behind the prompt */
            break;
        }
        const char *text = buf_str(&message);
        if (message.len == 0 && l->prompts) break;
        if (text[0] == '/' && text[1] != '/')
            run_command(l, text);
        else if (message.len)
            send(l, text + (text[0] == '/'), message.len - (text[0] == '/'));
    }
    wipe_buf(&message);
    buf_free(&prompt);
}

pf_status app_run_lines(const app_options *options, pf_err *err)
{
    bool asks = isatty(STDIN_FILENO), shown = isatty(STDOUT_FILENO);
    lines l = {.options = options,
               .prompts = !asks   ? NULL
                          : shown ? stdout
                                  : stderr,
               .notes = asks && shown ? stdout : stderr};
    pf_status status = sign_in(&l, err);
    if (status != PF_OK) return status;
    l.client = engine_client_open(options->engine);
    if (l.client) {
        chat_init(&l.chat, options->engine, l.client, l.session);
        converse(&l);
        chat_close(&l.chat);
        engine_client_close(l.client);
    } else {
        status = err_set(err, PF_FAILED, "no more file descriptors are available");
    }
    session_sign_out(l.session);
    session_unref(l.session);
    return status;
}
