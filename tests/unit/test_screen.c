/* What the screen module writes, read by a small terminal: once with our idea of widths, once with
 * one that advances by the parts of a joined cluster, once with one that gives every such cluster
 * one cell. Borders and what follows a cluster have to be right in all of them. */
#include "ui/frame.h"
#include "ui/screen.h"
#include "ui/text.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COLS 40
#define ROWS 8

/* --- the terminal ----------------------------------------------------------------------------- */

typedef enum { BY_CLUSTER, BY_PARTS, ONE_EACH } width_policy;

typedef struct {
    width_policy policy;
    char cells[ROWS][COLS][64]; /* text of each cell; "" right of a wide one */
    int x, y;
    bool wrap, alternate, cursor, paste, mouse;
    size_t bytes;
} terminal;

static void blank(terminal *t, int y, int from)
{
    for (int x = from; x < COLS; x++)
        strcpy(t->cells[y][x], " ");
}

static void set_mode(terminal *t, const char *body, bool on)
{
    if (strcmp(body, "?1049") == 0) t->alternate = on;
    if (strcmp(body, "?7") == 0) t->wrap = on;
    if (strcmp(body, "?25") == 0) t->cursor = on;
    if (strcmp(body, "?2004") == 0) t->paste = on;
    if (strcmp(body, "?1000") == 0) t->mouse = on;
}

static void control(terminal *t, const char *body, char final)
{
    int row = 1, col = 1;
    switch (final) {
    case 'H':
        sscanf(body, "%d;%d", &row, &col);
        assert_in_range(row, 1, ROWS);
        assert_in_range(col, 1, COLS);
        t->y = row - 1;
        t->x = col - 1;
        break;
    case 'J':
        for (int y = 0; y < ROWS; y++)
            blank(t, y, 0);
        break;
    case 'K':
        blank(t, t->y, t->x);
        break;
    case 'h':
    case 'l':
        set_mode(t, body, final == 'h');
        break;
    default:
        break; /* colours */
    }
}

static int cells_of(const terminal *t, const char *text, size_t len)
{
    text_cluster c = text_next(text, len);
    if (t->policy == BY_CLUSTER) return c.width;
    if (t->policy == ONE_EACH) return c.uncertain ? 1 : c.width;
    int sum = 0; /* by parts: every code point by itself */
    for (size_t pos = 0; pos < len;) {
        uint32_t cp;
        size_t n = utf8_decode(text + pos, len - pos, &cp, NULL);
        sum += text_next(text + pos, n).width;
        pos += n;
    }
    return sum;
}

static void print(terminal *t, const char *text, size_t len)
{
    int width = cells_of(t, text, len);
    for (int i = 0; i < width && t->x + i < COLS; i++)
        strcpy(t->cells[t->y][t->x + i], "");
    if (t->x < COLS && len < sizeof t->cells[0][0]) {
        memcpy(t->cells[t->y][t->x], text, len);
        t->cells[t->y][t->x][len] = '\0';
    }
    t->x += width;
    if (t->x >= COLS) t->x = COLS - 1; /* no wrapping */
}

static void feed(terminal *t, const char *s, size_t len)
{
    t->bytes += len;
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\033' && i + 1 < len && s[i + 1] == '[') {
            char body[32] = "";
            size_t n = strcspn(s + i + 2, "ABCDEFGHJKSTXfhlmnrt@PLM");
            assert_true(n < sizeof body);
            memcpy(body, s + i + 2, n);
            control(t, body, s[i + 2 + n]);
            i += n + 3;
        } else if (c == '\033') {
            i += s[i + 1] == '(' ? 3 : 2;
        } else if (c < 0x20) {
            i++;
        } else {
            size_t n = text_next(s + i, len - i).len;
            print(t, s + i, n);
            i += n;
        }
    }
}

static void row_text(const terminal *t, int y, buf *out)
{
    buf_clear(out);
    for (int x = 0; x < COLS; x++)
        buf_puts(out, t->cells[y][x]);
}

/* --- the program's side ----------------------------------------------------------------------- */

static int master = -1, saved_in = -1, saved_out = -1;
static struct termios before;

static void enter(void)
{
    int slave;
    struct winsize size = {.ws_col = COLS, .ws_row = ROWS};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    tcgetattr(slave, &before);
    fcntl(master, F_SETFL, O_NONBLOCK);
    fflush(stdout);
    saved_in = dup(STDIN_FILENO);
    saved_out = dup(STDOUT_FILENO);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    close(slave);
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
}

