#include "ui/keys.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PASTE_START   "\033[200~"
#define PASTE_END     "\033[201~"
#define PASTE_END_LEN (sizeof PASTE_END - 1)
#define SEQUENCE_MAX  64 /* a longer escape sequence is none */

static const char *const key_names[] = {
#define KEY_NAME(constant, name) [constant - KEY_BASE] = name,
    KEY_LIST(KEY_NAME)
#undef KEY_NAME
};

/* --- names ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    key_code bit;
} modifiers[] = {{"Ctrl-", KEY_CTRL}, {"Alt-", KEY_ALT}, {"Shift-", KEY_SHIFT}};

bool key_parse(const char *text, key_code *out)
{
    key_code bits = 0;
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
            size_t n = strlen(modifiers[i].name);
            if (strncasecmp(text, modifiers[i].name, n) != 0 || !text[n]) continue;
            bits |= modifiers[i].bit;
            text += n;
            found = true;
        }
    }
    for (key_code k = KEY_BEFORE_NAMED + 1; k < KEY_AFTER_NAMED; k++) {
        if (strcasecmp(text, key_names[k - KEY_BASE]) != 0) continue;
        *out = k | bits;
        return true;
    }
    size_t len = strlen(text);
    uint32_t cp;
    if (len == 0 || utf8_decode(text, len, &cp, NULL) != len || cp == UINT32_MAX || cp < 0x20)
        return false;
    if (bits && cp >= 'A' && cp <= 'Z') cp |= 0x20;
    *out = cp | bits;
    return true;
}

void key_name(key_code key, buf *out)
{
    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++)
        if (key & modifiers[i].bit) buf_puts(out, modifiers[i].name);
    key_code plain = key & ~(KEY_CTRL | KEY_ALT | KEY_SHIFT);
    if (plain > KEY_BASE && plain < KEY_AFTER_NAMED) {
        buf_puts(out, key_names[plain - KEY_BASE]);
        return;
    }
    if ((key & (KEY_CTRL | KEY_ALT)) && plain >= 'a' && plain <= 'z') plain -= 0x20;
    char bytes[4];
    buf_append(out, bytes, utf8_encode(plain < 0x110000 ? plain : 0xFFFD, bytes));
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Final bytes of CSI and SS3 sequences. */
static key_code key_of_final(char final)
{
    switch (final) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'C':
        return KEY_RIGHT;
    case 'D':
        return KEY_LEFT;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    case 'M':
        return KEY_ENTER; /* SS3: keypad */
    case 'P':
        return KEY_F1;
    case 'Q':
        return KEY_F2;
    case 'R':
        return KEY_F3;
    case 'S':
        return KEY_F4;
    case 'Z':
        return KEY_TAB | KEY_SHIFT;
    default:
        return 0;
    }
}

/* Numbers of CSI n ~ sequences. */
static key_code key_of_number(int number)
{
    static const struct {
        int number;
        key_code key;
    } table[] = {
        {1, KEY_HOME}, {2, KEY_INSERT}, {3, KEY_DELETE}, {4, KEY_END},  {5, KEY_PGUP},
        {6, KEY_PGDN}, {7, KEY_HOME},   {8, KEY_END},    {11, KEY_F1},  {12, KEY_F2},
        {13, KEY_F3},  {14, KEY_F4},    {15, KEY_F5},    {17, KEY_F6},  {18, KEY_F7},
        {19, KEY_F8},  {20, KEY_F9},    {21, KEY_F10},   {23, KEY_F11}, {24, KEY_F12},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].number == number) return table[i].key;
    return 0;
}

/* xterm's modifier parameter: 1 + shift + 2 alt + 4 ctrl. */
static key_code modifier_bits(int parameter)
{
    int bits = parameter > 1 && parameter <= 16 ? parameter - 1 : 0;
    return (bits & 1 ? KEY_SHIFT : 0) | (bits & 2 ? KEY_ALT : 0) | (bits & 4 ? KEY_CTRL : 0);
}

