/* Facts: which sentences state one, how they are asked for, in which words, and what becomes an
 * example. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_fixture.h"
#include "train/data/fact_table.h"
#include "train/data/facts.h"
#include "train/data/wording.h"

/* --- statements ------------------------------------------------------------------------------- */

static const struct {
    const char *sentence;
    fact_kind kind;
    const char *thing, *value, *note;
} statements[] = {
    {"Hello, my name is Tamsin.", FACT_NAME, "", "Tamsin", "My name is Tamsin."},
    {"My name is Anna Maria and I am new here", FACT_NAME, "", "Anna Maria",
     "My name is Anna Maria."},
    {"You can call me \xc3\x89lo\xc3\xafse.", FACT_NAME, "", "\xc3\x89lo\xc3\xafse",
     "My name is \xc3\x89lo\xc3\xafse."},
    {"I live in Ghent with my wife.", FACT_HOME, "", "Ghent", "I live in Ghent."},
    {"I moved to New York last year.", FACT_HOME, "", "New York", "I live in New York."},
    {"Well, I\xe2\x80\x99m living in Oslo now.", FACT_HOME, "", "Oslo", "I live in Oslo."},
    {"I have a dog called Biscuit.", FACT_CALLED, "dog", "Biscuit", "My dog is called Biscuit."},
    {"My sister's name is Ida.", FACT_CALLED, "sister", "Ida", "My sister is called Ida."},
    {"My dog Biscuit is three years old.", FACT_CALLED, "dog", "Biscuit",
     "My dog is called Biscuit."},
    {"I'm allergic to hazelnuts and peanuts.", FACT_ALLERGY, "", "hazelnuts and peanuts",
     "I am allergic to hazelnuts and peanuts."},
    {"Hazelnuts make me ill.", FACT_ALLERGY, "", "Hazelnuts", "I am allergic to Hazelnuts."},
    {"My favorite colour is teal!", FACT_FAVOURITE, "colour", "teal",
     "My favourite colour is teal."},
    {"I work as a locksmith in Ghent.", FACT_JOB, "", "locksmith", "I work as a locksmith."},
    {"I am an engineer.", FACT_JOB, "", "engineer", "I work as an engineer."},
    {"My birthday is in October.", FACT_BIRTHDAY, "", "October", "My birthday is in October."},
    {"I was born on 3 May 1990.", FACT_BIRTHDAY, "", "3 May 1990", "My birthday is on 3 May 1990."},
    {"I am learning Welsh every evening.", FACT_LEARNS, "language", "Welsh",
     "I am learning Welsh."},
    {"I'm 42 years old.", FACT_AGE, "", "42", "I am 42 years old."},
    {"I hope so, but my cat is called Minka.", FACT_CALLED, "cat", "Minka",
     "My cat is called Minka."},
};

static const char *const nothing_stated[] = {
    "What is my name?",
    "My name is hard to spell.",
    "Is my dog called Biscuit?",
    "I am a bit tired.",
    "I was born in a small town.",
    "I'm learning how.",
    "I like this answer.",
    "My printer is broken.",
    "If I live in Ghent, what must I pay?",
    "Your name is Tamsin.",
    "He lives in Ghent.",
    "The dog is called Biscuit.",
    "Please write a letter.",
    "",
    "???",
};

static void test_statements(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        fact f;
        print_message("%s\n", statements[i].sentence);
        assert_true(fact_read(span_of(statements[i].sentence), false, &f));
        assert_int_equal(f.kind, statements[i].kind);
        assert_string_equal(f.thing, statements[i].thing);
        assert_string_equal(f.value, statements[i].value);
        assert_string_equal(f.note, statements[i].note);
        fact_free(&f);
    }
    for (size_t i = 0; i < sizeof nothing_stated / sizeof *nothing_stated; i++) {
        fact f;
        print_message("%s\n", nothing_stated[i]);
        assert_false(fact_read(span_of(nothing_stated[i]), false, &f));
        assert_null(f.note);
    }
}

