/* Figures of the interface, measured on the real program in a pseudo-terminal with eight people who
 * are answered at once: time from a key to its echo, bytes written to the terminal for each token,
 * the interface's share of a core; and what a token costs in a short and in a long answer.
 *
 * usage: bench_interface [--model PATH] [--seconds N] [--panes N] [--messages N] [--threads N]
 * Without --model the tiny model of the tests answers, with nonsense, at great speed. --messages:
 * the first person goes on with a conversation of so many (default 10000; 0: a new one). */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "profiles/history.h"
#include "profiles/secret.h"
#include "profiles/store.h"
#include "profiles/user.h"
#include "ui/app.h"
#include "ui/screen.h"
#include "ui/transcript.h"

#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TINY     "tests/data/models/tiny-llama/tiny-llama-q8_0.gguf"
#define PASS     "a long enough passphrase"
#define COLS     200
#define ROWS     60
#define MAX_KEYS 4096
#define TYPED    "ⓧ" /* a character that no answer has */

static struct {
    const char *model;
    int seconds, panes, messages, threads;
} opt = {.model = TINY, .seconds = 20, .panes = 8, .messages = 10000};

/* What the program tells about itself meanwhile. */
typedef struct {
    atomic_bool ready;
    atomic_ullong tokens, cpu_ns, written;
    atomic_int running;
} shared_figures;

static shared_figures *figures;

static void fail(const char *what)
{
    fprintf(stderr, "bench_interface: %s\n", what);
    exit(1);
}

static void check(pf_status status, const pf_err *err)
{
    if (status != PF_OK) fail(err->text);
}

/* --- cost of a token in short and long answers ------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double at_share(double *values, int n, double share)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[(int)(share * (n - 1) + 0.5)];
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Microseconds of the processor for each of 100 tokens of four bytes, shown one by one on a screen
 * of 100 by 40 that was full before, from the nth token on; the least of a few rounds, which others
 * on the machine disturbed least. */
static double token_cost(const char *text, size_t n)
{
    double rounds[15];
    grid g = {0};
    grid_resize(&g, 100, 40);
    for (size_t round = 0; round < sizeof rounds / sizeof *rounds; round++) {
        transcript t = {0};
        transcript_finish(&t, transcript_add(&t, ENTRY_ANSWER, NULL, text, 8000));
        size_t at = 0, answer = transcript_add(&t, ENTRY_ANSWER, NULL, "", 0);
        for (; at < n * 4; at += 4) {
            transcript_append(&t, answer, text + at, 4);
            if (at % 64 == 0) transcript_draw(&t, grid_area(&g), "");
        }
        transcript_draw(&t, grid_area(&g), "");
        int64_t start = cpu_ns();
        for (int i = 0; i < 100; i++, at += 4) {
            transcript_append(&t, answer, text + at, 4);
            transcript_draw(&t, grid_area(&g), "");
        }
        rounds[round] = (double)(cpu_ns() - start) / 100e3;
        transcript_free(&t);
    }
    grid_free(&g);
    return at_share(rounds, (int)(sizeof rounds / sizeof *rounds), 0);
}

static void bench_tokens(void)
{
    static const struct {
        const char *name, *start, *part;
    } shapes[] = {
        {"one paragraph", "", "one long paragraph with **bold** and `code` in it, on and on "},
        {"one code block", "```c\n", "int f(int x) { return x + 1; } // says so\n"},
        {"paragraphs", "", "A paragraph of a line or so, one after another, as they come.\n\n"},
        {"a list", "", "- an item with **bold** text in it and some more words\n"},
    };
    printf("%-16s %14s %14s %8s\n", "answer", "us at 100", "us at 10,000", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        buf text = {0};
        buf_puts(&text, shapes[i].start);
        while (text.len < 10200 * 4)
            buf_puts(&text, shapes[i].part);
        double early = token_cost(text.data, 100), late = token_cost(text.data, 10000);
        printf("%-16s %14.1f %14.1f %8.2f\n", shapes[i].name, early, late, late / early);
        buf_free(&text);
    }
}

/* --- the program ------------------------------------------------------------------------------ */

typedef struct {
    engine *engine;
    pthread_t interface;
} watched;

