/* Conversations as JSONL and Markdown, and titles. */
#include "profiles/history.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/history_rows.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TITLE_CHARS 60

char *history_title(const char *text, size_t len)
{
    buf title = {0};
    size_t chars = 0, word_end = 0, i = 0;
    bool cut = false, blank = false;
    while (i < len && !cut) {
        uint32_t c = 0;
        size_t n = utf8_decode(text + i, len - i, &c, NULL);
        if (c == '\n' || c == '\r') {
            if (title.len > 0) break;
            i += n;
            continue;
        }
        if (c < 0x20 || c == 0x7f || c == ' ' || c == UINT32_MAX) {
            blank = title.len > 0;
        } else {
            if (blank) {
                word_end = title.len;
                buf_putc(&title, ' ');
                chars++;
            }
            blank = false;
            cut = chars++ >= TITLE_CHARS;
            if (!cut) buf_append(&title, text + i, n);
        }
        i += n;
    }
    if (cut) {
        /* at a word if that leaves at least a third */
        if (word_end > title.len / 3) title.len = word_end;
        buf_puts(&title, "…");
    }
    return title.data ? buf_take(&title) : xstrdup("");
}

/* --- out -------------------------------------------------------------------------------------- */

typedef void (*writer)(const conversation *c, buf *out);

/* The text, in the user's rewritten form if there is one. */
static const char *shown_text(const history_message *m, size_t *len)
{
    bool rewritten = m->rewritten && *m->rewritten;
    *len = rewritten ? strlen(m->rewritten) : m->len;
    return rewritten ? m->rewritten : m->text;
}

static void write_jsonl(const conversation *c, buf *out)
{
    json_t *messages = json_array();
    for (size_t i = 0; i < c->n; i++) {
        const history_message *m = &c->messages[i];
        size_t len;
        const char *text = shown_text(m, &len);
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role", history_role_name(m->role),
                                                  "content", json_stringn(text, len)));
    }
    json_t *line = json_pack("{s:o}", "messages", messages);
    json_append(out, line);
    buf_putc(out, '\n');
    json_decref(line);
}

static void write_markdown(const conversation *c, buf *out)
{
    static const char *const names[] = {"System", "You", "Answer"};
    char date[32] = "";
    time_t seconds = (time_t)(c->info.created_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
    buf_printf(out, "# %s\n\n%s\n", *c->info.title ? c->info.title : "Conversation", date);
    for (size_t i = 0; i < c->n; i++) {
        const history_message *m = &c->messages[i];
        size_t len;
        const char *text = shown_text(m, &len);
        buf_printf(out, "\n## %s\n\n", names[m->role]);
        buf_append(out, text, len);
        if (len == 0 || text[len - 1] != '\n') buf_putc(out, '\n');
    }
    buf_putc(out, '\n');
}

static pf_status export(session *s, const int64_t *ids, size_t n, writer write, buf *out,
                        pf_err *err)
{
    tx t;
    const size_t start = out->len;
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    for (size_t i = 0; i < n && status == PF_OK; i++) {
        conversation c = {0};
        status = conversation_read(&t, ids[i], &c, err);
        conversation_prune(&c);
        if (status == PF_OK) write(&c, out);
        conversation_free(&c);
    }
    status = tx_end(&t, status, err);
    if (status != PF_OK && out->data) {
        out->len = start;
        out->data[start] = '\0';
    }
    return status;
}

pf_status history_export_jsonl(session *s, const int64_t *ids, size_t n, buf *out, pf_err *err)
{
    return export(s, ids, n, write_jsonl, out, err);
}

pf_status history_export_markdown(session *s, const int64_t *ids, size_t n, buf *out, pf_err *err)
{
    return export(s, ids, n, write_markdown, out, err);
}

/* --- in --------------------------------------------------------------------------------------- */

/* A checked line: the JSON value, whose texts the messages borrow. */
typedef struct {
    json_t *json;
    history_message *messages;
    size_t n;
} import_line;

typedef struct {
    import_line *items;
    size_t n;
} import_lines;

static void import_free(import_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        free(lines->items[i].messages);
        json_decref(lines->items[i].json);
    }
    free(lines->items);
}

