/* Branches of a conversation: asked again, edited, deleted, rewritten; what training learns. */
#include "profiles/internal.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "support/tiny_adapter.h"
#include "support/window_fixture.h"
#include "train/data/gather.h"
#include "ui/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sqlite3.h>

static store_fixture disk;
static model *tiny;
static engine *shared;
static session *mira;
static engine_client *client;

static int setup(void **state)
{
    (void)state;
    fixture_open(&disk);
    mira = fixture_user(&disk, "mira", "pw-mira");
    tiny = fixture_model(TINY_MODEL);
    shared = fixture_engine(tiny, &(engine_options){.threads = 1});
    client = engine_client_open(shared);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    engine_client_close(client);
    fixture_engine_close(shared);
    fixture_model_close(tiny);
    session_unref(mira);
    fixture_close(&disk);
    return 0;
}

static void begin(chat *c)
{
    chat_init(c, shared, client, mira);
    c->greedy = true;
}

static chat_change take_event_with(chat *c, char **back, pf_err *err)
{
    engine_event ev;
    bool dropped;
    while (!engine_client_next(client, &ev))
        engine_client_wait(client, 1000);
    chat_change change = chat_event(c, &ev, &dropped, back, err);
    engine_event_free(&ev);
    return change;
}

static void take_event(chat *c)
{
    pf_err err;
    char *back = NULL;
    assert_int_not_equal(take_event_with(c, &back, &err), CHAT_TAKEN_BACK);
}

static chat_change finish(chat *c, char **back)
{
    pf_err err;
    chat_change change;
    do
        change = take_event_with(c, back, &err);
    while (change != CHAT_FINISHED && change != CHAT_TAKEN_BACK);
    return change;
}

static void answered(chat *c)
{
    char *back = NULL;
    assert_int_equal(finish(c, &back), CHAT_FINISHED);
}

static void ask(chat *c, const char *text)
{
    assert_ok(&disk, chat_send(c, text, strlen(text), 6, NULL, &disk.err));
    answered(c);
}

static void expect_siblings(const chat *c, size_t turn, int number, int count)
{
    int n, of;
    chat_siblings(c, turn, &n, &of);
    assert_int_equal(n, number);
    assert_int_equal(of, count);
}

static void branches(void **state)
{
    (void)state;
    chat c;
    begin(&c);
    ask(&c, "first");
    ask(&c, "second");
    assert_int_equal(c.n_turns, 4);
    expect_siblings(&c, 3, 1, 1);
    assert_true(c.turns[3].completion_tokens > 0 && c.turns[3].prefill_us > 0);
    /* Another answer, from the answer or from the question. */
    assert_ok(&disk, chat_regenerate(&c, 3, 6, NULL, &disk.err));
    assert_int_equal(c.n_turns, 3);
    answered(&c);
    assert_int_equal(c.n_turns, 4);
    expect_siblings(&c, 3, 2, 2);
    assert_ok(&disk, chat_regenerate(&c, 2, 6, NULL, &disk.err));
    answered(&c);
    expect_siblings(&c, 3, 3, 3);
    assert_true(chat_choose_branch(&c, 3, -1, &disk.err));
    expect_siblings(&c, 3, 2, 3);
    assert_true(chat_choose_branch(&c, 3, 1, &disk.err));
    assert_false(chat_choose_branch(&c, 3, 1, &disk.err));
    /* The first question asked otherwise: a branch from the beginning. */
    assert_ok(&disk, chat_send_instead(&c, 0, "other", 5, 6, NULL, &disk.err));
    answered(&c);
    assert_int_equal(c.n_turns, 2);
    assert_string_equal(c.turns[0].text, "other");
    expect_siblings(&c, 0, 2, 2);
    int64_t other = c.turns[1].id;
    assert_true(chat_choose_branch(&c, 0, -1, &disk.err));
    assert_int_equal(c.n_turns, 4);
    expect_siblings(&c, 3, 3, 3);
    assert_ok(&disk, chat_show_message(&c, other, &disk.err));
    /* A restart finds it so. */
    chat again;
    begin(&again);
    assert_ok(&disk, chat_load(&again, c.conversation, &disk.err));
    assert_int_equal(again.n_turns, 2);
    assert_int_equal(again.turns[1].id, other);
    expect_siblings(&again, 0, 2, 2);
    chat_close(&again);
    chat_close(&c);
}

