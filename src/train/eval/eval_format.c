#include "train/eval/eval_format.h"

#include "base/json.h"
#include "base/mem.h"
#include "models/template.h"
#include "train/eval/answer_value.h"
#include "train/eval/instructions.h"

#include <stdlib.h>
#include <string.h>

#define PYTHON_RULE                                                                                \
    "{\"rules\":[{\"type\":\"program\",\"argv\":[\"python3\",\"-I\",\"-\"],\"seconds\":10,"        \
    "\"megabytes\":1024}],\"max_new_tokens\":512}"

/* Makes an item of an entry of the file; *out stays NULL for one that can't be checked here. */
typedef pf_status (*converter)(const json_t *entry, json_t **out, pf_err *err);

typedef struct {
    converter convert;
    const char *check; /* NULL: none */
    bool csv;
} format_info;

/* --- values of entries ---------------------------------------------------------------------- */

static pf_status need_string(const json_t *entry, const char *key, const char **out, pf_err *err)
{
    *out = NULL;
    pf_status status = json_get_string(entry, key, out, err);
    if (status == PF_OK && !*out) status = err_set(err, PF_REFUSED, "\"%s\" is missing", key);
    return status;
}

/* An item that asks one question. */
static json_t *question(const json_t *entry, const char *text)
{
    static const char *const id_keys[] = {"id", "task_id", "key", "unique_id"};
    json_t *item = json_object(), *message = json_object(), *messages = json_array();
    json_object_set_new(message, "role", json_string("user"));
    json_object_set_new(message, "content", json_string(text));
    json_array_append_new(messages, message);
    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++) {
        json_t *id = json_object_get(entry, id_keys[i]);
        if (!id) continue;
        json_object_set(item, "id", id);
        break;
    }
    json_object_set_new(item, "messages", messages);
    return item;
}

static void set_text(json_t *object, const char *key, const buf *text)
{
    json_object_set_new(object, key, json_stringn(buf_str(text), text->len));
}

/* --- chat ----------------------------------------------------------------------------------- */

static pf_status check_messages(const json_t *list, pf_err *err)
{
    const json_t *message;
    chat_role role = ROLE_SYSTEM;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_REFUSED, "\"messages\" must be a list of at least one message");
    json_array_foreach(list, i, message)
    {
        const char *name = json_string_value(json_object_get(message, "role"));
        bool ok = name && chat_role_parse(name, &role);
        if (!ok || !json_is_string(json_object_get(message, "content")))
            return err_set(err, PF_REFUSED,
                           "messages[%zu] needs a \"role\" (system, user or assistant) and a "
                           "\"content\" that is a text",
                           i);
    }
    if (role == ROLE_SYSTEM)
        return err_set(err, PF_REFUSED, "\"messages\" ends with a system text: nothing is asked");
    return PF_OK;
}

static pf_status check_turns(const json_t *list, pf_err *err)
{
    const json_t *turn;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_REFUSED, "\"turns\" must be a list of at least one text");
    json_array_foreach(list, i, turn)
    {
        if (!json_is_string(turn)) return err_set(err, PF_REFUSED, "turns[%zu] must be a text", i);
    }
    return PF_OK;
}

static pf_status convert_chat(const json_t *entry, json_t **out, pf_err *err)
{
    const json_t *messages = json_object_get(entry, "messages"),
                 *turns = json_object_get(entry, "turns");
    const char *prompt = NULL;
    pf_status status = json_get_string(entry, "prompt", &prompt, err);
    if (status != PF_OK) return status;
    if (!!messages + !!turns + !!prompt != 1)
        return err_set(err, PF_REFUSED, "one of \"messages\", \"turns\" and \"prompt\" is needed");
    if (messages) status = check_messages(messages, err);
    if (turns) status = check_turns(turns, err);
    if (status != PF_OK) return status;
    *out = json_copy((json_t *)(uintptr_t)entry);
    if (!prompt) return PF_OK;
    json_t *item = question(entry, prompt);
    json_object_set(*out, "messages", json_object_get(item, "messages"));
    json_decref(item);
    return PF_OK;
}

/* --- numbers and expressions ---------------------------------------------------------------- */

static pf_status convert_gsm8k(const json_t *entry, json_t **out, pf_err *err)
{
    const char *text, *answer;
    double number;
    pf_status status = need_string(entry, "question", &text, err);
    if (status == PF_OK) status = need_string(entry, "answer", &answer, err);
    if (status != PF_OK) return status;
    const char *mark = strstr(answer, "####");
    for (const char *next = mark; next; next = strstr(next + 1, "####"))
        mark = next;
    span wanted = span_trim(span_of(mark ? mark + 4 : ""));
    if (!answer_last_number(wanted, &number))
        return err_set(err, PF_REFUSED, "\"answer\" has no number after \"####\"");
    buf prompt = {0};
    buf_printf(&prompt,
               "%s\n\nThink step by step and end with the answer as a number on a line of its own.",
               text);
    *out = question(entry, buf_str(&prompt));
    json_object_set_new(*out, "expect", json_stringn(wanted.data, wanted.len));
    buf_free(&prompt);
    return PF_OK;
}

