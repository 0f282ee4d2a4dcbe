#include "base/options.h"

#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void option_list_free(option_list *list)
{
    free(list->items);
    *list = (option_list){0};
}

/* --- numbers ---------------------------------------------------------------------------------- */

pf_status parse_int(const char *text, const char *what, int64_t low, int64_t high, int64_t *out,
                    pf_err *err)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t len = strspn(digits, "0123456789");
    if (len == 0 || digits[len] != '\0')
        return err_set(err, PF_USAGE, "%s takes a whole number, not \"%s\"", what, text);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE || value < low || value > high)
        return err_set(err, PF_USAGE, "%s must be from %lld to %lld, not %s", what, (long long)low,
                       (long long)high, text);
    *out = value;
    return PF_OK;
}

pf_status parse_real(const char *text, const char *what, double low, double high, double *out,
                     pf_err *err)
{
    char *end = NULL;
    /* strtod also reads blanks, hexadecimal, "inf" and "nan": allow only these letters. */
    bool plain = text[0] != '\0' && text[strspn(text, "+-.0123456789eE")] == '\0';
    double value = plain ? strtod(text, &end) : 0;
    if (!plain || *end != '\0')
        return err_set(err, PF_USAGE, "%s takes a number, not \"%s\"", what, text);
    if (!isfinite(value) || value < low || value > high)
        return err_set(err, PF_USAGE, "%s must be from %g to %g, not %s", what, low, high, text);
    *out = value;
    return PF_OK;
}

static int64_t clamp_to_int64(double x)
{
    if (x >= 9223372036854775807.0) return INT64_MAX;
    if (x <= -9223372036854775808.0) return INT64_MIN;
    return (int64_t)x;
}

/* --- near misses ------------------------------------------------------------------------------ */

#define NEAREST_MAX 48

/* Fewest inserted, removed, replaced or swapped neighbouring letters that turn a into b. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][NEAREST_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

const char *nearest_name(const char *text, const char *const *names)
{
    size_t len = strlen(text), best = SIZE_MAX;
    const char *found = NULL;
    if (len < 2 || len > NEAREST_MAX) return NULL;
    for (; *names; names++) {
        size_t name_len = strlen(*names);
        if (name_len > NEAREST_MAX) continue;
        size_t distance = edit_distance(text, len, *names, name_len);
        size_t longer = len > name_len ? len : name_len;
        if (distance * 3 <= longer && distance < best) {
            best = distance;
            found = *names;
        }
    }
    return found;
}

/* --- finding an option ------------------------------------------------------------------------ */

const option_spec *options_find(const option_spec *const *tables, const char *name)
{
    for (; *tables; tables++)
        for (const option_spec *o = *tables; o->kind != OPTION_END; o++)
            if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

static const option_spec *find_letter(const option_spec *const *tables, char letter)
{
    for (; *tables; tables++)
        for (const option_spec *o = *tables; o->kind != OPTION_END; o++)
            if (o->letter == letter) return o;
    return NULL;
}

const char *options_nearest(const option_spec *const *tables, const char *name)
{
    const char *names[256];
    size_t n = 0;
    for (; *tables; tables++)
        for (const option_spec *o = *tables; o->kind != OPTION_END; o++)
            if (n < sizeof names / sizeof *names - 1) names[n++] = o->name;
    names[n] = NULL;
    return nearest_name(name, names);
}

static pf_status unknown_option(const option_spec *const *tables, const char *name, pf_err *err)
{
    const char *near = options_nearest(tables, name);
    if (near) return err_set(err, PF_USAGE, "unknown option --%s: did you mean --%s?", name, near);
    return err_set(err, PF_USAGE, "unknown option --%s", name);
}

/* The whole name, or the only option that begins with it. */
static pf_status find_long(const option_spec *const *tables, const char *name,
                           const option_spec **out, pf_err *err)
{
    size_t len = strlen(name);
    *out = options_find(tables, name);
    if (*out) return PF_OK;
    for (const option_spec *const *t = tables; *t && len > 0; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            if (strncmp(o->name, name, len) != 0) continue;
            if (*out && strcmp((*out)->name, o->name) != 0)
                return err_set(err, PF_USAGE, "--%s could be --%s or --%s", name, (*out)->name,
                               o->name);
            *out = o;
        }
    }
    return *out ? PF_OK : unknown_option(tables, name, err);
}

/* --- setting values --------------------------------------------------------------------------- */

static pf_status set_choice(const option_spec *spec, const char *value, const char *what,
                            pf_err *err)
{
    buf names = {0};
    for (int i = 0; spec->choices[i]; i++) {
        if (strcmp(value, spec->choices[i]) == 0) {
            *spec->to.choice = i;
            buf_free(&names);
            return PF_OK;
        }
        buf_printf(&names, "%s%s", i ? ", " : "", spec->choices[i]);
    }
    pf_status status =
        err_set(err, PF_USAGE, "%s must be one of: %s; not \"%s\"", what, buf_str(&names), value);
    buf_free(&names);
    return status;
}

