/* Notes of a user: adding, states, profiles, texts that are refused, damage, deleting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/backup.h"
#include "profiles/notes.h"
#include "support/store_fixture.h"

static store_fixture f;
static session *mira, *jonas;

static int setup(void **state)
{
    (void)state;
    fixture_open(&f);
    mira = fixture_user(&f, "mira", "correct horse");
    jonas = fixture_user(&f, "jonas", "battery staple");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    session_unref(mira);
    session_unref(jonas);
    fixture_close(&f);
    return 0;
}

static int64_t add(session *s, const char *text, int64_t profile, note_state state)
{
    char copy[NOTE_MAX_BYTES + 1];
    int64_t id = 0;
    snprintf(copy, sizeof copy, "%s", text);
    note_info note = {.text = copy, .profile = profile, .state = state};
    assert_ok(&f, note_add(s, &note, &id, &f.err));
    assert_true(id > 0);
    return id;
}

static void expect(session *s, int64_t profile, size_t n, const char *last, note_state state)
{
    note_list list;
    assert_ok(&f, note_list_load(s, profile, &list, &f.err));
    assert_int_equal(list.n, n);
    if (n > 0) {
        assert_string_equal(list.items[n - 1].text, last);
        assert_int_equal(list.items[n - 1].state, state);
    }
    note_list_free(&list);
}

static void test_states(void **state)
{
    (void)state;
    int64_t dog = add(mira, "  My dog is called Biscuit.\n", 0, NOTE_CONFIRMED);
    expect(mira, 0, 1, "My dog is called Biscuit.", NOTE_CONFIRMED);
    /* found again: nothing changes; the same text counts once */
    assert_int_equal(add(mira, "my DOG is called Biscuit.", 0, NOTE_PROPOSED), dog);
    expect(mira, 0, 1, "My dog is called Biscuit.", NOTE_CONFIRMED);
    int64_t city = add(mira, "I live in Ghent.", 0, NOTE_PROPOSED);
    expect(mira, 0, 2, "I live in Ghent.", NOTE_PROPOSED);
    assert_ok(&f, note_update(mira, city, NULL, NOTE_REFUSED, &f.err));
    assert_int_equal(add(mira, "I live in Ghent.", 0, NOTE_PROPOSED), city);
    expect(mira, 0, 2, "I live in Ghent.", NOTE_REFUSED);
    assert_int_equal(add(mira, "I live in Ghent.", 0, NOTE_CONFIRMED), city);
    assert_ok(&f, note_update(mira, city, "I live in Bruges.", NOTE_CONFIRMED, &f.err));
    expect(mira, 0, 2, "I live in Bruges.", NOTE_CONFIRMED);
    expect(jonas, -1, 0, NULL, NOTE_CONFIRMED);
    assert_status(&f, note_remove(jonas, city, &f.err), PF_NOT_FOUND);
    assert_ok(&f, note_remove(mira, city, &f.err));
    assert_status(&f, note_remove(mira, city, &f.err), PF_NOT_FOUND);
    assert_status(&f, note_update(mira, city, NULL, NOTE_CONFIRMED, &f.err), PF_NOT_FOUND);
    assert_ok(&f, note_remove(mira, dog, &f.err));
    expect(mira, -1, 0, NULL, NOTE_CONFIRMED);
}

static void test_profiles(void **state)
{
    (void)state;
    int64_t work = 0, home = 0;
    assert_ok(&f, profile_create(mira, "work", NULL, &work, &f.err));
    assert_ok(&f, profile_create(mira, "home", NULL, &home, &f.err));
    add(mira, "I am a locksmith.", work, NOTE_CONFIRMED);
    add(mira, "My name is Tamsin.", 0, NOTE_CONFIRMED);
    expect(mira, work, 2, "My name is Tamsin.", NOTE_CONFIRMED);
    expect(mira, home, 1, "My name is Tamsin.", NOTE_CONFIRMED);
    char text[] = "I am a locksmith.";
    note_info note = {.text = text, .profile = 12345};
    assert_status(&f, note_add(mira, &note, NULL, &f.err), PF_USAGE);
    assert_ok(&f, profile_remove(mira, work, &f.err));
    expect(mira, home, 2, "My name is Tamsin.", NOTE_CONFIRMED);
}

static void test_refused_texts(void **state)
{
    (void)state;
    static char huge[NOTE_MAX_BYTES + 2];
    memset(huge, 'a', sizeof huge - 1);
    static const char *const texts[] = {"", " \t ", "a\xff", "two\nlines", "a bell\x07", huge};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *copy = strdup(texts[i]);
        note_info note = {.text = copy};
        assert_status(&f, note_add(jonas, &note, NULL, &f.err), PF_USAGE);
        free(copy);
    }
    expect(jonas, -1, 0, NULL, NOTE_CONFIRMED);
}

/* Nothing is stored in the plain, damage and removal behind the program's back are told. */
static void test_sealed(void **state)
{
    (void)state;
    static const char number[] = "My number is 5550142.";
    add(jonas, number, 0, NOTE_CONFIRMED);
    add(jonas, "I collect stamps.", 0, NOTE_CONFIRMED);
    assert_int_equal(fixture_find_bytes(&f, "5550142", 7), 0);
    note_list list;
    fixture_sql(&f, "DELETE FROM note WHERE id = (SELECT max(id) FROM note)");
    assert_status(&f, note_list_load(jonas, -1, &list, &f.err), PF_DAMAGED);
    assert_text(f.err.text, "notes");
    note_list_free(&list);
    int64_t removed = 0;
    assert_ok(&f, doctor_repair(jonas, &removed, &f.err));
    expect(jonas, -1, 1, number, NOTE_CONFIRMED);
    fixture_flip(&f, "note", "body", 60);
    assert_status(&f, note_list_load(mira, -1, &list, &f.err), PF_DAMAGED);
    note_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_refused_texts),
        cmocka_unit_test(test_sealed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
