/* Conversations and messages: saving, paging, changing, speed, export and import, search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/notes.h"
#include "profiles/search.h"
#include "profiles/settings.h"
#include "support/cpu_time.h"
#include "support/store_fixture.h"

static store_fixture f;
static session *mira;

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    mira = fixture_user(&f, "mira", "correct horse");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    session_unref(mira);
    fixture_close(&f);
    return 0;
}

static int64_t talk(const char *title)
{
    int64_t id = 0;
    assert_ok(&f, conversation_create(mira, 0, title, &id, &f.err));
    return id;
}

static void test_round_trip(void **state)
{
    (void)state;
    int64_t id = talk("Letters");
    static int32_t ids[] = {1, -5, 2000000000, 0};
    char text[] = "Dear \xe5\x8f\x8b, \0 done";
    history_message question = {.role = HISTORY_USER, .text = text, .len = sizeof text - 1};
    history_message answer = {.role = HISTORY_ASSISTANT,
                              .text = (char[]){"Yes."},
                              .len = 4,
                              .ids = ids,
                              .n_ids = 4,
                              .finish = (char[]){"stop"},
                              .prompt_tokens = 12,
                              .cached_tokens = 3,
                              .completion_tokens = 4,
                              .rating = -1,
                              .rewritten = (char[]){"No."},
                              .created_ms = 1234567890123};
    int64_t first = 0, second = 0;
    assert_ok(&f, message_append(mira, id, &question, &first, &f.err));
    answer.parent = first;
    assert_ok(&f, message_append(mira, id, &answer, &second, &f.err));
    session_unref(mira);
    fixture_reopen(&f);
    assert_ok(&f, fixture_sign_in(&f, "mira", "correct horse", &mira));
    conversation c;
    assert_ok(&f, conversation_load(mira, id, &c, &f.err));
    assert_string_equal(c.info.title, "Letters");
    assert_int_equal(c.info.n_messages, 2);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.messages[0].id, first);
    assert_int_equal(c.messages[0].len, sizeof text - 1);
    assert_memory_equal(c.messages[0].text, text, sizeof text);
    assert_null(c.messages[0].rewritten);
    assert_int_equal(c.messages[0].n_ids, 0);
    const history_message *m = &c.messages[1];
    assert_int_equal(m->id, second);
    assert_int_equal(m->parent, first);
    assert_int_equal(m->role, HISTORY_ASSISTANT);
    assert_int_equal(m->n_ids, 4);
    assert_memory_equal(m->ids, ids, sizeof ids);
    assert_string_equal(m->finish, "stop");
    assert_int_equal(m->prompt_tokens, 12);
    assert_int_equal(m->cached_tokens, 3);
    assert_int_equal(m->completion_tokens, 4);
    assert_int_equal(m->rating, -1);
    assert_string_equal(m->rewritten, "No.");
    assert_true(m->created_ms == 1234567890123);
    conversation_free(&c);
}

static void expect_copy(const history_message *m, const history_message *of, int64_t parent)
{
    assert_true(m->id > of->id);
    assert_int_equal(m->parent, parent);
    assert_int_equal(m->origin, of->origin ? of->origin : of->id);
    assert_int_equal(m->role, of->role);
    assert_string_equal(m->text, of->text);
    assert_int_equal(m->n_ids, of->n_ids);
    if (of->n_ids) assert_memory_equal(m->ids, of->ids, of->n_ids * sizeof *of->ids);
    assert_int_equal(m->completion_tokens, of->completion_tokens);
    assert_int_equal(m->rating, of->rating);
    assert_string_equal(m->rewritten ? m->rewritten : "", of->rewritten ? of->rewritten : "");
    assert_true(m->judged_ms == of->judged_ms && m->created_ms == of->created_ms);
}

/* A part of one branch becomes a conversation that knows where it is from, also as a copy's copy;
 * what is said about one side later stays on that side. */
