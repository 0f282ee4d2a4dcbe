/* picker: the lists that open over a conversation, and the calls they make to it. Private to ui/.
 */
#ifndef PF_UI_PICKER_H
#define PF_UI_PICKER_H

#include "ui/window.h"

view *profiles_view(pane *p);
/* What a profile has learned, and its versions to choose from. */
view *profile_info_view(pane *p, int64_t profile);
view *conversations_view(pane *p);
/* What the person noted, or what was found in messages and waits to be confirmed. */
view *notes_view(pane *p);
/* One question to two models: a version of a profile, and another (0: the plain model). */
view *compare_view(pane *p, int64_t profile, int64_t version, int64_t other);
void compare_view_ask(view *v, const char *question);
/* Pushes the search; text: what to look for at first. */
void search_show(pane *p, const char *text);

/* Of the chat view below them (ui/chat_view.c). */
void chat_view_use_profile(view *v, int64_t profile);
/* Says that an answer is being written, which another pane may have asked for; false: none is. */
bool chat_view_refuses(view *v);
void chat_view_resume(view *v, int64_t id);
/* Opens a conversation at one of its messages (id of the store). */
void chat_view_resume_at(view *v, int64_t conversation, int64_t message);
int64_t chat_view_conversation(const view *v); /* 0: not saved yet, or v is another kind of view */
/* A conversation was deleted: a new one begins where it was shown. */
void chat_view_removed(view *v, int64_t conversation);
int64_t chat_view_profile(const view *v);
/* A profile has another current version, or another name: the next prompt uses it. Fine for any
 * view. */
void chat_view_profile_changed(view *v, int64_t profile);
/* A profile was deleted: a chat that used it goes on with the plain model. Fine for any view. */
void chat_view_profile_removed(view *v, int64_t profile);
/* Says something below the conversation; fine for any view. */
void chat_view_notice(view *v, bool error, const char *text);
/* Appends the text of the conversation's last answer as it is stored. */
void chat_view_last_answer(const view *v, buf *out);

/* Every pane of p's person learns that a profile has another version or name. */
void profile_changed_everywhere(pane *p, int64_t profile);
/* The same for one that is deleted. */
void profile_removed_everywhere(pane *p, int64_t profile);

/* The pane, other than p, in which p's person has a conversation open; NULL: none. */
pane *conversation_elsewhere(const pane *p, int64_t conversation);

#endif