static pf_status convert_math(const json_t *entry, json_t **out, pf_err *err)
{
    const char *text, *solution;
    span wanted;
    pf_status status = need_string(entry, "problem", &text, err);
    if (status == PF_OK) status = need_string(entry, "solution", &solution, err);
    if (status != PF_OK) return status;
    if (!answer_boxed(span_of(solution), &wanted) || wanted.len == 0)
        return err_set(err, PF_REFUSED, "\"solution\" has no \\boxed{...}");
    buf prompt = {0};
    buf_printf(&prompt, "%s\n\nThink step by step and put the answer into \\boxed{}.", text);
    *out = question(entry, buf_str(&prompt));
    json_object_set_new(*out, "expect", json_stringn(wanted.data, wanted.len));
    buf_free(&prompt);
    return PF_OK;
}

/* --- programs ------------------------------------------------------------------------------- */

static void set_program(json_t *item, const buf *before, const buf *after)
{
    json_t *program = json_object();
    set_text(program, "before", before);
    set_text(program, "after", after);
    json_object_set_new(item, "program", program);
}

/* The answer may be the body alone or the whole function: after the prompt, which ends with the
 * function's docstring, both make a program. */
static pf_status convert_humaneval(const json_t *entry, json_t **out, pf_err *err)
{
    const char *prompt, *test, *name;
    buf text = {0}, before = {0}, after = {0};
    pf_status status = need_string(entry, "prompt", &prompt, err);
    if (status == PF_OK) status = need_string(entry, "test", &test, err);
    if (status == PF_OK) status = need_string(entry, "entry_point", &name, err);
    if (status != PF_OK) return status;
    buf_printf(&text,
               "Complete this Python function. Answer with the whole function.\n\n```python\n%s```",
               prompt);
    buf_puts(&before, prompt);
    buf_printf(&after, "\n%s\n\ncheck(%s)\n", test, name);
    *out = question(entry, buf_str(&text));
    set_program(*out, &before, &after);
    buf_free(&text);
    buf_free(&before);
    buf_free(&after);
    return PF_OK;
}

/* Appends the texts of a list, each on a line; a single text is a list of one. */
static pf_status put_lines(const json_t *entry, const char *key, bool needed, buf *out, pf_err *err)
{
    const json_t *list = json_object_get(entry, key), *line;
    size_t i;
    if (!list && !needed) return PF_OK;
    if (json_is_string(list)) {
        buf_printf(out, "%s\n", json_string_value(list));
        return PF_OK;
    }
    if (!json_is_array(list) || (needed && json_array_size(list) == 0))
        return err_set(err, PF_REFUSED, "\"%s\" must be a list of texts", key);
    json_array_foreach(list, i, line)
    {
        if (!json_is_string(line)) return err_set(err, PF_REFUSED, "%s[%zu] is no text", key, i);
        buf_printf(out, "%s\n", json_string_value(line));
    }
    return PF_OK;
}

static pf_status convert_mbpp(const json_t *entry, json_t **out, pf_err *err)
{
    const char *text = NULL;
    buf prompt = {0}, before = {0}, tests = {0};
    pf_status status =
        need_string(entry, json_object_get(entry, "text") ? "text" : "prompt", &text, err);
    if (status == PF_OK) status = put_lines(entry, "test_list", true, &tests, err);
    if (status == PF_OK) status = put_lines(entry, "test_setup_code", false, &before, err);
    if (status == PF_OK) status = put_lines(entry, "test_imports", false, &before, err);
    if (status == PF_OK) {
        buf_printf(&prompt,
                   "%s\nAnswer with Python code that passes these tests:\n\n```python\n%s```", text,
                   buf_str(&tests));
        *out = question(entry, buf_str(&prompt));
        set_program(*out, &before, &tests);
    }
    buf_free(&prompt);
    buf_free(&before);
    buf_free(&tests);
    return status;
}

/* --- instructions, choices, lengths --------------------------------------------------------- */