static void test_copy(void **state)
{
    (void)state;
    static int32_t ids[] = {3, 1, 4};
    int64_t id = talk("Copied"), m[5], copy[2] = {0}, none = 0;
    history_message answer = {.role = HISTORY_ASSISTANT,
                              .text = (char[]){"answer"},
                              .len = 6,
                              .ids = ids,
                              .n_ids = 3,
                              .completion_tokens = 3};
    m[0] = fixture_message(mira, id, HISTORY_USER, "first");
    assert_ok(&f, message_append(mira, id, &answer, &m[1], &f.err));
    m[2] = fixture_message(mira, id, HISTORY_USER, "second");
    assert_ok(&f, message_append(mira, id, &answer, &m[3], &f.err));
    answer.parent = m[2];
    assert_ok(&f, message_append(mira, id, &answer, &m[4], &f.err));
    assert_ok(&f, message_rate(mira, id, m[1], -1, "better", &f.err));
    assert_status(&f, conversation_copy(mira, id, m[3], m[4], 0, &none, &f.err), PF_NOT_FOUND);
    assert_status(&f, conversation_copy(mira, id, m[0], 99999, 0, &none, &f.err), PF_NOT_FOUND);
    assert_status(&f, conversation_copy(mira, id, m[0], m[4], 999, &none, &f.err), PF_NOT_FOUND);
    assert_ok(&f, conversation_copy(mira, id, m[1], m[3], 0, &copy[0], &f.err));
    conversation from, to, again;
    assert_ok(&f, conversation_load_tree(mira, id, &from, &f.err));
    assert_int_equal(from.info.origin, 0);
    assert_int_equal(from.messages[1].origin, 0);
    assert_true(from.messages[1].judged_ms > 0);
    assert_ok(&f, conversation_load_tree(mira, copy[0], &to, &f.err));
    assert_string_equal(to.info.title, "Copied");
    assert_int_equal(to.info.origin, id);
    assert_int_equal(to.n, 3);
    assert_int_equal(to.current, to.messages[2].id);
    for (size_t i = 0; i < 3; i++)
        expect_copy(&to.messages[i], &from.messages[1 + i],
                    i ? to.messages[i - 1].id : HISTORY_ROOT);
    /* a copy's copy, with a message of its own, when the original is gone */
    assert_ok(&f, conversation_remove(mira, id, &f.err));
    m[0] = fixture_message(mira, copy[0], HISTORY_USER, "its own");
    assert_ok(&f, conversation_copy(mira, copy[0], to.messages[0].id, m[0], 0, &copy[1], &f.err));
    assert_ok(&f, message_rate(mira, copy[0], to.messages[0].id, 1, "", &f.err));
    assert_ok(&f, conversation_load_tree(mira, copy[1], &again, &f.err));
    assert_int_equal(again.info.origin, id);
    assert_int_equal(again.n, 4);
    expect_copy(&again.messages[0], &to.messages[0], HISTORY_ROOT);
    assert_int_equal(again.messages[0].rating, -1);
    assert_int_equal(again.messages[0].origin, from.messages[1].id);
    assert_int_equal(again.messages[3].origin, m[0]);
    conversation_free(&from);
    conversation_free(&to);
    conversation_free(&again);
}

static void test_changes(void **state)
{
    (void)state;
    int64_t id = talk("Changes"), other = talk("Other"), m[4];
    for (int i = 0; i < 4; i++)
        m[i] = fixture_message(mira, id, i % 2 ? HISTORY_ASSISTANT : HISTORY_USER, "text");
    int64_t foreign = fixture_message(mira, other, HISTORY_USER, "elsewhere");
    history_message change = {
        .id = m[1], .role = HISTORY_ASSISTANT, .text = (char[]){"changed"}, .len = 7};
    assert_ok(&f, message_update(mira, id, &change, &f.err));
    assert_ok(&f, message_rate(mira, id, m[1], 1, "better", &f.err));
    assert_ok(&f, message_rate(mira, id, m[3], -1, NULL, &f.err));
    assert_status(&f, message_rate(mira, id, m[3], 2, NULL, &f.err), PF_USAGE);
    assert_status(&f, message_rate(mira, id, foreign, 1, NULL, &f.err), PF_NOT_FOUND);
    assert_status(&f, message_remove(mira, id, foreign, REMOVE_ALONE, &f.err), PF_NOT_FOUND);
    assert_status(&f, message_remove(mira, id, 99999, REMOVE_AND_LATER, &f.err), PF_NOT_FOUND);
    assert_ok(&f, message_remove(mira, id, m[0], REMOVE_ALONE, &f.err));
    conversation c;
    assert_ok(&f, conversation_load(mira, id, &c, &f.err));
    assert_int_equal(c.n, 3);
    assert_string_equal(c.messages[0].text, "changed");
    assert_string_equal(c.messages[0].rewritten, "better");
    assert_int_equal(c.messages[2].rating, -1);
    conversation_free(&c);
    assert_ok(&f, message_remove(mira, id, m[2], REMOVE_AND_LATER, &f.err));
    assert_ok(&f, conversation_load(mira, id, &c, &f.err));
    assert_int_equal(c.n, 1);
    conversation_free(&c);
    assert_ok(&f, conversation_update(mira, id, "New title", -1, &f.err));
    assert_status(&f, conversation_update(mira, id, NULL, 77, &f.err), PF_NOT_FOUND);
    conversation_info info;
    assert_ok(&f, conversation_get(mira, id, &info, &f.err));
    assert_string_equal(info.title, "New title");
    conversation_info_free(&info);
    assert_ok(&f, conversation_remove(mira, id, &f.err));
    assert_status(&f, conversation_load(mira, id, &c, &f.err), PF_NOT_FOUND);
    conversation_free(&c);
    assert_ok(&f, conversation_remove(mira, other, &f.err));
}

