#include "ui/screen.h"

#include "base/buf.h"
#include "ui/theme.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#define PASTE_ON  "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_ASK "\033[?2004$p" /* does it know the two? See ui/keys.h for the answer */
#define MOUSE_ON  "\033[?1000h\033[?1002h\033[?1006h"
#define MOUSE_OFF "\033[?1006l\033[?1002l\033[?1000l"

#define LEAVE_MS 2000 /* a terminal that takes nothing for so long is given up on the way out */
#define BRIDGE   4    /* unchanged cells that are cheaper to write than to jump over */

/* Terminal capabilities; strings are NULL where the terminal has none. */
typedef struct {
    char *move, *clear, *clear_line, *clear_below, *reset, *bold, *dim, *reverse, *underline;
    char *foreground, *background, *show_cursor, *hide_cursor, *clear_scrollback;
    bool can_switch_wrap, alternate, sequences;
} capabilities;

static struct {
    bool open, utf8, cursor_shown, valid, erase, mouse;
    int fd; /* for output: an own description of the terminal that doesn't block, or standard output
             */
    capabilities cap;
    const theme *look;
    struct termios saved;
    grid shown; /* what the terminal shows */
    buf out;
    size_t out_done; /* of out: what the terminal has taken */
    int x, y;        /* where its cursor is; x < 0: unknown */
    int style;
    unsigned long long written;
    char enter[256], leave[256]; /* ready for signal handlers */
    size_t enter_len, leave_len;
} term;

/* --- signals ---------------------------------------------------------------------------------- */

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t pending, end_signal, continued;

static const struct {
    int number;
    int bit;
} caught[] = {
    {SIGWINCH, SCREEN_RESIZED}, {SIGTSTP, SCREEN_STOP}, {SIGCONT, SCREEN_CONTINUE},
    {SIGTERM, SCREEN_END},      {SIGHUP, SCREEN_END},   {SIGINT, SCREEN_END},
};
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGSYS};
#define N_CAUGHT  (sizeof caught / sizeof *caught)
#define N_CRASHES (sizeof crashes / sizeof *crashes)
static struct sigaction saved_actions[N_CAUGHT], saved_pipe_action, saved_crashes[N_CRASHES];

static void on_signal(int number)
{
    int saved_errno = errno;
    for (size_t i = 0; i < N_CAUGHT; i++)
        if (caught[i].number == number) pending |= caught[i].bit;
    if (number == SIGCONT) continued = 1;
    if (number == SIGTERM || number == SIGHUP || number == SIGINT) end_signal = number;
    ssize_t n = write(signal_pipe[1], "", 1); /* a full pipe wakes as well */
    (void)n;
    errno = saved_errno;
}

/* For the way in and out: waits, but not for ever. Only async-signal-safe calls. */
static void write_all(const char *data, size_t len)
{
    for (int waited = 0; len > 0;) {
        ssize_t n = write(term.fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && waited < LEAVE_MS) {
            poll(&(struct pollfd){.fd = term.fd, .events = POLLOUT}, 1, 100);
            waited += 100;
            continue;
        }
        if (n <= 0) return; /* the terminal is gone (SIGHUP will tell) or stands still */
        data += n;
        len -= (size_t)n;
    }
}

/* Only async-signal-safe calls. */
static void on_crash(int number)
{
    if (term.open) {
        write_all(term.leave, term.leave_len);
        tcsetattr(STDIN_FILENO, TCSANOW, &term.saved);
    }
    raise(number); /* the handler was reset: this ends the process as it would have ended */
}

static void install_handlers(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i].number, &action, &saved_actions[i]);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &saved_pipe_action);
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    for (size_t i = 0; i < N_CRASHES; i++) {
        sigaction(crashes[i], NULL, &saved_crashes[i]);
        if (saved_crashes[i].sa_handler == SIG_DFL) sigaction(crashes[i], &crash, NULL);
    }
}

static void remove_handlers(void)
{
    for (size_t i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i].number, &saved_actions[i], NULL);
    sigaction(SIGPIPE, &saved_pipe_action, NULL);
    for (size_t i = 0; i < N_CRASHES; i++)
        sigaction(crashes[i], &saved_crashes[i], NULL);
}

int screen_signal_fd(void)
{
    return signal_pipe[0];
}

unsigned screen_take_signals(void)
{
    char drain[64];
    while (read(signal_pipe[0], drain, sizeof drain) > 0)
        continue;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    unsigned bits = (unsigned)pending;
    pending = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bits;
}