static void *watch(void *ctx)
{
    const watched *w = ctx;
    clockid_t clock;
    pthread_getcpuclockid(w->interface, &clock);
    for (;;) {
        struct timespec now;
        engine_stats stats;
        clock_gettime(clock, &now);
        engine_get_stats(w->engine, &stats);
        figures->tokens = stats.generated_tokens;
        figures->running = stats.running;
        figures->written = screen_bytes_written();
        figures->cpu_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        figures->ready = true;
        poll(NULL, 0, 20);
    }
    return NULL;
}

static void fill_history(session *s)
{
    pf_err err = {0};
    buf lines = {0};
    buf_puts(&lines, "{\"messages\":[");
    for (int i = 0; i < opt.messages; i++)
        buf_printf(&lines, "%s{\"role\":\"%s\",\"content\":\"message %d with **some** text\"}",
                   i ? "," : "", i % 2 ? "assistant" : "user", i);
    buf_puts(&lines, "]}\n");
    if (opt.messages)
        check(history_import_jsonl(s, 0, lines.data, lines.len, "-", NULL, &err), &err);
    buf_free(&lines);
}

static void run_program(const char *home)
{
    pf_err err = {0};
    store *st = NULL;
    model *m = NULL;
    engine *e = NULL;
    store_options how = {0};
    const char *users[8] = {"ann", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"};
    if (!vault_cost_parse("interactive", &how.cost)) fail("no such cost");
    check(store_open(home, &how, &st, &err), &err);
    for (int i = 0; i < opt.panes; i++) {
        session *s = NULL;
        secret *pass = secret_new(SECRET_MAX);
        secret_append(pass, PASS, strlen(PASS));
        check(user_create(st, users[i], pass, &s, NULL, &err), &err);
        secret_free(pass);
        if (i == 0) fill_history(s);
        session_sign_out(s);
        session_unref(s);
    }
    check(model_open(opt.model, NULL, &m, &err), &err);
    check(engine_open(m, &(engine_options){.context = 2048, .threads = opt.threads}, &e, &err),
          &err);
    watched w = {.engine = e, .interface = pthread_self()};
    pthread_t watcher;
    pthread_create(&watcher, NULL, watch, &w);
    app_options app = {.store = st, .engine = e, .users = users, .n_users = (size_t)opt.panes};
    app_run(&app, &err);
    _exit(0);
}

/* --- the person at the terminal --------------------------------------------------------------- */

static int terminal;
static unsigned long long received;

/* Reads what the program writes for some time; true as soon as text is in it. */
static bool read_until(const char *text, int ms)
{
    static char kept[1 << 16];
    size_t len = 0, wanted = text ? strlen(text) : 0;
    int64_t until = clock_monotonic_ns() + (int64_t)ms * 1000000;
    for (;;) {
        int64_t left = (until - clock_monotonic_ns()) / 1000000;
        if (left < 0) return false;
        if (poll(&(struct pollfd){.fd = terminal, .events = POLLIN}, 1, (int)left) <= 0) continue;
        if (len > sizeof kept / 2) { /* a text may go over the end of a piece */
            memmove(kept, kept + len - wanted, wanted);
            len = wanted;
        }
        ssize_t n = read(terminal, kept + len, sizeof kept - len);
        if (n <= 0) fail("the program has ended");
        received += (unsigned long long)n;
        len += (size_t)n;
        if (text && memmem(kept, len, text, wanted)) return true;
    }
}

static void type(const char *text)
{
    if (write(terminal, text, strlen(text)) < 0) fail("the terminal is gone");
}

static void sign_in(void)
{
    for (int i = 0; i < opt.panes; i++) {
        type(PASS);
        read_until(NULL, 50);
        type("\r");
        if (!read_until("Write", 20000)) fail("signing in took too long");
        read_until(NULL, 200);
        if (i == 0 && opt.messages) {
            type("\x12"); /* Ctrl-R, and the newest */
            read_until(NULL, 300);
            type("\r");
            int64_t start = clock_monotonic_ns();
            if (!read_until("message", 20000)) fail("the conversation did not open");
            printf("%d messages opened and shown in %.0f ms\n", opt.messages,
                   (double)(clock_monotonic_ns() - start) / 1e6);
        }
        type("\033[17~"); /* F6 */
        read_until(NULL, 100);
    }
}

/* Everybody asks (again). */
static void ask_all(void)
{
    for (int i = 0; i < opt.panes; i++) {
        type("\x15Write a very long story about the sea, with a list and a table in it.");
        read_until(NULL, 60);
        type("\r");
        read_until(NULL, 90);
        type("\x15\033[17~");
        read_until(NULL, 60);
    }
}

static void measure(void)
{
    static double ms[MAX_KEYS];
    int n = 0, most_running = 0, least_running = 1000;
    double share = 0, bytes = 0, tokens = 0, wall = 0;
    int64_t end = clock_monotonic_ns() + (int64_t)opt.seconds * 1000000000;
    while (clock_monotonic_ns() < end && n < MAX_KEYS) {
        if (figures->running < opt.panes) {
            ask_all();
            continue;
        }
        int64_t from = clock_monotonic_ns();
        unsigned long long bytes_from = received, tokens_from = figures->tokens,
                           cpu_from = figures->cpu_ns;
        for (int i = 0; i < 10 && n < MAX_KEYS; i++) {
            int64_t start = clock_monotonic_ns();
            type(TYPED);
            if (!read_until(TYPED, 5000)) fail("a key was not echoed");
            ms[n++] = (double)(clock_monotonic_ns() - start) / 1e6;
            read_until(NULL, 40 + (n * 37) % 60);
        }
        type("\x15");
        read_until(NULL, 50);
        int running = figures->running;
        if (running > most_running) most_running = running;
        if (running < least_running) least_running = running;
        wall += (double)(clock_monotonic_ns() - from);
        bytes += (double)(received - bytes_from);
        tokens += (double)(figures->tokens - tokens_from);
        share += (double)(figures->cpu_ns - cpu_from);
    }
    if (n == 0 || tokens <= 0) fail("nothing could be measured in this time");
    printf("%d keys while %d to %d answers were written, %.0f tokens/s in all\n", n, least_running,
           most_running, tokens / wall * 1e9);
    printf("key to screen: median %.1f ms, 95 %% %.1f ms, 99 %% %.1f ms\n", at_share(ms, n, 0.5),
           at_share(ms, n, 0.95), at_share(ms, n, 0.99));
    printf("bytes to the terminal for each token: %.0f\n", bytes / tokens);
    printf("interface: %.1f %% of one core\n", 100 * share / wall);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void bench_program(void)
{
    char folder[] = "/tmp/preft-bench-XXXXXX", home[64];
    if (!mkdtemp(folder)) fail("no folder could be made in /tmp");
    snprintf(home, sizeof home, "%s/home", folder);
    figures =
        mmap(NULL, sizeof *figures, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (figures == MAP_FAILED) fail("no memory");
    fflush(stdout);
    pid_t child = forkpty(&terminal, NULL, NULL, &(struct winsize){.ws_col = COLS, .ws_row = ROWS});
    if (child < 0) fail("no pseudo-terminal could be opened");
    if (child == 0) {
        setenv("TERM", "xterm-256color", 1);
        run_program(home);
    }
    while (!figures->ready)
        read_until(NULL, 50);
    read_until(NULL, 500);
    sign_in();
    ask_all();
    measure();
    kill(child, SIGTERM);
    while (waitpid(child, NULL, WNOHANG) == 0) {
        char bytes[4096];
        if (poll(&(struct pollfd){.fd = terminal, .events = POLLIN}, 1, 20) > 0 &&
            read(terminal, bytes, sizeof bytes) < 0)
            poll(NULL, 0, 20);
    }
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"model", required_argument, NULL, 'm'},   {"seconds", required_argument, NULL, 's'},
        {"panes", required_argument, NULL, 'p'},   {"messages", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 'm') opt.model = optarg;
        if (c == 's') opt.seconds = atoi(optarg);
        if (c == 'p') opt.panes = atoi(optarg);
        if (c == 't') opt.threads = atoi(optarg);
        if (c == 'n') opt.messages = atoi(optarg);
        if (c == '?') return 2;
    }
    if (opt.panes < 1 || opt.panes > 8 || opt.seconds < 1 || opt.messages < 0) return 2;
    bench_tokens();
    bench_program();
    return 0;
}