/* Stopped before anything was written: the former branch is back, and nothing is left. */
static void taken_back(void **state)
{
    (void)state;
    chat c;
    char *back = NULL;
    begin(&c);
    ask(&c, "question");
    int64_t answer = c.turns[1].id;
    assert_ok(&disk, chat_regenerate(&c, 1, 400, NULL, &disk.err));
    chat_stop(&c);
    if (finish(&c, &back) == CHAT_TAKEN_BACK) {
        assert_null(back);
        assert_int_equal(c.n_turns, 2);
        assert_int_equal(c.turns[1].id, answer);
        expect_siblings(&c, 1, 1, 1);
    }
    assert_ok(&disk, chat_show_message(&c, answer, &disk.err));
    assert_ok(&disk, chat_send_instead(&c, 0, "edited", 6, 400, NULL, &disk.err));
    chat_stop(&c);
    if (finish(&c, &back) == CHAT_TAKEN_BACK) {
        assert_string_equal(back, "edited");
        free(back);
        assert_int_equal(c.turns[1].id, answer);
        expect_siblings(&c, 0, 1, 1);
    }
    /* The same where it is refused at once. */
    assert_ok(&disk, chat_show_message(&c, answer, &disk.err));
    size_t len = 100000, nodes = c.n_nodes;
    char *text = malloc(len);
    memset(text, 'a', len);
    assert_int_equal(chat_send_instead(&c, 0, text, len, 0, NULL, &disk.err), PF_REFUSED);
    assert_int_equal(c.n_turns, 2);
    assert_int_equal(c.n_nodes, nodes);
    assert_int_equal(c.turns[1].id, answer);
    free(text);
    chat_close(&c);
}

/* By another program, or in another pane. */
static void deleted_elsewhere(void **state)
{
    (void)state;
    chat c;
    begin(&c);
    ask(&c, "first");
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    assert_int_equal(chat_send(&c, "second", 6, 6, NULL, &disk.err), PF_NOT_FOUND);
    assert_text(disk.err.text, "deleted elsewhere");
    assert_text(disk.err.text, "/new");
    assert_int_equal(c.n_turns, 2); /* it still shows what was said */
    assert_false(c.request);
    chat_begin(&c);
    ask(&c, "second");
    assert_int_equal(c.n_turns, 2);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    chat_close(&c);
}

/* Profiles too: a newer version answers, a deleted profile is let go of before anything is sent. */
static void profile_changed_elsewhere(void **state)
{
    (void)state;
    chat c;
    int64_t profile = 0;
    buf told = {0}, blob = {0};
    begin(&c);
    assert_true(chat_follow_profile(&c, &told));
    assert_ok(&disk,
              profile_create(mira, "letters", "{\"system\": \"Be brief.\"}", &profile, &disk.err));
    assert_ok(&disk, chat_use_profile(&c, profile, &disk.err));
    assert_true(chat_follow_profile(&c, &told));
    assert_int_equal(told.len, 0);
    assert_int_equal(c.adapter, 0);
    tiny_adapter(model_get_config(tiny), false, true, 2, 1, &blob);
    assert_ok(&disk,
              profile_add_version(mira, profile, blob.data, blob.len, NULL, NULL, &disk.err));
    assert_true(chat_follow_profile(&c, &told));
    assert_text(buf_str(&told), "letters (lorap r2) was changed elsewhere");
    assert_true(c.adapter);
    buf_clear(&told);
    ask(&c, "question");
    assert_true(chat_follow_profile(&c, &told));
    assert_int_equal(told.len, 0);
    assert_ok(&disk, profile_remove(mira, profile, &disk.err));
    assert_false(chat_follow_profile(&c, &told));
    assert_text(buf_str(&told), "letters (lorap r2) was deleted elsewhere");
    assert_int_equal(c.profile, 0);
    assert_int_equal(c.adapter, 0);
    assert_null(c.system);
    assert_true(chat_follow_profile(&c, &told));
    ask(&c, "another");
    assert_int_equal(c.n_turns, 4);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    buf_free(&told);
    buf_free(&blob);
    chat_close(&c);
}