int screen_end_signal(void)
{
    return end_signal;
}

/* --- opening ---------------------------------------------------------------------------------- */

#define HINT "for one answer without a screen use: preft run \"your question\""

/* Can messages come from there? A pipe, a socket or a file, but not /dev/null. */
static bool is_talking(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && !S_ISCHR(info.st_mode) && !S_ISDIR(info.st_mode);
}

screen_kind screen_probe(pf_err *err)
{
    const char *name = getenv("TERM");
    bool in = isatty(STDIN_FILENO), out = isatty(STDOUT_FILENO);
    if (!in && !is_talking(STDIN_FILENO)) {
        err_set(err, PF_USAGE,
                "the chat needs a terminal or a pipe as its input, and there is "
                "none; " HINT);
        return SCREEN_NONE;
    }
    if (!in || !out) return SCREEN_LINE;
    if (name && strcmp(name, "dumb") == 0) return SCREEN_LINE;
    int status = 0;
    if (!name || !*name || setupterm(name, STDOUT_FILENO, &status) != OK) {
        err_set(err, PF_USAGE,
                "the terminal type %s%s%s is not known here; set TERM to what your terminal is "
                "(xterm, for most) or to dumb for a line by line chat; " HINT,
                name && *name ? "\"" : "", name && *name ? name : "in TERM (none)",
                name && *name ? "\"" : "");
        return SCREEN_NONE;
    }
    char *move = tigetstr("cup"), *clear_all = tigetstr("clear");
    bool full = move && move != (char *)-1 && clear_all && clear_all != (char *)-1;
    del_curterm(cur_term);
    return full ? SCREEN_FULL : SCREEN_LINE;
}

static char *capability(const char *name)
{
    char *value = tigetstr((NCURSES_CONST char *)name);
    return value == (char *)-1 ? NULL : value;
}

static int put_byte(int c)
{
    buf_putc(&term.out, (char)c);
    return c;
}

static void put_capability(const char *value)
{
    if (value) tputs(value, 1, put_byte);
}

/* Erases the screen. Without an alternate screen a terminal may keep what is cleared as a whole
 * where its user can scroll back to it, so there it goes in two parts, and then what is kept. */
static void put_clear(void)
{
    if (term.cap.alternate || !term.cap.clear_line || !term.cap.clear_below) {
        put_capability(term.cap.clear);
        return;
    }
    put_capability(tparm(term.cap.move, 0, 0));
    put_capability(term.cap.clear_line);
    put_capability(tparm(term.cap.move, 1, 0));
    put_capability(term.cap.clear_below);
    put_capability(tparm(term.cap.move, 0, 0));
}

/* Collects capability strings into fixed memory that a signal handler may write; "" stands for
 * erasing the screen. */
static size_t collect(char *to, size_t size, const char *const *names, const char *literal)
{
    buf_clear(&term.out);
    for (; *names; names++)
        if (**names)
            put_capability(capability(*names));
        else
            put_clear();
    buf_puts(&term.out, literal);
    size_t len = term.out.len < size ? term.out.len : 0;
    memcpy(to, buf_str(&term.out), len);
    buf_clear(&term.out);
    return len;
}

static void load_capabilities(bool mouse)
{
    term.cap = (capabilities){
        .move = capability("cup"),
        .clear = capability("clear"),
        .clear_line = capability("el"),
        .clear_below = capability("ed"),
        .reset = capability("sgr0"),
        .bold = capability("bold"),
        .dim = capability("dim"),
        .reverse = capability("rev"),
        .underline = capability("smul"),
        .foreground = capability("setaf"),
        .background = capability("setab"),
        .show_cursor = capability("cnorm"),
        .hide_cursor = capability("civis"),
        .clear_scrollback = capability("E3"),
        .can_switch_wrap = capability("rmam") && capability("smam"),
        .alternate = capability("smcup") && capability("rmcup"),
        .sequences = capability("kcuu1") && capability("kcuu1")[0] == '\033',
    };
    term.look = theme_for_terminal(term.cap.foreground ? tigetnum("colors") : 0);
    static const char *const in[] = {"smcup", "rmam", "civis", NULL};
    /* Nothing of a chat stays behind, on no screen. */
    static const char *const out[] = {"sgr0", "", "smam", "cnorm", "rmcup", NULL};
    static const char *const out_plain[] = {"sgr0", "", "E3", "smam", "cnorm", NULL};
    bool sequences = term.cap.sequences;
    term.mouse = mouse && sequences;
    term.enter_len = collect(term.enter, sizeof term.enter, in, sequences ? PASTE_ON : "");
    term.leave_len = collect(term.leave, sizeof term.leave, term.cap.alternate ? out : out_plain,
                             sequences ? MOUSE_OFF PASTE_OFF : "");
}