/* Instructions that need a model are left out; an item of such alone can't be checked. */
static pf_status convert_ifeval(const json_t *entry, json_t **out, pf_err *err)
{
    const json_t *names = json_object_get(entry, "instruction_id_list"),
                 *arguments = json_object_get(entry, "kwargs"), *name;
    const char *prompt;
    size_t i;
    pf_status status = need_string(entry, "prompt", &prompt, err);
    if (status != PF_OK) return status;
    if (!json_is_array(names) || json_array_size(names) == 0 ||
        json_array_size(arguments) != json_array_size(names))
        return err_set(err, PF_REFUSED,
                       "\"instruction_id_list\" and \"kwargs\" must be lists of one length");
    json_t *list = json_array();
    json_array_foreach(names, i, name)
    {
        json_t *one = json_object();
        if (json_is_string(name) && instruction_needs_model(json_string_value(name))) {
            json_decref(one);
            continue;
        }
        json_object_set(one, "id", (json_t *)(uintptr_t)name);
        json_object_set(one, "kwargs", json_array_get(arguments, i));
        json_array_append_new(list, one);
    }
    if (json_array_size(list) > 0) {
        *out = question(entry, prompt);
        json_object_set(*out, "instructions", list);
    }
    json_decref(list);
    return PF_OK;
}

/* "answer" is a letter or the number of the choice, from 0. */
static pf_status convert_mmlu(const json_t *entry, json_t **out, pf_err *err)
{
    const json_t *choices = json_object_get(entry, "choices"),
                 *answer = json_object_get(entry, "answer"), *choice;
    size_t i, n = json_array_size(choices);
    const char *text;
    pf_status status = need_string(entry, "question", &text, err);
    if (status != PF_OK) return status;
    if (n < 2 || n > 26) return err_set(err, PF_REFUSED, "\"choices\" must be 2 to 26 texts");
    int64_t right = json_is_integer(answer)           ? json_integer_value(answer)
                    : json_string_length(answer) == 1 ? json_string_value(answer)[0] - 'A'
                                                      : -1;
    if (right < 0 || right >= (int64_t)n)
        return err_set(err, PF_REFUSED, "\"answer\" names none of the %zu choices", n);
    buf prompt = {0};
    buf_printf(&prompt, "%s\n", text);
    json_array_foreach(choices, i, choice)
    {
        if (!json_is_string(choice))
            status = err_set(err, PF_REFUSED, "choices[%zu] is no text", i);
        buf_printf(&prompt, "%c. %s\n", (char)('A' + i),
                   json_is_string(choice) ? json_string_value(choice) : "");
    }
    buf_puts(&prompt, "\nAnswer with the letter of the right choice.");
    if (status == PF_OK) {
        const char letter[] = {(char)('A' + right), '\0'};
        *out = question(entry, buf_str(&prompt));
        json_object_set_new(*out, "expect", json_string(letter));
    }
    buf_free(&prompt);
    return status;
}

static pf_status convert_longbench_write(const json_t *entry, json_t **out, pf_err *err)
{
    const char *prompt;
    int64_t length = 0;
    pf_status status = need_string(entry, "prompt", &prompt, err);
    if (status == PF_OK) status = json_get_int(entry, "length", 1, 1000000, &length, err);
    if (status == PF_OK && length == 0) status = err_set(err, PF_REFUSED, "\"length\" is missing");
    if (status != PF_OK) return status;
    *out = question(entry, prompt);
    json_object_set_new(*out, "target", json_integer(length));
    return PF_OK;
}

/* --- the table ------------------------------------------------------------------------------ */

const char *const eval_format_names[] = {
    "chat", "gsm8k", "math", "humaneval", "mbpp", "ifeval", "mmlu", "longbench-write", NULL};

static const format_info formats[] = {
    [EVAL_CHAT] = {convert_chat, NULL, false},
    [EVAL_GSM8K] = {convert_gsm8k,
                    "{\"rules\":[{\"type\":\"last_number\"}],\"max_new_tokens\":512}", false},
    [EVAL_MATH] = {convert_math, "{\"rules\":[{\"type\":\"boxed\"}],\"max_new_tokens\":1024}",
                   false},
    [EVAL_HUMANEVAL] = {convert_humaneval, PYTHON_RULE, false},
    [EVAL_MBPP] = {convert_mbpp, PYTHON_RULE, false},
    [EVAL_IFEVAL] = {convert_ifeval,
                     "{\"rules\":[{\"type\":\"instructions\"}],\"max_new_tokens\":1280}", false},
    [EVAL_MMLU] = {convert_mmlu, "{\"rules\":[{\"type\":\"choice\"}],\"max_new_tokens\":32}", true},
    [EVAL_LONGBENCH_WRITE] = {convert_longbench_write,
                              "{\"rules\":[{\"type\":\"length_near\",\"unit\":\"words\"}],"
                              "\"max_new_tokens\":0}",
                              false},
};

json_t *eval_format_check(eval_format format)
{
    json_t *check = NULL;
    const char *text = formats[format].check;
    if (text && json_parse(text, strlen(text), "check", &check, NULL) != PF_OK)
        die("the check of a format is no JSON");
    return check;
}

/* --- reading -------------------------------------------------------------------------------- */

typedef struct {
    const format_info *format;
    json_t *items;
    size_t n_left_out;
} reading;

