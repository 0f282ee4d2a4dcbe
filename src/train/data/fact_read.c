/* Reading statements: which sentence says what about the user. */
#include "train/data/fact_table.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "models/unicode.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 64

/* A sentence in words. Texts point into `kept`. */
typedef struct {
    buf kept;
    struct {
        size_t lower, text, len; /* offsets: in lower case, as written; len of the latter */
        bool capital;            /* begins with an upper-case letter */
        bool comma;              /* a comma, semicolon or colon follows */
    } w[MOST_WORDS];
    size_t n;
    bool asks; /* ends with a question mark */
} sentence;

static const char *lower_of(const sentence *s, size_t i)
{
    return buf_str((buf *)(uintptr_t)&s->kept) + s->w[i].lower;
}

static const char *text_of(const sentence *s, size_t i)
{
    return buf_str((buf *)(uintptr_t)&s->kept) + s->w[i].text;
}

/* --- words ------------------------------------------------------------------------------------ */

static bool is_closing(char c)
{
    return c && strchr(".,;:!?\")]}", c);
}

/* Appends a word with straight apostrophes, NUL-terminated; returns its offset. */
static size_t keep_word(buf *kept, span word, bool fold)
{
    buf plain = {0};
    size_t at = kept->len;
    for (size_t i = 0; i < word.len; i++) {
        if (word.len - i >= 3 && memcmp(word.data + i, "\xe2\x80\x99", 3) == 0) {
            buf_putc(&plain, '\'');
            i += 2;
        } else {
            buf_putc(&plain, word.data[i]);
        }
    }
    if (fold)
        span_lower((span){buf_str(&plain), plain.len}, kept);
    else
        buf_append(kept, buf_str(&plain), plain.len);
    buf_putc(kept, '\0');
    buf_free(&plain);
    return at;
}

static bool starts_upper(span word)
{
    uint32_t c = 0;
    return span_next_char(&word, &c) && c != UINT32_MAX && unicode_lower(c) != c;
}

static void read_words(span text, sentence *s)
{
    *s = (sentence){0};
    for (span word; s->n < MOST_WORDS && span_next_word(&text, &word);) {
        bool comma = false;
        while (word.len > 0 && strchr("\"([{", word.data[0])) {
            word.data++;
            word.len--;
        }
        while (word.len > 0 && is_closing(word.data[word.len - 1])) {
            char c = word.data[--word.len];
            comma |= c == ',' || c == ';' || c == ':';
            s->asks |= c == '?';
        }
        bool dash = word.len > 0 && word.data[0] == '-';
        if (word.len == 0 || dash) {
            if (s->n > 0) s->w[s->n - 1].comma = true;
            continue;
        }
        size_t i = s->n++;
        s->w[i].lower = keep_word(&s->kept, word, true);
        s->w[i].text = keep_word(&s->kept, word, false);
        s->w[i].len = strlen(buf_str(&s->kept) + s->w[i].text);
        s->w[i].capital = starts_upper(word);
        s->w[i].comma = comma;
    }
}

