/* The conversation view: transcript above, what is being written below. */
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/chat_screen.h"
#include "ui/picker.h"
#include "ui/training.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WHEEL_ROWS   3
#define SETTING_LAST "last_profile" /* settings key */

static const view_ops chat_ops;

static chat_screen *screen_of(view *v)
{
    return (chat_screen *)v;
}

void say(chat_screen *s, entry_kind kind, const char *text)
{
    transcript_add(&s->transcript, kind, NULL, text, strlen(text));
    s->base.pane->app->dirty = true;
}

void say_error(chat_screen *s, const pf_err *err)
{
    say(s, ENTRY_ERROR, err->text);
}

/* --- conversation ----------------------------------------------------------------------------- */

void message_time(const chat_screen *s, int64_t unix_ms, char out[8])
{
    const app *a = s->base.pane->app;
    if (a->scripted) {
        app_clock(a, out);
        return;
    }
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    strftime(out, 8, "%H:%M", &local);
}

static void show_turn(chat_screen *s, size_t turn)
{
    const chat_turn *t = &s->chat.turns[turn];
    char time[8];
    message_time(s, t->created_ms, time);
    bool person = t->role == HISTORY_USER;
    size_t entry =
        transcript_add(&s->transcript, person ? ENTRY_YOU : ENTRY_ANSWER, time, t->text, t->len);
    transcript_finish(&s->transcript, entry);
    s->transcript.entries[entry].message = t->id;
    s->transcript.entries[entry].turn = turn;
}

void show_turns(chat_screen *s)
{
    transcript_clear(&s->transcript);
    for (size_t i = 0; i < s->chat.n_turns; i++)
        show_turn(s, i);
}

void show_asked(chat_screen *s)
{
    s->answer = transcript_add(&s->transcript, ENTRY_ANSWER, NULL, "", 0);
    s->writing = false;
}

/* Leaves the conversation for another, with its draft. */
static void leave_conversation(chat_screen *s)
{
    if (s->draft_changed || s->mode != WRITING_MESSAGE) save_draft(s, true);
    if (s->mode != WRITING_MESSAGE) end_writing(s);
}

static void open_conversation(chat_screen *s, int64_t id)
{
    pf_err err = {0};
    pair_part(s);
    leave_conversation(s);
    pf_status status = chat_load(&s->chat, id, &err);
    show_turns(s);
    if (status != PF_OK) say_error(s, &err);
    load_draft(s);
}

static void new_conversation(chat_screen *s)
{
    leave_conversation(s);
    chat_begin(&s->chat);
    show_turns(s);
    load_draft(s);
}

/* --- profile ---------------------------------------------------------------------------------- */

static int64_t last_profile(chat_screen *s)
{
    buf value = {0};
    int64_t id = 0;
    if (settings_get(s->chat.session, SETTING_LAST, &value, NULL) == PF_OK)
        id = strtoll(buf_str(&value), NULL, 10);
    buf_free(&value);
    return id;
}

static void remember_profile(chat_screen *s)
{
    buf value = {0};
    buf_printf(&value, "%lld", (long long)s->chat.profile);
    settings_set(s->chat.session, SETTING_LAST, value.data, value.len, NULL);
    buf_free(&value);
}

/* What reading the conversation again with another profile will take. */
static void announce_rereading(chat_screen *s)
{
    size_t tokens = 0;
    if (s->chat.n_turns == 0 || chat_count_tokens(&s->chat, &tokens, NULL) != PF_OK) return;
    buf text = {0};
    chat_profile_label(&s->chat, &text);
    buf_printf(&text, " will read this conversation again (%zu tokens", tokens);
    double rate = s->base.pane->app->stats.prefill_rate;
    if (rate > 0 && !s->base.pane->app->scripted)
        buf_printf(&text, ", about %.1f s", (double)tokens / rate);
    buf_puts(&text, ").");
    say(s, ENTRY_NOTICE, buf_str(&text));
    buf_free(&text);
}

