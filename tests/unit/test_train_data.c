/* What a training reads: which tokens are targets, what is cut, skipped and joined, and that it is
 * what the chat had sent. */
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
#include "models/template.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "train/data/gather.h"
#include "train/job.h"
#include "train/live/live.h"

#define QWEN "tests/data/models/tiny-qwen2/tiny-qwen2-q8_0.gguf"

static const train_dataset_options plain = {.policy = POSITIONS_TURNS, .max_tokens = 1024};

static chat_message said(chat_role role, const char *text)
{
    return (chat_message){.role = role, .text = text, .len = strlen(text)};
}

static void add(train_dataset *d, const model *m, const chat_message *messages, size_t n,
                const train_dataset_options *o)
{
    pf_err err = {0};
    if (train_dataset_add(d, m, messages, NULL, n, o, "a chat", &err) != PF_OK)
        fail_msg("%s", err.text);
}

/* --- targets ---------------------------------------------------------------------------------- */

/* SmolLM2: the first answer token is a target, the last token of the prompt is not. */
static void test_real_targets(void **state)
{
    (void)state;
    const char *path = getenv("PREFT_TEST_MODEL");
    if (!path) {
        print_message("skipped: PREFT_TEST_MODEL is not set\n");
        skip();
    }
    model *m = fixture_model(path);
    train_dataset d = {0};
    const chat_message messages[] = {said(ROLE_USER, "2+2?"), said(ROLE_ASSISTANT, "Four.")};
    add(&d, m, messages, 2, &plain);
    assert_int_equal(d.n, 1);
    const train_example *e = &d.items[0];
    assert_int_equal(e->length, 37);
    assert_int_equal(e->n_targets, 3);
    static const int32_t answer[] = {19622, 30, 2};
    assert_memory_equal(e->ids + 34, answer, sizeof answer);
    for (int32_t i = 0; i < 37; i++) {
        assert_int_equal(e->target[i], i >= 34);
        assert_int_equal(e->adapted[i], i < 34);
    }
    train_dataset_free(&d);
    model_close(m);
}

/* Nothing to learn from: skipped with the reason; the good ones beside them are all that counts. */
static void test_nothing_to_learn(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    train_dataset d = {0}, good = {0};
    train_dataset_options o = plain;
    pf_err err = {0};
    const chat_message empty[] = {said(ROLE_USER, "Hello?"), said(ROLE_ASSISTANT, "")};
    const chat_message alone[] = {said(ROLE_USER, "Hello?")};
    const chat_message fine[] = {said(ROLE_USER, "Hello?"), said(ROLE_ASSISTANT, "Hi.")};
    char *big = xcalloc(2000, 1);
    memset(big, 'a', 1999);
    const chat_message cut[] = {said(ROLE_USER, "Hello?"), said(ROLE_ASSISTANT, big)};
    o.max_tokens = 256;
    for (int i = 0; i < 3; i++) {
        add(&d, m, empty, 2, &o);
        add(&d, m, alone, 1, &o);
        add(&d, m, cut, 2, &o);
    }
    assert_int_equal(d.n, 0);
    assert_int_equal(d.n_skipped, 9);
    for (size_t i = 0; i < 9; i++)
        assert_true(strlen(d.skipped[i].reason) > 10);
    const train_job_options job = {.epochs = 1, .batch = 1, .optimizer = optimizer_defaults(1e-3)};
    assert_int_equal(train_job_check(&d, 0, &job, &err), PF_USAGE);
    assert_text(err.text, "at least 4");
    for (int i = 0; i < 4; i++) {
        add(&d, m, fine, 2, &o);
        add(&good, m, fine, 2, &o);
    }
    assert_int_equal(train_job_check(&d, 0, &job, &err), PF_OK);
    assert_int_equal(train_dataset_targets(&d, false), train_dataset_targets(&good, false));
    /* an empty answer within a good conversation is no target either */
    const chat_message mixed[] = {said(ROLE_USER, "Hello?"), said(ROLE_ASSISTANT, ""),
                                  said(ROLE_USER, "Hello?"), said(ROLE_ASSISTANT, "Hi.")};
    train_dataset_cut(&d, 0);
    add(&d, m, mixed, 4, &o);
    assert_int_equal(d.items[0].n_targets, good.items[0].n_targets);
    train_dataset_free(&d);
    train_dataset_free(&good);
    free(big);
    model_close(m);
}