static pf_status set_flag(const option_spec *spec, const char *value, const char *what, pf_err *err)
{
    if (!value || strcmp(value, "yes") == 0 || strcmp(value, "true") == 0) {
        *spec->to.flag = true;
        return PF_OK;
    }
    if (strcmp(value, "no") == 0 || strcmp(value, "false") == 0) {
        *spec->to.flag = false;
        return PF_OK;
    }
    return err_set(err, PF_USAGE, "%s is a switch: it takes no value but yes or no", what);
}

static pf_status set_value(const option_spec *spec, const char *value, const char *what,
                           pf_err *err)
{
    switch (spec->kind) {
    case OPTION_FLAG:
        return set_flag(spec, value, what, err);
    case OPTION_STRING:
        *spec->to.string = value;
        return PF_OK;
    case OPTION_INT:
        return parse_int(value, what, clamp_to_int64(spec->low), clamp_to_int64(spec->high),
                         spec->to.integer, err);
    case OPTION_REAL:
        return parse_real(value, what, spec->low, spec->high, spec->to.real, err);
    case OPTION_CHOICE:
        return set_choice(spec, value, what, err);
    case OPTION_LIST: {
        option_list *list = spec->to.list;
        list->items = xrealloc_array(list->items, list->count + 1, sizeof *list->items);
        list->items[list->count++] = value;
        return PF_OK;
    }
    case OPTION_END:
        break;
    }
    die("option table without a kind");
}

pf_status option_set(const option_spec *spec, const char *value, const char *source, pf_err *err)
{
    char *what = source ? xstrdup(source) : xasprintf("--%s", spec->name);
    pf_status status = PF_OK;
    if (!value) value = spec->optional;
    if (!value && spec->kind != OPTION_FLAG)
        status = err_set(err, PF_USAGE, "%s needs a value (%s)", what, spec->value);
    else
        status = set_value(spec, value, what, err);
    if (status == PF_OK && spec->given) *spec->given = true;
    free(what);
    return status;
}

/* --- the command line ------------------------------------------------------------------------- */

typedef struct {
    const option_spec *const *tables;
    int argc, next; /* argv[next] is read next */
    char **argv;
} parser;

static bool wants_value(const option_spec *spec)
{
    return spec->kind != OPTION_FLAG && !spec->optional;
}

static pf_status parse_long(parser *p, char *word, pf_err *err)
{
    const option_spec *spec = NULL;
    char *equals = strchr(word, '=');
    if (equals) *equals = '\0';
    pf_status status = find_long(p->tables, word, &spec, err);
    if (equals) *equals = '=';
    if (status != PF_OK) return status;

    const char *value = equals ? equals + 1 : NULL;
    if (value && spec->kind == OPTION_FLAG)
        return err_set(err, PF_USAGE, "--%s takes no value", spec->name);
    if (!value && wants_value(spec) && p->next < p->argc) value = p->argv[p->next++];
    return option_set(spec, value, NULL, err);
}

/* "-abn5": flags a and b, option n with the value 5. */
static pf_status parse_short(parser *p, const char *letters, pf_err *err)
{
    for (; *letters; letters++) {
        const option_spec *spec = find_letter(p->tables, *letters);
        if (!spec && (*letters & 0x80))
            return err_set(err, PF_USAGE, "unknown option -%s", letters);
        if (!spec) return err_set(err, PF_USAGE, "unknown option -%c", *letters);
        if (spec->kind == OPTION_FLAG) {
            pf_status status = option_set(spec, NULL, NULL, err);
            if (status != PF_OK) return status;
            continue;
        }
        const char *value = letters[1] ? letters + 1 : NULL;
        if (!value && wants_value(spec) && p->next < p->argc) value = p->argv[p->next++];
        return option_set(spec, value, NULL, err);
    }
    return PF_OK;
}

pf_status options_parse(const option_spec *const *tables, int *argc, char **argv,
                        bool stop_at_operand, pf_err *err)
{
    parser p = {.tables = tables, .argc = *argc, .next = 1, .argv = argv};
    int kept = 1;
    bool ended = false;
    while (p.next < p.argc) {
        char *word = argv[p.next++];
        bool operand = ended || word[0] != '-' || word[1] == '\0';
        if (operand) {
            argv[kept++] = word;
            ended = ended || stop_at_operand;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            ended = true;
            continue;
        }
        pf_status status =
            word[1] == '-' ? parse_long(&p, word + 2, err) : parse_short(&p, word + 1, err);
        if (status != PF_OK) return status;
    }
    argv[kept] = NULL;
    *argc = kept;
    return PF_OK;
}