static pf_status take_entry(reading *r, const json_t *entry, const char *where, pf_err *err)
{
    json_t *item = NULL;
    pf_status status = json_is_object(entry) ? r->format->convert(entry, &item, err)
                                             : err_set(err, PF_REFUSED, "it is no JSON object");
    if (status != PF_OK)
        err_context(err, "%s", where);
    else if (item)
        json_array_append_new(r->items, item);
    else
        r->n_left_out++;
    return status;
}

static pf_status read_list(reading *r, span data, const char *name, pf_err *err)
{
    json_t *list = NULL;
    const json_t *entry;
    size_t i;
    pf_status status = json_parse(data.data, data.len, name, &list, err);
    json_array_foreach(list, i, entry)
    {
        char *where = xasprintf("%s, entry %zu", name, i);
        status = take_entry(r, entry, where, err);
        free(where);
        if (status != PF_OK) break;
    }
    json_decref(list);
    return status;
}

static pf_status read_lines(reading *r, span data, const char *name, pf_err *err)
{
    pf_status status = PF_OK;
    size_t number = 0;
    for (span line; status == PF_OK && span_next_line(&data, &line);) {
        number++;
        if (span_trim(line).len == 0) continue;
        json_t *entry = NULL;
        char *where = xasprintf("%s, line %zu", name, number);
        status = json_parse(line.data, line.len, where, &entry, err);
        if (status == PF_OK) status = take_entry(r, entry, where, err);
        json_decref(entry);
        free(where);
    }
    return status;
}

/* One field of CSV; *last: the record ends behind it. Quoted fields may hold commas, line ends and
 * doubled quotes. False: a quote does not close. */
static bool next_field(span *rest, buf *field, bool *last)
{
    bool quoted = rest->len > 0 && rest->data[0] == '"';
    size_t i = quoted;
    *last = true;
    for (; i < rest->len; i++) {
        char c = rest->data[i];
        if (quoted && c == '"') {
            if (i + 1 < rest->len && rest->data[i + 1] == '"')
                i++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (c == ',' || c == '\n')) {
            *last = c == '\n';
            i++;
            break;
        }
        if (c != '\r' || quoted) buf_putc(field, c);
    }
    *rest = (span){rest->data + i, rest->len - i};
    return !quoted;
}

/* A record question, choices..., letter as an entry with names. */
static pf_status take_record(reading *r, json_t *fields, const char *where, pf_err *err)
{
    size_t n = json_array_size(fields);
    if (n < 4)
        return err_set(err, PF_REFUSED, "%s: question, choices and letter are needed", where);
    json_t *entry = json_object(), *choices = json_array();
    json_object_set(entry, "question", json_array_get(fields, 0));
    for (size_t i = 1; i + 1 < n; i++)
        json_array_append(choices, json_array_get(fields, i));
    json_object_set_new(entry, "choices", choices);
    json_object_set(entry, "answer", json_array_get(fields, n - 1));
    pf_status status = take_entry(r, entry, where, err);
    json_decref(entry);
    return status;
}

static pf_status read_csv(reading *r, span data, const char *name, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t number = 1; data.len > 0 && status == PF_OK; number++) {
        json_t *fields = json_array();
        char *where = xasprintf("%s, record %zu", name, number);
        bool last = false, blank = true;
        while (!last && status == PF_OK) {
            buf field = {0};
            if (!next_field(&data, &field, &last))
                status = err_set(err, PF_REFUSED, "%s: a quote does not close", where);
            json_t *text = json_stringn(buf_str(&field), field.len);
            if (!text && status == PF_OK)
                status = err_set(err, PF_REFUSED, "%s is not UTF-8", where);
            if (text) json_array_append_new(fields, text);
            blank = blank && field.len == 0 && last;
            buf_free(&field);
        }
        if (status == PF_OK && !blank) status = take_record(r, fields, where, err);
        json_decref(fields);
        free(where);
    }
    return status;
}

pf_status eval_format_read(eval_format format, const char *data, size_t len, const char *name,
                           json_t **items, size_t *n_left_out, pf_err *err)
{
    reading r = {.format = &formats[format], .items = json_array()};
    span text = span_trim((span){data, len});
    pf_status status;
    if (text.len > 0 && text.data[0] == '[')
        status = read_list(&r, text, name, err);
    else if (r.format->csv && text.len > 0 && text.data[0] != '{')
        status = read_csv(&r, text, name, err);
    else
        status = read_lines(&r, (span){data, len}, name, err);
    if (status == PF_OK && json_array_size(r.items) == 0)
        status = err_set(err, PF_REFUSED, "%s holds nothing to measure", name);
    if (status == PF_OK)
        *items = r.items;
    else
        json_decref(r.items);
    *n_left_out = r.n_left_out;
    return status;
}