/* Files as programs of Windows write them: a mark in front, line ends of two characters. */
static void test_files_of_windows(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    train_dataset d = {0};
    pf_err err = {0};
#define LINE                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"},"                                   \
    "{\"role\":\"assistant\",\"content\":\"Hi.\"}]}\r\n"
    static const char marked[] = "\xEF\xBB\xBF" LINE LINE "\r\n" LINE;
    static const char utf16[] = "\xFF\xFE{\0\"\0m\0";
#undef LINE
    assert_int_equal(
        train_dataset_add_jsonl(&d, m, marked, sizeof marked - 1, "a.jsonl", &plain, &err), PF_OK);
    assert_int_equal(d.n, 3);
    assert_int_equal(train_dataset_add_jsonl(&d, m, utf16, sizeof utf16, "b.jsonl", &plain, &err),
                     PF_REFUSED);
    assert_text(err.text, "b.jsonl, line 1 is UTF-16 text; save it as UTF-8");
    assert_int_equal(d.n, 3);
    train_dataset_free(&d);
    model_close(m);
}

/* --- long conversations ----------------------------------------------------------------------- */

/* Whole turns leave, the system text stays in every part, every answer that fits is learned once.
 */
static void test_long_conversations(void **state)
{
    (void)state;
    enum { TURNS = 8 };
    model *m = fixture_model(TINY_MODEL);
    train_dataset d = {0}, whole = {0};
    train_dataset_options o = plain;
    char texts[2 * TURNS][200];
    chat_message messages[1 + 2 * TURNS];
    messages[0] = said(ROLE_SYSTEM, "Be brief, be clear.");
    for (int i = 0; i < 2 * TURNS; i++) {
        snprintf(texts[i], sizeof texts[i], "This is message number %d, which says nothing new.",
                 i);
        messages[1 + i] = said(i % 2 ? ROLE_ASSISTANT : ROLE_USER, texts[i]);
    }
    o.max_tokens = 1 << 16;
    add(&whole, m, messages, 1 + 2 * TURNS, &o);
    assert_int_equal(whole.n, 1);
    o.max_tokens = (size_t)whole.items[0].length / 4;
    add(&d, m, messages, 1 + 2 * TURNS, &o);
    assert_true(d.n >= 4);
    assert_int_equal(d.n_cut, 1);
    assert_int_equal(d.n_skipped, 0);
    assert_int_equal(train_dataset_targets(&d, false), whole.items[0].n_targets);
    for (size_t i = 0; i < d.n; i++) {
        assert_true((size_t)d.items[i].length <= o.max_tokens);
        assert_memory_equal(d.items[i].ids, whole.items[0].ids, 8 * sizeof(int32_t)); /* system */
        for (int32_t k = 0; k < d.items[i].length; k++)
            assert_int_equal(d.items[i].adapted[k] + d.items[i].target[k], 1);
    }
    train_dataset_cut(&d, 0);
    /* a question and an answer that are too long on their own: told, the others stay */
    char *big = xcalloc(4000, 1);
    memset(big, 'a', 3999);
    messages[5] = said(ROLE_USER, big);
    messages[12] = said(ROLE_ASSISTANT, big);
    add(&d, m, messages, 1 + 2 * TURNS, &o);
    assert_int_equal(d.n_skipped, 2);
    int32_t one = whole.items[0].n_targets / TURNS;
    size_t learned = train_dataset_targets(&d, false);
    assert_true(learned >= (size_t)(one - 3) * (TURNS - 2));
    assert_true(learned <= (size_t)(one + 3) * (TURNS - 2));
    train_dataset_free(&d);
    train_dataset_free(&whole);
    free(big);
    model_close(m);
}

