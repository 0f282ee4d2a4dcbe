/* What the line-by-line commands read: bytes, ids, messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "commands/jsonl.h"
#include "support/tokenizer_json.h"

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    pf_err err = {0};
    if (json_parse(text, strlen(text), "test", &json, &err) != PF_OK) fail_msg("%s", err.text);
    return json;
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *json, *bytes; /* bytes NULL: refused */
        size_t len;
    } cases[] = {
        {"{\"text\": \"a\\u0000b\"}", "a\0b", 3},
        {"{\"b64\": \"/wBB\"}", "\xFF\0A", 3},
        {"{\"b64\": \"\"}", "", 0},
        {"{\"text\": \"\"}", "", 0},
        {"{\"b64\": \"/wB\"}", NULL, 0},
        {"{\"b64\": \"!!!!\"}", NULL, 0},
        {"{\"text\": 5}", NULL, 0},
        {"{}", NULL, 0},
        {"{\"text\": \"a\", \"b64\": \"\"}", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json = parse(cases[i].json);
        buf out = {0};
        pf_status status = json_get_bytes(json, &out, NULL);
        assert_int_equal(status, cases[i].bytes ? PF_OK : PF_REFUSED);
        if (cases[i].bytes) {
            assert_int_equal(out.len, cases[i].len);
            assert_memory_equal(buf_str(&out), cases[i].bytes, out.len);
        }
        buf_free(&out);
        json_decref(json);
    }
}

static void test_ids(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message; /* message NULL: read */
    } cases[] = {
        {"[0, 5, 9]", NULL},    {"[]", NULL},
        {"[0, 10]", "ids[1]"},  {"[-1]", "ids[0]"},
        {"[1, 2.0]", "ids[1]"}, {"[\"1\"]", "ids[0]"},
        {"{}", "no array"},     {"[9223372036854775807]", "ids[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json = parse(cases[i].json);
        id_list ids = {0};
        pf_err err = {0};
        pf_status status = json_read_ids(json, 10, &ids, &err);
        assert_int_equal(status, cases[i].message ? PF_REFUSED : PF_OK);
        if (cases[i].message) assert_non_null(strstr(err.text, cases[i].message));
        if (!cases[i].message) assert_int_equal(ids.len, json_array_size(json));
        id_list_free(&ids);
        json_decref(json);
    }
}

static void test_messages(void **state)
{
    (void)state;
    tokenizer *t = tokenizer_of_model("tiny-llama");
    json_t *json = parse("[{\"role\": \"system\", \"content\": \"\"},"
                         " {\"role\": \"user\", \"content\": \"Hi\"},"
                         " {\"role\": \"assistant\", \"content\": \"x\", \"ids\": [5, 6]},"
                         " {\"role\": \"assistant\", \"content\": \"\", \"ids\": []}]");
    message_list list = {0};
    assert_int_equal(messages_read(json, t, &list, NULL), PF_OK);
    assert_int_equal(list.n, 4);
    assert_int_equal(list.items[1].role, ROLE_USER);
    assert_int_equal(list.items[1].len, 2);
    assert_null(list.items[1].ids);
    assert_int_equal(list.items[2].n_ids, 2);
    assert_int_equal(list.items[2].ids[1], 6);
    assert_non_null(list.items[3].ids);
    assert_int_equal(list.items[3].n_ids, 0);
    messages_free(&list);
    json_decref(json);

    static const char *const bad[] = {
        "{\"role\": \"tool\", \"content\": \"x\"}",
        "{\"content\": \"x\"}",
        "{\"role\": 1, \"content\": \"x\"}",
        "{\"role\": \"user\"}",
        "{\"role\": \"user\", \"content\": null}",
        "{\"role\": \"user\", \"content\": \"x\", \"ids\": [1]}",
        "{\"role\": \"assistant\", \"content\": \"x\", \"ids\": [590]}",
        "5",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf text = {0};
        pf_err err = {0};
        buf_printf(&text, "[{\"role\": \"user\", \"content\": \"a\"}, %s]", bad[i]);
        json = parse(text.data);
        assert_int_equal(messages_read(json, t, &list, &err), PF_REFUSED);
        assert_non_null(strstr(err.text, "message 1"));
        messages_free(&list);
        json_decref(json);
        buf_free(&text);
    }
    tokenizer_free(t);
}

static void test_answers(void **state)
{
    (void)state;
    buf out = {0};
    json_t *answer = json_object();
    json_object_set_new(answer, "text", json_text("a\xFF\0", 3));
    json_object_set_new(answer, "b64", json_base64("a\xFF\0", 3));
    json_object_set_new(answer, "ids", json_ids((int32_t[]){3, 1}, 2));
    json_append(&out, answer);
    assert_string_equal(buf_str(&out),
                        "{\"text\":\"a\uFFFD\\u0000\",\"b64\":\"Yf8A\",\"ids\":[3,1]}");
    json_decref(answer);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
