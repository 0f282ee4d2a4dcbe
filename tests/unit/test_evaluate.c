/* Measuring: formats of data sets, intervals, answers in a batch, losses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/conversation.h"
#include "profiles/adapter_file.h"
#include "support/engine_fixture.h"
#include "train/eval/eval_format.h"
#include "train/eval/evaluate.h"
#include "train/eval/reward.h"

#define DATA    "tests/data/eval/"
#define ADAPTER "tests/data/adapters/tiny-llama/lora-all7"

/* --- formats -------------------------------------------------------------------------------- */

static json_t *read_file(eval_format format, const char *path, size_t *left_out)
{
    buf data = {0};
    json_t *items = NULL;
    pf_err err = {0};
    pf_status status = file_read(path, 1 << 20, &data, &err);
    if (status == PF_OK)
        status = eval_format_read(format, buf_str(&data), data.len, path, &items, left_out, &err);
    if (status != PF_OK) fail_msg("%s: %s", path, err.text);
    buf_free(&data);
    return items;
}

/* An answer to an item by the format's own rules. */
static double score(eval_format format, const json_t *items, size_t i, const char *answer)
{
    json_t *check = eval_format_check(format);
    reward *r = NULL;
    pf_err err = {0};
    if (reward_read(check, "check", &r, &err) != PF_OK) fail_msg("%s", err.text);
    const json_t *item = json_array_get(items, i);
    if (reward_check_item(r, item, &err) != PF_OK) fail_msg("%s", err.text);
    double value = reward_score(r, item, answer, strlen(answer), NULL).score;
    reward_free(r);
    json_decref(check);
    return value;
}

static const char *prompt_of(const json_t *items, size_t i)
{
    const json_t *messages = json_object_get(json_array_get(items, i), "messages");
    return json_string_value(json_object_get(json_array_get(messages, 0), "content"));
}

typedef struct {
    eval_format format;
    const char *file;
    size_t n, left_out, item;
    const char *in_prompt, *right, *wrong;
} format_case;