void chat_view_use_profile(view *v, int64_t profile)
{
    chat_screen *s = screen_of(v);
    pf_err err = {0};
    bool changed = profile != s->chat.profile;
    if (chat_use_profile(&s->chat, profile, &err) != PF_OK) {
        say_error(s, &err);
        return;
    }
    remember_profile(s);
    if (changed) announce_rereading(s);
}

void chat_view_profile_changed(view *v, int64_t profile)
{
    pf_err err = {0};
    if (v->ops != &chat_ops || screen_of(v)->chat.profile != profile || !profile) return;
    if (chat_refresh_profile(&screen_of(v)->chat, &err) != PF_OK) say_error(screen_of(v), &err);
    v->pane->app->dirty = true;
}

void chat_view_profile_removed(view *v, int64_t profile)
{
    pf_err err = {0};
    if (v->ops != &chat_ops || screen_of(v)->chat.profile != profile || !profile) return;
    if (chat_use_profile(&screen_of(v)->chat, 0, &err) != PF_OK) say_error(screen_of(v), &err);
}

void chat_view_notice(view *v, bool error, const char *text)
{
    if (v->ops == &chat_ops) say(screen_of(v), error ? ENTRY_ERROR : ENTRY_NOTICE, text);
}

void chat_view_resume(view *v, int64_t id)
{
    open_conversation(screen_of(v), id);
}

void chat_view_resume_at(view *v, int64_t id, int64_t message)
{
    chat_screen *s = screen_of(v);
    pf_err err = {0};
    open_conversation(s, id);
    if (entry_of_message(s, message) == TRANSCRIPT_NONE) { /* in another branch */
        if (chat_show_message(&s->chat, message, &err) != PF_OK) return;
        show_turns(s);
    }
    size_t entry = entry_of_message(s, message);
    if (entry != TRANSCRIPT_NONE) transcript_to_entry(&s->transcript, entry);
}

bool chat_view_refuses(view *v)
{
    return refuse_while_answering(screen_of(v));
}

int64_t chat_view_conversation(const view *v)
{
    return v->ops == &chat_ops ? ((const chat_screen *)v)->chat.conversation : 0;
}

void chat_view_removed(view *v, int64_t id)
{
    if (chat_view_conversation(v) == id) new_conversation(screen_of(v));
}

int64_t chat_view_profile(const view *v)
{
    return ((const chat_screen *)v)->chat.profile;
}

