/* chat_screen: the state of a conversation view, shared by the files that make it up: chat_view
 * (the view), chat_messages (what can be done with one message), chat_draft (what is being
 * written), chat_commands (what is typed behind a slash), chat_pair (two panes that get the same
 * questions). Private to them. */
#ifndef PF_UI_CHAT_SCREEN_H
#define PF_UI_CHAT_SCREEN_H

#include "profiles/settings.h"
#include "ui/chat.h"
#include "ui/editor.h"
#include "ui/private_file.h"
#include "ui/slash.h"
#include "ui/transcript.h"
#include "ui/window.h"

/* What the text in the editor is for. */
typedef enum { WRITING_MESSAGE, WRITING_EDIT, WRITING_REWRITE } writing_mode;

typedef struct {
    view base;
    chat chat;
    transcript transcript;
    editor editor;
    slash_menu slash;
    size_t answer; /* the transcript's entry of the answer under way */
    bool writing;  /* its first text is there */
    char *waiting; /* why it waits; owned */
    int top;       /* the screen's row where the transcript begins */
    /* Input history. */
    input_history inputs;
    size_t input_at; /* inputs.n: the draft, which is kept meanwhile */
    char *kept_draft;
    /* What is written now. */
    writing_mode mode;
    int64_t target;         /* EDIT, REWRITE: the message */
    char *set_aside;        /* EDIT, REWRITE: the draft; owned */
    bool draft_stored;      /* there is a draft of this conversation in the store */
    bool draft_changed;     /* since it was saved */
    int64_t draft_saved_ms; /* monotonic */
    /* The pane that gets the same questions. */
    int pair;             /* its number; meaningless without: */
    unsigned pair_serial; /* of its chat view; 0: none */
    /* One message. */
    int64_t to_delete;     /* asked for once: the message; 0: none */
    private_folder copied; /* where the copied text is */
    int n_copied;
} chat_screen;

void say(chat_screen *s, entry_kind kind, const char *text);
void say_error(chat_screen *s, const pf_err *err);
/* Says that it can't be done now; false when no answer is being written. */
bool refuse_while_answering(chat_screen *s);
/* A view of the pane's person with a new conversation, without a profile. */
chat_screen *chat_screen_open(pane *p);
/* NULL if v is another kind of view. */
chat_screen *chat_screen_of(view *v);
/* Sends a message, here and in the paired pane; false after saying why not. */
bool chat_screen_send(chat_screen *s, const char *text, size_t len);
/* False: said why nothing can be saved. */
bool account_is_there(chat_screen *s);
/* False: said that the profile was deleted elsewhere; the next message goes without one. */
bool profile_is_there(chat_screen *s);
/* Saves an answer that could not be saved before; false: said why it still can't be. */
bool all_is_saved(chat_screen *s);
/* The tag of this pane's requests. */
void *request_tag(const chat_screen *s);
/* When a message came, as it is shown: "19:02". */
void message_time(const chat_screen *s, int64_t unix_ms, char out[8]);
/* Shows the conversation's messages anew. */
void show_turns(chat_screen *s);
/* Makes room for the answer that was asked for, at the end. */
void show_asked(chat_screen *s);

/* --- one message (ui/chat_messages.c) --------------------------------------------------------- */

/* Writes below an entry what there is to say of its message: the transcript's `annotate`. */
void annotate_turn(void *ctx, size_t entry);
/* The entry of a message; TRANSCRIPT_NONE: it is not shown. */
size_t entry_of_message(const chat_screen *s, int64_t message);
/* Does an action of CONTEXT_MESSAGE, or one that shows messages otherwise; false: it is none. */
bool message_act(chat_screen *s, action a);
/* The keys for a selected message, on one line. */
void message_draw_hints(area a);
/* Selects the message at a row of the transcript. */
void message_click(chat_screen *s, int y);
/* Sends what was written in place of a message, or as the better answer. */
void finish_writing(chat_screen *s, const char *text, size_t len);

/* --- what is being written (ui/chat_draft.c) -------------------------------------------------- */

/* "> ", or what is being edited. */
const char *writing_prompt(const chat_screen *s);
/* The editor gets the text of a message; the draft is set aside. */
void begin_writing(chat_screen *s, writing_mode mode, int64_t message, const char *text,
                   size_t len);
/* The draft comes back. */
void end_writing(chat_screen *s);
/* Drafts are kept per conversation, in the store. */
void load_draft(chat_screen *s);
/* false: it can't be saved now. leaves: the editor gets another text, so it is tried again later
 * (ui/unkept.h). */
bool save_draft(chat_screen *s, bool leaves);
void draft_was_sent(chat_screen *s);
/* After a key: saves now and then, so that little is lost when the process is killed. */
void draft_typed(chat_screen *s);
void load_inputs(chat_screen *s);
/* Up and down at the edge of the draft: what was sent before. */
void browse_inputs(chat_screen *s, int direction);
void write_outside(chat_screen *s);

/* --- the same questions in two panes (ui/chat_pair.c) --------------------------------------- */

/* The chat that gets the same questions; NULL: none, or it is gone. */
chat_screen *pair_of(const chat_screen *s);
/* Opens a pane beside this one for the same person, with the conversation so far and without the
 * profile; from then on both get what is written in either, at first the question ("": none). A
 * pair without a question is parted again. */
void pair_ask(chat_screen *s, const char *question);
void pair_part(chat_screen *s);
/* An answer is being written in one of them. */
bool pair_busy(const chat_screen *s);
/* As refuse_while_answering, for both. */
bool pair_refuse(chat_screen *s);

/* --- slash commands (ui/chat_commands.c) ------------------------------------------------------ */

/* Does an action that takes an argument, as typed or chosen in the palette; false: it is none. */
bool chat_by_name(chat_screen *s, action a, const char *argument);

#endif