static void leave(void)
{
    dup2(saved_in, STDIN_FILENO);
    dup2(saved_out, STDOUT_FILENO);
    close(saved_in);
    close(saved_out);
    close(master);
}

/* All that was written, at once: a read may end within a sequence. */
static void drain(terminal *t)
{
    static char bytes[1 << 18];
    size_t len = 0;
    struct pollfd p = {.fd = master, .events = POLLIN};
    while ((poll(&p, 1, 20) == 1 && (p.revents & POLLIN)) || screen_held_fd() >= 0) {
        ssize_t n = read(master, bytes + len, sizeof bytes - 1 - len);
        if (n > 0) len += (size_t)n;
        screen_flush();
    }
    bytes[len] = '\0';
    feed(t, bytes, len);
}

/* Two panes; lines of text in the left one. */
static void draw(grid *g, const char *const *lines, size_t n)
{
    grid_resize(g, COLS, ROWS);
    frame_box(g, (rect){0, 0, 24, ROWS}, STYLE_BORDER);
    frame_box(g, (rect){23, 0, COLS - 23, ROWS}, STYLE_BORDER_ACTIVE);
    area left = area_sub(grid_area(g), 1, 1, 22, ROWS - 2);
    area right = area_sub(grid_area(g), 24, 1, COLS - 25, ROWS - 2);
    for (size_t i = 0; i < n; i++) {
        area_put(left, 0, (int)i, STYLE_TEXT, lines[i]);
        area_printf(right, 0, (int)i, STYLE_TEXT, "right %zu", i);
    }
    area_cursor(right, 3, 2);
}

static const char *const odd[] = {
    "\U0001F469\u200D\U0001F33E END|", "\u2764\uFE0F END|", "\U0001F1F0\U0001F1F7 END|",
    "\U0001F44D\U0001F3FD END|",       "\U0001FAE8 END|",   "e\u0301\u0301 \uE0B0 END|",
};
static const char *const plain[] = {"one", "一二三", "three", "", "five", "six"};

static void check_rows(const terminal *t, bool with_end)
{
    buf row = {0};
    for (int y = 1; y < ROWS - 1; y++) {
        assert_string_equal(t->cells[y][0], "│");
        assert_string_equal(t->cells[y][23], "│");
        assert_string_equal(t->cells[y][COLS - 1], "│");
        row_text(t, y, &row);
        if (with_end) assert_non_null(strstr(buf_str(&row), " END|"));
        assert_non_null(strstr(buf_str(&row), "│right "));
    }
    buf_free(&row);
}

static void widths_disagree(void **state)
{
    (void)state;
    for (int policy = BY_CLUSTER; policy <= ONE_EACH; policy++) {
        terminal t = {.policy = (width_policy)policy, .wrap = true, .cursor = true};
        grid g = {0};
        enter();
        pf_err err = {0};
        pf_status status = screen_open(true, &err);
        draw(&g, odd, 6);
        screen_show(&g);
        drain(&t);
        terminal first = t;
        draw(&g, plain, 6); /* nothing of the odd ones may stay */
        screen_show(&g);
        drain(&t);
        terminal second = t;
        draw(&g, odd, 6);
        screen_show(&g);
        drain(&t);
        terminal third = t;
        screen_close();
        drain(&t);
        struct termios after;
        tcgetattr(STDIN_FILENO, &after);
        leave();
        assert_int_equal(status, PF_OK);
        assert_true(first.alternate && first.paste && first.mouse && !first.wrap);
        assert_true(first.cursor);
        assert_int_equal(first.x, 24 + 3);
        assert_int_equal(first.y, 1 + 2);
        check_rows(&first, true);
        check_rows(&second, false);
        buf row = {0};
        row_text(&second, 1, &row);
        assert_non_null(strstr(buf_str(&row), "│one                   │right 0"));
        check_rows(&third, true);
        for (int y = 0; y < ROWS; y++) { /* nothing of it is left on the screen that goes away */
            buf_clear(&row);
            row_text(&t, y, &row);
            assert_int_equal(strspn(buf_str(&row), " "), row.len);
        }
        buf_free(&row);
        assert_false(t.alternate || t.paste || t.mouse);
        assert_true(t.wrap && t.cursor);
        assert_memory_equal(&after, &before, sizeof after);
        grid_free(&g);
    }
}