static void enter_mode(void)
{
    struct termios raw = term.saved;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | IGNCR | INLCR | INPCK | ISTRIP | IXON | PARMRK);
    raw.c_oflag &= ~(tcflag_t)OPOST;
    raw.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all(term.enter, term.enter_len);
    if (term.mouse) write_all(MOUSE_ON, sizeof MOUSE_ON - 1);
    term.cursor_shown = false;
    screen_invalidate();
}

static void forget_held(void)
{
    if (term.out.data) explicit_bzero(term.out.data, term.out.cap);
    buf_clear(&term.out);
    term.out_done = 0;
}

static void leave_mode(void)
{
    forget_held();
    write_all(term.leave, term.leave_len);
    tcsetattr(STDIN_FILENO, TCSANOW, &term.saved);
}

/* Opened anew, so that not blocking is ours alone: the descriptors that we got are shared with the
 * shell. Where the terminal has no name here, standard output has to do. */
static void open_output(void)
{
    char name[256];
    term.fd = -1;
    if (ttyname_r(STDOUT_FILENO, name, sizeof name) == 0)
        term.fd = open(name, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (term.fd < 0) term.fd = STDOUT_FILENO;
}

pf_status screen_open(bool mouse, pf_err *err)
{
    pf_status status = PF_OK;
    screen_kind kind = screen_probe(err);
    if (kind == SCREEN_NONE) return PF_USAGE;
    if (kind == SCREEN_LINE)
        return err_set(err, PF_USAGE, "this terminal can't place its cursor; " HINT);
    int ignored;
    if (setupterm(NULL, STDOUT_FILENO, &ignored) != OK)
        return err_set(err, PF_USAGE, "the terminal's description can't be read; " HINT);
    if (tcgetattr(STDIN_FILENO, &term.saved) != 0) {
        status = err_errno(err, PF_FAILED, errno, "the terminal's settings can't be read");
        goto out;
    }
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        status = err_errno(err, PF_FAILED, errno, "no pipe for signals could be made");
        goto out;
    }
    setlocale(LC_CTYPE, "");
    term.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    load_capabilities(mouse);
    pending = end_signal = 0;
    open_output();
    install_handlers();
    term.open = true;
    die_set_hook(screen_close);
    enter_mode();
    /* The console of Linux knows neither the question nor marks. */
    if (term.cap.sequences && strncmp(getenv("TERM"), "linux", 5) != 0)
        write_all(PASTE_ASK, sizeof PASTE_ASK - 1);
out:
    if (status != PF_OK) del_curterm(cur_term);
    return status;
}

void screen_close(void)
{
    if (!term.open) return;
    term.open = false;
    leave_mode();
    die_set_hook(NULL);
    remove_handlers();
    close(signal_pipe[0]);
    close(signal_pipe[1]);
    signal_pipe[0] = signal_pipe[1] = -1;
    if (term.fd != STDOUT_FILENO) close(term.fd);
    grid_free(&term.shown);
    buf_free(&term.out);
    del_curterm(cur_term);
}

void screen_size(int *cols, int *rows)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *cols = known && size.ws_col ? size.ws_col : 80;
    *rows = known && size.ws_row ? size.ws_row : 24;
}

/* --- suspension ------------------------------------------------------------------------------- */

/* Continued in the background (bg): the terminal is not ours. Stop again, as any program that
 * wants to read it would. */
static void wait_for_foreground(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, before;
    while (tcgetpgrp(STDIN_FILENO) != getpgrp()) {
        sigaction(SIGTTOU, &standard, &before);
        raise(SIGTTOU);
        sigaction(SIGTTOU, &before, NULL);
        if (tcgetpgrp(STDIN_FILENO) < 0) return; /* the terminal is gone */
    }
}

void screen_suspend(void)
{
    leave_mode();
    struct sigaction standard = {.sa_handler = SIG_DFL}, ours;
    sigaction(SIGTSTP, &standard, &ours);
    continued = 0;
    kill(0, SIGTSTP);
    /* Another thread may be the one that takes the signal: give it time before going on. Where the
     * signal has no effect (no shell to return to) this ends soon. */
    for (int i = 0; i < 20 && !continued; i++)
        poll(NULL, 0, 5);
    sigaction(SIGTSTP, &ours, NULL);
    screen_resume();
}