/* Another conversation is opened, or a new one begun, before the answer is whole: what was written
 * stays with its question, and nothing of it comes into the other conversation. */
static void left_in_the_middle(void **state)
{
    (void)state;
    for (int opens = 0; opens < 2; opens++) {
        chat c, again;
        begin(&c);
        ask(&c, "other");
        const int64_t other = c.conversation;
        chat_begin(&c);
        assert_ok(&disk, chat_send(&c, "question", 8, 400, NULL, &disk.err));
        const int64_t left = c.conversation;
        while (c.answer.len == 0)
            take_event(&c);
        if (opens)
            assert_ok(&disk, chat_load(&c, other, &disk.err));
        else
            chat_begin(&c);
        assert_false(c.request);
        const size_t turns = c.n_turns;
        assert_int_equal(turns, opens ? 2 : 0);
        ask(&c, "goes on"); /* its events come behind those of the answer that was left */
        assert_int_equal(c.n_turns, turns + 2);
        begin(&again);
        assert_ok(&disk, chat_load(&again, left, &disk.err));
        assert_int_equal(again.n_turns, 2);
        assert_true(again.turns[1].len > 0);
        assert_string_equal(again.turns[1].finish, "cancelled");
        assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
        if (!opens) assert_ok(&disk, conversation_remove(mira, other, &disk.err));
        assert_ok(&disk, conversation_remove(mira, left, &disk.err));
        chat_close(&again);
        chat_close(&c);
    }
}

static void enter(app *window, const char *text)
{
    window_type(window, text);
    window_press(window, KEY_ENTER);
}

/* Of two panes that get the same questions one shows a list while the other asks: what is chosen
 * there is not opened before the answer is whole. */
static void chosen_in_the_middle(void **state)
{
    (void)state;
    static const char *const users[] = {"mira"};
    const app_options options = {
        .store = disk.store, .engine = shared, .users = users, .n_users = 1};
    const key_code lists[] = {KEY_CTRL | 'r', KEY_ALT | 's'};
    app *window = NULL;
    int64_t profile = 0;
    assert_ok(&disk, profile_create(mira, "plain", NULL, &profile, &disk.err));
    assert_ok(&disk, app_open(&options, 100, 24, &window, &disk.err));
    window->scripted = true;
    window->answer_limit = 6;
    enter(window, "pw-mira");
    window_settle(window);
    const char *const words[] = {"/profile plain", "elsewhere", "/new", "/beside question"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        enter(window, words[i]);
        window_settle(window);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        window_press(window, lists[i]);
        if (i == 1) window_type(window, "elsewhere");
        window_settle(window);
        window_press(window, KEY_F6);
        enter(window, "another");
        window_press(window, KEY_F6);
        window_press(window, KEY_ENTER); /* events wait until they are taken: it is being written */
        window_expect(window, "Not while an answer is being written");
        window_press(window, KEY_ESC);
        window_settle(window);
        window_reject(window, "elsewhere");
        window_expect(window, "another");
    }
    app_close(window);
    assert_ok(&disk, profile_remove(mira, profile, &disk.err));
}

