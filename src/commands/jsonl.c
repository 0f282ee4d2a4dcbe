#include "commands/jsonl.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (64 << 20)

/* --- lines ------------------------------------------------------------------------------------ */

static bool is_blank(const char *line, size_t len)
{
    return strspn(line, " \t\r\n") >= len;
}

pf_status json_print(const json_t *value, pf_err *err)
{
    buf text = {0};
    json_append(&text, value);
    buf_putc(&text, '\n');
    fwrite(text.data, 1, text.len, stdout);
    buf_free(&text);
    return output_flush(err);
}

static pf_status parse_and_handle(const char *line, size_t len, size_t number,
                                  jsonl_handler handler, void *ctx, json_t *answer, pf_err *err)
{
    json_t *object = NULL;
    char name[32];
    snprintf(name, sizeof name, "line %zu", number);
    pf_status status = json_parse(line, len, name, &object, err);
    if (status == PF_OK && !json_is_object(object))
        status = err_set(err, PF_REFUSED, "%s is no JSON object", name);
    if (status == PF_OK) status = handler(ctx, object, answer, err);
    json_decref(object);
    return status;
}

/* Writes the answer or the error; *failed counts the latter. */
static pf_status run_line(const char *line, size_t len, size_t number, jsonl_handler handler,
                          void *ctx, size_t *failed, pf_err *err)
{
    pf_err line_err = {0};
    json_t *answer = json_object();
    if (parse_and_handle(line, len, number, handler, ctx, answer, &line_err) != PF_OK) {
        (*failed)++;
        json_object_clear(answer);
        json_object_set_new(answer, "line", json_integer((json_int_t)number));
        json_object_set_new(answer, "error", json_text(line_err.text, strlen(line_err.text)));
    }
    pf_status status = json_print(answer, err);
    json_decref(answer);
    return status;
}

typedef enum { LINE_READ, LINE_NONE, LINE_TOO_LONG } line_found;

/* The next line without its end. */
static line_found read_line(FILE *in, buf *line)
{
    int c = getc_unlocked(in);
    if (c == EOF) return LINE_NONE;
    for (buf_clear(line); c != EOF && c != '\n'; c = getc_unlocked(in)) {
        if (line->len == LINE_MAX_BYTES) return LINE_TOO_LONG;
        buf_putc(line, (char)c);
    }
    return LINE_READ;
}

