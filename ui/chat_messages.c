/* What can be done with one message: select it, copy, rate, rewrite, edit, ask again, delete, and
 * go from branch to branch. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/chat_screen.h"
#include "ui/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which one -------------------------------------------------------------------------------- */

/* The turn that the transcript's entry shows; n_turns: none. */
static size_t turn_of_entry(const chat_screen *s, size_t entry)
{
    if (entry >= s->transcript.len) return s->chat.n_turns;
    const transcript_entry *e = &s->transcript.entries[entry];
    bool known = e->message && e->turn < s->chat.n_turns && s->chat.turns[e->turn].id == e->message;
    return known ? e->turn : s->chat.n_turns;
}

size_t entry_of_message(const chat_screen *s, int64_t message)
{
    for (size_t i = s->transcript.len; message && i-- > 0;)
        if (s->transcript.entries[i].message == message) return i;
    return TRANSCRIPT_NONE;
}

/* The selected message, or the last one of a role; n_turns: there is none. any: of both roles. */
static size_t chosen(const chat_screen *s, history_role role, bool any)
{
    const chat *c = &s->chat;
    if (s->transcript.selecting) {
        size_t turn = turn_of_entry(s, s->transcript.selected);
        if (turn < c->n_turns && (any || c->turns[turn].role == role)) return turn;
        return c->n_turns;
    }
    for (size_t i = c->n_turns; i-- > 0;)
        if (any || c->turns[i].role == role) return i;
    return c->n_turns;
}

/* The same, and says what is missing. */
static bool choose(chat_screen *s, history_role role, bool any, size_t *turn)
{
    *turn = chosen(s, role, any);
    if (*turn < s->chat.n_turns) return true;
    app_say(s->base.pane->app, "%s",
            any                    ? "There is no message yet."
            : role == HISTORY_USER ? "This is for a message of yours; select one."
                                   : "This is for an answer; select one.");
    return false;
}

static void select_message(chat_screen *s, int64_t message)
{
    transcript_select(&s->transcript, entry_of_message(s, message));
}

/* The next entry with a message in a direction, from an entry that need not have one. */
static size_t next_message(const chat_screen *s, size_t entry, int direction)
{
    const transcript *t = &s->transcript;
    for (;;) {
        if (direction < 0 ? entry == 0 : entry + 1 >= t->len) return TRANSCRIPT_NONE;
        entry += (size_t)(ptrdiff_t)direction;
        if (t->entries[entry].message) return entry;
    }
}

static void move_selection(chat_screen *s, int direction)
{
    transcript *t = &s->transcript;
    size_t from = t->selecting ? t->selected : t->len;
    size_t entry = next_message(s, from, t->selecting ? direction : -1);
    s->to_delete = 0;
    if (entry != TRANSCRIPT_NONE)
        transcript_select(t, entry);
    else if (!t->selecting)
        app_say(s->base.pane->app, "There is no message yet.");
}

void message_click(chat_screen *s, int y)
{
    size_t entry = transcript_at(&s->transcript, y);
    if (entry == TRANSCRIPT_NONE || !s->transcript.entries[entry].message) return;
    bool again = s->transcript.selecting && s->transcript.selected == entry;
    transcript_select(&s->transcript, again ? TRANSCRIPT_NONE : entry);
}

/* --- what stands below it --------------------------------------------------------------------- */

static void put_rate(buf *out, const char *what, int tokens, int64_t us, bool scripted)
{
    if (us > 0 && !scripted)
        buf_printf(out, " · %s %.0f tok/s", what, tokens * 1e6 / (double)us);
    else
        buf_printf(out, " · %s - tok/s", what);
}

