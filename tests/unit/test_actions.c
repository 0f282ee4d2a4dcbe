/* The table of actions: every row is well formed, no key hides another, keys can be changed. */
#include "base/file.h"
#include "ui/actions.h"
#include "ui/fuzzy.h"
#include "ui/keymap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int back_to_defaults(void **state)
{
    (void)state;
    action_bind_defaults();
    return 0;
}

static void rows(void **state)
{
    (void)state;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *text = action_description((action)a), *slash = action_slash((action)a);
        assert_int_equal(action_find(action_name((action)a)), a);
        assert_true(strlen(text) > 3 && text[strlen(text) - 1] != '.');
        assert_false(text[0] >= 'A' && text[0] <= 'Z');
        if (*slash) assert_int_equal(action_of_slash(slash, strcspn(slash, " ")), a);
    }
    assert_int_equal(action_find("split-right"), ACTION_SPLIT_RIGHT);
    assert_int_equal(action_find("split_right"), ACTION_NONE);
    assert_int_equal(action_of_slash("", 0), ACTION_NONE);
    assert_int_equal(action_of_slash("loc", 3), ACTION_NONE);
}

/* Giving every action its own default keys again changes nothing and meets no resistance: no key
 * has two meanings where both could be meant. */
static void default_keys(void **state)
{
    (void)state;
    pf_err err = {0};
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        const char *keys = action_default_keys((action)a);
        if (!*keys) continue;
        if (action_bind((action)a, keys, &err) != PF_OK) fail_msg("%s", err.text);
    }
}

static void expect_keys(action a, const char *expected)
{
    buf text = {0};
    action_keys(a, &text);
    assert_string_equal(buf_str(&text), expected);
    buf_free(&text);
}

static void binding(void **state)
{
    (void)state;
    pf_err err = {0};
    assert_int_equal(action_of(KEY_F2, CONTEXT_WINDOW), ACTION_SPLIT_RIGHT);
    assert_int_equal(action_bind(ACTION_NEW_CONVERSATION, "F2", &err),
                     PF_OK); /* takes it from the window */
    assert_int_equal(action_of(KEY_F2, CONTEXT_WINDOW), ACTION_NONE);
    assert_int_equal(action_of(KEY_F2, CONTEXT_CHAT), ACTION_NEW_CONVERSATION);
    assert_int_equal(action_of(KEY_CTRL | 'n', CONTEXT_CHAT), ACTION_NONE);
    expect_keys(ACTION_SPLIT_RIGHT, "Alt-V");
    assert_int_equal(action_bind(ACTION_SEND, "alt-enter  ctrl-s", &err), PF_OK);
    assert_int_equal(action_bind(ACTION_NEWLINE, "Enter", &err), PF_OK);
    assert_int_equal(action_of(KEY_ENTER, CONTEXT_EDITOR), ACTION_NEWLINE);
    assert_int_equal(action_of(KEY_ENTER, CONTEXT_LIST), ACTION_CHOOSE); /* another place */
    expect_keys(ACTION_SEND, "Alt-Enter or Ctrl-S");
    assert_int_equal(action_bind(ACTION_QUIT, "none", &err), PF_OK);
    expect_keys(ACTION_QUIT, "");
    action_bind_defaults();
    expect_keys(ACTION_NEW_CONVERSATION, "Ctrl-N");
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        action a;
        const char *keys, *reason;
    } cases[] = {
        {ACTION_NEW_CONVERSATION, "Strg-L", "\"Strg-L\" is no key"},
        {ACTION_NEW_CONVERSATION, "", "write none"},
        {ACTION_NEW_CONVERSATION, "F1 F2 F3 F4 F7", "more than 4"},
        {ACTION_NEW_CONVERSATION, "x", "text"},
        {ACTION_NEW_CONVERSATION, "Ctrl-", "no key"},
        {ACTION_NEW_CONVERSATION, "F12", "given to quit"},
    };
    pf_err err = {0};
    assert_int_equal(action_bind(ACTION_QUIT, "F12", &err), PF_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(action_bind(cases[i].a, cases[i].keys, &err), PF_USAGE);
        if (!strstr(err.text, cases[i].reason)) fail_msg("%s", err.text);
        expect_keys(ACTION_NEW_CONVERSATION, "Ctrl-N"); /* nothing was changed */
    }
}

/* The file that is printed to begin with is accepted whole when every line of it is used. */
static void sample(void **state)
{
    (void)state;
    buf text = {0}, plain = {0}, wrong = {0};
    config file = {0};
    pf_err err = {0};
    char path[] = "/tmp/preft-keys-XXXXXX";
    keymap_write(&text);
    for (const char *line = buf_str(&text); *line; line += strcspn(line, "\n") + 1) {
        bool entry = line[0] == '#' && line[1] != ' ';
        buf_printf(&plain, "%.*s\n", (int)strcspn(line, "\n") - entry, line + entry);
    }
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(file_write_atomic(path, plain.data, plain.len, 0600, &err), PF_OK);
    assert_int_equal(config_read(path, &file, NULL, &err), PF_OK);
    assert_int_equal(file.count, ACTION_COUNT - 1);
    keymap_apply(&file, &wrong);
    assert_string_equal(buf_str(&wrong), "");
    unlink(path);
    config_free(&file);
    buf_free(&text);
    buf_free(&plain);
}

static void letters(void **state)
{
    (void)state;
    input_event ev = {.kind = INPUT_TEXT, .text = "é", .len = 2};
    assert_int_equal(input_key(&ev), 0xE9);
    ev = (input_event){.kind = INPUT_TEXT, .text = "?", .len = 1};
    assert_int_equal(action_of(input_key(&ev), CONTEXT_WINDOW), ACTION_HELP);
    ev = (input_event){.kind = INPUT_TEXT, .text = " ", .len = 1};
    assert_int_equal(input_key(&ev), KEY_SPACE);
    ev = (input_event){.kind = INPUT_PASTE, .text = "?", .len = 1};
    assert_int_equal(input_key(&ev), 0);
}

static void fuzzy(void **state)
{
    (void)state;
    assert_int_equal(fuzzy_score("", "anything"), 0);
    assert_true(fuzzy_score("spr", "split-right") > 0);
    assert_true(fuzzy_score("SPR", "split-right") > 0);
    assert_true(fuzzy_score("right split", "split-right") > 0);
    assert_true(fuzzy_score("rps", "split-right") < 0);
    assert_true(fuzzy_score("lock", "lock: nothing stays") > fuzzy_score("lock", "close locks"));
    assert_true(fuzzy_score("lock", "lock") > fuzzy_score("lock", "look at clocks"));
    assert_true(fuzzy_score("né", "connée") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test_teardown(default_keys, back_to_defaults),
        cmocka_unit_test_teardown(binding, back_to_defaults),
        cmocka_unit_test_teardown(refusals, back_to_defaults),
        cmocka_unit_test_teardown(sample, back_to_defaults),
        cmocka_unit_test(letters),
        cmocka_unit_test(fuzzy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
