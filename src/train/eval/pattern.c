#include "train/eval/pattern.h"

#include "base/mem.h"

#include <locale.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES    4096
#define MAX_DEPTH    50
#define MAX_EXPANDED 4000 /* characters once x{20} is written out */

struct pattern {
    regex_t regex;
};

/* --- size ----------------------------------------------------------------------------------- */

typedef struct {
    size_t before, last; /* what a group holds so far: all but its last part, its last part */
} level;

/* The end of the bracket expression that opens at s[at]; s.len if it does not close. */
static size_t bracket_end(span s, size_t at)
{
    size_t i = at + 1;
    if (i < s.len && s.data[i] == '^') i++;
    if (i < s.len && s.data[i] == ']') i++;
    for (; i < s.len && s.data[i] != ']'; i++) {
        char kind = i + 1 < s.len ? s.data[i + 1] : 0;
        if (s.data[i] != '[' || (kind != ':' && kind != '.' && kind != '=')) continue;
        const char close[] = {kind, ']', 0};
        ptrdiff_t end = span_find(s, span_of(close), i + 2);
        if (end < 0) return s.len;
        i = (size_t)end + 1;
    }
    return i;
}

/* The largest number in the interval that opens at s[at]; *end: its closing brace. */
static size_t interval(span s, size_t at, size_t *end)
{
    size_t most = 1, number = 0;
    for (*end = at + 1; *end < s.len && s.data[*end] != '}'; (*end)++) {
        char c = s.data[*end];
        number = c >= '0' && c <= '9' ? number * 10 + (size_t)(c - '0') : 0;
        if (number > MAX_EXPANDED) number = MAX_EXPANDED + 1;
        if (number > most) most = number;
    }
    return most;
}

static pf_status measure(span s, pf_err *err)
{
    level levels[MAX_DEPTH + 1] = {{0, 0}};
    size_t depth = 0;
    for (size_t i = 0; i < s.len; i++) {
        level *l = &levels[depth];
        size_t part = 1;
        switch (s.data[i]) {
        case '(':
            if (depth == MAX_DEPTH)
                return err_set(err, PF_REFUSED, "it has more than %d nested groups", MAX_DEPTH);
            levels[++depth] = (level){0, 0};
            continue;
        case ')':
            if (depth == 0) break;
            part = l->before + l->last + 1;
            l = &levels[--depth];
            break;
        case '{':
            l->last *= interval(s, i, &i);
            part = 0;
            break;
        case '*':
        case '+':
        case '?':
            part = 0;
            break;
        case '[':
            i = bracket_end(s, i);
            break;
        case '\\':
            i++;
            if (i < s.len && s.data[i] >= '1' && s.data[i] <= '9')
                return err_set(err, PF_REFUSED, "it has a back reference (\\%c)", s.data[i]);
            break;
        default:
            break;
        }
        if (part) {
            l->before += l->last;
            l->last = part;
        }
        if (l->before + l->last > MAX_EXPANDED)
            return err_set(err, PF_REFUSED, "with its repetitions written out it is longer than %d",
                           MAX_EXPANDED);
    }
    return PF_OK;
}

/* --- compiling ------------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t characters; /* so that `.` is a character, whatever the person's locale */

static void open_locale(void)
{
    characters = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* The locale that was set before, to be given to uselocale. */
static locale_t enter_locale(void)
{
    pthread_once(&once, open_locale);
    return uselocale(characters);
}

pf_status pattern_compile(span expression, pattern **out, pf_err *err)
{
    if (expression.len > MAX_BYTES)
        return err_set(err, PF_REFUSED, "it is longer than %d bytes", MAX_BYTES);
    if (expression.len == 0) return err_set(err, PF_REFUSED, "it is empty");
    if (memchr(expression.data, '\0', expression.len))
        return err_set(err, PF_REFUSED, "it holds a NUL character");
    pf_status status = measure(expression, err);
    if (status != PF_OK) return status;
    pattern *p = xcalloc(1, sizeof *p);
    locale_t before = enter_locale();
    int code = regcomp(&p->regex, expression.data, REG_EXTENDED | REG_NOSUB);
    uselocale(before);
    if (code == 0) {
        *out = p;
        return PF_OK;
    }
    char reason[200];
    regerror(code, &p->regex, reason, sizeof reason);
    free(p);
    return err_set(err, PF_REFUSED, "%s", reason);
}

void pattern_free(pattern *p)
{
    if (!p) return;
    regfree(&p->regex);
    free(p);
}

bool pattern_matches(const pattern *p, span text)
{
    regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)text.len};
    locale_t before = enter_locale();
    bool matches = regexec(&p->regex, text.data, 0, &range, REG_STARTEND) == 0;
    uselocale(before);
    return matches;
}
