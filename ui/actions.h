/* actions: everything a key can do, in one table. The help overlay, the key bindings and their
 * documentation are made from it. */
#ifndef PF_UI_ACTIONS_H
#define PF_UI_ACTIONS_H

#include "base/buf.h"
#include "ui/keys.h"

/* Where a binding holds. Contexts are asked from the inside out: a key that the editor does not
 * bind goes to the view, then to the window. */
typedef enum { CONTEXT_WINDOW, CONTEXT_CHAT, CONTEXT_LIST, CONTEXT_EDITOR, CONTEXT_COUNT } context;

/* X(action, context, default keys separated by spaces, description) */
#define ACTION_LIST(X)                                                                             \
    X(ACTION_HELP, CONTEXT_WINDOW, "F1", "show the keys")                                          \
    X(ACTION_SPLIT_RIGHT, CONTEXT_WINDOW, "F2 Alt-V", "split the pane: another person beside")     \
    X(ACTION_SPLIT_BELOW, CONTEXT_WINDOW, "F3 Alt-H", "split the pane: another person below")      \
    X(ACTION_CLOSE_PANE, CONTEXT_WINDOW, "Alt-W", "close the pane (the conversation is kept)")     \
    X(ACTION_NEXT_PANE, CONTEXT_WINDOW, "F6 Alt-N", "go to the next pane")                         \
    X(ACTION_FOCUS_LEFT, CONTEXT_WINDOW, "Alt-Left", "go to the pane on the left")                 \
    X(ACTION_FOCUS_RIGHT, CONTEXT_WINDOW, "Alt-Right", "go to the pane on the right")              \
    X(ACTION_FOCUS_UP, CONTEXT_WINDOW, "Alt-Up", "go to the pane above")                           \
    X(ACTION_FOCUS_DOWN, CONTEXT_WINDOW, "Alt-Down", "go to the pane below")                       \
    X(ACTION_REDRAW, CONTEXT_WINDOW, "F5", "draw the screen anew")                                 \
    X(ACTION_SUSPEND, CONTEXT_WINDOW, "Ctrl-Z", "back to the shell for a while (fg returns)")      \
    X(ACTION_QUIT, CONTEXT_WINDOW, "Ctrl-Q", "leave")                                              \
    X(ACTION_SEND, CONTEXT_CHAT, "Enter", "send the message")                                      \
    X(ACTION_STOP, CONTEXT_CHAT, "Esc Ctrl-C", "stop the answer; what was written stays")          \
    X(ACTION_SCROLL_UP, CONTEXT_CHAT, "PgUp", "read further up")                                   \
    X(ACTION_SCROLL_DOWN, CONTEXT_CHAT, "PgDn", "read further down")                               \
    X(ACTION_LINE_UP, CONTEXT_CHAT, "Shift-Up Ctrl-Up", "one line up")                             \
    X(ACTION_LINE_DOWN, CONTEXT_CHAT, "Shift-Down Ctrl-Down", "one line down")                     \
    X(ACTION_TO_START, CONTEXT_CHAT, "Ctrl-Home", "to the beginning of the conversation")          \
    X(ACTION_TO_END, CONTEXT_CHAT, "Ctrl-End", "to the newest text")                               \
    X(ACTION_PROFILES, CONTEXT_CHAT, "Ctrl-O", "choose, create or import a profile")               \
    X(ACTION_CONVERSATIONS, CONTEXT_CHAT, "Ctrl-R", "resume an earlier conversation")              \
    X(ACTION_NEW_CONVERSATION, CONTEXT_CHAT, "Ctrl-N", "begin a new conversation")                 \
    X(ACTION_LOCK, CONTEXT_CHAT, "Ctrl-L", "lock: nothing stays readable")                         \
    X(ACTION_SIGN_OUT, CONTEXT_CHAT, "Alt-Q", "sign out of this pane")                             \
    X(ACTION_CHOOSE, CONTEXT_LIST, "Enter", "choose")                                              \
    X(ACTION_BACK, CONTEXT_LIST, "Esc", "back")                                                    \
    X(ACTION_PREVIOUS, CONTEXT_LIST, "Up Shift-Tab", "the one before")                             \
    X(ACTION_NEXT, CONTEXT_LIST, "Down Tab", "the one after")                                      \
    X(ACTION_PAGE_BACK, CONTEXT_LIST, "PgUp", "a page back")                                       \
    X(ACTION_PAGE_ON, CONTEXT_LIST, "PgDn", "a page on")                                           \
    X(ACTION_FIRST, CONTEXT_LIST, "Home", "the first")                                             \
    X(ACTION_LAST, CONTEXT_LIST, "End", "the last")                                                \
    X(ACTION_CREATE, CONTEXT_LIST, "Ctrl-N", "profiles: make a new one")                           \
    X(ACTION_IMPORT, CONTEXT_LIST, "F8 Ctrl-Y", "profiles: import an adapter's folder")            \
    X(ACTION_NEWLINE, CONTEXT_EDITOR, "Alt-Enter Shift-Enter", "begin a new line")                 \
    X(ACTION_LEFT, CONTEXT_EDITOR, "Left Ctrl-B", "one character left")                            \
    X(ACTION_RIGHT, CONTEXT_EDITOR, "Right Ctrl-F", "one character right")                         \
    X(ACTION_WORD_LEFT, CONTEXT_EDITOR, "Ctrl-Left Alt-B", "one word left")                        \
    X(ACTION_WORD_RIGHT, CONTEXT_EDITOR, "Ctrl-Right Alt-F", "one word right")                     \
    X(ACTION_UP, CONTEXT_EDITOR, "Up", "line up; in the first line the message sent before")       \
    X(ACTION_DOWN, CONTEXT_EDITOR, "Down", "line down; in the last line the message sent after")   \
    X(ACTION_LINE_START, CONTEXT_EDITOR, "Home Ctrl-A", "start of the line")                       \
    X(ACTION_LINE_END, CONTEXT_EDITOR, "End Ctrl-E", "end of the line")                            \
    X(ACTION_ERASE_LEFT, CONTEXT_EDITOR, "Backspace", "erase to the left")                         \
    X(ACTION_ERASE_RIGHT, CONTEXT_EDITOR, "Delete Ctrl-D", "erase to the right")                   \
    X(ACTION_ERASE_WORD, CONTEXT_EDITOR, "Ctrl-W Alt-Backspace", "erase the word to the left")     \
    X(ACTION_ERASE_TO_START, CONTEXT_EDITOR, "Ctrl-U", "erase to the start of the line")           \
    X(ACTION_ERASE_TO_END, CONTEXT_EDITOR, "Ctrl-K", "erase to the end of the line")               \
    X(ACTION_UNDO, CONTEXT_EDITOR, "Alt-U Ctrl-_", "undo")                                         \
    X(ACTION_REDO, CONTEXT_EDITOR, "Alt-R", "redo")

typedef enum {
    ACTION_NONE,
#define ACTION_ENUM(name, context, keys, description) name,
    ACTION_LIST(ACTION_ENUM)
#undef ACTION_ENUM
        ACTION_COUNT
} action;

/* What key does in a context; ACTION_NONE if nothing. */
action action_of(key_code key, context where);
context action_context(action a);
const char *action_description(action a);
/* "F2 or Alt-V" */
void action_keys(action a, buf *out);
/* The first key only, for hints. */
void action_key(action a, buf *out);
const char *context_title(context where);

#endif