static int64_t follow(int64_t id, int64_t parent, history_role role, const char *text)
{
    int64_t made = 0;
    history_message m = {
        .parent = parent, .role = role, .text = (char *)(uintptr_t)text, .len = strlen(text)};
    assert_ok(&f, message_append(mira, id, &m, &made, &f.err));
    return made;
}

/* The texts of the current branch, separated by blanks. */
static void expect_branch(int64_t id, const char *texts)
{
    buf found = {0};
    conversation c;
    assert_ok(&f, conversation_load(mira, id, &c, &f.err));
    for (size_t i = 0; i < c.n; i++)
        buf_printf(&found, "%s%s", i ? " " : "", c.messages[i].text);
    assert_string_equal(buf_str(&found), texts);
    conversation_free(&c);
    buf_free(&found);
}

static void test_branches(void **state)
{
    (void)state;
    int64_t id = talk("Branches"), other = talk("Other");
    int64_t q1 = follow(id, 0, HISTORY_USER, "q1");
    int64_t a1 = follow(id, 0, HISTORY_ASSISTANT, "a1"); /* saved as older programs did */
    int64_t q2 = follow(id, 0, HISTORY_USER, "q2");
    expect_branch(id, "q1 a1 q2");
    int64_t a2 = follow(id, q1, HISTORY_ASSISTANT, "a2");
    expect_branch(id, "q1 a2");
    int64_t q3 = follow(id, HISTORY_ROOT, HISTORY_USER, "q3");
    int64_t a3 = follow(id, q3, HISTORY_ASSISTANT, "a3");
    expect_branch(id, "q3 a3");
    int64_t foreign = follow(other, 0, HISTORY_USER, "foreign");
    history_message lost = {.parent = foreign, .text = (char[]){"x"}, .len = 1};
    assert_status(&f, message_append(mira, id, &lost, NULL, &f.err), PF_NOT_FOUND);
    assert_status(&f, conversation_choose(mira, id, foreign, &f.err), PF_NOT_FOUND);
    assert_ok(&f, conversation_choose(mira, id, a1, &f.err));
    expect_branch(id, "q1 a1 q2"); /* down to the end */
    conversation tree;
    assert_ok(&f, conversation_load_tree(mira, id, &tree, &f.err));
    assert_int_equal(tree.n, 6);
    assert_int_equal(tree.current, q2);
    assert_int_equal(tree.messages[1].parent, q1);
    assert_int_equal(tree.messages[4].parent, HISTORY_ROOT);
    size_t path[6];
    assert_int_equal(conversation_path(&tree, a2, path), 2);
    assert_int_equal(path[1], 3);
    assert_int_equal(conversation_path(&tree, 99999, path), 0);
    assert_int_equal(conversation_last(&tree, q1), a2);
    conversation_free(&tree);
    /* Export is what is seen; search finds all. */
    buf out = {0};
    assert_ok(&f, message_rate(mira, id, a1, 1, "better", &f.err));
    assert_ok(&f, history_export_jsonl(mira, &id, 1, &out, &f.err));
    assert_non_null(strstr(buf_str(&out), "better"));
    assert_null(strstr(buf_str(&out), "a1"));
    assert_null(strstr(buf_str(&out), "a2"));
    buf_free(&out);
    search_result hits = {0};
    assert_ok(&f, search_messages(mira, "a2", id, 0, &hits, &f.err));
    assert_int_equal(hits.n, 1);
    assert_int_equal(hits.items[0].message, a2);
    search_result_free(&hits);
    /* Children of a deleted message stay, with its parent. */
    assert_ok(&f, message_remove(mira, id, a1, REMOVE_ALONE, &f.err));
    assert_ok(&f, conversation_choose(mira, id, q2, &f.err));
    expect_branch(id, "q1 q2");
    assert_ok(&f, message_remove(mira, id, q1, REMOVE_AND_LATER, &f.err));
    expect_branch(id, "q3 a3");
    assert_ok(&f, conversation_load_tree(mira, id, &tree, &f.err));
    assert_int_equal(tree.n, 2);
    assert_int_equal(tree.current, a3);
    conversation_free(&tree);
    assert_status(&f, message_remove(mira, id, a2, REMOVE_ALONE, &f.err), PF_NOT_FOUND);
    assert_ok(&f, message_remove(mira, id, q3, REMOVE_ALONE, &f.err));
    expect_branch(id, "a3");
    assert_ok(&f, message_remove(mira, id, a3, REMOVE_ALONE, &f.err));
    expect_branch(id, "");
    assert_ok(&f, conversation_remove(mira, id, &f.err));
    assert_ok(&f, conversation_remove(mira, other, &f.err));
}

