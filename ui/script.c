#include "ui/script.h"

#include "base/file.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_MAX   (4u << 20)
#define WAIT_DEFAULT 120.0

struct script {
    char *name;
    script_step *steps;
    size_t len, cap;
};

/* A line being read. */
typedef struct {
    script *script;
    int line;
    const char *at; /* NUL-terminated rest */
    pf_err *err;
} reader;

static pf_status bad(const reader *r, const char *what)
{
    return err_set(r->err, PF_USAGE, "%s, line %d: %s", r->script->name, r->line, what);
}

static script_step *add_step(reader *r, step_kind kind)
{
    script *s = r->script;
    if (s->len == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->steps = xrealloc_array(s->steps, s->cap, sizeof *s->steps);
    }
    script_step *step = &s->steps[s->len++];
    *step = (script_step){.kind = kind, .line = r->line, .limit_s = WAIT_DEFAULT};
    return step;
}

static void skip_blanks(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

static int hex_value(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* One escape after a backslash; false if there is no such. */
static bool read_escape(reader *r, buf *out)
{
    char c = *r->at++;
    switch (c) {
    case 'n':
        buf_putc(out, '\r');
        return true;
    case 't':
        buf_putc(out, '\t');
        return true;
    case 'e':
        buf_putc(out, '\033');
        return true;
    case '"':
    case '\\':
        buf_putc(out, c);
        return true;
    case 'x':
        break;
    default:
        return false;
    }
    int high = hex_value(r->at[0]), low = high >= 0 ? hex_value(r->at[1]) : -1;
    if (low < 0) return false;
    buf_putc(out, (char)(high * 16 + low));
    r->at += 2;
    return true;
}

static pf_status read_quoted(reader *r, buf *out)
{
    skip_blanks(r);
    if (*r->at != '"') return bad(r, "a text in double quotes is needed here");
    r->at++;
    while (*r->at && *r->at != '"') {
        char c = *r->at++;
        if (c != '\\')
            buf_putc(out, c);
        else if (!*r->at || !read_escape(r, out))
            return bad(r, "unknown escape (known: \\n \\t \\e \\\" \\\\ \\xHH)");
    }
    if (*r->at != '"') return bad(r, "a closing double quote is missing");
    r->at++;
    return PF_OK;
}

/* The next word into out (cut to size); its length. */
static size_t read_word(reader *r, char *out, size_t size)
{
    skip_blanks(r);
    size_t n = strcspn(r->at, " \t");
    size_t kept = n < size ? n : size - 1;
    memcpy(out, r->at, kept);
    out[kept] = '\0';
    r->at += n;
    return n;
}

static pf_status read_number(reader *r, int low, int high, int *out)
{
    char word[32], *end;
    size_t n = read_word(r, word, sizeof word);
    long value = strtol(word, &end, 10);
    if (n == 0 || n >= sizeof word || *end || value < low || value > high)
        return bad(r, "a number in the allowed range is needed here");
    *out = (int)value;
    return PF_OK;
}

static pf_status read_limit(reader *r, script_step *step)
{
    skip_blanks(r);
    int seconds;
    if (!*r->at) return PF_OK;
    pf_status status = read_number(r, 1, 100000, &seconds);
    if (status == PF_OK) step->limit_s = seconds;
    return status;
}

static pf_status read_size(reader *r, int *cols, int *rows)
{
    char word[32], rest;
    read_word(r, word, sizeof word);
    if (sscanf(word, "%dx%d%c", cols, rows, &rest) != 2 || *cols < 1 || *rows < 1 || *cols > 1000 ||
        *rows > 1000)
        return bad(r, "a size like 80x24 is needed here");
    return PF_OK;
}

static pf_status read_text_step(reader *r, step_kind kind)
{
    script_step *step = add_step(r, kind);
    return read_quoted(r, &step->text);
}

static pf_status read_wait(reader *r)
{
    char word[16];
    read_word(r, word, sizeof word);
    if (strcmp(word, "idle") == 0) return read_limit(r, add_step(r, STEP_WAIT_IDLE));
    bool gone = strcmp(word, "gone") == 0;
    if (!gone && strcmp(word, "text") != 0)
        return bad(r, ":wait is followed by idle, text or gone");
    pf_status status = read_text_step(r, gone ? STEP_WAIT_GONE : STEP_WAIT_TEXT);
    if (status == PF_OK) status = read_limit(r, &r->script->steps[r->script->len - 1]);
    return status;
}

static pf_status read_picture(reader *r, step_kind kind)
{
    char word[64];
    script_step *step = add_step(r, kind);
    if (read_word(r, word, sizeof word))
        buf_puts(&step->text, word);
    else
        buf_printf(&step->text, "line %d", r->line);
    return PF_OK;
}

static pf_status read_screen(reader *r)
{
    return read_picture(r, STEP_SCREEN);
}

static pf_status read_cells(reader *r)
{
    return read_picture(r, STEP_CELLS);
}

static pf_status read_resize(reader *r)
{
    script_step *step = add_step(r, STEP_RESIZE);
    return read_size(r, &step->x, &step->y);
}

static pf_status read_pane(reader *r)
{
    return read_number(r, 1, 8, &add_step(r, STEP_PANE)->x);
}

static pf_status read_limit_step(reader *r)
{
    return read_number(r, 0, 1000000, &add_step(r, STEP_LIMIT)->x);
}

static pf_status read_sleep(reader *r)
{
    return read_number(r, 0, 600000, &add_step(r, STEP_SLEEP)->x);
}

static pf_status read_answer(reader *r)
{
    add_step(r, STEP_ANSWER);
    return PF_OK;
}

static pf_status read_place(reader *r, step_kind kind)
{
    script_step *step = add_step(r, kind);
    pf_status status = read_number(r, 0, 1000, &step->x);
    return status == PF_OK ? read_number(r, 0, 1000, &step->y) : status;
}

static pf_status read_click(reader *r)
{
    return read_place(r, STEP_CLICK);
}

static pf_status read_wheel(reader *r)
{
    char word[16];
    read_word(r, word, sizeof word);
    if (strcmp(word, "up") == 0) return read_place(r, STEP_WHEEL_UP);
    if (strcmp(word, "down") == 0) return read_place(r, STEP_WHEEL_DOWN);
    return bad(r, ":wheel is followed by up or down");
}

static pf_status read_drag(reader *r)
{
    pf_status status = read_place(r, STEP_DRAG);
    script_step *step = &r->script->steps[r->script->len - 1];
    if (status == PF_OK) status = read_number(r, 0, 1000, &step->to_x);
    return status == PF_OK ? read_number(r, 0, 1000, &step->to_y) : status;
}

static pf_status read_idle(reader *r)
{
    return read_number(r, 0, 1000000, &add_step(r, STEP_IDLE)->x);
}

static pf_status read_restart(reader *r)
{
    add_step(r, STEP_RESTART);
    return PF_OK;
}

static pf_status read_clock(reader *r)
{
    char word[16], rest;
    int hour, minute;
    read_word(r, word, sizeof word);
    if (sscanf(word, "%2d:%2d%c", &hour, &minute, &rest) != 2 || strlen(word) != 5)
        return bad(r, "a time like 19:02 is needed here");
    buf_puts(&add_step(r, STEP_CLOCK)->text, word);
    return PF_OK;
}

static pf_status read_paste(reader *r)
{
    return read_text_step(r, STEP_PASTE);
}

static pf_status read_expect(reader *r)
{
    return read_text_step(r, STEP_EXPECT);
}

static pf_status read_reject(reader *r)
{
    return read_text_step(r, STEP_REJECT);
}

static const struct {
    const char *name;
    pf_status (*read)(reader *r);
} commands[] = {
    {":wait", read_wait},       {":screen", read_screen}, {":resize", read_resize},
    {":pane", read_pane},       {":paste", read_paste},   {":click", read_click},
    {":wheel", read_wheel},     {":clock", read_clock},   {":limit", read_limit_step},
    {":sleep", read_sleep},     {":answer", read_answer}, {":expect", read_expect},
    {":reject", read_reject},   {":drag", read_drag},     {":idle", read_idle},
    {":restart", read_restart}, {":cells", read_cells},
};

static pf_status read_command(reader *r)
{
    char word[16];
    read_word(r, word, sizeof word);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(word, commands[i].name) != 0) continue;
        pf_status status = commands[i].read(r);
        skip_blanks(r);
        if (status == PF_OK && *r->at) status = bad(r, "the step ends before this");
        return status;
    }
    return bad(r, "unknown step");
}