static void test_formats(void **state)
{
    (void)state;
    static const format_case cases[] = {
        {EVAL_GSM8K, "gsm8k.jsonl", 2, 0, 0, "12 jars", "36 - 4\n32", "36"},
        {EVAL_GSM8K, "gsm8k.jsonl", 2, 0, 1, "barn", "$1234.", "134"},
        {EVAL_MATH, "math.jsonl", 2, 0, 0, "boxed", "\\boxed{\\dfrac12}", "\\boxed{\\frac14}"},
        {EVAL_MATH, "math.jsonl", 2, 0, 1, "x^2", "$x=\\boxed{x=3}$", "3"},
        {EVAL_HUMANEVAL, "humaneval.jsonl", 1, 0, 0, "def twice", "    return n + n\n",
         "    return n\n"},
        {EVAL_HUMANEVAL, "humaneval.jsonl", 1, 0, 0, "twice(4)",
         "Here:\n```python\ndef twice(n):\n    return 2 * n\n```\n",
         "```python\ndef thrice(n):\n    return 3 * n\n```"},
        {EVAL_MBPP, "mbpp.jsonl", 1, 0, 0, "assert add(1, 2) == 3", "def add(a, b): return a + b",
         "def add(a, b): return a - b"},
        {EVAL_MBPP, "mbpp-sanitized.json", 1, 0, 0, "square root",
         "```python\ndef root(x):\n    return x ** 0.5\n```", "import nothing_at_all"},
        {EVAL_IFEVAL, "ifeval.jsonl", 2, 1, 0, "two seas", "North Sea and Red Sea", "No, two"},
        {EVAL_IFEVAL, "ifeval.jsonl", 2, 1, 1, "German", "kleine worte", "Kleine Worte"},
        {EVAL_MMLU, "mmlu.jsonl", 2, 0, 0, "C. 7", "C. 7", "D"},
        {EVAL_MMLU, "mmlu.jsonl", 2, 0, 1, "B. Jupiter", "The answer is B.", "A"},
        {EVAL_MMLU, "mmlu.csv", 2, 0, 0, "prime", "C", "B"},
        {EVAL_MMLU, "mmlu.csv", 2, 0, 1, "\"red\", in\nFrench?\nA. bleu\nB. rouge\nC. vert, clair",
         "(B) rouge", "(A)"},
        {EVAL_LONGBENCH_WRITE, "longbench-write.jsonl", 1, 0, 0, "lighthouse", NULL, "short"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const format_case *c = &cases[i];
        char path[100];
        size_t left_out = 99;
        snprintf(path, sizeof path, DATA "%s", c->file);
        json_t *items = read_file(c->format, path, &left_out);
        assert_int_equal(json_array_size(items), c->n);
        assert_int_equal(left_out, c->left_out);
        if (!strstr(prompt_of(items, c->item), c->in_prompt))
            fail_msg("%s: \"%s\" lacks \"%s\"", path, prompt_of(items, c->item), c->in_prompt);
        if (c->right && score(c->format, items, c->item, c->right) != 1)
            fail_msg("%s, item %zu: \"%s\" is not right", path, c->item, c->right);
        if (score(c->format, items, c->item, c->wrong) != 0)
            fail_msg("%s, item %zu: \"%s\" is right", path, c->item, c->wrong);
        json_decref(items);
    }
}

static void test_chat_format(void **state)
{
    (void)state;
    size_t left_out = 0;
    json_t *items = read_file(EVAL_CHAT, DATA "chat.jsonl", &left_out);
    assert_int_equal(json_array_size(items), 4);
    assert_string_equal(prompt_of(items, 3), "four");
    assert_null(eval_format_check(EVAL_CHAT));
    json_decref(items);
    /* A list is read as lines are. */
    static const char list[] = " [{\"prompt\":\"a\"},\n{\"turns\":[\"b\"]}] ";
    assert_int_equal(eval_format_read(EVAL_CHAT, list, strlen(list), "x", &items, &left_out, NULL),
                     PF_OK);
    assert_int_equal(json_array_size(items), 2);
    json_decref(items);
}

static void test_formats_refused(void **state)
{
    (void)state;
    static const struct {
        eval_format format;
        const char *data, *says;
    } cases[] = {
        {EVAL_CHAT, "", "nothing to measure"},
        {EVAL_CHAT, "\n\n{\"prompt\":", "line 3"},
        {EVAL_CHAT, "5", "line 1: it is no JSON object"},
        {EVAL_CHAT, "[1]", "entry 0"},
        {EVAL_CHAT, "{}", "\"messages\", \"turns\" and \"prompt\""},
        {EVAL_CHAT, "{\"prompt\":\"a\",\"turns\":[\"b\"]}", "one of"},
        {EVAL_CHAT, "{\"prompt\":5}", "\"prompt\""},
        {EVAL_CHAT, "{\"messages\":[]}", "at least one"},
        {EVAL_CHAT, "{\"messages\":[{\"role\":\"tool\",\"content\":\"\"}]}", "messages[0]"},
        {EVAL_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0]"},
        {EVAL_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", "nothing is asked"},
        {EVAL_CHAT, "{\"turns\":[]}", "at least one"},
        {EVAL_CHAT, "{\"turns\":[\"a\",2]}", "turns[1]"},
        {EVAL_GSM8K, "{\"question\":\"q\"}", "\"answer\" is missing"},
        {EVAL_GSM8K, "{\"question\":\"q\",\"answer\":\"5\"}", "####"},
        {EVAL_GSM8K, "{\"question\":\"q\",\"answer\":\"#### many\"}", "####"},
        {EVAL_MATH, "{\"problem\":\"p\",\"solution\":\"5\"}", "boxed"},
        {EVAL_HUMANEVAL, "{\"prompt\":\"p\",\"test\":\"t\"}", "\"entry_point\" is missing"},
        {EVAL_MBPP, "{\"text\":\"t\"}", "\"test_list\""},
        {EVAL_MBPP, "{\"text\":\"t\",\"test_list\":[]}", "\"test_list\""},
        {EVAL_MBPP, "{\"text\":\"t\",\"test_list\":[5]}", "test_list[0]"},
        {EVAL_IFEVAL, "{\"prompt\":\"p\",\"instruction_id_list\":[\"a\"],\"kwargs\":[]}",
         "one length"},
        {EVAL_MMLU, "{\"question\":\"q\",\"choices\":[\"a\"],\"answer\":0}", "2 to 26"},
        {EVAL_MMLU, "{\"question\":\"q\",\"choices\":[\"a\",\"b\"],\"answer\":2}", "none of the 2"},
        {EVAL_MMLU, "{\"question\":\"q\",\"choices\":[\"a\",\"b\"],\"answer\":\"c\"}", "none of"},
        {EVAL_MMLU, "{\"question\":\"q\",\"choices\":[\"a\",5],\"answer\":0}", "choices[1]"},
        {EVAL_MMLU, "one,two\n", "record 1"},
        {EVAL_MMLU, "q,a,b,B\n\"open,a,b,A\n", "record 2: a quote does not close"},
        {EVAL_MMLU, "q,a,b,E\n", "none of the 2"},
        {EVAL_MMLU, "q\xff,a,b,A\n", "UTF-8"},
        {EVAL_LONGBENCH_WRITE, "{\"prompt\":\"p\"}", "\"length\" is missing"},
        {EVAL_LONGBENCH_WRITE, "{\"prompt\":\"p\",\"length\":-1}", "\"length\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *items = NULL;
        size_t left_out;
        pf_err err = {0};
        pf_status status = eval_format_read(cases[i].format, cases[i].data, strlen(cases[i].data),
                                            "data", &items, &left_out, &err);
        if (status != PF_REFUSED || !strstr(err.text, cases[i].says) || !strstr(err.text, "data"))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].data, err.text, cases[i].says);
    }
}

/* --- intervals ------------------------------------------------------------------------------ */

static void test_wilson(void **state)
{
    (void)state;
    /* Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29. */
    static const struct {
        size_t k, n;
        double low, high;
    } cases[] = {{81, 263, 0.2553, 0.3662},
                 {15, 148, 0.0624, 0.1605},
                 {0, 20, 0.0000, 0.1611},
                 {1, 29, 0.0061, 0.1718}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        eval_interval got = evaluate_wilson((double)cases[i].k / (double)cases[i].n, cases[i].n);
        assert_true(fabs(got.low - cases[i].low) < 6e-5);
        assert_true(fabs(got.high - cases[i].high) < 6e-5);
    }
    eval_interval none = evaluate_wilson(0, 0);
    assert_true(none.low == 0 && none.high == 1);
}

/* --- answers and losses --------------------------------------------------------------------- */

typedef struct {
    model *m;
    engine *e;
    adapter_id adapter;
    buf blob;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const engine_options options = {.threads = 2, .context = 256};
    const adapter_source pinned = {0};
    pf_err err = {0};
    f->m = fixture_model(TINY_MODEL);
    f->e = fixture_engine(f->m, &options);
    if (adapter_file_import(ADAPTER, f->m, &(adapter_import_options){0}, &f->blob, NULL, &err) !=
            PF_OK ||
        engine_adapter_add(f->e, f->blob.data, f->blob.len, &pinned, &f->adapter, NULL, &err) !=
            PF_OK)
        fail_msg("%s", err.text);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    fixture_engine_close(f->e);
    fixture_model_close(f->m);
    buf_free(&f->blob);
    free(f);
    return 0;
}

static void ask(eval_talk *t, const char *text, adapter_id adapter)
{
    eval_talk_add(t, ROLE_USER, text, strlen(text));
    t->adapter = adapter;
}

static void answer(fixture *f, eval_talk *talks, size_t n, int max_tokens)
{
    const eval_settings settings = {.max_tokens = max_tokens, .positions = POSITIONS_TURNS};
    pf_err err = {0};
    if (evaluate_answers(f->e, talks, n, &settings, &err) != PF_OK) fail_msg("%s", err.text);
}

/* A batch answers as each talk alone; one that can't be answered does not stop the others. */
static void test_answers(void **state)
{
    fixture *f = *state;
    eval_talk together[4] = {0}, alone[3] = {0};
    json_t *turns = json_pack("[sss]", "one", "two", "three");
    char *long_text = calloc(1, 3000);
    memset(long_text, 'x', 2999);
    for (size_t i = 0; i < 3; i++) {
        ask(&together[i], i == 1 ? "hello" : "one", i == 2 ? f->adapter : 0);
        ask(&alone[i], i == 1 ? "hello" : "one", i == 2 ? f->adapter : 0);
    }
    together[0].turns = alone[0].turns = turns;
    ask(&together[3], long_text, 0);
    answer(f, together, 4, 8);
    for (size_t i = 0; i < 3; i++) {
        answer(f, &alone[i], 1, 8);
        assert_int_equal(together[i].n_answers, i == 0 ? 3 : 1);
        assert_int_equal(alone[i].n_answers, together[i].n_answers);
        for (size_t k = 0; k < alone[i].n_answers; k++) {
            const eval_answer *a = &alone[i].answers[k], *b = &together[i].answers[k];
            assert_int_equal(a->ids.len, b->ids.len);
            assert_memory_equal(a->ids.ids, b->ids.ids, a->ids.len * sizeof *a->ids.ids);
            assert_true(a->prompt_ids.len > 0);
        }
    }
    /* The later prompts hold the earlier answers. */
    assert_int_equal(together[0].n_messages, 5);
    assert_true(together[0].answers[1].prompt_ids.len > together[0].answers[0].prompt_ids.len);
    assert_int_equal(together[3].n_answers, 0);
    assert_int_equal(together[3].error.status, PF_REFUSED);
    for (size_t i = 0; i < 4; i++)
        eval_talk_free(&together[i]);
    for (size_t i = 0; i < 3; i++)
        eval_talk_free(&alone[i]);
    json_decref(turns);
    free(long_text);
}

static bool always(void *ctx)
{
    (void)ctx;
    return true;
}

static void test_cancelled(void **state)
{
    fixture *f = *state;
    eval_talk t = {0};
    ask(&t, "one", 0);
    const eval_settings settings = {.cancelled = always};
    assert_int_equal(evaluate_answers(f->e, &t, 1, &settings, NULL), PF_INTERRUPTED);
    eval_talk_free(&t);
}

/* The loss of generated answers is what the engine's own log-probabilities say. */
static void expect_engine_loss(fixture *f, adapter_id adapter)
{
    const char *const prompts[] = {"one", "hello there", "three"};
    eval_talk talks[3] = {0};
    train_dataset d = {0};
    double sum = 0;
    size_t n = 0;
    pf_err err = {0};
    engine_client *client = engine_client_open(f->e);
    for (size_t i = 0; i < 3; i++) {
        outcome o = {0};
        ask(&talks[i], prompts[i], adapter);
        engine_request request = {.messages = talks[i].messages,
                                  .n_messages = 1,
                                  .adapter = adapter,
                                  .positions = adapter ? POSITIONS_TURNS : POSITIONS_DEFAULT,
                                  .max_tokens = 12,
                                  .logprobs = 1,
                                  .tag = &o};
        fixture_submit(client, &request, &o);
        fixture_collect(client, &o, 1, 0);
        for (size_t k = 0; k < o.ids.len; k++, n++)
            sum -= (double)o.logprobs[k];
        outcome_free(&o);
    }
    engine_client_close(client);
    answer(f, talks, 3, 12);
    for (size_t i = 0; i < 3; i++)
        if (evaluate_add_answer(&d, f->m, &talks[i], adapter ? POSITIONS_TURNS : POSITIONS_NONE,
                                256, &err) != PF_OK)
            fail_msg("%s", err.text);
    eval_loss total = {0, 0}, each[3];
    assert_int_equal(d.n, 3);
    if (evaluate_loss(f->e, &d, adapter ? f->blob.data : NULL, f->blob.len, NULL, NULL, &total,
                      each, &err) != PF_OK)
        fail_msg("%s", err.text);
    assert_int_equal(total.n_targets, n);
    if (fabs(total.loss - sum / (double)n) > 0.02)
        fail_msg("loss %g, the engine's %g", total.loss, sum / (double)n);
    double again = 0;
    for (size_t i = 0; i < 3; i++)
        again += each[i].loss * (double)each[i].n_targets;
    assert_true(fabs(again / (double)n - total.loss) < 1e-6);
    assert_int_equal(evaluate_loss(f->e, &d, NULL, 0, always, NULL, &total, NULL, NULL),
                     PF_INTERRUPTED);
    for (size_t i = 0; i < 3; i++)
        eval_talk_free(&talks[i]);
    train_dataset_free(&d);
}

static void test_loss(void **state)
{
    fixture *f = *state;
    expect_engine_loss(f, 0);
    expect_engine_loss(f, f->adapter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_chat_format),
        cmocka_unit_test(test_formats_refused),
        cmocka_unit_test(test_wilson),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