/* "19:02 · 412 tokens read (380 kept) · 96 written · prompt 912 tok/s · answer 118 tok/s · stop" */
static void put_details(const chat_screen *s, const chat_turn *t, const char *time, buf *out)
{
    bool scripted = s->base.pane->app->scripted;
    buf_puts(out, time);
    if (t->prompt_tokens) {
        buf_printf(out, " · %d tokens read", t->prompt_tokens);
        if (t->cached_tokens) buf_printf(out, " (%d kept)", t->cached_tokens);
    }
    if (t->completion_tokens) buf_printf(out, " · %d written", t->completion_tokens);
    if (t->prompt_tokens)
        put_rate(out, "prompt", t->prompt_tokens - t->cached_tokens, t->prefill_us, scripted);
    if (t->completion_tokens)
        put_rate(out, "answer", t->completion_tokens - 1, t->decode_us, scripted);
    if (t->finish) buf_printf(out, " · %s", t->finish);
}

static void put_note(const chat_screen *s, size_t turn, buf *out)
{
    const chat_turn *t = &s->chat.turns[turn];
    int number, count;
    chat_siblings(&s->chat, turn, &number, &count);
    if (count > 1) buf_printf(out, "‹%d/%d›", number, count);
    static const char *const ratings[] = {"bad ✗", "", "good ✓"};
    if (t->rating) buf_printf(out, "%s%s", out->len ? "  " : "", ratings[t->rating + 1]);
    if (t->rewritten) buf_printf(out, "%srewritten ✎", out->len ? "  " : "");
}

void annotate_turn(void *ctx, size_t entry)
{
    chat_screen *s = ctx;
    size_t turn = turn_of_entry(s, entry);
    buf note = {0}, details = {0};
    if (turn == s->chat.n_turns) return;
    const chat_turn *t = &s->chat.turns[turn];
    put_note(s, turn, &note);
    if (t->role == HISTORY_ASSISTANT) {
        char time[8];
        message_time(s, t->created_ms, time);
        put_details(s, t, time, &details);
    }
    transcript_annotate(&s->transcript, entry, buf_str(&note), buf_str(&details));
    buf_free(&note);
    buf_free(&details);
}

/* --- copying ---------------------------------------------------------------------------------- */

/* The code of the fenced blocks of a text. */
static void take_code(const char *text, size_t len, buf *out)
{
    bool inside = false;
    char mark = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at + 1 : len - at;
        size_t skip = 0;
        while (skip < n && text[at + skip] == ' ')
            skip++;
        const char *line = text + at + skip;
        bool fence = n - skip >= 3 && (*line == '`' || *line == '~') && line[1] == *line &&
                     line[2] == *line && (!inside || *line == mark);
        if (fence) {
            if (!inside && out->len) buf_putc(out, '\n');
            mark = *line;
            inside = !inside;
        } else if (inside) {
            buf_append(out, text + at, n);
        }
        at += n;
    }
}

/* To the terminal's clipboard, and to a file, because terminals don't confirm the copy. */
static void copy_text(chat_screen *s, const char *text, size_t len)
{
    app *a = s->base.pane->app;
    pf_err err = {0};
    char name[32], *path = NULL;
    bool sent = !a->scripted && screen_copy(text, len);
    snprintf(name, sizeof name, "copied-%d.md", s->n_copied + 1);
    pf_status status = s->copied.path
                           ? PF_OK
                           : private_folder_make(store_home(a->options.store), &s->copied, &err);
    if (status == PF_OK) status = private_folder_write(&s->copied, name, text, len, &path, &err);
    if (status == PF_OK) s->n_copied++;
    const char *shown = a->scripted ? name : path;
    if (status != PF_OK && sent)
        app_say(a, "Sent to the terminal's clipboard; terminals don't confirm this.");
    else if (status != PF_OK)
        app_say(a, "Not copied: %s", err.text);
    else
        app_say(a, "It is in %s until you leave%s", shown,
                sent ? "; also sent to the terminal's clipboard."
                     : "; the terminal's clipboard can't be reached.");
    free(path);
}

static void copy_message(chat_screen *s, bool code_only)
{
    size_t turn;
    buf code = {0};
    if (!choose(s, HISTORY_ASSISTANT, s->transcript.selecting, &turn)) return;
    const chat_turn *t = &s->chat.turns[turn];
    if (code_only) take_code(t->text, t->len, &code);
    if (code_only && code.len == 0)
        app_say(s->base.pane->app, "There is no block of code in it.");
    else if (code_only)
        copy_text(s, code.data, code.len);
    else
        copy_text(s, t->text, t->len);
    wipe_buf(&code);
}