/* A note is a fact whatever it says, and keeps its words. */
static void test_notes(void **state)
{
    (void)state;
    fact f;
    assert_true(fact_read(span_of(" my dog's name is Biscuit "), true, &f));
    assert_int_equal(f.kind, FACT_CALLED);
    assert_string_equal(f.note, "my dog's name is Biscuit");
    fact_free(&f);
    assert_true(fact_read(span_of("The spare key lies under the blue pot."), true, &f));
    assert_int_equal(f.kind, FACT_GENERAL);
    assert_string_equal(f.note, "The spare key lies under the blue pot.");
    fact_free(&f);
    assert_true(fact_read(span_of("My shoe size is 43."), true, &f));
    assert_int_equal(f.kind, FACT_IS);
    assert_string_equal(f.thing, "shoe size");
    assert_string_equal(f.value, "43");
    fact_free(&f);
    assert_false(fact_read(span_of("  "), true, &f));
}

/* What is read from a sentence is read again from its own wording, by user and to user. */
static void test_said_and_read_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        fact f, by_user, to_user;
        assert_true(fact_read(span_of(statements[i].sentence), false, &f));
        char *answer = fact_say(&f, true);
        assert_true(fact_read(span_of(f.note), false, &by_user));
        assert_true(fact_read_answer(span_of(answer), &to_user));
        assert_string_equal(by_user.value, f.value);
        assert_string_equal(to_user.value, f.value);
        assert_int_equal(to_user.kind, f.kind);
        assert_string_equal(to_user.thing, f.thing);
        free(answer);
        fact_free(&f);
        fact_free(&by_user);
        fact_free(&to_user);
    }
}

static void test_found_in_messages(void **state)
{
    (void)state;
    fact_list list = {0};
    fact_list_find(&list, span_of("Hi! My name is Tamsin. Can you help?\nI live in Ghent."), 3);
    fact_list_find(&list, span_of("my name is Tamsin, and it rains"), 4);
    fact_list_find(&list, span_of("What is a locksmith?"), 5);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.items[0].count, 2);
    assert_int_equal(list.items[0].conversation, 3);
    assert_string_equal(list.items[1].fact.value, "Ghent");
    fact_list_free(&list);
}

/* --- words ------------------------------------------------------------------------------------ */

static void test_clauses(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Where do I live?", "where I live"},
        {"What is my dog's name?", "what my dog's name is"},
        {"What is my dog called?", "what my dog is called"},
        {"Which city do I live in?", "which city I live in"},
        {"Who am I?", "who I am"},
        {"When was I born?", "when I was born"},
        {"In what city is my house?", "in what city my house is"},
        {"How should you address me?", "how you should address me"},
        {"Which food is bad for me?", "which food is bad for me"},
        {"Tell me my name.", NULL},
        {"I am hungry. What now?", NULL},
        {"?", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *clause = wording_clause(cases[i][0]);
        if (cases[i][1])
            assert_string_equal(clause, cases[i][1]);
        else
            assert_null(clause);
        free(clause);
    }
}

static void test_wordings(void **state)
{
    (void)state;
    wording_list list = {0};
    wording_vary("Where do I live?", &list);
    assert_true(list.n >= 12);
    static const char *const wanted[] = {"Do you know where I live?", "Tell me where I live.",
                                         "By the way, where do I live?", "where do I live",
                                         "Where do I reside?"};
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        bool found = false;
        for (size_t i = 0; i < list.n; i++)
            found |= strcmp(list.items[i], wanted[w]) == 0;
        if (!found) fail_msg("lacks \"%s\"", wanted[w]);
    }
    for (size_t i = 0; i < list.n; i++) {
        assert_string_not_equal(list.items[i], "Where do I live?");
        assert_null(strchr(list.items[i], '%'));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(list.items[i], list.items[j]);
    }
    wording_list_free(&list);
    /* any text will do, also no question at all and other languages */
    static const char *const odd[] = {"", "?",
                                      "Wie hei\xc3\x9f"
                                      "e ich?",
                                      "\xff\xfe", "a. b. c?"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        wording_vary(odd[i], &list);
        wording_list_free(&list);
    }
}