/* A question goes with its answers; what follows them stays, and so does the branch that is shown.
 */
static void test_removing_with_answers(void **state)
{
    (void)state;
    int64_t id = talk("Removing");
    int64_t q1 = follow(id, HISTORY_ROOT, HISTORY_USER, "q1");
    int64_t a1 = follow(id, q1, HISTORY_ASSISTANT, "a1");
    int64_t q2 = follow(id, a1, HISTORY_USER, "q2");
    follow(id, q1, HISTORY_ASSISTANT, "a1b");
    int64_t q2b = follow(id, q1, HISTORY_USER, "q2b");
    int64_t a2 = follow(id, q2, HISTORY_ASSISTANT, "a2");
    expect_branch(id, "q1 a1 q2 a2");
    assert_ok(&f, message_remove(mira, id, a2, REMOVE_WITH_ANSWERS, &f.err)); /* alone */
    expect_branch(id, "q1 a1 q2");
    assert_ok(&f, message_remove(mira, id, q1, REMOVE_WITH_ANSWERS, &f.err));
    expect_branch(id, "q2"); /* not q2b, which is newer */
    conversation tree;
    assert_ok(&f, conversation_load_tree(mira, id, &tree, &f.err));
    assert_int_equal(tree.n, 2);
    assert_int_equal(tree.messages[0].parent, HISTORY_ROOT);
    assert_int_equal(tree.messages[1].parent, HISTORY_ROOT);
    assert_int_equal(tree.messages[1].id, q2b);
    conversation_free(&tree);
    assert_ok(&f, conversation_remove(mira, id, &f.err));
}