/* Up to three decimal parameters; a missing one is 0. Returns how many there are. */
static int parse_parameters(const char *s, size_t len, int out[3])
{
    int n = 0;
    out[0] = out[1] = out[2] = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] >= '0' && s[i] <= '9' && n < 3 && out[n] < 100000)
            out[n] = out[n] * 10 + (s[i] - '0');
        else if (s[i] == ';')
            n++;
    }
    return n + 1;
}

static void emit_key(key_code key, input_fn fn, void *ctx)
{
    if (key) fn(ctx, &(input_event){.kind = INPUT_KEY, .key = key});
}

/* An SGR report: button; column; row, and M (down, moved) or m (up). */
static void emit_mouse(const int p[3], char final, input_fn fn, void *ctx)
{
    static const struct {
        int button; /* without modifiers */
        char final;
        input_kind kind;
    } table[] = {
        {0, 'M', INPUT_CLICK},     {32, 'M', INPUT_DRAG},       {0, 'm', INPUT_RELEASE},
        {64, 'M', INPUT_WHEEL_UP}, {65, 'M', INPUT_WHEEL_DOWN},
    };
    input_event ev = {.x = p[1] - 1, .y = p[2] - 1};
    if (ev.x < 0 || ev.y < 0) return;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].button != (p[0] & ~(4 | 8 | 16)) || table[i].final != final) continue;
        ev.kind = table[i].kind;
        fn(ctx, &ev);
    }
}

/* A whole CSI sequence: body is what stands between "ESC [" and the final byte. */
static void emit_csi(const char *body, size_t len, char final, input_fn fn, void *ctx)
{
    int p[3];
    if (len > 0 && body[0] == '<') {
        parse_parameters(body + 1, len - 1, p);
        emit_mouse(p, final, fn, ctx);
        return;
    }
    int n = parse_parameters(body, len, p);
    key_code key = 0, bits = modifier_bits(p[1]);
    if (final == '~' && p[0] == 27 && n >= 3) { /* modifyOtherKeys: 27 ; modifier ; code */
        key = p[2] == '\r' ? KEY_ENTER : p[2] == '\t' ? KEY_TAB : p[2] == 27 ? KEY_ESC : 0;
        if (p[2] > 0x20 && p[2] < 0x7F) key = (key_code)p[2] | (bits ? 0x20 & (key_code)p[2] : 0);
    } else if (final == '~') {
        key = key_of_number(p[0]);
    } else if (final == 'u') { /* fixterms: code ; modifier */
        key = p[0] == '\r' ? KEY_ENTER : p[0] == '\t' ? KEY_TAB : p[0] == 27 ? KEY_ESC : 0;
        if (p[0] == 127) key = KEY_BACKSPACE;
        if (p[0] > 0x20 && p[0] < 0x7F && bits) key = (key_code)p[0];
    } else if (final != 'M') {
        key = key_of_final(final);
    }
    if (key) emit_key(key | bits, fn, ctx);
}

/* How many bytes an escape sequence takes; 0 = not complete yet. Never called with less than the
 * ESC and one byte. */
static size_t sequence_length(const char *s, size_t len)
{
    if (s[1] == '[') {
        if (len == 2) return 0;
        if (s[2] == '[') return len >= 4 ? 4 : 0; /* linux console: ESC [ [ A */
        for (size_t i = 2; i < len; i++) {
            unsigned char c = (unsigned char)s[i];
            if (c >= 0x40 && c <= 0x7E) return i + 1;
            if (c < 0x20 || c > 0x7E) return i; /* broken off: what follows is read anew */
        }
        return len >= SEQUENCE_MAX ? len : 0;
    }
    if (s[1] == 'O') {
        size_t i = 2;
        while (i < len && s[i] >= '0' && s[i] <= '9' && i < 6)
            i++;
        if (i >= len) return 0;
        return (unsigned char)s[i] >= 0x40 && (unsigned char)s[i] <= 0x7E ? i + 1 : i;
    }
    return 2;
}

/* --- single characters ------------------------------------------------------------------------ */