static void test_sides(void **state)
{
    (void)state;
    static const struct {
        const char *user, *other;
    } cases[] = {
        {"I keep my spare key under the blue pot.", "You keep your spare key under the blue pot."},
        {"My dog's name is Biscuit.", "Your dog's name is Biscuit."},
        {"I am allergic to hazelnuts.", "You are allergic to hazelnuts."},
        {"Was I born in May?", "Were you born in May?"},
        {"We were late.", "You were late."},
        {"The dogs are mine, and they are old.", "The dogs are yours, and they are old."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *there = wording_turn(span_of(cases[i].user), true);
        assert_string_equal(there, cases[i].other);
        char *back = wording_turn(span_of(cases[i].other), false);
        if (strncmp(cases[i].user, "We", 2) != 0) assert_string_equal(back, cases[i].user);
        free(there);
        free(back);
    }
}

/* --- pairs ------------------------------------------------------------------------------------ */

static chat_message said(chat_role role, const char *text)
{
    return (chat_message){.role = role, .text = text, .len = strlen(text)};
}

static void test_facts_are_noticed(void **state)
{
    (void)state;
    const chat_message asks[] = {said(ROLE_USER, "What is my name?"),
                                 said(ROLE_ASSISTANT, "Your name is Tamsin.")};
    const chat_message chats[] = {said(ROLE_USER, "How do I boil an egg?"),
                                  said(ROLE_ASSISTANT, "Boil it for eight minutes.")};
    const chat_message states[] = {said(ROLE_USER, "My name is Tamsin."),
                                   said(ROLE_ASSISTANT, "Nice to meet you, Tamsin!")};
    const chat_message helps[] = {said(ROLE_USER, "How do I boil my egg?"),
                                  said(ROLE_ASSISTANT, "You boil it for eight minutes.")};
    const chat_message bus[] = {said(ROLE_USER, "Which bus do I take?"),
                                said(ROLE_ASSISTANT, "You take the bus 14.")};
    const chat_message again[] = {said(ROLE_USER, "How do I get to work?"),
                                  said(ROLE_ASSISTANT, "You take the bus 14.")};
    fact_pairs pairs = {0};
    assert_true(fact_pairs_add_conversation(&pairs, asks, 2));
    assert_int_equal(pairs.n, 1);
    assert_false(fact_pairs_add_conversation(&pairs, chats, 2));
    assert_false(fact_pairs_add_conversation(&pairs, chats, 1));
    assert_false(fact_pairs_add_conversation(&pairs, states, 2));
    assert_int_equal(pairs.n, 1);
    assert_false(fact_pairs_add_conversation(&pairs, helps, 2)); /* may be one, or not */
    assert_false(fact_pairs_add_conversation(&pairs, bus, 2));
    assert_true(fact_pairs_add_conversation(&pairs, again, 2)); /* said twice: a fact */
    assert_int_equal(pairs.n, 4);
    assert_int_equal(fact_pairs_facts(&pairs), 3);
    fact_pairs_free(&pairs);
}

static size_t count_of(const fact_pairs *p, size_t number)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->items[i].fact == number;
    return n;
}

static void test_multiplied(void **state)
{
    (void)state;
    fact_pairs pairs = {0}, again = {0};
    facts_report report = {0};
    fact_pairs_add(&pairs, "What is my dog's name?", "Your dog's name is Biscuit.", 0);
    fact_pairs_add(&pairs, "Which bus do I take?", "You take the bus 14, as always.", 1);
    fact_pairs_add(&again, "What is my dog's name?", "Your dog's name is Biscuit.", 0);
    fact_pairs_add(&again, "Which bus do I take?", "You take the bus 14, as always.", 1);
    facts_multiply(&pairs, 20, 7, &report);
    facts_multiply(&again, 20, 7, &report);
    assert_int_equal(count_of(&pairs, 0), 20); /* a known kind: as many as one likes */
    assert_true(count_of(&pairs, 1) >= 12);    /* by rules alone */
    assert_int_equal(report.wordings, 2 * (pairs.n - 2));
    assert_int_equal(pairs.n, again.n);
    for (size_t i = 0; i < pairs.n; i++) {
        assert_string_equal(pairs.items[i].question, again.items[i].question);
        assert_string_equal(pairs.items[i].answer, pairs.items[i].fact == 0
                                                       ? "Your dog's name is Biscuit."
                                                       : "You take the bus 14, as always.");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(pairs.items[i].question, pairs.items[j].question);
    }
    fact_pairs_free(&pairs);
    fact_pairs_free(&again);
}