bool fact_word_in(const char *word, const char *list)
{
    size_t len = strlen(word);
    for (const char *p = list; *p;) {
        const char *end = strchrnul(p, ' ');
        if ((size_t)(end - p) == len && memcmp(p, word, len) == 0) return true;
        p = *end ? end + 1 : end;
    }
    return false;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Words that end a value: what follows is about something else. */
static const char stops[] =
    "but because so which who whom since when while although though as if unless until last next "
    "now again today too here please already currently still anyway however right tonight "
    "tomorrow yesterday then";
/* For values that are names of places, jobs and the like. */
static const char prepositions[] =
    "in at for near with every since from on by during about to into over after before more than";
static const char pronouns[] = "i i'm i've i'd i'll my me we our it it's he she they that this the";

static bool ends_value(const sentence *s, size_t i, bool short_value)
{
    const char *word = lower_of(s, i);
    if (fact_word_in(word, stops)) return true;
    if (strcmp(word, "and") == 0)
        return i + 1 >= s->n || fact_word_in(lower_of(s, i + 1), pronouns);
    return short_value && fact_word_in(word, prepositions);
}

/* End of the value that begins at word i. */
static size_t value_end(const sentence *s, size_t i, bool short_value)
{
    size_t end = i;
    while (end < s->n && !(end > i && ends_value(s, end, short_value))) {
        end++;
        if (s->w[end - 1].comma) break;
    }
    return end;
}

/* End of a name: words in upper case. */
static size_t name_end(const sentence *s, size_t i)
{
    size_t end = i;
    while (end < s->n && s->w[end].capital && end - i < 4) {
        if (fact_word_in(lower_of(s, end), pronouns)) break;
        end++;
        if (s->w[end - 1].comma) break;
    }
    return end;
}

static char *join(const sentence *s, size_t first, size_t end, bool folded)
{
    buf out = {0};
    for (size_t i = first; i < end; i++) {
        if (i > first) buf_putc(&out, ' ');
        const char *word = folded ? lower_of(s, i) : text_of(s, i);
        buf_append(&out, word, strlen(word));
    }
    char *text = xstrdup(buf_str(&out));
    buf_free(&out);
    return text;
}

/* --- patterns --------------------------------------------------------------------------------- */

typedef struct {
    size_t thing, thing_end, value, value_end;
} captures;

/* Whether one of the alternatives "a/b/c" is the word. */
static bool is_alternative(const char *word, const char *list, size_t len)
{
    size_t n = strlen(word);
    for (const char *p = list, *end = list + len; p < end;) {
        const char *stop = memchr(p, '/', (size_t)(end - p));
        if (!stop) stop = end;
        if ((size_t)(stop - p) == n && memcmp(p, word, n) == 0) return true;
        p = stop + 1;
    }
    return false;
}

/* A thing may be "dog's" in "my dog's name": without the ending. */
static bool thing_fits(const sentence *s, size_t first, size_t end, const fact_pattern *p)
{
    for (size_t i = first; i < end; i++)
        if (fact_word_in(lower_of(s, i), "is was are were has have my your not and or the"))
            return false;
    char *thing = join(s, first, end, true);
    size_t len = strlen(thing);
    if (len > 2 && strcmp(thing + len - 2, "'s") == 0) thing[len - 2] = '\0';
    bool fits = !p->things || fact_word_in(thing, p->things);
    free(thing);
    return fits;
}

static bool match_from(const sentence *s, size_t at, const char *pattern, const fact_pattern *p,
                       captures *c)
{
    while (*pattern == ' ')
        pattern++;
    if (!*pattern) return true;
    size_t len = strcspn(pattern, " ");
    const char *rest = pattern + len;
    if (pattern[0] == '.') return at == s->n || s->w[at - 1].comma;
    if (at >= s->n) return false;
    if (pattern[0] == 'T') { /* the shortest thing that lets the rest match */
        for (size_t n = 1; n <= 3 && at + n <= s->n; n++) {
            c->thing = at;
            c->thing_end = at + n;
            if (thing_fits(s, at, at + n, p) && match_from(s, at + n, rest, p, c)) return true;
        }
        return false;
    }
    if (pattern[0] == 'V' || pattern[0] == 'C' || pattern[0] == 'S') {
        size_t end = pattern[0] == 'C' ? name_end(s, at) : value_end(s, at, pattern[0] == 'S');
        while (end > at) { /* the longest value that lets the rest match */
            c->value = at;
            c->value_end = end;
            if (match_from(s, end, rest, p, c)) return true;
            if (!*rest) return false;
            end--;
        }
        return false;
    }
    return is_alternative(lower_of(s, at), pattern, len) && match_from(s, at + 1, rest, p, c);
}

/* Where a clause may begin. */
static bool begins_clause(const sentence *s, size_t i)
{
    return i == 0 || s->w[i - 1].comma ||
           fact_word_in(lower_of(s, i - 1),
                        "and but because so since that well hello hi hey yes no "
                        "actually remember also by");
}

/* --- facts ------------------------------------------------------------------------------------ */

void fact_free(fact *f)
{
    wipe_text(f->thing);
    wipe_text(f->value);
    wipe_text(f->note);
    *f = (fact){0};
}

static bool has_month(const char *value)
{
    static const char *const months[] = {"january",   "february", "march",    "april",
                                         "may",       "june",     "july",     "august",
                                         "september", "october",  "november", "december"};
    for (size_t i = 0; i < 12; i++)
        if (span_contains(span_of(value), span_of(months[i]), true)) return true;
    return false;
}

/* Whether a word names what somebody does: by its ending, or as a whole. */
static bool names_a_job(const char *value)
{
    static const char *const ends[] = {"er", "or", "ist", "smith", "ian", "man", "woman", "ant"};
    static const char jobs[] = "nurse judge chef cook pilot monk clerk poet student scientist "
                               "surgeon architect guard";
    static const char others[] =
        "smoker teenager beginner lover vegetarian christian player reader "
        "speaker winner loser stranger user believer owner member father "
        "mother sister brother daughter elder minor human";
    const char *last = strrchr(value, ' ');
    last = last ? last + 1 : value;
    if (fact_word_in(last, jobs)) return true;
    if (fact_word_in(last, others)) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(last) > strlen(ends[i]) + 1 && span_ends(span_of(last), span_of(ends[i])))
            return true;
    return false;
}

