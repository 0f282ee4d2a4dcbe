/* After signing out nothing of what was typed, read or saved is left in the process's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "profiles/search.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "support/sanitizer.h"
#include "support/store_fixture.h"

#include <fcntl.h>
#include <unistd.h>

static store_fixture f;

/* The markers are never in memory in the plain but where a test puts them: they are kept with every
 * byte inverted. */
#define MARK 12
static const unsigned char inverted[][MARK] = {
    {0xaf, 0x9e, 0x8c, 0x8c, 0xd2, 0x8e, 0xce, 0x88, 0xcd, 0x9a, 0xcc, 0x8d}, /* passphrase */
    {0xab, 0x9a, 0x87, 0x8b, 0xd2, 0x8e, 0xce, 0x88, 0xcd, 0x9a, 0xcc, 0x8d}, /* message */
    {0xb1, 0x9e, 0x92, 0x9a, 0xd2, 0x8e, 0xce, 0x88, 0xcd, 0x9a, 0xcc, 0x8d}, /* profile's name */
    {0xac, 0x9a, 0x8b, 0x8b, 0xd2, 0x8e, 0xce, 0x88, 0xcd, 0x9a, 0xcc, 0x8d}, /* setting */
    {0xb6, 0x91, 0x8f, 0x8a, 0xd2, 0x8e, 0xce, 0x88, 0xcd, 0x9a, 0xcc, 0x8d}, /* input */
};
enum { PASSPHRASE, MESSAGE, NAME, SETTING, INPUT, N_MARKS };

static char *mark(int which)
{
    char *text = xmalloc(MARK + 1);
    for (int i = 0; i < MARK; i++)
        text[i] = (char)~inverted[which][i];
    text[MARK] = '\0';
    return text;
}

static bool starts_mark(const unsigned char *at, int which)
{
    for (int i = 0; i < MARK; i++)
        if ((at[i] ^ inverted[which][i]) != 0xff) return false;
    return true;
}

/* How often the marks are in this process's writable memory. */
static void count_marks(size_t counts[N_MARKS])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int mem = open("/proc/self/mem", O_RDONLY);
    char line[512];
    /* one fixed block, outside the searched ranges' growth; pieces overlap by a mark */
    static unsigned char block[1 << 16];
    memset(counts, 0, N_MARKS * sizeof *counts);
    assert_non_null(maps);
    assert_true(mem >= 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from = 0, to = 0;
        char modes[5] = "";
        if (sscanf(line, "%lx-%lx %4s", &from, &to, modes) != 3 || modes[0] != 'r' ||
            modes[1] != 'w')
            continue;
        for (unsigned long at = from; at < to; at += sizeof block - MARK) {
            ssize_t n = pread(mem, block, sizeof block, (off_t)at);
            for (ssize_t i = 0; i + MARK <= n && at + (unsigned long)i < to; i++)
                for (int which = 0; which < N_MARKS; which++) {
                    const unsigned char *where = (const unsigned char *)at + i;
                    bool own = where >= block && where < block + sizeof block;
                    if (!own && starts_mark(block + i, which)) counts[which]++;
                }
        }
    }
    memset(block, 0, sizeof block);
    close(mem);
    fclose(maps);
}

static void free_mark(char *text)
{
    wipe_text(text);
}

static session *sign_in(void)
{
    session *s = NULL;
    char *text = mark(PASSPHRASE);
    secret *p = secret_from(text, MARK);
    free_mark(text);
    pf_status status = user_sign_in(f.store, "mira", p, &s, &f.err);
    if (status == PF_NOT_FOUND) status = user_create(f.store, "mira", p, &s, NULL, &f.err);
    assert_int_equal(status, PF_OK);
    secret_free(p);
    return s;
}

/* Everything a user does; returns the session. */
static session *use(void)
{
    session *s = sign_in();
    int64_t id = 0, profile = 0;
    char *name = mark(NAME), *message = mark(MESSAGE), *setting = mark(SETTING), *in = mark(INPUT);
    char json[64];
    profile_info info;
    if (profile_find(s, name, &info, &f.err) == PF_NOT_FOUND) {
        snprintf(json, sizeof json, "{\"system\":\"%s\"}", setting);
        assert_ok(&f, profile_create(s, name, json, &profile, &f.err));
        explicit_bzero(json, sizeof json);
        assert_ok(&f, profile_get(s, profile, &info, &f.err));
    }
    profile_info_free(&info);
    assert_ok(&f, conversation_create(s, 0, message, &id, &f.err));
    for (int i = 0; i < 20; i++) {
        history_message m = {.role = HISTORY_USER, .text = message, .len = MARK};
        assert_ok(&f, message_append(s, id, &m, NULL, &f.err));
        assert_ok(&f, settings_set(s, "draft", in, MARK, &f.err));
        assert_ok(&f, input_history_add(s, 0, i % 2 ? in : "other", &f.err));
    }
    conversation c;
    search_result found;
    input_history inputs;
    conversation_list list;
    buf value = {0};
    assert_ok(&f, conversation_load(s, id, &c, &f.err));
    assert_string_equal(c.messages[19].text, message);
    conversation_free(&c);
    assert_ok(&f, search_messages(s, message, 0, 0, &found, &f.err));
    assert_true(found.n >= 20);
    search_result_free(&found);
    assert_ok(&f, input_history_load(s, 0, &inputs, &f.err));
    input_history_free(&inputs);
    assert_ok(&f, conversation_list_load(s, -1, 0, 0, &list, &f.err));
    conversation_list_free(&list);
    assert_ok(&f, settings_get(s, "draft", &value, &f.err));
    wipe_buf(&value);
    free_mark(name);
    free_mark(message);
    free_mark(setting);
    free_mark(in);
    return s;
}

static void test_forget(void **state)
{
    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip();
    size_t counts[N_MARKS];
    fixture_open(&f);
    /* the search finds what is there */
    char *shown = mark(MESSAGE);
    count_marks(counts);
    assert_true(counts[MESSAGE] > 0);
    free_mark(shown);
    session *s = use();
    session_sign_out(s);
    session_unref(s);
    count_marks(counts);
    for (int which = 0; which < N_MARKS; which++)
        if (counts[which]) fail_msg("mark %d is left %zu times", which, counts[which]);
    s = use();
    session_unref(s);
    count_marks(counts);
    for (int which = 0; which < N_MARKS; which++)
        assert_int_equal(counts[which], 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