/* --- changing --------------------------------------------------------------------------------- */

static void rate(chat_screen *s, int rating)
{
    size_t turn;
    pf_err err = {0};
    if (!choose(s, HISTORY_ASSISTANT, false, &turn)) return;
    const chat_turn *t = &s->chat.turns[turn];
    if (chat_rate(&s->chat, turn, t->rating == rating ? 0 : rating, &err) != PF_OK)
        say_error(s, &err);
    else
        transcript_changed(&s->transcript, entry_of_message(s, t->id));
}

static void regenerate(chat_screen *s)
{
    size_t turn;
    pf_err err = {0};
    app *a = s->base.pane->app;
    if (refuse_while_answering(s) || !account_is_there(s) || !profile_is_there(s)) return;
    if (!choose(s, HISTORY_ASSISTANT, true, &turn)) return;
    transcript_select(&s->transcript, TRANSCRIPT_NONE);
    pf_status status = chat_regenerate(&s->chat, turn, a->answer_limit, request_tag(s), &err);
    show_turns(s);
    transcript_to_end(&s->transcript);
    if (status == PF_OK)
        show_asked(s);
    else
        say_error(s, &err);
}

static void edit(chat_screen *s, writing_mode mode)
{
    size_t turn;
    if (refuse_while_answering(s)) return;
    if (!choose(s, mode == WRITING_EDIT ? HISTORY_USER : HISTORY_ASSISTANT, false, &turn)) return;
    const chat_turn *t = &s->chat.turns[turn];
    if (t->len > EDITOR_MAX) {
        app_say(s->base.pane->app, "It is too long to be edited here.");
        return;
    }
    transcript_select(&s->transcript, TRANSCRIPT_NONE);
    begin_writing(s, mode, t->id, t->text, t->len);
    app_say(s->base.pane->app, "%s %s, %s leaves it as it was.", hint_key(ACTION_SEND),
            mode == WRITING_EDIT ? "sends it as a branch beside the old one"
                                 : "puts it in the answer's place (nothing: the model's again)",
            hint_key(ACTION_STOP));
}

void finish_writing(chat_screen *s, const char *text, size_t len)
{
    size_t turn = 0;
    pf_err err = {0};
    app *a = s->base.pane->app;
    pf_status status = PF_OK;
    bool edited = s->mode == WRITING_EDIT;
    while (turn < s->chat.n_turns && s->chat.turns[turn].id != s->target)
        turn++;
    if (turn == s->chat.n_turns) {
        app_say(a, "The message is not there any more; your text stays here.");
        return;
    }
    int64_t target = s->target;
    if (edited)
        status =
            chat_send_instead(&s->chat, turn, text, len, a->answer_limit, request_tag(s), &err);
    else
        status = chat_rewrite(&s->chat, turn, text, &err);
    show_turns(s);
    if (status != PF_OK) { /* the text is still in the editor */
        say_error(s, &err);
        return;
    }
    end_writing(s);
    if (edited) {
        transcript_to_end(&s->transcript);
        show_asked(s);
    } else {
        select_message(s, target);
    }
}

static void delete_message(chat_screen *s)
{
    size_t turn;
    pf_err err = {0};
    if (refuse_while_answering(s) || !choose(s, HISTORY_USER, true, &turn)) return;
    int64_t id = s->chat.turns[turn].id;
    if (s->to_delete != id) {
        bool question = s->chat.turns[turn].role == HISTORY_USER;
        s->to_delete = id;
        select_message(s, id);
        app_say(s->base.pane->app, "%s again deletes %s for good.", hint_key(ACTION_DELETE),
                question ? "this message and its answers" : "this answer");
        return;
    }
    s->to_delete = 0;
    pf_status status = chat_remove_turn(&s->chat, turn, &err);
    show_turns(s);
    if (status != PF_OK)
        say_error(s, &err);
    else if (s->chat.n_turns)
        select_message(s, s->chat.turns[turn ? turn - 1 : 0].id);
}