/* Questions whose answers were deleted are read as one, in their words, however many they are. */
static void questions_in_a_row(void **state)
{
    (void)state;
    enum { N = 6, LEN = 60 };
    chat c;
    char question[LEN + 1] = {0};
    buf joined = {0};
    size_t tokens = 0, expected = 0;
    begin(&c);
    for (int i = 0; i < N; i++) {
        memset(question, 'a' + i, LEN);
        ask(&c, question);
        buf_printf(&joined, "%s%s", i ? "\n\n" : "", question);
        if (i + 1 < N) assert_ok(&disk, chat_remove_turn(&c, c.n_turns - 1, &disk.err));
    }
    assert_int_equal(c.n_turns, N + 1);
    const chat_message as_one[] = {
        {.role = ROLE_USER, .text = joined.data, .len = joined.len},
        {.role = ROLE_ASSISTANT,
         .text = c.turns[N].text,
         .len = c.turns[N].len,
         .ids = c.turns[N].ids,
         .n_ids = c.turns[N].n_ids},
    };
    assert_ok(&disk, chat_count_tokens(&c, &tokens, &disk.err));
    assert_ok(&disk, engine_count_tokens(shared, as_one, 2, &expected, &disk.err));
    assert_int_equal(tokens, expected);
    assert_int_equal(c.turns[N].prompt_tokens > 0, 1);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    buf_free(&joined);
    chat_close(&c);
}

static void deleted(void **state)
{
    (void)state;
    chat c;
    begin(&c);
    ask(&c, "one");
    ask(&c, "two");
    ask(&c, "three");
    assert_ok(&disk, chat_regenerate(&c, 3, 6, NULL, &disk.err));
    answered(&c);
    assert_ok(&disk, chat_show_message(&c, c.nodes[0].id, &disk.err));
    /* A question goes with all its answers; what follows stays. */
    assert_true(chat_choose_branch(&c, 3, -1, &disk.err));
    assert_int_equal(c.n_turns, 6);
    assert_ok(&disk, chat_remove_turn(&c, 2, &disk.err));
    assert_int_equal(c.n_turns, 4);
    assert_string_equal(c.turns[2].text, "three");
    assert_int_equal(c.n_nodes, 4);
    /* An answer alone. */
    assert_ok(&disk, chat_remove_turn(&c, 1, &disk.err));
    assert_int_equal(c.n_turns, 3);
    ask(&c, "goes on");
    assert_int_equal(c.n_turns, 5);
    while (c.n_turns)
        assert_ok(&disk, chat_remove_turn(&c, 0, &disk.err));
    assert_int_equal(c.n_nodes, 0);
    ask(&c, "anew");
    assert_int_equal(c.n_turns, 2);
    chat_close(&c);
}

/* A question and its answers go in one step: wherever it fails, all or none of them are there. */
static void removed_at_once(void **state)
{
    (void)state;
    chat c;
    conversation tree;
    size_t n_failed = 0;
    bool removed = false;
    begin(&c);
    ask(&c, "kept");
    ask(&c, "question");
    assert_ok(&disk, chat_regenerate(&c, 3, 6, NULL, &disk.err));
    answered(&c);
    ask(&c, "goes on");
    for (int step = 1; !removed; step += 1 + step / 16) {
        fixture_fail_step(&disk, step);
        pf_status status = chat_remove_turn(&c, 2, &disk.err);
        fixture_fail_step(&disk, 0);
        n_failed += status != PF_OK;
        assert_ok(&disk, conversation_load_tree(mira, c.conversation, &tree, &disk.err));
        removed = tree.n == 4;
        if (!removed) assert_int_equal(tree.n, 7);
        if (!removed) assert_int_not_equal(status, PF_OK);
        conversation_free(&tree);
    }
    assert_true(n_failed > 20);
    assert_ok(&disk, chat_load(&c, c.conversation, &disk.err));
    assert_int_equal(c.n_turns, 4);
    assert_string_equal(c.turns[2].text, "goes on");
    chat_close(&c);
}

