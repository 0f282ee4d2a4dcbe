/* Conversations: marks of the policies, the window of turns, and histories that continue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/conversation.h"
#include "support/tokenizer_json.h"

typedef struct {
    tokenizer *t;
    chat_template *ct;
} fixture;

static int open_fixture(void **state)
{
    fixture *f = xcalloc(1, sizeof *f);
    f->t = tokenizer_of_model("tiny-llama");
    *state = f;
    return chat_template_create("chatml", NULL, 0, f->t, &f->ct, NULL) == PF_OK ? 0 : -1;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    chat_template_free(f->ct);
    tokenizer_free(f->t);
    free(f);
    return 0;
}

static chat_message message(chat_role role, const char *text)
{
    return (chat_message){.role = role, .text = text, .len = strlen(text)};
}

static conversation_prompt render(const fixture *f, const chat_message *messages, size_t n,
                                  conversation_options options)
{
    conversation_prompt p = {0};
    pf_err err = {0};
    if (conversation_render(f->ct, f->t, messages, n, &options, &p, &err) != PF_OK)
        fail_msg("%s", err.text);
    return p;
}

/* --- policies --------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"turns", "prompt", "all", "none"};
    for (size_t i = 0; i < 4; i++) {
        positions_policy p = POSITIONS_DEFAULT;
        assert_true(positions_parse(names[i], &p));
        assert_string_equal(positions_name(p), names[i]);
    }
    positions_policy p = POSITIONS_ALL;
    assert_false(positions_parse("turn", &p));
    assert_false(positions_parse("default", &p));
    assert_int_equal(p, POSITIONS_ALL);
}

static void test_resolve(void **state)
{
    (void)state;
    assert_int_equal(positions_resolve(POSITIONS_DEFAULT, true, true), POSITIONS_TURNS);
    assert_int_equal(positions_resolve(POSITIONS_DEFAULT, true, false), POSITIONS_ALL);
    assert_int_equal(positions_resolve(POSITIONS_PROMPT, true, false), POSITIONS_PROMPT);
    for (positions_policy p = POSITIONS_DEFAULT; p <= POSITIONS_NONE; p++)
        assert_int_equal(positions_resolve(p, false, true), POSITIONS_NONE);
    assert_true(positions_marks_generated(POSITIONS_ALL));
    assert_false(positions_marks_generated(POSITIONS_TURNS));
    assert_false(positions_marks_generated(POSITIONS_PROMPT));
}

static void test_marks(void **state)
{
    (void)state;
    static const unsigned char parts[] = {PART_PROMPT, PART_ANSWER, PART_END, PART_PROMPT};
    static const struct {
        positions_policy policy;
        unsigned char marks[4];
    } cases[] = {{POSITIONS_TURNS, {1, 0, 0, 1}},
                 {POSITIONS_PROMPT, {1, 1, 1, 1}},
                 {POSITIONS_ALL, {1, 1, 1, 1}},
                 {POSITIONS_NONE, {0, 0, 0, 0}}};
    for (size_t i = 0; i < 4; i++) {
        unsigned char marks[4];
        positions_mark(cases[i].policy, parts, 4, marks);
        assert_memory_equal(marks, cases[i].marks, 4);
    }
    unsigned char marks[3];
    positions_mark(POSITIONS_TURNS, NULL, 3, marks);
    assert_memory_equal(marks, "\1\1\1", 3);
}

/* Under turns the answers and their ends are plain, and the last prompt token is adapted. */
static void test_marks_of_a_conversation(void **state)
{
    const fixture *f = *state;
    const chat_message messages[] = {message(ROLE_SYSTEM, "Be brief."), message(ROLE_USER, "Hi"),
                                     message(ROLE_ASSISTANT, "Hello there"),
                                     message(ROLE_USER, "Bye")};
    conversation_prompt p = render(
        f, messages, 4, (conversation_options){.policy = POSITIONS_TURNS, .generation = true});
    size_t plain = 0;
    for (size_t i = 0; i < p.ids.len; i++) {
        assert_int_equal(p.marks[i], p.parts[i] == PART_PROMPT);
        plain += !p.marks[i];
    }
    assert_true(plain > 2 && plain < p.ids.len / 2);
    assert_int_equal(p.marks[p.ids.len - 1], 1);
    assert_int_equal(p.n_dropped, 0);
    conversation_prompt_free(&p);
}

/* --- histories -------------------------------------------------------------------------------- */

static void expect_extends(const conversation_prompt *longer, const id_list *shorter,
                           const unsigned char *marks)
{
    assert_true(longer->ids.len > shorter->len);
    assert_memory_equal(longer->ids.ids, shorter->ids, shorter->len * sizeof *shorter->ids);
    assert_memory_equal(longer->marks, marks, shorter->len);
}