/* What a kind asks of its value. */
static bool value_fits(fact_kind kind, const char *value, bool capital)
{
    span rest = span_of(value), word = {0};
    if (!span_next_word(&rest, &word)) return false;
    char *first = xmemdup0(word.data, word.len);
    buf folded = {0};
    span_lower(span_of(first), &folded);
    bool fits = true;
    switch (kind) {
    case FACT_BIRTHDAY:
        fits = has_month(value) || (value[0] >= '0' && value[0] <= '9');
        break;
    case FACT_JOB:
        fits = names_a_job(value);
        break;
    case FACT_LEARNS:
        fits = capital || fact_word_in(buf_str(&folded), "the to piano guitar violin chess drums "
                                                         "flute cello singing");
        break;
    case FACT_LIKES:
    case FACT_DISLIKES:
        fits = !fact_word_in(buf_str(&folded),
                             "it this that these those you your to how what when the his her their "
                             "them him my a an if where being");
        break;
    default:
        fits = !fact_word_in(buf_str(&folded), "not very so too really just also it this that what "
                                               "when how if");
    }
    buf_free(&folded);
    free(first);
    return fits;
}

static char *without_article(char *value)
{
    static const char *const articles[] = {"a ", "an ", "A ", "An "};
    for (size_t i = 0; i < 4; i++) {
        size_t n = strlen(articles[i]);
        if (strncmp(value, articles[i], n) == 0) memmove(value, value + n, strlen(value + n) + 1);
    }
    return value;
}

static char *thing_text(const sentence *s, const captures *c)
{
    if (c->thing_end == 0) return xstrdup("");
    char *thing = join(s, c->thing, c->thing_end, true);
    size_t len = strlen(thing);
    if (len > 2 && strcmp(thing + len - 2, "'s") == 0) thing[len - 2] = '\0';
    return thing;
}

static bool take(const sentence *s, const fact_pattern *p, const captures *c, fact *out)
{
    char *value = join(s, c->value, c->value_end, false);
    if (p->kind == FACT_JOB) value = without_article(value);
    bool begins_with_name = s->w[c->value].capital && c->value > 0;
    if (!value_fits(p->kind, value, begins_with_name)) {
        free(value);
        return false;
    }
    *out = (fact){.kind = p->kind, .value = value};
    out->thing = p->thing ? xstrdup(p->thing) : thing_text(s, c);
    out->note = fact_say(out, false);
    return true;
}