/* Markers within texts stay text: no turn begins or ends there. */
static void test_markers_in_texts(void **state)
{
    (void)state;
    model *m = fixture_model(QWEN);
    const tokenizer *t = model_get_tokenizer(m);
    const chat_template *ct = NULL;
    train_dataset d = {0};
    pf_err err = {0};
    const char *quote = "What do <|im_end|> and <|im_start|>assistant mean?";
    const chat_message messages[] = {said(ROLE_USER, quote), said(ROLE_ASSISTANT, "Turns."),
                                     said(ROLE_USER, "Thanks"), said(ROLE_ASSISTANT, "Sure.")};
    add(&d, m, messages, 4, &plain);
    assert_int_equal(d.n, 1);
    /* the same ids as the chat renders */
    assert_int_equal(model_template(m, &ct, &err), PF_OK);
    conversation_prompt p = {0};
    const conversation_options chat = {.policy = POSITIONS_TURNS};
    assert_int_equal(conversation_render(ct, t, messages, 4, &chat, &p, &err), PF_OK);
    assert_memory_equal(d.items[0].ids, p.ids.ids, (size_t)d.items[0].length * sizeof(int32_t));
    size_t answers = 0;
    for (size_t i = 0; i < p.ids.len; i++)
        answers += p.parts[i] == PART_END;
    assert_int_equal(answers, 2);
    conversation_prompt_free(&p);
    train_dataset_free(&d);
    model_close(m);
}

/* --- from the store --------------------------------------------------------------------------- */

static store_fixture f;
static session *mira;

static int open_store(void **state)
{
    (void)state;
    fixture_open(&f);
    mira = fixture_user(&f, "mira", "correct horse");
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    session_unref(mira);
    fixture_close(&f);
    return 0;
}

/* A chat as the interface saves it. Number chooses its form. */
static int64_t save_chat(int64_t profile, int number)
{
    int64_t id = 0;
    char text[100];
    assert_ok(&f, conversation_create(mira, profile, "Chat", &id, &f.err));
    if (number % 4 == 1) fixture_message(mira, id, HISTORY_SYSTEM, "An imported system text.");
    for (int turn = 0; turn < 1 + number % 3; turn++) {
        snprintf(text, sizeof text, "Question %d of chat %d \xf0\x9f\x8c\xb3  ", turn, number);
        fixture_message(mira, id, HISTORY_USER, text);
        if (number % 5 == 2) fixture_message(mira, id, HISTORY_USER, "And another thing.");
        snprintf(text, sizeof text, " Answer %d.\n", turn);
        fixture_message(mira, id, HISTORY_ASSISTANT, text);
    }
    return id;
}

/* The messages that the chat sends for what is saved, up to message `end`: the profile's system
 * text, none that is stored, messages of the person in a row as one (ui/chat.c). */
static size_t as_sent(const conversation *c, const char *system, size_t end, chat_message *out,
                      char texts[][300])
{
    size_t n = 0;
    if (system) out[n++] = said(ROLE_SYSTEM, system);
    for (size_t i = 0; i < end; i++) {
        const history_message *m = &c->messages[i];
        if (m->role == HISTORY_SYSTEM) continue;
        if (m->role == HISTORY_USER && n > 0 && out[n - 1].role == ROLE_USER) {
            snprintf(texts[i], sizeof texts[i], "%s\n\n%s", out[n - 1].text, m->text);
            out[n - 1] = said(ROLE_USER, texts[i]);
            continue;
        }
        out[n++] = said(m->role == HISTORY_USER ? ROLE_USER : ROLE_ASSISTANT, m->text);
    }
    return n;
}