static pf_status read_message(const json_t *json, size_t index, history_message *out, pf_err *err)
{
    const char *role = NULL;
    if (!json_is_object(json))
        return err_set(err, PF_REFUSED, "message %zu is not an object", index + 1);
    pf_status status = json_get_string(json, "role", &role, err);
    if (status != PF_OK) return err_context(err, "message %zu", index + 1);
    const json_t *content = json_object_get(json, "content");
    if (!role || !history_role_parse(role, &out->role))
        return err_set(err, PF_REFUSED,
                       "message %zu has the role %s; it must be system, user or assistant",
                       index + 1, role ? role : "(none)");
    if (!json_is_string(content))
        return err_set(err, PF_REFUSED, "message %zu has no \"content\" that is a string",
                       index + 1);
    out->text = (char *)(uintptr_t)json_string_value(content); /* borrowed, not changed */
    out->len = json_string_length(content);
    if (out->role == HISTORY_SYSTEM && index > 0)
        return err_set(err, PF_REFUSED, "message %zu is a system message, which must be the first",
                       index + 1);
    if (message_check(out, err) == PF_OK) return PF_OK;
    err_context(err, "message %zu", index + 1);
    return PF_REFUSED;
}

static pf_status read_line(const char *text, size_t len, const char *name, import_line *out,
                           pf_err *err)
{
    bool asked = false;
    *out = (import_line){0};
    pf_status status = json_parse(text, len, name, &out->json, err);
    if (status != PF_OK) return status;
    const json_t *messages = json_object_get(out->json, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return err_set(err, PF_REFUSED,
                       "%s: an object with a list \"messages\" that is not empty is needed", name);
    out->messages = xcalloc(json_array_size(messages), sizeof *out->messages);
    for (; out->n < json_array_size(messages) && status == PF_OK; out->n++) {
        history_message *m = &out->messages[out->n];
        status = read_message(json_array_get(messages, out->n), out->n, m, err);
        asked = asked || m->role == HISTORY_USER;
    }
    if (status != PF_OK) return err_context(err, "%s", name);
    if (!asked) return err_set(err, PF_REFUSED, "%s: there is no user message", name);
    return PF_OK;
}

static bool blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

static pf_status read_lines(const char *data, size_t len, const char *name, import_lines *out,
                            pf_err *err)
{
    pf_status status = PF_OK;
    size_t at = 0;
    for (size_t number = 1; at < len && status == PF_OK; number++) {
        const char *end = memchr(data + at, '\n', len - at);
        size_t n = end ? (size_t)(end - (data + at)) : len - at;
        if (!blank(data + at, n)) {
            char *where = xasprintf("%s, line %zu", name, number);
            out->items = xrealloc_array(out->items, out->n + 1, sizeof *out->items);
            status = read_line(data + at, n, where, &out->items[out->n++], err);
            free(where);
        }
        at += n + 1;
    }
    if (status == PF_OK && out->n == 0)
        status = err_set(err, PF_REFUSED, "%s: there is no conversation in it", name);
    return status;
}

static const history_message *first_question(const import_line *line)
{
    const history_message *m = line->messages;
    while (m->role != HISTORY_USER)
        m++;
    return m;
}

static pf_status save_line(tx *t, user_head *head, const import_line *line, int64_t profile,
                           pf_err *err)
{
    const history_message *question = first_question(line);
    conversation_row c = {.profile = profile,
                          .created_ms = clock_unix_ms(),
                          .title = history_title(question->text, question->len)};
    pf_status status = conversation_row_make(t, head, &c, err);
    for (size_t i = 0; i < line->n && status == PF_OK; i++)
        status = message_row_insert(t, &c, &line->messages[i], NULL, err);
    if (status == PF_OK) status = conversation_row_write(t, head, &c, NULL, err);
    conversation_row_free(&c);
    return status;
}

pf_status history_import_jsonl(session *s, int64_t profile, const char *data, size_t len,
                               const char *name, size_t *n, pf_err *err)
{
    tx t;
    user_head head = {0};
    import_lines lines = {0};
    pf_status status = read_lines(data, len, name, &lines, err);
    if (status == PF_OK) status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) goto out;
    status = conversation_check_profile(&t, profile, err);
    if (status == PF_OK) status = user_head_read(&t, &head, err);
    for (size_t i = 0; i < lines.n && status == PF_OK; i++)
        status = save_line(&t, &head, &lines.items[i], profile, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK && n) *n = lines.n;
out:
    import_free(&lines);
    return status;
}