/* A byte below 0x20 or 0x7F. */
static key_code key_of_control(unsigned char c)
{
    switch (c) {
    case '\r':
    case '\n':
        return KEY_ENTER;
    case '\t':
        return KEY_TAB;
    case 0x1B:
        return KEY_ESC;
    case 0x7F:
    case 0x08:
        return KEY_BACKSPACE;
    case 0:
        return KEY_SPACE | KEY_CTRL;
    default:
        return KEY_CTRL | (key_code)(c < 27 ? c + 'a' - 1 : c + '@');
    }
}

static bool is_control_byte(unsigned char c)
{
    return c < 0x20 || c == 0x7F;
}

static void emit_text(const char *text, size_t len, input_fn fn, void *ctx)
{
    fn(ctx, &(input_event){.kind = INPUT_TEXT, .text = text, .len = len});
}

/* One character at s; returns its bytes, 0 = more are needed. alt: it followed an ESC. */
static size_t read_character(const char *s, size_t len, bool alt, input_fn fn, void *ctx)
{
    unsigned char c = (unsigned char)s[0];
    if (is_control_byte(c)) {
        emit_key(key_of_control(c) | (alt ? KEY_ALT : 0), fn, ctx);
        return 1;
    }
    uint32_t cp;
    bool truncated = false;
    size_t n = utf8_decode(s, len, &cp, &truncated);
    if (cp == UINT32_MAX && truncated && n == len) return 0;
    if (cp == UINT32_MAX || (cp >= 0x80 && cp < 0xA0))
        emit_text("\xEF\xBF\xBD", 3, fn, ctx);
    else if (alt)
        emit_key((cp >= 'A' && cp <= 'Z' ? cp | 0x20 : cp) | KEY_ALT, fn, ctx);
    else
        emit_text(s, n, fn, ctx);
    return n;
}

/* --- sequences from the stream ---------------------------------------------------------------- */

/* The answer to the question (DECRQM) whether bracketed paste is known: on, off for now, or always
 * on. */
static bool tells_of_paste(const char *s, size_t len)
{
    static const char begin[] = "\033[?2004;";
    size_t n = sizeof begin - 1;
    return len == n + 3 && memcmp(s, begin, n) == 0 && s[n] >= '1' && s[n] <= '3' &&
           memcmp(s + n + 1, "$y", 2) == 0;
}

/* Reads one item at s; returns its bytes, 0 = incomplete. */
static size_t read_item(key_decoder *d, const char *s, size_t len, input_fn fn, void *ctx)
{
    if (s[0] != '\033') return read_character(s, len, false, fn, ctx);
    if (len == 1) return 0;
    if (s[1] == '\033') { /* ESC before a sequence: Alt in some terminals; else two ESC keys */
        emit_key(KEY_ESC, fn, ctx);
        return 1;
    }
    if (s[1] != '[' && s[1] != 'O') {
        size_t n = read_character(s + 1, len - 1, true, fn, ctx);
        return n ? n + 1 : 0;
    }
    size_t n = sequence_length(s, len);
    if (n == 0) return 0;
    char final = s[n - 1];
    if (n == sizeof PASTE_START - 1 && memcmp(s, PASTE_START, n) == 0)
        d->in_paste = d->marks_pastes = true;
    else if (tells_of_paste(s, n))
        d->marks_pastes = true;
    else if (s[1] == '[' && n == 4 && s[2] == '[')
        emit_key(final >= 'A' && final <= 'E' ? KEY_F1 + (key_code)(final - 'A') : 0, fn, ctx);
    else if (s[1] == '[')
        emit_csi(s + 2, n > 2 ? n - 3 : 0, final, fn, ctx);
    else
        emit_key(key_of_final(final), fn, ctx);
    return n;
}

static void finish_paste(key_decoder *d, input_fn fn, void *ctx)
{
    d->in_paste = false;
    fn(ctx, &(input_event){.kind = INPUT_PASTE, .text = buf_str(&d->paste), .len = d->paste.len});
    if (d->paste.data) explicit_bzero(d->paste.data, d->paste.cap);
    buf_free(&d->paste);
}

/* Takes bytes of a paste up to its end mark; returns how many of s were used. The mark may arrive
 * in parts, so it is looked for in what was collected, from where it can have begun. */