/* Up to every answer the example has the ids and marks of the prompt that the chat had sent. */
static void test_as_in_chat(void **state)
{
    (void)state;
    enum { CHATS = 20 };
    static const char *const systems[] = {NULL, "Answer as a pirate would."};
    model *m = fixture_model(TINY_MODEL);
    const chat_template *ct = NULL;
    assert_ok(&f, model_template(m, &ct, &f.err));
    for (int with = 0; with < 2; with++) {
        int64_t profile = 0, chats[CHATS];
        train_dataset d = {0};
        lessons_seen seen = {0};
        assert_ok(&f, profile_create(mira, with ? "pirate" : "plain",
                                     with ? "{\"system\":\"Answer as a pirate would.\"}" : NULL,
                                     &profile, &f.err));
        for (int i = 0; i < CHATS; i++)
            chats[i] = save_chat(profile, i);
        const train_request r = {.profile = profile};
        assert_ok(&f, gather_examples(mira, m, &r, &d, NULL, &seen, &f.err));
        assert_int_equal(d.n, CHATS);
        for (int i = 0; i < CHATS; i++) {
            conversation c = {0};
            chat_message messages[20];
            char texts[20][300];
            assert_ok(&f, conversation_load(mira, chats[i], &c, &f.err));
            for (size_t k = 0; k < c.n; k++) {
                if (c.messages[k].role != HISTORY_ASSISTANT) continue;
                conversation_prompt p = {0};
                const conversation_options o = {.policy = POSITIONS_TURNS, .generation = true};
                size_t n = as_sent(&c, systems[with], k, messages, texts);
                assert_ok(&f, conversation_render(ct, model_get_tokenizer(m), messages, n, &o, &p,
                                                  &f.err));
                assert_true((size_t)d.items[i].length > p.ids.len);
                assert_memory_equal(d.items[i].ids, p.ids.ids, p.ids.len * sizeof(int32_t));
                assert_memory_equal(d.items[i].adapted, p.marks, p.ids.len);
                assert_int_equal(d.items[i].target[p.ids.len], 1);
                conversation_prompt_free(&p);
            }
            conversation_free(&c);
        }
        lessons_seen_free(&seen);
        train_dataset_free(&d);
    }
    model_close(m);
}