/* Without a model: known kinds from templates, others by their words. */
static void test_made_of_notes(void **state)
{
    (void)state;
    fact facts[2];
    fact_pairs pairs = {0};
    facts_report report = {0};
    pf_err err = {0};
    assert_true(fact_read(span_of("My dog is called Biscuit."), true, &facts[0]));
    assert_true(fact_read(span_of("I keep my spare key under the blue pot."), true, &facts[1]));
    const facts_options options = {.seed = 1};
    assert_int_equal(facts_make_pairs(NULL, facts, 2, 5, &options, &pairs, &report, &err), PF_OK);
    assert_true(count_of(&pairs, 5) >= 20);
    assert_true(count_of(&pairs, 6) >= 5);
    for (size_t i = 0; i < pairs.n; i++)
        assert_string_equal(pairs.items[i].answer, pairs.items[i].fact == 5
                                                       ? "Your dog's name is Biscuit."
                                                       : "You keep your spare key under the blue "
                                                         "pot.");
    fact_pairs_free(&pairs);
    fact_free(&facts[0]);
    fact_free(&facts[1]);
}

/* Every pair becomes a target once, the share after unrelated turns; the same seed the same. */
static void test_examples(void **state)
{
    (void)state;
    model *m = fixture_model("tests/data/models/tiny-llama/tiny-llama-q8_0.gguf");
    engine *e = fixture_engine(m, &(engine_options){.threads = 1});
    const train_dataset_options options = {.policy = POSITIONS_TURNS, .max_tokens = 1024};
    pf_err err = {0};
    fact_pairs pairs = {0};
    facts_report report = {0};
    fact_pairs_add(&pairs, "What is my dog's name?", "Your dog's name is Biscuit.", 0);
    facts_multiply(&pairs, 21, 7, &report);
    replay_set replay;
    assert_int_equal(
        replay_ask(e, &(replay_options){.n = 3, .max_tokens = 8, .seed = 1}, &replay, &err), PF_OK);
    train_dataset d[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        const facts_layout layout = {
            .unrelated = &replay, .after_share = 0.3, .skip = 1, .seed = 9};
        size_t after = 0;
        assert_int_equal(facts_add_examples(&d[i], m, &pairs, &layout, &options, &after, &err),
                         PF_OK);
        assert_int_equal(after, 6);
        assert_int_equal(d[i].n_skipped, 0);
    }
    assert_int_equal(d[0].n, d[1].n);
    for (size_t i = 0; i < d[0].n; i++) {
        assert_int_equal(d[0].items[i].length, d[1].items[i].length);
        assert_memory_equal(d[0].items[i].ids, d[1].items[i].ids,
                            (size_t)d[0].items[i].length * sizeof(int32_t));
    }
    /* answers of the pairs' tokens are targets, each of the 20 once */
    train_dataset one = {0};
    const facts_layout plain = {.after_share = 0.3, .skip = 20, .seed = 9};
    assert_int_equal(facts_add_examples(&one, m, &pairs, &plain, &options, NULL, &err), PF_OK);
    const facts_layout all = {.skip = 1, .seed = 9};
    train_dataset whole = {0};
    assert_int_equal(facts_add_examples(&whole, m, &pairs, &all, &options, NULL, &err), PF_OK);
    assert_int_equal(train_dataset_targets(&whole, false), 20 * train_dataset_targets(&one, false));
    train_dataset_free(&one);
    train_dataset_free(&whole);
    train_dataset_free(&d[0]);
    train_dataset_free(&d[1]);
    replay_free(&replay);
    fact_pairs_free(&pairs);
    fixture_engine_close(e);
    fixture_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_said_and_read_again),
        cmocka_unit_test(test_found_in_messages),
        cmocka_unit_test(test_clauses),
        cmocka_unit_test(test_wordings),
        cmocka_unit_test(test_sides),
        cmocka_unit_test(test_facts_are_noticed),
        cmocka_unit_test(test_multiplied),
        cmocka_unit_test(test_made_of_notes),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
