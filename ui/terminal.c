/* The interface on a terminal: keys, signals, events and pictures in one loop. */
#include "base/clock.h"
#include "ui/screen.h"
#include "ui/window.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static void take_input(void *ctx, const input_event *ev)
{
    app_input(ctx, ev);
}

/* False when the terminal is gone. */
static bool read_keys(app *a, key_decoder *keys)
{
    char bytes[4096];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    a->keys_ms = now_ms();
    if (n > 0) keys_feed(keys, bytes, (size_t)n, a->keys_ms, take_input, a);
    a->keys_ms = 0;
    a->marked_pastes = keys->marks_pastes;
    explicit_bzero(bytes, sizeof bytes); /* a passphrase may have been among them */
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static bool keys_wait(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

static void refit(app *a)
{
    int cols, rows;
    screen_size(&cols, &rows);
    app_resize(a, cols, rows);
}

static void handle_signals(app *a)
{
    unsigned signals = screen_take_signals();
    if (signals & SCREEN_STOP) a->suspend = true;
    if ((signals & SCREEN_CONTINUE) && !a->suspend) {
        screen_resume();
        refit(a);
    }
    if (signals & SCREEN_RESIZED) refit(a);
    if (screen_end_signal()) a->quit = true;
    if (!a->suspend) return;
    a->suspend = false;
    screen_suspend();
    refit(a);
}

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

/* At most one picture in FRAME_MS, and none while the terminal has not taken the last one: what
 * came meanwhile is left out. */
static void show(app *a)
{
    screen_use_mouse(a->mouse);
    if (!screen_flush()) return;
    if (a->redraw) screen_erase();
    if (a->redraw) a->dirty = true;
    a->redraw = false;
    if (!a->dirty || now_ms() - a->last_frame_ms < FRAME_MS) return;
    app_draw(a);
    screen_show(&a->grid);
}

static void loop(app *a)
{
    key_decoder keys = {0};
    while (!a->quit) {
        show(a);
        struct pollfd fds[] = {
            {.fd = STDIN_FILENO, .events = POLLIN},
            {.fd = screen_signal_fd(), .events = POLLIN},
            {.fd = engine_client_fd(a->client), .events = POLLIN},
            {.fd = jobs_fd(a->jobs), .events = POLLIN},
            {.fd = screen_held_fd(), .events = POLLOUT}, /* -1: nothing waits to be written */
        };
        int timeout = sooner(app_timeout(a), keys_timeout(&keys, now_ms()));
        if (fds[4].fd >= 0 && timeout == 0) timeout = FRAME_MS; /* no picture is due yet */
        poll(fds, sizeof fds / sizeof *fds, timeout);
        handle_signals(a);
        if (a->quit) break;
        if (fds[0].revents && !read_keys(a, &keys)) break;
        keys_tick(&keys, now_ms(), take_input, a);
        app_events(a);
        a->keys_wait = a->enter_held && keys_wait();
        app_tick(a);
        if (a->suspend) handle_signals(a); /* the key */
    }
    keys_free(&keys);
}

pf_status app_run(const app_options *options, pf_err *err)
{
    app *a = NULL;
    int cols, rows, ended_by = 0;
    pf_status status = screen_open(!options->no_mouse, err);
    if (status != PF_OK) return status;
    screen_size(&cols, &rows);
    status = app_open(options, cols, rows, &a, err);
    if (status == PF_OK) {
        loop(a);
        ended_by = screen_end_signal();
    }
    screen_close(); /* first: closing may take a moment */
    if (!app_close(a) && status == PF_OK)
        status = err_set(err, PF_FAILED,
                         "what was being written could not be saved: another program kept the "
                         "store busy");
    if (ended_by) return err_set(err, PF_INTERRUPTED, "%s", "");
    return status;
}