/* Greetings and the like are no names. */
static bool is_a_name(const sentence *s, const captures *c)
{
    return !fact_word_in(lower_of(s, c->value),
                         "hello hi hey yes no ok okay please thanks sorry sure english american "
                         "british german french italian spanish dutch belgian swiss polish turkish "
                         "chinese japanese indian canadian australian irish scottish welsh monday "
                         "tuesday wednesday thursday friday saturday sunday");
}

static bool read_known(const sentence *s, bool any, fact *out)
{
    size_t n_patterns = 0;
    const fact_pattern *patterns = fact_patterns(&n_patterns);
    for (size_t i = 0; i < n_patterns; i++) {
        const fact_pattern *p = &patterns[i];
        if (p->notes_only && !any) continue;
        for (size_t at = 0; at < s->n; at++) {
            captures c = {0};
            if (!begins_clause(s, at) || !match_from(s, at, p->words, p, &c)) continue;
            if (p->kind == FACT_NAME && !is_a_name(s, &c)) continue;
            if (take(s, p, &c, out)) return true;
        }
    }
    return false;
}

bool fact_read(span text, bool any, fact *out)
{
    sentence s;
    *out = (fact){0};
    text = span_trim(text);
    read_words(text, &s);
    bool found = s.n > 0 && !s.asks && read_known(&s, any, out);
    if (found && any) { /* a note is kept as it was written */
        free(out->note);
        out->note = xmemdup0(text.data, text.len);
    }
    if (!found && any && text.len > 0)
        *out = (fact){.kind = FACT_GENERAL,
                      .thing = xstrdup(""),
                      .value = xstrdup(""),
                      .note = xmemdup0(text.data, text.len)};
    buf_free(&s.kept);
    return out->note != NULL;
}

/* --- answers ---------------------------------------------------------------------------------- */

bool fact_read_answer(span answer, fact *out)
{
    char *note = wording_turn(answer, false);
    bool found = fact_read(span_of(note), false, out);
    free(note);
    return found;
}

/* --- lists ------------------------------------------------------------------------------------ */

void fact_list_free(fact_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        fact_free(&list->items[i].fact);
    free(list->items);
    *list = (fact_list){0};
}

bool fact_same(const fact *a, const fact *b)
{
    if (a->kind == FACT_GENERAL || b->kind == FACT_GENERAL)
        return span_equal_folded(span_of(a->note), span_of(b->note));
    return a->kind == b->kind && span_equal_folded(span_of(a->thing), span_of(b->thing)) &&
           span_equal_folded(span_of(a->value), span_of(b->value));
}

static void add_found(fact_list *list, fact *f, int64_t conversation)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!fact_same(&list->items[i].fact, f)) continue;
        list->items[i].count++;
        fact_free(f);
        return;
    }
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = (fact_found){.fact = *f, .count = 1, .conversation = conversation};
    *f = (fact){0};
}

/* The next sentence of *rest: up to . ! ? before white space, or a line end. */
static bool next_sentence(span *rest, span *out)
{
    span s = span_trim(*rest);
    if (s.len == 0) return false;
    size_t end = 0;
    while (end < s.len) {
        char c = s.data[end++];
        bool last = end == s.len || s.data[end] == ' ' || s.data[end] == '\n';
        if (c == '\n' || (strchr(".!?", c) && last)) break;
    }
    *out = (span){s.data, end};
    *rest = (span){s.data + end, s.len - end};
    return true;
}

void fact_list_find(fact_list *list, span message, int64_t conversation)
{
    for (span s; next_sentence(&message, &s);) {
        fact f;
        if (s.len <= 400 && fact_read(s, false, &f)) add_found(list, &f, conversation);
    }
}