static size_t count_conversations(void)
{
    conversation_list list = {0};
    assert_ok(&disk, conversation_list_load(mira, -1, 0, 0, &list, &disk.err));
    size_t n = list.n;
    conversation_list_free(&list);
    return n;
}

/* A new conversation comes to be with its first message or not at all: also for a process that is
 * killed, as one commit brings both. */
static void begun_at_once(void **state)
{
    (void)state;
    chat c;
    conversation tree;
    size_t n_failed = 0;
    int commits = 0;
    begin(&c);
    const size_t before = count_conversations();
    fixture_count_commits(&disk, &commits);
    for (int step = 1;; step += 1 + step / 16) {
        fixture_fail_step(&disk, step);
        pf_status status = chat_send(&c, "first words\nand more", 20, 6, NULL, &disk.err);
        fixture_fail_step(&disk, 0);
        if (status == PF_OK) break;
        n_failed++;
        assert_int_equal(commits, 0);
        assert_int_equal(count_conversations(), before);
        assert_int_equal(c.conversation, 0);
        assert_int_equal(c.n_turns, 0);
    }
    assert_int_equal(commits, 1);
    fixture_count_commits(&disk, NULL);
    assert_true(n_failed > 20);
    answered(&c);
    assert_ok(&disk, conversation_load_tree(mira, c.conversation, &tree, &disk.err));
    assert_int_equal(tree.n, 2);
    assert_int_equal(tree.messages[0].parent, HISTORY_ROOT);
    assert_string_equal(tree.info.title, "first words");
    conversation_free(&tree);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    chat_close(&c);
}

/* A copy is there as a whole or not at all, wherever it fails; better answers and ratings are in it
 * and can be changed on either side alone. */
static void copied_at_once(void **state)
{
    (void)state;
    chat c, copy;
    size_t n_failed = 0;
    begin(&c);
    begin(&copy);
    ask(&c, "question");
    ask(&c, "another");
    assert_ok(&disk, chat_rate(&c, 3, -1, &disk.err));
    assert_ok(&disk, chat_rewrite(&c, 1, "a better answer", &disk.err));
    const size_t before = count_conversations();
    for (int step = 1;; step += 1 + step / 16) {
        fixture_fail_step(&disk, step);
        pf_status status = chat_copy(&copy, &c, &disk.err);
        fixture_fail_step(&disk, 0);
        if (status == PF_OK) break;
        n_failed++;
        assert_int_equal(count_conversations(), before);
        assert_int_equal(copy.conversation, 0);
    }
    assert_true(n_failed > 20);
    assert_int_equal(count_conversations(), before + 1);
    assert_int_equal(copy.n_turns, 4);
    assert_string_equal(copy.turns[1].text, "a better answer");
    assert_int_equal(copy.turns[3].rating, -1);
    assert_ok(&disk, chat_rewrite(&copy, 1, "", &disk.err));
    assert_false(copy.turns[1].rewritten);
    assert_ok(&disk, chat_rate(&copy, 3, 1, &disk.err));
    assert_ok(&disk, chat_load(&c, c.conversation, &disk.err));
    assert_true(c.turns[1].rewritten);
    assert_int_equal(c.turns[3].rating, -1);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    assert_ok(&disk, conversation_remove(mira, copy.conversation, &disk.err));
    chat_close(&c);
    chat_close(&copy);
}