static void change_branch(chat_screen *s, int direction)
{
    size_t turn;
    int number, count;
    pf_err err = {0};
    if (refuse_while_answering(s) || !choose(s, HISTORY_ASSISTANT, true, &turn)) return;
    bool selecting = s->transcript.selecting;
    chat_siblings(&s->chat, turn, &number, &count);
    if (count == 1) {
        app_say(s->base.pane->app, "This message has no branches beside it.");
        return;
    }
    if (!chat_choose_branch(&s->chat, turn, direction, &err)) {
        app_say(s->base.pane->app, "This is the %s branch.", direction < 0 ? "first" : "last");
        return;
    }
    show_turns(s);
    if (err.text[0]) say_error(s, &err);
    if (selecting && turn < s->chat.n_turns) select_message(s, s->chat.turns[turn].id);
}

/* --- hints ------------------------------------------------------------------------------------ */

void message_draw_hints(area a)
{
    static const struct {
        action key;
        const char *text;
    } hints[] = {
        {ACTION_COPY, "copy"},       {ACTION_GOOD, "good"},           {ACTION_BAD, "bad"},
        {ACTION_REWRITE, "rewrite"}, {ACTION_EDIT, "edit"},           {ACTION_REGENERATE, "again"},
        {ACTION_DELETE, "delete"},   {ACTION_BRANCH_AFTER, "branch"}, {ACTION_SELECT_END, "back"}};
    area_clear(a, STYLE_TEXT);
    int x = 0;
    for (size_t i = 0; i < sizeof hints / sizeof *hints && x < a.w; i++) {
        const char *key = hint_key(hints[i].key);
        if (!*key) continue;
        x += area_put(a, x, 0, STYLE_KEY, key);
        x += area_printf(a, x, 0, STYLE_DIM, " %s  ", hints[i].text);
    }
}

/* --- actions ---------------------------------------------------------------------------------- */

static bool show_otherwise(chat_screen *s, action a)
{
    transcript *t = &s->transcript;
    if (a == ACTION_AS_WRITTEN) {
        transcript_show_as_written(t, !t->as_written);
        app_say(s->base.pane->app, t->as_written ? "Answers are shown as they were written."
                                                 : "Answers are shown as Markdown.");
    } else if (a == ACTION_DETAILS) {
        transcript_show_details(t, !t->details);
    } else {
        return false;
    }
    return true;
}

/* Actions that change a message in the store, or what stands beside it. */
static bool changes_messages(action a)
{
    return a == ACTION_REGENERATE || a == ACTION_EDIT || a == ACTION_REWRITE || a == ACTION_GOOD ||
           a == ACTION_BAD || a == ACTION_DELETE;
}

bool message_act(chat_screen *s, action a)
{
    if (a != ACTION_DELETE) s->to_delete = 0;
    if (changes_messages(a) && !all_is_saved(s)) return true;
    switch (a) {
    case ACTION_SELECT:
    case ACTION_MESSAGE_BEFORE:
        move_selection(s, -1);
        break;
    case ACTION_MESSAGE_AFTER:
        move_selection(s, 1);
        break;
    case ACTION_SELECT_END:
        transcript_select(&s->transcript, TRANSCRIPT_NONE);
        break;
    case ACTION_BRANCH_BEFORE:
        change_branch(s, -1);
        break;
    case ACTION_BRANCH_AFTER:
        change_branch(s, 1);
        break;
    case ACTION_REGENERATE:
        regenerate(s);
        break;
    case ACTION_EDIT:
        edit(s, WRITING_EDIT);
        break;
    case ACTION_REWRITE:
        edit(s, WRITING_REWRITE);
        break;
    case ACTION_GOOD:
        rate(s, 1);
        break;
    case ACTION_BAD:
        rate(s, -1);
        break;
    case ACTION_COPY:
        copy_message(s, false);
        break;
    case ACTION_COPY_CODE:
        copy_message(s, true);
        break;
    case ACTION_DELETE:
        delete_message(s);
        break;
    default:
        return show_otherwise(s, a);
    }
    return true;
}
