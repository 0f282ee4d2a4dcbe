/* What is being written in a conversation: drafts, what was sent before, the person's own editor.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/chat_screen.h"
#include "ui/external_editor.h"

#include <stdlib.h>
#include <string.h>

#define SAVE_EVERY_MS 3000

static int64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

const char *writing_prompt(const chat_screen *s)
{
    static const char *const prompts[] = {
        [WRITING_MESSAGE] = "> ", [WRITING_EDIT] = "edit> ", [WRITING_REWRITE] = "better answer> "};
    return prompts[s->mode];
}

/* --- drafts ----------------------------------------------------------------------------------- */

/* What was being changed in a message when the pane was left is kept with that message. */
static char *edit_key(const chat_screen *s)
{
    return message_draft_key(s->target, s->mode != WRITING_EDIT);
}

void load_draft(chat_screen *s)
{
    buf draft = {0};
    const bool held = unkept_take(s->base.pane->app, s->chat.session, s->chat.conversation, &draft);
    if (!held) draft_load(s->chat.session, s->chat.conversation, &draft, NULL);
    editor_set(&s->editor, buf_str(&draft), draft.len);
    s->draft_stored = draft.len > 0;
    s->draft_changed = held;
    wipe_buf(&draft);
}

/* Saves a text as a setting (key NULL: as the draft). */
static bool store_text(chat_screen *s, const char *key, const char *text, size_t len, bool leaves)
{
    app *a = s->base.pane->app;
    session *of = s->chat.session;
    const int64_t id = s->chat.conversation;
    const pf_status status =
        key ? settings_set(of, key, text, len, NULL) : draft_save(of, id, text, len, NULL);
    const bool later = status == PF_BUSY || status == PF_FAILED;
    if (!later)
        unkept_forget(a, of, id, key);
    else if (leaves)
        unkept_add(a, of, id, key, text, len);
    return !later;
}

static bool store_draft(chat_screen *s, const char *text, size_t len, bool leaves)
{
    if (!len && !s->draft_stored) {
        unkept_forget(s->base.pane->app, s->chat.session, s->chat.conversation, NULL);
        return true;
    }
    const bool stored = store_text(s, NULL, text, len, leaves);
    if (stored) s->draft_stored = len > 0;
    return stored;
}

bool save_draft(chat_screen *s, bool leaves)
{
    size_t len;
    const char *text = editor_text(&s->editor, &len);
    bool stored;
    if (s->mode == WRITING_MESSAGE) {
        stored = store_draft(s, text, len, leaves);
    } else {
        char *key = edit_key(s);
        stored = store_draft(s, s->set_aside, strlen(s->set_aside), leaves);
        stored = store_text(s, key, text, len, leaves) && stored;
        free(key);
    }
    if (!stored && leaves)
        app_say(s->base.pane->app, "Another program keeps the store busy: what you were writing "
                                   "is saved as soon as that is done.");
    s->draft_changed = !stored;
    s->draft_saved_ms = now_ms();
    return stored;
}

void draft_was_sent(chat_screen *s)
{
    /* the first message gave the conversation its number: the draft lay under none */
    if (s->draft_stored && s->chat.n_turns == 1) draft_save(s->chat.session, 0, "", 0, NULL);
    store_draft(s, "", 0, true);
    s->draft_changed = false;
}

void draft_typed(chat_screen *s)
{
    s->draft_changed = true;
    if (s->draft_saved_ms == 0) s->draft_saved_ms = now_ms();
    if (!s->base.pane->app->scripted && now_ms() - s->draft_saved_ms >= SAVE_EVERY_MS)
        save_draft(s, false);
}

/* --- writing something else meanwhile --------------------------------------------------------- */

void begin_writing(chat_screen *s, writing_mode mode, int64_t message, const char *text, size_t len)
{
    size_t draft_len;
    buf left = {0};
    if (s->mode != WRITING_MESSAGE) end_writing(s);
    const char *draft = editor_text(&s->editor, &draft_len);
    s->set_aside = xmemdup0(draft, draft_len);
    s->mode = mode;
    s->target = message;
    char *key = edit_key(s);
    bool began = settings_get(s->chat.session, key, &left, NULL) == PF_OK && left.len;
    editor_set(&s->editor, began ? buf_str(&left) : text, began ? left.len : len);
    if (began) settings_remove(s->chat.session, key, NULL);
    free(key);
    wipe_buf(&left);
}

void end_writing(chat_screen *s)
{
    if (s->mode == WRITING_MESSAGE) return;
    char *key = edit_key(s);
    settings_remove(s->chat.session, key, NULL);
    free(key);
    s->mode = WRITING_MESSAGE;
    s->target = 0;
    editor_set(&s->editor, s->set_aside, strlen(s->set_aside));
    wipe_text(s->set_aside);
    s->set_aside = NULL;
}

/* --- what was sent before --------------------------------------------------------------------- */

/* One history a person, whatever profile they use. */
void load_inputs(chat_screen *s)
{
    input_history_free(&s->inputs);
    s->inputs = (input_history){0};
    if (input_history_load(s->chat.session, 0, &s->inputs, NULL) != PF_OK)
        s->inputs = (input_history){0};
    s->input_at = s->inputs.n;
}

void browse_inputs(chat_screen *s, int direction)
{
    if (direction < 0 ? s->input_at == 0 : s->input_at >= s->inputs.n) return;
    if (s->input_at == s->inputs.n) {
        size_t len;
        const char *draft = editor_text(&s->editor, &len);
        wipe_text(s->kept_draft);
        s->kept_draft = xmemdup0(draft, len);
    }
    s->input_at += (size_t)(ptrdiff_t)direction;
    const char *text = s->input_at < s->inputs.n ? s->inputs.items[s->input_at] : s->kept_draft;
    editor_set(&s->editor, text, strlen(text));
}

/* --- the person's own editor ------------------------------------------------------------------ */

static bool names(const char *command)
{
    return command && *command;
}

void write_outside(chat_screen *s)
{
    app *a = s->base.pane->app;
    /* a script has no terminal for the one that is taken where none is named */
    if (a->scripted && !names(a->options.editor) && !names(getenv("VISUAL")) &&
        !names(getenv("EDITOR"))) {
        app_say(a, "Name your editor in $VISUAL or $EDITOR.");
        return;
    }
    size_t len;
    buf changed = {0};
    pf_err err = {0};
    const char *text = editor_text(&s->editor, &len);
    pf_status status = external_edit(a->options.editor, text, len, store_home(a->options.store),
                                     !a->scripted, &changed, &err);
    if (status != PF_OK)
        say_error(s, &err);
    else if (!editor_replace(&s->editor, buf_str(&changed), changed.len))
        app_say(a, "That is too long for one message (most: %u KiB).", EDITOR_MAX / 1024);
    a->redraw = true;
    wipe_buf(&changed);
}