/* Whatever ids an answer was made of, the next turn's prompt begins with the tokens that were
 * read and written before, with the same marks. */
static void check_continues(const fixture *f, const char *text, const int32_t *ids, size_t n)
{
    chat_message messages[] = {message(ROLE_SYSTEM, "S"), message(ROLE_USER, "Hi"),
                               message(ROLE_ASSISTANT, text), message(ROLE_USER, "And?")};
    conversation_options options = {.policy = POSITIONS_TURNS, .generation = true};
    conversation_prompt first = render(f, messages, 2, options);
    messages[2].ids = ids;
    messages[2].n_ids = n;
    conversation_prompt second = render(f, messages, 4, options);

    id_list sequence = {0}; /* what the engine held when the answer was done */
    id_list_append_all(&sequence, first.ids.ids, first.ids.len);
    id_list_append_all(&sequence, ids, n);
    id_list_append(&sequence, 2);
    unsigned char *marks = xcalloc(sequence.len, 1);
    memcpy(marks, first.marks, first.ids.len);
    expect_extends(&second, &sequence, marks);
    free(marks);
    id_list_free(&sequence);
    conversation_prompt_free(&first);
    conversation_prompt_free(&second);
}

static void test_histories_continue(void **state)
{
    const fixture *f = *state;
    static const char *const answers[] = {" Hello!\n\n", "  two spaces", "\n\nfirst", "",
                                          "plain",       "<|im_end|>",   "\xE5\xAD"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        id_list ids = {0};
        for (const char *c = answers[i]; *c; c++) /* byte by byte: not how the text is tokenized */
            tokenizer_encode(f->t, c, 1, false, false, &ids);
        static const int32_t none;
        check_continues(f, answers[i], ids.ids ? ids.ids : &none, ids.len);
        id_list_free(&ids);
    }
}

/* --- the window ------------------------------------------------------------------------------- */

static const chat_message long_history[] = {
    {.role = ROLE_SYSTEM, .text = "Be brief.", .len = 9},
    {.role = ROLE_USER, .text = "one one one one", .len = 15},
    {.role = ROLE_ASSISTANT, .text = "first", .len = 5},
    {.role = ROLE_USER, .text = "two", .len = 3},
    {.role = ROLE_ASSISTANT, .text = "second", .len = 6},
    {.role = ROLE_ASSISTANT, .text = "more", .len = 4},
    {.role = ROLE_USER, .text = "three", .len = 5},
};
#define N_HISTORY (sizeof long_history / sizeof long_history[0])

/* The result of a budget is the rendering of the messages that stay, and one turn more would not
 * have fitted. */
static void check_budget(const fixture *f, size_t budget)
{
    conversation_options whole = {.policy = POSITIONS_TURNS, .generation = true};
    conversation_options options = whole;
    options.budget = budget;
    options.drop_oldest = true;
    conversation_prompt p = render(f, long_history, N_HISTORY, options);
    static const size_t starts[] = {1, 3, 6}; /* turns */
    size_t turn = 0;
    while (turn < 3 && starts[turn] - 1 != p.n_dropped)
        turn++;
    assert_true(turn < 3);
    assert_true(p.ids.len <= budget);
    for (size_t i = turn ? turn - 1 : 0; i <= turn; i++) {
        chat_message kept[N_HISTORY] = {long_history[0]};
        size_t n = N_HISTORY - starts[i];
        memcpy(kept + 1, long_history + starts[i], n * sizeof *kept);
        conversation_prompt q = render(f, kept, n + 1, whole);
        if (i == turn) {
            assert_int_equal(q.ids.len, p.ids.len);
            assert_memory_equal(q.ids.ids, p.ids.ids, p.ids.len * sizeof *p.ids.ids);
        } else {
            assert_true(q.ids.len > budget);
        }
        conversation_prompt_free(&q);
    }
    conversation_prompt_free(&p);
}

static void test_window(void **state)
{
    const fixture *f = *state;
    conversation_options options = {.policy = POSITIONS_TURNS, .generation = true};
    conversation_prompt all = render(f, long_history, N_HISTORY, options);
    chat_message last[] = {long_history[0], long_history[6]};
    conversation_prompt least = render(f, last, 2, options);
    for (size_t budget = least.ids.len; budget <= all.ids.len + 1; budget++)
        check_budget(f, budget);

    conversation_prompt p = {0};
    pf_err err = {0};
    options.budget = least.ids.len - 1;
    options.drop_oldest = true;
    assert_int_equal(conversation_render(f->ct, f->t, long_history, N_HISTORY, &options, &p, &err),
                     PF_REFUSED);
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%zu tokens; there is room for %zu", least.ids.len,
             options.budget);
    assert_non_null(strstr(err.text, numbers));
    conversation_prompt_free(&p);

    options.drop_oldest = false;
    options.budget = all.ids.len - 1;
    assert_int_equal(conversation_render(f->ct, f->t, long_history, N_HISTORY, &options, &p, &err),
                     PF_REFUSED);
    conversation_prompt_free(&p);
    conversation_prompt_free(&all);
    conversation_prompt_free(&least);
}