pf_status jsonl_run(const char *path, jsonl_handler handler, void *ctx, pf_err *err)
{
    pf_status status = PF_OK;
    buf line = {0};
    line_found found = LINE_NONE;
    size_t number = 0, failed = 0;
    bool own = path && strcmp(path, "-") != 0;
    FILE *in = own ? fopen(path, "re") : stdin;
    if (!in)
        return err_errno(err, errno == ENOENT ? PF_NOT_FOUND : PF_FAILED, errno, "cannot read %s",
                         path);
    while (status == PF_OK && (found = read_line(in, &line)) == LINE_READ) {
        number++;
        if (is_blank(buf_str(&line), line.len)) continue;
        status = run_line(buf_str(&line), line.len, number, handler, ctx, &failed, err);
    }
    if (status == PF_OK && found == LINE_TOO_LONG)
        status = err_set(err, PF_REFUSED, "%s, line %zu is longer than %d MiB",
                         own ? path : "standard input", number + 1, LINE_MAX_BYTES >> 20);
    if (status == PF_OK && ferror(in))
        status = err_errno(err, PF_FAILED, errno, "reading %s stopped after line %zu",
                           own ? path : "standard input", number);
    if (status == PF_OK && failed)
        status =
            err_set(err, PF_FAILED, "%zu of %zu lines failed; see their \"error\"", failed, number);
    buf_free(&line);
    if (own) fclose(in);
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

pf_status json_get_bytes(const json_t *object, buf *out, pf_err *err)
{
    const json_t *text = json_object_get(object, "text"), *b64 = json_object_get(object, "b64");
    const json_t *value = text ? text : b64;
    if (!text == !b64) return err_set(err, PF_REFUSED, "needs either \"text\" or \"b64\"");
    if (!json_is_string(value))
        return err_set(err, PF_REFUSED, "\"%s\" is no string", text ? "text" : "b64");
    const char *chars = json_string_value(value);
    size_t len = json_string_length(value), n = 0;
    if (text) {
        buf_append(out, chars, len);
        return PF_OK;
    }
    buf_reserve(out, len);
    if (sodium_base642bin((unsigned char *)out->data + out->len, len, chars, len, NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return err_set(err, PF_REFUSED, "\"b64\" is not base64");
    out->len += n;
    return PF_OK;
}

json_t *json_text(const char *bytes, size_t len)
{
    buf text = {0};
    utf8_repair(bytes, len, &text);
    json_t *value = json_stringn(buf_str(&text), text.len);
    buf_free(&text);
    return value;
}

json_t *json_base64(const char *bytes, size_t len)
{
    size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    char *text = xmalloc(size);
    sodium_bin2base64(text, size, (const unsigned char *)bytes, len,
                      sodium_base64_VARIANT_ORIGINAL);
    json_t *value = json_string(text);
    free(text);
    return value;
}

json_t *json_ids(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

pf_status json_read_ids(const json_t *array, size_t size, id_list *out, pf_err *err)
{
    size_t i;
    json_t *value;
    if (!json_is_array(array)) return err_set(err, PF_REFUSED, "\"ids\" is no array");
    json_array_foreach(array, i, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (size_t)id >= size)
            return err_set(err, PF_REFUSED, "ids[%zu] is no token: the vocabulary has 0 to %zu", i,
                           size - 1);
        id_list_append(out, (int32_t)id);
    }
    return PF_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

static pf_status read_message(const json_t *object, size_t i, const tokenizer *t,
                              chat_message *message, id_list *ids, pf_err *err)
{
    if (!json_is_object(object)) return err_set(err, PF_REFUSED, "message %zu is no object", i);
    const json_t *role = json_object_get(object, "role"),
                 *text = json_object_get(object, "content");
    const json_t *stored = json_object_get(object, "ids");
    if (!role) return err_set(err, PF_REFUSED, "message %zu has no \"role\"", i);
    if (!json_is_string(role) || !chat_role_parse(json_string_value(role), &message->role))
        return err_set(err, PF_REFUSED,
                       "message %zu has the role \"%.40s\"; known are system, user, assistant", i,
                       json_is_string(role) ? json_string_value(role) : "(no text)");
    if (!json_is_string(text))
        return err_set(err, PF_REFUSED, "message %zu: its \"content\" is %s", i,
                       text ? "no text" : "missing");
    message->text = json_string_value(text);
    message->len = json_string_length(text);
    if (!stored) return PF_OK;
    if (message->role != ROLE_ASSISTANT)
        return err_set(err, PF_REFUSED, "message %zu has \"ids\" but is no answer", i);
    if (json_read_ids(stored, tokenizer_size(t), ids, err) != PF_OK)
        return err_context(err, "message %zu", i);
    static const int32_t none;
    message->ids = ids->ids ? ids->ids : &none;
    message->n_ids = ids->len;
    return PF_OK;
}

pf_status messages_read(const json_t *array, const tokenizer *t, message_list *out, pf_err *err)
{
    pf_status status = PF_OK;
    if (!json_is_array(array)) return err_set(err, PF_REFUSED, "\"messages\" is no array");
    out->n = json_array_size(array);
    out->items = xcalloc(out->n, sizeof *out->items);
    out->ids = xcalloc(out->n, sizeof *out->ids);
    for (size_t i = 0; i < out->n && status == PF_OK; i++)
        status = read_message(json_array_get(array, i), i, t, &out->items[i], &out->ids[i], err);
    return status;
}

void messages_free(message_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        id_list_free(&list->ids[i]);
    free(list->items);
    free(list->ids);
    *list = (message_list){0};
}