/* What is chosen, rated and rewritten; what was deleted is used no more. */
static void test_choice(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    int64_t profile = 0, chats[5];
    assert_ok(&f, profile_create(mira, "chosen", NULL, &profile, &f.err));
    for (int i = 0; i < 5; i++)
        chats[i] = save_chat(profile, 0);
    conversation c = {0};
    for (int i = 0; i < 3; i++) { /* good, bad, rewritten */
        assert_ok(&f, conversation_load(mira, chats[i], &c, &f.err));
        assert_ok(&f, message_rate(mira, chats[i], c.messages[1].id,
                                   i == 0   ? 1
                                   : i == 1 ? -1
                                            : 0,
                                   i == 2 ? "A better answer." : NULL, &f.err));
        conversation_free(&c);
    }
    const struct {
        learn_from from;
        size_t chosen, n;
    } cases[] = {{LEARN_ALL, 0, 4}, {LEARN_GOOD, 0, 2}, {LEARN_REWRITES, 0, 1},
                 {LEARN_ALL, 2, 1}, {LEARN_ALL, 5, 4},  {LEARN_REWRITES, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train_dataset d = {0};
        lessons_seen seen = {0};
        gathered_list used = {0};
        const train_request r = {.profile = profile,
                                 .from = cases[i].from,
                                 .conversations = chats,
                                 .n_conversations = cases[i].chosen};
        assert_ok(&f, gather_examples(mira, m, &r, &d, &used, &seen, &f.err));
        assert_int_equal(d.n, cases[i].n);
        assert_int_equal(used.n, cases[i].n);
        for (size_t k = 0; k < d.n; k++)
            assert_int_equal(d.items[k].repeat,
                             strcmp(d.items[k].answer, "A better answer.") == 0 ? 2 : 1);
        gathered_list_free(&used);
        lessons_seen_free(&seen);
        train_dataset_free(&d);
    }
    assert_ok(&f, conversation_remove(mira, chats[0], &f.err));
    train_dataset d = {0};
    lessons_seen seen = {0};
    const train_request r = {.profile = profile};
    assert_ok(&f, gather_examples(mira, m, &r, &d, NULL, &seen, &f.err));
    assert_int_equal(d.n, 3);
    lessons_seen_free(&seen);
    train_dataset_free(&d);
    model_close(m);
}

static void check_counts(int64_t profile, size_t all, size_t good, size_t rewrites)
{
    size_t answers[LEARN_REWRITES + 1];
    assert_ok(&f, train_live_count(mira, profile, answers, &f.err));
    assert_int_equal(answers[LEARN_ALL], all);
    assert_int_equal(answers[LEARN_GOOD], good);
    assert_int_equal(answers[LEARN_REWRITES], rewrites);
}

/* A better, a bad and a good answer; another answer was asked for beside the last two. */
static void test_counts(void **state)
{
    (void)state;
    static const int ratings[] = {0, -1, 1};
    int64_t profile = 0;
    assert_ok(&f, profile_create(mira, "counted", NULL, &profile, &f.err));
    check_counts(profile, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        conversation c = {0};
        int64_t chat = save_chat(profile, 0);
        assert_ok(&f, conversation_load(mira, chat, &c, &f.err));
        assert_ok(&f, message_rate(mira, chat, c.messages[1].id, ratings[i],
                                   i == 0 ? "Better." : NULL, &f.err));
        const history_message beside = {.parent = c.messages[0].id,
                                        .role = HISTORY_ASSISTANT,
                                        .text = (char[]){"Again."},
                                        .len = 6};
        if (i) assert_ok(&f, message_append(mira, chat, &beside, NULL, &f.err));
        conversation_free(&c);
    }
    check_counts(profile, 4, 2, 1); /* the better one, both new ones, the good one left behind */
    check_counts(0, 4, 2, 1);
}

/* The id of a conversation's message on its current branch. */
static int64_t message_of(int64_t chat, size_t at)
{
    conversation c = {0};
    assert_ok(&f, conversation_load(mira, chat, &c, &f.err));
    int64_t id = c.messages[at].id;
    conversation_free(&c);
    return id;
}

static void rate(int64_t chat, size_t at, int rating, const char *rewritten)
{
    /* the last word counts: it is not of the same millisecond as the one before */
    for (int64_t now = clock_unix_ms(); clock_unix_ms() == now;)
        ;
    assert_ok(&f, message_rate(mira, chat, message_of(chat, at), rating, rewritten, &f.err));
}

static int64_t copy_chat(int64_t chat, size_t last, int64_t profile)
{
    int64_t copy = 0;
    assert_ok(&f, conversation_copy(mira, chat, message_of(chat, 0), message_of(chat, last),
                                    profile, &copy, &f.err));
    return copy;
}

/* What a profile learns from all (0: of all profiles), and from what conversations; the counts say
 * the same. */
typedef struct {
    size_t answers, better; /* targets; examples with a rewritten answer */
    size_t used, looked_at;
} learned_of;

static learned_of learn(model *m, int64_t profile)
{
    learned_of out = {0};
    train_dataset d = {0};
    lessons_seen seen = {0};
    gathered_list used = {0};
    size_t counted[LEARN_REWRITES + 1];
    int32_t end = model_get_config(m)->stop_ids[0];
    const train_request r = {.profile = profile};
    assert_ok(&f, gather_examples(mira, m, &r, &d, &used, &seen, &f.err));
    for (size_t i = 0; i < d.n; i++) {
        out.better += d.items[i].repeat == 2;
        for (int32_t k = 0; k < d.items[i].length; k++)
            out.answers += d.items[i].target[k] && d.items[i].ids[k] == end;
    }
    out.used = used.n;
    out.looked_at = seen.n_conversations;
    assert_ok(&f, train_live_count(mira, profile, counted, &f.err));
    assert_int_equal(out.answers, counted[LEARN_ALL]);
    gathered_list_free(&used);
    lessons_seen_free(&seen);
    train_dataset_free(&d);
    return out;
}

static void expect_learned(model *m, int64_t profile, size_t answers, size_t better, size_t used,
                           size_t looked_at)
{
    const learned_of l = learn(m, profile);
    assert_int_equal(l.answers, answers);
    assert_int_equal(l.better, better);
    assert_int_equal(l.used, used);
    assert_int_equal(l.looked_at, looked_at);
}

/* Copies of a message are one message: learned once, with the last word about any of them, until
 * the others are gone. */
static void test_copies(void **state)
{
    (void)state;
    model *m = fixture_model(TINY_MODEL);
    int64_t profile = 0, other = 0;
    assert_ok(&f, profile_create(mira, "copied", NULL, &profile, &f.err));
    assert_ok(&f, profile_create(mira, "beside", NULL, &other, &f.err));
    int64_t chat = save_chat(profile, 8); /* three questions and answers */
    expect_learned(m, 0, 3, 0, 1, 1);
    int64_t copy = copy_chat(chat, 3, other), third = copy_chat(copy, 3, other);
    expect_learned(m, 0, 3, 0, 1, 1);
    expect_learned(m, other, 2, 0, 1, 1);
    /* the copy goes on: what is new counts, what it follows doesn't */
    fixture_message(mira, copy, HISTORY_USER, "And beside it?");
    fixture_message(mira, copy, HISTORY_ASSISTANT, "Something else.");
    expect_learned(m, 0, 4, 0, 2, 2);
    expect_learned(m, profile, 3, 0, 1, 1);
    /* bad on one side is bad on all, until the next word on any side; the other sides are older
     * then and come first */
    rate(chat, 1, -1, NULL);
    expect_learned(m, 0, 3, 0, 3, 3);
    expect_learned(m, other, 2, 0, 2, 2);
    rate(third, 1, 1, NULL);
    expect_learned(m, 0, 4, 0, 2, 2);
    rate(copy, 3, -1, NULL);
    expect_learned(m, profile, 2, 0, 1, 1);
    rate(copy, 3, 0, NULL);
    expect_learned(m, profile, 3, 0, 1, 1);
    /* a better answer stands for all, and its conversation is one of those learned from; each side
     * may have its own */
    rate(copy, 1, 0, "A better answer.");
    expect_learned(m, 0, 4, 1, 2, 2);
    expect_learned(m, profile, 3, 1, 2, 1);
    rate(chat, 1, 0, "Better still.");
    expect_learned(m, 0, 5, 2, 3, 3);
    rate(chat, 1, 0, "");
    rate(copy, 1, 0, "");
    expect_learned(m, 0, 4, 0, 3, 3);
    /* a message, and then the conversation it was in, are deleted: a copy counts */
    rate(chat, 1, -1, NULL);
    int64_t late = copy_chat(chat, 1, other);
    assert_ok(&f, message_remove(mira, chat, message_of(chat, 3), REMOVE_ALONE, &f.err));
    expect_learned(m, 0, 3, 0, 3, 3);
    assert_ok(&f, conversation_remove(mira, chat, &f.err));
    expect_learned(m, 0, 2, 0, 2, 2); /* the late copy has kept the bad rating */
    assert_ok(&f, conversation_remove(mira, late, &f.err));
    expect_learned(m, 0, 3, 0, 2, 2);
    model_close(m);
}

/* Checkpoints hold the text of what is learned: they go with it. */
static void test_checkpoints_go_with_it(void **state)
{
    (void)state;
    int64_t profile = 0, other = 0, first, second;
    char note[80];
    checkpoint_list list;
    assert_ok(&f, profile_create(mira, "unfinished", NULL, &profile, &f.err));
    assert_ok(&f, profile_create(mira, "elsewhere", NULL, &other, &f.err));
    first = save_chat(profile, 0);
    second = save_chat(profile, 0);
    snprintf(note, sizeof note, "{\"conversations\":[%lld,%lld]}", (long long)first,
             (long long)second);
    assert_ok(&f, checkpoint_save(mira, profile, 1, note, "state", 5, 2, &f.err));
    snprintf(note, sizeof note, "{\"conversations\":[%lld]}", (long long)second);
    assert_ok(&f, checkpoint_save(mira, profile, 2, note, "state", 5, 2, &f.err));
    assert_ok(&f, checkpoint_save(mira, other, 3, note, "state", 5, 2, &f.err));
    assert_ok(&f, conversation_remove(mira, first, &f.err));
    assert_ok(&f, checkpoint_list_load(mira, profile, &list, &f.err));
    assert_int_equal(list.n, 1);
    assert_int_equal(list.items[0].step, 2);
    checkpoint_list_free(&list);
    /* a deleted message counts like a deleted conversation, in every profile */
    conversation c = {0};
    assert_ok(&f, conversation_load(mira, second, &c, &f.err));
    assert_ok(&f, message_remove(mira, second, c.messages[1].id, REMOVE_ALONE, &f.err));
    conversation_free(&c);
    for (int i = 0; i < 2; i++) {
        assert_ok(&f, checkpoint_list_load(mira, i ? other : profile, &list, &f.err));
        assert_int_equal(list.n, 0);
        checkpoint_list_free(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_targets),
        cmocka_unit_test(test_nothing_to_learn),
        cmocka_unit_test(test_files_of_windows),
        cmocka_unit_test(test_long_conversations),
        cmocka_unit_test(test_markers_in_texts),
        cmocka_unit_test_setup_teardown(test_as_in_chat, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_choice, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_counts, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_copies, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_checkpoints_go_with_it, open_store, close_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