/* A question that is taken back leaves, and the former branch is shown, in one step. */
static void taken_back_at_once(void **state)
{
    (void)state;
    chat c;
    conversation tree;
    size_t n_failed = 0;
    bool done = false;
    begin(&c);
    ask(&c, "question");
    ask(&c, "other");
    const int64_t answer = c.turns[1].id, other = c.turns[3].id;
    const history_message again = {
        .parent = HISTORY_ROOT, .role = HISTORY_USER, .text = (char[]){"again"}, .len = 5};
    int64_t asked = 0;
    assert_ok(&disk, message_append(mira, c.conversation, &again, &asked, &disk.err));
    for (int step = 1; !done; step += 1 + step / 16) {
        fixture_fail_step(&disk, step);
        pf_status status = message_take_back(mira, c.conversation, asked, answer, &disk.err);
        fixture_fail_step(&disk, 0);
        n_failed += status != PF_OK;
        assert_ok(&disk, conversation_load_tree(mira, c.conversation, &tree, &disk.err));
        done = tree.n == 4;
        assert_int_equal(tree.n, done ? 4 : 5);
        assert_int_equal(tree.current, done ? other : asked);
        assert_true(done || status != PF_OK);
        conversation_free(&tree);
    }
    assert_true(n_failed > 20);
    /* nothing was sent; the former branch was deleted meanwhile, elsewhere */
    assert_ok(&disk, message_take_back(mira, c.conversation, 0, asked, &disk.err));
    assert_ok(&disk, conversation_load_tree(mira, c.conversation, &tree, &disk.err));
    assert_int_equal(tree.current, other);
    conversation_free(&tree);
    assert_ok(&disk, conversation_remove(mira, c.conversation, &disk.err));
    chat_close(&c);
}

static int all_fail(void *unused)
{
    (void)unused;
    return 1;
}

/* Nothing can be saved, as on a full disk or while another program keeps the store. */
static void fail_all(bool fails)
{
    sqlite3_progress_handler(disk.store->main.handle, fails ? 1 : 0, fails ? all_fail : NULL, NULL);
}

/* Asks, and the answer can't be saved. */
static void ask_in_vain(chat *c, const char *text)
{
    pf_err err;
    char *back = NULL;
    chat_change change;
    assert_ok(&disk, chat_send(c, text, strlen(text), 6, NULL, &disk.err));
    fail_all(true);
    do
        change = take_event_with(c, &back, &err);
    while (change != CHAT_FINISHED);
    fail_all(false);
    assert_true(err.text[0] != '\0');
    assert_true(chat_has_unsaved(c));
}

static void expect_saved(const chat *c)
{
    chat again;
    begin(&again);
    assert_ok(&disk, chat_load(&again, c->conversation, &disk.err));
    assert_int_equal(again.n_turns, c->n_turns);
    for (size_t i = 0; i < c->n_turns; i++) {
        assert_int_equal(again.turns[i].id, c->turns[i].id);
        assert_int_equal(again.turns[i].parent, c->turns[i].parent);
        assert_string_equal(again.turns[i].text, c->turns[i].text);
        assert_int_equal(again.turns[i].n_ids, c->turns[i].n_ids);
    }
    chat_close(&again);
}

/* An answer that could not be saved is not lost: it is saved before what comes next. */
static void saved_later(void **state)
{
    (void)state;
    chat c;
    begin(&c);
    ask_in_vain(&c, "first");
    fail_all(true);
    assert_int_not_equal(chat_send(&c, "second", 6, 6, NULL, &disk.err), PF_OK);
    fail_all(false);
    assert_int_equal(c.n_turns, 2); /* still shown */
    assert_false(c.request);
    ask(&c, "second");
    assert_int_equal(c.n_turns, 4);
    expect_saved(&c);
    ask_in_vain(&c, "third"); /* then rated */
    assert_ok(&disk, chat_rate(&c, 5, 1, &disk.err));
    expect_saved(&c);
    ask_in_vain(&c, "fourth"); /* then asked again: it is the first of two answers */
    assert_ok(&disk, chat_regenerate(&c, 7, 6, NULL, &disk.err));
    answered(&c);
    expect_siblings(&c, 7, 2, 2);
    expect_saved(&c);
    ask_in_vain(&c, "fifth"); /* then left */
    const int64_t left = c.conversation;
    chat_begin(&c);
    assert_ok(&disk, chat_load(&c, left, &disk.err));
    assert_int_equal(c.n_turns, 10);
    ask_in_vain(&c, "sixth"); /* then closed */
    chat_close(&c);
    begin(&c);
    assert_ok(&disk, chat_load(&c, left, &disk.err));
    assert_int_equal(c.n_turns, 12);
    assert_ok(&disk, conversation_remove(mira, left, &disk.err));
    chat_close(&c);
}