static size_t read_paste(key_decoder *d, const char *s, size_t len, input_fn fn, void *ctx)
{
    size_t room = d->paste.len < KEYS_PASTE_MAX ? KEYS_PASTE_MAX - d->paste.len : 0;
    size_t take = len < room ? len : room;
    size_t before = d->paste.len;
    size_t from = before > PASTE_END_LEN - 1 ? before - (PASTE_END_LEN - 1) : 0;
    buf_append(&d->paste, s, take);
    const char *end = memmem(d->paste.data + from, d->paste.len - from, PASTE_END, PASTE_END_LEN);
    size_t used = take;
    if (end) {
        size_t content = (size_t)(end - d->paste.data);
        used = content + PASTE_END_LEN - before;
        d->paste.len = content;
        finish_paste(d, fn, ctx);
    } else if (d->paste.len >= KEYS_PASTE_MAX) {
        finish_paste(d, fn, ctx);
        d->in_paste = true;
    }
    return used;
}

void keys_feed(key_decoder *d, const char *bytes, size_t len, int64_t now_ms, input_fn fn,
               void *ctx)
{
    keys_tick(d, now_ms, fn, ctx);
    if (len == 0) return;
    d->last_ms = now_ms;
    size_t pos = 0;
    while (pos < len) {
        if (d->in_paste) {
            pos += read_paste(d, bytes + pos, len - pos, fn, ctx);
            continue;
        }
        /* An item is read from `pending` while that holds its beginning, else from the input. */
        if (d->pending.len == 0) {
            size_t n = read_item(d, bytes + pos, len - pos, fn, ctx);
            if (n == 0) {
                buf_append(&d->pending, bytes + pos, len - pos);
                return;
            }
            pos += n;
            continue;
        }
        size_t had = d->pending.len;
        buf_putc(&d->pending, bytes[pos]);
        size_t n = read_item(d, d->pending.data, d->pending.len, fn, ctx);
        if (n == 0) {
            pos++;
            continue;
        }
        /* n > had: the new byte was used. Otherwise what is left of pending is read anew. */
        if (n > had) pos++;
        size_t rest = n > had ? 0 : had - n;
        memmove(d->pending.data, d->pending.data + n, rest);
        d->pending.len = rest;
    }
}

void keys_tick(key_decoder *d, int64_t now_ms, input_fn fn, void *ctx)
{
    int64_t silence = now_ms - d->last_ms;
    if (d->in_paste && silence >= KEYS_PASTE_MS) finish_paste(d, fn, ctx);
    if (d->pending.len == 0) return;
    if (d->pending.data[0] != '\033') {
        if (silence < KEYS_UTF8_MS) return;
        emit_text("\xEF\xBF\xBD", 3, fn, ctx);
        d->pending.len = 0;
        return;
    }
    if (silence < KEYS_ESC_MS) return;
    buf rest = d->pending;
    d->pending = (buf){0};
    if (rest.len == 1)
        emit_key(KEY_ESC, fn, ctx);
    else if (rest.len == 2) /* ESC [ or ESC O and nothing more: Alt-[ or Alt-O */
        read_character(rest.data + 1, 1, true, fn, ctx);
    buf_free(&rest); /* a longer sequence was cut off by the line: it is nothing */
}

int keys_timeout(const key_decoder *d, int64_t now_ms)
{
    int64_t after = -1;
    if (d->in_paste)
        after = KEYS_PASTE_MS;
    else if (d->pending.len)
        after = d->pending.data[0] == '\033' ? KEYS_ESC_MS : KEYS_UTF8_MS;
    if (after < 0) return -1;
    int64_t left = d->last_ms + after - now_ms;
    return left < 0 ? 0 : (int)left;
}

void keys_free(key_decoder *d)
{
    if (d->pending.data) explicit_bzero(d->pending.data, d->pending.cap);
    if (d->paste.data) explicit_bzero(d->paste.data, d->paste.cap);
    buf_free(&d->pending);
    buf_free(&d->paste);
    *d = (key_decoder){0};
}