static pf_status read_keys(reader *r)
{
    pf_status status = PF_OK;
    for (skip_blanks(r); *r->at && status == PF_OK; skip_blanks(r)) {
        if (*r->at == '"') {
            status = read_text_step(r, STEP_TYPE);
            continue;
        }
        char word[64];
        key_code key;
        read_word(r, word, sizeof word);
        if (!key_parse(word, &key)) {
            char what[128];
            snprintf(what, sizeof what, "unknown key \"%s\"", word);
            return bad(r, what);
        }
        add_step(r, STEP_KEY)->key = key;
    }
    return status;
}

static pf_status read_line(reader *r)
{
    skip_blanks(r);
    if (!*r->at || *r->at == '#') return PF_OK;
    return *r->at == ':' ? read_command(r) : read_keys(r);
}

pf_status script_parse(const char *text, size_t len, const char *name, script **out, pf_err *err)
{
    script *s = xcalloc(1, sizeof *s);
    s->name = xstrdup(name);
    pf_status status = PF_OK;
    int number = 0;
    for (size_t pos = 0; pos < len && status == PF_OK;) {
        const char *end = memchr(text + pos, '\n', len - pos);
        size_t n = end ? (size_t)(end - text) - pos : len - pos;
        char *line = xmemdup0(text + pos, n);
        reader r = {.script = s, .line = ++number, .at = line, .err = err};
        status = strlen(line) == n ? read_line(&r) : bad(&r, "a NUL byte");
        wipe_free(line, n);
        pos += n + 1;
    }
    if (status == PF_OK)
        *out = s;
    else
        script_free(s);
    return status;
}

pf_status script_load(const char *path, script **out, pf_err *err)
{
    buf text = {0};
    bool standard = strcmp(path, "-") == 0;
    pf_status status = standard ? file_read_fd(0, "standard input", SCRIPT_MAX, &text, err)
                                : file_read(path, SCRIPT_MAX, &text, err);
    if (status == PF_OK) status = script_parse(buf_str(&text), text.len, path, out, err);
    wipe_buf(&text);
    return status;
}

void script_free(script *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->len; i++)
        wipe_buf(&s->steps[i].text);
    free(s->steps);
    free(s->name);
    free(s);
}

size_t script_len(const script *s)
{
    return s->len;
}

const script_step *script_at(const script *s, size_t i)
{
    return &s->steps[i];
}

const char *script_name(const script *s)
{
    return s->name;
}