static size_t count_targets(const train_dataset *d, const char *text)
{
    size_t n = 0;
    const tokenizer *t = model_get_tokenizer(tiny);
    for (size_t i = 0; i < d->n; i++) {
        buf learned = {0};
        for (int32_t k = 0; k < d->items[i].length; k++) {
            size_t len = 0;
            const char *bytes = tokenizer_bytes(t, d->items[i].ids[k], &len);
            if (d->items[i].target[k] && bytes) buf_append(&learned, bytes, len);
        }
        if (strstr(buf_str(&learned), text)) n += (size_t)d->items[i].repeat;
        buf_free(&learned);
    }
    return n;
}

static void gather(train_dataset *d, learn_from from)
{
    train_request request = {.from = from};
    train_dataset_options options = gather_options(&request, NULL);
    assert_ok(&disk, gather_conversations(d, tiny, mira, &request, &options, NULL, &disk.err));
}

/* What was rewritten is what the conversation goes on with and what training learns, twice; of a
 * branch that was left only what was rated good or rewritten. */
static void learned(void **state)
{
    (void)state;
    chat c;
    begin(&c);
    train_dataset d = {0};
    ask(&c, "question");
    assert_ok(&disk, chat_rewrite(&c, 1, "a better answer", &disk.err));
    assert_true(c.turns[1].rewritten);
    assert_string_equal(c.turns[1].text, "a better answer");
    assert_int_equal(c.turns[1].n_ids, 0);
    assert_ok(&disk, chat_regenerate(&c, 1, 6, NULL, &disk.err));
    answered(&c);
    assert_ok(&disk, chat_rewrite(&c, 1, "left behind, rated", &disk.err));
    assert_ok(&disk, chat_regenerate(&c, 1, 6, NULL, &disk.err));
    answered(&c);
    for (learn_from from = LEARN_ALL; from <= LEARN_REWRITES; from++) {
        gather(&d, from);
        assert_int_equal(count_targets(&d, "a better answer"), 2);
        assert_int_equal(count_targets(&d, "left behind, rated"), 2);
        train_dataset_free(&d);
    }
    /* Taking it back. */
    assert_ok(&disk, chat_show_message(&c, c.nodes[1].id, &disk.err));
    assert_true(c.turns[1].rewritten);
    assert_ok(&disk, chat_rewrite(&c, 1, "", &disk.err));
    assert_false(c.turns[1].rewritten);
    assert_true(c.turns[1].n_ids > 0);
    assert_ok(&disk, chat_rate(&c, 1, -1, &disk.err));
    gather(&d, LEARN_REWRITES);
    assert_int_equal(count_targets(&d, "a better answer"), 0);
    assert_int_equal(count_targets(&d, "left behind, rated"), 2);
    train_dataset_free(&d);
    chat_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches),           cmocka_unit_test(removed_at_once),
        cmocka_unit_test(begun_at_once),      cmocka_unit_test(copied_at_once),
        cmocka_unit_test(taken_back_at_once), cmocka_unit_test(taken_back),
        cmocka_unit_test(questions_in_a_row), cmocka_unit_test(deleted),
        cmocka_unit_test(deleted_elsewhere),  cmocka_unit_test(learned),
        cmocka_unit_test(left_in_the_middle), cmocka_unit_test(chosen_in_the_middle),
        cmocka_unit_test(saved_later),        cmocka_unit_test(profile_changed_elsewhere),
    };
    return cmocka_run_group_tests_name("chat", tests, setup, teardown);
}
