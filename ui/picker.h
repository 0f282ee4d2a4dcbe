/* picker: the lists over a conversation, and what they ask of it. Private to ui/. */
#ifndef PF_UI_PICKER_H
#define PF_UI_PICKER_H

#include "ui/window.h"

view *profiles_view(pane *p);
view *conversations_view(pane *p);

/* Of the chat view below them (ui/chat_view.c). */
void chat_view_use_profile(view *v, int64_t profile);
void chat_view_resume(view *v, int64_t id);
int64_t chat_view_profile(const view *v);
/* Appends the text of the conversation's last answer as it is stored. */
void chat_view_last_answer(const view *v, buf *out);

#endif