static void test_drafts(void **state)
{
    (void)state;
    int64_t id = talk("Drafts");
    buf out = {0};
    assert_ok(&f, draft_load(mira, id, &out, &f.err));
    assert_int_equal(out.len, 0);
    assert_ok(&f, draft_save(mira, id, "half a thought", 14, &f.err));
    assert_ok(&f, draft_save(mira, 0, "another", 7, &f.err));
    assert_ok(&f, draft_load(mira, id, &out, &f.err));
    assert_string_equal(buf_str(&out), "half a thought");
    assert_ok(&f, conversation_remove(mira, id, &f.err));
    buf_clear(&out);
    assert_ok(&f, draft_load(mira, id, &out, &f.err));
    assert_int_equal(out.len, 0); /* it went with the conversation */
    assert_ok(&f, draft_save(mira, 0, "", 0, &f.err));
    assert_ok(&f, draft_load(mira, 0, &out, &f.err));
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

static void test_refused_messages(void **state)
{
    (void)state;
    int64_t id = talk("Refused");
    history_message bad = {.role = HISTORY_USER, .text = (char[]){"\xff"}, .len = 1};
    assert_status(&f, message_append(mira, id, &bad, NULL, &f.err), PF_USAGE);
    bad = (history_message){.role = (history_role)7, .text = (char[]){"x"}, .len = 1};
    assert_status(&f, message_append(mira, id, &bad, NULL, &f.err), PF_USAGE);
    bad =
        (history_message){.role = HISTORY_USER, .text = (char[]){"x"}, .len = HISTORY_MAX_TEXT + 1};
    assert_status(&f, message_append(mira, id, &bad, NULL, &f.err), PF_USAGE);
    conversation_info info;
    assert_ok(&f, conversation_get(mira, id, &info, &f.err));
    assert_int_equal(info.n_messages, 0);
    conversation_info_free(&info);
    assert_ok(&f, conversation_remove(mira, id, &f.err));
}

static void test_paging(void **state)
{
    (void)state;
    session *jonas = fixture_user(&f, "jonas", "battery staple");
    int64_t profile = 0, id = 0;
    conversation_list list;
    assert_ok(&f, profile_create(jonas, "work", NULL, &profile, &f.err));
    for (int i = 0; i < 10; i++)
        assert_ok(&f, conversation_create(jonas, i % 2 ? profile : 0, "t", &id, &f.err));
    assert_ok(&f, conversation_list_load(jonas, -1, 0, 0, &list, &f.err));
    assert_int_equal(list.n, 10);
    for (size_t i = 1; i < list.n; i++)
        assert_true(list.items[i - 1].updated_ms >= list.items[i].updated_ms);
    assert_int_equal(list.items[0].id, id);
    conversation_list_free(&list);
    assert_ok(&f, conversation_list_load(jonas, profile, 1, 3, &list, &f.err));
    assert_int_equal(list.n, 3);
    assert_int_equal(list.total, 5);
    for (size_t i = 0; i < list.n; i++)
        assert_int_equal(list.items[i].profile, profile);
    conversation_list_free(&list);
    assert_ok(&f, conversation_list_load(jonas, 0, 4, 3, &list, &f.err));
    assert_int_equal(list.n, 1);
    conversation_list_free(&list);
    /* conversations outlive their profile */
    assert_ok(&f, profile_remove(jonas, profile, &f.err));
    assert_ok(&f, conversation_list_load(jonas, 0, 0, 0, &list, &f.err));
    assert_int_equal(list.n, 10);
    conversation_list_free(&list);
    session_unref(jonas);
}

static void test_ten_thousand(void **state)
{
    (void)state;
    buf lines = {0};
    size_t n = 0;
    buf_puts(&lines, "{\"messages\":[");
    for (int i = 0; i < 10000; i++)
        buf_printf(&lines,
                   "%s{\"role\":\"%s\",\"content\":\"message number %d of a long talk, long "
                   "enough to be like a real one, with some more words in it\"}",
                   i ? "," : "", i % 2 ? "assistant" : "user", i);
    buf_puts(&lines, "]}\n");
    assert_ok(&f, history_import_jsonl(mira, 0, lines.data, lines.len, "long", &n, &f.err));
    buf_free(&lines);
    conversation_list list;
    assert_ok(&f, conversation_list_load(mira, -1, 0, 1, &list, &f.err));
    conversation c;
    int64_t start = cpu_time_ns();
    assert_ok(&f, conversation_load(mira, list.items[0].id, &c, &f.err));
    int64_t ms = (cpu_time_ns() - start) / 1000000;
    assert_int_equal(c.n, 10000);
    assert_true(ms < 1000);
    conversation_free(&c);
    assert_ok(&f, conversation_remove(mira, list.items[0].id, &f.err));
    conversation_list_free(&list);
}

static void test_export_import(void **state)
{
    (void)state;
    int64_t id = talk("Export");
    fixture_message(mira, id, HISTORY_SYSTEM, "Be brief.");
    fixture_message(mira, id, HISTORY_USER, "Say \"hi\"\n\xe2\x80\xa8twice");
    fixture_message(mira, id, HISTORY_ASSISTANT, "hi hi");
    buf out = {0}, again = {0};
    size_t n = 0;
    assert_ok(&f, history_export_jsonl(mira, &id, 1, &out, &f.err));
    assert_ok(&f, history_import_jsonl(mira, 0, out.data, out.len, "x", &n, &f.err));
    assert_int_equal(n, 1);
    conversation_list list;
    assert_ok(&f, conversation_list_load(mira, -1, 0, 1, &list, &f.err));
    assert_string_equal(list.items[0].title, "Say \"hi\"");
    assert_ok(&f, history_export_jsonl(mira, &list.items[0].id, 1, &again, &f.err));
    assert_string_equal(out.data, again.data);
    assert_ok(&f, conversation_remove(mira, list.items[0].id, &f.err));
    conversation_list_free(&list);
    buf_clear(&out);
    assert_ok(&f, history_export_markdown(mira, &id, 1, &out, &f.err));
    assert_text(out.data, "# Export\n");
    assert_text(out.data, "## System\n\nBe brief.\n\n## You\n");
    assert_ok(&f, conversation_remove(mira, id, &f.err));
    buf_free(&out);
    buf_free(&again);
}

static void test_bad_imports(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no conversation"},
        {"{\"messages\":[]}", "not empty"},
        {"[]", "\"messages\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n{\"mess", "line 2"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", "role tool"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[1]}]}", "content"},
        {"{\"messages\":[{\"role\":1,\"content\":\"a\"}]}", "role"},
        {"{\"messages\":[\"a\"]}", "message 1"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}", "no user message"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":"
         "\"a\"}]}",
         "message 2"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"messages\":[]}", "line 1"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "line 1"},
    };
    conversation_list before, after;
    assert_ok(&f, conversation_list_load(mira, -1, 0, 0, &before, &f.err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(&f,
                      history_import_jsonl(mira, 0, cases[i].text, strlen(cases[i].text), "f.jsonl",
                                           NULL, &f.err),
                      PF_REFUSED);
        assert_text(f.err.text, "f.jsonl");
        assert_text(f.err.text, cases[i].says);
    }
    assert_ok(&f, conversation_list_load(mira, -1, 0, 0, &after, &f.err));
    assert_int_equal(before.n, after.n);
    conversation_list_free(&before);
    conversation_list_free(&after);
}

