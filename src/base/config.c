#include "base/config.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES (1024 * 1024)

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Narrows [*text, *text + *len) to what is between the blanks at its ends. */
static void trim(const char **text, size_t *len)
{
    while (*len > 0 && blank((*text)[0])) {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && blank((*text)[*len - 1]))
        (*len)--;
}

static pf_status parse_entry(config *c, const char *text, size_t len, const char *section, int line,
                             pf_err *err)
{
    const char *equals = memchr(text, '=', len);
    if (!equals)
        return err_set(err, PF_USAGE, "%s, line %d: expected `name = value` or `[command]`",
                       c->path, line);
    size_t name_len = (size_t)(equals - text);
    trim(&text, &name_len);
    const char *value = equals + 1;
    size_t value_len = len - (size_t)(value - text);
    trim(&value, &value_len);
    if (value_len >= 2 && value[0] == '"' && value[value_len - 1] == '"') {
        value++;
        value_len -= 2;
    }
    if (name_len == 0) return err_set(err, PF_USAGE, "%s, line %d: no name", c->path, line);
    c->entries = xrealloc_array(c->entries, c->count + 1, sizeof *c->entries);
    c->entries[c->count++] = (config_entry){.section = xstrdup(section),
                                            .name = xmemdup0(text, name_len),
                                            .value = xmemdup0(value, value_len),
                                            .line = line};
    return PF_OK;
}

static pf_status parse_line(config *c, const char *text, size_t len, char **section, int line,
                            pf_err *err)
{
    trim(&text, &len);
    if (len == 0 || text[0] == '#' || text[0] == ';') return PF_OK;
    if (text[0] != '[') return parse_entry(c, text, len, *section, line, err);
    if (text[len - 1] != ']')
        return err_set(err, PF_USAGE, "%s, line %d: the ] is missing", c->path, line);
    free(*section);
    *section = xmemdup0(text + 1, len - 2);
    return PF_OK;
}

/* What becomes of a refusal: a line among the problems, or the error. */
static pf_status settle(pf_status status, const pf_err *refusal, buf *problems, pf_err *err)
{
    if (status == PF_OK) return PF_OK;
    if (problems) {
        buf_printf(problems, "%s\n", refusal->text);
        return PF_OK;
    }
    if (err) *err = *refusal;
    return status;
}

pf_status config_read(const char *path, config *out, buf *problems, pf_err *err)
{
    config c = {.path = xstrdup(path)};
    char *section = xstrdup("");
    buf text = {0};
    pf_status status = file_read(path, CONFIG_MAX_BYTES, &text, err);
    if (status != PF_OK) goto out;
    if (text.len > 0 && memchr(text.data, '\0', text.len)) {
        status = err_set(err, PF_USAGE, "%s: not a text file (it holds a zero byte)", path);
        goto out;
    }
    int line = 1;
    for (size_t at = 0; at < text.len && status == PF_OK; line++) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        size_t len = end ? (size_t)(end - text.data) - at : text.len - at;
        pf_err refusal = {0};
        status = parse_line(&c, text.data + at, len, &section, line, &refusal);
        status = settle(status, &refusal, problems, err);
        at += len + 1;
    }
out:
    buf_free(&text);
    free(section);
    if (status == PF_OK)
        *out = c;
    else
        config_free(&c);
    return status;
}

void config_free(config *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->entries[i].section);
        free(c->entries[i].name);
        free(c->entries[i].value);
    }
    free(c->entries);
    free(c->path);
    *c = (config){0};
}

void config_problem(const config *c, const config_entry *entry, const char *text, buf *problems)
{
    buf_printf(problems, "%s, line %d: %s: %s\n", c->path, entry->line, entry->name, text);
}

static pf_status apply_entry(const config *c, const config_entry *e,
                             const option_spec *const *tables, pf_err *err)
{
    const option_spec *spec = options_find(tables, e->name);
    if (!spec) {
        const char *near = options_nearest(tables, e->name);
        return err_set(err, PF_USAGE, "%s, line %d: unknown option %s%s%s%s", c->path, e->line,
                       e->name, near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
    }
    char *source = xasprintf("%s, line %d: %s", c->path, e->line, e->name);
    pf_status status = option_set(spec, e->value, source, err);
    free(source);
    return status;
}

pf_status config_apply(const config *c, const char *section, const option_spec *const *tables,
                       buf *problems, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < c->count && status == PF_OK; i++) {
        pf_err refusal = {0};
        if (strcmp(c->entries[i].section, section) != 0) continue;
        status = apply_entry(c, &c->entries[i], tables, &refusal);
        status = settle(status, &refusal, problems, err);
    }
    return status;
}