void chat_view_last_answer(const view *v, buf *out)
{
    const chat *c = &((const chat_screen *)v)->chat;
    if (v->ops != &chat_ops || c->n_turns == 0) return;
    const chat_turn *last = &c->turns[c->n_turns - 1];
    if (last->role == HISTORY_ASSISTANT) buf_append(out, last->text, last->len);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* What another process did to this person's account meanwhile. */
bool account_is_there(chat_screen *s)
{
    switch (session_check(s->chat.session)) {
    case SESSION_PASSPHRASE_CHANGED:
        say(s, ENTRY_NOTICE, "Your passphrase was changed elsewhere; you stay signed in here.");
        return true;
    case SESSION_USER_REMOVED:
        say(s, ENTRY_ERROR, "This person was removed elsewhere; nothing can be saved any more.");
        return false;
    default:
        return true;
    }
}

bool profile_is_there(chat_screen *s)
{
    buf told = {0};
    bool there = chat_follow_profile(&s->chat, &told);
    if (told.len) say(s, ENTRY_NOTICE, buf_str(&told));
    wipe_buf(&told);
    return there;
}

bool all_is_saved(chat_screen *s)
{
    pf_err err = {0};
    transcript *t = &s->transcript;
    if (!chat_has_unsaved(&s->chat)) return true;
    if (chat_save_rest(&s->chat, &err) != PF_OK) {
        say_error(s, &err);
        return false;
    }
    int64_t selected = t->selecting ? t->entries[t->selected].message : 0;
    show_turns(s); /* it has its number now */
    if (selected) transcript_select(t, entry_of_message(s, selected));
    return true;
}

/* A slash command in the draft is done instead of sent; true also when it was refused. */
static bool do_slash(chat_screen *s)
{
    size_t len;
    action a;
    const char *argument;
    pf_err err = {0};
    char *text = xstrdup(editor_text(&s->editor, &len));
    pf_status status = slash_parse(text, &a, &argument, &err);
    if (status == PF_OK) {
        editor_clear(&s->editor);
        app_do(s->base.pane->app, a, argument);
    } else if (status != PF_NOT_FOUND) {
        app_say(s->base.pane->app, "%s", err.text);
    }
    wipe_text(text);
    return status != PF_NOT_FOUND;
}

void *request_tag(const chat_screen *s)
{
    return (void *)(uintptr_t)(s->base.pane->number + 1);
}

/* Sends a message in this pane alone. */
static bool post(chat_screen *s, const char *text, size_t len)
{
    pf_err err = {0};
    if (!all_is_saved(s)) return false;
    if (chat_send(&s->chat, text, len, s->base.pane->app->answer_limit, request_tag(s), &err) !=
        PF_OK) {
        say_error(s, &err);
        return false;
    }
    transcript_to_end(&s->transcript);
    show_turn(s, s->chat.n_turns - 1);
    show_asked(s);
    return true;
}

bool chat_screen_send(chat_screen *s, const char *text, size_t len)
{
    chat_screen *other = pair_of(s);
    if (!post(s, text, len)) return false;
    if (other) post(other, text, len);
    input_history_add(s->chat.session, 0, text, NULL);
    load_inputs(s);
    if (other) load_inputs(other);
    return true;
}

static void send(chat_screen *s)
{
    app *a = s->base.pane->app;
    size_t len;
    const char *text = editor_text(&s->editor, &len);
    bool blank = strspn(text, " \t\n") == len;
    if (s->mode != WRITING_REWRITE && blank) return;
    if (s->mode == WRITING_MESSAGE && do_slash(s)) return;
    if (pair_busy(s)) {
        app_say(a, "The answer is still being written; %s stops it.", hint_key(ACTION_STOP));
        return;
    }
    if (!account_is_there(s) || !profile_is_there(s)) return;
    if (pair_of(s) && !profile_is_there(pair_of(s))) return;
    if (s->mode != WRITING_MESSAGE) {
        finish_writing(s, blank ? "" : text, blank ? 0 : len);
        return;
    }
    if (!chat_screen_send(s, text, len)) return; /* the draft is still there */
    editor_clear(&s->editor);
    draft_was_sent(s);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void stop_or_return(chat_screen *s)
{
    chat_screen *other = pair_of(s);
    if (s->mode != WRITING_MESSAGE) {
        end_writing(s);
    } else if (pair_busy(s)) {
        chat_stop(&s->chat);
        if (other) chat_stop(&other->chat);
    } else if (s->transcript.reading) {
        transcript_to_end(&s->transcript);
    } else {
        app_say(s->base.pane->app, "Nothing to stop. %s shows all keys.", hint_key(ACTION_HELP));
    }
}

static bool refuse(chat_screen *s, bool answering)
{
    if (answering)
        app_say(s->base.pane->app, "Not while an answer is being written; %s stops it.",
                hint_key(ACTION_STOP));
    return answering;
}

bool refuse_while_answering(chat_screen *s)
{
    return refuse(s, s->chat.request != 0);
}

bool pair_refuse(chat_screen *s)
{
    return refuse(s, pair_busy(s));
}

/* In both panes of a pair. */
static void begin_anew(chat_screen *s)
{
    chat_screen *other = pair_of(s);
    if (pair_refuse(s)) return;
    new_conversation(s);
    if (other) new_conversation(other);
}

static bool do_action(chat_screen *s, action a)
{
    pane *p = s->base.pane;
    int page = s->transcript.height > 2 ? s->transcript.height - 1 : 1;
    switch (a) {
    case ACTION_SEND:
        send(s);
        break;
    case ACTION_STOP:
        stop_or_return(s);
        break;
    case ACTION_SCROLL_UP:
        transcript_scroll(&s->transcript, -page);
        break;
    case ACTION_SCROLL_DOWN:
        transcript_scroll(&s->transcript, page);
        break;
    case ACTION_LINE_UP:
        transcript_scroll(&s->transcript, -1);
        break;
    case ACTION_LINE_DOWN:
        transcript_scroll(&s->transcript, 1);
        break;
    case ACTION_TO_START:
        transcript_to_start(&s->transcript);
        break;
    case ACTION_TO_END:
        transcript_to_end(&s->transcript);
        break;
    case ACTION_PROFILES:
        if (!refuse_while_answering(s)) pane_push(p, profiles_view(p));
        break;
    case ACTION_TOUR:
        app_cover(p->app, tour_view(p));
        break;
    case ACTION_TRAIN:
        training_open(p, s->chat.profile);
        break;
    case ACTION_CONVERSATIONS:
        if (!refuse_while_answering(s)) pane_push(p, conversations_view(p));
        break;
    case ACTION_NEW_CONVERSATION:
        begin_anew(s);
        break;
    case ACTION_SEARCH:
        if (!refuse_while_answering(s)) search_show(p, "");
        break;
    case ACTION_SIGN_OUT:
        pane_sign_out(p);
        break;
    case ACTION_WRITE_OUTSIDE:
        write_outside(s);
        break;
    default:
        return message_act(s, a);
    }
    return true;
}

static bool chat_act(view *v, action a, const char *argument)
{
    chat_screen *s = screen_of(v);
    return chat_by_name(s, a, argument) || do_action(s, a);
}

/* With a message selected keys are about it; those of the conversation's other actions end that. */
static void selection_key(chat_screen *s, key_code key)
{
    action a = action_of(key, CONTEXT_MESSAGE);
    if (a == ACTION_NONE) a = action_of(key, CONTEXT_CHAT);
    if (a == ACTION_NONE || a == ACTION_SEND)
        app_say(s->base.pane->app, "A message is selected; %s ends that.",
                hint_key(ACTION_SELECT_END));
    else
        chat_act(&s->base, a, "");
}

static void chat_key(chat_screen *s, key_code key)
{
    action a = action_of(key, CONTEXT_EDITOR);
    if (a == ACTION_NONE) a = action_of(key, CONTEXT_CHAT);
    if (slash_do(&s->slash, &s->editor, s->chat.session, a)) return;
    if (action_context(a) == CONTEXT_CHAT || a == ACTION_WRITE_OUTSIDE)
        chat_act(&s->base, a, "");
    else if (!editor_do(&s->editor, a) && (a == ACTION_UP || a == ACTION_DOWN))
        browse_inputs(s, a == ACTION_UP ? -1 : 1);
}

static void type(chat_screen *s, const input_event *ev)
{
    if (!editor_insert(&s->editor, ev->text, ev->len, ev->kind == INPUT_TEXT))
        app_say(s->base.pane->app, "That is too long for one message (most: %u KiB).",
                EDITOR_MAX / 1024);
}

static void chat_input(view *v, const input_event *ev)
{
    chat_screen *s = screen_of(v);
    bool selecting = s->transcript.selecting;
    switch (ev->kind) {
    case INPUT_TEXT:
        if (selecting)
            selection_key(s, input_key(ev));
        else
            type(s, ev);
        break;
    case INPUT_PASTE:
        transcript_select(&s->transcript, TRANSCRIPT_NONE);
        type(s, ev);
        break;
    case INPUT_WHEEL_UP:
    case INPUT_WHEEL_DOWN:
        transcript_scroll(&s->transcript, ev->kind == INPUT_WHEEL_UP ? -WHEEL_ROWS : WHEEL_ROWS);
        return;
    case INPUT_CLICK:
        if (ev->y - s->top >= 0 && ev->y - s->top < s->transcript.height)
            message_click(s, ev->y - s->top);
        return;
    case INPUT_DRAG:
    case INPUT_RELEASE:
        return;
    case INPUT_KEY:
        if (selecting)
            selection_key(s, ev->key);
        else
            chat_key(s, ev->key);
        break;
    }
    /* The view may be on its way out (locked, signed out): it is freed after this event. */
    if (!v->pane->leaving) draft_typed(s);
    slash_update(&s->slash, &s->editor, s->chat.session);
}

/* --- events ----------------------------------------------------------------------------------- */

static void finished(chat_screen *s, const engine_event *ev, const pf_err *err)
{
    if (ev->kind == ENGINE_EVENT_FINISHED)
        transcript_append(&s->transcript, s->answer, ev->text, ev->text_len);
    transcript_finish(&s->transcript, s->answer);
    s->transcript.entries[s->answer].turn = s->chat.n_turns - 1;
    s->transcript.entries[s->answer].message = s->chat.turns[s->chat.n_turns - 1].id;
    if (err->text[0]) say_error(s, err);
    if (ev->kind != ENGINE_EVENT_FINISHED) return;
    if (ev->reason == FINISH_LENGTH && !s->base.pane->app->answer_limit)
        say(s, ENTRY_NOTICE, "The answer reached its longest length; write \"go on\" for more.");
    if (ev->reason == FINISH_CONTEXT)
        say(s, ENTRY_NOTICE, "The model's window is full; the answer ends here.");
    if (ev->reason == FINISH_CANCELLED) say(s, ENTRY_NOTICE, "stopped");
}

/* The conversation is as it was before. */
static void taken_back(chat_screen *s, char *back, const pf_err *err)
{
    show_turns(s);
    if (err->text[0]) say_error(s, err);
    size_t len;
    editor_text(&s->editor, &len);
    if (back && len == 0) editor_set(&s->editor, back, strlen(back));
    wipe_text(back);
}

static void chat_on_event(view *v, const engine_event *ev)
{
    chat_screen *s = screen_of(v);
    bool dropped_more;
    char *back;
    pf_err err;
    chat_change change = chat_event(&s->chat, ev, &dropped_more, &back, &err);
    if (change != CHAT_NOTHING && change != CHAT_WAITING) {
        free(s->waiting);
        s->waiting = NULL;
    }
    switch (change) {
    case CHAT_WAITING:
        free(s->waiting);
        s->waiting = xstrdup(ev->text);
        break;
    case CHAT_STARTED:
        if (!dropped_more) break;
        transcript_insert_notice(&s->transcript, s->answer,
                                 "The oldest messages no longer fit the model's window; it can't "
                                 "see them any more.");
        s->answer++;
        break;
    case CHAT_TEXT:
        s->writing = true;
        transcript_append(&s->transcript, s->answer, ev->text, ev->text_len);
        break;
    case CHAT_FINISHED:
        finished(s, ev, &err);
        break;
    case CHAT_TAKEN_BACK:
        taken_back(s, back, &err);
        break;
    case CHAT_NOTHING:
        return;
    }
    v->pane->app->dirty = true;
}

static bool chat_busy(const view *v)
{
    return ((const chat_screen *)v)->chat.request != 0;
}

/* --- drawing ---------------------------------------------------------------------------------- */

static const char *busy_mark(const chat_screen *s)
{
    return s->chat.request ? app_mark(s->base.pane->app) : "";
}

static void draw_welcome(const chat_screen *s, area a)
{
    static const struct {
        action key;
        const char *text;
    } lines[] = {{ACTION_PROFILES, "chooses, makes or imports a profile."},
                 {ACTION_CONVERSATIONS, "resumes an earlier conversation."},
                 {ACTION_SPLIT_RIGHT, "puts another person beside you."}};
    int y = a.h > 6 ? 1 : 0;
    buf first = {0};
    buf_printf(&first, "Write a message below and press %s.", hint_key(ACTION_SEND));
    y += area_paragraph(a, y, STYLE_DIM, buf_str(&first));
    buf_free(&first);
    for (size_t i = s->chat.profile ? 1 : 0; i < sizeof lines / sizeof *lines; i++) {
        buf text = {0};
        buf_printf(&text, "%s %s", hint_key(lines[i].key), lines[i].text);
        y += area_paragraph(a, y, STYLE_DIM, buf_str(&text));
        buf_free(&text);
    }
}

static void chat_draw(view *v, area a, bool focused)
{
    (void)focused;
    chat_screen *s = screen_of(v);
    s->top = a.y;
    transcript_draw(&s->transcript, a, busy_mark(s));
    if (s->transcript.len == 0) draw_welcome(s, a);
    slash_draw(&s->slash, a);
    if (s->waiting && a.h > 1) {
        area_clear(area_sub(a, 0, a.h - 1, a.w, 1), STYLE_NOTICE);
        area_printf(a, 0, a.h - 1, STYLE_NOTICE, "waiting: %s", s->waiting);
    }
    if (!s->transcript.reading || a.h < 2) return;
    buf mark = {0};
    buf_printf(&mark, " ↓ %s%s ", s->transcript.new_text ? "new text · " : "",
               hint_key(ACTION_TO_END));
    area_put_right(a, a.h - 1, STYLE_SELECTED, buf_str(&mark));
    buf_free(&mark);
}

static int chat_footer(view *v, int width, int height)
{
    chat_screen *s = screen_of(v);
    int prompt = text_width_z(writing_prompt(s));
    int most = height / 3, rows = editor_height(&s->editor, width - prompt);
    if (most < 1) most = 1;
    return rows < most ? rows : most;
}

static void chat_draw_footer(view *v, area a, bool focused)
{
    chat_screen *s = screen_of(v);
    if (s->transcript.selecting) {
        message_draw_hints(a);
        return;
    }
    const char *prompt = writing_prompt(s);
    int width = text_width_z(prompt);
    area_put(a, 0, 0, focused ? STYLE_KEY : STYLE_DIM, prompt);
    editor_draw(&s->editor, area_sub(a, width, 0, a.w - width, a.h), STYLE_TEXT, focused);
}

static void chat_title(view *v, buf *out)
{
    const char *name = session_user_name(v->pane->session);
    text_clean_label(name, strlen(name), out);
    buf_puts(out, " · ");
    chat_profile_label(&screen_of(v)->chat, out);
    if (pair_of(screen_of(v))) buf_puts(out, " ⇄");
}

static int64_t chat_leave(view *v)
{
    chat_screen *s = screen_of(v);
    save_draft(s, true);
    return s->chat.conversation;
}

static void chat_free(view *v)
{
    chat_screen *s = screen_of(v);
    chat_close(&s->chat);
    transcript_free(&s->transcript);
    editor_free(&s->editor);
    input_history_free(&s->inputs);
    wipe_text(s->kept_draft);
    wipe_text(s->set_aside);
    private_folder_wipe(&s->copied);
    slash_free(&s->slash);
    free(s->waiting);
    free(s);
}

static const view_ops chat_ops = {
    .name = "chat",
    .contexts =
        CONTEXT_BIT(CONTEXT_CHAT) | CONTEXT_BIT(CONTEXT_MESSAGE) | CONTEXT_BIT(CONTEXT_EDITOR),
    .act = chat_act,
    .takes_bursts = true,
    .draw = chat_draw,
    .input = chat_input,
    .title = chat_title,
    .event = chat_on_event,
    .busy = chat_busy,
    .footer = chat_footer,
    .draw_footer = chat_draw_footer,
    .leave = chat_leave,
    .free = chat_free,
};

chat_screen *chat_screen_of(view *v)
{
    return v->ops == &chat_ops ? screen_of(v) : NULL;
}

chat_screen *chat_screen_open(pane *p)
{
    chat_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &chat_ops, .pane = p};
    s->copied.lock = -1;
    s->transcript.annotate = annotate_turn;
    s->transcript.annotate_ctx = s;
    editor_init(&s->editor);
    chat_init(&s->chat, p->app->options.engine, p->app->client, p->session);
    if (p->app->scripted) s->chat.greedy = true;
    load_inputs(s);
    return s;
}

view *chat_view(pane *p, int64_t resume)
{
    chat_screen *s = chat_screen_open(p);
    pf_err err = {0};
    if (resume)
        open_conversation(s, resume);
    else if (chat_use_profile(&s->chat, last_profile(s), &err) != PF_OK &&
             err.status != PF_NOT_FOUND)
        say_error(s, &err);
    load_draft(s);
    training_offer(&s->base);
    return &s->base;
}