static void test_search(void **state)
{
    (void)state;
    int64_t id = talk("Search");
    session *eve = fixture_user(&f, "eve", "hunter2 hunter2");
    int64_t other = 0;
    assert_ok(&f, conversation_create(eve, 0, "mine", &other, &f.err));
    fixture_message(eve, other, HISTORY_USER, "the Z\xc3\x9cRICH of eve");
    fixture_message(mira, id, HISTORY_USER, "a train to\n\n Z\xc3\xbcrich tomorrow, Z\xc3\xbcrich");
    fixture_message(mira, id, HISTORY_ASSISTANT, "zurich without dots");
    fixture_message(
        mira, id, HISTORY_ASSISTANT,
        "0123456789 0123456789 0123456789 0123456789 z\xc3\xbcRICH 0123456789 0123456789 "
        "0123456789 0123456789");
    search_result r;
    assert_ok(&f, search_messages(mira, "z\xc3\x9cr", 0, 0, &r, &f.err));
    assert_int_equal(r.n, 2);
    assert_false(r.more);
    assert_string_equal(r.items[0].title, "Search");
    assert_string_equal(r.items[0].context, "a train to Z\xc3\xbcrich tomorrow, Z\xc3\xbcrich");
    assert_int_equal(r.items[0].start, 11);
    assert_int_equal(r.items[0].len, 4);
    assert_string_equal(r.items[1].context,
                        "…456789 0123456789 0123456789 0123456789 z\xc3\xbcRICH 0123456789 "
                        "0123456789 0123456789 012…");
    search_result_free(&r);
    assert_ok(&f, search_messages(mira, "z\xc3\x9cr", 0, 1, &r, &f.err));
    assert_int_equal(r.n, 1);
    assert_true(r.more);
    search_result_free(&r);
    assert_ok(&f, search_messages(mira, "z\xc3\x9cr", 12345, 0, &r, &f.err));
    assert_int_equal(r.n, 0);
    search_result_free(&r);
    assert_status(&f, search_messages(mira, "", 0, 0, &r, &f.err), PF_USAGE);
    search_result_free(&r);
    session_unref(eve);
}