void screen_resume(void)
{
    wait_for_foreground();
    enter_mode();
}

/* --- lending ---------------------------------------------------------------------------------- */

static const struct {
    int number;
    void (*handler)(int);
} lent[] = {{SIGINT, SIG_IGN}, {SIGQUIT, SIG_IGN}, {SIGTSTP, SIG_DFL}};
#define N_LENT (sizeof lent / sizeof *lent)
static struct sigaction before_lending[N_LENT];

void screen_lend(void)
{
    leave_mode();
    for (size_t i = 0; i < N_LENT; i++) {
        struct sigaction action = {.sa_handler = lent[i].handler};
        sigaction(lent[i].number, &action, &before_lending[i]);
    }
}

void screen_take_back(void)
{
    for (size_t i = 0; i < N_LENT; i++)
        sigaction(lent[i].number, &before_lending[i], NULL);
    screen_resume();
}

/* --- drawing ---------------------------------------------------------------------------------- */

void screen_invalidate(void)
{
    term.valid = false;
}

void screen_erase(void)
{
    term.valid = false;
    term.erase = true;
}

int screen_held_fd(void)
{
    return term.out_done < term.out.len ? term.fd : -1;
}

bool screen_flush(void)
{
    while (term.out_done < term.out.len) {
        ssize_t n = write(term.fd, term.out.data + term.out_done, term.out.len - term.out_done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return false;
        if (n <= 0) break; /* the terminal is gone: SIGHUP will tell */
        term.out_done += (size_t)n;
        term.written += (unsigned long long)n;
    }
    forget_held();
    return true;
}

void screen_use_mouse(bool on)
{
    if (!term.cap.sequences || term.mouse == on) return;
    term.mouse = on;
    buf_puts(&term.out, on ? MOUSE_ON : MOUSE_OFF); /* after what may be held */
    screen_flush();
}

bool screen_keeps_esc(void)
{
    const char *window = getenv("STY"), *name = getenv("TERM");
    return (window && *window) || (name && strncmp(name, "screen.", 7) == 0);
}

#define COPY_MAX 74994 /* bytes: in base64 what the strictest terminals still take */

static void put_base64(const char *text, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < len ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            buf_putc(&term.out, i + k > len ? '=' : digits[bits >> (18 - 6 * k) & 63]);
    }
}

bool screen_copy(const char *text, size_t len)
{
    if (!term.open || !term.cap.sequences || len > COPY_MAX) return false;
    buf_puts(&term.out, "\033]52;c;"); /* after what may be held */
    put_base64(text, len);
    buf_puts(&term.out, "\033\\");
    screen_flush();
    return true;
}

unsigned long long screen_bytes_written(void)
{
    return term.written;
}

static void move_to(int x, int y)
{
    if (term.x == x && term.y == y) return;
    put_capability(tparm(term.cap.move, y, x));
    term.x = x;
    term.y = y;
}

static void set_style(int s)
{
    if (term.style == s) return;
    term.style = s;
    const look *l = &term.look->looks[s];
    put_capability(term.cap.reset);
    if (l->bold) put_capability(term.cap.bold);
    if (l->dim) put_capability(term.cap.dim);
    if (l->reverse) put_capability(term.cap.reverse);
    if (l->underline) put_capability(term.cap.underline);
    if (l->foreground >= 0 && term.cap.foreground)
        put_capability(tparm(term.cap.foreground, l->foreground));
    if (l->background >= 0 && term.cap.background)
        put_capability(tparm(term.cap.background, l->background));
}

/* What stands for a character on a terminal without UTF-8. */
static char ascii_of(const cell *c)
{
    static const struct {
        const char *text;
        char ascii;
    } table[] = {{"─", '-'}, {"│", '|'}, {"┌", '+'}, {"┐", '+'}, {"└", '+'}, {"┘", '+'}, {"├", '+'},
                 {"┤", '+'}, {"┬", '+'}, {"┴", '+'}, {"┼", '+'}, {"…", '~'}, {"•", '*'}, {"·", '-'},
                 {"▸", '>'}, {"‹", '<'}, {"›", '>'}, {"×", 'x'}, {"↓", 'v'}, {"↑", '^'}};
    if (c->len == 1) return c->text[0];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i].text) == c->len && memcmp(table[i].text, c->text, c->len) == 0)
            return table[i].ascii;
    return '?';
}

