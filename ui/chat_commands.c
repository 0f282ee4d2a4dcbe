/* What is typed behind a slash, with an argument: /profile NAME, /note TEXT, /rename TITLE. */
#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/notes.h"
#include "profiles/secret.h"
#include "ui/chat_screen.h"
#include "ui/conversation_file.h"
#include "ui/picker.h"

#include <stdlib.h>
#include <string.h>

/* /profile NAME: without the list. */
static void use_profile(chat_screen *s, const char *name)
{
    profile_info info = {0};
    pf_err err = {0};
    if (refuse_while_answering(s)) return;
    if (profile_find(s->chat.session, name, &info, &err) == PF_OK)
        chat_view_use_profile(&s->base, info.id);
    else
        say_error(s, &err);
    profile_info_free(&info);
}

static void keep_note(chat_screen *s, const char *text)
{
    pf_err err = {0};
    buf told = {0};
    const note_info note = {
        .profile = s->chat.profile, .text = (char *)(uintptr_t)text, .state = NOTE_CONFIRMED};
    if (note_add(s->chat.session, &note, NULL, &err) != PF_OK) {
        say_error(s, &err);
        return;
    }
    buf_printf(&told, "Noted: %s", text);
    say(s, ENTRY_NOTICE, buf_str(&told));
    wipe_buf(&told);
}

static void compare(chat_screen *s, const char *question)
{
    pane *p = s->base.pane;
    profile_info info = {0};
    if (refuse_while_answering(s)) return;
    if (!s->chat.adapter || profile_get(s->chat.session, s->chat.profile, &info, NULL) != PF_OK) {
        app_say(p->app, "There is nothing to compare: choose a trained profile with %s.",
                hint_key(ACTION_PROFILES));
        return;
    }
    pane_push(p, compare_view(p, info.id, info.current.number, 0));
    if (*question) compare_view_ask(pane_top(p), question);
    profile_info_free(&info);
}

static bool nothing_saved(const chat_screen *s)
{
    if (s->chat.conversation) return false;
    app_say(s->base.pane->app, "Nothing is saved yet: the first message begins a conversation.");
    return true;
}

static void change_title(chat_screen *s, const char *title)
{
    pf_err err = {0};
    if (nothing_saved(s)) return;
    if (conversation_update(s->chat.session, s->chat.conversation, title, -1, &err) == PF_OK)
        app_say(s->base.pane->app, "This conversation is now called \"%s\".", title);
    else
        say_error(s, &err);
}

/* Without a name one is made of the title. */
static void write_file(chat_screen *s, const char *name)
{
    pf_err err = {0};
    conversation_info info = {0};
    buf offered = {0};
    char *path = NULL;
    if (nothing_saved(s)) return;
    pf_status status = conversation_get(s->chat.session, s->chat.conversation, &info, &err);
    if (status == PF_OK && !*name) conversation_offer_file(info.title, &offered);
    if (status == PF_OK)
        status = conversation_write(s->chat.session, s->chat.conversation,
                                    *name ? name : buf_str(&offered), &path, &err);
    if (status == PF_OK)
        app_say(s->base.pane->app, "Written, readable by all who can read %s.", path);
    else
        say_error(s, &err);
    conversation_info_free(&info);
    wipe_buf(&offered);
    free(path);
}

/* By a key, without the argument it needs: the command is begun in an empty draft. */
static void begin_command(chat_screen *s, action a)
{
    size_t len;
    editor_text(&s->editor, &len);
    if (len) {
        app_say(s->base.pane->app, "Write /%s.", action_slash(a));
        return;
    }
    char *begun = xasprintf("/%.*s ", (int)strcspn(action_slash(a), " "), action_slash(a));
    editor_set(&s->editor, begun, strlen(begun));
    free(begun);
}

bool chat_by_name(chat_screen *s, action a, const char *argument)
{
    switch (a) {
    case ACTION_NOTE:
        if (*argument)
            keep_note(s, argument);
        else
            begin_command(s, a);
        break;
    case ACTION_NOTES:
        if (!refuse_while_answering(s)) pane_push(s->base.pane, notes_view(s->base.pane));
        break;
    case ACTION_COMPARE:
        compare(s, argument);
        break;
    case ACTION_BESIDE:
        pair_ask(s, argument);
        break;
    case ACTION_TITLE:
        if (*argument)
            change_title(s, argument);
        else
            begin_command(s, a);
        break;
    case ACTION_EXPORT:
        write_file(s, argument);
        break;
    case ACTION_PROFILES:
        if (*argument) use_profile(s, argument);
        return *argument != '\0';
    case ACTION_SEARCH:
        if (!refuse_while_answering(s)) search_show(s->base.pane, argument);
        break;
    default:
        return false;
    }
    return true;
}