/* A token at the end of an answer costs few bytes, an unchanged picture none. */
static void few_bytes(void **state)
{
    (void)state;
    terminal t = {.wrap = true};
    grid g = {0};
    enter();
    pf_err err = {0};
    screen_open(false, &err);
    draw(&g, plain, 6);
    screen_show(&g);
    drain(&t);
    unsigned long long start = screen_bytes_written();
    screen_show(&g);
    unsigned long long same = screen_bytes_written() - start;
    area_put(area_sub(grid_area(&g), 1, 1, 22, 6), 3, 0, STYLE_TEXT, " more");
    screen_show(&g);
    unsigned long long token = screen_bytes_written() - start - same;
    drain(&t);
    screen_close();
    leave();
    assert_int_equal(same, 0);
    assert_in_range(token, 5, 100);
    buf row = {0};
    row_text(&t, 1, &row);
    assert_non_null(strstr(buf_str(&row), "│one more              │right 0"));
    buf_free(&row);
    grid_free(&g);
}

/* A terminal that takes nothing holds nobody up: pictures are held, and it goes on where it was. */
static void standing_still(void **state)
{
    (void)state;
    static terminal t;
    t = (terminal){.wrap = true};
    grid g = {0};
    enter();
    pf_err err = {0};
    screen_open(false, &err);
    int pictures = 0;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (; pictures < 10000 && screen_flush(); pictures++) { /* nobody reads */
        draw(&g, pictures % 2 ? odd : plain, 6);
        screen_show(&g);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    bool held = screen_held_fd() >= 0;
    drain(&t); /* now somebody does */
    bool empty = screen_held_fd() < 0;
    screen_invalidate();
    draw(&g, plain, 6);
    screen_show(&g);
    drain(&t);
    screen_close();
    leave();
    assert_true(held && empty);
    assert_in_range(pictures, 2, 9999);
    assert_in_range(end.tv_sec - begin.tv_sec, 0, 5);
    buf row = {0};
    row_text(&t, 1, &row);
    assert_non_null(strstr(buf_str(&row), "│one                   │right 0"));
    buf_free(&row);
    grid_free(&g);
}

/* Random pictures, one after another: the terminal always shows the last one. */
static void random_pictures(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "a", "bc", " ", "一", "\U0001F469\u200D\U0001F33E", "e\u0301", "─", "\U0001F1F0\U0001F1F7"};
    static terminal t;
    t = (terminal){.wrap = true};
    grid g = {0};
    enter();
    pf_err err = {0};
    screen_open(false, &err);
    grid_resize(&g, COLS, ROWS);
    uint32_t seed = 5;
    int wrong = 0;
    for (int round = 0; round < 150; round++) {
        for (int i = 0; i < 6; i++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t r = seed >> 8;
            area_put(grid_area(&g), (int)(r % COLS), (int)(r / 64 % ROWS),
                     (style)(r / 1024 % STYLE_COUNT), pieces[r / 32768 % 8]);
        }
        screen_show(&g);
        drain(&t);
        for (int y = 0; y < ROWS; y++)
            for (int x = 0; x < COLS; x++) {
                const cell *c = grid_at(&g, x, y);
                if (strlen(t.cells[y][x]) != c->len || memcmp(t.cells[y][x], c->text, c->len) != 0)
                    wrong++;
            }
    }
    screen_close();
    leave();
    assert_int_equal(wrong, 0);
    grid_free(&g);
}

static void probing(void **state)
{
    (void)state;
    static const struct {
        const char *term;
        screen_kind kind;
    } cases[] = {{"xterm-256color", SCREEN_FULL},
                 {"dumb", SCREEN_LINE},
                 {"", SCREEN_NONE},
                 {"nosuchterm", SCREEN_NONE},
                 {NULL, SCREEN_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pf_err err = {0};
        enter();
        if (cases[i].term)
            setenv("TERM", cases[i].term, 1);
        else
            unsetenv("TERM");
        screen_kind kind = screen_probe(&err);
        leave();
        assert_int_equal(kind, cases[i].kind);
        if (kind == SCREEN_NONE) assert_non_null(strstr(err.text, "preft run"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_disagree), cmocka_unit_test(few_bytes),
        cmocka_unit_test(standing_still),  cmocka_unit_test(random_pictures),
        cmocka_unit_test(probing),
    };
    return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