/* Writes the cluster at x; returns its width. */
static int write_cell(const grid *g, int x, int y)
{
    const cell *c = grid_at(g, x, y);
    int width = c->width ? c->width : 1;
    set_style(c->style);
    move_to(x, y);
    if (!term.utf8) {
        for (int i = 0; i < width; i++)
            buf_putc(&term.out, ascii_of(c));
    } else if (c->uncertain) {
        /* A terminal that draws it narrower must not keep old cells beside it. */
        for (int i = 0; i < width; i++)
            buf_putc(&term.out, ' ');
        term.x = -1;
        move_to(x, y);
        buf_append(&term.out, c->text, c->len);
    } else {
        buf_append(&term.out, c->text, c->len);
    }
    bool known = !(term.utf8 && c->uncertain) && x + width < g->cols;
    term.x = known ? x + width : -1;
    return width;
}

static bool same_cell(const grid *a, const grid *b, int x, int y)
{
    return memcmp(grid_at(a, x, y), grid_at(b, x, y), sizeof(cell)) == 0;
}

static bool is_blank(const cell *c)
{
    return c->len == 1 && c->text[0] == ' ' && c->style == STYLE_TEXT;
}

/* Draws row y from column x on. An uncertain cluster may have disturbed all cells to its right, so
 * then everything up to the edge is written. */
static void draw_row(const grid *g, int y)
{
    int cols = g->cols, first = 0, last = cols - 1;
    while (first < cols && same_cell(g, &term.shown, first, y))
        first++;
    if (first == cols) return;
    while (same_cell(g, &term.shown, last, y))
        last--;
    bool disturbed = false;
    for (int x = 0; x < cols; x++)
        disturbed |= grid_at(g, x, y)->uncertain || grid_at(&term.shown, x, y)->uncertain;
    if (disturbed) {
        first = 0;
        last = cols - 1;
    }
    while (first > 0 && grid_at(g, first, y)->len == 0)
        first--;
    int blank_from = cols;
    while (blank_from > 0 && is_blank(grid_at(g, blank_from - 1, y)))
        blank_from--;
    bool erase = term.cap.clear_line && last >= blank_from && cols - blank_from > BRIDGE;
    int end = erase ? blank_from : last + 1;
    bool corner_unsafe = y == g->rows - 1 && !term.cap.can_switch_wrap;
    if (corner_unsafe && end == cols) end--;
    for (int x = first; x < end;) {
        int same = 0;
        while (!disturbed && x + same < end && same_cell(g, &term.shown, x + same, y))
            same++;
        if (same > BRIDGE || x + same >= end) {
            x += same;
            while (x < end && x > 0 && grid_at(g, x, y)->len == 0)
                x--;
            if (x >= end) break;
        }
        x += write_cell(g, x, y);
    }
    if (erase) {
        set_style(STYLE_TEXT);
        move_to(blank_from, y);
        put_capability(term.cap.clear_line);
    }
}

static void start_over(const grid *g)
{
    term.style = -1;
    set_style(STYLE_TEXT);
    put_clear();
    if (term.erase && !term.cap.alternate) put_capability(term.cap.clear_scrollback);
    term.erase = false;
    term.x = -1;
    grid_resize(&term.shown, g->cols, g->rows);
    term.valid = true;
}

void screen_show(const grid *g)
{
    PF_ASSERT(term.out.len == 0);
    if (term.cursor_shown) put_capability(term.cap.hide_cursor);
    size_t before = term.out.len;
    if (!term.valid || term.shown.cols != g->cols || term.shown.rows != g->rows) start_over(g);
    for (int y = 0; y < g->rows; y++)
        draw_row(g, y);
    bool drawn = term.out.len > before;
    bool cursor_same = term.cursor_shown == g->cursor_shown &&
                       (!g->cursor_shown ||
                        (term.shown.cursor_x == g->cursor_x && term.shown.cursor_y == g->cursor_y));
    if (!drawn && cursor_same) {
        forget_held();
        return;
    }
    if (g->cursor_shown) {
        set_style(STYLE_TEXT);
        term.x = -1;
        move_to(g->cursor_x, g->cursor_y);
        put_capability(term.cap.show_cursor);
    }
    term.cursor_shown = g->cursor_shown;
    term.shown.cursor_x = g->cursor_x;
    term.shown.cursor_y = g->cursor_y;
    memcpy(term.shown.cells, g->cells, (size_t)g->cols * (size_t)g->rows * sizeof *g->cells);
    screen_flush();
}