static void test_window_without_system(void **state)
{
    const fixture *f = *state;
    conversation_options options = {
        .policy = POSITIONS_NONE, .generation = true, .budget = 30, .drop_oldest = true};
    const chat_message messages[] = {
        message(ROLE_ASSISTANT, "an answer to nothing at all, at the beginning"),
        message(ROLE_USER, "a"), message(ROLE_ASSISTANT, "b"), message(ROLE_USER, "c")};
    conversation_prompt p = render(f, messages, 4, options);
    assert_true(p.n_dropped == 1 || p.n_dropped == 3);
    for (size_t i = 0; i < p.ids.len; i++)
        assert_int_equal(p.marks[i], 0);
    conversation_prompt_free(&p);
}

static void test_refusals(void **state)
{
    const fixture *f = *state;
    conversation_options options = {.policy = POSITIONS_NONE};
    conversation_prompt p = {0};
    pf_err err = {0};
    assert_int_equal(conversation_render(f->ct, f->t, NULL, 0, &options, &p, &err), PF_REFUSED);
    chat_message bad[] = {message(ROLE_USER, "a"), message((chat_role)7, "b")};
    assert_int_equal(conversation_render(f->ct, f->t, bad, 2, &options, &p, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "message 1"));
    conversation_prompt_free(&p);
}

static size_t length_from(const fixture *f, const chat_message *messages, size_t n, size_t first)
{
    chat_message kept[64];
    conversation_prompt p;
    kept[0] = messages[0];
    memcpy(kept + 1, messages + first, (n - first) * sizeof *kept);
    p = render(f, kept, n - first + 1, (conversation_options){.policy = POSITIONS_NONE});
    size_t len = p.ids.len;
    conversation_prompt_free(&p);
    return len;
}

/* The window is the longest one of whole turns that fits, whatever the messages' lengths are: of
 * few long tokens, of many short ones. */
static void test_longest_window(void **state)
{
    const fixture *f = *state;
    enum { N = 41 };
    char texts[N][160];
    chat_message messages[N];
    uint32_t seed = 1;
    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < N; i++) {
            seed = seed * 1664525 + 1013904223;
            size_t len = (seed >> 16) % (round % 2 ? sizeof texts[i] : 12);
            memset(texts[i], round % 3 ? 'q' : ' ', len);
            texts[i][len] = '\0';
            messages[i] = message(i == 0  ? ROLE_SYSTEM
                                  : i % 2 ? ROLE_USER
                                          : ROLE_ASSISTANT,
                                  texts[i]);
        }
        size_t budget = length_from(f, messages, N, N - 2) + (seed >> 8) % 900, first = 1;
        while (length_from(f, messages, N, first) > budget)
            first += 2;
        conversation_prompt p =
            render(f, messages, N,
                   (conversation_options){
                       .policy = POSITIONS_TURNS, .budget = budget, .drop_oldest = true});
        assert_int_equal(p.n_dropped, first - 1);
        assert_int_equal(p.ids.len, length_from(f, messages, N, first));
        conversation_prompt_free(&p);
    }
}

/* Messages that can't be in the window are not even read. */
static void test_far_messages_are_not_read(void **state)
{
    const fixture *f = *state;
    enum { N = 20001 };
    const size_t page = 4096;
    char *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(closed != MAP_FAILED);
    chat_message *messages = xcalloc(N, sizeof *messages);
    for (size_t i = 0; i < N; i++) {
        messages[i] = message(i % 2 ? ROLE_ASSISTANT : ROLE_USER, "some words of a message");
        if (i < N - 400) messages[i].text = closed;
    }
    conversation_prompt p = render(
        f, messages, N,
        (conversation_options){.policy = POSITIONS_TURNS, .budget = 200, .drop_oldest = true});
    assert_true(p.ids.len > 100 && p.ids.len <= 200);
    assert_true(p.n_dropped > N - 40);
    conversation_prompt_free(&p);
    free(messages);
    munmap(closed, page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_marks_of_a_conversation),
        cmocka_unit_test(test_histories_continue),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_without_system),
        cmocka_unit_test(test_longest_window),
        cmocka_unit_test(test_far_messages_are_not_read),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