static void test_titles(void **state)
{
    (void)state;
    static const struct {
        const char *text, *title;
    } cases[] = {
        {"", ""},
        {"\n\n  Hello   there \t you\nsecond", "Hello there you"},
        {"one two three four five six seven eight nine ten eleven twelve thirteen",
         "one two three four five six seven eight nine ten eleven…"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"},
        {"\x1b[31mred", "[31mred"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *title = history_title(cases[i].text, strlen(cases[i].text));
        assert_string_equal(title, cases[i].title);
        free(title);
    }
}

static void test_settings(void **state)
{
    (void)state;
    buf value = {0};
    assert_status(&f, settings_get(mira, "theme", &value, &f.err), PF_NOT_FOUND);
    assert_ok(&f, settings_set(mira, "theme", "dark", 4, &f.err));
    assert_ok(&f, settings_set(mira, "theme2", "", 0, &f.err));
    assert_ok(&f, settings_set(mira, "theme", "light\0x", 7, &f.err));
    assert_ok(&f, settings_get(mira, "theme", &value, &f.err));
    assert_int_equal(value.len, 7);
    assert_memory_equal(value.data, "light\0x", 7);
    buf_clear(&value);
    assert_ok(&f, settings_get(mira, "theme2", &value, &f.err));
    assert_int_equal(value.len, 0);
    assert_ok(&f, settings_remove(mira, "theme", &f.err));
    assert_ok(&f, settings_remove(mira, "theme", &f.err));
    assert_status(&f, settings_get(mira, "theme", &value, &f.err), PF_NOT_FOUND);
    /* a row removed behind the program's back is not just "not set" */
    fixture_sql(&f, "DELETE FROM setting");
    assert_status(&f, settings_get(mira, "theme2", &value, &f.err), PF_DAMAGED);
    buf_free(&value);
}

static void test_input_history(void **state)
{
    (void)state;
    session *anna = fixture_user(&f, "anna", "pass phrase");
    input_history h;
    assert_ok(&f, input_history_load(anna, 0, &h, &f.err));
    assert_int_equal(h.n, 0);
    input_history_free(&h);
    assert_ok(&f, input_history_add(anna, 0, "one", &f.err));
    assert_ok(&f, input_history_add(anna, 0, "two", &f.err));
    assert_ok(&f, input_history_add(anna, 0, "two", &f.err));
    assert_ok(&f, input_history_add(anna, 0, "", &f.err));
    assert_ok(&f, input_history_add(anna, 5, "elsewhere", &f.err));
    assert_ok(&f, input_history_load(anna, 0, &h, &f.err));
    assert_int_equal(h.n, 2);
    assert_string_equal(h.items[0], "one");
    assert_string_equal(h.items[1], "two");
    input_history_free(&h);
    for (int i = 0; i < SETTINGS_INPUTS + 3; i++) {
        char text[32];
        snprintf(text, sizeof text, "input %d", i);
        assert_ok(&f, input_history_add(anna, 0, text, &f.err));
    }
    assert_ok(&f, input_history_load(anna, 0, &h, &f.err));
    assert_int_equal(h.n, SETTINGS_INPUTS);
    assert_string_equal(h.items[0], "input 3");
    input_history_free(&h);
    session_unref(anna);
}

static int64_t found_note(session *s, int64_t in, const char *text, note_state state)
{
    int64_t id = 0;
    char *copy = strdup(text);
    const note_info note = {.text = copy, .conversation = in, .state = state};
    assert_ok(&f, note_add(s, &note, &id, &f.err));
    free(copy);
    return id;
}

static void expect_inputs(session *s, size_t n, const char *first)
{
    input_history h;
    assert_ok(&f, input_history_load(s, 0, &h, &f.err));
    assert_int_equal(h.n, n);
    if (n) assert_string_equal(h.items[0], first);
    input_history_free(&h);
}

static void expect_setting(session *s, char *key, pf_status wanted)
{
    buf value = {0};
    assert_status(&f, settings_get(s, key, &value, &f.err), wanted);
    buf_free(&value);
    free(key);
}

/* A message of a later time than all notes. */
static int64_t late_message(session *s, int64_t in)
{
    int64_t id = 0;
    char text[] = "never mind";
    const history_message m = {
        .role = HISTORY_USER, .text = text, .len = 10, .created_ms = clock_unix_ms() + 60000};
    assert_ok(&f, message_append(s, in, &m, &id, &f.err));
    return id;
}

/* What was said is not kept elsewhere when it is deleted: in the title, in what was typed before,
 * in notes that were proposed. */
static void test_nothing_stays_elsewhere(void **state)
{
    (void)state;
    session *anna = fixture_user(&f, "anna of the notes", "pass phrase");
    static const char *const texts[] = {"I keep bees.", "I live in Ghent.", "I live in Ghent."};
    int64_t id = 0, other = 0, messages[3];
    note_list notes;
    conversation_info info;
    assert_ok(&f, conversation_create(anna, 0, texts[0], &id, &f.err));
    assert_ok(&f, conversation_create(anna, 0, "other", &other, &f.err));
    for (int i = 0; i < 3; i++) {
        messages[i] =
            fixture_message(anna, id, i == 1 ? HISTORY_ASSISTANT : HISTORY_USER, texts[i]);
        if (i != 1) assert_ok(&f, input_history_add(anna, 0, texts[i], &f.err));
    }
    assert_ok(&f, input_history_add(anna, 0, "never sent", &f.err));
    found_note(anna, id, "The user keeps bees.", NOTE_PROPOSED);
    found_note(anna, id, "The user is Anna.", NOTE_CONFIRMED);
    found_note(anna, other, "The user is tall.", NOTE_PROPOSED);

    for (int rewrite = 0; rewrite < 2; rewrite++) {
        char *key = message_draft_key(messages[rewrite], rewrite);
        assert_ok(&f, settings_set(anna, key, "unfinished", 10, &f.err));
        free(key);
    }
    /* a message that is taken back right away leaves older notes alone */
    assert_ok(&f, message_remove(anna, id, late_message(anna, id), REMOVE_ALONE, &f.err));
    assert_ok(&f, note_list_load(anna, -1, &notes, &f.err));
    assert_int_equal(notes.n, 3);
    note_list_free(&notes);

    assert_ok(&f, message_remove(anna, id, messages[0], REMOVE_ALONE, &f.err));
    assert_ok(&f, conversation_get(anna, id, &info, &f.err));
    assert_string_equal(info.title, texts[2]);
    conversation_info_free(&info);
    expect_inputs(anna, 2, texts[2]);
    found_note(anna, id, "The user lives in Ghent.", NOTE_REFUSED);
    expect_setting(anna, message_draft_key(messages[0], false), PF_NOT_FOUND);
    expect_setting(anna, message_draft_key(messages[1], true), PF_OK);
    assert_ok(&f, note_list_load(anna, -1, &notes, &f.err));
    assert_int_equal(notes.n, 3);
    note_list_free(&notes);

    assert_ok(&f, conversation_remove(anna, id, &f.err));
    expect_inputs(anna, 1, "never sent");
    expect_setting(anna, message_draft_key(messages[1], true), PF_NOT_FOUND);
    assert_ok(&f, note_list_load(anna, -1, &notes, &f.err));
    assert_int_equal(notes.n, 2);
    assert_string_equal(notes.items[0].text, "The user is Anna.");
    assert_string_equal(notes.items[1].text, "The user is tall.");
    note_list_free(&notes);
    session_unref(anna);
}

static void *sign_out(void *s)
{
    session_sign_out(s);
    return NULL;
}

/* A search, and who signs out in the midst of it. */
typedef struct {
    session *session;
    search_result hits;
    pthread_t thread;
    bool left;
} search_left;

/* At the first hit: signing out would wait for the search's end. */
static int leave_meanwhile(void *ctx)
{
    search_left *l = ctx;
    if (l->left || l->hits.n == 0) return 0;
    l->left = true;
    if (pthread_create(&l->thread, NULL, sign_out, l->session) != 0) return 1;
    while (!atomic_load(&l->session->leaving))
        sqlite3_sleep(1);
    return 0;
}

static void test_search_ends_with_sign_out(void **state)
{
    (void)state;
    search_left l = {.session = fixture_user(&f, "leaver", "correct horse")};
    int64_t id = 0;
    assert_ok(&f, conversation_create(l.session, 0, "t", &id, &f.err));
    for (int i = 0; i < 20; i++)
        fixture_message(l.session, id, HISTORY_USER, "needle");
    sqlite3_progress_handler(f.store->main.handle, 1, leave_meanwhile, &l);
    assert_status(&f, search_messages(l.session, "needle", 0, 0, &l.hits, &f.err), PF_DENIED);
    sqlite3_progress_handler(f.store->main.handle, 0, NULL, NULL);
    assert_true(l.left);
    assert_int_equal(pthread_join(l.thread, NULL), 0);
    assert_true(l.hits.n < 20);
    search_result_free(&l.hits);
    session_unref(l.session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_removing_with_answers),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_refused_messages),
        cmocka_unit_test(test_paging),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_export_import),
        cmocka_unit_test(test_bad_imports),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_search_ends_with_sign_out),
        cmocka_unit_test(test_titles),
        cmocka_unit_test(test_input_history),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_nothing_stays_elsewhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
