/* keys: decodes a terminal's bytes into key presses, text, pastes and mouse events.
 *
 * A pure state machine without a terminal: bytes and times in, events out. It understands UTF-8,
 * the CSI and SS3 sequences of the usual terminals (xterm, VT, rxvt, linux console), modifiers,
 * bracketed paste and SGR mouse reports; other sequences are swallowed whole. A lone ESC counts as
 * the key after KEYS_ESC_MS. Ill-formed UTF-8 becomes U+FFFD and never swallows a key. */
#ifndef PF_UI_KEYS_H
#define PF_UI_KEYS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYS_ESC_MS    50         /* a lone ESC is the key after this time */
#define KEYS_UTF8_MS   5000       /* an incomplete character is given up after this time */
#define KEYS_PASTE_MS  800        /* a paste without an end is over after this silence */
#define KEYS_PASTE_MAX (16 << 20) /* bytes of one paste event; the rest follows as another */

/* A key: a named one below or a code point (lower case with modifiers), with modifier bits. */
typedef uint32_t key_code;

#define KEY_CTRL  (1u << 24)
#define KEY_ALT   (1u << 25)
#define KEY_SHIFT (1u << 26)
#define KEY_BASE  0x110000u

/* X(constant, name) */
#define KEY_LIST(X)                                                                                \
    X(KEY_ENTER, "Enter")                                                                          \
    X(KEY_TAB, "Tab")                                                                              \
    X(KEY_ESC, "Esc")                                                                              \
    X(KEY_BACKSPACE, "Backspace")                                                                  \
    X(KEY_DELETE, "Delete")                                                                        \
    X(KEY_INSERT, "Insert")                                                                        \
    X(KEY_UP, "Up")                                                                                \
    X(KEY_DOWN, "Down")                                                                            \
    X(KEY_LEFT, "Left")                                                                            \
    X(KEY_RIGHT, "Right")                                                                          \
    X(KEY_HOME, "Home")                                                                            \
    X(KEY_END, "End")                                                                              \
    X(KEY_PGUP, "PgUp")                                                                            \
    X(KEY_PGDN, "PgDn")                                                                            \
    X(KEY_SPACE, "Space")                                                                          \
    X(KEY_F1, "F1")                                                                                \
    X(KEY_F2, "F2")                                                                                \
    X(KEY_F3, "F3")                                                                                \
    X(KEY_F4, "F4")                                                                                \
    X(KEY_F5, "F5")                                                                                \
    X(KEY_F6, "F6")                                                                                \
    X(KEY_F7, "F7")                                                                                \
    X(KEY_F8, "F8")                                                                                \
    X(KEY_F9, "F9")                                                                                \
    X(KEY_F10, "F10")                                                                              \
    X(KEY_F11, "F11")                                                                              \
    X(KEY_F12, "F12")

enum {
    KEY_BEFORE_NAMED = KEY_BASE,
#define KEY_ENUM(constant, name) constant,
    KEY_LIST(KEY_ENUM)
#undef KEY_ENUM
        KEY_AFTER_NAMED
};

/* "Ctrl-P", "Alt-Enter", "é"; false if text names no key. Names are matched without case. */
bool key_parse(const char *text, key_code *out);
/* The name of a key, as key_parse reads it. */
void key_name(key_code key, buf *out);

typedef enum {
    INPUT_KEY,   /* key */
    INPUT_TEXT,  /* text: one typed character */
    INPUT_PASTE, /* text: all of a bracketed paste, as it came */
    INPUT_WHEEL_UP,
    INPUT_WHEEL_DOWN,
    INPUT_CLICK,  /* left button down */
    INPUT_DRAG,   /* moved while the left button is down; the window's, never a view's */
    INPUT_RELEASE /* the button is up again; likewise */
} input_kind;

typedef struct {
    input_kind kind;
    key_code key;
    const char *text; /* borrowed until the callback returns */
    size_t len;
    int x, y; /* mouse: cell, from 0 */
} input_event;

typedef void (*input_fn)(void *ctx, const input_event *ev);

/* Zeroed = fresh; keys_free wipes what it holds. */
typedef struct {
    buf pending;       /* an incomplete sequence or character */
    buf paste;         /* a paste under way */
    bool in_paste;     /* between start and end mark */
    bool marks_pastes; /* the terminal does: it sent such a mark, or said so (DECRQM) */
    int64_t last_ms;   /* when the last byte came */
} key_decoder;

/* Feeds bytes that arrived at now_ms; calls fn for every event they complete. */
void keys_feed(key_decoder *d, const char *bytes, size_t len, int64_t now_ms, input_fn fn,
               void *ctx);
/* Lets time pass: a lone ESC, a cut character or an endless paste may become events. */
void keys_tick(key_decoder *d, int64_t now_ms, input_fn fn, void *ctx);
/* Milliseconds until keys_tick may have something to do; -1 = never. */
int keys_timeout(const key_decoder *d, int64_t now_ms);
void keys_free(key_decoder *d);

#endif
